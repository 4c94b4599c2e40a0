"""Two discs: the forces and the gap of Section 5.2, evaluated by hand."""

from __future__ import annotations

from dataclasses import replace
from math import hypot, sqrt

import casadi as ca
import numpy as np
import pytest
from numpy.typing import NDArray

from models.two_discs_inelastic import DRAGS, PAPER, build
from nosnoc_py.errors import OptionError

pytestmark = pytest.mark.quick

Q, V, U = [-2.0, 0.5, 1.0, -0.5], [3.0, 4.0, -1.0, 2.0], [7.0, -5.0]


def drag(name: str, v: list[float]) -> NDArray[np.float64]:
    value = DRAGS[name](ca.SX(ca.DM(v)), PAPER)
    return np.array(ca.DM(value)).ravel()


def test_constants_are_those_of_the_paper() -> None:
    assert PAPER.masses == (2.0, 1.0)
    assert PAPER.radii == (0.3, 0.2)
    assert (PAPER.drag_coefficient, PAPER.drag_regularisation, PAPER.restitution) == (2.0, 0.1, 0.0)


def test_printed_drag_adds_the_regularisation_to_each_component() -> None:
    np.testing.assert_allclose(drag("printed", [3.0, 4.0]), np.array([-6.0, -8.0]) / hypot(3.1, 4.1), rtol=1e-15)
    assert np.linalg.norm(drag("printed", [-1.0, -1.0])) > np.linalg.norm(drag("printed", [1.0, 1.0]))


def test_smooth_drag_is_the_same_in_every_direction() -> None:
    np.testing.assert_allclose(drag("smooth", [3.0, 4.0]), np.array([-6.0, -8.0]) / sqrt(25.01), rtol=1e-15)
    np.testing.assert_allclose(drag("smooth", [-3.0, -4.0]), -drag("smooth", [3.0, 4.0]), rtol=1e-15)


@pytest.mark.parametrize("name", list(DRAGS))
def test_drag_vanishes_at_rest_and_never_accelerates(name: str) -> None:
    np.testing.assert_array_equal(drag(name, [0.0, 0.0]), 0.0)
    assert np.dot(drag(name, [1.5, -0.4]), [1.5, -0.4]) <= 0.0


@pytest.mark.parametrize("name", list(DRAGS))
def test_build(name: str) -> None:
    system = build(name)
    (discs,) = system.contacts
    outputs = [system.mass_matrix, system.force, discs.gap, system.normal(discs)]
    evaluate = ca.Function("evaluate", [system.q, system.v, system.u], outputs)
    mass_matrix, force, gap, normal = (np.array(value) for value in evaluate(Q, V, U))
    np.testing.assert_array_equal(mass_matrix, np.diag([2.0, 2.0, 1.0, 1.0]))
    np.testing.assert_allclose(force.ravel(), [*(U + drag(name, V[:2])), *drag(name, V[2:])], rtol=1e-14)
    assert gap.item() == pytest.approx(3.0**2 + 1.0**2 - 0.5**2)
    np.testing.assert_allclose(normal.ravel(), [-6.0, 2.0, 6.0, -2.0])
    assert (discs.name, discs.restitution) == ("discs", 0.0)


def test_names_and_constants_reach_the_system() -> None:
    system = build("smooth", replace(PAPER, radii=(0.5, 0.5), restitution=0.3))
    assert system.state_names == ("x_1", "y_1", "x_2", "y_2", "v_x_1", "v_y_1", "v_x_2", "v_y_2")
    assert system.control_names == ("thrust_x", "thrust_y")
    (discs,) = system.contacts
    assert discs.restitution == 0.3
    touching = ca.Function("gap", [system.q], [discs.gap])([0.0, 0.0, 0.6, 0.8])
    assert float(touching) == pytest.approx(0.0, abs=1e-15)


def test_an_unknown_drag_names_the_nearest() -> None:
    with pytest.raises(OptionError, match="Did you mean 'smooth'"):
        build("smoth")
