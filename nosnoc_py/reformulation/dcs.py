"""The dynamic complementarity system (DCS): the common form of all nonsmooth systems.

    x' = flow(x, z, u, p),    0 = equations(x, z, u, p),    0 <= a(x, z, u, p)  perp  b(x, z, u, p) >= 0 for every pair,

and, if the state may jump, a jump law: equations and pairs between the left and the right limit of x at a node of the
time grid. Contact mechanics (`contact`), Filippov systems (`filippov`), projected dynamics and frozen systems
(`numerical_time`) are all written in this form, and `nosnoc_py.discretization` discretises it without knowing which
system it came from.

Invariants:

- Of every pair, a(t) is continuous along solutions (a gap, a slip speed, a multiplier that is a function of the state)
  and b(t) may jump (a force). Switch detection depends on this order of the two sides.
- At the left boundary of a finite element the state may have jumped. `Pair.left` is the expression of a after the
  jump; without it a is a function of the state and is evaluated at the right limit.
- `DCS.indicator` is positive where no switch happens at a node. Step equilibration uses it to make steps equal there.
- Names and labels are for people; code asks for `Role`.

The DCS form is that of FESD (Nurkanovic, Sperl, Albrecht, Diehl 2024, Numerische Mathematik), the jump law that of
FESD-J, Eqs. 11 and 16-18.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import casadi as ca
import numpy as np

from nosnoc_py.roles import Role
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.text import counted, shown


def of_each(quantity: str, names: Iterable[object]) -> tuple[str, ...]:
    """Return one label per name, such as "gap[ground]"."""
    return tuple(f"{quantity}[{name}]" for name in names)


def indexed(name: str, size: int) -> tuple[str, ...]:
    """Return one label per component of a quantity: its name, with an index if there are several components."""
    return (name,) if size == 1 else of_each(name, range(size))


# Labels (n,) and the rows (n,) they name.
Labelled = tuple[tuple[str, ...], ca.SX]


def labelled_text(labels: Sequence[str], expression: ca.SX) -> str:
    """Return "label = expression" for every row, or the label alone where the row is its own symbol."""
    texts = zip(labels, (shown(row) for row in ca.vertsplit(expression)), strict=True)
    return ", ".join(label if label == text else f"{label} = {text}" for label, text in texts)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Variable:
    """A named algebraic variable (one value per RK stage) or boundary variable (one value per node).

    Attributes
    ----------
    name : str
    symbol : SX (n,)
    components : tuple of str
        One label per row, such as "lambda_normal[ground]".
    role : Role
        Physical or numerical meaning; code that selects variables uses it, never names or labels.
    of : str
        Name of the object (such as a contact) that all components belong to, if there is one.
    lower, upper, initial, scale : (n,) or scalar
        Bounds, default start value and typical size, in the unit of the variable.
    estimate : SX (n,), optional
        Expression for the initial guess: of x and p for algebraic variables, of the left limit, p and the flags `hit`
        of the jump law for boundary variables. Default `initial`.
    value : SX (n,), optional
        Value that the optimum has if the variable costs something: that of a kink, of x, z, u and p.
    impulsive : bool
        For boundary variables: fixed to zero at nodes where no jump is allowed.
    boundary : bool
        For algebraic variables: continuous in time, with values also at the boundaries of elements.
    per_element : bool
        For algebraic variables: one value per finite element instead of one per RK stage.
    """

    name: str
    symbol: ca.SX
    components: tuple[str, ...]
    role: Role
    of: str = ""
    lower: Any = -np.inf
    upper: Any = np.inf
    initial: Any = 0.0
    scale: Any = 1.0
    estimate: ca.SX | None = None
    value: ca.SX | None = None
    impulsive: bool = False
    boundary: bool = False
    per_element: bool = False

    @classmethod
    def create(cls, name: str, components: tuple[str, ...], role: Role, **fields: Any) -> Variable:
        """Create a variable together with its symbol."""
        return cls(name=name, symbol=ca.SX.sym(name, len(components)), components=components, role=role, **fields)

    def __repr__(self) -> str:
        return f"Variable {self.name}: {', '.join(self.components)}"


def rows_of(variables: Iterable[Variable]) -> dict[str, slice]:
    """Return the rows of every variable in the stacked vector of these variables, by name."""
    rows: dict[str, slice] = {}
    start = 0
    for variable in variables:
        rows[variable.name] = slice(start, start + len(variable.components))
        start = rows[variable.name].stop
    return rows


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Equation:
    """Labelled rows: 0 = expression, expression >= 0 in a list of inequalities, or an output (a named expression).

    Attributes
    ----------
    name : str
    expression : SX (n,)
    components : tuple of str
        One label per row.
    role : Role
        Meaning of the equation; for an output the meaning of its value.
    scale : (n,) or scalar
        Typical size of the residual.
    boundary : bool
        Imposed also at the boundaries of elements. The expression may then depend only on those algebraic variables
        that have values there (`Variable.boundary`).
    """

    name: str
    expression: ca.SX
    components: tuple[str, ...]
    role: Role
    scale: Any = 1.0
    boundary: bool = False

    @classmethod
    def of(cls, name: str, role: Role, expression: ca.SX, components: tuple[str, ...] | None = None) -> Equation:
        """Create an equation or an output; by default rows are labelled by the name and an index."""
        labels = indexed(name, expression.numel()) if components is None else components
        return cls(name=name, expression=expression, components=labels, role=role)

    def __repr__(self) -> str:
        rows = zip(self.components, ca.vertsplit(self.expression), strict=True)
        return f"Equation {self.name}: {', '.join(f'{label}: {shown(row)}' for label, row in rows)}"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Sides:
    """Two complementary sides a, b >= 0 (n,), with a label per row.

    Attributes
    ----------
    a, b : SX (n,)
    a_labels, b_labels : tuple of str
    role : Role
    name : str
    difference_only : bool
        a and b are variables for the positive and the negative part of one quantity. Only a - b is determined by the
        other equations; complementarity removes the common offset.
    """

    a: ca.SX
    b: ca.SX
    a_labels: tuple[str, ...]
    b_labels: tuple[str, ...]
    role: Role
    name: str = ""
    difference_only: bool = False

    @classmethod
    def between(cls, role: Role, a: Labelled, b: Labelled, **fields: Any) -> Self:
        """Create the object from two sides with their labels."""
        return cls(role=role, a_labels=a[0], a=a[1], b_labels=b[0], b=b[1], **fields)

    def __repr__(self) -> str:
        title = f"{type(self).__name__} {self.name}".rstrip()
        return f"{title}: {labelled_text(self.a_labels, self.a)} with {labelled_text(self.b_labels, self.b)}"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Pair(Sides):
    """Complementarity pair 0 <= a perp b >= 0; a(t) is continuous along solutions, b(t) may jump.

    Attributes
    ----------
    name : str
        Key by which leaves of indicators, switches and impacts refer to the pair.
    a_labels, b_labels : tuple of str
        Quantities with the same label at the same place are stored once in the MPCC, also across pairs.
    left : SX (n,), optional
        Value of a at the left boundary of a finite element, just after a possible jump. The cross complementarity rule
        needs it: an active b inside the element forces a to vanish at the left boundary too, so that a switch can
        only lie on the boundary of two elements. There are three cases:

        - `left` is given: a depends on algebraic variables (a slip speed). These have no values at a boundary, so the
          value is an expression of the jump law's symbols (the slip speed of the velocity after the impact).
        - `left` is None and `continuous` is False: a is a function of x and p (a gap), evaluated at the right limit.
        - `continuous` is True: the value at the right end of the element before, see there.
    b_left : SX (n,), optional
        Value of b there, in the same symbols; used if cross = "both".
    continuous : bool
        a consists of algebraic variables that are continuous in time (Stewart's lambda). Its value at the left boundary
        is that of the right end of the element before, also across control stages.
    cross : {"left", "both", "none"}
        Products that vanish in one element. "left": b at every stage times a at every stage and at the left boundary
        (the rule that detects switches, FESD-J, Eqs. 20, 21). "both": also b at the left boundary (Eq. 22). "none":
        only a and b at the same stage.
    small_side : bool
        b is of the order of the discretisation error, so only a may be used to decide which side is active.
    components : tuple of str
        Names of the objects the components belong to, for events.
    events : tuple (str, str), optional
        Kinds of the events "a becomes zero" and "a leaves zero".
    """

    left: ca.SX | None = None
    b_left: ca.SX | None = None
    continuous: bool = False
    # The rule that detects switches; a pair without it is an exception that has to be chosen.
    cross: Literal["left", "both", "none"] = "left"
    small_side: bool = False
    components: tuple[str, ...] = ()
    events: tuple[str, str] | None = None


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class NodePair(Sides):
    """Complementarity at one node: every a_i b_j vanishes. Solvers see one product, (sum of a) * (sum of b).

    `of` is the name of the object it belongs to, such as a contact.
    """

    of: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Impact:
    """Quantities by which an impact is recognised: its impulse and the velocity it acts on, before and after.

    `pair` and `component` name the complementarity that was open before: in a closed contact an impulse is no impact.
    """

    name: str
    impulse: ca.SX
    v_before: ca.SX
    v_after: ca.SX
    pair: str
    component: int


@dataclass(frozen=True, eq=False, kw_only=True)
class SlipIndicator:
    """Quantities that distinguish slip from stick: a contact slips where its slip speed exceeds its cone slack.

    Attributes
    ----------
    name : str
    speed, slack : SX scalar
        Slip measure and distance of the force from the boundary of its cone, in x, z and p; both nonnegative.
    velocity : SX (n_t,)
        Slip velocity [m/s]; a change of its direction is a reversal.
    pair : str
    component : int
        Complementarity that has to be closed.
    """

    name: str
    speed: ca.SX
    slack: ca.SX
    velocity: ca.SX
    pair: str
    component: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Switch:
    """Side of a switching function on which the state lies, read from the active complementarities.

    Attributes
    ----------
    name : str
    members : tuple of (pair, component, side)
        If this component is closed (b active) the function has the sign `side`. If components of both signs are closed,
        the state slides along the surface.
    function : SX scalar, optional
        The switching function of x and p, if there is one.
    silent : bool
        Reports no events.
    """

    name: str
    members: tuple[tuple[str, int, float], ...]
    function: ca.SX | None = None
    silent: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class DirectionConsistency:
    """Directions of friction that stay within a right angle of each other in an element.

    weight_1 weight_j d_1'd_j >= 0 over the stages j and weight_j left'd_j >= 0. Without it the direction is free at the
    stage where a slip stops, and may be reversed there: all equations hold for the wrong stopping time.

    Attributes
    ----------
    direction : SX (n,)
        d, in x, z and p.
    weight : SX scalar
        Positive where the direction has a meaning (the normal force), in x, z and p.
    left : SX (n,)
        Value at the left boundary, in the symbols of the jump law.
    """

    name: str
    direction: ca.SX
    weight: ca.SX
    left: ca.SX


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class JumpLaw:
    """Conditions between the left limit `x_minus` and the right limit `x_plus` of the state at a node.

    Attributes
    ----------
    x_minus : SX (n_x,)
        Symbols of the left limit.
    h : SX
        Symbol of the length of the finite element that begins at the node [s].
    variables : tuple of Variable
        Boundary variables: impulses, their multipliers, velocities after the jump.
    x_plus : SX (n_x,)
        Right limit, in x_minus and the boundary variables.
    equations, pairs : tuple
    inequalities : tuple of Equation
        expression >= 0; may use h.
    inner : mapping of Role to SX
        Replacement expressions of equations and inequalities at all nodes except the first one. On motions of the
        system they are equivalent, and they have fewer kinks.
    impacts : tuple of Impact
    hit : SX (number of impacts,)
        Flags, 1 for an expected impact; only the estimates of variables use them.
    energy : SX scalar
        Kinetic energy gained in the jump [J].
    outputs : tuple of Equation
        Named expressions of x_minus, the boundary variables and p.
    """

    x_minus: ca.SX
    h: ca.SX
    variables: tuple[Variable, ...]
    x_plus: ca.SX
    equations: tuple[Equation, ...]
    pairs: tuple[NodePair, ...]
    inequalities: tuple[Equation, ...] = ()
    inner: Mapping[Role, ca.SX] = field(default_factory=dict)
    impacts: tuple[Impact, ...] = ()
    hit: ca.SX = field(default_factory=lambda: ca.SX(0, 1))
    energy: ca.SX = field(default_factory=lambda: ca.SX(0))
    outputs: tuple[Equation, ...] = ()

    @property
    def symbol(self) -> ca.SX:
        """All boundary variables, stacked."""
        # The empty column keeps the type SX if there are none.
        return ca.vertcat(ca.SX(0, 1), *[v.symbol for v in self.variables])

    def __repr__(self) -> str:
        parts = (*self.variables, *self.equations, *self.inequalities, *self.pairs)
        return "\n".join(["JumpLaw", f"  x_plus = {shown(self.x_plus)}", *(f"  {part!r}" for part in parts)])


# --- step equilibration: an and/or tree that is positive where no switch happens at a node ---
# Products stand for "and", sums for "or" (FESD-J, Eqs. 27-30): all quantities are nonnegative, so that the signs of
# expressions follow the tree. It is data, not an expression: the rows it refers to exist only in a discretisation,
# which may also write minima and maxima instead of products and sums.


@dataclass(frozen=True)
class Leaf:
    """Quantity of one side of one component of a pair around a node.

    `over` selects it: "backward" and "forward" are the sums over the element before and after the node, "node" is the
    value at the right limit, "end" the value of side b at the left limit.
    """

    # "end" exists for side b only: side a is continuous, so that its left limit is not needed.
    over: Literal["backward", "forward", "node", "end"]
    pair: str
    side: Literal["a", "b"]
    component: int


@dataclass(frozen=True)
class And:
    """Product of the parts: positive if all of them are."""

    parts: tuple[Indicator, ...]


@dataclass(frozen=True)
class Or:
    """Sum of the parts: positive if one of them is."""

    parts: tuple[Indicator, ...]


Indicator = Leaf | And | Or


@dataclass(frozen=True, kw_only=True)
class SwitchCondition:
    """Condition residual = 0 at a node where the indicator is positive; it fixes the time of a switch.

    The residual is a multiplier (a force, the slack of a cone) just before the switch, as a product of leaves over
    "end". A multiplier that is continuous at the node vanishes where it becomes inactive.
    """

    name: str
    residual: Indicator
    indicator: Indicator


def before_and_after(pair: str, side: Literal["a", "b"], i: int = 0) -> And:
    """Return a tree that is positive if this side is positive both before and after the node."""
    return And((Leaf("backward", pair, side, i), Leaf("forward", pair, side, i)))


def inactive(pair: str, i: int) -> And:
    """Return a tree that is positive if side a is positive before, at and after the node (for a contact: flight)."""
    # Sums over both elements are positive also at an impact, where the gap is zero at the node only: hence its value
    # there.
    return And((Leaf("node", pair, "a", i), *before_and_after(pair, "a", i).parts))


def releases(pair: str, i: int) -> And:
    """Return a tree that is positive if side b is positive before the node and side a after it."""
    # Not at the node: at a release a is zero there.
    return And((Leaf("backward", pair, "b", i), Leaf("forward", pair, "a", i)))


def default_indicator(pairs: tuple[Pair, ...]) -> And:
    """Return the product over all components of a(t_n) sum_B(a) sum_F(a) + sum_B(b) sum_F(b) (FESD-J, Eq. 28).

    B and F are the elements before and after the node. A component contributes a positive factor if it is inactive
    before and after, or active before and after: it does not switch.
    """
    # Pairs without cross products locate no switch, so that their changes need not lie at nodes.
    components = [(p.name, i) for p in pairs if p.cross != "none" for i in range(p.a.numel())]
    # An empty product is 1: without pairs nothing ever switches, and all steps are equal.
    return And(tuple(Or((inactive(pair, i), before_and_after(pair, "b", i))) for pair, i in components))


@dataclass(frozen=True, eq=False, kw_only=True)
class DCS:
    """Dynamic complementarity system with its running cost.

    x' = flow, 0 = equations, 0 <= inequalities, 0 <= a perp b >= 0 for every pair, all functions of (x, z, u, p), and a
    jump law between the left and the right limit of x at the nodes. See the module's docstring for the invariants.

    Attributes
    ----------
    x, u, p : SX (n_x,), (n_u,), (n_p,)
    x_names, u_names, p_names : tuple of str
    x_scale, u_scale : ndarray (n_x,), (n_u,)
        Typical sizes.
    variables : tuple of Variable
        Algebraic variables z, one value per RK stage.
    flow : SX (n_x,)
    running_cost : SX scalar
    equations, inequalities : tuple of Equation
    pairs : tuple of Pair
    direction_consistencies : tuple of DirectionConsistency
    jump : JumpLaw or None
    switch_indicator : Indicator, optional
        Default `default_indicator(pairs)`.
    switch_conditions : tuple of SwitchCondition
        Conditions on the time of switches that the complementarities leave undetermined.
    slip_indicators : tuple of SlipIndicator
    switches : tuple of Switch
    outputs : tuple of Equation
        Named expressions of x, z and p that are part of solutions.
    units : mapping
        Units of named quantities, for labels.
    unit_parts : tuple of slice
        Rows of x that hold unit quaternions.

    Examples
    --------
    The sign of a state as a Filippov system, with Stewart's multipliers:

    >>> import casadi as ca
    >>> import nosnoc_py as ns
    >>> from nosnoc_py.reformulation.filippov import filippov_dcs
    >>> x = ca.SX.sym("x")
    >>> system = ns.PSS(x=x, modes=[ns.Modes("side", flows=[-1, 1], functions=x, signs=[[1], [-1]])])
    >>> filippov_dcs(system).pairs[0].a_labels
    ('lambda[side][0]', 'lambda[side][1]')
    """

    x: ca.SX
    u: ca.SX
    p: ca.SX
    x_names: tuple[str, ...]
    u_names: tuple[str, ...]
    p_names: tuple[str, ...]
    x_scale: np.ndarray
    u_scale: np.ndarray
    variables: tuple[Variable, ...]
    flow: ca.SX
    running_cost: ca.SX
    equations: tuple[Equation, ...] = ()
    pairs: tuple[Pair, ...] = ()
    jump: JumpLaw | None = None
    switch_indicator: Indicator | None = None
    inequalities: tuple[Equation, ...] = ()
    direction_consistencies: tuple[DirectionConsistency, ...] = ()
    switch_conditions: tuple[SwitchCondition, ...] = ()
    slip_indicators: tuple[SlipIndicator, ...] = ()
    switches: tuple[Switch, ...] = ()
    outputs: tuple[Equation, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    unit_parts: tuple[slice, ...] = ()

    @classmethod
    def of(cls, system: Described, running_cost: Any, **fields: Any) -> DCS:
        """Create a DCS in the states, controls and parameters of a system, with its units."""
        return cls(
            x=system.x,
            u=system.u,
            p=system.p,
            x_names=system.state_names,
            u_names=system.control_names,
            p_names=system.parameter_names,
            x_scale=system.x_nominal,
            u_scale=system.u_nominal,
            running_cost=ca.SX(running_cost),
            unit_parts=system.unit_parts,
            # In this order, so that units of the caller replace those of the system.
            **{"units": dict(system.units), **fields},
        )

    @property
    def z(self) -> ca.SX:
        """All algebraic variables, stacked."""
        return ca.vertcat(ca.SX(0, 1), *[v.symbol for v in self.variables])

    @property
    def indicator(self) -> Indicator:
        """The step-equilibration tree."""
        return self.switch_indicator or default_indicator(self.pairs)

    def __repr__(self) -> str:
        sizes = (counted(self.x.numel(), "state"), counted(self.u.numel(), "control"))
        lines = [f"DCS: {', '.join(sizes)}, {counted(self.z.numel(), 'algebraic variable')}"]
        lines += [f"  variable {v.name}: {', '.join(v.components)}" for v in self.variables]
        lines += [f"  equation {e.name}: {', '.join(e.components)}" for e in self.equations]
        for p in self.pairs:
            lines += [f"  pair     {p.name}: {', '.join(p.a_labels)} with {', '.join(p.b_labels)}"]
            sides = (*zip(p.a_labels, ca.vertsplit(p.a), strict=True), *zip(p.b_labels, ca.vertsplit(p.b), strict=True))
            # Sides that are single variables need no text of their own.
            texts = {label: shown(side, self._named) for label, side in sides}
            lines += [f"           {label} = {text}" for label, text in texts.items() if label != text]
        if self.jump is not None:
            names = [c for v in self.jump.variables for c in v.components]
            lines += [f"  jump     {', '.join(names)}"]
            for pair in self.jump.pairs:
                lines += [f"    pair   {', '.join(pair.a_labels)} with {', '.join(pair.b_labels)}"]
        return "\n".join(lines)

    @property
    def _named(self) -> tuple[tuple[ca.SX, tuple[str, ...]], ...]:
        """Symbols with the names that the user knows."""
        own = ((self.x, self.x_names), (self.u, self.u_names), (self.p, self.p_names))
        return (*own, *((v.symbol, v.components) for v in self.variables))
