"""The hopper and the plate on springs in MuJoCo, for comparison only: pip install "nosnoc_py[bench]".

Springs are soft contacts, or tendons with a one-sided spring:

- contacts: points fixed at the heights of the springs, under the plate, without friction. A contact of MuJoCo is a
  constraint with the reference acceleration -b r' - d k r, which is met in part only: with the impedance d and its
  estimate w of the inverse mass, the force is f = (-b r' - d k r - a) d / ((1 - d) w). The impedance is the lowest that
  is allowed, 1e-4, and w is set so high that the share of the acceleration a in f is 1e-8 of the mass: what remains is
  a spring and a damper. It pushes along the normal of the plate and never pulls.
- tendons: their length is the linear combination z + theta x_i of joint coordinates. A damper of a tendon has two
  sides, so it has none.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from models import plate_on_springs, spring_hopper
from nosnoc_py.errors import OptionError

Array = NDArray[np.float64]
Kind = Literal["contacts", "tendons"]

IMPEDANCE = 1e-4  # the lowest allowed impedance
SOFTNESS = 1e4  # factor of the estimated inverse mass, with which contacts become plain springs
POINT = 1e-6  # radius of a point [m]
DEPTH = 5.0  # half of the thickness of the plate [m]: more than its largest descent


def engine() -> Any:
    """Return the module mujoco.

    Raises
    ------
    OptionError
        If it is not installed.
    """
    try:
        import mujoco
    except ImportError:
        raise OptionError('mujoco is not installed; pip install "nosnoc_py[bench]".') from None
    return mujoco


def hopper(constants: spring_hopper.Constants, step: float, kind: Kind = "contacts", integrator: str = "Euler") -> Any:
    """Return the model of the hopper: one joint, one spring."""
    c = constants
    joints = '<joint name="z" type="slide" axis="0 0 1"/>'
    plate = plate_on_springs.Constants(
        contacts=2, mass=c.mass, stiffness=2.0 * c.stiffness, damping=0.0, length=c.length, gravity=c.gravity
    )
    return _model(plate, np.zeros(1), joints, kind, step, integrator)


def plate(
    constants: plate_on_springs.Constants, step: float, kind: Kind = "contacts", integrator: str = "Euler"
) -> Any:
    """Return the model of the plate, with the joints x, z, theta; with tendons there is no damper."""
    joints = (
        '<joint name="x" type="slide" axis="1 0 0"/><joint name="z" type="slide" axis="0 0 1"/>'
        '<joint name="theta" type="hinge" axis="0 -1 0"/>'
    )
    return _model(constants, constants.positions, joints, kind, step, integrator)


def without_dampers(constants: plate_on_springs.Constants) -> plate_on_springs.Constants:
    """Return the constants that the model with tendons has."""
    return replace(constants, damping=0.0)


def trajectory(model: Any, x0: Array, steps: int) -> Array:
    """Return the states (steps + 1, n_x), configuration and velocity, from x0."""
    mujoco = engine()
    data, n = _started(model, x0), model.nq
    states = np.empty((steps + 1, 2 * n))
    states[0] = x0
    for k in range(steps):
        mujoco.mj_step(model, data)
        states[k + 1, :n], states[k + 1, n:] = data.qpos, data.qvel
    return states


def final_state(model: Any, x0: Array, steps: int) -> Array:
    """Return the state (n_x,) after so many steps, all in one call."""
    data = _started(model, x0)
    engine().mj_step(model, data, nstep=steps)
    return np.concatenate([data.qpos, data.qvel])


def _started(model: Any, x0: Array) -> Any:
    data = engine().MjData(model)
    data.qpos[:], data.qvel[:] = x0[: model.nq], x0[model.nq :]
    return data


def _model(
    c: plate_on_springs.Constants, positions: Array, joints: str, kind: Kind, step: float, integrator: str
) -> Any:
    model = engine().MjModel.from_xml_string(xml(c, positions, joints, kind, step, integrator))
    if kind == "contacts":
        model.body_invweight0[1, :] *= SOFTNESS
        scale = model.body_invweight0[1, 0] * (1.0 - IMPEDANCE) / c.contacts
        model.geom_solref[:] = [-c.stiffness * scale, -c.damping * scale]
    return model


def xml(c: plate_on_springs.Constants, positions: Array, joints: str, kind: Kind, step: float, integrator: str) -> str:
    """Return the model as MJCF; the stiffness of contacts is set afterwards."""
    solimp = f'solimp="{IMPEDANCE} {IMPEDANCE} 1 0.5 1"'
    points, tendons, box = "", "", ""
    if kind == "contacts":
        geometry = f'type="sphere" size="{POINT}" condim="1" {solimp}'
        height = c.length - POINT
        points = "".join(f'<geom {geometry} pos="{x!r} 0 {height!r}"/>' for x in positions.tolist())
        size = f"{0.5 * c.width!r} 1 {DEPTH!r}"
        box = f'<geom type="box" size="{size}" pos="0 0 {DEPTH!r}" condim="1" {solimp}/>'
    else:
        spring = f'springlength="{c.length!r} 1e6" stiffness="{c.stiffness / c.contacts!r}"'
        turns = 'joint="theta" coef=' if "theta" in joints else ""
        for x in positions.tolist():
            lever = f'<joint {turns}"{x!r}"/>' if turns else ""
            tendons += f'<fixed {spring}><joint joint="z" coef="1"/>{lever}</fixed>'
        tendons = f"<tendon>{tendons}</tendon>"
    inertial = f'<inertial pos="0 0 0" mass="{c.mass!r}" diaginertia="{c.inertia!r} {c.inertia!r} {c.inertia!r}"/>'
    return (
        f'<mujoco><option timestep="{step!r}" gravity="0 0 {-c.gravity!r}" integrator="{integrator}"/>'
        f"<worldbody>{points}<body>{joints}{inertial}{box}</body></worldbody>{tendons}</mujoco>"
    )
