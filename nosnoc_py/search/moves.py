"""Neighbours of a mode sequence: single edits that may lead to a better motion.

Edits are: remove a phase or an impact, change the mode of one contact (or switch) in a phase or in part of it, close an
open contact or let it bounce where its gap is smallest, let the motion rest at its end. The multi-phase program cannot
make such edits by itself, as its sequence is fixed. They come in the order of their promise: edits that the motion
itself suggests first, interleaved, then all single changes of a mode.

Every neighbour has times for its phases, so that the motion it was derived from is the start of its program. Equal
phases without an impact between them are merged, so that a sequence has one form only.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise, zip_longest
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.ocp import OCP
from nosnoc_py.sequences.equations import Mode
from nosnoc_py.sequences.plan import sequence_from_modes
from nosnoc_py.sequences.reading import TOGETHER
from nosnoc_py.sequences.readout import PhasePoint
from nosnoc_py.solution import Sequence, Solution

Array = np.ndarray
# Begin and end of a phase that is inserted into another one, as fractions of its length.
INSIDE = (0.35, 0.65)
# Places in a phase, as fractions of its length: samples of the gaps, and further places for an additional impact.
PLACES, THIRDS = np.linspace(0.1, 0.9, 17), (1.0 / 3.0, 2.0 / 3.0)


def neighbours(ocp: OCP, point: PhasePoint, solution: Solution) -> Iterator[Sequence]:
    """Yield neighbours of the sequence of a solution, with times; those that the motion suggests come first.

    Parameters
    ----------
    ocp : OCP
    point : PhasePoint
        Solved program with its plan, the ends of its phases and its parameters.
    solution : Solution
        Motion of that point, of which gaps and impulses are read.
    """
    laws, plan, edges = point.program.laws, point.program.plan, point.edges
    modes, impacts = list(plan.modes), [dict(impact) for impact in plan.impacts]
    near = _smallest_gaps(ocp, laws, modes, edges, solution, point.p)
    yield from _interleaved(
        _resting_end(laws, point, modes, impacts, edges),
        # Gaps are smallest just before and after an impact that is already there: try one more farther away, too.
        (_additional_impact(laws, modes, impacts, edges, (place, k, i)) for _, k, i in near for place in THIRDS),
        _hardest_impacts(laws, modes, impacts, edges, solution),
        _closings(laws, modes, impacts, edges, near),
        _removals(laws, modes, impacts, edges),
    )
    for k, mode in enumerate(modes):
        for other in _single_changes(laws, mode):
            yield from _replacements(laws, modes, impacts, edges, k, other)


def _interleaved(*streams: Iterator[Sequence]) -> Iterator[Sequence]:
    """Yield the first sequence of every stream, then the second of every stream, and so on."""
    for row in zip_longest(*streams):
        yield from (sequence for sequence in row if sequence is not None)


def _hardest_impacts(
    laws: Any, modes: list[Mode], impacts: list[dict[str, str]], edges: Array, solution: Solution
) -> Iterator[Sequence]:
    """Keep only the one, two or three hardest of many bounces; the others hardly change the motion."""
    # A bounce is an impact between phases of the same mode.
    bounces = [k for k in range(1, len(modes)) if impacts[k] and modes[k] == modes[k - 1]]
    impulses = [(event.time - solution.t0, abs(event.impulse or 0.0)) for event in solution.impacts]
    sizes = {k: sum(size for time, size in impulses if abs(time - edges[k]) <= TOGETHER * edges[-1]) for k in bounces}
    ranked = sorted(bounces, key=lambda k: -sizes[k])
    for count in (1, 2, 3):
        if len(ranked) > count:
            removed = ranked[count:]
            yield _merged(laws, modes, [{} if k in removed else impact for k, impact in enumerate(impacts)], edges)


def _single_changes(laws: Any, mode: Mode) -> Iterator[Mode]:
    """Yield all modes that differ from this one in one contact, switching function or constraint."""
    for i, name in enumerate(laws.names):
        for word in laws.lasting_modes(name):
            if word != mode[i]:
                yield (*mode[:i], word, *mode[i + 1 :])


def _merged(laws: Any, modes: list[Mode], impacts: list[dict[str, str]], edges: Array) -> Sequence:
    """Return the sequence with equal consecutive phases merged where no impact lies between them."""
    kept = [k for k in range(len(modes)) if k == 0 or modes[k] != modes[k - 1] or impacts[k]]
    return sequence_from_modes([modes[k] for k in kept], [impacts[k] for k in kept], laws, [edges[k] for k in kept[1:]])


def _resting_end(
    laws: Any, point: PhasePoint, modes: list[Mode], impacts: list[dict[str, str]], edges: Array
) -> Iterator[Sequence]:
    """Yield the sequence with a last phase in the mode of the final state: a motion may come to rest there."""
    program = point.program
    # The state alone may belong to another mode than the last phase: a contact that closes just at the end.
    last = laws.mode_at(point.w[program.at_end], point.p)
    if last != modes[-1]:
        begin = edges[-1] - (1.0 - INSIDE[1]) * (edges[-1] - edges[-2])
        yield _merged(laws, [*modes, last], [*impacts, {}], np.concatenate([edges[:-1], [begin]]))


def _removals(laws: Any, modes: list[Mode], impacts: list[dict[str, str]], edges: Array) -> Iterator[Sequence]:
    """Yield the sequences without one impact or without one phase."""
    for k in range(len(modes)):
        if impacts[k]:
            yield _merged(laws, modes, [impact if j != k else {} for j, impact in enumerate(impacts)], edges)
        if len(modes) > 1:
            left = [impact for j, impact in enumerate(impacts) if j != k]
            # Where the first phase is removed, the impact at its end is removed with it.
            left = [{} if j == 0 and k == 0 else impact for j, impact in enumerate(left)]
            yield _merged(laws, modes[:k] + modes[k + 1 :], left, np.delete(edges, k if k else 1))


def _replacements(
    laws: Any, modes: list[Mode], impacts: list[dict[str, str]], edges: Array, k: int, other: Mode
) -> Iterator[Sequence]:
    """Yield the sequences with another mode in all of phase k, at its end, at its beginning, and in its middle."""
    yield _merged(laws, [*modes[:k], other, *modes[k + 1 :]], impacts, edges)
    for first, last in ((INSIDE[1], 1.0), (0.0, INSIDE[0]), INSIDE):
        yield _with_insertion(laws, modes, impacts, edges, k, other, (first, last))


def _with_insertion(
    laws: Any,
    modes: list[Mode],
    impacts: list[dict[str, str]],
    edges: Array,
    k: int,
    other: Mode,
    shares: tuple[float, float],
) -> Sequence:
    """Return the sequence with another mode in a part of phase k, between two fractions of its length."""
    a, b = edges[k : k + 2]
    first, last = shares
    parts = [(modes[k], 0.0, first), (other, first, last), (modes[k], last, 1.0)]
    pieces = [(mode, a + begin * (b - a)) for mode, begin, end in parts if end > begin]
    return _merged(
        laws,
        [*modes[:k], *[mode for mode, _ in pieces], *modes[k + 1 :]],
        [*impacts[: k + 1], *[{} for _ in pieces[1:]], *impacts[k + 1 :]],
        np.concatenate([edges[:k], [begin for _, begin in pieces], edges[k + 1 :]]),
    )


def _closings(
    laws: Any,
    modes: list[Mode],
    impacts: list[dict[str, str]],
    edges: Array,
    nearest: list[tuple[float, int, int]],
) -> Iterator[Sequence]:
    """Yield the sequences in which an open contact bounces or closes (for good or for a while) at its smallest gap."""
    for place, k, i in nearest:
        yield _additional_impact(laws, modes, impacts, edges, (place, k, i))
        for word in laws.lasting_modes(laws.names[i])[1:]:
            other = (*modes[k][:i], word, *modes[k][i + 1 :])
            for shares in ((place, 1.0), (place, 0.5 * (1.0 + place))):
                yield _with_insertion(laws, modes, impacts, edges, k, other, shares)


def _additional_impact(
    laws: Any, modes: list[Mode], impacts: list[dict[str, str]], edges: Array, at: tuple[float, int, int]
) -> Sequence:
    """Return the sequence with one more impact; `at` is the place in the phase, the phase, and the contact."""
    place, k, i = at
    name = laws.names[i]
    return _merged(
        laws,
        [*modes[: k + 1], modes[k], *modes[k + 1 :]],
        [*impacts[: k + 1], {name: laws.mode_names(name)[1]}, *impacts[k + 1 :]],
        np.concatenate([edges[: k + 1], [edges[k] + place * (edges[k + 1] - edges[k])], edges[k + 1 :]]),
    )


def _smallest_gaps(
    ocp: OCP, laws: Any, modes: list[Mode], edges: Array, solution: Solution, p: Array
) -> list[tuple[float, int, int]]:
    """Return the smallest gaps of open contacts, or guards, as (place in the phase, phase, contact), in their order."""
    if ocp.system.mechanical:
        names, gaps_of = (
            laws.names[: ocp.system.mechanics.frames.count],
            lambda x: ocp.system.kinematics(x, 0.0, p).gaps,
        )
    elif ocp.system.jumps:
        names, guards = tuple(laws.jumps), ca.vertcat(*[jump.guard for jump in ocp.system.jumps])
        at = ca.Function("guards", [ocp.system.x, ocp.system.p], [ca.densify(guards)])
        gaps_of = lambda x: np.array(at(x.T, p)).T  # noqa: E731
    else:
        return []
    minima = []
    for k, (a, b) in enumerate(pairwise(edges)):
        if b <= a:
            continue
        states = solution(solution.t0 + a + PLACES * (b - a))
        for name, gaps in zip(names, gaps_of(states).T, strict=True):  # rigid contacts, or jumps
            i, j = laws.names.index(name), int(gaps.argmin())
            if modes[k][i] == laws.default(name):
                minima.append((float(gaps[j]), float(PLACES[j]), k, i))
    return [(place, k, i) for _, place, k, i in sorted(minima)]
