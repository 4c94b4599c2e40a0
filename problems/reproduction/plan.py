"""The runs of the reproduction: tasks for `nosnoc_py.sweep`, with keys that identify finished runs."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nosnoc_py.options import Options
from nosnoc_py.sweep.store import library_version
from nosnoc_py.sweep.tasks import Task
from problems.reproduction.records import Experiment, Paper
from problems.reproduction.work import program_of, tuples

FUNCTION = "problems.reproduction.work:run"
ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, eq=False, kw_only=True)
class Run:
    """Experiment with its settings.

    Parameters
    ----------
    paper : Paper
    experiment : Experiment
    changes : mapping
        Changes of the problem's settings.
    key : str
        Empty where a package is missing.
    missing : tuple of str
        Packages.
    timeout : float
        Time limit [s].
    """

    paper: Paper
    experiment: Experiment
    changes: Mapping[str, Any]
    key: str
    missing: tuple[str, ...]
    timeout: float

    @property
    def command(self) -> str:
        """Command that does the same in a terminal."""
        changes = " ".join(f"{name}={_written(value)}" for name, value in self.changes.items())
        return f"python -m problems.{self.experiment.module}" + (f" --set {changes}" if changes else "")

    @property
    def task(self) -> Task:
        """Return a task that runs in a process of its own."""
        return Task(
            key=self.key,
            function=FUNCTION,
            arguments={"module": self.experiment.module, "settings": dict(self.changes)},
            paths=(str(ROOT),),
            timeout=self.timeout,
        )


def runs(papers: Iterable[Paper], quick: bool = False) -> tuple[Run, ...]:
    """Return all experiments of papers."""
    return tuple(_run(paper, experiment, quick) for paper in papers for experiment in paper.experiments)


def tasks(planned: Iterable[Run], workers: int = 1) -> tuple[Task, ...]:
    """Return the tasks that can be run, once each.

    One process begins with short tasks, so that the report soon has many rows; several processes begin with long tasks,
    so that they end together.
    """
    work = {run.key: run.task for run in planned if not run.missing}
    return tuple(sorted(work.values(), key=lambda task: task.timeout or 0.0, reverse=workers > 1))


def _run(paper: Paper, experiment: Experiment, quick: bool) -> Run:
    missing = absent(experiment.needs)
    changes = {} if missing else changes_of(experiment, quick)
    return Run(
        paper=paper,
        experiment=experiment,
        changes=changes,
        key="" if missing else key_of(paper.name, experiment, changes),
        missing=missing,
        timeout=experiment.quick_timeout if quick else experiment.timeout,
    )


def absent(packages: Iterable[str]) -> tuple[str, ...]:
    """Return the packages that are not installed."""
    return tuple(name for name in packages if importlib.util.find_spec(name) is None)


def changes_of(experiment: Experiment, quick: bool) -> dict[str, Any]:
    """Return the changed settings of the problem."""
    if not quick:
        return dict(experiment.settings)
    if experiment.quick is not None:
        return dict(experiment.quick)
    return {**experiment.settings, **program_of(experiment.module).quick}


def key_of(paper: str, experiment: Experiment, changes: Mapping[str, Any]) -> str:
    """Return paper, name, and a hash of the problem with all of its settings and of the version of the library.

    Raises
    ------
    OptionError
        For settings that the problem does not take.
    """
    settings = program_of(experiment.module).settings.changed(tuples(changes))
    identity = {
        "module": experiment.module,
        "version": library_version(),
        "method": _options(settings.method),
        "solver": _options(settings.solver),
        "arguments": {name: repr(value) for name, value in settings.arguments.items()},
    }
    digest = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    return f"{paper}-{experiment.name}-{digest}"


def _options(value: Options) -> list[Any]:
    """Return name and all options with their defaults: a changed default is another run."""
    return [type(value).__name__, json.loads(json.dumps(value.model_dump(), default=repr))]


def _written(value: Any) -> str:
    """Return a value as it is typed after `--set`."""
    if isinstance(value, (tuple, list)):
        text = ",".join(map(_written, value)) + ("," if len(value) == 1 else "")
    elif isinstance(value, (bool, type(None))):
        text = str(value).lower()
    else:
        text = str(value)
    return f'"{text}"' if " " in text else text
