"""Options of the simulation of event-selected systems."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.options import Method
from nosnoc_py.simulation.common import SimulationMethod, SimulationTask
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.event_selected import EventSelectedSystem
from nosnoc_py.tableaus import Tableau, dopri5, explicit

EXPLICIT = {f"explicit_rk{stages}": partial(explicit, stages) for stages in (1, 2, 3, 4)}
SCHEMES: dict[str, Callable[[], Tableau]] = {"dopri5": dopri5, **EXPLICIT}


class EventSelected(SimulationMethod):
    """Steps of an explicit Runge-Kutta scheme with frozen mode bits; guards are crossed one after the other (ESS).

    Near a guard, in its band h >= -eps, the step is one that ends on it. Within a step the bits do not change; at its
    end those of all guards that are crossed there do. A step that passes a guard is taken again up to the guard, also
    where the guard is above zero for a moment only, as far as a cubic through its values and slopes at both ends of the
    step can tell: what a guard does twice within a step is lost. A function that is above zero already when its bit
    begins to wait for it is crossed where it rises through zero the next time. Guards have to be crossed with a speed
    D h f of 1e-8 of their units per second at least: one of a motion of nanometres is written in nanometres.

    Steps have the length that is given, no error controls it; see `tolerance`.

    Parameters
    ----------
    eps : float or "auto"
        Width of the bands, in the units of the guards. "auto": so wide that the guard is reached within the next step.
        A number: a step stops exactly at the edge of the band, and a single one leads from there to the guard; so its
        error grows with eps. A Runge-Kutta step is then up to twenty times as long as the others, one of Euler's may be
        longer still.
    projection : {"rk-newton", "euler"}
        How the guard is reached: by a Runge-Kutta step whose length Newton's method corrects (the order of the scheme
        is kept), or by the step of Euler's of ESS, Section 3 (error of order eps^2 at every crossing). The latter is
        not made where the guard's speed changes by more than a half on the way, or another guard is passed.
    step : float
        Length of a step [s]; `simulate` takes their number as `steps` instead.
    scheme : "dopri5", "explicit_rk1" .. "explicit_rk4", or a Tableau
    corrections : int
        Corrections of the time of a crossing by Newton's method at most; fewer where it is at rounding. Those that do
        not reduce the error to a tenth do not count.
    max_events : int
        More crossings end the simulation.
    tolerance : float
        Largest error of one step, relative to nominal values of the states (1 by default) plus |x|. "dopri5" estimates
        it, the series `local_error` has the estimates, and a larger one ends in the status `INACCURATE`, with the whole
        trajectory. Of other schemes and of steps of Euler's nothing is known, and nothing is said.
    compiled : bool or "auto"
        Whether numba compiles the whole loop, with the functions of the system in it. "auto": if all of them are
        functions of numba's (`numba.njit`) already. The first time takes half a minute; then the loop is kept on disk,
        and a system takes about a second.
    initial_mode : tuple of 0 and 1, optional
        Bits at the start, where the state does not tell them (guards with hysteresis). Default: 1 where h > 0.
    sensitivities : bool
        As in `simulate`.
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
        _ = self.tableau
        return self

    @property
    def tableau(self) -> Tableau:
        """The tableau of the scheme; `OptionError` if its name is unknown, or it is implicit."""
        if not isinstance(self.scheme, Tableau):
            if not isinstance(self.scheme, str) or self.scheme not in SCHEMES:
                raise OptionError(unknown_name(self.scheme, tuple(SCHEMES), "scheme"))
            return SCHEMES[self.scheme]()
        if not self.scheme.is_explicit:
            raise OptionError(
                f"option 'scheme': {self.scheme!r} is implicit; give an explicit one, 'dopri5' or 'explicit_rk4'."
            )
        return self.scheme

    def simulate(self, system: EventSelectedSystem, task: SimulationTask) -> Trajectory:
        """Guard by guard; see `nosnoc_py.simulate`."""
        from nosnoc_py.methods.event_selected.run import run  # numba loads slowly

        return run(system, self, task)
