"""Moving horizon estimation: the state, and parameters, from the last measurements and what was known before them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.api import simulate
from nosnoc_py.control.measured import admissible
from nosnoc_py.control.measurements import Measurements
from nosnoc_py.control.predicted import Output, by_names, weighted
from nosnoc_py.errors import ModelError, OptionError, check_positive, unknown_name
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.controls import PiecewiseConstant
from nosnoc_py.systems.described import Described

Array = np.ndarray
# Gauss-Newton steps of a sample, halvings of each, and the step that ends them, in standard deviations.
ROUNDS, HALVINGS, SMALL = 8, 6, 1e-3
# Mean squares of the residuals of a sample above the square of this are not noise.
OUTLIER = 5.0
# Differences, where a motion has no derivative: shares of standard deviations.
STEP = 1e-4
MODEL = EventDriven(grazing="continue", rtol=1e-7, atol=1e-9)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Evaluated:
    """A start of the window: sum of squares, residuals, motion, Jacobian."""

    cost: float
    r: Array
    motion: Trajectory
    jacobian: Array


class MHE:
    """Estimates states and parameters from the measurements of a moving window, through impacts.

    The motion of the window is the one that starts at its beginning with the least sum of squares of what differs from
    the measurements and from what was known there (the arrival cost, which an extended Kalman filter carries along:
    Rao, Rawlings, Mayne 2003). Derivatives go through impacts by saltation matrices; Gauss-Newton.

    Parameters
    ----------
    system : CLS, PSS, Heaviside or PDS
    sigma : mapping
        Measured state or output -> standard deviation of its noise.
    period : float
        Between samples [s].
    x0, x0_std : (n_x,) or mapping
        What is known of the first state, and its standard deviations (or one for all).
    window : int
        Samples that are looked at.
    free : mapping, optional
        Parameter that is estimated with the state -> standard deviation of what is known of it.
    process : float, (n_x,) or mapping
        Standard deviations of what the model does not know, per square root of a second; larger ones forget faster.
    outputs : mapping, optional
        Name of a measured quantity that is no state -> its expression in the symbols of the system.
    p : (n_p,) or mapping, optional
    method : EventDriven, optional

    Attributes
    ----------
    x, p : (n_x,), (n_p,)
        The estimate at the last measurement.
    std : dict
        State or free parameter -> standard deviation at the last measurement.
    left_out : int
        Samples that no motion explained, so that they were not used.

    Raises
    ------
    OptionError, ModelError
        For unknown names, and numbers that are not positive.

    Examples
    --------
    A ball that bounces; measured is its height alone:

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
        if not isinstance(sigma, Mapping) or not sigma:
            raise OptionError(f"MHE: sigma: expected a mapping of what is measured to its noise, given {sigma!r}.")
        check_positive(period=period, **{f"sigma of {name}": value for name, value in sigma.items()})
        if isinstance(window, bool) or not isinstance(window, int) or window < 1:
            raise OptionError(f"MHE: window: expected a positive whole number of samples, given {window!r}.")
        for name, value in (free or {}).items():
            if name not in system.parameter_names:
                raise OptionError(f"MHE: free: {unknown_name(name, system.parameter_names)}")
            check_positive(**{f"free: {name}": value})
        self.system, self.period, self.window = system, float(period), window
        self.sigma = {name: float(value) for name, value in sigma.items()}
        self.output = Output.of(system, tuple(self.sigma), outputs)
        self.method = MODEL if method is None else method
        n_x = len(system.state_names)
        self.places = [system.parameter_names.index(name) for name in free or {}]
        self.free = tuple(free or {})
        self._p0 = np.array(system.parameters(p), dtype=float)
        known = by_names(x0_std, system.state_names, "MHE: x0_std")
        noise = by_names(process, system.state_names, "MHE: process")
        if not (known > 0.0).all() or (noise < 0.0).any():
            raise OptionError("MHE: expected positive x0_std and process that is not negative.")
        self.Q = np.diag(np.append(noise**2 * self.period, np.zeros(len(self.places))))
        # What is known at the beginning of the window: mean and covariance of states and free parameters.
        self._mean = np.append(by_names(x0, system.state_names, "MHE: x0"), self._p0[self.places])
        self._covariance = np.diag(np.append(known**2, [float(value) ** 2 for value in (free or {}).values()]))
        self._z = self._mean.copy()
        self._measured: deque[Array] = deque()
        self._controls: deque[Array] = deque()
        self.x, self.p, self.n_x = self._mean[:n_x].copy(), self._p0.copy(), n_x
        self.std: dict[str, float] = {}
        self.left_out = 0

    def step(self, y: Mapping[str, float], u: Any = None) -> Array:
        """The state (n_x,) at a measurement, one period after the one before.

        Parameters
        ----------
        y : mapping
            Measured values by name; one that is missing or NaN is not used.
        u : (n_u,), optional
            The control of the period before the measurement; default zero.

        Raises
        ------
        ModelError
            For names that are not measured, or a motion that cannot be simulated from what is known.
        """
        if unknown := [name for name in y if name not in self.sigma]:
            raise ModelError(f"MHE: y: {unknown_name(unknown[0], tuple(self.sigma))}")
        if len(self._measured) == self.window:
            self._slide()
        n_u = self.system.n_u
        self._measured.append(np.array([float(y.get(name, np.nan)) for name in self.sigma]))
        self._controls.append(np.zeros(n_u) if u is None else np.asarray(u, dtype=float).reshape(n_u))
        found = self._explained()
        self.x, self.p = self._side_of(found.motion, y), self._values(self._z)[1]
        ahead = self._ahead(found.motion, self._z)
        spread = np.sqrt(np.diag(ahead @ np.linalg.pinv(found.jacobian.T @ found.jacobian) @ ahead.T))
        self.std = dict(zip((*self.system.state_names, *self.free), map(float, spread), strict=True))
        return self.x.copy()

    def _values(self, z: Array) -> tuple[Array, Array]:
        p = self._p0.copy()
        p[self.places] = z[self.n_x :]
        return admissible(self.system, z[: self.n_x], p), p

    def _motion(self, z: Array, duration: float, controls: Any, times: Array | None, *, sensitivities: bool) -> Any:
        """The motion from a start of the window; None where there is none."""
        control = None
        if self.system.n_u:
            rows = np.array(controls)
            control = PiecewiseConstant(np.linspace(0.0, duration, len(rows) + 1), rows)
        try:
            x0, p = self._values(z)
            motion = simulate(
                self.system, x0=x0, duration=duration, p=p, u=control, times=times, method=self.method,
                sensitivities=sensitivities,
            )  # fmt: skip
        except ModelError:
            return None
        return motion if motion.success else None

    def _evaluated(self, z: Array, *, sensitivities: bool) -> _Evaluated | None:
        """The sum of squares of a start of the window; None without a motion."""
        times = self.period * np.arange(1, len(self._measured) + 1)
        data = Measurements(times, dict(zip(self.sigma, np.array(self._measured).T, strict=True)), sigma=self.sigma)
        motion = self._motion(z, float(times[-1]), self._controls, times, sensitivities=sensitivities)
        if motion is None:
            return None
        r, by_x, by_p = weighted(motion, data, self.output, self._values(z)[1])
        root = np.linalg.inv(np.linalg.cholesky(self._covariance))
        r = np.append(r, root @ (z - self._mean))
        if not sensitivities:
            jacobian = np.zeros((0, 0))
        elif motion.sensitivity is not None and motion.sensitivity.smooth and by_x.size:
            jacobian = np.vstack([np.hstack([by_x, by_p[:, self.places]]), root])
        else:
            jacobian = self._differences(z, r, lambda z: getattr(self._evaluated(z, sensitivities=False), "r", None))
        return _Evaluated(cost=float(r @ r), r=r, motion=motion, jacobian=jacobian)

    def _minimised(self) -> _Evaluated:
        """Gauss-Newton with halved steps."""
        found = self._evaluated(self._z, sensitivities=True)
        if found is None:  # the last start has no motion: what was known before may have one
            self._z = self._mean.copy()
            found = self._evaluated(self._z, sensitivities=True)
        if found is None:
            raise ModelError("MHE: the motion of the window cannot be simulated; see x0, or use a shorter window.")
        for _ in range(ROUNDS):
            step = -np.linalg.lstsq(found.jacobian, found.r, rcond=None)[0]
            for size in 0.5 ** np.arange(HALVINGS):
                trial = self._evaluated(self._z + size * step, sensitivities=False)
                if trial is not None and trial.cost < found.cost:
                    break
            else:
                break
            moved = float(np.linalg.norm(found.jacobian @ (size * step)))
            better = self._evaluated(self._z + size * step, sensitivities=True)
            if better is None:
                break
            self._z, found = self._z + size * step, better
            if moved < SMALL:
                break
        return found

    def _explained(self) -> _Evaluated:
        """The least sum of squares, without a sample that no motion nearby explains.

        A velocity that was measured just before an impact, when the motion has just had it, is a wall that least
        squares do not pass: the sample is left out, and taken in again where that leads to a motion that explains it.
        """
        began = self._z.copy()
        found = self._minimised()
        worst, share = self._worst(found)
        if share <= OUTLIER**2:
            return found
        kept, y = self._z.copy(), self._measured[worst]
        self._z, self._measured[worst] = began, np.full(y.size, np.nan)
        without = self._minimised()
        start, self._measured[worst] = self._z.copy(), y
        again = self._minimised()
        if self._worst(again)[1] <= OUTLIER**2:
            return again
        if self._worst(without)[1] <= OUTLIER**2:
            self._z, self._measured[worst] = start, np.full(y.size, np.nan)
            self.left_out += 1
            return without
        if again.cost < found.cost:
            return again
        self._z = kept
        return found

    def _side_of(self, motion: Trajectory, y: Mapping[str, float]) -> Array:
        """The state at the end; of a last sample that was left out that before or behind an impact close to it."""
        end = np.array(motion.final_state)
        measured = np.array([float(y.get(name, np.nan)) for name in self.sigma])
        seen = np.isfinite(measured)
        if not seen.any() or np.isfinite(self._measured[-1]).any():
            return end
        p = self._values(self._z)[1]
        sides = [end]
        for before in np.flatnonzero(np.diff(motion.t) <= 0.0)[-1:]:
            if motion.t[-1] - motion.t[before] < self.period:
                sides.append(motion.x[before])
        later = self._motion(np.append(end, self._z[self.n_x :]), self.period, [self._controls[-1]], None,
                             sensitivities=False)  # fmt: skip
        if later is not None:
            sides += [later.x[before + 1] for before in np.flatnonzero(np.diff(later.t) <= 0.0)[:1]]
        noise = np.array(list(self.sigma.values()))[seen]
        away = [np.linalg.norm((self.output(x, p)[0][seen] - measured[seen]) / noise) for x in sides]
        return np.array(sides[int(np.argmin(away))])

    def _worst(self, found: _Evaluated) -> tuple[int, float]:
        """The sample with the largest mean square of its residuals, and that."""
        shares, first = [], 0
        for y in self._measured:
            count = int(np.isfinite(y).sum())
            shares.append(float(np.mean(found.r[first : first + count] ** 2)) if count else 0.0)
            first += count
        return int(np.argmax(shares)), max(shares)

    def _differences(self, z: Array, value: Array, function: Any) -> Array:
        """The Jacobian of a function at z by differences, where a motion has no derivative."""
        columns = []
        for i, size in enumerate(STEP * np.sqrt(np.diag(self._covariance))):
            moved = z.copy()
            moved[i] += size
            other = function(moved)
            columns.append(np.zeros(value.size) if other is None else (other - value) / size)
        return np.array(columns).T

    def _ahead(self, motion: Any, z: Array) -> Array:
        """Derivative of states and free parameters at the end of a motion by those at its beginning z."""
        made, sensitivity = np.eye(z.size), motion.sensitivity
        if sensitivity is not None and sensitivity.smooth and sensitivity.orbital is not None:
            made[: self.n_x, : self.n_x] = sensitivity.orbital[-1]
            made[: self.n_x, self.n_x :] = sensitivity.orbital_p[-1][:, self.places]
            return made
        rows = self._controls_of(motion)

        def end(z: Array) -> Array | None:
            return getattr(self._motion(z, motion.duration, rows, None, sensitivities=False), "final_state", None)

        made[: self.n_x] = self._differences(z, motion.final_state, end)
        return made

    def _controls_of(self, motion: Any) -> list[Array]:
        return [np.asarray(u) for u in motion.u[:, : self.system.n_u]]

    def _slide(self) -> None:
        """Leave the first sample: what it says goes into what is known at the second (extended Kalman filter)."""
        y, u = self._measured.popleft(), self._controls.popleft()
        p = self._values(self._z)[1]
        motion = self._motion(self._z, self.period, [u], None, sensitivities=True)
        if motion is None:
            raise ModelError("MHE: the first period of the window cannot be simulated; use another method or window.")
        ahead = self._ahead(motion, self._z)
        # Linear about the window's own motion, which all of its measurements have made, not the first alone.
        mean = np.append(motion.final_state, p[self.places]) + ahead @ (self._mean - self._z)
        covariance = ahead @ self._covariance @ ahead.T + self.Q
        seen = np.isfinite(y)
        if seen.any():
            height, by_x, by_p = self.output(motion.final_state, p)
            H = np.hstack([by_x, by_p[:, self.places]])[seen]
            R = np.diag(np.array(list(self.sigma.values()))[seen] ** 2)
            gain = np.linalg.solve(H @ covariance @ H.T + R, H @ covariance).T
            predicted = height[seen] + H @ (mean - np.append(motion.final_state, p[self.places]))
            mean = mean + gain @ (y[seen] - predicted)
            kept = np.eye(mean.size) - gain @ H
            covariance = kept @ covariance @ kept.T + gain @ R @ gain.T
        # Impacts without restitution leave directions without any spread, of which a root cannot be taken.
        least = 1e-12 * np.append(self.system.x_nominal, np.maximum(np.abs(p[self.places]), 1e-3)) ** 2
        self._covariance = 0.5 * (covariance + covariance.T) + np.diag(least)
        self._mean = mean
        self._z = np.append(motion.final_state, p[self.places])
