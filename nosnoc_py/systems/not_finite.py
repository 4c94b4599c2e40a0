"""Diagnosis of numerical errors: which function of a system is not finite at a state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import casadi as ca
import numpy as np


def not_finite(system: Any, states: np.ndarray, u: np.ndarray, p: np.ndarray) -> str:
    """Name the first function of a system that is no finite number at one of some states (m, n_x); "" for none.

    Forces and masses, gaps and normals, flows and switching functions; first the control (n_u,) itself.
    """
    if not np.isfinite(u).all():
        return "the control is no finite number"
    if system.z.numel():
        return ""  # algebraic variables are not known here
    for what, expression in _functions(system):
        function = ca.Function("f", [system.x, system.u, system.p, *_steps(system)], [ca.densify(expression)])
        # A state that is not finite itself makes every function so, and shows nothing.
        for x in states[np.isfinite(states).all(axis=1)]:
            values = np.asarray(function(x, u, p, *(np.ones(s.numel()) for s in _steps(system))))
            if not np.isfinite(values).all():
                return f"{what} is no finite number"
    return ""


def ahead(system: Any, x: np.ndarray, u: np.ndarray, p: np.ndarray, length: float, count: int = 5) -> np.ndarray:
    """Return states (m, n_x) on straight lines along the slopes at a state; for a system by regions, of all regions."""
    slopes = []
    for expression in _slopes(system):
        function = ca.Function("slope", [system.x, system.u, system.p, *_steps(system)], [ca.densify(expression)])
        slope = np.asarray(function(x, u, p, *(np.ones(s.numel()) for s in _steps(system)))).reshape(-1)
        # A component without a finite slope stays where it is; the others may lead to the place.
        slopes.append(np.where(np.isfinite(slope), slope, 0.0))
    shares = length * np.linspace(0.0, 1.0, count)
    return np.concatenate([x + shares[:, None] * slope for slope in slopes]) if slopes else x[None, :]


def _steps(system: Any) -> list[ca.SX]:
    return [system.alpha] if hasattr(system, "alpha") else []


def _slopes(system: Any) -> Iterator[ca.SX]:
    if system.z.numel():
        return
    if hasattr(system, "mass_matrix"):
        # With zero accelerations first: the force itself may not be finite.
        yield system.state_rate(ca.SX(system.v.numel(), 1))
        yield system.state_rate(ca.solve(system.mass_matrix, system.force))
    elif hasattr(system, "modes"):
        yield from (sum((m.flows[k % len(m.flows)] for m in system.modes), system.flow) for k in range(_most(system)))
    elif hasattr(system, "flow"):
        yield system.flow


def _most(system: Any) -> int:
    return max((len(m.flows) for m in system.modes), default=1)


def _functions(system: Any) -> Iterator[tuple[str, ca.SX]]:
    """Return the functions of a system by their titles in messages."""
    for contact in system.contacts:
        yield f"the gap of {contact.name}", contact.gap
    if hasattr(system, "mass_matrix"):
        yield "the force", system.force
        yield "the mass matrix", system.mass_matrix
    for contact in system.contacts:
        yield f"the normal of {contact.name}", system.normal(contact)
    for modes in system.modes:
        yield f"a function of {modes.name}", modes.indicators if hasattr(modes, "indicators") else modes.function
        yield from ((f"flow {k} of {modes.name}", flow) for k, flow in enumerate(modes.flows))
    if hasattr(system, "functions"):
        yield "a switching function", system.functions
    if hasattr(system, "constraints"):
        yield "a constraint", system.constraints
    if hasattr(system, "flow"):
        yield "the flow", system.flow
