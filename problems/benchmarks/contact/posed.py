"""Description of a problem of the benchmark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import casadi as ca
import numpy as np
from numpy.typing import ArrayLike

import nosnoc_py as ns
from nosnoc_py.annotations import Expression
from nosnoc_py.mpcc.program import MPCC

GRAVITY = 9.81


@dataclass(frozen=True, kw_only=True)
class Posed:
    """Optimal control problem from the literature.

    Parameters
    ----------
    title : str
    source : str
        Authors and publication.
    build : function () -> OCP
    reported : str
        Result reported by its authors; empty if there is none to compare with.
    differs : str
        Differences of `build` from the source, and reasons.
    best : float
        The least known true objective; infinite if there is none.
    found : str
        How.
    start : function () -> dict, optional
        The guess of the source; without it all methods start from the initial state and zero control.
    literal : function () -> MPCC, optional
        The discretised problem of the source.
    switched : function () -> OCP, optional
        The same problem as an `ns.PSS`, whose forces that set in are switches, for programs that know nothing else;
        without it they get `build` if that is an `ns.PSS` or an `ns.ODE`.
    stages : int
        Control stages for methods with a fixed grid.
    """

    title: str
    source: str
    build: Callable[[], ns.OCP]
    reported: str = ""
    differs: str = ""
    best: float = inf
    found: str = ""
    start: Callable[[], dict[str, object]] | None = None
    literal: Callable[[], MPCC] | None = None
    switched: Callable[[], ns.OCP] | None = None
    stages: int = 20


def squares(error: ca.SX, weights: list[float]) -> ca.SX:
    """Return the weighted sum of squares."""
    return ca.dot(ca.DM(weights), error**2)


def rotation(angle: ca.SX | float) -> ca.SX:
    """The rotation matrix (2, 2) of an angle [rad], positive against the clock."""
    c, s = ca.cos(angle), ca.sin(angle)
    return ca.vertcat(ca.horzcat(c, -s), ca.horzcat(s, c))


def placed(corners: ArrayLike, centre: Expression, angle: ca.SX | float) -> list[ca.SX]:
    """Corners (n, 2) of a body, given in its own axes, for its centre (2,) and angle [rad]: to draw it."""
    return [ca.SX(centre) + rotation(angle) @ ca.DM(corner) for corner in np.asarray(corners)]


def ellipse(half: tuple[float, float], count: int = 48) -> np.ndarray:
    """Points (count, 2) on an ellipse with these half axes [m]."""
    around = np.linspace(0.0, 2 * np.pi, count, endpoint=False)
    return np.stack([half[0] * np.cos(around), half[1] * np.sin(around)], axis=1)


def symbols(n_q: int, n_u: int) -> tuple[ca.SX, ca.SX, ca.SX]:
    """Return positions, velocities and controls."""
    return ca.SX.sym("q", n_q), ca.SX.sym("v", n_q), ca.SX.sym("u", n_u)
