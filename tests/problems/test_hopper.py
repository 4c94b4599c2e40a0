"""The hopper's problem: bounds and constraints written out anew, its starts, and the branch that they show."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import one_legged_hopper as model
from problems import one_legged_hopper as problem

PLACES = [(0.0, True), (0.5, True), (1.0, True), (1.1, False), (1.7, True)]


def values(ocp: ns.OCP, name: str, q: list[float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lower bound, value and upper bound of a constraint."""
    every = (*ocp.path_constraints, *ocp.terminal_constraints)
    constraint = next(c for c in every if c.name == name)
    found = ca.Function("c", [ocp.system.q], [constraint.expression])(q)
    return constraint.lower, np.array(found).ravel(), constraint.upper


def standing(x: float, z: float) -> list[float]:
    """Coordinates with a straight leg and the foot at (x, z)."""
    return [x, z + 0.4, 0.0, 0.0]


def test_problem_is_that_of_the_paper() -> None:
    ocp = problem.build()
    assert ocp.horizon == 2.5
    np.testing.assert_array_equal(ocp.x0, [0.0, 0.4, 0, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(ocp.x_bounds[0][:4], [-0.05, 0.2, -3 * np.pi / 8, -np.pi / 2])
    np.testing.assert_allclose(ocp.x_bounds[1][1:4], [0.55, 3 * np.pi / 8, np.pi / 2])
    np.testing.assert_array_equal(ocp.u_bounds, [[-60.0, -60.0], [60.0, 60.0]])
    cost = ca.Function("cost", [ocp.system.x, ocp.system.u], [ocp.stage_cost])
    assert float(cost(np.ones(8), [3.0, -4.0])) == 25.0
    assert ocp.system.contacts[0].friction == (0.8,)
    assert problem.centres(3) == (0.5, 1.5, 2.5)


def test_constraints_of_foot_knee_and_goal() -> None:
    ocp = problem.build()
    lower, value, upper = values(ocp, "foot", standing(0.3, 0.1))
    np.testing.assert_allclose(value, [0.3, 0.1], atol=1e-15)
    np.testing.assert_array_equal([lower, upper], [[-0.05, -0.005], [np.inf, 0.2]])
    lower, value, _ = values(ocp, "knee", standing(0.3, 0.1))
    np.testing.assert_allclose(value, [0.3, 0.3], atol=1e-15)
    np.testing.assert_array_equal(lower, [-0.05, 0.05])
    np.testing.assert_allclose(values(ocp, "goal", standing(3.0, 0.0))[1], 0.0, atol=1e-15)
    assert np.abs(values(ocp, "goal", standing(2.9, 0.0))[1]).max() == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("foot", "ratio"), [((0.5, 0.1), 1.0), ((1.0, 0.0), 1.0), ((0.5, 0.05), 0.25), ((0.9, 0.0), 0.64)]
)
def test_holes(foot: tuple[float, float], ratio: float) -> None:
    lower, value, _ = values(problem.build(), "hole_1", standing(*foot))
    assert value[0] == pytest.approx(ratio, abs=1e-12)
    assert lower[0] == 1.0


def test_holes_touch_and_narrower_ones_do_not() -> None:
    for name in ("hole_1", "hole_2"):
        assert values(problem.build(), name, standing(1.0, 0.0))[1][0] == pytest.approx(1.0, abs=1e-12)
        assert values(problem.build(width=0.45), name, standing(1.0, 0.0))[1][0] > 1.2


def test_glide_tells_nothing_of_contacts() -> None:
    ocp = problem.build()
    start = problem.glide(ocp, 3)
    feet = model.joints(start.x)[:, 2]
    assert not start.events
    assert not start.series
    assert (feet[1:-1, 1] > 0.01).all()
    np.testing.assert_allclose(start.x[[0, -1], :4], [[0.0, 0.4, 0.0, 0.0], [3.0, 0.4, 0.0, 0.0]], atol=1e-15)
    np.testing.assert_allclose(np.diff(start["x_hip"]), 3.0 / 20, rtol=1e-12)


def test_touch_knows_when_the_foot_stands() -> None:
    ocp = problem.build(holes=1, horizon=1.0)
    touch = problem.Touch(events=((1.05, False), (1.5, True)), start=problem.glide(ocp, 1))
    assert [(t, touch.stands(t)) for t, _ in PLACES] == PLACES


def test_branch_has_the_contacts_that_are_given() -> None:
    """Flight from 0.42 to 0.78 s, in stages of 0.2 s with two elements each: it fills the second and the first half.

    Without its events the same motion stands all the time.
    """
    ocp = problem.build(holes=1, horizon=1.0)
    method = ns.FESDJ(control_stages=5, finite_elements=2, rk_stages=2, gap_rate=True, isolate_forces=False)
    events = ((0.42, False), (0.78, True))
    start = problem.glide(ocp, 1)
    marked = replace(start, events=problem._marks(events))
    transcription = ns.transcribe(ocp, method)
    clear = problem._clear(
        transcription, problem.Touch(events=events, start=marked), transcription.initial_guess(marked)
    )
    blocks = list(transcription.mpcc.variables.blocks())
    forces = [clear[block.start] for block in blocks if block.name == "lambda_normal" and block.at.rk == 0]
    impulses = [clear[block.start] for block in blocks if block.name == "Lambda_normal"]
    assert [force > 0 for force in forces] == [True] * 5 + [False] * 2 + [True] * 3
    assert [number for number, impulse in enumerate(impulses) if impulse > 0] == [7]
    still = problem._clear(transcription, problem.Touch(events=(), start=start), transcription.initial_guess(start))
    assert all(still[block.start] > 0 for block in blocks if block.name == "lambda_normal")
    assert all(still[block.start] == 0 for block in blocks if block.name == "Lambda_normal")


def test_two_events_in_one_stage_are_refused() -> None:
    ocp = problem.build(holes=1, horizon=1.0)
    program = problem.SmoothProgram(ocp=ocp, holes=1, width=0.5, depth=0.1)
    zero = {"u": np.zeros(2), "left": np.zeros(8), "stages": np.zeros((3, 8)), "forces": np.zeros((3, 2))}
    pieces = [problem.Piece(foot=foot, h=h, **zero) for foot, h in ((0.0, 0.51), (None, 0.05), (1.0, 0.44))]
    motion = problem.Motion(pieces=tuple(pieces), violation=0.0, objective=0.0, word="")
    assert motion.events == pytest.approx([0.51, 0.56])
    with pytest.raises(ns.OptionError, match="two events"):
        problem.grid_hops(program, motion, 5)


def test_figures(tmp_path: Path) -> None:
    from problems.drawing import hopper

    ocp = problem.build(holes=1)
    drop = ns.simulate(ocp.system, x0=[0.0, 0.41, 0.3, -0.6, 0, 0, 0, 0], duration=0.2, steps=10)
    assert drop.impacts
    hopper.frames(drop, [(0.5, 0.5, 0.1)], tmp_path / "frames.png")
    hopper.torques(drop, 60.0, tmp_path / "torques.png")
    hopper.contact(drop, tmp_path / "contact.png")
    for name in ("frames", "torques", "contact"):
        assert (tmp_path / f"{name}.png").read_bytes()[:4] == b"\x89PNG"


def test_the_program_can_be_set() -> None:
    settings = problem.PROGRAM.settings.changed({**problem.QUICK, "start": "glide", "solver": "auto"})
    assert settings.arguments["holes"] == 1
    assert settings.arguments["start"] == "glide"
    assert (settings.method.control_stages, settings.method.rk_stages) == (36, 3)


@pytest.mark.slow
def test_one_hop() -> None:
    """The quick version: feasible to 1e-6, one landing, at x = 1 m within the touching point of the holes."""
    settings = problem.PROGRAM.settings.changed(problem.QUICK)
    arguments = {name: value for name, value in settings.arguments.items() if name != "start"}
    solution = problem.climb(arguments, settings.method)
    assert solution.success
    assert max(solution.complementarity, solution.infeasibility) < 1e-6
    (impact,) = solution.impacts
    assert model.joints(solution(impact.time))[2] == pytest.approx([1.0, 0.0], abs=1e-6)
    assert 40.0 < solution.objective < 80.0
