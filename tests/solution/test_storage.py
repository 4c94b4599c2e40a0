"""Files: everything comes back to the bit, or the file is refused."""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from nosnoc_py.errors import OptionError, TranscriptionError
from nosnoc_py.solution import Event, RungeKuttaInterpolant, Series, Solution, Trajectory, load, save, storage


def bits(value: Any) -> Any:
    """Something that is equal exactly when the values are, NaN and the sign of zero included."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype, value.tobytes()
    if isinstance(value, Series):
        return bits(value.t), bits(value.values), value.role
    if isinstance(value, RungeKuttaInterpolant):
        return {f.name: bits(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Event):
        return bits(value.to_dict())
    if isinstance(value, tuple):
        return [bits(item) for item in value]
    if isinstance(value, dict):
        return [(key, bits(item)) for key, item in value.items()]
    return repr(value)


def assert_same(one: Trajectory, other: Trajectory) -> None:
    assert type(one) is type(other)
    for f in fields(one):
        assert bits(getattr(one, f.name)) == bits(getattr(other, f.name)), f.name


def test_trajectory_round_trip(trajectory: Trajectory, tmp_path: Path) -> None:
    path = trajectory.save(tmp_path / "run.nc")
    assert_same(load(path), trajectory)
    np.testing.assert_allclose(load(path)(1.0, "-"), trajectory(1.0, "-"), rtol=0, atol=1e-14)


def test_solution_round_trip(solution: Solution, tmp_path: Path) -> None:
    again = load(save(solution, str(tmp_path / "run.nc")))
    assert_same(again, solution)
    assert not again.x.flags.writeable


def test_bare_round_trip(tmp_path: Path) -> None:
    bare = Trajectory(t=[0], x=[[np.nan]], state_names=["γ"], u_grid=[0], u=np.zeros((0, 0)), control_names=[])
    assert_same(load(bare.save(tmp_path / "bare.nc")), bare)


doubles = st.floats(allow_nan=True, allow_infinity=True, width=64)


@given(
    x=arrays(float, st.tuples(st.integers(1, 4), st.integers(0, 3)), elements=doubles),
    u=arrays(float, st.tuples(st.integers(0, 3), st.integers(0, 2)), elements=doubles),
    values=arrays(float, st.integers(0, 3), elements=doubles),
    name=st.text(),
    number=doubles,
)
def test_any_numbers_and_names_round_trip(x, u, values, name: str, number: float) -> None:
    trajectory = Trajectory(
        t=np.arange(len(x)),
        x=x,
        state_names=tuple(f"x{k}" for k in range(x.shape[1])),
        u_grid=np.arange(len(u) + 1),
        u=u,
        control_names=tuple(f"u{k}" for k in range(u.shape[1])),
        series={f"s {name}": Series(values, values)},
        events=(Event(number, name, "switch"),),
        parameters={f"p {name}": number},
        message=name,
    )
    with tempfile.TemporaryDirectory() as folder:
        assert_same(load(trajectory.save(Path(folder) / "run.nc")), trajectory)


def test_every_truncation_is_refused(solution: Solution, tmp_path: Path) -> None:
    path = solution.save(tmp_path / "run.nc")
    data = path.read_bytes()
    for length in [0, 3, 4, *range(5, len(data), 97), len(data) - 8, len(data) - 1]:
        path.write_bytes(data[:length])
        with pytest.raises(TranscriptionError, match="expected a complete netCDF-3 file"):
            load(path)


def test_a_changed_bit_is_never_another_result(solution: Solution, tmp_path: Path) -> None:
    """300 places of a file, one bit each: it is refused, or what is read is what was written."""
    path = save(solution, tmp_path / "solution.nc")
    data, rng, refused = path.read_bytes(), np.random.default_rng(0), 0
    for place in rng.integers(len(data), size=300):
        path.write_bytes(data[:place] + bytes([data[place] ^ (1 << int(rng.integers(8)))]) + data[place + 1 :])
        try:
            assert_same(load(path), solution)
        except TranscriptionError:
            refused += 1
    assert refused > 200  # the rest lies in names and padding that nobody reads


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    from scipy.io import netcdf_file

    (tmp_path / "text.nc").write_text("t, x\n0, 1\n")
    with netcdf_file(tmp_path / "foreign.nc", "w") as file:
        file.title = "a thermometer"
    with netcdf_file(tmp_path / "list.nc", "w") as file:
        file.nosnoc_py = json.dumps([1])
    for name in ("text.nc", "foreign.nc", "list.nc"):
        with pytest.raises(TranscriptionError, match="of another origin"):
            load(tmp_path / name)
    with pytest.raises(OptionError, match="there is no file"):
        load(tmp_path / "absent.nc")


def test_folders_are_made_and_other_formats_are_refused(trajectory: Trajectory, tmp_path: Path) -> None:
    assert_same(load(trajectory.save(tmp_path / "new" / "folder" / "run.nc")), trajectory)
    for name in ("run.h5", "run"):
        with pytest.raises(OptionError, match=r"run\.nc"):
            trajectory.save(tmp_path / "other" / name)
    assert not (tmp_path / "other").exists()


def test_other_format_version_is_refused(trajectory: Trajectory, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(storage, "FORMAT_VERSION", 99)
    path = trajectory.save(tmp_path / "run.nc")
    monkeypatch.undo()
    with pytest.raises(TranscriptionError, match="given format_version 99, expected 3"):
        load(path)


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(trajectory: Trajectory, tmp_path: Path, monkeypatch) -> None:
    path = trajectory.save(tmp_path / "run.nc")

    def full_disk(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="no space"):
        replace(trajectory, message="newer").save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["run.nc"]
    assert_same(load(path), trajectory)


def test_xarray_opens_it(trajectory: Trajectory, tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    with xarray.open_dataset(trajectory.save(tmp_path / "run.nc"), engine="scipy") as dataset:
        assert dataset["x"].dims == ("node", "state")
        np.testing.assert_array_equal(dataset["x"], trajectory.x)
