"""Two discs in a plane; one pushes the other (FESD-J, Section 5.2).

The manipulation task of the paper: a thrust force acts on disc 1, disc 2 moves only when it is touched, impacts are
inelastic and frictionless, and a drag of constant magnitude slows both. The optimal control problem (obstacle,
bounds, costs) is in `problems`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import casadi as ca

import nosnoc_py as ns
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.systems.scene import Arrow, Disc, Mark, PlanarShape, Trail


@dataclass(frozen=True)
class Constants:
    """Constants of Section 5.2: masses [kg], radii [m], drag coefficient c_f [N] and regularisation eps_f [m/s]."""

    masses: tuple[float, float] = (2.0, 1.0)
    radii: tuple[float, float] = (0.3, 0.2)
    drag_coefficient: float = 2.0
    drag_regularisation: float = 0.1
    restitution: float = 0.0


PAPER = Constants()


def printed_drag(v: ca.SX, constants: Constants = PAPER) -> ca.SX:
    """Return -c_f v / ||v + eps_f||, as the paper prints it: eps_f is added to each component.

    It serves the reproduction. It is singular where all components equal -eps_f, and weaker against motion along (1, 1)
    than against motion along (-1, -1); `smooth_drag` has neither flaw.
    """
    return -constants.drag_coefficient * v / ca.norm_2(v + constants.drag_regularisation)


def smooth_drag(v: ca.SX, constants: Constants = PAPER) -> ca.SX:
    """Return -c_f v / sqrt(v'v + eps_f^2), which is smooth everywhere and the same in every direction."""
    return -constants.drag_coefficient * v / ca.sqrt(ca.sumsqr(v) + constants.drag_regularisation**2)


def no_drag(v: ca.SX, constants: Constants = PAPER) -> ca.SX:
    """Return zero, so that momentum is conserved, for tests."""
    return ca.SX(v.shape[0], 1)


DRAGS: Mapping[str, Callable[[ca.SX, Constants], ca.SX]] = MappingProxyType(
    {"printed": printed_drag, "smooth": smooth_drag, "none": no_drag}
)


def build(drag: str = "printed", constants: Constants = PAPER, scenery: Sequence[PlanarShape] = ()) -> ns.CLS:
    """Return the two discs as a system.

    Parameters
    ----------
    drag : str
        Drag force, a name in `DRAGS`: "printed" (as in the paper), "smooth" or "none". With "smooth" the zero control
        is a symmetric saddle of the manipulation task: start a solver from an asymmetric one.
    constants : Constants
        By default those of the paper.
    scenery : sequence of PlanarShape
        Shapes to draw behind the discs, such as obstacles; they do not touch anything.

    Returns
    -------
    ns.CLS
        States x_1, y_1, x_2, y_2 [m], v_x_1, v_y_1, v_x_2, v_y_2 [m/s], controls thrust_x, thrust_y [N]; contact
        "discs" with the paper's gap |q_1 - q_2|^2 - (r_1 + r_2)^2 [m^2].

    Raises
    ------
    OptionError
        If the drag is unknown.
    """
    if drag not in DRAGS:
        raise OptionError(unknown_name(drag, DRAGS, "drag"))
    q, v, u = ca.SX.sym("q", 4), ca.SX.sym("v", 4), ca.SX.sym("u", 2)
    m_1, m_2 = constants.masses
    gap = ca.sumsqr(q[:2] - q[2:]) - sum(constants.radii) ** 2
    return ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=ca.diag(ca.DM([m_1, m_1, m_2, m_2])),
        force=ca.vertcat(u + DRAGS[drag](v[:2], constants), DRAGS[drag](v[2:], constants)),
        contacts=[ns.Contact("discs", gap=gap, restitution=constants.restitution)],
        names={
            "q": ["x_1", "y_1", "x_2", "y_2"],
            "v": ["v_x_1", "v_y_1", "v_x_2", "v_y_2"],
            "u": ["thrust_x", "thrust_y"],
        },
        units={
            **dict.fromkeys(["x_1", "y_1", "x_2", "y_2"], "m"),
            **dict.fromkeys(["v_x_1", "v_y_1", "v_x_2", "v_y_2"], "m/s"),
            **dict.fromkeys(["thrust_x", "thrust_y"], "N"),
        },
        scene=[*scenery, *pair(q, u, constants.radii, "thrust")],
    )


def pair(q: ca.SX, u: ca.SX, radii: tuple[float, float], force: str) -> list[PlanarShape]:
    """Return the drawing of two discs, the first of which is driven; q (4,) are their centres."""
    first, second, share = q[:2], q[2:], radii[0] / sum(radii)
    return [
        Trail(first),
        Trail(second),
        Disc(first, radii[0], label="disc 1"),
        Disc(second, radii[1], label="disc 2"),
        Arrow(first, u, label=force),
        Mark("discs", first + share * (second - first)),
    ]
