"""Trajectories on disk: one netCDF-3 file that xarray opens and that `load` reads back to the bit.

Arrays are netCDF variables; everything else is one JSON attribute. JSON escapes non-ASCII characters, and Python writes
the shortest decimals that give the same number again, so names and numbers are restored exactly.

Every field passes through `_pack` and `_unpack`, which are inverses; arrays of nested records (interpolants,
sensitivities, certificates) get the name of their field as prefix. Invariants: a file is written entirely or not at
all; its checksum covers all numbers and words; files of every earlier format version stay readable (`READABLE`).
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np

from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import OptionError, TranscriptionError
from nosnoc_py.files import write_atomically
from nosnoc_py.roles import Role
from nosnoc_py.solution.arrays import Array
from nosnoc_py.solution.candidate import Candidate
from nosnoc_py.solution.certificate import Balance, Certificate, EventPair, Window
from nosnoc_py.solution.interpolant import Interpolant, RungeKuttaInterpolant
from nosnoc_py.solution.records import Discretization, Event, PairRole, Residual, Series, SolvedBranch, StepRecord
from nosnoc_py.solution.rigid_motion import RigidMotion
from nosnoc_py.solution.sensitivity import Sensitivity
from nosnoc_py.solution.sequence import Sequence
from nosnoc_py.solution.shift import Shifted
from nosnoc_py.solution.solution import Solution
from nosnoc_py.solution.trajectory import Trajectory
from nosnoc_py.solution.violation import Law, Violation
from nosnoc_py.status import Stationarity, Status, Verdict

# Raised when old versions of the library could not read new files.
FORMAT_VERSION = 2
# Files of version 1 have no roles and no discretization; everything else is the same.
READABLE = (1, FORMAT_VERSION)
SUFFIX = ".nc"

# Global attribute of the file with the JSON.
_ATTRIBUTE = "nosnoc_py"
_CLASSES: dict[str, type[Trajectory]] = {"Trajectory": Trajectory, "Solution": Solution, "Shifted": Shifted}
# Other kinds of files: name of the class -> function that builds it from fields and arrays. Its module registers it.
READERS: dict[str, Callable[[dict[str, Any], dict[str, Array]], Any]] = {}
# Fields that are one array each, and need no conversion.
_ARRAYS = ("t", "x", "u_grid", "u", "x0", "p", "w")
# A new kind of dense output is one entry here: files name it.
INTERPOLANTS: dict[str, type[Interpolant]] = {kind.kind: kind for kind in (RungeKuttaInterpolant, RigidMotion)}
# Arrays of a `Sensitivity`; its one-sided derivatives are functions, and are not written.
_SENSITIVITIES = (
    "x0",
    "p",
    "event_times_x0",
    "event_times_p",
    "u",
    "orbital",
    "event_times_u",
    "orbital_p",
    "orbital_u",
)
# Arrays of a `SolvedBranch` with their types: netCDF-3 stores them as doubles.
_BRANCH = {"G": bool, "H": bool, "r": bool, "lam_x": float, "lam_g": float}
LINK = "problem"
# Fields by the way in which they are packed.
_SERIES = ("series", "multipliers")
_RECORDS = {"events": Event, "log": StepRecord, "worst": Residual}
_INTERPOLANTS = ("interpolant", "control_interpolant")
_ENUMS: dict[str, Callable[[str], Status | Stationarity]] = {"status": Status, "stationarity": Stationarity}
# Named dimensions for xarray; other arrays get dimensions of their own name.
_DIMENSIONS = {"t": ("node",), "x": ("node", "state"), "u_grid": ("control_edge",), "u": ("control_stage", "control")}


def save(trajectory: Trajectory, path: str | Path) -> Path:
    """Write a `Trajectory` or a `Solution` to one file, entirely or not at all; folders that are missing are made.

    Returns
    -------
    Path
        The path written.

    Raises
    ------
    OptionError
        If the name of the file does not end in .nc.
    """
    arrays: dict[str, Array] = {}
    return write(path, type(trajectory).__name__, _packed(trajectory, arrays), arrays)


def _packed(trajectory: Trajectory, arrays: dict[str, Array]) -> dict[str, Any]:
    """Return the fields for JSON, but for the problem, whose expressions cannot be written."""
    return {f.name: _pack(f.name, getattr(trajectory, f.name), arrays) for f in fields(trajectory) if f.name != LINK}


def write(path: str | Path, kind: str, values: dict[str, Any], arrays: dict[str, Array]) -> Path:
    """Write fields for JSON and arrays to one file; see `save`."""
    path = Path(path)
    if path.suffix != SUFFIX:
        proposed = path.with_suffix(SUFFIX) if path.name else f"solution{SUFFIX}"
        raise OptionError(
            f"save: expected a netCDF file such as {str(proposed)!r}, given {str(path)!r}; for other formats write "
            "to_xarray() or to_dataframe() with their own methods."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    meta = {"format_version": FORMAT_VERSION, "class": kind, "fields": values}
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
    if meta.get("format_version") not in READABLE:
        raise TranscriptionError(
            f"{path}: given format_version {meta.get('format_version')}, expected "
            f"{' or '.join(map(str, READABLE))}; read it with the version of nosnoc_py that wrote it, or make it again."
        )
    try:
        if (reader := READERS.get(meta["class"])) is not None:
            return reader(meta["fields"], arrays)
        values = {name: _unpack(name, value, arrays) for name, value in meta["fields"].items()}
        return _CLASSES[meta["class"]](**values)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, error) from error


def _damaged(path: str | Path, error: Exception) -> TranscriptionError:
    return TranscriptionError(
        f"{path}: expected a complete netCDF-3 file written by nosnoc_py (format_version {FORMAT_VERSION}); "
        f"the file is damaged or of another origin ({type(error).__name__}: {error})."
    )


def _pack(name: str, value: Any, arrays: dict[str, Array]) -> Any:
    """Move the arrays of a field to `arrays` and return the rest as JSON."""
    if name == "shorter":
        return None
    if name in _ARRAYS:
        arrays[name] = value
        return None
    if name in _SERIES:
        # By number, as names of series are free text.
        for k, series in enumerate(value.values()):
            arrays |= {f"{name}_{k}_t": series.t, f"{name}_{k}_values": series.values}
        return [[key, series.role] for key, series in value.items()]
    if name == "biactive_roles":
        return [[pair.role, pair.of] for pair in value]
    if name == "discretization" and value is not None:
        return asdict(value)
    if name == "sequence":
        return _packed_sequence(value)
    if name == "certificate" and value is not None:
        return _packed_certificate(value, arrays)
    if name == "branch" and value is not None:
        arrays |= {f"branch_{part}": np.asarray(getattr(value, part), float) for part in _BRANCH}
        return value.way
    if name == "candidates":
        return [vars(each) | {"sequence": _packed_sequence(each.sequence)} for each in value]
    if name in _RECORDS:
        return [asdict(record) for record in value]
    if name in _INTERPOLANTS and value is not None:
        parts = value.to_arrays()
        arrays |= {f"{name}_{part}": array for part, array in parts.items()}
        # The names of the parts, as their number depends on the kind of dense output.
        return {"kind": value.kind, "parts": list(parts)}
    if name == "sensitivity" and value is not None:
        parts = {f"sensitivity_{part}": getattr(value, part) for part in _SENSITIVITIES}
        arrays |= {part: array for part, array in parts.items() if array is not None}
        return list(value.flags)
    if name == "numerical" and value is not None:
        own: dict[str, Array] = {}
        packed = _packed(value, own)
        arrays |= {f"numerical_{part}": array for part, array in own.items()}
        return packed
    return value


def _unpack(name: str, value: Any, arrays: dict[str, Array]) -> Any:
    """Undo `_pack`."""
    if name in _ARRAYS:
        return arrays[name]
    if name in _SERIES:
        named = [(item, None) if isinstance(item, str) else item for item in value]  # a name alone in version 1
        return {
            key: Series(arrays[f"{name}_{k}_t"], arrays[f"{name}_{k}_values"], _role(role))
            for k, (key, role) in enumerate(named)
        }
    if name == "biactive_roles":
        return tuple(PairRole(_role(role), of) for role, of in value)
    if name == "discretization" and value is not None:
        return Discretization(**value)
    if name == "sequence":
        return _sequence(value)
    if name == "certificate" and value is not None:
        return _certificate(value, arrays)
    if name == "branch" and value is not None:
        parts = {part: arrays[f"branch_{part}"].astype(kind) for part, kind in _BRANCH.items()}
        return SolvedBranch(**parts, way=value)
    if name == "candidates":
        return tuple(_candidate(each) for each in value)
    if name in _RECORDS:
        return tuple(_RECORDS[name](**record) for record in value)
    if name in _ENUMS:
        return _ENUMS[name](value)
    if name in _INTERPOLANTS and value is not None:
        parts = {part: arrays[f"{name}_{part}"] for part in value["parts"]}
        return INTERPOLANTS[value["kind"]].from_arrays(parts)
    if name == "sensitivity" and value is not None:
        known: dict[str, Any] = {
            part: arrays[f"sensitivity_{part}"] for part in _SENSITIVITIES if f"sensitivity_{part}" in arrays
        }
        return Sensitivity(**known, flags=tuple(value))
    if name == "numerical" and value is not None:
        own = {key.removeprefix("numerical_"): array for key, array in arrays.items() if key.startswith("numerical_")}
        return Trajectory(**{key: _unpack(key, part, own) for key, part in value.items()})
    return value


def _packed_sequence(sequence: Sequence | None) -> Any:
    if sequence is None:
        return None
    return {"items": list(sequence.items), "times": None if sequence.times is None else sequence.times.tolist()}


def _sequence(value: Any) -> Sequence | None:
    return None if value is None else Sequence(**value)


def _candidate(value: dict[str, Any]) -> Candidate:
    verdict = None if value["verdict"] is None else Verdict(value["verdict"])
    if "seconds" in value:  # before work was counted
        value = {**value, "work": value["seconds"]}
        del value["seconds"]
    return Candidate(**value | {"sequence": _sequence(value["sequence"]), "verdict": verdict})


def _packed_certificate(certificate: Certificate, arrays: dict[str, Array]) -> dict[str, Any]:
    """Return all fields of a certificate for JSON; its arrays, and those of the true trajectory, go to `arrays`."""
    own: dict[str, Array] = {"end_state_errors": certificate.end_state_errors}
    motion = certificate.trajectory
    parts = _packed(motion, own)
    arrays |= {f"certificate_{part}": array for part, array in own.items()}
    packed = {f.name: getattr(certificate, f.name) for f in fields(certificate)}
    del packed["end_state_errors"]
    packed |= {
        "windows": [asdict(window) for window in certificate.windows],
        "events": [asdict(pair) for pair in certificate.events],
        "balance": None if certificate.balance is None else asdict(certificate.balance),
        "trajectory": {"class": type(motion).__name__, "fields": parts},
    }
    for name in ("violation", "findings"):
        packed[name] = [vars(one) | {"law": one.law.name} for one in packed[name]]
    return packed


def _certificate(value: dict[str, Any], arrays: dict[str, Array]) -> Certificate:
    """Undo `_packed_certificate`."""
    prefix = "certificate_"
    own = {key.removeprefix(prefix): array for key, array in arrays.items() if key.startswith(prefix)}
    motion = value["trajectory"]
    parts = {name: _unpack(name, part, own) for name, part in motion["fields"].items()}
    rebuilt: dict[str, Any] = {
        "verdict": Verdict(value["verdict"]),
        "state_names": tuple(value["state_names"]),
        "end_state_errors": own["end_state_errors"],
        "windows": tuple(Window(**window) for window in value["windows"]),
        "events": tuple(
            EventPair(**{side: None if event is None else Event(**event) for side, event in pair.items()})
            for pair in value["events"]
        ),
        "balance": None if value["balance"] is None else Balance(**value["balance"]),
        "trajectory": _CLASSES[motion["class"]](**parts),
    }
    for name in ("violation", "findings"):
        rebuilt[name] = tuple(Violation(**one | {"law": Law[one["law"]]}) for one in value[name])
    return Certificate(**value | rebuilt)


def _role(value: str | None) -> Role | None:
    return None if value is None else Role(value)


def _plain(value: Any) -> Any:
    """Return a JSON value for types that JSON lacks: numbers of NumPy, roles and statuses."""
    return value.item() if isinstance(value, np.generic) else value.value


def _to_netcdf(meta: dict[str, Any], arrays: dict[str, Array]) -> bytes:
    from scipy.io import netcdf_file

    # netCDF-3 reads a dimension of length zero as unlimited: of empty arrays only the shape is written.
    meta = {**meta, "shapes": {name: array.shape for name, array in arrays.items()}}
    # As a reader gets it (tuples are lists, keys are words), so that both compute the same checksum.
    meta = json.loads(json.dumps(meta, default=_plain))
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
    # Files of early versions have no checksum.
    if (written := meta.pop("checksum", None)) is not None and written != _checksum(meta, arrays):
        raise ValueError("the checksum of its numbers does not match")
    return meta, arrays
