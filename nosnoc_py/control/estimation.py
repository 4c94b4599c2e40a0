"""Fit of parameters and initial states to measured motions: least squares through impacts.

The residuals (measured - predicted) / sigma are minimised over the free values within their ranges. Their Jacobian J
follows from sensitivities through events. After the fit the covariance is (J^T J)^-1, and the singular value
decomposition of J, scaled by the ranges, gives combinations of free values in order of their standard deviation; those
with a standard deviation above half of the range are reported as not identifiable (Bard 1974).

With impacts the sum of squares has several local optima (an impact before or after a measurement), hence the search
from several starts, and the check if different starts agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.arguments import named_arguments
from nosnoc_py.control.fitted import Optimum, search
from nosnoc_py.control.measurements import Measurements
from nosnoc_py.control.predicted import Predictions
from nosnoc_py.errors import ModelError, OptionError, check_type, check_whole, unknown_name
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.solution import Trajectory
from nosnoc_py.status import Status
from nosnoc_py.systems.described import Described

Array = np.ndarray
# Default number of starts; the first is the user's start or the middle of the ranges.
STARTS = 8
# Optima are different if a value differs by more than this many standard deviations plus this fraction of its range.
APART_STDS, APART_FRACTION = 5.0, 1e-3
# The fit is poor if the root mean square of the residuals exceeds the noise by this factor.
POOR_FIT = 3.0
# A combination is not identifiable if its standard deviation exceeds this fraction of its range.
UNIDENTIFIABLE = 0.5


@dataclass(frozen=True, eq=False, kw_only=True)
class Combination:
    """Direction in the space of the free values, each divided by the width of its range.

    Attributes
    ----------
    weights : dict
        Name -> component of the unit vector.
    std : float
        Standard deviation along the direction, in widths of the ranges.
    seen : bool
        True if the data determine the combination (standard deviation at most half of the range).
    """

    weights: dict[str, float]
    std: float
    seen: bool

    def __str__(self) -> str:
        parts = sorted(self.weights.items(), key=lambda item: -abs(item[1]))
        return " ".join(f"{weight:+.2f} {name}" for name, weight in parts if abs(weight) > 0.05)


@dataclass(frozen=True, eq=False, kw_only=True)
class Estimate:
    """Estimated parameters and initial states with their uncertainty.

    Attributes
    ----------
    status : Status
        SOLVED for an optimum with residuals of the size of the noise.
    message : str
        Notes on a poor fit, several optima, values at their bounds, and combinations that are not identifiable.
    values, std : dict
        Name -> value and standard deviation of every free value; the standard deviation is NaN if the data do not
        determine the value.
    p, x0 : (n_p,), (n_x,)
        All parameters and the initial state (of the first motion), with the estimated values inserted.
    residuals : (n,)
        (Measured - predicted) / sigma, time by time.
    chi2 : float
        Sum of squared residuals over the degrees of freedom: about 1 if `sigma` is the true noise.
    covariance : (k, k)
        Covariance of the free values in the order of `names`.
    names : tuple of str
        Names of the free values.
    combinations : tuple of Combination
        Principal directions of the covariance, the best determined first.
    optima : tuple of Optimum
        Local optima of all starts, the best first.
    multimodal : bool
        True if starts led to different optima.
    motion : Trajectory
        Motion simulated with the estimate.

    Examples
    --------
    Position and velocity of a free motion from measured positions:

    >>> import casadi as ca, nosnoc_py as ns
    >>> x, v = ca.SX.sym("x"), ca.SX.sym("v")
    >>> system = ns.ODE(x=ca.vertcat(x, v), flow=ca.vertcat(v, 0), names={"x": ["x", "v"]})
    >>> data = ns.Measurements([0.0, 0.5, 1.0], {"x": [1.0, 2.0, 3.0]}, sigma=0.1)
    >>> estimate = ns.fit(system, data, free={"x": (-5, 5), "v": (-5, 5)})
    >>> round(estimate.values["v"], 6), estimate.identifiable["v"], round(estimate.std["v"], 3)
    (2.0, True, 0.141)
    """

    status: Status
    message: str
    values: dict[str, float]
    std: dict[str, float]
    p: Array
    x0: Array
    residuals: Array
    chi2: float
    covariance: Array
    names: tuple[str, ...]
    combinations: tuple[Combination, ...]
    optima: tuple[Optimum, ...]
    multimodal: bool
    motion: Trajectory

    @property
    def success(self) -> bool:
        """True if the best optimum fits the data."""
        return self.status.success

    @property
    def identifiable(self) -> dict[str, bool]:
        """Name -> True if the data determine the value (it is in no combination that is not identifiable)."""
        unseen = [c for c in self.combinations if not c.seen]
        return {name: all(abs(c.weights[name]) < 0.1 for c in unseen) for name in self.names}

    def __repr__(self) -> str:
        values = ", ".join(f"{name} = {self.values[name]:.6g} +- {self.std[name]:.2g}" for name in self.names)
        modes = ", multimodal" if self.multimodal else ""
        return f"Estimate: {values}; chi2 {self.chi2:.3g}{modes}, {self.status}"


@named_arguments
def fit(
    system: Described,
    data: Measurements | Sequence[Measurements],
    *,
    free: Mapping[str, Any],
    x0: Any = None,
    p: Any = None,
    u: Any = None,
    outputs: Mapping[str, Any] | None = None,
    start: Mapping[str, float] | None = None,
    starts: int = STARTS,
    seed: int = 0,
    segments: int = 1,
    method: EventDriven | None = None,
    workers: int = 1,
) -> Estimate:
    """Fit parameters and initial states to measured motions.

    The sum of squared residuals is minimised with bounds (Gauss-Newton with a trust region,
    `scipy.optimize.least_squares`) from several starts. Derivatives cross impacts by saltation matrices.

    Parameters
    ----------
    system : CLS, PSS, Heaviside or PDS
    data : Measurements, or several of them
        Several motions share the parameters. A free initial state belongs to the first motion; name it "x[1]" for that
        of the second one.
    free : mapping
        Name of a parameter or of a state (its initial value) -> (lower, upper), in units of the system.
    x0 : (n_x,) or mapping
        Initial state; values of free states are ignored. A sequence for several motions.
    p : (n_p,) or mapping, optional
        Known parameters.
    u : optional
        Controls as for `ns.simulate`; a sequence for several motions.
    outputs : mapping, optional
        Name of a measured quantity that is not a state -> its expression in the symbols of the system.
    start : mapping, optional
        Name -> start of the first search; default the middle of the range.
    starts : int
        Maximal number of searches. Further starts are spread over the ranges (Latin hypercube); the search stops after
        two that reach residuals of the size of the noise.
    seed : int
        Seed of the Latin hypercube.
    segments : int
        If larger than 1, the data are first fitted in this number of pieces with free initial states, whose gaps are
        then closed (multiple shooting, Bock 1983). Use it for long motions that amplify errors.
    method : EventDriven, optional
        Simulation options; default `EventDriven(grazing="continue")`.
    workers : int
        Number of processes that search from several starts at a time, where processes can be forked (Linux); the
        estimate is that of one.

    Returns
    -------
    Estimate

    Raises
    ------
    OptionError
        For unknown names, empty ranges, no measurements, or invalid `starts`, `segments` and `workers`.
    ModelError
        If no start can be simulated.

    Examples
    --------
    Restitution of a ball and height of the floor from measured heights:

    >>> import casadi as ca, numpy as np, nosnoc_py as ns
    >>> q, v, p = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("p", 2)
    >>> floor = ns.Contact("floor", gap=q - p[1], restitution=p[0])
    >>> ball = ns.CLS(q=q, v=v, p=p, p_default=[0.5, 0], mass_matrix=1, force=-9.81, contacts=[floor],
    ...               names={"q": ["height"], "p": ["e", "floor"]})
    >>> t = np.linspace(0.05, 1.0, 20)
    >>> seen = ns.simulate(ball, x0=[1, 0], duration=1.0, p=[0.8, 0.05], times=t)
    >>> data = ns.Measurements(t, {"height": seen.sample(q, t)}, sigma=0.002)
    >>> est = ns.fit(ball, data, free={"e": (0, 1), "floor": (-0.2, 0.2)}, x0=[1, 0])
    >>> {name: round(value, 6) for name, value in est.values.items()}
    {'e': 0.8, 'floor': 0.05}
    """
    runs = (data,) if isinstance(data, Measurements) else tuple(data)
    for run in runs:
        check_type(run, Measurements, "data")
    if not runs:
        raise OptionError("fit: data: expected at least one ns.Measurements, given none.")
    check_whole(**{"fit: segments": segments, "fit: workers": workers})
    predictions = Predictions.of(system, runs, free, x0, p, u, outputs, method)
    lower, upper = predictions.bounds
    points = starts_in(predictions.names, lower, upper, start, starts, seed)
    return estimated(predictions, points, segments, workers)


def estimated(predictions: Predictions, points: Sequence[Array], segments: int, workers: int) -> Estimate:
    """Return the estimate of the best optimum that is reached from the starts."""
    runs = predictions.runs
    known_noise = all(run.sigma is not None for run in runs)
    fits = POOR_FIT**2 * sum(run.count for run in runs) if known_noise else 0.0
    optima = search(predictions, points, segments, fits, workers)
    if not optima:
        raise ModelError("fit: the motion could not be simulated from any start; give start= values for which it can.")
    return _estimate(predictions, optima)


def _estimate(predictions: Predictions, optima: list[Optimum]) -> Estimate:
    best, (lower, upper) = optima[0], predictions.bounds
    widths, freedom = upper - lower, max(1, best.residuals.size - len(predictions.names))
    chi2 = float(best.residuals @ best.residuals) / freedom
    known_noise = all(run.sigma is not None for run in predictions.runs)
    # Values at a bound have no two-sided uncertainty; they are excluded from the covariance.
    at_bound = np.minimum(best.values - lower, upper - best.values) <= 1e-9 * widths
    combinations, covariance = identifiability(
        predictions, best.jacobian, ~at_bound, 1.0 if known_noise else np.sqrt(chi2)
    )
    std = np.sqrt(np.diag(covariance))
    # A value that the data do not determine differs between starts without being another optimum.
    distance = np.where(np.isfinite(std), APART_STDS * std, 0.0) + APART_FRACTION * widths
    # Searches that did not converge may still be on their way to the best optimum.
    others = [o for o in optima[1:] if o.converged and (np.abs(o.values - best.values) > distance).any()]
    poor = known_noise and chi2 > POOR_FIT**2
    notes = []
    if others:
        notes.append(
            f"multimodal: {len(others)} of {len(optima)} starts ended at other optima, the best of them with "
            f"{others[0].cost / max(best.cost, 1e-300):.3g} times the sum of squares"
        )
    if poor:
        notes.append(f"poor fit: residuals are {np.sqrt(chi2):.3g} times the noise")
    if at_bound.any():
        notes.append(f"at a bound of its range: {', '.join(np.array(predictions.names)[at_bound])}")
    notes += [f"not identifiable from the data: {combination}" for combination in combinations if not combination.seen]
    status = Status.POOR_FIT if poor else Status.SOLVED if best.converged else Status.ITERATION_LIMIT
    x0, p = predictions.split(best.values)
    return Estimate(
        status=status, message="; ".join(notes),
        values=dict(zip(predictions.names, map(float, best.values), strict=True)),
        std=dict(zip(predictions.names, map(float, std), strict=True)), p=p, x0=x0[0], residuals=best.residuals,
        chi2=chi2,
        covariance=covariance, names=predictions.names, combinations=combinations, optima=tuple(optima),
        multimodal=bool(others), motion=predictions.motion(best.values),
    )  # fmt: skip


def identifiability(
    predictions: Predictions, jacobian: Array, inside: Array, unit: float
) -> tuple[tuple[Combination, ...], Array]:
    """Return combinations of free values, the best determined first, and the covariance of all free values.

    Only values inside their ranges (`inside`) vary; those at a bound have zero variance. `unit` is the standard
    deviation of a residual. The covariance is NaN for values that the data do not determine.
    """
    (lower, upper), indices, names = predictions.bounds, np.flatnonzero(inside), predictions.names
    widths = (upper - lower)[indices]
    _, singular_values, directions = np.linalg.svd(jacobian[:, indices] * widths, full_matrices=True)
    singular_values = np.append(singular_values, np.zeros(indices.size - singular_values.size))
    # Singular values at the level of rounding do not determine a direction.
    determined = singular_values > 1e-10 * max(1.0, singular_values.max(initial=0.0))
    # Residuals have standard deviation `unit`, so a direction has standard deviation unit / singular value.
    stds = np.where(determined, unit / np.where(determined, singular_values, 1.0), np.inf)
    combinations = []
    for std, direction in zip(stds, directions, strict=True):
        weights = dict.fromkeys(names, 0.0)
        weights.update({names[i]: float(share) for i, share in zip(indices, direction, strict=True)})
        combinations.append(Combination(weights=weights, std=float(std), seen=bool(std <= UNIDENTIFIABLE)))
    scaled = directions.T * np.where(determined, stds, 0.0)
    block = (scaled @ scaled.T) * np.outer(widths, widths)
    # A value is undetermined if it has a component in a direction that the data do not determine.
    undetermined = (np.abs(directions[~determined]) > 0.1).any(axis=0)
    block[undetermined], block[:, undetermined] = np.nan, np.nan
    covariance = np.zeros((len(names),) * 2)
    covariance[np.ix_(indices, indices)] = block
    return tuple(combinations), covariance


def starts_in(
    names: tuple[str, ...], lower: Array, upper: Array, start: Mapping[str, float] | None, count: int, seed: int
) -> list[Array]:
    """Return starts (k,): the user's or the middle of the ranges, then a Latin hypercube."""
    from scipy.stats import qmc  # not paid for by an import of the library

    check_whole(**{"fit: starts": count})
    first = 0.5 * (lower + upper)
    for name, value in (start or {}).items():
        if name not in names:
            raise OptionError(f"fit: start: {unknown_name(name, names)}")
        first[names.index(name)] = float(value)
    first = np.clip(first, lower, upper)
    if count == 1:
        return [first]
    # Low discrepancy: few starts cover all ranges.
    spread = qmc.LatinHypercube(len(names), seed=seed).random(count - 1)
    return [first, *(lower + (upper - lower) * spread)]
