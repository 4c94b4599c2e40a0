"""Neighbours that helpers solve ahead: the candidates are those of one process."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py import processes
from nosnoc_py.attempts.work import count, counted
from nosnoc_py.search import portfolio
from nosnoc_py.search.ahead import Answer, NeighboursAhead, Peekable, Task

needs_fork = pytest.mark.skipif(not processes.can_fork(), reason="processes cannot be forked here")


def paddle() -> ns.OCP:
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    system = ns.CLS(
        q=q, v=v, u=u, mass_matrix=ca.diag([1.0, 0.1]), force=ca.vertcat(u - 9.81, -0.981),
        contacts=[ns.Contact("paddle", gap=q[1] - q[0], restitution=0.8)],
    )  # fmt: skip
    return ns.OCP(
        system, horizon=1.0, x0=[0, 1, 0, 0], stage_cost=0.01 * (u - 9.81) ** 2,
        terminal_constraints=[q[1] == 2, v[1] == 1], bounds=ns.Bounds(u=(-50, 50)),
    )  # fmt: skip


def search(**options: Any) -> ns.Search:
    return ns.Search(effort="quick", starts=("constant", "line", "moves"), progress=False, **options)


def rows(solution: ns.Solution) -> list[tuple[Any, ...]]:
    return [(c.start, c.sequence, c.verdict, c.objective) for c in solution.candidates or ()]


def ours(monkeypatch: pytest.MonkeyPatch, method: ns.Search, spoil: Any = None) -> tuple[ns.Solution, list[bool]]:
    """The solution of a search, and whether a helper's attempt was used, for every neighbour."""
    used, take = list[bool](), NeighboursAhead.take

    def counting(self: NeighboursAhead, *given: Any) -> Any:
        if spoil is not None:
            spoil(self)
        attempt = take(self, *given)
        used.append(attempt is not None)
        return attempt

    monkeypatch.setattr(NeighboursAhead, "take", counting)
    return ns.solve(paddle(), method), used


@pytest.fixture(scope="module")
def alone() -> ns.Solution:
    return ns.solve(paddle(), search())


@needs_fork
class TestSameSearch:
    def test_candidates_of_one_process(self, alone: ns.Solution, monkeypatch: pytest.MonkeyPatch) -> None:
        """Bit for bit but the work, whose sums have another order: 1e-12."""
        solution, used = ours(monkeypatch, search(workers=2))
        assert sum(used) > 5, used
        assert rows(solution) == rows(alone)
        works = [[c.work for c in each.candidates or ()] for each in (solution, alone)]
        assert works[0] == pytest.approx(works[1], rel=1e-12)
        assert solution.objective == alone.objective
        assert np.array_equal(solution.u, alone.u)
        assert (solution.status, solution.agreement) == (alone.status, alone.agreement)
        assert [line.iterations for line in solution.log] == [line.iterations for line in alone.log]

    def test_helpers_that_die_are_missed_by_nobody(self, alone: ns.Solution, monkeypatch: pytest.MonkeyPatch) -> None:
        def kill(ahead: NeighboursAhead) -> None:
            for helper in ahead.helpers:
                helper.process.kill()

        solution, used = ours(monkeypatch, search(workers=2), kill)
        assert len(used) > 5
        assert rows(solution) == rows(alone)

    def test_a_program_is_built_again_where_it_is_asked_for(self) -> None:
        """A helper's attempt has the program that this process would have built: its point has the same residual."""
        state = search().init(paddle())
        while state.expandable is None:
            state = search().step(state)
        node, ocp = state.expandable, state.task.ocp
        ahead = NeighboursAhead(ocp, state.work.method, portfolio.Search._solve)
        with processes.helpers(ahead.answer, 1) as ahead.helpers:
            ahead.hand_out(node, state, np.inf, 10.0)
            sequence = next(node.moves)
            with counted() as account:
                attempt = ahead.take(state, node, sequence, np.inf)
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


def answer(**changes: Any) -> Answer:
    fixed: dict[str, Any] = {"point": {}, "cached": {}, "program": {}, "rest": {}, "log": ()}
    return Answer(**{**fixed, "work": 1.0, "objectives": (2.0, 3.0), **changes})


class TestAnswers:
    task = Task(sequence=ns.Sequence([{}]), motion=None, scales=(), cutoff=5.0, limit=2.0)  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("cutoff", "holds"), [(5.0, True), (3.5, True), (2.5, False), (1.0, False), (np.inf, False)]
    )
    def test_no_comparison_with_the_cutoff_may_differ(self, cutoff: float, holds: bool) -> None:
        assert answer().holds(self.task, cutoff) is holds

    @pytest.mark.parametrize(("work", "holds"), [(1.0, True), (1.5, False), (2.0, False)])
    def test_no_limit_of_work_may_have_cut(self, work: float, holds: bool) -> None:
        with counted(limit=3.0):
            count(1.5)
            assert answer(work=work).holds(self.task, 5.0) is holds
        assert not answer(work=2.0).holds(self.task, 5.0)


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
    solution = ns.solve(paddle(), search(workers=3))
    assert "one process instead of workers=3" in solution.message
    assert rows(solution) == rows(replace(alone))
