"""The linear program with complementarity constraints (LPEC): does any branch of an MPCC descend to first order?

minimise    grad'd
subject to  the linearised bounds, constraints, nonnegativities and held switched equations, |d_i| <= radius w_scale_i,
            in every group: all left rows zero or all right rows zero.

A point is B-stationary exactly when the value is 0. What the verdict rests on:

- "No descent" is a lower bound on the value from multipliers, by weak duality and computed here, so that no tolerance
  of the solver enters: mostly those of the LP without products, otherwise those of the LPs of a search over branches.
  Only where that search gets too long it is the bound of the mixed-integer program.
- "Descent" is a direction in one branch, from an LP solved to 1e-10 with this branch fixed: the mixed-integer program
  alone accepts violations of 1e-6, which times a large multiplier looks like descent.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from nosnoc_py.mpcc.linearization import LinearAnswer, Linearization, LocalProgram, divided, row_maxima, seconds_left
from nosnoc_py.mpcc.program import MPCC, Side
from nosnoc_py.mpcc.quiet import without_lines_of_highs

_NODES = 50  # linear programs spent on a search over branches
_MAGNIFY = 1e3  # the mixed-integer solver's tolerances are absolute: larger numbers make them smaller


@dataclass(frozen=True, eq=False, kw_only=True)
class LPECResult:
    """What the LPEC says about a point.

    Attributes
    ----------
    value : float
        Slope of the objective per unit of scaled step, <= 0: a lower bound on it where there is no descent, the slope
        along d where there is. NaN without a verdict.
    d : ndarray (n_w,)
        Step in the user's units; zero where there is no descent.
    zero : bool ndarray (n,)
        Of the rows g, G, H, r those of G and H that are zero in the branch of d: in every group one side.
    status : str
        "optimal", "infeasible" (no branch within the radius), "time limit" or "failed".
    limit : float
        Slopes below this count as descent.
    dual : ndarray (n,), optional
        Multipliers of the rows g, G, H, r that prove the value without looking at the products: they exist where the
        point is S-stationary.
    """

    value: float
    d: np.ndarray
    zero: np.ndarray
    status: str
    limit: float = np.nan
    dual: np.ndarray | None = None

    @property
    def stationary(self) -> bool | None:
        """value >= limit; None without a verdict."""
        return None if np.isnan(self.value) else bool(self.value >= self.limit)


def local_lpec(
    at: Linearization, program: LocalProgram, choice: Choice, radius: float, limit: float, deadline: float
) -> LPECResult:
    """Solve the LPEC of a local program; slopes below `limit` count as descent."""
    if at.grad.any():
        answer = solve_local(program.holding(choice.forced), choice, limit, deadline)
    else:
        dual = np.zeros(at.rows.size) if choice.complementary else None
        answer = LPECResult(value=0.0, d=np.zeros(at.grad.size), zero=choice.zero, status="optimal", dual=dual)
    return replace(answer, d=answer.d * radius * program.w_scale, limit=limit)


def held_rows(mpcc: MPCC, at: Linearization, tolerance: float = 1e-8) -> np.ndarray:
    """Switched equations that hold at this point, where solvers are told to impose them.

    Their indicators are sums and products of G and H, evaluated here on zeros and ones. A branch may switch on further
    ones, which the LPEC leaves out: its value is then a lower bound, and no verdict "B" is wrong.
    """
    if not mpcc.enforced.any():
        return np.zeros(at.r.size, bool)
    return mpcc.enforced & mpcc.switched_on(tolerance >= at.G, tolerance >= at.H)


class Groups:
    """The groups of an MPCC as index arrays into the rows g, G, H, r: member k is row[k] of group[k]."""

    def __init__(self, mpcc: MPCC, at: Linearization) -> None:
        self.count = len(mpcc.groups)
        self.left = Side.of([group.left for group in mpcc.groups], at.offsets[1])
        self.right = Side.of([group.right for group in mpcc.groups], at.offsets[2])
        self.sides = (self.left, self.right)

    def rows(self, left: np.ndarray, right: np.ndarray, size: int) -> np.ndarray:
        """Mask of the rows on the left of the groups `left` and on the right of the groups `right`."""
        return self.left.rows(left, size) | self.right.rows(right, size)

    def smaller(self, at: Linearization) -> np.ndarray:
        """Per group: the left side is the smaller one."""
        return self.left.largest(np.abs(at.rows)) < self.right.largest(np.abs(at.rows))


# The groups whose left, and whose right side is held at zero in a search over branches.
Node = tuple[np.ndarray, np.ndarray]


def divided_node(node: Node, on_left: np.ndarray, on_right: np.ndarray, undecided: np.ndarray) -> list[Node]:
    """The two children of a node in the group that is farthest from either side, the more promising one last."""
    worst = np.zeros(undecided.size, bool)
    worst[np.argmax(np.where(undecided, np.minimum(on_left, on_right), -np.inf))] = True
    children = [(node[0] | worst, node[1]), (node[0], node[1] | worst)]
    return children if on_left[worst] > on_right[worst] else children[::-1]


@dataclass(frozen=True, eq=False, kw_only=True)
class Choice:
    """What is decided about the groups and what is not.

    Attributes
    ----------
    forced : bool ndarray (n,)
        Rows that are brought to zero in every branch.
    open : bool ndarray (n_groups,)
        Groups that may take either side.
    biactive : bool ndarray (n_groups,)
        Groups with both sides zero.
    complementary : bool
        Every group has a side that is zero.
    closed : bool ndarray (n,)
        The forced rows, and the smaller side of groups that no side of can reach zero.
    guess : bool ndarray (n,)
        In every open group the side that is smaller.
    """

    groups: Groups
    forced: np.ndarray
    open: np.ndarray
    biactive: np.ndarray
    complementary: bool
    closed: np.ndarray
    guess: np.ndarray

    @property
    def zero(self) -> np.ndarray:
        """One side of every group."""
        return self.closed | self.guess


def choose(groups: Groups, program: LocalProgram, at: Linearization) -> Choice:
    """Decide every group that leaves no choice within the box."""
    zero = program.slack == 0.0
    left, right = (side.all(zero) for side in groups.sides)
    within = program.lowest <= -program.slack
    reach_left, reach_right = (side.all(within) for side in groups.sides)
    near_left, near_right = (side.all(program.near) for side in groups.sides)
    neither, both = ~left & ~right, left & right
    almost = (left & ~right & near_right) | (right & ~left & near_left)  # a tiny step away from both
    force_left = (left & ~right & ~almost) | (neither & reach_left & ~reach_right)
    force_right = (right & ~left & ~almost) | (neither & reach_right & ~reach_left)
    forced = groups.rows(force_left, force_right, at.rows.size)
    idle = forced | (zero & (program.highest <= 0.0))  # rows that stay at zero whatever is done
    settled_left, settled_right = (side.all(idle) for side in groups.sides)
    forced |= groups.rows(settled_left, settled_right & ~settled_left, at.rows.size)
    open_ = (both | almost | (neither & reach_left & reach_right)) & ~settled_left & ~settled_right
    stuck = neither & ~reach_left & ~reach_right & ~settled_left & ~settled_right
    smaller = groups.smaller(at)
    return Choice(
        groups=groups,
        forced=forced,
        open=open_,
        biactive=both,
        complementary=not neither.any(),
        closed=forced | groups.rows(stuck & smaller, stuck & ~smaller, at.rows.size),
        guess=groups.rows(open_ & smaller, open_ & ~smaller, at.rows.size),
    )


def solve_local(program: LocalProgram, choice: Choice, limit: float, deadline: float) -> LPECResult:
    """First without products, then with binaries, then, where these were not exact enough, branch by branch.

    The step `d` is in the units of the program here, and there is no limit yet.
    """
    still = np.zeros(program.cost.size)
    if choice.complementary or not choice.open.any():
        answer = program.solve(deadline)
        if answer.status != "optimal":
            return LPECResult(value=np.nan, d=still, zero=choice.zero, status=answer.status)
        if choice.complementary and answer.bound >= limit:
            value = min(answer.bound, 0.0)
            return LPECResult(value=value, d=still, zero=choice.zero, status="optimal", dual=answer.dual)
        if not choice.open.any():
            return _settled(choice, limit, answer, choice.zero)
    side, bound, status = _mixed(program, choice, deadline)
    if side is not None and (bound < limit or not choice.complementary):
        answer = program.holding(choice.forced | side).solve(deadline)
        if answer.value < limit or not choice.complementary:
            return _settled(choice, limit, answer, choice.closed | side)
    if not choice.complementary:
        return LPECResult(value=np.nan, d=still, zero=choice.zero, status=status)
    proof = _search(program, choice, limit, deadline)
    if np.isnan(proof.value) and bound >= limit and program.clean:
        return LPECResult(value=min(bound, 0.0), d=still, zero=choice.zero, status="optimal")
    return proof


def _settled(choice: Choice, limit: float, answer: LinearAnswer, zero: np.ndarray) -> LPECResult:
    """The answer of an LP with all groups decided; neither descent nor a proof that there is none is no verdict."""
    if choice.complementary and not answer.value < limit:
        return LPECResult(value=np.nan, d=np.zeros(answer.e.size), zero=zero, status="failed")
    return LPECResult(value=answer.value, d=answer.e, zero=zero, status=answer.status)


def _search(program: LocalProgram, choice: Choice, limit: float, deadline: float) -> LPECResult:
    """Branch and bound by LPs: the first branch that descends, or the bound that none does.

    The mixed-integer program finds the best of many branches faster, but its tolerances, times a large multiplier,
    may show descent in a branch that has none, or hide some.
    """
    groups, bound = choice.groups, 0.0
    still, nothing = np.zeros(program.cost.size), np.zeros(groups.count, bool)
    stack, nodes = [(nothing, nothing)], 0
    while stack:
        left, right = stack.pop()
        nodes += 1
        zero = choice.forced | groups.rows(left, right, program.slack.size)
        answer = program.holding(zero).solve(deadline)
        undecided = choice.open & ~left & ~right
        if answer.status != "optimal" or nodes > _NODES or time.monotonic() > deadline:
            status = "time limit" if answer.status == "optimal" else answer.status
            return LPECResult(value=np.nan, d=still, zero=choice.zero, status=status)
        if answer.bound >= limit:
            bound = min(bound, answer.bound)
        elif not undecided.any():
            return _settled(choice, limit, answer, zero | choice.closed)
        else:
            moved = program.matrix @ answer.e
            stack += divided_node((left, right), groups.left.largest(moved), groups.right.largest(moved), undecided)
    return LPECResult(value=bound, d=still, zero=choice.zero, status="optimal")


def _mixed(program: LocalProgram, choice: Choice, deadline: float) -> tuple[np.ndarray | None, float, str]:
    """The mixed-integer program, one binary for every open group.

    Returns
    -------
    side : bool ndarray (n,) or None
        The side of every open group that is zero in the best branch found.
    bound : float
        Lower bound on the value.
    status : str
    """
    from scipy import sparse  # heavy: only those who certify pay for it
    from scipy.optimize import Bounds, LinearConstraint, milp

    groups, size = choice.groups, program.cost.size
    count, column = int(choice.open.sum()), np.cumsum(choice.open) - 1
    norm = row_maxima(program.matrix)
    matrix = divided(program.matrix, norm)
    lower, upper, slack, highest = (
        part / norm for part in (program.lower, program.upper, program.slack, program.highest)
    )
    used = np.isfinite(lower) | np.isfinite(upper)
    blocks, limits = [[matrix[used], None]], [(lower[used], upper[used])]
    for side, sign in zip(groups.sides, (1.0, -1.0), strict=True):
        row, group = (part[choice.open[side.group]] for part in (side.row, side.group))
        span = highest[row] + slack[row]  # row + slack <= span z on the left, span (1 - z) on the right
        entries = (-sign * _MAGNIFY * span, (np.arange(row.size), column[group]))
        blocks.append([matrix[row], sparse.csr_array(entries, shape=(row.size, count))])
        limits.append((np.full(row.size, -np.inf), -slack[row] if sign > 0 else highest[row]))
    box = np.concatenate([program.box_lower, np.zeros(count)]), np.concatenate([program.box_upper, np.ones(count)])
    box[0][:size] *= _MAGNIFY
    box[1][:size] *= _MAGNIFY
    with without_lines_of_highs():
        answer = milp(
            np.concatenate([program.cost / program.scale, np.zeros(count)]),
            integrality=np.concatenate([np.zeros(size), np.ones(count)]),
            bounds=Bounds(*box),
            constraints=LinearConstraint(
                sparse.bmat(blocks, format="csc"),
                *(_MAGNIFY * np.concatenate(limit) for limit in zip(*limits, strict=True)),
            ),
            options={"time_limit": seconds_left(deadline)},
        )
    if answer.x is None:
        return None, -np.inf, {1: "time limit", 2: "infeasible"}.get(answer.status, "failed")
    bound = -np.inf if answer.mip_dual_bound is None else answer.mip_dual_bound * program.scale / _MAGNIFY
    left = np.zeros(groups.count, bool)
    left[choice.open] = answer.x[size:] < 0.5
    return groups.rows(choice.open & left, choice.open & ~left, norm.size), bound, "optimal"
