"""Problems with switches as programs of the Python package nosnoc (Nurkanovic, Pozharskiy, Frey, Diehl), version 0.2.0.

It takes Filippov systems of regions by Stewart's indicators, the same as `ns.PSS`, with FESD; a smooth system gets a
partition that never switches, because the package takes none without. It has no rigid contacts, no impacts, and no
hysteresis, and time-freezing is left to its user. Complementarities of the user are its path complementarities; that
both sides are not negative is a path constraint there. Everything else has the default of the package.
"""

from __future__ import annotations

import time
from importlib import import_module, metadata
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns

VERSION = "0.2.0"
ELEMENTS, RK_STAGES = 2, 2  # as the other columns of the table


class _OutOfTime(Exception):
    """Exception at the time limit."""


def package() -> Any:
    """Return the package, or None if this version of it is not installed."""
    try:
        return import_module("nosnoc") if metadata.version("nosnoc") == VERSION else None
    except (ImportError, metadata.PackageNotFoundError):
        return None


def expressible(ocp: ns.OCP) -> bool:
    """Check whether the package has what the problem needs."""
    s = ocp.system
    equations = all(np.array_equal(c.lower, c.upper) for c in ocp.terminal_constraints)
    plain = not (ocp.free_time or ocp.free_parameters or ocp.initial_constraints or ocp.point_terms)
    return (
        isinstance(s, ns.PSS)
        and not s.remembers
        and s.autonomous
        and not s.z.numel()
        and equations
        and plain
        and not ocp.point_constraints
        and ocp.x0 is not None
        and all(c.at == "element_ends" for c in ocp.path_constraints)
    )


def program(ocp: ns.OCP, stages: int, limit: float) -> Any:
    """Return the solver of the package for a problem that is `expressible`."""
    nosnoc, s = package(), ocp.system
    p = np.asarray(ocp.p, dtype=float).ravel()

    def fixed(expression: Any) -> ca.SX:
        """Return an expression with the values of the parameters."""
        return ca.substitute(ca.SX(expression), s.p, ca.DM(p)) if p.size else ca.SX(expression)

    parts = [(m.indicators, m.flows) for m in s.modes] or [(ca.SX([-1, 1]), [ca.SX(s.x.numel(), 1)] * 2)]
    model = nosnoc.NosnocModel(
        x=s.x,
        x0=np.asarray(ocp.x0, dtype=float),
        u=s.u,
        f_0=fixed(s.flow),
        F=[fixed(ca.horzcat(*flows)) for _, flows in parts],
        g_Stewart=[fixed(indicators) for indicators, _ in parts],
    )
    first = [fixed(pair.a) for pair in ocp.complementarities]
    second = [fixed(pair.b) for pair in ocp.complementarities]
    sides = ca.vertcat(ca.SX(0, 1), *first, *second)
    path = [(fixed(c.expression), c.lower, c.upper) for c in ocp.path_constraints]
    path.append((sides, np.zeros(sides.numel()), np.full(sides.numel(), np.inf)))
    at_end = [fixed(c.expression) - ca.DM(c.lower) for c in ocp.terminal_constraints]
    task = nosnoc.NosnocOcp(
        lbu=ocp.u_bounds[0],
        ubu=ocp.u_bounds[1],
        lbx=ocp.x_bounds[0],
        ubx=ocp.x_bounds[1],
        f_q=fixed(ocp.stage_cost),
        f_terminal=ca.substitute(fixed(ocp.terminal_cost), s.x_initial, ca.DM(np.asarray(ocp.x0))),
        g_path=ca.vertcat(*(row for row, _, _ in path)),
        lbg=np.concatenate([lower for _, lower, _ in path]),
        ubg=np.concatenate([upper for _, _, upper in path]),
        g_path_comp=ca.horzcat(ca.vertcat(ca.SX(0, 1), *first), ca.vertcat(ca.SX(0, 1), *second)),
        g_terminal=ca.vertcat(ca.SX(0, 1), *at_end),
    )
    options = nosnoc.NosnocOpts()
    options.terminal_time = float(ocp.horizon)
    options.N_stages, options.N_finite_elements, options.n_s = stages, ELEMENTS, RK_STAGES
    options.irk_scheme = nosnoc.IrkSchemes.RADAU_IIA
    options.g_path_at_fe = True
    options.opts_casadi_nlp["ipopt"]["max_cpu_time"] = limit  # of one program; `_Limited` adds them up
    solver = nosnoc.NosnocSolver(options, model, task)
    solver.solver = _Limited(solver.solver, limit)
    return solver


def solve(ocp: ns.OCP, stages: int, limit: float) -> tuple[np.ndarray, float, float, str, bool, str] | None:
    """Return control, duration, objective, status, success and message; None for what the package cannot write."""
    if not expressible(ocp):
        return None
    began = time.process_time()
    solver = program(ocp, stages, limit)
    nothing = np.zeros((stages, ocp.system.u.numel()))
    try:
        results = solver.solve()
    except _OutOfTime:
        return nothing, float(ocp.horizon), np.nan, "time limit", False, ""
    if time.process_time() - began > limit:
        return nothing, float(ocp.horizon), np.nan, "time limit", False, ""
    failed = results["status"] != package().Status.SUCCESS
    status = "locally infeasible" if failed else "solved"
    control = np.reshape(results["u_list"], (stages, -1))
    message = str(solver.solver.stats()["return_status"])
    return control, float(ocp.horizon), float(results["cost_val"]), status, not failed, message


class _Limited:
    """Solver of the relaxed programs that stops between two of them at the time limit."""

    def __init__(self, solver: ca.Function, limit: float) -> None:
        self.solver, self.ends = solver, time.process_time() + limit
        self.stats = solver.stats

    def __call__(self, **arguments: Any) -> Any:
        if time.process_time() > self.ends:
            raise _OutOfTime
        return self.solver(**arguments)
