"""nosnoc_py: simulation and optimal control of mechanical systems with impacts and other discontinuities.

A public name is loaded when it is first used (PEP 562), with the modules that it needs. `HOMES` says where every name
is; the imports are for type checkers and editors, which see no other ones.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nosnoc_py.errors import unknown_name

if TYPE_CHECKING:
    from nosnoc_py.api import Simulator, certify, simulate, solve, transcribe
    from nosnoc_py.control.closed_loop import close_loop
    from nosnoc_py.control.estimation import Estimate, fit
    from nosnoc_py.control.filtering import Filter, FilterStep
    from nosnoc_py.control.measurements import Measurements
    from nosnoc_py.control.moving_horizon import MHE
    from nosnoc_py.control.mpc import MPC
    from nosnoc_py.control.mujoco_plant import MujocoPlant
    from nosnoc_py.control.smoothing import SmoothedMotion, smooth
    from nosnoc_py.control.success import Success
    from nosnoc_py.control.tracking import TrackingLaw, track
    from nosnoc_py.discretization.options import FESD, FESDJ, TimeFreezing
    from nosnoc_py.errors import (
        ArgumentError,
        ModelError,
        ModelWarning,
        NosnocError,
        OptionError,
        SolverError,
        TranscriptionError,
        UnknownNameError,
    )
    from nosnoc_py.geometry import (
        Capsule,
        ConvexPolygon,
        Coordinates,
        Cylinder,
        HalfSpace,
        HeightMap,
        Placed,
        Point,
        ThinDisc,
        contacts,
        mesh_hull,
    )
    from nosnoc_py.methods.event_selected.options import EventSelected
    from nosnoc_py.methods.indirect.autonomous_switching import AutonomousSwitching
    from nosnoc_py.methods.indirect.minimum_principle import MinimumPrinciple
    from nosnoc_py.methods.shooting.options import DirectShooting
    from nosnoc_py.methods.variational.options import LieGroupVariational
    from nosnoc_py.mpcc.active_set import ActiveSet
    from nosnoc_py.mpcc.auto import Auto
    from nosnoc_py.mpcc.homotopy import Homotopy
    from nosnoc_py.mpcc.program import MPCC
    from nosnoc_py.mpcc.solve import MPCCResult, solve_mpcc
    from nosnoc_py.ocp import OCP, Bounds, Complementarity, Constraint, FreeTime
    from nosnoc_py.plotting import (
        animate,
        plot,
        plot_active_set,
        plot_elements,
        plot_homotopy,
        plot_phase,
        plot_sparsity,
        snapshots,
    )
    from nosnoc_py.point_costs import PointCost
    from nosnoc_py.progress import Progress
    from nosnoc_py.reformulation.hybrid import hybrid
    from nosnoc_py.reformulation.time_freezing import freeze
    from nosnoc_py.robots.keyframes import Keyframe
    from nosnoc_py.robots.robot import Robot
    from nosnoc_py.rotations import attitude_error
    from nosnoc_py.search import ElementSearch, Search
    from nosnoc_py.search.postures import Stance, reach, stand
    from nosnoc_py.sequences.multi_phase import MultiPhase
    from nosnoc_py.sequences.polish import polish
    from nosnoc_py.simulation.event_driven.options import EventDriven
    from nosnoc_py.simulation.newton.options import ActiveSetNewton
    from nosnoc_py.simulation.time_stepping.options import TimeStepping
    from nosnoc_py.solution import (
        Candidate,
        Event,
        Gradient,
        RobustSolution,
        Scenario,
        Sequence,
        Solution,
        SolutionSensitivity,
        Trajectory,
        explain,
        load,
    )
    from nosnoc_py.solution.certificate import Certificate
    from nosnoc_py.solution.closed_loop import ClosedLoop
    from nosnoc_py.status import Stationarity, Status, Stop, Verdict
    from nosnoc_py.systems import scene
    from nosnoc_py.systems.algebraic import Algebraic
    from nosnoc_py.systems.cls import CLS, Contact
    from nosnoc_py.systems.controls import PiecewiseConstant, SampledLaw
    from nosnoc_py.systems.data import Data
    from nosnoc_py.systems.event_selected import EventSelectedSystem, Guard
    from nosnoc_py.systems.hybrid import HybridSystem, StateJump
    from nosnoc_py.systems.hysteresis import Hysteresis
    from nosnoc_py.systems.lagrangian import Lagrangian, kinetic_energy, lagrangian
    from nosnoc_py.systems.pss import ODE, PDS, PSS, Heaviside, Modes
    from nosnoc_py.systems.relations import least_squares
    from nosnoc_py.systems.rigid_body import Plane, RigidBody
    from nosnoc_py.systems.shapes import Box, ConvexPolyhedron, Ellipsoid, Intersection, Sphere, SupportFunction, Union
    from nosnoc_py.tasks import goals
    from nosnoc_py.tasks.gaits import periodic
    from nosnoc_py.transcription import Answer, Transcription
    from nosnoc_py.uncertain import Uncertain

__version__ = "0.1.0"

# Public names by the modules that define them.
HOMES = {
    "api": "Simulator certify simulate solve transcribe",
    "control.closed_loop": "close_loop",
    "control.estimation": "Estimate fit",
    "control.filtering": "Filter FilterStep",
    "control.measurements": "Measurements",
    "control.moving_horizon": "MHE",
    "control.mpc": "MPC",
    "control.mujoco_plant": "MujocoPlant",
    "control.smoothing": "SmoothedMotion smooth",
    "control.success": "Success",
    "control.tracking": "TrackingLaw track",
    "discretization.options": "FESD FESDJ TimeFreezing",
    "errors": "ArgumentError ModelError ModelWarning NosnocError OptionError SolverError TranscriptionError "
    "UnknownNameError",
    "geometry": "Capsule ConvexPolygon Coordinates Cylinder HalfSpace HeightMap Placed Point ThinDisc contacts "
    "mesh_hull",
    "methods.event_selected.options": "EventSelected",
    "methods.indirect.autonomous_switching": "AutonomousSwitching",
    "methods.indirect.minimum_principle": "MinimumPrinciple",
    "methods.shooting.options": "DirectShooting",
    "methods.variational.options": "LieGroupVariational",
    "mpcc.active_set": "ActiveSet",
    "mpcc.auto": "Auto",
    "mpcc.homotopy": "Homotopy",
    "mpcc.program": "MPCC",
    "mpcc.solve": "MPCCResult solve_mpcc",
    "ocp": "Bounds Complementarity Constraint FreeTime OCP",
    "plotting": "animate plot plot_active_set plot_elements plot_homotopy plot_phase plot_sparsity snapshots",
    "point_costs": "PointCost",
    "progress": "Progress",
    "reformulation.hybrid": "hybrid",
    "reformulation.time_freezing": "freeze",
    "robots.keyframes": "Keyframe",
    "robots.robot": "Robot",
    "rotations": "attitude_error",
    "search": "ElementSearch Search",
    "search.postures": "Stance reach stand",
    "sequences.multi_phase": "MultiPhase",
    "sequences.polish": "polish",
    "simulation.event_driven.options": "EventDriven",
    "simulation.newton.options": "ActiveSetNewton",
    "simulation.time_stepping.options": "TimeStepping",
    "solution": "Candidate Event Gradient RobustSolution Scenario Sequence Solution SolutionSensitivity Trajectory "
    "explain load",
    "solution.certificate": "Certificate",
    "solution.closed_loop": "ClosedLoop",
    "status": "Stationarity Status Stop Verdict",
    "systems": "scene",
    "systems.algebraic": "Algebraic",
    "systems.cls": "CLS Contact",
    "systems.controls": "PiecewiseConstant SampledLaw",
    "systems.data": "Data",
    "systems.event_selected": "EventSelectedSystem Guard",
    "systems.hybrid": "HybridSystem StateJump",
    "systems.hysteresis": "Hysteresis",
    "systems.lagrangian": "Lagrangian kinetic_energy lagrangian",
    "systems.pss": "Heaviside Modes ODE PDS PSS",
    "systems.relations": "least_squares",
    "systems.rigid_body": "Plane RigidBody",
    "systems.shapes": "Box ConvexPolyhedron Ellipsoid Intersection Sphere SupportFunction Union",
    "tasks": "goals",
    "tasks.gaits": "periodic",
    "transcription": "Answer Transcription",
    "uncertain": "Uncertain",
}
_HOME = {name: home for home, names in HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'nosnoc_py': {unknown_name(name, _HOME)}")
    value = getattr(importlib.import_module(f"nosnoc_py.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


__all__ = [
    "ActiveSet",
    "ActiveSetNewton",
    "Algebraic",
    "Answer",
    "ArgumentError",
    "Auto",
    "AutonomousSwitching",
    "Bounds",
    "Box",
    "CLS",
    "Candidate",
    "Capsule",
    "Certificate",
    "ClosedLoop",
    "Complementarity",
    "Constraint",
    "Contact",
    "ConvexPolygon",
    "ConvexPolyhedron",
    "Coordinates",
    "Cylinder",
    "ThinDisc",
    "Data",
    "DirectShooting",
    "ElementSearch",
    "Ellipsoid",
    "Estimate",
    "Event",
    "EventDriven",
    "EventSelected",
    "EventSelectedSystem",
    "FESD",
    "FESDJ",
    "Filter",
    "FilterStep",
    "FreeTime",
    "Guard",
    "HalfSpace",
    "Heaviside",
    "HeightMap",
    "Homotopy",
    "HybridSystem",
    "Hysteresis",
    "Intersection",
    "Keyframe",
    "Lagrangian",
    "LieGroupVariational",
    "MHE",
    "MPC",
    "MPCC",
    "MPCCResult",
    "Measurements",
    "MinimumPrinciple",
    "ModelError",
    "ModelWarning",
    "Modes",
    "MujocoPlant",
    "MultiPhase",
    "NosnocError",
    "OCP",
    "ODE",
    "OptionError",
    "PDS",
    "PSS",
    "PiecewiseConstant",
    "Placed",
    "Plane",
    "Point",
    "PointCost",
    "Progress",
    "RigidBody",
    "Robot",
    "RobustSolution",
    "SampledLaw",
    "Scenario",
    "Search",
    "Sequence",
    "Simulator",
    "Solution",
    "Gradient",
    "SolutionSensitivity",
    "SmoothedMotion",
    "SolverError",
    "Sphere",
    "Stance",
    "StateJump",
    "Stationarity",
    "Status",
    "Stop",
    "Success",
    "SupportFunction",
    "TimeFreezing",
    "TimeStepping",
    "TrackingLaw",
    "Trajectory",
    "Transcription",
    "TranscriptionError",
    "Union",
    "Uncertain",
    "UnknownNameError",
    "Verdict",
    "animate",
    "attitude_error",
    "certify",
    "close_loop",
    "contacts",
    "mesh_hull",
    "explain",
    "fit",
    "freeze",
    "goals",
    "hybrid",
    "kinetic_energy",
    "lagrangian",
    "least_squares",
    "load",
    "periodic",
    "plot",
    "plot_active_set",
    "plot_elements",
    "plot_homotopy",
    "plot_phase",
    "plot_sparsity",
    "polish",
    "reach",
    "scene",
    "simulate",
    "smooth",
    "snapshots",
    "solve",
    "solve_mpcc",
    "stand",
    "track",
    "transcribe",
]
