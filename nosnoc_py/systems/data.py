"""Tables over time as expressions: references, measurements, loads that vary.

A table is written as a sum over its pieces, each a polynomial of the time that has been spent in the piece: zero before
it, constant after it. The expression needs no search and has derivatives, so that it may stand in forces, gaps and
costs. Coefficients of a natural cubic spline are linear in the values (de Boor, A Practical Guide to Splines, Chapter
IV), so that values may be parameters of a system.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

import casadi as ca
import numpy as np

from nosnoc_py.annotations import Numbers
from nosnoc_py.arguments import construct, named_arguments
from nosnoc_py.declared import assign
from nosnoc_py.errors import ModelError, unknown_name
from nosnoc_py.systems.symbols import column

Array = np.ndarray
Interpolation = Literal["linear", "cubic"]
INTERPOLATIONS = ("linear", "cubic")


@named_arguments
@dataclass(frozen=True, eq=False, init=False)
class Data:
    """Table over time, interpolated linearly or by a natural cubic spline.

    Linear interpolation has corners; it is constant outside of the table. A gap that follows data needs a cubic spline,
    because its velocity must be continuous; outside of the table it continues with the slopes at the ends.

    Called with the time of a system, it is an expression for costs, constraints, forces and gaps. With a name its
    values are parameters of the systems that have it among their `data`: they may be changed when a problem is solved
    again, by that name, without building it again.

    Parameters
    ----------
    times : (n,)
        Increasing [s], two at least.
    values : (n,) or (n, m)
        One number, or a row of m, for each time.
    interpolation : {"linear", "cubic"}
    name : str, optional
        Of the parameters.

    Attributes
    ----------
    p : SX (n m,)
        Symbols of the values, row by row; none without a name.
    names : tuple of str
        Names of the symbols: "name[0]", "name[1]", ...

    Raises
    ------
    ModelError
        For times that do not increase, numbers that are not finite, shapes that do not match.

    Examples
    --------
    A mass follows a table; then another one, by the same program:

    >>> import casadi as ca
    >>> import nosnoc_py as ns
    >>> x, u, t = ca.SX.sym("x"), ca.SX.sym("u"), ca.SX.sym("t")
    >>> way = ns.Data([0, 1, 2], [0.0, 1.0, 1.0], name="way")
    >>> cart = ns.ODE(x=x, u=u, t=t, flow=u, data=[way])
    >>> ocp = ns.OCP(cart, horizon=2.0, x0=[0.0], stage_cost=ns.least_squares(x, way(t)))
    >>> problem = ns.transcribe(ocp, ns.FESD(control_stages=4, finite_elements=1))
    >>> [round(float(problem.solve(p=p).u[0, 0]), 4) for p in (None, {"way": [0.0, -1.0, 0.0]})]
    [1.0, -1.0]
    """

    times: Array
    values: Array
    interpolation: Interpolation
    name: str | None
    p: Any = field(init=False, repr=False)
    names: tuple[str, ...] = field(init=False, repr=False)

    def __init__(
        self,
        times: Numbers,
        values: Numbers,
        *,
        interpolation: Interpolation = "linear",
        name: str | None = None,
    ) -> None:
        construct(self, locals())

    def __post_init__(self) -> None:
        what = "Data" if self.name is None else f"Data {self.name!r}"
        try:
            times, values = (np.array(given, dtype=float) for given in (self.times, self.values))
        except (TypeError, ValueError):
            raise ModelError(f"{what}: times and values: expected numbers, given others.") from None
        if times.ndim != 1 or times.size < 2 or not (np.diff(times) > 0).all():
            raise ModelError(f"{what}: times: expected two or more that increase, given {self.times!r}.")
        if values.ndim not in (1, 2) or len(values) != times.size:
            raise ModelError(
                f"{what}: values: expected one number or one row for each of the {times.size} times, given an array of "
                f"shape {values.shape}."
            )
        if not (np.isfinite(times).all() and np.isfinite(values).all()):
            raise ModelError(f"{what}: times and values have to be finite; leave out what was not measured.")
        if self.interpolation not in INTERPOLATIONS:
            raise ModelError(f"{what}: {unknown_name(str(self.interpolation), INTERPOLATIONS, 'interpolation')}")
        if self.name is not None and (not isinstance(self.name, str) or not self.name):
            raise ModelError(f"Data: the name has to be a non-empty string or None, given {self.name!r}.")
        count = 0 if self.name is None else values.size
        names = tuple(f"{self.name}[{k}]" for k in range(count))
        # One symbol per value, so that solutions and messages name it.
        symbols = ca.vertcat(ca.SX(0, 1), *[ca.SX.sym(name) for name in names])
        assign(self, times=times, values=values, p=symbols, names=names)

    def __call__(self, t: Any) -> ca.SX:
        """Return the value (m,) at a time, as an expression.

        Sum of the first value and the increments of all pieces, each a polynomial of the time spent in the piece. This
        needs no search for the interval, so that it is a plain expression with derivatives.
        """
        time = column(t, "Data: t", 1)
        rows = ca.SX(self.values.reshape(len(self.times), -1))
        if self.name is not None:
            # CasADi reshapes by columns, the parameters are ordered by rows.
            rows = ca.reshape(self.p, rows.shape[1], rows.shape[0]).T
        result, pieces = rows[0, :].T, self._pieces(rows)
        for k, coefficients in enumerate(pieces):
            # Clipped to the piece: 0 before it, its length after it, so that each piece adds its full increment once.
            into = ca.fmax(ca.fmin(time, self.times[k + 1]), self.times[k]) - self.times[k]
            result += sum(c * into ** (power + 1) for power, c in enumerate(coefficients))
        if self.interpolation == "cubic":
            # `end` is the slope of the last polynomial at its end; the slope at the beginning is its first coefficient.
            (first, *_), last, h = pieces[0], pieces[-1], self.times[-1] - self.times[-2]
            end = sum((power + 1) * c * h**power for power, c in enumerate(last))
            # Continue with the slopes at the ends: a gap that follows the data keeps a continuous velocity.
            result += first * ca.fmin(time - self.times[0], 0) + end * ca.fmax(time - self.times[-1], 0)
        return result

    def _pieces(self, rows: ca.SX) -> list[list[ca.SX]]:
        """Return the coefficients (m,) of the first, second and third power of the time into every piece."""
        h = np.diff(self.times)
        slopes = [(rows[k + 1, :] - rows[k, :]).T / h[k] for k in range(h.size)]
        if self.interpolation == "linear" or h.size == 1:
            return [[slope] for slope in slopes]
        # Second derivatives of a natural spline: linear in the values (de Boor, A Practical Guide to Splines, Ch. IV).
        inner = np.diag((h[:-1] + h[1:]) / 3) + np.diag(h[1:-1] / 6, 1) + np.diag(h[1:-1] / 6, -1)
        bends = ca.DM(np.linalg.inv(inner)) @ ca.horzcat(*[b - a for a, b in pairwise(slopes)]).T
        ends = ca.SX.zeros(slopes[0].numel())
        # A natural spline: second derivatives are zero at both ends.
        second = [ends, *[row.T for row in ca.vertsplit(bends)], ends]
        return [
            [slope - h[k] / 6 * (2 * a + b), a / 2, (b - a) / (6 * h[k])]
            for k, (slope, a, b) in enumerate(zip(slopes, second, second[1:], strict=False))
        ]
