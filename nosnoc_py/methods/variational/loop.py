"""One simulation: chunks of steps of the compiled kernel, between which a callback and the clock are looked at."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.compiled import available, compiled, version_of
from nosnoc_py.errors import OptionError
from nosnoc_py.methods.variational import kernel
from nosnoc_py.methods.variational.book import Book
from nosnoc_py.methods.variational.collision import gap_of
from nosnoc_py.methods.variational.flight import rotation_over
from nosnoc_py.methods.variational.kernel import run_steps
from nosnoc_py.methods.variational.options import LieGroupVariational
from nosnoc_py.methods.variational.record import RecordBuffers
from nosnoc_py.methods.variational.scene import (
    CROWDED,
    FINISHED,
    FULL,
    NOT_FINITE,
    RESTS,
    ROTATION,
    ZENO,
    Contacts,
    Rule,
    Scene,
)
from nosnoc_py.methods.variational.vectors import Vector, dot
from nosnoc_py.notices import COMPILING, notify
from nosnoc_py.simulation.common import StepState
from nosnoc_py.solution import Trajectory
from nosnoc_py.status import Status, asked_to_stop
from nosnoc_py.systems.rigid_body import RigidBody
from nosnoc_py.systems.shapes import support_kernels
from nosnoc_py.systems.shapes.shape import Features

# Steps between two looks at the clock: some milliseconds.
CHUNK = 1000
CHUNK_INTERPRETED = 20
NO_FEATURES = Features.of()


@dataclass(frozen=True, eq=False, kw_only=True)
class LieGroupVariationalState(StepState):
    """Where a simulation stands: what a callback sees after every step; `infeasibility` is the deepest penetration [m].

    Attributes
    ----------
    contacts : int
        Impacts in the last step.
    """

    contacts: int = 0


@functools.cache
def compiled_kernel() -> Callable[..., Any]:
    """The compiled loop; kept on disk for the next process."""
    notify(COMPILING)
    return compiled(kernel.versioned(version_of(kernel, support_kernels)), cache=True)


def kernel_of(system: RigidBody, method: LieGroupVariational) -> Callable[..., Any]:
    """The loop, compiled or not, as the option says."""
    features = system.shape.features() is not None
    if method.compiled is True and not features:
        raise OptionError(
            f"compiled: the shape, a {type(system.shape).__name__}, is known by a Python function only; leave "
            "compiled=True out, or build it of ellipsoids and polyhedra."
        )
    wanted = available() and features if method.compiled == "auto" else method.compiled
    return compiled_kernel() if wanted else run_steps


def tuple_of(values: Any) -> Any:
    """Numbers of an array as a tuple of Python floats."""
    return tuple(float(value) for value in np.ravel(values))


def scene_of(system: RigidBody, method: LieGroupVariational, h: float) -> Scene:
    """A system and options as the kernel reads them."""
    gravity, inverse = np.asarray(system.gravity), np.linalg.inv(system.inertia)
    features = system.shape.features()
    shape: Any = tuple(NO_FEATURES if features is None else features)
    rule = Rule(
        h=h,
        closed=float(np.sqrt(gravity @ gravity)) * h * h + 1e-12,
        variational=method.algorithm == "5.1",
        samples=method.samples,
        most=method.max_impacts,
        settle=method.zeno == "settle",
    )
    return Scene(
        rule=rule,
        body=(float(system.mass), tuple_of(gravity), tuple_of(system.inertia), tuple_of(0.5 * (inverse + inverse.T))),
        shape=shape,
        support=None if features is not None else system.shape.support,
        planes=np.array([[*q.normal, q.offset, q.restitution, q.friction] for q in system.planes]).reshape(-1, 6),
    )


def contacts_of(scene: Scene, x: np.ndarray) -> Contacts:
    """What is known of the planes at the start; a penetration that was allowed there counts as none."""
    position, rotation = tuple_of(x[0:3]), tuple_of(x[3:12])
    gaps = np.array([gap_of(plane, scene.shape, scene.support, position, rotation) for plane in scene.planes])
    zeros = np.zeros((2, gaps.size))
    return Contacts(slack=np.minimum(gaps, 0.0), settled=zeros[0], left=np.maximum(gaps, 0.0), ends=zeros[1])


def book_of(scene: Scene, chunk: int) -> Book:
    """Buffers for so many steps without impacts, or for two with as many as there may be."""
    reserve = 2 * (scene.rule.most + 2) * (len(scene.planes) + 1)
    return Book(
        nodes=np.empty((chunk + 2 * reserve + 1, 19 + len(scene.planes))),
        events=np.empty((2 * reserve, 8)),
        counts=np.zeros(3, dtype=np.int64),
        last=np.zeros(10),
    )


class Loop:
    """One simulation."""

    def __init__(self, system: RigidBody, method: LieGroupVariational, h: float, steps: Callable[..., Any]) -> None:
        self.system, self.method, self.h, self.steps = system, method, h, steps
        self.scene = scene_of(system, method, h)

    def check_start(self, x: np.ndarray) -> None:
        """Raise `OptionError` if the first step cannot be flown."""
        spin = tuple_of(x[15:18])
        if not self.flies(spin, self.h):
            raise OptionError(
                f"h: from this state it may be at most {self.largest(spin)}, given {self.h:g} s: {self.too_fast(spin)}."
            )

    def flies(self, spin: Vector, s: float) -> bool:
        """Whether s seconds can be flown with an angular momentum."""
        return bool(rotation_over(self.scene.body, (s * spin[0], s * spin[1], s * spin[2]))[0])

    def too_fast(self, spin: Vector) -> str:
        """Why a step cannot be flown."""
        size = self.h * math.sqrt(dot(spin, spin))
        return f"with h |Pi| = {size:.3g} kg m^2 the equation of flight has no solution near the identity"

    def largest(self, spin: Vector) -> str:
        """The largest step that can be flown with an angular momentum."""
        low, high = 0.0, self.h
        for _ in range(50):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.flies(spin, middle) else (low, middle)
        return f"{low:.4g} s"

    def run(self, start: np.ndarray, count: int, callback: Callable[[Any], Any] | None, deadline: float) -> Trajectory:
        """Chunk by chunk; what there is when it ends early."""
        contacts, record = contacts_of(self.scene, start), RecordBuffers()
        x, rotation, momentum, spin = (tuple_of(part) for part in np.split(start, (3, 12, 15)))
        standing = ((x, momentum, 0.0, rotation, spin), 0.0, 0.0)
        here = np.concatenate([[0.0], start, contacts.left + contacts.slack])
        record.add(here[np.newaxis], np.empty((0, 8)))
        chunk = 1 if callback is not None else CHUNK_INTERPRETED if self.steps is run_steps else CHUNK
        book = book_of(self.scene, chunk)
        book.last[1:] = start[3:12]
        done, code, status, missed, plane = 0, FINISHED, Status.SOLVED, 0, -1
        while done < count and status is Status.SOLVED and code in (FINISHED, FULL):
            if time.monotonic() > deadline:
                status = Status.TIME_LIMIT
                break
            stop = min(done + chunk, count)
            code, done, where, standing = self.steps(
                self.scene, contacts, book, standing, done, stop, count, self.method.record_every
            )
            rows, happened, more = book.counts.tolist()
            plane, missed = where if where >= 0 else plane, missed + more
            record.add(book.nodes[:rows], book.events[:happened])
            here = book.nodes[rows].copy()
            if callback is not None and code != FULL:
                status = stopped(callback, here, happened)
        if here[0] > record.last:
            record.add(here[np.newaxis], np.empty((0, 8)))
        status, notes = self.verdict(status, code, here, plane)
        return record.trajectory(self.system, status, [*notes, *missing(missed)])

    def verdict(self, status: Status, code: int, here: np.ndarray, plane: int) -> tuple[Status, list[str]]:
        """Why it ended, beginning with what to do."""
        if code == ROTATION:
            return Status.NUMERICAL_ERROR, [self.turning(here)]
        if code == NOT_FINITE:
            return Status.NUMERICAL_ERROR, [
                f"look at the support function of the shape, a {type(self.system.shape).__name__}, and at the size of "
                f"the state: a gap is not a number in the step behind t = {here[0]:.10g} s"
            ]
        if code in (RESTS, ZENO, CROWDED):
            return Status.ZENO, [self.endless(code, repr(self.system.planes[plane].name), f"t = {here[0]:.10g} s")]
        return status, []

    def turning(self, here: np.ndarray) -> str:
        """What to do about a rotation that is too fast."""
        spin = tuple_of(here[16:19])
        return f"take h below {self.largest(spin)}: at t = {here[0]:.10g} s, {self.too_fast(spin)}"

    def endless(self, code: int, plane: str, t: str) -> str:
        """What to do about impacts in a step that are too many."""
        if code == RESTS:
            return f"zeno='settle' lets the body rest: it lies still on plane {plane} from {t} on"
        if code == ZENO:
            return f"zeno='settle' lets the body rest: impacts on plane {plane} follow each other without end at {t}"
        return (
            f"raise max_impacts or lower h: more than max_impacts = {self.method.max_impacts} impacts in the step of "
            f"{self.h:g} s at {t}, the last of them on plane {plane}"
        )


def stopped(callback: Callable[[Any], Any], node: np.ndarray, impacts: int) -> Status:
    """Show a callback where the simulation stands."""
    state = LieGroupVariationalState(
        t=float(node[0]),
        x=node[1:19].copy(),
        p=np.empty(0),
        contacts=impacts,
        infeasibility=float(max(0.0, -node[19:].min(initial=0.0))),
    )
    return asked_to_stop(callback, state) or Status.SOLVED


def missing(count: int) -> list[str]:
    """A word about impacts of algorithm 5.1 without an impulse of its own, or none."""
    if not count:
        return []
    words = "1 slow impact has" if count == 1 else f"{count} slow impacts have"
    return [
        f"{words} no impulse that keeps the discrete energy and took that of algorithm 5.2; steps with such an impact "
        "are not symplectic"
    ]
