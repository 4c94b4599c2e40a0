"""Forces that explain a motion: of many the ones that obey the laws, and violations where none do."""

from __future__ import annotations

import numpy as np
import pytest

from nosnoc_py.simulation.certification.laws import Press, explain, violations

# A point mass in a corner: floor (normal y, tangent x) and wall (normal x, tangent y); forces n_floor, n_wall, t_floor,
# t_wall act along these columns. Two of the four are redundant.
CORNER = np.array([[0.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0, 1.0]])


def presses(friction: float, floor_slip: float = 0.0, wall_slip: float = 0.0, opening: bool = False) -> list[Press]:
    return [
        Press(name="floor", normal=0, tangents=(2,), friction=friction, slip=np.array([floor_slip])),
        Press(name="wall", normal=1, tangents=(3,), friction=friction, slip=np.array([wall_slip]), opening=opening),
    ]


def worst(force: tuple[float, float], contacts: list[Press]) -> float:
    shares, left = explain(CORNER, np.array(force), contacts)
    assert np.abs(left).max() < 1e-12
    np.testing.assert_allclose(CORNER @ shares, force, atol=1e-9)
    return max(size for size, _ in violations(shares, contacts))


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
    shares, _ = explain(CORNER, np.array([1.0, 4.0]), presses(0.5, opening=True))
    assert abs(shares[1]) < 1e-9
    free, _ = explain(CORNER, np.array([3.0, 4.0]), presses(0.5, opening=True))
    assert abs(free[1]) > 0.1  # it would have to help


def test_cones_in_space() -> None:
    """Two feet under one body share their forces; the tangential load of both cones is the limit."""
    feet = [
        Press(name=name, normal=k, tangents=(2 + 2 * k, 3 + 2 * k), friction=0.5, slip=np.zeros(2))
        for k, name in enumerate(("left", "right"))
    ]
    columns = np.column_stack([[0, 0, 1], [0, 0, 1], [1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 1, 0]]).astype(float)

    def size(force: list[float]) -> float:
        shares, _ = explain(columns, np.array(force), feet)
        return max(size for size, _ in violations(shares, feet))

    for angle in np.linspace(0.0, 1.0, 7):
        along = np.array([np.cos(angle), np.sin(angle)])
        assert size([*0.4999999 * along, 1.0]) < 1e-6
        assert size([*0.5001 * along, 1.0]) > 1e-5


def test_nothing_explains_what_no_direction_has() -> None:
    shares, left = explain(np.array([[0.0], [1.0]]), np.array([2.0, 3.0]), presses(0.0)[:0])
    assert shares.tolist() == [3.0]
    assert left.tolist() == [2.0, 0.0]
