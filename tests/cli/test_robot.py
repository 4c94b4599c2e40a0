"""`robot FILE`: what was read, what was left out, a picture; files that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.cases import PNG, as_json, refused, succeeded
from tests.robots.files import HOPPER

pytestmark = pytest.mark.quick


@pytest.fixture
def hopper(tmp_path: Path) -> Path:
    """A URDF file with a joint that mimics another one, and with tags of Gazebo."""
    path = tmp_path / "hopper.urdf"
    path.write_text(
        HOPPER.replace('<dynamics damping="0.1"/>', '<mimic joint="knee"/>').replace("<material", "<gazebo/><material")
    )
    return path


def test_what_was_read_and_left_out(hopper: Path, tmp_path: Path) -> None:
    text = succeeded("robot", hopper, "--base", "planar", "--picture", tmp_path / "hopper.png")
    lines = text.splitlines()
    assert lines[0] == "hopper: 4 links, 3.8 kg moved"
    assert lines[1] == "joints (5)"
    assert "knee_effort  -40    40" in text
    assert "hip follows knee" in text
    assert "gazebo of Gazebo (1)" in text
    assert (tmp_path / "hopper.png").read_bytes()[:8] == PNG


def test_json(hopper: Path) -> None:
    report = as_json("robot", hopper)
    assert [joint["joint"] for joint in report["joints"]] == ["hip", "knee"]
    assert report["drives"] == [{"control": "knee_effort", "lower": -40.0, "upper": 40.0}]
    assert report["couplings"] == ["hip follows knee"]
    assert len(report["warnings"]) == 1


def test_all_reasons_of_a_refusal(hopper: Path, tmp_path: Path) -> None:
    hopper.write_text(
        HOPPER.replace('lower="-1.5"', 'lower="2.5"').replace('<mass value="0.3"/>', '<mass value="-1"/>')
    )
    message = refused("robot", hopper)
    assert "URDF: 2 faults" in message
    assert "lower limit 2.5 is above the upper 1.5" in message
    assert "no such file" in refused("robot", tmp_path / "none.urdf")
