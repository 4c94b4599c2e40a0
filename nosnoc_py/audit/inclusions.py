"""Differential inclusion of a Filippov system, evaluated on the numbers of a motion.

x' lies in the convex hull of the motions of the regions that meet at x. With step functions each alpha is given by the
sign of its function, or is between 0 and 1 where the function is zero. A projected system is pushed into its set by
active constraints. A sample satisfies the inclusion if some multipliers explain its rate, and if multipliers listed
with it do so, too. Violations are relative to the largest rate of a state.

References
----------
Filippov, Differential Equations with Discontinuous Righthand Sides (1988). Step functions: Acary and Brogliato (2008).
"""

from __future__ import annotations

from collections.abc import Iterator

import casadi as ca
import numpy as np

from nosnoc_py.audit.constraints import excess
from nosnoc_py.audit.records import MotionSamples
from nosnoc_py.functions import buffered
from nosnoc_py.solution.violation import Law, Violation
from nosnoc_py.systems.hybrid import HybridSystem
from nosnoc_py.systems.inclusion import FORCE, MEMORY, REGION, STEP, inclusion_of
from nosnoc_py.systems.pss import PDS, PSS, Heaviside
from nosnoc_py.tolerances import BROKEN, TOUCHING_SOLVED

Array = np.ndarray
# Lower and upper bounds (n_y,) of the multipliers at a state.
Bounds = tuple[Array, Array]
# Gauss-Newton steps for multipliers that enter nonlinearly, and the relative size of the last one.
STEPS, LAST_STEP = 25, 1e-12


class Inclusions:
    """Check of samples against the inclusion of a system.

    Parameters
    ----------
    system : PSS, Heaviside or PDS
    samples : MotionSamples
        With rates.
    p : (n_p,)
    sizes : (n_x,)
        Rates that violations are shares of.
    listed : (m, n_y + n_z), optional
        Multipliers and algebraic variables that the motion is said to have, in the order of `labels`.
    high : (m, n) bool, optional
        The modes of the switches with hysteresis, which no state tells.
    """

    def __init__(
        self,
        system: PSS | Heaviside | PDS | HybridSystem,
        samples: MotionSamples,
        p: Array,
        sizes: Array,
        listed: Array | None = None,
        high: Array | None = None,
    ) -> None:
        self.system, self.samples, self.p, self.size, self.listed = system, samples, p, sizes, listed
        flow, self.parts = inclusion_of(system)
        self.high = np.zeros((len(samples.t), 0), bool) if high is None else high
        self.labels = tuple(label for part in self.parts for label in part.labels)
        own = system.algebraic
        equations = ca.SX(0, 1) if own is None else own.equations
        y, functions, active = (
            ca.vertcat(ca.SX(0, 1), *[getattr(part, name) for part in self.parts])
            for name in ("symbols", "functions", "active")
        )
        sums = ca.vertcat(ca.SX(0, 1), *[ca.sum1(part.symbols) - 1 for part in self.parts if part.kind == REGION])
        s = ca.vertcat(y, system.z)
        rate, size = (ca.SX.sym(name, system.x.numel()) for name in ("rate", "size"))
        # Rates relative to their sizes, so that one tolerance fits all states.
        rows = ca.vertcat((flow - rate) / size, sums, equations)
        arguments, slope = [s, system.x, system.u, system.p, active, rate, size], ca.jacobian(rows, s)
        self._rows = buffered(ca.Function("rows", arguments, [ca.densify(rows), ca.densify(slope)]))
        self._linear = not ca.depends_on(slope, s)
        self._functions = ca.Function("functions", [system.x, system.p], [functions])

    def violations(self) -> list[Violation]:
        """Return the largest violation of each sample."""
        values = np.asarray(self._functions(self.samples.x.T, self.p)).T.reshape(len(self.samples.t), -1)
        return [
            self._of_sample(k, functions, self._bounds(functions, self.high[k])) for k, functions in enumerate(values)
        ]

    def _bounds(self, functions: Array, high: Array) -> Bounds:
        """Return bounds (n_y,) of the multipliers for values of the functions and modes of hysteresis."""
        if not self.parts:
            return np.zeros(0), np.zeros(0)
        parts = np.split(functions, np.cumsum([part.count for part in self.parts])[:-1])
        limits = [_limitsof(part.kind, values) for part, values in zip(self.parts, parts, strict=True)]
        lower, upper = (np.concatenate(bounds) for bounds in zip(*limits, strict=True))
        if high.size:
            remembered = [part.kind == MEMORY for part in self.parts for _ in range(part.count)]
            lower[remembered] = upper[remembered] = high
        return lower, upper

    def _of_sample(self, k: int, functions: Array, bounds: Bounds) -> Violation:
        """Return the largest violation of a sample."""
        candidates = [
            self._largest_residual(k, self._best(k, bounds), bounds, Law.INCLUSION),
            *self._of_listed(k, bounds),
        ]
        if isinstance(self.system, PDS):
            depth = np.maximum(-functions, 0.0)
            i = int(np.argmax(depth))
            # Scaled so that a depth of TOUCHING_SOLVED counts exactly as a violation of size BROKEN.
            share = depth[i] * BROKEN / TOUCHING_SOLVED
            candidates.append(self._violation(k, Law.SET, self.system.constraint_names[i], depth[i], share))
        return max(candidates, key=lambda violation: violation.share)

    def _of_listed(self, k: int, bounds: Bounds) -> Iterator[Violation]:
        """Yield violations of the listed multipliers."""
        if self.listed is None:
            return
        s = self.listed[k]
        outside = excess(s[: len(self.labels)], *bounds)
        if outside.size:
            i = int(np.argmax(np.where(np.isnan(outside), np.inf, outside)))
            yield self._violation(k, Law.RANGE, self.labels[i], outside[i], outside[i])
        yield self._largest_residual(k, s, bounds, Law.MULTIPLIERS)

    def _largest_residual(self, k: int, s: Array, bounds: Bounds, law: Law) -> Violation:
        """Return the largest residual of rates, sums and algebraic equations with given multipliers."""
        left = np.abs(self._residual(k, s, bounds)[0])
        # NaN counts as the largest violation.
        left = np.where(np.isfinite(left), left, np.inf)
        i, names = int(np.argmax(left)), self.system.state_names
        if i < len(names):
            return self._violation(k, law, names[i], left[i] * self.size[i], left[i])
        return self._violation(k, Law.STATEMENT, "the equations of multipliers do not hold", left[i], left[i])

    def _violation(self, k: int, law: Law, subject: str, amount: float, share: float) -> Violation:
        amount, share = (float(size) if np.isfinite(size) else np.inf for size in (amount, share))
        return Violation(time=float(self.samples.t[k]), law=law, subject=subject, amount=amount, share=share)

    def _residual(self, k: int, s: Array, bounds: Bounds) -> tuple[Array, Array]:
        active, here = (bounds[1] > 0.0).astype(float), self.samples
        assert here.rates is not None
        rows, slope = self._rows(s, here.x[k], here.u[k], self.p, active, here.rates[k], self.size)
        return rows[:, 0], slope

    def _best(self, k: int, bounds: Bounds) -> Array:
        """Return the multipliers within bounds of the smallest residual, by Gauss-Newton (one step if linear)."""
        own = self.system.algebraic
        lower, upper = bounds
        # The middle of the bounds; multipliers with equal bounds are fixed there.
        s = np.clip(np.full(lower.size, 0.5), lower, upper)
        if own is not None:
            start = np.asarray(own.initial, float) if self.listed is None else self.listed[k][lower.size :]
            s = np.concatenate([s, start])
            lower, upper = np.append(lower, own.lower), np.append(upper, own.upper)
        free = lower < upper
        if not free.any():
            return s
        for _ in range(STEPS):
            rows, slope = self._residual(k, s, bounds)
            if not (np.isfinite(rows).all() and np.isfinite(slope).all()):
                break
            low, high = lower[free] - s[free], upper[free] - s[free]
            step = _bounded_least_squares(slope[:, free], -rows, low, high)
            s[free] = np.clip(s[free] + step, lower[free], upper[free])
            if self._linear or np.abs(step).max(initial=0.0) <= LAST_STEP * (1.0 + np.abs(s).max()):
                break
        return s


def _bounded_least_squares(matrix: Array, right: Array, low: Array, high: Array) -> Array:
    """Return the x in [low, high] with the smallest residual of matrix x = right."""
    # Unconstrained steps, clipped, would not find the best admissible multipliers.
    x = np.linalg.lstsq(matrix, right, rcond=-1)[0]
    if not ((low <= x) & (x <= high)).all():
        from scipy.optimize import lsq_linear  # not paid for where it is not needed

        x = lsq_linear(matrix, right, bounds=(low, high), method="bvls").x
    return np.asarray(x)


def _limitsof(kind: int, functions: Array) -> Bounds:
    """Return the bounds of multipliers of one kind that belong together."""
    # Near a surface both sides are admissible, as a solution reaches it only up to its residuals.
    close = TOUCHING_SOLVED * (1.0 + np.abs(functions))
    if kind == STEP:
        return np.where(functions > close, 1.0, 0.0), np.where(functions < -close, 0.0, 1.0)
    if kind == MEMORY:  # between the thresholds the state does not tell
        return np.where(functions > 1.0 + close, 1.0, 0.0), np.where(functions < -1.0 - close, 0.0, 1.0)
    if kind == FORCE:
        return np.zeros(functions.size), np.where(functions <= close, np.inf, 0.0)
    return np.zeros(functions.size), np.where(functions - functions.min() <= close.max(), 1.0, 0.0)
