"""Integration orders on the two balls (FESD-J, Fig. 6), on grids that stay in the clean range."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from models import two_balls_spring
from problems.benchmarks.orders import Convergence
from problems.benchmarks.two_balls_order import CEILING, converge, fine, implicit_euler
from tests.pairwise import slow_row

COARSE, MIDDLE, FINE = (100, 141, 200), (200, 283, 400), (400, 566, 800)


@pytest.mark.parametrize(
    ("scheme", "rk_stages", "steps"),
    [
        slow_row("radau_iia", 2, MIDDLE),
        slow_row("radau_iia", 3, COARSE),
        ("radau_iia", 4, COARSE),
        slow_row("gauss_legendre", 1, FINE),
        slow_row("gauss_legendre", 2, COARSE),
        slow_row("gauss_legendre", 3, COARSE),
        ("gauss_legendre", 4, COARSE),
    ],
)
def test_nominal_order_in_spite_of_impacts(scheme: str, rk_stages: int, steps: tuple[int, ...]) -> None:
    curve = converge(scheme, rk_stages, steps)
    assert curve.failures == 0
    assert curve.good.all(), curve.errors
    assert curve.order == pytest.approx(curve.nominal, abs=0.4)


@pytest.mark.slow
def test_radau_with_one_stage_on_a_soft_spring() -> None:
    curve = converge("radau_iia", 1, (283, 400, 566), stiffness=100.0)
    assert curve.good.all(), curve.errors
    assert curve.order == pytest.approx(1, abs=0.2)


@pytest.mark.quick
def test_radau_with_one_stage_has_its_order_with_very_short_steps() -> None:
    curve = fine(steps=(51200, 102400, 204800))
    assert curve.good.all(), curve.errors
    assert curve.order == pytest.approx(1, abs=0.05)
    # By the method itself; here it has no order, and more impacts than there are.
    errors = (4.330967006196077, 5.328628489979516)
    assert fine(steps=(800, 1600)).errors == pytest.approx(errors, rel=1e-9)
    assert fine(steps=(800, 1600, 3200)).order is None


def test_powers_of_a_step_are_the_method() -> None:
    constants = two_balls_spring.Constants(stiffness=100.0)
    (error,) = converge("radau_iia", 1, (300,), stiffness=100.0).errors
    assert fine(100.0, (300,)).errors == pytest.approx((error,), rel=1e-8)
    assert implicit_euler(300, constants)[0] > 0.2


@pytest.mark.slow
def test_fixed_steps_do_not_converge() -> None:
    curve = converge("radau_iia", 2, (100, 200, 400), switch_detection=False)
    assert np.nanmin(curve.errors) > CEILING
    assert curve.order is None


def test_fit_uses_the_clean_range_only() -> None:
    steps = (10, 20, 40, 80, 160)
    errors = (0.9, 1e-3, 1e-3 / 8, 1e-3 / 64, 1e-15)
    options: dict[str, Any] = dict(label="", nominal=3, steps=steps, clean=(1e-11, 1e-1))
    assert Convergence(**options, errors=errors).order == pytest.approx(3.0, abs=1e-12)
    failed = Convergence(**options, errors=(np.nan, np.nan, *errors[2:]))
    assert failed.failures == 2
    assert failed.order is None
