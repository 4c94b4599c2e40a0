"""Examples in docstrings run and give what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import nosnoc_py as ns

# Modules whose examples need packages that are extras.
EXTRAS = {
    "nosnoc_py.control.mujoco_plant": "mujoco",
    "nosnoc_py.solution.tables": "xarray",
    "nosnoc_py.sweep.cluster": "distributed",
}
PACKAGE = Path(ns.__file__).parent


def examples(name: str) -> list[doctest.DocTest]:
    found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name))
    return [test for test in found if test.examples]


def with_examples() -> list[str]:
    """Modules with examples, by their text: what is not asked for is not imported."""
    files = [path.relative_to(PACKAGE.parent).with_suffix("") for path in sorted(PACKAGE.rglob("*.py"))]
    texts = {".".join(file.parts): PACKAGE.parent.joinpath(file).with_suffix(".py").read_text() for file in files}
    return [name for name, text in texts.items() if ">>> " in text]


@pytest.mark.parametrize("name", with_examples())
def test_examples(name: str) -> None:
    if name in EXTRAS:
        pytest.importorskip(EXTRAS[name])
    runner = doctest.DocTestRunner(verbose=False)
    for test in examples(name):
        runner.run(test)
    assert runner.failures == 0


# What users write first: every word of it is shown.
SHOWN = {
    "OCP": ns.OCP,
    "Bounds": ns.Bounds,
    "Constraint": ns.Constraint,
    "PointCost": ns.PointCost,
    "least_squares": ns.least_squares,
    "Data": ns.Data,
    "Hysteresis": ns.Hysteresis,
    "ODE": ns.ODE,
    "CLS": ns.CLS,
    "Contact": ns.Contact,
    "Sequence": ns.Sequence,
    "solve": ns.solve,
    "simulate": ns.simulate,
    "plot": ns.plot,
    "value": ns.Trajectory.value,
    "sample": ns.Trajectory.sample,
    "q": ns.Trajectory.q,
    "v": ns.Trajectory.v,
    "to_dataframe": ns.Trajectory.to_dataframe,
    "to_xarray": ns.Trajectory.to_xarray,
}


@pytest.mark.quick
@pytest.mark.parametrize("word", SHOWN)
def test_words_have_an_example(word: str) -> None:
    assert ">>> " in (SHOWN[word].__doc__ or "")


# Packages whose public classes and functions all have an example.
COMPLETE = ("nosnoc_py.systems", "nosnoc_py.geometry", "nosnoc_py.robots", "nosnoc_py.ocp", "nosnoc_py.point_costs")


def shown_by_example() -> list[str]:
    names = [name for name in ns.__all__ if callable(getattr(ns, name))]
    return [name for name in names if getattr(ns, name).__module__.startswith(COMPLETE)]


@pytest.mark.quick
@pytest.mark.parametrize("name", shown_by_example())
def test_systems_and_shapes_have_an_example(name: str) -> None:
    assert ">>> " in (getattr(ns, name).__doc__ or "")
