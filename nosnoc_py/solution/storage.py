"""Results on disk: one netCDF-3 file that xarray opens and that `load` reads back to the bit.

Arrays are netCDF variables; everything else is one JSON attribute. JSON escapes non-ASCII characters, and Python writes
the shortest decimals that give the same number again, so names and numbers are restored exactly.

One codec serves all results: a record is the name of its class and its fields, an array the name of its variable, which
is the way to it through the fields. `packed` and `unpacked` are inverses. Invariants: a file is written entirely or not
at all; its checksum covers all numbers and words.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import OptionError, TranscriptionError
from nosnoc_py.files import write_atomically
from nosnoc_py.solution.arrays import Array

# Raised when the library could no longer read its old files.
FORMAT_VERSION = 3
SUFFIX = ".nc"
# Records and enumerations that files hold, by the names of their classes; the package lists them.
KINDS: dict[str, Any] = {}
# Metadata of a field that is not written: it holds functions or symbols.
NOT_STORED = {"stored": False}

# Global attribute of the file with the JSON.
_ATTRIBUTE = "nosnoc_py"
# Named dimensions for xarray; other arrays get dimensions of their own name.
_DIMENSIONS = {"t": ("node",), "x": ("node", "state"), "u_grid": ("control_edge",), "u": ("control_stage", "control")}


def save(result: Any, path: str | Path) -> Path:
    """Write a `Trajectory`, `Solution` or `ClosedLoop` to one file, entirely or not at all, with its folders.

    Returns
    -------
    Path
        The path written.

    Raises
    ------
    OptionError
        If the name of the file does not end in .nc.
    """
    path = Path(path)
    if path.suffix != SUFFIX:
        proposed = path.with_suffix(SUFFIX) if path.name else f"solution{SUFFIX}"
        raise OptionError(
            f"save: expected a netCDF file such as {str(proposed)!r}, given {str(path)!r}; for other formats write "
            "to_xarray() or to_dataframe() with their own methods."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Array] = {}
    meta = {"format_version": FORMAT_VERSION, "result": packed("", result, arrays)}
    write_atomically(path, _to_netcdf(meta, arrays))
    return path


@named_arguments
def load(path: str | Path) -> Any:
    """Read a file of `save`: a `Trajectory`, a `Solution`, or a `ClosedLoop`.

    Parameters
    ----------
    path : str or Path
        Name of a netCDF file (.nc).

    Returns
    -------
    Trajectory, Solution or ClosedLoop
        Equal to the saved one, but without the link to its problem: `polish` and `value` need the OCP or the system.

    Raises
    ------
    OptionError
        If there is no such file.
    TranscriptionError
        If the file is damaged, was not written by `save`, or has another format version.

    Examples
    --------
    >>> import tempfile, casadi as ca, nosnoc_py as ns
    >>> x = ca.SX.sym("x")
    >>> motion = ns.simulate(ns.ODE(x=x, flow=-x), x0=[2.0], duration=1.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = motion.save(f"{folder}/decay.nc")
    ...     loaded = ns.load(path)
    >>> loaded.state_names, bool((loaded.x == motion.x).all())
    (('x_0',), True)
    """
    if not isinstance(path, str | Path):
        raise OptionError(f"load: expected the path of a file, given {type(path).__name__}.")
    if not Path(path).is_file():
        raise OptionError(f"load: there is no file {str(path)!r}; expected one that save wrote, such as 'solution.nc'.")
    data = Path(path).read_bytes()
    try:
        meta, arrays = _from_netcdf(data)
    except Exception as error:  # scipy's parser raises errors of many types for foreign bytes
        raise _damaged(path, error) from error
    if meta.get("format_version") != FORMAT_VERSION:
        raise TranscriptionError(
            f"{path}: given format_version {meta.get('format_version')}, expected {FORMAT_VERSION}; read it with the "
            "version of nosnoc_py that wrote it, or make it again."
        )
    try:
        return unpacked(meta["result"], arrays)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, error) from error


def _damaged(path: str | Path, error: Exception) -> TranscriptionError:
    return TranscriptionError(
        f"{path}: expected a complete netCDF-3 file written by nosnoc_py (format_version {FORMAT_VERSION}); "
        f"the file is damaged or of another origin ({type(error).__name__}: {error})."
    )


def packed(name: str, value: Any, arrays: dict[str, Array]) -> Any:
    """Move the arrays of a value to `arrays`, named by the way to them, and return the rest as JSON."""

    def inner(key: object, part: Any) -> Any:
        return packed(f"{name}_{key}" if name else str(key), part, arrays)

    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"array": name, "type": value.dtype.str}
    if isinstance(value, Enum):
        return {"enumeration": type(value).__name__, "member": value.name}
    if is_dataclass(value):
        stored = (f.name for f in fields(value) if f.init and f.metadata.get("stored", True))
        return {"class": type(value).__name__, "fields": {part: inner(part, getattr(value, part)) for part in stored}}
    if isinstance(value, Mapping):  # by number, as names of series are free text
        return {"entries": [[key, inner(k, part)] for k, (key, part) in enumerate(value.items())]}
    if isinstance(value, tuple | list):
        return [inner(k, part) for k, part in enumerate(value)]
    return value


def unpacked(value: Any, arrays: Mapping[str, Array]) -> Any:
    """Undo `packed`; lists become tuples."""
    if isinstance(value, list):
        return tuple(unpacked(part, arrays) for part in value)
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]].astype(value["type"])
    if "enumeration" in value:
        return KINDS[value["enumeration"]][value["member"]]
    if "entries" in value:
        return {key: unpacked(part, arrays) for key, part in value["entries"]}
    return KINDS[value["class"]](**{name: unpacked(part, arrays) for name, part in value["fields"].items()})


def _to_netcdf(meta: dict[str, Any], arrays: dict[str, Array]) -> bytes:
    from scipy.io import netcdf_file

    # netCDF-3 reads a dimension of length zero as unlimited: of empty arrays only the shape is written.
    meta = {**meta, "shapes": {name: array.shape for name, array in arrays.items()}}
    # As a reader gets it (tuples are lists, keys are words), so that both compute the same checksum.
    meta = json.loads(json.dumps(meta, default=np.generic.item))
    buffer = io.BytesIO()
    with netcdf_file(buffer, "w", version=2) as file:
        setattr(file, _ATTRIBUTE, json.dumps({**meta, "checksum": _checksum(meta, arrays)}))
        for name, array in arrays.items():
            if array.size:
                _write_variable(file, name, array)
        file.flush()
        return buffer.getvalue()


def _checksum(meta: dict[str, Any], arrays: dict[str, Array]) -> str:
    """Return the SHA-256 of all numbers and words: netCDF itself does not detect a flipped bit in a number."""
    digest = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for name in sorted(arrays):
        # Little-endian on every machine.
        digest.update(name.encode() + np.ascontiguousarray(arrays[name], dtype="<f8").tobytes())
    return digest.hexdigest()


def _write_variable(file: Any, name: str, array: Array) -> None:
    dimensions = _DIMENSIONS.get(name) or tuple(f"{name}_{axis}" for axis in range(array.ndim))
    for dimension, length in zip(dimensions, array.shape, strict=True):
        if dimension not in file.dimensions:
            file.createDimension(dimension, length)
    # netCDF-3 has no booleans and no 64-bit integers: all arrays are doubles.
    file.createVariable(name, "f8", dimensions)[...] = array


def _from_netcdf(data: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    from scipy.io import netcdf_file

    with netcdf_file(io.BytesIO(data), "r", mmap=False) as file:
        meta = json.loads(getattr(file, _ATTRIBUTE))
        arrays = {
            # Copied out of the file, which is closed below, in the byte order of this machine.
            name: np.array(file.variables[name][...], dtype=float) if np.prod(shape) else np.empty(shape)
            for name, shape in meta.get("shapes", {}).items()
        }
    if meta.pop("checksum") != _checksum(meta, arrays):
        raise ValueError("the checksum of its numbers does not match")
    return meta, arrays
