"""Panels of a figure: names grouped by kind and unit. Decided here, drawn in `figures`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from nosnoc_py.errors import OptionError
from nosnoc_py.roles import Role
from nosnoc_py.solution.trajectory import Trajectory

Kind = Literal["state", "control", "impulse", "force", "multiplier", "series"]

TIME = "t"  # what systems call the time among their states
SAME = 1e-9  # of the duration: times that differ by rounding
SMALLEST = 1e-6  # of the largest force or impulse; less is what the relaxation leaves where nothing touches
TOUCHING = ("impact", "contact", "release", "slip", "stick", "reversal")  # events that tell that something touches

_QUANTITIES = {
    "m": "position",
    "rad": "angle",
    "m/s": "velocity",
    "rad/s": "angular velocity",
    "kg m/s": "momentum",
    "kg m^2/s": "angular momentum",
    "J": "energy",
    "W": "power",
}
_UNITS = {"force": "N", "impulse": "N s"}
# Contact forces begin with these; lambda[...], lambda_n[...] and lambda_p[...] of Filippov systems are multipliers.
FORCES = ("lambda_normal", "lambda_tangent", "lambda_direction")


@dataclass(frozen=True)
class Panel:
    """Names that share an axis, with what to write beside it."""

    title: str
    unit: str
    names: tuple[str, ...]

    @property
    def heading(self) -> str:
        """Label of the vertical axis: the name if there is only one, else the quantity."""
        return self.names[0] if len(self.names) == 1 else self.title


def panels_of(trajectory: Trajectory, names: Sequence[str | Sequence[str]] | None) -> list[Panel]:
    """Group names by kind and unit, in the order given; a sequence inside `names` is a panel of its own.

    Raises
    ------
    UnknownNameError
        If a name is not a quantity over time.
    OptionError
        If nothing is left to draw.
    """
    groups: dict[object, list[str]] = {}
    for k, item in enumerate(worth_drawing(trajectory) if names is None else names):
        if isinstance(item, str):
            groups.setdefault((kind_of(trajectory, item), *_caption(trajectory, item)), []).append(item)
        else:
            groups[k] = list(item)
    panels = [_panel(trajectory, group) for group in groups.values() if group]
    if not panels:
        raise OptionError("there is nothing to draw: give the names of states, controls or series.")
    return panels


def kind_of(trajectory: Trajectory, name: str) -> Kind:
    """Return how a name is drawn; contact forces, impulses and multipliers are series with names of their own."""
    trajectory.times(name)  # refuses what has no times, with suggestions
    if name in trajectory.state_names:
        return "state"
    if name in trajectory.control_names:
        return "control"
    if name.startswith("lambda"):
        return "force" if name.startswith(FORCES) else "multiplier"
    return "impulse" if name.startswith("Lambda") else "series"


def worth_drawing(trajectory: Trajectory) -> list[str]:
    """States, controls, and the forces and impulses that act; auxiliary variables are drawn on request only.

    Costates are no auxiliary variables of methods that solve for them.
    """
    series = [
        name
        for name in trajectory.series
        if kind_of(trajectory, name) in ("force", "multiplier", "impulse") and acting(trajectory, name).any()
    ]
    costates = [name for name, series in trajectory.series.items() if series.role is Role.COSTATE]
    # The time as a state is the other axis.
    states = [name for name in trajectory.state_names if name != TIME or not _is_time(trajectory)]
    return [*states, *trajectory.control_names, *sorted(series, key=str.lower), *costates]


def _is_time(trajectory: Trajectory) -> bool:
    return float(np.ptp(trajectory[TIME] - trajectory.t)) <= SAME * max(1.0, trajectory.duration)


def acting(trajectory: Trajectory, name: str) -> npt.NDArray[np.bool_]:
    """Which samples of a contact force, an impulse or a multiplier are more than what a relaxation leaves.

    Forces are also compared with impulses over the duration, and impulses without impacts with forces. Where no event
    says that anything has touched, what is small in N is nothing.
    """
    if kind_of(trajectory, name) == "multiplier":
        largest = max(_largest(trajectory, other) for other in _of_kind(trajectory, "multiplier"))
        return np.abs(trajectory[name]) > SMALLEST * max(largest, SMALLEST)
    span = trajectory.duration or 1.0
    force = max((_largest(trajectory, other) for other in _of_kind(trajectory, "force")), default=0.0)
    impulses = [_largest(trajectory, other) for other in _of_kind(trajectory, "impulse")]
    impulse = max([*impulses, *(float(np.abs(event.impulse or 0.0)) for event in trajectory.impacts)], default=0.0)
    if kind_of(trajectory, name) == "force":
        reference = max(force, impulse / span)
    else:
        reference = impulse if trajectory.impacts else max(impulse, force * span)
    if not any(event.kind in TOUCHING for event in trajectory.events):
        reference = max(reference, 1.0)
    return np.abs(trajectory[name]) > SMALLEST * reference


def _of_kind(trajectory: Trajectory, kind: Kind) -> list[str]:
    return [name for name in trajectory.series if kind_of(trajectory, name) == kind]


def _largest(trajectory: Trajectory, name: str) -> float:
    values = np.abs(trajectory[name])
    return float(np.max(values, where=np.isfinite(values), initial=0.0))


def _panel(trajectory: Trajectory, names: Sequence[str]) -> Panel:
    captions = [_caption(trajectory, name) for name in names]
    title, unit = captions[0]
    same = all(unit == other for _, other in captions)
    return Panel(_stem(names) if title == "state" and unit else title, unit if same else "", tuple(names))


def _stem(names: Sequence[str]) -> str:
    """Return the common beginning of names such as R_00, R_01; "state" if there is none."""
    stems = {name.rstrip("0123456789").rstrip("_") for name in names}
    return (stems.pop() if len(stems) == 1 else "") or "state"


def _caption(trajectory: Trajectory, name: str) -> tuple[str, str]:
    """Quantity and unit of a name; without a unit, velocities are recognised by their v."""
    kind = kind_of(trajectory, name)
    unit = trajectory.units.get(name, _UNITS.get(kind, ""))
    series = trajectory.series.get(name)
    if series is not None and series.role in (Role.COSTATE, Role.COSTATE_ESTIMATE):
        return "costate", unit
    if kind != "state":
        caption = "contact force" if kind == "force" else kind
        return (_QUANTITIES.get(unit, kind) if kind == "series" else caption), unit
    return _QUANTITIES.get(unit, "velocity" if name.startswith("v") and not unit else "state"), unit
