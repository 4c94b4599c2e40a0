"""The generated C: compiled, it gives the numbers of CasADi; its layout says where everything stands; bad folders."""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.transcription import generate as module
from nosnoc_py.transcription.generate import COMPILE, FILES, LIBRARY, functions

pytestmark = pytest.mark.quick

GCC = shutil.which("gcc")


def problem() -> ns.Transcription:
    q, v, u, m = (ca.SX.sym(name) for name in ("q", "v", "u", "m"))
    wall = ns.Contact("wall", gap=1.0 - q, restitution=0.5)
    system = ns.CLS(q=q, v=v, u=u, p=m, mass_matrix=m, force=u - ca.sin(q), contacts=[wall], p_default=[1.3])
    ocp = ns.OCP(
        system, horizon=2.0, x0=[0, 1.6], stage_cost=u**2 + q**4,
        path_constraints=[ns.Constraint(v, upper=3.0, name="speed")],
    )  # fmt: skip
    return ns.transcribe(ocp, ns.FESDJ(control_stages=3))


PROBLEM = problem()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return PROBLEM.generate(tmp_path_factory.mktemp("c") / "nlp", x0=[0.1, 1.0], p=[2.0], guess=0.5)


@pytest.fixture(scope="module")
def library(folder: Path) -> Path:
    if GCC is None:
        pytest.skip("there is no gcc to compile the generated C with")
    assert COMPILE in (folder / "README.md").read_text()
    subprocess.run(COMPILE.split(), cwd=folder, check=True, timeout=1800)
    return folder / LIBRARY


def arguments(function: ca.Function) -> list[np.ndarray]:
    random = np.random.default_rng(2)
    return [random.uniform(0.2, 1.2, function.size_in(i)) for i in range(function.n_in())]


def test_compiled_functions_give_the_same_numbers(library: Path) -> None:
    made = functions(PROBLEM.mpcc)
    assert set(made) == set(module.WORDS)
    for name, ours in made.items():
        given = arguments(ours)
        theirs = np.array(ca.external(name, str(library))(*given))
        expected = np.array(ours(*given))
        assert theirs.shape == expected.shape
        np.testing.assert_allclose(theirs, expected, rtol=1e-14, atol=1e-14)
    gradient = np.array(made["nlp_grad_f"](*arguments(made["nlp_f"])))
    assert np.abs(gradient).max() > 0.1


def test_compiled_functions_by_their_c_interface(library: Path) -> None:
    """Without CasADi: pointers to doubles, as from C."""
    c = ctypes.CDLL(str(library))
    sizes = [ctypes.c_longlong() for _ in range(4)]
    assert c.nlp_g_work(*[ctypes.byref(size) for size in sizes]) == 0
    arg_size, res_size, iw_size, w_size = (max(size.value, 1) for size in sizes)
    ours = functions(PROBLEM.mpcc)["nlp_g"]
    given, found = [array.ravel() for array in arguments(ours)], np.zeros(ours.size1_out(0))
    pointer = ctypes.POINTER(ctypes.c_double)
    arg = (pointer * arg_size)(*[array.ctypes.data_as(pointer) for array in given])
    res = (pointer * res_size)(found.ctypes.data_as(pointer))
    c.nlp_g(arg, res, (ctypes.c_longlong * iw_size)(), (ctypes.c_double * w_size)(), 0)
    np.testing.assert_allclose(found, np.array(ours(*given)).ravel(), rtol=1e-14, atol=1e-14)


def test_hessian_and_jacobians_are_derivatives() -> None:
    made = functions(PROBLEM.mpcc)
    w, p, *weights = (array.ravel() for array in arguments(made["nlp_hess_lag"]))
    step, d = 1e-6, np.random.default_rng(3).normal(size=PROBLEM.mpcc.w0.size)

    def slope(at: np.ndarray) -> np.ndarray:
        parts = [np.array(made[name](at, p)) for name in ("nlp_jac_g", "nlp_jac_G", "nlp_jac_H")]
        return weights[0] * np.array(made["nlp_grad_f"](at, p)).ravel() + sum(
            part.T @ lam for part, lam in zip(parts, weights[1:], strict=True)
        )

    hessian = np.array(made["nlp_hess_lag"](w, p, *weights))
    np.testing.assert_allclose(hessian, hessian.T, rtol=0, atol=1e-15)
    differences = (slope(w + step * d) - slope(w - step * d)) / (2 * step)
    np.testing.assert_allclose(hessian @ d, differences, rtol=0, atol=1e-6)


def test_the_layout_says_where_everything_stands(folder: Path) -> None:
    layout = json.loads((folder / "layout.json").read_text())
    m = PROBLEM.mpcc
    assert layout["layout_key"] == PROBLEM.layout_key
    assert layout["parameter_values"] == PROBLEM.parameters([0.1, 1.0], [2.0]).tolist()
    assert layout["guess"] == PROBLEM.initial_guess(0.5, PROBLEM.parameters([0.1, 1.0], [2.0])).tolist()
    covered: list[int] = []
    for entry in layout["variables"]:
        rows = m.variables[entry["name"], entry["stage"], entry["element"], entry["rk"]]
        assert (rows.start, rows.stop) == (entry["start"], entry["stop"])
        covered += range(entry["start"], entry["stop"])
    assert covered == list(range(m.w0.size))
    for name, numbers in (("lbw", m.lbw), ("ubw", m.ubw), ("lbg", m.lbg), ("ubg", m.ubg)):
        limit = -np.inf if name.startswith("l") else np.inf
        np.testing.assert_array_equal([limit if value is None else value for value in layout[name]], numbers)
    assert any(value is None for value in layout["ubw"])
    pairs = {(i, j) for group in layout["groups"] for i in group["G"] for j in group["H"]}
    assert pairs == set(zip(*(side.tolist() for side in m.pairs()), strict=True))
    assert {entry["name"] for entry in layout["constraints"]} >= {"constraint speed", "dynamics"}
    assert layout["functions"]["nlp_jac_g"]["shape"] == [m.g.numel(), m.w0.size]


def test_a_folder_is_replaced_only_if_it_was_generated(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "nlp"
    assert PROBLEM.generate(target) == target
    assert {path.name for path in target.iterdir()} == set(FILES)
    (target / LIBRARY).write_bytes(b"built before")
    PROBLEM.generate(target, p=[4.0])
    assert {path.name for path in target.iterdir()} == set(FILES)  # what was built of the old one is gone
    assert json.loads((target / "layout.json").read_text())["parameter_values"] == PROBLEM.parameters(p=[4.0]).tolist()
    (target / "notes.txt").write_text("mine")
    with pytest.raises(ns.OptionError, match=r"holds other files \(notes.txt\)"):
        PROBLEM.generate(target)
    assert (target / "notes.txt").read_text() == "mine"
    assert [path.name for path in target.parent.iterdir()] == ["nlp"]


def test_folders_that_do_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "layout.json").write_text("{}")
    cases: list[tuple[Any, str]] = [
        (file, "is a file"), (file / "below", "cannot"), (foreign, "other files"), (3, "path of a folder")
    ]  # fmt: skip
    for folder, said in cases:
        with pytest.raises(ns.OptionError, match=said):
            PROBLEM.generate(folder)
    assert file.read_text() == "mine"
    with pytest.raises(ns.NosnocError, match="x0"):
        PROBLEM.generate(tmp_path / "bad", x0=[1.0])
    made = PROBLEM.generate(tmp_path / "kept")
    before = (made / "nlp.c").read_bytes()

    def full(self: Path, *rest: Any, **more: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(ns.OptionError, match="No space left"):
        PROBLEM.generate(made)
    assert (made / "nlp.c").read_bytes() == before  # the old one is still whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "foreign", "kept"]
