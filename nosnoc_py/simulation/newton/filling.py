"""From the numbers of contact mechanics to an iterate of the MPCC: every variable of every cone by its name.

What the active-set Newton found is written into the variables of the unrelaxed finite-element equations. Those are made
elsewhere, from other expressions, so their residuals are a certificate.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import casadi as ca
import numpy as np

from nosnoc_py.mpcc.layout import At
from nosnoc_py.reformulation.friction import FrictionCone, cone_of, weights
from nosnoc_py.simulation.newton.contact_newton import ContactStep
from nosnoc_py.systems.cls import CLS
from nosnoc_py.transcription import Transcription

# Names of variables and their values, at the stages (n_s, size) or at one node (1, size).
Values = dict[str, np.ndarray]

SMALL = 1e-12


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
        self._system, self._problem, self._cone, self._rest = system, problem, cone, rest_velocity
        self._frictional = [c for c in system.contacts if c.frictional]
        normals = ca.horzcat(ca.SX(system.n_q, 0), *[system.normal(c) for c in system.contacts])
        arguments = [system.x, system.p]
        self._rates = ca.Function("rates", arguments, [normals.T @ system.v])
        slips = [weights(c)[1] * (c.tangent.T @ system.v) for c in self._frictional]
        self._slips = ca.Function("slips", arguments, [ca.vertcat(ca.SX(0, 1), *slips)])
        ends = np.cumsum([0, *[c.tangent.shape[1] for c in self._frictional]])
        self._parts = [slice(a, b) for a, b in pairwise(ends)]
        self._restitution = np.array([c.restitution for c in system.contacts])
        self._momentum = self._acceleration()

    def _acceleration(self) -> ca.Function:
        s = self._system
        normal = ca.SX.sym("normal", len(s.contacts))
        tangent = [ca.SX.sym("tangent", c.tangent.shape[1]) for c in self._frictional]
        force = s.force + ca.horzcat(ca.SX(s.n_q, 0), *[s.normal(c) for c in s.contacts]) @ normal
        for contact, value in zip(self._frictional, tangent, strict=True):
            force += contact.tangent @ value
        arguments = [s.x, s.u, s.p, normal, ca.vertcat(ca.SX(0, 1), *tangent)]
        return ca.Function("acceleration", arguments, [ca.solve(s.mass_matrix, force)])

    def __call__(self, step: ContactStep, values: np.ndarray) -> np.ndarray:
        """Return w of a step at the parameters `values` of the MPCC."""
        mpcc = self._problem.mpcc
        u, p = (values[mpcc.parameters[name]] for name in ("u", "p"))
        relative = step.h / step.h.sum() * len(step.h)
        places: dict[At, Values] = {}
        for n in range(len(step.h)):
            places[At(0, n)] = {
                **{name: value[0] for name, value in self._node(step, n, p).items()},
                "s": relative[n : n + 1],
                "x_right": step.x_right[n],
            }
            stages = self._stages(step, n, u, p)
            for j in range(step.x_stages.shape[1]):
                places[At(0, n, j)] = {name: value[j] for name, value in stages.items()}
        w = mpcc.w0.copy()
        for block in mpcc.variables.blocks():
            w[block.rows] = places[block.at][block.name]
        return w

    def _stages(self, step: ContactStep, n: int, u: np.ndarray, p: np.ndarray) -> Values:
        x, normal, tangent = step.x_stages[n], step.lambda_normal[n], step.lambda_tangent[n]
        rates = np.asarray(self._rates(x.T, p)).T
        return {
            "x": x,
            "lambda_normal": normal,
            "acceleration": np.asarray(self._momentum(x.T, u, p, normal.T, tangent.T)).T,
            **_parts("drift", step.drift[n]),
            **_parts("gap_rate", rates),
            **self._friction(x, tangent, p, str),
        }

    def _node(self, step: ContactStep, n: int, p: np.ndarray) -> Values:
        before, after = (np.asarray(self._rates(x, p)).reshape(1, -1) for x in (step.x_minus[n], step.x_left[n]))
        restitution = np.where((before < -self._rest) | (self._rest == 0.0), self._restitution, 0.0)
        return {
            "v_plus": step.x_left[n : n + 1, self._system.n_q :],
            "Lambda_normal": step.Lambda_normal[n : n + 1],
            **_parts("Y", after + restitution * before),
            **self._friction(step.x_left[n : n + 1], step.Lambda_tangent[n : n + 1], p, str.capitalize),
        }

    def _friction(self, x: np.ndarray, force: np.ndarray, p: np.ndarray, rename: Callable[[str], str]) -> Values:
        slips = np.asarray(self._slips(x.T, p)).T
        found: Values = {}
        for contact, part in zip(self._frictional, self._parts, strict=True):
            weight = np.asarray(weights(contact)[1]).reshape(-1)
            values = CONES[cone_of(contact, self._cone)](slips[:, part], force[:, part] / weight)
            found |= {f"{rename(name)}[{contact.name}]": value for name, value in values.items()}
        return found
