"""A finger pushes a box over a table by one of its faces at a time, without inertia or friction at the finger."""

from itertools import combinations

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.mpcc.program import MPCC
from problems.benchmarks.contact import crisp
from problems.benchmarks.contact.posed import Posed, rotation

HALF, GRIP, TURNING = (0.5, 0.25), 0.5 * 1.0 * 9.8, 0.4 * np.hypot(0.5, 0.25)
COUNT, ANGLE = 100, 12 * 2 * np.pi / 18
GOAL = (3 * np.cos(ANGLE), 3 * np.sin(ANGLE), ANGLE)


def rates(angle: ca.SX, place: ca.SX, force: ca.SX) -> ca.SX:
    """Return the velocity of the box for a force in its own axes at a point (2,): the limit surface is an ellipsoid."""
    c, s = ca.cos(angle), ca.sin(angle)
    moment = place[0] * force[1] - place[1] * force[0]
    return ca.vertcat(c * force[0] - s * force[1], s * force[0] + c * force[1], moment / TURNING) / GRIP


def faces(place: ca.SX) -> ca.SX:
    """Return the distances of the finger from the left, the lower, the right and the upper face."""
    return ca.vertcat(place[0] + HALF[0], place[1] + HALF[1], HALF[0] - place[0], HALF[1] - place[1])


def apart(pushes: ca.SX, place: ca.SX) -> list[tuple[ca.SX, ca.SX]]:
    """Return pairs: a face is pushed only if the finger touches it, and only one at a time."""
    pairs = [(pushes[k], distance) for k, distance in enumerate(ca.vertsplit(faces(place)))]
    return pairs + [(pushes[a], pushes[b]) for a, b in combinations(range(4), 2)]


def along(pushes: ca.SX) -> ca.SX:
    """Return the force on the box of pushes (4,) on its faces."""
    return ca.vertcat(pushes[0] - pushes[2], pushes[1] - pushes[3])


def build() -> ns.OCP:
    """Return the problem: from the origin to a place 3 m away, turned by 240 degrees, in 2 s."""
    x, place, pushes = ca.SX.sym("x", 3), ca.SX.sym("place", 2), ca.SX.sym("push", 4)
    finger, push = x[:2] + rotation(x[2]) @ place, rotation(x[2]) @ along(pushes)
    system = ns.ODE(
        x=x,
        u=ca.vertcat(place, pushes),
        flow=rates(x[2], place, along(pushes)),
        names={
            "x": ["x", "y", "angle"],
            "u": ["finger_x", "finger_y", *(f"push_{k}" for k in ("left", "low", "right", "high"))],
        },
        scene=[
            ns.scene.Rectangle(GOAL[:2], 2 * np.array(HALF), ANGLE, label="goal", colour="grey"),
            ns.scene.Trail(x[:2]),
            ns.scene.Rectangle(x[:2], 2 * np.array(HALF), x[2], label="box"),
            ns.scene.Arrow(finger, push, label="push"),
        ],
    )
    first, second = zip(*apart(pushes, place), strict=True)
    return ns.OCP(
        system,
        horizon=2.0,
        x0=[0, 0, 0],
        stage_cost=0.05 * ca.sumsqr(pushes),
        terminal_cost=100 * ca.sumsqr(x - ca.DM(GOAL)),
        complementarities=[ns.Complementarity(ca.vertcat(*first), ca.vertcat(*second), name="faces")],
    )


def literal() -> MPCC:
    """Return the discretised problem with 100 steps of 20 ms."""
    steps = crisp.Steps(names="x y angle finger_x finger_y left low right high", count=COUNT)
    for k in range(COUNT):
        at = steps[k]
        if k == COUNT - 1:
            steps.objective += 100 * ca.sumsqr(ca.vertcat(at.x, at.y, at.angle) - ca.DM(GOAL))
            break
        then, pushes = steps[k + 1], ca.vertcat(at.left, at.low, at.right, at.high)
        place = ca.vertcat(at.finger_x, at.finger_y)
        moved = crisp.STEP * rates(at.angle, place, along(pushes))
        for after, before, rate in zip(
            (then.x, then.y, then.angle), (at.x, at.y, at.angle), ca.vertsplit(moved), strict=True
        ):
            steps.between(after - before - rate)
        steps.pairs += apart(pushes, place)
        steps.objective += 0.001 * ca.sumsqr(pushes)
    return steps.program([0.0, 0.0, 0.0])


PROBLEM = Posed(
    title="CRISP push box",
    source=crisp.SOURCE,
    build=build,
    literal=literal,
    best=6.4187,
    found="finite elements from random starts; the literal program 14.037 by plain Scholtes",
)
