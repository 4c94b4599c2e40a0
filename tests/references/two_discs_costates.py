"""The costate of the minimum principle beside the multipliers of FESD-J, at the same nodes.

A solution by finite elements has -mu_j / b_j as its costates, mu_j those of the Runge-Kutta equations of stage j:
the costate at that stage, which needs neither a scale nor a change of sign. What is left between both comes from
controls that are constant in stages; they are of free length here, so that a boundary may lie at the collision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from nosnoc_py.solution.solution import costate_name
from nosnoc_py.tableaus import tableau
from problems.benchmarks.two_discs_rows import CONTENDERS, FREE, REFINED, WARM, motion
from problems.two_discs import EXPERIMENTS, build

Array = NDArray[np.float64]

STAGES = 20
AT_ONCE = 1e-9  # a stage so near to a collision lies before it [s]
MASS = 1.0  # of disc 1 [kg]


@dataclass(frozen=True, eq=False, kw_only=True)
class Costates:
    """Both at the Runge-Kutta stages of FESD-J.

    Parameters
    ----------
    experiment : str
    stages : int
        N of FESD-J.
    names : tuple of str
        States.
    t : (K,)
        Times of the Runge-Kutta stages [s].
    direct, indirect : (K, n_x)
        -mu / b of FESD-J; lambda(t) of the refined minimum principle, of the same phase.
    phase : (K,)
        The number of collisions before.
    times, exact_times : (M,)
        Collisions of FESD-J and of the minimum principle [s].
    multiplier_residual : float
        Largest |2 epsilon u + mean of lambda_v over the stage| of FESD-J: its stationarity with respect to u, in its
        own multipliers.
    direct_solution, indirect_solution : Solution
    """

    experiment: str
    stages: int
    names: tuple[str, ...]
    t: Array
    direct: Array
    indirect: Array
    phase: NDArray[np.int64]
    times: Array
    exact_times: Array
    multiplier_residual: float
    direct_solution: ns.Solution
    indirect_solution: ns.Solution

    @property
    def difference(self) -> Array:
        """Largest difference of every component, relative to the largest |lambda| of its kind (n_x,)."""
        size = np.abs(self.indirect).max(axis=0)
        half = size.size // 2
        scale = np.concatenate([np.full(half, size[:half].max()), np.full(half, size[half:].max())])
        return np.abs(self.direct - self.indirect).max(axis=0) / scale

    def jumps(self, values: Array) -> Array:
        """lambda(s+) - lambda(s-) of every collision (M, n_x), from the nodes beside it."""
        first = np.flatnonzero(np.diff(self.phase))
        return values[first + 1] - values[first]

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers of the comparison."""
        direct, indirect = self.jumps(self.direct), self.jumps(self.indirect)
        return {
            "experiment": self.experiment,
            "stages": self.stages,
            "status": self.direct_solution.status.value,
            "states": self.names,
            "difference": dict(zip(self.names, self.difference.tolist(), strict=True)),
            "largest_difference": float(self.difference.max()),
            "jumps_of_multipliers": direct,
            "jumps_of_costate": indirect,
            "jump_difference": float(np.abs(direct - indirect).max() / np.abs(indirect).max()),
            "multiplier_residual": self.multiplier_residual,
            "collision_times": self.times,
            "exact_collision_times": self.exact_times,
        }


def compare(experiment: str, stages: int = STAGES) -> Costates:
    """Solve by both and read the costates at the same nodes."""
    ocp = build(experiment)
    indirect = CONTENDERS[REFINED].solve(experiment)
    direct = ns.solve(ocp, FREE.replace(control_stages=stages), WARM, guess=motion(experiment))
    named = [direct.series[costate_name(name)] for name in direct.state_names]
    t, values = named[0].t, np.column_stack([one.values for one in named])
    times, exact = (np.array([event.time for event in found.impacts]) for found in (direct, indirect))
    phase = np.searchsorted(times + AT_ONCE, t)
    return Costates(
        experiment=experiment,
        stages=stages,
        names=direct.state_names,
        t=t,
        direct=values,
        indirect=costate(indirect, t, phase),
        phase=phase,
        times=times,
        exact_times=exact,
        multiplier_residual=_residual(direct, t, values, EXPERIMENTS[experiment].epsilon),
        direct_solution=direct,
        indirect_solution=indirect,
    )


def costate(found: ns.Solution, t: Array, phase: NDArray[np.int64]) -> Array:
    """lambda of a solution (K, n_x) at times in given phases: linear between nodes, and beyond the ends of a phase."""
    values = np.column_stack([found.series[costate_name(name)].values for name in found.state_names])
    cuts = np.flatnonzero(np.diff(found.t) == 0.0) + 1
    result = np.empty((t.size, values.shape[1]))
    pieces = zip(np.split(found.t, cuts), np.split(values, cuts), strict=True)
    for k, (times, rows) in enumerate(pieces):
        here = phase == k
        i = np.clip(np.searchsorted(times, t[here]) - 1, 0, times.size - 2)
        share = ((t[here] - times[i]) / (times[i + 1] - times[i]))[:, None]
        result[here] = (1.0 - share) * rows[i] + share * rows[i + 1]
    return result


def _residual(found: ns.Solution, t: Array, values: Array, epsilon: float) -> float:
    """How far u is from the minimum for the mean of the costate of v_1 over a stage that is one element."""
    b = tableau(FREE.scheme, FREE.rk_stages).b
    elements = t.reshape(-1, b.size)
    means = np.einsum("j,ejx->ex", b, values.reshape(*elements.shape, -1)[:, :, 4:6])
    stage = np.searchsorted(found.u_grid, elements[:, 0]) - 1
    alone = np.bincount(stage, minlength=len(found.u))[stage] == 1
    return float(np.abs(2.0 * epsilon * found.u[stage] + means / MASS)[alone].max())
