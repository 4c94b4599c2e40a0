"""Random scenes against the event-driven oracle: what is found, and what would be."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from tests.pairwise import slow_row
from tests.references import fuzzing
from tests.references.event_oracle import Contacts, Filippov, motion

SMALL = 1e-8


def contacts(system: ns.CLS, **options: float) -> Contacts:
    return Contacts(system, length=1.0, speed=1.0, size=np.ones(2 * system.n_q), **options)


def particle(friction: float, restitution: float) -> ns.CLS:
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=friction, restitution=restitution)
    return ns.CLS(q=q, v=v, mass_matrix=2 * ca.DM.eye(2), force=ca.DM([0, -20]), contacts=[ground])


def test_the_oracle_bounces_slides_and_stops() -> None:
    """Falls 1.25 m in .5 s, rebounds with 2.5 m/s, which costs mu (5 + 2.5) = 1.5 m/s of the slip, and lands again."""
    x, events, _ = motion(contacts(particle(0.2, 0.5)), np.array([0.0, 1.25, 4.0, 0.0]), 0.9)
    assert events == 1
    np.testing.assert_allclose(x, [2.0 + 2.5 * 0.4, 1.0 - 0.8, 2.5, -1.5], atol=SMALL)
    # Slides from 1 m/s with 2 m/s^2 for half a second.
    x, events, _ = motion(contacts(particle(0.2, 0.5)), np.array([0.0, 0.0, 1.0, 0.0]), 0.9)
    assert events == 1
    np.testing.assert_allclose(x, [0.25, 0.0, 0.0, 0.0], atol=SMALL)


def test_slow_impacts_of_the_oracle_do_not_bounce() -> None:
    x, *_ = motion(contacts(particle(0.0, 0.5), rest=6.0), np.array([0.0, 1.25, 0.0, 0.0]), 0.9)
    np.testing.assert_allclose(x, 0.0, atol=SMALL)


def test_the_oracle_crosses_slides_and_leaves() -> None:
    """x' = t - 2 or t + 2 by the sign of x: the surface is reached from 1/2 and left where the drift t beats 2."""
    x = ca.SX.sym("x", 2)
    modes = ns.Modes("m", flows=[ca.vertcat(x[1] - 2, 1), ca.vertcat(x[1] + 2, 1)], functions=x[0], signs=[[1], [-1]])
    system = ns.PSS(x=x, modes=modes)
    found, events, _ = motion(Filippov(system, length=1.0, time=1.0), np.array([0.5, 0.0]), 3.0)
    assert events == 2
    np.testing.assert_allclose(found, [0.5, 3.0], atol=1e-7)


@pytest.mark.parametrize(
    ("kind", "indices"),
    [
        ("bodies", (5, 9, 11, 14)),
        ("filippov", range(4)),
        ("coupled", (1, 2, 3, 6)),
        ("timed", (2, 7, 10)),
        ("friction", (0, 1, 10)),
        ("shapes", range(4)),
    ],
)
def test_random_scenes_are_right(kind: str, indices: Any) -> None:
    verdicts = [fuzzing.judge(kind, 0, index)["verdict"] for index in indices]
    assert not set(verdicts) & set(fuzzing.BAD)
    assert verdicts.count(fuzzing.RIGHT) >= 3


@pytest.mark.parametrize(
    ("seed", "index", "verdict"),
    [
        slow_row(7, 70, fuzzing.RIGHT),  # a disc between a point and the ground: impacts within microseconds
        (8, 110, fuzzing.RIGHT),  # at rest 266 m away from the origin, where a gap is known to 4e-14 m
        slow_row(9, 187, fuzzing.RIGHT),  # sticks as long as friction holds it down, then opens
        (0, 9, fuzzing.GAINS),
        (9, 275, fuzzing.NO_MOTION),
    ],
)
def test_scenes_that_once_failed(seed: int, index: int, verdict: str) -> None:
    """Right, or a failure of the laws on which the oracle agrees; what its message advises helps."""
    found = fuzzing.judge("bodies", seed, index)
    assert found["verdict"] == verdict
    assert found.get("remedy", True)


def test_wrong_inputs_are_told() -> None:
    verdicts = [fuzzing.judge("inputs", 0, index)["verdict"] for index in range(30)]
    assert fuzzing.RAW not in verdicts
    assert verdicts.count(fuzzing.CLEAR) >= 20


@pytest.mark.parametrize("times", [1j, b"x", "", {}, 10**400])
def test_what_is_no_time_is_told(times: Any) -> None:
    """Found by the wrong inputs."""
    found = ns.simulate(particle(0.0, 0.0), x0=[0.0, 1.0, 0.0, 0.0], duration=0.01)
    with pytest.raises(ns.NosnocError, match="t: expected a time"):
        found(times)
    with pytest.raises(ns.NosnocError, match="times: expected times"):
        ns.simulate(particle(0.0, 0.0), x0=[0.0, 1.0, 0.0, 0.0], duration=0.01, times=times)


def test_what_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Negative controls: an error of 1e-3, an exception, a simulation without end, one that says that it failed."""

    def raises(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    def never_ends(*_: Any, **__: Any) -> None:
        while True:
            pass

    for kind, index, share in (("bodies", 5, 1e-3), ("filippov", 4, 1e-3), ("friction", 0, 1e-3), ("shapes", 4, 0.1)):
        assert fuzzing.judge(kind, 0, index, fuzzing.spoiled(ns.simulate, share))["verdict"] == fuzzing.WRONG
    assert fuzzing.judge("filippov", 0, 4, fuzzing.spoiled(ns.simulate, 1e-9))["verdict"] == fuzzing.RIGHT
    assert fuzzing.judge("filippov", 0, 4, raises)["verdict"] == fuzzing.RAISED
    short = lambda *given, **named: ns.simulate(*given, **named, time_limit=0.0)  # noqa: E731
    assert fuzzing.judge("filippov", 0, 4, short)["verdict"] == fuzzing.HONEST
    monkeypatch.setattr(fuzzing, "SECONDS", 0.05)
    assert fuzzing.judge("filippov", 0, 4, never_ends)["verdict"] == fuzzing.HANG


def test_the_oracle_breaks_loose_at_static_friction() -> None:
    """Pushed by a force of 1 N/s: loose at .6 m g, and at most 1e-7 of it later; then m x'' = t - .4 m g."""
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0, 0]), friction=0.4, static_friction=0.6)
    push = ca.vertcat(q[2], -10.0, 0.0)
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(3), force=push, contacts=[ground])
    x, events, _ = motion(contacts(system), np.array([0.0, 0, 0, 0, 0, 1.0]), 8.0)
    assert events == 1
    np.testing.assert_allclose(x[3], (64 - 36) / 2 - 4 * 2, atol=5e-6)
