"""Options of the active-set Newton method, one of the solvers of simulations by finite elements."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from nosnoc_py.mpcc.strategy import Strategy
from nosnoc_py.options import Options
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER


class ActiveSetNewton(Options):
    """Solve the steps of a simulation by Newton's method in guessed modes; default for steps by finite elements.

    In known modes (which region is active, which contact sticks or slips) the finite-element equations

        x_i = x_left + h sum_j a_ij f(x_j, y_j, u, p),    0 = g(x_i, y_i, u, p; modes),    i = 1, ..., n_s

    are smooth and square. The first inequality that is violated (a gap, a force, a switching function) is an event; it
    is located on a boundary of elements, and the modes after it are found by trial. Each step is accepted only if the
    residuals of the unrelaxed equations of FESD or FESD-J (Nurkanovic et al., 2024), evaluated independently, are
    small.

    Parameters
    ----------
    tolerance : float
        Tolerance of Newton's method, relative to the largest unknown; one more iteration follows. Greater than 0, at
        most 1e-4.
    fallback : Homotopy, ActiveSet or Auto, optional
        Solver for the MPCC of a step for which Newton's method fails; by default a homotopy whose last problem is
        exact. With `fallback=False` such a step ends the simulation.

    Raises
    ------
    OptionError
        If an option has a value or type that is not allowed.

    Examples
    --------
    A ball is dropped from 1 m onto the ground, and stays at rest after the impact:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> ball = ns.CLS(q=q, v=v, mass_matrix=1.0, force=-9.81, contacts=[ns.Contact("ground", gap=q)])
    >>> solver = ns.ActiveSetNewton(fallback=False)
    >>> trajectory = ns.simulate(ball, x0=[1.0, 0.0], duration=1.0, steps=10, solver=solver)
    >>> bool(trajectory), [event.kind for event in trajectory.events]
    (True, ['impact', 'contact'])
    """

    tolerance: float = Field(default=1e-11, gt=0, le=1e-4)
    fallback: Any = None

    @field_validator("fallback")
    @classmethod
    def _is_strategy(cls, value: Any) -> Any:
        if value is None or value is False or isinstance(value, Strategy):
            return value
        raise ValueError("expected ns.Homotopy(...), ns.ActiveSet(...), ns.Auto(...) or False")

    @property
    def strategy(self) -> Strategy | None:
        """Solver for steps that Newton's method fails on, or None."""
        if self.fallback is False:
            return None
        return SIMULATION_SOLVER if self.fallback is None else self.fallback
