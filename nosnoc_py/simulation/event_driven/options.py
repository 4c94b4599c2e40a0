"""Options of the event-driven simulation."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from nosnoc_py.options import engine
from nosnoc_py.simulation.common import SimulationMethod
from nosnoc_py.systems import SYSTEMS
from nosnoc_py.systems.hybrid import HybridSystem

# Increment of a state for the finite-difference Jacobian of a stiff phase, relative to the state (absolute below one).
INCREMENT = 1e-8


class EventDriven(SimulationMethod):
    """Event-driven simulation: smooth motion between events by a Runge-Kutta method of high order.

    Contact mechanics (`CLS`). Between events the modes of the contacts are constant, and

        M(q) v' = f(q, v, u) + J(q)' lambda,    q' = N(q) v,

    with zero acceleration along the normals of closed contacts and the tangents of sticking ones, and friction lambda_t
    = -mu lambda_n d against the direction d of a slip. A phase ends where a gap closes, a normal force becomes zero, a
    slip stops, or a sticking contact reaches its friction cone. Impacts satisfy Newton's law of restitution with
    Coulomb friction as in FESD-J (Nurkanovic et al.), Eq. 11.

    Filippov systems (`PSS`, `Heaviside`, `PDS`). A phase stays within regions, on the surfaces the motion slides on,
    and on active constraints (Filippov, 1988). It ends where a switching function becomes zero or a multiplier leaves
    its range. On several surfaces of one partition the weights of regions are products of step functions.

    Hybrid systems (`HybridSystem`). A phase ends where a guard becomes zero; its reset is the state after it.

    Parameters
    ----------
    rtol, atol : float
        Relative and absolute tolerance of the integrator, per component of the state. With contacts, `atol` is relative
        to the typical speed (for positions: to the way covered in one second). `rtol` is at least 2.3e-14, the smallest
        value that SciPy's integrators accept.
    integrator : {"auto", "DOP853", "Radau"}
        "auto" starts with DOP853 and changes to Radau if stability limits the steps (stiff motion), and while a slip in
        space starts from rest.
    max_step : float, optional
        Longest step of the integrator [s]. Default: none, but for systems that depend on time what 2048 samples of the
        run show of it. Set it if a law of control, or a gap along the way, changes so briefly that no sample of a step
        would see it.
    rest_velocity : float, optional
        Impacts slower than this [m/s] are inelastic, so that a bouncing body comes to rest; default 1e-3 of the
        typical speed. Below 1e-5 of it, an infinite sequence of impacts ends the simulation with the status ZENO.
        Sequences in which several contacts take turns (a box that rocks to rest) continue from their limit, up to 1e-6
        of that speed.
    speed_scale : float, optional
        Typical speed [m/s] that the tolerances of contacts are relative to. Default: the power of ten below the speed
        with which contacts move at x0 or reach each other by the forces there. Set it if parts of one motion are
        simulated separately and must agree exactly.
    max_impacts : int
        The simulation ends with more impacts, or switches, than this within `impact_window`.
    impact_window : float
        Time window of `max_impacts` [s].
    grazing : {"stop", "continue"}
        What to do if a contact or a surface is touched without speed and left again. The motion is continuous there,
        but small changes of the data may add or remove an impact or a switch, so that it is not differentiable. Touches
        that follow from the modes, whatever the data are, do not count (a spring that returns a body to where it left
        the contact without speed). Where the flow beyond a surface leads back to it, touching and crossing agree up to
        rounding: the motion continues, with a note. The option also applies where a Filippov system has several
        motions (a repulsive surface); "continue" then takes the first in the order crossing, sliding, leaving.

    rattling : {"steps", "events"}
        What to do while a pile rattles: inelastic impacts of at least three contacts follow each other a hundred times
        as fast as the motion goes on. "steps" takes it to where no contact changes any more by the impulses of short
        steps, as `TimeStepping` does; the message says from when to when, and how accurate they are. "events" follows
        every impact, as certificates and derivatives do: the work may have no bound.

    Raises
    ------
    OptionError
        If an option has a value that is not allowed, or a `solver` is given with this method.

    Examples
    --------
    A ball falls from 1 m and bounces with a restitution of 0.5; g = 9.81 m/s^2:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> contact = ns.Contact("ground", gap=q, restitution=0.5)
    >>> ball = ns.CLS(q=q, v=v, mass_matrix=1.0, force=-9.81, contacts=[contact])
    >>> trajectory = ns.simulate(ball, x0=[1.0, 0.0], duration=0.6, method=ns.EventDriven())
    >>> impact = trajectory.events[0]
    >>> impact.kind, round(impact.time, 6), round((2 / 9.81) ** 0.5, 6)
    ('impact', 0.451524, 0.451524)
    """

    takes = (*SYSTEMS, HybridSystem)
    remembers: ClassVar[bool] = True
    special_friction: ClassVar[bool] = True
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
    rattling: Literal["steps", "events"] = "steps"

    simulate = engine("nosnoc_py.simulation.event_driven.run:run")
    through_rattle = engine("nosnoc_py.simulation.rattling:stepped")
    stepper = engine("nosnoc_py.simulation.event_driven.stepper:EventDrivenStepper")


# Method of plants, searches and referees: a touch without speed is no reason to stop there.
THROUGH_TOUCHES = EventDriven(grazing="continue")
