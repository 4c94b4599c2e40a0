"""Eight samples of a function in a step: the polynomial through them, and how far it can be trusted."""

from __future__ import annotations

import numpy as np
from numpy.polynomial.chebyshev import chebder, chebvander

# Chebyshev's extrema on [0, 1]: with the left end they carry the polynomials of degree 7 of DOP853 exactly.
NODES = 0.5 - 0.5 * np.cos(np.pi * np.arange(8) / 7)
# Where the polynomial is looked at, on [0, 1].
FINE = np.linspace(0.0, 1.0, 57)

_COEFFICIENTS = np.linalg.inv(chebvander(2.0 * NODES - 1.0, 7))
_SLOPE = 2.0 * chebvander(2.0 * NODES - 1.0, 6) @ chebder(_COEFFICIENTS)
_TO_FINE = chebvander(2.0 * FINE - 1.0, 7) @ _COEFFICIENTS


def between(samples: np.ndarray) -> np.ndarray:
    """Values of the polynomials through samples (8, n) at the times `FINE` (57, n)."""
    return np.asarray(_TO_FINE @ samples)


def doubt(samples: np.ndarray) -> np.ndarray:
    """Four times the size of the last three coefficients (n,): more than what the polynomials miss."""
    return np.asarray(4.0 * np.abs(_COEFFICIENTS[5:] @ samples).sum(axis=0))


def slope_error(samples: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """Largest difference of the slopes of the polynomials and of those they should have, (8, n) in units of a step."""
    return np.asarray(np.abs(_SLOPE @ samples - slopes).max(axis=0))
