"""Rules of the search on hand-made attempts, without a solver: what leads, is refined, agrees, and whose turn it is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import astuple, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.attempts.rank import ObjectiveScale, RankGroup
from nosnoc_py.attempts.work import count, counted, left
from nosnoc_py.search import portfolio
from nosnoc_py.search.portfolio import REFINE
from nosnoc_py.search.state import GUESS, MOVES, SearchState, SequenceNode
from nosnoc_py.search.tuning import TUNING
from nosnoc_py.sequences.refinement import NO_CUTOFF, PhaseAttempt
from nosnoc_py.solution import Candidate, Sequence
from nosnoc_py.status import Status, Verdict

pytestmark = pytest.mark.quick

CONFIRMED, INACCURATE, REFUTED = Verdict.CONFIRMED, Verdict.INACCURATE, Verdict.REFUTED
FLIGHT, REST = Sequence([{}]), Sequence([{"wall": "closed"}])
BOUNCE, LANDING = Sequence([{}, "impact wall", {}]), Sequence([{}, {"wall": "closed"}])
SEQUENCES = (BOUNCE, LANDING, Sequence([{}, {"wall": "closed"}, {}]), Sequence([{}, "impact wall", {}, {}]), REST)


def attempt(
    sequence: Sequence,
    objective: float,
    verdict: Verdict | None = CONFIRMED,
    *,
    residual: float = 0.0,
    defect: float = 0.0,
    start: float | None = None,
    inside: bool = False,
) -> Any:
    """An attempt; `residual` above 1e-6 is a violation, `defect` an error of the simulation of states of size one."""
    program = SimpleNamespace(tolerance=1e-6, laws=SimpleNamespace(names=("wall",)))
    point: Any = SimpleNamespace(
        sequence=sequence,
        residual=residual,
        objective=objective,
        objective_at_start=objective if start is None else start,
        program=program,
        is_inside_mode=inside,
        result=None,
    )
    window = SimpleNamespace(defect=defect)
    certificate = SimpleNamespace(verdict=verdict, true_objective=objective, worst_window=window)
    feasible = verdict is not None and residual <= 1e-6
    solution: Any = SimpleNamespace(objective=objective, x=np.ones((3, 2)))
    judged: Any = certificate if feasible else None
    return PhaseAttempt(point=point, solution=solution, certificate=judged)


def candidate(
    kind: str, objective: float = np.inf, verdict: Verdict | None = None, sequence: Sequence = LANDING
) -> Candidate:
    return Candidate(start=kind, sequence=sequence, objective=objective, verdict=verdict, work=1.0)


def state(*attempts: Any, growth: float = 1.0, **more: Any) -> SearchState:
    """The state with these attempts, each the best of its sequence; a search of at most 60 units without a clock."""
    task: Any = SimpleNamespace(growth=growth, ocp=None, undefined="", rest=np.zeros(1))
    work: Any = SimpleNamespace(best=None, started=0.0)
    nodes = tuple(SequenceNode(attempt=each, kind="line", moves=iter(())) for each in attempts)
    fixed: dict[str, Any] = {"task": task, "work": work, "streams": {}, "limit": 60.0 * growth, "deadline": np.inf}
    return SearchState(**{**fixed, "nodes": nodes, **more})


def agreeing(*kinds: str, objective: float = 2.0) -> tuple[Candidate, ...]:
    return tuple(candidate(kind, objective, CONFIRMED) for kind in kinds)


class TestRanking:
    def test_confirmed_and_sound_then_wrong_untested_missed_and_broken(self) -> None:
        ordered = [
            attempt(BOUNCE, 1.0, INACCURATE),  # a finer mesh is likely to confirm it
            attempt(LANDING, 2.0),
            attempt(FLIGHT, 0.5, INACCURATE, defect=0.9),
            attempt(REST, 0.1, None),
            attempt(SEQUENCES[2], 0.0, None, residual=1e-3),
            attempt(SEQUENCES[3], -1.0, None, residual=1e-1),
            attempt(Sequence([{"wall": "closed"}, {}]), np.nan, None),
        ]
        here = state(*(ordered[k] for k in (4, 2, 6, 0, 3, 5, 1)))
        assert [node.attempt for node in here.ranked] == ordered
        groups = [node.attempt.rank.promise.group for node in here.ranked]
        assert groups == [RankGroup.CONFIRMED, RankGroup.CONFIRMED, RankGroup.WRONG, RankGroup.UNTESTED] + 2 * [
            RankGroup.MISSES
        ] + [RankGroup.BROKEN]
        assert here.leader is here.ranked[0]
        assert (here.sound, here.confirmed) == (True, False)

    def test_a_motion_that_its_refinement_does_not_confirm_loses_its_rank(self) -> None:
        sound, confirmed = attempt(BOUNCE, 1.0, INACCURATE), attempt(LANDING, 2.0)
        wrong, missed = attempt(FLIGHT, 0.5, REFUTED), attempt(REST, 0.0, None, residual=1e-3)
        refined = frozenset((BOUNCE, LANDING, REST))
        here = state(missed, sound, wrong, confirmed, refined=refined)
        assert [node.attempt for node in here.ranked] == [confirmed, wrong, sound, missed]
        assert here.confirmed
        assert not state(sound, refined=refined).sound
        assert state(sound).sound

    def test_states_with_the_same_nodes_share_their_order(self) -> None:
        sound, confirmed = attempt(BOUNCE, 1.0, INACCURATE), attempt(LANDING, 2.0)
        here = state(confirmed, sound)
        order = here.ranked
        assert replace(here, since=3.0).with_work("line", 1.0).ranked is order
        # Another node, or a refinement that failed, makes another order.
        refused = replace(here, refined=frozenset((BOUNCE,)))
        assert [node.attempt for node in refused.ranked] == [confirmed, sound]
        assert [node.attempt for node in replace(here, nodes=here.nodes[:1]).ranked] == [confirmed]
        assert here.ranked is order

    def test_what_is_returned_is_confirmed_if_anything_is(self) -> None:
        sound, confirmed = attempt(BOUNCE, 1.0, INACCURATE), attempt(LANDING, 2.0)
        assert state(sound, confirmed).best is confirmed
        assert state(sound, attempt(FLIGHT, 0.5, REFUTED)).best is sound
        assert state().best is None
        here = state(confirmed)
        here.work.best = attempt(FLIGHT, 1.9)  # of a step that was interrupted
        assert here.best is here.work.best
        here.work.best = attempt(FLIGHT, 2.1)
        assert here.best is confirmed

    def test_the_state_says_how_far_it_is(self) -> None:
        assert repr(state()) == "SearchState: 0 starts, best nothing yet, last: no start yet"
        here = repr(state(attempt(BOUNCE, 2.0), candidates=(candidate("line", 2.0, CONFIRMED),)))
        assert here.startswith("SearchState: 1 starts, best 2 (confirmed), last: line: 2 in 2 phases")


class TestRefinement:
    def test_the_best_motion_is_refined_if_it_is_only_sound(self) -> None:
        sound = attempt(BOUNCE, 1.0, INACCURATE)
        here = state(sound, attempt(LANDING, 2.0))
        assert here.refinable is here.leader
        assert here.refinable is not None
        assert here.refinable.attempt is sound
        # Once: if the finer mesh does not confirm it either, it is no longer the best one.
        assert state(sound, attempt(LANDING, 2.0), refined=frozenset((BOUNCE,))).refinable is None

    @pytest.mark.parametrize(("objective", "due"), [(1.97, True), (1.99, False), (2.5, False)])
    def test_an_inaccurate_motion_is_refined_if_it_is_better_by_a_percent(self, objective: float, due: bool) -> None:
        rough = attempt(BOUNCE, objective, INACCURATE, defect=0.9)
        node = state(attempt(LANDING, 2.0), rough).refinable
        assert (node is not None and node.attempt is rough) == due
        refuted = attempt(BOUNCE, objective, REFUTED, defect=0.9)
        assert state(attempt(LANDING, 2.0), refuted).refinable is None
        assert state(attempt(LANDING, 2.0), rough, refined=frozenset((BOUNCE,))).refinable is None

    @pytest.mark.parametrize(("objective", "due"), [(1.39, True), (1.41, False)])
    def test_a_refuted_motion_is_refined_if_it_is_much_better(self, objective: float, due: bool) -> None:
        """It may be refuted by its coarse mesh only; once, and only beside a confirmed one."""
        refuted = attempt(BOUNCE, objective, REFUTED)
        assert (state(attempt(LANDING, 2.0), refuted).refinable is not None) == due
        assert state(attempt(LANDING, 2.0), refuted, refined=frozenset((BOUNCE,))).refinable is None
        assert state(refuted).refinable is None

    def test_without_a_confirmed_motion_the_best_inaccurate_one_is_refined(self) -> None:
        rough = [attempt(SEQUENCES[k], cost, INACCURATE, defect=0.9) for k, cost in enumerate((9.0, 7.0, 8.0))]
        node = state(attempt(REST, 1.0, REFUTED), *rough).refinable
        assert node is not None
        assert node.attempt is rough[1]

    def test_another_optimum_of_a_sequence_waits_until_it_is_refined(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A rough motion does not replace the confirmed one of its sequence; it is refined once if it is better."""
        monkeypatch.setattr("nosnoc_py.search.state.neighbours", lambda ocp, point, solution: iter(()))
        known = state(attempt(BOUNCE, 2.0))
        rough = attempt(BOUNCE, 1.0, INACCURATE, defect=0.9)
        here = known.with_attempt(rough, "random")
        assert [node.attempt.solution.objective for node in here.nodes] == [2.0]
        assert here.refinable is not None
        assert here.refinable.attempt is rough
        assert here.is_unfinished
        after = here.with_refinement(here.refinable)
        assert after.refinable is None
        assert not after.is_unfinished
        # The same one, found again, is not refined again; a better one is.
        assert after.with_attempt(attempt(BOUNCE, 0.99995, INACCURATE, defect=0.9), "line").refinable is None
        assert after.with_attempt(attempt(BOUNCE, 0.9, INACCURATE, defect=0.9), "line").refinable is not None
        for objective, verdict in ((3.0, INACCURATE), (1.0, REFUTED), (1.99, INACCURATE)):
            assert known.with_attempt(attempt(BOUNCE, objective, verdict), "random").refinable is None

    def test_a_search_at_its_end_goes_on_while_a_motion_waits(self) -> None:
        """Once: 51 of 60 units are for the search; infeasible problems, and confirmed motions, end there."""
        rough = attempt(BOUNCE, 1.0, INACCURATE, defect=0.9)
        assert state(rough, spent={"line": 51.0}).extended(120.0).limit == 120.0
        assert state(rough, spent={"line": 50.9}).extended(120.0).limit == 60.0
        assert state(attempt(BOUNCE, 1.0), spent={"line": 51.0}).extended(120.0).limit == 60.0
        assert state(attempt(BOUNCE, 1.0, None, residual=1.0), spent={"line": 51.0}).extended(120.0).limit == 60.0
        worse = attempt(LANDING, 3.0, INACCURATE, defect=0.9)
        assert state(attempt(BOUNCE, 2.0), worse, spent={"line": 51.0}).extended(120.0).limit == 60.0
        other = attempt(LANDING, 1.0, INACCURATE, defect=0.9)
        assert state(attempt(BOUNCE, 2.0), other, spent={"line": 51.0}).extended(120.0).limit == 120.0

    def test_late_a_refuted_motion_is_refined_where_none_is_confirmed(self) -> None:
        refuted = attempt(BOUNCE, 1.0, REFUTED)
        assert state(refuted, spent={"line": 30.0}).refinable is None
        late = state(refuted, spent={"line": 31.0}).refinable
        assert late is not None
        assert late.attempt is refuted
        assert state(refuted, spent={"line": 31.0}, refined=frozenset((BOUNCE,))).refinable is None

    def test_errors_of_more_than_the_motion_are_not_sound(self) -> None:
        assert attempt(BOUNCE, 1.0, INACCURATE).is_sound
        assert not attempt(BOUNCE, 1.0, INACCURATE, defect=0.9).is_sound


class TestAgreement:
    def test_kinds_that_reach_the_best_objective_within_a_percent(self) -> None:
        found = (
            candidate("random", 2.019, CONFIRMED),
            candidate("line", 2.021, CONFIRMED),
            candidate("constant", 1.5, REFUTED),
            candidate("relaxed", 2.0, Verdict.CONFIRMED_IN_WINDOWS),
            candidate("random", 2.0, CONFIRMED),
        )
        assert state(attempt(BOUNCE, 2.0), candidates=found).agreement == ("random", "relaxed")
        assert state(attempt(BOUNCE, 2.0, INACCURATE), candidates=found).agreement == ()
        assert state().agreement == ()

    def test_the_percent_is_of_the_size_of_the_objective(self) -> None:
        # An optimum of zero is compared with what its starts cost: 1e-6 * 100 * 1 % = 1e-6 is left.
        found = (candidate("random", 0.9e-6, CONFIRMED), candidate("line", 1.1e-6, CONFIRMED))
        here = state(attempt(BOUNCE, 0.0), candidates=found, scale=ObjectiveScale(100.0))
        assert here.agreement == ("random",)
        # Below zero it lies above all the same.
        below = (candidate("random", -1.985, CONFIRMED), candidate("line", -1.975, CONFIRMED))
        assert state(attempt(BOUNCE, -2.0), candidates=below).agreement == ("random",)

    def test_of_the_same_sequence_two_percent_are_agreement(self) -> None:
        """Grids that begin with other lengths of the phases differ by more than a percent."""
        found = (
            candidate("random", 2.039, CONFIRMED, BOUNCE),
            candidate("line", 2.041, CONFIRMED, BOUNCE),
            candidate("constant", 2.039, CONFIRMED, LANDING),
        )
        assert state(attempt(BOUNCE, 2.0), candidates=found).agreement == ("random",)

    def test_neighbours_never_count(self) -> None:
        assert state(attempt(BOUNCE, 2.0), candidates=agreeing(MOVES, "line", MOVES)).agreement == ("line",)

    def test_a_guess_counts_unless_it_is_a_solution(self) -> None:
        both: dict[str, Any] = {"candidates": agreeing(GUESS, "line")}
        assert state(attempt(BOUNCE, 2.0), **both).agreement == (GUESS, "line")
        solution: Any = SimpleNamespace(objective=2.0)
        assert state(attempt(BOUNCE, 2.0), guess=solution, **both).agreement == ("line",)
        moves: dict[str, Any] = {"candidates": agreeing(MOVES, "line")}
        assert state(attempt(BOUNCE, 2.0), guess=solution, **moves).agreement == ("line",)

    def test_a_kind_most_of_whose_programs_are_broken_does_not_count(self) -> None:
        broken = {"line": (3, 2), "random": (4, 2), "constant": (3, 1)}
        here = state(attempt(BOUNCE, 2.0), candidates=agreeing("line", "random", "constant"), broken=broken)
        assert here.agreement == ("random", "constant")


class TestWhatIsSimulated:
    def test_kinds_that_may_still_agree_have_a_percent_all_others_have_to_improve(self) -> None:
        here = state(attempt(BOUNCE, 2.0), candidates=agreeing("line"))
        assert astuple(here.cutoff("random")) == pytest.approx((2.02, 2.6), rel=1e-12)
        assert astuple(here.cutoff("line")) == pytest.approx((2.0 - 2e-4,) * 2, rel=1e-12)
        assert astuple(here.cutoff(MOVES)) == pytest.approx((2.0 - 2e-4,) * 2, rel=1e-12)

    def test_everything_is_simulated_before_a_motion_is_sound(self) -> None:
        assert state().cutoff("line") == NO_CUTOFF
        assert state(attempt(BOUNCE, 2.0, REFUTED)).cutoff(MOVES) == NO_CUTOFF
        assert astuple(state(attempt(BOUNCE, 2.0, INACCURATE)).cutoff("line")) == pytest.approx((2.02, 2.6), rel=1e-12)


class TestPriority:
    @pytest.mark.parametrize(
        ("kind", "value"),
        [("line", 1 / 0.4), ("relaxed", 1 / 0.8), ("evolution", 1 / 1.2), ("stances", 3 / 1.2), (MOVES, 1 / 1.2)],
    )
    def test_before_any_work(self, kind: str, value: float) -> None:
        assert state().priority(kind) == pytest.approx(value, rel=1e-12)
        assert state(attempt(BOUNCE, 2.0, REFUTED)).priority(kind) == pytest.approx(value, rel=1e-12)
        # Neighbours of a sound motion are the most promising of all.
        moved = 3.0 / 0.4 if kind == MOVES else value
        assert state(attempt(BOUNCE, 2.0, INACCURATE)).priority(kind) == pytest.approx(moved, rel=1e-12)

    def test_gains_raise_it_and_work_lowers_it(self) -> None:
        here = state(gains={"line": 2, "random": 2}, spent={"line": 4.0, "random": 9.0, "constant": 4.0})
        assert here.priority("line") == pytest.approx(3.0 / 4.4, rel=1e-12)
        assert here.priority("random") == pytest.approx(3.0 / 9.4, rel=1e-12)
        assert here.priority("constant") == pytest.approx(1.0 / 4.4, rel=1e-12)
        larger = state(gains={"line": 2}, spent={"line": 4.0}, growth=2.0)
        assert larger.priority("line") == pytest.approx(3.0 / 2.4, rel=1e-12)

    def test_a_step_more_or_less_changes_no_order(self) -> None:
        """Rounding decides how many steps a simulation takes: 0.1 and 0.1004 units are the same work, 0.2 are more."""
        here = replace(state(), spent={"line": 0.1004, "random": 0.1, "constant": 0.2})
        assert here.priority("line") == here.priority("random") > here.priority("constant")


class TestGain:
    @pytest.mark.parametrize(
        ("leader", "new", "gain"),
        [
            (attempt(BOUNCE, 2.0), attempt(LANDING, 1.9997), True),
            (attempt(BOUNCE, 2.0), attempt(LANDING, 1.9999), False),
            (attempt(BOUNCE, 2.0), attempt(BOUNCE, 1.979), True),  # of its own sequence by more than its grids
            (attempt(BOUNCE, 2.0), attempt(BOUNCE, 1.981), False),
            (attempt(BOUNCE, 2.0), attempt(LANDING, 1.9, INACCURATE), True),
            (attempt(BOUNCE, 2.0), attempt(LANDING, 1.0, REFUTED), False),
            (attempt(BOUNCE, 2.0), attempt(LANDING, 1.0, None), False),
            (attempt(BOUNCE, 2.0, REFUTED), attempt(LANDING, 9.0), True),
            (attempt(BOUNCE, 2.0, None), attempt(LANDING, 9.0, REFUTED), True),
            (attempt(BOUNCE, 2.0, None), attempt(LANDING, 1.9997, None), True),
            (attempt(BOUNCE, 2.0, None, residual=0.1), attempt(LANDING, 9.0, None, residual=0.069), True),
            (attempt(BOUNCE, 2.0, None, residual=0.1), attempt(LANDING, 0.0, None, residual=0.071), False),
            (attempt(BOUNCE, 2.0, None, residual=0.1), attempt(LANDING, 9.0, None), True),
        ],
    )
    def test_a_better_group_or_an_amount_beyond_the_threshold(self, leader: Any, new: Any, gain: bool) -> None:
        assert state(leader).is_gain(new) == gain

    def test_the_first_attempt_is_one(self) -> None:
        assert state().is_gain(attempt(BOUNCE, 1.0, None, residual=9.0))

    def test_a_confirmed_motion_after_one_that_refinement_refused(self) -> None:
        refused = state(attempt(BOUNCE, 1.0, INACCURATE), refined=frozenset((BOUNCE,)))
        assert refused.is_gain(attempt(LANDING, 2.0))
        assert not state(attempt(BOUNCE, 1.0, INACCURATE)).is_gain(attempt(LANDING, 2.0))


class TestWhatIsNew:
    here, near, far = np.zeros(4), np.full(4, 0.29), np.full(4, 0.31)

    def test_a_sequence_is_tried_by_few_kinds(self) -> None:
        one = state().with_tried(LANDING, "line", self.here)
        assert one.is_new(LANDING, "random", self.here, 2)
        assert not one.is_new(LANDING, "line", self.here, 2)
        two = one.with_tried(LANDING, "random", self.here)
        assert not two.is_new(LANDING, "constant", self.here, 2)
        assert two.is_new(LANDING, "constant", self.here, 3)
        assert two.is_new(BOUNCE, "constant", self.here, 2)

    def test_all_kinds_may_confirm_the_best_one(self) -> None:
        best = state(attempt(BOUNCE, 2.0), attempt(LANDING, 3.0))
        for sequence in (BOUNCE, LANDING):
            for kind in ("line", "random"):
                best = best.with_tried(sequence, kind, self.here)
        assert best.is_new(BOUNCE, "constant", self.here, 2)
        assert not best.is_new(BOUNCE, "line", self.here, 2)
        assert not best.is_new(LANDING, "constant", self.here, 2)

    def test_a_motion_far_from_all_others_is_another_start_of_its_sequence(self) -> None:
        tried = state().with_tried(LANDING, "line", self.here)
        assert not tried.is_new(LANDING, "line", self.near, 2)
        assert tried.is_new(LANDING, "line", self.far, 2)
        assert not tried.with_tried(LANDING, "line", self.far).is_new(LANDING, "line", self.far, 2)
        assert not tried.with_tried(LANDING, "line", self.far).is_new(LANDING, "line", self.near, 2)

    def test_a_sequence_that_is_tried_without_a_motion_has_no_new_place(self) -> None:
        tried = state().with_tried(LANDING, "line").with_tried(LANDING, "random", self.here)
        assert tried.tried == {LANDING: frozenset(("line", "random"))}
        assert [len(places) for places in tried.places.values()] == [1]


class TestRecords:
    def test_a_gain_ends_the_waiting(self) -> None:
        here = state(attempt(BOUNCE, 2.0), since=7.0)
        better = here.with_attempt(attempt(LANDING, 1.0), "line")
        assert better.since == 0.0
        assert better.gains == {"line": 1}
        same = here.with_attempt(attempt(LANDING, 2.0), "line")
        assert same.since == 7.0
        assert same.gains == {"line": 0}
        assert better.with_attempt(attempt(REST, 0.5), "line").gains == {"line": 2}

    def test_the_best_attempt_of_a_sequence_is_kept(self) -> None:
        first, better, worse = attempt(BOUNCE, 2.0), attempt(BOUNCE, 1.0), attempt(BOUNCE, 3.0)
        here = state(attempt(LANDING, 5.0), first)
        assert [node.attempt for node in here.with_attempt(worse, "random").nodes][1] is first
        after = here.with_attempt(better, "random")
        assert [node.attempt.solution.objective for node in after.nodes] == [5.0, 1.0]
        assert [node.kind for node in after.nodes] == ["line", "random"]

    def test_an_attempt_is_not_counted_twice(self) -> None:
        here = state()
        here.work.best = attempt(BOUNCE, 2.0)
        after = here.with_attempt(here.work.best, "line")
        assert after.work.best is None
        assert after.best is after.nodes[0].attempt

    def test_the_largest_change_between_a_start_and_its_optimum_is_the_size(self) -> None:
        here = state().with_attempt(attempt(BOUNCE, 2.0, start=52.0), "line")
        assert here.scale.change == pytest.approx(50.0)
        assert here.with_attempt(attempt(LANDING, 2.0, start=12.0), "line").scale.change == pytest.approx(50.0)
        missed = attempt(REST, 2.0, None, residual=1.0, start=900.0)
        assert here.with_attempt(missed, "line").scale.change == pytest.approx(50.0)
        assert here.with_attempt(attempt(LANDING, 2.0, start=92.0), "line").scale.change == pytest.approx(90.0)

    def test_a_candidate_has_the_objective_of_a_feasible_attempt_only(self) -> None:
        here = state(candidates=(candidate("line"),))
        good = here.with_candidate("random", 0.25, attempt(BOUNCE, 2.0))
        assert len(good.candidates) == 2
        last = good.candidates[-1]
        assert (last.start, last.sequence, last.objective) == ("random", BOUNCE, 2.0)
        assert (last.verdict, last.work) == (CONFIRMED, 0.25)
        missed = here.with_candidate("random", 0.25, attempt(LANDING, 2.0, None, residual=1.0)).candidates[-1]
        assert (missed.objective, missed.verdict, missed.sequence) == (np.inf, None, LANDING)
        nothing = here.with_candidate("random", 0.25, None).candidates[-1]
        assert (nothing.objective, nothing.verdict, nothing.sequence) == (np.inf, None, None)

    def test_work_and_programs_add_up_by_kind(self) -> None:
        here = state().with_work("line", 6.0, (3, 1)).with_work("line", 3.0, (2, 2)).with_work("random", 6.0)
        assert here.spent == {"line": 9.0, "random": 6.0}
        assert here.broken == {"line": (5, 3), "random": (0, 0)}
        assert here.used == pytest.approx(15.0 / 60.0, rel=1e-12)


class TestNeighboursOfWhichMotion:
    best = tuple(attempt(sequence, 1.0 + k) for k, sequence in enumerate(SEQUENCES[:4]))
    near = attempt(REST, 0.5, None, residual=1e-3)

    def sequence(self, *attempts: Any, turns: int = 0, expanded: tuple[Sequence, ...] = ()) -> Sequence | None:
        # Only turns of neighbours count.
        candidates = (candidate("line"),) * 2 + (candidate(MOVES),) * turns
        node = state(*attempts, candidates=candidates, expanded=frozenset(expanded)).expandable
        return None if node is None else node.sequence

    def test_the_best_three_in_their_order(self) -> None:
        assert self.sequence(*self.best) == SEQUENCES[0]
        assert self.sequence(*self.best, expanded=SEQUENCES[:1]) == SEQUENCES[1]
        assert self.sequence(*self.best, expanded=SEQUENCES[:2]) == SEQUENCES[2]
        assert self.sequence(*self.best, expanded=SEQUENCES[:3]) is None
        assert self.sequence() is None

    def test_every_third_turn_is_of_a_motion_that_is_better_but_for_a_violation(self) -> None:
        both = (*self.best, self.near)
        order = [self.sequence(*both, turns=turns) for turns in range(6)]
        assert order == [BOUNCE, BOUNCE, REST, BOUNCE, BOUNCE, REST]
        assert self.sequence(*both, turns=2, expanded=(REST,)) == BOUNCE
        assert self.sequence(*both, expanded=SEQUENCES[:3]) == REST

    def test_a_violation_that_is_not_worth_it(self) -> None:
        dear = attempt(REST, 1.5, None, residual=1e-3)
        assert self.sequence(*self.best, dear, turns=2) == BOUNCE
        assert self.sequence(*self.best, dear, expanded=SEQUENCES[:3]) is None
        # A motion that is feasible, but no longer one of the best.
        assert self.sequence(*self.best, attempt(REST, 0.5, REFUTED), turns=2) == BOUNCE


def search(**more: Any) -> ns.Search:
    return ns.Search(**more)


class TestEnd:
    """Of `normal`: a patience of 15 starts, and two kinds that agree."""

    @pytest.mark.parametrize(
        ("kinds", "since", "ends"),
        [
            (("line", "random"), 15.0, True),
            (("line", "random"), 14.8, False),
            (("line",), 15.0, False),
            (("line", MOVES), 29.8, False),
            (("line",), 30.0, True),
        ],
    )
    def test_patience_is_doubled_without_agreement(self, kinds: tuple[str, ...], since: float, ends: bool) -> None:
        here = state(attempt(BOUNCE, 2.0), candidates=agreeing(*kinds), since=since)
        assert search().terminate(here) == (Status.SOLVED if ends else None)

    @pytest.mark.parametrize(
        ("effort", "kinds", "since"), [("quick", 1, 6.0), ("normal", 2, 15.0), ("thorough", 3, 90.0)]
    )
    def test_efforts(self, effort: str, kinds: int, since: float) -> None:
        agreed = agreeing(*("line", "random", "constant")[:kinds])
        here = state(attempt(BOUNCE, 2.0), candidates=agreed, since=since)
        assert search(effort=effort).terminate(here) is Status.SOLVED
        assert search(effort=effort).terminate(replace(here, since=since - 0.1)) is None

    def test_a_motion_without_events_needs_more_kinds(self) -> None:
        four = agreeing("line", "random", "constant", "relaxed")
        for sequence, kinds, ends in ((FLIGHT, 4, True), (FLIGHT, 3, False), (BOUNCE, 3, True)):
            here = state(attempt(sequence, 2.0), candidates=four[:kinds], since=15.0)
            assert (search().terminate(here) is Status.SOLVED) == ends

    def test_a_motion_whose_modes_cannot_change_ends_soon(self) -> None:
        agreed = agreeing("line", "random")
        rivals = [attempt(sequence, 3.0) for sequence in SEQUENCES[:4]]
        for inside in (True, False):
            here = state(attempt(FLIGHT, 2.0, inside=inside), *rivals, candidates=agreed, since=2.0)
            assert (search().terminate(here) is Status.SOLVED) == inside
        best = attempt(FLIGHT, 2.0, inside=True)
        assert search().terminate(state(best, *rivals, candidates=agreed[:1], since=2.0)) is None
        assert search().terminate(state(best, *rivals, candidates=agreed, since=1.4)) is None
        # Throws without controls have no shorter patience.
        thrown = state(best, *rivals, candidates=agreed, since=2.0)
        thrown.task.rest = np.zeros(0)
        assert search().terminate(thrown) is None
        # With events the modes are others elsewhere.
        assert search().terminate(state(attempt(BOUNCE, 2.0, inside=True), candidates=agreed, since=2.0)) is None

    def test_it_goes_on_until_starts_have_met_contacts(self) -> None:
        """Motions in which nothing happens agree before any start has touched; neighbours are no starts."""
        best, agreed = attempt(FLIGHT, 2.0, inside=True), agreeing("line", "random")
        worse = [attempt(sequence, 3.0) for sequence in SEQUENCES[:4]]
        promising = attempt(REST, 1.0, None, residual=1.0)
        for others, since, ends in (
            (worse[:3], 5.9, False), (worse[:3], 6.0, True), (worse, 1.5, True), ((*worse, promising), 5.9, False),
        ):  # fmt: skip
            here = state(best, *others, candidates=agreed, since=since)
            assert (search().terminate(here) is Status.SOLVED) == ends
        moved = state(best, *worse, candidates=agreed, since=5.9)
        moved = replace(moved, nodes=tuple(replace(node, kind=MOVES) for node in moved.nodes))
        assert search().terminate(moved) is None

    def test_not_before_the_best_motion_is_confirmed_and_nothing_is_left_to_refine(self) -> None:
        agreed, rough = agreeing("line", "random"), attempt(LANDING, 1.5, INACCURATE, defect=0.9)
        assert search().terminate(state(attempt(BOUNCE, 2.0), rough, candidates=agreed, since=50.0)) is None
        refined: dict[str, Any] = {"refined": frozenset((LANDING,)), "candidates": agreed, "since": 50.0}
        assert search().terminate(state(attempt(BOUNCE, 2.0), rough, **refined)) is Status.SOLVED
        assert search().terminate(state(attempt(BOUNCE, 2.0, REFUTED), candidates=agreed, since=50.0)) is None
        assert search().terminate(state(since=50.0)) is None

    def test_work_ends_it_with_a_reserve_for_the_final_grid(self) -> None:
        assert search().terminate(state(spent={"line": 50.9})) is None
        assert search().terminate(state(spent={"line": 26.0, "random": 25.1})) is Status.WORK_LIMIT
        assert search().terminate(state(spent={"line": 51.1}, growth=2.0)) is None

    def test_the_clock_cuts_it_with_the_same_reserve_but_for_the_first_turn(self) -> None:
        now = time.monotonic()
        for seconds, spent, ends in ((10.0, {"line": 1.0}, True), (10.0, {}, False), (30.0, {"line": 1.0}, False)):
            here = state(attempt(BOUNCE, 2.0), spent=spent, deadline=now + seconds)
            here.work.started = now - 90.0
            assert search().terminate(here) == (Status.TIME_LIMIT if ends else None)

    def test_what_ended_it_before(self) -> None:
        assert search().terminate(state(status=Status.INTERRUPTED)) is Status.INTERRUPTED
        broken = state(candidates=(candidate("line"),))
        broken.task.undefined = "force"
        assert search().terminate(broken) is Status.NUMERICAL_ERROR
        assert search().terminate(replace(broken, candidates=())) is None


def streams(*kinds: str) -> dict[str, Iterator[Any]]:
    return {kind: iter(()) for kind in kinds}


class TestTurn:
    """The kind of the next turn of a search of `normal` effort."""

    def test_the_guess_comes_first_and_then_the_most_gains_per_work(self) -> None:
        given = streams("line", "random", GUESS)
        assert search()._next_kind(state(streams=given, gains={"random": 5})) == GUESS
        assert search()._next_kind(state(streams=streams("line", "random"), gains={"random": 1})) == "random"
        spent = {"random": 9.0}
        assert search()._next_kind(state(streams=streams("line", "random"), gains={"random": 1}, spent=spent)) == "line"
        assert search(starts=("line",))._next_kind(state(streams=streams("line", "random"), gains={"random": 9})) == (
            "line"
        )
        assert search()._next_kind(state()) is None

    def test_neighbours_need_a_motion_that_has_some(self) -> None:
        confirmed, given = attempt(BOUNCE, 2.0), streams("line")
        assert search()._next_kind(state(confirmed, streams=given)) == MOVES
        assert search()._next_kind(state(confirmed, streams=given, expanded=frozenset((BOUNCE,)))) == "line"
        assert search(starts=("line",))._next_kind(state(confirmed, streams=given)) == "line"
        assert search()._next_kind(state(streams=given)) == "line"

    def test_every_other_turn_goes_to_a_kind_that_may_still_agree(self) -> None:
        given = streams("line", "random")
        favoured: dict[str, Any] = {"streams": given, "gains": {"line": 3}}
        odd = (*agreeing("line"), candidate("line"), candidate("line"))
        assert search()._next_kind(state(attempt(BOUNCE, 2.0), candidates=odd, **favoured)) == "random"
        assert search()._next_kind(state(attempt(BOUNCE, 2.0), candidates=odd[:2], **favoured)) == "line"
        # One that costs much more than it gains does not get such turns.
        hopeless = {**favoured, "gains": {"line": 9}}
        assert search()._next_kind(state(attempt(BOUNCE, 2.0), candidates=odd, **hopeless)) == "line"
        # Two kinds agree, or nothing is confirmed: no need.
        agreed = (*agreeing("line", "random"), candidate("line"))
        assert search()._next_kind(state(attempt(BOUNCE, 2.0), candidates=agreed, **favoured)) == "line"
        assert search()._next_kind(state(attempt(BOUNCE, 2.0, REFUTED), candidates=odd[:1], **favoured)) == "line"
        sound = state(attempt(BOUNCE, 2.0, INACCURATE), candidates=odd[:1], streams=given)
        assert search()._next_kind(sound) == MOVES
        # There is no other kind than the one that agrees.
        only: dict[str, Any] = {"streams": streams("line"), "gains": {"line": 9}}
        assert search()._next_kind(state(attempt(BOUNCE, 2.0), candidates=odd, **only)) == "line"

    @pytest.mark.parametrize(
        ("more", "due"),
        [
            ({}, False),
            ({"since": 15.0}, True),
            ({"since": 14.8}, False),
            ({"spent": {"line": 0.52 * 60.0}}, True),
            ({"spent": {"line": 0.50 * 60.0}}, False),
            ({"candidates": (candidate("line"),) * 3}, True),
            ({"candidates": (candidate("line"),) * 2}, False),
            ({"streams": {}, "expanded": frozenset((BOUNCE, LANDING))}, True),
        ],
    )
    def test_a_refinement_is_due_late_or_where_nothing_is_confirmed(self, more: dict[str, Any], due: bool) -> None:
        given: dict[str, Any] = {"streams": streams("line"), **more}
        assert (search()._next_kind(state(attempt(BOUNCE, 1.0, INACCURATE), **given)) == REFINE) == due
        if "candidates" in more:  # beside a confirmed motion there is time
            confirmed = state(attempt(BOUNCE, 1.0, INACCURATE), attempt(LANDING, 2.0), **given)
            assert search()._next_kind(confirmed) != REFINE
        # A motion that is confirmed, or was refined, is not refined again.
        assert search()._next_kind(state(attempt(BOUNCE, 1.0), **given)) != REFINE
        refined = state(attempt(BOUNCE, 1.0, INACCURATE), refined=frozenset((BOUNCE,)), **given)
        assert search()._next_kind(refined) != REFINE

    def test_the_search_ends_where_no_kind_is_left(self) -> None:
        assert search().step(state()).status is Status.LOCALLY_INFEASIBLE
        only = state(attempt(BOUNCE, 2.0), expanded=frozenset((BOUNCE,)))
        assert search().step(only).status is Status.SOLVED

    def test_an_exhausted_kind_is_left_out_and_an_empty_start_costs_a_turn(self) -> None:
        here = state(streams={"line": iter((None,)), "random": iter(())})
        first = search(starts=("line",)).step(self.with_method(here))
        assert set(first.streams) == {"line", "random"}
        second = search(starts=("line",)).step(self.with_method(first))
        assert set(second.streams) == {"random"}
        assert not second.candidates

    @staticmethod
    def with_method(here: SearchState) -> SearchState:
        here.work.method, here.work.log = ns.MultiPhase(), []
        return here

    def test_the_first_turn_has_time_however_short_the_limit_is(self) -> None:
        now = time.monotonic()
        first = self.with_method(state(streams={"line": iter((None,))}, deadline=now - 1.0))
        assert search(starts=("line",)).step(first).work.deadline > now + 1.0
        later = self.with_method(state(streams={"line": iter((None,))}, deadline=now - 1.0, spent={"line": 1.0}))
        assert search(starts=("line",)).step(later).work.deadline == now - 1.0

    def test_neighbours_have_no_penalty_for_ends_that_they_miss(self) -> None:
        for kind, penalised in (("line", True), (MOVES, False)):
            streams = {"line": iter((None,))} if kind == "line" else {}
            here = self.with_method(state(attempt(BOUNCE, 2.0), streams=streams))
            assert search(starts=("line", MOVES)).step(replace(here, nodes=() if kind == "line" else here.nodes))
            assert here.work.method.penalised == penalised

    def test_only_the_longest_phases_of_a_motion_that_rattles(self) -> None:
        laws: Any = SimpleNamespace(
            names=("wall",), impulses=(), mode_names=lambda name: ("open", "closed"), default=lambda name: "open"
        )
        laws.lasting_modes = laws.mode_names
        phases = [{"wall": "closed"} if k % 2 else {} for k in range(40)]
        lengths = np.where(np.isin(np.arange(40), (3, 8, 9, 20)), 1.0, 0.01)
        rattling = Sequence(phases, np.cumsum(lengths)[:-1])
        kept = portfolio.with_longest_phases(rattling, laws, float(lengths.sum()))
        assert len(kept) <= TUNING.most_phases
        short = Sequence(phases[:4], [1.0, 2.0, 3.0])
        assert portfolio.with_longest_phases(short, laws, 4.0) is short
        # The four long phases are there, in their order, among equal ones of the same length.
        modes = [phase.get("wall", "open") for phase in kept.phases]
        assert kept.times is not None
        edges = np.concatenate([[0.0], kept.times, [lengths.sum()]])
        long = [mode for mode, length in zip(modes, np.diff(edges), strict=True) if length >= 1.0]
        assert len(long) >= 3

    def test_work_of_one_turn(self) -> None:
        half = state(spent={"line": 30.0})
        assert search()._work_of_turn(half, "line") == pytest.approx(0.25 * 0.35 * 60.0, rel=1e-12)
        # A refinement has enough for what may be the only motion.
        assert search()._work_of_turn(half, REFINE) == pytest.approx(0.3 * 60.0, rel=1e-12)
        sure = state(attempt(BOUNCE, 1.0), spent={"line": 30.0})
        assert search()._work_of_turn(sure, REFINE) == pytest.approx(0.35 * 0.35 * 60.0, rel=1e-12)
        # At the end it is at least enough for a program.
        assert search()._work_of_turn(state(spent={"line": 51.0}), "line") == pytest.approx(0.8)
        over = state(attempt(BOUNCE, 1.0), spent={"line": 102.0}, growth=2.0)
        assert search()._work_of_turn(over, REFINE) == pytest.approx(1.6)


class Solving(ns.Search):
    """A search whose programs are written down: sequence -> (objective, work)."""

    def __init__(self, answers: dict[Sequence, Any], **more: Any) -> None:
        super().__init__(**more)
        object.__setattr__(self, "answers", answers)
        object.__setattr__(self, "asked", [])

    def _solve(self, work: Any, laws: Any, sequence: Sequence, start: Any, cutoff: float) -> Any:  # type: ignore[override]
        self.asked.append((sequence, cutoff))  # type: ignore[attr-defined]
        objective, amount = self.answers[sequence]  # type: ignore[attr-defined]
        count(amount)
        return None if objective is None else attempt(sequence, objective)

    def _on_final_grid(self, state: SearchState, node: Any, intervals: int | None = None) -> Any:
        return self.answers[node.point.sequence]  # type: ignore[attr-defined]


class TestNeighboursInATurn:
    @pytest.fixture(autouse=True)
    def _no_motions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(portfolio, "start_of_motion", lambda ocp, sequence, motion: motion)

    def turn(self, answers: dict[Sequence, Any], **more: Any) -> tuple[SearchState, list[Sequence]]:
        here = state(attempt(BOUNCE, 2.0), **more)
        moves = iter(SEQUENCES[1:])
        here = replace(here, nodes=(SequenceNode(attempt=here.nodes[0].attempt, kind="line", moves=moves),))
        solving = Solving(answers)
        with counted() as account:
            after = solving._try_neighbours(here, account)
        return after, [sequence for sequence, _ in solving.asked]  # type: ignore[attr-defined]

    def test_until_the_work_of_a_turn_is_done(self) -> None:
        after, asked = self.turn(dict.fromkeys(SEQUENCES, (3.0, 0.15)))
        assert asked == list(SEQUENCES[1:4])
        assert after.candidates[-1].start == MOVES
        assert after.candidates[-1].objective == 3.0
        assert after.candidates[-1].work == pytest.approx(0.45, rel=1e-12)
        assert after.expanded == frozenset()
        assert set(after.tried) == set(SEQUENCES[1:4])
        larger, asked = self.turn(dict.fromkeys(SEQUENCES, (3.0, 0.15)), growth=2.0)
        assert asked == list(SEQUENCES[1:])
        assert larger.expanded == frozenset((BOUNCE,))

    def test_until_one_is_a_gain_and_none_twice(self) -> None:
        answers = {SEQUENCES[1]: (3.0, 0.1), SEQUENCES[2]: (1.5, 0.1), SEQUENCES[3]: (1.0, 0.1)}
        after, asked = self.turn(answers, tried={SEQUENCES[1]: frozenset(("line",))}, since=5.0)
        assert asked == [SEQUENCES[2]]
        assert after.candidates[-1].objective == 1.5
        assert after.since == 0.0
        assert after.gains == {MOVES: 1}
        assert after.leader is not None
        assert after.leader.sequence == SEQUENCES[2]

    def test_the_best_of_a_turn_is_its_record(self) -> None:
        answers = dict(zip(SEQUENCES[1:], ((5.0, 0.1), (3.0, 0.1), (4.0, 0.1), (9.0, 0.1)), strict=True))
        assert self.turn(answers)[0].candidates[-1].objective == 3.0

    def test_an_end_by_time_is_recorded(self) -> None:
        after, asked = self.turn(dict.fromkeys(SEQUENCES, (None, 0.1)))
        assert asked == [SEQUENCES[1]]
        assert after.candidates[-1].objective == np.inf
        assert after.tried == {SEQUENCES[1]: frozenset((MOVES,))}


class TestFinalGrid:
    @pytest.mark.parametrize(("growth", "spent", "limit"), [(1.0, 30.0, 30.0), (1.0, 59.5, 0.8), (2.0, 130.0, 1.6)])
    def test_work_of_the_final_grid_is_what_is_left_but_enough(
        self, growth: float, spent: float, limit: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def asked(*given: Any) -> Any:
            raise KeyError(left())

        monkeypatch.setattr(ns.Search, "_on_final_grid", asked)
        here = state(attempt(BOUNCE, 2.0), growth=growth, spent={"line": spent})
        with pytest.raises(KeyError) as caught:
            search().solution(here)
        assert caught.value.args[0] == pytest.approx(limit, rel=1e-12)


class TestRefinementInATurn:
    def refined(self, finer: Any) -> SearchState:
        here = state(attempt(BOUNCE, 1.0, INACCURATE), attempt(LANDING, 2.0), since=5.0)
        with counted() as account:
            return Solving({BOUNCE: finer})._refine(here, account)

    def test_what_is_confirmed_leads_and_is_a_candidate_of_its_kind(self) -> None:
        after = self.refined(attempt(BOUNCE, 0.9))
        assert after.confirmed
        assert after.leader is not None
        assert after.leader.attempt.solution.objective == 0.9
        assert after.agreement == ("line",)
        assert after.refinable is None
        assert after.since == 5.0  # a refinement is no new start

    def test_what_is_not_confirmed_does_not_lead(self) -> None:
        for finer in (attempt(BOUNCE, 0.9, INACCURATE), None):
            after = self.refined(finer)
            assert after.refined == frozenset((BOUNCE,))
            assert after.leader is not None
            assert after.leader.sequence == LANDING
            assert after.refinable is None
            assert after.agreement == ()
