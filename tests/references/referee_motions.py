"""Motions for the event-driven referee: those in closed form, and those that it shares with FESD-J."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import nosnoc_py as ns
from models import bouncing_ball, bowl, two_balls_spring
from models import three_boxes as boxes_model
from nosnoc_py.errors import OptionError, unknown_name
from problems import three_boxes
from problems.benchmarks import two_balls_order
from tests.references.friction_closed_forms import BY_NAME, CASES
from tests.references.friction_motion import Case, Events
from tests.references.three_boxes import reduced_simulation
from tests.references.two_balls_spring import exact as exact_balls

SMALL = 1e-9  # a velocity [m/s] or gap [m] below is zero, in the reduced motion of the boxes
SIDES = boxes_model.CONTACTS[:2]


def ball() -> Case:
    """A bouncing ball with restitution 0.9, three seconds."""
    times = bouncing_ball.impact_times(0.9, until=3.0)
    return Case(
        name="bouncing_ball",
        system=bouncing_ball.build(0.9),
        x0=np.array([1.0, 0.0]),
        u=np.zeros(0),
        duration=3.0,
        exact=lambda t: bouncing_ball.exact(t, 0.9),
        events=tuple(("impact", "ground", float(time)) for time in times),
    )


def two_balls() -> Case:
    """Two balls with the spring of FESD-J, Section 5.1."""
    exact = exact_balls()
    return Case(
        name="two_balls_spring",
        system=two_balls_spring.build(),
        x0=np.array(two_balls_order.START),
        u=np.zeros(0),
        duration=1.0,
        exact=exact,
        events=tuple(("impact", "ground", impact.time) for impact in exact.impacts),
    )


def three_boxes_case() -> Case:
    """The three boxes under the best control known."""
    motion, _ = reduced_simulation(three_boxes.KNOWN_CONTROL)
    return Case(
        name="three_boxes",
        system=boxes_model.build(),
        x0=np.array(boxes_model.START),
        u=np.array(three_boxes.KNOWN_CONTROL)[:, None],
        duration=float(motion.t[-1]),
        exact=motion.full_state,
        events=boxes_events(motion),
    )


def boxes_events(motion: boxes_model.ReducedMotion) -> Events:
    """Events of the full model, read off the pieces of the motion on the line: what slips and touches before and after.

    The sign of a velocity and the gaps between boxes are taken in the middle of every piece.
    """
    middles = motion(0.5 * (motion.t[1:] + motion.t[:-1]))
    slips = np.where(np.abs(middles[:, 3:]) > SMALL, np.sign(middles[:, 3:]), 0.0)
    touches = np.diff(middles[:, :3], axis=1) - boxes_model.PAPER.side_length <= SMALL
    found = [("impact", impact.name, impact.time) for impact in motion.impacts]
    for k, time in enumerate(motion.t[1:-1].tolist()):
        changes = zip(boxes_model.BOXES, slips[k], slips[k + 1], strict=True)
        found += [(_friction(was, now), f"ground_{box}", time) for box, was, now in changes if was != now]
        changes = zip(SIDES, touches[k], touches[k + 1], strict=True)
        found += [("contact" if now else "release", side, time) for side, was, now in changes if was != now]
    return tuple(sorted(found, key=lambda event: event[2]))


def _friction(was: float, now: float) -> str:
    """The event between two signs of a slip velocity."""
    if was == 0.0:
        return "slip"
    return "stick" if now == 0.0 else "reversal"


MORE: dict[str, Callable[[], Case]] = {
    "bouncing_ball": ball,
    "two_balls_spring": two_balls,
    "three_boxes": three_boxes_case,
}


def closed_form(name: str) -> Case:
    """A case by name.

    Raises
    ------
    OptionError
        For an unknown one.
    """
    if name in MORE:
        return MORE[name]()
    if name in BY_NAME:
        return BY_NAME[name]
    raise OptionError(unknown_name(name, (*BY_NAME, *MORE), "case"))


NAMES: tuple[str, ...] = (*(case.name for case in CASES), *MORE)


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """A motion for both, the numbers of steps of FESD-J, and its options."""

    system: ns.CLS
    x0: Any
    duration: float
    steps: tuple[int, ...]
    u: Any = None
    options: dict[str, Any] = field(default_factory=dict)


def _compared(case: Case, *steps: int, **options: Any) -> Comparison:
    return Comparison(system=case.system, x0=case.x0, u=case.u, duration=case.duration, steps=steps, options=options)


def _bowl() -> Comparison:
    """A mass in a bowl with friction: it turns around twice."""
    system = bowl.build(bowl.Constants(friction=0.2))
    return Comparison(system=system, x0=bowl.state(1.2, 0.0), duration=3.0, steps=(20, 40, 80))


# The pieces of the boxes' motion are parabolas: two stages commit no error there.
COMPARISONS: dict[str, Callable[[], Comparison]] = {
    "two_balls_spring": lambda: _compared(two_balls(), 200, 400, 800),
    "bowl": _bowl,
    "slope_curve_3d": lambda: _compared(BY_NAME["slope_curve_3d"], 4, 8, 16),
    "three_boxes": lambda: _compared(three_boxes_case(), 15, 30, 60, rk_stages=2),
}


def comparison(name: str) -> Comparison:
    """A motion for both methods by name.

    Raises
    ------
    OptionError
        For an unknown one.
    """
    if name not in COMPARISONS:
        raise OptionError(unknown_name(name, COMPARISONS, "comparison"))
    return COMPARISONS[name]()
