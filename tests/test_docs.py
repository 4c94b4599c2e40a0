"""The pages of `docs/`: nothing public is missing in the reference, names exist, examples run, links lead somewhere."""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import nosnoc_py as ns
from nosnoc_py.options import Options
from nosnoc_py.sweep import config
from tests.pairwise import slow_but

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.glob("*.md"))
EXAMPLE = re.compile(r"^<!-- run -->\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
DIRECTIVE = re.compile(r"^\.\. auto(?:class|function|exception|module):: ([\w.]+)$", re.MULTILINE)
NAME = re.compile(r"\bns((?:\.[A-Za-z_]\w*)+)(?:\(([^()`]*)\))?")
KEYWORD = re.compile(r"\b([a-z_]\w*)=(?!=)")
LINK = re.compile(r"\]\(([^)\s#]*)(#[\w-]+)?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def documented() -> set[str]:
    """Full names in the directives of the reference."""
    names = {name for page in sorted((DOCS / "api").glob("*.rst")) for name in DIRECTIVE.findall(page.read_text())}
    # The module of the extra cannot be imported without it.
    return names if find_spec("torch") else {name for name in names if not name.startswith("nosnoc_py.torch")}


def find(name: str) -> Any:
    """What a full name stands for: a module, or something in one."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        module, _, last = name.rpartition(".")
        return getattr(find(module), last)


def missing(names: list[str], reference: set[str]) -> list[str]:
    """Public names whose objects no directive shows; of a module, one directive for something in it is enough."""
    shown = [find(name) for name in reference]
    modules = [f"{getattr(one, '__module__', '')}." for one in shown]
    return [name for name in names if not _shown(getattr(ns, name), shown, modules)]


def _shown(one: Any, shown: list[Any], modules: list[str]) -> bool:
    if inspect.ismodule(one):
        return any(module.startswith(f"{one.__name__}.") for module in modules)
    return any(one is other for other in shown)


def wrong_names(text: str) -> Iterator[str]:
    """Names `ns.X` that do not exist, and keywords of `ns.X(...)` that X does not take."""
    for path, arguments in NAME.findall(text):
        one: Any = ns
        for part in path.strip(".").split("."):
            one = getattr(one, part, None)
        if one is None:
            yield f"ns{path}"
            continue
        yield from (f"ns{path}({key}=)" for key in KEYWORD.findall(arguments) if not takes(one, key))


def takes(one: Any, keyword: str) -> bool:
    """Whether something can be called with a keyword."""
    if isinstance(one, type) and issubclass(one, Options):
        return keyword in one.model_fields
    parameters = inspect.signature(one).parameters
    return keyword in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as they are made from their words."""
    headings = HEADING.findall(FENCED.sub("", page.read_text()))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken(page: Path, text: str) -> Iterator[str]:
    """Relative links of a page that lead nowhere."""
    for target, anchor in LINK.findall(FENCED.sub("", text)):
        if "://" in target:
            continue
        goal = (page.parent / target).resolve() if target else page
        known = goal.suffix != ".md" or not goal.exists() or not anchor or anchor[1:] in anchors(goal)
        if not goal.exists() or not known:
            yield target + anchor


def test_every_public_name_is_in_the_reference() -> None:
    assert missing(list(ns.__all__), documented()) == []
    assert missing(["solve", "FESDJ"], documented() - {"nosnoc_py.FESDJ"}) == ["FESDJ"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_names_on_the_pages_exist(page: Path) -> None:
    assert list(wrong_names(page.read_text())) == []


def test_names_that_do_not_exist_are_found() -> None:
    text = "`ns.FESD(control_stages=, n_stages=)`, `ns.FESJD`, `ns.Constraint(lower=, above=)`, `ns.solve(ocp)`"
    assert list(wrong_names(text)) == ["ns.FESD(n_stages=)", "ns.FESJD", "ns.Constraint(above=)"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken(page, page.read_text())) == []


def test_broken_links_are_found() -> None:
    text = "[a](nowhere.md) [b](sweeps.md#no-such-heading) [c](#here) [d](sweeps.md#on-a-cluster) [e](api/ocp.rst)"
    assert list(broken(DOCS / "index.md", text)) == ["nowhere.md", "sweeps.md#no-such-heading", "#here"]


def test_every_example_of_matlab_has_a_row_whose_files_exist() -> None:
    text = (DOCS / "matlab_examples.md").read_text()
    programs = re.findall(r"^\| `([\w/]+\.m)` \|", text, re.MULTILINE)
    assert len(programs) == len(set(programs)) == 80
    paths = re.findall(r"`((?:models|problems|notebooks|tests|nosnoc_py)/[\w/.]+)`", text)
    assert len(paths) > 40
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert text.count("| cannot: ") == 1
    assert "79 can be written; one cannot" in text


def test_every_field_of_a_configuration_is_explained() -> None:
    text = (DOCS / "sweeps.md").read_text()
    parts = (config.Configuration, config.Problem, config.Simulate, config.Sweep, config.Run)
    names = [name for part in parts for name in part.model_fields]
    assert len(names) > 20
    assert [name for name in names if not re.search(rf"`{name}[`:]", text)] == []


WITH_EXAMPLES = [page for page in PAGES if EXAMPLE.search(page.read_text())]


# `.ci/run` runs all of them.
@pytest.mark.parametrize("page", slow_but([DOCS / "impact_law.md"], WITH_EXAMPLES), ids=lambda page: page.stem)
def test_examples_run(page: Path, tmp_path: Path) -> None:
    """All examples of a page that are marked, one after the other, in a process of their own."""
    code = "\n".join(EXAMPLE.findall(page.read_text()))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error::FutureWarning", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def untidy(cells: list[dict[str, Any]]) -> Iterator[str]:
    """What makes a page of the site of a notebook unreadable: no title, or texts that are comments."""
    texts = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    if cells[0]["cell_type"] != "markdown" or not texts[0].startswith("# "):
        yield "no title"
    yield from (text.splitlines()[0] for text in texts if text.startswith("# #") or "\n# #" in text)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.stem)
def test_notebooks_are_pages(notebook: Path) -> None:
    assert list(untidy(json.loads(notebook.read_text())["cells"])) == []


def test_untidy_notebooks_are_found() -> None:
    code, text = {"cell_type": "code", "source": ["1"]}, {"cell_type": "markdown", "source": ["# # One\n", "# two"]}
    assert list(untidy([text, code])) == ["# # One"]
    assert list(untidy([code, text])) == ["no title", "# # One"]


@pytest.fixture(scope="module")
def conf() -> Any:
    """The configuration of the site, as a module."""
    pytest.importorskip("sphinx")
    spec = importlib.util.spec_from_file_location("conf", DOCS / "conf.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_docstrings_become_restructured_text(conf: Any) -> None:
    prose = ["The law of |v|, see `solve(...)` and `Status`:", "", "    a**2 + |b| = c", "", "- item", "", "    more"]
    made = ["The law of \\|v\\|, see ``solve(...)`` and `Status`:", "", "::", "", "    a**2 + |b| = c", "", "- item"]
    assert conf.prose(prose) == [*made, "", "    more"]
    assert conf.without_markup("f(**given) and **bold") == "f(\\*\\*given) and \\*\\*bold"
    assert conf.without_markup("**given") == "**given"
    shared = ["Attributes", "----------", "a, b : float", "    Two numbers.", "c : int", "    One."]
    own = ["a : float", "    Two numbers.", "b : float", "    Two numbers.", "c : int", "    One.", ""]
    assert conf.one_by_one(shared) == ["Attributes", "----------", *own]


def test_notebooks_are_copied_and_stale_ones_removed(conf: Any, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    (source / "one.ipynb").write_text("{}")
    (source / "README.md").write_text("no page")
    (target / "old.ipynb").write_text("{}")
    conf.copy_notebooks(source, target)
    assert [path.name for path in target.iterdir()] == ["one.ipynb"]
    before = (target / "one.ipynb").stat().st_mtime_ns
    conf.copy_notebooks(source, target)
    assert (target / "one.ipynb").stat().st_mtime_ns == before
