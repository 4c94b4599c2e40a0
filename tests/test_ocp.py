"""OCP, Constraint, Bounds: defaults, and one clear error before any solve for each mistake."""

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns

pytestmark = pytest.mark.quick

q, v, u, p = (ca.SX.sym(name, n) for name, n in (("q", 2), ("v", 2), ("u", 1), ("p", 1)))
STRANGER = ca.SX.sym("stranger")
SYSTEM = ns.CLS(
    q=q,
    v=v,
    u=u,
    p=p,
    mass_matrix=ca.DM.eye(2),
    force=ca.vertcat(u, -p),
    contacts=[ns.Contact("ground", gap=q[1])],
    names={"q": ["x", "y"], "v": ["v_x", "v_y"], "u": ["thrust"]},
    p_default=[9.81],
)


def ocp(**changes):
    return ns.OCP(changes.pop("system", SYSTEM), **{"horizon": 2.0, "x0": [0, 1, 0, 0], **changes})


def refused(message, build, *arguments, **named):
    with pytest.raises(ns.ModelError, match=message) as caught:
        build(*arguments, **named)
    return str(caught.value)


# What is derived ----------------------------------------------------------------------------------------------------


def test_defaults():
    o = ocp(x0=None)
    assert o.x0 is None
    assert o.horizon == 2.0
    assert np.array_equal(o.p, [9.81])
    assert np.array_equal(o.x_bounds, [[-np.inf] * 4, [np.inf] * 4])
    assert np.array_equal(o.u_bounds, [[-np.inf], [np.inf]])
    assert float(o.stage_cost) == float(o.terminal_cost) == 0.0


def test_scalar_bounds_are_repeated_and_vectors_kept():
    o = ocp(bounds=ns.Bounds(x=(-5, [1, 2, 3, 4]), u=([-10], 10)))
    assert np.array_equal(o.x_bounds, [[-5] * 4, [1, 2, 3, 4]])
    assert np.array_equal(o.u_bounds, [[-10], [10]])
    assert np.array_equal(ocp(bounds=ns.Bounds(x=(None, 3))).x_bounds, [[-np.inf] * 4, [3] * 4])


def test_constraints_get_names_bounds_and_places():
    o = ocp(
        path_constraints=[ns.Constraint(q[0], upper=1), ns.Constraint(v, -1, [1, 2], name="speed", at="rk_stages")],
        initial_constraints=[ns.Constraint(q[0], 0, 0)],
        terminal_constraints=(ns.Constraint(q[0], 3, 3),),
    )
    assert [c.name for c in o.path_constraints] == ["path_0", "speed"]
    assert o.initial_constraints[0].name == "initial_0"
    assert o.terminal_constraints[0].name == "terminal_0"
    assert (o.path_constraints[0].lower[0], o.path_constraints[0].upper[0]) == (-np.inf, 1.0)
    assert np.array_equal(o.path_constraints[1].upper, [1.0, 2.0])
    assert (o.path_constraints[0].at, o.path_constraints[1].at) == ("element_ends", "rk_stages")


def test_given_constraints_are_not_renamed():
    constraint = ns.Constraint(q[0], 0, 0)
    ocp(path_constraints=[constraint])
    assert constraint.name is None


def test_repr_counts():
    text = repr(ocp(path_constraints=[ns.Constraint(q[0], 0, 1)]))
    assert "OCP: horizon 2 s, x0 [0. 1. 0. 0.], constraints: 1 path, 0 initial, 0 terminal" in text
    assert "x0 free" in repr(ocp(x0=None))


def test_x0_is_checked_with_the_given_parameters():
    low = ns.CLS(q=q, v=v, p=p, mass_matrix=ca.DM.eye(2), force=[0, 0], contacts=[ns.Contact("step", gap=q[1] - p)])
    ns.OCP(low, horizon=1, x0=[0, 1, 0, 0], p=1.0)
    refused(r"x0 penetrates contact 'step': its gap is -0\.5,", ns.OCP, low, horizon=1, x0=[0, 1, 0, 0], p=1.5)


# Where which symbols are allowed ------------------------------------------------------------------------------------


def test_the_initial_state_may_enter_terminal_terms():
    tie = SYSTEM.x - SYSTEM.x_initial
    o = ocp(terminal_cost=ca.sumsqr(tie), terminal_constraints=[ns.Constraint(tie, 0, 0, name="periodic")])
    assert o.terminal_constraints[0].expression.shape == (4, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stage_cost": STRANGER**2}, "OCP: stage_cost depends on stranger, which is not among x, u, p"),
        ({"stage_cost": SYSTEM.x_initial[0]}, "OCP: stage_cost depends on x_initial_0, which is not among x, u, p"),
        ({"terminal_cost": u**2}, "OCP: terminal_cost depends on u, which is not among x, x_initial, p"),
        ({"path_constraints": [ns.Constraint(STRANGER, 0, 1)]}, "OCP: path constraint 0 depends on stranger"),
        (
            {"path_constraints": [ns.Constraint(q - SYSTEM.x_initial[:2], 0, 1, name="near")]},
            "OCP: path constraint near depends on x_initial_0, x_initial_1, which is not among x, u, p",
        ),
        ({"initial_constraints": [ns.Constraint(u, 0, 1)]}, "OCP: initial constraint 0 depends on u, which is not"),
        ({"terminal_constraints": [ns.Constraint(u, 0, 1)]}, "OCP: terminal constraint 0 depends on u, which is not"),
    ],
)
def test_foreign_symbols(changes, message):
    refused(message, ocp, **changes)


def test_symbols_with_equal_names_are_still_foreign():
    refused("stage_cost depends on another symbol that is also called q_0", ocp, stage_cost=ca.SX.sym("q", 2)[0] ** 2)


# Mistakes: the problem ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("horizon", "message"),
    [
        (0, "OCP: horizon: expected a positive number, given 0"),
        (-1.5, "OCP: horizon: expected a positive number, given -1.5"),
        (np.inf, "OCP: horizon: expected a positive number, given inf"),
        (np.nan, "OCP: horizon: contains NaN"),
        ("2", "OCP: horizon: expected one number, given '2'"),
        ([1, 2], r"OCP: horizon: expected one number, given \[1, 2\]"),
        (None, "OCP: horizon: expected 1 numbers, given None"),
        (True, "OCP: horizon: expected one number, given True"),
        (ca.SX.sym("T"), "OCP: horizon: expected"),
    ],
)
def test_bad_horizons(horizon, message):
    refused(message, ocp, horizon=horizon)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"system": "ball"}, "OCP: the first argument has to be a system such as ns.CLS, given str"),
        ({"system": None}, "has to be a system such as ns.CLS, given NoneType"),
        ({"system": ns.CLS}, "has to be a system such as ns.CLS, given type"),
        ({"x0": [0, 1]}, "x0: expected 4 numbers, given 2"),
        ({"x0": [0, np.nan, 0, 0]}, "x0: contains NaN at position 1"),
        ({"x0": [0, np.inf, 0, 0]}, "x0: every component has to be finite"),
        ({"x0": [0, -0.125, 0, 0]}, "x0 penetrates contact 'ground': its gap is -0.125, expected >= 0"),
        ({"p": [1, 2]}, "OCP: p: expected 1 numbers, given 2"),
        ({"p": np.nan}, "OCP: p: contains NaN at position 0"),
        ({"p": np.inf}, "OCP: p: every component has to be finite"),
        ({"p": "9.81"}, "OCP: p: expected 1 numbers, given '9.81'"),
        ({"stage_cost": q}, "stage_cost: expected a scalar, given 2 rows"),
        ({"stage_cost": np.nan}, "stage_cost: contains nan"),
        ({"stage_cost": ca.MX.sym("c")}, "stage_cost: expected numbers or CasADi SX, given MX; write it in SX"),
        ({"terminal_cost": q * np.nan}, "terminal_cost"),
        ({"terminal_cost": None}, "terminal_cost: expected numbers or CasADi SX, given NoneType"),
        ({"bounds": {"knee": (0, 1)}}, "unknown name in bounds 'knee'"),
        ({"bounds": None}, "OCP: bounds have to be an ns.Bounds object or a mapping of names, given NoneType"),
    ],
)
def test_bad_problems(changes, message):
    refused(message, ocp, **changes)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (ns.Bounds(x=([0, 0, 2, 0], 1)), "bounds x: lower bound 2 above upper bound 1 in component v_x; swap them"),
        (ns.Bounds(u=(1, -1)), "bounds u: lower bound 1 above upper bound -1 in component thrust; swap them"),
        (ns.Bounds(u=(np.inf, np.inf)), "bounds u: no number lies between inf and inf in component thrust"),
        (ns.Bounds(u=(-np.inf, -np.inf)), "bounds u: no number lies between -inf and -inf in component thrust"),
        (ns.Bounds(x=([0, np.nan, 0, 0], 1)), "bounds x: lower bound: contains NaN at position 1"),
        (ns.Bounds(x=(0, [1, 1])), "bounds x: upper bound: expected 4 numbers, given 2"),
        (ns.Bounds(x=3), r"bounds x: expected a pair \(lower, upper\), given 3"),
        (ns.Bounds(u=(-1, 0, 1)), r"bounds u: expected a pair \(lower, upper\), given \(-1, 0, 1\)"),
        (ns.Bounds(u=("a", 1)), "bounds u: lower bound: expected 1 numbers, given 'a'"),
    ],
)
def test_bad_bounds(bounds, message):
    refused(message, ocp, bounds=bounds)


# Mistakes: constraints ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        ((q, 1, 0), {}, "constraint: lower bound 1 above upper bound 0 in component 0; swap them"),
        ((q, [0, 2], 1), {"name": "box"}, "constraint 'box': lower bound 2 above upper bound 1 in component 1"),
        ((q, np.nan), {}, "constraint: lower bound: contains NaN at position 0"),
        ((q, 0, [1, np.nan]), {}, "constraint: upper bound: contains NaN at position 1"),
        ((q, [1, 2, 3]), {}, "constraint: lower bound: expected 2 numbers, given 3"),
        ((q, np.inf), {}, "constraint: no number lies between inf and inf in component 0"),
        ((q, 0, 1), {"at": "nodes"}, "constraint: unknown place 'nodes'.*control_grid, element_ends, rk_stages"),
        ((q, 0, 1), {"at": "element_end"}, "unknown place 'element_end'. Did you mean 'element_ends'"),
        ((q, 0, 1), {"name": 3}, "constraint: the name has to be a non-empty string or None, given 3"),
        ((q, 0, 1), {"name": ""}, "constraint: the name has to be a non-empty string or None, given ''"),
        ((ca.DM.eye(2), 0, 1), {}, r"constraint: expression: expected a column vector, given shape \(2, 2\)"),
        ((ca.MX.sym("x"), 0, 1), {}, "constraint: expression: expected numbers or CasADi SX, given MX"),
        ((q[0] + np.nan, 0, 1), {}, "constraint: expression: contains nan"),
    ],
)
def test_bad_constraints(arguments, named, message):
    refused(message, ns.Constraint, *arguments, **named)


@pytest.mark.parametrize("kind", ["path", "initial", "terminal"])
@pytest.mark.parametrize("given", [q[0], (q[0], 0, 1), "q", None])
def test_a_constraint_has_to_be_a_constraint(kind, given):
    message = f"OCP: {kind} constraints have to be ns.Constraint objects, given {type(given).__name__}"
    refused(message, ocp, **{f"{kind}_constraints": [given]})


@pytest.mark.parametrize("kind", ["path", "initial", "terminal"])
def test_a_lone_constraint_is_told_to_go_into_a_list(kind):
    message = f"OCP: {kind}_constraints: expected a sequence of ns.Constraint, given Constraint; put it in a list"
    refused(message, ocp, **{f"{kind}_constraints": ns.Constraint(q[0], 0, 1)})


def test_two_constraints_with_one_name():
    def named(name, expression=v[0]):
        return ns.Constraint(expression, 0, 1, name=name)

    message = "OCP: two constraints are named 'speed'; give each a name of its own"
    refused(message, ocp, path_constraints=[named("speed"), named("speed", v[1])])
    refused(message, ocp, path_constraints=[named("speed")], terminal_constraints=[named("speed")])
    refused("two constraints are named 'path_1'", ocp, path_constraints=[named("path_1"), ns.Constraint(v[1], 0, 1)])
    ocp(path_constraints=[named("speed"), named("speed_y", v[1])])


def test_every_mistake_is_a_nosnoc_error_with_given_and_expected():
    with pytest.raises(ns.NosnocError) as caught:
        ocp(x0=[1, 2, 3])
    assert "expected 4 numbers" in str(caught.value)
    assert "given 3" in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_bounds_on_a_length_become_bounds_on_its_square() -> None:
    """Where it is one of the control alone; at the upper bound the rows have the same slope, so multipliers stay."""
    u, x = ca.SX.sym("u", 2), ca.SX.sym("x", 2)
    rows = ca.vertcat(ca.norm_2(u), ca.sumsqr(u), ca.norm_2(x), ca.norm_2(u - x))
    given = ns.Constraint(rows, [-np.inf, 0, 1, 0], [3, 2, np.inf, 4], name="some")
    found = given.without_roots(u)
    assert found.name == "some"
    np.testing.assert_array_equal(found.lower, [-np.inf, 0, 1, 0])
    np.testing.assert_array_equal(found.upper, [1.5, 2, np.inf, 4])

    def at(constraint: ns.Constraint, point: list[float]) -> list[np.ndarray]:
        outputs = [constraint.expression, ca.jacobian(constraint.expression, u)]
        return [np.array(out) for out in ca.Function("f", [u, x], outputs)(point, [1, 1])]

    (before, slope_before), (after, slope_after) = at(given, [0, 3]), at(found, [0, 3])
    assert after[0, 0] == pytest.approx(1.5)
    np.testing.assert_array_equal(after[1:], before[1:])
    np.testing.assert_allclose(slope_after, slope_before, atol=1e-15)
    assert not np.isfinite(at(given, [0, 0])[1]).all()
    assert np.isfinite(at(found, [0, 0])[1]).all()


@pytest.mark.parametrize(("lower", "upper"), [(-np.inf, 2.0), (0.0, 2.0), (0.5, 2.0), (0.5, np.inf), (-1.0, 0.0)])
def test_a_length_between_bounds_is_its_square_between_theirs(lower: float, upper: float) -> None:
    u = ca.SX.sym("u", 2)
    found = ns.Constraint(ca.norm_2(u), lower, upper).without_roots(u)
    for length in (0.0, 0.4, 0.6, 1.9, 2.1, 3.1):
        value = float(ca.Function("square", [u], [found.expression])([0.6 * length, 0.8 * length]))
        assert (found.lower[0] <= value <= found.upper[0]) == (lower <= length <= upper)
    plain = ns.Constraint(u[0], lower, upper).without_roots(u)
    assert (plain.lower[0], plain.upper[0]) == (lower, upper)
    negative = ns.Constraint(ca.norm_2(u), -3.0, -1.0).without_roots(u)  # stays infeasible
    assert (negative.lower[0], negative.upper[0]) == (-3.0, -1.0)


def test_a_symbol_that_was_made_again_is_told_from_the_first() -> None:
    again = ca.SX.sym("u")
    text = refused("another symbol that is also called u", ocp, stage_cost=again**2)
    assert "system.u" in text
    assert "not among" not in text
    refused("not among", ocp, stage_cost=STRANGER)


def test_a_constraint_without_limits_is_refused() -> None:
    refused("constraint 'up': has no limits", ns.Constraint, q[1], name="up")
    assert np.array_equal(ns.Constraint(q[1], 0).upper, [np.inf])
    assert np.array_equal(ns.Constraint(q[1], upper=0).lower, [-np.inf])
