"""Filippov systems: piecewise smooth systems by regions (PSS) and by step functions (Heaviside)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import ModelError
from nosnoc_py.solution.arrays import assign
from nosnoc_py.systems.algebraic import Algebraic
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.symbols import check_different, check_free, column, component_names, finite, parts, titled

JUMPS = (
    "nothing locates that, so simulators lose accuracy there or come to a halt; make regions of it (ns.Modes), or "
    "smooth it"
)


@dataclass(frozen=True, eq=False)
class Modes:
    """A partition of the state space into regions, each with its own flow.

    Region i is where the switching functions have the signs of row i of the sign matrix S, or, with Stewart's indicator
    functions g, where g_i is the smallest of them. Both may be given only as one of the two: g = -S c.

    Parameters
    ----------
    name : str
        Names the multipliers theta[name][i], lambda[name][i].
    flows : sequence of SX (n_x,)
        One per region.
    functions : SX (n_c,), optional
        Switching functions c(x).
    signs : (n_f, n_c), optional
        Entries +1 and -1, and 0 where a function does not bound a region; such a region is split into one for each
        combination of signs.
    indicators : SX (n_f,), optional
        Stewart's indicator functions g(x), in place of functions and signs.
    function_names : sequence of str, optional
        Names of the switching functions, for events; default the name of the partition, with [j] where there are more.

    Raises
    ------
    ModelError
        If shapes do not match, signs are others than -1, 0, 1, or regions overlap or leave gaps.
    """

    name: str
    flows: Sequence[Any] = field(kw_only=True)
    functions: Any = field(default=None, kw_only=True)
    signs: Any = field(default=None, kw_only=True)
    indicators: Any = field(default=None, kw_only=True)
    function_names: Sequence[str] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        what = titled(self, "modes")
        if not isinstance(self.flows, list | tuple) or len(self.flows) < 2:
            raise ModelError(f"{what}: flows: expected a list of two or more vectors, one for each region.")
        flows = tuple(column(flow, f"{what}: flow {i}") for i, flow in enumerate(self.flows))
        sizes = {flow.shape[0] for flow in flows}
        if len(sizes) > 1:
            raise ModelError(f"{what}: the flows of all regions need the same length, given {sorted(sizes)}.")
        if (self.indicators is None) == (self.functions is None):
            raise ModelError(f"{what}: give either functions with signs, or indicators.")
        if self.indicators is not None:
            if self.signs is not None:
                raise ModelError(f"{what}: indicators need no signs; the smallest one tells the region.")
            if self.function_names not in (None, (self.name,)):
                raise ModelError(
                    f"{what}: indicators have no function names, given {self.function_names!r}; events have the "
                    "name of the partition."
                )
            g = column(self.indicators, f"{what}: indicators", len(flows))
            assign(self, flows=flows, indicators=g, function_names=(self.name,))
            return
        c = column(self.functions, f"{what}: functions")
        if c.shape[0] == 0:
            raise ModelError(f"{what}: functions: expected at least one switching function.")
        names = _function_names(self.function_names, self.name, c.shape[0])
        signs = _sign_matrix(self.signs, len(flows), c.shape[0], what)
        corners = _corners(c.shape[0])
        owners = [_owner(signs, corner, what) for corner in corners]
        if (signs == 0.0).any():
            # Stewart's indicators need all signs: a region that a function does not bound becomes several.
            flows, signs = tuple(flows[i] for i in owners), corners
        assign(self, flows=flows, functions=c, function_names=names, signs=signs, indicators=-ca.DM(signs) @ c)

    @property
    def count(self) -> int:
        """Number of regions."""
        return len(self.flows)


def _function_names(given: Sequence[str] | None, name: str, count: int) -> tuple[str, ...]:
    """Names of switching functions: the user's, or the name of what they belong to."""
    if given is None:
        return (name,) if count == 1 else tuple(f"{name}[{j}]" for j in range(count))
    return _different_names(given, "functions", count)


def _different_names(given: Sequence[str] | None, what: str, count: int) -> tuple[str, ...]:
    names = component_names(given, what, count)
    if len(set(names)) < count:
        raise ModelError(f"{what}: expected {count} different names, given {given!r}.")
    return names


def _sign_matrix(given: Any, regions: int, functions: int, what: str) -> np.ndarray:
    """The matrix S: one row per region, one column per function."""
    if given is None:
        raise ModelError(f"{what}: functions need signs, a matrix with one row per region.")
    try:
        signs = np.atleast_2d(np.array(given, dtype=float))
    except (TypeError, ValueError):
        raise ModelError(f"{what}: signs: expected a matrix of numbers, one row per region, given {given!r}.") from None
    signs = signs.T if signs.shape == (functions, regions) and functions == 1 and regions > 1 else signs
    if signs.shape != (regions, functions):
        raise ModelError(
            f"{what}: signs: expected one row per region and one column per function, {(regions, functions)}, given "
            f"{signs.shape}."
        )
    if not np.isin(signs, (-1.0, 0.0, 1.0)).all():
        raise ModelError(f"{what}: signs have to be -1, 0 or 1, given {', '.join(f'{s:g}' for s in np.unique(signs))}.")
    return signs


def _corners(functions: int) -> np.ndarray:
    """All combinations of signs, one per row."""
    return np.array([[1.0 if k >> j & 1 else -1.0 for j in range(functions)] for k in range(2**functions)])


def _owner(signs: np.ndarray, corner: np.ndarray, what: str) -> int:
    """The only region where the functions have the signs of a corner."""
    inside = [i for i, row in enumerate(signs) if ((row == 0) | (row == corner)).all()]
    if len(inside) != 1:
        where = ", ".join("+" if sign > 0 else "-" for sign in corner)
        said = "there is no region" if not inside else f"the regions {', '.join(map(str, inside))} overlap"
        raise ModelError(f"{what}: where the functions have the signs ({where}) {said}; expected one region.")
    return inside[0]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class WithAlgebraic(Described):
    """What the systems here have in common: algebraic equations of the user's own beside them."""

    algebraic: Algebraic | None = None

    def _check_symbols(self, *more: str) -> dict[str, ca.SX]:
        """What a flow may depend on, by name; the algebraic equations depend on nothing else."""
        if self.algebraic is not None and not isinstance(self.algebraic, Algebraic):
            raise ModelError(f"{self._kind}: algebraic: expected ns.Algebraic, given {type(self.algebraic).__name__}.")
        found = super()._check_symbols(*more)
        found = {"x": self.x, "z": self.z, **found}
        if self.algebraic is not None:
            check_free(self.algebraic.equations, found, "Algebraic: equations")
        return found


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PSS(WithAlgebraic):
    """Piecewise smooth system x' = flow(x, u, p) + sum over its partitions of the flow of the region x is in.

    On boundaries of regions the flow is Filippov's: a convex combination, so that x may slide along them.

    Parameters
    ----------
    x : SX (n_x,)
    u, p : SX, optional
        Controls and parameters.
    flow : SX (n_x,), optional
        What is common to all regions; default zero.
    modes : Modes or sequence of Modes
        Independent partitions (two dry frictions, say) are cheaper than their product.
    algebraic : Algebraic, optional
        Algebraic variables and equations.
    names, units, nominal, p_default, scene
        As in `CLS`; keys "x", "u", "p".
    """

    flow: Any = None
    modes: Any

    def __post_init__(self) -> None:
        allowed, n_x = self._check_symbols(), self.x.shape[0]
        self._set("flow", column(ca.SX(n_x, 1) if self.flow is None else self.flow, "PSS: flow", n_x))
        modes = parts((self.modes,) if isinstance(self.modes, Modes) else self.modes, Modes, "PSS", "modes")
        if not modes:
            raise self._error(f"modes: expected ns.Modes or a list of them, given {self.modes!r}.")
        check_different([name for m in modes for name in m.function_names], "PSS", "switching functions")
        for m in modes:
            if m.flows[0].shape[0] != n_x:
                raise ModelError(f"modes {m.name!r}: flows: expected {n_x} rows, given {m.flows[0].shape[0]}.")
            check_free(ca.vertcat(*m.flows), allowed, f"modes {m.name!r}: flows")
            check_free(m.indicators, {"x": self.x, "p": self.p}, f"modes {m.name!r}: functions")
        check_free(self.flow, allowed, "PSS: flow")
        self._set("modes", modes)
        self._describe()
        flows = {f"modes {m.name!r}: flows": ca.vertcat(*m.flows) for m in modes}
        self._warn_of_jumps({"PSS: flow": self.flow, **flows}, JUMPS)

    def __repr__(self) -> str:
        return self._tree(*(("modes", self._of(modes)) for modes in self.modes))

    def _of(self, modes: Modes) -> str:
        """A partition in words."""
        if modes.functions is None:
            return f"{modes.name}: {modes.count} regions by indicators {self._shown(modes.indicators)}"
        functions = ca.vertsplit(modes.functions)
        named = zip(modes.function_names or (), functions, strict=True)
        return f"{modes.name}: {modes.count} regions by {', '.join(f'{n} = {self._shown(c)}' for n, c in named)}"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Heaviside(WithAlgebraic):
    """x' = flow(x, u, alpha, p) with step functions alpha_i in Heaviside(c_i(x)), set-valued in [0, 1] where c_i = 0.

    Parameters
    ----------
    x, alpha : SX
    u, p : SX, optional
    functions : SX (n_alpha,)
        Switching functions c(x).
    flow : SX (n_x,)
        In x, z, u, alpha and p. Products of several alphas are easier to solve for as algebraic variables.
    function_names : sequence of str, optional
        Names of the switching functions, for events; default c_0, c_1, ...
    per_element : sequence of int
        Which step functions have one value per finite element, not one per Runge-Kutta stage: those that are constant
        along solutions between two switches, but which the equations leave open there.
    algebraic : Algebraic, optional
        Algebraic variables and equations.
    names, units, nominal, p_default, scene
        As in `CLS`; keys "x", "u", "p".
    """

    alpha: Any
    functions: Any
    flow: Any
    function_names: Sequence[str] | None = None
    per_element: Sequence[int] = ()

    def __post_init__(self) -> None:
        allowed = self._check_symbols("alpha")
        n_x, n_a = self.x.shape[0], self.alpha.shape[0]
        if n_a == 0:
            raise self._error("expected at least one step function alpha.")
        self._set("functions", column(self.functions, "Heaviside: functions", n_a))
        self._set("flow", column(self.flow, "Heaviside: flow", n_x))
        check_free(self.functions, {"x": self.x, "p": self.p}, "Heaviside: functions")
        check_free(self.flow, allowed, "Heaviside: flow")
        names = component_names(None, "c", n_a) if self.function_names is None else self.function_names
        self._set("function_names", _function_names(names, "c", n_a))
        self._set("per_element", _indices(self.per_element, n_a))
        self._describe()
        self._warn_of_jumps({"Heaviside: flow": self.flow}, JUMPS, self.alpha)

    def __repr__(self) -> str:
        functions = zip(self.function_names or (), ca.vertsplit(self.functions), strict=True)
        return self._tree(*(("step", f"{name}: alpha = 1 where {self._shown(c)} > 0") for name, c in functions))


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class PDS(WithAlgebraic):
    """Projected dynamical system: x' = flow(x, u, p), projected onto the set c(x) >= 0.

    x' = flow + E^-1 grad c(x) lambda, 0 <= c(x) perpendicular lambda >= 0.

    Parameters
    ----------
    x : SX (n_x,)
    u, p : SX, optional
    flow : SX (n_x,)
    constraints : SX (n_c,)
        c(x).
    metric : (n_x, n_x), optional
        E, symmetric and positive definite; default the identity.
    constraint_names : sequence of str, optional
    algebraic : Algebraic, optional
        Algebraic variables and equations.
    names, units, nominal, p_default, scene
        As in `CLS`; keys "x", "u", "p".
    """

    flow: Any
    constraints: Any
    metric: Any = None
    constraint_names: Any = None

    def __post_init__(self) -> None:
        allowed, n_x = self._check_symbols(), self.x.shape[0]
        self._set("flow", column(self.flow, "PDS: flow", n_x))
        check_free(self.flow, allowed, "PDS: flow")
        self._set("constraints", column(self.constraints, "PDS: constraints"))
        check_free(self.constraints, {"x": self.x, "p": self.p}, "PDS: constraints")
        self._set("metric", _metric(self.metric, n_x))
        count = self.constraints.shape[0]
        if count == 0:
            raise self._error("constraints: expected at least one function c(x).")
        given = component_names(None, "c", count) if self.constraint_names is None else self.constraint_names
        self._set("constraint_names", _different_names(given, "PDS: constraint_names", count))
        self._describe()
        self._warn_of_jumps({"PDS: flow": self.flow}, JUMPS)

    @property
    def normals(self) -> ca.SX:
        """E^-1 grad c (n_x, n_c): what unit forces do to x'."""
        return ca.DM(np.linalg.inv(self.metric)) @ ca.jacobian(self.constraints, self.x).T

    def check_state(self, x: Any, p: Any = None, *, what: str = "x0", tolerance: float = 1e-8) -> np.ndarray:
        """Return a state as a vector (n_x,) or raise `ModelError` when it lies outside of the set."""
        state = finite(x, what, self.x.shape[0])
        parameters = self.parameters(p)
        values = np.array(ca.Function("c", [self.x, self.p], [self.constraints])(state, parameters)).reshape(-1)
        for name, value in zip(self.constraint_names, values, strict=True):
            if not value >= -tolerance:
                raise ModelError(f"{what} violates constraint {name!r}: its value is {value:.6g}, expected >= 0.")
        return state

    def __repr__(self) -> str:
        constraints = zip(self.constraint_names, ca.vertsplit(self.constraints), strict=True)
        return self._tree(*(("inside", f"{name}: {self._shown(c)} >= 0") for name, c in constraints))


def _indices(given: Any, count: int) -> tuple[int, ...]:
    if not isinstance(given, list | tuple) or not all(type(j) is int and j in range(count) for j in given):
        raise ModelError(f"Heaviside: per_element: expected a sequence of indices below {count}, given {given!r}.")
    return tuple(given)


def _metric(given: Any, n_x: int) -> np.ndarray:
    try:
        matrix = np.eye(n_x) if given is None else np.array(given, dtype=float)
    except (TypeError, ValueError):
        matrix = np.zeros((0, 0))
    if matrix.shape != (n_x, n_x) or not np.allclose(matrix, matrix.T) or np.linalg.eigvalsh(matrix).min() <= 0:
        raise ModelError(f"PDS: metric has to be a symmetric positive definite matrix {(n_x, n_x)}, given {given!r}.")
    return matrix
