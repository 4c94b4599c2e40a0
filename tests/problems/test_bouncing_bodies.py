"""The programs about tumbling bodies: from the command line, and what they find."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from problems import bouncing_bodies
from problems.benchmarks import bouncing_bodies_ensemble
from problems.reproduction.lie_group import degrees
from problems.runner import main
from tests.problems.command_line import PNG, run_json


def test_case_one_quick(capsys: pytest.CaptureFixture[str]) -> None:
    results = run_json(bouncing_bodies.PROGRAM, capsys, "--quick", "--set", "duration=7")
    times = [event["time"] for event in results["events"]]
    assert times == pytest.approx(
        [2.649128901521289, 4.893938255327642, 5.350135680896926, 6.520005137822193], abs=1e-11
    )
    assert results["events"][0]["impulse"] == pytest.approx(27.5843698611277, abs=1e-10)
    assert results["events"][0]["kind"] == "impact"
    assert len(results["final_state"]) == 18
    assert results["energy_error"] < 3e-12
    assert results["orthogonality"] < 1e-13
    assert results["momentum_error"] == 0.0
    assert results["infeasibility"] < 1e-12
    assert results["complementarity"] < 1e-11
    assert results["steps"] == 700


@pytest.mark.parametrize("case", ["II", "III", "IV"])
def test_other_cases(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    results = run_json(bouncing_bodies.PROGRAM, capsys, "--quick", "--set", f"case={case}")
    assert len(results["events"]) >= 2
    assert results["energy_error"] < 3e-12
    assert results["momentum_error"] < 1e-12


def test_options_reach_the_method(capsys: pytest.CaptureFixture[str]) -> None:
    results = run_json(bouncing_bodies.PROGRAM, capsys, "--quick", "--set", "algorithm=5.1", "h=0.005")
    assert results["steps"] == 1000
    assert results["energy_error"] > 1e-6
    results = run_json(bouncing_bodies.PROGRAM, capsys, "--quick", "--set", "restitution=0.5", "duration=3")
    first = results["events"][0]
    assert first["v_after"] == pytest.approx(-0.5 * first["v_before"], abs=1e-12)


def test_an_unknown_case(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(bouncing_bodies.PROGRAM, ["--quick", "--set", "case=V"]) == 2
    assert "one of I, II, III, IV" in capsys.readouterr().err


@pytest.mark.slow
def test_figures_and_film(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    changes = ("case=III", "film=true", "duration=2.5")
    results = run_json(bouncing_bodies.PROGRAM, capsys, "--quick", "--figures", str(tmp_path), "--set", *changes)
    *pictures, film = [Path(path) for path in results["figures"]]
    assert len(pictures) == 3
    assert all(path.read_bytes()[:8] == PNG for path in pictures)
    assert film.read_bytes()[:6] == b"GIF89a"
    assert film.stat().st_size < 1.5e6


@pytest.mark.quick
def test_the_printed_distance_is_of_another_angle() -> None:
    angles = {"1e-8 pi rad": 1e-8 * np.pi, "1e-6 degrees": np.radians(1e-6)}
    results = {"attitude_distances": {n: bouncing_bodies_ensemble.attitude_distance(a) for n, a in angles.items()}}
    assert degrees(results)[0], degrees(results)
    results["attitude_distances"]["1e-6 degrees"] = 3.1e-8
    assert not degrees(results)[0]


@pytest.mark.slow
def test_ensemble_quick(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    results = run_json(bouncing_bodies_ensemble.PROGRAM, capsys, "--quick", "--figures", str(tmp_path))
    assert len(results["figures"]) == 5
    assert all(Path(path).read_bytes()[:8] == PNG for path in results["figures"])
    assert all(len(found["counts"]) == 3 for found in results["collisions"].values())
    assert all(found["energy_error"] < 3e-12 for found in results["kept"].values())


@pytest.mark.slow
def test_collisions_over_a_hundred_thousand_steps() -> None:
    """Means over 24 seeded starts are within three standard errors of 795 (III) and 647 (IV)."""
    found = bouncing_bodies_ensemble.statistics(bouncing_bodies_ensemble.counts(), 1000.0)
    for case, spread in (("III", (15.0, 40.0)), ("IV", (6.0, 20.0))):
        assert found[case]["standard_errors_away"] < 3.0, found[case]
        assert spread[0] < found[case]["deviation"] < spread[1]


def test_motions_separate_after_the_eighth_impact() -> None:
    _, motions = bouncing_bodies_ensemble.neighbours(25.0)
    t, errors = bouncing_bodies_ensemble.distances(motions)
    impacts = [event.time for event in motions["original"].impacts]
    for error in errors.values():
        assert error[t < impacts[7]].max() < bouncing_bodies_ensemble.VISIBLE / 5
        assert error[(t > impacts[7]) & (t < impacts[8])].max() > bouncing_bodies_ensemble.VISIBLE
        assert error[t > 22.0].max() > 1.0  # unrelated
    assert errors["position perturbed"][0] == pytest.approx(1e-8, rel=1e-6)
    assert errors["attitude perturbed"][0] == pytest.approx(1e-8 * np.pi, rel=1e-6)


def test_a_smaller_perturbation_stays_invisible_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bouncing_bodies_ensemble, "OFFSET", 1e-11)
    monkeypatch.setattr(bouncing_bodies_ensemble, "ANGLE", 1e-11)
    _, motions = bouncing_bodies_ensemble.neighbours(16.0)
    t, errors = bouncing_bodies_ensemble.distances(motions)
    ninth = motions["original"].impacts[8].time
    assert all(error[t < ninth].max() < 1e-3 for error in errors.values())
