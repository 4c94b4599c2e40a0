"""Two frictionless discs in a plane, perhaps beside a wall; one pushes the other (hybrid minimum principle, Section 5).

A force acts on disc 1, disc 2 moves only when it is touched. The wall is the line y = b; the discs are below it.
"""

from __future__ import annotations

import casadi as ca

import nosnoc_py as ns
from models.two_discs_inelastic import pair
from nosnoc_py.systems.scene import Ground, Mark

POSITIONS, VELOCITIES, FORCES = ("x_1", "y_1", "x_2", "y_2"), ("v_x_1", "v_y_1", "v_x_2", "v_y_2"), ("u_x", "u_y")


def build(
    masses: tuple[float, float] = (1.0, 1.0),
    radii: tuple[float, float] = (0.2, 0.2),
    restitution: float = 1.0,
    wall: float | None = None,
) -> ns.CLS:
    """Return the two discs as a system.

    Parameters
    ----------
    masses, radii : two floats
        m_1, m_2 [kg] and r_1, r_2 [m].
    restitution : float
        Newton's coefficient, the same for all contacts.
    wall : float, optional
        b [m]; by default there is no wall.

    Returns
    -------
    ns.CLS
        States x_1, y_1, x_2, y_2 [m], v_x_1, v_y_1, v_x_2, v_y_2 [m/s], controls u_x, u_y [N]; contact "discs" with the
        distance |q_1 - q_2| - r_1 - r_2 [m] as its gap and, with a wall, "wall_1" and "wall_2" with b - y_i - r_i.
    """
    q, v, u = ca.SX.sym("q", 4), ca.SX.sym("v", 4), ca.SX.sym("u", 2)
    scene = pair(q, u, radii, "force")
    gaps = {"discs": ca.norm_2(q[:2] - q[2:]) - sum(radii)}
    if wall is not None:
        gaps |= {f"wall_{disc + 1}": wall - q[2 * disc + 1] - radii[disc] for disc in (0, 1)}
        scene += [Ground(point=[0, wall], normal=[0, -1])]
        scene += [Mark(f"wall_{disc + 1}", [q[2 * disc], wall]) for disc in (0, 1)]
    m_1, m_2 = masses
    return ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=ca.diag(ca.DM([m_1, m_1, m_2, m_2])),
        force=ca.vertcat(u, 0, 0),
        contacts=[ns.Contact(name, gap=gap, restitution=restitution) for name, gap in gaps.items()],
        names={"q": POSITIONS, "v": VELOCITIES, "u": FORCES},
        units={**dict.fromkeys(POSITIONS, "m"), **dict.fromkeys(VELOCITIES, "m/s"), **dict.fromkeys(FORCES, "N")},
        scene=scene,
    )
