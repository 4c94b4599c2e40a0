"""Options of `EventSelected`, the simulation of event-selected systems."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.options import Method, engine
from nosnoc_py.simulation.common import SimulationMethod
from nosnoc_py.systems.event_selected import EventSelectedSystem
from nosnoc_py.tableaus import Tableau, dopri5, explicit

EXPLICIT = {f"explicit_rk{stages}": partial(explicit, stages) for stages in (1, 2, 3, 4)}
SCHEMES: dict[str, Callable[[], Tableau]] = {"dopri5": dopri5, **EXPLICIT}


class EventSelected(SimulationMethod):
    """Simulate an event-selected system: explicit Runge-Kutta steps with frozen mode bits that end on guards (ESS).

    In the band h >= -eps before a guard, the next step ends on the guard. Bits change only at ends of steps, for all
    guards crossed there. A step that passes a guard is shortened to it, also if the guard is above zero only for a
    moment, as far as a cubic through its values and slopes at both ends of the step shows it; two crossings of one
    guard within a step are lost. A function that is already above zero when its bit starts to wait for it is crossed
    when it next rises through zero. Guards must be crossed with a speed D h f of at least 1e-8 of their units per
    second, so scale guards accordingly.

    Steps have constant length without error control; see `tolerance`.

    Parameters
    ----------
    eps : float or "auto"
        Width of the bands, in units of the guards. "auto": the guard is reached within the next step. A number: a step
        stops at the edge of the band, and a single one leads from there to the guard, so its error grows with eps. That
        step may be up to twenty times as long as the others (an Euler step even longer).
    projection : {"rk-newton", "euler"}
        Step to a guard: a Runge-Kutta step whose length is corrected by Newton's method (keeps the order of the
        scheme), or the Euler step of ESS, Section 3 (error of order eps^2 per crossing). An Euler step is not taken if
        the speed of the guard changes by more than half on the way, or another guard is passed.
    step : float
        Length of a step [s]; alternatively pass `steps` to `simulate`.
    scheme : "dopri5", "explicit_rk1" .. "explicit_rk4", or a Tableau
    corrections : int
        Maximal number of Newton corrections of a crossing time; fewer at the level of rounding. Corrections that do not
        reduce the error to a tenth are not counted.
    max_events : int
        The simulation ends after more crossings (status ZENO).
    tolerance : float
        Largest error of a step, relative to nominal values of the states (default 1) plus |x|. Only "dopri5" estimates
        it, in the series `local_error`; if it is exceeded, the trajectory is complete but has the status `INACCURATE`.
    compiled : bool or "auto"
        True compiles the whole loop with the functions of the system by numba. "auto" does so if all functions are
        numba functions (`numba.njit`) already. The first compilation takes half a minute and is cached on disk;
        afterwards a new system takes about a second.
    initial_mode : tuple of 0 and 1, optional
        Bits at the start if the state does not determine them (guards with hysteresis). Default: 1 where h > 0.
    sensitivities : bool
        As in `simulate`.

    References
    ----------
    Anderson and Revzen, "Rapid integrator for a class of multi-contact systems" (ESS), Section 3.

    Examples
    --------
    A point crosses h = x at t = 0.5, where its speed changes from 1 to 3:

    >>> import casadi as ca, nosnoc_py as ns
    >>> x, b = ca.SX.sym("x"), ca.SX.sym("b")
    >>> system = ns.EventSelectedSystem(x=x, mode=b, flow=1 + 2 * b, guards=[ns.Guard("surface", x)])
    >>> motion = ns.simulate(system, x0=[-0.5], duration=1.0, method=ns.EventSelected(step=0.1))
    >>> round(motion.events[0].time, 12), round(float(motion.final_state[0]), 12)
    (0.5, 1.5)
    """

    takes = (EventSelectedSystem,)
    refuses: ClassVar = {
        **Method.refuses,
        "u": "an event-selected system has no controls: put them into p or the state",
        "solver": "EventSelected takes none; leave it out",
    }

    eps: float | Literal["auto"] = "auto"
    projection: Literal["rk-newton", "euler"] = "rk-newton"
    step: float = Field(default=1e-3, gt=0)
    scheme: Any = "dopri5"  # checked by `tableau`
    corrections: int = Field(default=4, ge=0)
    max_events: int = Field(default=10000, ge=1)
    tolerance: float = Field(default=1e-3, gt=0)
    compiled: bool | Literal["auto"] = "auto"
    initial_mode: tuple[int, ...] | None = None
    sensitivities: bool = False

    @model_validator(mode="after")
    def _check(self) -> EventSelected:
        if self.eps != "auto" and self.eps <= 0:
            raise ValueError("option 'eps': expected 'auto' or a positive number")
        if any(bit not in (0, 1) for bit in self.initial_mode or ()):
            raise ValueError(f"option 'initial_mode': expected bits, 0 or 1, given {self.initial_mode!r}")
        # Raises for an unknown or implicit scheme when the options are made, not when they are used.
        _ = self.tableau
        return self

    @property
    def tableau(self) -> Tableau:
        """Tableau of the scheme; raises an `OptionError` if its name is unknown or it is implicit."""
        if not isinstance(self.scheme, Tableau):
            if not isinstance(self.scheme, str) or self.scheme not in SCHEMES:
                raise OptionError(unknown_name(self.scheme, tuple(SCHEMES), "scheme"))
            return SCHEMES[self.scheme]()
        if not self.scheme.is_explicit:
            raise OptionError(
                f"option 'scheme': {self.scheme!r} is implicit; give an explicit one, 'dopri5' or 'explicit_rk4'."
            )
        return self.scheme

    simulate = engine("nosnoc_py.methods.event_selected.run:run")
