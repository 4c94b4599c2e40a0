"""Hybrid systems: what they check, and what a frictionless CLS becomes."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import bouncing_ball, two_discs_elastic
from nosnoc_py.errors import ModelError, OptionError
from nosnoc_py.reformulation.hybrid import hybrid
from nosnoc_py.systems.hybrid import HybridSystem, StateJump

pytestmark = pytest.mark.quick

X, U, P = ca.SX.sym("x", 2), ca.SX.sym("u"), ca.SX.sym("p")


def ball(**changes: Any) -> HybridSystem:
    given: dict[str, Any] = {
        "x": X,
        "u": U,
        "p": P,
        "flow": ca.vertcat(X[1], U - P),
        "jumps": [StateJump("floor", guard=X[0], reset=ca.vertcat(X[0], -0.5 * X[1]))],
        "p_default": [9.81],
    }
    return HybridSystem(**{**given, **changes})


def test_the_system_says_what_it_is() -> None:
    system = ball(names={"x": ["height", "speed"], "u": ["thrust"]})
    assert system.state_names == ("height", "speed")
    assert (system.n_u, system.n_p) == (1, 1)
    assert repr(system).splitlines()[-1] == "  jump     floor: guard height"
    ocp = ns.OCP(system, horizon=1.0, x0=[1, 0], stage_cost=U**2)
    assert ocp.system is system


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"flow": X[1]}, "expected 2 rows"),
        ({"flow": ca.vertcat(X[1], ca.SX.sym("w"))}, "depends on w"),
        ({"jumps": StateJump("a", guard=X[0], reset=X)}, "put it in a list"),
        (
            {"jumps": [StateJump("a", guard=X[0], reset=X), StateJump("a", guard=X[1], reset=X)]},
            "two jumps are named 'a'",
        ),
        ({"jumps": [StateJump("a", guard=P, reset=X)]}, "does not depend on x"),
        ({"jumps": [StateJump("a", guard=X[0], reset=X[0])]}, "expected 2 rows"),
        ({"jumps": [StateJump("a", guard=X[0] + U, reset=X)]}, "depends on u"),
        ({"x": None, "flow": []}, "at least one component"),
    ],
)
def test_mistakes_are_errors(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        ball(**changes)


def test_a_state_beyond_a_guard_is_an_error() -> None:
    np.testing.assert_array_equal(ball().check_state([0.0, 1.0]), [0.0, 1.0])
    with pytest.raises(ModelError, match="beyond the guard of jump 'floor'"):
        ball().check_state([-0.1, 0.0])


@pytest.mark.parametrize(("masses", "e"), [((1.0, 1.0), 1.0), ((1.0, 1.5), 0.7), ((3.0, 0.2), 0.1)])
def test_the_reset_of_two_discs_is_that_of_the_paper(masses: tuple[float, float], e: float) -> None:
    """HMP, Eqs. 39-40, written out by hand; momentum is conserved, energy lost as restitution says."""
    system = hybrid(two_discs_elastic.build(masses=masses, restitution=e))
    (jump,) = system.jumps
    reset = ca.Function("reset", [system.x], [jump.reset, jump.impulse])
    random = np.random.default_rng(1)
    angle = random.uniform(0, 2 * np.pi)
    n = np.array([np.cos(angle), np.sin(angle)])  # from disc 2 to disc 1
    q_2, (v_1, v_2) = random.normal(size=2), random.normal(size=(2, 2))
    q_1 = q_2 + 0.4 * n
    m_1, m_2 = masses
    elastic = [
        v_1 - 2 * m_2 * ((v_1 - v_2) @ n) / (m_1 + m_2) * n,
        v_2 + 2 * m_1 * ((v_1 - v_2) @ n) / (m_1 + m_2) * n,
    ]
    centre = (m_1 * v_1 + m_2 * v_2) / (m_1 + m_2)
    expected = [v + (e - 1) * (v @ n) * n - (e - 1) * (centre @ n) * n for v in elastic]
    after, impulse = (np.array(out).reshape(-1) for out in reset(np.concatenate([q_1, q_2, v_1, v_2])))
    np.testing.assert_allclose(after[:4], [*q_1, *q_2], atol=0)
    np.testing.assert_allclose(after[4:].reshape(2, 2), expected, atol=1e-14)
    np.testing.assert_allclose(m_1 * after[4:6] + m_2 * after[6:], m_1 * v_1 + m_2 * v_2, atol=1e-14)
    np.testing.assert_allclose(m_2 * (after[6:] - v_2), -impulse * n, atol=1e-14)


def test_the_flow_is_that_of_the_cls() -> None:
    cls = bouncing_ball.build()
    system = hybrid(cls)
    flow = ca.Function("flow", [system.x, system.u, system.p], [system.flow])
    x = np.linspace(1, 2, system.x.numel())
    force = ca.Function("force", [cls.q, cls.v, cls.u, cls.p], [ca.solve(cls.mass_matrix, cls.force)])
    n, p = cls.n_q, cls.p_default
    expected = np.concatenate([x[n:], np.array(force(x[:n], x[n:], np.zeros(cls.n_u), p)).reshape(-1)])
    np.testing.assert_allclose(np.array(flow(x, np.zeros(cls.n_u), p)).reshape(-1), expected, rtol=1e-15)
    assert system.state_names == cls.state_names
    assert [jump.name for jump in system.jumps] == [contact.name for contact in cls.contacts]


def test_friction_and_inelastic_contacts_name_the_methods_that_take_them() -> None:
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)

    def build(**contact: Any) -> ns.CLS:
        return ns.CLS(
            q=q, v=v, mass_matrix=ca.DM.eye(2), force=[0, -9.81], contacts=[ns.Contact("ground", gap=q[1], **contact)]
        )

    with pytest.raises(ModelError, match=r"'ground' has friction.*FESDJ"):
        hybrid(build(tangent=[1, 0], friction=0.3, restitution=0.5))
    with pytest.raises(ModelError, match=r"'ground' is inelastic.*FESDJ"):
        hybrid(build())
    with pytest.raises(OptionError, match="expected CLS"):
        hybrid(ball())  # type: ignore[arg-type]


def test_nominal_values_go_with_the_system() -> None:
    q, v, u = ca.SX.sym("q", 1), ca.SX.sym("v", 1), ca.SX.sym("u")
    nominal = {"q": [2.0], "v": [30.0], "u": [400.0]}
    contact = ns.Contact("floor", gap=q, restitution=0.5)
    system = hybrid(ns.CLS(q=q, v=v, u=u, mass_matrix=[[2.0]], force=[u], contacts=[contact], nominal=nominal))
    np.testing.assert_array_equal(system.x_nominal, [2.0, 30.0])
    np.testing.assert_array_equal(system.u_nominal, [400.0])
