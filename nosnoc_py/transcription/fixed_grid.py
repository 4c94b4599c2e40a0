"""An OCP on a fixed grid as a convex QPCC in the controls and the contact forces: the order of contacts is free in it.

Steps of fixed length, without switch detection: errors are of first order in the step, and an impact may come anywhere
in its step, so that no order of contacts has to be known. In one step

    x_{k+1} = x_k + h f(x_k, z_k, u_k),   0 <= a(x_{k+1}, z_k) perp b(z_k) >= 0,

with the states x, controls u and algebraic variables z of the DCS of the system. For mechanics positions move with the
velocity at the end of the step (Stewart and Trinkle 1996), and a gap with restitution e satisfies
gap_{k+1} + e (gap_k - h n'v_k) >= 0 (Paoli and Schatzman 2002). Other systems move by a linearly implicit midpoint rule,
x_{k+1} = x_k + h (I - h f_x / 2)^{-1} f (Rosenbrock 1963), with the complementarities at the end of the step.

`FixedGrid.linearised` expands all functions along a motion, eliminates the states, and returns a `Condensed` problem:
a QPCC (`mpcc.qpcc`) whose data depend linearly on the measured x_0. Costs are convexified: Gauss-Newton would need a
residual form, so negative curvature of the cost is left out. A control acts for one period, which has several steps
where pairs are few; later controls and steps are longer where the number of pairs would exceed `PAIRS` (move blocking).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.discretization.options import FESD, FESDJ, FiniteElementMethod
from nosnoc_py.errors import OptionError
from nosnoc_py.mpcc.qpcc import QPCC, Answer
from nosnoc_py.ocp import OCP
from nosnoc_py.reformulation.dcs import DCS
from nosnoc_py.systems.cls import CLS
from nosnoc_py.transcription.transcribe import dcs_of

Array = np.ndarray
# Pairs of a horizon: the time of a search doubles with every few of them. Steps are at least LEAST_STEPS.
# A period has at most MOST_INNER of them.
PAIRS, LEAST_STEPS, MOST_INNER = 24, 5, 4
# Curvature added to every direction, relative to its own (P has unit diagonal then): forces that change nothing.
FLAT = 1e-7
# Weight of the square of a violated constraint of the states, relative to the largest curvature of the objective.
SOFT = 1e2
# Directions of a friction cone in space: every one is a pair.
DIRECTIONS = 4
# Directions of z in which the equations of a step do not change (relative singular value).
FREE = 1e-9


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
    pairs : int
        Pairs of one step.
    """

    ocp: OCP
    lengths: Array
    moves: Array
    pairs: int
    n: tuple[int, int, int]
    mechanical: bool
    _flow: ca.Function
    _rows: ca.Function
    _before: ca.Function
    _cost: ca.Function
    _end: ca.Function
    _limits: tuple[Array, Array]
    _end_limits: tuple[Array, Array]
    _z_limits: tuple[Array, Array]
    _sizes: tuple[int, int]
    _scales: tuple[Array, Array, Array]

    @classmethod
    def of(cls, ocp: OCP, period: float, steps: int | None = None) -> FixedGrid:
        """Write the steps of an OCP; `steps` is their number, by default as many as pairs allow.

        Raises
        ------
        OptionError
            For a free horizon, free parameters, or costs and constraints at single times, which a fixed grid of a few
            steps has no place for.
        """
        _check(ocp)
        system = ocp.system
        mechanical = isinstance(system, CLS)
        dcs = dcs_of(ocp, _method(system, mechanical), None, simulation=False)
        own = [pair for pair in dcs.pairs if not pair.difference_only and not pair.name.startswith("slip_parts")]
        a, b = (ca.vertcat(ca.SX(0, 1), *[getattr(pair, side) for pair in own]) for side in "ab")
        x, u, z, p, h = dcs.x, dcs.u, dcs.z, dcs.p, ca.SX.sym("h")
        free = _free_bounds(dcs, ca.vertcat(a, b))
        inequalities = ca.vertcat(ca.SX(0, 1), *[row.expression for row in dcs.inequalities], *free)
        equations = ca.vertcat(ca.SX(0, 1), *[row.expression for row in dcs.equations])
        path, limits = _path(ocp)
        parts = (a, b, inequalities, equations, path)
        rows, xuz = ca.vertcat(*parts), ca.vertcat(x, u, z)
        pairs = int(a.numel())
        moved = _step(dcs, system, h) if mechanical else dcs.flow
        end_rows, end_limits = _terminal(ocp)
        terminal = ca.SX(ocp.terminal_cost)
        # x(0) in the terminal cost and its constraints: the state that is measured.
        start = system.x_initial
        lower, upper = (np.concatenate([np.broadcast_to(getattr(v, which), len(v.components)) for v in dcs.variables] or
                        [np.zeros(0)]).astype(float) for which in ("lower", "upper"))  # fmt: skip
        lengths, moves = _lengths(float(ocp.horizon), period, pairs, steps)
        return cls(
            ocp=ocp, lengths=lengths, moves=moves, pairs=pairs,
            n=(x.numel(), u.numel(), z.numel()), mechanical=mechanical,
            _flow=_with_jacobian("flow", [x, u, z, p, h], moved, xuz),
            _rows=_with_jacobian("rows", [x, u, z, p], rows, xuz),
            _before=_with_jacobian("before", [x, p, h], _before(dcs, system, own, h), x),
            _cost=_second_order("cost", [x, u, z, p], dcs.running_cost, xuz),
            _end=ca.Function("end", [x, p, start], [
                ca.densify(part) for part in (terminal, ca.gradient(terminal, x), ca.hessian(terminal, x)[0], end_rows,
                                              ca.jacobian(end_rows, x))]),
            _limits=limits, _end_limits=end_limits, _z_limits=(lower, upper),
            _sizes=(int(inequalities.numel()), int(equations.numel())),
            _scales=(dcs.x_scale, dcs.u_scale, np.concatenate(
                [np.broadcast_to(v.scale, len(v.components)) for v in dcs.variables] or [np.zeros(0)]).astype(float)),
        )  # fmt: skip

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
            sides=np.full(count * self.pairs, -1),
        )  # fmt: skip

    def next_state(self, x: Array, u: Array, z: Array, p: Array, k: int) -> Array:
        """Return the state at the end of step k."""
        return self._moved(x, u, z, p, float(self.lengths[k]))[0]

    def _moved(self, x: Array, u: Array, z: Array, p: Array, h: float) -> tuple[Array, Array]:
        """Return the next state and its Jacobian by (x, u, z)."""
        value, jacobian = (np.array(part) for part in self._flow(x, u, z, p, h))
        if self.mechanical:
            return value[:, 0], jacobian
        n_x = self.n[0]
        implicit = np.linalg.solve(np.eye(n_x) - 0.5 * h * jacobian[:, :n_x], h * np.hstack([value, jacobian]))
        move = implicit[:, 1:]
        move[:, :n_x] += np.eye(n_x)
        return x + implicit[:, 0], move

    def linearised(self, motion: Motion, p: Array) -> Condensed:
        """Expand along a motion and eliminate the states; p (n_p,) are the parameters of the OCP's system."""
        return _condensed(self, motion, np.asarray(p, float))


@dataclass(frozen=True, eq=False, kw_only=True)
class Condensed:
    """QPCC of a horizon whose data depend linearly on the difference of the measured state from `motion.x[0]`.

    The unknowns y are scaled; `controls` and `forces` map them back: u = u_0 + u_x dx + u_y y, and z likewise.
    """

    grid: FixedGrid
    motion: Motion
    qpcc: QPCC
    c: Array
    c_x: Array
    constant: tuple[float, Array, Array]
    lower: Array
    lower_x: Array
    upper: Array
    u_y: Array
    z: tuple[Array, Array, Array]
    x: tuple[Array, Array, Array]

    def solve(self, x: Array, order: Array | None = None, **limits: Any) -> Answer:
        """Search from a measured state (n_x,); `order` (pairs,) are sides that are zero in a known order."""
        dx = np.asarray(x, float) - self.motion.x[0]
        value, slope, curvature = self.constant
        constant = value + float(slope @ dx) + 0.5 * float(dx @ curvature @ dx)
        shift = self.lower_x @ dx
        known = order if order is not None and (np.asarray(order) >= 0).all() else None
        return self.qpcc.solve(
            self.c + self.c_x @ dx, self.lower - shift, self.upper - shift, constant=constant, order=known, **limits
        )

    def motion_of(self, answer: Answer, x: Array) -> Motion:
        """Return controls, forces and predicted states of an answer for a measured state."""
        dx, count = np.asarray(x, float) - self.motion.x[0], self.grid.lengths.size
        (x_0, x_x, x_y), (z_0, z_x, z_y) = self.x, self.z
        states = (x_0 + x_x @ dx + x_y @ answer.z).reshape(count, -1)
        u = (self.u_y @ answer.z).reshape(-1, self.grid.n[1])[self.grid.moves]
        return Motion(
            x=np.vstack([x, states]), u=u, z=(z_0 + z_x @ dx + z_y @ answer.z).reshape(count, -1), sides=answer.sides
        )


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


def _step(dcs: DCS, system: CLS, h: ca.SX) -> ca.SX:
    """Return the state after a step of mechanics: velocities first, and positions with the new velocity."""
    v_next = system.v + h * dcs.flow[system.at_v]
    # Forces in the middle of the step, where a constant velocity leads: second order for those of positions.
    halfway = ca.vertcat(system.q + 0.5 * h * dcs.flow[system.at_q], system.v, system.x[system.at_y])
    v_next = ca.substitute(v_next - system.v, system.x, halfway) + system.v
    q_next = system.q + h * system.moved(v_next)
    return ca.vertcat(q_next, v_next, system.x[system.at_y] + h * dcs.flow[system.at_y])


def _before(dcs: DCS, system: Any, pairs: list[Any], h: ca.SX) -> ca.SX:
    """Return what the state before the step adds to the sides a: that of restitution."""
    added = ca.SX(sum(pair.a.numel() for pair in pairs), 1)
    if isinstance(system, CLS) and system.contacts:
        start = 0
        for pair in pairs:
            if pair.name == "contact":
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


def _terminal(ocp: OCP) -> tuple[ca.SX, tuple[Array, Array]]:
    return _joined([(c.expression, c.lower, c.upper) for c in ocp.terminal_constraints])


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
    count = most
    low, high = 1.0, 2.0
    while period * np.sum(high ** np.arange(count)) < horizon:
        high *= 2.0
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if period * np.sum(middle ** np.arange(count)) < horizon else (low, middle)
    return np.asarray(period * high ** np.arange(count)), np.arange(count)


def _with_jacobian(name: str, inputs: list[ca.SX], value: ca.SX, by: ca.SX) -> ca.Function:
    return ca.Function(name, inputs, [ca.densify(value), ca.densify(ca.jacobian(value, by))])


def _second_order(name: str, inputs: list[ca.SX], value: ca.SX, by: ca.SX) -> ca.Function:
    hessian, gradient = ca.hessian(value, by)
    return ca.Function(name, inputs, [ca.densify(part) for part in (value, gradient, hessian)])


def _convex(hessian: Array) -> Array:
    """Return a symmetric matrix with its negative eigenvalues set to zero."""
    if not hessian.any():
        return hessian
    values, vectors = np.linalg.eigh(hessian)
    return (vectors * np.maximum(values, 0.0)) @ vectors.T


def _condensed(grid: FixedGrid, motion: Motion, p: Array) -> Condensed:
    """Write states, rows and the objective as functions of dx = x_0 - X_0, u and the free part of z.

    Every quantity of a step is affine: value + by_x dx + by_y y, with y = (u, free part of z) of all steps.
    """
    n_x, n_u, n_z = grid.n
    X, U, Z, count = motion.x, motion.u, motion.z, grid.lengths.size
    inequalities, equations = grid._sizes
    m, n_path = grid.pairs, grid._limits[0].size
    free: list[tuple[Array, Array, Array, Array, Array]] = []
    expanded = [_expanded(grid, X, U, Z, p, k) for k in range(count)]
    # z = w_0 + w_x x_{k+1} + w_u u + T eta: the equations of a step determine a part of z.
    for step in expanded:
        free.append(_eliminated(step, grid, equations))
    sizes = [part[3].shape[1] for part in free]
    n_moves = int(grid.moves[-1]) + 1
    size = n_moves * n_u + sum(sizes)
    slack = bool(n_path or grid._end_limits[0].size)
    total = size + int(slack)
    # The state of the node, absolute: x = x_0 + x_x dx + x_y y.
    x_0, x_x, x_y = X[0].copy(), np.eye(n_x), np.zeros((n_x, total))
    P, c, c_x = np.zeros((total, total)), np.zeros(total), np.zeros((total, n_x))
    value, slope, curvature = 0.0, np.zeros(n_x), np.zeros((n_x, n_x))
    rows: list[tuple[Array, Array, Array, Array, Array]] = []
    kept_x, kept_z, at_z = [], [], n_moves * n_u
    sides_a, sides_b = [], []
    number = n_moves * n_u

    def add(constant: Array, by_x: Array, by_y: Array, low: Array, high: Array) -> None:
        nonlocal number
        rows.append((by_y, by_x, constant, low, high))
        number += low.size

    def quadratic(weight: float, f: float, gradient: Array, hessian: Array, d_0: Array, d_x: Array, d_y: Array) -> None:
        """Add weight (f + gradient'd + d'hessian d / 2) for d = d_0 + d_x dx + d_y y."""
        nonlocal P, c, c_x, value, slope, curvature
        turned = hessian @ d_y
        P += weight * d_y.T @ turned
        c += weight * (d_y.T @ gradient + turned.T @ d_0)
        c_x += weight * turned.T @ d_x
        value += weight * (f + float(gradient @ d_0) + 0.5 * float(d_0 @ hessian @ d_0))
        slope += weight * (d_x.T @ (gradient + hessian @ d_0))
        curvature += weight * d_x.T @ hessian @ d_x

    for k, step in enumerate(expanded):
        h = float(grid.lengths[k])
        w_0, w_x, w_u, T, _ = free[k]
        u_y = np.zeros((n_u, total))
        u_y[:, grid.moves[k] * n_u : (grid.moves[k] + 1) * n_u] = np.eye(n_u)
        eta_y = np.zeros((T.shape[1], total))
        eta_y[:, at_z : at_z + T.shape[1]] = np.eye(T.shape[1])
        at_z += T.shape[1]
        F, D = step["flow"]
        # x_{k+1} - X_{k+1} = F - X_{k+1} + D (dx_k, du, dz), and z depends on x_{k+1}: solve for it.
        d_x, d_u, d_z = D[:, :n_x], D[:, n_x : n_x + n_u], D[:, n_x + n_u :]
        left = np.linalg.inv(np.eye(n_x) - d_z @ w_x)
        next_0 = left @ (F + d_x @ (x_0 - X[k]) - d_u @ U[k] + d_z @ (w_0 - Z[k]))
        next_x = left @ (d_x @ x_x)
        next_y = left @ (d_x @ x_y + d_u @ u_y + d_z @ (w_u @ u_y + T @ eta_y))
        z_0, z_x, z_y = w_0 + w_x @ next_0, w_x @ next_x, w_x @ next_y + w_u @ u_y + T @ eta_y
        kept_x.append((next_0, next_x, next_y))
        kept_z.append((z_0, z_x, z_y))
        delta_u, delta_z = (-U[k], np.zeros((n_u, n_x)), u_y), (z_0 - Z[k], z_x, z_y)
        # Rows at the end of the step.
        R, J = step["rows"]
        difference = [np.concatenate([next_0 - X[k + 1], delta_u[0], delta_z[0]]), np.vstack([next_x, delta_u[1], z_x]),
                      np.vstack([next_y, u_y, z_y])]  # fmt: skip
        r_0, r_x, r_y = R + J @ difference[0], J @ difference[1], J @ difference[2]
        if m:
            B, B_x = step["before"]
            r_0[:m] += B + B_x @ (x_0 - X[k])
            r_x[:m] += B_x @ x_x
            r_y[:m] += B_x @ x_y
        sides_a.append(number + np.arange(m))
        sides_b.append(number + m + np.arange(m))
        # The size of a row: of what it depends on, in typical values; tolerances are relative to it.
        typical = np.maximum(np.abs(J) @ np.concatenate(grid._scales), 1e-12)
        r_0, r_x, r_y = r_0 / typical, r_x / typical[:, None], r_y / typical[:, None]
        hard = slice(0, 2 * m + inequalities)
        zeros = np.zeros(2 * m + inequalities)
        add(r_0[hard], r_x[hard], r_y[hard], zeros, np.full(zeros.size, np.inf))
        if n_path:
            last = slice(r_0.size - n_path, r_0.size)
            low, high = (limit / typical[last] for limit in grid._limits)
            _soft(add, r_0[last], r_x[last], r_y[last], low, high)
        # Trapezoidal rule: half of the cost at either end of the step.
        ends = (step["cost_0"], (x_0 - X[k], x_x, x_y)), (step["cost_1"], (next_0 - X[k + 1], next_x, next_y))
        for (f, gradient, hessian), state in ends:
            blocks = [np.concatenate([state[0], delta_u[0], delta_z[0]])]
            blocks += [np.vstack([state[i], delta_u[i], delta_z[i]]) for i in (1, 2)]
            quadratic(0.5 * h, f, gradient, _convex(hessian), *blocks)
        x_0, x_x, x_y = next_0, next_x, next_y
    f, gradient, hessian, E, E_x = (np.array(part) for part in grid._end(X[-1], p, X[0]))
    last_state = x_0 - X[-1], x_x, x_y
    quadratic(1.0, float(f[0, 0]), gradient[:, 0], _convex(hessian), *last_state)
    if E.size:
        typical = np.maximum(np.abs(E_x) @ grid._scales[0], 1e-12)
        e_0 = (E[:, 0] + E_x @ last_state[0]) / typical
        low, high = (limit / typical for limit in grid._end_limits)
        _soft(add, e_0, E_x @ x_x / typical[:, None], E_x @ x_y / typical[:, None], low, high)
    largest = float(np.abs(np.diag(P)).max(initial=0.0)) or 1.0
    if slack:
        P[-1, -1] = SOFT * max(largest, abs(value), 1.0)
    # Unit diagonal: the added curvature is relative to that of each unknown.
    diagonal = np.diag(P).copy()
    diagonal[diagonal <= 1e-12 * largest] = 1e-12 * largest
    scale = 1.0 / np.sqrt(diagonal)
    P = P * scale[:, None] * scale + FLAT * np.eye(total)
    controls = n_moves * n_u
    A = np.vstack([np.eye(total)[:controls], *[row[0] for row in rows]]) * scale
    lower_u, upper_u = (np.tile(np.broadcast_to(bound, n_u), n_moves) for bound in grid.ocp.u_bounds)
    A_x = np.vstack([np.zeros((controls, n_x)), *[row[1] for row in rows]])
    offset = np.concatenate([np.zeros(controls), *[row[2] for row in rows]])
    low = np.concatenate([lower_u, *[row[3] for row in rows]])
    high = np.concatenate([upper_u, *[row[4] for row in rows]])
    # Sides are ordered in time: the first violated pair is that of the earliest step.
    pairs = np.column_stack([np.concatenate([np.zeros(0, int), *side]) for side in (sides_a, sides_b)])
    all_u = np.zeros((controls, total))
    all_u[:, :controls] = np.eye(controls)
    return Condensed(
        grid=grid, motion=motion, qpcc=QPCC.of(P, A, pairs), c=c * scale, c_x=c_x * scale[:, None],
        constant=(value, slope, curvature), lower=low - offset, lower_x=A_x, upper=high - offset, u_y=all_u * scale,
        z=_stacked(kept_z, scale), x=_stacked(kept_x, scale),
    )  # fmt: skip


def _soft(add: Any, r_0: Array, r_x: Array, r_y: Array, low: Array, high: Array) -> None:
    """Add rows low <= r <= high that the last unknown, the slack, may violate."""
    for limit, sign in ((low, 1.0), (high, -1.0)):
        there = np.flatnonzero(np.isfinite(limit))
        if there.size:
            by_y = sign * r_y[there]
            by_y[:, -1] += 1.0
            add(sign * r_0[there], sign * r_x[there], by_y, sign * limit[there], np.full(there.size, np.inf))


def _stacked(parts: list[tuple[Array, Array, Array]], scale: Array) -> tuple[Array, Array, Array]:
    value, by_x, by_y = zip(*parts, strict=True)
    return np.concatenate(value), np.vstack(by_x), np.vstack(by_y) * scale


def _expanded(grid: FixedGrid, X: Array, U: Array, Z: Array, p: Array, k: int) -> dict[str, Any]:
    h = float(grid.lengths[k])
    rows, jacobian = (np.array(part) for part in grid._rows(X[k + 1], U[k], Z[k], p))
    before, by_x = (np.array(part) for part in grid._before(X[k], p, h))

    def cost(x: Array) -> tuple[float, Array, Array]:
        f, gradient, hessian = (np.array(part) for part in grid._cost(x, U[k], Z[k], p))
        return float(f[0, 0]), gradient[:, 0], hessian

    return {
        "flow": grid._moved(X[k], U[k], Z[k], p, h),
        "rows": (rows[:, 0], jacobian),
        "before": (before[:, 0], by_x),
        "cost_0": cost(X[k]),
        "cost_1": cost(X[k + 1]),
        "x": X[k + 1],
        "u": U[k],
        "z": Z[k],
    }


def _eliminated(step: dict[str, Any], grid: FixedGrid, equations: int) -> tuple[Array, Array, Array, Array, Array]:
    """Return w_0, w_x, w_u, T with z = w_0 + w_x x_{k+1} + w_u u + T eta on the linearised equations of a step."""
    n_x, n_u, n_z = grid.n
    if not equations:
        return np.zeros(n_z), np.zeros((n_z, n_x)), np.zeros((n_z, n_u)), np.eye(n_z), np.zeros(0)
    start = 2 * grid.pairs + grid._sizes[0]
    values, jacobian = step["rows"]
    e, E = values[start : start + equations], jacobian[start : start + equations]
    by_x, by_u, by_z = E[:, :n_x], E[:, n_x : n_x + n_u], E[:, n_x + n_u :]
    left, sizes, right = np.linalg.svd(by_z)
    rank = int((sizes > FREE * sizes.max(initial=0.0)).sum())
    inverse = (right[:rank].T / sizes[:rank]) @ left[:, :rank].T
    constant = e - by_x @ step["x"] - by_u @ step["u"] - by_z @ step["z"]
    return -inverse @ constant, -inverse @ by_x, -inverse @ by_u, right[rank:].T, sizes
