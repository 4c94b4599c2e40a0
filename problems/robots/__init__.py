"""Tasks of whole robots by the plain call: a start, a goal, limits and a cost; no posture in between, no sequence.

Every module has a function `build() -> ns.OCP`; `python -m problems.benchmarks.robots` solves them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import nosnoc_py as ns

# Modules by their names; those that other pages use, too, are where they were.
TASKS = {
    "hopper": "problems.robots.hopper",
    "half_cheetah": "problems.robots.half_cheetah",
    "walker": "problems.robots.walker",
    "ant": "problems.robots.ant",
    "a1_stands_up": "problems.robots.a1_stands_up",
    "humanoid_rises": "problems.robots.humanoid_rises",
    "gripper": "problems.robots.gripper",
    "fingers_turn_a_disc": "problems.robots.fingers_turn_a_disc",
    "throw_and_catch": "problems.robots.throw_and_catch",
    "ball_on_a_plate": "problems.robots.ball_on_a_plate",
    "box_lands_flat": "problems.robots.box_lands_flat",
    "biped_gait": "problems.robots.biped_gait",
    "biped_stairs": "problems.robots.biped_stairs",
    "quadruped_steps": "problems.robots.quadruped_steps",
    "quadruped_rears": "problems.robots.quadruped_rears",
    "gripper_tips_a_box": "problems.robots.gripper_tips_a_box",
    "hand_turns_a_sphere": "problems.robots.hand_turns_a_sphere",
    "jaw_picks_from_a_wall": "problems.robots.jaw_picks_from_a_wall",
    "kneed_hopper": "problems.kneed_hopper",
    "biped_step": "problems.biped_step",
    "quadruped_jump": "problems.quadruped_jump",
    "arm_pushes_box": "problems.arm_pushes_box",
    "monoped": "problems.benchmarks.contact.monoped",
    "one_legged_hopper": "problems.benchmarks.contact.one_legged_hopper",
    "spinner": "problems.benchmarks.contact.spinner",
}


def builder(name: str) -> Callable[[], ns.OCP]:
    """Return the function that builds a task."""
    module = import_module(TASKS[name])
    build: Callable[[], ns.OCP] = module.build if hasattr(module, "build") else module.PROBLEM.build
    return build
