"""The mass matrix of a kinetic energy, and what has to hold for it: looked at in some places.

A kinetic energy is quadratic in the velocities and positive unless all of them are zero. Both hold for all q, which no
computation shows; what fails in a random place is a mistake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import ModelError
from nosnoc_py.systems.symbols import check_keys, finite, mapping

PLACES, LOW, HIGH = 12, 0.2, 1.5  # all symbols are positive there, as lengths and masses are
ROUNDING = 1e-9
SINGULAR = 1e-12  # smallest eigenvalue of a mass matrix with ones on its diagonal


def held(at: Mapping[str, Any] | None, given: dict[str, ca.SX]) -> dict[str, np.ndarray]:
    """Values of q and p where the user says which."""
    found = mapping({} if at is None else at, "lagrangian: at")
    check_keys(found, ("q", "p"), "group in lagrangian: at")
    return {name: finite(value, f"lagrangian: at: {name}", given[name].numel()) for name, value in found.items()}


def mass_matrix_of(T: ca.SX, given: dict[str, ca.SX], fixed: dict[str, np.ndarray]) -> ca.SX:
    """Second derivative of the kinetic energy by v, once it is known that there is nothing else in it."""
    q, v, p = given["q"], given["v"], given["p"]
    M = ca.densify(ca.hessian(T, v)[0])
    if ca.depends_on(M, v):  # also v^4 / v^2 is quadratic, but not as a graph
        M = ca.substitute(M, v, ca.DM.ones(v.shape))
    look = ca.Function("look", [q, v, p], [T, 0.5 * ca.dot(v, M @ v), M])
    random = np.random.default_rng(0)
    places = [
        [fixed.get(name, random.uniform(LOW, HIGH, given[name].numel())) for name in ("q", "v", "p")]
        for _ in range(PLACES)
    ]
    found = [[np.array(part) for part in look(*place)] for place in places]
    found = [parts for parts in found if all(np.isfinite(part).all() for part in parts)]
    if not found:
        raise ModelError(f"lagrangian: the kinetic energy is not finite{_where(fixed)}; look for divisions by zero.")
    energies, squares = (np.array([parts[k].item() for parts in found]) for k in range(2))
    if np.abs(energies - squares).max() > ROUNDING * np.abs(energies).max():
        raise ModelError(
            "lagrangian: the kinetic energy has to be quadratic in v, v'M(q)v / 2; terms without or with other "
            "powers of v go into potential= or forces= (are all velocities written in v, not in symbols of q?)."
        )
    _check_definite([matrix for *_, matrix in found], q, fixed)
    return M


def _where(fixed: dict[str, np.ndarray]) -> str:
    """Where it was looked, and what to do if that is no place of the model."""
    free = " and ".join(name for name in ("q", "p") if name not in fixed)
    known = "".join(f", {name} = {value.tolist()}" for name, value in fixed.items())
    return f' (looked at {free or "v"} in {LOW} to {HIGH}{known}; other places: at={{"q": ..., "p": ...}})'


def _check_definite(matrices: Sequence[np.ndarray], q: ca.SX, fixed: dict[str, np.ndarray]) -> None:
    """A mass matrix may be singular in single places, but not in all; nowhere may it have a negative eigenvalue."""
    definite = False
    for matrix in matrices:
        # Coordinates of different units have inertias of different sizes: only what is left without them tells.
        sizes = np.sqrt(np.abs(np.diag(matrix)))
        sizes = np.where(sizes > 0.0, sizes, 1.0)
        values, vectors = np.linalg.eigh(matrix / np.outer(sizes, sizes))
        if values[0] < -ROUNDING * max(abs(values[-1]), abs(values[0])):
            raise ModelError(
                "lagrangian: the mass matrix is not positive definite: there are velocities whose kinetic energy is "
                f"negative{_where(fixed)}; are all masses and moments of inertia positive?"
            )
        definite = definite or values[0] > SINGULAR
    if definite:
        return
    name = q[int(np.argmax(np.abs(vectors[:, 0])))].name()
    raise ModelError(
        f"lagrangian: the mass matrix is not positive definite: {name} has no inertia of its own{_where(fixed)}; give "
        "it a mass or a moment of inertia, or leave the coordinate out."
    )
