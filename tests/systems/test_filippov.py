"""Modes, PSS, Heaviside, PDS: regions and their flows, and one clear error for each mistake."""

from __future__ import annotations

import itertools
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns

pytestmark = pytest.mark.quick

x, u, p, alpha = ca.SX.sym("x", 2), ca.SX.sym("u"), ca.SX.sym("p"), ca.SX.sym("alpha", 2)
STRANGER = ca.SX.sym("stranger")
FLOWS = [ca.vertcat(1, u), ca.vertcat(-1, u)]
THREE = [ca.vertcat(k, 0) for k in range(3)]


def modes(name: Any = "m", **changes: Any) -> ns.Modes:
    return ns.Modes(name, **{"flows": FLOWS, "functions": x[0], "signs": [[-1], [1]], **changes})


def by_indicators(**changes: Any) -> ns.Modes:
    return ns.Modes("m", **{"flows": FLOWS, "indicators": x, **changes})


def pss(**changes: Any) -> ns.PSS:
    return ns.PSS(**{"x": x, "u": u, "p": p, "modes": modes(), **changes})


def heaviside(**changes: Any) -> ns.Heaviside:
    flow = ca.vertcat(alpha[0], alpha[1] + u)
    return ns.Heaviside(**{"x": x, "u": u, "p": p, "alpha": alpha, "functions": x, "flow": flow, **changes})


def pds(**changes: Any) -> ns.PDS:
    return ns.PDS(**{"x": x, "u": u, "p": p, "flow": ca.vertcat(1, u), "constraints": x[0], **changes})


def refused(message: str, build: Any, **changes: Any) -> None:
    with pytest.raises(ns.ModelError, match=message):
        build(**changes)


def region(made: ns.Modes, at: Any) -> np.ndarray:
    """The flow of the region that a state lies in, by the smallest indicator."""
    g, flows = ca.Function("g", [x, u], [made.indicators, ca.horzcat(*made.flows)])(at, 0.0)
    return np.array(flows)[:, int(np.argmin(np.array(g)))]


# --- what is derived ---


def test_indicators_of_signs() -> None:
    """Stewart: g = -S c, the smallest one where all signs fit."""
    made = modes()
    assert made.count == 2
    assert made.function_names == ("m",)
    g = ca.Function("g", [x], [made.indicators])
    np.testing.assert_array_equal(np.array(g([3.0, 0.0])).ravel(), [3.0, -3.0])


@pytest.mark.parametrize("signs", [[-1, 1], [[-1, 1]], [[-1], [1]], np.array([-1.0, 1.0])])
def test_one_function_may_have_its_signs_in_a_row(signs: Any) -> None:
    assert region(modes(signs=signs), [2.0, 0.0])[0] == -1.0
    assert region(modes(signs=signs), [-2.0, 0.0])[0] == 1.0


def test_zero_signs_are_expanded_and_the_flow_stays() -> None:
    """Region 2 is where the first function is positive, whatever the second is: two corners, one flow."""
    made = modes(flows=THREE, functions=x, signs=[[-1, -1], [-1, 1], [1, 0]])
    assert made.count == 4
    np.testing.assert_array_equal(np.unique(made.signs), [-1.0, 1.0])
    for corner in itertools.product((-1.0, 1.0), repeat=2):
        expected = 2 if corner[0] > 0 else (0 if corner[1] < 0 else 1)
        assert region(made, np.array(corner) * [0.3, 7.0])[0] == expected


def test_without_zeros_nothing_is_reordered() -> None:
    signs = [[1, 1], [-1, 1], [1, -1], [-1, -1]]
    made = modes(flows=[*THREE, ca.vertcat(3, 0)], functions=x, signs=signs)
    np.testing.assert_array_equal(made.signs, signs)
    assert made.function_names == ("m[0]", "m[1]")
    for k, row in enumerate(signs):
        assert region(made, 2.0 * np.array(row))[0] == k


def test_all_zeros_but_one_tree() -> None:
    """A decision tree of three functions with four leaves fills the eight corners."""
    c = ca.SX.sym("c", 3)
    tree = [[-1, 0, 0], [1, -1, 0], [1, 1, -1], [1, 1, 1]]
    made = ns.Modes("tree", flows=[ca.SX(k) for k in range(4)], functions=c, signs=tree)
    assert made.count == 8
    counts = np.bincount([int(float(flow)) for flow in made.flows])
    np.testing.assert_array_equal(counts, [4, 2, 1, 1])


def test_numbers_are_flows() -> None:
    made = modes(flows=[[1, 0], (2, 3)])
    np.testing.assert_array_equal(region(made, [4.0, 0.0]), [2.0, 3.0])


def test_what_is_given_is_not_changed() -> None:
    signs = np.array([[-1, -1], [-1, 1], [1, 0]])
    flows = list(THREE)
    modes(flows=flows, functions=x, signs=signs)
    np.testing.assert_array_equal(signs, [[-1, -1], [-1, 1], [1, 0]])
    assert len(flows) == 3


def test_several_partitions_and_their_sizes() -> None:
    both = pss(modes=[modes("a"), modes("b", functions=x[1])])
    assert [m.name for m in both.modes] == ["a", "b"]
    assert [name for m in both.modes for name in m.function_names or ()] == ["a", "b"]
    assert isinstance(pss().modes, tuple)


def test_functions_may_use_parameters_and_flows_all_symbols() -> None:
    z = ca.SX.sym("z")
    made = modes(flows=[ca.vertcat(z, u), ca.vertcat(p, x[1])], functions=x[0] - p)
    system = pss(modes=made, algebraic=ns.Algebraic(z, z - x[0]))
    assert system.modes[0].count == 2
    np.testing.assert_array_equal(np.array(ca.DM(system.flow)).ravel(), [0.0, 0.0])


def test_default_names() -> None:
    assert heaviside().function_names == ("c_0", "c_1")
    assert pds().constraint_names == ("c_0",)
    assert pds(constraint_names=["floor"]).constraint_names == ("floor",)
    assert heaviside(per_element=[1]).per_element == (1,)
    assert pss().state_names == ("x_0", "x_1")


def test_the_set_of_a_projected_system_is_checked_with_the_parameters() -> None:
    system = pds(constraints=x[0] - p)
    np.testing.assert_array_equal(system.check_state([0.0, 0.0], [0.0]), [0.0, 0.0])
    with pytest.raises(ns.ModelError, match="x0 violates constraint 'c_0': its value is -1, expected >= 0"):
        system.check_state([0.0, 0.0], [1.0])
    with pytest.raises(ns.ModelError, match="x0 violates constraint 'c_0'"):
        ns.OCP(system, horizon=1.0, x0=[-1, 0], p=[0.0])


@pytest.mark.parametrize("system", [pss(), heaviside(), pds()], ids=["pss", "heaviside", "pds"])
@pytest.mark.parametrize(
    ("state", "message"),
    [([1], "x0: expected 2 numbers, given 1"), ([1, np.nan], "x0: contains NaN at position 1"), ("ab", "x0: expected")],
)
def test_bad_states(system: Any, state: Any, message: str) -> None:
    with pytest.raises(ns.ModelError, match=message):
        system.check_state(state)


# --- mistakes: Modes ---


@pytest.mark.parametrize("name", ["", 3, None])
def test_bad_names(name: Any) -> None:
    refused(f"Modes: the name has to be a non-empty string, given {name!r}", modes, name=name)


TWO_OR_MORE = "modes 'm': flows: expected a list of two or more vectors, one for each region"


@pytest.mark.parametrize(
    ("flows", "message"),
    [
        (None, TWO_OR_MORE),
        ([], TWO_OR_MORE),
        (FLOWS[:1], TWO_OR_MORE),
        (FLOWS[0], TWO_OR_MORE),
        ("ab", TWO_OR_MORE),
        ([FLOWS[0], [1, 2, 3]], r"the flows of all regions need the same length, given \[2, 3\]"),
        ([FLOWS[0], ca.MX.sym("f", 2)], "modes 'm': flow 1: expected numbers or CasADi SX, given MX; write it in SX"),
        ([FLOWS[0], [1, np.nan]], "modes 'm': flow 1: contains nan"),
        ([FLOWS[0], ca.SX(2, 2)], r"modes 'm': flow 1: expected a column vector, given shape \(2, 2\)"),
    ],
)
def test_bad_flows(flows: Any, message: str) -> None:
    refused(message, modes, flows=flows)


@pytest.mark.parametrize(
    ("signs", "message"),
    [
        (None, "modes 'm': functions need signs, a matrix with one row per region"),
        ([[-1], [1], [0]], r"one row per region and one column per function, \(2, 1\), given \(3, 1\)"),
        ([[-1, 1], [1, 1]], r"one row per region and one column per function, \(2, 1\), given \(2, 2\)"),
        ([], r"\(2, 1\), given \(1, 0\)"),
        ([[-2], [1]], "modes 'm': signs have to be -1, 0 or 1, given -2, 1"),
        ([[0.5], [1]], "signs have to be -1, 0 or 1, given 0.5, 1"),
        ([[np.nan], [1]], "signs have to be -1, 0 or 1, given 1, nan"),
        ("ab", "signs: expected a matrix of numbers, one row per region, given 'ab'"),
        ([[-1], [1, 1]], r"signs: expected a matrix of numbers, one row per region, given \[\[-1\], \[1, 1\]\]"),
        ([[1], [1]], r"where the functions have the signs \(-\) there is no region; expected one"),
        ([[0], [1]], r"where the functions have the signs \(\+\) the regions 0, 1 overlap; expected one region"),
    ],
)
def test_bad_signs(signs: Any, message: str) -> None:
    refused(message, modes, signs=signs)


@pytest.mark.parametrize(
    ("signs", "message"),
    [
        ([[-1, -1], [-1, 1], [1, -1]], r"where the functions have the signs \(\+, \+\) there is no region"),
        ([[-1, 0], [-1, 1], [1, 0]], r"where the functions have the signs \(-, \+\) the regions 0, 1 overlap"),
        ([[-1, -1], [-1, -1], [1, 0]], r"\(-, -\) the regions 0, 1 overlap"),
    ],
)
def test_regions_fill_the_space_once(signs: Any, message: str) -> None:
    refused(message, modes, flows=THREE, functions=x, signs=signs)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"functions": None}, "modes 'm': give either functions with signs, or indicators"),
        ({"indicators": x}, "give either functions with signs, or indicators"),
        ({"functions": ca.SX(0, 1)}, "functions: expected at least one switching function"),
        ({"functions": None, "indicators": x}, "indicators need no signs; the smallest one marks the region"),
        ({"function_names": ["a", "b"]}, "names of functions: expected 1 names, given"),
        ({"function_names": "a"}, "names of functions: expected 1 names, given 'a'"),
        ({"functions": ca.MX.sym("c")}, "modes 'm': functions: expected numbers or CasADi SX, given MX"),
    ],
)
def test_bad_functions(changes: dict[str, Any], message: str) -> None:
    refused(message, modes, **changes)


def test_equal_names_of_functions() -> None:
    four = {"flows": [*THREE, ca.vertcat(3, 0)], "functions": x, "signs": [[-1, -1], [-1, 1], [1, -1], [1, 1]]}
    refused("functions: expected 2 different names, given", modes, **four, function_names=["a", "a"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indicators": ca.vertcat(x, 1)}, "modes 'm': indicators: expected 2 rows, given 3"),
        ({"function_names": ["a"]}, "indicators have no function names, given .*the name of the partition"),
    ],
)
def test_bad_indicators(changes: dict[str, Any], message: str) -> None:
    refused(message, by_indicators, **changes)


def test_the_smallest_indicator_tells_the_region() -> None:
    made = by_indicators()
    assert made.function_names == ("m",)
    assert region(made, [1.0, 2.0])[0] == 1.0
    assert region(made, [3.0, 2.0])[0] == -1.0


# --- mistakes: systems ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": None}, "PSS: x needs at least one component"),
        ({"x": 2 * x}, "PSS: x: expected symbols made by ca.SX.sym"),
        ({"x": ca.vertcat(x[0], x[0])}, "symbol x_0 is used twice in x"),
        ({"u": x[0]}, "symbol x_0 is used in both x and u; make a symbol for each"),
        ({"flow": [1, 2, 3]}, "PSS: flow: expected 2 rows, given 3"),
        ({"flow": ca.vertcat(STRANGER, 1)}, "PSS: flow depends on stranger, which is not among x, z, u, p"),
        ({"modes": []}, r"PSS: modes: expected ns.Modes or a list of them, given \[\]"),
        ({"modes": None}, "PSS: modes: expected a sequence of ns.Modes or ns.Hysteresis, given NoneType"),
        ({"modes": "m"}, "PSS: modes: expected a sequence of ns.Modes or ns.Hysteresis, given str"),
        ({"modes": FLOWS}, "PSS: modes have to be ns.Modes or ns.Hysteresis objects, given SX"),
        ({"modes": [modes(), modes()]}, "two modes are named 'm'; give each a name of its own"),
        (
            {"modes": [modes("a", function_names=["c"]), modes("b", function_names=["c"])]},
            "two switching functions are named 'c'; give each a name of its own",
        ),
        ({"modes": [modes("a"), modes("b", function_names=["a"])]}, "two switching functions are named 'a'"),
        ({"modes": modes(flows=[[1], [2]])}, "modes 'm': flows: expected 2 rows, given 1"),
        ({"modes": modes(functions=STRANGER)}, "modes 'm': functions depends on stranger, which is not among x, p"),
        ({"modes": modes(functions=x[0] - u)}, "modes 'm': functions depends on u, which is not among x, p"),
        ({"modes": modes(flows=[[STRANGER, 1], [2, 3]])}, "modes 'm': flows depends on stranger"),
        ({"names": {"x": ["a"]}}, "names of x: expected 2 names"),
        ({"names": {"q": ["a"]}}, "unknown key of names 'q'. Legal: x, u, p"),
        ({"names": {"x": ["a", "a"]}}, "PSS: two components are named 'a'"),
        ({"units": {"y": "m"}}, "unknown name in units 'y'"),
        ({"nominal": {"x": 0}}, "PSS: nominal values of x have to be positive and finite"),
        ({"p_default": [1, 2]}, "PSS: p_default: expected 1 numbers, given 2"),
    ],
)
def test_bad_piecewise_smooth_systems(changes: dict[str, Any], message: str) -> None:
    refused(message, pss, **changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alpha": None}, "Heaviside: alpha needs at least one component"),
        ({"alpha": x}, "symbol x_0 is used in both x and alpha"),
        ({"functions": x[0]}, "Heaviside: functions: expected 2 rows, given 1"),
        ({"functions": ca.vertcat(x[0], u)}, "Heaviside: functions depends on u, which is not among x, p"),
        ({"functions": alpha}, "Heaviside: functions depends on alpha_0, alpha_1"),
        ({"flow": alpha[0]}, "Heaviside: flow: expected 2 rows, given 1"),
        (
            {"flow": ca.vertcat(STRANGER, 1)},
            "flow depends on stranger, which is not among x, z, u, p, alpha",
        ),
        ({"function_names": ["a"]}, "names of functions: expected 2 names"),
        ({"function_names": ["a", "a"]}, "functions: expected 2 different names"),
        ({"function_names": "ab"}, "names of functions: expected 2 names, given 'ab'"),
    ],
)
def test_bad_step_functions(changes: dict[str, Any], message: str) -> None:
    refused(message, heaviside, **changes)


@pytest.mark.parametrize("given", [(2,), (-1,), ("a",), (0.5,), (1.0,), (True,), 0, None, "01"])
def test_bad_step_functions_per_element(given: Any) -> None:
    refused("Heaviside: per_element: expected a sequence of indices below 2, given ", heaviside, per_element=given)


METRIC = r"PDS: metric has to be a symmetric positive semidefinite matrix \(2, 2\) and not zero, given "


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"flow": 1}, "PDS: flow: expected 2 rows, given 1"),
        ({"constraints": u}, "PDS: constraints depends on u, which is not among x, p"),
        ({"constraints": ca.SX(0, 1)}, "PDS: constraints: expected at least one function"),
        ({"constraint_names": ["a", "b"]}, "expected 1 names, given"),
        ({"constraint_names": "a"}, "expected 1 names, given 'a'"),
        ({"constraints": x, "constraint_names": ["a", "a"]}, "constraint_names: expected 2 different names"),
        *(
            ({"metric": metric}, METRIC)
            for metric in (
                np.zeros((2, 2)),
                [[1, 2], [0, 1]],
                [[1, 2], [2, 1]],
                np.eye(3),
                -np.eye(2),
                1.0,
                [1, 2],
                [[1, 0], [0, np.nan]],
                "a",
                [[1], [2, 3]],
            )
        ),
    ],
)
def test_bad_projected_systems(changes: dict[str, Any], message: str) -> None:
    refused(message, pds, **changes)


def test_indicators_cannot_be_written_with_step_functions() -> None:
    ocp = ns.OCP(pss(modes=by_indicators()), horizon=1.0, p=[0.0])
    with pytest.raises(ns.OptionError, match="modes 'm' have indicators; use dcs_mode='stewart'"):
        ns.transcribe(ocp, ns.FESD(dcs_mode="step"))
