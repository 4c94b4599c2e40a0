"""Options of time-stepping (Moreau-Jean and Stewart-Trinkle schemes)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from nosnoc_py.options import Method, engine
from nosnoc_py.simulation.common import SimulationMethod
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.scales import ProblemScales
from nosnoc_py.tolerances import STRIKE, SWEPT

# Default theta of each scheme: trapezoidal for Moreau-Jean, implicit Euler for Stewart-Trinkle.
THETA = {"moreau_jean": 0.5, "stewart_trinkle": 1.0}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Velocity limits [m/s].

    Tolerance and rest velocity of `TimeStepping`, and the slowest approach that is an impact.
    """

    tolerance: float
    rest_velocity: float
    impact_velocity: float


class TimeStepping(SimulationMethod):
    """Time-stepping with contact impulses over whole steps: robust for many contacts, of first order.

    The velocity v+ after a step of length h and the impulses Lambda of its contacts solve one contact problem,

        A (v+ - v-) = h f + n Lambda_n + t Lambda_t,   0 <= Lambda_n,  n'v+ >= c,  Lambda_n (n'v+ - c) = 0,

    with Coulomb's law for Lambda_t at t'v+, and q+ = q- + h ((1 - theta) v- + theta v+). Gaps g, directions n, t and M
    are evaluated at q- + (1 - theta) h v-. The matrix A = M - theta h df/dv - theta^2 h^2 df/dq gives the linearised
    theta-method for the force. The schemes differ in the bound c of the normal velocity:

    - "moreau_jean" (Moreau, 1988; Jean, 1999): c = e |n'v-| for a contact that is hit in this step (n'v- < 0 and
      g + h n'v- <= 0), else c = -max(g, 0) / h.
    - "stewart_trinkle" (Stewart and Trinkle, 1996): c is the larger of e |n'v-|, for a contact that is hit, and -g / h.

    Neither lets a gap close further than to zero in a step, however fast the bodies are, as long as gaps are convex
    functions of q (balls, flat walls). Otherwise the first scheme lets gaps drift by their curvature; the second
    removes penetrations in the next step, at a speed |g| / h. Bodies with e > 0 turn round up to one step too early.
    Bodies without restitution lose their whole approach at once, and their positions continue to the contact. Contacts
    that are hit through others within a step bounce after these, in up to twenty successive problems.

    The control is held in each step: its value in the middle, for a feedback with the state at the start. The
    trajectory joins the states by straight lines, so that an impact is a ramp over one step; its event has the time at
    which the gaps were evaluated. Forces are means over steps, impacts included.

    Parameters
    ----------
    scheme : {"moreau_jean", "stewart_trinkle"}
    step : float
        Largest length of a step [s]; the duration is divided into equal steps. `simulate` takes their number as `steps`
        instead.
    theta : float, optional
        From 0.5 to 1; default 0.5 for Moreau-Jean (second order between events), 1 for Stewart-Trinkle.
    friction : {"conic", "polyhedral"}
        Coulomb's cone, or a pyramid inside it; the same in the plane.
    directions : int
        Edges of the pyramid, at least 3.
    solver : {"newton", "projected_gauss_seidel"}
        Projected Gauss-Seidel sweeps over the contacts, accelerated by conjugate directions. "newton" tries Newton's
        method first if there are few contacts, and between the sweeps if thirty of them were not enough; not with a
        pyramid in space.
    tolerance : float, optional
        Accepted residual of the contact law [m/s]; default 1e-6 of the typical speed.
    max_sweeps : int
        Limit of the sweeps in a step. Steps that still exceed the tolerance continue and are counted in the message.
    rest_velocity : float, optional
        Impacts slower than this [m/s] are inelastic; default 1e-3 of the typical speed.
    speed_scale : float, optional
        Typical speed [m/s]; default as for `EventDriven`.

    Raises
    ------
    OptionError
        If an option has a value that is not allowed, or `simulate` is asked for `sensitivities` or given a `solver`.

    Examples
    --------
    A ball falls from 1 m and stays on the ground:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> ball = ns.CLS(q=q, v=v, mass_matrix=1.0, force=-9.81, contacts=[ns.Contact("ground", gap=q)])
    >>> trajectory = ns.simulate(ball, x0=[1.0, 0.0], duration=0.6, method=ns.TimeStepping(step=0.01))
    >>> trajectory.impacts[0].name, bool(abs(trajectory.impacts[0].time - 0.4515) < 0.01)
    ('ground', True)
    """

    takes = (CLS,)
    special_friction: ClassVar[bool] = True
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
        """Theta in use."""
        return THETA[self.scheme] if self.theta is None else self.theta

    def limits(self, scales: ProblemScales) -> Limits:
        """Return the velocity limits: those given, or multiples of the typical speed."""
        return Limits(
            tolerance=SWEPT * scales.speed if self.tolerance is None else self.tolerance,
            rest_velocity=scales.rest_velocity(self.rest_velocity),
            impact_velocity=STRIKE * scales.speed,
        )

    simulate = engine("nosnoc_py.simulation.time_stepping.run:run")
    stepper = engine("nosnoc_py.simulation.time_stepping.stepper:TimeStepper")
