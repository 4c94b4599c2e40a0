"""What counts is decided by residuals and simulations: redundant rows, square programs, kinks, undefined functions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.attempts.work import counted
from nosnoc_py.kernels import Kernel
from nosnoc_py.programs import BlockProgram, KernelBlock, LinearMap
from nosnoc_py.sequences import optimise
from nosnoc_py.sequences.optimise import by_proximal_points, has_descent, nearest_feasible
from nosnoc_py.systems.closures import may_be_undefined, on_closures


def program(rows: list[ca.SX], y: ca.SX, cost: ca.SX, low: float = 0.0) -> BlockProgram:
    none, size = np.zeros(len(rows)), y.numel()
    kernel = Kernel(y, ca.vertcat(*rows), cost)
    block = KernelBlock(name="rows", kernel=kernel, at=LinearMap.at(np.arange(size)), lower=none, upper=none)
    return BlockProgram([block], np.full(size, low), np.full(size, 9.0), np.ones(size), np.full(size, 0.5))


@pytest.mark.parametrize(("place", "descends"), [(0.0, False), (1.0, True)])
def test_descent_is_what_the_rows_and_bounds_leave(place: float, descends: bool) -> None:
    y = ca.SX.sym("y", 2)
    nlp = program([y[0] - 1], y, y[0] + y[1], low=0.0)  # y[0] is held by the row, y[1] by its bound at zero
    assert has_descent(nlp, np.array([1.0, place])) is descends


def stone(**fields: object) -> ns.OCP:
    """A curling stone with a free launch speed, friction 0.2, at rest at x = 1 after 2 s: v0^2 = 2 mu g = 3.924."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    ice = ns.Contact("ice", gap=q[1], tangent=[1, 0], friction=0.2)
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.DM([0, -9.81]), contacts=[ice])
    given: dict[str, object] = {
        "initial_constraints": [q == 0, v[1] == 0],
        "terminal_constraints": [q[0] == 1],
        "terminal_cost": system.x_initial[2] ** 2,
        "bounds": ns.Bounds(x=([-2, -1, -5, -5], [2, 1, 5, 5])),
    }
    return ns.OCP(system, horizon=2.0, **{**given, **fields})


def test_redundant_rows_of_a_square_program_need_no_treatment() -> None:
    ocp = stone()
    motion = ns.simulate(ocp.system, x0=[0, 0, 2.2, 0], duration=2.0)
    solution = ns.solve(ocp, ns.MultiPhase(intervals=6), guess=motion)
    assert solution.status is ns.Status.SOLVED
    assert solution.objective == pytest.approx(3.924, rel=1e-6)


def test_a_feasible_point_that_is_no_optimum_is_called_feasible() -> None:
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    cart = ns.ODE(x=x, u=u, flow=ca.vertcat(x[1], u))
    ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**4, terminal_constraints=[x[0] == 1])
    stopped = ns.solve(ocp, ns.MultiPhase(intervals=6, max_iterations=1), guess=2.0)
    assert stopped.status is ns.Status.FEASIBLE
    assert stopped.success
    assert "not shown to be optimal" in stopped.message
    assert ns.solve(ocp, ns.MultiPhase(intervals=6), guess=2.0).status is ns.Status.SOLVED


def tank(power: float = 1.5) -> ns.PSS:
    h, u = ca.SX.sym("h"), ca.SX.sym("u")
    modes = ns.Modes("weir", flows=[0.0, -2 * (h - 1) ** power], functions=h - 1, signs=[[-1], [1]])
    return ns.PSS(x=h, u=u, flow=u - 0.2 * h, modes=modes)


def test_a_flow_is_evaluated_on_the_closure_of_its_region() -> None:
    """Below the weir its flow is not defined: the solution across it is confirmed all the same."""
    system = tank()
    ocp = ns.OCP(
        system, horizon=2.0, x0=[0.5], stage_cost=(system.x - 1.2) ** 2 + 0.01 * system.u**2, bounds=ns.Bounds(u=(0, 1))
    )
    solution = ns.solve(ocp, ns.MultiPhase(intervals=8), guess=0.9)
    assert solution.certificate is not None
    assert solution.certificate.verdict is ns.Verdict.CONFIRMED
    assert [event.name for event in solution.events] == ["weir"]


def test_continuation_beyond_the_closure() -> None:
    h = ca.SX.sym("h")
    inside, beyond = on_closures([ca.sqrt(h - 1), h], h - 1, np.array([[1.0], [-1.0]]), h)
    value = ca.Function("flow", [h], [inside])
    assert float(value(1.25)) == pytest.approx(0.5, abs=1e-15)  # unchanged in the region
    assert float(value(0.2)) == pytest.approx(0.0, abs=1e-5)  # that of the boundary beyond it
    assert np.isnan(float(ca.Function("bare", [h], [ca.sqrt(h - 1)])(0.2)))  # the negative control
    assert not may_be_undefined(beyond)


def test_a_function_that_is_undefined_at_the_start_is_named_at_once() -> None:
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u + ca.sqrt(q - 5.0))
    with counted() as account:
        solution = ns.solve(ns.OCP(system, horizon=1.0, x0=[0, 0], stage_cost=u**2))
    assert solution.status is ns.Status.NUMERICAL_ERROR
    assert "the force is not finite at x0 (q_0 = 0, v_0 = 0)" in solution.message
    assert account.total < 1.0


def test_constraints_that_conflict_are_named() -> None:
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    wall = ns.Contact("wall", gap=5 - q)
    names = {"q": ["place"], "v": ["speed"], "u": ["push"]}
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[wall], names=names)
    ocp = ns.OCP(
        system, horizon=1.0, x0=[0, 0], stage_cost=1e-3 * u**2, bounds={"push": (-30, 30), "place": (-10, 10)},
        path_constraints=[ns.Constraint(v, upper=1.5, name="slow")],
        terminal_constraints=[ns.Constraint(q, equals=2, name="target"), ns.Constraint(v, equals=0, name="rest")],
    )  # fmt: skip
    failed = ns.solve(ocp, ns.Search(effort="quick", starts=("constant", "line")))
    assert not failed.success
    assert "no motion satisfies target and slow together" in failed.message


def test_the_loss_of_the_control_grid() -> None:
    """Bryson and Denham with l = 1/9: 4 with any control, .4 % more with 24 constant pieces."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    system = ns.ODE(x=x, u=u, flow=ca.vertcat(x[1], u))
    ocp = ns.OCP(
        system, horizon=1.0, x0=[0, 1], stage_cost=u**2 / 2, terminal_constraints=[x[0] == 0, x[1] == -1],
        path_constraints=[x[0] <= 1 / 9],
    )  # fmt: skip
    fine = ns.solve(ocp)
    coarse = ns.solve(ocp, ns.Search(program=ns.MultiPhase(intervals=24)))
    assert 4.0 < fine.objective < 4.0 * (1 + 2e-3)
    assert coarse.objective > 4.0 * (1 + 3e-3)  # a grid that the user gives is kept
    assert len(coarse.u) == 24


class TestIpoptBehindTheInteriorPoint:
    """A program that the interior point leaves near a feasible point goes to IPOPT, through callbacks."""

    def solved(
        self, monkeypatch: pytest.MonkeyPatch, ended: str, off: float, most: int = 500, **options: float
    ) -> tuple[Any, list[Any]]:
        asked: list[Any] = []
        whole, ipopt = optimise.InteriorPoint.solve, optimise.Ipopt.solve

        def spoiled(self: Any, x: np.ndarray, p: np.ndarray, **given: Any) -> Any:
            found = whole(self, x, p, **given)
            return replace(found, x=found.x + off, solver_status=ended)

        def counted_ipopt(self: Any, *given: Any, **more: Any) -> Any:
            asked.append(ipopt(self, *given, **more))
            return asked[-1]

        monkeypatch.setattr(optimise.InteriorPoint, "solve", spoiled)
        monkeypatch.setattr(optimise.Ipopt, "solve", counted_ipopt)
        q, v, u = (ca.SX.sym(name) for name in "qvu")
        cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - ca.sin(q), contacts=[ns.Contact("wall", gap=2 - q)])
        ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_constraints=[q == 0.5, v == 0.2])
        given: dict[str, Any] = {"refinements": 0, "penalised": False, "max_iterations": most, "interior": options}
        return ns.solve(ocp, ns.MultiPhase(sequence=[{}], intervals=5, **given)), asked

    def test_it_finds_the_same_solution(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as untouched:
            known, none = self.solved(untouched, "Solve_Succeeded", 0.0)
        solution, asked = self.solved(monkeypatch, "Infeasible_Problem_Detected", 0.1)
        assert (none, len(asked)) == ([], 1)
        assert asked[0].converged
        assert solution.success
        assert solution.objective == pytest.approx(known.objective, rel=1e-8)
        assert solution.x == pytest.approx(known.x, abs=1e-6)

    @pytest.mark.parametrize(("off", "runs"), [(0.1, 0), (1e-4, 1)])
    def test_with_patience_only_if_it_is_very_near(
        self, off: float, runs: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _, asked = self.solved(monkeypatch, "Restoration_Failed", off, patience=15)
        assert len(asked) >= runs
        assert bool(asked) == bool(runs)

    def test_not_where_the_limit_ended_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.solved(monkeypatch, "Maximum_Iterations_Exceeded", 0.1, most=2)[1] == []


def test_an_interrupt_of_proximal_steps_ends_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """No further program follows it, and it is not forgotten."""
    whole, calls = optimise.InteriorPoint.solve, list[str]()

    def first_fails(self: Any, x: np.ndarray, p: np.ndarray, **given: Any) -> Any:
        found = whole(self, x, p, **given)
        calls.append("solved")
        word = "Restoration_Failed" if len(calls) == 1 else found.solver_status
        return replace(found, x=found.x + (0.1 if len(calls) == 1 else 1e-4), solver_status=word)

    def interrupted(nlp: Any, w: np.ndarray, *given: Any, **more: Any) -> Any:
        found = nearest_feasible(nlp, w)
        calls.append("interrupted")
        return replace(found, x=found.x + 1e-4, interrupted=True)

    monkeypatch.setattr(optimise.InteriorPoint, "solve", first_fails)
    monkeypatch.setattr(optimise, "by_proximal_points", interrupted)
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - ca.sin(q), contacts=[ns.Contact("wall", gap=2 - q)])
    ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_constraints=[q == 0.5, v == 0.2])
    method = ns.MultiPhase(sequence=[{}], intervals=5, penalised=False, interior={"patience": 15})
    monkeypatch.setattr(optimise, "ALMOST", np.inf)
    assert ns.solve(ocp, method).status is ns.Status.INTERRUPTED
    assert calls[-1] == "interrupted"


def test_unknown_options_are_refused() -> None:
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=2 - q)])
    ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2)
    with pytest.raises(ns.errors.OptionError, match=r"interior point: .*tolerance.*tol"):
        ns.solve(ocp, ns.MultiPhase(sequence=[{}], interior={"tolerance": 1e-6}))


@pytest.mark.quick
@pytest.mark.parametrize("point", [(0.9, 0.2), (0.3, -1.2), (-0.02, 0.05)])
def test_a_point_is_brought_back_to_its_rows(point: tuple[float, float]) -> None:
    """The nearest point of the circle x^2 + y^2 = 4 in units of 2 and 2, whatever the cost; y <= 1.6 is kept."""
    x = ca.SX.sym("x", 2)
    block = KernelBlock(
        name="circle", kernel=Kernel(x, ca.sumsqr(x), 100 * x[0]), at=LinearMap.at(np.arange(2)[None]), lower=4, upper=4
    )
    w = 2 * np.array(point)
    program = BlockProgram([block], np.array([-9.0, -9]), np.array([9.0, 9]), np.full(2, 2.0), w)
    assert 2 * nearest_feasible(program, w).x == pytest.approx(2 * w / np.linalg.norm(w), abs=1e-8)
    bounded = BlockProgram([block], np.array([-9.0, -9]), np.array([9.0, 1.6]), np.full(2, 2.0), w)
    found = 2 * nearest_feasible(bounded, np.array([1.0, 1.9])).x
    assert found == pytest.approx([1.2, 1.6], abs=1e-7)


def spiral(start: tuple[float, float]) -> tuple[BlockProgram, np.ndarray]:
    """Minimise x + y on the circle of radius 1."""
    x = ca.SX.sym("x", 2)
    block = KernelBlock(
        name="circle", kernel=Kernel(x, ca.sumsqr(x), ca.sum1(x)), at=LinearMap.at(np.arange(2)[None]), lower=1, upper=1
    )
    w = np.array(start)
    return BlockProgram([block], np.full(2, -9.0), np.full(2, 9.0), np.ones(2), w), w


@pytest.mark.quick
def test_proximal_points_go_down_along_the_rows() -> None:
    """The optimum is -sqrt(2); steps end where the last one gained a thousandth, and the word says no optimum."""
    program, w = spiral((0.9, 0.5))
    result = by_proximal_points(program, w, 200, 1e-6, np.inf)
    assert program.residual(result.x) < 1e-6
    assert -np.sqrt(2) <= program.evaluate(result.x)[0] + 1e-9 < -np.sqrt(2) + 1e-2
    assert not result.converged
    # Multipliers are those of the program, in its scales: 1 / sqrt(2) in the user's.
    assert result.lam_g * program.row_scale / program.cost_scale == pytest.approx([0.5**0.5], abs=5e-3)
    # Of one step there is the nearest feasible point only.
    near = by_proximal_points(program, w, 5, 1e-6, np.inf)
    assert near.x == pytest.approx(w / np.linalg.norm(w), abs=1e-4)
    assert near.iterations <= 5
    assert not near.lam_g.any()


@pytest.mark.quick
def test_proximal_points_of_rows_without_a_point_are_infeasible() -> None:
    x = ca.SX.sym("x", 2)
    block = KernelBlock(
        name="none", kernel=Kernel(x, ca.sumsqr(x), ca.sum1(x)), at=LinearMap.at(np.arange(2)[None]), lower=-1, upper=-1
    )
    w = np.array([0.1, 0.2])
    program = BlockProgram([block], np.full(2, -9.0), np.full(2, 9.0), np.ones(2), w)
    result = by_proximal_points(program, w, 200, 1e-6, np.inf)
    assert not program.residual(result.x) < 1e-6
    assert not result.converged
