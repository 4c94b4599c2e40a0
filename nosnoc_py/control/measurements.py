"""Measured motions: times, values by name, their noise and their units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.solution.arrays import assign

Array = np.ndarray
# What a unit of the user is in m, rad, s and their quotients.
UNITS = {
    "m": 1.0, "cm": 1e-2, "mm": 1e-3, "rad": 1.0, "deg": np.pi / 180.0, "s": 1.0, "ms": 1e-3,
    "m/s": 1.0, "cm/s": 1e-2, "mm/s": 1e-3, "rad/s": 1.0, "deg/s": np.pi / 180.0, "rpm": np.pi / 30.0,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Measurements:
    """Values measured at given times; NaN for one that is missing.

    Parameters
    ----------
    times : (n,)
        Seconds since the beginning of the motion, in order.
    values : mapping
        Name of a state (or of an output that is given to `ns.fit`) -> (n,).
    sigma : float or mapping, optional
        Standard deviation of the noise, of all or by name, in the unit of the values; (n,) for each value its own.
        Without it the noise is estimated from the residuals, all values alike.
    units : mapping, optional
        Name -> "mm", "deg", "deg/s", ... or the factor that makes it the system's unit; "t" is for the times.

    Raises
    ------
    OptionError
        For times out of order, values of another number, an unknown unit, noise that is not positive.

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
            raise OptionError("Measurements: times: expected seconds from 0 on in order, at least one.")
        if not isinstance(self.values, Mapping) or not self.values:
            raise OptionError(
                f"Measurements: values: expected a mapping of names to values, given {self.values!r:.60}."
            )
        values, sigmas = {}, {}
        if wrong := [name for name in units if name not in self.values]:
            raise OptionError(f"Measurements: units: there are no values {', '.join(wrong)}.")
        for name, given in self.values.items():
            factor = _factor(name, units.get(name, 1.0))
            row = _numbers(given, name)
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
            return np.ones(shape)
        noise = np.broadcast_to(np.asarray(sigma, dtype=float), shape)
        if not ((noise > 0.0) & np.isfinite(noise)).all():
            raise OptionError(f"Measurements: sigma: expected positive numbers for {name}, given {sigma!r}.")
        return noise * factor

    def part(self, which: Array, begin: float = 0.0) -> Measurements:
        """Some of the measurements, their times counted from `begin`."""
        values = {name: row[which] for name, row in self.values.items()}
        noise = {name: row[which] for name, row in self.noise.items()}
        return Measurements(self.times[which] - begin, values, sigma=noise if self.sigma is not None else None)

    @property
    def count(self) -> int:
        """Numbers that are not missing."""
        return int(sum(np.isfinite(row).sum() for row in self.values.values()))

    @property
    def names(self) -> tuple[str, ...]:
        """What is measured."""
        return tuple(self.values)

    def __repr__(self) -> str:
        ends = f"from {self.times[0]:g} to {self.times[-1]:g} s"
        return f"Measurements: {self.times.size} of {', '.join(self.values)} {ends}"


def _numbers(given: Any, what: str) -> Array:
    try:
        return np.asarray(given, dtype=float).reshape(-1)
    except (TypeError, ValueError):
        raise OptionError(f"Measurements: {what}: expected numbers, given {given!r:.60}.") from None


def _factor(name: str, unit: Any) -> float:
    if isinstance(unit, str):
        if unit not in UNITS:
            raise OptionError(
                f"Measurements: units: {name}: expected a factor or one of {', '.join(UNITS)}, given {unit!r}."
            )
        return UNITS[unit]
    return float(unit)
