"""Trees of bodies from URDF, the robot format of ROS, with the tags that simulators add to it.

What moves something is read, or is a fault; what moves nothing is listed once, in one warning. All faults of a file are
in one error.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nosnoc_py.errors import ModelError, unknown_name
from nosnoc_py.robots.faults import Faults
from nosnoc_py.robots.link_shapes import USES, EmptyShapeError, shape_of
from nosnoc_py.robots.tree import (
    FLOATING,
    PRISMATIC,
    REVOLUTE,
    SPHERICAL,
    BodyInertia,
    Coupling,
    JointedBody,
    Resistance,
    Tree,
)

Base = Literal["fixed", "planar", "floating"]
BASES = ("fixed", "planar", "floating")
JOINTS = {
    "revolute": REVOLUTE,
    "continuous": REVOLUTE,
    "prismatic": PRISMATIC,
    "floating": FLOATING,
    "spherical": SPHERICAL,
    "ball": SPHERICAL,
    "planar": "planar",
    "fixed": "fixed",
}
SINGLE = ("revolute", "continuous", "prismatic")
# What is read, by the element that it is in.
READ = {
    "robot": ("link", "joint"),
    "link": ("inertial", "visual", "collision", "contact"),
    # <joint_properties> is the name of <dynamics> in old files.
    "joint": ("origin", "parent", "child", "axis", "limit", "dynamics", "joint_properties", "mimic"),
    "contact": ("lateral_friction", "restitution"),
    "dynamics": ("damping", "friction"),
    "limit": ("lower", "upper", "effort", "velocity"),
}
# What has no effect on the motion of rigid bodies and their contacts, by the tool that reads it.
MOVES_NOTHING = {
    "URDF": ("material", "safety_controller", "calibration", "verbose"),
    "Gazebo": ("gazebo", "sensor", "plugin", "surface", "gravity", "kinematic", "self_collide"),
    "ROS": ("transmission", "ros2_control", "self_filter", "collision_checking", "disable_collisions"),
    "Bullet": ("audio_source", "collision_margin", "defaultaudio_source"),
    "Bullet: soft contacts": ("stiffness", "damping", "contact_cfm", "contact_erp", "friction_anchor"),
    "Bullet: friction of another kind": ("rolling_friction", "spinning_friction"),
    "Bullet: a factor of inertias": ("inertia_scaling",),
    "Drake": ("collision_filter_group", "proximity_properties", "acceleration", "rotor_inertia", "gear_ratio"),
    "MuJoCo": ("mujoco",),
    "misplaced": ("origin", "axis", "name"),
}
QUIET = ("material", "safety_controller", "calibration", "verbose")  # parts of the standard: no warning
# Moments of inertia may break a_1 <= a_2 + a_3 by this fraction: files are rounded.
ROUNDED = 1e-3


def read_urdf(source: str | Path, base: Base = "fixed", package_dirs: Sequence[str | Path] = ()) -> Tree:
    """Return the tree of a file, or of the text of one.

    Raises
    ------
    ModelError
        If there is no such file, it is no URDF, or has unsupported features: the message names all of them.
    """
    if base not in BASES:
        raise ModelError(f"base: {unknown_name(str(base), BASES, 'kind of base')}")
    root, folder = _root(source)
    return _File(root, Faults("URDF"), _Places(folder, tuple(Path(each) for each in package_dirs))).tree(base)


def _root(source: str | Path) -> tuple[ET.Element, Path | None]:
    """Return the root of a file or text, and the folder of a file."""
    text, folder = str(source), None
    if not text.lstrip().startswith("<"):
        folder = Path(source).absolute().parent
        try:
            text = Path(source).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelError(f"URDF: {source} cannot be read ({error}); give a path, or the text itself.") from None
    # Other readers accept comments before the declaration, and zeros behind the end.
    text = re.sub(r"<\?xml.*?\?>", "", text, count=1).strip("\0 \t\r\n")
    try:
        root = ET.fromstring(text)
    except ET.ParseError as error:
        raise ModelError(f"URDF: the text is not XML: {error}.") from None
    if root.tag != "robot":
        raise ModelError(f"URDF: expected <robot>, given <{root.tag}>; other formats have functions of their own.")
    return root, folder


@dataclass(frozen=True)
class _Places:
    """Where files are looked for that a robot file names."""

    folder: Path | None
    packages: tuple[Path, ...]

    def find(self, name: str) -> str:
        """Return the path of a file by its name: package://, model://, file://, or relative; the name if it is lost."""
        kind, _, rest = name.rpartition("://")
        above = [] if self.folder is None else [self.folder, *self.folder.parents]
        roots = [*self.packages, *above] if kind else [*above[:1], *self.packages]
        # Folders of a search list are those that packages are in, or a package itself.
        names = [rest, rest.partition("/")[2]] if kind in ("package", "model") else [rest or name]
        found = (root / each for root in roots for each in names if each and (root / each).is_file())
        return str(next(found, name))


def _tag(element: ET.Element) -> str:
    """Return the name of an element without its namespace."""
    return str(element.tag).rpartition("}")[2].rpartition(":")[2]


@dataclass(frozen=True, eq=False)
class _File:
    """The elements of a file."""

    root: ET.Element
    faults: Faults
    places: _Places

    def tree(self, base: Base) -> Tree:
        """Return the tree, depth first from the root link; links on fixed joints are merged."""
        self._check_parts(self.root, "robot", "")
        links, joints = self._named("link"), self._named("joint")
        if not links:
            self.faults.add("there is no link.")
            self.faults.check()
        hanging = self._hanging(links, joints)
        self.faults.check()
        name = next(link for link in links if link not in {_end(joint, "child") for joint in joints.values()})
        bodies, frames = _bases(base, name), dict[str, Any]()
        # Each entry: link, its joint, and the body that carries the joint with its frame there.
        stack: list[tuple[str, ET.Element | None, int, np.ndarray, np.ndarray]] = [
            (name, None, len(bodies) - 1, np.eye(3), np.zeros(3))
        ]
        wrong = list[str]()
        while stack:
            link, own, body, rotation, position = stack.pop()
            if own is not None and JOINTS[str(own.get("type"))] != "fixed":
                with self.faults.caught():
                    bodies += self._bodies(own, link, body, len(bodies), rotation, position)
                body, rotation, position = len(bodies) - 1, np.eye(3), np.zeros(3)
            frames[link] = body, rotation, position
            with self.faults.caught():
                inertia = _inertia(links[link], link, wrong)
                if inertia is not None and body >= 0:
                    # Links on fixed joints are rigidly connected: their inertias are added in the frame of the body.
                    added = bodies[body].inertia + inertia.moved(rotation, position)
                    bodies[body] = replace(bodies[body], inertia=added)
            # The stack takes the last entry first: reversed, the bodies are in the order of the file.
            for joint in reversed(hanging.get(link, [])):
                placed = np.eye(3), np.zeros(3)
                with self.faults.caught():
                    placed = _pose(joint.find("origin"), f"joint {joint.get('name')!r}")
                child = _end(joint, "child")
                stack.append((child, joint, body, rotation @ placed[0], rotation @ placed[1] + position))
        shapes = [shape for link, element in links.items() for shape in self._shapes(element, link)]
        parts: dict[str, Any] = {"bodies": tuple(bodies), "frames": frames, "shapes": tuple(shapes)}
        couplings = self._couplings(joints, [each.joint for each in bodies])
        self.faults.check()
        named = str(self.root.get("name") or "robot")
        said = self.faults.said()
        told = [text for text in said if text.partition(" ")[0] not in QUIET]
        if wrong:
            told.append(f"no distribution of mass has the moments of inertia of {', '.join(map(repr, wrong))}")
        self.faults.warn(named, tuple(told), "they move nothing here or are not read")
        return Tree(name=named, **parts, couplings=couplings, left_out=said)

    # --- elements ---

    def _check_parts(self, element: ET.Element, kind: str, what: str) -> None:
        """Remark on parts of an element that move nothing, and add a fault for unknown ones."""
        for part in element:
            tag = _tag(part)
            if tag in READ[kind] and not (tag == "contact" and kind != "link"):
                continue
            tool = next((tool for tool, tags in MOVES_NOTHING.items() if tag in tags), None)
            if tool is None:
                self.faults.add(f"{what}<{tag}> is not known; leave it out if it moves nothing.")
            else:
                self.faults.remark(tag if tool in ("URDF", "misplaced") else f"{tag} of {tool}")

    def _check_attributes(self, element: ET.Element, kind: str) -> None:
        """Remark on attributes that are not read."""
        for name in element.attrib.keys() - set(READ[kind]):
            self.faults.remark(f"{name} of <{kind}>")

    def _named(self, tag: str) -> dict[str, ET.Element]:
        result: dict[str, ET.Element] = {}
        for element in self.root.findall(tag):
            name = element.get("name")
            if not name:
                self.faults.add(f"a {tag} has no name.")
                continue
            if name in result:
                self.faults.add(f"two {tag}s are named {name!r}.")
            self._check_parts(element, tag, f"{tag} {name!r}: ")
            for part in (*element.findall("limit"), *element.findall("dynamics")):
                self._check_attributes(part, _tag(part))
            result[name] = element
        return result

    def _hanging(self, links: dict[str, ET.Element], joints: dict[str, ET.Element]) -> dict[str, list[ET.Element]]:
        """Return the child joints of every link."""
        parents: dict[str, str] = {}
        hanging: dict[str, list[ET.Element]] = {}
        for name, joint in joints.items():
            kind, what = joint.get("type"), f"joint {name!r}"
            if kind not in JOINTS:
                self.faults.add(f"{what}: {unknown_name(str(kind), JOINTS, 'type')}")
            ends = [_end(joint, side) for side in ("parent", "child")]
            lost = [(side, end) for side, end in zip(("parent", "child"), ends, strict=True) if end not in links]
            for side, end in lost:
                self.faults.add(f"{what}: its {side} link {end or None!r} does not exist.")
            parent, child = ends
            if child in parents:
                self.faults.add(
                    f"{what}: link {child!r} is already the child of joint {parents[child]!r}; loops are not supported."
                )
            elif not lost:
                parents[child] = name
                hanging.setdefault(parent, []).append(joint)
        if self.faults.found:
            return hanging
        roots = [link for link in links if link not in parents]
        if len(roots) != 1:
            candidates = ", ".join(map(repr, roots)) or "none, since the joints form a loop"
            self.faults.add(f"expected one root link (the child of no joint), given {candidates}.")
            return hanging
        seen, stack = {roots[0]}, [roots[0]]
        while stack:
            for joint in hanging.get(stack.pop(), []):
                seen.add(_end(joint, "child"))
                stack.append(_end(joint, "child"))
        # Links in a cycle all have parents, so that they are not found as roots but cannot be reached from the root
        # either.
        for link in links:
            if link not in seen:
                self.faults.add(f"link {link!r} is in a loop of joints; loops are not supported.")
        return hanging

    def _shapes(self, element: ET.Element, link: str) -> list[Any]:
        """Return the shapes of a link, with the friction and restitution of its <contact>."""
        contact, values = element.find("contact"), dict[str, Any]()
        if contact is not None:
            self._check_parts(contact, "contact", f"link {link!r}: <contact>: ")
            for part in contact:
                if _tag(part) in READ["contact"]:
                    with self.faults.caught():
                        values[_tag(part).removeprefix("lateral_")] = _nonnegative(part, "value", f"link {link!r}")
        result = list[Any]()
        for use, (k, part) in [(each, part) for each in USES for part in enumerate(element.findall(each))]:
            with self.faults.caught():
                try:
                    result.append(replace(shape_of(part, link, use, k, _pose, self.places.find), **values))
                except EmptyShapeError:
                    if use == "collision":
                        raise
                    self.faults.remark("visual without extent")
        return result

    def _bodies(
        self, joint: ET.Element, link: str, parent: int, number: int, rotation: np.ndarray, position: np.ndarray
    ) -> list[JointedBody]:
        """Return the body on a joint, as the last of several for a joint in a plane; `number` is that of the first."""
        name, kind = str(joint.get("name")), str(joint.get("type"))
        what = f"joint {name!r}"
        axis = _numbers(joint.find("axis"), "xyz", what, (1.0, 0.0, 0.0))
        length = float(np.linalg.norm(axis))
        if length == 0.0:
            raise ModelError(f"{what}: its axis is zero; give a direction.")
        axis = axis / length
        limit = joint.find("limit")
        dynamics = next((each for each in map(joint.find, ("dynamics", "joint_properties")) if each is not None), None)
        damping, friction = (_nonnegative(dynamics, key, what, 0.0) for key in READ["dynamics"])
        effort, speed = (_nonnegative(limit, key, what, np.inf) for key in ("effort", "velocity"))
        shared: dict[str, Any] = {
            "link": link,
            "friction": friction,
            "resistance": Resistance(damping=(damping, 0.0, 0.0)),
            "speed": speed,
        }
        place: dict[str, Any] = {"rotation": rotation, "position": position}
        if kind == "planar":
            # Across the normal, as x and y of a frame whose z axis it is; then the turn about the normal.
            across = np.linalg.svd(axis[None])[2][1:]
            across[1] = np.cross(axis, across[0])
            directions = (("_x", PRISMATIC, across[0]), ("_y", PRISMATIC, across[1]), ("_turn", REVOLUTE, axis))
            return [
                JointedBody(
                    **shared, joint=name + end, kind=its, axis=along, parent=parent if k == 0 else number + k - 1,
                    **(place if k == 0 else {}),
                )
                for k, (end, its, along) in enumerate(directions)
            ]  # fmt: skip
        if kind not in SINGLE:
            for end in ("lower", "upper"):
                if limit is not None and limit.get(end):
                    self.faults.remark(f"{end} of <limit> of a {kind} joint")
            return [JointedBody(**shared, joint=name, kind=JOINTS[kind], parent=parent, **place)]
        # A continuous joint may have a <limit> for effort and velocity; its range has no meaning.
        ends = () if limit is None or kind == "continuous" else [limit.get(end) for end in ("lower", "upper")]
        low, high = -np.inf, np.inf
        if any(end is not None for end in ends):
            low, high = (_number(limit, end, what, 0.0) for end in ("lower", "upper"))
        elif kind != "continuous":
            self.faults.remark(f"{kind} joints without <limit lower, upper>, which are read without ends")
        if low > high:
            raise ModelError(f"{what}: its lower limit {low:g} is above the upper {high:g}.")
        fields: dict[str, Any] = {"lower": low, "upper": high, "effort": (-effort, effort), "axis": axis}
        return [JointedBody(**shared, joint=name, kind=JOINTS[kind], parent=parent, **place, **fields)]

    def _couplings(self, joints: dict[str, ET.Element], moving: list[str]) -> tuple[Coupling, ...]:
        """Return the couplings of joints that mimic others."""
        result = []
        for name, joint in joints.items():
            mimic = joint.find("mimic")
            if mimic is None:
                continue
            with self.faults.caught():
                leader, what = str(mimic.get("joint")), f"joint {name!r}: mimic"
                for one in (name, leader):
                    if one in joints and one not in moving and JOINTS.get(str(joints[one].get("type"))) != "fixed":
                        kind = joints[one].get("type")
                        raise ModelError(f"{what}: joint {one!r} is {kind}, with several coordinates; expected one.")
                if name not in moving:
                    continue
                if leader not in joints or leader == name:
                    others = [each for each in joints if each != name]
                    raise ModelError(f"{what}: {unknown_name(leader, others, 'joint')}")
                factor, offset = (
                    _number(mimic, key, what, value) for key, value in (("multiplier", 1.0), ("offset", 0.0))
                )
                # A joint that is fixed stands at zero.
                ahead = leader if leader in moving else None
                result.append(Coupling(name=name, follower=name, leader=ahead, coefficients=(offset, factor)))
        return tuple(result)


def _end(joint: ET.Element, side: str) -> str:
    """Return the name of the parent or child link of a joint."""
    end = joint.find(side)
    return "" if end is None else str(end.get("link") or "")


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


def _inertia(link: ET.Element, name: str, wrong: list[str]) -> BodyInertia | None:
    """Return the inertia of a link, whose name is added to `wrong` if no body has it; None without an <inertial>."""
    inertial, what = link.find("inertial"), f"link {name!r}"
    if inertial is None:
        return None
    mass = _nonnegative(inertial.find("mass"), "value", f"{what}: its mass")
    rows = inertial.find("inertia")
    if rows is None:
        raise ModelError(f"{what}: <inertial> has no <inertia>.")
    xx, xy, xz, yy, yz, zz = (
        _number(rows, key, what, 0.0 if key in ("ixy", "ixz", "iyz") else None)
        for key in ("ixx", "ixy", "ixz", "iyy", "iyz", "izz")
    )
    about = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    sizes = np.linalg.eigvalsh(about)
    # No mass distribution has a principal moment above the sum of the others.
    if sizes[0] < -ROUNDED * abs(sizes[-1]) or sizes[2] > (sizes[0] + sizes[1]) * (1 + ROUNDED) + 1e-300:
        wrong.append(name)
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
        raise ModelError(f"{what}: {key}: expected three numbers, given {text!r}.")
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
        raise ModelError(f"{what}: {key}: expected a number, given {text!r}.")
    return result


def _nonnegative(element: ET.Element | None, key: str, what: str, default: float | None = None) -> float:
    result = _number(element, key, what, default)
    if not result >= 0:
        raise ModelError(f"{what}: {key} has to be nonnegative, given {result:g}.")
    return result
