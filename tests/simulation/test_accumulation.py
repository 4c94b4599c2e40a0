"""Infinitely many impacts that come to an end, and touches without speed that follow from the modes."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns

GRAVITY, HALF, MASS = 9.81, 0.3, 2.0


def plank(ratio: float, friction: float = 0.0) -> ns.CLS:
    """A plank on two feet that turns by small angles only: gaps y +- HALF a. Its motion is known.

    While one foot turns on the ground the other one falls with g (1 - ratio); where it hits, without rebound, the first
    one is thrown up with `ratio` times its speed: ratio = B / A for the Delassus matrix [[A, B], [B, A]].
    """
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    inertia = HALF**2 * MASS * (1.0 + ratio) / (1.0 - ratio)
    contacts = [
        ns.Contact(
            name, gap=q[1] + side * HALF * q[2], tangent=ca.DM([1, 0, 0]) if friction else None, friction=friction
        )
        for name, side in (("left", -1), ("right", 1))
    ]
    force = ca.DM([0, -MASS * GRAVITY, 0])
    return ns.CLS(q=q, v=v, mass_matrix=ca.diag(ca.DM([MASS, MASS, inertia])), force=force, contacts=contacts)


def rests(ratio: float, height: float) -> float:
    """When a plank rests that begins on its left foot, with the right one at a height: the sum of all flights."""
    falls = GRAVITY * (1.0 - ratio)
    hits = np.sqrt(2.0 * height * falls)
    return float(hits / falls * (1.0 + 2.0 * ratio / (1.0 - ratio)))


@pytest.mark.parametrize("ratio", [0.9, 0.5, 0.1, 0.01, 1e-4])
def test_a_rocking_plank_comes_to_rest(ratio: float) -> None:
    """It goes on where the geometric sequence of its impacts ends, both feet on the ground."""
    found = ns.simulate(plank(ratio), x0=[0.0, 0.03, 0.1, 0.5, 0.0, 0.0], duration=8.0)
    assert found.success, found.message
    np.testing.assert_allclose(found.final_state, [4.0, 0.0, 0.0, 0.5, 0.0, 0.0], atol=1e-10)
    assert found.events[-1].kind == "contact"
    assert found.events[-1].time == pytest.approx(rests(ratio, 0.06), abs=1e-6)


def test_friction_goes_on_through_an_accumulation() -> None:
    """The ground carries the weight times the time, by impulses and forces: friction costs mu g of the slip."""
    found = ns.simulate(plank(0.5, 0.1), x0=[0.0, 0.03, 0.1, 3.0, 0.0, 0.0], duration=2.0)
    assert found.success, found.message
    np.testing.assert_allclose(found.final_state[3:], [3.0 - 0.1 * GRAVITY * 2.0, 0.0, 0.0], atol=1e-6)


def test_derivatives_through_an_accumulation_are_refused() -> None:
    found = ns.simulate(plank(0.5), x0=[0.0, 0.03, 0.1, 0.5, 0.0, 0.0], duration=2.5, sensitivities=True)
    assert found.sensitivity is not None
    assert any("infinitely many impacts" in flag for flag in found.sensitivity.flags)
    assert np.isnan(found.sensitivity.x0).any()


def floating(pull: ca.SX | float, q: ca.SX, v: ca.SX, u: ca.SX | None = None) -> ns.CLS:
    """A unit mass above the ground that is not thrown back."""
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.SX(1), force=pull, contacts=[ns.Contact("ground", gap=q)])


def test_a_spring_returns_to_where_it_left() -> None:
    """The ground takes all its speed; the spring lets it touch the ground again without speed after every period."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    omega, length = 6.0, 0.4
    found = ns.simulate(floating(omega**2 * (length - q), q, v), x0=[0.0, -1.0], duration=2.75 * 2 * np.pi / omega)
    assert found.success, found.message
    np.testing.assert_allclose(found.final_state, [length, -omega * length], atol=1e-8)


def test_a_control_that_brings_it_back_without_speed_grazes() -> None:
    """Negative control: the same touch, with the same force as it left, but any other control misses or hits."""
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    control = ns.PiecewiseConstant([0.0, 1.0, 3.0, 5.0], [[1.0], [-1.0], [1.0]])
    found = ns.simulate(floating(u, q, v, u), x0=[0.0, 0.0], duration=5.0, u=control)
    assert found.status is ns.Status.GRAZING
    assert found.t[-1] == pytest.approx(4.0, abs=1e-4)
    method = ns.EventDriven(grazing="continue")
    found = ns.simulate(floating(u, q, v, u), x0=[0.0, 0.0], duration=5.0, u=control, method=method)
    np.testing.assert_allclose(found.final_state, [0.5, 1.0], atol=1e-6)


def below_a_disc(floor: bool) -> ns.CLS:
    """A point that slides to the right, and a disc of radius 1 that may stand on the same floor."""
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    contacts = [ns.Contact("disc", gap=ca.norm_2(ca.vertcat(q[0], q[1] - q[2])) - 1.0)]
    contacts += [ns.Contact("point", gap=q[1]), ns.Contact("stands", gap=q[2] - 1.0)] if floor else []
    weight = ca.DM([0, -1, -1]) if floor else ca.DM.zeros(3)
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(3), force=weight, contacts=contacts)


def test_a_point_passes_below_a_disc() -> None:
    """Both stay on the floor, so the gap between them becomes zero without speed, whatever the data are."""
    found = ns.simulate(below_a_disc(floor=True), x0=[-1.0, 0.0, 1.0, 1.0, 0.0, 0.0], duration=2.0)
    assert found.success, found.message
    np.testing.assert_allclose(found.final_state, [1.0, 0.0, 1.0, 1.0, 0.0, 0.0], atol=1e-9)


def test_a_point_that_nothing_holds_grazes_the_disc() -> None:
    """Negative control: the same path without a floor."""
    found = ns.simulate(below_a_disc(floor=False), x0=[-1.0, 0.0, 1.0, 1.0, 0.0, 0.0], duration=2.0)
    assert found.status is ns.Status.GRAZING
    assert found.t[-1] == pytest.approx(1.0, abs=1e-4)
