"""The hopper's problem: bounds and constraints written out anew, its starts, and the branch that they show."""

from __future__ import annotations

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import one_legged_hopper as model
from problems import one_legged_hopper as problem
from problems.benchmarks import hopper_branch, hopper_ladder, hopper_smooth, hopper_task

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
    ocp = hopper_task.build()
    assert ocp.horizon == 2.5
    np.testing.assert_array_equal(ocp.x0, [0.0, 0.4, 0, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(ocp.x_bounds[0][:4], [-0.05, 0.2, -3 * np.pi / 8, -np.pi / 2])
    np.testing.assert_allclose(ocp.x_bounds[1][1:4], [0.55, 3 * np.pi / 8, np.pi / 2])
    np.testing.assert_array_equal(ocp.u_bounds, [[-60.0, -60.0], [60.0, 60.0]])
    cost = ca.Function("cost", [ocp.system.x, ocp.system.u], [ocp.stage_cost])
    assert float(cost(np.ones(8), [3.0, -4.0])) == 25.0
    assert ocp.system.contacts[0].friction == (0.8,)
    assert hopper_task.centres(3) == (0.5, 1.5, 2.5)


def test_constraints_of_foot_knee_and_goal() -> None:
    ocp = hopper_task.build()
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
    lower, value, _ = values(hopper_task.build(), "hole_1", standing(*foot))
    assert value[0] == pytest.approx(ratio, abs=1e-12)
    assert lower[0] == 1.0


def test_holes_touch_and_narrower_ones_do_not() -> None:
    for name in ("hole_1", "hole_2"):
        assert values(hopper_task.build(), name, standing(1.0, 0.0))[1][0] == pytest.approx(1.0, abs=1e-12)
        assert values(hopper_task.build(width=0.45), name, standing(1.0, 0.0))[1][0] > 1.2


def test_glide_tells_nothing_of_contacts() -> None:
    ocp = hopper_task.build()
    start = hopper_task.glide(ocp, 3)
    feet = model.joints(start.x)[:, 2]
    assert not start.events
    assert not start.series
    assert (feet[1:-1, 1] > 0.01).all()
    np.testing.assert_allclose(start.x[[0, -1], :4], [[0.0, 0.4, 0.0, 0.0], [3.0, 0.4, 0.0, 0.0]], atol=1e-15)
    np.testing.assert_allclose(np.diff(start["x_hip"]), 3.0 / 20, rtol=1e-12)


def test_touch_knows_when_the_foot_stands() -> None:
    ocp = hopper_task.build(holes=1, horizon=1.0)
    touch = hopper_branch.Touch(events=((1.05, False), (1.5, True)), start=hopper_task.glide(ocp, 1))
    assert [(t, touch.stands(t)) for t, _ in PLACES] == PLACES


def branch_of(events: tuple[tuple[float, bool], ...]) -> tuple[ns.Transcription, hopper_branch.Touch, np.ndarray]:
    """Five stages of 0.2 s with two elements each, and a start that marks the events."""
    ocp = hopper_task.build(holes=1, horizon=1.0)
    method = ns.FESDJ(control_stages=5, finite_elements=2, rk_stages=2, gap_rate=True, isolate_forces=False)
    start = replace(hopper_task.glide(ocp, 1), events=hopper_branch.marks(events))
    transcription = ns.transcribe(ocp, method)
    return transcription, hopper_branch.Touch(events=events, start=start), transcription.initial_guess(start)


FLIGHT = ((0.42, False), (0.78, True))


def test_branch_has_the_contacts_that_are_given() -> None:
    """Flight from 0.42 to 0.78 s fills an element after the first and one before the second; without events the same
    motion stands all the time."""
    transcription, touch, w = branch_of(FLIGHT)
    stands, lands = hopper_branch.contacts(transcription, touch, w)
    assert list(stands.values()) == [True] * 5 + [False] * 2 + [True] * 3
    assert lands == {(3, 1)}
    clear = hopper_branch.shown(transcription, stands, lands, w)
    blocks = list(transcription.mpcc.variables.blocks())
    forces = [clear[block.start] for block in blocks if block.name == "lambda_normal" and block.at.rk == 0]
    impulses = [clear[block.start] for block in blocks if block.name == "Lambda_normal"]
    assert [force > 0 for force in forces] == list(stands.values())
    assert [number for number, impulse in enumerate(impulses) if impulse > 0] == [7]
    transcription, touch, w = branch_of(())
    stands, lands = hopper_branch.contacts(transcription, touch, w)
    assert all(stands.values())
    assert not lands


def test_margins_bound_the_forces_of_a_foot_that_stands() -> None:
    transcription, touch, w = branch_of(FLIGHT)
    stands, lands = hopper_branch.contacts(transcription, touch, w)
    rung = hopper_branch.Rung(rk_stages=2, iterations=1, load=7.0, side=3.0)
    margins = hopper_branch.with_margins(transcription, stands, lands, rung)
    before = transcription.mpcc
    for block in before.variables.blocks():
        place = (block.at.stage, block.at.element)
        lower, upper = margins.lbw[block.rows], margins.ubw[block.rows]
        if block.name == "lambda_normal" and stands[place]:
            assert (lower == 7.0).all()
        elif block.name == "lambda_tangent[foot]" and place == (3, 1):
            assert (lower == -3.0).all()
            assert (upper == 3.0).all()
        else:
            np.testing.assert_array_equal(lower, before.lbw[block.rows])
            np.testing.assert_array_equal(upper, before.ubw[block.rows])


def motion_with(*pieces: tuple[float | None, float]) -> hopper_smooth.Motion:
    """A motion of nothing with these feet and durations."""
    zero = {"u": np.zeros(2), "left": np.zeros(8), "stages": np.zeros((3, 8)), "forces": np.zeros((3, 2))}
    made = tuple(hopper_smooth.Piece(foot=foot, h=h, **zero) for foot, h in pieces)
    return hopper_smooth.Motion(pieces=made, violation=0.0, objective=0.0, word="")


def test_timetable_rounds_releases_and_keeps_landings_within_stages() -> None:
    """Of 0.51 s and 0.83 s on stages of 0.1 s: a release at 0.5 s, a landing at 0.83 s; at 0.99 s it is moved."""
    table = hopper_ladder.timetable(motion_with((0.0, 0.51), (None, 0.32), (1.0, 0.17)), 1.0, 10)
    assert table.times == pytest.approx([0.5, 0.83])
    assert table.old(0.5, 1.0) == pytest.approx(0.51)
    assert table.old(1.0, 1.0) == 1.0
    late = hopper_ladder.timetable(motion_with((0.0, 0.51), (None, 0.48), (1.0, 0.01)), 1.0, 10)
    assert late.times == pytest.approx([0.5, 0.975])


def test_rungs_end_with_the_stages_that_are_wanted() -> None:
    orders = {n: [rung.rk_stages for rung in hopper_ladder.rungs_of(hopper_ladder.MORE, n)] for n in (3, 4, 5, 6)}
    assert orders == {3: [3], 4: [4, 4], 5: [4, 5, 5], 6: [4, 5, 6]}


def test_two_events_in_one_stage_are_refused() -> None:
    motion = motion_with((0.0, 0.51), (None, 0.05), (1.0, 0.44))
    assert motion.events == pytest.approx([0.51, 0.56])
    with pytest.raises(ns.OptionError, match="two events"):
        hopper_ladder.timetable(motion, 1.0, 5)


def violation_at_start(program: hopper_smooth.SmoothProgram) -> float:
    """Of the rows of a program, at its start values."""
    w = ca.vertcat(*program.w)
    start = np.concatenate([values for _, _, values in program.bounds])
    rows = np.array(ca.Function("g", [w], [ca.vertcat(*[row for row, _, _ in program.rows])])(start)).ravel()
    lower, upper = (np.concatenate([row[k] for row in program.rows]) for k in (1, 2))
    return float(np.max([lower - rows, rows - upper]))


@pytest.mark.parametrize(("foot", "share", "away"), [(0.0, 1.0, 0.0), (0.0, 0.9, 0.1), (None, 1.0, 1.0)])
def test_smooth_program_stands_by_its_weight(foot: float | None, share: float, away: float) -> None:
    """Standing still is a solution where the foot bears the weight; what it does not bear is missing (controls)."""
    ocp = hopper_task.build(holes=0, horizon=0.1)
    program = hopper_smooth.SmoothProgram(ocp=ocp, holes=0, width=0.5, depth=0.1)
    weight = model.CAPLER.weight
    starts = [([0.0, *hopper_task.STANDING], (0.0, share * weight))] * 3
    program.piece(foot, 0.1, program.control(), ca.SX([0.0, *hopper_task.STANDING]), starts, ())
    assert violation_at_start(program) == pytest.approx(away * weight, abs=1e-12)


def test_the_program_can_be_set() -> None:
    settings = problem.PROGRAM.settings.changed({**problem.QUICK, "start": "glide", "solver": "auto"})
    assert settings.arguments["holes"] == 1
    assert settings.arguments["start"] == "glide"
    assert (settings.method.control_stages, settings.method.rk_stages) == (50, 5)


@pytest.mark.slow
def test_one_hop_is_certified() -> None:
    """The quick version: feasible to 1e-6, one landing at the point where the holes touch, and in all windows of 0.06 s
    an independent simulation has the same events and ends within 1e-3 of the solution."""
    settings = problem.PROGRAM.settings.changed(problem.QUICK)
    arguments = {name: value for name, value in settings.arguments.items() if name != "start"}
    solution = hopper_ladder.climb(arguments, settings.method)
    assert solution.success
    assert max(solution.complementarity, solution.infeasibility) < 1e-6
    (impact,) = solution.impacts
    assert model.joints(solution(impact.time))[2] == pytest.approx([1.0, 0.0], abs=1e-6)
    certificate = ns.certify(hopper_task.build(**arguments), solution, window=problem.WINDOW)
    assert certificate.verdict not in {ns.Verdict.REFUTED, ns.Verdict.UNDECIDED}
    assert len(certificate.windows) == 25
    assert all(window.events_agree and window.defect < 1e-3 for window in certificate.windows)
    assert not certificate.findings
