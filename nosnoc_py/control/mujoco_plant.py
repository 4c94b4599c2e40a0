"""MuJoCo as the plant of a closed loop: other bodies, other contacts and another simulator than those of the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nosnoc_py.errors import ModelError, OptionError, check_positive
from nosnoc_py.robots.mjcf import compiled
from nosnoc_py.status import Status

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class MujocoState:
    """Where a MuJoCo plant is.

    Attributes
    ----------
    x : (n_q + n_v,)
    status : Status
        NUMERICAL_ERROR where MuJoCo's numbers are no numbers any more.
    message : str
    t : float
    """

    x: Array
    status: Status = Status.SOLVED
    message: str = ""
    t: float = 0.0


class MujocoPlant:
    """A plant for `ns.close_loop` that MuJoCo simulates (extra "robots").

    Its states are MuJoCo's qpos and qvel in the order of `joints`, its controls the actuators, or generalised forces.

    Parameters
    ----------
    model : str, Path or mujoco.MjModel
        An MJCF or URDF file, the text of one, or a model.
    period : float
        Between samples [s]; whole steps of the model.
    state_names, control_names : sequence of str, optional
        Those that the controller has; default those of qpos, qvel and of the actuators.
    forces : bool
        Controls are generalised forces on the degrees of freedom instead of the actuators' inputs.

    Raises
    ------
    ModelError
        If MuJoCo is not installed, or does not take the model.
    OptionError
        For a period that is no whole number of steps, or names of another number.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> text = '''<mujoco><option timestep="0.001"/><worldbody><body><joint name="x" type="slide" axis="1 0 0"/>
    ... <geom type="sphere" size="0.1" mass="1"/></body></worldbody>
    ... <actuator><motor joint="x"/></actuator></mujoco>'''
    >>> plant = ns.MujocoPlant(text, period=0.1)
    >>> log = ns.close_loop(lambda t, x: -2 * x[1] + 1.0, plant, 3.0, [0, 0])
    >>> log.success, abs(float(log.x[-1, 1]) - 0.5) < 0.01
    (True, True)
    """

    def __init__(
        self,
        model: Any,
        period: float,
        *,
        state_names: Sequence[str] | None = None,
        control_names: Sequence[str] | None = None,
        forces: bool = False,
    ) -> None:
        check_positive(period=period)
        self.mujoco, self.model = compiled(model) if isinstance(model, str | Path) else _imported(model)
        step = float(self.model.opt.timestep)
        self.steps = round(float(period) / step)
        if self.steps < 1 or abs(self.steps * step - float(period)) > 1e-9 * float(period):
            raise OptionError(f"MujocoPlant: period: expected whole steps of {step:g} s, given {period:g} s.")
        self.length, self.forces = float(period), forces
        sizes = self.model.nq + self.model.nv, self.model.nv if forces else self.model.nu
        self.state_names = _names(state_names, sizes[0], "state_names", self._default_states())
        own = [f"u_{i}" for i in range(sizes[1])]
        self.control_names = _names(control_names, sizes[1], "control_names", own)
        self.data = self.mujoco.MjData(self.model)

    def init(self, x0: Any, p: Any = None) -> MujocoState:
        """The plant in a state (n_q + n_v,); it has no parameters."""
        if p is not None:
            raise OptionError("MujocoPlant: p: this plant has no parameters; change its model instead.")
        x = np.asarray(x0, dtype=float).reshape(-1)
        if x.size != len(self.state_names) or not np.isfinite(x).all():
            raise ModelError(f"MujocoPlant: expected {len(self.state_names)} finite numbers, given {x0!r}.")
        self.mujoco.mj_resetData(self.model, self.data)
        self._put(x)
        return MujocoState(x=x.copy())

    def put(self, state: MujocoState, x: Array) -> MujocoState:
        """The same with another x: the clock and warm starts stay."""
        self._put(x)
        return MujocoState(x=np.array(x), t=state.t)

    def advance(self, state: MujocoState, u: Array) -> tuple[MujocoState, tuple[Array, Array, list[Any]]]:
        """One period with a control that is held: the state, and times (since its beginning), states and events."""
        control = self.data.qfrc_applied if self.forces else self.data.ctrl
        control[:] = u
        times, states = [0.0], [state.x]
        for k in range(self.steps):
            self.mujoco.mj_step(self.model, self.data)
            times.append((k + 1) * self.length / self.steps)
            states.append(np.concatenate([self.data.qpos, self.data.qvel]))
        x = states[-1]
        good = bool(np.isfinite(x).all()) and not self.data.warning.number.any()
        status = Status.SOLVED if good else Status.NUMERICAL_ERROR
        message = "" if good else "MuJoCo warned of its numbers; use a shorter step or softer contacts"
        made = MujocoState(x=x, status=status, message=message, t=state.t + self.length)
        keep = np.unique(np.linspace(0, self.steps, min(self.steps, 8) + 1).astype(int))
        return made, (np.array(times)[keep], np.array(states)[keep], [])

    def _put(self, x: Array) -> None:
        self.data.qpos[:], self.data.qvel[:] = x[: self.model.nq], x[self.model.nq :]
        self.mujoco.mj_forward(self.model, self.data)

    def _default_states(self) -> list[str]:
        """Names of joints where each has one coordinate, else numbers."""
        nq, nv, count = self.model.nq, self.model.nv, self.model.njnt
        if nq == nv == count:
            kind = self.mujoco.mjtObj.mjOBJ_JOINT
            joints = [self.mujoco.mj_id2name(self.model, kind, i) or f"q_{i}" for i in range(count)]
            return [*joints, *(f"v_{name}" for name in joints)]
        return [f"q_{i}" for i in range(nq)] + [f"v_{i}" for i in range(nv)]


def _imported(model: Any) -> tuple[Any, Any]:
    import mujoco  # an extra

    if not isinstance(model, mujoco.MjModel):
        raise OptionError(f"MujocoPlant: model: expected a file, its text or a mujoco.MjModel, given {model!r:.60}.")
    return mujoco, model


def _names(given: Sequence[str] | None, size: int, what: str, own: Sequence[str]) -> tuple[str, ...]:
    made = tuple(own if given is None else given)
    if len(made) != size:
        raise OptionError(f"MujocoPlant: {what}: expected {size} names, given {len(made)}.")
    return made
