"""What a solution of a Filippov system claims, held against the inclusion at its own stages: nothing is simulated here.

x' lies in the convex hull of the motions of the regions that meet at x; with step functions every alpha is that of its
function's sign, or anything between where the function is zero; a projected system is pushed by constraints that are
active, into its set. A stage obeys if some multipliers explain its rate, and if the multipliers that the solution lists
do, too. Violations are shares of the largest rate of a state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import casadi as ca
import numpy as np

from nosnoc_py.simulation.certification.claims import CLOSED, SHORT, SOLVED, TOLERANCE, Violation, worst_of
from nosnoc_py.simulation.certification.collocation import Collocation, collocation_of, differences, stage_controls
from nosnoc_py.solution import Solution
from nosnoc_py.solution.certificate import Finding
from nosnoc_py.systems.pss import PDS, PSS, Heaviside

Array = np.ndarray
# Gauss-Newton steps for multipliers that the rate does not depend on linearly, and the last one of them.
STEPS, LAST_STEP = 25, 1e-12


@dataclass(frozen=True, eq=False, kw_only=True)
class Law:
    """A system as x' = flow(x, y, z, u, p) with rows of y that vanish (sums of weights less one).

    Attributes
    ----------
    y, functions : SX (n_y,)
        Multipliers, and what tells which of them are free.
    active : SX (n_y,)
        1 where a multiplier may be something: regions elsewhere need not have a motion.
    labels : tuple of str
        Names of the multipliers in a solution.
    groups : tuple of slice
        Multipliers that belong to one partition.
    """

    y: ca.SX
    functions: ca.SX
    active: ca.SX
    flow: ca.SX
    sums: ca.SX
    labels: tuple[str, ...]
    groups: tuple[slice, ...] = ()


def law_of(system: PSS | Heaviside | PDS) -> Law:
    """The inclusion of a system."""
    if isinstance(system, PSS):
        return _hull(system)
    if isinstance(system, Heaviside):
        labels = tuple(f"alpha[{name}]" for name in system.function_names or ())
        return Law(
            y=system.alpha,
            functions=system.functions,
            active=ca.SX.sym("active", len(labels)),
            flow=system.flow,
            sums=ca.SX(0, 1),
            labels=labels,
        )
    force = ca.SX.sym("force", system.constraints.shape[0])
    push = ca.DM(np.linalg.inv(system.metric)) @ ca.jacobian(system.constraints, system.x).T @ force
    return Law(
        y=force,
        functions=system.constraints,
        active=ca.SX.sym("active", force.numel()),
        flow=system.flow + push,
        sums=ca.SX(0, 1),
        labels=tuple(f"lambda[{name}]" for name in system.constraint_names),
    )


def _hull(system: PSS) -> Law:
    flow, start = system.flow, 0
    thetas, functions, actives, sums, labels, groups = [], [], [], [], [], []
    for modes in system.modes:
        theta, active = ca.SX.sym("theta", modes.count), ca.SX.sym("active", modes.count)
        flows = [ca.if_else(active[i] > 0.5, f, ca.SX(f.shape[0], 1)) for i, f in enumerate(modes.flows)]
        flow += ca.horzcat(*flows) @ theta
        thetas.append(theta)
        functions.append(modes.indicators)
        actives.append(active)
        sums.append(ca.sum1(theta) - 1)
        labels += [f"theta[{modes.name}][{i}]" for i in range(modes.count)]
        groups.append(slice(start, start + modes.count))
        start += modes.count
    return Law(
        y=ca.vertcat(*thetas),
        functions=ca.vertcat(*functions),
        active=ca.vertcat(*actives),
        flow=flow,
        sums=ca.vertcat(*sums),
        labels=tuple(labels),
        groups=tuple(groups),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Place:
    """A stage in numbers: element and stage, x, u, functions (n_y,) and bounds (n_y,) of the multipliers."""

    at: tuple[int, int]
    x: Array
    u: Array
    functions: Array
    lower: Array
    upper: Array


class Inclusions:
    """Reads a solution with polynomials and checks it against the inclusion."""

    def __init__(self, system: PSS | Heaviside | PDS, solution: Solution) -> None:
        elements = collocation_of(solution)
        assert elements is not None
        self.system, self.solution, self.law = system, solution, law_of(system)
        self.elements: Collocation = elements
        own, law = system.algebraic, self.law
        equations = ca.SX(0, 1) if own is None else own.equations
        s, rate, size = (
            ca.vertcat(law.y, system.z),
            ca.SX.sym("rate", system.x.numel()),
            ca.SX.sym("size", system.x.numel()),
        )
        rows = ca.vertcat((law.flow - rate) / size, law.sums, equations)
        arguments = [s, system.x, system.u, system.p, law.active, rate, size]
        self._rows = ca.Function("rows", arguments, [rows, ca.densify(ca.jacobian(rows, s))])
        self._functions = ca.Function("functions", [system.x, system.p], [law.functions])

    def equations_of_motion(self) -> tuple[float, list[Finding]]:
        """Largest violation at the stages, as a share, and where it is too large."""
        return worst_of((float(self.elements.t[place.at]), self._at(place)) for place in self._places())

    @cached_property
    def size(self) -> Array:
        """Largest rates (n_x,), not below what errors of the solver amount to by differences over short steps."""
        e, solution = self.elements, self.solution
        lengths = e.h[e.h > SHORT * solution.duration]
        if not lengths.size:
            return np.ones(e.x.shape[2])
        rates = np.nan_to_num(np.abs(e.rates[e.h > SHORT * solution.duration]), nan=0.0).max(axis=(0, 1))
        gain = np.abs(differences(np.append(0.0, e.c[e.c != 0.0]))).sum(axis=1).max()
        errors = min(solution.infeasibility, SOLVED) + np.finfo(float).eps * (1.0 + np.abs(solution.x).max(axis=0))
        return np.asarray(np.maximum(np.maximum(rates, gain * errors / lengths.min() / TOLERANCE), 1e-300))

    def _places(self) -> Iterator[Place]:
        e, p = self.elements, self.solution.p
        for k in np.flatnonzero(e.h > SHORT * self.solution.duration):
            u = stage_controls(self.solution, e, int(k))
            values = np.asarray(self._functions(e.x[k].T, p)).T
            for j in np.flatnonzero(e.c != 0.0):
                lower, upper = self._bounds(values[j])
                yield Place(at=(int(k), int(j)), x=e.x[k, j], u=u[j], functions=values[j], lower=lower, upper=upper)

    def _bounds(self, functions: Array) -> tuple[Array, Array]:
        """Bounds (n_y,) of the multipliers where the functions have these values."""
        close = CLOSED * (1.0 + np.abs(functions))
        if isinstance(self.system, PDS):
            return np.zeros(functions.size), np.where(functions <= close, np.inf, 0.0)
        if isinstance(self.system, Heaviside):
            return np.where(functions > close, 1.0, 0.0), np.where(functions < -close, 0.0, 1.0)
        upper = np.zeros(functions.size)
        for part in self.law.groups:
            away = functions[part] - functions[part].min()
            upper[part] = np.where(away <= CLOSED * (1.0 + np.abs(functions[part]).max()), 1.0, 0.0)
        return np.zeros(functions.size), upper

    def _at(self, place: Place) -> Violation:
        made = [*self._explained(place), *self._claimed(place)]
        if isinstance(self.system, PDS):
            outside = float(np.maximum(-place.functions, 0.0).max(initial=0.0))
            made.append(Violation(outside * TOLERANCE / CLOSED, f"the state is {outside:.3g} outside of its set"))
        return max(made, key=lambda violation: violation.share)

    def _explained(self, place: Place) -> Iterator[Violation]:
        """Whether there are multipliers at all."""
        left = self._residual(place, self._best(place))[0]
        yield self._of(left, "no multipliers of the active regions or constraints explain {}'")

    def _claimed(self, place: Place) -> Iterator[Violation]:
        """Whether the listed ones are some."""
        if self._listed is None:
            return
        s = self._listed[place.at]
        y = s[: self.law.y.numel()]
        names = self.law.labels
        outside = np.maximum(np.maximum(place.lower - y, y - place.upper), 0.0)
        k = int(np.argmax(outside)) if outside.size else 0
        if outside.size:
            yield Violation(float(outside[k]), f"{names[k]} is {y[k]:.4g}, which this place does not allow")
        yield self._of(self._residual(place, s)[0], "the listed multipliers do not explain {}'")

    def _of(self, left: Array, words: str) -> Violation:
        """The largest share that is left of the rates, sums and algebraic equations."""
        k, names = int(np.argmax(np.abs(left))), self.system.state_names
        share = float(np.abs(left[k])) if np.isfinite(left).all() else np.inf
        return Violation(
            share, words.format(names[k]) if k < len(names) else "the equations of multipliers do not hold"
        )

    @cached_property
    def _listed(self) -> Array | None:
        """Multipliers and algebraic variables (E, n_s, n_y + n_z) that the solution lists, if it does."""
        own = self.system.algebraic
        names = [*self.law.labels, *(() if own is None else own.names or ())]
        series, shape = self.solution.series, self.elements.t.shape
        if not all(name in series and len(series[name]) == self.elements.t.size for name in names):
            return None
        if not names:
            return np.zeros((*shape, 0))
        return np.stack([np.asarray(series[name].values).reshape(shape) for name in names], axis=2)

    def _residual(self, place: Place, s: Array) -> tuple[Array, Array]:
        active = (place.upper > 0.0).astype(float)
        rate = self.elements.rates[place.at]
        rows, slope = self._rows(s, place.x, place.u, self.solution.p, active, rate, self.size)
        return np.asarray(rows).reshape(-1), np.asarray(slope)

    def _best(self, place: Place) -> Array:
        """The multipliers within their bounds that leave least, by Gauss-Newton; linear systems take one step."""
        from scipy.optimize import lsq_linear  # not paid for by an import of the library

        own = self.system.algebraic
        lower, upper = place.lower, place.upper
        s = np.clip(np.full(lower.size, 0.5), lower, upper)
        if own is not None:
            start = np.asarray(own.initial, float) if self._listed is None else self._listed[place.at][lower.size :]
            s = np.concatenate([s, start])
            lower, upper = np.append(lower, own.lower), np.append(upper, own.upper)
        free = lower < upper
        if not free.any():
            return s
        for _ in range(STEPS):
            rows, slope = self._residual(place, s)
            if not (np.isfinite(rows).all() and np.isfinite(slope).all()):
                break
            low, high = lower[free] - s[free], upper[free] - s[free]
            step = lsq_linear(slope[:, free], -rows, bounds=(low, high), method="bvls").x
            s[free] = np.clip(s[free] + step, lower[free], upper[free])
            if np.abs(step).max(initial=0.0) <= LAST_STEP * (1.0 + np.abs(s).max()):
                break
        return s
