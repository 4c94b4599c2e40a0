"""Contact laws for the active-set Newton method: modes, guards, and the impact and acceleration problems at nodes.

A mode is one integer per contact: FREE (open), CLOSED (no friction), STICK, SLIP, SLIP_BACK (plane only: v_t < 0). The
guards of all contacts are, in this order: gaps (watched where open), normal forces (where closed), slip velocities
along the direction of slip (where slipping), and slacks of the friction cone, (mu lambda_n)^2 - |lambda_t|^2 (where
sticking).

At a node first the impact problem (Newton's law of restitution with Coulomb friction) is solved for the contacts that
approach, then the acceleration problem for those that stay closed; both by enumeration of modes in
`contact_problems.solver`. The mode of the accelerations is the mode of the next run.

The unknowns y of a stage are those of `contact_equations`.

References
----------
Nurkanovic, Frey, Pozharskiy and Diehl, FESD-J: the equations of the finite elements with impacts and friction.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import casadi as ca
import numpy as np

from nosnoc_py.contact_problems.law import raises_energy
from nosnoc_py.contact_problems.modes import CLOSED, FREE, SLIP, SLIP_BACK, STICK, masks_of
from nosnoc_py.contact_problems.problem import ContactProblem, acceleration_problem, impact_problem
from nosnoc_py.contact_problems.solver import ContactSolution, ContactSolver
from nosnoc_py.functions import buffered
from nosnoc_py.simulation.newton.contact_equations import force_function, has_constant_mass, stage_equations
from nosnoc_py.simulation.newton.modes import ElementNode, Mode, Trouble, remembered
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.kinematics import Kinematics
from nosnoc_py.tolerances import REST_VELOCITY, RESTING, TOUCHING

# Without the gap rate in the equations, closed contacts end elements with gap rates up to about this [m/s], an error of
# the discretisation. Such contacts must not be taken for separating.
DRIFTING = 1e-3
KINDS = ("touch", "release", "end of slip", "start of slip")


class ContactModes:
    """Contact modes of a system, as `EventWalk` and `Engine` use them.

    Parameters
    ----------
    system : CLS
    gap_rate : bool
        Impose gap rate = 0 besides gap = 0 at closed contacts.
    rest_velocity : float
        Slower approaches do not bounce [m/s].
    """

    # Forces after a node follow from the acceleration problem; no short element is needed for them.
    solves_node_unknowns = False

    def __init__(self, system: CLS, *, gap_rate: bool = True, rest_velocity: float = REST_VELOCITY) -> None:
        self.system, self.gap_rate, self.rest_velocity = system, gap_rate, rest_velocity
        self.frames = system.mechanics.frames
        self.names = self.frames.names
        self.equations = stage_equations(system, self.frames, gap_rate)
        self._slips = ca.Function("slips", [system.x, system.p], [system.mechanics.slips])
        self._slips_at = buffered(self._slips)
        self.jumps = self.frames.count + self.frames.n_t
        self._solver = ContactSolver(self.frames)
        self.masks, self.watched = remembered(masks_of), remembered(self._watched)
        forces = force_function(self.equations, self.frames, gap_rate)
        self._forces = cache(lambda count: buffered(forces.map("forces", "serial", count, [2], [])))

    # --- interface of the engine ---

    def _watched(self, modes: Mode) -> np.ndarray:
        """Return which guards (4 n_c,) a mode has to satisfy."""
        kinds = np.asarray(modes, dtype=int)
        return np.concatenate([kinds == FREE, kinds != FREE, kinds >= SLIP, kinds == STICK])

    def tolerances(self, guards: np.ndarray, y: np.ndarray, h: float) -> np.ndarray:
        """Return violations (4 n_c,) that are rounding or present from the start, of guards (4 n_c, samples).

        h is the length of an element: rounding in slips, divided by it, is rounding in forces.
        """
        n_c = self.frames.count
        force = 1.0 + np.abs(y[: n_c + self.frames.n_t]).max(initial=0.0)
        gaps, slips = (1.0 + np.abs(part).max(initial=0.0) for part in (guards[:n_c], guards[2 * n_c : 3 * n_c]))
        # Accelerations act through M and h: a velocity error e in an element is a force error of about e / h (mass
        # one).
        noise = 1e-9 * force + 1e-14 * slips / h
        rounding = np.repeat([1e-11 * gaps, noise, 1e-11 * slips, noise * force], n_c)
        # A guard that is violated at the start stems from the step before; it is no event of this run.
        return np.asarray(rounding + np.maximum(0.0, -guards[:, 0]))

    def nearest(self) -> np.ndarray:
        """Return relative times (4 n_c,) before which a violation means that the mode was wrong from the start.

        Larger for forces and slacks, which change with the mode at once, than for gaps and slips, which are continuous.
        """
        return np.repeat([1e-9, 1e-6, 1e-9, 1e-6], self.frames.count)

    def places(self, modes: Mode) -> str:
        """Return the names of the closed contacts."""
        return ", ".join(name for name, mode in zip(self.names, modes, strict=True) if mode)

    def has_unique_forces(self, modes: Mode) -> bool:
        """Return True if at most one contact is closed: one contact alone is not redundant."""
        return sum(mode != FREE for mode in modes) < 2

    def motion_continues(self, x: np.ndarray, p: np.ndarray, modes: Mode) -> bool:
        """Return True if no contact closes or approaches at x, so that the modes can be continued without a node."""
        gaps, rates, steepness = self.system.mechanics.touching(x, p)
        free = np.asarray(modes) == FREE
        # An open contact that touches, or a closed one that approaches, needs the impact law at a node.
        return bool(np.where(free, gaps > TOUCHING * steepness, rates >= -RESTING * steepness).all())

    def describe(self, guard: int) -> tuple[str, str]:
        """Return the name of the contact and the kind of the event of a guard."""
        return self.names[guard % self.frames.count], KINDS[guard // self.frames.count]

    def node(
        self, x: np.ndarray, u: np.ndarray, p: np.ndarray, hint: Sequence[int] | None, *, other_forces: bool = False
    ) -> ElementNode:
        """Solve the impact, then the accelerations; return the node with the modes of the motion that follows."""
        at = self._at(x, u, p)
        # Gaps are compared in units of distance, hence the factor |grad gap| (steepness).
        closed = tuple(int(c) for c in np.flatnonzero(at.gaps <= TOUCHING * at.steepness))
        after, jump = x, np.zeros(at.rates.size)
        if any(at.rates[c] < -RESTING * at.steepness[c] for c in closed):
            impact = self._impact(x, at, closed, p)
            if isinstance(impact, Trouble):
                return self._failed_node(x, impact, impact.value, closed)
            after, jump = impact
            # Forces, slips and gap rates of the accelerations are those after the impact.
            at = self._at(after, u, p)
        local = self._acceleration_problem(at, closed, hint, p)
        solution = self._solver.solve(local, [] if hint is None else [hint])
        if solution is None:
            return self._failed_node(x, Trouble.MODES, "no admissible acceleration", closed)
        y = self._stage_unknowns(at, solution)
        return ElementNode(x_minus=x, x_left=after, jump=jump, modes=solution.modes, y=y, detail=local)

    def guess(self, node: ElementNode, modes: Sequence[int], u: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Return the algebraic unknowns (n_y,) right after a node in other modes."""
        assert node.detail is not None
        return self._stage_unknowns(self._at(node.x_left, u, p), self._solver.in_modes(node.detail, modes))

    def pivots(self, node: ElementNode, modes: Mode, guard: int | None, y: np.ndarray) -> list[Mode]:
        """Return modes to try when a guard is violated at once, the likeliest first."""
        if guard is None:
            return []
        c, kind = guard % self.frames.count, guard // self.frames.count
        local: ContactProblem = node.detail
        part, width = self.frames.tangents[c], self.frames.width(c)
        slips = [SLIP, SLIP_BACK] if width == 1 else [SLIP] if width == 2 else []
        if width == 1:
            # A contact that slips keeps its direction. One that begins to slip does so against its friction force.
            backwards = (
                node.detail.direction[part][0] < 0 if node.detail.held[c] else y[self.frames.count :][part][0] > 0
            )
            slips = slips[::-1] if backwards else slips
        # Normal force negative: the contact opens, whatever its friction does.
        if kind == 1:
            near = [FREE]
        # The contact slides already: its direction of slip is that of its velocity and cannot be chosen.
        elif local.held[c]:
            near = [slips[0], STICK]
        elif kind == 0:
            near = [STICK, *slips] if width else [CLOSED]
        else:
            near = [*slips, STICK] if kind == 3 else [STICK, *slips]
        return [(*modes[:c], new, *modes[c + 1 :]) for new in near if new != modes[c]]

    def after(self, modes: Mode, guard: int | None, x: np.ndarray, y: np.ndarray, p: np.ndarray) -> Mode:
        """Return the modes to try first after an event: the contact whose guard became zero changes its mode."""
        if guard is None:
            return modes
        c, kind = guard % self.frames.count, guard // self.frames.count
        if kind == 2:
            return self._stick_together(modes, c, x, p)
        if kind == 1:
            new = FREE
        elif kind == 3:
            tangential = y[self.frames.count :][self.frames.tangents[c]]
            new = SLIP_BACK if self.frames.width(c) == 1 and tangential[0] > 0 else SLIP
        elif self.system.mechanics.frames_at(p).restitution[c] > 0:
            new = FREE  # it bounces: its small gap rate must not be taken for the drift of a closed contact
        else:
            new = STICK if self.frames.width(c) else CLOSED
        return (*modes[:c], new, *modes[c + 1 :])

    def _stick_together(self, modes: Mode, contact: int, x: np.ndarray, p: np.ndarray) -> Mode:
        """Return modes in which all contacts that stop at the same time stick.

        Where forces are not unique, slip with zero speed would be admissible too.
        """
        stops = self.speeds(x, p) <= RESTING
        stops[contact] = True
        return tuple(STICK if stop and mode >= SLIP else mode for mode, stop in zip(modes, stops, strict=True))

    def forces(self, y: np.ndarray, masks: np.ndarray, p: np.ndarray) -> list[np.ndarray]:
        """Return normal forces, friction forces and drift multipliers of y (m, n_y) with masks (m, n_masks)."""
        if not len(y):
            return [np.zeros((0, n)) for n in (self.frames.count, self.frames.n_t, self.frames.count)]
        return [part.T for part in self._forces(len(y))(y, masks, p)]

    # --- slip in space close to a stop, where its direction turns fast ---

    def consistent_branch(self, y_left: np.ndarray, y: np.ndarray, modes: Sequence[int]) -> np.ndarray:
        """Return stage values y (m, n_y) whose directions of slip do not reverse from stage to stage.

        A particle that should have stopped can satisfy the equations by slipping back (s > 0, d reversed). With d
        reversed again its guard, the velocity along d, is negative, and the stop is recognised.
        """
        slips = self._spatial_slips(modes)
        if not slips:
            return y
        y, n_c, n_t = y.copy(), self.frames.count, self.frames.n_t
        for c in slips:
            at = slice(n_c + self.frames.tangents[c].start, n_c + self.frames.tangents[c].stop)
            before = y_left[at]
            for row in y:
                if row[at] @ before < 0 and row[n_c + n_t + self.frames.speeds[c]] > 0:
                    row[at] *= -1.0
                before = row[at]
        return y

    def turning_branch(self, x: np.ndarray, y: np.ndarray, p: np.ndarray, modes: Sequence[int]) -> np.ndarray | None:
        """Return stage values y (m, n_y) whose directions of slip are those of the velocities at x (m, n_x).

        Near a stop the direction of slip turns fast, and Newton's method may converge to the branch with s < 0, on
        which friction drives the motion. Returns None if no contact slips in space.
        """
        slips = self._spatial_slips(modes)
        if not slips:
            return None
        y, n_c, n_t = y.copy(), self.frames.count, self.frames.n_t
        rates = np.asarray(self._slips(x.T, p).full()).T
        for c in slips:
            part = self.frames.tangents[c]
            size = np.linalg.norm(rates[:, part], axis=1)
            moves = size > 0
            y[moves, n_c + part.start : n_c + part.stop] = rates[moves, part] / size[moves, None]
            y[:, n_c + n_t + self.frames.speeds[c]] = size
        return y

    def speeds(self, x: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Return the slip speeds (n_c,) of all contacts at a state [m/s]; zero without friction."""
        rates = self._slips_at(x, p)[0][:, 0]
        return np.array([np.linalg.norm(rates[part]) for part in self.frames.tangents])

    def ambiguous_guards(self, modes: Sequence[int]) -> list[int]:
        """Return guards whose zero does not distinguish a slip reversal from a stick event."""
        return [2 * self.frames.count + c for c in self._spatial_slips(modes)]

    def on_turning_branch(self, y: np.ndarray, modes: Sequence[int]) -> bool:
        """Return True if the slip speeds at all stages (m, n_y) are positive, so that friction opposes the motion."""
        first = self.frames.count + self.frames.n_t
        return all((y[:, first + self.frames.speeds[c]] > 0).all() for c in self._spatial_slips(modes))

    def _spatial_slips(self, modes: Sequence[int]) -> list[int]:
        return [c for c, mode in enumerate(modes) if mode == SLIP and self.frames.width(c) == 2]

    # --- nodes ---

    def _at(self, x: np.ndarray, u: np.ndarray, p: np.ndarray) -> Kinematics:
        return self.system.mechanics.at(x, u, p)

    def _impact(
        self, x: np.ndarray, at: Kinematics, closed: Mode, p: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray] | Trouble:
        """Return state and impulses after an impact, or the reason why no impulses are admissible."""
        frames = self.system.mechanics.frames_at(p)
        problem = impact_problem(frames, at, closed, self.rest_velocity)
        plain = [CLOSED if c in closed else FREE for c in range(frames.count)]
        # Without friction all admissible impulses give the same velocities: try first that all closed contacts act.
        frictionless = all(not frames.width(c) for c in closed)
        solution = self._solver.solve(problem, [plain] if frictionless else [])
        if solution is None:
            return Trouble.IMPACT
        after = np.array(x)
        after[self.system.at_v] += at.response @ solution.forces
        # Newton's restitution with friction may gain energy in some configurations (Kane's paradox): refuse these.
        if raises_energy(solution.forces, at.rates, at.rates_of(after[self.system.at_v])):
            return Trouble.ENERGY
        impulses = np.concatenate([solution.forces[: frames.count], frames.weights * solution.forces[frames.count :]])
        return after, impulses

    def _acceleration_problem(
        self, at: Kinematics, closed: Mode, hint: Sequence[int] | None, p: np.ndarray
    ) -> ContactProblem:
        """Return the acceleration problem of the closed contacts that do not separate."""
        # Closed contacts that separate faster than rounding do not take part: their force is zero.
        slow = RESTING * at.steepness
        if not self.gap_rate and hint is not None:
            # Without the gap rate, closed contacts have small gap rates at the ends of elements and still stay closed.
            drifting = np.asarray(hint) != FREE
            slow[drifting] = DRIFTING * at.steepness[drifting]
        frames = self.system.mechanics.frames_at(p)
        return acceleration_problem(frames, at, [c for c in closed if at.rates[c] <= slow[c]], RESTING)

    def _stage_unknowns(self, at: Kinematics, solution: ContactSolution) -> np.ndarray:
        """Return the stage unknowns y (n_y,) of the solution of a contact problem."""
        frames, n_c = self.frames, self.frames.count
        y = np.zeros(self.equations.y.shape[0])
        y[: solution.unknowns.size] = solution.unknowns
        slips = at.rates[n_c:]
        for c, speed in enumerate(frames.speeds):
            if speed >= 0 and solution.modes[c] == SLIP:
                y[n_c + frames.n_t + speed] = float(np.linalg.norm(slips[frames.tangents[c]]))
            elif speed >= 0:
                y[n_c + frames.n_t + speed] = 0.0
        if not has_constant_mass(self.system):
            # The engine's y contains the accelerations here, which the contact problem has eliminated.
            y[-self.system.n_v :] = np.linalg.solve(at.mass, at.force + at.jacobian.T @ solution.forces)
        return y

    def _failed_node(self, x: np.ndarray, trouble: Trouble, message: str, closed: Mode) -> ElementNode:
        names = ", ".join(self.names[c] for c in closed)
        return ElementNode(
            x_minus=x,
            x_left=x,
            jump=np.zeros(self.jumps),
            y=np.zeros(self.equations.y.shape[0]),
            trouble=trouble,
            message=f"{message} at {names}",
            place=names,
        )
