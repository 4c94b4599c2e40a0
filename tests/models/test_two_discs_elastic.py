"""Two elastic discs: matrices, gaps and collisions, evaluated by hand."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest
from numpy.typing import NDArray

import nosnoc_py as ns
from models.two_discs_elastic import build

pytestmark = pytest.mark.quick


def gaps(system: ns.CLS, q: list[float]) -> NDArray[np.float64]:
    value = ca.Function("gaps", [system.q], [ca.vertcat(*[contact.gap for contact in system.contacts])])(q)
    return np.array(value).ravel()


def test_names_of_states_controls_and_contacts() -> None:
    system = build(wall=1.0)
    assert system.state_names == ("x_1", "y_1", "x_2", "y_2", "v_x_1", "v_y_1", "v_x_2", "v_y_2")
    assert system.control_names == ("u_x", "u_y")
    assert [contact.name for contact in system.contacts] == ["discs", "wall_1", "wall_2"]
    assert [contact.name for contact in build().contacts] == ["discs"]
    assert not any(contact.frictional for contact in system.contacts)


def test_gaps_are_distances() -> None:
    system = build(radii=(0.5, 0.25), wall=2.0)
    np.testing.assert_allclose(gaps(system, [0.0, 0.0, 3.0, 4.0]), [4.25, 1.5, -2.25], atol=1e-15)
    normal = ca.Function("normal", [system.q], [system.normal(system.contacts[0])])([0.0, 0.0, 3.0, 4.0])
    np.testing.assert_allclose(np.array(normal).ravel(), [-0.6, -0.8, 0.6, 0.8], atol=1e-15)


def test_masses_and_force() -> None:
    system = build(masses=(2.0, 3.0))
    evaluate = ca.Function("evaluate", [system.v, system.u], [system.mass_matrix, system.force])
    mass_matrix, force = (np.array(value) for value in evaluate([1.0, 2.0, 3.0, 4.0], [5.0, 6.0]))
    np.testing.assert_array_equal(mass_matrix, np.diag([2.0, 2.0, 3.0, 3.0]))
    np.testing.assert_array_equal(force.ravel(), [5.0, 6.0, 0.0, 0.0])  # no drag: the speeds do not matter


@pytest.mark.parametrize("masses", [(1.0, 1.0), (1.0, 1.5)])
@pytest.mark.parametrize("restitution", [0.0, 0.7, 1.0])
def test_an_oblique_collision(masses: tuple[float, float], restitution: float) -> None:
    """Along the normal Newton's law and momentum (HMP, Eq. 40), across it nothing."""
    n, across, (m_1, m_2) = np.array([0.6, 0.8]), np.array([-0.8, 0.6]), masses
    v_1 = 2.0 * n + 0.5 * across
    x0 = [*(-(0.4 + 0.5) * n - 0.125 * across), 0.0, 0.0, *v_1, 0.0, 0.0]  # 0.5 m before the collision
    system = build(masses=masses, restitution=restitution)
    found = ns.simulate(system, x0=x0, duration=0.5, method=ns.EventDriven())
    (impact,) = found.impacts
    assert impact.time == pytest.approx(0.25, abs=1e-12)
    assert impact.v_before == pytest.approx(-2.0, abs=1e-11)
    shared = 2.0 * m_1 / (m_1 + m_2)
    slow, fast = shared - 2.0 * restitution * m_2 / (m_1 + m_2), shared + 2.0 * restitution * m_1 / (m_1 + m_2)
    expected = np.concatenate([slow * n + 0.5 * across, fast * n])
    np.testing.assert_allclose(found(0.25, side="+")[4:], expected, atol=1e-11)


def test_the_wall_reflects() -> None:
    system = build(restitution=0.5, wall=1.0)
    found = ns.simulate(system, x0=[-3, 0, 0, 0.6, 0, 0, 1, 2], duration=0.3, method=ns.EventDriven())
    (impact,) = found.impacts
    assert (impact.name, impact.time) == ("wall_2", pytest.approx(0.1, abs=1e-12))
    np.testing.assert_allclose(found.final_state[[2, 3, 6, 7]], [0.3, 0.6, 1.0, -1.0], atol=1e-11)


def test_a_start_that_penetrates_is_refused() -> None:
    with pytest.raises(ns.ModelError, match="penetrates contact 'discs'"):
        build().check_state([0.0, 0.0, 0.3, 0.0, 0.0, 0.0, 0.0, 0.0])
