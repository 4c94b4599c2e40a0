"""Solutions and trajectories: numbers only, no symbols, no plots."""

from nosnoc_py.solution.candidate import Candidate
from nosnoc_py.solution.explain import explain
from nosnoc_py.solution.interpolant import Interpolant, RungeKuttaInterpolant, nodes_of
from nosnoc_py.solution.optimum import Prediction, SolutionSensitivity
from nosnoc_py.solution.records import (
    EVENT_KINDS,
    Discretization,
    Event,
    PairRole,
    Residual,
    Series,
    SolvedBranch,
    StepRecord,
)
from nosnoc_py.solution.sensitivity import Sensitivity
from nosnoc_py.solution.sequence import Sequence
from nosnoc_py.solution.shift import Shifted
from nosnoc_py.solution.solution import Solution
from nosnoc_py.solution.storage import INTERPOLANTS, load, save
from nosnoc_py.solution.trajectory import Trajectory

__all__ = [
    "EVENT_KINDS",
    "INTERPOLANTS",
    "Candidate",
    "Discretization",
    "Event",
    "Interpolant",
    "PairRole",
    "Prediction",
    "Residual",
    "RungeKuttaInterpolant",
    "Sensitivity",
    "Sequence",
    "Series",
    "Shifted",
    "Solution",
    "SolutionSensitivity",
    "SolvedBranch",
    "StepRecord",
    "Trajectory",
    "explain",
    "load",
    "nodes_of",
    "save",
]
