"""The smooth part of a step: velocity without contacts, and how the velocity answers to impulses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.contact_problems.rows import RowProblem
from nosnoc_py.simulation.time_stepping.rows import evaluation
from nosnoc_py.systems.cls import CLS


@dataclass(frozen=True, eq=False, kw_only=True)
class Inertia:
    """The matrix A of a step: its diagonal (n_v,) where it has nothing else, or its inverse (n_v, n_v)."""

    diagonal: np.ndarray | None = None
    inverse: np.ndarray | None = None

    def answer(self, impulse: np.ndarray) -> np.ndarray:
        """A^-1 times a generalised impulse (n_v,)."""
        if self.diagonal is not None:
            return np.asarray(impulse / self.diagonal)
        assert self.inverse is not None
        return np.asarray(self.inverse @ impulse)


class Dynamics:
    """Force and inertia of a system by the linearised theta-method."""

    def __init__(self, system: CLS, theta: float) -> None:
        self.theta, self.system, n = theta, system, system.n_v
        arguments = [system.x, system.u, system.p]
        self._n_v = n
        self._force = evaluation("force", arguments, system.force)
        matrix = system.mass_matrix
        self._slopes: Any = None
        if ca.depends_on(system.force, ca.vertcat(system.q, system.v)):
            slopes = ca.vertcat(ca.vec(system.along_v(system.force)), ca.vec(ca.jacobian(system.force, system.v)))
            self._slopes = evaluation("slopes", arguments, ca.densify(slopes))
        self._mass = evaluation("mass", [system.x, system.p], ca.densify(matrix))
        self._first_order = evaluation("first_order", arguments, system.y_rate)
        diagonal = ca.sparsify(matrix).sparsity().is_diag() and self._slopes is None
        self.diagonal = bool(diagonal)
        self._constant: Inertia | None = None
        if matrix.is_constant() and self._slopes is None:
            self._constant = self._inertia(np.array(ca.DM(matrix)).reshape(n, n))

    def first_order(self, x: np.ndarray, u: np.ndarray, p: np.ndarray) -> np.ndarray:
        """y' (n_y,)."""
        return self._first_order(x, u, p) if self.system.y.numel() else np.zeros(0)

    def split(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Coordinates, velocities and first-order states."""
        s = self.system
        return x[s.at_q], x[s.at_v], x[s.at_y]

    def inertia(self, h: float, looks_at: np.ndarray, ahead: np.ndarray, u: np.ndarray, p: np.ndarray) -> Inertia:
        """A of a step; M at the state `looks_at`, slopes of the force at `ahead`."""
        if self._constant is not None:
            return self._constant
        n = self._n_v
        matrix = self._mass(looks_at, p).reshape(n, n, order="F").copy()
        if self._slopes is not None:
            stiffness, damping = self._slopes(ahead, u, p).reshape(2, n, n).transpose(0, 2, 1)
            matrix -= self.theta * h * damping + (self.theta * h) ** 2 * stiffness
        return self._inertia(matrix)

    def free(
        self, h: float, looks_at: np.ndarray, x: np.ndarray, u: np.ndarray, p: np.ndarray
    ) -> tuple[np.ndarray, Inertia]:
        """Velocity (n_v,) after a step without contacts, and A."""
        q, v, y = self.split(x)
        along = self.theta * h * self.system.mechanics.moved(x, p, v)
        ahead = np.concatenate([q + along, v, y + self.theta * h * self.first_order(x, u, p)])
        inertia = self.inertia(h, looks_at, ahead, u, p)
        return v + inertia.answer(h * self._force(ahead, u, p)), inertia

    def _inertia(self, matrix: np.ndarray) -> Inertia:
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
    """The problem of contacts with rows (m, w, K) over coordinates (m, K)."""
    n_v = free.size
    padded = np.append(free, 1.0)  # what the drift of contacts is multiplied by
    if inertia.diagonal is not None:
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
