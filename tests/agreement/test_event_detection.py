"""FESD-J against an independent integration: DOP853 with events, impacts by Newton's law."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import nosnoc_py as ns

pytestmark = pytest.mark.quick


@dataclass(frozen=True)
class Reference:
    """The same system in plain NumPy: x' = flow(t, x), mass matrix M(q), (gap, normal, restitution) per contact."""

    flow: Callable[[float, np.ndarray], np.ndarray]
    mass: Callable[[np.ndarray], np.ndarray]
    contacts: Sequence[tuple[Callable, Callable, float]]

    def run(self, x0: Sequence[float], duration: float) -> tuple[np.ndarray, list[tuple[float, int, float]]]:
        """Final state, and (time, contact, impulse) of every impact."""
        t, x, n, impacts = 0.0, np.array(x0, float), len(x0) // 2, []
        events = []
        for gap, _, _ in self.contacts:
            event = lambda t, x, gap=gap: gap(x[:n])  # noqa: E731
            event.terminal, event.direction = True, -1
            events.append(event)
        while True:
            found = solve_ivp(self.flow, (t, duration), x, method="DOP853", rtol=1e-13, atol=1e-13, events=events)
            t, x = float(found.t[-1]), found.y[:, -1].copy()
            if found.status == 0:
                return x, impacts
            k = next(i for i, times in enumerate(found.t_events) if len(times))
            _, normal, e = self.contacts[k]
            direction, inverse = normal(x[:n]), np.linalg.inv(self.mass(x[:n]))
            impulse = -(1 + e) * (direction @ x[n:]) / (direction @ inverse @ direction)
            x[n:] += inverse @ direction * impulse
            impacts.append((t, k, float(impulse)))


GRAVITY = np.array([2.0, -9.0])
MASS = np.array([[2.0, 0.3], [0.3, 1.0]])


def corner() -> tuple[ns.CLS, Reference]:
    """A point with drag in a tilted field between a floor and a wall, which have different restitutions."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    system = ns.CLS(
        q=q,
        v=v,
        mass_matrix=ca.DM(MASS),
        force=ca.DM(GRAVITY) - 0.2 * v * ca.sqrt(0.01 + ca.sumsqr(v)),
        contacts=[
            ns.Contact("floor", gap=q[1], restitution=0.7),
            ns.Contact("wall", gap=1.5 - q[0], restitution=0.4),
        ],
    )

    def flow(t: float, x: np.ndarray) -> np.ndarray:
        v = x[2:]
        return np.concatenate([v, np.linalg.solve(MASS, GRAVITY - 0.2 * v * np.sqrt(0.01 + v @ v))])

    floor = (lambda q: q[1], lambda q: np.array([0.0, 1.0]), 0.7)
    wall = (lambda q: 1.5 - q[0], lambda q: np.array([-1.0, 0.0]), 0.4)
    return system, Reference(flow, lambda q: MASS, (floor, wall))


CART, BOB, LENGTH = 1.0, 0.5, 0.8


def cart_pole() -> tuple[ns.CLS, Reference]:
    """A pendulum on a sprung cart, whose tip hits a wall: M and the normal depend on q."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    coupling = BOB * LENGTH * ca.cos(q[1])
    system = ns.CLS(
        q=q,
        v=v,
        mass_matrix=ca.blockcat([[CART + BOB, coupling], [coupling, BOB * LENGTH**2]]),
        force=ca.vertcat(BOB * LENGTH * ca.sin(q[1]) * v[1] ** 2 - 2 * q[0], -BOB * 9.81 * LENGTH * ca.sin(q[1])),
        contacts=[ns.Contact("wall", gap=0.35 - q[0] - LENGTH * ca.sin(q[1]), restitution=0.6)],
        names={"q": ["cart", "angle"], "v": ["cart_rate", "angle_rate"]},
    )

    def mass(q: np.ndarray) -> np.ndarray:
        coupling = BOB * LENGTH * np.cos(q[1])
        return np.array([[CART + BOB, coupling], [coupling, BOB * LENGTH**2]])

    def flow(t: float, x: np.ndarray) -> np.ndarray:
        force = [BOB * LENGTH * np.sin(x[1]) * x[3] ** 2 - 2 * x[0], -BOB * 9.81 * LENGTH * np.sin(x[1])]
        return np.concatenate([x[2:], np.linalg.solve(mass(x[:2]), force)])

    wall = (
        lambda q: 0.35 - q[0] - LENGTH * np.sin(q[1]),
        lambda q: np.array([-1.0, -LENGTH * np.cos(q[1])]),
        0.6,
    )
    return system, Reference(flow, mass, (wall,))


CASES = {
    # name: (system, x0, duration, steps, bound of the error at the finer grid, impacts)
    "corner": (corner, (0.0, 1.0, 1.4, 0.0), 1.2, (20, 40), 1e-8, 3),
    "cart_pole": (cart_pole, (0.0, -1.2, 0.3, 0.0), 1.5, (20, 40), 3e-7, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_states_and_impacts_agree_to_the_order_of_the_scheme(name: str) -> None:
    make, x0, duration, steps, bound, count = CASES[name]
    system, reference = make()
    final, impacts = reference.run(x0, duration)
    assert len(impacts) >= count
    errors = []
    for n in steps:
        trajectory = ns.simulate(system, x0=x0, duration=duration, steps=n, method=ns.FESDJ(rk_stages=3))
        assert trajectory.success
        assert [i.name for i in trajectory.impacts] == [system.contacts[k].name for _, k, _ in impacts]
        times = [abs(i.time - t) for i, (t, _, _) in zip(trajectory.impacts, impacts, strict=True)]
        impulses = [abs(i.impulse - value) for i, (_, _, value) in zip(trajectory.impacts, impacts, strict=True)]
        errors.append(max(np.abs(trajectory.final_state - final).max(), *times, *impulses))
    assert errors[-1] < bound
    assert np.log2(errors[0] / errors[1]) > 4.0  # Radau IIA with three stages: 5


@pytest.mark.parametrize("name", CASES)
def test_lifting_the_acceleration_changes_nothing(name: str) -> None:
    make, x0, duration, *_ = CASES[name]
    system, _ = make()
    found = [
        ns.simulate(
            system,
            x0=x0,
            duration=duration,
            steps=20,
            method=ns.FESDJ(rk_stages=3, lift_acceleration=lift),
        )
        for lift in (False, True)
    ]
    assert all(trajectory.success for trajectory in found)
    np.testing.assert_allclose(found[0].final_state, found[1].final_state, rtol=0, atol=1e-10)
    assert "acceleration[" in "".join(found[1].names)
    assert "acceleration[" not in "".join(found[0].names)


def test_two_events_in_one_step_of_three_elements() -> None:
    system, reference = corner()
    x0 = (1.4, 0.1, 1.0, -1.0)
    final, impacts = reference.run(x0, 0.2)
    assert [k for _, k, _ in impacts] == [0, 1]
    trajectory = ns.simulate(system, x0=x0, duration=0.2, steps=1, method=ns.FESDJ(rk_stages=4, finite_elements=3))
    assert trajectory.success
    assert [i.name for i in trajectory.impacts] == ["floor", "wall"]
    np.testing.assert_allclose([i.time for i in trajectory.impacts], [t for t, _, _ in impacts], rtol=0, atol=1e-9)
    np.testing.assert_allclose(trajectory.final_state, final, rtol=0, atol=2e-8)
    too_few = ns.simulate(system, x0=x0, duration=0.2, steps=1, method=ns.FESDJ(rk_stages=4, finite_elements=2))
    assert too_few.success  # the step is halved
    assert len(too_few.u_grid) > 2
    np.testing.assert_allclose(too_few.final_state, final, rtol=0, atol=2e-8)
