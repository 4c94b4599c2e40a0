"""A robot file as text: what was read of it, what was left out, and a picture."""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.api import simulate
from nosnoc_py.cli.commands import say
from nosnoc_py.errors import ModelError, OptionError
from nosnoc_py.robots.robot import Robot
from nosnoc_py.systems.pss import ODE

Row = dict[str, Any]


def read(path: Path, base: str) -> tuple[Robot, list[str]]:
    """Read a URDF file, or an MJCF file by its suffix; return the robot and the warnings."""
    if not path.is_file():
        raise OptionError(f"{path}: there is no such file; expected a URDF file, or an MJCF file (.xml).")
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        robot = Robot.from_mjcf(path) if path.suffix == ".xml" else Robot.from_urdf(path, base)  # type: ignore[arg-type]
    return robot, [str(each.message) for each in given]


def work(path: Path, *, base: str, picture: Path | None, view: str, json: bool) -> None:
    """Tell what was read, and draw it."""
    robot, told = read(path, base)
    report = {**report_of(robot), "warnings": told, "picture": None}
    text = described(report)
    if picture is not None:
        draw(robot, picture, view)
        report["picture"] = str(picture)
        text += f"\npicture: {picture}"
    say(json, report, text)


def report_of(robot: Robot) -> dict[str, Any]:
    """Return what was read, as names and numbers."""
    tree = robot.tree
    return {
        "name": tree.name,
        "links": len(tree.frames),
        "mass [kg]": float(sum(body.inertia.mass for body in tree.bodies)),
        "joints": [
            {
                "joint": body.joint,
                "kind": body.kind,
                "moves": body.link,
                "mass": body.inertia.mass,
                "lower": body.lower,
                "upper": body.upper,
                "spring": any(body.resistance.stiffness),
                "damping": body.resistance.damping[0],
                "friction": body.friction,
                "armature": body.armature,
            }
            for body in tree.bodies
        ],
        "drives": [
            {"control": drive.name, "lower": drive.control[0], "upper": drive.control[1]} for drive in robot.drives
        ],
        "tendons": [
            {"tendon": each.name, "lower": each.lower, "upper": each.upper, "friction": each.friction}
            for each in tree.tendons
        ],
        "couplings": [f"{each.follower} follows {each.leader or 'nothing'}" for each in tree.couplings],
        "loops": [f"{each.name}: {each.first.link} on {each.second.link}" for each in tree.closures],
        "shapes": dict(Counter(f"{part.use} {_kind(part)}" for part in tree.shapes)),
        "left out": list(tree.left_out),
    }


def _kind(part: Any) -> str:
    return "mesh" if part.shape is None else type(part.shape).__name__.lower()


def described(report: dict[str, Any]) -> str:
    """Return the report for people."""
    lines = [f"{report['name']}: {report['links']} links, {report['mass [kg]']:.4g} kg moved"]
    for title in ("joints", "drives", "tendons"):
        if report[title]:
            lines += [f"{title} ({len(report[title])})", *_table(report[title])]
    for title in ("couplings", "loops", "left out", "warnings"):
        if report[title]:
            lines += [title, *(f"  {text}" for text in report[title])]
    shapes = ", ".join(f"{count} {kind}" for kind, count in report["shapes"].items())
    return "\n".join([*lines, f"shapes\n  {shapes or 'none'}"])


def _table(rows: list[Row]) -> list[str]:
    """Return rows in columns; columns that say nothing in any row are left out."""
    silent = ("0", "False", "-inf", "inf")
    texts = [
        {name: f"{value:.4g}" if isinstance(value, float) else str(value) for name, value in r.items()} for r in rows
    ]
    names = [name for k, name in enumerate(texts[0]) if k == 0 or any(text[name] not in silent for text in texts)]
    cells = [names, *([text[name] for name in names] for text in texts)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  " + "  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip() for row in cells]


def draw(robot: Robot, path: Path, view: str) -> None:
    """Draw a robot as its file does."""
    from nosnoc_py import plotting

    shapes = robot.scene(view)
    if not shapes:
        raise ModelError(f"Robot {robot.tree.name}: there is nothing to draw: its shapes are meshes.")
    # A system at rest: pictures are of motions.
    x = robot.q if robot.q.numel() else ca.SX.sym("rest")
    still = ODE(x=x, flow=ca.SX(x.numel(), 1), scene=shapes)
    start = np.concatenate([body.start for body in robot.tree.bodies] or [np.zeros(1)])
    plotting.snapshots(still, simulate(still, x0=start, duration=1.0), times=[0.0], path=path, title=robot.tree.name)
