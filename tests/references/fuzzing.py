"""Verdicts on random scenes: what `ns.simulate(system, x0=..., duration=...)` makes of them, against an oracle."""

from __future__ import annotations

import contextlib
import inspect
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import casadi as ca
import numpy as np
from attrs import evolve

import nosnoc_py as ns
from tests.references.contact_oracle import energy_gain, impact
from tests.references.event_oracle import (
    CLOSED,
    COARSE,
    FINE,
    MOST_CLOSED,
    Contacts,
    Filippov,
    GainsEnergy,
    Modes,
    NoMotion,
    NoOracle,
    motion,
)
from tests.references.fuzz_scenes import Scene, bodies, calls, coupled, filippov, friction, shapes, timed, wrong_things

RIGHT, RESTS = "right", "right by rest_velocity"
WRONG, HONEST, RAISED, HANG = "WRONG", "honest failure", "EXCEPTION", "HANG"
# Honest failures of which the oracle says the same: no simulator has a motion there.
GAINS, NO_MOTION = "the law gains energy", "rigid bodies have no motion"
NO_ORACLE, SENSITIVE, NOTHING = "no oracle", "sensitive", "nothing touches"
CLEAR, SIGNATURE, RAW, ACCEPTED = "clear error", "signature error", "RAW EXCEPTION", "accepted"
BAD = (WRONG, RAISED, HANG, RAW)
SCENES = {
    "bodies": bodies,
    "filippov": filippov,
    "coupled": coupled,
    "timed": timed,
    "friction": friction,
    "shapes": shapes,
}
KINDS = {
    "bodies": (RIGHT, RESTS, WRONG, HONEST, GAINS, NO_MOTION, RAISED, HANG, NO_ORACLE, SENSITIVE, NOTHING),
    "filippov": (RIGHT, WRONG, HONEST, RAISED, HANG, NO_ORACLE, SENSITIVE, NOTHING),
    "inputs": (CLEAR, SIGNATURE, RAW, ACCEPTED, HANG),
    "coupled": (RIGHT, RESTS, WRONG, HONEST, GAINS, NO_MOTION, RAISED, HANG, NO_ORACLE, SENSITIVE, NOTHING),
    "timed": (RIGHT, RESTS, WRONG, HONEST, GAINS, NO_MOTION, RAISED, HANG, NO_ORACLE, SENSITIVE, NOTHING),
    "friction": (RIGHT, RESTS, WRONG, HONEST, GAINS, NO_MOTION, RAISED, HANG, NO_ORACLE, SENSITIVE, NOTHING),
    "shapes": (RIGHT, WRONG, HONEST, GAINS, RAISED, HANG, NO_ORACLE, SENSITIVE, NOTHING),
}
TOLERANCE = 1e-6  # of the state at the end, relative to the magnitudes of the motion
FACTOR = 10.0
SLOW = 1e-3  # a rest velocity, in lengths per time of a scene
NUDGE = 1e-9  # of x0, relative
MOST_SENSITIVE = 1e6
REMEDIES = 12  # rounds of following what messages advise
STEPS = (4e-3, 2e-3, 1e-3)  # of the first-order oracle of shapes, in times of a scene
FINER = (5e-4, 2.5e-4)  # the same, where the oracle contradicts: three steps may agree by chance
LARGE, DEEP = 0.03, 1e-7  # error of that oracle up to which it tells, relative; and a penetration, in lengths
SECONDS = 60.0  # of a processor for the simulation, which may have thousands of events
SECONDS_ORACLE = 80.0  # for all motions of the oracle

Simulate = Callable[..., Any]


class TimeUp(BaseException):
    """Not an `Exception`, so that nothing on the way takes it for one."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `TimeUp` after so much time of the processor, where the system has a signal for that."""
    if not hasattr(signal, "SIGVTALRM") or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: Any) -> None:
        raise TimeUp

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


def judge(kind: str, seed: int, index: int, simulate: Simulate = ns.simulate) -> dict[str, Any]:
    """The verdict on a scene, or on a wrong input, and what led to it; "said" is the message or the oracle's reason."""
    began, rng = time.process_time(), np.random.default_rng([seed, list(KINDS).index(kind), index])
    found = _input(rng) if kind == "inputs" else _scene(kind, SCENES[kind](rng), rng, simulate)
    return {"kind": kind, "seed": seed, "index": index, **found, "cpu_seconds": round(time.process_time() - began, 2)}


def _scene(kind: str, scene: Scene, rng: np.random.Generator, simulate: Simulate) -> dict[str, Any]:
    system, x0 = scene.simulated
    try:
        with limited(SECONDS):
            found = simulate(system, x0=x0, duration=scene.duration)
    except TimeUp:
        return {"verdict": HANG, "said": ""}
    except Exception as error:  # an exception is a finding like any other
        return {"verdict": RAISED, "said": f"{type(error).__name__}: {error}"}
    if not found.success:
        verdict = _confirmed(kind, scene, found)
        said = f"{found.status}: {found.message}"
        remedy = scene.gap is None and _remedied(scene, found, simulate)
        return {"verdict": verdict, "said": said, "remedy": remedy}
    try:
        with limited(SECONDS_ORACLE):
            if scene.gap is not None:
                return _stepped(scene, found)
            return _compared(kind, scene, rng, scene.told(np.asarray(found.final_state)), simulate)
    except NoOracle as reason:
        return {"verdict": NO_ORACLE, "said": str(reason)}
    except TimeUp:
        return {"verdict": NO_ORACLE, "said": "slow"}


def _confirmed(kind: str, scene: Scene, found: Any) -> str:
    """The verdict on a failure: whether the oracle fails as well at the state where the motion ends."""
    if scene.gap is not None:
        gains = found.status is ns.Status.ENERGY_GAIN and _gains(scene, np.asarray(found.final_state))
        return GAINS if gains else HONEST
    confirmed = {ns.Status.ENERGY_GAIN: GAINS, ns.Status.PAINLEVE: NO_MOTION, ns.Status.NO_ADMISSIBLE_IMPACT: NO_MOTION}
    try:
        modes_of(kind, scene).resolve(scene.told(np.asarray(found.final_state)), FINE)
    except (GainsEnergy, NoMotion) as reason:
        says = GAINS if isinstance(reason, GainsEnergy) else NO_MOTION
        return says if confirmed.get(found.status) == says else HONEST
    except NoOracle:
        pass
    return HONEST


def _gains(scene: Scene, x: np.ndarray) -> bool:
    """Whether every impact by the law at a state gains energy, or there is none."""
    s = scene.system
    closed = [c for c in s.contacts if float(ca.Function("gap", [s.x], [c.gap])(x)) < CLOSED * scene.length]
    rows = [ca.jacobian(ca.jtimes(c.gap, s.q, s.position_rate), s.v) for c in closed]
    columns = [ca.SX(s.n_v, 0) if c.tangent is None else c.tangent for c in closed]
    mass, *parts = (
        np.array(part) for part in ca.Function("at", [s.x], [s.mass_matrix, *rows, *columns]).call([ca.DM(x)])
    )
    normals, tangents = [row[0] for row in parts[: len(closed)]], parts[len(closed) :]
    if not closed or len(closed) > MOST_CLOSED:
        return False
    friction = [c.friction[0] if c.frictional else () for c in closed]
    v = x[s.n_q :]
    found = impact(mass, v, normals, tangents, friction, [c.restitution for c in closed])
    return all(energy_gain(mass, v, np.asarray(after)) > 0.0 for after in found.rates)


def _remedied(scene: Scene, found: Any, simulate: Simulate) -> bool:
    """Whether what the message advises helps: followed for every contact that it names, again and again."""
    (system, x0), options = scene.simulated, dict[str, Any]()
    for _ in range(REMEDIES):
        named = re.findall(r"\bb\d+(?:w\d+p\d+|b\d+)\b", found.message)
        if found.status in (ns.Status.ENERGY_GAIN, ns.Status.NO_ADMISSIBLE_IMPACT):
            system = _with_law(system, named, restitution=0.0)
        elif found.status is ns.Status.PAINLEVE:
            system = _with_law(system, named, friction=0.0, tangent=None)
        elif found.status is ns.Status.GRAZING:
            options["grazing"] = "continue"
        elif found.status is ns.Status.ZENO:
            options["rest_velocity"] = 1e-2 * scene.length / scene.time
        else:
            return False
        try:
            with limited(SECONDS):
                found = simulate(system, x0=x0, duration=scene.duration, method=ns.EventDriven(**options))
        except TimeUp:
            return False
        if found.success:
            return True
    return False


def _with_law(system: ns.CLS, named: list[str], **law: Any) -> ns.CLS:
    return evolve(system, contacts=[evolve(c, **law) if c.name in named else c for c in system.contacts])


def _compared(kind: str, scene: Scene, rng: np.random.Generator, x: np.ndarray, simulate: Simulate) -> dict[str, Any]:
    modes = modes_of(kind, scene)
    right, events, most = motion(modes, scene.x0, scene.duration, FINE)
    if not modes.touched:
        return {"verdict": NOTHING, "said": ""}
    size = magnitudes(kind, scene, most)
    itself = float(np.abs((motion(modes, scene.x0, scene.duration, COARSE)[0] - right) / size).max())
    nudged = modes.near(scene.x0, NUDGE * rng.uniform(-1.0, 1.0, size.size) * scene.size)
    change = np.abs((motion(modes, nudged, scene.duration, FINE)[0] - right) / size).max()
    kappa, error = max(1.0, float(change) / NUDGE), float(np.abs((x - right) / size).max())
    found = {"events": events, "error": error, "kappa": kappa, "itself": itself, "said": ""}
    if kappa > MOST_SENSITIVE or itself > TOLERANCE * kappa:
        return {"verdict": SENSITIVE, **found}
    allowed = FACTOR * TOLERANCE * kappa
    if error <= allowed:
        return {"verdict": RIGHT, **found}
    if kind != "filippov" and any(c.restitution for c in scene.system.contacts):
        # Slow impacts do not bounce: with a speed that both sides know they have to agree.
        rest = SLOW * scene.length / scene.time
        method = ns.EventDriven(rest_velocity=rest)
        system, x0 = scene.simulated
        again = simulate(system, x0=x0, duration=scene.duration, method=method)
        with contextlib.suppress(NoOracle):
            other = motion(modes_of(kind, scene, rest), scene.x0, scene.duration, FINE)[0]
            if again.success and np.abs((scene.told(np.asarray(again.final_state)) - other) / size).max() <= allowed:
                return {"verdict": RESTS, **found, "rest_velocity": float(rest)}
    return {"verdict": WRONG, **found, "right": right.tolist(), "given": x.tolist()}


def _stepped(scene: Scene, found: Any) -> dict[str, Any]:
    """The verdict by gaps of points, and by steps of first order that tell their own error."""
    assert scene.gap is not None
    deepest = min(scene.gap(x) for x in found.x) / scene.length
    if not found.events and deepest > 0.0:
        return {"verdict": NOTHING, "said": ""}
    if deepest < -DEEP:
        return {"verdict": WRONG, "said": f"penetration {-deepest:.1e}"}
    size = magnitudes("shapes", scene, np.abs(found.x).max(axis=0))
    ends, verdict, told = list[np.ndarray](), WRONG, dict[str, Any]()
    for shares in (STEPS, FINER):
        for share in shares:
            step = ns.TimeStepping(step=share * scene.time, rest_velocity=0.0)
            run = ns.simulate(scene.system, x0=scene.x0, duration=scene.duration, method=step)
            if not run.success:
                return {"verdict": NO_ORACLE, "said": "steps fail"}
            ends.append(np.asarray(run.final_state) / size)
        itself = float(np.abs(np.diff(ends, axis=0)).max())
        error = float(np.abs(np.asarray(found.final_state) / size - ends[-1]).max())
        told = {"said": "", "events": len(found.events), "error": error, "itself": itself}
        verdict = SENSITIVE if itself > LARGE else RIGHT if error <= FACTOR * itself + 1e-3 else WRONG
        if verdict != WRONG:
            break
    return {"verdict": verdict, **told}


def modes_of(kind: str, scene: Scene, rest: float = 0.0) -> Modes:
    """What the oracle makes of a scene."""
    if kind == "filippov":
        return Filippov(scene.system, length=scene.length, time=scene.time)
    speed = scene.length / scene.time
    return Contacts(scene.system, length=scene.length, speed=speed, size=scene.size, rest=rest)


def magnitudes(kind: str, scene: Scene, most: np.ndarray) -> np.ndarray:
    """Magnitudes of the components of the state, with the largest of the motion."""
    if kind == "filippov":
        return np.maximum(scene.size, most.max())
    if kind == "shapes":
        return np.maximum(scene.size, most)
    n_q = scene.size.size // 2
    same = [half + np.flatnonzero(scene.size[:n_q] == unit) for half in (0, n_q) for unit in set(scene.size[:n_q])]
    size = scene.size.copy()
    for group in same:  # lengths, angles, and the rates of each
        size[group] = np.maximum(size[group], most[group].max())
    return size


def _input(rng: np.random.Generator) -> dict[str, Any]:
    name, (call, right) = list(calls().items())[rng.integers(len(calls()))]
    argument = list(right)[rng.integers(len(right))]
    label, thing = list(wrong_things().items())[rng.integers(len(wrong_things()))]
    given = {**right, argument: thing}
    if rng.random() < 0.05:
        label, given = "missing", {key: value for key, value in right.items() if key != argument}
    elif rng.random() < 0.05:
        label, given = "unknown name", {**right, f"{argument}_": thing}
    said = f"{name}: {argument} = {label}"
    try:
        with limited(SECONDS):
            result = call(**given)
    except TimeUp:
        return {"verdict": HANG, "said": said}
    except ns.NosnocError as error:
        return {"verdict": CLEAR, "said": f"{said}: {error}"[:300]}
    except Exception as error:  # an exception is a finding like any other
        verdict = SIGNATURE if isinstance(error, TypeError) and not _binds(call, given) else RAW
        return {"verdict": verdict, "said": f"{said}: {type(error).__name__}: {error}"[:300]}
    return {"verdict": ACCEPTED, "said": f"{said}: {getattr(result, 'status', type(result).__name__)}"}


def _binds(call: Callable[..., Any], given: dict[str, Any]) -> bool:
    """Whether the signature takes these arguments."""
    try:
        inspect.signature(call).bind(**given)
    except TypeError:
        return False
    return True


def spoiled(simulate: Simulate, share: float) -> Simulate:
    """A simulation with an error, to see that it is found: the state at the end is off by a share of its magnitudes."""
    return partial(_spoiled, simulate, share)


def _spoiled(simulate: Simulate, share: float, *arguments: Any, **options: Any) -> Any:
    found = simulate(*arguments, **options)

    class Spoiled:
        success, status, message, x, events = found.success, found.status, found.message, found.x, found.events
        final_state = np.asarray(found.final_state) + share * np.abs(found.x).max()

    return Spoiled()
