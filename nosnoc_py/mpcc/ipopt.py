"""IPOPT (Waechter & Biegler 2006) through CasADi: an NLP is built once and solved many times, with a deadline.

Options of a built solver are fixed, so that a deadline that changes from solve to solve needs an iteration callback. It
asks the clock, and keeps the last iterate, which IPOPT does not return after Ctrl-C. The status of IPOPT is reported in
its own words and never taken for success.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import casadi as ca
import numpy as np

from nosnoc_py.attempts import work
from nosnoc_py.errors import OptionError
from nosnoc_py.mpcc.nlp import NLP, SmoothProgram, entries_of, operations_of
from nosnoc_py.mpcc.threads import one_thread

# CasADi catches Ctrl-C inside IPOPT, which shows it by one of these statuses; inside a function it counts as one that
# has no value there, and IPOPT goes on (`SeenInterrupt`).
INTERRUPTED = ("User_Requested_Stop", "NonIpopt_Exception_Thrown")
SUCCESS = ("Solve_Succeeded", "Solved_To_Acceptable_Level")

# Options for all programs. bound_relax_factor = 0: relaxed bounds would make complementary variables negative.
COMMON: Mapping[str, Any] = {
    "print_level": 0,
    "sb": "yes",
    "mu_strategy": "adaptive",
    "mu_oracle": "quality-function",
    "bound_relax_factor": 0.0,
}
TIGHT: Mapping[str, Any] = {
    "tol": 1e-12,
    "dual_inf_tol": 1e-12,
    "compl_inf_tol": 1e-12,
    "mu_target": 1e-12,
    "acceptable_tol": 1e-9,
    "acceptable_iter": 5,
}
# Programs with more than LARGE variables would spend most of their iterations on the last digits of the dual
# infeasibility, which the active-set finish yields anyway.
LOOSE: Mapping[str, Any] = {"tol": 1e-8, "dual_inf_tol": 1.0, "compl_inf_tol": 1e-8, "constr_viol_tol": 1e-8}
LARGE = 600
# Every call of the callback enters Python: in programs with up to SLOW_ITERATIONS variables a call in every iteration
# would take a quarter of the time.
ITERATIONS_PER_QUESTION = 10
SLOW_ITERATIONS = 2000


PUSHES = ("bound_push", "bound_frac", "slack_bound_push", "slack_bound_frac", "mult_bound_push")


def warm_start(mu: float, push: float) -> dict[str, Any]:
    """Return options for a start from multipliers, with this barrier parameter and distance from the bounds."""
    pushes = {f"warm_start_{name}": push for name in PUSHES}
    return {"warm_start_init_point": "yes", "mu_strategy": "monotone", "mu_init": mu, **pushes}


def defaults(variables: int) -> dict[str, Any]:
    """Return IPOPT's options for a program with this number of variables."""
    return {**COMMON, **(TIGHT if variables <= LARGE else LOOSE)}


@dataclass(frozen=True, eq=False, kw_only=True)
class NLPResult:
    """Result of an NLP solver; `solver_status` is its own word and never taken for success.

    Attributes
    ----------
    x, lam_x, lam_g : ndarray
        Last iterate, multipliers of bounds and of rows (CasADi's signs).
    iterations : int
    wall_seconds : float
    solver_status : str
    interrupted : bool
        Ended by Ctrl-C.
    """

    x: np.ndarray
    lam_x: np.ndarray
    lam_g: np.ndarray
    iterations: int
    wall_seconds: float
    solver_status: str
    interrupted: bool = False

    @property
    def duals(self) -> dict[str, np.ndarray]:
        """Multipliers as keyword arguments of `NLPSolver.solve`."""
        return {"lam_x0": self.lam_x, "lam_g0": self.lam_g}

    @property
    def converged(self) -> bool:
        """True if the solver reports convergence of this NLP."""
        return self.solver_status in SUCCESS


class NLPSolver(Protocol):
    """Solver of one NLP with changing bounds, parameters and starts."""

    nlp: Any

    def solve(self, x: np.ndarray, p: np.ndarray, *, deadline: float = np.inf, **given: np.ndarray) -> NLPResult:
        """Solve from x; `deadline` is a time.monotonic() stamp, `given` are bounds and multipliers."""


class SeenInterrupt:
    """Context that notes Ctrl-C beside the handler that is there; only the main thread gets it.

    Attributes
    ----------
    seen : bool

    Examples
    --------
    >>> with SeenInterrupt() as interrupt:
    ...     pass
    >>> interrupt.seen
    False
    """

    def __enter__(self) -> SeenInterrupt:
        before = signal.getsignal(signal.SIGINT)
        self.seen, self._before = False, before if threading.current_thread() is threading.main_thread() else None
        if callable(self._before):
            signal.signal(signal.SIGINT, self._note)
        return self

    def _note(self, number: int, frame: Any) -> None:
        self.seen = True
        if callable(self._before):
            self._before(number, frame)

    def __exit__(self, *_: object) -> None:
        if callable(self._before):
            signal.signal(signal.SIGINT, self._before)


class _Deadline(ca.Callback):
    """Callback that stops IPOPT at a deadline, or after a number of iterations, and keeps its last iterate."""

    at: float
    iterations: float
    calls: int
    passed: bool
    x: np.ndarray | None
    interrupt: SeenInterrupt | None

    def __init__(self, n_x: int, n_g: int, n_p: int, step: int) -> None:
        ca.Callback.__init__(self)
        self._sizes = {"x": n_x, "f": 1, "g": n_g, "lam_x": n_x, "lam_g": n_g, "lam_p": n_p}
        self.step = step
        self.arm(np.inf, np.inf)
        self.construct("deadline", {})

    def arm(self, at: float, iterations: float) -> None:
        self.at, self.iterations, self.calls, self.passed, self.x = at, iterations, 0, False, None
        self.interrupt = None

    def get_n_in(self) -> int:
        return int(ca.nlpsol_n_out())

    def get_n_out(self) -> int:
        return 1

    def get_sparsity_in(self, i: int) -> ca.Sparsity:
        return ca.Sparsity.dense(self._sizes[ca.nlpsol_out(i)], 1)

    def eval(self, arguments: Any) -> list[int]:
        # IPOPT returns no iterate when it is interrupted.
        self.x = np.asarray(arguments[0]).reshape(-1)
        # Iterations of this call are not counted yet, as IPOPT counts them itself.
        self.calls += 1
        self.passed = time.monotonic() > self.at or self.calls * self.step > self.iterations
        return [int(self.passed or (self.interrupt is not None and self.interrupt.seen))]


class Ipopt:
    """IPOPT for one NLP; `solve` may be called with changing bounds, parameters and starts."""

    def __init__(self, nlp: SmoothProgram, options: Mapping[str, Any]) -> None:
        self.nlp, self._options, self._lock = nlp, dict(options), threading.Lock()
        # Every call of the callback enters Python.
        step = ITERATIONS_PER_QUESTION if nlp.x.numel() <= SLOW_ITERATIONS else 1
        self._deadline = _Deadline(nlp.x.numel(), nlp.g.numel(), nlp.p.numel(), step)
        settings = {
            "ipopt": {**defaults(nlp.x.numel()), **options},
            "print_time": False,
            "calc_lam_p": False,
            "error_on_fail": False,
            "show_eval_warnings": False,
            "inputs_check": False,  # it would warn if equations of a branch outnumber its variables
            "verbose_init": False,
            "no_nlp_grad": True,  # needed for multipliers of p only
            "iteration_callback": self._deadline,
            "iteration_callback_step": step,
            **nlp.derivatives,
        }
        self._work = work.of_iteration(operations_of(nlp), entries_of(nlp))
        work.count(work.of_program(operations_of(nlp)))
        # A constant objective has no entry, which nlpsol would refuse.
        problem = {"x": nlp.x, "p": nlp.p, "f": ca.densify(nlp.f), "g": nlp.g}
        try:
            self._solver = ca.nlpsol("nlp", "ipopt", problem, settings)
        except RuntimeError as error:
            raise OptionError(f"IPOPT refused its options {dict(options)}: {str(error)[:1500]}") from None

    def solve(self, x: np.ndarray, p: np.ndarray, *, deadline: float = np.inf, **given: np.ndarray) -> NLPResult:
        """Solve from x; `deadline` is a time.monotonic() stamp.

        `given` are bounds lbx, ubx, lbg, ubg that replace the NLP's own, and multipliers lam_x0, lam_g0, which are used
        only with IPOPT's option `warm_start_init_point`.

        Raises
        ------
        OptionError
            If IPOPT does not start with its options.
        """
        bounds = {name: getattr(self.nlp, name) for name in ("lbx", "ubx", "lbg", "ubg")}
        with self._lock:  # threads share the deadline and IPOPT's statistics
            self._deadline.arm(deadline, work.left() / self._work)
            started = time.monotonic()
            with one_thread, SeenInterrupt() as self._deadline.interrupt:
                answer = self._solver(x0=x, p=p, **{**bounds, **given})
            seen = self._deadline.interrupt.seen
            stats, passed, last = self._solver.stats(), self._deadline.passed, self._deadline.x
        if stats["return_status"] == "Invalid_Option":
            raise OptionError(
                f"IPOPT did not start with its options {self._options}: the usual reason is a linear_solver that "
                "is not installed. Leave linear_solver out to use MUMPS, which is always there."
            )
        # If IPOPT refuses to begin (more equations than variables), iter_count is uninitialised memory; the history of
        # the iterations is missing then.
        iterations = int(stats["iter_count"]) if stats.get("iterations") else 0
        work.count((1 + iterations) * self._work)
        # A passed deadline ends IPOPT with the same status as Ctrl-C.
        interrupted = seen or (stats["return_status"] in INTERRUPTED and not passed)
        x, lam_x, lam_g = (np.asarray(answer[key]).reshape(-1) for key in ("x", "lam_x", "lam_g"))
        return NLPResult(
            x=last if interrupted and last is not None else x,
            lam_x=lam_x,
            lam_g=lam_g,
            iterations=iterations,
            wall_seconds=time.monotonic() - started,
            solver_status=str(stats["return_status"]),
            interrupted=interrupted,
        )


def check_freedom(nlp: NLP) -> None:
    """Raise `OptionError` if a relaxed program has more equations than free variables."""
    equations, free = int((nlp.lbg == nlp.ubg).sum()), int((nlp.lbx < nlp.ubx).sum())
    if equations > free:
        raise OptionError(
            f"the relaxed program has {equations} equations for {free} free variables: an equality relaxation needs "
            "cross_complementarity='fe_fe' (one product per element), or use an inequality relaxation; with an "
            "inequality relaxation the constraints themselves are too many: remove some or add controls."
        )
