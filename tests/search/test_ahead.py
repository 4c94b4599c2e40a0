"""Neighbours that helpers solve ahead: the candidates are those of one process."""

from __future__ import annotations

import contextvars
from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py import processes
from nosnoc_py.attempts.work import count, counted
from nosnoc_py.search import portfolio
from nosnoc_py.search.ahead import WorkAhead
from nosnoc_py.search.prepared import END, Cost, Peekable, PreparedStream
from nosnoc_py.sequences.refinement import NO_CUTOFF, Cutoff

needs_fork = pytest.mark.skipif(not processes.can_fork(), reason="processes cannot be forked here")


def ball() -> ns.OCP:
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    ground = ns.Contact("ground", gap=q, restitution=0.5)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 9.81, contacts=[ground])
    return ns.OCP(system, horizon=1.0, x0=[1, 0], stage_cost=u**2, terminal_constraints=[q == 0.5, v == 0])


def search(**options: Any) -> ns.Search:
    return ns.Search(effort="quick", starts=("constant", "line", "moves"), progress=False, **options)


def rows(solution: ns.Solution) -> list[tuple[Any, ...]]:
    return [(c.start, c.sequence, c.verdict, c.objective) for c in solution.candidates or ()]


def ours(monkeypatch: pytest.MonkeyPatch, method: ns.Search, spoil: Any = None) -> tuple[ns.Solution, Any, Any]:
    """The solution of a search, whether a helper's attempt was used, and whether a motion was prepared.

    Starts are prepared before every neighbour, whether this process has to wait or not.
    """
    used, take = list[bool](), WorkAhead.take
    prepared, motion = list[bool](), WorkAhead.motion

    def seeing(self: WorkAhead, state: Any, start: Any) -> Any:
        prepared.append(id(start) in self.motions)
        return motion(self, state, start)

    def counting(self: WorkAhead, *given: Any) -> Any:
        if spoil is not None:
            spoil(self)
        contextvars.Context().run(self.prepare, given[0])
        attempt = take(self, *given)
        used.append(attempt is not None)
        return attempt

    monkeypatch.setattr(WorkAhead, "take", counting)
    monkeypatch.setattr(WorkAhead, "motion", seeing)
    return ns.solve(ball(), method), used, prepared


@pytest.fixture(scope="module")
def alone() -> ns.Solution:
    return ns.solve(ball(), search())


@needs_fork
class TestSameSearch:
    def test_candidates_of_one_process(self, alone: ns.Solution, monkeypatch: pytest.MonkeyPatch) -> None:
        """Bit for bit but the work, whose sums have another order: 1e-12."""
        solution, used, prepared = ours(monkeypatch, search(workers=2))
        assert sum(used) > 5, used
        assert any(prepared), prepared
        assert rows(solution) == rows(alone)
        works = [[c.work for c in each.candidates or ()] for each in (solution, alone)]
        assert works[0] == pytest.approx(works[1], rel=1e-12)
        assert solution.objective == alone.objective
        assert np.array_equal(solution.u, alone.u)
        assert (solution.status, solution.agreement) == (alone.status, alone.agreement)
        assert [line.iterations for line in solution.log] == [line.iterations for line in alone.log]

    def test_helpers_that_die_are_missed_by_nobody(self, alone: ns.Solution, monkeypatch: pytest.MonkeyPatch) -> None:
        def kill(ahead: WorkAhead) -> None:
            for helper in ahead.helpers:
                helper.process.kill()

        solution, used, _ = ours(monkeypatch, search(workers=2), kill)
        assert len(used) > 5
        assert rows(solution) == rows(alone)

    def test_a_program_is_built_again_where_it_is_asked_for(self) -> None:
        """A helper's attempt has the program that this process would have built: its point has the same residual."""
        state = search().init(ball())
        while state.expandable is None:
            state = search().step(state)
        node, ocp = state.expandable, state.task.ocp
        ahead = WorkAhead(search(), ocp, state.work.method)
        with processes.helpers(ahead.answer, 1) as ahead.helpers:
            ahead.hand_out(node, state, NO_CUTOFF, 10.0)
            sequence = next(node.moves)
            with counted() as account:
                attempt = ahead.take(state, node, sequence, NO_CUTOFF)
                assert attempt is not None
                assert account.total > 0.0
                before = account.total
                point = attempt.point
                assert "_program" not in vars(point.program)
                assert point.sequence.phases
                _, values = point.program.nlp.evaluate(point.w)
            assert account.total == before  # outside of all accounts
        assert point.program.nlp.residual(point.w) == pytest.approx(point.residual, abs=1e-12)
        assert np.isfinite(values).all()


class TestCosts:
    cost = Cost(work=1.0, log=(), cutoff=Cutoff(5.0, 6.0), limit=2.0)

    @pytest.mark.parametrize(
        ("cutoff", "holds"), [((5.0, 6.0), True), ((4.999, 6.0), False), ((5.0, 5.0), False), ((), False)]
    )
    def test_the_cutoff_is_the_same(self, cutoff: tuple[float, ...], holds: bool) -> None:
        assert self.cost.holds(Cutoff(*cutoff)) is holds

    @pytest.mark.parametrize(("work", "holds"), [(1.0, True), (1.5, False), (2.0, False)])
    def test_no_limit_of_work_may_have_cut(self, work: float, holds: bool) -> None:
        with counted(limit=3.0):
            count(1.5)
            assert replace(self.cost, work=work).holds(self.cost.cutoff) is holds
        assert not replace(self.cost, work=2.0).holds(self.cost.cutoff)

    def test_work_is_paid_when_it_is_used(self) -> None:
        with counted() as account:
            self.cost.pay([])
        assert account.total == 1.0


def test_a_stream_that_is_prepared_yields_and_costs_the_same() -> None:
    def source() -> Any:
        for item in (None, "start", None):
            count(0.5)
            yield item
        count(0.25)

    plain, ahead = source(), PreparedStream(source())
    assert ahead.start is None
    with counted() as before:
        ahead.prepare(10.0)
        ahead.prepare(10.0)
    assert (before.total, ahead.start) == (1.0, "start")
    with counted() as account, counted() as reference:
        assert [next(ahead), next(ahead), next(ahead)] == [None, "start", None]
        assert reference.total == 1.5
    ahead.prepare(10.0)
    assert ahead.start is END
    with pytest.raises(StopIteration):
        next(ahead)
    assert list(plain) == [None, "start", None]
    assert account.total == 1.5


def test_peeking_leaves_the_next_ones_next() -> None:
    sequences = [ns.Sequence([{"a": str(k)}]) for k in range(4)]
    stream = Peekable(iter(sequences))
    peeked = stream.peek()
    assert [next(peeked), next(peeked)] == sequences[:2]
    assert next(stream) is sequences[0]
    assert list(stream.peek()) == sequences[1:]
    assert list(stream) == sequences[1:]


def test_without_forks_the_message_says_so(monkeypatch: pytest.MonkeyPatch, alone: ns.Solution) -> None:
    monkeypatch.setattr(processes, "can_fork", lambda: False)
    monkeypatch.setattr(portfolio, "can_fork", lambda: False)
    solution = ns.solve(ball(), search(workers=3))
    assert "one process instead of workers=3" in solution.message
    assert rows(solution) == rows(replace(alone))
