"""Gaps, forces and derivatives that are no numbers end a simulation with a status; so does a law missed grossly."""

from __future__ import annotations

import re
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from tests.pairwise import slow_row

GRAVITY = 9.81


def ball(gap: Any, force: Any = None, **more: Any) -> ns.CLS:
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    law = ca.SX(-GRAVITY) if force is None else force(q, v)
    return ns.CLS(q=q, v=v, mass_matrix=ca.SX(1), force=law, contacts=[ns.Contact("ground", gap=gap(q), **more)])


def bowl() -> ns.CLS:
    """The unit circle from inside; there is no gap beside it."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    round_ = ns.Contact("bowl", gap=q[1] + ca.sqrt(1 - q[0] ** 2))
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.DM([0, -GRAVITY]), contacts=[round_])


def test_a_gap_that_is_no_number_behind_the_contact_is_not_lost() -> None:
    """sqrt(q): the fall takes sqrt(2 / g) = .4515 s, and nothing is under the floor."""
    found = ns.simulate(ball(ca.sqrt), x0=[1.0, 0.0], duration=1.0, method=ns.EventDriven())
    assert found.status is ns.Status.NUMERICAL_ERROR
    assert "is no finite number any more" in found.message
    assert found.t[-1] == pytest.approx(np.sqrt(2.0 / GRAVITY), abs=2e-3)
    assert found.x[:, 0].min() > 0.0


def test_a_contact_before_the_gap_ceases_to_be_a_number_is_found() -> None:
    """A ball thrown into a bowl lands where its parabola meets the circle, .492 s later, in the first long step."""
    found = ns.simulate(bowl(), x0=[0.0, 1.0, 2.0, 0.0], duration=1.0, method=ns.EventDriven())
    assert found.impacts
    hit = found.impacts[0].time
    x, y = 2.0 * hit, 1.0 - 0.5 * GRAVITY * hit**2
    assert abs(x**2 + y**2 - 1.0) < 1e-9
    assert hit == pytest.approx(0.4916, abs=1e-3)


@pytest.mark.parametrize(
    "method", [slow_row(None), slow_row(ns.EventDriven()), ns.TimeStepping()], ids=["elements", "events", "steps"]
)
def test_no_simulator_flies_on_without_a_gap(method: Any) -> None:
    found = ns.simulate(bowl(), x0=[0.0, 1.0, 2.0, 0.0], duration=2.0, method=method, time_limit=60)
    assert not found.success
    assert found.status in (ns.Status.NUMERICAL_ERROR, ns.Status.STEP_FAILED)
    if not isinstance(method, ns.EventDriven):  # it stops on the rim, where the normal is infinite
        assert found.status is ns.Status.NUMERICAL_ERROR
        assert "finite number" in found.message
    assert found.final_state[1] > -1.0
    assert found.t[-1] < 1.2


@pytest.mark.parametrize("force", [lambda q, v: ca.sqrt(v) - GRAVITY, lambda q, v: ca.sqrt(q - 0.5) - GRAVITY])
def test_derivatives_that_are_infinite_are_a_numerical_error(force: Any) -> None:
    """The inverse of an infinite matrix is zero: the ball hung in the air for a second and was called solved."""
    found = ns.simulate(ball(lambda q: q, force), x0=[1.0, 0.0], duration=1.0, method=ns.TimeStepping())
    assert found.status is ns.Status.NUMERICAL_ERROR
    assert "no finite numbers" in found.message


def test_a_law_of_contacts_that_is_missed_grossly_is_not_solved() -> None:
    """A force 10 q^3 throws the body to infinity; steps that fail to stop it miss by as much as it is fast."""
    system = ball(lambda q: q + 50.0, lambda q, v: 10.0 * q**3, restitution=0.5)
    found = ns.simulate(system, x0=[1.0, 1.0], duration=3.0, method=ns.TimeStepping(), steps=1000)
    assert found.status in (ns.Status.INACCURATE, ns.Status.NUMERICAL_ERROR)
    gentle = ns.simulate(ball(lambda q: q), x0=[1.0, 0.0], duration=1.0, method=ns.TimeStepping(), steps=200)
    assert gentle.success


def thrown(force: Any) -> ns.CLS:
    """A body on a line with a control; walls are far away."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    return ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=force(q, v, u), contacts=[ns.Contact("wall", gap=q + 50)])


EVERY = [ns.EventDriven(), ns.FESDJ(), ns.TimeStepping(step=0.01)]
NAMES = ["events", "elements", "steps"]


@pytest.mark.parametrize("method", EVERY, ids=NAMES)
@pytest.mark.parametrize(
    "law", [lambda t, x: [np.nan] if x[0] > 0.5 else [0.0], lambda t: [np.nan] if t > 0.5 else 0.0]
)
def test_a_law_that_begins_to_be_no_number_ends_the_motion_where_it_does(law: Any, method: Any) -> None:
    """At a speed of 1 m/s position and time are the same; the motion up to there is kept."""
    system = thrown(lambda q, v, u: u)
    for found in (
        ns.Simulator(system, method, step=0.05).run([0, 1], steps=20, u=law),
        ns.simulate(system, x0=[0, 1], duration=1.0, method=method, u=law),
    ):
        assert found.status is ns.Status.NUMERICAL_ERROR
        assert found.t[-1] == pytest.approx(0.5, abs=0.06)
        assert found.final_state[0] == pytest.approx(found.t[-1], abs=1e-9)
        assert "the control" in found.message
        assert "no finite number" in found.message
        assert "t = 0.5" in found.message


@pytest.mark.parametrize("method", EVERY, ids=NAMES)
def test_a_law_that_never_was_a_number_is_an_error(method: Any) -> None:
    with pytest.raises(ns.NosnocError, match="NaN"):
        ns.simulate(thrown(lambda q, v, u: u), x0=[0, 1], duration=1.0, method=method, u=lambda t, x: [np.nan])


@pytest.mark.parametrize("method", EVERY, ids=NAMES)
def test_a_force_that_begins_to_be_no_number_is_named_with_its_time(method: Any) -> None:
    """sqrt(.5 - q) is none behind q = .5, which is reached at about half a second."""
    system = thrown(lambda q, v, u: u - 1e-3 * ca.sqrt(0.5 - q))
    found = ns.simulate(system, x0=[0, 1], duration=1.0, method=method, time_limit=60)
    assert found.status is ns.Status.NUMERICAL_ERROR
    assert 0.45 < found.t[-1] < 0.52
    assert "the force is no finite number" in found.message
    assert re.search(r"t = 0\.(4[5-9]|5)", found.message), found.message


X, U, A = ca.SX.sym("x"), ca.SX.sym("u"), ca.SX.sym("a")
ROOT = 1 + U + 1e-3 * ca.sqrt(0.5 - X)
FILIPPOV = {
    "PSS": (
        ns.PSS(x=X, u=U, modes=ns.Modes("m", flows=[ROOT, 2.0], functions=X + 1, signs=[[1], [-1]])),
        "flow 0 of m",
    ),
    "Heaviside": (ns.Heaviside(x=X, u=U, alpha=A, functions=X + 1, flow=A * ROOT), "the flow"),
    "PDS": (ns.PDS(x=X, u=U, flow=ROOT, constraints=X + 1), "the flow"),
}


@pytest.mark.parametrize("method", [ns.EventDriven(), ns.FESD()], ids=["events", "elements"])
@pytest.mark.parametrize("kind", FILIPPOV)
def test_flows_that_begin_to_be_no_number_are_named(kind: str, method: Any) -> None:
    system, name = FILIPPOV[kind]
    found = ns.simulate(system, x0=[0], duration=1.0, method=method, time_limit=60)
    assert found.status is ns.Status.NUMERICAL_ERROR, found.message
    assert 0.4 < found.t[-1] < 0.52
    assert f"{name} is no finite number" in found.message


@pytest.mark.parametrize("method", EVERY, ids=NAMES)
def test_a_time_limit_before_the_first_step_says_so(method: Any) -> None:
    system = thrown(lambda q, v, u: u)
    found = ns.simulate(system, x0=[0, 1], duration=1.0, method=method, time_limit=1e-9)
    assert found.status is ns.Status.TIME_LIMIT
    assert "before the end of the first step" in found.message
    assert not ns.simulate(system, x0=[0, 1], duration=1.0, method=method, time_limit=60).message


def test_a_missed_law_is_a_status_by_the_share_of_the_speeds_at_work() -> None:
    """Two sweeps leave a pile of five balls with misses of a tenth of its speeds; enough sweeps solve it."""
    count = 5
    q, v = ca.SX.sym("q", count), ca.SX.sym("v", count)
    gaps = [q[0], *(q[k + 1] - q[k] for k in range(count - 1))]
    contacts = [ns.Contact(f"c{k}", gap=gap) for k, gap in enumerate(gaps)]
    pile = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(count), force=-GRAVITY * ca.DM.ones(count), contacts=contacts)
    x0 = [*(0.01 * np.arange(1, count + 1)), *np.zeros(count)]
    sweeps = ns.TimeStepping(solver="projected_gauss_seidel", max_sweeps=2, step=5e-3)
    inexact = ns.simulate(pile, x0=x0, duration=0.3, method=sweeps)
    fine = ns.simulate(pile, x0=x0, duration=0.3, method=ns.TimeStepping(step=5e-3))
    missed = float(re.search(r"the worst by ([\d.e+-]+) m/s", inexact.message)[1])  # type: ignore[index]
    speed = float(np.abs(inexact.x[:, count:]).max())
    assert missed > 1e-2 * speed
    assert inexact.status is ns.Status.INACCURATE
    assert fine.success
    assert "miss the tolerance" not in fine.message
