"""The package as a whole: cheap to import, documented, and true to its README."""

import ast
import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from nosnoc_py import errors
from nosnoc_py.options import Options

ROOT = Path(__file__).resolve().parents[1]
HEAVY = ("scipy.optimize", "matplotlib", "rich", "xarray", "pandas")


def run(code: str, folder: Path | None = None) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{code}"],
        cwd=folder or ROOT,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported_by(statement: str) -> set[str]:
    return set(json.loads(run(f"import json\n{statement}\nprint(json.dumps(sorted(sys.modules)))").splitlines()[-1]))


def test_import_is_cheap():
    """Names are loaded when they are used; what a model needs is 46 modules, what all methods need is 286."""

    def own(loaded):
        return sum(name.partition(".")[0] == "nosnoc_py" for name in loaded)

    bare, model, everything = (
        imported_by(f"import nosnoc_py as ns{statement}") for statement in ("", "\nns.CLS, ns.OCP", "\nns.solve")
    )
    assert own(bare) <= 10
    assert own(model) <= 80
    assert own(everything) > 200  # else this counts nothing
    assert "casadi" in model
    assert not everything & set(HEAVY)


def test_plain_solve_loads_no_statistics():
    """Packages that take longer to import than a small problem to solve, such as those that cma brought."""
    solve = (
        "import casadi as ca, nosnoc_py as ns, numpy as np\n"
        "from nosnoc_py.search.kinds import STARTS\n"
        "from nosnoc_py.search.starts import StartTask\n"
        "q, v, u = (ca.SX.sym(name) for name in 'qvu')\n"
        "ground = ns.Contact('ground', gap=q)\n"
        "ball = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 9.81, contacts=[ground])\n"
        "ocp = ns.OCP(ball, horizon=1.0, x0=[1, 0], stage_cost=u**2, terminal_constraints=[q == 0.5])\n"
        "solution = ns.solve(ocp, effort='quick', progress=False)\n"
        "assert solution.success\n"
        "next(item for item in STARTS['evolution'](StartTask.of(ocp), np.random.default_rng(0)) if item)\n"
    )
    loaded = imported_by(solve)
    assert "scipy.sparse" in loaded
    assert not loaded & {"scipy.stats", "scipy.integrate", "scipy.interpolate", "matplotlib", "pandas"}


def public_imports() -> dict[str, list[str]]:
    """Return the names that type checkers see in the package, by module."""
    import nosnoc_py

    tree = ast.parse(Path(nosnoc_py.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    return {node.module.removeprefix("nosnoc_py."): [alias.name for alias in node.names] for node in block.body}


def test_names_are_where_type_checkers_see_them():
    import nosnoc_py

    homes = {home: names.split() for home, names in nosnoc_py.HOMES.items()}
    assert {home: sorted(names) for home, names in homes.items()} == {
        home: sorted(names) for home, names in public_imports().items()
    }
    assert sorted(nosnoc_py.__all__) == sorted(name for names in homes.values() for name in names)
    assert dir(nosnoc_py) == sorted(nosnoc_py.__all__)


def test_star_import_has_all_names():
    assert run("from nosnoc_py import *\nimport nosnoc_py\nprint(set(nosnoc_py.__all__) - set(globals()))") == "set()\n"


def test_every_module_of_a_name_can_be_imported_first():
    """The order in which names are used is the user's: no module may need that another one was loaded before."""
    check = (
        "import importlib, nosnoc_py\n"
        "for home in nosnoc_py.HOMES:\n"
        "    for name in [name for name in sys.modules if name.startswith('nosnoc_py')]:\n"
        "        del sys.modules[name]\n"
        "    import nosnoc_py\n"
        "    for name in nosnoc_py.HOMES[home].split():\n"
        "        getattr(nosnoc_py, name)\n"
    )
    assert run(check) == ""


def test_import_costs_only_casadi_numpy_and_pydantic():
    def outside(statement):
        roots = {name.partition(".")[0] for name in imported_by(statement)}
        return {root for root in roots if not root.startswith("_")} - set(sys.stdlib_module_names) - {"nosnoc_py"}

    price = "import casadi, numpy, pydantic\nclass Model(pydantic.BaseModel):\n    n: int = pydantic.Field(ge=0)"
    assert not outside("import nosnoc_py") - outside(price)


def test_solution_works_without_the_heavy_packages():
    assert not imported_by("import nosnoc_py.solution") & set(HEAVY)


def test_import_is_silent():
    assert run("import nosnoc_py") == ""


def test_public_names_resolve_and_are_documented():
    import nosnoc_py

    assert nosnoc_py.__all__, "the public names are listed in __all__"
    assert len(set(nosnoc_py.__all__)) == len(nosnoc_py.__all__)
    public = {name: getattr(nosnoc_py, name) for name in nosnoc_py.__all__ if not name.startswith("__")}
    undocumented = [name for name, value in public.items() if not (own_doc(value) or "").strip()]
    assert not undocumented


def own_doc(value: object) -> str | None:
    """Return the docstring of a thing itself: a class that only inherits one, or was given one, has none."""
    if not inspect.isclass(value):
        return inspect.getdoc(value)
    doc = value.__dict__.get("__doc__")
    return None if doc and doc.startswith(f"{value.__name__}(") else doc  # what @dataclass writes


def readme_example() -> str:
    """Return the one example of the README."""
    (example,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    return example


def test_readme_is_short():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 900
    assert len([line for line in readme_example().splitlines() if line.strip()]) <= 20


@pytest.mark.slow
def test_readme_example_runs(tmp_path):
    check = "assert solution.certificate.confirmed and solution.objective < 0.425, solution.summary()"
    run(f"{readme_example()}\n{check}", folder=tmp_path)
    assert (tmp_path / "paddle.png").stat().st_size > 10_000


def changes_of_the_readme_example() -> list[tuple[str, str, str]]:
    """Return what the table of changes in the documentation replaces, by what, and the objective that it states."""
    text = (ROOT / "docs" / "getting_started.md").read_text(encoding="utf-8")
    rows = re.search(r"\| to have \| change \| objective \|\n\|(?:---\|)+\n((?:\|.*\n)+)", text).group(1)
    return re.findall(r"\| `([^`]+)` to `([^`]+)` \| ([.\d]+), \w+ hits? \|", rows)


@pytest.mark.slow
@pytest.mark.parametrize("row", range(4))
def test_readme_changes_of_the_example(row, tmp_path):
    """Every proposed change fits the example and leads to a confirmed solution."""
    assert len(changes_of_the_readme_example()) == 4
    old, new, objective = changes_of_the_readme_example()[row]
    assert readme_example().count(old) == 1
    check = f"assert solution.certificate.confirmed and solution.objective < 1.01 * {objective}, solution.summary()"
    run(f"{readme_example().replace(old, new)}\n{check}", tmp_path)


def test_version_is_the_same_everywhere():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.ModelError, ValueError),
        (errors.OptionError, ValueError),
        (errors.TranscriptionError, ValueError),
        (errors.SolverError, RuntimeError),
        (errors.UnknownNameError, KeyError),
    ],
)
def test_errors_have_one_root_and_a_builtin_kind(error, builtin):
    assert issubclass(error, errors.NosnocError)
    assert issubclass(error, builtin)


def test_unknown_name_error_names_the_nearest():
    error = errors.UnknownNameError("v_z", ["v_x", "v_y", "thrust"], "state")
    assert str(error).startswith("unknown state 'v_z'. Did you mean 'v_")
    assert "thrust" in str(error)


class Example(Options):
    rk_stages: int = 2
    tolerance: float = 1e-8


def test_unknown_option_names_the_nearest_and_all_legal_ones():
    with pytest.raises(
        errors.OptionError, match=r"Example: unknown option 'rk_stage'. Did you mean 'rk_stages'\?"
    ) as info:
        Example(rk_stage=3)
    assert "tolerance" in str(info.value)


@pytest.mark.parametrize("bad", ["many", 2.5, None])
def test_ill_typed_option_says_what_was_given(bad):
    with pytest.raises(errors.OptionError, match=f"'rk_stages'.*given {bad!r}"):
        Example(rk_stages=bad)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_option_must_be_finite(bad):
    with pytest.raises(errors.OptionError, match="'tolerance'"):
        Example(tolerance=bad)


def test_options_are_frozen_and_replace_validates():
    options = Example(rk_stages=3)
    with pytest.raises(ValueError, match="frozen"):
        options.rk_stages = 4
    assert options.replace(tolerance=1e-6) == Example(rk_stages=3, tolerance=1e-6)
    assert options == Example(rk_stages=3)
    with pytest.raises(errors.OptionError, match="unknown option"):
        options.replace(rk_stage=1)


def test_the_quick_tier_looks_into_every_room():
    """A folder of tests without a quick one would be a room that `pytest -m quick` never enters."""
    folders = {path.parent for path in (ROOT / "tests").rglob("test_*.py")} - {ROOT / "tests" / "agreement"}
    quick = {path.parent for path in (ROOT / "tests").rglob("test_*.py") if "mark.quick" in path.read_text("utf-8")}
    assert folders - quick == set()
    # `-m quick` replaces the default `-m "not slow and not long"`.
    marked = [path for path in (ROOT / "tests").rglob("test_*.py") if "\npytestmark" in path.read_text("utf-8")]
    slow = re.compile(r"mark\.slow|import .*\b(slow_row|slow_but|every_pair|every_value)\b")
    assert not [path.name for path in marked if slow.search(path.read_text("utf-8"))]
