"""The hybrid system of an OCP in numbers: its integrator, and the problem as simulation and results take it."""

from __future__ import annotations

from collections.abc import Sequence

import casadi as ca
import numpy as np

from nosnoc_py.indirect.control_set import ControlSet
from nosnoc_py.indirect.minimiser import Minimiser
from nosnoc_py.indirect.problem import HybridProblem
from nosnoc_py.ocp import OCP
from nosnoc_py.systems.hybrid import HybridSystem

Array = np.ndarray


def rk4(system: HybridSystem, ocp: OCP, substeps: int) -> ca.Function:
    """(x, u, p, h) -> the state after h, the running cost, the states after each of the Runge-Kutta steps."""
    x, u, p, h = system.x, system.u, system.p, ca.SX.sym("h")
    flow = ca.Function("flow", [x, u, p], [ca.vertcat(system.flow, ocp.stage_cost)])
    n_x, dt = x.numel(), h / substeps
    state, cost, stages = x, ca.SX(0), []
    for _ in range(substeps):
        k1 = flow(state, u, p)
        k2 = flow(state + dt / 2 * k1[:n_x], u, p)
        k3 = flow(state + dt / 2 * k2[:n_x], u, p)
        k4 = flow(state + dt * k3[:n_x], u, p)
        change = dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        state, cost = state + change[:n_x], cost + change[n_x]
        stages.append(state)
    return ca.Function("interval", [x, u, p, h], [state, cost, ca.horzcat(*stages)])


def stated(ocp: OCP, system: HybridSystem, x0: Sequence[float] | Array, horizon: float, p: Array) -> HybridProblem:
    """The problem with numbers for what is free, as simulation and results take it; nobody asks for its minimiser."""
    x, costate, jumps = system.x, ca.SX.sym("costate", system.x.numel()), system.jumps
    impulses = [ca.SX(np.nan) if jump.impulse is None else jump.impulse for jump in jumps]
    found = [system.flow, ca.vertcat(*[jump.guard for jump in jumps]), ca.vertcat(*impulses), ocp.stage_cost]
    found = ca.substitute([*found, *[jump.reset for jump in jumps]], [system.p], [ca.SX(p)])
    flow, guards, strikes, running, *resets = found
    nobody = Minimiser(
        kind="none",
        x=x,
        costate=costate,
        u=system.u,
        control=None,
        residual=system.u,
        regime=ca.SX(0),
        law=lambda digits: system.u,
        boundary=lambda one, other: ca.SX(np.nan),
    )
    return HybridProblem(
        ocp=ocp.settled(horizon, p),
        system=system,
        x0=np.asarray(x0, dtype=float),
        horizon=horizon,
        x=x,
        u=system.u,
        costate=costate,
        flow=ca.densify(flow),
        guards=ca.densify(guards),
        resets=tuple(ca.densify(reset) for reset in resets),
        impulses=strikes,
        running_cost=running,
        terminal_cost=ca.SX(0),
        controls=ControlSet(lower=ocp.u_bounds[0], upper=ocp.u_bounds[1]),
        minimiser=nobody,
    )
