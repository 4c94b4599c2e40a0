"""Filters and smoothers through impacts: `python -m problems.benchmarks.contact_filters`.

Motions are simulated with the noise that the filters believe in, and estimated by

* "salted", the salted Kalman filter as published, which believes in one height of the ground,
* "uncertainty aware", the same with the guard's variance at events (Payne, Kong, Johnson, arXiv 2202.12729),
* "one part", `ns.Filter(parts=1)`: the mean decides whether an impact has happened,
* "ekf" and "ukf", `ns.Filter`.

Both published filters are written by other means in `tests.references.salted_filter`. The hopper
(`models.aslip_hopper`) has noisy positions, errors of its forces, and a new height of the ground at every step; the
ball has a new height of the floor and a new restitution at every impact.

* Errors: mean of the norm of the error of position and velocity over runs and time, and by how much it is smaller than
  that of "salted": on average, and where most. The paper prints "a peak reduction in average estimation error by
  24-60%".
* Consistency: the sum of all normalised innovations squared, by its chi-square distribution.
* The smoother beside "salted" on the hopper over known ground, close to touchdowns, as hybrid iterative linear
  quadratic estimation (Payne, Zhu, Kong, Johnson, arXiv 2410.19958: "a maximum of 63.55% reduction in estimation error
  magnitude over all state dimensions near impact events").
* Coverage: how often 95 % intervals of `ns.smooth` cover the truth, on balls with unknown start, floor and restitution.

The exit code is 0 if `ekf` passes its chi-square test (0.1 to 99.9 %), its errors are not larger than those of the
published filters, and intervals cover 92 to 98 %.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import casadi as ca
import numpy as np
from numpy.typing import NDArray
from scipy import stats

import nosnoc_py as ns
from models import aslip_hopper
from nosnoc_py.processes import mapped
from problems.benchmarks.orders import check_names
from problems.runner import Report, program, tabled
from problems.settings import Settings
from tests.references.salted_filter import SaltedFilter

Array = NDArray[np.float64]
METHOD = ns.EventDriven(grazing="continue", rtol=1e-7, atol=1e-9)
FILTERS = ("salted", "uncertainty aware", "one part", "ekf", "ukf")
NEAR = 3  # samples on both sides of a touchdown
PROBABILITY = 0.001, 0.999  # of the sum of innovations
COVERED = 0.92, 0.98


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """A system, what is measured of it, and the noise that acts on it."""

    system: ns.HybridSystem
    start: tuple[float, ...]
    start_std: tuple[float, ...]
    sigma: Mapping[str, float]
    control_std: tuple[float, ...]
    scattered: Mapping[str, float]
    period: float
    samples: int
    counted: int  # leading states of which errors are counted
    rising: int  # velocity that is negative where a contact is approached

    @property
    def rows(self) -> list[int]:
        """Indices of the measured states."""
        return [self.system.state_names.index(name) for name in self.sigma]


@lru_cache
def hopper(scattered: bool = True, samples: int = 100) -> Task:
    """Return the hopper, with 2 cm of scattered ground."""
    return Task(
        system=aslip_hopper.build(), start=tuple(aslip_hopper.start()),
        start_std=(0.02,) * 3 + (0.05,) * 3 + (0.0,) * 3,
        sigma={"x": 0.005, "y": 0.005, "angle": 0.01}, control_std=(0.5, 0.5), period=0.02, samples=samples, counted=6,
        scattered={"ground": 0.02} if scattered else {}, rising=4,
    )  # fmt: skip


@lru_cache
def ball() -> Task:
    """Return a ball whose floor and restitution are scattered by 2 cm and 0.03."""
    x, u, p = ca.SX.sym("x", 2), ca.SX.sym("u"), ca.SX.sym("p", 2)
    bounce = ns.StateJump("bounce", guard=x[0] - p[0], reset=ca.vertcat(x[0], -p[1] * x[1]))
    names = {"x": ["height", "speed"], "u": ["force"], "p": ["floor", "e"]}
    system = ns.HybridSystem(
        x=x, u=u, p=p, p_default=[0.0, 0.9], flow=ca.vertcat(x[1], u - 9.81), jumps=[bounce], names=names
    )
    return Task(
        system=system, start=(1.0, 0.0), start_std=(0.05, 0.05), sigma={"height": 0.01}, control_std=(0.3,),
        scattered={"floor": 0.02, "e": 0.03}, period=0.04, samples=60, counted=2, rising=1,
    )  # fmt: skip


TASKS: dict[str, Callable[[], Task]] = {"ball": ball, "hopper": hopper}


def simulated(task: Task, seed: int) -> tuple[Array, Array, list[float]]:
    """Return true states (samples, n_x), measured values (samples, m), and times of touchdowns."""
    rng, system = np.random.default_rng(seed), task.system
    x = np.array(task.start) + np.array(task.start_std) * rng.standard_normal(len(task.start))
    p, states, touched = np.array(system.p_default, dtype=float), [], True
    hits: list[float] = []
    first = system.jumps[0].name
    for k in range(task.samples):
        if touched and x[task.rising] < 0.0:
            # The next contact is approached: it is at another height.
            p, touched = np.array(system.p_default, dtype=float), False
            for name, std in task.scattered.items():
                p[system.parameter_names.index(name)] += std * rng.standard_normal()
        u = np.array(task.control_std) * rng.standard_normal(len(task.control_std))
        motion = ns.simulate(system, x0=x, duration=task.period, p=p, u=u, method=METHOD)
        if not motion.success:
            raise RuntimeError(f"seed {seed}: {motion.message}")
        times = [k * task.period + event.time for event in motion.events if event.name == first]
        hits, touched, x = hits + times, touched or bool(times), motion.final_state
        states.append(x)
    truth = np.array(states)
    noise = np.array(list(task.sigma.values())) * rng.standard_normal((task.samples, len(task.sigma)))
    return truth, truth[:, task.rows] + noise, hits


def filtered(task: Task, name: str, measured: Array) -> tuple[Array, Array, int]:
    """Return estimates (samples, n_x), normalised innovations squared, and the number of simulations."""
    if name in ("salted", "uncertainty aware"):
        std = [task.scattered.get(p, 0.0) if name != "salted" else 0.0 for p in task.system.parameter_names]
        published = SaltedFilter(
            task.system, task.rows, list(task.sigma.values()), task.start, task.start_std, task.control_std, std
        )
        return np.array([published.step(y, task.period) for y in measured]), np.zeros(0), 0
    kalman = ns.Filter(
        task.system, sigma=task.sigma, period=task.period, x0=task.start, x0_std=task.start_std,
        kind="ukf" if name == "ukf" else "ekf", scattered=task.scattered, control_std=task.control_std,
        parts=1 if name == "one part" else 4,
    )  # fmt: skip
    estimates, nis, simulations = [], [], 0
    for y in measured:
        estimates.append(kalman.step(dict(zip(task.sigma, map(float, y), strict=True))))
        assert kalman.last is not None
        nis.append(kalman.last.nis)
        simulations += kalman.last.simulations
    return np.array(estimates), np.array(nis), simulations


def compared(task_name: str, filters: Sequence[str], seed: int) -> dict[str, dict[str, Any]]:
    """Return errors (samples, counted), innovations and processor time of filters on one motion."""
    task = TASKS[task_name]()
    truth, measured, _ = simulated(task, seed)
    result = {}
    for name in filters:
        began = time.process_time()
        estimates, nis, simulations = filtered(task, name, measured)
        seconds = time.process_time() - began
        errors = (estimates - truth)[:, : task.counted]
        result[name] = {"errors": errors, "nis": nis, "seconds": seconds, "simulations": simulations}
    return result


def filter_rows(task_name: str, runs: Sequence[Mapping[str, Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Return a row for each filter."""
    task, rows = TASKS[task_name](), []
    # The same runs for both sides of a comparison: not every filter has all of them.
    for name in dict.fromkeys(name for run in runs for name in run):
        own = [run for run in runs if name in run]
        average, reference = (
            np.mean([np.linalg.norm(run[which]["errors"], axis=1) for run in own], axis=0) for which in (name, "salted")
        )
        nis = np.array([run[name]["nis"] for run in own])
        samples = len(own) * task.samples
        rows.append(
            {
                "task": task_name, "filter": name, "runs": len(own), "error": float(average.mean()),
                "reduction": float(1.0 - average.mean() / reference.mean()),
                "peak": float((1.0 - average / reference).max()),
                "nis": float(nis.mean() / len(task.sigma)) if nis.size else np.nan,
                "probability": float(stats.chi2.cdf(nis.sum(), nis.size * len(task.sigma))) if nis.size else np.nan,
                "ms_per_sample": 1e3 * float(np.mean([run[name]["seconds"] for run in own])) / task.samples,
                "simulations": sum(run[name]["simulations"] for run in own) / samples,
            }
        )  # fmt: skip
    return rows


def smoothed_hopper(seed: int) -> dict[str, Array]:
    """Return errors (samples, 6) of the salted filter and of the smoother, and the samples close to touchdowns."""
    task = hopper(scattered=False, samples=60)
    truth, measured, hits = simulated(task, seed)
    salted = filtered(task, "salted", measured)[0]
    times = task.period * np.arange(1, task.samples + 1)
    data = ns.Measurements(times, dict(zip(task.sigma, measured.T, strict=True)), sigma=dict(task.sigma))
    names = task.system.state_names[: task.counted]
    prior = {name: (task.start[i], task.start_std[i]) for i, name in enumerate(names)}
    forces = dict(zip(task.system.control_names, task.control_std, strict=True))
    smoothed = ns.smooth(
        task.system, data, x0=task.start, prior=prior, disturbances=forces, u=[0.0, 0.0], starts=1, method=METHOD
    )
    near = np.abs(times[:, None] - np.array(hits)[None]).min(axis=1) <= NEAR * task.period
    own = slice(0, task.counted)
    errors = smoothed.x[smoothed.measured][:, own] - truth[:, own]
    return {"salted": (salted - truth)[:, own], "smoothed": errors, "near": near}


def hopper_rows(runs: Sequence[Mapping[str, Array]]) -> list[dict[str, Any]]:
    """Return a row for each state: mean size of errors close to touchdowns."""
    rows = []
    for i, name in enumerate(aslip_hopper.NAMES[:6]):
        salted, smoothed = (
            float(np.mean(np.concatenate([np.abs(run[which][run["near"], i]) for run in runs])))
            for which in ("salted", "smoothed")
        )
        rows.append({"state": name, "salted": salted, "smoothed": smoothed, "reduction": 1.0 - smoothed / salted})
    return rows


@lru_cache
def _unknown_ball() -> ns.CLS:
    q, v, p = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("p", 2)
    floor = ns.Contact("floor", gap=q - p[1], restitution=p[0])
    names = {"q": ["height"], "v": ["speed"], "p": ["e", "floor"]}
    return ns.CLS(q=q, v=v, p=p, p_default=[0.8, 0.0], mass_matrix=1, force=-9.81, contacts=[floor], names=names)


PRIOR = {"height": (1.0, 0.05), "speed": (0.0, 0.1), "e": (0.8, 0.04), "floor": (0.0, 0.04)}


def covered(seed: int, sigma: float = 0.005) -> dict[str, list[bool]]:
    """Return which intervals of one data set cover the truth: of values, states, and times of impacts."""
    system, rng, t = _unknown_ball(), np.random.default_rng([seed, 1]), 0.05 * np.arange(1, 31)
    true = {name: mean + std * rng.standard_normal() for name, (mean, std) in PRIOR.items()}
    motion = ns.simulate(
        system, x0=[true["height"], true["speed"]], duration=1.5, p=[true["e"], true["floor"]], times=t, method=METHOD
    )
    data = ns.Measurements(t, {"height": motion(t)[:, 0] + sigma * rng.standard_normal(t.size)}, sigma=sigma)
    smoothed = ns.smooth(system, data, prior=PRIOR, free={"e": (0.0, 1.0)}, starts=2, method=METHOD)
    low, high = smoothed.lower[smoothed.measured], smoothed.upper[smoothed.measured]
    inside = (low <= motion(t)) & (motion(t) <= high)
    kept = {name: [smoothed.intervals[name][0] <= true[name] <= smoothed.intervals[name][1]] for name in PRIOR}
    kept |= {"states: height": list(inside[:, 0]), "states: speed": list(inside[:, 1])}
    # A last impact close to the end may be in one motion only.
    ends = smoothed.event_intervals
    kept["times of impacts"] = [bool(a <= event.time <= b) for event, (a, b) in zip(motion.events, ends, strict=False)]
    return kept


def coverage_rows(sets: Sequence[Mapping[str, list[bool]]]) -> list[dict[str, Any]]:
    """Return shares of covered values; errors of shares are those of independent data sets."""
    rows = []
    for name in sets[0]:
        shares = np.array([np.mean(each[name]) for each in sets if each[name]])
        rows.append(
            {
                "what": name, "data_sets": len(shares), "covered": float(shares.mean()),
                "error": float(shares.std(ddof=1) / np.sqrt(len(shares))) if len(shares) > 1 else np.nan,
            }
        )  # fmt: skip
    return rows


def experiment(
    tasks: tuple[str, ...] = ("ball", "hopper"),
    filters: tuple[str, ...] = FILTERS,
    runs: int = 200,
    points: int = 20,
    smoothed: int = 30,
    data_sets: int = 400,
    workers: int = 1,
    callback: Callable[[Any], Any] | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """Return the tables.

    Parameters
    ----------
    tasks, filters : tuple of str
    runs, points : int
        Motions for all filters, and those that "ukf" has, too.
    smoothed : int
        Hops that are smoothed.
    data_sets : int
        Balls whose intervals are counted.
    workers : int
        Number of processes.

    Raises
    ------
    OptionError
        For an unknown name.
    """
    check_names(tasks=(tasks, tuple(TASKS)), filters=(filters, FILTERS))
    tables: dict[str, list[dict[str, Any]]] = {"filters": [], "smoother near touchdowns": [], "coverage": []}
    for task in tasks:
        few = tuple(dict.fromkeys(("salted", *filters)))
        many = tuple(name for name in few if name != "ukf")
        jobs = [(task, few if seed < points else many, seed) for seed in range(runs)]
        tables["filters"] += filter_rows(task, mapped(_compared, jobs, workers))
        if callback is not None:
            callback(f"{task}: {runs} runs")
    if smoothed:
        tables["smoother near touchdowns"] = hopper_rows(mapped(smoothed_hopper, range(smoothed), workers))
        if callback is not None:
            callback(f"{smoothed} hops smoothed")
    if data_sets:
        tables["coverage"] = coverage_rows(mapped(covered, range(data_sets), workers))
    return tables


def _compared(job: tuple[str, tuple[str, ...], int]) -> dict[str, dict[str, Any]]:
    return compared(*job)


def failures(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[str]:
    """Return what is not as it should be."""
    said = []
    by_name = {(row["task"], row["filter"]): row for row in tables["filters"]}
    for (task, name), row in by_name.items():
        if name == "ekf" and not PROBABILITY[0] <= row["probability"] <= PROBABILITY[1]:
            said.append(f"{task}: innovations of ekf have a probability of {row['probability']:.4g}")
        if name in ("salted", "uncertainty aware") and (task, "ekf") in by_name:
            own = by_name[task, "ekf"]["error"]
            if own > row["error"]:
                said.append(f"{task}: the error of ekf, {own:.4g}, is above that of {name}, {row['error']:.4g}")
    for row in tables["coverage"]:
        # Few data sets: three standard errors of the share are allowed.
        room = 0.0 if row["data_sets"] >= 200 else 3.0 * np.sqrt(0.05 * 0.95 / row["data_sets"])
        if not COVERED[0] - room <= row["covered"] <= COVERED[1] + room:
            said.append(f"intervals of {row['what']} cover {100 * row['covered']:.1f} %")
    return said


def run(settings: Settings, progress: Any) -> Report:
    """Run everything and report."""
    started = time.monotonic()
    tables = experiment(**settings.arguments, callback=progress)
    said = failures(tables)
    titles = {
        "filters": "filters: mean error, its reduction relative to salted, innovations, work",
        "smoother near touchdowns": "hopper near touchdowns: mean size of errors [m, rad, m/s, rad/s]",
        "coverage": "95 % intervals of the smoother: share that covers the truth",
    }
    results = {**tables, "wall_seconds": time.monotonic() - started}
    return tabled(results, not said, {titles[name]: rows for name, rows in tables.items()}, said=said)


QUICK = {"runs": 2, "points": 1, "smoothed": 1, "data_sets": 4, "tasks": ("ball",)}
PROGRAM = program(__name__, run, experiment, quick=QUICK)
