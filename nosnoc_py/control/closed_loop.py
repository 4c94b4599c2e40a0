"""Closed-loop simulation of a controller and a plant with noise, disturbances and delays, and a log of every sample.

Order of one sample at t_k = k T: disturb the state, measure it (with noise), compute the control, advance the plant by
one period T under the held control, then let the controller prepare the next sample. With a delay the control acts only
after it, so a period has two parts: old control, then new control. Errors of controller or plant end the loop with a
status; the samples before stay in the log.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nosnoc_py.api import Simulator
from nosnoc_py.arguments import named_arguments
from nosnoc_py.control.measured import admissible
from nosnoc_py.control.mpc import MPC
from nosnoc_py.control.mpc_step import Source, plan_of
from nosnoc_py.control.predicted import by_names
from nosnoc_py.errors import ModelError, OptionError, check_positive
from nosnoc_py.simulation.event_driven.options import THROUGH_TOUCHES
from nosnoc_py.solution import Event
from nosnoc_py.solution.closed_loop import ClosedLoop
from nosnoc_py.status import Status, Stop
from nosnoc_py.systems.described import Described

Array = np.ndarray
# Points of the motion per smooth phase between two samples that the log keeps: enough for plots and for the trapezoidal
# rule of the cost, few enough for thousands of samples.
POINTS = 8
# Source in the log of controls that come from a law, which has no plan.
LAW = "law"


@named_arguments
def close_loop(
    controller: Any,
    plant: Any,
    duration: float,
    x0: Any,
    *,
    period: float | None = None,
    p: Any = None,
    noise: Any = None,
    disturbances: Any = None,
    seed: int = 0,
    deadline: float | None = None,
    method: Any = None,
    callback: Callable[[Any], Any] | None = None,
) -> ClosedLoop:
    """Simulate a controller and a plant in a closed loop.

    Parameters
    ----------
    controller : MPC, TrackingLaw, SampledLaw or function
        An object with `step(x, t)` -> (n_u,), or a law u(t, x) -> (n_u,). An object with `prepare()` (an `MPC`) is
        prepared between samples.
    plant : CLS, PSS, Heaviside, PDS, Simulator or adapter
        A system is simulated by `method`; a `Simulator` has the period as its step. An adapter has the methods
        `init(x0, p)`, `put(state, x)` and `advance(state, u)` and the attributes `state_names`, `control_names` (see
        `ns.MujocoPlant`).
    duration : float
        Simulated time [s], rounded to whole periods.
    x0 : (n_x,)
        Initial state of the plant.
    period : float, optional
        Time between samples [s]; default that of the controller or of the simulator.
    p : (n_p,), optional
        Parameters of the plant, which may differ from those of the controller.
    noise : float, (n_x,), mapping or function, optional
        Standard deviation of white measurement noise, in units of the states: of all states, or of those named. A
        function (t, x, rng) -> (n_x,) returns the error added to the state; NaN stands for a failed measurement.
    disturbances : sequence of (t, (n_x,) or mapping), or function, optional
        Jumps added to the state at the first sample at or after t [s]; a function (t, x, rng) -> (n_x,) is called at
        every sample.
    seed : int
        Seed of the random generator `rng`.
    deadline : float, optional
        Computing time available for a control [s]. Later controls are counted in the log; an `MPC` without a deadline
        of its own takes this one and then discards late plans.
    method : EventDriven, TimeStepping, FESDJ, optional
        Simulation method of a plant that is a system; default `EventDriven(grazing="continue")`.
    callback : callable, optional
        Called after every sample with a function that returns the log so far; returns `ns.Stop` to end the loop.

    Returns
    -------
    ClosedLoop
        Log of all completed samples. Ctrl-C, a failed simulation of the plant and an error of the controller end the
        loop early; `status` and `message` give the reason.

    Raises
    ------
    OptionError
        For inputs of wrong sizes or names, a missing period, or a delay or method that the plant does not support.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
    >>> log = ns.close_loop(lambda t, x: 9 * (0.5 - x[0]) - 5 * x[1], cart, 3.0, [0, 0], period=0.1, noise=1e-3)
    >>> log.success, len(log.u), bool(abs(log["q_0"][-1] - 0.5) < 0.02)
    (True, 30, True)
    """
    run = _Loop.of(controller, plant, duration, x0, period, p, noise, disturbances, seed, deadline, method)
    return run.run(callback)


@dataclass(eq=False)
class _Loop:
    """State of a running closed loop; the log is built from `rows` and `events`."""

    controller: Any
    plant: Any
    names: tuple[tuple[str, ...], tuple[str, ...]]
    system: Described | None
    period: float
    count: int
    x0: Array
    p: Any
    noise: Any
    disturbances: Any
    rng: np.random.Generator
    deadline: float | None
    cost: Any
    rows: list[dict[str, Any]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    @classmethod
    def of(
        cls, controller: Any, plant: Any, duration: Any, x0: Any, period: Any, p: Any, noise: Any, disturbances: Any,
        seed: int, deadline: Any, method: Any,
    ) -> _Loop:  # fmt: skip
        """Check the inputs of `close_loop` and build the loop."""
        if not (callable(controller) or hasattr(controller, "step")):
            raise OptionError(
                "close_loop: controller: expected an MPC, a law u(t, x) or an object with step(x, t), given "
                f"{controller!r}."
            )
        own_period = getattr(controller, "period", None) or getattr(plant, "length", None)
        period = own_period if period is None else period
        if period is None:
            raise OptionError(
                "close_loop: period: expected seconds between samples, because this controller has no period."
            )
        check_positive(duration=duration, period=period, **({} if deadline is None else {"deadline": deadline}))
        period, duration = float(period), float(duration)
        # Other laws may be sampled at any period; the plan of an MPC is shifted by whole control stages per sample.
        if own_period is not None and isinstance(controller, MPC) and abs(period - controller.period) > 1e-9 * period:
            raise OptionError(
                f"close_loop: period: the controller plans for {controller.period:g} s, given {period:g} s."
            )
        system = plant if isinstance(plant, Described) else plant.system if isinstance(plant, Simulator) else None
        delay = float(getattr(controller, "delay", 0.0))
        if isinstance(plant, Described | Simulator):
            plant = _SimulatedPlant(plant, THROUGH_TOUCHES if method is None else method, period, delay)
        # An adapter advances whole periods: a delayed control would have to start inside one.
        elif delay or method is not None:
            raise OptionError(
                "close_loop: a delay and method= need a plant that is a system; this plant steps whole periods only."
            )
        names = (system or plant).state_names, (system or plant).control_names
        size = len(names[0])
        noise = noise if callable(noise) else by_names(0.0 if noise is None else noise, names[0], "close_loop: noise")
        start = np.asarray(x0, dtype=float).reshape(-1)
        if start.size != size or not np.isfinite(start).all():
            raise OptionError(f"close_loop: x0: expected {size} finite numbers, given {x0!r}.")
        # The cost is a function of states of the model, which an adapter need not have.
        cost = controller.cost if isinstance(controller, MPC) and system is not None else None
        return cls(
            controller, plant, names, system, period, max(1, round(duration / period)), start, p,
            noise, disturbances, np.random.default_rng(seed), deadline, cost,
        )  # fmt: skip

    def run(self, callback: Callable[[Any], Any] | None) -> ClosedLoop:
        """Run all samples and return the log."""
        if isinstance(self.controller, MPC):
            # A controller may have been used before; old plans must not leak into this loop.
            self.controller.reset()
            if self.deadline is not None and self.controller.deadline is None:
                self.controller.deadline = self.deadline
        # `x` has one entry more than `rows`: the state at the start of every sample, and the last one.
        state = self.plant.init(self.x0, self.p)
        self.x = [np.asarray(state.x, dtype=float)]
        status, message = Status.SOLVED, ""
        try:
            for k in range(self.count):
                state, status, message = self._sample(state, k)
                if not status.success:
                    break
                if callback is not None and isinstance(callback(self.log), Stop):
                    status, message = Status.STOPPED, f"stopped after {k + 1} samples"
                    break
        except KeyboardInterrupt:
            status, message = Status.INTERRUPTED, f"interrupted at sample {len(self.x) - 1}"
        return self.log(status, message)

    def _sample(self, state: Any, k: int) -> tuple[Any, Status, str]:
        t = k * self.period
        disturbed = self._with_disturbance(t, self.x[-1])
        if disturbed is not None:
            # A jump may push bodies into each other, where no simulation can start.
            disturbed = disturbed if self.system is None else admissible(self.system, disturbed, self.p)
            self.x[-1], state = disturbed, self.plant.put(state, disturbed)
        measured = self._with_noise(t, self.x[-1])
        try:
            row = self._control_row(measured, t)
        except Exception as error:  # any error of a controller ends the loop, but keeps the log
            return state, Status.CONTROLLER_FAILED, f"sample {k}: {type(error).__name__}: {error}"
        # The plant moves under the undisturbed control; noise acts on measurements only.
        state, motion = self.plant.advance(state, row["u"])
        if not state.status.success:
            reason = getattr(state, "message", "") or state.status
            return state, state.status, f"the plant stopped in sample {k}: {reason}"
        began = time.perf_counter()
        # After the plant has moved: real controllers prepare meanwhile, and the time counts as preparation, not as
        # latency.
        if hasattr(self.controller, "prepare") and k + 1 < self.count:
            self.controller.prepare()
        row["preparation"] = time.perf_counter() - began
        self.rows.append(row | {"cost": self._cost(motion, row["u"]), "t": motion[0] + t, "x": motion[1]})
        self.events += [_shifted_event(event, t) for event in motion[2]]
        self.x.append(np.asarray(state.x, dtype=float))
        return state, Status.SOLVED, ""

    def _with_noise(self, t: float, x: Array) -> Array:
        if callable(self.noise):
            return np.asarray(x + np.asarray(self.noise(t, x, self.rng), dtype=float))
        return np.asarray(x + self.noise * self.rng.standard_normal(x.size))

    def _control_row(self, x: Array, t: float) -> dict[str, Any]:
        """Call the controller and return the fields of the log row: control, latency, source, plan."""
        began = time.perf_counter()
        returned = self.controller.step(x, t) if hasattr(self.controller, "step") else self.controller(t, x)
        latency = time.perf_counter() - began
        u = np.asarray(returned, dtype=float).reshape(-1)
        if u.size != len(self.names[1]) or not np.isfinite(u).all():
            raise ModelError(f"expected {len(self.names[1])} finite numbers of the controller, given {returned!r}.")
        # A late control of a plain law still acts: only an MPC has a fallback, and decides itself.
        late = self.deadline is not None and latency > self.deadline
        row = {"measured": x, "u": u, "latency": latency, "late": late, "source": LAW, "status": Status.SOLVED}
        if isinstance(self.controller, MPC):
            last = self.controller.last
            assert last is not None
            plan_fields = {"how": last.how, "message": last.message, "late": last.late, "plan": (t, last)}
            row |= {"source": last.source, "status": last.status, **plan_fields}
        return row

    def _with_disturbance(self, t: float, x: Array) -> Array | None:
        if self.disturbances is None:
            return None
        if callable(self.disturbances):
            return x + np.asarray(self.disturbances(t, x, self.rng), dtype=float)
        jump = np.zeros(x.size)
        for when, value in self.disturbances:
            # Half-open interval (t - period, t] with room for rounding, so that each jump acts exactly once.
            if t - self.period * (1.0 - 1e-9) < when <= t * (1.0 + 1e-12):
                jump += by_names(value, self.names[0], "close_loop: disturbances")
        return x + jump if jump.any() else None

    def _cost(self, motion: Any, u: Array) -> float:
        if self.cost is None:
            return np.nan
        t, x, _ = motion
        assert self.system is not None
        # The plant's parameters, not the controller's: costs of different controllers on one plant are comparable.
        return float(self.cost.running(t, x, u, self.system.parameters(self.p)))

    def log(self, status: Status = Status.SOLVED, message: str = "") -> ClosedLoop:
        """Return the log of the completed samples."""
        rows, n_x = self.rows, len(self.names[0])
        count = len(rows)
        plans = [_plan_rows(row.get("plan"), n_x) for row in rows]
        width = max((len(t) for t, _ in plans), default=0)
        # Plans have different numbers of points; rows are padded by NaN.
        plan_t, plan_x = np.full((count, width), np.nan), np.full((count, width, n_x), np.nan)
        for k, (t, x) in enumerate(plans):
            plan_t[k, : len(t)], plan_x[k, : len(t)] = t, x

        def texts(name: str) -> tuple[str, ...]:
            return tuple(str(row.get(name, "")) for row in rows)

        def numbers(name: str, *shape: int) -> Array:
            return np.array([row[name] for row in rows], dtype=float).reshape(count, *shape)

        return ClosedLoop(
            state_names=self.names[0], control_names=self.names[1], period=self.period,
            deadline=np.inf if self.deadline is None else self.deadline, t=self.period * np.arange(count + 1),
            x=np.array(self.x[: count + 1]), measured=numbers("measured", n_x), u=numbers("u", len(self.names[1])),
            motion_t=np.concatenate([np.zeros(0), *(row["t"] for row in rows)]),
            motion_x=np.concatenate([np.zeros((0, n_x)), *(row["x"] for row in rows)]),
            plan_t=plan_t, plan_x=plan_x, events=tuple(self.events), status=status, message=message,
            sources=texts("source"), statuses=texts("status"), hows=texts("how"), messages=texts("message"),
            latency=numbers("latency"), preparation=numbers("preparation"), late=numbers("late"),
            costs=numbers("cost"),
        )  # fmt: skip


@dataclass(eq=False)
class _SimulatedPlant:
    """Plant simulated by this library; a period is split where a delayed control begins to act."""

    def __init__(self, plant: Any, method: Any, period: float, delay: float) -> None:
        if isinstance(plant, Simulator):
            if delay or abs(plant.length - period) > 1e-9 * period:
                raise OptionError(
                    f"close_loop: plant: expected steps as long as the period, {period:g} s, and no delay, given an "
                    f"ns.Simulator with steps of {plant.length:g} s; for other periods and delays pass the system."
                )
            self.parts = [plant]
        else:
            # A `Simulator` has one step length, hence one for each part; a part without length is left out.
            lengths = [length for length in (delay, period - delay) if length > 1e-12 * period]
            self.parts = [Simulator(plant, method, step=length) for length in lengths]
        # Parts with the previous control come first; with a delay of the whole period there are no others.
        self.late_parts = int(delay > 1e-12 * period)
        self.acting: Array | None = None

    def init(self, x0: Any, p: Any) -> Any:
        """Return the initial simulator state."""
        self.p = p
        return self.parts[0].init(x0, p)

    def put(self, state: Any, x: Array) -> Any:
        """Return the simulator state for another x."""
        return self.parts[0].init(x, self.p)

    def advance(self, state: Any, u: Array) -> tuple[Any, Any]:
        """Advance by one period; during the delay the previous control still acts."""
        # Before the first control arrives, none acts.
        last_control = np.zeros_like(u) if self.acting is None else self.acting
        times, states, events, begin = [0.0], [np.asarray(state.x, dtype=float)], [], 0.0
        controls = [last_control] * self.late_parts + [u] * (len(self.parts) - self.late_parts)
        for part, control in zip(self.parts, controls, strict=True):
            # The state of one simulator is none of the other: it starts anew from x.
            state = part.step(part.init(state.x, self.p) if len(self.parts) > 1 else state, control)
            if not state.status.success:
                break
            inner_t, inner_x, inner_events = _step_motion(state, part.length)
            times += [begin + t for t in inner_t]
            states += list(inner_x)
            events += [_shifted_event(event, begin) for event in inner_events]
            begin += part.length
        self.acting = u
        return state, (np.array(times), np.array(states), events)


def _step_motion(state: Any, length: float) -> tuple[Array, Array, list[Event]]:
    """Return times since the beginning of a step, states and events in it (only its end if there is no history)."""
    history = getattr(state, "history", None)
    if history is None or not history.steps:
        return np.array([length]), np.asarray(state.x)[None], []
    # The history counts from the start of the simulation, the log of a sample from its own start.
    begin = state.t - length
    t = np.concatenate([step.t for step in history.steps]) - begin
    x = np.concatenate([step.x for step in history.steps])
    # Thin out the integrator steps; a log of thousands of samples would grow too large.
    keep = np.unique(np.linspace(0, len(t) - 1, POINTS * max(1, len(history.phases))).astype(int))
    return t[keep], x[keep], [_shifted_event(event, -begin) for event in history.events]


def _shifted_event(event: Event, by: float) -> Event:
    return replace(event, time=event.time + by)


def _plan_rows(plan: Any, n_x: int) -> tuple[Array, Array]:
    if plan is None:
        return np.zeros(0), np.zeros((0, n_x))
    began, step = plan
    if step.source != Source.SOLVED or step.plan is None:
        return np.zeros(0), np.zeros((0, n_x))
    motion = plan_of(step)
    assert motion is not None
    return motion.t - motion.t0 + began, motion.x[:, :n_x]
