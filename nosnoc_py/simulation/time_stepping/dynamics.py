"""Kinematics and dynamics of a step as flat arrays, the same for both ways to evaluate them.

A system has two functions: what a step needs at its start, and the state at its end. CasADi's interpreter evaluates
them, or, inside the compiled step, their tapes or machine code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from nosnoc_py.compiled import compiled_as, jitable
from nosnoc_py.contact_problems.colours import Colours, bodies_of
from nosnoc_py.contact_problems.rows import RowProblem
from nosnoc_py.functions import buffered
from nosnoc_py.motion.tape import CountedTape, run
from nosnoc_py.simulation.time_stepping.rows import rows_of
from nosnoc_py.systems.cls import CLS

Array = np.ndarray
# Longer functions have no tape: writing it takes longer than many steps.
LONGEST = 100_000


class ModelSizes(NamedTuple):
    """Numbers of states, velocities (after `n_q` coordinates), controls and contacts, and rows of a contact.

    `sloped`: the force depends on q or v. `diagonal`, `constant`: the matrix A is. `n_mu`: coefficients of friction
    that are evaluated in every step.
    """

    n_x: int
    n_q: int
    n_v: int
    n_u: int
    n_c: int
    width: int
    sloped: bool
    diagonal: bool
    constant: bool
    n_mu: int


class StepModel(NamedTuple):
    """A system as a step needs it.

    Attributes
    ----------
    sizes : ModelSizes
    before, after : Tape or function (argument, out)
        (x, u, p, seconds until gaps are evaluated, seconds until the force is) -> gaps, entries of the rows,
        coefficients of friction that vary, force, its slopes along v and by v, mass;
        (x, u, p, v+, v+ of the positions, h, theta) -> state.
    argument, out, argument_after, state : (n,)
        Arguments and values.
    dofs, places : (n_c, K), (e,) int
        See `ContactRows`.
    colours : Bodies or Colours
    inverse : (n_v, n_v) or (1, n_v)
        A^-1 or its diagonal, if it is constant.
    friction, restitution : (n_c,)
    sticking : (n_c,) or (0,)
        Coefficients of contacts that stick, if they are larger.
    has_friction : (n_c,) bool
    """

    sizes: ModelSizes
    before: Any
    after: Any
    argument: Array
    out: Array
    argument_after: Array
    state: Array
    dofs: Array
    places: Array
    colours: Any
    inverse: Array
    friction: Array
    sticking: Array
    restitution: Array
    has_friction: Array


class StepFunctions:
    """Functions and tables of a system; `CLS.mechanics` keeps its only instance."""

    def __init__(self, system: CLS) -> None:
        # Functions live as long as the system: a simulation of many steps takes as long as writing them.
        frames, rows = system.mechanics.frames, rows_of(system)
        matrix, dynamic = system.mass_matrix, ca.vertcat(system.q, system.v)
        sloped = bool(ca.depends_on(system.force, dynamic))
        # Diagonal matrices need no dense inverse: thousands of bodies stay cheap.
        diagonal = bool(ca.sparsify(matrix).sparsity().is_diag() and not sloped)
        constant = bool(matrix.is_constant() and not sloped)
        n_mu = frames.count if frames.varies else 0
        sizes = system.x.numel(), system.n_q, system.n_v, system.n_u, frames.count, rows.width
        self.system, self.rows, self.sizes = system, rows, ModelSizes(*sizes, sloped, diagonal, constant, n_mu)
        self.bodies = bodies_of(rows.dofs, system.n_v, coupled=not diagonal)
        masses = ca.diag(matrix) if diagonal else ca.vec(matrix)
        count = system.n_v if diagonal else system.n_v**2
        self.inverse = np.zeros((1 if diagonal else system.n_v, system.n_v))
        if constant:
            self.inverse = inverse_of(self.sizes, np.array(ca.DM(masses)).reshape(count))
        self.functions = self._before(masses), self._after()
        self._flat: list[Callable[[Array, Array], None]] = []
        self._tapes: list[CountedTape] = []

    def _before(self, masses: ca.SX) -> ca.Function:
        """Return the function of all that a step needs at its start."""
        s, seconds = self.system, ca.SX.sym("seconds", 2)
        arguments = [s.x, s.u, s.p]
        after = [
            ca.vertcat(s.q + seconds[k] * (s.rate_matrix @ s.v), s.v, s.y + seconds[k] * s.y_rate) for k in range(2)
        ]
        slopes = [ca.vec(s.along_v(s.force)), ca.vec(ca.jacobian(s.force, s.v))] if self.sizes.sloped else []
        fields = ca.veccat(*map(ca.densify, [s.mechanics.gaps, self.rows.values]))
        at_gaps = [fields] if self.sizes.constant else [fields, ca.densify(masses)]
        there = ca.Function("there", [s.x, s.p], at_gaps).call([after[0], s.p])
        acting = ca.veccat(*map(ca.densify, [s.force, *slopes]))
        force = ca.Function("acting", arguments, [acting])(after[1], s.u, s.p)
        rubs = [ca.densify(s.mechanics.frames.friction)] if self.sizes.n_mu else []
        every = [there[0], *rubs, force, *there[1:]]
        return ca.Function("before", [ca.vertcat(*arguments, seconds)], [ca.vertcat(*every)])

    def _after(self) -> ca.Function:
        """Return the function of the state at the end of a step."""
        s, after, loaded = self.system, ca.SX.sym("after", self.system.n_v), ca.SX.sym("loaded", self.system.n_v)
        h, theta = ca.SX.sym("h"), ca.SX.sym("theta")
        # Midpoint in time, with the mean velocity.
        middle = ca.vertcat(s.q + 0.25 * h * s.moved(s.v + after), 0.5 * (s.v + after), s.y + 0.5 * h * s.y_rate)
        move, change = ca.Function("move", [s.x, s.p, after], [s.moved(after)]), (1.0 - theta) * (s.v - after) + loaded
        # q+ = q + h ((1 - theta) v + theta v+), the theta-method, unless an impact was stopped before the bodies touch.
        q = s.q + h * move(middle, s.p, change)
        for part in s.unit_parts:
            q[part] /= ca.norm_2(q[part])
        y = s.y + h * ca.Function("rate", [s.x, s.u, s.p], [s.y_rate])(middle, s.u, s.p)
        arguments = ca.vertcat(s.x, s.u, s.p, after, loaded, h, theta)
        end = s.mechanics.put_on_constraints(ca.vertcat(q, after, y), s.p)
        return ca.Function("after", [arguments], [ca.densify(end)])

    def model(self, p: Array, as_tapes: bool) -> StepModel | None:
        """Return the model at parameters, with tapes or with functions; None if there are no tapes."""
        frames, evaluate = self.system.mechanics.frames_at(p), self._evaluations(as_tapes)
        if not evaluate:
            return None
        argument, argument_after = (np.zeros(function.numel_in(0)) for function in self.functions)
        for each in argument, argument_after:
            each[self.sizes.n_x + self.sizes.n_u :][: p.size] = p
        return StepModel(
            sizes=self.sizes,
            before=evaluate[0],
            after=evaluate[1],
            argument=argument,
            out=np.zeros(self.functions[0].numel_out(0)),
            argument_after=argument_after,
            state=np.zeros(self.sizes.n_x),
            dofs=self.rows.dofs,
            places=self.rows.places,
            colours=self.bodies if as_tapes else Colours(self.bodies),
            inverse=self.inverse,
            friction=np.array(frames.friction, dtype=float),
            sticking=np.zeros(0) if frames.sticking is None else np.array(frames.sticking, dtype=float),
            restitution=np.array(frames.restitution, dtype=float),
            has_friction=np.array([frames.width(contact) > 0 for contact in range(frames.count)], dtype=bool),
        )

    def _evaluations(self, as_tapes: bool) -> list[Any]:
        if not as_tapes:
            self._flat = self._flat or [_flat(function) for function in self.functions]
            return self._flat
        if not self._tapes and max(function.n_instructions() for function in self.functions) <= LONGEST:
            self._tapes = [CountedTape(function) for function in self.functions]
        return self.tapes() if all(tape.known for tape in self._tapes) else []

    def tapes(self) -> list[Any]:
        """Return the tapes for what comes next; they may have become machine code."""
        return [tape.now() for tape in self._tapes]


def _flat(function: ca.Function) -> Callable[[Array, Array], None]:
    """Return a function from a vector to a vector that puts its values into an array."""
    evaluate = buffered(function)

    def put(argument: Array, out: Array) -> None:
        out[:] = evaluate(argument)[0][:, 0]

    return put


@compiled_as(run)
def put_values(function: Any, argument: Array, out: Array) -> None:
    """Evaluate a function, or its tape."""
    function(argument, out)


@jitable
def look(model: StepModel, x: Array, u: Array, until: float, reach: float) -> None:
    """Evaluate what a step needs at its start; `until` and `reach` are the seconds of `StepModel.before`."""
    n = model.sizes.n_x
    model.argument[:n], model.argument[n : n + u.size] = x, u
    model.argument[-2], model.argument[-1] = until, reach
    put_values(model.before, model.argument, model.out)
    first = model.sizes.n_c + model.places.size
    for c in range(model.sizes.n_mu):
        model.friction[c] = model.out[first + c]


@jitable
def put_end(model: StepModel, x: Array, u: Array, after: Array, loaded: Array, h: float, theta: float) -> None:
    """Set the state at the end of a step; `loaded` is the velocity of the positions."""
    n, n_v = model.sizes.n_x, model.sizes.n_v
    argument = model.argument_after
    argument[:n], argument[n : n + u.size] = x, u
    first = argument.size - 2 - 2 * n_v
    argument[first : first + n_v], argument[first + n_v : first + 2 * n_v] = after, loaded
    argument[-2], argument[-1] = h, theta
    put_values(model.after, argument, model.state)


@jitable
def rows_at(model: StepModel) -> Array:
    """Return the rows (n_c, width, K) of all contacts."""
    n_c, width, entries = model.sizes.n_c, model.sizes.width, model.dofs.shape[1]
    rows = np.zeros(n_c * width * entries)
    rows[model.places] = model.out[n_c : n_c + model.places.size]
    return rows.reshape(n_c, width, entries)


@jitable
def force_and_inverse(model: StepModel, reach: float) -> tuple[Array, Array]:
    """Return the force (n_v,) and A^-1 (n_v, n_v), or its diagonal (1, n_v).

    A has M where gaps are evaluated, and derivatives of the force at the point of the theta-method, `reach` = theta h
    later.
    """
    sizes, n_v = model.sizes, model.sizes.n_v
    first = sizes.n_c + model.places.size + sizes.n_mu
    force = model.out[first : first + n_v]
    if sizes.constant:
        return force, model.inverse
    rest = model.out[first + n_v :]
    if not sizes.sloped:
        return force, inverse_of(sizes, rest)
    # Linearly implicit theta-method: A = M - theta h df/dv - (theta h)^2 df/dq N, stable for stiff springs and dampers.
    change = reach * rest[n_v**2 : 2 * n_v**2] + reach**2 * rest[: n_v**2]
    return force, inverse_of(sizes, rest[2 * n_v**2 :] - change)


@jitable
def inverse_of(sizes: ModelSizes, matrix: Array) -> Array:
    """Return the inverse (n_v, n_v), or (1, n_v), of a matrix by its columns or its diagonal.

    It is NaN if the matrix is singular or not finite: the simulation ends with a status. The inverse of something
    infinite would be zero, and the body would hang still.
    """
    n = sizes.n_v
    rows = 1 if sizes.diagonal else n
    if not np.isfinite(matrix).all():
        return np.full((rows, n), np.nan)
    if sizes.diagonal:
        return (1.0 / matrix).reshape(1, n)
    try:
        return np.ascontiguousarray(np.linalg.inv(matrix.reshape(n, n)).T)
    except Exception:  # NumPy's error of linear algebra
        return np.full((rows, n), np.nan)


@jitable
def velocity_change(inverse: Array, impulse: Array) -> Array:
    """Return A^-1 times a generalised impulse (n_v,)."""
    return inverse[0] * impulse if inverse.shape[0] < impulse.size else np.dot(inverse, impulse)


def _problem_by_loops(
    rows: Array, dofs: Array, inverse: Array, free: Array, least: Array, friction: Array
) -> RowProblem:
    n_v, diagonal = free.size - 1, inverse.shape[0] < free.size - 1
    count, width, entries = rows.shape
    answers = np.zeros((count, width, entries if diagonal else n_v + 1))
    reached, blocks = np.zeros((count, answers.shape[2]), dtype=np.int64), np.zeros((count, width, width))
    for k in range(count):
        for j in range(answers.shape[2]):
            reached[k, j] = dofs[k, j] if diagonal else j
        for i in range(width):
            for j in range(entries):
                dof = dofs[k, j]
                if dof == n_v:
                    continue
                if diagonal:
                    answers[k, i, j] = rows[k, i, j] * inverse[0, dof]
                elif rows[k, i, j] != 0.0:
                    for a in range(n_v):
                        answers[k, i, a] += inverse[a, dof] * rows[k, i, j]
        for i in range(width):
            for a in range(width):
                for j in range(entries):
                    at = j if diagonal else dofs[k, j]
                    blocks[k, i, a] += rows[k, i, j] * answers[k, a, at]
    return RowProblem(rows, dofs, answers, reached, blocks, least, friction, free)


@compiled_as(_problem_by_loops)
def problem_of(rows: Array, dofs: Array, inverse: Array, free: Array, least: Array, friction: Array) -> RowProblem:
    """Return the problem of contacts with rows (m, w, K) over coordinates (m, K).

    The last entry of `free` (n_v + 1,) is 1: what the drift of contacts is multiplied by. It has no response, so that
    no impulse changes it.
    """
    n_v = free.size - 1
    if inverse.shape[0] < n_v:
        answers, reached = rows * np.append(inverse[0], 0.0)[dofs][:, None, :], dofs
        blocks = np.einsum("mwk,mxk->mwx", rows, answers)
    else:
        dense = np.zeros((*rows.shape[:2], n_v + 1))
        np.put_along_axis(dense, np.broadcast_to(dofs[:, None, :], rows.shape), rows, axis=2)
        answers = np.zeros_like(dense)
        answers[..., :n_v] = dense[..., :n_v] @ inverse.T
        reached = np.broadcast_to(np.arange(n_v + 1), (len(rows), n_v + 1))
        blocks = np.einsum("mwk,mxk->mwx", dense, answers)
    return RowProblem(rows, dofs, answers, reached, blocks, least, friction, free)
