"""Filippov systems: piecewise smooth systems by regions (PSS) and by step functions (Heaviside), and projected systems.

Descriptions and no methods: symbols and shapes are checked once, then the systems are immutable. A `PSS` gives one flow
per region of a partition; on boundaries of regions the flow is a convex combination (Filippov 1988, Section 4). With
Stewart's indicators (Stewart 1990) the region is the one with the smallest g_i; for regions by signs g = -S c, so that
the two forms are equivalent. A `Heaviside` system gives a flow in step functions (Aizerman and Pyatnitskii 1974). Where
several surfaces meet, the two classes differ: convex combinations of all regions, or products of step functions.

Switching functions must not depend on controls, and on algebraic variables only if these can be eliminated: they are
continuous along motions then, so that their zeros are events.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import casadi as ca
import numpy as np
from attrs import field

from nosnoc_py.annotations import Expression, Numbers
from nosnoc_py.declared import assign, changed, declared, optional, title_of
from nosnoc_py.errors import ModelError
from nosnoc_py.functions import function_of
from nosnoc_py.systems.algebraic import Algebraic
from nosnoc_py.systems.closures import on_closures
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.hysteresis import Hysteresis
from nosnoc_py.systems.symbols import (
    check_different,
    check_free,
    column,
    component_names,
    part_name,
    parts,
    some_symbols,
)

# Eigenvalues of a metric below this fraction of the largest one are zero: rounding of a semidefinite matrix.
SEMIDEFINITE = 1e-12
# Consequence and remedy of a flow that jumps with the state, for warnings.
JUMPS = (
    "no method locates such jumps, so simulators lose accuracy or stop there; make regions of it (ns.Modes), or "
    "smooth it"
)


def _flows(value: Sequence[Expression], what: str = "flows", owner: Any = None) -> tuple[ca.SX, ...]:
    if not isinstance(value, list | tuple) or len(value) < 2:
        raise ModelError(f"{what}: expected a list of two or more vectors, one for each region.")
    return tuple(column(flow, f"{title_of(owner)}: flow {i}") for i, flow in enumerate(value))


def _signs(value: Numbers, what: str = "signs") -> np.ndarray:
    try:
        return np.atleast_2d(np.array(value, dtype=float))
    except (TypeError, ValueError):
        raise ModelError(f"{what}: expected a matrix of numbers, one row per region, given {value!r}.") from None


def _indicators(value: Expression, what: str = "indicators", owner: Any = None) -> ca.SX:
    return column(value, what, len(owner.flows))


def _different_names(given: Sequence[str] | None, what: str, count: int) -> tuple[str, ...]:
    names = component_names(given, what, count)
    if len(set(names)) < count:
        raise ModelError(f"{what}: expected {count} different names, given {given!r}.")
    return names


def _names_of_modes(value: Sequence[str] | None, owner: Any = None) -> tuple[str, ...]:
    """Return the names of switching functions: those of the user, else the name of their partition."""
    if owner.indicators is not None:
        if value is not None and not (isinstance(value, tuple) and value == (owner.name,)):
            raise ModelError(
                f"{title_of(owner)}: indicators have no function names, given {value!r}; events have the name of the "
                "partition."
            )
        # Regions by indicators have no functions of their own: events carry the name of the partition.
        return (owner.name,)
    count = 0 if owner.functions is None else owner.functions.numel()
    if value is None:
        return (owner.name,) if count == 1 else tuple(f"{owner.name}[{j}]" for j in range(count))
    return _different_names(value, "functions", count)


@declared
class Modes:
    """Partition of the state space into regions, each with its own flow.

    Region i is the set where the switching functions have the signs of row i of the sign matrix S or, with Stewart's
    indicator functions g, where g_i is the smallest of them. Give either form; they are related by g = -S c.

    Parameters
    ----------
    name : str
        Names the multipliers theta[name][i], lambda[name][i].
    flows : sequence of SX (n_x,)
        One per region.
    functions : SX (n_c,), optional
        Switching functions c(x).
    signs : (n_f, n_c), optional
        Entries +1 and -1, and 0 if a function does not bound a region; such a region is split into one for each
        combination of signs.
    indicators : SX (n_f,), optional
        Stewart's indicator functions g(x), in place of functions and signs.
    function_names : sequence of str, optional
        Names of the switching functions, for events; default the name of the partition, with [j] where there are more.

    Raises
    ------
    ModelError
        If shapes do not match, signs are others than -1, 0, 1, or regions overlap or leave gaps.

    Examples
    --------
    Regions on both sides of x = 0:

    >>> import casadi as ca, nosnoc_py as ns
    >>> x = ca.SX.sym("x")
    >>> side = ns.Modes("side", flows=[1.0, -1.0], functions=x, signs=[[-1], [1]])
    >>> side.count
    2
    """

    noun: ClassVar[str] = "modes"

    name: str = field(converter=part_name)
    flows: tuple[ca.SX, ...] = field(converter=_flows, kw_only=True)
    functions: Any = field(default=None, converter=optional(column), kw_only=True)
    signs: Any = field(default=None, converter=optional(_signs), kw_only=True)  # (n_f, n_c)
    indicators: Any = field(default=None, converter=optional(_indicators), kw_only=True)
    function_names: tuple[str, ...] = field(default=None, converter=_names_of_modes, kw_only=True)

    def __attrs_post_init__(self) -> None:
        what, flows = title_of(self), self.flows
        sizes = {flow.shape[0] for flow in flows}
        if len(sizes) > 1:
            raise ModelError(f"{what}: the flows of all regions need the same length, given {sorted(sizes)}.")
        if (self.indicators is None) == (self.functions is None):
            raise ModelError(f"{what}: give either functions with signs, or indicators.")
        if self.indicators is not None:
            if self.signs is not None:
                raise ModelError(f"{what}: indicators need no signs; the smallest one marks the region.")
            return
        c = self.functions
        if c.shape[0] == 0:
            raise ModelError(f"{what}: functions: expected at least one switching function.")
        signs = _sign_matrix(self.signs, len(flows), c.shape[0], what)
        corners = _corners(c.shape[0])
        # Every combination of signs needs exactly one region: otherwise the flow is undefined or ambiguous there.
        owners = [_owner(signs, corner, what) for corner in corners]
        if (signs == 0.0).any():
            # Stewart's indicators need all signs: a region that a function does not bound becomes several.
            flows, signs = tuple(flows[i] for i in owners), corners
        # Stewart (1990): g_i = -S_i c is smallest in the region whose signs agree with those of c.
        assign(self, flows=flows, signs=signs, indicators=-ca.DM(signs) @ c)

    @property
    def count(self) -> int:
        """Number of regions."""
        return len(self.flows)

    def with_flows(self, flows: Sequence[ca.SX]) -> Modes:
        """Return the same partition with other flows, one per region."""
        return changed(self, flows=tuple(flows))


def _sign_matrix(given: np.ndarray | None, regions: int, functions: int, what: str) -> np.ndarray:
    """Return the matrix S: one row per region, one column per function."""
    if given is None:
        raise ModelError(f"{what}: functions need signs, a matrix with one row per region.")
    # One function: a flat list of signs, one per region, is accepted as a column.
    signs = given.T if given.shape == (functions, regions) and functions == 1 and regions > 1 else given
    if signs.shape != (regions, functions):
        raise ModelError(
            f"{what}: signs: expected one row per region and one column per function, {(regions, functions)}, given "
            f"{signs.shape}."
        )
    if not np.isin(signs, (-1.0, 0.0, 1.0)).all():
        raise ModelError(f"{what}: signs have to be -1, 0 or 1, given {', '.join(f'{s:g}' for s in np.unique(signs))}.")
    return signs


def _corners(functions: int) -> np.ndarray:
    """Return all combinations of signs, one per row."""
    # Bit j of k is the sign of function j.
    return np.array([[1.0 if k >> j & 1 else -1.0 for j in range(functions)] for k in range(2**functions)])


def _owner(signs: np.ndarray, corner: np.ndarray, what: str) -> int:
    """Return the index of the region with the signs of a corner; raise `ModelError` if there is not exactly one."""
    # 0 stands for both signs.
    inside = [i for i, row in enumerate(signs) if ((row == 0) | (row == corner)).all()]
    if len(inside) != 1:
        where = ", ".join("+" if sign > 0 else "-" for sign in corner)
        said = "there is no region" if not inside else f"the regions {', '.join(map(str, inside))} overlap"
        raise ModelError(f"{what}: where the functions have the signs ({where}) {said}; expected one region.")
    return inside[0]


@declared(kw_only=True, repr=False)
class WithAlgebraic(Described):
    """Base class of Filippov and projected systems, with optional algebraic equations of the user."""

    algebraic: Algebraic | None = None

    def _flow(self, value: Any, what: str, rate_of_time: float) -> ca.SX:
        """Return a flow (n_x,), completed by the rate of time if the system depends on time."""
        flow, n_x = column(value, what), self.x.numel()
        # A system that is rebuilt from its fields has the rate of time in its flow already.
        if not self.autonomous and flow.numel() == n_x - 1:
            flow = ca.vertcat(flow, rate_of_time)
        expected = n_x - (not self.autonomous)
        if flow.numel() != n_x:
            raise ModelError(f"{what}: expected {expected} rows, given {flow.numel()}.")
        return flow

    def _function_of_state(self, expression: ca.SX) -> ca.SX:
        """Return a switching function without z, which needs equations that are affine in z and free of controls."""
        own = self.algebraic
        if own is None or not ca.depends_on(expression, own.z):
            return expression
        # Such a switching function would jump with the controls, or have several values: its zero would be no event.
        if not own.affine or ca.depends_on(own.equations, self.u):
            raise self._error(
                "a switching function of algebraic variables needs equations that are affine in z and free of "
                "controls; write it in x, or make z a state."
            )
        return ca.substitute(expression, own.z, own.solution)

    def _check_symbols(self, *more: str) -> dict[str, ca.SX]:
        """Return the symbols by name that flows and algebraic equations may depend on."""
        self._join_time("x")
        if self.algebraic is not None and not isinstance(self.algebraic, Algebraic):
            raise ModelError(f"{self._kind}: algebraic: expected ns.Algebraic, given {type(self.algebraic).__name__}.")
        result = super()._check_symbols(*more)
        result = {"x": self.x, "z": self.z, **result}
        if self.algebraic is not None:
            check_free(self.algebraic.equations, result, "Algebraic: equations")
        return result


def _partitions(
    value: Modes | Hysteresis | Sequence[Modes | Hysteresis], what: str = "modes", owner: Any = None
) -> tuple[Any, ...]:
    given = (value,) if isinstance(value, Modes | Hysteresis) else value
    modes = parts(given, (Modes, Hysteresis), type(owner).__name__, "modes")
    if not modes:
        raise ModelError(f"{what}: expected ns.Modes or a list of them, given {value!r}.")
    return modes


@declared(kw_only=True, repr=False)
class PSS(WithAlgebraic):
    """Piecewise smooth system x' = flow(x, u, p) + the flows of the regions of x, one of each partition.

    On boundaries of regions the flow is Filippov's: a convex combination, so that x may slide along them.

    Parameters
    ----------
    x : SX (n_x,)
    u, p : SX, optional
        Controls and parameters.
    t : SX scalar, optional
        Time [s]; as in `CLS`. Flows, metrics and names are given without it.
    flow : SX (n_x,), optional
        Part of the flow that all regions have in common; default zero.
    modes : Modes, Hysteresis or sequence of them
        Independent partitions (two dry frictions, say) are cheaper than their product.
    algebraic : Algebraic, optional
        Algebraic variables and equations.
    names, units, nominal, p_default, scene
        As in `CLS`; keys "x", "u", "p".

    Examples
    --------
    Dry friction brings a velocity to rest, where it then stays (sliding mode):

    >>> import casadi as ca, nosnoc_py as ns
    >>> v = ca.SX.sym("v")
    >>> friction = ns.Modes("friction", flows=[2.0, -2.0], functions=v, signs=[[-1], [1]])
    >>> motion = ns.simulate(ns.PSS(x=v, modes=friction), x0=[1.0], duration=1.0)
    >>> [(event.kind, round(event.time, 6)) for event in motion.events]
    [('enter_sliding', 0.5)]
    """

    modes: tuple[Any, ...] = field(converter=_partitions)
    flow: Any = field(default=None, converter=optional(column))

    def __attrs_post_init__(self) -> None:
        allowed, modes = self._check_symbols(), self.modes
        # Without the row of time, as flows are given.
        nothing = ca.SX(self.x.numel() - (not self.autonomous), 1)
        self._set(flow=self._flow(nothing if self.flow is None else self.flow, f"{self._kind}: flow", 1))
        # Names are compared before functions are rewritten, so that messages show those of the user.
        switches = [(m.name,) if isinstance(m, Hysteresis) else m.function_names for m in modes]
        modes = tuple(self._of_state(m) for m in modes)
        check_different([name for names in switches for name in names], self._kind, "switching functions")
        # Time has the rate 1 in the common flow, and 0 in the flows of the regions, as these are added to it.
        modes = tuple(m.with_flows([self._flow(f, f"modes {m.name!r}: flows", 0) for f in m.flows]) for m in modes)
        for m in modes:
            check_free(ca.vertcat(*m.flows), allowed, f"modes {m.name!r}: flows")
            if isinstance(m, Hysteresis):
                check_free(ca.vertcat(m.lower, m.upper), {"p": self.p}, f"hysteresis {m.name!r}: thresholds")
            functions = m.variable if isinstance(m, Hysteresis) else m.indicators
            check_free(functions, {"x": self.x, "p": self.p}, f"modes {m.name!r}: functions")
        check_free(self.flow, allowed, f"{self._kind}: flow")
        given = {f"modes {m.name!r}: a flow": ca.vertcat(*m.flows) for m in modes}
        # On the boundary of its region a flow is used, beyond it is not: it need not be defined there.
        modes = tuple(
            m
            if isinstance(m, Hysteresis) or m.functions is None
            else m.with_flows(on_closures(m.flows, m.functions, m.signs, self.x))
            for m in modes
        )
        self._set(modes=modes)
        self._describe()
        self._warn_of_jumps({f"{self._kind}: flow": self.flow, **given}, JUMPS)

    def __repr__(self) -> str:
        return self._tree(*(("modes", self._of(modes)) for modes in self.modes))

    def parameters(self, p: Any = None, what: str = "p") -> np.ndarray:
        """Return the parameters (n_p,); raise `ModelError` if thresholds of a hysteresis are not in order.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x, a = ca.SX.sym("x"), ca.SX.sym("a")
        >>> decay = ns.ODE(x=x, p=a, flow=-a * x, p_default=[0.5])
        >>> decay.parameters(), decay.parameters([2.0])
        (array([0.5]), array([2.]))
        """
        values = super().parameters(p, what)
        for m in self.modes:
            if isinstance(m, Hysteresis):
                ends = function_of([self.p], ca.vertcat(m.lower, m.upper))(values)
                m.check_values(*np.asarray(ends).reshape(-1).tolist())
        return values

    @property
    def remembers(self) -> bool:
        """True if a switch has hysteresis, so that the state does not determine the flow."""
        return any(isinstance(modes, Hysteresis) for modes in self.modes)

    def _of_state(self, modes: Modes | Hysteresis) -> Modes | Hysteresis:
        """Return a partition whose functions are written in the state instead of z."""
        own = {name: getattr(modes, name, None) for name in ("functions", "indicators", "variable")}
        # A copy: the user's partition may belong to another system with other algebraic equations.
        return changed(modes, **{n: self._function_of_state(e) for n, e in own.items() if e is not None})

    def _of(self, modes: Modes | Hysteresis) -> str:
        """Return a partition as text for the repr."""
        if isinstance(modes, Hysteresis):
            low, high = self._shown(modes.lower), self._shown(modes.upper)
            return f"{modes.name}: hysteresis of {self._shown(modes.variable)} between {low} and {high}"
        if modes.functions is None:
            return f"{modes.name}: {modes.count} regions by indicators {self._shown(modes.indicators)}"
        functions = ca.vertsplit(modes.functions)
        named = zip(modes.function_names, functions, strict=True)
        return f"{modes.name}: {modes.count} regions by {', '.join(f'{n} = {self._shown(c)}' for n, c in named)}"


@declared(kw_only=True, repr=False)
class ODE(PSS):
    """Smooth system x' = flow(x, u, p); with algebraic equations a DAE of index 1.

    A Filippov system without switches, so that every method for Filippov systems accepts it.

    Parameters
    ----------
    x : SX (n_x,)
    u, p : SX, optional
        Controls and parameters.
    t : SX scalar, optional
        Time [s]; as in `CLS`.
    flow : SX (n_x,)
        In x, z, u, p and t.
    algebraic : Algebraic, optional
        Algebraic variables and equations.
    names, units, nominal, p_default, scene
        As in `CLS`; keys "x", "u", "p".

    Examples
    --------
    >>> import casadi as ca
    >>> import nosnoc_py as ns
    >>> x, t = ca.SX.sym("x"), ca.SX.sym("t")
    >>> motion = ns.simulate(ns.ODE(x=x, t=t, flow=t - x), x0=[1.0], duration=1.0)
    >>> motion.final_state.round(6)  # 2 exp(-1) + 1 - 1, and the time
    array([0.735759, 1.      ])
    """

    modes: tuple[Any, ...] = field(default=(), init=False)

    def __attrs_post_init__(self) -> None:
        if self.flow is None:
            raise self._error("flow: expected x' as an expression, given None.")
        super().__attrs_post_init__()


def _indices(given: Sequence[int], what: str = "per_element", owner: Any = None) -> tuple[int, ...]:
    count = owner.alpha.numel()
    if not isinstance(given, list | tuple) or not all(type(j) is int and j in range(count) for j in given):
        raise ModelError(f"{what}: expected a sequence of indices below {count}, given {given!r}.")
    return tuple(given)


def _names_of_steps(value: Sequence[str] | None, owner: Any = None) -> tuple[str, ...]:
    # "c_0" even if there is one: a Heaviside system has no name that it could take.
    return _different_names(value, "c" if value is None else "functions", owner.alpha.numel())


@declared(kw_only=True, repr=False)
class Heaviside(WithAlgebraic):
    """Filippov system x' = flow(x, u, alpha, p) with step functions alpha_i of c_i(x), in [0, 1] where c_i = 0.

    Parameters
    ----------
    x, alpha : SX
    u, p, t : SX, optional
        Controls, parameters and time, as in `CLS`.
    functions : SX (n_alpha,)
        Switching functions c(x).
    flow : SX (n_x,)
        In x, z, u, alpha and p. Products of several alphas are easier to solve for as algebraic variables.
    function_names : sequence of str, optional
        Names of the switching functions, for events; default c_0, c_1, ...
    per_element : sequence of int
        Step functions with one value per finite element instead of one per Runge-Kutta stage: those that are constant
        along solutions between two switches but are not determined by the equations there.
    algebraic : Algebraic, optional
        Algebraic variables and equations.
    names, units, nominal, p_default, scene
        As in `CLS`; keys "x", "u", "p".

    Examples
    --------
    The rate changes from 1 to 3 at x = 1:

    >>> import casadi as ca, nosnoc_py as ns
    >>> x, alpha = ca.SX.sym("x"), ca.SX.sym("alpha")
    >>> system = ns.Heaviside(x=x, alpha=alpha, functions=x - 1, flow=1 + 2 * alpha)
    >>> motion = ns.simulate(system, x0=[0.0], duration=2.0)
    >>> float(motion.final_state[0].round(6))
    4.0
    """

    alpha: ca.SX = field(converter=some_symbols)
    functions: ca.SX = field(converter=column)
    flow: ca.SX = field(converter=column)
    function_names: tuple[str, ...] = field(default=None, converter=_names_of_steps)
    per_element: tuple[int, ...] = field(default=(), converter=_indices)

    def __attrs_post_init__(self) -> None:
        allowed = self._check_symbols("alpha")
        functions = column(self.functions, "Heaviside: functions", self.alpha.numel())
        self._set(functions=self._function_of_state(functions))
        self._set(flow=self._flow(self.flow, "Heaviside: flow", 1))
        check_free(self.functions, {"x": self.x, "p": self.p}, "Heaviside: functions")
        check_free(self.flow, allowed, "Heaviside: flow")
        self._describe()
        self._warn_of_jumps({"Heaviside: flow": self.flow}, JUMPS, self.alpha)

    def __repr__(self) -> str:
        functions = zip(self.function_names, ca.vertsplit(self.functions), strict=True)
        return self._tree(*(("step", f"{name}: alpha = 1 where {self._shown(c)} > 0") for name, c in functions))


def _names_of_constraints(
    value: Sequence[str] | None, what: str = "constraint_names", owner: Any = None
) -> tuple[str, ...]:
    return _different_names(value, "c" if value is None else what, owner.constraints.numel())


@declared(kw_only=True, repr=False)
class PDS(WithAlgebraic):
    """Projected dynamical system: x' = flow(x, u, p), projected onto the set c(x) >= 0.

    x' = flow + E^+ grad c(x) lambda, 0 <= c(x) perpendicular lambda >= 0, with the pseudoinverse E^+ of the metric E:
    directions in its null space (time, states that a moving set follows) are never projected.

    Parameters
    ----------
    x : SX (n_x,)
    u, p, t : SX, optional
        Controls, parameters and time, as in `CLS`; in constraints that depend on time the set moves.
    flow : SX (n_x,)
    constraints : SX (n_c,)
        c(x).
    metric : (n_x, n_x), optional
        E, symmetric and positive semidefinite; default the identity, and 0 for the time.
    constraint_names : sequence of str, optional
    algebraic : Algebraic, optional
        Algebraic variables and equations.
    names, units, nominal, p_default, scene
        As in `CLS`; keys "x", "u", "p".

    Examples
    --------
    A point that moves to the left until x = 0:

    >>> import casadi as ca, nosnoc_py as ns
    >>> x = ca.SX.sym("x")
    >>> motion = ns.simulate(ns.PDS(x=x, flow=-1.0, constraints=x), x0=[0.5], duration=1.0)
    >>> abs(float(motion.final_state[0].round(6)))
    0.0
    """

    smoothable = False

    flow: ca.SX = field(converter=column)
    constraints: ca.SX = field(converter=column)
    metric: Numbers | None = None
    constraint_names: tuple[str, ...] = field(default=None, converter=_names_of_constraints)

    def __attrs_post_init__(self) -> None:
        allowed = self._check_symbols()
        self._set(flow=self._flow(self.flow, "PDS: flow", 1))
        check_free(self.flow, allowed, "PDS: flow")
        self._set(constraints=self._function_of_state(self.constraints))
        check_free(self.constraints, {"x": self.x, "p": self.p}, "PDS: constraints")
        self._set(metric=_metric(self.metric, self.x.numel(), not self.autonomous))
        count = self.constraints.shape[0]
        if count == 0:
            raise self._error("constraints: expected at least one function c(x).")
        self._describe()
        self._warn_of_jumps({"PDS: flow": self.flow}, JUMPS)

    @property
    def normals(self) -> ca.SX:
        """E^+ grad c (n_x, n_c): change of x' by unit multipliers."""
        return ca.DM(self.metric_inverse) @ ca.jacobian(self.constraints, self.x).T

    @property
    def metric_inverse(self) -> np.ndarray:
        """E^+ (n_x, n_x): pseudoinverse of the metric."""
        # The pseudoinverse leaves directions that the metric does not measure unchanged.
        return np.asarray(np.linalg.pinv(np.asarray(self.metric), rcond=SEMIDEFINITE, hermitian=True))

    def check_state(self, x: Any, p: Any = None, *, what: str = "x0", tolerance: float = 1e-8) -> np.ndarray:
        """Return a state as a vector (n_x,) or raise `ModelError` when it lies outside of the set.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x = ca.SX.sym("x")
        >>> inside = ns.PDS(x=x, flow=-1, constraints=x)
        >>> inside.check_state([2.0])
        array([2.])
        >>> inside.check_state([-2.0])
        Traceback (most recent call last):
            ...
        nosnoc_py.errors.ModelError: x0 violates constraint 'c_0': its value is -2, expected >= 0.
        """
        state = super().check_state(x, what=what)
        parameters = self.parameters(p)
        values = np.array(ca.Function("c", [self.x, self.p], [self.constraints])(state, parameters)).reshape(-1)
        for name, value in zip(self.constraint_names, values, strict=True):
            # Written with `not` so that NaN is refused.
            if not value >= -tolerance:
                raise ModelError(f"{what} violates constraint {name!r}: its value is {value:.6g}, expected >= 0.")
        return state

    def __repr__(self) -> str:
        constraints = zip(self.constraint_names, ca.vertsplit(self.constraints), strict=True)
        return self._tree(*(("inside", f"{name}: {self._shown(c)} >= 0") for name, c in constraints))


def _metric(given: Any, n_x: int, timed: bool) -> np.ndarray:
    own = n_x - timed  # time may be left out; nothing pushes it
    try:
        matrix = np.eye(own) if given is None else np.array(given, dtype=float)
    except (TypeError, ValueError):
        matrix = np.zeros((0, 0))
    if matrix.shape == (own, own) and timed:
        # Zero row and column of the time: projections never change it.
        matrix = np.pad(matrix, ((0, 1), (0, 1)))
    if matrix.shape == (n_x, n_x) and np.allclose(matrix, matrix.T):
        sizes = np.linalg.eigvalsh(matrix)
        # A slightly negative eigenvalue is rounding of a semidefinite matrix.
        if sizes.max() > 0 and sizes.min() >= -SEMIDEFINITE * sizes.max():
            return matrix
    raise ModelError(
        f"PDS: metric has to be a symmetric positive semidefinite matrix {(own, own)} and not zero, given {given!r}."
    )
