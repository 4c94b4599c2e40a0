"""A class has a name of its own: whoever reads it in a message or a traceback knows which one it is."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.quick


def shared_names(sources: dict[str, str]) -> dict[str, list[str]]:
    """Names of classes at module level that several of these files define, and where."""
    places = defaultdict(list)
    for place, text in sources.items():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{place}:{node.lineno}")
    return {name: where for name, where in places.items() if len(where) > 1}


def test_names_of_classes_are_unique():
    files = sorted((ROOT / "nosnoc_py").rglob("*.py"))
    assert len(files) > 200
    assert shared_names({str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}) == {}


def test_a_shared_name_is_found():
    first, second = "class Node:\n    class Part: ...\n", "import ast\nclass Part: ...\nclass Node(ast.AST): ...\n"
    assert shared_names({"a.py": first, "b.py": second}) == {"Node": ["a.py:1", "b.py:3"]}
