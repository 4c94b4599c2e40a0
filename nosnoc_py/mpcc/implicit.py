"""Derivatives of the solution of an MPCC without an objective, by the implicit function theorem on its branch.

On a branch the equations are smooth, consistent and possibly redundant: J dw + K dp = 0 with the rows of the equations,
of the sides that are zero and of the switched equations that hold. They are solved in the least-squares sense, so that
redundant rows do no harm; directions that no row determines matter only if they change the wanted expressions.

Rows that stay zero in a neighbourhood:

- rows whose partner in some group is positive,
- in biactive groups, rows that cannot leave zero without making another nonnegative row negative (a linear program),
- in the remaining biactive groups the left rows, as far as they do not contradict the others.

If a quantity that is zero, but is not among these rows, begins to move, the solution has a kink there. This is reported
in `Derivative.flags`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import casadi as ca
import numpy as np

from nosnoc_py.implicit_function import RankRevealingSVD
from nosnoc_py.mpcc.layout import At
from nosnoc_py.mpcc.linearization import linear_program
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.structure import implied_lower_bounds

Array = np.ndarray
# Values and residuals below this are zero, in units of their scale.
ZERO_VALUE = 1e-7
# A row whose implied lower bound is above this cannot be zero.
ABOVE_ZERO = 1e-8
# Singular values below RANK times the largest one are zero; changes below MOVES times the largest one are none.
RANK, MOVES = 1e-10, 1e-6
# Rows with a smaller norm depend on no variable.
EMPTY_ROW = 1e-14
# Distance from zero to which radii of polar coordinates are moved, in units of their scale.
POLE = 1e-2
# A quantity that can grow by more than this, in a box of size one, is free to leave zero.
FREE = 1e-4


@dataclass(frozen=True, eq=False, kw_only=True)
class Derivative:
    """Derivatives of the wanted expressions.

    Attributes
    ----------
    values : (n, n_columns)
        By the chosen parameters.
    kept : (n_kept, n_start)
        Directions of the start that the equations do not admit. Along these the derivative is that of the start
        projected onto the admissible ones.
    flags : tuple of str
        Reasons why the derivative does not exist; empty if it does.
    """

    values: Array
    kept: Array
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Linear:
    """Linearised rows (., n_free + n_columns) of g, G, H, r (`parts`) and of the wanted expressions.

    The columns are the scaled variables with the indices `free`, then the chosen parameters. Rows of the program are
    divided by their norm in the variables.
    """

    parts: tuple[Array, ...]
    wanted: Array
    free: Array


@dataclass(frozen=True, eq=False, kw_only=True)
class Active:
    """Active rows at a solution, as masks over G and over H.

    `held`: rows that stay zero in a neighbourhood. `zero`: rows that are zero at the solution, biactive ones included.
    """

    held: tuple[Array, Array]
    zero: tuple[Array, Array]

    @property
    def open(self) -> tuple[Array, Array]:
        """Masks of the rows that are zero but may leave zero."""
        return self.zero[0] & ~self.held[0], self.zero[1] & ~self.held[1]


class Implicit:
    """Derivatives of expressions of (w, p) along the solutions of an MPCC; built once.

    Parameters
    ----------
    mpcc : MPCC
        Without an objective.
    wanted : SX (n,)
        Expressions of w and p.
    columns : sequence of int
        Indices of the parameters p.
    start : int
        Number of leading columns that may be corrected if the equations do not admit their change.
    scale : (n_columns,)
        Typical sizes of these parameters.
    poles : (n_poles, 2) int
        Pairs (force, speed) of variables that are radii along one unit vector; its direction is undetermined where both
        are zero. It is that of the slip velocity if the speed is free, else that of the force.
    """

    def __init__(
        self, mpcc: MPCC, wanted: ca.SX, columns: Sequence[int], start: int, scale: Array, poles: Array
    ) -> None:
        self.mpcc, self.start, self.scale, self._poles = mpcc, start, np.asarray(scale, float), poles
        self._ends = np.cumsum([mpcc.g.numel(), mpcc.G.numel(), mpcc.H.numel(), mpcc.r.numel()])
        rows = ca.vertcat(mpcc.g, mpcc.G, mpcc.H, mpcc.r, wanted)
        slopes = [ca.jacobian(rows, mpcc.w), ca.jacobian(rows, mpcc.p[list(columns)])]
        self._values = ca.Function("rows", [mpcc.w, mpcc.p], [ca.densify(rows)])
        self._slopes = ca.Function("slopes", [mpcc.w, mpcc.p], slopes)
        self._lower_bounds = implied_lower_bounds(mpcc)
        self._equations = mpcc.lbg == mpcc.ubg

    def __call__(self, w: Array, p: Array) -> Derivative:
        """Return the derivatives at the solution w with parameters p."""
        values = np.split(np.asarray(self._values(w, p)).reshape(-1), self._ends)
        active = self._active(values[1], values[2])
        # Values and active rows come from w itself; only the Jacobians are taken beside the poles.
        near = self._beside_poles(w, active)
        free = ~self._still(active.held, p) & (self.mpcc.lbw < self.mpcc.ubw)
        linear = self._linear(near, p, np.flatnonzero(free))
        switched, missed = self._switched(active, values[3])
        held = (self._equations, *active.held, switched)
        parts = [part[mask] for part, mask in zip(linear.parts, held, strict=True)]
        # Equations that the point violates would prescribe a motion that it does not make.
        rows = _nonzero_rows(*parts, _first_stays(linear.parts[3][missed]))
        wrong = np.flatnonzero(missed & self.mpcc.enforced)
        flags = [f"{_place(self.mpcc.switched.label(int(k)))} is not met" for k in wrong]
        rows, active = self._implied(rows, linear, active, values[0], p)
        rows = self._chosen(rows, linear, active)
        return self._solve(rows, linear, active, near != w, flags)

    def _linear(self, w: Array, p: Array, free: Array) -> Linear:
        """Return the linearised rows of g, G, H, r and of the wanted expressions, by the free variables."""
        by_w, by_p = (np.asarray(part.full()) for part in self._slopes(w, p))
        *parts, wanted = np.split(np.hstack([(by_w * self.mpcc.w_scale)[:, free], by_p * self.scale]), self._ends)
        return Linear(parts=tuple(_normalised(rows, free.size) for rows in parts), wanted=wanted, free=free)

    def _beside_poles(self, w: Array, active: Active) -> Array:
        """Return the point for the Jacobians: radii at zero are moved away from it, so that their vector can turn.

        The equations contain the radii only in products with the direction, so that the distance makes no difference.
        """
        near, fixed = w.copy(), self._held_variables(active)
        for force, speed in self._poles:
            scale = self.mpcc.w_scale
            moved = force if fixed[speed] else speed
            if all(abs(w[k]) <= ZERO_VALUE * scale[k] for k in (force, moved)):
                near[moved] = POLE * scale[moved]
        return near

    def _still(self, held: Sequence[Array], p: Array) -> Array:
        """Return the mask of the variables that are constant: those of a sum of variables at its smallest value."""
        still = np.zeros(self.mpcc.w0.size, bool)
        for rows, floor in zip(held, self._lower_bounds, strict=True):
            # A sum at its smallest value fixes every variable in it, so that their columns drop out.
            still[floor.members(rows & (np.abs(floor.lowest(p)) <= ABOVE_ZERO))[0]] = True
        return still

    def _active(self, G: Array, H: Array) -> Active:
        zero_G, zero_H = np.abs(G) <= ZERO_VALUE * self._scales[0], np.abs(H) <= ZERO_VALUE * self._scales[1]
        in_G, in_H = self.mpcc.members
        left, right = ~in_G.all(zero_G), ~in_H.all(zero_H)
        larger = in_G.largest(np.abs(G)) >= in_H.largest(np.abs(H))
        unsolved = left & right  # both sides above the tolerance: the smaller one is taken to be zero
        held = self.mpcc.side(right & ~(unsolved & larger), left & ~(unsolved & ~larger))
        return Active(held=held, zero=(zero_G, zero_H))

    @cached_property
    def _scales(self) -> tuple[Array, Array]:
        """Typical sizes of the rows of G and of H; 1 for expressions."""
        m = self.mpcc
        left, right = (
            np.where(plain >= 0, m.w_scale[np.maximum(plain, 0)], 1.0) for plain in (m.G_variable, m.H_variable)
        )
        return left, right

    def _switched(self, active: Active, residuals: Array) -> tuple[Array, Array]:
        """Return masks of the switched equations that hold, and of those that are violated."""
        eta = self.mpcc.switched_on(*active.zero)
        met = np.abs(residuals) <= ZERO_VALUE
        return eta & met, eta & ~met

    def _implied(self, rows: Array, linear: Linear, active: Active, g: Array, p: Array) -> tuple[Array, Active]:
        """Add nonnegative rows that are zero and cannot leave zero while all others stay nonnegative."""
        if not any(open_.any() for open_ in active.open):
            return rows, active
        m, parts = self.mpcc, linear.parts
        low, high = (~self._equations & (np.abs(g - bound) <= ZERO_VALUE) for bound in (m.lbg, m.ubg))
        # Parts of signed quantities are left out: one of the two may always leave zero.
        new_G, new_H = (open_ & (other < 0) for open_, other in zip(active.open, self._splits, strict=True))
        others = np.vstack([parts[1][new_G], parts[2][new_H], parts[0][low], -parts[0][high]])
        held = immovable_rows(others @ RankRevealingSVD(rows, RANK).loose)
        count = int(new_G.sum())
        new_G[np.flatnonzero(new_G)] = held[:count]
        new_H[np.flatnonzero(new_H)] = held[count : count + int(new_H.sum())]
        still = np.flatnonzero(self._still((new_G, new_H), p)[linear.free])
        unit = np.eye(rows.shape[1])[still]  # constant variables as rows of the identity
        extended = Active(held=(active.held[0] | new_G, active.held[1] | new_H), zero=active.zero)
        return _nonzero_rows(rows, parts[1][new_G], parts[2][new_H], unit), extended

    @cached_property
    def _splits(self) -> tuple[Array, Array]:
        """Variable of the other part for every row of G and H that is a part of a signed quantity, else -1."""
        m = self.mpcc
        other = np.full(m.w0.size, -1)
        for group in m.groups:
            if group.difference_only:
                plus, minus = m.G_variable[group.left], m.H_variable[group.right]
                other[plus], other[minus] = minus, plus
        left, right = (np.where(plain >= 0, other[np.maximum(plain, 0)], -1) for plain in (m.G_variable, m.H_variable))
        return left, right

    def _chosen(self, rows: Array, linear: Linear, active: Active) -> Array:
        """Add rows of biactive groups that agree with those before, left sides first.

        With the left side (a gap) at zero, an impulse at the start (right side) may correct a start that the gap does
        not admit. Of a signed quantity one part stays zero.
        """
        m, stacked = self.mpcc, [rows]
        base = _Basis(*self._split(rows))
        both = m.members[0].all(active.zero[0]) & m.members[1].all(active.zero[1])
        for part, members, loose in zip(
            linear.parts[1:3], m.side(both & ~m.difference_only, both), active.open, strict=True
        ):
            chosen = [k for k in np.flatnonzero(members & loose) if base.add(*self._split(part[k]))]
            stacked.append(part[np.array(chosen, int)])
        return np.vstack(stacked)

    def _split(self, rows: Array) -> tuple[Array, Array]:
        """Return the columns of the variables, and those of the parameters."""
        cut = rows.shape[-1] - self.scale.size
        return rows[..., :cut], rows[..., cut:]

    def _solve(self, rows: Array, linear: Linear, active: Active, polar: Array, flags: list[str]) -> Derivative:
        J, K = self._split(rows)
        known, wanted = RankRevealingSVD(J, RANK), self._split(linear.wanted)[0]
        # Left null vectors of J give conditions on the parameters alone: the start is corrected to satisfy them.
        directions, kept, lost = self._corrected(known.given.T @ K)
        moves = np.vstack([known.derivative(K @ directions), directions])
        size = max(1.0, np.abs(wanted).max(initial=0.0))
        if lost:
            flags = [*flags, "the equations of the branch contradict each other"]
        if np.abs(wanted @ known.loose).max(initial=0.0) > MOVES * size:
            flags = [*flags, "the equations of the branch leave the solution open"]
        flags = [*flags, *dict.fromkeys(self._kinks(linear, active, polar, moves))]
        return Derivative(values=linear.wanted @ moves / self.scale, kept=kept, flags=tuple(flags))

    def _corrected(self, conditions: Array) -> tuple[Array, Array, bool]:
        """Return directions of the parameters with the start corrected so that conditions @ directions = 0."""
        size = max(1.0, float(np.abs(conditions).max(initial=0.0)))
        known, directions = RankRevealingSVD(conditions[:, : self.start], least=MOVES * size), np.eye(self.scale.size)
        directions[: self.start] += known.derivative(conditions)
        lost = bool(np.abs(conditions @ directions).max(initial=0.0) > MOVES * size)
        return directions, known.basis / self.scale[: self.start], lost

    def _kinks(self, linear: Linear, active: Active, polar: Array, moves: Array) -> Iterator[str]:
        """Yield a message for every quantity that is zero, may leave zero, and begins to move.

        Excluded are impulses at the start, and signed quantities and radii, for which zero is no kink.
        """
        m = self.mpcc
        size = max(1.0, float(np.abs(moves[: linear.free.size]).max(initial=0.0)))
        sides = (
            (linear.parts[1], active.open[0], m.left, self._splits[0], m.G_variable),
            (linear.parts[2], active.open[1], m.right, self._splits[1], m.H_variable),
        )
        fixed = self._held_variables(active)
        for part, loose, layout, other, plain in sides:
            moved = np.abs(part @ moves).max(axis=1, initial=0.0) > MOVES * size
            for k in np.flatnonzero(loose & moved):
                block, _ = layout.find(int(k))
                # At the first node the right sides are impulses that correct an inadmissible start.
                if layout is m.right and block.at == At(0, 0):
                    continue
                if (other[k] >= 0 and not fixed[other[k]]) or (plain[k] >= 0 and polar[plain[k]]):
                    continue
                yield f"{_place(layout.label(int(k)))} is zero and begins to move"

    def _held_variables(self, active: Active) -> Array:
        """Return the mask of the variables that rows fix to zero."""
        m = self.mpcc
        fixed = np.zeros(m.w0.size, bool)
        for plain, held in zip((m.G_variable, m.H_variable), active.held, strict=True):
            fixed[plain[held & (plain >= 0)]] = True
        return fixed


class _Basis:
    """Orthonormal basis of rows with their right sides; tests whether further rows agree with it."""

    def __init__(self, J: Array, K: Array) -> None:
        known = RankRevealingSVD(J, RANK)
        self._Q, self._K = known.basis, -known.along(K)

    def add(self, J: Array, K: Array) -> bool:
        """Add a row unless it contradicts those before; return True if it does not."""
        along = self._Q @ J
        rest = J - along @ self._Q
        size = float(np.linalg.norm(rest))
        if size <= ZERO_VALUE:
            # A dependent row agrees if its right side is the same combination as its left side.
            return bool(np.abs(K - along @ self._K).max(initial=0.0) <= MOVES * max(1.0, np.abs(K).max(initial=0.0)))
        self._Q = np.vstack([self._Q, rest / size])
        self._K = np.vstack([self._K, (K - along @ self._K) / size])
        return True


def _first_stays(rows: Array) -> Array:
    """Return rows that fix the first variable of every given row.

    They replace violated equations of step equilibration: a method that chose the length of an element itself keeps it,
    and the next element ends at a switch.
    """
    return np.eye(rows.shape[1])[np.argmax(rows != 0.0, axis=1)]


def _normalised(rows: Array, n_free: int) -> Array:
    size, other = np.linalg.norm(rows[:, :n_free], axis=1), np.abs(rows[:, n_free:]).max(axis=1, initial=1.0)
    return rows / np.where(size > EMPTY_ROW, size, other)[:, None]


def _nonzero_rows(*rows: Array) -> Array:
    """Return all rows, stacked, without those that are zero (rows of constant variables)."""
    stacked = np.vstack(rows)
    return np.asarray(stacked[(stacked != 0.0).any(axis=1)])


def immovable_rows(rows: Array) -> Array:
    """Return the mask of the rows that cannot become positive while rows @ d >= 0.

    A linear program maximises the sum of the rows, each limited to 1: a row that can be positive together with others
    is, because the feasible directions form a convex cone.
    """
    count, n = rows.shape
    if count == 0:
        return np.zeros(0, bool)
    # `linprog` minimises: the minus sign maximises the sum of the rows.
    cost = np.concatenate([np.zeros(n), -np.ones(count)])
    box = np.array([(-1e4, 1e4)] * n + [(0.0, 1.0)] * count)
    answer = linear_program(cost, box, (np.hstack([-rows, np.eye(count)]), np.zeros(count)))
    # If the linear program fails, no row is claimed to be immovable: a kink may be reported that is none.
    return np.zeros(count, bool) if answer.x is None else np.asarray(answer.x[n:] < FREE)


def _place(label: tuple[str, str]) -> str:
    return f"{label[0]} at {label[1]}"
