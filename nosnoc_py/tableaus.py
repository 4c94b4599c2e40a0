"""Runge-Kutta schemes as Butcher tableaus, and the Lagrange polynomials they are made of: numbers only.

One step of size h from x_n to x_{n+1} of x' = f(t, x) with the n_s stage derivatives k_i (FESD-J, Section 3.1):

    k_i     = f(t_n + c_i h, x_n + h sum_j a_ij k_j),    i = 1, ..., n_s,
    x_{n+1} = x_n + h sum_i b_i k_i.

Collocation schemes are determined by their nodes c alone: with l_j the Lagrange polynomials of the nodes,
a_ij is the integral of l_j over [0, c_i] and b_j the one over [0, 1] (Hairer, Norsett, Wanner, Theorem II.7.7).
They are computed by Gauss quadrature of the product form of l_j, which stays accurate to rounding for many stages;
Vandermonde systems would lose digits. Nodes at the ends of the step are exactly 0 or 1, so that a stage and an end are
the same point and not two points that differ by rounding.
A new scheme is one function ``stages -> Tableau`` and one line in `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import ArrayLike, NDArray

from nosnoc_py.declared import assign
from nosnoc_py.errors import OptionError, is_whole, unknown_name

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Tableau:
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
    error : array, shape (n_s,), optional
        Weights of the difference to an embedded scheme, an estimate of the error of a step divided by h.
    extension : array, shape (n_s, degree), optional
        Coefficients of theta, theta^2, ... in the weights of a continuous extension: the state at t_n + theta h.

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
    error: Array | None = None
    extension: Array | None = None

    def __post_init__(self) -> None:
        for field in ("a", "b", "c", "error", "extension"):
            if getattr(self, field) is not None:
                # Copies, as a user's array could change later; read-only, as tableaus are cached and shared.
                assign(self, **{field: np.array(getattr(self, field), dtype=float)})
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
        """True if the last stage is the end of the step: c[-1] == 1 and a[-1] == b, exactly.

        Then x_{n+1} and the algebraic variables at t_{n+1} are those of the last stage, and a finite element needs
        no variables of its own at its right boundary.
        """
        return bool(self.c[-1] == 1.0 and np.array_equal(self.a[-1], self.b))

    @property
    def is_explicit(self) -> bool:
        """True if every stage follows from those before it."""
        return not np.triu(self.a).any()

    @property
    def invertible(self) -> bool:
        """True if A is: stage derivatives then follow from the states at the stages."""
        return int(np.linalg.matrix_rank(self.a)) == self.stages

    @property
    def starts_left(self) -> bool:
        """True if the first stage is the beginning of the step, exactly: c[0] == 0 and a[0] == 0."""
        return bool(self.c[0] == 0.0 and not self.a[0].any())

    @property
    def off_trajectory_stages(self) -> NDArray[np.bool_]:
        """Mask (n_s,) of the stages whose node is an end of the step but whose state differs from the state there.

        If the solution reaches the boundary of its region exactly at this end, the state of such a stage may lie
        beyond the boundary.
        """
        left, right = self.c == 0.0, self.c == 1.0
        # A first stage that is the left end exactly, and a last one that is the right end, lie on the trajectory.
        left[0] &= not self.starts_left
        right[-1] &= not self.stiffly_accurate
        return left | right

    @property
    def is_collocation(self) -> bool:
        """True if the states at the stages are values of one polynomial, at distinct nodes after the left end."""
        if self.c[0] <= 0.0 or len(np.unique(self.c)) < self.stages:
            return False
        return bool(np.allclose(self.a, integrated_lagrange_basis(self.c, self.c), rtol=0, atol=1e-12))

    @property
    def merge(self) -> tuple[Array, Array]:
        """Distinct nodes (k,), and the weights (k, n_s) that average over stages with the same node, by their b."""
        nodes, place = np.unique(self.c, return_inverse=True)
        weights = np.zeros((nodes.size, self.stages))
        weights[place, np.arange(self.stages)] = self.b
        # Schemes may have several stages at one node (the classical one at 1/2): b weighs them as in the step.
        return nodes, weights / weights.sum(axis=1, keepdims=True)

    @property
    def dense_c(self) -> Array:
        """Distinct nodes in (0, 1] at which dense output is given: c, or as many Radau nodes as c has distinct ones."""
        return self.c if self.is_collocation else radau_iia(self.merge[0].size).c

    @property
    def dense_weights(self) -> Array:
        """Weights (nodes, n_s) of the stage derivatives in the states at `dense_c`.

        x(t_n + theta h) = x_n + h sum_j w_j(theta) k_j with the integrated interpolation of the stage derivatives; its
        end is x_{n+1} because b integrates polynomials of this degree.
        """
        if self.is_collocation:
            return self.a
        nodes, average = self.merge
        return integrated_lagrange_basis(nodes, self.dense_c) @ average

    @property
    def end_weights(self) -> Array:
        """Weights (n_s,) that extend values at the stages to the right end of the step."""
        nodes, average = self.merge
        return lagrange_basis(nodes, np.ones(1))[0] @ average

    def step(self, f: Callable[[float, Any], Any], x: Any, h: Any) -> Any:
        """Return the end of a step of length h of an explicit scheme from x, numbers or CasADi expressions.

        `f(theta, x)` is the slope at the fraction theta of the step.
        """
        slopes: list[Any] = []
        for theta, row in zip(self.c, self.a, strict=True):
            # Zero entries are left out, so that symbolic expressions do not contain products with zero.
            slopes.append(f(float(theta), x + h * sum(a * k for a, k in zip(row, slopes, strict=False) if a)))
        return x + h * sum(b * k for b, k in zip(self.b, slopes, strict=True) if b)

    def __repr__(self) -> str:
        return f"Tableau({self.name!r}, stages={self.stages}, order={self.order})"


def radau_iia(stages: int) -> Tableau:
    """Radau IIA: order 2 n_s - 1, stiffly accurate, L-stable; one stage is the implicit Euler scheme.

    The nodes are the roots of P_s - P_{s-1}, the Legendre polynomials shifted to [0, 1]; the last one is 1.
    """
    nodes = _legendre_nodes(stages, -1.0, 1.0)
    nodes[-1] = 1.0  # a root by construction; exact, so that the end of a step and its last stage are one point
    return _collocation("radau_iia", nodes, order=2 * stages - 1)


def gauss_legendre(stages: int) -> Tableau:
    """Gauss-Legendre: order 2 n_s, A-stable, symplectic; one stage is the implicit midpoint rule.

    The nodes are the roots of P_s, the Legendre polynomial shifted to [0, 1]; the last one is below 1.
    """
    return _collocation("gauss_legendre", _legendre_nodes(stages, 1.0), order=2 * stages)


def radau_i(stages: int) -> Tableau:
    """Radau I: collocation at the left Radau nodes, order 2 n_s - 1; one stage is the explicit Euler scheme.

    The nodes are the roots of P_s + P_{s-1} on [0, 1]; the first one is 0, where nothing is unknown: A is singular.
    """
    nodes = _legendre_nodes(stages, 1.0, 1.0)
    nodes[0] = 0.0  # a root by construction; exact, so that the first stage and the left end are one point
    return _collocation("radau_i", nodes, order=2 * stages - 1)


def lobatto_iiic(stages: int) -> Tableau:
    """Lobatto IIIC: order 2 n_s - 2, stiffly accurate, L-stable; two stages at least.

    The nodes are the roots of P_s - P_{s-2} on [0, 1], both ends among them. A follows from a_i1 = b_1 and C(n_s - 1):
    with l_j the Lagrange polynomials of the nodes but the first, a_ij is the integral of l_j over [0, c_i] minus
    b_1 l_j(0) (Hairer, Wanner, Section IV.5).
    """
    _require_stages(stages)
    if stages < 2:
        raise OptionError(f"lobatto_iiic has two stages at least; given rk_stages={stages!r}.")
    nodes = _legendre_nodes(stages, -1.0, 0.0, 1.0)
    nodes[0], nodes[-1] = 0.0, 1.0
    b = integrated_lagrange_basis(nodes, 1.0)[0]
    later = integrated_lagrange_basis(nodes[1:], nodes) - b[0] * lagrange_basis(nodes[1:], np.zeros(1))
    a = np.column_stack([np.full(stages, b[0]), later])
    a[-1] = b  # the same numbers but for rounding: the end of a step is its last stage
    return Tableau("lobatto_iiic", a=a, b=b, c=nodes, order=2 * stages - 2)


EXPLICIT: Mapping[int, tuple[list[list[float]], list[float]]] = MappingProxyType(
    {
        1: ([[0.0]], [1.0]),
        2: ([[0.0, 0.0], [1.0, 0.0]], [1 / 2, 1 / 2]),
        3: ([[0.0, 0.0, 0.0], [1 / 2, 0.0, 0.0], [-1.0, 2.0, 0.0]], [1 / 6, 2 / 3, 1 / 6]),
        4: (
            [[0.0, 0.0, 0.0, 0.0], [1 / 2, 0.0, 0.0, 0.0], [0.0, 1 / 2, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]],
            [1 / 6, 1 / 3, 1 / 3, 1 / 6],
        ),
    }
)


def explicit(stages: int) -> Tableau:
    """Explicit schemes of order n_s: Euler, Heun, Kutta's of third order, and the classical one of fourth order.

    More stages than four give less than one order each, so that no family goes on there.
    """
    _require_stages(stages)
    if stages not in EXPLICIT:
        raise OptionError(
            f"explicit schemes have 1 to 4 stages (Euler, Heun, Kutta, the classical one), given {stages!r}; for a "
            "higher order use scheme='radau_iia'."
        )
    a, b = EXPLICIT[stages]
    return Tableau("explicit", a=np.array(a), b=np.array(b), c=np.sum(a, axis=1), order=stages)


def dopri5() -> Tableau:
    """Dormand and Prince's scheme of fifth order, with the embedded one of order four and an extension of order four.

    Its seventh stage is the first one of the next step (Hairer, Norsett, Wanner, Table II.5.2 and Section II.6).
    """
    from scipy.integrate import RK45  # not paid for by an import of the library

    a = np.zeros((7, 7))
    a[:6, :5], a[6, :6] = RK45.A, RK45.B
    # SciPy's E is the embedded scheme minus b; here it is b minus the embedded scheme.
    error = -np.asarray(RK45.E)
    return Tableau("dopri5", a=a, b=a[-1], c=np.append(RK45.C, 1.0), order=5, error=error, extension=RK45.P)


FAMILIES: Mapping[str, Callable[[int], Tableau]] = MappingProxyType(
    {
        "radau_iia": radau_iia,
        "gauss_legendre": gauss_legendre,
        "radau_i": radau_i,
        "lobatto_iiic": lobatto_iiic,
        "explicit": explicit,
    }
)


def tableau(scheme: str, stages: int) -> Tableau:
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
    return _known(scheme, stages) if type(stages) is int else FAMILIES[scheme](stages)


@lru_cache(maxsize=64)
def _known(scheme: str, stages: int) -> Tableau:
    return FAMILIES[scheme](stages)


def lagrange_basis(nodes: Array, tau: Array) -> Array:
    """Values of the Lagrange polynomials of some nodes (k,) at points tau, as (*tau.shape, k); exact at the nodes."""
    own = np.arange(nodes.size)
    # The identity avoids a division by zero on the diagonal, whose factors are then replaced by one.
    factors = (tau[..., None, None] - nodes) / (nodes[:, None] - nodes + np.eye(nodes.size))
    factors[..., own, own] = 1.0
    return factors.prod(axis=-1)


def lagrange_derivative(nodes: Array) -> Array:
    """Return derivatives (k, k) of the Lagrange polynomials of some nodes at these nodes: entry (i, j) is l_j'(c_i)."""
    away = nodes[:, None] - nodes + np.eye(nodes.size)
    scale = away.prod(axis=1)
    # l_j'(c_i) = w_i / (w_j (c_i - c_j)) with w the products of node differences (Berrut and Trefethen 2004).
    slopes: Array = scale[:, None] / (scale * away)
    # The derivative of the constant one is zero, which gives the diagonal without cancellation of large powers.
    np.fill_diagonal(slopes, 0.0)
    np.fill_diagonal(slopes, -slopes.sum(axis=1))
    return slopes


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
    # The Gauss rule with m points is exact up to degree 2 m - 1, and the polynomials have degree n_s - 1.
    points, weights = legendre.leggauss((nodes.size + 1) // 2)
    abscissae = 0.5 * np.multiply.outer(upper, 1.0 + points)  # (m, number of Gauss points)
    values = lagrange_basis(nodes, abscissae) * weights[:, None]
    return 0.5 * upper[:, None] * values.sum(axis=1)


def _collocation(name: str, nodes: Array, order: int) -> Tableau:
    """Return the collocation scheme of the nodes."""
    # One call for a and b: with a last node of 1 the last row of a and b are then equal to the last bit.
    integrals = integrated_lagrange_basis(nodes, np.append(nodes, 1.0))
    return Tableau(name, a=integrals[:-1], b=integrals[-1], c=nodes, order=order)


def _legendre_nodes(stages: int, *last: float) -> Array:
    """Return roots of the combination of the Legendre polynomials up to P_s with these last coefficients, on [0, 1]."""
    _require_stages(stages)
    return _shifted_roots(np.append(np.zeros(stages + 1 - len(last)), last))


def _shifted_roots(series: Array) -> Array:
    """Return ascending roots in [0, 1] of a Legendre series on [-1, 1] whose roots are real and simple."""
    roots = np.sort(legendre.legroots(series).real)
    # The eigenvalues behind `legroots` lose a few digits; two Newton steps give them back.
    derivative = legendre.legder(series)
    for _ in range(2):
        roots = roots - legendre.legval(roots, series) / legendre.legval(roots, derivative)
    return 0.5 * (1.0 + roots)


def _require_stages(stages: int) -> None:
    if not is_whole(stages):
        raise OptionError(f"the number of Runge-Kutta stages is an integer of at least 1; given {stages!r}.")
