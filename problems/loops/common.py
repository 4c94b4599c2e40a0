"""Closed loops as values: how they are run with a controller, reported and filmed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import nosnoc_py as ns
from nosnoc_py.plotting import dense_output
from nosnoc_py.progress import Progress
from problems.runner import Program, Report, Run, program, tabled
from problems.settings import Settings

# Jump of a state between two periods, relative to one and the state: more than errors of simulations.
KICKED = 1e-3
NOISE = 0.01  # standard deviation of measured states, relative to their nominal values


@dataclass(frozen=True, kw_only=True)
class Kicks:
    """Jumps of one state to random sides, at every n-th sample.

    Parameters
    ----------
    state : str
        Name of the state.
    size : float
        Amount of each jump, in the unit of the state.
    every : int
        Samples between two jumps.
    """

    state: str
    size: float
    every: int = 8

    def jumps(self, period: float, samples: int, seed: int, size: float | None = None) -> list[tuple[float, Any]]:
        """Return times [s] and jumps of a loop, as `ns.close_loop` takes them; `size` replaces the usual one."""
        rng, size = np.random.default_rng(seed), self.size if size is None else size
        return [
            (k * period, {self.state: size * rng.choice([-1.0, 1.0])}) for k in range(self.every, samples, self.every)
        ]


@dataclass(frozen=True, kw_only=True, eq=False)
class Loop:
    """Closed loop without its controller.

    Parameters
    ----------
    name : str
    ocp : OCP
        Problem that the controller solves at every sample.
    plant : CLS, PSS or PDS
        System that is controlled; it may differ from that of the problem.
    x0 : (n_x,)
        Initial state of the plant.
    period : float
        Time between samples [s].
    method : FESDJ or FESD
        Discretisation of the problem.
    noise : float
        Standard deviation of white measurement noise, relative to the nominal values of the states.
    kicks : Kicks, optional
        Disturbances of the plant.
    """

    name: str
    ocp: ns.OCP
    plant: Any
    x0: tuple[float, ...]
    period: float
    method: Any
    noise: float = NOISE
    kicks: Kicks | None = None


def closed(
    loop: Loop,
    controller: Any,
    *,
    samples: int = 60,
    seed: int = 0,
    kick: float | None = None,
    callback: Callable[[Any], Any] | None = None,
) -> ns.ClosedLoop:
    """Run a loop with a controller and return its log.

    Parameters
    ----------
    loop : Loop
    controller : MPC, law or object with `step(x, t)`
    samples : int
        Number of periods.
    seed : int
        Seed of the noise and of the sides of the kicks.
    kick : float, optional
        Size of the kicks, in the unit of their state; default that of the loop, 0 for none.
    callback : callable, optional
        As of `ns.close_loop`.
    """
    jumps = None if loop.kicks is None else loop.kicks.jumps(loop.period, samples, seed, kick)
    return ns.close_loop(
        controller, loop.plant, samples * loop.period, loop.x0, period=loop.period,
        noise=loop.noise * loop.plant.x_nominal, disturbances=jumps, seed=seed, callback=callback,
    )  # fmt: skip


def looped(
    loop: Callable[..., ns.ClosedLoop], assess: Callable[[ns.ClosedLoop], tuple[Mapping[str, Any], bool]]
) -> Run:
    """Return the run of a problem whose `loop(method, **arguments)` returns a log; `assess` gives values, verdict."""

    def run(settings: Settings, progress: Progress) -> Report:
        log = loop(settings.method, **settings.arguments)
        values, good = assess(log)
        latency = {name: 1e3 * seconds for name, seconds in log.percentiles.items()}
        sources = log.counts
        return tabled(
            {
                "status": log.status.value, "samples": len(log.u), "sources": sources, "latency_ms": latency,
                "late": log.misses, "cost": log.cost, "final_state": log.x[-1],
                "impacts": sum(event.kind == "impact" for event in log.events), **values,
            },
            log.success and good,
            {"where the controls are from": [sources], "latency [ms]": [latency]},
            {"loop.png": lambda: ns.plot(log)},
            log.summary().splitlines(),
        )  # fmt: skip

    return run


def loop_program(
    module: str,
    task: Callable[[], Loop],
    assess: Callable[[ns.ClosedLoop], tuple[Mapping[str, Any], bool]],
    *,
    method: Any,
    kick: float = 0.0,
    quick: Mapping[str, Any],
) -> Program:
    """Return the program of a module with a loop, under an MPC that has one period for each control.

    Parameters
    ----------
    module : str
        `__name__`.
    task : function () -> Loop
    assess : function (log) -> (values, bool)
        Values for the report, and whether the loop did what it should.
    method : FESDJ or FESD
    kick : float
        Default size of the kicks; 0 for a loop that has none.
    quick : mapping
        Changes by `--quick`.
    """

    def play(
        method: Any, samples: int = 60, seed: int = 0, kick: float = kick, preparation: float = 5.0
    ) -> ns.ClosedLoop:
        loop = task()
        mpc = ns.MPC(loop.ocp, method, period=loop.period, deadline=loop.period, preparation=preparation)
        return closed(loop, mpc, samples=samples, seed=seed, kick=kick)

    return program(module, looped(play, assess), play, quick=quick, method=method)


def motion_of(system: Any, log: ns.ClosedLoop, p: Any = None) -> ns.Trajectory:
    """Return the motion of the plant of a loop without delay: each period simulated again from the state of the log.

    Parameters
    ----------
    system : CLS, PSS or PDS
        Plant of the loop.
    log : ClosedLoop
    p : (n_p,), optional
        Parameters of the plant.
    """
    plant = ns.Simulator(system, ns.EventDriven(grazing="continue"), step=log.period)
    times: list[Any] = []
    states: list[Any] = []
    for begin, end, x, u in zip(log.t, log.t[1:], log.x, log.u, strict=False):
        t, inner = dense_output(plant.run(x, steps=1, u=[u], p=p))
        # Rows of NaN are gaps between the sides of a jump.
        inside = np.isfinite(inner).all(axis=1)
        # A period ends where the next one begins, without an error of rounding.
        times += [[begin], np.where(t[inside] < t[-1], np.minimum(begin + t[inside], end), end)]
        # A kick may be followed by an impact at once: its state is on neither side of that.
        states += [[x], inner[inside]]
    return ns.Trajectory(
        t=np.concatenate(times), x=np.concatenate(states), u_grid=log.t, u=log.u,
        events=log.events, state_names=log.state_names, control_names=log.control_names,
        parameters=dict(zip(system.parameter_names, system.parameters(p), strict=True)),
    )  # fmt: skip


def filmed(system: Any, log: ns.ClosedLoop, path: str | Path, p: Any = None, **options: Any) -> Path:
    """Write a film of the plant of a loop, with its kicks and the source of every control; options of `ns.animate`."""
    motion = motion_of(system, log, p)
    kicked = _kicked(motion, log)

    def note(t: float) -> str:
        k = int(np.clip(np.searchsorted(log.t, t + 1e-9 * log.period, "right") - 1, 0, len(log.u) - 1))
        return f"{log.sources[k]}, kicked" if kicked[k] else log.sources[k]

    return Path(ns.animate(system, motion, path, note=note, **options))


def _kicked(motion: ns.Trajectory, log: ns.ClosedLoop) -> Any:
    """Return (n,) for every sample, whether the state has jumped between two periods."""
    before, after = motion(log.t[1:-1], "-"), log.x[1:-1]
    return np.concatenate([[False], (np.abs(after - before) > KICKED * (1.0 + np.abs(after))).any(axis=1)])
