"""A finger of two links pushes a spinner, an ellipse on a bearing, by friction: simulated in two ways."""

from __future__ import annotations

import casadi as ca
import numpy as np

import nosnoc_py as ns

START = [0.2, 1.5, 0.0, 0.0, 0.0, 0.0]
CENTRE, AXES = ca.DM([1.5, 1.0]), (0.3, 0.2)


def spinner() -> ns.CLS:
    q, v, u = ca.SX.sym("q", 3), ca.SX.sym("v", 3), ca.SX.sym("u", 2)
    upper = ca.vertcat(ca.sin(q[0]), ca.cos(q[0]))
    along = ca.vertcat(ca.sin(q[0] + q[1]), ca.cos(q[0] + q[1]))
    tip, middle = upper + along, upper + 0.5 * along
    arm = ns.lagrangian(
        q=q, v=v, u=u, forces=ca.vertcat(u - 0.5 * v[:2], -0.1 * v[2]), potential=0.5 * 9.81 * middle[1],
        kinetic=0.25 * ca.sumsqr(ca.jtimes(middle, q, v)) + 0.06 * ca.sumsqr(v[:2]) + 0.02 * v[2] ** 2,
    )  # fmt: skip
    c, s = ca.cos(q[2]), ca.sin(q[2])
    turned = ca.vertcat(ca.horzcat(c, -s), ca.horzcat(s, c))
    local = turned.T @ (tip - CENTRE)
    gap = ca.sqrt((local[0] / AXES[0]) ** 2 + (local[1] / AXES[1]) ** 2) - 1
    normal = turned @ ca.vertcat(local[0] / AXES[0] ** 2, local[1] / AXES[1] ** 2)
    normal /= ca.norm_2(normal)
    arm_of_tip = tip - CENTRE
    slip = ca.jtimes(tip, q, v) - v[2] * ca.vertcat(-arm_of_tip[1], arm_of_tip[0])
    tangent = ca.jacobian(ca.dot(ca.vertcat(-normal[1], normal[0]), slip), v).T
    return ns.CLS(
        q=q, v=v, u=u, mass_matrix=arm.mass_matrix, force=arm.force, names={"q": ["shoulder", "elbow", "spinner"]},
        contacts=[ns.Contact("tip", gap=gap, tangent=tangent, friction=0.8)],
    )  # fmt: skip


def test_the_finger_turns_the_spinner() -> None:
    system = spinner()
    motion = ns.simulate(system, x0=START, duration=0.4, u=[-3.0, -6.0])
    assert motion.status.success
    assert [event.kind for event in motion.events] == ["impact", "contact", "slip", "release"]
    assert motion["spinner"][-1] < -0.3
    stepped = ns.simulate(system, x0=START, duration=0.4, u=[-3.0, -6.0], method=ns.TimeStepping(), steps=4000)
    np.testing.assert_allclose(stepped.final_state, motion.final_state, atol=2e-2)
    assert motion.value(system.contacts[0].gap).min() > -1e-8
