"""One disc shoots another to the origin (hybrid minimum principle, Section 5): four optimal control problems.

At rest at t = 0, disc 1 is accelerated by the control u until it hits disc 2, which has to be close to the origin at
T = 1 s: the terminal cost is |q_2(T)|^2, the stage cost epsilon |u|^2 ("energy") or epsilon |u| with |u| bounded
("length"). Only a collision moves disc 2, so u = 0 is a stationary point of all four. Solvers have to start from a
control under which the discs collide, such as the `control` of an experiment. Reference solutions are in
`tests.references.two_discs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from types import MappingProxyType
from typing import Any, Literal

import casadi as ca

import nosnoc_py as ns
from models import two_discs_elastic
from nosnoc_py.errors import OptionError, unknown_name

HORIZON = 1.0  # T [s]
RADII = (0.2, 0.2)  # [m]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The data of one problem.

    Parameters
    ----------
    start : four floats
        (q_1, q_2) at t = 0 [m]; both discs are at rest.
    epsilon : float
        Weight of the stage cost.
    control : two floats
        Constant control under which the discs meet [N]: the paper's start.
    wall : float, optional
        There is a wall along y = wall [m].
    cost : {"energy", "length"}
        Stage cost epsilon |u|^2 or epsilon |u|.
    bound : float, optional
        Upper bound of |u| [N].
    """

    start: tuple[float, float, float, float]
    epsilon: float
    control: tuple[float, float]
    wall: float | None = None
    cost: Literal["energy", "length"] = "energy"
    bound: float | None = None


EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {
        "concentric": Experiment(start=(-2.0, -2.0, -1.0, -1.0), epsilon=0.1, control=(3.0, 3.0)),  # 5.1
        "general": Experiment(start=(-1.0, -2.0, -1.0, -1.0), epsilon=0.01, control=(0.0, 3.0)),  # 5.2
        "wall": Experiment(  # 5.3
            start=(-1.5 - sqrt(2.0) / 5.0, 0.1 - sqrt(2.0) / 5.0, -1.0, 0.6), epsilon=0.01, control=(3.0, 3.0), wall=1.0
        ),
        "length": Experiment(  # 5.4
            start=(-1.0, -2.0, -1.0, -1.0), epsilon=0.01, control=(0.0, 3.0), cost="length", bound=5.0 * sqrt(2.0)
        ),
    }
)


def data(experiment: str) -> Experiment:
    """Return the data of a problem by its name in `EXPERIMENTS`.

    Raises
    ------
    OptionError
        If there is none of this name.
    """
    if experiment not in EXPERIMENTS:
        raise OptionError(unknown_name(experiment, EXPERIMENTS, "experiment"))
    return EXPERIMENTS[experiment]


def build(
    experiment: str = "general",
    masses: tuple[float, float] = (1.0, 1.0),
    restitution: float = 1.0,
    smoothing: float = 0.0,
) -> ns.OCP:
    """Return one of the problems.

    Parameters
    ----------
    experiment : str
        A name in `EXPERIMENTS`.
    masses : two floats
        m_1, m_2 [kg].
    restitution : float
        Newton's coefficient of all contacts.
    smoothing : float
        delta [N]: |u| has no derivative at u = 0, which is where the optimal control is after the collision. For
        methods that need one, a positive delta replaces |u| by sqrt(|u|^2 + delta^2) - delta in the stage cost, which
        is less by at most delta, and writes the bound with |u|^2. Without effect on the energy.

    Raises
    ------
    OptionError
        If the experiment is unknown, or the smoothing negative.
    """
    chosen = data(experiment)
    if smoothing < 0.0:
        raise OptionError(f"smoothing: expected delta >= 0, given {smoothing!r}.")
    system = two_discs_elastic.build(masses, RADII, restitution, chosen.wall)
    return ns.OCP(
        system,
        horizon=HORIZON,
        x0=(*chosen.start, 0.0, 0.0, 0.0, 0.0),
        stage_cost=chosen.epsilon * _size(chosen.cost, system.u, smoothing),
        terminal_cost=ca.sumsqr(system.q[2:]),
        path_constraints=[] if chosen.bound is None else [_thrust(system.u, chosen.bound, smoothing)],
    )


def _size(cost: str, u: Any, smoothing: float) -> Any:
    if cost == "energy":
        return ca.sumsqr(u)
    return ca.sqrt(ca.sumsqr(u) + smoothing**2) - smoothing if smoothing else ca.norm_2(u)


def _thrust(u: Any, bound: float, smoothing: float) -> ns.Constraint:
    if smoothing:
        return ns.Constraint(ca.sumsqr(u), upper=bound**2, name="thrust", at="control_grid")
    return ns.Constraint(ca.norm_2(u), upper=bound, name="thrust", at="control_grid")
