"""Steps of DOP853 in one call: the same steps as SciPy's, and the same motions as without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import DOP853

import nosnoc_py as ns
from models import bouncing_ball, bowl, falling_rod, relay_feedback, stick_slip
from nosnoc_py.simulation.event_driven import compiled_motion as contact_written
from nosnoc_py.simulation.event_driven.filippov import compiled_motion as filippov_written
from nosnoc_py.simulation.event_driven.whole_step import CompiledDOP853, CompiledSteps, StepPolynomial
from tests.references.restarts import CASES

Array = np.ndarray
START = np.array([1.2, 0.3])


def pendulum() -> CompiledSteps:
    """x'' = -d sin(x) - 0.1 x', with a guard, a force and a rate to sample."""
    x, d = ca.SX.sym("x", 2), ca.SX.sym("d")
    return CompiledSteps(
        x, d, ca.vertcat(x[1], -d * ca.sin(x[0]) - 0.1 * x[1]), x[0] + 1, ca.vertcat(x[1] ** 2, x[0]), x[1]
    )


def pendulum_rate(t: float, x: Array) -> Array:
    return np.array([x[1], -9.81 * np.sin(x[0]) - 0.1 * x[1]])


@pytest.mark.quick
@pytest.mark.parametrize("tolerance", [1e-3, 1e-8, 1e-12])
def test_steps_are_those_of_scipy(tolerance: float) -> None:
    """From where SciPy's steps begin, and so long; lengths follow errors, which rounding changes."""
    options = {"rtol": tolerance, "atol": tolerance}
    known, steps, count = DOP853(pendulum_rate, 0.0, START, 3.0, **options), pendulum(), 0
    while known.status == "running":
        known.step()
        count += 1
        end, stages, polynomial = steps.step(known.y_old, known.K[0], known.h_previous, np.array([9.81]))
        np.testing.assert_allclose(end, known.y, rtol=0, atol=1e-12)
        np.testing.assert_allclose(stages, known.K, rtol=0, atol=1e-11)
        dense = StepPolynomial(known.t_old, known.t, known.y_old, polynomial)
        shares = known.t_old + (known.t - known.t_old) * np.linspace(0.0, 1.0, 5)
        np.testing.assert_allclose(dense(shares), known.dense_output()(shares), rtol=0, atol=1e-12)
        np.testing.assert_allclose(dense(shares[2]), known.dense_output()(shares[2]), rtol=0, atol=1e-12)
    whole = CompiledDOP853(steps, lambda: np.array([9.81]), pendulum_rate, 0.0, START, 3.0, **options)
    while whole.status == "running":
        whole.step()
        count -= 1
    assert whole.t == known.t
    np.testing.assert_allclose(whole.y, known.y, rtol=0, atol=max(1e-3 * tolerance, 1e-11))
    assert abs(count) <= 1


@pytest.mark.quick
def test_other_data_make_another_step() -> None:
    steps, rate = pendulum(), pendulum_rate(0.0, START)
    here, other = (steps.step(START, rate, 0.1, np.array([g]))[0] for g in (9.81, 9.80))
    assert np.abs(here - other).max() > 1e-5


@pytest.mark.quick
def test_samples_in_one_call_are_those_one_by_one() -> None:
    steps, states = pendulum(), START + np.linspace(0.0, 1.0, 16).reshape(8, 2)
    together, single = steps.samples(states, np.array([9.81])), steps.samples(states[:3], np.array([9.81]))
    for many, few in zip(together, single, strict=True):
        np.testing.assert_array_equal(many[:3], few)
    np.testing.assert_allclose(together[1], np.column_stack([states[:, 1] ** 2, states[:, 0]]), rtol=1e-15)


def test_a_step_that_is_not_finite_fails() -> None:
    x = ca.SX.sym("x")
    steps = CompiledSteps(x, ca.SX(0, 1), ca.sqrt(1 - x), x, x, x)
    solver = CompiledDOP853(
        steps, lambda: np.zeros(0), lambda t, x: steps.rate(x, np.zeros(0)), 0.0, np.zeros(1), 9.0, first_step=5.0
    )
    while solver.status == "running":
        solver.step()
        assert solver.y[0] <= 1.0 + 1e-9
    # q' = sqrt(1 - q) comes to rest at 1 after two seconds: what lies behind has no rate
    assert solver.status == "failed" or solver.y[0] == pytest.approx(1.0, abs=1e-6)


MOTIONS: dict[str, tuple[Callable[[], Any], Any, float]] = {
    "sliding relay": (relay_feedback.build, relay_feedback.limit_cycle().start, 20.0),
    "stick-slip": (stick_slip.build, [0.0, stick_slip.STANDARD.belt], 5.0),
    "rod with friction": (falling_rod.build, falling_rod.tilted(0.5, 0.5), 0.8),
    "bowl with friction": (lambda: bowl.build(bowl.Constants(friction=0.3)), bowl.slide(1.0, 0.0, 2.0)(0.0)[0], 2.0),
    "bouncing ball": (bouncing_ball.build, [1.0, 0.0], 2.0),
    **{name: (case.build, case.x0, case.duration) for name, case in CASES.items() if case.u is None},
}


@pytest.mark.parametrize("name", MOTIONS)
def test_motions_are_those_by_scipy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build, x0, duration = MOTIONS[name]
    whole = ns.simulate(build(), x0=x0, duration=duration)
    monkeypatch.setattr(contact_written, "compiled_steps_of", lambda mechanics, regime: None)
    monkeypatch.setattr(
        "nosnoc_py.simulation.event_driven.contact_flow.compiled_steps_of", lambda mechanics, regime: None
    )
    monkeypatch.setattr("nosnoc_py.simulation.event_driven.filippov.regime.compiled_steps_of", lambda regime: None)
    monkeypatch.setattr(filippov_written, "compiled_steps_of", lambda regime: None)
    known = ns.simulate(build(), x0=x0, duration=duration)
    assert whole.status is known.status is ns.Status.SOLVED
    assert [(event.kind, event.name) for event in whole.events] == [(event.kind, event.name) for event in known.events]
    times = [[event.time for event in motion.events] for motion in (whole, known)]
    np.testing.assert_allclose(*times, rtol=0, atol=1e-10)
    np.testing.assert_allclose(whole.final_state, known.final_state, rtol=0, atol=2e-10)
    for series in known.series:
        middle = 0.37 * duration
        if not any(abs(event.time - middle) < 1e-3 for event in known.events):
            here, there = (
                np.interp(middle, motion.series[series].t, motion.series[series].values) for motion in (whole, known)
            )
            assert here == pytest.approx(there, abs=1e-2 * (1.0 + abs(there)))
