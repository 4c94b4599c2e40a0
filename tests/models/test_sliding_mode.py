"""The optimum of the ride along the edge, against optimisation without its formulas."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

import nosnoc_py as ns
from models.sliding_mode import STANDARD, Constants, optimum

pytestmark = pytest.mark.quick


def cost_and_goal(u: np.ndarray, c: Constants) -> tuple[float, float]:
    """Cost and y(T) of piecewise constant controls, interval by interval: x is piecewise linear."""
    h, x, y, cost = c.horizon / u.size, c.start, 0.0, 0.0
    for v in u:
        ride = min(h, x / (1.0 - v)) if v < 1.0 else h
        cost += v**2 * h + c.weight * (x**2 * ride + x * (v - 1.0) * ride**2 + (v - 1.0) ** 2 * ride**3 / 3.0)
        y += 2.0 * ride + 0.5 * (3.0 + v) * (h - ride)
        x = x + (v - 1.0) * ride if ride == h else 0.0
    return cost, y


def best_of(stages: int, c: Constants) -> float:
    """Optimal cost of so many constant controls, by sequential quadratic programming."""
    found = minimize(
        lambda u: cost_and_goal(u, c)[0],
        np.full(stages, -0.4),
        constraints={"type": "eq", "fun": lambda u: cost_and_goal(u, c)[1] - c.goal},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 500},
    )
    assert found.success, found.message
    return float(found.fun)


@pytest.mark.parametrize("constants", [STANDARD, Constants(goal=3.3, weight=4.0), Constants(start=0.6, goal=2.8)])
def test_piecewise_constant_controls_come_down_to_it(constants: Constants) -> None:
    best = optimum(constants).cost
    excess = [best_of(stages, constants) - best for stages in (10, 20, 40)]
    assert min(excess) > 0.0
    assert excess[1] == pytest.approx(excess[0] / 4, rel=0.15)
    assert excess[2] == pytest.approx(excess[1] / 4, rel=0.15)


def test_the_motion_is_a_motion_of_the_system_with_that_cost() -> None:
    best = optimum()
    u = best.control(np.linspace(0.0, 2.0, 4001)[:-1] + 2.0 / 8000)
    cost, y = cost_and_goal(u, STANDARD)
    assert cost == pytest.approx(best.cost, abs=1e-7)
    assert y == pytest.approx(STANDARD.goal, abs=1e-6)
    assert best.state(2.0)[0] == pytest.approx([0.0, STANDARD.goal], abs=1e-12)
    before, after = best.control([best.arrival - 1e-9, best.arrival + 1e-9])
    assert before == pytest.approx(after, abs=1e-7)  # u is continuous where the slide begins


def test_numbers() -> None:
    best = optimum()
    assert best.cost == pytest.approx(0.545106971323, abs=1e-11)
    assert best.arrival == pytest.approx(0.679834588, abs=1e-9)


def test_goals_out_of_reach_and_wrong_constants() -> None:
    with pytest.raises(ns.ModelError, match="move the goal"):
        optimum(Constants(goal=5.0))
    with pytest.raises(ns.ModelError, match="positive"):
        Constants(start=0.0)
