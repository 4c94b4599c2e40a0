"""FESD on Filippov systems and a projected system, against closed forms; and the problems on the command line."""

from __future__ import annotations

import io
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import nosnoc_py as ns
from models import oscillator, relay_feedback, stick_slip, switching_cases
from models.sliding_mode import STANDARD, optimum, problem
from models.switching_cases import BY_NAME
from nosnoc_py.progress import Progress
from nosnoc_py.solution.trajectory import jsonable
from problems import pushed_point, sliding_mode_control
from problems import relay_feedback as relay_problem
from problems import stick_slip as stick_slip_problem
from problems import switching_cases as cases_problem
from problems.benchmarks import oscillator_order
from problems.benchmarks.oscillator_order import converge
from problems.runner import Program, main
from problems.switching_cases import simulate
from tests.pairwise import every_pair, slow_but, slow_row
from tests.problems.command_line import KEYS, PNG
from tests.references.relay import reference
from tests.references.switching import boundary_errors, compare

PROGRAMS = [
    cases_problem.PROGRAM,
    oscillator_order.PROGRAM,
    relay_problem.PROGRAM,
    stick_slip_problem.PROGRAM,
    sliding_mode_control.PROGRAM,
    pushed_point.PROGRAM,
]


def check_events(trajectory: ns.Trajectory, events: list[tuple[str, float]], tolerance: float) -> None:
    """Every event lies on a boundary of finite elements, and is reported with its kind."""
    assert max(boundary_errors(trajectory, [at for _, at in events])) < tolerance
    for kind, at in events:
        assert min(abs(event.time - at) for event in trajectory.events if event.kind == kind) < tolerance


# --- the ways to meet a surface ---


@every_pair(
    name=["crossing", "sliding", "sliding on a curve", "released", "leaving"],
    representation=["stewart", "step"],
    steps=[2, 5],
)
def test_switches_are_landed_on(name: str, representation: str, steps: int) -> None:
    case = BY_NAME[name]
    trajectory = simulate(name, steps, method=cases_problem.METHOD.replace(dcs_mode=representation))
    assert trajectory.success, trajectory.message
    check_events(trajectory, list(zip(case.event_kinds, case.event_times, strict=True)), 1e-10)
    found = compare(trajectory, {"case": case.name})
    assert found["state_error"] < 1e-10
    assert found["surface_error"] < 1e-10


@pytest.mark.parametrize("representation", ["stewart", "step"])
def test_a_sliding_exit_is_open_without_its_condition(representation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: between stages the motion dips through the surface, and leaves early."""
    monkeypatch.setattr("nosnoc_py.reformulation.filippov.sliding_exit_conditions", lambda pairs, per_element: ())
    monkeypatch.setattr("nosnoc_py.simulation.checks.Checks.crossings", lambda *_: [])  # it would notice
    case = BY_NAME["leaving"]
    trajectory = simulate(case.name, 5, method=cases_problem.METHOD.replace(dcs_mode=representation))
    assert trajectory.success, trajectory.message
    entry, departure = boundary_errors(trajectory, case.event_times)
    assert entry < 1e-10
    assert departure > 1e-4


@pytest.mark.parametrize("representation", ["stewart", "step"])
def test_repulsive_surface_gives_a_legitimate_solution(representation: str) -> None:
    case = BY_NAME["repulsive"]
    method = cases_problem.METHOD.replace(dcs_mode=representation)
    found = compare(simulate(case.name, 4, method=method), {"case": case.name})
    assert found["state_error"] < 1e-10
    assert found["departure"] == (pytest.approx(case.duration, abs=1e-12), 0)  # the one that stays


def test_a_wrong_motion_is_noticed() -> None:
    """The judge of the repulsive case: a motion that leaves with half the speed is none of its solutions."""
    t = np.linspace(0.0, 1.7, 18)
    motion = switching_cases.repulsive(t, 0.5, -1)
    made: dict[str, Any] = dict(t=t, state_names=("x", "y"), u_grid=t[[0, -1]], u=np.zeros((1, 0)), control_names=())
    case = BY_NAME["repulsive"]
    right = compare(ns.Trajectory(x=motion, **made), {"case": case.name})
    assert right["departure"] == (pytest.approx(0.5), -1)
    assert right["state_error"] < 1e-14
    assert compare(ns.Trajectory(x=motion * [0.5, 1.0], **made), {"case": case.name})["state_error"] > 0.1


@pytest.mark.parametrize("name", ["crossing", "sliding", "released"])
def test_fixed_steps_miss_the_switch(name: str) -> None:
    case = BY_NAME[name]
    trajectory = simulate(case.name, 5, method=cases_problem.METHOD.replace(switch_detection=False))
    assert max(boundary_errors(trajectory, case.event_times)) > 1e-2
    found = compare(trajectory, {"case": case.name})
    assert max(found["state_error"], found["surface_error"]) > 1e-5


# --- orders ---


@pytest.mark.parametrize(
    ("scheme", "rk_stages"), slow_but([("gauss_legendre", 2)], product(["gauss_legendre", "radau_iia"], [2, 3]))
)
def test_orders(scheme: str, rk_stages: int) -> None:
    curve = converge(scheme, rk_stages, (16, 27, 38, 49))
    assert curve.failures == 0
    assert curve.good.all()
    assert curve.order == pytest.approx(curve.nominal, abs=0.4)


@pytest.mark.parametrize("scheme", ["radau_iia", "gauss_legendre"])
def test_stewart_and_step_functions_are_the_same(scheme: str) -> None:
    method = oscillator_order.METHOD.replace(scheme=scheme, rk_stages=3)
    circle, solver = oscillator_order.circle(), oscillator_order.SOLVER
    runs = [circle.simulate(16, method=method.replace(dcs_mode=mode), solver=solver) for mode in ("stewart", "step")]
    states = [run.x for run in runs]
    assert states[0] == pytest.approx(states[1], abs=1e-8)


@pytest.mark.parametrize("scheme", slow_but(["gauss_legendre"], ["radau_iia", "gauss_legendre"]))
def test_fixed_steps_fall_to_order_one(scheme: str) -> None:
    curve = converge(scheme, 2, (16, 27, 38, 49), switch_detection=False)
    assert curve.failures == 0
    assert curve.order == pytest.approx(1.0, abs=0.4)
    assert min(curve.errors) > 1e-2


@pytest.mark.slow
def test_orders_over_the_whole_range() -> None:
    for curve in oscillator_order.experiment(stages=(2, 3)):
        assert curve.failures == 0, curve.label
        if curve.must_solve:
            assert curve.order == pytest.approx(curve.nominal, abs=0.2), curve.label
        else:
            assert curve.order == pytest.approx(1.0, abs=0.4), curve.label


@pytest.mark.slow
def test_the_switch_converges_with_the_motion() -> None:
    curve = converge("gauss_legendre", 3, (27, 49))
    assert curve.more["switch_errors"][0] < 1e-7
    assert curve.more["switch_errors"][1] < curve.more["switch_errors"][0] / 10
    assert oscillator.STANDARD.switch_time == pytest.approx(1.0)


# --- limit cycles ---


@pytest.mark.parametrize(("example", "state", "events"), [("lag", 1e-9, 1e-8), slow_row("hysteresis", 1e-6, 1e-8)])
def test_relay_cycles(example: str, state: float, events: float) -> None:
    known = reference(example)
    trajectory = relay_problem.simulate(example, periods=1.0, steps=40)
    assert trajectory.success, trajectory.message
    check_events(trajectory, list(known.events(known.period)), events)
    assert trajectory.final_state == pytest.approx(trajectory.x[0], abs=state)  # one period closes


def test_relay_cycle_with_sliding() -> None:
    known = reference("sliding")
    trajectory = relay_problem.simulate("sliding", periods=1.0, steps=40)
    assert trajectory.success, trajectory.message
    events = known.events(known.period)
    check_events(trajectory, [event for event in events if event[0] == "enter_sliding"], 1e-7)
    check_events(trajectory, [event for event in events if event[0] == "leave_sliding"], 1e-10)
    assert relay_problem.errors(trajectory, {"example": "sliding"})["final_state"] < 1e-7
    # in the middle of its slides the output is zero to rounding
    cycle = relay_feedback.limit_cycle()
    middles = [at + 0.5 * cycle.slide for kind, at in events if kind == "enter_sliding"]
    assert np.abs(trajectory(middles)[:, 0]).max() < 1e-10


@pytest.mark.slow
def test_stick_slip_cycles() -> None:
    trajectory = stick_slip_problem.simulate(duration=5.0, steps=75)
    assert trajectory.success, trajectory.message
    away, back = stick_slip.event_times(5.0)
    assert (away.size, back.size) == (4, 3)
    check_events(trajectory, [("leave_sliding", at) for at in away], 1e-7)
    check_events(trajectory, [("enter_sliding", at) for at in back], 1e-7)
    assert np.abs(trajectory.x - stick_slip.exact(trajectory.t)).max() < 1e-7
    middles = back + 0.5 * stick_slip.STANDARD.stick_time
    assert trajectory(middles)[:, 1] == pytest.approx(0.2, abs=1e-10)  # carried by the belt


# --- optimal control ---


def piecewise_constant_optimum(stages: int) -> float:
    """Optimal cost with so many constant controls, without any finite element: x is piecewise linear."""
    from scipy.optimize import minimize

    def run(u: np.ndarray) -> tuple[float, float]:
        h, x, y, cost = STANDARD.horizon / u.size, STANDARD.start, 0.0, 0.0
        for v in u:
            ride = min(h, x / (1.0 - v)) if v < 1.0 else h
            cost += v**2 * h + x**2 * ride + x * (v - 1.0) * ride**2 + (v - 1.0) ** 2 * ride**3 / 3.0
            y += 2.0 * ride + 0.5 * (3.0 + v) * (h - ride)
            x = x + (v - 1.0) * ride if ride == h else 0.0
        return cost, y

    goal = {"type": "eq", "fun": lambda u: run(u)[1] - STANDARD.goal}
    options = {"ftol": 1e-15, "maxiter": 500}
    found = minimize(lambda u: run(u)[0], np.full(stages, -0.4), constraints=goal, method="SLSQP", options=options)
    assert found.success, found.message
    return float(found.fun)


@pytest.mark.parametrize("stages", [5, 10, 20])
def test_sliding_mode_control(stages: int) -> None:
    solution = ns.solve(problem(), sliding_mode_control.METHOD.replace(control_stages=stages), ns.Homotopy())
    assert solution.success, solution.message
    assert solution.objective == pytest.approx(piecewise_constant_optimum(stages), abs=1e-6)
    found = sliding_mode_control.compare(solution, optimum())
    assert 0.0 < found["excess"] < 0.08 / stages**2
    assert found["off_the_edge"] < 1e-10
    assert found["arrival"] < 1e-3


def test_without_switch_detection_the_optimum_is_another() -> None:
    method = sliding_mode_control.METHOD.replace(control_stages=5, switch_detection=False)
    solution = ns.solve(problem(), method, ns.Homotopy())
    assert abs(solution.objective - piecewise_constant_optimum(5)) > 1e-4


# --- projected dynamics ---


@pytest.mark.parametrize("coupling", [0.0, 0.4, -0.3])
def test_pushed_point(coupling: float) -> None:
    trajectory = pushed_point.simulate(coupling)
    assert trajectory.success, trajectory.message
    found = pushed_point.errors(trajectory, {"coupling": coupling})
    assert found["final_state"] < 1e-10
    late = found["events"]
    assert max(late[name] for name in late if name.startswith("contact")) < 1e-10
    assert max(late[name] for name in late if name.startswith("release")) < 1e-10
    assert {(event.kind, event.name) for event in trajectory.events} == {tuple(name.split()) for name in late}


# --- the command line ---


@pytest.mark.parametrize(
    "program",
    slow_but(["switching_cases", "sliding_mode_control", "pushed_point"], PROGRAMS),
    ids=[program.name for program in PROGRAMS],
)
def test_programs(program: Program, tmp_path: Path) -> None:
    """What `--quick` runs: JSON, the summary, the figures."""
    report = program.run(program.settings.changed(program.quick), Progress(console=Console(quiet=True)))
    assert report.success
    results = json.loads(json.dumps(jsonable(report.results)))
    assert results.keys() >= KEYS
    assert results["status"] == "solved"
    assert results["infeasibility"] < 1e-8
    console = Console(record=True, file=io.StringIO(), width=130)
    report.show(console)
    said = console.export_text()
    assert "error" in said or "optimum" in said
    for name, draw in report.figures.items():
        draw(tmp_path / name)
        assert (tmp_path / name).read_bytes()[:8] == PNG


def test_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(pushed_point.PROGRAM, ["--json", "--quick", "--set", "coupling=0.4"]) == 0
    results = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert results["problem"] == "pushed_point"
    assert results["errors"]["final_state"] < 1e-6


@pytest.mark.parametrize(
    ("program", "change"),
    [
        (cases_problem.PROGRAM, "case=crosing"),
        (cases_problem.PROGRAM, "dcs_mode=stewert"),
        (oscillator_order.PROGRAM, "schemes=euler"),
        (relay_problem.PROGRAM, "example=lagg"),
        (relay_problem.PROGRAM, "dead_zone=1"),
        (stick_slip_problem.PROGRAM, "position=0.5"),
        (sliding_mode_control.PROGRAM, "goal=5.0"),
        (pushed_point.PROGRAM, "coupling=1.5"),
    ],
)
def test_a_wrong_value_is_one_clear_error(program: Program, change: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(program, ["--quick", "--set", change]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    # In a pipe the lines of progress may come before.
    assert any(line.startswith(f"problems.{program.name}: ") for line in captured.err.splitlines())
