"""Derivatives of the solution of an optimal control problem by its data, and what they predict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import OptionError
from nosnoc_py.solution.arrays import Array, assign, read_only

# Names of the data that x0, p and the horizon are, in the order of the columns.
DATA = ("x0", "p", "horizon")
TOLD = 3  # flags in a repr


@dataclass(frozen=True, eq=False, kw_only=True)
class Prediction:
    """An optimum of other data, to first order.

    Parameters
    ----------
    objective
    u : (N, n_u)
    x_end : (n_x,)
        State at the end of the horizon.
    w : (n_w,)
        Iterate.
    """

    objective: float
    u: Array
    x_end: Array
    w: Array


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class SolutionSensitivity:
    """Derivatives of an optimum by the data of its problem: `solution.differentiate()`.

    The branch of the complementarities, and with it the order of events, is kept: the derivatives are those of
    solutions that `problem.resolve` finds there. Times of impacts move with the data.

    Parameters
    ----------
    names : tuple of str
        The data, n_par of them: components of x0, then of p, then the horizon.
    data : tuple of str
        What each of them belongs to: "x0", "p" or "horizon".
    values : (n_par,)
        Of the data at the solution.
    objective : (n_par,)
        d f* / d data, without penalties.
    u : (N, n_u, n_par)
        d u* / d data.
    x_end : (n_x, n_par)
        d x*(T) / d data.
    w : (n_w, n_par)
        d w* / d data.
    flags : tuple of str
        Why the optimum has no derivative, or none that is certain: empty where it exists. The numbers then are those
        of what holds in spite of it.
    at : Prediction
        The solution itself.

    Raises
    ------
    TranscriptionError
        If shapes do not fit.
    """

    names: tuple[str, ...]
    data: tuple[str, ...]
    values: Array
    objective: Array
    u: Array
    x_end: Array
    w: Array
    flags: tuple[str, ...] = ()
    at: Prediction

    def __post_init__(self) -> None:
        count = len(self.names)
        assign(self, names=tuple(self.names), data=tuple(self.data), flags=tuple(self.flags))
        shapes: dict[str, tuple[Any, ...]] = {
            "values": (count,),
            "objective": (count,),
            "u": (*self.at.u.shape, count),
            "x_end": (self.at.x_end.size, count),
            "w": (self.at.w.size, count),
        }
        for name, shape in shapes.items():
            assign(self, **{name: read_only(getattr(self, name), f"{name} of a sensitivity", *shape)})

    @property
    def exists(self) -> bool:
        """True if the optimum has these derivatives."""
        return not self.flags

    @named_arguments
    def predict(self, x0: Any = None, p: Any = None, horizon: float | None = None) -> Prediction:
        """Return the optimum of other data to first order; what is not given stays.

        The error is of second order where the derivative exists and the order of events stays. A control that a bound
        holds stays there; others may leave their bounds.

        Parameters
        ----------
        x0, p : optional
            As many numbers as there are components in `names`, in their order.
        horizon : float, optional

        Raises
        ------
        OptionError
            For data that were left out of the sensitivity, another number of components, or what is no finite number.
        """
        change = np.zeros(len(self.names))
        for what, given in zip(DATA, (x0, p, horizon), strict=True):
            if given is not None:
                rows = [k for k, of in enumerate(self.data) if of == what]
                change[rows] = self._read(what, given, [self.names[k] for k in rows]) - self.values[rows]
        return Prediction(
            objective=self.at.objective + float(self.objective @ change),
            u=self.at.u + self.u @ change,
            x_end=self.at.x_end + self.x_end @ change,
            w=self.at.w + self.w @ change,
        )

    def _read(self, what: str, given: Any, names: list[str]) -> Array:
        if not names:
            raise OptionError(
                f"predict: {what} was given, but the sensitivity is by {', '.join(self.names) or 'nothing'}; ask for "
                f"differentiate({what}=True)."
            )
        try:
            numbers = np.asarray(given, dtype=float).reshape(-1)
        except (TypeError, ValueError):
            raise OptionError(f"predict: {what}: expected {len(names)} numbers, given {given!r}.") from None
        if numbers.size != len(names) or not np.isfinite(numbers).all():
            raise OptionError(
                f"predict: {what}: expected {len(names)} finite numbers ({', '.join(names)}), given {given!r}."
            )
        return numbers

    def __repr__(self) -> str:
        stages, controls = self.at.u.shape
        text = f"SolutionSensitivity: objective and {stages} x {controls} controls by {', '.join(self.names)}"
        more = f"; and {len(self.flags) - TOLD} more flags" if len(self.flags) > TOLD else ""
        return text + (f"; not certain to exist: {'; '.join(self.flags[:TOLD])}{more}" if self.flags else "")
