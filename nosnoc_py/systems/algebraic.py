"""Algebraic variables and equations of the user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca

from nosnoc_py.annotations import Expression, Numbers, Symbols
from nosnoc_py.arguments import construct, named_arguments
from nosnoc_py.declared import assign
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.symbols import check_distinct, column, component_names, finite, numbers, symbols


@named_arguments
@dataclass(frozen=True, eq=False, init=False)
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

    z: ca.SX
    equations: ca.SX
    lower: Any
    upper: Any
    initial: Any
    names: Sequence[str] | None

    def __init__(
        self,
        z: Symbols,
        equations: Expression,
        *,
        lower: Numbers = float("-inf"),
        upper: Numbers = float("inf"),
        initial: Numbers = 0.0,
        names: Sequence[str] | None = None,
    ) -> None:
        construct(self, locals())

    def __post_init__(self) -> None:
        z = symbols(self.z, "Algebraic: z")
        count = z.shape[0]
        if count == 0:
            raise ModelError("Algebraic: expected at least one variable z; leave `algebraic` out where there is none.")
        check_distinct({"z": z})
        equations = column(self.equations, "Algebraic: equations")
        if equations.shape[0] != count:
            raise ModelError(
                f"Algebraic: expected one equation for each of the {count} variables, given {equations.shape[0]}."
            )
        # The structural rank is a necessary condition that needs no numbers; numerical singularity depends on the
        # state.
        if ca.sprank(ca.jacobian(equations, z)) < count:
            raise ModelError(
                "Algebraic: the equations do not determine z: their Jacobian in z is singular, whatever its entries; "
                "differentiate equations without z in time until it appears, or make it a state."
            )
        lower, upper = numbers(self.lower, "Algebraic: lower", count), numbers(self.upper, "Algebraic: upper", count)
        if (lower > upper).any():
            raise ModelError(f"Algebraic: a lower bound lies above its upper bound, given {lower} and {upper}.")
        # The default 0 need not lie within the bounds.
        initial = finite(self.initial, "Algebraic: initial", count).clip(lower, upper)
        names = component_names(self.names, "z", count)
        assign(self, z=z, equations=equations, lower=lower, upper=upper, initial=initial, names=names)

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
