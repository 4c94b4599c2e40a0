"""Balances of energy and momentum, which hold for every motion and are not used by the optimal control methods."""

from __future__ import annotations

from collections.abc import Mapping

import casadi as ca
import numpy as np

import nosnoc_py as ns

POINTS = 12  # Gauss points on a straight line between two configurations


def balance(system: ns.CLS, solution: ns.Solution, friction: Mapping[str, float] | None = None) -> dict[str, float]:
    """Return the energy balance of the motors [J]: potential energy, friction, impacts, and the rest, which must be 0.

    Controls are efforts "<joint>_effort", constant on their intervals, so that their work is exact: efforts times the
    displacements of the joints. Weights are forces of a potential, and its difference is their work on any way.

    Parameters
    ----------
    system : CLS
        System of a robot without quaternions whose velocities are rates of coordinates.
    solution : Solution
    friction : mapping
        Dry friction [N or N m] by the names of coordinates.
    """
    at = {name: k for k, name in enumerate(solution.state_names)}
    driven = [at[name.removesuffix("_effort")] for name in solution.control_names]
    states = np.array([solution(t) for t in solution.u_grid])
    motors = float(np.sum(solution.u * np.diff(states[:, driven], axis=0)))
    rubbed = sum(
        force * float(np.abs(np.diff(solution.x[:, at[name]])).sum()) for name, force in (friction or {}).items()
    )
    impacts = sum(0.5 * (event.impulse or 0.0) * abs(event.v_before or 0.0) for event in solution.impacts)
    parts = {"lifted": _lifted(system, states[0], states[-1]), "friction": rubbed, "impacts": impacts}
    return {"motors": motors, **parts, "left": motors - sum(parts.values())}


def missed_momentum(system: ns.CLS, solution: ns.Solution, vertical: int, gravity: float = 9.81) -> dict[str, float]:
    """Return the take-off time of a jump [s], and the error of the final momentum relative to free fall [N s].

    The first velocities of the system are those of its trunk along the axes of the world, up to the vertical one.
    """
    left = max(event.time for event in solution.events if event.kind == "release")
    rows = slice(0, vertical + 1)
    momentum = ca.Function("momentum", [system.x], [(system.mass_matrix @ system.v)[rows], system.mass_matrix[0, 0]])
    (before, mass), (after, _) = (momentum(solution(t)) for t in (left, solution.t[-1]))
    fallen = np.zeros(vertical + 1)
    fallen[vertical] = -float(mass) * gravity * (solution.t[-1] - left)
    return {"take_off": left, "missed_momentum": float(np.abs(np.array(after - before).reshape(-1) - fallen).max())}


def _lifted(system: ns.CLS, first: np.ndarray, last: np.ndarray) -> float:
    """Return the difference of potential energy between end and start [J]."""
    at_rest = [ca.DM.zeros(system.n_v), ca.DM.zeros(system.n_u)]
    weight = ca.Function("weight", [system.q], [ca.substitute([system.force], [system.v, system.u], at_rest)[0]])
    q, way = first[: system.n_q], (last - first)[: system.n_q]
    nodes, weights = np.polynomial.legendre.leggauss(POINTS)
    along = [way @ np.array(weight(q + 0.5 * (1 + s) * way)).reshape(-1) for s in nodes]
    return float(-0.5 * weights @ along)
