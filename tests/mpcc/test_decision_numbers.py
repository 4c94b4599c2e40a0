"""Decisions of homotopies and of the attempts of `Auto` on hand-made states: no nonlinear program is solved."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.attempts.rank import ObjectiveScale
from nosnoc_py.mpcc import auto
from nosnoc_py.mpcc.active_set import ActiveSet
from nosnoc_py.mpcc.auto import Attempt, better
from nosnoc_py.mpcc.homotopy import CUSP, Homotopy
from nosnoc_py.mpcc.lpec import branch_on_group
from nosnoc_py.mpcc.strategy import Solvers, residuals_small, runs_away
from nosnoc_py.status import Status

pytestmark = pytest.mark.quick

W = ca.SX.sym("w", 2)
CURVED = ns.MPCC.of_pairs(w=W, G=W[0], H=W[1], objective=ca.sumsqr(W - 1))
SOLVERS = Solvers(CURVED)
FEASIBILITY = Solvers(ns.MPCC.of_pairs(w=W, G=W[0], H=W[1], g=W[0] + W[1] - 1))


def point(objective: float = 1.0, status: Status | None = Status.SOLVED, **more: Any) -> Any:
    """A state of a strategy with its objective and residuals."""
    given: dict[str, Any] = {
        "status": status, "values": SimpleNamespace(objective=objective, g=np.zeros(0)), "infeasibility": 0.0,
        "complementarity": 0.0, "certificate": None, "w": np.zeros(2), "solvers": SOLVERS, "p": np.zeros(0),
    }  # fmt: skip
    return SimpleNamespace(**{**given, **more})


class TestBetterPoints:
    def test_solved_points_by_their_objective(self) -> None:
        low, high, failed = point(1.0), point(1.0 + 2e-5), point(0.0, None, infeasibility=1.0)
        assert better(high, low) is low
        assert better(low, high) is low
        assert better(failed, high) is high
        assert better(None, failed) is failed
        near, far = point(9.0, None, infeasibility=1.0), point(0.0, None, complementarity=2.0)
        assert better(far, near) is near

    def test_of_the_same_objective_one_with_a_certificate(self) -> None:
        plain = point(1.0)
        certified = point(1.0 + 0.9e-5, certificate=SimpleNamespace(b_stationary=True))
        assert better(plain, certified) is certified
        assert better(certified, plain) is certified
        assert better(plain, point(1.0)) is plain
        assert better(plain, point(1.0 + 1.1e-5, certificate=SimpleNamespace(b_stationary=True))) is plain

    @pytest.mark.parametrize(
        ("value", "than", "lower"),
        [(0.9989, 1.0, True), (0.9991, 1.0, False), (-1.0011, -1.0, True), (-1e-10, 0.0, True)],
    )
    def test_lower_by_a_thousandth(self, value: float, than: float, lower: bool) -> None:
        assert auto._lower(value, than) == lower

    def test_objectives_that_vanish_are_compared_with_their_change_from_the_start(self) -> None:
        """A millionth of the change counts as the size; a thousandth of that is no difference."""
        descent = ObjectiveScale.of([(50.0, 0.0)])
        assert not auto._lower(0.0, 0.9e-3 * 50e-6, descent)
        assert auto._lower(0.0, 1.1e-3 * 50e-6, descent)

    @pytest.mark.parametrize(
        ("infeasibility", "complementarity", "w", "small"),
        [(0.9e-8, 0.9e-8, 1.0, True), (1.1e-8, 0.0, 1.0, False), (0.0, 1.1e-8, 1.0, False), (0.0, 0.0, 1e30, False)],
    )
    def test_small_residuals(self, infeasibility: float, complementarity: float, w: float, small: bool) -> None:
        state = point(infeasibility=infeasibility, complementarity=complementarity, w=np.array([w, 0.0]))
        options = SimpleNamespace(complementarity_tolerance=1e-8, infeasibility_tolerance=1e-8)
        assert residuals_small(state, options) == small
        assert runs_away(point(np.nan))
        assert runs_away(point(w=np.array([np.nan, 0.0])))


class TestAttempts:
    def attempt(self, sigma: float | None = None, perturbation: float = 0.0) -> Attempt:
        return Attempt("name", ActiveSet(), sigma=sigma, perturbation=perturbation)

    def state(self, objectives: tuple[float, ...], attempts: tuple[Attempt, ...] | None = None, **more: Any) -> Any:
        count = len(objectives)
        attempts = tuple(self.attempt() for _ in range(count)) if attempts is None else attempts
        given: dict[str, Any] = {
            "objectives": objectives, "attempts": attempts, "attempt": count - 1, "solvers": SOLVERS, "best": None,
            "origin": np.array([1.0, -4.0]), "nearby": None, "p": np.zeros(0),
            "scale": ObjectiveScale(),
        }  # fmt: skip
        return SimpleNamespace(**{**given, **more})

    @pytest.mark.parametrize(
        ("objectives", "pays"),
        [
            ((1.0, 1.0), False),
            ((1.0, 1.0005), False),
            ((1.0, 1.002), True),
            ((1.0, np.inf), True),
            ((1.002, 1.0), True),
        ],
    )
    def test_another_descent_pays_where_the_first_ones_disagree(self, objectives: Any, pays: bool) -> None:
        assert ns.Auto()._pays(self.state(objectives)) == pays

    @pytest.mark.parametrize(
        ("last", "rounds", "pays"),
        [(0.99, 1, True), (0.9995, 1, False), (0.99, 2, True), (0.99, 3, False), (1.1, 1, False)],
    )
    def test_and_goes_on_while_it_gains_three_times_at_most(self, last: float, rounds: int, pays: bool) -> None:
        again = tuple(self.attempt(sigma=0.1) for _ in range(rounds))
        state = self.state((1.0,) * (1 + rounds) + (last,), (self.attempt(), self.attempt(), *again))
        assert ns.Auto()._pays(state) == pays
        plain = self.state((1.0,) * (1 + rounds) + (last,), (self.attempt(), *again, self.attempt()))
        assert not ns.Auto()._pays(plain)

    @pytest.mark.parametrize(
        ("relaxed", "infeasibility", "converged", "behind"),
        [
            (1.01, 0.0, True, True),
            (1.0005, 0.0, True, False),
            (1.01, 2e-6, True, False),
            (1.01, 0.9e-6, True, True),
            (1.01, 0.0, False, False),
        ],
    )
    def test_a_relaxation_that_is_worse_than_the_best_point_is_left(
        self, relaxed: float, infeasibility: float, converged: bool, behind: bool
    ) -> None:
        inner: Any = SimpleNamespace(homotopy=point(relaxed, None, infeasibility=infeasibility, converged=converged))
        assert ns.Auto._is_behind(self.state((1.0,), best=point(1.0)), inner) == behind
        assert not ns.Auto._is_behind(self.state((1.0,), best=point(1.0, None)), inner)
        assert not ns.Auto._is_behind(self.state((1.0,)), inner)

    @pytest.mark.parametrize(
        ("name", "sigma", "objective", "status", "repeats"),
        [
            ("relaxed again", 0.1, 3.0 * (1 + 0.9e-9), "Solve_Succeeded", True),
            ("relaxed again", 0.1, 3.0 * (1 + 1.1e-9), "Solve_Succeeded", False),
            ("relaxed again", 0.01, 3.0, "Solve_Succeeded", False),
            ("relaxed again", 0.1, 3.0, "Maximum_Iterations_Exceeded", False),
            ("elastic", 0.1, 3.0, "Solve_Succeeded", False),
        ],
    )
    def test_a_descent_that_comes_to_the_relaxed_optimum_of_an_earlier_one_is_left(
        self, name: str, sigma: float, objective: float, status: str, repeats: bool
    ) -> None:
        def line(label: str, sigma: float, objective: float, status: str) -> Any:
            return SimpleNamespace(label=label, sigma=sigma, objective=objective, solver_status=status)

        first = line("relaxed: homotopy", 0.1, 3.0, "Solve_Succeeded")
        last = line(f"{name}: homotopy", sigma, objective, status)
        attempt = Attempt(name, ActiveSet(), sigma=0.1)
        assert ns.Auto._repeats(self.state((4.0,), records=(first, last)), attempt, 1) == repeats
        assert not ns.Auto._repeats(self.state((4.0,), records=(last,)), attempt, 1)
        failed = line("relaxed: homotopy", 0.1, 3.0, "Restoration_Failed")
        assert not ns.Auto._repeats(self.state((4.0,), records=(failed, last)), attempt, 1)

    def test_perturbations_are_shares_of_the_size_of_the_variables(self) -> None:
        """0.3 of max(1, |w|) on both sides, from a generator of their own."""
        solver, state = ns.Auto(seed=3), self.state((1.0,))
        assert solver._perturbed(state, 0.0, 1) is state.origin
        moved = np.array([solver._perturbed(state, 0.3, number) for number in range(1, 400)]) - state.origin
        assert np.abs(moved).max(axis=0) == pytest.approx([0.3, 1.2], rel=0.05)
        assert np.abs(moved).max(axis=0)[0] <= 0.3
        assert solver._perturbed(state, 0.3, 7).tolist() == solver._perturbed(state, 0.3, 7).tolist()
        assert solver._perturbed(state, 0.3, 7).tolist() != solver._perturbed(state, 0.3, 8).tolist()

    def test_names_and_order(self) -> None:
        names = [attempt.name for attempt in ns.Auto(restarts=2).attempts(CURVED)]
        assert names[:6] == ["relaxed", "elastic", "elastic from afar", "L-shaped", "stepwise", "direct"]
        assert names[6:] == ["elastic", "elastic from afar"]
        assert [a.perturbation for a in ns.Auto(restarts=2).attempts(CURVED)] == [0.0] * 6 + [0.3] * 2
        assert "relaxed" not in [a.name for a in ns.Auto(restarts=0).attempts(FEASIBILITY.mpcc)]
        assert len(ns.Auto(restarts=0).attempts(FEASIBILITY.mpcc)) == 5

    def test_what_remains_to_be_tried(self) -> None:
        solver = ns.Auto()
        first, second, third = self.attempt(), self.attempt(), self.attempt(perturbation=0.3)
        going = SimpleNamespace(status=Status.NOT_COMPLEMENTARY)
        three = (first, second, third)
        # With an objective two descents are made even if the first one is solved.
        one = self.state((1.0,), three, best=point(1.0))
        assert solver._further(one, going) == three
        # Two that agree end it, unless the certificate is open; restarts do not follow a solved point.
        two = self.state((1.0, 1.0), three, best=point(1.0))
        assert solver._further(two, going) is None
        fourth = (first, second, self.attempt(), third)
        assert solver._further(self.state((1.0, 1.0), fourth, best=point(1.0)), going) == fourth
        assessed = point(1.0, certificate=SimpleNamespace(b_stationary=False))
        assert solver._further(self.state((1.0, 1.0), fourth, best=assessed), going) is None
        unknown = point(1.0, certificate=SimpleNamespace(b_stationary=None))
        assert solver._further(self.state((1.0, 1.0), fourth, best=unknown), going) == fourth
        # If they disagree the best point descends again from a small relaxation.
        apart = solver._further(self.state((1.0, 2.0), three, best=point(1.0)), going)
        assert apart is not None
        assert [a.name for a in apart] == ["name", "name", "relaxed again", "name"]
        assert apart[2].sigma == 0.1
        failed = self.state((np.inf,), three, best=point(1.0, None))
        assert solver._further(failed, going) == three
        assert solver._further(self.state((np.inf,), three[:1], best=point(1.0, None)), going) is None
        assert solver._further(failed, SimpleNamespace(status=Status.TIME_LIMIT)) is None

    def test_a_motion_nearby_comes_after_the_first_descents(self) -> None:
        solver, made = ns.Auto(), np.array([5.0, 6.0])
        with_it = auto.AutoState(
            **{
                **dict.fromkeys(("solvers", "w", "p", "values")), "solvers": SOLVERS, "complementarity": 1.0,
                "complementarity_min": 1.0, "infeasibility": 1.0, "attempts": (self.attempt(),) * 3, "attempt": 1,
                "inner": None, "origin": None, "nearby": lambda best: made, "best": point(1.0, None),
            }
        )  # fmt: skip
        found = solver._with_nearby(with_it)
        assert [a.name for a in found.attempts] == ["name", "name", "near the motion", "name"]
        assert found.attempts[2].point.tolist() == [5.0, 6.0]
        assert found.attempts[2].sigma == pytest.approx(
            max(1e-4 * solver.attempts(CURVED)[1].strategy.homotopy.sigma_0, 1e-6)
        )
        for other in (
            {"attempt": 0},
            {"attempt": 2},
            {"nearby": None},
            {"best": point(1.0)},
            {"nearby": lambda best: None},
        ):
            assert len(solver._with_nearby(replace(with_it, **other)).attempts) == 3


class TestHomotopies:
    def state(self, records: list[tuple[float, float]], word: str = "Solve_Succeeded", **more: Any) -> Any:
        lines = [
            SimpleNamespace(label="homotopy", infeasibility=i, complementarity=c, solver_status=word)
            for i, c in records
        ]
        given: dict[str, Any] = {
            "records": tuple(lines),
            "sigma": 1e-3,
            "converged": True,
            "finish_due": (),
            "finished": False,
        }
        return point(**{"status": None, **given, **more})

    def test_a_point_that_stays_infeasible_stalls(self) -> None:
        """Three steps whose infeasibility, above 1e-3, changes by less than a hundredth."""
        homotopy = Homotopy()
        assert homotopy._stalled(self.state([(0.5, 0.0), (0.5, 0.0), (0.4999, 0.0)]))
        assert not homotopy._stalled(self.state([(0.5, 0.0), (0.5, 0.0)]))
        assert not homotopy._stalled(self.state([(0.5, 0.0), (0.45, 0.0), (0.4, 0.0)]))
        assert not homotopy._stalled(self.state([(0.9e-3, 0.0)] * 3))
        assert homotopy._stalled(self.state([(1.1e-3, 0.0)] * 3))
        assert not Homotopy(finish="none")._stalled(self.state([(0.5, 0.0)] * 3))

    def test_slacks_that_stay_stall_in_an_elastic_homotopy(self) -> None:
        elastic = Homotopy(steering="l_inf")
        assert elastic._stalled(self.state([(0.0, 0.5)] * 3))
        assert not elastic._stalled(self.state([(0.0, 0.5)] * 2))
        assert not elastic._stalled(self.state([(0.0, 0.9e-8)] * 3))
        assert not Homotopy()._stalled(self.state([(0.0, 0.5)] * 3))
        # Without an objective two are enough.
        assert elastic._stalled(self.state([(0.0, 0.5)] * 2, solvers=FEASIBILITY))

    @pytest.mark.parametrize(
        ("word", "fields", "status"),
        [
            ("Invalid_Number_Detected", {}, Status.NUMERICAL_ERROR),
            ("User_Requested_Stop", {}, Status.TIME_LIMIT),
            ("Solve_Succeeded", {"w": np.array([1e30, 0.0])}, Status.UNBOUNDED),
            ("Maximum_Iterations_Exceeded", {"infeasibility": 1.0}, Status.ITERATION_LIMIT),
            ("Solve_Succeeded", {"infeasibility": 1.0}, Status.LOCALLY_INFEASIBLE),
            (CUSP, {}, Status.NOT_AN_OPTIMUM),
            ("Restoration_Failed", {}, Status.ITERATION_LIMIT),
            ("Infeasible_Problem_Detected", {"complementarity": 1.0}, Status.LOCALLY_INFEASIBLE),
            ("Solve_Succeeded", {"complementarity": 1.0}, Status.NOT_COMPLEMENTARY),
        ],
    )
    def test_verdicts(self, word: str, fields: dict[str, Any], status: Status) -> None:
        assert Homotopy()._verdict(self.state([(0.0, 0.0)], word, **fields)) is status

    @pytest.mark.parametrize(
        ("before", "after", "sigma", "loses"),
        [
            (1.0, 1.9, 1.0, False),
            (1.0, 1e9, 1.0, True),
            (1.0, 1e9, 1e-30, False),
            (100.0, 150.0, 1.0, False),
            (100.0, 250.0, 1.0, True),
        ],
    )
    def test_a_finish_that_costs_much_has_lost_the_branch(
        self, before: float, after: float, sigma: float, loses: bool
    ) -> None:
        homotopy = Homotopy(finish_loss=1.0)
        assert homotopy._loses(point(before, sigma=sigma), point(after)) == loses

    def test_tolerances_follow_the_relaxation(self) -> None:
        """A tenth of sigma between 1e-9 and 1e-3; multipliers start at the barrier parameter sigma."""
        homotopy = Homotopy(step_tolerances=True, max_iterations=7)
        for sigma, tolerance in ((1.0, 1e-3), (1e-4, 1e-5), (1e-12, 1e-9)):
            settings = homotopy._settings(self.state([], sigma=sigma, dual=None))
            assert (settings["tol"], settings["max_iter"], settings["dual_inf_tol"]) == (
                pytest.approx(tolerance),
                7,
                1.0,
            )
            assert "mu_init" not in settings
        warm = homotopy._settings(self.state([], sigma=1e-4, dual=object()))
        assert (warm["mu_init"], warm["warm_start_bound_push"]) == (1e-4, pytest.approx(1e-5))
        assert homotopy._settings(self.state([], sigma=1.0, dual=object()))["warm_start_bound_push"] == 1e-2
        assert Homotopy(max_iterations=7)._settings(self.state([], sigma=1.0)) == {"max_iter": 7}

    def test_a_start_near_an_iterate_has_a_small_relaxation(self) -> None:
        homotopy, sigma = Homotopy(sigma_0=10.0, sigma_min=1e-9, repeats=2).warm(CURVED)
        assert (homotopy.repeats, sigma) == (0, pytest.approx(1e-3))
        assert Homotopy(sigma_0=1e-3, sigma_min=1e-6).warm(CURVED)[1] == 1e-6


def test_the_group_that_is_farthest_from_both_sides_is_decided_next() -> None:
    """Of min(3, 5), min(4, 9) and min(8, 7), which is decided already, the second; its smaller side is tried first."""
    none = np.zeros(3, bool)
    undecided = np.array([True, True, False])
    left, right = np.array([3.0, 4.0, 8.0]), np.array([5.0, 9.0, 7.0])
    first, last = branch_on_group((none, none), left, right, undecided)
    assert (first[0].tolist(), first[1].tolist()) == ([False] * 3, [False, True, False])
    assert (last[0].tolist(), last[1].tolist()) == ([False, True, False], [False] * 3)
    first, last = branch_on_group((none, none), right, left, undecided)
    assert last[1].tolist() == [False, True, False]
    kept = np.array([False, False, True])
    assert branch_on_group((kept, none), left, right, undecided)[1][0].tolist() == [False, True, True]
