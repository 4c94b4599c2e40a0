"""Costs and constraints of the state at chosen times."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np
from attrs import field as argument

from nosnoc_py.annotations import Numbers
from nosnoc_py.declared import declared, optional
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.relations import is_comparison
from nosnoc_py.systems.symbols import column, finite, floats, increasing

if TYPE_CHECKING:
    from nosnoc_py.ocp import OCP, Constraint


def times_of(value: Numbers, what: str = "times") -> np.ndarray:
    """Return the times (m,) [s] that increase from 0 on; everything else raises `ModelError`."""
    return increasing(value, what, "one")


def _measured(value: Numbers, what: str = "values", owner: Any = None) -> np.ndarray:
    values, shape = floats(value, what), (owner.times.size, owner.expression.numel())
    values = values[:, None] if values.ndim == 1 and shape[1] == 1 else values
    if values.shape != shape or np.isinf(values).any():
        raise ModelError(
            f"{what}: expected a row of {shape[1]} finite numbers (NaN for what was not measured) for each of the "
            f"{shape[0]} times, given an array of shape {values.shape}."
        )
    return values


def _weights(value: Numbers, what: str = "weights", owner: Any = None) -> np.ndarray:
    weights = finite(value, what, owner.expression.numel())
    if (weights < 0).any():
        raise ModelError(f"{what}: expected nonnegative numbers, given {value!r}.")
    return weights


@declared
class PointCost:
    """Cost of the state at chosen times: a sum of expressions, or of weighted squared residuals of measured values.

    Parameters
    ----------
    times : (m,)
        [s], between 0 and the horizon. At a jump the state is that before it. Finite elements need times at the ends of
        control stages, other methods take any.
    expression : SX scalar, or (k,) with values
        In x (a symbol of time among it) and p.
    values : (m,) or (m, k), optional
        Measurements of the expression; NaN for what was not measured.
    weights : float or (k,), optional
        Of the squares: one over the variances.

    Raises
    ------
    ModelError
        For times that do not increase, and lengths that do not match.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> x, rate = ca.SX.sym("x"), ca.SX.sym("rate")
    >>> decay = ns.ODE(x=x, p=rate, flow=-rate * x, names={"p": ["rate"]}, p_default=[1.0])
    >>> cost = ns.PointCost([0.5, 1.0], x, [0.4, 0.1])
    >>> ocp = ns.OCP(decay, horizon=1.0, x0=[1.0], point_costs=[cost], free_parameters={"rate": (0.1, 9.0)})
    >>> float(ns.solve(ocp, ns.MultiPhase()).p[0].round(4))  # between log(2.5) / 0.5 and log(10)
    1.9796
    """

    times: np.ndarray = argument(converter=times_of)
    expression: ca.SX = argument(converter=column)
    values: np.ndarray | None = argument(default=None, converter=optional(_measured))
    weights: Any = argument(default=1.0, converter=_weights)

    def __attrs_post_init__(self) -> None:
        if is_comparison(self.expression):
            raise ModelError("PointCost: a comparison is not a cost; give it as a constraint, point_constraints=[...].")
        if self.values is None and (self.weights != 1.0).any():
            raise ModelError("PointCost: weights= needs values=; without values multiply the expression.")
        if self.values is None and self.expression.numel() != 1:
            count = self.expression.numel()
            raise ModelError(f"PointCost: without values the expression has to be one number, given {count}.")


@dataclass(frozen=True, eq=False, kw_only=True)
class PointTerm:
    """Cost, or constraint rows between limits, of the state at chosen times.

    Attributes
    ----------
    times : (m,)
    cost, rows : SX scalar, SX (r,)
        In x, p and the numbers of a time.
    numbers : SX (n,)
        Symbols of these numbers.
    values : (m, n)
        The numbers at every time.
    constraint : Constraint, optional
        Whose rows they are.
    """

    times: np.ndarray
    cost: ca.SX = field(default_factory=lambda: ca.SX(0))
    numbers: ca.SX = field(default_factory=lambda: ca.SX(0, 1))
    values: np.ndarray
    constraint: Constraint | None = None

    @classmethod
    def of(cls, asked: PointCost | Constraint) -> PointTerm:
        """Return the term of a cost or a constraint."""
        m = asked.times.size
        if not isinstance(asked, PointCost):
            return cls(times=asked.times, values=np.zeros((m, 0)), constraint=asked)
        if asked.values is None:
            return cls(times=asked.times, cost=asked.expression, values=np.zeros((m, 0)))
        k, known = asked.expression.numel(), np.isfinite(asked.values)
        measured, weights = ca.SX.sym("measured", k), ca.SX.sym("weights", k)
        return cls(
            times=asked.times,
            cost=ca.dot(weights, (asked.expression - measured) ** 2),
            numbers=ca.vertcat(measured, weights),
            values=np.hstack([np.where(known, asked.values, 0.0), known * asked.weights]),
        )

    def costs(self, ocp: OCP, x: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Return the cost (m,) of states (m, n_x)."""
        s = ocp.system
        function = ca.Function("cost", [s.x, s.p, self.numbers], [ca.densify(self.cost)])
        return np.asarray(function(x.T, p, self.values.T)).reshape(-1)
