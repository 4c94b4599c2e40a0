"""Films for the browser: one file without anything from elsewhere, with the numbers of all frames."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.errors import OptionError
from nosnoc_py.plotting.film_page import HIGHEST, WIDTH

pytestmark = pytest.mark.quick


@pytest.fixture(scope="module")
def ball() -> ns.CLS:
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    look = [
        ns.scene.Disc(q, 0.1, q[0], label="a </script> ball"),
        ns.scene.Ground(height=-0.1),
        ns.scene.Trail(q),
        ns.scene.Arrow(q, v, unit="m/s", label="velocity"),
        ns.scene.Mark("floor", ca.vertcat(q[0], q[1] - 0.1)),
        ns.scene.Spring([0.0, 1.5], q),
    ]
    floor = ns.Contact("floor", gap=q[1], restitution=0.8)
    return ns.CLS(q=q, v=v, mass_matrix=ca.SX.eye(2), force=ca.vertcat(0, -9.81), contacts=[floor], scene=look)


@pytest.fixture(scope="module")
def bounce(ball: ns.CLS) -> ns.Trajectory:
    return ns.simulate(ball, x0=[0.0, 1.0, 0.8, 0.0], duration=1.0)


def numbers_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.S)
    assert found is not None
    return dict(json.loads(found[1]))


def test_a_page_is_complete_and_has_all_frames(ball: ns.CLS, bounce: ns.Trajectory, tmp_path: Path) -> None:
    path = ns.animate(ball, bounce, tmp_path / "new" / "ball.html", frames_per_second=30)
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"https?:|src=|href=|@import|url\(", text)
    assert text.count("<script") == text.count("</script>") == 2
    assert "{{" not in text
    assert {"slider", "play", "clock", "picture"} <= set(re.findall(r'id="(\w+)"', text))
    assert "a &lt;/script&gt; ball" in text
    data = numbers_of(text)
    assert len(data["t"]) == len(data["clock"]) == len(data["now"]) == 31
    assert (data["t"][0], data["t"][-1]) == (0.0, 1.0)
    assert all(len(layer["frames"]) in (1, 31) for layer in data["layers"])
    kinds = [layer["kind"] for layer in data["layers"]]
    assert set(kinds) == {"line", "polygon", "trail", "arrow"}
    assert [file.name for file in path.parent.iterdir()] == ["ball.html"]


def test_a_note_is_in_every_frame(ball: ns.CLS, bounce: ns.Trajectory, tmp_path: Path) -> None:
    path = ns.animate(ball, bounce, tmp_path / "ball.html", note=lambda t: "late" if t > 0.5 else "early")
    clock = numbers_of(path.read_text(encoding="utf-8"))["clock"]
    assert clock[0].startswith("t = 0.00 s, impacts")
    assert clock[0].endswith(", early")
    assert clock[-1].endswith(", late")


def test_places_are_those_of_the_motion(ball: ns.CLS, bounce: ns.Trajectory, tmp_path: Path) -> None:
    data = numbers_of(ns.animate(ball, bounce, tmp_path / "ball.html").read_text(encoding="utf-8"))
    assert data["width"] == WIDTH
    assert data["height"] <= HIGHEST
    trail = next(layer for layer in data["layers"] if layer["kind"] == "trail")
    places, true = np.array(trail["frames"]), bounce(data["t"])[:, :2]
    scale = np.ptp(places[:, 0]) / np.ptp(true[:, 0])
    assert places[:, 0] - places[0, 0] == pytest.approx(scale * true[:, 0], abs=0.2)
    assert places[:, 1] - places[0, 1] == pytest.approx(scale * (true[0, 1] - true[:, 1]), abs=0.2)  # downwards
    inside = np.array([0.0, 0.0]) <= places, places <= np.array([data["width"], data["height"]])
    assert all(part.all() for part in inside)
    assert [mark[0] for mark in data["marks"]] == [event.time for event in bounce.impacts]
    assert "impacts (×): 1" in data["clock"][-1]


def test_size_and_places_that_do_not_fit(ball: ns.CLS, bounce: ns.Trajectory, tmp_path: Path) -> None:
    data = numbers_of(ns.animate(ball, bounce, tmp_path / "ball.html", size=(5, 3)).read_text(encoding="utf-8"))
    assert (data["width"], data["height"]) == (480, 288)
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OptionError, match="nothing can be written there"):
        ns.animate(ball, bounce, tmp_path / "file" / "ball.html")
    with pytest.raises(OptionError, match="size: expected a width and a height"):
        ns.animate(ball, bounce, tmp_path / "ball.html", size=3)
