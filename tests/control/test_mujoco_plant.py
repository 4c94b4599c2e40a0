"""MuJoCo as a plant: without contacts the same motion as here, with a wall the same goal of a controller."""

from __future__ import annotations

import casadi as ca
import pytest

import nosnoc_py as ns
from nosnoc_py.errors import OptionError

pytestmark = pytest.mark.quick
pytest.importorskip("mujoco")
CART = """<mujoco><option timestep="0.0005" gravity="0 0 0"/><worldbody>
<body><joint name="x" type="slide" axis="1 0 0"/><geom type="box" size="0.1 0.1 0.1" mass="1"/></body>
<geom type="box" size="0.1 1 1" pos="1.2 0 0"/></worldbody><actuator><motor joint="x"/></actuator></mujoco>"""


def cart() -> ns.CLS:
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    return ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])


def test_without_a_contact_mujoco_moves_as_our_plant_does():
    """Both under the same law; MuJoCo's steps of 0.5 ms are of first order: 1e-3."""
    loops = [
        ns.close_loop(lambda t, x: 4 * (0.5 - x[0]) - 4 * x[1], plant, 2.0, [0, 0], period=0.1)
        for plant in (cart(), ns.MujocoPlant(CART, 0.1))
    ]
    assert loops[1].x == pytest.approx(loops[0].x, abs=1e-3)
    assert loops[1].state_names == ("x", "v_x")


def test_a_plan_for_rigid_contacts_controls_a_plant_with_mujocos():
    system = cart()
    cost = 10 * (system.q - 0.99) ** 2 + system.v**2
    ocp = ns.OCP(
        system, horizon=1.0, x0=[0, 0], stage_cost=cost + 0.1 * system.u**2, terminal_cost=5 * cost,
        bounds=ns.Bounds(u=(-5, 5)),
    )  # fmt: skip
    log = ns.close_loop(ns.MPC(ocp, period=0.1), ns.MujocoPlant(CART, 0.1), 2.0, [0, 0])
    assert log.success, log.message
    assert abs(log.x[-1, 0] - 0.99) < 0.02


def test_what_does_not_fit_a_plant_is_said():
    with pytest.raises(OptionError, match="period"):
        ns.MujocoPlant(CART, 0.1234567)
    with pytest.raises(OptionError, match="state_names"):
        ns.MujocoPlant(CART, 0.1, state_names=["x"])
