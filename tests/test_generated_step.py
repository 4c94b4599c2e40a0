"""A step of a closed loop as C: the controls of `resolve` on the kept branch, and a status where it is left."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.transcription.generate import COMPILE_STEP, FILES, LIBRARY, STEP_FILES
from nosnoc_py.transcription.generated_step import STATUSES, step_of

pytestmark = pytest.mark.quick

GCC = shutil.which("gcc")
DOUBLES = ctypes.POINTER(ctypes.c_double)


def thrown() -> ns.Transcription:
    """A mass, of a mass that is a parameter, is thrown against a wall; the control is bounded."""
    q, v, u, m = (ca.SX.sym(name) for name in "qvum")
    wall = ns.Contact("wall", gap=0.5 - q, restitution=0.5)
    s = ns.CLS(q=q, v=v, u=u, p=m, p_default=[1.0], mass_matrix=m, force=u, contacts=[wall])
    cost = 10 * (q - 0.3) ** 2 + v**2
    ocp = ns.OCP(s, horizon=1.0, x0=[0.0, 2.0], stage_cost=u**2, terminal_cost=cost, bounds=ns.Bounds(u=(-5.0, 5.0)))
    return ns.transcribe(ocp, ns.FESDJ(control_stages=6, finite_elements=2, rk_stages=2))


def sliding() -> ns.Transcription:
    """A mass under dry friction returns to a place."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    dry = ns.Modes("dry", flows=[[0.0, 1.0], [0.0, -1.0]], functions=x[1], signs=[[-1], [1]])
    s = ns.PSS(x=x, u=u, flow=ca.vertcat(x[1], u), modes=dry)
    running, last = 10 * x[0] ** 2 + u**2, 10 * ca.sumsqr(x)
    bounds = ns.Bounds(u=(-5, 5))
    ocp = ns.OCP(s, horizon=1.0, x0=[0.3, -0.2], stage_cost=running, terminal_cost=last, bounds=bounds)
    return ns.transcribe(ocp, ns.FESD(control_stages=6, finite_elements=2, rk_stages=2))


PROBLEMS = {"thrown": thrown, "sliding": sliding}


class Compiled:
    """The generated code of a solution, through its C interface."""

    def __init__(self, folder: Path) -> None:
        assert COMPILE_STEP in (folder / "README.md").read_text()
        subprocess.run([*COMPILE_STEP.split(), "-Wall", "-Werror"], cwd=folder, check=True, timeout=1800)
        self.c = ctypes.CDLL(str(folder / LIBRARY))
        self.layout = json.loads((folder / "layout.json").read_text())["step"]
        self.plan, self.u = np.empty(len(self.layout["plan"])), np.full(len(self.layout["u"]), np.nan)
        self.c.nlp_step_start(_pointer(self.plan))

    def __call__(self, x0: Any, p: Any = None) -> int:
        given = [np.array(values, float) if values is not None else None for values in (x0, p)]
        return self.c.nlp_step(*[None if one is None else _pointer(one) for one in given], *map(_pointer, self.buffers))

    @property
    def buffers(self) -> tuple[np.ndarray, np.ndarray]:
        return self.plan, self.u


def _pointer(array: np.ndarray) -> Any:
    return array.ctypes.data_as(DOUBLES)


@pytest.fixture(scope="module", params=PROBLEMS)
def case(request: pytest.FixtureRequest) -> tuple[ns.Transcription, ns.Solution]:
    problem = PROBLEMS[request.param]()
    return problem, problem.solve()


@pytest.fixture(scope="module")
def compiled(case: Any, tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    if GCC is None:
        pytest.skip("there is no gcc to compile the generated C with")
    problem, solution = case
    return Compiled(problem.generate(tmp_path_factory.mktemp("c") / "step", step=solution))


def samples(problem: ns.Transcription, control: Any, count: int = 10) -> Iterator[np.ndarray]:
    """States of a closed loop under noise, whose period is short beside a control stage."""
    random, x = np.random.default_rng(4), np.array(problem.ocp.x0, float)
    for _ in range(count):
        yield x
        motion = ns.simulate(problem.ocp.system, x0=x, duration=0.004, u=control())
        x = np.array(motion.final_state) + 1e-3 * random.standard_normal(x.size)


def test_a_closed_loop_has_the_controls_of_resolve(case: Any, compiled: Compiled) -> None:
    problem, last = case
    compiled.c.nlp_step_start(_pointer(compiled.plan))
    np.testing.assert_array_equal(compiled.plan, compiled.layout["plan"])
    seen = []
    for x0 in samples(problem, lambda: compiled.u):
        assert compiled(x0) == 0
        last = problem.resolve(last, x0=x0)
        assert last.how == "kept"
        np.testing.assert_allclose(compiled.u, last.u[0], rtol=0, atol=1e-8)
        planned = compiled.plan[: problem.mpcc.w0.size]
        np.testing.assert_array_equal(planned[compiled.layout["u_rows_of_plan"]], compiled.u)
        np.testing.assert_allclose(problem.controls(planned), last.u, rtol=0, atol=1e-6)
        seen.append(compiled.u[0])
    assert np.ptp(seen) > 1e-3


def test_far_away_the_branch_is_left(case: Any, compiled: Compiled) -> None:
    """Too slow to reach the wall; moving away at first. Plan and control stay."""
    problem, solution = case
    far = [0.0, 0.1] if isinstance(problem.ocp.system, ns.CLS) else [0.3, 0.5]
    assert problem.resolve(solution, x0=far).how != "kept"
    compiled.c.nlp_step_start(_pointer(compiled.plan))
    assert compiled(problem.ocp.x0) == 0
    before = [array.copy() for array in compiled.buffers]
    assert compiled(far) == 1
    assert compiled([np.nan, 0.0]) == 3
    for array, old in zip(compiled.buffers, before, strict=True):
        np.testing.assert_array_equal(array, old)


def test_parameters_are_given_or_those_of_the_layout(case: Any, compiled: Compiled) -> None:
    problem, solution = case
    x0, known = problem.ocp.x0, problem.ocp.system.n_p
    controls = []
    for p in ([0.97], [1.04], None) if known else ([], None):
        compiled.c.nlp_step_start(_pointer(compiled.plan))
        assert compiled(x0, p) == 0
        expected = problem.resolve(solution, x0=x0, p=p or None)
        assert expected.how == "kept"
        np.testing.assert_allclose(compiled.u, expected.u[0], rtol=0, atol=1e-8)
        controls.append(compiled.u[0])
    assert (np.ptp(controls) > 1e-2) == bool(known)
    assert len(compiled.layout["p"]) == known
    assert compiled.layout["x0"] == list(problem.ocp.system.state_names)


def test_the_steps_that_are_written_out_solve_the_program(case: Any) -> None:
    """Without C: NumPy solves the linear systems, at the solution and beside it."""
    problem, solution = case
    made = step_of(problem, solution, problem.parameters())
    steps, x0 = made.steps, np.add(problem.ocp.x0, [0.01, 0.02])
    p = problem.parameters(x0)
    plan = np.array(steps.begin(p, steps.start)).ravel()
    for _ in range(10):
        upper, right, report = (np.array(part.full()) for part in steps.look(p, plan))
        if report[0, 0] <= 1.0:
            break
        matrix = upper + np.triu(upper, 1).T
        plan = np.array(steps.move(p, plan, np.linalg.solve(matrix, right))[0]).ravel()
    assert report[0, 0] <= 1.0
    assert np.array(made.audit(p, plan))[0, 0] <= 1e-8
    w = plan[: problem.mpcc.w0.size]
    np.testing.assert_allclose(problem.controls(w), problem.resolve(solution, x0=x0).u, rtol=0, atol=1e-6)
    assert (np.linalg.eigvalsh(matrix) < 0.0).sum() == (steps.signs < 0.0).sum()
    w[next(iter(problem.mpcc.variables.blocks())).start] += 1e-3  # the audit sees what is not a solution
    assert np.array(made.audit(p, plan))[0, 0] > 1e-5


def test_the_folder_may_be_generated_again_with_and_without_a_step(tmp_path: Path) -> None:
    problem = thrown()
    target, solution = tmp_path / "c", problem.solve()
    names = {True: {*FILES, *STEP_FILES}, False: {*FILES}}
    for given in (solution, None, solution):
        problem.generate(target, step=given)
        assert {path.name for path in target.iterdir()} == names[given is not None]
        assert ("step" in json.loads((target / "layout.json").read_text())) == (given is not None)
    header = (target / "step.h").read_text()
    assert all(text in header for text in STATUSES.values())
    assert "@" not in header


def test_what_is_no_solution_of_this_problem(tmp_path: Path) -> None:
    problem, other = thrown(), sliding()
    foreign = other.solve()
    failed = problem.resolve(problem.solve(), time_limit=1e-6)
    assert not failed.success
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
    cost = {"stage_cost": u**2 + q**2 + v**2, "initial_constraints": [ns.Constraint(q, equals=0.5)]}
    free = ns.transcribe(ns.OCP(cart, horizon=1.0, **cost), ns.FESDJ(control_stages=2))
    for asked, given, said in (
        (problem, foreign, "generate: step: the solution is of another transcription"),
        (problem, failed, "generate: step: expected a solved problem"),
        (problem, "plan", "generate: step: expected a Solution or an Answer"),
        (free, free.solve(), "generate: step: the OCP leaves the initial state free"),
    ):
        with pytest.raises(ns.OptionError, match=said):
            asked.generate(tmp_path / "c", step=given)  # type: ignore[arg-type]
    assert not (tmp_path / "c").exists()
