"""A drone lifts a load on a rope along a reference: the rope tightens at once, the load leaves the ground."""

from __future__ import annotations

import casadi as ca
import pytest

import nosnoc_py as ns

ROPE, GRAVITY = 0.6, 9.81


def problem() -> ns.OCP:
    q, v, u, t = ca.SX.sym("q", 5), ca.SX.sym("v", 5), ca.SX.sym("u", 2), ca.SX.sym("t")
    drone, tilt, load = q[:2], q[2], q[3:]
    lift = ca.sum1(u) * ca.vertcat(-ca.sin(tilt), ca.cos(tilt))
    force = ca.vertcat(
        lift - 0.1 * v[:2] - ca.DM([0, GRAVITY]),
        0.2 * (u[1] - u[0]) - 0.05 * v[2],
        -0.05 * v[3:] - ca.DM([0, 0.3 * GRAVITY]),
    )
    way = ns.Data([0, 0.4, 1.2, 2.0], [[0, 0.8], [0, 1.4], [1.0, 1.4], [1.0, 1.2]])
    rope = ns.Contact("rope", gap=ROPE - ca.sqrt(ca.sumsqr(drone - load) + 1e-12))
    system = ns.CLS(
        q=q, v=v, u=u, t=t, mass_matrix=ca.diag(ca.DM([1, 1, 0.05, 0.3, 0.3])), force=force, data=[way],
        contacts=[rope, ns.Contact("ground", gap=load[1] - 0.1)],
        names={"q": ["x", "z", "tilt", "load_x", "load_z"], "u": ["left", "right"]},
    )  # fmt: skip
    return ns.OCP(
        system, horizon=2.0, x0={"z": 0.5, "load_z": 0.1}, bounds={"left": (0, 12), "right": (0, 12)},
        stage_cost=ns.least_squares(drone, way(t), 20) + 0.5 * ca.sumsqr(v) + 0.01 * ns.least_squares(u, 6.4),
        terminal_cost=50 * ns.least_squares(load, [1.0, 0.6]),
    )  # fmt: skip


def test_a_load_on_a_rope() -> None:
    solution = ns.solve(problem(), ns.MultiPhase(intervals=16), guess={"left": 6.5, "right": 6.5})
    assert solution.success
    kinds = [(event.name, event.kind) for event in solution.events]
    assert set(kinds) == {("rope", "impact"), ("rope", "contact"), ("ground", "release")}
    certificate = solution.certificate
    assert certificate is not None
    assert certificate.end_state_error < 1e-5
    assert certificate.true_objective == pytest.approx(solution.objective, rel=1e-4)
    # The rope stays tight from then on, and the load follows.
    assert solution["load_x"][-1] == pytest.approx(1.0, abs=0.1)
    x, z, load_x, load_z = (solution[name][-1] for name in ("x", "z", "load_x", "load_z"))
    assert (x - load_x) ** 2 + (z - load_z) ** 2 == pytest.approx(ROPE**2, abs=1e-6)
