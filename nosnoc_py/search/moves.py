"""Neighbours of a sequence of modes: a phase less, another mode, a contact that closes or bounces in between."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from nosnoc_py.sequences.equations import Mode
from nosnoc_py.sequences.plan import written
from nosnoc_py.sequences.readout import PhasePoint
from nosnoc_py.solution import Sequence, Solution

Array = np.ndarray
# A phase that is put into another one begins and ends at these shares of it.
INSIDE = (0.35, 0.65)


def neighbours(laws: Any, point: PhasePoint, solution: Solution) -> Iterator[Sequence]:
    """Sequences beside that of a solution, the smaller changes first, with times."""
    plan, edges = point.program.plan, point.edges
    modes, impacts = list(plan.modes), [dict(struck) for struck in plan.impacts]
    yield from _without(laws, modes, impacts, edges)
    yield from _bounces(laws, modes, impacts, edges, solution, point.p)
    for k, mode in enumerate(modes):
        for i, name in enumerate(laws.names):
            for word in laws.words(name):
                if word != mode[i]:
                    other = (*mode[:i], word, *mode[i + 1 :])
                    yield from _changed(laws, modes, impacts, edges, k, other)


def _made(laws: Any, modes: list[Mode], impacts: list[dict[str, str]], edges: Array) -> Sequence:
    """The sequence, phases that follow on themselves without an impact joined."""
    kept = [k for k in range(len(modes)) if k == 0 or modes[k] != modes[k - 1] or impacts[k]]
    return written([modes[k] for k in kept], [impacts[k] for k in kept], laws, [edges[k] for k in kept[1:]])


def _without(laws: Any, modes: list[Mode], impacts: list[dict[str, str]], edges: Array) -> Iterator[Sequence]:
    """A phase or an impact less."""
    for k in range(len(modes)):
        if impacts[k]:
            yield _made(laws, modes, [struck if j != k else {} for j, struck in enumerate(impacts)], edges)
        if len(modes) > 1:
            begin = np.delete(edges, k if k else 1)
            yield _made(laws, modes[:k] + modes[k + 1 :], impacts[:k] + impacts[k + 1 :], begin)


def _changed(
    laws: Any, modes: list[Mode], impacts: list[dict[str, str]], edges: Array, k: int, other: Mode
) -> Iterator[Sequence]:
    """Another mode in all of a phase, at its end, at its beginning, and in the middle."""
    yield _made(laws, [*modes[:k], other, *modes[k + 1 :]], impacts, edges)
    a, b = edges[k : k + 2]
    for first, last in ((INSIDE[1], 1.0), (0.0, INSIDE[0]), INSIDE):
        parts = [(modes[k], a), (other, a + first * (b - a)), (modes[k], a + last * (b - a))]
        kept = [part for part, width in zip(parts, (first, last - first, 1.0 - last), strict=True) if width > 0.0]
        news = [impacts[k], *[{} for _ in kept[1:]]]
        begins = [begin for _, begin in kept]
        yield _made(
            laws,
            [*modes[:k], *[mode for mode, _ in kept], *modes[k + 1 :]],
            [*impacts[:k], *news, *impacts[k + 1 :]],
            np.concatenate([edges[:k], begins, edges[k + 1 :]]),
        )


def _bounces(
    laws: Any, modes: list[Mode], impacts: list[dict[str, str]], edges: Array, solution: Solution, p: Array
) -> Iterator[Sequence]:
    """One impact more of an open contact, where its gap is smallest, the nearest first."""
    for time, k, struck in nearest(laws, modes, edges, solution, p):
        yield _made(
            laws,
            [*modes[: k + 1], modes[k], *modes[k + 1 :]],
            [*impacts[: k + 1], dict(struck), *impacts[k + 1 :]],
            np.concatenate([edges[: k + 1], [time], edges[k + 1 :]]),
        )


def nearest(
    laws: Any, modes: list[Mode], edges: Array, solution: Solution, p: Array
) -> list[tuple[float, int, Mapping[str, str]]]:
    """When contacts that may bounce come nearest in phases in which they are open: time, phase, impact."""
    gaps_of = getattr(laws, "gaps", None)
    if gaps_of is None:
        return []
    found = []
    for k, mode in enumerate(modes):
        a, b = edges[k : k + 2]
        if b <= a:
            continue
        times = a + (b - a) * np.linspace(0.1, 0.9, 17)
        gaps = gaps_of(np.array([solution(solution.t0 + t) for t in times]), p)
        for i, name in enumerate(laws.names):
            if mode[i] == laws.default(name):
                j = int(gaps[:, i].argmin())
                found.append((float(gaps[j, i]), float(times[j]), k, {name: laws.words(name)[1]}))
    return [(time, k, struck) for _, time, k, struck in sorted(found, key=lambda one: one[0])]
