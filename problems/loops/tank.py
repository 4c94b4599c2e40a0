"""A valve lets liquid or gas out of a tank: `python -m problems.loops.tank`.

Gas and liquid flow into a tank at constant rates. The outlet is at a level of half of the volume: above it the valve
lets out liquid, below it gas, driven by the pressure of the ideal gas over the liquid. The system is piecewise smooth
in the level, and the optimum holds it at the outlet, in a sliding mode. Equations, constants, start, weights, bounds,
horizon 12.5 s and 50 control stages of 0.25 s with one element of two stages of Radau IIA of fixed length (gamma_h =
0) are those of `examples/mpc/mpc_gas_liquid_tank/mpc_gas_liquid_tank.m` of the MATLAB toolbox nosnoc, which names
Kazi, Thombre and Biegler (ADCHEM 2024) as the source of the system. Amounts are in mol, pressures in atm.

Nominal values are chosen here, 10 mol of gas and 100 mol of liquid, so that the noise is 0.1 and 1 mol; every eighth
sample the amount of liquid jumps by 5 mol up or down.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import casadi as ca

import nosnoc_py as ns
from problems.loops.common import Kicks, Loop, loop_program

GAS_IN, LIQUID_IN = 0.1, 2.5  # [mol/s]
VOLUME, OUTLET, DENSITY = 10.0, 5.0, 50.0  # [l], [l] of liquid up to the outlet, [mol/l]
GAS_CONSTANT, TEMPERATURE, OUTSIDE = 0.0821, 300.0, 1.0  # [l atm/(mol K)], [K], [atm]
MOST, USUAL = 0.15, 0.1  # opening of the valve [mol/(s atm)]
START = (6.83, 260.0)
METHOD = ns.FESD(control_stages=50, finite_elements=1, rk_stages=2, gamma_h=0.0)
KICKS = Kicks(state="liquid", size=5.0)


def pressure(gas: Any, liquid: Any) -> Any:
    """Return the pressure [atm] of amounts of gas and liquid [mol]."""
    return gas * GAS_CONSTANT * TEMPERATURE / (VOLUME - liquid / DENSITY)


def plant() -> ns.PSS:
    """Return the system: amounts of gas and liquid; the control is the opening of the valve."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    outflow = u * (pressure(x[0], x[1]) - OUTSIDE)
    level = ns.Modes(
        "outlet", flows=[ca.vertcat(0, -outflow), ca.vertcat(-outflow, 0)], functions=x[1] / DENSITY - OUTLET,
        signs=[[1], [-1]],
    )  # fmt: skip
    return ns.PSS(
        x=x, u=u, flow=ca.DM([GAS_IN, LIQUID_IN]), modes=level, nominal={"x": [10.0, 100.0], "u": MOST},
        names={"x": ["gas", "liquid"], "u": ["valve"]}, units={"gas": "mol", "liquid": "mol"},
    )  # fmt: skip


def build() -> ns.OCP:
    """Return the problem: little liquid, the valve near its usual opening."""
    s = plant()
    return ns.OCP(
        s, horizon=12.5, x0=START, stage_cost=100 * (s.u - USUAL) ** 2 + s.x[1], terminal_cost=10 * s.x[1],
        bounds={"valve": (0, MOST)},
    )  # fmt: skip


def task() -> Loop:
    """Return the loop."""
    ocp = build()
    return Loop(name="tank", ocp=ocp, plant=ocp.system, x0=START, period=0.25, method=METHOD, kicks=KICKS)


def assess(log: ns.ClosedLoop) -> tuple[Mapping[str, Any], bool]:
    """Return the liquid at the end [mol], which stays within 20 mol of the outlet."""
    liquid = float(log["liquid"][-1])
    return {"end_liquid": liquid}, abs(liquid - DENSITY * OUTLET) < 20.0


PROGRAM = loop_program(__name__, task, assess, method=METHOD, kick=KICKS.size, quick={"samples": 2})
