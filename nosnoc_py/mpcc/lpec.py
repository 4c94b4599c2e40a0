"""Linear program with complementarity constraints (LPEC): test whether a branch of an MPCC descends to first order.

    minimise    grad'd
    subject to  linearised bounds, constraints, nonnegativities and imposed switched equations,
                |d_i| <= radius w_scale_i,
                in every group: all left rows zero or all right rows zero.

A point is B-stationary if and only if the optimal value is 0 (Scheel & Scholtes 2000; Kirches, Larson, Leyffer, Manns
2022). Verdicts:

- "No descent" is a lower bound on the value, computed from multipliers by weak duality, so that tolerances of the LP
  solver do not matter. The multipliers are those of the LP without products, otherwise those of the LPs of a search
  over branches. Only if that search is too long, it is the bound of the mixed-integer program.
- "Descent" is a direction in one branch, from an LP solved to 1e-10 with this branch fixed. The mixed-integer program
  alone accepts violations of 1e-6, which times a large multiplier look like descent.

Most groups have no choice within the small box (`choose`); binaries are needed for biactive groups only.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from nosnoc_py.mpcc.linearization import Linearization, LocalProgram, LPSolution, row_maxima, rows_divided, seconds_left
from nosnoc_py.mpcc.program import MPCC, Side
from nosnoc_py.mpcc.quiet import suppress_highs_output

_NODES = 50  # maximum number of linear programs in a search over branches
_MAGNIFY = 1e3  # factor of the variables: the mixed-integer solver has absolute tolerances, which become smaller by it


@dataclass(frozen=True, eq=False, kw_only=True)
class LPECResult:
    """Result of an LPEC at a point.

    Attributes
    ----------
    value : float
        Slope of the objective per unit of scaled step, <= 0: a lower bound on it without descent, the slope along d
        with descent. NaN without a verdict.
    d : ndarray (n_w,)
        Step in the user's units; zero without descent.
    zero : bool ndarray (n,)
        Mask over the rows g, G, H, r of those that are zero in the branch of d: one side of every group.
    status : str
        "optimal", "infeasible" (no branch within the radius), "time limit" or "failed".
    limit : float
        Slopes below this count as descent.
    dual : ndarray (n,), optional
        Multipliers of the rows g, G, H, r that prove the value without the products; they exist at S-stationary points.
    """

    value: float
    d: np.ndarray
    zero: np.ndarray
    status: str
    limit: float = np.nan
    dual: np.ndarray | None = None

    @property
    def stationary(self) -> bool | None:
        """True if value >= limit; None without a verdict."""
        return None if np.isnan(self.value) else bool(self.value >= self.limit)


def local_lpec(
    at: Linearization, program: LocalProgram, choice: Choice, radius: float, limit: float, deadline: float
) -> LPECResult:
    """Solve the LPEC of a local program; slopes below `limit` count as descent."""
    # A zero gradient descends in no direction: no program is solved.
    if at.grad.any():
        answer = solve_local(program.with_zero_rows(choice.forced), choice, limit, deadline)
    else:
        dual = np.zeros(at.rows.size) if choice.complementary else None
        answer = LPECResult(value=0.0, d=np.zeros(at.grad.size), zero=choice.zero, status="optimal", dual=dual)
    return replace(answer, d=answer.d * radius * program.w_scale, limit=limit)


def imposed_equations(mpcc: MPCC, at: Linearization, tolerance: float = 1e-8) -> np.ndarray:
    """Return the mask of the enforced switched equations whose indicators are positive at this point.

    A branch may switch on further equations, which the LPEC leaves out: its value is then a lower bound, and a verdict
    "B-stationary" remains valid.
    """
    if not mpcc.enforced.any():
        return np.zeros(at.r.size, bool)
    return mpcc.enforced & mpcc.switched_on(tolerance >= at.G, tolerance >= at.H)


class Groups:
    """Groups of an MPCC as index arrays into the rows g, G, H, r: member k is row[k] of group[k]."""

    def __init__(self, mpcc: MPCC, at: Linearization) -> None:
        self.count = len(mpcc.groups)
        self.left = Side.of([group.left for group in mpcc.groups], at.offsets[1])
        self.right = Side.of([group.right for group in mpcc.groups], at.offsets[2])
        self.sides = (self.left, self.right)

    def rows(self, left: np.ndarray, right: np.ndarray, size: int) -> np.ndarray:
        """Return the mask of the left rows of the groups `left` and the right rows of the groups `right`."""
        return self.left.rows(left, size) | self.right.rows(right, size)

    def smaller(self, at: Linearization) -> np.ndarray:
        """Return per group whether the left side is the smaller one."""
        return self.left.largest(np.abs(at.rows)) < self.right.largest(np.abs(at.rows))


# Node of a search over branches: masks of the groups whose left, and whose right side is fixed to zero.
Node = tuple[np.ndarray, np.ndarray]


def branch_on_group(node: Node, on_left: np.ndarray, on_right: np.ndarray, undecided: np.ndarray) -> list[Node]:
    """Return the two children of a node, the more promising one last.

    The group is the undecided one that is farthest from both sides.
    """
    worst = np.zeros(undecided.size, bool)
    worst[np.argmax(np.where(undecided, np.minimum(on_left, on_right), -np.inf))] = True
    children = [(node[0] | worst, node[1]), (node[0], node[1] | worst)]
    return children if on_left[worst] > on_right[worst] else children[::-1]


@dataclass(frozen=True, eq=False, kw_only=True)
class Choice:
    """Decision about every group within the box of a local program.

    Attributes
    ----------
    groups : Groups
    forced : bool ndarray (n,)
        Rows that are fixed to zero in every branch.
    open : bool ndarray (n_groups,)
        Groups of which either side may be zero.
    biactive : bool ndarray (n_groups,)
        Groups with both sides zero.
    complementary : bool
        Every group has a side that is zero.
    closed : bool ndarray (n,)
        The forced rows, and the smaller side of groups of which no side can reach zero.
    guess : bool ndarray (n,)
        The smaller side of every open group.
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
        """Mask of one side of every group."""
        return self.closed | self.guess


def decide_groups(groups: Groups, program: LocalProgram, at: Linearization) -> Choice:
    """Decide all groups that leave no choice within the box."""
    zero = program.slack == 0.0
    left, right = (side.all(zero) for side in groups.sides)
    # A row can be zero inside the box if its smallest value is at most minus its present value.
    within = program.lowest <= -program.slack
    reach_left, reach_right = (side.all(within) for side in groups.sides)
    near_left, near_right = (side.all(program.near) for side in groups.sides)
    neither, both = ~left & ~right, left & right
    almost = (left & ~right & near_right) | (right & ~left & near_left)  # biactive but for a step below the tolerance
    # One side zero and the other clearly positive, or only one side within reach: no choice.
    force_left = (left & ~right & ~almost) | (neither & reach_left & ~reach_right)
    force_right = (right & ~left & ~almost) | (neither & reach_right & ~reach_left)
    forced = groups.rows(force_left, force_right, at.rows.size)
    idle = forced | (zero & (program.highest <= 0.0))  # rows that stay at zero for every feasible step
    idle_left, idle_right = (side.all(idle) for side in groups.sides)
    forced |= groups.rows(idle_left, idle_right & ~idle_left, at.rows.size)
    open_ = (both | almost | (neither & reach_left & reach_right)) & ~idle_left & ~idle_right
    unreachable = neither & ~reach_left & ~reach_right & ~idle_left & ~idle_right
    smaller = groups.smaller(at)
    return Choice(
        groups=groups,
        forced=forced,
        open=open_,
        biactive=both,
        complementary=not neither.any(),
        closed=forced | groups.rows(unreachable & smaller, unreachable & ~smaller, at.rows.size),
        guess=groups.rows(open_ & smaller, open_ & ~smaller, at.rows.size),
    )


def solve_local(program: LocalProgram, choice: Choice, limit: float, deadline: float) -> LPECResult:
    """Solve the LPEC without products, then with binaries, then, if these were not exact enough, branch by branch.

    The step `d` of the result is in units of the program, and its `limit` is not yet set.
    """
    still = np.zeros(program.cost.size)
    if choice.complementary or not choice.open.any():
        answer = program.solve(deadline)
        if answer.status != "optimal":
            return LPECResult(value=np.nan, d=still, zero=choice.zero, status=answer.status)
        if choice.complementary and answer.bound >= limit:
            # The zero step is feasible and has slope 0: a positive bound is a rounding error.
            value = min(answer.bound, 0.0)
            return LPECResult(value=value, d=still, zero=choice.zero, status="optimal", dual=answer.dual)
        if not choice.open.any():
            return _decided_result(choice, limit, answer, choice.zero)
    side, bound, status = _mixed(program, choice, deadline)
    if side is not None and (bound < limit or not choice.complementary):
        answer = program.with_zero_rows(choice.forced | side).solve(deadline)
        # Descent counts only in the LP with this branch fixed; the mixed-integer value itself is not trusted.
        if answer.value < limit or not choice.complementary:
            return _decided_result(choice, limit, answer, choice.closed | side)
    if not choice.complementary:
        return LPECResult(value=np.nan, d=still, zero=choice.zero, status=status)
    proof = _search(program, choice, limit, deadline)
    if np.isnan(proof.value) and bound >= limit and program.clean:
        return LPECResult(value=min(bound, 0.0), d=still, zero=choice.zero, status="optimal")
    return proof


def _decided_result(choice: Choice, limit: float, answer: LPSolution, zero: np.ndarray) -> LPECResult:
    """Return the result of an LP with all groups decided; without descent and without a proof there is no verdict."""
    if choice.complementary and not answer.value < limit:
        return LPECResult(value=np.nan, d=np.zeros(answer.e.size), zero=zero, status="failed")
    return LPECResult(value=answer.value, d=answer.e, zero=zero, status=answer.status)


def _search(program: LocalProgram, choice: Choice, limit: float, deadline: float) -> LPECResult:
    """Search by branch and bound with LPs for a branch that descends, or for the bound that none does.

    The mixed-integer program finds the best of many branches faster, but its tolerances times a large multiplier may
    show descent in a branch without, or hide descent.
    """
    groups, bound = choice.groups, 0.0
    still, nothing = np.zeros(program.cost.size), np.zeros(groups.count, bool)
    stack, nodes = [(nothing, nothing)], 0
    while stack:
        left, right = stack.pop()
        nodes += 1
        zero = choice.forced | groups.rows(left, right, program.slack.size)
        answer = program.with_zero_rows(zero).solve(deadline)
        undecided = choice.open & ~left & ~right
        if answer.status != "optimal" or nodes > _NODES or time.monotonic() > deadline:
            # A search that is cut off has no verdict: unexplored branches may descend.
            status = "time limit" if answer.status == "optimal" else answer.status
            return LPECResult(value=np.nan, d=still, zero=choice.zero, status=status)
        if answer.bound >= limit:
            bound = min(bound, answer.bound)
        elif not undecided.any():
            return _decided_result(choice, limit, answer, zero | choice.closed)
        else:
            moved = program.matrix @ answer.e
            stack += branch_on_group((left, right), groups.left.largest(moved), groups.right.largest(moved), undecided)
    return LPECResult(value=bound, d=still, zero=choice.zero, status="optimal")


def _mixed(program: LocalProgram, choice: Choice, deadline: float) -> tuple[np.ndarray | None, float, str]:
    """Solve the mixed-integer program with one binary for every open group (big-M form; bounds from the box).

    Returns
    -------
    side : bool ndarray (n,) or None
        Side of every open group that is zero in the best branch found.
    bound : float
        Lower bound on the value.
    status : str
    """
    from scipy import sparse  # heavy: only those who certify pay for it
    from scipy.optimize import Bounds, LinearConstraint, milp

    groups, size = choice.groups, program.cost.size
    count, column = int(choice.open.sum()), np.cumsum(choice.open) - 1
    # Rows of size one make big-M coefficients comparable and absolute tolerances relative.
    norm = row_maxima(program.matrix)
    matrix = rows_divided(program.matrix, norm)
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
    with suppress_highs_output():
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
    # Variables were magnified, and the cost with them; the value is divided again.
    bound = -np.inf if answer.mip_dual_bound is None else answer.mip_dual_bound * program.scale / _MAGNIFY
    left = np.zeros(groups.count, bool)
    # z = 0 closes the span of the left side: left rows are zero.
    left[choice.open] = answer.x[size:] < 0.5
    return groups.rows(choice.open & left, choice.open & ~left, norm.size), bound, "optimal"
