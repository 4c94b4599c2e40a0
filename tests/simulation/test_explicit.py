"""The loop of explicit steps: the same steps as SciPy's; the same motions interpreted, written out, and compiled."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import DOP853, Radau
from scipy.integrate._ivp import radau

import nosnoc_py as ns
from models import bouncing_ball, bowl, falling_rod, free_box, quadruped, relay_feedback, stick_slip
from nosnoc_py.compiled import VARIABLE
from nosnoc_py.kernels import machine_code
from nosnoc_py.simulation.event_driven import compiled_loop as loops
from nosnoc_py.simulation.event_driven import dop853, implicit, mechanics, motions, phase
from nosnoc_py.simulation.event_driven import kernel as kernels
from nosnoc_py.simulation.event_driven import loop as steps_loop
from nosnoc_py.simulation.event_driven.contact_flow import ContactFlow
from nosnoc_py.simulation.event_driven.loop import LoopSolver, rule_of
from nosnoc_py.simulation.event_driven.mechanics import regime_of
from nosnoc_py.simulation.event_driven.motions import InterpretedMotion, KernelMotion, WrittenMotion
from nosnoc_py.simulation.event_driven.records import Held
from nosnoc_py.simulation.event_driven.steps import LOCATED, OPEN
from nosnoc_py.simulation.event_driven.whole_step import CompiledSteps
from nosnoc_py.systems.scales import UNIT
from problems.benchmarks.accuracy import scenes
from tests.references.restarts import CASES

Array = np.ndarray
START = np.array([1.2, 0.3])
GRAVITY = np.array([9.81])
FLOW = "nosnoc_py.simulation.event_driven.contact_flow."
FILIPPOV = "nosnoc_py.simulation.event_driven.filippov.regime."


def pendulum() -> CompiledSteps:
    """x'' = -d sin(x) - 0.1 x', with a guard, a force and a rate to sample."""
    x, d = ca.SX.sym("x", 2), ca.SX.sym("d")
    return CompiledSteps(
        x, d, ca.vertcat(x[1], -d * ca.sin(x[0]) - 0.1 * x[1]), x[0] + 9, ca.vertcat(x[1] ** 2, x[0]), x[1]
    )


def pendulum_rate(t: float, x: Array) -> Array:
    return np.array([x[1], -9.81 * np.sin(x[0]) - 0.1 * x[1]])


def smooth(steps: CompiledSteps, data: Array) -> WrittenMotion:
    """A motion without constraints."""
    flow = SimpleNamespace(updated=lambda regime, t, x: regime, project=lambda regime, t, x: x)
    return WrittenMotion(flow, None, steps, data)


@pytest.mark.quick
@pytest.mark.parametrize("tolerance", [1e-3, 1e-8, 1e-12])
def test_steps_are_those_of_scipy(tolerance: float) -> None:
    """From where SciPy's steps begin, and so long; lengths follow errors, which rounding changes."""
    options = {"rtol": tolerance, "atol": tolerance}
    known, motion, count = DOP853(pendulum_rate, 0.0, START, 3.0, **options), smooth(pendulum(), GRAVITY), 0
    solver = LoopSolver(motion, 0.0, START, pendulum_rate(0.0, START), rule_of(end=3.0, **options), (1, 2, 1))
    assert solver.place.span[1] == pytest.approx(known.h_abs, rel=1e-9)
    while known.status == "running":
        known.step()
        count += 1
        end, dense = solver.part(known.t_old, known.y_old, known.K[0], known.t)
        np.testing.assert_allclose(end, known.y, rtol=0, atol=1e-12)
        np.testing.assert_allclose(solver.place.K[:13], known.K, rtol=0, atol=1e-11)
        shares = known.t_old + (known.t - known.t_old) * np.linspace(0.0, 1.0, 5)
        np.testing.assert_allclose(dense(shares), known.dense_output()(shares), rtol=0, atol=1e-12)
        np.testing.assert_allclose(dense(shares[2]), known.dense_output()(shares[2]), rtol=0, atol=1e-12)
    rule = rule_of(end=3.0, distances=1, most=4, **options)
    whole = LoopSolver(motion, 0.0, START, pendulum_rate(0.0, START), rule, (1, 2, 1))
    while whole.status == "running":
        assert not whole.leap()
        count -= whole.taken
    assert whole.t == known.t
    np.testing.assert_allclose(whole.y, known.y, rtol=0, atol=max(1e-3 * tolerance, 1e-11))
    assert abs(count) <= 1


@pytest.mark.quick
def test_other_data_make_another_step() -> None:
    steps, rate = pendulum(), pendulum_rate(0.0, START)
    here, other = (steps.step(START, rate, 0.1, np.array([g]))[0] for g in (9.81, 9.80))
    assert np.abs(here - other).max() > 1e-5


@pytest.mark.quick
def test_samples_in_one_call_are_those_one_by_one() -> None:
    steps, states = pendulum(), START + np.linspace(0.0, 1.0, 16).reshape(8, 2)
    together, single = steps.samples(states, GRAVITY), steps.samples(states[:3], GRAVITY)
    for many, few in zip(together, single, strict=True):
        np.testing.assert_array_equal(many[:3], few)
    np.testing.assert_allclose(together[1], np.column_stack([states[:, 1] ** 2, states[:, 0]]), rtol=1e-15)


def test_a_step_that_is_not_finite_fails() -> None:
    x = ca.SX.sym("x")
    steps = CompiledSteps(x, ca.SX(0, 1), ca.sqrt(1 - x), x + 1, x, x)
    motion = smooth(steps, np.zeros(0))
    rule = rule_of(end=9.0, rtol=1e-3, atol=1e-6)
    solver = LoopSolver(motion, 0.0, np.zeros(1), np.ones(1), rule, (1, 1, 1), 5.0)
    while solver.status == "running":
        solver.leap()
        assert not solver.open
        assert solver.y[0] <= 1.0 + 1e-9
    # q' = sqrt(1 - q) comes to rest at 1 after two seconds: what lies behind has no rate
    assert solver.status == "failed" or solver.y[0] == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize(("rtol", "stiff"), [(1e-12, False), (1e-4, True)])
def test_stiff_motions_are_left_to_radau_where_it_is_faster(rtol: float, stiff: bool) -> None:
    """A damper of 2000 / s that follows a slow motion: at 1e-12 Radau takes more steps than DOP853 at its limit."""
    q, v, t = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("t")
    system = ns.CLS(q=q, v=v, t=t, mass_matrix=1.0, force=-2000.0 * (v - ca.sin(20.0 * t)))
    counts = {}
    for integrator in ("auto", "DOP853", "Radau"):
        method = ns.EventDriven(rtol=rtol, atol=0.1 * rtol, integrator=integrator)
        motion = ns.simulate(system, x0=[0.0, 0.0], duration=0.25, method=method)
        assert motion.success
        counts[integrator] = len(motion.t)
    assert (counts["Radau"] < 0.5 * counts["DOP853"]) == stiff
    assert counts["auto"] < 1.3 * min(counts["DOP853"], counts["Radau"]) + 60


# --- the same motions in every way ---


@pytest.fixture(scope="module")
def compiled() -> Any:
    """The compiled loop; the first time on a machine its compilation takes a minute."""
    pytest.importorskip("numba")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, VARIABLE, "now")
        return loops.CompiledLoop()()


def run_by(patch: pytest.MonkeyPatch, loop: Any) -> None:
    """Run by this loop; by None is interpreted."""
    for flow in (FLOW, FILIPPOV):
        patch.setattr(f"{flow}compiled_loop", lambda **small: loop)


def interpret(patch: pytest.MonkeyPatch) -> None:
    """Leave neither compiled loops nor steps that are written out."""
    run_by(patch, None)
    patch.setattr(f"{FLOW}compiled_steps_of", lambda mechanics, regime: None)
    patch.setattr(f"{FILIPPOV}compiled_steps_of", lambda regime: None)


MOTIONS: dict[str, tuple[Callable[[], Any], Any, float]] = {
    "sliding relay": (relay_feedback.build, relay_feedback.limit_cycle().start, 20.0),
    "stick-slip": (stick_slip.build, [0.0, stick_slip.STANDARD.belt], 5.0),
    "rod with friction": (falling_rod.build, falling_rod.tilted(0.5, 0.5), 0.8),
    "bowl with friction": (lambda: bowl.build(bowl.Constants(friction=0.3)), bowl.slide(1.0, 0.0, 2.0)(0.0)[0], 2.0),
    "bouncing ball": (bouncing_ball.build, [1.0, 0.0], 2.0),
    "tumbling box": (free_box.build, free_box.start((0.2, 0.25, 0.15), 0.4), 0.24),
    **{name: (case.build, case.x0, case.duration) for name, case in CASES.items() if case.u is None},
}


def agree(motion: ns.Trajectory, known: ns.Trajectory) -> None:
    """Events at the same times, states at the end and forces in the middle."""
    assert motion.status is known.status is ns.Status.SOLVED
    assert [(event.kind, event.name) for event in motion.events] == [(event.kind, event.name) for event in known.events]
    times = [[event.time for event in each.events] for each in (motion, known)]
    np.testing.assert_allclose(*times, rtol=0, atol=1e-10)
    np.testing.assert_allclose(motion.final_state, known.final_state, rtol=0, atol=2e-10)
    middle = 0.37 * known.duration
    for series in known.series:
        if not any(abs(event.time - middle) < 1e-3 for event in known.events):
            here, there = (
                np.interp(middle, each.series[series].t, each.series[series].values) for each in (motion, known)
            )
            assert here == pytest.approx(there, abs=1e-2 * (1.0 + abs(there)))


@pytest.mark.parametrize("name", MOTIONS)
def test_motions_that_are_written_out(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    build, x0, duration = MOTIONS[name]
    run_by(monkeypatch, None)
    whole = ns.simulate(build(), x0=x0, duration=duration)
    interpret(monkeypatch)
    agree(whole, ns.simulate(build(), x0=x0, duration=duration))


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("name", MOTIONS)
def test_motions_that_are_compiled(name: str, written: bool, compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Motions that are written out as tapes, and contacts as arrays."""
    build, x0, duration = MOTIONS[name]
    if not written:
        interpret(monkeypatch)
    run_by(monkeypatch, compiled)
    whole = ns.simulate(build(), x0=x0, duration=duration)
    interpret(monkeypatch)
    agree(whole, ns.simulate(build(), x0=x0, duration=duration))


def test_a_robot_lands_the_same_way(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to its third foot event by event; then impacts follow each other within 1e-8 s, and rounding decides how many
    there are: the sums of their impulses and the state at the end are the same.
    """
    scene = scenes.landing()
    system, method = scene.robot.system(), ns.EventDriven(grazing="continue")
    answers = []
    for loop in (compiled, None):
        run_by(monkeypatch, loop)
        answers.append([ns.simulate(system, x0=scene.x0, duration=end, method=method) for end in (0.09, 0.2)])
    (early, whole), (known, exact) = answers
    agree(early, known)
    np.testing.assert_allclose(whole.final_state, exact.final_state, rtol=0, atol=1e-10)
    for name in (contact.name for contact in system.contacts):
        sums = [sum(event.impulse or 0.0 for event in each.impacts if event.name == name) for each in (whole, exact)]
        np.testing.assert_allclose(*sums, rtol=0, atol=1e-7)


@pytest.mark.skipif(machine_code.compiler() is None, reason="no C compiler")
def test_machine_code_lands_with_equal_bits(
    compiled: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    scene, method = scenes.landing(), ns.EventDriven(grazing="continue")
    run_by(monkeypatch, compiled)
    monkeypatch.setenv(machine_code.FOLDER, str(tmp_path))
    landings = []
    for mode in ("never", "now"):
        monkeypatch.setenv(machine_code.MODE, mode)
        system = quadruped.build(0.8, gains=quadruped.Gains())
        motion = ns.simulate(system, x0=scene.x0, duration=0.09, method=method)
        assert (system.mechanics.once(motions.contact_tapes)["first"].now().address != 0) == (mode == "now")
        landings.append(motion)
    first, second = landings
    assert first.events == second.events
    np.testing.assert_array_equal(first.final_state, second.final_state)


@pytest.mark.parametrize("modes", [(0, 0, 0, 0), (2, 0, 0, 0), (3, 2, 2, 0), (3, 3, 3, 3)])
def test_kernels_of_a_robot(modes: tuple[int, ...], compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates, samples and projections in many regimes, to rounding."""
    scene, rng = scenes.landing(), np.random.default_rng(1)
    system, x = scene.robot.system(), scene.x0.copy()
    x[system.at_v] += 0.1 * rng.normal(size=system.n_v)
    flow = ContactFlow(system.mechanics, ns.EventDriven(), Held(np.zeros(system.n_u)), np.zeros(system.n_p), UNIT)
    regime = regime_of(flow.frames, modes, np.tile([0.6, 0.8], 4), flow.kinematics(0.0, x))
    run_by(monkeypatch, compiled)
    motion, known = flow.motion(regime), InterpretedMotion(flow, regime)
    assert isinstance(motion, KernelMotion)
    np.testing.assert_allclose(motion.rate(0.0, x), known.rate(0.0, x), rtol=1e-12, atol=1e-9)
    for count in (1, 8):
        states = x + 1e-3 * rng.normal(size=(count, x.size))
        for here, there in zip(*(each.samples(np.zeros(count), states) for each in (motion, known)), strict=True):
            np.testing.assert_allclose(here, there, rtol=1e-12, atol=1e-9)
    solvers = []
    for each in (motion, known):
        solver = LoopSolver(each, 0.0, x, known.rate(0.0, x), rule_of(end=1.0), flow.widths, 1e-3)
        solver.part(0.0, x, known.rate(0.0, x), 1e-4)
        solver.place.span[2:] = 1e-4, 1e-4
        solver.close()
        solvers.append(solver)
    first, second = (solver.place for solver in solvers)
    np.testing.assert_allclose(first.x, second.x, rtol=0, atol=1e-12)
    np.testing.assert_allclose(first.f, second.f, rtol=1e-9, atol=1e-6)
    np.testing.assert_allclose(motion.regime.direction, known.regime.direction, rtol=0, atol=1e-12)


def slip_start() -> tuple[ContactFlow, Any, Array]:
    """A robot on four feet; one sticks, and the others begin to slip."""
    scene, rng = scenes.landing(), np.random.default_rng(2)
    system, x = scene.robot.system(), scene.x0.copy()
    flow = ContactFlow(system.mechanics, ns.EventDriven(), Held(np.zeros(system.n_u)), np.zeros(system.n_p), UNIT)
    regime = regime_of(flow.frames, (2, 3, 3, 3), np.tile([0.6, 0.8], 4), flow.kinematics(0.0, x))
    x = flow.project(regime, 0.0, x)
    at = flow.kinematics(0.0, x)
    slips = at.jacobian[at.gaps.size :]
    wanted = np.concatenate([np.zeros(2), *([3e-9, 4e-9] + 1e-10 * rng.normal(size=2) for _ in range(3))])
    x[system.at_v] += np.linalg.lstsq(np.vstack([at.jacobian[:4], slips]), np.append(np.zeros(4), wanted))[0]
    return flow, regime, x


def test_starts_of_slips_are_those_of_scipy() -> None:
    """Radau's steps from where SciPy's begin, with the same Jacobian; both take about as many."""
    flow, regime, x = slip_start()
    motion, limits = InterpretedMotion(flow, regime), {"rtol": 1e-11, "atol": 1e-11}
    rate, end = motion.rate(0.0, x), 1e-10
    known = Radau(motion.rate, 0.0, x, end, jac=lambda t, y: np.matmul(*flow.turning(regime, t, y)), **limits)
    whole = LoopSolver(motion, 0.0, x, rate, rule_of(end=end, implicit=True, **limits), flow.widths)
    assert whole.place.span[1] == pytest.approx(known.h_abs, rel=1e-6)
    counts = [0, 0]
    for k, solver in enumerate((known, whole)):
        while solver.status == "running" and counts[k] < 100:
            assert not solver.step()
            counts[k] += 1
    assert known.t == whole.t == end
    assert abs(counts[0] - counts[1]) <= 0.3 * counts[0]
    np.testing.assert_allclose(whole.y, known.y, rtol=0, atol=1e-10)
    slips = [np.abs(flow.kinematics(end, state).rates[6:]).min() for state in (x, whole.y)]
    assert slips[0] < 5e-9
    assert slips[1] > 5e-8
    low, high = whole.place.span[0], whole.place.span[2]
    ends = whole.dense_output()(np.array([low, high]))
    np.testing.assert_allclose(ends.T, [whole.place.x, whole.y], rtol=0, atol=1e-14)


def test_kernel_of_directions(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step of Radau and the state after it, compiled and interpreted, to the tolerance of Newton's method."""
    flow, regime, x = slip_start()
    run_by(monkeypatch, compiled)
    ends = []
    for motion in (flow.motion(regime), InterpretedMotion(flow, regime)):
        rule = rule_of(end=1e-6, rtol=1e-11, atol=1e-11, implicit=True)
        solver = LoopSolver(motion, 0.0, x, motion.rate(0.0, x), rule, flow.widths, 1e-12)
        solver.step()
        solver.close()
        ends.append((solver.start, motion.regime.direction))
    (first, second), directions = [end[0] for end in ends], [end[1] for end in ends]
    assert first[0] == pytest.approx(second[0], rel=1e-9)
    np.testing.assert_allclose(first[1], second[1], rtol=0, atol=1e-13)
    np.testing.assert_allclose(*directions, rtol=0, atol=1e-6)


@pytest.mark.quick
def test_constants_are_written_twice_but_equal() -> None:
    """A kernel takes numbers from its own module only."""
    assert (kernels.STARTING, kernels.GROWN) == (mechanics.STARTING, mechanics.GROWN)


def test_the_coefficients_are_those_of_scipy() -> None:
    """Every number of the table is SciPy's, to the last bit."""
    stages = np.zeros((16, 16))
    stages[:12, :12], stages[12, :12], stages[13:] = DOP853.A, DOP853.B, DOP853.A_EXTRA
    pairs = [(dop853.A, stages), (dop853.C, np.concatenate([DOP853.C, [1.0], DOP853.C_EXTRA]))]
    pairs += [(dop853.FIFTH, DOP853.E5), (dop853.THIRD, DOP853.E3), (dop853.D, DOP853.D)]
    names = {**{name: name for name in ("C", "E", "P", "T", "TI")}, "MU": "MU_REAL", "NEWTON": "NEWTON_MAXITER"}
    pairs += [(getattr(implicit, own), getattr(radau, other)) for own, other in names.items()]
    pairs += [(complex(implicit.MU_RE, implicit.MU_IM), radau.MU_COMPLEX)]
    assert all(np.array_equal(own, other) for own, other in pairs)


@pytest.mark.parametrize("name", ["relay", "friction blocks", "genes"])
def test_crossings_in_the_loop_are_those_of_a_search(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that are halved several times: the loop locates all events, those of the search to 1e-8."""
    case, own, answers = CASES[name], steps_loop.locate, list[int]()
    run_by(monkeypatch, None)

    def noted(*arguments: Any) -> int:
        answers.append(own(*arguments))
        return answers[-1]

    motions_by = []
    for locate in (noted, lambda *arguments: OPEN):
        monkeypatch.setattr(steps_loop, "locate", locate)
        method = ns.EventDriven(rtol=1e-6, atol=1e-6)
        motions_by.append(ns.simulate(case.build(), x0=case.x0, duration=case.duration, u=case.u, method=method))
    whole, known = motions_by
    assert answers.count(LOCATED) >= 7 > 3 * answers.count(OPEN)
    assert [(event.kind, event.name) for event in whole.events] == [(event.kind, event.name) for event in known.events]
    times = [[event.time for event in each.events] for each in motions_by]
    np.testing.assert_allclose(times[0], times[1], rtol=0, atol=1e-8)
    np.testing.assert_allclose(whole.final_state, known.final_state, rtol=0, atol=1e-8)


# --- when the compiled loop is loaded ---


def counting(patch: pytest.MonkeyPatch, kernel: Any, left: int) -> loops.CompiledLoop:
    """Simulate by a loop that is loaded after so many more steps of small systems."""
    counted = loops.CompiledLoop()
    vars(counted)["_loaded"] = kernel
    counted.steps = int(np.ceil(loops.LOADING / loops.SAVED)) - left
    patch.setenv(VARIABLE, "beside")
    for module in (FLOW, FILIPPOV, f"{phase.__name__}."):
        patch.setattr(f"{module}compiled_loop", counted)
    return counted


def test_small_systems_wait_until_their_steps_pay_for_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = counting(monkeypatch, "kernel", left=1)
    assert (counted(small=True), counted()) == (None, "kernel")
    counted.steps += 1
    assert counted(small=True) == "kernel"
    monkeypatch.setattr(counted, "steps", 0)
    monkeypatch.setenv(VARIABLE, "now")
    assert counted(small=True) == "kernel"


@pytest.mark.parametrize("name", ["bouncing ball", "stick-slip"])
def test_a_simulation_changes_to_the_compiled_loop(name: str, compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the same modes, too, which come again after every impact or stick."""
    build, x0, duration = MOTIONS[name]
    used = list[bool]()

    def kernel(*given: Any) -> Any:
        used.append(True)
        return compiled(*given)

    counted = counting(monkeypatch, kernel, left=8)
    changed, before = ns.simulate(build(), x0=x0, duration=duration), counted.steps
    assert used
    assert before > loops.LOADING / loops.SAVED
    run_by(monkeypatch, None)
    agree(changed, ns.simulate(build(), x0=x0, duration=duration))
