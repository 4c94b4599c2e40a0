"""What a solution claims, held against the laws of motion at its own stages and nodes: nothing is simulated here.

An error of discretisation is no violation: a collocation satisfies the equations of motion at its stages and the law of
impacts at its nodes up to the solver's tolerance, however long its steps are. A wrong control, a force at a distance or
a phantom impulse does violate them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nosnoc_py.simulation.event_driven.mechanics import Look, Mechanics
from nosnoc_py.solution import RungeKuttaInterpolant, Solution
from nosnoc_py.solution.certificate import Finding

# Gaps [m] of a solution below this are closed.
CLOSED = 1e-6
# Violations beyond these are no rounding of a converged solution: shares of the largest force, and [m/s].
FORCE_TOLERANCE = 1e-5
SPEED_TOLERANCE = 1e-5
# Approaches slower than this [m/s] may bounce or not: solutions have rest velocities of their own.
SLOW = 1.1e-3
# Slip faster than this [m/s] has a direction.
SLIPS = 1e-4
# Elements shorter than this share of the horizon have no derivatives.
SHORT = 1e-9


@dataclass(frozen=True)
class Violation:
    """How much a law is violated, and which one."""

    size: float
    law: str


def equations_of_motion(mechanics: Mechanics, solution: Solution) -> tuple[float | None, list[Finding]]:
    """Largest violation at the stages, as a share of the forces, and where it is too large; None without stages."""
    interpolant = solution.interpolant
    if not isinstance(interpolant, RungeKuttaInterpolant) or not solution.method.startswith("FESD"):
        return None, []
    worst, findings = 0.0, []
    for e in np.flatnonzero(interpolant.h > SHORT * solution.duration):
        found = max(_stages(mechanics, solution, interpolant, int(e)), key=lambda pair: pair[1].size)
        worst = max(worst, found[1].size)
        if found[1].size > FORCE_TOLERANCE:
            findings.append(Finding(time=found[0], what=found[1].law, size=found[1].size))
    return worst, findings


def _stages(
    mechanics: Mechanics, solution: Solution, interpolant: RungeKuttaInterpolant, e: int
) -> Iterator[tuple[float, Violation]]:
    """(t, violation) at the stages of one element."""
    t, h, c = float(interpolant.t_left[e]), float(interpolant.h[e]), interpolant.c
    nodes = np.append(0.0, c[c != 0.0])
    x = np.vstack([interpolant.x_left[e], interpolant.x_stages[e][c != 0.0]])
    rates = _differences(nodes) @ x / h
    u = solution.control(t + 0.5 * h)
    left = mechanics.look(x[0], u, solution.p)
    for k in range(1, len(nodes)):
        look = mechanics.look(x[k], u, solution.p)
        closed = [int(c) for c in np.flatnonzero((look.gaps <= CLOSED) & (left.gaps <= CLOSED))]
        yield t + h * nodes[k], _unexplained(mechanics, look, rates[k], closed)


def _unexplained(mechanics: Mechanics, look: Look, rate: np.ndarray, closed: list[int]) -> Violation:
    """The force that neither the system nor its closed contacts exert, as a share of the forces at work."""
    names, n_q = mechanics.system.state_names, mechanics.n_q
    needed = look.mass @ rate[n_q:] - look.force
    scale = 1.0 + max(np.abs(look.force).max(initial=0.0), np.abs(needed).max(initial=0.0))
    rows = directions_of(mechanics, closed)
    forces, rest = _explain(look.jacobian[rows].T, needed)
    worst = int(np.argmax(np.abs(rest)))
    found = [Violation(float(np.abs(rest[worst]) / scale), f"no force explains the acceleration {names[n_q + worst]}'")]
    drift = _explain(look.jacobian[closed].T, rate[:n_q] - look.velocity)[1]
    worst = int(np.argmax(np.abs(drift)))
    speed = 1.0 + np.abs(look.velocity).max(initial=0.0)
    found.append(Violation(float(np.abs(drift[worst]) / speed), f"{names[worst]}' is not {names[n_q + worst]}"))
    if np.linalg.matrix_rank(look.jacobian[rows]) == len(rows):
        found += [
            Violation(size / scale, f"{law} at {mechanics.frames.names[c]}")
            for k, c in enumerate(closed)
            for size, law in _coulomb(mechanics, c, forces[k], forces[_tangential(mechanics, rows, c)], look.rates)
        ]
    return max(found, key=lambda violation: violation.size)


def impact_law(mechanics: Mechanics, solution: Solution) -> tuple[float, list[Finding]]:
    """Largest violation of FESD-J, Eq. 11 at the nodes [m/s], and where it is too large."""
    interpolant = solution.interpolant
    if not isinstance(interpolant, RungeKuttaInterpolant):
        return 0.0, []
    left = np.vstack([interpolant.x_initial, interpolant.x_right[:-1]])
    worst, findings = 0.0, []
    for t, before, after in zip(interpolant.t_left, left, interpolant.x_left, strict=True):
        found = _jump(mechanics, before, after, solution.p)
        worst = max(worst, found.size)
        if found.size > SPEED_TOLERANCE * (1.0 + np.abs(before).max()):
            findings.append(Finding(time=float(t), what=f"{found.law} by {found.size:.3g} m/s", size=found.size))
    return worst, findings


def _jump(mechanics: Mechanics, before: np.ndarray, after: np.ndarray, p: np.ndarray) -> Violation:
    """The worst violation of the law of impacts between a left and a right limit."""
    n_q, frames = mechanics.n_q, mechanics.frames
    look = mechanics.look(before, np.zeros(mechanics.system.n_u), p)
    jump = after[n_q:] - before[n_q:]
    closed = [int(c) for c in np.flatnonzero(look.gaps <= CLOSED)]
    rows = directions_of(mechanics, closed)
    impulses, rest = _explain(look.jacobian[rows].T, look.mass @ jump)
    old, new = look.rates, look.jacobian @ after[n_q:]
    found = [
        Violation(float(np.abs(after[:n_q] - before[:n_q]).max()), "the position jumps"),
        Violation(float(np.abs(look.inverse @ rest).max()), "no impulse of a closed contact explains the jump"),
    ]
    independent = np.linalg.matrix_rank(look.jacobian[rows]) == len(rows)
    for k, c in enumerate(closed):
        e = float(frames.restitution[c])
        rebounds = [e] if abs(old[c]) > SLOW else [0.0, e]
        late = min((float(new[c] + bounce * old[c]) for bounce in rebounds), key=lambda rate: abs(rate))
        name, unit = frames.names[c], float(look.delassus[c, c])
        if old[c] < 0.0:
            found.append(Violation(-min(late, 0.0), f"{name} is left too slowly after an impact"))
        if independent:
            found.append(
                Violation(min(max(unit * impulses[k], 0.0), abs(late)), f"{name} breaks the law of restitution")
            )
            laws = _coulomb(mechanics, c, impulses[k], impulses[_tangential(mechanics, rows, c)], new)
            found += [Violation(unit * size, f"{law} at {name}") for size, law in laws]
    return max(found, key=lambda violation: violation.size)


def _coulomb(
    mechanics: Mechanics, contact: int, normal: float, tangential: np.ndarray, rates: np.ndarray
) -> list[tuple[float, str]]:
    """Violations of Coulomb's law by the forces (or impulses) of one contact at rates (n_c + n_tt,) (after them)."""
    mu, slip = float(mechanics.frames.friction[contact]), rates[mechanics.n_c :][mechanics.frames.tangents[contact]]
    size, speed, bound = float(np.linalg.norm(tangential)), float(np.linalg.norm(slip)), mu * max(normal, 0.0)
    found = [
        (max(-float(normal), 0.0), "a normal force pulls"),
        (max(size - bound, 0.0), "friction leaves its cone"),
    ]
    if speed > SLIPS:
        wanted = -bound * slip / speed
        found.append((float(np.linalg.norm(tangential - wanted)), "friction is not that of its slip"))
    return found


def directions_of(mechanics: Mechanics, contacts: list[int]) -> np.ndarray:
    """Rows of the Jacobian that belong to contacts, normals first."""
    tangents = [np.arange(part.start, part.stop) for part in (mechanics.frames.tangents[c] for c in contacts)]
    return np.concatenate([np.array(contacts, dtype=int), *(mechanics.n_c + part for part in tangents)])


def _tangential(mechanics: Mechanics, rows: np.ndarray, contact: int) -> np.ndarray:
    part = mechanics.frames.tangents[contact]
    return np.flatnonzero((rows >= mechanics.n_c + part.start) & (rows < mechanics.n_c + part.stop))


def _explain(directions: np.ndarray, vector: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shares (k,) of directions (n, k) in a vector, and what is left of it."""
    if not directions.shape[1]:
        return np.zeros(0), vector
    shares = np.linalg.lstsq(directions, vector, rcond=1e-12)[0]
    return shares, vector - directions @ shares


def _differences(nodes: np.ndarray) -> np.ndarray:
    """Derivatives of the Lagrange polynomials of some nodes at these nodes."""
    powers = np.arange(1, nodes.size)
    slopes = np.column_stack([np.zeros(nodes.size), powers * nodes[:, None] ** (powers - 1)])
    return np.asarray(slopes @ np.linalg.inv(np.vander(nodes, increasing=True)))
