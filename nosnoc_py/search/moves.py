"""Neighbours of a sequence of modes: a phase or an impact less, another mode, a contact that closes or bounces."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, zip_longest
from typing import Any

import numpy as np

from nosnoc_py.ocp import OCP
from nosnoc_py.sequences.equations import Mode
from nosnoc_py.sequences.plan import written
from nosnoc_py.sequences.reading import TOGETHER
from nosnoc_py.sequences.readout import PhasePoint
from nosnoc_py.solution import Sequence, Solution

Array = np.ndarray
# A phase that is put into another one begins and ends at these shares of it.
INSIDE = (0.35, 0.65)
# Where in a phase its gaps are looked at; where it bounces once more besides.
PLACES, THIRDS = np.linspace(0.1, 0.9, 17), (1.0 / 3.0, 2.0 / 3.0)


def neighbours(ocp: OCP, point: PhasePoint, solution: Solution) -> Iterator[Sequence]:
    """Sequences beside that of a solution, with times: first what is nearest to happen, then everything else."""
    laws, plan, edges = point.program.laws, point.program.plan, point.edges
    modes, impacts = list(plan.modes), [dict(struck) for struck in plan.impacts]
    near = _nearest(ocp, laws, modes, edges, solution, point.p)
    yield from _taken_in_turns(
        _ends(laws, point, modes, impacts, edges),
        # A contact is nearest to itself just before and after it is struck: one more impact is tried farther away, too.
        (_bounce(laws, modes, impacts, edges, (place, k, i)) for _, k, i in near for place in THIRDS),
        _hardest(laws, modes, impacts, edges, solution),
        _touches(laws, modes, impacts, edges, near),
        _without(laws, modes, impacts, edges),
    )
    for k, mode in enumerate(modes):
        for other in _modes_beside(laws, mode):
            yield from _changed(laws, modes, impacts, edges, k, other)


def _taken_in_turns(*streams: Iterator[Sequence]) -> Iterator[Sequence]:
    """The first of every stream, then the second of every one."""
    for row in zip_longest(*streams):
        yield from (sequence for sequence in row if sequence is not None)


def _hardest(
    laws: Any, modes: list[Mode], impacts: list[dict[str, str]], edges: Array, solution: Solution
) -> Iterator[Sequence]:
    """Of many bounces only the hardest: most of a rattle does nothing."""
    bounces = [k for k in range(1, len(modes)) if impacts[k] and modes[k] == modes[k - 1]]
    found = [(event.time - solution.t0, abs(event.impulse or 0.0)) for event in solution.impacts]
    sizes = {k: sum(size for time, size in found if abs(time - edges[k]) <= TOGETHER * edges[-1]) for k in bounces}
    ranked = sorted(bounces, key=lambda k: -sizes[k])
    for count in (1, 2, 3):
        if len(ranked) > count:
            gone = ranked[count:]
            yield _made(laws, modes, [{} if k in gone else struck for k, struck in enumerate(impacts)], edges)


def _modes_beside(laws: Any, mode: Mode) -> Iterator[Mode]:
    """Modes in which one thing is in another mode."""
    for i, name in enumerate(laws.names):
        for word in laws.words(name):
            if word != mode[i]:
                yield (*mode[:i], word, *mode[i + 1 :])


def _made(laws: Any, modes: list[Mode], impacts: list[dict[str, str]], edges: Array) -> Sequence:
    """The sequence, phases that follow on themselves without an impact joined."""
    kept = [k for k in range(len(modes)) if k == 0 or modes[k] != modes[k - 1] or impacts[k]]
    return written([modes[k] for k in kept], [impacts[k] for k in kept], laws, [edges[k] for k in kept[1:]])


def _ends(
    laws: Any, point: PhasePoint, modes: list[Mode], impacts: list[dict[str, str]], edges: Array
) -> Iterator[Sequence]:
    """A phase more at the end in the mode that the last state itself belongs to: a motion that may come to rest."""
    program = point.program
    last = laws.mode_at(point.w[program.at_end], point.p)
    if last != modes[-1]:
        begin = edges[-1] - (1.0 - INSIDE[1]) * (edges[-1] - edges[-2])
        yield _made(laws, [*modes, last], [*impacts, {}], np.concatenate([edges[:-1], [begin]]))


def _without(laws: Any, modes: list[Mode], impacts: list[dict[str, str]], edges: Array) -> Iterator[Sequence]:
    """A phase or an impact less."""
    for k in range(len(modes)):
        if impacts[k]:
            yield _made(laws, modes, [struck if j != k else {} for j, struck in enumerate(impacts)], edges)
        if len(modes) > 1:
            left = [struck for j, struck in enumerate(impacts) if j != k]
            # What the first phase does before it begins is nothing.
            left = [{} if j == 0 and k == 0 else struck for j, struck in enumerate(left)]
            yield _made(laws, modes[:k] + modes[k + 1 :], left, np.delete(edges, k if k else 1))


def _changed(
    laws: Any, modes: list[Mode], impacts: list[dict[str, str]], edges: Array, k: int, other: Mode
) -> Iterator[Sequence]:
    """Another mode in all of a phase, at its end, at its beginning, and in the middle."""
    yield _made(laws, [*modes[:k], other, *modes[k + 1 :]], impacts, edges)
    for first, last in ((INSIDE[1], 1.0), (0.0, INSIDE[0]), INSIDE):
        yield _inserted(laws, modes, impacts, edges, k, other, (first, last))


def _inserted(
    laws: Any,
    modes: list[Mode],
    impacts: list[dict[str, str]],
    edges: Array,
    k: int,
    other: Mode,
    shares: tuple[float, float],
) -> Sequence:
    """Another mode in a part of phase k, between two shares of its length."""
    a, b = edges[k : k + 2]
    first, last = shares
    parts = [(modes[k], 0.0, first), (other, first, last), (modes[k], last, 1.0)]
    kept = [(mode, a + begin * (b - a)) for mode, begin, end in parts if end > begin]
    return _made(
        laws,
        [*modes[:k], *[mode for mode, _ in kept], *modes[k + 1 :]],
        [*impacts[: k + 1], *[{} for _ in kept[1:]], *impacts[k + 1 :]],
        np.concatenate([edges[:k], [begin for _, begin in kept], edges[k + 1 :]]),
    )


def _touches(
    laws: Any,
    modes: list[Mode],
    impacts: list[dict[str, str]],
    edges: Array,
    nearest: list[tuple[float, int, int]],
) -> Iterator[Sequence]:
    """An open contact bounces, closes for good, or closes for a while, where its gap is smallest, the nearest first."""
    for place, k, i in nearest:
        yield _bounce(laws, modes, impacts, edges, (place, k, i))
        for word in laws.words(laws.names[i])[1:]:
            other = (*modes[k][:i], word, *modes[k][i + 1 :])
            for shares in ((place, 1.0), (place, 0.5 * (1.0 + place))):
                yield _inserted(laws, modes, impacts, edges, k, other, shares)


def _bounce(
    laws: Any, modes: list[Mode], impacts: list[dict[str, str]], edges: Array, at: tuple[float, int, int]
) -> Sequence:
    """An impact more, at a place in a phase, of one contact."""
    place, k, i = at
    name = laws.names[i]
    return _made(
        laws,
        [*modes[: k + 1], modes[k], *modes[k + 1 :]],
        [*impacts[: k + 1], {name: laws.words(name)[1]}, *impacts[k + 1 :]],
        np.concatenate([edges[: k + 1], [edges[k] + place * (edges[k + 1] - edges[k])], edges[k + 1 :]]),
    )


def _nearest(
    ocp: OCP, laws: Any, modes: list[Mode], edges: Array, solution: Solution, p: Array
) -> list[tuple[float, int, int]]:
    """Where contacts that are open come nearest: the place in the phase, the phase, the contact; the nearest first."""
    if not laws.impulses:
        return []
    found = []
    for k, (a, b) in enumerate(pairwise(edges)):
        if b <= a:
            continue
        states = np.array([solution(solution.t0 + a + share * (b - a)) for share in PLACES])
        gaps = ocp.system.kinematics(states, 0.0, p).gaps
        for i, name in enumerate(laws.names[: gaps.shape[1]]):  # rigid contacts
            if modes[k][i] == laws.default(name):
                j = int(gaps[:, i].argmin())
                found.append((float(gaps[j, i]), float(PLACES[j]), k, i))
    return [(place, k, i) for _, place, k, i in sorted(found)]
