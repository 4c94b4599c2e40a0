"""Closed loops of scenarios: one law, simulated event by event for several starts and parameters, with derivatives.

The law is the plan: its feedforward controls v act in all scenarios, and the same gains act on every deviation, so that
a scenario has its own order of contacts, follows the others until its state differs from theirs, and returns to them
later. Derivatives of a scenario by v follow from those of its windows (`PlanWindows`, with saltation matrices):

    dx_k+1 = A_k dx_k + B_k du_k,    du_k = dv_k - K_k dx_k,

where a control at its limit has no derivative, and K_k is the gain that the law uses there (that of the window before
an impact if the plant has not had it yet).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nosnoc_py.control.requirements import Requirements
from nosnoc_py.control.success import closed_loop
from nosnoc_py.control.tracking import TrackingLaw
from nosnoc_py.control.windows import PlanWindows
from nosnoc_py.processes import mapped
from nosnoc_py.simulation.certification.windows import states_at
from nosnoc_py.solution import Trajectory

Array = np.ndarray
# Relative violation by which a simulation that stopped early is worse than all others.
LOST = 10.0
# Part of the size of a constraint by which scenarios stay within its limits: draws lie between scenarios.
MARGIN = 0.05


@dataclass(frozen=True, eq=False, kw_only=True)
class LoopRows:
    """Limits, sizes and numbers of the constraints of all rows of a closed loop (R,)."""

    lower: Array
    upper: Array
    sizes: Array
    group: Array

    @property
    def count(self) -> int:
        """Number of constraints."""
        return int(self.group.max(initial=-1)) + 1

    def violations(self, values: Array, margin: float = MARGIN) -> Array:
        """Return the largest violation of every constraint (constraints,), relative to its size."""
        found = np.zeros(self.count)
        over = np.maximum(self.lower - values, values - self.upper) / self.sizes + margin
        np.maximum.at(found, self.group, np.where(np.isnan(over), LOST, over))
        return found


@dataclass(frozen=True, eq=False, kw_only=True)
class LoopRun:
    """Closed loop of one scenario at the samples of its law.

    Attributes
    ----------
    motion : Trajectory
    x, before : (M + 1, n_x), (M, n_x)
        States at the samples, and before a jump at the end of every window.
    u : (M, n_u)
        Controls, within their limits.
    cost : float
        Objective, by the trapezoidal rule over the windows.
    rows : (R,)
        Values of the rows: those of the path at every sample, then those of the end.
    """

    motion: Trajectory
    x: Array
    before: Array
    u: Array
    cost: float
    rows: Array

    @property
    def lost(self) -> bool:
        """True if the simulation stopped early."""
        return not self.motion.success


@dataclass(frozen=True, eq=False, kw_only=True)
class LoopModel:
    """Derivatives of a closed loop by the feedforward controls (n = M n_u of them).

    Attributes
    ----------
    gradient, hessian : (n,), (n, n)
        Of the objective; the Hessian is that of its convex part along linear motions.
    jacobian : (R, n)
    flags : int
        Number of windows whose derivatives are central differences.
    """

    gradient: Array
    hessian: Array
    jacobian: Array
    flags: int


@dataclass(frozen=True, eq=False)
class ScenarioLoops:
    """Scenarios of an OCP: simulation and derivatives of their closed loops.

    Parameters
    ----------
    required : Requirements
    starts, parameters : (S, n_x), (S, n_p)
    weights : (S,)
    workers : int
        Number of processes.
    """

    required: Requirements
    starts: Array
    parameters: Array
    weights: Array
    workers: int = 1

    def with_more(self, starts: Array, parameters: Array) -> ScenarioLoops:
        """Return the scenarios and further ones, each with the mean weight."""
        count, more = len(self.starts), len(starts)
        weights = np.append(self.weights * count, np.ones(more)) / (count + more)
        return ScenarioLoops(
            self.required,
            np.vstack([self.starts, starts]),
            np.vstack([self.parameters, parameters]),
            weights,
            self.workers,
        )

    # --- rows ---

    def rows(self, samples: int) -> LoopRows:
        """Return the rows of closed loops with so many samples."""
        path, end = self.required.path, self.required.end
        first = np.tile(np.arange(len(path.labels)), samples)
        group = np.append(first, len(path.labels) + np.arange(len(end.labels)))
        parts = (
            np.append(np.tile(getattr(path, name), samples), getattr(end, name)) for name in ("lower", "upper", "sizes")
        )
        lower, upper, sizes = parts
        return LoopRows(lower=lower, upper=upper, sizes=sizes, group=group)

    # --- simulations ---

    def runs(self, law: TrackingLaw) -> list[LoopRun]:
        """Return the closed loops of all scenarios."""
        cases = list(zip(self.starts, self.parameters, strict=True))
        return mapped(lambda case: self._run(law, *case), cases, self.workers)

    def models(self, law: TrackingLaw, runs: Sequence[LoopRun]) -> list[LoopModel | None]:
        """Return the derivatives of closed loops; None for one that stopped early."""
        cases = list(zip(runs, self.parameters, strict=True))
        return mapped(lambda case: None if case[0].lost else self._model(law, *case), cases, self.workers)

    def _run(self, law: TrackingLaw, x0: Array, p: Array) -> LoopRun:
        motion = closed_loop(law, x0, p)
        times, rows = law.times, np.full(0, np.nan)
        if not motion.success:
            nothing = np.full((len(times), x0.size), np.nan)
            return LoopRun(
                motion=motion, x=nothing, before=nothing[1:], u=np.zeros_like(law.controls), cost=np.nan, rows=rows
            )
        before = states_at(motion, times[1:], "-")
        x = np.vstack([states_at(motion, times[:-1], "+"), before[-1:]])
        u = np.array([law(float(t), state) for t, state in zip(times[:-1], x[:-1], strict=True)])
        stage, terminal = self.required.costs
        left = np.array(stage(x[:-1].T, u.T, p, x[0])[0]).ravel()
        right = np.array(stage(before.T, u.T, p, x[0])[0]).ravel()
        cost = float(0.5 * np.diff(times) @ (left + right) + float(terminal(x[-1], 0.0 * u[0], p, x[0])[0]))
        path = self.required.values(self.required.path, x, np.vstack([u, u[-1:]]), p, x[0])
        end = self.required.values(self.required.end, x[-1:], u[-1:], p, x[0])
        rows = np.append(path.ravel(), end.ravel())
        return LoopRun(motion=motion, x=x, before=before, u=u, cost=cost, rows=rows)

    def _model(self, law: TrackingLaw, run: LoopRun, p: Array) -> LoopModel:
        system, times, required = law.system, law.times, self.required
        windows = PlanWindows(system, run.motion, p).between(times)
        (count, n_u), n_x = run.u.shape, run.x.shape[1]
        by_x, by_u = np.zeros((count + 1, n_x, count * n_u)), np.zeros((count, n_u, count * n_u))
        for k, window in enumerate(windows):
            u, gain = law.unlimited(float(times[k]), run.x[k])
            move = -law.gains[gain] @ by_x[k]
            move[:, k * n_u : (k + 1) * n_u] += np.eye(n_u)
            by_u[k] = np.where(((u > law.lower) & (u < law.upper))[:, None], move, 0.0)
            by_x[k + 1] = window.by_x @ by_x[k] + window.by_u @ by_u[k]
        gradient, hessian = np.zeros(count * n_u), np.zeros((count * n_u,) * 2)
        (stage, terminal), h = required.costs, np.diff(times)
        # The states before jumps have the derivatives of the window that they end.
        for states, moves in ((run.x[:-1], by_x[:-1]), (run.before, by_x[1:])):
            for k in range(count):
                _, slope, curvature = (np.array(part) for part in stage(states[k], run.u[k], p, run.x[0]))
                _add(gradient, hessian, slope, curvature, np.vstack([moves[k], by_u[k]]), 0.5 * h[k])
        _, slope, curvature = (np.array(part) for part in terminal(run.x[-1], 0.0 * run.u[0], p, run.x[0]))
        _add(gradient, hessian, slope[:n_x], curvature[:n_x, :n_x], by_x[-1], 1.0)
        jacobian = []
        controls, by_control = np.vstack([run.u, run.u[-1:]]), np.concatenate([by_u, by_u[-1:]])
        for rows, at in ((required.path, range(count + 1)), (required.end, range(count, count + 1))):
            for k in at if rows.labels else ():
                slopes = np.array(rows.slopes(run.x[k], controls[k], p, run.x[0]))
                jacobian.append(slopes @ np.vstack([by_x[k], by_control[k]]))
        return LoopModel(
            gradient=gradient,
            hessian=hessian,
            jacobian=np.vstack([np.zeros((0, count * n_u)), *jacobian]),
            flags=sum(bool(window.flags) for window in windows),
        )


def _add(gradient: Array, hessian: Array, slope: Array, curvature: Array, z: Array, factor: float) -> None:
    """Add a term of the cost in moves z (n_x + n_u, n), with negative curvatures left out."""
    values, vectors = np.linalg.eigh(0.5 * (curvature + curvature.T))
    root = (vectors * np.sqrt(np.maximum(values, 0.0))).T @ z
    gradient += factor * slope.ravel() @ z
    hessian += factor * root.T @ root
