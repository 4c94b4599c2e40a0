"""Starts from smoothed systems: contacts as stiff springs, switches as steep steps, on a fixed grid.

A continuation solves one smooth NLP for every width sigma of the smoothing, from wide to narrow, each from the solution
before. Wide springs act at a distance, so that the gradient knows contacts that the motion does not touch.

The first continuation begins at a smooth trajectory to the goal. Every coordinate then has an assisting force of its
own, whose cost rises until the force is removed: first the kinematics, then the forces. The idea is that of
contact-invariant optimisation (Mordatch, Todorov and Popovic 2012). Later ones begin at constant controls.

The NLP is Radau IIA with two stages on equal steps (Hairer and Wanner 1996), written as blocks (`BlockProgram`). Its
accuracy is low on purpose: only its control is used, and the exact simulation of that decides the sequence.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import casadi as ca
import numpy as np

from nosnoc_py.kernels import Kernel
from nosnoc_py.programs import KernelBlock, LinearMap
from nosnoc_py.reformulation.smoothing import Smoothed, smooth
from nosnoc_py.search.starts import Start, StartTask
from nosnoc_py.search.steps import StepProgram, line_states
from nosnoc_py.sequences.refinement import free_start
from nosnoc_py.systems.algebraic import Algebraic
from nosnoc_py.systems.controls import PiecewiseConstant
from nosnoc_py.tableaus import tableau

Array = np.ndarray
# Number of steps, of consecutive steps with the same control, and of stages of Radau IIA (order 3).
STEPS, SHARED, STAGES = 48, 3, 2
# Widths sigma of the smoothing in the order of the continuation; controls become starts from width SHARP on, where
# contacts no longer act far beyond their surface.
SIGMAS, SHARP = (1.0, 0.1, 0.01, 0.001), 0.1
# Cost of the assisting forces at every width, as a multiple of the objective at the start; None removes the forces.
ASSISTED: tuple[float | None, ...] = (1.0, 10.0, 100.0, None)
# Few iterations: a start need not be exact.
ITERATIONS = 80


def smoothed(task: StartTask, rng: np.random.Generator) -> Iterator[Start | None]:
    """Yield controls of smoothed problems: from a trajectory to the goal, from rest, then from random controls."""
    if not task.ocp.system.smoothable or task.ocp.system.remembers or not task.rest.size:
        return
    program = SmoothedProgram.of(task)
    line = line_states(task, STEPS)
    if line is not None:
        rest = np.tile(task.rest, (STEPS // SHARED, 1))
        yield from program.continuation((line, rest), tuple(zip(SIGMAS, ASSISTED, strict=True)))
    plain = tuple((sigma, None) for sigma in SIGMAS)
    yield from program.continuation(_constant_guess(task, task.zero), plain)
    while True:
        half = 0.5 * (task.upper - task.lower)
        yield from program.continuation(
            _constant_guess(task, task.lower + half * (1.0 + rng.uniform(-1.0, 1.0, half.size))), plain
        )


def _constant_guess(task: StartTask, u: Array) -> tuple[Array, Array]:
    """Return states (steps + 1, n_x) that stay at the initial state, and a constant control."""
    return np.tile(task.x0, (STEPS + 1, 1)), np.tile(u, (STEPS // SHARED, 1))


def _with_sizes(task: StartTask) -> Any:
    """Return the system with the typical sizes of the problem as nominal values, for the widths of the smoothing."""
    s, x, T = task.ocp.system, task.sizes, float(task.ocp.horizon)
    if s.mechanical:
        sizes = {"q": x[s.at_q], "v": x[s.at_v], "y": x[s.at_y]}
        at = s.kinematics(task.x0, 0.0, task.ocp.p)
        rows = at.jacobian[: len(s.contacts)]
        # The force that stops a contact with its typical speed within the horizon, or that holds it.
        moved = np.abs(rows) @ (x[s.at_v] / T + np.abs(np.linalg.solve(at.mass, at.force)))
        with np.errstate(all="ignore"):
            forces = moved / np.einsum("ij,ji->i", rows, np.linalg.solve(at.mass, rows.T))
        given = s.nominal["force"]
        sizes["force"] = np.where((given != 1.0) | ~(forces > 0.0) | ~np.isfinite(forces), given, forces)
    else:
        sizes = {"x": x}
    known = {name: values for name, values in sizes.items() if name in s.nominal}
    return s.with_fields(nominal={**s.nominal, **known})


@dataclass(frozen=True, eq=False, kw_only=True)
class SmoothedProgram(StepProgram):
    """NLP of a smoothed system, for any width of the smoothing and any cost of the assisting forces.

    Attributes
    ----------
    smoothed : Smoothed
        The system with sigma as an additional parameter. Assisting forces are added to the rates of its velocities, or
        states without contacts.
    """

    smoothed: Smoothed
    steps: ClassVar[int] = STEPS
    shared: ClassVar[int] = SHARED
    stages: ClassVar[int] = STAGES
    iterations: ClassVar[int] = ITERATIONS

    @classmethod
    def of(cls, task: StartTask) -> SmoothedProgram:
        """Smooth the system, and scale its unknowns by initial state, goal and horizon."""
        s, T, sizes = task.ocp.system, float(task.ocp.horizon), task.spans
        # Accelerations: of a cubic over the horizon (6 d / T^2), or from the speeds where q' is not v.
        if s.mechanical:
            rates = sizes[s.at_q] * 6.0 / T**2 if s.moves_by_v else np.maximum(sizes[s.at_v], 3.0 / T) * 2.0 / T
        else:
            rates = sizes / T
        return cls(task=task, smoothed=smooth(_with_sizes(task)), sizes=sizes, push=rates)

    @property
    def algebraic(self) -> Algebraic | None:
        """Algebraic states of the steps."""
        return self.smoothed.system.algebraic

    def continuation(
        self, start: tuple[Array, Array], levels: tuple[tuple[float, float | None], ...]
    ) -> Iterator[Start | None]:
        """Yield the controls of a continuation from states (steps + 1, n_x) and controls (steps / shared, n_u).

        `levels` has pairs of the width sigma and the cost of the assisting forces, None without these.
        """
        w, unit = self.first(start), 0.0
        for sigma, assist in levels:
            if assist is not None and not unit:
                # The cost of assistance is relative to the objective at the first start, whatever the user's units.
                nlp, scale = self.program(sigma, w), self.bounds[2]
                unit = abs(nlp.evaluate(w)[0]) or abs(nlp.evaluate(w + scale)[0]) or 1.0
            w = self.solved(sigma, w, None if assist is None else assist * unit)[0]
            if not np.isfinite(w).all():
                yield None
                return
            yield self._start(w) if sigma <= SHARP else None

    def _start(self, w: Array) -> Start:
        """Return the start with the control of an iterate, and with initial state, parameters and horizon."""
        at, task = self.at, self.task
        horizon = float(w[at["T"]][0, 0])
        control = np.clip(w[at["u"]], task.lower, task.upper)
        x0 = task.x0 if task.ocp.x0 is not None else free_start(task.ocp, w[at["x"][0]])
        grid = np.linspace(0.0, horizon, len(control) + 1)
        return Start(control=PiecewiseConstant(grid, control), x0=x0, p=w[at["p"][0]], horizon=horizon)

    def _steps(self, sigma: float) -> KernelBlock:
        """Return the block of the steps.

        A stage has the arguments (x, S, z, u, push, p, sigma, h) with the increments S = (X - before) A^-T: its kernel
        serves every width and every step.
        """
        ocp, at, kept = self.task.ocp, self.at, self.smoothed.system.kernels
        s, radau = self.smoothed.system, tableau("radau_iia", STAGES)
        n_x, n_z, places = self.sizes.size, int(s.z.numel()), STEPS * STAGES
        algebraic = ca.SX(0, 1) if s.algebraic is None else s.algebraic.equations
        first = ocp.system.n_q if ocp.system.mechanical else 0

        def made() -> Kernel:
            increment, h, push = ca.SX.sym("S", n_x), ca.SX.sym("h"), ca.SX.sym("push", self.push.size)
            assisted = ca.SX.zeros(n_x)  # forces act on the rates of velocities only
            assisted[first : first + self.push.size] = push
            rows = (increment - h * (s.flow + assisted)) / ca.DM(self.sizes)
            # Sigma is the last parameter of the smoothed system.
            return Kernel(
                ca.vertcat(s.x, increment, s.z, s.u, push, s.p, h), ca.vertcat(rows, algebraic), h * ocp.stage_cost
            )

        kernel = kept.kernel("steps", [s.flow, algebraic, ocp.stage_cost], made, *self.sizes)
        inner = at["inner"].reshape(STEPS, STAGES - 1, n_x)
        ends = np.concatenate([at["x"][:-1, None], inner, at["x"][1:, None]], axis=1)  # before, and the stages
        inverse = np.linalg.inv(radau.a)
        of_ends = np.hstack([-inverse.sum(axis=1)[:, None], inverse])
        # Consecutive steps share a control, and all steps share parameters and horizon.
        return KernelBlock(
            name="steps",
            kernel=kernel,
            at=LinearMap.of(
                (ends[:, 1:].reshape(places, n_x),),
                (np.repeat(ends, STAGES, axis=0), np.tile(of_ends, (STEPS, 1))),
                (at["z"].reshape(places, n_z),),
                (np.repeat(self._controls, STAGES, axis=0),),
                (np.repeat(at["push"], STAGES, axis=0),),
                (at["p"],),
                (None, np.full((1, 1), sigma)),
                (at["T"][:, None], np.full((1, 1), 1.0 / STEPS)),
            ),
            lower=np.zeros(n_x + n_z),
            upper=np.zeros(n_x + n_z),
            weights=np.tile(radau.b, STEPS),
        )

    def _more(self, assist: float | None) -> list[KernelBlock]:
        """Return the block with the cost of the assisting forces, relative to their typical values."""
        if assist is None:
            return []
        push = ca.SX.sym("push", self.push.size)
        kernel = self.smoothed.system.kernels.kernel(
            "push", [], lambda: Kernel(push, ca.SX(0, 1), ca.sumsqr(push / ca.DM(self.push))), *self.push
        )
        weights = np.full(STEPS, assist / STEPS)
        return [KernelBlock(name="push", kernel=kernel, at=LinearMap.at(self.at["push"]), weights=weights)]
