"""Read an iterate of the MPCC: numbers per finite element, and from those a trajectory with events.

`Reader` evaluates all symbols of the elements in one compiled call and returns a `Readout`, arrays over the elements.
`trajectory_fields` and `find_events` work on these arrays only, so that Newton's method on finite elements
(`simulation.newton`) and MPCC solutions share them. Events are changes of active sets at nodes; impacts additionally
need an impulse that changes an approach velocity.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.discretization.finite_elements import Element
from nosnoc_py.functions import buffered, function_of
from nosnoc_py.motion import kinds
from nosnoc_py.motion.record import MotionRecord
from nosnoc_py.reformulation.dcs import DCS, Equation, Switch, Variable
from nosnoc_py.roles import Role
from nosnoc_py.solution import Event, RungeKuttaInterpolant, Series
from nosnoc_py.tableaus import Tableau
from nosnoc_py.tolerances import IMPACT, RESTING


@dataclass(frozen=True, eq=False, kw_only=True)
class ElementStates:
    """States of E consecutive finite elements with n_s stages; the first axis is the element.

    Attributes
    ----------
    h : (E,)
        Lengths [s].
    x_minus, x_left, x_right : (E, n_x)
        State before and after the jump at the left boundary, and at the right boundary.
    x_stages : (E, n_s, n_x)
        State at the RK stages.
    """

    h: np.ndarray
    x_minus: np.ndarray
    x_left: np.ndarray
    x_right: np.ndarray
    x_stages: np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class Readout(ElementStates):
    """Numerical values of consecutive finite elements.

    Attributes
    ----------
    z_stages : (E, n_s, n_z)
    x_dense : (E, nodes, n_x)
        State at the nodes of the dense output.
    boundary : (E, n_b)
        Boundary variables at the left boundary.
    impacts : (E, n_i, 3)
        Impulse, velocity before and after, at the left boundary.
    closed : (E, n_pairs)
        1 if component of a pair is active in the element: side b exceeds side a.
    b_lowest : (E, n_pairs)
        Smallest value of side b at the stages.
    """

    z_stages: np.ndarray
    x_dense: np.ndarray
    boundary: np.ndarray
    impacts: np.ndarray
    closed: np.ndarray
    b_lowest: np.ndarray

    def later(self, time: float, n_x: int) -> Readout:
        """Return the readout with `time` [s] added to a clock, if there is one behind the n_x states of the system."""
        # A clock state counts from the start of each simulated step, while readouts of all steps are joined.
        clock = np.where(np.arange(self.x_left.shape[1]) < n_x, 0.0, time)
        states = ("x_minus", "x_left", "x_right", "x_stages", "x_dense")
        return replace(self, **{name: getattr(self, name) + clock for name in states})

    @classmethod
    def join(cls, parts: Sequence[Readout]) -> Readout:
        """Concatenate the elements of several readouts."""
        return cls(**{f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(cls)})


class Reader:
    """Function (w, p) -> `Readout` for the elements of one program; built once."""

    def __init__(self, dcs: DCS, elements: Sequence[Element], w: ca.SX, p: ca.SX, G: ca.SX, H: ca.SX) -> None:
        first, self._count, self._dcs = elements[0], len(elements), dcs
        stages = len(first.x_stages)
        self._shapes = {  # shapes per element of the outputs that are not vectors
            "h": (),
            "x_stages": (stages, dcs.x.numel()),
            "z_stages": (stages, dcs.z.numel()),
            "x_dense": first.x_dense.shape[::-1],
            "impacts": (first.impacts.numel() // 3, 3),
        }
        # One column per element and output, so that a single call evaluates everything.
        columns = [self._columns(e, G, H) for e in elements]
        self._names = tuple(columns[0])
        outputs = [ca.horzcat(*[column[name] for column in columns]) for name in self._names]
        self._function = buffered(ca.Function("read", [w, p], outputs))

    def _columns(self, e: Element, G: ca.SX, H: ca.SX) -> dict[str, ca.SX]:
        closed, b_lowest = self._sides(e, G, H)
        vectors = {name: getattr(e, name) for name in ("h", "x_minus", "x_left", "x_right", "boundary", "impacts")}
        stages = {name: ca.vertcat(*getattr(e, name)) for name in ("x_stages", "z_stages")}
        # `vec` stacks columns: reshaped, the rows of the array are nodes.
        return {**vectors, **stages, "x_dense": ca.vec(e.x_dense), "closed": closed, "b_lowest": b_lowest}

    def _sides(self, e: Element, G: ca.SX, H: ca.SX) -> tuple[ca.SX, ca.SX]:
        """Return which pairs are closed (active) in an element, and the smallest values of side b."""
        flags, lowest = [ca.SX(0, 1)], [ca.SX(0, 1)]
        for pair in self._dcs.pairs:
            rows = e.rows[pair.name]
            for i in range(rows.a.shape[1]):
                a = G[[int(row) for row in rows.a_all(i)]]
                b = H[[int(row) for row in rows.b[:, i]]]
                # Relaxed solutions have zeros on neither side; the larger side decides.
                flags.append(ca.mmax(a) < ca.mmax(b))
                lowest.append(ca.mmin(b))
        return ca.vertcat(*flags), ca.vertcat(*lowest)

    def __call__(self, w: np.ndarray, p: np.ndarray) -> Readout:
        """Evaluate at variables w and parameters p."""
        values = zip(self._names, self._function(w, p), strict=True)
        return Readout(
            **{name: out.T.reshape(self._count, *self._shapes.get(name, out.shape[:1])) for name, out in values}
        )


def trajectory_fields(
    dcs: DCS, tableau: Tableau, r: Readout, p: np.ndarray, u: np.ndarray, u_grid: np.ndarray
) -> dict[str, Any]:
    """Return the fields of a `Trajectory` (or of the trajectory part of a `Solution`).

    Parameters
    ----------
    r : Readout
    u : (N, n_u)
        Controls, constant on the intervals of `u_grid` (N + 1,).
    p : (n_p,)
    """
    t_left = u_grid[0] + np.concatenate([[0.0], np.cumsum(r.h)[:-1]])
    record = MotionRecord.of(
        dense_output(tableau, r, t_left),
        r.x_right,
        events=find_events(dcs, r, t_left, p),
        series=_series(dcs, tableau, r, t_left, p),
        units=_units(dcs),
        unit_parts=dcs.unit_parts,
    )
    return {**record.fields, "state_names": dcs.x_names, "u_grid": u_grid, "u": u, "control_names": dcs.u_names}


def dense_output(tableau: Tableau, r: Readout, t_left: np.ndarray) -> RungeKuttaInterpolant:
    """Return an interpolant of the state; t_left (E,) are the left boundaries of the elements [s]."""
    return RungeKuttaInterpolant(
        t_left=t_left, h=r.h, c=tableau.dense_c, x_left=r.x_left, x_stages=r.x_dense, x_initial=r.x_minus[0]
    )


def _series(dcs: DCS, tableau: Tableau, r: Readout, t_left: np.ndarray, p: np.ndarray) -> dict[str, Series]:
    """Return algebraic variables and outputs at the RK stages, boundary variables and outputs at left boundaries."""
    t_stages = (t_left[:, None] + r.h[:, None] * tableau.c).reshape(-1)
    x, z = (stages.reshape(t_stages.size, -1) for stages in (r.x_stages, r.z_stages))
    # Slacks of kinks belong to the program: the user has no name for them.
    series = {
        label: Series(t_stages, z[:, i], role)
        for i, (label, role) in enumerate(_labels(dcs.variables))
        if role is not Role.EPIGRAPH
    }
    if dcs.jump is not None and r.boundary.shape[1]:
        labels = _labels(dcs.jump.variables)
        series |= {label: Series(t_left, r.boundary[:, i], role) for i, (label, role) in enumerate(labels)}
        series |= _outputs(
            dcs.jump.outputs, [dcs.jump.x_minus, dcs.jump.symbol, dcs.p], t_left, r.x_minus, r.boundary, p
        )
    return series | _outputs(dcs.outputs, [dcs.x, dcs.z, dcs.p], t_stages, x, z, p)


def _outputs(
    outputs: Sequence[Equation], symbols: list[ca.SX], t: np.ndarray, x: np.ndarray, z: np.ndarray, p: np.ndarray
) -> dict[str, Series]:
    """Return the values (t,) of named expressions of x, z and p."""
    values = evaluate(ca.vertcat(ca.SX(0, 1), *[o.expression for o in outputs]), symbols, x, z, p)
    return {label: Series(t, values[:, i], role) for i, (label, role) in enumerate(_labels(outputs))}


def _labels(named: Sequence[Variable | Equation]) -> list[tuple[str, Role]]:
    """Return the labels of all rows with their roles."""
    return [(label, item.role) for item in named for label in item.components]


def evaluate(expression: ca.SX, symbols: list[ca.SX], x: np.ndarray, z: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Evaluate an expression of x, z and p at the rows of x and z; returns (rows, size)."""
    if expression.numel() == 0:
        return np.zeros((len(x), 0))
    return np.asarray(function_of(symbols, expression)(x.T, z.T, p)).T


def at_stages(dcs: DCS, r: Readout, p: np.ndarray, expression: ca.SX) -> np.ndarray:
    """Return the values (elements, stages, rows) of an expression of x, z and p."""
    count, stages = r.x_stages.shape[:2]
    x, z = (values.reshape(count * stages, -1) for values in (r.x_stages, r.z_stages))
    return evaluate(expression, [dcs.x, dcs.z, dcs.p], x, z, p).reshape(count, stages, expression.numel())


def _units(dcs: DCS) -> dict[str, str]:
    """Return units by the names of components; a unit given for a whole variable applies to each component."""
    named: list[Variable | Equation] = [*dcs.variables, *dcs.outputs]
    named += [] if dcs.jump is None else [*dcs.jump.variables, *dcs.jump.outputs]
    spread = {c: dcs.units[v.name] for v in named if v.name in dcs.units for c in v.components}
    return {**dcs.units, **spread}


def impact_rows(dcs: DCS, r: Readout, p: np.ndarray) -> np.ndarray:
    """Return the indices of the elements that begin with an impact; spurious impulses of relaxations do not count."""
    # Events carry these very numbers, so that they can be compared exactly below.
    t_left = np.cumsum(r.h) - r.h
    times = [event.time for event in find_events(dcs, r, t_left, p) if event.kind == "impact"]
    return np.flatnonzero(np.isin(t_left, times))


def find_events(dcs: DCS, r: Readout, t_left: np.ndarray, p: np.ndarray) -> tuple[Event, ...]:
    """Return impacts, changes of active sets, and changes between slip and stick, in the order of time.

    An impact needs an impulse, an approach velocity that it changes, and a contact that was open before. Impulses alone
    are not enough: contact conditions on position level leave small normal velocities at element ends, which the next
    node projects to zero; and in persistent contact the impulse is a double root, which a relaxation leaves at
    sqrt(sigma).
    """
    columns = [(pair, name) for pair in dcs.pairs for name in (pair.components or pair.a_labels)]
    column = _columns(dcs)
    closed = r.closed.astype(bool)
    rows = closed.tolist()
    slips = _SlipStates.read(dcs, r, p)
    sides = sides_of(dcs, r)
    energy = _energy(dcs, r, p)
    events: list[Event] = []
    # Smaller impulses are rounding errors, or sqrt(sigma) of a relaxation in persistent contact.
    least = IMPACT * min(1.0, float(r.impacts[..., 0].max(initial=0.0)))
    for e, time in enumerate(t_left):
        for i, impact in enumerate(dcs.jump.impacts if dcs.jump is not None and r.impacts.shape[1] else ()):
            impulse, before, after = r.impacts[e, i]
            # Before the first element nothing is known: an approach velocity at the start is an impact.
            was_open = e == 0 or not closed[e - 1, column[impact.pair, impact.component]]
            hits = before < -IMPACT and after - before > IMPACT
            if impulse > least and hits and was_open:
                events.append(Event(time, impact.name, "impact", impulse, before, after, float(energy[e])))
        if e == 0:
            continue
        both = slice(e - 1, e + 1)
        changes = [
            (name, kinds.of_modes((was, is_), (False, False)))
            for (pair, name), was, is_ in zip(columns, *rows[both], strict=True)
            if pair.events is not None and was != is_
        ]
        watched = zip(dcs.switches, sides, strict=True)
        # The multiplier of a silent switch is undetermined while its function is zero: changes of it mean nothing.
        changes += [(switch.name, kinds.of_sides(*side[both])) for switch, side in watched if not switch.silent]
        changes += [
            (slip.name, slips.change(e, i))
            for i, slip in enumerate(dcs.slip_indicators)
            # A contact that closes or opens at this node has an event of its own, and no slip on one side.
            if closed[both, column[slip.pair, slip.component]].all()
        ]
        events += kinds.events_at(time, changes)
    return tuple(events)


def sides_of(dcs: DCS, r: Readout) -> list[np.ndarray]:
    """Return the side (E,) of every switching function on which each element lies; NaN while the state slides."""
    indices = _columns(dcs)
    return [_sides(switch, r.closed.astype(bool), indices) for switch in dcs.switches]


def _columns(dcs: DCS) -> dict[tuple[str, int], int]:
    """Return the columns of `closed` and `b_lowest` by the name of the pair and the component."""
    components = [(pair.name, i) for pair in dcs.pairs for i in range(pair.a.numel())]
    return {component: k for k, component in enumerate(components)}


def _sides(switch: Switch, closed: np.ndarray, indices: Mapping[tuple[str, int], int]) -> np.ndarray:
    values = np.array([value for *_, value in switch.members])
    active = closed[:, [indices[pair, i] for pair, i, _ in switch.members]]
    # Both signs active: sliding, NaN. (No active member gives inf against -inf, which is NaN as well.)
    low = np.where(active, values, np.inf).min(axis=1)
    high = np.where(active, values, -np.inf).max(axis=1)
    return np.where(low == high, low, np.nan)


@dataclass(frozen=True, eq=False)
class _SlipStates:
    """Flags (E, n_f) of the contacts that slip in an element, and mean slip velocities, (E, n_t) for each contact."""

    slips: np.ndarray
    velocity: tuple[np.ndarray, ...]

    @classmethod
    def read(cls, dcs: DCS, r: Readout, p: np.ndarray) -> _SlipStates:
        """Evaluate the slip indicators at the stages."""
        slips, velocities = np.zeros((len(r.x_stages), len(dcs.slip_indicators)), bool), []
        for i, slip in enumerate(dcs.slip_indicators):
            values = at_stages(dcs, r, p, ca.vertcat(slip.speed, slip.slack, slip.velocity))
            speed = values[..., 0].max(axis=1)
            # Of two relaxed complementary quantities the larger one is meant to be positive.
            slips[:, i] = (values[..., 1].max(axis=1) < speed) & (speed > RESTING)
            # The mean over the stages, as the slip may vanish at one end of the element.
            velocities.append(values[..., 2:].mean(axis=1))
        return cls(slips, tuple(velocities))

    def change(self, e: int, i: int) -> kinds.Kind:
        """Return the kind of the event at the beginning of element e, or None."""
        turns = self.velocity[i][e - 1] @ self.velocity[i][e] < 0  # the mean direction reverses
        return kinds.of_modes((True, True), self.slips[e - 1 : e + 1, i], turns)


def _energy(dcs: DCS, r: Readout, p: np.ndarray) -> np.ndarray:
    """Return the kinetic energy gained at the left boundary of every element (E,) [J]."""
    if dcs.jump is None or not r.boundary.shape[1]:
        return np.zeros(len(r.h))
    symbols = [dcs.jump.x_minus, dcs.jump.symbol, dcs.p]
    return evaluate(dcs.jump.energy, symbols, r.x_minus, r.boundary, p)[:, 0]
