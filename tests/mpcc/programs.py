"""Small programs for tests of MPCCs, built with the library's own builder."""

from __future__ import annotations

import casadi as ca
import numpy as np

from nosnoc_py.mpcc.layout import At
from nosnoc_py.mpcc.program import ProgramBuilder


def small_program(
    names,
    pairs=lambda w: [],
    objective=lambda w: ca.SX(0),
    *,
    rows=lambda w: [],
    lower=-np.inf,
    upper=np.inf,
    initial=0.0,
    scale=1.0,
    penalty=None,
    p=None,
    switched=None,
    aggregation="stage_stage",
    enforce_switched=False,
):
    """An MPCC with one variable per name.

    pairs(w) -> [(G, H), ...]; rows(w) -> [(name, expression, lower, upper), ...]; switched(w) -> [(name, r), ...] with
    the indicator (sum of G) (sum of H).
    """
    builder = ProgramBuilder()
    numbers = [np.broadcast_to(np.asarray(value, float), (len(names),)) for value in (lower, upper, initial, scale)]
    w = [builder.variable(name, At(), (name,), *values) for name, *values in zip(names, *numbers, strict=True)]
    if p is not None:
        w.append(builder.parameter("p", tuple(f"p_{i}" for i in range(len(p))), p))
    builder.objective = ca.SX(objective(w))
    if penalty is not None:
        builder.penalty = ca.SX(penalty(w))
    for name, expression, low, high in rows(w):
        builder.constraint(name, At(), ca.SX(expression), None, low, high)
    for k, (G, H) in enumerate(pairs(w)):
        left, right = (
            builder.left.add((f"G_{k}",), ca.SX(G), At(0, k)),
            builder.right.add((f"H_{k}",), ca.SX(H), At(0, k)),
        )
        builder.group(left, right)
    for name, residual in switched(w) if switched else []:
        builder.switch(name, At(), residual, lambda G, H: ca.sum1(G) * ca.sum1(H))
    return builder.build(aggregation=aggregation, enforce_switched=enforce_switched)
