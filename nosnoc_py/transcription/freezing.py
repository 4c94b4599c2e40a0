"""Initial guesses in numerical time from motions in physical time: the time-freezing of a trajectory.

Impacts become elements in which the clock stands still; contact forces become weights beta of the auxiliary motions.
While a contact presses, physical time passes more slowly than numerical time, so every control stage lasts longer in
numerical time, and its speed of time makes up for that.

Every control stage is cut into as many pieces as it has finite elements: at impacts first, then at other events as far
as elements are left, then at the middle of the longest pieces. Invariants: the lengths of the pieces of a stage add up
to its numerical length, the clock is continuous, and it advances by the physical length of the stage. Time-freezing:
Nurkanovic, Albrecht, Brogliato, Diehl (Automatica 2023).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING

import casadi as ca
import numpy as np

from nosnoc_py.discretization.guess import stage_estimates
from nosnoc_py.motion.crossing import root
from nosnoc_py.mpcc.layout import At, Block, ElementEnd
from nosnoc_py.reformulation.dcs import rows_of
from nosnoc_py.reformulation.time_freezing import Frozen
from nosnoc_py.roles import Role
from nosnoc_py.solution import Trajectory
from nosnoc_py.solution.interpolant import Side
from nosnoc_py.systems.cls import Contact

if TYPE_CHECKING:
    from nosnoc_py.transcription.numerical_time import FrozenTranscription

SIDES: tuple[Side, Side] = ("-", "+")
# Distance of samples from the ends of a piece, as a fraction of it: forces jump at its ends, so values there are those
# of the neighbour. Large beside rounding of times, small beside a piece.
INSIDE_PIECE = 1e-3
# Weights and gaps [m] up to this size are rounding errors of a simulation.
ROUNDING_OF_WEIGHTS = 1e-9
# Places (fractions of a piece) where forces are sampled for its numerical length; not its ends, where forces jump.
SAMPLES = np.linspace(0.05, 0.95, 7)


def frozen_guess(
    problem: FrozenTranscription,
    trajectory: Trajectory,
    horizon: float,
    p: np.ndarray,
    left: Container[tuple[str, At]] = (),
) -> np.ndarray:
    """Return w from a trajectory of the original system, whose start is that of the grid; blocks `left` keep w0."""
    mpcc, dcs, frozen, grid = problem.mpcc, problem.dcs, problem.frozen, problem.grid
    # Where every step function stands among all of them, and the algebraic variables of the frozen system, by name.
    roles = (Role.STEP_FUNCTION, Role.ALGEBRAIC)
    of_role = [rows_of(variable for variable in dcs.variables if variable.role is role) for role in roles]
    motion, columns = _Motion(frozen, trajectory, p), of_role[0] | of_role[1]
    w = mpcc.w0.copy()
    estimates = stage_estimates(dcs)
    known_control = len(trajectory.u) > 0 and trajectory.control_names == frozen.original.control_names
    edges = np.linspace(0.0, horizon, grid.control_stages + 1)
    stages: dict[int, list[_Piece]] = {}
    for block in mpcc.variables.blocks():
        if (block.name, block.at) in left:
            continue
        k, n = block.at.stage or 0, block.at.element or 0
        # Blocks come in the order of stages: the pieces of one are computed once, at its first block.
        if k not in stages:
            stages[k] = motion.stage(edges[k], edges[k + 1], grid.elements[k])
        pieces = stages[k]
        total = sum(piece.numerical for piece in pieces)
        if block.role is Role.CONTROL and known_control:
            w[block.rows] = trajectory.control(motion.clip(0.5 * (edges[k] + edges[k + 1])))
        elif block.role is Role.SPEED_OF_TIME:
            w[block.rows] = np.clip(total / (edges[k + 1] - edges[k]), mpcc.lbw[block.rows], mpcc.ubw[block.rows])
        elif block.role is Role.STEP:
            # Lengths of elements are relative to equal ones.
            w[block.rows] = pieces[n].numerical / total * len(pieces)
        elif block.at.stage is not None:
            share = _share(block, problem.tableau.c)
            y = pieces[n].state(share)
            if block.role is Role.STATE:
                w[block.rows] = y
            elif block.role is Role.STATE_DERIVATIVE:
                # Rates are at speed 1; the program's are multiplied by the speed of time.
                w[block.rows] = pieces[n].rate(share) * total / (edges[k + 1] - edges[k])
            elif block.name in estimates:
                w[block.rows] = np.asarray(estimates[block.name](y, p)).reshape(-1)
            elif block.name in columns:
                w[block.rows] = motion.algebraic(pieces[n], share, block.role)[columns[block.name]]
        elif block.role is Role.STATE:  # at the start of the horizon, without the clock
            w[block.rows] = pieces[0].state(0.0)[:-1]
    return w


def _share(block: Block, c: np.ndarray) -> float:
    """Return the place of a block in its element; a quantity with one value per element is placed in the middle."""
    if block.at.rk is not None:
        return float(c[block.at.rk])
    return 0.5 if block.edge is None else float(block.edge is ElementEnd.RIGHT)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Piece:
    """One element: motion from `start` to `end` [s], or (part of) a jump there; its numerical length at speed 1.

    `bend` (n_q,) is the parabola that positions follow below a surface from which the body bounces.
    """

    start: float
    end: float
    numerical: float
    x_start: np.ndarray
    x_end: np.ndarray
    trajectory: Trajectory
    offset: float
    hits: Mapping[str, float]
    at_v: slice
    bend: np.ndarray = field(default_factory=lambda: np.zeros(0))

    @property
    def jump(self) -> bool:
        """True if the clock does not run."""
        return bool(self.hits)

    def rate(self, share: float) -> np.ndarray:
        """Derivatives of (q, v, clock) by the numerical time, at speed 1."""
        # A difference quotient within the piece: dense output of a jump has no derivative.
        low, high = max(share - INSIDE_PIECE, 0.0), min(share + INSIDE_PIECE, 1.0)
        return np.asarray((self.state(high) - self.state(low)) / ((high - low) * self.numerical))

    def acceleration(self, share: float) -> np.ndarray:
        """dv / dtau (n_q,)."""
        return self.rate(share)[self.at_v]

    def time(self, share: float) -> float:
        """Physical time [s]."""
        return self.start + share * (self.end - self.start)

    def state(self, share: float) -> np.ndarray:
        """(q, v, clock)."""
        if self.jump or self.end == self.start:
            x = (1 - share) * self.x_start + share * self.x_end
            x[: self.bend.size] += share * (1 - share) * self.bend
            return np.append(x, self.start)
        if share in (0.0, 1.0):
            return np.append(self.x_end if share else self.x_start, self.time(share))
        return np.append(self.trajectory(self.offset + self.time(share)), self.time(share))


class _Motion:
    """A trajectory cut into pieces."""

    def __init__(self, frozen: Frozen, trajectory: Trajectory, p: np.ndarray) -> None:
        self.frozen, self.trajectory, self.p = frozen, trajectory, p
        self.names = [contact.name for contact in frozen.contacts]
        constants = [value for contact in frozen.contacts for value in (contact.strength, contact.half_period)]
        values = np.array(ca.Function("strengths", [frozen.original.p], [ca.vertcat(ca.SX(0, 1), *constants)])(p))
        self.strengths, self.half_periods = values.reshape(-1, 2).T
        self.frames = frozen.original.mechanics.frames_at(p)
        self.first, self.last = trajectory.t0, trajectory.t0 + trajectory.duration

    def clip(self, t: float) -> float:
        """Return the time of the trajectory [s] for a time of the grid, within its ends."""
        return min(max(t + self.first, self.first), self.last)

    def stage(self, start: float, end: float, elements: int) -> list[_Piece]:
        """Return the pieces of one control stage, as many as it has elements."""
        # Events at an edge belong to the stage that begins there, whatever rounding says.
        tiny = 1e-9 * (end - start)
        inside = [e for e in self.trajectory.events if start - tiny <= e.time - self.first < end - tiny]
        impacts: dict[float, dict[str, float]] = {}
        for event in inside:
            if event.kind == "impact":
                # Several contacts that are hit at one instant share one jump.
                impacts.setdefault(event.time - self.first, {})[event.name] = float(event.impulse or 0.0)
        others = sorted({e.time - self.first for e in inside} - set(impacts))
        # An impact inside needs an element itself and separates two others.
        room = elements - len(impacts) - sum(start + tiny < t for t in impacts) - 1
        cuts = sorted({start, end, *impacts, *[t for t in others if start + tiny < t][: max(room, 0)]})
        pieces: list[_Piece] = []
        for a, b in zip(cuts, [*cuts[1:], end], strict=True):
            if a in impacts:
                pieces += self._jumps(a, impacts[a])
            if b > a + tiny:
                pieces.append(self._run(a, b))
        return self._fitted(pieces, elements)

    def _fitted(self, pieces: list[_Piece], elements: int) -> list[_Piece]:
        """Halve the longest motions, or leave out the shortest pieces, until there is one per element."""
        pieces = list(pieces)
        while len(pieces) < elements:
            # A jump has no inside to be cut.
            k = int(np.argmax([0.0 if piece.jump else piece.numerical for piece in pieces]))
            middle = pieces[k].time(0.5)
            pieces[k : k + 1] = [self._run(pieces[k].start, middle), self._run(middle, pieces[k].end)]
        while len(pieces) > elements:
            # More impacts than elements: what is shortest in numerical time costs the guess least.
            pieces.pop(int(np.argmin([piece.numerical for piece in pieces])))
        return pieces

    def _jumps(self, time: float, hits: Mapping[str, float]) -> list[_Piece]:
        """Return the elements of a jump: one, or two where a contact bounces by a constant force each way."""
        x_start, x_end = (self.trajectory(self.clip(time), side) for side in SIDES)
        hit = [c for c, name in enumerate(self.names) if name in hits]
        whole = _Piece(
            start=time,
            end=time,
            # The auxiliary motion pushes with a_n, so an impulse takes impulse / a_n; an elastic one half a period.
            numerical=max(hits[self.names[c]] / self.strengths[c] + self.half_periods[c] for c in hit),
            x_start=x_start,
            x_end=x_end,
            trajectory=self.trajectory,
            offset=self.first,
            hits=hits,
            at_v=self.frozen.original.at_v,
        )
        bounces = [c for c in hit if self.frames.restitution[c] > 0.0]
        if not bounces:
            return [whole]
        e, n_q = self.frames.restitution[bounces[0]], self.frozen.original.n_q
        # A constant force each way makes two parabolas of lengths e : 1; a linear spring one half-wave.
        two = np.isfinite(self.strengths[bounces[0]])
        down = whole.numerical * (e / (1 + e) if two else 0.5)
        middle = x_start + (x_end - x_start) / (1 + e)  # n'v = 0
        # Half the way that the velocity lost makes on the way down.
        depth = 0.5 * down * (middle - x_start)[self.frozen.original.at_v]
        if not two:
            return [replace(whole, bend=-4.0 * depth)]
        middle[:n_q] -= depth
        first = replace(whole, numerical=down, x_end=middle, bend=-depth)
        return [first, replace(whole, numerical=whole.numerical - down, x_start=middle, bend=-depth)]

    def _run(self, start: float, end: float) -> _Piece:
        # dtau = dt / (dt/dtau): the mean of the reciprocal rates, not the reciprocal of their mean.
        rates = [self.weights(start + share * (end - start))[1] for share in SAMPLES]
        return _Piece(
            start=start,
            end=end,
            numerical=(end - start) * float(np.mean(1.0 / np.array(rates))),
            x_start=self.trajectory(self.clip(start), "+"),
            x_end=self.trajectory(self.clip(end), "-"),
            trajectory=self.trajectory,
            offset=self.first,
            hits={},
            at_v=self.frozen.original.at_v,
        )

    def force(self, label: str, t: float) -> float:
        """Return a contact force [N]; zero if the trajectory has no series of it."""
        series = self.trajectory.series.get(label)
        return 0.0 if series is None or not len(series) else float(np.interp(t + self.first, series.t, series.values))

    def weights(self, t: float) -> tuple[dict[str, float], float]:
        """Return weights beta of auxiliary motions, and dt/dtau = prod (1 - beta): lambda = a_n beta / (dt/dtau)."""
        contacts = self.frozen.contacts
        shares = np.array([max(0.0, self.force(f"lambda_normal[{c.name}]", t)) for c in contacts]) / self.strengths
        if not shares.any():
            return dict.fromkeys((c.name for c in contacts), 0.0), 1.0
        # r -> r - prod(1 - s r) rises from -1 to at least 0 in the bracket: one root, also for many contacts.
        rate = root(lambda r: float(r - np.prod(1.0 - shares * r)), 0.0, min(1.0, 1.0 / shares.max()))
        return {c.name: float(share * rate) for c, share in zip(contacts, shares, strict=True)}, rate

    def algebraic(self, piece: _Piece, share: float, role: Enum | None) -> np.ndarray:
        """Return all step functions (n_alpha,), or all weights, the rate of the clock and accelerations (n_z,)."""
        t = piece.time(min(max(share, INSIDE_PIECE), 1 - INSIDE_PIECE))
        weights = self.weights(t)[0]
        if piece.jump:
            # While the clock stands still exactly the auxiliary motions of the hit contacts act.
            weights = {name: float(name in piece.hits) for name in self.names}
        if role is Role.STEP_FUNCTION:
            return self._step_functions(piece, share, t, weights)
        rate = float(np.prod([1.0 - weight for weight in weights.values()]))
        values = {Role.AUXILIARY_WEIGHT: [*weights.values()], Role.CLOCK_RATE: [rate]}
        values[Role.ACCELERATION] = [*piece.acceleration(share)]
        return np.concatenate([values[lift] for lift in dict.fromkeys(self.frozen.lifts)])

    def _step_functions(self, piece: _Piece, share: float, t: float, weights: Mapping[str, float]) -> np.ndarray:
        # In a jump velocities vanish at its ends, and their signs are rounding.
        values = np.asarray(self._functions(piece.state(0.5 if piece.jump else share), self.p)).reshape(-1)
        steps = (values > 0).astype(float)
        for contact, frozen in zip(self.frozen.original.contacts, self.frozen.contacts, strict=True):
            weight, at = weights[contact.name], frozen.functions
            # What presses is closed, and what does not is open, whatever its gap rounds to.
            closed = weight > max(values[at[Role.GAP]], ROUNDING_OF_WEIGHTS)
            steps[at[Role.GAP]] = float(not closed)
            if closed and not contact.bounces:
                steps[at[Role.NORMAL_VELOCITY]] = 1.0 - weight
                if Role.TANGENTIAL_VELOCITY in at and not piece.jump:
                    row = at[Role.TANGENTIAL_VELOCITY]
                    steps[row] = self._stick(contact, t, steps[row])
        return steps

    def _stick(self, contact: Contact, t: float, otherwise: float) -> float:
        """Return the fraction alpha in [0, 1] of a planar friction force (1 - 2 alpha) mu lambda_n."""
        normal = self.force(f"lambda_normal[{contact.name}]", t)
        if normal <= 0:
            return otherwise
        mu = self.frames.friction[self.names.index(contact.name)]
        share = self.force(f"lambda_tangent[{contact.name}]", t) / (mu * normal)
        # Filippov's convex combination of the two ends of the cone that gives this force.
        return float(np.clip(0.5 * (1 - share), 0.0, 1.0))

    @cached_property
    def _functions(self) -> ca.Function:
        system = self.frozen.system
        return ca.Function("functions", [system.x, system.p], [system.functions])
