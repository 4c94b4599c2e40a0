"""Certificates of stationarity of a point of an MPCC: W, C, M, S from multipliers, B from an LPEC.

Definitions as in Scheel & Scholtes (2000), for groups with several rows. With the Lagrangian
L = f + g'lambda_g + w'lambda_w - G'nu_G - H'nu_H + r'lambda_r every kind requires grad L = 0, the usual signs of
lambda_g and lambda_w, and nu = 0 on positive rows. A row that a positive partner in some group forces to zero has a
free multiplier; a row at zero for another reason has a nonnegative one. In a group with both sides zero let a and b be
the smallest multiplier on its left and on its right side. Then the point is

    W-stationary without further condition,
    C-stationary if a b >= 0,
    M-stationary if a, b >= 0 or a b = 0,
    S-stationary if a, b >= 0,      for every such group.

For one row on each side these are the textbook definitions. For larger groups M corresponds to the limiting normal cone
of "all of the left side or all of the right side is zero". A row in several groups has to satisfy the condition of each
group with its one multiplier. This is sufficient: the certified kind may be too weak, never too strong.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from nosnoc_py.errors import TranscriptionError
from nosnoc_py.mpcc.linearization import UNLIMITED, Linearization, LocalProgram, local_program, row_maxima
from nosnoc_py.mpcc.lpec import Choice, Groups, LPECResult, decide_groups, imposed_equations, local_lpec
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.residuals import Values, outside
from nosnoc_py.status import Stationarity

_NODES = 100  # maximum number of linear programs in the search for M, and in that for C


@dataclass(frozen=True, eq=False, kw_only=True)
class Multipliers:
    """Multipliers in the user's units; the Lagrangian is f + g'lambda_g + w'lambda_w - G'nu_G - H'nu_H + r'lambda_r.

    lambda (fields w, g) is >= 0 at an active upper and <= 0 at an active lower bound. If a variable is a row of G or H
    itself, the multiplier of its bound at zero is part of nu (fields G, H).
    """

    w: np.ndarray
    g: np.ndarray
    G: np.ndarray
    H: np.ndarray
    r: np.ndarray

    @classmethod
    def zeros(cls, mpcc: MPCC) -> Multipliers:
        """Return multipliers that are all zero."""
        return cls(**{field.name: np.zeros(getattr(mpcc, field.name).numel()) for field in fields(cls)})


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class StationarityCertificate:
    """Certificate of stationarity of a point.

    Attributes
    ----------
    stationarity : Stationarity
        Strongest kind that is proved, in the order S, B, M, C, W.
    b_stationary : bool or None
        Verdict of the LPEC; None if there is none.
    lpec_value : float
        Smallest slope of the objective along feasible directions of size one in scaled variables; without descent a
        lower bound on it. 0 at a B-stationary point, NaN without a verdict.
    residual : float
        Largest entry of the gradient of the Lagrangian in scaled variables, over max(1, |grad f|).
    biactive : tuple of int
        Groups with both sides zero.
    multipliers : Multipliers, optional
        Multipliers of this residual; at a B-stationary point that is not S-stationary, those of one branch.
    lpec : LPECResult, optional
        Its step is a descent direction at a point that is not B-stationary; None if no LPEC was needed.
    """

    stationarity: Stationarity = Stationarity.UNKNOWN
    b_stationary: bool | None = None
    lpec_value: float = np.nan
    residual: float = np.inf
    biactive: tuple[int, ...] = ()
    multipliers: Multipliers | None = None
    lpec: LPECResult | None = None

    def __repr__(self) -> str:
        verdict = {True: "B-stationary", False: "not B-stationary", None: "no verdict on B"}[self.b_stationary]
        return (
            f"Certificate: stationarity {self.stationarity.value}, {verdict}, slope {self.lpec_value:.2g}, "
            f"gradient of the Lagrangian {self.residual:.2g}, biactive groups {len(self.biactive)}"
        )


def certify(
    mpcc: MPCC,
    at: Linearization,
    w: np.ndarray,
    *,
    multipliers: Multipliers | None = None,
    held: np.ndarray | None = None,
    tolerance: float = 1e-6,
    biactive_tolerance: float = 1e-8,
    feasibility_tolerance: float = 1e-6,
    radius: float = 1e-3,
    time_limit: float | None = None,
) -> StationarityCertificate:
    """Return the strongest kind of stationarity that can be proved at w.

    S is tested first and needs no LPEC: multipliers with the signs of S prove by weak duality that no branch has a
    slope below -|grad L|_1 - (multipliers times slacks) / radius, and this number is compared with the tolerance. S
    thus implies B with the same meaning of the tolerance. A point that is infeasible, or has a group with neither side
    zero, gets no kind.

    Parameters
    ----------
    mpcc : MPCC
    at : Linearization
        At w.
    w : ndarray (n_w,)
    multipliers : Multipliers, optional
        Multipliers of a solver, tried first. Wrong signs are set to zero, so any numbers are valid.
    held : bool ndarray (n_r,), optional
        Switched equations that are imposed; by default `lpec.imposed_equations`.
    tolerance : float
        Tolerance on slopes and on the gradient of the Lagrangian, relative to max(1, |grad f|_inf).
    biactive_tolerance : float
        Values below it count as zero, in the user's units.
    feasibility_tolerance : float
        In the user's units.
    radius : float
        Radius of the LPEC in scaled variables.
    time_limit : float, optional
        [s].

    Returns
    -------
    StationarityCertificate

    Raises
    ------
    TranscriptionError
        If the sizes of w, held or the multipliers do not match.
    """
    _check_sizes(mpcc, w, held, multipliers)
    deadline = time.monotonic() + (UNLIMITED if time_limit is None else time_limit)
    held = imposed_equations(mpcc, at, biactive_tolerance) if held is None else np.asarray(held, bool)
    if not at.finite or _infeasibility(mpcc, at, w, held) > feasibility_tolerance:
        # Every kind of stationarity presupposes a feasible point.
        return StationarityCertificate()
    program = local_program(mpcc, at, w, radius=radius, tolerance=biactive_tolerance, held=held)
    choice = decide_groups(Groups(mpcc, at), program, at)
    biactive = indices(choice.biactive)
    if not choice.complementary:
        return StationarityCertificate(biactive=biactive)
    proof = _Proof(mpcc, at, program.with_zero_rows(choice.forced), choice, -tolerance * program.scale, deadline)
    # Multipliers of the solver usually prove S at once, without a linear program.
    dual, bound = proof.program.weak_duality(proof.rows_of(multipliers))
    if bound >= proof.limit:
        # The zero step has slope 0, so that a positive bound is a rounding error.
        return proof.certificate(Stationarity.S, dual, True, min(bound, 0.0))
    lpec = local_lpec(at, program, choice, radius, proof.limit, deadline)
    if lpec.dual is not None:
        # These multipliers belong to the program without products: they have the signs of S.
        return proof.certificate(Stationarity.S, lpec.dual, True, lpec.value, lpec)
    # No branch descends, but multipliers exist for each branch alone: those of one branch are reported.
    if lpec.stationary:
        return proof.certificate(
            Stationarity.B, proof.prove(program.with_zero_rows(lpec.zero))[0], True, lpec.value, lpec
        )
    kind, dual = proof.weaker()
    return proof.certificate(kind, dual, lpec.stationary, lpec.value, lpec)


def feasibility_certificate(mpcc: MPCC, values: Values, tolerance: float) -> StationarityCertificate:
    """Return the certificate of a feasible point of a problem without an objective: S-stationary, zero multipliers.

    It is UNKNOWN if some group has neither side zero; bounds and constraints are not tested here.
    """
    left, right = _positive_sides(mpcc, values, tolerance)
    biactive = biactive_groups(mpcc, values, tolerance)
    if (left & right).any() or not np.isfinite(values.objective):
        return StationarityCertificate(biactive=biactive)
    return StationarityCertificate(
        stationarity=Stationarity.S,
        b_stationary=True,
        lpec_value=0.0,
        residual=0.0,
        biactive=biactive,
        multipliers=Multipliers.zeros(mpcc),
    )


def biactive_groups(mpcc: MPCC, values: Values, tolerance: float) -> tuple[int, ...]:
    """Return the groups with both sides zero."""
    left, right = _positive_sides(mpcc, values, tolerance)
    return indices(~left & ~right)


def indices(mask: np.ndarray) -> tuple[int, ...]:
    """Return the indices at which a mask is True."""
    return tuple(int(k) for k in np.flatnonzero(mask))


def _positive_sides(mpcc: MPCC, values: Values, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """Return masks of the groups with a positive row (or NaN) on the left, and on the right."""
    left, right = mpcc.members
    # Written so that NaN compares False and counts as positive: it can never make a pair complementary.
    return ~left.all(tolerance >= values.G), ~right.all(tolerance >= values.H)


def _check_sizes(mpcc: MPCC, w: np.ndarray, held: np.ndarray | None, multipliers: Multipliers | None) -> None:
    vectors = {"w": (w, "w"), "held": (held, "r")}
    vectors |= {f"multipliers of {f.name}": (getattr(multipliers, f.name, None), f.name) for f in fields(Multipliers)}
    for name, (value, rows) in vectors.items():
        symbols = getattr(mpcc, rows)
        if value is not None and np.shape(value) != (symbols.numel(),):
            raise TranscriptionError(f"{name}: expected shape ({symbols.numel()},), given {np.shape(value)}.")


def _infeasibility(mpcc: MPCC, at: Linearization, w: np.ndarray, held: np.ndarray) -> float:
    parts = [outside(w, mpcc.lbw, mpcc.ubw), outside(at.g, mpcc.lbg, mpcc.ubg), -at.G, -at.H, np.abs(at.r[held])]
    return float(np.concatenate(parts).max(initial=0.0))


@dataclass(frozen=True, eq=False)
class _Proof:
    """Search for multipliers at one point; in `program` the forced rows are fixed to zero.

    Every kind of stationarity prescribes signs of nu, and signs of multipliers are limits on the rows of a linear
    program: nu free is a row fixed to zero, nu >= 0 a row that may grow, nu <= 0 a row that may shrink, nu = 0 no
    limit. The multipliers of this program have the smallest |grad L|_1, and its bound proves the kind.
    """

    mpcc: MPCC
    at: Linearization
    program: LocalProgram
    choice: Choice
    limit: float
    deadline: float

    def rows_of(self, multipliers: Multipliers | None) -> np.ndarray:
        """Return multipliers of the rows g, G, H, r; those of bounds that repeat a row are moved to the row."""
        if multipliers is None or not all(np.isfinite(getattr(multipliers, f.name)).all() for f in fields(multipliers)):
            return np.zeros(self.at.rows.size)
        # nu enters the Lagrangian with a minus sign, multipliers of rows with a plus.
        dual = np.concatenate([multipliers.g, -multipliers.G, -multipliers.H, multipliers.r])
        plain = np.concatenate([self.mpcc.G_variable, self.mpcc.H_variable])
        row = self.at.offsets[1] + np.arange(plain.size)
        move = (plain >= 0) & (self.program.slack[row] == 0.0) & (self.program.box_lower[plain] == -1.0)
        # A variable may be a row of G and of H; its multiplier may be moved to one of them only.
        index, first = np.unique(plain[move], return_index=True)
        dual[row[move][first]] += multipliers.w[index]
        return dual

    def prove(self, program: LocalProgram) -> tuple[np.ndarray, bool]:
        """Return the best multipliers with the signs of this program, and whether they prove its kind."""
        dual = program.solve(self.deadline).dual
        # Multipliers that contribute nothing but rounding errors would fail the tests of signs.
        noise = np.abs(dual) * row_maxima(program.matrix) <= 1e-10 * program.scale
        dual, bound = program.weak_duality(np.where(noise, 0.0, dual))
        return dual, bound >= self.limit

    def weaker(self) -> tuple[Stationarity, np.ndarray]:
        """Return the strongest of M, C and W that is proved, or UNKNOWN, with its multipliers."""
        groups, open_ = self.choice.groups, self.choice.open
        free = groups.rows(open_, open_, self.at.rows.size) & ~self.choice.forced
        dual, weak = self.prove(self.limited(free, free, free))
        if not weak:
            return Stationarity.UNKNOWN, dual
        for kind in (Stationarity.M, Stationarity.C):
            better = self.search(kind, free)
            if better is not None:
                return kind, better
        return Stationarity.W, dual

    def search(self, kind: Stationarity, free: np.ndarray) -> np.ndarray | None:
        """Search multipliers of kind M or C: first with free signs, then by branching on a group that violates it."""
        sides = [  # left and right rows of every open group, on whose multipliers the kinds differ
            [side.row[(side.group == k) & free[side.row]] for side in self.choice.groups.sides]
            for k in np.flatnonzero(self.choice.open)
        ]
        # Depth first: one admissible set of signs is enough, whichever it is.
        stack, nodes = [(free, free)], 0
        while stack and nodes < _NODES and time.monotonic() < self.deadline:
            (positive, negative), nodes = stack.pop(), nodes + 1
            dual, proved = self.prove(self.limited(free, positive, negative))
            # Fewer signs cannot give a better bound: the children of this node prove nothing either.
            if not proved:
                continue
            # nu = -dual, so that the smallest nu of a side is minus the largest multiplier.
            wrong = next((s for s in sides if not _legal(kind, -dual[s[0]].max(), -dual[s[1]].max())), None)
            if wrong is None:
                return dual
            stack += [(_without(positive, up), _without(negative, down)) for up, down in _modes(kind, *wrong)]
        return None

    def limited(self, free: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> LocalProgram:
        """Return the program in which free rows may have positive or negative nu (masks)."""
        lower = np.where(free, np.where(positive, 0.0, -np.inf), self.program.lower)
        upper = np.where(free, np.where(negative, 0.0, np.inf), self.program.upper)
        return replace(self.program, lower=lower, upper=upper)

    def certificate(
        self,
        kind: Stationarity,
        dual: np.ndarray,
        b_stationary: bool | None,
        value: float,
        lpec: LPECResult | None = None,
    ) -> StationarityCertificate:
        """Return the certificate with multipliers in the user's units.

        The remaining gradient of the Lagrangian is assigned to active bounds of variables, if it has the right sign.
        """
        program, at = self.program, self.at
        gradient = program.cost + program.exact.T @ dual
        # A gradient against an active bound of a variable is the multiplier of this bound.
        bounded = ((gradient > 0) & (program.box_lower > -1)) | ((gradient < 0) & (program.box_upper < 1))
        residual = np.abs(np.where(bounded, 0.0, gradient)).max(initial=0.0) / program.scale
        multipliers = Multipliers(
            w=np.where(bounded, -gradient, 0.0) / program.w_scale,
            g=dual[at.block(0)],
            # 0 - x instead of -x avoids negative zeros in printed multipliers.
            G=0.0 - dual[at.block(1)],
            H=0.0 - dual[at.block(2)],
            r=dual[at.block(3)],
        )
        return StationarityCertificate(
            stationarity=kind,
            b_stationary=b_stationary,
            lpec_value=value,
            residual=float(residual),
            biactive=indices(self.choice.biactive),
            multipliers=multipliers,
            lpec=lpec,
        )


def _without(mask: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the mask with some rows set to False."""
    mask = mask.copy()
    mask[rows] = False
    return mask


def _legal(kind: Stationarity, a: float, b: float) -> bool:
    """Return True if the smallest multipliers a, b of both sides of a group satisfy the condition of C or M."""
    return min(a, b) >= 0.0 or (a * b >= 0.0 if kind is Stationarity.C else a * b == 0.0)


def _modes(kind: Stationarity, left: np.ndarray, right: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield, for every way to satisfy the condition, rows that lose positive and rows that lose negative nu."""
    both = np.concatenate([left, right])
    if kind is Stationarity.C:  # one row on each side with nu <= 0
        yield from ((np.array([i, j]), both[:0]) for i in left for j in right)
    else:  # the smallest of one side is zero
        yield from ((np.array([i]), side) for side in (left, right) for i in side)
    yield both[:0], both
