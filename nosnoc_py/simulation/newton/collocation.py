"""Runs of finite elements in known modes: their collocation equations by Newton's method, and their polynomials.

A run is a sequence of elements of equal length h and equal modes. Unknowns are the states and algebraic unknowns at all
stages, and h. With masks in place of modes the equations are smooth and square; the last row decides h: either h is
given, or a guard is zero at the end of the run (event location). The Jacobian is block lower bidiagonal with a border
for h, so that Newton's step is a forward substitution from element to element (`_correction`).

`solve_event_free` is the fast path: all elements at once in compiled code, without globalisation. `solve` is the robust
path: damped, with minimum-norm steps where the equations are singular (redundant contacts).

Between the stages the state is the collocation polynomial through the left boundary; algebraic unknowns are
interpolated through the stages only, as they have no value at the left boundary. Nothing here depends on the meaning of
the modes.

References
----------
Hairer and Wanner, Solving Ordinary Differential Equations II (1996), Section IV.5: Radau IIA methods, collocation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property

import casadi as ca
import numpy as np

from nosnoc_py.contact_problems.linear_algebra import correction, is_regular
from nosnoc_py.functions import buffered
from nosnoc_py.motion.crossing import NODES
from nosnoc_py.tableaus import Tableau, lagrange_basis

# Iterations of Newton's method. It converges in about five; a run that needs more is too long and gets shortened.
MOST_ITERATIONS = 30
# CasADi's Newton method ends at residuals or steps below this (absolute, in the units of the model).
EVENT_FREE_TOLERANCE = 1e-14
# A residual below this (relative to the largest unknown) is rounding: iterating further changes nothing.
ROUNDING_OF_RESIDUALS = 1e-15


@dataclass(frozen=True, eq=False, kw_only=True)
class StageEquations:
    """Symbolic equations of one stage, for any system whose modes are chosen by masks.

    Attributes
    ----------
    x, y, u, p, masks : SX
        States, algebraic unknowns, controls, parameters, mode.
    flow : SX
        x'.
    rows : SX, as many as y
        Algebraic equations.
    guards : SX
        Nonnegative as long as the mode lasts; each mode watches some of them (`Modes.watched`).
    """

    x: ca.SX
    y: ca.SX
    u: ca.SX
    p: ca.SX
    masks: ca.SX
    flow: ca.SX
    rows: ca.SX
    guards: ca.SX


@dataclass(frozen=True, eq=False, kw_only=True)
class ElementRun:
    """Values of r elements of equal length and equal modes, n_s stages.

    Parameters
    ----------
    h : float
        Length of each element [s].
    modes : tuple of int
    y_node : (n_y,)
        Algebraic unknowns right after the node at the start of the run.
    x_left, x_right : (r, n_x)
    x, y : (r, n_s, n_x), (r, n_s, n_y)
        States and algebraic unknowns at the stages.
    """

    h: float
    modes: tuple[int, ...]
    y_node: np.ndarray
    x_left: np.ndarray
    x: np.ndarray
    y: np.ndarray
    x_right: np.ndarray

    @property
    def count(self) -> int:
        """Number of elements."""
        return len(self.x)

    @property
    def length(self) -> float:
        """Time from the first to the last boundary."""
        return self.h * self.count


@dataclass(frozen=True, eq=False, kw_only=True)
class RunLinearization:
    """Residuals of a run and their derivatives, per element.

    Attributes
    ----------
    rows : (r, n)
    inner, outer : per element (n, n) and (n, n_x + 1)
        Derivatives by the stage values of the element and by (x_left, h).
    event : float
        Residual of the row that decides h; `slope` (n_x + n_y,) and `by_h` are its derivatives by what is at the end
        of the run and by h.
    size : float
        Largest residual.
    """

    rows: np.ndarray
    inner: list[np.ndarray]
    outer: list[np.ndarray]
    event: float
    slope: np.ndarray
    by_h: float
    size: float


class Collocation:
    """Solver for runs of elements, and their polynomials.

    Parameters
    ----------
    equations : StageEquations
    tableau : Tableau
    tolerance : float
        Of residuals, relative to the largest unknown.
    """

    def __init__(self, equations: StageEquations, tableau: Tableau, tolerance: float) -> None:
        self.equations, self.tableau, self.tolerance = equations, tableau, tolerance
        self.n_x, self.n_y = equations.x.shape[0], equations.y.shape[0]
        self.n_g = equations.guards.shape[0]
        self.iterations = 0
        self._event_free = cache(self._build_event_free)
        # End of an element by the polynomial through left boundary and stages. For Radau IIA (c_s = 1) these are the
        # weights (0, ..., 0, 1); for Gauss-Legendre the extrapolation equals the quadrature with the weights b.
        self._x_end = lagrange_basis(np.append(0.0, tableau.c), np.ones(1))[0]
        # Algebraic unknowns have no value at the left boundary, hence one node less.
        self._y_end = lagrange_basis(tableau.c, np.ones(1))[0]
        self._maps: dict[tuple[str, int], Callable[..., list[np.ndarray]]] = {}
        inputs = [equations.x, equations.y, equations.u, equations.p, equations.masks]
        self._stage = stage_function(equations)
        self._flow = buffered(ca.Function("flow", inputs, [equations.flow]))
        self._guards = ca.Function("guards", inputs, [equations.guards])
        slopes = ca.jacobian(equations.guards, ca.vertcat(equations.x, equations.y))
        self._slopes = buffered(ca.Function("slopes", inputs, [equations.guards, slopes]))
        self._element = element_function(equations, tableau, self._stage)

    def solve(
        self, guess: ElementRun, u: np.ndarray, p: np.ndarray, masks: np.ndarray, guard: int | None
    ) -> ElementRun | None:
        """Solve by Newton's method from a guess, or return None.

        Without a guard the length h is that of the guess; with one, h is such that the guard is zero at the end.
        """
        data = (u, p, masks)
        values, h, converged = np.concatenate([guess.x, guess.y], axis=2).reshape(guess.count, -1), guess.h, False
        system = self._linearize(values, h, guess, data, guard)
        for _ in range(MOST_ITERATIONS):
            # Also False for NaN: a model that cannot be evaluated at the trial ends the iteration.
            if not system.size < np.inf:
                return None
            self.iterations += 1
            change, change_h = self._correction(system, h)
            # If no factor is good enough, the shortest step is taken: the caller shortens a run that does not
            # converge.
            for halvings in range(6):
                factor = 0.5**halvings
                trial, trial_h = values + factor * change, h + factor * change_h
                new = self._linearize(trial, trial_h, guess, data, guard)
                # A residual may double: a full step often increases it once before Newton's method converges
                # quadratically.
                if new.size <= max(2.0 * system.size, self.tolerance * 1e3):
                    break
            if converged:  # one more step than the tolerance needs: quadratic convergence gives the last digits
                # The additional step may only add rounding; then the values before it are returned.
                better = new.size <= system.size
                return self._unpack(trial, trial_h, guess) if better else self._unpack(values, h, guess)
            values, h, system = trial, trial_h, new
            largest = 1.0 + max(float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
            if system.size <= ROUNDING_OF_RESIDUALS * largest:
                return self._unpack(values, h, guess)
            converged = system.size <= self.tolerance * largest
        return self._unpack(values, h, guess) if converged else None

    def solve_event_free(
        self, x: np.ndarray, modes: tuple[int, ...], y: np.ndarray, h: float, count: int, data: tuple[np.ndarray, ...]
    ) -> tuple[ElementRun, np.ndarray] | None:
        """Solve a run of given length in one compiled call; return it with its guards (n_g, m) at the samples.

        Uses CasADi's Newton method, without globalisation, from constant algebraic unknowns and a state that moves with
        its initial slope. Returns None if that does not converge; `solve` is then to be tried.
        """
        values, residual, guards, boundaries = self._event_free(count)(x, y, *data, h)
        if not residual[0, 0] <= self.tolerance:  # also false for NaN
            return None
        stages, boundaries = values.T.reshape(count, self.tableau.stages, -1), boundaries.T
        inside, unknowns = stages[..., : self.n_x], stages[..., self.n_x :]
        run = ElementRun(
            h=h, modes=modes, y_node=y, x=inside, y=unknowns, x_left=boundaries[:-1], x_right=boundaries[1:]
        )
        return run, guards

    def determines(self, run: ElementRun, data: tuple[np.ndarray, ...]) -> bool:
        """Return True if the equations have no other solution close to a run (their Jacobian is regular)."""
        values = np.concatenate([run.x, run.y], axis=2).reshape(run.count, -1)
        return all(is_regular(inner) for inner in self._linearize(values, run.h, run, data, None).inner)

    def _build_event_free(self, count: int) -> Callable[..., list[np.ndarray]]:
        """Compile the solver of all elements as one system, with residual, guards and boundaries of the solution."""
        e, stages, tableau = self.equations, self.tableau.stages, self.tableau
        x, y, h = ca.SX.sym("x", self.n_x), ca.SX.sym("y", self.n_y), ca.SX.sym("h")
        data = (e.u, e.p, e.masks)
        size = stages * (self.n_x + self.n_y)
        z = ca.SX.sym("z", size, count)
        # Constant slope of the node as a predictor: events are handled elsewhere, so that the motion is smooth over
        # the run.
        slope = self._stage(x, y, *data)[0]
        guess, rows, left, samples, y_before, boundaries = [], [], x, [], y, [x]
        _, x_weights, y_weights = self._grid
        for k in range(count):
            guess += [ca.vertcat(x + h * (k + c) * slope, y) for c in tableau.c]
            rows.append(self._element(z[:, k], left, h, *data)[0])
            values = ca.reshape(z[:, k], self.n_x + self.n_y, stages)
            inside, unknowns = values[: self.n_x, :], values[self.n_x :, :]
            first = 0 if k == 0 else 1  # the right boundary of an element is the left one of the next
            at = ca.horzcat(left, inside) @ ca.DM(x_weights[first:]).T
            y_at = ca.horzcat(y_before, unknowns) @ ca.DM(y_weights[first:]).T
            samples += [self._guards(at[:, j], y_at[:, j], *data) for j in range(at.shape[1])]
            left = ca.horzcat(left, inside) @ ca.DM(self._x_end)
            boundaries.append(left)
            y_before = unknowns @ ca.DM(self._y_end)
        known = ca.vertcat(x, y, *data, h)
        options = {
            "abstol": EVENT_FREE_TOLERANCE,
            "abstolStep": EVENT_FREE_TOLERANCE,
            "max_iter": 10,
            "error_on_fail": False,
        }
        problem = {"x": ca.vec(z), "p": known, "g": ca.vertcat(*rows)}
        solver = ca.rootfinder("solve_event_free", "fast_newton", problem, options)
        first_guess = ca.Function("guess", [known], [ca.vertcat(*guess)])
        largest = 1 + ca.mmax(ca.fabs(ca.vertcat(ca.vec(z), ca.SX(1, 1))))
        # A norm and no maximum: a maximum may lose NaN.
        residual = ca.norm_2(ca.vertcat(*rows)) / largest
        outputs = [ca.densify(part) for part in (residual, ca.horzcat(*samples), ca.horzcat(*boundaries))]
        read = ca.Function("read", [ca.vec(z), known], outputs)
        inputs = [
            ca.MX.sym(name, n) for name, n in zip("xyupmh", (part.numel() for part in (x, y, *data, h)), strict=True)
        ]
        everything = ca.vertcat(*inputs)
        solution = solver(first_guess(everything), everything)
        outputs = [ca.reshape(solution, size, count), *read(solution, everything)]
        return buffered(ca.Function("solve_event_free", inputs, outputs))

    def at(self, run: ElementRun, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return states (m, n_x) and algebraic unknowns (m, n_y) at times (m,) after the start of the run.

        Algebraic unknowns are interpolated between the stages, and linearly between the left boundary and the first
        stage: the polynomial of the stages, extrapolated to there, may be far off.
        """
        # The end of the run belongs to its last element, and times outside extrapolate its first or last polynomial.
        element = np.clip((times / run.h).astype(int), 0, run.count - 1)
        x_weights, y_weights = self._weights(times / run.h - element)
        x_nodes, y_nodes = self._nodes(run)
        x = (x_weights[:, None] @ x_nodes[element])[:, 0]
        return x, (y_weights[:, None] @ y_nodes[element])[:, 0]

    def samples(self, run: ElementRun) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return times (m,) with states and algebraic unknowns there, at the same places of every element.

        Every seventh sample begins a smooth piece of eight Chebyshev samples, as `motion.crossing` expects them.
        """
        places, x_weights, y_weights = self._grid
        x_nodes, y_nodes = self._nodes(run)
        times = (run.h * (np.arange(run.count)[:, None] + places)).reshape(-1)
        x, y = (x_weights @ x_nodes).reshape(times.size, -1), (y_weights @ y_nodes).reshape(times.size, -1)
        # The right boundary of an element is the left one of the next.
        keep = np.ones(times.size, dtype=bool)
        keep[places.size :: places.size] = False
        return times[keep], x[keep], y[keep]

    @cached_property
    def _grid(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Places in [0, 1] of the samples in an element, and the weights of states and algebraic unknowns there.

        Chebyshev extrema before and after the first stage separately: the algebraic unknowns have a kink there, and a
        polynomial through samples on both sides would be inaccurate.
        """
        first = float(self.tableau.c[0])
        pieces = [first * NODES] + ([first + (1.0 - first) * NODES[1:]] if first < 1.0 else [])
        places = np.concatenate(pieces)
        return places, *self._weights(places)

    def _weights(self, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return weights (m, 1 + n_s) of the values at the left boundary and the stages, for states and for y."""
        c = self.tableau.c
        # Linear between the left boundary and c_1, then the polynomial of the stages, which holds on [c_1, 1] only.
        ramp = np.minimum(theta / c[0], 1.0)[:, None]
        inside = ramp * lagrange_basis(c, np.maximum(theta, c[0]))
        return lagrange_basis(np.append(0.0, c), theta), np.hstack([1.0 - ramp, inside])

    def _nodes(self, run: ElementRun) -> tuple[np.ndarray, np.ndarray]:
        """Return states and algebraic unknowns at the left boundary and the stages, (r, 1 + n_s, n) each."""
        x = np.concatenate([run.x_left[:, None], run.x], axis=1)
        # The first element begins with the unknowns of the node; others with the end of the element before, which has
        # the same modes, so that the unknowns are continuous there.
        y_left = np.concatenate([run.y_node[None], self._y_end @ run.y[:-1]])
        return x, np.concatenate([y_left[:, None], run.y], axis=1)

    def guards(self, x: np.ndarray, y: np.ndarray, u: np.ndarray, p: np.ndarray, masks: np.ndarray) -> np.ndarray:
        """Return the guards (n_g, m) at m samples."""
        return self._mapped(self._guards, len(x))(x, y, u, p, masks)[0]

    def shortened(self, run: ElementRun, length: float, count: int) -> ElementRun:
        """Return a guess of `count` elements over the first part of a run (or beyond its end, by extrapolation)."""
        c, h = self.tableau.c, length / count
        times = (h * (np.arange(count)[:, None] + np.append(0.0, c))).reshape(-1)
        x, y = (values.reshape(count, 1 + c.size, -1) for values in self.at(run, times))
        return replace(run, h=h, x=x[:, 1:], y=y[:, 1:], x_left=np.concatenate([run.x_left[:1], x[1:, 0]]))

    def first_guess(
        self, x: np.ndarray, modes: tuple[int, ...], y: np.ndarray, h: float, count: int, slope: np.ndarray
    ) -> ElementRun:
        """Return a guess with constant algebraic unknowns and a state that moves with its slope at the left."""
        c = self.tableau.c
        times = h * (np.arange(count)[:, None] + c)
        left = x + h * np.arange(count)[:, None] * slope
        moved = x + times[..., None] * slope
        stages = np.broadcast_to(y, (*times.shape, y.size)).copy()
        return ElementRun(h=h, modes=modes, y_node=y, x_left=left, x=moved, y=stages, x_right=left)

    def slope(self, x: np.ndarray, y: np.ndarray, u: np.ndarray, p: np.ndarray, masks: np.ndarray) -> np.ndarray:
        """Return x' (n_x,) at one instant."""
        return self._flow(x, y, u, p, masks)[0][:, 0]

    def _linearize(
        self, values: np.ndarray, h: float, guess: ElementRun, data: tuple[np.ndarray, ...], guard: int | None
    ) -> RunLinearization:
        """Return residuals and derivatives of all elements and of the row that decides h."""
        count = guess.count
        left, x_end, y_end = self._boundaries(values, guess.x_left[0])
        evaluate = self._mapped(self._element, count)
        rows, inner, outer = evaluate(values, left, h, *data)
        if guard is None:
            event, slope, by_h = h - guess.h, np.zeros(self.n_x + self.n_y), 1.0
        else:
            at_end, slopes = self._slopes(x_end, y_end, *data)
            # The guard is evaluated at the end of the run; h moves it only through the state, which `_correction`
            # accounts for.
            event, slope, by_h = float(at_end[guard, 0]), slopes[guard], 0.0
        largest = max(float(rows.max(initial=0.0)), -float(rows.min(initial=0.0)), abs(event))
        return RunLinearization(
            rows=rows.T,
            inner=[inner[:, k : k + rows.shape[0]] for k in range(0, inner.shape[1], rows.shape[0])],
            outer=[outer[:, k : k + self.n_x + 1] for k in range(0, outer.shape[1], self.n_x + 1)],
            event=event,
            slope=slope,
            by_h=by_h,
            size=largest if np.isfinite(rows).all() and np.isfinite(inner).all() else np.inf,
        )

    def _correction(self, system: RunLinearization, h: float) -> tuple[np.ndarray, float]:
        """Return Newton's step by forward substitution.

        The step of every element is affine in the step of h; two columns (constant, per change of h) carry it through
        all elements, and the last row decides the change of h.
        """
        parts, left = [], np.zeros((self.n_x, 2))  # columns: fixed part, and per change of h
        for rows, inner, outer in zip(system.rows, system.inner, system.outer, strict=True):
            right = outer[:, :-1] @ left
            right[:, 0] += rows
            right[:, 1] += outer[:, -1]
            part = correction(inner, right)
            stages = part.reshape(self.tableau.stages, -1)
            # Each stage's step holds n_x rows of states, then n_y rows of unknowns, each with two columns; flattened,
            # the states come first.
            moved = self._x_end[1:] @ stages[:, : 2 * self.n_x]
            left = self._x_end[0] * left + moved.reshape(self.n_x, 2)
            parts.append(part)
        y_end = (self._y_end @ stages[:, 2 * self.n_x :]).reshape(self.n_y, 2)
        fixed, per_h = system.slope @ np.concatenate([left, y_end])
        # A guard that does not change with h (slope 0) cannot be located; NaN makes the next residual infinite.
        slope = per_h + system.by_h
        change = -(system.event + fixed) / slope if slope else np.nan
        both = np.array(parts)
        steps = both[..., 0] + change * both[..., 1]
        # Limit the change of the length to one half, so that h stays positive.
        factor = 0.5 * abs(h) / abs(change) if abs(change) > 0.5 * abs(h) else 1.0
        return factor * steps, factor * change

    def _boundaries(self, values: np.ndarray, x_left: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return left states (r, n_x) of the elements, and state and algebraic unknowns at the end of the last one."""
        stages = values.reshape(len(values), self.tableau.stages, -1)
        left = [x_left]
        for x in stages[..., : self.n_x]:
            left.append(self._x_end[0] * left[-1] + self._x_end[1:] @ x)
        return np.array(left[:-1]), left[-1], self._y_end @ stages[-1, :, self.n_x :]

    def _mapped(self, function: ca.Function, count: int) -> Callable[..., list[np.ndarray]]:
        """Return a function mapped over `count` columns of states and unknowns (other arguments shared), built once."""
        key = (function.name(), count)
        if key not in self._maps:
            shared = list(range(2, function.n_in()))
            mapped = function.map(f"{function.name()}_{count}", "serial", count, shared, [])
            self._maps[key] = buffered(mapped)
        return self._maps[key]

    def _unpack(self, values: np.ndarray, h: float, guess: ElementRun) -> ElementRun:
        """Return the run with the stage values of Newton's method."""
        stages = values.reshape(len(values), self.tableau.stages, -1)
        left, end, _ = self._boundaries(values, guess.x_left[0])
        return replace(
            guess,
            h=float(h),
            x=stages[..., : self.n_x],
            y=stages[..., self.n_x :],
            x_left=left,
            x_right=np.concatenate([left[1:], end[None]]),
        )


def stage_function(equations: StageEquations) -> ca.Function:
    """Return a function (x, y, u, p, masks) -> (flow, algebraic rows) of one stage."""
    inputs = [equations.x, equations.y, equations.u, equations.p, equations.masks]
    return ca.Function("stage", inputs, [equations.flow, equations.rows])


def element_function(equations: StageEquations, tableau: Tableau, stage: ca.Function) -> ca.Function:
    """Return a function (z, x_left, h, u, p, masks) -> rows of an element, their derivatives by z and by (x_left, h).

    z are the stage values (x_1, y_1, ..., x_s, y_s).
    """
    n_x, n_y, stages = equations.x.shape[0], equations.y.shape[0], tableau.stages
    z, h = ca.SX.sym("z", stages * (n_x + n_y)), ca.SX.sym("h")
    x_left = ca.SX.sym("x_left", n_x)
    values = ca.reshape(z, n_x + n_y, stages)
    x, y = values[:n_x, :], values[n_x:, :]
    data = (equations.u, equations.p, equations.masks)
    pairs = [stage(x[:, j], y[:, j], *data) for j in range(stages)]
    flows = ca.horzcat(*[flow for flow, _ in pairs])
    moved = ca.repmat(x_left, 1, stages) + h * flows @ ca.DM(tableau.a).T
    rows = ca.vertcat(*[ca.vertcat(x[:, j] - moved[:, j], pairs[j][1]) for j in range(stages)])
    derivatives = [ca.jacobian(rows, z), ca.jacobian(rows, ca.vertcat(x_left, h))]
    outputs = [ca.densify(out) for out in (rows, *derivatives)]
    return ca.Function("element", [z, x_left, h, *data], outputs)
