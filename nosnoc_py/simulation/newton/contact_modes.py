"""What the active-set Newton method has to know about contacts: guards, events, and what happens at nodes.

The unknowns y of a stage are those of `contact_equations`.
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

# Gap rates [m/s] of closed contacts that finite elements without the gap rate leave.
DRIFTING = 1e-3
KINDS = ("touch", "release", "end of slip", "start of slip")


class ContactModes:
    """Modes of the contacts of a system.

    Parameters
    ----------
    system : CLS
    gap_rate : bool
        Whether closed contacts satisfy the gap rate besides the gap.
    rest_velocity : float
        Slower approaches do not bounce [m/s].
    """

    settles = False

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

    # --- what the engine asks ---

    def _watched(self, modes: Mode) -> np.ndarray:
        kinds = np.asarray(modes, dtype=int)
        return np.concatenate([kinds == FREE, kinds != FREE, kinds >= SLIP, kinds == STICK])

    def tolerances(self, guards: np.ndarray, y: np.ndarray, h: float) -> np.ndarray:
        """Violations that are rounding, or there from the start, for guards (4 n_c, samples) on lengths h."""
        n_c = self.frames.count
        force = 1.0 + np.abs(y[: n_c + self.frames.n_t]).max(initial=0.0)
        gaps, slips = (1.0 + np.abs(part).max(initial=0.0) for part in (guards[:n_c], guards[2 * n_c : 3 * n_c]))
        noise = 1e-9 * force + 1e-14 * slips / h
        rounding = np.repeat([1e-11 * gaps, noise, 1e-11 * slips, noise * force], n_c)
        return np.asarray(rounding + np.maximum(0.0, -guards[:, 0]))

    def nearest(self) -> np.ndarray:
        """Relative times (4 n_c,) before which a violation means a wrong mode: forces change with the mode at once."""
        return np.repeat([1e-9, 1e-6, 1e-9, 1e-6], self.frames.count)

    def places(self, modes: Mode) -> str:
        """Names of the closed contacts."""
        return ", ".join(name for name, mode in zip(self.names, modes, strict=True) if mode)

    def has_unique_forces(self, modes: Mode) -> bool:
        """One contact alone is not redundant."""
        return sum(mode != FREE for mode in modes) < 2

    def goes_on(self, x: np.ndarray, p: np.ndarray, modes: Mode) -> bool:
        """Whether what is open is so clearly, and what is closed does not approach."""
        gaps, rates, steepness = self.system.mechanics.touching(x, p)
        free = np.asarray(modes) == FREE
        return bool(np.where(free, gaps > TOUCHING * steepness, rates >= -RESTING * steepness).all())

    def describe(self, guard: int) -> tuple[str, str]:
        """Name of the contact and kind of the event of a guard."""
        return self.names[guard % self.frames.count], KINDS[guard // self.frames.count]

    def node(
        self, x: np.ndarray, u: np.ndarray, p: np.ndarray, hint: Sequence[int] | None, *, other_forces: bool = False
    ) -> ElementNode:
        """Impact, then the modes of the motion that follows."""
        at = self._at(x, u, p)
        closed = tuple(int(c) for c in np.flatnonzero(at.gaps <= TOUCHING * at.steepness))
        after, jump = x, np.zeros(at.rates.size)
        if any(at.rates[c] < -RESTING * at.steepness[c] for c in closed):
            impact = self._impact(x, at, closed, p)
            if isinstance(impact, Trouble):
                return self._failed(x, impact, impact.value, closed)
            after, jump = impact
            at = self._at(after, u, p)
        local = self._acceleration_problem(at, closed, hint, p)
        found = self._solver.solve(local, [] if hint is None else [hint])
        if found is None:
            return self._failed(x, Trouble.MODES, "no admissible acceleration", closed)
        y = self._algebraic(at, found)
        return ElementNode(x_minus=x, x_left=after, jump=jump, modes=found.modes, y=y, detail=local)

    def guess(self, node: ElementNode, modes: Sequence[int], u: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Algebraic unknowns right after a node in other modes."""
        assert node.detail is not None
        return self._algebraic(self._at(node.x_left, u, p), self._solver.in_modes(node.detail, modes))

    def pivots(self, node: ElementNode, modes: Mode, guard: int | None, y: np.ndarray) -> list[Mode]:
        """Modes to try when a guard is violated at once, the likeliest first."""
        if guard is None:
            return []
        c, kind = guard % self.frames.count, guard // self.frames.count
        local: ContactProblem = node.detail
        part, width = self.frames.tangents[c], self.frames.width(c)
        slips = [SLIP, SLIP_BACK] if width == 1 else [SLIP] if width == 2 else []
        if width == 1:
            # Friction lies opposite to the slip it gives way to; what slips already goes on as it does.
            backwards = (
                node.detail.direction[part][0] < 0 if node.detail.held[c] else y[self.frames.count :][part][0] > 0
            )
            slips = slips[::-1] if backwards else slips
        if kind == 1:
            near = [FREE]
        elif local.held[c]:
            near = [slips[0], STICK]
        elif kind == 0:
            near = [STICK, *slips] if width else [CLOSED]
        else:
            near = [*slips, STICK] if kind == 3 else [STICK, *slips]
        return [(*modes[:c], new, *modes[c + 1 :]) for new in near if new != modes[c]]

    def after(self, modes: Mode, guard: int | None, x: np.ndarray, y: np.ndarray, p: np.ndarray) -> Mode:
        """Modes to try first after an event: the other mode of the contact whose guard became zero."""
        if guard is None:
            return modes
        c, kind = guard % self.frames.count, guard // self.frames.count
        if kind == 2:
            return self._stopped(modes, c, x, p)
        if kind == 1:
            new = FREE
        elif kind == 3:
            tangential = y[self.frames.count :][self.frames.tangents[c]]
            new = SLIP_BACK if self.frames.width(c) == 1 and tangential[0] > 0 else SLIP
        elif self.system.mechanics.frames_at(p).restitution[c] > 0:
            new = FREE  # it bounces; however slowly, it is not the drift of what was closed before
        else:
            new = STICK if self.frames.width(c) else CLOSED
        return (*modes[:c], new, *modes[c + 1 :])

    def _stopped(self, modes: Mode, contact: int, x: np.ndarray, p: np.ndarray) -> Mode:
        """What stops together sticks together: where forces are not unique, slip at no speed is admissible too."""
        stops = self.speeds(x, p) <= RESTING
        stops[contact] = True
        return tuple(STICK if stop and mode >= SLIP else mode for mode, stop in zip(modes, stops, strict=True))

    def forces(self, y: np.ndarray, masks: np.ndarray, p: np.ndarray) -> list[np.ndarray]:
        """Normal forces, friction forces and drift multipliers of stage values y (m, n_y) in modes (m, n_masks)."""
        if not len(y):
            return [np.zeros((0, n)) for n in (self.frames.count, self.frames.n_t, self.frames.count)]
        return [part.T for part in self._forces(len(y))(y, masks, p)]

    # --- slip close to a stop, where its directions in space turn fast ---

    def coherent(self, y_left: np.ndarray, y: np.ndarray, modes: Sequence[int]) -> np.ndarray:
        """Stage values y (m, n_y) whose directions of slip do not reverse.

        A particle that should have stopped may be found to slip back instead (s > 0, d reversed): then its guard, the
        velocity along d, has to be negative, as it is for a negative speed.
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

    def turned(self, x: np.ndarray, y: np.ndarray, p: np.ndarray, modes: Sequence[int]) -> np.ndarray | None:
        """Stage values y (m, n_y) that slip where x (m, n_x) moves.

        Near a stop the direction of slip turns fast, and Newton's method may find the branch with s < 0, which friction
        drives. None when no contact slips in space.
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
        """Slip speeds of all contacts at a state, (n_c,); zero without friction."""
        rates = self._slips_at(x, p)[0][:, 0]
        return np.array([np.linalg.norm(rates[part]) for part in self.frames.tangents])

    def blind(self, modes: Sequence[int]) -> list[int]:
        """The guards that cannot tell a sharp turn from a stop."""
        return [2 * self.frames.count + c for c in self._spatial_slips(modes)]

    def goes_round(self, y: np.ndarray, modes: Sequence[int]) -> bool:
        """Whether the slip speeds of all stages (m, n_y) are positive."""
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
        """State and impulses after an impact, or why no impulses are admissible."""
        frames = self.system.mechanics.frames_at(p)
        problem = impact_problem(frames, at, closed, self.rest_velocity)
        plain = [CLOSED if c in closed else FREE for c in range(frames.count)]
        # Without friction impulses are unique as far as they matter, and those of all closed contacts the likeliest.
        frictionless = all(not frames.width(c) for c in closed)
        found = self._solver.solve(problem, [plain] if frictionless else [])
        if found is None:
            return Trouble.IMPACT
        after = np.array(x)
        after[self.system.at_v] += at.response @ found.forces
        if raises_energy(found.forces, at.rates, at.rates_of(after[self.system.at_v])):
            return Trouble.ENERGY
        impulses = np.concatenate([found.forces[: frames.count], frames.weights * found.forces[frames.count :]])
        return after, impulses

    def _acceleration_problem(
        self, at: Kinematics, closed: Mode, hint: Sequence[int] | None, p: np.ndarray
    ) -> ContactProblem:
        slow = RESTING * at.steepness
        if not self.gap_rate and hint is not None:
            # Without the gap rate closed contacts drift apart a little at the ends of elements.
            drifting = np.asarray(hint) != FREE
            slow[drifting] = DRIFTING * at.steepness[drifting]
        frames = self.system.mechanics.frames_at(p)
        return acceleration_problem(frames, at, [c for c in closed if at.rates[c] <= slow[c]], RESTING)

    def _algebraic(self, at: Kinematics, found: ContactSolution) -> np.ndarray:
        """Stage unknowns y from the solution of a contact problem."""
        frames, n_c = self.frames, self.frames.count
        y = np.zeros(self.equations.y.shape[0])
        y[: found.unknowns.size] = found.unknowns
        slips = at.rates[n_c:]
        for c, speed in enumerate(frames.speeds):
            if speed >= 0 and found.modes[c] == SLIP:
                y[n_c + frames.n_t + speed] = float(np.linalg.norm(slips[frames.tangents[c]]))
            elif speed >= 0:
                y[n_c + frames.n_t + speed] = 0.0
        if not has_constant_mass(self.system):
            y[-self.system.n_v :] = np.linalg.solve(at.mass, at.force + at.jacobian.T @ found.forces)
        return y

    def _failed(self, x: np.ndarray, trouble: Trouble, message: str, closed: Mode) -> ElementNode:
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
