"""Examples in docstrings run and give what they say."""

from __future__ import annotations

import doctest
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

import nosnoc_py as ns

# Modules, and single functions, whose examples need packages that are extras.
EXTRAS = {
    "nosnoc_py.control.mujoco_plant": "mujoco",
    "nosnoc_py.robots.keyframes": "mujoco",
    "nosnoc_py.robots.robot.Robot.from_mjcf": "mujoco",
    "nosnoc_py.solution.tables": "xarray",
    "nosnoc_py.solution.trajectory.Trajectory.to_dataframe": "pandas",
    "nosnoc_py.solution.trajectory.Trajectory.to_xarray": "xarray",
    "nosnoc_py.sweep.cluster": "distributed",
    "nosnoc_py.torch": "torch",
}
PACKAGE = Path(ns.__file__).parent


def examples(name: str) -> list[doctest.DocTest]:
    found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(name))
    return [test for test in found if test.examples]


def with_examples() -> list[str]:
    """Modules with examples, by their text: what is not asked for is not imported."""
    files = [path.relative_to(PACKAGE.parent).with_suffix("") for path in sorted(PACKAGE.rglob("*.py"))]
    texts = {".".join(file.parts): PACKAGE.parent.joinpath(file).with_suffix(".py").read_text() for file in files}
    return [name for name, text in texts.items() if ">>> " in text]


@pytest.mark.parametrize("name", with_examples())
def test_examples(name: str) -> None:
    if name in EXTRAS:
        pytest.importorskip(EXTRAS[name])
    runner = doctest.DocTestRunner(verbose=False)
    for test in examples(name):
        if test.name == name or test.name not in EXTRAS or find_spec(EXTRAS[test.name]):
            runner.run(test)
    assert runner.failures == 0


# Methods that users call.
METHODS = {
    ns.Candidate: "to_dict",
    ns.Certificate: "to_dict",
    ns.ClosedLoop: "__getitem__ summary save",
    ns.CLS: "along_v check_state contact_force gap_rate kinematics normal parameters slip",
    ns.Coordinates: "jacobian",
    ns.Event: "to_dict",
    ns.Filter: "draws step",
    ns.Guard: "contact",
    ns.Homotopy: "build init replace run step",
    ns.Lagrangian: "jacobian",
    ns.Measurements: "part",
    ns.MHE: "step",
    ns.MPC: "prepare reset step",
    ns.MPCC: "of_pairs pairs products",
    ns.MPCCResult: "raise_for_status",
    ns.MujocoPlant: "advance init put",
    ns.Placed: "in_world of_world velocities_at",
    ns.Progress: "describe expect notify",
    ns.RigidBody: "check_state energies gaps state uniform",
    ns.Robot: "bounds contacts end_stops from_mjcf from_urdf jacobian pose position scene shape system",
    ns.Simulator: "init run step",
    ns.Solution: "differentiate polish refine shift summary",
    ns.SolutionSensitivity: "predict",
    ns.TrackingLaw: "reference robustness",
    ns.Trajectory: "__call__ __getitem__ control q raise_for_status sample save shift summary times to_dataframe "
    "to_dict to_xarray v value",
    ns.Transcription: "controls differentiate generate initial_guess parameters prepare resolve solution solve",
}
METHOD_NAMES = [(kind, name) for kind, names in METHODS.items() for name in names.split()]


@pytest.mark.quick
@pytest.mark.parametrize("name", ns.__all__)
def test_public_names_have_an_example(name: str) -> None:
    assert ">>> " in (getattr(ns, name).__doc__ or "")


@pytest.mark.quick
@pytest.mark.parametrize(("kind", "name"), METHOD_NAMES, ids=[f"{kind.__name__}.{name}" for kind, name in METHOD_NAMES])
def test_methods_have_an_example(kind: type, name: str) -> None:
    assert ">>> " in (getattr(kind, name).__doc__ or "")
