"""Starts by springs: which sequences their forces show, and what is found by the plain call because of them."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.search.compliant import CompliantProgram, compliant
from nosnoc_py.search.starts import StartTask
from problems import biped_step, paddle_loop
from problems.robots import gripper

G = 9.81


@pytest.mark.quick
def test_springs_carry_the_weight_and_forces_vanish_far_away() -> None:
    """A block of 2 kg on the ground: the spring holds m g at its typical force, log(1 + exp(-10)) of it 10 d away."""
    q, v, u = (ca.SX.sym(name, 2) for name in "qvu")
    ground = ns.Contact("ground", gap=q[1], tangent=[1, 0], friction=0.5)
    system = ns.CLS(q=q, v=v, u=u[:1], mass_matrix=2 * ca.DM.eye(2), force=ca.vertcat(u[0], -2 * G), contacts=[ground])
    ocp = ns.OCP(system, horizon=1.0, x0=[0, 0, 0, 0], stage_cost=u[0] ** 2, terminal_constraints=[q[0] == 1])
    program = CompliantProgram.of(StartTask.of(ocp))
    assert 2 * G <= program.forces[0] <= 10 * 2 * G
    assert 0.1 <= program.lengths[0] <= 10
    assert program.masses == pytest.approx([2.0])
    loads = ca.Function("loads", [system.x, program._sigma], [program._loads])
    width = 0.01 * program.lengths[0]
    assert float(loads([0, 10 * width, 0, 0], 0.01)) == pytest.approx(program.forces[0] * np.log1p(np.exp(-10)))
    # A speed of w = sqrt(d F / m) away from the surface leaves (1 - 2)^2 / 4 of the force.
    speed = np.sqrt(width * program.forces[0] / 2)
    assert float(loads([0, 0, 0, speed], 0.01)) == pytest.approx(program.forces[0] * np.log(2) / 4)
    assert float(loads([0, 0, 0, -speed], 0.01)) == pytest.approx(program.forces[0] * np.log(2) * 2)


@pytest.mark.quick
def test_the_step_of_a_biped_is_read_from_forces() -> None:
    """No sequence, no keyframes: feet are closed in turn, and the first phase is that of x0."""
    starts = compliant(StartTask.of(biped_step.build()), np.random.default_rng(0))
    sequence = next(one for one in starts if one is not None).sequence
    words = [set(phase) for phase in sequence.phases]
    assert words[0] == {"left_foot", "right_foot"}
    alone = [one for one in words if len(one) == 1]
    assert {"right_foot"} in alone
    assert {"left_foot"} in alone[alone.index({"right_foot"}) :]  # it lands after its swing
    assert any(impact.startswith("impact left_foot") for impact in sequence.impacts)


def tasks() -> dict[str, ns.OCP]:
    """Problems of every form: legal ones must give finite motions, whatever they have."""
    q, v, u, p, y, t = (ca.SX.sym(name) for name in "qvupyt")
    floor, T = ns.Contact("floor", gap=q), ns.FreeTime(0.5, 2.0, 1.0)
    up = [q == 0.5]
    ball = {"q": q, "v": v, "u": u, "mass_matrix": 1, "force": u - G, "contacts": [floor]}
    cart = {"stage_cost": u**2, "terminal_constraints": up, "x0": [1, 0], "horizon": 1.0}
    pole = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u + ca.sin(q), contacts=[ns.Contact("tip", gap=ca.cos(q))])
    soft = ns.Contact("soft", gap=q, stiffness=1e3, damping=5)
    return {
        "free time": ns.OCP(ns.CLS(**ball), **{**cart, "horizon": T}),
        "free start": ns.OCP(ns.CLS(**ball), **{**cart, "x0": None, "initial_constraints": [v == 0]}),
        "parameters": ns.OCP(ns.CLS(**{**ball, "mass_matrix": p}, p=p), **cart, p=[2.0]),
        "first order": ns.OCP(
            ns.CLS(**{**ball, "force": y - G}, y=y, y_rate=u - y), **{**cart, "x0": [1, 0, G]}
        ),
        "time": ns.OCP(ns.CLS(**{**ball, "force": u - G * (1 + 0.1 * ca.sin(t))}, t=t), **cart),
        "no slope at x0": ns.OCP(pole, **{**cart, "x0": [0, 0], "terminal_constraints": [q == 1.2]}),
        "soft": ns.OCP(ns.CLS(**{**ball, "contacts": [soft, ns.Contact("top", gap=3 - q)]}), **cart),
    }  # fmt: skip


@pytest.mark.quick
def test_contacts_that_bounce_have_no_such_starts() -> None:
    """Springs that dissipate led to fourteen small impacts of a ball on a paddle, and quick effort to no solution."""
    assert not list(compliant(StartTask.of(paddle_loop.build()), np.random.default_rng(0)))


@pytest.mark.quick
@pytest.mark.parametrize("name", list(tasks()))
def test_problems_of_every_form_have_starts(name: str) -> None:
    ocp = tasks()[name]
    program = CompliantProgram.of(StartTask.of(ocp))
    assert (program.lengths > 0).all()
    assert np.isfinite(program.forces / program.masses).all()
    starts = compliant(StartTask.of(ocp), np.random.default_rng(0))
    found = [one for one in (next(starts) for _ in range(4)) if one is not None]
    assert found
    for one in found:
        assert np.isfinite(one.motion.x).all()
        assert one.motion.x[-1][0] == pytest.approx(1.2 if name == "no slope at x0" else 0.5, abs=1e-3)
        assert not any("soft" in impact for impact in one.sequence.impacts)


def test_a_gripper_lifts_by_the_plain_call_in_metres_and_millimetres() -> None:
    """No start had found a grip. One finger alone, or a throw, costs more than the grip of both."""
    found = [
        ns.Search(effort="quick", starts=("compliant", "moves")).solve(gripper.build(unit=unit)) for unit in (1.0, 1e-3)
    ]
    for solution in found:
        assert solution.status is ns.Status.SOLVED
        assert {"left", "right"} <= set(solution.sequence.phases[-1])
        assert solution.objective < 0.0145
