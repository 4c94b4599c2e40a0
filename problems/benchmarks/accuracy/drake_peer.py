"""Scenes in Drake, which is not an extra of this package: pip install drake (1.51 or later has CENIC).

Point contact, hydroelastic contact off. CENIC (Kurtz & Castro 2025) controls its error, and so do the continuous
integrators; of the discrete solvers SAP ("sap"), its lagged variant ("lagged") and TAMSI have fixed steps. All are
tried with several contact stiffnesses and, where they have one, tolerances of stiction. Dissipation: where nothing
rebounds it is high; otherwise it is fitted to the restitution at the speed of the first impact, as restitution by the
law of Hunt and Crossley depends on the speed.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.optimize import brentq

from problems.benchmarks.accuracy.mujoco_peer import damping_ratio
from problems.benchmarks.accuracy.scene import SAMPLES, Array, Candidate, Scene, Standing

PROGRAM, DISCRETE, CONTINUOUS = "Drake CENIC", "Drake discrete", "Drake continuous"
SPRINGS = (
    (1e5, 1e-3),
    (1e7, 1e-4),
    (1e9, 1e-6),
    (1e11, 1e-7),
    (1e13, 1e-8),
)  # stiffness [N/m], tolerance of stiction [m/s]
ACCURACIES = (1e-2, 1e-4, 1e-6, 1e-8)
SCHEMES = ("radau3", "bogacki_shampine3")
APPROXIMATIONS = ("sap", "lagged", "tamsi")
STEPS = (2e-3, 5e-4, 1e-4, 2e-5)  # largest steps [s]
LONG = 0.1  # longest step of integrators that control their error [s]
DISSIPATION = 200.0  # dissipation without restitution [s/m]
RELAXATION = 0.1  # relaxation time of SAP without restitution [s]


class TooLongError(RuntimeError):
    """Error: a simulation took longer than its limit."""


def available() -> str:
    """Return the version of Drake, or "" if it is not installed."""
    if importlib.util.find_spec("pydrake") is None:
        return ""
    from importlib.metadata import version

    import pydrake.multibody.plant
    import pydrake.systems.analysis  # noqa: F401 - loaded here, so that no measurement pays for it

    return version("drake")


def dissipation(restitution: float, speed: float) -> float:
    """Return Hunt and Crossley's coefficient d [s/m] with this restitution at an impact of this speed.

    The energies before and after give d (1 + e) v = log((1 + d v) / (1 - d e v)).
    """
    if restitution == 0.0:
        return DISSIPATION

    def excess(d: float) -> float:
        rise = np.log1p(d * speed) - np.log1p(-d * restitution * speed)
        return float(rise - d * (1.0 + restitution) * speed)

    highest = 1.0 / (restitution * speed)
    return 0.0 if restitution == 1.0 else float(brentq(excess, 1e-3 * highest, (1.0 - 1e-12) * highest))


def candidates(scene: Scene, quick: bool, limit: float) -> Iterator[Candidate]:
    """Return all integrators; those that take longer than the limit [s] are stopped."""
    springs, accuracies = (SPRINGS[1:2], ACCURACIES[1:2]) if quick else (SPRINGS, ACCURACIES)
    for scheme in ("cenic",) if quick else ("cenic", *SCHEMES):
        for spring in springs:
            for k, accuracy in enumerate(accuracies):
                yield Candidate(
                    program=PROGRAM if scheme == "cenic" else CONTINUOUS,
                    settings=f"{scheme}, accuracy {accuracy:g}, {spring[0]:g} N/m",
                    grain=10.0**k,
                    series=f"{scheme} {spring}",
                    prepare=_prepared(scene, scheme, 0.0, spring, accuracy, limit),
                )
    for scheme in APPROXIMATIONS[:1] if quick else APPROXIMATIONS:
        for spring in springs[:2]:  # stiffer ones change nothing at these steps
            for step in STEPS[:1] if quick else STEPS:
                count = int(np.ceil(scene.duration / SAMPLES / step))
                length = scene.duration / SAMPLES / count
                yield Candidate(
                    program=DISCRETE,
                    settings=f"{scheme}, step {length:.2g} s, {spring[0]:g} N/m",
                    grain=count,
                    series=f"{scheme} {spring}",
                    prepare=_prepared(scene, scheme, length, spring, 0.0, limit),
                )


def _prepared(
    scene: Scene, scheme: str, step: float, spring: tuple[float, float], accuracy: float, limit: float
) -> Callable[[], Callable[[], Array]]:
    def prepare() -> Callable[[], Array]:
        from pydrake.systems.analysis import ApplySimulatorConfig, Simulator, SimulatorConfig
        from pydrake.systems.framework import EventStatus

        diagram, plant = _diagram(scene, scheme, step, spring)
        order, q_0, v_0 = _coordinates(scene)
        simulator = Simulator(diagram)
        if not step:
            config = SimulatorConfig(
                integration_scheme=scheme, max_step_size=LONG, accuracy=accuracy, use_error_control=True
            )
            ApplySimulatorConfig(config, simulator)
        context = simulator.get_mutable_context()
        plant_context = plant.GetMyMutableContextFromRoot(context)
        started = time.process_time()

        def watch(_: Any) -> Any:
            if time.process_time() - started > limit:
                raise TooLongError(scheme)
            return EventStatus.DidNothing()

        simulator.set_monitor(watch)

        def run() -> Array:
            context.SetTime(0.0)
            plant.SetPositions(plant_context, q_0)
            plant.SetVelocities(plant_context, v_0)
            simulator.Initialize()
            rows = []
            for t in scene.times:
                simulator.AdvanceTo(float(t))
                rows.append(plant.GetPositions(plant_context)[order])
            simulator.clear_monitor()  # monitoring costs time, and a second run takes as long as the first one
            return np.array(rows)

        return run

    return prepare


def _diagram(scene: Scene, scheme: str, step: float, spring: tuple[float, float]) -> tuple[Any, Any]:
    from pydrake.geometry import HalfSpace, SceneGraphConfig
    from pydrake.math import RigidTransform
    from pydrake.multibody.plant import AddMultibodyPlant, CoulombFriction, MultibodyPlantConfig
    from pydrake.systems.framework import DiagramBuilder

    builder = DiagramBuilder()
    config = MultibodyPlantConfig(time_step=step, contact_model="point")
    if step:
        config.discrete_contact_approximation = scheme
    plant, scene_graph = AddMultibodyPlant(config, builder)
    stiffness, slip = spring
    defaults = SceneGraphConfig()
    proximity = defaults.default_proximity_properties
    proximity.compliance_type = "undefined"
    proximity.point_stiffness = 2.0 * stiffness  # two of them in series
    proximity.dynamic_friction = proximity.static_friction = scene.friction
    proximity.hunt_crossley_dissipation = dissipation(scene.restitution, scene.impact_speed)
    relaxation = RELAXATION
    if scene.restitution:
        relaxation = 2.0 * damping_ratio(scene.restitution) / np.sqrt(stiffness)  # of a mass of 1 kg
    proximity.relaxation_time = 0.5 * relaxation  # the dissipation of a contact is the sum
    scene_graph.set_config(defaults)
    plant.set_name("plant")  # CENIC finds the parameters by this name
    rubs = CoulombFriction(scene.friction, scene.friction)
    plant.RegisterCollisionGeometry(plant.world_body(), RigidTransform(), HalfSpace(), "ground", rubs)
    if scene.robot is None:
        _add_bodies(scene, plant, rubs)
    else:
        _add_robot(scene.robot, plant)
    plant.mutable_gravity_field().set_gravity_vector(np.array(scene.gravity))
    plant.Finalize()
    plant.set_stiction_tolerance(slip)
    return builder.Build(), plant


def _add_bodies(scene: Scene, plant: Any, rubs: Any) -> None:
    """Add planar bodies; their joints have no massless parts, which CENIC refuses."""
    from pydrake.geometry import Box, Sphere
    from pydrake.math import RigidTransform, RollPitchYaw
    from pydrake.multibody.tree import PlanarJoint, PrismaticJoint, SpatialInertia, UnitInertia

    upright = RigidTransform(RollPitchYaw(np.pi / 2.0, 0.0, 0.0), [0.0, 0.0, 0.0])  # its y is up, its z is -y
    for k, body in enumerate(scene.bodies):
        unit = body.inertia / body.mass
        added = plant.AddRigidBody(f"b{k}", SpatialInertia(body.mass, np.zeros(3), UnitInertia(unit, unit, unit)))
        for j, (x, z) in enumerate(body.feet):
            place = RigidTransform([x, 0.0, z])
            plant.RegisterCollisionGeometry(added, place, Sphere(body.radius), f"foot{j}", rubs)
        if k < len(scene.bodies) - 1:  # something stands on it
            box = Box(2.0 * body.half[0], 2.0 * body.half[0], 2.0 * body.half[1])
            plant.RegisterCollisionGeometry(added, RigidTransform(), box, "box", rubs)
        if body.turns:
            joint = PlanarJoint(
                f"j{k}",
                plant.AddFrame(_frame(f"world{k}", plant.world_frame(), upright)),
                plant.AddFrame(_frame(f"body{k}", added.body_frame(), upright)),
            )
        else:
            joint = PrismaticJoint(f"j{k}", plant.world_frame(), added.body_frame(), [0.0, 0.0, 1.0])
        plant.AddJoint(joint)


def _frame(name: str, parent: Any, pose: Any) -> Any:
    from pydrake.multibody.tree import FixedOffsetFrame

    return FixedOffsetFrame(name, parent, pose)


def _add_robot(robot: Standing, plant: Any) -> None:
    """Add the robot, with springs and dampers at its joints."""
    from pydrake.multibody.parsing import Parser
    from pydrake.multibody.tree import RevoluteJoint, RevoluteSpring

    Parser(plant).AddModelsFromString(robot.urdf, ".urdf")
    joints = [plant.get_joint(i) for i in plant.GetJointIndices()]
    joints = [joint for joint in joints if isinstance(joint, RevoluteJoint)]
    for joint, target in zip(joints, robot.targets, strict=True):
        joint.set_default_damping(robot.damping)
        plant.AddForceElement(RevoluteSpring(joint, float(target), robot.stiffness))


def _coordinates(scene: Scene) -> tuple[Any, Array, Array]:
    """Return the order in which the scene has the positions of the plant, and the initial positions and velocities."""
    if scene.robot is None:
        return np.arange(scene.n_q), scene.x0[: scene.n_q], scene.x0[scene.n_q :]
    order = np.array([4, 5, 6, 0, 1, 2, 3, *range(7, scene.n_q)])  # a quaternion comes first
    q_0 = np.empty(scene.n_q)
    q_0[order] = scene.x0[: scene.n_q]
    return order, q_0, scene.x0[scene.n_q :]  # at rest
