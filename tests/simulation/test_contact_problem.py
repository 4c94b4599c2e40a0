"""Contact problems at one instant: closed forms, the laws on random problems, and problems without an answer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product

import numpy as np
import pytest

from nosnoc_py.simulation.contact_frames import FREE, SLIP, SLIP_BACK, STICK, ContactFrames
from nosnoc_py.simulation.contact_problem import LocalForces, LocalProblem, LocalSolver, project_onto_cone
from nosnoc_py.simulation.linear_algebra import correction


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


def problem(delassus: np.ndarray, offset: Sequence[float], count: int, least: Sequence[float] = ()) -> LocalProblem:
    return LocalProblem(
        delassus=np.asarray(delassus, dtype=float),
        offset=np.asarray(offset, dtype=float),
        least=np.array(least) if len(least) else np.zeros(count),
        active=tuple(range(count)),
        held=np.zeros(count, dtype=bool),
        direction=np.zeros(len(offset) - count),
    )


def law_violation(kind: ContactFrames, found: LocalForces) -> float:
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


@pytest.mark.parametrize(
    ("speed", "mode", "force"), [(0.4, STICK, -0.4), (2.0, SLIP, -0.5), (-2.0, SLIP_BACK, 0.5), (0.0, STICK, 0.0)]
)
def test_one_planar_contact(speed: float, mode: int, force: float) -> None:
    found = LocalSolver(frames([1], [0.5])).solve(problem(np.eye(2), [-1.0, speed], 1))
    assert found is not None
    assert found.modes == (mode,)
    np.testing.assert_allclose(found.forces, [1.0, force], rtol=0, atol=1e-14)
    np.testing.assert_allclose(found.rates, [0.0, speed + force], rtol=0, atol=1e-14)


def test_a_contact_that_opens() -> None:
    found = LocalSolver(frames([1], [0.5])).solve(problem(np.eye(2), [1.0, 3.0], 1))
    assert found is not None
    assert found.modes == (FREE,)
    np.testing.assert_array_equal(found.forces, 0.0)


def test_one_spatial_contact_slips_opposite_to_its_force() -> None:
    solver = LocalSolver(frames([2], [0.5]))
    found = solver.solve(problem(np.eye(3), [-1.0, 3.0, -4.0], 1))
    assert found is not None
    assert found.modes == (SLIP,)
    np.testing.assert_allclose(found.forces, [1.0, -0.3, 0.4], rtol=0, atol=1e-13)
    np.testing.assert_allclose(found.rates, [0.0, 2.7, -3.6], rtol=0, atol=1e-13)
    inside = solver.solve(problem(np.eye(3), [-1.0, 0.3, -0.3], 1))
    assert inside is not None
    assert inside.modes == (STICK,)
    np.testing.assert_allclose(inside.forces, [1.0, -0.3, 0.3], rtol=0, atol=1e-13)


@pytest.mark.parametrize("widths", [(1, 1), (2, 1), (2, 2), (1, 0, 2), (1, 1, 1)])
def test_the_laws_hold_on_random_problems(widths: tuple[int, ...]) -> None:
    rng = np.random.default_rng(7)
    count, size = len(widths), len(widths) + sum(widths)
    slipping = 0
    for _ in range(40):
        kind = frames(widths, [rng.uniform(0.1, 0.6) if width else 0.0 for width in widths])
        root = rng.normal(size=(size, size + 2))
        found = LocalSolver(kind).solve(problem(root @ root.T / size, rng.normal(size=size), count))
        assert found is not None
        assert law_violation(kind, found) < 1e-10
        slipping += any(mode in (SLIP, SLIP_BACK) for mode in found.modes)
    assert slipping > 5


def test_the_law_is_violated_in_other_modes() -> None:
    """Negative control of the check above: of all the modes of a generic problem only the right ones satisfy it."""
    kind = frames((1, 1), [0.3, 0.4])
    rng = np.random.default_rng(3)
    root = rng.normal(size=(4, 6))
    given = problem(root @ root.T / 4, [-1.0, -0.5, 2.0, 0.1], 2)
    solver = LocalSolver(kind)
    right = solver.solve(given)
    assert right is not None
    passed = [
        modes
        for modes in product((FREE, STICK, SLIP, SLIP_BACK), repeat=2)
        if law_violation(kind, solver.in_modes(given, modes)) < 1e-8
    ]
    assert passed == [right.modes]


def test_a_wrong_hint_changes_nothing() -> None:
    solver = LocalSolver(frames([1], [0.5]))
    given = problem(np.eye(2), [-1.0, 2.0], 1)
    for hint in ((FREE,), (STICK,), (SLIP,), (SLIP_BACK,)):
        found = solver.solve(given, [hint])
        assert found is not None
        assert found.modes == (SLIP,)


def test_a_separating_contact_that_is_pushed_has_no_admissible_impulse() -> None:
    """r_n = v_n+ + e v_n- = 0 of the second contact would leave v_n+ = -e v_n- < 0: a penetration."""
    kind = frames([0, 0], [0.0, 0.0])
    delassus = np.array([[1.0, -0.9], [-0.9, 1.0]])
    elastic = problem(delassus, [-2.0, 0.5 + 0.5], 2, least=[0.0, 0.5])
    assert LocalSolver(kind).solve(elastic) is None
    inelastic = LocalSolver(kind).solve(problem(delassus, [-1.0, 0.5], 2))
    assert inelastic is not None
    assert law_violation(kind, inelastic) < 1e-12


def test_a_held_contact_keeps_its_direction() -> None:
    """It slips to the right already: friction is the same however the rate of slip changes."""
    given = problem(np.eye(2), [-1.0, -3.0], 1)
    held = LocalProblem(
        delassus=given.delassus,
        offset=given.offset,
        least=given.least,
        active=given.active,
        held=np.array([True]),
        direction=np.array([1.0]),
    )
    found = LocalSolver(frames([1], [0.5])).solve(held)
    assert found is not None
    assert found.modes == (SLIP,)
    np.testing.assert_allclose(found.forces, [1.0, -0.5], rtol=0, atol=1e-14)


def test_two_equal_contacts_share_their_force() -> None:
    delassus = np.kron(np.eye(2), np.ones((2, 2)))
    kind = frames([1, 1], [0.5, 0.5])
    found = LocalSolver(kind).solve(problem(delassus, [-1.0, -1.0, 0.3, 0.3], 2))
    assert found is not None
    assert found.forces[:2].sum() == pytest.approx(1.0, abs=1e-12)
    assert found.forces[2:].sum() == pytest.approx(-0.3, abs=1e-12)
    assert law_violation(kind, found) < 1e-10


def test_the_projection_is_the_nearest_point_of_the_cone() -> None:
    rng = np.random.default_rng(1)
    angle = np.linspace(0, 2 * np.pi, 400)
    for _ in range(20):
        point = rng.normal(size=3)
        nearest = project_onto_cone(point, 0.7)
        assert np.linalg.norm(nearest[1:]) <= 0.7 * nearest[0] + 1e-15
        height = np.linspace(0, 3, 301)[:, None]
        cone = np.stack(np.broadcast_arrays(height, 0.7 * height * np.cos(angle), 0.7 * height * np.sin(angle)), -1)
        assert np.linalg.norm(point - nearest) <= np.linalg.norm(cone - point, axis=-1).min() + 1e-12


def test_the_correction_of_a_singular_system_is_the_shortest() -> None:
    np.testing.assert_allclose(correction(np.ones((2, 2)), np.array([-2.0, -2.0])), [1.0, 1.0], rtol=0, atol=1e-14)
    regular = np.array([[2.0, 1.0], [0.0, 4.0]])
    np.testing.assert_allclose(correction(regular, -regular @ [3.0, 5.0]), [3.0, 5.0], rtol=0, atol=1e-14)
    assert np.isnan(correction(np.full((1, 1), np.nan), np.ones(1))).all()
