"""Statuses of solvers and simulators, kinds of stationary points, and verdicts of certificates."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from enum import Enum
from typing import Any


class Status(Enum):
    """Reason why a solver, a simulator or a controller ended; `remedy` is the advice that goes with it.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> ns.Status.ITERATION_LIMIT.success, ns.Status.ITERATION_LIMIT.remedy
    (False, 'Raise max_iterations, or start from a better guess.')
    """

    SOLVED = "solved"
    FEASIBLE = "feasible"
    NOT_COMPLEMENTARY = "not complementary"
    INFEASIBLE = "infeasible"
    LOCALLY_INFEASIBLE = "locally infeasible"
    ITERATION_LIMIT = "iteration limit"
    TIME_LIMIT = "time limit"
    WORK_LIMIT = "work limit"
    INTERRUPTED = "interrupted"
    STOPPED = "stopped by callback"
    NUMERICAL_ERROR = "numerical error"
    UNBOUNDED = "unbounded"
    STEP_FAILED = "simulation step failed"
    NO_ADMISSIBLE_IMPACT = "no admissible impact"
    ENERGY_GAIN = "impact gains energy"
    PAINLEVE = "no admissible acceleration"
    GRAZING = "grazing contact"
    ZENO = "too many impacts"
    COLLISION_LOST = "collision lost"
    SIMULTANEOUS = "simultaneous collisions"
    SEQUENCE_LOST = "sequence of collisions undecided"
    NO_DESCENT = "no further descent"
    NOT_AN_OPTIMUM = "not an optimum"
    NOT_EVENT_SELECTED = "not event-selected"
    INACCURATE = "steps too long"
    BADLY_SCALED = "badly scaled"
    NOT_CERTIFIED = "solved, not certified"
    NOT_CONFIRMED = "not confirmed"
    NOT_KEPT = "sequence not kept"
    CONTROLLER_FAILED = "controller failed"
    POOR_FIT = "poor fit"

    @property
    def success(self) -> bool:
        """True for `SOLVED`, `FEASIBLE` and `NOT_CERTIFIED`: the unrelaxed problem is feasible and complementary."""
        return self in (Status.SOLVED, Status.FEASIBLE, Status.NOT_CERTIFIED)

    @property
    def remedy(self) -> str:
        """Advice on what to try next."""
        return _REMEDIES[self]

    def __str__(self) -> str:
        return self.value


# Limits that end a method, of time by the clock or of counted work.
LIMITS = (Status.TIME_LIMIT, Status.WORK_LIMIT)
UNITS = "write the problem in units in which lengths, times, masses and forces are about 1 (mm, g or mg, ms)"

_REMEDIES = {
    Status.SOLVED: (
        "A solved point is a local optimum of one discretisation. Stronger evidence: solution.certificate, the same "
        "optimum from starts of different kinds (ns.solve(ocp) without a method), and "
        "solution.polish(), whose grid moves with the events."
    ),
    Status.FEASIBLE: (
        "The motion satisfies everything, but it was not shown that nothing near it is better: continue from it with "
        "guess=solution or effort='thorough', or raise max_iterations. A cost or a constraint with a kink, which the "
        "warnings name, is the usual reason."
    ),
    Status.NOT_COMPLEMENTARY: (
        "The smallest relaxation still leaves complementarity residuals: raise finite_elements where several switches "
        "fall into one control stage, or control_stages; solve without a method, ns.solve(ocp), or from another guess; "
        f"lower sigma_min, or try steering='l_inf'. Residuals are absolute: {UNITS}."
    ),
    Status.INFEASIBLE: (
        "There is no feasible point of this discretisation, whatever the start: bounds or constraints contradict "
        "each other. Look at solution.worst and at the message, and give the rows that are named there more room, or "
        "the control more freedom by control_stages."
    ),
    Status.LOCALLY_INFEASIBLE: (
        "No point nearby is feasible, which proves nothing about others. Look at the message and at solution.worst: "
        "give the rows that are named there more room, or make them soft (soft='l1'); check bounds and horizon; start "
        "from another guess=; search longer by effort='thorough'. With finite elements: solve without a method, "
        "ns.solve(ocp); raise control_stages, which give the control more freedom, or finite_elements in every stage; "
        "use a larger sigma_0 from a cold start, a smaller one (1e-3) with a guess whose contacts touch, or a slower "
        f"kappa; their residuals are absolute: {UNITS}."
    ),
    Status.ITERATION_LIMIT: "Raise max_iterations, or start from a better guess.",
    Status.TIME_LIMIT: (
        "Raise time_limit, or continue from this iterate with guess=solution. If no start led to a feasible motion, "
        "look at the constraints that the message names, make them soft (soft='l1'), or give a sequence, keyframes or "
        "a guess."
    ),
    Status.NOT_KEPT: (
        "The given sequence has no motion near the guess: look at the phases that the message names, give times= or a "
        "guess nearer to the motion that is meant, or let the sequence change by follow=True. solution.sequence is the "
        "sequence of what was found."
    ),
    Status.WORK_LIMIT: (
        "The work of this effort is used up: give a larger one (effort='thorough'), or continue from this iterate with "
        "guess=solution. If no start led to a feasible motion, look at the constraints that the message names, make "
        "them soft (soft='l1'), or give a sequence, keyframes or a guess."
    ),
    Status.INTERRUPTED: "The last iterate is kept: continue from it with guess=solution.",
    Status.STOPPED: "The last iterate is kept: continue from it with guess=solution.",
    Status.NUMERICAL_ERROR: (
        "A function returned NaN or infinity: look for divisions by zero and square roots at zero in the model, "
        "regularise them, and give nominal values or bounds that keep iterates away."
    ),
    Status.UNBOUNDED: (
        "The objective decreases without bound on the feasible set (the message says whether this is proved): bound "
        "the variables, or look for a cost of the wrong sign."
    ),
    Status.STEP_FAILED: (
        "A simulation step found no solution from any initial guess: use smaller steps or more finite elements "
        "(several events in one step need one element each); the trajectory up to this step is kept."
    ),
    Status.NO_ADMISSIBLE_IMPACT: (
        "The impact law has no solution here: Newton's restitution is inconsistent for several simultaneous impacts, "
        "or together with friction. Lower the restitution of the contacts that the message names."
    ),
    Status.ENERGY_GAIN: (
        "Newton's restitution would increase the kinetic energy here, which is not physical: several contacts "
        "collide at once, or friction acts together with restitution. Lower the restitution (or the friction) of the "
        "contacts that the message names; with ns.TimeStepping, smaller steps separate impacts that are not "
        "simultaneous."
    ),
    Status.PAINLEVE: (
        "Friction presses a slipping contact into its surface (Painleve's paradox): rigid bodies with Coulomb friction "
        "have no acceleration here, or several. Lower the friction of the contacts that the message names, or make "
        "them compliant."
    ),
    Status.GRAZING: (
        "A contact or a switching surface is touched with zero velocity (grazing), or several motions are possible: "
        "arbitrarily small changes of the data decide. Use EventDriven(grazing='continue'), or change x0."
    ),
    Status.ZENO: (
        "Impacts or switches accumulate (Zeno behaviour): give rest_velocity, below which impacts are inelastic, a "
        "control law that does not chatter, or raise max_impacts (max_events) if so many are real; a rigid body rests "
        "with zeno='settle'."
    ),
    Status.COLLISION_LOST: (
        "The motion has no collision, and without one the gradient may not depend on the controls: start from a "
        "control with a collision (guess=...), use a smaller relaxation, or a method that needs no collision, ns.FESDJ."
    ),
    Status.SIMULTANEOUS: (
        "Several guards are reached at once, but the minimum principle needs isolated collisions: start from another "
        "control, or use ns.FESDJ, which takes several contacts at once."
    ),
    Status.SEQUENCE_LOST: (
        "The iterates alternate between sequences of collisions: use a smaller relaxation, no acceleration, "
        "grid='uniform', or another start."
    ),
    Status.NO_DESCENT: (
        "The iteration stalls before the optimality conditions are satisfied (the message says how "
        "far it is): start from another guess, or use a method that is exact at collisions, ns.MinimumPrinciple or "
        "ns.DirectShooting(form='phases')."
    ),
    Status.NOT_AN_OPTIMUM: (
        "The result satisfies the equations but is not a valid optimum (the message says why): start from a better "
        "iterate, or prescribe another sequence of collisions."
    ),
    Status.NOT_EVENT_SELECTED: (
        "A guard is not crossed with nonzero rate from both sides (the message says which and where), so the system "
        "is not event-selected there: reverse the sign of a guard that decreases where it is crossed, or use "
        "ns.EventDriven or ns.FESD with an ns.PSS, which can slide."
    ),
    Status.INACCURATE: (
        "The estimated error of a step, or of all together, is above the tolerance (the message says where, how large "
        "it is, and proposes a length or a number): use shorter steps, of finite elements also more rk_stages; the "
        "trajectory is kept, but is not reliable from there on."
    ),
    Status.NOT_CERTIFIED: (
        "The problem is solved, but no independent simulation can confirm the motion (the message says why): look at "
        "solution.certificate, and compare with another method or other parameters."
    ),
    Status.NOT_CONFIRMED: (
        "The program is solved, but the simulation of its control deviates (the message says how): give more time "
        "(time_limit=, effort='thorough'), or look at solution.certificate for the first deviation."
    ),
    Status.CONTROLLER_FAILED: (
        "The controller raised an error or returned no control (the message says which): catch it and return a safe "
        "control, as ns.MPC does by on_failure= and not_finite='hold'; all samples before are in the log."
    ),
    Status.POOR_FIT: (
        "The residuals are much larger than the noise: give better start= values, wider ranges, more starts=, "
        "segments= for long motions, or estimate further unknown parameters; if nothing helps, the model is "
        "incomplete or sigma is too small."
    ),
    Status.BADLY_SCALED: (
        "Residuals are small in absolute terms, but not relative to the motion (the message says which law is "
        f"broken, and when): {UNITS}; nominal values do not help here."
    ),
}


class Stationarity(Enum):
    """Kind of stationary point of an MPCC, strongest first; `UNKNOWN` until it is certified.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> w = ca.SX.sym("w", 2)
    >>> mpcc = ns.MPCC.of_pairs(w=w, G=w[0], H=w[1], objective=(w[0] - 2) ** 2 + (w[1] - 1) ** 2, w0=1.0)
    >>> ns.solve_mpcc(mpcc).stationarity is ns.Stationarity.S
    True
    """

    S = "S"
    M = "M"
    C = "C"
    W = "W"
    B = "B"
    UNKNOWN = "unknown"


class Verdict(Enum):
    """Verdict of an independent simulation on a solution.

    Attributes
    ----------
    CONFIRMED
        Events, end state, objective, bounds and constraints hold on the simulated motion, between the nodes, too.
    CONFIRMED_IN_WINDOWS
        They do in every window, simulated from the solution's own state; the whole motion amplifies errors.
    CONSTRAINT_BETWEEN_NODES
        The motion is confirmed; a bound or a path constraint holds where the method imposes it, and not between.
    INACCURATE
        The events agree; states or objective do not, by an error of discretisation or of the solver's residuals.
    REFUTED
        A law, an event, a constraint or a statement is wrong by more than such errors explain.
    UNDECIDED
        The motion is not unique, rounding decides it, or the simulation stops.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
    >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.5) ** 2)
    >>> ns.solve(ocp, ns.FESDJ(control_stages=2)).certificate.verdict is ns.Verdict.CONFIRMED
    True
    """

    CONFIRMED = "confirmed"
    CONFIRMED_IN_WINDOWS = "confirmed in windows"
    CONSTRAINT_BETWEEN_NODES = "constraint broken between nodes"
    INACCURATE = "same events, inaccurate"
    REFUTED = "refuted"
    UNDECIDED = "undecided"

    def __str__(self) -> str:
        return self.value


class Stop:
    """Return value of a callback (class or instance) that ends the work with the last iterate.

    Examples
    --------
    Stop a simulation after the second step:

    >>> import casadi as ca, nosnoc_py as ns
    >>> x = ca.SX.sym("x")
    >>> stop = lambda state: ns.Stop if state.t > 0.5 else None
    >>> motion = ns.simulate(ns.ODE(x=x, flow=-x), x0=[1.0], duration=9.0, method=ns.FESD(), steps=90, callback=stop)
    >>> motion.status.value
    'stopped by callback'
    """


def iterated(
    state: Any,
    step: Callable[[Any, float], Any],
    final_fields: Callable[[Any], dict[str, Any] | None],
    callback: Callable[[Any], Any] | None,
    deadline: float,
    least: int = 0,
) -> Any:
    """Step until the end; the last state has a status.

    Parameters
    ----------
    state : frozen dataclass with a status
    step : function of a state and the deadline
    final_fields : function of a state
        The fields that the last state ends with, its status among them; None while there is something left to do.
    callback : function of a state, optional
        Sees every state after a step and may stop the work.
    deadline : float
        Stamp of time.monotonic().
    least : int
        Steps that are made whatever the deadline.
    """
    taken = 0
    while (end := final_fields(state)) is None:
        if taken >= least and time.monotonic() > deadline:
            return replace(state, status=Status.TIME_LIMIT)
        try:
            state, taken = step(state, deadline), taken + 1
        except KeyboardInterrupt:
            return replace(state, status=Status.INTERRUPTED)
        if callback is not None and (stop := asked_to_stop(callback, state)) is not None:
            return replace(state, **(final_fields(state) or {"status": stop}))
    return replace(state, **end)


def seconds_to(deadline: float) -> float | None:
    """Return the time [s] until a stamp of time.monotonic(), None for an infinite one.

    Examples
    --------
    >>> seconds_to(float("inf")), seconds_to(0.0)
    (None, 0.0)
    """
    return None if math.isinf(deadline) else max(0.0, deadline - time.monotonic())


def asked_to_stop(callback: Callable[[Any], Any], state: Any) -> Status | None:
    """Return the status with which a callback stops the work, or None to continue."""
    try:
        answer = callback(state)
    except KeyboardInterrupt:
        return Status.INTERRUPTED
    return Status.STOPPED if answer is Stop or isinstance(answer, Stop) else None
