"""Identification of floor, friction and drag from a bouncing puck: `python -m problems.puck_identification`.

A puck is thrown and bounces along a floor; a camera measures its position at 50 times, with noise. Height of the floor,
drag, restitution and friction are estimated by least squares whose derivatives include the impacts (`ns.fit`), and
compared with the true values.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from nosnoc_py.systems.scene import Disc, Ground
from problems.runner import Report, program, tabled
from problems.settings import Settings

TRUTH = {"floor": 0.05, "drag": 0.3, "restitution": 0.7, "friction": 0.2}
RANGES = {"floor": (-0.2, 0.3), "drag": (0.0, 1.0), "restitution": (0.0, 1.0), "friction": (0.0, 1.0)}
START, DURATION, COUNT = (0.0, 1.0, 3.0, 0.0), 1.5, 50


def build() -> ns.CLS:
    """Return a point mass in the plane of its flight; all four values are parameters."""
    q, v, p = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("p", 4)
    floor = ns.Contact("floor", gap=q[1] - p[0], restitution=p[2], tangent=[1, 0], friction=p[3])
    scene = [Disc([q[0], q[1] + 0.04], 0.04), Ground(p[0])]
    return ns.CLS(
        q=q, v=v, p=p, p_default=[0.0, 0.1, 0.5, 0.1], mass_matrix=np.eye(2), force=ca.vertcat(0, -9.81) - p[1] * v,
        contacts=[floor], scene=scene, names={"q": ["x", "y"], "p": list(TRUTH)},
    )  # fmt: skip


def measured(noise: float = 0.002, seed: int = 0) -> ns.Measurements:
    """Return the positions that the camera measures [m]."""
    system, rng = build(), np.random.default_rng(seed)
    times = np.linspace(0.0, DURATION, COUNT + 1)[1:]
    motion = ns.simulate(system, x0=START, duration=DURATION, p=TRUTH, times=times)
    seen = motion.sample(system.q, times) + noise * rng.standard_normal((COUNT, 2))
    return ns.Measurements(times, {"x": seen[:, 0], "y": seen[:, 1]}, sigma=noise)


def fitted(noise: float = 0.002, seed: int = 0, starts: int = 8) -> ns.Estimate:
    """Return the estimate."""
    return ns.fit(build(), measured(noise, seed), free=RANGES, x0=START, starts=starts)


def run(settings: Settings, progress: Progress) -> Report:
    """Fit, and compare with the true values."""
    estimate = fitted(**settings.arguments)
    rows: list[dict[str, Any]] = [
        {
            "value": name, "truth": true, "estimate": estimate.values[name], "std": estimate.std[name],
            "off": (estimate.values[name] - true) / estimate.std[name] if estimate.std[name] else np.inf,
        }
        for name, true in TRUTH.items()
    ]  # fmt: skip
    good = estimate.success and all(abs(row["off"]) < 4.0 for row in rows)
    results = {"status": estimate.status.value, "chi2": estimate.chi2, "multimodal": estimate.multimodal, "rows": rows}
    return tabled(
        results, good, {"estimates; off in standard deviations": rows}, {"puck.png": lambda: ns.plot(estimate.motion)},
        [estimate.message or "one optimum from all starts"],
    )  # fmt: skip


def film(path: str | Path) -> Path:
    """Write a film of the estimated motion."""
    estimate, system = fitted(), build()
    motion: Any = ns.simulate(system, x0=START, duration=DURATION, p=estimate.p)
    return Path(ns.animate(system, motion, path))


PROGRAM = program(__name__, run, fitted, quick={"starts": 1})
