"""Trees of bodies from MJCF, the format of MuJoCo, read from its compiled model.

MuJoCo's own compiler resolves defaults, includes and inertias of shapes, so that none of this is written again here.
Every feature that a tree of rigid bodies cannot represent is an error and never ignored: a robot that lacks a spring
would be simulated without notice. A MuJoCo body with several joints becomes a chain of bodies without mass, one per
joint, the last of which carries the inertia.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from nosnoc_py.errors import ModelError
from nosnoc_py.geometry.shapes import Capsule, Cylinder, HalfSpace
from nosnoc_py.robots.link_shapes import WORLD, LinkShape
from nosnoc_py.robots.tree import FLOATING, PRISMATIC, REVOLUTE, BodyInertia, JointedBody, Tree
from nosnoc_py.rotations import exp, rotation_of
from nosnoc_py.systems.shapes import Box, Ellipsoid, Sphere

Array = np.ndarray
# Numbers of joint types in a compiled model.
FREE, BALL, SLIDE, HINGE = range(4)
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
# Counters of a compiled model for features that a tree of rigid bodies does not have.
ABSENT = {
    "ntendon": "tendons",
    "neq": "equality constraints",
    "nflex": "flexible bodies",
    "nplugin": "plugins",
    "nmocap": "mocap bodies",
}


def read_mjcf(source: str | Path) -> tuple[Tree, tuple[float, float, float]]:
    """Return the tree of an MJCF file, or of the text of one, and its gravity [m/s^2].

    Several joints of one body become a chain of bodies without mass. Coordinates are those of MuJoCo, in its order.

    Raises
    ------
    ModelError
        If MuJoCo is not installed or refuses the file, or the file has an unsupported feature: the message names it.
    """
    return _Compiled(*compiled(source)).tree()


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


class _Compiled:
    """Conversion of a compiled model into a tree."""

    def __init__(self, mujoco: Any, model: Any) -> None:
        self.mujoco, self.model = mujoco, model
        self.bodies: list[JointedBody] = []
        # For every body of the model: index of the body in the tree that carries it, and its frame there.
        self.places: dict[int, tuple[int, Array, Array]] = {0: (-1, np.eye(3), np.zeros(3))}

    def tree(self) -> tuple[Tree, tuple[float, float, float]]:
        """Return bodies in the order of the model, parents before children."""
        m = self.model
        self._refuse()
        efforts = self._efforts()
        frames = dict[str, tuple[int, Array, Array]]()
        for i in range(1, m.nbody):
            self.places[i] = self._jointed(i, efforts)
            frames[self._name("BODY", i)] = self.places[i]
        driven = tuple(efforts) if m.nu else None
        shapes = tuple(self._shape(k) for k in range(m.ngeom))
        tree = Tree(name=self._model_name(), bodies=tuple(self.bodies), frames=frames, shapes=shapes, driven=driven)
        return tree, tuple(float(g) for g in m.opt.gravity)  # type: ignore[return-value]

    def _jointed(self, i: int, efforts: dict[str, float]) -> tuple[int, Array, Array]:
        """Return the last of the bodies that replace a body on its joints, with the frame of the body there."""
        m = self.model
        parent, rotation, position = self.places[int(m.body_parentid[i])]
        position = position + rotation @ m.body_pos[i]
        rotation = rotation @ rotation_of(m.body_quat[i])
        first, count = int(m.body_jntadr[i]), int(m.body_jntnum[i])
        for j in range(first, first + count):
            values = self._joint(i, j, parent, rotation, position, efforts)
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

    def _joint(
        self, i: int, j: int, parent: int, rotation: Array, position: Array, efforts: dict[str, float]
    ) -> JointedBody:
        m, name, link = self.model, self._joint_name(j), self._name("BODY", i)
        what, dof, kind = f"MJCF: joint {name!r}", int(m.jnt_dofadr[j]), int(m.jnt_type[j])
        if kind == BALL:
            raise ModelError(f"{what}: ball joints are not supported; write three hinges.")
        if np.any(m.jnt_stiffness[j]):
            raise ModelError(f"{what}: springs are not supported: leave stiffness out, and give system(force=).")
        shared: dict[str, Any] = {
            "link": link,
            "joint": name,
            "parent": parent,
            "damping": float(np.ravel(m.dof_damping[dof])[0]),
            "friction": float(m.dof_frictionloss[dof]),
            "armature": float(m.dof_armature[dof]),
        }
        if kind == FREE:
            if parent >= 0 or shared["friction"]:
                raise ModelError(f"{what}: a free joint has to join a body to the world, without friction.")
            return JointedBody(**shared, kind=FLOATING)
        axis, zero = np.array(m.jnt_axis[j]), float(m.qpos0[m.jnt_qposadr[j]])  # joints may be zero elsewhere
        at = position + rotation @ m.jnt_pos[j]
        if kind == SLIDE:
            # `qpos0` is the coordinate at which the file draws the joint: place it so that the same pose belongs to
            # that value.
            at = at - zero * (rotation @ axis)
        else:
            rotation = rotation @ exp(-zero * axis)
        low, high = m.jnt_range[j] if m.jnt_limited[j] else (-np.inf, np.inf)
        return JointedBody(
            **shared,
            kind=PRISMATIC if kind == SLIDE else REVOLUTE,
            rotation=rotation,
            position=at,
            axis=axis,
            lower=float(low),
            upper=float(high),
            effort=efforts.get(name, np.inf),
        )

    def _efforts(self) -> dict[str, float]:
        """Return joints with a motor, and the largest force of it."""
        m, enums, result = self.model, self.mujoco, dict[str, float]()
        for k in range(m.nu):
            what = f"MJCF: actuator {self._name('ACTUATOR', k)!r}"
            simple = (
                m.actuator_trntype[k] == enums.mjtTrn.mjTRN_JOINT
                and m.actuator_dyntype[k] == enums.mjtDyn.mjDYN_NONE
                and m.actuator_gaintype[k] == enums.mjtGain.mjGAIN_FIXED
                and m.actuator_biastype[k] == enums.mjtBias.mjBIAS_NONE
            )
            if not simple:
                raise ModelError(
                    f"{what} is not a motor of a joint: only <motor joint=...> is supported; write servos and muscles "
                    "as a law of control, or with forces of your own."
                )
            # Force per unit of control: gear times gain; the limits of control and of force bound it in different
            # units.
            unit = abs(float(m.actuator_gear[k][0] * m.actuator_gainprm[k][0]))
            limits = []
            if m.actuator_ctrllimited[k]:
                limits.append(unit * np.abs(m.actuator_ctrlrange[k]).max())
            if m.actuator_forcelimited[k]:
                limits.append(abs(float(m.actuator_gear[k][0])) * np.abs(m.actuator_forcerange[k]).max())
            joint = self._joint_name(int(m.actuator_trnid[k][0]))
            result[joint] = float(min(limits, default=np.inf))
        return result

    def _shape(self, k: int) -> LinkShape:
        """Return a geom as a collision shape, or as a visual one if it collides with nothing."""
        m = self.model
        kind, size = int(m.geom_type[k]), np.array(m.geom_size[k])
        result = SHAPES.get(str(self.mujoco.mjtGeom(kind).name).removeprefix("mjGEOM_"), lambda s: None)(size)
        body = int(m.geom_bodyid[k])
        return LinkShape(
            link=self._name("BODY", body) if body else WORLD,
            name=self._name("GEOM", k),
            use="collision" if m.geom_contype[k] or m.geom_conaffinity[k] else "visual",
            shape=result,
            rotation=rotation_of(m.geom_quat[k]),
            position=np.array(m.geom_pos[k]),
        )

    def _refuse(self) -> None:
        m = self.model
        for count, what in ABSENT.items():
            if getattr(m, count, 0):
                raise ModelError(f"MJCF: {what} are not supported; the file has {getattr(m, count)}.")
        if m.opt.density or m.opt.viscosity or np.any(m.opt.wind):
            raise ModelError("MJCF: <option density, viscosity, wind>: forces of a fluid are not supported.")
        if np.any(m.body_gravcomp):
            raise ModelError("MJCF: gravcomp is not supported; write it as a force, system(force=).")

    def _joint_name(self, j: int) -> str:
        """Return the name of a joint, else that of its body; "base" if the only free joint has no name."""
        m = self.model
        name = self.mujoco.mj_id2name(m, self.mujoco.mjtObj.mjOBJ_JOINT, j)
        if name:
            return str(name)
        if m.jnt_type[j] == FREE and np.sum(m.jnt_type == FREE) == 1:
            return "base"
        return f"{self._name('BODY', int(m.jnt_bodyid[j]))}_joint{j - int(m.body_jntadr[m.jnt_bodyid[j]])}"

    def _name(self, kind: str, i: int) -> str:
        result = self.mujoco.mj_id2name(self.model, getattr(self.mujoco.mjtObj, f"mjOBJ_{kind}"), i)
        return str(result) if result else f"{kind.lower()}{i}"

    def _model_name(self) -> str:
        return bytes(self.model.names).split(b"\0", 1)[0].decode() or "robot"
