"""Who solves the problems: the plain call, finite elements, a plain relaxation, smoothed contacts by collocation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.control.costs import MotionCost
from problems.benchmarks.contact.posed import Posed

# Of smoothed contacts: stiffness [N/m], softness of the gap [m], and slip up to which friction is linear [m/s].
STIFFNESS, SOFTNESS, CREEP = 1e4, 1e-3, 1e-2
# A motion under a control keeps what is asked at the end, if it does to this.
KEPT = 1e-2


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a method made of a problem.

    Parameters
    ----------
    status, verdict, message : str
    objective : float
        As the method says.
    true_objective : float
        Of the motion that an event-driven simulation of its control shows; infinite where that breaks a constraint.
    stationarity, start : str
        Kinds of stationary point, and of the start that won.
    """

    status: str
    verdict: str
    objective: float
    true_objective: float
    message: str = ""
    stationarity: str = ""
    start: str = ""


Method = Callable[[Posed, float], Answer | None]


def of_solution(found: ns.Solution) -> Answer:
    """The answer of the library, with the verdict of its certificate."""
    judged = found.certificate
    starts = found.candidates or ()
    return Answer(
        status=found.status.value,
        verdict="" if judged is None else judged.verdict.value,
        objective=found.objective,
        true_objective=_true(found),
        message=found.message,
        stationarity=found.stationarity.value,
        start=next((c.start for c in starts if c.sequence is not None and c.sequence == found.sequence), ""),
    )


def default(posed: Posed, limit: float) -> Answer:
    """`ns.solve(ocp)`."""
    return of_solution(ns.solve(posed.build(), guess=_start(posed), time_limit=limit))


def finite_elements(posed: Posed, limit: float) -> Answer:
    """FESD-J or FESD with two elements in each of the stages that the problem proposes."""
    ocp = posed.build()
    return of_solution(ns.solve(ocp, _elements(posed, ocp), guess=_start(posed), time_limit=limit))


def relaxation(posed: Posed, limit: float) -> Answer:
    """The same finite elements by Scholtes' relaxation, sigma = 1, 0.1, ..., 1e-9, with IPOPT and nothing else."""
    ocp, plain = posed.build(), ns.Homotopy(finish="none")
    return of_solution(ns.solve(ocp, _elements(posed, ocp), plain, guess=_start(posed), time_limit=limit))


def smoothed(posed: Posed, limit: float) -> Answer | None:
    """Contacts as smooth springs, friction linear in slow slips, by direct collocation; None without contacts."""
    ocp = posed.build()
    system = ocp.system
    if not isinstance(system, ns.CLS) or not system.contacts:
        return None
    soft = ns.OCP(
        _softened(system),
        horizon=ocp.horizon,
        x0=np.asarray(ocp.x0)[: system.q.numel() + system.v.numel()],
        stage_cost=ocp.stage_cost,
        terminal_cost=ocp.terminal_cost,
        bounds=ocp.bounds,
        path_constraints=ocp.path_constraints,
        terminal_constraints=ocp.terminal_constraints,
    )
    found = ns.solve(soft, _elements(posed, soft), guess=_start(posed), time_limit=limit)
    common: dict[str, Any] = {"objective": found.objective, "message": found.message}
    if not found.success:
        return Answer(status=found.status.value, verdict="", true_objective=np.inf, **common)
    p = np.asarray(ocp.p, dtype=float).ravel()
    motion = ns.simulate(system, x0=ocp.x0, duration=found.duration, u=found.u, method=ns.EventDriven(), p=p)
    cost = MotionCost.of(ocp, system.u.numel(), system.p.numel())
    if not motion.success or cost is None:
        return Answer(status=found.status.value, verdict="undecided", true_objective=np.inf, **common)
    grid = np.minimum(np.searchsorted(found.u_grid, motion.t, side="right") - 1, len(found.u) - 1)
    spent = cost.running(motion.t, motion.x, found.u[grid], p) + cost.final(motion.x[-1], motion.x[0], p)
    missed = _missed(ocp, motion, p)
    return Answer(
        status=found.status.value,
        verdict=f"simulated, misses its end by {missed:.2g}" if missed > KEPT else "simulated",
        true_objective=np.inf if missed > KEPT else spent,
        **common,
    )


METHODS: Mapping[str, Method] = {
    "default": default,
    "finite elements": finite_elements,
    "relaxation": relaxation,
    "smoothed": smoothed,
}


def _true(found: ns.Solution) -> float:
    """Of the simulated motion; of an unstable one, which no simulation of the whole follows, the solution's own."""
    judged = found.certificate
    if judged is None or not found.success:
        return np.inf
    return found.objective if judged.verdict is ns.Verdict.CONFIRMED_IN_WINDOWS else judged.true_objective


def _start(posed: Posed) -> Any:
    return None if posed.start is None else posed.start()


def _elements(posed: Posed, ocp: ns.OCP) -> Any:
    return (ns.FESDJ if isinstance(ocp.system, ns.CLS) else ns.FESD)(control_stages=posed.stages)


def _missed(ocp: ns.OCP, motion: ns.Trajectory, p: np.ndarray) -> float:
    """By how much the end breaks what is asked of it, at most."""
    s, worst = ocp.system, 0.0
    for constraint in ocp.terminal_constraints:
        value = ca.Function("end", [s.x, s.x_initial, s.p], [constraint.expression])
        end = np.array(value(motion.x[-1], motion.x[0], p)).ravel()
        worst = max(worst, float(np.max(constraint.lower - end)), float(np.max(end - constraint.upper)))
    return worst


def _softened(system: ns.CLS) -> ns.CLS:
    """The same bodies, whose contacts are smooth forces."""
    force = ca.SX(system.force)
    for contact in system.contacts:
        depth = -contact.gap / SOFTNESS
        press = STIFFNESS * SOFTNESS * (ca.fmax(depth, 0) + ca.log1p(ca.exp(-ca.fabs(depth))))
        direction = ca.gradient(contact.gap, system.q) if contact.normal is None else contact.normal
        # What rebounds less is damped more, as in compliant contacts.
        press /= 1 + ca.exp(4 * (1 - ca.SX(contact.restitution)) * ca.dot(direction, system.v))
        force += 2 * direction * press
        if contact.tangent is not None:
            slip = ca.mtimes(ca.SX(contact.tangent).T, system.v)
            force -= 2 * ca.mtimes(ca.SX(contact.tangent), contact.friction * press * ca.tanh(slip / CREEP))
    return ns.CLS(
        q=system.q,
        v=system.v,
        u=system.u,
        t=system.t,
        p=system.p,
        p_default=system.p_default,
        mass_matrix=system.mass_matrix,
        force=force,
        contacts=[],
        names=system.names,
    )
