"""What a solution claims, held against the laws of motion at its own stages and nodes: nothing is simulated here.

An error of discretisation is no violation: a collocation satisfies the equations of motion at its stages and the law of
impacts at its nodes up to the solver's tolerance, however long its steps are. A wrong control, a force at a distance, a
force that is not that of the motion, or a phantom impulse does violate them. Violations are shares of the forces,
speeds and lengths at work in the solution: units do not matter, but for `CLOSED` and `SLOW`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np

from nosnoc_py.contacts.law import rebound
from nosnoc_py.simulation.certification.collocation import collocation_of, differences, stage_controls
from nosnoc_py.simulation.certification.laws import Explanation, Press, explain, violations
from nosnoc_py.solution import RungeKuttaInterpolant, Solution
from nosnoc_py.solution.certificate import Finding
from nosnoc_py.systems.kinematics import ContactMechanics, Kinematics

# Gaps of a solution below this are closed (in the unit of the gap, as FESD-J's residuals are).
CLOSED = 1e-6
# Violations beyond this share are no rounding of a converged solution.
TOLERANCE = 1e-5
# Approaches slower than this [m/s] may bounce or not: solutions have rest velocities of their own.
SLOW = 1.1e-3
# Residuals of a solved program are at most of this size.
SOLVED = 1e-8
# Slip faster than this share of the largest speed has a direction.
SLIPS = 1e-4
# With time-freezing a jump has elements of its own.
STOPPED = "the clock stands still in an element in which it runs"
# Elements shorter than this share of the horizon have no derivatives.
SHORT = 1e-9


@dataclass(frozen=True)
class Violation:
    """A broken law: how much, as a share of what is at work, and which one, in words."""

    share: float
    law: str


@dataclass(frozen=True, eq=False, kw_only=True)
class Stage:
    """A solution at one of its stages: time, numbers of the system, dx/dt, contacts closed in this element so far."""

    t: float
    index: int
    look: Kinematics
    rate: np.ndarray
    closed: list[int]

    @property
    def needed(self) -> np.ndarray:
        """The force that only contacts can exert (n_q,)."""
        return np.asarray(self.look.mass @ self.rate[self.look.velocity.size :] - self.look.force)


@dataclass(frozen=True, eq=False, kw_only=True)
class Jump:
    """A solution at a node: the system before it, its closed contacts with n'(v+ + e v-) [m/s], what explains the jump,
    and how far the position moves [m]."""

    look: Kinematics
    closed: list[int]
    presses: list[Press]
    late: list[float]
    found: Explanation
    moved: float

    def impulse(self, contact: int) -> float:
        """Normal impulse of a contact [N s]."""
        return float(self.found.forces[self.closed.index(contact)]) if contact in self.closed else 0.0


class Claims:
    """Reads a solution with collocation polynomials and checks it against the laws."""

    def __init__(self, mechanics: ContactMechanics, solution: Solution) -> None:
        elements = collocation_of(solution)
        assert isinstance(solution.interpolant, RungeKuttaInterpolant)
        assert elements is not None
        self.elements = elements
        self.mechanics, self.solution, self.interpolant = mechanics, solution, solution.interpolant
        self.names, self.n_q, self.n_c = mechanics.frames.names, mechanics.system.n_q, mechanics.frames.count

    # --- what is at work ---

    @cached_property
    def stages(self) -> list[Stage]:
        """All stages of elements that have a length."""
        elements, made = self.elements, []
        for e in np.flatnonzero(elements.h > SHORT * self.solution.duration):
            u = stage_controls(self.solution, elements, int(e))
            left = self.mechanics.at(elements.x_left[e], u[0], self.solution.p)
            for k in np.flatnonzero((elements.c != 0.0) & ~elements.standing[e]):
                look = self.mechanics.at(elements.x[e, k], u[k], self.solution.p)
                closed = [int(i) for i in np.flatnonzero((look.gaps <= CLOSED) & (left.gaps <= CLOSED))]
                index, t = int(e * elements.c.size + k), float(elements.t[e, k])
                made.append(Stage(t=t, index=index, look=look, rate=elements.rates[e, k], closed=closed))
        return made

    @cached_property
    def force(self) -> float:
        """Size of the forces at work; where nothing is, the size that errors of the solver would have as forces."""
        sizes = [max(_largest(s.look.force), _largest(s.needed)) for s in self.stages]
        momenta = [_largest(s.look.mass @ s.look.velocity) / self.solution.duration for s in self.stages]
        return max([*sizes, *momenta, self._unresolved / TOLERANCE, 1e-300])

    @property
    def _unresolved(self) -> float:
        """Forces that rounding and residuals of a solved program amount to, by differences over short steps."""
        solution, elements = self.solution, self.elements
        lengths = elements.h[elements.h > SHORT * solution.duration]
        if not len(self.stages):
            return 0.0
        mass = max(_largest(s.look.mass) for s in self.stages)
        gain = np.abs(differences(np.append(0.0, elements.c[elements.c != 0.0]))).sum(axis=1).max()
        errors = min(solution.infeasibility, SOLVED) + np.finfo(float).eps * (1.0 + _largest(solution.x))
        return float(mass * gain * errors / lengths.min())

    @cached_property
    def speed(self) -> float:
        """Size of the speeds [m/s]."""
        away = [_largest(s.look.inverse @ s.look.force) for s in self.stages]
        return max(
            _largest(self.solution.x[:, self.n_q :]), 1e-9 * max(away, default=0.0) * self.solution.duration, 1e-300
        )

    @cached_property
    def length(self) -> float:
        """Size of the positions [m]."""
        return max(_largest(self.solution.x[:, : self.n_q]), self.speed * self.solution.duration)

    # --- stages ---

    def equations_of_motion(self) -> tuple[float, list[Finding]]:
        """Largest violation at the stages, as a share, and where it is too large."""
        standing = zip(*np.nonzero(self.elements.standing), strict=True)
        stopped = ((float(self.elements.t[place]), Violation(1.0, STOPPED)) for place in standing)
        return worst_of(chain(stopped, ((stage.t, self._at_stage(stage)) for stage in self.stages)))

    def _at_stage(self, stage: Stage) -> Violation:
        names, n_q, look = self.mechanics.system.state_names, self.n_q, stage.look
        presses = self._presses(stage.closed, look.rates)
        found = explain(look.jacobian[self._directions(stage.closed)].T, stage.needed, presses)
        worst, drift = int(np.argmax(np.abs(found.left))), stage.rate[:n_q] - look.velocity
        if stage.closed:  # the gap rate may be stabilised by a drift along the normals
            normals = look.jacobian[stage.closed].T
            drift = drift - normals @ np.linalg.lstsq(normals, drift, rcond=1e-12)[0]
        fastest = int(np.argmax(np.abs(drift)))
        made = [
            Violation(abs(found.left[worst]) / self.force, f"no force explains the acceleration {names[n_q + worst]}'"),
            Violation(abs(drift[fastest]) / self.speed, f"{names[fastest]}' is not {names[n_q + fastest]}"),
            *[Violation(size / self.force, law) for size, law in violations(found.forces, presses)],
            *self._claimed_forces(stage, found),
        ]
        return max(made, key=lambda violation: violation.share)

    def _claimed_forces(self, stage: Stage, found: Explanation) -> Iterator[Violation]:
        """The normal forces that the solution lists, where the motion says what they are."""
        count = self.elements.h.size * self.elements.c.size
        for c, name in enumerate(self.names):
            series = self.solution.series.get(f"lambda_normal[{name}]")
            if not found.unique or series is None or len(series) != count:
                continue
            true = float(found.forces[stage.closed.index(c)]) if c in stage.closed else 0.0
            away = abs(float(series.values[stage.index]) - true) * _largest(stage.look.jacobian[c])
            yield Violation(away / self.force, f"lambda_normal[{name}] is not the force of the motion")

    # --- nodes ---

    def impact_law(self) -> tuple[float, list[Finding]]:
        """Largest violation of FESD-J, Eq. 11 at the nodes, as a share, and where it is too large."""
        return worst_of((float(t), self._at_node(k)) for k, t in enumerate(self.interpolant.t_left))

    @cached_property
    def jumps(self) -> list[Jump]:
        """What happens at the left ends of all elements."""
        left = np.vstack([self.interpolant.x_initial, self.interpolant.x_right[:-1]])
        return [self.read(before, after) for before, after in zip(left, self.interpolant.x_left, strict=True)]

    def read(self, before: np.ndarray, after: np.ndarray) -> Jump:
        """A left and a right limit (2 n_q,), with impulses of closed contacts that explain the jump between them."""
        look = self.mechanics.at(before, np.zeros(self.mechanics.system.n_u), self.solution.p)
        closed = [int(c) for c in np.flatnonzero(look.gaps <= CLOSED)]
        new = np.asarray(look.jacobian @ after[self.n_q :])
        restitution = self.mechanics.frames.restitution
        late = [_lateness(float(restitution[c]), float(look.rates[c]), float(new[c])) for c in closed]
        presses = [
            replace(press, unit=float(look.delassus[c, c]), opening=rate > TOLERANCE * self.speed)
            for c, rate, press in zip(closed, late, self._presses(closed, new), strict=True)
        ]
        change = look.mass @ (after[self.n_q :] - before[self.n_q :])
        found = explain(look.jacobian[self._directions(closed)].T, change, presses)
        moved = _largest(after[: self.n_q] - before[: self.n_q])
        return Jump(look=look, closed=closed, presses=presses, late=late, found=found, moved=moved)

    def _at_node(self, k: int) -> Violation:
        made = [*self.laws_of(self.jumps[k]), *self._claimed_impulses(k)]
        return max(made, key=lambda violation: violation.share)

    def laws_of(self, jump: Jump) -> list[Violation]:
        """Violations of the law of impacts."""
        made = [
            Violation(jump.moved / self.length, "the position jumps"),
            self._speed(
                _largest(jump.look.inverse @ jump.found.left), "no impulse of a closed contact explains the jump"
            ),
            *[self._speed(size, law) for size, law in violations(jump.found.forces, jump.presses)],
        ]
        for k, (c, late) in enumerate(zip(jump.closed, jump.late, strict=True)):
            shock = max(jump.presses[k].unit * float(jump.found.forces[k]), 0.0)
            made.append(self._speed(min(shock, abs(late)), f"{self.names[c]} breaks the law of restitution"))
            if jump.look.rates[c] < 0.0:
                made.append(self._speed(max(-late, 0.0), f"{self.names[c]} is left too slowly after an impact"))
        return made

    def _claimed_impulses(self, k: int) -> Iterator[Violation]:
        """The normal impulses that the solution lists, where the jump says what they are."""
        jump = self.jumps[k]
        for c, name in enumerate(self.names):
            series = self.solution.series.get(f"Lambda_normal[{name}]")
            if not jump.found.unique or series is None or len(series) != self.interpolant.h.size:
                continue
            away = float(jump.look.delassus[c, c]) * abs(float(series.values[k]) - jump.impulse(c))
            yield self._speed(away, f"Lambda_normal[{name}] is not the impulse of the jump")

    def impacts(self) -> list[Finding]:
        """Impacts that the solution lists although nothing jumps there, or with another impulse."""
        made = []
        for event in self.solution.impacts:
            k = int(np.argmin(np.abs(self.interpolant.t_left - event.time)))
            jump, c = self.jumps[k], self.names.index(event.name) if event.name in self.names else -1
            near = abs(float(self.interpolant.t_left[k]) - event.time) <= SHORT * self.solution.duration
            listed, true = event.impulse or 0.0, jump.impulse(c) if near else 0.0
            away = float(jump.look.delassus[c, c]) * abs(listed - true)
            if (jump.found.unique or not near) and away > TOLERANCE * self.speed:
                text = f"impact {event.name} is listed with {listed:.4g} N s, the jump there has {true:.4g}"
                made.append(Finding(time=event.time, what=text, size=abs(listed - true)))
        return made

    def _speed(self, size: float, law: str) -> Violation:
        return Violation(size / self.speed, f"{law} by {size:.3g} m/s")

    def _presses(self, contacts: list[int], rates: np.ndarray) -> list[Press]:
        """What closed contacts obey at rates (n_c + n_tt,), their forces in the order of `_directions`."""
        made, position = [], len(contacts)
        for k, c in enumerate(contacts):
            slip = rates[self.n_c :][self.mechanics.frames.tangents[c]]
            size = float(np.linalg.norm(slip))
            made.append(
                Press(
                    name=self.names[c],
                    normal=k,
                    tangents=tuple(range(position, position + slip.size)),
                    friction=float(self.mechanics.frames.friction[c]),
                    direction=slip / size if size > SLIPS * self.speed else None,
                )
            )
            position += slip.size
        return made

    def _directions(self, contacts: list[int]) -> np.ndarray:
        """Rows of the Jacobian that belong to contacts, normals first."""
        parts = [self.mechanics.frames.tangents[c] for c in contacts]
        tangents = [self.n_c + np.arange(part.start, part.stop) for part in parts]
        return np.concatenate([np.array(contacts, dtype=int), *tangents])


def worst_of(found: Iterator[tuple[float, Violation]]) -> tuple[float, list[Finding]]:
    """The largest share, and findings where it is too large; one per time."""
    every = list(found)
    findings = [Finding(time=t, what=v.law, size=float(v.share)) for t, v in every if v.share > TOLERANCE]
    return max((float(v.share) for _, v in every), default=0.0), findings


def _lateness(restitution: float, old: float, new: float) -> float:
    """gamma+ + e min(gamma-, 0) [m/s], with e = 0 where an approach is slow and that fits better."""
    choices = [restitution] if -old > SLOW else [0.0, restitution]
    return min((new - float(rebound(old, e)) for e in choices), key=abs)


def _largest(values: np.ndarray | Sequence[float]) -> float:
    return float(np.abs(values).max(initial=0.0))
