"""What every kind of start of the search satisfies: controls in their bounds, the same ones for the same seed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
from attrs import evolve

from nosnoc_py.attempts.work import counted
from nosnoc_py.ocp import OCP, Constraint, FreeTime
from nosnoc_py.search.stances import Proposal
from nosnoc_py.search.starts import Start, StartTask
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.pss import PSS
from nosnoc_py.testing.checks import expect, run_checks
from nosnoc_py.testing.systems import bounce_to, fall_to, least_effort

Kind = Callable[[StartTask, np.random.Generator], Iterator[Start | Proposal | None]]
# Pieces of work in which starts have to come, and the largest work of a piece.
PIECES, WORK = 60, 40.0


def check_start(kind: Kind, *, starts: int = 3) -> None:
    """Test a kind of start on a bouncing ball, free ends and a free horizon, smooth and switched systems, no control.

    Its starts lie in their bounds, their motions can be simulated, pieces of work are short, and the same seed gives
    the same starts. On one of the problems at least it has to have some.

    Parameters
    ----------
    kind : (StartTask, Generator) -> iterator of Start, Proposal or None
    starts : int
        Number of starts of each problem that are looked at.

    Raises
    ------
    AssertionError
        With everything that does not hold.

    Examples
    --------
    >>> from nosnoc_py.search.starts import constant
    >>> from nosnoc_py.testing import check_start
    >>> check_start(constant)
    """
    run_checks(getattr(kind, "__name__", "start"), CHECKS, kind, starts)


def freed() -> OCP:
    """Return the bouncing ball with a free start and a free horizon."""
    ball = bounce_to()
    start = Constraint(ball.system.x, [0.8, -1.0], [1.2, 1.0], name="start")
    return evolve(ball, horizon=FreeTime(0.5, 2.0), x0=None, initial_constraints=[start])


def landing() -> OCP:
    """Return the problem to come to rest at a height with a ball that does not bounce."""
    bouncing = bounce_to()
    ball = bouncing.system
    inelastic = ball.with_fields(contacts=[evolve(contact, restitution=0.0) for contact in ball.contacts])
    return evolve(bouncing, system=inelastic)


def problems() -> list[OCP]:
    """Return the problems."""
    return [bounce_to(), freed(), least_effort(CLS), least_effort(PSS, bound=20.0), fall_to(), landing()]


def found(kind: Kind, ocp: OCP, count: int) -> list[Any]:
    """Return the first starts of a kind."""
    stream = islice(kind(StartTask.of(ocp), np.random.default_rng(0)), PIECES)
    return list(islice((start for start in stream if start is not None), count))


def gives_starts(kind: Kind, count: int) -> None:
    """On one of the problems at least."""
    expect(any(found(kind, ocp, 1) for ocp in problems()), f"no start in {PIECES} pieces of work on any problem")


def starts_lie_in_their_bounds(kind: Kind, count: int) -> None:
    """Controls and all that is free; their motions begin and end where they should."""
    for ocp in problems():
        low, high = ocp.u_bounds
        for start in found(kind, ocp, count):
            if isinstance(start, Proposal):
                continue
            values = np.asarray(start.control.values)
            expect((values >= low - 1e-9).all() and (values <= high + 1e-9).all(), "a control outside of its bounds")
            if ocp.free_time is not None:
                free = ocp.free_time
                expect(free.lower <= start.horizon <= free.upper, f"a horizon of {start.horizon:g} s")
                expect(0.8 - 1e-6 <= start.x0[0] <= 1.2 + 1e-6, f"an initial state {start.x0}")
            for name, (least, most) in ocp.free_parameters.items():
                value = float(start.p[ocp.system.parameter_names.index(name)])
                expect(least <= value <= most, f"{name} is {value:g}, expected {least:g} to {most:g}")
            motion = StartTask.of(ocp).motion(start)
            np.testing.assert_allclose(motion.x[0], start.x0, atol=1e-12, err_msg="first state of the motion")
            expect(abs(motion.duration - start.horizon) < 1e-9, f"a motion of {motion.duration:g} s: {motion.message}")


def pieces_of_work_are_short(kind: Kind, count: int) -> None:
    """A kind that works for long yields None meanwhile, so that others have their turns."""
    for ocp in problems():
        stream = kind(StartTask.of(ocp), np.random.default_rng(0))
        for _ in range(count):
            with counted() as account:
                if next(stream, stream) is stream:
                    break
            expect(account.total <= WORK, f"a piece of work of {account.total:.3g}, expected {WORK:g} at most")


def the_same_seed_gives_the_same_starts(kind: Kind, count: int) -> None:
    """It draws from the generator that it is given, and from no other one."""
    for ocp in problems()[:2]:
        first, second = (found(kind, ocp, count) for _ in range(2))
        expect(len(first) == len(second), "another number of starts with the same seed")
        for one, other in zip(first, second, strict=True):
            if isinstance(one, Start):
                np.testing.assert_array_equal(one.control.values, other.control.values)
            else:
                np.testing.assert_array_equal(one.motion.x, other.motion.x)


CHECKS = (gives_starts, starts_lie_in_their_bounds, pieces_of_work_are_short, the_same_seed_gives_the_same_starts)
