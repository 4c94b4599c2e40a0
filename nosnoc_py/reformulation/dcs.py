"""The dynamic complementarity system (DCS): one form for every nonsmooth system.

x' = flow(x, z, u, p),  0 = equations(x, z, u, p),  0 <= a(x, z, u, p), b(x, z, u, p) >= 0, a b = 0 for every pair,
and, where a jump law is given, equations and pairs between the left and the right limit of x at every node.
Systems differ in these data only; the finite elements know nothing else about them.
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
    """One label per name, such as "gap[ground]"."""
    return tuple(f"{quantity}[{name}]" for name in names)


def indexed(name: str, size: int) -> tuple[str, ...]:
    """One label per component of a quantity: its name, with a number where there are several."""
    return (name,) if size == 1 else of_each(name, range(size))


# Rows with their labels.
Labelled = tuple[tuple[str, ...], ca.SX]


def equal(labels: Sequence[str], expression: ca.SX) -> str:
    """Labels with the expressions they stand for."""
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
        What it is; names and labels are for people.
    of : str
        What it belongs to, such as the name of a contact, where all of it belongs to one thing.
    lower, upper, initial, scale : (n,)
    estimate : SX (n,), optional
        A likely value, of which initial guesses are made: for algebraic variables from x and p, for boundary variables
        from the left limit, p and the flags `hit` of the jump law. Default `initial`.
    impulsive : bool
        For boundary variables: zero where no jump is allowed.
    boundary : bool
        For algebraic variables: it is continuous in time and has values at the boundaries of elements, too.
    per_element : bool
        For algebraic variables: one value per finite element, not one per RK stage.
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
    impulsive: bool = False
    boundary: bool = False
    per_element: bool = False

    @classmethod
    def made(cls, name: str, components: tuple[str, ...], role: Role, **fields: Any) -> Variable:
        """A variable with a symbol of its own."""
        return cls(name=name, symbol=ca.SX.sym(name, len(components)), components=components, role=role, **fields)

    def __repr__(self) -> str:
        return f"Variable {self.name}: {', '.join(self.components)}"


def rows_of(variables: Iterable[Variable]) -> dict[str, slice]:
    """Where every variable stands among these, by its name."""
    found: dict[str, slice] = {}
    start = 0
    for variable in variables:
        found[variable.name] = slice(start, start + len(variable.components))
        start = found[variable.name].stop
    return found


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Equation:
    """0 = expression (or expression >= 0, where it is listed as an inequality), with a label per row.

    `role` says what it is; names and labels are for people. Of an output, a named expression, it is the role of what
    the expression stands for. `boundary` says that it holds at the boundaries of elements, too; it then has no
    algebraic variables but those that have values there.
    """

    name: str
    expression: ca.SX
    components: tuple[str, ...]
    role: Role
    scale: Any = 1.0
    boundary: bool = False

    @classmethod
    def of(cls, name: str, role: Role, expression: ca.SX, components: tuple[str, ...] | None = None) -> Equation:
        """An equation or an output whose rows have its name, and a number where there are several."""
        labels = indexed(name, expression.numel()) if components is None else components
        return cls(name=name, expression=expression, components=labels, role=role)

    def __repr__(self) -> str:
        rows = zip(self.components, ca.vertsplit(self.expression), strict=True)
        return f"Equation {self.name}: {', '.join(f'{label}: {shown(row)}' for label, row in rows)}"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Sides:
    """Two sides a, b >= 0 (n,) that are against each other, with a label per row.

    `role` says what they are. `split` says that a and b are variables of which only the difference has a meaning, the
    positive and the negative part of something.
    """

    a: ca.SX
    b: ca.SX
    a_labels: tuple[str, ...]
    b_labels: tuple[str, ...]
    role: Role
    name: str = ""
    split: bool = False

    @classmethod
    def between(cls, role: Role, a: Labelled, b: Labelled, **fields: Any) -> Self:
        """A pair of sides that are given with their labels."""
        return cls(role=role, a_labels=a[0], a=a[1], b_labels=b[0], b=b[1], **fields)

    def __repr__(self) -> str:
        title = f"{type(self).__name__} {self.name}".rstrip()
        return f"{title}: {equal(self.a_labels, self.a)} with {equal(self.b_labels, self.b)}"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Pair(Sides):
    """0 <= a, b >= 0, a b = 0 for every component, where a(t) is continuous along solutions and b(t) may jump.

    Attributes
    ----------
    name : str
        By which the leaves of indicators and switches refer to it.
    a_labels, b_labels : tuple of str
        Quantities with the same label and the same arguments are stored once, also across pairs.
    left : SX (n,), optional
        What a is at the left boundary of an element where it jumps with the state: an expression of the jump law's
        symbols. Default: a is a function of the state, and evaluated there.
    b_left : SX (n,), optional
        What b is there, for cross = "both".
    continuous : bool
        a is made of algebraic variables that are continuous in time: at the left boundary it has the value of the right
        end of the element before, across control stages, too.
    cross : {"left", "both", "none"}
        Which products an element forbids: all b at stages against all a at stages and at the left boundary (the rule
        that detects switches); the same with b at the left boundary, too; or only those at the same stage.
    faint : bool
        b is a correction as small as the error of the discretisation: where a is zero, it is not.
    components : tuple of str
        Names for events, and of what the components belong to.
    events : tuple (str, str), optional
        Kinds of the events "a becomes zero" and "a leaves zero".
    """

    left: ca.SX | None = None
    b_left: ca.SX | None = None
    continuous: bool = False
    cross: Literal["left", "both", "none"] = "left"
    faint: bool = False
    components: tuple[str, ...] = ()
    events: tuple[str, str] | None = None


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class NodePair(Sides):
    """Every a_i b_j vanishes, at one node; solvers see one product, (sum of a) * (sum of b).

    `of` says to what it belongs, such as the name of a contact.
    """

    of: str = ""


@dataclass(frozen=True, eq=False, kw_only=True)
class Impact:
    """What tells an impact: an impulse, and the velocity it acts on before and after.

    `component` of `pair` says whether it was closed before, which an impact is not.
    """

    name: str
    impulse: ca.SX
    v_before: ca.SX
    v_after: ca.SX
    pair: str
    component: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Slide:
    """What tells slip from stick: where slip speed > cone slack >= 0 a contact slips along `velocity`.

    `speed`, `slack` (scalars) and `velocity` (n_t,) are expressions of x, z and p; `component` of `pair` is what has to
    be closed.
    """

    name: str
    speed: ca.SX
    slack: ca.SX
    velocity: ca.SX
    pair: str
    component: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Switch:
    """What tells on which side of a switching function (of x and p, where there is one) the state is.

    `members` are (pair, component, side): where that component is closed (its b is active) the function has that sign;
    where components of both signs are closed the state slides along the surface. A `silent` one names no events.
    """

    name: str
    members: tuple[tuple[str, int, float], ...]
    function: ca.SX | None = None
    silent: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class Coherence:
    """Vectors that stay within a right angle of each other in an element, where weights are positive.

    weight_1 weight_j d_1' d_j >= 0 over the stages, and weight_j left' d_j >= 0 with the value at the left boundary.
    `direction` (n,) and `weight` are expressions of x, z, p, `left` (n,) of the jump law's symbols.
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
        Symbol of the length of the finite element that begins at the node.
    variables : tuple of Variable
        Boundary variables: impulses, their multipliers, velocities after the jump.
    x_plus : SX (n_x,)
        Right limit, in x_minus and the boundary variables.
    equations, pairs : tuple
    inequalities : tuple of Equation
        expression >= 0; may use h.
    inner : mapping
        Expressions that equations and inequalities of a role have at all nodes but the first one, where they say the
        same on motions of the system and are smoother.
    impacts : tuple of Impact
    hit : SX (number of impacts,)
        Flags, 1 where an impact is supposed to happen; only estimates use them.
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
        """All boundary variables below each other."""
        return ca.vertcat(ca.SX(0, 1), *[v.symbol for v in self.variables])

    def __repr__(self) -> str:
        parts = (*self.variables, *self.equations, *self.inequalities, *self.pairs)
        return "\n".join(["JumpLaw", f"  x_plus = {shown(self.x_plus)}", *(f"  {part!r}" for part in parts)])


# --- step equilibration: a small and/or tree that is positive where no switch happens at a node ---


@dataclass(frozen=True)
class Leaf:
    """A sum over one element, or the value at the node, of side "a" or "b" of one component of a pair.

    `over` is "backward" (the element before the node), "forward" (the element after), "node" (right limit) or "end"
    (left limit, of side "b").
    """

    over: Literal["backward", "forward", "node", "end"]
    pair: str
    side: Literal["a", "b"]
    component: int


@dataclass(frozen=True)
class And:
    """Positive where all parts are: their product."""

    parts: tuple[Indicator, ...]


@dataclass(frozen=True)
class Or:
    """Positive where one part is: their sum."""

    parts: tuple[Indicator, ...]


Indicator = Leaf | And | Or


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """residual = 0 at a node wherever the indicator is positive: which value a continuous force has at a switch.

    `residual` is the product of its leaves (over "end").
    """

    name: str
    residual: Indicator
    indicator: Indicator


def around(pair: str, side: Literal["a", "b"], i: int = 0) -> And:
    """Positive where this side is, before and after the node."""
    return And((Leaf("backward", pair, side, i), Leaf("forward", pair, side, i)))


def inactive(pair: str, i: int) -> And:
    """Side a is positive at the node, before and after it: of a contact, flight."""
    return And((Leaf("node", pair, "a", i), *around(pair, "a", i).parts))


def leaves(pair: str, i: int) -> And:
    """Side b is positive before the node, and side a after it."""
    return And((Leaf("backward", pair, "b", i), Leaf("forward", pair, "a", i)))


def default_indicator(pairs: tuple[Pair, ...]) -> And:
    """a(t_n) sum_B(a) sum_F(a) + sum_B(b) sum_F(b) for every component, the product over all (FESD-J, Eq. 28)."""
    places = [(p.name, i) for p in pairs if p.cross != "none" for i in range(p.a.numel())]
    return And(tuple(Or((inactive(*place), around(place[0], "b", place[1]))) for place in places))


@dataclass(frozen=True, eq=False, kw_only=True)
class DCS:
    """A dynamic complementarity system with its running cost; see the module's docstring.

    Attributes
    ----------
    x, u, p : SX
    x_names, u_names, p_names : tuple of str
    x_scale, u_scale : ndarray
    variables : tuple of Variable
        Algebraic variables, one value per RK stage.
    flow : SX (n_x,)
    running_cost : SX scalar
    equations, inequalities : tuple of Equation
    pairs : tuple of Pair
    coherences : tuple of Coherence
    jump : JumpLaw or None
    switch_indicator : Indicator, optional
        Default `default_indicator(pairs)`.
    isolations : tuple of Isolation
    slides : tuple of Slide
    switches : tuple of Switch
    outputs : tuple of Equation
        Named expressions of x, z and p that solutions show.
    units : mapping
        Units of named quantities, for labels.
    unit_parts : tuple of slice
        Where unit quaternions are in x.
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
    coherences: tuple[Coherence, ...] = ()
    isolations: tuple[Isolation, ...] = ()
    slides: tuple[Slide, ...] = ()
    switches: tuple[Switch, ...] = ()
    outputs: tuple[Equation, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    unit_parts: tuple[slice, ...] = ()

    @classmethod
    def of(cls, system: Described, running_cost: Any, **fields: Any) -> DCS:
        """A DCS in the states, controls and parameters of a system, with its units."""
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
            unit_parts=getattr(system, "unit_parts", ()),
            **{"units": dict(system.units), **fields},
        )

    @property
    def z(self) -> ca.SX:
        """All algebraic variables below each other."""
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
        """Symbols and what the user calls them."""
        own = ((self.x, self.x_names), (self.u, self.u_names), (self.p, self.p_names))
        return (*own, *((v.symbol, v.components) for v in self.variables))
