"""Contact problems by rows: every contact with the few coordinates on which it depends, for many contacts.

The Delassus matrix is formed for Newton's method only: sweeps need only products of one contact with its own
coordinates, so that memory and time are linear in the number of contacts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nosnoc_py.compiled import compiled_as

Array = np.ndarray


class RowProblem(NamedTuple):
    """Contact problem 0 <= f_n perp r_n - c >= 0 with Coulomb's law for f_t and r_t, r = J v, v = v_free + A^-1 J'f.

    Velocity arrays have one entry more than there are coordinates: the target of the padding of short rows.

    Attributes
    ----------
    rows, dofs : (m, w, K), (m, K)
        Entries of J contact by contact, the normal first, and their coordinates.
    answers, reached : (m, w, K'), (m, K')
        Entries of A^-1 J' (velocity per unit impulse), and their coordinates.
    blocks : (m, w, w)
        Diagonal blocks of J A^-1 J'.
    least : (m,)
        Smallest normal rates c [m/s].
    friction : (m,)
        Coefficients mu.
    free : (n_v + 1,)
        Velocity v_free without impulses.
    """

    rows: Array
    dofs: Array
    answers: Array
    reached: Array
    blocks: Array
    least: Array
    friction: Array
    free: Array


class RowSolution(NamedTuple):
    """Solution of a `RowProblem`: impulses (m, w), velocity (n_v + 1,), sweeps, residual of the contact law [m/s]."""

    impulses: Array
    velocity: Array
    sweeps: int
    residual: float


def _rates_by_loops(rows: Array, dofs: Array, v: Array) -> Array:
    rates = np.zeros(rows.shape[:2])
    for k in range(rows.shape[0]):
        for i in range(rows.shape[1]):
            for j in range(rows.shape[2]):
                rates[k, i] += rows[k, i, j] * v[dofs[k, j]]
    return rates


@compiled_as(_rates_by_loops)
def rates_of(rows: Array, dofs: Array, v: Array) -> Array:
    """Return the rates J v (m, w) of rows (m, w, K)."""
    return np.asarray(np.einsum("mwk,mk->mw", rows, v[dofs]))


def _normal_rates_by_loops(rows: Array, dofs: Array, v: Array) -> Array:
    rates = np.zeros(rows.shape[0])
    for k in range(rows.shape[0]):
        for j in range(rows.shape[2]):
            rates[k] += rows[k, 0, j] * v[dofs[k, j]]
    return rates


@compiled_as(_normal_rates_by_loops)
def normal_rates_of(rows: Array, dofs: Array, v: Array) -> Array:
    """Return the first of the rates (m,)."""
    return np.asarray(np.einsum("mk,mk->m", rows[:, 0], v[dofs]))


def _velocity_by_loops(problem: RowProblem, impulses: Array) -> Array:
    v, answers, reached = problem.free.copy(), problem.answers, problem.reached
    for k in range(impulses.shape[0]):
        for i in range(impulses.shape[1]):
            if impulses[k, i] != 0.0:
                for j in range(answers.shape[2]):
                    v[reached[k, j]] += answers[k, i, j] * impulses[k, i]
    return v


@compiled_as(_velocity_by_loops)
def velocity_of(problem: RowProblem, impulses: Array) -> Array:
    """Return the velocity (n_v + 1,) with impulses (m, w)."""
    v = problem.free.copy()
    np.add.at(v, problem.reached, np.einsum("mwk,mw->mk", problem.answers, impulses))
    return v


def _delassus_by_loops(problem: RowProblem) -> Array:
    rows, dofs, answers, reached = problem.rows, problem.dofs, problem.answers, problem.reached
    count, width, last = rows.shape[0], rows.shape[1], problem.free.size - 1
    matrix, answer = np.zeros((count * width, count * width)), np.zeros(last + 1)
    for a in range(count):
        for i in range(width):
            answer[:] = 0.0
            for j in range(answers.shape[2]):
                answer[reached[a, j]] = answers[a, i, j]
            answer[last] = 0.0
            for b in range(count):
                for k in range(width):
                    for j in range(rows.shape[2]):
                        matrix[b * width + k, a * width + i] += rows[b, k, j] * answer[dofs[b, j]]
    return matrix


@compiled_as(_delassus_by_loops)
def delassus_of(problem: RowProblem) -> Array:
    """Return J A^-1 J' (m w, m w)."""
    shape = (*problem.rows.shape[:2], problem.free.size)
    rows, answers = np.zeros(shape), np.zeros(shape)
    np.put_along_axis(rows, np.broadcast_to(problem.dofs[:, None, :], problem.rows.shape), problem.rows, axis=2)
    reached = np.broadcast_to(problem.reached[:, None, :], problem.answers.shape)
    np.put_along_axis(answers, reached, problem.answers, axis=2)
    size = shape[0] * shape[1]
    return np.asarray(rows[..., :-1].reshape(size, -1) @ answers[..., :-1].reshape(size, -1).T)
