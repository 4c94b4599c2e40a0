"""Derivatives of simulated steps by initial state, control and parameters, and of chains of steps.

A step is a solution of the unrelaxed finite-element equations, whichever method solved it. The implicit function
theorem on its branch of the complementarities gives d x(end) / d (x0, u, p). Times of events are among the unknowns, so
that the jump of derivatives at a switch (saltation) is included.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from nosnoc_py.mpcc.implicit import Implicit
from nosnoc_py.roles import Role
from nosnoc_py.simulation.common import StepDerivative
from nosnoc_py.solution import Sensitivity
from nosnoc_py.transcription import Transcription

Array = np.ndarray
# An approach faster than this [m/s] with an impulse above IMPULSE [N s] at the start of a step is an impact there.
APPROACH = 1e-3
IMPULSE = 1e-9


class StepSensitivity:
    """Derivatives of steps of one program of `transcribe_step` (built once)."""

    def __init__(self, problem: Transcription) -> None:
        self.problem = problem
        system, layout = problem.ocp.system, problem.mpcc.parameters
        self._sizes = (len(system.state_names), system.n_u, system.n_p)
        columns = [k for name in ("x0", "u", "p") for k in range(layout.size)[layout[name]]]
        scale = np.concatenate([system.x_nominal, np.asarray(system.u_nominal, float), np.ones(system.n_p)])
        wanted = problem.elements[-1].x_right[: self._sizes[0]]
        self._implicit = Implicit(problem.mpcc, wanted, columns, self._sizes[0], scale, _poles(problem))

    def __call__(self, w: Array, values: Array) -> StepDerivative:
        """Return the derivatives of a step with solution w (n_w,) at the parameters (n_p_mpcc,) of its program."""
        n_x, n_u, _ = self._sizes
        solution_derivatives = self._implicit(w, values)
        x, u, p = np.split(solution_derivatives.values, [n_x, n_x + n_u], axis=1)
        return StepDerivative(
            x=x, u=u, p=p, keeps=solution_derivatives.kept, flags=(*self._hits(w, values), *solution_derivatives.flags)
        )

    def chain(self, steps: Sequence[StepDerivative]) -> Sensitivity:
        """Return derivatives of the state after consecutive steps, by x0, p and the control of each step.

        If the motion is not differentiable, flags name the step and derivatives are NaN.
        """
        n_x, n_u, n_p = self._sizes
        by_x, by_p, by_u = np.eye(n_x), np.zeros((n_x, n_p)), np.zeros((len(steps), n_x, n_u))
        for k, step in enumerate(steps):
            # Chain rule: a step multiplies all earlier derivatives and adds its own by p and by its control.
            by_x, by_p, by_u[:k] = step.x @ by_x, step.x @ by_p + step.p, step.x @ by_u[:k]
            by_u[k] = step.u
        flags = tuple(f"step {k + 1}: {flag}" for k, step in enumerate(steps) for flag in step.flags)
        # NaN and not zero: a derivative that does not exist must not be used unnoticed.
        lost = np.nan if flags else 0.0
        return Sensitivity(x0=by_x + lost, p=by_p + lost, u=by_u + lost, flags=flags)

    def _hits(self, w: Array, values: Array) -> Iterator[str]:
        """Yield impacts at the very start: rounding decides whether they belong to this step."""
        jump = self.problem.dcs.jump
        if jump is None:
            return
        watched = self.problem.read(w, values).impacts[0]
        for impact, (impulse, before, _) in zip(jump.impacts, watched, strict=True):
            if impulse > IMPULSE and before < -APPROACH:
                yield f"an impact of {impact.name} at the start"


def chained(parts: Sequence[StepDerivative]) -> StepDerivative:
    """Return the derivatives of several consecutive parts of a step with one control."""
    x, u, p = parts[0].x, parts[0].u, parts[0].p
    for part in parts[1:]:
        x, u, p = part.x @ x, part.x @ u + part.u, part.x @ p + part.p
    flags = tuple(flag for part in parts for flag in part.flags)
    # Only the first part begins at a state that the user may vary.
    return StepDerivative(x=x, u=u, p=p, keeps=parts[0].keeps, flags=flags)


def _poles(problem: Transcription) -> Array:
    """Return pairs of variables (n, 2) that are the radii of a polar friction cone: of its force and its slip."""
    forces, speeds = (problem.mpcc.variables.blocks(role=role) for role in (Role.FRICTION_RADIUS, Role.SLIP_SPEED))
    speed_at = {(block.of, block.at): block.start for block in speeds}
    return np.array([(force.start, speed_at[force.of, force.at]) for force in forces], int).reshape(-1, 2)
