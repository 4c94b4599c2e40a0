"""Forces that explain a motion: of many the ones that obey the laws, and violations where none do."""

from __future__ import annotations

import numpy as np
import pytest

from nosnoc_py.audit.explanation import ContactLaw, explain

pytestmark = pytest.mark.quick

# A point mass in a corner: floor (normal y, tangent x) and wall (normal x, tangent y); forces n_floor, n_wall, t_floor,
# t_wall act along these columns. Two of the four are redundant.
CORNER = np.array([[0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0]])


def presses(friction: float, floor_slip: float = 0.0, opening: bool = False) -> list[ContactLaw]:
    direction = np.array([np.sign(floor_slip)]) if floor_slip else None
    return [
        ContactLaw(normal=0, tangents=(2,), friction=friction, direction=direction),
        ContactLaw(normal=1, tangents=(3,), friction=friction, direction=None, opening=opening),
    ]


def violation(forces: np.ndarray, contacts: list[ContactLaw]) -> float:
    """How far forces are from Coulomb's law, written independently of the library."""
    sizes = []
    for contact in contacts:
        normal, friction = forces[contact.normal], forces[list(contact.tangents)]
        wanted = None if contact.direction is None else -contact.friction * max(normal, 0.0) * contact.direction
        sizes += [-normal, np.linalg.norm(friction) - contact.friction * max(normal, 0.0)]
        sizes += [] if wanted is None else [np.linalg.norm(friction - wanted)]
    return float(max(0.0, *sizes))


def worst(force: tuple[float, float], contacts: list[ContactLaw]) -> float:
    found = explain(CORNER, np.array(force), contacts)
    np.testing.assert_allclose(CORNER @ found, force, atol=1e-9)
    return violation(found, contacts)


@pytest.mark.parametrize(
    ("force", "friction", "possible"),
    [
        ((3.0, 4.0), 0.5, True),
        ((3.0, 0.0), 0.5, True),  # the wall alone
        ((-1.0, 4.0), 0.5, True),  # floor friction pulls off the wall
        ((-2.01, 4.0), 0.5, False),  # more than its cone has
        ((-1.0, -1.0), 0.5, False),
        ((0.0, -1.0), 0.5, False),
        ((1.0, -0.4), 0.5, True),  # wall friction holds down
        ((1.0, -0.6), 0.5, False),
        ((1.0, 1.0), 0.0, True),
        ((1.0, -1e-3), 0.0, False),
    ],
)
def test_a_force_is_explained_where_it_can_be(force: tuple[float, float], friction: float, possible: bool) -> None:
    size = worst(force, presses(friction))
    assert (size < 1e-9) if possible else (size > 1e-4)


def test_slip_fixes_the_friction() -> None:
    slides = presses(0.5, floor_slip=1.0, opening=True)
    assert worst((-2.0, 4.0), slides) < 1e-9
    assert worst((-1.9, 4.0), slides) > 1e-2
    back = presses(0.5, floor_slip=-1.0, opening=True)
    assert worst((2.0, 4.0), back) < 1e-9
    assert worst((-2.0, 4.0), back) > 1.0


def test_a_contact_that_opens_is_not_chosen() -> None:
    shut = explain(CORNER, np.array([1.0, 4.0]), presses(0.5, opening=True))
    assert abs(shut[1]) < 1e-9
    helped = explain(CORNER, np.array([3.0, 4.0]), presses(0.5, opening=True))
    assert abs(helped[1]) > 0.1  # it would have to help


def test_cones_in_space() -> None:
    """Two feet under one body share their forces; the tangential load of both cones is the limit."""
    feet = [ContactLaw(normal=k, tangents=(2 + 2 * k, 3 + 2 * k), friction=0.5, direction=None) for k in range(2)]
    columns = np.column_stack([[0, 0, 1], [0, 0, 1], [1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 1, 0]]).astype(float)

    def size(force: list[float]) -> float:
        return violation(explain(columns, np.array(force), feet), feet)

    for angle in np.linspace(0.0, 1.0, 7):
        along = np.array([np.cos(angle), np.sin(angle)])
        assert size([*0.4999999 * along, 1.0]) < 1e-6
        assert size([*0.5001 * along, 1.0]) > 1e-5


def test_nothing_explains_what_no_direction_has() -> None:
    found = explain(np.array([[0.0], [1.0]]), np.array([2.0, 3.0]), presses(0.0)[:0])
    assert found.tolist() == [3.0]
