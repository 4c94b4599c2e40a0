"""Mass matrix and bias of a tree of bodies by recursion, as expressions: small graphs, whatever the number of joints.

The mass matrix follows from the composite-rigid-body algorithm, the bias (Coriolis, centrifugal, gravity) from the
recursive Newton-Euler algorithm with v' = 0. Both work in the frames of the bodies, so that constant entries stay
constant and zeros stay structural. A Lagrangian differentiated symbolically would grow much faster with the depth.

Spatial vectors are pairs (angular, linear) at the origin of the body. Velocities of a floating joint are (linear in the
frame of the joint, which is the world for a base, angular in the body), its coordinates (position, quaternion with the
real part first), as in MuJoCo; a spherical joint has the second of each.

References
----------
Featherstone, Rigid Body Dynamics Algorithms (2008): Table 5.1 (Newton-Euler), Table 6.2 (composite rigid bodies).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.robots.tree import FLOATING, PRISMATIC, SPHERICAL, Tree, cleaned
from nosnoc_py.rotations import rotation_of

GRAVITY = (0.0, 0.0, -9.81)
Pair = tuple[Any, Any]


def sparse(matrix: Any) -> ca.SX:
    """Return numbers with structural zeros."""
    return ca.SX(ca.sparsify(ca.DM(cleaned(np.asarray(matrix, dtype=float)))))


@dataclass(frozen=True, eq=False, kw_only=True)
class JointTransform:
    """Frame of a body in that of its parent, and the velocity that the joint adds.

    Attributes
    ----------
    rotation, position : SX (3, 3), (3,)
        From the frame of the body to that of the parent.
    angular, linear : SX (3, n)
        Axes of the joint in the frame of the body: its velocity is these times the rates.
    drift : Pair
        Derivative of the axes in the frame of the body times the rates.
    at : list of int
        Indices of the rates in v.
    """

    rotation: ca.SX
    position: ca.SX
    angular: ca.SX
    linear: ca.SX
    drift: Pair
    at: list[int]


class Recursion:
    """Expressions of a tree in its coordinates q and velocities v.

    Parameters
    ----------
    tree : Tree
    q, v : SX (n_q,), (n_v,)
    """

    def __init__(self, tree: Tree, q: ca.SX, v: ca.SX) -> None:
        self.tree, self.q, self.v = tree, q, v
        self.inertias = [(b.inertia.mass, sparse(b.inertia.moment), sparse(b.inertia.about)) for b in tree.bodies]
        self.moved: list[JointTransform] = []
        self.world: list[tuple[ca.SX, ca.SX]] = []  # rotations and positions in the world
        maps, i_q, i_v = [], 0, 0
        for body in tree.bodies:
            joint, kinematics = self._place_body(body, i_q, i_v)
            self.moved.append(joint)
            maps.append(kinematics)
            if body.parent < 0:
                self.world.append((joint.rotation, joint.position))
            else:
                rotation, position = self.world[body.parent]
                self.world.append((rotation @ joint.rotation, rotation @ joint.position + position))
            i_q, i_v = i_q + body.n_q, i_v + body.n_v
        self.kinematics = ca.diagcat(*maps) if maps else ca.SX(0, 0)  # q' = N(q) v

    def _place_body(self, body: Any, i_q: int, i_v: int) -> tuple[JointTransform, ca.SX]:
        """Return one body and its part of N(q)."""
        none = ca.SX(3, 1)
        placed, position, at = sparse(body.rotation), sparse(body.position), list(range(i_v, i_v + body.n_v))
        kinematics, drift = ca.SX.eye(body.n_v), (none, none)
        if body.kind in (FLOATING, SPHERICAL):
            # A quaternion is the last part of the coordinates, the angular velocity that of the rates.
            quaternion, rates = self.q[i_q + body.n_q - 4 : i_q + body.n_q], self.v[at]
            turn = rotation_of(quaternion)
            w, x, y, z = ca.vertsplit(quaternion)
            # q' = q (0, w) / 2 with the angular velocity w in the body's frame.
            kinematics = 0.5 * ca.blockcat([[-x, -y, -z], [w, -z, y], [z, w, -x], [-y, x, w]])
            angular, linear = ca.SX.eye(3), ca.SX(3, 3)
            if body.kind == FLOATING:
                position = position + placed @ self.q[i_q : i_q + 3]
                kinematics = ca.diagcat(ca.SX.eye(3), kinematics)
                angular, linear = ca.horzcat(linear, angular), ca.horzcat(turn.T, linear)
                # The linear rates are in the frame of the joint: in the body's frame their axes R' turn,
                # d/dt (R' v) = R' v' - w x R' v.
                drift = (none, -ca.cross(rates[3:], turn.T @ rates[:3]))
        elif body.kind == PRISMATIC:
            linear, angular, turn = sparse(body.axis), none, ca.SX.eye(3)
            position = position + placed @ linear * self.q[i_q]
        else:
            angular, linear = sparse(body.axis), none
            cross, angle = ca.sparsify(ca.skew(angular)), self.q[i_q]
            # Rodrigues' formula for a unit axis; structural zeros of the axis keep the expression small.
            turn = ca.SX.eye(3) + ca.sin(angle) * cross + (1 - ca.cos(angle)) * ca.sparsify(cross @ cross)
        fields: dict[str, Any] = {"angular": angular, "linear": linear, "drift": drift, "at": at}
        return JointTransform(rotation=placed @ turn, position=position, **fields), kinematics

    def mass_matrix(self) -> ca.SX:
        """Return M(q) (n_v, n_v), the inertias of drives included."""
        bodies, matrix = self.tree.bodies, ca.SX(self.v.numel(), self.v.numel())
        composite = list(self.inertias)
        # Children before parents, so that every composite inertia is complete when it is used.
        for i in reversed(range(len(bodies))):
            mass, moment, about = composite[i]
            body, joint = bodies[i], self.moved[i]
            # Spatial momentum of the composite body for unit rates of this joint.
            angular = about @ joint.angular + _cross_columns(moment, joint.linear)
            linear = mass * joint.linear - _cross_columns(moment, joint.angular)
            block = joint.angular.T @ angular + joint.linear.T @ linear
            # The drive's rotor turns with the joint only, hence a diagonal entry.
            matrix[joint.at, joint.at] = block + body.armature * ca.SX.eye(len(joint.at)) if body.armature else block
            j = i
            while bodies[j].parent >= 0:
                angular, linear = _force_in_parent(self.moved[j], angular, linear)
                j = bodies[j].parent
                other = self.moved[j]
                block = angular.T @ other.angular + linear.T @ other.linear
                matrix[joint.at, other.at], matrix[other.at, joint.at] = block, block.T
            if body.parent >= 0:
                composite[body.parent] = _sum(composite[body.parent], _inertia_in_parent(joint, mass, moment, about))
        return matrix

    def bias(self, gravity: Sequence[float] = GRAVITY) -> ca.SX:
        """Return h(q, v) (n_v,): the generalised forces for which v' = 0."""
        bodies, result = self.tree.bodies, ca.SX(self.v.numel(), 1)
        speeds: list[Pair] = []
        accelerations: list[Pair] = []
        forces: list[Pair] = []
        # Gravity as an upward acceleration of the world: every body then feels its weight (Featherstone 2008).
        start: tuple[Pair, Pair] = ((ca.SX(3, 1), ca.SX(3, 1)), (ca.SX(3, 1), sparse(-np.array(gravity))))
        for i, body in enumerate(bodies):
            joint, rates = self.moved[i], self.v[self.moved[i].at]
            before = start if body.parent < 0 else (speeds[body.parent], accelerations[body.parent])
            own = joint.angular @ rates, joint.linear @ rates
            (w, u), (a, b) = (_velocity_in_child(joint, *pair) for pair in before)
            w, u = w + own[0], u + own[1]
            # Velocity products: w x (rate of the joint), and the drift of axes that are not constant in the body.
            a = a + joint.drift[0] + ca.cross(w, own[0])
            b = b + joint.drift[1] + ca.cross(w, own[1]) + ca.cross(u, own[0])
            speeds.append((w, u))
            accelerations.append((a, b))
            mass, moment, about = self.inertias[i]
            spin, push = about @ w + ca.cross(moment, u), mass * u - ca.cross(moment, w)
            # Newton-Euler at the origin of the body: I a + v x* I v, with the cross product for forces.
            torque = about @ a + ca.cross(moment, b) + ca.cross(w, spin) + ca.cross(u, push)
            forces.append((torque, mass * b - ca.cross(moment, a) + ca.cross(w, push)))
        # Forces are summed from the leaves to the root; each joint transmits their component along its axes.
        for i in reversed(range(len(bodies))):
            joint, (torque, force) = self.moved[i], forces[i]
            result[joint.at] = joint.angular.T @ torque + joint.linear.T @ force
            if (parent := bodies[i].parent) >= 0:
                more = _force_in_parent(joint, torque, force)
                forces[parent] = forces[parent][0] + more[0], forces[parent][1] + more[1]
        return result

    def center_of_mass(self) -> ca.SX:
        """Return the position (3,) of the centre of mass of all bodies, in the world."""
        placed = zip(self.inertias, self.world, strict=True)
        moments = [turn @ moment + mass * position for (mass, moment, _), (turn, position) in placed]
        return sum(moments, ca.SX(3, 1)) / sum(mass for mass, _, _ in self.inertias)

    def pose(self, link: str, point: Any = (0.0, 0.0, 0.0)) -> tuple[ca.SX, ca.SX]:
        """Return the rotation (3, 3) and position (3,) in the world of a point of a link."""
        body, rotation, position = self.tree.frames[link]
        rotation, offset = sparse(rotation), sparse(position) + sparse(rotation) @ ca.SX(point)
        if body < 0:
            return rotation, offset
        turned, origin = self.world[body]
        return turned @ rotation, turned @ offset + origin

    def turning(self, link: str) -> ca.SX:
        """Return the Jacobian (3, n_v) of the angular velocity of a link in the world."""
        result, body = ca.SX(3, self.v.numel()), self.tree.frames[link][0]
        while body >= 0:
            result[:, self.moved[body].at] = self.world[body][0] @ self.moved[body].angular
            body = self.tree.bodies[body].parent
        return result


def _cross_columns(a: ca.SX, columns: ca.SX) -> ca.SX:
    """Return the cross product of a with every column."""
    return ca.sparsify(ca.skew(a)) @ columns


def _velocity_in_child(joint: JointTransform, angular: Any, linear: Any) -> Pair:
    """Return a velocity of the parent in the frame of the body, at its origin."""
    return joint.rotation.T @ angular, joint.rotation.T @ (linear + ca.cross(angular, joint.position))


def _force_in_parent(joint: JointTransform, torque: Any, force: Any) -> Pair:
    """Return forces on the body (columns) in the frame of the parent, about its origin."""
    pushed = joint.rotation @ force
    return joint.rotation @ torque + _cross_columns(joint.position, pushed), pushed


def _inertia_in_parent(joint: JointTransform, mass: float, moment: ca.SX, about: ca.SX) -> tuple[float, ca.SX, ca.SX]:
    """Return an inertia in the frame of the parent."""
    turned = joint.rotation @ moment
    cross, place = ca.sparsify(ca.skew(turned)), ca.sparsify(ca.skew(joint.position))
    # Parallel axes for a frame that is no centre of mass: two mixed terms with the first moment.
    moved = joint.rotation @ about @ joint.rotation.T - cross @ place - place @ cross - mass * place @ place
    return mass, turned + mass * joint.position, moved


def _sum(one: tuple[float, Any, Any], other: tuple[float, Any, Any]) -> tuple[float, Any, Any]:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]
