"""The main functions: transcribe, solve, simulate, certify.

They choose a method that fits the system (`fitting`), run it, and attach what a result needs to go on: its problem
(`SolvedProblem`), its certificate, its sequence of modes. The tuples `SOLVING` and `SIMULATING` list the methods; the
first one that takes the system is its default. The numerical work is done in the packages below.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial, wraps
from math import inf
from numbers import Real
from time import monotonic
from typing import Any, Literal

from nosnoc_py.annotations import Control, Guess, Numbers, State
from nosnoc_py.arguments import named_arguments
from nosnoc_py.declared import changed
from nosnoc_py.discretization.options import FINITE_ELEMENTS, FiniteElementMethod
from nosnoc_py.errors import OptionError, check_run, check_type
from nosnoc_py.methods.event_selected.options import EventSelected
from nosnoc_py.methods.indirect.autonomous_switching import AutonomousSwitching
from nosnoc_py.methods.indirect.minimum_principle import MinimumPrinciple
from nosnoc_py.methods.shooting.options import DirectShooting
from nosnoc_py.methods.variational.options import LieGroupVariational
from nosnoc_py.mpcc.active_set import ActiveSet
from nosnoc_py.mpcc.auto import Auto
from nosnoc_py.mpcc.homotopy import Homotopy
from nosnoc_py.mpcc.strategy import Callback, Strategy
from nosnoc_py.mpcc.threads import one_numpy_thread
from nosnoc_py.notices import reported
from nosnoc_py.ocp import OCP
from nosnoc_py.options import CompleteMethod, Options, fitting
from nosnoc_py.reformulation.kinks import warn_of_kinks
from nosnoc_py.search import ElementSearch, Search
from nosnoc_py.sequences.multi_phase import MultiPhase
from nosnoc_py.sequences.polish import polish as polished
from nosnoc_py.sequences.refinement import sequence_of
from nosnoc_py.simulation import many_contacts
from nosnoc_py.simulation.certification.attached import with_certificate
from nosnoc_py.simulation.certification.certify import certify
from nosnoc_py.simulation.common import (
    SimulationMethod,
    SimulationTask,
    SteppedRun,
    StepState,
    deadline_of,
    steps_given,
)
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.simulation.fesd import FiniteElementRun
from nosnoc_py.simulation.newton.options import ActiveSetNewton
from nosnoc_py.simulation.time_stepping.options import TimeStepping
from nosnoc_py.soft_constraints import guess_with_slacks
from nosnoc_py.solution import Solution, SolutionSensitivity, Trajectory
from nosnoc_py.solution.sequence import Sequence
from nosnoc_py.status import Status
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.evaluated import EvaluatesProblem, SimulatedSystem
from nosnoc_py.systems.named_guesses import guess_by_name
from nosnoc_py.transcription import Transcription
from nosnoc_py.transcription import transcribe as transcribed
from nosnoc_py.uncertain import Measure, Uncertain

__all__ = ["Simulator", "certify", "simulate", "solve", "transcribe"]

# Methods that solve and methods that simulate; the first that takes the system is its default.
SOLVING: tuple[Callable[..., Options], ...] = (
    Search,
    *FINITE_ELEMENTS,
    ElementSearch,
    MultiPhase,
    MinimumPrinciple,
    AutonomousSwitching,
    DirectShooting,
)
SIMULATING = (EventDriven, *FINITE_ELEMENTS, TimeStepping, EventSelected, LieGroupVariational)
STEPPING = (EventDriven, *FINITE_ELEMENTS, TimeStepping)
METHODS: tuple[Callable[..., Options], ...] = tuple(dict.fromkeys((*SOLVING, *SIMULATING)))
SOLVERS: tuple[type[Options], ...] = (Auto, ActiveSet, Homotopy, ActiveSetNewton)


@named_arguments
@reported
@one_numpy_thread
def solve(
    ocp: OCP,
    method: FiniteElementMethod | CompleteMethod | None = None,
    solver: Strategy | None = None,
    *,
    guess: Guess | None = None,
    callback: Callback | None = None,
    time_limit: float | None = None,
    effort: Literal["quick", "normal", "thorough"] | None = None,
    seed: int | None = None,
    progress: bool | None = None,
    workers: int | None = None,
    polish: bool = False,
    certify: bool = True,
    uncertain: Uncertain | None = None,
    measure: Measure | None = None,
    quantile: float | None = None,
) -> Solution:
    """Solve an optimal control problem.

    Parameters
    ----------
    ocp : OCP
    method : Search, FESD, FESDJ, TimeFreezing, MultiPhase, MinimumPrinciple, AutonomousSwitching, DirectShooting
        Default: `ns.Search()`, which generates starts, simulates them, optimises their mode sequences, certifies the
        results and ranks them by the objective of the simulated motion; `MultiPhase()` for a `HybridSystem`, with the
        sequence of the guess; `ElementSearch()` with complementarities of the user's own. With a `solver` `FESDJ()`
        for a `CLS`, else `FESD()`.
    solver : Auto, ActiveSet or Homotopy, optional
        Solver of the MPCC of finite elements; default `Auto()`. Other methods take none.
    guess : optional
        Initial guess: a control (a constant (n_u,), rows for equal intervals, or a function of time), a
        mapping with controls as "u" and states as "x" (a constant (n_x,), rows at equally spaced times from 0 to the
        horizon, or a function of time), names of states and controls instead, keyframes by their times ({0: {"height":
        1.0}, 0.4: {"height": 0.0}}), a `Sequence` of modes, a `Trajectory`, or a `Solution` of any grid and method.
        States that are not given stay at x0. `solution.shift()` is the guess for the next problem of a receding
        horizon. The search reads the contact sequence of states that are given, and simulates controls. Other methods
        without finite elements take the controls only; a `MultiPhase` with a sequence takes the states, too.
    callback : callable, optional
        Called with the solver's state after every step; returns `ns.Stop` to end the work.
    time_limit : float, optional
        Limit of the time by the clock [s]. The search ends by its counted work; this limit only cuts it.
    effort : {"quick", "normal", "thorough"}, optional
        Effort of the search; default "normal", about a minute for a problem of ten states. It is counted in evaluations
        and not timed, and ends earlier if different kinds of starts agree.
    seed : int, optional
        Seed of the search; default 0. The same seed gives the same candidates.
    progress : bool, optional
        False switches off the line of progress of the search, which is shown on standard error in a terminal or a
        notebook.
    workers : int, optional
        Number of processes (on Linux), each of which searches with a seed of its own; the best solution is returned.
    polish : bool
        Continue from the solution to the optimum of its mode sequence, on a grid that moves with the events, and return
        the better one (`nosnoc_py.polish`, `solution.polish()`); the time limit is that of both.
    certify : bool
        Compare the solution with an independent simulation of its control (`nosnoc_py.certify`):
        `solution.certificate`. If it is not confirmed, the message gives the reason and a remedy; the status remains
        that of the method. It may use the rest of the time limit, at least a tenth of it.
    uncertain : Uncertain, optional
        Parameters and components of the initial state that are not known. The plan then contains a feedback, and holds
        the constraints in scenarios of what is uncertain (`RobustSolution`); it begins with the plan for their middle.
    measure : {"expected", "worst", "quantile"}, optional
        What is minimised over the scenarios: the mean of their objectives, the largest one, or the mean of those beyond
        a `quantile` (the conditional value at risk). Default "expected".
    quantile : float, optional
        Between 0 and 1.

    Returns
    -------
    Solution
        Also when the solver fails: `status` has the reason and a remedy.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> ground = ns.Contact("ground", gap=q, restitution=0.8)
    >>> ball = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 9.81, contacts=[ground], names={"q": ["height"]})
    >>> ocp = ns.OCP(ball, horizon=1.0, x0=[1.0, 0.0], stage_cost=u**2, terminal_state={"height": 0.6})
    >>> frames = {0: {"height": 1.0}, 0.45: {"height": 0.0}, 1: {"height": 0.6}}
    >>> solution = ns.solve(ocp, ns.FESDJ(control_stages=5), guess=frames)
    >>> solution.success, round(float(solution["height"][-1]), 6)
    (True, 0.6)
    """
    check_type(ocp, OCP, "ocp")
    check_run(callback, time_limit)
    if not isinstance(polish, bool):
        raise OptionError(f"polish: expected True or False, given {polish!r}.")
    if not isinstance(certify, bool):
        raise OptionError(f"certify: expected True or False, given {certify!r}.")
    deadline = deadline_of(time_limit)
    if uncertain is not None:
        check_type(uncertain, Uncertain, "uncertain")
        ocp = uncertain.middle_of(ocp)
        limits: dict[str, Any] = {"guess": guess, "callback": callback, "time_limit": time_limit, "progress": progress}
        # A method that is given has no effort of its own: then these are those of the robust search alone.
        limits |= {} if method or solver else {"effort": effort, "seed": seed, "workers": workers}
        nominal = partial(solve, method=method, solver=solver, polish=polish, certify=certify, **limits)
        plan: Solution = uncertain.solved(
            ocp, nominal=nominal, deadline=deadline, measure=measure, quantile=quantile, effort=effort,
            workers=workers, seed=seed, callback=callback,
        )  # fmt: skip
        if certify:  # of the middle of the distribution
            plan = with_certificate(ocp, plan, finite_elements=False, deadline=deadline, time_limit=time_limit)
        return changed(plan, problem=SolvedProblem(ocp, None))
    if measure is not None or quantile is not None:
        raise OptionError("measure, quantile: they compare scenarios; give uncertain=ns.Uncertain(...), too.")
    warn_of_kinks(ocp)
    guess = guess_by_name(ocp, guess_with_slacks(ocp.system.control_names, guess))
    if isinstance(guess, Sequence) and not isinstance(method, MultiPhase):
        # A sequence of modes is a multi-phase program; its optimum is a guess for everything else.
        guess = solve(ocp, MultiPhase(sequence=guess), certify=False, callback=callback, time_limit=time_limit)
        time_limit = None if time_limit is None else max(0.0, deadline - monotonic())
    asked = {"effort": effort, "seed": seed, "progress": progress, "workers": workers}
    searched = {name: value for name, value in asked.items() if value is not None}
    if searched and (method is not None or solver is not None):
        raise OptionError(
            f"{', '.join(searched)}: options of the default search, which is used without a method and a solver; "
            "leave these out, or give the options to the method."
        )
    # Programs over mode sequences cannot represent complementarities of the user.
    makers = SOLVING[1:] if solver is not None else (ElementSearch, *SOLVING) if ocp.complementarities else SOLVING
    chosen: FiniteElementMethod | CompleteMethod = fitting(
        ocp.system, method, makers, (FiniteElementMethod, CompleteMethod)
    )
    if "progress" not in type(chosen).model_fields:  # a search over finite elements has no line to switch off
        searched.pop("progress", None)
    chosen = chosen.replace(**searched)
    limits = {"guess": guess, "callback": callback, "time_limit": time_limit}
    if isinstance(chosen, CompleteMethod):
        solution = chosen.solve(ocp, solver, **limits)
    else:  # options of finite elements are in a room below those that solve: an object that does it holds them
        solution = FiniteElementRun(chosen).solve(ocp, solver, **limits)
    if certify:
        elements = isinstance(chosen, FiniteElementMethod)
        solution = with_certificate(ocp, solution, finite_elements=elements, deadline=deadline, time_limit=time_limit)
    if polish and solution.status not in (Status.INTERRUPTED, Status.STOPPED):
        left = None if time_limit is None else max(0.0, deadline - monotonic())
        solution = polished(ocp, solution, callback=callback, time_limit=left)
    if solution.sequence is None and solution.success and MultiPhase().accepts(ocp.system) is None:
        solution = replace(solution, sequence=sequence_of(ocp, solution))
    return changed(solution, problem=SolvedProblem(ocp, chosen if isinstance(chosen, FiniteElementMethod) else None))


@named_arguments
@wraps(transcribed)
def transcribe(ocp: OCP, method: FiniteElementMethod | None = None) -> Transcription:  # noqa: D103 (it is wrapped)
    # A plan that is solved again may lose its branch of active contacts; a simulation finds the new one.
    return replace(transcribed(ocp, method), simulate=simulate)


def with_system(motion: Trajectory, system: Any) -> Trajectory:
    """Return the trajectory with its system, for `value` and `sample`."""
    return changed(motion, problem=SimulatedSystem(system))


@dataclass(frozen=True, eq=False)
class SolvedProblem(EvaluatesProblem):
    """Problem and method of a solution, for `differentiate`, `polish` and `refine`."""

    ocp: OCP
    method: FiniteElementMethod | None = None

    @cached_property
    def problem(self) -> Transcription | None:
        """The finite elements, written again when they are asked for: a solution does not hold them."""
        return None if self.method is None else transcribe(self.ocp, self.method)

    def differentiate(self, solution: Solution, **asked: Any) -> SolutionSensitivity:
        """See `nosnoc_py.Transcription.differentiate`."""
        if self.problem is None or self.problem.layout_key != solution.layout_key:
            raise OptionError(
                "differentiate: expected a solution by finite elements, given one by "
                f"{solution.method or 'another method'}; use solution.refine(method).differentiate(), with "
                "method = ns.FESDJ(...) for an ns.CLS, else ns.FESD(...)."
            )
        return self.problem.differentiate(solution, **asked)

    def polish(self, solution: Solution, **options: Any) -> Solution:
        """See `nosnoc_py.polish`."""
        return changed(polished(self.ocp, solution, **options), problem=self)

    def refine(self, solution: Solution, method: Any, solver: Any = None, **options: Any) -> Solution:
        """See `nosnoc_py.solve`, from this solution."""
        if method is None:
            raise OptionError("refine: expected a method, such as ns.FESDJ(control_stages=20), given None.")
        return solve(self.ocp, method, solver, guess=solution, **options)


@named_arguments
@reported
@one_numpy_thread
def simulate(
    system: Described,
    *,
    x0: State,
    duration: float,
    method: FiniteElementMethod | SimulationMethod | None = None,
    steps: int | None = None,
    times: Numbers | None = None,
    u: Control | None = None,
    p: State | None = None,
    solver: Strategy | ActiveSetNewton | None = None,
    callback: Callable[[Any], object] | None = None,
    time_limit: float | None = None,
    sensitivities: bool | Literal["reverse"] = False,
) -> Trajectory:
    """Simulate a system.

    Parameters
    ----------
    system : CLS, PSS, Heaviside, PDS, HybridSystem, EventSelectedSystem or RigidBody
    x0 : (n_x,)
        Initial state.
    duration : float
        Seconds.
    method : FESD, FESDJ, TimeFreezing, EventDriven, TimeStepping, EventSelected or LieGroupVariational, optional
        Default `EventDriven()`, which controls its error, for a `CLS`, a `HybridSystem` and Filippov systems (`PSS`,
        `Heaviside`, `PDS`); `TimeStepping` for a `CLS` with more than 100 contacts, if contacts times velocities
        squared exceed 80 000 or an event cannot be resolved: its message tells how accurate it is; `EventSelected()`
        for an `EventSelectedSystem`, `LieGroupVariational()` for a `RigidBody`. With a `solver` finite elements,
        `FESDJ()` for a `CLS`, else `FESD()`.
    steps : int, optional
        Number of steps of equal length. Finite elements: default 50 per second, at least 20. `TimeStepping`,
        `EventSelected`, `LieGroupVariational`: instead of the step in their options. `EventDriven` chooses its own
        steps; it has nodes at the ends of these, and derivatives by a constant control on each of them.
    times : (n,), optional
        Times [s] at which the trajectory has nodes besides its own. By `EventDriven` only.
    u : optional
        Control: a constant (n_u,), rows (one per equal interval), a `PiecewiseConstant`, a function of t or of (t, x),
        a `Trajectory` or a `Solution`; zero by default. Finite elements and `TimeStepping` keep its value at the middle
        of a step (of a law u(t, x): with the state at its beginning), `EventDriven` applies it as it is.
    p : (n_p,), optional
    solver : ActiveSetNewton, Homotopy, ActiveSet or Auto, optional
        With finite elements only. Default `ActiveSetNewton()`, and an MPCC only for steps where that fails; another
        one solves every step as an MPCC.
    callback : callable, optional
        Called after every step with the state of the simulator (`SimulatorState` of finite elements, a
        `TimeSteppingState` and so on; an `EventDrivenState` after steps of the integrator); returns `ns.Stop` to end
        the work.
    time_limit : float, optional
        Seconds.
    sensitivities : bool or "reverse"
        Differentiate with respect to x0, p and controls that are constant on intervals: the states at all
        nodes and the times of events (`EventDriven`, and without controls `EventSelected`, by saltation matrices), or
        the state at the end (finite elements, by the implicit function theorem): `trajectory.sensitivity`. With
        "reverse" (`EventDriven`) `trajectory.vjp(...)` has gradients of losses, whose cost does not depend on the
        number of stages, and grows in proportion to that of parameters.

    Returns
    -------
    Trajectory
        If the simulation fails, the trajectory up to the failed step or event; `status` has the reason.

    Raises
    ------
    OptionError, ModelError, TranscriptionError
        If method and system do not fit, x0 penetrates a contact or is not finite, the control has a wrong shape or
        does not cover the interval, or the duration is not positive.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> ground = ns.Contact("ground", gap=q, restitution=0.8)
    >>> ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ground], names={"q": ["height"]})
    >>> motion = ns.simulate(ball, x0={"height": 1.0}, duration=1.0)
    >>> round(motion.events[0].time, 9)  # the square root of 2 / 9.81
    0.451523641
    """
    check_run(callback, time_limit)
    if not isinstance(sensitivities, bool) and sensitivities != "reverse":
        raise OptionError(f'sensitivities: expected True, False or "reverse", given {sensitivities!r}.')
    chosen: FiniteElementMethod | SimulationMethod = fitting(
        system, method, SIMULATING if solver is None else FINITE_ELEMENTS, (FiniteElementMethod, SimulationMethod)
    )
    if sensitivities == "reverse" and not isinstance(chosen, EventDriven):
        raise OptionError(
            f'sensitivities="reverse": only EventDriven has derivatives backwards, given {type(chosen).__name__}; give '
            "sensitivities=True."
        )
    task = SimulationTask(
        x0=x0,
        duration=duration,
        steps=steps,
        times=times,
        u=u,
        p=p,
        solver=solver,
        callback=callback,
        time_limit=time_limit,
        sensitivities=sensitivities,
    )
    # What only EventDriven can do is done by it, however long it takes.
    by_default = method is None and solver is None and times is None and not sensitivities
    if by_default and isinstance(system, CLS) and many_contacts.is_large(system):
        return with_system(many_contacts.simulate(system, task), system)
    task.check(chosen.refuses)
    way = FiniteElementRun(chosen) if isinstance(chosen, FiniteElementMethod) else chosen
    deadline, found = task.deadline(), way.simulate(system, task)
    if by_default and isinstance(system, CLS):
        found = many_contacts.after_failure(system, task, found, deadline)
    return with_system(found, system)


@named_arguments
class Simulator:
    """Simulator with steps of equal length, built once for closed loops and repeated runs.

    `init` and `step` take one step after the other with a constant control each; `run` takes many.

    Parameters
    ----------
    system : CLS, PSS, Heaviside or PDS
    method : EventDriven, TimeStepping, FESDJ, TimeFreezing or FESD, optional
        Default `EventDriven()`; with a `solver` finite elements. Finite elements ignore
        `control_stages` here and have no error control. The other methods take the speed to which contact tolerances
        are relative from the first step, unless `speed_scale` is given.
    step : float
        Length of a step [s].
    solver : ActiveSetNewton, Homotopy, ActiveSet or Auto, optional
        Of finite elements; default `ActiveSetNewton()`, where it fits the method.

    Raises
    ------
    OptionError
        For a step that is no positive length, a method that takes no steps, or a solver that does not fit.

    Examples
    --------
    A ball under a law that sees its state every 0.1 s:

    >>> import casadi as ca
    >>> import nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> ball = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 9.81, contacts=[ns.Contact("ground", gap=q)])
    >>> simulator = ns.Simulator(ball, step=0.1)
    >>> state = simulator.init([1.0, 0.0])
    >>> while state.t < 0.5:
    ...     state = simulator.step(state, [9.81 - state.x[1]])
    >>> state.status.success, float(state.x[0])
    (True, 1.0)
    """

    def __init__(
        self,
        system: Described,
        method: FiniteElementMethod | EventDriven | TimeStepping | None = None,
        *,
        step: float,
        solver: Strategy | ActiveSetNewton | None = None,
    ) -> None:
        if isinstance(step, bool) or not isinstance(step, Real) or not 0.0 < float(step) < inf:
            raise OptionError(f"step: expected a positive finite length, given {step!r}.")
        makers = STEPPING if solver is None else FINITE_ELEMENTS
        chosen = fitting(system, method, makers, (FiniteElementMethod, EventDriven, TimeStepping))
        self.system: Any = system
        self.length: float = float(step)
        self.method = chosen
        self.engine: Any
        if isinstance(chosen, FiniteElementMethod):
            self.engine = FiniteElementRun(chosen).stepper(system, self.length, solver)
        else:
            SimulationTask(x0=None, duration=None, solver=solver).check(chosen.refuses)
            self.engine = chosen.stepper(system, self.length)

    @named_arguments
    def init(self, x0: State, p: State | None = None) -> StepState:
        """Return the state at t = 0; raise `ModelError` for an x0 of the wrong shape, or that penetrates a contact.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x = ca.SX.sym("x")
        >>> state = ns.Simulator(ns.ODE(x=x, flow=-1), step=0.5).init([2.0])
        >>> state.t, state.x
        (0.0, array([2.]))
        """
        state: StepState = self.engine.init(x0, p)
        return state

    @named_arguments
    def step(
        self,
        state: StepState,
        u: Numbers | None = None,
        *,
        time_limit: float | None = None,
        sensitivities: bool = False,
    ) -> StepState:
        """Return the state after one step with constant control u (n_u,).

        `x` is the left limit at t: an impact exactly at t happens in the next step. A step that fails has its status
        and leaves t and x where they were. With `sensitivities`, `sensitivity` has the derivatives of the new x with
        respect to the x, u and p of this step (`TimeStepping` has none).

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x, u = ca.SX.sym("x"), ca.SX.sym("u")
        >>> simulator = ns.Simulator(ns.ODE(x=x, u=u, flow=u), step=0.5)
        >>> state = simulator.step(simulator.init([2.0]), [3.0])
        >>> state.t, state.x.round(6)
        (0.5, array([3.5]))
        """
        check_run(None, time_limit)
        after: StepState = self.engine.step(state, u, time_limit=time_limit, sensitivities=sensitivities)
        return after

    @named_arguments
    @reported
    def run(
        self,
        x0: State,
        *,
        steps: int,
        u: Control | None = None,
        p: State | None = None,
        callback: Callable[[Any], object] | None = None,
        time_limit: float | None = None,
        sensitivities: bool = False,
    ) -> Trajectory:
        """Take several steps; arguments and result are those of `nosnoc_py.simulate`, but nothing is built again.

        Every step has a constant control: of a function of time its value in the middle of the step, of a law u(t, x)
        that with t in the middle and the state where the step begins. `TimeStepping` asks a law a few times more, to
        find the typical speed.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x, u = ca.SX.sym("x"), ca.SX.sym("u")
        >>> simulator = ns.Simulator(ns.ODE(x=x, u=u, flow=u), step=0.5)
        >>> [simulator.run([start], steps=4, u=[1.0]).final_state.round(6).tolist() for start in (0.0, 1.0)]
        [[2.0], [3.0]]
        """
        check_run(callback, time_limit)
        limits: dict[str, Any] = {"callback": callback, "deadline": deadline_of(time_limit)}
        asked = SteppedRun(steps=steps_given(steps), u=u, p=p, sensitivities=sensitivities, **limits)
        return with_system(self.engine.run(x0, asked), self.system)
