"""One simulation: chunks of steps of the kernel, with callbacks and the time limit checked between them.

The kernel is the same function compiled or interpreted; it cannot be interrupted, call Python or raise. It runs some
milliseconds at a time and returns a code, from which statuses and messages are made here. Between chunks its state is a
tuple of the current segment and the counts of steps since (`kernel.Progress`), so that chunks do not change the motion:
times and translations are not summed over steps. Buffers are allocated once and copied after every chunk.
"""

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
from nosnoc_py.methods.variational.collision import gap_of
from nosnoc_py.methods.variational.flight import rotation_over
from nosnoc_py.methods.variational.kernel import run_steps
from nosnoc_py.methods.variational.options import LieGroupVariational
from nosnoc_py.methods.variational.output_buffers import OutputBuffers
from nosnoc_py.methods.variational.record import RecordBuffers
from nosnoc_py.methods.variational.scene import (
    AT_REST,
    FINISHED,
    FULL,
    NOT_FINITE,
    ROTATION,
    TOO_MANY_IMPACTS,
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

# Steps between two checks of the time limit: some milliseconds.
CHUNK = 1000
# An interpreted step takes far longer: fewer of them fill the same milliseconds.
CHUNK_INTERPRETED = 20
NO_FEATURES = Features.of()


@dataclass(frozen=True, eq=False, kw_only=True)
class LieGroupVariationalState(StepState):
    """State of a simulation that callbacks receive after every step; `infeasibility` is the deepest penetration [m].

    Attributes
    ----------
    contacts : int
        Number of impacts in the last step.
    """

    contacts: int = 0


@functools.cache
def compiled_kernel() -> Callable[..., Any]:
    """Return the compiled loop, cached on disk."""
    # The first compilation takes many seconds without output; later processes read it from the disk.
    notify(COMPILING)
    return compiled(kernel.versioned(version_of(kernel, support_kernels)), cache=True)


def kernel_of(system: RigidBody, method: LieGroupVariational) -> Callable[..., Any]:
    """Return the loop, compiled or interpreted according to the option."""
    features = system.shape.features() is not None
    if method.compiled is True and not features:
        raise OptionError(
            f"compiled: the shape, a {type(system.shape).__name__}, is known by a Python function only; leave "
            "compiled=True out, or build it of ellipsoids and polyhedra."
        )
    compiles = available() and features if method.compiled == "auto" else method.compiled
    return compiled_kernel() if compiles else run_steps


def as_tuple(values: Any) -> Any:
    """Convert an array to a tuple of Python floats."""
    return tuple(float(value) for value in np.ravel(values))


def scene_of(system: RigidBody, method: LieGroupVariational, h: float) -> Scene:
    """Convert a system and options to the data of the kernel."""
    gravity, inverse = np.asarray(system.gravity), np.linalg.inv(system.inertia)
    features = system.shape.features()
    shape: Any = tuple(NO_FEATURES if features is None else features)
    rule = Rule(
        h=h,
        # Twice the height of fall in a step; 1e-12 remains without gravity.
        closed=float(np.sqrt(gravity @ gravity)) * h * h + 1e-12,
        variational=method.algorithm == "5.1",
        samples=method.samples,
        max_impacts=method.max_impacts,
        allows_rest=method.zeno == "settle",
    )
    return Scene(
        rule=rule,
        # Rounding makes the inverse unsymmetric, and the conserved energy would depend on the order of its factors.
        body=(float(system.mass), as_tuple(gravity), as_tuple(system.inertia), as_tuple(0.5 * (inverse + inverse.T))),
        shape=shape,
        support=None if features is not None else system.shape.support,
        planes=np.array([[*q.normal, q.offset, q.restitution, q.friction] for q in system.planes]).reshape(-1, 6),
    )


def initial_contacts(scene: Scene, x: np.ndarray) -> Contacts:
    """Return the contact data at the start; a tolerated penetration becomes slack."""
    position, rotation = as_tuple(x[0:3]), as_tuple(x[3:12])
    # A penetration that the model tolerates must not count as an impact at t = 0.
    gaps = np.array([gap_of(plane, scene.shape, scene.support, position, rotation) for plane in scene.planes])
    zeros = np.zeros((2, gaps.size))
    return Contacts(slack=np.minimum(gaps, 0.0), at_rest=zeros[0], left=np.maximum(gaps, 0.0), ends=zeros[1])


def allocate_output(scene: Scene, chunk: int) -> OutputBuffers:
    """Allocate buffers for `chunk` impact-free steps plus two steps with the maximum number of impacts."""
    # An impact writes a node before and one after it, on every plane at worst; `run_steps` keeps this room free.
    reserve = 2 * (scene.rule.max_impacts + 2) * (len(scene.planes) + 1)
    return OutputBuffers(
        nodes=np.empty((chunk + 2 * reserve + 1, 19 + len(scene.planes))),
        events=np.empty((2 * reserve, 8)),
        counts=np.zeros(3, dtype=np.int64),
        last=np.zeros(10),
    )


class VariationalLoop:
    """One simulation of a rigid body in equal steps."""

    def __init__(self, system: RigidBody, method: LieGroupVariational, h: float, steps: Callable[..., Any]) -> None:
        self.system, self.method, self.h, self.steps = system, method, h, steps
        self.scene = scene_of(system, method, h)

    def check_start(self, x: np.ndarray) -> None:
        """Raise an `OptionError` if the equation of flight has no solution in the first step."""
        spin = as_tuple(x[15:18])
        if not self.can_fly(spin, self.h):
            raise OptionError(
                f"h: from this state it may be at most {self.largest_step(spin)}, given {self.h:g} s: "
                f"{self.too_fast_note(spin)}."
            )

    def can_fly(self, spin: Vector, s: float) -> bool:
        """True if the equation of flight has a solution for s seconds with an angular momentum."""
        return bool(rotation_over(self.scene.body, (s * spin[0], s * spin[1], s * spin[2]))[0])

    def too_fast_note(self, spin: Vector) -> str:
        """Return the reason why the equation of flight has no solution."""
        size = self.h * math.sqrt(dot(spin, spin))
        return f"with h |Pi| = {size:.3g} kg m^2 the equation of flight has no solution near the identity"

    def largest_step(self, spin: Vector) -> str:
        """Return the largest step for which the equation of flight has a solution."""
        low, high = 0.0, self.h
        # Bisection, because a step below one that has a solution has one, too: only h |Pi| counts.
        for _ in range(50):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.can_fly(spin, middle) else (low, middle)
        return f"{low:.4g} s"

    def run(self, start: np.ndarray, count: int, callback: Callable[[Any], Any] | None, deadline: float) -> Trajectory:
        """Run all steps in chunks; return the trajectory up to the end or a failure."""
        contacts, record = initial_contacts(self.scene, start), RecordBuffers()
        x, rotation, momentum, spin = (as_tuple(part) for part in np.split(start, (3, 12, 15)))
        progress = ((x, momentum, 0.0, rotation, spin), 0.0, 0.0)
        current = np.concatenate([[0.0], start, contacts.left + contacts.slack])
        record.add(current[np.newaxis], np.empty((0, 8)))
        # A callback sees every step, so that it is called between chunks of one.
        chunk = 1 if callback is not None else CHUNK_INTERPRETED if self.steps is run_steps else CHUNK
        output = allocate_output(self.scene, chunk)
        # The rotation of the first node, from which turns are measured.
        output.last[1:] = start[3:12]
        done, code, status, slow_impacts, plane = 0, FINISHED, Status.SOLVED, 0, -1
        while done < count and status is Status.SOLVED and code in (FINISHED, FULL):
            if time.monotonic() > deadline:
                status = Status.TIME_LIMIT
                break
            stop = min(done + chunk, count)
            code, done, last_plane, progress = self.steps(
                self.scene, contacts, output, progress, done, stop, count, self.method.record_every
            )
            rows, n_events, n_slow = output.counts.tolist()
            # A chunk without impacts reports -1 and must not erase the plane for the message.
            plane, slow_impacts = last_plane if last_plane >= 0 else plane, slow_impacts + n_slow
            record.add(output.nodes[:rows], output.events[:n_events])
            # The row after the last node holds the current state; the next chunk overwrites it.
            current = output.nodes[rows].copy()
            # Full buffers end a chunk before its step: the callback has seen this state already.
            if callback is not None and code != FULL:
                status = callback_status(callback, current, n_events)
        # A run that stops between two recorded nodes still ends at its last state.
        if current[0] > record.last:
            record.add(current[np.newaxis], np.empty((0, 8)))
        status, notes = self.status_and_notes(status, code, current, plane)
        return record.trajectory(self.system, status, [*notes, *slow_impact_notes(slow_impacts)])

    def status_and_notes(self, status: Status, code: int, current: np.ndarray, plane: int) -> tuple[Status, list[str]]:
        """Return the final status and notes that begin with a remedy."""
        if code == ROTATION:
            return Status.NUMERICAL_ERROR, [self.rotation_note(current)]
        if code == NOT_FINITE:
            return Status.NUMERICAL_ERROR, [
                f"look at the support function of the shape, a {type(self.system.shape).__name__}, and at the size of "
                f"the state: a gap is NaN in the step after t = {current[0]:.10g} s"
            ]
        if code in (AT_REST, ZENO, TOO_MANY_IMPACTS):
            return Status.ZENO, [self.zeno_note(code, repr(self.system.planes[plane].name), f"t = {current[0]:.10g} s")]
        return status, []

    def rotation_note(self, current: np.ndarray) -> str:
        """Return a remedy for a rotation that is too fast."""
        spin = as_tuple(current[16:19])
        return f"take h below {self.largest_step(spin)}: at t = {current[0]:.10g} s, {self.too_fast_note(spin)}"

    def zeno_note(self, code: int, plane: str, t: str) -> str:
        """Return a remedy for too many impacts in a step."""
        if code == AT_REST:
            return f"zeno='settle' lets the body rest: it lies still on plane {plane} from {t} on"
        if code == ZENO:
            return f"zeno='settle' lets the body rest: impacts on plane {plane} accumulate at {t}"
        return (
            f"raise max_impacts or lower h: more than max_impacts = {self.method.max_impacts} impacts in the step of "
            f"{self.h:g} s at {t}, the last of them on plane {plane}"
        )


def callback_status(callback: Callable[[Any], Any], node: np.ndarray, impacts: int) -> Status:
    """Call a callback with the current state; return its status."""
    state = LieGroupVariationalState(
        t=float(node[0]),
        # A callback may keep the state, whereas the buffer is used again.
        x=node[1:19].copy(),
        p=np.empty(0),
        contacts=impacts,
        infeasibility=float(max(0.0, -node[19:].min(initial=0.0))),
    )
    return asked_to_stop(callback, state) or Status.SOLVED


def slow_impact_notes(count: int) -> list[str]:
    """Return a note on impacts for which algorithm 5.1 has no impulse, or an empty list."""
    if not count:
        return []
    words = "1 slow impact has" if count == 1 else f"{count} slow impacts have"
    return [
        f"{words} no impulse that conserves the discrete energy; the impulse of algorithm 5.2 was used, and steps with "
        "such an impact are not symplectic"
    ]
