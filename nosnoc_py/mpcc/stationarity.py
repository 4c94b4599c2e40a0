"""What kind of stationary point an MPCC's point is: W, C, M, S from multipliers, B from an LPEC."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nosnoc_py.status import Stationarity


@dataclass(frozen=True, eq=False, kw_only=True)
class Multipliers:
    """Multipliers in the user's units; the Lagrangian is f + g'lambda_g + w'lambda_w - G'nu_G - H'nu_H + r'lambda_r."""

    w: np.ndarray
    g: np.ndarray
    G: np.ndarray
    H: np.ndarray
    r: np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class Certificate:
    """What is known about a point.

    Attributes
    ----------
    stationarity : Stationarity
        The strongest kind that holds.
    b_stationary : bool or None
        Verdict of the LPEC; None when it was not solved.
    lpec_value : float
        Smallest slope of the objective along feasible directions of size one; 0 at a B-stationary point.
    residual : float
        Largest entry of the gradient of the Lagrangian, over max(1, |grad f|).
    biactive : tuple of int
        Groups with both sides zero.
    multipliers : Multipliers, optional
    """

    stationarity: Stationarity
    b_stationary: bool | None
    lpec_value: float
    residual: float
    biactive: tuple[int, ...]
    multipliers: Multipliers | None
