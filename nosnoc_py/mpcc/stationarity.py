"""What kind of stationary point an MPCC's point is: W, C, M, S from multipliers, B from an LPEC.

With the Lagrangian L = f + g'lambda_g + w'lambda_w - G'nu_G - H'nu_H + r'lambda_r every kind asks for grad L = 0,
for the usual signs of lambda_g and lambda_w, and for nu = 0 on positive rows. A row that a positive partner in some
group forces to zero has a free multiplier, a row at zero without such a choice a nonnegative one. In a group with
both sides zero let a and b be the smallest multiplier on its left and on its right side. Then the point is

    W-stationary without further condition,
    C-stationary if a b >= 0,
    M-stationary if a, b >= 0 or a b = 0,
    S-stationary if a, b >= 0,      for every such group.

For one row on each side these are the textbook definitions. For larger groups M is the limiting normal cone of "all of
the left side or all of the right side is zero". A row shared by several groups has to meet the condition of each with
its one multiplier, which is sufficient: a point may be called too little, never too much.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from nosnoc_py.errors import TranscriptionError
from nosnoc_py.mpcc.linearization import UNLIMITED, Linearization, LocalProgram, local_program, row_maxima
from nosnoc_py.mpcc.lpec import Choice, Groups, LPECResult, choose, held_rows, local_lpec
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.residuals import Values, outside
from nosnoc_py.status import Stationarity

_NODES = 100  # linear programs spent on M, and on C


@dataclass(frozen=True, eq=False, kw_only=True)
class Multipliers:
    """Multipliers in the user's units; the Lagrangian is f + g'lambda_g + w'lambda_w - G'nu_G - H'nu_H + r'lambda_r.

    lambda is >= 0 at an active upper and <= 0 at an active lower bound. Where a variable is a row of G or H itself,
    the multiplier of its bound at zero is counted in nu.
    """

    w: np.ndarray
    g: np.ndarray
    G: np.ndarray
    H: np.ndarray
    r: np.ndarray

    @classmethod
    def zeros(cls, mpcc: MPCC) -> Multipliers:
        """Nothing presses."""
        return cls(**{field.name: np.zeros(getattr(mpcc, field.name).numel()) for field in fields(cls)})


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class StationarityCertificate:
    """What is known about a point.

    Attributes
    ----------
    stationarity : Stationarity
        The strongest kind that holds, in the order S, B, M, C, W.
    b_stationary : bool or None
        Verdict of the LPEC; None when there is none.
    lpec_value : float
        Smallest slope of the objective along feasible directions of size one in scaled variables; where there is no
        descent, a lower bound on it. 0 at a B-stationary point, NaN without a verdict.
    residual : float
        Largest entry of the gradient of the Lagrangian in scaled variables, over max(1, |grad f|).
    biactive : tuple of int
        Groups with both sides zero.
    multipliers : Multipliers, optional
        Those the residual belongs to: at a B-stationary point that is not S, those of one branch.
    lpec : LPECResult, optional
        Its step leads out of a point that is not B-stationary; None where no LPEC was needed.
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
    """Find the strongest kind of stationarity that can be proved at w.

    S comes first and needs no LPEC: multipliers with the signs of S prove by weak duality that no branch has a slope
    below -|grad L|_1 - (multipliers times slacks) / radius, and this number is what is compared with the tolerance. So
    S includes B, with the same meaning of the tolerance. A point that is infeasible or has a group with neither side
    zero is of no kind.

    Parameters
    ----------
    mpcc : MPCC
    at : Linearization
        At w.
    w : ndarray (n_w,)
    multipliers : Multipliers, optional
        Of a solver, tried first. Wrong signs are set to zero, so anything may be given.
    held : bool ndarray (n_r,), optional
        Switched equations that are imposed; by default `lpec.held_rows`.
    tolerance : float
        On slopes and on the gradient of the Lagrangian, over max(1, |grad f|_inf).
    biactive_tolerance : float
        What counts as zero, in the user's units.
    feasibility_tolerance : float
        In the user's units.
    radius : float
        Of the LPEC, in scaled variables.
    time_limit : float, optional
        In seconds.

    Raises
    ------
    TranscriptionError
        If the sizes of w, held or the multipliers do not fit.
    """
    _check_sizes(mpcc, w, held, multipliers)
    deadline = time.monotonic() + (UNLIMITED if time_limit is None else time_limit)
    held = held_rows(mpcc, at, biactive_tolerance) if held is None else np.asarray(held, bool)
    if not at.finite or _infeasibility(mpcc, at, w, held) > feasibility_tolerance:
        return StationarityCertificate()
    program = local_program(mpcc, at, w, radius=radius, tolerance=biactive_tolerance, held=held)
    choice = choose(Groups(mpcc, at), program, at)
    biactive = indices(choice.biactive)
    if not choice.complementary:
        return StationarityCertificate(biactive=biactive)
    proof = _Proof(mpcc, at, program.holding(choice.forced), choice, -tolerance * program.scale, deadline)
    dual, bound = proof.program.weak_duality(proof.rows_of(multipliers))
    if bound >= proof.limit:
        return proof.certificate(Stationarity.S, dual, True, min(bound, 0.0))
    lpec = local_lpec(at, program, choice, radius, proof.limit, deadline)
    if lpec.dual is not None:
        return proof.certificate(Stationarity.S, lpec.dual, True, lpec.value, lpec)
    if lpec.stationary:
        return proof.certificate(Stationarity.B, proof.prove(program.holding(lpec.zero))[0], True, lpec.value, lpec)
    kind, dual = proof.weaker()
    return proof.certificate(kind, dual, lpec.stationary, lpec.value, lpec)


def trivial(mpcc: MPCC, values: Values, tolerance: float) -> StationarityCertificate:
    """The certificate of a feasible point where the objective is constant: S-stationary with zero multipliers.

    UNKNOWN where some group has neither side zero; that bounds and constraints hold is for the caller to know.
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
    """Groups with both sides zero."""
    left, right = _positive_sides(mpcc, values, tolerance)
    return indices(~left & ~right)


def indices(mask: np.ndarray) -> tuple[int, ...]:
    """Where a mask holds."""
    return tuple(int(k) for k in np.flatnonzero(mask))


def _positive_sides(mpcc: MPCC, values: Values, tolerance: float) -> tuple[np.ndarray, np.ndarray]:
    """Groups with a positive row (or one that is no number) on the left, and on the right."""
    left, right = mpcc.members
    return ~left.all(tolerance >= values.G), ~right.all(tolerance >= values.H)


def _check_sizes(mpcc: MPCC, w: np.ndarray, held: np.ndarray | None, multipliers: Multipliers | None) -> None:
    given = {"w": (w, "w"), "held": (held, "r")}
    given |= {f"multipliers of {f.name}": (getattr(multipliers, f.name, None), f.name) for f in fields(Multipliers)}
    for name, (value, rows) in given.items():
        symbols = getattr(mpcc, rows)
        if value is not None and np.shape(value) != (symbols.numel(),):
            raise TranscriptionError(f"{name}: expected shape ({symbols.numel()},), given {np.shape(value)}.")


def _infeasibility(mpcc: MPCC, at: Linearization, w: np.ndarray, held: np.ndarray) -> float:
    parts = [outside(w, mpcc.lbw, mpcc.ubw), outside(at.g, mpcc.lbg, mpcc.ubg), -at.G, -at.H, np.abs(at.r[held])]
    return float(np.concatenate(parts).max(initial=0.0))


@dataclass(frozen=True, eq=False)
class _Proof:
    """The search for multipliers at one point; `program` holds the forced rows at zero.

    Every kind of stationarity is a set of signs of nu, and every such set turns into limits on the rows of a linear
    program: nu free is a row held at zero, nu >= 0 a row that may grow, nu <= 0 one that may shrink, nu = 0 none at
    all. Its multipliers have the smallest |grad L|_1, and its bound is what proves the kind.
    """

    mpcc: MPCC
    at: Linearization
    program: LocalProgram
    choice: Choice
    limit: float
    deadline: float

    def rows_of(self, given: Multipliers | None) -> np.ndarray:
        """Multipliers of the rows g, G, H, r; those of bounds of rows at zero are moved to the row."""
        if given is None or not all(np.isfinite(getattr(given, field.name)).all() for field in fields(given)):
            return np.zeros(self.at.rows.size)
        dual = np.concatenate([given.g, -given.G, -given.H, given.r])
        plain = np.concatenate([self.mpcc.G_variable, self.mpcc.H_variable])
        row = self.at.offsets[1] + np.arange(plain.size)
        move = (plain >= 0) & (self.program.slack[row] == 0.0) & (self.program.box_lower[plain] == -1.0)
        index, first = np.unique(plain[move], return_index=True)
        dual[row[move][first]] += given.w[index]
        return dual

    def prove(self, program: LocalProgram) -> tuple[np.ndarray, bool]:
        """The best multipliers with the signs of this program, and whether they are good enough."""
        dual = program.solve(self.deadline).dual
        noise = np.abs(dual) * row_maxima(program.matrix) <= 1e-10 * program.scale
        dual, bound = program.weak_duality(np.where(noise, 0.0, dual))
        return dual, bound >= self.limit

    def weaker(self) -> tuple[Stationarity, np.ndarray]:
        """M, C, W or nothing."""
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
        """Multipliers that are M or C: free signs first, then branch on a group that is neither."""
        sides = [  # rows on the left and on the right of an open group whose multipliers the kinds differ in
            [side.row[(side.group == k) & free[side.row]] for side in self.choice.groups.sides]
            for k in np.flatnonzero(self.choice.open)
        ]
        stack, nodes = [(free, free)], 0
        while stack and nodes < _NODES and time.monotonic() < self.deadline:
            (positive, negative), nodes = stack.pop(), nodes + 1
            dual, proved = self.prove(self.limited(free, positive, negative))
            if not proved:
                continue
            wrong = next((s for s in sides if not _legal(kind, -dual[s[0]].max(), -dual[s[1]].max())), None)
            if wrong is None:
                return dual
            stack += [(_without(positive, up), _without(negative, down)) for up, down in _modes(kind, *wrong)]
        return None

    def limited(self, free: np.ndarray, positive: np.ndarray, negative: np.ndarray) -> LocalProgram:
        """The program whose free rows may have positive or negative nu (masks)."""
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
        """Put the multipliers into the user's units; what is left of the gradient goes to the bounds that are near."""
        program, at = self.program, self.at
        gradient = program.cost + program.exact.T @ dual
        bounded = ((gradient > 0) & (program.box_lower > -1)) | ((gradient < 0) & (program.box_upper < 1))
        residual = np.abs(np.where(bounded, 0.0, gradient)).max(initial=0.0) / program.scale
        multipliers = Multipliers(
            w=np.where(bounded, -gradient, 0.0) / program.w_scale,
            g=dual[at.block(0)],
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
    """The mask without some rows."""
    left = mask.copy()
    left[rows] = False
    return left


def _legal(kind: Stationarity, a: float, b: float) -> bool:
    """The condition on the smallest multipliers of both sides of a group."""
    return min(a, b) >= 0.0 or (a * b >= 0.0 if kind is Stationarity.C else a * b == 0.0)


def _modes(kind: Stationarity, left: np.ndarray, right: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Rows that lose positive and rows that lose negative multipliers, in every way to meet the condition."""
    both = np.concatenate([left, right])
    if kind is Stationarity.C:  # one row on each side with nu <= 0
        yield from ((np.array([i, j]), both[:0]) for i in left for j in right)
    else:  # the smallest of one side is zero
        yield from ((np.array([i]), side) for side in (left, right) for i in side)
    yield both[:0], both
