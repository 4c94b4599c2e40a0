"""Conserved and chaotic quantities of tumbling bodies over long times.

The number of collisions is chaotic, so its mean over perturbed starts is compared; energy and rotation stay at
rounding over 1e5 steps (Fig. 6), while motions that start 1e-8 apart separate visibly after the eighth collision of the
cube (Figs. 7, 8). Algorithm 5.1, symplectic through impacts, lets the energy wander where 5.2 keeps it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from math import pi, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from models import bouncing_bodies
from models.bouncing_bodies import CASES
from nosnoc_py.progress import Progress
from problems.bouncing_bodies import energies, energy_errors
from problems.figures import Curve, Panel, chart
from problems.runner import Report, program, tabled
from problems.settings import Settings, defaults_of
from tests.references.tumbling import findings

Array = NDArray[np.float64]

METHOD = ns.LieGroupVariational(h=0.01)
QUICK = {"starts": 3, "duration": 20.0, "horizon": 16.0}
SHORT = 10.0  # duration [s] of the figures that show single impacts
REFERENCES = {"III": (795.0, 25.0), "IV": (647.0, 11.0)}  # mean and deviation of collisions in 1000 s
NODES = 2000  # nodes of a long motion, besides impacts
OFFSET, ANGLE = 1e-8, 1e-8 * pi  # size of the perturbations [m, rad]
VISIBLE = 1e-2


def simulate(case: str, start: Array | None, duration: float, method: ns.LieGroupVariational) -> ns.Trajectory:
    """Simulate a case, by default from its own initial state."""
    body = bouncing_bodies.build(case)
    return ns.simulate(
        body, x0=bouncing_bodies.start(body) if start is None else start, duration=duration, method=method
    )


def sparse(method: ns.LieGroupVariational, duration: float) -> ns.LieGroupVariational:
    """Return the method with fewer nodes, for long motions."""
    return method.replace(record_every=max(1, round(duration / method.h / NODES)))


def counts(
    starts: int = 24, duration: float = 1000.0, size: float = 1e-3, seed: int = 0, *, method: Any = METHOD
) -> dict[str, Array]:
    """Return the numbers of impacts of Cases III and IV from perturbed initial states."""
    numbers, coarse = {}, sparse(method, duration)
    for case in REFERENCES:
        starting = bouncing_bodies.nearby(bouncing_bodies.build(case), starts, size=size, seed=seed)
        numbers[case] = np.array([len(simulate(case, x0, duration, coarse).impacts) for x0 in starting], float)
    return numbers


def statistics(samples: Mapping[str, Array], duration: float) -> dict[str, dict[str, Any]]:
    """Return means, deviations and standard errors, and the distance of the mean from its reference in standard errors.

    The reference scatters, too, but its mean is taken for exact; both are scaled to the duration.
    """
    rows = {}
    for case, numbers in samples.items():
        mean, deviation = float(numbers.mean()), float(numbers.std(ddof=1)) if numbers.size > 1 else float("nan")
        error, reference = deviation / sqrt(numbers.size), REFERENCES[case][0] * duration / 1000.0
        rows[case] = {
            "counts": numbers.astype(int).tolist(),
            "mean": mean,
            "deviation": deviation,
            "standard_error": error,
            "reference": reference,
            "standard_errors_away": abs(mean - reference) / error if error > 0 else None,
        }
    return rows


def neighbours(horizon: float = 25.0, *, method: Any = METHOD) -> tuple[Any, dict[str, ns.Trajectory]]:
    """Return three motions of the cube: the original, one lifted by 1e-8 m, one turned by 1e-8 pi rad."""
    body = bouncing_bodies.build("IV")
    starts = {
        "original": bouncing_bodies.start(body),
        "position perturbed": bouncing_bodies.perturbed(body, position=OFFSET),
        "attitude perturbed": bouncing_bodies.perturbed(body, angle=ANGLE),
    }
    return body, {name: simulate("IV", x0, horizon, method) for name, x0 in starts.items()}


def distances(trajectories: Mapping[str, ns.Trajectory]) -> tuple[Array, dict[str, Array]]:
    """Return times, and |x_per - x| + |R_per - R| of the perturbed motions in 2-norms."""
    first, *others = trajectories
    reference = trajectories[first]
    t = np.linspace(reference.t0, reference.t[-1], round(reference.duration / 0.01) + 1)
    x, series = reference(t), {}
    for name in others:
        y = trajectories[name](t)
        turned = (y[:, 3:12] - x[:, 3:12]).reshape(-1, 3, 3)
        series[name] = np.linalg.norm(y[:, :3] - x[:, :3], axis=1) + np.linalg.norm(turned, ord=2, axis=(1, 2))
    return t, series


def attitude_distance(angle: float) -> float:
    """Return |R_per - R| in the 2-norm at the start of the cube, turned by an angle [rad]."""
    body = bouncing_bodies.build("IV")
    turned = bouncing_bodies.perturbed(body, angle=angle)[3:12] - bouncing_bodies.start(body)[3:12]
    return float(np.linalg.norm(turned.reshape(3, 3), ord=2))


def growth(trajectory: ns.Trajectory, t: Array, error: Array) -> list[float]:
    """Return the median growth of a distance between each impact and the next."""
    ends = [event.time for event in trajectory.impacts] + [float(t[-1])]
    between = [error[(t > a) & (t < b)] for a, b in zip([0.0, *ends[:-1]], ends, strict=True)]
    return [float(np.median(values)) if values.size else float("nan") for values in between]


def run(settings: Settings, progress: Progress) -> Report:
    """Simulate everything and compare."""
    started, arguments, method = time.monotonic(), settings.arguments, settings.method
    progress.describe("counting collisions")
    ensemble = {name: arguments[name] for name in ("starts", "duration", "size", "seed")}
    numbers = statistics(counts(**ensemble, method=method), arguments["duration"])
    progress.describe("long motions")
    long = {case: simulate(case, None, arguments["duration"], sparse(method, arguments["duration"])) for case in CASES}
    short = {case: simulate(case, None, SHORT, method) for case in CASES}
    bodies = {case: bouncing_bodies.build(case) for case in CASES}
    conserved = {case: findings(bodies[case], trajectory) for case, trajectory in long.items()}
    motions = neighbours(arguments["horizon"], method=method)[1]
    t, errors = distances(motions)
    first = motions["original"]
    other = sparse(method, arguments["duration"]).replace(algorithm="5.1")
    pair = {"5.2": long["I"], "5.1": simulate("I", None, arguments["duration"], other)}
    everything = (*long.values(), *short.values(), *motions.values(), *pair.values())
    results = {
        **first.to_dict(),
        "objective": None,
        "complementarity": max(row["complementarity"] for row in conserved.values()),
        "infeasibility": max(max(row["penetration"], row["orthogonality"]) for row in conserved.values()),
        "iterations": sum(round(trajectory.duration / method.h) for trajectory in everything),
        "wall_seconds": time.monotonic() - started,
        "collisions": numbers,
        "kept": {case: {**row, "impacts": len(long[case].impacts)} for case, row in conserved.items()},
        "initial_distance": {name: float(error[0]) for name, error in errors.items()},
        "attitude_distances": {
            "1e-8 pi rad": attitude_distance(ANGLE),
            "1e-6 degrees": attitude_distance(1e-6 * pi / 180),
        },
        "growth": {name: growth(first, t, error) for name, error in errors.items()},
        "algorithms": {name: _wandering(bodies["I"], trajectory) for name, trajectory in pair.items()},
    }
    grown = [
        {"after impact": n, **dict(zip(errors, one, strict=True))}
        for n, one in enumerate(zip(*results["growth"].values(), strict=True))
    ]
    moments = np.linspace(0.0, SHORT, 8)
    mixed = {case: (short if case in ("I", "II") else long)[case] for case in CASES}
    return tabled(
        results,
        all(trajectory.success for trajectory in everything),
        {
            "collisions from perturbed starts": [{"case": case, **row} for case, row in numbers.items()],
            "kept over a long motion": [{"case": case, **row} for case, row in results["kept"].items()],
            "distance of perturbed motions of the cube": grown,
            "largest energy error of Case I [J]": [{"algorithm": n, **f} for n, f in results["algorithms"].items()],
        },
        {
            "bouncing_bodies_snapshots.png": lambda: ns.snapshots(bodies["III"], short["III"], moments),
            "bouncing_bodies_energies.png": lambda: chart([energies(bodies[c], short[c], c) for c in CASES], 2),
            "bouncing_bodies_energy_errors.png": lambda: chart(
                [energy_errors(bodies[c], mixed[c], c) for c in CASES], 2
            ),
            "bouncing_bodies_divergence.png": lambda: chart([_divergence(t, errors, first)]),
            "bouncing_bodies_algorithms.png": lambda: chart([energy_errors(bodies["I"], pair[n], n) for n in pair]),
        },
    )


def _divergence(t: Array, errors: Mapping[str, Array], first: ns.Trajectory) -> Panel:
    """Draw the distances from the first motion over time (Fig. 8), and its impacts."""
    times = [event.time for event in first.impacts]
    curves = [Curve(t, values, name) for name, values in errors.items()]
    return Panel(curves=curves, y="$|x_{per} - x| + |R_{per} - R|$", log="y", times=times, levels=(VISIBLE,))


def _wandering(body: Any, trajectory: ns.Trajectory) -> dict[str, float]:
    """Return the largest |E(t) - E(0)| over the first and over the second half of a motion [J]."""
    error = np.abs(bouncing_bodies.energy(body, trajectory.x) - bouncing_bodies.energy(body, trajectory.x[0]))
    early = trajectory.t <= trajectory.t0 + 0.5 * trajectory.duration
    return {"first_half": float(error[early].max()), "second_half": float(error[~early].max())}


PROGRAM = program(
    __name__,
    run,
    {**defaults_of(counts), **defaults_of(neighbours)},
    quick=QUICK,
    method=METHOD,
    fixed=("algorithm", "record_every"),
)
