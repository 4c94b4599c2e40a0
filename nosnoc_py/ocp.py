"""Optimal control problems in continuous time: a system, a horizon, costs, constraints, bounds (FESD-J, Eq. 32)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import ModelError, unknown_name
from nosnoc_py.solution.arrays import assign
from nosnoc_py.systems.symbols import check_different, check_free, check_keys, column, mapping, members, numbers, scalar

PLACES = ("control_grid", "element_ends", "rk_stages")


def _said(kind: str, name: Any) -> str:
    """What errors call a constraint."""
    if name is not None and (not isinstance(name, str) or not name):
        raise ModelError(f"{kind}: the name has to be a non-empty string or None, given {name!r}.")
    return kind if name is None else f"{kind} {name!r}"


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
    """lower <= expression <= upper, with one of them at least; lower = upper is an equation.

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
        what = _said("constraint", self.name)
        expression = column(self.expression, f"{what}: expression")
        if self.lower is None and self.upper is None:
            raise ModelError(
                f"{what}: without limits it constrains nothing; give lower, upper, or both (equal: an equation)."
            )
        labels = [str(i) for i in range(expression.shape[0])]
        lower, upper = _interval(self.lower, self.upper, labels, what)
        if not isinstance(self.at, str) or self.at not in PLACES:
            raise ModelError(f"{what}: {unknown_name(self.at, PLACES, 'place')}")
        assign(self, expression=expression, lower=lower, upper=upper)

    def without_roots(self, u: ca.SX) -> Constraint:
        """The same with bounds on roots of the control u, |u| <= r, as bounds on their squares.

        A root has no derivative at u = 0, which is where optimal controls often are. The square is divided by 2 r, so
        that at the bound rows have the same slope and multipliers stay what they are.
        """
        rows = zip(ca.vertsplit(self.expression), self.lower, self.upper, strict=True)
        made = [_without_root(row[0], float(low), float(high), u) for row, low, high in rows]
        if not made:
            return self
        expressions, lower, upper = zip(*made, strict=True)
        return replace(self, expression=ca.vertcat(*expressions), lower=np.array(lower), upper=np.array(upper))


def _without_root(row: ca.SX, lower: float, upper: float, u: ca.SX) -> tuple[ca.SX, float, float]:
    if row.is_constant() or row.is_symbolic() or row.op() != ca.OP_SQRT:
        return row, lower, upper
    known = {s.element_hash() for s in ca.symvar(u)}
    alone = all(s.element_hash() in known for s in ca.symvar(row))
    if not alone or upper < 0.0:
        return row, lower, upper
    scale = 2 * upper if 0.0 < upper < np.inf else 1.0
    return row.dep(0) / scale, lower**2 / scale if lower > 0.0 else -np.inf, upper**2 / scale


@dataclass(frozen=True, eq=False)
class Complementarity:
    """0 <= a, b >= 0, a b = 0 for every component, at every RK stage.

    Parameters
    ----------
    a, b : SX (m,)
        In the system's x, z, u and p.
    name : str, optional
        Default "complementarity_0", ...
    """

    a: Any
    b: Any
    name: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        what = _said("complementarity", self.name)
        a, b = column(self.a, f"{what}: a"), column(self.b, f"{what}: b")
        if a.shape != b.shape or a.shape[0] == 0:
            raise ModelError(f"{what}: a and b need the same length, given {a.shape[0]} and {b.shape[0]}.")
        assign(self, a=a, b=b)


@dataclass(frozen=True, eq=False)
class FreeTime:
    """A horizon that is optimised, between bounds [s]; `symbol` may be used in terminal costs and constraints.

    Parameters
    ----------
    lower, upper : float
        Positive and finite.
    initial : float, optional
        Where the solver starts; default the middle.
    """

    lower: float
    upper: float
    initial: float | None = None
    symbol: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        lower, upper = scalar(self.lower, "FreeTime: lower"), scalar(self.upper, "FreeTime: upper")
        if not 0 < lower <= upper < np.inf:
            raise ModelError(
                f"FreeTime(lower, upper, initial): expected 0 < lower <= upper, both finite, given lower {lower:g} and "
                f"upper {upper:g}."
            )
        initial = 0.5 * (lower + upper) if self.initial is None else scalar(self.initial, "FreeTime: initial")
        if not lower <= initial <= upper:
            raise ModelError(f"FreeTime: initial has to lie between {lower:g} and {upper:g}, given {initial:g}.")
        assign(self, lower=lower, upper=upper, initial=initial, symbol=ca.SX.sym("T"))


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
    system : CLS, PSS, Heaviside or PDS
    horizon : float or FreeTime
        T [s], positive.
    x0 : (n_x,), optional
        Fixed initial state; None leaves x(0) free within the bounds and `initial_constraints`.
    stage_cost, terminal_cost : SX scalar, optional
        In the system's x, z, u, p; the terminal cost may use x, p, `system.x_initial` and the symbol of a `FreeTime`.
    bounds : Bounds, optional
    path_constraints, initial_constraints, terminal_constraints : sequence of Constraint
        Terminal constraints may tie x(T) to x(0) through `system.x_initial`. Path constraints in z hold at RK stages.
    complementarities : sequence of Complementarity
        Of the user's own.
    p : (n_p,), optional
        Parameter values; default the system's. They may be changed when re-solving.
    free_parameters : mapping name -> (lower, upper), optional
        Parameters that are optimised, constant over time; `p` holds where the solver starts.

    Raises
    ------
    ModelError
        For wrong shapes, foreign symbols, NaN, lower above upper, or an x0 that penetrates a contact.
    """

    system: Any
    horizon: Any = field(kw_only=True)
    x0: Any = field(default=None, kw_only=True)
    stage_cost: Any = field(default=0, kw_only=True)
    terminal_cost: Any = field(default=0, kw_only=True)
    bounds: Bounds = field(default_factory=Bounds, kw_only=True)
    path_constraints: Sequence[Constraint] = field(default=(), kw_only=True)
    initial_constraints: Sequence[Constraint] = field(default=(), kw_only=True)
    terminal_constraints: Sequence[Constraint] = field(default=(), kw_only=True)
    complementarities: Sequence[Complementarity] = field(default=(), kw_only=True)
    p: Any = field(default=None, kw_only=True)
    free_parameters: Mapping[str, tuple[float, float]] = field(default_factory=dict, kw_only=True)
    free_time: FreeTime | None = field(init=False, repr=False)
    x_bounds: Any = field(init=False, repr=False)
    u_bounds: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        s = self.system
        if isinstance(s, type) or not hasattr(s, "check_state"):
            raise ModelError(f"OCP: the first argument has to be a system such as ns.CLS, given {type(s).__name__}.")
        if not s.controlled:
            raise ModelError(
                f"OCP: an ns.{type(s).__name__} has no controls, it is only simulated; write the problem with an "
                "ns.CLS, an ns.PSS or an ns.Heaviside."
            )
        if not isinstance(self.bounds, Bounds):
            raise ModelError(f"OCP: bounds have to be an ns.Bounds object, given {type(self.bounds).__name__}.")
        free = self.horizon if isinstance(self.horizon, FreeTime) else None
        horizon = scalar(self.horizon if free is None else free.initial, "OCP: horizon")
        if not 0 < horizon < np.inf:
            raise ModelError(f"OCP: horizon has to be positive and finite, given {horizon:g}.")
        p = s.parameters(self.p, "OCP: p")
        x0 = None if self.x0 is None else s.check_state(self.x0, p)
        every = {"x": s.x, **({"z": s.z} if s.z.numel() else {}), "u": s.u, "p": s.p}
        end = {"x": s.x, "x_initial": s.x_initial, "p": s.p, **({} if free is None else {"T": free.symbol})}
        stage_cost = column(self.stage_cost, "stage_cost", 1)
        terminal_cost = column(self.terminal_cost, "terminal_cost", 1)
        _check_time(stage_cost, free, "stage_cost")
        check_free(stage_cost, every, "OCP: stage_cost")
        check_free(terminal_cost, end, "OCP: terminal_cost")
        constraints = {
            "path_constraints": _named(self.path_constraints, "path", every, free),
            "initial_constraints": _named(self.initial_constraints, "initial", {"x": s.x, "p": s.p}, free),
            "terminal_constraints": _named(self.terminal_constraints, "terminal", end),
        }
        pairs = self._pairs(every)
        every_name = [str(pair.name) for pair in pairs] + [str(c.name) for group in constraints.values() for c in group]
        check_different(every_name, "OCP", "constraints")  # multipliers and residuals are found by name
        for c in constraints["path_constraints"]:
            if c.at != "rk_stages" and ca.depends_on(c.expression, s.z):
                raise ModelError(
                    f"OCP: path constraint {c.name!r} uses algebraic variables, which have values at RK stages only, "
                    f"but is imposed at {c.at!r}; give at='rk_stages'."
                )
        self._check_free_parameters(p)
        assign(self, complementarities=pairs, free_time=free, horizon=horizon, p=p, x0=x0, **constraints)
        assign(self, stage_cost=stage_cost, terminal_cost=terminal_cost)
        assign(self, x_bounds=self._pair("x", s.state_names), u_bounds=self._pair("u", s.control_names))
        _check_start(x0, self.x_bounds, s.state_names)

    def _pair(self, which: str, labels: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        given = getattr(self.bounds, which)
        if given is None:
            return np.full(len(labels), -np.inf), np.full(len(labels), np.inf)
        if not isinstance(given, (tuple, list)) or len(given) != 2:
            raise ModelError(f"bounds {which}: expected a pair (lower, upper), given {given!r}.")
        lower, upper = given
        return _interval(lower, upper, labels, f"bounds {which}")

    def _pairs(self, allowed: dict[str, ca.SX]) -> tuple[Complementarity, ...]:
        named = []
        for i, pair in enumerate(members(self.complementarities, Complementarity, "OCP", "complementarities")):
            name = pair.name or f"complementarity_{i}"
            check_free(ca.vertcat(pair.a, pair.b), allowed, f"OCP: {name}")
            named.append(Complementarity(pair.a, pair.b, name=name))
        return tuple(named)

    def _check_free_parameters(self, p: np.ndarray) -> None:
        names = self.system.parameter_names
        check_keys(mapping(self.free_parameters, "OCP: free_parameters"), names, "parameter")
        resolved = {}
        for name, bounds in self.free_parameters.items():
            if np.ndim(bounds) != 1 or len(bounds) != 2:
                raise ModelError(f"free parameter {name!r}: expected a pair (lower, upper), given {bounds!r}.")
            lower, upper = numbers(bounds, f"free parameter {name!r}: (lower, upper)", 2)
            if lower > upper:
                raise ModelError(
                    f"free parameter {name!r}: lower bound {lower:g} above upper bound {upper:g}; swap them."
                )
            resolved[name] = (float(lower), float(upper))
        assign(self, free_parameters=resolved)
        self.check_parameters(p)

    def check_parameters(self, p: np.ndarray) -> None:
        """Raise `ModelError` where a free parameter starts outside of its bounds."""
        for name, (lower, upper) in self.free_parameters.items():
            value = p[self.system.parameter_names.index(name)]
            if not lower <= value <= upper:
                raise ModelError(
                    f"OCP: the parameter {name} starts at {value:g}, outside of its bounds [{lower:g}, {upper:g}]; "
                    "give p=... inside of them."
                )

    def settled(self, horizon: float, p: Any) -> OCP:
        """The same problem with a free horizon [s] and free parameters (of p) fixed; all else stays as it is."""
        rows = [self.system.parameter_names.index(name) for name in self.free_parameters]
        fixed_p = np.array(self.p)
        fixed_p[rows] = np.asarray(p)[rows]
        if self.free_time is None:
            return replace(self, p=fixed_p, free_parameters={}) if self.free_parameters else self
        symbol, value = self.free_time.symbol, ca.SX(horizon)

        def fixed(expression: ca.SX) -> ca.SX:
            return ca.substitute(expression, symbol, value)

        ends = [replace(c, expression=fixed(c.expression)) for c in self.terminal_constraints]
        cost = fixed(self.terminal_cost)
        return replace(
            self, horizon=horizon, p=fixed_p, free_parameters={}, terminal_cost=cost, terminal_constraints=tuple(ends)
        )

    def __repr__(self) -> str:
        start = "free" if self.x0 is None else np.array2string(self.x0, precision=4)
        counts = ", ".join(
            f"{len(getattr(self, f'{kind}_constraints'))} {kind}" for kind in ("path", "initial", "terminal")
        )
        horizon = "free" if self.free_time is not None else f"{self.horizon:g} s"
        counts += f", {len(self.complementarities)} complementarities" if self.complementarities else ""
        counts += f", free parameters: {', '.join(self.free_parameters)}" if self.free_parameters else ""
        return f"OCP: horizon {horizon}, x0 {start}, constraints: {counts}\n  {self.system!r}".replace("\n", "\n  ")


def _check_start(x0: np.ndarray | None, bounds: tuple[np.ndarray, np.ndarray], names: Sequence[str]) -> None:
    """An initial state outside of the state bounds has no solution: say so before any solve."""
    if x0 is None:
        return
    for name, value, low, high in zip(names, x0, *bounds, strict=True):
        if not low - 1e-9 <= value <= high + 1e-9:
            raise ModelError(
                f"OCP: x0 has {name} = {value:g}, outside of its bounds [{low:g}, {high:g}]; widen them or move x0."
            )


def _check_time(expression: ca.SX, free: FreeTime | None, what: str) -> None:
    """The free horizon is a number of the whole motion: it may enter where the motion ends."""
    if free is not None and ca.depends_on(expression, free.symbol):
        raise ModelError(
            f"OCP: {what} uses the free horizon, which terminal costs and terminal constraints may use; for the time "
            "that has passed, add a state with the rate 1."
        )


def _named(
    given: Sequence[Constraint], kind: str, allowed: dict[str, ca.SX], barred: FreeTime | None = None
) -> tuple[Constraint, ...]:
    """Give every constraint a name and check its symbols; `barred` is a free horizon that it may not use."""
    named = []
    for i, c in enumerate(members(given, Constraint, "OCP", f"{kind} constraints", field=f"{kind}_constraints")):
        _check_time(c.expression, barred, f"{kind} constraint {c.name or i}")
        check_free(c.expression, allowed, f"OCP: {kind} constraint {c.name or i}")
        named.append(Constraint(c.expression, c.lower, c.upper, name=c.name or f"{kind}_{i}", at=c.at))
    return tuple(named)
