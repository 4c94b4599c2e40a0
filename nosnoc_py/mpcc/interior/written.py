"""Steps of the interior-point method as CasADi functions, for generated C code without Python.

Unknowns, bounds, scales and regularisations are those of `InteriorRun` at a solution, as constants. The caller has the
loop: `begin`, then `look` and `move` in turn until the error that `look` reports is at most 1. In between the caller
factorises the matrix of `look`, whose rows are in an order of little fill. There is no filter line search: a start near
the optimum needs none, and from elsewhere the loop reports that it did not converge.

Each expression names the method of `InteriorRun` whose formula it repeats; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import casadi as ca
import numpy as np

from nosnoc_py.mpcc.interior.method import DUAL, HIGHEST, PRIMAL, InteriorPoint, InteriorRun
from nosnoc_py.mpcc.nlp import SmoothProgram

Array = np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class WrittenSteps:
    """Functions of the parameters p and of a plan (w, slacks, y, z): variables in the user's units, and multipliers.

    Attributes
    ----------
    begin : (p, plan) -> plan
        Move the plan near the central path of a small barrier parameter.
    look : (p, plan) -> matrix, right, report
        Upper half of the KKT matrix, two right sides (without the barrier, and per unit of the barrier parameter), and
        (error relative to the tolerances, a sum that is finite if everything is, largest residual of the rows).
    move : (p, plan, steps) -> plan, length
        Take the step; `steps` are the two solutions of the linear system.
    pattern : Sparsity
        Pattern of the matrix, upper half.
    factor : Sparsity
        Pattern of the strictly upper factor L' in L D L'.
    signs : (rows,)
        Signs of D at a minimum.
    start : (plan,)
        Plan of the solution.
    """

    begin: ca.Function
    look: ca.Function
    move: ca.Function
    pattern: ca.Sparsity
    factor: ca.Sparsity
    signs: Array
    start: Array


@dataclass(frozen=True, eq=False, kw_only=True)
class BranchSolution:
    """Solution of a program on a branch, about which the steps are written.

    Attributes
    ----------
    x, scale : (n_x,)
        Scaled solution; x times scale are the user's variables.
    parameters : (n_p,)
    bounds, duals : mapping
        lbx, ubx, lbg, ubg, and lam_x0, lam_g0.
    symbols : SX
        Leading `parameters` that are inputs; the others are constants.
    fixed : SX (n_x,)
        Values of the variables that bounds fix, which may depend on the symbols.
    """

    x: Array
    scale: Array
    parameters: Array
    bounds: Mapping[str, Array]
    duals: Mapping[str, Array]
    symbols: ca.SX
    fixed: ca.SX


def write(method: InteriorPoint, place: BranchSolution) -> WrittenSteps:
    """Return the functions for steps near a solution, with its free variables and rows."""
    method.evaluation.at(place.parameters)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        run = InteriorRun(method, place.x, place.bounds, place.duals, np.inf)
    return _Writer(method, place, run).steps()


class _Writer:
    """Builder of the expressions of `InteriorRun`, with its names."""

    def __init__(self, method: InteriorPoint, place: BranchSolution, run: InteriorRun) -> None:
        self.run, self.place, self.settings = run, place, method.settings
        n_x, slacks = run.free.size, run.slack.size
        self.plan = ca.SX.sym("plan", n_x + slacks + run.m + run.of.size)
        w, self.s, self.y, self.z = ca.vertsplit(self.plan, np.cumsum([0, n_x, slacks, run.m, run.of.size]).tolist())
        self.free, self.rows = np.flatnonzero(run.free).tolist(), np.flatnonzero(run.rows).tolist()
        self.signs, self.mean = ca.DM(run.sign), 1.0 / max(1, run.of.size)
        self.on_unknowns = ca.DM(
            ca.Sparsity.triplet(run.low.size, run.of.size, run.of.tolist(), [*range(run.of.size)]), 1.0
        )
        self.v = ca.vertcat(_at(w / place.scale, self.free), self.s)
        self.x = self._with_fixed(self.v)
        self.p = ca.vertcat(place.symbols, ca.DM(place.parameters[place.symbols.numel() :]))
        self._derive(method)

    def _with_fixed(self, v: ca.SX) -> ca.SX:
        x = ca.SX(self.place.fixed)
        x[self.free] = v[: self.run.n]
        return x

    def _derive(self, method: InteriorPoint) -> None:
        run, functions = self.run, cast(SmoothProgram, method.nlp).derivatives
        multipliers = ca.SX.zeros(run.rows.size)
        multipliers[self.rows] = self.y * ca.DM(run.scale)
        self.f, gradient = functions["grad_f"](self.x, self.p)
        g, jacobian = functions["jac_g"](self.x, self.p)
        hessian = functions["hess_lag"](self.x, self.p, run.weight, multipliers)
        self.hessian = ca.triu2symm(hessian)[self.free, self.free]
        self.jacobian = ca.mtimes(ca.diag(ca.DM(run.scale)), jacobian[self.rows, self.free])
        self.g = _at(g, self.rows) * ca.DM(run.scale)
        self.c = self._residual(self.s)
        self.distance = self._distance(self.v)
        self.ratio = self.z / self.distance
        slope = ca.vertcat(run.weight * _at(gradient, self.free), ca.SX.zeros(run.slack.size))
        self.lagrangian = slope + ca.vertcat(ca.mtimes(self.jacobian.T, self.y), -_at(self.y, run.slack.tolist()))
        # Gradient of the barrier, per unit of its parameter.
        self.pull = ca.mtimes(self.on_unknowns, self.signs * (ca.DM(run.damping) - 1.0 / self.distance))
        spread = ca.mtimes(self.on_unknowns, self.ratio) + PRIMAL
        self.spread, self.spread_of_slacks = spread[: run.n], spread[run.n :]

    def _residual(self, slacks: ca.SX) -> ca.SX:
        c = self.g - ca.DM(self.run.target)
        c[self.run.slack.tolist()] -= slacks
        return c

    def _distance(self, v: ca.SX) -> ca.SX:
        # Rounding may make a distance zero: the line search of `InteriorRun`, which prevents that, is missing here.
        least = np.finfo(float).eps * np.maximum(1.0, np.abs(self.run.bound))
        return ca.fmax(self.signs * (_at(v, self.run.of.tolist()) - ca.DM(self.run.bound)), ca.DM(least))

    def steps(self) -> WrittenSteps:
        """Return all functions, with the pattern of the factors."""
        run, symbols = self.run, self.place.symbols
        matrix = self._matrix()
        # The order is fixed with the pattern, so that the generated code needs no pivoting and no allocation.
        factor, order = matrix.sparsity().ldl()
        upper = ca.triu(matrix[order, order])
        back = np.argsort(order).tolist()
        right = ca.horzcat(self._right(self.c, self.lagrangian), self._right(0.0 * self.c, self.pull))[order, :]
        steps = ca.SX.sym("steps", run.n + run.m, 2)
        # As many negative pivots as rows: other signs tell the caller that the Hessian has negative curvature.
        signs = np.repeat([1.0, -1.0], [run.n, run.m])[order]
        inputs, names = [symbols, self.plan], ["p", "plan"]
        look = [upper, ca.densify(right), self._report()]
        return WrittenSteps(
            begin=ca.Function("nlp_step_begin", inputs, [ca.densify(self._begun())], names, ["begun"]),
            look=ca.Function("nlp_step_look", inputs, look, names, ["matrix", "right", "report"]),
            move=ca.Function(
                "nlp_step_move", [*inputs, steps], self._moved(steps[back, :]), [*names, "steps"], ["moved", "length"]
            ),
            pattern=upper.sparsity(),
            factor=factor,
            signs=signs,
            start=self._start(),
        )

    def _start(self) -> Array:
        run = self.run
        lam = run.weight * np.concatenate(
            [self.place.duals["lam_x0"][run.free], (self.place.duals["lam_g0"][run.rows] / run.scale)[run.slack]]
        )
        # CasADi's multipliers of lower bounds are negative, z is positive at either bound.
        z = np.maximum(-run.sign * lam[run.of], 0.0)
        x = np.where(run.free, self.place.x, run.x)
        # The plan is in the user's units: generated code exchanges it with its caller.
        return np.concatenate([x * self.place.scale, run.point.v[run.n :], run.y, z])

    def _begun(self) -> ca.SX:
        """Return the plan after `InteriorRun._warm`."""
        run, mu = self.run, min(self.settings.mu_init, self.settings.mu_warm)
        v = ca.vertcat(self.v[: run.n], _at(self.g, run.slack.tolist()))
        v = ca.fmin(ca.fmax(v, ca.DM(run.low)), ca.DM(run.high))
        distance = self._distance(v)
        z = ca.fmax(self.z, mu / ca.fmax(distance, np.sqrt(mu)))
        least = ca.fmin(mu / z, ca.DM(0.25 * (run.high - run.low)[run.of]))
        # One after the other: an unknown with two bounds is pushed away from both.
        for k, (i, sign) in enumerate(zip(run.of.tolist(), run.sign.tolist(), strict=True)):
            v[i] = run.bound[k] + sign * ca.fmax(sign * (v[i] - run.bound[k]), least[k])
        return self._plan(v, self.y, z)

    def _plan(self, v: ca.SX, y: ca.SX, z: ca.SX) -> ca.SX:
        return ca.vertcat(self._with_fixed(v) * self.place.scale, v[self.run.n :], y, z)

    def _matrix(self) -> ca.SX:
        run = self.run
        corner = -DUAL * ca.SX.ones(run.m)
        corner[run.slack.tolist()] -= 1.0 / self.spread_of_slacks
        top = ca.horzcat(self.hessian + ca.diag(self.spread), self.jacobian.T)
        return ca.vertcat(top, ca.horzcat(self.jacobian, ca.diag(corner)))

    def _right(self, c: ca.SX, slope: ca.SX) -> ca.SX:
        """Return the right side of the linear system in `InteriorRun._direction`."""
        below = -c
        below[self.run.slack.tolist()] -= slope[self.run.n :] / self.spread_of_slacks
        return ca.vertcat(-slope[: self.run.n], below)

    def _report(self) -> ca.SX:
        """Return `InteriorRun._optimal` and `InteriorRun._error` as one number, a finite-or-not sum, and a residual."""
        run, s = self.run, self.settings
        slope = self.lagrangian - ca.mtimes(self.on_unknowns, self.signs * self.z)
        dual, primal, rows = _largest(slope), _largest(self.c), _largest(self.c / ca.DM(run.scale))
        pairs, of_bounds = _largest(self.distance * self.z), ca.sum1(self.z)
        # Large multipliers relax the tolerance (s_max = 100, Eq. 6 of Waechter & Biegler 2006).
        s_dual = ca.fmax(1.0, (of_bounds + ca.sum1(ca.fabs(self.y))) / (100.0 * max(1, run.m + run.of.size)))
        s_pairs = ca.fmax(1.0, of_bounds / (100.0 * max(1, run.of.size)))
        shares = (
            dual / s_dual / s.tol,
            primal / s.tol,
            pairs / s_pairs / s.tol,
            dual / run.weight / s.dual_inf_tol,
            rows / s.constr_viol_tol,
            pairs / run.weight / s.compl_inf_tol,
        )
        # A sum, because NaN and infinity of any entry survive in it; a maximum may drop NaN.
        everything = self.f + ca.sum1(ca.fabs(slope)) + ca.sum1(ca.fabs(self.c))
        return ca.densify(ca.vertcat(_largest(ca.vertcat(*shares)), everything, rows))

    def _moved(self, steps: ca.SX) -> list[ca.SX]:
        """Return the plan after `InteriorRun._probe` and `_iterate` without line search, and the length of the step."""
        run = self.run
        (dv, dy), (dv_mu, dy_mu) = (
            self._direction(steps[:, 0], self.lagrangian),
            self._direction(steps[:, 1], self.pull),
        )
        mu, of = ca.SX(0.0), run.of.tolist()
        if run.of.size:
            d = self.signs * _at(dv, of)
            dz = -self.z - self.ratio * d
            primal, dual = _longest(self.distance, d, 1.0), _longest(self.z, dz, 1.0)
            left = ca.sum1((self.distance + primal * d) * (self.z + dual * dz)) * self.mean
            now = ca.sum1(self.distance * self.z) * self.mean
            # Mehrotra's rule with the exponent 3, as in `InteriorRun._probe`.
            mu = ca.fmin(ca.fmax(run.mu_min, (left / now) ** 3 * now), HIGHEST)
        dv, dy = dv + mu * dv_mu, dy + mu * dy_mu
        tau = ca.fmax(0.99, 1.0 - mu)
        d = self.signs * _at(dv, of)
        dz = mu / self.distance - self.z - self.ratio * d
        length = _longest(self.distance, d, tau)
        plan = self._plan(self.v + length * dv, self.y + length * dy, self.z + _longest(self.z, dz, tau) * dz)
        return [ca.densify(plan), ca.densify(length)]

    def _direction(self, step: ca.SX, slope: ca.SX) -> tuple[ca.SX, ca.SX]:
        """Return the steps of v and y from the solution of the linear system, as in `InteriorRun._direction`."""
        n, dy = self.run.n, step[self.run.n :]
        of_slacks = (_at(dy, self.run.slack.tolist()) - slope[n:]) / self.spread_of_slacks
        return ca.vertcat(step[:n], of_slacks), dy


def _at(rows: ca.SX, index: list[int]) -> ca.SX:
    return rows[index, 0]  # with the column index, because a 1 x 1 SX returns 1 x 0 for [[]]


def _largest(rows: ca.SX) -> ca.SX:
    return ca.mmax(ca.fabs(ca.densify(rows))) if rows.numel() else ca.SX(0.0)


def _longest(values: ca.SX, steps: ca.SX, tau: ca.SX | float) -> ca.SX:
    """Return the step length of the fraction-to-the-boundary rule (Eq. 15)."""
    if not values.numel():
        return ca.SX(1.0)
    shrinking = ca.mmax(ca.densify(-steps / values))
    # 1e-300 avoids a division by zero if no value shrinks.
    return ca.fmin(1.0, tau / ca.fmax(shrinking, 1e-300))
