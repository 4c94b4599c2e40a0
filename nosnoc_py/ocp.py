"""Optimal control problems in continuous time: a system, a horizon, costs, constraints, bounds (FESD-J, Eq. 32).

An `OCP` is a description that all methods share. It is checked and completed once: comparisons become constraints, soft
constraints become hard ones with slacks and costs, terminal states become terminal constraints, and algebraic variables
that the system has eliminated are replaced. Afterwards all constraints have different names, as multipliers and
residuals are found by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self

import casadi as ca
import numpy as np
from attrs import evolve, field

from nosnoc_py.annotations import EMPTY, Numbers, Pair, State
from nosnoc_py.arguments import named_arguments
from nosnoc_py.declared import assign, changed, checked, declared, optional, title_of
from nosnoc_py.errors import ModelError, unknown_name
from nosnoc_py.markup import tree
from nosnoc_py.point_costs import PointCost, PointTerm, times_of
from nosnoc_py.problem_sizes import ProblemSizes
from nosnoc_py.soft_constraints import Slacks, check_slacks, checked_weight
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.quaternions import lengths_left_open
from nosnoc_py.systems.relations import interval_of, intervals_by_name, is_comparison
from nosnoc_py.systems.special_laws import refuse_sequences
from nosnoc_py.systems.symbols import (
    check_different,
    check_free,
    check_keys,
    column,
    mapping,
    members,
    name_or_none,
    numbers,
    one_row,
    positive,
    scalar,
)

KINDS = ("path", "initial", "terminal", "point")
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


def _limit(value: Numbers | None) -> Any:
    return value  # whose length is checked with that of the expression


def _check_place(value: str, what: str) -> None:
    if not isinstance(value, str) or value not in PLACES:
        raise ModelError(f"{what.removesuffix(': at')}: {unknown_name(value, PLACES, 'place')}")


@declared
class Constraint:
    """Constraint lower <= expression <= upper; lower = upper is an equation.

    Parameters
    ----------
    expression : SX (m,)
        In the system's symbols; a terminal constraint may also use `system.x_initial`. Or comparisons without other
        limits: `q[0] == 1`, `q <= 1`.
    lower, upper : float or (m,), optional
        Missing means no bound on that side.
    equals : float or (m,), optional
        Both at once.
    name : str, optional
        Names its multipliers and residuals; default "path_0", "terminal_0", ...
    at : {"control_grid", "element_ends", "rk_stages"}
        Points at which a path constraint is imposed: the start of every control stage, the end of every finite element,
        or every RK stage. Ignored for other constraints.
    times : (m,), optional
        Times at which a point constraint holds [s].
    soft : {"l1", "l2", "linf"}, optional
        Allow violations at a cost: `weight` times their amounts ("l1"), their squares ("l2"), or the largest of them
        ("linf"); for path constraints l1 and l2 are costs per second. The result has the amounts under the name
        "slack[<name>]", followed by [i] for several rows: for path constraints as a control, constant on its stages
        ("linf": a parameter), for others as parameters, followed by [k] for several times. For path, terminal and
        point constraints. Build such a problem anew instead of changing it by `dataclasses.replace`.
    weight : float or (m,), optional
        Default 1; a single number for "linf". With l1 and linf and large weights the penalty is exact: constraints that
        can be satisfied are satisfied.

    Examples
    --------
    A cart that would have to go faster than it should:

    >>> import casadi as ca, nosnoc_py as ns
    >>> x, u = ca.SX.sym("x"), ca.SX.sym("u")
    >>> limit = ns.Constraint(u, upper=0.8, soft="l1", weight=10.0, name="speed")
    >>> cart = ns.ODE(x=x, u=u, flow=u)
    >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0.0], terminal_constraints=[x == 1], path_constraints=[limit])
    >>> solution = ns.solve(ocp, ns.FESD(control_stages=4, finite_elements=1))
    >>> round(float(solution["slack[speed]"].mean()), 4), round(solution.objective, 4)
    (0.2, 2.0)
    """

    noun: ClassVar[str] = "constraint"

    name: str | None = field(default=None, converter=name_or_none, kw_only=True)
    expression: ca.SX = field(converter=column)
    lower: Any = field(default=None, converter=_limit)
    upper: Any = field(default=None, converter=_limit)
    equals: Numbers | None = field(default=None, kw_only=True)  # None, once it has become both limits
    at: Literal["control_grid", "element_ends", "rk_stages"] = field(
        default="element_ends", validator=checked(_check_place), kw_only=True
    )
    times: Any = field(default=None, converter=optional(times_of), kw_only=True)
    soft: Literal["l1", "l2", "linf"] | None = field(default=None, kw_only=True)
    weight: Any = field(default=None, converter=_limit, kw_only=True)
    relaxed: bool = field(default=False, init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        what, expression = title_of(self), self.expression
        limits: tuple[Any, Any] = self.lower, self.upper
        given = [limit for limit in (*limits, self.equals) if limit is not None]
        if is_comparison(expression):
            if given:
                raise ModelError(
                    f"{what}: {expression} is a comparison already; leave out the limits, or give an "
                    "expression without comparison."
                )
            expression, low, high = interval_of(expression, what)
            limits = low, high
        elif self.equals is not None:
            if len(given) > 1:
                raise ModelError(f"{what}: equals= is both limits; leave out lower and upper.")
            limits = (self.equals, self.equals)
        elif not given:
            raise ModelError(f"{what}: has no limits; give lower, upper, or equals=, or compare: q[0] <= 1.")
        labels = [str(i) for i in range(expression.shape[0])]
        lower, upper = _interval(*limits, labels, what)
        weight = checked_weight(self.soft, self.weight, lower.size, what)
        assign(self, expression=expression, lower=lower, upper=upper, equals=None, weight=weight)

    def rows_of(self, rows: Any) -> Constraint:
        """Return the constraint with some of its rows only."""
        kept = [int(row) for row in rows]
        return evolve(self, expression=self.expression[kept], lower=self.lower[kept], upper=self.upper[kept])

    def without_roots(self, u: ca.SX) -> Constraint:
        """Return the constraint with bounds |u| <= r on roots of the control replaced by bounds on squares.

        A root has no derivative at u = 0, where optimal controls often lie. The square is divided by 2 r, so that the
        row has the same slope at the bound, and its multiplier is unchanged.
        """
        rows = zip(ca.vertsplit(self.expression), self.lower, self.upper, strict=True)
        values = [_without_root(row[0], float(low), float(high), u) for row, low, high in rows]
        if not values:
            return self
        expressions, lower, upper = zip(*values, strict=True)
        return evolve(self, expression=ca.vertcat(*expressions), lower=np.array(lower), upper=np.array(upper))


def _without_root(row: ca.SX, lower: float, upper: float, u: ca.SX) -> tuple[ca.SX, float, float]:
    if row.is_constant() or row.is_symbolic() or row.op() != ca.OP_SQRT:
        return row, lower, upper
    # Only roots of controls: a root of a state is used away from zero, and its bound may be meant as it is written.
    known = {s.element_hash() for s in ca.symvar(u)}
    alone = all(s.element_hash() in known for s in ca.symvar(row))
    if not alone or upper < 0.0:
        return row, lower, upper
    # d(u^2 / (2 r)) / d|u| = 1 at |u| = r, as for the root; for r = 0 or infinity there is no such scale.
    scale = 2 * upper if 0.0 < upper < np.inf else 1.0
    return row.dep(0) / scale, lower**2 / scale if lower > 0.0 else -np.inf, upper**2 / scale


@declared
class Complementarity:
    """Complementarity constraint 0 <= a, b >= 0, a b = 0 for every component, at every RK stage.

    Parameters
    ----------
    a, b : SX (m,)
        In the system's x, z, u and p.
    name : str, optional
        Default "complementarity_0", ...

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> x, u = ca.SX.sym("x"), ca.SX.sym("u", 2)
    >>> either = ns.Complementarity(u[0], u[1], name="one valve at a time")
    >>> ocp = ns.OCP(ns.ODE(x=x, u=u, flow=u[0] - u[1]), horizon=1.0, x0=[0.0], complementarities=[either])
    >>> len(ocp.complementarities)
    1
    """

    noun: ClassVar[str] = "complementarity"

    name: str | None = field(default=None, converter=name_or_none, kw_only=True)
    a: ca.SX = field(converter=column)
    b: ca.SX = field(converter=column)

    def __attrs_post_init__(self) -> None:
        n_a, n_b = self.a.numel(), self.b.numel()
        if n_a != n_b or n_a == 0:
            raise ModelError(f"{title_of(self)}: a and b need the same length, given {n_a} and {n_b}.")


def _start_of_horizon(value: float | None, what: str = "initial", owner: Any = None) -> float:
    return 0.5 * (owner.lower + owner.upper) if value is None else scalar(value, what)


@declared
class FreeTime:
    """Free horizon between bounds [s]; terminal costs and constraints may use its `symbol`.

    Parameters
    ----------
    lower, upper : float
        Positive and finite.
    initial : float, optional
        Initial guess of the solver; default the middle.

    Examples
    --------
    The shortest time for one metre at no more than 2 m/s:

    >>> import casadi as ca, nosnoc_py as ns
    >>> x, u = ca.SX.sym("x"), ca.SX.sym("u")
    >>> time = ns.FreeTime(0.1, 5.0)
    >>> cart = ns.ODE(x=x, u=u, flow=u)
    >>> task = {"bounds": {"u_0": (-2, 2)}, "terminal_state": {"x_0": 1}}
    >>> ocp = ns.OCP(cart, horizon=time, x0=[0.0], terminal_cost=time.symbol, **task)
    >>> solution = ns.solve(ocp, ns.FESD(control_stages=2), certify=False)
    >>> round(solution.horizon, 4)
    0.5
    """

    lower: float = field(converter=scalar)
    upper: float = field(converter=scalar)
    initial: float = field(default=None, converter=_start_of_horizon)
    symbol: Any = field(factory=lambda: ca.SX.sym("T"), init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        lower, upper, initial = self.lower, self.upper, self.initial
        if not 0 < lower <= upper < np.inf:
            raise ModelError(
                f"FreeTime(lower, upper, initial): expected 0 < lower <= upper, both finite, given lower {lower:g} and "
                f"upper {upper:g}."
            )
        if not lower <= initial <= upper:
            raise ModelError(f"FreeTime: initial has to lie between {lower:g} and {upper:g}, given {initial:g}.")


@named_arguments
@dataclass(frozen=True, eq=False, kw_only=True)
class Bounds:
    """Bounds on states and controls.

    Parameters
    ----------
    x, u : pair or mapping, optional
        A pair (lower, upper) of scalars or vectors in the system's order, or names with pairs: {"knee": (-2.4, -0.1)}.
        For systems that depend on time, vectors have no entry for the time.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> ns.Bounds(x={"knee": (-2.4, -0.1), "hip": (None, 1.0)}, u=(-5, 5)).u
    (-5, 5)
    """

    x: Pair | Mapping[str, Pair] | None = None
    u: Pair | Mapping[str, Pair] | None = None


NO_BOUNDS = Bounds()


class _FreeHorizon(float):
    """Initial guess of a free horizon [s], with the horizon: `attrs.evolve` of a problem passes it on."""

    free: FreeTime

    def __new__(cls, free: FreeTime) -> Self:
        value = super().__new__(cls, free.initial)
        value.free = free
        return value

    def __getnewargs__(self) -> tuple[FreeTime]:  # type: ignore[override]
        return (self.free,)


def _system(value: Described) -> Any:
    if isinstance(value, type) or not hasattr(value, "check_state"):
        raise ModelError(f"OCP: the first argument has to be a system such as ns.CLS, given {type(value).__name__}.")
    if not value.controlled:
        raise ModelError(
            f"OCP: an ns.{type(value).__name__} has no controls, it is only simulated; write the problem with an "
            "ns.CLS, an ns.PSS or an ns.Heaviside."
        )
    return value


def _horizon(value: float | FreeTime, what: str = "horizon") -> float:
    if isinstance(value, FreeTime | _FreeHorizon):
        return _FreeHorizon(value) if isinstance(value, FreeTime) else value
    return positive(value, what)


def _bounds(value: Bounds | Mapping[str, Pair], owner: Any = None) -> Bounds:
    """Return bounds; those in one mapping are divided into states and controls."""
    if isinstance(value, Bounds):
        return value
    if not isinstance(value, Mapping):
        raise ModelError(
            f"OCP: bounds have to be an ns.Bounds object or a mapping of names, given {type(value).__name__}."
        )
    groups = owner.system.state_names, owner.system.control_names
    check_keys(value, (*groups[0], *groups[1]), "name in bounds")
    x, u = ({name: pair for name, pair in value.items() if name in names} for names in groups)
    return Bounds(x=x or None, u=u or None)


def _point_costs(value: Sequence[PointCost]) -> tuple[PointCost, ...]:
    return members(value, PointCost, "OCP", "point costs", field="point_costs")


def _complementarities(value: Sequence[Complementarity]) -> tuple[Complementarity, ...]:
    given = members(value, Complementarity, "OCP", "complementarities")
    return tuple(changed(pair, name=pair.name or f"complementarity_{i}") for i, pair in enumerate(given))


def _constraints(value: Sequence[Constraint | ca.SX], what: str = "path_constraints") -> tuple[Constraint, ...]:
    """Return constraints; comparisons become some."""
    name = what.removeprefix("OCP: ")
    kind, given = name.removesuffix("_constraints"), value
    if isinstance(value, list | tuple):
        given = [Constraint(c, name=f"{kind}_{i}") if is_comparison(c) else c for i, c in enumerate(value)]
    return members(given, Constraint, "OCP", f"{kind} constraints", field=name)


def _state(value: State | None) -> Any:
    return value  # which is checked when it is known which slacks the system has


@declared
class OCP:
    """Optimal control problem: minimise the integral of stage_cost plus terminal_cost subject to a system.

    Parameters
    ----------
    system : CLS, PSS, Heaviside or PDS
    horizon : float or FreeTime
        T [s], positive.
    x0 : (n_x,) or mapping, optional
        Fixed initial state, or some of its components by name, the others being 0; None leaves x(0)
        free within the bounds and `initial_constraints`.
    stage_cost, terminal_cost : SX scalar, optional
        In the system's x, z, u, p; the terminal cost may use x, p, `system.x_initial` and the symbol of a `FreeTime`.
    bounds : Bounds or mapping, optional
        Or names of states and controls with pairs (lower, upper), None for no bound: {"knee": (-2.4, None)}. The limits
        of a system (`CLS.limits`, those of a robot's joints) hold besides.
    terminal_state : mapping, optional
        Names of states with their values at the end: a number, or a pair (lower, upper).
    path_constraints, initial_constraints, terminal_constraints : sequence of Constraint
        Or comparisons: [q[0] == 1, v <= 2]. Terminal constraints may tie x(T) to x(0) through `system.x_initial`. Path
        constraints in z hold at RK stages.
    point_costs : sequence of PointCost
        Costs of the state at chosen times.
    point_constraints : sequence of Constraint
        In x and p, each with its `times`.
    complementarities : sequence of Complementarity
        Additional complementarity constraints of the user.
    p : (n_p,) or mapping, optional
        Parameter values, or some of them by name; default the system's. They may be changed when re-solving.
    free_parameters : mapping name -> (lower, upper), optional
        Parameters that are optimised, constant over time; `p` has their initial guesses.

    Raises
    ------
    ModelError
        For wrong shapes, foreign symbols, NaN, lower above upper, or an x0 that penetrates a contact.

    Examples
    --------
    A cart between walls, everything by its name:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> wall = ns.Contact("wall", gap=1.0 - q, restitution=0.5)
    >>> names = {"q": ["place"], "v": ["speed"], "u": ["push"]}
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[wall], names=names)
    >>> ocp = ns.OCP(
    ...     cart, horizon=2.0, x0={"speed": 1.6}, stage_cost=u**2, bounds={"push": (-3, 3), "place": (None, 2)},
    ...     path_constraints=[v <= 2], terminal_state={"place": 0.4, "speed": (-1, 1)},
    ... )
    >>> ns.solve(ocp, ns.FESDJ(control_stages=8)).events[0].name
    'wall'
    """

    system: Any = field(converter=_system)
    horizon: float = field(converter=_horizon, kw_only=True)
    x0: Any = field(default=None, converter=_state, kw_only=True)
    stage_cost: ca.SX = field(default=0, converter=one_row, kw_only=True)
    terminal_cost: ca.SX = field(default=0, converter=one_row, kw_only=True)
    bounds: Bounds = field(default=NO_BOUNDS, converter=_bounds, kw_only=True)
    path_constraints: tuple[Constraint, ...] = field(default=(), converter=_constraints, kw_only=True)
    initial_constraints: tuple[Constraint, ...] = field(default=(), converter=_constraints, kw_only=True)
    terminal_constraints: tuple[Constraint, ...] = field(default=(), converter=_constraints, kw_only=True)
    terminal_state: Mapping[str, float | Pair] | None = field(default=None, kw_only=True)
    point_costs: tuple[PointCost, ...] = field(default=(), converter=_point_costs, kw_only=True)
    point_constraints: tuple[Constraint, ...] = field(default=(), converter=_constraints, kw_only=True)
    complementarities: tuple[Complementarity, ...] = field(default=(), converter=_complementarities, kw_only=True)
    p: Any = field(default=None, converter=_state, kw_only=True)
    free_parameters: Mapping[str, tuple[float, float]] = field(default=EMPTY, validator=checked(mapping), kw_only=True)

    x_bounds: tuple[np.ndarray, np.ndarray] = field(init=False, repr=False)
    u_bounds: tuple[np.ndarray, np.ndarray] = field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        s, free, horizon = self.system, self.free_time, self.horizon
        refuse_sequences(s, "an optimal control problem")
        # Before names and symbols are checked: constraints may contain symbols that the system has eliminated.
        self._without_algebraic(s)
        p = s.parameters(self.p, "OCP: p")
        # Slacks are additional controls and parameters: everything below sees the extended system.
        s, p = self._softened(s, p)
        x0 = None if self.x0 is None else s.check_state(self.x0, p)
        every = {"x": s.x, **({"z": s.z} if s.z.numel() else {}), "u": s.u, "p": s.p}
        end = {"x": s.x, "x_initial": s.x_initial, "p": s.p, **({} if free is None else {"T": free.symbol})}
        _check_time(self.stage_cost, free, "stage_cost")
        check_free(self.stage_cost, every, "OCP: stage_cost")
        check_free(self.terminal_cost, end, "OCP: terminal_cost")
        constraints = {
            "path_constraints": _named(self.path_constraints, "path", every, free),
            "initial_constraints": _named(self.initial_constraints, "initial", {"x": s.x, "p": s.p}, free),
            "terminal_constraints": (
                *_named(self.terminal_constraints, "terminal", end),
                *_state_at_end(self.terminal_state, s),
            ),
            "point_constraints": _named(self.point_constraints, "point", {"x": s.x, "p": s.p}, free),
        }
        for cost in self.point_costs:
            check_free(cost.expression, {"x": s.x, "p": s.p}, "OCP: point cost")
        _check_points((*self.point_costs, *constraints["point_constraints"]), horizon, free)
        if (
            x0 is None
            and not s.autonomous
            and not any(ca.depends_on(c.expression, s.t) for c in constraints["initial_constraints"])
        ):
            # The initial state is free, but time is one of its components: it starts at 0 unless a constraint of the
            # user concerns it.
            start = Constraint(s.t, equals=0, name=s.unused("time at the start"))
            constraints["initial_constraints"] = (*constraints["initial_constraints"], start)
        if x0 is None:
            # A free quaternion would have a free length, on which nothing depends: the problem would be singular.
            constraints["initial_constraints"] += _start_on_constraints(s, constraints["initial_constraints"])
        for pair in self.complementarities:
            check_free(ca.vertcat(pair.a, pair.b), every, f"OCP: {pair.name}")
        groups: tuple[Sequence[Any], ...] = (self.complementarities, *constraints.values())
        # Multipliers and residuals are found by name.
        check_different([str(one.name) for group in groups for one in group], "OCP", "constraints")
        for c in constraints["path_constraints"]:
            if c.at != "rk_stages" and ca.depends_on(c.expression, s.z):
                raise ModelError(
                    f"OCP: path constraint {c.name!r} uses algebraic variables, which have values at RK stages only, "
                    f"but is imposed at {c.at!r}; give at='rk_stages'."
                )
        self._check_free_parameters(p)
        assign(self, p=p, x0=x0, **constraints, terminal_state=None)  # a constraint like others now
        x_bounds = _within_limits(self._pair("x", s.state_names), s)
        assign(self, x_bounds=x_bounds, u_bounds=self._pair("u", s.control_names))
        _check_start(x0, self.x_bounds, s.state_names)
        check_slacks(self)

    @property
    def free_time(self) -> FreeTime | None:
        """The horizon, if it is free."""
        return self.horizon.free if isinstance(self.horizon, _FreeHorizon) else None

    def _without_algebraic(self, s: Any) -> None:
        """Replace eliminated algebraic variables, and quaternions by normalised ones, in costs and constraints."""
        if s.eliminated is None and not s.unit_parts:
            return
        for name in ("stage_cost", "terminal_cost"):
            assign(self, **{name: s.solved(getattr(self, name))})
        for kind in KINDS:
            given = getattr(self, f"{kind}_constraints")
            if kind == "initial" and s.eliminated is None:
                continue  # all four components of a quaternion may be given there
            changes = tuple(changed(c, expression=s.solved(c.expression)) for c in given)
            assign(self, **{f"{kind}_constraints": changes})

    def _softened(self, s: Any, p: np.ndarray) -> tuple[Any, np.ndarray]:
        """Return system and parameters with the slacks of soft constraints, which become hard ones with costs."""
        slacks = Slacks()
        values = {f"{kind}_constraints": slacks.softened(getattr(self, f"{kind}_constraints"), kind) for kind in KINDS}
        if not slacks:
            return s, p
        (x_low, x_high), (u_low, u_high) = self._pair("x", s.state_names), self._pair("u", s.control_names)
        # Slacks are nonnegative: signs are part of the constraints they relax.
        nothing, infinite = np.zeros(len(slacks.controls)), np.full(len(slacks.controls), np.inf)
        bounds = Bounds(x=(x_low, x_high), u=(np.append(u_low, nothing), np.append(u_high, infinite)))
        free = {**self.free_parameters, **dict.fromkeys(slacks.parameters, (0.0, np.inf))}
        system = slacks.system(s)
        assign(self, system=system, bounds=bounds, free_parameters=free, **values)
        assign(self, stage_cost=self.stage_cost + slacks.running, terminal_cost=self.terminal_cost + slacks.final)
        return system, np.append(p, np.zeros(len(slacks.parameters)))

    def _pair(self, which: str, labels: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
        given = getattr(self.bounds, which)
        if given is None:
            return np.full(len(labels), -np.inf), np.full(len(labels), np.inf)
        if isinstance(given, Mapping):
            pairs = intervals_by_name(given, labels, f"bounds {which}", pairs=True)
            return _interval(*pairs, labels, f"bounds {which}")
        if not isinstance(given, (tuple, list)) or len(given) != 2:
            raise ModelError(f"bounds {which}: expected a pair (lower, upper), given {given!r}.")
        lower, upper = given
        # Vectors of the user do not include the time, which has no bounds.
        timed = which == "x" and not self.system.autonomous and len(labels) not in (np.size(lower), np.size(upper))
        low, high = _interval(lower, upper, labels[:-1] if timed else labels, f"bounds {which}")
        return (np.append(low, -np.inf), np.append(high, np.inf)) if timed else (low, high)

    def _check_free_parameters(self, p: np.ndarray) -> None:
        check_keys(self.free_parameters, self.system.parameter_names, "parameter")
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
            self._check_reach(name, resolved[name], p)
        assign(self, free_parameters=resolved)
        self.check_parameters(p)

    def _check_reach(self, name: str, bounds: tuple[float, float], p: np.ndarray) -> None:
        """Raise `ModelError` if a bound of a free parameter is a value that the system does not admit."""
        for bound in filter(np.isfinite, bounds):
            # Parameters at their bounds may be inadmissible (negative friction), which the solver would meet only
            # later.
            reached = np.array(p)
            reached[self.system.parameter_names.index(name)] = bound
            try:
                self.system.parameters(reached)
            except ModelError as error:
                raise ModelError(f"OCP: free parameter {name!r} may become {bound:g}: {error}") from None

    def check_parameters(self, p: np.ndarray) -> None:
        """Raise `ModelError` where a free parameter starts outside of its bounds."""
        for name, (lower, upper) in self.free_parameters.items():
            value = p[self.system.parameter_names.index(name)]
            if not lower <= value <= upper:
                raise ModelError(
                    f"OCP: the parameter {name} starts at {value:g}, outside of its bounds [{lower:g}, {upper:g}]; "
                    "give p=... inside of them."
                )

    @cached_property
    def sizes(self) -> ProblemSizes:
        """Typical sizes of states and controls, from the numbers of this problem."""
        return ProblemSizes.of(self)

    @property
    def point_terms(self) -> list[PointTerm]:
        """Costs and constraints at chosen times."""
        asked: list[PointCost | Constraint] = [*self.point_costs, *self.point_constraints]
        return [PointTerm.of(one) for one in asked]

    def with_values(self, horizon: float, p: Any) -> OCP:
        """Return the same problem with a free horizon [s] and free parameters (of p) fixed; all else stays as it is."""
        rows = [self.system.parameter_names.index(name) for name in self.free_parameters]
        fixed_p = np.array(self.p)
        # Only free parameters: others of the solution must not replace those of this problem.
        fixed_p[rows] = np.asarray(p)[rows]
        if self.free_time is None:
            return evolve(self, p=fixed_p, free_parameters={}) if self.free_parameters else self
        symbol, value = self.free_time.symbol, ca.SX(horizon)

        def fixed(expression: ca.SX) -> ca.SX:
            return ca.substitute(expression, symbol, value)

        ends = [changed(c, expression=fixed(c.expression)) for c in self.terminal_constraints]
        cost = fixed(self.terminal_cost)
        return evolve(
            self,
            horizon=float(horizon),
            p=fixed_p,
            free_parameters={},
            terminal_cost=cost,
            terminal_constraints=tuple(ends),
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

    def _repr_html_(self) -> str:
        return tree(repr(self))


def _start_on_constraints(s: Any, given: tuple[Constraint, ...]) -> tuple[Constraint, ...]:
    """Return constraints of a free initial state: |q| = 1 for quaternions, unless four equations fix them already, and
    bilateral constraints of the system with their rates.
    """
    units = s.unit_parts
    name = s.unused("couplings and loops")
    # A copy of the problem has the constraint already.
    if s.bilateral is not None and all(c.name != name for c in given):
        rows = ca.vertcat(s.bilateral.closure, s.bilateral.rows @ s.v)
        closed = Constraint(rows, equals=0, name=name)
        return (closed, *_lengths(s, units, given))
    return _lengths(s, units, given)


def _lengths(s: Any, units: Any, given: tuple[Constraint, ...]) -> tuple[Constraint, ...]:
    if not units:
        return ()
    rows = ca.vertcat(ca.SX(0, 1), *[c.expression for c in given])
    return tuple(
        Constraint(ca.sumsqr(s.q[part]), equals=1, name=s.unused(f"length of ({', '.join(s.names['q'][part])})"))
        for part in lengths_left_open(rows, s.q, units)
    )


def _within_limits(bounds: tuple[np.ndarray, np.ndarray], system: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds of the states together with the limits of the system, the tighter of both on every side."""
    if not system.limits:
        return bounds
    names = system.state_names
    low, high = intervals_by_name(system.limits, names, "limits")
    return _interval(
        np.maximum(bounds[0], low), np.minimum(bounds[1], high), names, "bounds x, with the system's limits,"
    )


def _state_at_end(given: Mapping[str, Any] | None, system: Any) -> tuple[Constraint, ...]:
    """Return a terminal constraint for components of the state by name."""
    if given is None or not mapping(given, "OCP: terminal_state"):
        return ()
    lower, upper = intervals_by_name(given, system.state_names, "terminal_state")
    rows = [i for i, name in enumerate(system.state_names) if name in given]
    return (Constraint(system.x[rows], lower[rows], upper[rows], name="terminal_state"),)


def _check_points(asked: Sequence[PointCost | Constraint], horizon: float, free: FreeTime | None) -> None:
    if asked and free is not None:
        raise ModelError("OCP: costs and constraints at chosen times need a horizon that is a number, given FreeTime.")
    for one in asked:
        # A relative margin for times that were computed, such as n * dt.
        if one.times[-1] > horizon * (1.0 + 1e-12):
            raise ModelError(
                f"OCP: a cost or constraint at t = {one.times[-1]:g} s lies beyond the horizon, {horizon:g} s; give a "
                "longer horizon, or leave the time out."
            )


def _check_start(x0: np.ndarray | None, bounds: tuple[np.ndarray, np.ndarray], names: Sequence[str]) -> None:
    """Raise `ModelError` if x0 lies outside of the state bounds."""
    if x0 is None:
        return
    for name, value, low, high in zip(names, x0, *bounds, strict=True):
        if not low - 1e-9 <= value <= high + 1e-9:
            raise ModelError(
                f"OCP: x0 has {name} = {value:g}, outside of its bounds [{low:g}, {high:g}]; widen them or move x0."
            )


def _check_time(expression: ca.SX, free: FreeTime | None, what: str) -> None:
    """Raise `ModelError` if an expression other than a terminal one uses the free horizon."""
    if free is not None and ca.depends_on(expression, free.symbol):
        raise ModelError(
            f"OCP: {what} uses the symbol of the free horizon, which only terminal costs and terminal constraints may "
            "use; for the current time, give the system a symbol t=."
        )


def _named(
    given: Sequence[Constraint], kind: str, allowed: dict[str, ca.SX], barred: FreeTime | None = None
) -> tuple[Constraint, ...]:
    """Give every constraint a name and check its symbols; `barred` is a free horizon that it may not use."""
    named = []
    for i, c in enumerate(given):
        _check_time(c.expression, barred, f"{kind} constraint {c.name or i}")
        check_free(c.expression, allowed, f"OCP: {kind} constraint {c.name or i}")
        if (c.times is None) == (kind == "point"):
            raise ModelError(
                f"OCP: {kind} constraint {c.name or i}: a point constraint has times=..., others have none; give "
                "constraints at chosen times as point_constraints=[ns.Constraint(..., times=[...])]."
            )
        named.append(changed(c, name=c.name or f"{kind}_{i}"))
    return tuple(named)
