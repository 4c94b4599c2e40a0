"""Gradients backwards through simulations, cost and accuracy: `python -m problems.benchmarks.gradients`.

Forty scenes whose derivatives exist (`tests/references/gradient_scenes.py`): the gradient of a random loss is compared
with forward derivatives, which share its maps, and in a random direction with differences, which share nothing.

Costs are times of the processor: `simulation` of `ns.simulate`, `adjoint` of what a gradient adds to it, relative to
that, and `forward` of all forward derivatives; `again` is one more gradient of the same motion. Scenes of growing size
show how costs depend on states, parameters and control stages. Random scenes count gradients that are finite.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import nosnoc_py as ns
from models import many_balls
from nosnoc_py.progress import Progress
from problems.benchmarks.orders import check_names
from problems.runner import Report, program, tabled
from problems.settings import Settings
from tests.references import fuzz_scenes
from tests.references.gradient_scenes import (
    NAMES,
    GradientScene,
    Weights,
    against_differences,
    against_forward,
    bounces,
)
from tests.references.gradient_scenes import scene as scene_of

Row = dict[str, Any]
FORWARD, DIFFERENCES, MOST_SIMULATIONS = 1e-9, 1e-6, 5.0
LIMIT = 30.0  # of the time of a random scene [s]


def sized() -> dict[str, GradientScene]:
    """Return scenes of growing size."""
    waves = scene_of("waves, 30 rows")
    found = {f"{n} parameters": GradientScene(system=bounces(n), x0=[1.0, 0.0], duration=1.0) for n in (2, 20, 200)}
    for n in (1, 20, 200):
        found[f"{n} stages"] = GradientScene(
            system=waves.system, x0=waves.x0, duration=waves.duration, u=np.full((n, 2), 0.3)
        )
    for n in (2, 10):
        constants = many_balls.scaled(many_balls.STANDARD, n)
        found[f"{n} balls"] = GradientScene(
            system=many_balls.build(constants), x0=many_balls.start(constants), duration=0.3
        )
    return found


def experiment(
    cases: tuple[str, ...] = (),
    random: int = 1000,
    repeats: int = 5,
    *,
    progress: Progress,
) -> tuple[list[Row], list[Row], Row]:
    """Return accuracies and costs of the scenes, costs of sized ones, and counts of random ones.

    Parameters
    ----------
    cases : tuple of str
        Names of scenes, by default all.
    random : int
        Number of random scenes.
    repeats : int
        Turns, of which the best one counts.
    """
    check_names(cases=(cases, NAMES))
    rows = []
    for name in cases or NAMES:
        progress.describe(name)
        scene = scene_of(name)
        errors = {"to forward": against_forward(scene), "to differences": against_differences(scene)}
        rows.append({"scene": name, **errors, **_costs(scene, repeats)})
    larger = []
    for name, scene in sized().items() if not cases else ():
        progress.describe(name)
        larger.append({"scene": name, **_costs(scene, repeats)})
    progress.describe("random scenes")
    return rows, larger, _random(random)


def _costs(scene: GradientScene, repeats: int) -> Row:
    motion = scene.run(sensitivities="reverse")
    loss = Weights.of(motion, scene.times, 0)
    sides: tuple[Callable[[], Any], ...] = (
        scene.run,
        lambda: loss.gradient(scene.run(sensitivities="reverse")),
        lambda: scene.run(sensitivities=True),
        lambda: loss.gradient(motion),
    )
    plain, adjoint, forward, again = np.min([[_timed(side) for side in sides] for _ in range(repeats)], axis=0)
    return {
        "states": motion.x.shape[1],
        "simulation [ms]": 1e3 * plain,
        "adjoint / simulation": adjoint / plain - 1.0,
        "forward / simulation": forward / plain - 1.0,
        "again [us]": 1e6 * again,
    }


def _timed(run: Callable[[], Any]) -> float:
    started = time.thread_time()
    run()
    return time.thread_time() - started


def _random(count: int) -> Row:
    finite = flagged = 0
    for seed in range(count):
        rng = np.random.default_rng(seed)
        scene = fuzz_scenes.bodies(rng)
        system, x0 = scene.simulated
        motion = ns.simulate(system, x0=x0, duration=scene.duration, sensitivities="reverse", time_limit=LIMIT)
        events = rng.normal(size=len(motion.events))
        gradient = motion.vjp(final=rng.normal(size=motion.x.shape[1]), event_times=events)
        finite += bool(np.isfinite(gradient.x0).all() and np.isfinite(gradient.p).all())
        flagged += not gradient.smooth
    return {"random scenes": count, "with finite gradients": finite, "without a derivative": flagged}


def run(settings: Settings, progress: Progress) -> Report:
    """Measure and report; times do not decide."""
    rows, larger, counts = experiment(**settings.arguments, progress=progress)
    right = [row for row in rows if row["to forward"] <= FORWARD and row["to differences"] <= DIFFERENCES]
    cheap = [row for row in (*rows, *larger) if row["adjoint / simulation"] <= MOST_SIMULATIONS]
    finite = counts["random scenes"] == counts["with finite gradients"]
    return tabled(
        {"scenes": rows, "sized": larger, **counts},
        len(right) == len(rows) and finite,
        {"gradients": rows, "scenes of growing size": larger, "random scenes": [counts]},
        said=[
            f"{len(right)} of {len(rows)} agree with forward derivatives to {FORWARD:g} and with differences to "
            f"{DIFFERENCES:g}",
            f"{len(cheap)} of {len(rows) + len(larger)} gradients cost at most {MOST_SIMULATIONS:g} simulations",
        ],
    )


PROGRAM = program(__name__, run, experiment, quick={"cases": ("bounce_slip_2d", "hybrid"), "random": 5, "repeats": 1})
