"""Integrals and constraints along a history of the referee: objective, violations, energy, impulse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import casadi as ca
import numpy as np

from nosnoc_py.audit import constraints
from nosnoc_py.motion.crossing import NODES
from nosnoc_py.ocp import OCP
from nosnoc_py.simulation.event_driven.history import SimulationResult
from nosnoc_py.simulation.event_driven.node import ImpactRecord
from nosnoc_py.solution.certificate import Balance
from nosnoc_py.solution.violation import Law, Violation
from nosnoc_py.systems.kinematics import ContactMechanics, Kinematics
from nosnoc_py.tableaus import gauss_legendre, lagrange_basis

# Violations below this are rounding.
VIOLATION = 1e-9
GAUSS = gauss_legendre(8)
# Pieces of a step for integrands with kinks, as long as they change an integral by more than this share of all.
PIECES, FINE = (2, 64, 2048), 1e-9
# Places in a step, from end to end.
CLOSE = np.linspace(0.0, 1.0, 33)


@dataclass(frozen=True, eq=False, kw_only=True)
class HistorySamples:
    """Instants of a history (m,): times [s], weights in integrals over time [s], states, controls, forces.

    Of a Filippov system these are its multipliers, behind them its algebraic variables.
    """

    t: np.ndarray
    weights: np.ndarray
    x: np.ndarray
    u: np.ndarray
    forces: np.ndarray

    def algebraic(self, count: int) -> np.ndarray:
        """Algebraic variables (m, count)."""
        return self.forces[:, self.forces.shape[1] - count :]


def integrated(integrals: Callable[[np.ndarray, int], np.ndarray], count: int) -> float:
    """The sum over `count` elements of integrals(rows, pieces), by more pieces where that changes it.

    Only elements in which an integrand has a kink (a reference in pieces, a penalty) need more than a few.
    """
    rows = np.arange(count)
    total = integrals(rows, 1)
    for pieces in PIECES:
        finer = integrals(rows, pieces)
        moved = np.abs(finer - total[rows]) > FINE * (1.0 + np.abs(total).sum())
        total[rows] = finer
        rows = rows[moved]
        if not rows.size:
            break
    return float(total.sum())


def points_of(
    histories: Sequence[SimulationResult], inside: np.ndarray, shares: np.ndarray, only: np.ndarray | None = None
) -> HistorySamples:
    """The same points in every step of histories, between whose samples are the integrator's own polynomials.

    Or in some steps `only`, by their numbers.
    """
    made: list[tuple[np.ndarray, ...]] = []
    basis = lagrange_basis(NODES, inside)
    pairs = [pair for history in histories for pair in zip(history.phases, history.flows, strict=True)]
    steps = [(step, flow) for phase, flow in pairs for step in phase.steps]
    for step, flow in steps if only is None else [steps[k] for k in only]:
        h, x = float(step.t[-1] - step.t[0]), basis @ step.x
        t = step.t[0] + h * inside
        u = np.array([flow.control(*pair) for pair in zip(t, x, strict=True)]).reshape(t.size, -1)
        made.append((t, h * shares, x, u, basis @ step.forces))
    columns = [np.concatenate(column) for column in zip(*made, strict=True)]
    return HistorySamples(**dict(zip(("t", "weights", "x", "u", "forces"), columns, strict=True)))


def objective(ocp: OCP, histories: Sequence[SimulationResult], end: np.ndarray) -> float:
    """The objective of the OCP along histories that follow each other, with the terminal cost of a state (n_x,)."""
    s, p, start = ocp.system, histories[0].p, histories[0].nodes[0].before
    stage = ca.Function("stage_cost", [s.x, s.z, s.u, s.p], [ca.densify(ocp.stage_cost)])
    at_end = ca.Function("terminal_cost", [s.x, s.x_initial, s.p], [ocp.terminal_cost])
    total = float(at_end(end, start, p))
    if any(history.steps for history in histories):

        def integrals(rows: np.ndarray, pieces: int) -> np.ndarray:
            inside = (np.arange(pieces)[:, None] + GAUSS.c).reshape(-1) / pieces
            points = points_of(histories, inside, np.tile(GAUSS.b, pieces) / pieces, rows)
            z = points.algebraic(s.z.numel())
            rates = np.array(stage(points.x.T, z.T, points.u.T, p)).reshape(-1)
            return (points.weights * rates).reshape(rows.size, -1).sum(axis=1)

        total += integrated(integrals, sum(len(phase.steps) for history in histories for phase in history.phases))
        for term in ocp.point_terms:
            total += float(term.costs(ocp, states_at(histories, term.times), p).sum())
    return total


def states_at(histories: Sequence[SimulationResult], times: np.ndarray) -> np.ndarray:
    """States (m, n_x) at times, those before jumps; the last one behind the end."""
    steps = [step for history in histories for phase in history.phases for step in phase.steps]
    begins = np.array([step.t[0] for step in steps])
    found = []
    for t in times:
        step = steps[max(int(np.searchsorted(begins, t, "left")) - 1, 0)]
        place = np.clip((t - step.t[0]) / (step.t[-1] - step.t[0]), 0.0, 1.0)
        found.append(lagrange_basis(NODES, np.array([place]))[0] @ step.x)
    return np.array(found)


def violations(ocp: OCP, histories: Sequence[SimulationResult], *, ends: bool = True) -> tuple[Violation, ...]:
    """The largest violation of every bound and constraint along histories that follow each other.

    Parameters
    ----------
    ends : bool
        Also initial and terminal constraints, of the first and the last one.
    """
    s, p = ocp.system, histories[0].p
    at = points_of(histories, CLOSE, np.zeros(CLOSE.size))
    z = at.algebraic(s.z.numel())
    found = [
        constraints.bounds(s.state_names, ocp.x_bounds, at.t, at.x),
        constraints.bounds(s.control_names, ocp.u_bounds, at.t, at.u),
        # A slack is asked to cover what is broken at the places of the constraint, not between them.
        *[constraints.path(ocp, c, at.t, at.x, at.u, p, z) for c in ocp.path_constraints if not c.relaxed],
    ]
    points = [c for c in ocp.point_constraints if any(history.steps for history in histories)]
    found += [constraints.at_points(ocp, c, states_at(histories, c.times), p) for c in points]
    start, first, last = histories[0].nodes[0].before, histories[0].nodes[0].t, histories[-1]
    if ends:
        found += [constraints.at_end(ocp, c, Law.INITIAL, first, start, start, p) for c in ocp.initial_constraints]
        found += [constraints.at_end(ocp, c, Law.TERMINAL, last.t, last.x, start, p) for c in ocp.terminal_constraints]
    worst = [one.worst() for measured in found for one in measured.columns()]
    return tuple(one for one in worst if one is not None and one.amount > VIOLATION)


def balance(mechanics: ContactMechanics, history: SimulationResult) -> Balance:
    """Energy and impulse along a history."""
    n_c, p = mechanics.frames.count, history.p
    drift = _mass_drift(mechanics)
    points = points_of([history], GAUSS.c, GAUSS.b)
    here, w = mechanics.system.kinematics(points.x, points.u, p), points.weights
    changing = drift(points.x, points.u, p)  # dM/dt v (m, n_v)
    work = float(w @ np.einsum("ki,ki->k", here.velocity, here.force + 0.5 * changing))
    work -= float(w @ np.einsum("ki,ki->k", here.drift, points.forces))  # by contacts that move by themselves
    friction = float(w @ np.einsum("ki,ki->k", here.rates[:, n_c:], points.forces[:, n_c:]))
    impulse = w @ (here.force + np.einsum("kji,kj->ki", here.jacobian, points.forces) + changing)
    impacts, shares = 0.0, w @ points.forces[:, :n_c]
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


def _impacts(mechanics: ContactMechanics, history: SimulationResult) -> Iterator[tuple[ImpactRecord, Kinematics]]:
    for node in history.nodes:
        if node.impact is not None:
            yield node.impact, mechanics.at(node.before, np.zeros(mechanics.system.n_u), history.p)


def _mass_drift(mechanics: ContactMechanics) -> Callable[..., np.ndarray]:
    """dM/dt v (m, n_v) as a function of states (m, n_x), controls (m, n_u) and p."""
    s = mechanics.system
    changing = ca.jtimes(s.mass_matrix @ s.v, ca.vertcat(s.q, s.y), ca.vertcat(s.position_rate, s.y_rate))
    function = ca.Function("mass_drift", [s.x, s.u, s.p], [ca.densify(changing)])
    return lambda x, u, p: np.array(function(x.T, u.T, p)).T.reshape(len(x), s.n_v)
