"""Exact simulations of a control as iterates of the finite elements, and their derivatives by the control.

A simulation by Newton's method on the problem's own finite elements, stage by stage, satisfies all equations and
complementarities of the MPCC; only constraints and bounds may be violated, which a penalty adds to the objective. In
its active set (branch) everything else is an implicit function of the controls, so that the gradient of the penalised
objective needs one adjoint solve (implicit function theorem). It is exact within one sequence of events; between
sequences the objective is continuous, but has kinks.

A stage has a fixed number of elements, hence a largest number of events. A simulation with more elements than the
problem can hold more events; a penalty on those that are too many then leads the descent back to the problem's grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.implicit_function import gradient
from nosnoc_py.mpcc.branch import Branch, guess_branch
from nosnoc_py.roles import Role
from nosnoc_py.simulation.newton.stepper import NewtonStepper
from nosnoc_py.transcription import Transcription, gap_rate_of, rest_velocity_of, transcribe_step

# Additional penalty of an event too many, in nominal element lengths beyond its distance from the end of the stage: the
# penalty then does not vanish before the event has left the stage.
MARGIN = 0.1


def _element_counts(nodes: np.ndarray, left: int, excess: int, n: int) -> np.ndarray:
    """Return how often each of n elements counts if `left` events leave at the beginning and the others at the end."""
    counts = np.zeros(n)
    for node in nodes[:left]:
        counts[: node + 1] += 1.0
    for node in nodes[nodes.size - (excess - left) :]:
        counts[node + 1 :] += 1.0
    return counts


@dataclass(frozen=True, eq=False, kw_only=True)
class Rollout:
    """One exact simulation as an iterate of the finite elements.

    Attributes
    ----------
    w : (n_w,) or None
        Iterate of the MPCC; None if the simulation failed.
    objective : float
        Objective with penalties for violated constraints; infinite if the simulation failed.
    """

    w: np.ndarray | None
    objective: float


class Rollouts:
    """Simulate controls of one OCP on its own finite elements, with gradients of the penalised objective.

    Parameters
    ----------
    problem : Transcription
        By FESD-J, with the same number of elements in every control stage.
    weight : float
        Penalty weight of squared constraint violations, and of the excess events.
    events : int, optional
        Largest number of events per control stage without a penalty. Where there are more, each one too many costs its
        distance [s] from the nearer end of the stage. None: no penalty.
    """

    def __init__(self, problem: Transcription, weight: float, events: int | None = None) -> None:
        self.problem, self._weight, self._events = problem, weight, events
        self.iterate_of = IterateBuilder(problem)
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
        w = self.iterate_of(u)
        if w is None:
            return Rollout(w=None, objective=np.inf)
        mpcc = self.problem.mpcc
        at = self.problem.solvers.evaluator(w, mpcc.p0)
        beyond, out = self._violations(w, at.g)
        outside = float(beyond @ beyond + out @ out)
        excess, _ = self._excess_events(w, guess_branch(mpcc, at))
        return Rollout(w=w, objective=at.objective + self._weight * (outside + excess))

    def _violations(self, w: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return signed violations of the bounds of states (n_w,) and of the constraints (n_g,)."""
        m = self.problem.mpcc
        beyond = np.where(self._limited, w - np.clip(w, m.lbw, m.ubw), 0.0)
        return beyond, np.where(self._constrained, g - np.clip(g, m.lbg, m.ubg), 0.0)

    def _excess_events(self, w: np.ndarray, branch: Branch) -> tuple[float, np.ndarray]:
        """Return the penalty of excess events (distance from the ends of the stage [s]) and its gradient (n_w,)."""
        total, slope = 0.0, np.zeros(w.size)
        if self._events is None:
            return total, slope
        mpcc, n = self.problem.mpcc, self.elements
        nominal = self.problem.ocp.horizon / (self.problem.fesdj.control_stages * n)
        steps = np.array([block.start for block in mpcc.variables.blocks(role=Role.STEP)]).reshape(-1, n)
        equations = [block.start for block in mpcc.switched.blocks(role=Role.STEP_EQUILIBRATION)]
        equal = branch.r[equations].reshape(-1, n - 1)
        for rows, same in zip(steps, equal, strict=True):
            nodes = np.flatnonzero(~same)  # elements beside an event need not be equally long
            excess = nodes.size - self._events
            if excess <= 0:
                continue
            # Try all splits between the beginning and the end of the stage, and take the one with the least distance.
            share = [(k, _element_counts(nodes, k, excess, n)) for k in range(excess + 1)]
            _, counts = min(share, key=lambda item: float(item[1] @ w[rows]))
            total += nominal * (float(counts @ w[rows]) + MARGIN * excess)
            slope[rows] += nominal * counts
        return total, slope

    def gradient(self, rollout: Rollout) -> np.ndarray:
        """Return the gradient of the objective by the controls (N n_u,), by the implicit function theorem.

        The equations of the simulation in its active set determine all other unknowns; redundant ones are allowed.
        """
        assert rollout.w is not None
        problem, mpcc = self.problem, self.problem.mpcc
        at = problem.solvers.linearizer(rollout.w, mpcc.p0)
        values = problem.solvers.evaluator(rollout.w, mpcc.p0)
        branch = guess_branch(mpcc, values)
        beyond, out = self._violations(rollout.w, values.g)
        rows = at.jacobian.tocsr()
        _, excess = self._excess_events(rollout.w, branch)
        slope = at.grad + self._weight * (2 * (beyond + rows[: mpcc.lbg.size].T @ out) + excess)
        # Equations of the branch: equality rows, and the sides of complementarities and switched rows that are zero.
        active = np.flatnonzero(np.concatenate([self._equations, branch.G, branch.H, branch.r]))
        return gradient(rows[active], slope, self._others, self._controls)


class IterateBuilder:
    """Iterates of an OCP in which its own finite elements simulate a control.

    Steps of the simulation are the control stages of the problem, with the same variables under the same names. An
    iterate satisfies all equations and complementarities; it may violate constraints and bounds of states and steps.

    Parameters
    ----------
    problem : Transcription
        By FESD-J, with the same number of elements in every control stage.

    Raises
    ------
    OptionError
        If the numbers of elements differ between stages.
    """

    def __init__(self, problem: Transcription) -> None:
        ocp, method = problem.ocp, problem.fesdj
        if isinstance(method.finite_elements, tuple):
            raise OptionError("finite_elements: MultiStart takes one number for all control stages, given a tuple.")
        self._problem = problem
        # Gap rates and rest velocity as in the OCP, whose defaults differ from those of simulations.
        same = method.replace(
            gap_rate=gap_rate_of(method, ocp.system, simulation=False),
            rest_velocity=rest_velocity_of(method, simulation=False),
        )
        self._step = transcribe_step(ocp.system, same)
        self._stepper = NewtonStepper(self._step)
        size, layout = self._step.mpcc.w0.size, self._step.mpcc.variables
        # For every unknown of the OCP its position in the concatenated unknowns of the steps, followed by the controls.
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
        """Return w (n_w,) for controls u (N, n_u), or None if a step fails."""
        ocp, parameters = self._problem.ocp, self._step.mpcc.parameters
        x, parts = np.asarray(ocp.x0), []
        for row in u:
            values = self._step.mpcc.p0.copy()
            values[parameters["x0"]], values[parameters["p"]], values[parameters["u"]] = x, ocp.p, row
            values[parameters["horizon"]] = ocp.horizon / len(u)
            step = self._stepper(values, None)
            if step.w is None:
                return None
            x = step.x
            parts.append(step.w)
        return np.concatenate([*parts, u.reshape(-1)])[self._source]
