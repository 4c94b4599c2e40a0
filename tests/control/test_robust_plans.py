"""Robust plans hold in draws in which the tracked nominal plan misses, for every measure and order of contacts."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import nosnoc_py as ns
from tests.control.test_robust import STAGES, cart


@cache
def robust(measure: str) -> ns.Solution:
    uncertain = ns.Uncertain(parameters={"restitution": (0.3, 0.7)})
    more = {"quantile": 0.8} if measure == "quantile" else {}
    ocp = cart(1.0)
    return ns.solve(ocp, STAGES, uncertain=uncertain, measure=measure, effort="quick", **more)


@pytest.mark.parametrize("measure", ["expected", "worst", "quantile"])
def test_a_robust_plan_holds_where_the_tracked_one_misses(measure: str):
    plan = robust(measure)
    assert plan.status is ns.Status.SOLVED
    assert plan.certificate.confirmed
    assert all(each.violation == 0.0 for each in plan.scenarios)
    nominal = ns.track(plan.nominal).success(40, uncertain=plan.law.uncertain, predict=False)
    found = plan.law.success(40, predict=False)
    assert nominal.probability < 0.7
    assert 1.0 - found.probability <= 0.5 * (1.0 - nominal.probability)


def test_the_measure_orders_the_plans():
    worst = {
        measure: max(each.objective for each in robust(measure).scenarios[:3]) for measure in ("expected", "worst")
    }
    mean = {measure: np.mean([each.objective for each in robust(measure).scenarios[:3]]) for measure in worst}
    assert mean["expected"] <= mean["worst"] * 1.02
    assert worst["worst"] <= worst["expected"] * 1.02


def test_scenarios_may_have_different_orders_of_contacts():
    # In the middle the cart hits the wall; where that is far away it does not.
    ocp = cart(5.0, goal=(0.7, 1.1))
    uncertain = ns.Uncertain(parameters={"wall": (0.9, 1.5)})
    plan = ns.solve(ocp, STAGES, uncertain=uncertain, effort="quick")
    counts = {len(each.motion.impacts) for each in plan.scenarios}
    assert plan.success
    assert all(each.violation == 0.0 for each in plan.scenarios)
    assert plan.law.success(40, predict=False).probability > 0.9
    assert counts == {0, 1}


def test_the_same_seed_gives_the_same_plan_and_draws():
    uncertain = ns.Uncertain(parameters={"restitution": (0.3, 0.7)})
    again = ns.solve(cart(1.0), STAGES, uncertain=uncertain, measure="expected", effort="quick")
    assert np.array_equal(again.law.corrections, robust("expected").law.corrections)


def test_a_plan_is_stored_with_its_scenarios(tmp_path):
    plan = robust("expected")
    loaded = ns.load(plan.save(tmp_path / "plan.nc"))
    assert loaded.law is None
    assert loaded.risk == plan.risk
    assert [each.objective for each in loaded.scenarios] == [each.objective for each in plan.scenarios]
    assert np.array_equal(loaded.scenarios[1].motion.x, plan.scenarios[1].motion.x)
    assert "3 scenarios" in plan.summary()


def test_a_callback_ends_the_search_with_the_best_plan():
    seen = []

    def ended(state: object) -> type[ns.Stop] | None:
        if hasattr(state, "risk"):  # a plan, not a step of the nominal solve
            seen.append(state)
        return ns.Stop if len(seen) == 2 else None

    uncertain = ns.Uncertain(parameters={"restitution": (0.3, 0.7)})
    plan = ns.solve(cart(1.0), STAGES, uncertain=uncertain, effort="quick", callback=ended)
    assert plan.status is ns.Status.STOPPED
    assert plan.iterations == 2
    assert plan.law is not None
