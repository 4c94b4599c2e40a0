"""From energies to equations of motion: M(q) v' = f_v(q, v, u) of a Lagrangian, for `CLS`.

With T = v'M(q)v / 2 and V(q), d/dt dT/dv - dT/dq + dV/dq = F(q, v, u) - D(q) v reads M v' = F - D v - C v - dV/dq.
C is made of the Christoffel symbols of M, with which dM/dt - 2 C is skew: the forces C v do no work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.annotations import Expression, Numbers, Symbols
from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import ModelError
from nosnoc_py.systems.symbols import (
    check_distinct,
    check_free,
    check_keys,
    column,
    columns,
    finite,
    mapping,
    symbols,
    symbols_if_any,
)
from nosnoc_py.systems.text import counted

# Relative errors below this are rounding.
ROUNDING = 1e-9
# A kinetic energy is quadratic in the velocities and positive unless all of them are zero. No computation proves this
# for all q, but a failure at a random place is a mistake. Number of places, and the range of all symbols in them.
PLACES, LOW, HIGH = 12, 0.2, 1.5  # all symbols are positive there, as lengths and masses are
SINGULAR = 1e-12  # smallest eigenvalue of a mass matrix with ones on its diagonal


@dataclass(frozen=True, eq=False, kw_only=True)
class Lagrangian:
    """Equations of motion M(q) v' = f_v(q, v, u, p), made by `lagrangian`.

    Attributes
    ----------
    q, v, u, p : SX
        The symbols that everything is written in.
    kinetic, potential : SX scalar
        T and V [J].
    mass_matrix : SX (n_q, n_q)
        M(q) = d^2T/dv^2.
    coriolis : SX (n_q, n_q)
        C(q, v) = (dM/dt + J - J') / 2 with J = d(M v)/dq: Coriolis and centrifugal forces are -C v.
    gravity : SX (n_q,)
        dV/dq; the forces of the potential are its negative.
    forces : SX (n_q,)
        Generalised forces of everything else, damping included.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> pendulum = ns.lagrangian(q=q, v=v, kinetic=0.5 * v**2, potential=-9.81 * ca.cos(q))
    >>> float(ca.Function("gravity", [q], [pendulum.gravity])(0.0))
    0.0
    """

    q: ca.SX
    v: ca.SX
    u: ca.SX
    p: ca.SX
    kinetic: ca.SX
    potential: ca.SX
    mass_matrix: ca.SX
    coriolis: ca.SX
    gravity: ca.SX
    forces: ca.SX

    @property
    def force(self) -> ca.SX:
        """f_v (n_q,): every force but those of contacts, with those of the motion itself."""
        return self.forces - self.coriolis @ self.v - self.gravity

    @property
    def energy(self) -> ca.SX:
        """T + V [J]."""
        return self.kinetic + self.potential

    def jacobian(self, point: Expression) -> ca.SX:
        """Return the derivative of positions or angles (k,) by q, as (k, n_q): their velocity is the Jacobian times v.

        Raises
        ------
        ModelError
            If the point is no column, or depends on other symbols than q and p.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
        >>> pendulum = ns.lagrangian(q=q, v=v, kinetic=0.5 * v**2, potential=-9.81 * ca.cos(q))
        >>> pendulum.jacobian(ca.vertcat(ca.sin(q), -ca.cos(q)))
        SX([cos(q), sin(q)])
        """
        place = column(point, "jacobian: point")
        check_free(place, {"q": self.q, "p": self.p}, "jacobian: point")
        return ca.jacobian(place, self.q)

    def __repr__(self) -> str:
        return (
            f"Lagrangian: {counted(self.q.numel(), 'coordinate')}, {counted(self.u.numel(), 'control')}, "
            f"{counted(self.p.numel(), 'parameter')}\n"
            f"  kinetic energy   {self.kinetic}\n  potential energy {self.potential}"
        )


@named_arguments
def lagrangian(
    *,
    q: Symbols,
    v: Symbols,
    kinetic: ca.SX,
    potential: Expression = 0,
    forces: Expression = 0,
    damping: Expression = 0,
    u: Symbols | None = None,
    p: Symbols | None = None,
    at: Mapping[str, Numbers] | None = None,
) -> Lagrangian:
    """Derive the equations of motion from energies.

    Parameters
    ----------
    q, v : SX (n_q,)
        Generalised coordinates and velocities, v = q'.
    kinetic : SX scalar
        T(q, v, p), quadratic in v [J]; `kinetic_energy` writes that of masses and of bodies that turn.
    potential : SX scalar
        V(q, p) [J].
    forces : SX (n_q,)
        Generalised forces F(q, v, u, p): of motors, winds, friction without contact.
    damping : float, (n_q,) or (n_q, n_q)
        Viscous damping D(q, p), its force is -D v; one number for all velocities, one each, or a matrix.
    u, p : SX, optional
        Controls and parameters.
    at : mapping, optional
        Values of "q" or "p" for which the kinetic energy is checked, such as `{"p": 3.0}`, where a model does not hold
        for numbers between 0.2 and 1.5.

    Returns
    -------
    Lagrangian
        Its `mass_matrix` and `force` are those of an `ns.CLS`.

    Raises
    ------
    ModelError
        If T is not quadratic in v, V depends on v, a symbol is foreign, a shape is wrong, constant damping feeds energy
        in, or the mass matrix is not positive definite: it has a negative eigenvalue somewhere, or is singular in all
        places that were looked at (then a coordinate has no inertia).

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v = ca.SX.sym("angle"), ca.SX.sym("speed")
    >>> pendulum = ns.lagrangian(q=q, v=v, kinetic=0.5 * v**2, potential=-9.81 * ca.cos(q))
    >>> system = ns.CLS(q=q, v=v, mass_matrix=pendulum.mass_matrix, force=pendulum.force)
    """
    given = {
        name: symbols_if_any(value, f"lagrangian: {name}") for name, value in (("q", q), ("v", v), ("u", u), ("p", p))
    }
    q, v = given["q"], given["v"]
    n_q = int(q.numel())
    if n_q == 0 or v.numel() != n_q:
        raise ModelError(f"lagrangian: q and v need the same positive length, given {n_q} and {v.numel()}.")
    check_distinct(given)
    T, V = column(kinetic, "lagrangian: kinetic", 1), column(potential, "lagrangian: potential", 1)
    # Potential, damping and mass matrix must not depend on v or u: they would not be forces of this form.
    still = {name: given[name] for name in ("q", "p")}
    check_free(T, {**still, "v": v}, "lagrangian: kinetic")
    if ca.depends_on(V, v):
        raise ModelError(
            "lagrangian: the potential depends on v, but a potential energy is a function of positions alone; what "
            "depends on velocities goes into forces= or damping=."
        )
    check_free(V, still, "lagrangian: potential")
    F = _rows(forces, n_q)
    check_free(F, given, "lagrangian: forces")
    D = _damping(damping, n_q)
    check_free(D, still, "lagrangian: damping")
    M = _mass_matrix(T, given, _values_at(at, given))
    momentum = M @ v
    turning = ca.jacobian(momentum, q)
    # With J = d(M v)/dq: J v = dM/dt v and dT/dq = J'v / 2, so that C v = dM/dt v - dT/dq.
    C = 0.5 * (ca.reshape(ca.jtimes(ca.vec(M), q, v), n_q, n_q) + turning - turning.T)
    return Lagrangian(
        **given,
        kinetic=T,
        potential=V,
        mass_matrix=M,
        coriolis=C,
        gravity=ca.densify(ca.gradient(V, q)),
        forces=F - D @ v,
    )


@named_arguments
def kinetic_energy(
    q: Symbols,
    v: Symbols,
    masses: Sequence[tuple[float | ca.SX, Expression]] = (),
    inertias: Sequence[tuple[float | ca.SX, Expression]] = (),
) -> ca.SX:
    """Return the kinetic energy [J] of point masses m |r'|^2 / 2 and of rotating bodies I phi'^2 / 2.

    Parameters
    ----------
    q, v : SX (n_q,)
    masses : sequence of (mass [kg], position SX (2,) or (3,) [m])
        Of a link that is a body: with the position of its centre of mass.
    inertias : sequence of (moment of inertia [kg m^2], angle SX scalar [rad])
        Of a link: about its centre of mass, with its angle against the ground.

    Raises
    ------
    ModelError
        If an entry is no pair, a position no column of 1 to 3 rows, an angle no scalar, one of them depends on v, or a
        mass is negative.

    Examples
    --------
    A mass on a rod of 2 m:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> energy = ns.kinetic_energy(q, v, masses=[(3.0, 2.0 * ca.vertcat(ca.sin(q), -ca.cos(q)))])
    >>> float(ca.Function("energy", [q, v], [energy])(0.3, 1.0))
    6.0
    """
    q, v = symbols(q, "kinetic_energy: q"), symbols(v, "kinetic_energy: v")
    if q.numel() != v.numel():
        raise ModelError(f"kinetic_energy: q and v need the same length, given {q.numel()} and {v.numel()}.")
    total = ca.SX(0)
    for what, pairs, most in (("masses", masses, 3), ("inertias", inertias, 1)):
        for pair in pairs:
            if not isinstance(pair, tuple | list) or len(pair) != 2:
                raise ModelError(f"kinetic_energy: {what}: expected pairs (value, expression of q), given {pair!r}.")
            factor, place = column(pair[0], f"kinetic_energy: {what}", 1), column(pair[1], f"kinetic_energy: {what}")
            _check_pair(what, factor, place, most, v)
            # Velocities by the chain rule, r' = r_q v: users give positions only.
            total += 0.5 * factor * ca.sumsqr(ca.jtimes(place, q, v))
    return total


def _check_pair(what: str, factor: ca.SX, place: ca.SX, most: int, v: ca.SX) -> None:
    if not 1 <= place.numel() <= most:
        expected = "positions of 1 to 3 rows" if most > 1 else "scalar angles"
        raise ModelError(f"kinetic_energy: {what}: expected {expected}, given {place.numel()} rows.")
    if ca.depends_on(ca.vertcat(factor, place), v):
        raise ModelError(
            f"kinetic_energy: {what}: give positions and angles as expressions of q, not of v: they are differentiated "
            "here."
        )
    if factor.is_constant() and float(factor) < 0.0:
        raise ModelError(f"kinetic_energy: {what}: expected values >= 0, given {float(factor):g}.")


def _rows(forces: Any, n_q: int) -> ca.SX:
    result = column(forces, "lagrangian: forces")
    if n_q > 1 and result.is_constant() and result.numel() == 1 and float(result) == 0.0:
        return ca.SX.zeros(n_q)
    return ca.densify(column(result, "lagrangian: forces", n_q))


def _damping(damping: Any, n_q: int) -> ca.SX:
    """Return the matrix D (n_q, n_q)."""
    result = columns(damping, "lagrangian: damping")
    if result.numel() == 1:
        result = ca.SX.eye(n_q) * result
    elif result.shape == (n_q, 1):
        result = ca.diag(result)
    if result.shape != (n_q, n_q):
        raise ModelError(
            f"lagrangian: damping: expected one number, {n_q} numbers or a matrix ({n_q}, {n_q}), given {result.shape}."
        )
    if result.is_constant():
        D = np.array(ca.evalf(result))
        # Only the symmetric part dissipates: v'Dv does not see the skew part (gyroscopic forces).
        least = float(np.linalg.eigvalsh(0.5 * (D + D.T))[0])
        if least < -ROUNDING * float(np.abs(D).max()):
            raise ModelError(
                f"lagrangian: damping takes energy, v'Dv >= 0; the least eigenvalue of its symmetric part is "
                f"{least:.3g}. Forces that feed energy in go into forces=."
            )
    return result


def _values_at(at: Mapping[str, Any] | None, given: dict[str, ca.SX]) -> dict[str, np.ndarray]:
    """Return the values of q and p given by the user."""
    result = mapping({} if at is None else at, "lagrangian: at")
    check_keys(result, ("q", "p"), "group in lagrangian: at")
    return {name: finite(value, f"lagrangian: at: {name}", given[name].numel()) for name, value in result.items()}


def _mass_matrix(T: ca.SX, given: dict[str, ca.SX], fixed: dict[str, np.ndarray]) -> ca.SX:
    """Return the second derivative of the kinetic energy by v, after a check that it is quadratic and positive."""
    q, v, p = given["q"], given["v"], given["p"]
    M = ca.densify(ca.hessian(T, v)[0])
    if ca.depends_on(M, v):  # also v^4 / v^2 is quadratic, but not as a graph
        M = ca.substitute(M, v, ca.DM.ones(v.shape))
    # T must equal v'Mv / 2 everywhere: this excludes terms that are constant, linear or of higher order in v.
    look = ca.Function("look", [q, v, p], [T, 0.5 * ca.dot(v, M @ v), M])
    # A fixed seed: a model is accepted or refused every time in the same way.
    random = np.random.default_rng(0)
    places = [
        [fixed.get(name, random.uniform(LOW, HIGH, given[name].numel())) for name in ("q", "v", "p")]
        for _ in range(PLACES)
    ]
    values = [[np.array(part) for part in look(*place)] for place in places]
    # A model need not be defined at all places (a length that becomes negative, say).
    values = [parts for parts in values if all(np.isfinite(part).all() for part in parts)]
    if not values:
        raise ModelError(
            f"lagrangian: the kinetic energy is not finite{_tested_ranges(fixed)}; look for divisions by zero."
        )
    energies, squares = (np.array([parts[k].item() for parts in values]) for k in range(2))
    if np.abs(energies - squares).max() > ROUNDING * np.abs(energies).max():
        raise ModelError(
            "lagrangian: the kinetic energy has to be quadratic in v, v'M(q)v / 2; terms without or with other "
            "powers of v go into potential= or forces= (are all velocities written in v, not in symbols of q?)."
        )
    _check_definite([matrix for *_, matrix in values], q, fixed)
    return M


def _tested_ranges(fixed: dict[str, np.ndarray]) -> str:
    """Return the tested ranges of q and p as text, with advice for models that need others."""
    free = " and ".join(name for name in ("q", "p") if name not in fixed)
    known = "".join(f", {name} = {value.tolist()}" for name, value in fixed.items())
    return f' (looked at {free or "v"} in {LOW} to {HIGH}{known}; other places: at={{"q": ..., "p": ...}})'


def _check_definite(matrices: Sequence[np.ndarray], q: ca.SX, fixed: dict[str, np.ndarray]) -> None:
    """Raise `ModelError` if the mass matrix is singular at all test points or has a negative eigenvalue at one."""
    definite = False
    for matrix in matrices:
        # Coordinates of different units have inertias of different sizes: scaled to ones on the diagonal.
        sizes = np.sqrt(np.abs(np.diag(matrix)))
        # A zero on the diagonal stays zero, and is found as a singular matrix below.
        sizes = np.where(sizes > 0.0, sizes, 1.0)
        values, vectors = np.linalg.eigh(matrix / np.outer(sizes, sizes))
        if values[0] < -ROUNDING * max(abs(values[-1]), abs(values[0])):
            raise ModelError(
                "lagrangian: the mass matrix is not positive definite: there are velocities whose kinetic energy is "
                f"negative{_tested_ranges(fixed)}; are all masses and moments of inertia positive?"
            )
        # One regular place is enough: a matrix may be singular at isolated positions, such as that of a ball joint in
        # polar angles.
        definite = definite or values[0] > SINGULAR
    if definite:
        return
    # The eigenvector of the smallest eigenvalue points to the coordinate without inertia.
    name = q[int(np.argmax(np.abs(vectors[:, 0])))].name()
    raise ModelError(
        f"lagrangian: the mass matrix is not positive definite: {name} has no inertia"
        f" of its own{_tested_ranges(fixed)}; give it a mass or a moment of inertia, or leave the coordinate out."
    )
