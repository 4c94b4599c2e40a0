"""Random values of a sweep: the same numbers for the same seed, and the first ones whatever their number.

Values are inverses of the distribution function at uniform random numbers, so cutting a distribution does not need
rejections, and more samples leave the first ones as they were.
"""

from __future__ import annotations

import math
import zlib
from typing import Annotated

import numpy as np
from pydantic import Field, model_validator

from nosnoc_py.sweep.sections import Section

Pair = Annotated[list[float], Field(min_length=2, max_length=2)]
KINDS = ("normal", "uniform", "lognormal", "loguniform")


class Distribution(Section):
    """Distribution of a random value, as {kind: [a, b]}.

    Parameters
    ----------
    normal : (mean, standard deviation)
    lognormal : (median, factor)
        Of the values, two thirds lie between the median divided by the factor and the median times the factor.
    uniform, loguniform : (smallest, largest)
        All numbers, or all orders of magnitude, between them are alike.
    lower, upper : float, optional
        Bounds of a normal or lognormal distribution, which is cut there.
    """

    normal: Pair | None = None
    uniform: Pair | None = None
    lognormal: Pair | None = None
    loguniform: Pair | None = None
    lower: float | None = None
    upper: float | None = None

    @model_validator(mode="after")
    def _whole(self) -> Distribution:
        kinds = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(kinds) != 1:
            raise ValueError(f"expected one of {', '.join(KINDS)}, as {{normal: [0.3, 0.05]}}, given {len(kinds)}")
        kind, (a, b) = kinds[0], getattr(self, kinds[0])
        if kind in ("uniform", "loguniform"):
            if not a < b:
                raise ValueError(f"{kind}: expected the smallest value before the largest, given [{a:g}, {b:g}]")
            if self.lower is not None or self.upper is not None:
                raise ValueError(f"{kind} has its bounds already; leave lower and upper out")
        elif not b > (kind == "lognormal"):
            least = "a factor above 1" if kind == "lognormal" else "a standard deviation above 0"
            raise ValueError(f"{kind}: expected {least}, given {b:g}")
        if kind.startswith("log") and not a > 0:
            raise ValueError(f"{kind}: expected numbers above 0, given {a:g}")
        if kind == "lognormal" and self.upper is not None and self.upper <= 0:
            raise ValueError(f"lognormal: all numbers are above 0, given upper = {self.upper:g}")
        if self.lower is not None and self.upper is not None and not self.lower < self.upper:
            raise ValueError(f"expected lower < upper, given {self.lower:g} and {self.upper:g}")
        # Bounds far in a tail leave no probability in double precision.
        if not np.isfinite(self.values(np.array([1e-6, 0.5, 1.0 - 1e-6]))).all():
            raise ValueError(f"{kind}: almost no values lie between lower and upper; give a wider range")
        return self

    def values(self, shares: np.ndarray) -> np.ndarray:
        """Return the quantiles (n,) at probabilities `shares` (n,)."""
        from scipy.stats import norm  # not paid for by an import of the library

        (kind,) = (kind for kind in KINDS if getattr(self, kind) is not None)
        a, b = getattr(self, kind)
        logarithmic = kind.startswith("log")
        if kind.endswith("uniform"):
            low, high = (math.log(a), math.log(b)) if logarithmic else (a, b)
            quantiles = low + (high - low) * shares
        else:
            middle, spread = (math.log(a), math.log(b)) if logarithmic else (a, b)
            ends = (-math.inf if self.lower is None else self.lower, math.inf if self.upper is None else self.upper)
            if logarithmic:
                # A bound at or below zero cuts nothing of a positive variable.
                ends = tuple(math.log(max(end, 1e-300)) if end < math.inf else end for end in ends)  # type: ignore[assignment]
            # Shares of the uncut distribution at the bounds; shares in between are spread over [low, high].
            low, high = norm.cdf([(end - middle) / spread for end in ends])
            quantiles = middle + spread * norm.ppf(low + (high - low) * shares)
        return np.asarray(np.exp(quantiles) if logarithmic else quantiles)

    def drawn(self, path: str, samples: int, seed: int) -> list[float]:
        """Return values of a path; each path has its own stream of random numbers, independent of the others."""
        rng = np.random.default_rng([seed, zlib.crc32(path.encode())])
        # Twelve digits: the last ones differ between processors, and keys of runs with them.
        return [float(f"{value:.12g}") for value in self.values(rng.random(samples))]
