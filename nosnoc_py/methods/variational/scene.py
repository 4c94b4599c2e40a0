"""What a simulation consists of: its options, the body and the planes, and what is known of every plane."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from nosnoc_py.compiled import jitable
from nosnoc_py.methods.variational.collision import Shape, Support
from nosnoc_py.methods.variational.flight import Body
from nosnoc_py.methods.variational.vectors import Vector, dot

FINISHED, FULL, ZENO, RESTS, CROWDED, ROTATION, NOT_FINITE = range(7)
# Normal velocities (relative to 1 m/s and to that of the body) below which nothing approaches.
QUIET = 1e-12
# Rounding errors of a gap, relative to the sizes it is the difference of.
ROUNDING = 4e-16
# Lengths (relative to a step) within which nothing moves.
INSTANT = 1e-15


class Rule(NamedTuple):
    """The options of a simulation.

    Attributes
    ----------
    h : float
        Length of a step [s].
    closed : float
        Height [m] up to which a body that rests on a plane is put back onto it.
    variational : bool
        Algorithm 5.1.
    samples, most : int
        Equal parts in which gaps are tested; impacts in a step at most.
    settle : bool
    """

    h: float
    closed: float
    variational: bool
    samples: int
    most: int
    settle: bool


class Scene(NamedTuple):
    """What does not change in a simulation; a plane (6,) is its normal, offset, restitution and friction."""

    rule: Rule
    body: Body
    shape: Shape
    support: Support
    planes: np.ndarray


class Contacts(NamedTuple):
    """What is known of every plane, changed in place.

    Attributes
    ----------
    slack : (planes,)
        Gap [m] that counts as zero: the rounding error at the last impact, or what was allowed at the start.
    settled : (planes,)
        Not zero where the body rests.
    left, ends : (planes,)
        Gaps less slack at the ends of a segment.
    """

    slack: np.ndarray
    settled: np.ndarray
    left: np.ndarray
    ends: np.ndarray


@jitable
def quiet_of(body: Body, gamma: Vector) -> float:
    """Normal velocity [m/s] that is none."""
    return QUIET * (1.0 + math.sqrt(dot(gamma, gamma)) / body[0])
