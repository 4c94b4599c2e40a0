"""Bodies of the tests of the variational integrator, and a second implementation of Case I."""

from __future__ import annotations

from typing import Any

import numpy as np

import nosnoc_py as ns
from models.bouncing_bodies import ANGULAR_MOMENTUM, MOMENTUM, POSITION, build

G = 9.80665
FLOOR = ns.Plane("floor")
ELLIPSOID = ns.Ellipsoid((2, 3, 4))


def case(name: str) -> ns.RigidBody:
    """A case of Table 3 of the paper."""
    return build(name)


def cube(skin: float = 0.0) -> ns.ConvexPolyhedron:
    """A cube of side 2 sqrt(3)."""
    corners = [(i, j, k) for i in (-1, 1) for j in (-1, 1) for k in (-1, 1)]
    return ns.ConvexPolyhedron(np.sqrt(3.0) * np.array(corners), skin=skin)


def ball(*planes: ns.Plane, **more: Any) -> ns.RigidBody:
    """A homogeneous ball of radius 2 and mass 1."""
    return ns.RigidBody(shape=ns.Sphere(2.0), planes=planes, inertia=(1.6, 1.6, 1.6), **more)


def start(body: ns.RigidBody, shift: Any = 0.0) -> np.ndarray:
    """The initial state of Table 3; a shift of nine numbers perturbs everything but the rotation."""
    position, momentum, spin = np.add(shift, (*POSITION, *MOMENTUM, *ANGULAR_MOMENTUM)).reshape(3, 3)
    return body.state(position, momentum, spin)


def simulate(body: ns.RigidBody, x0: Any, duration: float, **options: Any) -> ns.Trajectory:
    """A simulation by options of the method; `callback`, `steps` and `time_limit` go where they belong."""
    run = {name: options.pop(name) for name in ("callback", "steps", "time_limit") if name in options}
    return ns.simulate(body, x0=x0, duration=duration, method=ns.LieGroupVariational(**options), **run)


def drift(trajectory: ns.Trajectory) -> float:
    """Largest change of the energy."""
    return float(np.abs(trajectory["energy"] - trajectory["energy"][0]).max())


def reference_impacts(count: int, h: float = 0.01) -> tuple[list[float], list[float]]:
    """Times and impulses of Case I, from scratch: step by step in extended precision, by bisection.

    F solves vee(F J_d - J_d F') = h Pi, without the polynomial of the paper: fixed slope 2 J in Cayley's coordinates.
    """
    real = np.longdouble
    inertia, axes = np.diag([5, 4, 2.6]).astype(real), np.array([2, 3, 4], dtype=real)
    moments = np.diag(inertia)
    weights = np.diag(np.full(3, moments.sum() / 2) - moments)

    def turn(p: np.ndarray) -> np.ndarray:
        f = p / moments / 2
        for _ in range(40):
            hat = np.array([[0, -f[2], f[1]], [f[2], 0, -f[0]], [-f[1], f[0], 0]], dtype=real)
            F = ((1 - f @ f) * np.eye(3, dtype=real) + 2 * hat + 2 * np.outer(f, f)) / (1 + f @ f)
            S = F @ weights - weights @ F.T
            step = (p - np.array([S[2, 1], S[0, 2], S[1, 0]])) / (2 * moments)
            f = f + step
            if np.abs(step).max() < 1e-19:
                break
        return F

    def flight(state: Any, s: Any) -> Any:
        x, R, gamma, spin = state
        F, fall = turn(s * spin), np.array([0, 0, -G], dtype=real)
        return x + s * gamma + s * s / 2 * fall, R @ F, gamma + s * fall, F.T @ spin

    def lowest(state: Any) -> tuple[Any, np.ndarray, np.ndarray]:
        nu = state[1][2]
        length = np.sqrt(((axes * nu) ** 2).sum())
        return state[0][2] - length, -(axes**2) * nu / length, nu

    now = [np.array(v, dtype=real) for v in ((0, 0, 10), np.eye(3), (2, 2, 10), (4, -4, 4))]
    times: list[float] = []
    impulses: list[float] = []
    h, k = real(1) / real(round(1 / h)), 0
    while len(times) < count:
        used, after = real(0), flight(now, h)
        while lowest(after)[0] <= 0:
            low, high = real(0), h - used
            for _ in range(70):
                middle = (low + high) / 2
                low, high = (middle, high) if lowest(flight(now, middle))[0] > 0 else (low, middle)
            used += low
            now = list(flight(now, low))
            _, rho, nu = lowest(now)
            chi = np.cross(rho, nu)
            value = -2 * (now[2][2] + chi @ (now[3] / moments)) / (1 + chi @ (chi / moments))
            now[2] = now[2] + value * np.array([0, 0, 1], dtype=real)
            now[3] = now[3] + value * chi
            times.append(float(k * h + used))
            impulses.append(float(value))
            after = flight(now, h - used)
        now, k = list(after), k + 1
    return times[:count], impulses[:count]
