"""Equations of motion from energies: against the hopper's and an arm's by hand, structure, energy, and bad input."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import one_legged_hopper, two_link_arm
from nosnoc_py.systems.lagrangian import Lagrangian, kinetic_energy, lagrangian

pytestmark = pytest.mark.quick

POINTS = np.random.default_rng(1).uniform(-2.0, 2.0, (20, 8))


def hopper() -> Lagrangian:
    """Energies from positions alone."""
    c = one_legged_hopper.CAPLER
    q, v, u = ca.SX.sym("q", 4), ca.SX.sym("v", 4), ca.SX.sym("u", 2)
    hip, thigh, shank = q[:2], q[2], q[2] + q[3]

    def down(angle: ca.SX) -> ca.SX:
        return -ca.vertcat(ca.sin(angle), ca.cos(angle))

    upper = hip + c.centres[0] * down(thigh)
    lower = hip + c.lengths[0] * down(thigh) + c.centres[1] * down(shank)
    masses = [(c.body, hip), (c.masses[0], upper), (c.masses[1], lower)]
    inertias = [(c.inertias[0], thigh), (c.inertias[1], shank)]
    return lagrangian(
        q=q,
        v=v,
        u=u,
        kinetic=kinetic_energy(q, v, masses=masses, inertias=inertias),
        potential=c.gravity * sum((m * place[1] for m, place in masses), ca.SX(0)),
        forces=ca.vertcat(0, 0, u),
    )


def hopper_by_hand(q: np.ndarray, v: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Newton and Euler: the centres of the bodies accelerate by J v' + J' v, with J and J' written out."""
    c = one_legged_hopper.CAPLER
    s1, c1, s2, c2 = np.sin(q[2]), np.cos(q[2]), np.sin(q[2] + q[3]), np.cos(q[2] + q[3])
    w1, w2 = v[2], v[2] + v[3]
    a, b, l1 = c.centres[0], c.centres[1], c.lengths[0]
    jacobians = [
        np.array([[1, 0, 0, 0], [0, 1, 0, 0]]),
        np.array([[1, 0, -a * c1, 0], [0, 1, a * s1, 0]]),
        np.array([[1, 0, -l1 * c1 - b * c2, -b * c2], [0, 1, l1 * s1 + b * s2, b * s2]]),
    ]
    # Centripetal: towards the axis, w^2 times the way to it.
    drifts = [
        np.zeros(2),
        a * w1**2 * np.array([s1, c1]),
        l1 * w1**2 * np.array([s1, c1]) + b * w2**2 * np.array([s2, c2]),
    ]
    turns = [np.array([0, 0, 1, 0]), np.array([0, 0, 1, 1])]
    M = np.zeros((4, 4))
    for inertia, turn in zip(c.inertias, turns, strict=True):
        M = M + inertia * np.outer(turn, turn)
    f = np.concatenate([[0.0, 0.0], u])
    for m, J, drift in zip((c.body, *c.masses), jacobians, drifts, strict=True):
        M = M + m * J.T @ J
        f = f + m * J.T @ (np.array([0.0, -c.gravity]) - drift)
    return M, f


def arm_by_hand(
    q: np.ndarray, v: np.ndarray, u: np.ndarray, c: two_link_arm.Constants = two_link_arm.ARM
) -> tuple[np.ndarray, np.ndarray]:
    """The textbook's matrices of a planar arm with relative joint angles."""
    (m1, m2), (l1, _), (a1, a2), (I1, I2) = c.masses, c.lengths, c.centres, c.inertias
    cosine, h = np.cos(q[1]), m2 * l1 * a2 * np.sin(q[1])
    M11 = m1 * a1**2 + I1 + I2 + m2 * (l1**2 + a2**2 + 2 * l1 * a2 * cosine)
    M12 = I2 + m2 * (a2**2 + l1 * a2 * cosine)
    M = np.array([[M11, M12], [M12, I2 + m2 * a2**2]])
    coriolis = np.array([-h * (2 * v[0] * v[1] + v[1] ** 2), h * v[0] ** 2])
    s1, s12 = np.sin(q[0]), np.sin(q[0] + q[1])
    gravity = c.gravity * np.array([(m1 * a1 + m2 * l1) * s1 + m2 * a2 * s12, m2 * a2 * s12])
    return M, u - c.damping * v - coriolis - gravity


def evaluated(one: Lagrangian, *what: str) -> ca.Function:
    return ca.Function("values", [one.q, one.v, one.u], [getattr(one, name) for name in what])


def arm(constants: two_link_arm.Constants = two_link_arm.ARM) -> Lagrangian:
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u", 2)
    return two_link_arm.mechanics(q, v, u, constants)


UNEQUAL = two_link_arm.Constants(
    masses=(1.3, 0.7), lengths=(0.4, 0.6), centres=(0.15, 0.35), inertias=(0.02, 0.03), damping=0.3
)
CASES: dict[str, tuple[Any, Any]] = {
    "hopper": (hopper, hopper_by_hand),
    "arm": (arm, arm_by_hand),
    "another arm": (lambda: arm(UNEQUAL), lambda q, v, u: arm_by_hand(q, v, u, UNEQUAL)),
}


@pytest.mark.parametrize("name", CASES)
def test_mass_matrix_and_force_are_those_derived_by_hand(name: str) -> None:
    made, by_hand = CASES[name]
    function, n = evaluated(made(), "mass_matrix", "force"), 4 if name == "hopper" else 2
    for point in POINTS:
        q, v, u = point[:n], 3.0 * point[4 : 4 + n], point[2:4]
        M, f = (np.array(part) for part in function(q, v, u))
        expected_M, expected_f = by_hand(q, v, u)
        np.testing.assert_allclose(M, expected_M, rtol=0, atol=1e-12)
        np.testing.assert_allclose(f.ravel(), expected_f, rtol=1e-12, atol=1e-12)


def test_the_model_of_the_hopper_has_these_equations() -> None:
    system, one = one_legged_hopper.build(), hopper()
    theirs = ca.Function("theirs", [system.q, system.v, system.u], [system.mass_matrix, system.force])
    ours = evaluated(one, "mass_matrix", "force")
    for point in POINTS[:5]:
        for a, b in zip(theirs(point[:4], point[4:], [1.0, 2.0]), ours(point[:4], point[4:], [1.0, 2.0]), strict=True):
            np.testing.assert_allclose(np.array(a), np.array(b), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("made", [hopper, arm])
def test_the_derivative_of_the_mass_matrix_minus_twice_coriolis_is_skew(made: Any) -> None:
    one = made()
    n = one.q.numel()
    rate = ca.reshape(ca.jtimes(ca.vec(one.mass_matrix), one.q, one.v), n, n)
    function = ca.Function("skew", [one.q, one.v], [rate - 2 * one.coriolis, rate - one.coriolis, one.coriolis @ one.v])
    for point in POINTS[:5]:
        skew, other, _ = (np.array(part) for part in function(point[:n], point[4 : 4 + n]))
        assert np.abs(skew + skew.T).max() < 1e-13
        assert np.abs(other + other.T).max() > 1e-3  # not so without the factor two


def test_a_simulation_keeps_the_energy_and_damping_takes_it() -> None:
    free = two_link_arm.Constants(height=5.0)
    one, system = arm(free), two_link_arm.build(free)
    energy = ca.Function("energy", [one.q, one.v], [one.energy])
    x0 = [1.2, -0.7, 0.0, 2.0]
    motion = ns.simulate(system, x0=x0, duration=2.0, method=ns.EventDriven())
    values = [float(energy(x[:2], x[2:])) for x in motion.x]
    assert motion.success
    assert max(abs(value - values[0]) for value in values) < 1e-8
    assert np.ptp(motion["omega_elbow"]) > 1.0  # it moves
    damped = ns.simulate(
        two_link_arm.build(two_link_arm.Constants(height=5.0, damping=0.2)),
        x0=x0,
        duration=2.0,
        method=ns.EventDriven(),
    )
    assert float(energy(damped.final_state[:2], damped.final_state[2:])) < values[0] - 0.1


def test_the_tip_of_the_arm_lands_and_stays() -> None:
    system = two_link_arm.build()
    motion = ns.simulate(system, x0=[1.0, 0.3, 0.0, 0.0], duration=1.0, method=ns.EventDriven())
    assert motion.success
    assert motion.impacts[0].name == "tip"
    heights = two_link_arm.joints(motion.x)[:, 2, 1]
    assert heights.min() > -1e-8
    gap = ca.Function("gap", [system.q], [system.contacts[0].gap])
    np.testing.assert_allclose([float(gap(x[:2])) for x in motion.x], heights, rtol=0, atol=1e-14)


def test_jacobian_of_a_point() -> None:
    one = hopper()
    knee = one.q[:2] - 0.2 * ca.vertcat(ca.sin(one.q[2]), ca.cos(one.q[2]))
    found = np.array(ca.Function("J", [one.q], [one.jacobian(knee)])([0.1, 0.2, 0.3, 0.4]))
    expected = [[1, 0, -0.2 * np.cos(0.3), 0], [0, 1, 0.2 * np.sin(0.3), 0]]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-15)
    with pytest.raises(ns.ModelError, match="jacobian"):
        one.jacobian(one.v)


def test_damping_in_all_forms() -> None:
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    matrix = np.array([[2.0, 0.5], [0.5, 1.0]])
    skew = np.array([[2.0, 0.9], [-0.4, 1.0]])
    for damping, full in (
        (0.3, 0.3 * np.eye(2)),
        ([0.1, 0.2], np.diag([0.1, 0.2])),
        (matrix, matrix),
        (skew, skew),  # not its transposed
    ):
        one = lagrangian(q=q, v=v, kinetic=0.5 * ca.sumsqr(v), damping=damping)
        force = np.array(ca.Function("f", [q, v], [one.force])([1, 2], [3, 4])).ravel()
        np.testing.assert_allclose(force, -full @ [3, 4], rtol=0, atol=1e-14)


def test_energies_that_are_quadratic_but_do_not_look_so() -> None:
    q, v, m = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("m")
    one = lagrangian(q=q, v=v, p=m, kinetic=0.5 * m * ca.fabs(v) ** 4 / v**2, potential=m * q)
    values = ca.Function("values", [q, v, m], [one.mass_matrix, one.force])(0.4, 0.7, 3.0)
    assert [float(value) for value in values] == pytest.approx([3.0, -3.0], abs=1e-14)


def test_bad_input() -> None:
    q, v, u, foreign = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u"), ca.SX.sym("foreign")
    good: dict[str, Any] = {"q": q, "v": v, "u": u, "kinetic": 0.5 * ca.sumsqr(v)}
    lagrangian(**good)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"kinetic": 0.5 * ca.sumsqr(v) + v[0]}, "quadratic in v"),
        ({"kinetic": 0.5 * ca.sumsqr(v) + q[0] ** 2}, "quadratic in v"),
        ({"kinetic": ca.sumsqr(v) ** 2}, "quadratic in v"),
        ({"kinetic": 0.5 * ca.sumsqr(v) + 0.005 * v[0] ** 3}, "quadratic in v"),
        ({"kinetic": 1e-12 * (0.5 * ca.sumsqr(v) + v[0] ** 3)}, "quadratic in v"),
        ({"kinetic": 0.5 * ca.sumsqr(v) + 1.2 * ca.sin(q[0]) * v[0] * v[1]}, "not positive definite.*negative"),
        ({"kinetic": 0.5 * ca.sumsqr(v) + 1.2 * ca.cos(q[0]) * v[0] * v[1]}, "not positive definite.*negative"),
        ({"damping": -0.1}, "damping takes energy"),
        ({"damping": [0.1, -0.1]}, "damping takes energy"),
        ({"damping": [[1.0, 3.0], [0.0, 1.0]]}, "damping takes energy"),
        ({"at": {"x": [1.0]}}, "unknown group in lagrangian: at 'x'"),
        ({"at": {"q": [1.0]}}, "at: q: expected 2 numbers"),
        ({"kinetic": 0.5 * v[0] ** 2}, "q_1 has no inertia"),
        ({"kinetic": 0.5 * (v[0] + v[1]) ** 2}, "no inertia"),
        ({"kinetic": -0.5 * ca.sumsqr(v)}, "not positive definite"),
        ({"kinetic": 0.5 * ca.sumsqr(v) + foreign}, "foreign"),
        ({"kinetic": v}, "kinetic: expected a scalar"),
        ({"potential": v[0] * q[0]}, "potential depends on v"),
        ({"potential": foreign}, "foreign"),
        ({"potential": u}, "depends on u"),
        ({"forces": foreign * q}, "foreign"),
        ({"forces": [1.0]}, "forces: expected 2 rows"),
        ({"forces": [np.nan, 0.0]}, "finite"),
        ({"damping": [1.0, 2.0, 3.0]}, "damping"),
        ({"damping": u}, "depends on u"),
        ({"q": q[0]}, "same positive length"),
        ({"q": q + 1}, "symbols"),
        ({"u": v[0]}, "in both"),
        ({"kinetic": "energy"}, "kinetic"),
    ]
    for change, said in cases:
        with pytest.raises(ns.ModelError, match=said):
            lagrangian(**{**good, **change})


def test_inertias_of_different_sizes_and_singular_places_are_no_mistake() -> None:
    """Metres and nanometres; and polar coordinates, whose mass matrix is singular at the origin alone."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    one = lagrangian(q=q, v=v, kinetic=0.5e6 * v[0] ** 2 + 0.5e-14 * v[1] ** 2)
    assert np.array(ca.evalf(one.mass_matrix)) == pytest.approx(np.diag([1e6, 1e-14]), rel=1e-15)
    with pytest.raises(ns.ModelError, match="no inertia"):
        lagrangian(q=q, v=v, kinetic=0.5e6 * (v[0] + 1e-6 * v[1]) ** 2)
    polar = 0.5 * (v[0] ** 2 + q[0] ** 2 * v[1] ** 2)
    lagrangian(q=q, v=v, kinetic=polar)
    with pytest.raises(ns.ModelError, match=r"q_1 has no inertia.*q = \[0.0, 0.0\]"):
        lagrangian(q=q, v=v, kinetic=polar, at={"q": [0.0, 0.0]})


def test_where_a_model_holds_may_be_said() -> None:
    q, v, p = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("p")
    energy = 0.5 * (p - 2) * v**2
    with pytest.raises(ns.ModelError, match=r"looked at q and p in 0.2 to 1.5; other places: at="):
        lagrangian(q=q, v=v, p=p, kinetic=energy)
    M = lagrangian(q=q, v=v, p=p, kinetic=energy, at={"p": 3.0}).mass_matrix
    assert float(ca.Function("M", [p], [M])(5.0)) == 3.0


def test_the_shoulder_of_the_arm_is_where_it_is_said() -> None:
    tall = two_link_arm.Constants(height=1.7)
    system = two_link_arm.build(tall)
    hanging = float(ca.Function("gap", [system.q], [system.contacts[0].gap])([0.0, 0.0]))
    assert hanging == pytest.approx(1.7 - 0.5 - 0.5, abs=1e-15)
    assert two_link_arm.joints([0.0, 0.0], tall)[:, 1] == pytest.approx([1.7, 1.2, 0.7], abs=1e-15)
    one = arm(tall)
    potential = float(ca.Function("V", [one.q], [one.potential])([0.0, 0.0]))
    assert potential == pytest.approx(9.81 * (1.45 + 0.95), abs=1e-13)


def test_kinetic_energy_refuses_what_is_no_pair() -> None:
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    assert float(ca.Function("T", [v], [kinetic_energy(q, v, [(2.0, ca.vertcat(q, 0))], [(1.0, q)])])(3.0)) == 13.5
    bad: list[Any] = [[2.0], [(1.0, q, q)]]
    for masses in bad:
        with pytest.raises(ns.ModelError, match="pairs"):
            kinetic_energy(q, v, masses)
    with pytest.raises(ns.ModelError, match="same length"):
        kinetic_energy(q, ca.SX.sym("v", 2))
    two = ca.SX.sym("q", 2)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"masses": [(1.0, v)]}, "not of v"),
        ({"masses": [(v, q)]}, "not of v"),
        ({"inertias": [(1.0, ca.vertcat(q, q))]}, "scalar angles, given 2"),
        ({"masses": [(1.0, ca.vertcat(q, q, q, q))]}, "1 to 3 rows, given 4"),
        ({"masses": [(1.0, ca.SX(0, 1))]}, "1 to 3 rows, given 0"),
        ({"masses": [(-1.0, q)]}, "values >= 0, given -1"),
        ({"masses": [(two, q)]}, "expected a scalar"),
    ]
    for change, said in refused:
        with pytest.raises(ns.ModelError, match=said):
            kinetic_energy(q, v, **change)
