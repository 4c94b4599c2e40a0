"""Trajectories as xarray and pandas objects; both packages are optional and imported only here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nosnoc_py.errors import optional
from nosnoc_py.solution.arrays import Array

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from nosnoc_py.solution.trajectory import Trajectory


MISSING = 'this conversion needs {0}, which is not installed: pip install "nosnoc_py[data]".'


def to_xarray(trajectory: Trajectory) -> xr.Dataset:
    """Return a Dataset with one variable per name.

    Dimensions are `node` (states), `control_stage` (controls), and for the series, by their times, `impact` (those of
    the impacts), `element_end` (some of the nodes) and `sample` (all others); further ones of a kind are `sample_1` and
    so on. Their times are the coordinates `node_time`, `control_stage_time`, `impact_time`, ...; parameters are scalar
    variables.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ns.Contact("ground", gap=q, restitution=0.5)])
    >>> table = ns.simulate(ball, x0=[1.0, 0.0], duration=0.6).to_xarray()
    >>> table["Lambda_normal[ground]"].dims, len(table["impact_time"])
    (('impact',), 1)
    """
    xarray = optional("xarray", MISSING.format("xarray"))
    dims = _dimensions(trajectory)
    units = trajectory.units
    variables = {name: (dims[name], trajectory[name], {"units": units[name]} if name in units else {}) for name in dims}
    coords = {f"{dim[0]}_time": (dim, trajectory.times(name), {"units": "s"}) for name, dim in dims.items() if dim}
    attrs = {"status": str(trajectory.status), "message": trajectory.message}
    return xarray.Dataset(variables, coords=coords, attrs=attrs)


def to_dataframe(trajectory: Trajectory) -> pd.DataFrame:
    """Return the states over the nodes, with the time in the column `t`, or `time` where `t` is a state.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> x = ca.SX.sym("x")
    >>> table = ns.simulate(ns.ODE(x=x, flow=-x), x0=[2.0], duration=1.0).to_dataframe()
    >>> list(table.columns), float(table["x_0"].iloc[0])
    (['t', 'x_0'], 2.0)
    """
    frame: pd.DataFrame = optional("pandas", MISSING.format("pandas")).DataFrame(
        trajectory.x, columns=list(trajectory.state_names)
    )
    # Where the time is a state already, that of the nodes needs another name: they may begin at different times.
    frame.insert(0, "time" if "t" in trajectory.state_names else "t", trajectory.t)
    return frame


def _kind_of(t: Array, trajectory: Trajectory) -> str:
    """Return the kind of times that a series has: of impacts, of ends of elements, or others."""
    impacts = [event.time for event in trajectory.events if event.kind == "impact"]
    # Exact comparison: these times are copies of those of the events and nodes.
    if t.size and np.isin(t, impacts).all():
        return "impact"
    return "element_end" if np.isin(t, trajectory.t).all() else "sample"


def _dimensions(trajectory: Trajectory) -> dict[str, tuple[str, ...]]:
    """Return the dimension of every name; series on equal times share one."""
    dims: dict[str, tuple[str, ...]] = dict.fromkeys(trajectory.state_names, ("node",))
    dims |= dict.fromkeys(trajectory.control_names, ("control_stage",))
    grids: dict[bytes, str] = {}
    for name, series in trajectory.series.items():
        # Bytes as key: arrays are not hashable, and equal times share a dimension.
        key = series.t.tobytes()
        if key not in grids:
            word = _kind_of(series.t, trajectory)
            # A second grid of a kind gets a number: dimensions of one name have one length.
            more = sum(taken.startswith(word) for taken in grids.values())
            grids[key] = f"{word}_{more}" if more else word
        dims[name] = (grids[key],)
    return dims | dict.fromkeys(trajectory.parameters, ())
