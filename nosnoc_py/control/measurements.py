"""Measured motions: times, named values, standard deviations of their noise, and units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nosnoc_py.arguments import named_arguments
from nosnoc_py.declared import assign
from nosnoc_py.errors import OptionError

Array = np.ndarray
# Factors from a unit to m, rad, s and their quotients.
UNITS = {
    "m": 1.0, "cm": 1e-2, "mm": 1e-3, "rad": 1.0, "deg": np.pi / 180.0, "s": 1.0, "ms": 1e-3,
    "m/s": 1.0, "cm/s": 1e-2, "mm/s": 1e-3, "rad/s": 1.0, "deg/s": np.pi / 180.0, "rpm": np.pi / 30.0,
}  # fmt: skip


@named_arguments
@dataclass(frozen=True, eq=False)
class Measurements:
    """Measured values at given times; NaN marks a missing one.

    Parameters
    ----------
    times : (n,)
        Seconds since the beginning of the motion, in ascending order.
    values : mapping
        Name of a state (or of an output passed to `ns.fit`) -> (n,).
    sigma : float or mapping, optional
        Standard deviation of the noise in the unit of the values: a number, or by name, or (n,) for individual values.
        Without it `ns.fit` estimates one common standard deviation from the residuals.
    units : mapping, optional
        Name -> "mm", "deg", "deg/s", ... or the factor to the unit of the system; "t" is the unit of the times.

    Raises
    ------
    OptionError
        For times out of order, a wrong number of values, an unknown unit, or noise that is not positive.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> data = ns.Measurements([0, 0.1, 0.2], {"x": [0, 12, 25]}, sigma=0.5, units={"x": "mm"})
    >>> print(data)
    Measurements: 3 of x from 0 to 0.2 s
    """

    times: Any
    values: Mapping[str, Any]
    sigma: Any = None
    units: Mapping[str, Any] | None = None
    noise: dict[str, Array] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        units = dict(self.units or {})
        times = _numbers(self.times, "times") * _factor("t", units.pop("t", 1.0))
        if not times.size or (np.diff(times) < 0.0).any() or not np.isfinite(times).all() or times[0] < 0.0:
            raise OptionError(f"Measurements: times: expected one or more seconds from 0 on, in order, given {times}.")
        if not isinstance(self.values, Mapping) or not self.values:
            raise OptionError(
                f"Measurements: values: expected a mapping of names to values, given {self.values!r:.60}."
            )
        values, sigmas = {}, {}
        if unknown := [name for name in units if name not in self.values]:
            raise OptionError(f"Measurements: units: there are no values {', '.join(unknown)}.")
        for name, samples in self.values.items():
            factor = _factor(name, units.get(name, 1.0))
            # NaN is allowed here: a value may be missing at a time at which others were measured.
            row = _numbers(samples, name)
            if row.shape != times.shape:
                raise OptionError(
                    f"Measurements: {name}: expected {times.size} values, one for every time, given {row.size}."
                )
            values[name], sigmas[name] = row * factor, self._noise(name, factor, times.shape)
        assign(self, times=times, values=values, units=units, noise=sigmas)

    def _noise(self, name: str, factor: float, shape: tuple[int, ...]) -> Array:
        sigma = self.sigma.get(name) if isinstance(self.sigma, Mapping) else self.sigma
        if sigma is None:
            if self.sigma is not None:
                raise OptionError(f"Measurements: sigma: {name} has none; give one for every name, or none at all.")
            # Unit weights; `fit` then estimates one common standard deviation from the residuals.
            return np.ones(shape)
        noise = np.broadcast_to(np.asarray(sigma, dtype=float), shape)
        if not ((noise > 0.0) & np.isfinite(noise)).all():
            raise OptionError(f"Measurements: sigma: expected positive numbers for {name}, given {sigma!r}.")
        # The noise has the unit of the values, and is converted as they are.
        return noise * factor

    @named_arguments
    def part(self, indices: Array, begin: float = 0.0) -> Measurements:
        """Return the measurements at some indices, with times counted from `begin`.

        Examples
        --------
        >>> import numpy as np, nosnoc_py as ns
        >>> data = ns.Measurements([0.0, 0.1, 0.2], {"x": [0.0, 1.2, 2.5]}, sigma=0.1)
        >>> data.part(np.array([1, 2]), begin=0.1).values["x"]
        array([1.2, 2.5])
        """
        values = {name: row[indices] for name, row in self.values.items()}
        noise = {name: row[indices] for name, row in self.noise.items()}
        # Values are in units of the system already: `units` must not be applied twice.
        return Measurements(self.times[indices] - begin, values, sigma=noise if self.sigma is not None else None)

    @property
    def count(self) -> int:
        """Number of values that are not missing."""
        return int(sum(np.isfinite(row).sum() for row in self.values.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the measured quantities."""
        return tuple(self.values)

    def __repr__(self) -> str:
        ends = f"from {self.times[0]:g} to {self.times[-1]:g} s"
        return f"Measurements: {self.times.size} of {', '.join(self.values)} {ends}"


def _numbers(values: Any, what: str) -> Array:
    try:
        return np.asarray(values, dtype=float).reshape(-1)
    except (TypeError, ValueError):
        raise OptionError(f"Measurements: {what}: expected numbers, given {values!r:.60}.") from None


def _factor(name: str, unit: Any) -> float:
    if isinstance(unit, str):
        if unit not in UNITS:
            raise OptionError(
                f"Measurements: units: {name}: expected a factor or one of {', '.join(UNITS)}, given {unit!r}."
            )
        return UNITS[unit]
    return float(unit)
