"""Descents over the controls of single shooting: fixed rate, L-BFGS-B and IPOPT, with a common log.

A `Descent` evaluates controls and logs accepted iterates. It ends loops of solvers by the exception `DescentEnd` with a
status, also for success. IPOPT gets the integrator and its gradient as CasADi callbacks; exceptions must not cross
IPOPT, so `_Callback` stores them and the caller raises them afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.methods.indirect.forward import SweepFailure
from nosnoc_py.methods.indirect.iteration import IterationState, with_record
from nosnoc_py.methods.shooting.event_gradient import EventGradient, ShootingEvaluation
from nosnoc_py.mpcc.threads import one_thread
from nosnoc_py.status import Status, asked_to_stop

Array = np.ndarray

# Objective reported to a line search where the integration fails, in units of 1 + |J|: it then shortens its step.
FAILED_COST = 1e6
# A collision within this distance from a node, in steps, explains a failed line search by a kink.
AT_NODE = 1e-3


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ShootingState(IterationState):
    """State that callbacks receive after every iteration; `slope` is the L2 norm of H_u."""

    control: Array = field(default_factory=lambda: np.empty(0))
    objective: float = np.nan
    slope: float = np.nan

    @property
    def times(self) -> tuple[float, ...]:
        """Times of the collisions [s]."""
        return tuple(at for record in self.records[-1:] for _, at in record.collisions)


class DescentEnd(SweepFailure):
    """End of a descent with a status, which may be a success; leaves the loop of any solver."""


@dataclass(kw_only=True)
class Descent:
    """Evaluations and log of one descent.

    `last` and `best` are accepted iterates; `latest` caches the last evaluation.
    """

    gradient: EventGradient
    label: str
    tolerance: float
    max_iterations: int
    callback: Callable[[Any], Any] | None
    deadline: float
    last: ShootingEvaluation | None = None
    best: ShootingEvaluation | None = None
    clock: float = field(default_factory=time.monotonic)
    latest: ShootingEvaluation | None = None

    def __post_init__(self) -> None:
        self.problem, self.dt = self.gradient.forward.problem, self.gradient.forward.dt
        self.state = ShootingState(problem=self.problem)

    def evaluate(self, u: Array) -> ShootingEvaluation:
        """Evaluate a control (N, n_u); the last result is cached, since solvers request value and gradient separately.

        Raises
        ------
        SweepFailure
            If the integration fails.
        """
        # One evaluation yields value and gradient; solvers request them in separate calls.
        if self.latest is None or not np.array_equal(self.latest.rollout.u, u):
            self.latest = self.gradient(u.copy())  # solvers change their arrays in place
        return self.latest

    def accept(self, evaluation: ShootingEvaluation) -> float:
        """Log an accepted iterate and return its slope.

        Raises
        ------
        DescentEnd
            If it is solved, not finite, has no collision, or the callback or the time limit ends the descent.
        """
        if not np.isfinite([evaluation.objective, *evaluation.gradient.ravel()]).all():
            raise DescentEnd(Status.NUMERICAL_ERROR, "the objective or its gradient is not finite")
        if not (collisions := evaluation.rollout.collisions):
            raise DescentEnd(Status.COLLISION_LOST, "the control leads to no collision")
        self.last = evaluation
        self.best = evaluation if self.best is None or evaluation.objective < self.best.objective else self.best
        slope = self.slope(evaluation)
        count = len(self.state.records)
        state = replace(
            self.state, iterations=count, control=evaluation.rollout.u, objective=evaluation.objective, slope=slope
        )
        jumps, times = [c.jump for c in collisions], [c.step * self.dt + c.s for c in collisions]
        self.state = with_record(
            state, self.clock, self.label, evaluation.objective, jumps, times, iterations=1, slope=slope
        )
        self.clock = time.monotonic()
        if self.callback is not None and (stopped := asked_to_stop(self.callback, self.state)) is not None:
            raise DescentEnd(stopped)
        if slope <= self.tolerance:
            raise DescentEnd(Status.SOLVED)
        if self.clock > self.deadline:
            raise DescentEnd(Status.TIME_LIMIT)
        return slope

    def slope(self, evaluation: ShootingEvaluation) -> float:
        """Return the L2 norm of H_u (HMP, Eq. 30), or of u - P(u - H_u) on a bounded set."""
        # A gradient by one control is dt H_u.
        u, step = evaluation.rollout.u, evaluation.gradient / self.dt
        return float(np.sqrt(self.dt * ((u - self.problem.controls.project(u - step)) ** 2).sum()))

    def trial(self, u: Array) -> tuple[float, Array]:
        """Return J and its gradient for a line search; a large value if the integration fails."""
        try:
            evaluation = self.evaluate(u)
        except SweepFailure:
            # Before the first accepted iterate there is no scale for a penalty, so the failure is final.
            if self.last is None:
                raise
            # A large finite value: with infinity the interpolation of a line search would be NaN.
            return FAILED_COST * (1.0 + abs(self.last.objective)), np.zeros_like(u)
        return evaluation.objective, evaluation.gradient


def gradient_descent(descent: Descent, u: Array, scale: Array) -> tuple[Status, str]:
    """Iterate u <- P(u - dJ/du scale) (HMP, Section 6.2); `scale` is (n_u, n_u)."""
    # One more evaluation than steps: the last iterate is accepted or not, too.
    for _ in range(descent.max_iterations + 1):
        evaluation = descent.evaluate(u)
        slope = descent.accept(evaluation)
        u = descent.problem.controls.project(u - evaluation.gradient @ scale)
    return Status.ITERATION_LIMIT, f"the slope is {slope:.3e}"


def lbfgs(descent: Descent, u: Array) -> tuple[Status, str]:
    """Run SciPy's L-BFGS-B."""
    from scipy.optimize import Bounds, minimize

    shape, controls = u.shape, descent.problem.controls
    # The start counts as an iterate, so that a solved guess ends here and penalties have a scale.
    descent.accept(descent.evaluate(u))

    def objective(flat: Array) -> tuple[float, Array]:
        value, gradient = descent.trial(flat.reshape(shape))
        return value, gradient.ravel()

    def accept(flat: Array) -> None:
        descent.accept(descent.evaluate(flat.reshape(shape)))

    result = minimize(
        objective,
        u.ravel(),
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(np.tile(controls.lower, len(u)), np.tile(controls.upper, len(u))) if controls.is_box else None,
        callback=accept,
        # SciPy must not stop by its own tolerances: `accept` decides on the slope.
        options={"maxiter": descent.max_iterations, "maxfun": 20 * descent.max_iterations + 20, "ftol": 0, "gtol": 0},
    )
    return no_descent(descent, result.nit >= descent.max_iterations)


def no_descent(descent: Descent, exhausted: bool) -> tuple[Status, str]:
    """Return status and message of a descent that did not converge: iteration limit, or no descent (kink)."""
    if descent.best is None:
        return Status.NUMERICAL_ERROR, "the solver ended before its first iterate"
    slope = f"the slope is {descent.slope(descent.best):.3e}"
    if exhausted:
        return Status.ITERATION_LIMIT, slope
    steps = [c.step + c.s / descent.dt for c in descent.best.rollout.collisions]
    # A collision on a node makes the discrete objective nonsmooth, the usual reason for a failed line search.
    kinks = [place * descent.dt for place in steps if abs(place - round(place)) < AT_NODE]
    kink = "the discrete objective has a kink here, because a collision lies between two control intervals"
    reason = f": {kink} (t = {kinks[0]:.6g} s); form='phases' has none" if kinks else ""
    return Status.NO_DESCENT, f"the line search finds no descent, and {slope}{reason}"


# IPOPT's tolerance relative to that of the descent: at active bounds the slope is far above IPOPT's residual, so IPOPT
# must not stop first.
IPOPT_TOLERANCE = 1e-8


class _Callback(ca.Callback):
    """CasADi callback for a function of the control; stores exceptions, since IPOPT would print and ignore them.

    Parameters
    ----------
    name : str
    evaluate : function of a control (N, n_u)
    shape : (N, n_u)
    sizes : sequence of int
        Sizes of the arguments (columns); the first one is the control.
    fallback : DM
        Result after an exception; defines the size of all results.
    ends : list of BaseException
        Stored exceptions, shared by the callbacks of one descent.
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
            # After an exception IPOPT may go on calling for a while: NaN ends it soonest.
            if not self.ends:
                return [ca.DM(self.evaluate(np.array(arguments[0]).reshape(self.shape)))]
        except KeyboardInterrupt:
            self.ends.append(DescentEnd(Status.INTERRUPTED))
        except Exception as error:
            self.ends.append(error)
        return [self.fallback]


def ipopt(descent: Descent, u: Array) -> tuple[Status, str]:
    """Run IPOPT with an L-BFGS Hessian; a ball is a constraint on u'u."""
    controls, raised = descent.problem.controls, list[BaseException]()
    w, p = ca.MX.sym("u", u.size), ca.MX.sym("p", 0)
    length = ca.sum1(ca.reshape(w, u.shape[1], u.shape[0]) ** 2).T if controls.is_ball else ca.MX(0, 1)

    def watch(u: Array) -> int:
        """Log an iterate of IPOPT, which may be slightly outside of the set; end IPOPT when the descent has ended."""
        descent.accept(descent.evaluate(controls.project(u)))
        return 0

    sizes = {"x": u.size, "f": 1, "g": length.numel(), "lam_x": u.size, "lam_g": length.numel(), "lam_p": 0}
    output_sizes = [sizes[ca.nlpsol_out(i)] for i in range(ca.nlpsol_n_out())]
    # The fallback NaN is a failed evaluation to IPOPT: it shortens the step, or stops.
    value = _Callback("value", lambda u: descent.trial(u)[0], u.shape, [u.size], ca.DM.nan(1), raised)
    slope = _Callback("slope", lambda u: descent.trial(u)[1].ravel(), u.shape, [u.size], ca.DM.nan(u.size), raised)
    # The result 1 asks IPOPT to stop; it is the fallback, so that an exception stops it.
    watched = _Callback("watch", watch, u.shape, output_sizes, ca.DM(1), raised)
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
            "max_iter": descent.max_iterations,
            "tol": IPOPT_TOLERANCE * descent.tolerance * descent.dt,
        },
    }
    solver = ca.nlpsol("single", "ipopt", {"x": w, "p": p, "f": value(w), "g": length}, settings)
    descent.evaluate(u)  # raises if the start cannot be integrated
    bounds = {"lbx": np.tile(controls.lower, len(u)), "ubx": np.tile(controls.upper, len(u))}
    with one_thread:
        solver(x0=u.ravel(), lbg=-np.inf, ubg=controls.radius**2, **bounds)
    if raised:
        # The first exception is the cause; later ones follow from it.
        raise raised[0]
    return no_descent(descent, solver.stats()["return_status"] == "Maximum_Iterations_Exceeded")
