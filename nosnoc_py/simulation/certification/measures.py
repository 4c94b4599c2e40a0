"""Integrals and constraints along a history of the referee: objective, violations, energy, impulse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import casadi as ca
import numpy as np

from nosnoc_py.ocp import OCP, Constraint
from nosnoc_py.simulation.event_driven.history import History
from nosnoc_py.simulation.event_driven.node import Impact
from nosnoc_py.simulation.event_driven.phase import NODES
from nosnoc_py.solution.certificate import Balance, Finding
from nosnoc_py.solution.interpolant import lagrange_basis
from nosnoc_py.systems.kinematics import ContactMechanics, Kinematics

# Violations below this are rounding.
VIOLATION = 1e-9
_POINTS, _WEIGHTS = np.polynomial.legendre.leggauss(8)
GAUSS, SHARES = 0.5 * (_POINTS + 1.0), 0.5 * _WEIGHTS
# From the samples of a step to Gauss's points, and to points close together: its polynomials are the integrator's.
TO_GAUSS = lagrange_basis(NODES, GAUSS)
CLOSE = np.linspace(0.0, 1.0, 33)
TO_CLOSE = lagrange_basis(NODES, CLOSE)


@dataclass(frozen=True, eq=False, kw_only=True)
class Points:
    """Instants of a history (m,): times [s], weights in integrals over time [s], states, controls, forces.

    Of a Filippov system these are its multipliers, behind them its algebraic variables.
    """

    t: np.ndarray
    weights: np.ndarray
    x: np.ndarray
    u: np.ndarray
    forces: np.ndarray


def algebraic(points: Points, count: int) -> np.ndarray:
    """Algebraic variables (m, count)."""
    return points.forces[:, points.forces.shape[1] - count :]


def points_of(history: History, inside: np.ndarray, basis: np.ndarray, shares: np.ndarray) -> Points:
    """The same points in every step of a history."""
    made: list[tuple[np.ndarray, ...]] = []
    for phase, flow in zip(history.phases, history.flows, strict=True):
        for step in phase.steps:
            h, x = float(step.t[-1] - step.t[0]), basis @ step.x
            t = step.t[0] + h * inside
            u = np.array([flow.control(*pair) for pair in zip(t, x, strict=True)]).reshape(t.size, -1)
            made.append((t, h * shares, x, u, basis @ step.forces))
    columns = [np.concatenate(column) for column in zip(*made, strict=True)]
    return Points(**dict(zip(("t", "weights", "x", "u", "forces"), columns, strict=True)))


def gauss_points(history: History) -> Points:
    """Points and weights for integrals along a history."""
    return points_of(history, GAUSS, TO_GAUSS, SHARES)


def close_points(history: History) -> Points:
    """Points from end to end of every step, both limits at jumps."""
    return points_of(history, CLOSE, TO_CLOSE, np.zeros(CLOSE.size))


def objective(ocp: OCP, history: History) -> float:
    """The objective of the OCP along a history."""
    s, points = ocp.system, gauss_points(history)
    z = algebraic(points, s.z.numel())
    stage = ca.Function("stage_cost", [s.x, s.z, s.u, s.p], [ca.densify(ocp.stage_cost)])
    end = ca.Function("terminal_cost", [s.x, s.x_initial, s.p], [ocp.terminal_cost])
    rates = np.array(stage(points.x.T, z.T, points.u.T, history.p)).reshape(-1)
    return float(points.weights @ rates) + float(end(history.x, history.nodes[0].before, history.p))


def violations(ocp: OCP, history: History) -> tuple[Finding, ...]:
    """The largest violation of every bound and constraint along a history, where there is one."""
    s, points = ocp.system, close_points(history)
    z, made = algebraic(points, s.z.numel()), []
    for values, names, bounds in (
        (points.x, s.state_names, ocp.x_bounds),
        (points.u, s.control_names, ocp.u_bounds),
    ):
        over = excess(values, *bounds)
        made += [_largest(f"bound of {name}", over[:, i], points.t) for i, name in enumerate(names)]
    for c in ocp.path_constraints:
        function = ca.Function("path", [s.x, s.z, s.u, s.p], [ca.densify(c.expression)])
        values = np.array(function(points.x.T, z.T, points.u.T, history.p)).T
        made.append(_largest(f"path constraint {c.name}", excess(values, c.lower, c.upper).max(axis=1), points.t))
    made += [_at_point(ocp, c, history, initial=True) for c in ocp.initial_constraints]
    made += [_at_point(ocp, c, history, initial=False) for c in ocp.terminal_constraints]
    return tuple(finding for finding in made if finding.size > VIOLATION)


def excess(values: np.ndarray, lower: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """How far values (m, n) lie outside of their bounds (n,)."""
    return np.maximum(np.maximum(lower - values, values - upper), 0.0)


def _largest(name: str, over: np.ndarray, t: np.ndarray) -> Finding:
    worst = int(np.argmax(over))
    return Finding(time=float(t[worst]), what=f"{name} by {over[worst]:.3g}", size=float(over[worst]))


def _at_point(ocp: OCP, c: Constraint, history: History, *, initial: bool) -> Finding:
    s, start = ocp.system, history.nodes[0].before
    function = ca.Function("constraint", [s.x, s.x_initial, s.p], [c.expression])
    values = np.array(function(start if initial else history.x, start, history.p)).reshape(-1)
    over = excess(values[None], c.lower, c.upper)[0]
    kind = "initial" if initial else "terminal"
    t = history.nodes[0].t if initial else history.t
    return _largest(f"{kind} constraint {c.name}", over, np.full(over.size, t))


def balance(mechanics: ContactMechanics, history: History) -> Balance:
    """Energy and impulse along a history."""
    n_q, n_c, p = mechanics.system.n_q, mechanics.frames.count, history.p
    drift = _mass_drift(mechanics)
    work = friction = impacts = 0.0
    impulse, shares = np.zeros(n_q), np.zeros(n_c)
    points = gauss_points(history)
    for weight, x, u, forces in zip(points.weights, points.x, points.u, points.forces, strict=True):
        look = mechanics.at(x, u, p)
        changing = drift(x, p)  # dM/dt v
        work += weight * float(look.velocity @ (look.force + 0.5 * changing))
        friction += weight * float(look.rates[n_c:] @ forces[n_c:])
        impulse += weight * (look.force + look.jacobian.T @ forces + changing)
        shares += weight * forces[:n_c]
    for node, look in _impacts(mechanics, history):
        impacts += node.energy_gain
        impulse += look.jacobian.T @ node.impulses
        shares += node.impulses[:n_c]
    start, end = (mechanics.at(x, np.zeros(mechanics.system.n_u), p) for x in (history.nodes[0].before, history.x))
    kinetic = [0.5 * float(look.velocity @ look.mass @ look.velocity) for look in (start, end)]
    residual = end.mass @ end.velocity - start.mass @ start.velocity - impulse
    return Balance(
        kinetic_start=kinetic[0],
        kinetic_end=kinetic[1],
        work=work,
        friction=friction,
        impacts=impacts,
        energy_residual=kinetic[1] - kinetic[0] - work - friction - impacts,
        impulse_residual=float(np.abs(residual).max(initial=0.0)),
        impulses=dict(zip(mechanics.frames.names, shares.tolist(), strict=True)),
    )


def _impacts(mechanics: ContactMechanics, history: History) -> Iterator[tuple[Impact, Kinematics]]:
    for node in history.nodes:
        if node.impact is not None:
            yield node.impact, mechanics.at(node.before, np.zeros(mechanics.system.n_u), history.p)


def _mass_drift(mechanics: ContactMechanics) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """dM/dt v (n_q,) as a function of (x, p)."""
    s = mechanics.system
    changing = ca.jtimes(s.mass_matrix @ s.v, s.q, s.v)
    function = ca.Function("mass_drift", [s.x, s.p], [ca.densify(changing)])
    return lambda x, p: np.array(function(x, p)).reshape(-1)
