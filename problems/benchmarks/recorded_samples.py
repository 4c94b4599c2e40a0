"""Answers of real-time samples beside optima of more time: `python -m problems.benchmarks.recorded_samples`.

Loops of `problems.loops` run under `ns.MPC` with one period for each control and one for each preparation. Of every
recorded sample the measured state, the plan before it and the controls that were answered for the whole horizon are
kept; samples with a new order of contacts come first. Afterwards these controls are simulated event by event from the
measured state, and the objective of the OCP is integrated along that motion. References are treated alike:

* "grid": the program on the fixed grid, searched with many more nodes; its controls, and those of finite elements
  solved on the order of their motion, as a preparation does;
* "again": `Transcription.resolve` of the plan before, with seconds instead of milliseconds;
* "anew": the first plan of a controller that begins at this sample, by searches from several starts. The others are
  near the answer, or near the plan before it, and may share their local optimum;
* "polished": finer finite elements, solved on the orders of the motions of the answer and of all these references. The
  grids of some controllers are so coarse that their own solutions, simulated, cost several times what they predict;
* "first": the answered controls of the first period, which are all that a loop applies, followed by the best ones that
  are found from the state to which they lead.

Two ratios compare with the best of these: that of the answered controls of the whole horizon, and that of "first", the
loss of what is applied. A reference that violates bounds or constraints more than the answer does is none. Slacks of
soft constraints count as zero. "Again" and "anew" run in processes of their own, which end after twice their time.

Bad answers are results: the exit code is 0 if every loop has been recorded and every answer has been simulated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np
from attrs import evolve

import nosnoc_py as ns
from nosnoc_py.control.grid_plan import GridAnswer
from nosnoc_py.control.mpc_step import Source
from nosnoc_py.errors import NosnocError
from nosnoc_py.processes import Forked, can_fork
from nosnoc_py.progress import Progress
from nosnoc_py.simulation.certification.measures import objective, violations
from nosnoc_py.simulation.event_driven.options import THROUGH_TOUCHES
from nosnoc_py.simulation.event_driven.run import event_driven_simulator, trajectory_of
from nosnoc_py.simulation.guessed import NEARLY
from nosnoc_py.systems.controls import control_of
from nosnoc_py.transcription import Answer, Transcription
from nosnoc_py.transcription.again import solve_along, start_again
from nosnoc_py.transcription.condensed import condensed
from problems.benchmarks.orders import check_names
from problems.loops import LOOPS
from problems.loops.common import Loop, closed
from problems.runner import Report, picked, program, tabled
from problems.settings import Settings

Array = np.ndarray
NODES = 4000  # programs of a search for the reference on the fixed grid
NEAR = 0.1  # an answer that costs at most this fraction more than its reference is a good one
GRACE = 2.0  # a process that has not ended after this many time limits is ended
FINE = 3  # Runge-Kutta stages of the finer elements, at least
LATE, FAILED = "late", "failed"
WHICH = ("loop", "seed", "sample")
VALUES = ("predicted", "cost", "first", "grid", "again", "anew", "polished", "ratio", "first_ratio")
ABOUT = ("new", "source", "gap", "violation", "how", "seconds")


@dataclass(frozen=True, eq=False, kw_only=True)
class Sample:
    """One sample of a loop.

    Parameters
    ----------
    index : int
    x, p : (n_x,), (n_p,)
        State that the answer starts from, and parameters.
    u : (N, n_u)
        Controls of the answer.
    new : bool
        The order of contacts is not that of the plan before.
    source : str
    predicted, gap : float
        Objective that the controller expected of its answer, and relative difference of the best objective on the
        fixed grid and its bound.
    grid : GridAnswer, optional
        Answer of the fixed grid.
    before : Answer or Solution, optional
        The last plan before the sample.
    shift : int
        Control stages from its start to the sample.
    """

    index: int
    x: Array
    p: Array
    u: Array
    new: bool
    source: str
    predicted: float
    gap: float
    grid: GridAnswer | None
    before: Any
    shift: int


class RecordingMPC(ns.MPC):
    """MPC that keeps what is needed to judge its answers."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.samples: list[Sample] = []
        self._known: tuple[Any, float] = None, 0.0
        self._before: tuple[Any, float] = None, 0.0

    def step(self, x: Any, t: float, p: Any = None) -> Array:
        """Return the control, as `ns.MPC.step`."""
        if (prepared := self._prepared_for(t)) is not None and prepared.plan is not None:
            self._known = prepared.plan, prepared.begin
        elif self._plan is not None:
            self._known = self._plan, self._began
        (before, began), index = self._known, len(self.samples)
        u = super().step(x, t, p)
        last = self.last
        assert last is not None
        shift = round((t + self.delay - began) / self.stage)
        if not 0 <= shift < self.problem.grid.control_stages:
            before = None
        grid = self._searched
        if grid is not None and not np.array_equal(grid.x, last.planned_from):
            grid = None
        self.samples.append(
            Sample(
                index=index,
                x=last.planned_from,
                p=self._parameters(t, p),
                u=self._answered(u, before, shift),
                new=self._is_new(t),
                source=str(last.source),
                predicted=last.quality.objective,
                gap=last.quality.gap,
                grid=grid,
                before=before,
                shift=shift,
            )
        )
        return u

    def _answered(self, u: Array, before: Any, shift: int) -> Array:
        """Return the controls (N, n_u) whose first one acts."""
        last, count = self.last, self.problem.grid.control_stages
        assert last is not None
        if last.source is Source.SEARCHED:
            assert self._searched is not None
            rows = self._searched.u
        elif last.source is Source.SOLVED:
            rows = self._planned(last.plan, last.planned_from)
        elif (rest := self._rest(before, shift)) is not None:
            rows = rest
        else:
            rows = np.tile(u, (count, 1))
        return np.vstack([u, self._within_bounds(rows)[1:]])

    def _planned(self, plan: Any, x: Array) -> Array:
        """Return the controls of a plan for a state: those of its condensed program if it was prepared for another."""
        if isinstance(plan, Answer):
            there = plan.state.p[self.problem.mpcc.parameters["x0"]]
            return plan.u if np.array_equal(there, x) else condensed(self.problem, plan).at(x).u
        return np.asarray(plan.u)

    def _is_new(self, t: float) -> bool:
        """Return True if the branch of the plan is not that of the plan at the sample before."""
        last, (earlier, began) = self.last, self._before
        assert last is not None
        if last.source is not Source.SOLVED:
            self._before = None, 0.0
            return last.source is Source.SEARCHED
        self._before = last.plan, t
        shift = round((t - began) / self.stage)
        if earlier is None or not 0 <= shift < self.problem.grid.control_stages:
            return True
        one, other = start_again(self.problem, last.plan, 0), start_again(self.problem, earlier, shift)
        if one is None or other is None:
            return True
        return not all(np.array_equal(getattr(one[1], name), getattr(other[1], name)) for name in ("G", "H", "r"))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One sample with its references.

    Parameters
    ----------
    loop : str
    seed, sample : int
    new : bool
        The order of contacts is not that of the plan before.
    source : str
        Source of the control.
    predicted, gap : float
        Objective that the controller expected of its answer, and above zero if its search was cut.
    cost, violation : float
        Objective of the answer, simulated, and its largest relative violation of a bound or constraint.
    first : float
        Objective of the first controls of the answer, followed by the best ones that are found.
    grid, again, anew, polished : float
        Objectives of the references.
    how : str
        How the plan before was solved again; "late" if its process was ended, "failed" without a solution.
    seconds : float
        Time of that [s].
    ratio, first_ratio : float
        Objectives of the answer and of its first controls over that of the best reference.
    message : str
        Reason if there is no sample.
    """

    loop: str
    seed: int
    sample: int = -1
    new: bool = False
    source: str = ""
    predicted: float = np.nan
    gap: float = np.nan
    cost: float = np.nan
    violation: float = np.nan
    first: float = np.nan
    grid: float = np.nan
    again: float = np.nan
    anew: float = np.nan
    polished: float = np.nan
    how: str = ""
    seconds: float = np.nan
    ratio: float = np.nan
    first_ratio: float = np.nan
    message: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Played:
    """Motion of controls (N, n_u) from a state: objective, largest relative violation, end and trajectory.

    Without a trajectory the motion does not reach the end of the horizon.
    """

    u: Array
    cost: float = np.inf
    violation: float = np.inf
    end: Array | None = None
    motion: ns.Trajectory | None = None


def played(ocp: ns.OCP, x: Array, p: Array, u: Array, seconds: float) -> Played:
    """Simulate controls (N, n_u) over the horizon, event by event.

    Parameters
    ----------
    ocp : OCP
    x, p : (n_x,), (n_p,)
    u : (N, n_u)
        Without slacks of soft constraints.
    seconds : float
        Time limit.
    """
    system = ocp.system
    p = np.append(p, np.zeros(system.n_p - len(p)))
    control = control_of(np.pad(u, ((0, 0), (0, system.n_u - u.shape[1]))), system.n_u, float(ocp.horizon))
    try:
        simulator = event_driven_simulator(system, THROUGH_TOUCHES, x, control, p)
        history = simulator.run(x, control, p, deadline=time.monotonic() + seconds)
        if not history.status.success:
            return Played(u=u)
        worst = max((one.share for one in violations(ocp, [history])), default=0.0)
        cost, motion = objective(ocp, [history], history.x), trajectory_of(system, history, control)
        return Played(u=u, cost=cost, violation=worst, end=history.x, motion=motion)
    except NosnocError:
        return Played(u=u)


def finer(method: Any, stages: int) -> Any:
    """Return finer elements with switch detection, for the last control stages of a horizon."""
    elements = method.finite_elements
    least = max(2, elements) if isinstance(elements, int) else tuple(max(2, each) for each in elements[-stages:])
    return method.replace(
        control_stages=stages, finite_elements=least, rk_stages=max(FINE, method.rk_stages), switch_detection=True
    )


class Judge:
    """Judge of the samples of one controller.

    Parameters
    ----------
    mpc : RecordingMPC
    method : FESDJ or FESD
        Of the controller.
    seconds : float
        Time limit of every computation.
    """

    def __init__(self, mpc: RecordingMPC, method: Any, seconds: float) -> None:
        self.mpc, self.seconds = mpc, seconds
        ocp, stages = mpc.ocp, mpc.problem.grid.control_stages - mpc.stages
        self.fine: Transcription = ns.transcribe(ocp, finer(method, mpc.problem.grid.control_stages))
        # The horizon in two parts: the first period, without a cost at its end, and the rest of it.
        self.period = evolve(ocp, horizon=mpc.period, terminal_cost=0.0, terminal_constraints=())
        later = evolve(ocp, horizon=mpc.stage * stages)
        self.rest: Transcription = ns.transcribe(later, finer(method, stages))
        costs = ca.vertcat(ca.SX(ocp.stage_cost), ca.SX(ocp.terminal_cost))
        self.divisible = not ca.depends_on(costs, ocp.system.x_initial)

    def row(self, sample: Sample, name: str, seed: int) -> Row:
        """Return the row of a sample."""
        answer = self.played(self.mpc.ocp, sample.x, sample.p, sample.u)
        most = max(NEARLY, answer.violation)
        grid = self.on_the_grid(sample)
        began = time.monotonic()
        u, how = self.once_again(sample, answer.motion)
        taken = time.monotonic() - began
        again, anew = (
            [] if controls is None else [self.played(self.mpc.ocp, sample.x, sample.p, controls)]
            for controls in (u, self.anew(sample))
        )
        starts = (answer, *grid, *again, *anew)
        polished = [one for start in starts for one in self.polished(self.fine, sample.x, sample.p, start)]
        references = [*grid, *again, *anew, *polished]
        allowed = [one for one in references if one.violation <= most]
        best = min(allowed, key=lambda one: one.cost, default=None)
        first = self.first(sample, [answer, *([] if best is None else [best])], most)
        reference = float(first if best is None else np.fmin(best.cost, first))
        size = max(abs(reference), np.finfo(float).tiny) if np.isfinite(reference) else np.nan
        ratio, first_ratio = (1.0 + (cost - reference) / size for cost in (answer.cost, first))
        return Row(
            loop=name, seed=seed, sample=sample.index, new=sample.new, source=sample.source,
            predicted=sample.predicted, gap=sample.gap, cost=answer.cost, violation=answer.violation, first=first,
            grid=_least(grid, most), again=_least(again, most), anew=_least(anew, most),
            polished=_least(polished, most), how=how, seconds=taken, ratio=ratio, first_ratio=first_ratio,
            message="" if np.isfinite(answer.cost) else "the controls of the answer cannot be simulated",
        )  # fmt: skip

    def on_the_grid(self, sample: Sample) -> list[Played]:
        """Return the motions of the fixed grid's best controls and of finite elements on the order of that motion."""
        if sample.grid is None:
            return []
        program = sample.grid.condensed
        search = program.solve(sample.x, sample.grid.motion.sides, nodes=NODES)
        if not search.found:
            return []
        u = program.grid.controls(program.motion_of(search, sample.x), sample.grid.ends)
        first = self.played(self.mpc.ocp, sample.x, sample.p, u)
        return [first, *self.polished(self.mpc.problem, sample.x, sample.p, first)]

    def polished(self, problem: Transcription, x: Array, p: Array, start: Played) -> list[Played]:
        """Return the motion of a program's solution on the order of a motion; empty without one."""
        if start.motion is None:
            return []
        answer = solve_along(problem, start.motion, problem.parameters(x, p), self.seconds)
        return [] if answer is None else [self.played(problem.ocp, x, p, answer.u)]

    def first(self, sample: Sample, candidates: Sequence[Played], most: float) -> float:
        """Return the objective of the answer's controls of a period, followed by the best of other candidates."""
        stages, p = self.mpc.stages, sample.p
        start = self.played(self.period, sample.x, p, sample.u[:stages])
        if start.end is None or not self.divisible or start.violation > most:
            return np.inf if self.divisible else np.nan
        begin = [self.played(self.rest.ocp, start.end, p, one.u[stages:]) for one in candidates]
        better = [one for each in begin for one in self.polished(self.rest, start.end, p, each)]
        return start.cost + _least([*begin, *better], most)

    def once_again(self, sample: Sample, guess: Any) -> tuple[Array | None, str]:
        """Return the controls of the plan before, solved again, and how; None without a solution.

        Without a plan the problem is solved from a guess.
        """
        problem = self.mpc.problem
        given: dict[str, Any] = {"x0": sample.x, "p": sample.p, "time_limit": self.seconds}

        def solved() -> tuple[Array | None, str]:
            if sample.before is None:
                solution = problem.solve(guess=guess, **given)
                return (np.asarray(solution.u), "solved") if solution.success else (None, FAILED)
            answer = problem.resolve(sample.before, shift=sample.shift, **given)
            return (answer.u, answer.how) if answer.success else (None, FAILED)

        return self.elsewhere(solved)

    def anew(self, sample: Sample) -> Array | None:
        """Return the first controls (N, n_u) of a controller that begins here, or None."""
        mpc = self.mpc

        def planned() -> tuple[Array | None, str]:
            other = RecordingMPC(mpc.problem, period=mpc.period)
            other.step(sample.x, 0.0, sample.p)
            return other.samples[0].u, ""

        return self.elsewhere(planned)[0]

    def elsewhere(self, function: Callable[[], tuple[Array | None, str]]) -> tuple[Array | None, str]:
        """Return what a function returns within `GRACE` time limits; None if it has to be ended, or fails."""
        if not can_fork():
            return function()
        helper = Forked(lambda _: function())
        try:
            helper.send(None, GRACE * self.seconds)
            success, value = helper.answer()
        except EOFError:
            return None, LATE if helper.late else FAILED
        finally:
            helper.close()
        return value if success else (None, FAILED)

    def played(self, ocp: ns.OCP, x: Array, p: Array, u: Array) -> Played:
        """Simulate controls (N, n_u) within their bounds."""
        inside = np.clip(u[:, : self.mpc.system.n_u], self.mpc.lower, self.mpc.upper)
        return played(ocp, x, p, inside, self.seconds)


def _least(motions: Sequence[Played], most: float) -> float:
    return min((one.cost for one in motions if one.violation <= most), default=np.inf)


def chosen(samples: Sequence[Sample], most: int) -> list[Sample]:
    """Return at most so many samples, spread over the run; those with a new order come first."""
    new, kept = ([one for one in samples if one.new is wanted] for wanted in (True, False))
    first = _spread(new, most)
    return sorted([*first, *_spread(kept, most - len(first))], key=lambda one: one.index)


def _spread(samples: Sequence[Sample], most: int) -> list[Sample]:
    places = np.linspace(0, len(samples) - 1, min(most, len(samples)))
    return [samples[k] for k in dict.fromkeys(places.round().astype(int).tolist())]


def recorded(loop: Loop, seed: int, length: int, kick: float | None = None) -> RecordingMPC:
    """Run a loop and return its controller with all samples."""
    mpc = RecordingMPC(loop.ocp, loop.method, period=loop.period, deadline=loop.period, preparation=loop.period)
    closed(loop, mpc, samples=length, seed=seed, kick=kick)
    return mpc


def experiment(
    *,
    loops: Sequence[str] = (),
    seeds: int = 2,
    length: int = 100,
    samples: int = 25,
    seconds: float = 30.0,
    kick: float = -1.0,
    callback: Callable[[Any], Any] | None = None,
) -> Iterator[Row]:
    """Yield the rows of all loops.

    Parameters
    ----------
    loops : tuple of str
        Names of `problems.loops.LOOPS`; by default all.
    seeds : int
    length : int
        Samples of a run.
    samples : int
        Those that are judged; the first one of a run, which has no limit of time, is not.
    seconds : float
        Time limit of each reference.
    kick : float
        Size of the kicks, in the unit of their state; negative: that of each loop, 0: none.

    Raises
    ------
    OptionError
        For an unknown name.
    """
    check_names(loops=(loops, LOOPS))
    for name in loops or LOOPS:
        for seed in range(seeds):
            try:
                loop = LOOPS[name]()
                mpc = recorded(loop, seed, length, None if kick < 0.0 else kick)
                judge = Judge(mpc, loop.method, seconds)
            except Exception as error:  # the other loops have to run in any case
                yield Row(loop=name, seed=seed, message=f"{type(error).__name__}: {error}")
                continue
            for sample in chosen(mpc.samples[1:], samples):
                row = judge.row(sample, name, seed)
                yield row
                if callback is not None:
                    callback(f"{name}, seed {seed}, sample {row.sample}: ratio {row.ratio:.3g}")


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return one line for every loop."""
    lines = []
    for name in dict.fromkeys(row.loop for row in rows):
        of = [row for row in rows if row.loop == name and row.sample >= 0]
        lines.append(
            {
                "loop": name, "samples": len(of), "new": sum(row.new for row in of),
                "compared": sum(not np.isnan(row.ratio) for row in of),
                **_shares("", [row.ratio for row in of]), **_shares("first_", [row.first_ratio for row in of]),
                "late": sum(row.how == LATE for row in of),
            }
        )  # fmt: skip
    return lines


def _shares(prefix: str, ratios: Sequence[float]) -> dict[str, float]:
    known = sorted(ratio for ratio in ratios if not np.isnan(ratio))
    near = sum(ratio <= 1.0 + NEAR for ratio in known)
    values = [near / len(known), *np.percentile(known, (50, 90), method="higher"), known[-1]] if known else [np.nan] * 4
    return {f"{prefix}{key}": float(value) for key, value in zip(("near", "p50", "p90", "worst"), values, strict=True)}


def run(settings: Settings, progress: Progress) -> Report:
    """Record, judge and report."""
    started = time.monotonic()
    rows = list(experiment(**settings.arguments, callback=progress))
    lines = summary(rows)
    return tabled(
        {"summary": lines, "rows": [vars(row) for row in rows], "wall_seconds": time.monotonic() - started},
        not any(row.message for row in rows),
        {
            "objectives of answers and of references": [picked(row, *WHICH, *VALUES) for row in rows],
            "answers; how the plan before was solved again": [picked(row, *WHICH, *ABOUT) for row in rows],
            f"near: share of answers within {NEAR:.0%} of their reference": lines,
        },
        said=[f"{row.loop}, seed {row.seed}, sample {row.sample}: {row.message}" for row in rows if row.message],
    )


PROGRAM = program(
    __name__, run, experiment,
    quick={"loops": ("cart_pole", "paddle"), "seeds": 1, "length": 4, "samples": 1, "seconds": 5.0},
)  # fmt: skip
