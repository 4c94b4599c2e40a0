"""The compiled loop of the variational integrator has its own copy of the impact with friction: it agrees."""

from __future__ import annotations

import numpy as np

from nosnoc_py.contacts.law import rebound
from nosnoc_py.contacts.problem import ContactProblem
from nosnoc_py.contacts.solver import ContactSolver, is_monotone
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
