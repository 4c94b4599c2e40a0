"""Decisions of the refinement and of its programs on numbers that are written down."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.attempts.rank import RankGroup
from nosnoc_py.attempts.work import count, counted
from nosnoc_py.errors import ModelError
from nosnoc_py.kernels import Kernel
from nosnoc_py.mpcc.ipopt import NLPResult
from nosnoc_py.programs import BlockProgram, KernelBlock, LinearMap
from nosnoc_py.sequences import optimise, refinement
from nosnoc_py.sequences.contact_laws import ContactLaws
from nosnoc_py.sequences.optimise import NOT_FINITE, has_descent, status_of
from nosnoc_py.sequences.plan import Plan
from nosnoc_py.sequences.program import PhaseMesh, PhaseStart
from nosnoc_py.sequences.refinement import (
    PhaseAttempt,
    Refinement,
    check_times,
    events_beside_nodes,
    events_beyond_nodes,
    free_start,
    joined,
    laws_of,
    motion_of,
    motion_of_states,
    start_of_motion,
    stretched_control,
    with_added_phase,
)
from nosnoc_py.solution.certificate import Window
from nosnoc_py.status import Status, Verdict

pytestmark = pytest.mark.quick

INF = np.inf


def ball(**changed: Any) -> ns.OCP:
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    ground = ns.Contact("ground", gap=q, restitution=0.5)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=2, force=u - 20, contacts=[ground])
    asked: dict[str, Any] = {"horizon": 1.0, "x0": [1.0, 0.0], "stage_cost": u**2}
    return ns.OCP(system, **{**asked, **changed})


class TestEventsAtNodes:
    mesh = PhaseMesh(intervals=10, equal=True)

    @pytest.mark.parametrize(
        ("before", "after", "moved"),
        [
            (0.25, 0.3, 0.305),  # held at the end of the third interval
            (0.25, 0.3 - 0.5e-6, 0.305),
            (0.25, 0.3 - 2e-6, None),
            (0.25, 0.27, None),
            (0.25, 0.2, 0.195),  # held at its begin
            (0.25, 0.2 + 0.5e-6, 0.195),
            (0.25, 0.2 + 2e-6, None),
            (0.05, 0.0, None),  # the ends of the horizon are no nodes to cross
            (0.95, 1.0, None),
            (0.95, 0.9, 0.895),
            (0.05, 0.1, 0.105),
            (0.3 - 1e-7, 0.3, 0.295),  # a start at a node belongs to the interval after it
        ],
    )
    def test_an_event_that_a_node_holds_is_moved_beyond_it(
        self, before: float, after: float, moved: float | None
    ) -> None:
        found = events_beyond_nodes(self.mesh, np.array([0.0, before, 1.0]), np.array([0.0, after, 1.0]))
        if moved is None:
            assert found is None
        else:
            assert found == pytest.approx([0.0, moved, 1.0])

    def test_events_keep_their_order(self) -> None:
        before, after = np.array([0.0, 0.25, 0.304, 1.0]), np.array([0.0, 0.3, 0.301, 1.0])
        assert events_beyond_nodes(self.mesh, before, after) == pytest.approx([0.0, 0.305, 0.305, 1.0])
        doubled = events_beyond_nodes(self.mesh, 2 * before, 2 * after)
        assert doubled == pytest.approx([0.0, 0.61, 0.61, 2.0])

    def test_variants_move_one_event_beyond_its_nearest_node(self) -> None:
        edges = np.array([0.0, 0.28, 0.52, 0.97, 1.0])
        found = events_beside_nodes(self.mesh, edges)
        # The nearest nodes are 0.3 and 0.5; that of 0.97 is the end.
        assert len(found) == 2
        assert found[0] == pytest.approx([0.0, 0.305, 0.52, 0.97, 1.0])
        assert found[1] == pytest.approx([0.0, 0.28, 0.495, 0.97, 1.0])
        # One that would change the order is left out, and so is one at the begin.
        assert events_beside_nodes(self.mesh, np.array([0.0, 0.29, 0.304, 1.0]))[0] == pytest.approx(
            [0.0, 0.29, 0.295, 1.0]
        )
        assert events_beside_nodes(self.mesh, np.array([0.0, 0.02, 1.0])) == []

    @pytest.mark.parametrize(
        ("after", "misplaced"), [([0.4, 0.6], False), ([0.44, 0.56], False), ([0.46, 0.54], True), ([1.0], True)]
    )
    def test_intervals_are_misplaced_if_their_numbers_change(self, after: list[float], misplaced: bool) -> None:
        mesh = PhaseMesh(intervals=10)
        assert refinement._misplaced(mesh, np.array([0.4, 0.6]), np.array(after)) == misplaced
        assert refinement._misplaced(mesh, np.array([0.4, 0.6]), 3.0 * np.array(after)) == misplaced


class TestMessages:
    def test_notes_are_joined(self) -> None:
        assert joined("a", "", "b") == "a; b"
        assert joined("", "") == ""

    @pytest.mark.parametrize(("growth", "noted"), [(None, False), (29.9, False), (30.1, True)])
    def test_an_unstable_motion_is_noted(self, growth: float | None, noted: bool) -> None:
        certificate: Any = SimpleNamespace(amplification=growth)
        assert ("unstable" in refinement._growth(certificate)) == noted

    def test_gaps_that_a_motion_nearly_touches(self) -> None:
        def attempt(verdict: Verdict) -> Any:
            events = [
                SimpleNamespace(event=SimpleNamespace(name="left", kind="impact"), claimed=None),
                SimpleNamespace(event=SimpleNamespace(name="right", kind="impact"), claimed=0.5),
                SimpleNamespace(event=SimpleNamespace(name="right", kind="contact"), claimed=None),
            ]
            return PhaseAttempt(point=Any, solution=Any, certificate=SimpleNamespace(verdict=verdict, events=events))  # type: ignore[arg-type]

        assert refinement._nearly_touched_gaps(attempt(Verdict.REFUTED)) == ["gap[left]"]
        assert refinement._nearly_touched_gaps(attempt(Verdict.UNDECIDED)) == ["gap[left]"]
        assert refinement._nearly_touched_gaps(attempt(Verdict.INACCURATE)) == []


class TestStatus:
    def point(self, word: str, residual: float = 1.0, objective: float = 1.0, **result: Any) -> Any:
        given = {"solver_status": word, "interrupted": False, "converged": word == "Solve_Succeeded", **result}
        return SimpleNamespace(
            result=SimpleNamespace(**given), residual=residual, objective=objective, worst="goal", violation=0.25
        )

    @pytest.mark.parametrize(
        ("word", "residual", "status"),
        [
            ("Solve_Succeeded", 0.9e-6, Status.SOLVED),
            ("Solve_Succeeded", 1.1e-6, Status.LOCALLY_INFEASIBLE),
            ("Maximum_Iterations_Exceeded", 0.9e-6, Status.FEASIBLE),
            ("Maximum_Iterations_Exceeded", 1.1e-6, Status.ITERATION_LIMIT),
            ("User_Requested_Stop", 1.0, Status.TIME_LIMIT),
            (NOT_FINITE, 1.0, Status.NUMERICAL_ERROR),
            ("Solve_Succeeded", np.nan, Status.NUMERICAL_ERROR),
            ("Infeasible_Problem_Detected", 1.0, Status.LOCALLY_INFEASIBLE),
        ],
    )
    def test_residuals_come_before_the_word_of_the_solver(self, word: str, residual: float, status: Status) -> None:
        assert status_of(self.point(word, residual), 1e-6)[0] is status

    def test_messages(self) -> None:
        assert status_of(self.point("Infeasible_Problem_Detected"), 1e-6)[1] == "this sequence misses goal by 0.25"
        assert status_of(self.point("Maximum_Iterations_Exceeded", 0.0), 1e-6)[1] == (
            "the solver ended by Maximum_Iterations_Exceeded"
        )
        assert status_of(self.point("Solve_Succeeded", 0.0), 1e-6)[1] == ""
        assert status_of(self.point("x", 0.0, np.nan), 1e-6)[0] is Status.NUMERICAL_ERROR
        assert status_of(self.point("x", 0.0, interrupted=True), 1e-6)[0] is Status.INTERRUPTED
        with counted(limit=1.0):
            count(2.0)
            assert status_of(self.point("User_Requested_Stop"), 1e-6)[0] is Status.WORK_LIMIT


def program(rows: Any, lower: Any, upper: Any, cost: Any, x: ca.SX, bound: float = 9.0) -> BlockProgram:
    """The rows and the cost of x with bounds -+ bound, at one place."""
    size = int(x.numel())
    kernel, at = Kernel(x, ca.vertcat(*rows), cost), LinearMap.at(np.arange(size))
    block = KernelBlock(name="all", kernel=kernel, at=at, lower=lower, upper=upper)
    return BlockProgram([block], np.full(size, -bound), np.full(size, bound), np.ones(size), np.full(size, 0.5))


class TestDescent:
    x = ca.SX.sym("x", 2)

    @pytest.mark.parametrize(
        ("at", "lower", "upper", "descent"),
        [
            ((1.0, 1.0), 1.0, np.inf, True),  # x_0 + x_1 >= 1 is inactive: downhill is free
            ((0.5, 0.5), 1.0, np.inf, False),  # it is active, and the gradient (1, 1) points along it
            ((0.5, 0.5), -np.inf, 1.0, True),  # the other side may be left
            ((0.5, 0.5), 1.0, 1.0, False),
            ((0.2, 0.2), 1.0, np.inf, False),  # infeasible: no more is asked than the point has
        ],
    )
    def test_of_a_linear_objective_along_a_row(
        self, at: tuple[float, float], lower: float, upper: float, descent: bool
    ) -> None:
        """min x_0 + x_1."""
        nlp = program([self.x[0] + self.x[1]], lower, upper, self.x[0] + self.x[1], self.x)
        assert has_descent(nlp, np.array(at)) == descent

    @pytest.mark.parametrize(
        ("at", "lower", "upper", "descent"),
        [
            ((0.5, 0.5), -np.inf, 1.0, False),
            ((0.2, 0.2), -np.inf, 1.0, True),
            ((0.8, 0.8), -np.inf, 1.0, False),
            ((0.5, 0.5), 1.0, np.inf, True),
        ],
    )
    def test_uphill(self, at: tuple[float, float], lower: float, upper: float, descent: bool) -> None:
        """max x_0 + x_1."""
        nlp = program([self.x[0] + self.x[1]], lower, upper, -self.x[0] - self.x[1], self.x)
        assert has_descent(nlp, np.array(at)) == descent

    def test_at_a_minimum_at_a_bound_and_without_numbers(self) -> None:
        x = self.x
        assert not has_descent(program([x[0]], -9.0, 9.0, ca.sumsqr(x), x), np.zeros(2))
        assert not has_descent(program([x[0]], -99.0, 99.0, x[0], x), np.array([-9.0, 0.0]))
        assert has_descent(program([x[0]], -99.0, 99.0, x[0], x), np.array([9.0, 0.0]))
        assert not has_descent(program([x[0]], -99.0, 99.0, -x[0], x), np.array([9.0, 0.0]))
        assert has_descent(program([x[0]], -9.0, 9.0, ca.sqrt(x[0] - 20), x), np.zeros(2))

    def test_along_an_equation_a_difference_of_gradients_is_left(self) -> None:
        """min x_0 + c x_1 with x_0 + x_1 = 1: only for c = 1 nothing is gained."""
        for slope, descent in ((1.0, False), (1.1, True), (0.9, True)):
            nlp = program([self.x[0] + self.x[1]], 1.0, 1.0, self.x[0] + slope * self.x[1], self.x)
            assert has_descent(nlp, np.array([0.5, 0.5])) == descent


class TestOptima:
    """Answers of the solver that are written down: (x, word, iterations)."""

    def found(self, monkeypatch: pytest.MonkeyPatch, answers: list[Any], **more: Any) -> tuple[Any, list[Any]]:
        asked, given = list[Any](), iter(answers)

        class Answers:
            def __init__(self, nlp: Any, options: Any) -> None:
                asked.append(options)

            def solve(self, x: Any, p: Any, deadline: float, **bounds: Any) -> NLPResult:
                values, word, iterations = next(given)
                asked.append(bounds)
                return NLPResult(
                    x=np.array(values), lam_x=x, lam_g=x, iterations=iterations, wall_seconds=0.0, solver_status=word
                )

        monkeypatch.setattr(optimise, "InteriorPoint", Answers)
        monkeypatch.setattr(optimise, "PhasePoint", SimpleNamespace(of=lambda *parts: SimpleNamespace(parts=parts)))
        nlp = SimpleNamespace(
            scale=np.array([50.0, 50.0, 2.0]), lbw=np.zeros(3), ubw=np.array([INF, INF, 9.0]), residual=lambda w: 0.0
        )
        ocp = SimpleNamespace(free_time=more.get("free_time"), horizon=100.0)
        program: Any = SimpleNamespace(nlp=nlp, ocp=ocp, at_lengths=np.array([0, 1]), tolerance=1e-6)
        point = optimise.optimise(program, np.full(3, 5.0), {"max_iter": 7}, INF, more.get("lower"))
        return point.parts, asked

    def test_lengths_add_up_to_the_horizon(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """60.00003 s and 40 s are within 1e-6 of 100 s, and become 100 s in proportion; 60.3 s are not."""
        (_, w, result), _ = self.found(monkeypatch, [([1.2000006, 0.8, 1.5], "Solve_Succeeded", 3)])
        assert w[:2].sum() == pytest.approx(100.0, abs=1e-12)
        assert w[0] / w[1] == pytest.approx(60.00003 / 40.0, rel=1e-12)
        assert (w[2], result.iterations) == (3.0, 3)
        (_, w, *_), _ = self.found(monkeypatch, [([1.206, 0.8, 1.5], "Solve_Succeeded", 3)])
        assert w[:2].tolist() == [pytest.approx(60.3), 40.0]
        (_, w, *_), _ = self.found(monkeypatch, [([1.2000006, 0.8, 1.5], "Solve_Succeeded", 3)], free_time=1)
        assert w[0] == pytest.approx(60.00003, rel=1e-12)
        (_, w, *_), _ = self.found(monkeypatch, [([1.2, 0.8, 7.5], "Solve_Succeeded", 3)])
        assert w[2] == 9.0  # within its bounds exactly

    def test_given_lower_bounds_are_scaled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        answers = [([1.2, 0.8, 1.5], "Solve_Succeeded", 3)]
        _, asked = self.found(monkeypatch, answers, lower=np.array([10.0, 20.0, 1.0]))
        assert asked[1]["lbx"] == pytest.approx([0.2, 0.4, 0.5])
        assert self.found(monkeypatch, answers)[1][1] == {}


class TestStarts:
    def test_phases_without_times_are_equally_long(self) -> None:
        """A motion of 1 s in a horizon of 2 s: after its end its last state is used."""
        ocp = ball(horizon=2.0)
        short = ns.simulate(ocp.system, x0=[9.0, 1.0], duration=1.0, u=[3.0])
        start = start_of_motion(ocp, ns.Sequence([{}, {}, {}, {}]), short)
        assert start.edges == pytest.approx([0.0, 0.5, 1.0, 1.5, 2.0])
        # Falls with 8.5 m/s^2.
        assert start.state(0.5, "-") == pytest.approx([9.0 + 0.5 - 8.5 * 0.125, 1.0 - 4.25])
        assert start.state(1.7, "-") == pytest.approx([9.0 + 1.0 - 4.25, 1.0 - 8.5])
        assert start.control(1.7) == pytest.approx([3.0])
        timed = start_of_motion(ocp, ns.Sequence([{}, {}, {}], [0.5, 7.0]), short)
        assert timed.edges == pytest.approx([0.0, 0.5, 2.0, 2.0])

    def test_motions_that_differ_by_rounding_have_one_start(self) -> None:
        """Velocities differ by 3e-14, the edge by 2e-16; states are those of the motion to a 2^-30th of their sizes."""
        ocp = ball(horizon=1.0)
        one, other = (ns.simulate(ocp.system, x0=[9.0, 1.0 + change], duration=1.0, u=[3.0]) for change in (0.0, 3e-14))
        starts = [
            start_of_motion(ocp, ns.Sequence([{}, {}], [edge]), motion)
            for edge, motion in ((0.3, one), (0.1 + 0.2, other))
        ]
        times = np.linspace(0.0, 1.0, 7)
        assert not np.array_equal(one(times), other(times))
        np.testing.assert_array_equal(starts[0].edges, starts[1].edges)
        np.testing.assert_array_equal(starts[0].state(times, "-"), starts[1].state(times, "-"))
        # Sizes up to 9 count as 16.
        np.testing.assert_allclose(starts[0].state(times, "-"), one(times), rtol=0.0, atol=16.0 * 2.0**-31)

    @pytest.mark.parametrize(("low", "high", "horizon"), [(0.5, 3.0, 1.0), (1.5, 3.0, 1.5), (0.2, 0.7, 0.7)])
    def test_a_free_horizon_is_that_of_the_motion_within_its_bounds(
        self, low: float, high: float, horizon: float
    ) -> None:
        ocp = ball(horizon=ns.FreeTime(low, high))
        short = ns.simulate(ocp.system, x0=[9.0, 1.0], duration=1.0, u=[3.0])
        assert start_of_motion(ocp, ns.Sequence([{}]), short).edges == pytest.approx([0.0, horizon])

    def test_an_added_phase_slows_the_rest_down(self) -> None:
        """It has a tenth of the horizon of 2 s; the motion before it has 1.8 s."""
        laws = ContactLaws(ball().system)
        plan = Plan.of(ns.Sequence([{}, "impact ground", {}]), laws)

        class Motion:
            def __call__(self, t: float, side: str = "-") -> np.ndarray:
                return np.array([t, 1.0])

            def control(self, t: float) -> np.ndarray:
                return np.array([10 * t])

        point = SimpleNamespace(program=SimpleNamespace(plan=plan), edges=np.array([0.0, 0.5, 2.0]), p=np.zeros(0))
        attempt: Any = SimpleNamespace(point=point, solution=Motion())
        sequence, start = with_added_phase(laws, attempt, ("closed",), at_end=True)
        assert sequence == ns.Sequence([{}, "impact ground", {}, {"ground": "closed"}])
        assert start.edges == pytest.approx([0.0, 0.45, 1.8, 2.0])
        assert sequence.times == pytest.approx([0.45, 1.8])
        assert start.state(0.9, "-")[0] == pytest.approx(1.0)
        assert start.state(1.95, "-")[0] == pytest.approx(2.0)
        assert start.control(0.9) == pytest.approx([10.0])
        sequence, start = with_added_phase(laws, attempt, ("closed",), at_end=False)
        assert sequence == ns.Sequence([{"ground": "closed"}, {}, "impact ground", {}])
        assert start.edges == pytest.approx([0.0, 0.2, 0.65, 2.0])
        assert start.state(0.1, "-")[0] == pytest.approx(0.0)
        assert start.state(1.1, "-")[0] == pytest.approx(1.0)

    def test_the_control_of_an_iterate_is_stretched_to_the_horizon(self) -> None:
        def iterate(grid: list[float], u: list[float]) -> Any:
            return SimpleNamespace(u_grid=np.array(grid), u=np.array(u)[:, None])

        control = stretched_control(iterate([1.0, 1.5, 3.0], [4.0, 5.0]), 4.0)
        assert control is not None
        assert control.grid == pytest.approx([0.0, 1.0, 4.0])
        assert control.values.ravel() == pytest.approx([4.0, 5.0])
        # A phase that has vanished has no control.
        shorter = stretched_control(iterate([0.0, 1.0, 1.0, 2.0], [4.0, 5.0, 6.0]), 2.0)
        assert shorter is not None
        assert shorter.grid == pytest.approx([0.0, 1.0, 2.0])
        assert shorter.values.ravel() == pytest.approx([4.0, 6.0])
        assert stretched_control(iterate([0.0, 0.0], [4.0]), 2.0) is None
        assert stretched_control(iterate([0.0, 1.0], [np.nan]), 2.0) is None
        assert stretched_control(iterate([0.0], []), 2.0) is None

    def test_a_guess_that_moves_is_the_motion_itself(self) -> None:
        """A solution that failed is simulated with its control; a motion without controls is taken as it is."""
        ocp = ball()
        flight = ns.simulate(ocp.system, x0=[9.0, 1.0], duration=1.0, u=[3.0])
        assert motion_of(ocp, flight, np.inf) is flight
        failed = replace(flight, status=Status.NUMERICAL_ERROR)
        simulated = motion_of(ocp, failed, np.inf)
        assert simulated is not failed
        assert simulated(0.3) == pytest.approx([1.0 - 8.5 * 0.09 / 2, -8.5 * 0.3])  # from the x0 of the problem
        assert motion_of(ocp, [4.0], np.inf)(0.3) == pytest.approx([1.0 - 8.0 * 0.09 / 2, -8.0 * 0.3])
        other = ns.simulate(ball().system, x0=[9.0, 1.0], duration=1.0, u=[3.0])
        named = replace(other, state_names=("a", "b"))
        assert motion_of(ocp, named, np.inf) is not named

    def test_states_of_a_guess_are_a_motion(self) -> None:
        motion = motion_of_states(ball(horizon=2.0), {"x": np.array([[0.0, 2.0], [4.0, 6.0]]), "u": [7.0]})
        assert (motion.t[0], motion.t[-1], len(motion.t), len(motion.u)) == (0.0, 2.0, 201, 200)
        assert motion(0.5) == pytest.approx([1.0, 3.0])
        assert motion.x[100] == pytest.approx([2.0, 4.0])
        assert motion.control(0.3) == pytest.approx([7.0])
        assert motion.events == ()

    def test_times_after_the_horizon_are_a_mistake(self) -> None:
        check_times(ball(), ns.Sequence([{}, {}], [1.0]))
        check_times(ball(horizon=ns.FreeTime(0.5, 2.0)), ns.Sequence([{}, {}], [1.9]))
        check_times(ball(), ns.Sequence([{}, {}]))
        check_times(ball(), ns.Sequence([{}]))
        with pytest.raises(ModelError, match=r"begins at 1.1 s, after the horizon of 1 s"):
            check_times(ball(), ns.Sequence([{}, {}, {}], [0.5, 1.1]))
        with pytest.raises(ModelError, match="after the horizon of 2 s"):
            check_times(ball(horizon=ns.FreeTime(0.5, 2.0)), ns.Sequence([{}, {}], [2.1]))


class TestFreeStart:
    def ocp(self, low: Any, high: Any, **more: Any) -> ns.OCP:
        base = ball()
        return ns.OCP(base.system, horizon=1.0, x0=None, bounds=ns.Bounds(x=(low, high)), **more)

    def test_without_a_state_to_be_near_it_is_in_the_middle_or_nearest_to_zero(self) -> None:
        assert free_start(self.ocp([1.0, -2.0], [3.0, 6.0])) == pytest.approx([2.0, 2.0], abs=1e-5)
        assert free_start(self.ocp([1.0, -np.inf], [np.inf, -2.0])) == pytest.approx([1.0, -2.0], abs=1e-5)
        assert free_start(self.ocp([0.5, -np.inf], [np.inf, np.inf])) == pytest.approx([0.5, 0.0], abs=1e-5)

    def test_gaps_are_open_and_those_of_closed_contacts_zero(self) -> None:
        free = self.ocp([-5.0, -5.0], [5.0, 5.0])
        assert free_start(free, np.array([-2.0, 1.0])) == pytest.approx([0.0, 1.0], abs=1e-5)
        assert free_start(free, np.array([2.0, 1.0])) == pytest.approx([2.0, 1.0], abs=1e-5)
        assert free_start(free, np.array([2.0, 1.0]), closed=("ground",)) == pytest.approx([0.0, 1.0], abs=1e-5)
        assert free_start(free, np.array([2.0, 1.0]), closed=()) == pytest.approx([2.0, 1.0], abs=1e-5)

    def test_initial_constraints_hold_unless_contacts_are_given(self) -> None:
        base = ball()
        height = ns.Constraint(base.system.q, 3.0, 4.0, name="height")
        ocp = ns.OCP(base.system, horizon=1.0, x0=None, initial_constraints=[height])
        assert free_start(ocp, np.array([1.0, 0.5])) == pytest.approx([3.0, 0.5], abs=1e-5)
        assert free_start(ocp, np.array([9.0, 0.5])) == pytest.approx([4.0, 0.5], abs=1e-5)
        assert free_start(ocp, np.array([1.0, 0.5]), closed=()) == pytest.approx([1.0, 0.5], abs=1e-5)

    def test_gauss_newton_satisfies_rows_that_imply_each_other(self) -> None:
        """On the circle of radius 5 and on its ray: the nearest point of (3, 4) times 1.1 is (3, 4)."""
        x = ca.SX.sym("x", 2)
        nlp = program([ca.sumsqr(x) - 25, 2 * ca.sumsqr(x) - 50], np.zeros(2), np.zeros(2), 0, x)
        assert refinement._projected(nlp, np.array([3.3, 4.4])) == pytest.approx([3.0, 4.0], abs=1e-9)
        # Within its bounds; a point that satisfies all rows stays.
        held = program([x[0] - x[1]], 1.0, 2.0, 0, x, bound=3.0)
        assert refinement._projected(held, np.array([3.0, 3.0])) == pytest.approx([3.0, 2.0], abs=1e-9)
        assert refinement._projected(held, np.array([1.5, 0.0])).tolist() == [1.5, 0.0]
        assert refinement._projected(held, np.array([3.0, 0.0])) == pytest.approx([2.5, 0.5], abs=1e-9)


class TestDecisions:
    def refinement(self, **options: Any) -> Refinement:
        return Refinement(ns.MultiPhase(**options), ball(), None, 0.0, np.inf)

    def point(self, objective: float, residual: float = 0.0, start: float = 0.0) -> Any:
        return SimpleNamespace(objective=objective, residual=residual, objective_at_start=start)

    def test_a_feasible_point_that_is_not_worse_is_better(self) -> None:
        here = self.refinement()
        assert here.better(self.point(1.0), self.point(2.0))
        assert here.better(self.point(2.0 + 1e-7), self.point(2.0))
        assert not here.better(self.point(2.1), self.point(2.0))
        assert not here.better(self.point(1.0, 1.1e-6), self.point(2.0))
        assert here.better(self.point(1.0, 0.9e-6), self.point(2.0))
        assert here.better(self.point(9.0), self.point(2.0, 1.1e-6))
        assert not here.is_feasible(self.point(np.nan))

    def test_phases_of_a_given_sequence_are_kept(self) -> None:
        sequence = [{}, "impact ground", {}]
        assert self.refinement(sequence=sequence).keeps_phases
        assert not self.refinement(sequence=sequence, follow=True).keeps_phases
        assert not self.refinement(sequence=sequence, shortest=0.0).keeps_phases
        assert not self.refinement().keeps_phases
        assert self.refinement().least_length == 1e-3
        assert self.refinement(shortest=0.02).least_length == 0.02

    @pytest.mark.parametrize(
        ("lengths", "shortest"), [((0.3, 0.7), False), ((1e-3, 0.999), True), ((1.02e-3, 1.0), False)]
    )
    def test_a_phase_at_its_least_length(self, lengths: tuple[float, float], shortest: bool) -> None:
        point: Any = SimpleNamespace(lengths=np.array(lengths), edges=np.cumsum([0.0, *lengths]))
        assert self.refinement()._is_shortest(point) == shortest

    def test_meshes_become_finer(self) -> None:
        first, second, last = (ns.MultiPhase(stages=2, elements=3).mesh(level, 1) for level in (0, 1, 99))
        assert (first.stages, first.elements, first.points, first.intervals) == (2, 3, 4, 20)
        assert second.stages >= first.stages
        assert second.elements >= first.elements
        assert (second.stages, second.elements) != (first.stages, first.elements)
        assert last.stages <= 12
        assert ns.MultiPhase().mesh(0).points == 0
        assert ns.MultiPhase(stages=12).mesh(5).stages == 12


class Scripted(Refinement):
    """A refinement whose programs are written down, in the order in which they are solved."""

    def __init__(self, answers: list[Any], **options: Any) -> None:
        super().__init__(ns.MultiPhase(**options), ball(), None, 0.0, np.inf)
        self.answers, self.asked = iter(answers), list[Any]()

    def attempt(self, laws: Any, plan: Any, mesh: Any, start: Any, cutoff: float = np.inf) -> Any:
        self.asked.append((mesh, start))
        return next(self.answers)

    def optimum(self, laws: Any, plan: Any, mesh: Any, start: Any, cutoff: float = np.inf) -> Any:
        self.asked.append((mesh, plan))
        return next(self.answers)

    def run_solver(self, program: Any, w: Any, label: str, **bounds: Any) -> Any:
        self.asked.append((label, bounds))
        return next(self.answers)


@dataclass(frozen=True)
class Start:
    """What a start has beside its motion."""

    edges: Any
    peaks: Any = ()
    margins: Any = field(default_factory=dict)
    near: bool = False
    splits: Any = ()
    elements = PhaseStart.elements


class TestMeshes:
    """Refinements by the verdicts of the simulations, without programs."""

    laws: Any = ContactLaws(ball().system, length=2.0)

    def answer(self, verdict: Verdict | None, lengths: tuple[float, ...] = (0.4, 0.6), *windows: Window) -> Any:
        plan = Plan.of(ns.Sequence([{}, "impact ground", {}]), self.laws)
        values = {"residual": 0.0, "objective": 1.0, "objective_at_start": 1.0}
        program = SimpleNamespace(plan=plan, mesh=PhaseMesh(stages=3), sizes=np.array([1.0, 2.0]))
        edges = np.cumsum([0.0, *lengths])
        point = SimpleNamespace(program=program, lengths=np.array(lengths), edges=edges, sequence=None, **values)
        worst = max(windows, key=lambda window: window.defect, default=None)
        certificate = SimpleNamespace(
            verdict=verdict, worst_window=worst, windows=windows, true_objective=99.0, events=()
        )
        solution = SimpleNamespace(success=True, objective=1.0, state_names=("q", "v"))
        given: Any = {"point": point, "solution": solution, "certificate": None if verdict is None else certificate}
        return PhaseAttempt(**given)

    def refined(self, monkeypatch: pytest.MonkeyPatch, answers: list[Any], broken: Any = None, **options: Any) -> Any:
        found = iter(broken or [])
        empty = np.zeros(0), dict[str, float]()
        monkeypatch.setattr(refinement, "peaks_of", lambda point, tolerance: next(found, empty))
        monkeypatch.setattr(
            refinement, "start_of_motion",
            lambda ocp, sequence, solution: Start(edges=np.array([0.0, 0.4, 1.0]), peaks=np.zeros(0)),
        )  # fmt: skip
        work = Scripted(answers, intervals=10, **options)
        begun: Any = Start(edges=np.array([0.0, 0.4, 1.0]), peaks=np.zeros(0))
        last = work.refine(self.laws, ns.Sequence([{}, "impact ground", {}]), begun)
        return last, work.asked

    def test_until_one_is_confirmed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rough, sure = self.answer(Verdict.INACCURATE), self.answer(Verdict.CONFIRMED)
        last, asked = self.refined(monkeypatch, [rough, rough, sure])
        assert last is sure
        meshes = [mesh for mesh, _ in asked]
        assert [(mesh.stages, mesh.elements) for mesh in meshes] == [(3, 1), (4, 1), (5, 1)]
        assert [start.near for _, start in asked] == [False, True, True]
        assert len(self.refined(monkeypatch, [rough] * 9, refinements=2)[1]) == 3
        assert len(self.refined(monkeypatch, [rough] * 9, refinements=0)[1]) == 1
        assert len(self.refined(monkeypatch, [self.answer(None)])[1]) == 1

    def test_windows_with_defects_get_more_elements(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """After a higher order, and by the fifth root of the defect: (2e-5 / 3e-7)^(1 / 5) = 2.3, three times as many.

        While refinements leave less than a fifth of the defect they do not count, but are at most twice as many.
        """

        def found(defect: float, start: float = 0.5, agree: bool = True) -> Any:
            window = Window(start=start, end=start + 0.1, defect=defect, state="v", events_agree=agree)
            exact = Window(start=0.0, end=1.0, defect=0.0, state="q", events_agree=True)
            return self.answer(Verdict.INACCURATE, (0.4, 0.6), window, exact)

        answers = [found(9e-2), found(4e-5), found(4e-6), self.answer(Verdict.CONFIRMED)]
        _, asked = self.refined(monkeypatch, answers, refinements=2)
        assert [(mesh.stages, mesh.elements) for mesh, _ in asked] == [(3, 1), (4, 1), (4, 1), (4, 1)]
        first, second, last = (start.splits for _, start in asked[1:])
        assert first == ((0.5, 0.6, 4),)  # (0.045 / 1e-4)^(1 / 5) = 3.4
        assert second[1] == (0.5, 0.6, 12)
        assert last[2] == (0.5, 0.6, 24)
        assert asked[3][1].elements(0.52, 0.56, 1) == 24
        assert asked[3][1].elements(0.42, 0.48, 2) == 2
        _, asked = self.refined(monkeypatch, [found(9e-2), found(8e-2), found(7e-2)], refinements=1)
        assert len(asked) == 2
        _, asked = self.refined(monkeypatch, [found(9.0, agree=False), self.answer(Verdict.CONFIRMED)])
        assert asked[1][1].splits == ((0.5, 0.6, 2),)  # behind an event that only one of both has
        # Windows follow their phases; on equal intervals elements are as many everywhere.
        moved = refinement._moved(asked[1][1], np.array([0.0, 0.7, 1.0]))
        assert moved.splits == ((pytest.approx(0.75), pytest.approx(0.8), 2),)
        assert refinement._moved(asked[1][1], np.array([0.0, 1.0])).splits == ()
        assert len(self.refined(monkeypatch, [found(0.0)] * 9, refinements=2)[1]) == 3
        assert len(self.refined(monkeypatch, [found(10.0**-k) for k in range(9)], refinements=2)[1]) == 5

    def test_an_inequality_between_the_nodes_needs_points_and_no_finer_mesh(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """At first further points, then margins of 1.2 times what is left."""
        between, sure = self.answer(Verdict.CONSTRAINT_BETWEEN_NODES), self.answer(Verdict.CONFIRMED)
        peaks = [(np.array([0.3]), {"gap[ground]": 0.5}), (np.array([0.2, 0.3]), {"gap[ground]": 0.25})]
        _, asked = self.refined(monkeypatch, [between, between, between, sure], [*peaks, peaks[1]])
        meshes, starts = [mesh for mesh, _ in asked], [start for _, start in asked]
        assert [mesh.points for mesh in meshes] == [0, 4, 4, 4]
        assert [mesh.stages for mesh in meshes] == [3] * 4
        assert starts[1].margins == {}
        assert starts[2].margins == {"gap[ground]": pytest.approx(0.3)}
        assert starts[3].margins == {"gap[ground]": pytest.approx(0.6)}
        assert starts[1].peaks.tolist() == [0.3]
        assert starts[2].peaks.tolist() == [0.2, 0.3]

    def test_a_gap_that_is_nearly_touched_has_a_margin(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """1e-5 of the typical length of 2 m, ten times more at every further one, up to 1e-3."""
        touch = SimpleNamespace(event=SimpleNamespace(name="ground", kind="impact"), claimed=None)
        refuted = self.answer(Verdict.REFUTED)
        object.__setattr__(refuted.certificate, "events", (touch,))
        _, asked = self.refined(monkeypatch, [refuted, self.answer(Verdict.CONFIRMED)])
        assert asked[1][1].margins == {"gap[ground]": pytest.approx(2e-5)}

    def test_intervals_are_distributed_anew_twice(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """By lengths of the phases other than those of the start, also of a confirmed motion."""
        moved = self.answer(Verdict.CONFIRMED, (0.7, 0.3))
        _, asked = self.refined(monkeypatch, [moved, moved, moved, moved])
        assert len(asked) == 3
        assert [mesh.stages for mesh, _ in asked] == [3] * 3


class TestPhasesThatVanish:
    """Lengths are bounded by a fifth of their initial ones; a phase at its bound is left out."""

    laws: Any = ContactLaws(ball().system)
    sequence = ns.Sequence([{}, {"ground": "closed"}, {}])

    def point(self, lengths: tuple[float, ...], objective: float = 1.0, residual: float = 0.0) -> Any:
        plan = Plan.of(self.sequence, self.laws)
        program = SimpleNamespace(plan=plan, lengths_of=lambda w: np.array([0.2, 0.3, 0.5][: len(lengths)]), w0=None)
        return SimpleNamespace(
            program=program, lengths=np.array(lengths), edges=np.cumsum([0.0, *lengths]), objective=objective,
            objective_at_start=objective, residual=residual, w=None, result=None,
        )  # fmt: skip

    def reached(self, monkeypatch: pytest.MonkeyPatch, answers: list[Any], **options: Any) -> tuple[Any, list[Any]]:
        monkeypatch.setattr(refinement, "solution_of", lambda *given: None)
        monkeypatch.setattr(refinement, "start_of_motion", lambda *given: Start(edges=None, near=True))
        work = Scripted(answers, **options)
        plan = Plan.of(self.sequence, self.laws)
        start: Any = Start(edges=None)
        return work.optimum_of_phases(self.laws, plan, PhaseMesh(), start), work.asked

    def test_a_phase_above_its_bound_stays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        here = self.point((0.2, 0.0602, 0.7398))
        assert self.reached(monkeypatch, [here])[0] is here

    def test_a_phase_at_its_bound_is_left_out_if_that_is_not_worse(self, monkeypatch: pytest.MonkeyPatch) -> None:
        short, without = self.point((0.2, 0.06005, 0.74)), self.point((0.4, 0.6), 0.9)
        found, asked = self.reached(monkeypatch, [short, without])
        assert found is without
        assert asked[1][1].modes == (("open",), ("open",))  # a contact that closes for no time bounces
        worse, freed = self.point((0.4, 0.6), 1.1), self.point((0.2, 0.0, 0.8), 0.95)
        found, asked = self.reached(monkeypatch, [short, worse, freed])
        assert found is freed
        assert asked[2] == ("short phases", {"most": 100})
        found, _ = self.reached(monkeypatch, [short, worse, self.point((0.2, 0.0, 0.8), 0.95, residual=1.0)])
        assert found is short

    def test_the_phase_behind_an_impact_at_the_end_stays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without it the state at the end is that before the impact; then only the others are left out."""
        short = self.point((0.84, 0.06, 0.1))
        wrong, right = self.point((1.0,), 0.5, residual=1.0), self.point((0.9, 0.1), 0.9)
        found, asked = self.reached(monkeypatch, [short, wrong, right])
        assert found is right
        assert [len(plan) for _, plan in asked] == [3, 1, 2]

    def test_a_phase_that_was_as_short_before_stays(self, monkeypatch: pytest.MonkeyPatch) -> None:
        short = self.point((0.5, 0.4998, 2e-4))
        short.program.lengths_of = lambda w: np.array([0.5, 0.4991, 9e-4])
        assert self.reached(monkeypatch, [short])[0] is short

    def test_a_program_that_is_given_up_has_no_further_attempts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        short = self.point((0.2, 0.06005, 0.74))
        short.result = SimpleNamespace(solver_status="Objective_Stays_Above_Cutoff")
        found, asked = self.reached(monkeypatch, [short])
        assert found is short
        assert len(asked) == 1

    def test_a_single_phase_does_not_vanish(self, monkeypatch: pytest.MonkeyPatch) -> None:
        alone = self.point((0.01, 0.01, 0.01))
        assert self.reached(monkeypatch, [alone])[0] is alone

    def test_phases_of_a_given_sequence_have_their_least_length(self, monkeypatch: pytest.MonkeyPatch) -> None:
        given: Any = {"sequence": [{}, {"ground": "closed"}, {}]}
        short, kept, without = self.point((0.2, 0.06, 0.74)), self.point((0.2, 1e-3, 0.8)), self.point((0.4, 0.6), 0.9)
        found, asked = self.reached(monkeypatch, [short, kept, without], **given)
        assert found is kept
        assert asked[1] == ("short phases", {"shortest": 1e-3})
        infeasible = self.point((0.2, 1e-3, 0.8), residual=1.0)
        failed = self.point((0.2, 0.06, 0.74), residual=1.0)
        found, _ = self.reached(monkeypatch, [failed, infeasible, without], **given)
        assert found is without


class TestAttempts:
    def attempt(self, verdict: Verdict | None, defect: float | None = None, **certificate: Any) -> PhaseAttempt:
        window = None if defect is None else SimpleNamespace(defect=defect)
        judged = SimpleNamespace(verdict=verdict, worst_window=window, true_objective=3.0, **certificate)
        solution = SimpleNamespace(objective=2.0, x=np.array([[1.0, -4.0]]), message="m")
        point = SimpleNamespace(residual=0.0, program=SimpleNamespace(tolerance=1e-6), result=None)
        given: Any = {"point": point, "solution": solution, "certificate": None if verdict is None else judged}
        return PhaseAttempt(**given)

    def test_a_finer_mesh_is_likely_to_confirm_small_defects(self) -> None:
        """Up to a hundredth of the largest state, 4."""
        assert self.attempt(Verdict.INACCURATE).is_sound
        assert self.attempt(Verdict.INACCURATE, 0.039).is_sound
        assert not self.attempt(Verdict.INACCURATE, 0.041).is_sound
        assert self.attempt(Verdict.CONSTRAINT_BETWEEN_NODES, 0.039).is_sound
        assert not self.attempt(Verdict.REFUTED, 0.0).is_sound
        assert not self.attempt(None).is_sound

    @pytest.mark.parametrize(
        ("verdict", "confirmed", "wrong", "objective"),
        [
            (Verdict.CONFIRMED, True, False, 3.0),
            (Verdict.CONFIRMED_IN_WINDOWS, True, False, 2.0),
            (Verdict.INACCURATE, False, False, 2.0),
            (Verdict.REFUTED, False, True, 2.0),
            (Verdict.UNDECIDED, False, True, 2.0),
            (None, False, False, 2.0),
        ],
    )
    def test_verdicts(self, verdict: Verdict | None, confirmed: bool, wrong: bool, objective: float) -> None:
        attempt = self.attempt(verdict)
        assert (attempt.confirmed, attempt.is_wrong, attempt.true_objective) == (confirmed, wrong, objective)
        assert attempt.rank.amount == objective
        group = {None: RankGroup.UNTESTED, Verdict.INACCURATE: RankGroup.SOUND}.get(verdict, RankGroup.WRONG)
        assert attempt.rank.group is (RankGroup.CONFIRMED if confirmed else group)

    def test_a_motion_that_is_not_confirmed_is_not_solved(self) -> None:
        assert self.attempt(Verdict.REFUTED).judged()[0] is Status.NOT_CONFIRMED
        assert self.attempt(Verdict.UNDECIDED).judged()[0] is Status.NOT_CERTIFIED

    @pytest.mark.parametrize(
        ("largest", "word", "residual", "escapes"),
        [
            (1.1e6, "Maximum_Iterations_Exceeded", 0.0, True),
            (1.1e6, "Solved_To_Acceptable_Level", 0.0, True),
            (1.1e6, "Solve_Succeeded", 0.0, False),
            (1.1e6, "Maximum_Iterations_Exceeded", 1e-3, False),
            (0.9e6, "Maximum_Iterations_Exceeded", 0.0, False),
        ],
    )
    def test_a_descent_far_out(self, largest: float, word: str, residual: float, escapes: bool) -> None:
        """A million times the size of the control in the problem, 5."""
        system = SimpleNamespace(state_names=("q", "v"), control_names=("thrust",))
        ocp = SimpleNamespace(system=system, sizes=SimpleNamespace(x=np.array([1.0, 2.0]), u=np.array([5.0])))
        program = SimpleNamespace(tolerance=1e-6, ocp=ocp)
        result = SimpleNamespace(solver_status=word, converged=True)
        point = SimpleNamespace(residual=residual, program=program, result=result, objective=-3e9)
        motion = SimpleNamespace(objective=-3e9, x=np.array([[0.0, -4.0]]), u=np.array([[0.0], [-5.0 * largest]]))
        attempt = PhaseAttempt(point=cast(Any, point), solution=cast(Any, motion))
        assert attempt.escapes == escapes
        if escapes:
            said = "not proved: the objective falls to -3e+09 while thrust grows to 1e+06 times its size"
            assert attempt.judged() == (Status.UNBOUNDED, said)


def test_scales_of_contact_laws_are_those_of_the_motion() -> None:
    """A ball of 2 kg that falls from 5 m: its weight, rounded, is the typical force."""
    ocp = ball()
    motion = ns.simulate(ocp.system, x0=[5.0, 0.0], duration=1.0, u=[0.0])
    laws = laws_of(ocp, motion)
    assert laws.force == 16.0  # the power of two next to 20 N, so that other motions share the laws
    assert laws.length > 0.0
    assert laws.rest_velocity == pytest.approx(1e-3 * laws.speed, rel=1.0)
    # Half of a long motion has its own duration.
    short = ns.simulate(ocp.system, x0=[5.0, 0.0], duration=0.01, u=[0.0])
    assert laws_of(ocp, short).length < laws.length
    # A gap in centimetres has the same lengths and speeds.
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    ground = ns.Contact("ground", gap=100 * q, restitution=0.5)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=2, force=u - 20, contacts=[ground])
    same = laws_of(ns.OCP(system, horizon=1.0, x0=[1.0, 0.0], stage_cost=u**2), motion)
    assert (same.length, same.speed, same.force) == (laws.length, laws.speed, laws.force)
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    free = ns.CLS(q=q, v=v, mass_matrix=2, force=0, contacts=[ns.Contact("ground", gap=q)])
    flight = ns.OCP(free, horizon=1.0, x0=[5.0, 3.0])
    loose = laws_of(flight, ns.simulate(free, x0=[5.0, 3.0], duration=1.0))
    # Without any force that which makes the typical speed within the typical length.
    assert 0.25 < loose.force / (2.0 * loose.speed**2 / loose.length) < 4.0  # each of them is rounded


def test_systems_with_memory_are_taken() -> None:
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    switch = ns.Hysteresis("gear", variable=x, lower=0.2, upper=0.5, flows=[u, 0.5 * u])
    assert ns.MultiPhase().accepts(ns.PSS(x=x, u=u, modes=switch)) is None


def test_contacts_that_close_for_no_time_bounce() -> None:
    laws = ContactLaws(ball().system)
    closed = {"ground": "closed"}
    plan = Plan.of(ns.Sequence([{}, closed, {}, closed]), laws)
    left, edges = plan.without_phases(np.array([False, True, False, False]), np.array([0.0, 0.3, 0.3, 0.8, 1.0]))
    assert left.modes == (("open",), ("open",), ("closed",))
    assert [dict(impact) for impact in left.impacts] == [{}, {"ground": "closed"}, {}]
    assert edges.tolist() == [0.0, 0.3, 0.8, 1.0]
    # Without the first phase nothing closes: the motion begins closed.
    left, edges = plan.without_phases(np.array([True, False, False, False]), np.array([0.0, 0.0, 0.3, 0.8, 1.0]))
    assert left.modes == (("closed",), ("open",), ("closed",))
    assert edges.tolist() == [0.0, 0.3, 0.8, 1.0]
    merged, edges = plan.without_phases(np.array([False, False, True, False]), np.array([0.0, 0.3, 0.5, 0.5, 1.0]))
    assert merged.modes == (("open",), ("closed",))
    assert edges.tolist() == [0.0, 0.3, 1.0]
