"""Probability that a law holds all constraints: sampled by exact simulations, and predicted from few of them.

The sampled probability has a Clopper-Pearson interval. The predicted one interpolates the constraints between the
simulations of a low-discrepancy set by radial basis functions, and counts how many of many more points of that set the
interpolation leaves within the limits: constraints are smooth in what is uncertain as long as the order of contacts
stays, and only continuous where it changes, which polynomials of a high degree would not follow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nosnoc_py.api import simulate
from nosnoc_py.control.measured import admissible
from nosnoc_py.control.requirements import ROUNDING, Requirements
from nosnoc_py.errors import OptionError, check_type, check_whole
from nosnoc_py.ocp import OCP
from nosnoc_py.processes import mapped
from nosnoc_py.simulation.event_driven.options import THROUGH_TOUCHES
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.controls import SampledLaw
from nosnoc_py.uncertain import Uncertain

if TYPE_CHECKING:  # pragma: no cover - for readers and type checkers
    from nosnoc_py.control.tracking import TrackingLaw

Array = np.ndarray
# Simulations that a prediction interpolates between: so many, times the number of uncertain quantities plus one, a
# power of two; power of two of the points at which the interpolation is evaluated; ranks that are kept off 0 and 1.
NODES, POINTS, LIMITS = 32, 13, (1e-9, 1.0 - 1e-9)
# Violations, relative to the size of the constraint, that are not told apart.
SATURATED = 0.3
# Confidence of the interval of the sampled probability.
CONFIDENCE = 0.95


@dataclass(frozen=True, eq=False, kw_only=True)
class Success:
    """Draws of what is uncertain, and how often a law held all constraints.

    Attributes
    ----------
    names : tuple of str
        Uncertain quantities.
    values : (n, quantities)
        Their values in every draw.
    constraints : tuple of str
        Names of the rows that have to hold.
    violations : (n, constraints)
        Largest relative violation in every draw: 0 if it holds; infinite if the simulation stopped early.
    predicted : float
        Predicted probability; NaN if it was not asked for.

    Examples
    --------
    >>> import numpy as np, nosnoc_py as ns
    >>> values, missed = np.zeros((4, 1)), np.array([[0], [0], [0.2], [0]])
    >>> test = ns.Success(names=("friction",), values=values, constraints=("goal",), violations=missed)
    >>> test.probability, test.missed
    (0.75, {'goal': 1})
    >>> print(test)
    Success: 75.0% of 4 draws (95 %: 19.4% to 99.4%); goal missed 1 times
    """

    names: tuple[str, ...]
    values: Array
    constraints: tuple[str, ...]
    violations: Array
    predicted: float = np.nan

    @property
    def n(self) -> int:
        """Number of draws."""
        return len(self.values)

    @property
    def held(self) -> Array:
        """True for the draws (n,) in which every constraint holds."""
        return np.asarray((self.violations <= 0.0).all(axis=1))

    @property
    def probability(self) -> float:
        """Fraction of the draws in which every constraint holds."""
        return float(self.held.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """Confidence interval of the probability, 95 % (Clopper and Pearson 1934)."""
        from scipy.stats import binomtest  # not paid for by an import of the library

        interval = binomtest(int(self.held.sum()), self.n).proportion_ci(CONFIDENCE, "exact")
        return float(interval.low), float(interval.high)

    @property
    def missed(self) -> dict[str, int]:
        """Requirements that were missed, with the number of draws, the most frequent one first."""
        counts = (self.violations > 0.0).sum(axis=0)
        order = np.argsort(-counts, kind="stable")
        return {self.constraints[i]: int(counts[i]) for i in order if counts[i]}

    def __repr__(self) -> str:
        low, high = self.interval
        predicted = "" if np.isnan(self.predicted) else f", predicted {self.predicted:.1%}"
        missed = "".join(f"; {name} missed {count} times" for name, count in list(self.missed.items())[:3])
        return f"Success: {self.probability:.1%} of {self.n} draws (95 %: {low:.1%} to {high:.1%}){predicted}{missed}"


def success(
    law: TrackingLaw,
    *,
    n: int,
    seed: int,
    uncertain: Uncertain | None,
    ocp: OCP | None,
    tolerance: float,
    predict: bool,
    workers: int = 1,
) -> Success:
    """Simulate draws of what is uncertain with a law; see `TrackingLaw.success`."""
    check_whole(**{"success: n": n})
    uncertain = law.uncertain if uncertain is None else uncertain
    if uncertain is None:
        raise OptionError("success: nothing is uncertain; give uncertain=ns.Uncertain(...).")
    check_type(uncertain, Uncertain, "uncertain")
    uncertain.check(law.system)
    ocp = law.ocp if ocp is None else ocp
    if ocp is None:
        raise OptionError("success: this plan does not know its OCP, so there are no constraints to hold; give ocp=.")
    check_type(ocp, OCP, "ocp")
    if ocp.system.state_names != law.system.state_names or ocp.system.parameter_names != law.system.parameter_names:
        raise OptionError("success: ocp: expected an OCP with the states and parameters of the plan.")
    required = Requirements(ocp, tolerance)
    if not required.labels:
        raise OptionError("success: the OCP has no terminal constraints, path constraints or bounds of states to hold.")

    def excesses(values: Array) -> Array:
        return excesses_of(law, required, uncertain, values, law.states[0], workers)

    values = uncertain.draws(n, seed)
    sampled = excesses(values).max(axis=2)
    return Success(
        names=uncertain.names,
        values=values,
        constraints=required.labels,
        violations=np.where(sampled > ROUNDING, sampled, 0.0),
        predicted=_predicted(excesses, uncertain) if predict else np.nan,
    )


def excesses_of(
    law: TrackingLaw, required: Requirements, uncertain: Uncertain, values: Array, x0: Array, workers: int
) -> Array:
    """Return by how much closed loops exceed the limits (n, rows, 2), for values (n, quantities) of what is uncertain.

    The other components of the initial state are those of x0 (n_x,). See `Requirements.excesses`.
    """

    def excesses(case: Array) -> Array:
        start, p = uncertain.apply(case, x0, law.p, law.system)
        return required.excesses(closed_loop(law, start, p), p)

    return np.array(mapped(excesses, list(values), workers))


def closed_loop(law: TrackingLaw, x0: Array, p: Array) -> Trajectory:
    """Simulate a law event by event, from an initial state that is projected where it penetrates a contact."""
    # A sampled law of its own: the law itself holds no samples.
    u = SampledLaw(law, law.period)
    start = admissible(law.system, x0, p)
    return simulate(law.system, x0=start, duration=law.plan.duration, u=u, p=p, method=THROUGH_TOUCHES)


def _predicted(excesses: Callable[[Array], Array], uncertain: Uncertain) -> float:
    """Return the fraction of many points at which interpolated constraints hold."""
    from scipy.interpolate import RBFInterpolator  # not paid for by an import of the library
    from scipy.spatial import cKDTree
    from scipy.stats import norm, qmc

    d = len(uncertain.names)
    places = qmc.Sobol(d, seed=0).random_base2(POINTS)
    normal = norm.ppf(np.clip(places, *LIMITS))
    # The first points of the sequence are spread over all of it.
    count = 2 ** int(np.ceil(np.log2(NODES * (d + 1))))
    found = excesses(uncertain.values(normal[:count])).reshape(count, -1)
    kept = ~np.isposinf(found).any(axis=1)
    # A point is lost if the simulation at the nearest node was.
    alive = np.asarray(kept)[cKDTree(places[:count]).query(places)[1]]
    if kept.sum() <= d + 1:  # too few to interpolate between
        return float(alive.mean())
    # Limits that are infinite are never exceeded.
    bounded = np.isfinite(found[kept]).all(axis=0)
    # Interpolation in the ranks: there a uniform quantity has no far ends.
    # Only the sign counts: a motion that goes far astray would make the interpolation oscillate elsewhere.
    values = np.clip(found[kept][:, bounded], -SATURATED, SATURATED)
    over = RBFInterpolator(places[:count][kept], values, kernel="thin_plate_spline")(places)
    return float((alive & (over <= ROUNDING).all(axis=1)).mean())
