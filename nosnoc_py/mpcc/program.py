"""Mathematical program with complementarity constraints (MPCC): the interface between discretisation and solvers.

    minimise    objective(w, p) + penalty(w, p)
    subject to  lbw <= w <= ubw,  lbg <= g(w, p) <= ubg,
                G(w, p) >= 0,  H(w, p) >= 0,
                G_i H_j = 0 for every i in group.left, j in group.right, for every group,
                r_m(w, p) = 0 or eta_m(G, H) = 0 for every switched equation m.

`MPCC` is all that solvers see; `ProgramBuilder` collects its parts. Invariants:

- Every nonnegative quantity is stored once in G or H, however many products it is in. Products are index groups, so
  that residuals are taken over the single products while solvers may aggregate them.
- A group means: all of its left rows vanish, or all of its right rows. This "all or none" is what cross complementarity
  needs, and what a branch of the MPCC decides.
- Switched equations (step equilibration, switch conditions) are products r eta as well; on a branch, eta is known from
  the pattern of zeros alone, and the equation r = 0 is imposed or dropped.
- Numbers are in the user's units; `w_scale` and `g_scale` are for solvers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from itertools import product
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import ModelError
from nosnoc_py.functions import numbers as read_numbers
from nosnoc_py.mpcc.layout import At, ElementEnd, Layout


@dataclass(frozen=True, eq=False)
class Group:
    """Rows of G and rows of H of which every product vanishes.

    Attributes
    ----------
    left, right : int ndarray
        Rows of G, rows of H.
    summed : bool
        Always handed to a solver as the product of two sums, whatever the aggregation.
    difference_only : bool
        Left and right are the two parts of a signed quantity: only their difference matters, and an active set need not
        choose its sign.
    small_side : bool
        The right side is of the order of the discretisation error: if the left side is zero within tolerances, too, the
        left side is the one that vanishes.
    role, of : Enum, str
        Meaning of the products and the object they belong to, for readers of a solution; solvers ignore them.
    """

    left: np.ndarray
    right: np.ndarray
    summed: bool = False
    difference_only: bool = False
    small_side: bool = False
    role: Enum | None = None
    of: str = ""


@dataclass(frozen=True, eq=False)
class Side:
    """All rows on one side of `count` groups, as flat arrays: member k is row[k] of group[k]."""

    row: np.ndarray
    group: np.ndarray
    count: int

    @classmethod
    def of(cls, rows: Sequence[np.ndarray], start: int = 0) -> Side:
        """Create from the rows of every group, counted from `start`."""
        sizes = [own.size for own in rows]
        # The empty array keeps the type of indices, and a program without groups valid.
        return cls(start + np.concatenate([np.zeros(0, int), *rows]), np.repeat(np.arange(len(rows)), sizes), len(rows))

    def all(self, condition: np.ndarray) -> np.ndarray:
        """Return per group whether the condition (a mask of rows) holds for every row of this side."""
        # Counting violations instead of members also gives True for an empty side.
        return np.bincount(self.group[~condition[self.row]], minlength=self.count) == 0

    def largest(self, values: np.ndarray) -> np.ndarray:
        """Return per group the largest value over the rows of this side, at least 0."""
        largest = np.zeros(self.count)
        np.maximum.at(largest, self.group, values[self.row])
        return largest

    def rows(self, chosen: np.ndarray, size: int) -> np.ndarray:
        """Return the mask (size,) of the rows of this side in the chosen groups (a mask)."""
        mask = np.zeros(size, bool)
        mask[self.row[chosen[self.group]]] = True
        return mask


@named_arguments
@dataclass(frozen=True, eq=False, kw_only=True)
class MPCC:
    """Mathematical program with complementarity constraints, in the user's units.

    See the module's docstring for its form; `MPCC.of_pairs` builds one from textbook pairs.

    Attributes
    ----------
    w, p : SX (n_w,), (n_p,)
        Variables and parameters.
    objective, penalty : SX scalar
        The penalty (heuristic step equilibration) is minimised too but never part of a reported objective.
    g, G, H, r : SX (n_g,), (n_G,), (n_H,), (n_r,)
        Constraints, nonnegative quantities, residuals of switched equations.
    indicator : Function
        (G, H) -> eta (n_r,), one nonnegative number per switched equation.
    lbw, ubw, w0, w_scale : ndarray (n_w,)
        Bounds, start values and typical sizes of the variables.
    lbg, ubg, g_scale : ndarray (n_g,)
    p0 : ndarray (n_p,)
        Default values of the parameters.
    groups : tuple of Group
        Products that vanish.
    aggregation : {"stage_stage", "stage_fe", "fe_stage", "fe_fe"}
        How solvers may add up the products of a group: the first word for left rows, the second for right ones; "fe"
        is the sum over the group.
    enforce_switched : bool
        Solvers impose all switched equations; otherwise only the required ones and those of the active-set finish.
    required : bool ndarray (n_r,)
        Switched equations that belong to the problem (where a switch lies), not to the discretisation.
    variables, parameters, constraints, left, right, switched : Layout
        Names and places of the rows of w, p, g, G, H, r.

    Examples
    --------
    The point of the two half axes that is nearest to (1, 2):

    >>> import casadi as ca
    >>> import nosnoc_py as ns
    >>> w = ca.SX.sym("w", 2)
    >>> mpcc = ns.MPCC.of_pairs(w=w, G=w[0], H=w[1], objective=(w[0] - 1) ** 2 + (w[1] - 2) ** 2, w0=1.0)
    >>> ns.solve_mpcc(mpcc).w.round(6) + 0.0
    array([0., 2.])
    """

    w: ca.SX
    p: ca.SX
    objective: ca.SX
    penalty: ca.SX
    g: ca.SX
    G: ca.SX
    H: ca.SX
    r: ca.SX
    indicator: ca.Function
    lbw: np.ndarray
    ubw: np.ndarray
    lbg: np.ndarray
    ubg: np.ndarray
    w0: np.ndarray
    p0: np.ndarray
    w_scale: np.ndarray
    g_scale: np.ndarray
    groups: tuple[Group, ...]
    aggregation: str = "fe_stage"
    enforce_switched: bool = False
    required: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    variables: Layout = field(default_factory=Layout)
    parameters: Layout = field(default_factory=Layout)
    constraints: Layout = field(default_factory=Layout)
    left: Layout = field(default_factory=Layout)
    right: Layout = field(default_factory=Layout)
    switched: Layout = field(default_factory=Layout)

    @classmethod
    def of_pairs(
        cls,
        *,
        w: ca.SX,
        G: ca.SX,
        H: ca.SX,
        objective: Any = 0.0,
        penalty: Any = 0.0,
        g: Any = None,
        p: ca.SX | None = None,
        lbw: Any = -np.inf,
        ubw: Any = np.inf,
        lbg: Any = 0.0,
        ubg: Any = 0.0,
        w0: Any = 0.0,
        p0: Any = 0.0,
    ) -> MPCC:
        """Create an MPCC with textbook pairs, 0 <= G_i perp H_i >= 0.

        Parameters
        ----------
        w, p : SX (n_w,), (n_p,)
            Symbols; components have the names of their symbols.
        G, H : SX (n_c,)
        objective, penalty : SX scalar or float
            The penalty is minimised too but never part of a reported or certified objective.
        g : SX (n_g,), optional
        lbw, ubw, w0 : (n_w,) or float
        lbg, ubg : (n_g,) or float
            Default 0: equations.
        p0 : (n_p,) or float

        Raises
        ------
        ModelError
            For anything but columns of SX symbols, sizes that do not match, NaN, an infinite start, lower > upper, and
            expressions of symbols other than w and p.

        Examples
        --------
        >>> import casadi as ca
        >>> w = ca.SX.sym("w", 3)
        >>> MPCC.of_pairs(w=w, G=w[:2], H=w[1:], g=ca.sum1(w), lbg=1.0, ubg=1.0).pairs()
        (array([0, 1]), array([0, 1]))
        """
        # `locals()` also holds `cls`, which is not read there.
        return cls(**_checked_pairs(locals()))

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Return index arrays (i, j) of all single products G_i H_j that vanish.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> w = ca.SX.sym("w", 4)
        >>> i, j = ns.MPCC.of_pairs(w=w, G=w[:2], H=w[2:]).pairs()
        >>> i.tolist(), j.tolist()
        ([0, 1], [0, 1])
        """
        left, right = self.members
        count = np.bincount(right.group, minlength=right.count)  # right rows that every left row meets
        # All combinations within each group, without a Python loop over the pairs (there may be 10^5).
        first, met = np.cumsum(count) - count, count[left.group]
        i = np.repeat(left.row, met)
        place = np.arange(i.size) - np.repeat(np.cumsum(met) - met, met)
        return i, right.row[np.repeat(first[left.group], met) + place]

    @cached_property
    def G_variable(self) -> np.ndarray:
        """Index in w of every row of G that is a variable, -1 for expressions."""
        return _plain_variables(self.G, self.w)

    @cached_property
    def H_variable(self) -> np.ndarray:
        """Index in w of every row of H that is a variable, -1 for expressions."""
        return _plain_variables(self.H, self.w)

    @cached_property
    def members(self) -> tuple[Side, Side]:
        """Rows of G and of H in all groups."""
        return Side.of([group.left for group in self.groups]), Side.of([group.right for group in self.groups])

    @cached_property
    def difference_only(self) -> np.ndarray:
        """Mask of the groups whose sides are the parts of a signed quantity."""
        return np.array([group.difference_only for group in self.groups], bool)

    @cached_property
    def parts(self) -> tuple[np.ndarray, np.ndarray]:
        """Variables that are the left and the right parts of the signed quantities."""
        signed = [group for group in self.groups if group.difference_only]
        left = (self.G_variable[group.left] for group in signed)
        right = (self.H_variable[group.right] for group in signed)
        return np.concatenate([np.zeros(0, int), *left]), np.concatenate([np.zeros(0, int), *right])

    def side(self, left: np.ndarray, right: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return masks of the rows of G in the groups `left`, and of H in the groups `right` (default: the others)."""
        in_G, in_H = self.members
        return in_G.rows(left, self.G.numel()), in_H.rows(~left if right is None else right, self.H.numel())

    def switched_on(self, zero_G: np.ndarray, zero_H: np.ndarray) -> np.ndarray:
        """Return the mask of the switched equations that hold if these rows of G and H vanish and the others do not.

        The indicators are sums and products of nonnegative numbers, so that zeros and ones in place of the values show
        exactly which of them are positive.
        """
        return np.asarray(self.indicator(1.0 - zero_G, 1.0 - zero_H)).reshape(-1) > 0

    @property
    def relaxed(self) -> np.ndarray:
        """Mask of the switched equations that relaxed NLPs impose.

        The required ones only if there is no objective: with one they keep an iterate from moving a switch while the
        problem is still smooth. The active-set finish imposes them in any case.
        """
        return self.enforced & (self.enforce_switched or self.objective.is_constant())

    @property
    def enforced(self) -> np.ndarray:
        """Mask of the switched equations that solvers impose and residuals count."""
        count = self.r.numel()
        if self.enforce_switched:
            return np.ones(count, bool)
        # Programs that are built without `required` leave its default, which has no entries.
        return self.required if self.required.size == count else np.zeros(count, bool)

    def aggregates(self) -> tuple[ca.DM, ca.DM]:
        """Return 0-1 matrices that add up the rows of G, and of H, to the two factors of every aggregated product."""
        factors: list[tuple[Rows, Rows]] = []
        for group in self.groups:
            left, right = ("fe_fe" if group.summed else self.aggregation).split("_")
            factors += product(SUMS[left](group.left), SUMS[right](group.right))
        lefts, rights = ([pair[k] for pair in factors] for k in (0, 1))
        return _selection(lefts, self.G.numel()), _selection(rights, self.H.numel())

    def products(self) -> tuple[ca.SX, ca.SX]:
        """Return the two factors of the aggregated products, as solvers see them.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> w = ca.SX.sym("w", 2)
        >>> ns.MPCC.of_pairs(w=w, G=w[0], H=1 - w[1]).products()
        (SX(w_0), SX((1-w_1)))
        """
        left, right = self.aggregates()
        return ca.mtimes(left, self.G), ca.mtimes(right, self.H)

    def __repr__(self) -> str:
        pairs = len(self.pairs()[0])
        return (
            f"MPCC: {self.w.numel()} variables, {self.p.numel()} parameters, {self.g.numel()} constraints\n"
            f"  {self.G.numel()} + {self.H.numel()} nonnegative quantities, {pairs} products in {len(self.groups)} "
            f"groups ({self.aggregation}), {self.r.numel()} switched equations\n  {self.variables!r}"
        )


def _checked_pairs(given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an MPCC from the arguments of `of_pairs`."""
    w, p = _symbols(given["w"], "w"), _symbols(ca.SX(0, 1) if given["p"] is None else given["p"], "p")
    # CasADi's == would build an expression: symbols are identified by the hashes of their nodes.
    known = set() if w.numel() + p.numel() == 0 else {s.element_hash() for s in ca.vertsplit(ca.vertcat(w, p))}
    if len(known) < w.numel() + p.numel():
        raise ModelError("w and p: the same symbol appears twice.")
    g = ca.SX(0, 1) if given["g"] is None else given["g"]
    fields = {"g": g} | {name: given[name] for name in ("G", "H", "objective", "penalty")}
    fields = {name: _expression(value, name, known) for name, value in fields.items()}
    n_g, n_c = fields["g"].numel(), fields["G"].numel()
    if n_c != fields["H"].numel():
        raise ModelError(f"G and H: expected as many rows, given {n_c} and {fields['H'].numel()}.")
    for name in ("objective", "penalty"):
        if fields[name].numel() != 1:
            raise ModelError(f"{name}: expected a scalar, given {fields[name].numel()} entries.")
    sizes = {"lbw": w.numel(), "ubw": w.numel(), "w0": w.numel(), "lbg": n_g, "ubg": n_g, "p0": p.numel()}
    numbers = {name: read_numbers(given[name], name, size) for name, size in sizes.items()}
    # Rows get generic labels; variables keep the names of their symbols, so that messages speak the user's language.
    rows = {"g": n_g, "G": n_c, "H": n_c}
    labels = {"w": _labels(w), "p": _labels(p)} | {k: [f"{k}[{i}]" for i in range(n)] for k, n in rows.items()}
    for what in ("w", "g"):
        lower, upper = numbers[f"lb{what}"], numbers[f"ub{what}"]
        # [inf, inf] and [-inf, -inf] pass lower <= upper, but contain no number.
        wrong = np.flatnonzero((lower > upper) | (lower == np.inf) | (upper == -np.inf))
        if wrong.size:
            i = int(wrong[0])
            raise ModelError(
                f"lb{what} and ub{what}, row {i} ({labels[what][i]}): expected lower <= upper and at least one finite "
                f"number between, given [{lower[i]:g}, {upper[i]:g}]."
            )
    for name in ("w0", "p0"):
        if not np.isfinite(numbers[name]).all():
            raise ModelError(f"{name}: expected finite numbers, given {numbers[name][~np.isfinite(numbers[name])][0]}.")
    sides = ca.SX.sym("G", n_c), ca.SX.sym("H", n_c)
    layouts = {"variables": "w", "parameters": "p", "constraints": "g", "left": "G", "right": "H"}
    return {
        **fields,
        **numbers,
        **{key: _layout(name, labels[name]) for key, name in layouts.items()},
        "w": w,
        "p": p,
        "r": ca.SX(0, 1),
        "indicator": ca.Function("indicator", [*sides], [ca.SX(0, 1)]),
        "w_scale": np.ones(w.numel()),
        "g_scale": np.ones(n_g),
        "groups": tuple(Group(np.array([i]), np.array([i])) for i in range(n_c)),
        # Every group has one row on each side, so that there is nothing to add up.
        "aggregation": "stage_stage",
    }


def _symbols(value: Any, name: str) -> ca.SX:
    if not isinstance(value, ca.SX) or not value.is_dense() or not value.is_valid_input():
        raise ModelError(f"{name}: expected a column of SX symbols, given {type(value).__name__} {value}.")
    return ca.vec(value)


def _labels(symbols: ca.SX) -> list[str]:
    return [symbols[i].name() for i in range(symbols.numel())]


def _expression(value: Any, name: str, known: set[int]) -> ca.SX:
    try:
        expression = ca.vec(ca.densify(ca.SX(value)))
    except (NotImplementedError, TypeError, RuntimeError):
        raise ModelError(f"{name}: expected an SX expression, given {type(value).__name__}.") from None
    # NaN and infinity in a constant row would only appear as a failure of the solver, far from their cause.
    for row in ca.vertsplit(expression) if expression.numel() else []:
        if row.is_constant() and not np.isfinite(float(row)):
            raise ModelError(f"{name}: expected expressions of w and p or finite numbers, given {float(row)}.")
    foreign = [str(symbol) for symbol in ca.symvar(expression) if symbol.element_hash() not in known]
    if foreign:
        raise ModelError(f"{name}: depends on {', '.join(foreign[:5])}, which is neither in w nor in p.")
    return expression


def _layout(name: str, components: Sequence[str]) -> Layout:
    layout = Layout()
    layout.add(name, At(), tuple(components))
    return layout


Rows = list[int]


def _selection(sums: list[Rows], columns: int) -> ca.DM:
    row = [i for i, members in enumerate(sums) for _ in members]
    column = [j for members in sums for j in members]
    return ca.DM.ones(ca.Sparsity.triplet(len(sums), columns, row, column))


# Sums that a word of an aggregation stands for: every row on its own, or all rows of the group.
SUMS: dict[str, Callable[[np.ndarray], list[Rows]]] = {
    "stage": lambda rows: [[int(i)] for i in rows],
    "fe": lambda rows: [[int(i) for i in rows]],
}


# Depth to which two expressions are compared as graphs (the comparison is exponential in it), and number of random
# points at which their values are compared if the graphs differ.
DEPTH, POINTS = 20, 3


def _is_same(one: ca.SX, other: ca.SX) -> bool:
    """Return True if two expressions of the same symbols are the same function."""
    if ca.is_equal(one, other, DEPTH):
        return True
    symbols = ca.vertcat(*ca.symvar(one))
    both = ca.Function("both", [symbols], [one, other])
    # Positive points keep roots and logarithms finite; a fixed seed keeps programs reproducible.
    points = np.random.default_rng(0).uniform(0.1, 2.0, (symbols.numel(), POINTS))
    first, second = (np.asarray(part.full()) for part in both.map(POINTS)(points))
    return bool(np.allclose(first, second, rtol=1e-12, atol=1e-12, equal_nan=True))


class _Quantities:
    """Nonnegative quantities of one side; a quantity with the same label and arguments is stored once."""

    def __init__(self) -> None:
        self.expressions: list[ca.SX] = []
        self.layout = Layout()
        self._rows: dict[tuple[Any, ...], list[int]] = {}

    def add(self, labels: Sequence[str], values: ca.SX, at: At) -> np.ndarray:
        return np.array([self._add(labels[i], values[i], at) for i in range(values.numel())], dtype=int)

    def _add(self, label: str, value: ca.SX, at: At) -> int:
        key = (label, tuple(sorted(s.element_hash() for s in ca.symvar(value))))
        known = self._rows.setdefault(key, [])
        # If states are expressions of stage derivatives, quantities at different stages have the same symbols: label
        # and symbols alone do not identify them.
        # A constant has no symbols at which `_is_same` could evaluate it: constants are never merged.
        for row in known if key[1] else ():
            if _is_same(value, self.expressions[row]):
                return row
        known.append(self.layout.add(label, at, (label,)).start)
        self.expressions.append(value)
        return known[-1]


class ProgramBuilder:
    """Collector of variables, constraints, nonnegative quantities and groups; `build` makes an `MPCC` of them."""

    def __init__(self) -> None:
        self.objective: ca.SX = ca.SX(0)
        self.penalty: ca.SX = ca.SX(0)
        self._symbols: list[ca.SX] = []
        self._numbers: dict[str, list[np.ndarray]] = {key: [] for key in ("lbw", "ubw", "w0", "w_scale")}
        self._rows: dict[str, list[Any]] = {key: [] for key in ("g", "lbg", "ubg", "g_scale")}
        self._parameters: list[tuple[ca.SX, np.ndarray]] = []
        self._switched: list[tuple[ca.SX, Callable[[ca.SX, ca.SX], ca.SX]]] = []
        self._required: list[bool] = []
        self.groups: list[Group] = []
        self.layouts = {key: Layout() for key in ("variables", "parameters", "constraints", "switched")}
        self.left, self.right = _Quantities(), _Quantities()

    def variable(
        self,
        name: str,
        at: At,
        components: Sequence[str],
        lower: Any = -np.inf,
        upper: Any = np.inf,
        initial: Any = 0.0,
        scale: Any = 1.0,
        *,
        role: Enum | None = None,
        edge: ElementEnd | None = None,
        of: str = "",
    ) -> ca.SX:
        """Append a variable and return its symbols."""
        self.layouts["variables"].add(name, at, tuple(components), role, edge, of)
        size = len(components)
        # Names for printed expressions only; `layouts` decides which row is what.
        place = "_".join(str(c) for c in (at.stage, at.element, at.rk) if c is not None)
        symbol = ca.SX.sym(f"{name}_{place}", size)
        self._symbols.append(symbol)
        for key, value in (("lbw", lower), ("ubw", upper), ("w0", initial), ("w_scale", scale)):
            self._numbers[key].append(np.broadcast_to(np.asarray(value, float), (size,)))
        return symbol

    def parameter(self, name: str, components: Sequence[str], value: Any, *, role: Enum | None = None) -> ca.SX:
        """Append a parameter and return its symbols."""
        self.layouts["parameters"].add(name, At(), tuple(components), role)
        symbol = ca.SX.sym(name, len(components))
        self._parameters.append((symbol, np.broadcast_to(np.asarray(value, float), (len(components),))))
        return symbol

    def constraint(
        self,
        name: str,
        at: At,
        expression: ca.SX,
        components: Sequence[str] | None = None,
        lower: Any = 0.0,
        upper: Any = 0.0,
        scale: Any = 1.0,
        *,
        role: Enum | None = None,
        edge: ElementEnd | None = None,
    ) -> None:
        """Append lower <= expression <= upper; by default the equation expression = 0."""
        size = expression.numel()
        if components is None:
            components = [name] if size == 1 else [f"{name}[{i}]" for i in range(size)]
        self.layouts["constraints"].add(name, at, tuple(components), role, edge)
        self._rows["g"].append(expression)
        for key, value in (("lbg", lower), ("ubg", upper), ("g_scale", scale)):
            self._rows[key].append(np.broadcast_to(np.asarray(value, float), (size,)))

    def group(self, left: np.ndarray, right: np.ndarray, **kind: Any) -> None:
        """Make every product of a left and a right row vanish; `kind` are further fields of `Group`."""
        # An empty side would count as zero everywhere (`Side.all`). A quantity that is stored once may be listed twice.
        if len(left) and len(right):
            self.groups.append(Group(np.unique(left), np.unique(right), **kind))

    def switch(
        self,
        name: str,
        at: At,
        residual: ca.SX,
        indicator: Callable[[ca.SX, ca.SX], ca.SX],
        *,
        required: bool = False,
        role: Enum | None = None,
    ) -> None:
        """Append a switched equation: residual = 0 wherever indicator(G, H) is positive.

        A `required` equation belongs to the problem itself, see `MPCC`.
        """
        self.layouts["switched"].add(name, at, (name,), role)
        self._required.append(required)
        # The indicator is called in `build`: only then all rows of G and H exist.
        self._switched.append((residual, indicator))

    def quantities(self) -> tuple[ca.SX, ca.SX]:
        """Return G and H as collected so far."""
        return ca.vertcat(ca.SX(0, 1), *self.left.expressions), ca.vertcat(ca.SX(0, 1), *self.right.expressions)

    def build(self, *, aggregation: str, enforce_switched: bool) -> MPCC:
        """Create the MPCC from everything that was collected."""
        w = ca.vertcat(*self._symbols)
        numbers: dict[str, Any] = {key: np.concatenate(value) for key, value in self._numbers.items()}
        rows: dict[str, Any] = {k: np.concatenate([np.zeros(0), *self._rows[k]]) for k in ("lbg", "ubg", "g_scale")}
        layouts: dict[str, Any] = self.layouts
        G, H = self.quantities()
        plain = np.concatenate([_plain_variables(G, w), _plain_variables(H, w)])
        plain = plain[plain >= 0]
        # Nonnegativity of rows that are variables becomes a bound, which solvers treat better than a constraint.
        numbers["lbw"][plain] = np.maximum(numbers["lbw"][plain], 0.0)
        # The indicators as functions of G and H alone: a branch evaluates them on its pattern of zeros.
        symbol_G, symbol_H = ca.SX.sym("G", G.numel()), ca.SX.sym("H", H.numel())
        eta = ca.vertcat(ca.SX(0, 1), *[indicator(symbol_G, symbol_H) for _, indicator in self._switched])
        return MPCC(
            w=w,
            p=ca.vertcat(ca.SX(0, 1), *[symbol for symbol, _ in self._parameters]),
            p0=np.concatenate([np.zeros(0), *[value for _, value in self._parameters]]),
            objective=self.objective,
            penalty=self.penalty,
            g=ca.vertcat(ca.SX(0, 1), *self._rows["g"]),
            G=G,
            H=H,
            r=ca.vertcat(ca.SX(0, 1), *[residual for residual, _ in self._switched]),
            indicator=ca.Function("indicator", [symbol_G, symbol_H], [eta]),
            **rows,
            **numbers,
            groups=tuple(self.groups),
            aggregation=aggregation,
            enforce_switched=enforce_switched,
            required=np.array(self._required, bool),
            left=self.left.layout,
            right=self.right.layout,
            **layouts,
        )


def _plain_variables(quantities: ca.SX, w: ca.SX) -> np.ndarray:
    """Return the index in w of every quantity that is a variable, -1 for expressions."""
    position = {w[i].element_hash(): i for i in range(w.numel())}
    rows = [position.get(q.element_hash(), -1) if q.is_symbolic() else -1 for q in ca.vertsplit(quantities)]
    return np.array(rows if quantities.numel() else [], dtype=int)
