"""Optimal control problem of the hopper: from standing at x = 0 to standing behind the holes, with the least torque."""

from __future__ import annotations

from typing import Literal

import casadi as ca
import numpy as np
from attrs import evolve

import nosnoc_py as ns
from models import one_legged_hopper as model

STANDING = (0.4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)  # all states but x_hip
BENT = (0.35, 0.5, -1.0)  # z_hip [m], phi_hip, phi_knee [rad]
BETWEEN = 0.99  # size of the holes at RK stages: with 1, stances would touch them at every stage
HIP_RANGE, KNEE_RANGE = 0.375 * np.pi, 0.5 * np.pi


def build(
    holes: int = 3,
    horizon: float = 2.5,
    width: float = 0.5,
    depth: float = 0.1,
    joint_rate: float = 60.0,
    torque: float = 60.0,
    friction: float = 0.8,
    damping: float = 0.0,
) -> ns.OCP:
    """Return the optimal control problem.

    Parameters
    ----------
    holes : int
        Ellipses with centres at x = 0.5, 1.5, ...; the goal is x = holes.
    horizon : float
        T [s].
    width, depth : float
        Half axes of the ellipses [m].
    joint_rate : float
        Bound on the speeds of both joints [rad/s]; the paper has none.
    torque : float
        Bound on both torques [N m].
    friction : float
    damping : float
        Price of joint speeds, for easier versions: the stage cost is |u|^2 + damping |omega|^2.

    Returns
    -------
    ns.OCP
        minimise the integral of |u|^2 with the bounds of Section 6 and the goal position, at any velocity.
    """
    system = model.build(model.Constants(friction=friction))
    drawn = [_hole(x, width, depth, "" if k else "hole") for k, x in enumerate(centres(holes))]
    system = evolve(system, scene=[*drawn, *system.scene])
    at, q = model.positions(system.q), system.q
    target = ca.DM([float(holes), *STANDING[:3]])
    lower = [-0.05, 0.2, -HIP_RANGE, -KNEE_RANGE, -10.0, -10.0, -joint_rate, -joint_rate]
    upper = [holes + 2.0, 0.55, HIP_RANGE, KNEE_RANGE, 10.0, 10.0, joint_rate, joint_rate]
    return ns.OCP(
        system,
        horizon=horizon,
        x0=(0.0, *STANDING),
        stage_cost=ca.sumsqr(system.u) + damping * ca.sumsqr(system.v[2:]),
        bounds=ns.Bounds(x=(lower, upper), u=(-torque, torque)),
        path_constraints=[
            ns.Constraint(at.foot, [-0.05, -0.005], [np.inf, 0.2], name="foot"),
            ns.Constraint(at.knee, [-0.05, 0.05], name="knee"),
            *holes_at(at.foot, holes, width, depth, 1.0, "hole", "element_ends"),
            *holes_at(at.foot, holes, width, depth, BETWEEN, "hole_between", "rk_stages"),
        ],
        terminal_constraints=[ns.Constraint(q - target, 0.0, 0.0, name="goal")],
    )


def centres(holes: int) -> tuple[float, ...]:
    """Return the positions of the holes [m]."""
    return tuple(k + 0.5 for k in range(holes))


def holes_at(
    foot: ca.SX,
    holes: int,
    width: float,
    depth: float,
    lower: float,
    name: str,
    at: Literal["element_ends", "rk_stages"],
) -> list[ns.Constraint]:
    """Return the constraints hole_1, ...: the foot stays out of all ellipses."""
    numbered = enumerate(centres(holes), start=1)
    return [ns.Constraint(inside(foot, x, width, depth), lower, name=f"{name}_{k}", at=at) for k, x in numbered]


def _hole(centre: float, width: float, depth: float, label: str) -> ns.scene.Polygon:
    """Return an ellipse around (centre, 0), for pictures."""
    around = np.linspace(0.0, 2 * np.pi, 48)
    corners = np.stack([centre + width * np.cos(around), depth * np.sin(around)], axis=1)
    return ns.scene.Polygon(corners, label=label, colour="grey")


def inside(foot: ca.SX, centre: float, width: float, depth: float) -> ca.SX:
    """Return a number below one if the foot is in the ellipse around (centre, 0)."""
    return ((foot[0] - centre) / width) ** 2 + (foot[1] / depth) ** 2


def glide(ocp: ns.OCP, holes: int) -> ns.Trajectory:
    """Return a start without contact: the hip moves on a straight line with a bent leg, the foot above the holes."""
    t = np.linspace(0.0, ocp.horizon, 21)
    share = t / ocp.horizon
    bend = np.minimum(1.0, 6.0 * np.minimum(share, 1.0 - share))
    x = np.zeros((t.size, 8))
    x[:, 0], x[:, 4] = holes * share, holes / ocp.horizon
    x[:, 1] = 0.4 + (BENT[0] + 0.11 - 0.4) * bend
    x[:, 2], x[:, 3] = BENT[1] * bend, BENT[2] * bend
    return trajectory(ocp.system, t, x, np.array([0.0, ocp.horizon]), np.zeros((1, 2)))


def trajectory(system: ns.CLS, t: np.ndarray, x: np.ndarray, u_grid: np.ndarray, u: np.ndarray) -> ns.Trajectory:
    """Return states at nodes and a piecewise constant control as a start."""
    states, controls = system.state_names, system.control_names
    return ns.Trajectory(t=t, x=x, u_grid=u_grid, u=u, state_names=states, control_names=controls)
