"""The names of events from what was and what is."""

from __future__ import annotations

from itertools import product

import pytest

from nosnoc_py.motion.kinds import events_at, of_modes, of_sides

pytestmark = pytest.mark.quick

NONE = float("nan")


def test_changes_of_modess() -> None:
    """All sixteen changes of (closed, slips), with and without a turn: five kinds, each where it is due."""
    for was, is_, slid, slides, turns in product((False, True), repeat=5):
        found = of_modes((was, is_), (slid, slides), turns)
        if not was and is_:
            expected = "contact"
        elif was and not is_:
            expected = "release"
        elif not is_ or (slid == slides and not (slid and turns)):
            expected = None
        else:
            expected = "reversal" if slid and slides else "slip" if slides else "stick"
        assert found == expected, (was, is_, slid, slides, turns)


@pytest.mark.parametrize(
    ("before", "after", "kind"),
    [
        (1.0, -1.0, "switch"),
        (-1.0, 1.0, "switch"),
        (1.0, 1.0, None),
        (1.0, NONE, "enter_sliding"),
        (NONE, -1.0, "leave_sliding"),
        (NONE, NONE, None),
    ],
)
def test_changes_of_sides(before: float, after: float, kind: str | None) -> None:
    """Sides of a surface; NaN is on it."""
    assert of_sides(before, after) == kind


def test_events_of_an_instant() -> None:
    """What has no kind is no event; the order stays."""
    found = events_at(0.5, [("a", "slip"), ("b", None), ("c", "contact")])
    assert [(event.time, event.name, event.kind) for event in found] == [(0.5, "a", "slip"), (0.5, "c", "contact")]
