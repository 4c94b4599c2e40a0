"""Initial guesses of a discretised problem, from functions of time or from a trajectory.

`TimeGrid` knows the time of every block of variables; `fill` evaluates the guess of the user there. Nodes are moved so
that known events lie on them (`TimeGrid.through`): a guess with its impacts inside elements would contradict the cross
complementarity. Where a quantity jumps, blocks at the beginning of an element take the right limit ("+"), all others
the left limit ("-").
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from itertools import pairwise

import casadi as ca
import numpy as np

from nosnoc_py.discretization.grid import SUFFIX, Grid
from nosnoc_py.mpcc.layout import At, Block, ElementEnd
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.reformulation.dcs import DCS, rows_of
from nosnoc_py.roles import Role
from nosnoc_py.solution import Event, Trajectory

# Times that differ by less than this fraction of the interval are equal: events and samples at events are stored with
# rounding errors.
TOUCHING = 1e-9


@dataclass(frozen=True, eq=False)
class TimeGrid:
    """Times of all blocks of a discretisation.

    Attributes
    ----------
    nodes : tuple of (N_FE + 1,) arrays
        Element boundaries of every control stage [s].
    c : (n_s,)
        Nodes of the Runge-Kutta scheme.
    """

    nodes: tuple[np.ndarray, ...]
    c: np.ndarray

    @classmethod
    def equal(cls, grid: Grid, c: np.ndarray, horizon: float) -> TimeGrid:
        """Create the grid in which all elements of a control stage have the same length."""
        return cls(tuple(grid.nominal_nodes(horizon)), c)

    @classmethod
    def of_lengths(cls, grid: Grid, c: np.ndarray, h: np.ndarray) -> TimeGrid:
        """Create the grid from the lengths h (E,) of all elements [s]."""
        ends = np.concatenate([[0.0], np.cumsum(h)])
        starts = np.concatenate([[0], np.cumsum(grid.elements)])
        return cls(tuple(ends[a : b + 1] for a, b in pairwise(starts)), c)

    def through(self, times: Sequence[float], *, free_stages: bool = False) -> TimeGrid:
        """Return the grid with inner nodes moved onto the times of events, if there are enough elements.

        If control stages have free lengths, events are put on boundaries of stages.
        """
        if not free_stages:
            return TimeGrid(tuple(_through(nodes, times) for nodes in self.nodes), self.c)
        ends = np.array([nodes[0] for nodes in self.nodes] + [self.nodes[-1][-1]])
        moved = _moved(ends, times)
        # Nodes inside a stage keep their relative positions.
        pieces = zip(self.nodes, pairwise(moved), strict=True)
        return TimeGrid(tuple(a + (nodes - nodes[0]) * (b - a) / np.ptp(nodes) for nodes, (a, b) in pieces), self.c)

    def time(self, at: At, *, end: bool = False) -> float:
        """Return the time [s] of an RK stage, or of the left end (or right end) of an element."""
        nodes = self.nodes[at.stage or 0]
        if at.element is None:
            return float(nodes[0])
        inside = 1.0 if end else 0.0 if at.rk is None else float(self.c[at.rk])
        return float(nodes[at.element] + inside * (nodes[at.element + 1] - nodes[at.element]))

    def time_of(self, block: Block) -> float:
        """Return the time [s] of a block; controls are evaluated in the middle of their control stage."""
        if block.role is Role.CONTROL:
            nodes = self.nodes[block.at.stage or 0]
            # A control is constant on its stage; at its ends a guess with the same stages would be ambiguous.
            return float(0.5 * (nodes[0] + nodes[-1]))
        return self.time(block.at, end=block.edge is ElementEnd.RIGHT)

    def side_of(self, block: Block) -> str:
        """Return the limit that a block takes at a jump: "+" at the beginning of an element, else "-"."""
        first = block.at.rk is not None and float(self.c[block.at.rk]) == 0.0  # a stage on the left boundary
        return "+" if first or block.edge is ElementEnd.LEFT else "-"

    def relative(self, at: At) -> float:
        """Return the length of an element relative to the mean length in its control stage."""
        nodes, n = self.nodes[at.stage or 0], at.element or 0
        return float((nodes[n + 1] - nodes[n]) / (nodes[-1] - nodes[0]) * (len(nodes) - 1))

    def stage_share(self, at: At) -> float:
        """Return the length of a control stage relative to the mean length."""
        nodes = self.nodes[at.stage or 0]
        return float((nodes[-1] - nodes[0]) / (self.nodes[-1][-1] - self.nodes[0][0]) * len(self.nodes))

    def nearest(self, time: float) -> float:
        """Return the element boundary nearest to a time [s]."""
        boundaries = np.concatenate(self.nodes)
        return float(boundaries[np.argmin(np.abs(boundaries - time))])


def _moved(ends: np.ndarray, times: Sequence[float]) -> np.ndarray:
    """Return boundaries of control stages with the nearest ones moved onto events, the others in proportion."""
    last = ends.size - 1
    fixed = {0: float(ends[0])}
    for k, t in enumerate(inner := sorted(t for t in times if ends[0] < t < ends[-1])):
        nearest = int(np.argmin(np.abs(ends - t)))
        # Leave a boundary for each of the events that follow.
        index = int(np.clip(nearest, max(fixed) + 1, last - (len(inner) - k)))
        if index <= max(fixed):
            return ends  # more events than boundaries: they stay inside stages
        fixed[index] = t
    fixed[last] = float(ends[-1])
    return np.interp(np.arange(ends.size), list(fixed), list(fixed.values()))


def _through(nodes: np.ndarray, times: Sequence[float]) -> np.ndarray:
    """Return the nodes of a control stage with events on them; the remaining nodes halve the longest elements."""
    # Events closer to the ends than a tenth of an element would make very short elements.
    margin = 0.1 * (nodes[-1] - nodes[0]) / (len(nodes) - 1)
    inner = [t for t in times if nodes[0] + margin < t < nodes[-1] - margin][: len(nodes) - 2]
    if not inner:
        return nodes
    moved = [nodes[0], *inner, nodes[-1]]
    while len(moved) < len(nodes):
        # Halving the longest element keeps the steps as equal as the events allow.
        k = int(np.argmax(np.diff(moved)))
        moved.insert(k + 1, 0.5 * (moved[k] + moved[k + 1]))
    return np.array(moved)


def boundary_estimate(dcs: DCS) -> Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """Return a function (x_minus, p, hit) -> estimates of all boundary variables (n_b,)."""
    jump = dcs.jump
    if jump is None:
        return lambda x, p, hit: np.zeros(0)
    values = [
        ca.SX(np.broadcast_to(v.initial, (len(v.components),)).copy()) if v.estimate is None else v.estimate
        for v in jump.variables
    ]
    function = ca.Function("estimate", [jump.x_minus, dcs.p, jump.hit], [ca.vertcat(ca.SX(0, 1), *values)])
    return lambda x, p, hit: np.asarray(function(x, p, hit)).reshape(-1)


def fill(
    mpcc: MPCC,
    dcs: DCS,
    places: TimeGrid,
    p: np.ndarray,
    state: Callable[[float, str], np.ndarray],
    control: Callable[[float], np.ndarray] | None = None,
    series: Callable[[str, float, str], float | None] = lambda name, t, side: None,
    impacts: Sequence[Event] = (),
    hits: np.ndarray | None = None,
    known: Container[tuple[str, At]] = (),
) -> np.ndarray:
    """Return w with states, controls, steps and algebraic variables set from a guess.

    Parameters
    ----------
    mpcc : MPCC
    dcs : DCS
    places : TimeGrid
    p : (n_p,)
    state : function (t, side) -> (n_x,)
    control : function t -> (n_u,), optional
    series : function (name, t, side) -> value or None
        Values of named algebraic quantities; None if the guess has none.
    impacts : sequence of Event
        Assigned to the nearest nodes, whose boundary variables are estimated for an impact.
    hits : (n_impacts,), optional
        Flags of further impacts at t = 0.
    known : container of (name, At), optional
        Blocks that keep the start values of the program.
    """
    w = mpcc.w0.copy()
    names = [impact.name for impact in dcs.jump.impacts] if dcs.jump is not None else []
    # Keys are exact node times: `nearest` returns an entry of the same array that `time_of` reads.
    hitting = [(places.nearest(event.time), event.name) for event in impacts]
    at_boundary, offsets = boundary_estimate(dcs), rows_of(dcs.jump.variables if dcs.jump is not None else ())
    at_stage = stage_estimates(dcs)
    for block in mpcc.variables.blocks():
        if (block.name, block.at) in known:
            continue
        t, side = places.time_of(block), places.side_of(block)
        if block.role is Role.STATE:
            w[block.rows] = state(t, side)[: len(block.components)]  # the block of a free x(0) has no clock state
        elif block.role is Role.STATE_DERIVATIVE:
            w[block.rows] = _mean_slope(places, block.at, state)
        elif block.role is Role.CONTROL and control is not None:
            w[block.rows] = control(t)
        elif block.name in offsets:
            # Boundary variables follow from the left limit of the state and the impacts that happen at this node.
            hit = np.array([(t, name) in hitting for name in names], dtype=float)
            if hits is not None and t == 0.0:
                hit = np.maximum(hit, hits)
            w[block.rows] = at_boundary(state(t, "-"), p, hit)[offsets[block.name]]
        elif block.role is Role.STEP:
            w[block.rows] = places.relative(block.at)
        elif block.role is Role.STAGE_LENGTH:
            w[block.rows] = places.stage_share(block.at)
        else:
            # Estimates from the state first; values of the user's own guess override them.
            if block.name in at_stage:
                w[block.rows] = np.asarray(at_stage[block.name](state(t, side), p)).reshape(-1)
            for row, name in enumerate(block.components, start=block.start):
                if (value := series(name, t, side)) is not None:
                    w[row] = value
    return w


def _mean_slope(places: TimeGrid, at: At, state: Callable[[float, str], np.ndarray]) -> np.ndarray:
    """Return the mean derivative of the state over its element; zero if the element has no length."""
    left, right = (places.time(At(at.stage, at.element), end=end) for end in (False, True))
    rise = np.asarray(state(right, "-")) - state(left, "+")
    return rise / (right - left) if right > left else np.zeros_like(rise)


def stage_estimates(dcs: DCS) -> dict[str, ca.Function]:
    """Return estimates of algebraic variables as functions of x and p, by the names of their blocks."""
    functions: dict[str, ca.Function] = {}
    for v in dcs.variables:
        if v.estimate is not None:
            function = ca.Function("estimate", [dcs.x, dcs.p], [v.estimate])
            functions |= {v.name + suffix: function for suffix in ("", *SUFFIX.values())}
    return functions


def trajectory_series(trajectory: Trajectory) -> Callable[[str, float, str], float | None]:
    """Return a function (name, t, side) -> value of a named series of a trajectory, or None if it has none.

    Algebraic quantities jump at events, so that values are interpolated between samples of the same phase only.
    """
    slack = TOUCHING * max(trajectory.duration, TOUCHING)
    cuts = np.unique([event.time for event in trajectory.events])
    numbers: dict[str, np.ndarray] = {}

    def value(name: str, t: float, side: str) -> float | None:
        samples = trajectory.series.get(name)
        if samples is None or not len(samples):
            return None
        if name not in numbers:
            numbers[name] = _phase_numbers(samples.t, cuts, slack)
        phase = int(np.searchsorted(cuts, t - slack if side == "-" else t + slack))
        own = numbers[name] == phase
        own = own if own.any() else np.ones(len(samples), bool)  # a phase shorter than the sampling has no samples
        return float(np.interp(t, samples.t[own], samples.values[own]))

    return value


def _phase_numbers(t: np.ndarray, cuts: np.ndarray, slack: float) -> np.ndarray:
    """Return the number of events before every sample; of two samples at an event the second one lies after it."""
    second = np.append(False, np.diff(t) <= slack)  # series store both limits of a jump at the same time
    return np.where(second, np.searchsorted(cuts, t + slack), np.searchsorted(cuts, t - slack))
