"""What every result says about itself in a few lines."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

import nosnoc_py as ns

pytestmark = pytest.mark.quick


def trajectory(events: int = 1, **more: object) -> ns.Trajectory:
    times = np.linspace(0.1, 0.9, events)
    given: dict[str, object] = {
        "t": [0.0, 1.0],
        "x": [[1.0, 0.0], [0.5, -2.0]],
        "state_names": ("q", "v"),
        "u_grid": [0.0, 1.0],
        "u": np.zeros((1, 0)),
        "control_names": (),
        "events": tuple(ns.Event(float(t), "ground", "impact", 1.0, -1.0, 0.5) for t in times),
        **more,
    }
    return ns.Trajectory(**given)  # type: ignore[arg-type]


def test_the_summary_of_a_trajectory() -> None:
    lines = trajectory().summary().splitlines()
    assert lines[0] == "solved, t = 0 .. 1 s, 2 nodes"
    assert lines[1] == "  final state: q = 0.5, v = -2"
    assert lines[2].startswith("  impact ground at 0.1, impulse 1 N s")
    assert len(lines) == 3
    assert "no events" in trajectory(0).summary()


def test_long_lists_are_cut_and_failures_say_what_to_try() -> None:
    text = trajectory(50, status=ns.Status.INFEASIBLE, message="it stopped").summary()
    assert len(text.splitlines()) < 30
    assert "and 30 more events" in text
    assert "note: it stopped" in text
    assert f"What to try: {ns.Status.INFEASIBLE.remedy}" in text
    assert "What to try" not in trajectory(50).summary()


def test_a_solution_cuts_its_events_too() -> None:
    given = {f.name: getattr(trajectory(50), f.name) for f in fields(ns.Trajectory) if f.init}
    residuals = {"complementarity": 1.0, "complementarity_min": 1.0, "infeasibility": 1.0}
    solution = ns.Solution(**given, **residuals, objective=0.0, x0=[1.0, 0.0], horizon=1.0)
    lines = solution.summary().splitlines()
    assert sum(line.startswith("  impact ground") for line in lines) == 20
    assert "  ... and 30 more events" in lines


def test_an_event_is_short_in_a_list() -> None:
    assert repr([ns.Event(0.25, "ground", "impact", 2.0, -1.0, 0.5)]) == (
        "[<impact ground at 0.25, impulse 2 N s, velocity -1 -> 0.5>]"
    )
