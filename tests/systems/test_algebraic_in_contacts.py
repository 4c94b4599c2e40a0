"""Algebraic variables beside contacts and in switching functions: solved for, and the same as written without them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns

pytestmark = pytest.mark.quick

q, v, u, i, power = (ca.SX.sym(name) for name in ("q", "v", "u", "i", "power"))
WALL = ns.Contact("wall", gap=1.0 - q, restitution=0.5)


def motor() -> ns.CLS:
    """Its current follows the voltage at once: R i + k v = u."""
    own = ns.Algebraic(ca.vertcat(i, power), ca.vertcat(2 * i + 0.5 * v - u, power - 3 * i), names=["current", "power"])
    return ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=0.5 * i, contacts=[WALL], algebraic=own)


def without() -> ns.CLS:
    return ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=0.25 * (u - 0.5 * v), contacts=[WALL])


def test_the_motion_is_that_of_the_system_without_them() -> None:
    asked: dict[str, Any] = {"x0": [0.0, 1.6], "duration": 2.0, "u": [1.0]}
    found = ns.simulate(motor(), **asked)
    np.testing.assert_allclose(found.final_state, ns.simulate(without(), **asked).final_state, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.value(i), 0.5 - 0.25 * found.x[:, 1], rtol=0, atol=1e-12)
    assert found.sample(power, 0.5) == pytest.approx(3 * (0.5 - 0.25 * found(0.5)[1]), abs=1e-12)
    assert replace(motor(), units={}).eliminated is not None


def test_costs_and_constraints_of_them() -> None:
    method = ns.FESDJ(control_stages=8)
    limits = [power <= 1.0, ns.Constraint(i, lower=-3.0)]
    by_z = ns.OCP(motor(), horizon=2.0, x0=[0, 1.6], stage_cost=i**2, terminal_constraints=[q == 0.4],
                  path_constraints=limits)  # fmt: skip
    j = 0.5 * (u - 0.5 * v)
    plain = ns.OCP(without(), horizon=2.0, x0=[0, 1.6], stage_cost=j**2, terminal_constraints=[q == 0.4],
                   path_constraints=[3 * j <= 1.0, ns.Constraint(j, lower=-3.0)])  # fmt: skip
    found, expected = ns.solve(by_z, method), ns.solve(plain, method)
    assert found.success
    assert found.objective == pytest.approx(expected.objective, rel=1e-7)
    assert found.certificate is not None  # the limit is broken between nodes, but the motion is true
    assert found.certificate.true_objective == pytest.approx(found.objective, rel=1e-6)
    assert 0.9 < found.value(power).max() < 1.1


def test_switching_functions_of_them() -> None:
    """z = (x_0 + x_1) / 2 falls from 0.75 at the rate 0.75, and stays at zero from t = 1 on."""
    x, z = ca.SX.sym("x", 2), ca.SX.sym("z")
    side = ns.Modes("side", functions=z, signs=[1, -1], flows=[ca.vertcat(-1, 0), ca.vertcat(1, 0)])
    own = ns.Algebraic(z, 2 * z - x[0] - x[1])
    system = ns.PSS(x=x, modes=side, algebraic=own, flow=ca.vertcat(0, -0.5))
    for method in (ns.EventDriven(), ns.FESD()):
        motion = ns.simulate(system, x0=[1.0, 0.5], duration=3.0, method=method)
        assert [event.kind for event in motion.events] == ["enter_sliding"]
        assert motion.events[0].time == pytest.approx(1.0, abs=1e-8)
        np.testing.assert_allclose(motion.final_state, [1.0, -1.0], atol=1e-8)
    inside = ns.PDS(x=x, flow=ca.vertcat(-1, -1), constraints=z, algebraic=own)
    np.testing.assert_allclose(ns.simulate(inside, x0=[1.0, 0.5], duration=3.0).final_state.sum(), 0.0, atol=1e-9)


@pytest.mark.parametrize("own", [ns.Algebraic(i, i**3 + i - u), ns.Algebraic(i, i - u, lower=0.0)])
def test_what_cannot_be_solved_for(own: ns.Algebraic) -> None:
    with pytest.raises(ns.ModelError, match="affine in z, and z without bounds"):
        ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=i, contacts=[WALL], algebraic=own)
    with pytest.raises(ns.ModelError, match="free of controls"):
        ns.PSS(x=q, u=u, algebraic=own, modes=ns.Modes("side", functions=i, signs=[1, -1], flows=[ca.SX(1), ca.SX(-1)]))
