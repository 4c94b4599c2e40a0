"""Simulations of the scenes by this library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from problems.benchmarks.accuracy.scene import SAMPLES, Array, Candidate, Scene

TOLERANCES = (1e-3, 1e-7, 1e-12)
ELEMENT_STEPS = (1, 4, 16)  # per sample
FIXED_STEPS = (5, 20, 80, 320, 1280)
EVENT_DRIVEN, ELEMENTS, STEPPING = "EventDriven", "FESDJ", "TimeStepping"


def candidates(scene: Scene, quick: bool) -> Iterator[Candidate]:
    """Return all methods, from coarse to fine."""
    # One model for each program, not one for all: the set-up of the others would seem to cost nothing.
    system = cache(lambda program: system_of(scene))

    def made(program: str, settings: str, method: Any, grain: float, series: str = "", **options: Any) -> Candidate:
        def prepare() -> Callable[[], Array]:
            motion = {"x0": scene.x0, "duration": scene.duration, "method": method, **options}
            built = system(program)
            return lambda: _positions(scene, ns.simulate(built, **motion))

        return Candidate(program=program, settings=settings, grain=grain, series=series, prepare=prepare)

    for tolerance in TOLERANCES[1:2] if quick else TOLERANCES:
        events = ns.EventDriven(rtol=tolerance, atol=0.1 * tolerance, grazing="continue")
        yield made(EVENT_DRIVEN, f"rtol={tolerance:g}", events, 0.0)
    for stages in (2,) if quick else (2, 3):
        elements = ns.FESDJ(rk_stages=stages, error_tolerance=None)
        for count in ELEMENT_STEPS[:1] if quick else ELEMENT_STEPS:
            steps = SAMPLES * count
            yield made(ELEMENTS, f"{steps} steps, {stages} stages", elements, count, str(stages), steps=steps)
    for scheme in ("moreau_jean", "stewart_trinkle"):
        stepping = ns.TimeStepping().replace(scheme=scheme)
        for count in FIXED_STEPS[:2] if quick else FIXED_STEPS:
            steps = SAMPLES * count
            yield made(STEPPING, f"{steps} steps, {scheme}", stepping, count, scheme, steps=steps)


def _positions(scene: Scene, trajectory: ns.Trajectory) -> Array:
    """Return positions at the samples; NaN after a simulation that ended early."""
    if not trajectory.success:
        return np.full((SAMPLES, scene.n_q), np.nan)
    return np.asarray(trajectory(scene.times))[:, : scene.n_q]


def system_of(scene: Scene) -> ns.CLS:
    """Return the scene as a system."""
    return planar_system(scene) if scene.robot is None else scene.robot.system()


def planar_system(scene: Scene) -> ns.CLS:
    """Return the bodies of a scene as a system."""
    sizes = [3 if body.turns else 1 for body in scene.bodies]
    q, v = ca.SX.sym("q", sum(sizes)), ca.SX.sym("v", sum(sizes))
    moves = ns.Coordinates(q, v)
    masses, force, contacts, starts = [], [], [], np.cumsum([0, *sizes])
    below: Any = ns.HalfSpace((0, 1))
    laws = dict(friction=scene.friction, restitution=scene.restitution)
    for k, body in enumerate(scene.bodies):
        own = q[int(starts[k]) : int(starts[k + 1])]
        centre, angle = (own[:2], own[2]) if body.turns else (ca.vertcat(body.centre[0], own), ca.SX(0))
        turn = ca.vertcat(ca.horzcat(ca.cos(angle), -ca.sin(angle)), ca.horzcat(ca.sin(angle), ca.cos(angle)))
        along, _, up = (body.mass * part for part in scene.gravity)
        masses += [body.mass, body.mass, body.inertia] if body.turns else [body.mass]
        force += [along, up, 0.0] if body.turns else [up]
        for j, foot in enumerate(body.feet):
            sphere = ns.Placed(ns.Sphere(body.radius), centre + turn @ ca.DM(foot), angle, coordinates=moves)
            contacts += ns.contacts(sphere, below, name=f"{k}.{j}", **laws)
        top = centre + turn @ ca.DM([0.0, body.half[1]])
        below = ns.Placed(ns.HalfSpace((0, 1)), top, angle, coordinates=moves)
    return ns.CLS(q=q, v=v, mass_matrix=ca.diag(ca.DM(masses)), force=ca.DM(force), contacts=contacts)
