"""Runge-Kutta schemes as Butcher tableaus, computed for any number of stages.

One step of size h from x_n to x_{n+1} of x' = f(t, x) with the n_s stage derivatives k_i (FESD-J, Section 3.1):

    k_i     = f(t_n + c_i h, x_n + h sum_j a_ij k_j),    i = 1, ..., n_s,
    x_{n+1} = x_n + h sum_i b_i k_i.

Collocation schemes are determined by their nodes c alone: with l_j the Lagrange polynomials of the nodes,
a_ij is the integral of l_j over [0, c_i] and b_j the one over [0, 1] (Hairer, Norsett, Wanner, Theorem II.7.7).
A new scheme is one function ``stages -> ButcherTableau`` and one line in `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import ArrayLike, NDArray

from nosnoc_py.errors import OptionError, unknown_name

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ButcherTableau:
    """The coefficients of a Runge-Kutta scheme; the arrays are read-only copies of what is given.

    Parameters
    ----------
    name : str
        Name of the scheme, as in `FAMILIES`.
    a : array, shape (n_s, n_s)
        Weights of the stage derivatives within the stages.
    b : array, shape (n_s,)
        Weights of the stage derivatives in the step.
    c : array, shape (n_s,)
        Nodes, as fractions of the step.
    order : int
        Classical order: on smooth problems the global error is O(h^order).

    Raises
    ------
    OptionError
        If the shapes of a, b and c do not fit together.
    """

    name: str
    a: Array
    b: Array
    c: Array
    order: int

    def __post_init__(self) -> None:
        for field in ("a", "b", "c"):
            object.__setattr__(self, field, _read_only(getattr(self, field)))
        n_s = self.c.size
        if n_s == 0 or (self.a.shape, self.b.shape, self.c.shape) != ((n_s, n_s), (n_s,), (n_s,)):
            raise OptionError(
                f"tableau {self.name!r}: a, b, c need the shapes (n_s, n_s), (n_s,), (n_s,) with n_s >= 1; "
                f"given {self.a.shape}, {self.b.shape}, {self.c.shape}."
            )

    @property
    def stages(self) -> int:
        """Number of stages n_s."""
        return self.c.size

    @property
    def stiffly_accurate(self) -> bool:
        """Whether the last stage is the end of the step: c[-1] == 1 and a[-1] == b, exactly.

        Then x_{n+1} and the algebraic variables at t_{n+1} are those of the last stage, and a finite element needs
        no variables of its own at its right boundary.
        """
        return bool(self.c[-1] == 1.0 and np.array_equal(self.a[-1], self.b))

    def __repr__(self) -> str:
        return f"ButcherTableau({self.name!r}, stages={self.stages}, order={self.order})"


def radau_iia(stages: int) -> ButcherTableau:
    """Radau IIA: order 2 n_s - 1, stiffly accurate, L-stable; one stage is the implicit Euler scheme.

    The nodes are the roots of P_s - P_{s-1}, the Legendre polynomials shifted to [0, 1]; the last one is 1.
    """
    _require_stages(stages)
    difference = np.zeros(stages + 1)
    difference[-2:] = -1.0, 1.0
    nodes = _shifted_roots(difference)
    nodes[-1] = 1.0  # a root by construction; exact, so that the end of a step and its last stage are one point
    return _collocation("radau_iia", nodes, order=2 * stages - 1)


def gauss_legendre(stages: int) -> ButcherTableau:
    """Gauss-Legendre: order 2 n_s, A-stable, symplectic; one stage is the implicit midpoint rule.

    The nodes are the roots of P_s, the Legendre polynomial shifted to [0, 1]; the last one is below 1.
    """
    _require_stages(stages)
    polynomial = np.zeros(stages + 1)
    polynomial[-1] = 1.0
    return _collocation("gauss_legendre", _shifted_roots(polynomial), order=2 * stages)


FAMILIES: Mapping[str, Callable[[int], ButcherTableau]] = MappingProxyType(
    {
        "radau_iia": radau_iia,
        "gauss_legendre": gauss_legendre,
    }
)


def tableau(scheme: str, stages: int) -> ButcherTableau:
    """Return the tableau of a scheme by its name in `FAMILIES`.

    Parameters
    ----------
    scheme : str
        Name of the family, for example ``"radau_iia"``.
    stages : int
        Number of stages n_s >= 1.

    Raises
    ------
    OptionError
        If the scheme is unknown or the number of stages is not a positive integer.
    """
    if scheme not in FAMILIES:
        raise OptionError(unknown_name(scheme, FAMILIES, "Runge-Kutta scheme"))
    return FAMILIES[scheme](stages)


def integrated_lagrange_basis(nodes: ArrayLike, upper: ArrayLike) -> Array:
    """Integrate the Lagrange polynomials of the nodes from 0 to each upper limit.

    With the nodes c of a collocation scheme, `upper` = c gives its a, 1 gives its b, and any theta in [0, 1] the
    weights of the dense output x(t_n + theta h) = x_n + h sum_j w_j(theta) k_j.

    Parameters
    ----------
    nodes : array_like, shape (n_s,)
        Distinct nodes.
    upper : array_like, shape (m,)
        Upper limits of the integrals.

    Returns
    -------
    array, shape (m, n_s)
        Entry (i, j) is the integral of l_j over [0, upper_i], to rounding: a Gauss rule that is exact for the degree
        n_s - 1 of the l_j, evaluated by their product form (no Vandermonde matrix, so it stays accurate for many
        stages).
    """
    nodes = np.atleast_1d(np.asarray(nodes, dtype=float))
    upper = np.atleast_1d(np.asarray(upper, dtype=float))
    points, weights = legendre.leggauss((nodes.size + 1) // 2)
    abscissae = 0.5 * np.multiply.outer(upper, 1.0 + points)  # (m, number of Gauss points)
    values = _lagrange_basis(nodes, abscissae) * weights[:, None]
    integrals: Array = 0.5 * upper[:, None] * values.sum(axis=1)
    return integrals


def _lagrange_basis(nodes: Array, at: Array) -> Array:
    """Values of all Lagrange polynomials of the nodes: shape (*at.shape, n_s)."""
    basis = np.empty((*at.shape, nodes.size))
    for j, node in enumerate(nodes):
        others = np.delete(nodes, j)
        basis[..., j] = np.prod((at[..., None] - others) / (node - others), axis=-1)
    return basis


def _collocation(name: str, nodes: Array, order: int) -> ButcherTableau:
    """The collocation scheme of the nodes."""
    # One call for a and b: with a last node of 1 the last row of a and b are then equal to the last bit.
    integrals = integrated_lagrange_basis(nodes, np.append(nodes, 1.0))
    return ButcherTableau(name, a=integrals[:-1], b=integrals[-1], c=nodes, order=order)


def _shifted_roots(series: Array) -> Array:
    """Ascending roots in [0, 1] of a Legendre series on [-1, 1] whose roots are real and simple."""
    roots = np.sort(legendre.legroots(series).real)
    # The eigenvalues behind `legroots` lose a few digits; two Newton steps give them back.
    derivative = legendre.legder(series)
    for _ in range(2):
        roots = roots - legendre.legval(roots, series) / legendre.legval(roots, derivative)
    shifted: Array = 0.5 * (1.0 + roots)
    return shifted


def _require_stages(stages: int) -> None:
    if isinstance(stages, bool) or not isinstance(stages, int | np.integer) or stages < 1:
        raise OptionError(f"the number of Runge-Kutta stages is an integer of at least 1; given {stages!r}.")


def _read_only(values: ArrayLike) -> Array:
    array = np.array(values, dtype=float)
    array.setflags(write=False)
    return array
