"""One row of the benchmark."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one solver did on one problem; None where it did not come that far.

    Attributes
    ----------
    problem, solver, variant : str
        `variant` is empty for the problem as given, else it names the random draw.
    variables, constraints, pairs : int
    status : str
        The solver's own word, or "error", "crashed", "killed".
    solved : bool
        By the benchmark's own residuals, whatever the solver says.
    claimed, false_success : bool
        The solver says success; it says so and the residuals disagree.
    objective, penalty, complementarity, complementarity_min, infeasibility : float
        Recomputed by the benchmark from the functions in the file.
    stationarity, b_stationary
        What the solver certifies.
    lpec_value, certified, gradient
        Slope along the best direction of the benchmark's own LPEC, whether it is zero up to the tolerance, and
        |grad f|_inf: where it is zero, every feasible point is stationary.
    iterations, nlps : int
        Iterations of IPOPT, and lines of the solver's log.
    wall_seconds : float
        Building and solving; reading the file and judging are apart.
    time_limit, fingerprint
        What a row has to agree in to be taken over from an earlier run: seconds, and a hash of the solver's options,
        the version of the library, the file, and the seed.
    message : str
        Text of the error.
    """

    problem: str
    solver: str
    variant: str = ""
    variables: int | None = None
    constraints: int | None = None
    pairs: int | None = None
    status: str = "error"
    solved: bool = False
    claimed: bool = False
    false_success: bool = False
    objective: float | None = None
    penalty: float | None = None
    complementarity: float | None = None
    complementarity_min: float | None = None
    infeasibility: float | None = None
    stationarity: str = ""
    b_stationary: bool | None = None
    lpec_value: float | None = None
    certified: bool = False
    gradient: float | None = None
    iterations: int | None = None
    nlps: int | None = None
    wall_seconds: float | None = None
    time_limit: float
    fingerprint: str
    message: str = ""

    @property
    def failed(self) -> bool:
        """The solver did not come to an answer of its own."""
        return self.status in ("error", "crashed", "killed")

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name."""
        return asdict(self)
