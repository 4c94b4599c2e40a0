"""An asymmetric hopper with a massless springy leg on ground of uncertain height (ASLIP).

A body of mass m and inertia J carries a leg whose hip is not at its centre of mass, the example of the salted Kalman
filter (Kong, Payne, Council, Johnson, Automatica 131 (2021)) and of hybrid iterative linear quadratic estimation
(Payne, Zhu, Kong, Johnson, IEEE RA-L 10(4) (2025)). In flight the leg has its rest length, and the foot is placed
ahead of the hip by the speed (Raibert 1986). It touches down at the height of the ground and stays where it is; the
leg pushes along itself with k (l_0 - l) - c l' and turns the body, as its line misses the centre. It lifts off at its
rest length. The papers' constants are not in what could be read of them; those here are our own.

States: position x, y and angle of the body, their rates, place of the foot (of the last stance), and 1 in stance, 0 in
flight. The control is a force on the body.
"""

from __future__ import annotations

from dataclasses import dataclass

import casadi as ca

import nosnoc_py as ns

NAMES = ("x", "y", "angle", "vx", "vy", "rate", "foot_x", "foot_y", "stance")


@dataclass(frozen=True, kw_only=True)
class Constants:
    """Constants in SI units: body, hip in the frame of the body, leg, placement of the foot, torque that rights it."""

    mass: float = 1.0
    inertia: float = 0.05
    hip_x: float = 0.02
    hip_y: float = -0.05
    length: float = 0.5
    stiffness: float = 500.0
    damping: float = 0.2
    gravity: float = 9.81
    speed: float = 1.0
    half_stance: float = 0.075
    placement: float = 0.04
    righting: float = 4.0


STANDARD = Constants()


def build(constants: Constants = STANDARD) -> ns.HybridSystem:
    """Return the hopper; its parameter is the height of the ground."""
    c = constants
    x, u, ground = ca.SX.sym("x", len(NAMES)), ca.SX.sym("u", 2), ca.SX.sym("ground")
    body, angle, velocity, rate, foot, stance = x[:2], x[2], x[3:5], x[5], x[6:8], x[8]
    turn = ca.vertcat(ca.horzcat(ca.cos(angle), -ca.sin(angle)), ca.horzcat(ca.sin(angle), ca.cos(angle)))
    arm = turn @ ca.vertcat(c.hip_x, c.hip_y)
    hip, hip_rate = body + arm, velocity + rate * ca.vertcat(-arm[1], arm[0])
    leg = hip - foot
    length = ca.sqrt(ca.sumsqr(leg) + (1 - stance))  # in flight nothing depends on it
    along = leg / length
    push = stance * (c.stiffness * (c.length - length) - c.damping * ca.dot(along, hip_rate))
    force = push * along
    torque = arm[0] * force[1] - arm[1] * force[0] - c.righting * (angle + 0.1 * rate)
    acceleration = (force + u) / c.mass - ca.vertcat(0, c.gravity)
    flow = ca.vertcat(velocity, rate, acceleration, torque / c.inertia, 0, 0, 0)
    ahead = c.half_stance * velocity[0] + c.placement * (velocity[0] - c.speed)
    reach = ca.vertcat(ahead, -ca.sqrt(c.length**2 - ahead**2))
    tip = hip + reach
    # Only a foot that comes down lands, and only a foot on the ground lifts off.
    landing = ca.if_else(stance < 0.5, ca.fmax(tip[1] - ground, hip_rate[1]), 1.0)
    lift_off = ca.if_else(stance > 0.5, c.length - length, 1.0)
    jumps = [
        ns.StateJump("touchdown", guard=landing, reset=ca.vertcat(x[:6], tip, 1)),
        ns.StateJump("lift-off", guard=lift_off, reset=ca.vertcat(x[:8], 0)),
    ]
    names = {"x": list(NAMES), "u": ["force_x", "force_y"], "p": ["ground"]}
    return ns.HybridSystem(x=x, u=u, p=ground, p_default=[0.0], flow=flow, jumps=jumps, names=names)


def start(height: float = 0.75, speed: float = 1.0) -> list[float]:
    """Return a state in flight at the apex of a hop."""
    return [0.0, height, 0.0, speed, 0.0, 0.0, 0.0, 0.0, 0.0]
