"""Smoother through contacts: states along a motion, times of events and parameters, with intervals.

The fit of `estimation` to all data together with what is known before them. Its Gauss-Newton Hessian J'J, in which the
prior is a row like the data, gives the covariance C of the free values; derivatives of the motion, saltation matrices
included, give that of all states and event times,

    cov x(t) = D C D',   D = dx(t) / d(values),       var t* = d C d',   d = dt* / d(values).

Close to an impact the velocity is one of two values, according to the side the impact is on; the interval there covers
both. For a linear system without contacts this is the smoother of Rauch, Tung and Striebel (AIAA J. 3(8), 1965).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nosnoc_py.arguments import named_arguments
from nosnoc_py.control.estimation import STARTS, Estimate, estimated, identifiability, starts_in
from nosnoc_py.control.measurements import Measurements
from nosnoc_py.control.predicted import Predictions, nodes_at
from nosnoc_py.errors import OptionError, check_positive, check_type, check_whole, unknown_name
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.solution import Event, Trajectory
from nosnoc_py.status import Status
from nosnoc_py.systems.described import Described

Array = np.ndarray
# Range of a value that has a prior but no range: this number of standard deviations to both sides.
WIDE = 8.0


@dataclass(frozen=True, eq=False, kw_only=True)
class SmoothedMotion:
    """Estimated motion with intervals.

    Attributes
    ----------
    estimate : Estimate
        The fit: values, optima, combinations that are not identifiable, status and message.
    level : float
        Probability of all intervals.
    t : (nodes,)
        Times of the nodes of the motion [s].
    x, std, lower, upper : (nodes, n_x)
        States, their standard deviations, and intervals.
    measured : (n,)
        Nodes of the measurements.
    values, std_of, intervals : dict
        Name -> value, standard deviation and (lower, upper) of every free value; NaN if the data do not determine it.
    events : tuple of Event
    event_std, event_intervals : (n_events,), (n_events, 2)
        Standard deviations and intervals of their times [s].
    names, covariance : (k names), (k, k)
        Free values and their covariance.
    motion : Trajectory
        Motion of the estimate, with its sensitivity.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> x, v = ca.SX.sym("x"), ca.SX.sym("v")
    >>> system = ns.ODE(x=ca.vertcat(x, v), flow=ca.vertcat(v, 0), names={"x": ["x", "v"]})
    >>> data = ns.Measurements([0.0, 0.5, 1.0], {"x": [1.0, 2.0, 3.0]}, sigma=0.1)
    >>> smoothed = ns.smooth(system, data, free={"x": (-5, 5), "v": (-5, 5)})
    >>> [round(bound, 3) for bound in smoothed.intervals["v"]], smoothed.std[smoothed.measured, 0].round(4).tolist()
    ([1.723, 2.277], [0.0913, 0.0577, 0.0913])
    """

    estimate: Estimate
    level: float
    t: Array
    x: Array
    std: Array
    lower: Array
    upper: Array
    measured: Array
    values: dict[str, float]
    std_of: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    events: tuple[Event, ...]
    event_std: Array
    event_intervals: Array
    names: tuple[str, ...]
    covariance: Array
    motion: Trajectory
    message: str

    @property
    def status(self) -> Status:
        """Status of the fit."""
        return self.estimate.status

    @property
    def success(self) -> bool:
        """True if the motion fits the data."""
        return self.status.success

    def __repr__(self) -> str:
        values = [
            f"{name} = {self.values[name]:.6g} +- {self.std_of[name]:.2g}" for name in self.names if "@" not in name
        ]
        events = [
            f"{event.name} at {event.time:.6g} +- {std:.2g} s"
            for event, std in zip(self.events, self.event_std, strict=True)
        ]
        return f"SmoothedMotion: {', '.join(values)}; {', '.join(events) or 'no events'}; {self.status}"


@named_arguments
def smooth(
    system: Described,
    data: Measurements,
    *,
    free: Mapping[str, Any] | None = None,
    prior: Mapping[str, Any] | None = None,
    disturbances: Mapping[str, float] | None = None,
    x0: Any = None,
    p: Any = None,
    u: Any = None,
    outputs: Mapping[str, Any] | None = None,
    start: Mapping[str, float] | None = None,
    starts: int = STARTS,
    seed: int = 0,
    level: float = 0.95,
    method: EventDriven | None = None,
    workers: int = 1,
) -> SmoothedMotion:
    """Estimate the states along a measured motion, times of events and parameters, all with intervals.

    The fit of `ns.fit`, with prior knowledge and, if asked, errors of the control that are constant between
    measurements. The covariance of its values, by derivatives through events, is that of everything else.

    Parameters
    ----------
    system : CLS, PSS, Heaviside, PDS or HybridSystem
    data : Measurements
        One motion. Without `sigma` the noise is estimated from the residuals, and intervals are those of Student's t.
    free : mapping, optional
        Name of a parameter or of a state (its initial value) -> (lower, upper).
    prior : mapping, optional
        Name -> (mean, standard deviation) of a free value before the data. A name that is not in `free` is free within
        8 standard deviations.
    disturbances : mapping, optional
        Name of a control -> standard deviation of its error, which is constant between measurements: process noise that
        respects contacts. The control `u` has to be constant on intervals.
    x0, p, u, outputs, start, starts, seed, method, workers
        As for `ns.fit`. The search starts at means of the prior.
    level : float
        Probability of the intervals.

    Returns
    -------
    SmoothedMotion

    Raises
    ------
    OptionError
        For unknown names, empty ranges, nothing that is free, or numbers out of their range.
    ModelError
        If no start can be simulated.

    Examples
    --------
    Restitution, height of the floor, and the times of impacts of a ball from measured heights:

    >>> import casadi as ca, numpy as np, nosnoc_py as ns
    >>> q, v, p = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("p", 2)
    >>> floor = ns.Contact("floor", gap=q - p[1], restitution=p[0])
    >>> ball = ns.CLS(q=q, v=v, p=p, p_default=[0.5, 0], mass_matrix=1, force=-9.81, contacts=[floor],
    ...               names={"q": ["height"], "v": ["speed"], "p": ["e", "floor"]})
    >>> t = np.linspace(0.05, 1.0, 20)
    >>> seen = ns.simulate(ball, x0=[1, 0], duration=1.0, p=[0.8, 0.05], times=t)
    >>> data = ns.Measurements(t, {"height": seen.sample(q, t)}, sigma=0.002)
    >>> smoothed = ns.smooth(ball, data, free={"e": (0, 1), "floor": (-0.2, 0.2)},
    ...                      prior={"height": (1.0, 0.1), "speed": (0.0, 0.1)}, starts=2)
    >>> {name: round(std, 4) for name, std in smoothed.std_of.items()}
    {'e': 0.0007, 'floor': 0.0009, 'height': 0.0016, 'speed': 0.0062}
    >>> [event.name for event in smoothed.events], smoothed.event_std.round(5)
    (['floor'], array([0.00024]))
    """
    check_type(data, Measurements, "data")
    if not (np.isreal(level) and 0.0 < float(level) < 1.0):
        raise OptionError(f"smooth: level: expected a number between 0 and 1, given {level!r}.")
    check_whole(**{"smooth: workers": workers})
    if data.sigma is None and (prior or disturbances):
        raise OptionError(
            "smooth: prior and disturbances are weighed against the noise of the data; give ns.Measurements(sigma=...)."
        )
    priors = _priors(prior)
    ranges = {name: (mean - WIDE * std, mean + WIDE * std) for name, (mean, std) in priors.items()}
    ranges = {**(free or {}), **{name: bounds for name, bounds in ranges.items() if name not in (free or {})}}
    if not ranges:
        raise OptionError("smooth: expected values that are free, in free= or in prior=, given none.")
    predictions = Predictions.of(system, (data,), ranges, x0, p, u, outputs, method)
    means = np.array([priors.get(name, (0.0, np.inf))[0] for name in predictions.names])
    stds = np.array([priors.get(name, (0.0, np.inf))[1] for name in predictions.names])
    begin = {name: mean for name, (mean, _) in priors.items()} | dict(start or {})
    points = starts_in(predictions.names, *predictions.bounds, begin, starts, seed)
    predictions = replace(predictions, prior=(means, stds))
    if disturbances:
        predictions = _disturbed(predictions, disturbances)
        points = [np.append(point, np.zeros(len(predictions.names) - point.size)) for point in points]
    estimate = estimated(predictions, points, 1, workers)
    return _smoothed(predictions, estimate, float(level))


def _priors(prior: Mapping[str, Any] | None) -> dict[str, tuple[float, float]]:
    priors = {}
    for name, pair in (prior or {}).items():
        try:
            mean, std = (float(value) for value in pair)
        except (TypeError, ValueError):
            raise OptionError(f"smooth: prior: {name}: expected (mean, standard deviation), given {pair!r}.") from None
        check_positive(**{f"smooth: prior of {name}: standard deviation": std})
        priors[name] = mean, std
    return priors


def _disturbed(predictions: Predictions, disturbances: Mapping[str, float]) -> Predictions:
    """Return predictions with free errors of controls between measurements."""
    system, times = predictions.system, predictions.runs[0].times
    grid = np.unique(np.append(0.0, times))
    names, entries, stds = [], [], []
    for name, std in disturbances.items():
        if name not in system.control_names:
            raise OptionError(f"smooth: disturbances: {unknown_name(name, system.control_names)}")
        check_positive(**{f"smooth: disturbance of {name}": std})
        for stage in range(grid.size - 1):
            names.append(f"{name}@{stage}")
            entries.append(("u", system.control_names.index(name), stage))
            stds.append(float(std))
    wide, (lower, upper) = WIDE * np.array(stds), predictions.bounds
    assert predictions.prior is not None
    mean, std_of = predictions.prior
    return replace(
        predictions, names=(*predictions.names, *names), entries=(*predictions.entries, *entries), stages=grid,
        bounds=(np.append(lower, -wide), np.append(upper, wide)),
        prior=(np.append(mean, np.zeros(wide.size)), np.append(std_of, stds)),
    )  # fmt: skip


def _smoothed(predictions: Predictions, estimate: Estimate, level: float) -> SmoothedMotion:
    best, (lower, upper) = estimate.optima[0], predictions.bounds
    known_noise = predictions.runs[0].sigma is not None
    unit = 1.0 if known_noise else float(np.sqrt(estimate.chi2))
    # Values at a bound as well: their interval ends there, but what depends on them is uncertain.
    covariance = identifiability(predictions, best.jacobian, np.ones(len(lower), dtype=bool), unit)[1]
    freedom = np.inf if known_noise else max(1, best.residuals.size - len(lower))
    width = _quantile(level, freedom)
    motion = predictions.simulated(best.values, 0, sensitivities=True)
    by_states, by_times = predictions.by_values(motion)
    std = _deviations(by_states, covariance)
    event_std = _deviations(by_times, covariance)
    times = np.array([event.time for event in motion.events])
    low, high = _with_other_sides(motion, motion.x - width * std, motion.x + width * std, times, width * event_std)
    value_std = np.sqrt(np.diag(covariance))
    ends = np.array(
        [np.maximum(lower, best.values - width * value_std), np.minimum(upper, best.values + width * value_std)]
    )
    notes = [estimate.message] if estimate.message else []
    if motion.sensitivity is not None and motion.sensitivity.flags:
        notes.append(f"no intervals behind {motion.sensitivity.flags[0]}")
    names = predictions.names
    return SmoothedMotion(
        estimate=estimate, level=level, t=motion.t, x=motion.x, std=std, lower=low, upper=high,
        measured=nodes_at(motion.t - motion.t0, predictions.runs[0].times),
        values=dict(zip(names, map(float, best.values), strict=True)),
        std_of=dict(zip(names, map(float, value_std), strict=True)),
        intervals={name: (float(a), float(b)) for name, a, b in zip(names, *ends, strict=True)},
        events=motion.events, event_std=event_std,
        event_intervals=np.stack([times - width * event_std, times + width * event_std], axis=1),
        names=names, covariance=covariance, motion=motion, message="; ".join(notes),
    )  # fmt: skip


def _quantile(level: float, freedom: float) -> float:
    from scipy import special  # not paid for by an import of the library

    probability = 0.5 * (1.0 + level)
    return float(special.ndtri(probability) if np.isinf(freedom) else special.stdtrit(freedom, probability))


def _deviations(rows: Array, covariance: Array) -> Array:
    """Return standard deviations (...) of what has the derivatives (..., k); NaN without them or without a variance."""
    # A value that nothing depends on may be unknown.
    used = (rows != 0.0).reshape(-1, rows.shape[-1]).any(axis=0)
    part = rows[..., used]
    return np.asarray(np.sqrt(np.maximum(((part @ covariance[np.ix_(used, used)]) * part).sum(axis=-1), 0.0)))


def _with_other_sides(motion: Trajectory, low: Array, high: Array, times: Array, reach: Array) -> tuple[Array, Array]:
    """Return intervals that cover both sides of a jump wherever it may be before or after the node."""
    lower, upper = low.copy(), high.copy()
    for t, away in zip(times, reach, strict=True):
        at = np.flatnonzero(motion.t == t)
        if at.size < 2 or not np.isfinite(away):
            continue
        for near, other in ((motion.t <= t, at[-1]), (motion.t >= t, at[0])):
            rows = near & (np.abs(motion.t - t) <= away)
            rows[at] = False
            lower[rows] = np.minimum(lower[rows], low[other])
            upper[rows] = np.maximum(upper[rows], high[other])
    return lower, upper
