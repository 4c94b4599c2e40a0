"""Films of closed loops show the motion of the log, with kicks and the sources of controls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import nosnoc_py as ns
from problems.loops import LOOPS, common, films
from problems.loops.common import closed, filmed, motion_of
from problems.walled_cart_pole import task
from tests.problems.command_line import run_json


@pytest.fixture(scope="module")
def log() -> ns.ClosedLoop:
    """The pole between walls without a controller's force, with one kick at 0.4 s."""
    return closed(task(), lambda t, x: np.array([0.0]), samples=10)


@pytest.mark.quick
def test_the_motion_is_that_of_the_log(log: ns.ClosedLoop) -> None:
    """At all samples and between them, from either side: the log keeps points, here is dense output."""
    motion = motion_of(task().plant, log)
    assert any(event.kind == "impact" for event in log.events)
    assert motion.events == log.events
    # The kick at 0.4 s throws the pole against the wall: three states at one time, and the second one is in the log.
    nodes = [motion.x[motion.t == t] for t in log.t]
    assert max(np.abs(at - x).max(axis=1).min() for at, x in zip(nodes, log.x, strict=True)) < 1e-9
    ends = np.abs(motion(log.t[1:], "-") - log.x[1:]).max(axis=1)
    assert ends[7] == pytest.approx(2.0, abs=1e-9)
    assert np.delete(ends, 7).max() < 1e-9
    errors = [np.abs(motion(log.motion_t, side) - log.motion_x)[:, :2].max() for side in ("-", "+")]
    assert max(errors) < 1e-3
    # Simulated in one go the kick is missing.
    once = ns.simulate(task().plant, x0=log.x[0], duration=float(log.t[-1]), u=log.u)
    assert np.abs(once(log.t[-1]) - log.x[-1]).max() > 0.1


@pytest.mark.quick
def test_a_kick_and_the_source_of_the_control_are_noted(
    log: ns.ClosedLoop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: dict[str, Any] = {}

    def animate(system: Any, motion: ns.Trajectory, path: Path, note: Any, **options: Any) -> Path:
        notes.update({f"{t:g}": note(t) for t in (0.0, 0.399, 0.4, 0.449, 0.45, 0.5)})
        return path

    monkeypatch.setattr(common.ns, "animate", animate)
    filmed(task().plant, log, tmp_path / "film.gif")
    assert notes == {
        "0": "law", "0.399": "law", "0.4": "law, kicked", "0.449": "law, kicked", "0.45": "law", "0.5": "law"
    }  # fmt: skip


def test_the_program_writes_a_film_and_a_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a law in place of the controller, whose first plan takes seconds."""
    monkeypatch.setattr(films, "controller", lambda loop: lambda t, x: np.array([0.0]))
    results = run_json(films.PROGRAM, capsys, "--quick", "--set", f"output={tmp_path}")
    (row,) = results["rows"]
    assert (row["film"], row["samples"], row["sources"]) == ("walls", 3, "3 law")
    with Image.open(tmp_path / "realtime_walls.gif") as film:
        assert getattr(film, "n_frames", 1) == 16  # 0.15 s at a fifth of the speed, 20 frames per second
    assert (tmp_path / "realtime_walls.png").stat().st_size > 10_000


@pytest.mark.quick
@pytest.mark.parametrize("name", films.SHOTS)
def test_shots_are_of_loops_with_a_drawing(name: str) -> None:
    loop, shot = LOOPS[name](), films.SHOTS[name]
    assert loop.plant.scene
    assert set(shot.states) <= set(loop.plant.state_names)
    # The text about a sample stays until that of the next one.
    assert loop.period / shot.speed < 0.5


@pytest.mark.quick
def test_the_controller_has_one_period_for_each_control_and_each_preparation() -> None:
    loop = LOOPS["paddle"]()
    mpc = films.controller(loop)
    assert (mpc.period, mpc.deadline, mpc.preparation) == (loop.period, loop.period, loop.period)


@pytest.mark.quick
def test_unknown_films_are_refused() -> None:
    with pytest.raises(ns.OptionError, match="walls"):
        films.experiment(names=("wall",))
