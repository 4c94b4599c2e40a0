"""The problems of event-selected systems run from the command line, and tell the numbers they should."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models import mujoco_springs as mujoco_models
from models import plate_on_springs, spring_hopper
from nosnoc_py import compiled
from problems.benchmarks import event_selected_hopper, event_selected_mujoco, event_selected_order
from problems.benchmarks import plate_on_springs as plate_problem
from problems.benchmarks.event_selected_hopper import bisect
from problems.reproduction.event_selected import width_of_no_spring
from problems.runner import main
from tests.problems.command_line import PNG, run_json
from tests.references.plate import linear, normal, reference, vertical


@pytest.fixture
def interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without numba, whose compilation takes longer than these small examples."""
    monkeypatch.setattr(compiled, "available", lambda: False)


def check_figures(results: dict[str, Any], *names: str) -> None:
    assert [Path(path).name for path in results["figures"]] == list(names)
    assert all(Path(path).read_bytes()[:8] == PNG for path in results["figures"])


def test_order(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    results = run_json(event_selected_order.PROGRAM, capsys, "--quick", "--figures", str(tmp_path))
    assert results["status"] == "solved"
    assert 1.9 < results["orders"]["euler"] < 2.2
    assert results["orders"]["one correction"] > 3.5
    assert results["orders"]["two corrections"] is None  # at rounding
    assert results["rms_at"]["euler"] == pytest.approx(9.72e-5, rel=0.05)
    assert results["rms_at"]["one correction"] == pytest.approx(1.2e-9, rel=0.5)
    assert results["rms_at"]["two corrections"] < 1e-12
    assert [event["name"] for event in results["events"]] == ["y", "z", "x"]
    times = [event["time"] for event in results["events"]]
    assert times == pytest.approx([0.209588078334645, np.log(1.3), 0.369207153821750], abs=1e-12)
    assert results["final_state"] == pytest.approx(
        [0.2698504178333602, 0.3378904382170395, -0.3466376984278660], abs=1e-12
    )
    assert results["infeasibility"] < 1e-14
    check_figures(results, "event_selected_order.png")


def test_order_is_that_of_the_projection_not_of_the_scheme(capsys: pytest.CaptureFixture[str]) -> None:
    """The negative control: with the explicit Euler scheme between the guards eps does not matter."""
    changes = ("scheme=explicit_rk1", "eps=0.01,0.00562,0.00316")
    results = run_json(event_selected_order.PROGRAM, capsys, "--quick", "--set", *changes)
    errors = list(results["rms"]["two corrections"].values())
    assert min(errors) > 1e-4
    assert max(errors) < 1.2 * min(errors)


@pytest.mark.usefixtures("interpreted")
def test_hopper_without_mujoco(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_selected_hopper.importlib.util, "find_spec", lambda name: None)
    results = run_json(event_selected_hopper.PROGRAM, capsys, "--quick", "--figures", str(tmp_path))
    assert results["status"] == "solved"
    assert results["event_time_error"] < 1e-9
    assert results["final_state_error"] < 1e-8
    assert results["final_state"] == pytest.approx([1.9006616, 1.39607285], abs=1e-7)
    assert results["rms"].keys() == {"RK-Newton"}
    assert results["eps"] is None
    check_figures(results, "event_selected_hopper.png")


@pytest.mark.usefixtures("interpreted")
def test_hopper_calibration(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mujoco")
    results = run_json(event_selected_hopper.PROGRAM, capsys, "--quick", "--set", "duration=0.7")
    rms = results["rms"]
    assert 1e-4 < rms["MuJoCo"] < 1e-2
    assert rms["Euler's projection"] == pytest.approx(rms["MuJoCo"], rel=1e-5)
    assert rms["RK-Newton"] < 1e-8
    assert 1e-3 < results["eps"] < 0.2
    assert min(results["seconds"].values()) > 0.0


@pytest.mark.quick
def test_the_bare_loop_of_the_listing_hops() -> None:
    constants = spring_hopper.Constants()
    for eps, largest in ((1e-2, 0.1), (1e-3, 1e-3)):
        t, x = event_selected_hopper.listing(constants, 2.0, 0.002, eps)
        assert t[-1] == pytest.approx(2.0)
        assert -0.002 < np.diff(t).min() <= np.diff(t).max() < 0.005  # back where a step leaps over the guard
        assert np.abs(x - spring_hopper.exact(t, constants)).max() < largest


def test_the_printed_width_needs_a_spring_that_is_too_soft(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mujoco")
    monkeypatch.setattr(compiled, "available", lambda: False)
    results = {"widths": [event_selected_hopper._width(k, 2.0, event_selected_hopper.METHOD) for k in (2.0, 40.0)]}
    shown, said = width_of_no_spring(results)
    assert shown, said
    assert not width_of_no_spring({"widths": [{**one, "lowest_height": 0.1} for one in results["widths"]]})[0]


def test_bisection() -> None:
    assert bisect(lambda eps: 3.0 * eps**2, 3e-4) == pytest.approx(0.01, rel=1e-6)
    assert bisect(lambda eps: eps, 1e-5) is None
    assert bisect(lambda eps: eps, 10.0) is None


@pytest.mark.slow
@pytest.mark.usefixtures("interpreted")
def test_plates(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    changes = ("contacts=3", "starts=2")
    results = run_json(plate_problem.PROGRAM, capsys, "--set", *changes, "--figures", str(tmp_path))
    assert results["status"] == "solved"
    assert results["largest_error"] < 1e-8
    assert results["largest_euler_error"] > 1e-6
    assert max(results["flat_errors"].values()) < 1e-8
    assert results["flat_errors"].keys() == {"2", "10", "100"}
    assert results["beds"][0]["event_times_max"] < 1e-9
    check_figures(results, "plate_on_springs.png", "plate_on_springs_errors.png")


def test_a_start_with_wrong_events_is_no_success() -> None:
    fine = {"rk_newton": 1e-10, "event_times": 1e-10, "solved": True}
    assert plate_problem.right(fine)
    for wrong in (np.inf, np.nan, 1e-6):
        assert not plate_problem.right({**fine, "event_times": wrong})
        assert not plate_problem.right({**fine, "rk_newton": wrong})
    assert not plate_problem.right({**fine, "solved": False})


@pytest.mark.slow
def test_120_plates_on_every_bed(capsys: pytest.CaptureFixture[str]) -> None:
    results = run_json(plate_problem.PROGRAM, capsys)
    assert results["status"] == "solved"
    assert [bed["contacts"] for bed in results["beds"]] == [2, 5, 10, 20, 50, 100]
    assert results["largest_error"] < 1e-8


def test_references_agree_for_a_flat_plate() -> None:
    """Without an angle all ways to compress a spring are the same, and that of the hopper."""
    constants = plate_on_springs.Constants(contacts=3, damping=0.0)
    exact = spring_hopper.exact(1.0)[0]
    for geometry in (vertical, normal, linear):
        found = reference(plate_on_springs.start(2.0, 0.0), constants, 1.0, geometry=geometry)
        assert found.x[[1, 4]] == pytest.approx(exact, abs=1e-11)
        assert [when for when, _, _ in found.events] == pytest.approx(
            [0.4515236409857309] * 3 + [0.6196319576858429] * 3
        )


@pytest.mark.parametrize("geometry", [vertical, normal, linear])
def test_gradients_of_the_references(geometry: Any) -> None:
    constants, q = plate_on_springs.Constants(contacts=4), np.array([0.2, 0.9, 0.3])
    jacobian = geometry(q, constants)[1]
    for k in range(3):
        step = 1e-6 * np.eye(3)[k]
        column = (geometry(q + step, constants)[0] - geometry(q - step, constants)[0]) / 2e-6
        assert jacobian[:, k] == pytest.approx(column, abs=1e-9)


@pytest.mark.parametrize("kind", ["contacts", "tendons"])
def test_mujoco_is_given_the_right_springs(kind: Any) -> None:
    """Its errors against its own law fall with the step; with another stiffness they do not."""
    pytest.importorskip("mujoco")
    constants = plate_on_springs.Constants(contacts=5, damping=2.0 if kind == "contacts" else 0.0)
    x0, duration = plate_on_springs.start(2.2, 0.05), 0.8
    law = normal if kind == "contacts" else linear
    exact = reference(x0, constants, duration, geometry=law, pulls=False, tolerance=1e-9).x
    coarse, fine = (error_of(constants, kind, x0, duration, step, exact) for step in (0.002, 0.0002))
    assert coarse < 0.02
    assert fine < 0.25 * coarse
    stiffer = plate_on_springs.Constants(contacts=5, damping=constants.damping, stiffness=420.0)
    assert error_of(stiffer, kind, x0, duration, 0.0002, exact) > 5.0 * fine


def error_of(constants: Any, kind: Any, x0: np.ndarray, duration: float, step: float, exact: np.ndarray) -> float:
    model = mujoco_models.plate(constants, step, kind)
    return float(np.abs(mujoco_models.final_state(model, x0, round(duration / step)) - exact).max())


def test_without_mujoco_the_comparison_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    assert main(event_selected_mujoco.PROGRAM, ["--json", "--quick"]) == 2
    assert 'mujoco is not installed; pip install "nosnoc_py[bench]"' in capsys.readouterr().err


@pytest.mark.slow
def test_a_contact_costs_less_than_in_mujoco(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("mujoco")
    changes = ("contacts=2,20,40,60", "starts=20", "numpy_starts=1", "error_starts=3")
    results = run_json(event_selected_mujoco.PROGRAM, capsys, "--set", *changes, "--figures", str(tmp_path))
    rows = results["rows"]
    costs = {name: row["marginal_microseconds"] for name, row in rows.items()}
    assert costs["RK-Newton, loop"] < costs["MuJoCo, contacts"]
    assert max(rows["RK-Newton, loop"]["errors"].values()) < 1e-8
    assert min(rows["MuJoCo, contacts"]["errors"].values()) > 1e-5
    check_figures(results, "event_selected_mujoco.png")
