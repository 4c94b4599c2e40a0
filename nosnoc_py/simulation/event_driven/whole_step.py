"""Steps of DOP853 in one compiled call: stages, error, dense output and samples of a small system (by CasADi).

SciPy's implementation calls Python at every stage, which takes longer than the arithmetic of a few bodies.
Coefficients, step-size control and polynomials are SciPy's.

References
----------
Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I (1993), Section II.5: DOP853.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import casadi as ca
import numpy as np
from scipy.integrate import DOP853

from nosnoc_py.functions import buffered
from nosnoc_py.motion.crossing import NODES

Array = np.ndarray
STAGES, ALL_STAGES = 12, 16
# Limits of the change of the step size and its safety factor, as in SciPy.
MIN_FACTOR, MAX_FACTOR, SAFETY = 0.2, 10.0, 0.9
# Systems whose rates need more operations use SciPy's steps: compiling theirs takes too long.
MOST_OPERATIONS = 800
_ROWS = np.zeros((ALL_STAGES, ALL_STAGES))
_ROWS[:STAGES, :STAGES], _ROWS[STAGES, :STAGES], _ROWS[STAGES + 1 :] = DOP853.A, DOP853.B, DOP853.A_EXTRA


class CompiledSteps:
    """Compiled steps of dx/dt = rate(x, d) in one regime, with data d that are constant on a phase.

    Parameters
    ----------
    x, d : SX
    rate : SX (n_x,)
    guards, forces, rates : SX
        As in a `Sample`.
    put : SX (n_x,), optional
        The state on the constraints of the regime.
    """

    def __init__(
        self, x: ca.SX, d: ca.SX, rate: ca.SX, guards: ca.SX, forces: ca.SX, rates: ca.SX, put: ca.SX | None = None
    ) -> None:
        function = ca.Function("rate", [x, d], [ca.densify(rate)])
        sample = ca.Function("sample", [x, d], [ca.densify(ca.vertcat(guards, forces, rates))])
        self.small = function.n_instructions() <= MOST_OPERATIONS
        self.parts = np.cumsum([guards.numel(), forces.numel()])
        self.n_x = x.numel()
        if not self.small:
            return
        self._rate, self._sample, self._samples = map(buffered, (function, sample, sample.map(NODES.size)))
        self._step = buffered(self._compile_step(function, x, d))
        self.projects = put is not None
        if put is not None:
            self._project = buffered(ca.Function("put", [x, d], [ca.densify(put)]))

    def _compile_step(self, rate: ca.Function, x: ca.SX, d: ca.SX) -> ca.Function:
        """Return the function of a step of length h from x with rate f.

        End, 13 stages, and polynomial of the states.
        """
        f, h = ca.SX.sym("f", self.n_x), ca.SX.sym("h")
        stages = [f]
        for row in _ROWS[1:]:
            y = x + h * (ca.horzcat(*stages) @ ca.sparsify(ca.DM(row[: len(stages)])))
            stages.append(rate(y, d))
            if len(stages) == STAGES + 1:
                end = y
        way = end - x
        # The first rows of SciPy's dense output (Hairer's CONTD8); the others are h D K.
        bend = [way, h * f - way, 2 * way - h * (stages[STAGES] + f)]
        rest = h * (ca.horzcat(*stages) @ ca.DM(DOP853.D.T))
        return ca.Function("step", [x, f, h, d], [end, ca.horzcat(*stages[: STAGES + 1]), ca.horzcat(*bend, rest)])

    def rate(self, x: Array, d: Array) -> Array:
        """Return dx/dt (n_x,)."""
        return self._rate(x, d)[0][:, 0]

    def step(self, x: Array, f: Array, h: float, d: Array) -> tuple[Array, Array, Array]:
        """Return the state at the end (n_x,), stages (13, n_x), and the polynomial (n_x, 7) of SciPy's dense output."""
        end, stages, polynomial = self._step(x, f, h, d)
        return end[:, 0], stages.T, polynomial

    def project(self, x: Array, d: Array) -> Array:
        """Return the state projected onto the constraints of the regime."""
        return self._project(x, d)[0][:, 0]

    def samples(self, x: Array, d: Array) -> tuple[Array, Array, Array]:
        """Return guards, forces and rates at states (m, n_x), one row each."""
        if len(x) == NODES.size:
            values = self._samples(x, d)[0].T
        else:
            values = np.array([self._sample(row, d)[0][:, 0] for row in x])
        first, second = self.parts
        return values[:, :first], values[:, first:second], values[:, second:]


class CompiledDOP853(DOP853):
    """DOP853 with compiled steps; `data` returns the constants of the motion."""

    y: Array
    f: Array
    h_abs: float
    t: float

    def __init__(self, steps: CompiledSteps, data: Callable[[], Array], *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.steps, self.data, self.finite = steps, data, True

    def _step_impl(self) -> tuple[bool, str | None]:
        t, y = self.t, self.y
        least = 10.0 * float(np.nextafter(t, np.inf) - t)
        h_abs, rejected = max(min(self.h_abs, self.max_step), least), False
        data, self.finite = self.data(), True
        while True:
            if h_abs < least:
                return False, self.TOO_SMALL_STEP
            t_new = min(t + h_abs, self.t_bound)
            h = h_abs = t_new - t
            y_new, self.K, self.polynomial = self.steps.step(y, self.f, h, data)
            scale = self.atol + np.maximum(np.abs(y), np.abs(y_new)) * self.rtol
            error = float(self._estimate_error_norm(self.K, h, scale))
            if error < 1.0:
                factor = MAX_FACTOR if error == 0.0 else min(MAX_FACTOR, SAFETY * error**self.error_exponent)
                # After a rejection the next step is not longer, as in SciPy: the error estimate was just too
                # optimistic.
                self.h_abs = h_abs * (min(1.0, factor) if rejected else factor)
                break
            self.finite = self.finite and bool(np.isfinite(error))
            h_abs *= max(MIN_FACTOR, SAFETY * error**self.error_exponent)
            rejected = True
        self.h_previous, self.y_old, self.t, self.y, self.f = h, y, t_new, y_new, self.K[-1]
        return True, None

    def part(self, t: float, x: Array, f: Array, time: float) -> tuple[Array, StepPolynomial]:
        """Return the state at a time inside an accepted step from x with rate f, and the polynomial up to there."""
        end, _, polynomial = self.steps.step(x, f, time - t, self.data())
        return end, StepPolynomial(t, time, x, polynomial)

    def _estimate_error_norm(self, K: Array, h: float, scale: Array) -> float:
        # Hairer's combination of two error estimates, h |e5|^2 / sqrt((|e5|^2 + 0.01 |e3|^2) n), as in SciPy.
        with np.errstate(all="ignore"):  # a step beyond where the model has values is rejected by its error
            fifth, third = _ERRORS @ K / scale
            fifth, third = fifth @ fifth, third @ third
        least = fifth + 0.01 * third
        return float(h * fifth / np.sqrt(least * scale.size)) if least != 0.0 else 0.0

    def _dense_output_impl(self) -> StepPolynomial:
        return StepPolynomial(self.t_old, self.t, self.y_old, self.polynomial)


class StepPolynomial:
    """Dense output of a step, like SciPy's: states (n_x,) at a time, (n_x, m) at many."""

    def __init__(self, t_old: float, t: float, y_old: Array, polynomial: Array) -> None:
        self.t_old, self.h, self.y_old, self.polynomial = t_old, t - t_old, y_old, polynomial

    def __call__(self, t: Any) -> Array:
        share = (np.asarray(t) - self.t_old) / self.h
        # Nested products s, s (1 - s), s^2 (1 - s), ... for which the coefficients of the dense output are meant.
        weights = np.array([share, 1.0 - share] * 4)[:7].cumprod(axis=0)
        moved = self.polynomial @ weights
        return np.asarray(moved + (self.y_old if moved.ndim == 1 else self.y_old[:, None]))


_ERRORS = np.array([DOP853.E5, DOP853.E3])
