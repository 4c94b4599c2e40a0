"""Explicit Runge-Kutta schemes for the segments between events, and dense output from their slopes."""

from __future__ import annotations

import numpy as np

from nosnoc_py.discretization.butcher import ButcherTableau, explicit
from nosnoc_py.errors import OptionError, unknown_name

Array = np.ndarray
EXPLICIT = {f"explicit_rk{stages}": stages for stages in (1, 2, 3, 4)}


def dopri5() -> ButcherTableau:
    """Dormand and Prince's scheme of fifth order; its seventh stage is the first one of the next step."""
    rows = [
        [],
        [1 / 5],
        [3 / 40, 9 / 40],
        [44 / 45, -56 / 15, 32 / 9],
        [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729],
        [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656],
        [35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84],
    ]
    a = np.array([row + [0.0] * (7 - len(row)) for row in rows])
    c = np.array([0.0, 1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0])
    return ButcherTableau("dopri5", a=a, b=a[-1], c=c, order=5)


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


def embedded_weights(tableau: ButcherTableau) -> Array | None:
    """Weights (n_s,) of the scheme of fourth order within Dormand and Prince's; other schemes have none."""
    if tableau.name != "dopri5":
        return None
    return np.array([5179 / 57600, 0.0, 7571 / 16695, 393 / 640, -92097 / 339200, 187 / 2100, 1 / 40])


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
    b = dopri5().b
    d = np.array(
        [
            -12715105075 / 11282082432,
            0.0,
            87487479700 / 32700410799,
            -10690763975 / 1880347072,
            701980252875 / 199316789632,
            -1453857185 / 822651844,
            69997945 / 29380423,
        ]
    )
    first, last = np.eye(7)[0], np.eye(7)[-1]
    s = theta[:, None]
    # u = x + s (dx + (1 - s) (h k_1 - dx + s (2 dx - h k_1 - h k_7 + (1 - s) h sum d_i k_i)))
    return s * (b + (1 - s) * (first - b + s * (2 * b - first - last + (1 - s) * d)))
