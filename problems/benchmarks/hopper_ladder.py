"""Initialisation of the hopper: smooth programs with prescribed footholds, then finite elements of rising order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.mpcc.stationarity import StationarityCertificate
from problems.benchmarks.hopper_branch import WEIGHT, Rung, held, touch_of_motion, touch_of_solution
from problems.benchmarks.hopper_smooth import Descent, Motion, SmoothProgram, scheme_of
from problems.benchmarks.hopper_task import BENT, STANDING, build

RESIDUAL = 1e-6
FREE_ELEMENTS = (14, 10)  # elements of a stance and of a flight with free duration


@dataclass(frozen=True, kw_only=True)
class Ease:
    """A version of the task for a smooth program: what `build` is given instead, the least normal force in stance [N],
    least durations of stance and flight [s] (while these are free), and how it is solved."""

    task: Mapping[str, float] = field(default_factory=dict)
    load: float = 0.0
    shortest: tuple[float, float] = (0.03, 0.03)
    descent: Descent = field(default_factory=Descent)


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """Sequence of solves: versions with free durations, versions on the control grid, then rungs on finite elements."""

    free: tuple[Ease, ...]
    grid: tuple[Ease, ...]
    rungs: tuple[Rung, ...]


WARM = Descent(mu=1e-2, push=1e-3, iterations=1000)
NEAR = Descent(mu=1e-3, push=1e-4, iterations=1000)
ONE = Ladder(
    free=(Ease(task={"damping": 0.002, "friction": 0.7, "joint_rate": 40.0}),),
    grid=(Ease(task={"damping": 0.002, "friction": 0.65, "joint_rate": 40.0}, load=5.0, descent=WARM),),
    rungs=(Rung(rk_stages=5, iterations=200),),
)
MORE = Ladder(
    free=(
        Ease(task={"damping": 0.01}),
        Ease(task={"damping": 0.01, "friction": 0.77}, load=1.0, shortest=(0.12, 0.1), descent=NEAR),
        Ease(task={"damping": 0.01, "friction": 0.75}, load=3.0, shortest=(0.12, 0.1), descent=WARM),
        Ease(task={"damping": 0.01, "friction": 0.72}, load=4.0, shortest=(0.14, 0.1), descent=NEAR),
    ),
    grid=(
        Ease(task={"damping": 0.01}, descent=NEAR),
        Ease(task={"damping": 0.01}, descent=Descent(mu=1e-4, push=1e-5, iterations=1000)),
    ),
    rungs=(
        Rung(rk_stages=4, iterations=400, friction=0.78, damping=0.01, load=1.0, side=np.inf),
        Rung(rk_stages=5, iterations=400, friction=0.74, damping=0.01, load=2.0, side=3.0),
        Rung(rk_stages=5, iterations=300, friction=0.74, damping=0.01, load=4.0, side=1.5),
    ),
)


def climb(arguments: Mapping[str, Any], method: ns.FESDJ, progress: Any = None) -> ns.Solution:
    """Solve from the start "hops": smooth programs, then finite elements of rising order."""
    ladder = ONE if arguments["holes"] == 1 else MORE
    motion = smooth(ladder, arguments, method.control_stages)
    ocp, w = build(**arguments), np.empty(0)
    touch = touch_of_motion(motion, ocp.system)
    for rung in rungs_of(ladder, method.rk_stages):
        changed = build(**{**arguments, "friction": rung.friction, "damping": rung.damping})
        problem, state = held(changed, method.replace(rk_stages=rung.rk_stages), touch, rung)
        touch = touch_of_solution(problem.solution(replace(state, status=ns.Status.STOPPED)))
        w = state.w
        if progress is not None:
            progress(state)
    return solution_of(ns.transcribe(ocp, method), w)


def rungs_of(ladder: Ladder, rk_stages: int) -> list[Rung]:
    """Return the rungs up to the requested number of stages; the last one has this number."""
    lower = [rung for rung in ladder.rungs[:-1] if rung.rk_stages <= rk_stages]
    return [*lower, replace(ladder.rungs[-1], rk_stages=rk_stages)]


def smooth(ladder: Ladder, arguments: Mapping[str, Any], stages: int) -> Motion:
    """Return the motion of the smooth programs, each started from the previous one."""
    motion = free_hops(_program(arguments, ladder.free[0]), None, ladder.free[0])
    for ease in ladder.free[1:]:
        motion = free_hops(_program(arguments, ease), motion, ease)
    for ease in ladder.grid:
        motion = grid_hops(_program(arguments, ease), motion, stages, ease.descent)
    return motion


def _program(arguments: Mapping[str, Any], ease: Ease) -> SmoothProgram:
    shape = {name: arguments[name] for name in ("holes", "width", "depth")}
    return SmoothProgram(ocp=build(**{**arguments, **ease.task}), **shape, load=ease.load)


def solution_of(problem: ns.Transcription, w: np.ndarray) -> ns.Solution:
    """Return a point as a solution: solved means residuals of the unrelaxed problem below 1e-6, not stationarity."""
    state = ns.Homotopy().init(problem.mpcc, w, problem.parameters(), solvers=problem.solvers, clip=False)
    good = max(state.complementarity, state.infeasibility) <= RESIDUAL
    unknown = StationarityCertificate(
        stationarity=ns.Stationarity.UNKNOWN,
        b_stationary=None,
        lpec_value=np.nan,
        residual=np.nan,
        biactive=(),
        multipliers=None,
    )
    status = ns.Status.SOLVED if good else ns.Status.LOCALLY_INFEASIBLE
    return problem.solution(replace(state, status=status, certificate=unknown), solver="hops")


def free_hops(program: SmoothProgram, before: Motion | None, ease: Ease) -> Motion:
    """Solve with one hop per hole and free durations of stances and flights, from a motion or from postures."""
    feet, horizon, last = feet_of(program.holes), program.ocp.horizon, program.holes
    starts = np.array([0.7, *[0.3, 0.15] * (last - 1), 0.3, 0.0])
    starts[-1] = horizon - starts.sum()
    if before is not None:
        starts = np.diff([0.0, *before.events, horizon])
    lefts = np.cumsum([0.0, *starts])

    def start(k: int, share: float) -> Any:
        if before is not None:
            return before(lefts[k] + starts[k] * min(share, 1 - 1e-5))
        return np.array(_posture(k, share, feet[k], last, starts[k])), np.zeros(2), np.zeros(2)

    lengths = [program.variable(1, ease.shortest[f is None], 2.0, s) for f, s in zip(feet, starts, strict=True)]
    program.require(sum(lengths, ca.SX(0)) - horizon)
    x, c, every = ca.SX([0.0, *STANDING]), scheme_of(program.rk_stages).c, range(program.rk_stages)
    for k, (foot, length) in enumerate(zip(feet, lengths, strict=True)):
        count = FREE_ELEMENTS[foot is None]
        for n in range(count):
            guesses = [pressed(*start(k, (n + float(node)) / count)) for node in c]
            holes_at = every[:-1] if foot is None and n == count - 1 else every
            u = program.control(start(k, (n + 0.5) / count)[1])
            x = program.piece(foot, length / count, u, x, guesses, holes_at)
        if foot is None:
            x = program.land(float(feet[k + 1] or 0.0), x, start(k + 1, 1e-4)[0][4:])
    return program.solve(x, ease.descent)


def pressed(state: np.ndarray, control: np.ndarray, force: np.ndarray) -> tuple[np.ndarray, Any]:
    """Return state and force as a start; a force that hardly presses is replaced by the weight."""
    return state, force if force[1] > 1.0 else (0.0, WEIGHT)


@dataclass(frozen=True, kw_only=True)
class Timetable:
    """On a grid of control stages: the stages that begin with a release, and those that a landing parts, with the
    share of the stage before it. `before` are the times of the same events in the motion that it is made from."""

    length: float
    before: tuple[float, ...]
    releases: tuple[int, ...]
    landings: Mapping[int, float]

    @property
    def times(self) -> list[float]:
        """Times of release, landing, release, ... [s]."""
        landings = [(k + share) * self.length for k, share in self.landings.items()]
        return [t for pair in zip([k * self.length for k in self.releases], landings, strict=True) for t in pair]

    def old(self, t: float, horizon: float) -> float:
        """Return the time in the earlier motion that corresponds to this one."""
        return float(np.interp(t, [0.0, *self.times, horizon], [0.0, *self.before, horizon]))


def timetable(motion: Motion, horizon: float, stages: int) -> Timetable:
    """Releases between two control stages, where a control may cause them; landings within one, away from its ends: a
    motion that lands a little earlier or later has the same control there.

    Raises
    ------
    OptionError
        If two events share a control stage.
    """
    length, events = horizon / stages, motion.events
    releases = tuple(round(t / length) for t in events[::2])
    landings = {int(t / length): float(np.clip(t / length % 1.0, 0.25, 0.75)) for t in events[1::2]}
    order = [k for pair in zip(releases, landings, strict=False) for k in pair]
    if len(order) < len(events) or any(np.diff(order) <= 0):
        raise ns.OptionError(f"control_stages: two events lie in one of {stages} stages; take more of them.")
    return Timetable(length=length, before=tuple(events), releases=releases, landings=landings)


def grid_hops(program: SmoothProgram, before: Motion, stages: int, descent: Descent) -> Motion:
    """Solve the same with the controls of an equidistant grid, two elements per control stage."""
    feet, horizon, phase = feet_of(program.holes), program.ocp.horizon, 0
    table = timetable(before, horizon, stages)
    x, c, every = ca.SX([0.0, *STANDING]), scheme_of(program.rk_stages).c, range(program.rk_stages)
    for k in range(stages):
        now, lands = k * table.length, k in table.landings
        value = table.landings.get(k, 0.5)
        share = program.variable(1, 0.25, 0.75, value) if lands else value
        u = program.control(before(table.old(now + 0.5 * table.length, horizon))[1])
        phase += k in table.releases
        for half, (part, number) in enumerate(((share, value), (1 - share, 1 - value))):
            if lands and half == 1:
                phase += 1
                x = program.land(float(feet[phase] or 0.0), x, before(table.old(now + 1e-4, horizon))[0][4:])
            times = [table.old(now + float(node) * number * table.length * (1 - 1e-4), horizon) for node in c]
            starts = [pressed(*before(t)) for t in times]
            holes_at = every[:-1] if lands and half == 0 else every
            x = program.piece(feet[phase], part * table.length, u, x, starts, holes_at)
            now += number * table.length
    return program.solve(x, descent)


def feet_of(holes: int) -> list[float | None]:
    """Return the places where the foot stands, and None for the flights between."""
    return [0.0, *[place for k in range(holes) for place in (None, k + 1.0)]]


def _posture(phase: int, share: float, foot: float | None, last: int, duration: float) -> list[float]:
    """Return start values of the state: a leaning bent leg in stance, and a gliding one in flight."""
    z, hip, knee = BENT
    place = phase // 2
    if foot is None:
        return [place + share, z + 0.11, hip, knee, 1.0 / duration, 0.0, 0.0, 0.0]
    lean = 0.3 * (share - 0.5) if 0 < place < last else 0.0
    return [place + lean, z, hip, knee, 0.0, 0.0, 0.0, 0.0]
