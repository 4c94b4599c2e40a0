"""Forty motions with contacts, friction and switches whose derivatives exist, and checks of their gradients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from models import (
    bouncing_ball,
    free_box,
    kneed_hopper,
    oscillator,
    pushed_point,
    relay_feedback,
    stick_slip,
    two_balls_spring,
)
from tests.references.friction_closed_forms import BY_NAME

Array = np.ndarray
GRAVITY = 9.81
SIDES = [[-1], [1]]


@dataclass(frozen=True, eq=False, kw_only=True)
class GradientScene:
    """A motion; `step` is that of differences."""

    system: Any
    x0: Any
    duration: float
    p: Any = None
    u: Any = None
    times: Any = None
    step: float = 1e-4

    def data(self) -> list[Array]:
        """Return x0, p, and the control if it has rows."""
        p = self.system.parameters(self.p)
        rows = [np.asarray(self.u, float)] if self.u is not None and not callable(self.u) else []
        return [np.asarray(self.x0, float), np.asarray(p, float), *rows]

    def run(self, data: list[Array] | None = None, **more: Any) -> ns.Trajectory:
        """Simulate it, or one with other data."""
        x0, p, *u = self.data() if data is None else data
        control = u[0] if u else self.u
        return ns.simulate(
            self.system,
            x0=x0,
            p=p,
            u=control,
            duration=self.duration,
            times=self.times,
            method=ns.EventDriven(),
            **more,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Weights:
    """A loss: its derivatives by the last state, by states at `times`, and by times of events."""

    final: Array
    samples: Array
    event_times: Array
    times: Array

    @classmethod
    def of(cls, motion: ns.Trajectory, times: Any, seed: int) -> Weights:
        """Draw the loss of a motion."""
        rng, n_x = np.random.default_rng(seed), (motion.x.shape[1],)
        at = np.zeros(0) if times is None else np.asarray(times, float)
        return cls(
            final=rng.normal(size=n_x),
            samples=rng.normal(size=(at.size, *n_x)),
            event_times=rng.normal(size=len(motion.events)),
            times=at,
        )

    def gradient(self, motion: ns.Trajectory) -> ns.Gradient:
        """Return it backwards."""
        return motion.vjp(final=self.final, samples=(self.times, self.samples), event_times=self.event_times)

    def value(self, motion: ns.Trajectory) -> float:
        """Return the loss."""
        times = np.array([event.time for event in motion.events])
        samples = motion(self.times) if self.times.size else np.zeros((0, self.final.size))
        return float(self.final @ motion.final_state + (self.samples * samples).sum() + self.event_times @ times)

    def forward(self, motion: ns.Trajectory) -> list[Array]:
        """Return the gradient by x0, p and u from forward derivatives, of which each entry is one column."""
        S: Any = motion.sensitivity
        # The last node at a time is the right limit.
        nodes = [int(np.flatnonzero(np.abs(motion.t - t) <= 1e-9 * motion.t[-1])[-1]) for t in self.times]
        parts = [
            self.final @ S.x0
            + self.event_times @ S.event_times_x0
            + np.einsum("mi,mij->j", self.samples, S.orbital[nodes]),
            self.final @ S.p
            + self.event_times @ S.event_times_p
            + np.einsum("mi,mij->j", self.samples, S.orbital_p[nodes]),
        ]
        if S.u is not None:
            by_u = np.einsum("i,kij->kj", self.final, S.u) + np.einsum("e,ekj->kj", self.event_times, S.event_times_u)
            parts.append(by_u + np.einsum("mi,mkij->kj", self.samples, S.orbital_u[nodes]))
        return parts


def against_forward(scene: GradientScene, seed: int = 0) -> float:
    """Return the largest difference of the gradient to that of forward derivatives, relative to the largest entry."""
    forward, back = scene.run(sensitivities=True), scene.run(sensitivities="reverse")
    loss = Weights.of(forward, scene.times, seed)
    expected, given = loss.forward(forward), loss.gradient(back)
    assert forward.sensitivity is not None
    assert given.flags == forward.sensitivity.flags == (), given.flags
    parts = [given.x0, given.p, *([] if given.u is None else [given.u])]
    size = max(np.abs(part).max(initial=0.0) for part in expected)
    return max(float(np.abs(a - b).max(initial=0.0)) for a, b in zip(parts, expected, strict=True)) / size


def against_differences(scene: GradientScene, seed: int = 0) -> float:
    """Return the error of the gradient in a random direction of all data, by differences of order four.

    It is relative to the product of the lengths of the gradient and of the direction. A direction of x0 keeps what is
    closed at the start.
    """
    motion, rng = scene.run(sensitivities="reverse"), np.random.default_rng(seed + 1)
    loss = Weights.of(motion, scene.times, seed)
    gradient, data = loss.gradient(motion), scene.data()
    parts = [gradient.x0, gradient.p, gradient.u][: len(data)]
    directions = [rng.normal(size=part.shape) for part in data]
    tape, n_x = motion.variations, motion.x.shape[1]
    assert tape is not None
    admitted = np.eye(n_x) if tape.admitted is None else tape.admitted
    directions[0] = tape.links[0].matrix[:, :n_x] @ admitted @ directions[0]
    values, kinds = [], []
    for k in (-2, -1, 1, 2):
        moved = scene.run([part + k * scene.step * d for part, d in zip(data, directions, strict=True)])
        kinds.append([(event.kind, event.name) for event in moved.events])
        values.append(loss.value(moved))
    assert kinds == kinds[:1] * 4, kinds
    slope = np.array([1.0, -8.0, 8.0, -1.0]) / (12.0 * scene.step) @ np.array(values)
    exact = sum(float((g * d).sum()) for g, d in zip(parts, directions, strict=True) if g is not None)
    length = [np.sqrt(sum(float((each**2).sum()) for each in side if each is not None)) for side in (parts, directions)]
    return abs(exact - slope) / max(1.0, length[0] * length[1])


def _slider(dimension: int, friction: float, restitution: float, waves: float = 0.2) -> ns.CLS:
    """A point over curved ground; p = (gravity, height of the waves, friction, root of the restitution)."""
    q, v = ca.SX.sym("q", dimension), ca.SX.sym("v", dimension)
    u, p = ca.SX.sym("u", dimension), ca.SX.sym("p", 4)
    slope = p[1] * ca.cos(q[0])
    tangent = ca.vertcat(1, slope) / ca.sqrt(1 + slope**2) if dimension == 2 else ca.DM.eye(3)[:, :2]
    height = p[1] * ca.sin(q[0]) if dimension == 2 else p[1]
    ground = ns.Contact("ground", gap=q[dimension - 1] - height, tangent=tangent, friction=p[2], restitution=p[3] ** 2)
    weight = ca.vertcat(*[0] * (dimension - 1), -p[0])
    return ns.CLS(
        q=q, v=v, u=u, p=p, mass_matrix=ca.DM.eye(dimension), force=weight + u, contacts=[ground],
        p_default=[GRAVITY, waves if dimension == 2 else 0.0, friction, np.sqrt(restitution)],
    )  # fmt: skip


def bounces(parameters: int) -> ns.CLS:
    """A ball on a line in a field with so many parameters, and its restitution."""
    q, v, p = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("p", parameters)
    field = ca.dot(p[1:], ca.sin(ca.DM(np.arange(1, parameters)) * q))
    ground = ns.Contact("ground", gap=q, restitution=p[0])
    defaults = np.append(0.7, np.full(parameters - 1, 0.1))
    return ns.CLS(q=q, v=v, p=p, p_default=defaults, mass_matrix=1, force=field - GRAVITY, contacts=[ground])


def _hybrid() -> ns.HybridSystem:
    x, p, u = ca.SX.sym("x", 2), ca.SX.sym("p", 2), ca.SX.sym("u")
    jump = ns.StateJump("bounce", guard=x[0] - p[1] * x[0] ** 2, reset=ca.vertcat(x[0], -p[0] * x[1]))
    return ns.HybridSystem(x=x, p=p, u=u, flow=ca.vertcat(x[1], u - GRAVITY), jumps=[jump], p_default=[0.8, 0.1])


def _room() -> ns.PSS:
    """A room with a thermostat between 18 and 22 degrees; p = (power of the heater,)."""
    x, p = ca.SX.sym("x"), ca.SX.sym("p")
    heater = ns.Hysteresis("heater", variable=-x, lower=-22.0, upper=-18.0, flows=[-(x - 5), p - (x - 5)])
    return ns.PSS(x=x, p=p, p_default=[50.0], modes=[heater])


def _switching(name: str) -> GradientScene:
    if name == "oscillator":
        x, p = ca.SX.sym("x", 2), ca.SX.sym("p", 2)
        flows = [x + side * p[0] * ca.vertcat(x[1], -x[0]) for side in (1.0, -1.0)]
        circle = ns.Modes("circle", flows=flows, functions=ca.sumsqr(x) - p[1] ** 2, signs=SIDES)
        system = ns.PSS(x=x, p=p, modes=circle)
        return GradientScene(system=system, x0=oscillator.STANDARD.start, duration=np.pi / 2, p=[2 * np.pi, 1.0])
    if name == "relay":
        x, p, plant = ca.SX.sym("x", 3), ca.SX.sym("p", 2), relay_feedback.SLIDING
        flows = [p[0] * ca.DM(plant.B), -p[0] * ca.DM(plant.B)]
        modes = ns.Modes("relay", flows=flows, functions=x[0] - p[1], signs=SIDES)
        system = ns.PSS(x=x, p=p, flow=ca.DM(plant.A) @ x, modes=modes)
        start = relay_feedback.limit_cycle(plant)(0.3)
        return GradientScene(system=system, x0=start, duration=9.0, p=[1.0, 0.0], step=3e-5)
    x, p, c = ca.SX.sym("x", 2), ca.SX.sym("p", 4), stick_slip.STANDARD
    flow = ca.vertcat(x[1], -p[0] * x[0] + p[3] * (x[1] - p[1]))
    belt = ns.Modes("belt", flows=[ca.vertcat(0, -p[2]), ca.vertcat(0, p[2])], functions=p[1] - x[1], signs=SIDES)
    p0 = [c.stiffness, c.belt, c.friction, c.decrease]
    system = ns.PSS(x=x, p=p, flow=flow, modes=belt)
    return GradientScene(system=system, x0=[0.05, 0.1], duration=4.0, p=p0, times=[1.0, 3.0])


CLOSED_FORMS = (
    *("slip_to_stick_2d", "slip_to_stick_3d", "slip_to_stick_pushed_3d", "reversal_2d", "release_2d", "release_3d"),
    *("landing_stick_2d", "landing_stick_3d", "landing_slip_2d", "landing_slip_3d", "landing_stop_2d"),
    *("slip_2d", "stick_to_slip_2d", "slope_curve_3d", "wall_bounce_2d", "rod_tip_kick_2d", "rod_tip_stick_2d"),
    "landing_stop_3d",
    *("bounce_stick_2d", "bounce_stick_3d", "bounce_slip_2d", "bounce_slip_3d", "rod_tip_slip_2d"),
)


OWN: dict[str, Callable[[], GradientScene]] = {
    "ball until it rests": lambda: GradientScene(
        system=bouncing_ball.build(0.3), x0=[1.0, 0.3], duration=1.5, step=1e-5
    ),
    "two balls": lambda: GradientScene(
        system=two_balls_spring.build(), x0=[1.0, 2.0, 0.0, 0.0], duration=0.6, times=[0.2, 0.5]
    ),
    "waves, two bounces": lambda: GradientScene(
        system=_slider(2, 0.2, 0.6),
        x0=[0.0, 1.0, 1.5, 0.0],
        u=[[0.5, 0.0]],
        duration=1.2,
        times=[0.3, 0.9],
        step=1e-5,
    ),
    "waves, landing": lambda: GradientScene(
        system=_slider(2, 0.3, 0.0), x0=[0.0, 1.0, 1.5, 0.0], u=[[0.5, 0.0]], duration=0.8, step=1e-5
    ),
    "waves, rows of a control": lambda: GradientScene(
        system=_slider(2, 0.5, 0.5),
        x0=[0.0, 0.5, 1.0, 0.0],
        u=[[0, 0], [-4, 2], [3, 0]],
        duration=0.7,
        step=1e-5,
        times=[0.1, 0.6],
    ),
    "waves, 30 rows": lambda: GradientScene(
        system=_slider(2, 0.2, 0.6), x0=[0.0, 1.0, 1.5, 0.0], u=np.full((30, 2), 0.3), duration=1.2, step=1e-5
    ),
    "space, bounce": lambda: GradientScene(
        system=_slider(3, 0.3, 0.6), x0=[0, 0, 0.5, 1.0, 0.5, 0], u=np.full((4, 3), 0.2), duration=0.8, step=1e-5
    ),
    "space, slide": lambda: GradientScene(
        system=_slider(3, 0.3, 0.0), x0=[0, 0, 0.5, 3.0, 0.5, 0], u=[[0, 1.0, 0.0]], duration=0.8, step=1e-5
    ),
    "oscillator": lambda: _switching("oscillator"),
    "relay": lambda: _switching("relay"),
    "stick-slip on a belt": lambda: _switching("belt"),
    "hybrid": lambda: GradientScene(
        system=_hybrid(), x0=[1.0, 0.2], u=[[0.1], [0.4], [-0.2]], duration=1.3, times=[0.7], step=1e-5
    ),
    "hysteresis": lambda: GradientScene(system=_room(), x0=[20.0], duration=0.9, step=1e-3),
    "pushed point, a PDS": lambda: GradientScene(
        system=pushed_point.build(None), x0=pushed_point.exact(0.0, None)[0], duration=3.0
    ),
    "kneed hopper": lambda: GradientScene(
        system=kneed_hopper.build(), x0=kneed_hopper.start(above=0.05), duration=0.12, step=1e-5
    ),
    "free box, quaternions": lambda: GradientScene(
        system=free_box.build(), x0=free_box.start((0.3, 0.2, 0.1), 0.6), duration=0.32, step=1e-5
    ),
    "8 parameters": lambda: GradientScene(system=bounces(8), x0=[1.0, 0.0], duration=1.0, step=1e-5),
    "60 parameters": lambda: GradientScene(system=bounces(60), x0=[1.0, 0.0], duration=0.7, step=1e-6),
}
NAMES = (*CLOSED_FORMS, *OWN)


@cache
def scene(name: str) -> GradientScene:
    """Return a scene by its name."""
    if name in OWN:
        return OWN[name]()
    case = BY_NAME[name]
    return GradientScene(system=case.system, x0=case.x0, duration=case.duration, u=case.u)
