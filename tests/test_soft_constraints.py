"""Soft constraints: closed forms of the three norms, exact penalties, slacks in results, mistakes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns

X, U = ca.SX.sym("x"), ca.SX.sym("u")
METHODS = {"fesd": ns.FESD(control_stages=4, finite_elements=1), "phases": ns.MultiPhase(intervals=4)}


def cart() -> ns.ODE:
    return ns.ODE(x=X, u=U, flow=U)


def limited(soft: str | None, weight: float = 10.0, **more: Any) -> ns.OCP:
    """From 0 to 1 in a second, which needs the speed 1 on average."""
    limit = ns.Constraint(U, upper=0.8, soft=soft, weight=None if soft is None else weight, name="speed")
    return ns.OCP(cart(), horizon=1.0, x0=[0.0], terminal_constraints=[X == 1], path_constraints=[limit], **more)


@pytest.mark.quick
@pytest.mark.parametrize("method", list(METHODS))
@pytest.mark.parametrize(("soft", "cost"), [("l1", 10 * 0.2), ("l2", 10 * 0.2**2), ("linf", 10 * 0.2)])
def test_what_the_goal_needs(soft: str, cost: float, method: str) -> None:
    solution = ns.solve(limited(soft), METHODS[method], guess=[1.0])
    assert solution.objective == pytest.approx(cost, rel=1e-6)
    slack = np.broadcast_to(solution["slack[speed]"], 4)
    assert slack.sum() == pytest.approx(0.8, abs=1e-6)
    if soft != "l1":  # whose optima are many
        np.testing.assert_allclose(slack, 0.2, atol=1e-6)
    assert solution.certificate is not None
    assert solution.certificate.confirmed
    # The user's system has no slack; its own control comes first.
    again = ns.simulate(cart(), x0=[0.0], duration=1.0, u=solution)
    assert again.final_state[0] == pytest.approx(1.0, abs=1e-9)


@pytest.mark.quick
def test_hard_ones_have_no_solution() -> None:
    assert not ns.solve(limited(None), METHODS["fesd"]).success


@pytest.mark.quick
def test_large_weights_of_l1_keep_what_can_be_kept() -> None:
    """min (u - 1)^2 with u <= 0.5: the multiplier is 1; below it the constraint gives way, to u = 1 - w / 2."""
    limit = {"upper": 0.5, "soft": "l1", "name": "speed"}
    for weight, u in ((0.4, 0.8), (1.5, 0.5)):
        path = [ns.Constraint(U, weight=weight, **limit)]
        ocp = ns.OCP(cart(), horizon=1.0, x0=[0.0], stage_cost=(U - 1) ** 2, path_constraints=path)
        solution = ns.solve(ocp, METHODS["fesd"])
        np.testing.assert_allclose(solution["u_0"], u, atol=1e-5)
        np.testing.assert_allclose(solution["slack[speed]"], max(u - 0.5, 0.0), atol=1e-5)


@pytest.mark.quick
def test_terminal_and_point_constraints() -> None:
    """min u^2 + w1 |x(1) - 1| + w2 (x(1/2) - 1)^2, slopes a, b on the halves: a = b + w2 (1 - a / 2), b = w1 / 2."""
    w1, w2 = 0.4, 2.0
    ocp = ns.OCP(
        cart(), horizon=1.0, x0=[0.0], stage_cost=U**2,
        terminal_constraints=[ns.Constraint(X, equals=1.0, soft="l1", weight=w1, name="end")],
        point_constraints=[ns.Constraint(X, equals=1.0, times=[0.5], soft="l2", weight=w2, name="half")],
    )  # fmt: skip
    solution = ns.solve(ocp, METHODS["fesd"], guess=[0.5])
    b = w1 / 2
    a = (b + w2) / (1 + w2 / 2)
    np.testing.assert_allclose(solution["u_0"], [a, a, b, b], atol=1e-6)
    assert solution["slack[end]"] == pytest.approx(1 - (a + b) / 2, abs=1e-6)
    assert solution["slack[half]"] == pytest.approx(1 - a / 2, abs=1e-6)


@pytest.mark.quick
def test_rows_times_and_bounds_of_their_own() -> None:
    v = ca.SX.sym("v", 2)
    system = ns.ODE(x=ca.vertcat(X, v), u=U, p=ca.SX.sym("m"), flow=ca.vertcat(U, 0, 0), p_default=[1.0])
    ocp = ns.OCP(
        system, horizon=1.0, x0=[0.0, 0.0, 0.0], stage_cost=U**2, bounds={"u_0": (-1, 1)},
        point_constraints=[ns.Constraint(v, 1, 2, times=[0.25, 0.5], soft="linf", weight=3.0, name="at"),
                           ns.Constraint(v[0], upper=-1, times=[0.25, 0.5], soft="l1", name="each")],
        path_constraints=[ns.Constraint(ca.vertcat(X, v), lower=0.1, soft="l1", name="path")],
    )  # fmt: skip
    assert ocp.system.control_names == ("u_0", "slack[path][0]", "slack[path][1]", "slack[path][2]")
    assert ocp.system.parameter_names == ("p_0", "slack[at]", "slack[each][0]", "slack[each][1]")
    np.testing.assert_array_equal(ocp.u_bounds, [[-1, 0, 0, 0], [1, np.inf, np.inf, np.inf]])
    solution = ns.solve(ocp, METHODS["fesd"])
    assert solution["slack[at]"] == pytest.approx(1.0, abs=1e-7)
    np.testing.assert_allclose(solution["slack[path][1]"], 0.1, atol=1e-7)
    effort, below = (solution["u_0"] ** 2).mean(), solution["slack[path][0]"].mean()
    assert solution.objective == pytest.approx(3 * 1.0 + 1 + 1 + 0.2 + below + effort, rel=1e-6)


@pytest.mark.quick
def test_what_belongs_to_a_slack_is_not_replaced() -> None:
    ocp = limited("l1")
    terminal = [ns.Constraint(X, equals=1.0, soft="l1", weight=1.0, name="end")]
    other = ns.OCP(cart(), horizon=1.0, x0=[0.0], stage_cost=U**2, terminal_constraints=terminal)
    for problem, change in (
        (ocp, {"stage_cost": U**2}),
        (ocp, {"path_constraints": ()}),
        (ocp, {"bounds": {"u_0": (-1, 1)}}),
        (other, {"terminal_cost": X**2}),
    ):
        with pytest.raises(ns.ModelError, match=r"make another one with ns\.OCP"):
            replace(problem, **change)
    assert replace(ocp, x0=[0.1]).x0 == [0.1]  # what has nothing to do with them
    with pytest.raises(ns.ModelError, match="slack"):
        ns.OCP(cart(), horizon=1.0, terminal_constraints=[*terminal, *terminal])


@pytest.mark.quick
def test_parameters_need_not_know_of_slacks() -> None:
    p = ca.SX.sym("p")
    system = ns.ODE(x=X, u=U, p=p, flow=p * U, p_default=[1.0], names={"p": ["gain"]})
    goal = ns.Constraint(X, equals=1.0, soft="l1", weight=5.0, name="goal")
    ocp = ns.OCP(system, horizon=1.0, x0=[0.0], stage_cost=U**2, terminal_constraints=[goal], p=[2.0])
    problem = ns.transcribe(ocp, METHODS["fesd"])
    found = [problem.solve(p=given).objective for given in ([2.0], {"gain": 2.0}, None)]
    np.testing.assert_allclose(found, 0.25, rtol=1e-6)
    solution = problem.solve()
    again = ns.simulate(system, x0=[0.0], duration=1.0, u=solution, p=solution.parameters)
    assert again.final_state[0] == pytest.approx(1.0, abs=1e-8)


def test_a_body_that_hits_a_wall_fast() -> None:
    """Slower than 1 m/s as far as that goes: the default call, with contacts."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    wall = ns.Contact("wall", gap=1.0 - q, restitution=0.5)
    system = ns.CLS(q=q, v=v, u=U, mass_matrix=1, force=U, contacts=[wall], names={"q": ["place"]})
    slow = ns.Constraint(v, -1, 1, soft="l2", weight=50.0, name="slow")
    ocp = ns.OCP(
        system, horizon=2.0, x0=[0, 1.6], stage_cost=U**2, path_constraints=[slow], terminal_state={"place": 0.4}
    )
    solution = ns.solve(ocp, ns.FESDJ(control_stages=10))
    assert solution.certificate is not None
    assert solution.certificate.confirmed
    assert np.abs(solution.x[:, 1]).max() <= 1.6 + 1e-6
    assert (np.diff(solution["slack[slow]"]) < 1e-4).all()


@pytest.mark.quick
@pytest.mark.parametrize("guess", [[0.5], 0.5, [[0.5], [0.6]], lambda t: [0.5], {"u": [0.5]}, {"u_0": 0.5}])
def test_guesses_need_not_know_of_slacks(guess: Any) -> None:
    solution = ns.solve(limited("l1"), METHODS["fesd"], guess=guess)
    assert solution.objective == pytest.approx(2.0, rel=1e-6)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ns.Constraint(X, 0, soft="l3"), "unknown norm 'l3'. Did you mean"),
        (lambda: ns.Constraint(X, 0, weight=1.0), "weight= needs a soft constraint"),
        (lambda: ns.Constraint(X, 0, soft="l1", weight=0.0), "expected positive numbers, given 0.0"),
        (lambda: ns.Constraint(X, 0, soft="l1", weight=[1.0, 2.0]), "weight"),
        (lambda: ns.Constraint(ca.vertcat(X, X), 0, soft="linf", weight=[1.0, 2.0]), "weight"),
        (
            lambda: ns.OCP(cart(), horizon=1.0, initial_constraints=[ns.Constraint(X, 0, soft="l1")]),
            "an initial constraint cannot be soft",
        ),
    ],
)
def test_mistakes(make: Any, said: str) -> None:
    with pytest.raises(ns.ModelError, match=said):
        make()
