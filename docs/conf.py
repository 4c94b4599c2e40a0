"""Sphinx builds the site from this folder and the notebooks: `sphinx-build -W --keep-going -b html docs OUT`.

The notebooks stay in `notebooks/` and are copied into an ignored folder here before Sphinx looks for documents; they
are shown as they were stored, nothing is executed. Neither are other sites asked for anything.
"""

from __future__ import annotations

import inspect
import re
import shutil
import sys
from importlib.util import find_spec
from itertools import groupby
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

from docutils import nodes  # noqa: E402
from docutils.parsers.rst import Directive  # noqa: E402
from sphinx import addnodes  # noqa: E402
from sphinx.ext import autosummary  # noqa: E402

import nosnoc_py  # noqa: E402

project = "nosnoc_py"
author = "nosnoc_py contributors"
copyright = author
version = release = nosnoc_py.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon", "sphinx.ext.mathjax"]
exclude_patterns = ["_build", ".jupyter_cache", "**/.ipynb_checkpoints"]
add_module_names = False
smartquotes = False  # v' is a derivative
default_role = "py:obj"  # `name` in a docstring links to what it names, where that is documented

html_theme = "furo"
html_title = f"nosnoc_py {version}"
html_show_copyright = False
pygments_style = "tango"

nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_typehints = "none"  # types are in the docstrings
autodoc_member_order = "bysource"
autodoc_mock_imports = [] if find_spec("torch") else ["torch"]  # an extra; its page needs it for nothing
autosummary_generate = False
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_attr_annotations = False
# Sentences do not end behind these.
autosummary.WELL_KNOWN_ABBREVIATIONS = (*autosummary.WELL_KNOWN_ABBREVIATIONS, "Eq.", "Eqs.")

suppress_warnings = ["ref.python"]  # `names` in a docstring may be those of several classes

WIDTH = 100  # columns of the help of commands
SECTION = re.compile(r"^(Parameters|Returns|Raises|Attributes|Examples|Notes|Yields)$")
PUBLIC = re.compile(r"^ns((?:\.\w+)+)(?:$|\()")
SHARED = re.compile(r"^\w+(, \w+)+ : ")
QUOTED = re.compile(r"(`[^`]*`)")
NAMED = re.compile(r"^`[A-Za-z_][\w.]*`$")
MARKUP = re.compile(r"\||\*(?=\*|\w)")


def copy_notebooks(source: Path, target: Path) -> None:
    """Make the notebooks in `target` those of `source`; what did not change is not touched."""
    target.mkdir(exist_ok=True)
    wanted = {path.name: path for path in sorted(source.glob("*.ipynb"))}
    for stale in target.iterdir():
        if stale.name not in wanted:
            stale.unlink()
    for name, path in wanted.items():
        copy = target / name
        if not copy.exists() or copy.read_bytes() != path.read_bytes():
            shutil.copyfile(path, copy)


def link_copies(app: Any, name: str, source: list[str]) -> None:
    """Pages link to the notebooks where they are in the repository; the site has copies beside the pages."""
    source[0] = source[0].replace("](../notebooks/", "](notebooks/")


def as_restructured_text(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are written for people: indented prose is a formula, and |x| is a length, no substitution."""
    end = next((i for i, line in enumerate(lines) if SECTION.match(line)), len(lines))
    lines[:] = [*prose(lines[:end]), *map(without_markup, one_by_one(lines[end:]))]


def property_text(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """A property's docstring is prose; Napoleon takes what stands before a colon for a type."""
    if what == "property":
        lines[:] = prose((inspect.getdoc(obj) or "").splitlines())


def prose(lines: list[str]) -> list[str]:
    """Indented paragraphs as literal blocks, unless they go on with an item of a list."""
    made: list[str] = []
    item = False
    for filled, group in groupby(lines, key=lambda line: bool(line.strip())):
        paragraph = list(group)
        if not filled:
            made += paragraph
        elif paragraph[0].startswith("    ") and not item:
            made += ["::", "", *paragraph]
        else:
            item = paragraph[0].startswith(("- ", "* "))
            made += map(without_markup, paragraph)
    return made


def one_by_one(lines: list[str]) -> list[str]:
    """Attributes that share a line, `a, b : type`, as one entry each, as Napoleon has it for parameters only."""
    made: list[str] = []
    entry: list[str] = []
    for line in [*lines, ""]:
        if entry and not line.startswith("    "):
            names, colon, kind = entry[0].partition(" : ")
            made += [text for each in names.split(", ") for text in (each + colon + kind, *entry[1:])]
            entry = []
        if SHARED.match(line):
            entry = [line]
        else:
            (entry if entry else made).append(line)
    return made


def without_markup(line: str) -> str:
    """Escape bars and powers outside of quotes in backticks; quotes that are no names become literals."""
    if line.startswith("*") or line.lstrip().startswith((">>>", "...")):
        return line  # the name of a parameter, or an example
    return "".join(_part(part) for part in QUOTED.split(line))


def _part(part: str) -> str:
    if part.startswith("`"):
        return part if part == "``" or NAMED.match(part) else f"`{part}`"
    return MARKUP.sub(r"\\\g<0>", part)


def link_names(app: Any, doctree: nodes.document) -> None:
    """Make `ns.NAME`, also with arguments, a link to the reference, unless it is part of a link already."""
    for literal in list(doctree.findall(nodes.literal)):
        found = PUBLIC.match(literal.astext())
        if found and not _linked(literal):
            target = {"refdomain": "py", "reftype": "obj", "reftarget": f"nosnoc_py{found[1]}"}
            literal.replace_self(
                addnodes.pending_xref("", literal.deepcopy(), refdoc=app.env.docname, refexplicit=True, **target)
            )


def _linked(node: nodes.Node | None) -> bool:
    while node is not None and not isinstance(node, nodes.reference | addnodes.pending_xref | nodes.title):
        node = node.parent
    return node is not None


class CommandHelp(Directive):
    """What `nosnoc-py [COMMAND] --help` says, asked for when the site is built."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """One literal block, for a command with its name as a title."""
        from typer.main import get_command

        from nosnoc_py.cli import app

        group: Any = get_command(app)
        context = group.make_context("nosnoc-py", [], resilient_parsing=True, terminal_width=WIDTH)
        if not self.arguments:
            return [_block(group.get_help(context))]
        (name,) = self.arguments
        command = group.get_command(context, name)
        inner = type(context)(command, parent=context, info_name=name, terminal_width=WIDTH)
        section = nodes.section(ids=[f"nosnoc-py-{name}"])
        section += nodes.title(name, name)
        section += _block(command.get_help(inner))
        return [section]


def _block(text: str) -> nodes.literal_block:
    return nodes.literal_block(text, text, language="text")


def setup(app: Any) -> None:
    """Called by Sphinx before it looks for documents."""
    copy_notebooks(ROOT / "notebooks", DOCS / "notebooks")
    app.add_directive("nosnoc-help", CommandHelp)
    app.connect("source-read", link_copies)
    app.connect("autodoc-process-docstring", as_restructured_text, priority=100)
    app.connect("doctree-read", link_names)
    app.connect("autodoc-process-docstring", property_text, priority=900)
