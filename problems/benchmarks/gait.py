"""A gait with feedback: `python -m problems.benchmarks.gait`.

The plain call finds one step of a periodic gait. Floquet multipliers are the eigenvalues of the derivative of the state
after a step, mirrored back, by the state before it (Grizzle et al. 2001); derivatives contain saltation matrices. With
the feedback of `ns.track`, whose target is the same step every time, the biped walks while it is pushed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems.robots.biped_gait import build
from problems.runner import Report, program, tabled
from problems.settings import Settings

Array = np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class Gait:
    """A step x(T) = S x(0) + d with its feedback.

    Attributes
    ----------
    law : TrackingLaw
    mirror : (n_x, n_x)
        S.
    shift : (n_x,)
        d.
    """

    law: ns.TrackingLaw
    mirror: Array
    shift: Array

    @classmethod
    def of(cls, ocp: ns.OCP, plan: ns.Solution) -> Gait:
        """Track a step; S and d are those of the constraint `ns.periodic`."""
        periodic = next(one for one in ocp.terminal_constraints if one.name == "periodic")
        mirror = -np.array(ca.DM(ca.jacobian(periodic.expression, ocp.system.x_initial)))
        return cls(law=ns.track(plan, system=ocp.system), mirror=mirror, shift=np.asarray(periodic.lower))

    def back(self, x: Array) -> Array:
        """Return the state from which the next step begins like this one."""
        return np.asarray(np.linalg.solve(self.mirror, x - self.shift))

    def multipliers(self, *, feedback: bool) -> Array:
        """Return the absolute values of the Floquet multipliers of a step (n_x,), the largest one first."""
        total = np.eye(len(self.shift))
        for window, gain in zip(self.law.windows, self.law.gains, strict=True):
            total = (window.by_x - window.by_u @ gain if feedback else window.by_x) @ total
        return np.sort(np.abs(np.linalg.eigvals(np.linalg.solve(self.mirror, total))))[::-1]

    def walk(self, steps: int, push: float, seed: int) -> tuple[list[float], str]:
        """Return the deviations before each step, and why it ended early; every fifth step begins with a push.

        A push changes every velocity by a normal number times `push` [m/s or rad/s].
        """
        system, rng, planned = cast(ns.CLS, self.law.system), np.random.default_rng(seed), self.law.states[0]
        x, far = planned, list[float]()
        for step in range(steps):
            y = np.array(x)
            if step % 5 == 2:
                y[system.at_v] += push * rng.standard_normal(system.n_v)
            motion = ns.simulate(system, x0=y, duration=self.law.plan.duration, u=self.law)
            if not motion.success:
                return far, f"{motion.status}: {motion.message}"
            x = self.back(motion.final_state)
            far.append(float(np.abs(x - planned).max()))
        return far, ""


def experiment(steps: int = 50, push: float = 0.05, seed: int = 0) -> dict[str, Any]:
    """Return the multipliers, and the deviations while the biped walks."""
    ocp = build()
    plan = ns.solve(ocp, progress=False)
    gait = Gait.of(ocp, plan)
    far, ended = gait.walk(steps, push, seed)
    return {
        "verdict": str(plan.certificate.verdict) if plan.certificate else str(plan.status),
        "objective": plan.objective,
        "largest multiplier": float(gait.multipliers(feedback=False)[0]),
        "with feedback": float(gait.multipliers(feedback=True)[0]),
        "steps": len(far),
        "largest deviation": max(far, default=np.nan),
        "last deviation": far[-1] if far else np.nan,
        "ended": ended,
    }


def run(settings: Settings, progress: Progress) -> Report:
    """Walk; a success is a biped that is stable with feedback and does not fall."""
    row = experiment(**settings.arguments)
    success = row["with feedback"] < 1.0 and row["steps"] == settings.arguments["steps"]
    return tabled(row, success, {"gait": [row]}, said=[])


PROGRAM = program(__name__, run, experiment, quick={"steps": 5})
