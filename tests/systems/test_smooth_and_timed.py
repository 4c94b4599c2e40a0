"""Smooth systems, and systems by regions and projections with time."""

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns

METHODS = [(None, {}), (ns.FESD(rk_stages=3), {"steps": 30})]


@pytest.mark.quick
@pytest.mark.parametrize(("method", "more"), METHODS)
def test_a_driven_oscillator(method, more):
    """x'' = cos(2 t) - x from (1, 0): x = 4/3 cos(t) - 1/3 cos(2 t)."""
    x, t = ca.SX.sym("x", 2), ca.SX.sym("t")
    system = ns.ODE(x=x, t=t, flow=ca.vertcat(x[1], ca.cos(2 * t) - x[0]))
    motion = ns.simulate(system, x0=[1, 0], duration=3.0, method=method, **more)
    exact = [4 / 3 * np.cos(3) - np.cos(6) / 3, -4 / 3 * np.sin(3) + 2 / 3 * np.sin(6), 3.0]
    assert motion.success
    np.testing.assert_allclose(motion.final_state, exact, rtol=0, atol=1e-6)


@pytest.mark.quick
@pytest.mark.parametrize(("method", "more"), METHODS)
def test_a_dae_of_index_one(method, more):
    """x' = z with z + z^3 + x = 0: time from x = 1 is the integral of dx / z."""
    x, z = ca.SX.sym("x"), ca.SX.sym("z")
    system = ns.ODE(x=x, flow=z, algebraic=ns.Algebraic(z, z + z**3 + x))
    motion = ns.simulate(system, x0=[1.0], duration=1.0, method=method, **more)
    # dx = -(1 + 3 z^2) dz, so t = log(z0 / z) + 1.5 (z0^2 - z^2) with z < 0.
    at = [np.roots([1, 0, 1, value]) for value in (1.0, float(motion.final_state[0]))]
    z0, z1 = (float(root[np.abs(root.imag) < 1e-12][0].real) for root in at)
    assert np.log(z0 / z1) + 1.5 * (z0**2 - z1**2) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.quick
@pytest.mark.parametrize("method", [ns.FESD(control_stages=8, finite_elements=1, rk_stages=3), ns.MultiPhase()])
def test_an_optimum_of_a_smooth_system(method):
    """Least effort from rest to rest over one second: u = 6 - 12 t, 12 in all; a few intervals cost a little more."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    ends = [ns.Constraint(x, [1, 0], [1, 0])]
    ocp = ns.OCP(
        ns.ODE(x=x, u=u, flow=ca.vertcat(x[1], u)), horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_constraints=ends
    )
    solution = ns.solve(ocp, method)
    assert solution.success
    assert ns.certify(ocp, solution)
    stages = len(solution.u)
    assert 12.0 <= solution.objective <= 12.0 / (1 - 1 / stages**2) + 1e-6  # the best of equal intervals


@pytest.mark.quick
@pytest.mark.parametrize(("method", "more"), METHODS)
def test_a_relay_follows_a_surface_that_moves(method, more):
    """x' = -sign(x - sin(t) / 2) reaches it where 1 - t = sin(t) / 2, and stays."""
    x, t = ca.SX.sym("x"), ca.SX.sym("t")
    modes = ns.Modes("relay", flows=[[-1], [1]], functions=x - 0.5 * ca.sin(t), signs=[[1], [-1]])
    motion = ns.simulate(ns.PSS(x=x, t=t, modes=modes), x0=[1.0], duration=2.0, method=method, **more)
    assert motion.events[0].kind == "enter_sliding"
    assert motion.events[0].time == pytest.approx(0.6840366566778, abs=1e-7)
    np.testing.assert_allclose(motion.final_state, [0.5 * np.sin(2), 2], rtol=0, atol=1e-7)


@pytest.mark.quick
@pytest.mark.parametrize(("method", "more"), METHODS)
@pytest.mark.parametrize("timed", [False, True])
def test_a_set_that_moves_pushes_a_point(method, more, timed):
    """By the time, or by a state that the metric does not measure; a point sideways is left alone."""
    if timed:
        x, t = ca.SX.sym("x", 2), ca.SX.sym("t")
        system, start = ns.PDS(x=x, t=t, flow=[0, 0], constraints=x[0] - t + 0.5), [0, 0]
    else:
        x = ca.SX.sym("x", 3)
        metric = np.diag([1.0, 1.0, 0.0])
        system, start = ns.PDS(x=x, flow=[0, 0, 1], constraints=x[0] - x[2] + 0.5, metric=metric), [0, 0, 0]
    motion = ns.simulate(system, x0=start, duration=2.0, method=method, **more)
    assert motion.events[0].time == pytest.approx(0.5, abs=1e-9)
    np.testing.assert_allclose(motion.final_state, [1.5, 0, 2], rtol=0, atol=1e-8)


@pytest.mark.quick
def test_step_functions_in_time():
    """The relay, by a step function."""
    x, t, alpha = (ca.SX.sym(name) for name in ("x", "t", "alpha"))
    system = ns.Heaviside(x=x, t=t, alpha=alpha, functions=x - 0.5 * ca.sin(t), flow=1 - 2 * alpha)
    motion = ns.simulate(system, x0=[1.0], duration=2.0)
    np.testing.assert_allclose(motion.final_state, [0.5 * np.sin(2), 2], rtol=0, atol=1e-7)


@pytest.mark.quick
def test_mistakes_are_told():
    """A flow of the wrong length, none, and a metric that measures nothing."""
    x, t = ca.SX.sym("x", 2), ca.SX.sym("t")
    with pytest.raises(ns.ModelError, match="ODE: flow: expected 2 rows, given 1"):
        ns.ODE(x=x, t=t, flow=x[0])
    with pytest.raises(ns.ModelError, match="ODE: flow: expected x' as an expression, given None"):
        ns.ODE(x=x)
    with pytest.raises(ns.ModelError, match=r"positive semidefinite matrix \(2, 2\) and not zero"):
        ns.PDS(x=x, flow=[0, 0], constraints=x[0], metric=np.zeros((2, 2)))
