"""Trees of bodies from MJCF, the format of MuJoCo, read from its compiled model.

MuJoCo's own compiler resolves defaults, includes and inertias of shapes, so that none of this is written again here.
Every field that is not read is an error and never ignored (`mjcf_fields`): a robot that lacks a spring would be
simulated without notice. A MuJoCo body with several joints becomes a chain of bodies without mass, one per joint, the
last of which carries the inertia. Laws and signs are those of MuJoCo's documentation, chapter Computation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nosnoc_py.errors import ModelError
from nosnoc_py.geometry.meshes import mesh_hull
from nosnoc_py.geometry.shapes import Capsule, Cylinder, HalfSpace
from nosnoc_py.robots.faults import Faults
from nosnoc_py.robots.link_shapes import LinkShape
from nosnoc_py.robots.mjcf_fields import named, unread
from nosnoc_py.robots.tree import (
    FLOATING,
    FREE,
    PRISMATIC,
    REVOLUTE,
    SPHERICAL,
    BodyInertia,
    Closure,
    Coupling,
    Drive,
    Frame,
    Interval,
    JointedBody,
    Lifted,
    Resistance,
    Tendon,
    Tree,
)
from nosnoc_py.rotations import exp, rotation_of
from nosnoc_py.systems.shapes import Box, Ellipsoid, Sphere

Array = np.ndarray
EFFORT, SETPOINT = "_effort", "_setpoint"  # ends of the names of controls
# Kinds of joints by their numbers in a compiled model.
JOINT_KINDS = (FLOATING, SPHERICAL, PRISMATIC, REVOLUTE)
# Shapes by the names of geoms, from their sizes; meshes and height fields have none.
SHAPES: dict[str, Callable[[Array], Any]] = {
    "PLANE": lambda size: HalfSpace(),
    "SPHERE": lambda size: Sphere(size[0]),
    # MuJoCo gives half lengths, the shapes here take whole ones.
    "CAPSULE": lambda size: Capsule(size[0], 2 * size[1]),
    "CYLINDER": lambda size: Cylinder(size[0], 2 * size[1]),
    "ELLIPSOID": lambda size: Ellipsoid(size),
    "BOX": lambda size: Box(2 * size),
}
# Laws of actuators that are read; of gains and biases with how many parameters.
LAGS, LAWS = ("NONE", "FILTER", "FILTEREXACT", "INTEGRATOR"), {"NONE": 0, "FIXED": 1, "AFFINE": 3}
TRANSMISSIONS = ("JOINT", "JOINTINPARENT", "TENDON", "SITE")
EQUALITIES = ("CONNECT", "WELD", "JOINT", "TENDON")
PARTS_OF_ACTUATORS = {"Trn": "transmission", "Dyn": "dynamics", "Gain": "gain", "Bias": "bias"}
# Flags of <option> with a meaning here; all other ones choose numerics, sensors or soft contacts.
OBEYED = ("GRAVITY", "LIMIT", "FRICTIONLOSS", "EQUALITY", "CONTACT", "SPRING", "DAMPER", "ACTUATION", "CLAMPCTRL")
SAME = 1e-9  # poses of mocap bodies that differ by less are the same
# Numbers of keyframes by the sizes of the model that give their lengths.
LENGTHS = {"qpos": "nq", "qvel": "nv", "act": "na", "ctrl": "nu"}
# What a picture or a controller may need, and a motion not.
BESIDES = {"nsensor": "sensors", "ncam": "cameras", "nlight": "lights", "nskin": "skins"}


def read_mjcf(source: str | Path) -> tuple[Tree, tuple[float, float, float]]:
    """Return the tree of an MJCF file, or of the text of one, and its gravity [m/s^2].

    Several joints of one body become a chain of bodies without mass. Coordinates are those of MuJoCo, in its order.

    Raises
    ------
    ModelError
        If MuJoCo is not installed or refuses the file, or the file has unsupported features: the message names all.
    """
    mujoco, model = compiled(source)
    return _Compiled(mujoco, model, _given_keys(mujoco, source) if model.nkey else ()).tree()


def compiled(source: str | Path) -> tuple[Any, Any]:
    """Return the module MuJoCo and its model of a file or text; raise `ModelError` without MuJoCo or if it refuses."""
    try:
        import mujoco
    except ImportError:
        raise ModelError('MuJoCo reads this file, and is not installed; pip install "nosnoc_py[robots]".') from None
    text = str(source)
    is_text = text.lstrip().startswith("<")
    if not is_text and not Path(source).is_file():
        raise ModelError(f"MJCF: there is no file {text!r}; give a path, or the text of a file.")
    try:
        result = mujoco.MjModel.from_xml_string(text) if is_text else mujoco.MjModel.from_xml_path(text)
    except ValueError as error:
        raise ModelError(f"MJCF: MuJoCo refuses it: {error}") from None
    return mujoco, result


def _given_keys(mujoco: Any, source: str | Path) -> tuple[dict[str, int], ...]:
    """Return how many numbers every keyframe of a file has, by name: MuJoCo 4 fills up what is too short."""
    text = str(source)
    spec = mujoco.MjSpec.from_string(text) if text.lstrip().startswith("<") else mujoco.MjSpec.from_file(text)
    return tuple({name: len(getattr(key, name)) for name in LENGTHS} for key in spec.keys)


class _Compiled:
    """Conversion of a compiled model into a tree.

    Parameters
    ----------
    mujoco : module
    model : mujoco.MjModel
    keys : tuple of dict
        How many numbers the file gives for every keyframe, by the names of `LENGTHS`.
    """

    def __init__(self, mujoco: Any, model: Any, keys: tuple[dict[str, int], ...] = ()) -> None:
        self.mujoco, self.model, self.keys, self.faults = mujoco, model, keys, Faults("MJCF")
        self.acting = list[int]()  # the actuator of every drive
        self.bodies, self.tendons = list[JointedBody](), list[Tendon]()
        # For every body of the model: index of the body in the tree that carries it, and its frame there.
        self.places: dict[int, tuple[int, Array, Array]] = {0: (-1, np.eye(3), np.zeros(3))}
        bits = {
            name: int(getattr(mujoco.mjtDisableBit, f"mjDSBL_{name}", 0)) for name in (*OBEYED, "CONSTRAINT", "PASSIVE")
        }
        self.off = {name for name, bit in bits.items() if model.opt.disableflags & bit}
        if "CONSTRAINT" in self.off:
            self.off |= {"LIMIT", "FRICTIONLOSS", "EQUALITY", "CONTACT"}
        if "PASSIVE" in self.off:  # MuJoCo before version 3.4
            self.off |= {"SPRING", "DAMPER"}

    def tree(self) -> tuple[Tree, tuple[float, float, float]]:
        """Return bodies in the order of the model, parents before children."""
        m = self.model
        for text in unread(self.mujoco, m):
            self.faults.add(text)
        if m.opt.enableflags & self.mujoco.mjtEnableBit.mjENBL_OVERRIDE:
            self.faults.add('<option><flag override="enable"/>: contacts have the parameters of their geoms here.')
        for i in range(1, m.nbody):
            self.places[i] = self._jointed(i)
        self.tendons = list(self._collected(self._tendon, m.ntendon))
        collisions = self._collisions()
        self.pairs = collisions["pairs"]
        parts: dict[str, Any] = {
            **collisions,
            "drives": self._drives(),
            "tendons": tuple(self.tendons),
            "shapes": tuple(self._shape(k) for k in range(m.ngeom)),
            **self._equalities(),
            **self._lifted(),
        }
        parts["keyframes"] = self._keyframes(parts["drives"] or ())
        self._remark()
        self.faults.check()
        frames = {named(self.mujoco, m, "BODY", i): place for i, place in self.places.items()}
        name = bytes(m.names).split(b"\0", 1)[0].decode() or "robot"
        tree = Tree(name=name, bodies=tuple(self.bodies), frames=frames, left_out=self.faults.said(), **parts)
        gravity = np.zeros(3) if "GRAVITY" in self.off else m.opt.gravity
        return tree, tuple(float(g) for g in gravity)  # type: ignore[return-value]

    def _collected(self, make: Callable[[int], Any], count: int) -> Iterator[Any]:
        """Yield what is made of every index, without those that have faults."""
        for k in range(count):
            with self.faults.caught():
                made = make(k)
                if made is not None:
                    yield made

    # --- bodies and joints ---

    def _jointed(self, i: int) -> tuple[int, Array, Array]:
        """Return the last of the bodies that replace a body on its joints, with the frame of the body there."""
        m = self.model
        parent, rotation, position = self.places[int(m.body_parentid[i])]
        position = position + rotation @ m.body_pos[i]
        rotation = rotation @ rotation_of(m.body_quat[i])
        first, count = int(m.body_jntadr[i]), int(m.body_jntnum[i])
        for j in range(first, first + count):
            values = self._joint(i, j, parent, rotation, position)
            self.bodies.append(values)
            # The next joint, and the body itself, are placed in the frame of this joint, which sits at its anchor and
            # not at the origin of the body. A free joint has no anchor.
            free = values.kind == FLOATING
            parent, rotation, position = len(self.bodies) - 1, np.eye(3), np.zeros(3) if free else -m.jnt_pos[j]
        if parent >= 0 and m.body_mass[i] > 0:
            # MuJoCo stores principal moments in the axes `iquat`; here the matrix is in the axes of the body.
            turned = rotation_of(m.body_iquat[i])
            about = turned @ np.diag(m.body_inertia[i]) @ turned.T
            own = BodyInertia.at_centre(float(m.body_mass[i]), np.array(m.body_ipos[i]), about)
            whole = self.bodies[parent].inertia + own.moved(rotation, position)
            self.bodies[parent] = replace(self.bodies[parent], inertia=whole)
        return parent, rotation, position

    def _joint(self, i: int, j: int, parent: int, rotation: Array, position: Array) -> JointedBody:
        m, kind, dof = self.model, JOINT_KINDS[int(self.model.jnt_type[j])], int(self.model.jnt_dofadr[j])
        at = slice(int(m.jnt_qposadr[j]), int(m.jnt_qposadr[j]) + (7, 4, 1, 1)[int(m.jnt_type[j])])
        rest = np.array(m.qpos_spring[at])
        low, high = m.jnt_range[j] if m.jnt_limited[j] and "LIMIT" not in self.off else FREE
        shared: dict[str, Any] = {
            "link": named(self.mujoco, m, "BODY", i),
            "joint": self._joint_name(j),
            "kind": kind,
            "parent": parent,
            "friction": 0.0 if "FRICTIONLOSS" in self.off else float(m.dof_frictionloss[dof]),
            "armature": float(m.dof_armature[dof]),
            "resistance": self._resistance("jnt", "dof", j, dof, np.repeat(rest, 2) if rest.size == 1 else rest),
            "driven": self._range("jnt_actfrc", j),
            "effort": self._range("jnt_actfrc", j),
            "lower": float(low),
            "upper": float(high),
            "reference": np.array(m.qpos0[at]),
        }
        if kind == FLOATING:
            return JointedBody(**shared)
        axis, zero = np.array(m.jnt_axis[j]), float(m.qpos0[at][0])  # joints may be zero elsewhere
        place = position + rotation @ m.jnt_pos[j]
        if kind == PRISMATIC:
            # `qpos0` is the coordinate at which the file draws the joint: place it so that the same pose belongs to
            # that value.
            place = place - zero * (rotation @ axis)
        elif kind == REVOLUTE:
            rotation = rotation @ exp(-zero * axis)
        return JointedBody(**shared, rotation=rotation, position=place, axis=axis)

    def _resistance(self, spring: str, damper: str, i: int, j: int, rest: Array) -> Resistance:
        """Return the spring of row i of the fields of one kind, and the damper of row j of those of another."""
        given = (("SPRING", f"{spring}_stiffness", i), ("DAMPER", f"{damper}_damping", j))
        laws = [(0.0,) * 3 if flag in self.off else self._polynomial(field, row) for flag, field, row in given]
        return Resistance(stiffness=laws[0], damping=laws[1], rest=rest)

    def _polynomial(self, field: str, row: int) -> tuple[float, ...]:
        """Return three coefficients; the higher ones have a field of their own since version 4."""
        parts = [
            np.ravel(getattr(self.model, name)[row]) for name in (field, f"{field}poly") if hasattr(self.model, name)
        ]
        return tuple(np.append(np.concatenate(parts), [0.0, 0.0])[:3].tolist())

    def _range(self, field: str, i: int) -> Interval:
        """Return an interval of a model, which may be off."""
        low, high = getattr(self.model, f"{field}range")[i] if getattr(self.model, f"{field}limited")[i] else FREE
        return float(low), float(high)

    # --- tendons ---

    def _tendon(self, k: int) -> Tendon:
        m, name, joints, spans = (
            self.model,
            named(self.mujoco, self.model, "TENDON", k),
            dict[str, float](),
            list[Any](),
        )
        low, high = m.tendon_range[k] if m.tendon_limited[k] and "LIMIT" not in self.off else FREE
        before, factor = None, 1.0
        for at in range(int(m.tendon_adr[k]), int(m.tendon_adr[k] + m.tendon_num[k])):
            kind, which = self._enum("Wrap", m.wrap_type[at]), int(m.wrap_objid[at])
            if kind == "JOINT":
                joint = self._joint_name(which)
                joints[joint] = joints.get(joint, 0.0) + float(m.wrap_prm[at])
            elif kind == "SITE":
                site = self._site(which)
                spans += [] if before is None else [(before, site, factor)]
                before = site
            elif kind == "PULLEY":
                before, factor = None, 1.0 / float(m.wrap_prm[at])
            else:
                raise ModelError(f"tendon {name!r} wraps around a geom: only straight tendons are supported.")
        return Tendon(
            name=name,
            joints=joints,
            spans=tuple(spans),
            lower=float(low),
            upper=float(high),
            friction=0.0 if "FRICTIONLOSS" in self.off else float(m.tendon_frictionloss[k]),
            armature=float(m.tendon_armature[k]) if hasattr(m, "tendon_armature") else 0.0,
            resistance=self._resistance("tendon", "tendon", k, k, np.array(m.tendon_lengthspring[k])),
        )

    def _site(self, k: int) -> Frame:
        m = self.model
        body = named(self.mujoco, m, "BODY", int(m.site_bodyid[k]))
        return Frame(link=body, rotation=rotation_of(m.site_quat[k]), position=np.array(m.site_pos[k]))

    # --- actuators ---

    def _drives(self) -> tuple[Drive, ...] | None:
        """Return the drives of the file; None if it has none."""
        m, count = self.model, len(self.model.actuator_trntype)
        if not count:
            return None
        disabled = [int(m.opt.disableactuator) >> int(group) & 1 and group >= 0 for group in m.actuator_group]
        chosen = [k for k in range(count) if "ACTUATION" not in self.off and not disabled[k]]
        for _ in range(count - len(chosen)):
            self.faults.remark("actuators that are switched off")
        # A motor whose joint nothing else drives is limited by the bounds of its control; the sum of several saturates.
        targets = [(int(m.actuator_trntype[k]), int(m.actuator_trnid[k][0])) for k in range(count)]
        alone = {
            k: sum(targets[k] == other for other in targets) == 1
            and all(self._enum("Trn", kind) in ("JOINT", "JOINTINPARENT") for kind, _ in targets)
            for k in chosen
        }
        result = []
        for k in range(count):
            with self.faults.caught():
                self._add_inertia(k)
                if k in chosen:
                    result.append(self._drive(k, alone[k]))
                    self.acting.append(k)
        return tuple(result)

    def _drive(self, k: int, alone: bool) -> Drive:
        m, name = self.model, named(self.mujoco, self.model, "ACTUATOR", k)
        what = f"actuator {name!r}"
        kinds = {
            word: self._enum(word, getattr(m, f"actuator_{word.lower()}type")[k])
            for word in ("Trn", "Dyn", "Gain", "Bias")
        }
        for word, legal in (("Trn", TRANSMISSIONS), ("Dyn", LAGS), ("Gain", LAWS), ("Bias", LAWS)):
            if kinds[word] not in legal:
                raise ModelError(
                    f"{what}: its {PARTS_OF_ACTUATORS[word]} is {kinds[word].lower()}: only "
                    f"{', '.join(each.lower() for each in legal)} are supported."
                )
        gear = np.array(m.actuator_gear[self._address("out", k)])
        gain, bias = (
            np.array([*getattr(m, f"actuator_{word}prm")[k][: LAWS[kinds[word.title()]]], 0.0, 0.0, 0.0][:3])
            for word in ("gain", "bias")
        )
        at = self._address("ctrl", k)
        clamped = m.actuator_ctrllimited[at] and "CLAMPCTRL" not in self.off
        control: Interval = tuple(m.actuator_ctrlrange[at].tolist()) if clamped else FREE
        lag = (
            None if kinds["Dyn"] == "NONE" else 0.0 if kinds["Dyn"] == "INTEGRATOR" else float(m.actuator_dynprm[k][0])
        )
        target, scalar = self._target(k, kinds["Trn"])
        shared: dict[str, Any] = {
            "target": target, "gear": gear, "force": self._range("actuator_force", k), "lag": lag,
            "in_parent": kinds["Trn"] == "JOINTINPARENT",
        }  # fmt: skip
        if not scalar and (gain[1] or bias[1]):
            raise ModelError(f"{what}: a servo of positions needs a joint with one coordinate, or a tendon.")
        unit = float(gain[0] * (gear[0] if scalar else 1.0))
        if bias.any() or gain[1:].any() or lag == 0.0 or unit == 0.0:
            return Drive(name=name + SETPOINT, gain=gain, bias=bias, control=control, **shared)
        # A motor: its control is the force, and all limits bound it.
        ranges = [_scaled(control, unit), _scaled(shared.pop("force"), gear[0] if scalar else 1.0)]
        if alone and scalar and isinstance(target, str) and kinds["Trn"] != "TENDON" and not self._lifts(k):
            name, j = target, int(m.actuator_trnid[k][0])
            ranges.append(self._range("jnt_actfrc", j))
            number = next(i for i, body in enumerate(self.bodies) if body.joint == target)
            self.bodies[number] = replace(self.bodies[number], driven=FREE)
        low, high = max(low for low, _ in ranges), min(high for _, high in ranges)
        shared["gear"] = np.array([1.0, 0, 0, 0, 0, 0]) if scalar else gear
        return Drive(name=name + EFFORT, control=(low, high), unit=unit, **shared)

    def _target(self, k: int, kind: str) -> tuple[str | Frame, bool]:
        """Return what an actuator moves, and whether that has a length."""
        m, (which, other) = self.model, self.model.actuator_trnid[k].tolist()
        if kind == "TENDON":
            return named(self.mujoco, m, "TENDON", which), True
        if kind == "SITE":
            if other >= 0:
                raise ModelError(f"actuator {named(self.mujoco, m, 'ACTUATOR', k)!r}: refsite is not supported.")
            return self._site(which), False
        return self._joint_name(which), JOINT_KINDS[int(m.jnt_type[which])] in (PRISMATIC, REVOLUTE)

    def _add_inertia(self, k: int) -> None:
        """Add armature and damping of an actuator, seen through its gear, to its joint or tendon."""
        m = self.model
        armature = float(m.actuator_armature[k]) if hasattr(m, "actuator_armature") else 0.0
        given = hasattr(m, "actuator_damping") and "DAMPER" not in self.off
        damping = self._polynomial("actuator_damping", k) if given else (0.0,) * 3
        if not (armature or any(damping)):
            return
        target, scalar = self._target(k, self._enum("Trn", m.actuator_trntype[k]))
        if not scalar:
            name = named(self.mujoco, m, "ACTUATOR", k)
            raise ModelError(f"actuator {name!r}: armature and damping need a joint with one coordinate, or a tendon.")
        square = float(m.actuator_gear[self._address("out", k)][0]) ** 2
        lists: tuple[tuple[list[Any], str], ...] = ((self.bodies, "joint"), (self.tendons, "name"))
        for owners, key in lists:
            for i, owner in enumerate(owners):
                if getattr(owner, key) == target:
                    resistance = owner.resistance.damped(square * c for c in damping)
                    owners[i] = replace(owner, armature=owner.armature + square * armature, resistance=resistance)

    def _lifts(self, k: int) -> bool:
        """Return True if the joint of an actuator has its weight balanced by actuators."""
        m = self.model
        return bool(np.any(m.body_gravcomp) and m.jnt_actgravcomp[int(m.actuator_trnid[k][0])])

    def _address(self, kind: str, k: int) -> int:
        """Return the row of an actuator among controls or outputs; before version 4 all had one of each."""
        addresses = getattr(self.model, f"actuator_{kind}adr", None)
        return k if addresses is None else int(addresses[k])

    # --- keyframes ---

    def _keyframes(self, drives: Sequence[Drive]) -> dict[str, dict[str, Array]]:
        """Return the keyframes by name, those without one by their index, with numbers of the drives in their units."""
        m, frames = self.model, dict[str, dict[str, Array]]()
        lagging = [(drive, k) for drive, k in zip(drives, self.acting, strict=True) if drive.lag is not None]
        for i in range(m.nkey):
            with self.faults.caught():
                name = self.mujoco.mj_id2name(m, self.mujoco.mjtObj.mjOBJ_KEY, i) or f"key_{i}"
                if name in frames:
                    raise ModelError(f"keyframe {i} has the name {name!r} of another one; name all keyframes.")
                for field, size in LENGTHS.items():
                    given, expected = self.keys[i][field], int(getattr(m, size))
                    if given and given != expected:
                        raise ModelError(f"keyframe {name!r}: {field}: expected {expected} numbers, given {given}.")
                # MuJoCo clamps a control before its law, and the force of a motor after it.
                u = [
                    np.clip(drive.unit * m.key_ctrl[i][self._address("ctrl", k)], *drive.control)
                    for drive, k in zip(drives, self.acting, strict=True)
                ]
                activation = [drive.unit * m.key_act[i][int(m.actuator_actadr[k])] for drive, k in lagging]
                frame = {"q": m.key_qpos[i], "v": m.key_qvel[i], "u": u, "activation": activation}
                frames[name] = {key: np.array(value, dtype=float) for key, value in frame.items()}
                frames[name]["time"] = np.array(m.key_time[i])
                if wrong := [key for key, value in frames[name].items() if not np.isfinite(value).all()]:
                    raise ModelError(f"keyframe {name!r}: {wrong[0]}: expected finite numbers.")
        mocap = np.flatnonzero(m.body_mocapid >= 0)
        order = mocap[np.argsort(m.body_mocapid[mocap])]
        own = np.hstack([m.body_pos[order].ravel(), m.body_quat[order].ravel()])
        if any(np.abs(np.append(m.key_mpos[i], m.key_mquat[i]) - own).max(initial=0.0) > SAME for i in range(m.nkey)):
            self.faults.remark("other poses of mocap bodies in keyframes")
        return frames

    # --- constraints and contacts ---

    def _equalities(self) -> dict[str, Any]:
        """Return couplings of joints and tendons, and closed loops."""
        m, couplings, closures = self.model, list[Coupling](), list[Closure]()
        for k in range(m.neq):
            with self.faults.caught():
                kind, name = self._enum("Eq", m.eq_type[k]), named(self.mujoco, m, "EQUALITY", k)
                if kind not in EQUALITIES:
                    raise ModelError(f"equality {name!r}: {kind.lower()} is not supported.")
                if "EQUALITY" in self.off or not m.eq_active0[k]:
                    self.faults.remark("equalities that are switched off")
                elif kind in ("JOINT", "TENDON"):
                    couplings.append(self._coupling(k, name, kind))
                else:
                    closures.append(self._closure(k, name, kind))
        return {"couplings": tuple(couplings), "closures": tuple(closures)}

    def _coupling(self, k: int, name: str, kind: str) -> Coupling:
        m, ends = self.model, (int(self.model.eq_obj1id[k]), int(self.model.eq_obj2id[k]))
        names, offsets = list[str](), list[float]()
        for end in ends:
            if end >= 0 and kind == "JOINT":
                names.append(self._joint_name(end))
                offsets.append(float(m.qpos0[m.jnt_qposadr[end]]))
            elif end >= 0:
                names.append(named(self.mujoco, m, "TENDON", end))
                offsets.append(float(m.tendon_length0[end]))
        leader = names[1] if len(names) > 1 else None
        coefficients = tuple(m.eq_data[k][:5].tolist())
        both = (offsets[0], offsets[1] if leader else 0.0)
        return Coupling(name=name, follower=names[0], leader=leader, offsets=both, coefficients=coefficients)

    def _closure(self, k: int, name: str, kind: str) -> Closure:
        m, data = self.model, np.array(self.model.eq_data[k])
        ends = int(m.eq_obj1id[k]), int(m.eq_obj2id[k])
        if int(getattr(m, "eq_objtype", [1] * m.neq)[k]) == int(self.mujoco.mjtObj.mjOBJ_SITE):
            first, second = (self._site(end) for end in ends)
        else:
            # The anchor of a weld is given on the second body, that of connect on the first.
            weld = kind == "WELD"
            turned = rotation_of(data[6:10]) if weld else np.eye(3)
            places = (data[3:6], data[:3]) if weld else (data[:3], data[3:6])
            links = [named(self.mujoco, m, "BODY", end) for end in ends]
            first = Frame(link=links[0], rotation=turned, position=places[0])
            second = Frame(link=links[1], position=places[1])
        return Closure(name=name, first=first, second=second, turning=float(data[10]) if kind == "WELD" else 0.0)

    def _lifted(self) -> dict[str, Any]:
        """Return weights that are compensated, and the joints whose drives do it."""
        m = self.model
        if "GRAVITY" in self.off or {"SPRING", "DAMPER"} <= self.off or not np.any(m.body_gravcomp):
            return {}
        lifted = tuple(
            Lifted(
                frame=Frame(link=named(self.mujoco, m, "BODY", i), position=np.array(m.body_ipos[i])),
                share=float(m.body_mass[i] * m.body_gravcomp[i]),
            )
            for i in np.flatnonzero(m.body_gravcomp).tolist()
        )
        by_drives = () if "ACTUATION" in self.off else np.flatnonzero(m.jnt_actgravcomp).tolist()
        return {"lifted": lifted, "lifting": tuple(self._joint_name(j) for j in by_drives)}

    def _collisions(self) -> dict[str, Any]:
        """Return pairs of links that do not collide, and pairs of shapes that do with their friction."""
        m = self.model
        apart = [divmod(int(signature), 1 << 16) for signature in m.exclude_signature]
        pairs = {
            frozenset(named(self.mujoco, m, "GEOM", int(end[k])) for end in (m.pair_geom1, m.pair_geom2)): (
                float(m.pair_friction[k][0]) if m.pair_dim[k] > 1 else 0.0
            )
            for k in range(m.npair if "CONTACT" not in self.off else 0)
        }
        links = frozenset(frozenset(named(self.mujoco, m, "BODY", i) for i in ends) for ends in apart)
        return {"apart": links, "pairs": pairs}

    def _shape(self, k: int) -> LinkShape:
        """Return a geom as a collision shape, or as a visual one if it collides with nothing."""
        m = self.model
        kind, size = self._enum("Geom", m.geom_type[k]), np.array(m.geom_size[k])
        bits = (0, 0) if "CONTACT" in self.off else (int(m.geom_contype[k]), int(m.geom_conaffinity[k]))
        name = named(self.mujoco, m, "GEOM", k)
        paired = any(name in ends for ends in self.pairs)
        if any(bits) and m.geom_condim[k] > 3:
            self.faults.remark("torsional and rolling friction of geoms")
        return LinkShape(
            hull=self._hull(int(m.geom_dataid[k])) if kind == "MESH" else None,
            link=named(self.mujoco, m, "BODY", int(m.geom_bodyid[k])),
            name=name,
            use="collision" if any(bits) or paired else "visual",
            shape=SHAPES.get(kind, lambda s: None)(size),
            rotation=rotation_of(m.geom_quat[k]),
            position=np.array(m.geom_pos[k]),
            friction=float(m.geom_friction[k][0]) if m.geom_condim[k] > 1 else 0.0,
            bits=bits,
            priority=int(m.geom_priority[k]),
        )

    def _hull(self, mesh: int) -> Callable[[int], Any]:
        """Return the function that makes the convex hull of a mesh, in the frame of its geom."""
        m = self.model
        corners, triangles = (
            np.array(all_[start[mesh] : start[mesh] + count[mesh]])
            for all_, start, count in (
                (m.mesh_vert, m.mesh_vertadr, m.mesh_vertnum),
                (m.mesh_face, m.mesh_faceadr, m.mesh_facenum),
            )
        )
        return lambda most: mesh_hull(corners, triangles, most=most)

    def _remark(self) -> None:
        """Remark on what is left out because it moves nothing."""
        m = self.model
        for count, what in BESIDES.items():
            if getattr(m, count):
                self.faults.remarks[what] = int(getattr(m, count))
        if m.nmocap:
            self.faults.remarks["mocap bodies, which stand still"] = int(m.nmocap)

    # --- names ---

    def _enum(self, kind: str, value: Any) -> str:
        """Return the name of a value of one of MuJoCo's enumerations, without its prefix."""
        return str(getattr(self.mujoco, f"mjt{kind}")(int(value)).name).partition("_")[2]

    def _joint_name(self, j: int) -> str:
        """Return the name of a joint, else that of its body; "base" if the only free joint has no name."""
        m = self.model
        name = self.mujoco.mj_id2name(m, self.mujoco.mjtObj.mjOBJ_JOINT, j)
        if name:
            return str(name)
        if m.jnt_type[j] == 0 and np.sum(m.jnt_type == 0) == 1:
            return "base"
        return f"{named(self.mujoco, m, 'BODY', int(m.jnt_bodyid[j]))}_joint{j - int(m.body_jntadr[m.jnt_bodyid[j]])}"


def _scaled(interval: Interval, factor: float) -> Interval:
    """Return the interval times a factor, which may be negative."""
    low, high = sorted(factor * end if factor else 0.0 for end in interval)
    return low, high
