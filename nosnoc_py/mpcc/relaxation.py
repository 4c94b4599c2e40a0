"""Relaxations of 0 <= a, b >= 0, a b = 0, and the NLP they turn an MPCC into.

A relaxation is one line in `RELAXATIONS`: a function phi(a, b, sigma) and whether phi <= 0 or phi = 0 is imposed.
Steering decides what sigma is: the homotopy parameter itself ("direct"), or elastic slack variables that are
penalised by 1/sigma ("l_inf": one for all products, "l1": one for each).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import casadi as ca
import numpy as np

from nosnoc_py.mpcc.program import MPCC

STEERINGS = ("direct", "l1", "l_inf")


@dataclass(frozen=True)
class Relaxation:
    """phi(a, b, sigma) <= 0, or = 0 when `equality`."""

    phi: Callable[[ca.SX, ca.SX, ca.SX], ca.SX]
    equality: bool


def _scholtes(a: ca.SX, b: ca.SX, sigma: ca.SX) -> ca.SX:
    return a * b - sigma


def _fischer_burmeister(a: ca.SX, b: ca.SX, sigma: ca.SX) -> ca.SX:
    # a b = sigma where phi = 0, as with Scholtes; the tiny constant keeps the root differentiable at a = b = sigma = 0.
    # Multiplying by the conjugate avoids the cancellation of a + b - sqrt(...).
    root = ca.sqrt(a**2 + b**2 + 2 * sigma + 1e-24)
    return 2 * (a * b - sigma) / (a + b + root)


RELAXATIONS: dict[str, Relaxation] = {
    "scholtes": Relaxation(_scholtes, equality=False),
    "scholtes_equality": Relaxation(_scholtes, equality=True),
    "fischer_burmeister": Relaxation(_fischer_burmeister, equality=False),
}


@dataclass(frozen=True, eq=False, kw_only=True)
class NLP:
    """minimise f(x, p) subject to lbx <= x <= ubx, lbg <= g(x, p) <= ubg; x = (w / w_scale, further variables)."""

    x: ca.SX
    p: ca.SX
    f: ca.SX
    g: ca.SX
    lbx: np.ndarray
    ubx: np.ndarray
    lbg: np.ndarray
    ubg: np.ndarray


def relaxed_nlp(mpcc: MPCC, relaxation: str, steering: str) -> NLP:
    """The relaxed NLP of an MPCC; its parameters are (p, sigma)."""
    member = RELAXATIONS[relaxation]
    sigma = ca.SX.sym("sigma")
    a, b = mpcc.products()
    count = a.numel()
    slack = ca.SX.sym("slack", {"direct": 0, "l_inf": 1, "l1": count}[steering])
    level = ca.repmat(slack, count, 1) if steering == "l_inf" else slack if steering == "l1" else sigma
    rows = [(member.phi(a, b, level), 0.0 if member.equality else -np.inf, 0.0)]
    if mpcc.enforce_switched:
        rows += _switched_rows(mpcc, sigma)
    objective = mpcc.objective + mpcc.penalty + ca.sum1(slack) / sigma
    return assemble(mpcc, objective, rows, extra=slack, extra_p=sigma)


def _switched_rows(mpcc: MPCC, sigma: ca.SX) -> list[tuple[ca.SX, float, float]]:
    # Relaxed like the products: while sigma is large every indicator is positive and an equation would force equal
    # steps before the switch has been found.
    product = mpcc.r * mpcc.indicator(mpcc.G, mpcc.H)
    return [(product - sigma, -np.inf, 0.0), (product + sigma, 0.0, np.inf)]


def branch_nlp(mpcc: MPCC) -> NLP:
    """The NLP of a fixed active set: no products; G, H and the switched equations appear as plain rows.

    Which rows are fixed to zero is decided by the bounds at solve time, in the order g, G, H, r. The last parameter
    weights the penalty: 0 where the switched equations are held, which makes it superfluous, else 1.
    """
    weight = ca.SX.sym("penalty_weight")
    rows = [(mpcc.G, 0.0, np.inf), (mpcc.H, 0.0, np.inf), (mpcc.r, -np.inf, np.inf)]
    return assemble(mpcc, mpcc.objective + weight * mpcc.penalty, rows, extra_p=weight, nonnegative=False)


def assemble(
    mpcc: MPCC,
    objective: ca.SX,
    rows: list[tuple[ca.SX, float, float]],
    *,
    extra: ca.SX | None = None,
    extra_p: ca.SX | None = None,
    nonnegative: bool = True,
) -> NLP:
    """Scale the variables and put g, the nonnegative rows and further rows below each other."""
    extra = ca.SX(0, 1) if extra is None else extra
    extra_p = ca.SX(0, 1) if extra_p is None else extra_p
    blocks = [(mpcc.g / mpcc.g_scale, mpcc.lbg / mpcc.g_scale, mpcc.ubg / mpcc.g_scale)]
    if nonnegative:
        blocks += [(side[plain < 0], 0.0, np.inf) for side, plain in _sides(mpcc)]
    blocks += rows
    x = ca.SX.sym("x", mpcc.w.numel())
    g = ca.vertcat(*[block for block, _, _ in blocks])
    f, g = ca.substitute([objective, g], [mpcc.w], [x * mpcc.w_scale])
    fill = np.zeros(extra.numel())
    return NLP(
        x=ca.vertcat(x, extra),
        p=ca.vertcat(mpcc.p, extra_p),
        f=f,
        g=g,
        lbx=np.concatenate([mpcc.lbw / mpcc.w_scale, fill]),
        ubx=np.concatenate([mpcc.ubw / mpcc.w_scale, fill + np.inf]),
        lbg=np.concatenate([np.broadcast_to(low, block.shape[0]) for block, low, _ in blocks]),
        ubg=np.concatenate([np.broadcast_to(high, block.shape[0]) for block, _, high in blocks]),
    )


class _Rows:
    """Boolean row selection on SX (which takes integer lists only)."""

    def __init__(self, values: ca.SX) -> None:
        self.values = values

    def __getitem__(self, mask: np.ndarray) -> ca.SX:
        return self.values[np.flatnonzero(mask).tolist(), 0]  # with the column: a 1 x 1 SX reads [[]] as 1 x 0


def _sides(mpcc: MPCC) -> tuple[tuple[_Rows, np.ndarray], tuple[_Rows, np.ndarray]]:
    return (_Rows(mpcc.G), mpcc.G_variable), (_Rows(mpcc.H), mpcc.H_variable)
