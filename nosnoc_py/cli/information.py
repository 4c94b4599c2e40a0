"""The command `info`: versions, solvers that are found, threads."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import casadi as ca

from nosnoc_py import __version__
from nosnoc_py.cli.benchmarks import WHAT_TO_DO, folder_of
from nosnoc_py.kernels import machine_code

REQUIRED = (
    "attrs",
    "casadi",
    "numpy",
    "scipy",
    "matplotlib",
    "pydantic",
    "rich",
    "typer",
    "ruamel.yaml",
    "qdldl",
    "threadpoolctl",
)
# Optional packages and the extra that installs each, as in pyproject.toml.
OPTIONAL = {
    "xarray": "data",
    "pandas": "data",
    "pyarrow": "data",
    "numba": "fast",
    "imageio-ffmpeg": "film",
    "distributed": "cluster",
    "jupyterlab": "notebooks",
    "mujoco": "bench",
    "viser": "viser",
}
LINEAR_SOLVERS = ("mumps", "ma27", "ma57", "ma77", "ma86", "ma97", "pardiso", "pardisomkl", "spral", "wsmp")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
PROBE = Path(__file__).with_name("probe.py")
TIMEOUT = 60.0  # s, for all probes together


def information() -> dict[str, Any]:
    """Return everything that `info` tells, as JSON takes it."""
    problems = folder_of("problems.runner")
    return {
        "nosnoc_py": __version__,
        "folder": str(Path(__file__).parents[1]),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version(name) for name in REQUIRED},
        "optional": {name: {"version": version(name), "extra": extra} for name, extra in OPTIONAL.items()},
        "solvers": solvers(),
        "compiled": {
            "compiler": machine_code.compiler(),
            "mode": machine_code.mode(),
            "code": str(machine_code.folder()),
        },
        "threads": {"cores": os.cpu_count(), **{name: os.environ.get(name) for name in THREADS}},
        "problems": None if problems is None else str(problems),
    }


def version(package: str) -> str | None:
    """Return the version of an installed package, None where it is absent."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def solvers() -> dict[str, dict[str, bool]]:
    """Return which plugins work, by kind: nlpsol, conic (QPs), linsol, and the linear solvers that IPOPT finds."""
    by_kind: dict[str, dict[str, bool]] = {}
    for plugin, works in probed([*plugins(), *(f"ipopt:{name}" for name in LINEAR_SOLVERS)]).items():
        kind, _, name = plugin.partition(":")
        by_kind.setdefault(kind, {})[name] = works
    return {kind: dict(sorted(names.items())) for kind, names in by_kind.items()}


def plugins() -> list[str]:
    """Return the solvers that CasADi was built to know, as KIND:NAME."""
    named = (text.split("::") for text in ca.CasadiMeta.plugins().split(";"))
    return [f"{kind.lower()}:{name}" for kind, name in named if kind in ("Nlpsol", "Conic", "Linsol")]


def probed(names: Iterable[str]) -> dict[str, bool]:
    """Try plugins in another process, which may crash: that one does not work, and the next process goes on."""
    left = list(names)
    answered: dict[str, bool] = {}
    while left:
        answers = _answers(left)
        answered |= answers or {left[0]: False}
        left = [name for name in left if name not in answered]
        if left and answers:
            answered[left.pop(0)] = False
    return answered


def _answers(names: list[str]) -> dict[str, bool]:
    try:
        command = [sys.executable, "-P", str(PROBE), *names]
        text = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False).stdout
    except subprocess.TimeoutExpired as error:
        text = (error.stdout or b"").decode()
    lines = (line.split() for line in text.splitlines() if line.startswith("probe "))
    return {name: answer == "True" for _, name, answer in lines}


def described(facts: dict[str, Any]) -> str:
    """Return the information as lines for people."""
    lines = [f"nosnoc_py {facts['nosnoc_py']} in {facts['folder']}"]
    lines += [f"Python {facts['python']} on {facts['platform']}", ""]
    lines += [f"{name:<16}{number or 'absent'}" for name, number in facts["packages"].items()]
    lines += [""]
    for name, state in facts["optional"].items():
        missing = f'absent; pip install "nosnoc_py[{state["extra"]}]"'
        lines.append(f"{name:<16}{state['version'] or missing}")
    lines += [""]
    titles = {"nlpsol": "NLP solvers", "conic": "QP solvers", "linsol": "linear", "ipopt": "IPOPT with"}
    for kind, title in titles.items():
        names = facts["solvers"].get(kind, {})
        lines.append(f"{title:<16}{', '.join(name for name, works in names.items() if works) or 'none'}")
    variables = ", ".join(f"{name}={value or 'unset'}" for name, value in facts["threads"].items() if name != "cores")
    lines += ["", f"{'cores':<16}{facts['threads']['cores']}; {variables}"]
    code = facts["compiled"]
    lines += [
        f"{'C compiler':<16}{code['compiler'] or 'absent'}; {machine_code.MODE}={code['mode']}; code in {code['code']}"
    ]
    lines += [f"{'problems':<16}{facts['problems'] or 'absent. ' + WHAT_TO_DO}"]
    return "\n".join(lines)
