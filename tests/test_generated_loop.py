"""The generated controller: the controls of Python in C, an answer or a code for every state, memory that is static."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from pathlib import Path

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.control.grid_plan import GridPlanner
from nosnoc_py.control.measured import admissible
from nosnoc_py.errors import OptionError
from nosnoc_py.transcription.generated_loop import COMPILE, HEADER, LIBRARY, SOURCE, STATUSES
from problems import walled_cart_pole

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("compiled_search")]

GCC = shutil.which("gcc")
PERIOD, BOUND = 0.05, 20.0


class Controller:
    """The library of a generated folder, called by ctypes."""

    def __init__(self, problem: ns.Transcription, folder: Path, period: float) -> None:
        if GCC is None:
            pytest.skip("there is no gcc to compile the generated C with")
        self.folder = problem.generate(folder, period=period)
        assert COMPILE in (self.folder / "README.md").read_text()
        subprocess.run([*COMPILE.split(), "-Wall", "-Werror"], cwd=self.folder, check=True, timeout=600)
        self.code = ctypes.CDLL(str(self.folder / LIBRARY))
        self.n_u = problem.ocp.system.n_u

    def feedback(self, x, nodes: int = 0) -> tuple[int, np.ndarray]:
        measured, u = np.ascontiguousarray(x, dtype=float), np.full(self.n_u, np.nan)
        status = self.code.mpc_feedback(*map(_address, (measured, None)), nodes, _address(u))
        return status, u

    def prepare(self, x=None) -> int:
        return self.code.mpc_prepare(_address(None if x is None else np.ascontiguousarray(x, dtype=float)), None)


def _address(array):
    return None if array is None else ctypes.c_void_p(array.ctypes.data)


@pytest.fixture(scope="module")
def walls(tmp_path_factory) -> Controller:
    problem = ns.transcribe(walled_cart_pole.build(), walled_cart_pole.METHOD)
    return Controller(problem, tmp_path_factory.mktemp("walls") / "c", PERIOD)


def test_a_loop_has_the_controls_of_python(walls):
    ocp, rng = walled_cart_pole.build(), np.random.default_rng(0)
    planner, x, none = GridPlanner(ocp, PERIOD, 10), np.array(ocp.x0), np.zeros(0)
    walls.code.mpc_reset()
    for k in range(16):
        status, u = walls.feedback(x)
        answer = planner.answer(x, k * PERIOD, none)
        assert status == answer.search.outcome == 0
        assert abs(u[0] - answer.u[0, 0]) < 1e-6 * BOUND
        motion = ns.simulate(ocp.system, x0=x, duration=PERIOD, u=u, method=ns.EventDriven(grazing="continue"))
        expected = np.array(motion.final_state)
        assert walls.prepare(expected) == 0
        planner.prepare(expected, (k + 1) * PERIOD, none)
        x = expected + 0.01 * rng.standard_normal(4)
        x[3] += 2.0 * rng.choice([-1, 1]) if k % 8 == 7 else 0.0
        x = admissible(ocp.system, x)


def answers_of_random_states(walls, count: int) -> dict[int, int]:
    rng, counts = np.random.default_rng(1), dict[int, int]()
    walls.code.mpc_reset()
    for k in range(count):
        far = 1e6 if k % 50 == 49 else 10.0 if k % 2 else 1.0
        x = far * rng.uniform([-0.3, -0.3, -2, -3], [0.3, 0.3, 2, 3])
        status, u = walls.feedback(x, nodes=200)
        counts[status] = counts.get(status, 0) + 1
        assert status in STATUSES
        assert np.isfinite(u).all()
        assert np.abs(u).max() <= BOUND
        walls.prepare()
    return counts


def test_every_state_has_an_answer_or_a_code(walls):
    counts = answers_of_random_states(walls, 300)
    # All states but those a million times too far.
    assert counts.get(0, 0) + counts.get(1, 0) >= 290


def test_ten_thousand_states_have_an_answer_or_a_code(walls):
    counts = answers_of_random_states(walls, 10_000)
    assert counts.get(0, 0) + counts.get(1, 0) >= 9700


def test_a_measurement_without_a_number_has_a_code_and_the_last_control(walls):
    walls.code.mpc_reset()
    _, u = walls.feedback([0.0, 0.1, 0.0, 0.0])
    status, held = walls.feedback([0.0, np.nan, 0.0, 0.0])
    assert status == 4
    assert held == u


def test_nothing_is_allocated(walls):
    text = (walls.folder / SOURCE).read_text()
    assert not [word for word in ("malloc", "calloc", "realloc", "free(", "printf") if word in text]
    assert "mpc_feedback" in (walls.folder / HEADER).read_text()
    description = json.loads((walls.folder / "layout.json").read_text())["controller"]
    assert description["period"] == PERIOD
    assert sum(description["lengths"]) == pytest.approx(0.5)


def test_states_beside_the_plan_with_friction_and_an_end_are_solved(tmp_path):
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    ice = ns.Contact("ice", gap=q[1], tangent=[1, 0], friction=0.2)
    sledge = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=ca.vertcat(u, -9.81), contacts=[ice])
    push = ns.OCP(
        sledge, horizon=1.0, x0=[0, 0, 0, 0], stage_cost=u**2, terminal_constraints=[q[0] == 1, v[0] == 0],
        bounds=ns.Bounds(u=(-20, 20)),
    )  # fmt: skip
    controller = Controller(ns.transcribe(push, ns.FESDJ(control_stages=10)), tmp_path / "c", 0.1)
    pushes = []
    for x0 in ([0, 0, 0, 0], [0.1, 0, 0, 0], [0.3, 0, 0.2, 0], [0, 0.2, 0, 0]):
        controller.code.mpc_reset()
        status, u = controller.feedback(x0)
        assert status == 0
        pushes.append(float(u[0]))
    # The nearer the goal, the less.
    assert pushes[0] > pushes[1] > pushes[2] > 0.0


def test_a_period_is_a_positive_number(tmp_path):
    problem = ns.transcribe(walled_cart_pole.build(), walled_cart_pole.METHOD)
    with pytest.raises(OptionError, match="period"):
        problem.generate(tmp_path / "c", period=-1.0)


def test_parameters_bounds_and_periods(tmp_path):
    q, v, u, p = (ca.SX.sym(name) for name in "qvup")
    wall = ns.Contact("wall", gap=3 - q, restitution=0.4)
    cart = ns.CLS(q=q, v=v, u=u, p=p, p_default=[0.0], mass_matrix=1, force=u, contacts=[wall])
    cost = 10 * (q - p) ** 2 + 0.1 * v**2 + 0.01 * u**2
    ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=cost, bounds={"u_0": (5, 10)})
    problem = ns.transcribe(ocp, ns.FESDJ(control_stages=20, finite_elements=2))
    for period in (0.3, 1.0):
        with pytest.raises(OptionError, match="whole fraction of the horizon"):
            problem.generate(tmp_path / "refused", period=period)
    made = Controller(problem, tmp_path / "c", 0.05)
    status, u_first = made.feedback([np.nan, 0.0])
    assert status == 4
    assert u_first == 5.0  # within the bounds before there is a plan
    made.feedback([0.0, 0.0])
    made.prepare()
    measured, u_now, other = np.zeros(2), np.zeros(1), np.array([2.0])
    made.code.mpc_feedback(_address(measured), _address(other), 0, _address(u_now))
    assert u_now == pytest.approx(10.0, abs=1e-6)  # prepared for p = 0, where it is the lower bound
