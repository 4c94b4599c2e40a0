"""The report: Markdown with a table per paper, the same as HTML by markdown-it-py, and figures beside them."""

from __future__ import annotations

import io
import platform
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import nosnoc_py as ns
from nosnoc_py.files import write_atomically
from nosnoc_py.sweep.store import Store
from nosnoc_py.sweep.tasks import FAILED
from problems.reproduction.papers import PAPERS
from problems.reproduction.plan import Run
from problems.reproduction.records import Paper
from problems.reproduction.rows import Kept, Row, ending
from problems.reproduction.verdicts import Verdict
from problems.runner import markdown as markdown_table

PACKAGES = ("casadi", "numpy", "scipy", "numba", "mujoco")
COLUMNS = ("where", "what", "paper", "ours", "difference", "verdict", "counts as agreement", "remark")
MEANINGS = {
    Verdict.AGREES: "as in the paper, by the criterion of the row",
    Verdict.BETTER: "on the good side of the paper's number, by more than the criterion's margin",
    Verdict.ERRATUM: "the paper's number does not follow from what it states, as the numbers in the remark show",
    Verdict.DIFFERS: "otherwise; the remark gives the reason if it is known",
    Verdict.FAILED: "the run failed, took too long, or gave no number",
    Verdict.ALONE: "the paper gives no number",
    Verdict.OUT_OF_SCOPE: "not run, for the reason in the remark",
    Verdict.FULL_ONLY: "the number is not meaningful in the smaller version of the run",
    Verdict.ABSENT: "needs a package that is not installed",
    Verdict.NOT_RUN: "interrupted before its turn",
}
STYLE = (
    "body{font:15px/1.45 sans-serif;max-width:100rem;margin:2rem auto;padding:0 1rem}"
    "table{border-collapse:collapse;margin:1rem 0}td,th{border:1px solid #bbb;padding:.25rem .5rem;text-align:left;"
    "vertical-align:top}img{max-width:48%;margin:.5rem}code{font-size:90%}"
)
WIDTH = 1000  # of small figures [pixels]
COLOURS = 128


@dataclass(frozen=True, eq=False, kw_only=True)
class Shown:
    """Contents of a report.

    Parameters
    ----------
    planned : sequence of Run
    kept : mapping
        Rows of the tasks that have ended, by key.
    rows : sequence of Row
    figures : mapping
        Contents by key and name.
    quick : bool
    """

    planned: Sequence[Run]
    kept: Mapping[str, Kept]
    rows: Sequence[Row]
    figures: Mapping[str, Mapping[str, bytes]]
    quick: bool = False


def write(
    shown: Shown, path: Path, figures: str = "figures", *, html: bool = True, small: bool = False, merge: bool = False
) -> list[Path]:
    """Write the report to a Markdown file, its figures to a folder beside it, and the same as HTML.

    Parameters
    ----------
    path : Path
        Path of the Markdown file.
    figures : str
        Name of the folder.
    small : bool
        True to scale figures down and reduce their colours.
    merge : bool
        True to keep the sections of papers that were not run in an existing file.

    Returns
    -------
    list of Path
        The texts.
    """
    names: dict[str, list[str]] = {}
    for run in shown.planned:
        for name, content in wanted(run, shown.figures.get(run.key, {})).items():
            file = path.parent / figures / f"{run.paper.name}_{run.experiment.name}_{name}"
            file.parent.mkdir(parents=True, exist_ok=True)
            data = smaller(content) if small and name.endswith(".png") else content
            if not file.exists() or file.read_bytes() != data:
                write_atomically(file, data)
            names.setdefault(run.key, []).append(f"{figures}/{file.name}")
    previous = path.read_text(encoding="utf-8") if merge and path.exists() else ""
    text = markdown(shown, names, previous)
    written = [path]
    write_atomically(path, text.encode())
    if html:
        written.append(path.with_suffix(".html"))
        write_atomically(written[-1], page(text).encode())
    return written


def wanted(run: Run, figures: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return the figures of a run that the report shows."""
    names = run.experiment.figures
    return {name: content for name, content in figures.items() if names is None or name in names}


def figures_of(store: Store, planned: Iterable[Run]) -> dict[str, dict[str, bytes]]:
    """Return the figures of finished runs, by key and name."""
    figures: dict[str, dict[str, bytes]] = {}
    for run in planned:
        paths = sorted((store.folder / "runs").glob(f"{run.key}.*")) if run.key else []
        pictures = [path for path in paths if path.suffix in (".png", ".gif")]
        figures[run.key] = {path.name.removeprefix(f"{run.key}."): path.read_bytes() for path in pictures}
    return figures


def smaller(content: bytes) -> bytes:
    """Return a picture with at most `WIDTH` pixels in a line, and few colours."""
    from PIL import Image

    picture = Image.open(io.BytesIO(content)).convert("RGB")
    if picture.width > WIDTH:
        picture = picture.resize((WIDTH, round(picture.height * WIDTH / picture.width)), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.quantize(COLOURS).save(buffer, "PNG", optimize=True)
    return buffer.getvalue()


def markdown(shown: Shown, figures: Mapping[str, Sequence[str]], previous: str = "") -> str:
    """Return the whole report; papers that were not run keep their sections of a previous one."""
    own = {run.paper.name: run.paper for run in shown.planned}
    sections = {
        name: "\n\n".join(
            part for part in (_paper(paper, shown), _experiments(paper, shown), _figures(paper, shown, figures)) if part
        )
        for name, paper in own.items()
    }
    every = {**sections_of(previous), **sections}
    ordered = {name: every[name] for name in dict.fromkeys((*PAPERS, *every)) if name in every}
    return "\n\n".join((_head(shown, ordered), *ordered.values())) + "\n"


def sections_of(text: str) -> dict[str, str]:
    """Return the sections of a report by the names of their papers."""
    parts = re.split(rf"^(?=## (?:{'|'.join(PAPERS)}): )", text, flags=re.MULTILINE)[1:]
    return {part[3:].partition(":")[0]: part.strip() for part in parts}


def verdicts_of(section: str) -> Counter[str]:
    """Count the verdicts in the table of a section."""
    place = COLUMNS.index("verdict") + 1  # a row begins with a bar
    rows = [re.split(r"(?<!\\)\|", line) for line in section.splitlines() if line.startswith("|")]
    return Counter(row[place].strip(" *") for row in rows if len(row) == len(COLUMNS) + 2)


def page(text: str) -> str:
    """Return the report as HTML."""
    from markdown_it import MarkdownIt

    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    head = f'<meta charset="utf-8"><title>Reproduction</title><style>{STYLE}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}</body></html>\n'


def versions() -> dict[str, str]:
    """Return the versions on which the numbers depend; nothing about this machine."""
    numbers = {"Python": platform.python_version(), "nosnoc_py": ns.__version__}
    for name in PACKAGES:
        try:
            numbers[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            numbers[name] = "absent"
    return numbers


def _head(shown: Shown, sections: Mapping[str, str]) -> str:
    libraries = ", ".join(f"{name} {version}" for name, version in versions().items())
    number = {1: "one paper", 5: "the five papers"}.get(len(sections), f"{len(sections)} papers")
    command = " ".join(("python -m problems.reproduce", *(name for name in sections if len(sections) < 5)))
    kind = "the smaller version, `--quick`" if shown.quick else "the full version"
    columns = ("verdict", "rows", *sections, "meaning")
    each = [verdicts_of(section) for section in sections.values()]
    lines = [
        (verdict.value, str(total), *(str(count[verdict.value]) for count in each), meaning)
        for verdict, meaning in MEANINGS.items()
        if (total := sum(count[verdict.value] for count in each))
    ]
    return "\n\n".join(
        (
            f"# The experiments of {number}, run again",
            f"Written by `{command}{' --quick' if shown.quick else ''}`: {kind}. Every figure, table and stated number "
            "has a row: the paper's number, ours, the difference, and a verdict by the criterion of the row. The "
            "remarks tell the errata of the papers.",
            f"{libraries}. Seconds are those of the clock, on one core that may have had other work as well.",
            _table(columns, lines),
        )
    )


def _paper(paper: Paper, shown: Shown) -> str:
    lines = [
        (
            row.entry.where,
            row.entry.what,
            _number(row.entry.paper, row.entry.unit),
            _number(row.ours, row.entry.unit),
            _difference(row),
            f"**{row.verdict.value}**" if row.verdict in (Verdict.DIFFERS, Verdict.FAILED) else row.verdict.value,
            row.entry.agreement.criterion if row.entry.paper is not None and not row.entry.out_of_scope else "",
            row.remark,
        )
        for row in shown.rows
        if row.paper == paper.name
    ]
    return f"## {paper.name}: {paper.title}\n\n{paper.subject[:1].upper()}{paper.subject[1:]}.\n\n" + _table(
        COLUMNS, lines
    )


def _experiments(paper: Paper, shown: Shown) -> str:
    lines = []
    for run in shown.planned:
        if run.paper is paper:
            row = shown.kept.get(run.key)
            lines.append((run.experiment.name, f"`{run.command}`", _ended(run, row), _seconds(row)))
    return "The runs:\n\n" + _table(("run", "command", "ended", "seconds"), lines)


def _ended(run: Run, row: Kept | None) -> str:
    if run.missing:
        return f"needs {', '.join(run.missing)}"
    if row is None:
        return "not run"
    if row.get("status") in FAILED:
        return ending(row)
    status = str(row["results"].get("status", "done"))
    return f"{status}; figures: {row['drawing']}" if row.get("drawing") else status


def _seconds(row: Kept | None) -> str:
    return f"{row['seconds']:.1f}" if row is not None and row.get("seconds") is not None else "-"


def _figures(paper: Paper, shown: Shown, figures: Mapping[str, Sequence[str]]) -> str:
    lines = []
    for run in shown.planned:
        if run.paper is paper:
            lines += [f"![{run.experiment.name}: {Path(name).stem}]({name})" for name in figures.get(run.key, ())]
    return "\n\n".join(lines)


def _number(value: Any, unit: str) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    text = f"{value:.9g}" if isinstance(value, int) or 1e-3 <= abs(value) < 1e5 or not value else f"{value:.3e}"
    return f"{text} {unit}".strip()


def _difference(row: Row) -> str:
    if row.difference is None:
        return "-"
    if not row.difference:
        return "0"
    share = "" if not row.entry.paper else f" ({100.0 * row.difference / abs(float(row.entry.paper)):+.3g} %)"
    return f"{row.difference:+.2g}{share}"


def _table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    return "\n".join(markdown_table(list(map(_cell, columns)), (list(map(_cell, line)) for line in lines)))


def _cell(text: str) -> str:
    """Return a cell of a table: bars would end the cell, line breaks the row."""
    return " ".join(str(text).split()).replace("|", "\\|")
