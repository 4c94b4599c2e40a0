"""A finger pushes a T over a table, quasi-statically and with friction between finger and T."""

import casadi as ca

import nosnoc_py as ns
from problems.benchmarks.contact.posed import Posed, placed, rotation, squares

EDGE, WIDTH = 0.04, 0.1  # distance of the pushed edge from the centre of friction, half its width [m]
SLIDING, TURNING, FRICTION = 1.0, 400.0, 0.3  # velocity per force, rate per moment; of the finger on the edge

GOAL = (0.25, 0.05, 0.5)
# For pictures [m]: corners of a T with its centroid in the origin, its bar and stem 5 cm wide; radius of the finger.
BAR, STEM, TIP = 0.01, 0.025, 0.078
SHAPE = [
    (-EDGE, -WIDTH),
    (BAR, -WIDTH),
    (BAR, -STEM),
    (TIP, -STEM),
    (TIP, STEM),
    (BAR, STEM),
    (BAR, WIDTH),
    (-EDGE, WIDTH),
]
FINGER = 0.01


def build() -> ns.OCP:
    """Return the problem: from rest to 25 cm ahead and 5 cm aside with the T turned by 0.5 rad, in 5 s.

    States are the pose of the T and the place of the finger along the top of its bar; controls are normal and
    tangential force and the slip to both sides.
    """
    x, u = ca.SX.sym("x", 4), ca.SX.sym("u", 4)
    normal, side, left, right = ca.vertsplit(u)
    c, s = ca.cos(x[2]), ca.sin(x[2])
    # The finger presses in the direction +x of the T, at (-EDGE, place): the limit surface is an ellipsoid.
    moment = -EDGE * side - x[3] * normal
    flow = ca.vertcat(
        SLIDING * (c * normal - s * side), SLIDING * (s * normal + c * side), TURNING * moment, left - right
    )
    finger = x[:2] + rotation(x[2]) @ ca.vertcat(-EDGE - FINGER, x[3])
    system = ns.ODE(
        x=x,
        u=u,
        flow=flow,
        names={"x": ["x", "y", "angle", "finger"], "u": ["normal", "side", "left", "right"]},
        scene=[
            ns.scene.Polygon(placed(SHAPE, GOAL[:2], GOAL[2]), label="goal", colour="grey"),
            ns.scene.Polygon(placed(SHAPE, x[:2], x[2]), label="T"),
            ns.scene.Disc(finger, FINGER, label="finger"),
            ns.scene.Arrow(finger, rotation(x[2]) @ u[:2], label="push"),
        ],
    )
    cone = ca.vertcat(FRICTION * normal + side, FRICTION * normal - side, left)
    return ns.OCP(
        system,
        horizon=5.0,
        x0=[0, 0, 0, 0],
        stage_cost=10 * ca.sumsqr(u[:2]) + 0.1 * ca.sumsqr(u[2:]),
        terminal_cost=100 * squares(x - ca.DM([*GOAL, 0.0]), [100, 100, 1, 0]),
        complementarities=[ns.Complementarity(cone, ca.vertcat(left, right, right), name="finger")],
        bounds={"finger": (-0.9 * WIDTH, 0.9 * WIDTH), "normal": (0, 0.5), "left": (0, 0.5), "right": (0, 0.5)},
    )


PROBLEM = Posed(
    title="push-T",
    source="Moura, Stouraitis, Vijayakumar (ICRA 2022), pusher and slider with complementarity constraints; a T",
    build=build,
    best=0.13005,
    found="the search and finite elements",
)
