"""Certified solutions of a small task: the true one, and ones that are wrong on purpose, which have to be refuted."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from models import point_mass
from nosnoc_py.solution import RungeKuttaInterpolant

SLIDE = ns.FESDJ(control_stages=4, finite_elements=3, rk_stages=3)
REACH = 1.0  # of the small task [m]
CONTROL_FACTOR = 1.01
KICKED_NODE = 4
KICK = 1e-3  # phantom change of a velocity [m/s]


@dataclass(frozen=True, eq=False, kw_only=True)
class Certified:
    """A solution with its certificate.

    Parameters
    ----------
    label : str
    solution : ns.Solution
    certificate : ns.Certificate
    seconds : float
        To solve [s]; 0 for a solution that was changed.
    wrong : str
        What was deliberately changed; "" for a solution as it was found.
    """

    label: str
    solution: ns.Solution
    certificate: ns.Certificate
    seconds: float = 0.0
    wrong: str = ""

    @property
    def largest_defect(self) -> float:
        """Of all windows."""
        window = self.certificate.worst_window
        return np.nan if window is None else window.defect

    @property
    def median_defect(self) -> float:
        """Of all windows."""
        return float(np.median([window.defect for window in self.certificate.windows]))

    @property
    def control_stages(self) -> int:
        """Of the grid."""
        return len(self.solution.u)

    @property
    def success(self) -> bool:
        """Whether a wrong solution is refuted, and a solved one is not."""
        refuted = self.certificate.verdict is ns.Verdict.REFUTED
        return refuted if self.wrong else self.solution.success and not refuted

    def to_dict(self) -> dict[str, Any]:
        """Return what the tables show, and the certificate."""
        return {
            "label": self.label,
            "wrong": self.wrong,
            "control_stages": self.control_stages,
            "status": self.solution.status.value,
            "objective": self.solution.objective,
            "seconds": self.seconds,
            "largest_defect": self.largest_defect,
            "median_defect": self.median_defect,
            "success": self.success,
            "certificate": self.certificate.to_dict(),
        }


def slide() -> ns.OCP:
    """A point mass on the ground is pushed to x = 1 m, to be at rest there after 1 s: small, and exact on its grid."""
    system = point_mass.build(2)
    distance = (system.q[0] - REACH) ** 2 + system.v[0] ** 2
    return ns.OCP(
        system,
        horizon=1.0,
        x0=[0.0, 0.0, 0.0, 0.0],
        stage_cost=0.01 * ca.sumsqr(system.u),
        terminal_cost=100.0 * distance,
        bounds=ns.Bounds(u=(-20.0, 20.0)),
    )


def certified(label: str, ocp: ns.OCP, solve: Callable[[], ns.Solution]) -> Certified:
    """Solve, and hold the solution against the referee."""
    started = time.monotonic()
    solution = solve()
    seconds = time.monotonic() - started
    return Certified(label=label, solution=solution, certificate=ns.certify(ocp, solution), seconds=seconds)


def slides(time_limit: float | None = None, callback: Any = None) -> Iterator[Certified]:
    """The small task, then its solution with two mistakes."""
    ocp = slide()
    keywords: dict[str, Any] = {"guess": [8.0], "time_limit": time_limit, "callback": callback}
    found = certified("slide", ocp, lambda: ns.solve(ocp, SLIDE, **keywords))
    yield found
    yield changed_control(found, ocp, stage=0)
    yield kicked(found, ocp, node=KICKED_NODE, state="v_x")


def changed_control(true: Certified, ocp: ns.OCP, stage: int) -> Certified:
    """The solution with the control of one stage larger by one percent, everything else as it was."""
    u = np.array(true.solution.u)
    u[stage] *= CONTROL_FACTOR
    wrong = replace(true.solution, u=u)
    grid = true.solution.u_grid
    what = f"control {CONTROL_FACTOR - 1.0:+.0%} in [{grid[stage]:.3g}, {grid[stage + 1]:.3g}] s"
    return Certified(label=true.label, solution=wrong, certificate=ns.certify(ocp, wrong), wrong=what)


def kicked(true: Certified, ocp: ns.OCP, node: int, state: str, size: float = KICK) -> Certified:
    """The solution with a jump of a velocity at the beginning of an element, and a motion that goes on consistently.

    Positions after the jump grow with it, so that the motion obeys its equations as long as forces do not depend on
    positions and velocities: no impulse explains the jump, and nothing else is wrong.
    """
    old = true.solution.interpolant
    assert isinstance(old, RungeKuttaInterpolant)
    names = true.solution.state_names
    velocity = names.index(state)
    position = velocity - ocp.system.n_q
    later = (np.arange(len(old.h)) >= node) * 1.0
    elapsed = later * (old.t_left - old.t_left[node])
    x_left, stages = np.array(old.x_left), np.array(old.x_stages)
    x_left[:, velocity] += size * later
    x_left[:, position] += size * elapsed
    stages[:, :, velocity] += size * later[:, None]
    stages[:, :, position] += size * (elapsed[:, None] + (later * old.h)[:, None] * old.c)
    interpolant = replace(old, x_left=x_left, x_stages=stages)
    wrong = replace(true.solution, interpolant=interpolant)
    what = f"phantom impulse on {state} at {old.t_left[node]:.3g} s"
    return Certified(label=true.label, solution=wrong, certificate=ns.certify(ocp, wrong), wrong=what)
