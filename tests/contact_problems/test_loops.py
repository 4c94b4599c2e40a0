"""Loops that are compiled where there is numba, against the arrays that take their place without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nosnoc_py.contact_problems import projected, rows
from nosnoc_py.contact_problems.cones import corners_of
from nosnoc_py.contact_problems.projected import Projected
from nosnoc_py.simulation.time_stepping import dynamics

pytestmark = pytest.mark.quick
CONTACTS, COORDINATES, ENTRIES = 6, 5, 3
EXACT = {"rtol": 0, "atol": 1e-13}


def given(width: int, diagonal: bool) -> tuple[Any, ...]:
    """Contacts on three of five coordinates or of the drift each, and an inverse mass matrix."""
    rng = np.random.default_rng(width)
    J = rng.normal(size=(CONTACTS, width, ENTRIES))
    dofs = np.array([rng.permutation(COORDINATES + 1)[:ENTRIES] for _ in range(CONTACTS)])
    root = rng.normal(size=(COORDINATES, COORDINATES))
    inverse = rng.uniform(0.5, 2.0, (1, COORDINATES)) if diagonal else root @ root.T + np.eye(COORDINATES)
    free = np.append(rng.normal(size=COORDINATES), 1.0)
    return J, dofs, inverse, free, rng.normal(size=CONTACTS), rng.uniform(0.2, 0.8, CONTACTS)


@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_problems_by_loops_are_those_by_arrays(width: int, diagonal: bool) -> None:
    arguments = given(width, diagonal)
    problem = dynamics.problem_of(*arguments)
    for found, known in zip(dynamics._problem_by_loops(*arguments), problem, strict=True):
        np.testing.assert_allclose(found, known, **EXACT)
    J, dofs, v = problem.rows, problem.dofs, problem.free
    impulses = np.random.default_rng(7).normal(size=(CONTACTS, width))
    impulses[::2, -1] = 0.0
    for found, known in (
        (rows._rates_by_loops(J, dofs, v), rows.rates_of(J, dofs, v)),
        (rows._normal_rates_by_loops(J, dofs, v), rows.normal_rates_of(J, dofs, v)),
        (rows._velocity_by_loops(problem, impulses), rows.velocity_of(problem, impulses)),
        (rows._delassus_by_loops(problem), rows.delassus_of(problem)),
    ):
        np.testing.assert_allclose(found, known, **EXACT)
    # J A^-1 J' of dense matrices, in which the drift has no response.
    dense = np.zeros((CONTACTS, width, COORDINATES + 1))
    np.put_along_axis(dense, np.broadcast_to(dofs[:, None], J.shape), J, axis=2)
    flat, inverse = dense[..., :-1].reshape(-1, COORDINATES), arguments[2]
    inverse = np.diag(inverse[0]) if diagonal else inverse
    np.testing.assert_allclose(rows.delassus_of(problem), flat @ inverse @ flat.T, **EXACT)


@pytest.mark.parametrize("directions", [None, 5])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_sweeps_by_loops_are_those_by_arrays(width: int, directions: int | None) -> None:
    """Contacts of one colour each; several sweeps, in which contacts open, stick and slip."""
    problem = dynamics.problem_of(*given(width, diagonal=False))
    rule = Projected(tolerance=0.0, max_sweeps=9, newton=False, corners=corners_of(directions))
    order, ends = np.arange(CONTACTS), np.arange(CONTACTS + 1)
    one, other = (projected._search_of(problem, order, ends, np.full((CONTACTS, width), 0.1), rule) for _ in range(2))
    for _ in range(4):
        projected._sweep_by_loops(one)
        projected._sweep(other)
        np.testing.assert_allclose(one.impulses, other.impulses, **EXACT)
        np.testing.assert_allclose(one.v, other.v, **EXACT)
    pressed = other.impulses[:, 0] > 0.0
    assert 0 < pressed.sum() < CONTACTS
    assert (other.impulses[~pressed] == 0.0).all()
