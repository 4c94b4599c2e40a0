"""Methods of the table: the plain call, finite elements, a plain relaxation, smoothed contacts, and nosnoc 0.2.0."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np
from attrs import evolve

import nosnoc_py as ns
from nosnoc_py.search.portfolio import EFFORTS
from problems.benchmarks.contact import nosnoc_program
from problems.benchmarks.contact.posed import Posed

# Of smoothed contacts: stiffness [N/m], softness of the gap [m], and slip up to which friction is linear [m/s].
STIFFNESS, SOFTNESS, CREEP = 1e4, 1e-3, 1e-2
# Largest violation of a constraint by the simulated motion; ten times what IPOPT and the grids leave open.
KEPT = 1e-2
# Points and weights by which costs are integrated between the nodes of a simulation: exact for polynomials of degree 5.
GAUSS, WEIGHTS = (0.5 * (1 + np.polynomial.legendre.leggauss(3)[0]), 0.5 * np.polynomial.legendre.leggauss(3)[1])


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Result of a method on a problem.

    Parameters
    ----------
    status, verdict, message : str
    objective : float
        Objective reported by the method.
    true_objective : float
        Objective of an event-driven simulation of its control; infinite if it violates a constraint.
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


# Status if an external package is missing.
ABSENT = "not installed"
Method = Callable[[Posed, float], Answer | None]


def of_solution(solution: ns.Solution) -> Answer:
    """Return the answer for a solution of the library, with the verdict of its certificate."""
    certificate = solution.certificate
    starts = solution.candidates or ()
    return Answer(
        status=solution.status.value,
        verdict="" if certificate is None else certificate.verdict.value,
        objective=solution.objective,
        true_objective=_true(solution),
        message=solution.message,
        stationarity=solution.stationarity.value,
        start=next((c.start for c in starts if c.sequence is not None and c.sequence == solution.sequence), ""),
    )


def plain_call(posed: Posed, ocp: ns.OCP, limit: float) -> ns.Solution:
    """Solve by `ns.solve(ocp)`, whose own limit is one of counted work; another limit is one of the clock."""
    clock = None if limit == EFFORTS["normal"].work else limit
    return ns.solve(ocp, guess=start_of(posed), time_limit=clock)


def default(posed: Posed, limit: float) -> Answer:
    """Solve by `ns.solve(ocp)`."""
    return of_solution(plain_call(posed, posed.build(), limit))


def finite_elements(posed: Posed, limit: float) -> Answer:
    """Solve by FESD-J or FESD with two elements in each of the stages that the problem proposes."""
    ocp = posed.build()
    return of_solution(ns.solve(ocp, _elements(posed, ocp), guess=start_of(posed), time_limit=limit))


def relaxation(posed: Posed, limit: float) -> Answer:
    """Solve the same finite elements by Scholtes' relaxation only, sigma = 1, 0.1, ..., 1e-9, with IPOPT."""
    ocp, plain = posed.build(), ns.Homotopy(finish="none")
    return of_solution(ns.solve(ocp, _elements(posed, ocp), plain, guess=start_of(posed), time_limit=limit))


def smoothed(posed: Posed, limit: float) -> Answer | None:
    """Solve with smooth spring contacts and friction linear in slow slips, by direct collocation, or return None."""
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
    solution = ns.solve(soft, _elements(posed, soft), guess=start_of(posed), time_limit=limit)
    status, message = solution.status.value, solution.message
    found = Control(solution.u, solution.duration, solution.objective, status, solution.success, message)
    return of_control(ocp, found)


def nosnoc(posed: Posed, limit: float) -> Answer | None:
    """Solve by the Python package nosnoc on the same grid with its default options; None if it cannot."""
    if (posed.switched is None and isinstance(posed.build().system, ns.CLS)) or posed.start is not None:
        return None
    if nosnoc_program.package() is None:
        return Answer(status=ABSENT, verdict="", objective=np.nan, true_objective=np.inf)
    ocp = posed.build() if posed.switched is None else posed.switched()
    result = nosnoc_program.solve(ocp, posed.stages, limit)
    return None if result is None else of_control(posed.build(), Control(*result))


@dataclass(frozen=True)
class Control:
    """Control of a program, constant on equal stages.

    Parameters
    ----------
    u : (stages, n_u)
    duration : float
        Duration of the control [s].
    objective : float
        Objective reported by the program.
    status : str
    success : bool
    message : str
    """

    u: np.ndarray
    duration: float
    objective: float
    status: str
    success: bool
    message: str = ""


def of_control(ocp: ns.OCP, control: Control) -> Answer:
    """Return the answer for a control: its objective and its constraints on an event-driven simulation."""
    common: dict[str, Any] = {
        "status": control.status,
        "objective": control.objective,
        "message": control.message,
    }
    if not control.success:
        return Answer(verdict="", true_objective=np.inf, **common)
    p = np.asarray(ocp.p, dtype=float).ravel()
    motion = ns.simulate(ocp.system, x0=ocp.x0, duration=control.duration, u=control.u, method=ns.EventDriven(), p=p)
    if not motion.success:
        return Answer(verdict="undecided", true_objective=np.inf, **common)
    missed = _missed(ocp, motion, p)
    broken = max((_broken(ocp, motion), "breaks a constraint"), (missed, "misses its end"))
    satisfied = broken[0] <= KEPT
    return Answer(
        verdict="simulated" if satisfied else f"simulated, {broken[1]} by {broken[0]:.2g}",
        true_objective=_spent(ocp, motion, p) if satisfied else np.inf,
        **common,
    )


def _edges(motion: ns.Trajectory) -> np.ndarray:
    """Return times between which a motion and its control are smooth."""
    return np.unique(np.append(motion.t, motion.u_grid))


def _spent(ocp: ns.OCP, motion: ns.Trajectory, p: np.ndarray) -> float:
    """Return the objective of a simulated motion."""
    s, edges = ocp.system, _edges(motion)
    t = edges[:-1, None] + np.diff(edges)[:, None] * GAUSS
    rates = np.reshape(motion.sample(ocp.stage_cost, t.ravel()), t.shape)
    at_end = ca.Function("end", [s.x, s.x_initial, s.p], [ocp.terminal_cost])
    return float(np.diff(edges) @ rates @ WEIGHTS) + float(at_end(motion.x[-1], motion.x[0], p))


def _broken(ocp: ns.OCP, motion: ns.Trajectory) -> float:
    """Return the largest violation of bounds, path constraints and complementarities by a simulated motion."""
    s, edges = ocp.system, _edges(motion)
    t = np.sort(np.append(edges, 0.5 * (edges[1:] + edges[:-1])))
    rows: list[tuple[Any, Any, Any]] = [(s.x, *ocp.x_bounds), (s.u, *ocp.u_bounds)]
    rows += [(c.expression, c.lower, c.upper) for c in ocp.path_constraints]
    for pair in ocp.complementarities:
        rows += [(pair.a, 0.0, np.inf), (pair.b, 0.0, np.inf), (ca.fmin(pair.a, pair.b), -np.inf, 0.0)]
    worst = 0.0
    for expression, lower, upper in rows:
        values = np.reshape(motion.sample(expression, t), (t.size, -1))
        worst = max(worst, float(np.max(lower - values, initial=0.0)), float(np.max(values - upper, initial=0.0)))
    return worst


METHODS: Mapping[str, Method] = {
    "default": default,
    "finite elements": finite_elements,
    "relaxation": relaxation,
    "smoothed": smoothed,
    "nosnoc 0.2.0": nosnoc,
}


def _true(solution: ns.Solution) -> float:
    """Return the objective of the simulated motion; the solution's own if it is confirmed in windows only."""
    certificate = solution.certificate
    if certificate is None or not solution.success:
        return np.inf
    return solution.objective if certificate.verdict is ns.Verdict.CONFIRMED_IN_WINDOWS else certificate.true_objective


def start_of(posed: Posed) -> Any:
    """Return the guess that the source starts from, or None."""
    return None if posed.start is None else posed.start()


def _elements(posed: Posed, ocp: ns.OCP) -> Any:
    return (ns.FESDJ if isinstance(ocp.system, ns.CLS) else ns.FESD)(control_stages=posed.stages)


def _missed(ocp: ns.OCP, motion: ns.Trajectory, p: np.ndarray) -> float:
    """Return the largest violation of the terminal constraints."""
    s, worst = ocp.system, 0.0
    for constraint in ocp.terminal_constraints:
        value = ca.Function("end", [s.x, s.x_initial, s.p], [constraint.expression])
        end = np.array(value(motion.x[-1], motion.x[0], p)).ravel()
        worst = max(worst, float(np.max(constraint.lower - end)), float(np.max(end - constraint.upper)))
    return worst


def _softened(system: ns.CLS) -> ns.CLS:
    """Return the same bodies with smooth contact forces."""
    force = ca.SX(system.force)
    for contact in system.contacts:
        depth = -contact.gap / SOFTNESS
        press = STIFFNESS * SOFTNESS * (ca.fmax(depth, 0) + ca.log1p(ca.exp(-ca.fabs(depth))))
        direction = ca.gradient(contact.gap, system.q) if contact.normal is None else contact.normal
        # Less restitution means more damping, as in compliant contacts.
        press /= 1 + ca.exp(4 * (1 - ca.SX(contact.restitution)) * ca.dot(direction, system.v))
        force += 2 * direction * press
        if contact.tangent is not None:
            slip = ca.mtimes(ca.SX(contact.tangent).T, system.v)
            force -= 2 * ca.mtimes(ca.SX(contact.tangent), contact.friction * press * ca.tanh(slip / CREEP))
    return evolve(system, force=force, contacts=[])
