"""Free terminal time, free parameters, algebraic variables and complementarities of the user's own: closed forms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

import nosnoc_py as ns

GRAVITY = 9.81
FALL = float(np.sqrt(2 / GRAVITY))  # time of a fall from 1 m
BOTH = [ns.FESD(control_stages=4), ns.FESD(control_stages=4, dcs_mode="step")]
x, u, p, z = ca.SX.sym("x", 2), ca.SX.sym("u"), ca.SX.sym("p", 2), ca.SX.sym("z")
STRANGER = ca.SX.sym("stranger")


def double_integrator(**more: Any) -> ns.CLS:
    q, v, force = (ca.SX.sym(name) for name in "qvu")
    return ns.CLS(q=q, v=v, u=force, mass_matrix=ca.DM(1), force=force, contacts=[], **more)


def ball(restitution: float = 0.0) -> ns.CLS:
    """A ball over the ground; its gravity is a parameter."""
    q, v, g = (ca.SX.sym(name) for name in "qvg")
    ground = ns.Contact("ground", gap=q, restitution=restitution)
    names, default = {"q": ["height"], "v": ["speed"], "p": ["gravity"]}, [GRAVITY]
    return ns.CLS(q=q, v=v, p=g, mass_matrix=ca.DM(1), force=-g, contacts=[ground], names=names, p_default=default)


def smooth(flow: ca.SX, algebraic: ns.Algebraic | None = None, **more: Any) -> ns.PSS:
    """A system with a switching function that never changes its sign: its closed forms are those of `flow`."""
    given = {"x": x, "u": u, **more}
    far = ns.Modes("far", flows=[ca.SX(flow.shape[0], 1)] * 2, functions=given["x"][0] / 100 + 1, signs=[[-1], [1]])
    return ns.PSS(flow=flow, modes=far, algebraic=algebraic, **given)


def solved(ocp: ns.OCP, method: Any) -> ns.Solution:
    solution = ns.solve(ocp, method)
    assert solution.success, solution.summary()
    assert solution.complementarity <= 1e-8
    assert solution.infeasibility <= 1e-8
    return solution


def refused(message: str, build: Any, *arguments: Any, error: type[Exception] = ns.ModelError, **named: Any) -> None:
    with pytest.raises(error, match=message):
        build(*arguments, **named)


# --- free terminal time ---


def hurry(initial: float = 3.0) -> ns.OCP:
    """From rest to rest over 1 m with |u| <= 1 as fast as possible: 2 s, bang-bang."""
    system, horizon = double_integrator(), ns.FreeTime(0.5, 10.0, initial)
    goal = ns.Constraint(system.x, [1, 0], [1, 0], name="goal")
    bounds = ns.Bounds(u=(-1, 1))
    return ns.OCP(
        system,
        horizon=horizon,
        x0=[0, 0],
        terminal_cost=horizon.symbol,
        bounds=bounds,
        terminal_constraints=[goal],
    )


@pytest.mark.parametrize("initial", [0.6, 3.0, 9.0])
def test_the_fastest_double_integrator(initial: float) -> None:
    solution = solved(hurry(initial), ns.FESDJ(control_stages=4))
    assert solution.objective == pytest.approx(2.0, abs=1e-8)
    assert [solution.horizon, solution.duration] == pytest.approx([2.0, 2.0], abs=1e-8)
    np.testing.assert_allclose(solution.u[:, 0], [1, 1, -1, -1], rtol=0, atol=1e-7)
    np.testing.assert_allclose(solution.u_grid, np.linspace(0, 2, 5), rtol=0, atol=1e-8)
    assert solution.multipliers["goal[1]"].t == pytest.approx([2.0], abs=1e-8)


def test_an_odd_number_of_stages_has_a_slower_optimum() -> None:
    """(1, 0, -1) with stages of T / 3: 2 (T/3)^2 = 1. The grid matters, and is not hidden."""
    solution = solved(hurry(), ns.FESDJ(control_stages=3))
    assert solution.objective == pytest.approx(3 / np.sqrt(2), abs=1e-8)


@pytest.mark.parametrize("method", BOTH)
def test_time_against_effort(method: ns.FESD) -> None:
    """min T + integral of u^2 = T + a / T^3, with a = 12 c_N the effort of N stages: T^4 = 3 a."""
    horizon = ns.FreeTime(0.5, 10.0)
    goal = ns.Constraint(x, [1, 0], [1, 0])
    ocp = ns.OCP(
        smooth(ca.vertcat(x[1], u)),
        horizon=horizon,
        x0=[0, 0],
        stage_cost=u**2,
        terminal_cost=horizon.symbol,
        terminal_constraints=[goal],
    )
    rows = np.array([[(3.5 - k) / 16 for k in range(4)], [0.25] * 4])
    shape = rows.T @ np.linalg.solve(rows @ rows.T, [1.0, 0.0])
    a = shape @ shape / 4
    solution = solved(ocp, method)
    assert solution.horizon == pytest.approx((3 * a) ** 0.25, abs=1e-6)
    assert solution.objective == pytest.approx(solution.horizon + a / solution.horizon**3, abs=1e-8)


def test_bounds_of_the_free_time_hold() -> None:
    horizon = ns.FreeTime(2.5, 4.0)
    ocp = hurry()
    slow = ns.OCP(
        ocp.system,
        horizon=horizon,
        x0=[0, 0],
        terminal_cost=horizon.symbol,
        bounds=ns.Bounds(u=(-1, 1)),
        terminal_constraints=ocp.terminal_constraints,
    )
    assert solved(slow, ns.FESDJ(control_stages=4)).horizon == pytest.approx(2.5, abs=1e-7)
    late = ns.OCP(
        ocp.system,
        horizon=ns.FreeTime(0.5, 1.9),
        x0=[0, 0],
        bounds=ns.Bounds(u=(-1, 1)),
        terminal_constraints=ocp.terminal_constraints,
    )
    assert not ns.solve(late, ns.FESDJ(control_stages=4)).success


def test_the_free_time_in_a_terminal_constraint() -> None:
    """x(T) = T - 1 and v(T) = 1 from rest: for every T two stages have one control; T minimises its effort."""
    horizon = ns.FreeTime(0.5, 5.0)
    system = double_integrator()
    line = ns.Constraint(ca.vertcat(system.q - horizon.symbol + 1, system.v), [0, 1], [0, 1])
    ocp = ns.OCP(system, horizon=horizon, x0=[0, 0], stage_cost=system.u**2, terminal_constraints=[line])
    solution = solved(ocp, ns.FESDJ(control_stages=2))

    def effort(time: float) -> float:
        rows = np.array([[3 / 8 * time**2, 1 / 8 * time**2], [time / 2, time / 2]])
        control = np.linalg.solve(rows, [time - 1, 1])
        return float(time / 2 * control @ control)

    best = minimize_scalar(effort, bounds=(0.5, 5.0), method="bounded", options={"xatol": 1e-10})
    assert solution.objective == pytest.approx(best.fun, abs=1e-8)
    assert solution.horizon == pytest.approx(best.x, abs=1e-4)


def drop(system: ns.CLS, goal: list[ns.Constraint], **more: Any) -> ns.OCP:
    horizon = ns.FreeTime(0.2, 2.0, 1.0)
    given = {"x0": [1, 0], "terminal_cost": horizon.symbol, **more}
    return ns.OCP(system, horizon=horizon, terminal_constraints=goal, **given)


def test_the_time_of_impact_of_a_dropped_ball() -> None:
    """As soon as possible on the ground: sqrt(2 h / g), just before the impact."""
    system = ball()
    solution = solved(drop(system, [ns.Constraint(system.q, 0, 0)]), ns.FESDJ(control_stages=2))
    assert solution.horizon == pytest.approx(FALL, abs=1e-9)
    assert solution.final_state[1] == pytest.approx(-GRAVITY * FALL, abs=1e-8)


def test_free_time_and_an_impact() -> None:
    """As soon as possible on the way up at .1 m, after an impact with restitution 1/2."""
    system = ball(0.5)
    rising = [ns.Constraint(system.q, 0.1, 0.1), ns.Constraint(system.v, lower=0.0)]
    solution = solved(drop(system, rising), ns.FESDJ(control_stages=2))
    after = 0.5 * GRAVITY * FALL
    expected = FALL + (after - np.sqrt(after**2 - 0.2 * GRAVITY)) / GRAVITY
    assert solution.horizon == pytest.approx(expected, abs=1e-9)
    assert [event.time for event in solution.impacts] == pytest.approx([FALL], abs=1e-9)
    certificate = ns.certify(drop(system, rising), solution)
    assert certificate.verdict is ns.Verdict.CONFIRMED


@pytest.mark.parametrize("gamma", [0.9, 0.99])
def test_an_impact_at_the_end_leaves_one_short_element(gamma: float) -> None:
    """At rest on the ground as soon as possible: impacts happen at the start of an element, and that one has a length.

    With four elements of T / 4 at least (1 - gamma_h) T / 4 follows: T = sqrt(2 / g) / (1 - (1 - gamma_h) / 4).
    """
    system = ball()
    task = drop(system, [ns.Constraint(system.x, [0, 0], [0, 0])])
    solution = solved(task, ns.FESDJ(control_stages=2, gamma_h=gamma))
    assert solution.horizon == pytest.approx(FALL / (1 - (1 - gamma) / 4), abs=1e-8)
    assert solution.impacts[0].time == pytest.approx(FALL, abs=1e-8)


def test_free_time_with_time_freezing() -> None:
    """At rest on the ground as soon as possible: the jump takes no physical time, and T is physical."""
    system = ball()
    method = ns.TimeFreezing(fesd=ns.FESD(control_stages=2, finite_elements=3, rk_stages=3))
    solution = solved(drop(system, [ns.Constraint(system.x, 0, 0)]), method)
    assert solution.horizon == pytest.approx(FALL, abs=1e-8)
    assert [event.time for event in solution.impacts] == pytest.approx([FALL], abs=1e-8)
    assert solution.impacts[0].impulse == pytest.approx(GRAVITY * FALL, abs=1e-7)


def test_a_free_time_cannot_be_given_when_solving() -> None:
    problem = ns.transcribe(hurry(), ns.FESDJ(control_stages=4))
    message = "horizon was given, but the OCP leaves it free; fix it in the OCP"
    refused(message, problem.solve, horizon=2.0, error=ns.TranscriptionError)


def test_certificates_of_free_times() -> None:
    ocp = hurry()
    solution = solved(ocp, ns.FESDJ(control_stages=4))
    certificate = ns.certify(ocp, solution)
    assert certificate.verdict is ns.Verdict.CONFIRMED
    assert certificate.true_objective == pytest.approx(2.0, abs=1e-8)
    other = ns.OCP(ocp.system, horizon=3.0, x0=[0, 0], terminal_constraints=ocp.terminal_constraints)
    refused("belongs to another OCP; its horizon is", ns.certify, other, solution)


# --- free parameters ---


@pytest.mark.parametrize("method", BOTH)
def test_a_rate_that_fits(method: ns.FESD) -> None:
    """x' = -k x, x(0) = 1, min (x(1) - 1/5)^2: k = ln 5; the other parameter stays as given."""
    system = smooth(-p[0] * x[0], x=x[0], p=p, names={"p": ["rate", "weight"]}, p_default=[1.0, 3.0])
    cost = p[1] * (x[0] - 0.2) ** 2
    ocp = ns.OCP(system, horizon=1.0, x0=[1.0], terminal_cost=cost, free_parameters={"rate": (0, 5)})
    solution = solved(ocp, method.replace(rk_stages=5))
    assert solution.parameters["rate"] == pytest.approx(np.log(5), abs=1e-7)
    assert solution.parameters["weight"] == 3.0
    np.testing.assert_array_equal(solution.p, list(solution.parameters.values()))


def test_bounds_of_a_free_parameter_hold() -> None:
    system = smooth(-p[0] * x[0], x=x[0], p=p, names={"p": ["rate", "weight"]}, p_default=[1.0, 3.0])
    cost = p[1] * (x[0] - 0.2) ** 2
    ocp = ns.OCP(system, horizon=1.0, x0=[1.0], terminal_cost=cost, free_parameters={"rate": (0, 1.25)})
    assert solved(ocp, BOTH[0]).parameters["rate"] == pytest.approx(1.25, abs=1e-7)


def heavy() -> tuple[ns.OCP, float]:
    """A free mass: min of the integral of u^2 less 60 m, 1 m from rest to rest in 1 s: m^2 a - 60 m with m = 30 / a."""
    q, v, force, m = (ca.SX.sym(name) for name in "qvum")
    system = ns.CLS(q=q, v=v, u=force, p=m, mass_matrix=m, force=force, contacts=[], names={"p": ["mass"]})
    goal = ns.Constraint(system.x, [1, 0], [1, 0])
    ocp = ns.OCP(
        system,
        horizon=1.0,
        x0=[0, 0],
        stage_cost=force**2,
        terminal_cost=-60 * m,
        terminal_constraints=[goal],
        p=[1.5],
        free_parameters={"mass": (0.1, 50)},
    )
    rows = np.array([[(3.5 - k) / 16 for k in range(4)], [0.25] * 4])
    shape = rows.T @ np.linalg.solve(rows @ rows.T, [1.0, 0.0])
    return ocp, float(shape @ shape) / 4


def test_a_free_mass_with_jumps_allowed() -> None:
    ocp, a = heavy()
    solution = solved(ocp, ns.FESDJ(control_stages=4))
    assert solution.parameters["mass"] == pytest.approx(30 / a, abs=1e-7)
    assert solution.objective == pytest.approx(-900 / a, abs=1e-6)
    certificate = ns.certify(ocp, solution)
    assert certificate.verdict is ns.Verdict.CONFIRMED
    assert certificate.true_objective == pytest.approx(-900 / a, abs=1e-6)


@pytest.mark.parametrize(("start", "apex", "impacts"), [(6.0, 1.5, 1), (9.81, 2.25, 2)])
def test_a_free_gravity_puts_an_apex_at_the_end(start: float, apex: float, impacts: int) -> None:
    """A ball from 1 m with restitution 1/2 has v = 0 at 1.5 t_1, and at (1 + 1 + 1/4) t_1 after its second impact.

    g = 2 / t_1^2, and the simulation that the solver starts from decides which apex is put at 1 s.
    """
    system = ball(0.5)
    ocp = ns.OCP(
        system,
        horizon=1.0,
        x0=[1, 0],
        p=[start],
        terminal_cost=system.v**2,
        free_parameters={"gravity": (2.5, 20)},
    )
    flight = ns.simulate(system, x0=[1, 0], duration=1.0, p=[start], steps=10)
    solution = ns.solve(ocp, ns.FESDJ(control_stages=2), guess=flight)
    assert solution.success
    assert solution.parameters["gravity"] == pytest.approx(2 * apex**2, abs=1e-6)
    assert [event.time for event in solution.impacts] == pytest.approx([1 / apex, 2 / apex][:impacts], abs=1e-7)
    assert solution.objective == pytest.approx(0.0, abs=1e-10)
    assert ns.certify(ocp, solution).verdict is ns.Verdict.CONFIRMED


def test_a_free_gravity_with_time_freezing() -> None:
    """The integral of the height until the impact is 2 t_1 / 3, and while time is frozen it costs nothing."""
    system = ball()
    arguments: dict[str, Any] = {"horizon": 1.0, "x0": [1, 0], "free_parameters": {"gravity": (2.5, 20)}}
    flown = ns.OCP(system, stage_cost=system.q, terminal_cost=(system.p - 3.125) ** 2, **arguments)
    method = ns.TimeFreezing(fesd=ns.FESD(control_stages=2, finite_elements=3, rk_stages=3))
    solution = solved(flown, method)
    # d/dg of 2/3 sqrt(2/g) + (g - 3.125)^2 = 0
    g = brentq(lambda g: -np.sqrt(2) / 3 * g**-1.5 + 2 * (g - 3.125), 2.5, 20)
    assert solution.parameters["gravity"] == pytest.approx(g, abs=1e-6)
    assert solution.impacts[0].time == pytest.approx(np.sqrt(2 / g), abs=1e-7)


def test_free_time_and_a_free_parameter_together() -> None:
    """The gravity under which a fall of 1 m takes T, min T + g / 20: T = sqrt(2 / g), g^1.5 = 10 sqrt(2)."""
    system, horizon = ball(), ns.FreeTime(0.2, 2.0, 0.8)
    ocp = ns.OCP(
        system,
        horizon=horizon,
        x0=[1, 0],
        terminal_cost=horizon.symbol + system.p / 20,
        terminal_constraints=[ns.Constraint(system.q, 0, 0)],
        free_parameters={"gravity": (1, 50)},
    )
    solution = solved(ocp, ns.FESDJ(control_stages=2))
    g = (10 * np.sqrt(2)) ** (2 / 3)
    assert solution.parameters["gravity"] == pytest.approx(g, abs=1e-5)
    assert solution.objective == pytest.approx(np.sqrt(2 / g) + g / 20, abs=1e-8)
    assert ns.certify(ocp, solution).true_objective == pytest.approx(solution.objective, abs=1e-8)


def test_with_values_fixes_what_was_free_and_nothing_else() -> None:
    system, horizon = ball(), ns.FreeTime(0.2, 2.0)
    goal = ns.Constraint(system.q - horizon.symbol, 0, 0, name="goal")
    ocp = ns.OCP(
        system,
        horizon=horizon,
        x0=[1, 0],
        terminal_cost=horizon.symbol * system.q,
        terminal_constraints=[goal],
        free_parameters={"gravity": (1, 50)},
    )
    fixed = ocp.with_values(1.5, [7.0])
    assert fixed.free_time is None
    assert fixed.free_parameters == {}
    assert (fixed.horizon, fixed.p[0]) == (1.5, 7.0)
    values = ca.Function("v", [system.x], [fixed.terminal_cost, fixed.terminal_constraints[0].expression])([2.0, 0.0])
    assert [float(value) for value in values] == [3.0, 0.5]
    assert ocp.free_time is horizon
    assert ocp.p[0] == GRAVITY
    solution = solved(ns.OCP(system, horizon=0.3, x0=[1, 0]), ns.FESDJ(control_stages=1))
    assert ns.OCP(system, horizon=0.3, x0=[1, 0]).with_values(0.3, solution.p).horizon == 0.3


# --- algebraic variables ---

# y = 2 x - u by 0 = exp(y - 2 x + u) - 1, and x' = u - y = 2 u - 2 x: x(t) = u + (x0 - u) exp(-2 t)
DAE = ns.Algebraic(z, ca.exp(z - 2 * x[0] + u) - 1, names=["y"])


def dae() -> ns.PSS:
    return smooth(u - z, DAE, x=x[0])


@pytest.mark.parametrize("mode", ["stewart", "step"])
def test_an_index_one_dae_in_simulation(mode: Any) -> None:
    method = ns.FESD(rk_stages=4, dcs_mode=mode)
    found = ns.simulate(dae(), x0=[1.0], duration=1.0, u=[0.5], steps=5, method=method)
    assert found.success
    assert found.final_state[0] == pytest.approx(0.5 + 0.5 * np.exp(-2), abs=1e-10)
    y = found.series["y"]
    np.testing.assert_allclose(y.values, 2 * (0.5 + 0.5 * np.exp(-2 * y.t)) - 0.5, rtol=0, atol=1e-7)


def test_an_algebraic_variable_may_jump() -> None:
    """y = 2 x - u jumps with the control, from 0 to -1."""
    found = ns.simulate(dae(), x0=[0.0], duration=1.0, u=[[0.0], [1.0]], steps=2, method=ns.FESD(rk_stages=4))
    y = found.series["y"]
    assert y.values[y.t < 0.5] == pytest.approx(0.0, abs=1e-9)
    assert y.values[y.t > 0.5][0] < -0.8


@pytest.mark.parametrize("method", BOTH)
def test_an_algebraic_variable_in_the_stage_cost(method: ns.FESD) -> None:
    """min of the integral of y^2 over constant u: y = 2 (1 - u) e + u with e = exp(-2 t), a parabola in u."""
    ocp = ns.OCP(dae(), horizon=1.0, x0=[1.0], stage_cost=z**2)
    solution = solved(ocp, method.replace(control_stages=1, rk_stages=5))
    first, second = (1 - np.exp(-2)) / 2, (1 - np.exp(-4)) / 4
    # integral of (2 e + u (1 - 2 e))^2 = 4 second + 2 u (2 first - 4 second) + u^2 (1 - 4 first + 4 second)
    b, c = 2 * first - 4 * second, 1 - 4 * first + 4 * second
    assert solution.u[0, 0] == pytest.approx(-b / c, abs=1e-6)
    assert solution.objective == pytest.approx(4 * second - b**2 / c, abs=1e-8)


def test_an_algebraic_variable_in_a_path_constraint() -> None:
    """y <= 1.2 from y(0+) = 2 - u on, and min of the integral of u^2: y falls in u constant, so u >= .8 at first."""
    limit = ns.Constraint(z, upper=1.2, name="limit", at="rk_stages")
    ocp = ns.OCP(dae(), horizon=0.5, x0=[1.0], stage_cost=u**2, path_constraints=[limit])
    method = ns.FESD(control_stages=1, finite_elements=2, rk_stages=6)
    solution = solved(ocp, method)
    y = solution.series["y"]
    assert y.values.max() == pytest.approx(1.2, abs=1e-7)
    # the first stage is the one that counts: 2 (u + (1 - u) e) - u = 1.2 there
    e = np.exp(-2 * solution.multipliers["limit"].t[0])
    assert solution.u[0, 0] == pytest.approx((2 * e - 1.2) / (2 * e - 1), abs=1e-6)
    free = solved(ns.OCP(dae(), horizon=0.5, x0=[1.0], stage_cost=u**2), method)
    assert free.series["y"].values.max() > 1.5


def test_bounds_of_algebraic_variables_hold() -> None:
    bounded = ns.Algebraic(z, ca.exp(z - 2 * x[0] + u) - 1, names=["y"], upper=1.2)
    ocp = ns.OCP(smooth(u - z, bounded, x=x[0]), horizon=0.5, x0=[1.0], stage_cost=u**2)
    solution = solved(ocp, ns.FESD(control_stages=1, finite_elements=2, rk_stages=3))
    assert solution.series["y"].values.max() == pytest.approx(1.2, abs=1e-7)


# --- complementarities of the user's own ---


def either(**more: Any) -> ns.OCP:
    """Two controls, one of which is zero at all times: min of (a - 1)^2 + (b - 2)^2 has the optimum a = 0, b = 2."""
    controls = ca.SX.sym("u", 2)
    system = smooth(controls[0] - controls[1], x=x[0], u=controls, names={"u": ["a", "b"]})
    pair = ns.Complementarity(controls[0], controls[1], name="either")
    cost = ca.sumsqr(controls - ca.DM([1, 2]))
    bounds = ns.Bounds(u=(0, 5))
    return ns.OCP(system, horizon=1.0, x0=[0.0], stage_cost=cost, complementarities=[pair], bounds=bounds, **more)


@pytest.mark.parametrize("method", BOTH)
def test_either_or(method: ns.FESD) -> None:
    solution = solved(either(), method)
    np.testing.assert_allclose(solution.u, [[0, 2]] * 4, rtol=0, atol=1e-6)
    assert solution.objective == pytest.approx(1.0, abs=1e-8)
    assert solution.final_state[0] == pytest.approx(-2.0, abs=1e-6)


def test_without_the_complementarity_both_are_used() -> None:
    free = replace(either(), complementarities=())
    assert ns.solve(free, BOTH[0]).objective == pytest.approx(0.0, abs=1e-8)


def test_its_residual_is_reported_by_name() -> None:
    problem = ns.transcribe(either(), BOTH[0])
    w = np.array(problem.initial_guess([0.5, 0.5]))
    evaluator = problem.solvers.evaluator
    worst = evaluator.worst(evaluator(w, problem.mpcc.p0), 500)
    products = [residual for residual in worst if "either" in residual.name]
    assert products
    assert products[0].kind == "complementarity"
    assert products[0].value == pytest.approx(0.25, abs=1e-12)


def test_a_complementarity_of_states_and_controls() -> None:
    """A tank that may be filled only when it is empty: 0 <= u, x >= 0, u x = 0, x' = u - 1/2, min (x(1) - 3)^2.

    Once u > 1/2 the tank is no longer empty and u has to be zero: it stays empty with u = 1/2, or drains.
    """
    system = smooth(u - 0.5, x=x[0])
    pair = ns.Complementarity(x[0], u)
    ocp = ns.OCP(
        system,
        horizon=1.0,
        x0=[0.2],
        terminal_cost=(x[0] - 3) ** 2,
        complementarities=[pair],
        bounds=ns.Bounds(u=(0, 5)),
    )
    solution = solved(ocp, ns.FESD(control_stages=5))
    assert solution.final_state[0] == pytest.approx(0.0, abs=1e-6)  # x = .2 - t / 2 until .4 s, then 0
    np.testing.assert_allclose(solution.u[:, 0], [0, 0, 0.5, 0.5, 0.5], rtol=0, atol=1e-6)


def test_a_complementarity_beside_contacts() -> None:
    """A ball pushed up or down, never both at once: at rest at 1 m it needs only the force upwards."""
    q, v, forces = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u", 2)
    system = ns.CLS(
        q=q,
        v=v,
        u=forces,
        mass_matrix=ca.DM(1),
        force=forces[0] - forces[1] - 1,
        contacts=[ns.Contact("ground", gap=q)],
    )
    pair = ns.Complementarity(forces[0], forces[1])
    cost = ca.sumsqr(forces - ca.DM([1.0, 0.5]))
    stay = ns.Constraint(system.x, [1, 0], [1, 0])
    ocp = ns.OCP(
        system,
        horizon=1.0,
        x0=[1, 0],
        stage_cost=cost,
        terminal_constraints=[stay],
        complementarities=[pair],
        bounds=ns.Bounds(u=(0, 5)),
    )
    solution = solved(ocp, ns.FESDJ(control_stages=2))
    np.testing.assert_allclose(solution.u, [[1, 0]] * 2, rtol=0, atol=1e-6)
    assert solution.objective == pytest.approx(0.25, abs=1e-7)


# --- mistakes: what was given, what was expected, what to do ---

MODES = ns.Modes("m", flows=[ca.vertcat(1, u), ca.vertcat(-1, u)], functions=x[0], signs=[[-1], [1]])
SYSTEM = ns.PSS(
    x=x, u=u, p=p, modes=MODES, algebraic=ns.Algebraic(z, z - x[0]), names={"p": ["a", "b"]}, p_default=[1, 2]
)
TIME = ns.FreeTime(1.0, 2.0)


def task(**changes: Any) -> ns.OCP:
    return ns.OCP(SYSTEM, **{"horizon": 1.0, "x0": [0, 0], **changes})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 1), "expected 0 < lower <= upper, both finite, given lower 0 and upper 1"),
        ((2, 1), "expected 0 < lower <= upper, both finite, given lower 2 and upper 1"),
        ((1, np.inf), "expected 0 < lower <= upper, both finite, given lower 1 and upper inf"),
        ((1, np.nan), "FreeTime: upper: contains NaN"),
        (("1", 2), "FreeTime: lower: expected one number, given '1'"),
        (([1, 2], 3), r"FreeTime: lower: expected one number, given \[1, 2\]"),
        ((None, 1), "FreeTime: lower: expected 1 numbers, given None"),
        ((1, 2, 3), "FreeTime: initial has to lie between 1 and 2, given 3"),
    ],
)
def test_bad_free_times(arguments: tuple, message: str) -> None:
    refused(message, ns.FreeTime, *arguments)


def test_a_free_time_starts_in_the_middle() -> None:
    assert ns.FreeTime(1, 4).initial == 2.5
    assert ns.FreeTime(2, 2).initial == 2.0
    assert task(horizon=TIME).horizon == 1.5
    assert "horizon free" in repr(task(horizon=TIME))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"stage_cost": TIME.symbol},
            "stage_cost uses the symbol of the free horizon, which only terminal",
        ),
        ({"path_constraints": [ns.Constraint(TIME.symbol, 0, 1)]}, "path constraint 0 uses the symbol of the free"),
        ({"initial_constraints": [ns.Constraint(TIME.symbol, 0, 1)]}, "give the system a symbol t="),
        ({"terminal_cost": ns.FreeTime(1, 2).symbol}, "terminal_cost depends on another symbol that is also called T"),
        ({"complementarities": [ns.Complementarity(u, TIME.symbol)]}, "complementarity_0 depends on T"),
    ],
)
def test_where_the_free_time_may_not_be_used(changes: dict[str, Any], message: str) -> None:
    refused(message, task, horizon=TIME, **changes)


def test_its_symbol_needs_it_as_horizon() -> None:
    refused("terminal_cost depends on T, which is not among x, x_initial, p", task, terminal_cost=TIME.symbol)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"c": (0, 1)}, "unknown parameter 'c'. Legal: a, b"),
        ({"aa": (0, 1)}, "unknown parameter 'aa'. Did you mean 'a'"),
        ({"a": (2, 3)}, r"the parameter a starts at 1, outside of its bounds \[2, 3\]; give p=... inside of them"),
        ({"a": (3, -3)}, "free parameter 'a': lower bound 3 above upper bound -3; swap them"),
        ({"a": 3}, r"free parameter 'a': expected a pair \(lower, upper\), given 3"),
        ({"a": (0, 1, 2)}, r"expected a pair \(lower, upper\), given \(0, 1, 2\)"),
        ({"a": (0, np.nan)}, "free parameter 'a'.*contains NaN at position 1"),
        (["a"], r"OCP: free_parameters: expected a mapping, given \['a'\]"),
        (None, "OCP: free_parameters: expected a mapping, given None"),
    ],
)
def test_bad_free_parameters(given: Any, message: str) -> None:
    refused(message, task, free_parameters=given)


def test_a_free_parameter_may_start_elsewhere() -> None:
    assert task(p=[2.5, 0], free_parameters={"a": (2, 3)}).free_parameters == {"a": (2.0, 3.0)}
    assert "free parameters: a" in repr(task(free_parameters={"a": (0, 3)}))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"terminal_cost": z}, "terminal_cost depends on z, which is not among x, x_initial, p"),
        ({"terminal_constraints": [ns.Constraint(z, 0, 1)]}, "terminal constraint 0 depends on z"),
        ({"initial_constraints": [ns.Constraint(z, 0, 1)]}, "initial constraint 0 depends on z"),
        (
            {"path_constraints": [ns.Constraint(z, 0, 1, name="low")]},
            "path constraint 'low' uses algebraic variables, which have values at RK stages only, but is imposed at "
            "'element_ends'; give at='rk_stages'",
        ),
        ({"path_constraints": [ns.Constraint(z, 0, 1, at="control_grid")]}, "is imposed at 'control_grid'; give at="),
        ({"stage_cost": STRANGER}, "stage_cost depends on stranger, which is not among x, z, u, p"),
        ({"bounds": ns.Bounds(x=(1, 2))}, r"x0 has x_0 = 0, outside of its bounds \[1, 2\]; widen them or move x0"),
    ],
)
def test_where_algebraic_variables_may_not_be_used(changes: dict[str, Any], message: str) -> None:
    refused(message, task, **changes)


PAIRED = ca.SX.sym("z", 2)


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        ((PAIRED, z), {}, "expected one equation for each of the 2 variables, given 1"),
        ((z, z), {"lower": 2, "upper": 1}, "a lower bound lies above its upper bound"),
        ((z, z), {"lower": [1, 2]}, "Algebraic: lower: expected 1 numbers, given 2"),
        ((z, z), {"initial": np.nan}, "Algebraic: initial: contains NaN"),
        ((z, z), {"names": ["a", "b"]}, r"names of z: expected 1 names, given \['a', 'b'\]"),
        ((z, z), {"names": "a"}, "names of z: expected 1 names, given 'a'"),
        ((ca.SX.sym("z", 0), ca.SX(0, 1)), {}, "expected at least one variable z"),
        ((2 * z, z), {}, "expected symbols made by ca.SX.sym, given the expression"),
        ((ca.MX.sym("z"), z), {}, "Algebraic: z: expected numbers or CasADi SX, given MX"),
        ((ca.vertcat(z, z), ca.vertcat(z, z)), {}, "symbol z is used twice in z"),
        ((z, x[0] - 1), {}, "do not determine z: their Jacobian in z is singular"),
        ((PAIRED, ca.vertcat(PAIRED[0], PAIRED[0] - 1)), {}, "differentiate equations without z in time"),
    ],
)
def test_bad_algebraic_variables(arguments: tuple, named: dict[str, Any], message: str) -> None:
    refused(message, ns.Algebraic, *arguments, **named)


def test_the_initial_value_is_moved_into_the_bounds() -> None:
    assert ns.Algebraic(z, z, initial=5.0, upper=1.0).initial[0] == 1.0


@pytest.mark.parametrize(
    ("algebraic", "message"),
    [
        ({"z": z}, "PSS: algebraic: expected ns.Algebraic, given dict"),
        (ns.Algebraic(z, z - STRANGER), "Algebraic: equations depends on stranger, which is not among x, z, u, p"),
        (ns.Algebraic(x[0], x[0]), "symbol x_0 is used in both x and z; make a symbol for each"),
        (ns.Algebraic(z, z, names=["x_0"]), "PSS: two components are named 'x_0'"),
        (ns.Algebraic(PAIRED, PAIRED, names=["a", "a"]), "PSS: two components are named 'a'"),
    ],
)
def test_algebraic_variables_that_do_not_fit_a_system(algebraic: Any, message: str) -> None:
    refused(message, ns.PSS, x=x, u=u, modes=MODES, algebraic=algebraic)


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        ((x, u), {}, "complementarity: a and b need the same length, given 2 and 1"),
        ((ca.SX(0, 1), ca.SX(0, 1)), {"name": "pair"}, "complementarity 'pair': a and b need the same length"),
        ((ca.MX.sym("a"), u), {}, "complementarity: a: expected numbers or CasADi SX, given MX"),
        ((None, u), {}, "complementarity: a: expected numbers or CasADi SX, given NoneType"),
        ((u, np.nan), {}, "complementarity: b: contains nan"),
        ((u, u), {"name": ""}, "the name has to be a non-empty string or None, given ''"),
    ],
)
def test_bad_complementarities(arguments: tuple, named: dict[str, Any], message: str) -> None:
    refused(message, ns.Complementarity, *arguments, **named)


PAIR = ns.Complementarity(u, x[0], name="pair")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"complementarities": PAIR},
            "a sequence of ns.Complementarity, given Complementarity; put it in a list",
        ),
        ({"complementarities": [(u, x[0])]}, "complementarities have to be ns.Complementarity objects, given tuple"),
        ({"complementarities": [ns.Complementarity(u, STRANGER, name="pair")]}, "OCP: pair depends on stranger"),
        ({"complementarities": [PAIR, PAIR]}, "two constraints are named 'pair'; give each a name of its own"),
        (
            {"complementarities": [PAIR], "path_constraints": [ns.Constraint(u, 0, 1, name="pair")]},
            "two constraints are named 'pair'",
        ),
    ],
)
def test_complementarities_that_do_not_fit(changes: dict[str, Any], message: str) -> None:
    refused(message, task, **changes)


def test_given_complementarities_are_not_renamed() -> None:
    pair = ns.Complementarity(u, x[0])
    assert task(complementarities=[pair]).complementarities[0].name == "complementarity_0"
    assert pair.name is None


@pytest.mark.parametrize(
    ("system", "method", "message"),
    [
        (SYSTEM, ns.FESDJ(), "FESDJ does not fit an ns.PSS; use ns.FESD"),
        (SYSTEM, ns.TimeFreezing(), "TimeFreezing does not fit an ns.PSS; use ns.FESD"),
        (ball(), ns.FESD(), r"FESD does not fit an ns.CLS; use ns.FESDJ\(...\) or ns.TimeFreezing"),
    ],
)
def test_methods_that_do_not_fit(system: Any, method: Any, message: str) -> None:
    ocp = ns.OCP(system, horizon=1.0)
    refused(message, ns.transcribe, ocp, method, error=ns.OptionError)


def test_filippov_systems_are_certified() -> None:
    ocp = task()
    certificate = ns.certify(ocp, ns.solve(ocp, ns.FESD(control_stages=1)))
    assert certificate.verdict in (ns.Verdict.CONFIRMED, ns.Verdict.INACCURATE), certificate.reason


def test_a_copy_of_a_problem_keeps_its_free_horizon() -> None:
    """Given another initial state by `dataclasses.replace`, the horizon stays free; a number fixes it."""
    horizon = ns.FreeTime(0.5, 10.0)
    ocp = ns.OCP(double_integrator(), horizon=horizon, x0=[0.0, 0.0], terminal_cost=horizon.symbol)
    assert replace(replace(ocp, x0=[0.1, 0.0]), stage_cost=1).free_time is horizon
    assert ocp.with_values(2.0, ocp.p).free_time is None
    assert ocp.with_values(ocp.horizon, ocp.p).free_time is None
