"""The compiled loop of the variational integrator has its own copies of laws of contact, with loops: they agree."""

from __future__ import annotations

import numpy as np

from nosnoc_py.contact_problems.cones import onto_disc
from nosnoc_py.contact_problems.law import rebound
from nosnoc_py.contact_problems.problem import ContactProblem
from nosnoc_py.contact_problems.solver import ContactSolver, is_monotone
from nosnoc_py.methods.variational import contacts
from nosnoc_py.methods.variational.contacts import Points, project_onto_cones
from nosnoc_py.methods.variational.friction import coulomb
from nosnoc_py.systems.kinematics import ContactFrames

ORDER = [2, 0, 1]  # the compiled copy has the normal last


def test_one_contact_in_space() -> None:
    """Where the solution is unique both give the same impulse, to 1e-10 of its size."""
    rng = np.random.default_rng(4)
    sticks = slips = 0
    for _ in range(300):
        root = rng.normal(size=(3, 5))
        weights, u = root @ root.T, rng.normal(size=3)
        u[2] = -abs(u[2])
        mu, e = float(rng.uniform(0.05, 1.0)), float(rng.choice([0.0, 0.5, 1.0]))
        frames = ContactFrames(
            names=("ground",),
            friction=np.array([mu]),
            restitution=np.array([e]),
            tangents=(slice(0, 2),),
            speeds=(0,),
            weights=np.ones(2),
        )
        offset = u[ORDER]
        offset[0] -= rebound(offset[:1], frames.restitution)[0]
        problem = ContactProblem(
            frames=frames,
            delassus=weights[np.ix_(ORDER, ORDER)],
            offset=offset,
            active=(0,),
            held=np.zeros(1, dtype=bool),
            direction=np.zeros(2),
            scale=float(np.abs(u).max()),
        )
        if not is_monotone(problem):
            continue
        found = ContactSolver(frames).solve(problem)
        assert found is not None
        copy = np.array(coulomb(tuple(weights.ravel()), tuple(u), e, mu))[ORDER]
        np.testing.assert_allclose(copy, found.forces, rtol=0, atol=1e-10 * np.abs(copy).max())
        size = np.linalg.norm(copy[1:])
        sticks, slips = sticks + (size < 0.999 * mu * copy[0]), slips + (size >= 0.999 * mu * copy[0])
    assert sticks > 20
    assert slips > 50


def test_projection_onto_the_cones() -> None:
    """Impulses -(J w - c) / epsilon, to rounding, and their derivatives by differences, to 1e-7 of their size."""
    rng = np.random.default_rng(5)
    n, w = 40, rng.normal(size=6)
    rows, targets, softness = rng.normal(size=(n, 3, 6)), rng.normal(size=n), rng.uniform(0.5, 2.0, n)
    mu, found, slopes = rng.uniform(0.1, 1.5, n), np.zeros((n, 3)), np.zeros((n, 3, 3))
    points = Points(rows, targets, mu, softness, False)
    project_onto_cones(points, np.zeros((n, 3)), w, found, slopes)
    free = (targets[:, None] * np.eye(3)[0] - rows @ w) / softness[:, None]
    carries = free[:, 0] > 0.0
    disc = onto_disc(free[:, 1:], mu * np.maximum(free[:, 0], 0.0))
    expected = np.where(carries[:, None], np.column_stack([free[:, 0], disc]), 0.0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-14)
    slips = carries & (np.linalg.norm(free[:, 1:], axis=1) > mu * free[:, 0])
    assert 5 < slips.sum() < carries.sum() - 2
    for direction in 1e-6 * np.eye(6):
        ahead, behind, unused = np.zeros((n, 3)), np.zeros((n, 3)), np.zeros((n, 3, 3))
        project_onto_cones(points, np.zeros((n, 3)), w + direction, ahead, unused)
        project_onto_cones(points, np.zeros((n, 3)), w - direction, behind, unused)
        change = -np.einsum("nij,nj->ni", slopes, rows @ direction) / softness[:, None]
        np.testing.assert_allclose((ahead - behind) / 2e-6, change / 1e-6, rtol=0, atol=1e-7)


def test_loops_and_arrays() -> None:
    """Both versions of a function, to rounding; the second system is singular and has no step."""
    rng = np.random.default_rng(6)
    n, body = 7, (2.0, None, tuple(np.diag([1.0, 2.0, 3.0]).ravel()))
    rows, w, impulses, slopes = (rng.normal(size=shape) for shape in ((n, 3, 6), 6, (n, 3), (n, 3, 3)))
    slopes[::2] = 0.0
    points = Points(rows, np.zeros(n), np.zeros(n), rng.uniform(0.5, 2.0, n), False)
    matrix = contacts._matrix_by_loops(body, points, slopes)
    pairs = [
        (contacts._velocities_by_loops(rows, w), contacts._velocities_by_arrays(rows, w)),
        (contacts._impulse_by_loops(rows, impulses), contacts._impulse_by_arrays(rows, impulses)),
        (matrix, contacts._matrix_by_arrays(body, points, slopes)),
        *(
            (contacts._solved_by_loops(system.copy(), w.copy()), contacts._solved_by_arrays(system, w))
            for system in (matrix, np.zeros((6, 6)))
        ),
    ]
    for loops, arrays in pairs:
        np.testing.assert_allclose(loops, arrays, rtol=0, atol=1e-13 * (1.0 + np.abs(arrays).max()))
