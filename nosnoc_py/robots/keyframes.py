"""Keyframes of robot files: named states, with the controls that the file gives beside them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nosnoc_py.arguments import named_arguments

Array = np.ndarray


@named_arguments
@dataclass(frozen=True, eq=False, kw_only=True)
class Keyframe:
    """State of a robot that its file names, with controls: one of `Robot.keyframes`.

    Attributes
    ----------
    x0 : (n_x,)
        Coordinates and velocities in the order of `Robot.q` and `Robot.v`, then activations of drives with a lag: the
        state of `Robot.system` if no joint has dry friction, whose clamps are states, too.
    u : (n_u,)
        Controls in the order of `Robot.u` and in its units, clamped as MuJoCo does; zero without actuators in the file.
    time : float
        [s].
    states, controls : dict of name -> float
        The same numbers by the names of `Robot.system`, for `ns.OCP(x0=...)` or as a keyframe of `guess=`. What is not
        named, such as a clamp, is zero.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> text = '''<mujoco><worldbody><body><joint name="slide" type="slide" axis="1 0 0"/>
    ...   <geom type="sphere" size="0.1" mass="2"/></body></worldbody>
    ...   <actuator><motor joint="slide" gear="3"/></actuator>
    ...   <keyframe><key name="thrown" qpos="0.2" qvel="1" ctrl="0.5"/></keyframe></mujoco>'''
    >>> robot = ns.Robot.from_mjcf(text)
    >>> thrown = robot.keyframes["thrown"]
    >>> thrown.x0.tolist(), thrown.u.tolist(), thrown.states
    ([0.2, 1.0], [1.5], {'slide': 0.2, 'slide_rate': 1.0})
    >>> round(float(ns.simulate(robot.system(), x0=thrown.states, duration=0.5)["slide"][-1]), 6)
    0.7
    """

    x0: Array
    u: Array
    time: float
    states: dict[str, float]
    controls: dict[str, float]
