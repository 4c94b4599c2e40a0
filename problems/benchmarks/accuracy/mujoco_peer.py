"""Scenes in MuJoCo: pip install "nosnoc_py[bench]".

Contacts are soft. Without restitution their reference has the time constant of two steps, the stiffest one that MuJoCo
takes, or ten times that. They are tried with the default impedance and with one near 1, with a critical and with more
damping (critical damping rebounds with e = 0.135), with pyramids and with elliptic cones, with more weight on friction
(`impratio`) and with the passes that remove slip (`noslip_iterations`). With restitution they
are springs with dampers (negative `solref`) that last a given number of steps; the damping ratio follows from e.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.optimize import brentq

from problems.benchmarks.accuracy.scene import SAMPLES, Array, Candidate, Scene

PROGRAM = "MuJoCo"
STEPS = (2e-3, 5e-4, 1e-4, 2e-5, 4e-6, 1e-6)  # largest steps [s]
HARD = 0.9999  # the highest impedance that MuJoCo accepts
CONTACT_STEPS = (10, 40, 160, 640)  # during a contact with restitution
DAMPED: dict[str, Any] = {"constant": 2.0, "impedance": HARD, "damping": 3.0, "elliptic": True}
SETTINGS: dict[str, dict[str, Any]] = {
    "default contact": {},
    "stiff": {"constant": 2.0},
    "hard": {"constant": 2.0, "impedance": HARD},
    "hard, damped, elliptic": DAMPED,
    "hard, damped, impratio 100": {**DAMPED, "impratio": 100.0},
    "hard, damped, noslip": {**DAMPED, "noslip": 50},
    "softer, damped, elliptic": {**DAMPED, "constant": 20.0},
    "hard, damped, implicitfast": {**DAMPED, "integrator": "IMPLICITFAST"},
}


def available() -> str:
    """Return the version of MuJoCo, or "" if it is not installed."""
    if importlib.util.find_spec("mujoco") is None:
        return ""
    import mujoco

    return str(mujoco.__version__)


def damping_ratio(restitution: float) -> float:
    """Return the damping ratio of a pushing spring and damper with this restitution (Schwager & Poeschel 2007)."""

    def excess(zeta: float) -> float:
        root = np.sqrt(1.0 - zeta**2)
        phase = np.arctan2(2.0 * zeta * root, 2.0 * zeta**2 - 1.0)  # time at which the force is zero again
        return float(np.exp(-zeta / root * phase) - restitution)

    return 0.0 if restitution == 1.0 else float(brentq(excess, 1e-9, 1.0 - 1e-9))


def candidates(scene: Scene, quick: bool) -> Iterator[Candidate]:
    """Return all settings, each from coarse to fine."""
    settings = SETTINGS
    if scene.restitution:
        settings = {
            f"spring over {n} steps, {scheme}": {"contact_steps": n, "integrator": scheme}
            for scheme in ("EULER", "RK4")
            for n in CONTACT_STEPS
        }
    for name, options in list(settings.items())[-2:] if quick else settings.items():
        for step in STEPS[:2] if quick else STEPS:
            count = int(np.ceil(scene.duration / SAMPLES / step))
            yield Candidate(
                program=PROGRAM,
                settings=f"step {scene.duration / SAMPLES / count:.2g} s, {name}",
                grain=count,
                series=name,
                prepare=_prepared(scene, count, options),
            )


def _prepared(scene: Scene, count: int, options: dict[str, Any]) -> Callable[[], Callable[[], Array]]:
    def prepare() -> Callable[[], Array]:
        import mujoco

        model = _model(scene)
        _set(scene, model, scene.duration / SAMPLES / count, **options)

        def run() -> Array:
            data = mujoco.MjData(model)
            data.qpos[:], data.qvel[:] = scene.x0[: scene.n_q], scene.x0[scene.n_q :]
            rows = []
            for _ in range(SAMPLES):
                mujoco.mj_step(model, data, nstep=count)
                rows.append(data.qpos.copy())
            return np.array(rows)

        return run

    return prepare


def _model(scene: Scene) -> Any:
    """Return the compiled model; a URDF gets a floating base, the ground, and springs and dampers at its joints."""
    import mujoco

    if scene.robot is None:
        return mujoco.MjModel.from_xml_string(planar_mjcf(scene))
    spec = mujoco.MjSpec.from_string(scene.robot.urdf)
    spec.compiler.fusestatic = False  # otherwise the trunk becomes a part of the world
    spec.worldbody.first_body().add_freejoint()
    spec.worldbody.add_geom(name="ground", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[50, 50, 1])
    for geom in spec.geoms:
        geom.friction[0] = scene.friction
    model = spec.compile()
    hinges = model.jnt_type == mujoco.mjtJoint.mjJNT_HINGE
    model.jnt_stiffness[hinges] = scene.robot.stiffness
    model.dof_damping[model.jnt_dofadr[hinges]] = scene.robot.damping
    model.qpos_spring[model.jnt_qposadr[hinges]] = scene.robot.targets
    return model


def planar_mjcf(scene: Scene) -> str:
    """Return the bodies as MJCF, with the origin of every joint at zero, so that coordinates are those of the scene."""
    rubs, parts = f'friction="{scene.friction!r} 0 0"', []
    for k, body in enumerate(scene.bodies):
        joints = f'<joint name="z{k}" type="slide" axis="0 0 1"/>'
        if body.turns:
            joints = f'<joint name="x{k}" type="slide" axis="1 0 0"/>{joints}'
            joints += f'<joint name="t{k}" type="hinge" axis="0 -1 0"/>'
        inertial = f'<inertial pos="0 0 0" mass="{body.mass!r}" diaginertia="{" ".join([repr(body.inertia)] * 3)}"/>'
        spheres = "".join(
            f'<geom type="sphere" size="{body.radius!r}" pos="{x!r} 0 {z!r}" {rubs} contype="1" conaffinity="0"/>'
            for x, z in body.feet
        )
        box = ""
        if k < len(scene.bodies) - 1:  # something stands on it
            size = f"{body.half[0]!r} {body.half[0]!r} {body.half[1]!r}"
            box = f'<geom type="box" size="{size}" {rubs} contype="0" conaffinity="1"/>'
        parts.append(f'<body name="b{k}">{joints}{inertial}{box}{spheres}</body>')
    ground = f'<geom name="ground" type="plane" size="50 50 1" {rubs} contype="0" conaffinity="1"/>'
    return f"<mujoco><worldbody>{ground}{''.join(parts)}</worldbody></mujoco>"


def _set(
    scene: Scene,
    model: Any,
    step: float,
    *,
    constant: float = 0.0,
    impedance: float = 0.0,
    elliptic: bool = False,
    impratio: float = 1.0,
    noslip: int = 0,
    damping: float = 1.0,
    integrator: str = "EULER",
    contact_steps: int = 0,
) -> None:
    """Set options of the solver and of all contacts."""
    import mujoco

    model.opt.timestep, model.opt.gravity[:] = step, scene.gravity
    model.opt.cone = mujoco.mjtCone.mjCONE_ELLIPTIC if elliptic else mujoco.mjtCone.mjCONE_PYRAMIDAL
    model.opt.impratio, model.opt.noslip_iterations = impratio, noslip
    model.opt.integrator = getattr(mujoco.mjtIntegrator, f"mjINT_{integrator}")
    model.opt.tolerance, model.opt.iterations, model.opt.noslip_tolerance = 1e-12, 200, 1e-12
    if contact_steps:
        rate = np.pi / (contact_steps * step)
        model.geom_solref[:] = [-HARD * rate**2, -2.0 * damping_ratio(scene.restitution) * rate]
        impedance = HARD
    elif constant:
        model.geom_solref[:] = [constant * step, damping]
    if impedance:
        model.geom_solimp[:, :2] = impedance
