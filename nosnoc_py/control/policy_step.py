"""One step of the search for a robust plan: measures of scenarios, and the quadratic program of their models.

The objective L_i of scenario i is the cost plus the penalty rho times the relative violation of every constraint, at
the sample where it is largest. What is minimised over all scenarios is their conditional value at risk (Rockafellar and
Uryasev 2000),

    CVaR_a(L) = min over t of  t + sum_i w_i max(0, L_i - t) / (1 - a),

which is the mean for a = 0 and the largest value for a = 1. With the models of scenarios it becomes a quadratic program
in the change of the feedforward controls within a trust region: the penalty method of Fletcher (1985), "An l1 penalty
method for nonlinear constraints", whose rows are softened by slacks, so that a step always exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import casadi as ca
import numpy as np

from nosnoc_py.control.scenarios import LOST, MARGIN, LoopModel, LoopRows, LoopRun

Array = np.ndarray
# Curvature relative to that of the largest control that makes the quadratic program strictly convex.
CURVATURE = 1e-8
# Least curvature of slacks, relative to their slope: the solver requires some.
SLACK_CURVATURE = 1e-6
SOLVER = "daqp"


@dataclass(frozen=True, eq=False, kw_only=True)
class Risk:
    """What is minimised: level of the conditional value at risk, weights of scenarios (S,), and that of violations."""

    level: float
    weights: Array
    penalty: float

    def of(self, values: Array) -> float:
        """Return the conditional value at risk of values (S,)."""
        if self.level >= 1.0:
            return float(values.max())
        over = np.maximum(values - values[:, None], 0.0)
        return float((values + over @ self.weights / (1.0 - self.level)).min())

    def losses(self, runs: Sequence[LoopRun], rows: LoopRows) -> Array:
        """Return the cost with penalty of every run (S,); infinite if all stopped early."""
        missed = np.array([np.nan if run.lost else rows.violations(run.rows).sum() for run in runs])
        losses = np.array([run.cost for run in runs]) + self.penalty * missed
        # A motion that stopped early has no cost: it counts as worse than all others.
        worst = np.nanmax(losses) if np.isfinite(losses).any() else np.inf
        return np.where(np.isfinite(losses), losses, worst + self.penalty * LOST)


@dataclass(frozen=True, eq=False, kw_only=True)
class LawStep:
    """Change of the feedforward controls (n,), the decrease of the risk that the models predict, weights of scenarios.

    The decrease is that of the scenarios that have a model: simulations that stopped early have none.
    """

    change: Array
    decrease: float
    multipliers: Array


def step_of(
    runs: Sequence[LoopRun],
    models: Sequence[LoopModel | None],
    rows: LoopRows,
    risk: Risk,
    bounds: tuple[Array, Array],
    span: Array,
    multipliers: Array,
) -> LawStep:
    """Return the solution of the quadratic program.

    Parameters
    ----------
    bounds : (n,), (n,)
        Of the change of the controls: trust region, and limits.
    span : (n,)
        Typical sizes of the controls.
    multipliers : (S,)
        Weights of the curvatures of the scenarios.
    """
    alive = [i for i, model in enumerate(models) if model is not None]
    known = [(i, models[i]) for i in alive]
    n, kinds, count = span.size, rows.count, len(alive)
    blocks, lower, of_risk = [], [], risk.level > 0.0
    # Unknowns: change / span, violations by scenario, and, unless the mean is minimised, t and the excesses over it.
    slacks = n + np.arange(count * kinds).reshape(count, kinds)
    tail = n + count * kinds
    size = tail + (1 + count if of_risk else 0)
    costs = np.array([runs[i].cost for i in alive])
    unit = max(float(np.abs(costs).max(initial=0.0)), risk.penalty, np.finfo(float).tiny)
    hessian, slope = np.zeros((size, size)), np.zeros(size)
    weights = risk.weights[alive] / risk.weights[alive].sum()
    for place, (i, model) in enumerate(known):
        assert model is not None
        part = model.hessian * np.outer(span, span) / unit
        hessian[:n, :n] += multipliers[i] * part
        own = np.zeros(size)
        own[:n] = model.gradient * span / unit
        own[slacks[place]] = risk.penalty / unit
        if of_risk:  # t + excess - L_i >= 0
            row = -own
            row[tail], row[tail + 1 + place] = 1.0, 1.0
            blocks.append(row[None])
            lower.append(np.array([costs[place] / unit]))
        else:
            slope += weights[place] * own
        over = _active(runs[i].rows, model.jacobian * span, rows, bounds, span)
        for sign, limit, chosen in ((1.0, rows.lower, over[0]), (-1.0, -rows.upper, over[1])):
            part = np.zeros((chosen.size, size))
            part[:, :n] = sign * model.jacobian[chosen] * span / rows.sizes[chosen, None]
            part[np.arange(chosen.size), slacks[place, rows.group[chosen]]] = 1.0
            blocks.append(part)
            lower.append((limit[chosen] - sign * runs[i].rows[chosen]) / rows.sizes[chosen] + MARGIN)
    if of_risk:
        slope[tail] = 1.0
        # Nothing exceeds the largest value: there the excesses are fixed at zero.
        slope[tail + 1 :] = weights / (1.0 - risk.level) if risk.level < 1.0 else 0.0
    diagonal = np.diag_indices(size)
    least = CURVATURE * max(float(hessian[diagonal].max(initial=0.0)), 1.0)
    hessian[diagonal] += np.where(np.arange(size) < n, least, SLACK_CURVATURE)
    low, high = np.zeros(size), np.full(size, np.inf)
    low[:n], high[:n] = bounds[0] / span, bounds[1] / span
    if of_risk:
        low[tail] = -np.inf
        high[tail + 1 :] = 0.0 if risk.level >= 1.0 else np.inf
    matrix, least_values = np.vstack([np.zeros((0, size)), *blocks]), np.concatenate([np.zeros(0), *lower])
    x, dual = _solved(hessian, slope, matrix, least_values, low, high)
    change = x[:n] * span
    losses = np.array([
        runs[i].cost + model.gradient @ change + 0.5 * change @ model.hessian @ change
        + risk.penalty * rows.violations(runs[i].rows + model.jacobian @ change).sum()
        for i, model in known if model is not None
    ])  # fmt: skip
    alive_only = Risk(level=risk.level, weights=weights, penalty=risk.penalty)
    decrease = alive_only.of(alive_only.losses([runs[i] for i in alive], rows)) - alive_only.of(losses)
    found = np.zeros(len(runs))
    found[alive] = weights
    if of_risk:
        first = np.cumsum([0, *(len(block) for block in blocks)])[:-1][::3]
        of_losses = np.abs(dual[first])
        found[alive] = of_losses / of_losses.sum() if of_losses.sum() > 0.0 else weights
    return LawStep(change=change, decrease=decrease, multipliers=found)


def _active(
    values: Array, jacobian: Array, rows: LoopRows, bounds: tuple[Array, Array], span: Array
) -> tuple[Array, Array]:
    """Return the rows that the step can bring to their lower and upper limit: the others cannot be violated."""
    reach = np.abs(jacobian) @ (np.maximum(np.abs(bounds[0]), np.abs(bounds[1])) / span) + MARGIN * rows.sizes
    return np.flatnonzero(values - rows.lower <= reach), np.flatnonzero(rows.upper - values <= reach)


def _solved(hessian: Array, slope: Array, matrix: Array, lower: Array, low: Array, high: Array) -> tuple[Array, Array]:
    """Return the solution of the quadratic program and the multipliers of its rows, with rows of size one."""
    size = np.abs(matrix).max(axis=1, initial=0.0)
    size = np.where(size > 0.0, size, 1.0)
    shapes = {"h": ca.Sparsity.dense(*hessian.shape), "a": ca.Sparsity.dense(*matrix.shape)}
    solver = ca.conic("step", SOLVER, shapes, {"error_on_fail": False})
    # A step of a program that failed is not lost: the simulations judge it.
    answer = solver(h=hessian, g=slope, a=matrix / size[:, None], lba=lower / size, uba=np.inf, lbx=low, ubx=high)
    x = np.clip(np.array(answer["x"]).ravel(), low, high)
    return np.where(np.isfinite(x), x, np.clip(0.0, low, high)), np.array(answer["lam_a"]).ravel() / size
