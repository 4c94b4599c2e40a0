"""Searches with several seeds at a time, each in a process of its own, and the best solution of all of them.

A search is one sequence of turns, each of which depends on all results before it. Work that is done ahead of it, or
trials that are merged in their order, are hardly faster on two cores, as the search then tries what it would not have
tried. Searches with other seeds depend on nothing: n processes try n times as much in the time of one, and the result
is never worse than that of the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from nosnoc_py.attempts.rank import LEAST_GAIN, SAME_OBJECTIVE, ObjectiveScale
from nosnoc_py.processes import Forked, Helpers, can_fork
from nosnoc_py.sequences.refinement import CONFIRMED, joined
from nosnoc_py.solution import Solution
from nosnoc_py.status import Status

# Statuses of a search with which the user ends all of them.
ENDED = (Status.INTERRUPTED, Status.STOPPED)


def best_of_seeds(search: Callable[[int], Solution], count: int) -> Solution:
    """Return the best of several searches.

    Parameters
    ----------
    search : function of the number of a search
        Number 0 runs in this process, the others in processes that end with it.
    count : int
    """
    others = list[Solution]()
    with Helpers(lambda: Forked(search)) as helpers:
        started = [helpers.send(number) for number in range(1, count)] if can_fork() else []
        own = search(0)
        if own.status not in ENDED:
            # Ctrl-C ends the waiting for what is still missing; a process that dies has no answer.
            with suppress(KeyboardInterrupt):
                for helper in started:
                    with suppress(EOFError):
                        success, value = helper.answer()
                        others += [value] if success else []
    found, missing = merged(own, others), count - 1 - len(others)
    note = f"{missing} of {count} searches gave no result" if missing and own.status not in ENDED else ""
    return replace(found, message=joined(found.message, note))


def merged(own: Solution, others: list[Solution]) -> Solution:
    """Return the best solution with the candidates and the work of all searches; `own` if none is clearly better."""
    scale = ObjectiveScale()
    # That the objective has no lower bound is shown by one of them, and missed by the others.
    best = next((each for each in (own, *others) if each.status is Status.UNBOUNDED), own)
    for other in others if best.status is not Status.UNBOUNDED else ():
        if _is_confirmed(other) and (
            not _is_confirmed(best) or other.objective < scale.above(best.objective, -LEAST_GAIN)
        ):
            best = other
    near = [each for each in (own, *others) if _is_confirmed(each) and _is_confirmed(best)]
    near = [each for each in near if each.objective <= scale.above(best.objective, SAME_OBJECTIVE)]
    note = f"{len(near)} of {1 + len(others)} searches, with seeds of their own, found it" if others and near else ""
    work = Counter[str]()
    for each in (own, *others):
        work.update(each.work)
    return replace(
        best,
        message=joined(best.message, note),
        candidates=tuple(candidate for each in (own, *others) for candidate in each.candidates or ()),
        agreement=tuple(dict.fromkeys(kind for each in near or [best] for kind in each.agreement)),
        work=dict(work),
    )


def _is_confirmed(solution: Solution) -> bool:
    """Return True if the referee confirms a solution."""
    return solution.certificate is not None and solution.certificate.verdict in CONFIRMED
