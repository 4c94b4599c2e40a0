"""Optimal control problems in continuous time: a system, a horizon, costs, constraints, bounds (FESD-J, Eq. 32)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import ModelError, unknown_name
from nosnoc_py.systems.symbols import check_free, column, numbers

PLACES = ("control_grid", "element_ends", "rk_stages")


def _interval(lower: Any, upper: Any, size: int, what: str) -> tuple[np.ndarray, np.ndarray]:
    low = numbers(-np.inf if lower is None else lower, f"{what}: lower bound", size)
    high = numbers(np.inf if upper is None else upper, f"{what}: upper bound", size)
    if (low > high).any():
        i = int(np.argmax(low > high))
        raise ModelError(f"{what}: lower bound {low[i]:g} above upper bound {high[i]:g} in component {i}; swap them.")
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
        expression = column(self.expression, f"constraint {self.name or ''}: expression")
        lower, upper = _interval(self.lower, self.upper, expression.shape[0], f"constraint {self.name or ''}")
        if self.at not in PLACES:
            raise ModelError(f"constraint {self.name or ''}: {unknown_name(self.at, PLACES, 'place')}")
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
        if not hasattr(s, "check_state"):
            raise ModelError(f"OCP: the first argument has to be a system such as ns.CLS, given {type(s).__name__}.")
        horizon = float(numbers(self.horizon, "OCP: horizon", 1)[0])
        if not 0 < horizon < np.inf:
            raise ModelError(f"OCP: horizon has to be positive and finite, given {horizon:g}.")
        p = s.p_default if self.p is None else numbers(self.p, "OCP: p", s.n_p)
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
        resolved = {"horizon": horizon, "p": p, "x0": x0, "stage_cost": stage_cost, "terminal_cost": terminal_cost}
        resolved |= {"x_bounds": self._pair("x", s.x.shape[0]), "u_bounds": self._pair("u", s.n_u)}
        for key, value in (resolved | constraints).items():
            object.__setattr__(self, key, value)

    def _pair(self, which: str, size: int) -> tuple[np.ndarray, np.ndarray]:
        given = getattr(self.bounds, which)
        if given is None:
            return np.full(size, -np.inf), np.full(size, np.inf)
        if not isinstance(given, (tuple, list)) or len(given) != 2:
            raise ModelError(f"bounds {which}: expected a pair (lower, upper), given {given!r}.")
        lower, upper = given
        return _interval(lower, upper, size, f"bounds {which}")

    def __repr__(self) -> str:
        start = "free" if self.x0 is None else np.array2string(self.x0, precision=4)
        counts = ", ".join(
            f"{len(getattr(self, f'{kind}_constraints'))} {kind}" for kind in ("path", "initial", "terminal")
        )
        return f"OCP: horizon {self.horizon:g} s, x0 {start}, constraints: {counts}\n  {self.system!r}".replace(
            "\n", "\n  "
        )


def _named(given: Sequence[Constraint], kind: str, allowed: dict[str, ca.SX]) -> tuple[Constraint, ...]:
    """Give every constraint a name and check its symbols."""
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
