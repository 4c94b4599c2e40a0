"""The boxes: the objective evaluated anew, and the exact reduction against the simulation of the full model."""

from __future__ import annotations

import json
from itertools import pairwise

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import quad_vec

import nosnoc_py as ns
from models import three_boxes as model
from problems.runner import main
from problems.three_boxes import KNOWN_CONTROL, METHOD, PROGRAM, build
from tests.references.three_boxes import reduced_objective, reduced_simulation

CONTROL = np.array([-10.0, 4.0, 24.0, 10.0, -3.0, -2.5, -4.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0])


def costs(x: np.ndarray, u: float) -> tuple[float, float]:
    """Stage and terminal cost of the paper, with the boxes' weights written out: 10, 1, 10 across, 0.1 of speeds."""
    distance = 10.0 * ((x[0] + 7.0) ** 2 + (x[4] - 6.0) ** 2) + x[2] ** 2
    distance += 0.001 * ((x[1] - 1.0) ** 2 + (x[3] - 1.0) ** 2 + (x[5] - 1.0) ** 2) + 0.1 * float(x[6:] @ x[6:])
    return distance + 0.1 * u**2, 100.0 * distance


def test_problem_is_that_of_the_paper() -> None:
    ocp = build()
    evaluate = ca.Function("costs", [ocp.system.x, ocp.system.u], [ocp.stage_cost, ocp.terminal_cost])
    x = np.random.default_rng(0).uniform(-3.0, 3.0, 12)
    np.testing.assert_allclose([float(value) for value in evaluate(x, 5.0)], costs(x, 5.0), rtol=1e-14)
    assert ocp.horizon == 6.0
    np.testing.assert_array_equal(ocp.x0[:6], [-3.0, 1.0, 0.0, 1.0, 3.0, 1.0])
    np.testing.assert_array_equal(ocp.x_bounds, [[-10.0] * 12, [10.0] * 12])
    np.testing.assert_array_equal(ocp.u_bounds, [[-30.0], [30.0]])
    assert (METHOD.control_stages, METHOD.finite_elements, METHOD.rk_stages) == (15, 2, 2)
    assert METHOD.scheme == "radau_iia"


def test_reduced_objective_against_adaptive_quadrature() -> None:
    motion, objective = reduced_simulation(CONTROL)

    def stage(t: float) -> float:
        return costs(motion.full_state(t)[0], CONTROL[min(int(t / 0.4), 14)])[0]

    points = sorted({*motion.t, *np.linspace(0.0, 6.0, 16)})
    parts = [quad_vec(stage, a, b, epsabs=1e-11)[0] for a, b in pairwise(points) if b > a]
    end = costs(motion.full_state(6.0)[0], 0.0)[1]
    assert objective == pytest.approx(sum(parts) + end, rel=1e-10)


def test_known_control() -> None:
    motion, objective = reduced_simulation(KNOWN_CONTROL)
    assert objective == pytest.approx(301.8304541, abs=1e-6)
    assert [impact.name for impact in motion.impacts] == ["left_middle", "middle_right"]
    np.testing.assert_allclose([impact.time for impact in motion.impacts], [0.32018183, 1.12561616], atol=1e-7)
    assert np.abs(np.hstack([motion.x, motion.v])).max() < 10.0


def test_known_control_is_a_local_optimum() -> None:
    """Nothing better lies 0.01 N away along any axis, where the force is not held by friction anyway."""
    objective = reduced_simulation(KNOWN_CONTROL)[1]
    for k in range(8):
        for sign in (-1.0, 1.0):
            near = np.array(KNOWN_CONTROL)
            near[k] += 0.01 * sign
            assert reduced_simulation(near)[1] > objective


def test_its_events_fit_the_grid_of_the_method() -> None:
    """One event inside of every control stage at most, so that two elements are enough."""
    inner = reduced_simulation(KNOWN_CONTROL)[0].t / 0.4
    inner = inner[np.abs(inner - np.round(inner)) > 1e-9]
    assert len(inner) == 7
    assert np.unique(np.floor(inner)).size == inner.size


@pytest.mark.parametrize("sides", [(0.1, 0.1), (0.0, 0.0)])
@pytest.mark.parametrize("control", [KNOWN_CONTROL, CONTROL])
def test_full_model_moves_like_the_reduced_one(sides: tuple[float, float], control: tuple[float, ...]) -> None:
    """Six coordinates, five contacts with friction, by finite elements: to 1e-11 the motion on the line."""
    motion, _ = reduced_simulation(control)
    system = model.build(model.Constants(sides=sides))
    trajectory = ns.simulate(
        system, x0=model.START, duration=6.0, u=np.array(control)[:, None], steps=30, method=METHOD
    )
    assert trajectory.success
    t = np.linspace(0.0, 5.999, 300)
    t = t[np.abs(t[:, None] - [impact.time for impact in motion.impacts]).min(axis=1) > 1e-9]
    np.testing.assert_allclose(trajectory(t), motion.full_state(t), atol=1e-11)
    found = [(event.name, event.time, event.impulse) for event in trajectory.impacts]
    assert [name for name, _, _ in found] == [impact.name for impact in motion.impacts]
    for (_, time, impulse), impact in zip(found, motion.impacts, strict=True):
        assert time == pytest.approx(impact.time, abs=1e-11)
        assert impulse == pytest.approx(impact.impulse, abs=1e-11)


def test_another_restitution_moves_elsewhere() -> None:
    constants = model.Constants(restitutions=(0.0, 0.45))
    other = model.reduced_motion(KNOWN_CONTROL, 6.0, constants=constants)
    assert reduced_objective(other) - reduced_simulation(KNOWN_CONTROL)[1] > 1.0


@pytest.mark.slow
def test_the_program_certifies(capsys: pytest.CaptureFixture[str]) -> None:
    """Two independent simulations of one control: the reduced motion on the line, and the referee's of the full model.

    The first box is to be hit within 0.8 s; without friction between boxes that is solved in a second.
    """
    changes = ["method=fesdj", "solver=active_set", "horizon=0.8", "control_stages=2", "side_friction=0.0"]
    assert main(PROGRAM, ["--json", "--set", *changes]) == 0
    results = json.loads(capsys.readouterr().out.splitlines()[-1])
    certificate, exact = results["certificate"], results["resimulation"]
    assert certificate["verdict"] == "confirmed"
    assert exact["impacts"]
    assert certificate["true_objective"] == pytest.approx(exact["objective"], rel=1e-9)
    assert certificate["objective"] == results["objective"]
    assert certificate["end_state_error"] < 1e-6 * (1.0 + np.abs(exact["final_state"]).max())


def test_the_program_can_be_set() -> None:
    settings = PROGRAM.settings.changed({**PROGRAM.quick, "solver": "homotopy", "impulse_form": "product"})
    assert settings.arguments["horizon"] == 0.8
    assert (settings.method.control_stages, settings.method.impulse_form) == (2, "product")
