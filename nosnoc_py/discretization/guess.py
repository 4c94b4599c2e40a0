"""Initial guesses on the nodes of a discretisation, from whatever the user has."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from itertools import pairwise

import casadi as ca
import numpy as np

from nosnoc_py.discretization.grid import SUFFIX, Grid
from nosnoc_py.mpcc.layout import At, Block, Edge
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.reformulation.dcs import DCS, rows_of
from nosnoc_py.roles import Role
from nosnoc_py.solution import Event, Trajectory

# Times closer than this, relative to the interval, are one time.
TOUCHING = 1e-9


@dataclass(frozen=True, eq=False)
class Places:
    """Times of all places of a discretisation.

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
    def equal(cls, grid: Grid, c: np.ndarray, horizon: float) -> Places:
        """Every element has its equal share of its control stage."""
        return cls(tuple(grid.nominal_nodes(horizon)), c)

    @classmethod
    def of_lengths(cls, grid: Grid, c: np.ndarray, h: np.ndarray) -> Places:
        """From the lengths of all elements (E,)."""
        ends = np.concatenate([[0.0], np.cumsum(h)])
        starts = np.concatenate([[0], np.cumsum(grid.elements)])
        return cls(tuple(ends[a : b + 1] for a, b in pairwise(starts)), c)

    def through(self, times: Sequence[float], *, free_stages: bool = False) -> Places:
        """Move inner nodes so that events fall on nodes, as far as there are enough elements.

        Where control stages have free lengths, an event is put on the boundary of two stages.
        """
        if not free_stages:
            return Places(tuple(_through(nodes, times) for nodes in self.nodes), self.c)
        ends = np.array([nodes[0] for nodes in self.nodes] + [self.nodes[-1][-1]])
        moved = _moved(ends, times)
        pieces = zip(self.nodes, pairwise(moved), strict=True)
        return Places(tuple(a + (nodes - nodes[0]) * (b - a) / np.ptp(nodes) for nodes, (a, b) in pieces), self.c)

    def time(self, at: At, *, end: bool = False) -> float:
        """Time [s] of a place: of a stage, else of the left end, or of the right end, of an element."""
        nodes = self.nodes[at.stage or 0]
        if at.element is None:
            return float(nodes[0])
        inside = 1.0 if end else 0.0 if at.rk is None else float(self.c[at.rk])
        return float(nodes[at.element] + inside * (nodes[at.element + 1] - nodes[at.element]))

    def time_of(self, block: Block) -> float:
        """Time [s] of a block; controls are looked up in the middle of their stages."""
        if block.role is Role.CONTROL:
            nodes = self.nodes[block.at.stage or 0]
            return float(0.5 * (nodes[0] + nodes[-1]))
        return self.time(block.at, end=block.edge is Edge.RIGHT)

    def side_of(self, block: Block) -> str:
        """Which limit a block takes where the state jumps: "+" for what begins an element, else "-"."""
        first = block.at.rk is not None and float(self.c[block.at.rk]) == 0.0
        return "+" if first or block.edge is Edge.LEFT else "-"

    def relative(self, at: At) -> float:
        """Length of an element relative to its equal share."""
        nodes, n = self.nodes[at.stage or 0], at.element or 0
        return float((nodes[n + 1] - nodes[n]) / (nodes[-1] - nodes[0]) * (len(nodes) - 1))

    def stage_share(self, at: At) -> float:
        """Length of a control stage relative to an equal one."""
        nodes = self.nodes[at.stage or 0]
        return float((nodes[-1] - nodes[0]) / (self.nodes[-1][-1] - self.nodes[0][0]) * len(self.nodes))

    def nearest(self, time: float) -> float:
        """The element boundary nearest to a time."""
        every = np.concatenate(self.nodes)
        return float(every[np.argmin(np.abs(every - time))])


def _moved(ends: np.ndarray, times: Sequence[float]) -> np.ndarray:
    """Boundaries of control stages with events on near ones, in order; those in between keep their proportions."""
    last = ends.size - 1
    fixed = {0: float(ends[0])}
    for k, t in enumerate(inner := sorted(t for t in times if ends[0] < t < ends[-1])):
        nearest = int(np.argmin(np.abs(ends - t)))
        index = int(np.clip(nearest, max(fixed) + 1, last - (len(inner) - k)))
        if index <= max(fixed):
            return ends  # more events than boundaries
        fixed[index] = t
    fixed[last] = float(ends[-1])
    return np.interp(np.arange(ends.size), list(fixed), list(fixed.values()))


def _through(nodes: np.ndarray, times: Sequence[float]) -> np.ndarray:
    """Events well inside a stage become nodes; the nodes left over halve the longest elements."""
    margin = 0.1 * (nodes[-1] - nodes[0]) / (len(nodes) - 1)
    inner = [t for t in times if nodes[0] + margin < t < nodes[-1] - margin][: len(nodes) - 2]
    if not inner:
        return nodes
    made = [nodes[0], *inner, nodes[-1]]
    while len(made) < len(nodes):
        k = int(np.argmax(np.diff(made)))
        made.insert(k + 1, 0.5 * (made[k] + made[k + 1]))
    return np.array(made)


def boundary_estimate(dcs: DCS) -> Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]:
    """Function (x_minus, p, hit) -> likely values of all boundary variables."""
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
    places: Places,
    p: np.ndarray,
    state: Callable[[float, str], np.ndarray],
    control: Callable[[float], np.ndarray] | None = None,
    series: Callable[[str, float, str], float | None] = lambda name, t, side: None,
    impacts: Sequence[Event] = (),
    hits: np.ndarray | None = None,
    known: Container[tuple[str, At]] = (),
) -> np.ndarray:
    """Return w with states, controls and algebraic variables set at their places.

    Parameters
    ----------
    state : function (t, side) -> (n_x,)
    control : function t -> (n_u,), optional
    series : function (name, t, side) -> value or None
    impacts : sequence of Event
        Put on the nearest nodes.
    hits : (n_impacts,), optional
        What hits at the very beginning, beside the impacts.
    known : container of (name, At), optional
        Blocks that are left as they are.
    """
    w = mpcc.w0.copy()
    names = [impact.name for impact in dcs.jump.impacts] if dcs.jump is not None else []
    hitting = [(places.nearest(event.time), event.name) for event in impacts]
    at_boundary, offsets = boundary_estimate(dcs), rows_of(dcs.jump.variables if dcs.jump is not None else ())
    at_stage = stage_estimates(dcs)
    for block in mpcc.variables.blocks():
        if (block.name, block.at) in known:
            continue
        t, side = places.time_of(block), places.side_of(block)
        if block.role is Role.STATE:
            w[block.rows] = state(t, side)[: len(block.components)]  # a free x(0) has no clock
        elif block.role is Role.STATE_DERIVATIVE:
            w[block.rows] = _mean_slope(places, block.at, state)
        elif block.role is Role.CONTROL and control is not None:
            w[block.rows] = control(t)
        elif block.name in offsets:
            hit = np.array([(t, name) in hitting for name in names], dtype=float)
            if hits is not None and t == 0.0:
                hit = np.maximum(hit, hits)
            w[block.rows] = at_boundary(state(t, "-"), p, hit)[offsets[block.name]]
        elif block.role is Role.STEP:
            w[block.rows] = places.relative(block.at)
        elif block.role is Role.STAGE_LENGTH:
            w[block.rows] = places.stage_share(block.at)
        else:
            if block.name in at_stage:
                w[block.rows] = np.asarray(at_stage[block.name](state(t, side), p)).reshape(-1)
            for row, name in enumerate(block.components, start=block.start):
                if (value := series(name, t, side)) is not None:
                    w[row] = value
    return w


def _mean_slope(places: Places, at: At, state: Callable[[float, str], np.ndarray]) -> np.ndarray:
    """Derivative of the state, as the mean over its element; zero where the element has no length."""
    left, right = (places.time(At(at.stage, at.element), end=end) for end in (False, True))
    rise = np.asarray(state(right, "-")) - state(left, "+")
    return rise / (right - left) if right > left else np.zeros_like(rise)


def stage_estimates(dcs: DCS) -> dict[str, ca.Function]:
    """Likely values of algebraic variables, as functions of x and p, by the names of their blocks."""
    found: dict[str, ca.Function] = {}
    for v in dcs.variables:
        if v.estimate is not None:
            function = ca.Function("estimate", [dcs.x, dcs.p], [v.estimate])
            found |= {v.name + suffix: function for suffix in ("", *SUFFIX.values())}
    return found


def trajectory_series(trajectory: Trajectory) -> Callable[[str, float, str], float | None]:
    """Look up a named series of a trajectory by time and side; None where it has no such series.

    Algebraic quantities jump at events: between two of them only their own samples count.
    """
    slack = TOUCHING * max(trajectory.duration, TOUCHING)
    cuts = np.unique([event.time for event in trajectory.events])
    numbers: dict[str, np.ndarray] = {}

    def look(name: str, t: float, side: str) -> float | None:
        found = trajectory.series.get(name)
        if found is None or not len(found):
            return None
        if name not in numbers:
            numbers[name] = _piece_numbers(found.t, cuts, slack)
        piece = int(np.searchsorted(cuts, t - slack if side == "-" else t + slack))
        own = numbers[name] == piece
        own = own if own.any() else np.ones(len(found), bool)
        return float(np.interp(t, found.t[own], found.values[own]))

    return look


def _piece_numbers(t: np.ndarray, cuts: np.ndarray, slack: float) -> np.ndarray:
    """How many events lie before every sample; of two samples at an event the second one is behind it."""
    second = np.append(False, np.diff(t) <= slack)
    return np.where(second, np.searchsorted(cuts, t + slack), np.searchsorted(cuts, t - slack))
