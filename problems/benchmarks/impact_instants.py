"""Random impacts, compared with brute-force enumeration: `python -m problems.benchmarks.impact_instants`.

Every instant has 1 to 4 closed contacts, in the plane or in space, with or without friction; at least one of them
approaches, others separate or rest. There are no forces, normals and tangents are constant, so that the velocity jumps
at t = 0 and never again. The table compares the result of every method with all solutions of the impact law
(`tests.references.contact_oracle`).

Instants that are decided by rounding are left out. Those at which the law raises the kinetic energy have a table of
their own: there every method has to refuse. If the law has several solutions, an answer has to be one of them and
say that it is not unique. `--set only=17,35` selects single instants, `methods=newton,event` at some methods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

import nosnoc_py as ns
from nosnoc_py.contact_problems.law import raises_energy
from nosnoc_py.contact_problems.problem import impact_problem
from nosnoc_py.contact_problems.solver import Algorithm, ContactSolver
from nosnoc_py.errors import OptionError
from nosnoc_py.progress import Progress
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER
from problems.benchmarks.orders import check_names
from problems.runner import Report, program, tabled
from problems.settings import Settings
from tests.references.contact_oracle import Solutions, energy_gain
from tests.references.impact_instants import (
    CLASSES,
    CLOSE,
    INEXACT,
    RAISED,
    REFUSED,
    RIGHTLY,
    UNTOLD,
    VERDICTS,
    WRONG,
    Answer,
    Instant,
    instant,
    verdict,
)

DURATION = 0.01
METHOD = ns.FESDJ(control_stages=1, initial_impulse=True)
# A residual of the law as small as the differences that count; the default is larger.
TIME_STEPPING = ns.TimeStepping(tolerance=1e-12, max_sweeps=20000)
LEAST_MARGIN = 1e-6  # smallest margin of an instant that rounding does not decide
GAIN = 1e-9  # relative gain of kinetic energy that counts
UNIQUE, SEVERAL, NONE, LEFT_OUT = "unique", "several", "none", "left out"


# ------------------------------------------------------------------------------------------------------------ methods


Run = Callable[[Instant, Settings], Answer]


def _simulated(instant: Instant, node: int = -1, **options: Any) -> Answer:
    trajectory = ns.simulate(instant.system(), x0=instant.x0, duration=DURATION, **options)
    message = trajectory.message if trajectory.success else f"{trajectory.status}: {trajectory.message}"
    at = node if trajectory.success else -1
    return Answer(np.array(trajectory.x[at, instant.before.size :]), trajectory.success, message)


def _elements(instant: Instant, settings: Settings, *, as_mpcc: bool) -> Answer:
    solver = settings.solver if as_mpcc else None
    return _simulated(instant, method=settings.method, steps=1, solver=solver)


def _event(instant: Instant, _: Settings) -> Answer:
    return _simulated(instant, method=ns.EventDriven())


def _stepping(instant: Instant, _: Settings) -> Answer:
    """Return the velocity after its first step. It continues where its sweeps fail, which counts as a refusal."""
    residuals: list[float] = []
    answer = _simulated(
        instant, 1, method=TIME_STEPPING, steps=10, callback=lambda state: residuals.append(state.complementarity)
    )
    if residuals and residuals[0] > INEXACT:
        return replace(answer, success=False, said=f"the first step leaves {residuals[0]:.1e} m/s of the contact law")
    return answer


def _algorithm(algorithm: Algorithm, instant: Instant, _: Settings) -> Answer:
    """Solve by one algorithm of the contact problem, without simulation."""
    system = instant.system()
    frames, at = system.mechanics.frames, system.kinematics(instant.x0)
    solver, problem = ContactSolver(frames), impact_problem(frames, at, range(frames.count), 0.0)
    solution = solver.solve(problem, algorithm=algorithm)
    if solution is None:
        return Answer(instant.before, False, "no admissible impulses")
    v = instant.before + at.response @ solution.forces
    if raises_energy(solution.forces, at.rates, at.jacobian @ v):
        return Answer(v, False, "the kinetic energy rises")
    return Answer(v, True, "" if solver.is_unique(problem) else "not unique")


METHODS: Mapping[str, Run] = {
    "newton": partial(_elements, as_mpcc=False),
    "mpcc": partial(_elements, as_mpcc=True),
    "event": _event,
    "stepping": _stepping,
    "enumeration": partial(_algorithm, "enumeration"),
    "sweeps": partial(_algorithm, "sweeps"),
    "semismooth": partial(_algorithm, "newton"),
}


# --------------------------------------------------------------------------------------------------------- comparison


@dataclass(frozen=True, eq=False, kw_only=True)
class Row:
    """An instant, its solutions, what rounding leaves of them, and the verdicts on the methods.

    `gain` is the largest gain of kinetic energy of a solution, relative to the energy before.
    """

    given: Instant
    known: Solutions
    kind: str
    gain: float
    answers: Mapping[str, Answer] = field(default_factory=dict)
    verdicts: Mapping[str, str] = field(default_factory=dict)

    @property
    def gains(self) -> bool:
        """True if a solution gains energy."""
        return self.gain > GAIN

    def to_dict(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        fields = {
            name: {
                "verdict": self.verdicts[name],
                "velocity": None if self.verdicts[name] in (REFUSED, RIGHTLY, RAISED) else answer.velocity.tolist(),
                "said": answer.said,
            }
            for name, answer in self.answers.items()
        }
        return {
            "index": self.given.index,
            "class": self.given.label,
            "oracle": self.kind,
            "margin": self.known.margin,
            "energy_gain": self.gain,
            "solutions": [rates.tolist() for rates in self.known.rates],
            "methods": fields,
        }


def compare(instant: Instant, runs: Mapping[str, Run], settings: Settings, least_margin: float = LEAST_MARGIN) -> Row:
    """Compare all methods at an instant."""
    known = instant.solutions()
    energy = 0.5 * instant.before @ instant.mass @ instant.before
    gain = max((energy_gain(instant.mass, instant.before, v) / energy for v in known.rates), default=0.0)
    kind = (NONE, UNIQUE, SEVERAL)[min(len(known.rates), 2)]
    if known.margin < least_margin:
        return Row(given=instant, known=known, kind=LEFT_OUT, gain=gain)
    answers = {name: _answer(run, instant, settings) for name, run in runs.items()}
    lossy = [v for v in known.rates if energy_gain(instant.mass, instant.before, v) <= GAIN * energy]
    verdicts = {name: verdict(answer, lossy, len(known.rates)) for name, answer in answers.items()}
    return Row(given=instant, known=known, kind=kind, gain=gain, answers=answers, verdicts=verdicts)


def _answer(run: Run, instant: Instant, settings: Settings) -> Answer:
    try:
        return run(instant, settings)
    except Exception as error:  # an exception is a result, too, and must not lose the table
        return Answer(np.full_like(instant.before, np.nan), False, f"{RAISED}: {type(error).__name__}: {error}")


def experiment(
    count: int = 2000,
    seed: int = 0,
    only: tuple[int, ...] = (),
    methods: tuple[str, ...] = tuple(METHODS),
    least_margin: float = LEAST_MARGIN,
    *,
    settings: Settings,
    progress: Progress,
) -> tuple[Row, ...]:
    """Compare the methods at `count` instants.

    Parameters
    ----------
    count, seed : int
    only : tuple of int
        Indices of instants, in place of the first `count` ones.
    methods : tuple of str
    least_margin : float
        Instants with a smaller one are left out.
    """
    if count < 1:
        raise OptionError(f"count: expected a positive number of instants, given {count}.")
    check_names(method=(methods, METHODS))
    rows = []
    for index in only or range(count):
        progress.describe(f"instant {index}")
        rows.append(compare(instant(seed, index), {name: METHODS[name] for name in methods}, settings, least_margin))
    return tuple(rows)


def run(settings: Settings, progress: Progress) -> Report:
    """Compare; the exit code is 1 if a method is wrong anywhere. Refusals are counted, but do not matter."""
    rows = experiment(**settings.arguments, settings=settings, progress=progress)
    verdicts = [verdict for row in rows for verdict in row.verdicts.values()]
    success = not {WRONG, RAISED, UNTOLD} & set(verdicts)
    results = {
        "status": (ns.Status.SOLVED if success else ns.Status.STEP_FAILED).value,
        "oracle": dict(Counter(row.kind for row in rows)),
        "energy_gains": sum(row.gains for row in rows),
        "methods": {name: dict(_count(rows, name)) for name in settings.arguments["methods"]},
        "instants": [row.to_dict() for row in rows],
    }
    ordered = sorted(rows, key=lambda row: row.given.index % len(CLASSES))
    labels = [*dict.fromkeys(row.given.label for row in ordered), "all"]
    groups = {label: [row for row in rows if label in (row.given.label, "all")] for label in labels}
    kinds = (UNIQUE, SEVERAL, NONE, LEFT_OUT)
    known = [{"class": label, **_times([row.kind for row in each], kinds)} for label, each in groups.items()]
    only = bool(settings.arguments["only"])
    return tabled(
        results,
        success,
        {
            "solutions of the impact law": known,
            "methods, where no energy is gained": _counted(groups, settings.arguments["methods"], gains=False),
            "methods, where energy is gained": _counted(groups, settings.arguments["methods"], gains=True),
        },
        said=[
            _told(row, name)
            for row in rows
            for name, verdict in row.verdicts.items()
            if verdict in (WRONG, RAISED) or (only and verdict in (REFUSED, CLOSE))
        ],
    )


def _count(rows: Sequence[Row], method: str) -> Counter[str]:
    return Counter(row.verdicts[method] for row in rows if method in row.verdicts)


def _times(verdicts: Sequence[str], words: Sequence[str]) -> dict[str, Any]:
    """Return how often every verdict occurred."""
    count = Counter(verdicts)
    return {word: count[word] or None for word in words}


def _counted(groups: Mapping[str, Sequence[Row]], methods: Sequence[str], *, gains: bool) -> list[dict[str, Any]]:
    """Return rows with the verdicts on every method, class by class, with or without gains of energy."""
    counts = {
        (label, name): [row.verdicts[name] for row in rows if row.gains == gains and name in row.verdicts]
        for label, rows in groups.items()
        for name in methods
    }
    return [{"class": key[0], "method": key[1], **_times(each, VERDICTS)} for key, each in counts.items() if each]


def _told(row: Row, name: str) -> str:
    answer = row.answers[name]
    right = ", ".join(map(str, row.known.rates)) or "none"
    text = answer.said or f"v+ = {answer.velocity}"
    return f"{row.given.index} ({row.given.label}): {name} {row.verdicts[name]}: {text}; solutions: {right}"


PROGRAM = program(
    __name__,
    run,
    experiment,
    quick={"count": 32},
    method=METHOD,
    solver=SIMULATION_SOLVER,
    fixed=("control_stages", "initial_impulse"),
)
