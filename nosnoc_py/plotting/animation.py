"""Films of motions: one verb, and who draws what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from nosnoc_py.errors import check_type
from nosnoc_py.plotting.bodies import animate_body
from nosnoc_py.solution.trajectory import Trajectory
from nosnoc_py.systems.rigid_body import RigidBody

FILMS: dict[type, Callable[..., Path]] = {RigidBody: animate_body}


def animate(system: RigidBody, trajectory: Trajectory, path: str | Path, **options: Any) -> Path:
    """Write a film of a motion to a `.gif`, or to an `.mp4` where ffmpeg is installed; return its path.

    Parameters
    ----------
    system : RigidBody
    trajectory : Trajectory
        Of this system.
    path
    options
        Those of `nosnoc_py.plotting.animate_body`: speed, frames_per_second, view, size and others.

    Raises
    ------
    OptionError
        For another system, another kind of file, or states that are not those of the system.
    """
    check_type(system, tuple(FILMS), "system")
    return FILMS[type(system)](system, trajectory, path, **options)
