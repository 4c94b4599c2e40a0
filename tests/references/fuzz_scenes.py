"""Random systems for `fuzzing`: planar bodies with contacts, Filippov systems, and wrong inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import casadi as ca
import numpy as np
from attrs import evolve

import nosnoc_py as ns

GRAVITY = 9.81
APART = 0.02  # least gap at the beginning of contacts that are not closed then, in lengths of the scene
TRIES = 200
SHAPES = ("point", "disc", "box")


@dataclass(frozen=True, eq=False, kw_only=True)
class Scene:
    """A system, where it begins, and its magnitudes.

    `given` is another statement of the same motion, with its start and what makes a state of it one of `system`: it is
    what is simulated, while the oracle has `system`. `gap` is the distance of two bodies at a state, by points of one.
    """

    system: Any
    x0: np.ndarray
    duration: float
    length: float
    time: float
    size: np.ndarray
    given: tuple[Any, np.ndarray, Callable[[np.ndarray], np.ndarray]] | None = None
    gap: Callable[[np.ndarray], float] | None = None

    @property
    def simulated(self) -> tuple[Any, np.ndarray]:
        """The system that is simulated, and its start."""
        return (self.system, self.x0) if self.given is None else self.given[:2]

    def told(self, x: np.ndarray) -> np.ndarray:
        """A state of the simulation as one of `system`."""
        return x if self.given is None else self.given[2](x)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Body:
    shape: str
    radius: float  # of a disc; of a box half its width
    height: float  # half that of a box
    q: Any
    mass: tuple[float, float]

    def points(self) -> list[tuple[Any, float]]:
        """Points that touch surfaces, and how far inside the surface of the body they are."""
        if self.shape != "box":
            return [(self.q[:2], self.radius if self.shape == "disc" else 0.0)]
        turned = ca.vertcat(
            ca.horzcat(ca.cos(self.q[2]), -ca.sin(self.q[2])), ca.horzcat(ca.sin(self.q[2]), ca.cos(self.q[2]))
        )
        corners = [ca.DM([a * self.radius, b * self.height]) for a in (-1, 1) for b in (-1, 1)]
        return [(self.q[:2] + ca.mtimes(turned, corner), 0.0) for corner in corners]


def bodies(rng: np.random.Generator) -> Scene:
    """1 to 4 planar bodies on a floor or slope, with walls and springs; lengths and masses of any magnitude."""
    length, mass = 10.0 ** rng.uniform(-4.0, 3.0), 10.0 ** rng.uniform(-3.0, 3.0)
    unit = 10.0 ** rng.uniform(-4.0, 3.0) if rng.random() < 0.5 else 1.0
    length, mass = (unit, mass) if unit != 1.0 else (1.0, mass if rng.random() < 0.3 else 1.0)
    time, count = float(np.sqrt(length / GRAVITY)), int(rng.choice([1, 2, 3, 4], p=[0.45, 0.3, 0.15, 0.1]))
    made, angles = (
        [_body(rng, i, length, mass) for i in range(count)],
        [float(rng.choice([0.0, rng.uniform(-0.6, 0.6)]))],
    )
    walls = [(angles[0], 0.0)] + ([(angles[0] - np.pi / 2, -3.0)] if rng.random() < 0.4 else [])
    q = ca.vertcat(*[body.q for body in made])
    v = ca.SX.sym("v", q.shape[0])
    contacts = _with_surfaces(rng, made, walls, length, q) + _with_each_other(rng, made, q)
    matrix = np.concatenate([[b.mass[0]] * 2 + [b.mass[1]] * (b.q.shape[0] - 2) for b in made])
    pull = ca.vertcat(*[ca.vertcat(0, -b.mass[0] * GRAVITY, *[0] * (b.q.shape[0] - 2)) for b in made])
    force = pull * float(rng.random() < 0.85) + _springs(rng, made, length, mass, q, v)
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM(np.diag(matrix)), force=force, contacts=contacts)
    gaps = ca.Function("gaps", [q], [ca.vertcat(*[c.gap for c in contacts])])
    size = np.concatenate([[length] * 2 + [1.0] * (b.q.shape[0] - 2) for b in made])
    q0, v0 = _start(rng, made, walls, length, gaps)
    v0 = v0 * size / time
    duration = float(rng.uniform(0.5, 3.0) * time)
    return Scene(
        system=system,
        x0=np.append(q0, v0),
        duration=duration,
        length=length,
        time=time,
        size=np.append(size, size / time),
    )


def coupled(rng: np.random.Generator) -> Scene:
    """Bodies of which some coordinates drive flywheels by gears: for the oracle they have more inertia."""
    scene = bodies(rng)
    free = scene.system
    n, wheels = free.n_q, int(rng.integers(1, 3))
    q, v = ca.SX.sym("wheel", wheels), ca.SX.sym("wheel_rate", wheels)
    driving = rng.permutation(n)[:wheels]
    wheels = driving.size
    ratios, heavy = 10.0 ** rng.uniform(-1.0, 1.0, wheels), np.array(ca.DM(free.mass_matrix))
    inertias = [heavy[k, k] * rng.uniform(0.1, 3.0) / r**2 for k, r in zip(driving, ratios, strict=True)]
    for k, r, inertia in zip(driving, ratios, inertias, strict=True):
        heavy[k, k] += r**2 * inertia
    together = ns.CLS(
        q=ca.vertcat(free.q, q[:wheels]),
        v=ca.vertcat(free.v, v[:wheels]),
        mass_matrix=ca.diagcat(free.mass_matrix, ca.DM(np.diag(inertias))),
        force=ca.vertcat(free.force, ca.SX(wheels, 1)),
        couplings={
            f"gear {i}": q[i] - r * free.q[int(k)] for i, (k, r) in enumerate(zip(driving, ratios, strict=True))
        },
        contacts=[_longer(c, wheels) for c in free.contacts],
    )
    q0, v0 = scene.x0[:n], scene.x0[n:]
    start = np.concatenate([q0, ratios * q0[driving], v0, ratios * v0[driving]])
    kept = np.concatenate([np.arange(n), n + wheels + np.arange(n)])
    return replace(
        scene, system=evolve(free, mass_matrix=ca.DM(heavy)), given=(together, start, lambda x: np.asarray(x)[kept])
    )


LAWS = ("place", "stribeck", "static")


def friction(rng: np.random.Generator) -> Scene:
    """Bodies whose friction depends on the place or the slip speed, or is larger where they stick."""
    scene = bodies(rng)
    free = scene.system
    given, known = [], []
    for contact in free.contacts:
        mu, law, share = contact.friction[0], LAWS[rng.integers(3)], float(rng.uniform(0.1, 0.9))
        where = int(rng.integers(free.n_q))
        if not contact.frictional:
            given.append(contact)
            known.append(contact)
        elif law == "static":
            given.append(evolve(contact, static_friction=mu * (1.0 + share)))
            known.append(given[-1])
        elif law == "place":
            given.append(evolve(contact, friction=mu * (1.0 + share * ca.sin(free.q[where] / scene.size[where]))))
            known.append(given[-1])
        else:
            slow = float(10.0 ** rng.uniform(-1.5, 0.5) * scene.length / scene.time)

            def stribeck(s: Any, mu: float = mu, share: float = share, slow: float = slow) -> Any:
                return mu * (1.0 - share + share * ca.exp(-s / slow))

            given.append(evolve(contact, friction=stribeck))
            known.append(evolve(contact, friction=stribeck(ca.fabs(ca.dot(contact.tangent, free.v)))))
    return replace(
        scene, system=evolve(free, contacts=known), given=(evolve(free, contacts=given), scene.x0, lambda x: x)
    )


def _longer(contact: ns.Contact, count: int) -> ns.Contact:
    tangent = None if contact.tangent is None else ca.vertcat(contact.tangent, ca.SX(count, 1))
    return evolve(contact, tangent=tangent)


def timed(rng: np.random.Generator) -> Scene:
    """Bodies that are pushed and hit by strokes in explicit time; for the oracle time is the place of a heavy body."""
    scene = bodies(rng)
    free, n = scene.system, scene.system.n_q
    t, place, speed = ca.SX.sym("t"), ca.SX.sym("place"), ca.SX.sym("speed")
    at, width = scene.duration * rng.uniform(0.2, 0.9), scene.duration * 10.0 ** rng.uniform(-1.3, -0.5)
    stroke = ca.exp(-(((t - at) / width) ** 2))
    push = ca.DM(rng.normal(size=n)) * ca.diag(ca.DM(free.mass_matrix)) * ca.DM(scene.size[:n]) / scene.time**2
    force = free.force + push * stroke * rng.uniform(0.0, 3.0)
    rises = rng.uniform(0.0, 0.3, len(free.contacts)) * scene.length * (rng.random() < 0.7)
    # A stroke is over before it begins: gaps at the start are those of the scene.
    contacts = [
        evolve(c, gap=c.gap - float(r) * (stroke - float(np.exp(-((at / width) ** 2)))))
        for c, r in zip(free.contacts, rises, strict=True)
    ]
    given = ns.CLS(q=free.q, v=free.v, t=t, mass_matrix=free.mass_matrix, force=force, contacts=contacts)

    def of_place(expression: Any) -> Any:
        return ca.substitute(expression, t, place * scene.time)

    heavy = 1e12 * float(np.array(ca.DM(free.mass_matrix)).max()) * max(scene.length, 1.0) ** 2
    system = ns.CLS(
        q=ca.vertcat(free.q, place),
        v=ca.vertcat(free.v, speed),
        mass_matrix=ca.diagcat(free.mass_matrix, heavy),
        force=ca.vertcat(of_place(force), 0),
        contacts=[evolve(_longer(c, 1), gap=of_place(c.gap)) for c in contacts],
    )
    size = scene.size[:n]
    return replace(
        scene,
        system=system,
        x0=np.concatenate([scene.x0[:n], [0.0], scene.x0[n:], [1.0 / scene.time]]),
        size=np.concatenate([size, [1.0], size / scene.time, [1.0 / scene.time]]),
        given=(
            given,
            np.append(scene.x0, 0.0),
            lambda x: np.concatenate([x[:n], [x[2 * n] / scene.time], x[n : 2 * n], [1.0 / scene.time]]),
        ),
    )


def _body(rng: np.random.Generator, index: int, length: float, mass: float) -> _Body:
    shape = SHAPES[rng.integers(3)]
    own = mass * 10.0 ** (rng.uniform(-1.0, 1.0) if rng.random() < 0.8 else rng.uniform(-4.0, 4.0))
    own = float(np.clip(own, 1e-4, 1e4))
    radius, height = length * rng.uniform(0.1, 0.5), length * rng.uniform(0.1, 0.5)
    inertia = own * (radius**2 / 2.0 if shape == "disc" else (radius**2 + height**2) / 3.0)
    q = ca.SX.sym(f"q{index}", 2 if shape == "point" else 3)
    return _Body(shape=shape, radius=radius, height=height, q=q, mass=(own, inertia))


def _law(rng: np.random.Generator) -> tuple[float, float]:
    """Friction and restitution."""
    friction = 0.0 if rng.random() < 0.35 else rng.uniform(0.0, 1.5)
    return float(friction), float(rng.choice([0.0, 0.0, 1.0, rng.uniform(), rng.uniform()]))


def _with_surfaces(
    rng: np.random.Generator, made: list[_Body], walls: list[tuple[float, float]], length: float, q: Any
) -> list[ns.Contact]:
    contacts = []
    for i, body in enumerate(made):
        for j, (angle, offset) in enumerate(walls):
            friction, restitution = _law(rng)
            normal, along = ca.DM([-np.sin(angle), np.cos(angle)]), ca.DM([np.cos(angle), np.sin(angle)])
            for k, (point, inside) in enumerate(body.points()):
                tangent = ca.gradient(ca.dot(along, point), q)
                if inside:
                    tangent = tangent + inside * ca.gradient(body.q[2], q)
                contacts.append(
                    ns.Contact(
                        f"b{i}w{j}p{k}",
                        gap=ca.dot(normal, point) - inside - offset * length,
                        tangent=tangent if friction else None,
                        friction=friction,
                        restitution=restitution,
                    )
                )
    return contacts


def _with_each_other(rng: np.random.Generator, made: list[_Body], q: Any) -> list[ns.Contact]:
    """Discs with discs and points."""
    contacts = []
    for i, one in enumerate(made):
        for j, other in enumerate(made[:i]):
            if "box" in (one.shape, other.shape) or "disc" not in (one.shape, other.shape):
                continue
            friction, restitution = _law(rng)
            radii = [b.radius if b.shape == "disc" else 0.0 for b in (one, other)]
            apart = one.q[:2] - other.q[:2]
            distance = ca.norm_2(apart)
            normal = apart / distance
            along = ca.vertcat(-normal[1], normal[0])
            tangent = ca.SX(q.shape[0], 1)
            for body, sign, radius in ((one, 1.0, radii[0]), (other, -1.0, radii[1])):
                tangent += sign * ca.mtimes(ca.jacobian(body.q[:2], q).T, along)
                if radius:
                    tangent -= radius * ca.gradient(body.q[2], q)
            contacts.append(
                ns.Contact(
                    f"b{i}b{j}",
                    gap=distance - sum(radii),
                    tangent=tangent if friction else None,
                    friction=friction,
                    restitution=restitution,
                )
            )
    return contacts


def _springs(rng: np.random.Generator, made: list[_Body], length: float, mass: float, q: Any, v: Any) -> Any:
    """Springs with dampers between bodies and to the world."""
    force = ca.SX(q.shape[0], 1)
    for i, body in enumerate(made):
        if rng.random() < 0.55:
            continue
        others = [b.q[:2] for b in made[:i]]
        end = others[rng.integers(len(others))] if others and rng.random() < 0.7 else length * ca.DM(rng.normal(size=2))
        stiffness = body.mass[0] * GRAVITY / length * 10.0 ** rng.uniform(-0.5, 2.0)
        apart = body.q[:2] - end
        energy = 0.5 * stiffness * ca.sumsqr(apart)
        if rng.random() < 0.4:
            energy = (
                0.5
                * stiffness
                * (ca.sqrt(ca.sumsqr(apart) + (0.05 * length) ** 2) - length * rng.uniform(0.3, 1.5)) ** 2
            )
        force -= ca.gradient(energy, q)
        if rng.random() < 0.3:
            jacobian = ca.jacobian(apart, q)
            force -= rng.uniform(0.05, 0.5) * np.sqrt(stiffness * body.mass[0]) * ca.mtimes([jacobian.T, jacobian, v])
    return force


def _start(
    rng: np.random.Generator, made: list[_Body], walls: list[tuple[float, float]], length: float, gaps: ca.Function
) -> tuple[np.ndarray, np.ndarray]:
    """Positions without penetration, some bodies lying on the floor, and velocities in lengths per unit of time."""
    angle = walls[0][0]
    along, normal = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
    for _ in range(TRIES):
        places, speeds = [], []
        for body in made:
            lies, slides = rng.random() < 0.35, rng.random() < 0.7
            half = {"point": 0.0, "disc": body.radius, "box": body.height}[body.shape]
            height = half if lies else half + length * rng.uniform(0.2, 1.5)
            turned = [] if body.shape == "point" else [angle if lies else rng.uniform(-3.0, 3.0)]
            speed = slides * rng.normal() * along if lies else rng.normal(size=2)
            spin = [0.0 if body.shape == "box" and lies else rng.normal() for _ in turned]
            places.append(np.concatenate([along * length * rng.uniform(-2.0, 2.0) + normal * height, turned]))
            speeds.append(np.concatenate([speed, spin]))
        q0 = np.concatenate(places)
        values = np.array(gaps(q0))[:, 0] / length
        touching = np.abs(values) <= 1e-12
        if (values[~touching] >= APART).all():
            return q0, np.concatenate(speeds)
    raise RuntimeError("no place for the bodies")


# ------------------------------------------------------------------------------------------------------ shapes in space

POINTS = 400  # of rims and axes
LIFTED = 1e-5  # of a radius: by so much a rim is lifted where it lies flat
SHAPES_IN_SPACE = ("sphere", "capsule", "disc", "cylinder", "box")
TOUCHED = {"plane": SHAPES_IN_SPACE, "box": ("sphere", "capsule"), "hills": ("sphere", "disc", "cylinder", "box")}


def shapes(rng: np.random.Generator) -> Scene:
    """A body in space that is thrown on a plane, a box or hills, of any length."""
    length = 10.0 ** rng.uniform(-3.0, 2.0) if rng.random() < 0.5 else 1.0
    time = float(np.sqrt(length / GRAVITY))
    below = str(rng.choice(list(TOUCHED), p=[0.5, 0.2, 0.3]))
    kind = str(rng.choice(TOUCHED[below]))
    r, h = length * rng.uniform(0.1, 0.5), length * rng.uniform(0.1, 0.5)
    sizes = length * rng.uniform(0.1, 0.5, 3)  # half of a box
    shape: Any = {
        "sphere": lambda: ns.Sphere(r),
        "capsule": lambda: ns.Capsule(radius=r, length=2 * h),
        "disc": lambda: ns.ThinDisc(r),
        "cylinder": lambda: ns.Cylinder(radius=r, length=2 * h),
        "box": lambda: ns.Box((2 * sizes).tolist()),
    }[kind]()
    inertia = {
        "sphere": np.full(3, 0.4 * r**2),
        "disc": np.array([0.25, 0.25, 0.5]) * r**2,
        "box": ((sizes**2).sum() - sizes**2) / 3.0,
    }.get(kind, np.array([0.25 * r**2 + h**2 / 3.0] * 2 + [0.5 * r**2]))
    ground, gap_of = _below(rng, below, length)
    points, inside = _points_of(kind, r, h, sizes)
    mass = float(10.0 ** rng.uniform(-2.0, 2.0))
    q, v = ca.SX.sym("q", 7), ca.SX.sym("v", 6)
    moves = ns.Coordinates(q, v, quaternions=[q[3:]])
    friction, restitution = _law(rng)
    spin, turning = v[3:], ca.DM(mass * inertia)
    system = ns.CLS(
        q=q,
        v=v,
        quaternions=[q[3:]],
        mass_matrix=ca.diag(ca.vertcat(mass, mass, mass, turning)),
        force=ca.vertcat(0, 0, -mass * GRAVITY, -ca.cross(spin, turning * spin)),
        contacts=ns.contacts(
            ns.Placed(shape, q[:3], q[3:], coordinates=moves),
            ground,
            name="b",
            friction=friction,
            restitution=restitution,
        ),
    )

    def gap(x: np.ndarray) -> float:
        return float(gap_of(x[:3] + points @ _turned(x[3:7]).T).min() - inside)

    at, speed = np.append(length * rng.normal(size=2) * 0.3, 0.0), length / time
    turn = rng.normal(size=4)
    x0 = np.concatenate([at, turn / np.linalg.norm(turn), speed * rng.normal(size=3), rng.normal(size=3) / time])
    for _ in range(TRIES):
        if gap(x0) > 0.1 * length:
            break
        x0[2] += 0.1 * length
    size = np.concatenate([np.full(3, length), np.ones(4), np.full(3, speed), np.full(3, 1.0 / time)])
    duration = float(rng.uniform(0.7, 3.0) * time)
    return Scene(system=system, x0=x0, duration=duration, length=length, time=time, size=size, gap=gap)


def _turned(unit: np.ndarray) -> np.ndarray:
    w, x, y, z = unit / np.linalg.norm(unit)
    return np.eye(3) + 2.0 * (w * _cross(x, y, z) + _cross(x, y, z) @ _cross(x, y, z))


def _cross(x: float, y: float, z: float) -> np.ndarray:
    return np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])


def _points_of(kind: str, r: float, h: float, sizes: np.ndarray) -> tuple[np.ndarray, float]:
    """Points of a body, and how far inside its surface they are."""
    turns = 2.0 * np.pi * np.arange(POINTS) / POINTS
    rim = r * np.column_stack([np.cos(turns), np.sin(turns), 0.0 * turns])
    up = np.array([0.0, 0.0, h])
    corners = np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, -1).T * sizes
    return {
        "sphere": (np.zeros((1, 3)), r),
        "capsule": (np.linspace(-1.0, 1.0, POINTS)[:, None] * up, r),
        "disc": (rim, -LIFTED * r),
        "cylinder": (np.concatenate([rim - up, rim + up]), -LIFTED * r),
        "box": (corners, 0.0),
    }[kind]


def _below(rng: np.random.Generator, kind: str, length: float) -> tuple[Any, Callable[[np.ndarray], np.ndarray]]:
    """What is touched, and the distance of points (n, 3) from it; to hills one that is as small as that, or larger."""
    if kind == "plane":
        tilt = rng.choice([0.0, 1.0]) * rng.uniform(-0.4, 0.4, 2)
        normal = np.append(np.sin(tilt), np.sqrt(1.0 - (np.sin(tilt) ** 2).sum()))
        return ns.HalfSpace(normal.tolist()), lambda points: points @ normal
    if kind == "box":
        half = length * rng.uniform(0.3, 1.5, 3)

        def from_box(points: np.ndarray) -> np.ndarray:
            apart = np.abs(points) - half
            return np.linalg.norm(np.maximum(apart, 0.0), axis=1) + np.minimum(apart.max(axis=1), 0.0)

        return ns.Box((2 * half).tolist()), from_box
    # Curvatures stay below those of the bodies.
    high, wave, phase = float(0.1 * length * rng.uniform()), float(length * rng.uniform(1.0, 2.0)), rng.uniform(0, 6, 2)

    def height(x: Any, y: Any) -> Any:
        return high * (ca.sin(x / wave + phase[0]) + ca.cos(y / wave + phase[1]))

    def above(points: np.ndarray) -> np.ndarray:
        x, y, z = points.T
        return np.asarray(z - high * (np.sin(x / wave + phase[0]) + np.cos(y / wave + phase[1])))

    return ns.HeightMap(height), above


# ----------------------------------------------------------------------------------------------------- Filippov systems


def filippov(rng: np.random.Generator) -> Scene:
    """1 to 3 switching functions of 1 to 3 states, mostly attractive, some curved, in any units."""
    n, count = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2, 2, 3]))
    length = 10.0 ** rng.uniform(-4.0, 3.0) if rng.random() < 0.3 else 1.0
    time = 10.0 ** rng.uniform(-3.0, 3.0) if rng.random() < 0.3 else 1.0
    x = ca.SX.sym("x", n)
    z, unit = x / length, length / time
    modes, pulls = [], rng.random() < 0.65
    for j in range(count):
        normal = rng.normal(size=n)
        normal /= np.linalg.norm(normal)
        bend = rng.normal(size=n) * (0.2 if rng.random() < 0.3 else 0.0)
        flows = []
        for side in (1.0, -1.0):
            constant = 1.2 * rng.normal(size=n) - side * normal * (rng.uniform(0.5, 3.0) if pulls else 0.0)
            flows.append(
                unit * (ca.DM(constant) + ca.mtimes(ca.DM(rng.normal(size=(n, n)) * rng.choice([0.0, 0.5])), z))
            )
        function = ca.dot(ca.DM(normal), z) + ca.dot(ca.DM(bend), z * z) - 0.5 * rng.normal()
        modes.append(ns.Modes(f"m{j}", flows=flows, functions=function, signs=[[1], [-1]]))
    drift = unit * (ca.DM(rng.normal(size=n)) + ca.mtimes(ca.DM(rng.normal(size=(n, n)) * rng.choice([0.0, 0.5])), z))
    return Scene(
        system=ns.PSS(x=x, flow=drift, modes=modes),
        x0=length * rng.normal(size=n),
        duration=float(time * rng.uniform(0.5, 2.5)),
        length=length,
        time=time,
        size=np.full(n, length),
    )


# --------------------------------------------------------------------------------------------------------- wrong inputs


def wrong_things() -> dict[str, Any]:
    """Things that hardly any argument takes."""
    return {
        "None": None,
        "text": "x",
        "empty text": "",
        "-1": -1,
        "nan": float("nan"),
        "inf": float("inf"),
        "1e308": 1e308,
        "10**400": 10**400,
        "True": True,
        "1j": 1j,
        "[]": [],
        "{}": {},
        "{1: 2}": {1: 2},
        "object": object(),
        "type": int,
        "function": lambda *_: None,
        "bytes": b"x",
        "empty array": np.zeros(0),
        "2x2 array": np.ones((2, 2)),
        "text array": np.array(["a"]),
        "long list": list(range(7)),
        "MX": ca.MX.sym("m"),
        "foreign SX": ca.SX.sym("foreign"),
        "DM": ca.DM.ones(3, 3),
        "system": _ball(),
    }


def _ball() -> ns.CLS:
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u", 1)
    contact = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=0.3)
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=ca.vertcat(u, -9.81), contacts=[contact])


def calls() -> dict[str, tuple[Callable[..., Any], Mapping[str, Any]]]:
    """Verbs and constructors with arguments that are right."""
    ball = _ball()
    x = ca.SX.sym("x", 2)
    partition = dict(name="m", flows=[x, -x], functions=x[0], signs=[[1], [-1]], function_names=["c"])
    relay = ns.PSS(x=x, modes=ns.Modes(**partition))
    flight = ns.simulate(ball, x0=[0, 1, 0, 0], duration=0.01)
    ocp = dict(system=ball, horizon=0.1, x0=[0, 1, 0, 0], stage_cost=ball.u**2, terminal_cost=ball.q[0])
    run = dict(duration=0.01, method=None, steps=None, times=None, u=0.0, p=None, solver=None, callback=None)
    run.update(time_limit=5.0, sensitivities=False)
    contact = dict(name="g", gap=ball.q[1], normal=None, tangent=ca.DM([1, 0]), friction=0.1, restitution=0.5)
    parts = dict(q=ball.q, v=ball.v, u=ball.u, mass_matrix=ca.DM.eye(2), force=ball.force, contacts=ball.contacts)
    parts.update(names=None, units=None, nominal=None, p_default=None, scene=None)
    return {
        "simulate(CLS)": (ns.simulate, dict(system=ball, x0=[0, 1, 0, 0], **run)),
        "simulate(PSS)": (ns.simulate, dict(system=relay, x0=[1.0, 0.5], **run)),
        "Contact": (ns.Contact, contact),
        "CLS": (ns.CLS, parts),
        "Modes": (ns.Modes, partition),
        "PSS": (ns.PSS, dict(x=x, flow=x, modes=ns.Modes(**partition), names=None, units=None, nominal=None)),
        "OCP": (ns.OCP, ocp),
        "Simulator": (ns.Simulator, dict(system=ball, method=None, step=0.01, solver=None)),
        "EventDriven": (ns.EventDriven, dict(rtol=1e-8, atol=1e-9, integrator="auto", max_step=0.1, rest_velocity=0.1)),
        "FESDJ": (ns.FESDJ, dict(control_stages=2, finite_elements=2, rk_stages=2)),
        "Homotopy": (ns.Homotopy, dict(sigma_min=1e-8, steering="direct")),
        "Trajectory()": (flight, dict(t=0.005)),
        "load": (ns.load, dict(path="nowhere.json")),
    }
