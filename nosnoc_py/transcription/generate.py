"""The functions of a transcribed problem as C, for solvers and targets without Python.

Everything is in the user's units: minimise objective(w, p) + penalty(w, p) subject to the bounds of w, lbg <= g <= ubg,
G >= 0, H >= 0, and G_i H_j = 0 for all i, j of every group. How the products are relaxed is left to whoever solves;
`generated_step` adds a solver for one branch.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.mpcc.layout import Layout
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.transcription import generated_loop, generated_step
from nosnoc_py.transcription.fixed_grid import SAME_TIME, FixedGrid
from nosnoc_py.transcription.generated_step import Step, step_of

if TYPE_CHECKING:
    from nosnoc_py.transcription.transcription import Transcription

# Names of the files; other code compiles and reads them by these.
SOURCE, HEADER, LAYOUT, README = "nlp.c", "nlp.h", generated_step.LAYOUT, "README.md"
FILES = (SOURCE, HEADER, LAYOUT, README)
LIBRARY = "libnlp.so"
COMPILE = f"gcc -O1 -fPIC -shared -o {LIBRARY} {SOURCE} -lm"
COMPILE_STEP = COMPILE.replace(SOURCE, f"{SOURCE} {generated_step.SOURCE}")
STEP_FILES = (generated_step.SOURCE, generated_step.HEADER)
LOOP_FILES = (generated_loop.SOURCE, generated_loop.HEADER, generated_loop.LIBRARY)
# Mark by which a folder is known to be generated here, so that it may be replaced.
FORMAT = "nosnoc_py NLP functions 1"
# Exported functions in the order of the README, with their descriptions.
WORDS = {
    "nlp_f": "objective",
    "nlp_grad_f": "its gradient (dense)",
    "nlp_penalty": "penalty of step equilibration, 0 where there is none",
    "nlp_g": "constraints g",
    "nlp_jac_g": "their Jacobian",
    "nlp_G": "nonnegative quantities G",
    "nlp_H": "nonnegative quantities H",
    "nlp_jac_G": "Jacobian of G",
    "nlp_jac_H": "Jacobian of H",
    "nlp_r": "switched equations r, to hold where nlp_indicator is positive",
    "nlp_indicator": "indicator of the switched equations",
    "nlp_hess_lag": "Hessian of lam_f f + lam_g'g + lam_G'G + lam_H'H by w (both halves)",
}


def functions(mpcc: MPCC) -> dict[str, ca.Function]:
    """Return the exported functions by name."""
    w, p, f, g, G, H = mpcc.w, mpcc.p, mpcc.objective, mpcc.g, mpcc.G, mpcc.H
    dense = {
        "nlp_f": f,
        "nlp_grad_f": ca.gradient(f, w),
        "nlp_penalty": mpcc.penalty,
        "nlp_g": g,
        "nlp_G": G,
        "nlp_H": H,
        "nlp_r": mpcc.r,
        "nlp_indicator": mpcc.indicator(G, H),
    }
    # Dense vectors: callers in C index them without a pattern. Jacobians and the Hessian stay sparse.
    values = {name: ca.densify(value) for name, value in dense.items()}
    values |= {f"nlp_jac_{name}": ca.jacobian(rows, w) for name, rows in zip("gGH", (g, G, H), strict=True)}
    exported = {
        name: ca.Function(name, [w, p], [values[name]], ["w", "p"], ["value"]) for name in WORDS if name in values
    }
    # Products G_i H_j enter only by their multipliers: a solver forms them from those of G and H as it relaxes.
    weights = [ca.SX.sym(f"lam_{name}", rows.numel()) for name, rows in zip("fgGH", (f, g, G, H), strict=True)]
    lagrangian = sum((ca.dot(lam, rows) for lam, rows in zip(weights, (f, g, G, H), strict=True)), ca.SX(0))
    hessian = ca.hessian(lagrangian, w)[0]
    inputs = ["w", "p", "lam_f", "lam_g", "lam_G", "lam_H"]
    exported["nlp_hess_lag"] = ca.Function("nlp_hess_lag", [w, p, *weights], [hessian], inputs, ["value"])
    return exported


def generate(
    problem: Transcription,
    folder: str | os.PathLike[str],
    values: np.ndarray,
    w: np.ndarray,
    solution: Any = None,
    period: float | None = None,
) -> Path:
    """Write the files, see `Transcription.generate`; `values` (n_p,) are the MPCC's parameters, `w` (n_w,) a guess."""
    target = _target(folder)
    step = None if solution is None else step_of(problem, solution, values)
    exported = functions(problem.mpcc)
    description, text = _description(problem, exported, values, w), _readme(problem, exported, step)
    contents = _sources(exported)
    if step is not None:
        contents |= generated_step.sources(step)
        description |= {"step": generated_step.described(problem, step)}
        text += generated_step.readme(step)
    if period is not None:
        periods = float(problem.ocp.horizon) / period if period > 0.0 else 0.0
        if not round(periods) > 1 or abs(periods - round(periods)) > SAME_TIME:
            raise OptionError(
                f"generate: period: expected a whole fraction of the horizon, {float(problem.ocp.horizon):g} s, given "
                f"{period!r}."
            )
        grid, p = FixedGrid.of(problem.ocp, period), problem.parameter_values(w, values)
        contents |= generated_loop.sources(grid, period, p)
        description |= {"controller": generated_loop.described(problem, grid, period)}
        text += generated_loop.readme(grid, period, p)
    contents |= {LAYOUT: json.dumps(description, indent=1) + "\n", README: text}
    try:
        _write(target, contents)
    except OSError as error:
        raise OptionError(f"generate: cannot write the folder {target}: {error.strerror or error}.") from None
    return target


def _target(folder: Any) -> Path:
    """Return the folder, and refuse one whose files would be lost."""
    try:
        target = Path(folder).absolute()
    except TypeError:
        raise OptionError(f"generate: expected the path of a folder, given {folder!r}.") from None
    try:
        if not target.exists():
            return target
        if not target.is_dir():
            raise OptionError(f"generate: {target} is a file; give the path of a folder.")
        present = sorted(path.name for path in target.iterdir())
    except OSError as error:
        raise OptionError(f"generate: cannot read the folder {target}: {error.strerror or error}.") from None
    # A user's own file would be lost with the folder; a compiled library may be.
    foreign = [name for name in present if name not in (*FILES, *STEP_FILES, *LOOP_FILES, LIBRARY)]
    if foreign or (present and not _is_own(target)):
        raise OptionError(
            f"generate: the folder {target} holds other files ({', '.join((foreign or present)[:5])}); give a new one, "
            "or one that was generated before."
        )
    return target


def _is_own(folder: Path) -> bool:
    try:
        return bool(json.loads((folder / LAYOUT).read_text(encoding="utf-8"))["format"] == FORMAT)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _write(target: Path, contents: Mapping[str, str]) -> None:
    """Write all files or none: into a folder beside the old one, whose place it then takes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    # In the same parent, so that a rename does not cross file systems and is atomic.
    fresh, old = (target.with_name(f".{target.name}.{uuid4().hex}") for _ in range(2))
    try:
        fresh.mkdir()
        for name, text in contents.items():
            (fresh / name).write_text(text, encoding="utf-8")
        if target.exists():
            target.rename(old)
        try:
            fresh.rename(target)
        except OSError:
            # The new folder could not take the place: put the old one back before the error is reported.
            if old.exists():
                old.rename(target)
            raise
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


def _sources(made: Mapping[str, ca.Function]) -> dict[str, str]:
    generator = ca.CodeGenerator(SOURCE, {"with_header": True})
    for function in made.values():
        generator.add(function)
    with TemporaryDirectory() as folder:
        generator.generate(f"{folder}/")
        return {name: (Path(folder) / name).read_text(encoding="utf-8") for name in (SOURCE, HEADER)}


def _description(
    problem: Transcription, made: Mapping[str, ca.Function], values: np.ndarray, w: np.ndarray
) -> dict[str, Any]:
    m = problem.mpcc
    return {
        "format": FORMAT,
        "method": repr(problem.method),
        "layout_key": problem.layout_key,
        "places": "start:stop are rows; stage, element and rk count from 0 and are null where they have no meaning",
        **{name: _blocks(getattr(m, name)) for name in ("variables", "parameters", "constraints", "switched")},
        "G": _blocks(m.left),
        "H": _blocks(m.right),
        "groups": [{"G": group.left.tolist(), "H": group.right.tolist()} for group in m.groups],
        "switched_required": m.required.tolist(),
        **{name: _bounds(getattr(m, name)) for name in ("lbw", "ubw", "lbg", "ubg")},
        "parameter_values": values.tolist(),
        "guess": w.tolist(),
        "functions": {
            name: {
                "inputs": {function.name_in(i): list(function.size_in(i)) for i in range(function.n_in())},
                "shape": list(function.size_out(0)),
                "nonzeros": function.nnz_out(0),
            }
            for name, function in made.items()
        },
    }


def _blocks(layout: Layout) -> list[dict[str, Any]]:
    return [
        {
            "name": block.name,
            **vars(block.at),
            "start": block.start,
            "stop": block.start + block.size,
            "components": list(block.components),
        }
        for block in layout.blocks()
    ]


def _bounds(values: np.ndarray) -> list[float | None]:
    """Return bounds for JSON, which has no infinity: None where there is no bound."""
    return [float(value) if np.isfinite(value) else None for value in values]


def _readme(problem: Transcription, made: Mapping[str, ca.Function], step: Step | None) -> str:
    m = problem.mpcc
    compiled = COMPILE if step is None else COMPILE_STEP
    rows = "\n".join(f"| `{name}` | {', '.join(made[name].name_in())} | {WORDS[name]} |" for name in made)
    return f"""# Functions of an optimal control problem

minimise f(w, p) subject to lbw <= w <= ubw, lbg <= g(w, p) <= ubg, G(w, p) >= 0, H(w, p) >= 0, and G_i H_j = 0 for
all i, j of every group. {m.w.numel()} variables, {m.p.numel()} parameters, {m.g.numel()} constraints, {m.G.numel()} and
{m.H.numel()} nonnegative quantities in {len(m.groups)} groups, {m.r.numel()} switched equations.

    {compiled}

| function | arguments | value |
|---|---|---|
{rows}

`{HEADER}` declares them, with CasADi's calling convention for C: `nlp_f(arg, res, iw, w, mem)` with the work sizes of
`nlp_f_work`; matrices are sparse, column by column, their pattern is `nlp_jac_g_sparsity_out(0)` and so on.
`{LAYOUT}` says where everything stands (name, control stage, finite element, Runge-Kutta stage, rows), and holds the
groups, bounds (null: none), values of the parameters and a guess. From Python:

    import casadi
    f = casadi.external("nlp_f", "./{LIBRARY}")
"""
