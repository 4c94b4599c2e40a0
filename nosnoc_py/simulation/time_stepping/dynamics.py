"""Smooth part of a step: contact-free velocity, and the response of the velocity to impulses."""

from __future__ import annotations

from dataclasses import dataclass

import casadi as ca
import numpy as np

from nosnoc_py.contact_problems.rows import RowProblem
from nosnoc_py.functions import buffered
from nosnoc_py.simulation.time_stepping.rows import evaluation
from nosnoc_py.systems.cls import CLS


@dataclass(frozen=True, eq=False, kw_only=True)
class Inertia:
    """Matrix A of a step: its diagonal (n_v,) if it is diagonal, else its inverse (n_v, n_v)."""

    diagonal: np.ndarray | None = None
    inverse: np.ndarray | None = None

    def velocity_change(self, impulse: np.ndarray) -> np.ndarray:
        """Return A^-1 times a generalised impulse (n_v,)."""
        if self.diagonal is not None:
            return np.asarray(impulse / self.diagonal)
        assert self.inverse is not None
        return np.asarray(self.inverse @ impulse)


class Dynamics:
    """Force and inertia of a system by the linearised theta-method."""

    def __init__(self, system: CLS) -> None:
        self.system, n = system, system.n_v
        arguments = [system.x, system.u, system.p]
        matrix, dynamic = system.mass_matrix, ca.vertcat(system.q, system.v)
        self._sloped = bool(ca.depends_on(system.force, dynamic))
        # Diagonal matrices need no dense inverse: thousands of bodies stay cheap.
        self.diagonal = bool(ca.sparsify(matrix).sparsity().is_diag() and not self._sloped)
        self._constant: Inertia | None = None
        if matrix.is_constant() and not self._sloped:
            self._constant = self._inertia(np.array(ca.DM(matrix)).reshape(n, n))
        # One function for all that a step needs besides contacts: a call costs more than what it computes.
        seconds = ca.SX.sym("seconds", 2)
        gap_state, ahead = (self._after(seconds[k]) for k in range(2))
        slopes = [system.along_v(system.force), ca.jacobian(system.force, system.v)] if self._sloped else []
        masses = [] if self._constant else [matrix]
        acting = ca.Function("acting", arguments, [system.force, *slopes])(ahead, system.u, system.p)
        if masses:
            masses = [ca.Function("mass", [system.x, system.p], masses)(gap_state, system.p)]
        fields = [gap_state, *(acting if slopes else [acting]), *masses]
        self._smooth = buffered(ca.Function("smooth", [*arguments, seconds], [ca.densify(each) for each in fields]))
        self._first_order = evaluation("first_order", arguments, system.y_rate)

    def _after(self, seconds: ca.SX) -> ca.SX:
        """Return the state after some seconds at the present velocities."""
        s = self.system
        return ca.vertcat(s.q + seconds * (s.rate_matrix @ s.v), s.v, s.y + seconds * s.y_rate)

    def first_order(self, x: np.ndarray, u: np.ndarray, p: np.ndarray) -> np.ndarray:
        """Return y' (n_y,)."""
        return self._first_order(x, u, p) if self.system.y.numel() else np.zeros(0)

    def split(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return coordinates, velocities and first-order states."""
        s = self.system
        return x[s.at_q], x[s.at_v], x[s.at_y]

    def free(
        self, reach: float, h: float, until: float, x: np.ndarray, u: np.ndarray, p: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, Inertia]:
        """Return the state `until` seconds later (where gaps are evaluated), the contact-free velocity (n_v,), and A.

        A has M at that state, and derivatives of the force at the point of the theta-method, `reach` = theta h later.
        """
        # The force is evaluated theta h ahead at the present velocities; A adds the effect of their change.
        gap_state, force, *matrices = self._smooth(x, u, p, [until, reach])
        inertia = self._constant
        if inertia is None:
            matrix = matrices[-1]
            if self._sloped:
                stiffness, damping = matrices[:2]
                # Linearly implicit theta-method: A = M - theta h df/dv - (theta h)^2 df/dq N, stable for stiff springs
                # and dampers.
                matrix = matrix - reach * damping - reach**2 * stiffness
            inertia = self._inertia(matrix)
        return gap_state[:, 0], x[self.system.at_v] + inertia.velocity_change(h * force[:, 0]), inertia

    def _inertia(self, matrix: np.ndarray) -> Inertia:
        """Return diagonal or inverse of the matrix A; NaN if it is singular or not finite."""
        if not np.isfinite(matrix).all():  # the inverse of something infinite is zero, and the body would hang still
            matrix = np.full(matrix.shape, np.nan)
        if self.diagonal:
            return Inertia(diagonal=np.diagonal(matrix).copy())
        try:
            return Inertia(inverse=np.linalg.inv(matrix))
        except np.linalg.LinAlgError:  # the simulation ends with a status
            return Inertia(inverse=np.full(matrix.shape, np.nan))


def problem_of(
    rows: np.ndarray, dofs: np.ndarray, inertia: Inertia, free: np.ndarray, least: np.ndarray, friction: np.ndarray
) -> RowProblem:
    """Return the problem of contacts with rows (m, w, K) over coordinates (m, K)."""
    n_v = free.size
    padded = np.append(free, 1.0)  # what the drift of contacts is multiplied by
    if inertia.diagonal is not None:
        # The padded velocity 1 has no response, so that no impulse changes it.
        inverse = np.append(1.0 / inertia.diagonal, 0.0)
        answers, reached = rows * inverse[dofs][:, None, :], dofs
        blocks = np.einsum("mwk,mxk->mwx", rows, answers)
    else:
        assert inertia.inverse is not None
        dense = np.zeros((*rows.shape[:2], n_v + 1))
        np.put_along_axis(dense, np.broadcast_to(dofs[:, None, :], rows.shape), rows, axis=2)
        answers = np.zeros_like(dense)
        answers[..., :n_v] = dense[..., :n_v] @ inertia.inverse.T
        reached = np.broadcast_to(np.arange(n_v + 1), (len(rows), n_v + 1))
        blocks = np.einsum("mwk,mxk->mwx", dense, answers)
    return RowProblem(
        rows=rows,
        dofs=dofs,
        answers=answers,
        reached=reached,
        blocks=blocks,
        least=least,
        friction=friction,
        free=padded,
    )
