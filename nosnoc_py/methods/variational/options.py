"""Options of the Lie group variational collision integrator."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from nosnoc_py.options import Method
from nosnoc_py.simulation.common import SimulationMethod, SimulationTask
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.rigid_body import RigidBody


def _text(value: Any) -> Any:
    """5.1 is a name, also where it was read as a number."""
    return str(value) if isinstance(value, float) else value


class LieGroupVariational(SimulationMethod):
    """Rigid bodies on SE(3) with impacts, by discrete mechanics (LGVCI): equal steps, impacts located within them.

    A step of free flight is the map of a discrete Lagrangian: symplectic, of second order, and rotations stay
    rotations. It keeps the energy of a body that does not collide to rounding, and the angular momentum in the world.

    algorithm "5.2": at an impact the momenta jump as those of the continuous motion do. With restitution 1 and without
    friction the energy is kept to rounding over any time; through an impact the map is not symplectic.

    algorithm "5.1": the impact, too, is that of the discrete Lagrangian, and the discrete energy E_d of the parts of a
    step before and behind it agree. The map of a step with an impact is symplectic; the energy H differs from one step
    to the next by terms of second order in h, wanders over many impacts and stays bounded in practice. Only for
    restitution 1 without friction. Impacts too slow for its equation take the impulse of 5.2; the message counts them.

    Points of a body that touch at once are struck one after the other, the fastest first: restitution is that of each
    of them, not of the body, and a symmetry may be lost. A flat octagon that falls on its face leaves it spinning.

    With restitution below 1 impacts may accumulate. zeno="stop" ends there with the status ZENO; "settle" lets the body
    rest on the plane from there, if its impacts are slow, |g| h at most: after every step its position and its velocity
    are projected back, which is of first order in h only and never gains energy from the end of one step to the next.
    Within a step it may sink in a little. A body that touches a plane nothing presses it onto slides along it.

    Parameters
    ----------
    h : float
        Length of a step [s]; the duration is divided into equal steps that are not longer than this. `simulate` takes
        their number as `steps` instead. Where h |Pi| is too large for the equation of flight, beyond about a quarter
        turn in a step, it is an error at the start, and the status NUMERICAL_ERROR later.
    algorithm : {"5.2", "5.1"}
    samples : int
        Gaps are tested at the ends of this many equal parts of a flight. What closes and opens in between is missed.
    max_impacts : int
        Impacts in one step beyond which it is Zeno's, or ends with that status where they are too fast for him.
    zeno : {"stop", "settle"}
    record_every : int
        Steps from one node of the trajectory to the next; impacts and the end are always nodes. There are more where
        the body has turned by more than 1 rad since the last one, since between two nodes it turns about one axis, by
        less than half a turn.
    compiled : bool or "auto"
        Whether numba compiles the loop; "auto": if it is installed and the shape has features.
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

    def simulate(self, system: RigidBody, task: SimulationTask) -> Trajectory:
        """Step by step; see `nosnoc_py.simulate`."""
        from nosnoc_py.methods.variational.run import run  # which knows these options

        return run(system, self, task)
