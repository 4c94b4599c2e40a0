"""Walks in CONTRIBUTING.md and homes of algorithms in architecture.md name files and functions that exist."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nosnoc_py as ns

pytestmark = pytest.mark.quick

ROOT = Path(__file__).resolve().parents[1]


def section() -> str:
    walks, homes = (
        (ROOT / page).read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
        for page, title in (("CONTRIBUTING.md", "Two ways through the code"), ("docs/architecture.md", "One home"))
    )
    return walks + homes


def lines_of(text: str) -> list[str]:
    """Paragraphs and items of lists, each as one line."""
    return re.split(r"\n(?=\n|- |\d+\. )", text)


def names_in(text: str) -> Iterator[tuple[str, str]]:
    """Every name in backticks, with the file that was named before it on its line, or none."""
    for line in lines_of(text):
        file = ""
        for name in re.findall(r"`([^`]+)`", line):
            if name.endswith(".py"):
                file = name
            yield file, name


def is_there(file: str, name: str) -> bool:
    """A file of the library or of the repository, something public, or a name in that file."""
    if name.endswith(".py"):
        return (ROOT / "nosnoc_py" / name).is_file() or (ROOT / name).is_file()
    if name.startswith("ns."):
        return reaches(ns, name[3:])
    if not file or file.startswith("tests/"):
        return reaches(ns, name)
    module = importlib.import_module("nosnoc_py." + file.removesuffix(".py").replace("/", "."))
    return reaches(module, name)


def reaches(start: Any, path: str) -> bool:
    for part in path.split("."):
        if not hasattr(start, part):
            return False
        start = getattr(start, part)
    return True


def test_names_on_the_ways_exist() -> None:
    named = list(names_in(section()))
    assert len(named) > 80
    assert [(file, name) for file, name in named if not is_there(file, name)] == []


def test_ways_have_ten_steps_each() -> None:
    starts = re.findall(r"^(\d+)\. `([^`]+\.py)`: ", section(), flags=re.MULTILINE)
    assert [int(number) for number, _ in starts] == [*range(1, 11), *range(1, 11)]


def test_a_name_that_is_gone_is_found() -> None:
    text = "1. `api.py`: `simulate`, `simulated`.\n2. `nowhere.py`.\n\n**A `Contact`.** `ns.FESJD`, `Kontakt`\n"
    text += "- `status.py`: `run`"
    wrong = [name for file, name in names_in(text) if not is_there(file, name)]
    assert wrong == ["simulated", "nowhere.py", "ns.FESJD", "Kontakt", "run"]
