"""Film of the beliefs of two filters: `python -m problems.estimation_film`.

The hopper of `models.aslip_hopper` runs over uneven ground. Left, a filter that believes in flat ground, right one that
knows how uneven the ground is. Fifty draws of each belief after every measurement are blue, the true hopper is black.
At touchdown some draws of the right filter stand, and others still fly.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from models import aslip_hopper
from nosnoc_py.progress import Progress
from problems.benchmarks.contact_filters import Task, hopper, simulated
from problems.runner import Report, program, tabled
from problems.settings import Settings

Array = NDArray[np.float64]
BODY = 0.12, 0.06  # half lengths of the body that is drawn [m]
LOOK = {"fps": 12, "dpi": 70}


def beliefs(task: Task, measured: Array, draws: int, seed: int, **more: Any) -> list[Array]:
    """Return draws (draws, n_x) of the belief after every measurement."""
    kalman = ns.Filter(
        task.system, sigma=task.sigma, period=task.period, x0=task.start, x0_std=task.start_std,
        control_std=task.control_std, **more,
    )  # fmt: skip
    rng, frames = np.random.default_rng(seed), []
    for y in measured:
        kalman.step(dict(zip(task.sigma, map(float, y), strict=True)))
        frames.append(kalman.draws(draws, rng)[:, : len(task.start)])
    return frames


def film(task: Task, truth: Array, clouds: Sequence[Sequence[Array]], titles: Sequence[str], path: Path) -> None:
    """Draw the true states (samples, n_x) and the draws of every filter, and write a GIF."""
    from matplotlib import pyplot as plt
    from matplotlib.animation import FuncAnimation, PillowWriter

    figure, axes = plt.subplots(1, len(clouds), figsize=(8.0, 3.4), layout="constrained", squeeze=False)

    def draw(k: int) -> None:
        for axis, cloud, title in zip(axes[0], clouds, titles, strict=True):
            axis.clear()
            middle = truth[k, 0]
            axis.set(xlim=(middle - 0.6, middle + 0.6), ylim=(-0.1, 0.95), aspect="equal", title=title)
            axis.axhspan(-0.2, 0.0, color="0.9", lw=0)
            for x in cloud[k]:
                _draw_hopper(axis, x, color="C0", alpha=0.12, lw=1.5)
            _draw_hopper(axis, truth[k], color="k", alpha=1.0, lw=1.0)
        axes[0, 0].text(0.02, 0.02, f"t = {task.period * (k + 1):.2f} s", transform=axes[0, 0].transAxes)

    FuncAnimation(figure, draw, frames=len(truth)).save(path, PillowWriter(fps=LOOK["fps"]), dpi=LOOK["dpi"])
    plt.close(figure)


def _draw_hopper(axis: Any, x: Array, **style: Any) -> None:
    c = aslip_hopper.STANDARD
    turn = np.array([[np.cos(x[2]), -np.sin(x[2])], [np.sin(x[2]), np.cos(x[2])]])
    corners = x[:2, None] + turn @ (np.array([[-1, 1, 1, -1, -1], [-1, -1, 1, 1, -1]]) * np.array(BODY)[:, None])
    hip = x[:2] + turn @ np.array([c.hip_x, c.hip_y])
    ahead = c.half_stance * x[3] + c.placement * (x[3] - c.speed)
    flying = hip + np.array([ahead, -np.sqrt(c.length**2 - ahead**2)])
    foot = x[6:8] if x[8] > 0.5 else flying
    axis.plot(*corners, **style)
    axis.plot([hip[0], foot[0]], [hip[1], foot[1]], marker=".", ms=3, **style)


def experiment(samples: int = 80, draws: int = 50, seed: int = 3, folder: str = "figures") -> dict[str, Any]:
    """Make the film; return its path and the mean errors of the vertical speed of draws [m/s].

    Parameters
    ----------
    samples, draws, seed : int
    folder : str
    """
    task = hopper(scattered=True, samples=samples)
    truth, measured, _ = simulated(task, seed)
    aware = beliefs(task, measured, draws, seed, scattered=task.scattered)
    flat = beliefs(task, measured, draws, seed, parts=1)
    path = Path(folder) / "estimation_hopper.gif"
    path.parent.mkdir(parents=True, exist_ok=True)
    film(task, truth, (flat, aware), ("believes in flat ground", "knows how uneven it is"), path)
    errors = {
        name: float(np.mean([np.abs(cloud[:, 4] - x[4]) for cloud, x in zip(clouds, truth, strict=True)]))
        for name, clouds in (("flat", flat), ("uneven", aware))
    }
    return {"film": str(path), "speed_errors": errors}


def run(settings: Settings, progress: Progress) -> Report:
    """Make the film and report."""
    made = experiment(**settings.arguments)
    title = "mean error of the vertical speed of draws [m/s]"
    rows = [{"belief": name, title: error} for name, error in made["speed_errors"].items()]
    return tabled(made, True, {made["film"]: rows})


PROGRAM = program(__name__, run, experiment, quick={"samples": 4, "draws": 3})
