"""What users type first: comparisons, names, least squares, expressions of results."""

from copy import copy, deepcopy
from dataclasses import replace

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns

pytestmark = pytest.mark.quick

X, U = ca.SX.sym("x", 2), ca.SX.sym("u")
SYSTEM = ns.ODE(x=X, u=U, flow=ca.vertcat(X[1], U), names={"x": ["position", "speed"], "u": ["force"]})
METHOD = ns.FESD(control_stages=4, finite_elements=1)


def problem(**fields):
    """Least effort over one second."""
    return ns.OCP(SYSTEM, horizon=1.0, stage_cost=U**2, **{"x0": [0, 0], **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {"terminal_constraints": [ns.Constraint(X, [1, 0], [1, 0])]},
        {"terminal_constraints": [ns.Constraint(X, equals=[1, 0])]},
        {"terminal_constraints": [ca.DM([1, 0]) == X]},
        {"terminal_constraints": [X[0] == 1, ns.Constraint(X[1] == 0, name="rest")]},
        {"terminal_constraints": [X[0] >= 1, X[0] <= 1, X[1] == X[0] - 1]},
        {"terminal_state": {"position": 1, "speed": (0, 0)}},
        {"x0": {"position": 0.0}, "terminal_state": {"position": 1, "speed": 0}},
    ],
)
def test_one_meter_from_rest_to_rest(fields):
    """12 / (1 - 1 / 16) by four equal intervals, however it is written."""
    solution = ns.solve(problem(**fields), METHOD, certify=False)
    assert solution.objective == pytest.approx(12.8, abs=1e-6)


@pytest.mark.parametrize(
    ("bounds", "x", "u"),
    [
        ({"force": (-10, 10), "speed": (None, 1.4)}, ([-np.inf, -np.inf], [np.inf, 1.4]), ([-10], [10])),
        (ns.Bounds(x={"position": (0, 2)}, u=(-1, 1)), ([0, -np.inf], [2, np.inf]), ([-1], [1])),
        ({"force": (2, 2)}, ([-np.inf] * 2, [np.inf] * 2), ([2], [2])),
    ],
)
def test_bounds_by_name(bounds, x, u):
    """Pairs, None for no bound."""
    ocp = problem(bounds=bounds)
    np.testing.assert_array_equal(ocp.x_bounds, x)
    np.testing.assert_array_equal(ocp.u_bounds, u)


@pytest.mark.parametrize("bounds", [{"force": 5}, ns.Bounds(u={"force": 5}), {"speed": 5, "force": (-1, 1)}])
def test_one_number_is_no_bound(bounds):
    """It may be meant as the largest amount, as the upper bound or as the only value; a value at the end is one."""
    with pytest.raises(ns.ModelError, match=r"given 5; write \(-5, 5\) for .* \(None, 5\) for .* \(5, 5\) to fix it"):
        problem(bounds=bounds)
    assert problem(terminal_state={"speed": 5}).terminal_constraints[0].upper == pytest.approx(5)


def test_a_chained_comparison_says_what_to_write():
    with pytest.raises(ns.ModelError, match=r"ns\.Constraint\(q\[0\], -1, 1\)"):
        problem(path_constraints=[-1 <= X[0] <= 1])
    with pytest.raises(RuntimeError, match="and"):  # the type that CasADi raises, for code that expects it
        problem(path_constraints=[(X[0] <= 1) and (X[1] <= 1)])
    assert bool(X[0] == X[0])
    assert not bool(ca.SX(0))


def test_limits_of_a_system_are_bounds_of_its_problems():
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    names = {"q": ["place"], "v": ["speed"], "u": ["push"]}
    slide = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, names=names, limits={"place": (-1, 0.5)})
    assert "-1 <= place <= 0.5" in repr(slide)
    free = ns.OCP(slide, horizon=1.0, x0=[0, 0])
    np.testing.assert_array_equal(free.x_bounds, [[-1, -np.inf], [0.5, np.inf]])
    tighter = ns.OCP(slide, horizon=1.0, x0=[0, 0], bounds={"place": (-0.2, 2), "push": (-1, 1)})
    np.testing.assert_array_equal(tighter.x_bounds, [[-0.2, -np.inf], [0.5, np.inf]])
    with pytest.raises(ns.ModelError, match="limits"):
        ns.OCP(slide, horizon=1.0, x0=[0, 0], bounds={"place": (0.7, 2)})
    with pytest.raises(ns.ModelError, match="outside of its bounds"):
        ns.OCP(slide, horizon=1.0, x0={"place": 0.6})
    with pytest.raises(ns.ModelError, match="expected a pair"):
        replace(slide, limits={"place": 1})


def test_bounds_leave_the_time_alone():
    """A pair for all states, and rows for all but the time."""
    x, t = ca.SX.sym("x", 2), ca.SX.sym("t")
    system = ns.ODE(x=x, t=t, flow=[0, 0])
    for pair, lower in (((-1, 5), [-1, -1, -np.inf]), (([-1, -2], 5), [-1, -2, -np.inf])):
        np.testing.assert_array_equal(ns.OCP(system, horizon=9.0, bounds=ns.Bounds(x=pair)).x_bounds[0], lower)


def test_parameters_by_name():
    """Those that are not given keep their defaults."""
    x, p = ca.SX.sym("x"), ca.SX.sym("p", 2)
    system = ns.ODE(x=x, p=p, p_default=[1.0, 2.0], names={"p": ["a", "b"]}, flow=p[0] + p[1])
    assert ns.simulate(system, x0={"x_0": 1.0}, duration=1.0, p={"b": 3.0}).final_state[0] == pytest.approx(5.0)
    bare = ns.ODE(x=x, p=p, flow=p[0] + p[1])
    with pytest.raises(ns.ModelError, match="p: p_1 has no value, neither here nor in p_default"):
        ns.simulate(bare, x0=[1.0], duration=1.0, p={"p_0": 3.0})


def test_least_squares():
    """Numbers, vectors and matrices as weights."""
    value = ca.Function("f", [X], [ns.least_squares(X, [1, 0], weights=[10, 1])])
    assert float(value([3, 2])) == 44.0
    value = ca.Function("f", [X], [ns.least_squares(X, weights=[[2, 1], [1, 3]])])
    assert float(value([1, 2])) == 18.0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: problem(terminal_constraints=[X[0] != 1]), "expected comparisons by ==, <= or >=, given"),
        (lambda: problem(terminal_constraints=[ca.vertcat(X[0] == 1, X[1])]), "expected comparisons by"),
        (lambda: ns.Constraint(X[0] <= 1, lower=0), "is a comparison already"),
        (lambda: ns.Constraint(X[0], 1, equals=2), "equals= is both limits"),
        (lambda: ns.Constraint(X[0]), "has no limits; give lower, upper, or equals="),
        (lambda: problem(bounds={"knee": (0, 1)}), "unknown name in bounds 'knee'. Legal: position, speed, force"),
        (lambda: problem(bounds={"speed": (0, 1, 2)}), r"speed: expected a pair \(lower, upper\), given \(0, 1, 2\)"),
        (lambda: problem(bounds={"speed": (2, 1)}), "lower bound 2 above upper bound 1 in component speed"),
        (lambda: problem(bounds=3), "bounds have to be an ns.Bounds object or a mapping of names, given int"),
        (lambda: problem(x0={"knee": 0}), "unknown component of x0 'knee'. Legal: position, speed"),
        (lambda: problem(terminal_state={"knee": 0}), "unknown name in terminal_state 'knee'"),
        (lambda: ns.least_squares(X, [1, 2, 3]), "reference: expected 2 rows, or one number, given 3"),
        (lambda: ns.least_squares(X, weights=[1, -1]), "weights: expected nonnegative numbers"),
        (lambda: ns.least_squares(X, weights=[[1, 2], [2, 1]]), "symmetric and positive semidefinite"),
        (lambda: ns.least_squares(X, weights="a"), "weights: expected numbers, given 'a'"),
    ],
)
def test_mistakes_have_one_clear_error(make, message):
    """What was given, and what is expected."""
    with pytest.raises(ns.ModelError, match=message):
        make()


def ball():
    """A ball that bounces, with time, a control and a parameter."""
    q, v, u, p, t = (ca.SX.sym(name) for name in ("q", "v", "u", "e", "t"))
    floor = ns.Contact("floor", gap=q, restitution=p)
    return ns.CLS(q=q, v=v, u=u, p=p, p_default=[0.8], t=t, mass_matrix=1, force=u - 9.81, contacts=[floor])


def test_expressions_along_a_simulation():
    """At nodes and between them, before and after an impact; energy of a fall is constant."""
    s = ball()
    motion = ns.simulate(s, x0=[1, 0], duration=1.0)
    energy, impact = 0.5 * s.v**2 + 9.81 * s.q, motion.impacts[0].time
    nodes = motion.value(energy)
    assert nodes.shape == motion.t.shape
    np.testing.assert_allclose(nodes[motion.t < impact], 9.81, rtol=0, atol=1e-8)
    assert motion.sample(energy, impact, side="-") == pytest.approx(9.81, abs=1e-8)
    assert motion.sample(energy, impact) == pytest.approx(0.64 * 9.81, abs=1e-8)
    np.testing.assert_allclose(motion.sample(ca.vertcat(s.t, s.p), [0.1, 0.2]), [[0.1, 0.8], [0.2, 0.8]])
    assert motion.value(ca.horzcat(s.q, s.v)).shape == (len(motion.t), 1, 2)
    assert motion.value(s.p) == 0.8
    assert motion.value(s.x_initial).tolist() == [1, 0, 0]
    np.testing.assert_array_equal(motion.q[:, 0], motion["q_0"])
    np.testing.assert_array_equal(motion.v[:, 0], motion["v_0"])


def test_expressions_along_a_solution():
    """With the control and a free horizon, by `solve` and by a problem that is solved."""
    time = ns.FreeTime(0.5, 2.0)
    ocp = ns.OCP(
        SYSTEM,
        horizon=time,
        x0=[0, 0],
        terminal_cost=time.symbol,
        terminal_state={"position": 1, "speed": 0},
        bounds={"force": (-8, 8)},
    )
    for solution in (ns.solve(ocp, METHOD), ns.transcribe(ocp, METHOD).solve()):
        assert solution.value(time.symbol) == pytest.approx(1 / np.sqrt(2), abs=1e-6)
        power = solution.sample(U * X[1], 0.25 * solution.horizon)
        assert power == pytest.approx(8 * 8 * 0.25 * solution.horizon, abs=1e-5)


def test_results_that_do_not_know_their_system_say_so(tmp_path):
    """Loaded ones; copies and changed ones know it; and expressions of others."""
    motion = ns.simulate(ball(), x0=[1, 0], duration=0.2)
    path = motion.save(tmp_path / "motion.nc")
    with pytest.raises(ns.OptionError, match="this trajectory does not know its system, since it was loaded"):
        ns.load(path).value(ca.SX.sym("q"))
    for same in (replace(motion, message="changed"), copy(motion), deepcopy(motion)):
        assert same.q.tolist() == motion.q.tolist()
        again = ns.simulate(same.problem.system, x0=same.x[0], duration=same.duration)
        assert again.final_state == pytest.approx(motion.final_state, abs=1e-9)
    with pytest.raises(ns.ModelError, match="expression depends on another symbol that is also called q"):
        motion.value(ca.SX.sym("q"))
    with pytest.raises(ns.ModelError, match="expression: expected CasADi SX in the system's symbols, given 'q'"):
        motion.value("q")
    with pytest.raises(ns.OptionError, match=r"an ns\.ODE has states x, no coordinates and velocities"):
        _ = ns.simulate(SYSTEM, x0=[1, 0], duration=0.1).q
