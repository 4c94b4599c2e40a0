"""Exact simulations of a control as iterates of the finite elements, and their derivatives by the control."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.implicit_function import gradient
from nosnoc_py.mpcc.branch import Branch, guess_branch
from nosnoc_py.roles import Role
from nosnoc_py.simulation.newton.stepper import NewtonStepper
from nosnoc_py.transcription import Transcription, gap_rate_of, rest_velocity_of, transcribe_step

# An event that is too many costs this much more than its distance from the end of the stage (in nominal elements), so
# that it does not stop there.
MARGIN = 0.1


def _outward(nodes: np.ndarray, left: int, excess: int, n: int) -> np.ndarray:
    """How often each of n elements counts when `left` events leave a stage at its beginning, the others at its end."""
    counts = np.zeros(n)
    for node in nodes[:left]:
        counts[: node + 1] += 1.0
    for node in nodes[nodes.size - (excess - left) :]:
        counts[node + 1 :] += 1.0
    return counts


@dataclass(frozen=True, eq=False, kw_only=True)
class Rollout:
    """One exact simulation: the iterate of the finite elements that it is, and its objective.

    The objective holds penalties for violated constraints; a simulation that failed has no iterate and costs infinitely
    much.
    """

    w: np.ndarray | None
    objective: float


class Rollouts:
    """Simulates controls of one OCP on its own finite elements, and differentiates them; built once.

    The objective has penalties: `weight` times the squares of violated constraints, and, where more than `events`
    events fall into a control stage, times the distance [s] to the ends of the stage of those that are too many.
    """

    def __init__(self, problem: Transcription, weight: float, events: int | None = None) -> None:
        self.problem, self._weight, self._events = problem, weight, events
        self.embedding = Embedding(problem)
        self.elements = len(problem.elements) // problem.fesdj.control_stages
        mpcc = problem.mpcc
        blocks = [block.rows for block in mpcc.variables.blocks(role=Role.CONTROL)]
        self._controls = np.concatenate([np.zeros(0, int), *[np.arange(rows.start, rows.stop) for rows in blocks]])
        self._others = np.setdiff1d(np.arange(mpcc.w0.size), self._controls)
        self._limited = np.zeros(mpcc.w0.size, bool)  # states: their bounds are constraints of the problem
        for block in mpcc.variables.blocks(role=Role.STATE):
            self._limited[block.rows] = block.at.element is not None
        self._constrained = np.zeros(mpcc.lbg.size, bool)
        for block in mpcc.constraints.blocks(role=Role.CONSTRAINT):
            self._constrained[block.rows] = True
        self._equations = (mpcc.lbg == mpcc.ubg) & ~self._constrained

    def __call__(self, u: np.ndarray) -> Rollout:
        """Simulate controls u (N, n_u)."""
        w = self.embedding(u)
        if w is None:
            return Rollout(w=None, objective=np.inf)
        mpcc = self.problem.mpcc
        at = self.problem.solvers.evaluator(w, mpcc.p0)
        beyond, out = self._violations(w, at.g)
        outside = float(beyond @ beyond + out @ out)
        crowded, _ = self._crowding(w, guess_branch(mpcc, at))
        return Rollout(w=w, objective=at.objective + self._weight * (outside + crowded))

    def _violations(self, w: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How far states are beyond their bounds, and constraints beyond theirs; with a sign."""
        m = self.problem.mpcc
        beyond = np.where(self._limited, w - np.clip(w, m.lbw, m.ubw), 0.0)
        return beyond, np.where(self._constrained, g - np.clip(g, m.lbg, m.ubg), 0.0)

    def _crowding(self, w: np.ndarray, branch: Branch) -> tuple[float, np.ndarray]:
        """How far [s] events that are too many in their stage are from its ends, and the derivative by w (n_w,)."""
        total, slope = 0.0, np.zeros(w.size)
        if self._events is None:
            return total, slope
        mpcc, n = self.problem.mpcc, self.elements
        nominal = self.problem.ocp.horizon / (self.problem.fesdj.control_stages * n)
        steps = np.array([block.start for block in mpcc.variables.blocks(role=Role.STEP)]).reshape(-1, n)
        equations = [block.start for block in mpcc.switched.blocks(role=Role.STEP_EQUILIBRATION)]
        equal = branch.r[equations].reshape(-1, n - 1)
        for rows, same in zip(steps, equal, strict=True):
            nodes = np.flatnonzero(~same)  # events lie between elements that need not be equal
            excess = nodes.size - self._events
            if excess <= 0:
                continue
            # Some go out at the beginning of the stage and the others at its end, whatever is nearest.
            share = [(k, _outward(nodes, k, excess, n)) for k in range(excess + 1)]
            _, counts = min(share, key=lambda item: float(item[1] @ w[rows]))
            total += nominal * (float(counts @ w[rows]) + MARGIN * excess)
            slope[rows] += nominal * counts
        return total, slope

    def gradient(self, here: Rollout) -> np.ndarray:
        """Derivatives of the objective by the controls (N n_u,), by the implicit function theorem.

        The equations of the simulation in its active set determine everything else; redundant ones do no harm.
        """
        assert here.w is not None
        problem, mpcc = self.problem, self.problem.mpcc
        at = problem.solvers.linearizer(here.w, mpcc.p0)
        values = problem.solvers.evaluator(here.w, mpcc.p0)
        branch = guess_branch(mpcc, values)
        beyond, out = self._violations(here.w, values.g)
        rows = at.jacobian.tocsr()
        _, crowding = self._crowding(here.w, branch)
        slope = at.grad + self._weight * (2 * (beyond + rows[: mpcc.lbg.size].T @ out) + crowding)
        held = np.flatnonzero(np.concatenate([self._equations, branch.G, branch.H, branch.r]))
        return gradient(rows[held], slope, self._others, self._controls)


class Embedding:
    """Iterates of an OCP in which its own finite elements simulate a control; built once.

    Steps of the simulation are the control stages of the problem: the same variables under the same names. An iterate
    satisfies every equation and complementarity; bounds of steps and states, and constraints, it need not satisfy.
    """

    def __init__(self, problem: Transcription) -> None:
        ocp, method = problem.ocp, problem.fesdj
        if isinstance(method.finite_elements, tuple):
            raise OptionError("finite_elements: MultiStart takes one number for all control stages, given a tuple.")
        self._problem = problem
        same = method.replace(
            gap_rate=gap_rate_of(method, ocp.system, simulation=False),
            rest_velocity=rest_velocity_of(method, simulation=False),
        )
        self._step = transcribe_step(ocp.system, same)
        self._stepper = NewtonStepper(self._step)
        size, layout = self._step.mpcc.w0.size, self._step.mpcc.variables
        self._source = np.zeros(problem.mpcc.w0.size, int)
        controls = problem.fesdj.control_stages * size
        for block in problem.mpcc.variables.blocks():
            k = block.at.stage or 0
            if block.role is Role.CONTROL:
                first = controls + k * ocp.system.n_u
            else:
                first = k * size + layout[block.name, 0, block.at.element, block.at.rk].start
            self._source[block.rows] = first + np.arange(len(block.components))

    def __call__(self, u: np.ndarray) -> np.ndarray | None:
        """Return w for controls u (N, n_u), or None where a step fails."""
        ocp, parameters = self._problem.ocp, self._step.mpcc.parameters
        x, parts = np.asarray(ocp.x0), []
        for row in u:
            values = self._step.mpcc.p0.copy()
            values[parameters["x0"]], values[parameters["p"]], values[parameters["u"]] = x, ocp.p, row
            values[parameters["horizon"]] = ocp.horizon / len(u)
            found = self._stepper(values, None)
            if found.w is None:
                return None
            x = found.x
            parts.append(found.w)
        return np.concatenate([*parts, u.reshape(-1)])[self._source]
