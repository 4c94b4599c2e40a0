"""A robot on one leg goes over one hole."""

import nosnoc_py as ns
from problems.benchmarks.contact.posed import Posed
from problems.benchmarks.hopper_task import build as task


def build() -> ns.OCP:
    """Return the problem: from standing at 0 to standing at 1 m, in 1.5 s; the foot may stand at both ends only."""
    return task(holes=1, horizon=1.5, joint_rate=40.0)


PROBLEM = Posed(
    title="one-legged hopper, one hole",
    source="Nurkanovic et al., time-freezing paper, Section 6",
    reported="three holes, solved on 20 stages by time-freezing; no objective",
    differs="one hole of the three, in 1.5 of 2.5 s",
    build=build,
    best=70.9,
    found="finite elements on 50 stages with a prescribed sequence",
    stages=40,
)
