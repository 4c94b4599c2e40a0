"""Typical sizes of states and controls: they scale with the units, and angles are no lengths."""

from __future__ import annotations

from math import pi

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.audit.constraints import row_sizes


def arm(metre: float = 1.0) -> ns.OCP:
    """A driven link of 0.5 m on a cart that moves by 2 m in 2 s; `metre` in the unit of length."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u", 2)
    link = 0.5 * metre
    tip = ca.vertcat(q[0] + link * ca.sin(q[1]), -link * ca.cos(q[1]))
    mass = ca.jacobian(tip, q).T @ ca.jacobian(tip, q) + ca.diag(ca.DM([1, 0]))
    force = ca.vertcat(u[0], u[1] - 9.81 * metre * link * ca.sin(q[1]))
    wall = ns.Contact("wall", gap=3 * metre - tip[0])
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=mass, force=force, contacts=[wall])
    end = [ns.Constraint(q[0], 2 * metre, 2 * metre)]
    return ns.OCP(system, horizon=2.0, x0=[0.0] * 4, stage_cost=ca.sumsqr(u), terminal_constraints=end)


@pytest.mark.quick
@pytest.mark.parametrize("metre", [1e-6, 1e-3, 1.0, 1e3, 1e6])
def test_an_angle_has_the_same_size_in_every_unit_of_length(metre: float) -> None:
    np.testing.assert_allclose(arm(metre).sizes.x, [2 * metre, 1.0, metre, 0.5], rtol=1e-12)


@pytest.mark.quick
def test_an_angle_in_degrees_is_one_radian() -> None:
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    pendulum = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - ca.sin(q * pi / 180), contacts=[])
    sizes = ns.OCP(pendulum, horizon=4.0, x0=[0, 0], stage_cost=u**2).sizes
    np.testing.assert_allclose(sizes.x, [180 / pi, 45 / pi], rtol=1e-12)


@pytest.mark.quick
@pytest.mark.parametrize("metre", [1e-3, 1.0, 1e3])
def test_quaternions_are_no_lengths(metre: float) -> None:
    q, v = ca.SX.sym("q", 7), ca.SX.sym("v", 6)
    floor = ns.Contact("floor", gap=q[2])
    thing = ns.CLS(
        q=q, v=v, quaternions=[q[3:7]], mass_matrix=ca.DM.eye(6), force=ca.DM([0, 0, -metre, 0, 0, 0]), contacts=[floor]
    )
    sizes = ns.OCP(thing, horizon=2.0, x0=[0, 0, 4 * metre, 1, 0, 0, 0, *[0] * 6], terminal_cost=q[0]).sizes.x
    np.testing.assert_allclose(sizes[3:7], 1.0)
    np.testing.assert_allclose(sizes[:3], 4 * metre)
    np.testing.assert_allclose(sizes[7:10], 2 * metre)
    np.testing.assert_allclose(sizes[10:], 1.0)


@pytest.mark.quick
@pytest.mark.parametrize("unit", [2.0**-30, 1.0, 2.0**30])
def test_rows_with_the_free_horizon_have_a_size(unit: float) -> None:
    x, u, T = ca.SX.sym("x"), ca.SX.sym("u"), ns.FreeTime(1.0, 3.0, 2.0)
    cart = ns.ODE(x=x, u=u, flow=u)
    row = ns.Constraint(x - unit * T.symbol, 0, 0)
    ocp = ns.OCP(cart, horizon=T, x0=[unit], stage_cost=u**2, terminal_constraints=[row])
    assert row_sizes(ocp, ocp.terminal_constraints[0]) == pytest.approx(ocp.sizes.x, rel=1e-12)


@pytest.mark.quick
@pytest.mark.parametrize("tilt", [0.0, 1e-22, 1e-6, 0.1])
def test_an_attitude_of_rounding_size_does_not_make_angular_velocities_large(tilt: float) -> None:
    """The size is the rate that turns the first component by one: 2 rad per horizon near the attitude of no turn."""
    q, v = ca.SX.sym("q", 4), ca.SX.sym("v", 3)
    top = ns.CLS(q=q, v=v, quaternions=[q], mass_matrix=ca.DM.eye(3), force=ca.DM([0, 0, 1]), contacts=[])
    x0 = np.array([np.sqrt(1 - tilt**2), tilt, 0, 0, 0, 0, 0])
    sizes = ns.OCP(top, horizon=2.0, x0=x0, terminal_cost=q[1]).sizes.x
    np.testing.assert_allclose(sizes[4:], 1.0, rtol=0.01)
