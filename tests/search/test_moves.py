"""Neighbours of recorded motions against written lists, in their order. No solver runs.

A sequence is written as in "open @1 left! open": phases by what is closed or by their mode, the time of their end, and
"left!" for an impact.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from types import SimpleNamespace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.search.moves import neighbours
from nosnoc_py.sequences.contact_laws import ContactLaws
from nosnoc_py.sequences.filippov_laws import FilippovLaws
from nosnoc_py.sequences.plan import Plan

pytestmark = pytest.mark.quick


class Recorded:
    """Motion as a function of time, with its impacts (time, impulse)."""

    def __init__(self, state: Callable[[float], list[float]], impacts: dict[float, float], t0: float = 0.0) -> None:
        self.state, self.t0 = state, t0
        self.impacts = [SimpleNamespace(time=t0 + t, impulse=size) for t, size in impacts.items()]

    def __call__(self, t: Any) -> np.ndarray:
        """The state at a time, or the states at several."""
        return np.array([self.state(each - self.t0) for each in t] if np.ndim(t) else self.state(t - self.t0))


def found(system: Any, laws: Any, sequence: ns.Sequence, edges: list[float], motion: Recorded) -> list[str]:
    """The neighbours of a motion with these ends of its phases, as text."""
    end = motion(motion.t0 + edges[-1])
    program = SimpleNamespace(laws=laws, plan=Plan.of(sequence, laws), at_end=slice(None))
    point: Any = SimpleNamespace(program=program, edges=np.array(edges), p=np.zeros(0), w=end)
    ocp: Any = SimpleNamespace(system=system)
    solution: Any = motion
    return [text(neighbour) for neighbour in neighbours(ocp, point, solution)]


def text(sequence: ns.Sequence) -> str:
    """The sequence as in "open @1 left! open"."""
    words = []
    for k, (phase, impact) in enumerate(zip(sequence.phases, sequence.impacts, strict=True)):
        if k:
            assert sequence.times is not None
            words.append(f"@{sequence.times[k - 1]:.3g}")
        words += [f"{impact.removeprefix('impact ')}!"] if impact else []
        words.append(" ".join(name if mode == "closed" else mode for name, mode in phase.items()) or "open")
    return " ".join(words)


def two_walls() -> Any:
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    walls = [ns.Contact("left", gap=q[0]), ns.Contact("right", gap=q[1])]
    return ns.CLS(q=q, v=v, mass_matrix=np.eye(2), force=[0, 0], contacts=walls)


def listed(lines: str) -> list[str]:
    return [line.strip() for line in lines.strip().splitlines()]


BOUNCES = """
    open @0.333 left! open @1 left! open
    open @0.9 left! open @1 left! open
    open
    open @0.667 left! open @1 left! open
    open @0.9 left @1 left! open
    open
    open @1 left! open @1.33 left! open
    open @0.9 left @0.95 open @1 left! open
    open
    open @1 left! open @1.67 left! open
    open @1 left! open @1.1 left! open
    open @0.333 right! open @1 left! open
    open @1 left! open @1.1 left
    open @0.667 right! open @1 left! open
    open @1 left! open @1.1 left @1.55 open
    open @1 left! open @1.33 right! open
    open @0.5 right! open @1 left! open
    open @1 left! open @1.67 right! open
    open @0.5 right @1 left! open
    open @0.5 right @0.75 open @1 left! open
    open @1 left! open @1.1 right! open
    open @1 left! open @1.1 right
    open @1 left! open @1.1 right @1.55 open
"""
CHANGES = """
    left @1 left! open
    open @0.65 left @1 left! open
    left @0.35 open @1 left! open
    open @0.35 left @0.65 open @1 left! open
    right @1 left! open
    open @0.65 right @1 left! open
    right @0.35 open @1 left! open
    open @0.35 right @0.65 open @1 left! open
    open @1 left! left
    open @1 left! open @1.65 left
    open @1 left! left @1.35 open
    open @1 left! open @1.35 left @1.65 open
    open @1 left! right
    open @1 left! open @1.65 right
    open @1 left! right @1.35 open
    open @1 left! open @1.35 right @1.65 open
"""


@pytest.mark.parametrize("t0", [0.0, 5.0])
def test_a_bounce_between_two_walls(t0: float) -> None:
    """The left gap is smallest at the bounce, first before it; the right one at 0.5 s, and at the begin of phase 1."""
    system = two_walls()
    motion = Recorded(lambda t: [1.0 - t if t < 1 else 2.0 * (t - 1.0), 0.3 + (t - 0.5) ** 2, 0.0, 0.0], {1.0: 1.0}, t0)
    bounce = ns.Sequence([{}, "impact left", {}])
    assert found(system, ContactLaws(system), bounce, [0.0, 1.0, 2.0], motion) == listed(BOUNCES) + listed(CHANGES)


def test_the_order_follows_the_gaps() -> None:
    """A motion that comes nearer to the right wall than to the left one begins there."""
    system = two_walls()
    motion = Recorded(lambda t: [0.4 + (t - 0.3) ** 2, 0.3 + (t - 0.5) ** 2, 0.0, 0.0], {})
    first = found(system, ContactLaws(system), ns.Sequence([{}]), [0.0, 1.0], motion)
    assert first[:10] == listed("""
        open @0.333 right! open
        open @0.5 right! open
        open @0.667 right! open
        open @0.5 right
        open @0.333 left! open
        open @0.5 right @0.75 open
        open @0.667 left! open
        open @0.3 left! open
        open @0.3 left
        open @0.3 left @0.65 open
    """)
    # A contact that is closed has no gap to close; a phase of no length has none either.
    closed = found(system, ContactLaws(system), ns.Sequence([{"right": "closed"}]), [0.0, 1.0], motion)
    assert closed[:2] == ["right @0.65 open", "right @0.333 left! right"]  # at the end it is open
    assert not any("right!" in line for line in closed)
    empty = found(system, ContactLaws(system), ns.Sequence([{}, {"right": "closed"}]), [0.0, 0.0, 1.0], motion)
    assert not any("@0 left!" in line for line in empty)


def test_many_bounces_keep_the_hardest_and_come_to_rest() -> None:
    """Three bounces on the left wall with impulses 1, 3 and 2, and a left gap of zero at the end."""
    system = two_walls()
    motion = Recorded(
        lambda t: [abs(np.sin(np.pi * t)) if t < 4 else 0.0, 2.0, 0.0, 0.0], {1.0: 1.0, 2.0: -3.0, 3: 2.0}, 7.0
    )
    bounces = ns.Sequence([{}, "impact left", {}, "impact left", {}, "impact left", {}])
    lines = found(system, ContactLaws(system), bounces, [0.0, 1.0, 2.0, 3.0, 4.0], motion)
    assert lines[0] == "open @1 left! open @2 left! open @3 left! open @3.65 left"
    # In the first rows: rest at the end, one more impact, the hardest, an impact at the smallest gap, one phase less.
    assert lines[2] == "open @2 left! open"
    assert lines[4] == "open @2 left! open @3 left! open"
    assert lines[6] == "open @2 left! open @3 left! open"  # the next row: the two hardest
    assert "open @1 left! open @2 left! open" in lines
    assert "open @1 left! open @3 left! open" in lines


def test_an_impact_between_other_modes_is_no_bounce() -> None:
    system = two_walls()
    motion = Recorded(lambda t: [1.0, 1.0, 0.0, 0.0], {1.0: 1.0, 2.0: 2.0})
    lands = ns.Sequence([{}, "impact left", {"right": "closed"}, "impact left", {"right": "closed"}])
    lines = found(system, ContactLaws(system), lands, [0.0, 1.0, 2.0, 3.0], motion)
    # Only one of both is a bounce: none is the hardest of several. The other one goes with its phase, or alone.
    assert lines.count("open @1 right") == 0
    assert "open @1 right @2 left! right" in lines
    assert "open @1 left! right" in lines
    assert "right @2 left! right" in lines


def test_a_contact_with_friction_has_all_its_modes() -> None:
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    ground = ns.Contact("ground", gap=q[1], tangent=[1, 0], friction=0.5)
    system = ns.CLS(q=q, v=v, mass_matrix=np.eye(2), force=[0, -9.81], contacts=[ground])
    motion = Recorded(lambda t: [0.0, 0.2 + (t - 0.5) ** 2, 0.0, 0.0], {})
    lines = found(system, ContactLaws(system), ns.Sequence([{}]), [0.0, 1.0], motion)
    assert lines[:9] == listed("""
        open @0.333 ground! open
        open @0.5 ground! open
        open @0.667 ground! open
        open @0.5 stick
        open @0.5 stick @0.75 open
        open @0.5 slip+
        open @0.5 slip+ @0.75 open
        open @0.5 slip-
        open @0.5 slip- @0.75 open
    """)
    assert lines[9:] == [
        line.replace("stick", word) for word in ("stick", "slip+", "slip-") for line in listed("""
            stick
            open @0.65 stick
            stick @0.35 open
            open @0.35 stick @0.65 open
        """)
    ]  # fmt: skip


def test_a_filippov_switch() -> None:
    """A state that reaches its surface at 1 s and slides on it: equal modes are merged, and there are no impacts."""
    x = ca.SX.sym("x")
    modes = ns.Modes("side", flows=[1.0, -1.0], functions=x, signs=[[-1], [1]])
    system = ns.PSS(x=x, modes=modes)
    motion = Recorded(lambda t: [min(t - 1.0, 0.0)], {})
    slides = ns.Sequence([{"side": "-"}, {"side": "0"}])
    assert found(system, FilippovLaws(system), slides, [0.0, 1.0, 2.0], motion) == listed("""
        0
        -
        + @1 0
        - @0.65 + @1 0
        + @0.35 - @1 0
        - @0.35 + @0.65 - @1 0
        0
        - @0.65 0
        0 @0.35 - @1 0
        - @0.35 0 @0.65 - @1 0
        - @1 +
        - @1 0 @1.65 +
        - @1 + @1.35 0
        - @1 0 @1.35 + @1.65 0
        -
        - @1 0 @1.65 -
        - @1.35 0
        - @1 0 @1.35 - @1.65 0
    """)


def test_a_motion_that_ends_on_the_surface_may_stay_there() -> None:
    x = ca.SX.sym("x")
    modes = ns.Modes("side", flows=[1.0, -1.0], functions=x, signs=[[-1], [1]])
    system = ns.PSS(x=x, modes=modes)
    motion = Recorded(lambda t: [min(t - 1.0, 0.0)], {})
    lines = found(system, FilippovLaws(system), ns.Sequence([{"side": "-"}]), [0.0, 1.0], motion)
    assert list(islice(lines, 3)) == ["- @0.65 0", "+", "- @0.65 +"]


def test_jumps_of_the_user_are_added_where_their_guard_is_least_and_never_last() -> None:
    """The guard x falls to 0.2 in the middle of a second: further jumps there, and at a third and two thirds."""
    x = ca.SX.sym("x")
    jump = ns.StateJump("kick", guard=x, reset=x + 1)
    system = ns.HybridSystem(x=x, flow=ca.SX(-1), jumps=[jump])
    laws = FilippovLaws(system)
    motion = Recorded(lambda t: [0.2 + 4 * (t - 0.5) ** 2], {})
    neighbours_found = found(system, laws, ns.Sequence([{}]), [0.0, 1.0], motion)
    assert sorted(neighbours_found) == [f"open @{t} kick! open" for t in ("0.333", "0.5", "0.667")]
    with pytest.raises(ns.ModelError, match="jumps"):
        Plan.of(ns.Sequence([{"kick": "jumps"}]), laws)
