"""Laws of contact mechanics (FESD-J, Eqs. 1 and 11), evaluated on the numbers of a motion.

Distances are gaps divided by the norm of their normal, and impulses are measured by the velocities that they change, so
that relative residuals do not depend on the unit of a gap, a force or a mass. Complementarities are measured by the
smaller side: a force of half of the typical force at a distance of 1e-9 lengths violates the law by 1e-9.

References
----------
Coulomb's law as maximal dissipation: Moreau, CISM Lectures 302 (1988). Newton's law of restitution between velocities
of one contact, as here: Glocker, Set-Valued Force Laws (2001), Sec. 8.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nosnoc_py.audit.explanation import ContactLaw, explain
from nosnoc_py.audit.records import Jumps, Measured, MotionSamples, Scales
from nosnoc_py.contact_problems.instants import energy_rise
from nosnoc_py.contact_problems.law import rebound
from nosnoc_py.solution.violation import Law
from nosnoc_py.systems.kinematics import times
from nosnoc_py.systems.scales import UNIT, ProblemScales, largest, problem_scales
from nosnoc_py.tolerances import NOT_ZERO, TOUCHING_SOLVED

if TYPE_CHECKING:
    from nosnoc_py.systems.cls import CLS
    from nosnoc_py.systems.kinematics import ContactFrames, Kinematics

Array = np.ndarray
# A body at rest has no typical speed: use at least this share of the speed of the problem (a thousand times the effect
# of residuals).
AT_REST = 1e-5
# A contact has to open after a jump if it would be reached again within this fraction of the typical time: a bounce at
# 1e-4 m/s is 1e-9 m high, and yet a flight.
AT_ONCE = 1e-7
# Approaches up to this multiple of the default rest velocity may bounce or not: solutions may use another one.
RESTS = 1.1
# A contact that opens faster than the law requires, by this fraction of the speed, had no impulse.
OPENING = 1e-5
# Slip faster than this fraction of the speed has a direction when forces are computed.
SLIPS = 1e-4
# Laws of the circular friction cone, which a pyramid does not satisfy.
CIRCULAR = (Law.CONE, Law.DISSIPATION)


def scales_of(system: CLS, samples: MotionSamples, jumps: Jumps, *, p: Array, duration: float, stage: float) -> Scales:
    """Return the typical sizes of a motion, which residuals are relative to.

    Parameters
    ----------
    duration, stage : float
        Of the motion, and of one control stage [s]: speeds count as what the forces at work give in one stage at
        least, with controls or without, because they may hold each other.
    """
    at_v, frames = system.at_v, system.mechanics.frames_at(p)
    here = _kinematics(system, samples.x, samples.u, p)
    free = times(here.inverse, here.force)
    alone = times(here.inverse, system.kinematics(samples.x, 0.0, p).force)
    problem = _problem_scales(system, samples, p, duration)
    velocities = [samples.x[:, at_v], jumps.x_before[:, at_v], jumps.x_after[:, at_v]]
    # The forces of one control stage give at least this speed: a motion at rest has no speed of its own to compare
    # with.
    speed = max(*(largest(v) for v in velocities), max(largest(free), largest(alone)) * stage, AT_REST * problem.speed)
    pushed = free if samples.forces is None else times(here.response, samples.forces)
    moved = free if samples.rates is None else samples.rates[:, at_v]
    accelerations = [largest(free), largest(pushed), largest(moved), speed / duration]
    response = largest(here.response[..., : frames.count])
    return Scales(
        length=max(largest(samples.x[:, system.at_q]), speed * duration),
        speed=speed,
        acceleration=max(accelerations),
        response=max(response, NOT_ZERO),
        rest=RESTS * problem.rest_velocity(None),
    )


def _problem_scales(system: CLS, samples: MotionSamples, p: Array, duration: float) -> ProblemScales:
    """Return the scales of a simulation from the first sample on, under the same control."""
    if not len(samples.t):
        return UNIT

    def control(t: float, x: Array) -> Array:
        return np.asarray(samples.u[np.searchsorted(samples.t[:-1] - samples.t[0], t)])

    return problem_scales(system, x0=samples.x[0], control=control, p=p, duration=duration)


def laws_of_motion(
    system: CLS, samples: MotionSamples, scales: Scales, p: Array, *, exact_friction: bool = True
) -> list[Measured]:
    """Return residuals of gaps, force at a distance, Coulomb's law, balance of forces and position rates (Eq. 1).

    Parameters
    ----------
    exact_friction : bool
        False where a method replaced the friction cone by a pyramid, whose forces do not oppose the slip exactly.
    """
    if not len(samples.t):
        return []
    here, frames = _kinematics(system, samples.x, samples.u, p), system.mechanics.frames_at(p)
    distance = distances(here)
    below = np.maximum(-distance, 0.0)
    residuals = [_measured(Law.GAPS, samples.t, frames.names, below, below / scales.length, "m")]
    closed = distance <= TOUCHING_SOLVED * scales.length
    forces = explained_forces(system, samples, scales, p).forces
    if forces is None:
        return residuals
    residuals += _coulomb(here, frames, samples.t, forces, here.rates, scales.acceleration, scales.speed, "N")
    normal = forces[:, : frames.count]
    pushes = np.abs(normal) * _responses(here, frames)[0] / scales.acceleration
    # Complementarity by its smaller side: a violation needs both a force and a distance.
    apart = np.minimum(pushes, np.maximum(distance, 0.0) / scales.length)
    residuals.append(_measured(Law.DISTANCE, samples.t, frames.names, np.abs(normal), apart, "N"))
    if samples.x_left is not None:
        # A force at a stage of an element that began open would be an impact without the law of impacts.
        open_ = np.maximum(distances(system.kinematics(samples.x_left, 0.0, p)), 0.0) / scales.length
        caught = np.minimum(pushes, open_)
        residuals.append(_measured(Law.CATCH, samples.t, frames.names, np.abs(normal), caught, "N"))
    residuals = [residual for residual in residuals if exact_friction or residual.law not in CIRCULAR]
    if samples.rates is not None:
        residuals += _rates(
            system, samples, here, forces, closed | (pushes > 0.0) & (apart <= TOUCHING_SOLVED), scales, p
        )
    return residuals


def laws_of_impacts(
    system: CLS, jumps: Jumps, scales: Scales, p: Array, *, exact_friction: bool = True
) -> list[Measured]:
    """Return residuals of the law of impacts (Eq. 11), and of its energy.

    0 <= Lambda, gamma+ + e min(gamma-, 0) >= 0, and one of them is zero: a contact that separates already has no
    rebound, but may be held. If an approach is slower than `scales.rest`, e may be 0.
    """
    if not len(jumps.t):
        return []
    frames, t = system.mechanics.frames_at(p), jumps.t
    names, n_c = frames.names, frames.count
    here = _kinematics(system, jumps.x_before, 0.0, p)
    distance, after = distances(here), jumps.x_after[:, system.at_v]
    change, new = after - here.velocity, here.rates_of(after)
    impulses = explained_impulses(system, jumps, scales, p).impulses
    assert impulses is not None
    imbalance = np.abs(change - times(here.response, impulses))
    # Neither positions nor first-order states jump; the unit of these is theirs.
    jumped = np.abs(np.delete(jumps.x_after - jumps.x_before, system.at_v, axis=1))
    sizes = np.append(np.full(system.n_q, scales.length), _sizes_of_y(system, jumps.x_before, scales.length))
    normal = impulses[:, :n_c]
    shocks = np.abs(normal) * _responses(here, frames)[0]
    lateness = _lateness(here, frames, new, scales.rest)
    defect = np.minimum(shocks, np.abs(lateness))
    slow = np.maximum(-lateness, 0.0)
    at_once = AT_ONCE * scales.length / scales.speed  # [s]; another jump within this time may be the impact
    lasting = np.append(np.diff(t) > at_once, True)[:, None]
    approaching = np.where((distance <= at_once * slow) & lasting, slow, 0.0)
    apart = np.minimum(shocks / scales.speed, np.maximum(distance, 0.0) / scales.length)
    residuals = [
        _measured(Law.CONTINUITY, t, (*system.names["q"], *system.names["y"]), jumped, jumped / sizes, "m"),
        _measured(Law.IMPULSES, t, system.names["v"], imbalance, imbalance / scales.speed, "m/s"),
        _measured(Law.RESTITUTION, t, names, defect, defect / scales.speed, "m/s"),
        _measured(Law.SEPARATION, t, names, approaching, approaching / scales.speed, "m/s"),
        _measured(Law.IMPULSE_DISTANCE, t, names, np.abs(normal), apart, "N s"),
        *_coulomb(here, frames, t, impulses, new, scales.speed, scales.speed, "N s"),
        _energy(here, t, names, impulses, scales),
    ]
    return [residual for residual in residuals if exact_friction or residual.law not in CIRCULAR]


def explained_forces(system: CLS, samples: MotionSamples, scales: Scales, p: Array) -> MotionSamples:
    """Return samples with forces of closed contacts that explain their rates, unless they have forces."""
    if samples.forces is not None or samples.rates is None:
        return samples
    here, frames = _kinematics(system, samples.x, samples.u, p), system.mechanics.frames_at(p)
    closed_ = distances(here) <= TOUCHING_SOLVED * scales.length
    needed = times(here.mass, samples.rates[:, system.at_v]) - here.force
    if samples.x_left is not None:
        closed_ &= distances(system.kinematics(samples.x_left, 0.0, p)) <= TOUCHING_SOLVED * scales.length
    return replace(samples, forces=_explaining(here, frames, closed_, needed, here.rates, scales.speed))


def explained_impulses(system: CLS, jumps: Jumps, scales: Scales, p: Array) -> Jumps:
    """Return jumps with impulses of closed contacts that explain them, unless they have impulses."""
    if jumps.impulses is not None:
        return jumps
    here, frames = _kinematics(system, jumps.x_before, 0.0, p), system.mechanics.frames_at(p)
    after = jumps.x_after[:, system.at_v]
    new = here.rates_of(after)
    wanted = times(here.mass, after - here.velocity)
    closed = distances(here) <= TOUCHING_SOLVED * scales.length
    opening = _lateness(here, frames, new, scales.rest) > OPENING * scales.speed
    return replace(jumps, impulses=_explaining(here, frames, closed, wanted, new, scales.speed, opening))


def _sizes_of_y(system: CLS, values: Array, least: float) -> Array:
    """Return the sizes that errors of first-order states (m, n_y), or of their rates, are relative to."""
    residuals = values[:, system.at_y] if values.shape[1] == system.x.numel() else values
    return np.maximum(np.abs(residuals).max(axis=0, initial=0.0), least)


def distances(here: Kinematics) -> Array:
    """Return gaps in the unit of length (m, n_c): divided by the norms of their normals."""
    steepness = here.steepness
    # A normal of nearly zero length (a singular pose) must not turn rounding of a gap into a distance.
    return np.asarray(
        here.gaps / np.maximum(steepness, 1e-6 * np.maximum(steepness.max(axis=0, initial=0.0), NOT_ZERO))
    )


def _lateness(here: Kinematics, frames: ContactFrames, new: Array, rest: float) -> Array:
    """Return gamma+ + e min(gamma-, 0) in the unit of speed (m, n_c).

    With e = 0 if an approach is slow and that fits.
    """
    steepness = np.maximum(here.steepness, NOT_ZERO)
    before, after = (rates[:, : frames.count] / steepness for rates in (here.rates, new))
    bounced = after - rebound(before, frames.restitution)
    # Slow approaches may be inelastic, by `rest_velocity`: the law that fits better counts.
    return np.where((np.abs(before) <= rest) & (np.abs(after) < np.abs(bounced)), after, bounced)


def _responses(here: Kinematics, frames: ContactFrames) -> tuple[Array, Array]:
    """Return the largest change of a velocity per unit of each normal (m, n_c) and friction force (m, n_tt)."""
    sizes = np.abs(here.response).max(axis=1, initial=0.0)
    return sizes[:, : frames.count], sizes[:, frames.count :]


def _coulomb(
    here: Kinematics, frames: ContactFrames, t: Array, forces: Array, rates: Array, size: float, speed: float, unit: str
) -> Iterator[Measured]:
    """Yield residuals of pushing normal forces and Coulomb friction; for impulses with the slip after the impact."""
    n_c = frames.count
    normal, tangential, slips = forces[:, :n_c], forces[:, n_c:], rates[:, n_c:]
    by_normal, by_friction = _responses(here, frames)
    pull = np.maximum(-normal, 0.0)
    yield _measured(Law.PULL, t, frames.names, pull, pull * by_normal / size, unit)
    with_friction = [c for c in range(n_c) if frames.width(c)]
    if not with_friction:
        return
    frames = here.framed(frames)
    names = tuple(frames.names[c] for c in with_friction)
    outside, defect, units, fast = (np.zeros((len(t), len(with_friction))) for _ in range(4))
    for k, c in enumerate(with_friction):
        part = frames.tangents[c]
        friction, slip = tangential[:, part], slips[:, part]
        pressed = np.maximum(normal[:, c], 0.0)
        bound, most = (mu[..., c] * pressed for mu in (frames.friction, frames.cone))
        fast[:, k] = np.linalg.norm(slip, axis=1)
        along = slip / np.maximum(fast[:, k], NOT_ZERO)[:, None]
        outside[:, k] = np.maximum(np.linalg.norm(friction, axis=1) - most, 0.0)
        # Maximal dissipation: friction equals -mu lambda_n times the direction of slip, unless the contact sticks.
        defect[:, k] = np.linalg.norm(friction + bound[:, None] * along, axis=1)
        units[:, k] = by_friction[:, part].max(axis=1)
    yield _measured(Law.CONE, t, names, outside, outside * units / size, unit)
    # In stick any force in the cone is right: the share is limited by the slip speed.
    shares = np.minimum(defect * units / size, fast / speed)
    yield _measured(Law.DISSIPATION, t, names, defect, shares, unit)


def _rates(
    system: CLS, samples: MotionSamples, here: Kinematics, forces: Array, closed: Array, scales: Scales, p: Array
) -> Iterator[Measured]:
    """Yield residuals of the balance of forces and of q' = N v (up to a drift along normals of closed contacts)."""
    noise = 0.0 if samples.noise is None else samples.noise[:, None]
    assert samples.rates is not None
    explained_accelerations = times(here.inverse, here.force) + times(here.response, forces)
    imbalance = np.maximum(np.abs(samples.rates[:, system.at_v] - explained_accelerations) - noise, 0.0)
    yield _measured(Law.BALANCE, samples.t, system.names["v"], imbalance, imbalance / scales.acceleration, "m/s^2")
    drift = samples.rates[:, system.at_q] - here.position_rate
    for k in np.flatnonzero(closed.any(axis=1) & (np.abs(drift).max(axis=1) > 0.0)):
        # Stabilisation may move positions along the normals of closed contacts, q' = N (v + n tau).
        along = here.jacobian[k, : closed.shape[1]][closed[k]].T
        normals = system.mechanics.moved(samples.x[k], p, along)
        drift[k] -= normals @ np.linalg.lstsq(normals, drift[k], rcond=1e-12)[0]
    away = np.maximum(np.abs(drift) - noise, 0.0)
    yield _measured(Law.POSITIONS, samples.t, system.names["q"], away, away / scales.speed, "m/s")
    off = np.maximum(np.abs(samples.rates[:, system.at_y] - here.y_rate) - noise, 0.0)
    shares = off / _sizes_of_y(system, here.y_rate, scales.speed)
    yield _measured(Law.POSITIONS, samples.t, system.names["y"], off, shares, "1/s")


def _energy(here: Kinematics, t: Array, names: tuple[str, ...], impulses: Array, scales: Scales) -> Measured:
    """Return the kinetic energy gained by impulses (`energy_rise` at the typical speed) [J].

    It is that of all contacts together, reported for the contact with the largest impulse.
    """
    gains = energy_rise(here, times(here.response, impulses), scales.speed)
    normal = np.abs(impulses[:, : len(names)])
    leading = normal >= normal.max(axis=1, keepdims=True, initial=0.0)
    amounts, shares = (np.where(leading, gain[:, None], 0.0) for gain in gains)
    return _measured(Law.ENERGY, t, names, amounts, shares, "J")


def _explaining(
    here: Kinematics,
    frames: ContactFrames,
    closed: Array,
    wanted: Array,
    rates: Array,
    speed: float,
    opening: Array | None = None,
) -> Array:
    """Return forces (m, n_c + n_tt) of closed contacts that sum up to generalised forces `wanted` (m, n_v)."""
    forces = np.zeros((len(wanted), frames.count + frames.n_t))
    friction = np.broadcast_to(here.framed(frames).friction, closed.shape)
    for k in np.flatnonzero(closed.any(axis=1)):
        contacts = np.flatnonzero(closed[k])
        columns = frames.rows(contacts)
        laws, position = [], len(contacts)
        for i, c in enumerate(contacts):
            slip = rates[k, frames.count :][frames.tangents[c]]
            size = float(np.linalg.norm(slip))
            laws.append(
                ContactLaw(
                    normal=i,
                    tangents=tuple(range(position, position + slip.size)),
                    friction=float(friction[k, c]),
                    direction=slip / size if size > SLIPS * speed else None,
                    opening=opening is not None and bool(opening[k, c]),
                )
            )
            position += slip.size
        if np.isfinite(wanted[k]).all() and np.isfinite(here.jacobian[k]).all():
            forces[k, columns] = explain(here.jacobian[k, columns].T, wanted[k], laws)
        else:
            forces[k, columns] = np.nan
    return forces


def _kinematics(system: CLS, x: Array, u: Any, p: Array) -> Kinematics:
    """Return the kinematics at many states; a singular mass matrix is replaced by its pseudo-inverse."""
    here = system.kinematics(x, u, p)
    if np.isfinite(here.inverse).all() or not np.isfinite(here.mass).all():
        return here
    return replace(here, constant_inverse=np.linalg.pinv(here.mass, hermitian=True))


def _measured(law: Law, t: Array, subjects: Any, amounts: Array, shares: Array, unit: str) -> Measured:
    """Return the residuals of one law."""
    return Measured(law=law, t=t, subjects=tuple(subjects), amounts=amounts, shares=shares, unit=unit)
