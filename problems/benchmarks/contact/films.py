"""Films of the contact problems: `python -m problems.benchmarks.contact.films --set names=push_t, output=DIR`.

Each problem is solved by `ns.solve(ocp)` alone. A film is written even if the motion is not confirmed; its caption then
says so. `docs/contact.md` shows some of the films.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems.benchmarks.contact import NAMES, posed
from problems.benchmarks.contact.methods import plain_call
from problems.benchmarks.orders import check_names
from problems.gallery import filmed
from problems.runner import Report, program, tabled
from problems.settings import Settings

LEAST = 2.0  # seconds that a film lasts at least; shorter motions are shown slower
FRAMES, RATES = 40, (8, 20)  # of a film, unless that needs fewer or more frames per second: about 100 kB
QUICK = ("push_t",)


def film(name: str, path: str | Path, time_limit: float = 60.0) -> ns.Solution:
    """Solve a problem by the default call, write a film of the solution, and return the solution.

    Parameters
    ----------
    name : str
        One of `NAMES`.
    path : str or Path
        A file as of `ns.animate`.
    time_limit : float
        For the solution [s].
    """
    problem = posed(name)
    ocp = problem.build()
    solution = plain_call(problem, ocp, time_limit)
    length = max(LEAST, solution.duration)
    rate = round(min(max(FRAMES / length, RATES[0]), RATES[1]))
    ns.animate(ocp.system, solution, path, speed=solution.duration / length, frames_per_second=rate)
    return solution


def caption(name: str, solution: ns.Solution) -> str:
    """Return the line under a film: title, objective, and whether the motion is confirmed."""
    certificate = solution.certificate
    confirmed = certificate is not None and certificate.confirmed
    verdict = "confirmed" if confirmed else f"not confirmed ({solution.status.value})"
    return f"{posed(name).title}: objective {solution.objective:.4g}, {verdict}"


def experiment(
    *, names: Sequence[str] = (), output: str = "docs/images/contact", time_limit: float = 60.0
) -> list[dict[str, object]]:
    """Make the films and return a row for each.

    Parameters
    ----------
    names : tuple of str
        Of problems, by default all.
    output : str
        A folder.
    time_limit : float
        For each problem [s].

    Raises
    ------
    OptionError
        For an unknown name.
    """
    check_names(names=(names, NAMES))
    folder, rows = Path(output), []
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or NAMES:
        solution, row = filmed(partial(film, name, time_limit=time_limit), folder / f"{name}.gif")
        rows.append({"caption": caption(name, solution), **row})
    return rows


def run(settings: Settings, progress: Progress) -> Report:
    """Make the films and report."""
    started = time.monotonic()
    rows = experiment(**settings.arguments)
    return tabled({"films": rows, "wall_seconds": time.monotonic() - started}, True, {"films": rows})


PROGRAM = program(__name__, run, experiment, quick={"names": QUICK})
