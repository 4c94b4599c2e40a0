"""Scenes of the contact problems: each can be drawn at its initial state."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.plotting.planar import PlanarMotion
from problems.benchmarks.contact import NAMES, films, posed


@pytest.mark.quick
@pytest.mark.parametrize("name", NAMES)
def test_problems_can_be_drawn_at_their_start(name: str) -> None:
    ocp = posed(name).build()
    system, x0 = ocp.system, np.asarray(ocp.x0)[: len(ocp.system.state_names)]
    still = ns.Trajectory(
        t=np.array([0.0, 1.0]),
        x=np.array([x0, x0]),
        u_grid=np.array([0.0, 1.0]),
        u=np.ones((1, system.n_u)),
        state_names=system.state_names,
        control_names=system.control_names,
    )
    motion = PlanarMotion(system, still)
    for shape, numbers in zip(motion.shapes, motion.at(np.array([0.0, 1.0])), strict=True):
        assert np.isfinite(numbers).all(), shape.title
    assert ns.snapshots(system, still, [0.0]).axes


@pytest.mark.slow
def test_a_film_of_a_solution(tmp_path: Path) -> None:
    (row,) = films.experiment(names=("push_t",), output=str(tmp_path))
    assert row["caption"] == "push-T: objective 0.1301, confirmed"
    assert (tmp_path / "push_t.gif").stat().st_size < 200_000


def test_the_caption_of_a_motion_that_is_not_certified_says_so() -> None:
    """A status may count as success although the certificate could not decide."""
    undecided = SimpleNamespace(objective=3.4521, certificate=None, status=ns.Status.NOT_CERTIFIED, success=True)
    assert films.caption("push_t", undecided) == "push-T: objective 3.452, not confirmed (solved, not certified)"  # type: ignore[arg-type]
