"""Neighbours of a sequence of modes: a phase or an impact less, another mode, a contact that closes or bounces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from nosnoc_py.ocp import OCP
from nosnoc_py.sequences.equations import Mode
from nosnoc_py.sequences.plan import written
from nosnoc_py.sequences.readout import PhasePoint
from nosnoc_py.solution import Sequence, Solution

Array = np.ndarray
# A phase that is put into another one begins and ends at these shares of it.
INSIDE = (0.35, 0.65)
# Where in a phase its gaps are looked at.
PLACES = np.linspace(0.1, 0.9, 17)


def neighbours(ocp: OCP, point: PhasePoint, solution: Solution) -> Iterator[Sequence]:
    """Sequences beside that of a solution, with times: first what is nearest to happen, then everything else."""
    laws, plan, edges = point.program.laws, point.program.plan, point.edges
    modes, impacts = list(plan.modes), [dict(struck) for struck in plan.impacts]
    yield from _ends(laws, point, modes, impacts, edges)
    yield from _touches(laws, modes, impacts, edges, _nearest(ocp, laws, modes, edges, solution, point.p))
    yield from _without(laws, modes, impacts, edges)
    for k, mode in enumerate(modes):
        for other in _modes_beside(laws, mode):
            yield from _changed(laws, modes, impacts, edges, k, other)


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
        struck: Mapping[str, str] = {laws.names[i]: laws.words(laws.names[i])[1]}
        time = edges[k] + place * (edges[k + 1] - edges[k])
        yield _made(
            laws,
            [*modes[: k + 1], modes[k], *modes[k + 1 :]],
            [*impacts[: k + 1], dict(struck), *impacts[k + 1 :]],
            np.concatenate([edges[: k + 1], [time], edges[k + 1 :]]),
        )
        for word in laws.words(laws.names[i])[1:]:
            other = (*modes[k][:i], word, *modes[k][i + 1 :])
            for shares in ((place, 1.0), (place, 0.5 * (1.0 + place))):
                yield _inserted(laws, modes, impacts, edges, k, other, shares)


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
        for i, name in enumerate(laws.names):
            if modes[k][i] == laws.default(name):
                j = int(gaps[:, i].argmin())
                found.append((float(gaps[j, i]), float(PLACES[j]), k, i))
    return [(place, k, i) for _, place, k, i in sorted(found)]
