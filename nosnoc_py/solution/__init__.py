"""Solutions and trajectories: numbers only, no symbols, no plots."""

from nosnoc_py.roles import Role
from nosnoc_py.solution.candidate import Candidate
from nosnoc_py.solution.certificate import Balance, Certificate, EventPair, Window
from nosnoc_py.solution.closed_loop import ClosedLoop
from nosnoc_py.solution.explain import explain
from nosnoc_py.solution.gradient import Gradient
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
from nosnoc_py.solution.rigid_motion import RigidMotion
from nosnoc_py.solution.robust import RobustSolution, Scenario
from nosnoc_py.solution.sensitivity import Sensitivity
from nosnoc_py.solution.sequence import Sequence
from nosnoc_py.solution.solution import Solution
from nosnoc_py.solution.storage import KINDS, load, save
from nosnoc_py.solution.trajectory import Shifted, Trajectory
from nosnoc_py.solution.violation import Law, Violation
from nosnoc_py.status import Stationarity, Status, Verdict

# What files hold: a new kind of record or of dense output is one entry.
RECORDS: tuple[type, ...] = (
    *(RobustSolution, Scenario),
    *(Trajectory, Shifted, Solution, ClosedLoop, Certificate, Candidate, Sequence, Sensitivity, Gradient),
    *(Event, Series, StepRecord, Residual, PairRole, Discretization, SolvedBranch, RungeKuttaInterpolant, RigidMotion),
    *(Window, EventPair, Balance, Violation, Status, Stationarity, Verdict, Role, Law),
)
KINDS.update((kind.__name__, kind) for kind in RECORDS)

__all__ = [
    "EVENT_KINDS",
    "Candidate",
    "Discretization",
    "Event",
    "Gradient",
    "Interpolant",
    "PairRole",
    "Prediction",
    "Residual",
    "RobustSolution",
    "RungeKuttaInterpolant",
    "Scenario",
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
