"""What robust plans are made of: distributions and scenarios, success of laws, risk, derivatives of closed loops."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import casadi as ca
import numpy as np
import pytest
from scipy.stats import norm

import nosnoc_py as ns
from nosnoc_py.control.policy_step import Risk, step_of
from nosnoc_py.control.requirements import Requirements
from nosnoc_py.control.scenarios import LoopModel, LoopRows, LoopRun, ScenarioLoops

pytestmark = pytest.mark.quick
STAGES = ns.FESDJ(control_stages=5)


def cart(limit: float = 20.0, goal: tuple[float, float] = (0.6, 0.8), cost: float = 1.0) -> ns.OCP:
    """Return a cart that meets a wall at 2 m/s after half a second and has to be in an interval after one."""
    q, v, u, p = (ca.SX.sym(name, n) for name, n in (("q", 1), ("v", 1), ("u", 1), ("p", 2)))
    wall = ns.Contact("wall", gap=p[1] - q, restitution=p[0])
    names = {"q": ["place"], "v": ["speed"], "p": ["restitution", "wall"]}
    system = ns.CLS(q=q, v=v, u=u, p=p, p_default=[0.5, 1.0], mass_matrix=1, force=u, contacts=[wall], names=names)
    return ns.OCP(
        system, horizon=1.0, x0=[0, 2], stage_cost=cost * u**2, terminal_state={"place": goal},
        bounds=ns.Bounds(u=(-limit, limit)),
    )  # fmt: skip


@cache
def law(limit: float) -> ns.TrackingLaw:
    """Return a law for the cart without control."""
    ocp = cart(limit)
    plan = ns.simulate(ocp.system, x0=ocp.x0, duration=1.0, u=0.0)
    return ns.track(plan, period=0.05, bounds=(-limit, limit)).for_problem(ocp)


# --- distributions ---


def test_draws_have_the_given_distributions_and_correlation():
    uncertain = ns.Uncertain(
        parameters={"a": (2.0, 6.0), "b": norm(1.0, 0.5)}, x0={"c": [1.0, 2.0, 2.5, 7.0]},
        correlation={("a", "b"): 0.8},
    )  # fmt: skip
    a, b, c = uncertain.draws(20000, seed=3).T
    assert abs(a.mean() - 4.0) < 0.03
    assert abs(a.std() - 4 / np.sqrt(12)) < 0.02
    assert abs(b.mean() - 1.0) < 0.02
    assert abs(b.std() - 0.5) < 0.01
    assert abs(np.median(c) - 2.25) < 0.05
    assert c.min() >= 1.0
    assert c.max() <= 7.0
    # Of a Gaussian copula: the correlation of the normal numbers.
    assert abs(np.corrcoef(norm.ppf((a - 2) / 4), (b - 1) / 0.5)[0, 1] - 0.8) < 0.02
    assert abs(np.corrcoef(a, c)[0, 1]) < 0.03


def test_measured_values_keep_their_rank_correlation():
    rng = np.random.default_rng(0)
    one = rng.standard_normal(500)
    other = np.exp(one + 0.5 * rng.standard_normal(500))
    values = ns.Uncertain(parameters={"a": one, "b": other}).draws(5000, seed=1)
    ranks = [np.corrcoef(np.argsort(np.argsort(pair[0])), np.argsort(np.argsort(pair[1])))[0, 1] for pair in (
        (one, other), values.T,
    )]  # fmt: skip
    assert abs(ranks[0] - ranks[1]) < 0.03


@pytest.mark.parametrize(("count", "degree"), [(1, 5), (2, 5), (4, 3)])
def test_scenarios_are_a_quadrature(count: int, degree: int):
    uncertain = ns.Uncertain(parameters={f"p{i}": norm(0, 1) for i in range(count)})
    nodes, weights = uncertain.scenarios("expected")
    assert abs(weights.sum() - 1.0) < 1e-14
    assert not nodes[0].any()
    for power in range(1, degree + 1):
        moment = {2: 1.0, 4: 3.0}.get(power, 0.0)
        assert abs(weights @ nodes[:, 0] ** power - moment) < 1e-12


def test_worst_scenarios_are_the_ends_of_what_is_bounded():
    uncertain = ns.Uncertain(parameters={"a": (1.0, 3.0), "b": norm(0.0, 1.0)}, coverage=0.9)
    values = uncertain.values(uncertain.scenarios("worst")[0])
    assert np.allclose(sorted(set(values[1:, 0].round(9))), [1.0, 3.0], atol=1e-6)
    assert np.allclose(sorted(set(values[1:, 1].round(6))), [-1.644854, 1.644854], atol=1e-5)
    assert len(values) == 5


def test_worst_scenarios_are_the_ends_of_correlated_quantities_too():
    uncertain = ns.Uncertain(parameters={"a": (0.0, 1.0), "b": norm(0.0, 1.0)}, correlation={("a", "b"): 0.5})
    values = uncertain.values(uncertain.scenarios("worst")[0])
    assert np.allclose(np.abs(values[1:, 1]), norm.ppf(0.975), atol=1e-6)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "nothing is uncertain"),
        ({"parameters": {"a": (2.0, 1.0)}}, "lower < upper"),
        ({"parameters": {"a": "wide"}}, "distribution of scipy.stats"),
        ({"parameters": {"a": (0, 1)}, "x0": {"a": (0, 1)}}, "same name"),
        ({"parameters": {"a": (0, 1)}, "correlation": {("a", "b"): 0.5}}, "Legal"),
        ({"parameters": {"a": (0, 1), "b": (0, 1)}, "correlation": {("a", "b"): 1.5}}, "between -1 and 1"),
        ({"parameters": {"a": (0, 1)}, "coverage": 2.0}, "coverage"),
    ],
)
def test_a_wrong_distribution_is_an_error(given: dict, words: str):
    with pytest.raises(ns.OptionError, match=words):
        ns.Uncertain(**given)


def test_contradicting_correlations_are_an_error():
    three = dict.fromkeys("abc", (0.0, 1.0))
    with pytest.raises(ns.OptionError, match="contradict"):
        ns.Uncertain(parameters=three, correlation={("a", "b"): 0.9, ("b", "c"): 0.9, ("a", "c"): -0.9})


def test_solve_names_what_does_not_fit():
    ocp = cart()
    with pytest.raises(ns.OptionError, match="restitution"):
        ns.solve(ocp, STAGES, uncertain=ns.Uncertain(parameters={"restitucion": (0, 1)}))
    with pytest.raises(ns.OptionError, match="give uncertain"):
        ns.solve(ocp, STAGES, measure="worst")
    with pytest.raises(ns.OptionError, match="quantile"):
        ns.solve(ocp, STAGES, uncertain=ns.Uncertain(parameters={"restitution": (0, 1)}), measure="quantile")


# --- success ---


def test_success_of_a_closed_form():
    # Without control the cart ends at 1 - e: in (0.6, 0.8) for e in (0.2, 0.4), a third of (0.1, 0.7).
    uncertain = ns.Uncertain(parameters={"restitution": (0.1, 0.7)})
    test = law(0.0).success(40, seed=1, uncertain=uncertain)
    low, high = test.interval
    exact = (test.values[:, 0] > 0.2) & (test.values[:, 0] < 0.4)
    assert (test.held == exact).all()
    assert low < 1 / 3 < high
    assert abs(test.predicted - 1 / 3) < 0.005
    assert test.missed == {"terminal_state": int((~exact).sum())}
    assert "33" in repr(test).split("predicted")[1]


def test_the_interval_is_that_of_clopper_and_pearson():
    held = ns.Success(names=("a",), values=np.zeros((10, 1)), constraints=("c",), violations=np.zeros((10, 1)))
    low, high = held.interval
    assert abs(low - 0.025 ** (1 / 10)) < 1e-12
    assert high == 1.0


def test_a_simulation_that_stops_counts_as_missed_and_an_equation_has_a_tolerance():
    ocp = cart(0.0, goal=(0.5, 0.5))
    uncertain = ns.Uncertain(parameters={"restitution": (0.4, 0.6)})
    # The cart ends at 1 - e, and the size of its place is 2 m (the way at its speed) or 0.5 m: within e = 0.5 +- delta.
    sizes = Requirements(ocp, tolerance=0.01).end.sizes
    test = law(0.0).success(30, uncertain=uncertain, ocp=ocp, tolerance=0.01, predict=False)
    assert (test.held == (np.abs(test.values[:, 0] - 0.5) <= sizes[0])).all()
    required = Requirements(ocp)
    stopped = replace(ns.simulate(ocp.system, x0=[0, 2], duration=1.0, u=0.0), status=ns.Status.ZENO)
    assert np.isinf(required.excesses(stopped, ocp.p)).all()


def test_path_constraints_and_bounds_are_measured_between_the_samples():
    ocp = cart(0.0)
    system = ocp.system
    bounded = ns.OCP(
        system, horizon=1.0, x0=[0, 2], bounds=ns.Bounds(x=([-1, -3], [0.95, 3])), path_constraints=[system.v >= -0.8],
    )  # fmt: skip
    motion = ns.simulate(system, x0=[0, 2], duration=1.0, u=0.0)
    required = Requirements(bounded)
    over = required.excesses(motion, bounded.p).max(axis=1)
    found = dict(zip(required.labels, over, strict=True))
    # The wall is at 1 m, and the cart leaves it at -1 m/s.
    assert abs(found["bound of place"] - 0.05 / 0.975) < 1e-9
    assert found["bound of speed"] < 0.0
    assert found["path_constraint_0" if "path_constraint_0" in found else required.labels[0]] > 0.0


# --- risk ---


def test_conditional_value_at_risk():
    values, weights = np.array([1.0, 4.0, 2.0, 3.0]), np.full(4, 0.25)
    of = {level: Risk(level=level, weights=weights, penalty=1.0).of(values) for level in (0.0, 0.5, 0.75, 1.0)}
    assert of == pytest.approx({0.0: 2.5, 0.5: 3.5, 0.75: 4.0, 1.0: 4.0}, abs=1e-12)


@cache
def short() -> ns.Trajectory:
    return ns.simulate(cart().system, x0=[0, 2], duration=0.1, u=0.0)


def _one(cost: float, values: list[float]) -> LoopRun:
    motion = short()
    x = np.zeros((2, 2))
    return LoopRun(motion=motion, x=x, before=x[1:], u=np.zeros((1, 1)), cost=cost, rows=np.array(values))


@pytest.mark.parametrize("level", [0.0, 0.5, 1.0])
def test_a_step_minimises_the_risk_of_quadratic_models(level: float):
    # Costs (d - 1)^2 and (d + 1)^2 / 2 of one control, without constraints.
    runs = [_one(1.0, []), _one(0.5, [])]
    models = [
        LoopModel(gradient=np.array([-2.0]), hessian=np.array([[2.0]]), jacobian=np.zeros((0, 1)), flags=0),
        LoopModel(gradient=np.array([1.0]), hessian=np.array([[1.0]]), jacobian=np.zeros((0, 1)), flags=0),
    ]
    rows = LoopRows(lower=np.zeros(0), upper=np.zeros(0), sizes=np.zeros(0), group=np.zeros(0, int))
    risk = Risk(level=level, weights=np.array([0.5, 0.5]), penalty=1.0)
    d, bounds, multipliers = 0.0, (np.array([-2.0]), np.array([2.0])), risk.weights
    # The program linearises the costs in their order: repeated steps converge to the minimum.
    for _ in range(25):
        runs = [_one((d - 1) ** 2, []), _one(0.5 * (d + 1) ** 2, [])]
        models = [replace(models[0], gradient=np.array([2 * (d - 1)])), replace(models[1], gradient=np.array([d + 1]))]
        step = step_of(runs, models, rows, risk, bounds, np.ones(1), multipliers)
        d, multipliers = d + 0.5 * float(step.change[0]), step.multipliers
    grid = np.linspace(-2, 2, 400001)
    losses = np.array([(grid - 1) ** 2, 0.5 * (grid + 1) ** 2])
    exact = {0.0: losses.mean(axis=0), 1.0: losses.max(axis=0), 0.5: losses.max(axis=0)}[level]
    assert abs(d - grid[exact.argmin()]) < 1e-3


def test_a_step_keeps_a_constraint_with_its_margin():
    # Cost d^2, and d >= 1 of size 1: with the margin of 0.05 the step ends at 1.05.
    run = _one(0.0, [0.0])
    model = LoopModel(gradient=np.zeros(1), hessian=np.array([[2.0]]), jacobian=np.ones((1, 1)), flags=0)
    rows = LoopRows(lower=np.ones(1), upper=np.full(1, np.inf), sizes=np.ones(1), group=np.zeros(1, int))
    risk = Risk(level=0.0, weights=np.ones(1), penalty=100.0)
    step = step_of([run], [model], rows, risk, (np.array([-5.0]), np.array([5.0])), np.ones(1), np.ones(1))
    assert abs(step.change[0] - 1.05) < 1e-6


# --- derivatives of closed loops ---


@pytest.mark.parametrize("restitution", [0.5, 0.8])
def test_derivatives_of_a_closed_loop_equal_differences(restitution: float):
    # The plant has another restitution than the plan, so that the feedback acts before and after the impact.
    own = law(20.0)
    loops = ScenarioLoops(Requirements(cart()), np.array([[0.02, 2.0]]), np.array([[restitution, 1.01]]), np.ones(1))
    (run,) = loops.runs(own)
    (model,) = loops.models(own, [run])
    v = own.controls - own.corrections
    assert len(run.motion.impacts) == 1
    assert model.flags == 0
    for k in (0, 5, 12, 19):
        ends = []
        for sign in (1.0, -1.0):
            moved = v.copy()
            moved[k] += sign * 1e-5
            ends.append(loops.runs(own.with_feedforward(moved))[0])
        cost = (ends[0].cost - ends[1].cost) / 2e-5
        rows = (ends[0].rows - ends[1].rows) / 2e-5
        assert abs(model.gradient[k] - cost) < 1e-6 * max(1.0, abs(cost))
        assert np.abs(model.jacobian[:, k] - rows).max() < 1e-7


def test_a_control_at_its_limit_has_no_derivative():
    own = law(0.0)
    loops = ScenarioLoops(Requirements(cart(0.0)), np.array([[0.02, 2.0]]), np.array([[0.5, 1.0]]), np.ones(1))
    (model,) = loops.models(own, loops.runs(own))
    assert not model.gradient.any()
    assert not model.jacobian.any()
