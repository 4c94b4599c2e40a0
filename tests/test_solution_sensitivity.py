"""Derivatives of optima by x0, p and the horizon: against differences of optima, and flags where there is none."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import casadi as ca
import numpy as np
import pytest
from attrs import evolve

import nosnoc_py as ns
from nosnoc_py.errors import OptionError

pytestmark = pytest.mark.quick

Array = np.ndarray
SMALL = ns.FESDJ(control_stages=5, finite_elements=2, rk_stages=2)
FILIPPOV = ns.FESD(control_stages=5, finite_elements=2, rk_stages=2)


def symbols(names: str) -> list[ca.SX]:
    return [ca.SX.sym(name) for name in names.split()]


def mass(contacts: Any = (), **fields: Any) -> tuple[ns.CLS, list[ca.SX]]:
    """A unit mass on a line with a force u, and with parameters, if there are any."""
    q, v, u = symbols("q v u")
    return ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=contacts, **fields), [q, v, u]


def smooth() -> tuple[ns.OCP, Any]:
    s, (q, v, u) = mass()
    return ns.OCP(s, horizon=1.0, x0=[-1, 0], stage_cost=u**2 + q**2, terminal_cost=5 * (q**2 + v**2)), SMALL


def curved() -> tuple[ns.OCP, Any]:
    """Parameters in the dynamics and in the cost, neither of them linear."""
    q, v, u, k, weight, goal = symbols("q v u k weight goal")
    s = ns.CLS(
        q=q,
        v=v,
        u=u,
        p=ca.vertcat(k, weight, goal),
        mass_matrix=1,
        force=u - k**2 * ca.sin(q),
        contacts=[],
        p_default=[1.2, 2.0, 0.5],
        names={"p": ["stiffness", "weight", "goal"]},
    )
    cost = ca.exp(weight) * (q - goal) ** 2 + v**2
    return ns.OCP(s, horizon=1.5, x0=[1, 0], stage_cost=u**2, terminal_cost=cost), SMALL


def bounded() -> tuple[ns.OCP, Any]:
    s, (q, v, u) = mass()
    cost = 20 * (q**2 + v**2)
    bounds = ns.Bounds(u=(-2.0, 2.5))
    return ns.OCP(s, horizon=1.0, x0=[-1, 0], stage_cost=u**2, terminal_cost=cost, bounds=bounds), SMALL


def ball() -> tuple[ns.OCP, Any]:
    """It falls, bounces, and the time of the impact moves with everything."""
    q, v, u, g = symbols("q v u g")
    ground = ns.Contact("ground", gap=q, restitution=0.7)
    s = ns.CLS(q=q, v=v, u=u, p=g, mass_matrix=1, force=u - g, contacts=[ground], p_default=[9.81])
    cost = 10 * (q - 0.3) ** 2 + v**2
    ocp = ns.OCP(s, horizon=0.8, x0=[1, 0], stage_cost=0.1 * u**2, terminal_cost=cost)
    return ocp, SMALL.replace(finite_elements=3)


def thrown() -> tuple[ns.OCP, Any]:
    """Against a wall, and then near a place in front of it."""
    q, v, u, wall = symbols("q v u wall")
    contact = ns.Contact("wall", gap=wall - q, restitution=0.5)
    s = ns.CLS(
        q=q, v=v, u=u, p=wall, mass_matrix=1, force=u, contacts=[contact], p_default=[0.5], names={"p": ["wall"]}
    )
    cost = 10 * (q - 0.3) ** 2 + v**2
    bounds = ns.Bounds(u=(-5, 5))
    return ns.OCP(s, horizon=1.0, x0=[0, 2], stage_cost=u**2, terminal_cost=cost, bounds=bounds), SMALL


def carts() -> tuple[ns.OCP, Any]:
    """One is pushed and pushes the other, which goes where it should."""
    q, v, u, m = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u"), ca.SX.sym("m")
    between = ns.Contact("between", gap=q[1] - q[0] - 0.5, restitution=0.4)
    s = ns.CLS(
        q=q,
        v=v,
        u=u,
        p=m,
        mass_matrix=ca.diag(ca.vertcat(1, m)),
        force=ca.vertcat(u, -0.2 * v[1]),
        contacts=[between],
        p_default=[1.5],
        names={"p": ["mass"]},
    )
    cost = 20 * (q[1] - 1.5) ** 2 + v[1] ** 2
    return ns.OCP(s, horizon=2.0, x0=[0, 1, 0.5, 0], stage_cost=0.2 * u**2, terminal_cost=cost), SMALL


def friction() -> tuple[ns.OCP, Any]:
    """A block slides under a constant force that is optimised, pressed on the ground by a parameter."""
    q, v, u, p = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u"), ca.SX.sym("p", 2)
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=0.3)
    s = ns.CLS(
        q=q,
        v=v,
        u=u,
        p=p,
        mass_matrix=ca.DM.eye(2),
        force=ca.vertcat(u + p[1], -p[0]),
        contacts=[ground],
        p_default=[9.81, 1.0],
        names={"p": ["load", "pull"]},
    )
    cost = 20 * (q[0] - 1.0) ** 2 + v[0] ** 2 + 0.1 * p[1] ** 2
    ocp = ns.OCP(
        s,
        horizon=1.0,
        x0=[0, 0, 2, 0],
        stage_cost=0.2 * u**2,
        terminal_cost=cost,
        free_parameters={"pull": (-5, 5)},
    )
    return ocp, SMALL


def sliding() -> tuple[ns.OCP, Any]:
    """The ride along the edge of a current, as `models.sliding_mode`: the control slides from the edge on."""
    x, u, goal = ca.SX.sym("x", 2), ca.SX.sym("u"), ca.SX.sym("goal")
    edge = ns.Modes("edge", flows=[[1.0, 1.0], [-1.0, 2.0]], functions=x[0], signs=[[-1], [1]])
    s = ns.PSS(x=x, u=u, p=goal, flow=ca.vertcat(u, 0), modes=edge, p_default=[3.1], names={"p": ["goal"]})
    there = ns.Constraint(x[1] - goal, 0, 0)
    return ns.OCP(s, horizon=2.0, x0=[1, 0], stage_cost=u**2 + x[0] ** 2, terminal_constraints=[there]), FILIPPOV


def frozen() -> tuple[ns.OCP, Any]:
    """A particle is pushed to the ground, where it stays, in numerical time."""
    q, v, u = symbols("q v u")
    s = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 9.81, contacts=[ns.Contact("ground", gap=q)])
    ocp = ns.OCP(s, horizon=0.8, x0=[0.5, -1], stage_cost=0.05 * u**2 + 2 * q)
    return ocp, ns.TimeFreezing(a_n=9.81, fesd=ns.FESD(control_stages=4, finite_elements=3, rk_stages=2))


def fastest() -> tuple[ns.OCP, Any]:
    """To rest at a goal as fast as that pays: the horizon is free."""
    q, v, u, goal = symbols("q v u goal")
    s = ns.CLS(q=q, v=v, u=u, p=goal, mass_matrix=1, force=u, contacts=[], p_default=[1.0], names={"p": ["goal"]})
    time = ns.FreeTime(0.2, 5, initial=1.5)
    there = ns.Constraint(ca.vertcat(q - goal, v), 0, 0)
    ocp = ns.OCP(
        s, horizon=time, x0=[0, 0], stage_cost=u**2, terminal_cost=8 * time.symbol, terminal_constraints=[there]
    )
    return ocp, SMALL


def held() -> tuple[ns.OCP, Any]:
    """A path constraint is active on a part of the way."""
    s, (q, v, u) = mass()
    slow = ns.Constraint(v, -np.inf, 1.1, name="slow")
    cost = 5 * (q**2 + v**2)
    return ns.OCP(s, horizon=1.0, x0=[-1, 0], stage_cost=u**2, terminal_cost=cost, path_constraints=[slow]), SMALL


CASES: dict[str, Callable[[], tuple[ns.OCP, Any]]] = {
    make.__name__: make
    for make in (smooth, curved, bounded, held, ball, thrown, carts, friction, sliding, frozen, fastest)
}


# Data by which a case has derivatives, where it has them not by all: a block that lies on the ground is moved along it.
SOME: dict[str, dict[str, Any]] = {"friction": {"x0": ["q_0", "v_0"]}}
STEP = 4e-3


def moved(solution: ns.Solution, found: ns.SolutionSensitivity, change: Array) -> dict[str, Any]:
    """The arguments of `resolve` for data that are changed."""
    data: dict[str, Any] = {"x0": np.array(solution.x0), "p": np.array(solution.p), "horizon": solution.horizon}
    names = {"x0": list(solution.state_names), "p": list(solution.parameters)}
    for what, name, size in zip(found.data, found.names, change, strict=True):
        if what == "horizon":
            data[what] += size
        else:
            data[what][names[what].index(name)] += size
    return {what: data[what] for what in dict.fromkeys(found.data)}


def resolved(problem: ns.Transcription, solution: ns.Solution, data: dict[str, Any]) -> ns.Answer:
    """Twice, since the solver ends at 1e-10 from afar; on a branch that says the same, where there are several."""
    answer = problem.resolve(problem.resolve(solution, **data), **data)
    assert answer.how in ("kept", "neighbour")
    return answer


def differences(problem: ns.Transcription, solution: ns.Solution, found: ns.SolutionSensitivity) -> tuple[Array, ...]:
    """Derivatives of controls, objective and last state by central differences with one Richardson step."""

    def at(k: int, size: float) -> Array:
        answer = resolved(problem, solution, moved(solution, found, size * np.eye(len(found.names))[k]))
        end = problem.read(answer.state.w, answer.state.p).x_right[-1][: found.x_end.shape[0]]
        return np.concatenate([answer.u.ravel(), [answer.objective], end])

    columns = []
    for k in range(len(found.names)):
        coarse, fine = ((at(k, size) - at(k, -size)) / (2 * size) for size in (STEP, STEP / 2))
        columns.append((4 * fine - coarse) / 3)
    rows, n_u = np.stack(columns, axis=-1), found.at.u.size
    return rows[:n_u].reshape(found.u.shape), rows[n_u], rows[n_u + 1 :]


@cache
def differentiated(name: str) -> tuple[ns.Transcription, ns.Solution, ns.SolutionSensitivity]:
    ocp, method = CASES[name]()
    problem = ns.transcribe(ocp, method)
    solution = problem.solve()
    assert solution.success
    return problem, solution, solution.differentiate(**SOME.get(name, {}), horizon=ocp.free_time is None)


def errors(name: str) -> tuple[float, ...]:
    """Largest relative errors of the derivatives of controls, objective and last state."""
    problem, solution, found = differentiated(name)
    assert found.exists, found
    pairs = zip((found.u, found.objective, found.x_end), differences(problem, solution, found), strict=True)
    return tuple(float(np.abs(one - other).max() / max(1.0, np.abs(other).max())) for one, other in pairs)


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_optima_nearby(name: str) -> None:
    assert max(errors(name)) <= 1e-6


def test_the_cases_are_what_they_are_meant_for() -> None:
    bounds = differentiated("bounded")
    assert np.any(np.abs(bounds[1].u - 2.5) < 1e-8)
    held_at = np.flatnonzero(np.abs(bounds[1].u[:, 0] - 2.5) < 1e-8)
    assert np.abs(bounds[2].u[held_at]).max() < 1e-12
    for name in ("ball", "thrown", "carts"):
        assert differentiated(name)[1].impacts
    assert "enter_sliding" in [event.kind for event in differentiated("sliding")[1].events]
    assert differentiated("frozen")[1].impacts
    assert "pull" not in differentiated("friction")[2].names


@pytest.mark.parametrize("name", ["curved", "ball", "carts", "frozen"])
def test_predictions_have_errors_of_second_order(name: str) -> None:
    problem, solution, found = differentiated(name)
    direction = np.where(np.arange(len(found.names)) % 2, -1.0, 1.0)
    missed = []
    for size in (4e-3, 2e-3):
        data = moved(solution, found, size * direction)
        near, answer = found.predict(**data), resolved(problem, solution, data)
        missed.append((np.abs(near.u - answer.u).max(), abs(near.objective - answer.objective)))
    for coarse, fine in zip(*missed, strict=True):
        assert coarse / fine == pytest.approx(4.0, rel=0.2)
    assert found.predict().objective == solution.objective
    np.testing.assert_array_equal(found.predict().u, problem.controls(solution.w))


# --- where there is no derivative ---


def flags_of(ocp: ns.OCP, method: Any = SMALL, **asked: Any) -> tuple[str, ...]:
    solution = ns.transcribe(ocp, method).solve()
    assert solution.success
    found = solution.differentiate(**asked)
    assert found.exists == (not found.flags)
    assert ("not certain to exist" in repr(found)) == bool(found.flags)
    assert np.isfinite(found.u).all()
    return found.flags


def resting(thrust: float) -> ns.OCP:
    """A ball on the ground is lifted by a force that is best at `thrust`, beside its weight of 9.81."""
    q, v, u, g = symbols("q v u g")
    ground = ns.Contact("ground", gap=q)
    s = ns.CLS(q=q, v=v, u=u, p=g, mass_matrix=1, force=u - g, contacts=[ground], p_default=[9.81])
    return ns.OCP(s, horizon=0.5, x0=[0, 0], stage_cost=(u - thrust) ** 2)


def test_a_contact_that_neither_presses_nor_opens_is_flagged() -> None:
    method = SMALL.replace(control_stages=3)
    assert any("ground" in flag and "biactive" in flag for flag in flags_of(resting(9.81), method, x0=False))
    assert flags_of(resting(9.0), method, x0=False) == ()
    # Where it lies it may be pulled up but not down: by x0 there is no derivative.
    flags = flags_of(resting(9.0), method)
    assert any("a change of q_0" in flag for flag in flags)


@pytest.mark.parametrize(("height", "flagged"), [(0.5, True), (0.6, False), (0.45, False)])
def test_a_touch_without_speed_is_flagged(height: float, flagged: bool) -> None:
    """A mass comes down with speed 1 and is pulled up by 1: from 1/2 it touches the ground just so, at 1 s."""
    q, v, u = symbols("q v u")
    s = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u + 1, contacts=[ns.Contact("ground", gap=q)])
    ocp = ns.OCP(s, horizon=2.0, x0=[height, -1], stage_cost=u**2)
    assert bool(flags_of(ocp, SMALL.replace(control_stages=4))) is flagged


@pytest.mark.parametrize(("margin", "flagged"), [(0.0, True), (1e-2, False), (-1e-2, False)])
def test_a_bound_without_a_multiplier_is_flagged(margin: float, flagged: bool) -> None:
    ocp, method = smooth()
    best = float(ns.transcribe(ocp, method).solve().u.max())
    bounds = ns.Bounds(u=(-20, best + margin))
    costs = {"stage_cost": ocp.stage_cost, "terminal_cost": ocp.terminal_cost}
    flags = flags_of(ns.OCP(ocp.system, horizon=1.0, x0=[-1, 0], bounds=bounds, **costs), method)
    assert [flag.startswith("u_0 (control stage 0) is at its bound") for flag in flags] == [True] * flagged


def test_a_goal_at_the_wall_has_one_side_only() -> None:
    q, v, u, goal = symbols("q v u goal")
    wall = ns.Contact("wall", gap=0.5 - q)
    s = ns.CLS(q=q, v=v, u=u, p=goal, mass_matrix=1, force=u, contacts=[wall], p_default=[0.5], names={"p": ["goal"]})
    there = ns.Constraint(ca.vertcat(q - goal, v), 0, 0)
    ocp = ns.OCP(s, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_constraints=[there])
    assert any("goal" in flag for flag in flags_of(ocp))
    assert flags_of(ocp, p=False) == ()


def test_controls_that_cost_nothing_are_flagged() -> None:
    s, (q, _, _) = mass()
    ocp = ns.OCP(s, horizon=1.0, x0=[0, 0], terminal_cost=(q - 1) ** 2, bounds=ns.Bounds(u=(-50, 50)))
    assert any("does not determine u_0 (control stage 0)" in flag for flag in flags_of(ocp))


def test_lengths_of_stages_with_equal_controls_are_flagged() -> None:
    """They do not matter until the controls differ: then they are chosen anew, and the controls with them."""
    ocp, method = friction()
    flags = flags_of(ocp, method.replace(equidistant_control_grid=False), **SOME["friction"])
    assert any("does not determine control stage length" in flag for flag in flags)
    ocp, method = thrown()
    assert flags_of(ocp, method.replace(equidistant_control_grid=False)) == ()


def test_a_point_that_is_no_minimum_is_flagged() -> None:
    """At rest in the middle both ways are better; a solver that begins there has no slope that shows one."""
    s, (q, _, u) = mass()
    ocp = ns.OCP(s, horizon=1.0, x0=[0, 0], stage_cost=0.01 * u**2, terminal_cost=-(q**2), bounds=ns.Bounds(u=(-5, 5)))
    still = ns.transcribe(ocp, SMALL).solve()
    assert np.abs(still.u).max() < 1e-6
    assert any("not positive definite" in flag for flag in still.differentiate().flags)


# --- how it is asked for ---


def test_answers_and_solutions_of_any_way_say_the_same(tmp_path: Any) -> None:
    ocp, method = thrown()
    problem = ns.transcribe(ocp, method)
    solution = problem.solve()
    found = problem.differentiate(solution)
    for other in (
        problem.differentiate(problem.resolve(solution)),
        ns.solve(ocp, method, certify=False).differentiate(),
        problem.differentiate(ns.load(solution.save(tmp_path / "solution.nc"))),  # type: ignore[arg-type]
    ):
        assert other.names == found.names == ("q_0", "v_0", "wall")
        assert other.u == pytest.approx(found.u, abs=1e-6)
        assert other.objective == pytest.approx(found.objective, abs=1e-6)
    some = solution.differentiate(x0="v_0", p=False)
    assert (some.names, some.data) == (("v_0",), ("x0",))
    np.testing.assert_allclose(some.u[..., 0], found.u[..., 1])


def test_mistakes(tmp_path: Any) -> None:
    ocp, method = thrown()
    problem = ns.transcribe(ocp, method)
    solution = problem.solve()
    with pytest.raises(ns.OptionError, match=r"of another transcription"):
        ns.transcribe(ocp, method.replace(control_stages=4)).differentiate(solution)
    with pytest.raises(ns.OptionError, match=r"a Solution or an Answer"):
        problem.differentiate([1.0])  # type: ignore[arg-type]
    with pytest.raises(ns.OptionError, match=r"unknown component 'weight'.*wall"):
        solution.differentiate(p=["weight"])
    with pytest.raises(ns.OptionError, match=r"expected True, False or names of components, given 3"):
        solution.differentiate(x0=3)  # type: ignore[arg-type]
    with pytest.raises(ns.OptionError, match=r"nothing is left"):
        solution.differentiate(x0=False, p=False)
    with pytest.raises(ns.OptionError, match=r"horizon: the OCP has none, or leaves it free"):
        ns.transcribe(*fastest()).solve().differentiate(horizon=True)
    with pytest.raises(ns.OptionError, match=r"did not end on a branch"):
        problem.solve(ns.Homotopy(finish="none")).differentiate()
    with pytest.raises(ns.OptionError, match=r"differentiate: this solution does not know its OCP"):
        ns.load(solution.save(tmp_path / "solution.nc")).differentiate()  # type: ignore[union-attr]
    with pytest.raises(ns.OptionError, match=r"polish: this solution does not know its OCP"):
        solution.polish()
    simulated = ns.transcribe(ns.OCP(ocp.system, horizon=1.0, x0=[0, 2]), method).solve()
    with pytest.raises(ns.OptionError, match=r"has no objective"):
        simulated.differentiate()
    with pytest.raises(ns.OptionError, match=r"expected a solved problem"):
        problem.solve(time_limit=0.0).differentiate()
    with pytest.raises(ns.OptionError, match=r"by finite elements, given one by MultiPhase"):
        ns.solve(ocp, ns.MultiPhase(intervals=4), certify=False).differentiate()
    found = solution.differentiate(p=False)
    with pytest.raises(ns.OptionError, match=r"predict: p was given"):
        found.predict(p=[0.5])
    with pytest.raises(ns.OptionError, match=r"expected 2 finite numbers \(q_0, v_0\)"):
        found.predict(x0=[0.5])
    with pytest.raises(ns.OptionError, match=r"expected 2 numbers, given 'left'"):
        found.predict(x0="left")


@pytest.mark.parametrize("make", [smooth, curved, bounded])
def test_a_gradient_of_a_loss_is_that_of_solutions_again(make: Callable[[], tuple[ns.OCP, Any]]) -> None:
    ocp, method = make()
    solution, rng = ns.solve(ocp, method), np.random.default_rng(0)
    weights = {"final": rng.normal(size=2), "u": rng.normal(size=solution.u.shape), "objective": 0.3}
    gradient = solution.vjp(**weights)
    assert gradient.smooth
    data, sizes = np.concatenate([solution.x0, solution.p]), [solution.x0.size]

    def loss(moved: Array) -> float:
        x0, p = np.split(moved, sizes)
        again = ns.solve(evolve(ocp, x0=x0, p=p), method, guess=solution)
        own = again.final_state @ weights["final"] + (again.u * weights["u"]).sum() + 0.3 * again.objective
        return float(own)

    step = 1e-4
    slopes = [(loss(data + step * d) - loss(data - step * d)) / (2 * step) for d in np.eye(data.size)]
    np.testing.assert_allclose(np.concatenate([gradient.x0, gradient.p]), slopes, rtol=0, atol=1e-5)
    with pytest.raises(OptionError, match="samples and event_times are of simulated motions"):
        solution.vjp(event_times=[1.0])
