"""Orders of convergence of the multi-phase program: 2 n_s - 1 for states and objective, through events and contact."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import nosnoc_py as ns

G = 9.81
# Elements in each phase, by the number of stages: more where the order is low.
ELEMENTS = {1: (16, 32, 64), 2: (4, 8, 16), 3: (2, 4, 8)}
SLOPE = 0.35  # measured slopes are this close to the order


@dataclass(frozen=True, eq=False, kw_only=True)
class Swing:
    """A motion without control: its OCP, its sequence, and its end state and objective by an ODE solver."""

    ocp: ns.OCP
    items: list[Any]
    times: list[float]
    known: np.ndarray


def integrated(rate: Callable[[float, np.ndarray], list[float]], x0: list[float], duration: float, hit: Any = None):
    """The state after a time, or where `hit` is zero, and when; to 1e-13."""
    if hit is not None:
        hit.terminal = True
    found = solve_ivp(rate, (0.0, duration), x0, events=hit, rtol=1e-13, atol=1e-13, method="DOP853")
    return found.y[:, -1], float(found.t[-1])


def against_a_wall() -> Swing:
    """A pendulum that bounces off a wall; the objective is the integral of the squared angle."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    wall = ns.Contact("wall", gap=q + 0.4, restitution=0.7)
    system = ns.CLS(q=q, v=v, mass_matrix=1, force=-G * ca.sin(q), contacts=[wall])
    ocp = ns.OCP(system, horizon=1.2, x0=[1.2, 0.0], stage_cost=q**2)

    def rate(t: float, y: np.ndarray) -> list[float]:
        return [y[1], -G * np.sin(y[0]), y[0] ** 2]

    before, time = integrated(rate, [1.2, 0.0, 0.0], 1.2, lambda t, y: y[0] + 0.4)
    known, _ = integrated(rate, [before[0], -0.7 * before[1], before[2]], 1.2 - time)
    return Swing(ocp=ocp, items=[{}, "impact wall", {}], times=[time], known=known)


def in_a_bowl() -> Swing:
    """A bead that slides in a circular bowl: the contact stays closed, and its normal turns."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    bowl = ns.Contact("bowl", gap=1 - ca.norm_2(q))
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.DM([0, -G]), contacts=[bowl])
    start = 0.9
    x0 = [np.sin(start), -np.cos(start), 0.0, 0.0]
    ocp = ns.OCP(system, horizon=0.8, x0=x0, stage_cost=q[0] ** 2)
    (angle, speed, spent), _ = integrated(
        lambda t, y: [y[1], -G * np.sin(y[0]), np.sin(y[0]) ** 2], [start, 0.0, 0.0], 0.8
    )
    along = np.array([np.cos(angle), np.sin(angle)])
    known = np.array([np.sin(angle), -np.cos(angle), *(speed * along), spent])
    return Swing(ocp=ocp, items=[{"bowl": "closed"}], times=[], known=known)


@pytest.mark.parametrize("made", [against_a_wall, in_a_bowl])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_radau_iia_has_its_order(made: Callable[[], Swing], stages: int):
    """Slopes of the errors of end state and objective, over two halvings of the elements: 2 n_s - 1 to 0.35."""
    swing = made()
    errors = []
    for elements in ELEMENTS[stages]:
        sequence = ns.Sequence(swing.items, times=swing.times)
        method = ns.MultiPhase(sequence=sequence, intervals=1, stages=stages, elements=elements, refinements=0)
        solution = ns.solve(swing.ocp, method)
        assert solution.success, solution.message
        found = np.append(solution.final_state, solution.objective)
        errors.append([np.abs(found - swing.known)[:-1].max(), abs(found[-1] - swing.known[-1])])
    slopes = np.log2(np.array(errors)[:-1] / np.array(errors)[1:])
    assert (np.abs(slopes[-1] - (2 * stages - 1)) < SLOPE).all(), (errors, slopes)
