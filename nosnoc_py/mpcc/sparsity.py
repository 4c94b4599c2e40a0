"""Where the derivatives of an MPCC have entries: for pictures and for counting."""

from __future__ import annotations

import casadi as ca
import numpy as np

from nosnoc_py.mpcc.program import MPCC


def derivatives(mpcc: MPCC) -> tuple[dict[str, int], ca.Sparsity, ca.Sparsity]:
    """Patterns of the derivatives by w of the problem as a relaxed NLP sees it.

    Returns
    -------
    sections : dict of str to int
        Names and numbers of rows of the parts of the Jacobian, from the top: g, the switched equations r that solvers
        impose, G, H, and the aggregated products G H.
    jacobian : Sparsity
        Of all these rows.
    hessian : Sparsity
        Of the Lagrangian: objective, penalty, and these rows with multipliers.
    """
    first, second = mpcc.products()
    imposed = np.flatnonzero(mpcc.relaxed).tolist()
    parts = {"g": mpcc.g, "r": mpcc.r[imposed], "G": mpcc.G, "H": mpcc.H, "G H": first * second}
    rows = ca.densify(ca.vertcat(ca.SX(0, 1), *parts.values()))
    multipliers = ca.SX.sym("multipliers", rows.numel())
    slope = ca.gradient(mpcc.objective + mpcc.penalty + ca.dot(multipliers, rows), mpcc.w)
    sections = {name: part.numel() for name, part in parts.items() if part.numel()}
    return sections, ca.jacobian_sparsity(rows, mpcc.w), ca.jacobian_sparsity(slope, mpcc.w)
