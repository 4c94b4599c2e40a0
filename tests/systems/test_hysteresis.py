"""Switches with memory: exact events, derivatives, the best drive of a car with gears, and what does not know them."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns

HEATED, COOLED = np.log(32 / 28), np.log(22 / 18)


def room(start: str = "low", **more: Any) -> ns.PSS:
    T, power = ca.SX.sym("T"), ca.SX.sym("power")
    heater = ns.Hysteresis("heater", variable=T, lower=18, upper=22, flows=[power, 0], start=start)
    return ns.PSS(
        x=T, p=power, flow=-T, modes=[heater], p_default=[50.0], names={"x": ["temperature"], "p": ["power"]}, **more
    )


def car(lower: float = 2.0) -> ns.PSS:
    """Weak in the second gear, which goes in above 3 and out below 2 m/s."""
    s, v, a = (ca.SX.sym(name) for name in "sva")
    flows = [ca.vertcat(0, gain * a) for gain in (1.0, 0.4)]
    gear = ns.Hysteresis("gear", variable=v, lower=lower, upper=3.0, flows=flows)
    return ns.PSS(
        x=ca.vertcat(s, v), u=a, flow=ca.vertcat(v, 0), modes=gear, names={"x": ["way", "speed"], "u": ["push"]}
    )


@pytest.mark.quick
def test_times_of_a_thermostat() -> None:
    """T' = 50 - T up to 22 degrees, T' = -T down to 18: logarithms."""
    motion = ns.simulate(room(), x0=[18.0], duration=1.0)
    expected = np.cumsum([HEATED, *[COOLED, HEATED] * 3])
    expected = expected[expected < 1.0]
    assert [event.name for event in motion.events] == ["heater"] * len(expected)
    assert [event.kind for event in motion.events] == ["switch"] * len(expected)
    np.testing.assert_allclose([event.time for event in motion.events], expected, rtol=0, atol=1e-9)
    assert motion.series["alpha[heater]"].values[0] == 0
    assert motion.final_state[0] == pytest.approx(22 * np.exp(expected[-1] - 1.0), abs=1e-8)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("start", "x0", "first"),
    [
        ("low", 20.0, np.log(30 / 28)),
        ("high", 20.0, np.log(20 / 18)),
        ("low", 23.0, np.log(23 / 18)),  # beyond a threshold the state tells
        ("high", 17.0, np.log(33 / 28)),
        ("low", 22.0, COOLED),  # on the threshold: it has been passed
        ("high", 18.0, HEATED),
    ],
)
def test_where_it_begins(start: str, x0: float, first: float) -> None:
    motion = ns.simulate(room(start), x0=[x0], duration=0.25)
    assert motion.events[0].time == pytest.approx(first, abs=1e-9)


@pytest.mark.quick
def test_a_threshold_that_is_not_passed_changes_nothing() -> None:
    """x = 1 + t - t^2 / 2 touches 1.5 where it turns, and passes 1.4999 before."""
    x, v = ca.SX.sym("x"), ca.SX.sym("v")
    for upper, count in ((1.5001, 0), (1.4999, 1)):
        switch = ns.Hysteresis("switch", variable=x, lower=0.0, upper=upper, flows=[ca.SX(2, 1), ca.SX(2, 1)])
        system = ns.PSS(x=ca.vertcat(x, v), flow=ca.vertcat(v, -1), modes=[switch])
        motion = ns.simulate(system, x0=[1.0, 1.0], duration=2.0)
        assert len(motion.events) == count, upper
        if count:
            assert motion.events[0].time == pytest.approx(1 - np.sqrt(2e-4), abs=1e-8)


@pytest.mark.quick
def test_derivatives_by_states_and_parameters() -> None:
    motion = ns.simulate(room(), x0=[20.0], duration=0.9, sensitivities=True)
    assert motion.sensitivity is not None
    assert motion.sensitivity.flags == ()

    def end(x0: float, power: float) -> float:
        return float(ns.simulate(room(), x0=[x0], duration=0.9, p=[power]).final_state[0])

    step = 1e-4
    assert motion.sensitivity.x0[0, 0] == pytest.approx(
        (end(20 + step, 50) - end(20 - step, 50)) / (2 * step), abs=1e-5
    )
    assert motion.sensitivity.p[0, 0] == pytest.approx((end(20, 50 + step) - end(20, 50 - step)) / (2 * step), abs=1e-5)


@pytest.mark.quick
def test_thresholds_of_parameters_and_beside_other_switches() -> None:
    """Coulomb friction at a belt that turns over where the block is far away on either side."""
    x, v, far = (ca.SX.sym(name) for name in ("x", "v", "far"))
    belt = ns.Hysteresis("belt", variable=x, lower=-far, upper=far, flows=[ca.vertcat(0, 1.0), ca.vertcat(0, -1.0)])
    rub = ns.Modes("rub", functions=v, signs=[1, -1], flows=[ca.vertcat(0, -0.25), ca.vertcat(0, 0.25)])
    system = ns.PSS(x=ca.vertcat(x, v), p=far, flow=ca.vertcat(v, 0), modes=[rub, belt], p_default=[1.0])
    for value in (1.0, 2.0):
        motion = ns.simulate(system, x0=[0.0, 0.0], duration=6.0, p=[value])
        reached = np.sqrt(2 * value / 0.75)
        turned = reached + 0.75 * reached / 1.25
        kinds = [(event.name, event.kind) for event in motion.events[:2]]
        assert kinds == [("belt", "switch"), ("rub", "switch")]
        np.testing.assert_allclose([event.time for event in motion.events[:2]], [reached, turned], atol=1e-8)


def fastest(system: ns.PSS) -> ns.OCP:
    horizon = ns.FreeTime(2.0, 20.0, 8.0)
    return ns.OCP(
        system, horizon=horizon, x0=[0, 0], terminal_cost=horizon.symbol, bounds={"push": (-2, 2), "speed": (-5, 8)},
        terminal_state={"way": 20, "speed": 0},
    )  # fmt: skip


def test_the_fastest_drive_of_a_car_with_gears() -> None:
    """First gear up to 3 m/s, second to the peak and down to 2, first again: 7.40235 s, on intervals a little more."""
    peak = np.sqrt(19.9)
    best = 1.5 + (peak - 3.0) / 0.8 + (peak - 2.0) / 0.8 + 1.0
    ocp = fastest(car())
    solution = ns.solve(ocp, effort="quick")
    assert solution.certificate is not None
    assert solution.certificate.confirmed
    assert best - 1e-6 <= solution.objective <= 1.001 * best
    assert [event.name for event in solution.events] == ["gear", "gear"]
    assert solution.events[0].time == pytest.approx(1.5, abs=1e-3)
    # By its sequence alone, and read from its own motion.
    phases = [{"gear": "low"}, {"gear": "high"}, {"gear": "low"}]
    again = ns.solve(ocp, ns.MultiPhase(sequence=phases), guess=[1.0])
    assert again.certificate is not None
    assert again.certificate.confirmed
    assert again.objective == pytest.approx(solution.objective, rel=1e-3)
    assert again.sequence is not None
    assert list(again.sequence.phases) == phases
    # Forgetting the gear is found out: without a change back, the end is elsewhere.
    assert ns.certify(fastest(car(lower=-10.0)), again).verdict is ns.Verdict.REFUTED


@pytest.mark.quick
def test_thresholds_have_to_be_in_order_whatever_gives_them() -> None:
    x, ends = ca.SX.sym("x"), ca.SX.sym("ends", 2)
    switch = ns.Hysteresis("switch", variable=x, lower=ends[0], upper=ends[1], flows=[1.0, -1.0])
    system = ns.PSS(x=x, p=ends, modes=[switch], p_default=[0.0, 1.0], names={"p": ["low", "high"]})
    with pytest.raises(ns.ModelError, match="expected lower < upper, given 1 and 0"):
        ns.simulate(system, x0=[0.5], duration=1.0, p=[1.0, 0.0])
    with pytest.raises(ns.ModelError, match="'high' may become -1"):
        ns.OCP(system, horizon=1.0, x0=[0.5], free_parameters={"high": (-1, 2)})
    with pytest.raises(ns.ModelError, match="thresholds depends on x"):
        ns.PSS(x=x, modes=[ns.Hysteresis("switch", variable=x, lower=x - 1, upper=x + 1, flows=[1.0, -1.0])])


@pytest.mark.quick
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lower": 22.0}, "expected lower < upper, given 22 and 22"),
        ({"flows": [1.0]}, "expected two, of the modes 'low' and 'high'"),
        ({"start": "on"}, "unknown mode 'on'"),
        ({"name": ""}, "non-empty string"),
        ({"variable": ca.SX.sym("x", 2)}, "expected a scalar"),
    ],
)
def test_mistakes(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ns.ModelError, match=said):
        ns.Hysteresis(**{"name": "h", "variable": ca.SX.sym("x"), "lower": 18, "upper": 22, "flows": [1, 0], **change})


@pytest.mark.quick
def test_finite_elements_refuse() -> None:
    for method in (ns.FESD(), ns.DirectShooting(form="smoothed")):
        with pytest.raises(ns.OptionError, match=r"ns\.MultiPhase"):
            ns.solve(ns.OCP(car(), horizon=1.0, x0=[0, 0]), method)
    with pytest.raises(ns.OptionError, match="EventDriven"):
        ns.simulate(room(), x0=[20.0], duration=1.0, method=ns.FESD())
