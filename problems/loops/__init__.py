"""Closed loops of model predictive control, from the toolbox nosnoc and of this repository, as values of one kind.

`LOOPS["walls"]()` returns a `Loop`: the problem of the controller, the plant, the period, the noise and the kicks.
`problems.loops.common.closed` runs one with any controller. A module is imported when its loop is asked for.
`python -m problems.benchmarks.closed_loops` runs all loops and measures the controllers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from types import MappingProxyType

from problems.loops.common import Loop

# Modules with a function `task` that returns the loop: five of the toolbox, then those of this repository.
MODULES: Mapping[str, str] = MappingProxyType(
    {
        "cart_pole": "problems.loops.cart_pole",
        "drone": "problems.loops.drone",
        "spinner": "problems.loops.spinner",
        "projected_discs": "problems.loops.projected_discs",
        "tank": "problems.loops.tank",
        "walls": "problems.walled_cart_pole",
        "paddle": "problems.paddle_loop",
        "discs": "problems.disc_loop",
        "particle": "problems.loops.particle",
        "hopper": "problems.loops.hopper",
    }
)


def _loop(name: str) -> Loop:
    """Return a loop by its name."""
    # Not imported above: three of the modules import this package.
    loop: Loop = import_module(MODULES[name]).task()
    return loop


LOOPS: dict[str, Callable[[], Loop]] = {name: partial(_loop, name) for name in MODULES}
