"""Starts of robots: contacts carry in turn, and drives and contact forces hold every posture of the motion.

A body without drives that has to be lifted or turned needs contacts which neither the initial state nor the goal shows.
Sets of such contacts are enumerated, few ones first. A set is taken if there is a posture near x0 in which it carries
what no longer rests where it rested: a few random postures decide, some milliseconds each. A path of postures then
leads from there to the goal. All postures of a path are one program: each is in balance within the cones of friction,
contacts that carry do not slip from one posture to the next, and the path is short, above all for what has no drive
(quasi-static manipulation: Mason 2001; Trinkle and Hunter 1991 plan with such contact formations). It begins at a
posture from which Newton's steps carry the body along with the contacts that hold it. The path with its controls and
its sequence, a `Proposal`, is the start of the multi-phase program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import casadi as ca
import numpy as np

from nosnoc_py.kernels import Kernel
from nosnoc_py.ocp import Constraint
from nosnoc_py.programs import BlockProgram, KernelBlock, LinearMap
from nosnoc_py.search.postures import Posture
from nosnoc_py.search.stances import Closed, Proposal, closed_at_ends, drawn_motion, sequence_of
from nosnoc_py.search.starts import StartTask
from nosnoc_py.search.steps import solved_loosely
from nosnoc_py.search.ways import velocity_of
from nosnoc_py.sequences.held_rows import positions_only
from nosnoc_py.systems.quaternions import unit_states

Array = np.ndarray
# Largest number of contacts beside those that are closed at both ends.
MOST_MORE = 3
# Random postures per set, their distance from x0 as a fraction of the typical sizes, and the fraction of it below which
# two of them are the same.
TRIES, ASIDE, SAME = 3, 0.3, 0.1
# Postures of a phase, and the limit of iterations of a program.
KNOTS, ITERATIONS = 4, 150
# Samples of the motion of a phase, and its least length as a fraction of the longest one.
SAMPLES, SHORTEST = 8, 0.2
# Ways of what has no drive cost this much more; controls and forces cost this much beside the ways.
UNDRIVEN, EFFORT = 10.0, 1e-3
# Largest residual of a path, relative to its rows: a start need not be exact.
LOOSE = 1e-3


@dataclass(frozen=True, eq=False, kw_only=True)
class QuasistaticPath:
    """Program of the postures of a motion whose phases have given sets of closed contacts.

    Attributes
    ----------
    task : StartTask
    sets : tuple of frozenset of str
        Closed contacts of the phases.
    """

    task: StartTask
    sets: tuple[Closed, ...]

    @cached_property
    def phases(self) -> list[Posture]:
        """Posture of every phase, with the path constraints that are functions of positions."""
        return [posture_of(self.task, closed) for closed in self.sets]

    @cached_property
    def at(self) -> list[Array]:
        """Positions of the unknowns of every phase (KNOTS, n)."""
        widths = [KNOTS * int(phase.unknowns.numel()) for phase in self.phases]
        firsts = np.cumsum([0, *widths[:-1]])
        return [first + np.arange(width).reshape(KNOTS, -1) for first, width in zip(firsts, widths, strict=True)]

    def _before(self, k: int) -> Array:
        """Return the positions of the coordinates before every posture of a phase; -1 for those of x0."""
        n_q = self.task.ocp.system.n_q
        first = self.at[k - 1][-1:, :n_q] if k else np.full((1, n_q), -1)
        return np.vstack([first, self.at[k][:-1, :n_q]])

    def _posture_block(self, k: int) -> KernelBlock:
        """Return the block of the postures of a phase; what closes next touches in the last one."""
        phase, s, rows = self.phases[k], self.task.ocp.system, self.phases[k].rows
        later = self.sets[min(k + 1, len(self.sets) - 1)]
        upper = np.tile([high for *_, high in rows], (KNOTS, 1))
        upper[-1, [c for c, contact in enumerate(s.contacts) if contact.name in later]] = 0.0
        expression = ca.vertcat(ca.SX(0, 1), *(row for _, row, *_ in rows))
        # Forces well inside of their cones: where all forces are zero, cones have no derivative.
        pressed = sum(((part[0] / size - 1.0) ** 2 for _, part, size in phase.forces), ca.SX(0))
        return KernelBlock(
            name=f"postures {k}",
            kernel=Kernel(ca.vertcat(phase.unknowns, s.p), expression, EFFORT * (phase.effort + pressed)),
            at=LinearMap.of((self.at[k],), (None, phase.p[None])),
            lower=np.tile([low for *_, low, _ in rows], (KNOTS, 1)),
            upper=upper,
        )

    def _link_block(self, k: int) -> KernelBlock:
        """Return the block of the ways between postures: they are short, and contacts that carry do not slip."""
        phase, s = self.phases[k], self.task.ocp.system
        before = ca.SX.sym("before", s.n_q)
        middle = 0.5 * (before + s.q)
        way = s.q - before
        if not s.moves_by_v:
            N = ca.substitute(s.rate_matrix, s.q, middle)
            way = ca.solve(N.T @ N, N.T @ way)
        slips = [s.slip(contact) for contact in s.contacts if contact.name in self.sets[k] and contact.frictional]
        rows = ca.substitute(ca.vertcat(ca.SX(0, 1), *slips), ca.vertcat(s.q, s.v), ca.vertcat(middle, way))
        weights = (1.0 + UNDRIVEN * self._undriven) / phase.ways**2
        cost = KNOTS * len(self.sets) * ca.sum1(ca.DM(weights) * way**2)
        index, fixed = self._before(k), self.task.x0[s.at_q]
        numbers = np.where(index < 0, fixed, 0.0)
        terms = np.where(index[:, :1] < 0, 0.0, 1.0)  # the first posture follows x0, which is no unknown
        return KernelBlock(
            name=f"ways {k}",
            kernel=Kernel(ca.vertcat(before, s.q, s.y, s.p), rows, cost),
            at=LinearMap.of(
                (np.maximum(index, 0)[:, None, :], terms, numbers),
                (self.at[k][:, : s.n_q],),
                (self.at[k][:, s.n_q : s.n_q + int(s.y.numel())],),
                (None, phase.p[None]),
            ),
            lower=0.0,
            upper=0.0,
        )

    @cached_property
    def _undriven(self) -> Array:
        """Share of every velocity that no drive moves (n_v,), in [0, 1]."""
        return np.clip(np.diag(self.task.undriven), 0.0, 1.0)

    def _end_block(self) -> KernelBlock:
        """Return the block of the goal: terminal constraints on positions, and the distance from the goal."""
        ocp, s = self.task.ocp, self.task.ocp.system
        fixed = ocp.with_values(float(ocp.horizon), ocp.p)
        expressions, limits = [ca.SX(0, 1)], [np.zeros((0, 2))]
        for one in fixed.terminal_constraints:
            row = ca.substitute(one.expression, s.x_initial, ca.DM(self.task.x0))
            keep = np.flatnonzero(positions_only(s, row))
            if keep.size:
                expressions.append(row[keep.tolist()])
                limits.append(np.column_stack([one.lower, one.upper])[keep])
        goal = self.task.x0 if self.task.goal is None else self.task.goal
        cost = ca.sumsqr((s.q - ca.DM(goal[s.at_q])) / ca.DM(self.phases[-1].scale[: s.n_q]))
        lower, upper = np.vstack(limits).T
        return KernelBlock(
            name="goal", kernel=Kernel(ca.vertcat(s.q, s.p), ca.vertcat(*expressions), cost),
            at=LinearMap.of((self.at[-1][-1:, : s.n_q],), (None, self.phases[-1].p[None])), lower=lower, upper=upper,
        )  # fmt: skip

    def proposal(self, first: Array) -> Proposal | None:
        """Return the path that begins near a posture (n_x,) in which the second set touches; None if there is none."""
        task, s = self.task, self.task.ocp.system
        blocks = [make(k) for k in range(len(self.sets)) for make in (self._posture_block, self._link_block)]
        low, high = (np.concatenate([np.tile(phase.bounds[side], KNOTS) for phase in self.phases]) for side in (0, 1))
        scale = np.concatenate([np.tile(phase.scale, KNOTS) for phase in self.phases])
        w = np.concatenate([np.tile(phase.w, KNOTS) for phase in self.phases])
        for k, index in enumerate(self.at):
            shares = (np.arange(KNOTS) + 1.0)[:, None] / KNOTS if k == 0 else np.ones((KNOTS, 1))
            way = task.x0[s.at_q] + shares * (first - task.x0)[s.at_q]
            w[index[:, : s.n_q]] = way
        nlp = BlockProgram([*blocks, self._end_block()], low, high, scale, np.clip(w, low, high))
        found, _ = solved_loosely(task, nlp, w, ITERATIONS)
        if not np.isfinite(found).all() or not nlp.residual(found) <= LOOSE:
            return None
        return self._read(found)

    def _read(self, w: Array) -> Proposal:
        """Return the motion through the postures of unknowns w, at rest where phases begin and end."""
        task, ocp, s = self.task, self.task.ocp, self.task.ocp.system
        q, first = np.vstack([task.x0[s.at_q], *(w[index[:, : s.n_q]] for index in self.at)]), s.n_q + int(s.y.numel())
        # Phases last as long as their paths, relative to the sizes, but not too short.
        steps = np.linalg.norm(np.diff(q, axis=0) / self.phases[0].scale[: s.n_q], axis=1)
        ways = steps.reshape(-1, KNOTS).sum(axis=1)
        lasts = np.maximum(ways, SHORTEST * (ways.max() or 1.0))
        edges = float(ocp.horizon) * np.concatenate([[0.0], np.cumsum(lasts / lasts.sum())])
        # Every phase begins and ends at rest: what touches does so without an impact.
        tau = np.arange(1, SAMPLES + 1) / SAMPLES
        eased, rate = tau**2 * (3.0 - 2.0 * tau), 6.0 * tau * (1.0 - tau)
        times, states, controls = [np.zeros(1)], [task.x0[None]], list[Array]()
        for k, index in enumerate(self.at):
            span, at = edges[k + 1] - edges[k], KNOTS * eased
            part, inside = q[KNOTS * k : KNOTS * (k + 1) + 1], np.minimum(at.astype(int), KNOTS - 1)
            change = np.diff(part, axis=0)[inside]
            x = np.tile(task.x0, (SAMPLES, 1))
            x[:, s.at_q] = part[inside] + (at - inside)[:, None] * change
            x = np.array([unit_states(row, s.unit_parts) for row in x])
            for row, moves in zip(x, change * (KNOTS * rate / span)[:, None], strict=True):
                row[s.at_v] = velocity_of(s, row, moves, np.asarray(ocp.p))
            times.append(edges[k] + span * tau)
            states.append(x)
            controls.append(w[index[:, first : first + s.n_u]][inside])
        grid, x, u = np.concatenate(times), np.vstack(states), np.clip(np.vstack(controls), task.lower, task.upper)
        if not s.autonomous:
            x[:, -1] = task.x0[-1] + grid
        motion = drawn_motion(task, grid, x, (grid, u), np.asarray(ocp.p))
        return Proposal(sequence=sequence_of(task, list(self.sets), edges[1:-1]), motion=motion)


def posture_of(task: StartTask, closed: Closed, touching: Closed = frozenset()) -> Posture:
    """Return the program of a posture that contacts hold, while others only touch."""
    ocp, s = task.ocp, task.ocp.system
    conditions = []
    for one in ocp.path_constraints:
        keep = np.flatnonzero(positions_only(s, one.expression))
        if keep.size:
            rows = one.expression[keep.tolist()]
            conditions.append(Constraint(rows, one.lower[keep], one.upper[keep], name=one.name or "path"))
    return Posture(
        ocp=ocp, start=task.x0, closed=tuple(sorted(closed)), p=np.asarray(ocp.p),
        conditions=tuple(conditions), touching=tuple(sorted(touching - closed)),
    )  # fmt: skip


def formations(first: Closed, last: Closed, names: list[str]) -> Iterator[tuple[Closed, tuple[Closed, ...]]]:
    """Yield the contacts that carry on the way, few ones first, with the closed contacts of all phases.

    Contacts close one after another: an instant at which two of them close is not kept by a simulation.

    Parameters
    ----------
    first, last : frozenset of str
        Contacts that are closed at the initial state and at the goal.
    names : list of str
        All contacts that can carry.

    Examples
    --------
    A box on the floor, two fingers, and a goal above:

    >>> floor = frozenset(["floor"])
    >>> found = dict(formations(floor, frozenset(), ["floor", "left", "right"]))
    >>> [sorted(closed) for closed in found[frozenset(["left", "right"])]]
    [['floor'], ['floor', 'left'], ['floor', 'left', 'right'], ['left', 'right']]
    """
    others = sorted(set(names) - first - last)
    for count in range(MOST_MORE + 1):
        for more in combinations(others, count):
            # What carries at both ends goes on, or all that carries at the initial state.
            for stays in dict.fromkeys((first & last, first)):
                carrying = stays | frozenset(more)
                closings = [first | frozenset(more[: k + 1]) for k in range(count)]
                phases = (first, *closings, carrying, last | carrying)
                yield carrying, tuple(one for k, one in enumerate(phases) if k == 0 or one != phases[k - 1])


def quasistatic(task: StartTask, rng: np.random.Generator) -> Iterator[Proposal | None]:
    """Yield paths of postures, from few contacts that carry to more."""
    s = task.ocp.system
    if not s.mechanical or not s.contacts or s.remembers or not task.rest.size or s.z.numel() or task.undefined:
        return
    ends = closed_at_ends(task)
    if ends is None:
        return
    first = ends[0]
    for carrying, sets in formations(*ends):
        yield None
        for posture in _first_postures(task, first | carrying, carrying, rng):
            yield QuasistaticPath(task=task, sets=sets).proposal(posture)


def _first_postures(task: StartTask, touching: Closed, closed: Closed, rng: np.random.Generator) -> Iterator[Array]:
    """Yield different postures near x0 in which contacts carry alone, while others touch."""
    s, found, posture = task.ocp.system, list[Array](), posture_of(task, closed, touching)
    program = posture.program()
    for k in range(TRIES):
        w = posture.w.copy()
        if k:
            w[: s.n_q] += ASIDE * rng.normal(size=s.n_q) * task.spans[s.at_q]
        reached, _ = solved_loosely(task, program, w, ITERATIONS)
        if not np.isfinite(reached).all() or not program.violation(reached)[0] <= LOOSE:
            continue
        x = posture.stance(reached).x0
        if not any(np.abs((x - other)[s.at_q] / task.spans[s.at_q]).max() < SAME * ASIDE for other in found):
            found.append(x)
            yield x
