"""Algebraic variables and equations of the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import casadi as ca
import numpy as np
from attrs import field

from nosnoc_py.annotations import Expression, Numbers, Symbols
from nosnoc_py.declared import declared
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.symbols import check_distinct, column, component_names, finite, numbers, symbols


def _variables(value: Symbols, what: str = "z") -> ca.SX:
    z = symbols(value, what)
    if not z.numel():
        raise ModelError("Algebraic: expected at least one variable z; leave `algebraic` out where there is none.")
    check_distinct({"z": z})
    return z


def _equations(value: Expression, what: str = "equations", owner: Any = None) -> ca.SX:
    equations, count = column(value, what), owner.z.numel()
    if equations.numel() != count:
        raise ModelError(
            f"Algebraic: expected one equation for each of the {count} variables, given {equations.numel()}."
        )
    # The structural rank is a necessary condition that needs no numbers; numerical singularity depends on the state.
    if ca.sprank(ca.jacobian(equations, owner.z)) < count:
        raise ModelError(
            "Algebraic: the equations do not determine z: their Jacobian in z is singular, whatever its entries; "
            "differentiate equations without z in time until it appears, or make it a state."
        )
    return equations


def _bound(value: Numbers, what: str = "bound", owner: Any = None) -> np.ndarray:
    return numbers(value, what, owner.z.numel())


def _initial(value: Numbers, what: str = "initial", owner: Any = None) -> np.ndarray:
    # The default 0 need not lie within the bounds.
    return finite(value, what, owner.z.numel()).clip(owner.lower, owner.upper)


def _names(value: Sequence[str] | None, owner: Any = None) -> tuple[str, ...]:
    return component_names(value, "z", owner.z.numel())


@declared
class Algebraic:
    """Algebraic variables z with 0 = equations(x, z, u, p); with step functions the equations may use alpha.

    z may jump. The equations have to determine it: their Jacobian in z is regular (index 1).

    Parameters
    ----------
    z : SX (n_z,)
    equations : SX (n_z,)
    lower, upper : float or (n_z,), optional
        Bounds.
    initial : float or (n_z,)
        A likely value; default 0, moved into the bounds.
    names : sequence of str, optional
        Default z_0, z_1, ...

    Raises
    ------
    ModelError
        If there are not as many equations as variables, if they cannot determine them, or for wrong bounds.

    Examples
    --------
    A filter whose output z follows from an equation:

    >>> import casadi as ca, nosnoc_py as ns
    >>> x, z = ca.SX.sym("x"), ca.SX.sym("z")
    >>> filtered = ns.ODE(x=x, flow=-z, algebraic=ns.Algebraic(z, z**3 + z - 2 * x))
    >>> motion = ns.simulate(filtered, x0=[1.0], duration=1.0, method=ns.FESD())
    >>> motion.status.success
    True
    """

    z: ca.SX = field(converter=_variables)
    equations: ca.SX = field(converter=_equations)
    lower: np.ndarray = field(default=float("-inf"), converter=_bound, kw_only=True)
    upper: np.ndarray = field(default=float("inf"), converter=_bound, kw_only=True)
    initial: np.ndarray = field(default=0.0, converter=_initial, kw_only=True)
    names: tuple[str, ...] = field(default=None, converter=_names, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if (self.lower > self.upper).any():
            raise ModelError(
                f"Algebraic: a lower bound lies above its upper bound, given {self.lower} and {self.upper}."
            )

    @property
    def affine(self) -> bool:
        """True if the equations are affine in z."""
        # A sufficient test by the graph; an expression that is affine in disguise counts as nonlinear.
        return not ca.depends_on(ca.jacobian(self.equations, self.z), self.z)

    @property
    def solution(self) -> ca.SX:
        """z (n_z,) as expressions of everything else, of equations that are affine in z."""
        # Affine equations are E(z) = E(0) + E_z z, hence z = -E_z^-1 E(0).
        start = ca.substitute(self.equations, self.z, ca.SX.zeros(self.z.numel()))
        return -ca.solve(ca.densify(ca.jacobian(self.equations, self.z)), ca.densify(start))
