"""Derivatives of an event-selected motion: transport along segments, saltation matrices at crossings.

The variables are w = (x, p), a state whose last components are constant. Variations are propagated along segments by
the exact derivatives of their Runge-Kutta steps, and over single crossings by the saltation matrix Xi = I + (f+ - f-) D
h / (D h f-) (Aizerman and Gantmakher 1958; see `motion.variations`). Where several guards are crossed at once
(`SimultaneousCrossings`), and at the ends of the motion, the map is only piecewise linear (`corner`). If all orders of
crossings give the same matrix, the motion is differentiable there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError, TranscriptionError
from nosnoc_py.functions import buffered
from nosnoc_py.methods.event_selected.corner import Corner, LiveGuard
from nosnoc_py.methods.event_selected.functions import Fields
from nosnoc_py.methods.event_selected.record import GuardCrossings, Record
from nosnoc_py.motion.variations import step_transport
from nosnoc_py.solution import Event, Sensitivity
from nosnoc_py.systems.event_selected import EventSelectedSystem, arity
from nosnoc_py.tableaus import Tableau

# Entries of the Jacobians of one batch of segments (memory), and points per call of a CasADi function.
BATCH_SIZE, POINTS = 500_000, 64
Array = np.ndarray

# Crossings closer than this fraction of the longest step count as simultaneous: their order may be rounding.
AT_ONCE = 1e-7
# Units in the last place of the time that are added to this tolerance.
ULPS = 8.0
# Safety factor on the estimated error of a projection.
ERROR_FACTOR = 2.0
# A guard on its surface at an end of the motion counts as crossed if D h f exceeds this.
RISING = 1e-8


@dataclass(frozen=True, eq=False)
class SimultaneousCrossings:
    """Groups of crossings of a simulation with parameters p (n_p,) that count as simultaneous.

    Crossings are simultaneous if their distance is below a small fraction of the longest step, or below the error of
    the projection onto their guards: |h| / (D h f) after Newton's method, and for an Euler step of length tau the
    effect of the changing speed, tau / 2 |D h f(end) / D h f(start) - 1|. Errors of the scheme itself do not count,
    since the simulated motion is differentiated.
    """

    fields: Fields
    record: Record
    p: Array

    def tolerance(self, t: float) -> float:
        """Return the time difference [s] at time t below which crossings are simultaneous."""
        # The spacing of floating-point numbers at t is the least difference between two instants.
        return float(AT_ONCE * self.record.h.max(initial=0.0) + ULPS * np.spacing(abs(t)))

    def at_start(self) -> list[GuardCrossings]:
        """Return guards on their surfaces at the start that were crossed just before, in the other direction."""
        bits = self.record.first.astype(float)
        return self._rising_guards(0, 1.0 - bits, bits)

    def at_end(self) -> list[GuardCrossings]:
        """Return guards on their surfaces at the end that were not crossed (rounding decides), if any."""
        node = len(self.record.t) - 1
        bits = self.record.bits(node)
        return self._rising_guards(node, bits, bits)

    def groups(self) -> list[list[GuardCrossings]]:
        """Return all crossings, including those at both ends, in groups of simultaneous ones."""
        groups: list[list[GuardCrossings]] = []
        for crossing in (*self.at_start(), *self.record.crossings, *self.at_end()):
            if groups and self._at_once(groups[-1], crossing):
                groups[-1].append(crossing)
            else:
                groups.append([crossing])
        return groups

    def _rising_guards(self, node: int, rows: Array, bits: Array) -> list[GuardCrossings]:
        """Return a crossing of the guards whose functions in `rows` are zero at a node and rise there, if any."""
        values, rates = self._guards(node, rows, bits)
        # |h| / (D h f) is the time to the surface.
        rising = (rates > RISING) & (np.abs(values) <= self.tolerance(self.record.t[node]) * rates)
        before, after = np.where(rising, rows, bits), np.where(rising, 1.0 - rows, bits)
        guards = np.flatnonzero(rising)
        return [GuardCrossings(node=node, guards=guards, before=before, after=after)] if guards.size else []

    def _guards(self, node: int, rows: Array, bits: Array) -> tuple[Array, Array]:
        """Return values and rates (m,) of guard functions (one row per guard) at a node in the mode `bits`."""
        x, chosen = self.record.x[node], (rows.astype(int), np.arange(len(rows)))
        slope = np.asarray(self.fields.flow(x, bits, self.p))
        return self.fields.guards(x, self.p)[chosen], self.fields.gradients(x, self.p)[chosen] @ slope

    def _at_once(self, group: list[GuardCrossings], crossing: GuardCrossings) -> bool:
        t, first = self.record.t[crossing.node], group[0]
        distance, tolerance = t - self.record.t[first.node], self.tolerance(t)
        # Errors of projections cost evaluations and are far below a step: they are looked at only in between.
        if distance <= tolerance or distance > self.record.h.max(initial=0.0):
            return bool(distance <= tolerance)
        parts = [*group, crossing]
        errors = [self._error(part, [later.guards for later in parts[k:]]) for k, part in enumerate(parts)]
        return bool(distance <= tolerance + ERROR_FACTOR * (max(errors[:-1]) + errors[-1]))

    def _error(self, crossing: GuardCrossings, ahead: list[Array]) -> float:
        """Return the error [s] of the instant of a crossing due to its projection, also for the guards ahead."""
        node, bits = crossing.node, crossing.before
        values, rates = self._guards(node, bits, bits)
        error = np.abs(values / rates)[crossing.guards].max()
        if node > 0 and self.record.euler[node - 1]:
            # The Euler step was taken in the mode before its end.
            bits = self.record.bits(node - 1)
            first, last = (self._guards(end, bits, bits)[1][np.concatenate(ahead)] for end in (node - 1, node))
            rate_change = np.abs(last / first - 1.0)[first > RISING]
            error += 0.5 * self.record.h[node - 1] * rate_change.max(initial=0.0)
        return float(error)


class SystemDerivatives(NamedTuple):
    """Derivatives of an event-selected system.

    Attributes
    ----------
    n_x, n_w : int
        Numbers of states, and of states and parameters.
    flow_w : function (points, n_x), (points, m), (n_p,) -> (points, n_w, n_w)
        Derivative of (f, 0).
    guards_w : function (n_x,), (n_p,) -> (2, m, n_w)
        Derivatives of the guard functions that set bits and of those that clear them.
    """

    n_x: int
    n_w: int
    flow_w: Callable[[Array, Array, Array], Array]
    guards_w: Callable[[Array, Array], Array]


def variations_of(system: EventSelectedSystem, fields: Fields) -> SystemDerivatives:
    """Return the derivatives of a system; those of a CasADi system are built once.

    Raises
    ------
    OptionError
        For a system of NumPy functions without `flow_jacobian`, or with parameters.
    """
    return _symbolic(system) if system.symbolic else _numeric(system, fields)


def transports(variations: SystemDerivatives, record: Record, tableau: Tableau, p: Array) -> Iterator[Array]:
    """Yield the derivatives (n_w, n_w) of the segments in order."""
    # Batches keep vectorised evaluation without the Jacobians of the whole motion in memory.
    length = max(1, BATCH_SIZE // (tableau.stages * variations.n_w**2))
    for start in range(0, len(record.h), length):
        yield from _batch(variations, record, tableau, p, slice(start, start + length))


def _batch(variations: SystemDerivatives, record: Record, tableau: Tableau, p: Array, part: slice) -> Array:
    """Return derivatives (segments, n_w, n_w) of some segments; an Euler step uses its first stage only."""
    lengths, euler, n_s = record.h[part], record.euler[part], tableau.stages
    offsets = np.einsum("ij,sjn->sin", tableau.a, record.slopes[part])
    offsets[euler] = 0.0  # f need not be defined at the unused stages
    stages = record.x[:-1][part][:, None] + lengths[:, None, None] * offsets
    modes = np.repeat(record.mode[:-1][part], n_s, axis=0)
    slopes = variations.flow_w(stages.reshape(-1, variations.n_x), modes, p)
    slopes = slopes.reshape(-1, n_s, *slopes.shape[1:])
    # The derivative of a Runge-Kutta step is the step of the variational equation with the same stages.
    return step_transport(slopes, lengths, tableau.a, np.where(euler[:, None], np.eye(n_s)[0], tableau.b))


@lru_cache(maxsize=64)  # one system, one derivative
def _symbolic(system: EventSelectedSystem) -> SystemDerivatives:
    """Build the derivatives of a CasADi system, one function call for many points."""
    n_x, n_w, m = system.n_x, system.n_x + system.n_p, len(system.guards)
    w = ca.vertcat(system.x, system.p)
    slope = ca.densify(ca.jacobian(system.flow, w))
    flow_w = buffered(ca.Function("flow_w", [system.x, system.mode, system.p], [slope]).map(POINTS))
    # A constant instead of a missing function: its derivative is zero and is never used.
    backs = [0.0 if guard.back is None else guard.back for guard in system.guards]
    functions = ca.vertcat(*(guard.function for guard in system.guards), *backs)
    guards_w = buffered(ca.Function("guards_w", [system.x, system.p], [ca.densify(ca.jacobian(functions, w))]))

    def flow(x: Array, mode: Array, p: Array) -> Array:
        # Padded to whole calls with zeros; their results are cut off below.
        rows = np.pad(np.hstack([x, mode]), ((0, -len(x) % POINTS), (0, 0))).reshape(-1, POINTS, n_x + m)
        slopes = np.hstack([flow_w(part[:, :n_x], part[:, n_x:], p)[0] for part in rows])
        matrices = slopes.reshape(n_x, -1, n_w).transpose(1, 0, 2)[: len(x)]
        # Parameters are constant: the rows of their rates are zero.
        return np.pad(matrices, ((0, 0), (0, n_w - n_x), (0, 0)))

    def guards(x: Array, p: Array) -> Array:
        return np.asarray(guards_w(x, p)[0].reshape(2, m, n_w))

    return SystemDerivatives(n_x, n_w, flow, guards)


def _numeric(system: EventSelectedSystem, fields: Fields) -> SystemDerivatives:
    """Build the derivatives of a system of NumPy functions, evaluated point by point."""
    if system.n_p:
        raise OptionError(
            f"sensitivities: the system is made of NumPy functions and has {system.n_p} parameters, so the "
            "derivatives by these are not known; write it in CasADi, or make the parameters constant states."
        )
    function: Any = system.flow_jacobian
    if function is None:
        raise OptionError(
            "sensitivities: a system of NumPy functions needs flow_jacobian, d f / d x as a function of (x, mode); "
            "give it, or write the system in CasADi, which differentiates it."
        )
    n_x, more = system.n_x, arity(function) - 2

    def flow(x: Array, mode: Array, p: Array) -> Array:
        pairs = zip(x, mode, strict=True)
        return np.array([function(point, bits, *(p,) * more) for point, bits in pairs]).reshape(-1, n_x, n_x)

    return SystemDerivatives(n_x, n_x, flow, fields.gradients)


def sensitivity_of(
    system: EventSelectedSystem,
    fields: Fields,
    record: Record,
    tableau: Tableau,
    events: Sequence[Event],
    parameters: Array,
) -> Sensitivity:
    """Return the derivatives of the final state and of event times with respect to x0 and p.

    The bits at the start are constant, except for guards on their surfaces: perturbed states start on their own side. A
    guard with hysteresis, whose bit is cleared on another surface, keeps its bit. If simultaneous crossings leave the
    final state differentiable but not their times, the rows of these times are NaN.

    Parameters
    ----------
    system, fields
        Simulated system and its numeric functions.
    record
        Record of the simulation.
    tableau
        Tableau of its steps.
    events
        Events of the trajectory, in the order of the crossings of the record.
    parameters : (n_p,)

    Raises
    ------
    OptionError
        For a system of NumPy functions without `flow_jacobian`, or with parameters.
    """
    propagation = _VariationPropagation(
        variations_of(system, fields), fields, record, tableau, np.asarray(parameters, dtype=float)
    )
    propagation.run()
    n_x, n_left = (
        system.n_x,
        sum(crossing.guards.size for crossing in propagation.instants.at_start()),
    )  # those are no events
    end, times = (
        propagation.W[:n_x],
        np.reshape(propagation.times[n_left : n_left + len(events)], (len(events), len(propagation.W))),
    )
    directions = Directions(tuple(propagation.matrices), tuple(propagation.corners), system.guard_names)
    return Sensitivity(
        x0=end[:, :n_x],
        p=end[:, n_x:],
        event_times_x0=times[:, :n_x],
        event_times_p=times[:, n_x:],
        orbital=propagation.orbital,
        flags=tuple(_flag(corner, system.guard_names, record.first) for corner in propagation.corners),
        directions=directions if propagation.corners else None,
    )


@dataclass(frozen=True, eq=False)
class Directions:
    """One-sided derivatives of the final state in directions of x0: matrices (n_w, n_w) with corners between them.

    It holds functions of the system that cannot be pickled; a pickled copy is None.
    """

    matrices: tuple[Array, ...]
    corners: tuple[Corner, ...]
    guard_names: tuple[str, ...]

    def __call__(self, v: Array) -> Array:
        """Return the one-sided derivative (n_x,) in the direction v (n_x,).

        Raises
        ------
        TranscriptionError
            If a guard is not crossed with speed in the order of v, so that the system is not event-selected there.
        """
        # Between corners the map is linear; parameters do not move.
        w = self.matrices[0][:, : len(v)] @ v
        for corner, matrix in zip(self.corners, self.matrices[1:], strict=True):
            w = matrix @ self._over_corner(corner, w)
        return np.asarray(w[: len(v)])

    def _over_corner(self, corner: Corner, w: Array) -> Array:
        deviation = corner(w)
        if deviation.blocked >= 0:
            name = self.guard_names[corner.crossings[deviation.blocked].guard]
            raise TranscriptionError(
                f"directional: in this direction guard {name!r} is not crossed at t = {corner.t:.12g} with speed on "
                "both sides (D h f > 0): the system is not event-selected there."
            )
        return deviation.w

    def __reduce__(self) -> tuple[object, tuple[()]]:
        # Functions of CasADi and numba cannot be pickled with their buffers.
        return type(None), ()


class _VariationPropagation:
    """Propagation of the variations W (n_w, n_w) of w = (x, p) from the first node to the last."""

    def __init__(
        self, variations: SystemDerivatives, fields: Fields, record: Record, tableau: Tableau, p: Array
    ) -> None:
        self.variations, self.fields, self.record, self.p = variations, fields, record, p
        self.segments = transports(variations, record, tableau, p)
        self.instants = SimultaneousCrossings(fields, record, p)
        self.node = 0
        self.orbital = np.empty((len(record.t), variations.n_x, variations.n_x))
        self.times: list[Array] = []
        self.matrices, self.corners = [np.eye(variations.n_w)], list[Corner]()

    @property
    def W(self) -> Array:
        """Accumulated derivative (n_w, n_w); NaN after a corner."""
        # After a corner the derivative depends on the direction: a matrix would be right for one piece only.
        return np.full_like(self.matrices[0], np.nan) if self.corners else self.matrices[0]

    def run(self) -> None:
        """Propagate through all segments and crossings; guards on their surfaces at an end count as crossings."""
        for crossings in self.instants.groups():
            self._transport_to(crossings[0].node)
            self._cross(crossings)
        self._transport_to(len(self.record.t) - 1)

    def _transport_to(self, node: int) -> None:
        self._store()
        for matrix in islice(self.segments, node - self.node):
            self.node += 1
            self._apply(matrix)
            self._store()

    def _store(self) -> None:
        n_x = self.variations.n_x
        self.orbital[self.node] = self.W[:n_x, :n_x]

    def _apply(self, matrix: Array) -> None:
        self.matrices[-1] = matrix @ self.matrices[-1]

    def _cross(self, crossings: Sequence[GuardCrossings]) -> None:
        corner = self._corner(crossings)
        jump = corner.linear()
        if jump is None:
            self.corners.append(corner)
            self.matrices.append(np.eye(self.variations.n_w))
            # W is NaN from here on: so are the rows of these times.
            self.times.extend(self.W[:1].repeat(len(corner.crossings), axis=0))
        elif len(crossings) == 1:
            self.times.extend(jump.delay @ self.W)
            self._apply(jump.jump)
        else:  # linear, so the order does not matter: take the recorded one
            for crossing in crossings:
                self._transport_to(crossing.node)
                self._cross([crossing])

    def _corner(self, crossings: Sequence[GuardCrossings]) -> Corner:
        record, p = self.record, self.p
        t, x, mode = record.t[crossings[0].node], record.x[crossings[0].node], crossings[0].before
        live = [LiveGuard(int(k), int(crossing.before[k])) for crossing in crossings for k in crossing.guards]
        guards, rows = np.array(live).T
        rest, tolerance = np.zeros(self.variations.n_w - self.variations.n_x), self.instants.tolerance(t)
        gradients = np.array(self.variations.guards_w(x, p)[rows, guards])
        speed = np.abs(gradients[:, : len(x)] @ np.asarray(self.fields.flow(x, mode, p)))
        # The other function of the guard, which would change the bit back.
        below = self.fields.guards(x, p)[1 - rows, guards] < -tolerance * speed
        return Corner(
            t=float(t),
            crossings=tuple(live),
            gradients=gradients,
            mode=mode,
            flow=lambda bits: np.concatenate([self.fields.flow(x, bits, p), rest]),
            far=below & self.fields.returns[guards],
            starts=bool(t - record.t[0] <= tolerance),
            ends=bool(record.t[-1] - record.t[crossings[-1].node] <= tolerance),
        )


def _flag(corner: Corner, guard_names: Sequence[str], first: Array) -> str:
    names = list(dict.fromkeys(guard_names[live.guard] for live in corner.crossings))
    subject = f"guard {names[0]} is" if len(names) == 1 else f"guards {', '.join(names)} are"
    when = "at the start, " if corner.starts else "at the end, " if corner.ends else "at once at "
    if len(corner.crossings) > len(names) and not (corner.starts or corner.ends):
        when = "there and back at once at "
    verb = "left" if corner.starts and any(first[live.guard] != live.row for live in corner.crossings) else "crossed"
    where = f"{when}t = {corner.t:.12g}"
    return f"{subject} {verb} {where}: the flow is piecewise linear there, use sensitivity.directional(v)"
