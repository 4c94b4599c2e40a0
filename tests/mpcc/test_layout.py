"""The layout: every row is in exactly one block, has a label, and is found again."""

from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nosnoc_py as ns
from nosnoc_py.mpcc.layout import At, Layout

pytestmark = pytest.mark.quick

NAMES = st.sampled_from(["x", "u", "lambda_normal", "s"])
INDEX = st.none() | st.integers(0, 4)
BLOCKS = st.lists(
    st.tuples(NAMES, st.builds(At, INDEX, INDEX, INDEX), st.integers(0, 3)), max_size=25, unique_by=lambda b: b[:2]
)


def filled(blocks):
    layout = Layout()
    for name, at, size in blocks:
        layout.add(name, at, tuple(f"{name}[{i}]" for i in range(size)))
    return layout


@pytest.fixture
def layout():
    return filled(
        [("u", At(0), 1), ("empty", At(), 0), ("x", At(0, 1, 2), 3), ("void", At(), 0), ("x", At(0, 1, 3), 2)]
    )


@given(BLOCKS)
def test_blocks_cover_every_row_once(blocks):
    layout = filled(blocks)
    covered = [row for block in layout.blocks() for row in range(block.rows.start, block.rows.stop)]
    assert covered == list(range(layout.size))
    assert layout.size == len(layout) == sum(size for _, _, size in blocks)


@given(BLOCKS)
def test_every_row_is_found_in_the_block_that_holds_it(blocks):
    layout = filled(blocks)
    for row in range(layout.size):
        block, component = layout.find(row)
        assert block.rows.start + component == row
        assert 0 <= component < block.size
        assert layout[block.name, block.at.stage, block.at.element, block.at.rk] == block.rows
        assert layout.label(row) == (f"{block.name}[{component}]", str(block.at))


@given(BLOCKS)
def test_blocks_of_a_name_are_its_blocks_in_order(blocks):
    layout = filled(blocks)
    assert layout.names == tuple(dict.fromkeys(name for name, _, _ in blocks))
    for name in layout.names:
        assert [b.at for b in layout.blocks(name)] == [at for n, at, _ in blocks if n == name]


class Kind(Enum):
    """What rows may be, to whoever wrote them."""

    LEVEL = 1
    RATE = 2
    NOTHING = 3


def test_blocks_of_a_role_are_its_blocks_in_order_whatever_they_are_called():
    layout = Layout()
    rows = [("a", Kind.LEVEL), ("b", Kind.RATE), ("c", Kind.LEVEL), ("a", None)]
    for k, (name, kind) in enumerate(rows):
        layout.add(name, At(k), (name,), kind)
    assert [block.start for block in layout.blocks(role=Kind.LEVEL)] == [0, 2]
    assert [block.start for block in layout.blocks("a", role=Kind.LEVEL)] == [0]
    assert [block.start for block in layout.blocks("a")] == [0, 3]
    assert not list(layout.blocks(role=Kind.NOTHING))


def test_rows_at_the_borders_of_blocks(layout):
    assert [layout.find(row)[1] for row in range(6)] == [0, 0, 1, 2, 0, 1]
    assert [layout.find(row)[0].name for row in range(6)] == ["u", "x", "x", "x", "x", "x"]
    assert layout.find(3)[0].at == At(0, 1, 2)
    assert layout.find(4)[0].at == At(0, 1, 3)
    assert layout["x", 0, 1, 3] == slice(4, 6)
    assert layout["empty"] == slice(1, 1)


def test_labels_say_where_in_words(layout):
    assert layout.label(0) == ("u[0]", "control stage 0")
    assert layout.label(5) == ("x[1]", "control stage 0, finite element 1, RK stage 3")
    assert str(At()) == "whole horizon"
    assert str(At(2, 0)) == "control stage 2, finite element 0"


@pytest.mark.parametrize("row", [-1, 6, 100])
def test_a_row_outside_is_refused(layout, row):
    with pytest.raises(ns.TranscriptionError, match=f"expected a row from 0 to 5, given {row}"):
        layout.find(row)


def test_an_unknown_name_suggests_the_nearest():
    layout = filled([("x", At(0, 0, j), 1) for j in range(30)] + [("lambda_normal", At(0, 0, 0), 1)])
    for attempt in (lambda: layout["lamda_normal", 0, 0, 0], lambda: layout.blocks("lamda_normal")):
        with pytest.raises(ns.UnknownNameError, match=r"block 'lamda_normal'\. Did you mean 'lambda_normal'"):
            attempt()


def test_an_unknown_place_suggests_the_nearest(layout):
    with pytest.raises(ns.UnknownNameError) as caught:
        layout["x", 0, 1]
    assert "unknown layout block 'x at control stage 0, finite element 1'" in str(caught.value)
    assert "Did you mean 'x at control stage 0, finite element 1, RK stage" in str(caught.value)
    with pytest.raises(ns.UnknownNameError):
        layout["x", 0, 1, 2, 0]
    with pytest.raises(ns.UnknownNameError):
        layout["u"]


def test_repr_counts_rows(layout):
    assert repr(layout) == "Layout: 6 rows: u (1), empty (0), x (5), void (0)"
