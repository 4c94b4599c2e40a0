"""Uncertain parameters and initial states: their distributions, random draws, and the scenarios that stand for them.

Every uncertain quantity has a distribution of its own; a Gaussian copula couples them (Nataf 1962): independent
standard normal numbers become correlated ones by the Cholesky factor of the correlation matrix, and these become values
by the inverse of the distribution function. Scenarios are nodes in the space of the standard normal numbers, where
quadrature is known: Gauss-Hermite products for one or two quantities, the unscented points for more (Julier and Uhlmann
2004), or the extreme points.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from attrs import evolve

from nosnoc_py.arguments import named_arguments
from nosnoc_py.declared import assign
from nosnoc_py.errors import OptionError, check_whole, unknown_name
from nosnoc_py.ocp import OCP
from nosnoc_py.options import engine
from nosnoc_py.systems.described import Described

Array = np.ndarray
Measure = Literal["expected", "worst", "quantile"]
MEASURES: tuple[str, ...] = get_args(Measure)
# Largest number of quantities with a product of three Gauss-Hermite nodes each, and with all corners.
MOST_PRODUCTS, MOST_CORNERS = 2, 3
# Third root of the Hermite polynomial of degree 3, and the weights of its three nodes.
HERMITE, HERMITE_WEIGHTS = np.sqrt(3.0), (1.0 / 6.0, 2.0 / 3.0, 1.0 / 6.0)
# A number of a standard normal variable whose probability of being exceeded is below the rounding of 1.
END = 8.5


@named_arguments
@dataclass(frozen=True, eq=False, kw_only=True)
class Uncertain:
    """What is not known of a system: distributions of parameters and of components of the initial state.

    Parameters
    ----------
    parameters, x0 : mapping
        Name of a parameter, or of a state -> its distribution: a pair (lower, upper) for a uniform one, a frozen
        distribution of `scipy.stats` (`norm(0.8, 0.05)`), or three or more measured values. States and parameters that
        are not mentioned are known.
    correlation : mapping, optional
        Pair of names -> correlation of the two, between -1 and 1. Measured values of the same number of quantities
        belong together row by row: their rank correlation is used.
    coverage : float
        Probability of the interval of an unbounded quantity whose ends count as its extreme values.

    Raises
    ------
    OptionError
        For an empty or unknown distribution, names that correlations do not find, or correlations that contradict
        each other.

    References
    ----------
    Nataf (1962), C. R. Acad. Sci. 225 (copula). Julier and Uhlmann (2004), Proc. IEEE 92 (unscented points).

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> uncertain = ns.Uncertain(parameters={"restitution": (0.7, 0.9)}, x0={"height": (0.95, 1.05)})
    >>> uncertain.names
    ('restitution', 'height')
    >>> values = uncertain.draws(1000, seed=1)
    >>> bool(values[:, 0].min() > 0.7), bool(values[:, 0].max() < 0.9)
    (True, True)
    """

    parameters: Mapping[str, Any] = field(default_factory=dict)
    x0: Mapping[str, Any] = field(default_factory=dict)
    correlation: Mapping[tuple[str, str], float] | None = None
    coverage: float = 0.95

    def __post_init__(self) -> None:
        for what in ("parameters", "x0"):
            given = getattr(self, what)
            if not isinstance(given, Mapping):
                raise OptionError(f"Uncertain: {what}: expected a mapping of names to distributions, given {given!r}.")
            assign(self, **{what: {str(name): _distribution(name, value) for name, value in given.items()}})
        if not self.names:
            raise OptionError("Uncertain: nothing is uncertain; give parameters={name: (lower, upper)} or x0=.")
        if len(set(self.names)) < len(self.names):
            raise OptionError("Uncertain: a parameter and a state have the same name; rename one of them.")
        if not 0.0 < self.coverage < 1.0:
            raise OptionError(f"Uncertain: coverage: expected a number between 0 and 1, given {self.coverage!r}.")
        assign(self, correlation=dict(self.correlation or {}))
        self._factor  # noqa: B018 (contradicting correlations are an error now, not at the first draw)

    solved = engine("nosnoc_py.control.robust:planned")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the uncertain quantities: parameters first, then states."""
        return (*self.parameters, *self.x0)

    def check(self, system: Described) -> None:
        """Raise `OptionError` if the system has no such parameter or state."""
        for what, known in (("parameters", system.parameter_names), ("x0", system.state_names)):
            for name in getattr(self, what):
                if name not in known:
                    raise OptionError(f"Uncertain: {what}: {unknown_name(name, known)}")

    @named_arguments
    def draws(self, n: int, seed: int | Sequence[int] = 0) -> Array:
        """Return random values (n, quantities).

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> ns.Uncertain(parameters={"e": (0.7, 0.9), "mu": (0.2, 0.4)}).draws(3, seed=2).shape
        (3, 2)
        """
        check_whole(**{"draws: n": n})
        return self.values(np.random.default_rng(seed).standard_normal((n, len(self.names))))

    def values(self, normal: Array) -> Array:
        """Return values (m, quantities) of independent standard normal numbers (m, quantities)."""
        from scipy.stats import norm  # not paid for by an import of the library

        q = norm.cdf(normal @ self._factor.T)
        # A quantile of exactly 0 or 1 of an unbounded distribution is infinite.
        q = np.clip(q, np.finfo(float).tiny, 1.0 - np.finfo(float).epsneg)
        columns = [each.ppf(q[:, i]) for i, each in enumerate(self._every)]
        return np.column_stack(columns)

    def scenarios(self, measure: str) -> tuple[Array, Array]:
        """Return the nodes (m, quantities) that stand for the distribution, in standard normal numbers, and weights.

        The first node is the middle. For "worst" these are the extreme points, equally weighted: all corners of up to
        three quantities, else the ends of every quantity. Else they are nodes of a quadrature of degree 5 (products) or
        3 (unscented).
        """
        d = len(self.names)
        if measure == "worst":
            ends = np.array([self._extent(each) for each in self._every])
            corners = itertools.product((-1.0, 1.0), repeat=d) if d <= MOST_CORNERS else _axes(d)
            # Extreme values of each quantity, whatever the correlation: those of independent numbers would be others.
            places = np.linalg.solve(self._factor, (np.array(list(corners)) * ends).T).T
            nodes = np.vstack([np.zeros(d), places])
            return nodes, np.full(len(nodes), 1.0 / len(nodes))
        if d <= MOST_PRODUCTS:
            products = list(itertools.product(range(3), repeat=d))
            products.sort(key=lambda index: sum(i != 1 for i in index))  # the middle first
            places = np.array([-HERMITE, 0.0, HERMITE])
            weights = np.array([np.prod([HERMITE_WEIGHTS[i] for i in index]) for index in products])
            return np.array([places[list(index)] for index in products]), weights
        # At this distance equal weights give the variance 1 (kappa = 1/2): none is negative, for any number of
        # quantities.
        nodes = np.array([np.zeros(d), *(np.sqrt(d + 0.5) * np.array(axis) for axis in _axes(d))])
        return nodes, np.full(len(nodes), 1.0 / len(nodes))

    def middle_of(self, ocp: OCP) -> OCP:
        """Return the problem with the middle of the distribution as parameters and initial state.

        Raises
        ------
        OptionError
            If the system has no such parameter or state, or if the initial state is free and uncertain.
        """
        self.check(ocp.system)
        if both := set(self.parameters) & set(ocp.free_parameters):
            raise OptionError(
                f"Uncertain: parameters: {', '.join(sorted(both))}: the OCP chooses it (free_parameters)."
            )
        free = ocp.x0 is None
        if free and self.x0:
            raise OptionError("Uncertain: x0: the OCP leaves its initial state free; give OCP(x0=...).")
        values, zero = self.values(np.zeros((1, len(self.names))))[0], np.zeros(len(ocp.system.state_names))
        x0, p = self.apply(values, zero if free else ocp.x0, ocp.p, ocp.system)
        changes: dict[str, Any] = {"p": p} if (p != ocp.p).any() else {}
        changes.update({"x0": x0} if not free and (x0 != ocp.x0).any() else {})
        return evolve(ocp, **changes) if changes else ocp

    def apply(self, values: Array, x0: Array, p: Array, system: Described) -> tuple[Array, Array]:
        """Return the initial state (n_x,) and the parameters (n_p,) with the values (quantities,) in their places."""
        x0, p = np.array(x0, dtype=float), np.array(p, dtype=float)
        count = len(self.parameters)
        for name, value in zip(self.parameters, values[:count], strict=True):
            p[system.parameter_names.index(name)] = value
        for name, value in zip(self.x0, values[count:], strict=True):
            x0[system.state_names.index(name)] = value
        return x0, p

    def _extent(self, distribution: Any) -> float:
        """Return the standard normal number of the extreme values of a quantity."""
        from scipy.stats import norm

        bounded = np.isfinite(distribution.ppf([0.0, 1.0])).all()
        return END if bounded else float(norm.ppf(0.5 + 0.5 * self.coverage))

    @property
    def _every(self) -> tuple[Any, ...]:
        return (*self.parameters.values(), *self.x0.values())

    @cached_property
    def _factor(self) -> Array:
        """Cholesky factor (quantities, quantities) of the correlation of the normal numbers."""
        from scipy.stats import spearmanr

        matrix = np.eye(len(self.names))
        measured = [(i, each.sample) for i, each in enumerate(self._every) if isinstance(each, _Measured)]
        for (i, one), (j, other) in itertools.combinations(measured, 2):
            if one.size == other.size and np.ptp(one) > 0.0 < np.ptp(other):
                # Rank correlation of a Gaussian copula (Kruskal 1958).
                matrix[i, j] = matrix[j, i] = 2.0 * np.sin(np.pi / 6.0 * float(spearmanr(one, other).statistic))
        for pair, value in (self.correlation or {}).items():
            if not isinstance(pair, tuple) or len(pair) != 2 or pair[0] == pair[1]:
                raise OptionError(f"Uncertain: correlation: expected pairs of names, given {pair!r}.")
            for name in pair:
                if name not in self.names:
                    raise OptionError(f"Uncertain: correlation: {unknown_name(name, self.names)}")
            if not -1.0 < float(value) < 1.0:
                raise OptionError(f"Uncertain: correlation: expected a number between -1 and 1, given {value!r}.")
            i, j = (self.names.index(name) for name in pair)
            matrix[i, j] = matrix[j, i] = float(value)
        try:
            return np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            raise OptionError(
                "Uncertain: correlation: these correlations contradict each other (their matrix is not positive "
                "definite); make them smaller."
            ) from None


@dataclass(frozen=True, eq=False)
class _Measured:
    """Distribution of measured values, with their quantiles."""

    sample: Array

    def ppf(self, q: Any) -> Array:
        """Return the quantiles of probabilities q."""
        return np.asarray(np.quantile(self.sample, q))


def _distribution(name: Any, given: Any) -> Any:
    """Return an object with quantiles `ppf` of what a user gives."""
    if hasattr(given, "ppf"):
        if not np.isfinite(given.ppf([0.1, 0.5, 0.9])).all():
            raise OptionError(f"Uncertain: {name}: the distribution has no finite quantiles; check its parameters.")
        return given
    try:
        values = np.asarray(given, dtype=float).reshape(-1)
    except (TypeError, ValueError):
        values = np.zeros(0)
    if values.size < 2 or not np.isfinite(values).all() or (values.size == 2 and values[0] >= values[1]):
        raise OptionError(
            f"Uncertain: {name}: expected (lower, upper) with lower < upper, a distribution of scipy.stats such as "
            f"norm(0.8, 0.05), or three or more measured values, given {given!r:.80}."
        )
    if values.size > 2:
        return _Measured(values)
    from scipy.stats import uniform

    return uniform(values[0], values[1] - values[0])


def _axes(d: int) -> list[tuple[float, ...]]:
    return [tuple(sign * (i == k) for i in range(d)) for k in range(d) for sign in (-1.0, 1.0)]
