"""Random impact instants, judged by brute force: `python -m problems.benchmarks.impact_instants`.

Every instant has 1 to 4 closed contacts, in the plane or in space, with or without friction; at least one of them
approaches, others separate or rest. There are no forces, normals and tangents are constant, so that the velocity jumps
at t = 0 and never again. The table compares what every method makes of it with all solutions of the impact law
(`tests.references.contact_oracle`).

Instants that are decided by rounding are left out. Those at which the law raises the kinetic energy have a table of
their own: there every method has to refuse. Where the law has several solutions, an answer has to be one of them and
say that it is not the only one. `--set only=17,35` looks at single instants, `methods=newton,event` at some methods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import casadi as ca
import numpy as np
from rich.console import Console
from rich.markup import escape

import nosnoc_py as ns
from nosnoc_py.contacts.law import raises_energy
from nosnoc_py.contacts.problem import impact_problem
from nosnoc_py.contacts.solver import Algorithm, ContactSolver
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.progress import Progress
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER
from problems.runner import Report, program, table
from problems.settings import Settings
from tests.references.contact_oracle import Solutions, energy_gain, impact

DURATION = 0.01
METHOD = ns.FESDJ(initial_impulse=True)
# A residual of the law as small as the differences that are looked at, which the default is not.
TIME_STEPPING = ns.TimeStepping(tolerance=1e-12, max_sweeps=20000)
LEAST_MARGIN = 1e-6  # of an instant that rounding does not decide
AGREED, INEXACT = 1e-8, 1e-5  # differences of velocities, relative to those above 1
GAIN = 1e-9  # of kinetic energy, relative, that counts
SLOWEST = 0.02  # approach or separation, unless at rest; rest velocities are 1e-3
FASTEST = 0.1  # approach of one contact at least
UNIQUE, SEVERAL, NONE, LEFT_OUT = "unique", "several", "none", "left out"
AGREE, MEMBER, RIGHTLY, CLOSE = "agree", "one of several", "rightly refused", "inexact"
UNTOLD = "untold"  # one of several solutions, as if it were the only one
REFUSED, WRONG, RAISED = "refused", "WRONG", "RAISED"
VERDICTS = (AGREE, MEMBER, UNTOLD, RIGHTLY, CLOSE, REFUSED, WRONG, RAISED)
CLASSES = tuple((n_t, friction, count) for n_t in (1, 2) for friction in (False, True) for count in (1, 2, 3, 4))


@dataclass(frozen=True, eq=False, kw_only=True)
class Instant:
    """An impact with k closed contacts.

    Parameters
    ----------
    index : int
    spatial : bool
    mass : (n_q, n_q)
    before : (n_q,)
        Velocities v- before the impact.
    normals : k of (n_q,)
    tangents : k of (n_q, n_t)
        Without columns where there is no friction.
    friction : k of n_t coefficients
    restitution : k numbers
    """

    index: int
    spatial: bool
    mass: np.ndarray
    before: np.ndarray
    normals: tuple[np.ndarray, ...]
    tangents: tuple[np.ndarray, ...]
    friction: tuple[tuple[float, ...], ...]
    restitution: tuple[float, ...]

    @property
    def label(self) -> str:
        """Its class."""
        friction = "friction" if any(map(any, self.friction)) else "no friction"
        return f"{'space' if self.spatial else 'plane'}, {friction}, {len(self.normals)}"

    @property
    def x0(self) -> np.ndarray:
        """State before the impact, all gaps closed."""
        return np.concatenate([np.zeros_like(self.before), self.before])

    def solutions(self) -> Solutions:
        """All velocities after the impact."""
        return impact(self.mass, self.before, self.normals, self.tangents, self.friction, self.restitution)

    def system(self) -> ns.CLS:
        """The same as a system: gaps n'q, no forces."""
        q, v = ca.SX.sym("q", self.before.size), ca.SX.sym("v", self.before.size)
        contacts = [
            ns.Contact(
                f"c{i}",
                gap=ca.dot(ca.DM(normal), q),
                tangent=ca.DM(tangent) if mu else None,
                friction=mu or 0.0,
                restitution=e,
            )
            for i, (normal, tangent, mu, e) in enumerate(
                zip(self.normals, self.tangents, self.friction, self.restitution, strict=True)
            )
        ]
        return ns.CLS(q=q, v=v, mass_matrix=ca.DM(self.mass), force=ca.DM.zeros(self.before.size), contacts=contacts)


# -------------------------------------------------------------------------------------------------------- random ones


def instant(seed: int, index: int) -> Instant:
    """Return a random instant; the class goes round with the index."""
    rng = np.random.default_rng([seed, index])
    n_t, frictional, count = CLASSES[index % len(CLASSES)]
    mass, frames = (_any if rng.random() < 0.4 else _bodies)(rng, n_t, count)
    rubs = frictional & ((rng.random(count) < 0.8) | (np.arange(count) == rng.integers(count)))
    normals = tuple(frame[:, 0] for frame in frames)
    return Instant(
        index=index,
        spatial=n_t == 2,
        mass=mass,
        before=_velocity(rng, np.array(normals)),
        normals=normals,
        tangents=tuple(frame[:, 1:] if rub else frame[:, :0] for frame, rub in zip(frames, rubs, strict=True)),
        friction=tuple(_coefficients(rng, n_t) if rub else () for rub in rubs),
        restitution=_restitution(rng, count),
    )


def _any(rng: np.random.Generator, n_t: int, count: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Any mass matrix and frames (n, t): redundant where there are more directions than coordinates."""
    most = count * (1 + n_t) if rng.random() < 0.5 else max(count, 1 + n_t)
    n_q = int(rng.integers(1 + n_t, most + 2))
    frames = [frame / np.linalg.norm(frame, axis=0) for frame in rng.normal(size=(count, n_q, 1 + n_t))]
    return _definite(rng, n_q), [frame * rng.uniform(0.5, 1.5, 1 + n_t) for frame in frames]


def _bodies(rng: np.random.Generator, n_t: int, count: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """One or two rigid bodies that touch the surroundings or each other: any points and normals, or a flat ground."""
    size, number, flat = 1 + n_t, int(rng.integers(1, 3)), rng.random() < 0.3
    n_q = 3 * n_t  # of one body: 3 in the plane, 6 in space
    mass = np.zeros((number * n_q, number * n_q))
    for body in range(number):
        linear = np.arange(body * n_q, body * n_q + size)
        angular = np.arange(body * n_q + size, (body + 1) * n_q)
        mass[linear, linear] = rng.uniform(0.5, 3.0)
        mass[np.ix_(angular, angular)] = 0.2 * _definite(rng, angular.size)
    ground, frames = _axes(rng, size), []
    for _ in range(count):
        axes, bodies = (ground if flat else _axes(rng, size)), rng.permutation(number)[: rng.integers(1, 3)]
        frame = np.zeros((number * n_q, size))
        for sign, body in zip((1.0, -1.0), bodies, strict=False):
            arm = rng.uniform(-1.0, 1.0, size)
            if flat:
                arm += (-0.5 - arm @ axes[:, 0]) * axes[:, 0]  # corners of one face
            moments = np.atleast_2d(np.cross(arm, axes.T)).reshape(size, -1).T if size == 3 else _moment(arm, axes)
            frame[body * n_q : (body + 1) * n_q] = sign * np.vstack([axes, moments])
        frames.append(frame)
    return mass, frames


def _moment(arm: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """Moments of forces along the axes in the plane (1, 2)."""
    return np.asarray(arm[0] * axes[1:] - arm[1] * axes[:1])


def _axes(rng: np.random.Generator, size: int) -> np.ndarray:
    """A random orthonormal basis."""
    return np.linalg.qr(rng.normal(size=(size, size)))[0]


def _definite(rng: np.random.Generator, size: int) -> np.ndarray:
    """A random symmetric matrix with eigenvalues from .3 to 3."""
    axes = _axes(rng, size)
    return axes * rng.uniform(0.3, 3.0, size) @ axes.T


def _velocity(rng: np.random.Generator, normals: np.ndarray) -> np.ndarray:
    """Velocities with which a contact approaches, with luck others separate or rest, and none is nearly at rest."""
    parts, rests = rng.random() < 0.7, rng.random() < 0.25 and len(normals) > 1
    resting = int(rng.integers(1, len(normals))) if rests else -1
    found: list[np.ndarray] = []
    for attempt in range(200):
        v: np.ndarray = rng.normal(size=(normals.shape[1],))
        looked = np.ones(len(normals), dtype=bool)
        if rests and attempt < 100:  # later not: the normals may leave no such velocity
            v -= normals[resting] * (normals[resting] @ v) / (normals[resting] @ normals[resting])
            looked[resting] = False
        rates = normals @ v
        if rates.min() <= -FASTEST and np.abs(rates[looked]).min(initial=np.inf) >= SLOWEST:
            found.append(v)
            if len(normals) == 1 or not parts or rates.max() >= SLOWEST:
                break
    return found[-1]


def _coefficients(rng: np.random.Generator, n_t: int) -> tuple[float, ...]:
    """Friction, in one case of four strong enough to jam, in one of four anisotropic where it can be."""
    most = 3.0 if rng.random() < 0.25 else 1.2
    different = rng.uniform(0.1, most, n_t)
    return tuple(float(mu) for mu in (different if rng.random() < 0.25 else different[:1].repeat(n_t)))


def _restitution(rng: np.random.Generator, count: int) -> tuple[float, ...]:
    """All 0, all 1, one number for all, or different ones."""
    kind = rng.integers(4)
    if kind < 2:
        return (float(kind),) * count
    if kind == 2:
        return (float(rng.uniform()),) * count
    return tuple(float(e) for e in rng.choice([0.0, rng.uniform(), rng.uniform(), 1.0], count))


# ------------------------------------------------------------------------------------------------------------ methods


@dataclass(frozen=True, eq=False)
class Answer:
    """What a method makes of an instant: v+ where it has one, and what it said."""

    velocity: np.ndarray
    success: bool
    said: str = ""


Run = Callable[[Instant, Settings], Answer]


def _simulated(given: Instant, node: int = -1, **options: Any) -> Answer:
    found = ns.simulate(given.system(), x0=given.x0, duration=DURATION, **options)
    said = found.message if found.success else f"{found.status}: {found.message}"
    at = node if found.success else -1
    return Answer(np.array(found.x[at, given.before.size :]), found.success, said)


def _newton(given: Instant, settings: Settings) -> Answer:
    return _simulated(given, method=settings.method, steps=1)


def _mpcc(given: Instant, settings: Settings) -> Answer:
    return _simulated(given, method=settings.method, steps=1, solver=settings.solver)


def _event(given: Instant, _: Settings) -> Answer:
    return _simulated(given, method=ns.EventDriven())


def _stepping(given: Instant, _: Settings) -> Answer:
    """After its first step; the next ones correct gaps. It goes on where its sweeps fail, which counts as a refusal."""
    residuals: list[float] = []
    found = _simulated(
        given, 1, method=TIME_STEPPING, steps=10, callback=lambda state: residuals.append(state.complementarity)
    )
    if residuals and residuals[0] > INEXACT:
        return replace(found, success=False, said=f"the first step leaves {residuals[0]:.1e} m/s of the contact law")
    return found


def _algorithm(algorithm: Algorithm, given: Instant, _: Settings) -> Answer:
    """One algorithm of the contact problem, without any simulation."""
    system = given.system()
    frames, at = system.mechanics.frames, system.kinematics(given.x0)
    solver, problem = ContactSolver(frames), impact_problem(frames, at, range(frames.count), 0.0)
    found = solver.solve(problem, algorithm=algorithm)
    if found is None:
        return Answer(given.before, False, "no admissible impulses")
    v = given.before + at.response @ found.forces
    if raises_energy(found.forces, at.rates, at.jacobian @ v):
        return Answer(v, False, "the kinetic energy rises")
    return Answer(v, True, "" if solver.is_unique(problem) else "not unique")


METHODS: Mapping[str, Run] = {
    "newton": _newton,
    "mpcc": _mpcc,
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
        """Whether a solution gains energy."""
        return self.gain > GAIN

    def to_dict(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        told = {
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
            "methods": told,
        }


def compare(given: Instant, runs: Mapping[str, Run], settings: Settings, least_margin: float = LEAST_MARGIN) -> Row:
    """Let every method simulate an instant."""
    known = given.solutions()
    energy = 0.5 * given.before @ given.mass @ given.before
    gain = max((energy_gain(given.mass, given.before, v) / energy for v in known.rates), default=0.0)
    kind = (NONE, UNIQUE, SEVERAL)[min(len(known.rates), 2)]
    if known.margin < least_margin:
        return Row(given=given, known=known, kind=LEFT_OUT, gain=gain)
    answers = {name: _answer(run, given, settings) for name, run in runs.items()}
    lossy = [v for v in known.rates if energy_gain(given.mass, given.before, v) <= GAIN * energy]
    verdicts = {name: verdict(answer, lossy, len(known.rates)) for name, answer in answers.items()}
    return Row(given=given, known=known, kind=kind, gain=gain, answers=answers, verdicts=verdicts)


def _answer(run: Run, given: Instant, settings: Settings) -> Answer:
    try:
        return run(given, settings)
    except Exception as error:  # an exception is a finding like any other, and no reason to lose the table
        return Answer(np.full_like(given.before, np.nan), False, f"{RAISED}: {type(error).__name__}: {error}")


def verdict(answer: Answer, rates: Sequence[np.ndarray], solutions: int) -> str:
    """What an answer is worth, given all solutions that gain no energy, and how many there are with those that do."""
    if answer.said.startswith(RAISED):
        return RAISED
    if not answer.success:
        return REFUSED if rates else RIGHTLY
    error = min((np.abs(answer.velocity - v).max() / max(1.0, np.abs(v).max()) for v in rates), default=np.inf)
    if error <= AGREED:
        return AGREE if solutions == 1 else MEMBER if "not unique" in answer.said else UNTOLD
    return CLOSE if error <= INEXACT else WRONG


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
    for name in methods:
        if name not in METHODS:
            raise OptionError(unknown_name(name, METHODS, "method"))
    rows = []
    for index in only or range(count):
        progress.describe(f"instant {index}")
        rows.append(compare(instant(seed, index), {name: METHODS[name] for name in methods}, settings, least_margin))
    return tuple(rows)


def run(settings: Settings, progress: Progress) -> Report:
    """Compare; the exit code tells whether a method is wrong anywhere, refusals are counted and decide nothing."""
    rows = experiment(**settings.arguments, settings=settings, progress=progress)
    judged = [verdict for row in rows for verdict in row.verdicts.values()]
    success = not {WRONG, RAISED, UNTOLD} & set(judged)
    results = {
        "status": (ns.Status.SOLVED if success else ns.Status.STEP_FAILED).value,
        **dict.fromkeys(("objective", "complementarity", "infeasibility", "iterations", "wall_seconds")),
        "events": None,
        "final_state": None,
        "oracle": dict(Counter(row.kind for row in rows)),
        "energy_gains": sum(row.gains for row in rows),
        "methods": {name: dict(_count(rows, name)) for name in settings.arguments["methods"]},
        "instants": [row.to_dict() for row in rows],
    }
    return Report(results=results, success=success, show=lambda console: _show(console, rows, settings.arguments))


def _count(rows: Sequence[Row], method: str) -> Counter[str]:
    return Counter(row.verdicts[method] for row in rows if method in row.verdicts)


def _show(console: Console, rows: Sequence[Row], arguments: Mapping[str, Any]) -> None:
    methods, kinds = arguments["methods"], (UNIQUE, SEVERAL, NONE, LEFT_OUT)
    made = table("class", *kinds, "energy gain", title="solutions of the impact law")
    labels = [*dict.fromkeys(row.given.label for row in sorted(rows, key=lambda row: row.given.index % len(CLASSES)))]
    for label in [*labels, "all"]:
        chosen = [row for row in rows if label in (row.given.label, "all")]
        count = Counter(row.kind for row in chosen)
        made.add_row(label, *(str(count[kind] or "-") for kind in kinds), str(sum(r.gains for r in chosen) or "-"))
    console.print(made)
    for gains, title in ((False, "methods, where no energy is gained"), (True, "methods, where energy is gained")):
        _show_methods(console, [row for row in rows if row.gains == gains], [*labels, "all"], methods, title)
    for row in rows:
        for name, verdict in row.verdicts.items():
            if verdict in (WRONG, RAISED, REFUSED, CLOSE) and (arguments["only"] or verdict in (WRONG, RAISED)):
                _show_answer(console, row, name)


def _show_methods(
    console: Console, rows: Sequence[Row], labels: Sequence[str], methods: Sequence[str], title: str
) -> None:
    made = table("class", "method", *VERDICTS, title=title)
    for label in labels:
        chosen = [row for row in rows if label in (row.given.label, "all")]
        for name in methods:
            count = _count(chosen, name)
            if count:
                made.add_row(label, name, *(str(count[verdict] or "-") for verdict in VERDICTS))
    if made.rows:
        console.print(made)


def _show_answer(console: Console, row: Row, name: str) -> None:
    with np.printoptions(precision=9, suppress=True, linewidth=200):
        answer = row.answers[name]
        told = answer.said or f"v+ = {answer.velocity}"
        right = ", ".join(map(str, row.known.rates)) or "none"
        text = f"{row.given.index} ({row.given.label}): {name} {row.verdicts[name]}: {told}; solutions: {right}"
    console.print(escape(text))


PROGRAM = program(
    __name__,
    run,
    experiment,
    quick={"count": 32},
    method=METHOD,
    solver=SIMULATION_SOLVER,
    fixed=("control_stages", "initial_impulse"),
)
