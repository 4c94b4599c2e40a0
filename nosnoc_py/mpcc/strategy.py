"""Common parts of all strategies for an MPCC: built solvers, state, and the loop init, step, terminate.

A strategy is an option object without state. Each step returns a new state, so that a loop written by the user gives
the same results as `run`:

    state = strategy.init(mpcc)
    while (status := strategy.terminate(state)) is None:
        state = strategy.step(state)

`Solvers` holds what is expensive to build (compiled functions, NLPs, factorisations) and is shared by strategies and
re-solves. `Strategy.conclude` replaces a failure by a proof that the program is infeasible or unbounded, if there is
one (`proofs`).
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import Field

from nosnoc_py.attempts.work import exhausted
from nosnoc_py.errors import TranscriptionError, check_run, check_type
from nosnoc_py.mpcc.branch import Branch, BranchOutcome, Finish
from nosnoc_py.mpcc.interior.method import InteriorPoint
from nosnoc_py.mpcc.ipopt import Ipopt, NLPResult, NLPSolver, check_freedom, defaults
from nosnoc_py.mpcc.linearization import Linearizer
from nosnoc_py.mpcc.nlp import NLP, Blocks, relaxed_nlp
from nosnoc_py.mpcc.parametric import Parametric
from nosnoc_py.mpcc.plugin import Plugin
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.proofs import Proofs, infeasibility_message, ray_message
from nosnoc_py.mpcc.residuals import Evaluator, Values
from nosnoc_py.mpcc.stationarity import Multipliers, StationarityCertificate, certify, feasibility_certificate
from nosnoc_py.options import Options, strictest
from nosnoc_py.solution.records import SolvedBranch, StepRecord
from nosnoc_py.status import Stationarity, Status, asked_to_stop
from nosnoc_py.tolerances import FAR

# Size of variables or objective beyond which residuals have no meaning: the iterates diverge.
HUGE = 1e12
# Factor beyond which a running solver is interrupted to test whether the program is unbounded.
# It starts a proof and decides nothing, so that it may be much smaller than FAR.
SUSPICIOUS = 1e4
WORST = 3  # number of residuals in a message
# Solvers of NLPs by the option `nlp_solver`; every other name is that of a plugin of CasADi.
NLP_SOLVERS: Mapping[str, Callable[[NLP, Mapping[str, Any]], NLPSolver]] = {
    "ipopt": Ipopt,
    "interior_point": InteriorPoint,
}
RUNS_AWAY = "the iterates run away although the objective is bounded below, which is proved"
# Statuses that a proof may replace: they describe where a solver stopped and nothing about other points.
UNPROVED = (
    Status.LOCALLY_INFEASIBLE,
    Status.NOT_COMPLEMENTARY,
    Status.ITERATION_LIMIT,
    Status.NOT_AN_OPTIMUM,
    Status.NUMERICAL_ERROR,
    Status.UNBOUNDED,
)


class Solvers:
    """Built parts of one MPCC, each created on first use; strategies, states and re-solves share them."""

    def __init__(self, mpcc: MPCC) -> None:
        self.mpcc = mpcc
        self._nlps: dict[tuple[str, str], NLP] = {}
        self._nlp_solvers: dict[str, NLPSolver] = {}
        self._methods: dict[tuple[str, str], InteriorPoint] = {}
        self._finishes: dict[str, Finish] = {}

    @cached_property
    def evaluator(self) -> Evaluator:
        """Functions and residuals of the MPCC."""
        return Evaluator(self.mpcc)

    @cached_property
    def linearizer(self) -> Linearizer:
        """First derivatives of the objective and of all rows."""
        return Linearizer(self.mpcc)

    @cached_property
    def proofs(self) -> Proofs:
        """Proofs of infeasibility and unboundedness from the affine rows."""
        return Proofs(self.mpcc, self.linearizer)

    @cached_property
    def blocks(self) -> Blocks:
        """Scaled functions with their derivatives."""
        return Blocks(self.mpcc)

    def relaxed(
        self,
        relaxation: str,
        steering: str,
        settings: Mapping[str, Any],
        by: str = "ipopt",
        given: Mapping[str, Any] | None = None,
    ) -> NLPSolver:
        """Return the solver of a relaxed NLP; solvers of the same NLP share its derivatives.

        Parameters
        ----------
        relaxation, steering : str
            As in `Homotopy`.
        settings : mapping
            Options of the NLP solver, by names of IPOPT.
        by : str
            "ipopt", "interior_point" or the name of a plugin of CasADi.
        given : mapping, optional
            Of a plugin: options of the user, by its own names.
        """
        key = f"{by} {relaxation} {steering} {dict(settings)}"  # IPOPT's options are fixed when it is built
        if key not in self._nlp_solvers:
            if (relaxation, steering) not in self._nlps:
                nlp = relaxed_nlp(self.blocks, relaxation, steering)
                check_freedom(nlp)  # an error with a remedy, before IPOPT refuses the program with an obscure one
                self._nlps[relaxation, steering] = nlp
            nlp = self._nlps[relaxation, steering]
            method, options = self._methods.get((relaxation, steering)), {**defaults(nlp.x.numel()), **settings}
            if by == "interior_point" and method is not None:
                solver: NLPSolver = method.with_options(options)
            elif by in NLP_SOLVERS:
                solver = NLP_SOLVERS[by](nlp, options)
            else:
                solver = Plugin(by, nlp, settings, given or {})
            self._nlp_solvers[key] = solver
            if isinstance(solver, InteriorPoint):
                self._methods[relaxation, steering] = solver
        return self._nlp_solvers[key]

    def finish(self, settings: Mapping[str, Any]) -> Finish:
        """Return the active-set finish with these options of the NLP solver."""
        key = f"{dict(settings)}"
        if key not in self._finishes:
            self._finishes[key] = Finish(self.blocks, self.evaluator, settings)
        return self._finishes[key]

    @cached_property
    def parametric(self) -> Parametric:
        """Derivatives of optima by the parameters."""
        return Parametric(self.finish({}).program)


@dataclass(frozen=True, eq=False, kw_only=True)
class SolverState:
    """State of a strategy.

    Attributes
    ----------
    solvers : Solvers
    w, p : ndarray
        Iterate and parameters, in the user's units.
    records : tuple of StepRecord
    values : Values
        Functions of the MPCC at w.
    complementarity, complementarity_min, infeasibility : float
        Residuals of the unrelaxed problem.
    multipliers : Multipliers, optional
        Multipliers of the last NLP.
    branch : Branch, optional
        Branch on which w was computed.
    solved_branch : SolvedBranch, optional
        The same with the multipliers of its NLP.
    certificate : StationarityCertificate, optional
        Kind of stationary point of w.
    status : Status, optional
        None while the strategy goes on.
    message : str
        Reason for the status.
    """

    solvers: Solvers
    w: np.ndarray
    p: np.ndarray
    values: Values
    complementarity: float
    complementarity_min: float
    infeasibility: float
    records: tuple[StepRecord, ...] = ()
    multipliers: Multipliers | None = None
    branch: Branch | None = None
    solved_branch: SolvedBranch | None = None
    certificate: StationarityCertificate | None = None
    status: Status | None = None
    message: str = ""

    @property
    def step(self) -> int:
        """Number of steps taken."""
        return len(self.records)

    @property
    def stationarity(self) -> Stationarity:
        """Strongest kind of stationarity that is certified."""
        return Stationarity.UNKNOWN if self.certificate is None else self.certificate.stationarity

    def moved_to(self, outcome: BranchOutcome) -> Any:
        """Return the state at the point of a branch, without the certificate of the last point."""
        return replace(
            self,
            w=outcome.w,
            branch=outcome.branch,
            solved_branch=outcome.solved,
            # Newton's method on a branch has no multipliers: those of the last NLP remain as candidates of a
            # certificate.
            multipliers=outcome.multipliers or self.multipliers,
            certificate=None,
            **measure(self.solvers.evaluator, outcome.w, self.p),
        )

    def with_record(self, label: str, sigma: float = 0.0, **fields: Any) -> Any:
        """Return the state with one more line in its log; `fields` are those of `record`."""
        return replace(self, records=(*self.records, record(self, label, sigma, **fields)))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}: step {self.step}, objective {self.values.objective:.8g}, "
            f"complementarity {self.complementarity:.1e}, infeasibility {self.infeasibility:.1e}"
        )


Callback = Callable[[SolverState], Any]


class Strategy(Options):
    """Base class of the strategies for an MPCC: init, step, terminate, and `run`, which is the loop over them."""

    complementarity_tolerance: float = Field(default=1e-8, gt=0)
    infeasibility_tolerance: float = Field(default=1e-8, gt=0, le=1)
    time_limit: float | None = Field(default=None, gt=0)

    @property
    def tolerances(self) -> dict[str, Any]:
        """Tolerances on the residuals of the unrelaxed problem, by name."""
        return {name: getattr(self, name) for name in ("complementarity_tolerance", "infeasibility_tolerance")}

    def init(
        self,
        mpcc: MPCC,
        guess: np.ndarray | None = None,
        p: np.ndarray | None = None,
        *,
        solvers: Solvers | None = None,
        sigma: float | None = None,
        clip: bool = True,
    ) -> Any:
        """Return the state before the first step.

        Parameters
        ----------
        mpcc : MPCC
        guess, p : (n_w,), (n_p,), optional
            Default those of the MPCC.
        solvers : Solvers, optional
            Built parts of the same MPCC, see `build`.
        sigma : float, optional
            Replaces the first relaxation parameter.
        clip : bool
            Move the guess inside its bounds.

        Raises
        ------
        TranscriptionError
            If the guess or the parameters have the wrong length or contain NaN.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> w = ca.SX.sym("w", 2)
        >>> mpcc = ns.MPCC.of_pairs(w=w, G=w[0], H=w[1], objective=(w[0] - 2) ** 2 + (w[1] - 1) ** 2, w0=1.0)
        >>> state = ns.Homotopy().init(mpcc, guess=[0.5, 0.5])
        >>> state.w, state.records
        (array([0.5, 0.5]), ())
        """
        check_type(mpcc, MPCC, "mpcc")
        return self.begin(start(mpcc, guess, p, solvers, clip), sigma)

    @abstractmethod
    def begin(self, fields: Mapping[str, Any], sigma: float | None) -> Any:
        """Return the state before the first step, from the fields common to all states (see `start`)."""

    def step(self, state: Any, *, deadline: float = np.inf) -> Any:
        """Take one step: solve one NLP or one LPEC; `deadline` is a time.monotonic() stamp.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> w = ca.SX.sym("w", 2)
        >>> mpcc = ns.MPCC.of_pairs(w=w, G=w[0], H=w[1], objective=(w[0] - 2) ** 2 + (w[1] - 1) ** 2, w0=1.0)
        >>> solver = ns.Homotopy()
        >>> state = solver.step(solver.init(mpcc))
        >>> len(state.records), solver.terminate(state) is None
        (1, True)
        """
        try:
            return self.advance(state, deadline)
        except KeyboardInterrupt:  # outside of IPOPT
            return replace(state, status=Status.INTERRUPTED)

    @abstractmethod
    def advance(self, state: Any, deadline: float) -> Any:
        """Take one step; `step` adds the treatment of Ctrl-C."""

    def terminate(self, state: Any) -> Status | None:
        """Return None while the strategy goes on, else its final status.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> w = ca.SX.sym("w", 2)
        >>> mpcc = ns.MPCC.of_pairs(w=w, G=w[0], H=w[1], objective=(w[0] - 2) ** 2 + (w[1] - 1) ** 2, w0=1.0)
        >>> solver = ns.Homotopy()
        >>> state = solver.init(mpcc)
        >>> while solver.terminate(state) is None:
        ...     state = solver.step(state)
        >>> solver.terminate(state).value
        'solved'
        """
        return state.status

    @abstractmethod
    def warm(self, mpcc: MPCC) -> tuple[Any, float]:
        """Return the strategy and the first sigma for a start from an iterate of the same program."""

    def build(self, mpcc: MPCC) -> Solvers:
        """Return built parts to pass to `init` for re-solves with other parameters.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> w, p = ca.SX.sym("w", 2), ca.SX.sym("p")
        >>> mpcc = ns.MPCC.of_pairs(w=w, p=p, G=w[0], H=w[1], objective=(w[0] - p) ** 2 + w[1] ** 2, w0=1.0)
        >>> solver, parts = ns.Homotopy(), ns.Homotopy().build(mpcc)
        >>> [round(float(solver.run(mpcc, p=[p], solvers=parts).w[0]), 4) for p in (1.0, 2.0)]
        [1.0, 2.0]
        """
        return Solvers(mpcc)

    def run(
        self,
        mpcc: MPCC,
        guess: np.ndarray | None = None,
        p: np.ndarray | None = None,
        *,
        callback: Callback | None = None,
        time_limit: float | None = None,
        **options: Any,
    ) -> Any:
        """Run init, then step until terminate; the returned state has a status.

        Parameters
        ----------
        callback : callable, optional
            Called with the state after every step; returning `ns.Stop` ends the run.
        time_limit : float, optional
            [s]; the stricter one of this and the option of the strategy applies.
        **options
            See `init`.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> w = ca.SX.sym("w", 2)
        >>> mpcc = ns.MPCC.of_pairs(w=w, G=w[0], H=w[1], objective=(w[0] - 2) ** 2 + (w[1] - 1) ** 2, w0=1.0)
        >>> state = ns.Homotopy().run(mpcc)
        >>> state.status.value, state.w.round(4) + 0.0
        ('solved', array([2., 0.]))
        """
        check_type(mpcc, MPCC, "mpcc")
        check_run(callback, time_limit)
        started = time.monotonic()
        limit = strictest(time_limit, self.time_limit)
        state = self.init(mpcc, guess, p, **options)
        while (status := self.terminate(state)) is None:
            if exhausted() or time.monotonic() - started > limit:
                # No `conclude`: there is nothing left for a proof.
                return self.finalise(state, Status.WORK_LIMIT if exhausted() else Status.TIME_LIMIT)
            state = self.step(state, deadline=started + limit)
            if callback is not None and (stop := asked_to_stop(callback, state)) is not None:
                # A status that the last step reached has priority over the request to stop.
                return self.conclude(self.finalise(state, self.terminate(state) or stop), started + limit)
            # Tested in the loop, because an NLP solver may follow a ray for hundreds of iterations before it gives up.
            if self._is_lost(state, started + limit):
                return self.conclude(self.finalise(state, Status.UNBOUNDED), started + limit)
        return self.conclude(self.finalise(state, status), started + limit)

    def _is_lost(self, state: SolverState, deadline: float) -> bool:
        """Return True if the iterates diverge and the program is proved to be unbounded."""
        diverging = bool(state.records) and state.records[-1].solver_status == "Diverging_Iterates"
        if not (diverging or _is_far(state, SUSPICIOUS)):
            return False
        # Large iterates may return; only a ray that is proved ends the run.
        return state.solvers.proofs.ray(state.p, self.infeasibility_tolerance, deadline)[0] is not None

    def conclude(self, state: Any, deadline: float = np.inf) -> Any:
        """Return the state with the status INFEASIBLE or UNBOUNDED if that is proved, else with a message on the cause.

        A solved point may belong to an unbounded program, too: it is a local minimum, or a point on the way to infinity
        at which IPOPT stopped because its tolerances are relative to large numbers.
        """
        proofs, status, tolerance = state.solvers.proofs, state.status, self.infeasibility_tolerance
        # Infeasibility first: a program without points is not unbounded.
        if status in UNPROVED:
            proof = proofs.feasibility(state.p, tolerance, deadline)
            if proof.violation > 0.0:
                message = infeasibility_message(state.solvers.mpcc, proof)
                return replace(state, status=Status.INFEASIBLE, message=message)
        if status in UNPROVED or status is Status.SOLVED:
            # Solved points, too: a solver may stop at a local minimum, or far out with relative tolerances.
            ray, complete = proofs.ray(state.p, tolerance, deadline)
            if ray is not None:
                local = status is Status.SOLVED and certificate_of(state).b_stationary is True
                note = "; the point is a local solution" if local else ""
                message = f"proved: {ray_message(state.solvers.mpcc, ray)}{note}"
                return replace(state, status=Status.UNBOUNDED, message=message)
            if status is Status.SOLVED and not complete and _escapes(state):
                return replace(state, status=Status.UNBOUNDED, message=_far(state))
            if status is Status.UNBOUNDED and proofs.is_bounded_below(state.p):
                return replace(state, status=Status.ITERATION_LIMIT, message=RUNS_AWAY)
            if status is Status.UNBOUNDED:
                return replace(state, message=_far(state))
        if status in (Status.LOCALLY_INFEASIBLE, Status.NOT_COMPLEMENTARY):
            return replace(state, message=_largest(state))
        return state

    def certify(self, state: SolverState, **options: Any) -> StationarityCertificate:
        """Return the certificate of stationarity of a state's iterate, also of one that is not final.

        Parameters
        ----------
        state : SolverState
        **options
            Options of `nosnoc_py.mpcc.stationarity.certify`: tolerance, biactive_tolerance, time_limit and others.
        """
        check_type(state, SolverState, "state")
        return certificate_of(state, **options)

    def finalise(self, state: Any, status: Status) -> Any:
        """Return the state with its final status."""
        return replace(state, status=status)

    def residuals_small(self, state: SolverState) -> bool:
        """Return True if the unrelaxed problem is feasible and complementary, at a point of finite size."""
        return residuals_small(state, self)


def residuals_small(state: SolverState, options: Any) -> bool:
    """Return True if the residuals are within the two tolerances of some options, at a point of finite size."""
    return (
        not runs_away(state)
        and state.complementarity <= options.complementarity_tolerance
        and state.infeasibility <= options.infeasibility_tolerance
    )


def _escapes(state: SolverState) -> bool:
    """Return True if the point is far from the start and the objective still descends."""
    if state.solvers.mpcc.objective.is_constant() or not _is_far(state, FAR):
        return False
    return certificate_of(state).b_stationary is False


def _is_far(state: SolverState, factor: float) -> bool:
    """Return True if the point is larger than `factor` times the start, or NaN."""
    # `not <` instead of `>=`: NaN is far.
    return not _size(state) < factor * max(1.0, np.abs(state.solvers.mpcc.w0).max(initial=0.0))


def _size(state: SolverState) -> float:
    return float(np.abs(state.w).max(initial=0.0))


def _far(state: SolverState) -> str:
    return (
        f"not proved: the iterates run away, |w| = {_size(state):.2g}, and the objective falls with them to "
        f"{state.values.objective:.3g}"
    )


def _largest(state: SolverState) -> str:
    worst = state.solvers.evaluator.worst(state.values, WORST)
    return f"not proved; largest residuals: {', '.join(map(str, worst))}" if worst else ""


def final_certificate(state: SolverState) -> StationarityCertificate | None:
    """Return the certificate of a final state; a solved state without one is certified now."""
    solved = state.status is not None and state.status.success
    return certificate_of(state) if state.certificate is None and solved else state.certificate


def start(
    mpcc: MPCC, guess: np.ndarray | None, p: np.ndarray | None, solvers: Solvers | None, clip: bool
) -> dict[str, Any]:
    """Return the fields common to all initial states."""
    solvers = Solvers(mpcc) if solvers is None else solvers
    w = _checked(mpcc.w0 if guess is None else guess, mpcc.w0.size, "guess")
    p = _checked(mpcc.p0 if p is None else p, mpcc.p0.size, "parameters p")
    w = np.clip(w, mpcc.lbw, mpcc.ubw) if clip else w
    return {"solvers": solvers, "w": w, "p": p, **measure(solvers.evaluator, w, p)}


def measure(evaluator: Evaluator, w: np.ndarray, p: np.ndarray) -> dict[str, Any]:
    """Return functions and residuals at a point, as fields of a state."""
    values = evaluator(w, p)
    return {
        "values": values,
        "complementarity": evaluator.complementarity(values),
        "complementarity_min": evaluator.complementarity_min(values),
        "infeasibility": evaluator.infeasibility(values),
    }


def common(state: SolverState, *without: str) -> dict[str, Any]:
    """Return the fields of `SolverState` of any state: what a strategy takes over from an inner one."""
    names = {field.name for field in fields(SolverState)} - set(without)
    return {name: getattr(state, name) for name in names}


def runs_away(state: SolverState) -> bool:
    """Return True if the iterate or its objective is NaN or too large for residuals to have a meaning."""
    # `not (... and ...)`: NaN in either number counts as running away.
    return not (abs(state.values.objective) < HUGE and np.abs(state.w).max(initial=0.0) < HUGE)


def record(
    state: SolverState,
    label: str,
    sigma: float = 0.0,
    *,
    step: int | None = None,
    iterations: int = 0,
    seconds: float = 0.0,
    word: str = "",
) -> StepRecord:
    """Return one line of the log about the state's iterate; `word` is the status of the NLP solver."""
    return StepRecord(
        step=len(state.records) if step is None else step,
        label=label,
        sigma=sigma,
        objective=state.values.objective,
        complementarity=state.complementarity,
        infeasibility=state.infeasibility,
        iterations=iterations,
        wall_seconds=seconds,
        solver_status=word,
    )


def nlp_multipliers(mpcc: MPCC, result: NLPResult) -> Multipliers:
    """Return the multipliers of g and of the bounds; those of G and H cannot be separated from the products'."""
    w, g = result.lam_x[: mpcc.w0.size] / mpcc.w_scale, result.lam_g[: mpcc.lbg.size] / mpcc.g_scale
    return replace(Multipliers.zeros(mpcc), w=w, g=g)


def certificate_of(state: SolverState, **options: Any) -> StationarityCertificate:
    """Return the certificate of stationarity of the state's iterate; options as in `stationarity.certify`."""
    mpcc = state.solvers.mpcc
    if mpcc.objective.is_constant():
        # Without an objective every feasible point is stationary; an LPEC would have a zero gradient.
        return feasibility_certificate(mpcc, state.values, options.get("biactive_tolerance", 1e-8))
    # Multipliers of a relaxed NLP belong to its products; only those of a branch are candidates for the MPCC's.
    at = state.solvers.linearizer(state.w, state.p)
    exact: dict[str, Any] = {} if state.branch is None else {"multipliers": state.multipliers, "held": state.branch.r}
    return certify(mpcc, at, state.w, **exact, **options)


def _checked(value: Any, size: int, what: str) -> np.ndarray:
    try:
        array = np.array(value, dtype=float).reshape(-1)  # a copy: the caller may change its array later
    except Exception:  # CasADi symbols raise plain Exception in some versions
        raise TranscriptionError(f"{what}: expected {size} numbers, given {value!r}.") from None
    if array.size != size:
        raise TranscriptionError(f"{what}: expected {size} numbers, given {array.size}; use the problem's own layout.")
    if not np.isfinite(array).all():
        first = int(np.argmin(np.isfinite(array)))
        raise TranscriptionError(f"{what}: contains {array[first]} at position {first}; every number has to be finite.")
    return array
