"""Rigid bodies over planes: energies and gaps against formulas and brute force, and one clear error per mistake."""

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.rotations import exp
from nosnoc_py.systems.rigid_body import Plane, RigidBody
from nosnoc_py.systems.shapes import Box, Ellipsoid, Intersection, Sphere, Union

rng = np.random.default_rng(2)
FLOOR = Plane("floor")
SLOPE = Plane("slope", normal=(np.sin(np.deg2rad(2)), 0.0, np.cos(np.deg2rad(2))), offset=-0.5)
INERTIA = np.diag([5.0, 4.0, 2.6])
ELLIPSOID = Ellipsoid((2.0, 3.0, 4.0))


def body(**changes):
    return RigidBody(**{"shape": ELLIPSOID, "planes": [FLOOR, SLOPE], "inertia": INERTIA, **changes})


def refused(message, build, *arguments, **named):
    with pytest.raises(ns.ModelError, match=message) as caught:
        build(*arguments, **named)
    return str(caught.value)


# States, energies, gaps ---------------------------------------------------------------------------------------------


def test_the_first_energy_of_case_one():
    """LGVCI, Table 3: m = 1, J = diag(5, 4, 2.6), x0 = (0, 0, 10), gamma0 = (2, 2, 10), Pi0 = (4, -4, 4)."""
    case = body(planes=FLOOR)
    energies = case.energies(case.state((0, 0, 10), (2, 2, 10), (4, -4, 4)))
    np.testing.assert_allclose(energies, [54.0, 98.0665, 8 / 5 + 2 + 8 / 2.6], rtol=1e-15)
    assert energies.sum() == pytest.approx(158.743423076923, abs=1e-12)


def test_energies_and_gaps_of_many_states():
    case = body(mass=2.0, gravity=(1.0, 0.0, -9.0))
    states = np.array(
        [case.state(rng.normal(size=3), rng.normal(size=3), rng.normal(size=3), exp(rng.normal(size=3))) for _ in "abc"]
    )
    energies, gaps = case.energies(states), case.gaps(states)
    assert energies.shape == (3, 3)
    assert gaps.shape == (3, 2)
    for k, x in enumerate(states):
        position, gamma, pi = x[:3], x[12:15], x[15:]
        expected = [gamma @ gamma / 4, -2 * (position[0] - 9 * position[2]), pi @ np.linalg.inv(INERTIA) @ pi / 2]
        np.testing.assert_allclose(energies[k], expected, rtol=1e-13)
        np.testing.assert_allclose(gaps[k], case.gaps(x), rtol=0, atol=1e-14)


@pytest.mark.parametrize(
    "shape",
    [
        Ellipsoid((2.0, 3.0, 4.0), (0.3, -0.2, 0.1)),
        Union([Ellipsoid((3, 4, 5), (1.5, 0, 0)), Ellipsoid((6, 1, 1), (-4.5, 0, 0))]),
        Box((1.0, 2.0, 3.0), skin=0.1),
        Intersection([Sphere(1.0, (0.4, 0, 0)), Sphere(1.0, (-0.4, 0, 0))]),
    ],
    ids=["ellipsoid", "union", "skin", "lens"],
)
def test_gaps_are_the_smallest_heights_of_the_body_over_the_planes(shape):
    case = body(shape=shape)
    box = shape.box(np.eye(3))
    cloud = box[0] + rng.random((200000, 3)) * (box[1] - box[0])
    inside = cloud[shape.contains(cloud)]
    for _ in range(5):
        position, turn = 5 * rng.normal(size=3), exp(rng.normal(size=3))
        points = position + inside @ turn.T
        gaps = case.gaps(case.state(position, rotation=turn))
        for plane, gap in zip(case.planes, gaps, strict=True):
            lowest = (points @ plane.normal - plane.offset).min()
            assert -1e-12 < lowest - gap < 0.03 * np.ptp(box, axis=0).max()


def test_the_gap_of_an_ellipsoid_in_closed_form():
    """Phi = n.x + nu.c - |A nu|, nu = R'n (LGVCI, Section 5.1)."""
    shape = Ellipsoid((2.0, 3.0, 4.0), (0.3, -0.2, 0.1))
    case = body(shape=shape)
    x, turn = np.array([1.0, 2.0, 9.0]), exp([0.3, 1.0, -0.4])
    for plane, gap in zip(case.planes, case.gaps(case.state(x, rotation=turn)), strict=True):
        nu = turn.T @ plane.normal
        expected = plane.normal @ x - plane.offset + nu @ shape.center - np.linalg.norm(shape.semi_axes * nu)
        assert gap == pytest.approx(expected, abs=1e-14)


def test_it_is_described_like_every_system():
    case = body()
    assert case.state_names[:4] == ("x_0", "x_1", "x_2", "R_00")
    assert case.state_names[-6:] == ("gamma_0", "gamma_1", "gamma_2", "Pi_0", "Pi_1", "Pi_2")
    assert (case.n_u, case.n_p, case.control_names, case.parameter_names) == (0, 0, (), ())
    assert (case.units["x_2"], case.units["gamma_0"], case.units["Pi_1"]) == ("m", "kg m/s", "kg m^2/s")
    assert len(case.x_nominal) == case.x.shape[0] == 18
    assert isinstance(case.x, ca.SX)
    np.testing.assert_array_equal(case.gravity, [0, 0, -9.80665])


def test_planes_are_normalised():
    plane = Plane("wall", normal=(3, 0, 4), offset=2)
    np.testing.assert_allclose(plane.normal, [0.6, 0, 0.8], rtol=1e-15)
    assert plane.offset == 2.0  # a distance, whatever the length of the normal was


# Uniform bodies -----------------------------------------------------------------------------------------------------


def test_a_uniform_ellipsoid_has_the_inertia_of_case_one():
    case = RigidBody.uniform(shape=ELLIPSOID.moved((1.0, 2.0, 3.0)), planes=FLOOR)
    np.testing.assert_allclose(case.inertia, INERTIA, rtol=0, atol=1e-13)
    np.testing.assert_allclose(case.shape.center, 0, rtol=0, atol=1e-15)


def test_the_mass_of_a_uniform_body_scales_its_inertia():
    box = Box((1.0, 2.0, 3.0))
    np.testing.assert_allclose(
        RigidBody.uniform(shape=box, mass=12.0).inertia, np.diag([13.0, 10.0, 5.0]), rtol=0, atol=1e-12
    )


def test_a_uniform_union_is_shifted_to_its_centroid():
    shape = Union([Ellipsoid((3, 4, 5), (1.5, 0, 0)), Ellipsoid((6, 1, 1), (-4.5, 0, 0))])
    case = RigidBody.uniform(shape=shape, planes=FLOOR)
    assert case.shape.parts[0].center[0] == pytest.approx(1.5 - 0.974176, abs=1e-6)
    found = case.shape.mass_properties()
    np.testing.assert_allclose(found.centroid, 0, rtol=0, atol=1e-6)
    np.testing.assert_allclose(found.inertia / found.mass, case.inertia, rtol=0, atol=1e-5)


# Bad input ----------------------------------------------------------------------------------------------------------


def test_an_inertia_as_printed_is_symmetrised():
    printed = INERTIA + 1e-8 * rng.normal(size=(3, 3))
    found = body(inertia=printed).inertia
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_allclose(found, INERTIA, rtol=0, atol=1e-7)
    np.testing.assert_array_equal(body(inertia=(5.0, 4.0, 2.6)).inertia, INERTIA)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inertia": INERTIA + np.triu(np.full((3, 3), 0.1), 1)}, r"symmetric.*\(J \+ J'\) / 2"),
        ({"inertia": np.diag([1.0, 1.0, -1.0])}, "positive definite"),
        ({"inertia": np.diag([1.0, 1.0, 0.0])}, "positive definite"),
        ({"inertia": np.diag([1.0, 2.0, 3.1])}, "exceed the sum of the other two, 3.1 > 3.*RigidBody.uniform"),
        ({"inertia": np.eye(2)}, r"shape \(3, 3\)"),
        ({"inertia": np.full((3, 3), np.nan)}, "finite"),
        ({"inertia": "heavy"}, "expected"),
        ({"inertia": 3.0}, r"shape \(3, 3\)"),
        ({"mass": 0.0}, "mass: expected a positive number"),
        ({"mass": np.inf}, "mass: expected a positive number"),
        ({"mass": "heavy"}, "mass"),
        ({"gravity": (0, 9.81)}, "gravity: expected 3 numbers"),
        ({"gravity": np.nan}, "gravity"),
        ({"shape": "ball"}, "expected a shape"),
        ({"planes": "floor"}, "planes: expected a sequence of ns.Plane, given str"),
        ({"planes": [FLOOR, 3]}, "planes have to be ns.Plane objects, given int"),
        ({"planes": [FLOOR, Plane("floor", offset=-1)]}, "two planes are named 'floor'"),
    ],
)
def test_bad_bodies_are_refused(changes, message):
    refused(message, body, **changes)


def test_an_inertia_on_the_edge_of_the_triangle_inequality_is_that_of_a_plate():
    assert body(inertia=np.diag([1.0, 2.0, 3.0])).inertia[2, 2] == 3.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": ""}, "non-empty string"),
        ({"normal": (0, 0, 0)}, "normal is zero"),
        ({"normal": (0, 1)}, "expected 3 numbers"),
        ({"offset": np.inf}, "finite"),
        ({"restitution": 1.1}, r"restitution has to lie in \[0, 1\]"),
        ({"restitution": -0.1}, r"restitution has to lie in \[0, 1\]"),
        ({"friction": -0.1}, "friction: expected a nonnegative number"),
    ],
)
def test_bad_planes_are_refused(changes, message):
    refused(message, Plane, **{"name": "floor", **changes})


def test_an_initial_penetration_is_refused_and_contact_is_not():
    case = body()
    np.testing.assert_array_equal(case.check_state(case.state((0, 0, 4)))[:3], [0, 0, 4])
    message = refused("penetrates plane 'floor' by 0.25 m", case.check_state, case.state((0, 0, 3.75)))
    assert "shift the position" in message
    turned = case.state((0, 0, 3.75), rotation=exp([np.pi / 2, 0, 0]))  # on its side it reaches down 3
    assert case.gaps(case.check_state(turned))[0] == pytest.approx(0.75, abs=1e-14)
    refused("penetrates plane 'slope'", case.check_state, case.state((-500, 0, 4.01)))


def test_ill_shaped_states_are_refused():
    case = body()
    refused("x0: expected 18 numbers", case.check_state, np.zeros(12))
    refused("not orthonormal", case.check_state, np.zeros(18))
    refused("finite", case.check_state, np.full(18, np.inf))
    refused("state: position: expected 3 numbers", case.state, (0, 0))
    refused("state: rotation: the matrix is a reflection", case.state, (0, 0, 9), rotation=-np.eye(3))
    refused("expected a shape", RigidBody.uniform, shape=3)
