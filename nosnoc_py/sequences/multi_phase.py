"""Options of the multi-phase program, which is a method of `solve` of its own: `MultiPhase`.

The options select a mesh per level of refinement (`MultiPhase.mesh`); `refinement` raises the level until a simulation
confirms the solution, `program` discretises one sequence on one mesh.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from nosnoc_py.errors import ModelError
from nosnoc_py.options import CompleteMethod, engine
from nosnoc_py.sequences.program import PhaseMesh
from nosnoc_py.solution.sequence import Sequence
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.hybrid import HybridSystem
from nosnoc_py.systems.pss import PDS, PSS, Heaviside

# Levels of refinement: additional stages, and factor of the elements per control interval. Order is raised first, as
# phases are smooth; smaller elements follow for integrands with kinks.
FINER = ((0, 1), (1, 1), (2, 1), (2, 2), (4, 2), (4, 4))
# Additional points per element at which inequalities hold, once one is violated between the nodes.
MORE_POINTS = 4


class MultiPhase(CompleteMethod):
    """Method that solves one smooth program for a mode sequence: a phase per mode with a free length.

    Between two changes of contact the system is smooth. For a given order of these changes the problem is a smooth
    optimal control problem with phases of free lengths (Betts 2010, Section 4.4), without complementarities. It is
    discretised by Radau collocation on index-reduced equations, solved by an interior-point method, and refined until
    an event-driven simulation confirms it.

    Parameters
    ----------
    sequence : Sequence, optional
        Mode sequence; default: that of the guess, or of a simulation with the control of the guess.
    intervals : int
        Number of control intervals over the whole horizon; every phase has at least one.
    grid : {"moving", "equal"}
        "moving": equal intervals within every phase, which move with it; "equal": over the whole horizon.
    control_degree : int
        Degree of the polynomial control on every interval of a moving grid; 0 is a constant control.
    stages : int
        Number of stages n_s of Radau IIA, of order 2 n_s - 1.
    elements : int
        Number of finite elements in every interval.
    refinements : int
        Largest number of refinements (stages, elements, points of path constraints) if the simulation does not confirm.
    follow : bool
        If True, the sequence is replaced by the one that the simulation of a solution shows, until both agree.
    penalised : bool
        If True, a program that fails is solved once more with a penalty in place of its terminal constraints.
    tolerance : float
        Largest violation of a constraint that counts as feasible, relative to its change by typical changes of the
        states, controls and lengths.
    shortest : float, optional
        Least length of a phase, as a fraction of the horizon; default 1e-3 for phases of a given `sequence`, which are
        kept, and 0 for others. With 0 phases may vanish.
    max_iterations : int
        Limit of the iterations per program.
    time_limit : float, optional
        Limit of time [s].
    interior : dict
        Further options of the interior-point method, with IPOPT's names: `tol`, `mu_init`, ...

    Raises
    ------
    OptionError
        From `solve`: for an OCP with complementarities of its own, or polynomial controls on a grid of equal intervals.
    ModelError
        From `solve`: if the sequence names contacts or modes that the system does not have.

    Examples
    --------
    A ball falls, bounces once, and is lifted to a height of 0.2 m:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> ground = ns.Contact("ground", gap=q, restitution=0.5)
    >>> ball = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 9.81, contacts=[ground])
    >>> ocp = ns.OCP(ball, horizon=1.0, x0=[1, 0], stage_cost=u**2, terminal_constraints=[ns.Constraint(q, 0.2, 0.2)])
    >>> solution = ns.solve(ocp, ns.MultiPhase(sequence=[{}, "impact ground", {}], intervals=4))
    >>> print(solution.status, len(solution.impacts))
    solved 1
    """

    takes: ClassVar[tuple[type, ...]] = (CLS, PSS, Heaviside, PDS, HybridSystem)
    remembers: ClassVar[bool] = True
    special_friction: ClassVar[bool] = True

    sequence: Any = None
    intervals: int = Field(default=20, ge=1)
    grid: Literal["moving", "equal"] = "moving"
    control_degree: int = Field(default=0, ge=0, le=6)
    stages: int = Field(default=3, ge=1, le=12)
    elements: int = Field(default=1, ge=1)
    refinements: int = Field(default=6, ge=0)
    follow: bool = False
    penalised: bool = True
    tolerance: float = Field(default=1e-6, gt=0)
    shortest: float | None = Field(default=None, ge=0, lt=1)
    max_iterations: int = Field(default=500, ge=0)
    interior: dict[str, int | float] = Field(default_factory=dict)

    @field_validator("sequence", mode="before")
    @classmethod
    def _sequence(cls, value: Any) -> Any:
        if value is None or isinstance(value, Sequence):
            return value
        try:
            return Sequence(value)
        except ModelError as error:
            raise ValueError(str(error)) from None

    solved = engine("nosnoc_py.sequences.refinement:refined")

    def mesh(self, level: int, points: int = 0) -> PhaseMesh:
        """Return the mesh of a level of refinement; `points` is 1 once inequalities break between the nodes."""
        stages, elements = FINER[min(level, len(FINER) - 1)]
        return PhaseMesh(
            # The largest number that the option itself accepts.
            stages=min(12, self.stages + stages),
            intervals=self.intervals,
            elements=self.elements * elements,
            equal=self.grid == "equal",
            degree=self.control_degree,
            points=MORE_POINTS * points,
            shortest=self.shortest or 0.0,
        )
