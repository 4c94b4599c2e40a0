"""Optimal control problems with known optima, and re-solving without a new transcription."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import minimize

import nosnoc_py as ns
from nosnoc_py.errors import OptionError
from nosnoc_py.tableaus import radau_iia
from nosnoc_py.transcription.transcription import costates
from tests.pairwise import slow_but

METHOD = ns.FESDJ(control_stages=8)


def double_integrator(**more: Any) -> ns.CLS:
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM(1), force=u, contacts=[], **more)


def transfer(system: ns.CLS, target: float = 1.0, **more: Any) -> ns.OCP:
    """From rest at 0 to rest at `target` in 2 s."""
    arrive = ns.Constraint(system.q, target, target, name="arrive")
    stop = ns.Constraint(system.v, 0.0, 0.0, name="stop")
    given = {"horizon": 2.0, "x0": [0, 0], "stage_cost": system.u**2, **more}
    return ns.OCP(system, terminal_constraints=[arrive, stop], **given)


def least_effort(target: float = 1.0, q: float = 0.0, v: float = 0.0, T: float = 2.0, N: int = 8) -> Any:
    """Optimum over piecewise constant controls: the least-norm solution of two linear equations."""
    h = T / N
    A = np.array([[h * (T - (k + 0.5) * h) for k in range(N)], [h] * N])
    u = A.T @ np.linalg.solve(A @ A.T, [target - q - T * v, -v])
    return h * u @ u, u


def test_the_method_by_default_and_what_does_not_fit() -> None:
    ocp = transfer(double_integrator())
    assert ns.transcribe(ocp).method == ns.transcribe(ocp, None).method == ns.FESDJ()
    assert ns.FESDJ().control_stages == ns.FESD().control_stages == ns.TimeFreezing().fesd.control_stages == 20
    with pytest.raises(OptionError, match="does not fit"):
        ns.transcribe(ocp, ns.FESD())


def test_the_double_integrator_of_least_effort() -> None:
    objective, u = least_effort()
    solution = ns.solve(transfer(double_integrator()), METHOD)
    assert solution.success
    assert solution.objective == pytest.approx(objective, abs=1e-8)
    np.testing.assert_allclose(solution.u[:, 0], u, rtol=0, atol=1e-8)
    assert solution.objective == pytest.approx(12 / 8, rel=0.02)  # of all controls: 12 / T^3


@pytest.mark.parametrize("stages", [4, 16, 64])
def test_the_objective_has_no_penalty_and_a_limit(stages: int) -> None:
    solution = ns.solve(transfer(double_integrator()), ns.FESDJ(control_stages=stages))
    assert solution.objective == pytest.approx(least_effort(N=stages)[0], abs=1e-8)
    assert 1.5 <= solution.objective <= 1.5 * (1 + 1.1 / stages**2)


def test_nominal_values_change_nothing() -> None:
    plain = ns.solve(transfer(double_integrator()), METHOD)
    scaled = ns.solve(transfer(double_integrator(nominal={"q": 100.0, "v": 0.01, "u": 30.0})), METHOD)
    assert scaled.success
    assert scaled.objective == pytest.approx(plain.objective, abs=1e-8)
    np.testing.assert_allclose(scaled.u, plain.u, rtol=0, atol=1e-7)
    assert scaled.multipliers["arrive"].values == pytest.approx(plain.multipliers["arrive"].values, abs=1e-6)


# --- multipliers ---


def test_costates_leave_out_elements_without_a_length() -> None:
    """-mu / b of Radau IIA with two stages, b = (3/4, 1/4); one of 1e-4 of its share has a length, one of 1e-8 none."""
    tableau, rows = radau_iia(2), [SimpleNamespace(rows=[k]) for k in range(6)]
    problem: Any = SimpleNamespace(
        dcs=SimpleNamespace(x_names=("x",)),
        tableau=tableau,
        fesd=SimpleNamespace(rk_representation="integral"),
        mpcc=SimpleNamespace(constraints=SimpleNamespace(blocks=lambda role: rows)),
    )
    mu = -np.array([0.75, 0.25, 1.5, 0.5, 2.25, 0.75])
    for short, kept in ((1e-4, [1, 1, 2, 2, 3, 3]), (1e-8, [1, 1, 3, 3])):
        (series,) = costates(problem, mu, np.array([1.0, short, 1.0])).values()
        assert series.values == pytest.approx(kept, rel=1e-14)
        assert series.t[[0, 1, -1]] == pytest.approx([1 / 3, 1.0, 2.0 + short], rel=1e-14)


def test_the_multiplier_of_an_equation_is_minus_the_slope_of_the_objective() -> None:
    # Lagrangian f + lambda (c - b): d f* / d b = -lambda
    found = {t: ns.solve(transfer(double_integrator(), t), METHOD) for t in (0.999, 1.0, 1.001)}
    slope = (found[1.001].objective - found[0.999].objective) / 0.002
    assert found[1.0].multipliers["arrive"].values[0] == pytest.approx(-slope, rel=1e-6)
    assert slope == pytest.approx(2 * least_effort()[0], rel=1e-6)


@pytest.mark.parametrize("side", ["upper", "lower"])
def test_signs_at_active_bounds(side: str) -> None:
    """Positive where the upper bound is active, negative at the lower one; -d f* / d bound."""

    def run(bound: float) -> ns.Solution:
        system = double_integrator()
        sign = 1.0 if side == "upper" else -1.0
        limit = {side: sign * bound}
        speed = ns.Constraint(sign * system.v, **limit, name="speed", at="control_grid")
        if side == "lower":
            speed = ns.Constraint(-system.v, lower=-bound, name="speed", at="control_grid")
        solution = ns.solve(transfer(system, path_constraints=[speed]), METHOD)
        assert solution.success
        return solution

    values = run(0.6).multipliers["speed"].values
    slope = (run(0.6001).objective - run(0.5999).objective) / 0.0002
    assert slope < -0.1  # a tighter bound costs
    expected = -slope if side == "upper" else slope
    assert values.sum() == pytest.approx(expected, rel=1e-5)
    assert (values >= -1e-7).all() if side == "upper" else (values <= 1e-7).all()


# --- path constraints ---


@pytest.mark.parametrize("at", ["control_grid", "element_ends", "rk_stages"])
def test_path_constraints_hold_where_they_are_asked_for(at: str) -> None:
    system = double_integrator()
    speed = ns.Constraint(system.v, upper=0.7, name="speed", at=at)
    method = ns.FESDJ(control_stages=4, finite_elements=2, rk_stages=2)
    solution = ns.solve(transfer(system, path_constraints=[speed]), method)
    assert solution.success
    stage = 0.5
    expected = {
        "control_grid": stage * np.arange(4),
        "element_ends": stage / 2 * np.arange(1, 9),
        "rk_stages": np.add.outer(stage / 2 * np.arange(8), stage / 2 * np.array([1 / 3, 1.0])).ravel(),
    }[at]
    np.testing.assert_allclose(solution.multipliers["speed"].t, expected, rtol=0, atol=1e-12)
    # The steps are free where nothing switches, but equal after the polish or by their penalty.
    times = solution.multipliers["speed"].t
    assert solution(times)[:, 1].max() <= 0.7 + 1e-7
    assert solution(times)[:, 1].max() == pytest.approx(0.7, abs=1e-6)


def test_every_control_stage_may_have_its_own_number_of_elements() -> None:
    problem = ns.transcribe(transfer(double_integrator()), ns.FESDJ(control_stages=3, finite_elements=(1, 3, 2)))
    assert [(e.at.stage, e.at.element) for e in problem.elements] == [(0, 0), (1, 0), (1, 1), (1, 2), (2, 0), (2, 1)]
    solution = problem.solve()
    assert solution.objective == pytest.approx(least_effort(N=3)[0], abs=1e-8)
    with pytest.raises(ns.OptionError, match="3"):
        ns.transcribe(transfer(double_integrator()), ns.FESDJ(control_stages=3, finite_elements=(1, 2)))


# --- free initial states ---


def test_a_free_initial_state_with_constraints() -> None:
    """x(0) on a line: the best start is known from the closed form."""
    system = double_integrator()
    start = ns.Constraint(system.q + system.v, -1.0, -1.0, name="start")
    solution = ns.solve(transfer(system, x0=None, initial_constraints=[start], terminal_cost=0), METHOD)
    assert solution.success
    best = minimize(lambda v: least_effort(q=-1 - v[0], v=v[0])[0], [0.0], tol=1e-14)
    assert solution.objective == pytest.approx(best.fun, abs=1e-8)
    assert solution.x0[0] + solution.x0[1] == pytest.approx(-1.0, abs=1e-9)
    assert solution.x0[1] == pytest.approx(best.x[0], abs=1e-5)


RESTITUTION = 0.5


def thrower() -> ns.CLS:
    """A body between nothing and a wall at 1."""
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    wall = ns.Contact("wall", gap=1 - q, restitution=RESTITUTION)
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM(1), force=u, contacts=[wall])


def bounce(u: np.ndarray, x: np.ndarray, duration: float) -> tuple[np.ndarray, list[float]]:
    """The thrower under piecewise constant thrust, by roots of parabolas: final state and impact times."""
    h, t, times = duration / len(u), 0.0, []
    q, v = x
    for a in u:
        rest = h
        while True:
            hits = [float(r.real) for r in np.roots([a / 2, v, q - 1]) if abs(r.imag) < 1e-12]
            hits = [r for r in hits if 1e-12 < r <= rest and v + a * r > 0]
            step = min(hits, default=rest)
            q, v, rest, t = q + v * step + a / 2 * step**2, v + a * step, rest - step, t + step
            if not hits:
                break
            q, v = 1.0, -RESTITUTION * v
            times.append(t)
    return np.array([q, v]), times


def differences(function: Any, z: np.ndarray, h: float = 1e-5) -> np.ndarray:
    """Jacobian by central differences."""
    return np.array([(function(z + h * d) - function(z - h * d)) / (2 * h) for d in np.eye(z.size)]).T


def stationarity(gradient: np.ndarray, jacobian: np.ndarray) -> float:
    """Size of the part of the gradient that no multiplier of the constraints explains."""
    multipliers, *_ = np.linalg.lstsq(jacobian.T, gradient, rcond=None)
    return float(np.abs(gradient - jacobian.T @ multipliers).max())


@pytest.mark.parametrize("stages", [4, 7])  # with 3 the impact sticks at the control grid
def test_a_throw_against_a_wall_is_optimal_for_the_reduced_program(stages: int) -> None:
    """From (0, 1.6) to -.4 after 2 s by one impact: the control is a stationary point of the exact simulation."""
    system, x0 = thrower(), np.array([0.0, 1.6])
    end = ns.Constraint(system.q, -0.4, -0.4, name="end")
    ocp = ns.OCP(system, horizon=2.0, x0=x0, stage_cost=system.u**2, terminal_constraints=[end])
    solution = ns.solve(ocp, ns.FESDJ(control_stages=stages))
    assert solution.success

    def residual(u: np.ndarray) -> np.ndarray:
        return bounce(u, x0, 2.0)[0][:1] + 0.4

    u = solution.u[:, 0]
    final, times = bounce(u, x0, 2.0)
    np.testing.assert_allclose(solution.x[-1], final, rtol=0, atol=1e-9)
    assert [i.time for i in solution.impacts] == pytest.approx(times, abs=1e-9)
    assert len(times) == 1
    assert np.abs(residual(u)).max() < 1e-9
    assert stationarity(4 / stages * u, differences(residual, u)) < 1e-6
    best = minimize(
        lambda u: 2 / stages * u @ u,
        np.zeros(stages),
        jac=lambda u: 4 / stages * u,
        constraints={"type": "eq", "fun": residual, "jac": lambda u: differences(residual, u)},
        method="SLSQP",
        options={"ftol": 1e-13, "maxiter": 300},
    )
    assert solution.objective == pytest.approx(best.fun, abs=1e-6)


def test_a_periodic_orbit() -> None:
    """x(T) = x(0) through `x_initial`: free in v(0) >= 1.6, out and back before the wall; the optimum is linear."""
    system = thrower()
    start = ns.Constraint(system.x, [0, 1.6], [0, 3], name="start")
    periodic = ns.Constraint(system.x - system.x_initial, 0, 0, name="periodic")
    ocp = ns.OCP(
        system,
        horizon=2.0,
        x0=None,
        stage_cost=system.u**2,
        initial_constraints=[start],
        terminal_constraints=[periodic],
    )
    solution = ns.solve(ocp, ns.FESDJ(control_stages=4))
    assert solution.success
    np.testing.assert_allclose(solution.x[-1], solution.x0, rtol=0, atol=1e-8)
    np.testing.assert_allclose(solution.x0, [0.0, 1.6], rtol=0, atol=1e-7)
    A = np.array([[0.5 * (1.75 - 0.5 * k) for k in range(4)], [0.5] * 4])
    u = A.T @ np.linalg.solve(A @ A.T, [-3.2, 0.0])
    assert solution.impacts == ()
    assert solution.objective == pytest.approx(0.5 * u @ u, abs=1e-6)
    np.testing.assert_allclose(solution.u[:, 0], u, rtol=0, atol=1e-6)


def test_the_reduced_simulation_itself() -> None:
    final, times = bounce(np.zeros(6), np.array([0.0, 1.6]), 2.0)
    assert times == pytest.approx([0.625], abs=1e-14)
    np.testing.assert_allclose(final, [1 - 0.8 * 1.375, -0.8], rtol=0, atol=1e-14)


# --- re-solving ---


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []
    nlpsol = ca.nlpsol

    def counting(name: str, *rest: Any) -> Any:
        made.append(name)
        return nlpsol(name, *rest)

    monkeypatch.setattr(ca, "nlpsol", counting)
    return made


def parametric() -> ns.OCP:
    q, v, u, m = (ca.SX.sym(n) for n in ("q", "v", "u", "m"))
    wall = ns.Contact("wall", gap=3.0 - q, restitution=0.5)
    system = ns.CLS(q=q, v=v, u=u, p=m, mass_matrix=m, force=u, contacts=[wall], p_default=[1.0])
    return transfer(system)


CHANGES: dict[str, dict[str, Any]] = {
    "x0": {"x0": [0.3, -0.2]},
    "p": {"p": [2.5]},
    "horizon": {"horizon": 1.5},
    "all": {"x0": [0.3, -0.2], "p": [2.5], "horizon": 1.5},
}


@pytest.mark.parametrize("name", slow_but(["horizon", "all"], CHANGES))
def test_solving_again_uses_the_same_transcription(name: str, counted: list[str]) -> None:
    problem = ns.transcribe(parametric(), METHOD)
    mpcc = problem.mpcc
    problem.solve(ns.Homotopy())
    built = len(counted)
    assert built == 1  # the relaxed NLP; branches are solved without IPOPT
    assert problem.solve(ns.Homotopy(), **CHANGES[name]).success
    assert len(counted) == built
    again = problem.solve(**CHANGES[name])
    assert again.success
    built = len(counted)
    np.testing.assert_allclose(problem.solve(**CHANGES[name]).w, again.w, rtol=0, atol=1e-8)
    assert len(counted) == built  # nothing is built twice
    assert problem.mpcc is mpcc
    original = parametric()
    fresh = ns.OCP(
        original.system,
        **{"horizon": 2.0, "x0": [0, 0], "p": None, **CHANGES[name]},
        stage_cost=original.stage_cost,
        terminal_constraints=original.terminal_constraints,
    )
    reference = ns.solve(fresh, METHOD)
    assert again.objective == pytest.approx(reference.objective, abs=1e-8)
    np.testing.assert_allclose(again.x, reference.x, rtol=0, atol=1e-8)
    change = CHANGES[name]
    mass, (q, v) = change.get("p", [1.0])[0], change.get("x0", [0, 0])
    expected = mass**2 * least_effort(q=q, v=v, T=change.get("horizon", 2.0))[0]
    assert again.objective == pytest.approx(expected, abs=1e-8)


def test_a_first_solve_is_not_changed_by_a_second() -> None:
    problem = ns.transcribe(parametric(), METHOD)
    first = problem.solve()
    objective, w = first.objective, first.w.copy()
    problem.solve(p=[4.0])
    assert problem.solve().objective == pytest.approx(objective, abs=1e-12)
    np.testing.assert_array_equal(first.w, w)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"x0": [0.0]}, "x0"),
        ({"x0": [4.0, 0.0]}, "penetrates contact 'wall'"),
        ({"x0": [np.nan, 0.0]}, "NaN"),
        ({"p": [1.0, 2.0]}, "p"),
        ({"p": [np.nan]}, "NaN"),
        ({"horizon": -1.0}, "horizon"),
        ({"horizon": np.inf}, "horizon"),
    ],
)
def test_bad_values_when_solving_again(bad: dict[str, Any], said: str) -> None:
    problem = ns.transcribe(parametric(), METHOD)
    with pytest.raises(ns.NosnocError, match=said):
        problem.solve(**bad)


def test_x0_cannot_be_given_where_it_is_free() -> None:
    problem = ns.transcribe(transfer(double_integrator(), x0=None), METHOD)
    with pytest.raises(ns.TranscriptionError, match="free"):
        problem.solve(x0=[0, 0])
