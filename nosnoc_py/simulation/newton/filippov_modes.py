"""What the active-set Newton method has to know about systems without jumps: which sides of their pairs are zero.

A mode says for every component of every pair 0 <= a perpendicular b >= 0 whether a vanishes (1: the region is active,
the constraint closed) or b does (0). Everything is read from the data of the DCS: Stewart's multipliers, step functions
and projections are the same here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered
from nosnoc_py.reformulation.dcs import DCS
from nosnoc_py.simulation.newton.collocation import StageEquations
from nosnoc_py.simulation.newton.modes import ElementNode, Mode, Trouble, remembered
from nosnoc_py.tolerances import TOUCHING

# Relative times before which a violation means a wrong mode: of sides a, which are continuous, and of sides b.
NEAREST = (1e-9, 1e-6)
# Newton corrections of the first guess of algebraic unknowns.
CORRECTIONS = 5
MOST_CANDIDATES, FEW = 256, 30


@dataclass(frozen=True, eq=False, kw_only=True)
class ComponentGroup:
    """Components that belong together.

    Attributes
    ----------
    members : tuple of int
    free : bool
        Whether none of them may be active (a constraint); of a partition at least one is.
    signs : (members, functions), optional
        Sides of the switching functions in the regions of a partition.
    """

    members: tuple[int, ...]
    free: bool
    signs: np.ndarray | None = None

    def choices(self, zero: np.ndarray) -> list[tuple[int, ...]]:
        """What may be active of it where the components `zero` may.

        Of a partition by signs every function that vanishes is on one side or slides: regions are active in products.
        """
        near = [m for m, k in enumerate(self.members) if zero[k]]
        if self.signs is None:
            found = [list(chosen) for chosen in _subsets(near, self.free)]
        else:
            sides = [np.unique(column).tolist() for column in self.signs[near].T]
            both = [[*([side] for side in one), *([one] if len(one) > 1 else [])] for one in sides]
            found = [
                [m for m in near if all(self.signs[m, j] in side for j, side in enumerate(chosen))]
                for chosen in product(*both)
            ]
        return [tuple(self.members[m] for m in chosen) for chosen in found if chosen or self.free]

    def closures(self, active: Sequence[int]) -> list[tuple[int, int, int, int]]:
        """Conditions b_s b_base = b_p b_q that make the weights of active regions products of step functions.

        On several surfaces at once the equations leave the convex combination open. Each condition stands in place of
        a side a that vanishes with the others: s is reached from the base through p, and q, which is next to the base.
        """
        if self.signs is None or len(active) < 4:
            return []
        rows = {tuple(self.signs[self.members.index(k)]): k for k in active}
        base = next(iter(rows))
        sliding = [j for j in range(self.signs.shape[1]) if len({row[j] for row in rows}) > 1]
        if len(rows) != 2 ** len(sliding):
            return []
        found = []
        for row, k in rows.items():
            flipped = [j for j in sliding if row[j] != base[j]]
            if len(flipped) > 1:
                j = flipped[0]
                before = tuple(base[i] if i == j else side for i, side in enumerate(row))
                beside = tuple(row[i] if i == j else side for i, side in enumerate(base))
                found.append((k, rows[base], rows[before], rows[beside]))
        return found


class FilippovModes:
    """Modes of a DCS without a jump law.

    The guards are the sides a of what is inactive, as functions of the state alone (continuous multipliers follow from
    it and the mode), and the sides b of what is active.
    """

    settles = True

    def __init__(self, dcs: DCS) -> None:
        self.dcs, self.jumps = dcs, 0
        self.names = tuple(name for pair in dcs.pairs for name in (pair.components or pair.a_labels)[: pair.a.numel()])
        self.parts = parts_of(dcs)
        self._part_of = {k: part for part in self.parts for k in part.members}
        a = ca.vertcat(ca.SX(0, 1), *[pair.a for pair in dcs.pairs])
        b = ca.vertcat(ca.SX(0, 1), *[pair.b for pair in dcs.pairs])
        self._count = a.numel()
        self._edges = EdgeValues(dcs, a)
        closed = ca.SX.sym("closed", self._count)
        weights = ca.SX.sym("weights", self._count, self._edges.known.numel())
        # Partitions with less than two surfaces have no products.
        several = any(part.signs is not None and part.signs.shape[1] > 1 for part in self.parts)
        chosen = [ca.SX.sym(f"chosen_{k}", self._count, self._count if several else 0) for k in range(3)]
        sides = [part @ b if several else ca.SX.zeros(self._count) for part in chosen]
        closing = ca.sum2(chosen[0]) if several else ca.SX.zeros(self._count)
        active = (1 - closing) * a + closing * (b * sides[0] - sides[1] * sides[2])
        rows = [e.expression for e in dcs.equations] + [closed * active + (1 - closed) * b]
        self._several = several
        self.equations = StageEquations(
            x=dcs.x,
            y=dcs.z,
            u=dcs.u,
            p=dcs.p,
            masks=ca.vertcat(closed, ca.vec(weights), *[ca.vec(part) for part in chosen]),
            flow=dcs.flow,
            rows=ca.vertcat(*rows),
            guards=ca.vertcat(self._edges.side(a, weights), b),
        )
        arguments = [dcs.z, dcs.x, dcs.u, dcs.p, self.equations.masks]
        jacobian = ca.jacobian(self.equations.rows, dcs.z)
        self._rows = buffered(ca.Function("rows", arguments, [self.equations.rows, jacobian]))
        estimates = ca.vertcat(
            ca.SX(0, 1),
            *[
                ca.SX(ca.DM(np.broadcast_to(v.initial, v.symbol.shape[0]))) if v.estimate is None else v.estimate
                for v in dcs.variables
            ],
        )
        at_node = ca.substitute(a, dcs.z, estimates)
        self._at_node = buffered(ca.Function("node", [dcs.x, dcs.p], [at_node, estimates]))
        self._at_edge = buffered(ca.Function("edge", [dcs.x, dcs.p], [self._edges.known]))
        self.masks, self.watched = remembered(self._masks), remembered(self._watched)
        self._solutions = remembered(self._edges.solution)

    # --- what the engine asks ---

    def _masks(self, modes: Mode) -> np.ndarray:
        """Which sides vanish, the weights that give the sides a of a state, and which conditions make products."""
        closed = np.array(modes, dtype=float)
        numbers = [closed, self._edges.weights(closed).reshape(-1, order="F")]
        if self._several:
            chosen = np.zeros((3, self._count, self._count))
            for part in self.parts:
                for row, *columns in part.closures([k for k in part.members if modes[k]]):
                    for matrix, column in zip(chosen, columns, strict=True):
                        matrix[row, column] = 1.0
            numbers += [matrix.reshape(-1, order="F") for matrix in chosen]
        return np.concatenate(numbers)

    def _watched(self, modes: Mode) -> np.ndarray:
        """Sides a of what is inactive, sides b of what is active."""
        closed = np.array(modes, dtype=bool)
        return np.concatenate([~closed, closed])

    def tolerances(self, guards: np.ndarray, y: np.ndarray, h: float) -> np.ndarray:
        """Violations that are rounding; of sides a also what drift has left at the start."""
        sizes = (1.0 + np.abs(part).max(initial=0.0) for part in (guards[: self._count], guards[self._count :]))
        rounding = np.repeat([scale * size for scale, size in zip((1e-11, 1e-9), sizes, strict=True)], self._count)
        rounding[: self._count] += np.maximum(0.0, -guards[: self._count, 0])
        return rounding

    def nearest(self) -> np.ndarray:
        """Relative times before which a violation means a wrong mode."""
        return np.repeat(NEAREST, self._count)

    def describe(self, guard: int) -> tuple[str, str]:
        """The component, and whether its side a or its side b vanishes."""
        return self.names[guard % self._count], "arrival" if guard < self._count else "departure"

    def places(self, modes: Mode) -> str:
        """Names of the active components."""
        return ", ".join(name for name, mode in zip(self.names, modes, strict=True) if mode)

    def has_unique_forces(self, modes: Mode) -> bool:
        """Nothing slides: the multipliers are zeros and ones."""
        return all(part.free or sum(modes[k] for k in part.members) < 2 for part in self.parts) and not any(
            modes[k] for part in self.parts if part.free for k in part.members
        )

    def goes_on(self, x: np.ndarray, p: np.ndarray, modes: Mode) -> bool:
        """Nothing jumps: the modes before may always be tried."""
        return True

    def node(
        self, x: np.ndarray, u: np.ndarray, p: np.ndarray, hint: Sequence[int] | None, *, other_forces: bool = False
    ) -> ElementNode:
        """The candidates of what may be active at x, those after `hint` first."""
        a, _ = self._at_node(x, p)
        a = a[:, 0]
        zero = a <= TOUCHING * (1.0 + np.abs(a).max(initial=0.0))
        if hint is not None:  # what is active stays close to zero, as close as the discretisation is exact
            zero |= np.array(hint, dtype=bool)
        candidates = self._candidates(zero, hint)
        if other_forces and len(candidates) <= FEW:
            candidates = sorted(candidates, key=sum)  # what held may hold no more: it moves on if it can
        plain = ElementNode(
            x_minus=x, x_left=x, jump=np.zeros(0), y=np.zeros(self.equations.y.numel()), detail=candidates
        )
        if not candidates:
            return replace(plain, trouble=Trouble.MODES, message="the switching functions have no values")
        return replace(plain, modes=candidates[0], y=self.guess(plain, candidates[0], u, p))

    def guess(self, node: ElementNode, modes: Mode, u: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Unknowns that satisfy the equations at the state of a node, those closest to their estimates."""
        y, masks = self._at_node(node.x_left, p)[1][:, 0], self.masks(modes)
        for _ in range(CORRECTIONS):
            rows, jacobian = self._rows(y, node.x_left, u, p, masks)
            change = np.linalg.lstsq(jacobian, rows[:, 0], rcond=1e-10)[0]
            y = y - change
            if np.abs(change).max(initial=0.0) <= 1e-12 * (1.0 + np.abs(y).max(initial=0.0)):
                break
        return y

    def pivots(self, node: ElementNode, modes: Mode, guard: int | None, y: np.ndarray) -> list[Mode]:
        """All candidates; first what the violated guard asks for."""
        candidates: list[Mode] = node.detail
        if guard is None:
            return candidates
        members = np.zeros(self._count, dtype=bool)
        members[list(self._part_of[guard % self._count].members)] = True

        def elsewhere(mode: Mode) -> int:
            """Changes of what the guard has nothing to do with."""
            return int((np.array(mode) != modes)[~members].sum())

        return [self._changed(modes, guard), *sorted(candidates, key=elsewhere)]

    def after(self, modes: Mode, guard: int | None, x: np.ndarray, y: np.ndarray, p: np.ndarray) -> Mode:
        """Modes to try first after an event: what arrived takes over, what left is gone."""
        return modes if guard is None else self._changed(modes, guard)

    def _changed(self, modes: Mode, guard: int) -> Mode:
        """What arrives takes over from what it borders on; what leaves is gone."""
        k, part = guard % self._count, self._part_of[guard % self._count]
        active = {m for m in part.members if modes[m]}
        if guard >= self._count and part.signs is not None and len(active) > 2:
            return modes  # of products several weights vanish at once: which function leaves, the candidates tell
        if guard >= self._count:
            active -= {k}
        elif part.free:
            active |= {k}
        elif part.signs is None:
            active = {k}
        else:  # the functions that change their sign in it cross, what slides goes on sliding
            sides = {m: part.signs[i] for i, m in enumerate(part.members)}
            moved = [j for j in range(part.signs.shape[1]) if all(sides[m][j] != sides[k][j] for m in active)]
            slides = [j for j in range(part.signs.shape[1]) if len({sides[m][j] for m in active}) > 1]
            fixed = [j for j in range(part.signs.shape[1]) if j not in slides]
            wanted = {j: sides[k][j] if j in moved else next(iter(sides[m][j] for m in active)) for j in fixed}
            active = {m for m in part.members if all(sides[m][j] == side for j, side in wanted.items())}
        found = list(modes)
        for m in part.members:
            found[m] = int(m in active)
        return tuple(found)

    def edge(self, modes: Mode, x: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Continuous unknowns at a state, in the order of their variables."""
        return self._solutions(modes) @ self._at_edge(x, p)[0][:, 0]

    # A mode has one branch of stage values (m, n_y) only: nothing turns sharply in it.

    def coherent(self, y_left: np.ndarray, y: np.ndarray, modes: Mode) -> np.ndarray:
        """Stage values of the branch that guards are about."""
        return y

    def turned(self, x: np.ndarray, y: np.ndarray, p: np.ndarray, modes: Mode) -> np.ndarray | None:
        """Stage values of a branch on which something turns sharply but goes on, or None."""
        return None

    def blind(self, modes: Mode) -> list[int]:
        """The guards that cannot tell a sharp turn from an event."""
        return []

    def goes_round(self, y: np.ndarray, modes: Mode) -> bool:
        """Whether stage values are on the branch of the sharp turn."""
        return True

    # --- candidates ---

    def _candidates(self, zero: np.ndarray, hint: Sequence[int] | None) -> list[Mode]:
        """Modes in which nothing is active but what may be: the hint, then small ones first, those closest to it.

        Where several motions are possible (a surface that repels, a corner that may hold) it moves on. Parts are
        changed one at a time, then two, and so on: where very many meet not all combinations are tried.
        """
        choices = [sorted(part.choices(zero), key=len) for part in self.parts]
        if not all(choices):
            return []
        first = [choice[0] for choice in choices]
        if hint is not None:
            own = [tuple(k for k in part.members if hint[k]) for part in self.parts]
            first = [mine if mine in choice else one for mine, choice, one in zip(own, choices, first, strict=True)]
        open_parts = [n for n, choice in enumerate(choices) if len(choice) > 1]
        found = [first]
        for count in range(1, len(open_parts) + 1):
            for changed in combinations(open_parts, count):
                others = [[c for c in choices[n] if c != first[n]] for n in changed]
                for chosen in product(*others):
                    made = list(first)
                    for n, choice in zip(changed, chosen, strict=True):
                        made[n] = choice
                    found.append(made)
                    if len(found) >= MOST_CANDIDATES:
                        return [self._mode(parts) for parts in found]
        modes = [self._mode(parts) for parts in found]
        return sorted(modes, key=sum) if hint is None else [modes[0], *sorted(modes[1:], key=sum)]

    def _mode(self, active: Sequence[tuple[int, ...]]) -> Mode:
        mode = np.zeros(self._count, dtype=int)
        mode[[k for members in active for k in members]] = 1
        return tuple(mode.tolist())


def _subsets(members: Sequence[int], free: bool) -> Iterator[tuple[int, ...]]:
    for size in range(0 if free else 1, len(members) + 1):
        yield from combinations(members, size)


def parts_of(dcs: DCS) -> tuple[ComponentGroup, ...]:
    """Components that share a switching function or an indicator belong together; constraints are alone."""
    rows = [(pair.name, i) for pair in dcs.pairs for i in range(pair.a.numel())]
    place = {row: k for k, row in enumerate(rows)}
    found: list[set[int]] = []
    for switch in dcs.switches:
        members = {place[pair, i] for pair, i, _ in switch.members}
        touching = [part for part in found if part & members]
        found = [part for part in found if not part & members] + [members.union(*touching)]
    known = set().union(*found)
    alone = [ComponentGroup(members=(k,), free=True) for k in range(len(rows)) if k not in known]
    return (*[_partition(tuple(sorted(part)), dcs, place) for part in found], *alone)


def _partition(members: tuple[int, ...], dcs: DCS, place: dict[tuple[str, int], int]) -> ComponentGroup:
    """Regions with their signs, where switching functions tell them apart."""
    sides = []
    for switch in dcs.switches:
        own = {place[pair, i]: side for pair, i, side in switch.members}
        if own.keys() & set(members):
            whole = switch.function is not None and own.keys() == set(members)
            sides.append([own[k] for k in members] if whole else None)
    signs = None if any(column is None for column in sides) else np.array(sides, dtype=float).T
    if signs is not None and len(np.unique(signs, axis=0)) < len(members):
        signs = None  # regions that are not told apart
    return ComponentGroup(members=members, free=False, signs=signs)


class EdgeValues:
    """Sides a at any state in a mode, without the other unknowns: continuous multipliers solve linear equations.

    `known` are the parts of these equations that depend on the state; the sides are weights times them. Where more is
    active than the equations ask for (sliding) they hold as well as they can.
    """

    def __init__(self, dcs: DCS, a: ca.SX) -> None:
        own = [v.symbol for v in dcs.variables if v.boundary]
        self._symbols = ca.vertcat(ca.SX(0, 1), *own)
        equations = ca.vertcat(ca.SX(0, 1), *[e.expression for e in dcs.equations if e.boundary])
        self._linear = np.asarray(ca.DM(ca.jacobian(equations, self._symbols)))
        self._own = np.array([ca.depends_on(a[k], self._symbols) if own else False for k in range(a.numel())], bool)
        self._sides = np.zeros((a.numel(), self._symbols.numel()))
        for k in np.flatnonzero(self._own):
            self._sides[k] = np.asarray(ca.DM(ca.jacobian(a[int(k)], self._symbols))).reshape(-1)
        self.known = ca.substitute(equations, self._symbols, ca.SX.zeros(self._symbols.numel()))

    def weights(self, closed: np.ndarray) -> np.ndarray:
        """Weights (sides, known) in a mode."""
        count = len(self._linear)
        return np.asarray(self._sides @ self.solution(closed)) if count else np.zeros((closed.size, 0))

    def solution(self, closed: Sequence[float] | np.ndarray) -> np.ndarray:
        """Weights (unknowns, known) that give the continuous multipliers."""
        matrix = np.vstack([self._linear, np.asarray(closed, dtype=float)[:, None] * self._sides])
        return np.asarray(-np.linalg.pinv(matrix)[:, : len(self._linear)])

    def side(self, a: ca.SX, weights: ca.SX) -> ca.SX:
        """Sides a as functions of the state."""
        if not self._own.any():
            return a
        solved = weights @ self.known
        return ca.vertcat(*[solved[k] if own else a[k] for k, own in enumerate(self._own)])
