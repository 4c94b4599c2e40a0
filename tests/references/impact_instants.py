"""Random impact instants: 1 to 4 closed contacts, in the plane or in space, with or without friction, at least one of
them approaching, while others separate or rest. All velocities after the impact are known by brute force.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import casadi as ca
import numpy as np

import nosnoc_py as ns
from tests.references.contact_oracle import Solutions, impact

SLOWEST = 0.02  # approach or separation, unless at rest; rest velocities are 1e-3
FASTEST = 0.1  # approach of one contact at least
AGREED, INEXACT = 1e-8, 1e-5  # differences of velocities, relative to those above 1
AGREE, MEMBER, RIGHTLY, CLOSE = "agree", "one of several", "rightly refused", "inexact"
UNTOLD = "untold"  # one of several solutions, as if it were the only one
REFUSED, WRONG, RAISED = "refused", "WRONG", "RAISED"
VERDICTS = (AGREE, MEMBER, UNTOLD, RIGHTLY, CLOSE, REFUSED, WRONG, RAISED)
CLASSES = tuple((n_t, friction, count) for n_t in (1, 2) for friction in (False, True) for count in (1, 2, 3, 4))


@dataclass(frozen=True, eq=False, kw_only=True)
class Instant:
    """An impact with k closed contacts.

    Parameters
    ----------
    index : int
    spatial : bool
    mass : (n_q, n_q)
    before : (n_q,)
        Velocities v- before the impact.
    normals : k of (n_q,)
    tangents : k of (n_q, n_t)
        Without columns where there is no friction.
    friction : k of n_t coefficients
    restitution : k numbers
    """

    index: int
    spatial: bool
    mass: np.ndarray
    before: np.ndarray
    normals: tuple[np.ndarray, ...]
    tangents: tuple[np.ndarray, ...]
    friction: tuple[tuple[float, ...], ...]
    restitution: tuple[float, ...]

    @property
    def label(self) -> str:
        """Its class."""
        friction = "friction" if any(map(any, self.friction)) else "no friction"
        return f"{'space' if self.spatial else 'plane'}, {friction}, {len(self.normals)}"

    @property
    def x0(self) -> np.ndarray:
        """State before the impact, all gaps closed."""
        return np.concatenate([np.zeros_like(self.before), self.before])

    def solutions(self) -> Solutions:
        """All velocities after the impact."""
        return impact(self.mass, self.before, self.normals, self.tangents, self.friction, self.restitution)

    def system(self) -> ns.CLS:
        """The same as a system: gaps n'q, no forces."""
        q, v = ca.SX.sym("q", self.before.size), ca.SX.sym("v", self.before.size)
        contacts = [
            ns.Contact(
                f"c{i}",
                gap=ca.dot(ca.DM(normal), q),
                tangent=ca.DM(tangent) if mu else None,
                friction=mu or 0.0,
                restitution=e,
            )
            for i, (normal, tangent, mu, e) in enumerate(
                zip(self.normals, self.tangents, self.friction, self.restitution, strict=True)
            )
        ]
        return ns.CLS(q=q, v=v, mass_matrix=ca.DM(self.mass), force=ca.DM.zeros(self.before.size), contacts=contacts)


# -------------------------------------------------------------------------------------------------------- random ones


def instant(seed: int, index: int) -> Instant:
    """Return a random instant; the class goes round with the index."""
    rng = np.random.default_rng([seed, index])
    n_t, frictional, count = CLASSES[index % len(CLASSES)]
    mass, frames = (_any if rng.random() < 0.4 else _bodies)(rng, n_t, count)
    rubs = frictional & ((rng.random(count) < 0.8) | (np.arange(count) == rng.integers(count)))
    normals = tuple(frame[:, 0] for frame in frames)
    return Instant(
        index=index,
        spatial=n_t == 2,
        mass=mass,
        before=_velocity(rng, np.array(normals)),
        normals=normals,
        tangents=tuple(frame[:, 1:] if rub else frame[:, :0] for frame, rub in zip(frames, rubs, strict=True)),
        friction=tuple(_coefficients(rng, n_t) if rub else () for rub in rubs),
        restitution=_restitution(rng, count),
    )


def _any(rng: np.random.Generator, n_t: int, count: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Any mass matrix and frames (n, t): redundant where there are more directions than coordinates."""
    most = count * (1 + n_t) if rng.random() < 0.5 else max(count, 1 + n_t)
    n_q = int(rng.integers(1 + n_t, most + 2))
    frames = [frame / np.linalg.norm(frame, axis=0) for frame in rng.normal(size=(count, n_q, 1 + n_t))]
    return _definite(rng, n_q), [frame * rng.uniform(0.5, 1.5, 1 + n_t) for frame in frames]


def _bodies(rng: np.random.Generator, n_t: int, count: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """One or two rigid bodies that touch the surroundings or each other: any points and normals, or a flat ground."""
    size, number, flat = 1 + n_t, int(rng.integers(1, 3)), rng.random() < 0.3
    n_q = 3 * n_t  # of one body: 3 in the plane, 6 in space
    mass = np.zeros((number * n_q, number * n_q))
    for body in range(number):
        linear = np.arange(body * n_q, body * n_q + size)
        angular = np.arange(body * n_q + size, (body + 1) * n_q)
        mass[linear, linear] = rng.uniform(0.5, 3.0)
        mass[np.ix_(angular, angular)] = 0.2 * _definite(rng, angular.size)
    ground, frames = _axes(rng, size), []
    for _ in range(count):
        axes, bodies = (ground if flat else _axes(rng, size)), rng.permutation(number)[: rng.integers(1, 3)]
        frame = np.zeros((number * n_q, size))
        for sign, body in zip((1.0, -1.0), bodies, strict=False):
            arm = rng.uniform(-1.0, 1.0, size)
            if flat:
                arm += (-0.5 - arm @ axes[:, 0]) * axes[:, 0]  # corners of one face
            moments = np.atleast_2d(np.cross(arm, axes.T)).reshape(size, -1).T if size == 3 else _moment(arm, axes)
            frame[body * n_q : (body + 1) * n_q] = sign * np.vstack([axes, moments])
        frames.append(frame)
    return mass, frames


def _moment(arm: np.ndarray, axes: np.ndarray) -> np.ndarray:
    """Moments of forces along the axes in the plane (1, 2)."""
    return np.asarray(arm[0] * axes[1:] - arm[1] * axes[:1])


def _axes(rng: np.random.Generator, size: int) -> np.ndarray:
    """A random orthonormal basis."""
    return np.linalg.qr(rng.normal(size=(size, size)))[0]


def _definite(rng: np.random.Generator, size: int) -> np.ndarray:
    """A random symmetric matrix with eigenvalues from .3 to 3."""
    axes = _axes(rng, size)
    return axes * rng.uniform(0.3, 3.0, size) @ axes.T


def _velocity(rng: np.random.Generator, normals: np.ndarray) -> np.ndarray:
    """Velocities with which a contact approaches, with luck others separate or rest, and none is nearly at rest."""
    parts, rests = rng.random() < 0.7, rng.random() < 0.25 and len(normals) > 1
    resting = int(rng.integers(1, len(normals))) if rests else -1
    found: list[np.ndarray] = []
    for attempt in range(200):
        v: np.ndarray = rng.normal(size=(normals.shape[1],))
        looked = np.ones(len(normals), dtype=bool)
        if rests and attempt < 100:  # later not: the normals may leave no such velocity
            v -= normals[resting] * (normals[resting] @ v) / (normals[resting] @ normals[resting])
            looked[resting] = False
        rates = normals @ v
        if rates.min() <= -FASTEST and np.abs(rates[looked]).min(initial=np.inf) >= SLOWEST:
            found.append(v)
            if len(normals) == 1 or not parts or rates.max() >= SLOWEST:
                break
    return found[-1]


def _coefficients(rng: np.random.Generator, n_t: int) -> tuple[float, ...]:
    """Friction, in one case of four strong enough to jam, in one of four anisotropic where it can be."""
    most = 3.0 if rng.random() < 0.25 else 1.2
    different = rng.uniform(0.1, most, n_t)
    return tuple(float(mu) for mu in (different if rng.random() < 0.25 else different[:1].repeat(n_t)))


def _restitution(rng: np.random.Generator, count: int) -> tuple[float, ...]:
    """All 0, all 1, one number for all, or different ones."""
    kind = rng.integers(4)
    if kind < 2:
        return (float(kind),) * count
    if kind == 2:
        return (float(rng.uniform()),) * count
    return tuple(float(e) for e in rng.choice([0.0, rng.uniform(), rng.uniform(), 1.0], count))


@dataclass(frozen=True, eq=False)
class Answer:
    """What a method makes of an instant: v+ where it has one, and what it said."""

    velocity: np.ndarray
    success: bool
    said: str = ""


def verdict(answer: Answer, rates: Sequence[np.ndarray], solutions: int) -> str:
    """What an answer is worth, given all solutions that gain no energy, and how many there are with those that do."""
    if answer.said.startswith(RAISED):
        return RAISED
    if not answer.success:
        return REFUSED if rates else RIGHTLY
    error = min((np.abs(answer.velocity - v).max() / max(1.0, np.abs(v).max()) for v in rates), default=np.inf)
    if error <= AGREED:
        return AGREE if solutions == 1 else MEMBER if "not unique" in answer.said else UNTOLD
    return CLOSE if error <= INEXACT else WRONG
