"""Scenes in other units have the motions that they have in metres, kilograms and seconds."""

from __future__ import annotations

import numpy as np
import pytest

from problems.benchmarks.rescaled_scenes import METHODS, UNITS, in_units, simulate
from tests.references.friction_closed_forms import BY_NAME, CASES

# Spatial slip, stick to slip, bounce, corner and a turning body; the others are slow only because they are many.
FEW = ("slip_3d", "stick_to_slip_2d", "bounce_slip_2d", "corner_bounce_2d", "rod_tip_stick_2d")
OTHERS = [pytest.param(case.name, marks=[pytest.mark.slow] * (case.name not in FEW)) for case in CASES]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("units", [units for units in UNITS if units != "m, kg"])
@pytest.mark.parametrize("case", OTHERS)
def test_the_motion_is_that_of_the_closed_form(case: str, units: str, method: str) -> None:
    """All events, and the state at the end to a millionth of a metre."""
    row = simulate(BY_NAME[case], units, method)
    assert row.success, row


def test_the_other_units_are_others() -> None:
    """Negative control: a gap of a metre is 1000 of the other unit, a weight of 1 kg under g 9.81e9 of it."""
    case = BY_NAME["bounce_slip_2d"]
    length, mass = UNITS["mm, mg"]
    system, factors = in_units(case.system, length, mass)
    here, there = case.system.kinematics(case.x0), system.kinematics(factors * case.x0)
    np.testing.assert_allclose(there.gaps, 1e3 * here.gaps, rtol=1e-14)
    np.testing.assert_allclose(there.mass, 1e6 * here.mass, rtol=1e-14)
    np.testing.assert_allclose(there.force, 1e9 * here.force, rtol=1e-14)
