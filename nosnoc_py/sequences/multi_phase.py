"""The options of the multi-phase program, which is a method of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

from pydantic import Field, field_validator

from nosnoc_py.errors import ModelError, OptionError, check_type
from nosnoc_py.ocp import OCP
from nosnoc_py.options import CompleteMethod
from nosnoc_py.sequences.program import PhaseMesh
from nosnoc_py.solution import Solution
from nosnoc_py.solution.sequence import Sequence
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.pss import PDS, PSS, Heaviside

# Finer meshes, one after the other: further stages, and elements of every control interval as a multiple.
FINER = ((0, 1), (1, 1), (2, 2), (4, 2), (4, 4))
# Further points on the path where a constraint breaks between the nodes.
MORE_POINTS = 4


class MultiPhase(CompleteMethod):
    """One smooth program for a sequence of modes: a phase per mode, free phase lengths, no complementarity.

    Between two changes of contact the system is smooth; with the order of the changes given, what is left is one smooth
    optimal control problem with phases of free lengths (Betts 2010, Section 4.4). It is written by Radau collocation on
    index-reduced equations, solved by IPOPT, and refined until an event-driven simulation confirms it.

    Parameters
    ----------
    sequence : Sequence, optional
        Default: that of the guess, or of a simulation with the control that it is.
    intervals : int
        Of the control, over the whole horizon; every phase has one at least.
    grid : {"moving", "equal"}
        Control intervals of equal length in every phase, which move with it; or over the whole horizon.
    control_degree : int
        The control is a polynomial of this degree on every interval of a moving grid; by default constant.
    stages : int
        n_s of Radau IIA, of order 2 n_s - 1.
    elements : int
        Finite elements in every interval.
    refinements : int
        How often stages, elements and points of path constraints are raised where the simulation does not confirm.
    follow : bool
        Whether the sequence may become the one that the simulation of a solution shows.
    penalised : bool
        Whether a program that fails is solved once more with a penalty in place of the terminal constraints.
    tolerance : float
        Of what is accepted as feasible, in the user's units.
    shortest : float
        Lower bound of the length of a phase, as a share of the horizon.
    max_iterations : int
        Of IPOPT, per program.
    time_limit : float, optional
        Seconds.
    ipopt : dict
        Further options of IPOPT.
    """

    takes: ClassVar[tuple[type, ...]] = (CLS, PSS, Heaviside, PDS)
    remembers: ClassVar[bool] = True

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
    shortest: float = Field(default=0.0, ge=0, lt=1)
    max_iterations: int = Field(default=500, ge=0)
    ipopt: dict[str, str | int | float] = Field(default_factory=dict)

    @field_validator("sequence", mode="before")
    @classmethod
    def _sequence(cls, value: Any) -> Any:
        if value is None or isinstance(value, Sequence):
            return value
        try:
            return Sequence(value)
        except ModelError as error:
            raise ValueError(str(error)) from None

    def solved(
        self, ocp: OCP, guess: Any, callback: Callable[[Any], Any] | None, started: float, deadline: float
    ) -> Solution:
        """Solve, simulate, refine."""
        check_type(ocp, OCP, "ocp")
        if ocp.complementarities:
            raise OptionError("MultiPhase takes no complementarities of the user's own; use ns.FESDJ(...).")
        if self.grid == "equal" and self.control_degree:
            raise OptionError("control_degree: polynomials need grid='moving'; leave it out for constant controls.")
        from nosnoc_py.sequences.refinement import Refinement  # which knows these options

        return Refinement(self, ocp, callback, started, deadline).solve(guess)

    def mesh(self, level: int, points: int = 0) -> PhaseMesh:
        """The mesh after so many refinements."""
        stages, elements = FINER[min(level, len(FINER) - 1)]
        return PhaseMesh(
            stages=min(12, self.stages + stages),
            intervals=self.intervals,
            elements=self.elements * elements,
            equal=self.grid == "equal",
            degree=self.control_degree,
            points=MORE_POINTS * points,
            shortest=self.shortest,
        )
