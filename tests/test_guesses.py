"""Guesses of every kind land on the right nodes: functions, rows, other grids and methods, shifted horizons, sides."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.discretization.guess import trajectory_series
from nosnoc_py.solution import Series, Shifted
from nosnoc_py.transcription import Transcription

GRAVITY, START, HORIZON = 9.81, (0.5, 0.0), 0.6
IMPACT = np.sqrt(2 * 0.5 / (GRAVITY - 1.0))  # of the ball under the push u = 1
METHOD = ns.FESDJ(control_stages=4)


def ball(restitution: float = 0.5) -> ns.CLS:
    """A ball above the ground, with a vertical push."""
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    ground = ns.Contact("ground", gap=q, restitution=restitution)
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM(1), force=u - GRAVITY, contacts=[ground])


def drop(restitution: float = 0.5, **more: Any) -> ns.OCP:
    system = ball(restitution)
    return ns.OCP(system, **{"horizon": HORIZON, "x0": START, "stage_cost": system.u**2, **more})


def relay() -> ns.PSS:
    """x' = 3 for x < 0 and 1 for x > 0."""
    x = ca.SX.sym("x")
    return ns.PSS(x=x, modes=ns.Modes("side", flows=[ca.SX(3), ca.SX(1)], functions=x, signs=[[-1], [1]]))


def exact(t: float, side: str, e: float = 0.5) -> np.ndarray:
    """The ball under u = 1, by hand."""
    a = GRAVITY - 1.0
    if t < IMPACT or (t == IMPACT and side == "-"):
        return np.array([0.5 - 0.5 * a * t**2, -a * t])
    s, up = t - IMPACT, e * a * IMPACT
    return np.array([up * s - 0.5 * a * s**2, up - a * s])


def simulated(method: Any, **more: Any) -> ns.Trajectory:
    return ns.simulate(ball(), x0=START, duration=HORIZON, u=[1.0], method=method, **more)


def check_states(problem: Transcription, w: np.ndarray, source: ns.Trajectory, offset: float = 0.0) -> np.ndarray:
    """Every state of the iterate is that of the source at its own time; returns the ends of the elements."""
    readout = problem.read(w, problem.mpcc.p0)
    ends = np.cumsum(readout.h)
    stages = (ends - readout.h)[:, None] + readout.h[:, None] * problem.tableau.c
    last = source.t0 + source.duration

    def look(times: np.ndarray) -> np.ndarray:
        return source(np.minimum(times.ravel() + source.t0 + offset, last), "-").reshape(*times.shape, -1)

    np.testing.assert_allclose(readout.x_stages, look(stages), rtol=0, atol=1e-11)
    np.testing.assert_allclose(readout.x_right, look(ends), rtol=0, atol=1e-11)
    return ends


# --- functions and rows by name ---


@pytest.mark.parametrize("scheme", ["radau_iia", "gauss_legendre"])
def test_states_as_a_function_of_time(scheme: Any) -> None:
    """At every stage and right end; of a jump inside an element each node gets its own side."""
    problem = ns.transcribe(drop(), METHOD.replace(scheme=scheme, rk_stages=2))
    w = problem.initial_guess({"x": lambda t: exact(t, "-"), "u": lambda t: [10 * t]})
    readout = problem.read(w, problem.mpcc.p0)
    np.testing.assert_allclose(readout.h, HORIZON / 8, rtol=0, atol=1e-15)
    starts = np.arange(8) * HORIZON / 8
    assert not np.isclose(starts, IMPACT).any()  # the impact lies inside of an element
    for block in problem.mpcc.variables.blocks("x"):
        at: Any = block.at
        t = starts[2 * at.stage + at.element] + problem.tableau.c[at.rk] * HORIZON / 8
        np.testing.assert_allclose(w[block.rows], exact(t, "-"), rtol=0, atol=1e-12)
    np.testing.assert_allclose(readout.x_right, [exact(t, "-") for t in starts + HORIZON / 8], rtol=0, atol=1e-12)
    np.testing.assert_allclose(problem.controls(w)[:, 0], 10 * HORIZON * (np.arange(4) + 0.5) / 4, rtol=0, atol=1e-12)


def test_states_as_rows_and_as_a_constant() -> None:
    problem = ns.transcribe(drop(), METHOD)
    rows = np.array([[1.0, 0.0], [3.0, 1.0], [3.0, -1.0]])
    readout = problem.read(problem.initial_guess({"x": rows}), problem.mpcc.p0)
    ends = np.cumsum(readout.h) / HORIZON
    expected = [np.interp(ends, [0, 0.5, 1], column) for column in rows.T]
    np.testing.assert_allclose(readout.x_right.T, expected, rtol=0, atol=1e-12)
    w = problem.initial_guess({"x": [0.3, 0.2]})
    np.testing.assert_array_equal(problem.read(w, problem.mpcc.p0).x_right, np.tile([0.3, 0.2], (8, 1)))
    assert not problem.controls(w).any()
    only_u = problem.initial_guess({"u": 0.7})
    np.testing.assert_array_equal(only_u, problem.initial_guess(0.7))


def test_states_by_name_with_time_freezing_get_the_clock() -> None:
    problem = ns.transcribe(drop(), ns.TimeFreezing(fesd=ns.FESD(control_stages=4)))
    w = problem.initial_guess({"x": lambda t: exact(t, "-"), "u": 1.0})
    readout = problem.read(w, problem.mpcc.p0)
    ends = np.cumsum(readout.h)
    np.testing.assert_allclose(readout.x_right[:, -1], ends, rtol=0, atol=1e-12)
    np.testing.assert_allclose(readout.x_right[:, :2], [exact(t, "-") for t in ends], rtol=0, atol=1e-12)


def test_a_free_start_with_time_freezing_has_no_clock() -> None:
    ocp = ns.OCP(ball(), horizon=HORIZON, bounds=ns.Bounds(x=([0.5, -1.0], [1.5, 1.0]), u=(-2, 2)))
    problem = ns.transcribe(ocp, ns.TimeFreezing(fesd=ns.FESD(control_stages=4)))
    start = problem.mpcc.variables["x_initial"]
    np.testing.assert_array_equal(problem.initial_guess(0.7)[start], [0.5, 0.0])
    np.testing.assert_array_equal(problem.initial_guess({"x": [1.0, -0.5]})[start], [1.0, -0.5])


def test_methods_that_simulate_take_the_control() -> None:
    system = ball()
    ocp = ns.OCP(system, horizon=HORIZON, x0=START, stage_cost=(system.u - 1) ** 2, bounds=ns.Bounds(u=(-2, 2)))
    for method in (ns.MinimumPrinciple(), ns.DirectShooting(form="single")):
        found = [ns.solve(ocp, method, guess=guess, callback=lambda state: ns.Stop) for guess in ({"u": 0.5}, 0.5, 0.7)]
        np.testing.assert_allclose(found[0].x, found[1].x, rtol=0, atol=1e-12)
        assert found[0].objective == pytest.approx(found[1].objective, rel=1e-12)
        assert abs(found[0].objective - found[2].objective) > 1e-6
        with pytest.raises(ns.NosnocError, match=r"Legal: .*x, u"):
            ns.solve(ocp, method, guess={"v": 0.5})


# --- other grids and methods ---


SOURCES: dict[str, Any] = {
    "event-driven": lambda: simulated(ns.EventDriven()),
    "time-stepping": lambda: simulated(ns.TimeStepping()),
    "finite elements": lambda: simulated(ns.FESDJ(rk_stages=3), steps=9),
    "time-freezing": lambda: simulated(ns.TimeFreezing(a_n=20.0), steps=9),
}


@pytest.mark.parametrize("name", SOURCES)
def test_a_simulation_lands_on_the_nodes_of_finite_elements(name: str) -> None:
    source = SOURCES[name]()
    assert source.success
    problem = ns.transcribe(drop(), ns.FESDJ(control_stages=3, finite_elements=3, rk_stages=3))
    w = problem.initial_guess(source)
    ends = check_states(problem, w, source)
    readout = problem.read(w, problem.mpcc.p0)
    np.testing.assert_allclose(problem.controls(w), 1.0, rtol=0, atol=1e-12)
    time = source.impacts[0].time
    assert time == pytest.approx(IMPACT, abs=2e-3 if name == "time-stepping" else 1e-6)
    node = int(np.argmin(np.abs(ends - time)))
    assert ends[node] == pytest.approx(time, abs=1e-9)  # the impact inside of a control stage lies on a node
    np.testing.assert_allclose(readout.x_minus[node + 1], source(time, "-"), rtol=0, atol=1e-9)
    assert readout.x_left[node + 1, 1] == pytest.approx(-0.5 * source(time, "-")[1], rel=1e-6)
    assert readout.impacts[node + 1, 0, 0] == pytest.approx(-1.5 * source(time, "-")[1], rel=1e-6)
    plain = problem.initial_guess({"x": lambda t: exact(t, "-")})
    assert not problem.read(plain, problem.mpcc.p0).impacts[:, 0, 0].any()  # a function tells of no impact


def test_a_solution_of_elements_becomes_one_of_time_freezing_and_back() -> None:
    source = simulated(ns.EventDriven())
    frozen = ns.transcribe(drop(), ns.TimeFreezing(a_n=20.0, fesd=ns.FESD(control_stages=4, finite_elements=4)))
    w = frozen.initial_guess(source)
    readout = frozen.read(w, frozen.mpcc.p0)
    clock = np.append(readout.x_left[:, -1], readout.x_right[-1, -1])
    np.testing.assert_allclose(clock[[4, 8, 12, 16]], HORIZON * np.arange(1, 5) / 4, rtol=0, atol=1e-12)
    runs = np.flatnonzero(np.diff(clock) > 1e-9)
    for n in runs:
        expected = source(min(readout.x_right[n, -1], HORIZON), "-")
        np.testing.assert_allclose(readout.x_right[n, :2], expected, rtol=0, atol=1e-9)
    assert runs.size == 14  # the jump takes two elements
    np.testing.assert_allclose(frozen.controls(w), 1.0, rtol=0, atol=1e-12)


@pytest.mark.parametrize("form", ["single", "phases"])
def test_shooting_and_minimum_principle_to_finite_elements(form: Any) -> None:
    system = ball()
    cost = (system.q - 0.3) ** 2
    ocp = ns.OCP(
        system, horizon=HORIZON, x0=START, stage_cost=0.1 * (system.u - 1) ** 2, terminal_cost=cost,
        bounds=ns.Bounds(u=(-4, 4)),
    )  # fmt: skip
    methods = [ns.DirectShooting(form=form), *([ns.MinimumPrinciple()] if form == "single" else [])]
    for method in methods:
        source = ns.solve(ocp, method, guess=1.0)
        assert source.impacts
        problem = ns.transcribe(ocp, ns.FESDJ(control_stages=5, finite_elements=3))
        w = problem.initial_guess(source)
        check_states(problem, w, source)
        middles = HORIZON * (np.arange(5) + 0.5) / 5
        np.testing.assert_allclose(problem.controls(w), source.control(middles), rtol=0, atol=1e-12)


def test_algebraic_variables_come_by_name_from_their_side_of_an_event() -> None:
    """A ball that lands and stays: the force is 0 until the impact and m g behind it, at every node."""
    source = ns.simulate(ball(0.0), x0=START, duration=HORIZON, u=[1.0], method=ns.FESDJ(rk_stages=2), steps=5)
    problem = ns.transcribe(drop(0.0), ns.FESDJ(control_stages=4, finite_elements=4, rk_stages=3))
    w = problem.initial_guess(source)
    force = np.array([w[b.rows][0] for b in problem.mpcc.variables.blocks("lambda_normal")])
    readout = problem.read(w, problem.mpcc.p0)
    starts = np.cumsum(readout.h) - readout.h
    times = (starts[:, None] + readout.h[:, None] * problem.tableau.c).ravel()
    behind = times > IMPACT + 1e-9
    assert 5 < behind.sum() < 45
    np.testing.assert_allclose(force[behind], GRAVITY - 1.0, rtol=0, atol=1e-6)
    np.testing.assert_allclose(force[~behind], 0.0, rtol=0, atol=1e-6)
    blurred = np.interp(times, source.series["lambda_normal[ground]"].t, source.series["lambda_normal[ground]"].values)
    assert np.abs(blurred - force).max() > 0.5  # a line across the impact would not do


def test_series_are_looked_up_on_the_side_that_is_asked_for() -> None:
    force = Series(np.array([0.1, 0.5, 0.5, 0.9]), np.array([1.0, 2.0, 7.0, 8.0]))
    trajectory = ns.Trajectory(
        t=np.array([0, 1]),
        x=np.zeros((2, 1)),
        state_names=("q",),
        u_grid=np.array([0, 1]),
        u=np.zeros((1, 0)),
        control_names=(),
        events=(ns.Event(0.5, "c", "contact"),),
        series={"force": force, "none": Series(np.zeros(0), np.zeros(0))},
    )
    look = trajectory_series(trajectory)
    assert (look("force", 0.5, "-"), look("force", 0.5, "+")) == (2.0, 7.0)
    assert look("force", 0.49999, "-") == pytest.approx(2.0, abs=1e-4)
    assert look("force", 0.50001, "-") == pytest.approx(7.0, abs=1e-4)
    assert look("none", 0.5, "-") is None
    assert look("other", 0.5, "-") is None


@pytest.mark.parametrize("scheme", ["radau_iia", "lobatto_iiic"])
def test_a_motion_of_a_switched_system_lands_on_the_stages_of_another_grid(scheme: Any) -> None:
    """States and multipliers of the regions; a stage at the start of an element belongs to the motion behind it."""
    system = relay()
    source = ns.simulate(system, x0=[-1.0], duration=1.0, method=ns.FESD(rk_stages=2), steps=4)
    problem = ns.transcribe(
        ns.OCP(system, horizon=1.0, x0=[-1.0]), ns.FESD(control_stages=3, finite_elements=2, scheme=scheme, rk_stages=3)
    )
    w = problem.initial_guess(source)
    check_states(problem, w, source)
    name = next(name for name in problem.mpcc.variables.names if name.startswith("theta"))
    readout = problem.read(w, problem.mpcc.p0)
    starts = np.cumsum(readout.h) - readout.h
    switch = source.events[0].time
    for block in problem.mpcc.variables.blocks(name):
        at: Any = block.at
        n, share = 2 * at.stage + at.element, problem.tableau.c[at.rk]
        t = starts[n] + share * readout.h[n]
        behind = t > switch + 1e-9 or (abs(t - switch) < 1e-9 and share == 0.0)
        np.testing.assert_allclose(w[block.rows], [0, 1] if behind else [1, 0], rtol=0, atol=1e-6)


# --- horizons ---


def test_other_horizons_and_starts() -> None:
    """A longer horizon: the end is held; a shorter one: the rest is cut; times count from the source's own start."""
    late = simulated(ns.EventDriven())
    moved = ns.Trajectory(
        t=late.t + 3.0, x=late.x, state_names=late.state_names, u_grid=late.u_grid + 3.0, u=late.u,
        control_names=late.control_names,
    )  # fmt: skip
    for horizon, source in ((0.9, late), (0.4, late), (0.6, moved)):
        problem = ns.transcribe(drop(horizon=horizon), METHOD)
        w = problem.initial_guess(source)
        ends = check_states(problem, w, source)
        assert ends[-1] == pytest.approx(horizon, abs=1e-12)
    assert problem.read(w, problem.mpcc.p0).x_right[-1] == pytest.approx(late.final_state, abs=1e-12)


def test_a_free_horizon_and_free_parameters_start_where_the_guess_has_them() -> None:
    q, v, u, m = (ca.SX.sym(name) for name in ("q", "v", "u", "m"))
    system = ns.CLS(q=q, v=v, u=u, p=m, mass_matrix=m, force=u, p_default=[1.0], names={"p": ["mass"]})
    ocp = ns.OCP(
        system, horizon=ns.FreeTime(1.0, 3.0), x0=[0, 0], stage_cost=u**2 + 1, free_parameters={"mass": (0.5, 2.0)},
        terminal_constraints=[ns.Constraint(q, 1, 1)],
    )  # fmt: skip
    for given, duration, mass in ((1.4, 1.4, 1.7), (5.0, 3.0, 1.7)):
        source = ns.simulate(system, x0=[0, 0], duration=given, u=[1.0], p=[1.7], method=ns.EventDriven())
        problem = ns.transcribe(ocp, METHOD)
        w = problem.initial_guess(source)
        assert problem.horizon(w, problem.mpcc.p0) == pytest.approx(duration, abs=1e-12)
        assert problem.parameter_values(w, problem.mpcc.p0) == pytest.approx([mass], abs=1e-12)
        check_states(problem, w, source)
    w = problem.initial_guess(0.0)
    assert problem.parameter_values(w, problem.mpcc.p0) == pytest.approx([1.0], abs=1e-12)
    assert problem.horizon(w, problem.mpcc.p0) == 2.0


# --- the receding horizon ---


@pytest.fixture(scope="module")
def plan() -> tuple[Transcription, ns.Solution]:
    system = ball()
    ocp = ns.OCP(
        system, horizon=HORIZON, x0=START, stage_cost=(system.q - 0.3) ** 2 + 0.01 * (system.u - 1) ** 2,
        bounds=ns.Bounds(u=(-4, 4)),
    )  # fmt: skip
    problem = ns.transcribe(ocp, ns.FESDJ(control_stages=6, finite_elements=3))
    solution = problem.solve(guess=simulated(ns.EventDriven()))
    assert solution.success
    assert len(solution.impacts) == 1
    return problem, solution


def test_shift_by_control_stages_moves_every_variable_with_its_stage(plan: Any) -> None:
    problem, solution = plan
    shifted = solution.shift(stages=2)
    assert isinstance(shifted, Shifted)
    assert shifted.stages == 2
    assert shifted.later == pytest.approx(HORIZON / 3, abs=1e-12)
    assert shifted.duration == pytest.approx(HORIZON, abs=1e-12)
    w, layout = problem.initial_guess(shifted), problem.mpcc.variables
    for block in layout.blocks():
        k, n, j = block.at.stage, block.at.element, block.at.rk
        if k is not None and k < 4:
            np.testing.assert_array_equal(w[block.rows], solution.w[layout[block.name, k + 2, n, j]])
    np.testing.assert_array_equal(problem.controls(w)[4:], solution.u[[-1, -1]])
    readout = problem.read(w, problem.mpcc.p0)
    np.testing.assert_allclose(readout.x_right[12:], np.tile(solution.final_state, (6, 1)), rtol=0, atol=1e-9)


@pytest.mark.parametrize("duration", [0.1, 0.13, 0.25, 0.4])
def test_shift_by_any_duration_is_the_motion_from_then_on(plan: Any, duration: float) -> None:
    problem, solution = plan
    shifted = solution.shift(duration)
    times = np.linspace(0.0, HORIZON - duration, 50)
    np.testing.assert_allclose(shifted(times), solution(times + duration), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(shifted.control(times[:-1]), solution.control(times[:-1] + duration))
    np.testing.assert_allclose(shifted(HORIZON), solution.final_state, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(shifted.control(HORIZON), solution.u[-1])
    later = [e.time - duration for e in solution.impacts if e.time > duration]
    assert [e.time for e in shifted.impacts] == pytest.approx(later, abs=1e-12)
    if duration == 0.13:
        assert shifted.stages == 0
        check_states(problem, problem.initial_guess(shifted), shifted)


def test_shift_and_summary_survive_the_disk_and_a_second_shift(plan: Any, tmp_path: Any) -> None:
    problem, solution = plan
    shifted = solution.shift(0.1)
    again = ns.load(shifted.save(tmp_path / "shifted.nc"))
    assert isinstance(again, Shifted)
    np.testing.assert_allclose(problem.initial_guess(again), problem.initial_guess(shifted), rtol=0, atol=1e-13)
    twice = shifted.shift(0.1)
    times = np.linspace(0.0, HORIZON - 0.2, 20)
    np.testing.assert_allclose(twice(times), solution(times + 0.2), rtol=0, atol=1e-12)


def test_bad_shifts(plan: Any) -> None:
    solution = plan[1]
    bad: list[dict[str, Any]] = [
        {"duration": 0.0},
        {"duration": -0.1},
        {"duration": HORIZON},
        {"duration": np.nan},
        {"duration": "long"},
        {"duration": True},
        {"stages": 0},
        {"stages": 6},
        {"stages": 1.5},
        {"duration": 0.1, "stages": 1},
    ]
    for given in bad:
        with pytest.raises(ns.TranscriptionError, match="shift"):
            solution.shift(**given)
    without = ns.simulate(ball(), x0=START, duration=0.2, method=ns.EventDriven())
    assert without.shift(0.1).duration == pytest.approx(0.2, abs=1e-12)


def test_a_guess_that_leads_nowhere_costs_little_more_than_none(plan: Any) -> None:
    """A state that the plan knows nothing of: after the start from it fails comes the default one."""
    problem, solution = plan
    kicked = [0.45, 3.0]
    cold, warm = problem.solve(x0=kicked), problem.solve(x0=kicked, guess=solution.shift())
    assert warm.success or not cold.success
    assert warm.iterations < 2 * cold.iterations + 500
