"""Smooth motion of one phase as the loop of `loop` wants it: interpreted, written out by CasADi, or on arrays.

All have the same functions: rates, samples, stages of a step, and the projection onto the constraints, after which the
regime follows the motion.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from nosnoc_py.motion.tape import LANES, CountedTape, no_tape
from nosnoc_py.simulation.event_driven.dop853 import A, C
from nosnoc_py.simulation.event_driven.kernel import UNDERFLOW, ArrayMotion, Sizes
from nosnoc_py.simulation.event_driven.loop import RATE, SAMPLE, perform, place_of, rows_of, rule_of

Array = np.ndarray


def flushed(x: Array) -> Array:
    """Return x with tiny numbers set to zero."""
    return np.where(np.abs(x) < UNDERFLOW, 0.0, x)


class InterpretedMotion:
    """Motion by the functions of a flow.

    Attributes
    ----------
    regime
        Modes, with directions of slip or multipliers that follow the motion.
    data
        What the loop of `loop` gets: this motion.
    """

    def __init__(self, flow: Any, regime: Any) -> None:
        self.flow, self.regime, self.perform = flow, regime, perform

    @property
    def data(self) -> Any:
        """What the loop gets."""
        return self

    def follow(self, regime: Any) -> None:
        """Continue in the same modes, with other directions of slip or multipliers."""
        self.regime = regime

    def rate(self, t: float, x: Array) -> Array:
        """Return dx/dt (n_x,)."""
        return flushed(self.flow.rhs(self.regime, t, x))

    def samples(self, t: Array, x: Array) -> tuple[Array, Array, Array]:
        """Return guards (m, n_g), forces and rates at times (m,) and states (m, n_x)."""
        samples = [self.flow.sample(self.regime, *pair) for pair in zip(t, x, strict=True)]
        guards, forces, rates = (
            np.array([getattr(s, name) for s in samples]) for name in ("guards", "forces", "rates")
        )
        return guards, forces, rates

    def stages(self, t: float, x: Array, h: float, K: Array, first: int, last: int, y: Array) -> None:
        """Set some stages K of a step; y is the state of the last one."""
        for i in range(first, last):
            y[:] = x + h * (A[i, :i] @ K[:i])
            K[i] = self.rate(t + C[i] * h, y)

    def put(self, t: float, x: Array, f: Array) -> None:
        """Move a state onto its constraints, let the regime follow, and set its rate f."""
        moved = flushed(self._projected(t, x))
        self.follow(self.flow.updated(self.regime, t, moved))
        if not np.array_equal(moved, x):
            x[:] = moved
            f[:] = self.rate(t, x)

    def _projected(self, t: float, x: Array) -> Array:
        return np.asarray(self.flow.project(self.regime, t, x))


class WrittenMotion(InterpretedMotion):
    """Motion of a small system by functions that CasADi has for one regime; `steps` are `CompiledSteps`."""

    def __init__(self, flow: Any, regime: Any, steps: Any, data: Array) -> None:
        super().__init__(flow, regime)
        self.steps, self.constants = steps, data

    def rate(self, t: float, x: Array) -> Array:
        """Return dx/dt (n_x,)."""
        return flushed(self.steps.rate(x, self.constants))

    def samples(self, t: Array, x: Array) -> tuple[Array, Array, Array]:
        """Return guards (m, n_g), forces and rates at states (m, n_x)."""
        values: tuple[Array, Array, Array] = self.steps.samples(x, self.constants)
        return values

    def stages(self, t: float, x: Array, h: float, K: Array, first: int, last: int, y: Array) -> None:
        """Set some stages K of a step; one call has all of them."""
        if first == 1:
            y[:], self.more = self.steps.step(x, K[0], h, self.constants)
        K[first:last] = self.more[first - 1 : last - 1]

    def _projected(self, t: float, x: Array) -> Array:
        return np.asarray(self.steps.project(x, self.constants)) if self.steps.projects else super()._projected(t, x)

    def compiled(self, perform: Any) -> InterpretedMotion:
        """Return the same motion for the compiled loop if there is one, which has to have its projection."""
        arrays = None
        if perform is not None and self.steps.puts:
            arrays = written_arrays(self.steps, self.constants, self.flow.widths)
        return self if arrays is None else KernelMotion(self.flow, self.regime, arrays, perform, self.steps.tapes, self)


class KernelMotion(InterpretedMotion):
    """Motion on arrays, for the compiled loop; single evaluations of a small system are those of `written`, which take
    less time than a call of the loop.
    """

    def __init__(
        self,
        flow: Any,
        regime: Any,
        arrays: ArrayMotion,
        perform: Any,
        tapes: Mapping[str, CountedTape],
        written: WrittenMotion | None = None,
    ) -> None:
        self.arrays, self.tapes, self.written = arrays, tapes, written
        super().__init__(flow, regime)
        self.perform, self.single = perform, dict[int, Any]()

    @property
    def data(self) -> ArrayMotion:
        """What the loop gets."""
        return self.arrays

    @property
    def regime(self) -> Any:
        """Modes, with the directions of slip of the arrays."""
        if not getattr(self._regime, "spatial", ()) or np.array_equal(self._regime.direction, self.arrays.direction):
            return self._regime
        return replace(self._regime, direction=self.arrays.direction.copy())

    @regime.setter
    def regime(self, regime: Any) -> None:
        self._regime = regime

    def follow(self, regime: Any) -> None:
        """Continue with other directions of slip; what was evaluated often has become machine code."""
        now: dict[str, Any] = {name: tape.now() for name, tape in self.tapes.items()}
        if any(tape is not getattr(self.arrays, name) for name, tape in now.items()):
            self.arrays = self.arrays._replace(**now)
        self._regime = regime
        if regime is not None and self.arrays.direction.size:
            self.arrays.direction[:] = regime.direction

    def rate(self, t: float, x: Array) -> Array:
        """Return dx/dt (n_x,)."""
        if self.written is not None:
            return self.written.rate(t, x)
        rule, place, rows = self._one(1, x.size)
        place.y[:] = x
        self.perform(RATE, self.arrays, rule, place, rows, t)
        return place.f.copy()

    def samples(self, t: Array, x: Array) -> tuple[Array, Array, Array]:
        """Return guards (m, n_g), forces and rates at states (m, n_x)."""
        if self.written is not None:
            return self.written.samples(t, x)
        rule, place, rows = self._one(len(x), x.shape[1])
        rows.x[0] = x
        self.perform(SAMPLE, self.arrays, rule, place, rows, 0.0)
        return rows.guards[0].copy(), rows.forces[0].copy(), rows.rates[0].copy()

    def _one(self, count: int, n_x: int) -> Any:
        """Return room for single evaluations."""
        if count not in self.single:
            self.single[count] = rule_of(), place_of(np.zeros(n_x)), rows_of(1, n_x, self.flow.widths, count)
        return self.single[count]


def contact_arrays(mechanics: Any, frames: Any, regime: Any, u: Array, p: Array) -> ArrayMotion | None:
    """Return the motion of contacts in a regime under a constant control; None where the kernel cannot do it."""
    tapes = mechanics.once(contact_tapes)
    # The kernel has one coefficient per contact.
    special = frames.varies or frames.sticking is not None
    if regime.redundant or special or not all(tape.known for tape in tapes.values()):
        return None
    system, n_c = mechanics.system, frames.count
    n_v, n_r, n_x = system.n_v, frames.count + frames.n_t, system.x.numel()
    starts = np.array([part.start for part in frames.tangents], dtype=np.int64)
    widths = np.array([part.stop - part.start for part in frames.tangents], dtype=np.int64)
    used = np.asarray(frames.rows(regime.closed), dtype=np.int64)
    column = np.full(n_r, -1, dtype=np.int64)
    column[used] = np.arange(used.size)
    m, outputs = regime.rows.size, n_c + n_r * n_v + n_v * n_v + n_v + 2 * n_r + (n_x - n_v)
    argument = np.concatenate([np.zeros(n_x), u, p])
    return ArrayMotion(
        sizes=Sizes(system.n_q, n_v, n_c, n_r, True, not system.moves_by_v, "third" in tapes),
        first=tapes["first"].now(),
        second=tapes["second"].now() if "second" in tapes else NO_TAPE,
        third=tapes["third"].now() if "third" in tapes else NO_TAPE,
        argument=argument,
        arguments=np.repeat(argument[:, None], LANES, axis=1),
        out=np.zeros(outputs),
        outs=np.zeros((outputs, LANES)),
        second_out=np.zeros(system.n_q * n_v),
        modes=np.array(regime.modes, dtype=np.int64),
        starts=starts,
        widths=widths,
        friction=np.array(frames.friction, dtype=float),
        direction=np.array(regime.direction, dtype=float),
        speed=np.array([regime.speed]),
        closed=np.asarray(regime.closed, dtype=np.int64),
        rows=np.asarray(regime.rows, dtype=np.int64),
        used=used,
        column=column,
        along=np.zeros(frames.n_t),
        matrix=np.zeros((n_v, n_v)),
        right=np.zeros((n_v, 1 + used.size)),
        columns=np.zeros((n_v, m)),
        small=np.zeros((m, m)),
        forces=np.zeros(m),
        values=np.zeros(n_r),
        rates=np.zeros(n_r),
        stiff=np.zeros(m),
        acceleration=np.zeros(n_v),
    )


NO_TAPE = no_tape()


def idle() -> ArrayMotion:
    """Return a motion of nothing."""
    numbers, vector = np.zeros(0, dtype=np.int64), np.zeros(0)
    matrix = np.zeros((0, 0))
    return ArrayMotion(
        sizes=Sizes(0, 0, 0, 0, True, False, False),
        first=NO_TAPE,
        second=NO_TAPE,
        third=NO_TAPE,
        arguments=np.zeros((0, LANES)),
        outs=np.zeros((0, LANES)),
        **dict.fromkeys(("modes", "starts", "widths", "closed", "rows", "used", "column"), numbers),
        **dict.fromkeys(("matrix", "right", "columns", "small"), matrix),
        **dict.fromkeys(("argument", "out", "second_out", "friction", "direction", "speed", "along"), vector),
        **dict.fromkeys(("forces", "values", "rates", "stiff", "acceleration"), vector),
    )


def written_arrays(steps: Any, data: Array, widths: tuple[int, int, int]) -> ArrayMotion | None:
    """Return a motion that is written out, of `CompiledSteps`; None if an operation is not known."""
    if not all(tape.known for tape in steps.tapes.values()):
        return None
    argument = np.concatenate([np.zeros(steps.n_x), data])
    return idle()._replace(
        sizes=Sizes(0, 0, 0, 0, False, False, steps.projects),
        first=steps.tapes["first"].now(),
        second=steps.tapes["second"].now() if "second" in steps.tapes else NO_TAPE,
        third=steps.tapes["third"].now(),
        argument=argument,
        arguments=np.repeat(argument[:, None], LANES, axis=1),
        out=np.zeros(sum(widths)),
        outs=np.zeros((sum(widths), LANES)),
    )


def contact_tapes(system: Any) -> dict[str, CountedTape]:
    """Return the kinematics of a system as a tape, N(q) where it is not the identity, and bilateral constraints."""
    import casadi as ca

    functions, arguments = {"first": system.mechanics.function}, [system.x, system.u, system.p]
    if system.bilateral is not None:
        put = system.mechanics.put_on_constraints(system.x, system.p)
        functions["third"] = ca.Function("put", arguments, [put])
    if not system.moves_by_v:
        functions["second"] = ca.Function("turns", arguments, [ca.densify(system.rate_matrix)])
    return {name: CountedTape(function) for name, function in functions.items()}
