"""A controller and a plant in a closed loop, with noise, disturbances and delays, and a log of every sample."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nosnoc_py.api import Simulator
from nosnoc_py.control.measured import admissible
from nosnoc_py.control.mpc import MPC, Source, plan_of
from nosnoc_py.control.predicted import by_names
from nosnoc_py.errors import ModelError, OptionError, check_positive
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.solution import Event
from nosnoc_py.solution.closed_loop import ClosedLoop
from nosnoc_py.status import Status, Stop
from nosnoc_py.systems.described import Described

Array = np.ndarray
# Points of a motion between two samples that a log keeps.
POINTS = 8
LAW = "law"


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
    """Measure, control, simulate, again and again.

    Parameters
    ----------
    controller : MPC, TrackingLaw, SampledLaw or function
        What has a `step(x, t)` that returns a control, or a law u(t, x). An `MPC` is prepared between samples.
    plant : CLS, PSS, Heaviside, PDS, Simulator or adapter
        A system is simulated event by event, or by `method`; a `Simulator` with the period as its step. An adapter has
        `init(x0, p)`, `put(state, x)` and `advance(state, u)`, and the names `state_names`, `control_names`: see
        `ns.MujocoPlant`.
    duration : float
        Seconds; rounded to whole periods.
    x0 : (n_x,)
    period : float, optional
        Between samples [s]; default that of the controller or of the simulator.
    p : (n_p,), optional
        Of the plant, which may be others than those that the controller knows.
    noise : float, (n_x,), mapping or function, optional
        Standard deviation of white noise on every measured state, or on those named; or a function (t, x, rng) ->
        (n_x,) of what is added to the state, NaN for a measurement that fails.
    disturbances : sequence of (t, (n_x,) or mapping), or function, optional
        What is added to the state at the sample at or after t; or a function (t, x, rng) -> (n_x,) at every sample.
    seed : int
    deadline : float, optional
        Seconds for an answer: later ones are counted, and those of an `MPC` do not act (it has its own, else this one).
    method : EventDriven, TimeStepping, FESDJ, optional
        Of a plant that is a system; default `EventDriven(grazing="continue")`.
    callback : callable, optional
        Called after every sample with the log so far (a function that makes it); returns `ns.Stop` to end the loop.

    Returns
    -------
    ClosedLoop
        Up to where it ended: Ctrl-C, a plant that cannot go on and a controller's error leave what there is, and
        `status` and `message` say what it was.

    Raises
    ------
    OptionError
        For what does not fit together.

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
    """A loop on its way."""

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
        """Check and put together."""
        if not (callable(controller) or hasattr(controller, "step")):
            raise OptionError(
                "close_loop: controller: expected an MPC, a law u(t, x) or an object with step(x, t), given "
                f"{controller!r}."
            )
        known = getattr(controller, "period", None) or getattr(plant, "length", None)
        period = known if period is None else period
        if period is None:
            raise OptionError(
                "close_loop: period: expected seconds between samples; this controller has none of its own."
            )
        check_positive(duration=duration, period=period, **({} if deadline is None else {"deadline": deadline}))
        period, duration = float(period), float(duration)
        if known is not None and isinstance(controller, MPC) and abs(period - controller.period) > 1e-9 * period:
            raise OptionError(
                f"close_loop: period: the controller plans for {controller.period:g} s, given {period:g} s."
            )
        system = plant if isinstance(plant, Described) else plant.system if isinstance(plant, Simulator) else None
        delay = float(getattr(controller, "delay", 0.0))
        if isinstance(plant, Described | Simulator):
            plant = _Stepped(plant, EventDriven(grazing="continue") if method is None else method, period, delay)
        elif delay or method is not None:
            raise OptionError(
                "close_loop: a delay and a method need a plant that is a system; this adapter steps whole periods."
            )
        names = (system or plant).state_names, (system or plant).control_names
        size = len(names[0])
        noise = noise if callable(noise) else by_names(0.0 if noise is None else noise, names[0], "close_loop: noise")
        start = np.asarray(x0, dtype=float).reshape(-1)
        if start.size != size or not np.isfinite(start).all():
            raise OptionError(f"close_loop: x0: expected {size} finite numbers, given {x0!r}.")
        cost = controller.cost if isinstance(controller, MPC) and system is not None else None
        return cls(
            controller, plant, names, system, period, max(1, round(duration / period)), start, p,
            noise, disturbances, np.random.default_rng(seed), deadline, cost,
        )  # fmt: skip

    def run(self, callback: Callable[[Any], Any] | None) -> ClosedLoop:
        """All samples."""
        if isinstance(self.controller, MPC):
            self.controller.reset()
            if self.deadline is not None and self.controller.deadline is None:
                self.controller.deadline = self.deadline
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
        moved = self._disturbed(t, self.x[-1])
        if moved is not None:
            moved = moved if self.system is None else admissible(self.system, moved, self.p)
            self.x[-1], state = moved, self.plant.put(state, moved)
        noisy = self._measured(t, self.x[-1])
        try:
            row = self._controlled(noisy, t)
        except Exception as error:  # whatever a controller raises: what was logged is not lost
            return state, Status.CONTROLLER_FAILED, f"sample {k}: {type(error).__name__}: {error}"
        state, motion = self.plant.advance(state, row["u"])
        if not state.status.success:
            why = getattr(state, "message", "") or state.status
            return state, state.status, f"the plant stopped in sample {k}: {why}"
        began = time.perf_counter()
        if hasattr(self.controller, "prepare") and k + 1 < self.count:
            self.controller.prepare()
        row["preparation"] = time.perf_counter() - began
        self.rows.append(row | {"cost": self._cost(motion, row["u"]), "t": motion[0] + t, "x": motion[1]})
        self.events += [_moved(event, t) for event in motion[2]]
        self.x.append(np.asarray(state.x, dtype=float))
        return state, Status.SOLVED, ""

    def _measured(self, t: float, x: Array) -> Array:
        if callable(self.noise):
            return np.asarray(x + np.asarray(self.noise(t, x, self.rng), dtype=float))
        return np.asarray(x + self.noise * self.rng.standard_normal(x.size))

    def _controlled(self, x: Array, t: float) -> dict[str, Any]:
        """The control for a measured state, and what the controller says of it."""
        began = time.perf_counter()
        given = self.controller.step(x, t) if hasattr(self.controller, "step") else self.controller(t, x)
        latency = time.perf_counter() - began
        u = np.asarray(given, dtype=float).reshape(-1)
        if u.size != len(self.names[1]) or not np.isfinite(u).all():
            raise ModelError(f"expected {len(self.names[1])} finite numbers of the controller, given {given!r}.")
        late = self.deadline is not None and latency > self.deadline
        row = {"measured": x, "u": u, "latency": latency, "late": late, "source": LAW, "status": Status.SOLVED}
        if isinstance(self.controller, MPC):
            last = self.controller.last
            assert last is not None
            told = {"how": last.how, "message": last.message, "late": last.late, "plan": (t, last)}
            row |= {"source": last.source, "status": last.status, **told}
        return row

    def _disturbed(self, t: float, x: Array) -> Array | None:
        if self.disturbances is None:
            return None
        if callable(self.disturbances):
            return x + np.asarray(self.disturbances(t, x, self.rng), dtype=float)
        added = np.zeros(x.size)
        for when, what in self.disturbances:
            if t - self.period * (1.0 - 1e-9) < when <= t * (1.0 + 1e-12):
                added += by_names(what, self.names[0], "close_loop: disturbances")
        return x + added if added.any() else None

    def _cost(self, motion: Any, u: Array) -> float:
        if self.cost is None:
            return np.nan
        t, x, _ = motion
        assert self.system is not None
        return float(self.cost.running(t, x, u, self.system.parameters(self.p)))

    def log(self, status: Status = Status.SOLVED, message: str = "") -> ClosedLoop:
        """What there is."""
        rows, n_x = self.rows, len(self.names[0])
        done = len(rows)
        plans = [_plan_rows(row.get("plan"), n_x) for row in rows]
        width = max((len(t) for t, _ in plans), default=0)
        plan_t, plan_x = np.full((done, width), np.nan), np.full((done, width, n_x), np.nan)
        for k, (t, x) in enumerate(plans):
            plan_t[k, : len(t)], plan_x[k, : len(t)] = t, x

        def texts(name: str) -> tuple[str, ...]:
            return tuple(str(row.get(name, "")) for row in rows)

        def numbers(name: str, *shape: int) -> Array:
            return np.array([row[name] for row in rows], dtype=float).reshape(done, *shape)

        return ClosedLoop(
            state_names=self.names[0], control_names=self.names[1], period=self.period,
            deadline=np.inf if self.deadline is None else self.deadline, t=self.period * np.arange(done + 1),
            x=np.array(self.x[: done + 1]), measured=numbers("measured", n_x), u=numbers("u", len(self.names[1])),
            motion_t=np.concatenate([np.zeros(0), *(row["t"] for row in rows)]),
            motion_x=np.concatenate([np.zeros((0, n_x)), *(row["x"] for row in rows)]),
            plan_t=plan_t, plan_x=plan_x, events=tuple(self.events), status=status, message=message,
            sources=texts("source"), statuses=texts("status"), hows=texts("how"), messages=texts("message"),
            latency=numbers("latency"), preparation=numbers("preparation"), late=numbers("late"),
            costs=numbers("cost"),
        )  # fmt: skip


@dataclass(eq=False)
class _Stepped:
    """A plant of ours: steps of one period, cut where a delayed control begins to act."""

    def __init__(self, plant: Any, method: Any, period: float, delay: float) -> None:
        if isinstance(plant, Simulator):
            if delay or abs(plant.length - period) > 1e-9 * period:
                raise OptionError(
                    f"close_loop: plant: its steps of {plant.length:g} s have to be the period of {period:g} s, and "
                    "a delay needs the system itself."
                )
            self.parts = [plant]
        else:
            lengths = [length for length in (delay, period - delay) if length > 1e-12 * period]
            self.parts = [Simulator(plant, method, step=length) for length in lengths]
        self.delayed = bool(delay)
        self.acting: Array | None = None

    def init(self, x0: Any, p: Any) -> Any:
        """The state at the start."""
        self.p = p
        return self.parts[0].init(x0, p)

    def put(self, state: Any, x: Array) -> Any:
        """The same with another x."""
        return self.parts[0].init(x, self.p)

    def advance(self, state: Any, u: Array) -> tuple[Any, Any]:
        """One period: during the delay the control before acts."""
        before = np.zeros_like(u) if self.acting is None else self.acting
        times, states, events, at = [0.0], [np.asarray(state.x, dtype=float)], [], 0.0
        controls = [before, u][-len(self.parts) :] if self.delayed else [u]
        for part, control in zip(self.parts, controls, strict=True):
            state = part.step(part.init(state.x, self.p) if len(self.parts) > 1 else state, control)
            if not state.status.success:
                break
            inner_t, inner_x, found = _between(state, part.length)
            times += [at + t for t in inner_t]
            states += list(inner_x)
            events += [_moved(event, at) for event in found]
            at += part.length
        self.acting = u
        return state, (np.array(times), np.array(states), events)


def _between(state: Any, length: float) -> tuple[Array, Array, list[Event]]:
    """Times since the beginning of a step, states and events in it, as far as the simulator tells them."""
    history = getattr(state, "history", None)
    if history is None or not history.steps:
        return np.array([length]), np.asarray(state.x)[None], []
    begin = state.t - length
    t = np.concatenate([step.t for step in history.steps]) - begin
    x = np.concatenate([step.x for step in history.steps])
    keep = np.unique(np.linspace(0, len(t) - 1, POINTS * max(1, len(history.phases))).astype(int))
    return t[keep], x[keep], [_moved(event, -begin) for event in history.events]


def _moved(event: Event, by: float) -> Event:
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
