"""The compiled loop of `loop`, where numba has compiled it; the interpreted one otherwise.

Compilation takes a minute, once per machine: it goes on beside the work, in a process that fills numba's cache,
and this process stays interpreted. Which of the two it is, is decided once per process. The environment variable
`NOSNOC_PY_COMPILED` changes this: "never" is interpreted, "now" waits for the compilation.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from nosnoc_py.compiled import versioned_beside
from nosnoc_py.motion import tape
from nosnoc_py.simulation.event_driven import kernel, loop, motions


@functools.cache
def compiled_loop() -> Any:
    """Return the compiled loop, None to use the interpreted one."""
    return versioned_beside(loop.versioned, (tape, kernel), run_once, f"{__name__}:compiled_loop")


def run_once(made: Any) -> None:
    """Call the loop with arguments of all its types, which compiles it or reads it from the disk."""
    made(loop.CLOSE, motions.idle(), loop.rule_of(), loop.place_of(np.zeros(0)), loop.rows_of(1, 0, (0, 0, 0)), 0.0)
