"""The orbital derivative of an event-selected motion: transports along its segments, saltation at its crossings.

With w = (x, p), a crossing of a guard h by the field f- before and f+ after it,

    dt* = -D h dw / (D h f-),    dw+ = (I + (f+ - f-) D h / (D h f-)) dw-,

and in between the exact derivatives of the steps. Where several guards are crossed at once (`instants`), and at the
ends of the motion, the map is only piecewise linear (`corner`); where it happens to be linear the motion is smooth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from nosnoc_py.discretization.butcher import ButcherTableau
from nosnoc_py.errors import TranscriptionError
from nosnoc_py.simulation.event_selected.corner import Corner, LiveGuard
from nosnoc_py.simulation.event_selected.functions import Fields
from nosnoc_py.simulation.event_selected.instants import Instants
from nosnoc_py.simulation.event_selected.record import Crossing, Record
from nosnoc_py.simulation.event_selected.transports import Array, Variations, transports, variations_of
from nosnoc_py.solution import Event, Sensitivity
from nosnoc_py.systems.event_selected import EventSelectedSystem


def sensitivity_of(
    system: EventSelectedSystem,
    fields: Fields,
    record: Record,
    tableau: ButcherTableau,
    events: Sequence[Event],
    parameters: Array,
) -> Sensitivity:
    """Derivatives of the end and of the times of events of a simulation with respect to x0 and p.

    The bits at the start are held, but for guards that are on their surfaces there: perturbed states begin on their own
    side. A guard with hysteresis, which is left on another surface, keeps its bit. Where guards are crossed at once and
    the end is differentiable, their times need not be: then these rows are NaN.

    Parameters
    ----------
    system, fields
        What was simulated, and its functions.
    record
        What the simulation did.
    tableau
        Of its steps.
    events
        Of the trajectory, in the order of the crossings of the record.
    parameters : (n_p,)

    Raises
    ------
    OptionError
        For a system of NumPy functions without `flow_jacobian`, or with parameters.
    """
    walk = _Walk(system, fields, record, tableau, np.asarray(parameters, dtype=float))
    walk.run()
    n_x = system.n_x
    end, times = walk.W[:n_x], np.reshape(walk.times[: len(events)], (len(events), walk.variations.n_w))
    return Sensitivity(
        x0=end[:, :n_x],
        p=end[:, n_x:],
        event_times_x0=times[:, :n_x],
        event_times_p=times[:, n_x:],
        orbital=walk.orbital,
        flags=tuple(walk.flags),
        directions=Directions(tuple(walk.pieces), system.guard_names, n_x) if walk.flags else None,
    )


@dataclass(frozen=True, eq=False)
class Directions:
    """One-sided derivatives of the end in directions of x0, by matrices (n_w, n_w) and corners, the first one first.

    It holds functions of the system that cannot travel to another process: a copy that does is None.
    """

    pieces: tuple[Array | Corner, ...]
    guard_names: tuple[str, ...]
    n_x: int

    def __call__(self, v: Array) -> Array:
        """The derivative (n_x,) in the direction v (n_x,).

        Raises
        ------
        TranscriptionError
            If a guard is not crossed with speed in the order that v asks for: there the system is not event-selected.
        """
        w = np.concatenate([v, np.zeros(_size(self.pieces[0]) - self.n_x)])
        for piece in self.pieces:
            w = self._around(piece, w) if isinstance(piece, Corner) else piece @ w
        return w[: self.n_x]

    def _around(self, corner: Corner, w: Array) -> Array:
        found = corner(w)
        if found.stuck >= 0:
            name = self.guard_names[corner.crossings[found.stuck].guard]
            raise TranscriptionError(
                f"directional: in this direction guard {name!r} is not crossed at t = {corner.t:.12g} with speed on "
                "both sides (D h f > 0): the system is not event-selected there."
            )
        return found.w

    def __reduce__(self) -> tuple[object, tuple[()]]:
        return _nothing, ()


def _nothing() -> None:
    """What is left of directions in another process."""


def _size(piece: Array | Corner) -> int:
    return int((piece.gradients if isinstance(piece, Corner) else piece).shape[1])


class _Walk:
    """Carries the variations W (n_w, n_w) of w = (x, p) from the first node to the last."""

    def __init__(
        self, system: EventSelectedSystem, fields: Fields, record: Record, tableau: ButcherTableau, p: Array
    ) -> None:
        self.fields, self.record, self.p = fields, record, p
        self.guard_names = system.guard_names
        self.variations: Variations = variations_of(system, fields)
        self.segments = transports(self.variations, record, tableau, p)
        self.instants = Instants(fields, record, p)
        self.node, self.W = 0, np.eye(self.variations.n_w)
        self.orbital = np.empty((len(record.t), system.n_x, system.n_x))
        self.times: list[Array] = []
        self.flags: list[str] = []
        self.pieces: list[Array | Corner] = [self.W]

    def run(self) -> None:
        """Through all segments and crossings; a guard that is reached at an end counts, crossed or not."""
        for crossings in self.instants.groups():
            self._along(crossings[0].node)
            self._across(crossings)
        self._along(len(self.record.t) - 1)
        left = self.instants.left()
        del self.times[: 0 if left is None else left.guards.size]  # no events

    def _along(self, node: int) -> None:
        self._store()
        for matrix in islice(self.segments, node - self.node):
            self.node += 1
            self._apply(matrix)
            self._store()

    def _store(self) -> None:
        n_x = self.variations.n_x
        self.orbital[self.node] = self.W[:n_x, :n_x]

    def _apply(self, matrix: Array) -> None:
        self.W, last = matrix @ self.W, self.pieces[-1]
        if isinstance(last, Corner):
            self.pieces.append(matrix)
        else:
            self.pieces[-1] = matrix @ last

    def _across(self, crossings: Sequence[Crossing]) -> None:
        corner = self._corner(crossings)
        found = corner.linear()
        if found is None:
            self.flags.append(_flag(corner, self.guard_names, self.record.first))
            self.pieces.append(corner)
            self.W = np.full_like(self.W, np.nan)
            self.times.extend(self.W[:1].repeat(len(corner.crossings), axis=0))
        elif len(crossings) == 1:
            self.times.extend(found.delays @ self.W)
            self._apply(found.jump)
        else:  # the order does not matter, so it may as well be the one of the record
            for crossing in crossings:
                self._along(crossing.node)
                self._across([crossing])

    def _corner(self, crossings: Sequence[Crossing]) -> Corner:
        record, p = self.record, self.p
        t, x, mode = record.t[crossings[0].node], record.x[crossings[0].node], crossings[0].before
        live = [LiveGuard(int(k), int(crossing.before[k])) for crossing in crossings for k in crossing.guards]
        guards, rows = np.array(live).T
        rest, near = np.zeros(self.variations.n_w - self.variations.n_x), self.instants.near(t)
        gradients = np.array(self.variations.guards_w(x, p)[rows, guards])
        speed = np.abs(gradients[:, : len(x)] @ np.asarray(self.fields.flow(x, mode, p)))
        below = self.fields.guards(x, p)[1 - rows, guards] < -near * speed
        return Corner(
            t=float(t),
            crossings=tuple(live),
            gradients=gradients,
            mode=mode,
            flow=lambda bits: np.concatenate([self.fields.flow(x, bits, p), rest]),
            far=below & self.fields.returns[guards],
            starts=bool(t - record.t[0] <= near),
            ends=bool(record.t[-1] - record.t[crossings[-1].node] <= near),
        )


def _flag(corner: Corner, guard_names: Sequence[str], first: Array) -> str:
    names = list(dict.fromkeys(guard_names[live.guard] for live in corner.crossings))
    said = f"guard {names[0]} is" if len(names) == 1 else f"guards {', '.join(names)} are"
    when = "at the start, " if corner.starts else "at the end, " if corner.ends else "at once at "
    if len(corner.crossings) > len(names) and not (corner.starts or corner.ends):
        when = "there and back at once at "
    done = "left" if corner.starts and any(first[live.guard] != live.row for live in corner.crossings) else "crossed"
    return (
        f"{said} {done} {when}t = {corner.t:.12g}: the flow is piecewise linear there, ask sensitivity.directional(v)"
    )
