"""Forces inside a tree of bodies as expressions: springs and dampers, compensated weights, drives; and its constraints.

Joints with one coordinate and tendons have a length; its gradient by the velocities is the moment arm, by which a force
along the length acts on all of them. Laws are those of MuJoCo, so that its numbers can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.robots.recursion import Recursion
from nosnoc_py.robots.tree import FLOATING, FREE, Drive, Frame, Interval, JointedBody, Resistance, Tendon
from nosnoc_py.rotations import attitude_error, quaternion_of


class Forces:
    """Expressions of the forces and constraints of a tree.

    Parameters
    ----------
    recursion : Recursion
        Poses in the coordinates.
    gravity : (3,)
        [m/s^2]
    """

    def __init__(self, recursion: Recursion, gravity: Sequence[float]) -> None:
        self.recursion, self.tree, self.gravity = recursion, recursion.tree, gravity
        self.q, self.v = recursion.q, recursion.v
        sizes = [(0, 0), *((body.n_q, body.n_v) for body in self.tree.bodies)]
        starts = np.cumsum(sizes, axis=0).tolist()
        # Of every joint: its body, and its parts of q and v.
        self.joints = {
            body.joint: (body, slice(i, i + body.n_q), slice(j, j + body.n_v))
            for body, (i, j) in zip(self.tree.bodies, starts, strict=False)
        }

    @cached_property
    def lengths(self) -> dict[str, ca.SX]:
        """Coordinates of joints that have one, and lengths of tendons."""
        result = {name: self.q[at] for name, (body, at, _) in self.joints.items() if body.n_q == 1}
        return result | {tendon.name: self._length(tendon, result) for tendon in self.tree.tendons}

    def _length(self, tendon: Tendon, joints: dict[str, ca.SX]) -> ca.SX:
        spans = [
            factor * ca.norm_2(self.place(first)[1] - self.place(second)[1]) for first, second, factor in tendon.spans
        ]
        return ca.SX(sum([*(factor * joints[name] for name, factor in tendon.joints.items()), *spans], ca.SX(0)))

    def place(self, frame: Frame) -> tuple[ca.SX, ca.SX]:
        """Return the rotation and position of a frame in the world."""
        rotation, position = self.recursion.pose(frame.link, frame.position)
        return rotation @ ca.DM(frame.rotation), position

    def jacobian(self, expression: ca.SX) -> ca.SX:
        """Return J(q) with the rate J v of an expression."""
        # Chain rule with q' = N(q) v: a quaternion has one component more than velocities.
        return ca.jacobian(expression, self.q) @ self.recursion.kinematics

    def arm(self, name: str) -> ca.SX:
        """Return the gradient (n_v,) of a length by the velocities."""
        return self.jacobian(self.lengths[name]).T

    # --- inertia of tendons ---

    @cached_property
    def tendon_inertia(self) -> tuple[ca.SX, ca.SX]:
        """Return what the inertia of tendons adds to the mass matrix and the bias: a J J', a J (J' v)' with v' = 0."""
        size = self.v.numel()
        matrix, bias = ca.SX(size, size), ca.SX(size, 1)
        for tendon in self.tree.tendons:
            if tendon.armature:
                arm = self.arm(tendon.name)
                drift = ca.jtimes(ca.dot(arm, self.v), self.q, self.recursion.kinematics @ self.v)
                matrix, bias = matrix + tendon.armature * arm @ arm.T, bias + tendon.armature * arm * drift
        return matrix, bias

    # --- springs, dampers, weights ---

    @cached_property
    def passive(self) -> ca.SX:
        """Generalised forces (n_v,) of springs, dampers, and weights that no drive compensates."""
        result = ca.SX(self.v.numel(), 1)
        for body, q, v in self.joints.values():
            result[v] += _resisting(body.resistance, _excess(body, self.q[q]), self.v[v])
        for tendon in self.tree.tendons:
            arm, (low, high) = self.arm(tendon.name), tendon.resistance.rest
            length, rate = self.lengths[tendon.name], ca.dot(arm, self.v)
            # One of the two is zero: inside the interval both are.
            excess = ca.fmax(length - high, 0) + ca.fmin(length - low, 0) if low < high else length - low
            result += arm * _resisting(tendon.resistance, excess, rate)
        lifting = self._lifting()
        return result + (1 - lifting) * self._lift if self.tree.lifted else result

    @cached_property
    def _lift(self) -> ca.SX:
        """Generalised forces (n_v,) that balance weights, those of drives included."""
        up, energy = -ca.DM(list(self.gravity)), ca.SX(0)
        for lifted in self.tree.lifted:
            energy += lifted.share * ca.dot(up, self.place(lifted.frame)[1])
        return self.jacobian(energy).T

    def _lifting(self) -> ca.DM:
        """Return ones (n_v,) for the velocities of joints whose drives balance weights."""
        result = ca.DM.zeros(self.v.numel())
        for name in self.tree.lifting:
            result[self.joints[name][2]] = 1
        return result

    # --- drives ---

    def actuation(self, drives: Sequence[Drive], u: ca.SX, activation: ca.SX) -> ca.SX:
        """Return the generalised forces (n_v,) of drives, in controls and in activations of those with a lag."""
        result, lags = ca.SX(self.v.numel(), 1), iter(ca.vertsplit(activation))
        for k, drive in enumerate(drives):
            given = u[k] if drive.lag is None else next(lags)
            arm, length = self._drive_arm(drive)
            state = [1.0, length, ca.dot(arm, self.v)]
            gain, bias = (sum((c * x for c, x in zip(cs, state, strict=True) if c), 0.0) for cs in _laws(drive))
            result += arm * _saturated(gain * given + bias, drive.force)
        if self.tree.lifting:
            result += self._lifting() * self._lift
        for body, _, v in self.joints.values():
            if body.driven != FREE:
                result[v] = _saturated(result[v], body.driven)
        return result

    def _drive_arm(self, drive: Drive) -> tuple[ca.SX, ca.SX]:
        """Return the gradient (n_v,) of what a drive moves, and its length."""
        if isinstance(drive.target, Frame):
            rotation, position = self.place(drive.target)
            push, turn = rotation @ ca.DM(drive.gear[:3]), rotation @ ca.DM(drive.gear[3:])
            return self.jacobian(position).T @ push + self.recursion.turning(drive.target.link).T @ turn, ca.SX(0)
        if drive.target in self.lengths:
            return drive.gear[0] * self.arm(drive.target), drive.gear[0] * self.lengths[drive.target]
        body, _, v = self.joints[drive.target]
        gear = ca.SX(ca.DM(drive.gear[: body.n_v]))
        if drive.in_parent:
            turn = self.recursion.moved[self.tree.bodies.index(body)].rotation
            gear[-3:] = (ca.DM(body.rotation).T @ turn).T @ gear[-3:]
        arm = ca.SX(self.v.numel(), 1)
        arm[v] = gear
        return arm, ca.SX(0)

    # --- constraints ---

    @cached_property
    def couplings(self) -> dict[str, ca.SX]:
        """Expressions of coupled coordinates and lengths, which vanish."""
        result = dict[str, ca.SX]()
        for each in self.tree.couplings:
            ahead = self.lengths[each.leader] - each.offsets[1] if each.leader else ca.SX(0)
            follows, power = ca.SX(0), ca.SX(1)
            for coefficient in each.coefficients if each.leader else each.coefficients[:1]:
                follows, power = follows + coefficient * power, power * ahead
            result[each.name] = self.lengths[each.follower] - each.offsets[0] - follows
        return result

    @cached_property
    def loops(self) -> dict[str, ca.SX]:
        """Expressions (3,) or (6,) of closed loops, which vanish: differences of origins, then of attitudes.

        An attitude has the imaginary part of the quaternion from the second frame to the first.
        """
        result = dict[str, ca.SX]()
        for each in self.tree.closures:
            (turned, first), (other, second) = self.place(each.first), self.place(each.second)
            between = each.turning * quaternion_of(other.T @ turned)[1:] if each.turning else ca.SX(0, 1)
            result[each.name] = ca.vertcat(first - second, between)
        return result


def _resisting(resistance: Resistance, excess: ca.SX, rate: ca.SX) -> ca.SX:
    """Return the force against an excess and a rate, both scalars or vectors."""
    (k, *more), (d, *others) = resistance.stiffness, resistance.damping
    speed = ca.fabs(rate) if any(others) else ca.SX(0)
    spring = k + sum(c * excess**power for power, c in enumerate(more, 1) if c) if any(resistance.stiffness) else 0
    damper = d + sum(c * speed**power for power, c in enumerate(others, 1) if c)
    return -excess * spring - rate * damper


def _excess(body: JointedBody, q: ca.SX) -> ca.SX:
    """Return the deflection (n_v,) of the spring of a joint."""
    rest = ca.DM(body.resistance.rest)
    if body.n_q == 1:
        return q - rest[0]
    if not any(body.resistance.stiffness):
        return ca.SX(body.n_v, 1)
    turned = attitude_error(q[-4:], rest[-4:])
    return ca.vertcat(q[:3] - rest[:3], turned) if body.kind == FLOATING else turned


def _laws(drive: Drive) -> tuple[Sequence[float], Sequence[float]]:
    return drive.gain.tolist(), drive.bias.tolist()


def _saturated(force: Any, interval: Interval) -> ca.SX:
    low, high = interval
    force = force if np.isinf(low) else ca.fmax(force, low)
    return force if np.isinf(high) else ca.fmin(force, high)
