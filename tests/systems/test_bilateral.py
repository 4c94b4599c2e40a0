"""Couplings and closed loops: elimination, projection, and the same motion by every method."""

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import minimize

import nosnoc_py as ns

LENGTHS, BASE, MASSES = (0.2, 0.5, 0.4), 0.5, (1.0, 2.0, 1.5)


def towards(angle):
    return ca.vertcat(ca.cos(angle), ca.sin(angle))


def four_bar(**more):
    """Return a four-bar linkage in the absolute angles of its three bars; `pin` closes it."""
    q, v, u = ca.SX.sym("q", 3), ca.SX.sym("v", 3), ca.SX.sym("u")
    knee = LENGTHS[0] * towards(q[0])
    ends = knee + LENGTHS[1] * towards(q[1]), ca.vertcat(BASE, 0) + LENGTHS[2] * towards(q[2])
    centres = (knee / 2, knee + LENGTHS[1] / 2 * towards(q[1]), ca.vertcat(BASE, 0) + LENGTHS[2] / 2 * towards(q[2]))
    kinetic = potential = 0
    for k, (mass, centre) in enumerate(zip(MASSES, centres, strict=True)):
        kinetic += mass / 2 * ca.sumsqr(ca.jtimes(centre, q, v)) + mass * LENGTHS[k] ** 2 / 24 * v[k] ** 2
        potential += 9.81 * mass * centre[1]
    momenta = ca.gradient(kinetic, v)
    force = ca.gradient(kinetic - potential, q) - ca.jtimes(momenta, q, v) + ca.vertcat(u, 0, 0)
    system = ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=ca.jacobian(momenta, v),
        force=force,
        loops={"pin": ends[0] - ends[1]},
        names={"q": ["crank", "coupler", "rocker"], "u": ["torque"]},
        contacts=[ns.Contact("stop", gap=(knee + 0.35 * towards(q[1]))[1] - 0.12, restitution=0.5)],
        **more,
    )
    return system, q, v, kinetic + potential, ends[0] - ends[1]


def reduced_motion(seconds):
    """Return the crank's angle and rate of the linkage without a stop, in one coordinate, by DOP853.

    The other angles are integrated with theirs: their rates follow from the closure, v = S(q) crank'.
    """
    _, q, v, energy, closure = four_bar()
    J = ca.jacobian(closure, q)
    S = ca.vertcat(1, -ca.solve(J[:, 1:], J[:, 0]))
    kinetic = ca.hessian(energy, v)[0]
    rate = ca.SX.sym("rate")
    inertia = ca.bilin(kinetic, S, S)
    # Lagrange's equation of one coordinate: d/dt(I w) = I' w^2 / 2 - V', along the curve q(crank).
    by_crank = ca.jtimes(inertia, q, S)
    pull = -ca.jtimes(ca.substitute(energy, v, 0 * v), q, S)
    function = ca.Function("rhs", [q, rate], [ca.vertcat(S * rate, (pull - by_crank * rate**2 / 2) / inertia)])
    start = np.array(four_bar()[0].project({"crank": 1.0}))[:3]
    motion = solve_ivp(
        lambda t, y: np.array(function(y[:3], y[3]))[:, 0],
        (0.0, seconds),
        [*start, 0.0],
        method="DOP853",
        rtol=1e-12,
        atol=1e-13,
    )
    return motion.y[0, -1], motion.y[3, -1]


def without_stop(**more):
    system = four_bar()[0]
    return ns.CLS(
        q=system.q,
        v=system.v,
        u=system.u,
        mass_matrix=system.mass_matrix,
        force=system.force,
        loops=system.loops,
        names={"q": ["crank", "coupler", "rocker"], "u": ["torque"]},
        **more,
    )


@pytest.mark.quick
def test_four_bar_moves_as_in_one_coordinate_and_stays_closed():
    system = without_stop()
    motion = ns.simulate(system, x0={"crank": 1.0}, duration=2.0, u=[0.0])
    angle, rate = reduced_motion(2.0)
    assert motion.status is ns.Status.SOLVED
    assert abs(motion["crank"][-1] - angle) < 2e-8
    assert abs(motion["v_0"][-1] - rate) < 2e-7
    closure = ca.Function("g", [system.x], [system.loops["pin"]])
    assert np.abs(np.array(closure(motion.x.T))).max() < 1e-12


def loose_opening():
    """Return by how much the loop opens in 2 s at a loose tolerance."""
    system = without_stop()
    method = ns.EventDriven(rtol=1e-4, atol=1e-4)
    motion = ns.simulate(system, x0={"crank": 1.0}, duration=2.0, u=[0.0], method=method)
    closure = ca.Function("g", [system.x], [system.loops["pin"]])
    return np.abs(np.array(closure(motion.x.T))).max()


def test_drift_is_taken_away_by_the_projection(monkeypatch):
    from nosnoc_py.systems import kinematics

    assert loose_opening() < 3e-5
    # Negative control: without the projection the drift stays.
    monkeypatch.setattr(kinematics, "put_on_constraints", lambda s: ca.Function("nothing", [s.x, s.p], [s.x]))
    assert loose_opening() > 1e-4


def test_impacts_obey_the_loop_in_every_simulator():
    system, _, _, energy, _ = four_bar()
    with pytest.raises(ns.ModelError, match="no state nearby"):  # none is named
        system.project({})
    start = system.project({"crank": 1.0})
    motion = ns.simulate(system, x0=start, duration=0.6, u=[0.0])
    impact = motion.impacts[0]
    levels = np.array(ca.Function("E", [system.x], [energy])(motion.x.T))[0]
    # Newton's law with one degree of freedom: the kinetic energy after the impact is e^2 of that before it.
    jump = np.flatnonzero(np.diff(motion.t) == 0.0)[0]
    rate = ca.Function("n", [system.x], [ca.jtimes(system.contacts[0].gap, system.q, system.v)])
    before, after = (float(rate(motion.x[k])) for k in (jump, jump + 1))
    assert abs(after + 0.5 * before) < 1e-9 * abs(before)
    assert np.ptp(levels[: jump + 1]) < 1e-9
    assert np.ptp(levels[jump + 1 :]) < 1e-9
    for method, near in ((ns.TimeStepping(), 6e-3), (ns.FESDJ(), 1e-6)):
        other = ns.simulate(system, x0=start, duration=0.6, u=[0.0], method=method, steps=240)
        assert abs(other.impacts[0].time - impact.time) < near
        assert np.abs(other.final_state[:3] - motion.final_state[:3]).max() < near


def test_derivatives_are_those_of_closed_motions():
    system = four_bar()[0]
    start = np.array(system.project({"crank": 1.0}))
    motion = ns.simulate(system, x0=start, duration=0.6, u=[0.3], sensitivities=True)
    ends, starts, h = [], [], 1e-6
    for sign in (1.0, -1.0):
        starts.append(np.array(system.project(start + sign * h * np.eye(6)[0])))
        ends.append(ns.simulate(system, x0=starts[-1], duration=0.6, u=[0.3]).final_state)
    change, slope = ((a - b) / (2 * h) for a, b in (starts, ends))
    assert np.allclose(motion.sensitivity.x0 @ change, slope, rtol=1e-5, atol=1e-5)


@pytest.mark.quick
def test_gear_and_knife_edge_have_their_closed_forms():
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    gear = ns.CLS(
        q=q,
        v=v,
        mass_matrix=ca.diag([2.0, 0.5]),
        force=[4.0, 0.0],
        couplings={"gear": q[1] - 3 * q[0]},
        contacts=[ns.Contact("stop", gap=3 - q[1], restitution=0.5)],
    )
    motion = ns.simulate(gear, x0=[0, 0, 0, 0], duration=2.0)
    # Inertia seen from the first wheel: 2 + 9 * 0.5.
    assert abs(motion.impacts[0].time - np.sqrt(2 * 6.5 / 4.0)) < 1e-9
    # An ice skate turns at a constant rate on a circle.
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    edge = v[0] * ca.sin(q[2]) - v[1] * ca.cos(q[2])
    skate = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(3), force=ca.DM.zeros(3), couplings={"edge": edge})
    speed, turn = 1.3, 0.7
    end = ns.simulate(skate, x0=[0, 0, 0, speed, 0, turn], duration=5.0).final_state
    circle = [speed / turn * np.sin(5 * turn), speed / turn * (1 - np.cos(5 * turn)), 5 * turn]
    assert np.abs(end[:3] - circle).max() < 1e-9


@pytest.mark.quick
def test_rows_that_follow_from_others_are_left_out():
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)

    def flat(angle):
        return ca.vertcat(ca.cos(angle), 0, ca.sin(angle))

    gap = LENGTHS[0] * flat(q[0]) + LENGTHS[1] * flat(q[1]) - ca.vertcat(BASE, 0, 0) - LENGTHS[2] * flat(q[2])
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(3), force=[1, 0, 0], loops={"pin": gap, "again": 2 * gap})
    assert system.bilateral.rows.shape == (2, 3)
    assert ns.simulate(system, x0={"q_0": 1.0}, duration=0.2).status is ns.Status.SOLVED


def test_projection_is_the_nearest_admissible_state():
    system = four_bar()[0]
    rng = np.random.default_rng(3)
    base = np.array(system.project({"crank": 1.5}))
    closure = ca.Function("g", [system.q], [system.loops["pin"]])
    gap = ca.Function("gap", [system.q], [system.contacts[0].gap])
    for _ in range(6):
        given = base.copy()
        given[:3] += rng.uniform(-0.2, 0.2, 3)
        state = system.project(given)
        mass = system.kinematics(given).mass
        constraints = [
            {"type": "eq", "fun": lambda y: np.array(closure(y))[:, 0]},
            {"type": "ineq", "fun": lambda y: float(gap(y))},
        ]
        best = minimize(
            lambda y, at=given, M=mass: (y - at[:3]) @ M @ (y - at[:3]),
            base[:3],
            constraints=constraints,
            method="SLSQP",
            options={"ftol": 1e-15, "maxiter": 400},
        )
        assert np.abs(state[:3] - best.x).max() < 1e-6
        moved = np.array([state.moved.get(name, 0.0) for name in system.state_names])
        assert np.abs(given + moved - state).max() < 1e-14


@pytest.mark.quick
def test_a_start_that_penetrates_is_moved_and_says_by_how_much():
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    ball = ns.CLS(
        q=q,
        v=v,
        mass_matrix=ca.DM.eye(2),
        force=[0, -9.81],
        contacts=[ns.Contact("floor", gap=q[1]), ns.Contact("wall", gap=q[0])],
    )
    state = ball.project([-2e-6, -1e-6, 0.5, 0.0])
    assert state.moved == {"q_0": 2e-6, "q_1": 1e-6}
    assert np.abs(state - [0.0, 0.0, 0.5, 0.0]).max() == 0.0
    with pytest.raises(ns.ModelError, match=r"project\(x0\)"):
        ns.simulate(ball, x0=[-2e-6, -1e-6, 0.5, 0.0], duration=1.0)


@pytest.mark.quick
def test_mistakes_are_named():
    system = four_bar()[0]
    with pytest.raises(ns.ModelError, match="'pin' is open by"):
        ns.simulate(system, x0=[1.0, 0, 0, 0, 0, 0], duration=1.0, u=[0.0])
    state = system.project({"crank": 1.0})
    with pytest.raises(ns.ModelError, match="'pin' is violated by the velocities"):
        ns.simulate(system, x0=[*state[:3], 1.0, 0, 0], duration=1.0, u=[0.0])
    with pytest.raises(ns.ModelError, match="'pin' stays off"):
        system.project({"crank": 1.0, "coupler": 0.0})
    q, v, t = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("t")
    plain = {"q": q, "v": v, "mass_matrix": ca.DM.eye(2), "force": [0, 0]}
    with pytest.raises(ns.ModelError, match="'crank' depends on controls, time"):
        ns.CLS(**plain, t=t, couplings={"crank": q[0] - t})
    with pytest.raises(ns.ModelError, match="linear in v"):
        ns.CLS(**plain, couplings={"speed": v[0] - 1})


def test_plain_call_plans_with_a_loop_and_is_confirmed():
    system = four_bar()[0]
    ocp = ns.OCP(
        system,
        horizon=1.0,
        x0=system.project({"crank": 2.2}),
        stage_cost=system.u**2,
        terminal_state={"crank": 1.0},
        bounds={"torque": (-20, 20)},
    )
    solution = ns.solve(ocp, effort="quick")
    assert solution.status.success
    assert solution.certificate.confirmed
    assert abs(solution["crank"][-1] - 1.0) < 1e-6


def test_a_linkage_in_other_units_moves_alike():
    from nosnoc_py.systems.rescaled import rescaled

    system = four_bar()[0]
    other = rescaled(system, q=2.0, gap=0.5, time=3.0, mass=7.0)
    start = np.array(system.project({"crank": 1.0}))
    end = ns.simulate(system, x0=start, duration=0.6, u=[0.2]).final_state
    same = ns.simulate(other, x0=start / 2.0, duration=0.2, u=[0.2]).final_state
    assert np.abs(same * np.repeat([2.0, 2.0 / 3.0], 3) - end).max() < 1e-8


@pytest.mark.quick
def test_rounding_of_a_state_at_rest_is_no_violation():
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    gear = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=-v, couplings={"gear": q[0] - 3 * q[1]})
    assert ns.simulate(gear, x0=[0, 0, 1e-30, 0], duration=0.1).status is ns.Status.SOLVED
    # A motion continues from its own end.
    first = ns.simulate(without_stop(), x0={"crank": 1.0}, duration=0.5, u=[0.0])
    assert ns.simulate(without_stop(), x0=first.final_state, duration=0.1, u=[0.0]).status is ns.Status.SOLVED
    with pytest.raises(ns.ModelError, match="'gear' is open by 2e-09"):
        ns.simulate(gear, x0=[1e-9, 1e-9, 0, 0], duration=0.1)


def test_a_free_start_is_on_the_constraints():
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    gear = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=ca.vertcat(u, 0), couplings={"gear": q[0] - 3 * q[1]})
    ocp = ns.OCP(
        gear,
        horizon=1.0,
        initial_constraints=[v == 0, q[0] == 0],
        terminal_constraints=[q[0] == 0.5],
        stage_cost=u**2,
        bounds=ns.Bounds(u=([-5], [5])),
    )
    solution = ns.solve(ocp, effort="quick")
    assert solution.certificate.confirmed
    # From rest in 1 s u falls linearly to zero: cost 3 (0.5 / 0.9)^2.
    assert solution.objective == pytest.approx(3 * (0.5 / 0.9) ** 2, rel=1e-3)
