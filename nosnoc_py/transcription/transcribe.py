"""The way from an OCP and a method to their finite elements, as an MPCC.

Four steps: (1) the method reformulates the system as a dynamic complementarity system (DCS): contacts by FESD-J,
switches by Filippov's convexification (Stewart or Heaviside steps), or both after time-freezing; (2) the grid divides
the horizon into control stages, and these into elements whose lengths are unknown where switches are detected; (3)
`FiniteElements` writes Runge-Kutta equations, cross complementarities and step equilibration; (4) costs and constraints
of the user are evaluated at the nodes they ask for. FESD: Nurkanovic, Sperl, Albrecht, Diehl (Numer. Math. 2024).

A simulation step is the same program with x0, u and the length as parameters, so that one transcription serves all
steps. Invariant: nothing here has numbers of a particular solve; everything that `Transcription.parameters` may change
is a symbol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.declared import changed
from nosnoc_py.discretization.finite_elements import Element, FiniteElements, StateBounds, place_constraints
from nosnoc_py.discretization.grid import STAGE_LENGTH, Grid
from nosnoc_py.discretization.options import FINITE_ELEMENTS, FiniteElementMethod, TimeFreezing
from nosnoc_py.discretization.readout import Reader
from nosnoc_py.discretization.step_equilibration import step_bounds
from nosnoc_py.errors import OptionError, check_type
from nosnoc_py.mpcc.layout import At
from nosnoc_py.mpcc.program import ProgramBuilder
from nosnoc_py.ocp import OCP, Constraint
from nosnoc_py.options import fitting
from nosnoc_py.reformulation.dcs import DCS, indexed, rows_of
from nosnoc_py.reformulation.kinks import kinks_of, smooth_constraints
from nosnoc_py.reformulation.numerical_time import SPEED
from nosnoc_py.reformulation.time_freezing import CLOCK, freeze
from nosnoc_py.roles import Role
from nosnoc_py.tableaus import tableau
from nosnoc_py.transcription.guesses import FREE, start_of
from nosnoc_py.transcription.numerical_time import FrozenTranscription
from nosnoc_py.transcription.reformulate import dcs_of
from nosnoc_py.transcription.transcription import Transcription, block_name

# Default bound on the relative change of lengths of elements within a stage. An optimum with lengths near zero has poor
# accuracy; a simulation has to follow an event wherever in its step it happens.
OCP_GAMMA = 0.9
SIMULATION_GAMMA = 0.9999
# How far, in control stages, a chosen time may be from the end of one: rounding of times that the user computes.
OFF_GRID = 1e-6


def transcribe(ocp: OCP, method: FiniteElementMethod | None = None) -> Transcription:
    """Discretise an OCP: reformulate its system as a DCS, lay finite elements over the horizon, collect the MPCC.

    The default is the first of FESDJ(), FESD() and TimeFreezing() that takes the system.

    Raises
    ------
    OptionError
        If the method does not fit the system.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> x, u = ca.SX.sym("x"), ca.SX.sym("u")
    >>> ocp = ns.OCP(ns.ODE(x=x, u=u, flow=u), horizon=1.0, x0=[0.0], stage_cost=u**2, terminal_cost=(x - 1) ** 2)
    >>> problem = ns.transcribe(ocp, ns.FESD(control_stages=3))
    >>> problem.solve().u.ravel().round(4)
    array([0.5, 0.5, 0.5])
    """
    check_type(ocp, OCP, "ocp")
    method = fitting(ocp.system, method, FINITE_ELEMENTS, FiniteElementMethod)
    return _transcribe(ocp, method, OCP_GAMMA, simulation=False)


def transcribe_step(system: Any, method: FiniteElementMethod) -> Transcription:
    """Discretise one simulation step: x0, p, u and the length are parameters, nothing is optimised."""
    method = fitting(system, method, FINITE_ELEMENTS, FiniteElementMethod)
    if isinstance(method.elements.finite_elements, tuple):
        raise OptionError("finite_elements: a simulation step takes one number, given a tuple.")
    # Every step brings its own p; zeros hold the place where the system has no defaults.
    p = np.zeros(system.n_p) if system.p_default is None else None
    ocp = changed(OCP(system, horizon=1.0, p=p), initial_constraints=())  # a step begins at any time
    return _transcribe(ocp, method.one_stage(), SIMULATION_GAMMA, simulation=True)


def _transcribe(ocp: OCP, method: FiniteElementMethod, gamma: float, *, simulation: bool) -> Transcription:
    """Discretise an OCP, with controls as variables, or a simulation step, with controls and x0 as parameters."""
    options = method.elements
    frozen = freeze(ocp.system, method) if isinstance(method, TimeFreezing) else None
    # The DCS has the running cost, which is integrated with the states by the same scheme.
    dcs = dcs_of(ocp, method, frozen, simulation=simulation)
    scheme = tableau(options.scheme, options.rk_stages)
    builder = ProgramBuilder()
    symbols = _Symbols.make(builder, ocp, options.control_stages, simulation=simulation)
    # Symbols come first: the order in which a builder is asked is the order of rows in w and p.
    grid = Grid.of(symbols.horizon, options.elements_per_stage, _stage_lengths(builder, method, gamma))
    if isinstance(method, TimeFreezing):
        symbols = symbols.with_clock(builder, method.speed_of_time)
        gamma = 1.0  # a step of at most two nominal lengths may be shorter than a jump
    engine = FiniteElements(
        builder=builder,
        dcs=dcs,
        tableau=scheme,
        options=options,
        bounds=_state_bounds(ocp, dcs.x.numel()),
        p=symbols.p,
        default_gamma=gamma,
    )
    elements = engine.write(grid, symbols.controls, symbols.x_initial)
    if frozen is not None:
        _add_clock(builder, elements, symbols.horizon, options.control_stages)
    slacks = [*_slacks(dcs, elements, symbols), _add_costs_and_constraints(builder, ocp, dcs, elements, symbols)]
    mpcc = builder.build(
        aggregation=options.cross_complementarity, enforce_switched=options.step_equilibration == "direct"
    )
    fields: dict[str, Any] = {"ocp": ocp, "method": method, "dcs": dcs, "grid": grid, "tableau": scheme, "mpcc": mpcc}
    free, values = (ca.vertcat(ca.SX(0, 1), *part) for part in zip(*slacks, strict=True))
    if free.numel():
        fields["with_kinks"] = ca.Function("with_kinks", [mpcc.w, mpcc.p], [ca.substitute(mpcc.w, free, values)])
    fields |= {"elements": elements, "reader": Reader(dcs, elements, mpcc.w, mpcc.p, mpcc.G, mpcc.H)}
    return Transcription(**fields) if frozen is None else FrozenTranscription(**fields, frozen=frozen)


def _slacks(dcs: DCS, elements: Sequence[Element], symbols: _Symbols) -> list[tuple[ca.SX, ca.SX]]:
    """Return the slacks of kinks at the stages with their values, as expressions of the program."""
    result = []
    for v in (variable for variable in dcs.variables if variable.value is not None):
        values = ca.Function("values", [dcs.x, dcs.z, dcs.u, dcs.p], [v.value])
        for e in elements:
            u = symbols.controls[e.at.stage or 0]
            for x, z in zip(e.x_stages, e.z_stages, strict=True):
                result.append((z[rows_of(dcs.variables)[v.name]], values(x, z, u, symbols.p)))
    return result


def _stage_lengths(builder: ProgramBuilder, method: FiniteElementMethod, gamma: float) -> list[ca.SX]:
    """Return lengths of the control stages relative to equal ones: ones, or unknowns that add up to their number."""
    options = method.elements
    count = options.control_stages
    if options.equidistant_control_grid:
        return [ca.SX(1)] * count
    if isinstance(method, TimeFreezing):
        raise OptionError(
            "equidistant_control_grid: time-freezing ties the control stages to the physical clock; leave it True."
        )
    # A stage may be as long, relative to an equal one, as an element may be in its stage.
    lower, upper = step_bounds(options.replace(switch_detection=True), gamma)
    name = (STAGE_LENGTH,)
    role = Role.STAGE_LENGTH
    shares = [builder.variable(STAGE_LENGTH, At(k), name, lower, upper, 1.0, role=role) for k in range(count)]
    labels = ("sum of the control stages' lengths",)
    builder.constraint("horizon", At(), sum(shares, ca.SX(0)) - count, labels, role=Role.SUM_OF_STAGES)
    return shares


@dataclass(frozen=True, eq=False, kw_only=True)
class _Symbols:
    """Symbols of the elements and of the user's functions: variables or parameters of the MPCC."""

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
        """Return the symbols with a clock that starts at zero and the speed of time as an additional control."""
        start = float(np.clip(1.0, *bounds))
        numbers, role = (*bounds, start), Role.SPEED_OF_TIME
        # One per stage, as the controls: constant speeds keep the controls equidistant in physical time.
        speeds = [builder.variable(SPEED, At(k), (SPEED,), *numbers, role=role) for k in range(len(self.controls))]
        controls = [ca.vertcat(u, speed) for u, speed in zip(self.controls, speeds, strict=True)]
        return replace(self, x_initial=ca.vertcat(self.x_initial, 0), controls=controls)


def _parameters(builder: ProgramBuilder, ocp: OCP) -> ca.SX:
    """Return p: parameters of the program, and variables in the rows that are optimised."""
    names = ocp.system.parameter_names
    p = builder.parameter("p", names, ocp.p, role=Role.PARAMETER)
    if not ocp.free_parameters:
        return p
    lower, upper = np.array(list(ocp.free_parameters.values())).T
    rows = [names.index(name) for name in ocp.free_parameters]
    # A start value is the best known size of a parameter; one that starts at zero has none.
    scale = np.where(ocp.p[rows] != 0.0, np.abs(ocp.p[rows]), 1.0)
    numbers = (lower, upper, ocp.p[rows], scale)
    free = builder.variable(FREE, At(), tuple(ocp.free_parameters), *numbers, role=Role.FREE_PARAMETER)
    # A copy: the symbols of the builder's parameters must not be overwritten.
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


def _state_bounds(ocp: OCP, n_x: int) -> StateBounds:
    """Return bounds and initial values of the states, those of the user; a clock has no bounds and starts at zero."""
    lower, upper = ocp.x_bounds
    start, more = np.clip(start_of(ocp), lower, upper), np.full(n_x - len(lower), np.inf)
    lower, upper, start = np.append(lower, -more), np.append(upper, more), np.append(start, np.zeros(more.size))
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
    """Impose that the clock shows k T / N at the end of stage k: controls are equidistant in physical time."""
    # The last element of each stage wins.
    last = {e.at.stage: e for e in elements}
    for k, e in enumerate(last.values()):
        builder.constraint(CLOCK, At(k), e.x_right[-1] - (k + 1) * horizon / stages, role=Role.CLOCK)


def _add_costs_and_constraints(
    builder: ProgramBuilder, ocp: OCP, dcs: DCS, elements: Sequence[Element], symbols: _Symbols
) -> tuple[ca.SX, ca.SX]:
    """Add the terminal cost and all constraints; return the slacks of kinks at the end with their values."""
    s, p, n_x, n_u = ocp.system, symbols.p, len(ocp.system.state_names), ocp.system.n_u
    start, end = symbols.x_initial[:n_x], elements[-1].x_right[:n_x]
    # Without a free time no function depends on this symbol; it fills the argument.
    time = ca.SX.sym("T") if ocp.free_time is None else ocp.free_time.symbol
    at_end = [s.x, s.x_initial, s.p, time], (end, start, p, symbols.horizon)
    kinks = kinks_of(ocp, "terminal_cost")
    labels, numbers = indexed("slack of the terminal cost", kinks.size), (kinks.lower, np.inf, 0.0, kinks.sizes)
    role = Role.EPIGRAPH
    slacks = builder.variable("kinks at the end", At(), labels, *numbers, role=role) if kinks.size else ca.SX(0, 1)
    cost, rows = ca.Function("end", [*at_end[0], kinks.slacks], [kinks.cost, kinks.rows])(*at_end[1], slacks)
    builder.objective += cost
    if kinks.size:
        names = indexed("kinks of the terminal cost", rows.numel())
        builder.constraint("kinks of the terminal cost", At(), rows, names, 0.0, np.inf, role=role)
    for c in smooth_constraints(ocp, "path_constraints"):
        function = ca.Function("path", [s.x, dcs.z, s.u, s.p], [c.expression])
        for at, x, e in place_constraints(elements, c.at):
            z = ca.SX(dcs.z.numel(), 1) if at.rk is None else e.z_stages[at.rk]
            u = symbols.controls[e.at.stage or 0][:n_u]
            _constrain(builder, c, at, function(x[:n_x], z, u, p))
    _add_points(builder, ocp, elements, symbols)
    for c in ocp.initial_constraints:
        function = ca.Function("initial", [s.x, s.p], [c.expression])
        _constrain(builder, c, At(0), function(start, p))
    for c in smooth_constraints(ocp, "terminal_constraints"):
        function = ca.Function("terminal", at_end[0], [c.expression])
        _constrain(builder, c, At(), function(*at_end[1]))
    return slacks, ca.Function("values", at_end[0], [kinks.values])(*at_end[1])


def _add_points(builder: ProgramBuilder, ocp: OCP, elements: Sequence[Element], symbols: _Symbols) -> None:
    """Add costs and constraints at chosen times, which are ends of control stages: other nodes move with switches."""
    s, stages = ocp.system, len(symbols.controls)
    # State at every end of a control stage, the start first.
    nodes = [symbols.x_initial, *{e.at.stage: e.x_right for e in elements}.values()]
    for term in ocp.point_terms:
        places = term.times * stages / ocp.horizon
        away = np.abs(places - np.round(places))
        if away.max() > OFF_GRID:
            raise OptionError(
                f"control_stages: the cost or constraint at t = {term.times[away.argmax()]:g} s is not at the end of "
                f"one of {stages} equal control stages; choose their number so that all times are, or solve without "
                "a method, ns.solve(ocp)."
            )
        cost = ca.Function("cost", [s.x, s.p, term.numbers], [term.cost])
        for place, values in zip(np.round(places).astype(int), term.values, strict=True):
            x = nodes[place][: len(s.state_names)]
            builder.objective += cost(x, symbols.p, values)
            if term.constraint is not None:
                rows = ca.Function("rows", [s.x, s.p], [term.constraint.expression])(x, symbols.p)
                # At(0, 0) marks the start; the end of stage k - 1 is the start of stage k.
                _constrain(builder, term.constraint, At(int(place) - 1) if place else At(0, 0), rows)


def _constrain(builder: ProgramBuilder, c: Constraint, at: At, value: ca.SX) -> None:
    labels = indexed(str(c.name), value.numel())
    builder.constraint(block_name(c), at, value, labels, c.lower, c.upper, role=Role.CONSTRAINT)
