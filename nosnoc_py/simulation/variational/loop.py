"""One simulation: chunks of steps of the compiled kernel, between which a callback and the clock are looked at."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.compiled import available, compiled, version_of
from nosnoc_py.errors import OptionError
from nosnoc_py.simulation.variational import collision, contacts, flight, friction, kernel, resting, segments, vectors
from nosnoc_py.simulation.variational.collision import gap_of
from nosnoc_py.simulation.variational.flight import parts_of
from nosnoc_py.simulation.variational.kernel import run_steps
from nosnoc_py.simulation.variational.options import LieGroupVariational
from nosnoc_py.simulation.variational.record import Record
from nosnoc_py.simulation.variational.segments import FINISHED, FULL, NOT_FINITE, ROTATION, ZENO
from nosnoc_py.solution import Trajectory
from nosnoc_py.status import Status, asked_to_stop
from nosnoc_py.systems.rigid_body import RigidBody
from nosnoc_py.systems.shapes import support_kernels
from nosnoc_py.systems.shapes.shape import Features

# Steps between two looks at the clock.
CHUNK = 1000
# Equal parts of a step up to which rotation_limit="substep" goes.
FINEST = 4096
NO_FEATURES = Features.of()


@dataclass(frozen=True, eq=False, kw_only=True)
class LieGroupVariationalState:
    """Where a simulation stands: what a callback sees after every step.

    Attributes
    ----------
    t : float
    x : (18,)
    p : (0,)
    status : Status
    contacts : int
        Impacts in the last step.
    iterations : int
        Always 0, as `attempts` and `complementarity`: there is nothing to iterate that could fail.
    complementarity : float
    infeasibility : float
        Deepest penetration [m].
    attempts : int
    """

    t: float
    x: np.ndarray
    p: np.ndarray
    status: Status = Status.SOLVED
    contacts: int = 0
    iterations: int = 0
    complementarity: float = 0.0
    infeasibility: float = 0.0
    attempts: int = 0


@functools.cache
def compiled_kernel() -> Callable[..., Any]:
    """The compiled loop; kept on disk for the next process."""
    sources = (vectors, flight, collision, friction, contacts, segments, resting, kernel, support_kernels)
    found: Callable[..., Any] = compiled(kernel.versioned(version_of(*sources)), cache=True)
    return found


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


class Loop:
    """One simulation."""

    def __init__(self, system: RigidBody, method: LieGroupVariational, h: float, steps: Callable[..., Any]) -> None:
        self.system, self.method, self.h, self.steps = system, method, h, steps
        self.inertia, gravity = np.asarray(system.inertia), np.asarray(system.gravity)
        inverse = np.linalg.inv(self.inertia)
        self.body: Any = (
            float(system.mass),
            tuple_of(gravity),
            tuple_of(self.inertia),
            tuple_of(0.5 * (inverse + inverse.T)),
        )
        features = system.shape.features()
        self.shape: Any = tuple(NO_FEATURES if features is None else features)
        self.support = None if features is not None else system.shape.support
        self.planes = np.array([[*q.normal, q.offset, q.restitution, q.friction] for q in system.planes]).reshape(-1, 6)
        self.exponential = method.map == "exponential"
        self.finest = FINEST if method.rotation_limit == "substep" else 1
        closed = float(np.sqrt(gravity @ gravity)) * h * h + 1e-12
        self.rule = (
            h,
            closed,
            self.exponential,
            method.algorithm == "5.1",
            method.samples,
            method.max_impacts,
            self.finest,
            method.zeno == "settle",
        )

    def check_start(self, x: np.ndarray) -> None:
        """Raise `OptionError` if the first step cannot be flown."""
        spin = tuple_of(x[15:18])
        if not parts_of(self.body, self.exponential, self.finest, spin, self.h):
            raise OptionError(
                f"h: with h |Pi| = {self.h * float(np.linalg.norm(spin)):.3g} kg m^2 the equation of flight has no "
                f"solution near the identity, given h = {self.h:g} s; from this state it may be at most "
                f"{self.largest(spin):.4g} s, or take rotation_limit='substep'."
            )

    def largest(self, spin: tuple[float, float, float]) -> float:
        """The largest step [s] that can be flown with an angular momentum."""
        low, high = 0.0, self.h
        for _ in range(50):
            middle = 0.5 * (low + high)
            if parts_of(self.body, self.exponential, 1, spin, middle):
                low = middle
            else:
                high = middle
        return low

    def run(self, start: np.ndarray, count: int, callback: Callable[[Any], Any] | None, deadline: float) -> Trajectory:
        """Chunk by chunk; what there is when it ends early."""
        memory, work, record = self.begin(start), self.contacts(start), Record()
        first = np.concatenate([[0.0], start, work[2]])
        record.add(first[np.newaxis], np.empty((0, 8)))
        every = self.method.record_every
        chunk = 1 if callback is not None else max(CHUNK // every, 1) * every
        reserve = 2 * (self.method.max_impacts + 2) * (len(self.planes) + 1)
        nodes = np.empty((chunk // every + 2 + 2 * reserve, first.size))
        events = np.empty((2 * reserve, 8))
        done, code, status, missed, plane = 0, FINISHED, Status.SOLVED, 0, -1
        while done < count and status is Status.SOLVED and code in (FINISHED, FULL):
            if time.monotonic() > deadline:
                status = Status.TIME_LIMIT
                break
            stop = min(done + chunk, count)
            code, done, rows, happened, where, more = self.steps(
                self.rule, self.body, self.shape, self.support, self.planes, memory, work, done, stop,
                every, nodes, events,
            )  # fmt: skip
            plane, missed = where if where >= 0 else plane, missed + more
            if callback is not None and rows:
                status = self.stopped(callback, nodes[rows - 1], happened)
                if done % every and status is Status.SOLVED and code == FINISHED and done < count:
                    rows -= 1  # the kernel wrote it for the callback
            record.add(nodes[:rows], events[:happened])
        if code in (FINISHED, FULL):
            self.close(record, memory, work, done)
        status, notes = self.verdict(status, code, memory, plane)
        if missed:
            notes.append(
                f"{missed} slow impacts have no impulse that keeps the discrete energy; they bounce as in algorithm "
                "5.2, and the steps they are in are not symplectic"
            )
        return record.trajectory(self.system, status, notes)

    def begin(self, x: np.ndarray) -> np.ndarray:
        """The memory of the kernel at the start."""
        memory = np.zeros(21)
        memory[0:3], memory[3:6], memory[7:16], memory[16:19] = x[0:3], x[12:15], x[3:12], x[15:18]
        return memory

    def contacts(self, x: np.ndarray) -> np.ndarray:
        """What the kernel knows of the planes; a penetration that was allowed at the start counts as none."""
        work = np.zeros((4, len(self.planes)))
        position, rotation = tuple_of(x[0:3]), tuple_of(x[3:12])
        for k, plane in enumerate(self.planes):
            gap = gap_of(plane, self.shape, self.support, position, rotation)
            work[0, k], work[2, k] = min(gap, 0.0), max(gap, 0.0)
        return work

    def close(self, record: Record, memory: np.ndarray, work: np.ndarray, done: int) -> None:
        """With nodes left out, an early end needs one for where it stopped."""
        t = done * self.h
        if t > record.last:
            tau, position, momentum = memory[6] + memory[20] * self.h, memory[0:3], memory[3:6]
            mass, gravity = self.body[0], np.asarray(self.body[1])
            x = position + tau * (momentum / mass + 0.5 * tau * gravity)
            state = [t, *x, *memory[7:16], *(momentum + mass * tau * gravity), *memory[16:19], *work[2]]
            record.add(np.array([state]), np.empty((0, 8)))

    def stopped(self, callback: Callable[[Any], Any], node: np.ndarray, impacts: int) -> Status:
        """Show a callback the last node."""
        state = LieGroupVariationalState(
            t=float(node[0]),
            x=node[1:19].copy(),
            p=np.empty(0),
            contacts=impacts,
            infeasibility=float(max(0.0, -node[19:].min(initial=0.0))),
        )
        return asked_to_stop(callback, state) or Status.SOLVED

    def verdict(self, status: Status, code: int, memory: np.ndarray, plane: int) -> tuple[Status, list[str]]:
        """Why it ended."""
        t = memory[19]
        if code == ZENO:
            name = self.system.planes[plane].name
            return Status.ZENO, [
                f"impacts on plane {name!r} follow each other without end at t = {t:.10g} s; zeno='settle' lets the "
                "body rest there"
            ]
        if code == ROTATION:
            spin = tuple_of(memory[16:19])
            return Status.NUMERICAL_ERROR, [
                f"at t = {t:.6g} s h |Pi| = {self.h * float(np.linalg.norm(spin)):.3g} kg m^2 is too large for the "
                f"equation of flight: take h below {self.largest(spin):.4g} s, or rotation_limit='substep'"
            ]
        if code == NOT_FINITE:
            return Status.NUMERICAL_ERROR, [f"a gap is not a number behind t = {t:.6g} s"]
        return status, []
