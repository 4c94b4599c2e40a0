"""`cite` says what CITATION.cff says, which is not in an installed package."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

import nosnoc_py as ns
from tests.cli.cases import as_json, succeeded

pytestmark = pytest.mark.quick

CFF = YAML(typ="safe").load((Path(__file__).parents[2] / "CITATION.cff").read_text(encoding="utf-8"))
LETTERS = {r"{\'c}": "ć", r"\_": "_", "{": "", "}": ""}


def plain(text: str) -> str:
    for tex, letter in LETTERS.items():
        text = text.replace(tex, letter)
    return text


def entries() -> list[dict[str, str]]:
    """Fields of the entries that `cite` writes, in their order."""
    found = re.findall(r"^@(\w+)\{(\w+),\n(.*?)^\}", succeeded("cite"), re.M | re.S)
    return [
        {
            "type": kind,
            "key": key,
            **{name: plain(text) for name, text in re.findall(r"^  (\w+) = \{(.*)\},$", body, re.M)},
        }
        for kind, key, body in found
    ]


def authors(reference: dict[str, Any]) -> str:
    people = reference["authors"]
    return " and ".join(p["name"] if "name" in p else f"{p['family-names']}, {p['given-names']}" for p in people)


@pytest.mark.parametrize("k", range(6))
def test_entries_agree_with_the_citation_file(k: int):
    entry, said = entries()[k], [CFF, *CFF["references"]][k]
    assert entry["title"] == said["title"]
    assert entry["author"] == authors(said)
    for name in ("doi", "journal", "license"):
        if name in said:
            assert entry[name] == said[name]
    if "year" in said:
        assert entry["year"] == str(said["year"])
    numbers = [identifier["value"] for identifier in said.get("identifiers", ())]
    assert [f"arXiv:{entry[name]}" for name in ("eprint",) if name in entry] == numbers


def test_one_entry_for_the_package_and_each_article():
    assert len(entries()) == 1 + len(CFF["references"]) == 6
    assert entries()[0]["version"] == ns.__version__


def test_json():
    output = as_json("cite")
    assert output["keys"] == [entry["key"] for entry in entries()]
    assert output["bibtex"] == succeeded("cite")
