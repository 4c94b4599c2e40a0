"""Recorded samples of closed loops: what is recorded, how motions are judged, and the benchmark over them."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.processes import can_fork
from problems.benchmarks import recorded_samples
from problems.benchmarks.recorded_samples import Judge, Row, Sample
from problems.loops.common import Loop
from tests.problems.command_line import run_json


def sample_of(index: int, new: bool, **given: Any) -> Sample:
    fields = {"x": np.zeros(1), "p": np.zeros(0), "u": np.zeros((2, 1)), "grid": None, "before": None, "shift": 0}
    return Sample(index=index, new=new, source="", predicted=1.0, gap=0.0, **{**fields, **given})


def cart(upper: float = np.inf) -> ns.OCP:
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    wall = ns.Contact("wall", gap=2 - q)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[wall], names={"q": ["q"], "v": ["v"]})
    return ns.OCP(system, horizon=2.0, x0=[0, 0], stage_cost=v**2, terminal_cost=q, bounds={"q": (-1, upper)})


def test_a_motion_has_the_objective_and_the_violation_of_closed_forms() -> None:
    # v = t, q = t^2 / 2 until the inelastic wall at q = 2, t = 2: the integral of v^2 is 8 / 3.
    motion = recorded_samples.played(cart(1.0), np.zeros(2), np.zeros(0), np.ones((4, 1)), 10.0)
    assert motion.cost == pytest.approx(8 / 3 + 2, rel=1e-9)
    assert motion.violation == pytest.approx(0.5, rel=1e-6)  # 1 m beyond the bound, relative to 2 m
    np.testing.assert_allclose(motion.end[0], 2.0, rtol=1e-9)
    # A push against the wall from the start: nothing moves.
    rest = recorded_samples.played(cart(), np.array([2.0, 0.0]), np.zeros(0), np.ones((4, 1)), 10.0)
    assert rest.cost == pytest.approx(2.0, abs=1e-9)
    assert rest.violation == 0.0


def test_a_motion_that_does_not_reach_the_end_has_no_objective() -> None:
    no_time = recorded_samples.played(cart(), np.zeros(2), np.zeros(0), np.ones((4, 1)), -1.0)
    assert np.isinf(no_time.cost)
    assert no_time.motion is None


def test_samples_with_a_new_order_come_first_and_are_spread() -> None:
    samples = [sample_of(k, k % 10 == 0) for k in range(100)]
    assert [one.index for one in recorded_samples.chosen(samples, 4)] == [0, 30, 60, 90]
    mixed = [one.index for one in recorded_samples.chosen(samples, 13)]
    assert len(mixed) == 13
    assert set(range(0, 100, 10)) < set(mixed)
    assert mixed == sorted(mixed)
    assert len(recorded_samples.chosen(samples[:5], 13)) == 5


def test_finer_elements_are_those_of_the_last_stages() -> None:
    method = ns.FESDJ(control_stages=4, finite_elements=(4, 3, 1, 1), rk_stages=1, switch_detection=False)
    fine = recorded_samples.finer(method, 3)
    assert (fine.control_stages, fine.finite_elements, fine.rk_stages) == (3, (3, 2, 2), 3)
    assert fine.switch_detection
    assert recorded_samples.finer(ns.FESD(control_stages=4, finite_elements=1, rk_stages=4), 4).rk_stages == 4


@pytest.mark.skipif(not can_fork(), reason="a process that is late cannot be ended where there are no forks")
def test_a_reference_that_does_not_end_is_late() -> None:
    judge = object.__new__(Judge)
    judge.seconds = 0.05
    judge.mpc = SimpleNamespace(problem=SimpleNamespace(resolve=lambda *_, **given: time.sleep(60.0)))
    assert judge.once_again(sample_of(0, True, before="a plan"), None) == (None, "late")

    def refuse(*_: Any, **given: Any) -> None:
        raise ZeroDivisionError

    judge.seconds, judge.mpc.problem.resolve = 10.0, refuse
    assert judge.once_again(sample_of(0, True, before="a plan"), None) == (None, "failed")


def test_a_sample_is_compared_with_references() -> None:
    """A cart on its way to a wall."""
    ocp = cart()
    q, v = ca.vertsplit(ocp.system.x)
    ocp = ns.OCP(
        ocp.system, horizon=1.0, x0=[1.5, 0], stage_cost=10 * (q - 2) ** 2 + v**2 + 0.1 * ocp.system.u**2,
        bounds={"u_0": (-5, 5)},
    )  # fmt: skip
    method = ns.FESDJ(control_stages=5)
    loop = Loop(name="cart", ocp=ocp, plant=ocp.system, x0=(1.5, 0.0), period=0.2, method=method)
    mpc = recorded_samples.recorded(loop, 0, 2)
    assert [sample.index for sample in mpc.samples] == [0, 1]
    for sample in mpc.samples:
        assert sample.u.shape == (5, 1)
        assert np.abs(sample.u).max() <= 5.0
    assert mpc.last is not None
    assert mpc.samples[-1].u[0] == pytest.approx(mpc.last.u, abs=1e-12)
    assert mpc.samples[0].before is None
    assert mpc.samples[1].before is not None
    assert mpc.samples[1].shift in (0, 1)
    row = Judge(mpc, loop.method, 20.0).row(mpc.samples[1], "cart", 0)
    best = min(row.first, row.grid, row.again, row.anew, row.polished)
    assert np.isfinite(best)
    assert row.ratio == pytest.approx(row.cost / best, rel=1e-9)
    assert row.first_ratio == pytest.approx(row.first / best, rel=1e-9)
    # What follows the first controls is at least as good as the answer: that is among the candidates.
    assert row.first <= row.cost * (1.0 + 1e-6)


def test_lines_have_shares_of_the_samples_with_a_reference() -> None:
    ratios = (1.0, 1.05, 1.3, np.nan, np.inf)
    rows = [
        Row(loop="tank", seed=0, sample=k, new=k > 1, ratio=ratio, first_ratio=1.0) for k, ratio in enumerate(ratios)
    ]
    rows += [Row(loop="walls", seed=0, message="no loop")]
    tank, walls = recorded_samples.summary(rows)
    assert (tank["samples"], tank["new"], tank["compared"], tank["near"]) == (5, 3, 4, 0.5)
    assert (tank["p50"], tank["worst"], tank["first_near"], tank["late"]) == (1.3, np.inf, 1.0, 0)
    assert walls["samples"] == 0
    assert np.isnan(walls["near"])


def test_the_command_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def recorded(loop: Any, *_: Any) -> Any:
        if loop.name == "tank":
            raise ZeroDivisionError("no loop")
        return SimpleNamespace(samples=[sample_of(k, True) for k in range(3)])

    monkeypatch.setattr(recorded_samples, "recorded", recorded)
    monkeypatch.setattr(recorded_samples, "Judge", lambda *_: SimpleNamespace(row=one_row))
    small = ("--quick", "--set", "samples=2")
    results = run_json(recorded_samples.PROGRAM, capsys, *small, "loops=paddle")
    assert results["status"] == "solved"
    assert [row["sample"] for row in results["rows"]] == [1, 2]
    results = run_json(recorded_samples.PROGRAM, capsys, *small, "loops=tank,paddle")
    assert "no loop" in results["rows"][0]["message"]
    assert results["status"] != "solved"
    with pytest.raises(ns.OptionError, match="walls"):
        list(recorded_samples.experiment(loops=("wall",)))


def one_row(sample: Sample, name: str, seed: int) -> Row:
    return Row(loop=name, seed=seed, sample=sample.index, cost=2.0, first=1.0, ratio=2.0, first_ratio=1.0)
