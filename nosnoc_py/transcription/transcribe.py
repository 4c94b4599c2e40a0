"""The way from an OCP and a method to their finite elements, as an MPCC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.discretization.butcher import tableau
from nosnoc_py.discretization.finite_elements import Element, FiniteElements, StateBounds, place_constraints
from nosnoc_py.discretization.grid import STAGE_LENGTH, Grid
from nosnoc_py.discretization.options import FESD, FESDJ, TimeFreezing
from nosnoc_py.discretization.readout import Reader
from nosnoc_py.discretization.step_equilibration import step_bounds
from nosnoc_py.errors import OptionError, check_type
from nosnoc_py.mpcc.layout import At
from nosnoc_py.mpcc.program import ProgramBuilder
from nosnoc_py.ocp import OCP, Complementarity, Constraint
from nosnoc_py.reformulation.contact import ContactOptions, contact_dcs, is_curved
from nosnoc_py.reformulation.dcs import DCS, Pair, indexed, of_each
from nosnoc_py.reformulation.filippov import filippov_dcs
from nosnoc_py.reformulation.numerical_time import SPEED, frozen_dcs
from nosnoc_py.reformulation.time_freezing import CLOCK, Frozen, freeze
from nosnoc_py.roles import Role
from nosnoc_py.systems import SYSTEMS
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.described import Described
from nosnoc_py.tolerances import REST_VELOCITY
from nosnoc_py.transcription.guesses import FREE, start_of
from nosnoc_py.transcription.transcription import Method, Transcription, block_name, fesd_of

OCP_GAMMA = 0.9
SIMULATION_GAMMA = 0.9999
METHODS = (FESD, TimeFreezing)


def transcribe(ocp: OCP, method: Method) -> Transcription:
    """Discretise an OCP: reformulate its system as a DCS, lay finite elements over the horizon, collect the MPCC.

    Raises
    ------
    OptionError
        If the method does not fit the system.
    """
    check_type(ocp, OCP, "ocp")
    check_type(method, METHODS, "method")
    check_elements(ocp.system)
    return _transcribe(ocp, method, OCP_GAMMA, simulation=False)


def check_elements(system: Any) -> None:
    """Raise `OptionError` for a system that has no finite elements."""
    if not isinstance(system, SYSTEMS):
        raise OptionError(
            f"method: there are no finite elements for a {type(system).__name__}; use ns.MinimumPrinciple(...) or "
            "ns.DirectShooting(form='phases'), or write the system as an ns.CLS."
        )


def transcribe_step(system: Any, method: Method) -> Transcription:
    """The discretisation of one simulation step: x0, p, u and the length are parameters, nothing is optimised."""
    if isinstance(system, Described) and not system.controlled:
        raise OptionError(
            f"system: there are no finite elements for an ns.{type(system).__name__}; ns.simulate takes it."
        )
    check_type(system, SYSTEMS, "system")
    check_type(method, METHODS, "method")
    if isinstance(fesd_of(method).finite_elements, tuple):
        raise OptionError("finite_elements: a simulation step takes one number, given a tuple.")
    if isinstance(method, TimeFreezing):
        one: Method = method.replace(fesd=method.fesd.replace(control_stages=1, equidistant_control_grid=True))
    else:
        one = method.replace(control_stages=1, equidistant_control_grid=True)
    return _transcribe(OCP(system, horizon=1.0), one, SIMULATION_GAMMA, simulation=True)


def _transcribe(ocp: OCP, method: Method, gamma: float, *, simulation: bool) -> Transcription:
    """An OCP has controls as variables; a simulation step has them, and x0, as parameters."""
    options = fesd_of(method)
    frozen = _frozen(ocp, method)
    dcs = dcs_of(ocp, method, frozen, simulation=simulation)
    scheme = tableau(options.scheme, options.rk_stages)
    builder = ProgramBuilder()
    symbols = _Symbols.make(builder, ocp, options.control_stages, simulation=simulation)
    grid = Grid.of(symbols.horizon, options.elements_per_stage, _stage_lengths(builder, method, gamma))
    if isinstance(method, TimeFreezing):
        symbols = symbols.with_clock(builder, method.speed_of_time)
        gamma = 1.0  # a step of at most two nominal lengths may be shorter than a jump
    engine = FiniteElements(
        builder=builder,
        dcs=dcs,
        tableau=scheme,
        options=options,
        bounds=_state_bounds(ocp, frozen),
        p=symbols.p,
        default_gamma=gamma,
    )
    elements = engine.write(grid, symbols.controls, symbols.x_initial)
    if frozen is not None:
        _add_clock(builder, elements, symbols.horizon, options.control_stages)
    _add_costs_and_constraints(builder, ocp, dcs, elements, symbols)
    mpcc = builder.build(
        aggregation=options.cross_complementarity, enforce_switched=options.step_equilibration == "direct"
    )
    return Transcription(
        ocp=ocp,
        method=method,
        dcs=dcs,
        grid=grid,
        tableau=scheme,
        mpcc=mpcc,
        elements=elements,
        reader=Reader(dcs, elements, mpcc.w, mpcc.p, mpcc.G, mpcc.H),
        frozen=frozen,
    )


def _stage_lengths(builder: ProgramBuilder, method: Method, gamma: float) -> list[ca.SX]:
    """Lengths of the control stages relative to equal ones: one each, or unknowns that add up to their number."""
    options = fesd_of(method)
    count = options.control_stages
    if options.equidistant_control_grid:
        return [ca.SX(1)] * count
    if isinstance(method, TimeFreezing):
        raise OptionError(
            "equidistant_control_grid: time-freezing ties the control stages to the physical clock; leave it True."
        )
    lower, upper = step_bounds(options.replace(switch_detection=True), gamma)
    name = (STAGE_LENGTH,)
    role = Role.STAGE_LENGTH
    shares = [builder.variable(STAGE_LENGTH, At(k), name, lower, upper, 1.0, role=role) for k in range(count)]
    labels = ("sum of the control stages' lengths",)
    builder.constraint("horizon", At(), sum(shares, ca.SX(0)) - count, labels, role=Role.SUM_OF_STAGES)
    return shares


def _frozen(ocp: OCP, method: Method) -> Frozen | None:
    """The system in numerical time.

    Raises
    ------
    OptionError
        If the method is for another kind of system: the message says which one fits.
    """
    system = ocp.system
    if isinstance(system, CLS) != isinstance(method, FESDJ | TimeFreezing):
        fits = "FESDJ(...) or ns.TimeFreezing" if isinstance(system, CLS) else "FESD"
        raise OptionError(
            f"method: {type(method).__name__} does not fit a {type(system).__name__}; use ns.{fits}(...)."
        )
    if not isinstance(method, TimeFreezing):
        return None
    return freeze(
        system, a_n=method.a_n, epsilon_t=method.epsilon_t, elastic=method.elastic, stiffness=method.stiffness
    )


def dcs_of(ocp: OCP, method: Method, frozen: Frozen | None, *, simulation: bool) -> DCS:
    """The DCS that a method makes of the system of an OCP, with the user's own complementarities."""
    system, cost = ocp.system, ocp.stage_cost
    if isinstance(method, FESDJ):
        given = {field.name: getattr(method, field.name) for field in fields(ContactOptions)}
        given["gap_rate"] = gap_rate_of(method, system, simulation=simulation)
        given["rest_velocity"] = rest_velocity_of(method, simulation=simulation)
        dcs = contact_dcs(system, ContactOptions(**given), running_cost=cost)
    elif frozen is not None:
        assert isinstance(method, TimeFreezing)
        dcs = frozen_dcs(frozen, cost, stabilize=method.stabilize)
    else:
        dcs = filippov_dcs(system, running_cost=cost, dcs_mode=fesd_of(method).dcs_mode)
    return replace(dcs, pairs=(*dcs.pairs, *map(_own_pair, ocp.complementarities))) if ocp.complementarities else dcs


def _own_pair(pair: Complementarity) -> Pair:
    rows = range(pair.a.numel())
    sides = (of_each(f"{pair.name} a", rows), pair.a), (of_each(f"{pair.name} b", rows), pair.b)
    return Pair.of(f"own {pair.name}", Role.COMPLEMENTARITY, *sides, cross="none")


def gap_rate_of(method: FESDJ, system: CLS, *, simulation: bool) -> bool:
    """The option `gap_rate` with its default."""
    return (simulation and is_curved(system)) if method.gap_rate is None else method.gap_rate


def rest_velocity_of(method: FESDJ, *, simulation: bool) -> float:
    """The option `rest_velocity` with its default [m/s]."""
    default = REST_VELOCITY if simulation else 0.0
    return default if method.rest_velocity is None else method.rest_velocity


@dataclass(frozen=True, eq=False, kw_only=True)
class _Symbols:
    """What the elements and the user's functions are written in: variables or parameters of the MPCC."""

    p: ca.SX
    horizon: ca.SX
    x_initial: ca.SX
    controls: list[ca.SX]

    @classmethod
    def make(cls, builder: ProgramBuilder, ocp: OCP, stages: int, *, simulation: bool) -> _Symbols:
        return cls(
            p=_parameters(builder, ocp),
            horizon=_horizon(builder, ocp),
            x_initial=_initial_state(builder, ocp, is_parameter=simulation or ocp.x0 is not None),
            controls=_controls(builder, ocp, stages, is_parameter=simulation),
        )

    def with_clock(self, builder: ProgramBuilder, bounds: tuple[float, float]) -> _Symbols:
        """The clock starts at zero, and the speed of time is one more control."""
        start = float(np.clip(1.0, *bounds))
        numbers, role = (*bounds, start), Role.SPEED_OF_TIME
        speeds = [builder.variable(SPEED, At(k), (SPEED,), *numbers, role=role) for k in range(len(self.controls))]
        controls = [ca.vertcat(u, speed) for u, speed in zip(self.controls, speeds, strict=True)]
        return replace(self, x_initial=ca.vertcat(self.x_initial, 0), controls=controls)


def _parameters(builder: ProgramBuilder, ocp: OCP) -> ca.SX:
    """Values that are given, but for those that are optimised."""
    names = ocp.system.parameter_names
    p = builder.parameter("p", names, ocp.p, role=Role.PARAMETER)
    if not ocp.free_parameters:
        return p
    lower, upper = np.array(list(ocp.free_parameters.values())).T
    rows = [names.index(name) for name in ocp.free_parameters]
    scale = np.where(ocp.p[rows] != 0.0, np.abs(ocp.p[rows]), 1.0)
    numbers = (lower, upper, ocp.p[rows], scale)
    free = builder.variable(FREE, At(), tuple(ocp.free_parameters), *numbers, role=Role.FREE_PARAMETER)
    p = ca.SX(p)
    for row, symbol in zip(rows, ca.vertsplit(free), strict=True):
        p[row] = symbol
    return p


def _horizon(builder: ProgramBuilder, ocp: OCP) -> ca.SX:
    free = ocp.free_time
    if free is None:
        return builder.parameter("horizon", ("horizon",), ocp.horizon, role=Role.HORIZON)
    numbers = (free.lower, free.upper, free.initial, free.initial)
    return builder.variable("horizon", At(), ("horizon",), *numbers, role=Role.HORIZON)


def _state_bounds(ocp: OCP, frozen: Frozen | None) -> StateBounds:
    lower, upper = ocp.x_bounds
    start = np.clip(start_of(ocp), lower, upper)
    if frozen is not None:
        lower, upper, start = np.append(lower, -np.inf), np.append(upper, np.inf), np.append(start, 0.0)
    return StateBounds(lower=lower, upper=upper, initial=start)


def _initial_state(builder: ProgramBuilder, ocp: OCP, *, is_parameter: bool) -> ca.SX:
    s = ocp.system
    lower, upper = ocp.x_bounds
    value = start_of(ocp)
    if is_parameter:
        return builder.parameter("x0", s.state_names, value, role=Role.STATE)
    return builder.variable("x_initial", At(), s.state_names, lower, upper, value, s.x_nominal, role=Role.STATE)


def _controls(builder: ProgramBuilder, ocp: OCP, stages: int, *, is_parameter: bool) -> list[ca.SX]:
    s = ocp.system
    if is_parameter:
        return [builder.parameter("u", s.control_names, 0.0, role=Role.CONTROL)] * stages
    lower, upper = ocp.u_bounds
    value = np.clip(0.0, lower, upper)
    numbers = (lower, upper, value, s.u_nominal)
    return [builder.variable("u", At(k), s.control_names, *numbers, role=Role.CONTROL) for k in range(stages)]


def _add_clock(builder: ProgramBuilder, elements: Sequence[Element], horizon: ca.SX, stages: int) -> None:
    """At the end of every control stage the clock shows k T / N: controls are equidistant in physical time."""
    last = {e.at.stage: e for e in elements}
    for k, e in enumerate(last.values()):
        builder.constraint(CLOCK, At(k), e.x_right[-1] - (k + 1) * horizon / stages, role=Role.CLOCK)


def _add_costs_and_constraints(
    builder: ProgramBuilder, ocp: OCP, dcs: DCS, elements: Sequence[Element], symbols: _Symbols
) -> None:
    s, p, n_x, n_u = ocp.system, symbols.p, len(ocp.system.state_names), ocp.system.n_u
    start, end = symbols.x_initial[:n_x], elements[-1].x_right[:n_x]
    time = ca.SX.sym("T") if ocp.free_time is None else ocp.free_time.symbol
    at_end = [s.x, s.x_initial, s.p, time], (end, start, p, symbols.horizon)
    builder.objective += ca.Function("terminal_cost", at_end[0], [ocp.terminal_cost])(*at_end[1])
    for c in (constraint.without_roots(s.u) for constraint in ocp.path_constraints):
        function = ca.Function("path", [s.x, dcs.z, s.u, s.p], [c.expression])
        for at, x, e in place_constraints(elements, c.at):
            z = ca.SX(dcs.z.numel(), 1) if at.rk is None else e.z_stages[at.rk]
            u = symbols.controls[e.at.stage or 0][:n_u]
            _constrain(builder, c, at, function(x[:n_x], z, u, p))
    for c in ocp.initial_constraints:
        function = ca.Function("initial", [s.x, s.p], [c.expression])
        _constrain(builder, c, At(0), function(start, p))
    for c in ocp.terminal_constraints:
        function = ca.Function("terminal", at_end[0], [c.expression])
        _constrain(builder, c, At(), function(*at_end[1]))


def _constrain(builder: ProgramBuilder, c: Constraint, at: At, value: ca.SX) -> None:
    labels = indexed(str(c.name), value.numel())
    builder.constraint(block_name(c), at, value, labels, c.lower, c.upper, role=Role.CONSTRAINT)
