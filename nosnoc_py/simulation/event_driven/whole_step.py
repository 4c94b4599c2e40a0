"""Stages of a step of DOP853 and samples of a small system in one compiled call (by CasADi), for `loop`.

A call of Python at every stage takes longer than the arithmetic of a few bodies.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered
from nosnoc_py.motion.crossing import NODES
from nosnoc_py.motion.tape import CountedTape
from nosnoc_py.simulation.event_driven.dop853 import STAGES, A

Array = np.ndarray
# Systems whose rates need more operations use SciPy's steps: compiling theirs takes too long.
MOST_OPERATIONS = 800


class CompiledSteps:
    """Compiled steps of dx/dt = rate(x, d) in one regime, with data d that are constant on a phase.

    Parameters
    ----------
    x, d : SX
    rate : SX (n_x,)
    guards, forces, rates : SX
        As in a `Sample`.
    put : SX (n_x,), optional
        The state on the constraints of the regime.
    puts : bool
        False if it has constraints without such an expression.
    """

    def __init__(
        self,
        x: ca.SX,
        d: ca.SX,
        rate: ca.SX,
        guards: ca.SX,
        forces: ca.SX,
        rates: ca.SX,
        put: ca.SX | None = None,
        *,
        puts: bool = True,
    ) -> None:
        function = ca.Function("rate", [x, d], [ca.densify(rate)])
        sample = ca.Function("sample", [x, d], [ca.densify(ca.vertcat(guards, forces, rates))])
        self.small = function.n_instructions() <= MOST_OPERATIONS
        self.parts = np.cumsum([guards.numel(), forces.numel()])
        self.n_x, self.projects, self.puts = x.numel(), put is not None, puts
        if not self.small:
            return
        self._functions, self._symbols = [function, sample], (x, d)
        self._rate, self._sample, self._samples = map(buffered, (function, sample, sample.map(NODES.size)))
        if put is not None:
            self._functions.append(ca.Function("put", [x, d], [ca.densify(put)]))
            self._project = buffered(self._functions[2])

    @cached_property
    def tapes(self) -> dict[str, CountedTape]:
        """Rate, sample, and the projection if there is one, as tapes by their names in `ArrayMotion`."""
        return {name: CountedTape(f) for name, f in zip(("first", "third", "second"), self._functions, strict=False)}

    @cached_property
    def _step(self) -> Any:
        """The function of a step of length h from x with rate f: its end, and all stages but the first."""
        rate, (x, d) = self._functions[0], self._symbols
        f, h = ca.SX.sym("f", self.n_x), ca.SX.sym("h")
        stages = [f]
        for row in A[1:]:
            y = x + h * (ca.horzcat(*stages) @ ca.sparsify(ca.DM(row[: len(stages)])))
            stages.append(rate(y, d))
            if len(stages) == STAGES + 1:
                end = y
        return buffered(ca.Function("step", [x, f, h, d], [end, ca.horzcat(*stages[1:])]))

    def rate(self, x: Array, d: Array) -> Array:
        """Return dx/dt (n_x,)."""
        return self._rate(x, d)[0][:, 0]

    def step(self, x: Array, f: Array, h: float, d: Array) -> tuple[Array, Array]:
        """Return the state at the end (n_x,), and the stages (15, n_x) after the first."""
        end, stages = self._step(x, f, h, d)
        return end[:, 0], stages.T

    def project(self, x: Array, d: Array) -> Array:
        """Return the state projected onto the constraints of the regime."""
        return self._project(x, d)[0][:, 0]

    def samples(self, x: Array, d: Array) -> tuple[Array, Array, Array]:
        """Return guards, forces and rates at states (m, n_x), one row each."""
        if len(x) == NODES.size:
            values = self._samples(x, d)[0].T
        else:
            values = np.array([self._sample(row, d)[0][:, 0] for row in x])
        first, second = self.parts
        return values[:, :first], values[:, first:second], values[:, second:]
