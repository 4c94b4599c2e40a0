"""Finite elements with switch and jump detection: discretise a DCS into the dynamic part of an MPCC.

For every finite element (FESD-J):

- Runge-Kutta equations with the step h as a variable (Eq. 12),
- algebraic equations and pairs at the stages (Eq. 13), and the cross complementarity (Eq. 20),
- jump or continuity conditions at its left boundary (Eqs. 16-18).

For every control stage: the steps add up to its length (Eq. 15) and are equilibrated where nothing switches (Eq. 26).

The engine is the same for all systems: it sees a `DCS` and a `Tableau`, never a contact or a region. Elements are
written from left to right; each one hands on its right state and its `ElementBoundary`, the rows and values of
continuous quantities, which are the left boundary values of the next one. Schemes that are not stiffly accurate get
variables at the right boundary for them (FESD-J, Remark 3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.discretization.cross_complementarity import PairRows, add_groups
from nosnoc_py.discretization.grid import SUFFIX, Grid
from nosnoc_py.discretization.options import FESD, FESDJ
from nosnoc_py.discretization.runge_kutta import RungeKutta, representation_of
from nosnoc_py.discretization.step_equilibration import (
    EquilibratedElement,
    add_switch_conditions,
    equilibrate,
    step_bounds,
)
from nosnoc_py.errors import OptionError
from nosnoc_py.mpcc.layout import At, ElementEnd
from nosnoc_py.mpcc.program import ProgramBuilder
from nosnoc_py.reformulation.dcs import DCS, Equation, Pair, Variable, rows_of
from nosnoc_py.roles import Role
from nosnoc_py.tableaus import Tableau


@dataclass(frozen=True, eq=False, kw_only=True)
class Element:
    """Symbols of one finite element, by which its numbers are read from a solution.

    Attributes
    ----------
    at : At
    h : SX scalar
        Length [s].
    x_minus, x_left, x_right : SX (n_x,)
        State before and after the jump at the left boundary, and at the right boundary.
    boundary : SX (n_b,)
        Boundary variables of the jump law.
    x_stages, z_stages : tuple of SX (n_x,), (n_z,)
        States and algebraic variables at the RK stages.
    x_dense : SX (n_x, nodes)
        States at the nodes of the dense output.
    cost : SX scalar
        Quadrature of the running cost.
    impacts : SX (3 n_i,)
        Impulse, velocity before and after, of every impact of the jump law.
    rows : dict of PairRows
        By the name of the pair.
    edge : ElementBoundary
        Continuous quantities at the right boundary.
    """

    at: At
    h: ca.SX
    x_minus: ca.SX
    boundary: ca.SX
    x_left: ca.SX
    x_stages: tuple[ca.SX, ...]
    z_stages: tuple[ca.SX, ...]
    x_right: ca.SX
    x_dense: ca.SX
    cost: ca.SX
    impacts: ca.SX
    rows: dict[str, PairRows]
    edge: ElementBoundary


@dataclass(frozen=True, eq=False)
class ElementBoundary:
    """Continuous quantities at a boundary of two elements; empty if there are none.

    Attributes
    ----------
    rows : dict of array
        Rows of side a of the continuous pairs, by name of the pair.
    values : dict of SX
        The continuous algebraic variables, by name.
    """

    rows: dict[str, np.ndarray] = field(default_factory=dict)
    values: dict[str, ca.SX] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Stages:
    """Unknowns of one element: increments S = h k (n_x, n_s), derivatives V, states X and algebraic variables Z."""

    S: ca.SX
    V: ca.SX
    X: list[ca.SX]
    Z: list[ca.SX]
    x_right: ca.SX


@dataclass(frozen=True, eq=False, kw_only=True)
class StateBounds:
    """Bounds and start values (n_x,) of the state at every node and stage."""

    lower: np.ndarray
    upper: np.ndarray
    initial: np.ndarray


def _written(
    rows: Sequence[Equation], symbols: list[ca.SX], inner: Mapping[Role, ca.SX] | None = None
) -> list[tuple[Equation, ca.Function]]:
    """Return equations with their functions; `inner` replaces the expressions of some roles."""
    return [(e, ca.Function("rows", symbols, [(inner or {}).get(e.role, e.expression)])) for e in rows]


class _Functions:
    """Equations of the DCS as CasADi functions, created once and inlined (called with SX) in every element."""

    def __init__(self, dcs: DCS) -> None:
        arguments = [dcs.x, dcs.z, dcs.u, dcs.p]
        self.stage = ca.Function("stage", arguments, [dcs.flow, dcs.running_cost])
        self.equations, self.inequalities = _written(dcs.equations, arguments), _written(dcs.inequalities, arguments)
        self.sides = {p.name: ca.Function("sides", arguments, [p.a, p.b]) for p in dcs.pairs}
        # Sides a that are functions of the state can be evaluated at the left boundary.
        of_state = [p for p in dcs.pairs if p.left is None and p.cross != "none" and not p.continuous]
        self.state_side = {p.name: ca.Function("left", [dcs.x, dcs.p], [p.a]) for p in of_state}
        self.edge_equations = [(e, function) for e, function in self.equations if e.boundary]
        self.direction_consistencies = [
            (c, ca.Function("coherence", [dcs.x, dcs.z, dcs.p], [c.direction, c.weight]))
            for c in dcs.direction_consistencies
        ]
        self.jump_left: list[ca.Function] = []
        if dcs.jump is not None:
            j = dcs.jump
            at_node = [j.x_minus, j.symbol, j.h, dcs.p]
            self.x_plus = ca.Function("x_plus", at_node, [j.x_plus])
            # The state before the first node is arbitrary; at later nodes the simpler rows of `JumpLaw.inner` apply.
            self.jump_rows, self.jump_bounds = (
                {True: _written(rows, at_node), False: _written(rows, at_node, j.inner)}
                for rows in (j.equations, j.inequalities)
            )
            self.jump_sides = {
                p.name: ca.Function("left", at_node, [p.left, ca.SX(0, 1) if p.b_left is None else p.b_left])
                for p in dcs.pairs
                if p.left is not None
            }
            self.jump_left = [ca.Function("left", at_node, [c.left]) for c in dcs.direction_consistencies]
            watched = [ca.vertcat(i.impulse, i.v_before, i.v_after) for i in j.impacts]
            self.impacts = ca.Function("impacts", at_node, [ca.vertcat(ca.SX(0, 1), *watched)])
            self.jump_pairs = [(pair, ca.Function("node_pair", at_node, [pair.a, pair.b])) for pair in j.pairs]


@dataclass(frozen=True, eq=False, kw_only=True)
class FiniteElements:
    """Writer of the finite elements of one problem into a `ProgramBuilder`.

    Attributes
    ----------
    builder : ProgramBuilder
    dcs : DCS
    tableau : Tableau
        Runge-Kutta scheme.
    options : FESD
    bounds : StateBounds
    p : SX (n_p,)
        Parameters of the DCS in symbols of the program.
    default_gamma : float
        gamma_h if the options have none.
    """

    builder: ProgramBuilder
    dcs: DCS
    tableau: Tableau
    options: FESD
    bounds: StateBounds
    p: ca.SX
    default_gamma: float

    def write(self, grid: Grid, controls: Sequence[ca.SX], x_initial: ca.SX) -> tuple[Element, ...]:
        """Write all control stages, starting at x_initial, and return the elements in order."""
        self._check_simulation()
        functions = _Functions(self.dcs)
        elements: list[Element] = []
        x_minus = x_initial
        # Continuous multipliers at the start of the horizon; later elements inherit them from their predecessor.
        edge = self._edge(functions, At(0), ElementEnd.LEFT, x_initial, controls[0])
        for k, (length, count) in enumerate(zip(grid.lengths, grid.elements, strict=True)):
            first = len(elements)
            relative = [self._step(At(k, n)) for n in range(count)]
            total = sum(relative, ca.SX(0)) - count  # Eq. 15 for relative lengths: their mean is 1
            self.builder.constraint("stage_length", At(k), total, role=Role.SUM_OF_STEPS)
            for n, s in enumerate(relative):
                # The right state of an element is the left limit of the next one, across control stages, too.
                elements.append(self._element(functions, At(k, n), s * length / count, x_minus, controls[k], edge))
                x_minus, edge = elements[-1].x_right, elements[-1].edge
            if self.options.switch_detection:
                steps = [EquilibratedElement(e.at, s, e.rows) for e, s in zip(elements[first:], relative, strict=True)]
                equilibrate(self.builder, steps, self.dcs.indicator, self.options)
                add_switch_conditions(self.builder, steps, self.dcs.switch_conditions, self.options)
        # The last node is no left boundary: nothing else keeps sides a nonnegative there if no stage lies on it.
        for pair in self.dcs.pairs:
            if pair.name in functions.state_side:
                side = functions.state_side[pair.name](elements[-1].x_right, self.p)
                self.builder.left.add(pair.a_labels, side, elements[-1].at)
        self.builder.objective += sum((e.cost for e in elements), ca.SX(0))
        return tuple(elements)

    def _check_simulation(self) -> None:
        """Raise `OptionError` if simulation steps with jumps are to be written in a form their solver does not read.

        A program whose controls are parameters is a simulation step.
        """
        # Newton's method on finite elements reads steps with jumps in one form only. Problems of optimal control are
        # solved as an MPCC, which takes every form.
        if self.dcs.jump is None or not any(self.builder.layouts["parameters"].blocks(role=Role.CONTROL)):
            return
        options = self.options
        if self.scheme.has_derivatives:
            raise OptionError(
                f"rk_representation: simulations of systems with jumps take 'integral' only, given "
                f"{options.rk_representation!r}; leave it out (it changes the program, not its solution)."
            )
        if options.switch_detection and options.step_equilibration == "linear_complementarity":
            raise OptionError(
                "step_equilibration: simulations of systems with jumps do not take 'linear_complementarity'; use "
                "step_equilibration='direct', which imposes the same equations, or leave it out."
            )

    def _step(self, at: At) -> ca.SX:
        """Return the relative length s = h / h0; its bounds do not depend on the horizon, which may be a parameter."""
        # Relative steps are of order one for every horizon, and so is the start value.
        lower, upper = step_bounds(self.options, self.default_gamma)
        return self.builder.variable("s", at, ("relative step",), lower, upper, 1.0, role=Role.STEP)

    @cached_property
    def scheme(self) -> RungeKutta:
        """Runge-Kutta equations with their unknowns."""
        return RungeKutta(self.tableau, representation_of(self.options, self.tableau))

    def _element(self, f: _Functions, at: At, h: ca.SX, x_minus: ca.SX, u: ca.SX, before: ElementBoundary) -> Element:
        # The order of these calls is the order of the variables and rows in the program.
        boundary, x_left, impacts = self._left_boundary(f, at, h, x_minus)
        stages = self._stages(at, h, x_left, before)
        cost = self._dynamics(f, at, h, x_left, stages, u)
        X, Z, x_right = stages.X, stages.Z, stages.x_right
        shared = self._first_is_left(before)
        for j, (x, z) in enumerate(zip(X, Z, strict=True)):
            place = At(at.stage, at.element, j)
            for equation, function in f.equations:
                # A first stage on the left boundary shares its variables, whose equations are there already.
                if not (equation.boundary and shared and j == 0):
                    self._equation(equation, function(x, z, u, self.p), place)
            for inequality, function in f.inequalities:
                self._equation(inequality, function(x, z, u, self.p), place, upper=np.inf)
        # The last stage of a stiffly accurate scheme is the right boundary: it needs no variables of its own.
        edge = ElementBoundary() if self.tableau.stiffly_accurate else self._edge(f, at, ElementEnd.RIGHT, x_right, u)
        node = (x_minus, boundary, h, self.p)
        rows = self._pairs(f, at, x_left, node, stages, u, before, edge)
        if self.options.switch_detection:
            self._direction_consistencies(f, at, node, X, Z)
        return Element(
            at=at,
            h=h,
            x_minus=x_minus,
            boundary=boundary,
            x_left=x_left,
            x_stages=tuple(X),
            z_stages=tuple(Z),
            x_right=x_right,
            x_dense=self.scheme.dense(x_left, stages.S, ca.horzcat(*X), x_right),
            cost=cost,
            impacts=impacts,
            rows=rows,
            # Without rows the scheme is stiffly accurate (or nothing is continuous): its last stage is the boundary.
            edge=edge if edge.rows else self._last_stage(rows, Z[-1]),
        )

    def _stages(self, at: At, h: ca.SX, x_left: ca.SX, before: ElementBoundary) -> _Stages:
        """Create the unknowns of an element, and the stage and end states that depend on them."""
        n_s, scheme = self.tableau.stages, self.scheme
        places = [At(at.stage, at.element, j) for j in range(n_s)]
        # The order of declaration is that of the unknowns in w: states, derivatives, right end, then algebraic
        # variables.
        X = ca.horzcat(*[self._state("x", place) for place in places]) if scheme.has_states else ca.SX()
        V = ca.horzcat(*[self._derivative(place) for place in places]) if scheme.has_derivatives else ca.SX()
        S = scheme.increments(h, x_left, X, V)
        moved, right = scheme.states(x_left, S), scheme.right(x_left, S)
        if scheme.right_end_is_a_stage:
            x_right = X[:, -1]
        else:
            x_right = self._state("x_right", at, ElementEnd.RIGHT)
            self._state_rows("right_end", at, x_right - right, Role.RIGHT_END)
        columns = [(X if scheme.has_states else moved)[:, j] for j in range(n_s)]
        if scheme.has_states and scheme.has_derivatives:
            for place, x, value in zip(places, columns, ca.horzsplit(moved), strict=True):
                self._state_rows("stages", place, x - value, Role.STAGE_STATES)
        if not scheme.has_states:
            if self.tableau.stiffly_accurate:
                columns[-1] = x_right  # a variable equal to the last stage: sparser than the expression
            self._bound(places, columns)  # states that are no variables have bounds as constraints
        # Declared once per element: its stages then refer to the same symbol, and cross complementarity counts it once.
        shared = {v.name: self._variable(v, at) for v in self.dcs.variables if v.per_element}
        edges = [before.values if self._first_is_left(before) and j == 0 else {} for j in range(n_s)]
        Z = [self._algebraic(shared | edge, place) for edge, place in zip(edges, places, strict=True)]
        return _Stages(S=S, V=V, X=columns, Z=Z, x_right=x_right)

    def _dynamics(self, f: _Functions, at: At, h: ca.SX, x_left: ca.SX, stages: _Stages, u: ca.SX) -> ca.SX:
        """Add the Runge-Kutta equations, and return the quadrature of the running cost."""
        values = [f.stage(x, z, u, self.p) for x, z in zip(stages.X, stages.Z, strict=True)]
        residual = self.scheme.dynamics(h, stages.V, stages.S, ca.horzcat(*[flow for flow, _ in values]))
        names = [f"{name}'" for name in self.dcs.x_names]
        for j, rows in enumerate(ca.horzsplit(residual)):
            place = At(at.stage, at.element, j)
            self.builder.constraint("dynamics", place, rows, names, scale=self.dcs.x_scale, role=Role.DYNAMICS)
        # The quadrature has the weights of the scheme, so that the objective has its order.
        return h * sum((b * cost for b, (_, cost) in zip(self.tableau.b, values, strict=True)), ca.SX(0))

    def _first_is_left(self, before: ElementBoundary) -> bool:
        """Return True if the first stage is the left boundary, and shares its continuous variables and equations."""
        return self.tableau.starts_left and bool(before.values)

    def _last_stage(self, rows: dict[str, PairRows], z: ca.SX) -> ElementBoundary:
        """Return the right boundary of a stiffly accurate scheme, whose last stage lies there."""
        rows_of_z = rows_of(self.dcs.variables)
        values = {v.name: z[rows_of_z[v.name]] for v in self.dcs.variables if v.boundary}
        return ElementBoundary({pair.name: rows[pair.name].a[-1] for pair in self.dcs.pairs if pair.continuous}, values)

    def _derivative(self, at: At) -> ca.SX:
        names = [f"{n}'" for n in self.dcs.x_names]
        return self.builder.variable("x'", at, names, scale=self.dcs.x_scale, role=Role.STATE_DERIVATIVE)

    def _state_rows(self, name: str, at: At, residual: ca.SX, role: Role) -> None:
        """Add one equation per state, with its name and scale."""
        self.builder.constraint(name, at, residual, self.dcs.x_names, scale=self.dcs.x_scale, role=role)

    def _bound(self, places: list[At], states: list[ca.SX]) -> None:
        """Add bounds of states that are expressions as constraints; variables have them as bounds."""
        b = self.bounds
        rows = [int(i) for i in np.flatnonzero(np.isfinite(b.lower) | np.isfinite(b.upper))]
        names = [self.dcs.x_names[i] for i in rows]
        for place, x in zip(places, states, strict=True):
            if rows and not x.is_valid_input():
                limits = (b.lower[rows], b.upper[rows], self.dcs.x_scale[rows])
                self.builder.constraint("bounds", place, x[rows], names, *limits, role=Role.STATE_BOUNDS)

    def _algebraic(self, shared: dict[str, ca.SX], at: At) -> ca.SX:
        """Return all algebraic variables at a stage; `shared` are those that other stages or a boundary define."""
        off_trajectory = self.options.switch_detection and self.tableau.off_trajectory_stages[at.rk or 0]
        # At such a stage continuous multipliers are functions of a state off the trajectory and may have either sign.
        unsigned = [replace(v, lower=-np.inf) if off_trajectory and v.boundary else v for v in self.dcs.variables]
        own = [shared[v.name] if v.name in shared else self._variable(v, at) for v in unsigned]
        return ca.vertcat(ca.SX(0, 1), *own)

    def _edge(self, f: _Functions, at: At, end: ElementEnd, x: ca.SX, u: ca.SX) -> ElementBoundary:
        """Create continuous variables and their equations at a boundary where no stage lies."""
        # An ordinary Runge-Kutta method has no cross complementarity and needs no boundary values.
        if not self.options.switch_detection or not any(pair.continuous for pair in self.dcs.pairs):
            return ElementBoundary()
        variables = [replace(v, name=v.name + SUFFIX[end]) for v in self.dcs.variables]
        # Other algebraic variables have no value here; boundary equations do not depend on them, so zeros will do.
        values = [self._variable(v, at, end) if v.boundary else ca.SX(v.symbol.numel(), 1) for v in variables]
        z = ca.vertcat(ca.SX(0, 1), *values)
        for equation, function in f.edge_equations:
            renamed = replace(equation, name=equation.name + SUFFIX[end])
            self._equation(renamed, function(x, z, u, self.p), at, edge=end)
        rows = {
            pair.name: self.builder.left.add(pair.a_labels, f.sides[pair.name](x, z, u, self.p)[0], at)
            for pair in self.dcs.pairs
            if pair.continuous
        }
        return ElementBoundary(
            rows, {v.name: symbol for v, symbol in zip(self.dcs.variables, values, strict=True) if v.boundary}
        )

    def _pairs(
        self,
        f: _Functions,
        at: At,
        x_left: ca.SX,
        node: tuple[ca.SX, ...],
        stages: _Stages,
        u: ca.SX,
        before: ElementBoundary,
        after: ElementBoundary,
    ) -> dict[str, PairRows]:
        """Add both sides of all pairs at the stages and boundaries of an element, and the products that vanish."""
        pair_rows = {}
        end, detects = self.tableau.end_weights, self.options.switch_detection
        for pair in self.dcs.pairs:
            a_rows, b_rows = [], []
            for j, (x, z) in enumerate(zip(stages.X, stages.Z, strict=True)):
                a, b = f.sides[pair.name](x, z, u, self.p)
                place = At(at.stage, at.element, j)
                # Nonnegativity of a at such a stage could make the true solution infeasible, see `_parts`.
                if detects and pair.cross != "none" and self.tableau.off_trajectory_stages[j]:
                    a_rows += self._parts(pair, a, place)
                else:
                    a_rows.append(self.builder.left.add(pair.a_labels, a, place))
                b_rows.append(self.builder.right.add(pair.b_labels, b, place))
            # Side a at the left boundary, by the three cases of `Pair.left`: inherited, of the state, of the jump law.
            a_left = before.rows.get(pair.name, np.zeros(0, int))
            b_left = np.zeros(0, int)
            if pair.name in after.rows:
                a_rows.append(after.rows[pair.name])
            if pair.name in f.state_side:
                side = f.state_side[pair.name]
                a_left = self.builder.left.add(pair.a_labels, side(x_left, self.p), at)
                # With the first stage on the left boundary, b at the last stage acts on the right end only: without
                # this row it could push there while a is positive.
                if detects and self.tableau.starts_left:
                    a_rows.append(self.builder.left.add(pair.a_labels, side(stages.x_right, self.p), at))
            elif pair.left is not None:
                a, b = f.jump_sides[pair.name](*node)
                a_left = self.builder.left.add(pair.a_labels, a, at)
                b_left = self.builder.right.add(pair.b_labels[: b.numel()], b, at)
            rows = PairRows(a_left, np.array(a_rows), np.array(b_rows), b_left, end)
            kind: dict[str, Any] = {
                "difference_only": pair.difference_only,
                "small_side": pair.small_side,
                "role": pair.role,
            }
            add_groups(self.builder, rows, pair.cross if detects else "none", pair.components, **kind)
            pair_rows[pair.name] = rows
        return pair_rows

    def _parts(self, pair: Pair, a: ca.SX, at: At) -> list[np.ndarray]:
        """Return rows for a signed side a at a stage that is not a point of the solution.

        The boundaries of the element determine the region it lies in. If a boundary lies on a switching surface, the
        state of a stage at this boundary differs by the stage error, on either side of the surface. Side a is then
        replaced by its positive and negative part, both complementary to b.
        """
        parts, rows = [], []
        for part in ("above", "below"):
            labels = [f"{label} {part}" for label in pair.a_labels]
            name = f"{pair.name} ({part})"
            parts.append(self.builder.variable(name, at, labels, lower=0.0, role=Role.SIGNED_SIDE))
            rows.append(self.builder.left.add(labels, parts[-1], at))
        self.builder.constraint(
            f"{pair.name} (parts)", at, a - parts[0] + parts[1], pair.a_labels, role=Role.SIGNED_SIDE
        )
        # The parts themselves are complementary: only their difference is determined.
        opposite = self.builder.right.add([f"{label} below" for label in pair.a_labels], parts[1], at)
        for above, below in zip(rows[0], opposite, strict=True):
            self.builder.group(np.array([above]), np.array([below]), difference_only=True, role=Role.SIGNED_SIDE)
        return rows

    def _direction_consistencies(
        self, f: _Functions, at: At, node: tuple[ca.SX, ...], X: list[ca.SX], Z: list[ca.SX]
    ) -> None:
        """Keep directions within a right angle of the first one and of that at the left boundary, where weighted."""
        for (item, function), left in zip(f.direction_consistencies, f.jump_left, strict=True):
            directions = [function(x, z, self.p) for x, z in zip(X, Z, strict=True)]
            first = left(*node)
            rows = [weight * ca.dot(first, d) for d, weight in directions]
            rows += [directions[0][1] * weight * ca.dot(directions[0][0], d) for d, weight in directions[1:]]
            self.builder.constraint(item.name, at, ca.vertcat(*rows), None, 0.0, np.inf, role=Role.COHERENCE)

    def _left_boundary(self, f: _Functions, at: At, h: ca.SX, x_minus: ca.SX) -> tuple[ca.SX, ca.SX, ca.SX]:
        """Write the jump law at the left boundary; return boundary variables, right limit and impact quantities."""
        jump = self.dcs.jump
        first = at.stage == 0 and at.element == 0
        if jump is None:
            return ca.SX(0, 1), x_minus, ca.SX(0, 1)
        # Fixed to zero rather than left out: all nodes keep the same unknowns, and readers need no exception for the
        # first one.
        no_jump = first and isinstance(self.options, FESDJ) and not self.options.initial_impulse
        variables = [replace(v, lower=0.0, upper=0.0) if no_jump and v.impulsive else v for v in jump.variables]
        boundary = ca.vertcat(ca.SX(0, 1), *[self._variable(v, at) for v in variables])
        arguments = (x_minus, boundary, h, self.p)
        for equation, function in f.jump_rows[first]:
            self._equation(equation, function(*arguments), at)
        for inequality, function in f.jump_bounds[first]:
            self._equation(inequality, function(*arguments), at, upper=np.inf)
        for pair, function in f.jump_pairs:
            a, b = function(*arguments)
            rows = self.builder.left.add(pair.a_labels, a, at), self.builder.right.add(pair.b_labels, b, at)
            # All products of a node are one product of sums: more would be dependent at the solution.
            self.builder.group(*rows, summed=True, difference_only=pair.difference_only, role=pair.role, of=pair.of)
        return boundary, f.x_plus(*arguments), f.impacts(*arguments)

    def _equation(self, e: Equation, value: ca.SX, at: At, upper: float = 0.0, edge: ElementEnd | None = None) -> None:
        self.builder.constraint(e.name, at, value, e.components, 0.0, upper, e.scale, role=e.role, edge=edge)

    def _variable(self, v: Variable, at: At, edge: ElementEnd | None = None) -> ca.SX:
        numbers = (v.lower, v.upper, v.initial, v.scale)
        return self.builder.variable(v.name, at, v.components, *numbers, role=v.role, edge=edge, of=v.of)

    def _state(self, name: str, at: At, edge: ElementEnd | None = None) -> ca.SX:
        b = self.bounds
        numbers = (b.lower, b.upper, b.initial, self.dcs.x_scale)
        return self.builder.variable(name, at, self.dcs.x_names, *numbers, role=Role.STATE, edge=edge)


def place_constraints(elements: Sequence[Element], at: str) -> list[tuple[At, ca.SX, Element]]:
    """Return (place, state there, element) for all points at which a path constraint is imposed."""
    # Left limits: a jump at the node belongs to the stage that follows.
    if at == "control_grid":
        return [(At(e.at.stage), e.x_minus, e) for e in elements if e.at.element == 0]
    if at == "element_ends":
        return [(e.at, e.x_right, e) for e in elements]
    return [(At(e.at.stage, e.at.element, j), x, e) for e in elements for j, x in enumerate(e.x_stages)]
