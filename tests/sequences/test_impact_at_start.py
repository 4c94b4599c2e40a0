"""An impact at t = 0 needs a contact that touches there."""

import casadi as ca
import pytest

import nosnoc_py as ns

CLOSES_AT_ONCE = ns.Sequence(["impact ground", {"ground": "closed"}])


def moved_ball(height: float, speed: float) -> ns.Solution:
    """A ball of 1 kg that is moved along the ground by 1 m in 1 s, with a contact that is closed from the start."""
    q, v, u = (ca.SX.sym(name, 2) for name in "qvu")
    ground = ns.Contact("ground", gap=q[1])
    ball = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=u + ca.DM([0, -9.81]), contacts=[ground])
    ocp = ns.OCP(ball, horizon=1.0, x0=[0, height, 0, speed], stage_cost=ca.sumsqr(u), terminal_constraints=[q[0] == 1])
    return ns.solve(ocp, ns.MultiPhase(sequence=CLOSES_AT_ONCE), guess=[3.0, 0.0], time_limit=20, certify=False)


@pytest.mark.quick
def test_a_ball_does_not_levitate() -> None:
    in_the_air = moved_ball(0.5, 0.0)
    assert not in_the_air.success
    assert "gap[ground]" in in_the_air.message
    landing = moved_ball(0.0, -1.0)
    assert landing.success, landing.message
    assert landing.objective == pytest.approx(3.0, rel=1e-3)  # u = 3 (1 - t) along the ground, in 20 pieces
    assert landing.x[-1, 1] == pytest.approx(0.0, abs=1e-8)
