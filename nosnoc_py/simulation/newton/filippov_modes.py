"""Filippov systems and other systems without jumps for the active-set Newton method: which sides of pairs are zero.

A mode has one number per component of the pairs 0 <= a perpendicular b >= 0 of the dynamic complementarity system
(DCS): 1 if a is zero (the region is active, the constraint closed), 0 if b is. Everything is read from the data of the
DCS, so that Stewart's reformulation, step functions (Heaviside) and projected systems share this code.

Sides a are continuous in time; after elimination of the continuous multipliers (`BoundaryMultipliers`) they are
functions of the state alone. Their zero is the arrival at a surface or constraint. Sides b (convex weights, forces) may
jump at a node; their zero ends sliding. Guards are all sides a of inactive and all sides b of active components.

At a node all modes are candidates that activate only components with a = 0. There may be several motions (a surface
that repels on both sides, a corner); candidates that leave the surfaces come first unless a previous mode is to be
kept.

References
----------
Filippov, Differential Equations with Discontinuous Righthand Sides (1988).
Stewart, A high accuracy method for solving ODEs with discontinuous right-hand side, Numer. Math. 58 (1990).
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

# A violation before this relative time means that the mode was wrong from the start; for sides a (continuous, so any
# violation grows slowly and is located) and for sides b (which change with the mode at once).
NEAREST = (1e-9, 1e-6)
# Newton iterations for the first guess of the algebraic unknowns in a mode; it is refined later.
CORRECTIONS = 5
# Candidates at one node: their number grows exponentially with the surfaces that meet. Few are sorted anew when the
# forces have changed; of many the order by distance from the previous mode matters more.
MOST_CANDIDATES, FEW_CANDIDATES = 256, 30


@dataclass(frozen=True, eq=False, kw_only=True)
class ComponentGroup:
    """Components of pairs that can only be chosen together: the regions of a partition, or one constraint.

    Attributes
    ----------
    members : tuple of int
    free : bool
        True for a constraint, which may be inactive. Of a partition at least one region is active.
    signs : (members, functions), optional
        Signs of the switching functions in the regions of a partition.
    """

    members: tuple[int, ...]
    free: bool
    signs: np.ndarray | None = None

    def choices(self, zero: np.ndarray) -> list[tuple[int, ...]]:
        """Return the sets of members that can be active if only components marked in `zero` (n,) may be.

        In a partition by signs each switching function that is zero is on one side or slides, so that the active
        regions are a product over the functions.
        """
        near = [m for m, k in enumerate(self.members) if zero[k]]
        if self.signs is None:
            subsets = [list(chosen) for chosen in _subsets(near, self.free)]
        else:
            # For each switching function the signs that occur: one sign (crossed already), or both (zero at the node).
            sides = [np.unique(column).tolist() for column in self.signs[near].T]
            both = [[*([side] for side in one), *([one] if len(one) > 1 else [])] for one in sides]
            subsets = [
                [m for m in near if all(self.signs[m, j] in side for j, side in enumerate(chosen))]
                for chosen in product(*both)
            ]
        return [tuple(self.members[m] for m in chosen) for chosen in subsets if chosen or self.free]

    def product_conditions(self, active: Sequence[int]) -> list[tuple[int, int, int, int]]:
        """Return conditions b_s b_base = b_p b_q, as (s, base, p, q), that make weights products of step functions.

        Sliding along several surfaces at once leaves the convex combination of 2^k regions undetermined (k surfaces).
        Each condition replaces one redundant equation a_s = 0: region s differs from the base in several signs, p is s
        with one of these signs changed back, and q is the base with that sign changed.
        """
        if self.signs is None or len(active) < 4:
            return []
        rows = {tuple(self.signs[self.members.index(k)]): k for k in active}
        base = next(iter(rows))
        sliding = [j for j in range(self.signs.shape[1]) if len({row[j] for row in rows}) > 1]
        # Only a full corner (all sign combinations active) has the form of a product of step functions.
        if len(rows) != 2 ** len(sliding):
            return []
        conditions = []
        for row, k in rows.items():
            flipped = [j for j in sliding if row[j] != base[j]]
            if len(flipped) > 1:
                j = flipped[0]
                before = tuple(base[i] if i == j else side for i, side in enumerate(row))
                beside = tuple(row[i] if i == j else side for i, side in enumerate(base))
                conditions.append((k, rows[base], rows[before], rows[beside]))
        return conditions


class FilippovModes:
    """Modes of a DCS without a jump law, as `EventWalk` and `Engine` use them.

    The guards are the sides a of inactive components, as functions of the state alone, and the sides b of active ones.
    """

    # Algebraic unknowns are not unique in a singular mode at the node itself: solve a short element for them.
    solves_node_unknowns = True

    def __init__(self, dcs: DCS) -> None:
        self.dcs, self.jumps = dcs, 0
        self.names = tuple(name for pair in dcs.pairs for name in (pair.components or pair.a_labels)[: pair.a.numel()])
        self.groups = component_groups(dcs)
        self._group_of = {k: part for part in self.groups for k in part.members}
        a = ca.vertcat(ca.SX(0, 1), *[pair.a for pair in dcs.pairs])
        b = ca.vertcat(ca.SX(0, 1), *[pair.b for pair in dcs.pairs])
        self._count = a.numel()
        self._multipliers = BoundaryMultipliers(dcs, a)
        closed = ca.SX.sym("closed", self._count)
        weights = ca.SX.sym("weights", self._count, self._multipliers.known.numel())
        # Products of step functions need at least two surfaces in a partition.
        several = any(part.signs is not None and part.signs.shape[1] > 1 for part in self.groups)
        chosen = [ca.SX.sym(f"chosen_{k}", self._count, self._count if several else 0) for k in range(3)]
        # `chosen` select b_base, b_p and b_q of the product condition of each row; zero rows keep the equation a = 0.
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
            # Functions of the state are smooth along its polynomial; interpolated multipliers have a kink at the first
            # stage.
            guards=ca.vertcat(self._multipliers.side(a, weights), b),
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
        self._known_at = buffered(ca.Function("boundary_values", [dcs.x, dcs.p], [self._multipliers.known]))
        self.masks, self.watched = remembered(self._masks), remembered(self._watched)
        self._solutions = remembered(self._multipliers.solution)

    # --- interface of the engine ---

    def _masks(self, modes: Mode) -> np.ndarray:
        """Return the masks of a mode.

        Zero sides, weights for the sides a of a state, and selectors of product conditions.
        """
        closed = np.array(modes, dtype=float)
        numbers = [closed, self._multipliers.weights(closed).reshape(-1, order="F")]
        if self._several:
            chosen = np.zeros((3, self._count, self._count))
            for part in self.groups:
                for row, *columns in part.product_conditions([k for k in part.members if modes[k]]):
                    for matrix, column in zip(chosen, columns, strict=True):
                        matrix[row, column] = 1.0
            numbers += [matrix.reshape(-1, order="F") for matrix in chosen]
        return np.concatenate(numbers)

    def _watched(self, modes: Mode) -> np.ndarray:
        """Return which guards a mode has to satisfy: sides a of inactive, sides b of active components."""
        closed = np.array(modes, dtype=bool)
        return np.concatenate([~closed, closed])

    def tolerances(self, guards: np.ndarray, y: np.ndarray, h: float) -> np.ndarray:
        """Return violations that are rounding.

        For sides a plus what is negative at the start (drift of earlier steps).
        """
        sizes = (1.0 + np.abs(part).max(initial=0.0) for part in (guards[: self._count], guards[self._count :]))
        # Sides a are functions of the state, which is exact to Newton's tolerance; sides b are forces or weights, which
        # are less exact.
        rounding = np.repeat([scale * size for scale, size in zip((1e-11, 1e-9), sizes, strict=True)], self._count)
        rounding[: self._count] += np.maximum(0.0, -guards[: self._count, 0])
        return rounding

    def nearest(self) -> np.ndarray:
        """Return relative times before which a violation means that the mode was wrong from the start."""
        return np.repeat(NEAREST, self._count)

    def describe(self, guard: int) -> tuple[str, str]:
        """Return the name of a component and the kind of its event: a becomes zero (arrival) or b (departure)."""
        return self.names[guard % self._count], "arrival" if guard < self._count else "departure"

    def places(self, modes: Mode) -> str:
        """Return the names of the active components."""
        return ", ".join(name for name, mode in zip(self.names, modes, strict=True) if mode)

    def has_unique_forces(self, modes: Mode) -> bool:
        """Return True without sliding and closed constraints: all multipliers are then 0 or 1."""
        return all(part.free or sum(modes[k] for k in part.members) < 2 for part in self.groups) and not any(
            modes[k] for part in self.groups if part.free for k in part.members
        )

    def motion_continues(self, x: np.ndarray, p: np.ndarray, modes: Mode) -> bool:
        """Return True: without jumps the previous modes can always be tried first."""
        return True

    def node(
        self, x: np.ndarray, u: np.ndarray, p: np.ndarray, hint: Sequence[int] | None, *, other_forces: bool = False
    ) -> ElementNode:
        """Return the node with all modes that are possible at x, those closest to `hint` first."""
        a, _ = self._at_node(x, p)
        a = a[:, 0]
        zero = a <= TOUCHING * (1.0 + np.abs(a).max(initial=0.0))
        if hint is not None:  # a of active components is zero only up to the error of discretisation
            zero |= np.array(hint, dtype=bool)
        candidates = self._candidates(zero, hint)
        if other_forces and len(candidates) <= FEW_CANDIDATES:
            candidates = sorted(
                candidates, key=sum
            )  # under new forces a constraint may open: try few active components first
        plain = ElementNode(
            x_minus=x, x_left=x, jump=np.zeros(0), y=np.zeros(self.equations.y.numel()), detail=candidates
        )
        if not candidates:
            return replace(plain, trouble=Trouble.MODES, message="the switching functions have no values")
        return replace(plain, modes=candidates[0], y=self.guess(plain, candidates[0], u, p))

    def guess(self, node: ElementNode, modes: Mode, u: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Return algebraic unknowns (n_y,) that satisfy the equations at a node, close to their estimates.

        Least-squares steps, as the equations are singular where several components are redundant.
        """
        y, masks = self._at_node(node.x_left, p)[1][:, 0], self.masks(modes)
        for _ in range(CORRECTIONS):
            rows, jacobian = self._rows(y, node.x_left, u, p, masks)
            change = np.linalg.lstsq(jacobian, rows[:, 0], rcond=1e-10)[0]
            y = y - change
            if np.abs(change).max(initial=0.0) <= 1e-12 * (1.0 + np.abs(y).max(initial=0.0)):
                break
        return y

    def pivots(self, node: ElementNode, modes: Mode, guard: int | None, y: np.ndarray) -> list[Mode]:
        """Return all candidates, those first that change the component of the violated guard only."""
        candidates: list[Mode] = node.detail
        if guard is None:
            return candidates
        members = np.zeros(self._count, dtype=bool)
        members[list(self._group_of[guard % self._count].members)] = True

        def elsewhere(mode: Mode) -> int:
            """Count changes of components in other groups than that of the guard."""
            return int((np.array(mode) != modes)[~members].sum())

        return [self._mode_after(modes, guard), *sorted(candidates, key=elsewhere)]

    def after(self, modes: Mode, guard: int | None, x: np.ndarray, y: np.ndarray, p: np.ndarray) -> Mode:
        """Return the mode to try first after an event."""
        return modes if guard is None else self._mode_after(modes, guard)

    def _mode_after(self, modes: Mode, guard: int) -> Mode:
        """Return the mode after an event.

        A region that is reached replaces the previous one, a zero weight is removed.
        """
        k, part = guard % self._count, self._group_of[guard % self._count]
        active = {m for m in part.members if modes[m]}
        if guard >= self._count and part.signs is not None and len(active) > 2:
            return modes  # several weights of a product are zero at once: the order of candidates decides
        if guard >= self._count:
            active -= {k}
        elif part.free:
            active |= {k}
        elif part.signs is None:
            active = {k}
        else:  # functions whose sign differs in region k are crossed; functions that slide continue to slide
            sides = {m: part.signs[i] for i, m in enumerate(part.members)}
            moved = [j for j in range(part.signs.shape[1]) if all(sides[m][j] != sides[k][j] for m in active)]
            slides = [j for j in range(part.signs.shape[1]) if len({sides[m][j] for m in active}) > 1]
            fixed = [j for j in range(part.signs.shape[1]) if j not in slides]
            wanted = {j: sides[k][j] if j in moved else next(iter(sides[m][j] for m in active)) for j in fixed}
            active = {m for m in part.members if all(sides[m][j] == side for j, side in wanted.items())}
        new = list(modes)
        for m in part.members:
            new[m] = int(m in active)
        return tuple(new)

    def boundary_values(self, modes: Mode, x: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Return the continuous unknowns at a state, in the order of their variables."""
        return self._solutions(modes) @ self._known_at(x, p)[0][:, 0]

    # Each mode has one branch of stage values (m, n_y) only; the following serve contacts that slip in space.

    def consistent_branch(self, y_left: np.ndarray, y: np.ndarray, modes: Mode) -> np.ndarray:
        """Return stage values unchanged."""
        return y

    def turning_branch(self, x: np.ndarray, y: np.ndarray, p: np.ndarray, modes: Mode) -> np.ndarray | None:
        """Return None: no direction turns sharply."""
        return None

    def ambiguous_guards(self, modes: Mode) -> list[int]:
        """Return no guards."""
        return []

    def on_turning_branch(self, y: np.ndarray, modes: Mode) -> bool:
        """Return True."""
        return True

    # --- candidates ---

    def _candidates(self, zero: np.ndarray, hint: Sequence[int] | None) -> list[Mode]:
        """Return modes that activate only components marked in `zero`: the hint first, then those with few active.

        If several motions are possible (a surface that repels, a corner that can hold) the system then leaves. Groups
        are changed one at a time, then two at a time, and so on; of very many combinations only the first are tried.
        """
        choices = [sorted(part.choices(zero), key=len) for part in self.groups]
        # Empty only if a partition has no zero component, that is, if its switching functions are NaN.
        if not all(choices):
            return []
        first = [choice[0] for choice in choices]
        if hint is not None:
            own = [tuple(k for k in part.members if hint[k]) for part in self.groups]
            # The previous mode, group by group, where it is still possible: a group that cannot go on does not discard
            # the others.
            first = [mine if mine in choice else one for mine, choice, one in zip(own, choices, first, strict=True)]
        open_parts = [n for n, choice in enumerate(choices) if len(choice) > 1]
        selections = [first]
        for count in range(1, len(open_parts) + 1):
            for changed in combinations(open_parts, count):
                others = [[c for c in choices[n] if c != first[n]] for n in changed]
                for chosen in product(*others):
                    selection = list(first)
                    for n, choice in zip(changed, chosen, strict=True):
                        selection[n] = choice
                    selections.append(selection)
                    if len(selections) >= MOST_CANDIDATES:
                        return [self._mode(groups) for groups in selections]
        modes = [self._mode(groups) for groups in selections]
        return sorted(modes, key=sum) if hint is None else [modes[0], *sorted(modes[1:], key=sum)]

    def _mode(self, active: Sequence[tuple[int, ...]]) -> Mode:
        mode = np.zeros(self._count, dtype=int)
        mode[[k for members in active for k in members]] = 1
        return tuple(mode.tolist())


def _subsets(members: Sequence[int], free: bool) -> Iterator[tuple[int, ...]]:
    for size in range(0 if free else 1, len(members) + 1):
        yield from combinations(members, size)


def component_groups(dcs: DCS) -> tuple[ComponentGroup, ...]:
    """Return groups of components that share a switching function or an indicator; each constraint is alone."""
    rows = [(pair.name, i) for pair in dcs.pairs for i in range(pair.a.numel())]
    place = {row: k for k, row in enumerate(rows)}
    partitions: list[set[int]] = []
    for switch in dcs.switches:
        members = {place[pair, i] for pair, i, _ in switch.members}
        # Switches that share a region belong to one partition: union of all sets that meet.
        touching = [part for part in partitions if part & members]
        partitions = [part for part in partitions if not part & members] + [members.union(*touching)]
    known = set().union(*partitions)
    alone = [ComponentGroup(members=(k,), free=True) for k in range(len(rows)) if k not in known]
    return (*[_partition(tuple(sorted(part)), dcs, place) for part in partitions], *alone)


def _partition(members: tuple[int, ...], dcs: DCS, place: dict[tuple[str, int], int]) -> ComponentGroup:
    """Return a group of regions, with their signs if these identify each region."""
    sides = []
    for switch in dcs.switches:
        own = {place[pair, i]: side for pair, i, side in switch.members}
        if own.keys() & set(members):
            whole = switch.function is not None and own.keys() == set(members)
            sides.append([own[k] for k in members] if whole else None)
    signs = None if any(column is None for column in sides) else np.array(sides, dtype=float).T
    if signs is not None and len(np.unique(signs, axis=0)) < len(members):
        signs = None  # two regions have the same signs: they are not identified by them
    return ComponentGroup(members=members, free=False, signs=signs)


class BoundaryMultipliers:
    """Sides a as functions of state and mode: the continuous multipliers in them solve linear equations.

    `known` are the parts of these equations that depend on the state; the sides are weights times `known`. If more
    components are active than there are unknowns (sliding on a surface with drift), it is a least-squares solution.
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
        """Return weights (sides, known) in a mode."""
        count = len(self._linear)
        return np.asarray(self._sides @ self.solution(closed)) if count else np.zeros((closed.size, 0))

    def solution(self, closed: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return weights (unknowns, known) of the continuous multipliers."""
        # Equations of the multipliers, and a = 0 for the active components; the pseudoinverse covers more rows than
        # unknowns.
        matrix = np.vstack([self._linear, np.asarray(closed, dtype=float)[:, None] * self._sides])
        # Right-hand sides of the active rows are zero, so that only the columns of the equations are needed.
        return np.asarray(-np.linalg.pinv(matrix)[:, : len(self._linear)])

    def side(self, a: ca.SX, weights: ca.SX) -> ca.SX:
        """Return the sides a as functions of the state, for symbolic weights."""
        if not self._own.any():
            return a
        solved = weights @ self.known
        return ca.vertcat(*[solved[k] if own else a[k] for k, own in enumerate(self._own)])
