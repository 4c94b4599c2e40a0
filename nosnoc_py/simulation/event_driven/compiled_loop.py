"""The compiled loop of `loop`, where numba has compiled it; the interpreted one otherwise.

Compilation takes a minute, once per machine: it goes on beside the work, in a process that fills numba's cache,
and this process stays interpreted. Small systems are interpreted until their steps have paid for the loading of the
compiled loop. The environment variable `NOSNOC_PY_COMPILED` changes this: "never" is interpreted, "now" waits for the
compilation.
"""

from __future__ import annotations

import os
from functools import cached_property
from typing import Any

import numpy as np

from nosnoc_py.compiled import VARIABLE, versioned_beside
from nosnoc_py.motion import tape
from nosnoc_py.simulation.event_driven import kernel, loop, motions

# Time [s] to import numba and to read the loop from the disk, and what it saves in a step of a small system: measured.
LOADING, SAVED = 0.35, 8e-5


class CompiledLoop:
    """The compiled loop of this process.

    Attributes
    ----------
    steps : int
        Steps of small systems so far.
    """

    def __init__(self) -> None:
        self.steps = 0

    def __call__(self, *, small: bool = False) -> Any:
        """Return the compiled loop, None to use the interpreted one."""
        if small and SAVED * self.steps < LOADING and os.environ.get(VARIABLE) != "now":
            return None
        return self._loaded

    @cached_property
    def _loaded(self) -> Any:
        return versioned_beside(loop.versioned, (tape, kernel), run_once, f"{__name__}:compiled_loop")


compiled_loop = CompiledLoop()


def run_once(made: Any) -> None:
    """Call the loop with arguments of all its types, which compiles it or reads it from the disk."""
    made(loop.CLOSE, motions.idle(), loop.rule_of(), loop.place_of(np.zeros(0)), loop.rows_of(1, 0, (0, 0, 0)), 0.0)
