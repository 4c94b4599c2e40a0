"""A simulation step by the active-set Newton method, with a certificate, for any system and method it fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np

from nosnoc_py.discretization.options import FESDJ
from nosnoc_py.mpcc.residuals import Evaluator, Values
from nosnoc_py.roles import Role
from nosnoc_py.simulation.newton.contact_filling import Filling, is_exact
from nosnoc_py.simulation.newton.contact_newton import ContactNewton, ContactStep
from nosnoc_py.simulation.newton.engine import Elements, Engine, Hint
from nosnoc_py.simulation.newton.filippov_filling import FilippovFilling
from nosnoc_py.simulation.newton.filippov_modes import FilippovModes
from nosnoc_py.simulation.newton.modes import Mode, Trouble
from nosnoc_py.status import Status
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.rescaled import rescaled
from nosnoc_py.systems.scales import UNIT, ProblemScales, problem_scales
from nosnoc_py.tolerances import STEP_COMPLEMENTARITY, STEP_INFEASIBILITY, TOUCHING
from nosnoc_py.transcription import Transcription, gap_rate_of, rest_velocity_of, transcribe_step

SCHEMES: tuple[Literal["radau_iia"], Literal["gauss_legendre"]] = ("radau_iia", "gauss_legendre")
# So many switches of a step are counted when they are too many. From so many on they may accumulate: the ratio of the
# last distances, every other switch, is then the same but for this share.
MOST_EVENTS, FEW, STEADY = 100, 8, 0.1
# A sum over the stages of a step loses some units in the last place of the coordinates.
ROUNDED = 16 * np.finfo(float).eps
# An MPCC is the same law of impacts: it has no solution there either.
STATUSES = {Trouble.IMPACT: Status.NO_ADMISSIBLE_IMPACT, Trouble.ENERGY: Status.ENERGY_GAIN}


@dataclass(frozen=True, eq=False, kw_only=True)
class NewtonResult:
    """What Newton's method made of a step: an iterate with its residuals, or a message and perhaps a final status.

    Attributes
    ----------
    w : (n_w,) or None
    x : (n_x,)
        State at the end.
    hint : Hint or None
        For the next step.
    residuals : dict
    message : str
    status : Status or None
        Where nothing else will help either.
    crowded : bool
        Whether the step has more switches than elements: shorter ones may do.
    share : float
        Of a crowded step, the part that has as many switches as its elements hold.
    elements : Elements or None
        The step in numbers, for the estimate of its error.
    """

    w: np.ndarray | None = None
    x: np.ndarray
    hint: Hint | None = None
    residuals: dict[str, float]
    message: str = ""
    status: Status | None = None
    crowded: bool = False
    share: float = 0.5
    elements: Elements | None = None


def misfit(problem: Transcription) -> str:
    """Why the steps of a transcription are not for Newton's method, or ""."""
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
    """The unrelaxed finite-element equations of a step of contacts, in some units.

    Parameters
    ----------
    problem : Transcription
        In the user's units.
    scales : ProblemScales
        The units of gaps and of their rates.
    mass : float
        The unit of masses.
    """

    def __init__(self, problem: Transcription, scales: ProblemScales = UNIT, mass: float = 1.0) -> None:
        method, system = problem.fesdj, problem.ocp.system
        rest, length, time = rest_velocity_of(method, simulation=True), scales.length, scales.length / scales.speed
        position = length / scales.steepness
        if scales != UNIT or mass != 1.0:
            rest *= time / position
            system = rescaled(system, q=position, gap=length, time=time, mass=mass)
            problem = transcribe_step(system, method.replace(rest_velocity=rest))
        force = mass * length / time**2
        kept = position if system.moves_by_v else 1.0  # coordinates that are not v integrated stay in their units
        sizes = [system.n_q, system.n_v, system.y.numel()]
        units = np.repeat([kept, position / time, 1.0], sizes)
        self.units: dict[str, Any] = {
            "h": time,
            **dict.fromkeys(("x_minus", "x_left", "x_right", "x_stages"), units),
            **dict.fromkeys(("lambda_normal", "lambda_tangent"), force),
            **dict.fromkeys(("Lambda_normal", "Lambda_tangent"), force * time),
            "drift": position**2 / (time * length),
        }
        layout = problem.mpcc.parameters
        self._values = np.ones(problem.mpcc.p0.size)
        self._values[layout["x0"]], self._values[layout["horizon"]] = self.units["x_left"], time
        self._fill = Filling(system, problem, method.friction_cone, rest)
        self.evaluator = _evaluator_of(problem)

    def __call__(self, step: ContactStep, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """w and the parameters of a step in these units, from those of the user."""
        own = replace(step, **{name: getattr(step, name) / unit for name, unit in self.units.items()})
        return self._fill(own, values / self._values), values / self._values


def _evaluator_of(problem: Transcription) -> Evaluator:
    """Newton's method locates events and needs no smallest element, which is there for relaxations."""
    mpcc = problem.mpcc
    lower = mpcc.lbw.copy()
    lower[[block.start for block in mpcc.variables.blocks(role=Role.STEP)]] = 0.0
    return Evaluator(replace(mpcc, lbw=lower))


class NewtonStepper:
    """The active-set Newton method on the steps of one transcription.

    What it finds is believed on the residuals of the unrelaxed finite-element equations only: those are made elsewhere,
    from other expressions.
    """

    def __init__(self, problem: Transcription, tolerance: float = 1e-11) -> None:
        layout = problem.mpcc.parameters
        self._slices = tuple(layout[name] for name in ("x0", "u", "p", "horizon"))
        system, self._elements = problem.ocp.system, len(problem.elements)
        count = self._elements
        self._endless = True
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
            self._endless = rest == 0.0  # otherwise slow impacts end every sequence of them
            self.engine = newton.engine
            self._step = newton.engine.step
            self._fill = lambda step, values: program(newton.read(step, values[self._slices[2]]), values)[0]
            self._program = lru_cache(lambda scales, mass: _Program(problem, scales, mass))
        else:
            model = FilippovModes(problem.dcs)
            self.engine = Engine(model, problem.tableau, count, tolerance)
            self._step = self.engine.step
            self._fill = FilippovFilling(model, problem)
        self._evaluator = _evaluator_of(problem)

    def __call__(self, values: np.ndarray, hint: Hint | None) -> NewtonResult:
        """One step at the parameters `values`, after the step that left the hint."""
        x, u, p, horizon = (values[rows] for rows in self._slices)
        step = self._step(x, u, p, float(horizon[0]), hint)
        if step.trouble is not None:
            status, crowded = STATUSES.get(step.trouble), step.trouble is Trouble.SWITCHES
            found = NewtonResult(x=x, residuals={}, message=step.message, status=status, crowded=crowded)
            return replace(found, share=self._held(step, values)) if crowded else found
        w = self._fill(step, values)
        at = self._evaluator(w, values)
        residuals = _residuals(self._evaluator, at)
        force = 1.0 if self._newton is None else _largest(self._newton.read(step, p))
        if not self._is_believed(residuals, x, p, force=force) and not self._is_believed_in_units(step, values):
            worst = self._evaluator.worst(at, 1)
            said = f"not certified: {worst[0] if worst else residuals}"
            return NewtonResult(x=x, residuals=residuals, message=said)
        return NewtonResult(w=w, x=step.x_right[-1], residuals=residuals, hint=step.hint(u, p), elements=step)

    def _held(self, step: Elements, values: np.ndarray) -> float:
        """Where to cut a crowded step, as a share of it: between the last switch that it has elements for and the next.

        Not at a switch, where it would hang on rounding whether it belongs to what comes before.
        """
        if not len(step.h):
            return 0.5
        _, u, p, horizon = (values[rows] for rows in self._slices)
        length, done = float(horizon[0]), float(np.sum(step.h))
        following = self._step(step.x_right[-1], u, p, length - done, step.modes[-1])
        held = (done + 0.5 * float(following.h[0] if len(following.h) else 0.0)) / length
        return held if 0.0 < held < 1.0 else 0.5

    def _is_believed_in_units(self, step: Elements, values: np.ndarray) -> bool:
        """The same in units of the motion's own size: in those of the user rounding may be of any size."""
        if self._newton is None:
            return False
        system, (x, u, p, horizon) = self._newton.system, (values[rows] for rows in self._slices)
        scales = problem_scales(system, x0=x, control=lambda t, x: u, p=p, duration=float(horizon[0]))
        program = self._program(scales, self._newton.mass / scales.steepness**2)
        read = self._newton.read(step, p)
        residuals = _residuals(program.evaluator, program.evaluator(*program(read, values)))
        force = _largest(read) / program.units["lambda_normal"]
        # A slow body far from the origin: its coordinates are large numbers of these units, and rounded.
        coarse = ROUNDED * float(np.max(np.abs(step.x_right) / program.units["x_right"]))
        return self._is_believed(residuals, x, p, scales.length, coarse, force)

    def _is_believed(
        self,
        residuals: dict[str, float],
        x: np.ndarray,
        p: np.ndarray,
        length: float = 1.0,
        coarse: float = 0.0,
        force: float = 1.0,
    ) -> bool:
        """Whether the residuals are rounding.

        An initial state may penetrate by a little, which no step mends, and what touches there may be a little open:
        times the largest force that is the product of both.
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

    def counted(self, values: np.ndarray, found: NewtonResult) -> NewtonResult:
        """Follow a crowded step event by event: how many switches it has, and whether they end (else: Zeno)."""
        x, u, p, horizon = (values[rows] for rows in self._slices)
        length, message = float(horizon[0]), found.message
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
        if self._endless and _accumulates(np.array(times), length):
            said = f"infinitely many switches accumulate {times[-1]:.6g} s after the beginning of the step"
            return replace(found, message=said, status=Status.ZENO)
        if lost or events < self._elements:  # where polynomials are far from the motion, others see fewer
            return replace(found, message=f"{message}; take more steps")
        more = "more than " if events >= MOST_EVENTS else ""
        return replace(found, message=f"{message}; it has {more}{events} switches")


def _largest(step: ContactStep) -> float:
    return float(np.abs(step.lambda_normal).max(initial=0.0))


def _residuals(evaluator: Evaluator, at: Values) -> dict[str, float]:
    return {"complementarity": evaluator.complementarity(at), "infeasibility": evaluator.infeasibility(at)}


def _accumulates(times: np.ndarray, length: float) -> bool:
    """Whether switches come closer like a geometric series, pair by pair, that ends inside the step."""
    if times.size < FEW:
        return False
    pairs = times[::-2][:4][::-1]  # a body may take turns between two sides
    before, last = np.diff(pairs)[-2:]
    ratio = last / before
    steady = abs(np.diff(pairs)[-3] * ratio / before - 1.0) < STEADY
    return bool(steady and ratio < 1.0 and times[-1] + last * ratio / (1.0 - ratio) < length)


def _last_of_runs(modes: tuple[Mode, ...], jump: np.ndarray) -> list[int]:
    """Elements after which the mode changes or the state jumps, and the last one."""
    jumps = (jump != 0.0).any(axis=1)
    last = len(modes) - 1
    return [e for e in range(last + 1) if e == last or modes[e + 1] != modes[e] or jumps[e + 1]]
