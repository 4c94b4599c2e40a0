"""Local programs of certificates on numbers that are written down: limits, slacks, duality."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy import sparse

import nosnoc_py as ns
from nosnoc_py.mpcc import linearization, stationarity
from nosnoc_py.mpcc.linearization import Linearizer, LocalProgram, local_program, row_maxima, seconds_left
from nosnoc_py.mpcc.lpec import Groups, decide_groups, imposed_equations
from nosnoc_py.mpcc.residuals import Evaluator, outside, scaled_products
from nosnoc_py.mpcc.stationarity import biactive_groups, certify
from nosnoc_py.status import Stationarity

pytestmark = pytest.mark.quick

NONE, INF = np.zeros(0), np.inf
W = ca.SX.sym("w", 3)


def mpcc(**changed: Any) -> ns.MPCC:
    """x and y are complementary, z is in [0, 9], 1 <= 2 x + 4 z <= 5; the objective is x + 2 y - 3 z."""
    given: dict[str, Any] = {
        "w": W, "G": W[0], "H": W[1], "g": 2 * W[0] + 4 * W[2], "lbg": 1.0, "ubg": 5.0, "lbw": [-INF, -INF, 0.0],
        "ubw": [INF, INF, 9.0], "objective": W[0] + 2 * W[1] - 3 * W[2],
    }  # fmt: skip
    return ns.MPCC.of_pairs(**{**given, **changed})


def local(program: ns.MPCC, w: list[float], radius: float = 0.1, **more: Any) -> LocalProgram:
    at = Linearizer(program)(np.array(w), NONE)
    given: dict[str, Any] = {"radius": radius, "tolerance": 1e-8, "held": np.zeros(0, bool)}
    return local_program(program, at, np.array(w), **{**given, **more})


class TestLocalPrograms:
    def test_rows_and_limits_in_units_of_the_radius(self) -> None:
        """At (0.3, 0, 0.2): g = 1.4, 0.4 above its lower limit; x is 3 radii from zero, z two from its bound."""
        found = local(mpcc(), [0.3, 0.0, 0.2])
        assert found.matrix.toarray().tolist() == [[2.0, 0.0, 4.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
        assert found.cost.tolist() == [1.0, 2.0, -3.0]
        assert found.slack == pytest.approx([0.0, 3.0, 0.0])
        # A step of (-1, ., -1) lowers g by 6 radii: the limit 4 counts, the upper one, 36 radii away, does not.
        assert found.lower == pytest.approx([-4.0, -INF, 0.0])
        assert found.upper.tolist() == [INF] * 3
        assert found.box_lower.tolist() == [-1.0] * 3
        assert found.box_upper.tolist() == [1.0] * 3
        assert (found.lowest.tolist(), found.highest.tolist()) == ([-6.0, -1.0, -1.0], [6.0, 1.0, 1.0])
        assert found.near.tolist() == [True, False, True]
        assert found.scale == 3.0
        wide = local(mpcc(), [0.3, 0.0, 0.2], radius=1.0)
        assert wide.box_lower == pytest.approx([-1.0, -1.0, -0.2])
        assert wide.upper[0] == pytest.approx(3.6)
        assert wide.lower == pytest.approx([-0.4, -0.3, 0.0])

    def test_active_limits_are_those_within_the_tolerance(self) -> None:
        near = local(mpcc(), [0.5 + 0.4e-8, 0.0, 0.9e-8], tolerance=1e-7)
        assert near.box_lower[2] == 0.0
        assert near.lower[0] == 0.0
        far = local(mpcc(), [0.5, 0.0, 1.1e-8])
        assert far.box_lower[2] == pytest.approx(-1.1e-7)
        top = local(mpcc(), [0.0, 0.0, 9.0])
        assert top.box_upper[2] == 0.0
        equation = local(mpcc(lbg=5.0), [0.3, 0.0, 0.2])
        assert (equation.lower[0], equation.upper[0]) == (0.0, 0.0)

    def test_a_bound_that_repeats_a_row_at_zero_is_dropped(self) -> None:
        bounded = mpcc(lbw=0.0)
        found = local(bounded, [0.3, 0.0, 0.2])
        # y = 0 is a row of H; the bound of x, three radii away, is out of the box anyway.
        assert found.box_lower.tolist() == [-1.0, -1.0, -1.0]
        assert found.lower[2] == 0.0
        fixed = local(mpcc(lbw=0.0, ubw=[INF, 0.0, 9.0]), [0.3, 0.0, 0.2])
        assert (fixed.box_lower[1], fixed.box_upper[1]) == (0.0, 0.0)

    def test_rounding_errors_in_a_row_are_dropped(self) -> None:
        noisy = mpcc(g=2 * W[0] + 4 * W[2] + 1e-14 * W[1])
        found = local(noisy, [0.3, 0.0, 0.2])
        assert found.matrix.toarray()[0].tolist() == [2.0, 0.0, 4.0]
        assert found.exact.toarray()[0].tolist() == [2.0, 1e-14, 4.0]
        assert not found.clean
        assert local(mpcc(), [0.3, 0.0, 0.2]).clean

    def test_a_solution_and_its_bound(self) -> None:
        """x + 2 y - 3 z in the box: e = (-1, 0, 1) with y >= 0, where g allows it: -1 - 3 = -4."""
        found = local(mpcc(), [0.3, 0.0, 0.2]).solve()
        assert found.status == "optimal"
        assert found.e == pytest.approx([-1.0, 0.0, 1.0], abs=1e-9)
        assert (found.value, found.bound) == (pytest.approx(-4.0), pytest.approx(-4.0))
        assert found.dual == pytest.approx([0.0, 0.0, -2.0], abs=1e-9)
        held = local(mpcc(), [0.3, 0.0, 0.2]).with_zero_rows(np.array([False, True, False]))
        assert held.lower[1] == held.upper[1] == pytest.approx(-3.0)
        assert held.solve().status == "infeasible"
        assert held.solve().bound == -INF
        low = local(mpcc(objective=W[0] + W[2]), [0.3, 0.0, 0.2]).solve()
        # x + z with 2 x + 4 z >= -4: (-1, -0.5), and the multiplier of the row is -1/4.
        assert low.value == pytest.approx(-1.5)
        assert low.dual[0] == pytest.approx(-0.25)

    def test_weak_duality_from_any_multipliers(self) -> None:
        """min x + 2 y - 3 z + lambda (2 x + 4 z + 4) + mu y over the box [-1, 1]^3, with lambda and mu at most 0."""
        found = local(mpcc(), [0.3, 0.0, 0.2])
        dual, bound = found.weak_duality(np.array([-0.25, 3.0, -1.0]))
        assert dual.tolist() == [-0.25, 0.0, -1.0]  # a limit that is infinite has no multiplier
        # Gradients (0.5, 1, -4): -5.5, and minus lambda times the limit -4.
        assert bound == pytest.approx(-5.5 - 1.0)
        assert found.weak_duality(np.array([5.0, 0.0, 5.0])) == (pytest.approx([0.0, 0.0, 0.0]), pytest.approx(-6.0))

    def test_helpers(self) -> None:
        matrix = sparse.csr_array(np.array([[1.0, -5.0], [0.0, 0.0], [0.5, 0.25]]))
        assert row_maxima(matrix).tolist() == [5.0, 1.0, 0.5]
        assert linearization.scaled_columns(matrix, np.array([2.0, 3.0])).toarray()[0].tolist() == [2.0, -15.0]
        assert linearization.rows_divided(matrix, np.array([5.0, 1.0, 0.5])).toarray()[2].tolist() == [1.0, 0.5]
        low, high = linearization._range(matrix, np.array([-1.0, 0.0]), np.array([2.0, 3.0]))
        assert (low.tolist(), high.tolist()) == ([-16.0, 0.0, -0.5], [2.0, 0.0, 1.75])
        assert linearization._room(np.array([-1.0, 0.5, 2.0]), 1.0).tolist() == [0.0, 0.0, 2.0]
        assert seconds_left(-1.0) == pytest.approx(1e-3)
        assert seconds_left(INF) > 1e5

    def test_a_linearization(self) -> None:
        at = Linearizer(mpcc())(np.array([0.3, 0.1, 0.2]), NONE)
        assert at.f == pytest.approx(-0.1)
        assert (at.g.tolist(), at.G.tolist(), at.H.tolist()) == ([pytest.approx(1.4)], [0.3], [0.1])
        assert [at.block(k) for k in range(4)] == [slice(0, 1), slice(1, 2), slice(2, 3), slice(3, 3)]
        assert at.finite
        assert not replace(at, f=np.nan).finite


class TestChoices:
    @pytest.mark.parametrize(
        ("w", "biactive", "complementary"),
        [([0.3, 0.0, 0.2], False, True), ([0.0, 0.0, 0.3], True, True), ([0.3, 0.3, 0.2], False, False)],
    )
    def test_groups_at_a_point(self, w: list[float], biactive: bool, complementary: bool) -> None:
        program = mpcc()
        at = Linearizer(program)(np.array(w), NONE)
        choice = decide_groups(Groups(program, at), local(program, w), at)
        assert choice.biactive.tolist() == [biactive]
        assert choice.complementary == complementary
        values = Evaluator(program)(np.array(w), NONE)
        assert biactive_groups(program, values, 1e-8) == ((0,) if biactive else ())
        assert imposed_equations(program, at).size == 0

    @pytest.mark.parametrize(
        ("objective", "kind", "b_stationary", "value"),
        [
            (W[0] + 2 * W[1], Stationarity.S, True, 0.0),
            (-W[0] - W[1] + W[2], Stationarity.C, False, -1.0),
            (W[0] - W[1], Stationarity.W, False, -1.0),
            (-W[1], Stationarity.M, False, -1.0),
        ],
    )
    def test_kinds_at_the_corner(self, objective: ca.SX, kind: Stationarity, b_stationary: bool, value: float) -> None:
        """At x = y = 0 with multipliers (f_x, f_y): both nonnegative, both negative, of either sign, one zero."""
        program = ns.MPCC.of_pairs(w=W, G=W[0], H=W[1], objective=objective, lbw=[-INF, -INF, 0.0])
        found = certify(program, Linearizer(program)(np.zeros(3), NONE), np.zeros(3))
        assert (found.stationarity, found.b_stationary) == (kind, b_stationary)
        assert found.lpec_value == pytest.approx(value, abs=1e-9)
        assert found.multipliers is not None
        slope = ca.Function("slope", [W], [ca.gradient(objective, W)])
        assert pytest.approx([float(slope(np.zeros(3))[0])]) == found.multipliers.G
        assert pytest.approx([float(slope(np.zeros(3))[1])]) == found.multipliers.H
        assert found.biactive == (0,)

    def test_conditions_on_multipliers(self) -> None:
        legal = [
            (stationarity._legal(kind, *pair))
            for kind in (Stationarity.C, Stationarity.M)
            for pair in ((1.0, 2.0), (-1.0, -2.0), (-1.0, 2.0), (0.0, -1.0), (-1.0, 0.0))
        ]
        assert legal == [True, True, False, True, True, True, False, False, True, True]

    def test_an_infeasible_point_has_no_kind(self) -> None:
        program = mpcc(objective=W[2])
        for w, stationary in (([0.5 - 1e-6, 0.0, 0.0], False), ([0.5 - 0.4e-6, 0.0, 0.0], True)):
            found = certify(program, Linearizer(program)(np.array(w), NONE), np.array(w))
            assert (found.stationarity is Stationarity.S) == stationary


class TestResiduals:
    def test_products_are_relative_to_large_sides(self) -> None:
        found = scaled_products(np.array([1e-3, -2.0, 1e4, 0.5]), np.array([2.0, 3.0, 1e-3, 0.5]))
        assert found == pytest.approx([1e-3, 2.0, 1e-3, 0.25])
        assert scaled_products(np.array([np.nan, INF]), np.array([1.0, 0.0])).tolist() == [INF, INF]

    def test_distances_to_intervals(self) -> None:
        found = outside(np.array([-1.0, 0.5, 3.0]), np.zeros(3), np.array([1.0, 1.0, 2.0]))
        assert found.tolist() == [1.0, 0.0, 1.0]
        assert outside(np.array([np.nan, INF, 0.0]), -INF, INF).tolist() == [INF, INF, 0.0]

    def test_the_largest_ones_by_name(self) -> None:
        program = mpcc()
        evaluator = Evaluator(program)
        values = evaluator(np.array([0.5, -0.25, 0.125]), NONE)
        assert evaluator.complementarity(values) == 0.125
        assert evaluator.complementarity_min(values) == 0.25
        assert evaluator.infeasibility(values) == 0.25
        worst = evaluator.worst(values)
        assert [(each.value, each.kind) for each in worst] == [(0.25, "bound"), (0.125, "complementarity")]
        assert [each.value for each in evaluator.worst(values, 1)] == [0.25]
        good = evaluator(np.array([0.5, 0.0, 0.125]), NONE)
        assert evaluator.worst(good) == ()
