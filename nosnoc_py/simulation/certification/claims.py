"""What a solution claims, held against the laws of motion at its own stages and nodes: nothing is simulated here.

An error of discretisation is no violation: a collocation satisfies the equations of motion at its stages and the law of
impacts at its nodes up to the solver's tolerance, however long its steps are. A wrong control, a force at a distance or
a phantom impulse does violate them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from nosnoc_py.simulation.certification.laws import Press, explain, violations
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
    presses = presses_of(mechanics, closed, look.rates)
    forces, rest = explain(look.jacobian[directions_of(mechanics, closed)].T, needed, presses)
    worst = int(np.argmax(np.abs(rest)))
    found = [Violation(float(np.abs(rest[worst]) / scale), f"no force explains the acceleration {names[n_q + worst]}'")]
    normals = look.jacobian[closed].T
    drift = rate[:n_q] - look.velocity
    drift -= normals @ np.linalg.lstsq(normals, drift, rcond=1e-12)[0] if closed else 0.0
    worst = int(np.argmax(np.abs(drift)))
    speed = 1.0 + np.abs(look.velocity).max(initial=0.0)
    found.append(Violation(float(np.abs(drift[worst]) / speed), f"{names[worst]}' is not {names[n_q + worst]}"))
    found += [Violation(size / scale, law) for size, law in violations(forces, presses)]
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
    old, new = look.rates, look.jacobian @ after[n_q:]
    late = {c: _lateness(float(frames.restitution[c]), float(old[c]), float(new[c])) for c in closed}
    units = {c: float(look.delassus[c, c]) for c in closed}
    presses = [
        replace(press, unit=units[c], opening=late[c] > SPEED_TOLERANCE)
        for c, press in zip(closed, presses_of(mechanics, closed, new), strict=True)
    ]
    impulses, rest = explain(look.jacobian[directions_of(mechanics, closed)].T, look.mass @ jump, presses)
    found = [
        Violation(float(np.abs(after[:n_q] - before[:n_q]).max()), "the position jumps"),
        Violation(float(np.abs(look.inverse @ rest).max()), "no impulse of a closed contact explains the jump"),
        *[Violation(size, law) for size, law in violations(impulses, presses)],
    ]
    for k, c in enumerate(closed):
        shock = max(units[c] * float(impulses[k]), 0.0)
        found.append(Violation(min(shock, abs(late[c])), f"{frames.names[c]} breaks the law of restitution"))
        if old[c] < 0.0:
            found.append(Violation(max(-late[c], 0.0), f"{frames.names[c]} is left too slowly after an impact"))
    return max(found, key=lambda violation: violation.size)


def _lateness(restitution: float, old: float, new: float) -> float:
    """n'(v+ + e v-) [m/s], with e = 0 where an approach is slow and that fits better."""
    rebounds = [restitution] if abs(old) > SLOW else [0.0, restitution]
    return min((new + e * old for e in rebounds), key=lambda rate: abs(rate))


def directions_of(mechanics: Mechanics, contacts: list[int]) -> np.ndarray:
    """Rows of the Jacobian that belong to contacts, normals first."""
    tangents = [np.arange(part.start, part.stop) for part in (mechanics.frames.tangents[c] for c in contacts)]
    return np.concatenate([np.array(contacts, dtype=int), *(mechanics.n_c + part for part in tangents)])


def presses_of(mechanics: Mechanics, contacts: list[int], rates: np.ndarray) -> list[Press]:
    """What closed contacts obey at rates (n_c + n_tt,), their forces in the order of `directions_of`."""
    made, position = [], len(contacts)
    for k, c in enumerate(contacts):
        part = mechanics.frames.tangents[c]
        width = part.stop - part.start
        made.append(
            Press(
                name=mechanics.frames.names[c],
                normal=k,
                tangents=tuple(range(position, position + width)),
                friction=float(mechanics.frames.friction[c]),
                slip=rates[mechanics.n_c :][part],
            )
        )
        position += width
    return made


def _differences(nodes: np.ndarray) -> np.ndarray:
    """Derivatives of the Lagrange polynomials of some nodes at these nodes."""
    powers = np.arange(1, nodes.size)
    slopes = np.column_stack([np.zeros(nodes.size), powers * nodes[:, None] ** (powers - 1)])
    return np.asarray(slopes @ np.linalg.inv(np.vander(nodes, increasing=True)))
