"""Piles that rattle: time-stepping between two parts of an event-driven simulation, beside all events."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.simulation.event_driven import accumulation

WIDTH, HEIGHT = 0.2, 0.05
DURATION = 0.4


def planks(restitution: float = 0.0) -> tuple[ns.CLS, np.ndarray]:
    """Return two planks above each other that fall tilted, hit the floor and each other, slip and rest."""
    q, v = ca.SX.sym("q", 6), ca.SX.sym("v", 6)
    moves, x, y = ns.Coordinates(q, v), WIDTH / 2, HEIGHT / 2
    shape = ns.ConvexPolygon([(-x, -y), (x, -y), (x, y), (-x, y)])
    low, high = (ns.Placed(shape, q[k : k + 2], q[k + 2], coordinates=moves) for k in (0, 3))
    laws: dict[str, Any] = {"friction": 0.5, "restitution": restitution}
    contacts = [*ns.contacts(low, ns.HalfSpace((0, 1)), name="floor", **laws)]
    contacts += ns.contacts(low, high, name="pair", **laws)
    inertia = (WIDTH**2 + HEIGHT**2) / 12
    mass = ca.diag([1.0, 1.0, inertia] * 2)
    system = ns.CLS(q=q, v=v, mass_matrix=mass, force=ca.DM([0, -9.81, 0] * 2), contacts=contacts)
    return system, np.array([0.0, y + 0.008, 0.05, 0.01, 3 * y + 0.018, -0.05, *np.zeros(6)])


def test_steps_end_where_all_events_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """With limits that take these few impacts for a rattle; their positions are of first order."""
    system, x0 = planks()
    exact = ns.simulate(system, x0=x0, duration=DURATION)
    assert exact.success
    assert not exact.message
    monkeypatch.setattr(accumulation, "NODES_OF_A_RATTLE", 3)
    monkeypatch.setattr(accumulation, "SOON", 1.0)
    monkeypatch.setattr(accumulation, "MOST_ROCKING", -1)
    stepped = ns.simulate(system, x0=x0, duration=DURATION)
    assert stepped.success
    assert stepped.message.startswith("bodies rattle from t = ")
    told = sum(float(part.split()[-1]) for part in stepped.message.split(" apart")[:-1])
    assert 0.0 < told < 1e-3
    away = np.abs(stepped.final_state - exact.final_state)
    assert away[:6].max() < 10.0 * told
    assert away[6:].max() < 1e-4
    times = [event.time for event in stepped.events]
    assert times == sorted(times)
    assert {event.name for event in stepped.impacts} == {event.name for event in exact.impacts}
    # The floor carries both planks at the end.
    assert sum(stepped[f"lambda_normal[floor {k + 1}]"][-1] for k in range(4)) == pytest.approx(2 * 9.81, rel=1e-4)
    all_events = ns.simulate(system, x0=x0, duration=DURATION, method=ns.EventDriven(rattling="events"))
    assert not all_events.message
    assert np.array_equal(all_events.final_state, exact.final_state)


def nodes(count: int, contacts: int, apart: float, bounce: float = np.inf) -> list[Any]:
    """Return impacts of contacts in turns."""
    return [
        SimpleNamespace(
            t=apart * k,
            impact=SimpleNamespace(bounce=bounce),
            events=[ns.Event(apart * k, f"contact {k % contacts}", "contact")],
        )
        for k in range(count)
    ]


FLOW: Any = SimpleNamespace(scales=SimpleNamespace(length=0.1, speed=0.1))


def test_a_rattle_has_many_inelastic_impacts_of_several_contacts_soon_after_each_other() -> None:
    many = accumulation.NODES_OF_A_RATTLE
    assert accumulation.step_of_rattle(nodes(many, 3, 1e-5), FLOW) == pytest.approx(1e-5, rel=0.02)
    others = {
        "fewer": nodes(many - 1, 3, 1e-5),
        "one body that rocks": nodes(many, 2, 1e-5),
        "slow": nodes(many, 3, 2e-4),
        "balls that bounce": nodes(many, 3, 1e-5, bounce=0.1),
    }
    assert {name: accumulation.step_of_rattle(each, FLOW) for name, each in others.items()} == dict.fromkeys(others, 0)


def test_derivatives_follow_every_event(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where a rattle would be stepped over: there the motion has none."""
    system, x0 = planks()
    monkeypatch.setattr(accumulation, "NODES_OF_A_RATTLE", 1)
    monkeypatch.setattr(accumulation, "SOON", 1e9)
    monkeypatch.setattr(accumulation, "MOST_ROCKING", -1)
    motion = ns.simulate(system, x0=x0, duration=0.05, sensitivities=True)
    assert "rattle" not in motion.message
    assert motion.sensitivity is not None
