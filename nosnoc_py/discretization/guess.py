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


def boundary_estimate(dcs: DCS) -> Callable[[np.ndarray, np.ndarray, np.ndarray | None], np.ndarray]:
    """Function (x_minus, p, hit) -> likely values of all boundary variables; nothing hits where hit is None."""
    jump = dcs.jump
    if jump is None:
        return lambda x, p, hit: np.zeros(0)
    values = [
        ca.SX(np.broadcast_to(v.initial, (len(v.components),)).copy()) if v.estimate is None else v.estimate
        for v in jump.variables
    ]
    function = ca.Function("estimate", [jump.x_minus, dcs.p, jump.hit], [ca.vertcat(ca.SX(0, 1), *values)])
    none = np.zeros(jump.hit.numel())
    return lambda x, p, hit: np.asarray(function(x, p, none if hit is None else hit)).reshape(-1)


def fill(
    mpcc: MPCC,
    dcs: DCS,
    places: Places,
    p: np.ndarray,
    state: Callable[[float, str], np.ndarray],
    control: Callable[[float], np.ndarray] | None = None,
    series: Callable[[str, float], float | None] = lambda name, t: None,
) -> np.ndarray:
    """Return w with states, controls and algebraic variables set at their nominal times; nothing hits at the nodes.

    Parameters
    ----------
    state : function (t, side) -> (n_x,)
    control : function t -> (n_u,), optional
    series : function (name, t) -> value or None
    """
    w = mpcc.w0.copy()
    at_boundary, offsets = boundary_estimate(dcs), boundary_rows(dcs)
    for block in mpcc.variables.blocks():
        t = places.time(block.name, block.at)
        if block.name in ("x", "x_right", "x_initial"):
            w[block.rows] = state(t, "-")
        elif block.name == "u" and control is not None:
            w[block.rows] = control(t)
        elif block.name in offsets:
            values = at_boundary(state(t, "-"), p, None)
            w[block.rows] = values[offsets[block.name]]
        else:
            _fill_named(w, block, t, series)
    return w


def boundary_rows(dcs: DCS) -> Mapping[str, slice]:
    """Where every boundary variable stands among all of them."""
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
