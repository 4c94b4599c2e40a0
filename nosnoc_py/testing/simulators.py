"""What every simulator satisfies: a closed form, controls in all forms, records, limits, honest failures."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nosnoc_py.api import simulate
from nosnoc_py.solution import Trajectory, load
from nosnoc_py.status import Status, Stop
from nosnoc_py.systems.controls import PiecewiseConstant
from nosnoc_py.testing.checks import expect, expect_refusals, run_checks
from nosnoc_py.testing.systems import MOTIONS, KnownMotion


@dataclass(frozen=True, eq=False)
class SimulatorCase:
    """A simulator with a known motion of a system that it takes; see `check_simulator`."""

    method: Any
    accuracy: float
    known: KnownMotion
    options: Mapping[str, Any] = field(default_factory=dict)

    def run(self, **changed: Any) -> Trajectory:
        """Simulate the known motion, or one with other arguments."""
        given = {"x0": self.known.x0, "duration": self.known.duration, "u": self.known.u, **self.options, **changed}
        system = given.pop("system", self.known.system)
        motion: Trajectory = simulate(system, method=self.method, **given)
        return motion


def check_simulator(method: Any, *, accuracy: float, **options: Any) -> None:
    """Test a simulator on a bouncing ball, or on a mass with dry friction, whichever it takes.

    Parameters
    ----------
    method : object
        Its options, as `ns.simulate` takes them.
    accuracy : float
        Largest error of the state at the end of 1 s (positions and speeds of order 1).
    **options
        Further arguments of `ns.simulate`, such as `steps`.

    Raises
    ------
    AssertionError
        With everything that does not hold.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> from nosnoc_py.testing import check_simulator
    >>> check_simulator(ns.TimeStepping(step=1e-3), accuracy=2e-2)
    """
    kinds = [kind for kind in MOTIONS if any(issubclass(kind, taken) for taken in method.takes)]
    expect(kinds, f"{type(method).__name__}: expected a method that takes ns.CLS or ns.PSS, takes {method.takes}")
    for kind in kinds:
        case = SimulatorCase(method, accuracy, MOTIONS[kind](), options)
        run_checks(f"{type(method).__name__} on a {kind.__name__}", CHECKS, case)


def reaches_the_end_in_closed_form(case: SimulatorCase) -> None:
    """State at the end, and the times of events."""
    motion = case.run()
    expect(motion.success, f"status {motion.status}: {motion.message}")
    np.testing.assert_allclose(motion.final_state, case.known.end, atol=case.accuracy, err_msg="state at the end")
    times = [event.time for event in motion.events]
    for expected in case.known.events:
        near = min((abs(time - expected) for time in times), default=np.inf)
        expect(near <= case.accuracy, f"no event at {expected:.6g} s; there are {len(times)} others")


def records_the_motion(case: SimulatorCase) -> None:
    """From x0 at 0 to the end, forward in time, with names, controls and values between nodes."""
    motion, system = case.run(), case.known.system
    np.testing.assert_allclose(motion.x[0], case.known.x0, atol=1e-12, err_msg="first state")
    expect(motion.t[0] == 0.0 and abs(motion.t[-1] - case.known.duration) < 1e-12, f"times {motion.t[[0, -1]]}")
    expect((np.diff(motion.t) >= 0.0).all(), "times are not in order")
    expect(tuple(motion.state_names) == tuple(system.state_names), f"state names {motion.state_names}")
    expect(tuple(motion.control_names) == tuple(system.control_names), f"control names {motion.control_names}")
    expect(motion.u.shape[1] == system.n_u, f"controls of the shape {motion.u.shape}")
    middle = motion(0.5 * (motion.t[0] + motion.t[-1]))
    expect(np.shape(middle) == (len(case.known.x0),) and np.isfinite(middle).all(), "no state in the middle")


def takes_a_control_in_every_form(case: SimulatorCase) -> None:
    """A constant, rows, and a piecewise constant function are the same motion."""
    ends = [
        case.run(u=u).final_state
        for u in (
            case.known.u,
            [list(case.known.u)],
            PiecewiseConstant([0.0, case.known.duration], [list(case.known.u)]),
        )
    ]
    for end in ends[1:]:
        np.testing.assert_allclose(end, ends[0], atol=1e-9, err_msg="state at the end with another form of control")


def stops_when_it_is_asked_to(case: SimulatorCase) -> None:
    """A callback that returns `ns.Stop` ends the motion, which is kept."""
    motion = case.run(callback=lambda state: Stop)
    expect(motion.status is Status.STOPPED, f"status {motion.status} after ns.Stop")
    expect(motion.t[-1] < case.known.duration, "it went on to the end after ns.Stop")


def says_that_there_are_no_numbers(case: SimulatorCase) -> None:
    """A model that is not a number after 0.2 s gives a status, and the motion before."""
    with np.errstate(all="ignore"):
        motion = case.run(system=case.known.broken, u=[0.0] * len(case.known.u))
    expect(not motion.success, f"status {motion.status} for accelerations that are not numbers")
    expect(motion.t[-1] < case.known.duration, "it went on to the end")
    expect(np.isfinite(motion.x).all(), "states that are not finite")


def refuses_mistakes(case: SimulatorCase) -> None:
    """Wrong arguments are errors at once."""
    wrong = ({"x0": [0.0]}, {"duration": -1.0}, {"u": [1.0] * 7}, {"x0": [np.nan] * len(case.known.x0)})
    expect_refusals(case.run, wrong)


def is_saved_and_loaded(case: SimulatorCase) -> None:
    """The same states, also between nodes."""
    motion = case.run()
    with tempfile.TemporaryDirectory() as folder:
        again = load(motion.save(Path(folder) / "motion.nc"))
    np.testing.assert_array_equal(again.x, motion.x)
    middle = 0.37 * case.known.duration
    np.testing.assert_allclose(again(middle), motion(middle), atol=1e-14)


CHECKS = (
    reaches_the_end_in_closed_form,
    records_the_motion,
    takes_a_control_in_every_form,
    stops_when_it_is_asked_to,
    says_that_there_are_no_numbers,
    refuses_mistakes,
    is_saved_and_loaded,
)
