"""The compiled loop of `loop`, where numba has compiled it; the interpreted one otherwise.

Compilation takes a minute, once per machine: it goes on beside the work, in a process that fills numba's cache,
and this process stays interpreted. Which of the two it is, is decided once per process. The environment variable
`NOSNOC_PY_COMPILED` changes this: "never" is interpreted, "now" waits for the compilation.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from nosnoc_py.compiled import available, beside, compiled, version_of
from nosnoc_py.motion import tape
from nosnoc_py.motion.tape import LANES
from nosnoc_py.simulation.event_driven import kernel, motions


@functools.cache
def compiled_loop() -> Any:
    """Return the compiled loop, None to use the interpreted one."""
    if not available():
        return None
    from nosnoc_py.simulation.event_driven import loop  # which imports SciPy's

    try:
        made = compiled(loop.versioned(version_of(tape, kernel)), cache=True, raises=False)
    except RuntimeError:  # no folder for a cache can be written
        return None
    return beside(made, run_once, f"{__name__}:compiled_loop")


def run_once(made: Any) -> None:
    """Call the loop with arguments of all its types, which compiles it or reads it from the disk."""
    from nosnoc_py.simulation.event_driven import loop

    made(loop.CLOSE, idle(), loop.rule_of(), loop.place_of(np.zeros(0)), loop.rows_of(1, 0, (0, 0, 0)), 0.0)


def idle() -> kernel.ArrayMotion:
    """Return a motion of nothing."""
    numbers, vector = np.zeros(0, dtype=np.int64), np.zeros(0)
    matrix = np.zeros((0, 0))
    return kernel.ArrayMotion(
        sizes=kernel.Sizes(0, 0, 0, 0, True, False, False),
        first=motions.NO_TAPE,
        second=motions.NO_TAPE,
        third=motions.NO_TAPE,
        arguments=np.zeros((0, LANES)),
        outs=np.zeros((0, LANES)),
        **dict.fromkeys(("modes", "starts", "widths", "closed", "rows", "used", "column"), numbers),
        **dict.fromkeys(("matrix", "right", "columns", "small"), matrix),
        **dict.fromkeys(("argument", "out", "second_out", "friction", "direction", "speed", "along"), vector),
        **dict.fromkeys(("forces", "values", "rates", "stiff", "acceleration"), vector),
    )
