"""Rules of the searches on hand-made solutions: candidates, notes, verdicts, finer controls, nearest motions."""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.attempts.rank import ObjectiveScale
from nosnoc_py.attempts.work import count, counted, left
from nosnoc_py.search import elements, nearest, portfolio
from nosnoc_py.search.elements import ElementSearch, ElementState
from nosnoc_py.search.progress_line import line_of
from nosnoc_py.search.stances import contact_sets, propose
from nosnoc_py.search.starts import StartTask
from nosnoc_py.search.state import SearchState, SequenceNode
from nosnoc_py.sequences.refinement import PhaseAttempt
from nosnoc_py.solution import Candidate, Sequence
from nosnoc_py.status import Status, Verdict, seconds_to

pytestmark = pytest.mark.quick

FLIGHT, BOUNCE = Sequence([{}]), Sequence([{}, "impact wall", {}])


def cart(**changed: Any) -> ns.OCP:
    """A mass on a line with a wall at 9 m."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    names = {"q": ["q"], "v": ["v"], "u": ["u"]}
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=9 - q)], names=names)
    asked: dict[str, Any] = {"horizon": 1.0, "x0": [0.0, 0.0], "stage_cost": u**2}
    given = {key: value(system) if callable(value) else value for key, value in changed.items()}
    return ns.OCP(system, **{**asked, **given})


def solved(objective: float, success: bool = True, u: Any = ((0.0,),), infeasibility: float = 0.0) -> Any:
    return SimpleNamespace(objective=objective, success=success, infeasibility=infeasibility, u=np.array(u))


class TestElementStates:
    def after(self, *solutions: Any) -> ElementState:
        state = ElementState()
        for k, solution in enumerate(solutions):
            state = elements._with_start(state, solution, "default" if k == 0 else "random", 1.0 + k)
        return state

    def test_the_scale_is_the_change_between_feasible_starts(self) -> None:
        state = self.after(solved(9.0), solved(2.0), solved(1.0, False), solved(5.0))
        assert state.scale.change == 7.0
        assert ElementState().scale.change == 0.0
        assert [c.objective for c in state.candidates] == [9.0, 2.0, np.inf, 5.0]
        assert [(c.start, c.work) for c in state.candidates[:2]] == [("default", 1.0), ("random", 2.0)]

    def test_gains_end_the_waiting(self) -> None:
        first = self.after(solved(2.0))
        assert (first.since, first.agreed) == (0, 0)
        assert (self.after(solved(2.0), solved(3.0)).since, self.after(solved(2.0), solved(1.0)).since) == (1, 0)
        assert first.first is first.best

    @pytest.mark.parametrize(
        ("objective", "best", "since", "agreed"),
        [
            (1.9997, 1.9997, 0, 0),  # a gain of more than 1e-4
            (1.9999, 1.9999, 1, 1),  # the same optimum, and a little better
            (2.019, 2.0, 1, 1),  # within a percent
            (2.021, 2.0, 1, 0),
        ],
    )
    def test_a_start_within_a_percent_agrees(self, objective: float, best: float, since: int, agreed: int) -> None:
        state = self.after(solved(2.0), solved(objective))
        assert state.best is not None
        assert (state.best.objective, state.since, state.agreed) == (best, since, agreed)

    def test_of_failed_starts_the_least_infeasible_one_is_kept(self) -> None:
        near, far = solved(1.0, False, infeasibility=2.0), solved(0.0, False, infeasibility=3.0)
        assert self.after(far, near).best is near
        assert self.after(near, far).best is near
        assert self.after(far, near).since == 0
        assert self.after(near, far).since == 1
        feasible = solved(99.0)
        state = self.after(near, feasible, far)
        assert state.best is feasible
        assert (state.since, state.agreed) == (1, 0)
        # Below one violations are those of solvers' units: they do not rank.
        assert elements._rank(solved(0.0, False, infeasibility=0.1)).amount == 1.0
        assert elements._rank(solved(3.0)).amount == 3.0

    def test_random_controls_cover_the_range_of_the_first_one_and_half_of_it_beyond(self) -> None:
        ocp, rng = cart(bounds=ns.Bounds(u=(-9.0, 6.0))), np.random.default_rng(0)
        first = self.after(solved(1.0, False, u=[[2.0], [6.0]] * 500))
        sample = elements._random_control(ocp, first, rng)
        assert sample.shape == (1000, 1)
        # [2, 6] and half of 6 on both sides, clipped at 6.
        assert sample.min() == pytest.approx(-1.0, abs=0.1)
        assert sample.max() == pytest.approx(6.0, abs=0.1)
        zero = elements._random_control(ocp, self.after(solved(1.0, False, u=[[0.0]] * 1000)), rng)
        # A first control that is zero has no range: the bounds have.
        assert (zero.min(), zero.max()) == (pytest.approx(-9.0, abs=0.1), pytest.approx(6.0, abs=0.1))

    def test_every_other_random_control_is_near_the_best_one(self) -> None:
        """Within a quarter of the extended range of width 7 around 5."""
        ocp, rng = cart(bounds=ns.Bounds(u=(-9.0, 6.0))), np.random.default_rng(0)
        first, best = solved(2.0, u=[[2.0], [6.0]] * 500), solved(1.0, u=[[3.0]] * 1000)
        even, odd = self.after(first, best), self.after(first, best, solved(5.0, u=[[0.0]] * 1000))
        near = elements._random_control(ocp, even, rng)
        assert near.min() == pytest.approx(3.0 - 1.75, abs=0.05)
        assert near.max() == pytest.approx(3.0 + 1.75, abs=0.05)
        assert elements._random_control(ocp, odd, rng).min() == pytest.approx(-1.0, abs=0.1)

    def test_limits_of_time(self) -> None:
        assert seconds_to(np.inf) is None
        assert seconds_to(0.0) == 0.0
        left = seconds_to(time.monotonic() + 100.0)
        assert left is not None
        assert 0.0 < left <= 100.0


@dataclass(frozen=True)
class Start:
    """What a start has beside its motion."""

    p: Any


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What is left of a solution: why the search ended, and its record."""

    status: Status | None
    candidates: tuple[Candidate, ...] = ()
    method: str = ""
    wall_seconds: float = 0.0


class TestElementSearches:
    """The loop with programs whose answers are written down: (objective, work) of every start."""

    def searched(self, monkeypatch: pytest.MonkeyPatch, answers: list[tuple[float, float]], **more: Any) -> Any:
        limits: list[float] = []
        given = iter(answers)

        class Program:
            method = SimpleNamespace(rk_stages=2)

            def solve(self, guess: Any, time_limit: Any) -> Any:
                limits.append(left())
                objective, work = next(given)
                count(work)
                return SimpleNamespace(**vars(solved(objective, u=[[1.0]])), certificate=None)

        monkeypatch.setattr(elements, "transcribe", lambda ocp, method: Program())
        monkeypatch.setattr(elements, "fitting", lambda *given: SimpleNamespace(replace=lambda **k: None))
        monkeypatch.setattr(
            elements.ElementSearch, "_refine", lambda self, ocp, problem, state, ends: Ended(status=state.status)
        )
        return ElementSearch(**more).solved(cart(), None, None, 0.0, np.inf), limits

    def test_patience_and_agreement_end_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Six starts without a gain, of which one reaches the best objective."""
        state, _ = self.searched(monkeypatch, [(2.0, 0.1), *[(3.0, 0.1)] * 7, (2.0, 0.1)], effort="quick")
        assert (len(state.candidates), state.status) == (9, Status.SOLVED)
        state, _ = self.searched(monkeypatch, [(2.0, 0.1), (2.0, 0.1), *[(3.0, 0.1)] * 9], effort="quick")
        assert len(state.candidates) == 7

    def test_work_ends_it_and_a_quarter_is_reserved(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of 10 units 7.5; a start may take five times as much as the first one, 2 units at least."""
        state, limits = self.searched(monkeypatch, [(2.0, 1.0), *[(3.0, 1.0)] * 9], effort="quick")
        assert (len(state.candidates), state.status) == (8, Status.WORK_LIMIT)
        assert limits[:4] == pytest.approx([7.5, 5.0, 5.0, 4.5])
        _, limits = self.searched(monkeypatch, [(2.0, 0.3), (2.0, 0.1), *[(3.0, 0.1)] * 9], effort="quick")
        assert limits[1] == pytest.approx(2.0)


class TestRefiningElements:
    def refined(self, monkeypatch: pytest.MonkeyPatch, finer: list[float], verdicts: list[Verdict]) -> tuple[Any, int]:
        """The solution, and the number of finer programs; their objectives and verdicts are written down."""
        objectives, judged, made = iter(finer), iter(verdicts), []

        class Program:
            method = ns.FESD(rk_stages=2)

            def __init__(self, method: Any = None) -> None:
                made.append(None if method is None else method.rk_stages)

            def solve(self, guess: Any, time_limit: Any) -> Any:
                return SimpleNamespace(**vars(solved(next(objectives))), certificate=None)

        monkeypatch.setattr(elements, "transcribe", lambda ocp, method: Program(method))
        monkeypatch.setattr(
            elements, "with_certificate",
            lambda ocp, solution, **k: SimpleNamespace(
                **{**vars(solution), "certificate": SimpleNamespace(verdict=next(judged))}
            ),
        )  # fmt: skip
        best = SimpleNamespace(**vars(solved(2.0)), certificate=None)
        state = ElementState(best=best, candidates=(), status=Status.SOLVED)
        program: Any = Program()
        return ElementSearch()._refine(cart(), program, state, np.inf), made[1:]

    def test_stages_are_added_until_the_simulation_confirms(self, monkeypatch: pytest.MonkeyPatch) -> None:
        rough, sure = Verdict.INACCURATE, Verdict.CONFIRMED
        best, stages = self.refined(monkeypatch, [2.001, 2.0], [rough, rough, sure])
        assert (best.objective, stages) == (2.0, [3, 4])
        best, stages = self.refined(monkeypatch, [], [sure])
        assert (best.objective, stages) == (2.0, [])
        best, stages = self.refined(monkeypatch, [2.0, 2.0, 2.0], [rough] * 4)
        assert stages == [3, 4, 5]
        assert self.refined(monkeypatch, [], [Verdict.REFUTED])[1] == []

    def test_another_branch_is_not_a_refinement(self, monkeypatch: pytest.MonkeyPatch) -> None:
        best, stages = self.refined(monkeypatch, [2.021], [Verdict.INACCURATE])
        assert (best.objective, stages) == (2.0, [3])
        best, stages = self.refined(monkeypatch, [2.019], [Verdict.INACCURATE, Verdict.CONFIRMED])
        assert (best.objective, stages) == (2.019, [3])


def attempt(objective: float, verdict: Verdict | None = Verdict.CONFIRMED, residual: float = 0.0, **more: Any) -> Any:
    program = SimpleNamespace(tolerance=1e-6, laws=SimpleNamespace(names=("wall",)), nlp=None)
    point: Any = SimpleNamespace(
        sequence=more.pop("sequence", BOUNCE), residual=residual, objective=objective, objective_at_start=objective,
        program=program, is_inside_mode=False, worst="goal", violation=0.25, result=None, not_finite="in phase 0",
    )  # fmt: skip
    certificate = SimpleNamespace(verdict=verdict, true_objective=objective, worst_window=None)
    solution: Any = SimpleNamespace(
        objective=objective, x=np.ones((3, 2)), message="", status=more.pop("status", Status.LOCALLY_INFEASIBLE)
    )
    judged: Any = None if verdict is None else certificate
    return PhaseAttempt(point=point, solution=solution, certificate=judged)


def state(*attempts: Any, **more: Any) -> SearchState:
    task: Any = SimpleNamespace(growth=1.0, ocp=None, undefined="", rest=np.zeros(1), sizes=np.array([2.0, 4.0]))
    work: Any = SimpleNamespace(best=None, started=0.0, log=[])
    nodes = tuple(SequenceNode(attempt=each, kind="line", moves=iter(())) for each in attempts)
    fixed: dict[str, Any] = {"task": task, "work": work, "streams": {}, "limit": 60.0, "deadline": np.inf}
    return SearchState(**{**fixed, "nodes": nodes, **more})


def candidates(*kinds: str) -> tuple[Candidate, ...]:
    return tuple(Candidate(start=k, sequence=BOUNCE, objective=2.0, verdict=Verdict.CONFIRMED, work=1.0) for k in kinds)


class TestNotes:
    @pytest.mark.parametrize(
        ("broken", "note"),
        [
            ({"line": (10, 2)}, ""),
            ({"line": (10, 3)}, "3 of 10 programs met values or derivatives that are not finite (in phase 0)"),
            ({"line": (5, 1), "random": (5, 2)}, "3 of 10 programs met"),
            ({}, ""),
        ],
    )
    def test_broken_programs(self, broken: dict[str, tuple[int, int]], note: str) -> None:
        found = ns.Search._broken_note(state(attempt(2.0), broken=broken))
        assert found.startswith(note)
        assert bool(found) == bool(note)

    def test_limits(self) -> None:
        search = ns.Search()
        cut = state(status=Status.TIME_LIMIT, spent={"line": 15.0})
        assert search._cut_note(cut) == "time_limit cut the search at 25% of the work of effort='normal'"
        assert "at 100%" in search._cut_note(state(status=Status.TIME_LIMIT, spent={"line": 90.0}))
        assert search._cut_note(state(status=Status.WORK_LIMIT)) == "the work of effort='normal' is used up"
        assert search._cut_note(state()) == ""

    def test_agreement(self) -> None:
        search, best = ns.Search(), attempt(2.0)
        assert search._agreement_note(state(best, candidates=candidates("line", "random"))) == ""
        assert "found only by line" in search._agreement_note(state(best, candidates=candidates("line")))
        assert "not found directly by any start" in search._agreement_note(state(best))

    def test_judgements(self) -> None:
        search = ns.Search()
        agreed: dict[str, Any] = {"candidates": candidates("line", "random")}
        assert search._judgement(state(**agreed), attempt(2.0, Verdict.REFUTED))[0] is Status.NOT_CONFIRMED
        assert search._judgement(state(), attempt(2.0, None))[0] is Status.NOT_CERTIFIED
        assert search._judgement(state(), attempt(np.nan, None))[0] is Status.NUMERICAL_ERROR
        assert search._judgement(state(attempt(2.0), **agreed), attempt(2.0)) == (Status.SOLVED, "")
        status, text = search._status_of(state(status=Status.STOPPED), attempt(2.0))
        assert (status, text) == (Status.STOPPED, "the best solution so far is confirmed")

    @pytest.mark.parametrize(
        ("conflicting", "given", "status"),
        [
            ((), Status.WORK_LIMIT, Status.WORK_LIMIT),
            (("a", "b"), Status.WORK_LIMIT, Status.LOCALLY_INFEASIBLE),
            (("a",), Status.WORK_LIMIT, Status.WORK_LIMIT),
            (("a", "b"), Status.TIME_LIMIT, Status.TIME_LIMIT),
            ((), None, Status.LOCALLY_INFEASIBLE),
        ],
    )
    def test_what_no_start_reaches(
        self, conflicting: tuple[str, ...], given: Any, status: Status, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(portfolio, "stretched_control", lambda solution, horizon: np.zeros(1))
        monkeypatch.setattr(portfolio, "nearest_motion", lambda *_: None)
        monkeypatch.setattr(portfolio, "conflict", lambda *_: conflicting)
        missed = attempt(2.0, None, residual=0.1)
        here = state(missed, candidates=candidates("line", "moves", "random"), status=given)
        here.task.ocp = cart()
        found, text = ns.Search()._judgement(here, missed)
        assert found is status
        assert text.startswith("none of 2 starts led to a feasible motion; the nearest misses goal by 0.25")
        assert ("no motion satisfies a and b together" in text) == (len(conflicting) > 1)


class TestFinerControls:
    def finer(self, objectives: list[float | None], **more: Any) -> tuple[float, float, list[int]]:
        """Objective, loss and grids; the answers on finer grids are written down, None for one that fails."""
        answers, grids = iter(objectives), []

        class Answers(ns.Search):
            def _on_final_grid(self, state: Any, attempt_: Any, intervals: int | None = None) -> Any:
                grids.append(intervals)
                objective = next(answers)
                return None if objective is None else attempt(objective)

        found, loss = Answers()._with_finer_control(state(attempt(2.0), **more), attempt(2.0))
        return found.solution.objective, loss, grids

    def test_until_a_third_of_the_last_gain_is_a_thousandth(self) -> None:
        """24 intervals are doubled twice at most."""
        objective, loss, grids = self.finer([1.99, 1.985])
        assert (objective, grids) == (1.985, [48, 96])
        assert loss == pytest.approx(0.005 / 1.985 / 3, rel=1e-9)
        assert self.finer([1.995])[2] == [48]  # 0.005 / 1.995 / 3 = 8e-4
        assert self.finer([1.993, 1.99])[2] == [48, 96]  # 1.2e-3
        assert self.finer([2.1]) == (2.0, 0.0, [48])  # a finer grid that loses is not taken
        assert self.finer([None]) == (2.0, 0.0, [48])

    def test_without_controls_there_is_nothing_to_refine(self) -> None:
        still = state(attempt(2.0))
        still.task.rest = np.zeros(0)
        assert ns.Search()._with_finer_control(still, attempt(2.0))[1] == 0.0
        assert ns.Search().refines_control
        assert not ns.Search(program=ns.MultiPhase(intervals=5)).refines_control


class TestTurns:
    def test_places_are_samples_relative_to_the_sizes(self) -> None:
        class Motion:
            t0, duration = 5.0, 8.0

            def __call__(self, t: np.ndarray) -> np.ndarray:
                return np.column_stack([t, np.full(t.size, 2.0)])

        motion: Any = Motion()
        place = ns.Search._place(state(), motion)
        assert place == pytest.approx(np.ravel([[(5.0 + k) / 2.0, 0.5] for k in range(9)]))

    def test_the_first_turn_has_programs_that_are_coarse(self) -> None:
        here = ns.Search().init(cart())
        program = here.work.method
        assert (program.intervals, program.max_iterations, program.refinements) == (16, 300, 2)
        assert here.limit == 24.0
        assert (here.since, here.used, here.nodes, here.candidates) == (0.0, 0.0, (), ())
        assert ns.Search(effort="thorough").init(cart()).limit == 240.0
        assert ns.Search(program=ns.MultiPhase(intervals=5, refinements=0)).init(cart()).work.method.intervals == 5
        assert ns.Search(program=ns.MultiPhase(refinements=0)).init(cart()).work.method.refinements == 0

    @pytest.mark.parametrize(
        ("verdict", "objective", "taken"),
        [
            (Verdict.CONFIRMED, 1.9, True),
            (Verdict.CONFIRMED, 2.1, False),
            (Verdict.REFUTED, 1.9, False),
            (Verdict.CONFIRMED_IN_WINDOWS, 1.9, True),
        ],
    )
    def test_a_better_guess_is_returned(
        self, verdict: Verdict, objective: float, taken: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        certificate = SimpleNamespace(verdict=verdict, true_objective=objective)
        monkeypatch.setattr(portfolio, "certify", lambda ocp, guess: certificate)
        monkeypatch.setattr(portfolio, "replace", lambda value, **fields: value)
        guess, solution = solved(objective), solved(2.0)
        found, status, _ = ns.Search()._better_of_guess(state(guess=guess), solution, Status.SOLVED, "")
        assert (found is guess) == taken
        assert status is Status.SOLVED
        worse = ns.Search()._better_of_guess(state(guess=guess), solution, Status.NOT_CONFIRMED, "")
        assert (worse[0] is guess) == (verdict is not Verdict.REFUTED)
        equal = ns.Search(program=ns.MultiPhase(grid="equal"))
        assert equal._better_of_guess(state(guess=guess), solution, Status.SOLVED, "")[0] is solution

    def test_where_no_turn_led_to_a_program_the_motion_without_control_is_tried(self) -> None:
        class Tried(ns.Search):
            def _try_motion(self, state: Any, kind: str, motion: Any, account: Any, **more: Any) -> Any:
                raise KeyError(motion, kind)

        for more in ({"status": Status.WORK_LIMIT}, {"spent": {"line": 1.0}}):
            empty = state(**more)
            empty.task.zero = np.zeros(1)
            empty.task.start = lambda rows: rows.tolist()
            empty.task.motion = lambda start: ("motion of", start)
            with pytest.raises(KeyError) as caught:
                Tried().solution(empty)
            assert caught.value.args == (("motion of", [[0.0]]), "constant")
        with pytest.raises(ns.OptionError, match="take a step first"):
            Tried().solution(state())

    @pytest.mark.parametrize(
        ("new", "work", "since"), [(True, 0.1, 6.0), (False, 0.1, 5.1), (False, 0.01, 5.05), (False, 9.0, 5.2)]
    )
    def test_a_start_whose_sequence_is_known_counts_by_its_work(
        self, new: bool, work: float, since: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In relation to the mean of starts that led to a program (here 1), within a twentieth and a fifth."""
        monkeypatch.setattr(portfolio, "laws_of", lambda ocp, motion: None)
        monkeypatch.setattr(portfolio, "start_of_motion", lambda ocp, sequence, motion: Start(p=None))
        monkeypatch.setattr(SearchState, "is_new", lambda self, *given: new)
        monkeypatch.setattr(ns.Search, "_place", staticmethod(lambda state, motion: np.zeros(1)))
        monkeypatch.setattr(ns.Search, "_solve", staticmethod(lambda *given: None))
        with counted() as account:
            motion: Any = SimpleNamespace(t=[0.0, 1.0])
            count(work)
            known = tuple(
                Candidate(start="line", sequence=each, objective=2.0, verdict=None, work=spent)
                for each, spent in ((BOUNCE, 0.5), (BOUNCE, 1.5), (None, 7.0))
            )
            before = state(since=5.0, candidates=known)
            after = ns.Search()._try_motion(before, "line", motion, account, sequence=BOUNCE)
        assert after.since == pytest.approx(since)
        assert [c.start for c in after.candidates[3:]] == ["line"]
        assert (BOUNCE in after.tried) == new

    def test_progress_is_one_line(self) -> None:
        assert line_of(state()) == "search: 0 starts, no motion yet, 0% of the work"
        here = state(attempt(2.0), candidates=candidates("line"), spent={"line": 15.0})
        assert line_of(here) == "search: 1 start, best 2 (confirmed), found by line, 25% of the work"
        untested = state(attempt(2.0, None), candidates=candidates("line", "random"))
        assert line_of(untested) == "search: 2 starts, best 2 (not simulated), 0% of the work"
        assert "no motion yet" in line_of(state(attempt(2.0, None, residual=1.0)))


class TestNearest:
    def missed(self, constraint: Any, end: list[float]) -> tuple[str, float]:
        ocp = cart(terminal_constraints=lambda s: [constraint(s)])
        solution: Any = SimpleNamespace(x=np.array([[0.0, 0.0], end]), p=np.zeros(0))
        return nearest._missed(ocp, ocp.terminal_constraints[0], solution)

    def test_what_is_missed_and_by_how_much(self) -> None:
        assert self.missed(lambda s: ns.Constraint(s.q, 2.0, 2.0, name="a"), [1.5, 0.0]) == (
            "a (q) is 1.5, expected 2",
            pytest.approx(0.5),
        )
        assert self.missed(lambda s: ns.Constraint(s.q, 2.0, 3.0, name="a"), [1.5, 0.0])[0] == (
            "a (q) is 1.5, expected at least 2"
        )
        assert self.missed(lambda s: ns.Constraint(s.q, 0.0, 1.0, name="a"), [1.5, 0.0]) == (
            "a (q) is 1.5, expected at most 1",
            pytest.approx(0.5),
        )
        assert self.missed(lambda s: ns.Constraint(s.q, 0.0, 2.0, name="a"), [1.5, 0.0]) == ("", 0.0)
        both = self.missed(lambda s: ns.Constraint(ca.vertcat(s.q, s.v), [2, 1], [2, 1], name="a"), [1.5, 4.0])
        assert both == ("a[0] (q) is 1.5, expected 2; a[1] (v) is 4, expected 1", pytest.approx(3.5))

    def test_long_expressions_are_left_out(self) -> None:
        """Those of more than forty characters: "(((q+v)+q)+v)..." of five and of nine terms."""

        def of(count: int) -> Any:
            return lambda s: ns.Constraint(sum([s.q, s.v] * count, ca.SX(0)), 9, 9, name="a")

        assert self.missed(of(2), [1.5, 0.0])[0].startswith("a (")
        assert self.missed(of(9), [1.5, 0.0])[0].startswith("a is ")

    def test_tiny_misses_are_not_reported(self) -> None:
        """A thousandth of the value and of the typical size of the row."""
        size = float(cart(terminal_constraints=lambda s: [s.q == 2]).sizes.x[0])
        limit = 1e-3 * (2.0 + size)
        above, below = 2.0 - 1.01 * limit, 2.0 - 0.99 * limit
        assert self.missed(lambda s: ns.Constraint(s.q, 2.0, 2.0, name="a"), [above, 0.0])[0]
        assert not self.missed(lambda s: ns.Constraint(s.q, 2.0, 2.0, name="a"), [below, 0.0])[0]

    def test_a_problem_with_some_of_its_constraints(self) -> None:
        ocp = cart(
            bounds=ns.Bounds(x=([-1.0, -2.0], [3.0, 4.0]), u=(-5.0, 6.0)),
            terminal_constraints=lambda s: [ns.Constraint(s.q, 2, 2, name="a"), ns.Constraint(s.v, 0, 0, name="b")],
            path_constraints=lambda s: [ns.Constraint(s.q, -3, 3, name="c")],
            terminal_cost=lambda s: s.q**2,
        )
        assert nearest._bounded(ocp) == [("q", -1.0, 3.0), ("v", -2.0, 4.0), ("u", -5.0, 6.0)]
        some = nearest._with_only(ocp, ["b", "bounds of v"])
        assert [c.name for c in some.terminal_constraints] == ["b"]
        assert some.path_constraints == ()
        assert [part.tolist() for part in some.x_bounds] == [[-np.inf, -2.0], [np.inf, 4.0]]
        assert [part.tolist() for part in some.u_bounds] == [[-np.inf], [np.inf]]
        assert some.stage_cost.is_constant()
        assert some.terminal_cost.is_constant()
        other = nearest._with_only(ocp, ["c", "bounds of u"])
        assert [c.name for c in other.path_constraints] == ["c"]
        assert [part.tolist() for part in other.u_bounds] == [[-5.0], [6.0]]

    @pytest.mark.parametrize(
        ("impossible", "names"),
        [
            ({"a", "bounds of u"}, ("a", "bounds of u")),
            ({"a", "b"}, ("a", "b")),
            ({"b"}, ("b",)),
            (set(), ()),
        ],
    )
    def test_a_smallest_set_that_conflicts(
        self, impossible: set[str], names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Motions exist unless all of these are asked for; nothing conflicts if the last one alone is impossible."""
        asked: list[list[str]] = []

        class Filter:
            def solve(self, kept: list[str], guess: Any, time_limit: float | None) -> Any:
                asked.append(kept)
                return SimpleNamespace(success=not impossible or not impossible <= set(kept))

        monkeypatch.setattr(nearest, "FILTER", Filter())
        monkeypatch.setattr(nearest, "_with_only", lambda ocp, kept: list(kept))
        ocp = cart(
            bounds=ns.Bounds(u=(-5.0, 6.0)),
            terminal_constraints=lambda s: [ns.Constraint(s.q, 2, 2, name="a"), ns.Constraint(s.v, 0, 0, name="b")],
        )
        if impossible:
            assert nearest.conflict(ocp, None) == names
            assert asked[0] == []
        assert nearest.conflict(ocp, None, time.monotonic()) == ()
        with counted(limit=0.0):
            assert nearest.conflict(ocp, None) == ()

    def test_too_many_constraints_are_not_filtered_and_soft_ones_are_not_missed(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(nearest, "FILTER", None)
        many = cart(terminal_constraints=lambda s: [ns.Constraint(s.q, 2, 2, name=f"c{k}") for k in range(13)])
        assert nearest.conflict(many, None) == ()
        soft = cart(terminal_constraints=lambda s: [ns.Constraint(s.q, 2, 2, name="a", soft="l1", weight=1.0)])
        assert nearest.nearest_motion(soft, [[0.0]]) is None

    def test_sizes_of_rows_that_do_not_change_count_as_one(self) -> None:
        assert nearest._positive(np.array([0.0, 0.5, 3.0])).tolist() == [1.0, 0.5, 3.0]


def words(sets: list[frozenset[str]]) -> str:
    return "|".join("".join(sorted(one)) or "-" for one in sets)


class TestStances:
    @pytest.mark.parametrize(
        ("first", "last", "names", "proposed"),
        [
            ("a", "a", "a", "a a|-|a a|-|a|-|a a|-|a|-|a|-|a"),
            ("a", "a", "ab", "a a|ab|a a|-|a a|-|a|-|a a|-|a|-|a|-|a"),
            ("a", "a", "abc", "a a|abc|a a|-|a a|ab|a a|ac|a a|-|a|-|a a|-|a|-|a|-|a"),
            ("", "ab", "ab", "-|ab -|b|ab -|a|ab -|ab|-|ab -|ab|-|ab|-|ab"),
            ("ab", "b", "ab", "ab|b ab|-|b ab|a|b ab|a|-|b ab|-|b|-|b ab|-|b|-|b|-|b"),
        ],
    )
    def test_sets_of_closed_contacts(self, first: str, last: str, names: str, proposed: str) -> None:
        """The shortest ones first, then one contact after the other, then flights."""
        found = [words(sets) for sets in contact_sets(frozenset(first), frozenset(last), list(names))]
        assert found == proposed.split()

    def test_two_contacts_in_their_order(self) -> None:
        found = [words(sets) for sets in contact_sets(frozenset("ab"), frozenset("ab"), ["a", "b"])]
        assert found == [
            "ab", "ab|-|ab", "ab|b|ab", "ab|a|ab", "ab|-|ab|-|ab", "ab|-|ab|-|ab|-|ab",
        ]  # fmt: skip
        five = [words(sets) for sets in contact_sets(frozenset("a"), frozenset("a"), list("abcde"))]
        assert "a|abcde|a" not in five
        assert "a|ab|a" in five
        four = [words(sets) for sets in contact_sets(frozenset("a"), frozenset("a"), list("abcd"))]
        assert "a|abcd|a" in four

    def test_states_of_a_proposal_touch_where_phases_meet(self) -> None:
        """From 3 m over the ground at 1/2 s to 2 m: between them straight lines, sampled eight times a phase."""
        q, v, u = (ca.SX.sym(name) for name in "qvu")
        ground = ns.Contact("ground", gap=q)
        system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 10, contacts=[ground])
        task = StartTask.of(ns.OCP(system, horizon=1.5, x0=[3.0, 0.0], stage_cost=u**2))
        closed = frozenset(["ground"])
        sets: Any = [frozenset(), closed, frozenset()]
        found = propose(task, sets, np.array([3.0, 0.0]), np.array([2.0, 0.0]))
        assert found.sequence == Sequence([{}, "impact ground", {"ground": "closed"}, {}])
        assert found.sequence.times == pytest.approx([0.5, 1.0])
        assert len(found.motion.t) == 25
        assert found.motion(0.25) == pytest.approx([1.5, 0.0], abs=1e-4)
        assert found.motion(0.5) == pytest.approx([0.0, 0.0], abs=1e-4)
        assert found.motion(1.25) == pytest.approx([1.0, 0.0], abs=1e-4)
        assert found.motion.control(0.7) == pytest.approx([10.0])


def test_sizes_of_objectives_are_those_of_their_changes() -> None:
    assert ObjectiveScale.of([(5.0, 2.0), (np.inf, 1.0)]).change == 3.0


def test_systems_with_memory_are_taken() -> None:
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    switch = ns.Hysteresis("gear", variable=x, lower=0.2, upper=0.5, flows=[u, 0.5 * u])
    assert ns.Search().accepts(ns.PSS(x=x, u=u, modes=switch)) is None
