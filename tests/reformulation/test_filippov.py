"""Filippov systems as DCS: at every state the equations and pairs are solved by the right flow, and by no other."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.reformulation.dcs import DCS, default_indicator
from nosnoc_py.reformulation.filippov import filippov_dcs, heaviside_dcs, projected_dcs, step_dcs, stewart_dcs

pytestmark = pytest.mark.quick

x, u, p = ca.SX.sym("x", 3), ca.SX.sym("u"), ca.SX.sym("p")
COUNT = 8
CORNERS = np.array(list(itertools.product((-1.0, 1.0), repeat=3)))


def three_functions() -> ns.PSS:
    """Eight regions by the signs of x, and the flow of region i is (i, i^2, u) so that flows tell the weights apart."""
    flows = [ca.vertcat(i, i**2, u) for i in range(COUNT)]
    cube = ns.Modes("cube", flows=flows, functions=x, signs=CORNERS, function_names=("a", "b", "c"))
    return ns.PSS(x=x, u=u, p=p, flow=ca.vertcat(p, 0, 0), modes=cube)


def two_partitions() -> ns.PSS:
    """Independent signs of x_0 and x_1."""
    return ns.PSS(
        x=x,
        u=u,
        flow=ca.vertcat(0, 0, u),
        modes=[
            ns.Modes("a", flows=[ca.vertcat(1, 0, 0), ca.vertcat(-1, 0, 0)], functions=x[0], signs=[[-1], [1]]),
            ns.Modes("b", flows=[ca.vertcat(0, 2, 0), ca.vertcat(0, -3, 0)], functions=x[1], signs=[[-1], [1]]),
        ],
    )


def values_of(dcs: DCS, state: Any, given: Mapping[str, Any], *, parameter: float = 0.0) -> dict[str, np.ndarray]:
    """Flow, equations, and the sides of the pairs, at a state and values of the variables by name (u = 0)."""
    z = np.concatenate([np.atleast_1d(np.asarray(given[v.name], dtype=float)).ravel() for v in dcs.variables])
    equations = ca.vertcat(ca.SX(0, 1), *[e.expression for e in dcs.equations])
    sides = [ca.vertcat(*[getattr(pair, side) for pair in dcs.pairs]) for side in ("a", "b")]
    function = ca.Function("dcs", [dcs.x, dcs.z, dcs.u, dcs.p], [dcs.flow, equations, *sides])
    numbers = function(state, z, np.zeros(dcs.u.numel()), np.full(dcs.p.numel(), parameter))
    return {key: np.array(v).ravel() for key, v in zip(("flow", "equations", "a", "b"), numbers, strict=True)}


def violation(found: Mapping[str, np.ndarray]) -> float:
    """Of the equations, of the signs, and of the products."""
    parts = (np.abs(found["equations"]), -found["a"], -found["b"], np.abs(found["a"] * found["b"]))
    return max(float(part.max(initial=0.0)) for part in parts)


# --- Stewart ---


def stewart_values(system: ns.PSS, state: np.ndarray, theta: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """theta as given, lambda = g - min g, mu = min g."""
    values: dict[str, np.ndarray] = {}
    for m in system.modes:
        g = np.array(ca.Function("g", [system.x, system.p], [m.indicators])(state, np.zeros(system.n_p))).ravel()
        values |= {f"theta[{m.name}]": theta[m.name], f"lambda[{m.name}]": g - g.min(), f"mu[{m.name}]": g.min()}
    return values


@pytest.mark.parametrize("region", range(COUNT))
def test_stewart_has_the_flow_of_the_region(region: int) -> None:
    system = three_functions()
    dcs, state = stewart_dcs(system), CORNERS[region] * [0.5, 2.0, 1.0]
    found = values_of(dcs, state, stewart_values(system, state, {"cube": np.eye(COUNT)[region]}), parameter=0.25)
    assert violation(found) < 1e-14
    np.testing.assert_allclose(found["flow"], [region + 0.25, region**2, 0.0], rtol=0, atol=1e-14)
    other = values_of(dcs, state, stewart_values(system, state, {"cube": np.eye(COUNT)[region - 1]}))
    assert violation(other) > 0.5  # another region is no solution


def test_stewart_slides_with_any_convex_combination() -> None:
    """At x_0 = 0 regions 3 and 7 have equal indicators: the equations leave their weights open, and no others."""
    system, state = three_functions(), np.array([0.0, 1.0, 2.0])
    dcs = stewart_dcs(system)
    theta = 0.3 * np.eye(COUNT)[3] + 0.7 * np.eye(COUNT)[7]
    found = values_of(dcs, state, stewart_values(system, state, {"cube": theta}))
    assert violation(found) < 1e-14
    assert found["flow"][0] == pytest.approx(0.3 * 3 + 0.7 * 7)
    wrong = 0.3 * np.eye(COUNT)[2] + 0.7 * np.eye(COUNT)[7]
    assert violation(values_of(dcs, state, stewart_values(system, state, {"cube": wrong}))) > 0.1
    heavy = 0.5 * np.eye(COUNT)[3] + 0.7 * np.eye(COUNT)[7]  # the weights sum to more than 1
    assert violation(values_of(dcs, state, stewart_values(system, state, {"cube": heavy}))) == pytest.approx(0.2)


def test_labels_of_stewart() -> None:
    dcs = stewart_dcs(two_partitions())
    names = ["theta[a]", "lambda[a]", "mu[a]", "theta[b]", "lambda[b]", "mu[b]"]
    assert [v.name for v in dcs.variables] == names
    assert dcs.variables[0].components == ("theta[a][0]", "theta[a][1]")
    assert [pair.name for pair in dcs.pairs] == ["a", "b"]
    assert dcs.pairs[1].a_labels == ("lambda[b][0]", "lambda[b][1]")
    assert dcs.pairs[1].b_labels == ("theta[b][0]", "theta[b][1]")
    assert all(pair.continuous and pair.cross == "left" for pair in dcs.pairs)
    labels = [label for e in dcs.equations for label in e.components]
    assert labels == ["g[a][0]", "g[a][1]", "simplex[a]", "g[b][0]", "g[b][1]", "simplex[b]"]
    assert "pair     a: lambda[a][0], lambda[a][1] with theta[a][0], theta[a][1]" in repr(dcs)


@pytest.mark.parametrize("mode", ["stewart", "step"])
def test_continuous_variables_have_their_equations_at_boundaries(mode: Any) -> None:
    """Equations at the boundaries use x and the variables that have values there, and determine these."""
    dcs = filippov_dcs(two_partitions(), dcs_mode=mode)
    kept = ca.vertcat(*[v.symbol for v in dcs.variables if v.boundary])
    inner = ca.vertcat(*[v.symbol for v in dcs.variables if not v.boundary])
    rows = ca.vertcat(*[e.expression for e in dcs.equations if e.boundary])
    assert not ca.depends_on(rows, inner)
    assert all(not ca.depends_on(pair.a, inner) for pair in dcs.pairs)
    pairs = kept.numel() - rows.numel()
    assert pairs == 2  # of 6 or 4 unknowns 4 or 2 equations; the smallest lambda of each partition is zero


# --- step functions ---


def step_values(dcs: DCS, functions: Mapping[str, float], alpha: Mapping[str, float]) -> dict[str, Any]:
    """alpha as given, the multipliers as the positive and negative parts, lifted products one after the other."""
    values: dict[str, Any] = {f"alpha[{name}]": a for name, a in alpha.items()}
    for v in dcs.variables:
        if v.name.startswith("lambda"):
            sign = 1.0 if v.name.startswith("lambda_p") else -1.0
            names = [component.split("[")[1].removesuffix("]") for component in v.components]
            values[v.name] = [max(sign * functions[name], 0.0) for name in names]
    symbols = {v.name: v.symbol for v in dcs.variables}
    for v in dcs.variables:
        if v.name.startswith("beta"):
            lift = next(e for e in dcs.equations if e.name == f"lift {v.name}")
            known = [name for name in values if name.startswith(("alpha", "beta"))]
            product = -ca.substitute(lift.expression, v.symbol, 0)
            function = ca.Function("lift", [symbols[name] for name in known], [product])
            values[v.name] = float(function(*[values[name] for name in known]))
    return values


NAMES = ("a", "b", "c")


@pytest.mark.parametrize("region", range(COUNT))
def test_step_functions_have_the_flow_of_the_region(region: int) -> None:
    system = three_functions()
    dcs, state = step_dcs(system), CORNERS[region] * [0.5, 2.0, 1.0]
    alpha = dict(zip(NAMES, (state > 0).astype(float), strict=True))
    functions = dict(zip(NAMES, state, strict=True))
    found = values_of(dcs, state, step_values(dcs, functions, alpha), parameter=0.25)
    assert violation(found) < 1e-14
    np.testing.assert_allclose(found["flow"], [region + 0.25, region**2, 0.0], rtol=0, atol=1e-14)
    wrong = {**alpha, "b": 1.0 - alpha["b"]}
    assert violation(values_of(dcs, state, step_values(dcs, functions, wrong))) > 0.5


def test_lifted_products_equal_the_products() -> None:
    """At the origin every alpha in [0, 1] is a solution: the flow is that of the products, weights that sum to 1."""
    dcs = step_dcs(three_functions())
    lifts = [v for v in dcs.variables if v.name.startswith("beta")]
    assert 0 < len(lifts) < COUNT  # shared prefixes are lifted once
    assert [lift.initial for lift in lifts] == [0.25] * len(lifts)  # of two functions that are 1/2
    rng = np.random.default_rng(0)
    for _ in range(5):
        a = rng.uniform(0, 1, 3)
        weights = np.where(CORNERS > 0, a, 1 - a).prod(axis=1)
        assert weights.sum() == pytest.approx(1.0)
        values = step_values(dcs, dict.fromkeys(NAMES, 0.0), dict(zip(NAMES, a, strict=True)))
        found = values_of(dcs, np.zeros(3), values)
        assert violation(found) < 1e-14
        index = np.arange(COUNT)
        np.testing.assert_allclose(found["flow"], [weights @ index, weights @ index**2, 0.0], rtol=0, atol=1e-13)
        wrong = {**values, lifts[0].name: values[lifts[0].name] + 0.1}
        assert violation(values_of(dcs, np.zeros(3), wrong)) == pytest.approx(0.1)


def test_no_product_has_more_than_two_factors() -> None:
    """Every equation and the flow are at most quadratic in the variables."""
    dcs = step_dcs(three_functions())
    rows = ca.vertcat(dcs.flow, *[e.expression for e in dcs.equations])
    third = rows
    direction = ca.SX.sym("d", dcs.z.numel())
    for _ in range(3):
        third = ca.jtimes(third, dcs.z, direction)
    function = ca.Function("third", [dcs.x, dcs.z, dcs.u, dcs.p, direction], [third])
    rng = np.random.default_rng(1)
    size = dcs.z.numel()
    numbers = function(rng.normal(size=3), rng.normal(size=size), 0.3, 0.1, rng.normal(size=size))
    assert np.abs(np.array(numbers)).max() < 1e-12


def test_one_or_two_functions_need_no_lifts() -> None:
    assert not [v for v in step_dcs(two_partitions()).variables if v.name.startswith("beta")]


def test_labels_of_step_functions() -> None:
    dcs = step_dcs(three_functions())
    assert [v.name for v in dcs.variables[:5]] == [
        "alpha[a]",
        "alpha[b]",
        "alpha[c]",
        "lambda_n[a, b, c]",
        "lambda_p[a, b, c]",
    ]
    low, high = dcs.pairs
    assert low.a_labels == ("lambda_n[a]", "lambda_n[b]", "lambda_n[c]")
    assert low.b_labels == ("alpha[a]", "alpha[b]", "alpha[c]")
    assert high.b_labels == ("1 - alpha[a]", "1 - alpha[b]", "1 - alpha[c]")
    assert low.continuous
    assert high.continuous
    assert all((v.lower, v.upper) == (0.0, 1.0) for v in dcs.variables[:3])


def test_partitions_add_up_in_both_forms() -> None:
    system, state = two_partitions(), np.array([-0.5, 2.0, 0.0])
    theta = {"a": [1.0, 0.0], "b": [0.0, 1.0]}
    stewart = values_of(stewart_dcs(system), state, stewart_values(system, state, theta))
    dcs = step_dcs(system)
    step = values_of(dcs, state, step_values(dcs, {"a": -0.5, "b": 2.0}, {"a": 0.0, "b": 1.0}))
    assert max(violation(stewart), violation(step)) < 1e-14
    np.testing.assert_allclose(stewart["flow"], [1.0, -3.0, 0.0], rtol=0, atol=1e-14)
    np.testing.assert_allclose(step["flow"], [1.0, -3.0, 0.0], rtol=0, atol=1e-14)


# --- step functions of the user's own ---


def steps(**changes: Any) -> ns.Heaviside:
    alpha = ca.SX.sym("alpha", 2)
    flow = ca.vertcat(1 - 2 * alpha[0], alpha[0] * alpha[1], u)
    return ns.Heaviside(x=x, u=u, alpha=alpha, functions=ca.vertcat(x[0], x[1] - 1), flow=flow, **changes)


@pytest.mark.parametrize("state", [[0.5, 2.0, 0.0], [-0.5, 2.0, 0.0], [0.5, 0.0, 0.0]])
def test_step_functions_of_the_users_own(state: list[float]) -> None:
    dcs, c = heaviside_dcs(steps()), {"c_0": state[0], "c_1": state[1] - 1}
    alpha = {name: float(value > 0) for name, value in c.items()}
    found = values_of(dcs, state, step_values(dcs, c, alpha))
    assert violation(found) < 1e-14
    assert found["flow"][0] == (-1.0 if state[0] > 0 else 1.0)
    assert found["flow"][1] == alpha["c_0"] * alpha["c_1"]


def test_one_value_per_element_where_asked_for() -> None:
    dcs = heaviside_dcs(steps(per_element=(1,), function_names=("left", "up")))
    flags = {v.name: v.per_element for v in dcs.variables}
    assert flags["alpha[up]"]
    assert not any(flag for name, flag in flags.items() if name != "alpha[up]")


# --- projections ---


def test_a_projected_system() -> None:
    """x' = f + E^-1 grad c lambda with 0 <= c against lambda >= 0, in a metric of its own."""
    metric = np.array([[2.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 4.0]])
    flow, constraints = ca.vertcat(u, 1, x[0]), ca.vertcat(x[0] ** 2 + x[1] - p, x[2])
    system = ns.PDS(
        x=x, u=u, p=p, flow=flow, constraints=constraints, metric=metric, constraint_names=("bowl", "floor")
    )
    dcs = projected_dcs(system)
    state, force = np.array([0.5, 0.75, 0.3]), np.array([2.0, 0.0])
    found = values_of(dcs, state, {"lambda": force}, parameter=1.0)
    assert violation(found) < 1e-15
    gradient = np.array([[2 * state[0], 1.0, 0.0], [0.0, 0.0, 1.0]])
    expected = np.array([0.0, 1.0, state[0]]) + np.linalg.solve(metric, gradient.T @ force)
    np.testing.assert_allclose(found["flow"], expected, rtol=0, atol=1e-14)
    assert violation(values_of(dcs, state, {"lambda": [2.0, 1.0]}, parameter=1.0)) == pytest.approx(0.3)
    assert violation(values_of(dcs, state, {"lambda": [-1.0, 0.0]}, parameter=1.0)) == pytest.approx(1.0)
    (pair,) = dcs.pairs
    assert (pair.components, pair.events) == (("bowl", "floor"), ("contact", "release"))
    assert (pair.a_labels, pair.b_labels) == (("c[bowl]", "c[floor]"), ("lambda[bowl]", "lambda[floor]"))
    assert not pair.continuous


# --- what tells events ---


@pytest.mark.parametrize("mode", ["stewart", "step"])
@pytest.mark.parametrize("region", range(COUNT))
def test_switches_tell_the_sides(mode: Any, region: int) -> None:
    """The members whose b is active have the sign of the function, for every function in every region."""
    system = three_functions()
    dcs, state = filippov_dcs(system, dcs_mode=mode), CORNERS[region]
    if mode == "stewart":
        values: Mapping[str, Any] = stewart_values(system, state, {"cube": np.eye(COUNT)[region]})
    else:
        alpha = dict(zip(NAMES, (state > 0).astype(float), strict=True))
        values = step_values(dcs, dict(zip(NAMES, state, strict=True)), alpha)
    b = values_of(dcs, state, values)["b"]
    starts = np.cumsum([0, *[pair.a.numel() for pair in dcs.pairs]])
    at = {pair.name: int(start) for pair, start in zip(dcs.pairs, starts[:-1], strict=True)}
    assert [switch.name for switch in dcs.switches] == list(NAMES)
    for switch, sign in zip(dcs.switches, state, strict=True):
        sides = {side for pair, i, side in switch.members if b[at[pair] + i] > 0.5}
        assert sides == {sign}


def test_switches_of_indicators_are_the_regions() -> None:
    flows = [ca.SX([k, 0, 0]) for k in range(3)]
    dcs = stewart_dcs(ns.PSS(x=x, modes=ns.Modes("nearest", flows=flows, indicators=x)))
    (switch,) = dcs.switches
    assert switch.name == "nearest"
    assert switch.members == (("nearest", 0, 0.0), ("nearest", 1, 1.0), ("nearest", 2, 2.0))


def test_expanded_regions_share_a_side() -> None:
    """A region that the second function does not bound is both of its corners, on one side of the first."""
    flows = [ca.SX([k, 0, 0]) for k in range(3)]
    signs = [[-1, -1], [-1, 1], [1, 0]]
    made = ns.Modes("m", flows=flows, functions=x[:2], signs=signs)
    first, second = stewart_dcs(ns.PSS(x=x, modes=made)).switches
    assert sorted(side for _, _, side in first.members) == [-1.0, -1.0, 1.0, 1.0]
    assert sorted(side for _, _, side in second.members) == [-1.0, -1.0, 1.0, 1.0]
    assert (first.name, second.name) == ("m[0]", "m[1]")


def test_step_equilibration_looks_at_every_pair() -> None:
    dcs = step_dcs(two_partitions())
    indicator = default_indicator(dcs.pairs)
    assert len(indicator.parts) == sum(pair.a.numel() for pair in dcs.pairs) == 4


# --- what is carried over ---


@pytest.mark.parametrize("mode", ["stewart", "step"])
def test_costs_names_and_scales_are_carried_over(mode: Any) -> None:
    made = ns.Modes("m", flows=[[1, 0, 0], [-1, 0, 0]], functions=x[0], signs=[[-1], [1]])
    z = ca.SX.sym("z")
    system = ns.PSS(
        x=x,
        u=u,
        p=p,
        modes=made,
        names={"x": ["a", "b", "c"], "u": ["push"], "p": ["mass"]},
        units={"a": "m"},
        nominal={"x": [1, 2, 3], "u": 7.0},
        algebraic=ns.Algebraic(z, z - x[0] * u, names=["power"], lower=-3, upper=4, initial=1),
    )
    dcs = filippov_dcs(system, running_cost=u**2 + z, dcs_mode=mode)
    assert (dcs.x_names, dcs.u_names, dcs.p_names) == (("a", "b", "c"), ("push",), ("mass",))
    np.testing.assert_array_equal(dcs.x_scale, [1, 2, 3])
    np.testing.assert_array_equal(dcs.u_scale, [7.0])
    assert dcs.units["a"] == "m"
    own = dcs.variables[-1]
    assert own.components == ("power",)
    np.testing.assert_array_equal([own.lower, own.upper, own.initial], [[-3], [4], [1]])
    assert dcs.equations[-1].components == ("0 = power",)
    cost = ca.Function("cost", [dcs.x, dcs.z, dcs.u], [dcs.running_cost])
    values = np.zeros(dcs.z.numel())
    values[-1] = 5.0
    assert float(cost([0, 0, 0], values, 2.0)) == 9.0
    assert dcs.jump is None


@pytest.mark.parametrize("mode", ["stewart", "step"])
def test_estimates_satisfy_the_equations_where_one_region_is_active(mode: Any) -> None:
    """The guesses of the continuous multipliers are their values."""
    system, state = three_functions(), np.array([0.4, -1.0, 2.0])
    dcs = filippov_dcs(system, dcs_mode=mode)
    kept = [v for v in dcs.variables if v.boundary]
    assert all(v.estimate is not None for v in kept)
    symbols = [v.symbol for v in kept]
    estimates = [np.array(ca.Function("e", [dcs.x, dcs.p], [v.estimate])(state, 0.0)) for v in kept]
    rows = ca.vertcat(*[e.expression for e in dcs.equations if e.boundary])
    found = ca.Function("rows", [dcs.x, dcs.p, *symbols], [rows])(state, 0.0, *estimates)
    assert np.abs(np.array(found)).max() < 1e-14


def test_indicators_have_no_step_functions() -> None:
    flows = [ca.SX([k, 0, 0]) for k in range(3)]
    system = ns.PSS(x=x, modes=ns.Modes("nearest", flows=flows, indicators=x))
    with pytest.raises(ns.OptionError, match="step functions need switching functions and signs, but modes 'nearest'"):
        step_dcs(system)
