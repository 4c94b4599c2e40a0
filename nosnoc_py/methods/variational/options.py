"""Options of `LieGroupVariational`, the Lie group variational collision integrator."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from nosnoc_py.options import Method, engine
from nosnoc_py.simulation.common import SimulationMethod
from nosnoc_py.systems.rigid_body import RigidBody


def _text(value: Any) -> Any:
    """Convert 5.1, read as a number from a file, to the name of the algorithm."""
    return str(value) if isinstance(value, float) else value


class LieGroupVariational(SimulationMethod):
    """Simulate rigid bodies on SE(3) with impacts by the Lie group variational collision integrator (LGVCI).

    Steps of equal length with located impacts. A step of free flight is the map of a discrete Lagrangian: symplectic,
    of second order, and rotations stay in SO(3). Without collisions the energy, and the angular momentum in the world
    frame, are conserved to rounding.

    Algorithm "5.2": at an impact the momenta jump as in continuous time, v+ = -e v-. With restitution 1 and without
    friction the energy is conserved to rounding over any time; the map is not symplectic at impacts.

    Algorithm "5.1": the impact, too, follows from the discrete Lagrangian, so the discrete energy E_d of the parts of a
    step before and after the impact is equal. The map of a step with an impact is symplectic; the energy H changes by
    terms of second order in h and stays bounded in practice. Only for restitution 1 without friction. Impacts that are
    too slow for its equation take the impulse of 5.2; the message counts them.

    Points that touch simultaneously are handled one after the other, the fastest first. Restitution then belongs to
    each point, not to the body, and a symmetry may be lost: a flat octagon that falls on its face starts to spin.

    With restitution below 1 impacts may accumulate. zeno="stop" ends the simulation with the status ZENO. "settle" lets
    the body rest if its impacts are slow (at most |g| h): after every step position and velocity are projected onto the
    plane, which is of first order in h and never gains energy. Within a step a small penetration is possible. A body
    that touches a plane without being pressed onto it slides along it.

    Parameters
    ----------
    h : float
        Largest length of a step [s]; the duration is divided into equal steps. Alternatively pass `steps` to
        `simulate`. If h |Pi| is too large for the equation of flight (about a quarter turn per step), an OptionError is
        raised at the start, or the simulation ends with the status NUMERICAL_ERROR.
    algorithm : {"5.2", "5.1"}
        Algorithm of LGVCI, see above.
    samples : int
        Number of equal parts of a flight at whose ends gaps are tested. A gap that closes and opens in between is
        missed.
    max_impacts : int
        Largest number of impacts in one step; more count as accumulation (Zeno).
    zeno : {"stop", "settle"}
        Reaction to accumulating impacts, see above.
    record_every : int
        Number of steps between nodes of the trajectory. Impacts, the end, and states turned by more than 1 rad since
        the last node are always nodes, as rotations are interpolated about one axis.
    compiled : bool or "auto"
        True compiles the loop by numba; "auto" does so if numba is installed and the shape has features.

    Raises
    ------
    OptionError
        By `nosnoc_py.simulate`, for a step that is too long, restitution or friction with algorithm "5.1", or
        compiled=True for a shape given by a Python function.

    References
    ----------
    Tran and Leok, "Lie group variational collision integrators for a class of hybrid systems" (LGVCI), Algorithms 5.1
    and 5.2, Corollary 4.6.

    Examples
    --------
    A ball falls from 1 m on a floor with restitution 1 and conserves its energy:

    >>> import numpy as np, nosnoc_py as ns
    >>> floor = ns.Plane("floor", normal=[0, 0, 1], restitution=1.0)
    >>> ball = ns.RigidBody(mass=1.0, inertia=np.eye(3) * 0.1, shape=ns.Sphere(0.5), planes=[floor])
    >>> x0 = ball.state(position=[0, 0, 1.5])
    >>> motion = ns.simulate(ball, x0=x0, duration=1.0, method=ns.LieGroupVariational(h=0.01, compiled=False))
    >>> len(motion.impacts), bool(np.ptp(motion.series["energy"].values) < 1e-12)
    (1, True)
    """

    takes = (RigidBody,)
    refuses: ClassVar = {
        **Method.refuses,
        "solver": "LieGroupVariational takes none; its options are those of the method",
        "sensitivities": "a rigid body tumbles chaotically, its derivatives are not computed",
        **dict.fromkeys(("u", "p"), "a rigid body has neither controls nor parameters; leave it out"),
    }

    h: float = Field(default=0.01, gt=0)
    algorithm: Annotated[Literal["5.2", "5.1"], BeforeValidator(_text)] = "5.2"
    samples: int = Field(default=1, ge=1)
    max_impacts: int = Field(default=100, ge=1)
    zeno: Literal["stop", "settle"] = "stop"
    record_every: int = Field(default=1, ge=1)
    compiled: bool | Literal["auto"] = "auto"

    @model_validator(mode="after")
    def _check(self) -> LieGroupVariational:
        if self.algorithm == "5.1" and self.zeno == "settle":
            raise ValueError("zeno 'settle' belongs to algorithm='5.2'; 5.1 has restitution 1, where nothing settles")
        return self

    simulate = engine("nosnoc_py.methods.variational.run:run")
