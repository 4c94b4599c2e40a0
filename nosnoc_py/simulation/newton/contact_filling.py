"""From the numbers of contact mechanics to an iterate of the MPCC: every variable of every cone by its name.

What the active-set Newton found is written into the variables of the unrelaxed finite-element equations. Those are made
elsewhere, from other expressions, so their residuals are a certificate.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered
from nosnoc_py.reformulation.friction import FrictionCone, cone_of, weights
from nosnoc_py.simulation.newton.contact_newton import ContactStep
from nosnoc_py.systems.cls import CLS
from nosnoc_py.transcription import Transcription

# Names of variables and their values, at the stages (n_s, size) or at one node (1, size).
Values = dict[str, np.ndarray]

SMALL = 1e-12
# Velocities below this, relative to the largest one and to 1, are rounding: what does not move has none.
REST = 1e-15


def _parts(name: str, value: np.ndarray) -> Values:
    """A signed quantity as two nonnegative ones."""
    return {f"{name}_plus": np.maximum(value, 0.0), f"{name}_minus": np.maximum(-value, 0.0)}


def _box(slip: np.ndarray, force: np.ndarray) -> Values:
    return {"lambda_tangent": force, **_parts("xi", slip)}


def _polar(slip: np.ndarray, force: np.ndarray) -> Values:
    """Directions along the slip, or against the force where there is none; of a force only the line counts."""
    speed, size = np.linalg.norm(slip, axis=1), np.linalg.norm(force, axis=1)
    direction = np.zeros_like(slip)
    direction[:, 0] = 1.0
    for j in range(len(slip)):
        if speed[j] > SMALL:
            direction[j] = slip[j] / speed[j]
        elif size[j] > SMALL:
            direction[j] = -force[j] / size[j]
            direction[j] *= -1.0 if direction[j] @ direction[0] < 0 else 1.0
        elif j > 0:
            direction[j] = direction[j - 1]
    radius = -np.einsum("jk,jk->j", force, direction)
    return {"friction_radius": radius[:, None], "direction": direction, "slip_speed": speed[:, None]}


def _polyhedral(slip: np.ndarray, force: np.ndarray) -> Values:
    """In the plane, where two directions are exact."""
    directions = np.hstack([np.maximum(force, 0.0), np.maximum(-force, 0.0)])
    return {"lambda_direction": directions, "gamma": np.abs(slip)}


CONES: dict[str, Callable[[np.ndarray, np.ndarray], Values]] = {"box": _box, "polar": _polar, "polyhedral": _polyhedral}


def is_exact(system: CLS, cone: FrictionCone) -> bool:
    """Whether the cone says the same as Coulomb's law, for every contact."""
    planar = {"box": True, "polar": True, "polyhedral": True, "paper": False}
    spatial = {"box": False, "polar": True, "polyhedral": False, "paper": False}
    return all(
        (planar if c.tangent.shape[1] == 1 else spatial)[cone_of(c, cone)] for c in system.contacts if c.frictional
    )


class Filling:
    """Writes steps of the active-set Newton into iterates of one transcription; built once."""

    def __init__(self, system: CLS, problem: Transcription, cone: FrictionCone, rest_velocity: float) -> None:
        self._system, self._cone, self._rest = system, cone, rest_velocity
        self._frictional = [c for c in system.contacts if c.frictional]
        ends = np.cumsum([0, *[c.tangent.shape[1] for c in self._frictional]])
        self._parts = [slice(a, b) for a, b in pairwise(ends)]
        self._weights = [np.asarray(weights(c)[1]).reshape(-1) for c in self._frictional]
        self._restitution = np.array([c.restitution for c in system.contacts])
        mpcc, count, n_s = problem.mpcc, len(problem.elements), problem.tableau.stages
        self._blank, self._u, self._p = mpcc.w0, mpcc.parameters["u"], mpcc.parameters["p"]
        self._places = places_of(problem)
        stage, node = self._functions()
        self._stage = buffered(stage.map("stages", "serial", count * n_s, [3, 4], []))
        self._node = buffered(node.map("nodes", "serial", count, [2], []))

    def _functions(self) -> tuple[ca.Function, ca.Function]:
        """Gap rates, slip velocities and accelerations at a stage; gap rates before and after a node, slip after it."""
        s = self._system
        normals = ca.horzcat(ca.SX(s.n_q, 0), *[s.normal(c) for c in s.contacts])
        slips = [weights(c)[1] * (c.tangent.T @ s.v) for c in self._frictional]
        normal = ca.SX.sym("normal", len(s.contacts))
        tangent = [ca.SX.sym("tangent", c.tangent.shape[1]) for c in self._frictional]
        force = s.force + normals @ normal
        for contact, value in zip(self._frictional, tangent, strict=True):
            force += contact.tangent @ value
        forces = [normal, ca.vertcat(ca.SX(0, 1), *tangent)]
        rates, slips = normals.T @ s.v, ca.vertcat(ca.SX(0, 1), *slips)
        before = ca.SX.sym("x", s.x.numel())
        return (
            ca.Function("stage", [s.x, *forces, s.u, s.p], [rates, slips, ca.solve(s.mass_matrix, force)]),
            ca.Function("node", [before, s.x, s.p], [ca.substitute(rates, s.x, before), rates, slips]),
        )

    def __call__(self, step: ContactStep, values: np.ndarray) -> np.ndarray:
        """Return w of a step at the parameters `values` of the MPCC."""
        u, p = values[self._u], values[self._p]
        found = {
            "s": step.h / step.h.sum() * len(step.h),
            "x_right": step.x_right,
            **self._nodes(step, p),
            **self._stages(step, u, p),
        }
        w = self._blank.copy()
        for name, rows in self._places.items():
            w[rows] = found[name].reshape(-1)
        return w

    def _stages(self, step: ContactStep, u: np.ndarray, p: np.ndarray) -> Values:
        """Values at all stages of all elements, one row each."""
        x, normal, tangent, drift = (
            part.reshape(part.shape[0] * part.shape[1], part.shape[2])
            for part in (step.x_stages, step.lambda_normal, step.lambda_tangent, step.drift)
        )
        rates, slips, acceleration = self._stage(x, normal, tangent, u, p)
        size = self._size(x)
        return {
            "x": x,
            "lambda_normal": normal,
            "acceleration": acceleration.T,
            **_parts("drift", drift),
            **_parts("gap_rate", _moving(rates.T, size)),
            **self._friction(_moving(slips.T, size), tangent, str),
        }

    def _nodes(self, step: ContactStep, p: np.ndarray) -> Values:
        """Values at the left boundaries of all elements, one row each."""
        before, after, slips = self._node(step.x_minus, step.x_left, p)
        size = self._size(step.x_left)
        restitution = np.where((-self._rest > before.T) | (self._rest == 0.0), self._restitution, 0.0)
        return {
            "v_plus": step.x_left[:, self._system.n_q :],
            "Lambda_normal": step.Lambda_normal,
            **_parts("Y", _moving(after.T + restitution * before.T, size)),
            **self._friction(_moving(slips.T, size), step.Lambda_tangent, str.capitalize),
        }

    def _size(self, x: np.ndarray) -> float:
        """Of the velocities of states (m, n_x)."""
        return 1.0 + float(np.abs(x[:, self._system.n_q :]).max(initial=0.0))

    def _friction(self, slips: np.ndarray, force: np.ndarray, rename: Callable[[str], str]) -> Values:
        found: Values = {}
        for contact, part, weight in zip(self._frictional, self._parts, self._weights, strict=True):
            values = CONES[cone_of(contact, self._cone)](slips[:, part], force[:, part] / weight)
            found |= {f"{rename(name)}[{contact.name}]": value for name, value in values.items()}
        return found


def _moving(velocity: np.ndarray, size: float) -> np.ndarray:
    return np.where(np.abs(velocity) <= REST * size, 0.0, velocity)


def places_of(problem: Transcription) -> dict[str, np.ndarray]:
    """Where in w the values of a name are, in the order of elements and stages."""
    found: dict[str, list[np.ndarray]] = {}
    for block in problem.mpcc.variables.blocks():
        found.setdefault(block.name, []).append(np.arange(block.rows.start, block.rows.stop))
    return {name: np.concatenate(rows) for name, rows in found.items()}
