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
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.attempts.work import counted
from nosnoc_py.kernels import Kernel
from nosnoc_py.mpcc.interior.method import InteriorPoint
from nosnoc_py.programs import BlockProgram, KernelBlock, LinearMap
from nosnoc_py.reformulation.smoothing import Smoothed, smooth
from nosnoc_py.search.starts import PROGRAM_WORK, Start, StartTask
from nosnoc_py.search.ways import waypoint
from nosnoc_py.sequences.refinement import free_start
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
# Loose tolerances and few iterations: a start need not be exact.
SETTINGS = {"tol": 1e-4, "constr_viol_tol": 1e-4, "dual_inf_tol": 1.0, "acceptable_tol": 1e-2}
ITERATIONS = 80


def smoothed(task: StartTask, rng: np.random.Generator) -> Iterator[Start | None]:
    """Yield controls of smoothed problems: from a trajectory to the goal, from rest, then from random controls."""
    if not task.ocp.system.smoothable or task.ocp.system.remembers or not task.rest.size:
        return
    program = SmoothedProgram.of(task)
    line = _line_guess(task)
    if line is not None:
        yield from program.continuation(line, tuple(zip(SIGMAS, ASSISTED, strict=True)))
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


def _line_guess(task: StartTask) -> tuple[Array, Array] | None:
    """Return states on a smooth trajectory to the goal, and the control at rest; None without a goal."""
    end = task.goal
    if end is None:
        return None
    s, T = task.ocp.system, float(task.ocp.horizon)
    shares = np.linspace(0.0, 1.0, STEPS + 1)
    if s.mechanical:
        points = [waypoint(s, task.x0, end, share * T, T) for share in shares]
        states = np.array([np.concatenate([q, v, y]) for q, v, _, y in points])
    else:
        states = task.x0 + shares[:, None] * (end - task.x0)
    return states, np.tile(task.rest, (STEPS // SHARED, 1))


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
class SmoothedProgram:
    """NLP of a smoothed system, for any width of the smoothing and any cost of the assisting forces.

    Attributes
    ----------
    task : StartTask
    smoothed : Smoothed
        The system with sigma as an additional parameter.
    sizes : (n_x,)
        Typical values of the states.
    push : (n_v,) or (n_x,)
        Typical values of the assisting forces, which are added to the rates of velocities (of states without contacts).
    """

    task: StartTask
    smoothed: Smoothed
    sizes: Array
    push: Array

    @classmethod
    def of(cls, task: StartTask) -> SmoothedProgram:
        """Smooth the system, and scale its unknowns by initial state, goal and horizon."""
        ocp = task.ocp
        s, T = ocp.system, float(ocp.horizon)
        end = task.goal
        far = np.abs(task.x0) if end is None else np.maximum(np.abs(task.x0), np.abs(end - task.x0))
        sizes = np.maximum(far, task.sizes)
        # Accelerations: of a cubic over the horizon (6 d / T^2), or from the speeds where q' is not v.
        if s.mechanical:
            rates = sizes[s.at_q] * 6.0 / T**2 if s.moves_by_v else np.maximum(sizes[s.at_v], 3.0 / T) * 2.0 / T
        else:
            rates = sizes / T
        return cls(task=task, smoothed=smooth(_with_sizes(task)), sizes=sizes, push=rates)

    @cached_property
    def at(self) -> dict[str, Array]:
        """Positions in w of states, inner stages, algebraic states, controls, assisting forces, p and T, by name."""
        n_x, n_z = self.sizes.size, int(self.smoothed.system.z.numel())
        shapes = {
            "x": (STEPS + 1, n_x),
            "inner": (STEPS, (STAGES - 1) * n_x),
            "z": (STEPS, STAGES * n_z),
            "u": (STEPS // SHARED, self.task.rest.size),
            "push": (STEPS, self.push.size),
            "p": (1, self.task.ocp.system.n_p),
            "T": (1, 1),
        }
        positions, first = {}, 0
        for name, shape in shapes.items():
            count = int(np.prod(shape))
            positions[name] = np.arange(first, first + count).reshape(shape)
            first += count
        return positions

    @cached_property
    def bounds(self) -> tuple[Array, Array, Array]:
        """Lower bounds, upper bounds and typical values of all unknowns, (n_w,) each."""
        ocp, at = self.task.ocp, self.at
        size = int(at["T"][0, 0]) + 1
        low, high, scale = np.full(size, -np.inf), np.full(size, np.inf), np.ones(size)
        x_low, x_high = ocp.x_bounds
        for name, repeated in (("x", 1), ("inner", STAGES - 1)):
            low[at[name]], high[at[name]] = np.tile(x_low, repeated), np.tile(x_high, repeated)
            scale[at[name]] = np.tile(self.sizes, repeated)
        if ocp.x0 is not None:
            low[at["x"][0]] = high[at["x"][0]] = ocp.x0
        if (algebraic := self.smoothed.system.algebraic) is not None:
            low[at["z"]], high[at["z"]] = np.tile(algebraic.lower, STAGES), np.tile(algebraic.upper, STAGES)
        low[at["u"]], high[at["u"]] = ocp.u_bounds
        scale[at["u"]] = np.maximum(np.maximum(np.abs(self.task.lower), np.abs(self.task.upper)), 1e-300)
        scale[at["push"]] = self.push
        p = np.asarray(ocp.p, float)
        named = zip(ocp.system.parameter_names, p, strict=True)
        limits = [ocp.free_parameters.get(name, (value, value)) for name, value in named]
        low[at["p"][0]], high[at["p"][0]] = np.array(limits).reshape(-1, 2).T
        scale[at["p"][0]] = np.where(p != 0.0, np.abs(p), 1.0)
        T, free = float(ocp.horizon), ocp.free_time
        low[at["T"]], high[at["T"]] = (T, T) if free is None else (free.lower, free.upper)
        scale[at["T"]] = T
        return low, high, scale

    def continuation(
        self, start: tuple[Array, Array], levels: tuple[tuple[float, float | None], ...]
    ) -> Iterator[Start | None]:
        """Yield the controls of a continuation from states (steps + 1, n_x) and controls (steps / shared, n_u).

        `levels` has pairs of the width sigma and the cost of the assisting forces, None without these.
        """
        at, (low, high, scale) = self.at, self.bounds
        w = np.zeros(scale.size)
        w[at["x"]], w[at["u"]], w[at["p"]] = *start, self.task.ocp.p
        w[at["inner"]] = np.tile(start[0][1:], (1, STAGES - 1))
        w[at["T"]] = self.task.ocp.horizon
        if (algebraic := self.smoothed.system.algebraic) is not None:
            w[at["z"]] = np.tile(algebraic.initial, STAGES)
        unit = 0.0
        for sigma, assist in levels:
            upper = high.copy()
            lower = low.copy()
            if assist is None:
                lower[at["push"]] = upper[at["push"]] = 0.0
            # Forces that are taken out go to zero by their bounds, so that the structure of the NLP stays the same.
            w = np.clip(w, lower, upper)
            blocks = self.blocks(sigma)
            nlp = BlockProgram(blocks, lower, upper, scale, w)
            if assist is not None:
                # The cost of assistance is relative to the objective at the first start, whatever the user's units.
                unit = unit or abs(nlp.evaluate(w)[0]) or abs(nlp.evaluate(w + scale)[0]) or 1.0
                nlp = BlockProgram([*blocks, self._assistance(assist * unit)], lower, upper, scale, w)
            with counted(PROGRAM_WORK):
                solver = InteriorPoint(nlp, {**SETTINGS, "max_iter": ITERATIONS})
                result = solver.solve(w / scale, np.empty(0))
            if result.interrupted:  # the method returns its point, and leaves it to the caller to end
                raise KeyboardInterrupt
            solution = result.x * scale
            if not np.isfinite(solution).all():
                yield None
                return
            w = solution
            yield self._start(w) if sigma <= SHARP else None

    def _start(self, w: Array) -> Start:
        """Return the start with the control of an iterate, and with initial state, parameters and horizon."""
        at, task = self.at, self.task
        horizon = float(w[at["T"]][0, 0])
        control = np.clip(w[at["u"]], task.lower, task.upper)
        x0 = task.x0 if task.ocp.x0 is not None else free_start(task.ocp, w[at["x"][0]])
        grid = np.linspace(0.0, horizon, len(control) + 1)
        return Start(control=PiecewiseConstant(grid, control), x0=x0, p=w[at["p"][0]], horizon=horizon)

    def blocks(self, sigma: float) -> list[KernelBlock]:
        """Return the blocks of the steps, the path constraints and both ends for a width sigma.

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
        control = at["u"][np.arange(STEPS) // SHARED]
        blocks = [
            KernelBlock(
                name="steps",
                kernel=kernel,
                at=LinearMap.of(
                    (ends[:, 1:].reshape(places, n_x),),
                    (np.repeat(ends, STAGES, axis=0), np.tile(of_ends, (STEPS, 1))),
                    (at["z"].reshape(places, n_z),),
                    (np.repeat(control, STAGES, axis=0),),
                    (np.repeat(at["push"], STAGES, axis=0),),
                    (at["p"],),
                    (None, np.full((1, 1), sigma)),
                    (at["T"][:, None], np.full((1, 1), 1.0 / STEPS)),
                ),
                lower=np.zeros(n_x + n_z),
                upper=np.zeros(n_x + n_z),
                weights=np.tile(radau.b, STEPS),
            )
        ]
        # Constraints on algebraic states are left out: the smoothed system has other ones.
        path = ca.vertcat(ca.SX(0, 1), *[c.expression for c in ocp.path_constraints])
        if path.numel() and not ca.depends_on(path, s.z):
            own = ocp.system
            a = ca.vertcat(own.x, own.u, own.p)
            limits = [np.concatenate([getattr(c, side) for c in ocp.path_constraints]) for side in ("lower", "upper")]
            blocks.append(
                KernelBlock(
                    name="path",
                    kernel=kept.kernel("path", [path], lambda: Kernel(a, path)),
                    at=LinearMap.of((at["x"][1:],), (control,), (at["p"],)),
                    lower=limits[0],
                    upper=limits[1],
                )
            )
        return [*blocks, *self._ends()]

    def _ends(self) -> list[KernelBlock]:
        """Return the blocks of initial constraints, terminal constraints and terminal cost."""
        ocp, at, blocks = self.task.ocp, self.at, []
        s = ocp.system
        T = ca.SX.sym("T") if ocp.free_time is None else ocp.free_time.symbol
        for name, constraints, cost, y, index in (
            ("start", ocp.initial_constraints, ca.SX(0), [s.x, s.p], [at["x"][:1], at["p"]]),
            (
                "end",
                ocp.terminal_constraints,
                ocp.terminal_cost,
                [s.x, s.x_initial, s.p, T],
                [at["x"][-1:], at["x"][:1], at["p"], at["T"]],
            ),
        ):
            limits = [[np.zeros(0), *[getattr(c, side) for c in constraints]] for side in ("lower", "upper")]
            rows = ca.vertcat(ca.SX(0, 1), *[c.expression for c in constraints])
            blocks.append(
                KernelBlock(
                    name=name,
                    kernel=Kernel(ca.vertcat(*y), rows, cost),
                    at=LinearMap.at(np.hstack(index)),
                    lower=np.concatenate(limits[0]),
                    upper=np.concatenate(limits[1]),
                )
            )
        return blocks

    def _assistance(self, weight: float) -> KernelBlock:
        """Return the block with the cost of the assisting forces, relative to their typical values."""
        push = ca.SX.sym("push", self.push.size)
        kernel = self.smoothed.system.kernels.kernel(
            "push", [], lambda: Kernel(push, ca.SX(0, 1), ca.sumsqr(push / ca.DM(self.push))), *self.push
        )
        return KernelBlock(
            name="push", kernel=kernel, at=LinearMap.at(self.at["push"]), weights=np.full(STEPS, weight / STEPS)
        )
