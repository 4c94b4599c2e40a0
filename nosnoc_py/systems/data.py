"""Tables over time as expressions: references, measurements, loads that vary.

A table is written as a sum over its pieces, each a polynomial of the time that has been spent in the piece: zero before
it, constant after it. The expression needs no search and has derivatives, so that it may stand in forces, gaps and
costs. Coefficients of a natural cubic spline are linear in the values (de Boor, A Practical Guide to Splines, Chapter
IV), so that values may be parameters of a system.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal

import casadi as ca
import numpy as np
from attrs import field

from nosnoc_py.annotations import Numbers
from nosnoc_py.declared import declared, title_of
from nosnoc_py.errors import ModelError, unknown_name
from nosnoc_py.systems.symbols import column, floats, increasing, name_or_none

Array = np.ndarray
Interpolation = Literal["linear", "cubic"]
INTERPOLATIONS = ("linear", "cubic")


def _values(value: Numbers, what: str = "values", owner: Any = None) -> Array:
    values, count = floats(value, what), owner.times.size
    if values.ndim not in (1, 2) or len(values) != count:
        raise ModelError(
            f"{what}: expected one number or one row for each of the {count} times, given an array of shape "
            f"{values.shape}."
        )
    if not np.isfinite(values).all():
        raise ModelError(f"{title_of(owner)}: times and values have to be finite; leave out what was not measured.")
    return values


@declared
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

    noun: ClassVar[str] = "Data"

    name: str | None = field(default=None, converter=name_or_none, kw_only=True)
    times: Array = field(converter=increasing)
    values: Array = field(converter=_values)
    interpolation: Interpolation = field(default="linear", kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.interpolation not in INTERPOLATIONS:
            what = unknown_name(str(self.interpolation), INTERPOLATIONS, "interpolation")
            raise ModelError(f"{title_of(self)}: {what}")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the symbols, one per value."""
        return tuple(f"{self.name}[{k}]" for k in range(0 if self.name is None else self.values.size))

    @cached_property
    def p(self) -> ca.SX:
        """Symbols of the values, so that solutions and messages name them."""
        return ca.vertcat(ca.SX(0, 1), *[ca.SX.sym(name) for name in self.names])

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
