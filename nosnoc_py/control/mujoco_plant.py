"""MuJoCo as the plant of a closed loop: an independent simulator with its own contact model.

A test on the controller's own model contains no model error. MuJoCo's contacts are soft, so that its motions differ
from those of rigid contacts. The adapter has the methods that `closed_loop` calls: `init`, `put`
and `advance`; a period is a whole number of MuJoCo's time steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import ModelError, OptionError, check_positive
from nosnoc_py.robots.mjcf import compiled
from nosnoc_py.status import Status

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class MujocoState:
    """State of a MuJoCo plant.

    Attributes
    ----------
    x : (n_q + n_v,)
        qpos and qvel.
    status : Status
        NUMERICAL_ERROR if MuJoCo reports a warning or the state is not finite.
    message : str
        Explanation of a failure, else empty.
    t : float
        Simulated time [s].
    """

    x: Array
    status: Status = Status.SOLVED
    message: str = ""
    t: float = 0.0


@named_arguments
class MujocoPlant:
    """Plant for `ns.close_loop` that is simulated by MuJoCo (extra "robots").

    Its states are MuJoCo's qpos and qvel in the order of the joints; its controls are actuator inputs or generalised
    forces.

    Parameters
    ----------
    model : str, Path or mujoco.MjModel
        MJCF or URDF file, its text, or a compiled model.
    period : float
        Time between samples [s], a whole number of time steps of the model.
    state_names, control_names : sequence of str, optional
        Names used by the controller; default names of the joints and u_0, u_1, ... for the controls.
    forces : bool
        If True, controls are generalised forces (n_v,) instead of actuator inputs.

    Raises
    ------
    ModelError
        If MuJoCo is not installed or rejects the model.
    OptionError
        For a period that is not a whole number of time steps, or a wrong number of names.

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
        # The control is held for whole steps of MuJoCo: a remainder would let clocks of controller and plant drift
        # apart.
        self.steps = round(float(period) / step)
        if self.steps < 1 or abs(self.steps * step - float(period)) > 1e-9 * float(period):
            raise OptionError(f"MujocoPlant: period: expected whole steps of {step:g} s, given {period:g} s.")
        self.length, self.forces = float(period), forces
        sizes = self.model.nq + self.model.nv, self.model.nv if forces else self.model.nu
        self.state_names = _names(state_names, sizes[0], "state_names", self._default_states())
        numbered = [f"u_{i}" for i in range(sizes[1])]
        self.control_names = _names(control_names, sizes[1], "control_names", numbered)
        self.data = self.mujoco.MjData(self.model)

    @named_arguments
    def init(self, x0: Any, p: Any = None) -> MujocoState:
        """Return the plant in a state (n_q + n_v,); it has no parameters.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> text = '''<mujoco><option timestep="0.001"/><worldbody><body><joint name="x" type="slide" axis="1 0 0"/>
        ... <geom type="sphere" size="0.1" mass="1"/></body></worldbody></mujoco>'''
        >>> ns.MujocoPlant(text, period=0.1).init([0.5, 0.0]).x
        array([0.5, 0. ])
        """
        if p is not None:
            raise OptionError("MujocoPlant: p: this plant has no parameters; change its model instead.")
        x = np.asarray(x0, dtype=float).reshape(-1)
        if x.size != len(self.state_names) or not np.isfinite(x).all():
            raise ModelError(f"MujocoPlant: expected {len(self.state_names)} finite numbers, given {x0!r}.")
        # Clock, warm starts and counted warnings of an earlier loop must not leak into this one.
        self.mujoco.mj_resetData(self.model, self.data)
        self._put(x)
        return MujocoState(x=x.copy())

    def put(self, state: MujocoState, x: Array) -> MujocoState:
        """Return the plant with another x; clock and solver warm starts are kept.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> text = '''<mujoco><option timestep="0.001"/><worldbody><body><joint name="x" type="slide" axis="1 0 0"/>
        ... <geom type="sphere" size="0.1" mass="1"/></body></worldbody></mujoco>'''
        >>> plant = ns.MujocoPlant(text, period=0.1)
        >>> plant.put(plant.init([0.5, 0.0]), [0.0, 1.0]).x
        array([0., 1.])
        """
        self._put(x)
        return MujocoState(x=np.array(x), t=state.t)

    def advance(self, state: MujocoState, u: Array) -> tuple[MujocoState, tuple[Array, Array, list[Any]]]:
        """Advance by one period with a held control; return the state and (times from its start, states, events).

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> text = '''<mujoco><option timestep="0.001"/><worldbody><body><joint name="x" type="slide" axis="1 0 0"/>
        ... <geom type="sphere" size="0.1" mass="1"/></body></worldbody></mujoco>'''
        >>> plant = ns.MujocoPlant(text, period=0.1, forces=True)
        >>> state, (times, states, events) = plant.advance(plant.init([0.0, 1.0]), [0.0])
        >>> state.x.round(6), state.t
        (array([0.1, 1. ]), 0.1)
        """
        # Generalised forces need no actuators in the model.
        control = self.data.qfrc_applied if self.forces else self.data.ctrl
        control[:] = u
        times, states = [0.0], [state.x]
        for k in range(self.steps):
            self.mujoco.mj_step(self.model, self.data)
            times.append((k + 1) * self.length / self.steps)
            states.append(np.concatenate([self.data.qpos, self.data.qvel]))
        x = states[-1]
        # MuJoCo resets a simulation that diverges by itself: finite numbers alone prove nothing, its warnings have to
        # be read.
        is_finite = bool(np.isfinite(x).all()) and not self.data.warning.number.any()
        status = Status.SOLVED if is_finite else Status.NUMERICAL_ERROR
        message = (
            ""
            if is_finite
            else "MuJoCo reports values that are not finite or too large; use a shorter step or softer contacts"
        )
        next_state = MujocoState(x=x, status=status, message=message, t=state.t + self.length)
        # A log does not need every step; `POINTS` of the closed loop is of the same size.
        keep = np.unique(np.linspace(0, self.steps, min(self.steps, 8) + 1).astype(int))
        return next_state, (np.array(times)[keep], np.array(states)[keep], [])

    def _put(self, x: Array) -> None:
        self.data.qpos[:], self.data.qvel[:] = x[: self.model.nq], x[self.model.nq :]
        # Quantities that follow from qpos and qvel (contacts, accelerations) still belong to the old state.
        self.mujoco.mj_forward(self.model, self.data)

    def _default_states(self) -> list[str]:
        """Return names of the joints if each has one coordinate, else numbered names."""
        nq, nv, count = self.model.nq, self.model.nv, self.model.njnt
        # Free and ball joints have more coordinates than one: their names would not be unique.
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


def _names(names: Sequence[str] | None, size: int, what: str, default: Sequence[str]) -> tuple[str, ...]:
    result = tuple(default if names is None else names)
    if len(result) != size:
        raise OptionError(f"MujocoPlant: {what}: expected {size} names, given {len(result)}.")
    return result
