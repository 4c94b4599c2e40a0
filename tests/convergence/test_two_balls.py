"""Two balls and a spring (FESD-J, Section 5.1): orders by regression, and fixed steps that have none."""

from __future__ import annotations

import numpy as np
import pytest

import nosnoc_py as ns
from models import two_balls_spring as two_balls
from tests.pairwise import slow_row
from tests.references.two_balls_spring import exact as exact_balls

START = (1.0, 2.0, 0.0, 0.0)


def run(steps: int, stiffness: float = 1e4, duration: float = 1.0, **method: object) -> ns.Trajectory:
    system = two_balls.build(stiffness=stiffness)
    return ns.simulate(
        system, x0=START, duration=duration, steps=steps, method=ns.FESDJ(**{"error_tolerance": None, **method})
    )


def error(steps: int, stiffness: float = 1e4, **method: object) -> float:
    exact = exact_balls(1.0, constants=two_balls.Constants(stiffness=stiffness))
    trajectory = run(steps, stiffness, **method)
    assert trajectory.success
    assert [i.name for i in trajectory.impacts] == ["ground"] * len(exact.impacts)
    return float(np.abs(trajectory.final_state - exact([1.0])[0]).max())


@pytest.mark.parametrize(
    ("scheme", "stages", "steps", "order"),
    [
        ("radau_iia", 2, (200, 283, 400), 3),
        slow_row("radau_iia", 3, (100, 140, 200, 280, 400), 5),
        ("gauss_legendre", 1, (400, 566), 2),
        slow_row("gauss_legendre", 2, (100, 141, 200), 4),
        ("gauss_legendre", 3, (60, 85, 120, 170), 6),
    ],
)
def test_order_through_two_impacts(scheme: str, stages: int, steps: tuple[int, ...], order: int) -> None:
    errors = [error(n, scheme=scheme, rk_stages=stages) for n in steps]
    slope = -np.polyfit(np.log(steps), np.log(errors), 1)[0]
    assert slope == pytest.approx(order, abs=0.4)


def test_order_of_the_implicit_euler_method_on_a_softer_spring() -> None:
    steps = (100, 200, 400)
    errors = [error(n, 100.0, rk_stages=1) for n in steps]
    assert -np.polyfit(np.log(steps), np.log(errors), 1)[0] == pytest.approx(1.0, abs=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [100, 200])
def test_fixed_steps_do_not_converge(steps: int) -> None:
    assert error(steps, rk_stages=3) < 1e-3
    trajectory = run(steps, rk_stages=3, switch_detection=False)
    final = trajectory.t[-1]
    assert final > 0.41  # beyond the first impact; errors of 9.5 and 1.9 were measured at the end
    assert np.abs(trajectory.final_state - exact_balls(1.0)([min(final, 1.0)])[0]).max() > 1.0
    assert trajectory.impacts == ()


def test_impacts_of_the_polished_run() -> None:
    exact, trajectory = exact_balls(1.0), run(400, rk_stages=4)
    for found, true in zip(trajectory.impacts, exact.impacts, strict=True):
        assert found.time == pytest.approx(true.time, abs=1e-10)
        assert found.impulse == pytest.approx(true.impulse, abs=1e-6)
        assert found.v_after == pytest.approx(-0.8 * found.v_before, abs=1e-12)
    # The first impact ends a flight of polynomials, which the method has exactly.
    assert trajectory.impacts[0].time == pytest.approx(0.403855021876922, abs=1e-13)
    assert trajectory.impacts[0].impulse == pytest.approx(7.1312719763, abs=1e-9)


@pytest.mark.parametrize("stages", [2, 3])
def test_gauss_legendre_keeps_the_gap_at_the_last_node_nonnegative(stages: int) -> None:
    # Its stages are inside the elements: only the extra rows at the last node see the end of the step.
    exact = exact_balls(1.0)
    for lead in (1e-3, 1e-4, 1e-5):  # the step ends shortly after the impact
        duration = exact.impacts[0].time + lead
        method = {"scheme": "gauss_legendre", "rk_stages": stages}
        trajectory = run(20, duration=duration, **method)
        assert trajectory.success
        assert trajectory.final_state[0] - 0.2 >= -1e-12
        assert len(trajectory.impacts) == 1
