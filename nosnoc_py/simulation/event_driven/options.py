"""Options of the event-driven simulation."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field

from nosnoc_py.simulation.common import SimulationMethod, SimulationTask
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems import SYSTEMS
from nosnoc_py.systems.described import Described

# Increment of a state for the Jacobian of a stiff phase, relative to it, or absolute below one.
INCREMENT = 1e-8


class EventDriven(SimulationMethod):
    """Event-driven simulation: smooth motion between events by a Runge-Kutta method of high order.

    Filippov systems (`PSS`, `Heaviside`, `PDS`): a phase keeps to the interior of regions, to the surfaces the motion
    slides on, and to active constraints; it ends where a switching function becomes zero or a multiplier leaves its
    range. On several surfaces of one partition the weights of regions are products of step functions.

    Contact mechanics (`CLS`): in each phase the closed contacts satisfy their constraints at the level of accelerations
    (stick: no tangential acceleration either; slip: friction of full size against it). A phase ends where a gap closes,
    a normal force vanishes, a slip ends, or a sticking contact reaches its cone. Impacts obey FESD-J, Eq. 11.

    Parameters
    ----------
    rtol, atol : float
        Relative and absolute tolerance of the integrator, per component of the state, the latter in speeds at
        work (of positions: ways in a second) where there are contacts; a hundred times the rounding of numbers is the
        least relative one that SciPy's integrators take.
    integrator : {"auto", "DOP853", "Radau"}
        "auto" begins with DOP853 and goes on with Radau where stability limits the steps (a stiff phase), and while a
        slip in space starts from rest.
    max_step : float, optional
        Longest step of the integrator [s]. Gaps and forces that vary quickly in a step are resolved without it; give it
        where a control or a gap changes only for a moment, so briefly that no sample of a step sees it.
    rest_velocity : float, optional
        Impacts slower than this [m/s] are inelastic, so that a bouncing body comes to rest; below 1e-5 of the speed at
        work an infinite sequence of impacts ends the simulation. By default 1e-3 of the speed at work. Sequences in
        which several contacts take turns (a box rocks to rest) go on from their limit, closer than 1e-6 of that speed.
    speed_scale : float, optional
        The speed at work [m/s], which the tolerances of contacts are relative to. By default the power of ten below
        the speed with which contacts move at x0 or reach each other by the forces there. Give it where parts of one
        motion are simulated one after the other and have to be its parts exactly.
    max_impacts : int
        More impacts, or switches, within `impact_window` [s] end the simulation.
    impact_window : float
    grazing : {"stop", "continue"}
        What to do where a contact or a surface is touched without speed and left again: the motion goes on
        continuously, but small changes of the data make an impact or a switch of it, or none. Touches that follow from
        the modes, whatever the data are, are not counted (a spring brings a body back to where it left without speed;
        a point slides on a floor below a disc that stands there). The same where a
        Filippov system has several motions (a repulsive surface): the first in the order crossing, sliding, leaving.
    """

    takes = SYSTEMS
    remembers: ClassVar[bool] = True
    refuses: ClassVar = {"solver": "EventDriven takes none; finite elements do, method=ns.FESDJ(...) or ns.FESD(...)"}

    rtol: float = Field(default=1e-12, ge=2.3e-14, le=1e-2)
    atol: float = Field(default=1e-13, gt=0, le=1e-2)
    integrator: Literal["auto", "DOP853", "Radau"] = "auto"
    max_step: float | None = Field(default=None, gt=0)
    rest_velocity: float | None = Field(default=None, ge=0)
    speed_scale: float | None = Field(default=None, gt=0)
    max_impacts: int = Field(default=1000, ge=1)
    impact_window: float = Field(default=1.0, gt=0)
    grazing: Literal["stop", "continue"] = "stop"

    def simulate(self, system: Described, task: SimulationTask) -> Trajectory:
        """From event to event; see `nosnoc_py.simulate`."""
        from nosnoc_py.simulation.event_driven.run import run  # which knows these options

        return run(system, self, task)

    def stepper(self, system: Described, length: float) -> Any:
        """Steps of equal length; see `nosnoc_py.Simulator`."""
        from nosnoc_py.simulation.event_driven.stepper import EventDrivenStepper  # which knows these options

        return EventDrivenStepper(system, self, length)
