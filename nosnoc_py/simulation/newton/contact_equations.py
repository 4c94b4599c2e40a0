"""Equations of one stage of a contact system, as CasADi expressions.

A stage has the algebraic unknowns y = (lambda_n, y_t, s, tau, a):

- lambda_n: normal forces,
- y_t: per tangent the friction force (stick), or the direction of slip in space,
- s: slip speeds of contacts with two tangents,
- tau: drift multipliers of the gap rate, q' = N (v + sum n tau), so that gap and gap rate are both zero in a closed
  contact (the stabilisation of Gear, Gupta and Leimkuhler 1985),
- a: accelerations, if M depends on q or p.

Masks (0 or 1) choose between the rows of the modes, so that one compiled function serves all of them.
"""

from __future__ import annotations

import casadi as ca
import numpy as np

from nosnoc_py.contact_problems.modes import friction_rows
from nosnoc_py.simulation.newton.collocation import StageEquations
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.kinematics import ContactFrames


def has_constant_mass(system: CLS) -> bool:
    """Return True if M depends on neither q nor p: accelerations can then be eliminated."""
    return bool(system.mass_matrix.is_constant())


def stage_equations(system: CLS, frames: ContactFrames, gap_rate: bool) -> StageEquations:
    """Return equations and guards of a stage; guards are gaps, normal forces, slips and slacks of the friction cone."""
    n_c, n_t, n_s, n_v = frames.count, frames.n_t, frames.spatial, system.n_v
    mechanics = system.mechanics
    gaps, normals, tangents = mechanics.gaps, mechanics.normals, mechanics.tangents
    normal, tangential, speed = ca.SX.sym("lambda_n", n_c), ca.SX.sym("y_t", n_t), ca.SX.sym("s", n_s)
    tau = ca.SX.sym("tau", n_c if gap_rate else 0)
    constant = has_constant_mass(system)
    acceleration = ca.SX.sym("a", 0 if constant else n_v)
    masks = ca.SX.sym("masks", 3 * n_c)
    # The middle third of the masks (stick) is used by `friction_rows` only.
    closed, slip = masks[:n_c], masks[2 * n_c :]
    approach, rates = mechanics.gap_rates, mechanics.slips
    friction, rows = friction_rows(frames, frames.friction, masks, normal, tangential, speed, rates)
    # Friction enters as a force on the body: `friction_rows` returns it with its sign, -mu lambda_n d in slip.
    force = system.force + normals @ normal + tangents @ friction
    # The unrelaxed complementarity 0 <= gap, 0 <= lambda_n, gap lambda_n = 0, with the choice of its branch by a mask.
    rows = ca.vertcat(closed * gaps + (1 - closed) * normal, rows)
    if gap_rate:
        rows = ca.vertcat(rows, closed * approach + (1 - closed) * tau)
    # A mass matrix that depends on q is not inverted symbolically: a as an unknown keeps the expressions small.
    if not constant:
        rows = ca.vertcat(rows, system.mass_matrix @ acceleration - force)
    flow = system.state_rate(
        ca.DM(np.linalg.inv(np.array(ca.DM(system.mass_matrix)))) @ force if constant else acceleration,
        normals @ tau if gap_rate else None,
    )
    slips, slacks = [], []
    for c, part in enumerate(frames.tangents):
        # In the plane the mask is the sign of the slip (+1 or -1); in space y_t is the direction, and a stop makes v_t
        # d <= 0.
        along = slip[c] * rates[part] if frames.width(c) == 1 else ca.dot(rates[part], tangential[part])
        slips.append(along if frames.width(c) else ca.SX(0))
        # Squares and no norm: a norm has no derivative where the friction force is zero.
        slacks.append((frames.friction[c] * normal[c]) ** 2 - ca.sumsqr(tangential[part]))
    return StageEquations(
        x=system.x,
        y=ca.vertcat(normal, tangential, speed, tau, acceleration),
        u=system.u,
        p=system.p,
        masks=masks,
        flow=flow,
        rows=rows,
        guards=ca.vertcat(gaps, normal, *slips, *slacks),
    )


def force_function(equations: StageEquations, frames: ContactFrames, gap_rate: bool) -> ca.Function:
    """Return a function (y, masks, p) -> normal forces, friction forces in the user's directions, drift multipliers."""
    n_c, n_t, n_s = frames.count, frames.n_t, frames.spatial
    y = equations.y
    normal, tangential, speed = y[:n_c], y[n_c : n_c + n_t], y[n_c + n_t : n_c + n_t + n_s]
    force, _ = friction_rows(frames, frames.friction, equations.masks, normal, tangential, speed, ca.SX.zeros(n_t))
    rest = y[n_c + n_t + n_s :]
    drift = rest[:n_c] if gap_rate else ca.SX.zeros(n_c)
    return ca.Function("forces", [y, equations.masks, equations.p], [normal, ca.SX(frames.weights) * force, drift])
