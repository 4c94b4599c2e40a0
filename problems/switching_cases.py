"""Simulations of motions at a surface of discontinuity, with closed forms: `python -m problems.switching_cases`.

Crossing, sliding, leaving and the repulsive surface of `models.switching_cases`, by FESD with Stewart's multipliers or
(`--set dcs_mode=step`) step functions. The pieces of all motions are polynomials, so the remaining error is due to
switch detection. On the repulsive surface every departure is a solution; the errors show which one was computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import nosnoc_py as ns
from models import switching_cases
from models.switching_cases import BY_NAME
from nosnoc_py.errors import OptionError, unknown_name
from problems.runner import program, simulated
from tests.references.switching import SMALL, compare

METHOD = ns.FESD(finite_elements=3, rk_stages=3)
SOLVER = ns.Auto()


def simulate(
    case: str = "sliding", steps: int = 5, *, method: ns.FESD = METHOD, solver: Any = SOLVER, callback: Any = None
) -> ns.Trajectory:
    """Simulate a case of `models.switching_cases` by its name."""
    if case not in BY_NAME:
        raise OptionError(unknown_name(case, BY_NAME, "case"))
    chosen = BY_NAME[case]
    return ns.simulate(
        switching_cases.build(chosen),
        x0=chosen.x0,
        duration=chosen.duration,
        steps=steps,
        method=method,
        solver=solver,
        callback=callback,
    )


def right(errors: Mapping[str, Any]) -> bool:
    """Check whether state, events and surface agree with the closed form."""
    return max(errors["state_error"], errors["surface_error"], *errors["event_errors"]) <= SMALL


PROGRAM = program(
    __name__,
    simulated(simulate, compare, right),
    simulate,
    quick={},
    method=METHOD,
    solver=SOLVER,
    fixed=("control_stages",),
)
