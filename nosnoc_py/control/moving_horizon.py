"""Moving horizon estimation through impacts: states and parameters from the last measurements and an arrival cost.

The unknown z = (state at the beginning of the window, free parameters) minimises

    |z - z_mean|^2 in the metric of P^-1   +   sum over samples k of |(y_k - h(x(t_k; z))) / sigma|^2 .

z_mean and P (the arrival cost) summarise all samples before the window. When the window moves on, an extended Kalman
filter step updates them with the dropped sample, linearised about the motion of the whole window (Rao, Rawlings, Mayne
2003, IEEE Trans. Automat. Control 48(2)). Derivatives of x(t; z) cross impacts by saltation matrices. A velocity
measured just before an impact, while the predicted impact has just happened, is an outlier that least squares cannot
pass; such a sample is left out.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.api import simulate
from nosnoc_py.arguments import named_arguments
from nosnoc_py.control.beliefs import Belief, corrected
from nosnoc_py.control.measured import admissible
from nosnoc_py.control.measurements import Measurements
from nosnoc_py.control.predicted import Output, by_names, checked_sigma, weighted
from nosnoc_py.errors import ModelError, OptionError, check_positive, check_whole, unknown_name
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.controls import PiecewiseConstant
from nosnoc_py.systems.described import Described

Array = np.ndarray
# Gauss-Newton iterations per sample (few, as the last estimate is a good start), halvings of each step, and the step
# size [standard deviations] that ends them, far below what the data can resolve.
ITERATIONS, HALVINGS, STEP_TOLERANCE = 8, 6, 1e-3
# A sample is an outlier if the root mean square of its residuals exceeds this many standard deviations.
OUTLIER = 5.0
# Step of finite differences in standard deviations, where a motion has no derivative: inside the uncertainty, above the
# errors of the simulation.
DIFFERENCE_STEP = 1e-4
# Simulator of the window: errors far below usual measurement noise; tighter tolerances would cost time at every sample.
MODEL = EventDriven(grazing="continue", rtol=1e-7, atol=1e-9)


@dataclass(frozen=True, eq=False, kw_only=True)
class _WindowFit:
    """Least-squares terms at one z: sum of squares, residuals, motion and Jacobian."""

    cost: float
    r: Array
    motion: Trajectory
    jacobian: Array


@named_arguments
class MHE:
    """Moving horizon estimator of states and parameters through impacts.

    At every sample a Gauss-Newton method minimises the squared residuals of the measurements in the window plus the
    arrival cost, which an extended Kalman filter updates when the window moves on (Rao, Rawlings, Mayne 2003).
    Derivatives cross impacts by saltation matrices.

    Parameters
    ----------
    system : CLS, PSS, Heaviside or PDS
        Model of the plant.
    sigma : mapping
        Name of a measured state or output -> standard deviation of its noise, in the unit of the value.
    period : float
        Time between samples [s].
    x0, x0_std : (n_x,) or mapping
        Initial state one period before the first measurement, and its standard deviations (a number for all).
    window : int
        Number of samples in the window.
    free : mapping, optional
        Name of a parameter to be estimated -> standard deviation of its initial value.
    process : float, (n_x,) or mapping
        Standard deviations of the process noise per square root of a second; larger ones forget faster.
    outputs : mapping, optional
        Name of a measured quantity that is not a state -> its expression in the symbols of the system.
    p : (n_p,) or mapping, optional
        Known parameters and initial values of free ones; default those of the system.
    method : EventDriven, optional
        Simulation options.

    Attributes
    ----------
    x, p : (n_x,), (n_p,)
        Estimates at the last measurement.
    std : dict
        Name of a state or free parameter -> standard deviation at the last measurement.
    left_out : int
        Number of samples rejected as outliers.

    Raises
    ------
    OptionError, ModelError
        For unknown names, and values that must be positive and are not.

    Examples
    --------
    A bouncing ball of which only the height is measured:

    >>> import casadi as ca, numpy as np, nosnoc_py as ns
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> floor = ns.Contact("floor", gap=q, restitution=0.8)
    >>> ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[floor], names={"q": ["height"], "v": ["speed"]})
    >>> mhe = ns.MHE(ball, sigma={"height": 0.01}, period=0.05, x0=[1.1, 0.5], x0_std=1.0)
    >>> t = 0.05 * np.arange(1, 15)
    >>> seen = ns.simulate(ball, x0=[1, 0], duration=0.7, times=t).sample(q, t)
    >>> for height in seen:
    ...     x = mhe.step({"height": height})
    >>> bool(abs(x - ns.simulate(ball, x0=[1, 0], duration=0.7).final_state).max() < 0.05)
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
        window: int = 10,
        free: Mapping[str, float] | None = None,
        process: Any = 0.0,
        outputs: Mapping[str, Any] | None = None,
        p: Any = None,
        method: EventDriven | None = None,
    ) -> None:
        self.sigma = checked_sigma(sigma, period, "MHE")
        check_whole(**{"MHE: window": window})
        for name, value in (free or {}).items():
            if name not in system.parameter_names:
                raise OptionError(f"MHE: free: {unknown_name(name, system.parameter_names)}")
            check_positive(**{f"free: {name}": value})
        self.system, self.period, self.window = system, float(period), window
        self.output = Output.of(system, tuple(self.sigma), outputs)
        self.method = MODEL if method is None else method
        n_x = len(system.state_names)
        self.free_indices = [system.parameter_names.index(name) for name in free or {}]
        self.free = tuple(free or {})
        self._p0 = np.array(system.parameters(p), dtype=float)
        prior_std = by_names(x0_std, system.state_names, "MHE: x0_std")
        noise = by_names(process, system.state_names, "MHE: process")
        if not (prior_std > 0.0).all() or (noise < 0.0).any():
            raise OptionError("MHE: expected positive numbers as x0_std, and nonnegative ones as process.")
        # White noise: its variance grows with time, not with its square. Free parameters are constant and get none.
        self.Q = np.diag(np.append(noise**2 * self.period, np.zeros(len(self.free_indices))))
        # Arrival cost: mean and covariance of states and free parameters at the beginning of the window.
        self._mean = np.append(by_names(x0, system.state_names, "MHE: x0"), self._p0[self.free_indices])
        self._covariance = np.diag(np.append(prior_std**2, [float(value) ** 2 for value in (free or {}).values()]))
        self._z = self._mean.copy()
        self._measured: deque[Array] = deque()
        self._controls: deque[Array] = deque()
        self.x, self.p, self.n_x = self._mean[:n_x].copy(), self._p0.copy(), n_x
        self.std: dict[str, float] = {}
        self.left_out = 0

    @named_arguments
    def step(self, y: Mapping[str, float], u: Any = None) -> Array:
        """Add a measurement one period after the last one and return the estimated state (n_x,).

        Parameters
        ----------
        y : mapping
            Measured values by name; missing ones and NaN are not used.
        u : (n_u,), optional
            Control during the period before the measurement; default zero.

        Raises
        ------
        ModelError
            For names that are not in `sigma`, or a window that cannot be simulated.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x = ca.SX.sym("x")
        >>> decay = ns.ODE(x=x, flow=-x, names={"x": ["level"]})
        >>> mhe = ns.MHE(decay, sigma={"level": 0.01}, period=0.1, x0=[2.0], x0_std=1.0)
        >>> mhe.step({"level": 1.0}).round(2)
        array([1.])
        """
        if unknown := [name for name in y if name not in self.sigma]:
            raise ModelError(f"MHE: y: {unknown_name(unknown[0], tuple(self.sigma))}")
        if len(self._measured) == self.window:
            self._drop_first_sample()
        n_u = self.system.n_u
        self._measured.append(np.array([float(y.get(name, np.nan)) for name in self.sigma]))
        self._controls.append(np.zeros(n_u) if u is None else np.asarray(u, dtype=float).reshape(n_u))
        fitted = self._fit_without_outlier()
        self.x, self.p = self._state_near_impact(fitted.motion, y), self._unpack(self._z)[1]
        transition = self._transition(fitted.motion, self._z)
        # Covariance at the start of the window (Gauss-Newton), propagated to its end.
        spread = np.sqrt(np.diag(transition @ np.linalg.pinv(fitted.jacobian.T @ fitted.jacobian) @ transition.T))
        self.std = dict(zip((*self.system.state_names, *self.free), map(float, spread), strict=True))
        return self.x.copy()

    def _unpack(self, z: Array) -> tuple[Array, Array]:
        p = self._p0.copy()
        p[self.free_indices] = z[self.n_x :]
        # Gauss-Newton steps may push bodies into each other, where no simulation can start.
        return admissible(self.system, z[: self.n_x], p), p

    def _motion(self, z: Array, duration: float, controls: Any, times: Array | None, *, sensitivities: bool) -> Any:
        """Simulate from z, the state and parameters at the start of the window; None if the simulation fails."""
        control = None
        if self.system.n_u:
            rows = np.array(controls)
            control = PiecewiseConstant(np.linspace(0.0, duration, len(rows) + 1), rows)
        try:
            x0, p = self._unpack(z)
            motion = simulate(
                self.system, x0=x0, duration=duration, p=p, u=control, times=times, method=self.method,
                sensitivities=sensitivities,
            )  # fmt: skip
        except ModelError:
            return None
        return motion if motion.success else None

    def _evaluate(self, z: Array, *, sensitivities: bool) -> _WindowFit | None:
        """Evaluate the least-squares terms at z; None if the simulation fails."""
        times = self.period * np.arange(1, len(self._measured) + 1)
        data = Measurements(times, dict(zip(self.sigma, np.array(self._measured).T, strict=True)), sigma=self.sigma)
        motion = self._motion(z, float(times[-1]), self._controls, times, sensitivities=sensitivities)
        if motion is None:
            return None
        r, by_x, by_p = weighted(motion, data, self.output, self._unpack(z)[1])
        # Whitening: |root (z - mean)|^2 is the arrival cost.
        root = np.linalg.inv(np.linalg.cholesky(self._covariance))
        r = np.append(r, root @ (z - self._mean))
        if not sensitivities:
            jacobian = np.zeros((0, 0))
        elif motion.sensitivity is not None and motion.sensitivity.smooth and by_x.size:
            jacobian = np.vstack([np.hstack([by_x, by_p[:, self.free_indices]]), root])
        else:
            jacobian = self._differences(z, r, lambda z: getattr(self._evaluate(z, sensitivities=False), "r", None))
        return _WindowFit(cost=float(r @ r), r=r, motion=motion, jacobian=jacobian)

    def _minimise(self) -> _WindowFit:
        """Minimise by Gauss-Newton with step halving."""
        current = self._evaluate(self._z, sensitivities=True)
        if current is None:  # the last z has no motion; the mean of the arrival cost may have one
            self._z = self._mean.copy()
            current = self._evaluate(self._z, sensitivities=True)
        if current is None:
            raise ModelError("MHE: the motion of the window cannot be simulated; check x0, or use a shorter window.")
        for _ in range(ITERATIONS):
            step = -np.linalg.lstsq(current.jacobian, current.r, rcond=None)[0]
            # Halve the step until the cost decreases; the motion may also fail for too long steps.
            for fraction in 0.5 ** np.arange(HALVINGS):
                # Without derivatives, which cost several simulations and are needed only at accepted points.
                trial = self._evaluate(self._z + fraction * step, sensitivities=False)
                if trial is not None and trial.cost < current.cost:
                    break
            else:
                break
            # Residuals are in standard deviations, and so is their change by the step.
            decrease = float(np.linalg.norm(current.jacobian @ (fraction * step)))
            better = self._evaluate(self._z + fraction * step, sensitivities=True)
            if better is None:
                break
            self._z, current = self._z + fraction * step, better
            if decrease < STEP_TOLERANCE:
                break
        return current

    def _fit_without_outlier(self) -> _WindowFit:
        """Fit the window; leave out the worst sample if no nearby motion explains it.

        A velocity measured just before an impact that the predicted motion has just had is a barrier for least squares.
        Fit without the sample first, then start again with it: the impact is then often on the correct side.
        """
        start = self._z.copy()
        all_samples = self._minimise()
        worst, share = self._worst_sample(all_samples)
        if share <= OUTLIER**2:
            return all_samples
        all_z, y = self._z.copy(), self._measured[worst]
        self._z, self._measured[worst] = start, np.full(y.size, np.nan)
        without = self._minimise()
        without_z, self._measured[worst] = self._z.copy(), y
        repeated = self._minimise()
        if self._worst_sample(repeated)[1] <= OUTLIER**2:
            return repeated
        if self._worst_sample(without)[1] <= OUTLIER**2:
            self._z, self._measured[worst] = without_z, np.full(y.size, np.nan)
            self.left_out += 1
            return without
        if repeated.cost < all_samples.cost:
            return repeated
        self._z = all_z
        return all_samples

    def _state_near_impact(self, motion: Trajectory, y: Mapping[str, float]) -> Array:
        """Return the state at the end of the window.

        If the last sample was left out, an impact lies close to it. Then the measurement selects among the states at
        the end, before the last impact, and after the next one.
        """
        end = np.array(motion.final_state)
        measured = np.array([float(y.get(name, np.nan)) for name in self.sigma])
        finite = np.isfinite(measured)
        if not finite.any() or np.isfinite(self._measured[-1]).any():
            return end
        p = self._unpack(self._z)[1]
        # Two samples at the same time are the limits of an impact.
        candidates = [end]
        for before in np.flatnonzero(np.diff(motion.t) <= 0.0)[-1:]:
            if motion.t[-1] - motion.t[before] < self.period:
                candidates.append(motion.x[before])
        later = self._motion(np.append(end, self._z[self.n_x :]), self.period, [self._controls[-1]], None,
                             sensitivities=False)  # fmt: skip
        if later is not None:
            candidates += [later.x[before + 1] for before in np.flatnonzero(np.diff(later.t) <= 0.0)[:1]]
        noise = np.array(list(self.sigma.values()))[finite]
        distances = [np.linalg.norm((self.output(x, p)[0][finite] - measured[finite]) / noise) for x in candidates]
        return np.array(candidates[int(np.argmin(distances))])

    def _worst_sample(self, fitted: _WindowFit) -> tuple[int, float]:
        """Return the index of the sample with the largest mean squared residual, and this value."""
        means, first = [], 0
        for y in self._measured:
            count = int(np.isfinite(y).sum())
            # The mean, as a sample with more measured values would have a larger sum.
            means.append(float(np.mean(fitted.r[first : first + count] ** 2)) if count else 0.0)
            first += count
        return int(np.argmax(means)), max(means)

    def _differences(self, z: Array, value: Array, function: Any) -> Array:
        """Return the Jacobian of a function at z by forward differences."""
        columns = []
        for i, size in enumerate(DIFFERENCE_STEP * np.sqrt(np.diag(self._covariance))):
            shifted = z.copy()
            shifted[i] += size
            other = function(shifted)
            # A direction that cannot be simulated is frozen for one step.
            columns.append(np.zeros(value.size) if other is None else (other - value) / size)
        return np.array(columns).T

    def _transition(self, motion: Any, z: Array) -> Array:
        """Return d(state, free parameters at the end) / dz of a motion from z; parameters are constant."""
        transition, sensitivity = np.eye(z.size), motion.sensitivity
        if sensitivity is not None and sensitivity.smooth and sensitivity.orbital is not None:
            transition[: self.n_x, : self.n_x] = sensitivity.orbital[-1]
            transition[: self.n_x, self.n_x :] = sensitivity.orbital_p[-1][:, self.free_indices]
            return transition
        rows = self._controls_of(motion)

        def end(z: Array) -> Array | None:
            return getattr(self._motion(z, motion.duration, rows, None, sensitivities=False), "final_state", None)

        # Only the rows of the state: free parameters are constant, and their rows are those of the unit matrix.
        transition[: self.n_x] = self._differences(z, motion.final_state, end)
        return transition

    def _controls_of(self, motion: Any) -> list[Array]:
        return [np.asarray(u) for u in motion.u[:, : self.system.n_u]]

    def _drop_first_sample(self) -> None:
        """Drop the first sample and move its information into the arrival cost (extended Kalman filter step)."""
        y, u = self._measured.popleft(), self._controls.popleft()
        p = self._unpack(self._z)[1]
        motion = self._motion(self._z, self.period, [u], None, sensitivities=True)
        if motion is None:
            raise ModelError("MHE: the first period of the window cannot be simulated; use another method or window.")
        transition = self._transition(motion, self._z)
        # Linearise about the motion fitted to the whole window, not about the filtered mean: it is more accurate.
        mean = np.append(motion.final_state, p[self.free_indices]) + transition @ (self._mean - self._z)
        covariance = transition @ self._covariance @ transition.T + self.Q
        finite = np.isfinite(y)
        if finite.any():
            output, by_x, by_p = self.output(motion.final_state, p)
            H = np.hstack([by_x, by_p[:, self.free_indices]])[finite]
            R = np.diag(np.array(list(self.sigma.values()))[finite] ** 2)
            predicted = output[finite] + H @ (mean - np.append(motion.final_state, p[self.free_indices]))
            cross, before = covariance @ H.T, Belief(mean=mean, covariance=covariance)
            belief = corrected(before, y[finite] - predicted, cross, H @ cross + R, (H, R))[1]
            mean, covariance = belief.mean, belief.covariance
        # A plastic impact removes the variance of a direction; the Cholesky factor needs a positive definite matrix.
        least = 1e-12 * np.append(self.system.x_nominal, np.maximum(np.abs(p[self.free_indices]), 1e-3)) ** 2
        self._covariance = 0.5 * (covariance + covariance.T) + np.diag(least)
        self._mean = mean
        # The start of the next search, on the same motion one period later.
        self._z = np.append(motion.final_state, p[self.free_indices])
