"""The guiding example of time-freezing: two simulations in closed form, one optimal control problem."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import particle as model
from nosnoc_py.reformulation.time_freezing import Frozen
from problems.particle import GOAL, METHOD, PROGRAM, build, controlled, resimulated, simulate, solve_by_jumps, speeds
from problems.runner import main
from tests.pairwise import slow_but
from tests.references import particle as references
from tests.shared import once

LANDING = model.FRICTIONAL.landing
OPTIMUM = references.piecewise_constant_optimum(20)
# The module, not the function of the same name.
transcribe = importlib.import_module("nosnoc_py.transcription.transcribe")


@pytest.fixture(scope="module")
def solution(tmp_path_factory: pytest.TempPathFactory) -> ns.Solution:
    """Example 5 from the exact motion under the best piecewise constant control, so that the pattern is known."""
    motion = references.exact_motion(OPTIMUM.control).motion
    guess = {"x": lambda t: motion(t), "u": OPTIMUM.control[:, None]}
    return once(tmp_path_factory, "example_5", lambda: ns.solve(build(), METHOD, guess=guess))


def unshared(freeze: Callable[..., Frozen]) -> Callable[..., Frozen]:
    """Time-freezing with one alpha_1 per Runge-Kutta stage."""

    def made(*arguments: Any, **options: Any) -> Frozen:
        frozen = freeze(*arguments, **options)
        return replace(frozen, system=replace(frozen.system, per_element=()))

    return made


@pytest.mark.parametrize("constants", [model.FRICTIONLESS, model.FRICTIONAL], ids=["example_3", "example_4"])
def test_examples_3_and_4_against_the_closed_form(constants: model.Constants) -> None:
    found = simulate(constants)
    assert found.success
    assert found.t[-1] == pytest.approx(3.5, abs=1e-12)
    np.testing.assert_allclose(found.final_state, model.exact(3.5, constants), rtol=0.0, atol=1e-7)
    np.testing.assert_allclose(found.x, model.exact(found.t, constants), rtol=0.0, atol=1e-7)
    if constants is model.FRICTIONLESS:  # as in the paper
        expected = (17.71875, 1.37953125, 15.75, 5.518125, 2.25)
        np.testing.assert_allclose(found.final_state, expected, rtol=0.0, atol=1e-7)
    # Where the clock shows 1 is found: tau = 2 by the closed form, and no boundary of a step.
    assert [e.time for e in found.events if e.name == "ramp"] == pytest.approx([2.0], abs=1e-9)


def test_control_law_is_exact() -> None:
    """The force of the controlled system is the closed form's at every clock time, with the ramp's step function."""
    frozen = ns.freeze(model.build(0.0), a_n=9.81)
    system = controlled(frozen, model.FRICTIONLESS)
    force = ca.Function("force", [system.x, system.alpha, system.z], [system.flow[2:4]])
    for clock in (0.3, 0.9, 1.0, 1.2, 2.0):
        alpha = [1.0, 1.0, float(clock > 1.0)]  # in flight: no auxiliary motion
        expected = model.control(clock) - [0.0, 9.81]
        np.testing.assert_allclose(
            np.array(force([0.0, 1.0, 0.0, 0.0, clock], alpha, 0.0)).ravel(), expected, atol=1e-14
        )


@pytest.mark.slow
def test_example_5_has_the_optimum_of_the_reference(solution: ns.Solution) -> None:
    assert solution.success
    assert max(solution.complementarity, solution.infeasibility) < 1e-9
    assert solution.objective == pytest.approx(OPTIMUM.objective, rel=1e-5)
    assert solution.objective < 1.001 * references.continuous_optimum().objective
    # frozen time costs nothing, and the control is constant in physical time
    assert solution.objective == pytest.approx(2.0 / 20 * float(np.sum(solution.u**2)), rel=1e-10)


@pytest.mark.slow
def test_example_5_speed_of_time(solution: ns.Solution) -> None:
    """s is 1 in flight, 2 in contact (the clock runs with a_n / (a_n + m g) = 1/2) and 6 where the impact is.

    There s T/N is .1 of flight, doubled in contact, and the jump: (t_i - .4) + 2 (.5 - t_i) + t_i for a_n = g.
    """
    impact = ((LANDING - 0.4) + 2.0 * (0.5 - LANDING) + LANDING) / 0.1
    assert impact == pytest.approx(6.0, abs=1e-12)
    assert speeds(solution) == pytest.approx([1.0] * 4 + [impact] + [2.0] * 15, abs=1e-8)


@pytest.mark.slow
def test_example_5_is_what_it_says(solution: ns.Solution) -> None:
    ocp = build()
    found = resimulated(ocp, solution)
    assert found["goal_missed"] < 1e-6
    np.testing.assert_allclose(found["exact_end"], GOAL, rtol=0.0, atol=1e-9)
    certificate = ns.certify(ocp, solution)
    assert certificate.verdict is ns.Verdict.CONFIRMED


@pytest.mark.slow
def test_example_5_recovers_forces_and_impulses(solution: ns.Solution) -> None:
    weight, grip = 9.81, 0.6 * 9.81
    (impact,) = solution.impacts
    assert impact.time == pytest.approx(LANDING, abs=1e-9)
    assert impact.impulse == pytest.approx(9.81 * LANDING, abs=1e-6)
    assert impact.v_before == pytest.approx(-9.81 * LANDING, abs=1e-6)
    assert impact.v_after == pytest.approx(0.0, abs=1e-9)
    (stop,) = [event.time for event in solution.events if event.kind == "stick"]
    assert stop == pytest.approx(OPTIMUM.stop, abs=1e-4)  # the objective is flat there
    normal, tangent = (solution.series[f"lambda_{kind}[ground]"] for kind in ("normal", "tangent"))
    # At the events themselves rounding decides which side a node belongs to.
    flies, slides, sticks = (
        (normal.t > low + 1e-9) & (normal.t < high - 1e-9) for low, high in pairwise([-1.0, LANDING, stop, np.inf])
    )
    np.testing.assert_allclose(normal.values[flies], 0.0, atol=1e-6)
    np.testing.assert_allclose(tangent.values[flies], 0.0, atol=1e-6)
    np.testing.assert_allclose(normal.values[slides | sticks], weight, atol=1e-6)
    np.testing.assert_allclose(tangent.values[slides], -grip, atol=1e-6)
    control = np.array([solution.control(t - 1e-9)[0] for t in tangent.t[sticks]])  # the last stage is a left limit
    np.testing.assert_allclose(tangent.values[sticks], -control, atol=1e-6)


def test_simulation_needs_one_alpha_1_per_element(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap B at the optimal control: with one alpha_1 per stage the clock runs during the jump.

    The end point is then some 3 mm past 3 m, with every residual zero to rounding.
    """
    system, control = build().system, OPTIMUM.control[:, None]

    def end() -> tuple[ns.Trajectory, float]:
        worst: list[float] = []
        found = ns.simulate(
            system,
            x0=model.START,
            duration=2.0,
            u=control,
            method=METHOD,
            steps=20,
            callback=lambda state: worst.append(max(state.complementarity, state.infeasibility)),
        )
        return found, max(worst)

    found, residual = end()
    assert found.success
    assert residual < 1e-8
    np.testing.assert_allclose(found.final_state, GOAL, rtol=0.0, atol=1e-8)
    monkeypatch.setattr(transcribe, "freeze", unshared(transcribe.freeze))
    wrong, residual = end()
    assert wrong.success
    assert residual < 1e-8
    assert wrong.final_state[0] - 3.0 > 1e-3  # how much depends on the start: a family of solutions


@pytest.mark.slow
def test_optimiser_beats_the_true_optimum_without_sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trap B in optimal control: a false optimum below the true one, which residuals do not show."""
    ocp = build()
    monkeypatch.setattr(transcribe, "freeze", unshared(transcribe.freeze))
    false = ns.transcribe(ocp, METHOD).solve(guess=OPTIMUM.control[:, None])
    assert false.success
    assert max(false.complementarity, false.infeasibility) < 1e-8
    assert false.objective == pytest.approx(72.5877, abs=1e-3)
    assert false.objective < OPTIMUM.objective - 0.05
    assert resimulated(ocp, false)["goal_missed"] > 1e-3
    assert ns.certify(ocp, false).verdict is not ns.Verdict.CONFIRMED


@pytest.mark.parametrize("elements", slow_but([3], [3, 4]))
def test_shared_alpha_1_belongs_to_the_library(elements: int) -> None:
    """Of the variables of an element, alpha_1 and only alpha_1 appears once, not once per stage."""
    method = METHOD.replace(fesd=METHOD.fesd.replace(finite_elements=elements))
    blocks = ns.transcribe(build(), method).mpcc.variables
    alphas = {name: len(list(blocks.blocks(name))) for name in blocks.names if name.startswith("alpha[")}
    count = 20 * elements
    assert alphas == {
        "alpha[gap[ground]]": count,
        "alpha[normal_velocity[ground]]": 2 * count,
        "alpha[tangential_velocity[ground]]": 2 * count,
    }


@pytest.mark.slow
def test_jumps_find_the_same_optimum(solution: ns.Solution) -> None:
    """FESD-J on the same problem, from the motion under this control: the same local solution."""
    other = solve_by_jumps(build(), solution)
    assert other.success
    assert other.objective == pytest.approx(solution.objective, rel=1e-4)
    assert [e.kind for e in other.events] == [e.kind for e in solution.events]


def test_program(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code = main(PROGRAM, ["--json", "--quick", "--figures", str(tmp_path)])
    results = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert code == 0
    assert results["errors"]["final_state"] < 1e-7
    (path,) = results["figures"]
    assert Path(path).read_bytes()[:4] == b"\x89PNG"
    assert main(PROGRAM, ["--json", "--set", "example=6"]) == 2


@pytest.mark.slow
def test_program_in_full(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(PROGRAM, ["--json", "--figures", str(tmp_path)]) == 0
    results = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert results["checks"]["reference"] == pytest.approx(results["objective"], rel=1e-5)
    assert results["by_jumps"]["objective"] == pytest.approx(results["objective"], rel=1e-4)
    assert results["certificate"]["verdict"] == "confirmed"
