"""Multi-phase program of a mode sequence: one phase per mode, free phase lengths, collocation, no complementarities.

Every phase is a DAE of index two at most, discretised by Radau IIA (Hairer and Wanner 1996) on finite elements: E(x_i)
S_i = h f(x_i, z_i, u_i) at every stage with the increments S = (X - x_left) A^-T, which do not need E^-1. Boundaries
carry guards and impacts. As the sequence is fixed, the program is smooth. Its solution is only a candidate: a
simulation decides if it is a motion, since inequalities hold at the stages only and a guard may be crossed in between.

Order of work: declare all unknowns (`_declare*`; positions in w are the arrays `at_*`), then write the rows as blocks
(`_write`). A stage of an element sees (x, S, z, u, h, p), all of which are linear in w: one kernel of the mode, which
the system keeps, has the rows of all stages of all elements of all phases with that mode, on every mesh.

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
from nosnoc_py.kernels import Kernel, KernelEvaluator
from nosnoc_py.ocp import OCP, Constraint
from nosnoc_py.programs import BlockProgram, KernelBlock, LinearMap
from nosnoc_py.reformulation.kinks import kinks_of, smooth_constraints
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
    state : function (times (n,), side) -> (n, n_x)
        States; the sides "-" and "+" are the limits at jumps.
    control : function times (n,) -> (n, n_u)
    p : (n_p,)
        Parameters.
    peaks : (m,)
        Times [s] at which inequalities were violated between the stages.
    margins : mapping label -> float
        Margins by which inequalities are tightened, so that they hold between the stages as well (user's units).
    near : bool
        True if the motion is a solution of the same sequence on another mesh: the solver then starts beside its bounds.
    splits : tuple of (begin, end, factor)
        Times [s] between which there are so many times more elements.
    """

    edges: Array
    state: Callable[[Array, Side], Array]
    control: Callable[[Array], Array]
    p: Array
    peaks: Array = field(default_factory=lambda: np.zeros(0))
    margins: Mapping[str, float] = field(default_factory=dict)
    near: bool = False
    splits: tuple[tuple[float, float, int], ...] = ()

    def elements(self, begin: float, end: float, usual: int) -> int:
        """Return the number of elements of a piece of the motion that has usually so many."""
        middle = 0.5 * (begin + end)
        return usual * max((factor for a, b, factor in self.splits if a <= middle <= b), default=1)

    def at(self, t: float, side: Side) -> Array:
        """Return the state (n_x,) at one time."""
        return self.state(np.array([t]), side)[0]


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


@dataclass(frozen=True, eq=False, kw_only=True)
class ElementTable:
    """Finite elements in the order of time.

    Attributes
    ----------
    phase, control, length : (n,) int
        Numbers of the phase and of the control interval, and position in w of the length that an element has a part of.
    share, place, width : (n,)
        Fraction of that length; begin and width in the control interval, as fractions.
    left : (n, n_x) int
        Positions in w of the state at the begin.
    x : (n, n_s, n_x) int
        Those of the states at the stages.
    """

    phase: Array
    control: Array
    length: Array
    share: Array
    place: Array
    width: Array
    left: Array
    x: Array

    def of(self, *phases: int) -> Array:
        """Return the numbers of the elements of phases, in the order of time."""
        return np.flatnonzero(np.isin(self.phase, phases))


class PathRows(NamedTuple):
    """Rows of a path constraint in a mode.

    Attributes
    ----------
    constraint : Constraint
    at_end : bool
        True if they are imposed at the last stage only.
    number : int
        Number of the constraint in the OCP.
    rows : (n,) int
        Rows of the constraint that are imposed.
    """

    constraint: Constraint
    at_end: bool
    number: int
    rows: Array


class _Store:
    """Unknowns in the order in which they are declared."""

    def __init__(self) -> None:
        self.parts: list[Array] = []
        self.size = 0

    def add(self, lower: Any, upper: Any, start: Any, scale: Any) -> Array:
        """Declare unknowns and return their positions in w, in the shape of the start."""
        start = np.asarray(start, float)
        part = np.empty((4, *start.shape))
        part[0], part[1], part[2], part[3] = lower, upper, start, scale
        self.parts.append(part.reshape(4, -1))
        self.size += start.size
        return np.arange(self.size - start.size, self.size).reshape(start.shape)

    def numbers(self) -> tuple[Array, ...]:
        """Return lower bounds, upper bounds, start and typical values of all unknowns, (n,) each."""
        return tuple(np.concatenate(self.parts, axis=1))


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
    nlp : BlockProgram
    w0 : (n,)
        Start with forces and impulses that fit its motion.
    at_lengths, at_p, at_x0, at_end, at_slack : arrays of int
        Positions in w of the lengths, the parameters, the initial and the final state, and the slacks of the penalty.
    at_u : (controls, n_u nodes) int
    at_left, at_x, at_z, at_y : lists of int arrays
        By phase: state at its begin (n_x,), stages (elements, n_s, n_x), multipliers (elements, n_s, n_z), and unknowns
        of the boundary before it.
    stage_blocks : dict KernelBlock -> tuple of int
        Blocks of the stages of all elements of phases with the same mode, and these phases.
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
        self._store, self._blocks = _Store(), list[KernelBlock]()
        self.path_constraints = smooth_constraints(ocp, "path_constraints")
        self._held_rows: dict[int, list[Array]] = {}
        self._declare()
        self.elements = self._elements()
        self._write()
        lower, upper, w, scale = self._store.numbers()
        # Fitted forces are negative where the motion of the start violates the contact laws.
        self.w0 = self.with_kinks(np.clip(self._with_forces(w), lower, upper))
        self.nlp = BlockProgram(self._blocks, lower, upper, scale, self.w0)

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
                n = self.elements.of(k)
                x, z, u = (w[self.at_x[k]], w[self.at_z[k]], self.stage_controls(w, n))
                x, z, u = (part.reshape(-1, part.shape[-1]).T for part in (x, z, u))
                slacks = np.asarray(values(x, z, u, w[self.at_p])).T
                w[self.at_z[k][:, :, -stage.size :]] = slacks.reshape(*self.at_z[k].shape[:2], -1)
        if end.size:
            at = np.concatenate([self.at_end, self.at_x0, self.at_p])
            total = np.append(w[at], w[self.at_lengths].sum())
            w[self.at_end_slack] = np.array(function_of([self._end_symbols()], end.values)(total)).ravel()
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
        x0, (x_low, x_high) = start.at(0.0, "-"), ocp.x_bounds
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
        most = np.abs(self.start.state(times, "+")).max(axis=0)
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
                first, last = self.start.edges[k : k + 2]
                ends = np.linspace(float(first), float(last), intervals_of(mesh, length, horizon) + 1)
                for a, b in itertools.pairwise(ends):
                    elements = self.start.elements(a, b, mesh.elements)
                    share = 1.0 / ((ends.size - 1) * elements)
                    self.pieces.append(
                        ControlPiece(phase=k, control=control, elements=elements, length=int(at[k]), share=share)
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
        values = np.clip(self.start.control(times.ravel()), low, high).reshape(self.controls, len(nodes) * self.n_u)
        most = np.abs(values).reshape(-1, self.n_u).max(axis=0, initial=0.0) if values.size else np.zeros(self.n_u)
        bounds = np.where(
            np.isfinite(np.maximum(np.abs(low), np.abs(high))), np.maximum(np.abs(low), np.abs(high)), 0.0
        )
        # Typical values: of the start or the finite bounds, whatever is larger, as a start is often zero.
        sizes = np.where(np.maximum(most, bounds) > 0.0, np.maximum(most, bounds), self.ocp.sizes.u)
        repeat = len(nodes)
        self.at_u = self._store.add(np.tile(low, repeat), np.tile(high, repeat), values, np.tile(sizes, repeat))

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
        y, after = boundary.y, self.start.at(float(self.start.edges[k]), "+")
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
        spans = zip(self.pieces, self.piece_times(), strict=True)
        ends = [(begin, (end - begin) / piece.elements, piece) for piece, (begin, end) in spans if piece.phase == k]
        begins = np.array([begin + e * h for begin, h, piece in ends for e in range(piece.elements)])
        widths = np.array([h for _, h, piece in ends for _ in range(piece.elements)])
        # States of the start are taken inside the phase: at its ends the motion may jump.
        inside = 1e-9 * max(horizon, 1e-300)
        t = begins[:, None] + widths[:, None] * self.tableau.c
        t = np.clip(t, a + inside, max(b - inside, a + inside))
        # A parabola that is 1 in the middle of the horizon and 0 at its ends, where the state may be fixed on its
        # bound.
        tight = margins * np.minimum(1.0, 4.0 * FADES * t * (horizon - t) / horizon**2)[..., None]
        states, z = self.start.state(t.ravel(), "-").reshape(*t.shape, self.n_x), mode.z
        self.at_x.append(self._store.add(low + tight, high - tight, states, self.sizes))
        every = (np.broadcast_to(part, (*t.shape, z.size)) for part in (z.lower, z.upper, z.initial, z.scale))
        self.at_z.append(self._store.add(*every))
        return np.asarray(self.at_x[-1][-1, -1])

    def _with_forces(self, w: Array) -> Array:
        """Return the start with the multipliers and impulses that fit its motion in the least-squares sense.

        Multipliers enter the dynamics, and impulses the balance of momentum, linearly: one step of Gauss-Newton is
        enough. Rates are those of the polynomials, not of the motion: the dynamics of the program compare forces with
        these.
        """
        w = w.copy()
        for block, phases in self.stage_blocks.items():
            count, first = self.modes[phases[0]].z.size, 2 * self.n_x
            if not count:
                continue
            at = np.concatenate([self.at_z[k].reshape(-1, count) for k in phases])
            w[at] -= _fitted(block, w, np.arange(self.n_x), first + np.arange(count))
        for k, boundary in enumerate(self.boundaries):
            if boundary is None:
                continue
            # The state after the jump is kept, as the motion knows it: only the impulses are fitted.
            jumped, count = sum(jumps for jumps, _ in boundary.after), boundary.y.size
            held = self.boundary_blocks.get(k)
            if held is not None and count > jumped:
                columns = self.n_x + np.arange(jumped, count)
                w[self.at_y[k][jumped:]] -= _fitted(held, w, np.arange(boundary.equations.size), columns)[0]
        return w

    # --- rows ---

    def _write(self) -> None:
        groups: dict[int, list[int]] = {}
        for k, mode in enumerate(self.modes):
            groups.setdefault(id(mode), []).append(k)
        self.stage_blocks: dict[KernelBlock, tuple[int, ...]] = {}
        self.boundary_blocks: dict[int, KernelBlock] = {}
        for phases in groups.values():
            self._add_stages(tuple(phases))
            self._add_inner_points(tuple(phases))
        for k, boundary in enumerate(self.boundaries):
            if boundary is not None:
                self._add_boundary(k, boundary)
            self._add_onset(k)
        self._add_ends()

    def _elements(self) -> ElementTable:
        """Return the table of all elements."""
        pieces = [(piece, inside) for piece in self.pieces for inside in range(piece.elements)]
        x = np.concatenate(self.at_x)
        left = np.vstack([x[:1, -1], x[:-1, -1]])
        begins = np.cumsum([0, *(len(part) for part in self.at_x[:-1])])
        left[begins] = self.at_left
        count = np.array([piece.elements for piece, _ in pieces])
        return ElementTable(
            phase=np.array([piece.phase for piece, _ in pieces]),
            control=np.array([piece.control for piece, _ in pieces]),
            length=np.array([piece.length for piece, _ in pieces]),
            share=np.array([piece.share for piece, _ in pieces]),
            place=np.array([inside for _, inside in pieces]) / count,
            width=1.0 / count,
            left=left,
            x=x,
        )

    def basis(self, elements: Array, places: Array) -> Array:
        """Return the weights (elements, places, nodes) of control unknowns at places (elements, places) of elements."""
        e = self.elements
        inside = e.place[elements, None] + e.width[elements, None] * places
        return self.control_basis(self.control_nodes, inside.ravel()).reshape(*inside.shape, -1)

    def stage_controls(self, w: Array, elements: Array) -> Array:
        """Return the controls (elements, n_s, n_u) at the stages of elements."""
        nodes = w[self.controls_of(elements)]
        stages = np.broadcast_to(self.tableau.c, (len(elements), self.tableau.stages))
        return np.asarray(self.basis(elements, stages) @ nodes)

    def controls_of(self, elements: Array) -> Array:
        """Return the positions in w (elements, nodes, n_u) of the control unknowns of elements."""
        shape = (len(elements), self.control_nodes.size, self.n_u)
        return self.at_u[self.elements.control[elements]].reshape(shape)

    def _kernel(self, name: str, arguments: list[ca.SX], rows: Rows, cost: Any = 0.0) -> Kernel:
        """Return the kernel of rows and a cost in these arguments, which the system keeps."""
        a, cost = ca.vertcat(ca.SX(0, 1), *arguments), ca.SX(cost)
        parts = [a, rows.expression, cost]
        return self.ocp.system.kernels.kernel(name, parts, lambda: Kernel(a, rows.expression, cost))

    def _stage_kernel(self, mode: ModeEquations, others: ca.SX) -> Kernel:
        """Return the kernel of a stage of a mode, with arguments (x, S, z, u, h, p).

        X = left + h A K with the rates K becomes S = h K = (X - left) A^-T: rows stay linear in h.
        """
        s, cost = self.ocp.system, self.stage_kinks.cost
        parts = [mode.flow, mode.equations.expression, mode.inequalities.expression, others, cost]
        parts += [] if mode.inertia is None else [mode.inertia]

        def made() -> Kernel:
            increment, h = ca.SX.sym("S", self.n_x), ca.SX.sym("h")
            moved = increment if mode.inertia is None else mode.inertia @ increment
            rows = [moved - h * mode.flow, mode.equations.expression, mode.inequalities.expression, others]
            a = ca.vertcat(s.x, increment, mode.z.symbol, s.u, h, s.p)
            return Kernel(a, ca.vertcat(*rows), h * cost)

        return s.kernels.kernel("stage", [*parts, mode.z.symbol], made)

    def _add_stages(self, phases: tuple[int, ...]) -> None:
        """Add the rows at the stages of all elements of the phases of one mode.

        They are dynamics, equations and inequalities of the mode (`stage_rows` counts on this order), path constraints,
        and kinks of the cost.
        """
        mode, s, n_x, system = self.modes[phases[0]], self.tableau.stages, self.n_x, self.ocp.system
        n = self.elements.of(*phases)
        paths = self._paths(mode)
        every = [path for path in paths if not path.at_end]
        parts = [(str(path.constraint.name), path.constraint.expression) for path in every]
        others = Rows.of(*parts, ("stage_cost", self.stage_kinks.rows))
        labels = (*(f"{name}'" for name in system.state_names), *mode.equations.labels, *mode.inequalities.labels)
        labels += others.labels
        equations, kinks = n_x + mode.equations.size, self.stage_kinks.rows.numel()
        open_ = mode.inequalities.size
        limits = [[getattr(path.constraint, side) for path in every] for side in ("lower", "upper")]
        low = np.concatenate([np.zeros(equations + open_), *limits[0], np.zeros(kinks)])
        high = np.concatenate([np.zeros(equations), np.full(open_, np.inf), *limits[1], np.full(kinks, np.inf)])
        stages = np.broadcast_to(self.tableau.c, (n.size, s))
        # Equations (equal limits) get no margin: they would become infeasible.
        margins = self._margins(n, stages, labels) * (low < high)
        least, most = low + margins, high - margins
        begin = equations + open_
        firsts = np.cumsum([begin, *(path.constraint.lower.size for path in every)])
        for k in phases:  # rows whose value terminal equations fix have no interior: free at the end of the phase
            last, fixed = np.flatnonzero(self.elements.phase[n] == k)[-1], self._fixed_at_end(k) if every else []
            for path, first in zip(every, firsts, strict=False):
                free = first + np.flatnonzero(fixed[path.number][path.rows])
                least[last, -1, free], most[last, -1, free] = -np.inf, np.inf
        block = KernelBlock(
            name="phase",
            kernel=self._stage_kernel(mode, others.expression),
            at=self._stage_map(n, phases),
            lower=least.reshape(-1, low.size),
            upper=most.reshape(-1, low.size),
            weights=np.tile(self.tableau.b, n.size),
            labels=labels,
        )
        self.stage_blocks[block] = phases
        self._blocks.append(block)
        for path in paths:
            if path.at_end:
                self._add_at_end_of_elements(path, mode, n, phases)

    def _stage_map(self, n: Array, phases: tuple[int, ...]) -> LinearMap:
        """Return the map from w to (x, S, z, u, h, p) at all stages of elements."""
        e, s, places = self.elements, self.tableau.stages, n.size * self.tableau.stages
        inverse = np.linalg.inv(self.tableau.a)
        x, nodes = e.x[n], self.control_nodes.size
        ends = np.concatenate([e.left[n][:, None], x], axis=1)  # left end and stages of every element
        of_ends = np.hstack([-inverse.sum(axis=1)[:, None], inverse])
        basis = self.basis(n, np.broadcast_to(self.tableau.c, (n.size, s)))
        controls = self.controls_of(n)
        z = np.concatenate([self.at_z[k] for k in phases])
        return LinearMap.of(
            (x.reshape(places, -1),),
            (np.repeat(ends, s, axis=0), np.tile(of_ends, (n.size, 1))),
            (z.reshape(places, z.shape[-1]),),
            (np.repeat(controls, s, axis=0), basis.reshape(places, nodes)),
            (np.repeat(e.length[n], s)[:, None, None], np.repeat(e.share[n], s)[:, None]),
            (self.at_p[None],),
        )

    def _add_at_end_of_elements(self, path: PathRows, mode: ModeEquations, n: Array, phases: tuple[int, ...]) -> None:
        """Add a path constraint at the last stage of all elements only."""
        c, s, e = path.constraint, self.ocp.system, self.elements
        rows = Rows.of((str(c.name), c.expression))
        basis = self.basis(n, np.ones((n.size, 1)))[:, 0]
        controls = self.controls_of(n)
        z = np.concatenate([self.at_z[k][:, -1] for k in phases])
        at = LinearMap.of((e.x[n, -1],), (z,), (controls, basis), (self.at_p[None],))
        lower, upper = (np.tile(side, (n.size, 1)) for side in (c.lower, c.upper))
        for k in phases:
            free = np.flatnonzero(self._fixed_at_end(k)[path.number][path.rows])
            last = np.flatnonzero(e.phase[n] == k)[-1]
            lower[last, free], upper[last, free] = -np.inf, np.inf
        kernel = self._kernel("path", [s.x, mode.z.symbol, s.u, s.p], rows)
        self._blocks.append(
            KernelBlock(name="phase", kernel=kernel, at=at, lower=lower, upper=upper, labels=rows.labels)
        )

    def _add_inner_points(self, phases: tuple[int, ...]) -> None:
        """Add the inequalities at further points of all elements of the phases of one mode."""
        rows, lower, upper = self.inner_rows(self.modes[phases[0]])
        if not self.mesh.points or not rows.size:
            return
        e, s, n = self.elements, self.ocp.system, self.elements.of(*phases)
        inside = np.array([places for k in phases for places in self._inner_places(k)])
        # The state is continuous and has the left end as a node; multipliers jump between elements and have the stages
        # only.
        flat, count = inside.ravel(), inside.shape[1]
        of_x, of_z = lagrange_basis(np.append(0.0, self.tableau.c), flat), lagrange_basis(self.tableau.c, flat)
        ends = np.concatenate([e.left[n][:, None], e.x[n]], axis=1)
        z = np.concatenate([self.at_z[k] for k in phases])
        controls = self.controls_of(n)
        every = (np.repeat(part, count, axis=0) for part in (ends, z, controls))
        weights = (of_x, of_z, self.basis(n, inside).reshape(flat.size, -1))
        margins = self._margins(n, inside, rows.labels) * (lower < upper)
        self._blocks.append(
            KernelBlock(
                name="phase",
                kernel=self._kernel("inner", [s.x, self.modes[phases[0]].z.symbol, s.u, s.p], rows),
                at=LinearMap.of(*zip(every, weights, strict=True), (self.at_p[None],)),
                lower=(lower + margins).reshape(flat.size, -1),
                upper=(upper - margins).reshape(flat.size, -1),
                labels=rows.labels,
            )
        )

    def _margins(self, n: Array, inside: Array, labels: tuple[str, ...]) -> Array:
        """Return the margins by which rows at places (elements, places) of elements are tightened, one more axis.

        Margins of gaps vanish at the ends of a phase, where the gap may be zero; so do those of rows that another phase
        keeps constant, as these may be active there. All others vanish at the ends of the horizon.
        """
        amounts = np.array([self.start.margins.get(label, 0.0) for label in labels])
        if not amounts.any():
            return np.zeros((*inside.shape, len(labels)))
        e, begins, horizon = self.elements, self.start.edges, float(self.start.edges[-1])
        phase = e.phase[n]
        counts = np.bincount(e.phase)
        number = np.arange(e.phase.size) - np.repeat(np.cumsum(counts) - counts, counts)  # within the phase
        along = (number[n, None] + inside) / counts[phase][:, None]
        times = (begins[phase][:, None] + along * np.diff(begins)[phase][:, None]) / horizon
        still = {
            str(c.name)
            for mode in self.modes
            for c, held in zip(self.path_constraints, self._held(mode), strict=True)
            if held.any()
        }
        # Parabolas again, over the phase and over the horizon.
        is_gap = np.array([label.startswith("gap[") or label in still for label in labels])
        over_phase, over_horizon = (
            4.0 * np.clip(share, 0.0, 1.0) * np.clip(1.0 - share, 0.0, 1.0) for share in (along, times)
        )
        fading = np.minimum(1.0, FADES * over_horizon)[..., None]
        return np.asarray(amounts * np.where(is_gap, over_phase[..., None], fading))

    def inner_rows(self, mode: ModeEquations) -> tuple[Rows, Array, Array]:
        """Return the inequalities at further points in (x, z, u, p), and their lower and upper limits."""
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
        return rows, np.array(lower), np.array(upper)

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
        phases = self.stage_blocks.get(block)
        if phases is None:
            return f"in {block.name}"
        e = self.elements.of(*phases)[place // self.tableau.stages]
        k, left = int(self.elements.phase[e]), self.elements.left[e]
        shown = zip(self.ocp.system.state_names, w[left], strict=True)
        return f"in phase {k}, near {', '.join(f'{name} = {value:.6g}' for name, value in shown)}"

    def stage_rows(self, block: KernelBlock) -> int:
        """Return the number of rows of the mode at a stage, of which the first n_x are the dynamics."""
        mode = self.modes[self.stage_blocks[block][0]]
        return self.n_x + mode.equations.size + mode.inequalities.size

    def time_of(self, block: KernelBlock, edges: Array) -> float:
        """Return the time [s] of a block with one place."""
        return float(edges[-1] if block.edge is None else edges[block.edge])

    def _paths(self, mode: ModeEquations) -> list[PathRows]:
        """Return the path constraints of a mode: inequalities at all stages, equations as the user has chosen.

        Inequalities that the mode keeps constant are left out: see `held_rows`.
        """
        paths = []
        for k, (c, held) in enumerate(zip(self.path_constraints, self._held(mode), strict=True)):
            rows = np.flatnonzero(~held)
            if not rows.size:
                continue
            some = c.rows_of(rows) if held.any() else c
            # A constant control satisfies an equation at the end of its element, but rarely at all of its stages.
            paths.append(PathRows(some, not ((c.lower < c.upper).all() or c.at == "rk_stages"), k, rows))
        return paths

    def _held(self, mode: ModeEquations) -> list[Array]:
        """Return for every path constraint which rows are inequalities that a mode keeps constant, (rows,) bool."""
        if id(mode) not in self._held_rows:
            self._held_rows[id(mode)] = self._constant_rows(mode.held)
        return self._held_rows[id(mode)]

    def _constant_rows(self, held: ca.SX | None) -> list[Array]:
        """Return for every path constraint which rows are inequalities that held v = 0 keeps constant, (rows,) bool."""
        states = self.start.state(np.linspace(0.0, self.start.edges[-1], HELD_AT), "+")
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
        at = np.concatenate([before, self.at_y[k], self.at_p])
        block = self._add_conditions(
            f"before phase {k}", [s.x, boundary.y.symbol, s.p], boundary.equations, boundary.inequalities, at, k
        )
        if block is not None:
            self.boundary_blocks[k] = block
        first = np.concatenate([self.at_x[k][0, 0], self.at_p])
        self._add_conditions(f"beginning of phase {k}", [s.x, s.p], Rows(), boundary.beginning, first, k)

    def _add_onset(self, k: int) -> None:
        """Add the conditions at which phase k begins without an impact, with its own control."""
        plan, s, fixed = self.plan, self.ocp.system, self.ocp.x0
        if plan.impacts[k] or (k == 0 and fixed is None):
            return
        before = self.laws.mode_at(np.asarray(fixed), self.start.p) if k == 0 else plan.modes[k - 1]
        rows, first = self.laws.onset(before, plan.modes[k]), self.elements.of(k)[:1]
        if rows.size:
            controls, basis = self.controls_of(first), self.basis(first, np.zeros((1, 1)))[:, 0]
            at = LinearMap.of((self.at_left[k][None],), (controls, basis), (self.at_p[None],))
            kernel, labels = self._kernel("onset", [s.x, s.u, s.p], rows), rows.labels
            name = f"beginning of phase {k}"
            self._blocks.append(
                KernelBlock(name=name, kernel=kernel, at=at, lower=0.0, upper=np.inf, labels=labels, edge=k)
            )

    def _add_lengths(self) -> None:
        """Add the horizon as the sum of all lengths, and equal control intervals."""
        free, at = self.ocp.free_time, self.at_lengths
        kernel = self._linear(is_cost=False)
        low, high = (self.ocp.horizon,) * 2 if free is None else (free.lower, free.upper)
        everything = np.broadcast_to(at[None, :, None], (1, at.size, 1))
        self._blocks.append(
            KernelBlock(
                name="end",
                kernel=kernel,
                at=LinearMap.of((everything, np.ones((1, at.size)))),
                lower=low,
                upper=high,
                labels=("horizon",),
            )
        )
        if not self.mesh.equal or self.mesh.intervals == 1:
            return
        # The last interval has what is left of the horizon: a row for it would be redundant.
        own = self.length_control == np.arange(self.mesh.intervals - 1)[:, None]
        shares = own - 1.0 / self.mesh.intervals
        every = np.broadcast_to(at[None, :, None], (len(own), at.size, 1))
        equal = KernelBlock(
            name="end",
            kernel=kernel,
            at=LinearMap.of((every, shares)),
            lower=0.0,
            upper=0.0,
            labels=("control interval",),
        )
        self._blocks.append(equal)

    def _add_ends(self) -> None:
        """Add terminal cost and constraints, the horizon, initial constraints, and the mode of the first phase."""
        ocp, s = self.ocp, self.ocp.system
        self._add_lengths()
        kinks, constraints = self.end_kinks, smooth_constraints(ocp, "terminal_constraints")
        asked = Rows.of(*((str(c.name), c.expression) for c in constraints))
        low, high = (
            np.concatenate([np.zeros(0), *[getattr(c, side) for c in constraints]]) for side in ("lower", "upper")
        )
        count, weight = asked.size if self.mesh.penalty is not None else 0, self.mesh.penalty or 0.0
        end = self.start.at(float(self.start.edges[-1]), "-")
        sizes = np.tile(self._sizes_at(asked.expression, end, self.sizes), 2) if count else np.zeros(0)
        self.at_slack = self._store.add(0.0, np.inf, 1e-2 * sizes, sizes)
        self.slack_sizes = sizes
        self.at_end_slack = self._store.add(kinks.lower, np.inf, np.zeros(kinks.size), kinks.sizes)
        # Exact l1 penalty: c + under - over within the limits, both >= 0.
        missed = ca.SX.sym("missed", asked.size)
        rows = Rows(expression=asked.expression + missed, labels=asked.labels)
        rows += Rows.of(("terminal_cost", kinks.rows))
        cost, symbols = kinks.cost, [self._end_symbols(), missed, kinks.slacks]
        more = kinks.rows.numel()

        def made() -> Kernel:
            return Kernel(ca.vertcat(*symbols), rows.expression, cost)

        # The symbol of a fixed horizon is in none of the expressions.
        kernel = s.kernels.kernel("end", [s.x_initial, asked.expression, kinks.rows, kinks.cost, kinks.slacks], made)
        if kernel.m or kernel.has_cost:
            lengths = self.at_lengths[:, None]
            slacks = self.at_slack.reshape(2, count)[None]
            part = (slacks, [[-1.0, 1.0]]) if count else (None, np.zeros((1, asked.size)))
            at = LinearMap.of(
                (np.concatenate([self.at_end, self.at_x0, self.at_p])[None],),
                (lengths[None], np.ones((1, lengths.size))),
                part,
                (self.at_end_slack[None],),
            )
            lower, upper = np.append(low, np.zeros(more)), np.append(high, np.full(more, np.inf))
            self._blocks.append(
                KernelBlock(name="end", kernel=kernel, at=at, lower=lower, upper=upper, labels=rows.labels)
            )
        if count:
            every = self.at_slack[None, :, None]
            spent = LinearMap.of((every, weight / sizes[None]))
            self._blocks.append(KernelBlock(name="penalty", kernel=self._linear(is_cost=True), at=spent))
        at_start = np.concatenate([self.at_x0, self.at_p])
        if ocp.initial_constraints:
            initial = Rows.of(*((str(c.name), c.expression) for c in ocp.initial_constraints))
            lower, upper = (
                np.concatenate([getattr(c, side) for c in ocp.initial_constraints]) for side in ("lower", "upper")
            )
            self._add("beginning", [s.x, s.p], initial, lower, upper, at_start, edge=0)
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
                self._add("path at the beginning", [s.x, s.p], path, lower, upper, at_start, edge=0)
        self._blocks += [point_block(self, term) for term in ocp.point_terms]
        began = self._start_rows()
        # Rows of a fixed initial state are redundant, which the solver does not like. If the state is in another mode
        # (a body that hovers where the sequence has it closed), they are imposed all the same: they are infeasible.
        if (
            ocp.x0 is None
            or self._starts_outside(began[0].expression, 0.0, 0.0)
            or self._starts_outside(began[1].expression, 0.0, np.inf)
        ):
            self._add_conditions("mode of the first phase", [s.x, s.p], *began, at_start, 0)

    def _linear(self, *, is_cost: bool) -> Kernel:
        """Return the kernel with one row or a cost, its argument: for what is linear in w."""
        a = ca.SX.sym("a")
        parts = (ca.SX(0, 1), a) if is_cost else (a,)
        return self.ocp.system.kernels.kernel("linear", [], lambda: Kernel(a, *parts), is_cost)

    @cached_property
    def _total(self) -> ca.SX:
        """Symbol of the horizon: a free one is no unknown of its own, but the sum of the lengths."""
        return ca.SX.sym("horizon") if self.ocp.free_time is None else self.ocp.free_time.symbol

    def _end_symbols(self) -> ca.SX:
        s = self.ocp.system
        return ca.vertcat(s.x, s.x_initial, s.p, self._total)

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
        symbols: list[ca.SX],
        rows: Rows,
        lower: Array,
        upper: Array,
        index: Array,
        edge: int | None = None,
    ) -> KernelBlock | None:
        """Add a block at one place, unless it has no rows."""
        if not rows.size:
            return None
        kernel = self._kernel("rows", symbols, rows)
        at, labels = LinearMap.at(index), rows.labels
        self._blocks.append(
            KernelBlock(name=name, kernel=kernel, at=at, lower=lower, upper=upper, labels=labels, edge=edge)
        )
        return self._blocks[-1]

    def _add_conditions(
        self, name: str, symbols: list[ca.SX], equations: Rows, inequalities: Rows, index: Array, edge: int
    ) -> KernelBlock | None:
        """Add equations (= 0) and inequalities (>= 0) as a block at one place."""
        lower, open_ = np.zeros(equations.size + inequalities.size), np.full(inequalities.size, np.inf)
        upper = np.append(np.zeros(equations.size), open_)
        return self._add(name, symbols, equations + inequalities, lower, upper, index, edge)


def intervals_of(mesh: PhaseMesh, length: float, horizon: float) -> int:
    """Return the number of control intervals of a phase on a moving grid, in proportion to its length."""
    # At least one, however short the phase: its elements need a control.
    return mesh.intervals if mesh.per_phase else max(1, round(mesh.intervals * length / horizon))


def _fitted(block: KernelBlock, w: Array, rows: Array, columns: Array) -> Array:
    """Return by how much some arguments (places, columns) are too large for some rows, in the least-squares sense.

    Zero where a value is not finite.
    """
    a = block.at.arguments(w, block.kernel.n)
    evaluator = KernelEvaluator(block.kernel, a)
    right, slopes = evaluator.values()[:, rows], evaluator.first()
    matrix = np.zeros((block.places, block.count + 1, block.kernel.n))
    matrix[:, *block.kernel.jacobian_pattern] = slopes
    matrix = matrix[:, rows][:, :, columns]
    known = np.isfinite(matrix).all(axis=(1, 2)) & np.isfinite(right).all(axis=1)
    out = np.zeros((block.places, columns.size))
    # Redundant contacts make the matrix singular: minimum norm shares the load evenly. The cutoff is far above
    # rounding.
    out[known] = (np.linalg.pinv(matrix[known], rcond=1e-10) @ right[known][..., None])[..., 0]
    return out
