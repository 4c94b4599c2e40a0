"""Random nonlinear programs, some without a solution, and a judge of what a solver says of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import casadi as ca
import numpy as np

Array = np.ndarray
KINDS = ("convex", "nonconvex", "dependent", "ill-conditioned", "equalities", "fixed", "degenerate", "infeasible")
FEASIBLE, STATIONARY, COMPLEMENTARY = 1e-6, 1e-4, 1e-4


@dataclass(frozen=True, eq=False, kw_only=True)
class RandomNLP:
    """minimise f(x) subject to lbx <= x <= ubx, lbg <= g(x) <= ubg, in the form that solvers take.

    Parameters
    ----------
    seed : int
    kind : str
    x, f, g : SX
    lbx, ubx : (n,)
    lbg, ubg : (m,)
    start : (n,)
    """

    seed: int
    kind: str
    x: ca.SX
    f: ca.SX
    g: ca.SX
    lbx: Array
    ubx: Array
    lbg: Array
    ubg: Array
    start: Array
    p: ca.SX = field(default_factory=lambda: ca.SX(0, 1))

    @cached_property
    def derivatives(self) -> dict[str, ca.Function]:
        """In the form `nlpsol` takes them."""
        x, p, weight, y = self.x, self.p, ca.SX.sym("weight"), ca.SX.sym("y", self.g.numel())
        gradient = ca.densify(ca.gradient(self.f, x))
        hessian = ca.triu(ca.hessian(weight * self.f + ca.dot(y, self.g), x)[0])
        names = ["x", "p", "lam_f", "lam_g"]
        return {
            "grad_f": ca.Function("nlp_grad_f", [x, p], [self.f, gradient], ["x", "p"], ["f", "grad_f_x"]),
            "jac_g": ca.Function("nlp_jac_g", [x, p], [self.g, ca.jacobian(self.g, x)], ["x", "p"], ["g", "jac_g_x"]),
            "hess_lag": ca.Function("nlp_hess_l", [x, p, weight, y], [hessian], names, ["triu_hess_gamma_x_x"]),
        }

    @property
    def operations(self) -> float:
        """Operations of one evaluation of all derivatives, which count as work."""
        return float(sum(function.n_instructions() for function in self.derivatives.values()))

    @property
    def built(self) -> float:
        """Operations of the functions that were differentiated for this program alone."""
        return self.operations


def made(seed: int) -> RandomNLP:
    """The program of a seed; kinds take turns."""
    kind, rng = KINDS[seed % len(KINDS)], np.random.default_rng(seed)
    n = int(rng.integers(3, 31))
    x, inside = ca.SX.sym("x", n), rng.normal(size=n)
    factor = rng.normal(size=(n, n))
    curvature = factor @ factor.T / n
    if kind == "ill-conditioned":
        values = 10.0 ** rng.uniform(-4, 4, n)
        basis = np.linalg.qr(factor)[0]
        curvature = basis @ np.diag(values) @ basis.T
    f = 0.5 * ca.bilin(ca.DM(curvature), x, x) + ca.dot(ca.DM(rng.normal(size=n)), x)
    if kind in ("nonconvex", "dependent", "infeasible"):
        f += ca.sum1(ca.sin(rng.uniform(1, 3) * x)) + 0.1 * ca.sum1((x[1:] - x[:-1] ** 2) ** 2)
    equalities, inequalities = int(rng.integers(0, max(1, n // 2))), int(rng.integers(0, n))
    if kind == "equalities":
        equalities, inequalities = max(1, n - 1), 0
    rows = []
    for _ in range(equalities + inequalities):
        a = rng.normal(size=n) * (rng.random(n) < max(0.3, 2.0 / n))
        row = ca.dot(ca.DM(a), x)
        if kind not in ("convex", "ill-conditioned"):
            k, j = rng.integers(0, n, 2)
            row += rng.normal() * x[k] * x[j] + 0.3 * ca.sin(x[j])
        rows.append(row)
    g = ca.vertcat(ca.SX(0, 1), *rows)
    value = np.array(ca.Function("g", [x], [g])(inside)).reshape(-1)
    lbg, ubg = value.copy(), value.copy()
    size = 0.0 if kind == "degenerate" else 1.0
    width = size * rng.exponential(size=(2, inequalities))
    lbg[equalities:] = np.where(rng.random(inequalities) < 0.5, -np.inf, value[equalities:] - width[0])
    ubg[equalities:] = np.where(
        np.isinf(lbg[equalities:]) | (rng.random(inequalities) < 0.2), value[equalities:] + width[1], np.inf
    )
    if kind == "dependent" and g.numel():
        again = rng.integers(0, g.numel(), 1 + g.numel() // 3)
        scale = rng.choice([-1.0, 2.0], again.size)
        low, high = scale * lbg[again], scale * ubg[again]
        g = ca.vertcat(g, ca.DM(scale) * g[again.tolist()])
        lbg, ubg = np.append(lbg, np.minimum(low, high)), np.append(ubg, np.maximum(low, high))
    if kind == "infeasible":  # a ball that a plane does not meet
        g = ca.vertcat(g, ca.sumsqr(x), ca.sum1(x))
        far = float(rng.uniform(1.2, 4.0)) * np.sqrt(n)
        lbg, ubg = np.append(lbg, [-np.inf, far]), np.append(ubg, [1.0, np.inf])
    bounded = rng.random(n) < 0.5
    lbx = np.where(bounded, inside - rng.exponential(size=n), -np.inf)
    ubx = np.where(bounded & (rng.random(n) < 0.7), inside + rng.exponential(size=n), np.inf)
    if kind == "fixed":
        held = rng.random(n) < 0.3
        lbx[held] = ubx[held] = inside[held]
    start = inside + rng.normal(size=n)
    return RandomNLP(seed=seed, kind=kind, x=x, f=f, g=g, lbx=lbx, ubx=ubx, lbg=lbg, ubg=ubg, start=start)


def false_claim(program: RandomNLP, x: Array, lam_x: Array, lam_g: Array) -> str:
    """What is wrong with the claim that x, with these multipliers, solves a program; empty where nothing is."""
    if program.kind == "infeasible":
        return "has no feasible point"
    at = program.derivatives
    g, jacobian = (np.array(part) for part in at["jac_g"](x, np.zeros(0)))
    gradient = np.array(at["grad_f"](x, np.zeros(0))[1]).reshape(-1)
    values, lower = np.concatenate([x, g.reshape(-1)]), np.concatenate([program.lbx, program.lbg])
    upper, lam = np.concatenate([program.ubx, program.ubg]), np.concatenate([lam_x, lam_g])
    size = 1.0 + np.abs(values)
    broken = float((np.maximum(lower - values, values - upper) / size).max())
    if not broken <= FEASIBLE:
        return f"violates a constraint by {broken:.1e}"
    weight = 1.0 + np.abs(gradient).max() + np.abs(lam).max()
    slope = float(np.abs(gradient + lam_x + jacobian.reshape(g.size, x.size).T @ lam_g).max() / weight)
    if not slope <= STATIONARY:
        return f"has a slope of {slope:.1e}"
    distance = np.where(lam > 0.0, upper - values, values - lower)
    pairs = float((np.minimum(np.abs(distance), 1e3) * np.abs(lam) / (size * weight)).max())
    return "" if pairs <= COMPLEMENTARY else f"has multipliers off its bounds: {pairs:.1e}"
