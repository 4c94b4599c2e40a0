"""Branches beside that of a solution, ranked by their condensed quadratic programs.

Groups of one kind (the same pair of quantities of one contact or switch), ordered in time, are a track. A neighbour
changes the side of one group, which adds or removes an event, or exchanges the sides of two successive groups of a
track, which moves an event across an element. All of them share one expansion and one elimination (`branch_qp`).

Where the linearised equations of a neighbour have a solution, the predicted objective ranks it, and the step is the
start of its NLP. They may also contradict each other although the NLP has a solution: in contact at rest (v_n = 0) the
length of a step does not move the gap to first order, so that a later landing cannot be placed. These neighbours are
ranked by what is left of the contradiction, and their NLPs start at the solution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations, pairwise

import numpy as np

from nosnoc_py.mpcc.branch import Branch, Finish, complete
from nosnoc_py.mpcc.branch_qp import CONTRADICTS, BranchQP, Elimination, Expansion
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.residuals import Values
from nosnoc_py.solution.records import SolvedBranch

Array = np.ndarray
# Neighbours that are looked at, and NLPs that are tried: on those whose QP has a solution, and on contradicted ones.
MOST, BEST, LEAST_CONTRADICTED = 100, 2, 3
# Groups of the first elements of which all combinations are neighbours.
COMBINED = 4
# Number of variables up to which matrices are dense.
LARGEST = 3000


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Programs of the branch of a solution w and of those beside it, for parameters nearby.

    Attributes
    ----------
    w : (n_w,)
    solved : SolvedBranch
    kept : BranchQP
    beside : tuple of BranchQP
    first : int
        Number of neighbours that differ in the first elements; they are the first ones in `beside`.
    """

    w: Array
    solved: SolvedBranch
    kept: BranchQP
    beside: tuple[BranchQP, ...]
    first: int

    @classmethod
    def of(cls, finish: Finish, values: Values, p: Array, solved: SolvedBranch, columns: Array) -> Neighbours | None:
        """Condense the programs around a point; `columns` are the parameters that will change.

        Without columns the parameters have changed already, and only neighbours in the first elements count. None for
        programs that are too large for dense matrices, and where a derivative is not finite.
        """
        m = finish.program.mpcc
        if m.w0.size > LARGEST:
            return None
        at = Expansion.of(finish, values.w, p, solved, columns)
        if not at.finite:
            return None
        held = m.enforced if solved.way == "penalise" else np.ones(solved.r.size, bool)
        sides, first = neighbouring_sides(m, values, solved)
        branches = [complete(m, *m.side(left)) for left in (sides if columns.size else sides[:first])]
        branches = [replace(branch, r=branch.r & held) for branch in branches]
        kept, *beside = Elimination(at, Branch(solved.G, solved.H, solved.r), branches, first).programs
        return cls(values.w, solved, kept, tuple(beside), first)

    def prepared(self) -> Neighbours:
        """Return the programs after all work that does not depend on the parameters."""
        for program in (self.kept, *self.beside):
            program.prepared()
        return self

    @property
    def objective(self) -> float:
        """Objective of the solution, without penalties."""
        return float(self.kept.elimination.at.expected[0])

    @property
    def slope(self) -> Array:
        """Derivative (n_p,) of the objective by the parameters that will change; zero for the others."""
        at = self.kept.elimination.at
        slope = np.zeros(at.p.size)
        slope[at.columns] = at.expected[1:]
        return slope

    def fits(self, p: Array) -> bool:
        """Return True if no other parameters have changed than those that were to change."""
        return self.kept.elimination.at.fits(p)

    def promising(self, p: Array) -> list[tuple[float, Array, SolvedBranch]]:
        """Return predicted objectives, starts and branches, the lowest objective first."""
        steps = [(program.branch, program.at(p)) for program in self.beside]
        found = [(step.objective, step.w, branch) for branch, step in steps if step.w is not None]
        return [(f, w, self._named(branch)) for f, w, branch in sorted(found, key=lambda one: one[0])[:BEST]]

    def contradicted(self, p: Array) -> list[tuple[Array, SolvedBranch]]:
        """Return starts and branches whose linear equations contradict each other, the least contradicted first."""
        failed = [program for program in self.beside[: self.first] if not program.at(p).found]
        left = [(program.contradiction(p), k) for k, program in enumerate(failed)]
        # Where nothing is left, inequalities exclude the step, and will exclude the solution of its NLP, too.
        ranked = [failed[k] for size, k in sorted(left) if size > CONTRADICTS]
        return [(self.w, self._named(program.branch)) for program in ranked[:LEAST_CONTRADICTED]]

    def _named(self, branch: Branch) -> SolvedBranch:
        return replace(self.solved, G=branch.G, H=branch.H, r=branch.r)


def neighbouring_sides(mpcc: MPCC, values: Values, solved: SolvedBranch) -> tuple[list[Array], int]:
    """Return the masks of the groups whose left side is zero, for every neighbour, and how many differ at the begin."""
    in_G, in_H = mpcc.members
    sizes = [side.largest(np.abs(part)) for side, part in ((in_G, values.G), (in_H, values.H))]
    left, right = in_G.all(solved.G), in_H.all(solved.H)
    # Groups share rows, so that both sides of a group may be zero by the choices of others.
    left = np.where(left & right, sizes[0] < sizes[1], left) & ~mpcc.difference_only
    tracks = dict[tuple[str, str], list[int]]()
    for k, group in enumerate(mpcc.groups):
        if group.difference_only or not (group.left.size and group.right.size):
            continue
        key = (mpcc.left.label(int(group.left[0]))[0], mpcc.right.label(int(group.right[0]))[0])
        tracks.setdefault(key, []).append(k)
    changes, further = list[tuple[int, ...]](), list[tuple[int, ...]]()
    # The first elements, where measured data contradict a plan: all combinations of their groups.
    first = [k for some in zip(*tracks.values(), strict=False) for k in some][:COMBINED]
    for count in range(1, len(first) + 1):
        changes += combinations(first, count)
    at_begin = len(changes)
    for track in tracks.values():
        pairs = list(pairwise(track))
        events = [pair for pair in pairs if left[pair[0]] != left[pair[1]]]
        changes += events
        beside = {k for pair in events for k in pair}
        for k in track:
            (changes if k in beside else further).append((k,))
    found = list[Array]()
    for changed in list(dict.fromkeys((*changes, *further)))[:MOST]:
        found.append(left.copy())
        found[-1][list(changed)] ^= True
    return found, at_begin
