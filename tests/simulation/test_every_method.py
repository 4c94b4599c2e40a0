"""What holds for every simulator: controls in all their forms, closed loops, wrong arguments, sensitivities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import bouncing_ball
from nosnoc_py.errors import NosnocError
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER
from tests.pairwise import slow_but

STEPS = 20
CONTACT: dict[str, dict[str, Any]] = {
    "newton": {"method": ns.FESDJ(), "steps": STEPS},
    "mpcc": {"method": ns.FESDJ(), "steps": STEPS, "solver": SIMULATION_SOLVER},
    "event_driven": {"method": ns.EventDriven()},
    "moreau_jean": {"method": ns.TimeStepping(), "steps": 200},
    "stewart_trinkle": {"method": ns.TimeStepping(scheme="stewart_trinkle"), "steps": 200},
    "time_freezing": {"method": ns.TimeFreezing(fesd=ns.FESD(finite_elements=4)), "steps": 10},
}
SWITCHED: dict[str, dict[str, Any]] = {
    "newton": {"method": ns.FESD(), "steps": STEPS},
    "mpcc": {"method": ns.FESD(), "steps": STEPS, "solver": SIMULATION_SOLVER},
    "event_driven": {"method": ns.EventDriven()},
}
CASES = [("contact", name) for name in CONTACT] + [("switched", name) for name in SWITCHED]


def setting(kind: str, name: str) -> tuple[Any, list[float], dict[str, Any]]:
    """A pushed block that lands on the ground, or a switched system with a control."""
    if kind == "switched":
        x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
        modes = ns.Modes("sign", flows=[[0, 1], [0, -1]], functions=x[0], signs=[[-1], [1]])
        return ns.PSS(x=x, u=u, modes=modes, flow=ca.vertcat(x[1], u)), [0.2, -0.5], SWITCHED[name]
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=0.3)
    force = ca.vertcat(u, -9.81)
    return (
        ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=force, contacts=[ground]),
        [0.0, 0.2, 1.0, 0.0],
        CONTACT[name],
    )


# Seconds each; the closed loop below has them, too, or the same solver on another kind of system.
LONG = {("contact", "mpcc"), ("contact", "time_freezing"), ("switched", "mpcc")}


@pytest.mark.parametrize(("kind", "name"), slow_but([case for case in CASES if case not in LONG], CASES))
def test_the_same_control_in_every_form_is_the_same_motion(kind: str, name: str) -> None:
    """1 N for .5 s and 3 N for .5 s: as rows, on a grid, as a function of t or of t and x, as a trajectory."""
    system, x0, options = setting(kind, name)
    rows = [[1.0], [3.0]]
    forms: list[Any] = [
        rows,
        ns.PiecewiseConstant([0.0, 0.5, 1.0], rows),
        lambda t: rows[int(t > 0.5)],
        lambda t, x: rows[int(t > 0.5)],
    ]
    if name == "event_driven":  # jumps of a function are not known to it
        forms = forms[:2]
    found = [ns.simulate(system, x0=x0, duration=1.0, u=u, **options) for u in forms]
    found.append(ns.simulate(system, x0=x0, duration=1.0, u=found[0], **options))
    for motion in found:
        assert motion.success, motion.message
        np.testing.assert_allclose(motion.final_state, found[0].final_state, rtol=0, atol=1e-9)
    assert found[0].control(0.25) == pytest.approx(1.0)
    assert found[0].control(0.75) == pytest.approx(3.0)


HELD = [case for case in CASES if case[1] != "event_driven"]


@pytest.mark.parametrize(("kind", "name"), slow_but([case for case in HELD if case != ("contact", "mpcc")], HELD))
def test_a_closed_loop_holds_its_control_on_every_step(kind: str, name: str) -> None:
    """u = -4 x - 3 v with the state at the beginning of a step; its record replayed is the same motion."""
    system, x0, options = setting(kind, name)

    def law(t: float, x: np.ndarray) -> list[float]:
        return [-4.0 * x[0] - 3.0 * x[len(x) // 2]]

    closed = ns.simulate(system, x0=x0, duration=1.0, u=law, **options)
    assert closed.success, closed.message
    starts = closed.u_grid[:-1]
    sides = ["+" if t == 0.0 else "-" for t in starts]
    states = np.array([closed(t, side) for t, side in zip(starts, sides, strict=True)])  # type: ignore[arg-type]
    expected = [law(t, x) for t, x in zip(starts, states, strict=True)]
    np.testing.assert_allclose(closed.u[:, :1], expected, rtol=0, atol=1e-9)
    again = ns.simulate(system, x0=x0, duration=1.0, u=closed, **options)
    np.testing.assert_allclose(again.final_state, closed.final_state, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kind", slow_but(["switched"], ["contact", "switched"]))
def test_a_continuous_feedback_is_the_limit_of_held_ones(kind: str) -> None:
    """The event-driven simulation applies a law of t and x as it is; held on steps it is of first order."""
    system, x0, options = setting(kind, "newton")

    def law(t: float, x: np.ndarray) -> list[float]:
        return [-4.0 * x[0] - 3.0 * x[len(x) // 2]]

    exact = ns.simulate(system, x0=x0, duration=1.0, u=law, method=ns.EventDriven(grazing="continue"))
    assert exact.success, exact.message
    counts = (20, 29, 41, 58, 82, 116, 164, 232, 328)  # single errors depend on where an event lies in its step
    errors = []
    for steps in counts:
        held = ns.simulate(system, x0=x0, duration=1.0, u=law, **{**options, "steps": steps})
        errors.append(float(np.abs(held.final_state - exact.final_state).max()))
    order = -np.polyfit(np.log(counts), np.log(errors), 1)[0]
    assert order == pytest.approx(1.0, abs=0.2), errors


@pytest.mark.parametrize(("kind", "name"), CASES)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"duration": -1.0}, "duration: expected a positive finite number"),
        ({"duration": np.nan}, "duration"),
        ({"x0": [0.0]}, "x0"),
        ({"x0": [np.nan] * 4}, "x0"),
        ({"u": [1.0, 2.0, 3.0]}, "control|u:"),
        ({"u": [[1.0, 2.0]]}, "control|u:"),
        ({"u": ns.PiecewiseConstant([0.0, 0.4], [[1.0]])}, "control grid: it goes from 0 to 0.4 s"),
        ({"u": lambda t: [np.nan]}, "u"),
        ({"u": "fast"}, "control|u"),
        ({"p": [1.0]}, "p"),
    ],
)
def test_a_mistake_is_an_error_at_once(kind: str, name: str, change: dict[str, Any], message: str) -> None:
    system, x0, options = setting(kind, name)
    given = {"x0": x0, "duration": 1.0, "u": [0.0], **options, **change}
    if kind == "switched" and "x0" in change and len(change["x0"]) == 4:
        given["x0"] = [np.nan] * 2
    with pytest.raises(NosnocError, match=message):
        ns.simulate(system, **given)


@pytest.mark.parametrize("name", CONTACT)
def test_an_x0_that_penetrates_is_an_error(name: str) -> None:
    system, _, options = setting("contact", name)
    with pytest.raises(ns.ModelError, match="penetrates contact 'ground'"):
        ns.simulate(system, x0=[0.0, -0.1, 0.0, 0.0], duration=1.0, **options)


def test_rows_that_do_not_fit_the_steps_are_an_error() -> None:
    system, x0, _ = setting("contact", "newton")
    with pytest.raises(ns.OptionError, match="multiple of the 3 rows"):
        ns.simulate(system, x0=x0, duration=1.0, u=[[1.0]] * 3, steps=10, method=ns.FESDJ())


# --- sensitivities ---


def test_sensitivities_by_finite_elements_are_those_of_the_motion() -> None:
    """The bouncing ball, on which two stages are exact: as by saltation matrices."""
    ball = bouncing_ball.build(0.9)
    found = ns.simulate(ball, method=ns.FESDJ(), x0=[1.0, 0.0], duration=1.5, steps=10, sensitivities=True)
    truth = ns.simulate(ball, x0=[1.0, 0.0], duration=1.5, method=ns.EventDriven(), sensitivities=True)
    assert found.sensitivity is not None
    assert truth.sensitivity is not None
    assert len(found.impacts) == 2
    np.testing.assert_allclose(found.sensitivity.x0, truth.sensitivity.x0, rtol=1e-9, atol=1e-9)
    assert found.sensitivity.event_times_x0 is None


@pytest.mark.parametrize(("kind", "method"), [("contact", ns.FESDJ()), ("switched", ns.FESD(rk_stages=3))])
def test_derivatives_by_the_control_of_every_step(kind: str, method: Any, tmp_path: Path) -> None:
    system, x0, _ = setting(kind, "newton")
    u = np.linspace(0.5, 2.0, 8)[:, None]
    options: dict[str, Any] = {"x0": x0, "duration": 0.8, "steps": 8, "method": method}
    found = ns.simulate(system, u=u, sensitivities=True, **options)
    assert found.sensitivity is not None
    assert found.sensitivity.smooth, found.sensitivity.flags
    assert found.sensitivity.u is not None
    assert len(found.events) > 0
    for k in range(8):
        ends = []
        for change in (1e-5, -1e-5):
            near = u.copy()
            near[k] += change
            ends.append(ns.simulate(system, u=near, **options).final_state)
        difference = (ends[0] - ends[1]) / 2e-5
        np.testing.assert_allclose(found.sensitivity.u[k, :, 0], difference, rtol=1e-6, atol=1e-8)
    again = ns.load(found.save(tmp_path / "motion.nc"))
    assert again.sensitivity is not None
    assert again.sensitivity.event_times_x0 is None
    np.testing.assert_array_equal(again.sensitivity.u, found.sensitivity.u)


def test_derivatives_of_time_freezing() -> None:
    """A pushed ball that lands inelastically and rests: only its way along the ground depends on x0 and u."""
    system, _, options = setting("contact", "time_freezing")
    falling = [0.0, 0.2, 1.0, -0.1]  # at v_n = 0 a step function of the frozen system is on its edge
    given: dict[str, Any] = {"x0": falling, "duration": 0.4, "u": [[0.5], [0.6], [0.7], [0.8]], "sensitivities": True}
    found = ns.simulate(system, method=options["method"], steps=4, **given)
    assert found.success, found.message
    truth = ns.simulate(system, method=ns.EventDriven(), **given)
    assert found.sensitivity is not None
    assert truth.sensitivity is not None
    assert found.sensitivity.smooth, found.sensitivity.flags
    assert found.sensitivity.u is not None
    assert found.sensitivity.u.shape == (4, 4, 1)
    np.testing.assert_allclose(found.sensitivity.x0, truth.sensitivity.x0, rtol=1e-6, atol=1e-6)


def test_one_step_has_its_derivatives() -> None:
    ball = bouncing_ball.build(0.9)
    simulator = ns.Simulator(ball, ns.FESDJ(), step=0.1)
    state = simulator.step(simulator.init([0.1, -1.0]), sensitivities=True)  # hits at .0735 s
    assert state.sensitivity is not None

    start = np.array([0.1, -1.0])

    def end(x: np.ndarray) -> np.ndarray:
        return simulator.step(simulator.init(x)).x

    for i in range(2):
        step = 1e-6 * np.eye(2)[i]
        difference = (end(start + step) - end(start - step)) / 2e-6
        np.testing.assert_allclose(state.sensitivity.x[:, i], difference, rtol=1e-6, atol=1e-8)
    assert simulator.step(simulator.init([0.1, -1.0])).sensitivity is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": ns.TimeStepping()}, "sensitivities: those of TimeStepping"),
        ({"u": lambda t, x: [0.0]}, "sensitivities: the control is a function of"),
    ],
)
def test_sensitivities_that_do_not_exist_are_refused(options: dict[str, Any], message: str) -> None:
    system, x0, _ = setting("contact", "newton")
    with pytest.raises(ns.OptionError, match=message):
        ns.simulate(system, x0=x0, duration=0.5, sensitivities=True, **options)
