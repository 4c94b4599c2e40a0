"""OCP + method -> Transcription: every intermediate as a value, and the way back to a `Solution`."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.discretization.butcher import ButcherTableau, tableau
from nosnoc_py.discretization.finite_elements import Element, FiniteElements, StateBounds, place_constraints
from nosnoc_py.discretization.grid import Grid
from nosnoc_py.discretization.guess import Places, fill, trajectory_series
from nosnoc_py.discretization.options import FESD, FESDJ
from nosnoc_py.discretization.readout import Reader, Readout, trajectory_fields
from nosnoc_py.errors import OptionError, TranscriptionError, check_type
from nosnoc_py.mpcc.auto import Auto
from nosnoc_py.mpcc.layout import At
from nosnoc_py.mpcc.program import MPCC, ProgramBuilder
from nosnoc_py.mpcc.solve import biactive_pairs
from nosnoc_py.mpcc.strategy import Callback, Solvers, SolverState, Strategy, final_certificate
from nosnoc_py.ocp import OCP, Constraint
from nosnoc_py.reformulation.contact import contact_dcs, is_curved
from nosnoc_py.reformulation.dcs import DCS
from nosnoc_py.reformulation.filippov import filippov_dcs
from nosnoc_py.solution import Series, Solution, Trajectory
from nosnoc_py.solution.records import StepRecord
from nosnoc_py.status import Stationarity, Status
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import control_guess
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.symbols import numbers

OCP_GAMMA = 0.9
SIMULATION_GAMMA = 0.9999
REST_VELOCITY = 1e-3


@dataclass(frozen=True, eq=False, kw_only=True)
class Transcription:
    """A discretised optimal control problem.

    Attributes
    ----------
    ocp : OCP
    method : FESD or FESDJ
    dcs : DCS
    grid : Grid
    tableau : ButcherTableau
    mpcc : MPCC
        Its parameters are x0 (when fixed), p, horizon and, in a simulation, u: re-solving needs no new transcription.
    elements : tuple of Element
    """

    ocp: OCP
    method: FESD
    dcs: DCS
    grid: Grid
    tableau: ButcherTableau
    mpcc: MPCC
    elements: tuple[Element, ...]
    reader: Reader

    @property
    def layout_key(self) -> str:
        """Fingerprint of the variables: iterates may be passed between transcriptions with the same key."""
        text = ";".join(f"{b.name}{b.at}{b.components}" for b in self.mpcc.variables.blocks())
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def guess(self) -> np.ndarray:
        """The default initial guess: every state at x0, everything else at rest or zero (the paper's cold start)."""
        return self.initial_guess(None)

    def parameters(self, x0: Any = None, p: Any = None, horizon: float | None = None, u: Any = None) -> np.ndarray:
        """Parameter vector of the MPCC; what is not given is the OCP's own.

        Raises
        ------
        ModelError, TranscriptionError
            For wrong lengths, NaN, an x0 that penetrates, or an x0 where the OCP leaves it free.
        """
        ocp, layout = self.ocp, self.mpcc.parameters
        values = self.mpcc.p0.copy()
        if p is not None:
            values[layout["p"]] = numbers(p, "p", ocp.system.n_p)
        if x0 is not None:
            if ocp.x0 is None:
                raise TranscriptionError("x0 was given, but the OCP leaves the initial state free; fix it in the OCP.")
            values[layout["x0"]] = ocp.system.check_state(x0, values[layout["p"]])
        if horizon is not None:
            if not 0 < float(horizon) < np.inf:
                raise TranscriptionError(f"horizon: expected a positive finite number, given {horizon!r}.")
            values[layout["horizon"]] = float(horizon)
        if u is not None:
            values[layout["u"]] = numbers(u, "u", ocp.system.n_u)
        return values

    def initial_guess(self, guess: Any = None, parameters: np.ndarray | None = None) -> np.ndarray:
        """Return w from a guess: None, a control (constant, function, rows), a Trajectory or a Solution."""
        values = self.mpcc.p0 if parameters is None else parameters
        horizon = float(values[self.mpcc.parameters["horizon"]][0])
        p = values[self.mpcc.parameters["p"]]
        places = Places.equal(self.grid, self.tableau.c, horizon)
        if isinstance(guess, Solution) and guess.layout_key == self.layout_key:
            return np.array(guess.w)
        if isinstance(guess, Trajectory):
            return self._from_trajectory(guess, places, p)
        start = self._start_state(values)
        control = None if guess is None else control_guess(guess, self.ocp.system.n_u, horizon)
        return fill(self.mpcc, self.dcs, places, p, lambda t, side: start, control)

    def _start_state(self, values: np.ndarray) -> np.ndarray:
        if "x0" in self.mpcc.parameters.names:
            return np.asarray(values[self.mpcc.parameters["x0"]])
        lower, upper = self.ocp.x_bounds
        return np.clip(np.zeros(lower.size), lower, upper)

    def _from_trajectory(self, guess: Trajectory, places: Places, p: np.ndarray) -> np.ndarray:
        if guess.state_names != self.dcs.x_names:
            raise TranscriptionError(
                f"guess: expected the states {', '.join(self.dcs.x_names)}, given {', '.join(guess.state_names)}."
            )
        if not np.isfinite(guess.x).all():
            raise TranscriptionError("guess: the trajectory contains NaN or infinity.")
        end = guess.t0 + guess.duration

        def clip(t: float) -> float:
            return min(max(t + guess.t0, guess.t0), end)

        look = trajectory_series(guess)
        impacts = [replace(event, time=event.time - guess.t0) for event in guess.impacts]
        has_control = guess.control_names == self.dcs.u_names and len(guess.u) > 0
        return fill(
            self.mpcc,
            self.dcs,
            places.through([event.time for event in impacts]),
            p,
            lambda t, side: guess(clip(t), side),  # type: ignore[arg-type]
            (lambda t: guess.control(clip(t))) if has_control else None,
            lambda name, t: look(name, clip(t)),
            impacts,
        )

    @cached_property
    def solvers(self) -> Solvers:
        """The built functions and solvers, each made on first use and kept for all strategies and re-solves."""
        return Solvers(self.mpcc)

    def solve(
        self,
        solver: Strategy | None = None,
        *,
        x0: Any = None,
        p: Any = None,
        horizon: float | None = None,
        guess: Any = None,
        callback: Callback | None = None,
        time_limit: float | None = None,
    ) -> Solution:
        """Solve, or solve again with other x0, p, horizon, without a new transcription."""
        solver = Auto() if solver is None else solver
        started = time.monotonic()
        values = self.parameters(x0, p, horizon)
        w = self.initial_guess(guess, values)
        limit = np.inf if time_limit is None else time_limit
        own = isinstance(guess, Solution) and guess.layout_key == self.layout_key
        state = self._run(solver, w, values, started + limit, callback, warm=own)
        return self.solution(state, solver=repr(solver), wall_seconds=time.monotonic() - started)

    def _run(
        self, solver: Strategy, w: np.ndarray, values: np.ndarray, deadline: float, callback: Any, *, warm: bool
    ) -> SolverState:
        """Run the strategy; an iterate of this transcription is first tried with a small sigma, which keeps it."""
        records: tuple[StepRecord, ...] = ()
        if warm:
            first, sigma = solver.warm(self.mpcc)
            state = self._once(first, w, values, deadline, callback, sigma)
            if state.status not in (Status.INFEASIBLE, Status.NOT_COMPLEMENTARY, Status.ITERATION_LIMIT):
                return state
            records = state.records
        state = self._once(solver, w, values, deadline, callback, None)
        later = tuple(replace(record, step=record.step + len(records)) for record in state.records)
        return replace(state, records=(*records, *later))

    def _once(
        self, solver: Strategy, w: np.ndarray, values: np.ndarray, deadline: float, callback: Any, sigma: float | None
    ) -> SolverState:
        left = None if np.isinf(deadline) else max(0.0, deadline - time.monotonic())
        found: SolverState = solver.run(
            self.mpcc, w, values, sigma=sigma, callback=callback, time_limit=left, solvers=self.solvers
        )
        return found

    def read(self, w: np.ndarray, values: np.ndarray) -> Readout:
        """Numbers of all finite elements at an iterate."""
        return self.reader(w, values)

    def controls(self, w: np.ndarray) -> np.ndarray:
        """Controls (N, n_u) of an iterate."""
        rows = [w[b.rows] for b in self.mpcc.variables.blocks("u")] if "u" in self.mpcc.variables.names else []
        return np.array(rows).reshape(self.grid.control_stages, -1)

    def solution(self, state: SolverState, *, solver: str = "", wall_seconds: float | None = None) -> Solution:
        """Return the solution that a state of a strategy stands for, whatever its status."""
        layout = self.mpcc.parameters
        horizon = float(state.p[layout["horizon"]][0])
        readout = self.read(state.w, state.p)
        u_grid = np.linspace(0.0, horizon, self.grid.control_stages + 1)
        evaluator = state.solvers.evaluator
        status = state.status or Status.STOPPED
        certificate = final_certificate(state)
        seconds = sum(record.wall_seconds for record in state.records)
        p = state.p[layout["p"]]
        fields = trajectory_fields(self.dcs, self.tableau, readout, p, self.controls(state.w), u_grid)
        return Solution(
            **fields,
            message=self._held(
                state.w, [event.time for event in fields["events"] if event.kind == "impact"], readout.h
            ),
            parameters=dict(zip(self.dcs.p_names, state.p[layout["p"]], strict=True)),
            status=status,
            objective=state.values.objective,
            penalty=state.values.penalty,
            stationarity=Stationarity.UNKNOWN if certificate is None else certificate.stationarity,
            biactive=biactive_pairs(self.mpcc, state.values, certificate),
            complementarity=state.complementarity,
            complementarity_min=state.complementarity_min,
            infeasibility=state.infeasibility,
            iterations=sum(record.iterations for record in state.records),
            wall_seconds=seconds if wall_seconds is None else wall_seconds,
            log=state.records,
            multipliers=self._multipliers(state, horizon, readout.h),
            worst=evaluator.worst(state.values),
            w=state.w,
            layout_key=self.layout_key,
            x0=readout.x_minus[0],
            p=state.p[layout["p"]],
            horizon=horizon,
            method=repr(self.method),
            solver=solver,
        )

    def _held(self, w: np.ndarray, impacts: Sequence[float], h: np.ndarray) -> str:
        """Say which impacts the grid holds in place: such an optimum may be one of the grid and not of the problem."""
        steps = np.array([w[block.start] for block in self.mpcc.variables.blocks("s")])
        rows = [block.start for block in self.mpcc.variables.blocks("s")]
        bound = (steps < self.mpcc.lbw[rows] + 1e-6) | (steps > self.mpcc.ubw[rows] - 1e-6)
        starts = np.concatenate([[0.0], np.cumsum(h)[:-1]])
        first = np.array([e.at.element == 0 for e in self.elements])
        nodes = [int(np.argmin(np.abs(starts - time))) for time in impacts]
        held = [f"{starts[n]:.6g}" for n in nodes if n > 0 and (first[n] or bound[n] or bound[n - 1])]
        if not held or not self.method.switch_detection:
            return ""
        return (
            f"the grid holds the impacts at t = {', '.join(held)} (on the control grid, or a step beside them at its "
            "bound): try another number of control stages, a larger gamma_h, or a guess from another grid"
        )

    def _multipliers(self, state: SolverState, horizon: float, h: np.ndarray) -> dict[str, Series]:
        if state.multipliers is None:
            return {}
        ocp = self.ocp
        constraints = (*ocp.path_constraints, *ocp.initial_constraints, *ocp.terminal_constraints)
        places = Places.of_lengths(self.grid, self.tableau.c, h)
        found: dict[str, Series] = {}
        for constraint in constraints:
            blocks = list(self.mpcc.constraints.blocks(_block_name(constraint)))
            ends = ["x_right" if b.at.rk is None else "x" for b in blocks]
            times = np.array(
                [horizon if b.at == At() else places.time(n, b.at) for n, b in zip(ends, blocks, strict=True)]
            )
            for i, component in enumerate(blocks[0].components):
                found[component] = Series(times, np.array([state.multipliers.g[b.start + i] for b in blocks]))
        return found

    def __repr__(self) -> str:
        parts = (repr(part).replace("\n", "\n  ") for part in (self.dcs, self.grid, self.mpcc))
        return "Transcription\n  " + "\n  ".join(parts)


def transcribe(ocp: OCP, method: FESD) -> Transcription:
    """Discretise an OCP: reformulate its system as a DCS, lay finite elements over the horizon, collect the MPCC.

    Raises
    ------
    OptionError
        If the method does not fit the system.
    """
    check_type(ocp, OCP, "ocp")
    check_type(method, FESD, "method")
    return _transcribe(ocp, method, OCP_GAMMA, simulation=False)


def transcribe_step(system: Any, method: FESD) -> Transcription:
    """The discretisation of one simulation step: x0, p, u and the length are parameters, nothing is optimised."""
    check_type(system, Described, "system")
    check_type(method, FESD, "method")
    if isinstance(method.finite_elements, tuple):
        raise OptionError("finite_elements: a simulation step takes one number, given a tuple.")
    one = method.replace(control_stages=1, finite_elements=method.finite_elements)
    return _transcribe(OCP(system, horizon=1.0), one, SIMULATION_GAMMA, simulation=True)


def _transcribe(ocp: OCP, method: FESD, gamma: float, *, simulation: bool) -> Transcription:
    """An OCP has controls as variables; a simulation step has them, and x0, as parameters."""
    system = ocp.system
    dcs = dcs_of(system, method, ocp.stage_cost, simulation=simulation)
    scheme = tableau(method.scheme, method.rk_stages)
    builder = ProgramBuilder()
    p = builder.parameter("p", system.parameter_names, ocp.p)
    horizon = builder.parameter("horizon", ("horizon",), ocp.horizon)
    x_initial = _initial_state(builder, ocp, is_parameter=simulation or ocp.x0 is not None)
    controls = _controls(builder, ocp, method.control_stages, is_parameter=simulation)
    grid = Grid.equal(horizon, method.elements_per_stage, method.control_stages)
    lower, upper = ocp.x_bounds
    start = np.clip(np.zeros(lower.size) if ocp.x0 is None else ocp.x0, lower, upper)
    engine = FiniteElements(
        builder=builder,
        dcs=dcs,
        tableau=scheme,
        options=method,
        bounds=StateBounds(lower=lower, upper=upper, initial=start),
        p=p,
        default_gamma=gamma,
    )
    elements = engine.write(grid, controls, x_initial)
    _add_costs_and_constraints(builder, ocp, elements, controls, x_initial, p)
    mpcc = builder.build(
        aggregation=method.cross_complementarity, enforce_switched=method.step_equilibration == "direct"
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
    )


def dcs_of(system: Any, method: FESD, running_cost: Any, *, simulation: bool) -> DCS:
    """The DCS that a method makes of a system.

    Raises
    ------
    OptionError
        If the method is for another kind of system: the message says which one fits.
    """
    if isinstance(system, CLS) != isinstance(method, FESDJ):
        fits = "FESDJ" if isinstance(system, CLS) else "FESD"
        raise OptionError(
            f"method: {type(method).__name__} does not fit a {type(system).__name__}; use ns.{fits}(...)."
        )
    if not isinstance(method, FESDJ):
        return filippov_dcs(system, running_cost=running_cost, dcs_mode=method.dcs_mode)
    return contact_dcs(
        system,
        running_cost=running_cost,
        impulse_form=method.impulse_form,
        friction_cone=method.friction_cone,
        polyhedral_directions=method.polyhedral_directions,
        gap_rate=gap_rate_of(method, system, simulation=simulation),
        isolate_forces=method.isolate_forces,
        rest_velocity=rest_velocity_of(method, simulation=simulation),
        lift_acceleration=method.lift_acceleration,
        epsilon_c=method.epsilon_c,
    )


def gap_rate_of(method: FESDJ, system: CLS, *, simulation: bool) -> bool:
    """The option `gap_rate` with its default."""
    return (simulation and is_curved(system)) if method.gap_rate is None else method.gap_rate


def rest_velocity_of(method: FESDJ, *, simulation: bool) -> float:
    """The option `rest_velocity` with its default [m/s]."""
    default = REST_VELOCITY if simulation else 0.0
    return default if method.rest_velocity is None else method.rest_velocity


def _initial_state(builder: ProgramBuilder, ocp: OCP, *, is_parameter: bool) -> ca.SX:
    s = ocp.system
    lower, upper = ocp.x_bounds
    value = np.clip(np.zeros(lower.size), lower, upper) if ocp.x0 is None else ocp.x0
    if is_parameter:
        return builder.parameter("x0", s.state_names, value)
    return builder.variable("x_initial", At(), s.state_names, lower, upper, value, s.x_nominal)


def _controls(builder: ProgramBuilder, ocp: OCP, stages: int, *, is_parameter: bool) -> list[ca.SX]:
    s = ocp.system
    if is_parameter:
        return [builder.parameter("u", s.control_names, 0.0)] * stages
    lower, upper = ocp.u_bounds
    value = np.clip(0.0, lower, upper)
    return [builder.variable("u", At(k), s.control_names, lower, upper, value, s.u_nominal) for k in range(stages)]


def _add_costs_and_constraints(
    builder: ProgramBuilder,
    ocp: OCP,
    elements: Sequence[Element],
    controls: Sequence[ca.SX],
    x_initial: ca.SX,
    p: ca.SX,
) -> None:
    s = ocp.system
    end = elements[-1].x_right
    at_end = ca.Function("terminal_cost", [s.x, s.x_initial, s.p], [ocp.terminal_cost])
    builder.objective += at_end(end, x_initial, p)
    for c in ocp.path_constraints:
        function = ca.Function("path", [s.x, s.u, s.p], [c.expression])
        for at, state, e in place_constraints(elements, c.at):
            _constrain(builder, c, at, function(state(e), controls[e.at.stage or 0], p))
    for c in ocp.initial_constraints:
        function = ca.Function("initial", [s.x, s.p], [c.expression])
        _constrain(builder, c, At(0), function(x_initial, p))
    for c in ocp.terminal_constraints:
        function = ca.Function("terminal", [s.x, s.x_initial, s.p], [c.expression])
        _constrain(builder, c, At(), function(end, x_initial, p))


def _constrain(builder: ProgramBuilder, c: Constraint, at: At, value: ca.SX) -> None:
    labels = [str(c.name)] if value.numel() == 1 else [f"{c.name}[{i}]" for i in range(value.numel())]
    builder.constraint(_block_name(c), at, value, labels, c.lower, c.upper)


def _block_name(c: Constraint) -> str:
    """The user's constraints have blocks of their own, whatever they are called."""
    return f"constraint {c.name}"
