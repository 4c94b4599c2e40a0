"""Derivatives of the solution of an optimal control problem by its data, and first-order predictions from them.

On the branch of the complementarities that a solution is on, the optimum w*(data) is a smooth function; its derivative
solves a linear system with the matrix of the optimality conditions (Fiacco 1983). Predictions leave the branch
unchanged, so they hold as long as the order of events stays; `flags` names what may make the optimum not
differentiable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.arguments import named_arguments
from nosnoc_py.declared import assign
from nosnoc_py.errors import OptionError
from nosnoc_py.solution.arrays import Array, read_only
from nosnoc_py.solution.gradient import Gradient, finite

# Kinds of data, in the order of the columns.
DATA = ("x0", "p", "horizon")
FLAGS_SHOWN = 3  # number of flags in a repr; the others are counted


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

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> x, u = ca.SX.sym("x"), ca.SX.sym("u")
    >>> ocp = ns.OCP(ns.ODE(x=x, u=u, flow=u), horizon=1.0, x0=[0.0], stage_cost=u**2, terminal_cost=(x - 1) ** 2)
    >>> derivatives = ns.solve(ocp, ns.FESD(control_stages=2)).differentiate(x0=True)
    >>> prediction = derivatives.predict(x0=[0.2])
    >>> prediction.u.ravel().round(4), prediction.x_end.round(4)
    (array([0.4, 0.4]), array([0.6]))
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
        Kind of each of them: "x0", "p" or "horizon".
    values : (n_par,)
        Values of the data at the solution.
    objective : (n_par,)
        d f* / d data, without penalties.
    u : (N, n_u, n_par)
        d u* / d data.
    x_end : (n_x, n_par)
        d x*(T) / d data.
    w : (n_w, n_par)
        d w* / d data.
    flags : tuple of str
        Reasons why the optimum may have no derivative; empty if it exists. With flags the numbers hold on the branch of
        the solution with its active bounds alone.
    at : Prediction
        The solution itself.

    Raises
    ------
    TranscriptionError
        If shapes do not fit.

    Examples
    --------
    The shorter the way to the target at 0, the smaller the optimal cost:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> mass = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
    >>> ocp = ns.OCP(mass, horizon=1.0, x0=[-1, 0], stage_cost=u**2, terminal_cost=10 * (q**2 + v**2))
    >>> derivatives = ns.solve(ocp, ns.FESDJ(control_stages=2)).differentiate()
    >>> derivatives.names, derivatives.u.shape, derivatives.exists
    (('q_0', 'v_0'), (2, 1, 2), True)
    >>> bool(derivatives.objective[0] < 0)
    True
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
        """Return the optimum of other data to first order; data that are not given keep their values.

        The error is of second order where the derivative exists and the order of events stays. A control that a bound
        holds stays there; others may leave their bounds.

        Parameters
        ----------
        x0, p : optional
            As many numbers as there are components in `names`, in their order.
        horizon : float, optional
            Length [s].

        Returns
        -------
        Prediction
            Objective, controls, last state and iterate.

        Raises
        ------
        OptionError
            For data outside of the sensitivity, another number of components, or numbers that are not finite.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
        >>> mass = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
        >>> ocp = ns.OCP(mass, horizon=1.0, x0=[-1, 0], stage_cost=u**2, terminal_cost=10 * (q**2 + v**2))
        >>> derivatives = ns.solve(ocp, ns.FESDJ(control_stages=2)).differentiate()
        >>> bool(derivatives.predict(x0=[-0.9, 0.0]).objective < derivatives.at.objective)  # a shorter way
        True
        """
        # Data that are not given keep their values.
        change = np.zeros(len(self.names))
        for what, numbers in zip(DATA, (x0, p, horizon), strict=True):
            if numbers is not None:
                # Only the components that were differentiated by: others are not in `names`.
                rows = [k for k, of in enumerate(self.data) if of == what]
                change[rows] = self._read(what, numbers, [self.names[k] for k in rows]) - self.values[rows]
        # Linear in the data, without projection on bounds: callers that apply a control have to clip it.
        return Prediction(
            objective=self.at.objective + float(self.objective @ change),
            u=self.at.u + self.u @ change,
            x_end=self.at.x_end + self.x_end @ change,
            w=self.at.w + self.w @ change,
        )

    @named_arguments
    def vjp(self, *, objective: float | None = None, u: Any = None, final: Any = None) -> Gradient:
        """Return the gradient of a loss of the optimum by the data; see `Solution.vjp`.

        Parameters
        ----------
        objective : float, optional
            Derivative of the loss by the objective.
        u : (N, n_u), optional
            Derivative by the controls.
        final : (n_x,), optional
            Derivative by the last state.

        Raises
        ------
        OptionError
            For wrong shapes and numbers that are not finite.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x, u = ca.SX.sym("x"), ca.SX.sym("u")
        >>> ocp = ns.OCP(ns.ODE(x=x, u=u, flow=u), horizon=1.0, x0=[0.0], stage_cost=u**2, terminal_cost=(x - 1) ** 2)
        >>> derivatives = ns.solve(ocp, ns.FESD(control_stages=2)).differentiate()
        >>> derivatives.vjp(final=[1.0]).x0.round(4)  # half of the way stays
        array([0.5])
        """
        gradient = np.zeros(len(self.names))
        for what, given, by_data in (
            ("objective", objective, self.objective),
            ("u", u, self.u),
            ("final", final, self.x_end),
        ):
            if given is not None:
                weights = finite(given, what, *by_data.shape[:-1])
                gradient += np.tensordot(weights, by_data, weights.ndim)
        flags = self.flags
        if not np.isfinite(gradient).all():
            gradient = np.where(np.isfinite(gradient), gradient, 0.0)
            flags = (*flags, "the derivatives are not finite")
        parts = {what: gradient[[of == what for of in self.data]] for what in DATA}
        horizon = float(parts["horizon"][0]) if parts["horizon"].size else None
        return Gradient(x0=parts["x0"], p=parts["p"], horizon=horizon, flags=flags)

    def _read(self, what: str, given: Any, names: list[str]) -> Array:
        if not names:
            raise OptionError(
                f"predict: {what} was given, but the sensitivity is by {', '.join(self.names) or 'nothing'}; ask for "
                f"differentiate({what}=True)."
            )
        try:
            # The horizon is one number, x0 and p are vectors.
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
        more = f"; and {len(self.flags) - FLAGS_SHOWN} more flags" if len(self.flags) > FLAGS_SHOWN else ""
        return text + (f"; not certain to exist: {'; '.join(self.flags[:FLAGS_SHOWN])}{more}" if self.flags else "")
