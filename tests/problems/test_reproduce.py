"""What the papers say, as data; verdicts; the report of runs that fail, are too long, or are interrupted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nosnoc_py.errors import OptionError
from nosnoc_py.sweep.local import LocalExecutor
from nosnoc_py.sweep.store import Store
from nosnoc_py.sweep.tasks import TIMEOUT, Outcome, Task, failed_row
from problems import reproduce
from problems.reproduction import work
from problems.reproduction.papers import PAPERS, chosen
from problems.reproduction.plan import changes_of, key_of, runs, tasks
from problems.reproduction.records import Entry, Experiment, Paper, value_of
from problems.reproduction.report import Shown, markdown, page, sections_of, smaller, verdicts_of
from problems.reproduction.rows import Row, complete, ending, rows_of
from problems.reproduction.verdicts import Agreement, AtLeast, AtMost, Holds, Verdict, Within, judge
from tests.pairwise import compiled_row

# Figures and tables of the papers.
CONTENTS = {
    "fesdj": (10, 2),
    "time_freezing": (8, 1),
    "minimum_principle": (15, 1),
    "event_selected": (5, 2),
    "lie_group": (8, 3),
}
CHEAP = (  # runs of a second or two
    ("fesdj", "impacts"),
    ("time_freezing", "example_3"),
    ("event_selected", "order"),
    ("lie_group", "case_II"),
    compiled_row("lie_group", "ensemble"),
)


def numbers(where: str, kind: str) -> set[int]:
    """The figures or tables that a place names, e.g. "Figs. 1, 2" or "Figs. 1 to 3"."""
    found: set[int] = set()
    for text in re.findall(rf"{kind}s?\.? ((?:\d+[a-z]?(?:, (?=\d)| to )?)+)", where):
        ends = [int(number) for number in re.findall(r"\d+", text)]
        found |= set(range(ends[0], ends[1] + 1)) if " to " in text else set(ends)
    return found


class Fake:
    """An executor that answers from a function; it notes what it was asked for."""

    def __init__(self, answer: object) -> None:
        self.answer, self.asked = answer, list[str]()

    def run(self, asked: Iterable[Task]) -> Iterator[Outcome]:
        for task in asked:
            self.asked.append(task.key)
            yield self.answer(task)  # type: ignore[operator]


def done(task: Task) -> Outcome:
    """A success with one number."""
    row = {"success": True, "seconds": 1.5, "results": {"status": "solved", "value": 1.0}, "drawing": ""}
    return Outcome(task=task, row=row, files={})


def small_paper(count: int = 3, **more: object) -> Paper:
    """A paper whose experiments differ by the height of a ball; each has one number."""
    names = [f"run_{k}" for k in range(count)]
    settings = [{"height": 1.0 + k, "steps": 5, "duration": 0.25} for k in range(count)]
    return Paper(
        name="small",
        title="A small paper",
        subject="a ball",
        experiments=tuple(
            Experiment(name=name, module="bouncing_ball", settings=each, quick=each)
            for name, each in zip(names, settings, strict=True)
        ),
        entries=tuple(
            Entry(
                where=f"Table {k}",
                what="|value|",
                experiment=name,
                read=("value",),
                paper=1.0,
                agreement=Within(tolerance=1e-3, reason="three digits"),
                **more,
            )
            for k, name in enumerate(names)
        ),
    )


def verdicts(shown: Shown) -> list[Verdict]:
    return [row.verdict for row in shown.rows]


# What the papers say, as data.


@pytest.mark.parametrize("name", PAPERS)
def test_every_figure_and_table_has_a_row(name: str) -> None:
    figures, tables = CONTENTS[name]
    places = [entry.where for entry in PAPERS[name].entries]
    assert set().union(*(numbers(where, "Fig") for where in places)) == set(range(1, figures + 1))
    assert set().union(*(numbers(where, "Table") for where in places)) == set(range(1, tables + 1))


def test_the_reader_of_places_would_notice_a_gap() -> None:
    assert numbers("Figs. 1, 2", "Fig") == {1, 2}
    assert numbers("Figs. 1 to 3", "Fig") == {1, 2, 3}
    assert numbers("Fig. 12, Section 6.1", "Fig") == {12}
    assert numbers("Fig. 4, Table 2", "Table") == {2}
    assert numbers("Section 5.2", "Fig") == set()


@pytest.mark.parametrize("name", PAPERS)
def test_entries_are_well_formed(name: str) -> None:
    paper = PAPERS[name]
    names = [experiment.name for experiment in paper.experiments]
    assert len(set(names)) == len(names)
    assert set(names) == {entry.experiment for entry in paper.entries if entry.experiment}
    for entry in paper.entries:
        assert entry.where
        assert entry.what
        assert bool(entry.experiment) != bool(entry.out_of_scope), entry.what
        if entry.experiment and entry.paper is not None:  # a tolerance has a reason
            assert entry.agreement.reason, entry.what
            assert type(entry.agreement) is not Agreement, entry.what
            assert isinstance(entry.agreement, Holds) == isinstance(entry.paper, str), entry.what
        assert len({(e.where, e.what) for e in paper.entries}) == len(paper.entries)


def test_modules_exist_and_take_the_settings() -> None:
    for paper in PAPERS.values():
        for experiment in paper.experiments:
            if experiment.needs:
                pytest.importorskip(experiment.needs[0])
            keys = [key_of(paper.name, experiment, changes_of(experiment, quick)) for quick in (False, True)]
            assert all(re.fullmatch(r"[a-z_0-9A-Z]+-\w+-[0-9a-f]{16}", key) for key in keys)


def test_a_setting_that_a_problem_does_not_take_is_refused() -> None:
    wrong = Experiment(name="x", module="bouncing_ball", settings={"hight": 2.0})
    with pytest.raises(OptionError, match="height"):
        key_of("small", wrong, changes_of(wrong, False))


def test_keys_know_all_settings() -> None:
    ball = Experiment(name="x", module="bouncing_ball")
    plain, same, other = ({}, {"height": 1.0}, {"height": 1.5})
    assert key_of("p", ball, plain) == key_of("p", ball, same)  # the default
    assert key_of("p", ball, plain) != key_of("p", ball, other)
    assert key_of("p", ball, plain) != key_of("p", ball, {"rk_stages": 3})


@pytest.mark.parametrize(("paper", "name"), CHEAP)
def test_what_is_read_is_in_the_results(paper: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "drawn", lambda report: ({}, ""))
    experiment = PAPERS[paper].experiment(name)
    row, _ = work.run(experiment.module, changes_of(experiment, True))
    results = json.loads(json.dumps(row["results"]))
    for entry in PAPERS[paper].entries:
        if entry.experiment == name and entry.quick:
            verdict = judge(entry.agreement, entry.paper, value_of(entry, results))
            good = (Verdict.AGREES, Verdict.BETTER, Verdict.ALONE)
            assert verdict in good or entry.why, entry.what


def test_settings_come_back_from_json_as_problems_take_them() -> None:
    assert work.tuples({"a": [1, 2], "b": 3}) == {"a": (1, 2), "b": 3}


# Verdicts.


@pytest.mark.parametrize(
    ("agreement", "paper", "ours", "expected"),
    [
        (Within(tolerance=0.1), 1.0, 1.05, Verdict.AGREES),
        (Within(tolerance=0.1), 1.0, 1.2, Verdict.DIFFERS),
        (Within(tolerance=0.1), 1.0, 0.8, Verdict.DIFFERS),
        (Within(tolerance=0.1, relative=True), -100.0, -109.0, Verdict.AGREES),
        (Within(tolerance=0.1, relative=True), -100.0, -111.0, Verdict.DIFFERS),
        (Within(tolerance=0.0), 2, 2, Verdict.AGREES),
        (Within(tolerance=0.0), 2, 3, Verdict.DIFFERS),
        (AtMost(slack=0.5, margin=0.2), 1.0, 1.4, Verdict.AGREES),
        (AtMost(slack=0.5, margin=0.2), 1.0, 1.6, Verdict.DIFFERS),
        (AtMost(slack=0.5, margin=0.2), 1.0, 0.7, Verdict.BETTER),
        (AtMost(), 1.0, -5.0, Verdict.AGREES),
        (AtLeast(slack=0.5, margin=0.2), 3.0, 2.6, Verdict.AGREES),
        (AtLeast(slack=0.5, margin=0.2), 3.0, 2.4, Verdict.DIFFERS),
        (AtLeast(slack=0.5, margin=0.2), 3.0, 3.3, Verdict.BETTER),
        (Holds(), "shown", (True, "so"), Verdict.AGREES),
        (Holds(), "shown", (False, "not so"), Verdict.DIFFERS),
        (Agreement(), None, 3.0, Verdict.ALONE),
        (Within(tolerance=0.1), None, 1.0, Verdict.ALONE),
        (Agreement(), None, None, Verdict.FAILED),
        (Within(tolerance=0.1), 1.0, float("nan"), Verdict.FAILED),
        (AtMost(), 1.0, float("inf"), Verdict.FAILED),
    ],
)
def test_verdicts(agreement: Agreement, paper: object, ours: object, expected: Verdict) -> None:
    assert judge(agreement, paper, ours) is expected


def test_only_explained_differences_are_complete() -> None:
    entry = Entry(where="Table 1", what="x", experiment="run", paper=1.0, agreement=Within(tolerance=0.1))
    row = Row(paper="small", entry=entry, verdict=Verdict.DIFFERS, ours=2.0)
    assert not complete([row])
    assert complete([replace(row, entry=replace(entry, why="another machine"))])
    for bad in (Verdict.FAILED, Verdict.NOT_RUN):
        assert not complete([replace(row, verdict=bad)])
    for good in (Verdict.AGREES, Verdict.BETTER, Verdict.ALONE, Verdict.OUT_OF_SCOPE, Verdict.ABSENT):
        assert complete([replace(row, verdict=good)])


def test_the_reason_of_a_difference_is_told_only_where_there_is_one(tmp_path: Path) -> None:
    planned = runs([small_paper(1, why="The moon was full.", remark="Printed badly.")])
    key = planned[0].key
    agrees = {"success": True, "results": {"value": 1.0}}
    (good,) = rows_of(planned, {key: agrees})
    (bad,) = rows_of(planned, {key: {**agrees, "results": {"value": 2.0}}})
    assert (good.verdict, good.remark) == (Verdict.AGREES, "Printed badly.")
    assert (bad.verdict, bad.remark) == (Verdict.DIFFERS, "Printed badly. The moon was full.")
    assert bad.difference == pytest.approx(1.0, abs=1e-15)


def test_an_erratum_is_one_only_where_numbers_show_it() -> None:
    def shown(results: dict[str, float]) -> tuple[bool, str]:
        return results["angle"] > 0.0, f"the angle is {results['angle']:g}"

    planned = runs([small_paper(1, erratum=shown, why="It is not known.")])
    found = []
    for value, more in ((1.0, {"angle": 3.0}), (2.0, {"angle": 3.0}), (2.0, {"angle": -3.0}), (2.0, {})):
        (row,) = rows_of(planned, {planned[0].key: {"success": True, "results": {"value": value, **more}}})
        found.append((row.verdict, row.remark))
    assert found[0] == (Verdict.AGREES, "")
    assert found[1] == (Verdict.ERRATUM, "The angle is 3.")
    assert found[2] == (Verdict.DIFFERS, "The angle is -3. It is not known.")
    assert found[3][0] is Verdict.DIFFERS
    assert "not shown" in found[3][1]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"success": True, "results": {}}, "no such number"),
        ({"success": False, "results": {"status": "step failed", "value": 1.0}}, "step failed"),
        ({"success": True, "results": {"value": None}}, "No number"),
        (failed_row(TIMEOUT, "longer than 3 s"), "longer than 3 s"),
    ],
)
def test_what_has_no_number_failed(row: dict[str, object], said: str) -> None:
    planned = runs([small_paper(1)])
    (found,) = rows_of(planned, {planned[0].key: row})
    assert found.verdict is Verdict.FAILED
    assert said in found.remark


def test_a_traceback_is_told_in_a_line_without_folders() -> None:
    said = (
        'Traceback (most recent call last):\n  File "/home/me/x/worker.py", line 1, in main\nOSError: /home/me/x/y.nc'
    )
    row = failed_row("died", f"exit code 1: {said}")
    assert ending(row) == "died: exit code 1: OSError: y.nc"
    assert ending(failed_row(TIMEOUT, "3 m/s after 1/2 of 3 s")) == "timeout: 3 m/s after 1/2 of 3 s"


def test_one_process_begins_with_short_runs_and_several_with_long_ones() -> None:
    planned = runs(PAPERS.values())
    one, two = ([task.timeout for task in tasks(planned, workers)] for workers in (1, 2))
    assert one == sorted(one)
    assert two == sorted(two, reverse=True)
    assert two[0] > two[-1]


def test_a_run_may_fail_where_that_is_the_question() -> None:
    paper = small_paper(1)
    paper = replace(paper, experiments=(replace(paper.experiments[0], may_fail=True),))
    planned = runs([paper])
    (found,) = rows_of(planned, {planned[0].key: {"success": False, "results": {"value": 1.0}}})
    assert found.verdict is Verdict.AGREES


def test_numbers_of_absent_packages_and_of_smaller_versions_have_rows() -> None:
    for change, expected in (({"needs": ("no_such_package",)}, Verdict.ABSENT), ({"quick": False}, Verdict.FULL_ONLY)):
        planned = runs([small_paper(1, **change)], quick=True)
        (found,) = rows_of(planned, {}, quick=True)
        assert found.verdict is expected
    paper = small_paper(1)
    paper = replace(paper, experiments=(replace(paper.experiments[0], needs=("no_such_package",)),))
    planned = runs([paper])
    assert tasks(planned) == ()
    assert rows_of(planned, {})[0].verdict is Verdict.ABSENT


# The report.


def test_a_run_with_failures_has_no_gaps(tmp_path: Path) -> None:
    planned = runs([small_paper(3)])

    def answer(task: Task) -> Outcome:
        if "run_1" in task.key:
            return Outcome(task=task, row=failed_row(TIMEOUT, "longer than 900 s"))
        return Outcome(task=task, death="signal 9") if "run_2" in task.key else done(task)

    fake = Fake(answer)
    shown = reproduce.reproduce(planned, tmp_path, fake)
    assert verdicts(shown) == [Verdict.AGREES, Verdict.FAILED, Verdict.FAILED]
    assert sum("run_2" in key for key in fake.asked) == 2  # a death costs one attempt of two
    text = (tmp_path / "report.md").read_text()
    assert "longer than 900 s" in text
    assert "signal 9" in text
    assert text.count("| Table ") == 3
    assert "not run" not in text
    assert not complete(shown.rows)
    html = (tmp_path / "report.html").read_text()
    assert html.count("<table>") == 3  # verdicts, entries, runs
    assert html.count("<td>Table ") == 3
    assert str(tmp_path) not in text + html


def test_interrupted_and_resumed(tmp_path: Path) -> None:
    planned = runs([small_paper(3)])

    def second_is_interrupted(task: Task) -> Outcome:
        if "run_1" in task.key:
            raise KeyboardInterrupt
        return done(task)

    with pytest.raises(KeyboardInterrupt):
        reproduce.reproduce(planned, tmp_path, Fake(second_is_interrupted))
    rows = reproduce.gather(planned, Store(tmp_path)).rows
    assert [row.verdict for row in rows] == [Verdict.AGREES, Verdict.NOT_RUN, Verdict.NOT_RUN]
    assert (tmp_path / "report.md").read_text().count("| not run |") >= 2
    again = Fake(done)
    shown = reproduce.reproduce(planned, tmp_path, again)
    assert [key.split("-")[1] for key in again.asked] == ["run_1", "run_2"]
    assert verdicts(shown) == [Verdict.AGREES] * 3
    nothing = Fake(done)
    reproduce.reproduce(planned, tmp_path, nothing)
    assert nothing.asked == []
    everything = Fake(done)
    reproduce.reproduce(planned, tmp_path, everything, fresh=True)
    assert len(everything.asked) == 3


def test_failures_are_run_again_only_when_asked_for(tmp_path: Path) -> None:
    planned = runs([small_paper(1)])
    reproduce.reproduce(planned, tmp_path, Fake(lambda task: Outcome(task=task, row=failed_row(TIMEOUT, "late"))))
    kept, retried = Fake(done), Fake(done)
    assert verdicts(reproduce.reproduce(planned, tmp_path, kept)) == [Verdict.FAILED]
    assert verdicts(reproduce.reproduce(planned, tmp_path, retried, retry=True)) == [Verdict.AGREES]
    assert (len(kept.asked), len(retried.asked)) == (0, 1)


def test_bars_do_not_break_the_table() -> None:
    planned = runs([small_paper(1, remark="|u| <= 1\nand <script>")])
    text = markdown(Shown(planned=planned, kept={}, rows=rows_of(planned, {}), figures={}), {})
    (line,) = [line for line in text.splitlines() if line.startswith("| Table 0")]
    assert len(re.split(r"(?<!\\)\|", line)) == 10
    html = page(text)
    assert "<td>|value|</td>" in html
    assert "<script>" not in html


def test_one_experiment_in_a_process_of_its_own(tmp_path: Path) -> None:
    paper = small_paper(2)
    late = replace(paper.experiments[1], timeout=0.05)
    entry = replace(paper.entries[0], read=("duration",), paper=0.25)
    planned = runs([replace(paper, experiments=(paper.experiments[0], late), entries=(entry, paper.entries[1]))])
    shown = reproduce.reproduce(planned, tmp_path, LocalExecutor(2))
    assert verdicts(shown) == [Verdict.AGREES, Verdict.FAILED]
    assert "timeout" in shown.rows[1].remark.lower()
    (figure,) = (tmp_path / "figures").iterdir()
    assert figure.name == "small_run_0_bouncing_ball.png"
    assert f"figures/{figure.name}" in (tmp_path / "report.md").read_text()
    assert len(smaller(figure.read_bytes())) < figure.stat().st_size


# The command line.


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    published = tmp_path / "docs" / "results.md"
    published.parent.mkdir()
    argv = ["lie_group", "--quick", "--json", "--output", str(tmp_path), "--publish", str(published)]
    assert reproduce.main(argv, Fake(done)) == 1  # the fake has none of the numbers
    output = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert not output["complete"]
    assert len(output["rows"]) == len(PAPERS["lie_group"].entries)
    assert {row["verdict"] for row in output["rows"]} == {"failed", "out of scope", "full run only"}
    assert published.read_text() == (tmp_path / "report.md").read_text()


def test_papers_that_are_not_run_keep_their_sections(tmp_path: Path) -> None:
    published = tmp_path / "results.md"
    common = ["--quick", "--output", str(tmp_path), "--publish", str(published)]
    for paper in ("lie_group", "fesdj"):
        reproduce.main([paper, *common], Fake(done))
    text, last = published.read_text(), (tmp_path / "report.md").read_text()
    assert list(sections_of(text)) == ["fesdj", "lie_group"]
    assert sections_of(text)["fesdj"] == sections_of(last)["fesdj"]
    assert list(sections_of(last)) == ["fesdj"]
    out_of_scope = [verdicts_of(section)["out of scope"] for section in sections_of(text).values()]
    assert f"| out of scope | {sum(out_of_scope)} | {out_of_scope[0]} | {out_of_scope[1]} |" in text


def test_interrupted_from_the_keyboard(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def stop(task: Task) -> Outcome:
        raise KeyboardInterrupt

    assert reproduce.main(["lie_group", "--output", str(tmp_path)], Fake(stop)) == 130
    assert "report.md" in capsys.readouterr().err
    assert (tmp_path / "report.md").read_text().count("| not run |") > 10


def test_mistakes_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce.main(["lie_grup"]) == 2
    assert "lie_group" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert reproduce.main(["lie_group", "--quick", "--output", str(tmp_path / "file")], Fake(done)) == 2
    assert "file" in capsys.readouterr().err
    assert reproduce.main(["lie_group", "--workers", "0"]) == 2


def test_the_list_has_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce.main(["lie_group", "--list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed[0]["command"] == "python -m problems.bouncing_bodies --set case=I"
    assert len(listed) == len(PAPERS["lie_group"].experiments)


def test_papers_come_in_their_own_order() -> None:
    assert [paper.name for paper in chosen(["lie_group", "fesdj"])] == ["fesdj", "lie_group"]
    assert len(chosen([])) == 5
