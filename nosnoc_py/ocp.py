"""Optimal control problems in continuous time: a system, a horizon, costs, constraints, bounds (FESD-J, Eq. 32)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import ModelError, unknown_name
from nosnoc_py.systems.symbols import check_free, column, finite, numbers, scalar

PLACES = ("control_grid", "element_ends", "rk_stages")


def _interval(lower: Any, upper: Any, labels: Sequence[str], what: str) -> tuple[np.ndarray, np.ndarray]:
    low = numbers(-np.inf if lower is None else lower, f"{what}: lower bound", len(labels))
    high = numbers(np.inf if upper is None else upper, f"{what}: upper bound", len(labels))
    for label, a, b in zip(labels, low, high, strict=True):
        if a > b:
            raise ModelError(f"{what}: lower bound {a:g} above upper bound {b:g} in component {label}; swap them.")
        if a == np.inf or b == -np.inf:
            raise ModelError(
                f"{what}: no number lies between {a:g} and {b:g} in component {label}; give a finite bound."
            )
    return low, high


@dataclass(frozen=True, eq=False)
class Constraint:
    """lower <= expression <= upper.

    Parameters
    ----------
    expression : SX (m,)
        In the system's symbols; a terminal constraint may also use `system.x_initial`.
    lower, upper : float or (m,), optional
        Missing means no bound on that side.
    name : str, optional
        Names its multipliers and residuals; default "path_0", "terminal_0", ...
    at : {"control_grid", "element_ends", "rk_stages"}
        Where a path constraint is imposed: at the start of every control stage, at the end of every finite element,
        or at every RK stage. Without meaning for initial and terminal constraints.
    """

    expression: Any
    lower: Any = None
    upper: Any = None
    name: str | None = field(default=None, kw_only=True)
    at: str = field(default="element_ends", kw_only=True)

    def __post_init__(self) -> None:
        if self.name is not None and (not isinstance(self.name, str) or not self.name):
            raise ModelError(f"constraint: the name has to be a non-empty string or None, given {self.name!r}.")
        what = "constraint" if self.name is None else f"constraint {self.name!r}"
        expression = column(self.expression, f"{what}: expression")
        labels = [str(i) for i in range(expression.shape[0])]
        lower, upper = _interval(self.lower, self.upper, labels, what)
        if self.at not in PLACES:
            raise ModelError(f"{what}: {unknown_name(self.at, PLACES, 'place')}")
        for key, value in (("expression", expression), ("lower", lower), ("upper", upper)):
            object.__setattr__(self, key, value)


@dataclass(frozen=True, eq=False, kw_only=True)
class Bounds:
    """Bounds on states and controls, each a pair (lower, upper) of scalars or vectors in the system's order."""

    x: Any = None
    u: Any = None


@dataclass(frozen=True, eq=False)
class OCP:
    """minimise the integral of stage_cost(x, u, p) plus terminal_cost(x(T), x(0), p), subject to a system.

    Parameters
    ----------
    system : CLS
    horizon : float
        T [s], positive.
    x0 : (n_x,), optional
        Fixed initial state; None leaves x(0) free within the bounds and `initial_constraints`.
    stage_cost, terminal_cost : SX scalar, optional
        In the system's x, u, p; the terminal cost may use `system.x_initial`.
    bounds : Bounds, optional
    path_constraints, initial_constraints, terminal_constraints : sequence of Constraint
        Terminal constraints may tie x(T) to x(0) through `system.x_initial`.
    p : (n_p,), optional
        Parameter values; default the system's. They may be changed when re-solving.

    Raises
    ------
    ModelError
        For wrong shapes, foreign symbols, NaN, lower above upper, or an x0 that penetrates a contact.
    """

    system: Any
    horizon: float = field(kw_only=True)
    x0: Any = field(default=None, kw_only=True)
    stage_cost: Any = field(default=0, kw_only=True)
    terminal_cost: Any = field(default=0, kw_only=True)
    bounds: Bounds = field(default_factory=Bounds, kw_only=True)
    path_constraints: Sequence[Constraint] = field(default=(), kw_only=True)
    initial_constraints: Sequence[Constraint] = field(default=(), kw_only=True)
    terminal_constraints: Sequence[Constraint] = field(default=(), kw_only=True)
    p: Any = field(default=None, kw_only=True)
    x_bounds: Any = field(init=False, repr=False)
    u_bounds: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        s = self.system
        if isinstance(s, type) or not hasattr(s, "check_state"):
            raise ModelError(f"OCP: the first argument has to be a system such as ns.CLS, given {type(s).__name__}.")
        if not isinstance(self.bounds, Bounds):
            raise ModelError(f"OCP: bounds have to be an ns.Bounds object, given {type(self.bounds).__name__}.")
        horizon = scalar(self.horizon, "OCP: horizon")
        if not 0 < horizon < np.inf:
            raise ModelError(f"OCP: horizon has to be positive and finite, given {horizon:g}.")
        p = s.p_default if self.p is None else finite(self.p, "OCP: p", s.n_p)
        x0 = None if self.x0 is None else s.check_state(self.x0, p)
        every = {"x": s.x, "u": s.u, "p": s.p}
        end = {"x": s.x, "x_initial": s.x_initial, "p": s.p}
        stage_cost, terminal_cost = (
            column(self.stage_cost, "stage_cost", 1),
            column(self.terminal_cost, "terminal_cost", 1),
        )
        check_free(stage_cost, every, "OCP: stage_cost")
        check_free(terminal_cost, end, "OCP: terminal_cost")
        constraints = {
            "path_constraints": _named(self.path_constraints, "path", every),
            "initial_constraints": _named(self.initial_constraints, "initial", {"x": s.x, "p": s.p}),
            "terminal_constraints": _named(self.terminal_constraints, "terminal", end),
        }
        _check_names(constraints)
        resolved = {"horizon": horizon, "p": p, "x0": x0, "stage_cost": stage_cost, "terminal_cost": terminal_cost}
        resolved |= {"x_bounds": self._pair("x", s.state_names), "u_bounds": self._pair("u", s.control_names)}
        _check_start(x0, resolved["x_bounds"], s.state_names)
        for key, value in (resolved | constraints).items():
            object.__setattr__(self, key, value)

    def _pair(self, which: str, labels: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        given = getattr(self.bounds, which)
        if given is None:
            return np.full(len(labels), -np.inf), np.full(len(labels), np.inf)
        if not isinstance(given, (tuple, list)) or len(given) != 2:
            raise ModelError(f"bounds {which}: expected a pair (lower, upper), given {given!r}.")
        lower, upper = given
        return _interval(lower, upper, labels, f"bounds {which}")

    def __repr__(self) -> str:
        start = "free" if self.x0 is None else np.array2string(self.x0, precision=4)
        counts = ", ".join(
            f"{len(getattr(self, f'{kind}_constraints'))} {kind}" for kind in ("path", "initial", "terminal")
        )
        return f"OCP: horizon {self.horizon:g} s, x0 {start}, constraints: {counts}\n  {self.system!r}".replace(
            "\n", "\n  "
        )


def _check_start(x0: np.ndarray | None, bounds: tuple[np.ndarray, np.ndarray], names: Sequence[str]) -> None:
    """An initial state outside of the state bounds has no solution: say so before any solve."""
    if x0 is None:
        return
    for name, value, low, high in zip(names, x0, *bounds, strict=True):
        if not low - 1e-9 <= value <= high + 1e-9:
            raise ModelError(
                f"OCP: x0 has {name} = {value:g}, outside of its bounds [{low:g}, {high:g}]; widen them or move x0."
            )


def _named(given: Sequence[Constraint], kind: str, allowed: dict[str, ca.SX]) -> tuple[Constraint, ...]:
    """Give every constraint a name and check its symbols."""
    if not isinstance(given, (list, tuple)):
        raise ModelError(
            f"OCP: {kind}_constraints: expected a sequence of ns.Constraint, given {type(given).__name__}; "
            "put it in a list."
        )
    named = []
    for i, constraint in enumerate(given):
        if not isinstance(constraint, Constraint):
            raise ModelError(
                f"OCP: {kind} constraints have to be ns.Constraint objects, given {type(constraint).__name__}."
            )
        c = constraint
        check_free(c.expression, allowed, f"OCP: {kind} constraint {c.name or i}")
        named.append(Constraint(c.expression, c.lower, c.upper, name=c.name or f"{kind}_{i}", at=c.at))
    return tuple(named)


def _check_names(constraints: dict[str, tuple[Constraint, ...]]) -> None:
    """Multipliers and residuals are found by name: one name, one constraint."""
    seen: set[str] = set()
    for constraint in (c for group in constraints.values() for c in group):
        name = str(constraint.name)
        if name in seen:
            raise ModelError(f"OCP: two constraints are named {name!r}; give each a name of its own.")
        seen.add(name)
