"""Two balls connected by a spring; the lower one hits the ground (FESD-J, Section 5.1).

The integration order experiment of the paper. Between impacts the system is linear; its exact motion is in
`tests/references/two_balls_spring.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import casadi as ca
import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.scene import Disc, Ground, Mark, Spring

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Constants:
    """Constants of Section 5.1: stiffness [N/m], radius [m], gravity [m/s^2], masses [kg], rest length [m].

    Raises
    ------
    ModelError
        If a mass or the stiffness is not positive, or the restitution is outside [0, 1].
    """

    stiffness: float = 1e4
    restitution: float = 0.8
    radius: float = 0.2
    gravity: float = 9.81
    masses: tuple[float, float] = (1.0, 1.0)
    rest_length: float = 1.0

    def __post_init__(self) -> None:
        if not (self.stiffness > 0.0 and min(self.masses) > 0.0 and 0.0 <= self.restitution <= 1.0):
            raise ModelError(f"two balls need stiffness > 0, masses > 0 and 0 <= restitution <= 1; given {self}.")

    @property
    def omega(self) -> float:
        """Angular frequency of the spring [rad/s]."""
        m_1, m_2 = self.masses
        return float(np.sqrt(self.stiffness * (1.0 / m_1 + 1.0 / m_2)))

    @property
    def shares(self) -> tuple[float, float]:
        """Shares (m_1 / M, m_2 / M) of the balls in the total mass."""
        m_1, m_2 = self.masses
        return m_1 / (m_1 + m_2), m_2 / (m_1 + m_2)


PAPER = Constants()


def build(
    stiffness: float = PAPER.stiffness,
    restitution: float = PAPER.restitution,
    radius: float = PAPER.radius,
    gravity: float = PAPER.gravity,
    masses: Sequence[float] = PAPER.masses,
    rest_length: float = PAPER.rest_length,
) -> ns.CLS:
    """Return the two balls as a system, Eqs. 34 to 37.

    Parameters
    ----------
    stiffness : float
        Stiffness k of the spring [N/m].
    restitution : float
        Newton's coefficient of the contact "ground" of the lower ball, in [0, 1].
    radius : float
        Radius of the balls [m].
    gravity : float
        Gravitational acceleration [m/s^2].
    masses : sequence of float
        Masses of the lower and the upper ball [kg].
    rest_length : float
        Length of the spring without force, between the centres [m].

    Returns
    -------
    ns.CLS
        States height_1, height_2 [m], velocity_1, velocity_2 [m/s]; no controls.
    """
    m_1, m_2 = masses
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    spring = stiffness * (q[1] - q[0] - rest_length)
    return ns.CLS(
        q=q,
        v=v,
        mass_matrix=ca.diag(ca.DM([m_1, m_2])),
        force=ca.vertcat(-m_1 * gravity + spring, -m_2 * gravity - spring),
        contacts=[ns.Contact("ground", gap=q[0] - radius, restitution=restitution)],
        names={"q": ["height_1", "height_2"], "v": ["velocity_1", "velocity_2"]},
        units={"height_1": "m", "height_2": "m", "velocity_1": "m/s", "velocity_2": "m/s"},
        scene=[
            Disc([0, q[0]], radius),
            Disc([0, q[1]], radius),
            Spring([0, q[0] + radius], [0, q[1] - radius], width=0.5 * radius),
            Ground(),
            Mark("ground", [0, 0]),
        ],
    )
