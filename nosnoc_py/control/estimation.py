"""Parameters and initial states from measured motions: least squares through impacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.control.fitted import Optimum, search
from nosnoc_py.control.measurements import Measurements
from nosnoc_py.control.predicted import Predictions
from nosnoc_py.errors import ModelError, OptionError, check_type, unknown_name
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.solution import Trajectory
from nosnoc_py.status import Status
from nosnoc_py.systems.described import Described

Array = np.ndarray
# Starts of the search for the best fit, the user's or the middle of all ranges first.
STARTS = 8
# Optima are others where a value differs by more than these standard deviations and this share of its range.
APART, SHARE = 5.0, 1e-3
# Residuals larger than the noise by this factor are no fit.
POOR = 3.0
# A combination of values is not seen where its standard deviation exceeds this share of the range that it may have.
UNSEEN = 0.5


@dataclass(frozen=True, eq=False, kw_only=True)
class Combination:
    """A direction in the space of the free values, each relative to the width of its range.

    Attributes
    ----------
    weights : dict
        Name -> share; the squares add up to one.
    std : float
        Standard deviation of the combination, in widths of ranges.
    seen : bool
        Whether the data tell it.
    """

    weights: dict[str, float]
    std: float
    seen: bool

    def __str__(self) -> str:
        parts = sorted(self.weights.items(), key=lambda item: -abs(item[1]))
        return " ".join(f"{weight:+.2f} {name}" for name, weight in parts if abs(weight) > 0.05)


@dataclass(frozen=True, eq=False, kw_only=True)
class Estimate:
    """What data say of parameters and initial states.

    Attributes
    ----------
    status : Status
        SOLVED for an optimum whose residuals are those of the noise.
    message : str
        Of a poor fit, several optima, values at their bounds.
    values, std : dict
        Name -> value and standard deviation, of everything that was free; NaN of what the data do not tell.
    p, x0 : (n_p,), (n_x,)
        All parameters and the initial state, with these values in them.
    residuals : (n,)
        Measured less predicted, over the standard deviation of the noise, one measured quantity after the other.
    chi2 : float
        Sum of their squares over the degrees of freedom: about 1 where the noise is what it was said to be.
    covariance : (k, k)
        Of the free values in the order of `names`.
    names : tuple of str
    combinations : tuple of Combination
        The best told first.
    optima : tuple of Optimum
        What the starts led to, the best first.
    multimodal : bool
        Whether starts led to several optima.
    motion : Trajectory
        Simulated with the estimate.
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
        """Whether the best optimum fits the data."""
        return self.status.success

    @property
    def identifiable(self) -> dict[str, bool]:
        """Name -> whether the data tell the value: no combination that they do not tell contains it."""
        unseen = [c for c in self.combinations if not c.seen]
        return {name: all(abs(c.weights[name]) < 0.1 for c in unseen) for name in self.names}

    def __repr__(self) -> str:
        told = ", ".join(f"{name} = {self.values[name]:.6g} +- {self.std[name]:.2g}" for name in self.names)
        modes = ", multimodal" if self.multimodal else ""
        return f"Estimate: {told}; chi2 {self.chi2:.3g}{modes}, {self.status}"


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
) -> Estimate:
    """Fit parameters and initial states to measured motions.

    The sum of squared residuals is minimised by a Gauss-Newton method with bounds (`scipy.optimize.least_squares`)
    from several starts; its derivatives go through impacts by saltation matrices.

    Parameters
    ----------
    system : CLS, PSS, Heaviside or PDS
    data : Measurements, or several of them
        Several motions share the parameters; free initial states are those of the first, of each where named "x[1]".
    free : mapping
        Name of a parameter or of a state (its initial value) -> (lower, upper).
    x0 : (n_x,) or mapping
        Initial state; of free states the value does not count. For several motions a sequence of them.
    p : (n_p,) or mapping, optional
        Parameters that are known.
    u : optional
        The controls, as for `ns.simulate`; for several motions a sequence of them.
    outputs : mapping, optional
        Name of a measured quantity that is no state -> its expression in the symbols of the system.
    start : mapping, optional
        Name -> where the first search starts; default the middle of the range.
    starts : int
        Searches at most, the others from points spread over the ranges (Latin hypercube); two that end at residuals
        like the noise are enough.
    seed : int
    segments : int
        With more than one, the data are first fitted in so many pieces with states of their own at their beginnings,
        which are then driven together (multiple shooting, Bock 1983): for long motions that amplify every error.
    method : EventDriven, optional

    Returns
    -------
    Estimate

    Raises
    ------
    OptionError, ModelError
        For names that the system does not have, ranges without an inside, data without points.

    Examples
    --------
    How high does a ball bounce, and where is the floor?

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
    if isinstance(segments, bool) or not isinstance(segments, int) or segments < 1:
        raise OptionError(f"fit: segments: expected a positive whole number, given {segments!r}.")
    made = Predictions.of(system, runs, free, x0, p, u, outputs, method)
    lower, upper = made.bounds
    points = _starts(made.names, lower, upper, start, starts, seed)
    known = all(run.sigma is not None for run in runs)
    found = search(made, points, segments, POOR**2 * sum(run.count for run in runs) if known else 0.0)
    if not found:
        raise ModelError("fit: the motion could not be simulated from any start; give start= values for which it can.")
    return _estimate(made, found)


def _estimate(made: Predictions, found: list[Optimum]) -> Estimate:
    best, (lower, upper) = found[0], made.bounds
    widths, freedom = upper - lower, max(1, best.residuals.size - len(made.names))
    chi2 = float(best.residuals @ best.residuals) / freedom
    known = all(run.sigma is not None for run in made.runs)
    at_bound = np.minimum(best.values - lower, upper - best.values) <= 1e-9 * widths
    combinations, covariance = _told(made, best.jacobian, ~at_bound, 1.0 if known else np.sqrt(chi2))
    std = np.sqrt(np.diag(covariance))
    away = np.where(np.isfinite(std), APART * std, 0.0) + SHARE * widths
    others = [o for o in found[1:] if o.converged and (np.abs(o.values - best.values) > away).any()]
    poor = known and chi2 > POOR**2
    notes = []
    if others:
        notes.append(
            f"multimodal: {len(others)} of {len(found)} starts ended at other optima, the best of them with "
            f"{others[0].cost / max(best.cost, 1e-300):.3g} times the sum of squares"
        )
    if poor:
        notes.append(f"no fit: residuals are {np.sqrt(chi2):.3g} times the noise")
    if at_bound.any():
        notes.append(f"at the end of its range: {', '.join(np.array(made.names)[at_bound])}")
    notes += [f"the data do not tell {combination}" for combination in combinations if not combination.seen]
    status = Status.POOR_FIT if poor else Status.SOLVED if best.converged else Status.ITERATION_LIMIT
    x0, p = made.split(best.values)
    return Estimate(
        status=status, message="; ".join(notes), values=dict(zip(made.names, map(float, best.values), strict=True)),
        std=dict(zip(made.names, map(float, std), strict=True)), p=p, x0=x0[0], residuals=best.residuals, chi2=chi2,
        covariance=covariance, names=made.names, combinations=combinations, optima=tuple(found),
        multimodal=bool(others), motion=made.motion(best.values),
    )  # fmt: skip


def _told(made: Predictions, jacobian: Array, inside: Array, unit: float) -> tuple[tuple[Combination, ...], Array]:
    """Combinations of the values that are inside their ranges, the best told first, and the covariance of all values.

    Residuals have the standard deviation `unit`; what the data do not tell has NaN in the covariance.
    """
    (lower, upper), places, names = made.bounds, np.flatnonzero(inside), made.names
    widths = (upper - lower)[places]
    _, sizes, directions = np.linalg.svd(jacobian[:, places] * widths, full_matrices=True)
    sizes = np.append(sizes, np.zeros(places.size - sizes.size))
    # A singular value that is rounding tells nothing.
    told = sizes > 1e-10 * max(1.0, sizes.max(initial=0.0))
    stds = np.where(told, unit / np.where(told, sizes, 1.0), np.inf)
    combinations = []
    for std, direction in zip(stds, directions, strict=True):
        weights = dict.fromkeys(names, 0.0)
        weights.update({names[i]: float(share) for i, share in zip(places, direction, strict=True)})
        combinations.append(Combination(weights=weights, std=float(std), seen=bool(std <= UNSEEN)))
    parts = directions.T * np.where(told, stds, 0.0)
    own = (parts @ parts.T) * np.outer(widths, widths)
    untold = (np.abs(directions[~told]) > 0.1).any(axis=0)
    own[untold], own[:, untold] = np.nan, np.nan
    covariance = np.zeros((len(names),) * 2)
    covariance[np.ix_(places, places)] = own
    return tuple(combinations), covariance


def _starts(
    names: tuple[str, ...], lower: Array, upper: Array, start: Mapping[str, float] | None, count: int, seed: int
) -> list[Array]:
    from scipy.stats import qmc  # not paid for by an import of the library

    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise OptionError(f"fit: starts: expected a positive whole number, given {count!r}.")
    first = 0.5 * (lower + upper)
    for name, value in (start or {}).items():
        if name not in names:
            raise OptionError(f"fit: start: {unknown_name(name, names)}")
        first[names.index(name)] = float(value)
    first = np.clip(first, lower, upper)
    if count == 1:
        return [first]
    spread = qmc.LatinHypercube(len(names), seed=seed).random(count - 1)
    return [first, *(lower + (upper - lower) * spread)]
