"""Data of a simulation for the compiled loop: options, body, planes, and contact data of every plane."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.methods.variational.collision import Shape, Support
from nosnoc_py.methods.variational.flight import Body
from nosnoc_py.methods.variational.vectors import Vector, dot

# Codes of the loop; FULL means that the output buffers have to be emptied.
FINISHED, FULL, ZENO, AT_REST, TOO_MANY_IMPACTS, ROTATION, NOT_FINITE = range(7)
# Normal velocities below this, relative to 1 m/s plus the speed of the body, count as zero.
QUIET_SPEED = 1e-12
# Rounding error of a gap, relative to the lengths of which it is the difference.
ROUNDING_OF_GAPS = 4e-16
# Durations below this fraction of a step count as zero.
INSTANT = 1e-15


class Rule(NamedTuple):
    """Numeric options of a simulation.

    Attributes
    ----------
    h : float
        Length of a step [s].
    closed : float
        Height [m] up to which a resting body is projected onto its plane.
    variational : bool
        True for algorithm 5.1.
    samples, max_impacts : int
        Number of equal parts of a flight in which gaps are tested; maximal number of impacts per step.
    allows_rest : bool
        True if a body may come to rest.
    """

    h: float
    closed: float
    variational: bool
    samples: int
    max_impacts: int
    allows_rest: bool


class Scene(NamedTuple):
    """Constant data of a simulation; a plane (6,) is normal, offset, restitution, friction."""

    rule: Rule
    body: Body
    shape: Shape
    support: Support
    planes: np.ndarray


class Contacts(NamedTuple):
    """Contact data of every plane, changed in place.

    Attributes
    ----------
    slack : (planes,)
        Gap [m] that counts as zero: rounding at the last impact, or the penetration tolerated at the start.
    at_rest : (planes,)
        Nonzero for planes on which the body rests.
    left, ends : (planes,)
        Gaps minus slack at the left and right end of a segment.
    """

    slack: np.ndarray
    at_rest: np.ndarray
    left: np.ndarray
    ends: np.ndarray


@jitable
def quiet_of(body: Body, gamma: Vector) -> float:
    """Return the normal velocity [m/s] below which nothing approaches."""
    return QUIET_SPEED * (1.0 + math.sqrt(dot(gamma, gamma)) / body[0])
