"""What happens at an event: impacts, and the modes of the motion that follows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from nosnoc_py.contact_problems.law import energy_gain, raises_energy
from nosnoc_py.contact_problems.modes import CLOSED, FREE, SLIP, SLIP_BACK, STICK
from nosnoc_py.contact_problems.problem import ContactProblem, acceleration_problem, impact_problem
from nosnoc_py.contact_problems.solver import ContactSolution, ContactSolver
from nosnoc_py.motion import kinds
from nosnoc_py.simulation.event_driven.accumulation import SETTLED, accumulates, at_rest, is_bound, recurs
from nosnoc_py.simulation.event_driven.contact_flow import ContactFlow
from nosnoc_py.simulation.event_driven.guards import FORCE, GAP, SLACK, SLIP_SPEED, STIFFNESS
from nosnoc_py.simulation.event_driven.mechanics import ContactRegime, regime_of
from nosnoc_py.simulation.event_driven.phase import Phase
from nosnoc_py.simulation.event_driven.records import ImpactRecord as ImpactRecord
from nosnoc_py.simulation.event_driven.records import Node as Node
from nosnoc_py.simulation.event_driven.soft_closing import SOFT_RATE, SoftClosing
from nosnoc_py.solution import Event
from nosnoc_py.status import Status
from nosnoc_py.systems.kinematics import Kinematics
from nosnoc_py.systems.unsigned import UNSIGNED, is_mirrored
from nosnoc_py.tolerances import CROSSED, IMPACT, RESTING, TOUCHING

# A slip in space that is faster than this share of the speed at work when its direction has turned by a right angle has
# not ended.
TURNING = 1e-6
# Contacts whose impulse is a smaller share of the largest one have no part in an impact.
STRUCK = 1e-9
# A gap like |q|, q^2 or the distance of two points has no sign: it comes with speed and turns, or its gradient falls
# below this share of what it was a step before.
FLAT = 1e-3
BEHIND = 1e-6
JAMS = (
    ": its normal force pulls it into the surface; to go on slipping and to stop at once are both possible, or neither"
)
# Where two modes are admissible at an event, the accelerations are looked at so far ahead, in steps of the integrator.
AHEAD = tuple(10.0**k for k in range(-7, -1))


class ContactNodes:
    """Solves the contact problems at events under one control law."""

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
        """The node at time t and state x after a phase in the regime `before`.

        Parameters
        ----------
        ended : Phase or None
            The phase that was ended by a crossing.
        drift : float
            Gap rates of contacts closed before that are zero all the same, as a share of the speed at work.
        past : sequence of Node
            The nodes before this one, under the same constant control.
        """
        trigger = None if ended is None or ended.crossing is None else ended.crossing.guard
        kind, contact = (None, -1) if trigger is None else divmod(trigger, self.frames.count)
        look = self.flow.look(t, x)
        held = np.zeros(self.frames.count, bool) if before is None else np.array(before.modes, dtype=int) != FREE
        closed = (look.gaps <= look.short(TOUCHING)) | held
        slow = look.slow(np.where(held, drift, RESTING))
        if kind == GAP:
            closed[contact] = True
            if ended is not None and isinstance(ended.crossing, SoftClosing):
                slow[contact] = look.slow(SOFT_RATE)[contact]  # closed without impact, see `soft_closing`
        made = Node(t=t, before=x, after=x, trigger=trigger)
        if not all(np.isfinite(part).all() for part in (look.gaps, look.jacobian, look.mass, look.force)):
            return replace(
                made, status=Status.NUMERICAL_ERROR, message="forces, gaps or their directions are not finite"
            )
        if not np.isfinite(look.inverse).all():
            return replace(made, status=Status.NUMERICAL_ERROR, message="the mass matrix is singular")
        if kind == STIFFNESS:
            return self._stopped(made, Status.PAINLEVE, [contact], JAMS)
        if kind == GAP and self._is_mirrored(x, look, contact):
            return replace(made, status=Status.GRAZING, message=f"at {self.names[contact]}: {UNSIGNED}")
        if (closed & (look.rates[: self.frames.count] < -slow)).any():
            made = self._impact(made, look, np.flatnonzero(closed))
            if made.status is not Status.SOLVED:
                return made
        # Where flights get lost in the rounding of the gap, it touches and there is no impact: no better limit follows.
        left = SETTLED if made.impact is not None else IMPACT
        if kind == GAP and accumulates(self.flow, past, look, contact, left):
            settled = self._settled(made, before, ended, closed, slow, left)
            if settled is not None:
                return settled
        made = self._next(made, before, ended, closed, slow)
        if made.grazing and self._is_structural(made, past, contact):
            return replace(made, grazing="", message="")
        return made

    def _settled(
        self,
        node: Node,
        before: ContactRegime | None,
        ended: Phase | None,
        closed: np.ndarray,
        slow: np.ndarray,
        left: float,
    ) -> Node | None:
        """The node with all contacts of a cycle of impacts at rest; None where forces do not hold them."""
        look = self.flow.look(node.t, node.after)
        modes = at_rest(self.frames, look, closed, left)
        still = regime_of(self.frames, modes, np.zeros(self.frames.n_t), look)
        made = replace(node, after=self.flow.project(still, node.t, node.after), accumulation=True)
        made = self._next(made, before, ended, closed, slow)
        return made if made.regime is not None and FREE not in np.array(made.regime.modes)[still.closed] else None

    def _is_structural(self, node: Node, past: Sequence[Node], contact: int) -> bool:
        """Whether a touch without speed follows from the modes, so that no change of the data makes an impact of it."""
        look = self.flow.look(node.t, node.after)
        return is_bound(look, node.regime, contact) or recurs(self.flow, past, node.regime, node.t, node.after, contact)

    def _is_mirrored(self, x: np.ndarray, look: Kinematics, contact: int) -> bool:
        """Whether a gap is positive behind its contact, too: along its gradient, a little further than it touches."""
        short = float(look.short(BEHIND)[contact])
        return is_mirrored(self.flow.mechanics.system, x, look.jacobian[contact], self.flow.p, contact, short)

    def _impact(self, node: Node, look: Kinematics, closed: np.ndarray) -> Node:
        frames, n_c = self.frames, self.frames.count
        rest = self.flow.rest_velocity
        problem = impact_problem(frames, look, [int(c) for c in closed], rest)
        # Where one contact is hit alone its modes are few; several are left to the sweeps, as in the finite elements.
        first = [] if len(closed) > 1 else [_only(closed[0], mode, n_c) for mode in (STICK, SLIP, SLIP_BACK)]
        found = self.solver.solve(problem, first)
        if found is None:
            return self._stopped(node, Status.NO_ADMISSIBLE_IMPACT, closed)
        jump = look.response @ found.forces
        rates = look.rates_of(look.velocity + jump)
        if raises_energy(found.forces, look.rates, rates):
            struck = found.forces[closed] > STRUCK * np.abs(found.forces).max()
            return self._stopped(node, Status.ENERGY_GAIN, closed[struck])
        after = np.array(node.before)
        after[self.flow.mechanics.system.at_v] += jump
        # Without impacts of contacts that are thrown back a sequence of impacts ends.
        thrown, fast = problem.offset[:n_c] < look.rates[:n_c], look.slow(1.0)
        impact = ImpactRecord(
            modes=found.modes,
            impulses=found.forces,
            thrown=look.rates[:n_c] < -np.broadcast_to(look.slowest(rest), n_c),
            energy_gain=float(energy_gain(found.forces, look.rates - look.drift, rates - look.drift)),
            bounce=max((-float(look.rates[c] / fast[c]) for c in closed if thrown[c]), default=np.inf),
            unique=self.solver.is_unique(problem),
        )
        return replace(node, after=after, impact=impact, counted=True)

    def _next(
        self, node: Node, before: ContactRegime | None, ended: Phase | None, closed: np.ndarray, slow: np.ndarray
    ) -> Node:
        """The modes of the motion after the node, and the state on their constraints."""
        n_c = self.frames.count
        look = self.flow.look(node.t, node.after)
        active = np.flatnonzero(closed & (look.rates[:n_c] <= slow))
        problem = self._accelerations(look, active, ended)
        found = self._solve(node, problem, before, ended)
        if found is None:
            return self._stopped(node, Status.PAINLEVE, active, ": no contact forces are admissible")
        regime = self._regime(problem, found, look, ended)
        jammed = regime.jammed(look)
        if jammed:  # where a stick ends, friction that jams is no way on, but the contact may open
            found = self.solver.solve(problem, [tuple(FREE if c in jammed else m for c, m in enumerate(found.modes))])
            regime = regime if found is None else self._regime(problem, found, look, ended)
            if regime.jammed(look):
                return self._stopped(node, Status.PAINLEVE, jammed, JAMS)
        node = replace(node, after=self._at_rest(regime, problem, node, look))
        after = self.flow.project(regime, node.t, node.after)
        # A gap that touches is zero as far as anybody knows: to put one to zero must not leave another one below it.
        gaps = self.flow.look(node.t, after).gaps
        below = np.flatnonzero(closed & (gaps < -look.short(CROSSED)))
        after = self.flow.project(regime, node.t, node.after, below) if below.size else after
        made = replace(node, after=after, regime=regime)
        made = replace(made, events=self._events(made, before, self.flow.look(node.t, node.before), look))
        grazing = self._grazes(made, before)
        unsigned = f"at {grazing}: {UNSIGNED}" if grazing and self._is_unsigned(node, look, ended) else ""
        return replace(made, grazing=grazing, message=unsigned or made.message)

    def _regime(
        self, problem: ContactProblem, found: ContactSolution, look: Kinematics, ended: Phase | None
    ) -> ContactRegime:
        return regime_of(self.frames, found.modes, self._direction(problem, found, ended), look)

    def _at_rest(self, regime: ContactRegime, problem: ContactProblem, node: Node, look: Kinematics) -> np.ndarray:
        """The state with slips stopped that are so slow that they count as rest, and turn by the acceleration."""
        modes, slips = list(regime.modes), look.rates[self.frames.count :]
        for c in regime.slipping:
            part = self.frames.tangents[c]
            if not problem.held[c] and slips[part] @ regime.direction[part] < 0.0:
                modes[c] = STICK
        if tuple(modes) == regime.modes:
            return node.after
        return self.flow.project(regime_of(self.frames, tuple(modes), regime.direction, look), node.t, node.after)

    def _accelerations(self, look: Kinematics, active: np.ndarray, ended: Phase | None) -> ContactProblem:
        resting, speed = np.full(self.frames.count, RESTING * look.scales.speed), look.scales.speed
        if ended is not None and ended.crossing is not None:
            kind, contact = divmod(ended.crossing.guard, self.frames.count)
            if kind == SLIP_SPEED:
                resting[contact] = np.inf if self.frames.width(contact) == 1 else TURNING * speed
        return acceleration_problem(self.frames, look, [int(c) for c in active], resting)

    def _solve(
        self, node: Node, problem: ContactProblem, before: ContactRegime | None, ended: Phase | None
    ) -> ContactSolution | None:
        """Modes after the node; where several are admissible, those of the motion a little later."""
        usual = tuple(_usual(before, problem, c) for c in range(self.frames.count))
        if ended is None or ended.crossing is None or node.impact is not None:
            return self.solver.solve(problem, [usual])
        if ended.ahead is not None:
            return self._at(ended.crossing.high, ended.ahead, problem, usual)
        assert before is not None
        kind, contact = divmod(ended.crossing.guard, self.frames.count)
        if kind in (FORCE, SLACK) and before.redundant:
            return self._later(node, problem, before, ended.length)
        return self.solver.solve(problem, [self._flipped(usual, kind, contact, ended), usual])

    def _flipped(self, modes: tuple[int, ...], kind: int, contact: int, ended: Phase) -> tuple[int, ...]:
        """The other mode of the contact whose guard became zero."""
        width = self.frames.width(contact)
        if kind == FORCE:
            new = FREE
        elif kind == SLACK:
            force = ended.steps[-1].forces[-1][self.frames.count :][self.frames.tangents[contact]]
            new = SLIP_BACK if width == 1 and force[0] > 0 else SLIP
        else:
            new = STICK if width else CLOSED
        return (*modes[:contact], new, *modes[contact + 1 :])

    def _later(
        self, node: Node, problem: ContactProblem, before: ContactRegime, length: float
    ) -> ContactSolution | None:
        """Follow the old modes a little further, until they are no longer admissible."""
        rate = self.flow.rhs(before, node.t, node.after)
        for share in AHEAD:
            found = self._at(node.t + share * length, node.after + share * length * rate, problem, before.modes)
            if found is not None and found.modes != before.modes:
                return found
        return self.solver.solve(problem, [before.modes])

    def _at(self, t: float, x: np.ndarray, problem: ContactProblem, hint: tuple[int, ...]) -> ContactSolution | None:
        """Modes of the same contacts at another state."""
        look = self.flow.look(t, x)
        return self.solver.solve(replace(problem, delassus=look.delassus, offset=look.free), [hint])

    def _direction(self, problem: ContactProblem, found: ContactSolution, ended: Phase | None) -> np.ndarray:
        """Directions of slip (n_tt,): as it is, or that of the acceleration where it begins.

        Where a stick ends at its cone that acceleration is zero, and its direction rounding: slip begins against the
        friction that has reached the cone.
        """
        direction, n_c = problem.direction.copy(), self.frames.count
        gives_way = -1
        if ended is not None and ended.crossing is not None and ended.crossing.guard // n_c == SLACK:
            gives_way = ended.crossing.guard % n_c
        for c, part in enumerate(self.frames.tangents):
            if found.modes[c] in (SLIP, SLIP_BACK) and not problem.held[c]:
                sign = 1.0 if found.modes[c] == SLIP else -1.0
                begins = found.unknowns[n_c:][part]
                if c == gives_way and ended is not None and ended.steps and self.frames.width(c) == 2:
                    begins = -ended.steps[-1].forces[-1][n_c:][part]
                direction[part] = sign if self.frames.width(c) == 1 else begins / np.linalg.norm(begins)
        return direction

    def _events(
        self, node: Node, before: ContactRegime | None, left: Kinematics, right: Kinematics
    ) -> tuple[Event, ...]:
        """Impacts, contacts made and lost, slip and stick, in this order."""
        frames, n_c, t = self.frames, self.frames.count, node.t
        assert node.regime is not None
        old = (FREE,) * n_c if before is None else before.modes
        made, least = [], left.slow(IMPACT)
        for c, name in enumerate(self.names):
            impact, v = node.impact, left.rates[c]
            if impact is None or old[c] != FREE or not v < -least[c]:
                continue
            if left.delassus[c, c] * impact.impulses[c] > least[c]:
                made.append(Event(t, name, "impact", impact.impulses[c], v, right.rates[c], impact.energy_gain))
        if before is None:
            return tuple(made)
        changes = []
        for c, name in enumerate(self.names):
            modes = old[c], node.regime.modes[c]
            slips = [mode in (SLIP, SLIP_BACK) for mode in modes]
            turns = all(slips) and before.slip_direction(c, left.rates) @ node.regime.direction[frames.tangents[c]] < 0
            changes.append((name, kinds.of_modes([mode != FREE for mode in modes], slips, turns)))
        # Contacts made and lost come before those that begin or cease to slip.
        changes.sort(key=lambda change: change[1] not in ("contact", "release"))
        return (*made, *kinds.events_at(t, changes))

    def _is_unsigned(self, node: Node, look: Kinematics, ended: Phase | None) -> bool:
        """Whether a gap that is touched and left again came with speed, or has no gradient where it is zero."""
        if ended is None or not ended.steps or node.trigger is None:
            return False
        step, c = ended.steps[-1], node.trigger
        earlier = self.flow.look(float(step.t[0]), step.x[0])
        flat = not look.steepness[c] > FLAT * earlier.steepness[c]
        return flat or bool(abs(look.rates[c]) > FLAT * np.abs(step.rates[:, c]).max())

    def _grazes(self, node: Node, before: ContactRegime | None) -> str:
        """The contact that was touched without speed and is not closed now."""
        if node.trigger is None or node.trigger >= self.frames.count or before is None or node.impact is not None:
            return ""
        assert node.regime is not None
        return self.names[node.trigger] if node.regime.modes[node.trigger] == FREE else ""

    def _stopped(self, node: Node, status: Status, contacts: Sequence[int] | np.ndarray, because: str = "") -> Node:
        return replace(node, status=status, message=f"at {', '.join(self.names[int(c)] for c in contacts)}{because}")


def _only(contact: int, mode: int, count: int) -> tuple[int, ...]:
    return tuple(mode if c == contact else FREE for c in range(count))


def _usual(before: ContactRegime | None, problem: ContactProblem, contact: int) -> int:
    """The mode to try first: as before; what comes to rest together sticks together."""
    if contact not in problem.active:
        return FREE
    stays = (
        before is not None
        and before.modes[contact] != FREE
        and (problem.held[contact] or contact not in before.slipping)
    )
    return before.modes[contact] if before is not None and stays else STICK
