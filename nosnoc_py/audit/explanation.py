"""Reconstruction of contact forces or impulses that explain a motion; of many, those that violate the laws least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nosnoc_py.audit.redundancy import best_choice, directions, null_space

# Friction may exceed its cone in space by this fraction before one more plane is added.
OUTSIDE_CONE = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class ContactLaw:
    """Law of one closed contact.

    Attributes
    ----------
    normal : int
        Position of its normal force among the forces.
    tangents : tuple of int
        Positions of its friction force.
    friction : float
    direction : (n_t,) or None
        Unit vector of its slip, after an impact; None in stick.
    opening : bool
        It separates, and so exerts nothing.
    """

    normal: int
    tangents: tuple[int, ...]
    friction: float
    direction: np.ndarray | None
    opening: bool = False


def explain(columns: np.ndarray, vector: np.ndarray, contacts: Sequence[ContactLaw]) -> np.ndarray:
    """Return forces (k,) along columns (n, k) that sum up to a vector, or leave the smallest remainder.

    Of many solutions it is the one with the smallest largest violation of the laws: a linear program, as velocities are
    known.
    """
    forces, free = np.linalg.lstsq(columns, vector, rcond=1e-12)[0], null_space(columns)
    if not free.shape[1]:
        return forces
    return best_choice(
        forces,
        free,
        [row for contact in contacts for row in _rows(forces.size, contact)],
        lambda best, least: [cut for contact in contacts for cut in _cuts(best, contact, -least)],
        most=0.0,
    )


def _rows(size: int, contact: ContactLaw) -> list[np.ndarray]:
    """Return linear expressions of the forces (k,) that must not be negative; an equation is two of them."""
    normal, tangents = _units(size, contact)
    rows = [normal, -normal] if contact.opening else [normal]
    if contact.direction is not None:
        # Slip: f_t = -mu f_n d, linear as the direction d is known from the velocities.
        balance = tangents + contact.friction * np.outer(contact.direction, normal)
        return [*rows, *balance, *-balance]
    # Stick in space starts with a polygon around the cone; `_cuts` refines it where the choice lies outside.
    return rows + [contact.friction * normal - direction @ tangents for direction in directions(len(tangents))]


def _cuts(forces: np.ndarray, contact: ContactLaw, allowed: float) -> list[np.ndarray]:
    """Return a plane that cuts off friction outside of its cone in space by more than is allowed."""
    friction = forces[list(contact.tangents)]
    size = float(np.linalg.norm(friction))
    excess = size - contact.friction * float(forces[contact.normal])
    if contact.direction is not None or friction.size < 2 or excess <= allowed + OUTSIDE_CONE * size:
        return []
    normal, tangents = _units(forces.size, contact)
    return [contact.friction * normal - friction / size @ tangents]


def _units(size: int, contact: ContactLaw) -> tuple[np.ndarray, np.ndarray]:
    """Return the normal and the friction force of a contact as rows of the forces."""
    every = np.eye(size)
    return every[contact.normal], every[list(contact.tangents)]
