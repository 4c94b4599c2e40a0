"""NOSBENCH files: what is read is what was written, and every kind of damage is named at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import casadi as ca
import numpy as np
import pytest

from nosnoc_py.errors import ModelError
from nosnoc_py.mpcc.program import MPCC, Group
from nosnoc_py.mpcc.residuals import Evaluator
from problems.benchmarks import nosbench_files
from tests.mpcc.programs import small_program
from tests.pairwise import every_value

FOLDER = os.environ.get("NOSBENCH_DIR")
FILES = sorted(Path(FOLDER).glob("*.json")) if FOLDER else []
needs_data = pytest.mark.skipif(not FOLDER, reason="NOSBENCH_DIR is not set to a folder with NOSBENCH's JSON files")


def small(*, penalty=True):
    w, p = ca.SX.sym("w", 3), ca.SX.sym("p", 2)
    return MPCC.of_pairs(
        w=w,
        p=p,
        objective=(w[0] - 1) ** 2 + p[0] * w[1] + ca.sin(w[2]),
        penalty=p[1] * (w[2] - 0.5) ** 2 if penalty else 0.0,
        g=ca.vertcat(w[0] + w[1] * w[2], w[1] - p[1]),
        G=ca.vertcat(w[0], w[1] + w[2]),
        H=ca.vertcat(w[1], p[0] - w[2]),
        lbw=[-np.inf, 0, 0.1],
        ubw=[np.inf, 5, 1 / 3],
        lbg=[-1, -np.inf],
        ubg=[np.inf, 2],
        w0=[0.1, 0.2, 0.3],
        p0=[3, 4],
    )


@pytest.fixture
def file(tmp_path):
    """A function that writes the fields of a small MPCC, changed by the arguments, and returns the path."""

    def write(*without, vouched=False, **changes):
        fields = json.loads(nosbench_files.save(small(), tmp_path / "small.json").read_text())
        if not vouched:
            del fields["checksums"]
        fields = {name: value for name, value in (fields | changes).items() if name not in without}
        path = tmp_path / "changed.json"
        path.write_text(json.dumps(fields))
        return path

    return write


def outputs(mpcc, w, p):
    expressions = [mpcc.objective, mpcc.penalty, mpcc.g, mpcc.G, mpcc.H]
    values = ca.Function("all", [mpcc.w, mpcc.p], expressions)(w, p)
    return [np.asarray(value).reshape(-1) for value in values]


def points(mpcc, count=5):
    rng = np.random.default_rng(3)
    return [(rng.normal(size=mpcc.w0.size), mpcc.p0 * rng.uniform(0.5, 1.5, mpcc.p0.size)) for _ in range(count)]


def assert_same(one, other, tolerance=1e-14):
    for name in nosbench_files.NUMBERS:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for w, p in points(one):
        for a, b in zip(outputs(one, w, p), outputs(other, w, p), strict=True):
            assert a.shape == b.shape
            assert (np.abs(a - b) <= tolerance * np.maximum(1, np.abs(a))).all()


# --- round trip


def test_round_trip_keeps_functions_numbers_and_names(tmp_path):
    mpcc = small()
    once = nosbench_files.load(nosbench_files.save(mpcc, tmp_path / "a.json"))
    twice = nosbench_files.load(nosbench_files.save(once, tmp_path / "b.json"))
    assert_same(mpcc, once)
    assert_same(once, twice)
    assert [once.variables.label(i)[0] for i in range(3)] == ["w_0", "w_1", "w_2"]
    assert list(once.G_variable) == [0, -1]
    assert list(once.H_variable) == [1, -1]


def test_round_trip_notices_another_program(tmp_path):
    # Negative control of the comparison above.
    loaded = nosbench_files.load(nosbench_files.save(small(penalty=False), tmp_path / "a.json"))
    with pytest.raises(AssertionError):
        assert_same(small(), loaded)


def test_file_is_strict_json_and_called_with_w_and_p(tmp_path):
    def refuse(token):
        raise AssertionError(token)

    fields = json.loads(nosbench_files.save(small(), tmp_path / "a.json").read_text(), parse_constant=refuse)
    assert fields["lbw"] == ["-inf", 0.0, 0.1]
    assert fields["ubw"] == ["inf", 5.0, 1 / 3]
    function = ca.Function.deserialize(fields["objective_fun"])
    assert (function.n_in(), function.n_out()) == (2, 1)
    assert float(function([1, 2, 0], [3, 4])) == pytest.approx(6.0, abs=1e-15)
    augmented = ca.Function.deserialize(fields["augmented_objective_fun"])
    assert float(augmented([1, 2, 0], [3, 4])) == pytest.approx(7.0, abs=1e-15)


def test_without_parameters_constraints_and_pairs(tmp_path):
    w = ca.SX.sym("w")
    mpcc = MPCC.of_pairs(w=w, G=ca.SX(0, 1), H=ca.SX(0, 1), objective=w**2)
    loaded = nosbench_files.load(nosbench_files.save(mpcc, tmp_path / "a.json"))
    assert_same(mpcc, loaded)
    assert (loaded.p.numel(), loaded.g.numel(), loaded.G.numel()) == (0, 0, 0)


def test_groups_are_written_pair_by_pair(tmp_path):
    mpcc = small_program("abcd", lambda w: [(w[0], w[2]), (w[1], w[3])], aggregation="fe_fe")
    mpcc = replace(mpcc, groups=(Group(np.arange(2), np.arange(2)),))
    loaded = nosbench_files.load(nosbench_files.save(mpcc, tmp_path / "a.json"))
    assert mpcc.products()[0].numel() == 1  # aggregated, and yet
    assert (list(loaded.G_variable), list(loaded.H_variable)) == ([0, 0, 1, 1], [2, 3, 2, 3])
    at = np.array([0.1, 0.2, 0.3, 0.4])
    there, here = Evaluator(mpcc), Evaluator(loaded)
    assert there.complementarity(there(at, np.zeros(0))) == pytest.approx(0.08, abs=1e-15)
    assert here.complementarity(here(at, np.zeros(0))) == pytest.approx(0.08, abs=1e-15)


def test_quantities_in_no_product_stay_nonnegative(tmp_path):
    mpcc = small_program("ab", lambda w: [(w[0], w[1])], lower=-1.0)
    mpcc = replace(mpcc, groups=(), lbw=np.full(2, -1.0))
    loaded = nosbench_files.load(nosbench_files.save(mpcc, tmp_path / "a.json"))
    assert (loaded.G.numel(), loaded.g.numel()) == (0, 2)
    evaluator = Evaluator(loaded)
    assert evaluator.infeasibility(evaluator(np.array([-0.25, 0.5]), np.zeros(0))) == pytest.approx(0.25, abs=1e-15)


def test_enforced_switched_equations_cannot_be_written(tmp_path):
    def build(enforce):
        pairs, rows = lambda w: [(w[0], w[1])], lambda w: [("r", w[0] - w[1])]
        return small_program("ab", pairs, switched=rows, enforce_switched=enforce)

    with pytest.raises(ModelError, match=r"a\.json.*1 switched equations.*step equilibration"):
        nosbench_files.save(build(True), tmp_path / "a.json")
    assert not list(tmp_path.iterdir())
    assert nosbench_files.load(nosbench_files.save(build(False), tmp_path / "a.json")).r.numel() == 0


# --- objective and penalty


def test_equal_objectives_give_a_structural_zero(tmp_path):
    loaded = nosbench_files.load(nosbench_files.save(small(penalty=False), tmp_path / "a.json"))
    assert loaded.penalty.is_zero()
    assert not nosbench_files.load(nosbench_files.save(small(), tmp_path / "b.json")).penalty.is_constant()


def test_penalty_is_found_between_the_terms_of_the_objective(tmp_path):
    w, p = ca.SX.sym("w", 40), ca.SX.sym("p")
    stages = [ca.exp(w[i] * w[i + 1]) * ca.sin(w[i]) for i in range(39)]
    penalties = [p * (w[i] - 0.1) ** 2 for i in range(39)]
    objective, augmented = ca.SX(0), ca.SX(0)
    for stage, penalty in zip(stages, penalties, strict=True):
        objective += stage
        augmented += stage + penalty
    difference = nosbench_files._difference(augmented, objective)
    naive = augmented - objective
    # 39 terms of six nodes and their sums against three times as many; no sine and no exponential is left.
    assert ca.n_nodes(difference) < 0.6 * ca.n_nodes(naive)
    assert "exp" not in str(difference)
    assert "exp" in str(naive)
    both = ca.Function("both", [w, p], [difference, naive])
    for seed in range(3):
        a, b = both(np.random.default_rng(seed).normal(size=40), 2.0)
        assert float(a) == pytest.approx(float(b), rel=1e-13)


@pytest.mark.parametrize(
    ("augmented", "objective"),
    [
        (lambda x, y: x * y, lambda x, y: x + y),
        (lambda x, y: x - y, lambda x, y: y - x),
        (lambda x, y: x, lambda x, y: x),
        (lambda x, y: ca.SX(2), lambda x, y: ca.SX(0)),
        (lambda x, y: x + y + y + 3, lambda x, y: y - (x - 1)),
        (lambda x, y: (x - (y - (x * y - 1))) ** 2 - x, lambda x, y: -x - x),
    ],
)
def test_difference_is_exact_for_any_two_expressions(augmented, objective):
    x, y = ca.SX.sym("x"), ca.SX.sym("y")
    a, b = augmented(x, y), objective(x, y)
    both = ca.Function("both", [x, y], [nosbench_files._difference(a, b), a - b])
    for point in ((0.3, -0.7), (2.0, 5.0)):
        found, expected = (float(value) for value in both(*point))
        assert found == pytest.approx(expected, abs=1e-14)


def test_sums_of_shared_sums_do_not_explode():
    x, y = ca.SX.sym("x"), ca.SX.sym("y")
    before, last = x, y
    for k in range(60):  # a Fibonacci number of terms
        before, last = last, last + before * (1 if k % 2 else -1) + before
    difference = nosbench_files._difference(last, x * y)
    both = ca.Function("both", [x, y], [difference, last - x * y])
    assert both.n_instructions() < 10_000  # not one for each of 4e12 terms
    found, expected = (float(value) for value in both(1.0, 1.0))
    assert found == pytest.approx(expected, rel=1e-12)


# --- numbers


@pytest.mark.parametrize("infinity", ["inf", "Inf", "Infinity", "+inf", float("inf")])
def test_infinities_in_every_spelling(file, infinity):
    assert nosbench_files.load(file(ubw=[infinity, 5, 6])).ubw[0] == np.inf
    assert nosbench_files.load(file(lbw=[f"-{infinity}".replace("-+", "-"), 0, 0.1])).lbw[0] == -np.inf


def test_one_number_may_stand_without_brackets(tmp_path):
    w, p = ca.SX.sym("w"), ca.SX.sym("p")
    path = nosbench_files.save(MPCC.of_pairs(w=w, p=p, G=w, H=p - w, p0=2.0), tmp_path / "a.json")
    fields = json.loads(path.read_text()) | {"p0": 7, "w0": 0.5, "lbw": "-inf"}
    path.write_text(json.dumps(fields))
    loaded = nosbench_files.load(path)
    assert (loaded.p0[0], loaded.w0[0], loaded.lbw[0]) == (7.0, 0.5, -np.inf)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("w0", None, "w0: expected numbers, given null at position 0"),
        ("w0", {"a": 1}, "w0: expected numbers, given an object"),
        ("w0", [1, 2, True], "w0: expected numbers, given True at position 2"),
        ("w0", [[1], [2], [3]], "w0: expected numbers, given a list at position 0"),
        ("p0", [1, "2"], "p0: expected numbers, given '2' at position 1"),
        ("p0", "four", "p0: expected numbers, given 'four'"),
        ("p0", [1, 10**400], "p0: expected numbers"),
        ("p0", [1, None], "p0: expected numbers, given null at position 1"),
        ("p0", [1, 2, 3], "p0: expected 2 numbers, given 3"),
        ("p0", 1, "p0: expected 2 numbers, given 1"),
        ("w0", [1, 2], "w0: expected 3 numbers, given 2"),
        ("w0", [], "w0: expected 3 numbers, given 0"),
        ("lbg", [0], "lbg: expected 2 numbers, given 1"),
        ("ubg", [0, 1, 2], "ubg: expected 2 numbers, given 3"),
        ("lbw", [0, 0], "lbw: expected 3 numbers, given 2"),
        ("w0", [1, float("nan"), 2], "w0: contains NaN at position 1"),
        ("lbw", [0, 0, "nan"], "lbw: contains NaN at position 2"),
        ("ubg", [float("nan"), 0], "ubg: contains NaN at position 0"),
        ("w0", [1, "inf", 2], "w0: expected finite numbers, given inf"),
        ("p0", [1, "-inf"], "p0: expected finite numbers, given -inf"),
        ("lbw", [0, 6, 0], r"lbw and ubw, row 1 \(w_1\): expected lower <= upper .* given \[6, 5\]"),
        ("ubg", [-2, 3], r"lbg and ubg, row 0 \(g\[0\]\): expected lower <= upper .* given \[-1, -2\]"),
        ("lbw", ["inf", 0, 0], r"lbw and ubw, row 0 \(w_0\)"),
    ],
)
def test_wrong_numbers_are_named(file, field, value, message):
    with pytest.raises(ModelError, match=rf"changed\.json: {message}"):
        nosbench_files.load(file(**{field: value}))


# --- files


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON, or truncated"),
        (b"not json", "not JSON, or truncated"),
        (b'{"w": "abc", "p', "not JSON, or truncated"),
        (b"\xff\xfe\x00damaged", "not JSON, or truncated"),
        (b"[" * 100_000, "not JSON, or truncated"),
        (b"[1, 2]", "expected a JSON object, given a list"),
        (b'"text"', "expected a JSON object, given 'text'"),
        (b"null", "expected a JSON object, given null"),
        (b"{}", "missing fields: w, p, g_fun, .*, p0"),
    ],
)
def test_what_is_not_a_nosbench_file(tmp_path, content, message):
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=rf"file\.json: {message}"):
        nosbench_files.load(path)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_truncated_file(tmp_path, share):
    path = nosbench_files.save(small(), tmp_path / "a.json")
    text = path.read_bytes()
    path.write_bytes(text[: int(share * len(text))])
    with pytest.raises(ModelError, match=r"a\.json: not JSON, or truncated"):
        nosbench_files.load(path)


def test_no_file_and_a_folder(tmp_path):
    with pytest.raises(ModelError, match=r"none\.json: cannot be read"):
        nosbench_files.load(tmp_path / "none.json")
    with pytest.raises(ModelError, match="cannot be read"):
        nosbench_files.load(tmp_path)


@pytest.mark.parametrize("field", nosbench_files.TEXTS + nosbench_files.NUMBERS)
def test_a_missing_field_is_named(file, field):
    with pytest.raises(ModelError, match=rf"changed\.json: missing fields: {field}\.$"):
        nosbench_files.load(file(field))


def test_all_missing_fields_are_named(file):
    with pytest.raises(ModelError, match=r"missing fields: p, H_fun, lbw, p0\.$"):
        nosbench_files.load(file("p0", "lbw", "H_fun", "p"))


# --- symbols and functions


def _index_out_of_range(text):
    """The last instruction of a function reads far beyond its work vector: CasADi ends the process."""
    place = text.rindex("ocaaaaaa") + 16
    return text[:place] + "ppppppgh" + text[place + 8 :]


def _endless_name(text):
    """The name of the function is said to have 2 GB."""
    return text[:36] + "ppppppgh" + text[44:]


DAMAGES = {
    "empty": lambda text: "",
    "garbage": lambda text: "this is not a serialised function",
    "not ascii": lambda text: text[:60] + "ä€" + text[62:],
    "truncated": lambda text: text[: len(text) // 2],
    "shortened": lambda text: text[:100] + text[110:],
}


@every_value(field=["w", "p", "g_fun", "augmented_objective_fun"], damage=DAMAGES)
def test_a_damaged_text_is_named(file, field, damage):
    text = json.loads(file().read_text())[field]
    with pytest.raises(ModelError, match=rf"changed\.json: {field}: .*damaged"):
        nosbench_files.load(file(**{field: DAMAGES[damage](text)}))


@pytest.mark.parametrize("damage", [_index_out_of_range, _endless_name])
def test_texts_that_end_or_stall_the_process_are_refused(file, damage):
    path = file(G_fun=damage(json.loads(file().read_text())["G_fun"]))
    with pytest.raises(ModelError, match=r"changed\.json: G_fun: .*damaged"):
        nosbench_files.load(path)


def test_without_the_trial_such_a_text_ends_the_process(file):
    # Negative control: CasADi raises nothing here, the process is simply gone.
    text = _index_out_of_range(json.loads(file().read_text())["G_fun"])
    code = "import sys, casadi as ca; f = ca.Function.deserialize(sys.stdin.read()); f(*f.sx_in()); print('alive')"
    done = subprocess.run([sys.executable, "-c", code], input=text.encode(), capture_output=True)
    assert done.returncode != 0
    assert b"Error" not in done.stderr
    assert b"alive" not in done.stdout


@pytest.mark.parametrize("field", nosbench_files.TEXTS)
def test_checksums_find_what_casadi_reads_without_complaint(file, field):
    text = json.loads(file().read_text())[field]
    flipped = text[:-1] + ("b" if text[-1] == "a" else "a")
    with pytest.raises(ModelError, match=rf"changed\.json: {field}: damaged, it does not fit its checksum"):
        nosbench_files.load(file(vouched=True, **{field: flipped}))
    with pytest.raises(ModelError, match="checksums: expected an object, given 3"):
        nosbench_files.load(file(checksums=3))


def test_files_with_checksums_need_no_trial(file, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(subprocess, "run", refuse)
    assert nosbench_files.load(file(vouched=True)).w0.size == 3
    with pytest.raises(AssertionError, match="a process was started"):
        nosbench_files.load(file())


def test_trials_that_last_too_long_or_cannot_start(file, monkeypatch):
    def stall(*_, **__):
        raise subprocess.TimeoutExpired("python", 120, output=b"ready\nw\np\n")

    def fail(*_, **__):
        raise OSError("no process left")

    monkeypatch.setattr(subprocess, "run", stall)
    with pytest.raises(ModelError, match=r"g_fun: .*damaged"):
        nosbench_files.load(file())
    monkeypatch.setattr(subprocess, "run", fail)
    assert nosbench_files.load(file()).w0.size == 3


def test_a_newer_casadi_is_named():
    words = "DeSerialization of FunctionInternal failed. Object written in version 9 but can only read version 1...6."
    assert "written in version 9" in str(nosbench_files._unreadable("g_fun", f"RuntimeError: file.cpp:372:\n{words}"))


def _function(inputs, outputs):
    return ca.Function("f", inputs, outputs).serialize()


X, Y, Z = ca.SX.sym("x", 3), ca.SX.sym("y", 2), ca.SX.sym("z")


@pytest.mark.parametrize(
    ("field", "text", "message"),
    [
        ("g_fun", _function([X], [X[:2]]), r"expected a function \(w, p\) -> value"),
        ("G_fun", _function([X, Y, Z], [X[:2]]), r"expected a function \(w, p\) -> value"),
        ("G_fun", _function([X, Y], [X[0], X[1]]), r"expected a function \(w, p\) -> value"),
        ("H_fun", _function([Y, X], [Y]), "expected an argument w of 3 entries"),
        ("H_fun", _function([Z, Y], [Y]), "expected an argument w of 3 entries"),
        ("objective_fun", _function([X, Z], [Z]), "expected an argument p of 2 entries"),
        ("objective_fun", _function([X, Y], [Y]), "expected a scalar, given 2"),
        ("augmented_objective_fun", _function([X, Y], [ca.SX(0, 1)]), "expected a scalar, given 0"),
        ("w", (2 * X).serialize(), "expected a column of symbols"),
        ("p", ca.SX(3).serialize(), "expected a column of symbols"),
        ("w", ca.SX.sym("w", ca.Sparsity.diag(3)).serialize(), "expected a column of symbols"),
        ("w", ca.vertcat(Z, Y[0], Z).serialize(), "and p: the same symbol appears twice"),
        ("w", 17, "expected a string that CasADi's serialize"),
        ("g_fun", None, r"expected a string that CasADi's serialize\(\) wrote, given null"),
        ("G_fun", [1], r"expected a string .* given a list"),
    ],
)
def test_functions_that_do_not_fit_are_named(file, field, text, message):
    with pytest.raises(ModelError, match=rf"changed\.json: {field}.*({message})"):
        nosbench_files.load(file(**{field: text}))


def test_sides_of_different_size_are_named(file):
    with pytest.raises(ModelError, match=r"changed\.json: G_fun and H_fun: expected as many rows, given 3 and 2"):
        nosbench_files.load(file(G_fun=_function([X, Y], [X])))


# --- writing


def test_nothing_partial_is_written(tmp_path, monkeypatch):
    path = nosbench_files.save(small(), tmp_path / "a.json")
    before = path.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(ModelError, match=r"a\.json: cannot be written: No space left"):
        nosbench_files.save(small(penalty=False), path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.json"]


def test_interrupts_leave_nothing_behind(tmp_path, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        nosbench_files.save(small(), tmp_path / "a.json")
    assert not list(tmp_path.iterdir())


def test_nan_and_missing_folders_are_refused(tmp_path):
    with pytest.raises(ModelError, match=r"a\.json: w0: expected numbers, given NaN"):
        nosbench_files.save(replace(small(), w0=np.array([0, np.nan, 1])), tmp_path / "a.json")
    with pytest.raises(ModelError, match=r"a\.json: cannot be written"):
        nosbench_files.save(small(), tmp_path / "none" / "a.json")
    assert not list(tmp_path.iterdir())


# --- the collection itself


@needs_data
def test_the_folder_holds_files():
    assert FILES, f"NOSBENCH_DIR={FOLDER} holds no *.json"


@needs_data
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_problems_of_nosbench(path, tmp_path):
    loaded = nosbench_files.load(path)
    assert_same(loaded, nosbench_files.load(nosbench_files.save(loaded, tmp_path / "a.json")), tolerance=1e-12)
    fields = json.loads(path.read_text())
    names = ("objective_fun", "augmented_objective_fun", "g_fun", "G_fun", "H_fun")
    given = [ca.Function.deserialize(fields[name]) for name in names]
    for w, p in points(loaded, 3):
        objective, penalty, *rest = outputs(loaded, w, p)
        for function, value in zip(given, [objective, objective + penalty, *rest], strict=True):
            expected = np.asarray(function(w, p)).reshape(-1)
            assert (np.abs(value - expected) <= 1e-12 * np.maximum(1, np.abs(expected))).all()


@needs_data
def test_penalties_of_nosbench_are_small_expressions():
    def nodes(path):
        fields, loaded = json.loads(path.read_text()), nosbench_files.load(path)
        names = ("augmented_objective_fun", "objective_fun")
        whole, part = (ca.Function.deserialize(fields[name])(loaded.w, loaded.p) for name in names)
        return ca.n_nodes(loaded.penalty), ca.n_nodes(whole - part)

    small, naive = np.sum([nodes(path) for path in FILES], axis=0)
    assert small < 0.5 * naive  # 24 problems: 2 814 against 15 219 nodes
