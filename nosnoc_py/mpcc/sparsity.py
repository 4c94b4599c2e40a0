"""Where the derivatives of an MPCC have entries: plain index arrays, for pictures and for counting."""

from __future__ import annotations

from dataclasses import dataclass

import casadi as ca
import numpy as np
import numpy.typing as npt

from nosnoc_py.mpcc.program import MPCC

Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Pattern:
    """Rows and columns (entries,) of the structural nonzeros of a matrix."""

    rows: Indices
    columns: Indices
    shape: tuple[int, int]

    @property
    def entries(self) -> int:
        """How many there are."""
        return int(self.rows.size)

    @classmethod
    def of(cls, sparsity: ca.Sparsity) -> Pattern:
        """The entries of CasADi's pattern, column by column."""
        rows, columns = sparsity.get_triplet()
        return cls(rows=np.array(rows, dtype=int), columns=np.array(columns, dtype=int), shape=sparsity.shape)


@dataclass(frozen=True, eq=False, kw_only=True)
class Derivatives:
    """Patterns of the derivatives by w of the problem as a relaxed NLP sees it.

    Attributes
    ----------
    sections : dict of str to int
        Names and numbers of rows of the parts of the Jacobian, from the top: g, the switched equations r that solvers
        impose, G, H, and the aggregated products G H.
    jacobian : Pattern
        Of all these rows.
    hessian : Pattern
        Of the Lagrangian: objective, penalty, and these rows with multipliers.
    """

    sections: dict[str, int]
    jacobian: Pattern
    hessian: Pattern


def derivatives(mpcc: MPCC) -> Derivatives:
    """Return the patterns of the constraint Jacobian and of the Hessian of the Lagrangian."""
    first, second = mpcc.products()
    imposed = [int(row) for row in np.flatnonzero(mpcc.relaxed)]
    parts = {"g": mpcc.g, "r": mpcc.r[imposed], "G": mpcc.G, "H": mpcc.H, "G H": first * second}
    rows = ca.densify(ca.vertcat(ca.SX(0, 1), *parts.values()))
    multipliers = ca.SX.sym("multipliers", rows.numel())
    lagrangian = mpcc.objective + mpcc.penalty + ca.dot(multipliers, rows)
    return Derivatives(
        sections={name: part.numel() for name, part in parts.items() if part.numel()},
        jacobian=Pattern.of(ca.jacobian_sparsity(rows, mpcc.w)),
        hessian=Pattern.of(ca.jacobian_sparsity(ca.gradient(lagrangian, mpcc.w), mpcc.w)),
    )
