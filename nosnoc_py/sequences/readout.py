"""Conversion of an iterate of the multi-phase program into a `Solution`.

States, controls, forces and impulses are read from the unknowns of the program; events follow from the changes of mode
and from the impacts between phases. Multipliers of the rows are converted to the user's units. Costates are estimated
from the multipliers mu of the dynamics E S = h f: -E' mu / b at every stage with the weight b of the quadrature.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.audit.constraints import excess
from nosnoc_py.functions import function_of, matrices
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
# An inequality of a mode is active where it is below this, relative to its change by typical changes of the unknowns.
ACTIVE = 1e-5
# Samples per element in the search for inequalities that are violated between the stages: several per half-wave of a
# polynomial with the largest number of stages (12).
SAMPLES = 40


@dataclass(frozen=True, eq=False, kw_only=True)
class PhaseElements:
    """Values of all elements in the order of time.

    Attributes
    ----------
    phase, control : (E,) int
        Phase and control interval of every element.
    t_left, h : (E,)
        Begin and length [s].
    x_left : (E, n_x)
    x_stages : (E, n_s, n_x)
    z_stages : list of (n_s, n_z)
        Multipliers; their number depends on the mode.
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
    """Iterate of a multi-phase program with its objective and violation.

    Attributes
    ----------
    program : PhaseNLP
    w : (n,)
        Unknowns in the user's units.
    result : NLPResult, optional
        Result of the solver with its multipliers.
    objective : float
        Objective of the OCP, without penalties.
    violation : float
        Largest violation of a row or bound in the user's units, including `missed`.
    residual : float
        Largest violation relative to the scales of rows and unknowns, which decides if the point is feasible.
    missed : float
        Largest violation of a terminal constraint, where these are penalised.
    worst : str
        Name of the row with the largest violation.
    """

    program: PhaseNLP
    w: Array
    result: NLPResult | None
    objective: float
    violation: float
    residual: float
    missed: float
    worst: str

    @classmethod
    def of(cls, program: PhaseNLP, w: Array, result: NLPResult | None = None) -> PhasePoint:
        """Evaluate an iterate."""
        w = program.with_kinks(w)  # slacks of kinks do not belong to the answer: the objective is that of the user
        # The slacks hide what penalised terminal constraints miss: it counts as a violation, not as a cost.
        slack = w[program.at_slack]
        missed = float(slack.max(initial=0.0))
        violation, worst = program.nlp.violation(w)
        missed_rows = slack / program.nlp.scale[program.at_slack]
        residual = max(program.nlp.residual(w), float(missed_rows.max(initial=0.0)))
        objective = program.nlp.evaluate(w)[0] - program.penalty_at(w)
        return cls(
            program=program,
            w=w,
            result=result,
            objective=objective,
            violation=max(violation, missed),
            residual=residual,
            missed=missed,
            worst=worst if violation >= missed else "a terminal constraint",
        )

    @cached_property
    def objective_at_start(self) -> float:
        """Objective of the start of the program."""
        return float(self.program.nlp.evaluate(self.program.w0)[0])

    @cached_property
    def is_inside_mode(self) -> bool:
        """True if no inequality of a mode is active, but at the ends of the horizon.

        A motion that is held at the end of its mode may be better in the next one.
        """
        g = self.program
        values = g.nlp.evaluate(self.w)[1] * g.nlp.row_scale
        for block, phases in g.stage_blocks.items():
            last, count = g.stage_rows(block), g.modes[phases[0]].inequalities.size
            slack = g.nlp.of(block, values)[:, last - count : last]
            slack = slack.reshape(len(slack) // g.tableau.stages, g.tableau.stages * count)
            if (slack[1:-1] <= ACTIVE).any():
                return False
        return True

    @property
    def not_finite(self) -> str:
        """The place where a value or derivative of the program is not finite; "" if all are."""
        return self.program.not_finite(self.w)

    @cached_property
    def p(self) -> Array:
        """Parameters (n_p,)."""
        return self.w[self.program.at_p]

    @cached_property
    def lengths(self) -> Array:
        """Lengths of the phases (phases,) [s]."""
        return self.program.lengths_of(self.w)

    @cached_property
    def edges(self) -> Array:
        """Ends of the phases (phases + 1,) [s]."""
        return np.concatenate([[0.0], np.cumsum(self.lengths)])

    @cached_property
    def sequence(self) -> Sequence:
        """Mode sequence with its times, in its shortest form."""
        plan = self.program.plan
        return sequence_from_modes(plan.modes, plan.impacts, self.program.laws, self.edges[1:-1])

    def elements(self) -> PhaseElements:
        """Return the values of all elements in the order of time."""
        g, w, e = self.program, self.w, self.program.elements
        h = np.maximum(w[e.length] * e.share, 0.0)
        return PhaseElements(
            phase=e.phase,
            control=e.control,
            t_left=np.cumsum(h) - h,
            h=h,
            x_left=w[e.left],
            x_stages=w[e.x],
            z_stages=[part for at in g.at_z for part in w[at]],
            u_stages=g.stage_controls(w, np.arange(h.size)),
        )


def solution_of(point: PhasePoint, status: Status, message: str, fields: dict[str, Any]) -> Solution:
    """Return the solution of an iterate; `fields` are further fields of it: log, effort, method."""
    g, s = point.program, point.program.ocp.system
    e, tableau, p = point.elements(), point.program.tableau, point.p
    pieces = RungeKuttaInterpolant(
        t_left=e.t_left, h=e.h, c=tableau.c, x_left=e.x_left, x_stages=e.x_stages, x_initial=point.w[g.at_x0]
    )
    impulses = np.array([_impulses(point, k) for k in range(len(g.plan))])
    series, units = _series(point, e, impulses)
    record = MotionRecord.of(
        pieces,
        e.x_stages[:, -1],
        events=_events(point, impulses),
        series=series,
        units={**s.units, **units},
        unit_parts=s.unit_parts,
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
        penalty=g.penalty_at(point.w),
        # The modes are fixed, so that there are no complementarities to violate.
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
        **fields,
    )


def peaks_of(point: PhasePoint, tolerance: float) -> tuple[Array, dict[str, float]]:
    """Return where inequalities are violated between the stages.

    Returns
    -------
    (m,) and dict label -> float
        Times [s] of the largest violation in every element, and the largest violation of every inequality.
    """
    g, e, p = point.program, point.elements(), point.p
    # Midpoints: the end of an element is a stage of Radau IIA, where the row is imposed.
    places = (np.arange(SAMPLES) + 0.5) / SAMPLES
    of_x, of_z = lagrange_basis(np.append(0.0, g.tableau.c), places), lagrange_basis(g.tableau.c, places)
    times, amounts = [], dict[str, float]()
    for k, mode in enumerate(g.modes):
        inner, lower, upper = g.inner_rows(mode)
        s, labels = g.ocp.system, inner.labels
        rows = function_of([s.x, mode.z.symbol, s.u, s.p], inner.expression)
        # An element without length has values that belong to no time.
        for i in np.flatnonzero((e.phase == k) & (e.h > 0.0)):
            # The state has a node at the left end, multipliers have the stages only.
            x, z = of_x @ np.vstack([e.x_left[i], e.x_stages[i]]), of_z @ e.z_stages[i]
            u = of_z @ e.u_stages[i]
            values = np.array(rows(x.T, z.T, u.T, p)).T.reshape(SAMPLES, -1)
            over = excess(values, lower, upper)
            for label, column in zip(labels, over.T, strict=True):
                j = int(column.argmax())
                if column[j] > tolerance:
                    # A further point must sit on the maximum itself: beside it a violation would be left.
                    times.append(e.t_left[i] + _highest(column, j, places) * e.h[i])
                    amounts[label] = max(float(column[j]), amounts.get(label, 0.0))
    return np.unique(times), amounts


def _highest(values: Array, j: int, places: Array) -> float:
    """Return the place of the maximum of the parabola through the largest sample and its neighbours."""
    if j in (0, len(values) - 1):
        return float(places[j])
    left, middle, right = values[j - 1 : j + 2]
    bend = left - 2.0 * middle + right
    return float(places[j] + (0.5 * (left - right) / bend * (places[1] - places[0]) if bend < 0.0 else 0.0))


def log_record(step: int, label: str, point: PhasePoint) -> StepRecord:
    """Return the record of one solve for the log."""
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
    """Return the fields of constant controls on intervals, or of polynomial ones with dense output."""
    g = point.program
    # Elements, and with equal intervals phases, share a control: each is reported once, where it begins.
    firsts = np.flatnonzero(np.diff(e.control, prepend=-1))
    ends = np.append(e.t_left[firsts], e.t_left[-1] + e.h[-1])
    values = point.w[g.at_u].reshape(g.controls, g.control_nodes.size, g.n_u)[e.control[firsts]]
    if g.mesh.degree == 0:
        return {"u_grid": ends, "u": values[:, 0]}
    # The first Lobatto node is the left end, as an interpolant of a state has it.
    smooth = RungeKuttaInterpolant(
        t_left=ends[:-1], h=np.diff(ends), c=g.control_nodes[1:], x_left=values[:, 0], x_stages=values[:, 1:]
    )
    return {"u_grid": ends, "u": values.mean(axis=1), "control_interpolant": smooth}


def _series(point: PhasePoint, e: PhaseElements, impulses: Array) -> tuple[dict[str, Series], dict[str, str]]:
    """Return forces and multipliers at the stages, impulses at the ends of phases, and their units."""
    g, s = point.program, point.program.ocp.system
    times = (e.t_left[:, None] + e.h[:, None] * g.tableau.c).ravel()
    values = np.zeros((len(e.h), g.tableau.stages, len(g.laws.shown)))
    for phases in g.stage_blocks.values():  # which share a mode, and its multipliers
        mode, rows = g.modes[phases[0]], g.elements.of(*phases)
        shown = function_of([s.x, mode.z.symbol, s.p], ca.densify(mode.shown))
        x, z = (np.concatenate([part[i] for i in rows]) for part in (e.x_stages, e.z_stages))
        values[rows] = np.array(shown(x.T, z.T, point.p)).T.reshape(rows.size, g.tableau.stages, -1)
    flat = values.reshape(times.size, -1)
    series = {label: Series(times, flat[:, i], role) for i, (label, role, _) in enumerate(g.laws.shown)}
    units = {label: unit for label, _, unit in (*g.laws.shown, *g.laws.impulses) if unit}
    if g.laws.impulses:
        # One row per phase, also without an impact (zeros): impulses stand at the beginning of their phase.
        edges = point.edges[:-1]
        series |= {label: Series(edges, impulses[:, i], role) for i, (label, role, _) in enumerate(g.laws.impulses)}
    return series, units


def _impulses(point: PhasePoint, k: int) -> Array:
    """Return the impulses (n_i,) at the begin of phase k."""
    g, s, boundary = point.program, point.program.ocp.system, point.program.boundaries[k]
    if boundary is None or not boundary.y.size:
        return np.zeros(len(g.laws.impulses))
    shown = function_of([s.x, boundary.y.symbol, s.p], ca.densify(boundary.shown))
    return np.array(shown(_before(point, k), point.w[g.at_y[k]], point.p))[:, 0]


def _before(point: PhasePoint, k: int) -> Array:
    """Return the state (n_x,) at the end of the phase before k."""
    g = point.program
    return point.w[g.at_x0 if k == 0 else g.at_x[k - 1][-1, -1]]


def _events(point: PhasePoint, impulses: Array) -> tuple[Event, ...]:
    """Return the events between the phases, with impulses (phases, n_i): impacts, then changes of mode."""
    g, events = point.program, list[Event]()
    for k, time in enumerate(point.edges[:-1]):
        if g.boundaries[k] is None:
            continue
        impacts = g.laws.impacts_between(_before(point, k), point.w[g.at_left[k]], impulses[k], point.p)
        # Impacts first: the changes of mode at the same time are their consequence.
        events += [Event(float(time), *impact) for impact in impacts]
        if k:  # the first phase has no mode before it
            events += kinds.events_at(float(time), g.laws.changes(g.plan.modes[k - 1], g.plan.modes[k]))
    return tuple(events)


def _multipliers(point: PhasePoint, e: PhaseElements) -> tuple[dict[str, Series], dict[str, Series]]:
    """Return the multipliers of the rows by their labels, and the costates -E' mu / b at the stages."""
    g, nlp, s = point.program, point.program.nlp, point.program.ocp.system
    assert point.result is not None
    # Back to the user's units: the program scales rows and objective.
    every = point.result.lam_g * nlp.row_scale / nlp.cost_scale
    n_x, stages, names = g.n_x, g.tableau.stages, s.state_names
    costates = np.zeros((len(e.h), stages, n_x))
    rows_by_label: dict[str, tuple[list[Array], list[Array]]] = {}
    stage_times = e.t_left[:, None] + e.h[:, None] * g.tableau.c
    for block in nlp.blocks:
        values = nlp.of(block, every)
        if block in g.stage_blocks:
            phases, width = g.stage_blocks[block], g.stage_rows(block)
            rows, mode = g.elements.of(*phases), g.modes[phases[0]]  # all phases of a block have the same mode
            # Rows are E S - h f: -mu' h f takes the place of h b lambda' E^-1 f in the Hamiltonian, hence sign and
            # division by b.
            values = values.reshape(rows.size, stages, -1)
            mu = values[..., :n_x] / g.tableau.b[:, None]
            if mode.inertia is not None:
                inertia = function_of([s.x, s.p], ca.densify(mode.inertia))
                masses = np.asarray(inertia(e.x_stages[rows].reshape(-1, n_x).T, point.p))
                mu = np.einsum("eski,esk->esi", matrices(masses, rows.size * stages).reshape(*mu.shape, n_x), mu)
            costates[rows] = -mu
            for k in range(n_x, width):
                times, parts = rows_by_label.setdefault(block.labels[k], ([], []))
                times.append(stage_times[rows].ravel())
                parts.append(values[..., k].ravel())
            continue
        time = g.time_of(block, point.edges)
        for label, value in zip(block.labels, values[0], strict=True):
            times, parts = rows_by_label.setdefault(label, ([], []))
            times.append(np.array([time]))
            parts.append(np.array([value]))
    # Rows of one label come from several blocks. Stable, as boundaries of the same time keep their order.
    order = {label: np.argsort(np.concatenate(times), kind="stable") for label, (times, _) in rows_by_label.items()}
    multipliers = {
        label: Series(np.concatenate(times)[order[label]], np.concatenate(parts)[order[label]])
        for label, (times, parts) in rows_by_label.items()
    }
    # Elements of vanished phases have no length, so that their multipliers are no costates.
    proper = e.h > 0.0
    t = stage_times[proper].ravel()
    flat = costates[proper].reshape(t.size, n_x)
    series = {costate_name(name): Series(t, flat[:, i], Role.COSTATE_ESTIMATE) for i, name in enumerate(names)}
    return multipliers, series
