"""Scenes in other units have the motions that they have in metres, kilograms and seconds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import casadi as ca
import numpy as np
import pytest
from attrs import evolve

import nosnoc_py as ns
from nosnoc_py.systems.rescaled import rescaled
from tests.references.friction_closed_forms import BY_NAME, CASES
from tests.references.friction_motion import compared_events

UNITS: Mapping[str, tuple[float, float]] = {"mm, mg": (1e3, 1e6), "km, t": (1e-3, 1e-3)}
METHODS: Mapping[str, Any] = {
    "finite elements": ns.FESDJ(finite_elements=2, rk_stages=3, scheme="radau_iia"),
    "event-driven": ns.EventDriven(),
}
LENGTHS = ("m", "m/s")
TOLERANCE = 1e-6  # m
# Spatial slip, stick to slip, bounce, corner and a turning body; the others are slow only because they are many.
FEW = ("slip_3d", "stick_to_slip_2d", "bounce_slip_2d", "corner_bounce_2d", "rod_tip_stick_2d")
OTHERS = [pytest.param(case.name, marks=[pytest.mark.slow] * (case.name not in FEW)) for case in CASES]


def in_units(system: ns.CLS, length: float, mass: float) -> tuple[ns.CLS, np.ndarray]:
    """Return a system in other units of length and mass, and the factors (2 n_q,) of its states.

    The units of the system determine which coordinates are lengths; seconds and angles do not change.
    """
    names = (*system.names["q"], *system.names["v"])
    factors = np.array([length if system.units.get(name) in LENGTHS else 1.0 for name in names])
    force = ca.substitute([ca.SX(system.force)], [system.u], [system.u / (mass * length)])[0]
    system_in_units = rescaled(
        evolve(system, force=force), q=1.0 / factors[: system.n_q], gap=1.0 / length, time=1.0, mass=1.0 / mass
    )
    return system_in_units, factors


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("units", UNITS)
@pytest.mark.parametrize("case", OTHERS)
def test_the_motion_is_that_of_the_closed_form(case: str, units: str, method: str) -> None:
    """All events, and the state at the end to a millionth of a metre."""
    motion, chosen = BY_NAME[case], METHODS[method]
    length, mass = UNITS[units]
    system, factors = in_units(motion.system, length, mass)
    more: dict[str, Any] = {} if isinstance(chosen, ns.EventDriven) else {"steps": 7}
    trajectory = ns.simulate(
        system, x0=factors * motion.x0, u=mass * length * motion.u, duration=motion.duration, method=chosen, **more
    )
    assert trajectory.success, trajectory.message
    events = tuple((event.kind, event.name, event.time) for event in trajectory.events)
    compared = compared_events(motion.events, events)
    assert (compared["missing"], compared["extra"]) == ((), ())
    np.testing.assert_allclose(trajectory.final_state / factors, motion.exact(motion.duration), rtol=0, atol=TOLERANCE)


def test_the_other_units_are_others() -> None:
    """Negative control: a gap of a metre is 1000 of the other unit, a weight of 1 kg under g 9.81e9 of it."""
    case = BY_NAME["bounce_slip_2d"]
    length, mass = UNITS["mm, mg"]
    system, factors = in_units(case.system, length, mass)
    here, there = case.system.kinematics(case.x0), system.kinematics(factors * case.x0)
    np.testing.assert_allclose(there.gaps, 1e3 * here.gaps, rtol=1e-14)
    np.testing.assert_allclose(there.mass, 1e6 * here.mass, rtol=1e-14)
    np.testing.assert_allclose(there.force, 1e9 * here.force, rtol=1e-14)
