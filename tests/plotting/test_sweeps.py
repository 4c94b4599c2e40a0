"""Pictures of many runs: cells have the right numbers, failures are seen, profiles are those of Dolan and Moré."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import LogNorm
from matplotlib.patches import Rectangle

from nosnoc_py.errors import OptionError, UnknownNameError
from nosnoc_py.plotting import error_bars, heat_map, histogram, performance_profile
from nosnoc_py.plotting.sweeps import ratios_of

pytestmark = pytest.mark.quick

ROWS: list[dict[str, Any]] = [
    {"sigma": 10.0, "name": "b", "cost": 3.0},
    {"sigma": 1.0, "name": "a", "cost": 2.0},
    {"sigma": 1.0, "name": "a", "cost": 8.0},
    {"sigma": 10.0, "name": "a", "cost": None},
    {"sigma": 1.0, "name": "b", "cost": 5.0},
    {"sigma": 1.0, "name": "b", "cost": math.inf},
]


def test_cells_are_geometric_means_and_failures_are_crossed_out(tmp_path: Path) -> None:
    figure = heat_map(ROWS, "sigma", "name", "cost", unit="s", path=tmp_path / "map.png")
    axes, bar = figure.axes
    values = np.ma.filled(axes.collections[0].get_array(), np.nan)
    assert values == pytest.approx(np.array([[5.0, 3.0], [4.0, np.nan]]), nan_ok=True)  # rows b, a; columns 1, 10
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["1", "10"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["b", "a"]
    assert [text.get_text() for text in axes.texts] == ["5\n1 of 2 failed", "3", "4", "failed"]
    crossed = [patch for patch in axes.patches if isinstance(patch, Rectangle) and patch.get_hatch()]
    assert [patch.get_xy() for patch in crossed] == [(1, 1)]
    assert bar.get_ylabel() == "cost [s]"
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")


def test_negative_numbers_have_plain_means_and_cells_without_runs_stay_empty() -> None:
    rows = [{"x": 1, "y": 1, "v": -1.0}, {"x": 1, "y": 1, "v": 2.0}, {"x": 2, "y": 2, "v": 1.0}]
    axes = heat_map(rows, "x", "y", "v").axes[0]
    values = np.ma.filled(axes.collections[0].get_array(), np.nan)
    assert values == pytest.approx(np.array([[0.5, np.nan], [np.nan, 1.0]]), nan_ok=True)
    assert len(axes.texts) == 2
    assert not axes.patches


def test_what_spans_decades_is_coloured_by_its_logarithm() -> None:
    rows = [{"x": k, "y": 0, "v": 10.0**k} for k in range(4)]
    assert isinstance(heat_map(rows, "x", "y", "v").axes[0].collections[0].norm, LogNorm)
    assert not isinstance(heat_map(rows[:2], "x", "y", "v").axes[0].collections[0].norm, LogNorm)


def test_a_map_of_failures_only_is_a_map() -> None:
    axes = heat_map([{"x": 1, "y": 1, "v": None}], "x", "y", "v").axes
    assert len(axes) == 1
    assert axes[0].texts[0].get_text() == "failed"


def test_ratios_are_over_the_cheapest() -> None:
    rows = [
        {"solver": "A", "problem": "p", "cost": 1.0},
        {"solver": "B", "problem": "p", "cost": 3.0},
        {"solver": "A", "problem": "q", "cost": 8.0},
        {"solver": "B", "problem": "q", "cost": 4.0},
        {"solver": "A", "problem": "r", "cost": 5.0},
        {"solver": "B", "problem": "r", "cost": None},
        {"solver": "A", "problem": "s", "cost": float("nan")},
        {"solver": "B", "problem": "s", "cost": None},
    ]
    found, instances = ratios_of(rows, "solver", "cost", ("problem",))
    assert instances == 4
    assert found["A"].tolist() == [1.0, 2.0, 1.0, math.inf]
    assert found["B"].tolist() == [3.0, 1.0, math.inf, math.inf]
    (axes,) = performance_profile(rows, "solver", "cost", "problem").axes
    shares = {line.get_label(): line for line in axes.lines}
    assert set(shares) == {"A (3 of 4)", "B (2 of 4)"}
    assert shares["A (3 of 4)"].get_ydata()[-1] == pytest.approx(0.75)
    assert shares["B (2 of 4)"].get_xdata()[1:3] == pytest.approx([1.0, 3.0])
    assert axes.get_xlabel() == "cost, in multiples of the cheapest solver"


def test_repeats_are_averaged_and_fail_together() -> None:
    rows = [{"s": s, "i": 0, "c": c} for s, c in (("A", 1.0), ("A", 3.0), ("B", 1.0), ("B", None))]
    found, instances = ratios_of(rows, "s", "c", ("i",))
    assert (instances, found["A"].tolist(), found["B"].tolist()) == (1, [1.0], [math.inf])


def test_a_profile_may_be_of_several_keys() -> None:
    rows = [{"s": "A", "i": i, "j": j, "c": 1.0 + i + j} for i in range(2) for j in range(3)]
    assert ratios_of(rows, "s", "c", ("i", "j"))[1] == 6


def test_bad_rows_are_refused() -> None:
    with pytest.raises(OptionError, match="no rows"):
        heat_map([], "x", "y", "v")
    with pytest.raises(UnknownNameError, match="sigma"):
        heat_map(ROWS, "sgma", "name", "cost")
    with pytest.raises(OptionError, match="cost: expected positive numbers, given -1"):
        performance_profile([{"s": "A", "i": 0, "cost": -1.0}], "s", "cost", "i")


def test_numbers_of_numpy_are_sorted_and_true_is_not_one() -> None:
    rows: list[dict[str, Any]] = [
        {"x": np.int64(100), "y": True, "v": 1.0},
        {"x": np.float32(20), "y": 1, "v": 2.0},
        {"x": 3, "y": np.True_, "v": 3.0},
    ]
    axes = heat_map(rows, "x", "y", "v").axes[0]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["3", "20", "100"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["True", "1"]
    values = np.ma.filled(axes.collections[0].get_array(), np.nan)
    assert values == pytest.approx(np.array([[3.0, np.nan, 1.0], [np.nan, 2.0, np.nan]]), nan_ok=True)


@pytest.mark.parametrize(("name", "angle"), [("a method with a very long name", 35.0), ("short", 0.0)])
def test_long_names_below_cells_are_turned(name: str, angle: float) -> None:
    figure = heat_map([{"x": f"{name} {k}", "y": 0, "v": 1.0} for k in range(4)], "x", "y", "v")
    ticks = figure.axes[0].get_xticklabels()
    assert {tick.get_rotation() for tick in ticks} == {angle}


def test_error_bars_are_quartiles(tmp_path: Path) -> None:
    rows = [{"e": e, "method": m, "cost": e + k} for e in (0.3, 0.7) for m in "ab" for k in range(5)]
    rows += [{"e": 0.7, "method": "b", "cost": None}]
    figure = error_bars(rows, "e", "cost", "method", path=tmp_path / "bars.png")
    (axes,) = figure.axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["a", "b"]
    first = axes.containers[0]
    np.testing.assert_allclose(first.lines[0].get_ydata(), [2.3, 2.7])
    ends = [segment[:, 1] for segment in first.lines[2][0].get_segments()]
    np.testing.assert_allclose(ends, [[1.3, 3.3], [1.7, 3.7]])
    assert [text.get_text() for text in axes.texts] == ["1 of 6 failed"]
    assert (tmp_path / "bars.png").stat().st_size > 1000
    named = error_bars([{"m": "x", "c": 1.0}, {"m": "y", "c": 2.0}], "m", "c")
    assert [tick.get_text() for tick in named.axes[0].get_xticklabels()] == ["x", "y"]


def test_histograms_count_runs() -> None:
    rows: list[dict[str, Any]] = [{"g": g, "c": float(c)} for g in "ab" for c in range(10)]
    rows += [{"g": "b", "c": None}]
    figure = histogram(rows, "c", "g")
    assert [sum(bar.get_height() for bar in axes.patches) for axes in figure.axes] == [10, 10]
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["g a: 10 runs", "g b: 10 runs, 1 failed"]
    assert len(histogram(rows, "c").axes) == 1
    with pytest.raises(OptionError, match="no run has a number"):
        histogram([{"c": None}], "c")
    with pytest.raises(UnknownNameError):
        histogram(rows, "d")
