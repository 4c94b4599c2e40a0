"""Programs of a start: a smooth system on equal steps, for any width of its smoothing.

What they share: unknowns and their bounds, path and end constraints, and the solution with loose tolerances, as a start
need not be exact. The steps themselves are one block of a kind of start (`_steps`).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import casadi as ca
import numpy as np

from nosnoc_py.attempts.work import counted
from nosnoc_py.kernels import Kernel
from nosnoc_py.mpcc.interior.method import InteriorPoint
from nosnoc_py.programs import BlockProgram, KernelBlock, LinearMap
from nosnoc_py.search.starts import PROGRAM_WORK, StartTask
from nosnoc_py.search.ways import waypoint
from nosnoc_py.systems.algebraic import Algebraic

Array = np.ndarray
# Loose tolerances: a start need not be exact.
SETTINGS = {"tol": 1e-4, "constr_viol_tol": 1e-4, "dual_inf_tol": 1.0, "acceptable_tol": 1e-2}


@dataclass(frozen=True, eq=False, kw_only=True)
class StepProgram:
    """Program of a smooth system on equal steps.

    Attributes
    ----------
    task : StartTask
    sizes : (n_x,)
        Typical values of the states.
    push : (n,)
        Typical values of assisting forces; none by default.
    """

    task: StartTask
    sizes: Array
    push: Array
    # Steps, consecutive steps with the same control, stages of a step, and the limit of iterations.
    steps: ClassVar[int]
    shared: ClassVar[int]
    stages: ClassVar[int]
    iterations: ClassVar[int]

    @property
    def algebraic(self) -> Algebraic | None:
        """Algebraic states of the steps."""
        return None

    @abstractmethod
    def _steps(self, sigma: float) -> KernelBlock:
        """Return the block of the steps for a width sigma."""

    def _more(self, assist: float | None) -> list[KernelBlock]:
        """Return the block of the cost of assisting forces, if they have one."""
        return []

    @cached_property
    def at(self) -> dict[str, Array]:
        """Positions in w of states, inner stages, algebraic states, controls, assisting forces, p and T, by name."""
        n_x, n_z = self.sizes.size, 0 if self.algebraic is None else self.algebraic.z.numel()
        shapes = {
            "x": (self.steps + 1, n_x),
            "inner": (self.steps, (self.stages - 1) * n_x),
            "z": (self.steps, self.stages * n_z),
            "u": (self.steps // self.shared, self.task.rest.size),
            "push": (self.steps, self.push.size),
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
        for name, repeated in (("x", 1), ("inner", self.stages - 1)):
            low[at[name]], high[at[name]] = np.tile(x_low, repeated), np.tile(x_high, repeated)
            scale[at[name]] = np.tile(self.sizes, repeated)
        if ocp.x0 is not None:
            low[at["x"][0]] = high[at["x"][0]] = ocp.x0
        if self.algebraic is not None:
            low[at["z"]], high[at["z"]] = (
                np.tile(end, self.stages) for end in (self.algebraic.lower, self.algebraic.upper)
            )
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

    def first(self, start: tuple[Array, Array]) -> Array:
        """Return all unknowns for states (steps + 1, n_x) and controls (steps / shared, n_u)."""
        at, w = self.at, np.zeros(self.bounds[2].size)
        w[at["x"]], w[at["u"]], w[at["p"]] = *start, self.task.ocp.p
        w[at["inner"]] = np.tile(start[0][1:], (1, self.stages - 1))
        w[at["T"]] = self.task.ocp.horizon
        if self.algebraic is not None:
            w[at["z"]] = np.tile(self.algebraic.initial, self.stages)
        return np.clip(w, *self.bounds[:2])

    def program(self, sigma: float, w: Array, assist: float | None = None) -> BlockProgram:
        """Return the program of a width, whose assisting forces have this cost, or are zero."""
        low, high, scale = (part.copy() for part in self.bounds)
        if assist is None:
            # Forces that are taken out go to zero by their bounds, so that the structure of the program stays the same.
            low[self.at["push"]] = high[self.at["push"]] = 0.0
        return BlockProgram([*self.blocks(sigma), *self._more(assist)], low, high, scale, np.clip(w, low, high))

    def solved(self, sigma: float, w: Array, assist: float | None = None) -> tuple[Array, bool]:
        """Return the solution of the program of a width from unknowns w, and if the solver has converged."""
        return solved_loosely(self.task, self.program(sigma, w, assist), w, self.iterations)

    def blocks(self, sigma: float) -> list[KernelBlock]:
        """Return the blocks of the steps, the path constraints and both ends for a width sigma."""
        ocp, at, own = self.task.ocp, self.at, self.task.ocp.system
        blocks = [self._steps(sigma)]
        # Constraints on algebraic states are left out: a smooth system may have other ones.
        path = ca.vertcat(ca.SX(0, 1), *[c.expression for c in ocp.path_constraints])
        if path.numel() and not ca.depends_on(path, own.z):
            a = ca.vertcat(own.x, own.u, own.p)
            limits = [np.concatenate([getattr(c, side) for c in ocp.path_constraints]) for side in ("lower", "upper")]
            blocks.append(
                KernelBlock(
                    name="path",
                    kernel=own.kernels.kernel("path", [path], lambda: Kernel(a, path)),
                    at=LinearMap.of((at["x"][1:],), (self._controls,), (at["p"],)),
                    lower=limits[0],
                    upper=limits[1],
                )
            )
        return [*blocks, *self._ends()]

    @property
    def _controls(self) -> Array:
        """Positions of the controls of every step (steps, n_u)."""
        return np.asarray(self.at["u"][np.arange(self.steps) // self.shared])

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


def solved_loosely(task: StartTask, nlp: BlockProgram, w: Array, iterations: int) -> tuple[Array, bool]:
    """Return the solution of a program of a start from unknowns w, and if the solver has converged."""
    with counted(PROGRAM_WORK * task.growth):
        solver = InteriorPoint(nlp, {**SETTINGS, "max_iter": iterations})
        result = solver.solve(np.clip(w, nlp.lbw, nlp.ubw) / nlp.scale, np.empty(0))
    if result.interrupted:  # the method returns its point, and leaves it to the caller to end
        raise KeyboardInterrupt
    return result.x * nlp.scale, result.converged


def line_states(task: StartTask, steps: int) -> Array | None:
    """Return states (steps + 1, n_x) on a smooth trajectory to the goal; None without a goal."""
    end = task.goal
    if end is None:
        return None
    s, T = task.ocp.system, float(task.ocp.horizon)
    shares = np.linspace(0.0, 1.0, steps + 1)
    if not s.mechanical:
        return np.asarray(task.x0 + shares[:, None] * (end - task.x0))
    points = [waypoint(s, task.x0, end, share * T, T) for share in shares]
    return np.array([np.concatenate([q, v, y]) for q, v, _, y in points])
