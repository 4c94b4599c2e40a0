"""The same scenes in other units: `python -m problems.benchmarks.rescaled_scenes`.

Every motion with friction in `tests.references` is simulated as it is, in millimetres and milligrams, and in kilometres
and tonnes. Units are a choice of the user's, so that states, events and verdicts have to be the same in all of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import casadi as ca
import numpy as np
from attrs import evolve

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from nosnoc_py.systems.rescaled import rescaled
from problems.benchmarks.orders import check_names
from problems.runner import Report, program, tabled
from problems.settings import Settings
from tests.references.friction_closed_forms import BY_NAME, CASES
from tests.references.friction_motion import Case, compared_events

UNITS: Mapping[str, tuple[float, float]] = {"m, kg": (1.0, 1.0), "mm, mg": (1e3, 1e6), "km, t": (1e-3, 1e-3)}
METHODS: Mapping[str, Any] = {
    "finite elements": ns.FESDJ(finite_elements=2, rk_stages=3, scheme="radau_iia"),
    "event-driven": ns.EventDriven(),
}
LENGTHS = ("m", "m/s")


@dataclass(frozen=True, kw_only=True)
class Row:
    """Result of one simulation of one case.

    Parameters
    ----------
    case, units, method, status : str
    error : float
        Largest error of the state at the end, in metres; NaN without one.
    missing, extra : tuple of str
        Events that were missed, and events that are not in the closed form.
    message : str
    """

    case: str
    units: str
    method: str
    status: str
    error: float = np.nan
    missing: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    message: str = ""

    @property
    def success(self) -> bool:
        """True if the motion is that of the closed form, to a millionth of a metre."""
        return self.status == "solved" and self.error < 1e-6 and not self.missing and not self.extra


def in_units(system: ns.CLS, length: float, mass: float) -> tuple[ns.CLS, np.ndarray]:
    """Return a system in other units of length and mass, and the factors (2 n_q,) of its states.

    The units of the system determine which coordinates are lengths; seconds and angles do not change.
    """
    names = (*system.names["q"], *system.names["v"])
    factors = np.array([length if system.units.get(name) in LENGTHS else 1.0 for name in names])
    force = ca.substitute([ca.SX(system.force)], [system.u], [system.u / (mass * length)])[0]
    system_in_units = rescaled(
        evolve(system, force=force), q=1.0 / factors[: system.n_q], gap=1.0 / length, time=1.0, mass=1.0 / mass
    )
    return system_in_units, factors


def simulate(case: Case, units: str, method: str, steps: int = 7) -> Row:
    """Simulate one case in some units."""
    length, mass = UNITS[units]
    system, factors = in_units(case.system, length, mass)
    chosen = METHODS[method]
    more: dict[str, Any] = {} if isinstance(chosen, ns.EventDriven) else {"steps": steps}
    trajectory = ns.simulate(
        system, x0=factors * case.x0, u=mass * length * case.u, duration=case.duration, method=chosen, **more
    )
    row = Row(
        case=case.name, units=units, method=method, status=trajectory.status.value, message=trajectory.message[:200]
    )
    if not trajectory.success:
        return row
    events = tuple((event.kind, event.name, event.time) for event in trajectory.events)
    compared = compared_events(case.events, events)
    error = float(np.abs(trajectory.final_state / factors - case.exact(case.duration)).max())
    return replace(row, error=error, missing=compared["missing"], extra=compared["extra"])


def experiment(*, cases: Sequence[str] = (), methods: Sequence[str] = tuple(METHODS), steps: int = 7) -> Iterator[Row]:
    """Yield all rows.

    Parameters
    ----------
    cases : tuple of str
        Names, by default all.
    methods : tuple of str
    steps : int
        Steps of finite elements.

    Raises
    ------
    OptionError
        For an unknown case or method.
    """
    check_names(case=(cases, BY_NAME), method=(methods, METHODS))
    for case in [BY_NAME[name] for name in cases] or CASES:
        for method in methods:
            for units in UNITS:
                yield simulate(case, units, method, steps)


def run(settings: Settings, progress: Progress) -> Report:
    """Do the experiment and report."""
    started = time.monotonic()
    rows = list(experiment(**settings.arguments))
    results = {"wall_seconds": time.monotonic() - started, "rows": [{**vars(r), "success": r.success} for r in rows]}
    groups = {
        (row.method, row.units): [r for r in rows if (r.method, r.units) == (row.method, row.units)] for row in rows
    }
    counts = [
        {
            "method": method,
            "units": units,
            "as in closed form": f"{sum(row.success for row in group)} of {len(group)}",
            "largest error [m]": max(row.error for row in group),
        }
        for (method, units), group in groups.items()
    ]
    failed = [vars(row) for row in rows if not row.success]
    return tabled(results, not failed, {"motions": counts, "others": failed})


PROGRAM = program(__name__, run, experiment, quick={"cases": ("bounce_slip_2d", "landing_stick_3d", "rod_tip_kick_2d")})
