"""What the active-set Newton method has to know about contacts: equations per mode, guards, and what happens at nodes.

A stage of a contact system has the algebraic unknowns y = (lambda_n, y_t, s, tau, a): normal forces, per tangent the
friction force (stick) or the direction of slip (slip in space), slip speeds, drift multipliers of the gap rate
(q' = v + sum n tau, so that gap and gap rate both vanish in a closed contact) and, where M depends on q or p,
accelerations. Masks choose the rows of the modes, so that one function serves all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import casadi as ca
import numpy as np

from nosnoc_py.simulation.contact_problem import (
    CLOSED,
    FREE,
    SLIP,
    SLIP_BACK,
    STICK,
    ContactFrames,
    LocalForces,
    LocalProblem,
    LocalSolver,
    friction_rows,
)
from nosnoc_py.systems.cls import CLS

# Gaps [m] below this are closed, rates [m/s] below it are zero.
TOUCHING = 1e-9
RESTING = 1e-9
DRIFTING = 1e-3
KINDS = ("touch", "release", "end of slip", "start of slip")


@dataclass(frozen=True, eq=False, kw_only=True)
class StageEquations:
    """The equations of one stage, of any system whose modes are chosen by masks.

    Attributes
    ----------
    x, y, u, p, masks : SX
        States, algebraic unknowns, controls, parameters, mode.
    flow : SX
        x'.
    rows : SX, as many as y
        Algebraic equations.
    guards : SX
        Nonnegative as long as the mode lasts (those of them that the mode watches).
    """

    x: ca.SX
    y: ca.SX
    u: ca.SX
    p: ca.SX
    masks: ca.SX
    flow: ca.SX
    rows: ca.SX
    guards: ca.SX


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """What happens at the left boundary of an element.

    Attributes
    ----------
    x_minus, x_left : (n_x,)
        State before and after the jump.
    jump : (n_c + n_tt,)
        Impulses, normal then tangential.
    modes : tuple of int
        Modes after the node.
    y : (n_y,)
        Algebraic unknowns right after the node, in these modes.
    message, contact : str
        Why no motion goes on from here, and at which contacts; "" when one does.
    """

    x_minus: np.ndarray
    x_left: np.ndarray
    jump: np.ndarray
    modes: tuple[int, ...] = ()
    y: np.ndarray
    message: str = ""
    contact: str = ""
    local: LocalProblem | None = None


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

    def __init__(self, system: CLS, *, gap_rate: bool = True, rest_velocity: float = 1e-3) -> None:
        self.system, self.gap_rate, self.rest_velocity = system, gap_rate, rest_velocity
        self.frames = _frames(system)
        self.names = self.frames.names
        self.equations = _equations(system, self.frames, gap_rate)
        self._solver = LocalSolver(self.frames)
        self._data = _node_data(system, self.frames)
        tangential = _directions(system, self.frames)[2].T @ system.v
        self._rates = ca.Function("rates", [system.x, system.p], [tangential])
        self._forces = _forces(self.equations, self.frames, gap_rate)

    # --- what the engine asks ---

    def masks(self, modes: Sequence[int]) -> np.ndarray:
        """Numbers that choose the rows of the modes."""
        return self.frames.masks(modes)

    def watched(self, modes: Sequence[int]) -> np.ndarray:
        """Which guards have a meaning in these modes (4 n_c,)."""
        kinds = np.asarray(modes, dtype=int)
        return np.concatenate([kinds == FREE, kinds != FREE, kinds >= SLIP, kinds == STICK])

    def tolerances(self, guards: np.ndarray, y: np.ndarray, h: float) -> np.ndarray:
        """Violations that are rounding, for guards (4 n_c, samples) on elements of length h."""
        n_c = self.frames.count
        force = 1.0 + np.abs(y[: n_c + self.frames.weights.size]).max(initial=0.0)
        gaps, slips = (1.0 + np.abs(part).max(initial=0.0) for part in (guards[:n_c], guards[2 * n_c : 3 * n_c]))
        noise = 1e-9 * force + 1e-14 * slips / h
        return np.repeat([1e-11 * gaps, noise, 1e-11 * slips, noise * force], n_c)

    def nearest(self) -> np.ndarray:
        """Relative times (4 n_c,) before which a violation means a wrong mode: forces change with the mode at once."""
        return np.repeat([1e-9, 1e-6, 1e-9, 1e-6], self.frames.count)

    def describe(self, guard: int) -> tuple[str, str]:
        """Name of the contact and kind of the event of a guard."""
        return self.names[guard % self.frames.count], KINDS[guard // self.frames.count]

    def coherent(self, y_left: np.ndarray, y: np.ndarray, modes: Sequence[int]) -> np.ndarray:
        """Stage values y (m, n_y) whose directions of slip do not reverse.

        A particle that should have stopped may be found to slip back instead (s > 0, d reversed): then its guard, the
        velocity along d, has to be negative, as it is for a negative speed.
        """
        y, n_c, n_t = y.copy(), self.frames.count, self.frames.weights.size
        for c in self._spatial_slips(modes):
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
        y, n_c, n_t = y.copy(), self.frames.count, self.frames.weights.size
        rates = np.asarray(self._rates(x.T, p).full()).T
        for c in slips:
            part = self.frames.tangents[c]
            size = np.linalg.norm(rates[:, part], axis=1)
            moves = size > 0
            y[moves, n_c + part.start : n_c + part.stop] = rates[moves, part] / size[moves, None]
            y[:, n_c + n_t + self.frames.speeds[c]] = size
        return y

    def blind(self, modes: Sequence[int]) -> list[int]:
        """The guards that cannot tell a sharp turn from a stop."""
        return [2 * self.frames.count + c for c in self._spatial_slips(modes)]

    def slips_on(self, y: np.ndarray, modes: Sequence[int]) -> bool:
        """Whether the slip speeds of all stages (m, n_y) are positive."""
        first = self.frames.count + self.frames.weights.size
        return all((y[:, first + self.frames.speeds[c]] > 0).all() for c in self._spatial_slips(modes))

    def _spatial_slips(self, modes: Sequence[int]) -> list[int]:
        return [c for c, mode in enumerate(modes) if mode == SLIP and self.frames.width(c) == 2]

    def node(self, x: np.ndarray, u: np.ndarray, p: np.ndarray, hint: Sequence[int] | None) -> Node:
        """Impact, then the modes of the motion that follows."""
        gaps, jacobian, mass, _, _ = self._read(x, u, p)
        closed = tuple(int(c) for c in np.flatnonzero(gaps <= TOUCHING))
        after, jump, failure = x, np.zeros(jacobian.shape[0]), ""
        normal = (jacobian @ x[self.system.n_q :])[: self.frames.count]
        if any(normal[c] < -RESTING for c in closed):
            after, jump, failure = self._impact(x, jacobian, mass, closed)
        if failure:
            return self._failed(x, jump, failure, closed)
        local = self._acceleration_problem(after, u, p, closed, hint)
        found = self._solver.solve(local, [] if hint is None else [hint])
        if found is None:
            return self._failed(x, jump, "no admissible acceleration", closed)
        y = self._algebraic(after, u, p, found)
        return Node(x_minus=x, x_left=after, jump=jump, modes=found.modes, y=y, local=local)

    def guess(self, node: Node, modes: Sequence[int], u: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Algebraic unknowns right after a node in other modes."""
        assert node.local is not None
        return self._algebraic(node.x_left, u, p, self._solver.in_modes(node.local, modes))

    def pivots(self, node: Node, modes: tuple[int, ...], guard: int, y: np.ndarray) -> list[tuple[int, ...]]:
        """Modes to try when a guard is violated at once, the likeliest first."""
        c, kind = guard % self.frames.count, guard // self.frames.count
        assert node.local is not None
        part, width = self.frames.tangents[c], self.frames.width(c)
        slips = [SLIP, SLIP_BACK] if width == 1 else [SLIP] if width == 2 else []
        if width == 1:
            # Friction lies opposite to the slip it gives way to; what slips already goes on as it does.
            backwards = node.local.direction[part][0] < 0 if node.local.held[c] else y[self.frames.count :][part][0] > 0
            slips = slips[::-1] if backwards else slips
        if kind == 1:
            near = [FREE]
        elif node.local.held[c]:
            near = [slips[0], STICK]
        elif kind == 0:
            near = [STICK, *slips] if width else [CLOSED]
        else:
            near = [*slips, STICK] if kind == 3 else [STICK, *slips]
        return [(*modes[:c], new, *modes[c + 1 :]) for new in near if new != modes[c]]

    def after(self, modes: tuple[int, ...], guard: int | None, y: np.ndarray) -> tuple[int, ...]:
        """Modes to try first after an event: the other mode of the contact whose guard became zero."""
        if guard is None:
            return modes
        c, kind = guard % self.frames.count, guard // self.frames.count
        new = modes[c]
        if kind == 1:
            new = FREE
        elif kind == 3:
            tangential = y[self.frames.count :][self.frames.tangents[c]]
            new = SLIP_BACK if self.frames.width(c) == 1 and tangential[0] > 0 else SLIP
        elif kind == 2 or self.frames.width(c):
            new = STICK
        else:
            new = CLOSED
        return (*modes[:c], new, *modes[c + 1 :])

    def forces(self, y: np.ndarray, modes: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Normal forces, friction forces and drift multipliers of stage values y (m, n_y), one row each."""
        out = self._forces(y.T, self.masks(modes))
        normal, tangential, drift = (np.asarray(part.full()).T for part in out)
        return normal, tangential, drift

    # --- nodes ---

    def _read(self, x: np.ndarray, u: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, ...]:
        gaps, jacobian, mass, force, curvature = (np.asarray(out.full()) for out in self._data(x, u, p))
        return gaps.reshape(-1), jacobian, mass, force.reshape(-1), curvature.reshape(-1)

    def _impact(
        self, x: np.ndarray, jacobian: np.ndarray, mass: np.ndarray, closed: tuple[int, ...]
    ) -> tuple[np.ndarray, np.ndarray, str]:
        """State and impulses after an impact, and a message when there is none."""
        frames, n_q = self.frames, self.system.n_q
        before = jacobian @ x[n_q:]
        response = np.linalg.solve(mass, jacobian.T)
        normal = before[: frames.count]
        bounce = np.where(np.abs(normal) > self.rest_velocity, frames.restitution, 0.0) * normal
        offset = before.copy()
        offset[: frames.count] += bounce
        problem = LocalProblem(
            delassus=jacobian @ response,
            offset=offset,
            least=np.maximum(bounce, 0.0),
            active=closed,
            held=np.zeros(frames.count, dtype=bool),
            direction=np.zeros(frames.weights.size),
        )
        found = self._solver.solve(problem)
        if found is None:
            return x, np.zeros(before.size), "no admissible impact"
        after = np.concatenate([x[:n_q], x[n_q:] + response @ found.forces])
        return after, np.concatenate([found.forces[: frames.count], self._weigh(found.forces)]), ""

    def _weigh(self, forces: np.ndarray) -> np.ndarray:
        """Tangential forces in the user's directions."""
        return np.asarray(self.frames.weights * forces[self.frames.count :])

    def _acceleration_problem(
        self, x: np.ndarray, u: np.ndarray, p: np.ndarray, closed: tuple[int, ...], hint: Sequence[int] | None
    ) -> LocalProblem:
        frames = self.frames
        _, jacobian, mass, force, curvature = self._read(x, u, p)
        rates = jacobian @ x[self.system.n_q :]
        slow = np.full(frames.count, RESTING)
        if not self.gap_rate and hint is not None:
            # Without the gap rate closed contacts drift apart a little at the ends of elements.
            slow[np.asarray(hint) != FREE] = DRIFTING
        response = np.linalg.solve(mass, np.column_stack([jacobian.T, force]))
        held, direction = np.zeros(frames.count, dtype=bool), np.zeros(frames.weights.size)
        for c, part in enumerate(frames.tangents):
            slip = rates[frames.count :][part]
            size = float(np.linalg.norm(slip))
            if size > RESTING:
                held[c], direction[part] = True, slip / size
        return LocalProblem(
            delassus=jacobian @ response[:, :-1],
            offset=jacobian @ response[:, -1] + curvature,
            least=np.zeros(frames.count),
            active=tuple(c for c in closed if rates[c] <= slow[c]),
            held=held,
            direction=direction,
        )

    def _algebraic(self, x: np.ndarray, u: np.ndarray, p: np.ndarray, found: LocalForces) -> np.ndarray:
        """Stage unknowns y from the solution of a contact problem."""
        frames, n_c = self.frames, self.frames.count
        _, jacobian, mass, force, _ = self._read(x, u, p)
        y = np.zeros(self.equations.y.shape[0])
        y[: found.unknowns.size] = found.unknowns
        slips = (jacobian @ x[self.system.n_q :])[n_c:]
        for c, speed in enumerate(frames.speeds):
            if speed >= 0 and found.modes[c] == SLIP:
                y[n_c + frames.weights.size + speed] = float(np.linalg.norm(slips[frames.tangents[c]]))
            elif speed >= 0:
                y[n_c + frames.weights.size + speed] = 0.0
        if not _constant_mass(self.system):
            y[-self.system.n_q :] = np.linalg.solve(mass, force + jacobian.T @ found.forces)
        return y

    def _failed(self, x: np.ndarray, jump: np.ndarray, message: str, closed: tuple[int, ...]) -> Node:
        names = ", ".join(self.names[c] for c in closed)
        return Node(
            x_minus=x,
            x_left=x,
            jump=jump,
            y=np.zeros(self.equations.y.shape[0]),
            message=f"{message} at {names}",
            contact=names,
        )


def _frames(system: CLS) -> ContactFrames:
    tangents, speeds, weights, friction = [], [], [], []
    position = spatial = 0
    for contact in system.contacts:
        size = contact.tangent.shape[1] if contact.frictional else 0
        tangents.append(slice(position, position + size))
        speeds.append(spatial if size == 2 else -1)
        friction.append(max(contact.friction))
        weights += [mu / friction[-1] for mu in contact.friction[:size]]
        position, spatial = position + size, spatial + (size == 2)
    return ContactFrames(
        names=tuple(contact.name for contact in system.contacts),
        friction=np.array(friction),
        restitution=np.array([contact.restitution for contact in system.contacts]),
        tangents=tuple(tangents),
        speeds=tuple(speeds),
        weights=np.array(weights),
    )


def _directions(system: CLS, frames: ContactFrames) -> tuple[ca.SX, ca.SX, ca.SX]:
    """Gaps (n_c), normals (n_q, n_c) and weighted tangents (n_q, n_tt)."""
    gaps = ca.vertcat(ca.SX(0, 1), *[contact.gap for contact in system.contacts])
    normals = ca.horzcat(ca.SX(system.n_q, 0), *[system.normal(contact) for contact in system.contacts])
    tangents = [contact.tangent for contact in system.contacts if contact.frictional]
    weighted = ca.horzcat(ca.SX(system.n_q, 0), *tangents) @ ca.SX(ca.diag(ca.DM(frames.weights)))
    return gaps, ca.densify(normals), ca.densify(weighted)


def _constant_mass(system: CLS) -> bool:
    return bool(system.mass_matrix.is_constant())


def _equations(system: CLS, frames: ContactFrames, gap_rate: bool) -> StageEquations:
    n_c, n_t, n_s, n_q = frames.count, frames.weights.size, frames.spatial, system.n_q
    gaps, normals, tangents = _directions(system, frames)
    normal, tangential, speed = ca.SX.sym("lambda_n", n_c), ca.SX.sym("y_t", n_t), ca.SX.sym("s", n_s)
    tau = ca.SX.sym("tau", n_c if gap_rate else 0)
    constant = _constant_mass(system)
    acceleration = ca.SX.sym("a", 0 if constant else n_q)
    masks = ca.SX.sym("masks", 3 * n_c)
    closed, slip = masks[:n_c], masks[2 * n_c :]
    approach, rates = normals.T @ system.v, tangents.T @ system.v
    friction, rows = friction_rows(frames, masks, normal, tangential, speed, rates)
    force = system.force + normals @ normal + tangents @ friction
    rows = ca.vertcat(closed * gaps + (1 - closed) * normal, rows)
    if gap_rate:
        rows = ca.vertcat(rows, closed * approach + (1 - closed) * tau)
    if not constant:
        rows = ca.vertcat(rows, system.mass_matrix @ acceleration - force)
    flow = ca.vertcat(
        system.v + (normals @ tau if gap_rate else 0),
        ca.DM(np.linalg.inv(np.array(ca.DM(system.mass_matrix)))) @ force if constant else acceleration,
    )
    slips, slacks = [], []
    for c, part in enumerate(frames.tangents):
        along = slip[c] * rates[part] if frames.width(c) == 1 else ca.dot(rates[part], tangential[part])
        slips.append(along if frames.width(c) else ca.SX(0))
        slacks.append((frames.friction[c] * normal[c]) ** 2 - ca.sumsqr(tangential[part]))
    return StageEquations(
        x=system.x,
        y=ca.vertcat(normal, tangential, speed, tau, acceleration),
        u=system.u,
        p=system.p,
        masks=masks,
        flow=flow,
        rows=rows,
        guards=ca.vertcat(gaps, normal, *slips, *slacks),
    )


def _forces(equations: StageEquations, frames: ContactFrames, gap_rate: bool) -> ca.Function:
    """Normal forces, friction forces in the user's directions, drift multipliers of a stage."""
    n_c, n_t, n_s = frames.count, frames.weights.size, frames.spatial
    y = equations.y
    normal, tangential, speed = y[:n_c], y[n_c : n_c + n_t], y[n_c + n_t : n_c + n_t + n_s]
    force, _ = friction_rows(frames, equations.masks, normal, tangential, speed, ca.SX.zeros(n_t))
    rest = y[n_c + n_t + n_s :]
    drift = rest[:n_c] if gap_rate else ca.SX.zeros(n_c)
    return ca.Function("forces", [y, equations.masks], [normal, ca.DM(frames.weights) * force, drift])


def _node_data(system: CLS, frames: ContactFrames) -> ca.Function:
    """Gaps, directions J' = (n, t), M, forces, and the rate of change J'' v of the directions along the motion."""
    gaps, normals, tangents = _directions(system, frames)
    jacobian = ca.horzcat(normals, tangents).T
    curvature = ca.jtimes(jacobian @ system.v, system.q, system.v)
    outputs = [gaps, jacobian, system.mass_matrix, system.force, curvature]
    return ca.Function("node_data", [system.x, system.u, system.p], outputs)
