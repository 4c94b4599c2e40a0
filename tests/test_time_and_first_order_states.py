"""Systems with time and first-order states beside mechanics, and contacts that move by themselves."""

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import brentq

import nosnoc_py as ns

G = 9.81
EXACT = ns.EventDriven(rtol=1e-12, atol=1e-12)


def shaken(restitution=0.8, amplitude=0.1, frequency=3.0):
    """A ball over a floor that is shaken."""
    q, v, t = ca.SX.sym("height"), ca.SX.sym("speed"), ca.SX.sym("time")
    floor = ns.Contact("floor", gap=q - amplitude * ca.sin(frequency * t), restitution=restitution)
    return ns.CLS(q=q, v=v, t=t, mass_matrix=1, force=-G, contacts=[floor])


def bounced(x=1.0, w=0.0, end=2.0, e=0.8):
    """Height and speed at the end, and times of impacts: parabolas, roots, and the law relative to the floor."""
    t, hits = 0.0, []
    while True:

        def gap(s, x=x, w=w, t=t):
            return x + w * (s - t) - 0.5 * G * (s - t) ** 2 - 0.1 * np.sin(3 * s)

        ahead = np.linspace(t + 1e-6, end, 4001)
        below = np.flatnonzero(gap(ahead) < 0.0)
        if not below.size:
            h = end - t
            return np.array([x + w * h - 0.5 * G * h**2, w - G * h]), hits
        hit = brentq(gap, ahead[max(below[0] - 1, 0)], ahead[below[0]], xtol=1e-14)
        h = hit - t
        x, w, t, floor = x + w * h - 0.5 * G * h**2, w - G * h, hit, 0.3 * np.cos(3 * hit)
        w = floor - e * (w - floor)
        hits.append(hit)


@pytest.mark.quick
def test_impacts_on_a_shaken_floor_are_exact():
    """Three impacts, their times to 1e-9, and derivatives through them."""
    motion = ns.simulate(shaken(), x0=[1, 0], duration=2.0, method=EXACT, sensitivities=True)
    end, hits = bounced()
    assert motion.success
    np.testing.assert_allclose([event.time for event in motion.events], hits, rtol=0, atol=1e-9)
    np.testing.assert_allclose(motion.final_state, [*end, 2.0], rtol=0, atol=1e-9)
    d = 1e-6
    slopes = [(bounced(x=1 + d)[0] - bounced(x=1 - d)[0]) / (2 * d), (bounced(w=d)[0] - bounced(w=-d)[0]) / (2 * d)]
    np.testing.assert_allclose(motion.sensitivity.x0[:2, :2], np.transpose(slopes), rtol=0, atol=1e-6)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("method", "more", "tolerance"),
    [(ns.FESDJ(rk_stages=3), {"steps": 20}, 1e-6), (ns.TimeStepping(step=1e-3), {}, 2e-2)],
)
def test_other_simulators_agree_on_the_shaken_floor(method, more, tolerance):
    """Finite elements to their order, time-stepping to the first."""
    motion = ns.simulate(shaken(), x0=[1, 0], duration=2.0, method=method, **more)
    assert motion.success
    np.testing.assert_allclose(motion.final_state[:2], bounced()[0], rtol=0, atol=tolerance)


@pytest.mark.quick
def test_a_ball_leaves_a_floor_that_falls_faster():
    """From rest it leaves where the floor's acceleration is -g, .1 12^2 sin(12 t) = g, and comes back inelastic."""
    motion = ns.simulate(shaken(0.0, frequency=12.0), x0=[0, 1.2], duration=0.5, method=EXACT)
    assert [event.kind for event in motion.events] == ["release", "impact", "contact"]
    assert motion.events[0].time == pytest.approx(np.arcsin(G / 14.4) / 12, abs=1e-9)


@pytest.mark.quick
@pytest.mark.parametrize("method", [None, ns.FESDJ(rk_stages=2), ns.TimeStepping(step=1e-3)])
def test_a_belt_carries_a_block(method):
    """Slip at mu g until the block is as fast as the belt."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    belt = ns.Contact("belt", gap=q[1], tangent=[1, 0], friction=0.2, surface_velocity=1.0)
    system = ns.CLS(q=q, v=v, mass_matrix=ca.SX.eye(2), force=ca.vertcat(0, -G), contacts=[belt])
    more = {"steps": 10} if isinstance(method, ns.FESDJ) else {}
    motion = ns.simulate(system, x0=[0] * 4, duration=1.0, method=method, **more)
    stick = next(event.time for event in motion.events if event.kind == "stick")
    coarse = 1e-3 if isinstance(method, ns.TimeStepping) else 1e-8
    assert stick == pytest.approx(1 / (0.2 * G), abs=coarse)
    np.testing.assert_allclose(motion.final_state, [1 - 0.5 / (0.2 * G), 0, 1, 0], rtol=0, atol=coarse)


@pytest.mark.quick
def test_a_wall_that_comes_does_work():
    """Elastic and heavy: the ball leaves with twice the wall's speed, and nothing calls the energy a mistake."""
    q, v, t = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("t")
    wall = ns.Contact("wall", gap=q - 2 * t, restitution=1.0)
    system = ns.CLS(q=q, v=v, t=t, mass_matrix=1, force=0, contacts=[wall])
    for method, more in ((EXACT, {}), (ns.FESDJ(), {"steps": 5}), (ns.TimeStepping(step=1e-2), {})):
        motion = ns.simulate(system, x0=[1, 0], duration=1.0, method=method, **more)
        assert motion.success, motion.message
        assert motion.final_state[1] == pytest.approx(4.0, abs=1e-9)
        assert motion.impacts[0].energy_gain == pytest.approx(8.0, abs=1e-9)


def motor():
    """A DC motor drives a cart with friction: its current is a first-order state."""
    q, v, i, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("i"), ca.SX.sym("u")
    rail = ns.Contact("rail", gap=q[1], tangent=[1, 0], friction=0.2)
    names = {"q": ["x", "h"], "v": ["vx", "vh"], "y": ["i"]}
    return ns.CLS(
        q=q,
        v=v,
        y=i,
        y_rate=(u - i - 0.8 * v[0]) / 0.05,
        u=u,
        mass_matrix=ca.SX.eye(2),
        force=ca.vertcat(0.8 * i, -G),
        contacts=[rail],
        names=names,
    )


@pytest.mark.quick
def test_a_motor_breaks_loose_when_its_current_is_large_enough():
    """While it sticks i = 6 (1 - exp(-20 t)); it slips where .8 i = mu g."""
    motion = ns.simulate(motor(), x0=[0] * 5, duration=0.3, u=[6.0], method=EXACT, sensitivities=True)
    slip = motion.events[0]
    assert slip.kind == "slip"
    assert slip.time == pytest.approx(-0.05 * np.log(1 - 0.2 * G / 0.8 / 6), abs=1e-9)
    ends = [ns.simulate(motor(), x0=[0] * 5, duration=0.3, u=[6 + d], method=EXACT).final_state for d in (1e-5, -1e-5)]
    np.testing.assert_allclose(motion.sensitivity.u[0, :, 0], (ends[0] - ends[1]) / 2e-5, rtol=0, atol=1e-6)


@pytest.mark.quick
@pytest.mark.parametrize("method", [ns.FESDJ(rk_stages=3), ns.TimeStepping(step=1e-3)])
def test_other_simulators_agree_on_the_motor(method):
    """With the event-driven simulation."""
    steps = {"steps": 20} if isinstance(method, ns.FESDJ) else {}
    one = ns.simulate(motor(), x0=[0] * 5, duration=0.4, u=[6.0], method=method, **steps)
    other = ns.simulate(motor(), x0=[0] * 5, duration=0.4, u=[6.0], method=EXACT)
    coarse = 1e-5 if steps else 1e-2
    np.testing.assert_allclose(one.final_state, other.final_state, rtol=0, atol=coarse)


def test_the_motor_drives_a_cart_to_a_goal():
    """Rest to rest over a meter; the solution is confirmed by the event-driven simulation of its control."""
    s = motor()
    ends = [ns.Constraint(ca.vertcat(s.q[0], s.v[0]), [1, 0], [1, 0])]
    ocp = ns.OCP(
        s, horizon=1.0, x0=[0] * 5, stage_cost=0.01 * s.u**2, terminal_constraints=ends, bounds=ns.Bounds(u=(-24, 24))
    )
    solution = ns.solve(ocp, ns.FESDJ(control_stages=5, finite_elements=5, rk_stages=3), guess=[3.0])
    assert solution.success
    motion = ns.simulate(s, x0=[0] * 5, duration=1.0, u=solution)
    np.testing.assert_allclose(motion.final_state[[0, 2]], [1, 0], rtol=0, atol=2e-3)


@pytest.mark.quick
def test_time_freezing_takes_first_order_states_and_refuses_moving_contacts():
    """States of y stand still in a jump."""
    method = ns.TimeFreezing(fesd=ns.FESD(finite_elements=4, rk_stages=3))
    one = ns.simulate(motor(), x0=[0, 0.05, 0, 0, 0], duration=0.4, u=[6.0], steps=8, method=method)
    other = ns.simulate(motor(), x0=[0, 0.05, 0, 0, 0], duration=0.4, u=[6.0], method=EXACT)
    assert one.success
    np.testing.assert_allclose(one.final_state, other.final_state, rtol=0, atol=2e-3)
    with pytest.raises(ns.OptionError, match=r"contact 'floor' moves by itself.*use ns.FESDJ"):
        ns.simulate(shaken(), x0=[1, 0], duration=1.0, method=method)


@pytest.mark.quick
def test_a_reference_in_time():
    """A free mass follows .3 cos(3 t): the optimum of few intervals by the normal equations of its exact motion."""
    q, v, u, t = (ca.SX.sym(name) for name in "qvut")
    system = ns.CLS(q=q, v=v, u=u, t=t, mass_matrix=1, force=u)
    ocp = ns.OCP(system, horizon=1.0, x0=[0.3, 0], stage_cost=(q - 0.3 * ca.cos(3 * t)) ** 2)
    solution = ns.solve(ocp, ns.FESDJ(control_stages=4, finite_elements=1, rk_stages=4))
    times, weights = np.polynomial.legendre.leggauss(40)
    times, weights = 0.5 * (times + 1), 0.5 * weights

    def moved(j, s):
        since, until = np.clip(s - 0.25 * j, 0, None), np.clip(s - 0.25 * (j + 1), 0, None)
        return 0.5 * since**2 - 0.5 * until**2

    matrix = np.array([moved(j, times) for j in range(4)]).T
    wanted = 0.3 * np.cos(3 * times) - 0.3
    root = np.sqrt(weights)
    best = np.linalg.lstsq(root[:, None] * matrix, root * wanted, rcond=None)[0]
    np.testing.assert_allclose(solution.u[:, 0], best, rtol=0, atol=2e-3)
    assert solution.x[-1, -1] == pytest.approx(1.0, abs=1e-9)


@pytest.mark.quick
def test_a_start_at_another_time():
    """The time may be given as the last component of x0."""
    one = ns.simulate(shaken(), x0=[1, 0, 0.4], duration=0.3, method=EXACT)
    assert one.final_state[2] == pytest.approx(0.7, abs=1e-12)
    assert shaken().check_state([1, 0]).tolist() == [1, 0, 0]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": ca.SX.sym("y")}, "y_rate: expected a rate for each of the 1 first-order states y, given 0"),
        ({"y_rate": [1.0]}, "y_rate: expected a rate for each of the 0 first-order states y, given 1"),
        ({"t": ca.SX.sym("t", 2)}, "t: expected one symbol, the time, given 2"),
        (
            {"t": ca.SX.sym("t"), "y_rate": [1.0]},
            r"the 0 first-order states y \(the time has its own\), given 1",
        ),
        ({"force": ca.SX.sym("t")}, "CLS: force depends on t, which is not among q, v, u, p"),
    ],
)
def test_mistakes_are_told(changes, message):
    """What is given and what is expected."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    with pytest.raises(ns.ModelError, match=message):
        ns.CLS(**{"q": q, "v": v, "mass_matrix": 1, "force": 0, **changes})


@pytest.mark.quick
def test_a_gap_does_not_follow_a_control():
    """Its rate would jump where the control does."""
    q, v, y, u = (ca.SX.sym(name) for name in "qvyu")
    contact = ns.Contact("wall", gap=q - y)
    with pytest.raises(ns.ModelError, match="the gap depends on a state of y whose rate depends on v or u"):
        ns.CLS(q=q, v=v, y=y, y_rate=u, u=u, mass_matrix=1, force=0, contacts=[contact])
    with pytest.raises(ns.ModelError, match="a surface_velocity needs a direction"):
        ns.Contact("belt", gap=q, surface_velocity=1.0)
