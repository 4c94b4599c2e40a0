"""Options of the finite-element methods: FESD, FESD-J and time-freezing.

Each of them lays the same finite elements (`finite_elements`) over a DCS; they differ in the systems they accept and in
how these are reformulated. The docstrings name the equations of the FESD-J paper (Nurkanovic, Frey, Pozharskiy, Diehl)
unless they say otherwise.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from nosnoc_py.options import Method
from nosnoc_py.reformulation.auxiliary_motions import AuxiliaryParameters
from nosnoc_py.reformulation.contact import ContactOptions
from nosnoc_py.reformulation.time_freezing import unsupported_reason
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.pss import PDS, PSS, Heaviside
from nosnoc_py.tolerances import SIMULATED

Aggregation = Literal["stage_stage", "stage_fe", "fe_stage", "fe_fe"]
Equilibration = Literal[
    "heuristic_mean", "heuristic_difference", "l2_relaxed", "direct", "linear_complementarity", "none"
]
Scheme = Literal["radau_iia", "gauss_legendre", "radau_i", "lobatto_iiic", "explicit"]
Representation = Literal["integral", "differential", "lifted_differential"]


class FiniteElementMethod(Method):
    """Base class of the methods with finite elements; `simulation.fesd.FiniteElementRun` solves and simulates."""

    @property
    @abstractmethod
    def elements(self) -> FESD:
        """Control stages, finite elements and scheme."""

    @abstractmethod
    def one_stage(self) -> FiniteElementMethod:
        """Return the method with one control stage, for a single step of a simulation."""


class FESD(FiniteElementMethod):
    """Finite elements with switch detection (FESD), for Filippov systems and projected dynamics.

    Runge-Kutta elements whose lengths are unknowns: switches lie on boundaries of elements, and the scheme keeps its
    order of convergence (Nurkanovic, Sperl, Albrecht, Diehl 2024, Numerische Mathematik).

    Parameters
    ----------
    control_stages : int
        N, intervals of equal length with constant control each. Without effect in a simulation.
    equidistant_control_grid : bool
        False makes the lengths of the control stages unknowns, within gamma_h of equal ones: the control may then jump
        where the state does, which is where optimal controls do.
    finite_elements : int or tuple of int
        N_FE, elements per control stage; a tuple has one number per control stage.
    rk_stages : int
        n_s, Runge-Kutta stages per element.
    scheme : {"radau_iia", "gauss_legendre", "radau_i", "lobatto_iiic", "explicit"}
    rk_representation : {"integral", "differential", "lifted_differential"}, optional
        Unknowns of the Runge-Kutta equations: the states at the stages, their derivatives, or both. Default: states,
        where the scheme allows it.
    cross_complementarity : {"fe_stage", "stage_fe", "fe_fe", "stage_stage"}
        How the products of one element are added up: the first word for the continuous side (gap), the second for the
        side that jumps (force); "fe" is the sum over the element. "fe_fe" is the one to use with equality relaxations.
    step_equilibration : {"heuristic_mean", "heuristic_difference", "l2_relaxed", "direct", "linear_complementarity", \
"none"}
        How step lengths are made equal where nothing switches (Eqs. 26-30, Remark 4). The heuristics add a small
        penalty; "l2_relaxed" weights it with the indicator; "direct" imposes the equations;
        "linear_complementarity" writes the indicator with linear equations and complementarities.
        Without the active-set finish "direct" and "none" miss some inelastic landings.
    equilibration_weight : float
        Weight of the penalties. They are reported as `penalty`, never inside `objective`.
    equilibration_epsilon : float
        eta is replaced by tanh(eta / epsilon) (after Eq. 30).
    switch_detection : bool
        False fixes all steps and drops the cross complementarity: an ordinary Runge-Kutta method, for comparison.
    gamma_h : float, optional
        h lies in [(1 - gamma_h) h0, (1 + gamma_h) h0]. Default .9 in optimal control (an element of length zero may
        carry a finite impulse without restitution) and .9999 in simulation, where events may lie anywhere.
    dcs_mode : {"stewart", "step"}
        How a piecewise smooth system is written: by convex multipliers of its regions, or by step functions of its
        switching functions.
    error_tolerance : float, optional
        Tolerance of the discretisation error of a simulation, relative to the size of the motion (the largest change
        of a state, the largest velocity; in nominal values). The error of every element is estimated with one more
        Runge-Kutta stage and added up. Above the tolerance the status is `INACCURATE`, with the whole trajectory; a
        single step of a `Simulator` is compared with it alone. Steps solved as an MPCC have no estimate; None disables
        the test.

    Raises
    ------
    OptionError
        For values outside the ranges above.

    Examples
    --------
    x' = -1 for x > 0 and x' = 1 for x < 0: the state reaches 0 at t = 1.3 and stays there.

    >>> import casadi as ca
    >>> import nosnoc_py as ns
    >>> x = ca.SX.sym("x")
    >>> relay = ns.PSS(x=x, modes=[ns.Modes("side", flows=[-1, 1], functions=x, signs=[[1], [-1]])])
    >>> ns.simulate(relay, x0=[1.3], duration=2.0, method=ns.FESD(), steps=2).events
    (<enter_sliding side at 1.3>,)
    """

    takes: ClassVar[tuple[type, ...]] = (PSS, Heaviside, PDS)

    control_stages: int = Field(default=20, ge=1)
    equidistant_control_grid: bool = True
    finite_elements: int | tuple[int, ...] = 2
    rk_stages: int = Field(default=2, ge=1, le=12)
    scheme: Scheme = "radau_iia"
    rk_representation: Representation | None = None
    cross_complementarity: Aggregation = "fe_stage"
    step_equilibration: Equilibration = "heuristic_mean"
    # Small, as a penalty moves the optimum: enough to select among steps that are otherwise free.
    equilibration_weight: float = Field(default=1e-2, ge=0)
    # Well below indicators made of quantities of order one, so that tanh maps these to about one.
    equilibration_epsilon: float = Field(default=1e-2, gt=0)
    switch_detection: bool = True
    gamma_h: float | None = Field(default=None, ge=0, le=1)
    dcs_mode: Literal["stewart", "step"] = "stewart"
    # A simulation has no other check of its step length; NLP residuals say nothing of the discretisation error.
    error_tolerance: float | None = Field(default=SIMULATED, gt=0)

    @field_validator("finite_elements")
    @classmethod
    def _positive(cls, value: int | tuple[int, ...]) -> int | tuple[int, ...]:
        if any(n < 1 for n in ((value,) if isinstance(value, int) else value)) or value == ():
            raise ValueError("every control stage needs at least one finite element")
        return value

    @property
    def elements(self) -> FESD:
        """Control stages, finite elements and scheme: these options themselves."""
        return self

    def one_stage(self) -> FESD:
        """Return the options with one control stage, for a single step of a simulation."""
        # A step has a prescribed length, so that free lengths of control stages make no sense.
        return self.replace(control_stages=1, equidistant_control_grid=True)

    @property
    def elements_per_stage(self) -> tuple[int, ...]:
        """Number of finite elements of every control stage. A tuple is returned as it is, of any length."""
        n = self.finite_elements
        # The length of a tuple is checked by `Grid.of`, which knows the number of stages (one in a simulation step).
        return (n,) * self.control_stages if isinstance(n, int) else n


class FESDJ(ContactOptions, FESD):
    """Finite elements with switch and jump detection (FESD-J), for contact mechanics.

    Impacts, contact, release, stick and slip lie on boundaries of elements, where the velocity may jump.

    Parameters
    ----------
    control_stages : int
        N, intervals of equal length with constant control each. Without effect in a simulation.
    equidistant_control_grid : bool
        False makes the lengths of the control stages unknowns, within gamma_h of equal ones: the control may then jump
        where the state does, which is where optimal controls do.
    finite_elements : int or tuple of int
        N_FE, elements per control stage; a tuple has one number per control stage.
    rk_stages : int
        n_s, Runge-Kutta stages per element.
    scheme : {"radau_iia", "gauss_legendre"}
    cross_complementarity : {"fe_stage", "stage_fe", "fe_fe", "stage_stage"}
        How the products of one element are added up: the first word for the continuous side (gap), the second for the
        side that jumps (force); "fe" is the sum over the element. "fe_fe" is the one to use with equality relaxations.
    step_equilibration : {"heuristic_mean", "heuristic_difference", "l2_relaxed", "direct", "linear_complementarity", \
"none"}
        How step lengths are made equal where nothing switches (Eqs. 26-30, Remark 4). The heuristics add a small
        penalty; "l2_relaxed" weights it with the indicator; "direct" imposes the equations.
        "linear_complementarity" writes them with linear equations and complementarities: `ns.solve` and
        `ns.transcribe` take it, simulations with FESDJ refuse it (those with FESD and TimeFreezing take it).
        Without the active-set finish "direct" and "none" miss some inelastic landings.
    equilibration_weight : float
        Weight of the penalties. They are reported as `penalty`, never inside `objective`.
    equilibration_epsilon : float
        eta is replaced by tanh(eta / epsilon) (after Eq. 30).
    switch_detection : bool
        False fixes all steps and drops the cross complementarity: an ordinary Runge-Kutta method, for comparison.
    gamma_h : float, optional
        h lies in [(1 - gamma_h) h0, (1 + gamma_h) h0]. Default .9 in optimal control (an element of length zero may
        carry a finite impulse without restitution) and .9999 in simulation, where events may lie anywhere.
    error_tolerance : float, optional
        Tolerance of the discretisation error of a simulation, relative to the size of the motion (the largest change
        of a state, the largest velocity; in nominal values). The error of every element is estimated with one more
        Runge-Kutta stage and added up. Above the tolerance the status is `INACCURATE`, with the whole trajectory; a
        single step of a `Simulator` is compared with it alone. Steps solved as an MPCC have no estimate; None disables
        the test.
    impulse_form : {"sum", "product"}
        Impulse equations of Appendix A.2 or of Eq. 17.
    friction_cone : {"auto", "box", "polar", "polyhedral", "paper"}
        Formulation of friction: "box" is linear and exact in the plane, "polar" exact in space ("auto" takes these
        two), "polyhedral" (Eq. 8) approximates the cone by directions in the contact plane; "paper" is Eqs. 5 and 6,
        which have no solution in free flight, for comparison.
    cone_directions : int
        Number n of directions of the polyhedral cone in space, even. The direction of a slip force is off by up to
        pi / n, and its size by up to 1 - cos(pi / n).
    gap_rate : bool, optional
        In persistent contact impose also the gap rate, n'v = 0 with q' = v + n tau (Gear, Gupta, Leimkuhler 1985),
        which keeps the order of the scheme on curved contacts. Default: in simulation, if a normal depends on q.
    isolate_forces : bool
        Impose that a force that does not jump lies on the boundary of its cone where stick turns into slip, and is
        zero where a contact releases. The published equations do not determine the time of these switches.
    rest_velocity : float, optional
        Impacts slower than this [m/s] are inelastic, so that a ball comes to rest. Default 1e-3 in simulation, 0 in
        optimal control.
    lift_acceleration : bool, optional
        Acceleration as an algebraic variable, M(q) never inverted; default: when M depends on q.
    initial_impulse : bool
        Allow an impact at t = 0 (Eq. 17 with n = 0).
    epsilon_c : float
        Fraction of an element in the regularising inequality f_c + epsilon_c h n'(v+ + e v-) >= 0, which replaces
        Eq. 18.

    Raises
    ------
    OptionError
        For values outside the ranges above.

    Examples
    --------
    A ball falls from 1 m and keeps 90 % of its speed at the impact:

    >>> import casadi as ca
    >>> import nosnoc_py as ns
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ns.Contact("ground", gap=q, restitution=0.9)])
    >>> impact, = ns.simulate(ball, x0=[1.0, 0.0], duration=0.6, method=ns.FESDJ(), steps=2).events
    >>> round(impact.time, 6), round(impact.impulse, 6)  # sqrt(2 / 9.81) s, 1.9 sqrt(2 * 9.81) N s
    (0.451524, 8.415949)
    """

    takes = (CLS,)

    scheme: Literal["radau_iia", "gauss_legendre"] = "radau_iia"
    initial_impulse: bool = True


class TimeFreezing(FiniteElementMethod, AuxiliaryParameters):
    """Time-freezing with FESD, for contact mechanics as a system without jumps of the state.

    During an impact the clock stands still while an auxiliary motion takes the velocity to its value after the impact
    (Nurkanovic, Albrecht, Brogliato, Diehl 2023, Automatica; see `nosnoc_py.reformulation.time_freezing`). The solution
    is returned in physical time, with the impacts as jumps, and in numerical time as `solution.numerical`.

    Parameters
    ----------
    a_n : float
        Force of the auxiliary motion of inelastic contacts [N]: an impulse Lambda takes the numerical time
        Lambda / a_n, and a contact force lambda slows the clock down to the rate a_n / (a_n + lambda).
    fesd : FESD
        Control stages, equally long in physical time, finite elements and scheme. An impact takes three elements
        (before, jump, after), one more for a stop or a release in the same control stage, one more for every change of
        the sign of n'v in flight: an apex is a switch, too.
    speed_of_time : (float, float)
        Bounds of the speed of numerical time in a control stage. It compensates frozen time, so its upper bound has to
        exceed 1 + (control stages / horizon) (duration of the jumps), times the slowing down of the clock in contact.
    epsilon_t : float
        Speed with which a frictional contact in space creeps while it sticks [m/s].
    elastic : {"constant_force", "spring_damper"}
        Auxiliary motion of impacts with restitution. "constant_force": a force that is constant on the way down and on
        the way up, exact with two Runge-Kutta stages if normals are constant, but each way needs a finite element.
        "spring_damper": half an oscillation that the stages of one element have to resolve (v+ is off by 20 % with
        two, by 1e-6 with six, by 1e-9 with eight).
    stiffness : float
        Stiffness of the spring per mass [1/s^2].
    stabilize : bool, optional
        Keep inelastic contacts closed by q' = v + n tau; default: if a gap is nonlinear in q.

    Raises
    ------
    OptionError
        For values outside the ranges above, an upper bound of `speed_of_time` below 1, or FESDJ options as `fesd`.

    Examples
    --------
    Contacts with both restitution and friction have no auxiliary motion, and `accepts` explains it:

    >>> import casadi as ca
    >>> import nosnoc_py as ns
    >>> q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    >>> ground = ns.Contact("ground", gap=q[1], friction=0.5, restitution=0.3, tangent=[1, 0])
    >>> block = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=[0, -9.81], contacts=[ground])
    >>> print(ns.TimeFreezing().accepts(block))
    TimeFreezing: contact 'ground' has both restitution (0.3) and friction, for which there is no auxiliary motion; \
use ns.FESDJ(...).
    """

    takes = (CLS,)

    # Four elements: three for an impact, one for a stop or a release in the same control stage.
    fesd: FESD = Field(default_factory=lambda: FESD(finite_elements=4))
    # The upper bound leaves room for frozen time that is many times longer than a control stage.
    speed_of_time: tuple[float, float] = (0.5, 20.0)
    stabilize: bool | None = None

    def accepts(self, system: Any) -> str | None:
        """Return None if the method accepts a system and its contacts, else a message that names a suitable method."""
        return super().accepts(system) or unsupported_reason(system)

    @property
    def elements(self) -> FESD:
        """Control stages, finite elements and scheme, in numerical time."""
        return self.fesd

    def one_stage(self) -> TimeFreezing:
        """Return the options with one control stage, for a single step of a simulation."""
        return self.replace(fesd=self.fesd.one_stage())

    @field_validator("fesd")
    @classmethod
    def _filippov(cls, value: FESD) -> FESD:
        if isinstance(value, FESDJ):
            raise ValueError("time-freezing removes the jumps: expected FESD(...), given FESDJ(...)")
        return value

    @field_validator("speed_of_time")
    @classmethod
    def _reaches(cls, value: tuple[float, float]) -> tuple[float, float]:
        lower, upper = value
        if not 0 <= lower < upper:
            raise ValueError(f"expected bounds 0 <= lower < upper, given {value}")
        if upper < 1:
            raise ValueError(
                f"with an upper bound of {upper:g} the physical time cannot reach the end of the horizon; expected an "
                "upper bound of 1 or more"
            )
        return value


# Methods in the order of preference: the first one that accepts a system is its default.
FINITE_ELEMENTS = (FESDJ, FESD, TimeFreezing)
