"""Descents over the controls of single shooting, with a fixed rate and by L-BFGS, and what they report.

To IPOPT the integrator and its gradient are CasADi callbacks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.methods.indirect.forward import SweepFailure
from nosnoc_py.methods.indirect.iteration import IterationState, recorded
from nosnoc_py.methods.shooting.event_gradient import EventGradient, Shot
from nosnoc_py.status import Status, asked_to_stop

Array = np.ndarray

# What a line search sees where the integrator fails, in units of the best objective.
PROHIBITIVE = 1e6
# A collision is at a node if it is nearer to it than this, in units of a step.
AT_NODE = 1e-3


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ShootingState(IterationState):
    """What a callback sees after every iteration; `records` has a line for each, `slope` is the L2 norm of H_u."""

    control: Array = field(default_factory=lambda: np.empty(0))
    objective: float = np.nan
    slope: float = np.nan

    @property
    def times(self) -> tuple[float, ...]:
        """Of the collisions [s]."""
        return tuple(at for record in self.records[-1:] for _, at in record.collisions)


class EndedError(SweepFailure):
    """Takes the reason why a descent ends, which need not be a failure, out of whatever loop it is in."""


@dataclass(kw_only=True)
class Descent:
    """One descent: what it evaluates, and what it has seen."""

    gradient: EventGradient
    label: str
    tolerance: float
    max_iterations: int
    callback: Callable[[Any], Any] | None
    deadline: float
    last: Shot | None = None
    best: Shot | None = None
    clock: float = field(default_factory=time.monotonic)
    latest: Shot | None = None

    def __post_init__(self) -> None:
        self.problem, self.dt = self.gradient.forward.problem, self.gradient.forward.dt
        self.state = ShootingState(problem=self.problem)

    def shot(self, u: Array) -> Shot:
        """What a control (N, n_u) leads to; solvers ask for value, gradient and iterate one after the other.

        Raises
        ------
        SweepFailure
            For what the integrator cannot take.
        """
        if self.latest is None or not np.array_equal(self.latest.rollout.u, u):
            self.latest = self.gradient(u.copy())  # solvers change their arrays in place
        return self.latest

    def accept(self, shot: Shot) -> float:
        """Log an iterate, return its slope.

        Raises
        ------
        EndedError
            When it is solved, has no collision, is no number, the callback or the clock says so.
        """
        if not np.isfinite([shot.objective, *shot.gradient.ravel()]).all():
            raise EndedError(Status.NUMERICAL_ERROR, "the objective or its gradient is not finite")
        if not (collisions := shot.rollout.collisions):
            raise EndedError(Status.COLLISION_LOST, "the control leads to no collision")
        self.last = shot
        self.best = shot if self.best is None or shot.objective < self.best.objective else self.best
        slope = self.slope(shot)
        count = len(self.state.records)
        state = replace(self.state, iterations=count, control=shot.rollout.u, objective=shot.objective, slope=slope)
        jumps, times = [c.jump for c in collisions], [c.step * self.dt + c.s for c in collisions]
        self.state = recorded(state, self.clock, self.label, shot.objective, jumps, times, iterations=1, slope=slope)
        self.clock = time.monotonic()
        if self.callback is not None and (stopped := asked_to_stop(self.callback, self.state)) is not None:
            raise EndedError(stopped)
        if slope <= self.tolerance:
            raise EndedError(Status.SOLVED)
        if self.clock > self.deadline:
            raise EndedError(Status.TIME_LIMIT)
        return slope

    def slope(self, shot: Shot) -> float:
        """L2 norm of H_u, or of u - P(u - H_u) on a bounded set (Eq. 30)."""
        u, step = shot.rollout.u, shot.gradient / self.dt
        return float(np.sqrt(self.dt * ((u - self.problem.controls.project(u - step)) ** 2).sum()))

    def trial(self, u: Array) -> tuple[float, Array]:
        """J and its gradient for a line search: a wall where the integrator fails."""
        try:
            shot = self.shot(u)
        except SweepFailure:
            if self.last is None:
                raise
            return PROHIBITIVE * (1.0 + abs(self.last.objective)), np.zeros_like(u)
        return shot.objective, shot.gradient


def gradient_descent(run: Descent, u: Array, scale: Array) -> tuple[Status, str]:
    """u <- P(u - dJ/du scale) (HMP, Section 6.2); `scale` is (n_u, n_u)."""
    for _ in range(run.max_iterations + 1):
        shot = run.shot(u)
        slope = run.accept(shot)
        u = run.problem.controls.project(u - shot.gradient @ scale)
    return Status.ITERATION_LIMIT, f"the slope is {slope:.3e}"


def lbfgs(run: Descent, u: Array) -> tuple[Status, str]:
    """SciPy's L-BFGS-B."""
    from scipy.optimize import Bounds, minimize

    shape, controls = u.shape, run.problem.controls
    run.accept(run.shot(u))

    def objective(flat: Array) -> tuple[float, Array]:
        value, gradient = run.trial(flat.reshape(shape))
        return value, gradient.ravel()

    def accept(flat: Array) -> None:
        run.accept(run.shot(flat.reshape(shape)))

    found = minimize(
        objective,
        u.ravel(),
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(np.tile(controls.lower, len(u)), np.tile(controls.upper, len(u))) if controls.is_box else None,
        callback=accept,
        options={"maxiter": run.max_iterations, "maxfun": 20 * run.max_iterations + 20, "ftol": 0, "gtol": 0},
    )
    return no_descent(run, found.nit >= run.max_iterations)


def no_descent(run: Descent, exhausted: bool) -> tuple[Status, str]:
    """How a descent ends that is not solved: out of iterations, or at a kink."""
    if run.best is None:
        return Status.NUMERICAL_ERROR, "the solver ended before its first iterate"
    slope = f"the slope is {run.slope(run.best):.3e}"
    if exhausted:
        return Status.ITERATION_LIMIT, slope
    places = [c.step + c.s / run.dt for c in run.best.rollout.collisions]
    kinks = [place * run.dt for place in places if abs(place - round(place)) < AT_NODE]
    kink = "the discrete objective has a kink here, because a collision lies between two control intervals"
    why = f": {kink} (t = {kinks[0]:.6g} s); form='phases' has none" if kinks else ""
    return Status.NO_DESCENT, f"the line search finds no descent, and {slope}{why}"


# IPOPT's own tolerance, relative to that of the run, which ends it: at active bounds slopes are far above
# IPOPT's residuals.
BELOW = 1e-8


class _Callback(ca.Callback):
    """A function of a control as CasADi calls it; nothing is raised into IPOPT, which would print it and go on.

    Parameters
    ----------
    name : str
    evaluate : function of a control (N, n_u)
    shape : (N, n_u)
    sizes : sequence of int
        Of the arguments, which are columns; the first is the control.
    fallback : DM
        The result once something was raised, of the size of all results.
    ends : list of BaseException
        What was raised, shared by the functions of one descent.
    """

    def __init__(
        self,
        name: str,
        evaluate: Callable[[Array], Any],
        shape: tuple[int, ...],
        sizes: Sequence[int],
        fallback: ca.DM,
        ends: list[BaseException],
    ) -> None:
        ca.Callback.__init__(self)
        self.evaluate, self.shape, self.sizes = evaluate, shape, tuple(sizes)
        self.fallback, self.ends = fallback, ends
        self.construct(name, {})

    def get_n_in(self) -> int:
        return len(self.sizes)

    def get_sparsity_in(self, i: int) -> ca.Sparsity:
        return ca.Sparsity.dense(self.sizes[i], 1)

    def get_sparsity_out(self, i: int) -> ca.Sparsity:
        return self.fallback.sparsity()

    def eval(self, arguments: Any) -> list[ca.DM]:
        try:
            if not self.ends:
                return [ca.DM(self.evaluate(np.array(arguments[0]).reshape(self.shape)))]
        except KeyboardInterrupt:
            self.ends.append(EndedError(Status.INTERRUPTED))
        except Exception as error:
            self.ends.append(error)
        return [self.fallback]


def ipopt(run: Descent, u: Array) -> tuple[Status, str]:
    """IPOPT with an L-BFGS Hessian; a ball is a constraint on u'u."""
    controls, ends = run.problem.controls, list[BaseException]()
    w, p = ca.MX.sym("u", u.size), ca.MX.sym("p", 0)
    length = ca.sum1(ca.reshape(w, u.shape[1], u.shape[0]) ** 2).T if controls.is_ball else ca.MX(0, 1)

    def watch(u: Array) -> int:
        """Shown every iterate by IPOPT, which may be a little outside of the set; stops it when the run has ended."""
        run.accept(run.shot(controls.project(u)))
        return 0

    sizes = {"x": u.size, "f": 1, "g": length.numel(), "lam_x": u.size, "lam_g": length.numel(), "lam_p": 0}
    shown = [sizes[ca.nlpsol_out(i)] for i in range(ca.nlpsol_n_out())]
    value = _Callback("value", lambda u: run.trial(u)[0], u.shape, [u.size], ca.DM.nan(1), ends)
    slope = _Callback("slope", lambda u: run.trial(u)[1].ravel(), u.shape, [u.size], ca.DM.nan(u.size), ends)
    watched = _Callback("watch", watch, u.shape, shown, ca.DM(1), ends)
    settings = {
        "print_time": False,
        "error_on_fail": False,
        "show_eval_warnings": False,
        "no_nlp_grad": True,
        "grad_f": ca.Function("grad_f", [w, p], [value(w), slope(w)]),
        "iteration_callback": watched,
        "ipopt": {
            "print_level": 0,
            "sb": "yes",
            "hessian_approximation": "limited-memory",
            "max_iter": run.max_iterations,
            "tol": BELOW * run.tolerance * run.dt,
        },
    }
    solver = ca.nlpsol("single", "ipopt", {"x": w, "p": p, "f": value(w), "g": length}, settings)
    run.shot(u)  # a start that cannot be integrated is no start
    bounds = {"lbx": np.tile(controls.lower, len(u)), "ubx": np.tile(controls.upper, len(u))}
    solver(x0=u.ravel(), lbg=-np.inf, ubg=controls.radius**2, **bounds)
    if ends:
        raise ends[0]
    return no_descent(run, solver.stats()["return_status"] == "Maximum_Iterations_Exceeded")
