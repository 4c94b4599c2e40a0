"""What every robot from a file satisfies: a mass matrix and a bias that fit its energy, kinematics, finite gaps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.geometry import HalfSpace
from nosnoc_py.robots.robot import Robot
from nosnoc_py.testing.checks import expect, run_checks

Array = np.ndarray
# Number of random states, and the largest relative error of differences.
STATES, DIFFERENCE = 5, 1e-6


@dataclass(frozen=True, eq=False)
class RobotCase:
    """A robot with random states (n_q,), (n_v,), the same for the same robot."""

    robot: Robot
    states: tuple[tuple[Array, Array], ...]

    @classmethod
    def of(cls, robot: Robot) -> RobotCase:
        """Draw states; quaternions have length one."""
        rng, states = np.random.default_rng(0), []
        for _ in range(STATES):
            q, v = rng.normal(size=robot.q.numel()), rng.normal(size=robot.v.numel())
            for part in robot._quaternions():
                q[part] /= np.linalg.norm(q[part])
            states.append((q, v))
        return cls(robot, tuple(states))


def check_robot(file: str | Path | Robot, **options: Any) -> None:
    """Test a robot file: what was read of it is mechanics.

    The mass matrix is symmetric and positive definite; without gravity the kinetic energy is constant; links move as
    their Jacobians say; and gaps over the ground, if there are collision shapes, are finite.

    Parameters
    ----------
    file : path or Robot
        A URDF file, or an MJCF file by its suffix .xml.
    **options
        Of `ns.Robot.from_urdf`.

    Raises
    ------
    AssertionError
        With everything that does not hold.
    ModelError
        If the file cannot be read.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> from nosnoc_py.testing import check_robot
    >>> pendulum = '''<robot name="pendulum"><link name="world"/><link name="bar"><inertial><origin xyz="0 0 -0.5"/>
    ... <mass value="2"/><inertia ixx="1" iyy="1" izz="0.1" ixy="0" ixz="0" iyz="0"/></inertial></link>
    ... <joint name="hinge" type="continuous"><parent link="world"/><child link="bar"/><axis xyz="0 1 0"/></joint>
    ... </robot>'''
    >>> check_robot(ns.Robot.from_urdf(pendulum))
    """
    if isinstance(file, Robot):
        robot = file
    else:
        robot = Robot.from_mjcf(file) if Path(file).suffix == ".xml" else Robot.from_urdf(file, **options)
    run_checks("robot", CHECKS, RobotCase.of(robot))


def mass_matrix_is_positive_definite(case: RobotCase) -> None:
    """At random positions, and symmetric to rounding."""
    robot = case.robot
    mass = ca.Function("mass", [robot.q], [robot.mass_matrix])
    for q, _ in case.states:
        m = np.array(mass(q))
        np.testing.assert_allclose(m, m.T, atol=1e-12 * np.abs(m).max(), err_msg="M and its transpose")
        least = np.linalg.eigvalsh(m).min()
        expect(least > 0.0, f"the least eigenvalue of M is {least:.3g}")


def energy_is_conserved(case: RobotCase) -> None:
    """Without gravity and torques the kinetic energy v'M v / 2 is constant."""
    robot = case.robot
    free = replace(robot, gravity=(0.0, 0.0, 0.0))
    acceleration = -ca.solve(free.mass_matrix, free.bias)
    kinetic = 0.5 * ca.bilin(free.mass_matrix, free.v, free.v)
    rate = ca.jtimes(kinetic, free.q, free.N @ free.v) + ca.jtimes(kinetic, free.v, acceleration)
    power = ca.Function("power", [free.q, free.v], [kinetic, rate])
    for q, v in case.states:
        energy, change = (float(part) for part in power(q, v))
        expect(abs(change) <= 1e-9 * energy, f"the kinetic energy {energy:.3g} J changes by {change:.3g} W by itself")


def links_move_as_their_jacobians_say(case: RobotCase) -> None:
    """Differences of the position of every link along q' = N v."""
    robot = case.robot
    place = ca.vertcat(*[robot.position(body.link) for body in robot.tree.bodies])
    values = ca.Function("values", [robot.q, robot.v], [place, robot.jacobian(place) @ robot.v, robot.N @ robot.v])
    for q, v in case.states:
        rate, turn = (np.array(part).ravel() for part in values(q, v)[1:])
        step = 1e-6 / max(1.0, float(np.abs(turn).max()))
        ends = [np.array(values(q + sign * step * turn, v)[0]).ravel() for sign in (1, -1)]
        size = max(1.0, float(np.abs(rate).max()))
        np.testing.assert_allclose((ends[0] - ends[1]) / (2 * step), rate, atol=DIFFERENCE * size, err_msg="velocity")


def gaps_are_finite(case: RobotCase) -> None:
    """Over the ground, of all collision shapes that can touch it."""
    robot = case.robot
    if not robot.collisions:
        return
    gaps = ca.vertcat(*[contact.gap for contact in robot.contacts(HalfSpace())])
    values = ca.Function("gaps", [robot.q], [gaps])
    for q, _ in case.states:
        expect(np.isfinite(np.array(values(q))).all(), "a gap over the ground is not finite")


CHECKS = (
    mass_matrix_is_positive_definite,
    energy_is_conserved,
    links_move_as_their_jacobians_say,
    gaps_are_finite,
)
