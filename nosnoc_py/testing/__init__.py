"""Tests that every member of a family passes, for members that are written elsewhere.

Each function raises `AssertionError` with all that fails; none needs pytest. The families of the library are tested by
the same functions.
"""

from nosnoc_py.testing.methods import check_method
from nosnoc_py.testing.relaxations import check_relaxation
from nosnoc_py.testing.robots import check_robot
from nosnoc_py.testing.shapes import check_shape
from nosnoc_py.testing.simulators import check_simulator
from nosnoc_py.testing.starts import check_start

__all__ = ["check_method", "check_relaxation", "check_robot", "check_shape", "check_simulator", "check_start"]
