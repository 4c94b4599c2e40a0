"""Explicit Runge-Kutta schemes for the segments between events, and dense output from their slopes."""

from __future__ import annotations

import numpy as np

from nosnoc_py.discretization.butcher import ButcherTableau, explicit
from nosnoc_py.errors import OptionError, unknown_name

Array = np.ndarray
EXPLICIT = {f"explicit_rk{stages}": stages for stages in (1, 2, 3, 4)}


def dopri5() -> ButcherTableau:
    """Dormand and Prince's scheme of fifth order; its seventh stage is the first one of the next step."""
    from scipy.integrate import RK45

    a = np.zeros((7, 7))
    a[:6, :5], a[6, :6] = RK45.A, RK45.B
    return ButcherTableau("dopri5", a=a, b=a[-1], c=np.append(RK45.C, 1.0), order=5)


def tableau_of(scheme: str | ButcherTableau) -> ButcherTableau:
    """The tableau of a scheme by its name, or as it is given.

    Raises
    ------
    OptionError
        If the name is unknown, or the scheme is implicit.
    """
    if isinstance(scheme, ButcherTableau):
        if np.triu(scheme.a).any():
            raise OptionError(
                f"option 'scheme': {scheme!r} is implicit; give an explicit one, 'dopri5' or 'explicit_rk4'."
            )
        return scheme
    if scheme == "dopri5":
        return dopri5()
    if scheme not in EXPLICIT:
        raise OptionError(unknown_name(scheme, ("dopri5", *EXPLICIT), "scheme"))
    return explicit(EXPLICIT[scheme])


def error_weights(tableau: ButcherTableau) -> Array | None:
    """Weights (n_s,) of the difference of Dormand and Prince's schemes of orders 5 and 4; other schemes have none."""
    from scipy.integrate import RK45

    return None if tableau.name != "dopri5" else -np.asarray(RK45.E)


def dense_nodes(tableau: ButcherTableau) -> Array:
    """Fractions of a segment at which dense output is given, the last one its end: (1/4, 1/2, 3/4, 1) or thirds."""
    pieces = 4 if tableau.name == "dopri5" else 3
    return np.arange(1, pieces + 1) / pieces


def dense_states(tableau: ButcherTableau, h: Array, x: Array, slopes: Array, ends: Array, euler: Array) -> Array:
    """States (segments, nodes, n_x) at `dense_nodes`.

    Parameters
    ----------
    h : (segments,)
    x : (segments + 1, n_x)
    slopes : (segments, n_s, n_x)
    ends : (segments, n_x)
        Slopes at the ends of the segments, with the mode of the segment.
    euler : (segments,)
        Which are straight lines.
    """
    theta, left, right = dense_nodes(tableau), x[:-1, None], x[1:, None]
    length = h[:, None, None]
    if tableau.name == "dopri5":
        states = left + length * np.einsum("qi,eix->eqx", _dopri5_weights(theta), slopes)
    else:
        s = theta[:, None]
        states = left + s**2 * (3 - 2 * s) * (right - left)
        states = states + length * s * (1 - s) * ((1 - s) * slopes[:, :1] - s * ends[:, None])
    straight = left + theta[:, None] * (right - left)
    states = np.where(euler[:, None, None], straight, states)
    states[:, -1] = x[1:]
    return np.asarray(states)


def _dopri5_weights(theta: Array) -> Array:
    """Weights (nodes, 7) of the slopes in the continuous extension of fourth order (Hairer, Norsett, Wanner, II.6)."""
    from scipy.integrate import RK45

    return np.asarray(theta[:, None] ** np.arange(1, 5) @ RK45.P.T)
