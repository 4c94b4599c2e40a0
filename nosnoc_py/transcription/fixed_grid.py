"""An OCP on a fixed grid as a convex QPCC in the controls and the contact forces: the order of contacts is free in it.

Steps of fixed length, without switch detection: errors are of first order in the step, and an impact may come anywhere
in its step, so that no order of contacts has to be known. In one step

    x_{k+1} = x_k + h f(x_k, z_k, u_k),   0 <= a(x_{k+1}, z_k) perp b(z_k) >= 0,

with the states x, controls u and algebraic variables z of the DCS of the system. For mechanics positions move with the
velocity at the end of the step (Stewart and Trinkle 1996), and a gap with restitution e satisfies
gap_{k+1} + e (gap_k - h n'v_k) >= 0 (Paoli and Schatzman 2002). Velocities belong to the middle of steps, as in the
leapfrog scheme: the first step has half of the forces' impulse, later ones that of half of their own and half of the
step before, and the last one all that is left, which makes smooth motion of second order. Other systems move by a
linearly implicit midpoint rule, x_{k+1} = x_k + h (I - h f_x / 2)^{-1} f (Rosenbrock 1963), with the complementarities
at the end of the step.

`FixedGrid.linearised` expands all functions along a motion, eliminates the states, and returns a `Condensed` problem:
a QPCC (`mpcc.qpcc`) whose data depend linearly on the measured x_0. Costs are convexified: Gauss-Newton would need a
residual form, so negative curvature of the cost is left out. A control acts for one period, which has several steps
where pairs are few; later controls and steps are longer where the number of pairs would exceed `PAIRS` (move blocking).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.discretization.options import FESD, FESDJ, FiniteElementMethod
from nosnoc_py.errors import OptionError
from nosnoc_py.functions import buffered
from nosnoc_py.mpcc.qpcc import QPCC, QPCCResult
from nosnoc_py.ocp import OCP
from nosnoc_py.reformulation.dcs import DCS
from nosnoc_py.roles import Role
from nosnoc_py.soft_constraints import without_slacks
from nosnoc_py.systems.cls import CLS
from nosnoc_py.transcription.reformulate import dcs_of

Array = np.ndarray
# Pairs of a horizon: the time of a search doubles with every few of them. Steps are at least LEAST_STEPS.
# A period has at most MOST_INNER of them.
PAIRS, LEAST_STEPS, MOST_INNER = 24, 5, 4
# Curvature added to every unknown, relative to the largest one of typical values: forces that change nothing.
FLAT = 1e-8
# Least curvature of an unknown that the objective is linear in, relative to its slope, for typical values: its minimum
# without constraints would be so far that digits are lost. A linear cost of typical size changes by half of this.
LINEAR = 1e-3
# Price of the largest violation of the constraints of states in a step, relative to the largest curvature of the
# objective, each for typical values: an exact penalty (Fletcher 1975) unless a multiplier is larger.
# STIFF is the weight of its square: without it the minimum without constraints would be so far that digits are lost.
SOFT, STIFF = 1e3, 1e2
# Directions of a friction cone in space: every one is a pair.
DIRECTIONS = 4
# Sweeps of Jacobi's rotations; the smallest divisor.
SWEEPS, TINY = 6, 1e-12

# Limits of the programs in one search: a program takes a time in proportion to unknowns times rows, a few nanoseconds
# for each, and a search has to end within some ten milliseconds. A first plan has more time by a factor.
WORK, LEAST_NODES, MOST_NODES, FIRST_FACTOR = 3_000_000, 100, 300, 4
# Expansions for a first plan, and the relative change of its objective at which they end.
# During the feedback there is time for AGAIN_ROUNDS.
FIRST_ROUNDS, AGAIN_ROUNDS, SAME = 8, 2, 1e-3
# Tolerance of times that are the same, relative to a period, and of a whole number of periods.
SAME_TIME = 1e-6
# A state further than this from the expected one, in nominal values, is expanded anew: the functions are nonlinear.
FAR = 0.5


@dataclass(frozen=True, eq=False, kw_only=True)
class Motion:
    """States at the ends of the steps, with controls and algebraic variables of the steps.

    Attributes
    ----------
    x : (K + 1, n_x)
    u : (K, n_u)
    z : (K, n_z)
    sides : (pairs,) int
        Side of every pair that is zero, or -1.
    """

    x: Array
    u: Array
    z: Array
    sides: Array


@dataclass(frozen=True, eq=False, kw_only=True)
class FixedGrid:
    """Functions of the steps of an OCP.

    Attributes
    ----------
    ocp : OCP
    lengths : (K,)
        Lengths of the steps [s].
    moves : (K,) int
        Number of the control that acts in each step.
    pairs : (k, 2) int
        Rows of the pairs, those of the first step first.
    per_step : int
        Pairs of one step.
    n : (int, int, int)
        Numbers of states, controls and algebraic variables.
    condense : Function
        (X, U, Z, p) -> the data of `Condensed`.
    step : Function
        (x, u, z, p, (h, kick)) -> the state after a step.
    upper : (m,)
        Upper bounds of the rows.
    """

    ocp: OCP
    lengths: Array
    moves: Array
    pairs: Array
    per_step: int
    n: tuple[int, int, int]
    kicks: tuple[tuple[int, float, float], ...]
    condense: ca.Function
    step: ca.Function
    upper: Array

    @classmethod
    def of(cls, ocp: OCP, period: float, steps: int | None = None) -> FixedGrid:
        """Write the steps of an OCP; `steps` is their number, by default as many as pairs allow.

        Raises
        ------
        OptionError
            For a free horizon, free parameters, costs and constraints at single times, which a fixed grid of a few
            steps has no place for, and for equations of algebraic variables that are not independent.
        """
        _check(ocp)
        functions = _StepFunctions.of(ocp)
        lengths, moves = _lengths(float(ocp.horizon), period, functions.pairs, steps)
        kicks = tuple(_kick(lengths, k, functions.mechanical) for k in range(lengths.size))
        condense, upper, pairs = _condensation(functions, lengths, moves, kicks)
        return cls(
            ocp=ocp, lengths=lengths, moves=moves, pairs=pairs, per_step=functions.pairs, n=functions.n, kicks=kicks,
            condense=condense, step=functions.step, upper=upper,
        )  # fmt: skip

    @cached_property
    def own(self) -> int:
        """Number of controls without the slacks of soft constraints, which are behind them."""
        return int(without_slacks(self.ocp.system).n_u)

    @cached_property
    def _condense(self) -> Callable[..., list[Array]]:
        return buffered(self.condense)

    @property
    def nodes(self) -> int:
        """Limit of the programs of a search during the feedback."""
        rows, unknowns = self.condense.size_out(1)
        return int(np.clip(WORK // (rows * unknowns), LEAST_NODES, MOST_NODES))

    @property
    def times(self) -> Array:
        """Times of the ends of the steps (K + 1,), from zero."""
        return np.concatenate([[0.0], np.cumsum(self.lengths)])

    def at_rest(self, x: Array) -> Motion:
        """Return a motion that stays at x, without controls where the bounds allow it."""
        count, (_, n_u, n_z) = self.lengths.size, self.n
        lower, upper = self.ocp.u_bounds
        u = np.clip(np.zeros(n_u), lower, upper)
        return Motion(
            x=np.tile(np.asarray(x, float), (count + 1, 1)), u=np.tile(u, (count, 1)), z=np.zeros((count, n_z)),
            sides=np.full(count * self.per_step, -1),
        )  # fmt: skip

    def shifted(self, motion: Motion, seconds: float, x: Array, p: Array) -> Motion:
        """Return the motion `seconds` later, from the state x (n_x,) that is expected then.

        The steps at the end, for which the motion has no states, repeat its last controls and forces.
        """
        weights, source, unknown = self.shift(seconds)
        states = weights @ motion.x
        states[0] = x
        count = self.lengths.size
        u, z, sides = motion.u[source], motion.z[source], motion.sides.reshape(count, -1)[source].ravel()
        for k in unknown:
            states[k + 1] = self.next_state(states[k], u, z[k], p, k)
        return Motion(x=states, u=u, z=z, sides=sides)

    def shift(self, seconds: float) -> tuple[Array, Array, list[int]]:
        """Return weights (K + 1, K + 1) of the states `seconds` later, sources of the steps, and steps without one."""
        t, count = self.times, self.lengths.size
        later = np.minimum(t + seconds, t[-1])
        weights = np.stack([np.interp(later, t, row) for row in np.eye(count + 1)], axis=1)
        # The small fraction of a step keeps rounding from choosing the step before.
        source = np.minimum(np.searchsorted(t, later[:-1] + 1e-9 * t[-1], "right") - 1, count - 1)
        return weights, source, np.flatnonzero(t[:-1] + seconds >= t[-1] * (1.0 - 1e-9)).tolist()

    def controls(self, motion: Motion, ends: Array) -> Array:
        """Return the controls (N, n_u) in the middle of intervals that end at `ends` (N,)."""
        middle = 0.5 * (np.concatenate([[0.0], ends[:-1]]) + ends)
        return motion.u[np.clip(np.searchsorted(self.times, middle, "right") - 1, 0, self.lengths.size - 1)]

    def moves_of(self, u: Array, ends: Array) -> Array:
        """Return controls (N, n_u) of intervals that end at `ends` as those of the grid, by their means."""
        starts = self.times[:-1][np.concatenate([[True], np.diff(self.moves) > 0])]
        knots = np.concatenate([starts, self.times[-1:]])
        integral = np.vstack([np.zeros(u.shape[1]), np.cumsum(u * np.diff(np.append(0.0, ends))[:, None], axis=0)])
        at = np.stack([np.interp(knots, np.append(0.0, ends), column) for column in integral.T], axis=1)
        return np.asarray(np.diff(at, axis=0) / np.diff(knots)[:, None])

    def next_state(self, x: Array, u: Array, z: Array, p: Array, k: int) -> Array:
        """Return the state at the end of step k; u (K, n_u) are the controls of all steps."""
        before, share, kick = self.kicks[k]
        acting = share * u[before] + (1.0 - share) * u[k]
        return np.array(self.step(x, acting, z, p, ca.vertcat(self.lengths[k], kick))).reshape(-1)

    def linearised(self, motion: Motion, p: Array) -> Condensed:
        """Expand along a motion and eliminate the states; p (n_p,) are the parameters of the OCP's system."""
        parts = self._condense(motion.x, motion.u, motion.z, np.asarray(p))
        P, A, c, c_x, constant, lower, lower_x, states, algebraic, scale = parts
        return Condensed(
            grid=self, motion=motion, qpcc=QPCC.of(P, A, self.pairs), c=c[:, 0], c_x=c_x, constant=constant,
            lower=lower[:, 0], lower_x=lower_x, x=states, z=algebraic, scale=scale[:, 0],
        )  # fmt: skip


@dataclass(frozen=True, eq=False, kw_only=True)
class Condensed:
    """QPCC of a horizon whose data depend linearly on the difference dx of the measured state from `motion.x[0]`.

    The unknowns y are controls, free algebraic variables and slacks, each divided by `scale`. `constant`
    (1 + n_x, 1 + n_x) is the quadratic form of (1, dx) in the objective; `x` and `z` have columns for (1, dx, y).
    """

    grid: FixedGrid
    motion: Motion
    qpcc: QPCC
    c: Array
    c_x: Array
    constant: Array
    lower: Array
    lower_x: Array
    x: Array
    z: Array
    scale: Array

    def solve(self, x: Array, order: Array | None = None, moves: Array | None = None, **limits: Any) -> QPCCResult:
        """Search from a measured state (n_x,).

        Parameters
        ----------
        order : (pairs,) int, optional
            Sides that are zero in a known order.
        moves : (moves, n_u), optional
            Controls that are given: only forces and slacks are sought, and the objective is that of these controls.
        limits
            Of `QPCC.solve`.
        """
        dx = np.asarray(x, float) - self.motion.x[0]
        one = np.append(1.0, dx)
        known = order if order is not None and (np.asarray(order) >= 0).all() else None
        shift = self.lower_x @ dx
        lower, upper = self.lower - shift, self.grid.upper - shift
        if moves is not None:
            # The first rows are the controls themselves; behind those of the system are slacks, which stay free.
            own = self.grid.own
            rows = np.arange(moves.size).reshape(moves.shape)[:, :own].ravel()
            lower[rows] = upper[rows] = np.clip(moves[:, :own].ravel(), lower[rows], upper[rows])
        constant = 0.5 * float(one @ self.constant @ one)
        return self.qpcc.solve(self.c + self.c_x @ dx, lower, upper, constant=constant, order=known, **limits)

    def motion_of(self, answer: QPCCResult, x: Array) -> Motion:
        """Return controls, forces and predicted states of an answer for a measured state."""
        count, n_u = self.grid.lengths.size, self.grid.n[1]
        all_of = np.concatenate([[1.0], np.asarray(x, float) - self.motion.x[0], answer.z])
        u = (self.scale * answer.z)[: (int(self.grid.moves[-1]) + 1) * n_u].reshape(-1, n_u)[self.grid.moves]
        states, z = (part @ all_of for part in (self.x, self.z))
        return Motion(x=np.vstack([x, states.reshape(count, -1)]), u=u, z=z.reshape(count, -1), sides=answer.sides)


@dataclass(frozen=True, eq=False, kw_only=True)
class _StepFunctions:
    """Functions of one step and of the end, with their derivatives.

    Attributes
    ----------
    pairs, inequalities : int
        Rows of each kind.
    free : int
        Algebraic variables that the equations leave free.
    flow : Function
        (x, u, z, p, (h, kick)) -> value, Jacobian by (x, u, z); the state after the step of mechanics, else x'.
    rows : Function
        (x, u, z, p) -> sides a, sides b, inequalities, path constraints at the end of the step; Jacobian.
    before : Function
        (x, p, h) -> what the state before the step adds to the sides a; Jacobian by x.
    algebraic : Function
        (x, u, z, p) -> w_0, w_x, w_u, T: z = w_0 + w_x x + w_u u + T eta on the linearised equations.
    cost : Function
        (x, u, z, p) -> value, gradient, convex Hessian by (x, u, z).
    last : Function
        (x, p, x_0) -> terminal cost, gradient, convex Hessian, terminal constraints, Jacobian.
    limits, end_limits : (lower, upper)
        Of the path and of the terminal constraints.
    """

    ocp: OCP
    mechanical: bool
    n: tuple[int, int, int]
    pairs: int
    inequalities: int
    free: int
    step: ca.Function
    flow: ca.Function
    rows: ca.Function
    before: ca.Function
    algebraic: ca.Function
    cost: ca.Function
    last: ca.Function
    limits: tuple[Array, Array]
    end_limits: tuple[Array, Array]
    scales: Array
    free_scales: Array

    @classmethod
    def of(cls, ocp: OCP) -> _StepFunctions:
        """Write the functions of an OCP."""
        system = ocp.system
        mechanical = isinstance(system, CLS)
        dcs = dcs_of(ocp, _method(system, mechanical), None, simulation=False)
        own = [pair for pair in dcs.pairs if not pair.difference_only and pair.role is not Role.SLIP_PARTS]
        a, b = (ca.vertcat(ca.SX(0, 1), *[getattr(pair, side) for pair in own]) for side in "ab")
        x, u, z, p, h, times = dcs.x, dcs.u, dcs.z, dcs.p, ca.SX.sym("h"), ca.SX.sym("h", 2)
        xuz = ca.vertcat(x, u, z)
        inequalities = ca.vertcat(
            ca.SX(0, 1), *[row.expression for row in dcs.inequalities], *_free_bounds(dcs, ca.vertcat(a, b))
        )
        path, limits = _path(ocp)
        end_rows, end_limits = _joined([(c.expression, c.lower, c.upper) for c in ocp.terminal_constraints])
        # They may also depend on the state at the start, which is the measured one.
        terminal, ends = ca.SX(ocp.terminal_cost), ca.vertcat(x, system.x_initial)
        moved = _step(dcs, system, *ca.vertsplit(times)) if mechanical else dcs.flow
        after = moved if mechanical else x + times[0] * dcs.flow
        algebraic, others = _algebraic(dcs, moved)
        z_scale = np.concatenate([np.zeros(0), *[np.broadcast_to(v.scale, len(v.components)) for v in dcs.variables]])
        scales = [dcs.x_scale, dcs.u_scale, z_scale]
        return cls(
            ocp=ocp, mechanical=mechanical, n=(x.numel(), u.numel(), z.numel()), pairs=int(a.numel()),
            inequalities=int(inequalities.numel()), free=int(algebraic.size2_out(3)),
            step=ca.Function("mpc_step", [x, u, z, p, times], [after]),
            flow=_with_jacobian("flow", [x, u, z, p, times], moved, xuz),
            rows=_with_jacobian("rows", [x, u, z, p], ca.vertcat(a, b, inequalities, path), xuz),
            before=_with_jacobian("before", [x, p, h], _before(system, own, h), x), algebraic=algebraic,
            cost=ca.Function("cost", [x, u, z, p], _second_order(dcs.running_cost, xuz)),
            last=ca.Function("last", [x, p, system.x_initial], [
                *_second_order(terminal, ends), ca.densify(end_rows), ca.densify(ca.jacobian(end_rows, ends))]),
            limits=limits, end_limits=end_limits, scales=np.concatenate(scales).astype(float),
            free_scales=z_scale[others].astype(float),
        )  # fmt: skip


def _check(ocp: OCP) -> None:
    for what, there in (
        ("a free horizon", ocp.free_time is not None),
        ("free parameters", bool(ocp.free_parameters)),
        ("costs at chosen times", bool(ocp.point_costs)),
        ("constraints at chosen times", bool(ocp.point_constraints)),
    ):
        if there:
            raise OptionError(f"fixed grid: expected an OCP without {what}.")


def _method(system: Any, mechanical: bool) -> FiniteElementMethod:
    if not mechanical:
        return FESD()
    planar = all(contact.n_t <= 1 for contact in system.contacts if contact.frictional)
    cone: Any = "box" if planar else "polyhedral"
    return FESDJ(gap_rate=False, lift_acceleration=False, friction_cone=cone, cone_directions=DIRECTIONS)


def _step(dcs: DCS, system: CLS, h: ca.SX, kick: ca.SX) -> ca.SX:
    """Return the state after a step of mechanics: velocities first, and positions with the new velocity."""
    v_next = system.v + kick * dcs.flow[system.at_v]
    q_next = system.q + h * system.moved(v_next)
    return ca.vertcat(q_next, v_next, system.x[system.at_y] + h * dcs.flow[system.at_y])


def _before(system: Any, pairs: list[Any], h: ca.SX) -> ca.SX:
    """Return what the state before the step adds to the sides a: that of restitution."""
    added = ca.SX(sum(pair.a.numel() for pair in pairs), 1)
    if isinstance(system, CLS) and system.contacts:
        start = 0
        for pair in pairs:
            if pair.role is Role.CONTACT:
                e = ca.SX(system.mechanics.frames.restitution)
                added[start : start + e.numel()] = e * (system.mechanics.gaps - h * system.mechanics.gap_rates)
            start += pair.a.numel()
    return added


def _free_bounds(dcs: DCS, sides: ca.SX) -> list[ca.SX]:
    """Return the bounds of z that no side of a pair implies, as expressions that are not negative."""
    implied = {row.element_hash() for row in ca.vertsplit(sides) if row.is_symbolic()}
    rows = []
    for variable in dcs.variables:
        low, high = (np.broadcast_to(bound, len(variable.components)) for bound in (variable.lower, variable.upper))
        for symbol, lower, upper in zip(ca.vertsplit(variable.symbol), low, high, strict=True):
            if np.isfinite(lower) and not (lower == 0.0 and symbol.element_hash() in implied):
                rows.append(symbol - lower)
            if np.isfinite(upper):
                rows.append(upper - symbol)
    return rows


def _path(ocp: OCP) -> tuple[ca.SX, tuple[Array, Array]]:
    """Return bounds of the states and path constraints as rows with limits."""
    lower, upper = ocp.x_bounds
    bounded = np.flatnonzero(np.isfinite(lower) | np.isfinite(upper)).tolist()
    parts = [(ocp.system.x[bounded], lower[bounded], upper[bounded])]
    parts += [(c.expression, c.lower, c.upper) for c in ocp.path_constraints]
    return _joined(parts)


def _joined(parts: list[tuple[ca.SX, Array, Array]]) -> tuple[ca.SX, tuple[Array, Array]]:
    expressions, lower, upper = zip(*parts, strict=True) if parts else ((), (), ())
    limits = tuple(np.concatenate([np.zeros(0), *map(np.ravel, side)]).astype(float) for side in (lower, upper))
    return ca.vertcat(ca.SX(0, 1), *expressions), (limits[0], limits[1])


def _lengths(horizon: float, period: float, pairs: int, steps: int | None) -> tuple[Array, Array]:
    """Return the lengths of the steps and the numbers of their controls.

    A period has as many equal steps as pairs allow; where not even one is allowed, steps grow by a constant factor.
    """
    most = max(LEAST_STEPS, PAIRS // max(1, pairs)) if steps is None else steps
    periods = max(1, round(horizon / period))
    if periods <= most:
        inner = min(most // periods, MOST_INNER)
        return np.full(periods * inner, horizon / (periods * inner)), np.repeat(np.arange(periods), inner)
    from scipy.optimize import brentq  # not paid for by an import of the library

    numbers = np.arange(most)
    factor = brentq(lambda factor: np.sum(factor**numbers) - horizon / period, 1.0, horizon / period, xtol=1e-14)
    return np.asarray(period * factor**numbers), numbers


def _kick(lengths: Array, k: int, mechanical: bool) -> tuple[int, float, float]:
    """Return the step before, its share of the control that acts on the velocity, and how long that acts."""
    before = 0.5 * float(lengths[k - 1]) if k and mechanical else 0.0
    # The last step has all that is left: the velocity at the end of the horizon is that of its costs.
    own = float(lengths[k]) * (1.0 if k == lengths.size - 1 else 0.5)
    return max(0, k - 1), before / (before + own), before + own


def _algebraic(dcs: DCS, moved: ca.SX) -> tuple[ca.Function, list[int]]:
    """Return the function of w_0, w_x, w_u, T, and the variables that stay free.

    Those solved for are, if possible, none that the motion depends on.

    Raises
    ------
    OptionError
        If the equations are not independent in z.
    """
    x, u, z, p = dcs.x, dcs.u, dcs.z, dcs.p
    e = ca.vertcat(ca.SX(0, 1), *[row.expression for row in dcs.equations])
    by_x, by_u, by_z = (ca.jacobian(e, symbol) for symbol in (x, u, z))
    solved: list[int] = []
    if e.numel():
        rng = np.random.default_rng(0)  # of a matrix that depends on the state, the rank at some state
        at = [rng.uniform(0.5, 1.5, symbol.numel()) for symbol in (x, u, z, p)]
        matrix = np.array(ca.DM(ca.Function("z", [x, u, z, p], [by_z])(*at)))
        moving = np.array(ca.DM(ca.sum1(ca.DM(ca.jacobian_sparsity(moved, z), 1)))).reshape(-1) > 0
        order = np.argsort(moving, kind="stable")
        rank = 0
        for column in order.tolist():
            if np.linalg.matrix_rank(matrix[:, [*solved, column]]) > rank:
                solved.append(column)
                rank += 1
        if rank < e.numel():
            raise OptionError("fixed grid: expected equations that determine as many algebraic variables.")
    others = [k for k in range(z.numel()) if k not in solved]
    offset = e - by_x @ x - by_u @ u - by_z @ z
    inverse = ca.inv(ca.densify(by_z[:, solved])) if solved else ca.SX(0, 0)
    w_0, w_x, w_u, T = (ca.SX(z.numel(), size) for size in (1, x.numel(), u.numel(), len(others)))
    if solved:
        w_0[solved, :], w_x[solved, :], w_u[solved, :] = -inverse @ offset, -inverse @ by_x, -inverse @ by_u
        T[solved, :] = -inverse @ by_z[:, others]
    for k, column in enumerate(others):
        T[column, k] = 1.0
    return ca.Function("algebraic", [x, u, z, p], [w_0, w_x, w_u, T]), others


def _with_jacobian(name: str, inputs: list[ca.SX], value: ca.SX, by: ca.SX) -> ca.Function:
    return ca.Function(name, inputs, [ca.densify(value), ca.densify(ca.jacobian(value, by))])


def _second_order(value: ca.SX, by: ca.SX) -> list[ca.SX]:
    hessian, gradient = ca.hessian(value, by)
    return [value, ca.densify(gradient), _convex(hessian)]


def _convex(hessian: ca.SX) -> ca.SX:
    """Return the Hessian with its negative eigenvalues set to zero, block by block of its pattern."""
    result = ca.SX(*hessian.shape)
    pattern = hessian.sparsity() + ca.Sparsity.diag(hessian.shape[0])
    _, order, starts = pattern.scc() if pattern.numel() else (0, [], [0])
    for start, end in pairwise(starts):
        rows = sorted(order[start:end])
        block = hessian[rows, rows]
        if block.is_constant():
            values, vectors = np.linalg.eigh(np.array(ca.DM(block)))
            result[rows, rows] = ca.DM((vectors * np.maximum(values, 0.0)) @ vectors.T)
        else:
            result[rows, rows] = _clipped(ca.densify(block))
    return result


def _clipped(block: ca.SX) -> ca.SX:
    """Return a symmetric block with its negative eigenvalues set to zero, by cyclic rotations of Jacobi (1846)."""
    n = block.shape[0]
    vectors = ca.SX.eye(n)
    for _ in range(SWEEPS if n > 1 else 0):
        for i in range(n):
            for j in range(i + 1, n):
                off, half = block[i, j], 0.5 * (block[j, j] - block[i, i])
                # tan of the angle that makes the entry zero; the sum keeps it defined where the entry is zero already.
                root = ca.fabs(half) + ca.sqrt(half**2 + off**2) + TINY
                t = ca.if_else(half >= 0.0, off, -off) / root
                cosine = 1.0 / ca.sqrt(1.0 + t**2)
                turn = ca.SX.eye(n)
                turn[i, i] = turn[j, j] = cosine
                turn[i, j], turn[j, i] = t * cosine, -t * cosine
                block, vectors = turn.T @ block @ turn, vectors @ turn
    return vectors @ ca.diag(ca.fmax(0.0, ca.diag(block))) @ vectors.T


def _condensation(
    f: _StepFunctions, lengths: Array, moves: Array, kicks: tuple[tuple[int, float, float], ...]
) -> tuple[ca.Function, Array, Array]:
    """Return the function of the condensed data, the upper bounds of its rows, and the rows of its pairs.

    Every quantity is affine in v = (1, dx, y), with y = (controls, free algebraic variables, slacks): a matrix with a
    column for each. The objective is v' S v / 2.
    """
    (n_x, n_u, n_z), count = f.n, lengths.size
    n_moves = int(moves[-1]) + 1
    # One slack for the constraints of each step, and one for those of the end.
    of_steps, of_end = (np.isfinite(limits).any() for limits in (f.limits, f.end_limits))
    slacks = count * int(of_steps) + int(of_end)
    controls = n_moves * n_u
    total = controls + count * f.free + slacks
    width = 1 + n_x + total
    X, U, Z = ca.MX.sym("X", n_x, count + 1), ca.MX.sym("U", n_u, count), ca.MX.sym("Z", n_z, count)
    p = ca.MX.sym("p", f.ocp.system.p.numel())

    def chosen(rows: int, start: int) -> ca.DM:
        """Return the matrix of consecutive unknowns."""
        return ca.horzcat(ca.DM(rows, start), ca.DM.eye(rows), ca.DM(rows, width - start - rows))

    def fixed(value: Any) -> Any:
        """Return the matrix of a value that depends on nothing."""
        return ca.horzcat(value, ca.MX(value.shape[0], width - 1))

    S, objective = ca.MX(width, width), ca.MX(1, width)
    rows, low, high, pairs = [chosen(controls, 1 + n_x)], [], [], list[Array]()
    lower_u, upper_u = (np.tile(np.broadcast_to(bound, n_u), n_moves).astype(float) for bound in f.ocp.u_bounds)
    low.append(ca.DM(lower_u))
    high.append(upper_u)
    state = fixed(X[:, 0]) + chosen(n_x, 1)
    states, algebraic, number = [], [], controls
    last_u: Any = ca.DM(n_u, width)

    def add(block: Any, bound: Any) -> None:
        nonlocal number
        rows.append(block)
        low.append(bound)
        high.append(np.full(block.shape[0], np.inf))
        number += block.shape[0]

    def soft(block: Any, typical: Any, limits: tuple[Array, Array], slack: int) -> None:
        """Add rows that a slack may violate; slacks are the last unknowns."""
        for limit, sign in zip(limits, (1.0, -1.0), strict=True):
            there = np.flatnonzero(np.isfinite(limit)).tolist()
            if there:
                violated = ca.repmat(chosen(1, width - slacks + slack), len(there), 1)
                add(sign * block[there, :] + violated, sign * ca.DM(limit[there]) / typical[there])

    def quadratic(weight: float, value: Any, gradient: Any, hessian: Any, delta: Any) -> None:
        nonlocal S, objective
        S += weight * (delta.T @ (hessian @ delta))
        objective += weight * (ca.horzcat(value, ca.MX(1, width - 1)) + gradient.T @ delta)

    for k in range(count):
        h, (earlier, share, kick) = float(lengths[k]), kicks[k]
        u_y = chosen(n_u, 1 + n_x + int(moves[k]) * n_u)
        eta_y = chosen(f.free, 1 + n_x + controls + k * f.free)
        acting, acting_at = share * last_u + (1.0 - share) * u_y, share * U[:, earlier] + (1.0 - share) * U[:, k]
        F, D = f.flow(X[:, k], acting_at, Z[:, k], p, ca.DM([h, kick]))
        if not f.mechanical:
            implicit = ca.solve(ca.MX.eye(n_x) - 0.5 * h * D[:, :n_x], h * ca.horzcat(F, D))
            F, D = X[:, k] + implicit[:, 0], implicit[:, 1:]
            D = D + ca.horzcat(ca.MX.eye(n_x), ca.MX(n_x, n_u + n_z))
        w_0, w_x, w_u, T = f.algebraic(X[:, k + 1], U[:, k], Z[:, k], p)
        d_z = D[:, n_x + n_u :]
        of_u = w_u @ u_y + T @ eta_y
        move = ca.vertcat(state - fixed(X[:, k]), acting - fixed(acting_at), fixed(w_0 - Z[:, k]) + of_u)
        after = fixed(F) + D @ move
        if n_z and (moved_by := d_z @ w_x).nnz():
            after = ca.solve(ca.MX.eye(n_x) - moved_by, after)
        z_y = fixed(w_0) + w_x @ after + of_u
        delta_u, delta_z, delta_x = u_y - fixed(U[:, k]), z_y - fixed(Z[:, k]), after - fixed(X[:, k + 1])
        R, J = f.rows(X[:, k + 1], U[:, k], Z[:, k], p)
        block = fixed(R) + J @ ca.vertcat(delta_x, delta_u, delta_z)
        if f.pairs:
            B, B_x = f.before(X[:, k], p, h)
            added = fixed(B) + B_x @ (state - fixed(X[:, k]))
            block = ca.vertcat(block[: f.pairs, :] + added, block[f.pairs :, :])
        # The size of a row: of what it depends on, in typical values; tolerances are relative to it.
        typical = ca.fmax(ca.fabs(J) @ ca.DM(f.scales), TINY)
        block = ca.diag(1.0 / typical) @ block
        hard = 2 * f.pairs + f.inequalities
        pairs.append(number + np.arange(f.pairs)[:, None] + np.array([0, f.pairs]))
        if hard:
            add(block[:hard, :], ca.DM(hard, 1))
        soft(block[hard:, :], typical[hard:], f.limits, k)
        # Trapezoidal rule: half of the cost at either end of the step, with the velocity of the step.
        for at, delta in (
            (_start_of(f, X[:, k], X[:, k + 1]), _start_of(f, state - fixed(X[:, k]), delta_x)),
            (X[:, k + 1], delta_x),
        ):
            value, gradient, hessian = f.cost(at, U[:, k], Z[:, k], p)
            quadratic(0.5 * h, value, gradient, hessian, ca.vertcat(delta, delta_u, delta_z))
        states.append(after)
        algebraic.append(z_y)
        state, last_u = after, u_y
    value, gradient, hessian, E, E_x = f.last(X[:, count], p, X[:, 0])
    end = ca.vertcat(state - fixed(X[:, count]), chosen(n_x, 1))
    quadratic(1.0, value, gradient, hessian, end)
    if f.end_limits[0].size:
        typical = ca.fmax(ca.fabs(E_x) @ ca.DM(np.tile(f.scales[:n_x], 2)), TINY)
        soft(ca.diag(1.0 / typical) @ (fixed(E) + E_x @ end), typical, f.end_limits, slacks - 1)
    # The linear part of the objective belongs to the first row and column of the form: v has a one there.
    S = S + ca.vertcat(objective, ca.MX(width - 1, width)) + ca.horzcat(objective.T, ca.MX(width, width - 1))
    y, before_y = slice(1 + n_x, width), slice(0, 1 + n_x)
    of_u = np.tile(f.scales[n_x : n_x + n_u], n_moves)
    typical = np.concatenate([of_u, np.tile(f.free_scales, count), np.ones(slacks)])
    diagonal = ca.diag(ca.densify(S[y, y])) * typical**2
    slope = ca.fabs(ca.densify(S[y, 0])) * typical
    largest = ca.fmax(ca.fmax(ca.mmax(diagonal), LINEAR * ca.mmax(slope)), TINY)
    # Curvature that is added: a little everywhere, and more to what has a slope and hardly any curvature.
    added = FLAT * largest + ca.fmax(0.0, LINEAR * slope - diagonal)
    diagonal = ca.vertcat(diagonal[: total - slacks], ca.repmat(STIFF * largest, slacks, 1))
    scale = typical / ca.sqrt(diagonal + added)
    turned = ca.diag(scale)
    more = ca.vertcat((added / typical**2)[: total - slacks], STIFF * largest + added[total - slacks :])
    P = turned @ (S[y, y] + ca.diag(more)) @ turned
    add(chosen(slacks, width - slacks), ca.DM(slacks, 1))
    prices = ca.vertcat(ca.MX(total - slacks, 1), ca.repmat(SOFT * largest, slacks, 1))
    c = turned @ (S[y, before_y] + ca.horzcat(prices, ca.MX(total, n_x)))
    A = ca.vertcat(*rows)
    back = ca.diagcat(ca.MX.eye(1 + n_x), turned)
    outputs = [
        P, A[:, y] @ turned, c[:, 0], c[:, 1:], S[before_y, before_y], ca.vertcat(*low) - A[:, 0], A[:, 1 : 1 + n_x],
        ca.vertcat(*states) @ back, ca.vertcat(*algebraic) @ back, scale,
    ]  # fmt: skip
    upper = np.concatenate(high)
    condense = ca.Function("mpc_condense", [X, U, Z, p], [ca.densify(output) for output in outputs])
    return condense, upper, np.vstack([np.zeros((0, 2), int), *pairs])


def _start_of(f: _StepFunctions, before: Any, after: Any) -> Any:
    """Return rows of the state at the start of a step; velocities are those of the step."""
    if not f.mechanical:
        return before
    at_v = f.ocp.system.at_v
    return ca.vertcat(before[: at_v.start, :], after[at_v, :], before[at_v.stop :, :])
