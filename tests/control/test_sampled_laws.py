"""Laws that are asked every period and held in between, in every simulation."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.control.measured import admissible
from nosnoc_py.errors import ModelError, OptionError

pytestmark = pytest.mark.quick


def cart() -> ns.CLS:
    """A mass that is pushed, far from a wall."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    return ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=2 - q)])


@pytest.mark.parametrize(
    "method",
    [ns.EventDriven(), ns.TimeStepping(), ns.FESDJ(rk_stages=2)],
    ids=["events", "time stepping", "finite elements"],
)
def test_a_sampled_law_is_held_for_its_period(method):
    """Braking by the measured velocity ten times a second multiplies it by 0.9 at every sample."""
    motion = ns.simulate(cart(), x0=[0, 1], duration=1.0, u=ns.SampledLaw(lambda t, x: -x[1], 0.1), method=method)
    assert motion.final_state[1] == pytest.approx(0.9**10, abs=1e-9)


def test_a_law_is_asked_once_for_every_sample():
    asked = []

    def law(t, x):
        asked.append(round(t, 9))
        return -x[1]

    ns.simulate(cart(), x0=[0, 1], duration=0.5, u=ns.SampledLaw(law, 0.1))
    assert set(asked) == {0.0, 0.1, 0.2, 0.3, 0.4}


@pytest.mark.parametrize(("law", "period"), [(3.0, 0.1), (lambda t: t, 0.1), (lambda t, x: x, 0.0)])
def test_what_is_no_sampled_law_is_said(law, period):
    with pytest.raises(OptionError, match="SampledLaw"):
        ns.SampledLaw(law, period)


def test_a_measured_state_is_moved_out_of_bodies_in_the_metric_of_the_masses():
    """Two balls that overlap by 0.1: the light one moves three times as far as the heavy one."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    balls = ns.CLS(q=q, v=v, mass_matrix=ca.diag(ca.DM([3, 1])), force=ca.DM.zeros(2), contacts=[
        ns.Contact("balls", gap=q[1] - q[0] - 1)])  # fmt: skip
    moved = admissible(balls, [0.0, 0.9, 0.5, 0.0])
    assert moved == pytest.approx([-0.025, 0.975, 0.5, 0.0], abs=1e-12)
    # Far away the rounding of positions is larger than a penetration that matters near the origin.
    for place in np.random.default_rng(0).uniform(1e5, 1e6, 50):
        assert np.diff(admissible(balls, [place, place + 1 - 1e-9, 0.0, 0.0])[:2]) == pytest.approx(1, abs=1e-8)
    with pytest.raises(ModelError, match="finite"):
        admissible(balls, [0.0, np.nan, 0.0, 0.0])
