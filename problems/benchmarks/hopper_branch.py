"""The hopper on finite elements with prescribed contacts: one branch of the MPCC by one smooth solve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

import nosnoc_py as ns
from problems.benchmarks.hopper_smooth import Motion, scheme_of
from problems.benchmarks.hopper_task import trajectory

WEIGHT = 62.0  # a force of about the weight of the robot [N]
Place = tuple[int | None, int | None]  # control stage, element


@dataclass(frozen=True, eq=False, kw_only=True)
class Touch:
    """Contact times of the foot: events (time, lands), and the motion as a start."""

    events: tuple[tuple[float, bool], ...]
    start: ns.Trajectory

    def stands(self, t: float) -> bool:
        """Return True if the foot is on the ground."""
        past = [lands for time, lands in self.events if time <= t]
        return past[-1] if past else True


@dataclass(frozen=True, kw_only=True)
class Rung:
    """Solve with prescribed contacts: RK stages, IPOPT's iterations, seconds and first barrier parameter, and margins.

    A smaller cone and a price on fast joints change the problem; a least normal force in stance and a largest
    tangential force [N] in the element after an impact are bounds of the discretised one. All leave room for what the
    collocation does not see between its points: a motion that sticks within margins is one without them, too.
    """

    rk_stages: int
    iterations: int
    seconds: float = 300.0
    mu: float = 1e-4
    tolerance: float = 1e-10
    friction: float = 0.65
    damping: float = 0.003
    load: float = 5.0
    side: float = 2.0


def touch_of_motion(motion: Motion, system: ns.CLS) -> Touch:
    """Return the contact times of a smooth program."""
    events = tuple((t, k % 2 == 1) for k, t in enumerate(motion.events))
    t, x, u, times, forces, accelerations = [0.0], [motion.pieces[0].left], [], [], [], []
    for piece, left in zip(motion.pieces, motion.edges, strict=False):
        scheme = scheme_of(len(piece.stages))
        a = np.linalg.inv(scheme.a) @ (piece.stages - piece.left)[:, 4:] / piece.h
        if left in motion.events and piece.foot is not None:
            t, x = [*t, left], [*x, piece.left]
        # A force that jumps at a node has both values next to it.
        t += [float(left + c * piece.h) for c in scheme.c]
        x += list(piece.stages)
        times += [left + 2e-9, *(left + scheme.c[:-1] * piece.h), left + piece.h + 1e-9]
        forces += [piece.forces[0], *piece.forces]
        accelerations += [a[0], *a]
        u.append(piece.u)
    series = {"lambda_tangent[foot]": np.array(forces)[:, 0], "lambda_normal[foot]": np.array(forces)[:, 1]}
    names = system.names["v"]
    series |= {f"acceleration[{name}]": np.array(accelerations)[:, i] for i, name in enumerate(names)}
    start = trajectory(system, np.array(t), np.array(x), motion.edges, np.array(u))
    held = {name: ns.solution.Series(np.array(times), values) for name, values in series.items()}
    return Touch(events=events, start=replace(start, events=marks(events), series=held))


def touch_of_solution(solution: ns.Solution) -> Touch:
    """Return the contact times of a solution on other finite elements."""
    kinds = {"impact": True, "release": False}
    events = tuple((e.time, kinds[e.kind]) for e in solution.events if e.kind in kinds)
    wanted = ("lambda_normal", "lambda_tangent", "acceleration")
    series = {name: values for name, values in solution.series.items() if name.startswith(wanted)}
    start = ns.Trajectory(
        t=solution.t,
        x=solution.x,
        state_names=solution.state_names,
        u_grid=solution.u_grid,
        u=solution.u,
        control_names=solution.control_names,
        interpolant=solution.interpolant,
        events=marks(events),
        series=series,
    )
    return Touch(events=events, start=start)


def marks(events: Sequence[tuple[float, bool]]) -> tuple[ns.Event, ...]:
    """Return the events that a start puts on nodes; a release is marked as an impact with zero impulse."""
    return tuple(ns.Event(t, "foot" if lands else "release", "impact", impulse=3.0 * lands) for t, lands in events)


def held(ocp: ns.OCP, method: ns.FESDJ, touch: Touch, rung: Rung) -> tuple[ns.Transcription, Any]:
    """Solve on the finite elements with prescribed contacts: (transcription, state of the homotopy)."""
    problem = ns.transcribe(ocp, method)
    w = np.clip(problem.initial_guess(touch.start), problem.mpcc.lbw, problem.mpcc.ubw)
    stands, lands = contacts(problem, touch, w)
    clear = shown(problem, stands, lands, w)
    for block in problem.mpcc.variables.blocks():
        if block.name.startswith(("Lambda_", "Xi_", "Y_")):
            w[block.rows] = clear[block.rows]
    problem = replace(problem, mpcc=with_margins(problem, stands, lands, rung))
    p, homotopy = problem.parameters(), ns.Homotopy(ipopt=_options(rung))
    finish = homotopy.finisher(problem.solvers)
    outcome = finish(w, p, np.inf, "hold", finish.guess(clear, p))
    return problem, homotopy.init(problem.mpcc, outcome.w, p, solvers=problem.solvers, clip=False)


def _options(rung: Rung) -> dict[str, Any]:
    limits = {"max_iter": rung.iterations, "max_wall_time": rung.seconds}
    start = {"mu_strategy": "monotone", "mu_init": rung.mu, "bound_push": 0.01 * rung.mu, "bound_frac": 0.01 * rung.mu}
    ends = {"tol": 1e-5, "constr_viol_tol": rung.tolerance, "compl_inf_tol": 1e-6, "dual_inf_tol": 1.0}
    return {**limits, **start, **ends, "bound_relax_factor": rung.tolerance}


def contacts(problem: ns.Transcription, touch: Touch, w: np.ndarray) -> tuple[Mapping[Place, bool], set[Place]]:
    """Return the elements, (stage, element), in which the foot stands, and those that begin with a landing."""
    variables = problem.mpcc.variables
    length = problem.ocp.horizon / problem.grid.control_stages
    places = [(block.at.stage, block.at.element) for block in variables.blocks("s")]
    steps = [
        float(w[block.start]) * length / problem.grid.elements[block.at.stage or 0] for block in variables.blocks("s")
    ]
    middles = np.cumsum(steps) - 0.5 * np.array(steps)
    stands = {place: touch.stands(float(t)) for place, t in zip(places, middles, strict=True)}
    return stands, {b for a, b in pairwise(places) if stands[b] and not stands[a]}


def shown(problem: ns.Transcription, stands: Mapping[Place, bool], lands: set[Place], w: np.ndarray) -> np.ndarray:
    """Return a point that shows the contacts of all elements clearly: not a motion, only a branch."""
    w = w.copy()
    for block in problem.mpcc.variables.blocks():
        place = (block.at.stage, block.at.element)
        if place in stands:
            value = _value(block.name, stands[place], place in lands)
            w[block.rows] = w[block.rows] if value is None else value
    return w


def _value(name: str, stands: bool, lands: bool) -> float | None:
    """Return a value of a variable that determines its side clearly; None if it does not matter."""
    values = {"drift_plus": 1.0 * stands, "drift_minus": 0.5 * stands, "lambda_normal": WEIGHT * stands}
    values |= {"Lambda_normal": 3.0 * lands, "lambda_tangent[foot]": 0.0, "Lambda_tangent[foot]": 0.0}
    if name in values:
        return values[name]
    return 0.0 if stands and name.startswith(("xi_", "Xi_", "Y_plus", "Y_minus")) else None


def with_margins(problem: ns.Transcription, stands: Mapping[Place, bool], lands: set[Place], rung: Rung) -> Any:
    """Return the program with tighter bounds on the forces of a foot that stands."""
    lower, upper = problem.mpcc.lbw.copy(), problem.mpcc.ubw.copy()
    for block in problem.mpcc.variables.blocks():
        place = (block.at.stage, block.at.element)
        if block.name == "lambda_normal" and stands.get(place):
            lower[block.rows] = rung.load
        if block.name == "lambda_tangent[foot]" and place in lands:
            lower[block.rows], upper[block.rows] = -rung.side, rung.side
    return replace(problem.mpcc, lbw=lower, ubw=upper)
