"""A simulation step by the active-set Newton method, with a certificate, for any system and method it fits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from nosnoc_py.discretization.options import FESDJ
from nosnoc_py.mpcc.residuals import Evaluator
from nosnoc_py.roles import Role
from nosnoc_py.simulation.newton.contact_filling import Filling, is_exact
from nosnoc_py.simulation.newton.contact_newton import ContactNewton
from nosnoc_py.simulation.newton.engine import Elements, Engine, Hint
from nosnoc_py.simulation.newton.filippov_filling import FilippovFilling
from nosnoc_py.simulation.newton.filippov_modes import FilippovModes
from nosnoc_py.simulation.newton.modes import Mode, Trouble
from nosnoc_py.status import Status
from nosnoc_py.systems.cls import CLS
from nosnoc_py.transcription import Transcription, gap_rate_of, rest_velocity_of

SCHEMES: tuple[Literal["radau_iia"], Literal["gauss_legendre"]] = ("radau_iia", "gauss_legendre")
# Largest residuals of a step that is believed, of the unrelaxed equations.
COMPLEMENTARITY, INFEASIBILITY = 1e-10, 1e-9
# So many switches of a step are counted when they are too many. From so many on they may accumulate: the ratio of the
# last distances, every other switch, is then the same but for this share.
MOST_EVENTS, FEW, STEADY = 100, 8, 0.1
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
    """

    w: np.ndarray | None = None
    x: np.ndarray
    hint: Hint | None = None
    residuals: dict[str, float]
    message: str = ""
    status: Status | None = None
    crowded: bool = False


def misfit(problem: Transcription) -> str:
    """Why the steps of a transcription are not for Newton's method, or ""."""
    options = problem.fesd
    if problem.frozen is not None:
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


class NewtonStepper:
    """The active-set Newton method on the steps of one transcription.

    What it finds is believed on the residuals of the unrelaxed finite-element equations only: those are made elsewhere,
    from other expressions.
    """

    def __init__(self, problem: Transcription, tolerance: float = 1e-11) -> None:
        mpcc, layout = problem.mpcc, problem.mpcc.parameters
        self._slices = tuple(layout[name] for name in ("x0", "u", "p", "horizon"))
        system, self._elements = problem.ocp.system, len(problem.elements)
        count = self._elements
        self._endless = True
        self._step: Callable[..., Elements]
        self._fill: Callable[[Elements, np.ndarray], np.ndarray]
        self._contacts: Callable[..., list[np.ndarray]] | None = None
        if isinstance(system, CLS):
            method, rest = problem.fesdj, rest_velocity_of(problem.fesdj, simulation=True)
            rate = gap_rate_of(method, system, simulation=True)
            newton = ContactNewton(
                system, problem.tableau, count, gap_rate=rate, rest_velocity=rest, tolerance=tolerance
            )
            filling = Filling(system, problem, method.friction_cone, rest)
            self._endless = rest == 0.0  # otherwise slow impacts end every sequence of them
            self._step, self._fill = newton.engine.step, lambda step, values: filling(newton.read(step), values)
            self._contacts = system.mechanics.touching
        else:
            model = FilippovModes(problem.dcs)
            self._step = Engine(model, problem.tableau, count, tolerance).step
            self._fill = FilippovFilling(model, problem)
        # Newton's method locates events and needs no smallest element, which is there for relaxations.
        steps = [block.start for block in mpcc.variables.blocks(role=Role.STEP)]
        lower = mpcc.lbw.copy()
        lower[steps] = 0.0
        self._evaluator = Evaluator(replace(mpcc, lbw=lower))

    def __call__(self, values: np.ndarray, hint: Hint | None) -> NewtonResult:
        """One step at the parameters `values`, after the step that left the hint."""
        x, u, p, horizon = (values[rows] for rows in self._slices)
        step = self._step(x, u, p, float(horizon[0]), hint)
        if step.trouble is not None:
            status, crowded = STATUSES.get(step.trouble), step.trouble is Trouble.SWITCHES
            return NewtonResult(x=x, residuals={}, message=step.message, status=status, crowded=crowded)
        w = self._fill(step, values)
        at = self._evaluator(w, values)
        residuals = {
            "complementarity": self._evaluator.complementarity(at),
            "infeasibility": self._evaluator.infeasibility(at),
        }
        if not self._is_believed(residuals, x, p):
            worst = self._evaluator.worst(at, 1)
            said = f"not certified: {worst[0] if worst else residuals}"
            return NewtonResult(x=x, residuals=residuals, message=said)
        return NewtonResult(w=w, x=step.x_right[-1], residuals=residuals, hint=step.hint(u, p))

    def _is_believed(self, residuals: dict[str, float], x: np.ndarray, p: np.ndarray) -> bool:
        """Whether the residuals are rounding; an initial state may penetrate by a little, which no step mends."""
        limits = {"complementarity": COMPLEMENTARITY, "infeasibility": INFEASIBILITY}
        if all(residuals[name] <= limit for name, limit in limits.items()):
            return True
        deep = 0.0 if self._contacts is None else max(0.0, -float(self._contacts(x, p)[0].min(initial=0.0)))
        return all(residuals[name] <= limit + deep for name, limit in limits.items())

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
