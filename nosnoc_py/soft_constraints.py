"""Soft constraints: slack variables that are further controls or parameters, and their costs.

    lower - s <= e <= upper + s,   s >= 0

with the cost w s (l1), w s^2 (l2) per second for constraints on the path, whose s is a control, constant on its stages,
and once for all others; with w max s for l_inf, whose s is one parameter. An l1 or l_inf cost is an exact penalty: for
weights above the multipliers s is zero wherever the constraint can hold (Kerrigan and Maciejowski 2000).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np
from attrs import evolve

from nosnoc_py.declared import changed
from nosnoc_py.errors import ModelError, unknown_name
from nosnoc_py.systems.controls import padded
from nosnoc_py.systems.symbols import SLACK, check_different, finite

if TYPE_CHECKING:
    from nosnoc_py.ocp import Constraint

L1, L2, LINF = "l1", "l2", "linf"
NORMS = (L1, L2, LINF)


def checked_weight(soft: Any, weight: Any, size: int, what: str) -> np.ndarray | None:
    """Return the weights (size,) of a soft constraint; None for a hard one.

    Raises
    ------
    ModelError
        For an unknown norm, a weight that is not positive, or a weight without a norm.
    """
    if soft is None:
        if weight is not None:
            raise ModelError(f"{what}: weight= needs a soft constraint; give soft='l1', 'l2' or 'linf', too.")
        return None
    if not isinstance(soft, str) or soft not in NORMS:
        raise ModelError(f"{what}: soft: {unknown_name(str(soft), NORMS, 'norm')}")
    result = finite(1.0 if weight is None else weight, f"{what}: weight", 1 if soft == LINF else size)
    if (result <= 0).any():
        raise ModelError(f"{what}: weight: expected positive numbers, given {weight!r}.")
    return result


@dataclass(eq=False, kw_only=True)
class Slacks:
    """Slack variables and costs that soft constraints add to a problem.

    Attributes
    ----------
    controls, parameters : mapping name -> SX scalar
        The slacks.
    running, final : SX scalar
        Costs.
    """

    controls: dict[str, ca.SX] = field(default_factory=dict)
    parameters: dict[str, ca.SX] = field(default_factory=dict)
    running: ca.SX = field(default_factory=lambda: ca.SX(0))
    final: ca.SX = field(default_factory=lambda: ca.SX(0))

    def softened(self, given: Sequence[Any], kind: str) -> Any:
        """Return the constraints of a kind with their slacks; those at several times become one for each of them."""
        if not isinstance(given, list | tuple):
            return given  # which is reported where constraints are checked
        result: list[Any] = []
        for i, c in enumerate(given):
            if getattr(c, "soft", None) is None:
                result.append(c)
                continue
            if kind == "initial":
                raise ModelError("OCP: an initial constraint cannot be soft; make it a cost, or bounds of the states.")
            c = changed(c, name=c.name or f"{kind}_{i}")
            if c.soft == LINF or c.times is None or c.times.size == 1:
                result.append(self._soft(c, str(c.name), kind == "path"))
                continue
            for k, t in enumerate(c.times):
                at = changed(c, name=f"{c.name}[{k}]", times=np.array([t]))
                result.append(self._soft(at, str(c.name), on_path=False, place=f"[{k}]"))
        return result

    def _soft(self, c: Constraint, title: str, on_path: bool, place: str = "") -> Constraint:
        size = 1 if c.soft == LINF else c.lower.size
        names = [f"{SLACK}{title}]{place}" + (f"[{i}]" if size > 1 else "") for i in range(size)]
        check_different([*names, *self.controls, *self.parameters], "OCP", "slacks of soft constraints")
        symbols = [ca.SX.sym(name) for name in names]
        along = on_path and c.soft != LINF
        (self.controls if along else self.parameters).update(zip(names, symbols, strict=True))
        s = ca.vertcat(*symbols)
        weights = ca.DM(c.weight)
        cost = ca.sum1(weights * (s**2 if c.soft == L2 else s))
        if along:
            self.running += cost
        else:
            self.final += cost
        low, high = np.isfinite(c.lower), np.isfinite(c.upper)
        slack = ca.repmat(s, c.lower.size) if size == 1 else s
        rows = [(c.expression - slack)[i] for i in np.flatnonzero(high)]
        rows += [(c.expression + slack)[i] for i in np.flatnonzero(low)]
        nothing = np.full(c.lower.size, np.inf)
        result = evolve(
            c,
            expression=ca.vertcat(*rows),
            lower=np.concatenate([-nothing[high], c.lower[low]]),
            upper=np.concatenate([c.upper[high], nothing[low]]),
            soft=None,
            weight=None,
        )
        return changed(result, relaxed=True)

    def __bool__(self) -> bool:
        return bool(self.controls or self.parameters)

    def system(self, system: Any) -> Any:
        """Return the system with these controls and parameters behind its own."""
        names, nominal, more = dict(system.names), dict(system.nominal), len(self.controls)
        names |= {"u": (*system.control_names, *self.controls), "p": (*system.parameter_names, *self.parameters)}
        nominal["u"] = np.append(system.u_nominal, np.ones(more))
        p_default = system.p_default
        return system.with_fields(
            u=ca.vertcat(system.u, *self.controls.values()),
            p=ca.vertcat(system.p, *self.parameters.values()),
            names=names,
            nominal=nominal,
            p_default=None if p_default is None else np.append(p_default, np.zeros(len(self.parameters))),
        )


def without_slacks(system: Any) -> Any:
    """Return the system without the slacks of soft constraints, as controllers and simulators need it."""
    names = (*system.control_names, *system.parameter_names)
    if not any(name.startswith(SLACK) for name in names):
        return system
    n_u, n_p = (
        sum(not name.startswith(SLACK) for name in given) for given in (system.control_names, system.parameter_names)
    )
    p_default = system.p_default
    return system.with_fields(
        u=system.u[:n_u],
        p=system.p[:n_p],
        names=dict(system.names) | {"u": system.control_names[:n_u], "p": system.parameter_names[:n_p]},
        nominal=dict(system.nominal) | {"u": system.u_nominal[:n_u]},
        p_default=None if p_default is None else p_default[:n_p],
    )


def check_slacks(ocp: Any) -> None:
    """Raise `ModelError` if the cost, the constraint or the bound of a slack was removed by `replace`."""
    s = ocp.system
    names = [*s.control_names, *s.parameter_names]
    symbols = dict(zip(names, [*ca.vertsplit(s.u), *ca.vertsplit(s.p)], strict=True)) if names else {}
    slacks = {name: symbol for name, symbol in symbols.items() if name.startswith(SLACK)}
    if not slacks:
        return
    cost = ca.vertcat(ocp.stage_cost, ocp.terminal_cost)
    kinds = (ocp.path_constraints, ocp.terminal_constraints, ocp.point_constraints)
    rows = ca.vertcat(ca.SX(0, 1), *(c.expression for kind in kinds for c in kind))
    low = dict(zip(s.control_names, ocp.u_bounds[0], strict=True)) | {n: b[0] for n, b in ocp.free_parameters.items()}
    for name, symbol in slacks.items():
        if not (ca.depends_on(cost, symbol) and ca.depends_on(rows, symbol) and low.get(name, 0.0) == 0.0):
            raise ModelError(
                f"OCP: {name} has lost its cost, its bounds or its constraint: soft constraints are written into these "
                "when a problem is made; make another one with ns.OCP(...), not with dataclasses.replace."
            )


def guess_with_slacks(names: Sequence[str], guess: Any) -> Any:
    """Return a guess for the controls of these names; one without slacks gets those that are zero."""
    count = sum(name.startswith(SLACK) for name in names)
    if not count or guess is None:
        return guess
    if isinstance(guess, Mapping):
        return {**guess, "u": guess_with_slacks(names, guess["u"])} if "u" in guess else guess
    return padded(guess, tuple(names), len(names) - count)
