"""Integrals and constraints along a simulation: objective, violations, balance of energy and momentum."""

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
from nosnoc_py.solution import Solution
from nosnoc_py.solution.certificate import Balance
from nosnoc_py.solution.violation import Law, Violation
from nosnoc_py.systems.kinematics import ContactMechanics, Kinematics
from nosnoc_py.tableaus import gauss_legendre, lagrange_basis

# Violations below this are rounding.
VIOLATION = 1e-9
GAUSS = gauss_legendre(8)
# Pieces of a step for integrands with kinks. Refinement stops if an integral changes by less than the fraction FINE of
# all.
PIECES, FINE = (2, 64, 2048), 1e-9
# Places in a step at which constraints are checked.
STEP_SAMPLES = np.linspace(0.0, 1.0, 33)


@dataclass(frozen=True, eq=False, kw_only=True)
class HistorySamples:
    """Samples of a simulation at m instants.

    Attributes
    ----------
    t : (m,)
        Times [s].
    weights : (m,)
        Weights of integrals over time [s].
    x, u : (m, n_x), (m, n_u)
    forces : (m, n_f)
        Contact forces; for Filippov systems multipliers, followed by algebraic variables.
    """

    t: np.ndarray
    weights: np.ndarray
    x: np.ndarray
    u: np.ndarray
    forces: np.ndarray

    def algebraic(self, count: int) -> np.ndarray:
        """Return the algebraic variables (m, count)."""
        return self.forces[:, self.forces.shape[1] - count :]


def integrated(integrals: Callable[[np.ndarray, int], np.ndarray], count: int) -> float:
    """Return the sum over `count` elements of integrals(rows, pieces), refined where this changes the result.

    Only elements in which the integrand has a kink (a piecewise reference, a penalty) need many pieces.
    """
    rows = np.arange(count)
    total = integrals(rows, 1)
    for pieces in PIECES:
        finer = integrals(rows, pieces)
        moved = np.abs(finer - total[rows]) > FINE * (np.abs(total).sum() + np.abs(finer).sum())
        total[rows] = finer
        rows = rows[moved]
        if not rows.size:
            break
    return float(total.sum())


def points_of(
    histories: Sequence[SimulationResult], inside: np.ndarray, shares: np.ndarray, only: np.ndarray | None = None
) -> HistorySamples:
    """Return samples at the same points of every step (or of some steps `only`), by the integrator's polynomials."""
    samples: list[tuple[np.ndarray, ...]] = []
    basis = lagrange_basis(NODES, inside)
    pairs = [pair for history in histories for pair in zip(history.phases, history.flows, strict=True)]
    steps = [(step, flow) for phase, flow in pairs for step in phase.steps]
    for step, flow in steps if only is None else [steps[k] for k in only]:
        h, x = float(step.t[-1] - step.t[0]), basis @ step.x
        t = step.t[0] + h * inside
        u = np.array([flow.control(*pair) for pair in zip(t, x, strict=True)]).reshape(t.size, -1)
        samples.append((t, h * shares, x, u, basis @ step.forces))
    columns = [np.concatenate(column) for column in zip(*samples, strict=True)]
    return HistorySamples(**dict(zip(("t", "weights", "x", "u", "forces"), columns, strict=True)))


def state_sizes(ocp: OCP, solution: Solution) -> np.ndarray:
    """Return the sizes of the states (n_x,): of the problem, or of the motion where that is larger."""
    return np.maximum(ocp.sizes.x, np.abs(solution.x).max(axis=0))


def objective(
    ocp: OCP, histories: Sequence[SimulationResult], end: np.ndarray, shift: np.ndarray | float = 0.0
) -> float:
    """Return the objective along consecutive simulations, with the terminal cost of a state (n_x,).

    With a `shift` (n_x,) of all states it shows what an error of the states does to the objective.
    """
    s, p, start = ocp.system, histories[0].p, histories[0].nodes[0].before
    stage = ca.Function("stage_cost", [s.x, s.z, s.u, s.p], [ca.densify(ocp.stage_cost)])
    at_end = ca.Function("terminal_cost", [s.x, s.x_initial, s.p], [ocp.terminal_cost])
    total = float(at_end(end + shift, start, p))
    if any(history.steps for history in histories):

        def integrals(rows: np.ndarray, pieces: int) -> np.ndarray:
            inside = (np.arange(pieces)[:, None] + GAUSS.c).reshape(-1) / pieces
            # Composite Gauss rule on each integrator step: within a step the motion is smooth.
            points = points_of(histories, inside, np.tile(GAUSS.b, pieces) / pieces, rows)
            z = points.algebraic(s.z.numel())
            rates = np.array(stage((points.x + shift).T, z.T, points.u.T, p)).reshape(-1)
            return (points.weights * rates).reshape(rows.size, -1).sum(axis=1)

        total += integrated(integrals, sum(len(phase.steps) for history in histories for phase in history.phases))
        for term in ocp.point_terms:
            total += float(term.costs(ocp, states_at(histories, term.times) + shift, p).sum())
    return total


def states_at(histories: Sequence[SimulationResult], times: np.ndarray) -> np.ndarray:
    """Return states (m, n_x) at times, those before jumps; after the end the last one."""
    steps = [step for history in histories for phase in history.phases for step in phase.steps]
    begins = np.array([step.t[0] for step in steps])
    states = []
    for t in times:
        # "left" puts a time at a boundary into the step before it, which holds the state before a jump.
        step = steps[max(int(np.searchsorted(begins, t, "left")) - 1, 0)]
        place = np.clip((t - step.t[0]) / (step.t[-1] - step.t[0]), 0.0, 1.0)
        states.append(lagrange_basis(NODES, np.array([place]))[0] @ step.x)
    return np.array(states)


def violations(ocp: OCP, histories: Sequence[SimulationResult], *, ends: bool = True) -> tuple[Violation, ...]:
    """Return the largest violation of each bound and constraint along consecutive simulations.

    Parameters
    ----------
    ends : bool
        Also initial and terminal constraints, of the first and the last violation.
    """
    s, p = ocp.system, histories[0].p
    at = points_of(histories, STEP_SAMPLES, np.zeros(STEP_SAMPLES.size))
    z = at.algebraic(s.z.numel())
    residuals = [
        constraints.bounds(s.state_names, ocp.x_bounds, at.t, at.x, ocp.sizes.x),
        constraints.bounds(s.control_names, ocp.u_bounds, at.t, at.u, ocp.sizes.u),
        # A relaxed constraint has a slack for its own points only, not between them: it is not checked here.
        *[constraints.path(ocp, c, at.t, at.x, at.u, p, z) for c in ocp.path_constraints if not c.relaxed],
    ]
    points = [c for c in ocp.point_constraints if any(history.steps for history in histories)]
    residuals += [constraints.at_points(ocp, c, states_at(histories, c.times), p) for c in points]
    start, first, last = histories[0].nodes[0].before, histories[0].nodes[0].t, histories[-1]
    if ends:
        residuals += [constraints.at_end(ocp, c, Law.INITIAL, first, start, start, p) for c in ocp.initial_constraints]
        residuals += [
            constraints.at_end(ocp, c, Law.TERMINAL, last.t, last.x, start, p) for c in ocp.terminal_constraints
        ]
    worst = [violation.worst() for measured in residuals for violation in measured.columns()]
    return tuple(violation for violation in worst if violation is not None and violation.share > VIOLATION)


def balance(mechanics: ContactMechanics, history: SimulationResult) -> Balance:
    """Return the balance of energy and momentum along a simulation."""
    n_c, p = mechanics.frames.count, history.p
    drift = _mass_drift(mechanics)
    points = points_of([history], GAUSS.c, GAUSS.b)
    here, w = mechanics.system.kinematics(points.x, points.u, p), points.weights
    changing = drift(points.x, points.u, p)  # dM/dt v (m, n_v)
    # Power of the forces plus 1/2 v' M' v: the kinetic energy also changes with the mass matrix.
    work = float(w @ np.einsum("ki,ki->k", here.velocity, here.force + 0.5 * changing))
    work -= float(w @ np.einsum("ki,ki->k", here.drift, points.forces))  # by contacts that move by themselves
    friction = float(w @ np.einsum("ki,ki->k", here.rates[:, n_c:], points.forces[:, n_c:]))
    # Momentum M v changes by forces, contact forces and M' v (`changing`).
    impulse = w @ (here.force + np.einsum("kji,kj->ki", here.jacobian, points.forces) + changing)
    impacts, shares = 0.0, w @ points.forces[:, :n_c]
    for node, kinematics in _impacts(mechanics, history):
        impacts += node.energy_gain
        impulse += kinematics.jacobian.T @ node.impulses
        shares += node.impulses[:n_c]
    start, end = (mechanics.at(x, np.zeros(mechanics.system.n_u), p) for x in (history.nodes[0].before, history.x))
    kinetic = [0.5 * float(kinematics.velocity @ kinematics.mass @ kinematics.velocity) for kinematics in (start, end)]
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
    """Yield the impacts of a simulation with the kinematics before them."""
    for node in history.nodes:
        if node.impact is not None:
            yield node.impact, mechanics.at(node.before, np.zeros(mechanics.system.n_u), history.p)


def _mass_drift(mechanics: ContactMechanics) -> Callable[..., np.ndarray]:
    """Return a function for dM/dt v (m, n_v) of states (m, n_x), controls (m, n_u) and p."""
    s = mechanics.system
    changing = ca.jtimes(s.mass_matrix @ s.v, ca.vertcat(s.q, s.y), ca.vertcat(s.position_rate, s.y_rate))
    function = ca.Function("mass_drift", [s.x, s.u, s.p], [ca.densify(changing)])
    return lambda x, u, p: np.array(function(x.T, u.T, p)).T.reshape(len(x), s.n_v)
