"""Primal-dual interior-point method with a filter line search (Waechter & Biegler 2006, Math. Program. 106).

Equation and section numbers in this file are those of that paper. Differences to IPOPT:

- The linear systems always have a small primal and dual regularisation (`kkt`), so that dependent rows need no special
  treatment and factorisations no pivoting.
- Restoration of feasibility takes Levenberg-Marquardt steps on the constraints instead of solving a second NLP.
- Known multipliers start the method near the central path of a small barrier parameter (`InteriorRun._warm`).
- The barrier parameter follows Mehrotra's predictor while errors fall, otherwise it is decreased monotonically
  (Nocedal, Waechter & Waltz 2009).

It is made for programs that are solved many times: the KKT pattern of a set of fixed variables and rows is analysed
once. Statuses are IPOPT's words, so that callers need not know which method solved an NLP.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nosnoc_py.attempts import work
from nosnoc_py.mpcc.interior.evaluation import evaluation_of
from nosnoc_py.mpcc.interior.kkt import KKT
from nosnoc_py.mpcc.ipopt import NLPResult
from nosnoc_py.mpcc.nlp import NumericProgram, SmoothProgram, entries_of, operations_of

Array = np.ndarray
# Permanent regularisations of the KKT matrix in scaled units. Primal ones that correct the inertia begin at FIRST and
# are increased up to LAST (delta_w^0 and delta_w^max of the paper).
PRIMAL, DUAL = 1e-9, 1e-9
FIRST, LAST = 1e-4, 1e20
# Number of analysed patterns in the cache; a program alternates between few branches.
PATTERNS = 8
# Objective and rows are scaled so that their gradients at the start are at most this (g_max in Section 3.8).
STEEPEST = 100.0
# Constants of the filter line search and of the barrier, with their names and values in the paper.
GAMMA_THETA, GAMMA_PHI, GAMMA_ALPHA, DELTA, S_THETA, S_PHI, ETA = 1e-5, 1e-8, 0.05, 1.0, 1.1, 2.3, 1e-8
KAPPA_EPS, KAPPA_SOC, KAPPA_D = 10.0, 0.99, 1e-5
CORRECTIONS = 4  # maximum number of second-order corrections, p_max
ROUNDING_OF_STEPS = 10.0 * np.finfo(float).eps
# Restoration: maximum number of steps, factor by which they have to reduce the infeasibility, restorations per solve.
RESTORING, HELPS, RESTORATIONS = 60, 0.9, 12
# Size of iterates that diverge; size of least-squares multipliers that are not used (lambda_max in Section 3.6).
FARTHEST, LARGE = 1e20, 1e3
ACCEPTABLE = 15  # iterations in a row at the acceptable tolerance
# Adaptive barrier parameter: the error must fall below the factor FALLS of the largest of the REMEMBERED last errors;
# otherwise mu is fixed at HELD times the mean complementarity. mu is at most HIGHEST.
REMEMBERED, FALLS, HELD, HIGHEST = 4, 0.9999, 0.8, 1e3
# A program with `patience` is given up if the largest residual of its rows stays above FAR_RESIDUAL and has not fallen
# to the fraction NEARER within so many iterations.
FAR_RESIDUAL, NEARER = 1e-2, 0.9
# A feasible iterate whose objective has not fallen by the fraction FALLEN within `creeping` iterations only creeps, by
# regularised steps with multipliers that are not unique: a start from there with new ones comes further.
FALLEN = 1e-4
# A nearly feasible program is given up if for HIGH iterations in a row its predicted optimum stays above `cutoff`, and
# FURTHER times the decrease in these iterations would not reach it. The prediction is f + DOUBTS * (slope of the step)
# less the complementarity: for a convex program a lower bound.
HIGH, NEAR_ROWS, DOUBTS, FURTHER = 8, 1e-2, 2.0, 10.0

SOLVED, NEARLY, LIMIT, STOPPED = (
    "Solve_Succeeded",
    "Solved_To_Acceptable_Level",
    "Maximum_Iterations_Exceeded",
    "User_Requested_Stop",
)
INTERRUPTED = "NonIpopt_Exception_Thrown"  # IPOPT's word for Ctrl-C through CasADi
CREEPS, ABOVE = "Search_Direction_Becomes_Too_Small", "Objective_Stays_Above_Cutoff"
INFEASIBLE, STUCK, DIVERGES, NOT_A_NUMBER = (
    "Infeasible_Problem_Detected",
    "Restoration_Failed",
    "Diverging_Iterates",
    "Invalid_Number_Detected",
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Options with IPOPT's names and meaning, and some more.

    Attributes
    ----------
    mu_warm : float
        First mu of a start from multipliers.
    kappa_sigma : float
        Factor within which multipliers of bounds keep to mu / distance (Eq. 16). Where rows leave no interior,
        multipliers that are not bound to it grow and make the Hessian of the Lagrangian indefinite.
    tau_of_error : bool
        Whether steps with a free mu keep the fraction 1 - error of the way to the bounds, as IPOPT's do, not 1 - mu: a
        mu far below the error lets a step end next to a bound, whose multiplier then grows.
    mu_of_error : float
        A free mu does not fall below this multiple of the error of optimality, or below the mean complementarity if
        that is less. Far below it, iterates stick to bounds that they have to leave (IPOPT has the same safeguard,
        `adaptive_mu_safeguard_factor`).
    patience, creeping : int
        Numbers of iterations in which the infeasibility, or the objective of feasible iterates, has to fall; see `FAR`
        and `FALLEN`.
    cutoff : float
        A program whose optimum is above this objective is not worth its iterations, see `HIGH`.
    """

    tol: float = 1e-8
    dual_inf_tol: float = 1.0
    constr_viol_tol: float = 1e-8
    compl_inf_tol: float = 1e-8
    acceptable_tol: float = 1e-6
    mu_init: float = 0.1
    mu_warm: float = 1e-6
    bound_push: float = 1e-2
    bound_frac: float = 1e-2
    max_iter: int = 500
    kappa_sigma: float = 1e10
    tau_of_error: bool = False
    mu_of_error: float = 0.0
    patience: int = 10**9
    creeping: int = 10**9
    cutoff: float = np.inf

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Settings:
        """Create settings from options of IPOPT; those of parts that this method does not have are ignored."""
        return cls(**{name: value for name, value in options.items() if name in OPTIONS})


OPTIONS = tuple(Settings.__dataclass_fields__)


class InteriorPoint:
    """Interior-point method for one program; `solve` may be called with changing bounds, parameters and starts.

    Parameters
    ----------
    nlp : SmoothProgram or NumericProgram
    options : mapping
        Options with IPOPT's names; those of `Settings` are used.
    """

    def __init__(self, nlp: SmoothProgram | NumericProgram, options: Mapping[str, Any]) -> None:
        self.nlp, self.settings, self._lock = nlp, Settings.of(options), threading.Lock()
        self.evaluation = evaluation_of(nlp)
        self.work = work.of_interior_iteration(operations_of(nlp), entries_of(nlp))
        self._patterns: OrderedDict[bytes, KKT] = OrderedDict()

    def with_options(self, options: Mapping[str, Any]) -> InteriorPoint:
        """Return the method with other options; both share the evaluation and the analysed patterns."""
        other = copy.copy(self)
        other.settings = Settings.of(options)
        return other

    def solve(self, x: Array, p: Array, *, deadline: float = np.inf, **given: Array) -> NLPResult:
        """Solve from x; `deadline` is a time.monotonic() stamp.

        `given` are bounds lbx, ubx, lbg, ubg that replace the NLP's own, and multipliers lam_x0, lam_g0. With both
        multipliers the method starts near the central path of a small barrier parameter.
        """
        bounds = {name: given.get(name, getattr(self.nlp, name)) for name in ("lbx", "ubx", "lbg", "ubg")}
        # Threads share factors and buffers. Divisions by zero and overflows are tested for where they matter.
        with self._lock, np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            started = time.monotonic()
            self.evaluation.at(p)
            run = InteriorRun(self, x, bounds, given, deadline)
            try:
                word = run.solve()
            except KeyboardInterrupt:
                word = INTERRUPTED
            x, lam_x, lam_g = run.answer()
        return NLPResult(
            x=x,
            lam_x=lam_x,
            lam_g=lam_g,
            iterations=run.iterations,
            wall_seconds=time.monotonic() - started,
            solver_status=word,
            interrupted=word == INTERRUPTED,
        )

    def pattern(self, free: Array, rows: Array) -> KKT:
        """Return the linear systems for these free variables and rows, from a cache of the last patterns."""
        key = np.packbits(np.concatenate([free, rows])).tobytes()
        kkt = self._patterns.pop(key, None)
        if kkt is None:
            kkt = KKT(self.evaluation.hessian_pattern, self.evaluation.jacobian_pattern, free, rows)
        self._patterns[key] = kkt
        while len(self._patterns) > PATTERNS:
            self._patterns.popitem(last=False)
        return kkt


@dataclass(frozen=True, eq=False)
class _Point:
    """Values at a point.

    Attributes
    ----------
    v : (n + slacks,)
        Free variables and slacks.
    f : float
        Scaled objective.
    c : (m,)
        Residuals of the rows.
    theta : float
        Their 1-norm.
    distance : (bounds,)
        Distances to the bounds.
    phi : float
        Barrier function for the present mu.
    """

    v: Array
    f: float
    c: Array
    theta: float
    distance: Array
    phi: float = np.nan


@dataclass(frozen=True, eq=False)
class _Step:
    """Step with its end point, directions of v and y, and its length."""

    point: _Point
    dv: Array
    dy: Array
    length: float


class InteriorRun:
    """One solve of a program.

    The unknowns are v = (free variables, slacks of inequality rows) with multipliers y of the rows c(v) = 0. Bounds are
    one list, lower ones first: bound k belongs to unknown `of[k]`, with the distance sign[k] (v - bound[k]) >= 0 and
    the multiplier z[k] >= 0. Rows and objective are scaled.
    """

    def __init__(
        self, method: InteriorPoint, x: Array, bounds: Mapping[str, Array], given: Mapping[str, Array], deadline: float
    ) -> None:
        self.settings, self.evaluation, self.deadline = method.settings, method.evaluation, deadline
        self.work = method.work
        lbx, ubx, lbg, ubg = (np.asarray(bounds[name], float) for name in ("lbx", "ubx", "lbg", "ubg"))
        # Fixed variables and free rows are left out of the linear systems: branches differ in exactly these.
        self.free, self.rows = lbx < ubx, np.isfinite(lbg) | np.isfinite(ubg)
        self.kkt = method.pattern(self.free, self.rows)
        self.n, self.m = self.kkt.n, self.kkt.m
        self.x = np.where(self.free, np.asarray(x, float), lbx)
        lower, upper = lbg[self.rows], ubg[self.rows]
        self.equal = lower == upper
        self.slack = np.flatnonzero(~self.equal)  # every inequality row has a slack with its bounds
        self.in_kkt = self.n + self.slack
        self.iterations, self.restorations, self.last_primal, self.regularised = 0, 0, 0.0, False
        self.scale, self.weight = self._scales()
        self.target = np.where(self.equal, lower, 0.0) * self.scale
        scaled = self.scale[self.slack]
        low = np.concatenate([lbx[self.free], lower[self.slack] * scaled])
        high = np.concatenate([ubx[self.free], upper[self.slack] * scaled])
        self.low, self.high = low, high
        lows, highs = np.flatnonzero(np.isfinite(low)), np.flatnonzero(np.isfinite(high))
        self.of = np.concatenate([lows, highs])
        self.sign = np.repeat([1.0, -1.0], [lows.size, highs.size])
        self.bound = np.concatenate([low[lows], high[highs]])
        # A small linear cost of the distance to the only bound of an unknown keeps the barrier problem bounded
        # (Section 3.7).
        self.damping = KAPPA_D * (np.isinf(low) ^ np.isinf(high))[self.of]
        self.mu = self.settings.mu_init
        # The tolerance of the complementarity is one of the unscaled program.
        self.mu_min = min(self.settings.tol, self.weight * self.settings.compl_inf_tol) / (KAPPA_EPS + 1.0)
        self.filter: list[tuple[float, float]] = []
        self.held, self.errors = False, list[float]()
        self.nearest = list[float]()  # least infeasibility so far, after every iteration
        self.feasible = list[float]()  # objectives of the last feasible iterates in a row
        self.above = list[float]()  # those of the last iterates in a row whose predicted optimum is above the cutoff
        self._begin(given)

    # The program -----------------------------------------------------------------------------------------------------

    def _scales(self) -> tuple[Array, float]:
        """Return scaling factors of the rows and of the objective (Section 3.8)."""
        gradient, jacobian = self.evaluation.first(self.x)
        self.kkt.set_jacobian(jacobian, np.ones(self.m))
        return _factors(self.kkt.largest()), float(_factors(np.abs(gradient[self.free]).max(initial=0.0)))

    def at(self, v: Array) -> _Point:
        """Evaluate the program at v."""
        self.x[self.free] = v[: self.n]
        f, g = self.evaluation.values(self.x)
        c = g[self.rows] * self.scale - self.target
        c[self.slack] -= v[self.n :]  # g(x) - s = 0 with bounds on s
        distance = self.sign * (v[self.of] - self.bound)
        return self._rated(_Point(v=v, f=self.weight * f, c=c, theta=float(np.abs(c).sum()), distance=distance))

    def _rated(self, point: _Point) -> _Point:
        """Return the point with the barrier function of the present mu (Eq. 3a)."""
        if point.distance.min(initial=np.inf) <= 0.0:
            return replace(point, phi=np.inf)
        logs = float(np.log(point.distance).sum() - self.damping @ point.distance)
        return replace(point, phi=point.f - self.mu * logs)

    def _on_unknowns(self, of_bounds: Array) -> Array:
        """Return sums of quantities of bounds by unknown."""
        return np.bincount(self.of, of_bounds, self.low.size)

    def _derive(self) -> None:
        """Update the gradients of objective, rows and Lagrangian (without z) at the current point."""
        self.x[self.free] = self.point.v[: self.n]
        gradient, jacobian = self.evaluation.first(self.x)
        self.kkt.set_jacobian(jacobian, self.scale)
        self.slope = np.concatenate([self.weight * gradient[self.free], np.zeros(self.slack.size)])
        self._measure()

    def _measure(self) -> None:
        """Update the gradient of the Lagrangian, and the errors of optimality that do not depend on mu."""
        self.lagrangian = self.slope.copy()
        self.lagrangian[: self.n] += self.kkt.transposed @ self.y
        self.lagrangian[self.n :] -= self.y[self.slack]
        self.dual = float(np.abs(self.lagrangian - self._on_unknowns(self.sign * self.z)).max(initial=0.0))
        self.primal = float(np.abs(self.point.c).max(initial=0.0))
        self.pairs = self.point.distance * self.z
        of_bounds, count = float(self.z.sum()), self.z.size
        self.s_dual = max(100.0, (of_bounds + float(np.abs(self.y).sum())) / max(1, count + self.m)) / 100.0
        self.s_pairs = max(100.0, of_bounds / max(1, count)) / 100.0

    def _error(self, mu: float) -> float:
        """Return the error of the barrier problem (Eq. 5)."""
        pairs = float(np.abs(self.pairs - mu).max(initial=0.0))
        return max(self.dual / self.s_dual, self.primal, pairs / self.s_pairs)

    # The start -------------------------------------------------------------------------------------------------------

    def _begin(self, given: Mapping[str, Array]) -> None:
        s = self.settings
        v = np.concatenate([self.x[self.free], self.evaluation.values(self.x)[1][self.rows][self.slack]])
        v[self.n :] *= self.scale[self.slack]
        warm = {"lam_x0", "lam_g0"} <= given.keys()
        if warm:
            self.mu = min(self.mu, self.settings.mu_warm)
            v = self._warm(v, given)
        else:
            # Move the start into the interior (Section 3.6).
            width = self.high - self.low
            size = [np.where(np.isfinite(b), np.maximum(1.0, np.abs(b)), 0.0) for b in (self.low, self.high)]
            push = [np.minimum(s.bound_push * one, s.bound_frac * width) for one in size]
            v = np.minimum(np.maximum(v, self.low + push[0]), self.high - push[1])
            self.y, self.z = np.zeros(self.m), np.ones(self.of.size)
        self.point = self.at(v)
        self._derive()
        if not warm:
            self.y = self._least_squares()
            self._measure()
        # theta_max and theta_min of the paper, relative to the infeasibility at the start.
        self.largest_theta, self.small_theta = (k * max(1.0, self.point.theta) for k in (1e4, 1e-4))

    def _warm(self, v: Array, given: Mapping[str, Array]) -> Array:
        """Move the start near the central path of mu: of every distance and multiplier the smaller one is increased."""
        lam_g = np.asarray(given["lam_g0"], float)[self.rows] / self.scale
        self.y = self.weight * lam_g
        lam = self.weight * np.concatenate([np.asarray(given["lam_x0"], float)[self.free], lam_g[self.slack]])
        v = np.clip(v, self.low, self.high)
        distance = self.sign * (v[self.of] - self.bound)
        central = self.mu / np.maximum(distance, np.sqrt(self.mu))
        self.z = np.maximum(np.maximum(-self.sign * lam[self.of], 0.0), central)
        least = np.minimum(self.mu / self.z, 0.25 * (self.high - self.low)[self.of])
        for k in (self.sign > 0.0, self.sign < 0.0):
            v[self.of[k]] = self.bound[k] + self.sign[k] * np.maximum(
                self.sign[k] * (v[self.of[k]] - self.bound[k]), least[k]
            )
        return v

    def _least_squares(self) -> Array:
        """Return the multipliers of the rows with the smallest gradient of the Lagrangian; zero if they are large.

        Section 3.6 of the paper.
        """
        right = self.slope - self._on_unknowns(self.sign * self.z)
        diagonal = np.concatenate([np.ones(self.n), np.where(self.equal, -DUAL, -1.0)])
        # The system of a least-squares problem: the Hessian is replaced by the identity, slacks included.
        if not self.m or self.kkt.factorise(None, diagonal) != self.m:
            return np.zeros(self.m)
        b = np.concatenate([-right[: self.n], np.zeros(self.m)])
        b[self.in_kkt] = -right[self.n :]
        y = self.kkt.solve(b)[0][self.n :]
        return y if np.isfinite(y).all() and np.abs(y).max(initial=0.0) < LARGE else np.zeros(self.m)

    # The loop --------------------------------------------------------------------------------------------------------

    def solve(self) -> str:
        """Iterate until termination and return the status, one of IPOPT's words."""
        acceptable, last_acceptable = 0, self._state()
        while True:
            # One sum shows NaN and infinity of any of them.
            if not np.isfinite(self.point.f + self.point.theta + self.dual):
                return NOT_A_NUMBER
            if np.abs(self.point.v).max(initial=0.0) > FARTHEST:
                return DIVERGES
            if self._optimal(self.settings.tol):
                return SOLVED
            # In a row: an acceptable point in passing may still improve.
            acceptable = acceptable + 1 if self._optimal(self.settings.acceptable_tol) else 0
            last_acceptable = self._state() if acceptable else last_acceptable
            if acceptable >= ACCEPTABLE:
                return NEARLY
            if self.iterations >= self.settings.max_iter:
                return LIMIT
            if self._is_over():
                return STOPPED
            if self._is_hopeless():
                return INFEASIBLE
            if self._creeps():
                return CREEPS
            self._choose_mode()
            failure = self._iterate()
            self.iterations += 1
            if self._stays_above():
                return ABOVE
            if failure and acceptable:
                self.point, self.y, self.z = last_acceptable
                return NEARLY
            if failure:
                # Rows that contradict each other in their last digits make the multipliers grow in every step; with
                # least-squares multipliers the point may be acceptable.
                self.y = self._least_squares()
                self._measure()
                return NEARLY if self._optimal(self.settings.acceptable_tol) else failure

    def _state(self) -> tuple[_Point, Array, Array]:
        return self.point, self.y, self.z

    def _optimal(self, tolerance: float) -> bool:
        s, loose = self.settings, tolerance / self.settings.tol
        if self._error(0.0) > tolerance:
            return False
        rows = float(np.abs(self.point.c / self.scale).max(initial=0.0))
        pairs = float(self.pairs.max(initial=0.0))
        limits = (
            (self.dual / self.weight, s.dual_inf_tol),
            (rows, s.constr_viol_tol),
            (pairs / self.weight, s.compl_inf_tol),
        )
        return all(value <= loose * limit for value, limit in limits)

    def _choose_mode(self) -> None:
        """Choose between a free mu and a fixed one.

        mu is updated in every iteration (`_probe`) as long as the errors fall; otherwise it is fixed until its barrier
        problem is solved. Nocedal, Waechter & Waltz, Adaptive barrier update strategies for nonlinear interior methods,
        SIAM J. Optim. 19 (2009), Section 5.
        """
        error = self._error(0.0)
        if self.held:
            if self._error(self.mu) > KAPPA_EPS * self.mu:
                return  # the barrier problem is not yet solved
            self.held, self.errors = False, []
        if len(self.errors) == REMEMBERED and error > FALLS * max(self.errors):
            self.held = True
            self._set_mu(max(self.mu_min, HELD * float(self.pairs.mean()) if self.pairs.size else self.mu_min))
            return
        self.errors = [*self.errors[1 - REMEMBERED :], error]

    def _set_mu(self, mu: float) -> None:
        self.mu, self.filter = mu, []  # the filter belongs to one barrier problem (Algorithm A, step A-3)
        self.point = self._rated(self.point)

    def _probe(self, ratio: Array) -> None:
        """Set mu by Mehrotra's rule, from the complementarity after a step without a barrier.

        Nocedal, Waechter & Waltz 2009, Eq. 4.5.
        """
        if not self.pairs.size:
            return
        dv = self._direction(self.point.c, self.lagrangian)[0]
        if not np.isfinite(dv).all():
            return
        d = self.sign * dv[self.of]
        dz = -self.z - ratio * d
        primal, dual = _longest(self.point.distance, d, 1.0), _longest(self.z, dz, 1.0)
        left = float(((self.point.distance + primal * d) * (self.z + dual * dz)).mean())
        now = float(self.pairs.mean())
        least = max(self.mu_min, min(now, self.settings.mu_of_error * self._error(0.0)))
        self._set_mu(min(max(least, (left / now) ** 3 * now), HIGHEST))

    def _iterate(self) -> str:
        """Take one step; return "" or the status of a failure."""
        point = self.point
        ratio = self.z / point.distance
        if not self._factorised(self._on_unknowns(ratio)):
            return STUCK
        if not self.held:
            self._probe(ratio)
        point, mu = self.point, self.mu
        pull = self._on_unknowns(self.sign * (mu * self.damping - mu / point.distance))
        right = self.lagrangian + pull
        dv, dy = self._direction(point.c, right)
        if not np.isfinite(dv).all() or not np.isfinite(dy).all():
            return NOT_A_NUMBER
        self._predict(float(self.slope @ dv))
        tau = max(0.99, 1.0 - (self._error(0.0) if self.settings.tau_of_error and not self.held else mu))
        longest = self._longest(dv, tau)
        step: _Step | None
        if float((np.abs(dv) / (1.0 + np.abs(point.v))).max(initial=0.0)) < ROUNDING_OF_STEPS:
            # A step of the size of rounding errors: the line search could not measure a decrease (Section 3.9).
            step = _Step(self.at(point.v + longest * dv), dv, dy, longest)
        else:
            step = self._search(_Step(point, dv, dy, longest), float((self.slope + pull) @ dv), right, tau)
        if step is None:
            return self._restore()
        dz = mu / point.distance - self.z - ratio * (self.sign * step.dv[self.of])
        self.y = self.y + step.length * step.dy
        self._arrive(step.point, self.z + _longest(self.z, dz, tau) * dz)
        return ""

    def _arrive(self, new: _Point, z: Array) -> None:
        """Accept a point; multipliers of bounds are kept within a factor of mu / distance (Eq. 16)."""
        self.point, central = new, self.mu / new.distance
        factor = self.settings.kappa_sigma
        self.z = np.minimum(np.maximum(z, central / factor), factor * central)
        self._derive()

    # The direction ---------------------------------------------------------------------------------------------------

    def _factorised(self, sigma: Array) -> bool:
        """Factorise the KKT matrix, regularised until it has as many negative eigenvalues as rows (Algorithm IC)."""
        multipliers = np.zeros(self.rows.size)
        multipliers[self.rows] = self.y * self.scale
        hessian = self.evaluation.second(self.x, self.weight, multipliers)
        # Where a second derivative is infinite (h^1.5 where a phase begins at h = 0), the others and the regularisation
        # still give a direction of descent.
        hessian = np.where(np.isfinite(hessian), hessian, 0.0)
        # If the last step needed a regularisation, this one usually does, too; every fourth iteration tries without.
        primal = self.last_primal / 3.0 if self.regularised and self.iterations % 4 else 0.0
        while True:
            added = max(primal, PRIMAL)
            self.spread = sigma[self.n :] + added
            diagonal = np.concatenate([sigma[: self.n] + added, np.full(self.m, -DUAL)])
            diagonal[self.in_kkt] -= 1.0 / self.spread  # eliminated slacks
            if self.kkt.factorise(hessian, diagonal) == self.m:
                break
            # The first attempt has no regularisation beside the permanent one; then delta_w grows by 100 or 8
            # (Algorithm IC).
            if primal == 0.0:
                primal = FIRST if self.last_primal == 0.0 else max(PRIMAL, self.last_primal / 3.0)
            else:
                primal *= 100.0 if self.last_primal == 0.0 else 8.0
            if primal > LAST:
                return False
        self.regularised = primal > PRIMAL
        self.last_primal = primal if self.regularised else self.last_primal
        return True

    def _direction(self, c: Array, right: Array) -> tuple[Array, Array]:
        """Return steps of v and y for residuals c and the gradient of the barrier problem's Lagrangian.

        Slacks are eliminated: they add only diagonal entries to the rows of their inequalities.
        """
        b = np.concatenate([-right[: self.n], -c])
        b[self.in_kkt] -= right[self.n :] / self.spread
        solution = self.kkt.solve(b)[0]
        dy = solution[self.n :]
        return np.concatenate([solution[: self.n], (dy[self.slack] - right[self.n :]) / self.spread]), dy

    def _longest(self, dv: Array, tau: float) -> float:
        """Return the step length of the fraction-to-the-boundary rule (Eq. 15)."""
        return _longest(self.point.distance, self.sign * dv[self.of], tau)

    # The line search -------------------------------------------------------------------------------------------------

    def _search(self, step: _Step, slope: float, right: Array, tau: float) -> _Step | None:
        """Search along a step with the filter (Algorithm A); None if the step becomes too short."""
        point, length, shortest = self.point, step.length, self._shortest(slope)
        while length >= shortest:
            trial = self.at(point.v + length * step.dv)
            if self._takes(trial, slope, length):
                return _Step(trial, step.dv, step.dy, length)
            # Only the full step that increases the infeasibility is worth a correction (Maratos effect).
            if length == step.length and np.isfinite(trial.theta) and trial.theta >= point.theta:
                corrected = self._corrected(trial, slope, length, right, tau)
                if corrected is not None:
                    return corrected
            length *= 0.5
        return None

    def _corrected(self, trial: _Point, slope: float, length: float, right: Array, tau: float) -> _Step | None:
        """Try second-order corrections (Section 2.4); None if they do not help."""
        c, reached, step = self.point.c, trial, length
        for _ in range(CORRECTIONS):
            c = step * c + reached.c
            dv, dy = self._direction(c, right)
            if not np.isfinite(dv).all():
                return None
            step = self._longest(dv, tau)
            better = self.at(self.point.v + step * dv)
            if self._takes(better, slope, length):
                return _Step(better, dv, dy, step)
            if not better.theta <= KAPPA_SOC * reached.theta:
                return None
            reached = better
        return None

    def _shortest(self, slope: float) -> float:
        """Return the length below which the line search gives up (Eq. 23)."""
        theta, least = self.point.theta, GAMMA_THETA
        if slope < 0.0:
            least = min(least, GAMMA_PHI * theta / -slope)
            if theta <= self.small_theta:
                least = min(least, DELTA * theta**S_THETA / (-slope) ** S_PHI)
        return max(GAMMA_ALPHA * least, float(np.finfo(float).eps))

    def _takes(self, trial: _Point, slope: float, length: float) -> bool:
        """Return True if a trial is acceptable to the filter and better (Eqs. 18 to 20); update the filter (Eq. 22)."""
        point = self.point
        if not (np.isfinite(trial.phi) and trial.theta <= self.largest_theta and self._passes(trial)):
            return False
        # Switching condition (Eq. 19): the predicted decrease of the objective outweighs the infeasibility.
        descends = slope < 0.0 and length * (-slope) ** S_PHI > DELTA * point.theta**S_THETA
        rounding = ROUNDING_OF_STEPS * abs(point.phi)
        armijo = trial.phi <= point.phi + ETA * length * slope + rounding
        if point.theta <= self.small_theta and descends:
            taken = bool(armijo)
        else:
            enough = trial.phi <= point.phi - GAMMA_PHI * point.theta + rounding
            taken = bool(trial.theta <= (1.0 - GAMMA_THETA) * point.theta or enough)
        if taken and not (descends and armijo):
            self._forbid(point)
        return taken

    def _passes(self, trial: _Point) -> bool:
        return all(trial.theta < theta or trial.phi < phi for theta, phi in self.filter)

    def _forbid(self, point: _Point) -> None:
        self.filter.append(((1.0 - GAMMA_THETA) * point.theta, point.phi - GAMMA_PHI * point.theta))

    # Feasibility -----------------------------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        """Count an iteration, and return True at the limit of time or work."""
        work.count(self.work)
        return work.exhausted() or time.monotonic() > self.deadline

    def _creeps(self) -> bool:
        """Return True if the iterates are feasible and the objective hardly falls any more."""
        if self.primal > self.settings.acceptable_tol:
            self.feasible = []
            return False
        self.feasible.append(self.point.f)
        before = self.feasible[-self.settings.creeping :][0]
        return len(self.feasible) > self.settings.creeping and before - self.point.f < FALLEN * abs(before)

    def _predict(self, slope: float) -> None:
        """Note the objective if the optimum that a step with this slope predicts is above the cutoff."""
        least = self.point.f + DOUBTS * min(0.0, slope) - float(self.pairs.sum())
        above = self.primal <= NEAR_ROWS and least > self.weight * self.settings.cutoff
        self.above = [*self.above[1 - HIGH :], self.point.f] if above else []

    def _stays_above(self) -> bool:
        """Return True if no optimum below the cutoff is in sight."""
        if len(self.above) < HIGH:
            return False
        first, last = self.above[0], self.above[-1]
        return last - FURTHER * max(0.0, first - last) > self.weight * self.settings.cutoff

    def _is_hopeless(self) -> bool:
        """Return True if the rows are far from satisfied, and no nearer to it than `patience` iterations ago."""
        self.nearest.append(min(self.primal, self.nearest[-1] if self.nearest else np.inf))
        before = self.nearest[-1 - self.settings.patience :][0]
        return len(self.nearest) > self.settings.patience and self.nearest[-1] > max(FAR_RESIDUAL, NEARER * before)

    def _restore(self) -> str:
        """Take steps towards feasibility until the filter accepts the point; return "" or the status of a failure."""
        self.restorations += 1
        start, damping = self.point, DUAL
        exact = float(np.abs(start.c / self.scale).max(initial=0.0)) <= self.settings.constr_viol_tol
        if self.restorations > RESTORATIONS or exact:
            return STUCK
        self._forbid(start)
        for _ in range(RESTORING):
            if self._is_over():
                return STOPPED
            new = self._towards_rows(damping)
            if new is None:
                damping = max(100.0 * damping, 1e-6)
                # So short a step is gradient descent on the infeasibility: if it does not help, no step does.
                if damping > 1e6:
                    return INFEASIBLE
                continue
            damping = max(0.1 * damping, DUAL)  # a good step: closer to Gauss-Newton
            slow = new.theta > (1.0 - 1e-6) * self.point.theta
            self.iterations += 1
            self._arrive(new, self.z)
            slow = slow or self._is_hopeless()
            if new.theta <= HELPS * start.theta and self._passes(new):
                self.y = self._least_squares()
                self._measure()
                self.regularised = False
                return ""
            if slow or self.iterations >= self.settings.max_iter:
                return INFEASIBLE if slow else LIMIT
        return INFEASIBLE

    def _towards_rows(self, damping: float) -> _Point | None:
        """Return the end of a Levenberg-Marquardt step for c(v) = 0 that keeps away from bounds; None if it fails."""
        point = self.point
        # A metric that grows near bounds keeps steps away from them, as the barrier does.
        metric = np.sqrt(self.mu) / np.maximum(1.0, np.abs(point.v)) ** 2
        metric += self._on_unknowns(np.minimum(self.mu / point.distance**2, 1e16))
        diagonal = np.concatenate([metric[: self.n], np.full(self.m, -damping)])
        diagonal[self.in_kkt] -= 1.0 / metric[self.n :]
        if self.kkt.factorise(None, diagonal) != self.m:
            return None
        solution = self.kkt.solve(np.concatenate([np.zeros(self.n), -point.c]))[0]
        dv = np.concatenate([solution[: self.n], solution[self.in_kkt] / metric[self.n :]])
        if not np.isfinite(dv).all():
            return None
        length = self._longest(dv, 0.99)
        while length > 1e-7:
            trial = self.at(point.v + length * dv)
            if trial.theta <= (1.0 - 1e-4 * length) * point.theta and np.isfinite(trial.phi):
                return trial
            length *= 0.5
        return None

    # The answer ------------------------------------------------------------------------------------------------------

    def answer(self) -> tuple[Array, Array, Array]:
        """Return x and the multipliers of bounds and rows, with CasADi's signs, unscaled.

        Multipliers of fixed variables are chosen so that the gradient of the Lagrangian vanishes.
        """
        x, free = self.x.copy(), np.flatnonzero(self.free)
        x[free] = self.point.v[: self.n]
        lam_g = np.zeros(self.rows.size)
        lam_g[self.rows] = self.y * self.scale / self.weight
        lam_x = np.zeros(x.size)
        lam_x[free] = -self._on_unknowns(self.sign * self.z)[: self.n] / self.weight
        fixed = ~self.free
        if fixed.any():
            gradient, jacobian = self.evaluation.first(x)
            row, column = self.evaluation.jacobian_pattern
            slope = gradient + np.bincount(column, jacobian * lam_g[row], x.size)
            lam_x[fixed] = -slope[fixed]
        return x, lam_x, lam_g


def _longest(values: Array, steps: Array, tau: float) -> float:
    """Return the largest step length, at most 1, that leaves 1 - tau of every positive value."""
    shrinking = float((-steps / values).max(initial=0.0))
    return min(1.0, tau / shrinking) if shrinking > 0.0 else 1.0


def _factors(sizes: Any) -> Array:
    """Return the factors that scale gradients of these sizes down to STEEPEST."""
    steep = np.isfinite(sizes) & (sizes > STEEPEST)
    return np.where(steep, STEEPEST / np.where(steep, sizes, 1.0), 1.0)
