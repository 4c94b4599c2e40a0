"""Four holes in the published equations: wrong motions that satisfy them all, and what excludes each.

The motions are written in closed form, filled into the variables of the MPCC, and checked by its residuals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.reformulation import contact as reformulation
from nosnoc_py.simulation.newton.contact_filling import ContactIterateWriter
from nosnoc_py.simulation.newton.contact_newton import ContactStep
from nosnoc_py.simulation.stepping import MPCCStep
from nosnoc_py.tableaus import tableau
from nosnoc_py.transcription import transcribe_step

GRAVITY, MU, RATE = 9.81, 0.5, 10.0
RADAU = tableau("radau_iia", 3)


def joined(elements: list[dict[str, Any]]) -> ContactStep:
    """Elements with h, x_left (and x_minus), x_stages, forces (n_s, ..) and impulses."""
    n_c, n_t = elements[0]["lambda_normal"].shape[1], elements[0]["lambda_tangent"].shape[1]
    rest = {"Lambda_normal": np.zeros(n_c), "Lambda_tangent": np.zeros(n_t)}
    rows = [{"x_minus": e["x_left"], "x_right": e["x_stages"][-1], **rest, **e} for e in elements]
    arrays = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    return ContactStep(
        **arrays,
        drift=np.zeros_like(arrays["lambda_normal"]),
        modes=np.zeros((len(rows), n_c), int),
        message="",
        contact="",
        iterations=0,
    )


def residuals(system: ns.CLS, step: ContactStep, u: Any = (), **method: Any) -> tuple[float, float]:
    """Infeasibility and complementarity of a step, and nothing else changed."""
    problem = transcribe_step(system, ns.FESDJ(finite_elements=len(step.h), rk_stages=3, gap_rate=False, **method))
    values = problem.parameters(horizon=float(step.h.sum()), u=u)
    values[problem.mpcc.parameters["x0"]] = step.x_minus[0]
    evaluator = problem.solvers.evaluator
    at = evaluator(ContactIterateWriter(system, problem, "auto", 0.0)(step, values), values)
    return evaluator.infeasibility(at), evaluator.complementarity(at)


def along(h: float, start: float, x: Callable[[float], Any], forces: Callable[[float], Any]) -> dict[str, Any]:
    """An element of a motion x(t) with forces (normal, tangent)(t)."""
    times = start + h * RADAU.c
    normal, tangent = zip(*[forces(t) for t in times], strict=True)
    return {
        "h": h,
        "x_left": np.array(x(start)),
        "x_stages": np.array([x(t) for t in times]),
        "lambda_normal": np.array(normal)[:, None],
        "lambda_tangent": np.array(tangent)[:, None] if tangent[0] is not None else np.zeros((3, 0)),
    }


# --- 1: stick to slip, and release, at a force that is still small enough ---


def clocked(direction: tuple[float, float], friction: float) -> ns.CLS:
    """A particle (x, y) on the ground, driven by a force that grows with a clock c."""
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    push = RATE * q[2]
    force = ca.vertcat(direction[0] * push, direction[1] * push - GRAVITY, 0)
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0, 0]), friction=friction)
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(3), force=force, contacts=[ground])


def growing(axis: int, limit: float, early: float, length: float = 0.2) -> ContactStep:
    """At rest until RATE c reaches `limit`, or `early` before that, then free to move along one axis.

    Once it moves, its acceleration is RATE (t - t_limit): first against the motion that follows.
    """
    t_limit = 0.1
    clock = limit / RATE - t_limit
    start = t_limit - early

    def moving(t: float) -> list[float]:
        s = t - start
        q, v = np.zeros(3), np.zeros(3)
        q[axis], v[axis] = RATE * (s**3 / 6 - early * s**2 / 2), RATE * (s**2 / 2 - early * s)
        q[2], v[2] = clock + t, 1.0
        return [*q, *v]

    def resting(t: float) -> list[float]:
        return [0, 0, clock + t, 0, 0, 1]

    def forces(t: float, slips: bool) -> tuple[float, float | None]:
        push = RATE * (clock + t)
        if axis == 0:
            return GRAVITY, -MU * GRAVITY if slips else -push
        return (0.0, None) if slips else (GRAVITY - push, None)

    return joined(
        [
            along(start, 0.0, resting, lambda t: forces(t, False)),
            along(length - start, start, moving, lambda t: forces(t, True)),
        ]
    )


@pytest.mark.parametrize(("axis", "friction", "limit"), [(0, MU, MU * GRAVITY), (1, 0.0, GRAVITY)])
def test_a_continuous_force_fixes_the_time_of_slip_and_release(axis: int, friction: float, limit: float) -> None:
    system = clocked((1.0, 0.0) if axis == 0 else (0.0, 1.0), friction)
    exact, early = growing(axis, limit, 0.0), growing(axis, limit, 5e-3)
    assert abs(early.x_right[-1] - exact.x_right[-1]).max() > 1e-4
    assert max(residuals(system, exact)) < 1e-13
    assert residuals(system, early)[0] > 1e-5
    assert max(residuals(system, early, isolate_forces=False)) < 1e-13  # the published equations take it


# --- 2: a slip in space that reverses inside an element ---


def spatial() -> ns.CLS:
    q, v, u = ca.SX.sym("q", 3), ca.SX.sym("v", 3), ca.SX.sym("u")
    ground = ns.Contact("ground", gap=q[2], tangent=ca.DM.eye(3)[:, :2], friction=MU)
    force = ca.vertcat(u, 0, -GRAVITY)
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(3), force=force, contacts=[ground])


def reversing(push: float = 8.0, h: float = 0.1, start: float = -0.4) -> ContactStep:
    """Runge-Kutta equations with friction that opposes the slip at every stage, of which the first still goes back."""
    friction = -MU * GRAVITY * np.array([-1.0, 1.0, 1.0])
    v = start + h * RADAU.a @ (push + friction)
    assert (np.sign(v) == [-1, 1, 1]).all()
    q = h * RADAU.a @ v
    x = np.zeros((3, 6))
    x[:, 0], x[:, 3] = q, v
    force = np.column_stack([friction, np.zeros(3)])
    return joined(
        [
            {
                "h": h,
                "x_left": np.array([0, 0, 0, start, 0, 0]),
                "x_stages": x,
                "lambda_normal": np.full((3, 1), GRAVITY),
                "lambda_tangent": force,
            }
        ]
    )


def test_a_slip_in_space_does_not_reverse_inside_an_element(monkeypatch: pytest.MonkeyPatch) -> None:
    step = reversing()
    exact = (8 - MU * GRAVITY) * (0.1 - 0.4 / (8 + MU * GRAVITY))
    assert abs(step.x_right[0, 3] - exact) > 0.05
    assert residuals(spatial(), step, u=8.0)[0] > 1.0
    monkeypatch.setattr(reformulation, "_direction_consistencies", lambda *_: ())
    assert max(residuals(spatial(), step, u=8.0)) < 1e-13


# --- 3: simultaneous impacts of which one leaves too slowly ---


def wedge() -> ns.CLS:
    """Two planes whose normals have the cosine .8; a particle hits both."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    gaps = {"one": q[0], "other": 0.8 * q[0] + 0.6 * q[1]}
    contacts = [ns.Contact(name, gap=gap, restitution=0.5) for name, gap in gaps.items()]
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.SX(2, 1), contacts=contacts)


def hit(impulses: list[float], h: float = 0.1) -> ContactStep:
    """Both approach with 1; then a straight flight."""
    normals = np.array([[1.0, 0.8], [0.0, 0.6]])
    before = np.linalg.solve(normals.T, [-1.0, -1.0])
    after = before + normals @ impulses
    stages = [[*(t * after), *after] for t in h * RADAU.c]
    return joined(
        [
            {
                "h": h,
                "x_minus": np.array([0, 0, *before]),
                "x_left": np.array([0, 0, *after]),
                "x_stages": np.array(stages),
                "lambda_normal": np.zeros((3, 2)),
                "lambda_tangent": np.zeros((3, 0)),
                "Lambda_normal": np.array(impulses),
            }
        ]
    )


def test_no_contact_leaves_a_common_impact_too_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one impulse alone the first contact leaves with .2 instead of .5, which (17c) cannot see (1d)."""
    shared, alone = hit([1.5 / 1.8, 1.5 / 1.8]), hit([0.0, 1.5])
    assert alone.x_left[0, 2] == pytest.approx(0.2)
    np.testing.assert_allclose([1.0, 0.0] @ shared.x_left[0, 2:], 0.5, rtol=0, atol=1e-15)
    assert max(residuals(wedge(), shared)) < 1e-13
    assert residuals(wedge(), alone)[0] == pytest.approx(1e-3 * 0.1 * 0.3, rel=1e-9)
    law = reformulation.impact_law

    def without_guard(*arguments: Any) -> Any:
        return replace(law(*arguments), inequalities=())

    monkeypatch.setattr(reformulation, "impact_law", without_guard)
    assert max(residuals(wedge(), alone)) < 1e-13


# --- 4: in persistent contact impulses are double roots ---


def pushed() -> ns.Trajectory:
    """A particle that sticks although it is pushed, by raw homotopies (no finish) from guesses at rest."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=MU)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=ca.vertcat(u, -GRAVITY), contacts=[ground])
    raw = ns.Homotopy(
        steering="direct", sigma_min=1e-11, finish="none", complementarity_tolerance=1e-9, infeasibility_tolerance=1e-8
    )
    method = ns.FESDJ(rk_stages=3, finite_elements=2)
    return ns.simulate(system, x0=[0] * 4, duration=0.2, steps=4, u=[2.0], method=method, solver=raw)


def test_contacts_that_rest_have_no_impulse_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MPCCStep, "_predictions", lambda *_: [])
    trajectory = pushed()
    assert trajectory.success
    np.testing.assert_allclose(trajectory.final_state, 0.0, rtol=0, atol=1e-8)


@pytest.mark.slow
def test_without_it_the_first_step_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: seconds until everything has been tried."""
    monkeypatch.setattr(MPCCStep, "_predictions", lambda *_: [])
    monkeypatch.setattr(MPCCStep, "_without_impulses", lambda self, contacts: self._problem.solvers)
    assert pushed().status is ns.Status.STEP_FAILED
