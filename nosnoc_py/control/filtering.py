"""Kalman filters of systems with contacts: the belief passes impacts, whose times and places have a distribution.

z = (states, free parameters, scattered parameters) has a Gaussian belief N(m, P). Over a period the mean moves by exact
events, and P by

    P+ = F P F' + B W B' + Q,        F = d z(T) / d z(0),    B = d z(T) / d u.

F and B contain the saltation matrices of all events (Kong, Payne, Council, Johnson: The Salted Kalman Filter,
Automatica 131 (2021)). A guard g(x, theta) with an uncertain theta needs nothing else: by the saltation matrix of
(x, theta) the time of the event depends on theta, dt* = -(g_x dx + g_theta dtheta) / (g_x F-), so that the variance of
theta enters the covariance behind the event. (Payne, Kong, Johnson: The Uncertainty Aware Salted Kalman Filter, arXiv
2202.12729, add this term to a filter of x alone.) Unscented points do the same without derivatives, each through its
own events.

Near an impact a belief is no Gaussian: one part of it has the impact before the measurement and one after it. With
s = t* - t (or the gap, before an impact), linear in z, the belief is divided into the parts s < 0 and s > 0, which are
moved through their own events. They are corrected separately, weighted by their likelihoods, and merged as soon as both
are on the same side. An innovation that is too large by its chi-square distribution makes the filter try parts that are
less probable: an unexpected impact, or one that did not happen. A mean beyond a guard after a correction is replaced by
that of the part of its belief that is not beyond: so an impact is neither lost nor counted twice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from nosnoc_py.arguments import named_arguments
from nosnoc_py.control.beliefs import Belief, corrected, distance, merged, mixture, root_of
from nosnoc_py.control.filter_motion import UNDECIDED, FilterModel, MovedBelief
from nosnoc_py.control.guards import EventDistances
from nosnoc_py.control.moving_horizon import MODEL
from nosnoc_py.control.predicted import Output, by_names, checked_sigma
from nosnoc_py.errors import ModelError, OptionError, check_positive, check_whole, unknown_name
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.solution import Event
from nosnoc_py.status import Status
from nosnoc_py.systems.described import Described

Array = np.ndarray
# After an innovation that is too large, parts of a belief as many standard deviations away are tried.
UNEXPECTED = 8.0
# An innovation is too large if its normalised square has a smaller probability than this.
IMPROBABLE = 1e-4
# Parts of a belief are kept above this probability, and are one belief again when they are closer than this number of
# standard deviations of their sum.
NEGLIGIBLE, TOGETHER = 1e-4, 4.0
# Logarithm of the share of a part that is divided off farther than `UNDECIDED`.
_RARE = -6.6


@dataclass(frozen=True, eq=False, kw_only=True)
class FilterStep:
    """Belief of a filter after a measurement.

    Attributes
    ----------
    t : float
        Time of the measurement since the start [s].
    x, p : (n_x,), (n_p,)
        State and parameters: the mean of the most probable part of the belief.
    names : tuple of str
        States, then free and scattered parameters: the rows of `covariance`.
    covariance : (n, n)
        Second moments of the whole belief about `x` and these parameters.
    innovation, innovation_covariance : (m,), (m, m)
        Measured minus predicted values, and their predicted covariance, of the m values that were measured.
    nis : float
        Normalised innovation squared: chi-square distributed with m degrees of freedom if model and noise are right.
    weights : (k,)
        Probabilities of the parts of the belief, the largest first. More than one: an impact is undecided.
    mode : tuple of str
        Closed contacts of the most probable part.
    events : tuple of Event
        Its events in the last period; times count from the start of the filter.
    event_std : (n_events,)
        Standard deviations of their times [s] before the measurement; NaN where the time has no derivative.
    simulations : int
        Number of simulations of a period that the step took.
    flags : tuple of str
        Impacts that are undecided, unexpected or did not happen; innovations that nothing explains; missing
        derivatives.
    status : Status
        Status of the simulation; if none succeeded, the belief is the one before, corrected by the measurement.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> x = ca.SX.sym("x")
    >>> decay = ns.ODE(x=x, flow=-x, names={"x": ["level"]})
    >>> kalman = ns.Filter(decay, sigma={"level": 0.1}, period=0.1, x0=[1.0], x0_std=0.1)
    >>> x = kalman.step({"level": 1.0})
    >>> kalman.last
    FilterStep at 0.1 s: level = 0.947676 +- 0.067; NIS 0.498 of 1, solved
    """

    t: float
    x: Array
    p: Array
    names: tuple[str, ...]
    covariance: Array
    innovation: Array
    innovation_covariance: Array
    nis: float
    weights: Array
    mode: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    event_std: Array = field(default_factory=lambda: np.zeros(0))
    simulations: int = 0
    flags: tuple[str, ...] = ()
    status: Status = Status.SOLVED

    @property
    def std(self) -> dict[str, float]:
        """Name -> standard deviation."""
        return dict(zip(self.names, map(float, np.sqrt(np.diag(self.covariance))), strict=True))

    def __repr__(self) -> str:
        values = ", ".join(
            f"{name} = {value:.6g} +- {std:.2g}" for (name, std), value in zip(self.std.items(), self.x, strict=False)
        )
        parts = f", {len(self.weights)} parts" if len(self.weights) > 1 else ""
        flags = f"; {'; '.join(self.flags)}" if self.flags else ""
        nis = f"NIS {self.nis:.3g} of {self.innovation.size}"
        return f"FilterStep at {self.t:g} s: {values}; {nis}{parts}, {self.status}{flags}"


@named_arguments
class Filter:
    """Extended or unscented Kalman filter of states and parameters through impacts.

    Covariances cross impacts by saltation matrices, or by unscented points that each have their own impacts. Times and
    places of impacts have a distribution: parameters of guards are part of the state. Impacts that may or may not have
    happened before a measurement are followed as two parts of the belief until the measurements decide.

    Parameters
    ----------
    system : CLS, PSS, Heaviside, PDS or HybridSystem
        Model of the plant.
    sigma : mapping
        Name of a measured state or output -> standard deviation of its noise, in the unit of the value.
    period : float
        Time between measurements [s], for steps without a time of their own.
    x0, x0_std : (n_x,) or mapping
        Initial state one period before the first measurement, and its standard deviations (a number for all). As
        `x0_std` a matrix (n_x, n_x) is the covariance.
    kind : {"ekf", "ukf"}
        Covariances by derivatives, or by unscented points.
    free : mapping, optional
        Name of a parameter to be estimated -> standard deviation of its initial value.
    scattered : mapping, optional
        Name of a parameter that is different at every contact (the height of uneven ground, a restitution) -> standard
        deviation about its value in `p`. It is drawn again when a contact is over.
    process : float, (n_x,) or mapping
        Standard deviations of white noise per square root of a second, of states and of free parameters by their names.
        It acts at the end of a period; closed contacts stay closed.
    control_std : (n_u,) or mapping, optional
        Standard deviation of an error of the control that is constant in a period: noise that respects contacts.
    outputs : mapping, optional
        Name of a measured quantity that is not a state -> its expression in the symbols of the system.
    p : (n_p,) or mapping, optional
        Known parameters and initial values of the others; default those of the system.
    parts : int
        Largest number of parts of the belief; 1: impacts are taken as the mean has them (the published filters).
    method : EventDriven, optional
        Simulation options.

    Attributes
    ----------
    x, p : (n_x,), (n_p,)
        Estimates at the last measurement.
    std : dict
        Name of a state or of a free or scattered parameter -> standard deviation at the last measurement.
    last : FilterStep or None
        All of the last step: covariance, innovation, parts, events and flags.

    Raises
    ------
    OptionError, ModelError
        For unknown names, and values that must be positive and are not.

    Notes
    -----
    A step of the extended filter costs a simulation of a period with sensitivities, of the unscented one 2 n + 1
    simulations without; near an impact, and with several parts, two or three times as much (`last.simulations`).

    Examples
    --------
    A ball falls on a floor whose height is known to 5 cm; only its own height is measured:

    >>> import casadi as ca, numpy as np, nosnoc_py as ns
    >>> q, v, floor = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("floor")
    >>> ground = ns.Contact("ground", gap=q - floor, restitution=0.8)
    >>> ball = ns.CLS(q=q, v=v, p=floor, p_default=[0], mass_matrix=1, force=-9.81, contacts=[ground],
    ...               names={"q": ["height"], "v": ["speed"], "p": ["floor"]})
    >>> t = 0.05 * np.arange(1, 31)
    >>> seen = ns.simulate(ball, x0=[1, 0], duration=1.5, p=[0.08], times=t).sample(q, t)
    >>> kalman = ns.Filter(ball, sigma={"height": 0.01}, period=0.05, x0=[1, 0], x0_std=0.1, free={"floor": 0.05})
    >>> for height in seen:
    ...     x = kalman.step({"height": height})
    >>> bool(abs(kalman.p[0] - 0.08) < 3 * kalman.std["floor"] < 0.03)
    True
    """

    def __init__(
        self,
        system: Described,
        *,
        sigma: Mapping[str, float],
        period: float,
        x0: Any,
        x0_std: Any,
        kind: Literal["ekf", "ukf"] = "ekf",
        free: Mapping[str, float] | None = None,
        scattered: Mapping[str, float] | None = None,
        process: Any = 0.0,
        control_std: Any = 0.0,
        outputs: Mapping[str, Any] | None = None,
        p: Any = None,
        parts: int = 4,
        method: EventDriven | None = None,
    ) -> None:
        self.sigma = checked_sigma(sigma, period, "Filter")
        if kind not in ("ekf", "ukf"):
            raise OptionError(f"Filter: kind: expected 'ekf' or 'ukf', given {kind!r}.")
        check_whole(**{"Filter: parts": parts})
        uncertain = {**(free or {}), **(scattered or {})}
        for name, value in uncertain.items():
            if name not in system.parameter_names:
                raise OptionError(f"Filter: free, scattered: {unknown_name(name, system.parameter_names)}")
            check_positive(**{f"standard deviation of {name}": value})
        if both := set(free or {}) & set(scattered or {}):
            raise OptionError(f"Filter: {', '.join(sorted(both))}: expected in free or in scattered, given in both.")
        self.system, self.period, self.parts = system, float(period), parts
        self.free, self.scattered = tuple(free or {}), tuple(scattered or {})
        self.names = (*system.state_names, *self.free, *self.scattered)
        n_x, stds = len(system.state_names), np.array([float(value) for value in uncertain.values()])
        p0 = np.array(system.parameters(p), dtype=float)
        indices = np.array([system.parameter_names.index(name) for name in uncertain], dtype=int)
        noise = _noise(process, system.state_names, self.free)
        self.model = FilterModel(
            system=system, output=Output.of(system, tuple(self.sigma), outputs), distances=EventDistances(system),
            method=MODEL if method is None else method, p=p0, indices=indices,
            scatter=np.concatenate([np.zeros(n_x + len(self.free)), stds[len(self.free) :]]),
            noise=np.append(noise, np.zeros(len(self.scattered))) ** 2,
            control_std=by_names(control_std, system.control_names, "Filter: control_std"),
            noise_of=np.diag(np.array(list(self.sigma.values())) ** 2), units=np.append(system.x_nominal, stds),
            derivatives=kind == "ekf",
        )  # fmt: skip
        covariance = np.zeros((len(self.names),) * 2)
        covariance[:n_x, :n_x] = _covariance(x0_std, system.state_names)
        covariance[n_x:, n_x:] = np.diag(stds**2)
        mean = np.append(by_names(x0, system.state_names, "Filter: x0"), p0[indices])
        self.t = 0.0
        self.last: FilterStep | None = None
        self._parts: tuple[MovedBelief, ...] = (MovedBelief(belief=Belief(mean=mean, covariance=covariance)),)

    @property
    def x(self) -> Array:
        """Estimated state (n_x,)."""
        return self.model.split(self._parts[0].belief.mean)[0].copy()

    @property
    def p(self) -> Array:
        """All parameters (n_p,), with the estimated ones."""
        return self.model.split(self._parts[0].belief.mean)[1]

    @property
    def covariance(self) -> Array:
        """Second moments (n, n) of the belief about the estimate, in the order of `names`."""
        center = self._parts[0].belief.mean
        return np.asarray(
            sum(
                part.belief.weight
                * (part.belief.covariance + np.outer(part.belief.mean - center, part.belief.mean - center))
                for part in self._parts
            )
        )

    @property
    def std(self) -> dict[str, float]:
        """Name -> standard deviation."""
        return dict(zip(self.names, map(float, np.sqrt(np.diag(self.covariance))), strict=True))

    @named_arguments
    def step(self, y: Mapping[str, float], u: Any = None, t: float | None = None) -> Array:
        """Add a measurement and return the estimated state (n_x,).

        Parameters
        ----------
        y : mapping
            Measured values by name; missing ones and NaN are not used.
        u : (n_u,), optional
            Control since the last measurement; default zero.
        t : float, optional
            Time of the measurement since the start [s]; default one period after the last one.

        Raises
        ------
        ModelError
            For names that are not in `sigma`, or a time before that of the last step.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x = ca.SX.sym("x")
        >>> decay = ns.ODE(x=x, flow=-x, names={"x": ["level"]})
        >>> kalman = ns.Filter(decay, sigma={"level": 0.01}, period=0.1, x0=[2.0], x0_std=1.0)
        >>> kalman.step({"level": 1.0}).round(2)
        array([1.])
        """
        if unknown := [name for name in y if name not in self.sigma]:
            raise ModelError(f"Filter: y: {unknown_name(unknown[0], tuple(self.sigma))}")
        now = self.t + self.period if t is None else float(t)
        if not (np.isfinite(now) and now >= self.t):
            raise ModelError(f"Filter: t: expected a time from that of the last step on, {self.t:g} s, given {t!r}.")
        n_u = self.system.n_u
        control = np.zeros(n_u) if u is None else np.asarray(u, dtype=float).reshape(n_u)
        measured = np.array([float(y.get(name, np.nan)) for name in self.sigma])
        reach = UNDECIDED if self.parts > 1 else 0.0
        predicted = self._predicted(control, now - self.t, reach)
        corrected_parts, innovation, covariance, nis = self._corrected(predicted.parts, measured)
        flags = [*predicted.flags]
        if innovation.size and nis > _bound(innovation.size):
            if self.parts > 1:
                again = self._predicted(control, now - self.t, UNEXPECTED)
                others = self._corrected(again.parts, measured)[0]
                count = predicted.simulations + again.simulations
                if len(others) > len(corrected_parts):
                    corrected_parts, predicted = others, again
                    flags += again.flags
                predicted = replace(predicted, simulations=count)
            flags += self._explained(corrected_parts[0], innovation.size)
        self._parts = self._reduced(corrected_parts)
        best = self._parts[0]
        flags += dict.fromkeys(f"undecided: {part.part}" for part in self._parts if part.part and len(self._parts) > 1)
        flags += best.flags
        x, p = self.model.split(best.belief.mean)
        events = tuple(replace(event, time=event.time + self.t) for event in best.events)
        self.t = now
        self.last = FilterStep(
            t=now, x=x.copy(), p=p, names=self.names, covariance=self.covariance, innovation=innovation,
            innovation_covariance=covariance, nis=nis, weights=np.array([part.belief.weight for part in self._parts]),
            mode=best.mode, events=events, event_std=best.event_std, simulations=predicted.simulations,
            flags=tuple(flags), status=predicted.status,
        )  # fmt: skip
        return x.copy()

    @named_arguments
    def draws(self, count: int, rng: np.random.Generator | int = 0) -> Array:
        """Return random values (count, n) of states, free and scattered parameters, drawn from the belief.

        Parameters
        ----------
        count : int
        rng : Generator or int
            Random generator, or the seed of one.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x = ca.SX.sym("x")
        >>> decay = ns.ODE(x=x, flow=-x, names={"x": ["level"]})
        >>> kalman = ns.Filter(decay, sigma={"level": 0.01}, period=0.1, x0=[2.0], x0_std=0.5)
        >>> drawn = kalman.draws(1000)
        >>> drawn.shape, bool(abs(drawn.std() - 0.5) < 0.05)
        ((1000, 1), True)
        """
        check_whole(**{"Filter: draws: count": count})
        generator = np.random.default_rng(rng)
        roots = [root_of(part.belief.covariance, self.model.units) for part in self._parts]
        chosen = generator.choice(len(self._parts), size=count, p=[part.belief.weight for part in self._parts])
        return np.array(
            [self._parts[k].belief.mean + roots[k] @ generator.standard_normal(roots[k].shape[1]) for k in chosen]
        )

    def _predicted(self, u: Array, duration: float, reach: float) -> _Predicted:
        """Return all parts of the belief at the end of a period."""
        still = tuple(MovedBelief(belief=part.belief, closed=part.closed, mode=part.mode) for part in self._parts)
        if not duration > 0.0:
            return _Predicted(parts=still)
        parts: list[MovedBelief] = []
        simulations, failures = 0, []
        for last in self._parts:
            moved, count, failure = self.model.predictions(last.belief, u, duration, reach)
            simulations += count
            failures += [failure] if failure else []
            # A covariance that overflows belongs to a motion that escapes.
            finite = [part for part in moved if np.isfinite(part.belief.covariance).all()]
            failures += ["the covariance is not finite"] * (len(moved) - len(finite))
            parts += [_weighted(part, last, part.log_share) for part in finite]
        total = sum(part.belief.weight for part in parts)
        if total > 0.0:
            kept = [part for part in parts if part.belief.weight > 0.0]
            flags = tuple(f"a part of the belief has no motion: {failure}" for failure in failures)
            return _Predicted(parts=_normalised(kept), simulations=simulations, flags=flags)
        # No motion at all: the belief stays as it is, less certain, and the next measurement may save it.
        held = [replace(part, belief=self.model.less_certain(part.belief, duration)) for part in still]
        flags = (f"no simulation of the period: {failures[0] if failures else ''}",)
        return _Predicted(parts=tuple(held), simulations=simulations, flags=flags, status=Status.STEP_FAILED)

    def _corrected(
        self, parts: tuple[MovedBelief, ...], measured: Array
    ) -> tuple[tuple[MovedBelief, ...], Array, Array, float]:
        """Return the corrected parts, innovation, its covariance, and its normalised square (NaN of no values)."""
        use = np.flatnonzero(np.isfinite(measured))
        results, means, covariances, evidences = [], [], [], []
        for part in parts:
            y, cross, own, slopes = self.model.measured(part.belief)
            y, cross, own = y[use], cross[:, use], own[np.ix_(use, use)]
            model = None if slopes is None else (slopes[use], self.model.noise_of[np.ix_(use, use)])
            # What lies beyond a guard before the measurement has no probability, neither before nor after it.
            mass_before = self.model.admissible(part.belief, part.closed)[0]
            evidence, belief = 0.0, part.belief
            if use.size:
                evidence, belief = corrected(part.belief, measured[use] - y, cross, own, model)
            mean, moved = self.model.in_range(part.belief.mean, belief.mean)
            mass, belief = self.model.admissible(replace(belief, mean=mean), part.closed)
            means.append(y)
            covariances.append(own)
            evidences.append(evidence + mass - mass_before)
            flags = (*part.flags, "parameters at the end of their range") if moved else part.flags
            results.append(replace(part, belief=belief, flags=flags, nis=_square(measured[use] - y, own)))
        y, own = mixture(means, covariances, np.array([part.belief.weight for part in parts]))
        best = max(evidences)
        after = [
            _weighted(result, result, evidence - best) for result, evidence in zip(results, evidences, strict=True)
        ]
        innovation = measured[use] - y
        nis = _square(innovation, own) if use.size else np.nan
        return _normalised(after), innovation, own, nis

    def _explained(self, best: MovedBelief, count: int) -> list[str]:
        """Return what explains an innovation that is too large."""
        flags = []
        if best.part and best.log_share < _RARE:
            flags.append(f"unexpected: {best.part} the measurement")
        if best.nis > _bound(count):
            flags.append("no motion explains the innovation")
        return flags

    def _reduced(self, parts: tuple[MovedBelief, ...]) -> tuple[MovedBelief, ...]:
        """Return the parts without negligible ones; those that agree are one again."""
        left, units = [part for part in parts if part.belief.weight > NEGLIGIBLE], self.model.units
        result: list[MovedBelief] = []
        for part in left:
            for k, other in enumerate(result):
                if part.mode == other.mode and distance(part.belief, other.belief, units) < TOGETHER:
                    result[k] = replace(other, belief=merged(other.belief, part.belief), part="", log_share=0.0)
                    break
            else:
                result.append(part)
        return _normalised(sorted(result, key=lambda part: -part.belief.weight)[: self.parts])


@dataclass(frozen=True, eq=False, kw_only=True)
class _Predicted:
    """Parts of a belief before a measurement."""

    parts: tuple[MovedBelief, ...]
    simulations: int = 0
    flags: tuple[str, ...] = ()
    status: Status = Status.SOLVED


def _weighted(part: MovedBelief, last: MovedBelief, log_share: float) -> MovedBelief:
    """Return a part with the weight of the last one times a share."""
    weight = last.belief.weight * float(np.exp(log_share))
    return replace(part, belief=replace(part.belief, weight=weight), part=part.part or last.part)


def _normalised(parts: Sequence[MovedBelief]) -> tuple[MovedBelief, ...]:
    total = sum(part.belief.weight for part in parts)
    scaled = [replace(part, belief=replace(part.belief, weight=part.belief.weight / total)) for part in parts]
    return tuple(sorted(scaled, key=lambda part: -part.belief.weight))


def _square(innovation: Array, covariance: Array) -> float:
    return float(innovation @ np.linalg.solve(covariance, innovation)) if innovation.size else np.nan


def _bound(count: int) -> float:
    from scipy.special import chdtri  # not paid for by an import of the library

    return float(chdtri(count, IMPROBABLE))


def _noise(process: Any, states: tuple[str, ...], free: tuple[str, ...]) -> Array:
    """Return standard deviations per square root of a second of states and free parameters."""
    if isinstance(process, Mapping):
        noise = by_names(process, (*states, *free), "Filter: process")
    else:
        noise = np.append(by_names(process, states, "Filter: process"), np.zeros(len(free)))
    if (noise < 0.0).any():
        raise OptionError(f"Filter: process: expected nonnegative numbers, given {process!r}.")
    return noise


def _covariance(std: Any, names: tuple[str, ...]) -> Array:
    """Return the covariance of the initial state, from standard deviations or from a matrix."""
    if not isinstance(std, Mapping) and np.ndim(std) == 2:
        matrix = np.asarray(std, dtype=float)
        if matrix.shape != (len(names),) * 2 or not np.isfinite(matrix).all() or not np.allclose(matrix, matrix.T):
            raise OptionError(f"Filter: x0_std: expected a symmetric matrix of {len(names)} rows, given {std!r}.")
        if np.linalg.eigvalsh(matrix).min() < -1e-12 * np.abs(matrix).max():
            raise OptionError(
                "Filter: x0_std: expected a covariance, given a matrix that is not positive semidefinite."
            )
        return matrix
    values = by_names(std, names, "Filter: x0_std")
    if (values < 0.0).any():
        raise OptionError(f"Filter: x0_std: expected nonnegative numbers, given {std!r}.")
    return np.diag(values**2)
