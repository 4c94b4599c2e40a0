"""Multi-phase program of a mode sequence: one phase per mode, free phase lengths, collocation, no complementarities.

Every phase is a DAE of index two at most, discretised by Radau IIA (Hairer and Wanner 1996) on finite elements: E(x_i)
S_i = h f(x_i, z_i, u_i) at every stage with the increments S = (X - x_left) A^-T, which do not need E^-1. Boundaries
carry guards and impacts. As the sequence is fixed, the program is smooth. Its solution is only a candidate: a
simulation decides if it is a motion, since inequalities hold at the stages only and a guard may be crossed in between.

Order of work: declare all unknowns (`_declare*`; positions in w are the arrays `at_*`), then write the rows as blocks
(`_write`), one block for all elements of all phases with the same mode.

Invariants: every phase has at least one control interval; elements of a phase share its free length; a phase of length
zero is legal, and its events are then simultaneous.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from nosnoc_py.audit.constraints import excess
from nosnoc_py.functions import function_of
from nosnoc_py.ocp import OCP, Constraint
from nosnoc_py.reformulation.kinks import kinks_of, smooth_constraints
from nosnoc_py.sequences.blocks import BlockNLP, NLPBlock
from nosnoc_py.sequences.equations import Boundary, ModeEquations, ModeLaws, Rows, Unknowns
from nosnoc_py.sequences.held_rows import held_rows, positions_only
from nosnoc_py.sequences.plan import Plan
from nosnoc_py.sequences.point_blocks import point_block
from nosnoc_py.solution.interpolant import Side
from nosnoc_py.tableaus import Tableau, lagrange_basis, tableau

Array = np.ndarray
# Slope with which margins of inequalities grow from zero at the ends of the horizon, where the state may be fixed on
# the limit: the margin is min(1, FADES * parabola) of its full value.
FADES = 10.0
# Largest violation of the conditions of the first mode by a fixed initial state that counts as in it, relative to the
# sizes of their rows.
ELSEWHERE = 1e-5
# Number of states of the start at which path constraints are tested for being constant in a mode.
HELD_AT = 5


@dataclass(frozen=True, eq=False, kw_only=True)
class PhaseStart:
    """Start of the program: the ends of its phases, and a motion.

    Attributes
    ----------
    edges : (phases + 1,)
        Ends of the phases [s].
    state : function (t, side) -> (n_x,)
        State at a time; the sides "-" and "+" are the limits at jumps.
    control : function t -> (n_u,)
    p : (n_p,)
        Parameters.
    peaks : (m,)
        Times [s] at which inequalities were violated between the stages.
    margins : mapping label -> float
        Margins by which inequalities are tightened, so that they hold between the stages as well (user's units).
    near : bool
        True if the motion is a solution of the same sequence on another mesh: if IPOPT fails, it starts close to it.
    """

    edges: Array
    state: Callable[[float, Side], Array]
    control: Callable[[float], Array]
    p: Array
    peaks: Array = field(default_factory=lambda: np.zeros(0))
    margins: Mapping[str, float] = field(default_factory=dict)
    near: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class PhaseMesh:
    """Discretisation of the phases.

    Attributes
    ----------
    stages : int
        Number of stages n_s of Radau IIA.
    intervals : int
        Number of control intervals over the whole horizon; every phase has at least one.
    elements : int
        Number of finite elements in every interval.
    per_phase : bool
        If True, every phase has `intervals` intervals.
    equal : bool
        If True, intervals are of equal length over the horizon, not within every phase.
    degree : int
        Degree of the polynomial control on an interval.
    points : int
        Number of further points in every element at which inequalities hold (bounds of states, path constraints, those
        of the mode): at `PhaseStart.peaks`, else equally spaced.
    penalty : float, optional
        Weight of the exact l1 penalty of terminal constraints; None imposes them as rows.
    shortest : float
        Lower bound of the length of a phase, as a fraction of the horizon.
    """

    stages: int = 3
    intervals: int = 20
    elements: int = 1
    per_phase: bool = False
    equal: bool = False
    degree: int = 0
    points: int = 0
    penalty: float | None = None
    shortest: float = 0.0


@dataclass(frozen=True, eq=False, kw_only=True)
class ControlPiece:
    """Part of a phase in one control interval, whose elements are equally long.

    Attributes
    ----------
    phase, control : int
        Numbers of the phase and of the control interval.
    elements : int
        Number of finite elements.
    length : int
        Position in w of the length [s] of which the elements are fractions: that of the phase, or, with equal
        intervals, that of the piece.
    share : float
        Fraction of that length of one element.
    """

    phase: int
    control: int
    elements: int
    length: int
    share: float


class PathRows(NamedTuple):
    """Rows of a path constraint in a mode.

    Attributes
    ----------
    constraint : Constraint
    function : Function (x, z, u, p) -> rows
    stages : tuple of int
        Stages at which they are imposed.
    number : int
        Number of the constraint in the OCP.
    rows : (n,) int
        Rows of the constraint that are imposed.
    """

    constraint: Constraint
    function: ca.Function
    stages: tuple[int, ...]
    number: int
    rows: Array


class _Store:
    """Unknowns in the order in which they are declared."""

    def __init__(self) -> None:
        self.parts: list[tuple[Array, ...]] = []
        self.size = 0

    def add(self, lower: Any, upper: Any, start: Any, scale: Any) -> Array:
        """Declare unknowns and return their positions in w."""
        start = np.asarray(start, float)
        self.parts.append(
            tuple(np.broadcast_to(np.asarray(v, float), start.shape) for v in (lower, upper, start, scale))
        )
        self.size += start.size
        return np.arange(self.size - start.size, self.size)

    def numbers(self) -> tuple[Array, ...]:
        """Return lower bounds, upper bounds, start and typical values of all unknowns, (n,) each."""
        return tuple(np.concatenate(column) for column in zip(*self.parts, strict=True))


class PhaseNLP:
    """Smooth nonlinear program of one mode sequence.

    Parameters
    ----------
    ocp : OCP
    laws : ModeLaws
        Mode equations of the system.
    plan : Plan
        Modes of the phases and impacts between them.
    mesh : PhaseMesh
    start : PhaseStart
    tolerance : float
        Largest relative violation of a feasible point.

    Attributes
    ----------
    nlp : BlockNLP
    w0 : (n,)
        Start with forces and impulses that fit its motion.
    at_lengths, at_p, at_x0, at_end, at_slack : arrays of int
        Positions in w of the lengths, the parameters, the initial and the final state, and the slacks of the penalty.
    at_u : (controls, n_u nodes) int
    at_left, at_x, at_z, at_y : lists of int arrays
        By phase: state at its begin (n_x,), stages (elements, n_s, n_x), multipliers (elements, n_s, n_z), and unknowns
        of the boundary before it.
    """

    def __init__(
        self, ocp: OCP, laws: ModeLaws, plan: Plan, mesh: PhaseMesh, start: PhaseStart, *, tolerance: float = 1e-6
    ) -> None:
        self.tolerance = tolerance
        self.ocp, self.laws, self.plan, self.mesh, self.start = ocp, laws, plan, mesh, start
        self.tableau: Tableau = tableau("radau_iia", mesh.stages)
        self.n_x, self.n_u = int(ocp.system.x.numel()), int(ocp.system.n_u)
        # Kinks of costs become slacks, one at every stage and one at the end: the sum that is minimised stays the same.
        self.stage_kinks, self.end_kinks = kinks_of(ocp, "stage_cost"), kinks_of(ocp, "terminal_cost")
        self.modes: list[ModeEquations] = self._with_slacks([laws.equations(mode) for mode in plan.modes])
        self.boundaries: list[Boundary | None] = [
            # The initial state has a boundary only if the sequence begins with an impact. No mode precedes it: that of
            # the first phase takes its place.
            laws.boundary(plan.modes[max(k - 1, 0)], plan.impacts[k], plan.modes[k]) if k or plan.impacts[0] else None
            for k in range(len(plan))
        ]
        self._store, self._blocks = _Store(), list[NLPBlock]()
        self.path_constraints = smooth_constraints(ocp, "path_constraints")
        self._held_rows: dict[int, list[Array]] = {}
        self._declare()
        self._write()
        lower, upper, w, scale = self._store.numbers()
        # Fitted forces are negative where the motion of the start violates the contact laws.
        self.w0 = self.with_kinks(np.clip(self._with_forces(w), lower, upper))
        self.nlp = BlockNLP(self._blocks, lower, upper, scale, self.w0)

    # --- kinks of costs ---

    def _with_slacks(self, modes: list[ModeEquations]) -> list[ModeEquations]:
        """Return the modes with the slacks of the stage cost behind their multipliers; equal ones stay one object."""
        count = self.stage_kinks.size
        if not count:
            return modes
        numbers: dict[str, Any] = {"lower": self.stage_kinks.lower, "scale": self.stage_kinks.sizes}
        slacks = replace(Unknowns.create("slack", [""] * count), symbol=self.stage_kinks.slacks, **numbers)
        extended = {id(mode): replace(mode, z=mode.z + slacks) for mode in modes}
        return [extended[id(mode)] for mode in modes]

    def with_kinks(self, w: Array) -> Array:
        """Return the unknowns with slacks that have the values of their kinks: the cost is that of the user."""
        s, stage, end = self.ocp.system, self.stage_kinks, self.end_kinks
        w = w.copy()
        if stage.size:
            for k, mode in enumerate(self.modes):
                values = function_of([s.x, mode.z.symbol, s.u, s.p], stage.values)
                for e, (index, _, place, width) in enumerate(self.elements_of(k)):
                    first = self.n_x + self.at_x[k][e].size + self.at_z[k][e].size
                    nodes = self.control_nodes
                    U = w[index[first : first + self.n_u * nodes.size]].reshape(nodes.size, self.n_u)
                    u = self.control_basis(nodes, place + width * self.tableau.c) @ U
                    x, z = w[self.at_x[k][e]], w[self.at_z[k][e]]
                    w[self.at_z[k][e][:, -stage.size :]] = np.asarray(values(x.T, z.T, u.T, w[self.at_p])).T
        if end.size:
            at = np.concatenate([self.at_end, self.at_x0, self.at_p, self.at_lengths])
            values = ca.Function("values", [self._end_symbols()], [self._at_end(end.values)])
            w[self.at_end_slack] = np.array(values(w[at])).ravel()
        return w

    # --- unknowns ---

    def _declare(self) -> None:
        """Declare lengths, parameters, initial state and controls, then boundary and stages of every phase."""
        ocp, start, horizon = self.ocp, self.start, float(self.start.edges[-1])
        self.sizes = self._state_sizes()
        lengths = np.diff(start.edges)
        # Lengths are nonnegative and add up to a fixed horizon, which bounds each of them.
        longest = np.inf if ocp.free_time is None else ocp.free_time.upper
        shortest = self.mesh.shortest * horizon
        self.pieces: list[ControlPiece] = []
        self._declare_lengths(lengths, shortest, longest, horizon)
        # Parameters are unknowns with equal bounds, unless they are free: blocks need not distinguish the two.
        free = list(ocp.free_parameters)
        p = np.array(start.p, float)
        low, high = p.copy(), p.copy()
        for name in free:
            row = ocp.system.parameter_names.index(name)
            low[row], high[row] = ocp.free_parameters[name]
        self.at_p = self._store.add(low, high, p, np.where(p != 0.0, np.abs(p), 1.0))
        x0, (x_low, x_high) = start.state(0.0, "-"), ocp.x_bounds
        fixed = ocp.x0 is not None
        self.at_x0 = self._store.add(
            ocp.x0 if fixed else x_low, ocp.x0 if fixed else x_high, ocp.x0 if fixed else x0, self.sizes
        )
        self._declare_controls()
        self.at_y, self.at_left, self.at_x, self.at_z = list[Array](), list[Array](), list[Array](), list[Array]()
        # `left` are the positions of the state at the begin of the next element: components that do not jump are those
        # of the last stage before, so that continuity needs no rows.
        left = self.at_x0
        for k, mode in enumerate(self.modes):
            left = self._declare_boundary(k, left)
            self.at_left.append(left)
            left = self._declare_phase(k, mode)
        self.at_end = left

    def _state_sizes(self) -> Array:
        """Return typical values of the state (n_x,), from the motion of the start.

        Within a group (positions, velocities) a component counts at least a twentieth of the largest one.
        """
        times = np.linspace(0.0, self.start.edges[-1], 41)  # often enough for a typical value
        most = np.abs([self.start.state(t, "+") for t in times]).max(axis=0)
        nominal = self.ocp.sizes.x
        ends = np.cumsum([0, *(getattr(self.ocp.system, name).numel() for name in self.ocp.system.states)])
        groups = [slice(first, last) for first, last in itertools.pairwise(ends)]
        # A component that is nearly zero along this motion may be large at the optimum: its scale must not vanish.
        for group in groups:
            most[group] = np.maximum(most[group], 0.05 * most[group].max(initial=0.0))
        return np.where(most > 0.0, most, nominal)

    def _declare_lengths(self, lengths: Array, shortest: float, longest: float, horizon: float) -> None:
        """Declare the free lengths, and cut the phases into pieces of one control interval each.

        On a moving grid a phase has one length, divided into equal intervals. With equal intervals over the horizon,
        every piece of a phase in an interval has a length of its own, and rows make the lengths of an interval add up.
        """
        mesh, count = self.mesh, len(lengths)
        if not mesh.equal:
            at = self._store.add(shortest, longest, lengths, horizon)
            self.at_lengths, self.length_phase = at, np.arange(count)
            control = 0
            for k, length in enumerate(lengths):
                intervals = intervals_of(mesh, length, horizon)
                share = 1.0 / (intervals * mesh.elements)
                for _ in range(intervals):
                    self.pieces.append(
                        ControlPiece(phase=k, control=control, elements=mesh.elements, length=int(at[k]), share=share)
                    )
                    control += 1
            self.controls = control
            return
        grid, edges = np.linspace(0.0, horizon, mesh.intervals + 1), self.start.edges
        piece_lengths, phases, owners = [], [], []
        for k in range(count):
            # Intervals that the phase overlaps at the start; rounding at a node must not add an empty piece.
            first = min(int(np.searchsorted(grid, edges[k] + 1e-9 * horizon, "right")) - 1, mesh.intervals - 1)
            last = max(
                min(int(np.searchsorted(grid, edges[k + 1] - 1e-9 * horizon, "left")) - 1, mesh.intervals - 1), first
            )
            for j in range(first, last + 1):
                piece_lengths.append(max(0.0, min(edges[k + 1], grid[j + 1]) - max(edges[k], grid[j])))
                phases.append(k)
                owners.append(j)
        # `shortest` bounds phases, not pieces: a piece vanishes when its event lies at a node.
        at = self._store.add(0.0, longest, np.array(piece_lengths), horizon)
        self.at_lengths, self.length_phase, self.length_control = at, np.array(phases), np.array(owners)
        for position, k, j in zip(at, phases, owners, strict=True):
            self.pieces.append(
                ControlPiece(
                    phase=k, control=j, elements=mesh.elements, length=int(position), share=1.0 / mesh.elements
                )
            )
        self.controls = mesh.intervals

    def _declare_controls(self) -> None:
        """Declare the control of every interval, with values of the start at its nodes."""
        low, high = self.ocp.u_bounds
        nodes = self.control_nodes
        begins = np.zeros(self.controls)
        ends = np.zeros(self.controls)
        for piece, (a, b) in zip(self.pieces, self.piece_times(), strict=True):
            # With equal intervals several pieces share an interval: it begins with its first piece and ends with its
            # last.
            begins[piece.control] = a if ends[piece.control] == 0.0 else begins[piece.control]
            ends[piece.control] = b
        times = begins[:, None] + (ends - begins)[:, None] * nodes
        values = np.array([[np.clip(self.start.control(t), low, high) for t in row] for row in times])
        values = values.reshape(self.controls, -1)
        most = np.abs(values).reshape(-1, self.n_u).max(axis=0, initial=0.0) if values.size else np.zeros(self.n_u)
        bounds = np.where(
            np.isfinite(np.maximum(np.abs(low), np.abs(high))), np.maximum(np.abs(low), np.abs(high)), 0.0
        )
        # Typical values: of the start or the finite bounds, whatever is larger, as a start is often zero.
        sizes = np.where(np.maximum(most, bounds) > 0.0, np.maximum(most, bounds), self.ocp.sizes.u)
        repeat = len(nodes)
        self.at_u = np.array(
            [
                self._store.add(np.tile(low, repeat), np.tile(high, repeat), row, np.tile(sizes, repeat))
                for row in values
            ]
        ).reshape(self.controls, -1)

    @property
    def control_nodes(self) -> Array:
        """Places in [0, 1] of the control unknowns: Lobatto nodes, so that bounds hold at both ends of an interval."""
        degree = self.mesh.degree
        return tableau("lobatto_iiic", degree + 1).c if degree else np.array([0.5])

    @staticmethod
    def control_basis(nodes: Array, places: Array) -> Array:
        """Return the weights (places, nodes) of the control unknowns at places of their interval."""
        return lagrange_basis(nodes, places) if nodes.size > 1 else np.ones((places.size, 1))

    def lengths_of(self, w: Array) -> Array:
        """Return the lengths of the phases (phases,) [s]."""
        return np.bincount(self.length_phase, w[self.at_lengths], len(self.plan))

    def piece_times(self) -> list[tuple[float, float]]:
        """Return begin and end of every piece at the start of the program [s]."""
        edges, times = self.start.edges, []
        if not self.mesh.equal:
            inside: dict[int, int] = {}
            for piece in self.pieces:
                k = inside.get(piece.phase, 0)
                inside[piece.phase] = k + 1
                length = (edges[piece.phase + 1] - edges[piece.phase]) * piece.share * piece.elements
                times.append((edges[piece.phase] + k * length, edges[piece.phase] + (k + 1) * length))
            return times
        grid = np.linspace(0.0, edges[-1], self.mesh.intervals + 1)
        for piece in self.pieces:
            a = max(edges[piece.phase], grid[piece.control])
            times.append((a, max(a, min(edges[piece.phase + 1], grid[piece.control + 1]))))
        return times

    def _declare_boundary(self, k: int, left: Array) -> Array:
        """Declare the unknowns of the boundary before phase k; return the positions of the state after it."""
        boundary = self.boundaries[k]
        if boundary is None or not boundary.y.size:
            self.at_y.append(np.zeros(0, int))
            return left
        y, after = boundary.y, self.start.state(float(self.start.edges[k]), "+")
        initial, sizes = np.array(y.initial, float), np.array(y.scale, float)
        # Components of the state that jump have start and scale of the state, not those of the boundary.
        for component, (jumps, i) in enumerate(boundary.after):
            if jumps:
                initial[i], sizes[i] = after[component], self.sizes[component]
        at = self._store.add(y.lower, y.upper, initial, sizes)
        self.at_y.append(at)
        return np.array([at[i] if jumps else left[i] for jumps, i in boundary.after])

    def _declare_phase(self, k: int, mode: ModeEquations) -> Array:
        """Declare states and multipliers of phase k at all stages; return the positions of its last state."""
        low, high = self.ocp.x_bounds
        low, high = low[: self.n_x], high[: self.n_x]
        named = (self.start.margins.get(f"bound of {name}", 0.0) for name in self.ocp.system.state_names)
        # A state with equal bounds has no interior: a margin would make it infeasible.
        margins = np.where(low < high, np.array([*named]), 0.0)
        horizon = float(self.start.edges[-1])
        a, b = self.start.edges[k : k + 2]
        at_x, at_z = [], []
        # States of the start are taken inside the phase: at its ends the motion may jump.
        inside = 1e-9 * max(float(self.start.edges[-1]), 1e-300)
        for piece, (begin, end) in zip(self.pieces, self.piece_times(), strict=True):
            if piece.phase != k:
                continue
            for e in range(piece.elements):
                t0, h = begin + (end - begin) * e / piece.elements, (end - begin) / piece.elements
                stages_x, stages_z = [], []
                for c in self.tableau.c:
                    t = float(np.clip(t0 + c * h, a + inside, max(b - inside, a + inside)))
                    # A parabola that is 1 in the middle of the horizon and 0 at its ends, where the state may be fixed
                    # on its bound.
                    tight = margins * min(1.0, 4.0 * FADES * t * (horizon - t) / horizon**2)
                    stages_x.append(self._store.add(low + tight, high - tight, self.start.state(t, "-"), self.sizes))
                    z = mode.z
                    stages_z.append(
                        self._store.add(z.lower, z.upper, z.initial, z.scale) if z.size else np.zeros(0, int)
                    )
                at_x.append(stages_x)
                at_z.append(stages_z)
        self.at_x.append(np.array(at_x))
        self.at_z.append(np.array(at_z, int).reshape(len(at_x), len(self.tableau.c), -1))
        return np.asarray(self.at_x[-1][-1, -1])

    def _with_forces(self, w: Array) -> Array:
        """Return the start with the multipliers and impulses that fit its motion in the least-squares sense.

        Multipliers enter the dynamics, and impulses the balance of momentum, linearly: one step of Gauss-Newton is
        enough.
        """
        w = w.copy()
        for k, mode in enumerate(self.modes):
            if mode.z.size:
                self._fit_phase(k, mode, w)
            boundary = self.boundaries[k]
            if boundary is not None and boundary.y.size > sum(jumps for jumps, _ in boundary.after):
                before = self.at_x0 if k == 0 else self.at_x[k - 1][-1, -1]
                s, y, jumped = self.ocp.system, boundary.y, sum(jumps for jumps, _ in boundary.after)
                # The state after the jump is kept, as the motion knows it: only the impulses are fitted.
                rows, unknown = boundary.equations.expression, y.symbol[jumped:]
                slope = ca.Function("slope", [s.x, y.symbol, s.p], [rows, ca.jacobian(rows, unknown)])
                value, matrix = (np.array(part) for part in slope(w[before], w[self.at_y[k]], w[self.at_p]))
                w[self.at_y[k][jumped:]] -= _least_squares(matrix, value[:, 0])
        return w

    def _fit_phase(self, k: int, mode: ModeEquations, w: Array) -> None:
        """Fit the multipliers of phase k to the rates of the collocation polynomials of the start, in place."""
        s, z = self.ocp.system, mode.z.symbol
        inertia = ca.SX.eye(self.n_x) if mode.inertia is None else mode.inertia
        rate = ca.SX.sym("rate", self.n_x)
        rest = inertia @ rate - mode.flow
        slope = ca.Function("slope", [s.x, z, s.u, s.p, rate], [rest, ca.jacobian(rest, z)])
        basis_u, inverse = self.control_nodes, np.linalg.inv(self.tableau.a).T
        # Rates are those of the polynomials, not of the motion: the dynamics of the program compare forces with these.
        for e, (index, share, place, width) in enumerate(self.elements_of(k)):
            n_x, stages = self.n_x, self.tableau.stages
            left, X = w[index[:n_x]], w[self.at_x[k][e]].T
            length = w[index[-1 - self.at_p.size]] * share
            if length <= 0.0:  # no rates on an element without length
                continue
            rates = (X - left[:, None]) @ inverse / length
            at = self.control_basis(basis_u, place + width * self.tableau.c)
            first = n_x * (1 + stages) + z.numel() * stages
            U = w[index[first : first + self.n_u * basis_u.size]].reshape(basis_u.size, self.n_u)
            for j in range(stages):
                here = self.at_z[k][e, j]
                value, matrix = slope(X[:, j], w[here], at[j] @ U, w[self.at_p], rates[:, j])
                w[here] -= _least_squares(np.array(matrix), np.array(value)[:, 0])

    # --- rows ---

    def _write(self) -> None:
        # Phases of equal modes share one block: its derivatives are taken once.
        groups: dict[int, list[int]] = {}
        for k, mode in enumerate(self.modes):
            groups.setdefault(id(mode), []).append(k)
        self.element_blocks: dict[NLPBlock, tuple[int, ...]] = {
            self._element_block(phases): tuple(phases) for phases in groups.values()
        }
        self._blocks += self.element_blocks
        for k, boundary in enumerate(self.boundaries):
            if boundary is not None:
                self._add_boundary(k, boundary)
        self._add_ends()

    def elements_of(self, k: int) -> list[tuple[Array, float, float, float]]:
        """Return for every element of phase k: positions of its unknowns, share of the length, place and width.

        Place and width are those in its control interval, as fractions. The unknowns are (left, X, Z, U, length, p).
        """
        elements, e, left = [], 0, self.at_left[k]
        for piece in self.pieces:
            if piece.phase != k:
                continue
            for inside in range(piece.elements):
                x, z = self.at_x[k][e].ravel(), self.at_z[k][e].ravel()
                index = np.concatenate([left, x, z, self.at_u[piece.control], [piece.length], self.at_p])
                elements.append((index, piece.share, inside / piece.elements, 1.0 / piece.elements))
                left, e = self.at_x[k][e, -1], e + 1
        return elements

    def _element_block(self, phases: list[int]) -> NLPBlock:
        """Return the block of all elements of the phases of one mode.

        Its rows are, stage by stage, dynamics, equations and inequalities of the mode (`stage_rows` counts on this
        order), then inequalities at further points, then path constraints.
        """
        mode, scheme, s, system = self.modes[phases[0]], self.tableau, self.tableau.stages, self.ocp.system
        n_x, n_z, n_u, nodes = self.n_x, mode.z.size, self.n_u, self.control_nodes
        left, X, Z = ca.SX.sym("left", n_x), ca.SX.sym("X", n_x, s), ca.SX.sym("Z", n_z, s)
        U, length, p = ca.SX.sym("U", n_u, nodes.size), ca.SX.sym("length"), ca.SX.sym("p", system.p.numel())
        share, basis = ca.SX.sym("share"), ca.SX.sym("basis", nodes.size, s)
        inertia = ca.SX.eye(n_x) if mode.inertia is None else mode.inertia
        symbols = [system.x, mode.z.symbol, system.u, system.p]
        cost, kinks = self.stage_kinks.cost, ca.Function("kinks", symbols, [self.stage_kinks.rows])
        f = ca.Function(
            "mode", symbols, [inertia, mode.flow, mode.equations.expression, mode.inequalities.expression, cost]
        )
        # X = left + h A K with the rates K becomes S = h K = (X - left) A^-T: rows stay linear in h.
        h, S = length * share, (X - ca.repmat(left, 1, s)) @ np.linalg.inv(scheme.a).T
        rows, labels, low, high, spent = [], list[str](), list[float](), list[float](), ca.SX(0)
        of_place: list[int] = []  # of every row: the stage, or the further point behind the stages
        on_path: list[tuple[int, PathRows, ca.SX]] = []
        names = [f"{name}'" for name in system.state_names]
        paths = self._paths(mode)
        for j in range(s):
            u = U @ basis[:, j]
            E, flow, equations, inequalities, running = f(X[:, j], Z[:, j], u, p)
            rows += [E @ S[:, j] - h * flow, equations, inequalities]
            labels += [*names, *mode.equations.labels, *mode.inequalities.labels]
            low += [0.0] * (n_x + mode.equations.size + mode.inequalities.size)
            high += [0.0] * (n_x + mode.equations.size) + [np.inf] * mode.inequalities.size
            of_place += [j] * (len(labels) - len(of_place))
            spent += float(scheme.b[j]) * running
            on_path += [(j, path, path.function(X[:, j], Z[:, j], u, p)) for path in paths if j in path.stages]
        # Weights are symbols, since further points lie at other places in every element of the block.
        inner = self.inner_rows(mode)
        sizes = (s + 1, s, nodes.size)
        weights = [[ca.SX.sym("weight", size) for size in sizes] for _ in range(self.mesh.points)]
        for k, (of_x, of_z, of_u) in enumerate(weights):
            expression, lower, upper, named = inner
            of_place += [s + k] * len(named)
            rows.append(expression(ca.horzcat(left, X) @ of_x, Z @ of_z, U @ of_u, p))
            labels += named
            low += lower
            high += upper
        last_rows: list[tuple[int, int, int]] = []  # constraint and row of it at the last stage, and the row here
        for j, path, row in on_path:
            c = path.constraint
            rows.append(row)
            if j == s - 1:
                last_rows += [(path.number, int(i), len(labels) + n) for n, i in enumerate(path.rows)]
            of_place += [j] * c.lower.size
            labels += [str(c.name)] * c.lower.size
            low += list(c.lower)
            high += list(c.upper)
        for j in range(s if self.stage_kinks.size else 0):
            row = kinks(X[:, j], Z[:, j], U @ basis[:, j], p)
            rows.append(row)
            of_place += [j] * row.numel()
            labels += ["stage_cost"] * row.numel()
            low += [0.0] * row.numel()
            high += [np.inf] * row.numel()
        elements = [element for k in phases for element in self.elements_of(k)]
        inside = [places for k in phases for places in self._inner_places(k)]
        constants = []
        for (_, part, place, width), places in zip(elements, inside, strict=True):
            at = self.control_basis(nodes, place + width * scheme.c)
            # The state is continuous and has the left end as a node; multipliers jump between elements and have the
            # stages only.
            of_x, of_z = lagrange_basis(np.append(0.0, scheme.c), places), lagrange_basis(scheme.c, places)
            of_u = self.control_basis(nodes, place + width * places)
            # Everything that differs between elements is a constant of their place: share of the length, weights.
            constants.append(np.concatenate([[part], at.ravel(), np.hstack([of_x, of_z, of_u]).ravel()]))
        # Equations (equal limits) get no margin: they would become infeasible.
        margins = self._margins(phases, inside, labels, of_place) * (np.array(low) < np.array(high))
        least, most = low + margins, high - margins
        # Rows whose value terminal equations fix have no interior: they are left free at the end of the phase.
        for k, last in zip(phases, np.cumsum([len(self.at_x[k]) for k in phases]) - 1, strict=True):
            fixed = self._fixed_at_end(k) if last_rows else []
            free = [here for number, i, here in last_rows if fixed[number][i]]
            least[last, free], most[last, free] = -np.inf, np.inf
        return NLPBlock(
            name="phase",
            y=ca.vertcat(left, ca.vec(X), ca.vec(Z), ca.vec(U), length, p),
            c=ca.vertcat(share, ca.vec(basis), *[part for point in weights for part in point]),
            rows=ca.vertcat(ca.SX(0, 1), *rows),
            cost=h * spent,
            lower=least,
            upper=most,
            index=np.array([element[0] for element in elements]),
            constants=np.array(constants),
            labels=tuple(labels),
        )

    def _margins(self, phases: list[int], inside: list[Array], labels: list[str], of_place: list[int]) -> Array:
        """Return the margins by which the rows of elements are tightened (elements, rows).

        Margins of gaps vanish at the ends of a phase, where the gap may be zero; so do those of rows that another phase
        keeps constant, as these may be active there. All others vanish at the ends of the horizon.
        """
        amounts = np.array([self.start.margins.get(label, 0.0) for label in labels])
        if not amounts.any():
            return np.zeros((len(inside), len(labels)))
        begins, horizon = self.start.edges, float(self.start.edges[-1])
        places, times = list[Array](), list[Array]()
        for k in phases:
            for e in range(len(self.at_x[k])):
                inner = inside[len(places)]
                places.append((e + np.append(self.tableau.c, inner)) / len(self.at_x[k]))
                times.append((begins[k] + places[-1] * (begins[k + 1] - begins[k])) / horizon)
        still = {
            str(c.name)
            for mode in self.modes
            for c, held in zip(self.path_constraints, self._held(mode), strict=True)
            if held.any()
        }
        # Parabolas again, over the phase and over the horizon.
        is_gap = np.array([label.startswith("gap[") or label in still for label in labels])
        along = [
            4.0 * np.clip(share, 0.0, 1.0) * np.clip(1.0 - share, 0.0, 1.0) for share in map(np.array, (places, times))
        ]
        return amounts * np.where(is_gap, along[0][:, of_place], np.minimum(1.0, FADES * along[1][:, of_place]))

    def inner_rows(self, mode: ModeEquations) -> tuple[ca.Function, list[float], list[float], list[str]]:
        """Return the inequalities at further points: function (x, z, u, p) -> rows, lower and upper limits, labels."""
        system, (low, high) = self.ocp.system, self.ocp.x_bounds
        bounded = [int(i) for i in np.flatnonzero(np.isfinite(low) | np.isfinite(high))]
        names = [f"bound of {system.state_names[i]}" for i in bounded]
        rows = Rows.of(*((name, system.x[i]) for name, i in zip(names, bounded, strict=True))) + mode.inequalities
        count = mode.inequalities.size
        lower, upper = [*low[bounded], *[0.0] * count], [*high[bounded], *[np.inf] * count]
        for c, *_ in self._paths(mode):
            # Equations at further points would be more rows than the polynomials have coefficients.
            if (c.lower < c.upper).all():
                rows += Rows.of((str(c.name), c.expression))
                lower += [*c.lower]
                upper += [*c.upper]
        symbols = [system.x, mode.z.symbol, system.u, system.p]
        return ca.Function("inner", symbols, [rows.expression]), lower, upper, list(rows.labels)

    def _inner_places(self, k: int) -> list[Array]:
        """Return the places in [0, 1] of the further points of every element of phase k."""
        count, by_element = self.mesh.points, []
        even = np.arange(1, count + 1) / (count + 1)
        for piece, (begin, end) in zip(self.pieces, self.piece_times(), strict=True):
            for e in range(piece.elements if piece.phase == k else 0):
                width = (end - begin) / piece.elements
                places = (self.start.peaks - begin - e * width) / width if width > 0.0 else np.zeros(0)
                # Every element of a block has the same number of rows: peaks beyond it are dropped, missing ones are
                # filled evenly.
                places = np.unique(places[(places > 0.0) & (places < 1.0)])[:count]
                by_element.append(np.append(places, even[: count - places.size]))
        return by_element

    def not_finite(self, w: Array) -> str:
        """Return the place where a value or derivative is not finite, by the states there; "" if all are finite."""
        found = self.nlp.not_finite(w)
        if found is None:
            return ""
        block, place = found
        phases = self.element_blocks.get(block)
        if phases is None:
            return f"in {block.name}"
        places = [(k, e) for k in phases for e in range(len(self.at_x[k]))]
        k, e = places[place]
        left = self.at_left[k] if e == 0 else self.at_x[k][e - 1][-1]
        shown = zip(self.ocp.system.state_names, w[left], strict=True)
        return f"in phase {k}, near {', '.join(f'{name} = {value:.6g}' for name, value in shown)}"

    def mode_labels(self, block: NLPBlock) -> tuple[str, ...]:
        """Return the labels of the inequalities of the mode of a block of elements."""
        return tuple(self.modes[self.element_blocks[block][0]].inequalities.labels)

    def stage_rows(self, block: NLPBlock) -> int:
        """Return the number of rows per stage in a block of elements, of which the first n_x are the dynamics."""
        mode = self.modes[self.element_blocks[block][0]]
        return self.n_x + mode.equations.size + mode.inequalities.size

    def time_of(self, block: NLPBlock, edges: Array) -> float:
        """Return the time [s] of a block with one place."""
        return float(edges[-1] if block.edge is None else edges[block.edge])

    def _paths(self, mode: ModeEquations) -> list[PathRows]:
        """Return the path constraints of a mode: inequalities at all stages, equations as the user has chosen.

        Inequalities that the mode keeps constant are left out: see `held_rows`.
        """
        system, s = self.ocp.system, self.tableau.stages
        paths = []
        for k, (c, held) in enumerate(zip(self.path_constraints, self._held(mode), strict=True)):
            rows = np.flatnonzero(~held)
            if not rows.size:
                continue
            some = c.rows_of(rows) if held.any() else c
            # A constant control satisfies an equation at the end of its element, but rarely at all of its stages.
            stages = tuple(range(s)) if (c.lower < c.upper).all() or c.at == "rk_stages" else (s - 1,)
            function = ca.Function("path", [system.x, mode.z.symbol, system.u, system.p], [some.expression])
            paths.append(PathRows(some, function, stages, k, rows))
        return paths

    def _held(self, mode: ModeEquations) -> list[Array]:
        """Return for every path constraint which rows are inequalities that a mode keeps constant, (rows,) bool."""
        if id(mode) not in self._held_rows:
            self._held_rows[id(mode)] = self._constant_rows(mode.held)
        return self._held_rows[id(mode)]

    def _constant_rows(self, held: ca.SX | None) -> list[Array]:
        """Return for every path constraint which rows are inequalities that held v = 0 keeps constant, (rows,) bool."""
        states = np.array([self.start.state(t, "+") for t in np.linspace(0.0, self.start.edges[-1], HELD_AT)])
        numbers = states, self.sizes, self.start.p
        return [
            held_rows(self.ocp.system, held, c.expression, *numbers) & (c.lower < c.upper)
            for c in self.path_constraints
        ]

    @cached_property
    def _ended(self) -> list[Array]:
        """For every path constraint, which rows terminal equations fix at the end of the horizon, (rows,) bool."""
        # With a penalty terminal constraints may be missed, and without `held` there are no contacts.
        if self.mesh.penalty is not None or all(mode.held is None for mode in self.modes):
            return [np.zeros(c.lower.size, bool) for c in self.path_constraints]
        system = self.ocp.system
        fixed = [c.rows_of(np.flatnonzero(c.lower == c.upper)).expression for c in self.ocp.terminal_constraints]
        rows = ca.vertcat(ca.SX(0, 1), *fixed)
        rows = rows[np.flatnonzero(positions_only(system, rows)).tolist()]
        return self._constant_rows(system.along_v(rows))

    def _fixed_at_end(self, k: int) -> list[Array]:
        """Return for every path constraint which rows have a value at the end of phase k that terminal equations fix.

        All later phases keep this value. Such an inequality has no interior; as it is satisfied or not whatever the
        program does, it is left out.
        """
        fixed = [] if k == len(self.modes) - 1 else self._ended
        for mode in self.modes[k + 1 :]:
            fixed = [rows & held for rows, held in zip(fixed, self._held(mode), strict=True)]
        return fixed or [np.zeros(c.lower.size, bool) for c in self.path_constraints]

    def _add_boundary(self, k: int, boundary: Boundary) -> None:
        """Add the conditions of the boundary before phase k, and those at the first stage after it."""
        s = self.ocp.system
        before = self.at_x0 if k == 0 else self.at_x[k - 1][-1, -1]
        y, at = ca.vertcat(s.x, boundary.y.symbol, s.p), np.concatenate([before, self.at_y[k], self.at_p])
        self._add_conditions(f"before phase {k}", y, boundary.equations, boundary.inequalities, at, k)
        first = np.concatenate([self.at_x[k][0, 0], self.at_p])
        self._add_conditions(f"beginning of phase {k}", ca.vertcat(s.x, s.p), Rows(), boundary.beginning, first, k)

    def _add_ends(self) -> None:
        """Add terminal cost and constraints, the horizon, initial constraints, and the mode of the first phase."""
        ocp, s, free = self.ocp, self.ocp.system, self.ocp.free_time
        lengths = self._lengths
        total = ca.sum1(lengths)
        rows, low, high, labels = [total], [], [], ["horizon"]
        low.append(ocp.horizon if free is None else free.lower)
        high.append(ocp.horizon if free is None else free.upper)
        if self.mesh.equal:
            # The last interval has what is left of the horizon: a row for it would be redundant.
            for j in range(self.mesh.intervals - 1):
                rows.append(
                    ca.sum1(lengths[np.flatnonzero(self.length_control == j).tolist()]) - total / self.mesh.intervals
                )
                low.append(0.0)
                high.append(0.0)
                labels.append("control interval")
        kinks, constraints = self.end_kinks, smooth_constraints(ocp, "terminal_constraints")
        expressions = [self._at_end(e) for e in (kinks.cost, *(c.expression for c in constraints))]
        count = sum(c.lower.size for c in constraints) if self.mesh.penalty is not None else 0
        over, under = ca.SX.sym("over", count), ca.SX.sym("under", count)
        cost, done = expressions[0], 0
        for c, expression in zip(constraints, expressions[1:], strict=True):
            size = c.lower.size
            if count:  # exact l1 penalty: c + under - over within the limits, both >= 0
                expression = expression + under[done : done + size] - over[done : done + size]
                done += size
            rows.append(expression)
            low += list(c.lower)
            high += list(c.upper)
            labels += [str(c.name)] * size
        weight = self.mesh.penalty or 0.0
        asked, end = ca.vertcat(ca.SX(0, 1), *expressions[1:]), self.start.state(float(self.start.edges[-1]), "-")
        sizes = np.tile(self._sizes_at(asked, end, self.sizes), 2)[: 2 * count]
        self.at_slack = self._store.add(0.0, np.inf, 1e-2 * sizes, sizes)
        self.slack_sizes = sizes
        cost = cost + weight * ca.dot(1.0 / ca.DM(sizes), ca.vertcat(over, under))
        self.at_end_slack = self._store.add(kinks.lower, np.inf, np.zeros(kinks.size), kinks.sizes)
        rows.append(self._at_end(kinks.rows))
        low += [0.0] * kinks.rows.numel()
        high += [np.inf] * kinks.rows.numel()
        labels += ["terminal_cost"] * kinks.rows.numel()
        y = ca.vertcat(self._end_symbols(), over, under, kinks.slacks)
        at = np.concatenate([self.at_end, self.at_x0, self.at_p, self.at_lengths, self.at_slack, self.at_end_slack])
        self._add(
            "end", y, Rows(expression=ca.vertcat(*rows), labels=tuple(labels)), np.array(low), np.array(high), at, cost
        )
        at_start = np.concatenate([self.at_x0, self.at_p])
        if ocp.initial_constraints:
            initial = Rows.of(*((str(c.name), c.expression) for c in ocp.initial_constraints))
            lower, upper = (
                np.concatenate([getattr(c, side) for c in ocp.initial_constraints]) for side in ("lower", "upper")
            )
            self._add("beginning", ca.vertcat(s.x, s.p), initial, lower, upper, at_start, edge=0)
        # Rows that the first mode keeps constant are imposed where it begins. Later phases begin where the phase before
        # ended, which has these rows at its last stage.
        parts = zip(self.path_constraints, self._held(self.modes[0]), strict=True)
        constant = [c.rows_of(np.flatnonzero(held)) for c, held in parts if held.any()]
        if constant:
            path = Rows.of(*((str(c.name), c.expression) for c in constant))
            lower, upper = (np.concatenate([getattr(c, side) for c in constant]) for side in ("lower", "upper"))
            # With a fixed state and parameters the rows are constants: imposed only if violated, which makes the
            # program infeasible as it should be.
            if ocp.x0 is None or ocp.free_parameters or self._starts_outside(path.expression, lower, upper):
                self._add("path at the beginning", ca.vertcat(s.x, s.p), path, lower, upper, at_start, edge=0)
        self._blocks += [point_block(self, term) for term in ocp.point_terms]
        began = self._start_rows()
        # Rows of a fixed initial state are redundant, which IPOPT does not like. If the state is in another mode (a
        # body that hovers where the sequence has it closed), they are imposed all the same: they are infeasible.
        if (
            ocp.x0 is None
            or self._starts_outside(began[0].expression, 0.0, 0.0)
            or self._starts_outside(began[1].expression, 0.0, np.inf)
        ):
            self._add_conditions("mode of the first phase", ca.vertcat(s.x, s.p), *began, at_start, 0)

    @cached_property
    def _lengths(self) -> ca.SX:
        return ca.SX.sym("lengths", self.at_lengths.size)

    def _end_symbols(self) -> ca.SX:
        s = self.ocp.system
        return ca.vertcat(s.x, s.x_initial, s.p, self._lengths)

    def _at_end(self, expression: ca.SX) -> ca.SX:
        """Return an expression at the end: a free horizon is no unknown of its own, but the sum of the lengths."""
        free = self.ocp.free_time
        return expression if free is None else ca.substitute(expression, free.symbol, ca.sum1(self._lengths))

    def _start_rows(self) -> tuple[Rows, Rows]:
        """Return equations and inequalities of the initial state in the first mode.

        An impact at t = 0 changes velocities, and its boundary has conditions for these; what is closed after it has to
        touch before it.
        """
        held, apart = self.laws.start(self.plan.modes[0])
        if self.boundaries[0] is None:
            return held, apart
        written = set(self.boundaries[0].equations.labels)
        here = np.array([label not in written for label in held.labels], bool)
        positions = positions_only(self.ocp.system, held.expression) if held.size else np.zeros(0, bool)
        rows = [(held.labels[i], held.expression[int(i)]) for i in np.flatnonzero(positions & here)]
        return Rows.of(*rows), Rows()

    def penalty_at(self, w: Array) -> float:
        """Return the penalty that is part of the objective at w: of violations relative to their sizes."""
        return (self.mesh.penalty or 0.0) * float((w[self.at_slack] / self.slack_sizes).sum())

    def _sizes_at(self, rows: ca.SX, x: Array, changes: Array) -> Array:
        """Return the changes of rows (m,) by changes of the state (n_x,) near x."""
        s = self.ocp.system
        slope = ca.Function("slope", [s.x, s.x_initial, s.p], [ca.jacobian(rows, s.x)], {"allow_free": True})
        if slope.has_free():
            return np.ones(rows.numel())
        sizes = (np.abs(np.array(slope(x, x, self.start.p))) * changes).max(axis=1, initial=0.0)
        return np.where(np.isfinite(sizes) & (sizes > 0.0), sizes, 1.0)

    def _starts_outside(self, rows: ca.SX, lower: Array | float, upper: Array | float) -> bool:
        """True if the fixed initial state violates the limits of these rows."""
        s, x0 = self.ocp.system, np.asarray(self.ocp.x0)
        values = np.array(ca.Function("rows", [s.x, s.p], [rows])(x0, self.start.p)).ravel()
        sizes = self._sizes_at(rows, x0, self.ocp.sizes.x)
        return bool((excess(values, lower, upper) / sizes).max(initial=0.0) > ELSEWHERE)

    def _add(
        self,
        name: str,
        y: ca.SX,
        rows: Rows,
        lower: Array,
        upper: Array,
        index: Array,
        cost: Any = 0,
        edge: int | None = None,
    ) -> None:
        """Add a block at one place, unless it has neither rows nor a cost."""
        if rows.size or not ca.SX(cost).is_constant():
            numbers = {"lower": lower, "upper": upper, "index": index[None], "cost": ca.SX(cost), "edge": edge}
            self._blocks.append(NLPBlock(name=name, y=y, rows=rows.expression, labels=rows.labels, **numbers))

    def _add_conditions(
        self, name: str, y: ca.SX, equations: Rows, inequalities: Rows, index: Array, edge: int
    ) -> None:
        """Add equations (= 0) and inequalities (>= 0) as a block at one place."""
        lower, open_ = np.zeros(equations.size + inequalities.size), np.full(inequalities.size, np.inf)
        self._add(
            name, y, equations + inequalities, lower, np.append(np.zeros(equations.size), open_), index, edge=edge
        )


def intervals_of(mesh: PhaseMesh, length: float, horizon: float) -> int:
    """Return the number of control intervals of a phase on a moving grid, in proportion to its length."""
    # At least one, however short the phase: its elements need a control.
    return mesh.intervals if mesh.per_phase else max(1, round(mesh.intervals * length / horizon))


def _least_squares(matrix: Array, value: Array) -> Array:
    """Return the least-squares solution of minimum norm; zero if an entry is not finite."""
    if not (np.isfinite(matrix).all() and np.isfinite(value).all()):
        return np.zeros(matrix.shape[1])
    # Redundant contacts make the matrix singular: minimum norm shares the load evenly. The cutoff is far above
    # rounding.
    return np.asarray(np.linalg.lstsq(matrix, value, rcond=1e-10)[0])
