"""Active-set Newton simulation: one step of finite elements by Newton's method in guessed modes, events located.

The equations are those of FESD-J without any relaxation. In known modes they are smooth and square; the modes are
those that hold at the left node, and the first violated inequality on the collocation polynomials is the next event,
whose equation then decides the length of the elements before it. The engine knows modes, masks and guards; what they
mean is in `contact_modes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import casadi as ca
import numpy as np

from nosnoc_py.discretization.butcher import ButcherTableau
from nosnoc_py.simulation.contact_modes import ContactModes, Node, StageEquations
from nosnoc_py.simulation.contact_problem import correction
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.symbols import numbers, scalar

SAMPLES = 12
MOST_ITERATIONS = 30
MOST_PIVOTS = 12
# An event this close to the end of the step, relatively, happens at its end.
AT_THE_END = 1e-9
# Brackets are not refined below this, relative to the run.
SHORTEST = 1e-10
# Elements of a prediction where Newton's method needs to be led.
PARTS = 36
JOINED = ("x_left", "x", "y", "x_right")


@dataclass(frozen=True, eq=False, kw_only=True)
class NewtonStep:
    """One step in numbers; E elements (fewer when it failed), n_s stages, n_c contacts, n_tt tangent components.

    Attributes
    ----------
    h : (E,)
        Lengths of the elements [s].
    x_minus, x_left, x_right : (E, n_x)
        States before and after the impulse at the left boundary, and at the right boundary.
    x_stages : (E, n_s, n_x)
    lambda_normal : (E, n_s, n_c)
    lambda_tangent : (E, n_s, n_tt)
        Tangent components of the contacts with friction, below each other in the order of the system's contacts.
    drift : (E, n_s, n_c)
        Multipliers tau of the gap rate, q' = v + sum n tau.
    Lambda_normal : (E, n_c)
    Lambda_tangent : (E, n_tt)
    modes : (E, n_c) int
        0 open, 1 closed without friction, 2 stick, 3 slip (in the plane: v_t > 0), 4 slip with v_t < 0 (plane).
    message : str
        Why the step failed, "" when it did not.
    contact : str
        Names of the contacts concerned by a failure.
    iterations : int
        Newton iterations.
    """

    h: np.ndarray
    x_minus: np.ndarray
    x_left: np.ndarray
    x_right: np.ndarray
    x_stages: np.ndarray
    lambda_normal: np.ndarray
    lambda_tangent: np.ndarray
    drift: np.ndarray
    Lambda_normal: np.ndarray
    Lambda_tangent: np.ndarray
    modes: np.ndarray
    message: str = ""
    contact: str = ""
    iterations: int = 0

    @property
    def success(self) -> bool:
        """Whether the step reached its end."""
        return not self.message


@dataclass(frozen=True, eq=False, kw_only=True)
class Run:
    """Elements of equal length and equal modes: h, x_left (r, n_x), x (r, n_s, n_x), y (r, n_s, n_y), x_right."""

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
class Crossing:
    """A guard that turns negative: between `low` and `high` after the start of the run, probably at `time`."""

    guard: int
    low: float
    high: float
    time: float
    at_start: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class Outcome:
    """The next run of a step, the guard whose event ended it (None: the end of the step), or why there is none."""

    run: Run | None = None
    guard: int | None = None
    node: Node
    message: str = ""
    contact: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Linearization:
    """Residuals of a run and their derivatives.

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
    """Square systems of runs of elements and their polynomials, for any `StageEquations`."""

    def __init__(self, equations: StageEquations, tableau: ButcherTableau, tolerance: float) -> None:
        self.equations, self.tableau, self.tolerance = equations, tableau, tolerance
        self.n_x, self.n_y = equations.x.shape[0], equations.y.shape[0]
        self.n_g = equations.guards.shape[0]
        self.iterations = 0
        self._x_end = lagrange(np.append(0.0, tableau.c), np.ones(1))[0]
        self._y_end = lagrange(tableau.c, np.ones(1))[0]
        self._maps: dict[tuple[str, int], ca.Function] = {}
        inputs = [equations.x, equations.y, equations.u, equations.p, equations.masks]
        self._stage = ca.Function("stage", inputs, [equations.flow, equations.rows])
        self._guards = ca.Function("guards", inputs, [equations.guards])
        slopes = ca.jacobian(equations.guards, ca.vertcat(equations.x, equations.y))
        self._slopes = ca.Function("slopes", inputs, [equations.guards, slopes])
        self._element = self._build()

    def solve(self, guess: Run, u: np.ndarray, p: np.ndarray, masks: np.ndarray, guard: int | None) -> Run | None:
        """Newton's method from a guess; h is that of the guess, or where the guard vanishes at the end of the run."""
        data = (u, p, masks)
        values, h, converged = np.concatenate([guess.x, guess.y], axis=2).reshape(guess.count, -1), guess.h, False
        system = self._linearize(values, h, guess, data, guard)
        for _ in range(MOST_ITERATIONS):
            if not np.isfinite(system.size):
                return None
            self.iterations += 1
            change, change_h = self._correction(system, h)
            for halvings in range(6):
                factor = 0.5**halvings
                trial, trial_h = values + factor * change, h + factor * change_h
                new = self._linearize(trial, trial_h, guess, data, guard)
                if new.size <= max(2.0 * system.size, self.tolerance * 1e3):
                    break
            if converged:  # one step more than the tolerance asks for, for the last digits
                better = new.size <= system.size
                return self._unpack(trial, trial_h, guess) if better else self._unpack(values, h, guess)
            values, h, system = trial, trial_h, new
            if system.size == 0.0:
                return self._unpack(values, h, guess)
            converged = bool(system.size <= self.tolerance * (1.0 + np.abs(values).max()))
        return self._unpack(values, h, guess) if converged else None

    def at(self, run: Run, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """States (m, n_x) and algebraic unknowns (m, n_y) at times after the start of the run.

        The latter are interpolated between the stages, and towards the left boundary linearly: a polynomial of the
        stages may be far off there.
        """
        c = self.tableau.c
        element = np.clip((times / run.h).astype(int), 0, run.count - 1)
        theta = times / run.h - element
        x_nodes = np.concatenate([run.x_left[:, None], run.x], axis=1)[element]
        x = np.einsum("ms,msx->mx", lagrange(np.append(0.0, c), theta), x_nodes)
        y_end = np.einsum("s,rsy->ry", self._y_end, run.y)
        y_left = np.concatenate([run.y_node[None], y_end[:-1]])[element]
        ramp = np.minimum(theta / c[0], 1.0)[:, None]
        inside = np.einsum("ms,msy->my", lagrange(c, np.maximum(theta, c[0])), run.y[element])
        return x, (1.0 - ramp) * y_left + ramp * inside

    def guards(self, x: np.ndarray, y: np.ndarray, u: np.ndarray, p: np.ndarray, masks: np.ndarray) -> np.ndarray:
        """Guards (n_g, m) at m samples."""
        m = len(x)
        columns = (np.tile(value[:, None], (1, m)) for value in (u, p, masks))
        return np.asarray(self._mapped(self._guards, m)(x.T, y.T, *columns).full())

    def shortened(self, run: Run, length: float, count: int) -> Run:
        """A guess for a run of `count` elements over the first part of a run (or beyond its end)."""
        c, h = self.tableau.c, length / count
        times = (h * (np.arange(count)[:, None] + c)).reshape(-1)
        x, y = self.at(run, times)
        left, _ = self.at(run, h * np.arange(count))
        stages = (count, c.size)
        guess = replace(run, h=h, x=x.reshape(*stages, -1), y=y.reshape(*stages, -1), x_left=left)
        return replace(guess, x_left=np.concatenate([run.x_left[:1], left[1:]]))

    def first_guess(
        self, x: np.ndarray, modes: tuple[int, ...], y: np.ndarray, h: float, count: int, slope: np.ndarray
    ) -> Run:
        """A guess of constant algebraic unknowns and a state that moves with the slope at its left."""
        c = self.tableau.c
        times = h * (np.arange(count)[:, None] + c)
        left = x + h * np.arange(count)[:, None] * slope
        moved = x + times[..., None] * slope
        stages = np.broadcast_to(y, (*times.shape, y.size)).copy()
        return Run(h=h, modes=modes, y_node=y, x_left=left, x=moved, y=stages, x_right=left)

    def slope(self, x: np.ndarray, y: np.ndarray, u: np.ndarray, p: np.ndarray, masks: np.ndarray) -> np.ndarray:
        """x' at one instant."""
        return np.asarray(self._stage(x, y, u, p, masks)[0].full()).reshape(-1)

    def _linearize(
        self, values: np.ndarray, h: float, guess: Run, data: tuple[np.ndarray, ...], guard: int | None
    ) -> Linearization:
        """Residuals and derivatives of all elements and of the event row."""
        count = guess.count
        left, x_end, y_end = self._boundaries(values, guess.x_left[0])
        columns = [np.tile(value[:, None], (1, count)) for value in data]
        out = self._mapped(self._element, count)(values.T, left.T, np.full((1, count), h), *columns)
        rows, inner, outer = (np.asarray(part.full()) for part in out)
        if guard is None:
            event, slope, by_h = h - guess.h, np.zeros(self.n_x + self.n_y), 1.0
        else:
            at_end, slopes = (np.asarray(part.full()) for part in self._slopes(x_end, y_end, *data))
            event, slope, by_h = float(at_end[guard, 0]), slopes[guard], 0.0
        return Linearization(
            rows=rows.T,
            inner=np.split(inner, count, axis=1),
            outer=np.split(outer, count, axis=1),
            event=event,
            slope=slope,
            by_h=by_h,
            size=max(float(np.abs(rows).max(initial=0.0)), abs(event)),
        )

    def _correction(self, system: Linearization, h: float) -> tuple[np.ndarray, float]:
        """Newton's step by forward substitution: every element's is affine in that of h, which the last row decides."""
        parts, left = [], np.zeros((self.n_x, 2))  # columns: fixed part, and per change of h
        for rows, inner, outer in zip(system.rows, system.inner, system.outer, strict=True):
            right = outer[:, :-1] @ left
            right[:, 0] += rows
            right[:, 1] += outer[:, -1]
            part = correction(inner, right)
            stages = part.reshape(self.tableau.stages, -1, 2)
            left = self._x_end[0] * left + np.einsum("s,sxk->xk", self._x_end[1:], stages[:, : self.n_x])
            parts.append(part)
        y_end = np.einsum("s,syk->yk", self._y_end, stages[:, self.n_x :])
        fixed, per_h = system.slope @ np.concatenate([left, y_end])
        slope = per_h + system.by_h
        change = -(system.event + fixed) / slope if slope else np.nan
        steps = np.array([part[:, 0] + change * part[:, 1] for part in parts])
        # A run changes its length by no more than half at once.
        factor = 0.5 * abs(h) / abs(change) if abs(change) > 0.5 * abs(h) else 1.0
        return factor * steps, factor * change

    def _boundaries(self, values: np.ndarray, x_left: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Left states (r, n_x) of the elements, and state and algebraic unknowns at the end of the last."""
        stages = values.reshape(len(values), self.tableau.stages, -1)
        left = [x_left]
        for x in stages[..., : self.n_x]:
            left.append(self._x_end[0] * left[-1] + self._x_end[1:] @ x)
        return np.array(left[:-1]), left[-1], self._y_end @ stages[-1, :, self.n_x :]

    def _mapped(self, function: ca.Function, count: int) -> ca.Function:
        """A function of `count` columns of every argument, made when first needed."""
        key = (function.name(), count)
        if key not in self._maps:
            self._maps[key] = function.map(count)
        return self._maps[key]

    def _build(self) -> ca.Function:
        """Rows of one element, and their derivatives by its stage values and by (x_left, h)."""
        equations, stages = self.equations, self.tableau.stages
        z, h = ca.SX.sym("z", stages * (self.n_x + self.n_y)), ca.SX.sym("h")
        x_left = ca.SX.sym("x_left", self.n_x)
        values = ca.reshape(z, self.n_x + self.n_y, stages)
        x, y = values[: self.n_x, :], values[self.n_x :, :]
        data = (equations.u, equations.p, equations.masks)
        pairs = [self._stage(x[:, j], y[:, j], *data) for j in range(stages)]
        flows = ca.horzcat(*[flow for flow, _ in pairs])
        moved = ca.repmat(x_left, 1, stages) + h * flows @ ca.DM(self.tableau.a).T
        rows = ca.vertcat(*[ca.vertcat(x[:, j] - moved[:, j], pairs[j][1]) for j in range(stages)])
        derivatives = [ca.jacobian(rows, z), ca.jacobian(rows, ca.vertcat(x_left, h))]
        return ca.Function("element", [z, x_left, h, *data], [rows, *derivatives])

    def _unpack(self, values: np.ndarray, h: float, guess: Run) -> Run:
        stages = values.reshape(guess.count, self.tableau.stages, -1)
        left, end, _ = self._boundaries(values, guess.x_left[0])
        return replace(
            guess,
            h=float(h),
            x=stages[..., : self.n_x],
            y=stages[..., self.n_x :],
            x_left=left,
            x_right=np.concatenate([left[1:], end[None]]),
        )


class ActiveSetNewton:
    """Steps of a contact system, exact to rounding in the equations of the finite elements.

    Parameters
    ----------
    system : CLS
    tableau : ButcherTableau
    elements : int
        Finite elements E of a step; E - 1 events fit inside one.
    gap_rate : bool
        Whether closed contacts satisfy n'v = 0 besides gap = 0, which keeps the order on curved contacts.
    rest_velocity : float
        Slower approaches do not bounce [m/s]; ends the infinitely many impacts before rest.
    tolerance : float
        Of Newton's method, relative to the largest unknown; one more iteration follows.
    """

    def __init__(
        self,
        system: CLS,
        tableau: ButcherTableau,
        elements: int,
        *,
        gap_rate: bool = True,
        rest_velocity: float = 1e-3,
        tolerance: float = 1e-11,
    ) -> None:
        self.system, self.tableau, self.elements = system, tableau, elements
        self.model = ContactModes(system, gap_rate=gap_rate, rest_velocity=rest_velocity)
        self._collocation = Collocation(self.model.equations, tableau, tolerance)

    def step(
        self,
        x: np.ndarray,
        u: np.ndarray | None,
        p: np.ndarray | None,
        length: float,
        modes_before: np.ndarray | None = None,
    ) -> NewtonStep:
        """One step of a given length from x, the left limit, with constant u.

        `modes_before` (n_c,), modes of the element before, are tried first. A step that does not succeed says why in
        its message and has the elements so far.
        """
        x = numbers(x, "x", 2 * self.system.n_q)
        u = numbers(0.0 if u is None else u, "u", self.system.n_u)
        p = numbers(self.system.p_default if p is None else p, "p", self.system.n_p)
        hint = None if modes_before is None else tuple(int(mode) for mode in modes_before)
        self._collocation.iterations = 0
        outcomes: list[Outcome] = []
        # Elements in proportion to the time of an event keep lengths alike; one each leaves more for what follows.
        for sparing in (False, True):
            outcomes = list(self._runs(x, u, p, scalar(length, "length"), hint, sparing))
            if "more switches" not in outcomes[-1].message or self.elements < 3:
                break
        return self._assemble(outcomes)

    def _runs(
        self,
        x: np.ndarray,
        u: np.ndarray,
        p: np.ndarray,
        length: float,
        hint: tuple[int, ...] | None,
        sparing: bool,
    ) -> Iterator[Outcome]:
        free = self.elements
        while free:
            node = self.model.node(x, u, p, hint)
            outcome = _Walk(self.model, self._collocation, u, p, node, length, free, sparing).advance()
            yield outcome
            if outcome.run is None:
                return
            run = outcome.run
            free, length, x = free - run.count, length - run.length, run.x_right[-1]
            hint = self.model.after(run.modes, outcome.guard, run.y[-1, -1])

    def _assemble(self, outcomes: list[Outcome]) -> NewtonStep:
        done = [(outcome.node, outcome.run) for outcome in outcomes if outcome.run is not None]
        n_x, n_s, n_c = self._collocation.n_x, self.tableau.stages, len(self.system.contacts)
        n_t = self.model.frames.weights.size
        h, minus, left, right, stages, jumps, modes = [], [], [], [], [], [], []
        forces: list[tuple[np.ndarray, ...]] = []
        for node, run in done:
            for e in range(run.count):
                h.append(run.h)
                minus.append(node.x_minus if e == 0 else run.x_left[e])
                left.append(run.x_left[e])
                right.append(run.x_right[e])
                stages.append(run.x[e])
                jumps.append(node.jump if e == 0 else np.zeros(n_c + n_t))
                modes.append(run.modes)
                forces.append(self.model.forces(run.y[e], run.modes))
        jump = np.array(jumps).reshape(len(h), n_c + n_t)
        normal, tangential, drift = (
            np.array([part[k] for part in forces]).reshape(len(h), n_s, size) for k, size in enumerate((n_c, n_t, n_c))
        )
        return NewtonStep(
            h=np.array(h),
            x_minus=np.array(minus).reshape(-1, n_x),
            x_left=np.array(left).reshape(-1, n_x),
            x_right=np.array(right).reshape(-1, n_x),
            x_stages=np.array(stages).reshape(-1, n_s, n_x),
            lambda_normal=normal,
            lambda_tangent=tangential,
            drift=drift,
            Lambda_normal=jump[:, :n_c],
            Lambda_tangent=jump[:, n_c:],
            modes=np.array(modes, dtype=int).reshape(len(h), n_c),
            message=outcomes[-1].message,
            contact=outcomes[-1].contact,
            iterations=self._collocation.iterations,
        )


class _Walk:
    """From one node to the next event or to the end of the step."""

    def __init__(
        self,
        model: ContactModes,
        collocation: Collocation,
        u: np.ndarray,
        p: np.ndarray,
        node: Node,
        length: float,
        free: int,
        sparing: bool,
    ) -> None:
        self.model, self.collocation, self.u, self.p = model, collocation, u, p
        self.node, self.length, self.free, self.sparing = node, length, free, sparing

    def advance(self) -> Outcome:
        """The run after the node; modes that are violated at once are pivoted, never twice to the same."""
        node, modes, y = self.node, self.node.modes, self.node.y
        if node.message:
            return self._failure(node.message, node.contact)
        seen: set[tuple[int, ...]] = set()
        for _ in range(MOST_PIVOTS):
            seen.add(modes)
            plain = self._plain(modes, y)
            if plain is None:
                return self._failure("Newton's method did not converge", self._closed(modes))
            crossing = self._first_crossing(plain)
            if crossing is not None and not crossing.at_start:
                found = self._until(plain, crossing)
                if isinstance(found, Outcome):
                    return found
                crossing = found
            if crossing is None:
                return Outcome(run=plain, node=node)
            following = [new for new in self.model.pivots(node, modes, crossing.guard, y) if new not in seen]
            if not following:
                break
            modes = following[0]
            y = self.model.guess(node, modes, self.u, self.p)
        name, kind = self.model.describe(crossing.guard) if crossing else ("", "")
        return self._failure(f"no consistent mode of contact {name!r} ({kind})", name)

    def _plain(self, modes: tuple[int, ...], y: np.ndarray) -> Run | None:
        """The rest of the step without an event, or the longest part of it where Newton's method converges."""
        masks = self.model.masks(modes)
        slope = self.collocation.slope(self.node.x_left, y, self.u, self.p, masks)
        length = self.length
        for _ in range(12):
            guess = self.collocation.first_guess(self.node.x_left, modes, y, length / self.free, self.free, slope)
            run = self._solve(guess, None)
            if run is not None:
                return self._extended(run)
            length *= 0.5
        return None

    def _extended(self, run: Run) -> Run | None:
        """Lengthen a run to the end of the step; where that fails, at least until it meets an event."""
        high = np.inf
        for _ in range(40):
            if run.length >= (1.0 - AT_THE_END) * self.length or self._first_crossing(run) is not None:
                return run
            target = min(2.0 * run.length, self.length) if high == np.inf else 0.5 * (run.length + high)
            longer = self._solve(self.collocation.shortened(run, target, self.free), None)
            run, high = (run, target) if longer is None else (longer, high)
        return None

    def _until(self, run: Run, crossing: Crossing) -> Outcome | Crossing | None:
        """The run up to the first event; a crossing when a mode was wrong at once; None when the step ends before."""
        for _ in range(10):
            if crossing.time >= (1.0 - AT_THE_END) * self.length:
                return None
            name, kind = self.model.describe(crossing.guard)
            share = round(self.free * crossing.time / self.length)
            count = min(1 if self.sparing else max(share, 1), self.free - 1)
            found = self._locate(run, crossing, count) if count else None
            if found is None or not self._is_coherent(found):
                turned = self._turned(run)
                if turned is not None:
                    return Outcome(run=turned, node=self.node)
            if self.free == 1:
                message = f"more switches than finite elements: no element is left after the {kind} of contact {name!r}"
                return self._failure(message, name)
            if found is None:
                return self._before(run, crossing, count) or self._failure(
                    f"the {kind} of contact {name!r} was not located", name
                )
            if found.length >= (1.0 - AT_THE_END) * self.length:
                return None
            earlier = self._first_crossing(found)
            if earlier is None or (earlier.time >= (1.0 - AT_THE_END) * found.length and not earlier.at_start):
                return Outcome(run=found, guard=crossing.guard, node=self.node)
            if earlier.at_start:
                return earlier
            run, crossing = found, earlier
        return self._failure("the events of a step were not brought into order", self._closed(run.modes))

    def _before(self, run: Run, crossing: Crossing, count: int) -> Outcome | None:
        """The part before an event that was not located, so that what follows starts next to it."""
        if crossing.low <= AT_THE_END * self.length:
            return None
        found = self._solve(self.collocation.shortened(run, crossing.low, count), None)
        good = found is not None and self._first_crossing(found) is None
        return Outcome(run=found, node=self.node) if good else None

    def _is_coherent(self, run: Run) -> bool:
        y = _flat(run.y)
        return bool(np.array_equal(self.model.coherent(run.y_node, y, run.modes), y))

    def _turned(self, run: Run) -> Run | None:
        """The rest of the step when something turns sharply but does not stop."""
        if self._guess_along(run) is None:
            return None
        found = self._along(run)
        if found is None and (parts := self._in_parts(run)) is not None:
            found = self._along(self.collocation.shortened(parts, self.length, self.free))
        if found is None:
            return None
        blind = self.model.blind(found.modes)
        return found if self._first_crossing(found, blind) is None else None

    def _in_parts(self, run: Run) -> Run | None:
        """The rest of the step in many short elements, one after the other: Newton's method is led around the turn."""
        h = self.length / PARTS
        masks = self.model.masks(run.modes)
        x, y, parts = run.x_left[0], run.y_node, []
        for _ in range(PARTS):
            slope = self.collocation.slope(x, y, self.u, self.p, masks)
            part = self._along(self.collocation.first_guess(x, run.modes, y, h, 1, slope))
            if part is None:
                return None
            parts.append(part)
            x, y = part.x_right[-1], part.y[-1, -1]
        joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in JOINED}
        return Run(h=h, modes=run.modes, y_node=run.y_node, **joined)

    def _along(self, guess: Run) -> Run | None:
        """A run that slips where it moves, from a guess that does."""
        start = self._guess_along(guess)
        found = None if start is None else self._solve(start, None)
        on = found is not None and self.model.slips_on(_flat(found.y), found.modes)
        return found if on else None

    def _guess_along(self, run: Run) -> Run | None:
        stages = _flat(run.x), _flat(run.y)
        y = self.model.turned(*stages, self.p, run.modes)
        return None if y is None else replace(run, y=y.reshape(run.y.shape))

    def _locate(self, run: Run, crossing: Crossing, count: int) -> Run | None:
        """A run of `count` elements that ends at an event: Newton's method, else a search for the root in h."""
        guess = self.collocation.shortened(run, crossing.time, count)
        found = self._solve(guess, crossing.guard)
        margin = crossing.high - crossing.low + SHORTEST * self.length
        if found is not None and crossing.low - margin <= found.length <= crossing.high + margin and found.h > 0:
            return found
        return self._search(run, crossing, count)

    def _search(self, run: Run, crossing: Crossing, count: int) -> Run | None:
        """Bisection for the length at whose end the guard vanishes, if it changes its sign by vanishing."""
        low, high, best = crossing.low, crossing.high, run
        largest, end = 0.0, np.inf
        for _ in range(60):
            middle = 0.5 * (low + high)
            found = self._solve(self.collocation.shortened(best, middle, count), None)
            if found is None:
                return None
            best, end = found, self._end_guard(found, crossing.guard)
            largest = max(largest, abs(end))
            low, high = (middle, high) if end > 0 else (low, middle)
            if end == 0.0 or high - low <= 1e-15 * high:
                break
        return best if abs(end) <= 1e-8 * largest else None

    def _end_guard(self, run: Run, guard: int) -> float:
        x, y = self.collocation.at(run, np.array([run.length]))
        values = self.collocation.guards(x, y, self.u, self.p, self.model.masks(run.modes))
        return float(values[guard, 0])

    def _solve(self, guess: Run, guard: int | None) -> Run | None:
        return self.collocation.solve(guess, self.u, self.p, self.model.masks(guess.modes), guard)

    def _first_crossing(self, run: Run, blind: Sequence[int] = ()) -> Crossing | None:
        """The earliest violated guard on the polynomials of a run, but for some that are not looked at."""
        grid = np.append(0.0, np.concatenate([self.collocation.tableau.c, np.arange(1, SAMPLES + 1) / SAMPLES]))
        times = run.h * np.unique((np.arange(run.count)[:, None] + grid).reshape(-1))
        sample = self._sampler(run)
        values = sample(times)
        if values.size == 0:
            return None
        tolerance = self.model.tolerances(values, _flat(run.y).T, run.h)
        tolerance = tolerance + np.maximum(0.0, -values[:, 0])
        bad = (values < -tolerance[:, None]) & self.model.watched(run.modes)[:, None]
        bad[list(blind)] = False
        if not bad.any():
            return None
        crossings = [
            self._bracket(int(g), times, values[g], tolerance[g], sample, run.length)
            for g in np.flatnonzero(bad[:, int(np.argmax(bad.any(axis=0)))])
        ]
        return min(crossings, key=lambda crossing: crossing.time)

    def _sampler(self, run: Run) -> Callable[[np.ndarray], np.ndarray]:
        """Guards as a function of times after the start of a run."""
        masks = self.model.masks(run.modes)
        y = self.model.coherent(run.y_node, _flat(run.y), run.modes)
        upright = replace(run, y=y.reshape(run.y.shape))

        def sample(times: np.ndarray) -> np.ndarray:
            return self.collocation.guards(*self.collocation.at(upright, times), self.u, self.p, masks)

        return sample

    def _bracket(
        self,
        guard: int,
        times: np.ndarray,
        values: np.ndarray,
        tolerance: float,
        sample: Callable[[np.ndarray], np.ndarray],
        length: float,
    ) -> Crossing:
        """Refine a bracket until the guard is clearly positive at its lower end, or it has shrunk to a point."""
        nearest = self.model.nearest()[guard] * length
        for _ in range(12):
            k = int(np.argmax(values < -tolerance))
            j = int(np.flatnonzero(values[: k + 1] >= 0.0).max(initial=0))
            low, high, before, after = float(times[j]), float(times[k]), max(float(values[j]), 0.0), float(values[k])
            if before > tolerance or high <= nearest or high - low <= SHORTEST * length:
                break
            times = np.linspace(low, high, SAMPLES + 1)
            values = sample(times)[guard]
            if not (values < -tolerance).any():
                break
        time = low + (high - low) * before / (before - after)
        return Crossing(guard=guard, low=low, high=high, time=time, at_start=time <= nearest)

    def _closed(self, modes: tuple[int, ...]) -> str:
        return ", ".join(name for name, mode in zip(self.model.names, modes, strict=True) if mode)

    def _failure(self, message: str, contact: str) -> Outcome:
        return Outcome(node=self.node, message=message, contact=contact)


def _flat(stages: np.ndarray) -> np.ndarray:
    """Stage values (r, n_s, n) below each other."""
    return stages.reshape(stages.shape[0] * stages.shape[1], stages.shape[2])


def lagrange(nodes: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Lagrange polynomials of the nodes at some points, (m, nodes)."""
    basis = np.ones((at.size, nodes.size))
    for j, node in enumerate(nodes):
        for other in np.delete(nodes, j):
            basis[:, j] *= (at - other) / (node - other)
    return basis
