"""Random values of a sweep: distributions, the same numbers for the same seed, tables with quartiles, mistakes."""

from __future__ import annotations

from pathlib import Path
from statistics import quantiles
from typing import Any

import numpy as np
import pytest

from nosnoc_py import sweep
from nosnoc_py.errors import OptionError
from nosnoc_py.sweep.config import configuration
from nosnoc_py.sweep.distributions import Distribution
from nosnoc_py.sweep.grid import count, runs

pytestmark = pytest.mark.quick

MODULE = """
import casadi as ca
import nosnoc_py as ns

def ball(height=1.0, weight=1.0):
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    return ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81 * weight, contacts=[ns.Contact("ground", gap=q + 99)])

def measure(problem, result, arguments):
    return {"ratio": arguments["height"] / arguments["weight"]}

def two(problem, result):
    return {"end": result.final_state[0]}

def by_name(problem, result, weight):
    return {"weight again": weight}

def unknown(problem, result, mass):
    return {}

def one(result):
    return {}
"""
HEIGHT = "problem.arguments.height"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "random_module.py").write_text(MODULE)
    return tmp_path / "s.yaml"


def given(measure: str | None = None, **parts: Any) -> dict[str, Any]:
    problem: dict[str, Any] = {"build": "random_module:ball"}
    problem |= {} if measure is None else {"measure": f"random_module:{measure}"}
    return {"problem": problem, "simulate": {"x0": [5.0, 0.0], "duration": 0.1}, "sweep": parts}


@pytest.mark.parametrize(
    ("made", "mean", "deviation"),
    [
        ({"normal": [2.0, 0.5]}, 2.0, 0.5),
        ({"uniform": [1.0, 3.0]}, 2.0, 2 / np.sqrt(12)),
        ({"lognormal": [1.0, np.e]}, np.exp(0.5), np.sqrt((np.e - 1) * np.e)),
        ({"loguniform": [1.0, np.e]}, np.e - 1, np.sqrt((np.e**2 - 1) / 2 - (np.e - 1) ** 2)),
        ({"normal": [0.0, 1.0], "lower": 0.0}, np.sqrt(2 / np.pi), np.sqrt(1 - 2 / np.pi)),
    ],
)
def test_means_and_deviations(made: dict[str, Any], mean: float, deviation: float) -> None:
    """By quantiles, not by luck: the sum over a fine grid of shares."""
    shares = (np.arange(200_000) + 0.5) / 200_000
    values = Distribution(**made).values(shares)
    assert values.mean() == pytest.approx(mean, rel=1e-3)
    assert values.std() == pytest.approx(deviation, rel=1e-2)
    if "lower" in made:
        assert values.min() >= 0


def test_bounds_cut_a_lognormal_distribution() -> None:
    """At its median and at e; a bound of a positive variable below zero cuts nothing."""
    cut = Distribution(lognormal=[1.0, np.e], lower=1.0, upper=np.e).values(np.array([0.0, 0.5, 1.0]))
    assert cut[[0, 2]] == pytest.approx([1.0, np.e], rel=1e-12)
    assert 1.0 < cut[1] < np.e
    shares = np.array([0.1, 0.5, 0.9])
    whole = Distribution(lognormal=[1.0, np.e]).values(shares)
    assert Distribution(lognormal=[1.0, np.e], lower=-2.0).values(shares) == pytest.approx(whole, rel=1e-12)


def test_the_first_values_stay_when_there_are_more(file: Path) -> None:
    random = {HEIGHT: {"normal": [1.0, 0.1]}, "problem.arguments.weight": {"uniform": [1, 2]}}
    few, many = (runs(configuration(given(random=random, samples=n), file)) for n in (3, 7))
    assert [run.key for run in few] == [run.key for run in many][:3]
    assert [count(configuration(given(random=random, samples=n), file)) for n in (3, 7)] == [3, 7]
    assert few[0].drawn == {path: few[0].resolved["problem"]["arguments"][path.split(".")[-1]] for path in random}
    other = runs(configuration(given(random=random, samples=3, seed=1), file))
    assert not {run.key for run in other} & {run.key for run in few}
    alone = runs(configuration(given(random={HEIGHT: random[HEIGHT]}, samples=3), file))
    assert [run.drawn[HEIGHT] for run in alone] == [run.drawn[HEIGHT] for run in few]  # whatever else is random


def test_a_sweep_with_an_axis_and_samples(file: Path, tmp_path: Path) -> None:
    parts = {
        "grid": {"problem.arguments.weight": [1.0, 2.0]},
        "random": {HEIGHT: {"uniform": [1.0, 2.0]}},
        "samples": 2,
    }
    whole = configuration(given("measure", **parts), file)
    assert count(whole) == 4
    results = sweep.run(whole, output=tmp_path / "out")
    assert results.success
    assert results.axes == ("problem.arguments.weight", "sample")
    assert results.drawn == (HEIGHT,)
    np.testing.assert_allclose(
        results.column("ratio"),
        np.array(results.column(HEIGHT)) / results.column("problem.arguments.weight"), rtol=1e-15
    )  # fmt: skip
    first = [row["ratio"] for row in results.rows if row["problem.arguments.weight"] == 1.0]
    low, middle, high = quantiles(first, n=4, method="inclusive")
    assert f"{middle:.5g} ({low:.4g} to {high:.4g})" in results.summary()
    assert "sample  " not in results.summary()
    assert sweep.results.read(tmp_path / "out").drawn == (HEIGHT,)


def test_without_an_axis_all_runs_are_one_group(file: Path, tmp_path: Path) -> None:
    whole = configuration(given("two", random={HEIGHT: {"uniform": [1.0, 2.0]}}, samples=2), file)
    results = sweep.run(whole, output=tmp_path / "out")
    assert "2 of 2" in results.summary()
    assert "median end" in results.summary()


def test_measures_take_arguments_by_name(file: Path, tmp_path: Path) -> None:
    results = sweep.run(configuration(given("by_name"), file), output=tmp_path / "out")
    assert results.column("weight again") == [1.0]


RANDOM = {HEIGHT: {"normal": [1.0, 0.1]}}


@pytest.mark.parametrize(
    ("measure", "parts", "said"),
    [
        (None, {"random": RANDOM}, "samples and random belong together; give samples"),
        (None, {"samples": 3}, "samples and random belong together; give random"),
        (None, {"random": {HEIGHT: {"gauss": [1, 2]}}, "samples": 2}, "unknown key 'gauss'"),
        (None, {"random": {HEIGHT: {}}, "samples": 2}, f"sweep.random.{HEIGHT}: expected one of normal, uniform"),
        (None, {"random": {HEIGHT: {"normal": [1.0]}}, "samples": 2}, "expected two numbers"),
        (None, {"random": {HEIGHT: {"normal": [1.0, -1.0]}}, "samples": 2}, "a standard deviation above 0, given -1"),
        (None, {"random": {HEIGHT: {"uniform": [2.0, 1.0]}}, "samples": 2}, "the smallest value before the largest"),
        (None, {"random": {HEIGHT: {"loguniform": [0.0, 1.0]}}, "samples": 2}, "expected numbers above 0, given 0"),
        (None, {"random": {HEIGHT: {"normal": [0, 1], "lower": 40, "upper": 41}}, "samples": 2}, "almost no values"),
        (None, {"random": {HEIGHT: {"lognormal": [1, 2], "upper": -1}}, "samples": 2}, "all numbers are above 0"),
        (None, {"random": {HEIGHT: "normal(0, 1)"}, "samples": 2}, "expected a mapping"),
        (None, {"random": {"problem.arguments.hight": {"normal": [1, 1]}}, "samples": 2}, "Did you mean 'height'"),
        (None, {"random": RANDOM, "grid": {HEIGHT: [1.0]}, "samples": 2}, "is in grid and in random"),
        ("unknown", {}, r"unknown has to take \(problem, result\)"),
        ("one", {}, r"one has to take \(problem, result\)"),
    ],
)
def test_mistakes(file: Path, measure: str | None, parts: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        runs(configuration(given(measure, **parts), file))
