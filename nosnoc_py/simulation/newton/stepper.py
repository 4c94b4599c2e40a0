"""A simulation step by the active-set Newton method, accepted only on the residuals of an independent program.

`NewtonStepper` connects the engine with a transcription: it solves a step, writes the result into the variables of the
MPCC and evaluates the unrelaxed equations there. The step is accepted if infeasibility and complementarity are
rounding, in the user's units or in units of the motion's own size. A step with more events than elements is reported
with the fraction of its length that the elements suffice for, so that the simulator can split it; if the events
accumulate like a geometric series inside the step, it is reported as Zeno behaviour.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from nosnoc_py.discretization.options import FESDJ
from nosnoc_py.mpcc.residuals import Evaluator, Values
from nosnoc_py.roles import Role
from nosnoc_py.simulation.newton.contact_filling import ContactIterateWriter, is_exact
from nosnoc_py.simulation.newton.contact_newton import ContactNewton, ContactStep
from nosnoc_py.simulation.newton.engine import Elements, Engine, Hint
from nosnoc_py.simulation.newton.filippov_filling import FilippovIterateWriter
from nosnoc_py.simulation.newton.filippov_modes import FilippovModes
from nosnoc_py.simulation.newton.modes import Mode, Trouble
from nosnoc_py.status import Status
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.rescaled import rescaled
from nosnoc_py.systems.scales import UNIT, ProblemScales, problem_scales
from nosnoc_py.tolerances import STEP_COMPLEMENTARITY, STEP_INFEASIBILITY, TOUCHING
from nosnoc_py.transcription import Transcription, gap_rate_of, rest_velocity_of, transcribe_step

SCHEMES: tuple[Literal["radau_iia"], Literal["gauss_legendre"]] = ("radau_iia", "gauss_legendre")
# Events of a step that are counted at most, for the message. From MIN_EVENTS on they are tested for accumulation:
# ratios of successive distances (every other event) then agree up to this fraction.
MOST_EVENTS, MIN_EVENTS, STEADY_RATIO = 100, 8, 0.1
# Rounding of sums over the stages, relative to the size of the coordinates.
COORDINATE_ROUNDING = 16 * np.finfo(float).eps
# Final failures: an MPCC states the same impact law, so that it has no solution either and need not be tried.
STATUSES = {Trouble.IMPACT: Status.NO_ADMISSIBLE_IMPACT, Trouble.ENERGY: Status.ENERGY_GAIN}


@dataclass(frozen=True, eq=False, kw_only=True)
class NewtonResult:
    """Result of Newton's method for a step: an iterate with its residuals, or a message and perhaps a final status.

    Attributes
    ----------
    w : (n_w,) or None
        Iterate of the MPCC; None if the step failed.
    x : (n_x,)
        State at the end.
    hint : Hint or None
        For the next step.
    residuals : dict
        `complementarity` and `infeasibility` of the unrelaxed equations.
    message : str
    status : Status or None
        Set if no other solver will succeed either.
    too_many_events : bool
        True if the step has more events than its elements can resolve: shorter steps may succeed.
    share : float
        With too many events, the fraction of the step that has as many events as the elements can resolve.
    elements : Elements or None
        The step in numbers, for the estimate of its error.
    """

    w: np.ndarray | None = None
    x: np.ndarray
    hint: Hint | None = None
    residuals: dict[str, float]
    message: str = ""
    status: Status | None = None
    too_many_events: bool = False
    share: float = 0.5
    elements: Elements | None = None


def misfit(problem: Transcription) -> str:
    """Return the reason why the steps of a transcription cannot be solved by Newton's method, or ""."""
    options = problem.fesd
    if problem.discretization.time_freezing:
        return "time-freezing is solved as an MPCC (from a prediction by Newton's method)"
    if not options.switch_detection:
        return "steps of fixed length (switch_detection=False) locate no events"
    if options.scheme not in SCHEMES:
        return f"scheme: {options.scheme!r} is none of {', '.join(SCHEMES)}"
    if options.step_equilibration == "linear_complementarity":
        return "step_equilibration: 'linear_complementarity' has unknowns of its own; use 'direct'"
    if isinstance(problem.method, FESDJ) and not is_exact(problem.ocp.system, problem.method.friction_cone):
        return f"friction_cone: {problem.method.friction_cone!r} is not Coulomb's law"
    return ""


class _Program:
    """Unrelaxed finite-element equations of a step with contacts, in chosen units of length, time and mass.

    Parameters
    ----------
    problem : Transcription
        In the user's units.
    scales : ProblemScales
        Units of gaps and of their rates.
    mass : float
        Unit of mass.
    """

    def __init__(self, problem: Transcription, scales: ProblemScales = UNIT, mass: float = 1.0) -> None:
        method, system = problem.fesdj, problem.ocp.system
        rest, length, time = rest_velocity_of(method, simulation=True), scales.length, scales.length / scales.speed
        # Gaps have their own unit: a gap may be a multiple (steepness) of the distance that the coordinates move.
        position = length / scales.steepness
        # In the user's units the given program is used as it is, which saves its transcription.
        if scales != UNIT or mass != 1.0:
            rest *= time / position
            system = rescaled(system, q=position, gap=length, time=time, mass=mass)
            problem = transcribe_step(system, method.replace(rest_velocity=rest))
        force = mass * length / time**2
        kept = position if system.moves_by_v else 1.0  # only coordinates with q' = v are scaled
        sizes = [system.n_q, system.n_v, system.y.numel()]
        units = np.repeat([kept, position / time, 1.0], sizes)
        self.units: dict[str, Any] = {
            "h": time,
            **dict.fromkeys(("x_minus", "x_left", "x_right", "x_stages"), units),
            **dict.fromkeys(("lambda_normal", "lambda_tangent"), force),
            **dict.fromkeys(("Lambda_normal", "Lambda_tangent"), force * time),
            # From q' = v + n tau, with n = d gap / d q in units length / position.
            "drift": position**2 / (time * length),
        }
        layout = problem.mpcc.parameters
        self._values = np.ones(problem.mpcc.p0.size)
        self._values[layout["x0"]], self._values[layout["horizon"]] = self.units["x_left"], time
        self._fill = ContactIterateWriter(system, problem, method.friction_cone, rest)
        self.evaluator = _evaluator_of(problem)

    def __call__(self, step: ContactStep, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return w and the parameters of a step in these units, from those in the user's."""
        own = replace(step, **{name: getattr(step, name) / unit for name, unit in self.units.items()})
        return self._fill(own, values / self._values), values / self._values


def _evaluator_of(problem: Transcription) -> Evaluator:
    """Return an evaluator without lower bounds on element lengths.

    These only help relaxations, and events may be close.
    """
    mpcc = problem.mpcc
    lower = mpcc.lbw.copy()
    lower[[block.start for block in mpcc.variables.blocks(role=Role.STEP)]] = 0.0
    return Evaluator(replace(mpcc, lbw=lower))


class NewtonStepper:
    """Active-set Newton method for the steps of one transcription.

    Steps are accepted on the residuals of the unrelaxed finite-element equations, which are assembled elsewhere from
    other expressions.

    Parameters
    ----------
    problem : Transcription
        Of one step.
    tolerance : float
        Tolerance of Newton's method, relative to the largest unknown.
    """

    def __init__(self, problem: Transcription, tolerance: float = 1e-11) -> None:
        layout = problem.mpcc.parameters
        self._slices = tuple(layout[name] for name in ("x0", "u", "p", "horizon"))
        system, self._elements = problem.ocp.system, len(problem.elements)
        count = self._elements
        self._can_accumulate = True
        self.engine: Engine
        self._step: Callable[..., Elements]
        self._fill: Callable[[Elements, np.ndarray], np.ndarray]
        self._newton: ContactNewton | None = None
        if isinstance(system, CLS):
            method, rest = problem.fesdj, rest_velocity_of(problem.fesdj, simulation=True)
            rate = gap_rate_of(method, system, simulation=True)
            newton = ContactNewton(
                system, problem.tableau, count, gap_rate=rate, rest_velocity=rest, tolerance=tolerance
            )
            program, self._newton = _Program(problem), newton
            self._can_accumulate = rest == 0.0  # a positive rest velocity ends every sequence of impacts
            self.engine = newton.engine
            self._step = newton.engine.step
            self._fill = lambda step, values: program(newton.read(step, values[self._slices[2]]), values)[0]
            # Lengths and speeds of the units are powers of ten, so that a simulation needs few programs.
            self._program = lru_cache(lambda scales, mass: _Program(problem, scales, mass))
        else:
            model = FilippovModes(problem.dcs)
            self.engine = Engine(model, problem.tableau, count, tolerance)
            self._step = self.engine.step
            self._fill = FilippovIterateWriter(model, problem)
        self._evaluator = _evaluator_of(problem)

    def __call__(self, values: np.ndarray, hint: Hint | None) -> NewtonResult:
        """Solve one step at the parameters `values` of the MPCC; `hint` is that of the previous step."""
        x, u, p, horizon = (values[rows] for rows in self._slices)
        step = self._step(x, u, p, float(horizon[0]), hint)
        if step.trouble is not None:
            status, too_many = STATUSES.get(step.trouble), step.trouble is Trouble.SWITCHES
            failure = NewtonResult(x=x, residuals={}, message=step.message, status=status, too_many_events=too_many)
            return replace(failure, share=self._share_within_capacity(step, values)) if too_many else failure
        w = self._fill(step, values)
        at = self._evaluator(w, values)
        residuals = _residuals(self._evaluator, at)
        force = 1.0 if self._newton is None else _largest_force(self._newton.read(step, p))
        if not self._is_accepted(residuals, x, p, force=force) and not self._is_accepted_in_own_units(step, values):
            worst = self._evaluator.worst(at, 1)
            text = f"not certified: {worst[0] if worst else residuals}"
            return NewtonResult(x=x, residuals=residuals, message=text)
        return NewtonResult(w=w, x=step.x_right[-1], residuals=residuals, hint=step.hint(u, p), elements=step)

    def _share_within_capacity(self, step: Elements, values: np.ndarray) -> float:
        """Return where to cut a step with too many events: after the last event that it has elements for.

        The cut lies between this event and the next: at an event, rounding would decide to which part it belongs.
        """
        if not len(step.h):
            return 0.5
        _, u, p, horizon = (values[rows] for rows in self._slices)
        length, done = float(horizon[0]), float(np.sum(step.h))
        following = self._step(step.x_right[-1], u, p, length - done, step.modes[-1])
        held = (done + 0.5 * float(following.h[0] if len(following.h) else 0.0)) / length
        return held if 0.0 < held < 1.0 else 0.5

    def _is_accepted_in_own_units(self, step: Elements, values: np.ndarray) -> bool:
        """Repeat the check in units of the motion's own size: in the user's units rounding may have any size."""
        if self._newton is None:
            return False
        system, (x, u, p, horizon) = self._newton.system, (values[rows] for rows in self._slices)
        scales = problem_scales(system, x0=x, control=lambda t, x: u, p=p, duration=float(horizon[0]))
        # The mass that a contact sees is that of the gap, 1 / (n' M^-1 n), and |n| is the steepness.
        program = self._program(scales, self._newton.mass / scales.steepness**2)
        read = self._newton.read(step, p)
        residuals = _residuals(program.evaluator, program.evaluator(*program(read, values)))
        force = _largest_force(read) / program.units["lambda_normal"]
        # The coordinates of a slow body far from the origin are large in these units, and so is their rounding.
        coarse = COORDINATE_ROUNDING * float(np.max(np.abs(step.x_right) / program.units["x_right"]))
        return self._is_accepted(residuals, x, p, scales.length, coarse, force)

    def _is_accepted(
        self,
        residuals: dict[str, float],
        x: np.ndarray,
        p: np.ndarray,
        length: float = 1.0,
        coarse: float = 0.0,
        force: float = 1.0,
    ) -> bool:
        """Return True if the residuals are rounding.

        An initial state may penetrate slightly, which no step can repair, and its closed contacts may be slightly open:
        their gap times the largest force is a complementarity residual that is no error of the step.
        """
        limits = {"complementarity": STEP_COMPLEMENTARITY, "infeasibility": STEP_INFEASIBILITY + coarse}
        if all(residuals[name] <= limit for name, limit in limits.items()):
            return True
        if self._newton is None:
            return False
        gaps = self._newton.system.mechanics.gaps_at(x, p)
        deep = max(0.0, -float(gaps.min(initial=0.0))) / length
        open_ = float(gaps[gaps <= TOUCHING * length].max(initial=0.0)) / length
        more = {"complementarity": max(deep, open_ * force), "infeasibility": deep}
        return all(residuals[name] <= limit + more[name] for name, limit in limits.items())

    def count_events(self, values: np.ndarray, result: NewtonResult) -> NewtonResult:
        """Follow a step with too many events; return the result with their number, or as Zeno if they accumulate."""
        x, u, p, horizon = (values[rows] for rows in self._slices)
        length, message = float(horizon[0]), result.message
        times, hint, at, lost = [0.0], None, 0.0, False
        while len(times) <= MOST_EVENTS:
            part = self._step(x, u, p, length - at, hint)
            lost = not len(part.h)
            if lost:
                break
            boundaries = at + np.cumsum(part.h)
            x, hint, at = part.x_right[-1], part.modes[-1], float(boundaries[-1])
            times += boundaries[_last_of_runs(part.modes, part.jump)].tolist()
            if part.trouble is None:
                times.pop()  # the end of the step
                break
        events = len(times) - 1
        if self._can_accumulate and _accumulates(np.array(times), length):
            text = f"infinitely many switches accumulate {times[-1]:.6g} s after the beginning of the step"
            return replace(result, message=text, status=Status.ZENO)
        # Long elements can miss events that shorter ones see: then the count is not reliable.
        if lost or events < self._elements:
            return replace(result, message=f"{message}; take more steps")
        more = "more than " if events >= MOST_EVENTS else ""
        return replace(result, message=f"{message}; it has {more}{events} switches")


def _largest_force(step: ContactStep) -> float:
    """Return the largest normal force of a step [N]."""
    return float(np.abs(step.lambda_normal).max(initial=0.0))


def _residuals(evaluator: Evaluator, at: Values) -> dict[str, float]:
    return {"complementarity": evaluator.complementarity(at), "infeasibility": evaluator.infeasibility(at)}


def _accumulates(times: np.ndarray, length: float) -> bool:
    """Return True if the distances of events decrease like a geometric series whose sum ends inside the step."""
    if times.size < MIN_EVENTS:
        return False
    pairs = times[::-2][:4][::-1]  # every other event: a body may bounce between two sides in turn
    before, last = np.diff(pairs)[-2:]
    ratio = last / before
    # Two successive ratios of distances agree: the sequence is geometric, as for constant restitution.
    steady = abs(np.diff(pairs)[-3] * ratio / before - 1.0) < STEADY_RATIO
    # Sum of all distances that follow: last (r + r^2 + ...) = last r / (1 - r).
    return bool(steady and ratio < 1.0 and times[-1] + last * ratio / (1.0 - ratio) < length)


def _last_of_runs(modes: tuple[Mode, ...], jump: np.ndarray) -> list[int]:
    """Return the elements after which the mode changes or the state jumps, and the last one."""
    jumps = (jump != 0.0).any(axis=1)
    last = len(modes) - 1
    return [e for e in range(last + 1) if e == last or modes[e + 1] != modes[e] or jumps[e + 1]]
