"""The loop of a simulation: why it ends, and what a callback sees."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import nosnoc_py as ns
from models import bouncing_ball, point_mass
from nosnoc_py.motion.loop import driven
from nosnoc_py.simulation.event_driven.history import EventDrivenSimulator
from nosnoc_py.status import Status
from nosnoc_py.systems.controls import control_of

pytestmark = pytest.mark.quick


@dataclass(frozen=True)
class Count:
    """A state that counts its steps."""

    n: int = 0
    status: Status = Status.SOLVED


def one_more(state: Count) -> Count:
    """The next state."""
    return replace(state, n=state.n + 1)


def test_the_end() -> None:
    """Three steps; a callback sees them all, and cannot stop what is over."""
    seen: list[int] = []

    def callback(state: Count) -> object:
        seen.append(state.n)
        return ns.Stop if state.n == 3 else None

    assert driven(Count(), one_more, lambda state: state.n == 3, callback) == Count(3)
    assert seen == [1, 2, 3]
    assert driven(Count(), one_more, lambda state: True) == Count(0)


def test_what_ends_it_early() -> None:
    """A failed step, a callback, the clock and Ctrl-C: each has its status, and the last whole step is kept."""
    seen: list[int] = []

    def failing(state: Count) -> Count:
        return replace(state, status=Status.STEP_FAILED) if state.n == 2 else one_more(state)

    def interrupted(state: Count) -> Count:
        if state.n == 2:
            raise KeyboardInterrupt
        return one_more(state)

    never = lambda state: False  # noqa: E731
    assert driven(Count(), failing, never, lambda state: seen.append(state.n)) == Count(2, Status.STEP_FAILED)
    assert seen == [1, 2]  # not what failed
    assert driven(Count(), interrupted, never) == Count(2, Status.INTERRUPTED)
    assert driven(Count(), one_more, never, lambda state: ns.Stop) == Count(1, Status.STOPPED)
    assert driven(Count(), one_more, never, deadline=time.monotonic() - 1.0) == Count(0, Status.TIME_LIMIT)


@pytest.mark.parametrize(
    "options",
    [{"method": ns.EventDriven()}, {"method": ns.TimeStepping(), "steps": 20}, {"method": ns.FESDJ(), "steps": 20}],
    ids=lambda options: type(options["method"]).__name__,
)
def test_an_interrupted_simulation_keeps_its_motion(options: dict[str, Any]) -> None:
    """Ctrl-C in the callback after two phases or steps: the trajectory up to there, with a status."""
    count = 0

    def callback(state: object) -> None:
        nonlocal count
        count += 1
        if count == 2:
            raise KeyboardInterrupt

    ball = bouncing_ball.build(0.5)
    found = ns.simulate(ball, x0=[1.0, 0.0], duration=2.0, callback=callback, **options)
    assert found.status is ns.Status.INTERRUPTED
    assert 0.0 < found.t[-1] < 2.0
    whole = ns.simulate(ball, x0=[1.0, 0.0], duration=2.0, **options)
    assert whole.success
    np.testing.assert_allclose(found.final_state, whole(found.t[-1], "-"), rtol=0, atol=1e-9)


def test_ctrl_c_goes_on_to_who_asked_the_referee() -> None:
    """A certificate that is interrupted must not take a part of a motion for the whole one."""

    def law(t: float) -> list[float]:
        if t > 0.5:
            raise KeyboardInterrupt
        return [0.0]

    system = point_mass.build(2)
    control = control_of(law, 1, 1.0)
    referee, start = EventDrivenSimulator(system, ns.EventDriven()), np.array([0.0, 1.0, 1.0, 0.0])
    with pytest.raises(KeyboardInterrupt):
        referee.run(start, control, np.zeros(0))
    kept = referee.run(start, control, np.zeros(0), interruptible=True)
    assert kept.status is Status.INTERRUPTED


def test_no_time_at_all() -> None:
    """A time limit of zero: the start, and no step."""
    for method in (ns.EventDriven(), ns.TimeStepping(), ns.FESDJ()):
        found = ns.simulate(point_mass.build(2), x0=[0, 1, 1, 0], duration=1.0, method=method, time_limit=1e-9)
        assert found.status is ns.Status.TIME_LIMIT
        np.testing.assert_array_equal(found.x, [[0, 1, 1, 0]])
        assert found.u.shape == (0, 1)
