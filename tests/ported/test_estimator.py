"""The state at the start and the friction of a block, from 30 noisy positions under a known push."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
from scipy.optimize import least_squares

import nosnoc_py as ns

TIMES, NOISE, TRUTH = np.linspace(0.1, 3.0, 30), 0.01, np.array([0.8, 0.5])


def block() -> ns.PSS:
    x, mu, t = ca.SX.sym("x", 2), ca.SX.sym("mu"), ca.SX.sym("t")
    known = np.linspace(0.0, 3.0, 13)
    push = ns.Data(known, 2.0 * np.sin(2.2 * known), interpolation="cubic")
    rub = ns.Modes("rub", functions=x[1], signs=[1, -1], flows=[ca.vertcat(0, -mu), ca.vertcat(0, mu)])
    return ns.PSS(
        x=x, p=mu, t=t, flow=ca.vertcat(x[1], push(t)), modes=rub, p_default=[0.2],
        names={"x": ["place", "speed"], "p": ["mu"]},
    )  # fmt: skip


def test_the_estimate_is_that_of_least_squares_round_a_simulator() -> None:
    system = block()

    def seen(values: Any) -> np.ndarray:
        return np.asarray(ns.simulate(system, x0=[0.0, values[1]], duration=3.0, p=values[:1])(TIMES)[:, 0])

    measured = seen(TRUTH) + NOISE * np.random.default_rng(1).standard_normal(TIMES.size)
    ocp = ns.OCP(
        system, horizon=3.0, bounds={"speed": (-2, 2)}, initial_constraints=[system.x[0] == 0],
        point_costs=[ns.PointCost(TIMES, system.x[0], measured, weights=1 / NOISE**2)], free_parameters={"mu": (0, 3)},
    )  # fmt: skip
    best = ns.solve(ocp, callback=lambda state: ns.Stop if state.confirmed and len(state.candidates) > 2 else None)
    reference = least_squares(lambda y: (seen(y) - measured) / NOISE, [0.7, 0.4], diff_step=1e-5)
    deviations = np.sqrt(np.diag(np.linalg.inv(reference.jac.T @ reference.jac)))
    found = np.array([best.p[0], best.x0[1]])
    np.testing.assert_allclose(found, reference.x, rtol=0, atol=0.01 * deviations.min())
    assert (np.abs(found - TRUTH) < 3 * deviations).all()
    assert abs(best.x0[2]) < 1e-12  # when it begins is known
