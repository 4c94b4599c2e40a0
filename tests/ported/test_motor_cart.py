"""A DC motor drives a cart that sticks and slips: the current is a first-order state beside the mechanics."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns

TORQUE, RESISTANCE, BACK, INDUCTANCE, FRICTION = 3.0, 0.5, 0.3, 0.05, 0.2


def cart() -> ns.CLS:
    q, v, i, voltage = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("i"), ca.SX.sym("voltage")
    ground = ns.Contact("ground", gap=q[1], tangent=ca.SX([1, 0]), friction=FRICTION)
    return ns.CLS(
        q=q, v=v, y=i, u=voltage, mass_matrix=ca.SX.eye(2), force=ca.vertcat(TORQUE * i, -9.81), contacts=[ground],
        y_rate=(voltage - RESISTANCE * i - BACK * v[0]) / INDUCTANCE,
        names={"q": ["place", "height"], "v": ["speed", "fall"], "y": ["current"], "u": ["voltage"]},
    )  # fmt: skip


@pytest.mark.quick
def test_it_breaks_loose_when_the_current_is_large_enough() -> None:
    motion = ns.simulate(cart(), x0=np.zeros(5), duration=1.0, u=[1.0])
    enough = FRICTION * 9.81 / TORQUE
    time = -INDUCTANCE / RESISTANCE * np.log(1 - enough * RESISTANCE)
    assert [(event.kind, event.time) for event in motion.events] == [("slip", pytest.approx(time, abs=1e-9))]


def test_a_metre_in_two_seconds() -> None:
    system = cart()
    ocp = ns.OCP(
        system, horizon=2.0, x0=np.zeros(5), stage_cost=0.1 * system.u**2, bounds={"voltage": (-3, 3)},
        terminal_state={"place": 1.0, "speed": 0.0},
    )  # fmt: skip
    solution = ns.solve(ocp, ns.MultiPhase(), guess=[1.0])
    assert solution.certificate is not None
    assert solution.certificate.confirmed
    assert solution["place"][-1] == pytest.approx(1.0, abs=1e-7)
    assert solution.events[0].kind == "slip"
    # It starts late: while it sticks, current costs and moves nothing, but has to rise.
    assert 0.05 < solution.events[0].time < 0.3
    assert solution(solution.events[0].time)[4] == pytest.approx(FRICTION * 9.81 / TORQUE, abs=1e-5)
