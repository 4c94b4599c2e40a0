"""Options of the active-set Newton method, as a `solver` of simulations."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from nosnoc_py.mpcc.strategy import Strategy
from nosnoc_py.options import Options
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER


class ActiveSetNewton(Options):
    """Solve steps of a simulation by Newton's method in guessed modes; the default solver of steps by finite elements.

    In known modes (which region is active, which contact sticks) the equations of the finite elements are smooth and
    square. Where one of their inequalities is violated an event is located at a boundary of elements, and the next mode
    is found by trial. A step is believed on the residuals of the unrelaxed equations only.

    Parameters
    ----------
    tolerance : float
        Of Newton's method, relative to the largest unknown; one more iteration follows.
    fallback : Homotopy, ActiveSet or Auto, optional
        Solves as an MPCC a step that fails: default a homotopy that ends with exact residuals. With `fallback=False`
        such a step ends the simulation.
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
        """What solves the steps that fail, if anything does."""
        if self.fallback is False:
            return None
        return SIMULATION_SOLVER if self.fallback is None else self.fallback
