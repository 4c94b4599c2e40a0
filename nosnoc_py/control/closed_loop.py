"""A controller and a plant in a closed loop, with noise, disturbances and delays, and a log of every sample."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.api import Simulator
from nosnoc_py.control.log import ClosedLoop
from nosnoc_py.control.measured import admissible
from nosnoc_py.control.mpc import MPC, Source, plan_of
from nosnoc_py.control.robustness import spread
from nosnoc_py.errors import ModelError, OptionError, check_positive
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.solution import Event
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
        `init(x0, p)` and `step(state, u)`, which return something with x and status, and the names `state_names`,
        `control_names`: see `nosnoc_py.control.MujocoPlant`.
    duration : float
        Seconds; rounded to whole periods.
    x0 : (n_x,)
    period : float, optional
        Between samples [s]; default that of the controller or of the simulator.
    p : (n_p,), optional
        Of the plant, which may be others than those that the controller knows.
    noise : float, (n_x,) or mapping, optional
        Standard deviation of white noise on every measured state, or on those named.
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
    >>> log.success, len(log.u), bool(abs(log["q"][-1] - 0.5) < 0.02)
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
    sigma: Array
    disturbances: Any
    rng: np.random.Generator
    deadline: float | None
    cost: Any
    rows: dict[str, list[Any]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    plans: list[Any] = field(default_factory=list)

    @classmethod
    def of(
        cls, controller: Any, plant: Any, duration: Any, x0: Any, period: Any, p: Any, noise: Any, disturbances: Any,
        seed: int, deadline: Any, method: Any,
    ) -> _Loop:  # fmt: skip
        """Check and put together."""
        if not (callable(controller) or hasattr(controller, "step")):
            raise OptionError(f"close_loop: controller: expected an MPC, a law u(t, x) or an object with step(x, t), given {controller!r}.")
        check_positive(duration=duration)
        known = getattr(controller, "period", None) or (plant.length if isinstance(plant, Simulator) else None)
        period = known if period is None else period
        if period is None:
            raise OptionError("close_loop: period: expected seconds between samples; this controller has none of its own.")
        check_positive(period=period, **({} if deadline is None else {"deadline": deadline}))
        period, duration = float(period), float(duration)
        system = plant if isinstance(plant, Described) else plant.system if isinstance(plant, Simulator) else None
        delay = float(getattr(controller, "delay", 0.0))
        if isinstance(plant, Described | Simulator):
            plant = _Stepped(plant, EventDriven(grazing="continue") if method is None else method, period, delay)
        elif delay:
            raise OptionError("close_loop: a delay needs a plant that is a system or a Simulator; this adapter steps periods.")
        if system is not None:
            names = system.state_names, system.control_names
            sigma = spread(noise, system, "noise", coordinates=False)
        else:
            names = tuple(plant.state_names), tuple(plant.control_names)
            sigma = np.broadcast_to(0.0 if noise is None else np.asarray(noise, dtype=float), (len(names[0]),))
        ocp = controller.ocp if isinstance(controller, MPC) else None
        cost = None if ocp is None or system is None else _stage_cost(ocp)
        x0 = np.asarray(x0, dtype=float).reshape(-1)
        return cls(
            controller, plant, names, system, period, max(1, round(duration / period)), x0, p, sigma, disturbances,
            np.random.default_rng(seed), deadline, cost,
        )  # fmt: skip

    def run(self, callback: Callable[[Any], Any] | None) -> ClosedLoop:
        """All samples."""
        self.rows = {name: [] for name in ("measured", "u", "source", "status", "how", "message", "latency", "late",
                                           "preparation", "cost", "motion_t", "motion_x")}  # fmt: skip
        if isinstance(self.controller, MPC):
            self.controller.reset()
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
        except Exception as error:  # nothing that was logged is lost
            status, message = Status.STOPPED, f"sample {len(self.x) - 1}: {type(error).__name__}: {error}"
        return self.log(status, message)

    def _sample(self, state: Any, k: int) -> tuple[Any, Status, str]:
        t = k * self.period
        moved = self._disturbed(t, self.x[-1])
        if moved is not None:
            moved = moved if self.system is None else admissible(self.system, moved, self.p)
            self.x[-1], state = moved, self.plant.put(state, moved)
        x = self.x[-1]
        noisy = x + self.sigma * self.rng.standard_normal(x.size)
        began = time.perf_counter()
        u, told = self._controlled(noisy, t)
        latency = told.get("latency", time.perf_counter() - began)
        late = told.get("late", self.deadline is not None and latency > self.deadline)
        state, motion = self.plant.advance(state, u)
        if not state.status.success:
            return state, state.status, f"the plant stopped in sample {k}: {getattr(state, 'message', '') or state.status}"
        prepared = time.perf_counter()
        if hasattr(self.controller, "prepare") and k + 1 < self.count:
            self.controller.prepare()
        values = {
            "measured": noisy, "u": u, "source": told.get("source", LAW), "status": told.get("status", str(Status.SOLVED)),
            "how": told.get("how", ""), "message": told.get("message", ""), "latency": latency, "late": float(late),
            "preparation": time.perf_counter() - prepared, "cost": self._cost(motion, u),
            "motion_t": motion[0] + t, "motion_x": motion[1],
        }  # fmt: skip
        for name, value in values.items():
            self.rows[name].append(value)
        self.events += [_moved(event, t) for event in motion[2]]
        self.plans.append(told.get("plan"))
        self.x.append(np.asarray(state.x, dtype=float))
        return state, Status.SOLVED, ""

    def _controlled(self, x: Array, t: float) -> tuple[Array, dict[str, Any]]:
        if isinstance(self.controller, MPC):
            if self.deadline is not None and self.controller.deadline is None:
                self.controller.deadline = self.deadline
            u = self.controller.step(x, t)
            last = self.controller.last
            assert last is not None
            told = {
                "source": str(last.source), "status": str(last.status), "how": last.how, "message": last.message,
                "late": last.late, "latency": last.seconds, "plan": (t, last),
            }  # fmt: skip
            return u, told
        given = self.controller.step(x, t) if hasattr(self.controller, "step") else self.controller(t, x)
        u = np.asarray(given, dtype=float).reshape(-1)
        if u.size != len(self.names[1]) or not np.isfinite(u).all():
            raise ModelError(f"the controller: expected {len(self.names[1])} finite numbers, given {given!r}.")
        return u, {}

    def _disturbed(self, t: float, x: Array) -> Array | None:
        if self.disturbances is None:
            return None
        if callable(self.disturbances):
            return x + np.asarray(self.disturbances(t, x, self.rng), dtype=float)
        added = np.zeros(x.size)
        for when, what in self.disturbances:
            if t - self.period * (1.0 - 1e-9) < when <= t * (1.0 + 1e-12):
                added += _vector(what, self.names[0])
        return x + added if added.any() else None

    def _cost(self, motion: Any, u: Array) -> float:
        if self.cost is None:
            return np.nan
        t, x, _ = motion
        values = np.array([float(self.cost(state, u)) for state in x])
        return float(np.sum(0.5 * (values[1:] + values[:-1]) * np.diff(t)))

    def log(self, status: Status = Status.SOLVED, message: str = "") -> ClosedLoop:
        """What there is."""
        rows, n_x = self.rows, len(self.names[0])
        done = len(rows["u"])
        plans = [_plan_rows(plan, n_x) for plan in self.plans]
        width = max((len(t) for t, _ in plans), default=0)
        plan_t, plan_x = np.full((done, width), np.nan), np.full((done, width, n_x), np.nan)
        for k, (t, x) in enumerate(plans):
            plan_t[k, : len(t)], plan_x[k, : len(t)] = t, x
        texts = {name: tuple(map(str, rows[key])) for name, key in
                 (("sources", "source"), ("statuses", "status"), ("hows", "how"), ("messages", "message"))}  # fmt: skip
        numbers = {name: np.array(rows[key], dtype=float) for name, key in
                   (("latency", "latency"), ("preparation", "preparation"), ("late", "late"), ("costs", "cost"))}  # fmt: skip
        return ClosedLoop(
            state_names=self.names[0], control_names=self.names[1], period=self.period,
            deadline=np.inf if self.deadline is None else self.deadline,
            t=self.period * np.arange(done + 1), x=np.array(self.x[: done + 1]).reshape(done + 1, n_x),
            measured=np.array(rows["measured"]).reshape(done, n_x), u=np.array(rows["u"]).reshape(done, len(self.names[1])),
            motion_t=np.concatenate([np.zeros(0), *rows["motion_t"]]),
            motion_x=np.concatenate([np.zeros((0, n_x)), *rows["motion_x"]]),
            plan_t=plan_t, plan_x=plan_x, events=tuple(self.events), status=status, message=message, **texts, **numbers,
        )  # fmt: skip


@dataclass(eq=False)
class _Stepped:
    """A plant of ours: steps of one period, cut where a delayed control begins to act."""

    def __init__(self, plant: Any, method: Any, period: float, delay: float) -> None:
        if isinstance(plant, Simulator):
            if delay or abs(plant.length - period) > 1e-9 * period:
                raise OptionError(
                    f"close_loop: plant: its steps of {plant.length:g} s have to be the period of {period:g} s, and a delay "
                    "needs the system itself."
                )
            self.parts = [plant]
        else:
            lengths = [length for length in (delay, period - delay) if length > 1e-12 * period]
            self.parts = [Simulator(plant, method, step=length) for length in lengths]
        self.delayed, self.acting = bool(delay), None

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


def _stage_cost(ocp: Any) -> ca.Function:
    s = ocp.system
    value = ca.substitute(ca.SX(ocp.stage_cost), s.p, ca.SX(s.parameters(None))) if s.n_p else ca.SX(ocp.stage_cost)
    return ca.Function("stage_cost", [s.x, s.u], [value])


def _vector(what: Any, names: Sequence[str]) -> Array:
    if isinstance(what, dict):
        made = np.zeros(len(names))
        for name, value in what.items():
            if name not in names:
                raise OptionError(f"disturbances: expected names of {', '.join(names)}, given {name!r}.")
            made[list(names).index(name)] = float(value)
        return made
    value = np.asarray(what, dtype=float)
    if value.shape != (len(names),) or not np.isfinite(value).all():
        raise OptionError(f"disturbances: expected {len(names)} finite numbers or names of states, given {what!r}.")
    return value
