"""Robot files of other packages: what loads is compared, what does not has its reasons."""

from __future__ import annotations

from pathlib import Path

import pytest

from nosnoc_py.progress import Progress
from problems.benchmarks.robot_files import PACKAGES, experiment
from tests.robots.files import HOPPER

pytestmark = pytest.mark.quick
SLIDE = '<mujoco>{}<worldbody><body><joint type="slide"/><geom size="1"/></body></worldbody></mujoco>'


def test_rows_of_a_wheel(tmp_path: Path) -> None:
    """A folder as it is after the download."""
    pytest.importorskip("mujoco")
    files = {
        "gymnasium": {
            "a.xml": SLIDE.format(""),
            "b.xml": SLIDE.format('<option density="1"/>'),
            "c.xml": "<mujoco/>",  # nothing moves
            "d.xml": "<mujocoinclude/>",
        },
        "pybullet": {"random_urdfs/hopper.urdf": HOPPER, "wrong.urdf": "<robot/>"},
    }
    for package, texts in files.items():
        for name, text in texts.items():
            path = tmp_path / f"{package}-{PACKAGES[package][0]}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    rows = experiment(("gymnasium", "pybullet"), str(tmp_path), progress=Progress())
    assert [(row["package"], Path(row["file"]).name, row["loaded"]) for row in rows] == [
        ("gymnasium", "a.xml", True),
        ("gymnasium", "b.xml", False),
        ("random_urdfs", "hopper.urdf", True),
        ("pybullet", "wrong.urdf", False),
    ]
    assert set(rows[0]["errors"]) == {"mass", "bias", "passive"}
    assert max(rows[0]["errors"].values()) < 1e-12
    assert "forces of a fluid" in rows[1]["reasons"]
