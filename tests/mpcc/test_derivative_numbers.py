"""Derivatives of solutions and optima of MPCCs that have a closed form, and their flags at kinks."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.mpcc import implicit, parametric
from nosnoc_py.mpcc.again import Neighbourhood, Resolve, best_of
from nosnoc_py.mpcc.implicit import Implicit, immovable_rows
from nosnoc_py.mpcc.parametric import Parametric
from nosnoc_py.mpcc.strategy import Solvers

pytestmark = pytest.mark.quick

W, P = ca.SX.sym("w", 2), ca.SX.sym("p", 2)
COST = (W[0] - P[0]) ** 2 + 2 * (W[1] - P[1]) ** 2
NO_POLES = np.zeros((0, 2), int)


class TestImplicit:
    """x - y = p_0 p_1 with 0 <= x complementary to y >= 0: the positive and the negative part of the product."""

    mpcc = ns.MPCC.of_pairs(w=W, p=P, p0=[1.0, 2.0], G=W[0], H=W[1], g=W[0] - W[1] - P[0] * P[1])

    @pytest.mark.parametrize(
        ("w", "p", "values"),
        [
            ([2.0, 0.0], [1.0, 2.0], [6.0, 4.0]),  # 3 x + y + p_1 with x = p_0 p_1
            ([0.0, 2.0], [-1.0, 2.0], [-2.0, 2.0]),  # with y = -p_0 p_1
            ([0.0, 6.0], [3.0, -2.0], [2.0, -2.0]),
        ],
    )
    @pytest.mark.parametrize("scale", [1.0, 100.0])
    def test_of_the_branch(self, w: list[float], p: list[float], values: list[float], scale: float) -> None:
        wanted = 3 * W[0] + W[1] + P[1]
        found = Implicit(self.mpcc, wanted, [0, 1], 0, np.array([scale, 1.0]), NO_POLES)(np.array(w), np.array(p))
        assert found.values == pytest.approx(np.array([values]))
        assert found.flags == ()
        second = Implicit(self.mpcc, wanted, [1], 0, np.array([scale]), NO_POLES)(np.array(w), np.array(p))
        assert second.values == pytest.approx(np.array([values[1:]]))

    def test_a_kink_is_flagged(self) -> None:
        found = Implicit(self.mpcc, W[0], [0], 0, np.ones(1), NO_POLES)(np.zeros(2), np.array([0.0, 2.0]))
        assert found.flags == ("H[0] at whole horizon is zero and begins to move",)
        # What does not move has none.
        still = Implicit(self.mpcc, W[0], [1], 0, np.ones(1), NO_POLES)(np.zeros(2), np.array([0.0, 2.0]))
        assert still.flags == ()
        assert still.values == pytest.approx(np.zeros((1, 1)))

    def test_what_equations_leave_open_or_contradict_is_flagged(self) -> None:
        loose = ns.MPCC.of_pairs(w=W, p=P, p0=[1.0, 2.0], G=W[0], H=W[1])
        found = Implicit(loose, W[0], [0], 0, np.ones(1), NO_POLES)(np.array([1.0, 0.0]), np.array([1.0, 2.0]))
        assert found.flags == ("the equations of the branch leave the solution open",)
        # The other side is zero whatever is open.
        zero = Implicit(loose, W[1], [0], 0, np.ones(1), NO_POLES)(np.array([1.0, 0.0]), np.array([1.0, 2.0]))
        assert (zero.flags, zero.values.tolist()) == ((), [[0.0]])
        rows = ca.vertcat(W[0] - P[0], W[0] - 1)
        double = ns.MPCC.of_pairs(w=W, p=P, p0=[1.0, 2.0], G=W[0], H=W[1], g=rows)
        found = Implicit(double, W[0], [0], 0, np.ones(1), NO_POLES)(np.array([1.0, 0.0]), np.array([1.0, 2.0]))
        assert found.flags == ("the equations of the branch contradict each other",)

    def test_a_start_that_is_not_admitted_is_corrected(self) -> None:
        """Redundant rows say p_0 = p_1: a change of p_0 as a start is corrected to that of p_1."""
        rows = ca.vertcat(W[0] - P[0], W[0] - P[1], W[1] - 0)
        mpcc = ns.MPCC.of_pairs(w=W, p=P, p0=[1.0, 1.0], G=W[0], H=W[1], g=rows)
        found = Implicit(mpcc, W[0], [0, 1], 1, np.ones(2), NO_POLES)(np.array([1.0, 0.0]), np.ones(2))
        assert found.values == pytest.approx(np.array([[0.0, 1.0]]))
        assert np.abs(found.kept) == pytest.approx(np.array([[1.0]]))
        assert found.flags == ()

    def test_rows_that_cannot_leave_zero(self) -> None:
        """d_0 and -d_0 hold each other; d_1 is free; of d_0 + d_1 and the others nothing more follows."""
        rows = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
        assert immovable_rows(rows).tolist() == [True, True, False]
        assert immovable_rows(rows[1:]).tolist() == [False, False]
        assert immovable_rows(np.zeros((0, 2))).tolist() == []
        assert immovable_rows(np.array([[1.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])).tolist() == [True] * 3
        assert immovable_rows(np.array([[1.0, 1.0], [-1.0, 0.0]])).tolist() == [False, False]

    def test_rows_are_divided_by_their_norm_in_the_variables(self) -> None:
        rows = np.array([[3.0, 4.0, 10.0], [0.0, 0.0, -8.0], [0.0, 0.0, 0.5]])
        found = implicit._normalised(rows, 2)
        assert found == pytest.approx(np.array([[0.6, 0.8, 2.0], [0.0, 0.0, -1.0], [0.0, 0.0, 0.5]]))
        assert implicit._nonzero_rows(np.array([[0.0, 1.0], [0.0, 0.0]]), np.zeros((1, 2))).tolist() == [[0.0, 1.0]]
        assert implicit._first_stays(np.array([[0.0, -2.0, 3.0], [4.0, 0.0, 0.0]])).tolist() == [[0, 1, 0], [1, 0, 0]]

    def test_a_basis_takes_rows_that_agree(self) -> None:
        """x_0 = p: then 2 x_0 = 2 p agrees, x_0 = 2 p does not, and x_0 + x_1 = 0 is new."""
        basis = implicit._Basis(np.array([[1.0, 0.0]]), np.array([[-1.0]]))
        assert basis.add(np.array([2.0, 0.0]), np.array([2.0])) or basis.add(np.array([2.0, 0.0]), np.array([-2.0]))
        other = implicit._Basis(np.array([[1.0, 0.0]]), np.array([[-1.0]]))
        agrees = [other.add(np.array([1.0, 0.0]), np.array([value])) for value in (-2.0, -1.0, 1.0, 2.0)]
        assert sum(agrees) == 1
        assert other.add(np.array([1.0, 1.0]), np.array([0.0]))
        # x_1 = -x_0 is known now.
        known = [other.add(np.array([0.0, 1.0]), np.array([value])) for value in (-1.0, 1.0)]
        assert sum(known) == 1


class TestParametric:
    """min (x - p_0)^2 + 2 (y - p_1)^2 with 0 <= x complementary to y >= 0."""

    mpcc = ns.MPCC.of_pairs(
        w=W, p=P, p0=[3.0, 1.0], G=W[0], H=W[1], objective=(W[0] - P[0]) ** 2 + 2 * (W[1] - P[1]) ** 2
    )

    @staticmethod
    def derivative(mpcc: ns.MPCC, w: list[float], p: list[float]) -> Any:
        finish = Solvers(mpcc).finish({})
        outcome = finish.again(np.array(w), np.array(p), np.inf)
        assert outcome.converged
        assert outcome.solved is not None
        columns = np.arange(len(p))
        return Parametric(finish.program)(outcome.w, np.array(p), outcome.solved, columns), outcome

    @pytest.mark.parametrize(
        ("w", "p", "by_p", "objective"),
        [
            ([2.9, 0.01], [3.0, 1.0], [[1.0, 0.0], [0.0, 0.0]], [0.0, 4.0]),
            ([0.01, 2.0], [1.0, 4.0], [[0.0, 0.0], [0.0, 1.0]], [2.0, 0.0]),
        ],
    )
    def test_of_the_branch(self, w: list[float], p: list[float], by_p: Any, objective: list[float]) -> None:
        found, _ = self.derivative(self.mpcc, w, p)
        assert found.w == pytest.approx(np.array(by_p), abs=1e-6)
        assert found.objective == pytest.approx(objective, abs=1e-6)
        assert found.flags == ()
        assert found.loose.shape == (2, 0)

    def test_along_an_equation_with_curvature(self) -> None:
        """min x^2 + z^2 with x + p_1 z = p_0: x = p_0 / (1 + p_1^2), z = p_1 x, value p_0^2 / (1 + p_1^2)."""
        w = ca.SX.sym("w", 3)
        x, z = w[0], w[2]
        mpcc = ns.MPCC.of_pairs(
            w=w, p=P, p0=[3.0, 2.0], G=w[0], H=w[1], g=x + P[1] * z - P[0], objective=x**2 + z**2
        )  # fmt: skip
        found, outcome = self.derivative(mpcc, [0.6, 0.0, 1.2], [3.0, 2.0])
        assert outcome.w == pytest.approx([0.6, 0.0, 1.2], abs=1e-6)
        # dx/dp_1 = -2 p_0 p_1 / (1 + p_1^2)^2 = -0.48; dz/dp_1 = x + p_1 dx/dp_1 = -0.36.
        assert found.w == pytest.approx(np.array([[0.2, -0.48], [0.0, 0.0], [0.4, -0.36]]), abs=1e-6)
        assert found.objective == pytest.approx([1.2, -1.44], abs=1e-6)

    def test_a_biactive_optimum_and_directions_without_cost_are_told(self) -> None:
        biactive, _ = self.derivative(self.mpcc, [1e-9, 1e-9], [0.0, 0.0])
        assert biactive.flags == (
            "the pair G[0] * H[0] is biactive (both sides are zero), with a zero multiplier, and becomes inactive",
        )
        w = ca.SX.sym("w", 3)
        mpcc = ns.MPCC.of_pairs(
            w=w, p=P, p0=[3.0, 2.0], G=w[0], H=w[1], objective=(w[0] - P[0]) ** 2, lbw=[0, 0, -5], ubw=9
        )
        found, _ = self.derivative(mpcc, [3.0, 0.0, 1.0], [3.0, 2.0])
        assert np.abs(found.loose) == pytest.approx(np.array([[0.0], [0.0], [1.0]]), abs=1e-9)
        assert found.flags == ()

    def test_an_active_bound_holds_and_a_weak_one_is_flagged(self) -> None:
        """min (x - p_0)^2 with x <= 2."""
        mpcc = ns.MPCC.of_pairs(w=W, p=P, p0=[3.0, 2.0], G=W[0], H=W[1], objective=(W[0] - P[0]) ** 2, ubw=[2.0, 9.0])
        held, _ = self.derivative(mpcc, [1.9, 0.0], [3.0, 2.0])
        assert held.w == pytest.approx(np.zeros((2, 2)), abs=1e-6)
        assert held.objective == pytest.approx([2.0, 0.0], abs=1e-6)
        assert held.flags == ()
        # Just at the bound without a multiplier: the two one-sided derivatives are 1 and 0.
        finish = Solvers(mpcc).finish({})
        solved = finish.again(np.array([1.9, 0.0]), np.array([3.0, 2.0]), np.inf).solved
        assert solved is not None
        zero = replace(solved, lam_x=0.0 * solved.lam_x, lam_g=0.0 * solved.lam_g)
        weak = Parametric(finish.program)(np.array([2.0, 0.0]), np.array([2.0, 2.0]), zero, np.array([0]))
        assert len(weak.flags) == 1
        assert weak.flags[0].endswith("is at its bound, with a zero multiplier, and becomes inactive")
        inside = Parametric(finish.program)(np.array([1.0, 0.0]), np.array([1.0, 2.0]), zero, np.array([0]))
        assert (inside.flags, inside.w[0, 0]) == ((), pytest.approx(1.0))

    def test_curvature_without_parameters_is_free_and_negative_curvature_is_told(self) -> None:
        y, loose, flags = parametric._reduced(np.diag([2.0, 0.0]), np.array([[4.0], [0.0]]))
        assert y == pytest.approx(np.array([[-2.0], [0.0]]))
        assert np.abs(loose) == pytest.approx(np.array([[0.0], [1.0]]))
        assert flags == ()
        pulled = parametric._reduced(np.diag([2.0, 0.0]), np.array([[4.0], [1.0]]))[2]
        assert [("singular" in flag) for flag in pulled] == [True]
        negative = parametric._reduced(np.diag([2.0, -1.0]), np.array([[4.0], [1.0]]))
        assert negative[0] == pytest.approx(np.array([[-2.0], [1.0]]))
        assert [("not positive definite" in flag) for flag in negative[2]] == [True]
        # The unsymmetric part is rounding.
        skew = parametric._reduced(np.array([[2.0, 1.0], [-1.0, 4.0]]), np.array([[4.0], [4.0]]))[0]
        assert skew == pytest.approx(np.array([[-2.0], [-1.0]]))
        assert parametric._reduced(np.zeros((0, 0)), np.zeros((0, 3)))[0].shape == (0, 3)
        tiny = parametric._reduced(np.diag([2.0, 1e-7]), np.array([[0.0], [0.0]]))[1]
        assert tiny.shape == (2, 0)
        assert parametric._reduced(np.diag([2.0, 1e-8]), np.zeros((2, 1)))[1].shape == (2, 1)

    def test_solutions_of_rows_within_rows(self) -> None:
        """dx = (1, 0, 0) dp + any: with dx_1 = 2 dp, then dx_1 = 3 dp contradicts it."""
        space = parametric.AffineSolution(np.eye(3), np.array([[1.0], [0.0], [0.0]]))
        rows = parametric.LinearRows(np.array([[0.0, 1.0, 0.0]]), np.array([[-2.0]]))
        within = space.within(rows)
        assert within.step == pytest.approx(np.array([[1.0], [2.0], [0.0]]))
        assert np.linalg.matrix_rank(within.loose) == 2
        assert np.abs(within.loose[1]).max() < 1e-12
        assert within.missed(rows).tolist() == []
        assert within.missed(parametric.LinearRows(rows.by_x, np.array([[-3.0]]))).tolist() == [0]
        assert rows.and_(rows).by_x.shape == (2, 3)
        unit = parametric._unit(np.array([[3.0, 4.0], [0.0, 0.0]]), np.array([[10.0], [2.0]]))
        assert unit.by_x == pytest.approx(np.array([[0.6, 0.8], [0.0, 0.0]]))
        assert unit.by_p == pytest.approx(np.array([[2.0], [2.0]]))


class TestNeighbourhoods:
    def test_other_branches_are_ranked_by_the_share_of_their_step(self) -> None:
        others: Any = tuple(SimpleNamespace(step=np.array(step)) for step in ([2.0, 0.0], [0.0, 4.0], [-1.0, 0.0]))
        known = Neighbourhood(None, np.array([1.0, 1.0]), 5.0, np.array([3.0, -2.0]), others)  # type: ignore[arg-type]
        ranked = known.ranked(np.array([2.0, 4.0]))
        assert [distance for distance, _ in ranked] == pytest.approx([0.75, 0.5, -1.0])
        assert [other for _, other in ranked] == [others[1], others[0], others[2]]
        assert known.expected(np.array([2.0, 4.0])) == pytest.approx(5.0 + 3.0 - 6.0)

    def resolve(self, answers: dict[str, Any], p: list[float], asked: list[str], beside: Any = None) -> Any:
        class Scripted(Resolve):
            def solve_on_branch(self, w: Any, solved: Any) -> Any:
                asked.append(solved)
                return answers[solved]

            def solve_relaxed_first(self, known: Any) -> Any:
                asked.append("relaxed")
                return answers["relaxed"]

            def beside(self, w: Any, solved: Any, columns: Any) -> Any:
                return beside

            def descend(self, w: Any, sigma: float, iterations: int) -> Any:
                asked.append(f"descend {sigma:g} {iterations}")
                return answers["descend"]

        return Scripted(SimpleNamespace(), np.array(p), SimpleNamespace())  # type: ignore[arg-type]

    def state(self, objective: float | None) -> Any:
        status = None if objective is None else ns.Status.SOLVED
        return SimpleNamespace(
            status=status, values=SimpleNamespace(objective=objective), certificate=None, infeasibility=1.0,
            complementarity=1.0,
        )  # fmt: skip

    def known(self, *steps: float) -> Any:
        others: Any = tuple(SimpleNamespace(step=np.array([s]), w=None, solved=f"at {s:g}") for s in steps)
        return Neighbourhood(None, np.zeros(1), 4.0, np.array([2.0]), others)  # type: ignore[arg-type]

    @pytest.mark.parametrize(("objective", "how"), [(5.9, "kept"), (6.1, "neighbour")])
    def test_the_last_branch_is_kept_while_its_objective_is_expected(self, objective: float, how: str) -> None:
        """4 is expected at p = 0; half of it more is accepted."""
        asked: list[str] = []
        answers = {"last": self.state(objective), "relaxed": self.state(4.0)}
        found, said = self.resolve(answers, [0.0], asked).solve_nearest(None, "last", self.known())
        assert said == how
        assert asked == (["last"] if how == "kept" else ["last", "relaxed"])
        assert found.values.objective == (objective if how == "kept" else 4.0)

    def test_prepared_branches_are_tried_in_the_order_of_the_way_to_them(self) -> None:
        asked: list[str] = []
        failed = self.state(None)
        answers = dict.fromkeys(("last", "at 1", "at 2", "at 4", "at -1", "relaxed"), failed)
        answers["descend"] = self.state(9.0)
        found, said = self.resolve(answers, [0.8], asked).solve_nearest(None, "last", self.known(4.0, 1.0, 2.0, -1.0))
        # Beyond half of the step to it the first one comes before the last branch; two more follow.
        assert asked == ["at 1", "last", "at 2", "at 4", "relaxed", "descend 0.01 80"]
        assert (found.values.objective, said) == (9.0, "neighbour")
        asked.clear()
        self.resolve(answers, [0.4], asked).solve_nearest(None, "last", self.known(1.0))
        assert asked[:2] == ["last", "at 1"]
        asked.clear()
        self.resolve(answers, [-0.4], asked).solve_nearest(None, "last", self.known(1.0))
        assert asked[:2] == ["last", "relaxed"]
        asked.clear()
        self.resolve({**answers, "last": self.state(3.0)}, [0.4], asked).solve_nearest(None, "last", None)
        assert asked == ["last"]

    def beside(self, found: bool) -> Any:
        """Neighbours of which one is predicted to be good and one to be bad; a third one is contradicted."""
        kept = SimpleNamespace(at=lambda p: SimpleNamespace(found=found))
        promising = [(5.0, None, "good"), (50.0, None, "bad")]
        return SimpleNamespace(
            kept=kept, objective=4.0, fits=lambda p: bool(p[0] < 0.9), promising=lambda p: promising,
            contradicted=lambda p: [(None, "contradicted")],
        )  # fmt: skip

    @pytest.mark.parametrize("prepared", [True, False])
    def test_neighbours_come_first_where_the_kept_branch_contradicts_the_parameters(self, prepared: bool) -> None:
        failed = self.state(None)
        answers = dict.fromkeys(("last", "good", "bad", "contradicted", "relaxed"), failed)
        answers["descend"] = self.state(9.0)
        for found in (False, True):
            asked: list[str] = []
            beside = self.beside(found)
            known = replace(self.known(), beside=beside) if prepared else None
            self.resolve(answers, [0.5], asked, None if prepared else beside).solve_nearest(None, "last", known)
            first = ["good", "last"] if prepared and not found else ["last", "good"]
            # One that promises little has its turn where an expectation was prepared, which all others miss.
            later = ["relaxed", "bad", "contradicted"] if prepared else ["contradicted"]
            assert asked == [*first, *later, "descend 0.01 80"]
        solved = {**answers, "good": self.state(4.5)}
        asked = []
        answer = self.resolve(solved, [0.5], asked, beside).solve_nearest(None, "last", known)
        assert (answer[0].values.objective, answer[1], asked) == (4.5, "neighbour", ["last", "good"])
        # A bad one counts if nothing else is solved, also by the homotopy.
        lost = {**answers, "bad": self.state(50.0), "descend": failed}
        known = replace(self.known(), beside=beside)
        assert self.resolve(lost, [0.5], []).solve_nearest(None, "last", known)[0].values.objective == 50.0

    def test_the_expected_objective_follows_what_was_solved_nearby(self) -> None:
        """Beside a kink the derivative is that of one side: 4 + 2 dp here, and 5 at dp = -1."""
        one, other = np.array([-1.0]), np.array([0.5])
        smooth = replace(self.known(), excesses=((other, 0.25, 2), (-other, 0.25, 2)))
        assert [smooth.expected(np.array([p])) for p in (-1.0, 0.0, 1.0)] == pytest.approx([3.0, 4.0, 7.0])
        known = replace(self.known(), excesses=((one, 3.0, 1),))
        assert [known.expected(np.array([p])) for p in (-2.0, -1.0, 0.0, 1.0)] == pytest.approx([6.0, 5.0, 4.0, 6.0])
        assert known.acceptable(np.array([-1.0])) == pytest.approx(7.5)
        assert known.acceptable(np.array([1.0])) == pytest.approx(9.0)

    def test_of_two_directions_the_smaller_excess_counts(self) -> None:
        """4 + 2 p is expected: 9 at 1 is too much by 3, 3 at -1 by 1; in the second parameter one side is solved."""
        found = {(1.0, 0.0): 9.0, (-1.0, 0.0): 3.0, (0.0, 1.0): 4.5}

        class Nearby(Resolve):
            def _known(self, state: Any) -> Any:
                return Neighbourhood(None, np.zeros(2), 4.0, np.array([2.0, 0.0]))

            def beside(self, w: Any, solved: Any, columns: Any) -> Any:
                return None

            def solve_on_branch(self, w: Any, solved: Any) -> Any:
                return state(found.get(tuple(self.p)))

            def solve_relaxed_first(self, known: Any) -> Any:
                return None

        def state(objective: float | None) -> Any:
            one = self.state(objective)
            one.w, one.solved_branch = None, SimpleNamespace(G=0, H=0, r=0)
            return one

        steps = [np.array(step) for step in ([1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0])]
        known = Nearby(None, np.zeros(2), None)._around(state(4.0), steps)  # type: ignore[arg-type]
        assert known is not None
        assert [(excess, power) for _, excess, power in known.excesses] == [(1.0, 2), (1.0, 2), (0.5, 1)]

    def test_without_a_clear_gain_the_branch_stays(self) -> None:
        """A thousandth of the objective is a clear gain."""
        assert not self.prepared(3.997)
        assert self.prepared(3.995)

    def prepared(self, objective: float) -> bool:
        """True if a homotopy from afar with this objective replaces a solution with the objective 4."""
        last = self.state(objective)
        resolve, calls = self.resolve({"last": self.state(4.0)}, [0.0], []), iter((self.state(None), last))
        object.__setattr__(resolve, "_around", lambda state, steps: state)
        object.__setattr__(resolve, "descend", lambda w, *given: next(calls))
        found, around = resolve.prepare(None, "last", [])
        assert around is found
        return found is last

    def test_the_best_of_solved_states(self) -> None:
        low, high = self.state(1.0), self.state(2.0)
        assert best_of([self.state(None), high, low]) is low
        assert best_of([self.state(None)]) is None
