"""Mode equations of rigid-body systems with contacts: forces in every mode, and impacts between modes.

Modes of a rigid contact are "open", "closed" (frictionless), "stick", and "slip+" or "slip-" (one tangent) or "slip"
(two tangents). Equations of motion and impact law are Eqs. (1) and (3) of FESD-J (Nurkanovic, Frey, Pozharskiy, Diehl).

- A closed contact keeps its gap rate at zero with its normal force as the multiplier (index 2). Where the normal turns
  along the motion, this alone would let the gap drift: q' = v + g tau with the gradient g of the gap, and gap = 0, keep
  the positions on the surface (Gear, Gupta and Leimkuhler 1985).
- A sticking contact has zero slip and a tangential force inside the friction cone; a slipping one has the force on the
  cone, opposite to the slip (Coulomb).
- An impact balances momentum, with Newton's restitution of the normal velocity and Coulomb's law for the impulses.
- A compliant contact has the modes "apart" and "pressed". Its force is one expression with a kink, so that the modes
  only say on which side of zero the gap is.

Redundant contacts (four corners of a box) leave their forces undetermined; a tiny compliance makes them unique.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import groupby, pairwise

import casadi as ca
import numpy as np

from nosnoc_py.contact_problems.law import energy_gain
from nosnoc_py.functions import function_of
from nosnoc_py.motion.crossing import root
from nosnoc_py.motion.kinds import Kind, of_modes
from nosnoc_py.roles import Role
from nosnoc_py.sequences.equations import MODES, Boundary, ImpactData, Mode, ModeEquations, Rows, Unknowns
from nosnoc_py.sequences.reading import MotionSegment, active_in_segments
from nosnoc_py.solution import Event, Trajectory
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.kinematics import Kinematics
from nosnoc_py.tolerances import IMPACT

APART, PRESSED = "apart", "pressed"
OPEN, CLOSED, STICK, FORWARDS, BACKWARDS, SLIP = "open", "closed", "stick", "slip+", "slip-", "slip"
# Modes of a rigid contact by the number of its tangents: none (no friction), one, two.
WORDS = ((OPEN, CLOSED), (OPEN, STICK, FORWARDS, BACKWARDS), (OPEN, STICK, SLIP))
SIGNS = {FORWARDS: 1.0, BACKWARDS: -1.0}
SLIPPING = (*SIGNS, SLIP)
# Compliance of closed contacts in units of speed / force: large enough to make redundant forces unique, so small that
# the gap rates it leaves are far below every tolerance.
SOFTNESS = 1e-12
# A contact counts as closed, or as sticking, where gaps and rates are below these fractions of the typical length and
# speed: above the errors of numerical solutions, far below the motion itself.
CLOSED_GAP, STICKING_RATE = 1e-5, 1e-5
# A slip begins beyond static friction, by this fraction of it: exactly there a motion sticks. A phase that sticks may
# end as far beyond again, for forces that controls cannot change at once. Compliance of redundant forces there, in
# units of 1 / mass.
BEYOND, COMPLIANCE = 1e-7, 1e-9
# Samples between two nodes of a motion in the search for sign changes of compliant gaps.
PLACES = 9


class ContactLaws:
    """Mode equations of a `CLS` (see `ModeLaws`).

    Parameters
    ----------
    system : CLS
    rest_velocity : float
        Largest approach velocity [m/s] at which a contact with restitution may stay closed.
    force, speed, length : float
        Typical values of forces [N], velocities [m/s] and gaps [m].
    """

    def __init__(
        self, system: CLS, *, rest_velocity: float = 0.0, force: float = 1.0, speed: float = 1.0, length: float = 1.0
    ) -> None:
        self.system, self.rest_velocity = system, rest_velocity
        self.force, self.speed, self.length = force, speed, length
        self.frames = system.mechanics.frames
        self.soft = tuple(contact.name for contact in system.compliant)
        self.names = (*self.frames.names, *self.soft)
        self.soft_gaps = ca.vertcat(ca.SX(0, 1), *[contact.gap for contact in system.compliant])
        self.at = system.kinematics(system.x, system.u, system.p)
        # Gradients of the gaps along the velocities; a user's normal may have another length.
        self.gradients = system.along_v(self.at.gaps)
        self.curved = [
            ca.depends_on(ca.horzcat(self.at.jacobian[c, :], self.gradients[c, :]), ca.vertcat(system.q, system.y))
            for c in range(self.frames.count)
        ]
        roles = {"normal": (Role.NORMAL_FORCE, Role.NORMAL_IMPULSE), "tangent": (Role.TANGENTIAL_FORCE,) * 2}
        named = self.frames.directions
        self.shown = tuple((f"lambda_{kind}{label}", roles[kind][0], "N") for kind, label, _ in named)
        self.impulses = tuple((f"Lambda_{kind}{label}", roles[kind][1], "N s") for kind, label, _ in named)
        self.weights = ca.vertcat(ca.SX(0, 1), *(weight for *_, weight in named))
        # Cached not only for speed: the program recognises phases of equal modes by the identity of this object.
        self.equations = lru_cache(maxsize=MODES)(self._equations)
        self.onset = lru_cache(maxsize=MODES)(self._onset)
        self._boundaries = lru_cache(maxsize=MODES)(self._boundary)

    def mode_names(self, name: str) -> tuple[str, ...]:
        """Return the modes that a contact can have."""
        if name in self.soft:
            return (APART, PRESSED)
        return WORDS[self.frames.width(self.names.index(name))]

    lasting_modes = mode_names

    def default(self, name: str) -> str:
        """Return the mode of a contact that is not mentioned: open or apart."""
        return APART if name in self.soft else OPEN

    def _hard(self, mode: Mode) -> Mode:
        """Return the modes of the rigid contacts, which come first in `names`."""
        return mode[: self.frames.count]

    def _sides(self, mode: Mode) -> Rows:
        """Return the sign conditions of compliant gaps: >= 0 apart, <= 0 pressed."""
        words = mode[self.frames.count :]
        sides = (1.0 if word == APART else -1.0 for word in words)
        return Rows.of(
            *(
                (f"side[{n}]", sign * self.soft_gaps[k])
                for k, (n, sign) in enumerate(zip(self.soft, sides, strict=True))
            )
        )

    def _kinks(self, before: Mode, after: Mode) -> Rows:
        """Return the conditions gap = 0 of compliant contacts whose mode changes."""
        count = self.frames.count
        changed = [k for k, (a, b) in enumerate(zip(before[count:], after[count:], strict=True)) if a != b]
        return Rows.of(*((f"kink[{self.soft[k]}]", self.soft_gaps[k]) for k in changed))

    def kinks(self, motion: Trajectory, p: np.ndarray) -> list[Event]:
        """Return the times at which compliant contacts begin and end to press, which are no events of a motion."""
        if not self.soft:
            return []
        gaps = function_of([self.system.x, self.system.p], self.soft_gaps)
        times = np.unique(np.concatenate([np.linspace(a, b, PLACES) for a, b in pairwise(motion.t)]))
        values = np.array([np.asarray(gaps(x, p)).reshape(-1) for x in motion(times)])
        events = []
        for k, name in enumerate(self.soft):
            for i in np.flatnonzero(values[:-1, k] * values[1:, k] < 0):

                def gap(t: float, k: int = k) -> float:
                    return float(np.asarray(gaps(motion(t), p)).reshape(-1)[k])

                time = root(gap, times[i], times[i + 1])
                events.append(Event(time, name, "contact" if values[i, k] > 0 else "release"))
        return events

    def soft_modes(self, states: np.ndarray, p: np.ndarray) -> list[str]:
        """Return the modes of compliant contacts at states (m, n_x), decided by the middle one."""
        if not self.soft:
            return []
        # The middle of a segment is far from the kinks at its ends, where the sign of the gap is rounding.
        gaps = np.asarray(function_of([self.system.x, self.system.p], self.soft_gaps)(states[len(states) // 2], p))
        return [APART if gap >= 0 else PRESSED for gap in gaps.reshape(-1)]

    def rows_of(self, c: int) -> list[int]:
        """Return the indices of a contact's tangents among all directions (normals first, then tangents)."""
        part = self.frames.tangents[c]
        return [self.frames.count + k for k in range(part.start, part.stop)]

    def _forces(self, kinds: Mapping[int, str], what: str, scale: float) -> _Forces:
        """Return forces or impulses of contacts in their modes."""
        return _Forces(self, kinds, what, scale)

    def _equations(self, mode: Mode) -> ModeEquations:
        """Return the DAE of a mode (cached as `equations`)."""
        s, at = self.system, self.at
        closed = {c: word for c, word in enumerate(self._hard(mode)) if word != OPEN}
        forces = self._forces(closed, "force", self.force)
        rates = at.rates
        z, drift = forces.unknowns, None
        equations, inequalities = forces.rows(rates, self.speed)
        # The compliance makes the forces of redundant contacts (four corners of a box) unique.
        equations += Rows.of(
            *(
                (f"gap rate[{self.names[c]}]", rates[c] + self.softness(c, self.force) * forces.normal[c])
                for c in closed
            )
        )
        # Only a normal that turns lets the gap drift; a flat one keeps it constant by its rate.
        turning = [c for c in closed if self.curved[c]]
        if turning:
            tau = Unknowns.create("tau", [f"drift[{self.names[c]}]" for c in turning], scale=self.speed)
            z += tau
            drift = self.gradients[turning, :].T @ tau.symbol
            equations += Rows.of(*((f"gap[{self.names[c]}]", at.gaps[c]) for c in turning))
        inequalities += Rows.of(
            *((f"gap[{n}]", at.gaps[c]) for c, n in enumerate(self.frames.names) if c not in closed)
        )
        inequalities += self._sides(mode)
        # A closed contact holds its normal direction, a sticking one its tangents as well.
        held = [*closed, *(row for c, word in closed.items() if word == STICK for row in self.rows_of(c))]
        flow = s.state_rate(at.force + at.jacobian.T @ forces.total, drift)
        inertia = None if at.mass.is_eye() else ca.diagcat(ca.SX.eye(s.n_q), at.mass, ca.SX.eye(s.y.numel()))
        return ModeEquations(
            z=z,
            flow=flow,
            inertia=inertia,
            equations=equations,
            inequalities=inequalities,
            shown=forces.total * self.weights,
            held=at.jacobian[held, :] if held else None,
        )

    def mode_at(self, x: np.ndarray, p: np.ndarray) -> Mode:
        """Return the mode of a state (n_x,): contacts that are closed there, and those of them that slip."""
        at = self.system.kinematics(x[None], 0.0, p)
        hard = (self.slip_word(c, at.rates[0]) if self._is_closed(c, at) else OPEN for c in range(self.frames.count))
        return (*hard, *self.soft_modes(x[None], p))

    def modes_of(self, segments: list[MotionSegment], p: np.ndarray) -> list[Mode]:
        """Return the modes of the segments of a motion, by its events and, where these are silent, by its states."""
        samples = [self.system.kinematics(segment.states, 0.0, p) for segment in segments]
        columns: list[list[str]] = []
        for c, name in enumerate(self.frames.names):
            closed = active_in_segments(segments, name, ("contact",), ("release",))
            closed = [
                self._is_closed(c, at) if known is None else known for known, at in zip(closed, samples, strict=True)
            ]
            slips = self._slips(segments, c, closed)
            words = []
            for k, at in enumerate(samples):
                # In the middle, as the slip may be zero at the ends of the segment.
                rates = at.rates[len(at.rates) // 2]
                words.append(OPEN if not closed[k] else self.slip_word(c, rates, slips=slips[k]))
            columns.append(words)
        hard = list(zip(*columns, strict=True)) if columns else [()] * len(segments)
        return [(*mode, *self.soft_modes(segment.states, p)) for mode, segment in zip(hard, segments, strict=True)]

    def _slips(self, segments: list[MotionSegment], c: int, closed: Sequence[bool | None]) -> list[bool | None]:
        """Return for every segment if a contact slips, by the events since it closed; None if these are silent."""
        slips: list[bool | None] = []
        for is_closed, group in groupby(zip(closed, segments, strict=True), key=lambda pair: bool(pair[0])):
            inside = [segment for _, segment in group]
            # Events before the contact closed say nothing of its present slip: every closure starts anew.
            known = (
                active_in_segments(inside, self.names[c], ("slip",), ("stick",)) if is_closed else [None] * len(inside)
            )
            # A reversal is an event between two phases of slip.
            turned = any(event.kind == "reversal" and event.name == self.names[c] for s in inside for event in s.events)
            slips += [True if turned and part is None else part for part in known]
        return slips

    def _is_closed(self, c: int, at: Kinematics) -> bool:
        """True if a contact is closed at all of the states."""
        # A user's gap may be scaled: divided by the length of its gradient it is a distance, and its rate a velocity.
        gaps, rates = np.abs(at.gaps[:, c]) / at.steepness[:, c], np.abs(at.rates[:, c]) / at.steepness[:, c]
        return bool(gaps.max() <= CLOSED_GAP * self.length and rates.max() <= STICKING_RATE * self.speed)

    def impact_modes(self, names: Sequence[str], after: np.ndarray, p: np.ndarray) -> dict[str, str]:
        """Return the modes of contacts in an impact, by the state after it (n_x,)."""
        rates = self.system.kinematics(after, 0.0, p).rates
        return {name: self.slip_word(self.names.index(name), rates) for name in dict.fromkeys(names)}

    def slip_word(self, c: int, rates: np.ndarray, slips: bool | None = None) -> str:
        """Return the mode of a closed contact by its rates; `slips` is known from events, or None."""
        slip = rates[self.rows_of(c)]
        if not slip.size:
            return CLOSED
        if not (np.linalg.norm(slip) > STICKING_RATE * self.speed if slips is None else slips):
            return STICK
        return SLIP if slip.size == 2 else FORWARDS if slip[0] > 0.0 else BACKWARDS

    def start(self, mode: Mode) -> tuple[Rows, Rows]:
        """Return the conditions of an initial state: closed contacts touch, and do not slip where they stick."""
        at, rates = self.at, self.at.rates
        closed = [c for c, word in enumerate(self._hard(mode)) if word != OPEN]
        held = [(f"gap[{self.names[c]}]", at.gaps[c]) for c in closed]
        held += [(f"gap rate[{self.names[c]}]", rates[c]) for c in closed]
        held += [(f"slip[{self.names[c]}]", rates[self.rows_of(c)]) for c in closed if mode[c] == STICK]
        apart = [(f"gap[{name}]", at.gaps[c]) for c, name in enumerate(self.frames.names) if c not in closed]
        return Rows.of(*held), Rows.of(*apart) + self._sides(mode)

    def changes(self, before: Mode, after: Mode) -> list[tuple[str, Kind]]:
        """Return the contacts that close, open, begin or end to slip, or reverse their slip."""
        events = []
        for name, was, is_ in zip(self.frames.names, self._hard(before), self._hard(after), strict=True):
            closed, slips = ((was != OPEN, is_ != OPEN), [word in SLIPPING for word in (was, is_)])
            events.append((name, of_modes(closed, slips, was != is_)))
        return events

    def impacts_between(
        self, before: np.ndarray, after: np.ndarray, impulses: np.ndarray, p: np.ndarray
    ) -> list[ImpactData]:
        """Return the impacts between two states; see `ImpactData` for their entries."""
        at = self.system.kinematics(before, 0.0, p)
        v, later = before[self.system.at_v], after[self.system.at_v]
        rates, gain = (at.rates, at.rates_of(later)), float(energy_gain(at.mass @ (later - v), v, later))
        slowest = IMPACT * self.speed * np.ravel(at.steepness)  # rates are those of the user's gaps
        # A contact that only opens or closes by the impact of another one has no impulse of its own: it has no impact.
        least = IMPACT * float(impulses[: self.frames.count].max(initial=0.0))
        return [
            (name, "impact", float(impulses[c]), float(rates[0][c]), float(rates[1][c]), gain)
            for c, name in enumerate(self.frames.names)
            if rates[0][c] < -slowest[c] and rates[1][c] - rates[0][c] > slowest[c] and impulses[c] > least
        ]

    def softness(self, c: int, size: float) -> float:
        """Return the compliance of a closed contact: gap rate per force or impulse, whose typical size is given."""
        return SOFTNESS * self.speed / size

    def impulsive_contacts(self, before: Mode, impacts: Mapping[str, str], after: Mode) -> dict[int, str]:
        """Return the contacts with an impulse between two phases, with their modes in it.

        These are the contacts that are named, those that close, and, if there are any, those that stay closed: an
        impact elsewhere may load them at the same instant.
        """
        contacts = {self.names.index(name): word for name, word in impacts.items() if name not in self.soft}
        before, after = self._hard(before), self._hard(after)
        for c, (was, is_) in enumerate(zip(before, after, strict=True)):
            if was == OPEN and is_ != OPEN:
                contacts.setdefault(c, is_)
        # After the loop above has decided if there is an impact at all: without one, closed contacts have no impulse.
        for c, (was, is_) in enumerate(zip(before, after, strict=True)):
            if contacts and was != OPEN and is_ != OPEN:
                contacts.setdefault(c, is_)
        return dict(sorted(contacts.items()))

    def boundary(self, before: Mode, impacts: Mapping[str, str], after: Mode) -> Boundary:
        """Return the guards of closing contacts and of the ends of slip, and the impact if there is one."""
        return self._boundaries(before, tuple(impacts.items()), after)

    def _boundary(self, before: Mode, impacting_names: tuple[tuple[str, str], ...], after: Mode) -> Boundary:
        impacts = dict(impacting_names)
        impacting, kinks = self.impulsive_contacts(before, impacts, after), self._kinks(before, after)
        before, after = self._hard(before), self._hard(after)
        s, at = self.system, self.at
        opening = [c for c, (was, is_) in enumerate(zip(before, after, strict=True)) if was != OPEN and is_ == OPEN]
        rates = at.rates
        # At the boundary the rate of an opening gap is zero; its sign shows first at the first stage after it.
        beginning = Rows.of(*((f"gap rate[{self.names[c]}]", rates[c]) for c in opening if c not in impacting))
        if not impacting:
            # Slip ends or reverses at zero. A contact that opens while it slips ends its slip at any speed.
            ended = [
                c
                for c, (was, is_) in enumerate(zip(before, after, strict=True))
                if was in SLIPPING and is_ not in (was, OPEN)
            ]
            stops = [(f"slip[{self.names[c]}]", rates[self.rows_of(c)]) for c in ended]
            # Without an impact no component of the state jumps.
            here = tuple((False, i) for i in range(s.x.numel()))
            nothing = Rows()
            return Boundary(
                y=Unknowns(),
                equations=Rows.of(*stops) + kinks,
                inequalities=nothing,
                after=here,
                beginning=beginning,
                shown=ca.SX.zeros(len(self.impulses)),
            )
        impact = self._impact(before, impacting, after, opening, beginning)
        return replace(impact, equations=impact.equations + kinks)

    def _onset(self, before: Mode, after: Mode) -> Rows:
        """Return by how much sticking needs more than static friction where slips begin (cached as `onset`)."""
        frames, at, mu = self.frames, self.at, self.frames.friction
        if frames.sticking is None or self.impulsive_contacts(before, {}, after):
            return Rows()  # after an impact a slip has a speed
        pairs = enumerate(zip(self._hard(before), self._hard(after), strict=True))
        begin = [c for c, (was, is_) in pairs if is_ in SLIPPING and was not in (OPEN, is_) and frames.sticking[c]]
        if not begin:
            return Rows()
        held, columns = list[int](), list[ca.SX]()
        for c, word in enumerate(self._hard(before)):
            if word == OPEN:
                continue
            rows, normal = self.rows_of(c), at.jacobian[c, :]
            if word == STICK or c in begin:
                held += [c, *rows]
                columns += [normal.T, at.jacobian[rows, :].T]
                continue
            if rows:  # what goes on to slip has its friction with the normal force
                slip = at.rates[rows]
                along = ca.SX(SIGNS[word]) if word in SIGNS else slip / ca.norm_2(slip)
                normal -= mu[c] * along.T @ at.jacobian[rows, :]
            held.append(c)
            columns.append(normal.T)
        response = at.jacobian[held, :] @ ca.solve(at.mass, ca.horzcat(*columns, at.force))
        matrix, free = ca.horzsplit(response, [0, len(held), len(held) + 1])
        # Forces of redundant contacts are not unique; their sum, which is what counts, is.
        matrix += COMPLIANCE * ca.diag(ca.diag(matrix))
        forces = ca.SX.zeros(len(self.shown))
        forces[held] = -ca.solve(matrix, free + at.curvature[held])
        push = [-SIGNS.get(after[c], 1.0) * forces[self.rows_of(c)] for c in begin]
        bounds = [frames.cone[c] * forces[c] for c in begin]
        # In space the norm is rounded at zero, where it has no derivative, by less than `BEYOND` at the cone.
        needed = sum(
            f if f.numel() == 1 else ca.sqrt(ca.sumsqr(f) + 0.1 * BEYOND * bound**2)
            for f, bound in zip(push, bounds, strict=True)
        )
        most = sum(bounds)
        return Rows.of((f"static friction[{', '.join(self.names[c] for c in begin)}]", needed - (1.0 + BEYOND) * most))

    def _impact(
        self, before: Mode, impacting: dict[int, str], after: Mode, opening: Sequence[int], beginning: Rows
    ) -> Boundary:
        """Return the boundary with an impact: M (v+ - v-) = J' Lambda, restitution, and Coulomb's law."""
        s, at = self.system, self.at
        velocity = Unknowns.create("v_after", [f"{name}(+)" for name in s.names["v"]], scale=self.speed)
        # The impulse of the typical force in the time in which the typical speed covers the typical length.
        size = self.force * self.length / self.speed
        impulses = self._forces(impacting, "impulse", size)
        approach, leaving = at.rates, at.rates_of(velocity.symbol)
        equations, inequalities = impulses.rows(leaving, self.speed)
        equations += Rows.of(("momentum", at.mass @ (velocity.symbol - s.v) - at.jacobian.T @ impulses.total))
        for c in impacting:
            name, e = self.names[c], self.frames.restitution[c]
            soft = self.softness(c, size) * impulses.normal[c]
            if before[c] != OPEN:
                equations += Rows.of((f"gap rate after[{name}]", leaving[c] + soft))
                continue
            # A contact that stays closed comes to rest, whatever its restitution; this is allowed for slow approaches.
            stays = after[c] != OPEN
            rebound = 0.0 if stays else e
            equations += Rows.of(
                (f"gap[{name}]", at.gaps[c]), (f"restitution[{name}]", leaving[c] + rebound * approach[c] + soft)
            )
            # With several contacts, nonnegative impulses alone do not ensure that each of them approaches.
            inequalities += Rows.of((f"approach[{name}]", -approach[c]))
            if stays and s.contacts[c].bounces:
                # A restitution that depends on p may be zero, and then any approach may end at rest.
                slow = approach[c] + self.rest_velocity
                rests = slow if isinstance(e, float) else ca.if_else(e > 0.0, slow, 1.0)
                inequalities += Rows.of((f"rest[{name}]", rests))
        free = [c for c in opening if c not in impacting]
        inequalities += Rows.of(*((f"gap rate after[{self.names[c]}]", leaving[c]) for c in free))
        # Positions, and states y that no impact changes, are continuous.
        where = list(range(s.x.numel()))
        positions, others = (tuple((False, i) for i in where[part]) for part in (s.at_q, s.at_y))
        return Boundary(
            y=velocity + impulses.unknowns,
            equations=equations,
            inequalities=inequalities,
            after=(*positions, *((True, i) for i in range(s.n_v)), *others),
            beginning=beginning,
            shown=impulses.total * self.weights,
        )


class _Forces:
    """Forces or impulses of contacts in their modes.

    Attributes
    ----------
    unknowns : Unknowns
        Normal forces, tangential ones of sticking contacts, direction and speed of slip with two tangents.
    normal : dict int -> SX
        Normal force by contact.
    total : SX (directions,)
        Forces of all contacts along all directions.
    cone : (n_c,)
        Coefficients of contacts that stick.
    """

    def __init__(self, laws: ContactLaws, kinds: Mapping[int, str], what: str, scale: float) -> None:
        self.size = scale
        frames, names = laws.frames, laws.names
        self.laws, self.kinds = laws, kinds
        # Impulses have one coefficient.
        static = what == "force" and frames.sticking is not None
        self.cone = (1.0 + 2.0 * BEYOND) * frames.cone if static else frames.friction
        # Forces start at their typical value: an interior-point method would have to push them off the bound zero.
        normals = Unknowns.create(
            "normal", [f"normal {what}[{names[c]}]" for c in kinds], lower=0.0, initial=scale, scale=scale
        )
        self.unknowns = normals
        self.normal = dict(zip(kinds, ca.vertsplit(normals.symbol) if kinds else [], strict=True))
        self.total = ca.SX.zeros(len(laws.shown))
        self.direction: dict[int, ca.SX] = {}
        self.slip_speed: dict[int, ca.SX] = {}
        for c, word in kinds.items():
            self.total[c] = self.normal[c]
            rows, bound = laws.rows_of(c), frames.friction[c] * self.normal[c]
            # Stick: the tangential force is free. Slip: Coulomb's law gives it, with the direction of slip as an
            # unknown for two tangents, as v / |v| has no derivative where slip begins or ends.
            if word == STICK:
                self.total[rows] = self._add_unknowns(f"tangential {what}", c, len(rows), scale=scale)
            elif word in SIGNS:
                # Friction opposes the slip.
                self.total[rows] = -SIGNS[word] * bound
            elif word == SLIP:
                # Not zero: the row |d|^2 = 1 has no gradient there.
                self.direction[c] = self._add_unknowns("direction of slip", c, 2, initial=np.sqrt(0.5))
                self.slip_speed[c] = self._add_unknowns("speed of slip", c, 1, lower=0.0, scale=laws.speed)
                self.total[rows] = -bound * self.direction[c]

    def _add_unknowns(self, what: str, c: int, size: int, **numbers: float) -> ca.SX:
        name = self.laws.names[c]
        labels = [f"{what}[{name}]" if size == 1 else f"{what}[{name}][{k}]" for k in range(size)]
        unknowns = Unknowns.create(what, labels, **numbers)
        self.unknowns += unknowns
        return unknowns.symbol

    def rows(self, rates: ca.SX, speed: float) -> tuple[Rows, Rows]:
        """Return equations and inequalities of Coulomb's law, with slip velocities from the rates of all directions."""
        laws = self.laws
        equations, inequalities = Rows(), Rows()
        for c, word in self.kinds.items():
            name, rows = laws.names[c], laws.rows_of(c)
            force = self.total[rows]
            if word == STICK:
                bound = self.cone[c] * self.normal[c]
                # The same compliance as of the normal direction: tangential forces of redundant contacts are not unique
                # either.
                equations += Rows.of((f"slip[{name}]", rates[rows] + laws.softness(c, self.size) * force))
                # Two linear rows for one tangent; the quadratic cone for two (smooth where the force is zero).
                room = ca.vertcat(bound - force, bound + force) if len(rows) == 1 else bound**2 - ca.sumsqr(force)
                inequalities += Rows.of((f"friction cone[{name}]", room))
            elif word in SIGNS:
                inequalities += Rows.of((f"slip[{name}]", SIGNS[word] * rates[rows]))
            elif word == SLIP:
                # With speed >= 0 and |d| = 1 the slip has this direction, and the rows are smooth where it vanishes.
                d = self.direction[c]
                equations += Rows.of(
                    (f"slip[{name}]", rates[rows] - self.slip_speed[c] * d),
                    (f"length of the direction[{name}]", ca.sumsqr(d) - 1),
                )
        return equations, inequalities
