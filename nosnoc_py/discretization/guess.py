"""Initial guesses on the nodes of a discretisation, from whatever the user has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.discretization.grid import Grid
from nosnoc_py.errors import TranscriptionError
from nosnoc_py.mpcc.layout import At, Block
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.reformulation.dcs import DCS
from nosnoc_py.solution import Trajectory


@dataclass(frozen=True, eq=False)
class Places:
    """Nominal times of all places of a discretisation: every element has its equal share of its control stage."""

    grid: Grid
    c: np.ndarray
    horizon: float

    def time(self, name: str, at: At) -> float:
        """Time [s] of a block; right ends of elements for "x_right", left ends for boundary variables."""
        length = self.horizon / self.grid.control_stages
        start = (at.stage or 0) * length
        if at.element is None:
            return start + (0.5 * length if name == "u" else 0.0)
        h = length / self.grid.elements[at.stage or 0]
        inside = 1.0 if name == "x_right" else 0.0 if at.rk is None else float(self.c[at.rk])
        return start + (at.element + inside) * h


def boundary_values(dcs: DCS, which: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Function (x_minus, p) -> boundary variables, by their "rest" values or their "estimate"."""
    if dcs.jump is None:
        return lambda x, p: np.zeros(0)
    values = []
    for variable in dcs.jump.variables:
        given = getattr(variable, which)
        size = len(variable.components)
        values.append(ca.SX(np.broadcast_to(variable.initial, (size,)).copy()) if given is None else given)
    function = ca.Function(which, [dcs.jump.x_minus, dcs.p], [ca.vertcat(ca.SX(0, 1), *values)])
    return lambda x, p: np.asarray(function(x, p)).reshape(-1)


def fill(
    mpcc: MPCC,
    dcs: DCS,
    places: Places,
    p: np.ndarray,
    state: Callable[[float, str], np.ndarray],
    control: Callable[[float], np.ndarray] | None = None,
    series: Callable[[str, float], float | None] = lambda name, t: None,
    boundary: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
) -> np.ndarray:
    """Return w with states, controls, algebraic and boundary variables set at their nominal times.

    Parameters
    ----------
    state : function (t, side) -> (n_x,)
    control : function t -> (n_u,), optional
    series : function (name, t) -> value or None
    boundary : function (x_minus, p) -> boundary variables; default at rest.
    """
    w = mpcc.w0.copy()
    at_boundary = boundary_values(dcs, "rest") if boundary is None else boundary
    offsets = _offsets(dcs)
    for block in mpcc.variables.blocks():
        t = places.time(block.name, block.at)
        if block.name in ("x", "x_right", "x_initial"):
            w[block.rows] = state(t, "-")
        elif block.name == "u" and control is not None:
            w[block.rows] = control(t)
        elif block.name in offsets:
            values = at_boundary(state(t, "-"), p)
            w[block.rows] = values[offsets[block.name]]
        else:
            _fill_named(w, block, t, series)
    return w


def _offsets(dcs: DCS) -> Mapping[str, slice]:
    offsets: dict[str, slice] = {}
    start = 0
    for variable in dcs.jump.variables if dcs.jump is not None else ():
        offsets[variable.name] = slice(start, start + len(variable.components))
        start += len(variable.components)
    return offsets


def _fill_named(w: np.ndarray, block: Block, t: float, series: Callable[[str, float], float | None]) -> None:
    for i, name in enumerate(block.components):
        value = series(name, t)
        if value is not None:
            w[block.start + i] = value


def control_guess(guess: Any, n_u: int, horizon: float) -> Callable[[float], np.ndarray]:
    """A control as a function of time, from a constant, a function of time, or an array with a row per interval.

    Raises
    ------
    TranscriptionError
        For another kind of object, a wrong shape, or NaN.
    """
    if callable(guess):
        return lambda t: _row(guess(t), n_u)
    try:
        array = np.asarray(guess, dtype=float)
    except (TypeError, ValueError):
        raise TranscriptionError(
            f"guess: expected a control ({n_u} numbers or rows of them), a function of time, a Trajectory or a "
            f"Solution, given {type(guess).__name__}."
        ) from None
    if array.ndim == 2:
        rows = [_row(row, n_u) for row in array]
        return lambda t: rows[min(int(t / horizon * len(rows)), len(rows) - 1)]
    row = _row(array, n_u)
    return lambda t: row


def _row(value: Any, n_u: int) -> np.ndarray:
    row = np.asarray(value, dtype=float).reshape(-1)
    if row.size != n_u:
        raise TranscriptionError(f"control: expected {n_u} numbers, given {row.size}.")
    if np.isnan(row).any():
        raise TranscriptionError(f"control: contains NaN: {row}.")
    return row


def trajectory_series(trajectory: Trajectory) -> Callable[[str, float], float | None]:
    """Look up a named series of a trajectory by time; None where it has no such series."""

    def look(name: str, t: float) -> float | None:
        found = trajectory.series.get(name)
        if found is None or not len(found):
            return None
        return float(np.interp(t, found.t, found.values))

    return look
