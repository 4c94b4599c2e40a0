"""HTML for notebooks, made of the texts of `repr` and `summary`: tables and nested lists without styles, escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

BRANCHES = str.maketrans("├└─│", "    ")  # of trees that `repr` draws
MOST_ROWS = 20  # of a table; a cell of a notebook is no place for more


def page(title: str, *parts: str) -> str:
    """Return parts, which are HTML, below a title, which is text; empty parts are left out.

    Examples
    --------
    >>> page("x < y", table([("objective", 1.5)]))
    '<div><b>x &lt; y</b><table><tr><th>objective</th><td>1.5</td></tr></table></div>'
    """
    return f"<div><b>{escape(title)}</b>{''.join(parts)}</div>"


def table(rows: Iterable[Sequence[object]], columns: Sequence[str] = ()) -> str:
    """Return a table of texts; without `columns` the first cell of each row is its title.

    More than `MOST_ROWS` rows are cut off, with a last row that says so. Without rows the result is empty.
    """
    rows = list(rows)
    if not rows:
        return ""
    cells = [[escape(str(cell)) for cell in row] for row in rows[:MOST_ROWS]]
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    lines = [f"<tr>{head}</tr>"] if columns else []
    for first, *others in cells:
        tag = "td" if columns else "th"
        lines.append(f"<tr><{tag}>{first}</{tag}>{''.join(f'<td>{cell}</td>' for cell in others)}</tr>")
    if len(rows) > MOST_ROWS:
        lines.append(f'<tr><td colspan="{len(rows[0])}">... and {len(rows) - MOST_ROWS} more</td></tr>')
    return f"<table>{''.join(lines)}</table>"


def paragraph(text: str) -> str:
    """Return a paragraph of text, empty without text."""
    return f"<p>{escape(text)}</p>" if text else ""


def tree(text: str) -> str:
    """Return the tree that a `repr` draws by indentation: its first line as a title, the others as nested lists.

    Examples
    --------
    >>> tree("CLS: 1 coordinate\\n  states   height, v_0")
    '<div><b>CLS: 1 coordinate</b><ul><li>states height, v_0</li></ul></div>'
    """
    first, *lines = text.translate(BRANCHES).rstrip().split("\n")
    html, indents = "", list[int]()
    for line in lines:
        if not line.strip():
            continue
        indent = len(line) - len(line.lstrip())
        while indents and indent < indents[-1]:
            html += "</li></ul>"
            indents.pop()
        # a line that is indented less than its elder siblings, but more than their parent, is one of them
        if not indents or indent > indents[-1]:
            html += "<ul><li>"
            indents.append(indent)
        else:
            html += "</li><li>"
        html += escape(re.sub(r" {2,}", " ", line.strip()))
    return page(first, html + "</li></ul>" * len(indents))
