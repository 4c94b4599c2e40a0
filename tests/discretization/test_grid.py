"""The grid: control stages of equal length, elements per stage, nodes for guesses."""

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.discretization.grid import Grid
from nosnoc_py.discretization.guess import TimeGrid
from nosnoc_py.mpcc.layout import At

pytestmark = pytest.mark.quick


def test_lengths_are_expressions_of_the_horizon():
    horizon = ca.SX.sym("T")
    grid = Grid.of(horizon, (2, 3, 1), [1] * 3)
    assert grid.control_stages == 3
    assert grid.elements == (2, 3, 1)
    lengths = ca.Function("lengths", [horizon], list(grid.lengths))(4.5)
    assert [float(length) for length in lengths] == [1.5, 1.5, 1.5]


def test_nominal_nodes_cover_the_horizon():
    nodes = Grid.of(ca.SX(3.0), (2, 3), [1] * 2).nominal_nodes(3.0)
    np.testing.assert_allclose(nodes[0], [0, 0.75, 1.5])
    np.testing.assert_allclose(nodes[1], [1.5, 2.0, 2.5, 3.0])


@pytest.mark.parametrize("elements", [(2,), (2, 2, 2), ()])
def test_one_number_of_elements_per_control_stage(elements):
    message = rf"finite_elements: expected one number per control stage \(2\), given {len(elements)}"
    with pytest.raises(ns.OptionError, match=message):
        Grid.of(ca.SX(1.0), elements, [1] * 2)


def test_repr_counts():
    assert repr(Grid.of(ca.SX(1.0), (2, 3), [1] * 2)) == "Grid: 2 control stages, 5 finite elements"


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([], [0, 0.25, 0.5, 0.75, 1]),
        ([0.45], [0, 0.225, 0.45, 0.725, 1]),
        ([0.45, 0.55], [0, 0.225, 0.45, 0.55, 1]),  # both are nearest to one boundary
        ([0.55, 0.45], [0, 0.225, 0.45, 0.55, 1]),
        ([0.9, 0.95], [0, 0.45, 0.9, 0.95, 1]),
        ([0.02], [0, 0.02, 0.02 + 0.98 / 3, 0.02 + 2 * 0.98 / 3, 1]),
        ([0.1, 0.2, 0.3, 0.4], [0, 0.25, 0.5, 0.75, 1]),  # more events than boundaries
    ],
)
def test_events_come_to_lie_on_boundaries_of_free_stages(times: list[float], expected: list[float]) -> None:
    grid = Grid.of(ca.SX(1.0), (1, 2, 1, 1), [1] * 4)
    moved = TimeGrid.equal(grid, np.array([1.0]), 1.0).through(times, free_stages=True)
    ends = [nodes[0] for nodes in moved.nodes] + [moved.nodes[-1][-1]]
    np.testing.assert_allclose(ends, expected, atol=1e-15)
    assert moved.nodes[1][1] == pytest.approx(0.5 * (ends[1] + ends[2]))
    shares = [moved.stage_share(At(k)) for k in range(4)]
    np.testing.assert_allclose(shares, 4 * np.diff(expected), atol=1e-14)
