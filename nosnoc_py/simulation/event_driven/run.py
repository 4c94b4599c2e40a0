"""Event-driven simulation as a method of `nosnoc_py.simulate`: from a task to a `Trajectory`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nosnoc_py.motion.crossing import NODES
from nosnoc_py.motion.record import MotionRecord, contact_series
from nosnoc_py.simulation.common import SimulationTask, check_control, no_time_note, not_unique_note, steps_given
from nosnoc_py.simulation.event_driven.filippov.saltation import propagation_of as filippov_propagation
from nosnoc_py.simulation.event_driven.history import EventDrivenSimulator, SimulationResult
from nosnoc_py.simulation.event_driven.hybrid import HybridFlow
from nosnoc_py.simulation.event_driven.hybrid_saltation import propagation_of as hybrid_propagation
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.simulation.event_driven.saltation import propagation_of as contact_propagation
from nosnoc_py.simulation.event_driven.walk import VariationPropagation
from nosnoc_py.solution import RungeKuttaInterpolant, Sensitivity, Series, Trajectory
from nosnoc_py.solution.gradient import VariationTape
from nosnoc_py.status import Status
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import Control, merged
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.hybrid import HybridSystem
from nosnoc_py.systems.kinematics import ContactFrames
from nosnoc_py.systems.not_finite import ahead, not_finite
from nosnoc_py.systems.projection import admissible_directions
from nosnoc_py.systems.scales import problem_scales
from nosnoc_py.tolerances import REST_VELOCITY

# Rows of the trajectory's control if it varies between breaks.
CONTROL_ROWS = 200
# Distance to look ahead for a function that is not finite, as a fraction of the duration.
AHEAD = 1e-2


def run(system: Described, method: EventDriven, task: SimulationTask) -> Trajectory:
    """Simulate a system, see `nosnoc_py.simulate`."""
    start, parameters, control = task.start(system)
    if task.sensitivities:
        check_control(control)
        method = method.replace(rattling="events")
    intervals = None if task.steps is None else np.linspace(0.0, task.seconds, steps_given(task.steps) + 1)
    history = event_driven_simulator(system, method, start, control, parameters).run(
        start, control, parameters, deadline=task.deadline(), callback=task.callback, interruptible=True
    )
    # Breaks of a constant control stay nodes: the state's rate jumps there.
    grid = control.breaks if intervals is None else merged(control.breaks, intervals) if control.constant else intervals
    history = history.with_nodes(np.concatenate([grid, task.output_times()]))
    trajectory = trajectory_of(system, history, control, None if intervals is None else grid)
    if not task.sensitivities:
        return trajectory
    grid = trajectory.u_grid if control.constant else grid
    if task.sensitivities == "reverse":
        return replace(trajectory, variations=tape_along(system, history, control, grid))
    return replace(trajectory, sensitivity=sensitivity_along(system, history, control, grid))


def sensitivity_along(system: Described, history: SimulationResult, control: Control, grid: np.ndarray) -> Sensitivity:
    """Return derivatives along a result by x0, p and a control that is constant on the intervals of a grid (N + 1,)."""
    sensitivity, admitted = _propagation(system, history, control, grid).run(), _admitted(system, history)
    return sensitivity if admitted is None else sensitivity.of_directions(admitted)


def tape_along(system: Described, history: SimulationResult, control: Control, grid: np.ndarray) -> VariationTape:
    """Return the maps whose transposes give derivatives backwards along a result; see `sensitivity_along`."""
    return replace(_propagation(system, history, control, grid).tape(), admitted=_admitted(system, history))


def _propagation(
    system: Described, history: SimulationResult, control: Control, grid: np.ndarray
) -> VariationPropagation:
    if isinstance(system, CLS):
        system.refuse_special_friction("a derivative of a simulation")
        return contact_propagation(system, history, control, grid)
    if isinstance(system, HybridSystem):
        return hybrid_propagation(system, history, control, grid)
    return filippov_propagation(system, history, control, grid)


def _admitted(system: Described, history: SimulationResult) -> np.ndarray | None:
    """Return the projection of directions of x0 (n_x, n_x); None if all are admitted.

    A unit quaternion has three free directions; derivatives by its four components are no motions. Neither are changes
    that violate bilateral constraints.
    """
    if not isinstance(system, CLS) or (not system.unit_parts and system.bilateral is None):
        return None
    return admissible_directions(system, history.nodes[0].before, history.p)


def event_driven_simulator(
    system: Described,
    method: EventDriven,
    x0: np.ndarray,
    control: Control,
    p: np.ndarray,
    rests: float = REST_VELOCITY,
) -> EventDrivenSimulator:
    """Return the simulator of one motion, with tolerances relative to its typical speeds and lengths.

    Approaches slower than the fraction `rests` of the typical speed do not bounce unless the method says otherwise.
    """
    if not isinstance(system, CLS):
        return EventDrivenSimulator(system, method)
    duration = float(control.breaks[-1] - control.breaks[0])
    scales = problem_scales(system, x0=x0, control=control, p=p, duration=duration, speed_scale=method.speed_scale)
    rest = scales.rest_velocity(method.rest_velocity, rests)
    return EventDrivenSimulator(system, method.replace(rest_velocity=rest), scales)


def trajectory_of(
    system: Described, history: SimulationResult, control: Control, grid: np.ndarray | None = None
) -> Trajectory:
    """Return the trajectory of a result, with events, dense output and contact forces or multipliers.

    Its control has a row for each interval of the grid (N + 1,), by default between the breaks of a constant control.
    """
    rows = control_rows(control, history, system.n_u, grid)
    messages = [
        *_messages(history),
        *_not_finite_note(system, history, control),
        *no_time_note(history.status, len(history.steps)),
    ]
    impacts = [(node.t, node.impact) for node in history.nodes if node.impact is not None]

    def later() -> list[str]:
        # The search for other outcomes may take longer than the motion: it is made when somebody reads the message.
        return not_unique_note([t for t, impact in impacts if not impact.unique])

    record = record_of(system, history)
    return record.trajectory(system, history.p, rows, history.status, messages, later if impacts else None)


def _not_finite_note(system: Described, history: SimulationResult, control: Control) -> list[str]:
    """Return a message about the function that is not finite, for a motion that ended for this reason."""
    if history.status is not Status.NUMERICAL_ERROR:
        return []
    length = AHEAD * float(control.breaks[-1] - control.breaks[0])
    with np.errstate(all="ignore"):
        u = control(history.t, history.x)
        # The function fails at a trial state of the integrator, slightly beyond the last one that was accepted.
        states = ahead(system, history.x, u, history.p, length)
        for later in (u, *(control(history.t + length, x) for x in (history.x, *states))):
            if name := not_finite(system, states, later, history.p):
                return [f"{name} from t = {history.t:.6g} s on"]
    return []


def record_of(system: Described, history: SimulationResult) -> MotionRecord:
    """Return the steps of the integrator as a `MotionRecord`."""
    steps = history.steps
    if not steps:
        return MotionRecord(t=np.array([history.t]), x=history.x[None, :], events=history.events)
    x = np.array([step.x for step in steps])
    pieces = RungeKuttaInterpolant(
        t_left=np.array([step.t[0] for step in steps]),
        h=np.array([step.t[-1] - step.t[0] for step in steps]),
        c=NODES[1:],
        x_left=x[:, 0],
        x_stages=x[:, 1:],
        x_initial=history.nodes[0].before,
    )
    frames = system.mechanics.frames_at(history.p) if isinstance(system, CLS) else None
    series, units = (_multipliers(history), {}) if frames is None else _series(frames, history)
    return MotionRecord.of(
        pieces,
        x[:, -1],
        history.x if history.hits else None,
        events=history.events,
        series=series,
        units=units,
        unit_parts=system.unit_parts,
    )


def control_rows(
    control: Control, history: SimulationResult, n_u: int, grid: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the applied control as a grid (N + 1,) with rows (N, n_u); a law of time or state is sampled."""
    if not history.steps:
        return np.zeros(1), np.zeros((0, n_u))
    start, end = float(history.steps[0].t[0]), history.t
    if control.constant or control.held is not None or grid is not None:
        breaks = control.breaks if grid is None else grid
        inner = breaks[(breaks > start) & (breaks < end)]
        grid = np.concatenate([[start], inner, [end]])
    else:
        grid = np.linspace(start, end, CONTROL_ROWS + 1)
    # In the middle of a row, as the control may jump at its ends.
    middles = 0.5 * (grid[1:] + grid[:-1])
    if control.constant:
        return grid, np.array([control(t, np.zeros(0)) for t in middles]).reshape(len(middles), -1)
    # Linear interpolation is enough: these rows only show the control, they do not drive the motion.
    corners = [np.concatenate([getattr(step, name) for step in history.steps]) for name in ("t", "x")]
    states = RungeKuttaInterpolant.linear(*corners)
    return grid, np.array([control(t, states(t)) for t in middles]).reshape(len(middles), -1)


def _series(frames: ContactFrames, history: SimulationResult) -> tuple[dict[str, Series], dict[str, str]]:
    """Return contact forces and slip velocities over the steps and impulses at impacts, named as by FESD-J."""
    steps = history.steps
    t = np.concatenate([step.t for step in steps])
    forces, rates = (np.concatenate([getattr(step, name) for step in steps]) for name in ("forces", "rates"))
    hits = [(node.t, node.impact.impulses) for node in history.nodes if node.impact is not None]
    impact_times, impulses = (np.array(part) for part in zip(*hits, strict=True)) if hits else (None, None)
    return contact_series(
        (
            direction,
            (t, forces[:, k]),
            None if impact_times is None or impulses is None else (impact_times, impulses[:, k]),
            (t, rates[:, k]) if direction[0] == "tangent" else None,
        )
        for k, direction in enumerate(frames.directions)
    )


def _multipliers(history: SimulationResult) -> dict[str, Series]:
    """Return multipliers and algebraic variables over the steps, named as by FESD; a hybrid system has none."""
    if isinstance(history.flows[0], HybridFlow):
        return {}
    laws, steps = history.flows[0].laws, history.steps
    t = np.concatenate([step.t for step in steps])
    x, s = (np.concatenate([getattr(step, name) for step in steps]) for name in ("x", "forces"))
    values = laws.series(s, np.hstack([x, np.tile(history.p, (len(x), 1))]))
    return {name: Series(t, values[:, k]) for k, name in enumerate(laws.series_names)}


def _messages(history: SimulationResult) -> list[str]:
    """Return messages: reason of the end, and touches without speed."""
    notes = [history.message] if history.message else []
    touched = [node for node in history.nodes if node.grazing and not node.message]
    if touched and history.status is not Status.GRAZING:
        notes.append(f"{touched[0].grazing} is touched without speed at t = {touched[0].t:.9g}")
    open_ = [node for node in history.nodes if node.message and node.message != history.message]
    notes += [phase.note for phase in history.phases if phase.note]
    return notes + [f"t = {node.t:.9g}: {node.message}" for node in open_[:1]]
