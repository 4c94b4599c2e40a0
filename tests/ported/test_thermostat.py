"""Ventilation of a room whose heater has hysteresis: the certificate agrees with the switches that are found."""

from __future__ import annotations

import casadi as ca
import pytest

import nosnoc_py as ns


def test_the_heater_is_made_to_switch_when_it_suits() -> None:
    T, vent = ca.SX.sym("T"), ca.SX.sym("vent")
    heater = ns.Hysteresis("heater", variable=T, lower=18.0, upper=20.0, flows=(12.0, 0.0))
    room = ns.PSS(x=T, u=vent, flow=-0.2 * T + 2 * vent, modes=heater, names={"x": ["temperature"], "u": ["vent"]})
    ocp = ns.OCP(
        room, horizon=4.0, x0=[15.0], stage_cost=ns.least_squares(T, 19.5) + 0.1 * vent**2, bounds={"vent": (-1, 1)}
    )
    left_alone = ns.certify(ocp, ns.solve(ocp, ns.MultiPhase(max_iterations=0))).true_objective
    solution = ns.solve(ocp, ns.MultiPhase())
    assert solution.certificate is not None
    assert solution.certificate.confirmed
    assert len(solution.events) >= 7
    assert solution.objective < 0.9 * left_alone
    temperatures = [solution(event.time)[0] for event in solution.events]
    assert temperatures == pytest.approx([20.0, 18.0] * (len(temperatures) // 2) + [20.0] * (len(temperatures) % 2))
