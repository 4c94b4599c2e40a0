"""Trajectories as xarray and pandas objects; both packages are optional and imported only here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nosnoc_py.errors import optional

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    from nosnoc_py.solution.trajectory import Trajectory


MISSING = 'this conversion needs {0}, which is not installed: pip install "nosnoc_py[data]".'


def to_xarray(trajectory: Trajectory) -> xr.Dataset:
    """Return a Dataset with one variable per name.

    Dimensions are `node` (states), `control_stage` (controls) and `grid_0, grid_1, ...`: one for every time grid
    that series share. Their times are the coordinates `node_time`, `control_stage_time`, `grid_0_time`, ...;
    parameters are scalar variables.
    """
    xarray = optional("xarray", MISSING.format("xarray"))
    dims = _dimensions(trajectory)
    units = trajectory.units
    variables = {name: (dims[name], trajectory[name], {"units": units[name]} if name in units else {}) for name in dims}
    coords = {f"{dim[0]}_time": (dim, trajectory.times(name), {"units": "s"}) for name, dim in dims.items() if dim}
    attrs = {"status": str(trajectory.status), "message": trajectory.message}
    return xarray.Dataset(variables, coords=coords, attrs=attrs)


def to_dataframe(trajectory: Trajectory) -> pd.DataFrame:
    """Return the states over the nodes, with the time in the column `t`."""
    frame: pd.DataFrame = optional("pandas", MISSING.format("pandas")).DataFrame(
        trajectory.x, columns=list(trajectory.state_names)
    )
    # a time-frozen system may well have a state called t
    frame.insert(0, "t", trajectory.t, allow_duplicates=True)
    return frame


def _dimensions(trajectory: Trajectory) -> dict[str, tuple[str, ...]]:
    """Dimension of every name; series on equal times share one."""
    dims: dict[str, tuple[str, ...]] = dict.fromkeys(trajectory.state_names, ("node",))
    dims |= dict.fromkeys(trajectory.control_names, ("control_stage",))
    grids: dict[bytes, str] = {}
    for name, series in trajectory.series.items():
        dims[name] = (grids.setdefault(series.t.tobytes(), f"grid_{len(grids)}"),)
    return dims | dict.fromkeys(trajectory.parameters, ())
