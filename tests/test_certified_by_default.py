"""`solve` certifies what an explicit method returns: the verdict, what helps, limits of time, and what it cannot do."""

from __future__ import annotations

import time
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.sequences import polish as polishing
from nosnoc_py.simulation.certification import attached

q, v, u = (ca.SX.sym(name) for name in "qvu")


def throw(restitution: float = 0.5, drag: float = 0.0) -> ns.OCP:
    ground = ns.Contact("ground", gap=q, restitution=restitution)
    force = u - 9.81 - drag * v * v * v
    ball = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=force, contacts=[ground])
    goal = [ns.Constraint(q, 0.4, 0.4, name="goal")]
    return ns.OCP(ball, horizon=1.0, x0=[1.0, -4.0], stage_cost=u**2 + v**2, terminal_constraints=goal)


def relay() -> ns.OCP:
    system = ns.PSS(
        x=(x := ca.SX.sym("x")), u=u, modes=ns.Modes("m", flows=[u - 1, u + 1], functions=x, signs=[[1], [-1]])
    )
    return ns.OCP(system, horizon=1.0, x0=[1.0], stage_cost=u**2, terminal_constraints=[ns.Constraint(x, -0.5, -0.5)])


COARSE = ns.FESDJ(control_stages=4, rk_stages=1)
FINE = ns.FESDJ(control_stages=2, rk_stages=3)


@pytest.mark.parametrize(
    "method",
    [FINE, ns.TimeFreezing(a_n=9.81, fesd=ns.FESD(control_stages=2, finite_elements=4)), ns.MultiPhase(intervals=4)],
    ids=["elements", "time freezing", "phases"],
)
def test_methods_are_certified(method: Any) -> None:
    ocp = throw(0.0 if isinstance(method, ns.TimeFreezing) else 0.5)
    solution = ns.solve(ocp, method)
    assert solution.success, solution.message
    assert solution.certificate is not None
    assert solution.certificate.verdict is ns.certify(ocp, solution).verdict
    assert ("certificate: confirmed" in solution.summary()) is solution.certificate.confirmed


def test_a_confirmed_solution_has_nothing_added() -> None:
    solution, bare = ns.solve(throw(), FINE), ns.solve(throw(), FINE, certify=False)
    assert solution.certificate is not None
    assert solution.certificate.confirmed
    assert bare.certificate is None
    assert solution.message == bare.message
    np.testing.assert_array_equal(solution.w, bare.w)


def test_what_refutes_is_said_with_what_helps() -> None:
    solution, bare = ns.solve(throw(drag=0.3), COARSE), ns.solve(throw(drag=0.3), COARSE, certify=False)
    assert solution.status is bare.status is ns.Status.SOLVED
    found = solution.certificate
    assert found is not None
    assert found.verdict is ns.Verdict.INACCURATE
    assert found.reason in solution.message
    assert "raise rk_stages, finite_elements or control_stages" in solution.message
    assert solution.message.startswith(bare.message)


def test_filippov_systems_and_shooting() -> None:
    for method in (ns.FESD(control_stages=3, rk_stages=3), ns.DirectShooting(form="smoothed", control_stages=3)):
        solution = ns.solve(relay(), method)
        assert (solution.certificate is not None) is solution.success


def test_a_hybrid_system_has_a_certificate_and_what_failed_has_none() -> None:
    x = ca.SX.sym("x", 2)
    floor = ns.StateJump("floor", guard=x[0], reset=ca.vertcat(x[0], -0.5 * x[1]))
    ball = ns.HybridSystem(x=x, u=u, flow=ca.vertcat(x[1], u - 2), jumps=[floor])
    ocp = ns.OCP(ball, horizon=1.5, x0=[1, 0], stage_cost=u**2, terminal_cost=(x[0] - 1) ** 2)
    assert ns.solve(ocp, ns.MultiPhase()).certificate.confirmed
    # The principle integrates its cost by equal steps: what it states differs from the motion that it found.
    coarse = ns.solve(ocp, ns.MinimumPrinciple()).certificate
    assert coarse.true_objective == pytest.approx(coarse.objective, rel=1e-2)
    failed = ns.solve(throw(), FINE, ns.Homotopy(max_iterations=1, sigma_min=0.5))
    assert not failed.success
    assert failed.certificate is None


def test_ctrl_c_and_a_refusal_keep_the_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    for raised, words in ((KeyboardInterrupt(), "interrupted"), (ns.OptionError("no referee"), "no referee")):

        def broken(*given: Any, raised: BaseException = raised, **options: Any) -> None:
            raise raised

        monkeypatch.setattr(attached, "certify", broken)
        solution = ns.solve(throw(), FINE)
        assert solution.success
        assert solution.certificate is None
        assert f"not certified: {words}" in solution.message


def test_the_time_limit_holds_for_both(monkeypatch: pytest.MonkeyPatch) -> None:
    ocp, solution = throw(), ns.solve(throw(), FINE, certify=False)
    given: list[float] = []

    def seen(*arguments: Any, time_limit: float, **options: Any) -> Any:
        given.append(time_limit)
        return ns.certify(*arguments, time_limit=time_limit, **options)

    monkeypatch.setattr(attached, "certify", seen)
    now = time.monotonic()
    late = attached.with_certificate(ocp, solution, finite_elements=True, deadline=now - 1.0, time_limit=1e-9)
    assert late.certificate is None
    assert "not certified: the simulation reached its limit" in late.message
    attached.with_certificate(ocp, solution, finite_elements=True, deadline=now + 30.0, time_limit=100.0)
    assert given[0] == pytest.approx(1e-10)
    assert 25.0 < given[1] <= 30.0


def test_nothing_is_certified_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*given: Any, **options: Any) -> None:
        raise AssertionError("certified twice")

    monkeypatch.setattr(attached, "certify", never)
    phases = ns.solve(throw(), ns.MultiPhase(intervals=4))
    assert phases.certificate is not None
    monkeypatch.undo()
    solution = ns.solve(throw(), FINE)
    monkeypatch.setattr(polishing, "certify", never)
    assert ns.polish(throw(), solution).objective <= solution.objective


def test_a_wrong_word() -> None:
    with pytest.raises(ns.OptionError, match="certify: expected True or False, given 'yes'"):
        ns.solve(throw(), FINE, certify="yes")  # type: ignore[arg-type]
