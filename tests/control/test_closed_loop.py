"""Loops of a controller and a plant: every sample has a control, whatever fails, and what was logged is kept."""

from __future__ import annotations

import time
from dataclasses import replace

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.control.mpc_step import Source
from nosnoc_py.errors import ModelError, OptionError
from nosnoc_py.plotting.figures import plot
from nosnoc_py.status import Status, Stop
from nosnoc_py.transcription import Transcription

pytestmark = pytest.mark.quick


def problem(**more) -> ns.OCP:
    """A cart goes to a place close to a wall."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
    cost = 10 * (q - 0.9) ** 2 + v**2
    return ns.OCP(
        cart, horizon=1.0, x0=[0, 0], stage_cost=cost + 0.1 * u**2, terminal_cost=5 * cost, bounds=ns.Bounds(u=(-5, 5)),
        **more,
    )  # fmt: skip


def controller(ocp: ns.OCP | None = None, **options) -> ns.MPC:
    return ns.MPC(problem() if ocp is None else ocp, period=0.1, **options)


def started(ocp: ns.OCP | None = None, **options) -> ns.MPC:
    """A controller of finite elements alone, whose first plan starts from no control, instead of a search."""
    return controller(ocp, guess=[0.0], fixed_grid=False, **options)


def test_a_loop_goes_to_the_goal_and_its_log_is_saved_and_drawn(tmp_path):
    mpc = controller()
    log = ns.close_loop(mpc, mpc.system, 1.5, [0, 0], noise=1e-3, seed=3)
    assert log.success, log.message
    assert log.counts == {"solved": 15}
    assert abs(log["q_0"][-1] - 0.9) < 0.03
    assert np.isfinite(log.cost)
    again = ns.load(log.save(tmp_path / "loop.nc"))
    assert np.array_equal(again.x, log.x)
    assert again.sources == log.sources
    assert again.events == log.events
    figure = plot(log, path=tmp_path / "loop.png")
    assert [axes.get_ylabel() for axes in figure.axes] == ["q_0", "v_0", "controls", "latency [ms]"]
    assert (tmp_path / "loop.png").stat().st_size > 10_000


def test_a_figure_marks_sources_late_samples_and_impacts():
    """Of a log with all sources; the first sample, of 2 s, is a text."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=0.6 - q)])
    log = ns.close_loop(lambda t, x: 4 * (0.5 - x[0]) - x[1], cart, 2.0, [0, 0], period=0.1)
    latency, late = np.full(20, 0.002), np.zeros(20)
    latency[[0, 5, 9]], late[[5, 9]] = [2.0, 0.15, 0.2], 1.0
    sources = (*Source, *[Source.SOLVED] * 14, "law")
    figure = plot(replace(log, latency=latency, late=late, sources=sources, deadline=0.12), ["v_0"])
    states, _, panel = figure.axes
    # A figure without the first state has its legend, too, and none for plans that do not exist.
    assert [text.get_text() for text in states.get_legend().get_texts()] == ["plant"]
    assert [text.get_text() for text in panel.get_legend().get_texts()] == [
        "solved: 15", "order searched: 1", "plan tracked: 1", "plan shifted: 1", "held: 1", "law: 1",
        "late: 2 of 20", "period, 100 ms", "deadline, 120 ms", "impacts: 1",
    ]  # fmt: skip
    assert panel.get_title("left") == "first sample: 2 s"
    assert panel.get_yscale() == "log"
    assert 200 < panel.get_ylim()[1] < 1000
    looks = {line.get_label(): line for line in panel.get_lines()}
    assert len({(line.get_color(), line.get_marker()) for line in list(looks.values())[:6]}) == 6
    np.testing.assert_allclose(looks["late: 2 of 20"].get_xdata(), [0.5, 0.9], atol=1e-12)
    (impact,) = [event.time for event in log.events]
    for axes in figure.axes:
        assert [impact, impact] in [list(line.get_xdata()) for line in axes.get_lines()]


def test_every_sample_has_a_control_when_every_third_solution_fails(monkeypatch):
    mpc, calls = started(), []
    resolve, prepare = Transcription.resolve, Transcription.prepare

    def failing(self, *given, **more):
        calls.append(1)
        if len(calls) % 3 == 0:
            raise RuntimeError("injected")
        return resolve(self, *given, **more)

    monkeypatch.setattr(Transcription, "resolve", failing)
    monkeypatch.setattr(Transcription, "prepare", prepare)
    log = ns.close_loop(mpc, mpc.system, 1.5, [0, 0])
    assert log.success, log.message
    assert len(log.u) == 15
    assert log.sources.count(Source.SOLVED) < 15
    assert any("injected" in message for message in log.messages)
    assert abs(log["q_0"][-1] - 0.9) < 0.03


def test_a_late_answer_does_not_act_and_is_counted(monkeypatch):
    mpc, resolve, calls = started(), Transcription.resolve, []

    def slow(self, *given, **more):
        calls.append(1)
        answer = resolve(self, *given, **more)
        if len(calls) == 4:
            time.sleep(0.3)
        return answer

    monkeypatch.setattr(Transcription, "resolve", slow)
    log = ns.close_loop(mpc, mpc.system, 0.6, [0, 0], deadline=0.25)
    assert log.success
    k = int(np.argmax(log.latency[1:])) + 1
    assert log.late[k] == 1.0
    assert log.sources[k] != Source.SOLVED
    assert log.misses >= 1


def test_a_measurement_that_is_not_finite_is_an_error_or_holds_the_last_control(monkeypatch):
    def refused(self, p):
        raise ModelError("no position nearby is free")

    def lost(t, x, rng):
        return np.full(2, np.nan) if abs(t - 0.3) < 1e-9 else np.zeros(2)

    strict = started()
    log = ns.close_loop(strict, strict.system, 1.0, [0, 0], noise=lost)
    assert log.status is Status.CONTROLLER_FAILED
    assert len(log.u) == 3
    assert "not finite" in log.message
    with pytest.raises(ModelError, match="not finite"):
        strict.step([np.nan, 0.0], 0.0)
    holding = started(not_finite="hold")
    log = ns.close_loop(holding, holding.system, 0.5, [0, 0], noise=lost)
    assert log.success
    assert log.sources[3] == Source.HELD
    assert log.u[3] == log.u[2]
    # The plan of the next sample is prepared for the state that is predicted instead of the lost one.
    holding.step([0.0, 0.0], 0.0)
    predicted = holding.last.planned_from
    holding.step([np.nan, 0.0], 0.1)
    assert np.isfinite(holding.last.planned_from).all()
    assert holding.last.planned_from[0] != predicted[0]
    # Where no prediction succeeds there is still a control.
    monkeypatch.setattr(ns.MPC, "_next_state", refused)
    assert np.isfinite(holding.step([np.nan, 0.0], 0.2)).all()
    assert np.isfinite(holding.last.planned_from).all()


@pytest.mark.parametrize(("delay", "speed"), [(0.0, 0.1), (0.04, 0.06), (0.09999, 1e-5), (0.1, 0.0)])
def test_until_the_delay_is_over_no_control_acts(delay, speed):
    """Force 1 on a mass of 1 for a period of 0.1 s; a delay of the whole period leaves nothing of it."""

    class Law:
        period = 0.1

        def step(self, x, t):
            return [1.0]

    law = Law()
    law.delay = delay
    log = ns.close_loop(law, problem().system, 0.1, [0, 0])
    assert log["v_0"][-1] == pytest.approx(speed, abs=1e-9)


def test_interruption_and_the_word_stop_keep_all_that_was_logged():
    calls = []

    def law(t, x):
        calls.append(t)
        if len(calls) == 5:
            raise KeyboardInterrupt
        return [0.0]

    log = ns.close_loop(law, problem().system, 1.0, [0, 0], period=0.1)
    assert (log.status, len(log.u), len(log.x)) == (Status.INTERRUPTED, 4, 5)
    log = ns.close_loop(lambda t, x: 0.0, problem().system, 1.0, [0, 0], period=0.1, callback=lambda log: Stop())
    assert (log.status, len(log.u)) == (Status.STOPPED, 1)


def test_the_prediction_over_a_delay_is_what_the_plant_does():
    """With the right model and no noise the state that a plan begins with is the plant's at that time."""
    mpc = started(delay=0.04)
    log = ns.close_loop(mpc, mpc.system, 0.5, [0, 0])
    assert log.success
    began = mpc.last.planned_from
    k = int(np.argmin(np.abs(log.motion_t - (mpc.last.t + 0.04))))
    assert log.motion_x[k] == pytest.approx(began, abs=1e-6)


def test_a_problem_with_soft_constraints_gives_the_controls_of_the_plant():
    speed = ns.Constraint(problem().system.x[1], upper=0.5, soft="l1", weight=10.0, name="speed")
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
    speed = ns.Constraint(v, upper=0.5, soft="l1", weight=10.0, name="speed")
    ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=10 * (q - 0.9) ** 2 + u**2, path_constraints=[speed])
    log = ns.close_loop(started(ocp), cart, 0.5, [0, 0])
    assert log.success, log.message
    assert log.u.shape == (5, 1)


def test_disturbances_noise_and_other_parameters_act_on_the_plant():
    q, v, u, p = (ca.SX.sym(name) for name in "qvup")
    cart = ns.CLS(q=q, v=v, u=u, p=p, p_default=[1.0], mass_matrix=p, force=u, contacts=[ns.Contact("w", gap=9 - q)])
    log = ns.close_loop(lambda t, x: 1.0, cart, 1.0, [0, 0], period=0.1, p=[2.0], disturbances=[(0.5, {"v_0": 1.0})])
    assert log["v_0"][-1] == pytest.approx(1.0 / 2.0 + 1.0, abs=1e-9)
    with pytest.raises(OptionError, match="disturbances"):
        ns.close_loop(lambda t, x: 1.0, cart, 1.0, [0, 0], period=0.1, disturbances=[(0.5, {"speed": 1.0})])


@pytest.mark.parametrize(
    ("change", "word"),
    [({"period": 0.15}, "period"), ({"delay": 0.2}, "delay"), ({"on_failure": ["wait"]}, "on_failure")],
)
def test_what_does_not_fit_a_controller_is_said(change, word):
    with pytest.raises(OptionError, match=word):
        ns.MPC(problem(), ns.FESDJ(control_stages=10), **{"period": 0.1} | change)
