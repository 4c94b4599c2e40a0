"""The MPCC, the one narrow waist between discretisation and solvers, and the builder that collects its parts.

minimise    objective(w, p) + penalty(w, p)
subject to  lbw <= w <= ubw,  lbg <= g(w, p) <= ubg,
            G(w, p) >= 0,  H(w, p) >= 0,
            G_i H_j = 0 for every i in group.left, j in group.right, for every group,
            r_m(w, p) = 0 or eta_m(G, H) = 0 for every switched equation m.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.mpcc.layout import At, Layout

AGGREGATIONS = ("stage_stage", "stage_fe", "fe_stage", "fe_fe")


@dataclass(frozen=True, eq=False)
class Group:
    """Rows of G and of H such that every product of one of each vanishes.

    `summed` groups are always handed to a solver as the product of two sums, whatever the aggregation. In a `split`
    group left and right are the two parts of a signed quantity: only their difference matters, so an active set need
    not choose a sign.
    """

    left: np.ndarray
    right: np.ndarray
    summed: bool = False
    split: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class MPCC:
    """A mathematical program with complementarity constraints, in the user's units.

    G and H hold every nonnegative quantity once; `groups` says which products vanish, `aggregation` how a solver
    may add them up ("fe_stage" multiplies the sum of the left quantities with every right one, and so on). Residuals
    are always taken over the single products. `switched` equations (step equilibration) hold wherever their
    indicator is positive; `enforce_switched` tells solvers to impose them, otherwise only the active-set finish does.

    Attributes
    ----------
    w, p : SX (n_w,), (n_p,)
    objective, penalty : SX scalar
        The penalty (heuristic step equilibration) is never part of a reported objective.
    g, G, H, r : SX
    indicator : Function
        (G, H) -> eta, one nonnegative number per switched equation.
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
    G_variable: np.ndarray
    H_variable: np.ndarray
    groups: tuple[Group, ...]
    aggregation: str = "fe_stage"
    enforce_switched: bool = False
    variables: Layout = field(default_factory=Layout)
    parameters: Layout = field(default_factory=Layout)
    constraints: Layout = field(default_factory=Layout)
    left: Layout = field(default_factory=Layout)
    right: Layout = field(default_factory=Layout)
    switched: Layout = field(default_factory=Layout)

    def pairs(self) -> tuple[np.ndarray, np.ndarray]:
        """Index arrays (i, j) of all single products G_i H_j that vanish."""
        grids = [np.meshgrid(group.left, group.right, indexing="ij") for group in self.groups]
        if not grids:
            return np.zeros(0, int), np.zeros(0, int)
        return np.concatenate([i.ravel() for i, _ in grids]), np.concatenate([j.ravel() for _, j in grids])

    def products(self) -> tuple[ca.SX, ca.SX]:
        """The two factors of the aggregated products, as a solver sees them."""
        lefts, rights = [], []
        for group in self.groups:
            aggregate = AGGREGATE["fe_fe" if group.summed else self.aggregation]
            for rows_left, rows_right in aggregate(group.left, group.right):
                lefts.append(ca.sum1(self.G[rows_left]))
                rights.append(ca.sum1(self.H[rows_right]))
        return ca.vertcat(*lefts), ca.vertcat(*rights)

    def __repr__(self) -> str:
        pairs = len(self.pairs()[0])
        return (
            f"MPCC: {self.w.numel()} variables, {self.p.numel()} parameters, {self.g.numel()} constraints\n"
            f"  {self.G.numel()} + {self.H.numel()} nonnegative quantities, {pairs} products in {len(self.groups)} "
            f"groups ({self.aggregation}), {self.r.numel()} switched equations\n  {self.variables!r}"
        )


Rows = list[int]


def _each(rows: np.ndarray) -> list[Rows]:
    return [[int(i)] for i in rows]


def _all(rows: np.ndarray) -> list[Rows]:
    return [[int(i) for i in rows]]


def _products(left: list[Rows], right: list[Rows]) -> list[tuple[Rows, Rows]]:
    return [(i, j) for i in left for j in right]


AGGREGATE: dict[str, Callable[[np.ndarray, np.ndarray], list[tuple[Rows, Rows]]]] = {
    "stage_stage": lambda left, right: _products(_each(left), _each(right)),
    "stage_fe": lambda left, right: _products(_each(left), _all(right)),
    "fe_stage": lambda left, right: _products(_all(left), _each(right)),
    "fe_fe": lambda left, right: _products(_all(left), _all(right)),
}


class _Side:
    """The nonnegative quantities of one side; the same quantity at the same arguments is stored once."""

    def __init__(self) -> None:
        self.expressions: list[ca.SX] = []
        self.layout = Layout()
        self._rows: dict[tuple[Any, ...], int] = {}

    def add(self, labels: Sequence[str], values: ca.SX, at: At) -> np.ndarray:
        return np.array([self._add(labels[i], values[i], at) for i in range(values.numel())], dtype=int)

    def _add(self, label: str, value: ca.SX, at: At) -> int:
        key = (label, tuple(sorted(s.element_hash() for s in ca.symvar(value))))
        if key not in self._rows or not key[1]:
            self._rows[key] = self.layout.add(label, at, (label,)).start
            self.expressions.append(value)
        return self._rows[key]


class ProgramBuilder:
    """Collects variables, constraints, nonnegative quantities and groups; `build` freezes them into an `MPCC`."""

    def __init__(self) -> None:
        self.objective: ca.SX = ca.SX(0)
        self.penalty: ca.SX = ca.SX(0)
        self._symbols: list[ca.SX] = []
        self._numbers: dict[str, list[np.ndarray]] = {key: [] for key in ("lbw", "ubw", "w0", "w_scale")}
        self._rows: dict[str, list[Any]] = {key: [] for key in ("g", "lbg", "ubg", "g_scale")}
        self._parameters: list[tuple[ca.SX, np.ndarray]] = []
        self._switched: list[tuple[ca.SX, Callable[[ca.SX, ca.SX], ca.SX]]] = []
        self.groups: list[Group] = []
        self.layouts = {key: Layout() for key in ("variables", "parameters", "constraints", "switched")}
        self.left, self.right = _Side(), _Side()

    def variable(
        self,
        name: str,
        at: At,
        components: Sequence[str],
        lower: Any = -np.inf,
        upper: Any = np.inf,
        initial: Any = 0.0,
        scale: Any = 1.0,
    ) -> ca.SX:
        """Append a variable and return its symbols."""
        self.layouts["variables"].add(name, at, tuple(components))
        size = len(components)
        place = "_".join(str(c) for c in (at.stage, at.element, at.rk) if c is not None)
        symbol = ca.SX.sym(f"{name}_{place}", size)
        self._symbols.append(symbol)
        for key, value in (("lbw", lower), ("ubw", upper), ("w0", initial), ("w_scale", scale)):
            self._numbers[key].append(np.broadcast_to(np.asarray(value, float), (size,)))
        return symbol

    def parameter(self, name: str, components: Sequence[str], value: Any) -> ca.SX:
        """Append a parameter and return its symbols."""
        self.layouts["parameters"].add(name, At(), tuple(components))
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
    ) -> None:
        """Append lower <= expression <= upper; by default the equation expression = 0."""
        size = expression.numel()
        if components is None:
            components = [name] if size == 1 else [f"{name}[{i}]" for i in range(size)]
        self.layouts["constraints"].add(name, at, tuple(components))
        self._rows["g"].append(expression)
        for key, value in (("lbg", lower), ("ubg", upper), ("g_scale", scale)):
            self._rows[key].append(np.broadcast_to(np.asarray(value, float), (size,)))

    def group(self, left: np.ndarray, right: np.ndarray, *, summed: bool = False, split: bool = False) -> None:
        """Every product of a left and a right row vanishes."""
        if len(left) and len(right):
            self.groups.append(Group(np.unique(left), np.unique(right), summed, split))

    def switch(self, name: str, at: At, residual: ca.SX, indicator: Callable[[ca.SX, ca.SX], ca.SX]) -> None:
        """residual = 0 wherever indicator(G, H) is positive."""
        self.layouts["switched"].add(name, at, (name,))
        self._switched.append((residual, indicator))

    def quantities(self) -> tuple[ca.SX, ca.SX]:
        """G and H as collected so far."""
        return ca.vertcat(ca.SX(0, 1), *self.left.expressions), ca.vertcat(ca.SX(0, 1), *self.right.expressions)

    def build(self, *, aggregation: str, enforce_switched: bool) -> MPCC:
        """Freeze everything that was collected."""
        w = ca.vertcat(*self._symbols)
        numbers: dict[str, Any] = {key: np.concatenate(value) for key, value in self._numbers.items()}
        rows: dict[str, Any] = {k: np.concatenate([np.zeros(0), *self._rows[k]]) for k in ("lbg", "ubg", "g_scale")}
        layouts: dict[str, Any] = self.layouts
        G, H = self.quantities()
        G_variable, H_variable = _plain_variables(G, w), _plain_variables(H, w)
        plain = np.concatenate([G_variable, H_variable])
        plain = plain[plain >= 0]
        numbers["lbw"][plain] = np.maximum(numbers["lbw"][plain], 0.0)
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
            G_variable=G_variable,
            H_variable=H_variable,
            groups=tuple(self.groups),
            aggregation=aggregation,
            enforce_switched=enforce_switched,
            left=self.left.layout,
            right=self.right.layout,
            **layouts,
        )


def _plain_variables(quantities: ca.SX, w: ca.SX) -> np.ndarray:
    """Index in w of every quantity that is a variable itself, -1 for the others."""
    position = {w[i].element_hash(): i for i in range(w.numel())}
    rows = [position.get(q.element_hash(), -1) if q.is_symbolic() else -1 for q in ca.vertsplit(quantities)]
    return np.array(rows if quantities.numel() else [], dtype=int)
