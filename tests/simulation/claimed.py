"""Simulations that stand in for optimised solutions."""

from __future__ import annotations

import dataclasses

import nosnoc_py as ns


def solution_of(ocp: ns.OCP, trajectory: ns.Trajectory, objective: float = 0.0) -> ns.Solution:
    """A simulation by FESD-J as if it had been optimised."""
    fields = {f.name: getattr(trajectory, f.name) for f in dataclasses.fields(trajectory)}
    numbers = dict.fromkeys(["complementarity", "complementarity_min", "infeasibility"], 0.0)
    return ns.Solution(**fields, **numbers, objective=objective, x0=ocp.x0, horizon=ocp.horizon, method="FESDJ()")
