"""Nodes of a contact system: impacts, and the modes of the motion that follows.

1. Impact: impulses of all closed contacts by Newton's law of restitution and Coulomb friction (FESD-J, Eq. 11). The
complementarity problem is solved by enumeration of modes, and solutions that gain energy are refused.
2. Accelerations: the same problem for accelerations and forces of the contacts that stay closed. Its modes are the
regime of the next phase. If the next phase would be inadmissible at once, the problem is evaluated slightly later
(`_later`).
3. Projection of positions and velocities onto the constraints of the new regime, so that they do not drift.

Special cases: jamming friction (Painleve's paradox), gaps without a sign, touches without speed (grazing), contacts
that close softly (`soft_closing`) and infinitely many impacts (`accumulation`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from nosnoc_py.contact_problems.law import energy_gain, raises_energy
from nosnoc_py.contact_problems.modes import CLOSED, FREE, SLIP, SLIP_BACK, STICK
from nosnoc_py.contact_problems.problem import ContactProblem, acceleration_problem, impact_problem
from nosnoc_py.contact_problems.solver import ContactSolution, ContactSolver
from nosnoc_py.motion import kinds
from nosnoc_py.simulation.event_driven.accumulation import (
    SETTLED,
    accumulates,
    at_rest,
    has_no_free_rate,
    repeats_departure,
)
from nosnoc_py.simulation.event_driven.contact_flow import ContactFlow
from nosnoc_py.simulation.event_driven.guards import FORCE, GAP, SLACK, SLIP_SPEED, STIFFNESS
from nosnoc_py.simulation.event_driven.mechanics import ContactRegime, regime_of
from nosnoc_py.simulation.event_driven.records import ImpactRecord as ImpactRecord
from nosnoc_py.simulation.event_driven.records import Node as Node
from nosnoc_py.simulation.event_driven.records import Phase
from nosnoc_py.simulation.event_driven.soft_closing import SOFT_RATE, SoftClosing
from nosnoc_py.solution import Event
from nosnoc_py.status import Status
from nosnoc_py.systems.kinematics import Kinematics
from nosnoc_py.systems.unsigned import UNSIGNED, is_mirrored
from nosnoc_py.tolerances import CROSSED, IMPACT, RESTING, TOUCHING, TOUCHING_SOLVED

# A slip in space that is faster than this fraction of the typical speed when its direction has turned by a right
# angle has turned around and not stopped.
TURNING = 1e-6
# Contacts with a smaller share of the largest impulse are not named in messages about an impact.
IMPACT_SHARE = 1e-9
# Impacts of one instant that follow from each other: a chain of so many bodies, or a series down to rest.
MOST_IN_SEQUENCE = 200
# A gap such as |q|, q^2 or the distance of two points has no sign. It reaches zero with speed and turns, or its
# gradient falls below the fraction FLAT_GRADIENT of that one step before. BEHIND is the distance at which its sign is
# checked.
FLAT_GRADIENT = 1e-3
BEHIND = 1e-6
NO_GRADIENT = f"the gap has no gradient where it is zero; {UNSIGNED.partition('; ')[2]}"
JAMS = (
    ": its normal force pulls it into the surface; to go on slipping and to stop at once are both possible, or neither"
)
# Way to either side of an event, relative to the length of the problem, over which a gap may jump.
ENTERED = 1e-5
# Largest gap of a contact that closes, relative to the length of the problem.
LARGEST_PROJECTION = 1e-3
# If two modes are admissible at an event, accelerations are compared this far later, in steps of the integrator.
AHEAD = tuple(10.0**k for k in range(-7, -1))


class ContactNodes:
    """Solver of the contact problems at events under one control law."""

    def __init__(self, flow: ContactFlow, solver: ContactSolver) -> None:
        self.flow, self.solver = flow, solver
        self.frames = flow.frames
        self.names = self.frames.names

    def cross(
        self,
        t: float,
        x: np.ndarray,
        before: ContactRegime | None,
        ended: Phase | None,
        drift: float = RESTING,
        past: Sequence[Node] = (),
    ) -> Node:
        """Return the node at time t and state x after a phase in the regime `before`.

        Parameters
        ----------
        ended : Phase or None
            The phase, if a crossing ended it.
        drift : float
            Gap rates of contacts that were closed before count as zero up to this fraction of the typical speed.
        past : sequence of Node
            Earlier nodes under the same constant control.
        """
        trigger = None if ended is None or ended.crossing is None else ended.crossing.guard
        kind, contact = (None, -1) if trigger is None else divmod(trigger, self.frames.count)
        at = self.flow.kinematics(t, x)
        held = np.zeros(self.frames.count, bool) if before is None else np.array(before.modes, dtype=int) != FREE
        gone = np.zeros(held.size, bool)
        if kind is not None:
            x, at, gone = self._behind(t, x, at, held)
            held = held & ~gone
        # A gap that opens from below zero is one of other sides: it has no range there, or begins it.
        behind = (at.gaps < -at.short(TOUCHING)) & (at.rates[: held.size] > at.slow(SETTLED)) & (before is not None)
        # A contact that was closed stays in the analysis even if its gap has drifted above the tolerance.
        closed = (at.gaps <= at.short(TOUCHING)) & ~(behind | gone) | held
        slow = at.slow(np.where(held, drift, RESTING))
        if kind == GAP:
            # The gap of the event is zero by definition; its rounding may exceed the tolerance of touching.
            closed[contact] = not (gone[contact] or self._passes(t, x, at, contact))
            # Nor can it open: what is left of its rate after a flight that rounding hides counts as rest.
            if at.rates[contact] > 0.0:
                slow[contact] = max(slow[contact], at.slow(SETTLED)[contact])
            if ended is not None and isinstance(ended.crossing, SoftClosing):
                slow[contact] = at.slow(SOFT_RATE)[contact]  # closed without impact, see `soft_closing`
        node = Node(t=t, before=x, after=x, trigger=trigger)
        if kind == GAP and not np.isfinite(at.jacobian[contact]).all():
            return replace(node, status=Status.NUMERICAL_ERROR, message=self._message(node, contact, NO_GRADIENT))
        if not np.isfinite(
            np.concatenate([part.reshape(-1) for part in (at.gaps, at.jacobian, at.mass, at.force)])
        ).all():
            return replace(
                node, status=Status.NUMERICAL_ERROR, message="forces, gaps or their directions are not finite"
            )
        if not np.isfinite(at.inverse).all():
            return replace(node, status=Status.NUMERICAL_ERROR, message="the mass matrix is singular")
        if kind == STIFFNESS and closed[contact]:
            return self._stopped(node, Status.PAINLEVE, [contact], JAMS)
        if kind == GAP and closed[contact] and self._is_mirrored(x, at, contact):
            return replace(node, status=Status.GRAZING, message=self._message(node, contact, UNSIGNED))
        if (closed & (at.rates[: self.frames.count] < -slow)).any():
            node = self._impact(node, at, np.flatnonzero(closed))
            if node.status is not Status.SOLVED:
                return node
        # After an impact a sequence may end earlier (SETTLED); a touch without impact only below the speed of an
        # impact, as flights that short are below the rounding of the gap and no better limit follows.
        left = SETTLED if node.impact is not None else IMPACT
        if kind == GAP and accumulates(self.flow, past, at, contact, left):
            limit = self._rest_after_accumulation(node, before, ended, closed, slow, left)
            if limit is not None:
                return limit
        node = self._next(node, before, ended, closed, slow)
        if node.grazing and self._is_structural(node, past, contact):
            return replace(node, grazing="", message="")
        return node

    def _behind(
        self, t: float, x: np.ndarray, at: Kinematics, held: np.ndarray
    ) -> tuple[np.ndarray, Kinematics, np.ndarray]:
        """Return the state behind a jump of gaps at an event, and which gaps (n_c,) that touch are not zero soon.

        Gaps jump where the range of a face or an edge ends or begins. The state of the event may be on either side: a
        way that is rounding leads behind it. What jumps up within a way that counts as touching does not touch.
        """
        behind, ahead = self._moved(at, x, CROSSED), self.flow.kinematics(t, self._moved(at, x, TOUCHING))
        near, far = self.flow.mechanics.gaps_at(behind, self.flow.p), ahead.gaps
        # A gap such as q^2 has no gradient where it is zero.
        short = np.maximum(at.short(TOUCHING_SOLVED), ahead.short(TOUCHING_SOLVED))
        touches = at.gaps <= at.short(TOUCHING)
        gone = (touches | held) & (far > short)
        if ((at.gaps > short) == (near > short)).all():
            return x, at, gone
        return behind, self.flow.kinematics(t, behind), gone

    def _passes(self, t: float, x: np.ndarray, at: Kinematics, contact: int) -> bool:
        """Return True if a gap that became zero is none behind its jump, or opens next to a jump."""
        gap, rate, short = at.gaps[contact], at.rates[contact], at.short(TOUCHING_SOLVED)[contact]
        # A range begins at rest where a body lies flat: there only its end tells.
        ways = [way for way, slow in ((ENTERED, RESTING), (-ENTERED, SETTLED)) if rate > at.slow(slow)[contact]]
        around = [self.flow.kinematics(t, self._moved(at, x, way)) for way in ways]
        steepest = max(each.short(2.0 * ENTERED)[contact] for each in (at, *around))
        return bool(gap > short or any(each.gaps[contact] > gap + steepest + short for each in around))

    def _moved(self, at: Kinematics, x: np.ndarray, way: float) -> np.ndarray:
        """Return the state where the fastest coordinate is that much further, relative to the length of the problem."""
        fastest, scales = float(np.abs(at.position_rate).max(initial=0.0)), self.flow.scales
        moved = np.array(x)
        if fastest > RESTING * scales.speed:
            moved[self.flow.mechanics.system.at_q] += way * scales.length / fastest * at.position_rate
        return moved

    def _rest_after_accumulation(
        self,
        node: Node,
        before: ContactRegime | None,
        ended: Phase | None,
        closed: np.ndarray,
        slow: np.ndarray,
        left: float,
    ) -> Node | None:
        """Return the node with all contacts of a cycle of impacts at rest; None if forces do not hold them."""
        at = self.flow.kinematics(node.t, node.after)
        modes = at_rest(self.frames, at, closed, left)
        still = regime_of(self.frames, modes, np.zeros(self.frames.n_t), at)
        resting = replace(node, after=self.flow.project(still, node.t, node.after), accumulation=True)
        resting = self._next(resting, before, ended, closed, slow)
        return (
            resting if resting.regime is not None and FREE not in np.array(resting.regime.modes)[still.closed] else None
        )

    def _is_structural(self, node: Node, past: Sequence[Node], contact: int) -> bool:
        """Return True if a touch without speed follows from the modes: no change of the data makes it an impact."""
        at = self.flow.kinematics(node.t, node.after)
        return has_no_free_rate(at, node.regime, contact) or repeats_departure(
            self.flow, past, node.regime, node.t, node.after, contact
        )

    def _is_mirrored(self, x: np.ndarray, at: Kinematics, contact: int) -> bool:
        """Return True if a gap is also positive behind its contact (a little further, where its impulses push from)."""
        short = float(at.short(BEHIND)[contact])
        # Impulses, unlike gradients, move a system along its bilateral constraints.
        with np.errstate(all="ignore"):
            way = at.response[:, contact] * (short / at.delassus[contact, contact])
        # A mirrored gap is shorter than twice the way at the steepest gap.
        far = 2.0 * BEHIND * self.flow.scales.length
        return is_mirrored(self.flow.mechanics.system, x, way, self.flow.p, contact, short, far)

    def _impact(self, node: Node, at: Kinematics, closed: np.ndarray) -> Node:
        """Return the node after all impacts of an instant, or with the status that ends the motion."""
        if self.flow.mechanics.system.simultaneous_impacts == "at once":
            return self._impact_at_once(node, at, closed)
        every = list[ImpactRecord]()
        for slow, hit_together in [(IMPACT, False)] * MOST_IN_SEQUENCE + [(RESTING, True)]:
            at = self.flow.kinematics(node.t, node.after)
            approach = at.rates[: self.frames.count][closed] < -at.slow(slow)[closed]
            if not approach.any():
                continue
            # What is too slow for an impact, or is left after many of them, comes to rest together.
            node = self._impact_at_once(node, at, closed if hit_together else closed[approach])
            if node.impact is None or node.status is not Status.SOLVED:
                return node
            every.append(node.impact)
        return replace(
            node,
            impact=ImpactRecord(
                modes=every[-1].modes,
                impulses=np.sum([impact.impulses for impact in every], axis=0),
                rebounding=np.any([impact.rebounding for impact in every], axis=0),
                energy_gain=sum(impact.energy_gain for impact in every),
                bounce=every[0].bounce,
                is_unique=lambda: all(impact.unique for impact in every),
                sequence=len(every) > 1,
            ),
        )

    def _impact_at_once(self, node: Node, at: Kinematics, closed: np.ndarray) -> Node:
        """Return the node with impulses and velocities after an impact, or with the status that ends the motion."""
        frames, n_c = self.frames, self.frames.count
        rest = self.flow.rest_velocity
        problem = impact_problem(frames, at, [int(c) for c in closed], rest)
        # For one contact try its few modes directly; for several start with projected sweeps as the finite elements do.
        first = [] if len(closed) > 1 else [_only(closed[0], mode, n_c) for mode in (STICK, SLIP, SLIP_BACK)]
        solution = self.solver.solve(problem, first)
        if solution is None:
            return self._stopped(node, Status.NO_ADMISSIBLE_IMPACT, closed)
        jump = at.response @ solution.forces
        rates = at.rates_of(at.velocity + jump)
        if raises_energy(solution.forces, at.rates, rates):
            impacted = solution.forces[closed] > IMPACT_SHARE * np.abs(solution.forces).max()
            return self._stopped(node, Status.ENERGY_GAIN, closed[impacted])
        after = np.array(node.after)
        after[self.flow.mechanics.system.at_v] += jump
        # An infinite sequence ends when no contact rebounds; `bounce` is the speed that tells.
        rebounding, fast = problem.offset[:n_c] < at.rates[:n_c], at.slow(1.0)
        impact = ImpactRecord(
            modes=solution.modes,
            impulses=solution.forces,
            rebounding=at.rates[:n_c] < -np.broadcast_to(at.slowest(rest), n_c),
            energy_gain=float(energy_gain(solution.forces, at.rates - at.drift, rates - at.drift)),
            bounce=max((-float(at.rates[c] / fast[c]) for c in closed if rebounding[c]), default=np.inf),
            is_unique=partial(self.solver.is_unique, problem),
        )
        return replace(node, after=after, impact=impact, counted=True)

    def _next(
        self, node: Node, before: ContactRegime | None, ended: Phase | None, closed: np.ndarray, slow: np.ndarray
    ) -> Node:
        """Return the node with the modes of the motion after it, and the state on their constraints."""
        n_c = self.frames.count
        at = self.flow.kinematics(node.t, node.after)
        # Contacts that separate after the impact carry no force.
        active = np.flatnonzero(closed & (at.rates[:n_c] <= slow))
        problem = self._accelerations(at, active, ended)
        solution = self._solve(node, problem, before, ended)
        if solution is None:
            return self._stopped(node, Status.PAINLEVE, active, ": no contact forces are admissible")
        regime = self._regime(problem, solution, at, ended)
        if before is not None and ended is not None and solution.modes == before.modes and node.impact is None:
            regime = replace(regime, choosing=regime.redundant and not regime.lasts)
        jammed = regime.jammed(at)
        if jammed:  # where a stick ends, friction that jams is no way on, but the contact may open
            solution = self.solver.solve(
                problem, [tuple(FREE if c in jammed else m for c, m in enumerate(solution.modes))]
            )
            regime = regime if solution is None else self._regime(problem, solution, at, ended)
            if regime.jammed(at):
                return self._stopped(node, Status.PAINLEVE, jammed, JAMS)
        distant = regime.closed[np.abs(at.gaps[regime.closed]) > at.short(LARGEST_PROJECTION)[regime.closed]]
        if distant.size and before is not None:
            return self._stopped(node, Status.NUMERICAL_ERROR, distant, ": the contact closes, but its gap is not zero")
        still = self._at_rest(regime, problem, node, at)
        after = self.flow.project(regime, node.t, still)
        # Putting one gap to zero must not leave another touching gap below zero: project both then.
        gaps = self.flow.kinematics(node.t, after).gaps
        below = np.flatnonzero(closed & (gaps < -at.short(CROSSED)))
        after = self.flow.project(regime, node.t, still, below) if below.size else after
        events = self._events(node, regime, before, at)
        grazing = self._grazes(node, regime, before, closed)
        unsigned = grazing and self._is_unsigned(node, at, ended)
        message = self._message(node, self.names.index(grazing), UNSIGNED) if unsigned else node.message
        return replace(node, after=after, regime=regime, events=events, grazing=grazing, message=message)

    def _regime(
        self, problem: ContactProblem, solution: ContactSolution, at: Kinematics, ended: Phase | None
    ) -> ContactRegime:
        """Return the regime of a solution."""
        return regime_of(self.frames, solution.modes, self._direction(problem, solution, ended), at, solution.forces)

    def _at_rest(self, regime: ContactRegime, problem: ContactProblem, node: Node, at: Kinematics) -> np.ndarray:
        """Return the state without slips that count as rest and that the acceleration reverses."""
        modes, slips = list(regime.modes), at.rates[self.frames.count :]
        for c in regime.slipping:
            part = self.frames.tangents[c]
            # The velocity of such a slip is rounding; integrated, it would reach zero at once and end the slip again.
            if not problem.held[c] and slips[part] @ regime.direction[part] < 0.0:
                modes[c] = STICK
        if tuple(modes) == regime.modes:
            return node.after
        return self.flow.project(regime_of(self.frames, tuple(modes), regime.direction, at), node.t, node.after)

    def _accelerations(self, at: Kinematics, active: np.ndarray, ended: Phase | None) -> ContactProblem:
        """Return the acceleration problem of the active contacts."""
        resting, speed = np.full(self.frames.count, RESTING * at.scales.speed), at.scales.speed
        if ended is not None and ended.crossing is not None:
            kind, contact = divmod(ended.crossing.guard, self.frames.count)
            if kind == SLIP_SPEED:
                # In the plane the end of a slip is exact, whatever rounding leaves of its speed. In space a slip that
                # is still faster than TURNING has turned around.
                resting[contact] = np.inf if self.frames.width(contact) == 1 else TURNING * speed
        return acceleration_problem(self.frames, at, [int(c) for c in active], resting)

    def _solve(
        self, node: Node, problem: ContactProblem, before: ContactRegime | None, ended: Phase | None
    ) -> ContactSolution | None:
        """Return the modes after the node; if several are admissible, those of the motion slightly later."""
        usual = tuple(_usual(before, problem, c) for c in range(self.frames.count))
        if ended is None or ended.crossing is None or node.impact is not None:
            return self.solver.solve(problem, [usual])
        # At the event itself two sets of modes are admissible up to rounding; the state beyond it tells which one
        # lasts.
        if ended.ahead is not None:
            return self._at(ended.crossing.high, ended.ahead, problem, usual)
        assert before is not None
        kind, contact = divmod(ended.crossing.guard, self.frames.count)
        if kind in (FORCE, SLACK) and before.redundant:
            # Known forces have come to an end, the modes only if there are no others. Then the contact of the guard
            # need not be the one that changes.
            other = None if before.choosing else self._other_forces(node, problem, before, contact)
            return self._later(node, problem, before, ended.length) if other is None else other
        found = self.solver.solve(problem, [self._flipped(usual, kind, contact, node, before), usual])
        if kind in (FORCE, SLACK) and found is not None and found.modes == usual:
            # The forces jump, where a face ends in an edge: the modes are those beyond.
            return self._later(node, problem, before, ended.length) or found
        return found

    def _flipped(
        self, modes: tuple[int, ...], kind: int, contact: int, node: Node, before: ContactRegime
    ) -> tuple[int, ...]:
        """Return modes in which the contact whose guard became zero has its other mode."""
        width = self.frames.width(contact)
        if kind == FORCE:
            new = FREE
        elif kind == SLACK:
            # Of the state, and not of the last step: a phase may end where it begins.
            force = before.forces(self.flow.kinematics(node.t, node.after))[0][self.frames.count :]
            force = force[self.frames.tangents[contact]]
            # Slip starts against the friction force that has reached its bound.
            new = SLIP_BACK if width == 1 and force[0] > 0 else SLIP
        else:
            new = STICK if width else CLOSED
        return (*modes[:contact], new, *modes[contact + 1 :])

    def _other_forces(
        self, node: Node, problem: ContactProblem, before: ContactRegime, contact: int
    ) -> ContactSolution | None:
        """Return a solution in the modes before in which the contact of an event is away from it; None without one."""
        at = self.flow.kinematics(node.t, node.after)
        forces = before.other_forces(at, before.forces(at)[0], contact)
        if forces is None:
            return None
        found = self.solver.in_modes(problem, before.modes, forces)
        return found if found.modes == before.modes and self.solver.admissible(problem, found) else None

    def _later(
        self, node: Node, problem: ContactProblem, before: ContactRegime, length: float
    ) -> ContactSolution | None:
        """Follow the old modes slightly beyond the event, until they are no longer admissible."""
        rate = self.flow.rhs(before, node.t, node.after)
        for share in AHEAD:
            # Euler steps with the old modes, up to a hundredth of an integrator step: the first change of modes counts.
            solution = self._at(node.t + share * length, node.after + share * length * rate, problem, before.modes)
            if solution is not None and solution.modes != before.modes:
                return solution
        return self.solver.solve(problem, [before.modes])

    def _at(self, t: float, x: np.ndarray, problem: ContactProblem, hint: tuple[int, ...]) -> ContactSolution | None:
        """Return the modes of the same contacts at another state."""
        at = self.flow.kinematics(t, x)
        return self.solver.solve(replace(problem, delassus=at.delassus, offset=at.free), [hint])

    def _direction(self, problem: ContactProblem, solution: ContactSolution, ended: Phase | None) -> np.ndarray:
        """Return the directions of slip (n_tt,): those of the velocities, or of the accelerations for a slip that
        begins.

        If a stick ends at its cone, that acceleration is zero and its direction rounding: slip then begins against the
        friction force that has reached the cone.
        """
        direction, n_c = problem.direction.copy(), self.frames.count
        gives_way = -1
        if ended is not None and ended.crossing is not None and ended.crossing.guard // n_c == SLACK:
            gives_way = ended.crossing.guard % n_c
        for c, part in enumerate(self.frames.tangents):
            if solution.modes[c] in (SLIP, SLIP_BACK) and not problem.held[c]:
                sign = 1.0 if solution.modes[c] == SLIP else -1.0
                begins = solution.unknowns[n_c:][part]
                if c == gives_way and ended is not None and ended.steps and self.frames.width(c) == 2:
                    begins = -ended.steps[-1].forces[-1][n_c:][part]
                direction[part] = sign if self.frames.width(c) == 1 else begins / np.linalg.norm(begins)
        return direction

    def _events(
        self, node: Node, regime: ContactRegime, before: ContactRegime | None, right: Kinematics
    ) -> tuple[Event, ...]:
        """Return impacts, then contacts made and lost, then changes of slip and stick."""
        if node.impact is None and (before is None or (before.modes == regime.modes and not regime.slipping)):
            return ()
        frames, t, left = self.frames, node.t, self.flow.kinematics(node.t, node.before)
        old = (FREE,) * frames.count if before is None else before.modes
        impacts, least = [], left.slow(IMPACT)
        for c, name in enumerate(self.names):
            impact, v = node.impact, left.rates[c]
            if impact is None or old[c] != FREE or not v < -least[c]:
                continue
            # The velocity that the impulse itself causes: contacts that are only carried along by others are not
            # reported.
            if left.delassus[c, c] * impact.impulses[c] > least[c]:
                impacts.append(Event(t, name, "impact", impact.impulses[c], v, right.rates[c], impact.energy_gain))
        if before is None:
            return tuple(impacts)
        changes = []
        for c, name in enumerate(self.names):
            modes = old[c], regime.modes[c]
            slips = [mode in (SLIP, SLIP_BACK) for mode in modes]
            turns = all(slips) and before.slip_direction(c, left.rates) @ regime.direction[frames.tangents[c]] < 0
            changes.append((name, kinds.of_modes([mode != FREE for mode in modes], slips, turns)))
        # Events of contact and release are listed before slip and stick.
        changes.sort(key=lambda change: change[1] not in ("contact", "release"))
        return (*impacts, *kinds.events_at(t, changes))

    def _is_unsigned(self, node: Node, at: Kinematics, ended: Phase | None) -> bool:
        """Return True if a gap that touches and opens has no sign: it arrives with speed, or its gradient vanishes."""
        if ended is None or not ended.steps or node.trigger is None:
            return False
        step, c = ended.steps[-1], node.trigger
        earlier = self.flow.kinematics(float(step.t[0]), step.x[0])
        # Written with `not` so that a steepness of NaN also counts as flat.
        flat = not at.steepness[c] > FLAT_GRADIENT * earlier.steepness[c]
        # What is left of a rate by rounding is none.
        return flat or bool(abs(at.rates[c]) > max(FLAT_GRADIENT * np.abs(step.rates[:, c]).max(), at.slow(IMPACT)[c]))

    def _message(self, node: Node, contact: int, message: str) -> str:
        """Return a message about a contact, with the place and the time."""
        return f"at {self.names[contact]}, t = {node.t:.6g} s: {message}"

    def _grazes(self, node: Node, regime: ContactRegime, before: ContactRegime | None, closed: np.ndarray) -> str:
        """Return the name of the contact that was touched without speed and is open again, or ""."""
        if node.trigger is None or node.trigger >= self.frames.count or before is None or node.impact is not None:
            return ""
        return self.names[node.trigger] if closed[node.trigger] and regime.modes[node.trigger] == FREE else ""

    def _stopped(self, node: Node, status: Status, contacts: Sequence[int] | np.ndarray, because: str = "") -> Node:
        """Return the node with a status that ends the motion, and the contacts concerned."""
        return replace(node, status=status, message=f"at {', '.join(self.names[int(c)] for c in contacts)}{because}")


def _only(contact: int, mode: int, count: int) -> tuple[int, ...]:
    """Return modes with one closed contact."""
    return tuple(mode if c == contact else FREE for c in range(count))


def _usual(before: ContactRegime | None, problem: ContactProblem, contact: int) -> int:
    """Return the mode to try first: as before; contacts that come to rest together stick together."""
    if contact not in problem.active:
        return FREE
    stays = (
        before is not None
        and before.modes[contact] != FREE
        and (problem.held[contact] or contact not in before.slipping)
    )
    return before.modes[contact] if before is not None and stays else STICK
