"""The motions of the cases are solutions: they fit together, satisfy their flows, and keep to their regions."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models.switching_cases import ABOVE, BELOW, BY_NAME, CASES, SLIDING, Case, build, case, exact, repulsive

pytestmark = pytest.mark.quick

SIGN = {BELOW: -1, ABOVE: 1, SLIDING: 0}


def flows(chosen: Case, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The flows below and above, from the system's own expressions, at one state."""
    system = build(chosen)
    surface, *gate = system.modes
    at = ca.Function("flows", [system.x], [*surface.flows, *(m.flows[1] for m in gate)])(x)
    values = [np.array(value).reshape(-1) for value in at]
    more = values[2] if gate and x[1] > chosen.gate[0] else np.zeros(2)
    return values[0] + more, values[1] + more


@pytest.mark.parametrize("name", BY_NAME)
def test_motion_satisfies_the_inclusion(name: str) -> None:
    chosen = BY_NAME[name]
    ends = [*chosen.event_times, chosen.duration]
    for phase, end in zip(chosen.phases, ends, strict=True):
        for t in np.linspace(phase.start, end, 9)[1:-1]:
            rate = (exact(chosen, t + 1e-6)[0] - exact(chosen, t - 1e-6)[0]) / 2e-6
            below, above = flows(chosen, exact(chosen, t)[0])
            distance = chosen.distance(exact(chosen, t))[0]
            if phase.mode == SLIDING:
                assert abs(distance) < 1e-14
                share = np.dot(rate - below, above - below) / np.dot(above - below, above - below)
                assert -1e-8 <= share <= 1 + 1e-8
                assert rate == pytest.approx(below + share * (above - below), abs=1e-8)
            else:
                assert SIGN[phase.mode] * distance > 0
                assert rate == pytest.approx(above if phase.mode == ABOVE else below, abs=1e-8)


@pytest.mark.parametrize("name", BY_NAME)
def test_pieces_fit_together(name: str) -> None:
    chosen = BY_NAME[name]
    assert exact(chosen, 0.0)[0] == pytest.approx(chosen.x0, abs=1e-15)
    for at in chosen.event_times:
        assert exact(chosen, at - 1e-13)[0] == pytest.approx(exact(chosen, at)[0], abs=1e-11)
        assert abs(chosen.distance(exact(chosen, at))[0]) < 1e-14


def test_events_are_what_the_names_say() -> None:
    kinds = {chosen.name: chosen.event_kinds for chosen in CASES}
    assert kinds["crossing"] == ("switch",)
    assert kinds["sliding"] == kinds["sliding on a curve"] == ("enter_sliding",)
    assert kinds["leaving"] == kinds["released"] == ("enter_sliding", "leave_sliding")
    assert kinds["repulsive"] == ()


def test_repulsive_motions_are_solutions() -> None:
    t = np.array([0.0, 0.4, 1.5])
    assert repulsive(t, 0.5, -1)[:, 0] == pytest.approx([0.0, 0.0, -1.0], abs=1e-15)
    assert [chosen.name for chosen in CASES if not chosen.unique] == ["repulsive"]


def test_unknown_case() -> None:
    with pytest.raises(ns.ModelError, match="crossing"):
        case("crosing")
    with pytest.raises(ns.ModelError, match="starts at t = 0"):
        exact(CASES[0], -1.0)
