"""How the modules of the library hang together, read from their source."""

from __future__ import annotations

import ast
from collections.abc import Set
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import nosnoc_py

pytestmark = pytest.mark.quick
ROOT = Path(nosnoc_py.__file__).parent
TESTS = Path(__file__).parent


def module_of(path: Path) -> str:
    """The name by which a file is imported."""
    return ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")


def imported(tree: ast.AST, files: Set[str]) -> set[str]:
    """Modules that a file imports when it runs, those inside functions included; not those for type checkers."""
    found: set[str] = set()
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node = ast.Module(body=node.orelse, type_ignores=[])
        if isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in files else node.module for name in names}
        found |= {alias.name for alias in node.names} if isinstance(node, ast.Import) else imported(node, files)
    return found & files


def test_no_module_imports_itself_through_others() -> None:
    """Options know nothing of what works by them, so that either can be read, and changed, alone."""
    texts = {module_of(path): path.read_text(encoding="utf-8") for path in sorted(ROOT.rglob("*.py"))}
    edges = {name: imported(ast.parse(text), texts.keys()) - {name} for name, text in texts.items()}
    assert len(edges) > 300
    assert edges["nosnoc_py.api"] >= {"nosnoc_py.ocp", "nosnoc_py.options"}
    TopologicalSorter(edges).prepare()
    with pytest.raises(CycleError):  # a circle would be found
        TopologicalSorter(edges | {"nosnoc_py.ocp": {"nosnoc_py.api"}}).prepare()


def test_long_tests_exist() -> None:
    """A name that has changed would become a test of the default run without a word."""
    listed = [line for line in (TESTS / "long_tests.txt").read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    assert len(listed) > 100
    texts = {
        path.relative_to(TESTS.parent).as_posix(): path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py")
    }
    names = [
        (file, name.split("::")[-1].partition("[")[0]) for file, _, name in (one.partition("::") for one in listed)
    ]
    assert [(file, name) for file, name in names if f"def {name}(" not in texts.get(file, "")] == []
