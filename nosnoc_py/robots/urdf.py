"""Trees of bodies from URDF, the robot format of ROS; unsupported elements are errors and never ignored."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nosnoc_py.errors import ModelError, unknown_name
from nosnoc_py.robots.link_shapes import shapes_of_link
from nosnoc_py.robots.tree import FLOATING, PRISMATIC, REVOLUTE, BodyInertia, JointedBody, Tree

Base = Literal["fixed", "planar", "floating"]
BASES = ("fixed", "planar", "floating")
JOINTS = {"revolute": REVOLUTE, "continuous": REVOLUTE, "prismatic": PRISMATIC, "fixed": "fixed"}
# Elements that have no effect on the motion: materials, drivers, settings of simulators.
MOVES_NOTHING = ("material", "gazebo", "transmission", "ros2_control", "sensor", "plugin")
PARTS = {
    "link": ("inertial", "visual", "collision"),
    "joint": ("origin", "parent", "child", "axis", "limit", "dynamics", "safety_controller", "calibration"),
}
# Moments of inertia may break a_1 <= a_2 + a_3 by this fraction: files are rounded.
ROUNDED = 1e-3


def read_urdf(source: str | Path, base: Base = "fixed") -> Tree:
    """Return the tree of a file, or of the text of one.

    Raises
    ------
    ModelError
        If there is no such file, it is no URDF, or has unsupported features: the message names link or joint.
    """
    if base not in BASES:
        raise ModelError(f"base: {unknown_name(str(base), BASES, 'kind of base')}")
    return _File(_root(source)).tree(base)


def _root(source: str | Path) -> ET.Element:
    text = str(source)
    if not text.lstrip().startswith("<"):
        try:
            text = Path(source).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"URDF: {source} cannot be read ({error}); give a path, or the text itself.") from None
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        raise ModelError(f"URDF: the text is not XML: {error}.") from None
    if root.tag != "robot":
        raise ModelError(f"URDF: expected <robot>, given <{root.tag}>; other formats have functions of their own.")
    return root


@dataclass(frozen=True, eq=False)
class _File:
    """The elements of a file."""

    root: ET.Element

    def tree(self, base: Base) -> Tree:
        """Return the tree, depth first from the root link; links on fixed joints are merged."""
        links, joints = self._named("link"), self._named("joint")
        if not links:
            raise ModelError("URDF: there is no link.")
        name, hanging = self._root_link(links, joints)
        bodies, frames = _bases(base, name), dict[str, Any]()
        # Each entry: link, its joint, and the body that carries the joint with its frame there.
        stack: list[tuple[str, ET.Element | None, int, np.ndarray, np.ndarray]] = [
            (name, None, len(bodies) - 1, np.eye(3), np.zeros(3))
        ]
        while stack:
            link, own, body, rotation, position = stack.pop()
            if own is not None and JOINTS[str(own.get("type"))] != "fixed":
                bodies.append(_body(own, link, body, rotation, position))
                body, rotation, position = len(bodies) - 1, np.eye(3), np.zeros(3)
            frames[link] = body, rotation, position
            inertia = _inertia(links[link], link)
            if inertia is not None and body >= 0:
                # Links on fixed joints are rigidly connected: their inertias are added in the frame of the body.
                added = bodies[body].inertia + inertia.moved(rotation, position)
                bodies[body] = replace(bodies[body], inertia=added)
            # The stack takes the last entry first: reversed, the bodies are in the order of the file.
            for joint in reversed(hanging.get(link, [])):
                placed = _pose(joint.find("origin"), f"joint {joint.get('name')!r}")
                child = str(joint.find("child").get("link"))  # type: ignore[union-attr]
                stack.append((child, joint, body, rotation @ placed[0], rotation @ placed[1] + position))
        others = Counter(str(element.tag) for element in self.root if element.tag in MOVES_NOTHING)
        left_out = tuple(f"{tag} ({count})" for tag, count in others.items())
        shapes = tuple(shape for link, element in links.items() for shape in shapes_of_link(element, link, _pose))
        named = str(self.root.get("name") or "robot")
        return Tree(name=named, bodies=tuple(bodies), frames=frames, shapes=shapes, left_out=left_out)

    def _named(self, tag: str) -> dict[str, ET.Element]:
        for element in self.root:
            if element.tag not in (*PARTS, *MOVES_NOTHING):
                raise ModelError(f"URDF: <{element.tag}> is not known; leave it out if it moves nothing.")
        result: dict[str, ET.Element] = {}
        for element in self.root.findall(tag):
            name = element.get("name")
            if not name:
                raise ModelError(f"URDF: a {tag} has no name.")
            if name in result:
                raise ModelError(f"URDF: two {tag}s are named {name!r}.")
            for part in element:
                if part.tag == "mimic":
                    raise ModelError(
                        f"URDF: joint {name!r} mimics {part.get('joint')!r}: coupled joints are not supported; make "
                        "it fixed, or independent."
                    )
                if part.tag not in (*PARTS[tag], *MOVES_NOTHING):
                    raise ModelError(f"URDF: {tag} {name!r}: <{part.tag}> is not known; leave it out.")
            result[name] = element
        return result

    def _root_link(
        self, links: dict[str, ET.Element], joints: dict[str, ET.Element]
    ) -> tuple[str, dict[str, list[ET.Element]]]:
        """Return the root link, and the child joints of every link."""
        parents: dict[str, str] = {}
        hanging: dict[str, list[ET.Element]] = {}
        for name, joint in joints.items():
            kind, what = joint.get("type"), f"URDF: joint {name!r}"
            if kind not in JOINTS:
                raise ModelError(f"{what}: {unknown_name(str(kind), JOINTS, 'type')}")
            ends = []
            for side in ("parent", "child"):
                end = joint.find(side)
                link = None if end is None else end.get("link")
                if link not in links:
                    raise ModelError(f"{what}: its {side} link {link!r} does not exist.")
                ends.append(str(link))
            parent, child = ends
            if child in parents:
                raise ModelError(
                    f"{what}: link {child!r} is already the child of joint {parents[child]!r}; loops are not supported."
                )
            parents[child] = name
            hanging.setdefault(parent, []).append(joint)
        roots = [link for link in links if link not in parents]
        if len(roots) != 1:
            candidates = ", ".join(map(repr, roots)) or "none, since the joints form a loop"
            raise ModelError(f"URDF: expected one root link (the child of no joint), given {candidates}.")
        seen, stack = {roots[0]}, [roots[0]]
        while stack:
            for joint in hanging.get(stack.pop(), []):
                child = str(joint.find("child").get("link"))  # type: ignore[union-attr]
                seen.add(child)
                stack.append(child)
        # Links in a cycle all have parents, so that they are not found as roots but cannot be reached from the root
        # either.
        if len(seen) < len(links):
            lost = next(link for link in links if link not in seen)
            raise ModelError(f"URDF: link {lost!r} is in a loop of joints; loops are not supported.")
        return roots[0], hanging


def _bases(base: Base, link: str) -> list[JointedBody]:
    """Return the joints of the base: none (fixed), x, z and pitch (planar), or six degrees of freedom (floating)."""
    if base == "fixed":
        return []
    if base == "floating":
        return [JointedBody(link=link, joint="base", kind=FLOATING, parent=-1)]
    axes = {"base_x": (PRISMATIC, (1, 0, 0)), "base_z": (PRISMATIC, (0, 0, 1)), "base_pitch": (REVOLUTE, (0, 1, 0))}
    return [
        JointedBody(link=link, joint=name, kind=kind, parent=k - 1, axis=np.array(axis, float))
        for k, (name, (kind, axis)) in enumerate(axes.items())
    ]


def _body(joint: ET.Element, link: str, parent: int, rotation: np.ndarray, position: np.ndarray) -> JointedBody:
    name = str(joint.get("name"))
    what, kind = f"joint {name!r}", str(joint.get("type"))
    axis = _numbers(joint.find("axis"), "xyz", what, (1.0, 0.0, 0.0))
    length = float(np.linalg.norm(axis))
    if length == 0.0:
        raise ModelError(f"URDF: {what}: its axis is zero; give a direction.")
    limit, dynamics = joint.find("limit"), joint.find("dynamics")
    # A continuous joint may have a <limit> for effort and velocity; its range has no meaning.
    limited = limit is not None and kind != "continuous"
    if kind in ("revolute", "prismatic") and limit is None:
        raise ModelError(f"URDF: {what} is {kind} and has no <limit>; a joint without limits is 'continuous'.")
    fields: dict[str, Any] = {
        "lower": _number(limit, "lower", what, 0.0) if limited else -np.inf,
        "upper": _number(limit, "upper", what, 0.0) if limited else np.inf,
        "effort": _number(limit, "effort", what, np.inf),
        "speed": _number(limit, "velocity", what, np.inf),
        "damping": _number(dynamics, "damping", what, 0.0),
        "friction": _number(dynamics, "friction", what, 0.0),
    }
    if fields["lower"] > fields["upper"]:
        raise ModelError(f"URDF: {what}: its lower limit {fields['lower']:g} is above the upper {fields['upper']:g}.")
    for word in ("effort", "speed", "damping", "friction"):
        if not fields[word] >= 0:
            raise ModelError(f"URDF: {what}: {word} has to be nonnegative, given {fields[word]:g}.")
    place: dict[str, Any] = {"rotation": rotation, "position": position, "axis": axis / length}
    return JointedBody(link=link, joint=name, kind=JOINTS[kind], parent=parent, **place, **fields)


def _inertia(link: ET.Element, name: str) -> BodyInertia | None:
    """Return the inertia of a link; None without an <inertial>."""
    inertial, what = link.find("inertial"), f"link {name!r}"
    if inertial is None:
        return None
    mass = _number(inertial.find("mass"), "value", what)
    if not mass >= 0:
        raise ModelError(f"URDF: {what}: its mass has to be nonnegative, given {mass:g}.")
    rows = inertial.find("inertia")
    if rows is None:
        raise ModelError(f"URDF: {what}: <inertial> has no <inertia>.")
    xx, xy, xz, yy, yz, zz = (
        _number(rows, key, what, 0.0 if key in ("ixy", "ixz", "iyz") else None)
        for key in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
    )
    about = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    sizes = np.linalg.eigvalsh(about)
    # No mass distribution has a principal moment above the sum of the others.
    if sizes[0] < -ROUNDED * abs(sizes[-1]) or sizes[2] > (sizes[0] + sizes[1]) * (1 + ROUNDED) + 1e-300:
        raise ModelError(
            f"URDF: {what}: expected moments of inertia that are nonnegative and at most the sum of the other two, "
            f"given {', '.join(f'{size:.3g}' for size in sizes)}."
        )
    rotation, position = _pose(inertial.find("origin"), what)
    return BodyInertia.at_centre(mass, position, rotation @ about @ rotation.T)


def _pose(origin: ET.Element | None, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the rotation by roll, pitch and yaw about fixed axes, and position."""
    (r, p, y), position = (_numbers(origin, key, what, (0.0, 0.0, 0.0)) for key in ("rpy", "xyz"))
    (cr, cp, cy), (sr, sp, sy) = np.cos([r, p, y]), np.sin([r, p, y])
    roll = np.array([[1, 0, 0], [0, cr, -sr], [0, sr, cr]])
    pitch = np.array([[cp, 0, sp], [0, 1, 0], [-sp, 0, cp]])
    yaw = np.array([[cy, -sy, 0], [sy, cy, 0], [0, 0, 1]])
    # Fixed axes: the roll about x is applied first, hence the right-most factor.
    return yaw @ pitch @ roll, position


def _numbers(element: ET.Element | None, key: str, what: str, default: tuple[float, ...]) -> np.ndarray:
    text = None if element is None else element.get(key)
    if text is None:
        return np.array(default)
    try:
        result = np.array([float(part) for part in text.split()])
    except ValueError:
        result = np.zeros(0)
    if result.shape != (3,) or not np.isfinite(result).all():
        raise ModelError(f"URDF: {what}: {key}: expected three numbers, given {text!r}.")
    return result


def _number(element: ET.Element | None, key: str, what: str, default: float | None = None) -> float:
    text = None if element is None else element.get(key)
    if text is None and default is not None:
        return default
    try:
        result = float("nan" if text is None else text)
    except ValueError:
        result = float("nan")
    if np.isnan(result):
        raise ModelError(f"URDF: {what}: {key}: expected a number, given {text!r}.")
    return result
