"""Configurations: what they mean, and every mistake by one clear message that names file, field and legal values."""

import shutil
from pathlib import Path

import pytest

import nosnoc_py as ns
from nosnoc_py import sweep
from nosnoc_py.errors import OptionError
from nosnoc_py.options import Options
from nosnoc_py.sweep.choices import CHOICES, described, make, options_of
from nosnoc_py.sweep.config import configuration, load
from nosnoc_py.sweep.grid import canonical, runs
from nosnoc_py.sweep.references import function, on_path

pytestmark = pytest.mark.quick

ROOT = Path(__file__).parents[2]
BASE = """
problem: {build: "small_copy:task", arguments: {seed: 1}}
method: {name: FESDJ, control_stages: 4}
solver: {name: Homotopy, sigma_0: 1e-8, ipopt: {tol: 1e-9}}
run: {output: out}
"""


def change(old, new, text=BASE):
    assert old in text
    return text.replace(old, new)


MISTAKES = {
    "misspelt key": (change("method:", "metod:"), "metod: unknown key 'metod'. Did you mean 'method'?"),
    "misspelt nested key": (
        change("run: {", "run: {wokers: 2, "),
        "run.wokers: unknown key 'wokers'. Did you mean 'workers'? Legal: workers, timeout, output, table, traj",
    ),
    "misspelt key of the problem": (change("arguments:", "argument:"), "problem.argument: unknown key"),
    "missing": (BASE + "simulate: {duration: 1.0}", "simulate.x0: missing"),
    "unknown method": (
        change("FESDJ", "FESDI"),
        "method.name: unknown method 'FESDI'. Did you mean 'FESD' or 'FESDJ'",
    ),
    "a word": (BASE + "simulate: soon", "simulate: expected a mapping, given 'soon'"),
    "only a name": (change("{name: FESDJ, control_stages: 4}", "FESDJ"), "method: expected a mapping such as {name: ."),
    "a list of names": (change("name: FESDJ", "name: [FESDJ]"), "method.name: unknown method ['FESDJ']"),
    "no name": (change("name: FESDJ, ", ""), "method.name: unknown method None"),
    "unknown solver": (change("Homotopy", "Homotop"), "solver.name: unknown solver 'Homotop'. Did you mean 'Homotopy'"),
    "a method as a solver": (change("Homotopy", "FESDJ"), "solver.name: unknown solver 'FESDJ'"),
    "unknown option": (
        change("control_stages", "control_stage"),
        "method: FESDJ: unknown option 'control_stage'. Did you mean 'control_stages'",
    ),
    "ill-typed option": (change("control_stages: 4", "control_stages: many"), "option 'control_stages'"),
    "words for numbers": (
        change("{output: out}", '{workers: "2"}'),
        "run.workers: expected a whole number, given '2'",
    ),
    "no workers": (change("{output: out}", "{workers: 0}"), "run.workers: expected a number of at least 1, given 0."),
    "unknown table": (
        change("{output: out}", "{table: xlsx}"),
        "run.table: expected 'csv' or 'parquet', given 'xlsx'",
    ),
    "no time": (change("{output: out}", "{timeout: -1}"), "run.timeout: expected a number greater than 0, given -1."),
    "endless": (change("{output: out}", "{timeout: .inf}"), "run.timeout: "),
    "no function": (change("small_copy:task", "small_copy"), 'problem.build: expected a function as "module:function"'),
    "no guess": (change("arguments:", "guess: [1, x], arguments:"), "problem.guess: expected a function as"),
    "no control": (
        BASE + "simulate: {x0: [1], duration: 1, u: [[1], x]}",
        "simulate.u: expected a list of num",
    ),
    "duplicate key": (BASE + "method: {name: FESD}", "line 6, column 1: found duplicate key"),
    "no YAML": ("problem: [", "line 1, column 11"),
    "tab": ("problem:\n\tbuild: 1", "line 2, column 1"),
    "no mapping": ("- 1", "expected a mapping with the keys problem, method"),
    "empty": ("", "expected a mapping"),
    "no path": (BASE + "sweep: {grid: {solver.sigma_zero: [1]}}", "leads nowhere: unknown part of solver 'sigma_zero'"),
    "no part": (BASE + "sweep: {grid: {solvr.sigma_0: [1]}}", "leads nowhere: unknown part of a run 'solvr'"),
    "no setting": (BASE + "sweep: {zip: {run.workers: [1]}}", "sweep.zip: the path 'run.workers' leads nowhere"),
    "too deep": (BASE + "sweep: {grid: {solver.sigma_0.x: [1]}}", "leads nowhere: unknown part of solver.sigma_0 'x'"),
    "no argument": (
        BASE + "sweep: {grid: {problem.arguments.sed: [1]}}",
        "leads nowhere: unknown part of problem.arguments 'sed'. Did you mean 'seed'",
    ),
    "nothing to start from": (
        change("solver: {name: Homotopy, sigma_0: 1e-8, ipopt: {tol: 1e-9}}", "sweep: {grid: {solver.sigma_0: [1]}}"),
        "solver is varied, but there is none",
    ),
    "wrong value": (BASE + "sweep: {grid: {solver.sigma_0: [1, -1]}}", "(run solver.sigma_0=-1)"),
    "empty axis": (BASE + "sweep: {grid: {solver.sigma_0: []}}", "sweep.grid.solver.sigma_0: an empty list"),
    "no list": (BASE + "sweep: {grid: {solver.sigma_0: 1}}", "sweep.grid.solver.sigma_0: expected a list, given 1."),
    "unequal zip": (
        BASE + "sweep: {zip: {solver.sigma_0: [1, 2], solver.kappa: [0.1]}}",
        "equal length, given: solver.sigma_0 has 2, solver.kappa has 1",
    ),
    "twice": (BASE + "sweep: {zip: {solver.kappa: [0.1]}, grid: {solver.kappa: [0.1]}}", "is in grid and in zip"),
    "inside": (BASE + "sweep: {grid: {solver: [], solver.kappa: [0.1]}}", "sweep.grid.solver: an empty list"),
    "whole and part": (
        BASE + "sweep: {grid: {solver: [{name: Auto}], solver.kappa: [0.1]}}",
        "'solver' contains 'solver.kappa'",
    ),
    "equal runs": (BASE + "sweep: {grid: {solver.kappa: [0.1, 0.10]}}", "two runs are equal"),
    "no seed": (
        change("small_copy:task", "small_copy:ball", change("arguments: {seed: 1}", "arguments: {}"))
        + "sweep: {repeat: 2}",
        "nothing here has a seed",
    ),
    "no module": (change("small_copy:", "smal:"), "there is no module 'smal'. It is looked for in"),
    "no submodule": (change("small_copy:", "small_copy.part:"), "there is no module 'small_copy.part'"),
    "no such function": (change(":task", ":tasks"), "unknown function 'tasks'. Did you mean 'task'"),
    "module that fails": (change("small_copy:", "broken:"), "cannot be imported, SyntaxError"),
    "module that needs another": (
        change("small_copy:", "needy:"),
        "needs the module 'not_there', which is not install",
    ),
    "no JSON": (change("seed: 1", "seed: 2020-01-01"), "problem.arguments: expected numbers, words, lists and mapp"),
    "no measure": (change("arguments:", 'measure: "small_copy:none", arguments:'), "unknown function 'none'"),
    "unknown argument": (change("seed: 1", "sed: 1"), "problem.arguments.sed: unknown argument 'sed'"),
    "missing argument": (
        change("small_copy:task", "small_copy:start", change("arguments: {seed: 1}", "arguments: {}")),
        "small_copy:start needs seed",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_one_clear_message_and_nothing_written(name, study, tmp_path):
    (tmp_path / "broken.py").write_text("def build(:")
    (tmp_path / "needy.py").write_text("import not_there")
    text, said = MISTAKES[name]
    with pytest.raises(OptionError) as error:
        sweep.run(study(text))
    assert said in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert not list(Path.cwd().iterdir())


def test_messages_name_the_file(study):
    with pytest.raises(OptionError, match=r"study\.yaml: metod"):
        load(study(change("method:", "metod:")))
    with pytest.raises(OptionError, match=r"missing\.yaml: cannot be read .No such file"):
        load("missing.yaml")
    path = study("")
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(OptionError, match="is no text in UTF-8"):
        load(path)


def test_all_mistakes_of_a_file_at_once(study):
    with pytest.raises(OptionError) as error:
        load(study(change("run: {output: out}", "run: {wokers: 1, tabel: csv}")))
    assert [line.split(": ")[1] for line in str(error.value).splitlines()] == ["run.wokers", "run.tabel"]


def test_the_unwritable_folder(study):
    Path("file").write_text("no folder")
    for output in ("file", "file/inside", "/proc/nothing"):
        with pytest.raises(OptionError, match=f"output folder {output}: cannot be written"):
            sweep.run(study(BASE), output=output)
    assert [path.name for path in Path.cwd().iterdir()] == ["file"]


def test_numbers_are_those_of_yaml_1_2(study):
    loaded = load(study(change("arguments: {seed: 1}", "arguments: {a: 1e-8, b: on, c: 010, d: 1_000, e: 0o17}")))
    assert loaded.problem.arguments == {"a": 1e-8, "b": "on", "c": 10, "d": 1000, "e": 15}
    assert loaded.solver == {"name": "Homotopy", "sigma_0": 1e-8, "ipopt": {"tol": 1e-9}}
    assert loaded.output == Path("out")
    assert loaded.replace_run(workers=3, output=None).run.workers == 3
    assert loaded.run.workers == 1


def test_grid_zip_and_repeat_are_axes_of_a_product(study):
    text = BASE + (
        "sweep: {grid: {solver.relaxation: [scholtes, kanzow_schwartz], method: [{name: FESDJ}, {name: FESD}]},"
        " zip: {solver.kappa: [0.1, 0.2, 0.3], certify: [true, true, true]},"
        " repeat: 2, seed: 7}"
    )
    made = runs(load(study(text)))
    assert len(made) == 2 * 2 * 3 * 2
    assert len({run.key for run in made}) == 24
    assert made[-1].axes == {
        "solver.relaxation": "kanzow_schwartz",
        "method": {"name": "FESD"},
        "solver.kappa": 0.3,
        "certify": True,
        "repeat": 1,
    }
    assert made[-1].resolved["problem"]["arguments"]["seed"] == 8
    assert made[-1].resolved["method"]["name"] == "FESD"
    assert made[-1].resolved["solver"]["kappa"] == 0.3
    assert made[0].resolved["solver"]["finish"] == ns.Homotopy().finish  # defaults are there


def test_the_key_knows_what_is_computed_and_nothing_else(study, tmp_path, monkeypatch):
    (run,) = runs(load(study(BASE)))
    assert len(run.key) == 16
    assert int(run.key, 16) >= 0
    same = (
        change("seed: 1", "seed: 1.0"),
        change("control_stages: 4", "control_stages: 4, rk_stages: 2") if ns.FESDJ().rk_stages == 2 else BASE,
        change("output: out", "output: other, workers: 2, timeout: 3"),
        change("{name: FESDJ, control_stages: 4}", "{control_stages: 4, name: FESDJ}"),
        BASE + "sweep: {grid: {solver.sigma_0: [1.0e-8]}}",
    )
    assert {runs(load(study(text)))[0].key for text in same} == {run.key}
    other = (change("seed: 1", "seed: 2"), change("1e-8", "1e-7"), BASE + "certify: true")
    assert len({runs(load(study(text)))[0].key for text in other} | {run.key}) == 4
    moved = tmp_path / "moved"
    moved.mkdir()
    shutil.copy(tmp_path / "small_copy.py", moved)
    shutil.copy(study(BASE), moved)
    assert runs(load(moved / "study.yaml"))[0].key == run.key
    assert canonical({"b": 2.0, "a": [1, 0.5, True]}) == '{"a":[1,0.5,true],"b":2}'


def test_every_public_method_and_solver_can_be_named():
    public = {name for name in ns.__all__ if isinstance(getattr(ns, name), type)}
    known = {name for name in public if issubclass(getattr(ns, name), Options)}
    assert known | {"DirectShooting"} == {name for choices in CHOICES.values() for name in choices}
    for what, choices in CHOICES.items():
        for name in choices:
            full = described(what, {"name": name})
            assert set(full) == {"name", *options_of(what, full)}
            assert make(what, full) == make(what, {"name": name})
    phases = described("method", {"name": "DirectShooting", "form": "single"})
    assert make("method", phases) == ns.DirectShooting("single")


def test_nested_options(study):
    text = change("{name: FESDJ, control_stages: 4}", "{name: TimeFreezing, fesd: {control_stages: 4}}")
    made = runs(load(study(text + "sweep: {grid: {method.fesd.rk_stages: [1, 3], solver.ipopt.max_iter: [9]}}")))
    assert [run.resolved["method"]["fesd"]["rk_stages"] for run in made] == [1, 3]
    assert made[0].resolved["method"]["fesd"]["control_stages"] == 4
    assert made[0].resolved["solver"]["ipopt"] == {"tol": 1e-9, "max_iter": 9}
    with pytest.raises(OptionError, match=r"unknown part of method\.fesd 'rk_stage'"):
        runs(load(study(text + "sweep: {grid: {method.fesd.rk_stage: [1]}}")))


def test_plain_mappings_are_configurations():
    given = {"problem": {"build": "small:task", "guess": (1, 2)}, "method": {"name": "FESDJ"}}
    made = configuration(given)
    assert made.problem.guess == [1.0, 2.0]
    assert made.folder is None
    assert made.output == Path("results/sweep")
    with pytest.raises(OptionError, match="expected a mapping"):
        configuration([1])


def test_the_path_is_as_before(tmp_path):
    import sys

    before = list(sys.path)
    (tmp_path / "own_module.py").write_text("def f(): return 1")
    assert function("own_module:f", tmp_path)() == 1
    with on_path(tmp_path, None):
        assert sys.path[0] == str(tmp_path.resolve())
    assert sys.path == before
    other = tmp_path / "other"
    other.mkdir()
    (other / "own_module.py").write_text("def f(): return 2")
    with pytest.raises(OptionError, match="was imported under this name already"):
        function("own_module:f", other)
    with pytest.raises(OptionError, match="expected a function, found str"):
        function("own_module:__name__", tmp_path)


@pytest.mark.parametrize(("name", "count"), [("disc_homotopy", 18), ("two_balls_stages", 24)])
def test_shipped_configurations(name, count):
    assert len(runs(load(ROOT / "problems" / "configs" / f"{name}.yaml"))) == count
