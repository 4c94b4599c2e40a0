"""Derivatives of simulated steps with respect to their start, controls and parameters, and of chains of steps.

A step is a solution of the unrelaxed finite-element equations, whatever method found it; the implicit function theorem
on its branch gives d x(end) / d (x0, u, p). The times of events are among the unknowns: what happens at a switch (the
saltation) needs no formula of its own.
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
# An approach at the start of a step that is faster than this is an impact at the start [m/s].
APPROACH = 1e-3
IMPULSE = 1e-9


class StepSensitivity:
    """Derivatives of steps of one program, from `transcribe_step`; built once."""

    def __init__(self, problem: Transcription) -> None:
        self.problem = problem
        system, layout = problem.ocp.system, problem.mpcc.parameters
        self._sizes = (len(system.state_names), system.n_u, system.n_p)
        columns = [k for name in ("x0", "u", "p") for k in range(layout.size)[layout[name]]]
        scale = np.concatenate([system.x_nominal, np.asarray(system.u_nominal, float), np.ones(system.n_p)])
        wanted = problem.elements[-1].x_right[: self._sizes[0]]
        self._implicit = Implicit(problem.mpcc, wanted, columns, self._sizes[0], scale, _poles(problem))

    def __call__(self, w: Array, values: Array) -> StepDerivative:
        """Derivatives of a step that is solved: w (n_w,) at the parameters (n_p_mpcc,) of its program."""
        n_x, n_u, _ = self._sizes
        found = self._implicit(w, values)
        x, u, p = np.split(found.values, [n_x, n_x + n_u], axis=1)
        return StepDerivative(x=x, u=u, p=p, keeps=found.kept, flags=(*self._hits(w, values), *found.flags))

    def chain(self, steps: Sequence[StepDerivative]) -> Sensitivity:
        """Derivatives of the state after consecutive steps, by x0, p and the control of every step.

        Where the motion is not smooth the flags have the number of the step, and the derivatives are NaN.
        """
        n_x, n_u, n_p = self._sizes
        by_x, by_p, by_u = np.eye(n_x), np.zeros((n_x, n_p)), np.zeros((len(steps), n_x, n_u))
        for k, step in enumerate(steps):
            by_x, by_p, by_u[:k] = step.x @ by_x, step.x @ by_p + step.p, step.x @ by_u[:k]
            by_u[k] = step.u
        flags = tuple(f"step {k + 1}: {flag}" for k, step in enumerate(steps) for flag in step.flags)
        lost = np.nan if flags else 0.0
        return Sensitivity(x0=by_x + lost, p=by_p + lost, u=by_u + lost, flags=flags)

    def _hits(self, w: Array, values: Array) -> Iterator[str]:
        """Impacts at the very start: whether they belong to this step is a question of round-off."""
        jump = self.problem.dcs.jump
        if jump is None:
            return
        watched = self.problem.read(w, values).impacts[0]
        for impact, (impulse, before, _) in zip(jump.impacts, watched, strict=True):
            if impulse > IMPULSE and before < -APPROACH:
                yield f"an impact of {impact.name} at the start"


def chained(parts: Sequence[StepDerivative]) -> StepDerivative:
    """Derivatives of several parts of a step with one control."""
    x, u, p = parts[0].x, parts[0].u, parts[0].p
    for part in parts[1:]:
        x, u, p = part.x @ x, part.x @ u + part.u, part.x @ p + part.p
    flags = tuple(flag for part in parts for flag in part.flags)
    return StepDerivative(x=x, u=u, p=p, keeps=parts[0].keeps, flags=flags)


def _poles(problem: Transcription) -> Array:
    """Pairs of variables (n, 2) that are the radii of a polar friction cone: of its force and of its slip."""
    forces, speeds = (problem.mpcc.variables.blocks(role=role) for role in (Role.FRICTION_RADIUS, Role.SLIP_SPEED))
    speed_at = {(block.of, block.at): block.start for block in speeds}
    return np.array([(force.start, speed_at[force.of, force.at]) for force in forces], int).reshape(-1, 2)
