"""Calibration of event-selected integration on the spring hopper, with its closed form and MuJoCo.

ESS, Section 5.1, Fig. 4 and Table 2. At the step of MuJoCo the program searches for the width eps' of the bands for
which Euler's projection has the RMS error of MuJoCo. The better projection of the library, with the default bands, is
compared with both. Times are those of the processor, of the whole call with its result, in one run, the programs in
turn. One of them is the bare loop of the paper's Listing 1, which has neither dense output nor events as objects. The
stiffness is not printed, so eps' is computed for many, together with the lowest height of the mass. Without MuJoCo (pip
install "nosnoc_py[bench]") its rows and the calibration are left out.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns
from models import spring_hopper
from nosnoc_py import compiled
from nosnoc_py.progress import Progress
from problems.benchmarks import event_selected_listing
from problems.benchmarks.event_selected_common import CHOSEN, median_seconds, results_of
from problems.figures import DASHED, Curve, Panel, chart
from problems.runner import Report, program, tabled
from problems.settings import Settings
from tests.references.event_selected import off_guard, rms

Array = NDArray[np.float64]

METHOD = ns.EventSelected(step=0.002)
BRACKET = (1e-3, 0.9)  # bracket of eps' [m]; the hopper starts 1 m above the guard
QUICK = {"repeats": 1}
MUJOCO, EULER, BETTER, LISTING = "MuJoCo", "Euler's projection", "RK-Newton", "Listing 1"
# Springs for which eps' is computed [N/m]; below 37 the mass of 1 kg sinks under the ground at height 0.
SPRINGS = (2.0, 5.0, 20.0, 40.0, 100.0, 400.0, 2000.0)
HALVINGS = 12  # steps of the bisections over springs: eps' to 0.2 %


@dataclass(frozen=True, eq=False, kw_only=True)
class Calibration:
    """Result of the calibration.

    Parameters
    ----------
    t : (nodes,)
        Multiples of the step [s].
    exact : (nodes, 2)
    states : mapping to (nodes, 2)
        Height [m] and velocity [m/s] by program.
    eps : float or None
        eps' [m]; None if the error of MuJoCo is not reached, or not known.
    seconds : mapping
        Median time of the processor by program [s].
    best : Trajectory
        Trajectory of the better projection.
    time_error : float
        Largest error of its events [s].
    widths : list of dict
        stiffness [N/m], eps' [m] and lowest height of the exact motion [m]; a tendon is the spring in MuJoCo.
    """

    t: Array
    exact: Array
    states: Mapping[str, Array]
    eps: float | None
    seconds: Mapping[str, float]
    best: ns.Trajectory
    time_error: float
    widths: list[dict[str, Any]]

    def errors(self, program: str) -> Array:
        """Return the residuals (nodes, 2)."""
        return np.asarray(self.states[program] - self.exact)

    def rms(self, program: str) -> float:
        """Return the RMS errors over time of heights [m] and velocities [m/s]."""
        return rms(self.errors(program))


def experiment(
    stiffness: float = 400.0, duration: float = 2.0, repeats: int = 20, *, method: ns.EventSelected = METHOD
) -> Calibration:
    """Calibrate and measure; `repeats` of every time."""
    constants = spring_hopper.Constants(stiffness=stiffness)
    count = round(duration / method.step)
    t = np.linspace(0.0, duration, count + 1)
    exact = spring_hopper.exact(t, constants)

    def ours(system: ns.EventSelectedSystem, **options: Any) -> ns.Trajectory:
        chosen = method.replace(**options)
        return ns.simulate(system, x0=constants.start, duration=duration, method=chosen)

    system = spring_hopper.build_numeric(constants)
    best = ours(system)
    states: dict[str, Array] = {BETTER: best(t)}
    programs: dict[str, Callable[..., Any]] = {f"{BETTER}, NumPy": lambda _: ours(system)}
    eps, widths = None, []
    if importlib.util.find_spec("mujoco") is not None:
        from models import mujoco_springs as mujoco_models

        model, start = mujoco_models.hopper(constants, method.step), np.array(constants.start)
        states[MUJOCO] = mujoco_models.trajectory(model, start, count)
        programs[MUJOCO] = lambda _: mujoco_models.final_state(model, start, count)
        aim = rms(states[MUJOCO] - exact)
        eps = bisect(lambda value: rms(ours(system, projection="euler", eps=value)(t) - exact), aim)
        widths = [_width(value, duration, method) for value in SPRINGS]
    if eps is not None:
        width = eps
        states[EULER] = ours(system, projection="euler", eps=width)(t)
        programs[f"{EULER}, NumPy"] = lambda _: ours(system, projection="euler", eps=width)
        programs[LISTING] = lambda _: listing(constants, duration, method.step, width)
    if compiled.available():
        fast = spring_hopper.build_numeric(constants, fast=True)
        programs[f"{BETTER}, compiled"] = lambda _: ours(fast)
        if eps is not None:
            programs[f"{EULER}, compiled"] = lambda _: ours(fast, projection="euler", eps=eps)
    times = [event.time for event in best.events]
    known = [time for _, time in spring_hopper.crossing_times(duration, constants)]
    same = len(times) == len(known)
    return Calibration(
        t=t,
        exact=exact,
        states=states,
        eps=eps,
        seconds=median_seconds(programs, range(repeats)),
        best=best,
        time_error=float(np.abs(np.subtract(times, known)).max()) if same else float("inf"),
        widths=widths,
    )


def listing(constants: spring_hopper.Constants, duration: float, step: float, eps: float) -> tuple[Array, Array]:
    """Return times (nodes,) and states (nodes, 2) of the hopper by the loop of Listing 1."""
    rate, length, gravity = constants.stiffness / constants.mass, constants.length, constants.gravity
    return event_selected_listing.integrate(
        lambda x, pressed: (x[1], rate * (length - x[0]) - gravity if pressed else -gravity),
        lambda x: length - x[0],
        np.array([-1.0, 0.0]),
        x0=np.array(constants.start),
        duration=duration,
        step=step,
        eps=eps,
    )


def _width(stiffness: float, duration: float, method: ns.EventSelected) -> dict[str, Any]:
    """Return eps' for one spring, and the lowest height of the mass."""
    from models import mujoco_springs

    constants = spring_hopper.Constants(stiffness=stiffness)
    t = np.linspace(0.0, duration, round(duration / method.step) + 1)
    exact, start = spring_hopper.exact(t, constants), np.array(constants.start)
    system = spring_hopper.build_numeric(constants, fast=compiled.available())
    model = mujoco_springs.hopper(constants, method.step, "tendons")

    def error(eps: float) -> float:
        chosen = method.replace(projection="euler", eps=eps)
        return rms(ns.simulate(system, x0=constants.start, duration=duration, method=chosen)(t) - exact)

    aim = rms(mujoco_springs.trajectory(model, start, t.size - 1) - exact)
    return {
        "stiffness": stiffness,
        "eps": bisect(error, aim, halvings=HALVINGS),
        "lowest_height": float(exact[:, 0].min()),
    }


def bisect(error: Callable[[float], float], aim: float, *, halvings: int = 30) -> float | None:
    """Return the eps in `BRACKET` with the target error by bisection of its logarithm; None if it is not in between."""
    low, high = np.log(BRACKET)
    if not error(BRACKET[0]) < aim < error(BRACKET[1]):
        return None
    for _ in range(halvings):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if error(float(np.exp(middle))) < aim else (low, middle)
    return float(np.exp(0.5 * (low + high)))


def run(settings: Settings, progress: Progress) -> Report:
    """Calibrate, and report."""
    started = time.monotonic()
    result = experiment(**settings.arguments, method=settings.method)
    system = spring_hopper.build_numeric(spring_hopper.Constants(stiffness=settings.arguments["stiffness"]))
    more = {
        "eps": result.eps,
        "rms": {name: result.rms(name) for name in result.states},
        "seconds": dict(result.seconds),
        "event_time_error": result.time_error,
        "widths": result.widths,
        "final_state_error": float(np.abs(result.best.final_state - result.exact[-1]).max()),
    }
    if result.eps is not None:
        line = f"eps' = {result.eps:.4g} m: there Euler's projection has the RMS error of MuJoCo (paper: 0.13)"
    elif MUJOCO in result.states:
        line = f"no eps' in {BRACKET} m has the RMS error of MuJoCo"
    else:
        line = 'MuJoCo is not installed: pip install "nosnoc_py[bench]"'
    return tabled(
        {**results_of(result.best, started, off_guard(result.best, system)), **more},
        result.best.success,
        {
            "over height [m] and velocity [m/s], at the nodes": [
                {"method": name, "RMS error": result.rms(name)} for name in result.states
            ],
            f"processor time of a simulation of {result.t[-1]:g} s, median": [
                {"program": name, "time [ms]": 1e3 * seconds} for name, seconds in result.seconds.items()
            ],
            "eps' [m] over stiffness [N/m], and lowest height [m]": result.widths,
        },
        {"event_selected_hopper.png": lambda: _drawn(result)},
        [line, f"largest error of the event times {result.time_error:.1e} s"],
    )


def _drawn(result: Calibration) -> Any:
    """Draw height and velocity and, below, the error of every program, as in Fig. 4."""
    times, panels = [event.time for event in result.best.events], []
    for column, quantity in enumerate(("height $z$ [m]", "velocity $v_z$ [m/s]")):
        curves = [Curve(result.t, result.exact[:, column], "closed form", DASHED)]
        curves += [Curve(result.t, states[:, column], name) for name, states in result.states.items()]
        off = {name: np.maximum(np.abs(result.errors(name)[:, column]), 1e-17) for name in result.states}
        panels.append(Panel(curves=curves, y=quantity, times=times))
        errors = [Curve(result.t, values, name) for name, values in off.items()]
        panels.append(Panel(curves=errors, y=f"error of {quantity}", log="y", times=times))
    return chart(panels, 2)


PROGRAM = program(__name__, run, experiment, quick=QUICK, method=METHOD, fixed=CHOSEN)
