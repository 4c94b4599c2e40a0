"""The way back from numerical to physical time: frozen pieces become jumps, auxiliary motions forces and impulses.

In numerical time tau the clock t(tau) rises or stands still (Theorems 5 and 8 of the paper on time-freezing:
Nurkanovic, Albrecht, Brogliato, Diehl, Automatica 2023). An element in which the clock stands still is (part of) an
impact: states on its sides are the limits of a jump, and its impulse is the integral of the auxiliary force over tau.
An element in which the clock runs is motion: its states are resampled at nodes in t, and contact forces are weights a_n
beta divided by dt/dtau.

Invariants: elements with a running clock join without gaps and cover the horizon; every frozen element is in exactly
one jump; a trajectory that ends in a jump gets a last element of length zero, behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from nosnoc_py.discretization.readout import Readout, at_stages, trajectory_fields
from nosnoc_py.motion import kinds
from nosnoc_py.motion.record import MotionRecord
from nosnoc_py.reformulation.time_freezing import Frozen
from nosnoc_py.roles import Role
from nosnoc_py.solution import Event, Interpolant, RungeKuttaInterpolant, Series, Trajectory
from nosnoc_py.tableaus import radau_iia
from nosnoc_py.tolerances import IMPACT, RESTING

if TYPE_CHECKING:
    from nosnoc_py.transcription.numerical_time import FrozenTranscription

# Elements in which the clock advances by less than this fraction of a mean control stage are jumps. Above the tolerance
# of the solver (1e-8), below every step that a mesh can resolve. Forces are divided by no smaller rate of the clock.
FROZEN = 1e-7
# Nodes of the polynomials in physical time: the clock of an element may be any polynomial, and its inverse is none.
NODES = radau_iia(8).c
# Halvings of an element: 2^-60 of its length is below rounding.
BISECTIONS = 60


def physical_fields(
    problem: FrozenTranscription, readout: Readout, p: np.ndarray, u: np.ndarray, u_grid: np.ndarray
) -> dict[str, Any]:
    """Return the fields of a `Trajectory` in physical time; `numerical` is that in numerical time (Theorems 5 and 8).

    Parameters
    ----------
    readout : Readout
        States (q, v, clock).
    u : (N, n_u + 1)
        Controls and the speed of time in every control stage, of the grid of the problem once or several times.
    u_grid : (N + 1,)
        The grid of the control stages, the same in both times.
    """
    numerical = trajectory_fields(problem.dcs, problem.tableau, readout, p, u, u_grid)
    elements = problem.grid.elements
    # A simulation repeats its grid: u has the rows of all repetitions, `elements` those of one.
    speed = np.repeat(u[:, -1], elements * (len(u) // len(elements)))
    frozen, values = problem.frozen, _Values.read(problem, readout, p, speed)
    horizon, shortest = (float(u_grid[0]), float(u_grid[-1])), FROZEN * float(np.mean(np.diff(u_grid)))
    pieces = _Pieces(readout, values, numerical["interpolant"], horizon, shortest)
    dense = RungeKuttaInterpolant(
        t_left=pieces.t_left,
        h=pieces.h,
        c=NODES,
        x_left=pieces.x_left,
        x_stages=pieces.x_nodes,
        # A jump at the start: the state before it is on no element.
        x_initial=readout.x_minus[0, :-1],
    )
    system = frozen.original
    record = MotionRecord.of(
        dense,
        pieces.x_right,
        events=_events(frozen, pieces),
        series=_series(frozen, pieces),
        units=dict(system.units),
        unit_parts=system.unit_parts,
    )
    return {
        **record.fields,
        "state_names": system.state_names,
        "u_grid": u_grid,
        "u": u[:, :-1],
        "control_names": system.control_names,
        "numerical": Trajectory(**numerical),
    }


@dataclass(frozen=True, eq=False, kw_only=True)
class _Values:
    """Quantities of the contacts (E, n_s, n_c): clock rate (E, n_s), weights, forces, velocities; impulses (E, n_c)."""

    clock_rate: np.ndarray
    weight: np.ndarray
    normal_force: np.ndarray
    friction_force: tuple[np.ndarray, ...]
    gap: np.ndarray
    approach: np.ndarray
    slip: tuple[np.ndarray, ...]
    cone_margin: np.ndarray
    impulse: np.ndarray
    ends: np.ndarray
    energy: np.ndarray

    @classmethod
    def read(cls, problem: FrozenTranscription, r: Readout, p: np.ndarray, speed: np.ndarray) -> _Values:
        dcs, frozen = problem.dcs, problem.frozen
        system, contacts = frozen.original, frozen.contacts
        stage_values = partial(at_stages, dcs, r, p)
        approach = ca.vertcat(*[c.approach for c in contacts])
        # Only differences across jumps are used, where potentials cancel.
        kinetic = 0.5 * ca.dot(system.v, system.mass_matrix @ system.v)
        at_ends = ca.Function("ends", [dcs.x, dcs.p], [ca.vertcat(kinetic, approach)])
        ends = np.stack([np.asarray(at_ends(x.T, p).full()).T for x in (r.x_left, r.x_right)], axis=1)
        numbers: dict[str, Any] = {
            name: stage_values(ca.vertcat(*[getattr(c, name) for c in contacts]))
            for name in ("weight", "normal_force", "approach", "cone_margin")
        }
        for name in ("friction_force", "slip"):
            numbers[name] = tuple(stage_values(getattr(c, name)) for c in contacts)
        return cls(
            **numbers,
            clock_rate=stage_values(frozen.clock_rate)[..., 0],
            gap=stage_values(system.mechanics.gaps),
            # Quadrature of the scheme; speed * h is the length in tau, since the right-hand side is multiplied by it.
            impulse=(r.h * speed)[:, None] * np.einsum("s,esc->ec", problem.tableau.b, numbers["normal_force"]),
            ends=ends[..., 1:],
            energy=ends[..., 0],
        )


class _Pieces:
    """The elements in which the clock runs, and the jumps before them; one of length zero after a jump at the end."""

    def __init__(
        self, r: Readout, values: _Values, numerical: Interpolant, horizon: tuple[float, float], shortest: float
    ) -> None:
        self.values, self._r = values, r
        # The clock is known to the solver's tolerance; it starts and ends where the horizon does.
        clock = np.clip(np.stack([r.x_left[:, -1], r.x_right[:, -1]], axis=1), *horizon)
        runs = clock[:, 1] - clock[:, 0] > shortest
        self.rows = np.flatnonzero(runs)
        # The number of running elements before each one: frozen elements with the same number are one jump.
        before = np.cumsum(runs)
        # Frozen elements before the k-th piece, by k; behind the last one, k is the number of running elements.
        self.jumps = {int(k): np.flatnonzero((before == k) & ~runs) for k in np.unique(before[~runs])}
        self.h = clock[self.rows, 1] - clock[self.rows, 0]
        self.t_left = clock[self.rows, 0]
        self.x_left, self.x_right = r.x_left[self.rows, :-1], r.x_right[self.rows, :-1]
        self.x_nodes = self._resampled(numerical)
        if not runs[-1]:
            # The horizon ends in a jump: the state after it needs an element to belong to.
            end = r.x_right[-1:, :-1]
            self.h, self.t_left = np.append(self.h, 0.0), np.append(self.t_left, clock[-1, 1])
            self.x_left, self.x_right = np.vstack([self.x_left, end]), np.vstack([self.x_right, end])
            self.x_nodes = np.concatenate([self.x_nodes, np.repeat(end[:, None], NODES.size, axis=1)])

    def _resampled(self, numerical: Interpolant) -> np.ndarray:
        """Return states at the nodes in physical time (pieces, NODES, n_x): the clock is inverted by bisection."""
        # All elements at once: the clock does not fall within one, so bisection needs no derivative of it.
        left = np.concatenate([[0.0], np.cumsum(self._r.h)[:-1]])[self.rows]
        length = self._r.h[self.rows]
        wanted = self.t_left[:, None] + self.h[:, None] * NODES
        low, high = np.zeros_like(wanted), np.ones_like(wanted)
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            early = self._at(numerical, left, length, middle)[..., -1] < wanted
            low, high = np.where(early, middle, low), np.where(early, high, middle)
        x = self._at(numerical, left, length, 0.5 * (low + high))[..., :-1]
        # The last node is 1: without rounding, so that elements join.
        x[:, -1] = self.x_right
        return x

    def _at(self, numerical: Interpolant, left: np.ndarray, length: np.ndarray, share: np.ndarray) -> np.ndarray:
        times = left[:, None] + length[:, None] * share
        return numerical(times.reshape(-1), "-").reshape(*times.shape, -1)

    @cached_property
    def t_stages(self) -> np.ndarray:
        """Times of the stages (running elements, n_s)."""
        return np.asarray(self._r.x_stages[self.rows, :, -1])

    @cached_property
    def closed(self) -> np.ndarray:
        """Mask (running elements, n_c): True if the contact presses in the element."""
        v, rows = self.values, self.rows
        # Strict complementarity in the scale of the contact: it presses more than it is open or opens.
        open_by = np.maximum(v.gap[rows].max(axis=1), v.approach[rows].max(axis=1))
        return np.asarray(v.weight[rows].max(axis=1) > open_by)

    def slips(self, contact: int) -> np.ndarray:
        """Return a mask (running elements,): True if the contact slips."""
        v, rows = self.values, self.rows
        speed = np.linalg.norm(v.slip[contact][rows], axis=2).max(axis=1)
        # The margin of the cone against the slip velocity, whose product vanishes: the larger one decides.
        return np.asarray((v.cone_margin[rows, :, contact].max(axis=1) < speed) & (speed > RESTING))


def _events(frozen: Frozen, pieces: _Pieces) -> tuple[Event, ...]:
    """Return impacts, contacts and releases, slip and stick, in the order of time."""
    events: list[Event] = []
    for k in range(len(pieces.t_left)):
        time = float(pieces.t_left[k])
        if k in pieces.jumps:
            events += _impacts(frozen, pieces.values, pieces.jumps[k], time)
        if 0 < k < len(pieces.rows):
            events += _changes(frozen, pieces, k, time)
    return tuple(events)


def _impacts(frozen: Frozen, v: _Values, rows: np.ndarray, time: float) -> list[Event]:
    gain = float(v.energy[rows[-1], 1] - v.energy[rows[0], 0])
    impacts = []
    for i, contact in enumerate(frozen.contacts):
        impulse = float(v.impulse[rows, i].sum())
        before, after = float(v.ends[rows[0], 0, i]), float(v.ends[rows[-1], 1, i])
        # A frozen element without an approaching contact only redistributes time.
        if impulse > IMPACT and before < -IMPACT:
            impacts.append(Event(time, contact.name, "impact", impulse, before, after, gain))
    return impacts


def _changes(frozen: Frozen, pieces: _Pieces, k: int, time: float) -> list[Event]:
    modes, both = [], slice(k - 1, k + 1)
    for i, contact in enumerate(frozen.contacts):
        # Mean slip over the elements: a single stage at a reversal may have either sign.
        before, after = pieces.values.slip[i][pieces.rows[both]].mean(axis=1)
        modes.append((contact.name, kinds.of_modes(pieces.closed[both, i], pieces.slips(i)[both], before @ after < 0)))
    return kinds.events_at(time, modes)


def _series(frozen: Frozen, pieces: _Pieces) -> dict[str, Series]:
    """Return the forces at the stages: an impulse per numerical time, divided by the rate of the clock (Eq. 18b)."""
    v, rows = pieces.values, pieces.rows
    times = pieces.t_stages.reshape(-1)
    # Elements may begin or end with a clock that just stands still.
    rate = np.maximum(v.clock_rate[rows], FROZEN)
    series = {}
    for i, contact in enumerate(frozen.contacts):
        force = (v.normal_force[rows, :, i] / rate).reshape(-1)
        series[f"lambda_normal[{contact.name}]"] = Series(times, force, Role.NORMAL_FORCE)
        size = contact.friction_force.numel()
        for j in range(size):
            label = f"lambda_tangent[{contact.name}]" + (f"[{j}]" if size > 1 else "")
            series[label] = Series(times, (v.friction_force[i][rows, :, j] / rate).reshape(-1), Role.TANGENTIAL_FORCE)
    return series
