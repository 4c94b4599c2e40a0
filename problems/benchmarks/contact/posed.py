"""What a problem of the benchmark says of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import casadi as ca

import nosnoc_py as ns
from nosnoc_py.mpcc.program import MPCC

GRAVITY = 9.81


@dataclass(frozen=True, kw_only=True)
class Posed:
    """An optimal control problem as somebody has posed it.

    Parameters
    ----------
    title : str
    source : str
        Who posed it, where.
    build : function () -> OCP
    reported : str
        What its authors say about it; empty if nothing that can be compared.
    differs : str
        Where `build` is not what the source says, and why.
    best : float
        The least true objective that anybody is known to have reached; infinite if nobody.
    found : str
        How.
    start : function () -> dict, optional
        The guess that the source starts from; without it everybody starts from the initial state and no control.
    literal : function () -> MPCC, optional
        The discretised problem as its source has it.
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
    """The weighted sum of squares."""
    return ca.dot(ca.DM(weights), error**2)


def symbols(n_q: int, n_u: int) -> tuple[ca.SX, ca.SX, ca.SX]:
    """Positions, velocities and controls."""
    return ca.SX.sym("q", n_q), ca.SX.sym("v", n_q), ca.SX.sym("u", n_u)
