"""What shares an axis: names grouped by kind and unit. Decided here, drawn in `figures`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.solution.solution import costate_name
from nosnoc_py.solution.trajectory import Trajectory

Kind = Literal["state", "control", "impulse", "force", "series"]

SMALLEST = 1e-6  # in N or N s; less is what the relaxation leaves where nothing touches

INDIRECT = ("MinimumPrinciple", "AutonomousSwitching")  # methods whose unknowns the costates are

_QUANTITIES = {
    "m": "position",
    "rad": "angle",
    "m/s": "velocity",
    "rad/s": "angular velocity",
    "kg m/s": "momentum",
    "kg m^2/s": "angular momentum",
}
_UNITS = {"force": "N", "impulse": "N s"}


@dataclass(frozen=True)
class Panel:
    """Names that share an axis, with what to write beside it."""

    title: str
    unit: str
    names: tuple[str, ...]

    @property
    def label(self) -> str:
        """The label of the vertical axis: the name if there is one, else the quantity; with its unit."""
        title = self.names[0] if len(self.names) == 1 else self.title
        space = " " if len(title) < 15 else "\n"
        return f"{title}{space}[{self.unit}]" if self.unit else title


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
    for k, item in enumerate(_worth_drawing(trajectory) if names is None else names):
        if isinstance(item, str):
            groups.setdefault((kind_of(trajectory, item), *_caption(trajectory, item)), []).append(item)
        else:
            groups[k] = list(item)
    panels = [_panel(trajectory, group) for group in groups.values() if group]
    if not panels:
        raise OptionError("there is nothing to draw: give the names of states, controls or series.")
    return panels


def kind_of(trajectory: Trajectory, name: str) -> Kind:
    """Return how a name is drawn: contact forces are series called lambda..., impulses Lambda..."""
    trajectory.times(name)  # refuses what has no times, with suggestions
    if name in trajectory.state_names:
        return "state"
    if name in trajectory.control_names:
        return "control"
    if name.startswith("lambda"):
        return "force"
    return "impulse" if name.startswith("Lambda") else "series"


def _worth_drawing(trajectory: Trajectory) -> list[str]:
    """States, controls, and the forces and impulses that act; auxiliary variables are drawn on request only.

    Costates are no auxiliary variables of methods that solve for them.
    """
    series = [
        name
        for name in trajectory.series
        if kind_of(trajectory, name) in ("force", "impulse") and np.any(np.abs(trajectory[name]) > SMALLEST)
    ]
    indirect = str(getattr(trajectory, "method", "")).startswith(INDIRECT)
    costates = [name for name in map(costate_name, trajectory.state_names) if indirect and name in trajectory.series]
    return [*trajectory.state_names, *trajectory.control_names, *sorted(series, key=str.lower), *costates]


def _panel(trajectory: Trajectory, names: Sequence[str]) -> Panel:
    captions = [_caption(trajectory, name) for name in names]
    title, unit = captions[0]
    same = all(unit == other for _, other in captions)
    return Panel(_stem(names) if title == "state" and unit else title, unit if same else "", tuple(names))


def _stem(names: Sequence[str]) -> str:
    """What names such as R_00, R_01 share before their indices; "state" if that is nothing."""
    stems = {name.rstrip("0123456789").rstrip("_") for name in names}
    return (stems.pop() if len(stems) == 1 else "") or "state"


def _caption(trajectory: Trajectory, name: str) -> tuple[str, str]:
    """Quantity and unit of a name; without a unit, velocities are told by their v."""
    kind = kind_of(trajectory, name)
    unit = trajectory.units.get(name, _UNITS.get(kind, ""))
    if name.startswith("costate["):
        return "costate", unit
    if kind != "state":
        # Stewart's and the step formulation's lambda are no forces: their unit says so
        return ("multiplier" if not unit else "contact force") if kind == "force" else kind, unit
    return _QUANTITIES.get(unit, "velocity" if name.startswith("v") and not unit else "state"), unit
