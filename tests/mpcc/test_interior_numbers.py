"""Quantities of the interior-point method on a program whose values are written down (Waechter and Biegler 2006)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pytest

from nosnoc_py.mpcc.interior import method
from nosnoc_py.mpcc.interior.kkt import KKT
from nosnoc_py.mpcc.interior.method import InteriorPoint, InteriorRun, Settings
from nosnoc_py.mpcc.ipopt import COMMON, LOOSE, TIGHT, NLPResult, defaults, warm_start
from tests.references.random_nlps import RandomNLP, made

pytestmark = pytest.mark.quick

NOTHING, INF = np.zeros(0), np.inf


def program(**changed: Any) -> RandomNLP:
    """min x^2 + 3 y with x + 2 y = 4, -inf <= x y <= 6, 0 <= x <= 10 and y >= 1."""
    x = ca.SX.sym("x", 2)
    fields = {
        "x": x,
        "f": x[0] ** 2 + 3 * x[1],
        "g": ca.vertcat(x[0] + 2 * x[1], x[0] * x[1]),
        "lbx": np.array([0.0, 1.0]),
        "ubx": np.array([10.0, INF]),
        "lbg": np.array([4.0, -INF]),
        "ubg": np.array([4.0, 6.0]),
        "start": np.array([2.0, 3.0]),
    }
    return replace(made(0), **{**fields, **changed})


def run(nlp: RandomNLP | None = None, given: Any = None, start: Any = None, **options: Any) -> InteriorRun:
    nlp = program() if nlp is None else nlp
    solver = InteriorPoint(nlp, options)
    solver.evaluation.at(NOTHING)
    bounds = {name: getattr(nlp, name) for name in ("lbx", "ubx", "lbg", "ubg")}
    return InteriorRun(solver, np.asarray(nlp.start if start is None else start, float), bounds, given or {}, INF)


class TestStart:
    def test_unknowns_and_bounds(self) -> None:
        """x, y and the slack of the second row: lower bounds first, then upper ones; one bound alone is damped."""
        here = run()
        assert (here.n, here.m, here.slack.tolist()) == (2, 2, [1])
        assert here.of.tolist() == [0, 1, 0, 2]
        assert here.sign.tolist() == [1.0, 1.0, -1.0, -1.0]
        assert here.bound.tolist() == [0.0, 1.0, 10.0, 6.0]
        assert here.damping == pytest.approx([0.0, 1e-5, 0.0, 1e-5])
        assert here.target.tolist() == [4.0, 0.0]
        assert here.mu == 0.1
        assert here.mu_min == pytest.approx(1e-8 / 11.0)
        assert run(tol=1e-5, compl_inf_tol=1e-7).mu_min == pytest.approx(1e-7 / 11.0)

    def test_a_start_is_pushed_off_its_bounds(self) -> None:
        """By a hundredth of max(1, |bound|), and of the distance between two bounds at most."""
        pushed = run(start=[0.0, 1.0]).point.v
        assert pushed[:2] == pytest.approx([0.01, 1.01])
        assert run(start=[99.0, 1.0]).point.v[0] == pytest.approx(10.0 - 0.1)
        assert run(start=[3.0, 2.0]).point.v == pytest.approx([3.0, 2.0, 6.0 - 0.06])
        narrow = program(lbx=np.array([0.0, 1.0]), ubx=np.array([0.1, INF]))
        assert run(narrow, start=[0.0, 1.0]).point.v[0] == pytest.approx(1e-3)
        assert run(start=[0.0, 1.0], bound_push=0.5).point.v[:2] == pytest.approx([0.1, 1.5])

    def test_steep_gradients_are_scaled_to_a_hundred(self) -> None:
        assert method._factors(np.array([1.0, 100.0, 400.0, INF])).tolist() == [1.0, 1.0, 0.25, 1.0]
        x = ca.SX.sym("x", 2)
        steep = program(x=x, f=200 * x[0], g=ca.vertcat(x[0] + 1000 * x[1], x[0] * x[1]))
        here = run(steep)
        assert here.weight == pytest.approx(0.5)
        assert here.scale == pytest.approx([0.1, 1.0])
        assert here.target == pytest.approx([0.4, 0.0])

    def test_known_multipliers_lead_near_the_central_path(self) -> None:
        """mu = 1e-6: a distance d and its multiplier z become at least 1e-6 / z and 1e-6 / d."""
        given = {"lam_x0": np.array([-2.0, 0.0]), "lam_g0": np.array([0.5, 0.25])}
        here = run(given=given, start=[0.0, 2.0])
        assert here.mu == 1e-6
        assert here.y == pytest.approx([0.5, 0.25])
        # x at its lower bound with 2, y one away from its, x far from the upper bound, the slack 6 away with 1/4.
        assert here.z == pytest.approx([2.0, 1e-6, 1e-7, 0.25])
        assert here.point.v == pytest.approx([0.5e-6, 2.0, 0.0], abs=1e-12)
        again = run(given=given, start=[0.0, 2.0], mu_warm=1e-4)
        assert again.z == pytest.approx([2.0, 1e-4, 1e-5, 0.25])

    def test_settings(self) -> None:
        assert Settings.of({"tol": 1e-5, "perturb_always_cd": "yes"}) == Settings(tol=1e-5)
        assert (Settings().tol, Settings().max_iter, Settings().mu_init) == (1e-8, 500, 0.1)


class TestValues:
    def test_the_barrier_function(self) -> None:
        """At x = 2, y = 3 and s = 5: f = 13, c = (8 - 4, 6 - 5), distances 2, 2, 8, 1."""
        here = run()
        here.mu = 0.5
        point = here.at(np.array([2.0, 3.0, 5.0]))
        assert point.f == 13.0
        assert point.c.tolist() == [4.0, 1.0]
        assert point.theta == 5.0
        assert point.distance.tolist() == [2.0, 2.0, 8.0, 1.0]
        logs = np.log(2) + np.log(2) + np.log(8) - 1e-5 * 2 - 1e-5 * 1
        assert point.phi == pytest.approx(13.0 - 0.5 * logs, rel=1e-12)
        assert here.at(np.array([0.0, 3.0, 5.0])).phi == INF

    def test_errors_of_optimality(self) -> None:
        """With y = (1, -2) and z = (1, 2, 3, 4): gradients (4 + 1 - 6, 3 + 2 - 4, 2) less those of the bounds."""
        here = run()
        here.point = here.at(np.array([2.0, 3.0, 5.0]))
        here.y, here.z = np.array([1.0, -2.0]), np.array([1.0, 2.0, 3.0, 4.0])
        here._derive()
        assert here.lagrangian == pytest.approx([4 + 1 - 2 * 3, 3 + 2 - 2 * 2, 2.0])
        # minus z of lower bounds, plus z of upper ones: (-1 - 1 + 3, 1 - 2, 2 + 4).
        assert here.dual == pytest.approx(6.0)
        assert here.primal == 4.0
        assert here.pairs.tolist() == [2.0, 4.0, 24.0, 4.0]
        assert (here.s_dual, here.s_pairs) == (1.0, 1.0)
        assert here._error(0.0) == 24.0
        assert here._error(20.0) == 18.0
        here.z = 1000.0 * here.z
        here._measure()
        assert here.s_dual == pytest.approx((10000.0 + 3.0) / 6 / 100)
        assert here.s_pairs == pytest.approx(10000.0 / 4 / 100)
        assert here._error(0.0) == pytest.approx(max(here.dual / here.s_dual, 24000.0 / here.s_pairs))

    def test_the_answer_has_the_signs_of_casadi(self) -> None:
        here = run()
        here.point = here.at(np.array([2.0, 3.0, 5.0]))
        here.y, here.z = np.array([1.0, -2.0]), np.array([1.0, 2.0, 3.0, 4.0])
        x, lam_x, lam_g = here.answer()
        assert x.tolist() == [2.0, 3.0]
        assert lam_x.tolist() == [2.0, -2.0]
        assert lam_g.tolist() == [1.0, -2.0]

    def test_steps_to_the_boundary(self) -> None:
        values, steps = np.array([1.0, 2.0]), np.array([-4.0, 1.0])
        assert method._longest(values, steps, 0.99) == pytest.approx(0.99 / 4)
        assert method._longest(values, -steps, 0.99) == 1.0
        assert method._longest(np.array([1.0]), np.array([-0.5]), 1.0) == 1.0
        assert method._longest(NOTHING, NOTHING, 0.99) == 1.0
        here = run()
        here.point = here.at(np.array([2.0, 3.0, 5.0]))
        # The upper bound of x is 8 away, that of the slack 1.
        assert here._longest(np.array([16.0, 0.0, 0.0]), 0.5) == pytest.approx(0.25)
        assert here._longest(np.array([-16.0, 0.0, 2.0]), 0.5) == pytest.approx(0.0625)


class TestDirections:
    def test_a_step_solves_the_linear_system(self) -> None:
        """Against the dense system with the slack: [[W + S, J'], [J, -1e-9]], regularised by 1e-9."""
        here = run()
        here.point = here.at(np.array([2.0, 3.0, 5.0]))
        here.y, here.z = np.array([1.0, -2.0]), np.array([1.0, 2.0, 3.0, 4.0])
        here._derive()
        ratio = here.z / here.point.distance
        assert here._factorised(here._on_unknowns(ratio))
        # Hessian [[2, -2], [-2, 0]] is indefinite: a multiple of the identity is added until the inertia is right.
        assert here.last_primal >= 0.0
        added = max(here.last_primal, 1e-9) if here.regularised else 1e-9
        W = np.array([[2.0, -2.0, 0], [-2.0, 0, 0], [0, 0, 0]])
        S = np.diag([0.5 + 3 / 8, 1.0, 4.0]) + added * np.eye(3)
        J = np.array([[1.0, 2.0, 0.0], [3.0, 2.0, -1.0]])
        matrix = np.block([[W + S, J.T], [J, -1e-9 * np.eye(2)]])
        right = np.array([1.0, -2.0, 3.0])
        expected = np.linalg.solve(matrix, np.concatenate([-right, -here.point.c]))
        dv, dy = here._direction(here.point.c, right)
        assert dv == pytest.approx(expected[:3], rel=1e-6)
        assert dy == pytest.approx(expected[3:], rel=1e-6)

    def test_least_squares_multipliers(self) -> None:
        """min |J' y + slope - z|: with y = (1, -2) as the answer where the gradient is made so."""
        here = run()
        here.point = here.at(np.array([2.0, 3.0, 5.0]))
        here._derive()
        J = np.array([[1.0, 2.0, 0.0], [3.0, 2.0, -1.0]])
        here.z = np.zeros(4)
        here.slope = -J.T @ np.array([1.0, -2.0])
        assert here._least_squares() == pytest.approx([1.0, -2.0], rel=1e-6)
        here.slope = -J.T @ np.array([1.0, -2000.0])
        assert here._least_squares().tolist() == [0.0, 0.0]  # too large to be a start

    def test_a_curvature_is_corrected_until_the_inertia_is_right(self) -> None:
        """-50 x^2, scaled by 1/2, needs a shift of more than 50: 1e-4 times powers of a hundred, at first."""
        x, free = ca.SX.sym("x", 2), np.full(2, INF)
        cost = -50 * x[0] ** 2 + x[1] ** 2
        here = run(program(x=x, f=cost, g=ca.SX(0, 1), lbg=NOTHING, ubg=NOTHING, lbx=-free, ubx=free))
        assert here.weight == pytest.approx(0.5)
        assert here._factorised(np.zeros(2))
        assert here.regularised
        assert here.last_primal == pytest.approx(100.0)
        # From then on a third of the last one is tried, and eight times as much.
        assert here._factorised(np.zeros(2))
        assert here.last_primal == pytest.approx(800.0 / 3)


class TestLineSearch:
    def point(self, here: InteriorRun, theta: float, phi: float) -> Any:
        return replace(here.point, theta=theta, phi=phi)

    def test_sufficient_decrease_of_either_measure(self) -> None:
        """Far from feasible: theta by 1e-5 of it, or the barrier function by 1e-8 of theta."""
        here = run()
        here.point, here.largest_theta, here.small_theta = self.point(here, 5.0, 100.0), 1e4, 1e-4
        takes = [
            here._takes(self.point(here, theta, phi), 1.0, 1.0)
            for theta, phi in (
                (5.0 - 6e-5, 200.0),
                (5.0 - 4e-5, 200.0),
                (9.0, 100.0 - 1e-7),
                (9.0, 100.1),
                (2e4, 0.0),
                (1.0, INF),
            )
        ]
        assert takes == [True, False, True, False, False, False]
        fresh = run()
        fresh.point, fresh.largest_theta, fresh.small_theta = self.point(fresh, 5.0, 100.0), 1e4, 1e-4
        assert fresh._takes(self.point(fresh, 9.0, 100.0 - 1e-7), 1.0, 1.0)
        assert fresh.filter == [(pytest.approx(5.0 * (1 - 1e-5)), pytest.approx(100.0 - 5e-8))]

    def test_the_filter_refuses_what_is_worse_in_both(self) -> None:
        here = run()
        here.filter = [(2.0, 50.0)]
        assert here._passes(self.point(here, 1.9, 60.0))
        assert here._passes(self.point(here, 3.0, 49.0))
        assert not here._passes(self.point(here, 2.0, 50.0))
        assert not here._passes(self.point(here, 3.0, 60.0))

    def test_near_feasibility_a_descent_obeys_armijo(self) -> None:
        """slope -2: (-slope)^2.3 = 4.9 is more than theta^1.1; a decrease of 1e-8 of the slope is enough."""
        here = run()
        here.point, here.largest_theta, here.small_theta = self.point(here, 1e-5, 1.0), 1e4, 1e-4
        assert here._takes(self.point(here, 2e-5, 1.0 - 3e-8), -2.0, 1.0)
        assert here.filter == []
        assert not here._takes(self.point(here, 1e-6, 1.0 - 1e-8), -2.0, 1.0)
        # Without descent the infeasibility counts.
        assert here._takes(self.point(here, 1e-6, 1.0 - 1e-8), 2.0, 1.0)

    def test_the_shortest_step(self) -> None:
        """Eq. 23 with gamma_alpha = 0.05."""
        here = run()
        here.point, here.small_theta = self.point(here, 5.0, 1.0), 1e-4
        assert here._shortest(1.0) == pytest.approx(0.05 * 1e-5)
        assert here._shortest(-1e-2) == pytest.approx(0.05 * min(1e-5, 1e-8 * 5 / 1e-2))
        here.point = self.point(here, 1e-5, 1.0)
        assert here._shortest(-2.0) == pytest.approx(0.05 * min(1e-8 * 1e-5 / 2, 1e-5**1.1 / 2**2.3), rel=1e-9)
        here.point = self.point(here, 0.0, 1.0)
        assert here._shortest(-2.0) == np.finfo(float).eps


class TestBarrierParameter:
    def test_it_is_free_while_errors_fall_and_held_where_they_do_not(self) -> None:
        """After four errors without a decrease it is 0.8 times the mean of the pairs."""
        here = run()
        here.point = here.at(np.array([2.0, 3.0, 5.0]))
        here.z = np.array([1.0, 2.0, 3.0, 4.0])
        here._derive()
        for k in range(4):
            here._choose_mode()
            assert not here.held
            assert len(here.errors) == k + 1
        here._choose_mode()
        assert here.held
        assert here.mu == pytest.approx(0.8 * (2.0 + 4.0 + 24.0 + 4.0) / 4)
        assert here.filter == []
        falling = run()
        falling.errors = [1e9, 1e9, 1e9, 1e9]
        falling._choose_mode()
        assert not falling.held
        assert len(falling.errors) == 4

    def test_mehrotras_rule(self) -> None:
        """(left / now)^3 now after the step without a barrier, between mu_min and 1000."""
        here = run()
        here.point = here.at(np.array([2.0, 3.0, 5.0]))
        here.y, here.z = np.array([1.0, -2.0]), np.array([1.0, 2.0, 3.0, 4.0])
        here._derive()
        ratio = here.z / here.point.distance
        here._factorised(here._on_unknowns(ratio))
        here._probe(ratio)
        dv = here._direction(here.point.c, here.lagrangian)[0]
        d = here.sign * dv[here.of]
        dz = -here.z - ratio * d
        distance = here.point.distance
        primal = min(1.0, 1.0 / max((-d / distance).max(), 1e-300)) if (d < 0).any() else 1.0
        dual = min(1.0, 1.0 / (-dz / here.z).max()) if (dz < 0).any() else 1.0
        left = ((distance + primal * d) * (here.z + dual * dz)).mean()
        now = (distance * here.z).mean()
        assert here.mu == pytest.approx(min(max(here.mu_min, (left / now) ** 3 * now), 1e3), rel=1e-9)
        # A share of the error is a bound from below, but the mean complementarity is one for that.
        for share in (1e-3, 1e6):
            here.settings = replace(here.settings, mu_of_error=share)
            here._probe(ratio)
            assert here.mu == pytest.approx(max((left / now) ** 3 * now, min(now, share * here._error(0.0))), rel=1e-9)

    def test_multipliers_stay_near_the_central_path(self) -> None:
        here = run()
        here.mu = 0.5
        new = here.at(np.array([2.0, 3.0, 5.0]))
        here._arrive(new, np.array([1e-30, 1.0, 1e30, 1.0]))
        assert here.z == pytest.approx([0.25e-10, 1.0, 0.0625e10, 1.0])


def test_patterns_of_few_branches_are_kept() -> None:
    solver = InteriorPoint(program(), {})
    masks = [np.array([bool(k & 1), bool(k & 2), bool(k & 4), bool(k & 8)]) for k in range(10)]
    kept = [solver.pattern(mask[:2], mask[2:]) for mask in masks]
    assert len(solver._patterns) == 8
    assert solver.pattern(masks[9][:2], masks[9][2:]) is kept[9]
    assert solver.pattern(masks[0][:2], masks[0][2:]) is not kept[0]


def test_free_rows_and_fixed_variables_are_left_out_of_the_matrix() -> None:
    """Of [[2, 5], [., 7]] and two rows the second variable and the second row: [[7 + 0.5, 4], [4, -1]]."""
    hessian = np.array([0, 0, 1]), np.array([0, 1, 1])
    jacobian = np.array([0, 0, 1]), np.array([0, 1, 1])
    kkt = KKT(hessian, jacobian, np.array([False, True]), np.array([False, True]))
    assert (kkt.n, kkt.m) == (1, 1)
    kkt.set_jacobian(np.array([8.0, 9.0, 2.0]), np.array([2.0]))
    assert kkt.largest().tolist() == [4.0]
    assert kkt.factorise(np.array([2.0, 5.0, 7.0]), np.array([0.5, -1.0])) == 1
    found, error = kkt.solve(np.array([1.0, 2.0]))
    assert found == pytest.approx(np.linalg.solve([[7.5, 4.0], [4.0, -1.0]], [1.0, 2.0]))
    assert error <= 1e-13
    assert kkt.factorise(None, np.array([1.0, np.nan])) == -1
    empty = KKT(hessian, jacobian, np.zeros(2, bool), np.zeros(2, bool))
    assert empty.factorise(None, NOTHING) == 0
    assert empty.solve(NOTHING)[1] == 0.0


class TestIpopt:
    def test_large_programs_have_looser_options(self) -> None:
        assert defaults(600) == {**COMMON, **TIGHT}
        assert defaults(601) == {**COMMON, **LOOSE}
        assert COMMON["bound_relax_factor"] == 0.0
        assert TIGHT["tol"] == TIGHT["mu_target"] == 1e-12
        assert (LOOSE["tol"], LOOSE["dual_inf_tol"]) == (1e-8, 1.0)

    def test_a_warm_start_has_its_barrier_parameter_and_distances(self) -> None:
        options = warm_start(1e-3, 1e-6)
        assert options["mu_init"] == 1e-3
        assert options["warm_start_init_point"] == "yes"
        pushes = [value for name, value in options.items() if "push" in name or "frac" in name]
        assert pushes == [1e-6] * 5

    @pytest.mark.parametrize(
        ("word", "converged"),
        [("Solve_Succeeded", True), ("Solved_To_Acceptable_Level", True), ("Restoration_Failed", False)],
    )
    def test_converged_is_what_the_solver_says(self, word: str, converged: bool) -> None:
        result = NLPResult(x=NOTHING, lam_x=NOTHING, lam_g=NOTHING, iterations=1, wall_seconds=0.0, solver_status=word)
        assert result.converged == converged
        assert not result.interrupted
