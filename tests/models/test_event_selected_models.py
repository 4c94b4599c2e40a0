"""Affine guards, hopper and plate: closed forms against other derivations, CasADi against NumPy, errors."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm
from scipy.optimize import brentq

import nosnoc_py as ns
from models import affine_guards, plate_on_springs, spring_hopper
from nosnoc_py.errors import ModelError
from tests.references.plate import reference

# x' = A x + b by the bits (b_x, b_y, b_z) that the motion runs through: Table 1 of ESS by hand.
PIECES = {
    (0, 0, 0): ([[0, -1, 0], [1, 0, 0], [0, 0, -1]], [1, 1, -1]),
    (0, 1, 0): ([[0, 1, 0], [-1, 0, 0], [0, 0, -1]], [1, 1, -1]),
    (0, 1, 1): ([[0, 1, 0], [-1, 0, 0], [0, 0, 3]], [1, 1, -1]),
    (1, 1, 1): ([[10, 0, 0], [0, 1, 0], [0, 0, 3]], [1, 1, -1]),
}
OTHERS = [(1, 0, 0), (1, 0, 1), (0, 0, 1), (1, 1, 0)]


def affine(bits: tuple[int, ...], x: np.ndarray, t: float) -> np.ndarray:
    """The flow of a piece for the time t by a matrix exponential."""
    a, b = (np.array(part, dtype=float) for part in PIECES[bits])
    full = np.zeros((4, 4))
    full[:3, :3], full[:3, 3] = a, b
    return np.asarray((expm(full * t) @ np.append(x, 1.0))[:3])


def test_affine_guards_against_matrix_exponentials() -> None:
    x, t, times = np.array(affine_guards.START), 0.0, affine_guards.crossing_times()
    for bits, guard in zip(PIECES, (1, 2, 0), strict=False):
        found = brentq(lambda s, x=x, b=bits, g=guard: affine(b, x, s)[g], 1e-3, 0.3, xtol=1e-15, rtol=1e-14)
        x, t = affine(bits, x, found), t + found
        assert t == pytest.approx(times["xyz"[guard]], abs=2e-14)
        assert affine_guards.exact(t)[0] == pytest.approx(x, abs=2e-14)
    end = affine((1, 1, 1), x, affine_guards.DURATION - t)
    assert affine_guards.exact(affine_guards.DURATION)[0] == pytest.approx(end, abs=1e-13)
    assert list(times) == ["y", "z", "x"]
    assert list(times.values()) == pytest.approx([0.209588078334645, np.log(1.3), 0.369207153821750], abs=1e-15)


def test_affine_guards_closed_form_is_bounded() -> None:
    with pytest.raises(ModelError, match=r"closed form is for 0 <= t <= 0\.5"):
        affine_guards.exact([0.1, 0.6])


@pytest.mark.parametrize("bits", [*PIECES, *OTHERS])
def test_affine_flow_of_every_mode(bits: tuple[int, ...]) -> None:
    system, numeric = affine_guards.build(), affine_guards.build_numeric()
    flow = ca.Function("flow", [system.x, system.mode], [system.flow, ca.jacobian(system.flow, system.x)])
    x, mode = np.array([0.3, -0.7, 0.2]), np.array(bits, dtype=float)
    value, jacobian = (np.array(part) for part in flow(x, mode))
    assert numeric.flow(x, mode) == pytest.approx(value[:, 0], abs=1e-15)
    assert numeric.flow_jacobian is not None
    assert numeric.flow_jacobian(x, mode) == pytest.approx(jacobian, abs=1e-15)
    if bits in PIECES:
        a, b = PIECES[bits]
        assert value[:, 0] == pytest.approx(np.array(a) @ x + b, abs=1e-15)
    else:  # Table 1 once more: x' = 1 - 2 y or 1 - y, y' = x / 2 + 2 or 1 + x before y is crossed
        first = 1 - (1 + bits[0]) * x[1] if not bits[1] else 1 + 10 * x[0]
        second = (2 + x[0] / 2 if bits[0] else 1 + x[0]) if not bits[1] else 1 + x[1]
        third = 3 * x[2] - 1 if bits[2] else -x[2] - 1
        assert value[:, 0] == pytest.approx([first, second, third], abs=1e-15)


@pytest.mark.parametrize(
    ("stiffness", "stance", "end"),
    [(100.0, 0.357750114255292, (0.69129225, 4.01830793)), (400.0, 0.16810831670011, (1.9006616, 1.39607285))],
)
def test_hopper_closed_form(stiffness: float, stance: float, end: tuple[float, float]) -> None:
    constants = spring_hopper.Constants(stiffness=stiffness)
    assert constants.fall == pytest.approx(0.4515236409857309, abs=1e-15)
    assert constants.stance == pytest.approx(stance, abs=1e-14)
    assert spring_hopper.exact(2.0, constants)[0] == pytest.approx(end, abs=5e-9)


def test_hopper_closed_form_fulfils_the_equation() -> None:
    """Pieces between events by an integrator, each from the closed form at its beginning."""
    c = spring_hopper.Constants(stiffness=130.0, mass=1.7, height=1.6, length=0.9)
    events = spring_hopper.crossing_times(3.0, c)
    assert [kind for kind, _ in events[:4]] == ["contact", "release"] * 2
    times = [0.0, *(time for _, time in events), 3.0]
    for k, (a, b) in enumerate(pairwise(times)):
        pressed = k % 2

        def flow(_: float, x: np.ndarray, pressed: int = pressed) -> Any:
            return x[1], pressed * c.stiffness / c.mass * (c.length - x[0]) - c.gravity

        start = spring_hopper.exact(a, c)[0]
        found = solve_ivp(flow, (a, b), start, method="DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
        assert spring_hopper.exact(b, c)[0] == pytest.approx(found, abs=1e-10)
    for _, time in events:
        assert spring_hopper.exact(time, c)[0, 0] == pytest.approx(c.length, abs=1e-13)


@pytest.mark.parametrize("build", [spring_hopper.build, spring_hopper.build_numeric])
def test_hopper_simulated(build: Any) -> None:
    c = spring_hopper.STANDARD
    found = ns.simulate(build(c), x0=c.start, duration=2.0, method=ns.EventSelected(step=5e-4))
    assert found.success
    known = spring_hopper.crossing_times(2.0, c)
    assert [event.kind for event in found.events] == [kind for kind, _ in known]
    assert [event.time for event in found.events] == pytest.approx([time for _, time in known], abs=1e-12)
    assert found.final_state == pytest.approx(spring_hopper.exact(2.0, c)[0], abs=1e-11)


def test_casadi_and_numpy_and_loops_are_the_same_plate() -> None:
    constants = plate_on_springs.Constants(contacts=7)
    system, numeric = plate_on_springs.build(constants), plate_on_springs.build_numeric(constants)
    guards = ca.vertcat(*(guard.function for guard in system.guards))
    symbolic = ca.Function("all", [system.x, system.mode], [system.flow, guards, ca.jacobian(guards, system.x)])
    random, p = np.random.default_rng(3), constants.parameters
    for _ in range(5):
        x, mode = random.uniform(-0.4, 0.4, 6), (random.random(7) > 0.4).astype(float)
        flow, h, jacobian = (np.array(part) for part in symbolic(x, mode))
        assert numeric.functions is not None
        assert numeric.jacobian is not None
        for flows, functions, jacobians in (
            (numeric.flow, numeric.functions, numeric.jacobian),
            (plate_on_springs.flow_loop, plate_on_springs.functions_loop, plate_on_springs.jacobian_loop),
        ):
            assert flows(x, mode, p) == pytest.approx(flow[:, 0], abs=1e-12)
            assert functions(x, p) == pytest.approx(h[:, 0], abs=1e-15)
            assert jacobians(x, p) == pytest.approx(jacobian, abs=1e-15)


@pytest.mark.parametrize("damping", [0.0, 20.0])
def test_plate_gives_and_takes_energy_as_its_parts_do(damping: float) -> None:
    """d E / d t is zero without dampers, and minus d_i h_i'^2 of those in stance with them."""
    constants = plate_on_springs.Constants(contacts=5, damping=damping)
    system, mode = plate_on_springs.build_numeric(constants), np.array([1.0, 0.0, 1.0, 1.0, 0.0])
    x, p = np.array([0.1, 0.9, 0.2, 0.3, -1.2, 0.7]), constants.parameters
    assert system.jacobian is not None
    slope = system.flow(x, mode, p)
    rates = system.jacobian(x, p) @ slope
    change = [plate_on_springs.energy(x + sign * 1e-6 * slope, mode, constants) for sign in (1, -1)]
    power = float(change[0] - change[1]) / 2e-6
    assert power == pytest.approx(-damping / 5 * np.sum(mode * rates**2), abs=1e-7)


@pytest.mark.parametrize(("damping", "kept"), [(0.0, True), (20.0, False)])
def test_energy_along_a_motion(damping: float, kept: bool) -> None:
    constants = plate_on_springs.Constants(contacts=5, damping=damping)
    system = plate_on_springs.build_numeric(constants)
    x0 = plate_on_springs.start(2.0, 0.08)
    found = ns.simulate(system, x0=x0, duration=1.2, method=ns.EventSelected(step=1e-3))
    assert found.success
    assert {event.kind for event in found.events} == {"contact", "release"}
    energy = plate_on_springs.energy(found.final_state, final_mode(found, system), constants)
    loss = plate_on_springs.energy(x0, np.zeros(5), constants) - energy
    assert (abs(loss) < 1e-9) == kept
    assert kept or loss > 1.0


def final_mode(found: ns.Trajectory, system: ns.EventSelectedSystem) -> np.ndarray:
    return np.array([found.series[f"mode[{name}]"].values[-1] for name in system.guard_names])


@pytest.mark.parametrize("contacts", [2, 10, 100])
def test_flat_plate_is_the_hopper(contacts: int) -> None:
    """All springs are hit at once, in one sweep."""
    constants = plate_on_springs.Constants(contacts=contacts, damping=0.0)
    system = plate_on_springs.build_numeric(constants)
    method = ns.EventSelected(step=1e-3)
    found = ns.simulate(system, x0=plate_on_springs.start(2.0, 0.0), duration=2.0, method=method)
    z, v_z = spring_hopper.exact(2.0)[0]
    assert found.success
    assert len(found.events) == 4 * contacts
    assert len({event.time for event in found.events}) == 4
    assert found.final_state == pytest.approx([0.0, z, 0.0, 0.0, v_z, 0.0], abs=1e-10)


@pytest.mark.parametrize(("contacts", "which"), [(2, 0), (7, 1), (30, 2)])
def test_tilted_plate_against_dop853(contacts: int, which: int) -> None:
    constants = plate_on_springs.Constants(contacts=contacts)
    x0 = plate_on_springs.starts(3)[which]
    exact = reference(x0, constants, plate_on_springs.DURATION)
    system = plate_on_springs.build_numeric(constants)
    method = ns.EventSelected(step=0.002)
    found = ns.simulate(system, x0=x0, duration=plate_on_springs.DURATION, method=method)
    assert found.success
    assert len(found.events) == len(exact.events)
    assert [event.time for event in found.events] == pytest.approx([time for time, _, _ in exact.events], abs=1e-9)
    assert found.final_state == pytest.approx(exact.x, abs=1e-8)
    euler = ns.simulate(
        system, x0=x0, duration=plate_on_springs.DURATION, method=method.replace(projection="euler")
    )  # the negative control: the paper's projection is far from that
    assert np.abs(euler.final_state - exact.x).max() > 1e-6


def test_starts_are_seeded_and_in_range() -> None:
    drawn = plate_on_springs.starts(50, seed=1)
    assert np.array_equal(drawn, plate_on_springs.starts(50, seed=1))
    assert not np.array_equal(drawn, plate_on_springs.starts(50, seed=2))
    assert 2.0 < drawn[:, 1].min() < 2.2 < 2.8 < drawn[:, 1].max() < 3.0
    assert -0.1 < drawn[:, 2].min() < -0.08 < 0.08 < drawn[:, 2].max() < 0.1
    assert not drawn[:, [0, 3, 4, 5]].any()


@pytest.mark.parametrize(
    ("model", "change", "said"),
    [
        (plate_on_springs.STANDARD, {"contacts": 1}, "two springs or more"),
        (plate_on_springs.STANDARD, {"damping": -1.0}, "damping >= 0"),
        (plate_on_springs.STANDARD, {"stiffness": 0.0}, "positive constants"),
        (spring_hopper.STANDARD, {"height": 1.0}, "start above its rest length"),
        (plate_on_springs.STANDARD, {"bed": float("nan")}, "positive constants"),
        (spring_hopper.STANDARD, {"stiffness": float("nan")}, "positive constants"),
    ],
)
def test_wrong_constants(model: Any, change: dict[str, float], said: str) -> None:
    with pytest.raises(ModelError, match=said):
        replace(model, **change)
