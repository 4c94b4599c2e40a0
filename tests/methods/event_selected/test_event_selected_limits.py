"""Event-selected systems at the edges: guards that are easy to leap over, scales, bits, steps that are too long."""

import math

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.errors import ModelError, OptionError
from nosnoc_py.methods.event_selected.options import EventSelected
from nosnoc_py.status import Status
from nosnoc_py.systems.event_selected import EventSelectedSystem, Guard
from nosnoc_py.tableaus import dopri5


def clock(guards, flow=None, states=2) -> EventSelectedSystem:
    """x_0 is the time, x_1' = 1 + sum of the bits, all others rest, unless a flow is given."""
    x = ca.SX.sym("x", states)
    mode = ca.SX.sym("mode", len(guards(x)))
    field = ca.vertcat(1, 1 + ca.sum1(mode), ca.DM.zeros(states - 2)) if flow is None else flow(x, mode)
    return EventSelectedSystem(x=x, mode=mode, flow=field, guards=guards(x))


def scalar(flow, *guards) -> EventSelectedSystem:
    x, mode = ca.SX.sym("x"), ca.SX.sym("mode", len(guards))
    return EventSelectedSystem(x=x, mode=mode, flow=flow(x, mode), guards=[make(x) for make in guards])


def simulated(system, x0, duration, **options) -> ns.Trajectory:
    return ns.simulate(system, x0=x0, duration=duration, method=EventSelected(**options))


def times(found) -> list[float]:
    return [event.time for event in found.events]


# --- steps of Euler's ----------------------------------------------------------------------------------------------


def test_a_line_to_a_guard_passes_no_other_one():
    """The far guard is in its band, the near one not yet, and is reached first."""
    system = clock(lambda x: [Guard("near", x[0] - 0.3), Guard("weak", 0.01 * (x[0] - 0.5))])
    found = simulated(system, [0, 0], 1, projection="euler", eps=0.1, step=0.01)
    np.testing.assert_allclose(times(found), [0.3, 0.5], atol=1e-12)
    assert found.final_state[1] == pytest.approx(1 + 0.7 + 0.5, abs=1e-12)


def test_a_long_line_passes_no_other_guard():
    system = clock(
        lambda x: [Guard("fast", x[1] - 0.3), Guard("slow", x[0] - 0.0999)],
        lambda x, mode: ca.vertcat(0.1, 5 + mode[0]),
    )
    found = simulated(system, [0, -4], 2, projection="euler", eps=0.1, step=0.01)
    np.testing.assert_allclose(times(found), [0.86, 0.999], atol=1e-12)
    assert found.final_state[1] == pytest.approx(0.3 + 6 * (2 - 0.86), abs=1e-11)


def test_a_runge_kutta_step_to_a_guard_is_not_much_longer_than_others():
    system = clock(lambda x: [Guard("slow", x[0] - 0.0999)], lambda x, mode: ca.vertcat(0.1, 5 + mode))
    found = simulated(system, [0, 0], 2, eps=0.1, step=0.01)
    np.testing.assert_allclose(times(found), [0.999], atol=1e-12)
    assert np.diff(found.t).max() <= 0.2


def test_a_line_ends_no_later_than_the_simulation():
    found = simulated(clock(lambda x: [Guard("late", x[0] - 1.0005)]), [0, 0], 1, projection="euler", step=0.01)
    assert not found.events
    assert found.final_state[1] == pytest.approx(1, abs=1e-13)


def test_what_a_line_leaves_below_zero_is_not_fallen():
    """The guard is convex on the way: the line ends below it, and the guard rises on."""
    system = scalar(lambda x, mode: 1 + 0 * mode, lambda x: Guard("g", 0.5 - ca.exp(-x)))
    found = simulated(system, [0], 1, projection="euler", eps=0.01, step=1e-4)
    assert found.success, found.message
    assert times(found) == pytest.approx([math.log(2)], abs=2e-4)


# --- scales --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("large", [1, 1e11, 1e12, 1e15])
def test_a_state_that_has_nothing_to_do_with_a_guard(large):
    """A cubic that turns up late within a step, beside a number of any size."""
    guard = lambda x: [Guard("late", (x[0] - 0.5) ** 3 + (x[0] - 0.5) / 1000 - 1e-3)]  # noqa: E731
    found = simulated(clock(guard, states=3), [0, 0, large], 1, step=0.25)
    roots = np.roots([1, 0, 1e-3, -1e-3])
    assert times(found) == pytest.approx([0.5 + roots[np.abs(roots.imag) < 1e-12][0].real], abs=1e-12)


def test_a_touch_beside_a_large_state():
    for shift in (0.0, 0.03, 0.06):
        top = 0.53 + shift
        system = clock(lambda x, top=top: [Guard.contact("bump", 1e-4 - (x[0] - top) ** 2)], states=3)
        found = simulated(system, [0, 0, 1e9], 1, step=0.1)
        assert times(found) == pytest.approx([top - 0.01, top + 0.01], abs=1e-11)


def test_guards_of_tiny_values():
    """In large units no crossing is silently left out; in smaller ones the crossing is found."""
    x, mode = ca.SX.sym("x", 2), ca.SX.sym("mode")
    flow, stop = ca.vertcat(x[1], -x[0] * (1 + 3 * mode)), x[0] - 0.5e-12
    large, small = (
        EventSelectedSystem(x=x, mode=mode, flow=flow, guards=[Guard.contact("stop", unit * stop)])
        for unit in (1.0, 1e9)
    )
    refused = simulated(large, [-1e-12, 0], 10, step=0.01)
    assert refused.status is Status.NOT_EVENT_SELECTED
    assert "liveness = 1e-08; where its values are tiny, write it in smaller units" in refused.message
    found = simulated(small, [-1e-12, 0], 10, step=0.01)
    assert found.success, found.message
    assert times(found)[0] == pytest.approx(math.pi - math.acos(0.5), abs=1e-10)
    weak = clock(lambda x: [Guard("c", 1e-13 * (x[0] - 0.5))])
    assert simulated(weak, [0, 0], 1, step=0.01).status is Status.NOT_EVENT_SELECTED


@pytest.mark.parametrize("speed", [1.0, 1e6, 1e12])
@pytest.mark.parametrize("projection", ["rk-newton", "euler"])
def test_the_unit_of_time(speed, projection):
    system = clock(
        lambda x: [Guard("g", x[0] - 0.5)], lambda x, mode: ca.vertcat(speed, speed * (1 + 2 * mode)) * (1 + 0 * x)
    )
    found = simulated(system, [0, 0], 1 / speed, step=0.01 / speed, projection=projection)
    assert times(found) == pytest.approx([0.5 / speed], rel=1e-12)
    assert found.final_state[1] == pytest.approx(2, abs=1e-11)


def test_the_unit_of_time_of_a_curved_flow():
    """x_1' = c (1 + x_1): the guard is reached by Newton's method, whose last correction has to be small in steps."""
    found = [
        simulated(
            clock(lambda x: [Guard("g", x[1] - 0.5)], lambda x, mode, c=c: c * ca.vertcat(1, 1 + x[1] + mode)),
            [0, 0],
            1 / c,
            step=0.01 / c,
        )
        for c in (1.0, 2.0**40)
    ]
    assert times(found[1])[0] * 2.0**40 == pytest.approx(math.log(1.5), abs=1e-12)
    assert found[0].final_state[1] == pytest.approx(found[1].final_state[1], abs=1e-13)


# --- bits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"eps": 0.02}, {"projection": "euler"}])
def test_a_function_above_zero_waits_for_its_next_rise(options):
    """Where the bit is cleared at 0.6, the function that sets it is 0.3 already."""
    found = simulated(clock(lambda x: [Guard("p", x[0] - 0.3, x[0] - 0.6)]), [0, 0], 1, step=0.01, **options)
    assert found.success, found.message
    assert times(found) == pytest.approx([0.3, 0.6], abs=1e-12)
    assert found.final_state[1] == pytest.approx(1.3, abs=1e-12)


def test_a_function_sleeps_on_where_another_guard_is_crossed():
    guards = lambda x: [Guard("p", x[0] - 0.3, x[0] - 0.6), Guard("q", x[0] - 0.8, x[0] - 2)]  # noqa: E731
    found = simulated(clock(guards), [0, 0], 1, step=0.01, max_events=20)
    assert [event.name for event in found.events] == ["p", "p", "q"]
    assert found.final_state[1] == pytest.approx(1.5, abs=1e-12)


@pytest.mark.parametrize("options", [{}, {"eps": 0.05}])
def test_a_function_that_falls_and_rises_again_is_awake(options):
    """Both functions are sines, shifted by 0.06 s, and positive for 0.2 s: one pulse in every period."""
    wave = lambda t: ca.sin(10 * t) - 0.5  # noqa: E731
    found = simulated(clock(lambda x: [Guard("p", wave(x[0]), wave(x[0] - 0.06))]), [0, 0], 1.5, step=0.01, **options)
    first, period = math.asin(0.5) / 10, 0.2 * math.pi
    starts = [first, first + period, first + 2 * period]
    expected = sorted([*starts, *(t + 0.06 for t in starts)])
    assert found.success, found.message
    assert times(found) == pytest.approx([t for t in expected if t < 1.5], abs=1e-10)


def test_a_restart_at_a_node_with_the_bits_of_the_run():
    guards = lambda x: [Guard("g", ca.sin(x[0]) * x[1] - 0.1)]  # noqa: E731
    for start in np.linspace(0, 0.2, 20):
        found = simulated(clock(guards), [0.1, start], 1, step=0.01)
        node = found.t.tolist().index(found.events[0].time)
        again = simulated(clock(guards), found.x[node], 0.1, initial_mode=(1,))
        assert again.success, again.message
        assert not again.events


def test_a_bit_that_does_not_fit_the_start():
    with pytest.raises(ModelError, match=r"its bit is 1 at the start, but its function is -0\.0001"):
        simulated(clock(lambda x: [Guard("g", x[0])]), [-1e-4, 0], 1, initial_mode=(1,))
    with pytest.raises(OptionError, match=r"^EventSelected: option 'initial_mode': expected bits, 0 or 1, given"):
        EventSelected(initial_mode=(2,))
    with pytest.raises(OptionError, match=r"^EventSelected: unknown scheme 'rk9'"):
        EventSelected(scheme="rk9")
    with pytest.raises(OptionError, match=r"^EventSelected: unknown scheme \['rk4'\]"):
        EventSelected(scheme=["rk4"])


# --- what ends a simulation ----------------------------------------------------------------------------------------


def test_a_guard_that_falls_again_by_little():
    system = scalar(lambda x, mode: 1 + 0 * mode, lambda x: Guard("s", 1e-6 * ca.sin(x - 0.5)))
    found = simulated(system, [0], 5, step=0.01)
    assert found.status is Status.NOT_EVENT_SELECTED
    assert "falls below zero again" in found.message
    assert found.t[-1] == pytest.approx(math.pi + 0.5, abs=0.011)


def test_a_guard_without_a_way_back_does_not_turn():
    found = simulated(scalar(lambda x, mode: 1 - 2 * mode, lambda x: Guard("s", x)), [-0.35], 1, step=0.1)
    assert found.status is Status.NOT_EVENT_SELECTED
    assert "D h f = 1 before and -1 after" in found.message
    assert "ns.PSS with ns.FESD or ns.EventDriven" in found.message


def test_a_wrong_sign_shows_in_the_bits_at_the_start():
    x, mode = ca.SX.sym("x", 2), ca.SX.sym("mode", 5)
    flow = ca.vertcat(x[1], -9.81 + mode[0] * 100 * (1 - x[0]))
    guards = [Guard("foot", x[0] - 1), *(Guard(f"g{k}", x[0] - 1.9 + k) for k in range(4))]
    system = EventSelectedSystem(x=x, mode=mode, flow=flow, guards=guards)
    assert simulated(system, [2, 0], 0.01).message == "set at the start: foot, g0, g1 and 2 more"
    found = simulated(system, [2, 0], 2)
    assert not found.success
    assert found.message.endswith("; set at the start: foot, g0, g1 and 2 more")
    assert not simulated(clock(lambda x: [Guard("g", x[0] - 0.5)]), [0, 0], 1).message


def test_the_callback_sees_the_last_node():
    seen = []
    system = clock(lambda x: [Guard("g", x[0] - 0.5)])
    found = ns.simulate(
        system, x0=[0, 0], duration=1, method=EventSelected(step=0.1), callback=lambda state: seen.append(state)
    )
    assert [state.t for state in seen] == found.t[1:].tolist()
    assert seen[-1].status is Status.SOLVED


def test_the_limit_of_crossings_is_named():
    x, mode = ca.SX.sym("x"), ca.SX.sym("mode")
    system = EventSelectedSystem(x=x, mode=mode, flow=1 - 2 * mode, guards=[Guard("r", x - 1e-3, -1e-3 - x)])
    found = simulated(system, [0], 1, step=0.01, max_events=20)
    assert found.status is Status.ZENO
    assert "raise max_events" in found.message


def test_more_crossings_than_segments():
    relays = [lambda x, k=k: Guard(f"r{k}", x - 1e-3, -1e-3 - x) for k in range(3)]
    found = simulated(scalar(lambda x, mode: 1 - 2 * mode[0], *relays), [0], 0.5, step=5e-3)
    assert found.success, found.message
    assert len(found.events) == 750
    assert times(found)[-1] == pytest.approx(0.499, abs=1e-11)


def test_the_earliest_of_two_edges():
    """Within one step, the flat guard passes its band first, the steep one crosses first."""
    system = clock(lambda x: [Guard("A", x[0] - 0.2), Guard("B", 1 - 2 * ca.exp(-5 * x[0]))])
    found = simulated(system, [0, 0], 1, step=0.5, eps=1e-3)
    assert [event.name for event in found.events] == ["B", "A"]
    assert times(found) == pytest.approx([math.log(2) / 5, 0.2], abs=1e-12)


def test_dense_output_of_the_last_step():
    """Of a scheme whose last stage is not the slope at the end: the simulation ends after the last crossing."""
    system = scalar(lambda x, mode: -x * (1 + mode), lambda x: Guard("g", 0.8 - x))
    found = simulated(system, [1], 1, step=0.05, scheme="explicit_rk4")
    crossing, t = -math.log(0.8), np.linspace(0.96, 1, 9)
    np.testing.assert_allclose(found(t)[:, 0], 0.8 * np.exp(-2 * (t - crossing)), atol=1e-6)


# --- steps that are too long ---------------------------------------------------------------------------------------


def test_the_embedded_scheme_is_of_fourth_order():
    tableau, weights = dopri5(), dopri5().b - dopri5().error
    ones, c, a = np.ones(7), tableau.c, tableau.a
    trees = {1: [ones], 2: [c], 3: [c**2, a @ c], 4: [c**3, c * (a @ c), a @ c**2, a @ a @ c], 5: [c**4]}
    gammas = {1: [1], 2: [2], 3: [3, 6], 4: [4, 8, 12, 24], 5: [5]}
    residuals = [
        [abs(weights @ tree - 1 / g) for tree, g in zip(trees[n], gammas[n], strict=True)] for n in range(1, 6)
    ]
    assert max(max(found) for found in residuals[:4]) < 1e-15
    assert residuals[4][0] > 1e-4


def hopper(stiffness: float) -> EventSelectedSystem:
    x, mode = ca.SX.sym("x", 2), ca.SX.sym("mode")
    flow = ca.vertcat(x[1], -9.81 + mode * stiffness * (1 - x[0]))
    return EventSelectedSystem(x=x, mode=mode, flow=flow, guards=[Guard.contact("foot", 1 - x[0])])


@pytest.mark.parametrize(("stiffness", "step"), [(1e6, 4e-3), (100, 5.0)])
def test_steps_that_are_too_long_for_a_spring(stiffness, step):
    found = simulated(hopper(stiffness), [2, 0], 2 if step < 1 else 50, step=step)
    assert found.status is Status.INACCURATE
    assert "try steps of" in found.message
    assert "shorter steps" in found.status.remedy
    again = found
    for _ in range(3):  # the first estimates are of a motion that is far off
        if not again.success:
            proposed = float(again.message.split("try steps of ")[1].split()[0])
            again = simulated(hopper(stiffness), [2, 0], 2, step=proposed)
    assert again.success, again.message
    z, v = again.final_state
    energy = 9.81 * z + v**2 / 2 + stiffness * max(1 - z, 0) ** 2 / 2
    assert energy == pytest.approx(2 * 9.81, rel=0.02)


def test_steps_that_are_too_long_for_a_stiff_equation():
    system = clock(lambda x: [Guard("g", x[0] - 2)], lambda x, mode: ca.vertcat(1, -4000 * (x[1] - ca.cos(x[0]))))
    found = simulated(system, [0, 0], 1)
    assert found.status is Status.INACCURATE
    good = simulated(system, [0, 0], 1, step=2e-4)
    assert good.success, good.message
    assert good.final_state[1] == pytest.approx(math.cos(1), abs=1e-3)


def test_the_local_error_is_told():
    """x' = x: the difference of both schemes is e of the coefficients, of fifth order in the step."""
    system = scalar(lambda x, mode: x * (1 + 0 * mode), lambda x: Guard("g", x - 100))
    errors = [simulated(system, [1], 1, step=step).series["local_error"] for step in (0.1, 0.05)]
    assert errors[0].t == pytest.approx(np.linspace(0.1, 1, 10))
    assert np.log2(errors[0].values.max() / errors[1].values.max()) == pytest.approx(5, abs=0.2)
    weights, a, ones, h = dopri5().error, dopri5().a, np.ones(7), 0.1
    slopes = np.linalg.solve(np.eye(7) - h * a, ones)
    assert errors[0].values[0] == pytest.approx(abs(h * weights @ slopes) / (1 + math.exp(h)), rel=1e-6)
    assert "local_error" not in simulated(system, [1], 1, scheme="explicit_rk4").series
    near = scalar(lambda x, mode: x * (1 + mode), lambda x: Guard("g", x - 2))
    lines = simulated(near, [1], 1, step=0.1, projection="euler")  # one of them, and nothing is said of it
    assert len(lines.series["local_error"]) == len(lines.t) - 2


def test_nominal_values_scale_the_local_error():
    x, mode = ca.SX.sym("x", 2), ca.SX.sym("mode")
    given = dict(x=x, mode=mode, flow=ca.vertcat(x[1], -x[0]), guards=[Guard("g", x[0] - 1)])
    small, large = EventSelectedSystem(**given, nominal={"x": [1e-6, 1e-6]}), EventSelectedSystem(**given)
    assert simulated(large, [1e-6, 0], 10, step=1.5).success
    assert simulated(small, [1e-6, 0], 10, step=1.5).status is Status.INACCURATE
    assert simulated(small, [1e-6, 0], 10, step=1.5, tolerance=0.5).success
