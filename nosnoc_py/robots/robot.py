"""`ns.Robot`: a tree of bodies, expressions in its coordinates, and its contact system."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
from attrs import evolve

from nosnoc_py.arguments import named_arguments
from nosnoc_py.declared import assign
from nosnoc_py.errors import ModelError, check_type, unknown_name
from nosnoc_py.geometry import HalfSpace, Placed
from nosnoc_py.geometry import contacts as contacts_of
from nosnoc_py.robots.forces import Forces
from nosnoc_py.robots.keyframes import Keyframe
from nosnoc_py.robots.link_shapes import LinkShape, outline_of
from nosnoc_py.robots.mjcf import read_mjcf
from nosnoc_py.robots.recursion import GRAVITY, Recursion
from nosnoc_py.robots.tree import FLOATING, SPHERICAL, WORLD, Drive, Frame, JointedBody, Tree
from nosnoc_py.robots.urdf import Base, read_urdf
from nosnoc_py.systems import scene
from nosnoc_py.systems.cls import CLS, Contact
from nosnoc_py.systems.symbols import finite

# Names of velocities and of drives, from those of joints.
RATE, EFFORT, CLAMP, ACTIVATION = "_rate", "_effort", "_clamp", "_activation"
PARTS = {
    FLOATING: (("x", "y", "z", "qw", "qx", "qy", "qz"), ("vx", "vy", "vz", "wx", "wy", "wz")),
    SPHERICAL: (("qw", "qx", "qy", "qz"), ("wx", "wy", "wz")),
}
# A mass matrix whose smallest eigenvalue is below this fraction of the largest one leaves a velocity without inertia.
MASSLESS = 1e-12
CORNERS = 16  # of the hull of a mesh in contacts
# A gap whose gradient is smaller than this part of the largest one does not move: angles of files have six digits.
FLAT = 1e-5


@named_arguments
@dataclass(frozen=True, eq=False)
class Robot:
    """Robot of rigid bodies on joints, read from a URDF or MJCF file.

    Coordinates are those of the joints, parents before children, in the order of the file; a planar base has x, z and
    the pitch about y before them. Velocities are their rates. Of a floating base the coordinates are position and unit
    quaternion (real part first), the velocities linear in the world and angular in the body; a ball joint has the
    quaternion and the angular velocity. Coordinates that are coupled by the file are among them.

    Parameters
    ----------
    tree : Tree
        Tree of bodies, see `Robot.from_urdf`.
    gravity : (3,)
        [m/s^2], in the world, whose z axis points up.

    Raises
    ------
    ModelError
        If a joint moves no inertia, so that the mass matrix would be singular.

    Examples
    --------
    A pendulum of 1 kg, 0.5 m below its bearing:

    >>> import nosnoc_py as ns
    >>> text = '''<robot name="pendulum"><link name="wall"/><link name="rod"><inertial><origin xyz="0 0 -0.5"/>
    ...   <mass value="1"/><inertia ixx="0.01" iyy="0.01" izz="0.001"/></inertial></link>
    ...   <joint name="bearing" type="continuous"><parent link="wall"/><child link="rod"/><axis xyz="0 1 0"/></joint>
    ... </robot>'''
    >>> robot = ns.Robot.from_urdf(text)
    >>> robot.mass_matrix
    SX(0.26)
    >>> motion = ns.simulate(robot.system(), x0={"bearing": 0.1}, duration=1.0)
    >>> round(float(motion["bearing"][-1]), 4)
    -0.0363
    """

    tree: Tree
    gravity: Sequence[float] = field(default=GRAVITY, kw_only=True)
    q: Any = field(init=False, repr=False)
    v: Any = field(init=False, repr=False)
    u: Any = field(init=False, repr=False)
    activation: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_type(self.tree, Tree, "Robot: tree")
        gravity = tuple(float(g) for g in finite(self.gravity, "Robot: gravity", 3))
        n_q, n_v = (sum(getattr(body, size) for body in self.tree.bodies) for size in ("n_q", "n_v"))
        assign(self, gravity=gravity, q=ca.SX.sym("q", n_q), v=ca.SX.sym("v", n_v))
        lagging = sum(drive.lag is not None for drive in self.drives)
        assign(self, u=ca.SX.sym("u", len(self.drives)), activation=ca.SX.sym("activation", lagging))
        self._check_masses()

    @classmethod
    @named_arguments
    def from_urdf(
        cls,
        source: str | Path,
        base: Base = "fixed",
        *,
        gravity: Sequence[float] = GRAVITY,
        armature: Mapping[str, float] | None = None,
        package_dirs: Iterable[str | Path] = (),
    ) -> Robot:
        """Read a URDF file, or the text of one.

        Parameters
        ----------
        source : path or str
        base : {"fixed", "planar", "floating"}
            How the root link moves: not at all, in the plane of x and z with a pitch about y, or freely.
        gravity : (3,)
            [m/s^2].
        armature : mapping, optional
            Inertias of drives seen from their joints [kg m^2 or kg], by the names of the joints (not part of URDF).
        package_dirs : sequence of path, optional
            Where packages are whose meshes are named as package://...; the folders above the file are searched, too.

        Raises
        ------
        ModelError
            For errors and unsupported features of the file: the message names all of them with link or joint.

        Warns
        -----
        ModelWarning
            For what is left out since it moves nothing, and for inertias that no body has: one warning for a file.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> text = '''<robot name="rig"><link name="rail"/><link name="cart"><inertial><mass value="2"/>
        ...   <inertia ixx="0" iyy="0" izz="0"/></inertial></link>
        ...   <joint name="slide" type="prismatic"><parent link="rail"/><child link="cart"/><axis xyz="1 0 0"/>
        ...   <limit lower="-1" upper="1" effort="5" velocity="3"/></joint></robot>'''
        >>> ns.Robot.from_urdf(text, armature={"slide": 0.5}).mass_matrix
        SX(2.5)
        """
        tree = read_urdf(source, base, tuple(package_dirs))
        given = dict(armature or {})
        for name, value in given.items():
            if name not in (joints := [body.joint for body in tree.bodies]):
                raise ModelError(f"armature: {unknown_name(name, joints, 'joint')}")
            if not finite(value, f"armature: {name}", 1)[0] >= 0:
                raise ModelError(f"armature: {name}: expected a nonnegative number, given {value!r}.")
        return cls(tree.with_armature(given), gravity=gravity)

    @classmethod
    def from_mjcf(cls, source: str | Path) -> Robot:
        """Read an MJCF file of MuJoCo, or the text of one; needs the package mujoco (extra "robots").

        Everything that a tree of rigid bodies can have is read, with what MuJoCo's compiler makes of defaults, includes
        and shapes: `docs/robots.md` has the list. Coordinates have the order and the meaning of MuJoCo's.

        Parameters
        ----------
        source : path or str

        Raises
        ------
        ModelError
            For what is not read: forces of a fluid, muscles, wrapped tendons, plugins, flexible bodies and every other
            field of the compiled model that is not at its default; the message names all of them.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> text = '''<mujoco><worldbody><body><joint name="slide" type="slide" axis="1 0 0"/>
        ...   <geom type="sphere" size="0.1" mass="2"/></body></worldbody></mujoco>'''
        >>> robot = ns.Robot.from_mjcf(text)
        >>> robot.joint_names, robot.mass_matrix
        (('slide',), SX(2))
        """
        tree, gravity = read_mjcf(source)
        return cls(tree, gravity=gravity)

    # --- expressions ---

    @cached_property
    def _recursion(self) -> Recursion:
        return Recursion(self.tree, self.q, self.v)

    @cached_property
    def _forces(self) -> Forces:
        return Forces(self._recursion, self.gravity)

    @cached_property
    def mass_matrix(self) -> ca.SX:
        """M(q) (n_v, n_v)."""
        return self._recursion.mass_matrix() + self._forces.tendon_inertia[0]

    @cached_property
    def bias(self) -> ca.SX:
        """Bias h(q, v) (n_v,) of Coriolis, centrifugal and gravity forces: M v' + h are the applied forces."""
        return self._recursion.bias(self.gravity) + self._forces.tendon_inertia[1]

    @property
    def passive(self) -> ca.SX:
        """Generalised forces (n_v,) of springs, dampers and compensated weights, in q and v."""
        return self._forces.passive

    @cached_property
    def actuation(self) -> ca.SX:
        """Generalised forces (n_v,) of all drives, in q, v, the controls `u`, and `activation` of drives with a lag.

        Servos are as in MuJoCo: their force is affine in the control, which is a set point, and saturates where the
        file limits it. It has kinks there.
        """
        return self._forces.actuation(self.drives, self.u, self.activation)

    @property
    def couplings(self) -> dict[str, ca.SX]:
        """Expressions of q that vanish, by name: gears, mimic joints, coupled tendons."""
        return self._forces.couplings

    @property
    def loops(self) -> dict[str, ca.SX]:
        """Expressions (3,) or (6,) of q that vanish, by name: points or frames that stay together."""
        return self._forces.loops

    @property
    def N(self) -> ca.SX:
        """N(q) (n_q, n_v): q' = N(q) v, the identity but for quaternions."""
        return self._recursion.kinematics

    @named_arguments
    def pose(self, link: str, point: Any = (0.0, 0.0, 0.0)) -> tuple[ca.SX, ca.SX]:
        """Return the rotation (3, 3) of a link and position (3,) of a point of it, in the world.

        Parameters
        ----------
        link : str
            Any link of the file.
        point : (3,)
            In the frame of the link.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> text = '''<robot name="rig"><link name="rail"/><link name="cart"><inertial><mass value="2"/>
        ...   <inertia ixx="0" iyy="0" izz="0"/></inertial></link>
        ...   <joint name="slide" type="prismatic"><parent link="rail"/><child link="cart"/><axis xyz="1 0 0"/>
        ...   <limit lower="-1" upper="1" effort="5" velocity="3"/></joint></robot>'''
        >>> rotation, position = ns.Robot.from_urdf(text).pose("cart", point=[0, 0, 0.2])
        >>> rotation.shape, position
        ((3, 3), SX([q, 0, 0.2]))
        """
        if link not in self.tree.frames:
            raise ModelError(f"pose: {unknown_name(link, tuple(self.tree.frames), 'link')}")
        return self._recursion.pose(link, point)

    @named_arguments
    def position(self, link: str, point: Any = (0.0, 0.0, 0.0)) -> ca.SX:
        """Return the position (3,) in the world of a point of a link.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> text = '''<robot name="rig"><link name="rail"/><link name="cart"><inertial><mass value="2"/>
        ...   <inertia ixx="0" iyy="0" izz="0"/></inertial></link>
        ...   <joint name="slide" type="prismatic"><parent link="rail"/><child link="cart"/><axis xyz="1 0 0"/>
        ...   <limit lower="-1" upper="1" effort="5" velocity="3"/></joint></robot>'''
        >>> ns.Robot.from_urdf(text).position("cart")[0]
        SX(q)
        """
        return self.pose(link, point)[1]

    @cached_property
    def center_of_mass(self) -> ca.SX:
        """Position (3,) in the world of the centre of mass of all moving bodies."""
        return self._recursion.center_of_mass()

    def jacobian(self, expression: ca.SX) -> ca.SX:
        """Return J(q) (m, n_v) of an expression (m,) of q: its rate is J v.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> text = '''<robot name="rig"><link name="rail"/><link name="cart"><inertial><mass value="2"/>
        ...   <inertia ixx="0" iyy="0" izz="0"/></inertial></link>
        ...   <joint name="slide" type="prismatic"><parent link="rail"/><child link="cart"/><axis xyz="1 0 0"/>
        ...   <limit lower="-1" upper="1" effort="5" velocity="3"/></joint></robot>'''
        >>> robot = ns.Robot.from_urdf(text)
        >>> robot.jacobian(3 * robot.position("cart")[0])
        SX(3)
        """
        return self._forces.jacobian(expression)

    # --- names and limits ---

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Names of all joints, including those of the base."""
        return tuple(body.joint for body in self.tree.bodies)

    @property
    def limits(self) -> dict[str, tuple[float, float]]:
        """Lower and upper ends of joints that have some [rad or m], by name."""
        bodies = (body for body, _ in self._single() if np.isfinite([body.lower, body.upper]).any())
        return {body.joint: (body.lower, body.upper) for body in bodies}

    @cached_property
    def drives(self) -> tuple[Drive, ...]:
        """Drives of the file; if it names none, one of each joint with one coordinate that follows no other one."""
        if self.tree.drives is not None:
            return self.tree.drives
        followers = [coupling.follower for coupling in self.tree.couplings]
        return tuple(_drive_of(body) for body in self._drivable() if body.joint not in followers)

    @property
    def efforts(self) -> dict[str, float]:
        """Largest forces of drives [N m or N] that the file knows, by the names of joints."""
        efforts = (drive for drive in self.drives if drive.name.endswith(EFFORT) and isinstance(drive.target, str))
        return {str(d.target): float(np.abs(d.control).max()) for d in efforts if np.isfinite(d.control).all()}

    @property
    def names(self) -> dict[str, tuple[str, ...]]:
        """Names of coordinates and velocities."""
        q, v = list[str](), list[str]()
        for body in self.tree.bodies:
            places, rates = PARTS.get(body.kind, ((), ()))
            q += [f"{body.joint}_{part}" for part in places] or [body.joint]
            v += [f"{body.joint}_{part}" for part in rates] or [body.joint + RATE]
        return {"q": tuple(q), "v": tuple(v)}

    @cached_property
    def keyframes(self) -> dict[str, Keyframe]:
        """States that an MJCF file names (<keyframe>), by name; "key_0", "key_1", ... by their index without one.

        A file of URDF has none. Positions that the file does not give are those at which it draws the robot.
        """
        # Without actuators the file applies no force; every joint has a motor here.
        drives = self.drives if self.tree.drives else ()
        lagging = [drive.name + ACTIVATION for drive in drives if drive.lag is not None]
        names, controls = (*self.names["q"], *self.names["v"], *lagging), [drive.name for drive in self.drives]
        frames = {}
        for name, given in self.tree.keyframes.items():
            x0 = np.concatenate([given["q"], given["v"], given["activation"]])
            u = given["u"] if drives else np.zeros(len(controls))
            frames[name] = Keyframe(
                x0=x0,
                u=u,
                time=float(given["time"]),
                states=dict(zip(names, x0.tolist(), strict=True)),
                controls=dict(zip(controls, u.tolist(), strict=True)),
            )
        return frames

    @named_arguments
    def bounds(self, actuated: Iterable[str] | None = None) -> dict[str, tuple[float, float]]:
        """Return bounds by name for an `ns.OCP`: controls of drives and rates of joints, from the file.

        Ends of joints are not among them: `system` makes contacts of these, with impacts, or limits of the system.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> text = '''<robot name="rig"><link name="rail"/><link name="cart"><inertial><mass value="2"/>
        ...   <inertia ixx="0" iyy="0" izz="0"/></inertial></link>
        ...   <joint name="slide" type="prismatic"><parent link="rail"/><child link="cart"/><axis xyz="1 0 0"/>
        ...   <limit lower="-1" upper="1" effort="5" velocity="3"/></joint></robot>'''
        >>> ns.Robot.from_urdf(text).bounds()
        {'slide_effort': (-5.0, 5.0), 'slide_rate': (-3.0, 3.0)}
        """
        result = {drive.name: drive.control for drive in self._driven(actuated) if np.isfinite(drive.control).any()}
        return result | {b.joint + RATE: (-b.speed, b.speed) for b in self.tree.bodies if np.isfinite(b.speed)}

    # --- shapes ---

    @named_arguments
    def shape(self, link: str, shape: Any, position: Any = (0.0, 0.0, 0.0), rotation: Any = None) -> Placed:
        """Put a shape on a link, for `ns.contacts`.

        Parameters
        ----------
        link : str
        shape
            As in `ns.Placed`.
        position, rotation : (3,), (3, 3)
            In the frame of the link.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> text = '''<robot name="rig"><link name="rail"/><link name="cart"><inertial><mass value="2"/>
        ...   <inertia ixx="0" iyy="0" izz="0"/></inertial></link>
        ...   <joint name="slide" type="prismatic"><parent link="rail"/><child link="cart"/><axis xyz="0 0 1"/>
        ...   <limit lower="-1" upper="1" effort="5" velocity="3"/></joint></robot>'''
        >>> foot = ns.Robot.from_urdf(text).shape("cart", ns.Sphere(0.1))
        >>> ns.contacts(foot, ns.HalfSpace(), name="foot")[0].gap
        SX((q-0.1))
        """
        turned, place = self.pose(link, position)
        return Placed(shape, place, turned if rotation is None else turned @ ca.DM(rotation), coordinates=self)

    @property
    def collisions(self) -> tuple[LinkShape, ...]:
        """Collision shapes of the links in their frames, from the file."""
        return tuple(shape for shape in self.tree.shapes if shape.use == "collision")

    @property
    def visuals(self) -> tuple[LinkShape, ...]:
        """Visual shapes of the links from the file, by default their collision shapes."""
        return tuple(shape for shape in self.tree.shapes if shape.use == "visual") or self.collisions

    @named_arguments
    def contacts(
        self,
        ground: Any = None,
        links: Iterable[str] | None = None,
        *,
        friction: Any = None,
        restitution: Any = None,
        corners: int = CORNERS,
    ) -> list[Contact]:
        """Make the contacts of links with the ground, from the collision shapes of the file.

        Parameters
        ----------
        ground : shape or Placed, optional
            Shape that does not move; default: the planes of the file, else `ns.HalfSpace()`, all below z = 0.
        links : sequence of str, optional
            Default: all with a collision shape that move.
        friction, restitution : optional
            As in `ns.Contact`; default: those of the file, else 0.
        corners : int
            Largest number of corners of the convex hull of a mesh.

        Returns
        -------
        list of Contact
            Named after the links, or "<link> 1" and so on where one has several. Shapes that do not collide with a
            plane of the file have no contact with it.

        Raises
        ------
        ModelError
            For links without collision shapes, for meshes that cannot be read, and for pairs that are refused by
            `ns.contacts`.

        Warns
        -----
        ModelWarning
            For meshes: how much volume their convex hulls add, and how far corners stand out that were left out.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> text = '''<robot name="lift"><link name="rail"/><link name="foot"><inertial><mass value="2"/>
        ...   <inertia ixx="0" iyy="0" izz="0"/></inertial>
        ...   <collision><geometry><sphere radius="0.1"/></geometry></collision></link>
        ...   <joint name="slide" type="prismatic"><parent link="rail"/><child link="foot"/><axis xyz="0 0 1"/>
        ...   <limit lower="0" upper="1" effort="5" velocity="3"/></joint></robot>'''
        >>> [(contact.name, contact.gap) for contact in ns.Robot.from_urdf(text).contacts(friction=0.6)]
        [('foot', SX((q-0.1)))]
        """
        planes = [s for s in self.collisions if isinstance(s.shape, HalfSpace) and self.tree.frames[s.link][0] < 0]
        grounds: list[tuple[LinkShape | None, Any]] = [(None, HalfSpace() if ground is None else ground)]
        if ground is None and planes:
            grounds = [(s, self.shape(s.link, s.shape, s.position, s.rotation)) for s in planes]
        # Links on the world cannot be in contact with it.
        moving = [link for link, (body, _, _) in self.tree.frames.items() if body >= 0]
        having = list(dict.fromkeys(shape.link for shape in self.collisions if shape.link in moving))
        chosen = having if links is None else [links] if isinstance(links, str) else list(links)
        result = []
        for link in chosen:
            if link not in having:
                raise ModelError(
                    f"contacts: {unknown_name(str(link), having, 'link with a <collision>')} Put a shape on it: "
                    "ns.contacts(robot.shape(link, ns.Sphere(0.02)), ns.HalfSpace())."
                )
            own = [shape for shape in self.collisions if shape.link == link]
            for k, part in enumerate(own):
                met = [(plane, placed, law) for plane, placed in grounds if (law := self._law(part, plane)) is not None]
                solid = part.solid(corners) if met else None
                for plane, placed, law in met:
                    if solid is None:
                        raise ModelError(
                            f"contacts: link {link!r} collides by a field of heights or distances, which is not read; "
                            "give it a box, a sphere or a cylinder in the file, or a shape by robot.shape(link, ...)."
                        )
                    shape = self.shape(link, solid, part.position, part.rotation)
                    name = link if len(own) == 1 else f"{link} {k + 1}"
                    name = name if len(grounds) == 1 or plane is None else f"{name} on {plane.name}"
                    given = {"friction": friction, "restitution": restitution}
                    values = {key: law[key] if value is None else value for key, value in given.items()}
                    result += contacts_of(shape, placed, name=name, **values)
        return self._moving(result)

    def _moving(self, contacts: list[Contact]) -> list[Contact]:
        """Return the contacts whose gaps change: what only turns about an axis of its own keeps its distance.

        Angles of a file that are rounded change it by less than rounding counts.
        """
        if not contacts:
            return contacts
        slopes = ca.jacobian(ca.vertcat(*[contact.gap for contact in contacts]), self.q)
        rng, slope_at = np.random.default_rng(0), ca.Function("slopes", [self.q], [slopes])
        places = rng.uniform(-1.0, 1.0, (3, self.q.numel()))
        steepest = np.max([np.abs(np.array(ca.DM(slope_at(place)))).max(axis=1) for place in places], axis=0)
        return [c for c, steep in zip(contacts, steepest, strict=True) if not steep <= FLAT * np.nanmax(steepest)]

    def _law(self, part: LinkShape, plane: LinkShape | None) -> dict[str, float] | None:
        """Return friction and restitution of a shape on a plane of the file, or on another ground; None if they miss.

        Of two geoms the one with the higher priority decides, of equal ones the larger friction (MuJoCo).
        """
        both = [part] if plane is None else [part, plane]
        highest = max(shape.priority for shape in both)
        restitution = max(shape.restitution or 0.0 for shape in both)
        friction = max(shape.friction or 0.0 for shape in both if shape.priority == highest)
        if plane is not None:
            pair = self.tree.pairs.get(frozenset({part.name, plane.name}))
            if pair is None and (frozenset({part.link, plane.link}) in self.tree.apart or not part.meets(plane)):
                return None
            friction = friction if pair is None else pair
        return {"friction": friction, "restitution": restitution}

    @named_arguments
    def scene(self, view: str = "xz") -> list[scene.PlanarShape]:
        """Return the shapes for `CLS(scene=...)`, with which motions are drawn and filmed.

        Bodies are drawn by the shapes of the file; bodies without shapes, and meshes, by lines between joints. The
        ground z = 0 is drawn if the view has z upwards.

        Parameters
        ----------
        view : {"xz", "yz", "xy", "oblique"}
            From the side, from behind, from above, or from a corner.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> text = '''<robot name="lift"><link name="rail"/><link name="foot"><inertial><mass value="2"/>
        ...   <inertia ixx="0" iyy="0" izz="0"/></inertial>
        ...   <collision><geometry><sphere radius="0.1"/></geometry></collision></link>
        ...   <joint name="slide" type="prismatic"><parent link="rail"/><child link="foot"/><axis xyz="0 0 1"/>
        ...   <limit lower="0" upper="1" effort="5" velocity="3"/></joint></robot>'''
        >>> robot = ns.Robot.from_urdf(text)
        >>> [type(shape).__name__ for shape in robot.system(scene=robot.scene()).scene]
        ['Ground', 'Solid']
        """
        axes = scene.view_of(view)
        # A line for the ground only makes sense if z is vertical in the picture.
        drawn: list[scene.PlanarShape] = [scene.Ground()] if abs(axes[1, 2]) == 1.0 else []
        seen = [shape for shape in self.visuals if shape.link in self.tree.frames and outline_of(shape) is not None]
        for part in seen:
            points, radius = outline_of(part)  # type: ignore[misc]
            places = [self.position(part.link, part.position + part.rotation @ point) for point in points]
            drawn.append(scene.Solid(places, radius, view, colour="grey"))
        covered = {self.tree.frames[shape.link][0] for shape in seen}
        for number, body in enumerate(self.tree.bodies):
            if number in covered:
                continue
            ends = [self.position(other.link) for other in self.tree.bodies if other.parent == number]
            ends += [
                self.position(link) for link, (owner, _, at) in self.tree.frames.items() if owner == number and at.any()
            ]
            drawn += [scene.Line([ca.DM(axes) @ p for p in (self.position(body.link), end)]) for end in ends]
        return drawn

    # --- systems ---

    @named_arguments
    def end_stops(self, restitution: float = 0.0) -> list[Contact]:
        """Return limits of joints and tendons as contacts "knee (lower)", "knee (upper)" with gaps in rad or m.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> text = '''<robot name="rig"><link name="rail"/><link name="cart"><inertial><mass value="2"/>
        ...   <inertia ixx="0" iyy="0" izz="0"/></inertial></link>
        ...   <joint name="slide" type="prismatic"><parent link="rail"/><child link="cart"/><axis xyz="1 0 0"/>
        ...   <limit lower="-1" upper="1" effort="5" velocity="3"/></joint></robot>'''
        >>> [stop.name for stop in ns.Robot.from_urdf(text).end_stops(restitution=0.3)]
        ['slide (lower)', 'slide (upper)']
        """
        lengths = [(body.joint, coordinate, body.lower, body.upper) for body, coordinate in self._single()]
        lengths += [(each.name, self._forces.lengths[each.name], each.lower, each.upper) for each in self.tree.tendons]
        result = []
        for name, length, *ends in lengths:
            for word, end, gap in zip(("lower", "upper"), ends, (length - ends[0], ends[1] - length), strict=True):
                if np.isfinite(end):
                    result.append(Contact(f"{name} ({word})", gap=gap, restitution=restitution))
        for body, q, _ in self._forces.joints.values():
            if body.kind == SPHERICAL and body.upper < np.pi:
                # The real part of the quaternion is the cosine of half of the angle; its square is smooth everywhere.
                gap = self.q[q][0] ** 2 - np.cos(body.upper / 2) ** 2
                result.append(Contact(f"{body.joint} (upper)", gap=gap, restitution=restitution))
        return result

    def system(
        self,
        contacts: Sequence[Contact] = (),
        *,
        actuated: Iterable[str] | None = None,
        end_stops: bool = True,
        limits: bool = True,
        joint_friction: bool = True,
        force: Any = 0,
        **more: Any,
    ) -> CLS:
        """Make the contact system M(q) v' = -h(q, v) + passive forces + actuation + force + contact forces.

        Parameters
        ----------
        contacts : sequence of Contact
            Written in q of the robot: `ns.Contact("foot", gap=robot.position("foot")[2], ...)`.
        actuated : names of joints or controls, optional
            Those with a drive. Default: the drives of an MJCF file, else all joints but those of the base and those
            that follow others. The control of a motor is its force, "<joint>_effort", that of a servo its set point,
            "<actuator>_setpoint"; a joint without a drive in the file gets a motor.
        end_stops : bool
            True to make contacts of the joint limits, see `Robot.end_stops`.
        limits : bool
            True to keep joint limits without contacts (`end_stops=False`) as limits of the system, which every `ns.OCP`
            of it has as bounds; a simulation does not stop there. False to leave them out. Tendons and ball joints have
            limits as contacts only.
        joint_friction : bool
            True to include the dry friction of the file (Coulomb friction with stick). Each joint with friction gets an
            additional coordinate "<joint>_clamp", which a constant force presses against a stop like a brake, so that
            it stays 0; its contact "<joint> (friction)" exerts the friction on the joint.
        force : SX (n_v,), optional
            Further forces on the coordinates, in q, v and what is given as `p` or `t`.
        **more
            Further arguments of `ns.CLS`: p, t, p_default, nominal, scene and others.

        Raises
        ------
        ModelError
            For unknown joints, and as `ns.CLS`.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> text = '''<robot name="rig"><link name="rail"/><link name="cart"><inertial><mass value="2"/>
        ...   <inertia ixx="0" iyy="0" izz="0"/></inertial></link>
        ...   <joint name="slide" type="prismatic"><parent link="rail"/><child link="cart"/><axis xyz="1 0 0"/>
        ...   <limit lower="-1" upper="1" effort="5" velocity="3"/></joint></robot>'''
        >>> system = ns.Robot.from_urdf(text).system()
        >>> system.state_names, system.control_names, [contact.name for contact in system.contacts]
        (('slide', 'slide_rate'), ('slide_effort',), ['slide (lower)', 'slide (upper)'])
        """
        if not self.tree.bodies:
            raise ModelError(f"Robot {self.tree.name}: nothing moves; all joints are fixed, and so is the base.")
        drives, forces = self._driven(actuated), self._forces
        lagging = [drive for drive in drives if drive.lag is not None]
        u, activation = self.u, self.activation
        if drives != self.drives:
            u, activation = ca.SX.sym("u", len(drives)), ca.SX.sym("activation", len(lagging))
        total = forces.actuation(drives, u, activation) - self.bias + self.passive + force
        rubbing = self._rubbing() if joint_friction else []
        clamps, rates = ca.SX.sym("clamp", len(rubbing)), ca.SX.sym("clamp_rate", len(rubbing))
        rubs = [*contacts, *(self.end_stops() if end_stops else ())]
        # Directions get rows for the velocities of the clamps, which these contacts do not move.
        rubs = [_with_clamps(contact, len(rubbing)) for contact in rubs]
        # A clamp is pressed on its stop by the largest friction, with mu = 1.
        rubs += [
            Contact(f"{name} (friction)", gap=clamps[k], tangent=ca.vertcat(arm, ca.SX(len(rubbing), 1)), friction=1.0)
            for k, (name, arm, _) in enumerate(rubbing)
        ]
        names = {
            "q": (*self.names["q"], *(name + CLAMP for name, _, _ in rubbing)),
            "v": (*self.names["v"], *(name + CLAMP + RATE for name, _, _ in rubbing)),
            "u": tuple(drive.name for drive in drives),
        }
        kept = self.limits if limits and not end_stops else {}
        more = {**self._activations(drives, u, activation, names, more), **more}
        return CLS(
            q=ca.vertcat(self.q, clamps),
            v=ca.vertcat(self.v, rates),
            u=u,
            mass_matrix=ca.diagcat(self.mass_matrix, ca.SX.eye(len(rubbing))),
            # The clamp's normal force equals this constant force, so that |friction| <= 1 * friction of the joint.
            force=ca.vertcat(total, *(-friction for _, _, friction in rubbing)),
            quaternions=[self.q[part] for part in self._quaternions()],
            contacts=rubs,
            couplings={**self.couplings, **more.pop("couplings", {})},
            loops={**self.loops, **more.pop("loops", {})},
            names={**names, **more.pop("names", {})},
            units={**self._units(drives), **more.pop("units", {})},
            limits={**kept, **more.pop("limits", {})},
            **more,
        )

    def _activations(
        self, drives: Sequence[Drive], u: ca.SX, activation: ca.SX, names: dict[str, Any], more: dict[str, Any]
    ) -> dict[str, Any]:
        """Return y and y' of drives with a lag, before those that the user gives, which are taken out of `more`."""
        lagging = [(k, drive) for k, drive in enumerate(drives) if drive.lag is not None]
        if not lagging:
            return {}
        rates = [(u[k] - activation[i]) / drive.lag if drive.lag else u[k] for i, (k, drive) in enumerate(lagging)]
        y = [activation] + ([ca.SX(more.pop("y"))] if more.get("y") is not None else [])
        y_rate = [*rates] + ([ca.SX(more.pop("y_rate"))] if more.get("y_rate") is not None else [])
        names["y"] = (*(drive.name + ACTIVATION for _, drive in lagging), *more.get("names", {}).get("y", ()))
        return {"y": ca.vertcat(*y), "y_rate": ca.vertcat(*y_rate)}

    def _rubbing(self) -> list[tuple[str, ca.SX, float]]:
        """Return what has dry friction: its name, its direction (n_v,) and the friction."""
        result, size = list[tuple[str, ca.SX, float]](), self.v.numel()
        for body, _, at in self._forces.joints.values():
            parts = PARTS[body.kind][1] if body.kind in PARTS else ("",)
            for row, part in zip(range(at.start, at.stop), parts, strict=True):
                if body.friction > 0:
                    direction = ca.SX(size, 1)
                    direction[row] = 1
                    result.append((f"{body.joint}_{part}" if part else body.joint, direction, body.friction))
        tendons = (tendon for tendon in self.tree.tendons if tendon.friction > 0)
        return result + [(each.name, self._forces.arm(each.name), each.friction) for each in tendons]

    def _quaternions(self) -> list[slice]:
        """Return the slices of quaternions in q."""
        return [slice(q.stop - 4, q.stop) for body, q, _ in self._forces.joints.values() if body.n_q > 1]

    def _units(self, drives: Iterable[Drive]) -> dict[str, str]:
        units = dict[str, str]()
        for body in self.tree.bodies:
            for part in (part for parts in PARTS.get(body.kind, ()) for part in parts):
                if not part.startswith("q"):
                    unit = {"v": "m/s", "w": "rad/s"}.get(part[0], "m")
                    units[f"{body.joint}_{part}"] = unit
            if body.n_q == 1:
                units |= {body.joint: body.unit, body.joint + RATE: f"{body.unit}/s"}
        joints = {body.joint: "N m" if body.unit == "rad" else "N" for body in self.tree.bodies if body.n_q == 1}
        for drive in drives:
            if drive.name.endswith(EFFORT) and not isinstance(drive.target, Frame) and drive.target in joints:
                units[drive.name] = joints[drive.target]
        return units

    def __repr__(self) -> str:
        joints = ", ".join(f"{body.joint} ({body.kind})" for body in self.tree.bodies)
        mass = sum(body.inertia.mass for body in self.tree.bodies)
        links = len(self.tree.frames.keys() - {WORLD})
        text = f"Robot {self.tree.name}: {links} links, {mass:.4g} kg moved\n  joints   {joints or 'none'}"
        others = ", ".join(self.tree.left_out)
        return text + (f"\n  left out {others}" if others else "")

    def _single(self) -> list[tuple[JointedBody, ca.SX]]:
        """Return the bodies on joints with one coordinate, with that coordinate."""
        return [(body, self.q[at]) for body, at, _ in self._forces.joints.values() if body.n_q == 1]

    def _drivable(self) -> list[JointedBody]:
        """Return the bodies on joints with one coordinate that do not carry the base."""
        carrying = ("base_x", "base_z", "base_pitch")
        return [body for body in self.tree.bodies if body.n_q == 1 and body.joint not in carrying]

    def _driven(self, actuated: Iterable[str] | None) -> tuple[Drive, ...]:
        """Return the drives of some joints, or with some names of controls, in the order of the file."""
        if actuated is None:
            return self.drives
        chosen = [actuated] if isinstance(actuated, str) else list(actuated)
        having = {name for drive in self.drives for name in (drive.name, drive.target)}
        new = [_drive_of(body) for body in self._drivable() if body.joint not in having]
        legal = [drive.target for drive in (*self.drives, *new) if isinstance(drive.target, str)]
        for name in chosen:
            if name not in (*legal, *(drive.name for drive in self.drives)):
                raise ModelError(f"actuated: {unknown_name(str(name), dict.fromkeys(legal), 'joint')}")
        return tuple(drive for drive in (*self.drives, *new) if {drive.name, drive.target} & set(chosen))

    def _check_masses(self) -> None:
        """Raise `ModelError` if a velocity has no inertia, because the mass matrix would be singular."""
        if not self.tree.bodies:
            return
        # A random pose: at special ones (all zeros, stretched) the matrix may be singular although no joint lacks
        # inertia.
        q = np.random.default_rng(0).uniform(0.2, 0.8, self.q.numel())
        matrix = np.array(ca.Function("M", [self.q], [ca.densify(self.mass_matrix)])(q))
        sizes, directions = np.linalg.eigh(matrix)
        null = directions[:, sizes <= MASSLESS * max(sizes[-1], 1e-300)]
        if not null.size:
            return
        # Shares of the velocities in what has no inertia, whatever its basis is.
        shares = np.sum(null**2, axis=1)
        owners = np.array([body for body in self.tree.bodies for _ in range(body.n_v)], dtype=object)
        first, *others = dict.fromkeys(owners[shares >= shares.max() / 2].tolist())
        more = f" (and so do {', '.join(repr(body.joint) for body in others)})" if others else ""
        raise ModelError(
            f"Robot {self.tree.name}: joint {first.joint!r} moves no inertia{more}: give link {first.link!r} an "
            "<inertial> with mass, or the joint an armature."
        )


def _drive_of(body: JointedBody) -> Drive:
    """Return the motor of a joint, whose control is its force."""
    return Drive(name=body.joint + EFFORT, target=body.joint, control=body.effort)


def _with_clamps(contact: Contact, count: int) -> Contact:
    """Return a contact with directions extended by zeros for `count` further velocities."""
    longer = {
        name: ca.vertcat(given, ca.SX(count, given.shape[1]))
        for name in ("normal", "tangent")
        if count and (given := getattr(contact, name)) is not None
    }
    return evolve(contact, **longer)
