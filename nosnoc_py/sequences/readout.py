"""From an iterate of the multi-phase program to a `Solution`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.audit.constraints import excess
from nosnoc_py.motion import kinds
from nosnoc_py.motion.record import MotionRecord
from nosnoc_py.mpcc.ipopt import NLPResult
from nosnoc_py.roles import Role
from nosnoc_py.sequences.plan import sequence_from_modes
from nosnoc_py.sequences.program import PhaseNLP
from nosnoc_py.solution import Event, RungeKuttaInterpolant, Series, Solution
from nosnoc_py.solution.records import Discretization, Residual, StepRecord
from nosnoc_py.solution.sequence import Sequence
from nosnoc_py.solution.solution import costate_name
from nosnoc_py.status import Status
from nosnoc_py.tableaus import lagrange_basis

Array = np.ndarray
# So many places inside of an element are looked at for inequalities that break there.
SAMPLES = 40


@dataclass(frozen=True, eq=False, kw_only=True)
class PhaseElements:
    """Numbers of all elements, one after the other.

    Attributes
    ----------
    phase, control : (E,)
    t_left, h : (E,)
    x_left : (E, n_x)
    x_stages : (E, n_s, n_x)
    z_stages : list of (n_s, n_z)
        As many multipliers as the mode has.
    u_stages : (E, n_s, n_u)
    """

    phase: Array
    control: Array
    t_left: Array
    h: Array
    x_left: Array
    x_stages: Array
    z_stages: list[Array]
    u_stages: Array


@dataclass(frozen=True, eq=False, kw_only=True)
class PhasePoint:
    """An iterate of a program with its numbers.

    Attributes
    ----------
    objective : float
        The user's, without penalties.
    violation : float
        Largest violation of a row or bound, in the user's units, with what terminal constraints miss.
    missed : float
        By how much terminal constraints are missed, where they are penalised.
    worst : str
        The name of the row.
    """

    program: PhaseNLP
    w: Array
    result: NLPResult | None
    objective: float
    violation: float
    missed: float
    worst: str

    @classmethod
    def of(cls, program: PhaseNLP, w: Array, result: NLPResult | None = None) -> PhasePoint:
        """Evaluate an iterate."""
        slack = w[program.at_slack]
        missed = float(slack.max(initial=0.0))
        violation, worst = program.nlp.violation(w)
        objective = program.nlp.evaluate(w)[0] - (program.mesh.penalty or 0.0) * float(slack.sum())
        return cls(
            program=program,
            w=w,
            result=result,
            objective=objective,
            violation=max(violation, missed),
            missed=missed,
            worst=worst if violation >= missed else "a terminal constraint",
        )

    @property
    def p(self) -> Array:
        """Parameters (n_p,)."""
        return self.w[self.program.at_p]

    @property
    def lengths(self) -> Array:
        """Of the phases [s]."""
        return self.program.lengths_of(self.w)

    @property
    def edges(self) -> Array:
        """Ends of the phases (phases + 1,) [s]."""
        return np.concatenate([[0.0], np.cumsum(self.lengths)])

    @property
    def sequence(self) -> Sequence:
        """As one would type it."""
        plan = self.program.plan
        return sequence_from_modes(plan.modes, plan.impacts, self.program.laws, self.edges[1:-1])

    def elements(self) -> PhaseElements:
        """All elements in their order."""
        g, w = self.program, self.w
        n_x, s, nodes = g.n_x, g.tableau.stages, g.control_nodes
        rows, phase, control, h = [], [], [], []
        for k in range(len(g.plan)):
            pieces = [piece for piece in g.pieces if piece.phase == k for _ in range(piece.elements)]
            for element, piece in zip(g.elements_of(k), pieces, strict=True):
                rows.append(element)
                phase.append(k)
                control.append(piece.control)
                h.append(max(0.0, w[piece.length] * piece.share))
        u, z, left, stages = [], [], [], []
        counts = dict.fromkeys(range(len(g.plan)), 0)
        for k, j, (index, _, place, width) in zip(phase, control, rows, strict=True):
            e = counts[k]
            counts[k] += 1
            left.append(w[index[:n_x]])
            stages.append(w[g.at_x[k][e]])
            z.append(w[g.at_z[k][e]].reshape(s, -1))
            u.append(g.control_basis(nodes, place + width * g.tableau.c) @ w[g.at_u[j]].reshape(nodes.size, -1))
        lengths = np.array(h)
        return PhaseElements(
            phase=np.array(phase),
            control=np.array(control),
            t_left=np.cumsum(lengths) - lengths,
            h=lengths,
            x_left=np.array(left),
            x_stages=np.array(stages),
            z_stages=z,
            u_stages=np.array(u),
        )


def solution_of(point: PhasePoint, status: Status, message: str, told: dict[str, Any]) -> Solution:
    """The solution that an iterate stands for; `told` are log, effort, and what made it."""
    g, s = point.program, point.program.ocp.system
    e, tableau, p = point.elements(), point.program.tableau, point.p
    pieces = RungeKuttaInterpolant(
        t_left=e.t_left, h=e.h, c=tableau.c, x_left=e.x_left, x_stages=e.x_stages, x_initial=point.w[g.at_x0]
    )
    series, units = _series(point, e)
    record = MotionRecord.of(
        pieces,
        e.x_stages[:, -1],
        events=_events(point),
        series=series,
        units={**s.units, **units},
        unit_parts=getattr(s, "unit_parts", ()),
    )
    multipliers: dict[str, Series] = {}
    if point.result is not None:
        multipliers, costates = _multipliers(point, e)
        record = replace(record, series={**record.series, **costates})
    return Solution(
        **record.fields,
        **_controls(point, e),
        state_names=s.state_names,
        control_names=s.control_names,
        parameters=dict(zip(s.parameter_names, p, strict=True)),
        discretization=Discretization(
            scheme=tableau.name, nodes=tuple(float(c) for c in tableau.c), collocation=True, time_freezing=False
        ),
        status=status,
        message=message,
        objective=point.objective,
        penalty=(g.mesh.penalty or 0.0) * float(point.w[g.at_slack].sum()),
        complementarity=0.0,
        complementarity_min=0.0,
        infeasibility=point.violation,
        worst=() if status.success else (Residual(point.violation, "equation", point.worst),),
        x0=point.w[g.at_x0],
        p=p,
        horizon=float(point.edges[-1]),
        multipliers=multipliers,
        w=point.w,
        sequence=point.sequence,
        **told,
    )


def peaks_of(point: PhasePoint, tolerance: float) -> tuple[Array, dict[str, float]]:
    """Times [s] between the nodes at which inequalities are broken most, in all elements in which they are.

    With the most by which each of them is, by its label.
    """
    g, e, p = point.program, point.elements(), point.p
    places = (np.arange(SAMPLES) + 0.5) / SAMPLES
    of_x, of_z = lagrange_basis(np.append(0.0, g.tableau.c), places), lagrange_basis(g.tableau.c, places)
    found, amounts = [], dict[str, float]()
    for k, mode in enumerate(g.modes):
        rows, lower, upper, labels = g.inner_rows(mode)
        for i in np.flatnonzero((e.phase == k) & (e.h > 0.0)):
            x, z = of_x @ np.vstack([e.x_left[i], e.x_stages[i]]), of_z @ e.z_stages[i]
            u = of_z @ e.u_stages[i]
            values = np.array(rows(x.T, z.T, u.T, p)).T.reshape(SAMPLES, -1)
            over = excess(values, np.array(lower), np.array(upper))
            for label, column in zip(labels, over.T, strict=True):
                j = int(column.argmax())
                if column[j] > tolerance:
                    found.append(e.t_left[i] + _highest(column, j, places) * e.h[i])
                    amounts[label] = max(float(column[j]), amounts.get(label, 0.0))
    return np.unique(found), amounts


def _highest(values: Array, j: int, places: Array) -> float:
    """Where the parabola through the largest sample and its neighbours is highest."""
    if j in (0, len(values) - 1):
        return float(places[j])
    left, middle, right = values[j - 1 : j + 2]
    bend = left - 2.0 * middle + right
    return float(places[j] + (0.5 * (left - right) / bend * (places[1] - places[0]) if bend < 0.0 else 0.0))


def log_record(step: int, label: str, point: PhasePoint) -> StepRecord:
    """The line of the log for one solve."""
    result = point.result
    assert result is not None
    return StepRecord(
        step=step,
        label=label,
        objective=point.objective,
        infeasibility=point.violation,
        iterations=result.iterations,
        wall_seconds=result.wall_seconds,
        solver_status=result.solver_status,
    )


def _controls(point: PhasePoint, e: PhaseElements) -> dict[str, Any]:
    """Constant controls on the intervals; polynomials as dense output."""
    g = point.program
    firsts = np.flatnonzero(np.diff(e.control, prepend=-1))
    ends = np.append(e.t_left[firsts], e.t_left[-1] + e.h[-1])
    values = point.w[g.at_u].reshape(g.controls, g.control_nodes.size, g.n_u)[e.control[firsts]]
    if g.mesh.degree == 0:
        return {"u_grid": ends, "u": values[:, 0]}
    smooth = RungeKuttaInterpolant(
        t_left=ends[:-1], h=np.diff(ends), c=g.control_nodes[1:], x_left=values[:, 0], x_stages=values[:, 1:]
    )
    return {"u_grid": ends, "u": values.mean(axis=1), "control_interpolant": smooth}


def _series(point: PhasePoint, e: PhaseElements) -> tuple[dict[str, Series], dict[str, str]]:
    """Forces and multipliers at the stages, impulses at the ends of phases."""
    g, s = point.program, point.program.ocp.system
    times = (e.t_left[:, None] + e.h[:, None] * g.tableau.c).ravel()
    values = np.zeros((len(e.h), g.tableau.stages, len(g.laws.shown)))
    for k, mode in enumerate(g.modes):
        shown = ca.Function("shown", [s.x, mode.z.symbol, s.p], [ca.densify(mode.shown)])
        for i in np.flatnonzero(e.phase == k):
            values[i] = np.array(shown(e.x_stages[i].T, e.z_stages[i].T, point.p)).reshape(-1, g.tableau.stages).T
    flat = values.reshape(times.size, -1)
    series = {label: Series(times, flat[:, i], role) for i, (label, role, _) in enumerate(g.laws.shown)}
    units = {label: unit for label, _, unit in (*g.laws.shown, *g.laws.impulses) if unit}
    if g.laws.impulses:
        edges = point.edges[:-1]
        impulses = np.array([_impulses(point, k) for k in range(len(g.plan))])
        series |= {label: Series(edges, impulses[:, i], role) for i, (label, role, _) in enumerate(g.laws.impulses)}
    return series, units


def _impulses(point: PhasePoint, k: int) -> Array:
    """Impulses (n_i,) before phase k."""
    g, s, boundary = point.program, point.program.ocp.system, point.program.boundaries[k]
    if boundary is None or not boundary.y.size:
        return np.zeros(len(g.laws.impulses))
    shown = ca.Function("shown", [s.x, boundary.y.symbol, s.p], [ca.densify(boundary.shown)])
    return np.array(shown(_before(point, k), point.w[g.at_y[k]], point.p))[:, 0]


def _before(point: PhasePoint, k: int) -> Array:
    """The state at the end of the phase before k."""
    g = point.program
    return point.w[g.at_x0 if k == 0 else g.at_x[k - 1][-1, -1]]


def _events(point: PhasePoint) -> tuple[Event, ...]:
    """What happens between the phases."""
    g, found = point.program, []
    for k, time in enumerate(point.edges[:-1]):
        if g.boundaries[k] is None:
            continue
        struck = g.laws.impacts_between(_before(point, k), point.w[g.at_left[k]], _impulses(point, k), point.p)
        found += [Event(float(time), *told) for told in struck]
        if k:
            found += kinds.events_at(float(time), g.laws.changes(g.plan.modes[k - 1], g.plan.modes[k]))
    return tuple(found)


def _multipliers(point: PhasePoint, e: PhaseElements) -> tuple[dict[str, Series], dict[str, Series]]:
    """Multipliers of rows by their labels, and costates: -E' mu / b at the stages."""
    g, nlp, s = point.program, point.program.nlp, point.program.ocp.system
    assert point.result is not None
    every = point.result.lam_g * nlp.row_scale / nlp.cost_scale
    n_x, stages, names = g.n_x, g.tableau.stages, s.state_names
    costates = np.zeros((len(e.h), stages, n_x))
    found: dict[str, tuple[list[Array], list[Array]]] = {}
    stage_times = e.t_left[:, None] + e.h[:, None] * g.tableau.c
    for block in nlp.blocks:
        values = nlp.of(block, every)
        if block in g.element_blocks:
            phases, width = g.element_blocks[block], g.stage_rows(block)
            rows = np.concatenate([np.flatnonzero(e.phase == k) for k in phases])
            mode = g.modes[phases[0]]
            inertia = None if mode.inertia is None else ca.Function("inertia", [s.x, s.p], [ca.densify(mode.inertia)])
            for j in range(stages):
                mu = values[:, j * width : j * width + n_x] / g.tableau.b[j]
                for i, row in enumerate(rows):
                    weight = mu[i] if inertia is None else np.array(inertia(e.x_stages[row, j], point.p)).T @ mu[i]
                    costates[row, j] = -weight
                for k in range(n_x, width):
                    times, parts = found.setdefault(block.labels[j * width + k], ([], []))
                    times.append(stage_times[rows, j])
                    parts.append(values[:, j * width + k])
            continue
        time = g.time_of(block, point.edges)
        for label, value in zip(block.labels, values[0], strict=True):
            times, parts = found.setdefault(label, ([], []))
            times.append(np.array([time]))
            parts.append(np.array([value]))
    order = {label: np.argsort(np.concatenate(times), kind="stable") for label, (times, _) in found.items()}
    multipliers = {
        label: Series(np.concatenate(times)[order[label]], np.concatenate(parts)[order[label]])
        for label, (times, parts) in found.items()
    }
    kept = e.h > 0.0
    t = stage_times[kept].ravel()
    flat = costates[kept].reshape(t.size, n_x)
    made = {costate_name(name): Series(t, flat[:, i], Role.COSTATE_ESTIMATE) for i, name in enumerate(names)}
    return multipliers, made
