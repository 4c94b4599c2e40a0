"""The certificate's law of impacts agrees with the enumeration of all solutions, which shares no code with it."""

from __future__ import annotations

import numpy as np
import pytest

from nosnoc_py.audit.contacts import laws_of_impacts
from nosnoc_py.audit.records import Jumps, Scales
from nosnoc_py.solution.violation import Law
from problems.benchmarks.impact_instants import LEAST_MARGIN
from tests.pairwise import slow_but
from tests.references.impact_instants import Instant, instant

BROKEN = 1e-5  # the share of the speed beyond which the certificate refutes


def broken(given: Instant, after: np.ndarray) -> dict[Law, float]:
    """The largest share of every law that a jump from the velocity before to `after` breaks."""
    system, q = given.system(), np.zeros(given.before.size)
    jumps = Jumps(
        t=np.zeros(1),
        x_before=np.concatenate([q, given.before])[None],
        x_after=np.concatenate([q, after])[None],
        impulses=None,
    )
    speed = float(np.abs(given.before).max())
    scales = Scales(length=1.0, speed=speed, acceleration=1.0, response=1.0, rest=0.0)
    found = laws_of_impacts(system, jumps, scales, system.parameters())
    return {one.law: worst.share for one in found if (worst := one.worst()) is not None}


@pytest.mark.parametrize("index", slow_but(range(12), range(32)))
def test_every_solution_is_accepted_and_none_beside_it(index: int) -> None:
    """A velocity that is off by 1e-3 of the largest breaks a law; so does one that gains energy."""
    given = instant(1, index)
    known = given.solutions()
    assert known.margin >= LEAST_MARGIN  # none of these is decided by rounding
    rng = np.random.default_rng(index)
    for after in known.rates:
        energy = 0.5 * (after @ given.mass @ after - given.before @ given.mass @ given.before)
        gain = energy > 1e-9 * 0.5 * given.before @ given.mass @ given.before
        shares = broken(given, after)
        assert max((share for law, share in shares.items() if law is not Law.ENERGY), default=0.0) < 1e-7
        assert (shares.get(Law.ENERGY, 0.0) > BROKEN) == gain
        off = 1e-3 * np.abs(given.before).max() * rng.choice([-1.0, 1.0], after.size)
        assert max(broken(given, after + off).values()) > BROKEN
