"""The four cases of the LGVCI paper, against the same algorithm in 40 decimals."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext, localcontext
from functools import cache

import numpy as np
import pytest

import nosnoc_py as ns
from models import bouncing_bodies
from models.bouncing_bodies import CASES
from nosnoc_py.errors import OptionError
from tests.models import exact_collisions as exact
from tests.pairwise import needs_numba

DECIMALS = 40
MOST = 12  # impacts that are compared
LADDER = np.array([1e-11] * 4 + [1e-8] * 4 + [1e-5] * 4)  # [s]; chaos takes a digit or so per impact
IMPULSES = np.array([1e-9] * 4 + [1e-5] * 4)  # [N s], which feel the attitude more than times do
COMPARED = {"I": MOST, "II": 10, "III": 10, "IV": 10}  # the tilted plane and the cube forget faster
PI = Decimal("3.1415926535897932384626433832795028841971693993751")


def tilt() -> exact.Vector:
    """The normal of a plane tilted by two degrees, by Taylor series."""
    angle = 2 * PI / 180
    sine, cosine = (
        sum(((-1) ** k * angle ** (2 * k + odd) / math.factorial(2 * k + odd) for k in range(20)), Decimal(0))
        for odd in (1, 0)
    )
    return sine, Decimal(0), cosine


def exact_body(case: str) -> exact.Body:
    """A case with the paper's decimals."""
    vector = exact.vector
    ellipsoid = ((vector(0, 0, 0), vector(2, 3, 4)),)
    if case == "I":
        return exact.Body(inertia=vector(5, 4, 2.6), ellipsoids=ellipsoid)
    if case == "II":
        return exact.Body(inertia=vector(5, 4, 2.6), ellipsoids=ellipsoid, normal=tilt())
    if case == "III":
        parts = (
            (vector("0.5062872", 0, 0), vector(3, 4, 5)),
            (vector("-5.4937128", 0, 0), vector(6, 1, 1)),
        )
        return exact.Body(inertia=vector("7.5932718", "9.9326434", "8.2731252"), ellipsoids=parts)
    half, signs = Decimal(3).sqrt(), (1, -1)
    corners = tuple((a * half, b * half, c * half) for a in signs for b in signs for c in signs)
    return exact.Body(inertia=vector(2, 2, 2), vertices=corners)


@cache
def reference(case: str, decimals: int = DECIMALS) -> tuple[np.ndarray, np.ndarray]:
    """Times [s] and impulses [N s] of the first impacts."""
    with localcontext() as context:
        context.prec = decimals
        found = exact.simulate(exact_body(case), steps=2500, most=MOST)
    return np.array([float(each.time) for each in found]), np.array([float(each.impulse) for each in found])


@cache
def motion(case: str, duration: float = 25.0, **options: object) -> ns.Trajectory:
    """A case from its own start."""
    body = bouncing_bodies.build(case)
    method = ns.LieGroupVariational(**options)  # type: ignore[arg-type]
    return ns.simulate(body, x0=bouncing_bodies.start(body), duration=duration, method=method)


def times(trajectory: ns.Trajectory) -> np.ndarray:
    return np.array([event.time for event in trajectory.impacts[:MOST]])


def test_the_reference_has_the_published_values() -> None:
    F = exact.turn(exact.vector(5, 4, 2.6), tuple(Decimal("0.01") * value for value in exact.START.Pi))
    found = [float(F[i][j]) for i, j in ((0, 0), (0, 1), (0, 2), (1, 0), (2, 2))]
    published = [
        0.999831508170423485,
        -0.0154092570973356223,
        -0.00997547319000999029,
        0.0153291715309948498,
        0.999917795739964389,
    ]
    assert found == pytest.approx(published, rel=0, abs=1e-16)
    assert float(exact.energy(exact_body("I"), exact.START)) == pytest.approx(158.743423076923, abs=1e-12)
    collisions, impulses = reference("I")
    published = [2.649128901521289, 4.893938255327642, 5.350135680896926, 6.520005137822193]
    assert collisions[:4] == pytest.approx(published, rel=0, abs=2e-15)
    assert impulses[0] == pytest.approx(27.5843698611277, abs=1e-13)


def test_the_reference_has_converged_and_keeps_its_energy() -> None:
    for ours, more in zip(reference("I"), reference("I", DECIMALS + 10), strict=True):
        assert np.abs(ours - more).max() < 1e-14
    with localcontext() as context:
        context.prec = DECIMALS
        body = exact_body("I")
        state, h = exact.START, Decimal("0.01")
        for _ in range(264):
            state = exact.flight(body, state, h)
        after, _ = exact.jump(body, exact.flight(body, state, exact.first_contact(body, state, h)))
        assert abs(exact.energy(body, state) - exact.energy(body, exact.START)) < Decimal("1e-35")
        assert abs(exact.energy(body, after) - exact.energy(body, exact.START)) < Decimal("1e-35")
    assert getcontext().prec < DECIMALS


@pytest.mark.parametrize("case", CASES)
def test_collision_times(case: str) -> None:
    trajectory = motion(case)
    collisions, impulses = reference(case)
    assert trajectory.success
    errors = np.abs(times(trajectory) - collisions)[: COMPARED[case]]
    assert (errors < LADDER[: errors.size]).all(), errors
    found = np.array([event.impulse for event in trajectory.impacts[: IMPULSES.size]])
    assert (np.abs(found - impulses[: IMPULSES.size]) < IMPULSES).all()


@pytest.mark.parametrize(
    "options", [{"h": 0.005}, {"algorithm": "5.1"}, {"h": 0.00999}], ids=["half the step", "5.1", "another step"]
)
def test_another_discretisation_collides_at_other_times(options: dict[str, object]) -> None:
    errors = np.abs(times(motion("I", **options))[:8] - reference("I")[0][:8])
    assert (errors > LADDER[:8]).sum() > 4


@pytest.mark.parametrize("case", CASES)
def test_what_is_kept_over_ten_seconds(case: str) -> None:
    body, trajectory = bouncing_bodies.build(case), motion(case, 10.0)
    total = bouncing_bodies.energy(body, trajectory.x)
    assert np.abs(total - total[0]).max() < 3e-12
    rotations = trajectory.x[:, 3:12].reshape(-1, 3, 3)
    assert np.abs(np.transpose(rotations, (0, 2, 1)) @ rotations - np.eye(3)).max() < 1e-13
    if case != "II":
        assert (trajectory.x[:, 12:14] == 2.0).all()
    for event in trajectory.impacts:
        assert event.v_after == pytest.approx(-event.v_before, abs=1e-11)  # type: ignore[operator]


@needs_numba
@pytest.mark.parametrize(("case", "limit"), [("I", 1e-9), ("II", 1e-8), ("III", 1e-9), ("IV", 1e-9)])
def test_energy_over_a_hundred_thousand_steps(case: str, limit: float) -> None:
    body, trajectory = bouncing_bodies.build(case), motion(case, 1000.0, record_every=50)
    total = bouncing_bodies.energy(body, trajectory.x)
    assert trajectory.success
    assert np.abs(total - total[0]).max() < limit
    rotations = trajectory.x[:, 3:12].reshape(-1, 3, 3)
    assert np.abs(np.transpose(rotations, (0, 2, 1)) @ rotations - np.eye(3)).max() < 1e-11


def test_the_symplectic_algorithm_lets_the_energy_wander() -> None:
    body, trajectory = bouncing_bodies.build("I"), motion("I", 100.0, algorithm="5.1")
    total = bouncing_bodies.energy(body, trajectory.x)
    assert 1e-3 < np.abs(total - total[0]).max() < 5.0


def test_restitution_and_friction_reach_the_plane() -> None:
    body = bouncing_bodies.build("IV", restitution=0.5, friction=0.3)
    assert (body.planes[0].restitution, body.planes[0].friction) == (0.5, 0.3)


def test_the_tilted_plane_rises_against_x() -> None:
    normal = bouncing_bodies.build("II").planes[0].normal
    assert normal == pytest.approx([math.sin(math.pi / 90), 0.0, math.cos(math.pi / 90)], abs=1e-16)


def test_the_printed_centroid_of_the_union_is_not_its_centroid() -> None:
    centroid = bouncing_bodies.SHAPES["III"].mass_properties().centroid
    assert centroid == pytest.approx([0.974176 + bouncing_bodies.SHIFT, 0.0, 0.0], abs=2e-6)
    assert abs(centroid[0]) > 0.01


def test_starts() -> None:
    body = bouncing_bodies.build("IV")
    start = bouncing_bodies.start(body)
    lifted, turned = bouncing_bodies.perturbed(body, position=1e-8), bouncing_bodies.perturbed(body, angle=0.1)
    assert lifted[2] - start[2] == pytest.approx(1e-8, rel=1e-6)
    assert turned[3:12].reshape(3, 3) @ [0.0, 0.0, 1.0] == pytest.approx([math.sin(0.1), 0.0, math.cos(0.1)], abs=1e-15)
    nearby = bouncing_bodies.nearby(body, 5, size=1e-3, seed=1)
    assert np.array_equal(nearby, bouncing_bodies.nearby(body, 5, size=1e-3, seed=1))
    assert 1e-4 < np.abs(nearby - start).max() < 1e-2
    assert (nearby[:, 12:] == start[12:]).all()
    for x in nearby:
        body.check_state(x)


def test_an_unknown_case_names_the_known_ones() -> None:
    with pytest.raises(OptionError, match="one of I, II, III, IV, given 'V'"):
        bouncing_bodies.build("V")
