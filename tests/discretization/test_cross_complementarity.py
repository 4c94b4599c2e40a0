"""Which products vanish inside one finite element: counts and places, the left boundary among them."""

import numpy as np
import pytest

from nosnoc_py.discretization.cross_complementarity import CROSS, PairRows, add_groups
from nosnoc_py.mpcc.program import ProgramBuilder

pytestmark = pytest.mark.quick


def rows(stages, components):
    """Left rows first, then stage by stage."""
    a = np.arange(components * (stages + 1)).reshape(stages + 1, components)
    return PairRows(a[0], a[1:], np.arange(components * stages).reshape(stages, components))


def products(pair, rule):
    builder = ProgramBuilder()
    add_groups(builder, pair, rule)
    return {(int(i), int(j)) for group in builder.groups for i in group.left for j in group.right}, builder.groups


@pytest.mark.parametrize("components", [1, 2])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_left_forbids_every_force_with_every_gap_of_the_element(stages, components):
    pair = rows(stages, components)
    found, groups = products(pair, "left")
    assert len(groups) == components
    assert len(found) == components * stages * (stages + 1)
    for i in range(components):
        for j in range(stages):
            assert (pair.a_left[i], pair.b[j, i]) in found  # Eq. 20 with j = 0: without it bodies are caught
            assert all((pair.a[k, i], pair.b[j, i]) in found for k in range(stages))


@pytest.mark.parametrize("components", [1, 2])
@pytest.mark.parametrize("stages", [1, 2, 3])
def test_none_forbids_only_what_stands_at_one_stage(stages, components):
    pair = rows(stages, components)
    found, groups = products(pair, "none")
    expected = {(pair.a[j, i], pair.b[j, i]) for i in range(components) for j in range(stages)}
    assert found == expected
    assert len(groups) == components * stages


@pytest.mark.parametrize("rule", CROSS)
def test_components_never_mix(rule):
    found, _ = products(rows(3, 2), rule)
    assert all(i % 2 == j % 2 for i, j in found)


def test_a_left_boundary_that_is_a_stage_of_the_element_before_counts_once():
    pair = PairRows(np.array([4]), np.array([[4], [5]]), np.array([[0], [1]]))
    _, groups = products(pair, "left")
    assert np.array_equal(groups[0].left, [4, 5])
