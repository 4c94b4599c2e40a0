"""Test of certificates with spoiled solutions: `python -m problems.benchmarks.spoiled_solutions`.

True solutions (optimised ones, and simulations and closed forms that stand in for optimised ones) have to be confirmed;
the same with one thing spoiled by more than the tolerance must never be, and has to be refuted. What is spoiled, and by
how much, is random: the control of a stage, a listed impulse, the time of an event, a state, the objective; or the
problem that the solution is said to solve has another restitution, friction, target or path constraint.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems.runner import Report, program, tabled
from problems.settings import Settings
from tests.references.spoiled_solutions import SPOILS, SYSTEMS

# Required shares: refuted of the spoiled, confirmed of the true, and at most undecided of either.
REFUTED = CONFIRMED = 0.95
UNDECIDED = 0.05


@dataclass(frozen=True, kw_only=True)
class Case:
    """One certificate: the system, what was spoiled ("" for a true solution), the verdict and its reason."""

    system: str
    spoil: str
    verdict: str
    reason: str


def cases(count: int, true: int, seed: int, callback: Callable[[Any], Any] = lambda state: None) -> list[Case]:
    """Return certificates of this many spoiled and true solutions, each of a random system."""
    random = np.random.default_rng(seed)
    drawn: list[Case] = []
    while sum(bool(case.spoil) for case in drawn) < count or sum(not case.spoil for case in drawn) < true:
        system = str(random.choice(list(SYSTEMS)))
        pair = SYSTEMS[system](random)
        if pair is None:
            continue
        if sum(not case.spoil for case in drawn) < true:
            drawn.append(_case(system, "", *pair))
        for spoil in random.permutation(list(SPOILS))[:3]:
            spoiled = SPOILS[str(spoil)](random, *pair)
            if spoiled is not None and sum(bool(case.spoil) for case in drawn) < count:
                drawn.append(_case(system, str(spoil), *spoiled))
        callback(drawn)
    return drawn


def _case(system: str, spoil: str, ocp: ns.OCP, solution: ns.Solution) -> Case:
    certificate = ns.certify(ocp, solution)
    return Case(system=system, spoil=spoil, verdict=certificate.verdict.value, reason=certificate.reason)


def share(group: list[Case], verdict: ns.Verdict) -> float:
    """Return the share of cases with a verdict; one if there are no cases."""
    return sum(case.verdict == verdict.value for case in group) / len(group) if group else 1.0


def reached(group: list[Case]) -> bool:
    """Check that no spoiled solution is confirmed, no true one refuted, and that few cases are undecided."""
    spoiled, true = [case for case in group if case.spoil], [case for case in group if not case.spoil]
    return (
        not any(case.verdict == ns.Verdict.CONFIRMED.value for case in spoiled)
        and not any(case.verdict == ns.Verdict.REFUTED.value for case in true)
        and share(spoiled, ns.Verdict.REFUTED) >= (REFUTED if spoiled else 0.0)
        and share(true, ns.Verdict.CONFIRMED) >= (CONFIRMED if true else 0.0)
        and (not spoiled or share(spoiled, ns.Verdict.UNDECIDED) <= UNDECIDED)
        and (not true or share(true, ns.Verdict.UNDECIDED) <= UNDECIDED)
    )


def run(settings: Settings, progress: Progress) -> Report:
    """Run the cases that the command line requests."""
    arguments = settings.arguments
    certified = cases(arguments["count"], arguments["true"], arguments["seed"])
    odd = [case for case in certified if case.verdict != _wanted(case)]
    results = {
        "spoiled": dict(Counter(case.verdict for case in certified if case.spoil)),
        "true": dict(Counter(case.verdict for case in certified if not case.spoil)),
        "by_spoil": _counted(certified, "spoil"),
        "by_system": _counted(certified, "system"),
        "odd": [vars(case) for case in odd],
    }
    tables = {f"verdicts by {by}": _rows(certified, by) for by in ("spoil", "system")}
    lines = [f"{case.system}, {case.spoil or 'true'}: {case.verdict}: {case.reason}" for case in odd]
    return tabled(results, reached(certified), tables, said=lines)


def _wanted(case: Case) -> str:
    return (ns.Verdict.REFUTED if case.spoil else ns.Verdict.CONFIRMED).value


def _counted(group: list[Case], by: str) -> dict[str, dict[str, int]]:
    keys = sorted({(getattr(case, by), bool(case.spoil)) for case in group})
    return {
        f"{key or 'nothing'} ({'spoiled' if spoiled else 'true'})": dict(
            Counter(case.verdict for case in group if getattr(case, by) == key and bool(case.spoil) == spoiled)
        )
        for key, spoiled in keys
    }


def _rows(group: list[Case], by: str) -> list[dict[str, Any]]:
    verdicts = sorted({case.verdict for case in group})
    counted = _counted(group, by)
    return [{by: name, **{v: counts.get(v, 0) for v in verdicts}} for name, counts in counted.items()]


PROGRAM = program(__name__, run, {"count": 500, "true": 200, "seed": 1}, quick={"count": 60, "true": 24})
