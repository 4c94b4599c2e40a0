"""Options of time-stepping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import Field

from nosnoc_py.options import Method
from nosnoc_py.simulation.common import SimulationMethod, SimulationTask
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.scales import ProblemScales
from nosnoc_py.tolerances import STRIKE, SWEPT

THETA = {"moreau_jean": 0.5, "stewart_trinkle": 1.0}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Speeds [m/s]: the options of `TimeStepping` with these names, and from where on closing is an impact."""

    tolerance: float
    rest_velocity: float
    impact_velocity: float


class TimeStepping(SimulationMethod):
    """Steps of equal length with contact impulses over whole steps: robust for many contacts, of first order.

    The velocity after a step and the impulses Lambda of the contacts in it solve one contact problem,

        A (v+ - v-) = h f + n Lambda_n + t Lambda_t,   0 <= Lambda_n,  n'v+ >= c,  Lambda_n (n'v+ - c) = 0,

    with Coulomb's law for Lambda_t at t'v+, and q+ = q- + h ((1 - theta) v- + theta v+). Gaps g, directions and M are
    those of q- + (1 - theta) h v-; there the next step will look at g + h n'v+, to first order. A = M - theta h df/dv -
    theta^2 h^2 df/dq makes the theta-method for the force of it, linearised. The schemes differ in c:

    "moreau_jean": c = e |n'v-| where the contact is hit in this step (n'v- < 0, g + h n'v- <= 0), else c = -max(g, 0)
    / h. "stewart_trinkle": c is the larger one of e |n'v-|, where the contact is hit, and -g / h. So neither one lets a
    gap close further than to zero in a step, however fast the bodies are, as long as gaps are convex functions of q
    (balls, flat walls). Where they are not, the first lets gaps drift by their curvature, and the second takes
    penetrations back in the next step, at the price of a speed |g| / h. Bodies with e > 0 turn round up to one step too
    early. Those without restitution lose their whole approach at once, and only for their positions c is -g / h, so
    that they come to lie where they touch: in two parts friction would turn between them. Contacts that are hit through
    others within a step bounce after these, one generation of impacts after the other, up to twenty.

    Restitution of both is Newton's, by that larger one of two velocities, within the one contact problem of the step.
    The control is held on a step: its value at the middle, of a feedback with the state at the start. The trajectory
    joins the states after the steps by straight lines, so that an impact is a ramp over one step; its event stands at
    the time where the step looked at the gaps, forces are the means of steps, impacts included.

    Parameters
    ----------
    scheme : {"moreau_jean", "stewart_trinkle"}
    step : float
        Length of a step [s]; the duration is divided into equal steps that are not longer than this. `simulate` takes
        their number as `steps` instead.
    theta : float, optional
        From 0.5 to 1; default 0.5 for Moreau-Jean (second order between events) and 1 for Stewart-Trinkle.
    friction : {"conic", "polyhedral"}
        Coulomb's cone, or a pyramid inside it. In the plane they are the same.
    directions : int
        Edges of the pyramid.
    solver : {"newton", "projected_gauss_seidel"}
        Sweeps over contacts, those without a common body at once, accelerated by conjugate directions. "newton" tries
        Newton's method first where contacts are few, and puts its steps between the sweeps where thirty of these were
        not enough; not with a pyramid in space.
    tolerance : float, optional
        Residual of the contact law [m/s] up to which it sweeps; by default 1e-6 of the speed at work.
    max_sweeps : int
        Steps that still miss the tolerance are counted in the message of the trajectory, and go on.
    rest_velocity : float, optional
        Impacts slower than this [m/s] are inelastic; by default 1e-3 of the speed at work.
    speed_scale : float, optional
        The speed at work [m/s]; by default as with `EventDriven`.
    """

    takes = (CLS,)
    refuses: ClassVar = {
        **Method.refuses,
        "solver": "TimeStepping takes none; choose it by TimeStepping(solver=...)",
        "sensitivities": "those of TimeStepping do not converge to those of the motion; give method=ns.FESDJ(...) or "
        "ns.EventDriven(...)",
    }

    scheme: Literal["moreau_jean", "stewart_trinkle"] = "moreau_jean"
    step: float = Field(default=1e-3, gt=0)
    theta: float | None = Field(default=None, ge=0.5, le=1.0)
    friction: Literal["conic", "polyhedral"] = "conic"
    directions: int = Field(default=8, ge=3)
    solver: Literal["newton", "projected_gauss_seidel"] = "newton"
    tolerance: float | None = Field(default=None, gt=0)
    max_sweeps: int = Field(default=1000, ge=1)
    rest_velocity: float | None = Field(default=None, ge=0)
    speed_scale: float | None = Field(default=None, gt=0)

    @property
    def weight(self) -> float:
        """The theta in use."""
        return THETA[self.scheme] if self.theta is None else self.theta

    def limits(self, scales: ProblemScales) -> Limits:
        """The limits of speeds that are given, or else follow from those at work."""
        return Limits(
            tolerance=SWEPT * scales.speed if self.tolerance is None else self.tolerance,
            rest_velocity=scales.rest_velocity(self.rest_velocity),
            impact_velocity=STRIKE * scales.speed,
        )

    def simulate(self, system: CLS, task: SimulationTask) -> Trajectory:
        """Step by step; see `nosnoc_py.simulate`."""
        from nosnoc_py.simulation.time_stepping.run import run  # which knows these options

        return run(system, self, task)

    def stepper(self, system: CLS, length: float) -> Any:
        """Steps of equal length; see `nosnoc_py.Simulator`."""
        from nosnoc_py.simulation.time_stepping.stepper import TimeStepper  # which knows these options

        return TimeStepper(system, self, length)
