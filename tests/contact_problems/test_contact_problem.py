"""Contact problems at one instant: closed forms, the laws on random problems, and problems without an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest

from nosnoc_py.contact_problems.cones import onto_disc
from nosnoc_py.contact_problems.law import energy_gain, raises_energy, rebound
from nosnoc_py.contact_problems.linear_algebra import correction
from nosnoc_py.contact_problems.modes import FREE, SLIP, SLIP_BACK, STICK
from nosnoc_py.contact_problems.problem import ContactProblem
from nosnoc_py.contact_problems.solver import Algorithm, ContactSolution, ContactSolver, is_monotone
from nosnoc_py.systems.kinematics import ContactFrames


def frames(widths: Sequence[int], friction: Sequence[float]) -> ContactFrames:
    ends = np.cumsum([0, *widths])
    spatial = np.cumsum([width == 2 for width in widths]) - 1
    return ContactFrames(
        names=tuple(f"contact_{k}" for k in range(len(widths))),
        friction=np.array(friction),
        restitution=np.zeros(len(widths)),
        tangents=tuple(slice(int(a), int(b)) for a, b in pairwise(ends)),
        speeds=tuple(int(s) if width == 2 else -1 for s, width in zip(spatial, widths, strict=True)),
        weights=np.ones(ends[-1]),
    )


def problem(kind: ContactFrames, delassus: np.ndarray, offset: Sequence[float]) -> ContactProblem:
    count = kind.count
    return ContactProblem(
        frames=kind,
        delassus=np.asarray(delassus, dtype=float),
        offset=np.asarray(offset, dtype=float),
        active=tuple(range(count)),
        held=np.zeros(count, dtype=bool),
        direction=np.zeros(len(offset) - count),
        scale=float(np.abs(offset).max()),
    )


def law_violation(kind: ContactFrames, found: ContactSolution) -> float:
    """The largest violation of Signorini's and Coulomb's laws, written without modes."""
    n_c, worst = kind.count, 0.0
    for c, part in enumerate(kind.tangents):
        normal, rate = found.forces[c], found.rates[c]
        force, slip = found.forces[n_c:][part], found.rates[n_c:][part]
        bound = kind.friction[c] * normal
        dissipation = bound * np.linalg.norm(slip) + force @ slip if slip.size else 0.0
        violations = [-normal, -rate, abs(normal * rate), np.linalg.norm(force) - bound, abs(dissipation)]
        worst = max(worst, *[float(v) for v in violations])
    return worst


@pytest.mark.quick
@pytest.mark.parametrize(
    ("speed", "mode", "force"), [(0.4, STICK, -0.4), (2.0, SLIP, -0.5), (-2.0, SLIP_BACK, 0.5), (0.0, STICK, 0.0)]
)
def test_one_planar_contact(speed: float, mode: int, force: float) -> None:
    found = ContactSolver(frames([1], [0.5])).solve(problem(frames([1], [0.5]), np.eye(2), [-1.0, speed]))
    assert found is not None
    assert found.modes == (mode,)
    np.testing.assert_allclose(found.forces, [1.0, force], rtol=0, atol=1e-14)
    np.testing.assert_allclose(found.rates, [0.0, speed + force], rtol=0, atol=1e-14)


@pytest.mark.quick
def test_a_contact_that_opens() -> None:
    found = ContactSolver(frames([1], [0.5])).solve(problem(frames([1], [0.5]), np.eye(2), [1.0, 3.0]))
    assert found is not None
    assert found.modes == (FREE,)
    np.testing.assert_array_equal(found.forces, 0.0)


def test_one_spatial_contact_slips_opposite_to_its_force() -> None:
    kind = frames([2], [0.5])
    solver = ContactSolver(kind)
    found = solver.solve(problem(kind, np.eye(3), [-1.0, 3.0, -4.0]))
    assert found is not None
    assert found.modes == (SLIP,)
    np.testing.assert_allclose(found.forces, [1.0, -0.3, 0.4], rtol=0, atol=1e-13)
    np.testing.assert_allclose(found.rates, [0.0, 2.7, -3.6], rtol=0, atol=1e-13)
    inside = solver.solve(problem(kind, np.eye(3), [-1.0, 0.3, -0.3]))
    assert inside is not None
    assert inside.modes == (STICK,)
    np.testing.assert_allclose(inside.forces, [1.0, -0.3, 0.3], rtol=0, atol=1e-13)


def test_directions_of_slip_that_are_tried_are_all_around() -> None:
    """Eight for one contact, six each for two: at mu times the normal force, or times one if that is less."""
    for count, angles in ((1, 8), (2, 6)):
        kind = frames([2] * count, [0.5] * count)
        start = np.array([4.0, 0.25, *np.zeros(4)]) if count == 2 else np.array([4.0, 0.0, 0.0])
        tried = ContactSolver(kind)._candidates(problem(kind, np.eye(3 * count), -np.ones(3 * count)), start)
        slips = [forces for modes, forces in tried if modes == (SLIP,) * count and (forces != start).any()]
        assert len(slips) == angles**count
        for c, size in enumerate((2.0, 0.5)[:count]):
            pair = np.array(slips)[:, count + 2 * c : count + 2 * c + 2]
            np.testing.assert_allclose(np.linalg.norm(pair, axis=1), size, rtol=1e-14)
            found = np.unique(np.round(np.arctan2(pair[:, 1], pair[:, 0]) / (2 * np.pi / angles)).astype(int) % angles)
            np.testing.assert_array_equal(found, np.arange(angles))


@pytest.mark.parametrize("algorithm", [None, "enumeration", "sweeps", "newton"])
@pytest.mark.parametrize("widths", [(1, 1), (2, 1), (2, 2), (1, 0, 2), (1, 1, 1)])
def test_the_laws_hold_on_random_problems(widths: tuple[int, ...], algorithm: Algorithm | None) -> None:
    rng = np.random.default_rng(7)
    size = len(widths) + sum(widths)
    slipping = 0
    for _ in range(40):
        kind = frames(widths, [rng.uniform(0.1, 0.6) if width else 0.0 for width in widths])
        root = rng.normal(size=(size, size + 2))
        found = ContactSolver(kind).solve(
            problem(kind, root @ root.T / size, rng.normal(size=size)), algorithm=algorithm
        )
        assert found is not None
        assert law_violation(kind, found) < 1e-10
        slipping += any(mode in (SLIP, SLIP_BACK) for mode in found.modes)
    assert slipping > 5


def test_the_law_is_violated_in_other_modes() -> None:
    """Negative control of the check above: of all the modes of a generic problem only the right ones satisfy it."""
    kind = frames((1, 1), [0.3, 0.4])
    rng = np.random.default_rng(3)
    root = rng.normal(size=(4, 6))
    given = problem(kind, root @ root.T / 4, [-1.0, -0.5, 2.0, 0.1])
    solver = ContactSolver(kind)
    right = solver.solve(given)
    assert right is not None
    passed = [
        modes
        for modes in product((FREE, STICK, SLIP, SLIP_BACK), repeat=2)
        if law_violation(kind, solver.in_modes(given, modes)) < 1e-8
    ]
    assert passed == [right.modes]


def test_a_wrong_hint_changes_nothing() -> None:
    kind = frames([1], [0.5])
    solver = ContactSolver(kind)
    given = problem(kind, np.eye(2), [-1.0, 2.0])
    for hint in ((FREE,), (STICK,), (SLIP,), (SLIP_BACK,)):
        found = solver.solve(given, [hint])
        assert found is not None
        assert found.modes == (SLIP,)


@pytest.mark.quick
def test_a_separating_contact_gets_no_rebound_but_is_held() -> None:
    """gamma- = (-2, 0.5) with e = 0.5: the second contact would approach by the impulse of the first, and is held."""
    kind = frames([0, 0], [0.0, 0.0])
    delassus = np.array([[1.0, -0.9], [-0.9, 1.0]])
    before = np.array([-2.0, 0.5])
    target = rebound(before, np.array([0.5, 0.5]))
    np.testing.assert_array_equal(target, [1.0, 0.0])
    found = ContactSolver(kind).solve(problem(kind, delassus, before - target))
    assert found is not None
    assert law_violation(kind, found) < 1e-12
    impulses = np.linalg.solve(delassus, target - before)
    np.testing.assert_allclose(found.forces, impulses, rtol=1e-12)
    assert (impulses > 0.0).all()
    assert energy_gain(found.forces, before, target) == pytest.approx(0.5 * impulses @ (before + target), rel=1e-12)


@pytest.mark.quick
def test_energy_of_the_corner() -> None:
    """A point mass in a corner of 120 degrees: 0.5 J become 0.5 (4 / 3 e^2) J, more than before beyond e = 0.866."""
    normals = np.array([[1.0, 0.0], [-0.5, np.sqrt(3.0) / 2.0]])
    v = np.array([0.5, (-1.0 + 0.25) / (np.sqrt(3.0) / 2.0)])
    kind = frames([0, 0], [0.0, 0.0])
    for e, expected in ((0.5, 1.0 / 6.0), (0.9, 0.54), (1.0, 2.0 / 3.0)):
        before = normals @ v
        target = rebound(before, np.full(2, e))
        found = ContactSolver(kind).solve(problem(kind, normals @ normals.T, before - target))
        assert found is not None
        after = v + normals.T @ found.forces
        assert 0.5 * after @ after == pytest.approx(expected, abs=1e-12)
        assert raises_energy(found.forces, before, normals @ after) == (expected > 0.5)


@pytest.mark.quick
def test_several_solutions_are_found_and_told() -> None:
    """One planar contact whose friction jams, G_nn - mu |G_nt| < 0: it opens, sticks, or slips against r_t = -0.83."""
    kind = frames([1], [1.5])
    jams = problem(kind, np.array([[1.0, -0.9], [-0.9, 1.0]]), [0.1, -1.0])
    solver = ContactSolver(kind)
    found = solver.solutions(jams)
    expected = [(0.0, -1.0 + 0.6 * 0.1 / 0.35), (0.0, 0.0), (0.1, -1.0)]
    np.testing.assert_allclose(
        sorted((each.rates.tolist() for each in found), key=lambda r: (round(r[0], 9), r[1])),
        expected,
        rtol=0,
        atol=1e-12,
    )
    assert all(law_violation(kind, each) < 1e-12 for each in found)
    assert not is_monotone(jams)
    assert not solver.is_unique(jams)
    plain = problem(kind, np.eye(2), [-0.1, -1.0])
    assert is_monotone(plain)
    assert len(solver.solutions(plain)) == 1


@pytest.mark.parametrize("widths", [(1, 1), (2,), (2, 1)])
def test_the_sufficient_condition_never_contradicts_a_search(widths: tuple[int, ...]) -> None:
    rng = np.random.default_rng(11)
    size, monotone = len(widths) + sum(widths), 0
    for _ in range(30):
        kind = frames(widths, rng.uniform(0.1, 1.2, len(widths)).tolist())
        root = rng.normal(size=(size, size + 2))
        given = problem(kind, root @ root.T / size, rng.normal(size=size))
        if is_monotone(given):
            monotone += 1
            assert len(ContactSolver(kind).solutions(given)) == 1
    assert monotone > 5


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e9])
def test_units_change_nothing(unit: float) -> None:
    kind = frames([1, 1], [0.5, 0.5])
    rng = np.random.default_rng(5)
    root = rng.normal(size=(4, 6))
    given = problem(kind, unit * root @ root.T, [-1.0, 0.2, 0.5, -0.3])
    found = ContactSolver(kind).solve(given)
    assert found is not None
    one = ContactSolver(kind).solve(problem(kind, root @ root.T, [-1.0, 0.2, 0.5, -0.3]))
    assert one is not None
    assert found.modes == one.modes
    np.testing.assert_allclose(unit * found.forces, one.forces, rtol=1e-9, atol=1e-12)


def test_a_held_contact_keeps_its_direction() -> None:
    """It slips to the right already: friction is the same however the rate of slip changes."""
    kind = frames([1], [0.5])
    given = problem(kind, np.eye(2), [-1.0, -3.0])
    held = replace(given, held=np.array([True]), direction=np.array([1.0]))
    found = ContactSolver(kind).solve(held)
    assert found is not None
    assert found.modes == (SLIP,)
    np.testing.assert_allclose(found.forces, [1.0, -0.5], rtol=0, atol=1e-14)


def test_two_equal_contacts_share_their_force() -> None:
    delassus = np.kron(np.eye(2), np.ones((2, 2)))
    kind = frames([1, 1], [0.5, 0.5])
    found = ContactSolver(kind).solve(problem(kind, delassus, [-1.0, -1.0, 0.3, 0.3]))
    assert found is not None
    assert found.forces[:2].sum() == pytest.approx(1.0, abs=1e-12)
    assert found.forces[2:].sum() == pytest.approx(-0.3, abs=1e-12)
    assert law_violation(kind, found) < 1e-10


@pytest.mark.quick
def test_the_projection_is_the_nearest_point_of_the_disc() -> None:
    rng = np.random.default_rng(1)
    angle = np.linspace(0, 2 * np.pi, 2000)
    for _ in range(20):
        point, radius = rng.normal(size=(1, 2)), rng.uniform(0.1, 1.0, 1)
        nearest = onto_disc(point, radius)
        assert np.linalg.norm(nearest) <= radius[0] + 1e-15
        disc = np.linspace(0.0, radius[0], 40)[:, None, None] * np.stack([np.cos(angle), np.sin(angle)], -1)
        assert np.linalg.norm(point - nearest) <= np.linalg.norm(disc - point, axis=-1).min() + 1e-12


def test_the_correction_of_a_singular_system_is_the_shortest() -> None:
    np.testing.assert_allclose(correction(np.ones((2, 2)), np.array([-2.0, -2.0])), [1.0, 1.0], rtol=0, atol=1e-14)
    regular = np.array([[2.0, 1.0], [0.0, 4.0]])
    np.testing.assert_allclose(correction(regular, -regular @ [3.0, 5.0]), [3.0, 5.0], rtol=0, atol=1e-14)
    assert np.isnan(correction(np.full((1, 1), np.nan), np.ones(1))).all()
    # A direction of 1e-11 of the largest one counts, one of rounding does not.
    for size, moved in ((1e-11, 1.0), (1e-13, 0.0)):
        nearly = np.diag([1.0, size, 0.0])
        np.testing.assert_allclose(correction(nearly, -np.array([1.0, size, 0.0])), [1.0, moved, 0.0], atol=1e-9)


def test_a_factorisation_that_fails_is_a_mode_that_does_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """LAPACK's singular values may not converge; which matrices do that depends on the processor."""
    from nosnoc_py.contact_problems.linear_algebra import correction

    def fails(*_: object, **__: object) -> None:
        raise np.linalg.LinAlgError("SVD did not converge in Linear Least Squares")

    monkeypatch.setattr(np.linalg, "lstsq", fails)
    assert np.isnan(correction(np.ones((2, 2)), np.ones(2))).all()
