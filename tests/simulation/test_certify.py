"""Certificates: true solutions are confirmed, coarse ones inaccurate, wrong ones refuted with the place."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import bouncing_ball, point_mass
from nosnoc_py.discretization import cross_complementarity
from nosnoc_py.simulation.certification.certify import _edges
from nosnoc_py.simulation.certification.windows import first_difference, pair_events
from nosnoc_py.solution import RungeKuttaInterpolant
from nosnoc_py.solution.violation import Law
from tests.simulation.claimed import solution_of

METHOD = ns.FESDJ(control_stages=4, finite_elements=3, rk_stages=3)


def hopper(drag: float = 0.0) -> ns.OCP:
    """A ball with thrust that bounces once and then reaches a height; without drag all motions are parabolas."""
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    ground = ns.Contact("ground", gap=q, restitution=0.8)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM([[2.0]]), force=u - 2.0 * 9.81 - drag * v**3, contacts=[ground])
    return ns.OCP(
        system,
        horizon=1.2,
        x0=[1.0, -3.0],
        stage_cost=u**2 + q**2,
        bounds=ns.Bounds(u=(-40.0, 12.0)),
        terminal_constraints=[ns.Constraint(q, 0.5, 0.5, name="height")],
    )


def slider() -> ns.OCP:
    """A mass on the ground with friction, pushed to a place where it comes to rest."""
    system = point_mass.build(2)
    target = system.q[0] - 1.0
    return ns.OCP(
        system,
        horizon=1.0,
        x0=[0.0, 0.0, 0.0, 0.0],
        stage_cost=0.01 * ca.sumsqr(system.u),
        terminal_cost=100.0 * (target**2 + system.v[0] ** 2),
        bounds=ns.Bounds(u=(-20.0, 20.0)),
    )


@pytest.fixture(scope="module")
def hop() -> tuple[ns.OCP, ns.Solution]:
    ocp = hopper()
    return ocp, ns.solve(ocp, METHOD, guess=[10.0])


@pytest.fixture(scope="module")
def slide() -> tuple[ns.OCP, ns.Solution]:
    ocp = slider()
    return ocp, ns.solve(ocp, METHOD, guess=[8.0])


# --- what is right ---


def test_an_exact_solution_is_confirmed(hop: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = hop
    assert solution.success
    assert solution.impacts
    found = ns.certify(ocp, solution)
    assert found.verdict is ns.Verdict.CONFIRMED
    assert found.confirmed
    assert found.end_state_error < 1e-9
    assert abs(found.objective_error) < 1e-8 * found.objective
    assert found.equations is not None
    assert found.equations < 1e-9
    assert found.jumps < 1e-9
    assert found.findings == ()
    assert found.violation == ()
    assert all(window.events_agree and window.defect < 1e-9 for window in found.windows)
    assert len(found.windows) == METHOD.control_stages
    assert all(abs(pair.delay) < 1e-9 for pair in found.events)


def test_friction_is_confirmed(slide: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = slide
    assert solution.success
    found = ns.certify(ocp, solution)
    assert found.verdict is ns.Verdict.CONFIRMED, found
    assert found.end_state_error < 1e-8


def test_a_free_initial_state_is_that_of_the_solution(hop: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = hop
    assert ns.certify(replace(ocp, x0=None), solution).confirmed


def test_energy_and_impulse_balance(hop: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = hop
    found = ns.certify(ocp, solution)
    balance = found.balance
    assert balance is not None
    assert abs(balance.energy_residual) < 1e-10
    assert balance.impulse_residual < 1e-10
    # the impact takes (1 - e^2) of the kinetic energy, and its impulse is (1 + e) m |v|
    (impact,) = (event for event in found.trajectory.events if event.kind == "impact")
    assert balance.impacts == pytest.approx(-0.5 * 2.0 * impact.v_before**2 * (1 - 0.8**2), rel=1e-9)
    assert balance.impulses["ground"] == pytest.approx(1.8 * 2.0 * abs(impact.v_before), rel=1e-9)
    assert balance.friction == 0.0
    # gravity and thrust, in closed form over the stages: the work is the integral of (u - m g) v
    trajectory, work = found.trajectory, 0.0
    for k, u in enumerate(solution.u[:, 0]):
        heights = [trajectory(solution.u_grid[j], "-")[0] for j in (k, k + 1)]
        work += (u - 2.0 * 9.81) * (heights[1] - heights[0])
    assert balance.work == pytest.approx(work, rel=1e-9)


def test_friction_work(slide: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = slide
    balance = ns.certify(ocp, solution).balance
    assert balance is not None
    way = np.abs(np.diff(solution["x"])).sum()  # it may turn back only at nodes
    constants = point_mass.Constants()
    assert balance.friction == pytest.approx(-constants.friction * constants.mass * constants.gravity * way, rel=1e-6)


# --- what is coarse ---


def spring() -> tuple[ns.OCP, ns.Solution]:
    """A nonlinear spring throws a ball against a wall."""
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    wall = ns.Contact("wall", gap=q, restitution=0.5)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM([[1.0]]), force=u - 40.0 * q - v**3, contacts=[wall])
    ocp = ns.OCP(system, horizon=1.0, x0=[1.0, 0.0], stage_cost=u**2, terminal_cost=10.0 * q**2)
    elements = ns.transcribe(ocp, ns.FESDJ(control_stages=5, finite_elements=4, rk_stages=2))
    # `Auto` finds a true motion that costs less. Three relaxations end at the same local optimum, which is none.
    return ocp, elements.solve(solver=ns.Homotopy(relaxation="kanzow_schwartz"), guess=[1.0])


@pytest.mark.slow
def test_a_coarse_grid_is_inaccurate_and_finer_ones_less_so() -> None:
    ocp, errors = hopper(drag=0.1), []
    guess: Any = None
    for stages in (3, 2, 1):
        solution = ns.solve(ocp, METHOD.replace(rk_stages=stages), guess=guess)
        guess = solution
        assert solution.success
        assert len(solution.impacts) == 1
        found = ns.certify(ocp, solution)
        assert found.verdict is ns.Verdict.INACCURATE, found
        assert found.findings == ()
        assert "refine the grid" in found.reason
        assert max(window.defect for window in found.windows) > 1e-6
        errors.append(found.end_state_error)
    # Radau IIA of the orders 5, 3, 1
    assert errors[0] < errors[1] / 10
    assert errors[1] < errors[2] / 10
    # a tolerance that allows for the discretisation turns the verdict
    assert ns.certify(ocp, solution, tolerance=1.0).confirmed


def test_an_optimised_grazing_that_is_none_is_refuted() -> None:
    """The elements step over an impact that they would not like; every residual is at rounding."""
    ocp, solution = spring()
    assert solution.success
    assert solution.impacts == ()
    found = ns.certify(ocp, solution)
    assert found.verdict is ns.Verdict.REFUTED
    assert "impact wall" in found.reason
    assert "is missing" in found.reason
    assert found.end_state_error > 1e-2


# --- what is wrong ---


def test_a_perturbed_control_is_refuted_where_it_acts(slide: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = slide
    u = np.array(solution.u)
    stage = 0
    u[stage] *= 1.01
    found = ns.certify(ocp, replace(solution, u=u))
    assert found.verdict is ns.Verdict.REFUTED
    first = min(finding.time for finding in found.findings)
    assert solution.u_grid[stage] < first < solution.u_grid[stage + 1]
    assert f"first goes wrong at t = {first:.6g} s" in found.reason
    assert "no force explains the acceleration v_x'" in found.reason
    u[stage] *= 0.99 / 1.01  # a smaller force asks for less friction than slip has
    found = ns.certify(ocp, replace(solution, u=u))
    assert found.verdict is ns.Verdict.REFUTED
    assert "no force explains the acceleration v_x'" in found.reason


def test_a_phantom_impulse_is_refuted_where_it_acts(hop: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = hop
    (impact,) = solution.impacts
    old = solution.interpolant
    assert isinstance(old, RungeKuttaInterpolant)
    node = int(np.argmax(old.t_left > impact.time + 0.2))  # in flight
    kick = np.zeros(old.x_left.shape[0])
    kick[node:] = 1e-3
    # after the kick everything goes on consistently: position and velocity of the free motion with the kick
    later = old.t_left - old.t_left[node]
    x_left, stages = np.array(old.x_left), np.array(old.x_stages)
    x_left[node:, 0] += 1e-3 * later[node:]
    x_left[:, 1] += kick
    stages[node:, :, 0] += 1e-3 * (later[node:, None] + old.h[node:, None] * old.c)
    stages[:, :, 1] += kick[:, None]
    new = replace(old, x_left=x_left, x_stages=stages)
    found = ns.certify(ocp, replace(solution, interpolant=new))
    assert found.verdict is ns.Verdict.REFUTED
    assert found.findings[0].time == pytest.approx(old.t_left[node], abs=1e-12)
    assert "no impulse of a closed contact explains the jump of v_0 by 0.001 m/s" in found.findings[0].what
    assert found.jumps == pytest.approx(1e-3 / np.abs(solution.x[:, 1]).max(), rel=1e-6)


def test_without_the_left_gap_a_caught_ball_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trap of the published equations: all its own residuals are zero, and the motion is wrong."""
    monkeypatch.setitem(cross_complementarity.CROSS, "left", lambda rows, i: [(rows.a[:, i], rows.b[:, i])])
    ocp = ns.OCP(bouncing_ball.build(0.0), horizon=0.1, x0=[0.1, -1.0])
    problem = ns.transcribe(ocp, ns.FESDJ(control_stages=1, finite_elements=1, rk_stages=2))
    w = problem.mpcc.w0.copy()
    w[problem.mpcc.variables["v_plus", 0, 0]] = -1.0
    w[problem.mpcc.variables["Y_minus", 0, 0]] = 1.0
    for j, (velocity, force) in enumerate(((-2.0, 9.81), (2.0, 129.81))):
        w[problem.mpcc.variables["x", 0, 0, j]] = [0.0, velocity]
        w[problem.mpcc.variables["lambda_normal", 0, 0, j]] = force
    state = ns.Homotopy().init(problem.mpcc, w, clip=False, solvers=problem.solvers)
    assert state.complementarity < 1e-12
    assert state.infeasibility < 1e-9
    found = ns.certify(ocp, problem.solution(state))
    assert found.verdict is ns.Verdict.REFUTED
    assert "first goes wrong at" in found.reason
    assert found.findings[0].time <= 0.1
    assert not found.windows[0].events_agree
    assert "impact ground at 0.0735" in found.windows[0].difference
    assert found.end_state_error > 1.0


def impact_of(solution: ns.Solution) -> ns.Event:
    (impact,) = solution.impacts
    return impact


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: {"events": ()}, "impact ground at 0.236195 s is missing"),
        (
            lambda s: {"events": (replace(impact_of(s), time=0.6),)},
            "impact ground is listed with 19.68 N s, the jump there has 0",
        ),
        (
            lambda s: {"events": (*s.events, ns.Event(0.3, "ground", "impact", 50.0, -1.0, 1.0))},
            "impact ground is listed with 50 N s, the jump there has 0",
        ),
        (
            lambda s: {"events": (replace(impact_of(s), impulse=19.6),)},
            "impact ground is listed with 19.6 N s, the jump there has 19.68",
        ),
        (lambda s: {"x": s.x + 1e-3}, "t = 0 s: a state is 0.001 away from the dense output"),
        (lambda s: {"objective": 1.001 * s.objective}, "the solution belongs to another OCP, or was changed"),
        (
            lambda s: {"series": {n: ns.solution.Series(v.t, 3.0 * v.values) for n, v in s.series.items()}},
            "no impulse of a closed contact explains the jump of v_0",
        ),
    ],
)
def test_false_statements_are_refuted(hop: tuple[ns.OCP, ns.Solution], change: Any, words: str) -> None:
    ocp, solution = hop
    found = ns.certify(ocp, replace(solution, **change(solution)))
    assert found.verdict is ns.Verdict.REFUTED
    assert words in found.reason


def test_false_forces_are_refuted(slide: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = slide
    series = dict(solution.series)
    old = series["lambda_normal[ground]"]
    series["lambda_normal[ground]"] = ns.solution.Series(old.t, old.values + 1e-3 * (old.t > 0.5))
    found = ns.certify(ocp, replace(solution, series=series))
    assert found.verdict is ns.Verdict.REFUTED
    assert "friction does not oppose the slip at ground by 0.0005 N" in found.reason
    assert any("no force explains the acceleration v_y'" in finding.what for finding in found.findings)
    assert 0.5 < found.findings[0].time < 0.75


def test_a_solution_of_an_ocp_with_other_costs_or_bounds_is_refuted(hop: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = hop
    dearer = ns.certify(replace(ocp, stage_cost=2.0 * ocp.system.u**2), solution)
    assert dearer.verdict is ns.Verdict.REFUTED
    assert "the solution belongs to another OCP" in dearer.reason
    higher = ns.certify(replace(ocp, terminal_constraints=[ns.Constraint(ocp.system.q, 0.6, 0.6, name="up")]), solution)
    assert "the terminal constraint up is violated by 0.1" in higher.reason
    weaker = ns.certify(replace(ocp, bounds=ns.Bounds(u=(-40.0, 1.0))), solution)
    assert "the bound of u_0 is violated" in weaker.reason
    assert {dearer.verdict, higher.verdict, weaker.verdict} == {ns.Verdict.REFUTED}


@pytest.mark.parametrize("mass", [1e-6, 1e-3, 1.0, 1e3])
def test_the_unit_of_mass_does_not_matter(mass: float) -> None:
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    ground = ns.Contact("ground", gap=q, restitution=0.8)
    system = ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=ca.DM([[mass]]),
        force=mass * (u - 9.81),
        contacts=[ground],
        nominal={"force": mass},
    )
    ocp = ns.OCP(system, horizon=0.8, x0=[1.0, -3.0], stage_cost=u**2, bounds=ns.Bounds(u=(-1.0, 1.0)))
    trajectory = ns.simulate(
        system, method=ns.FESDJ(), x0=ocp.x0, duration=0.8, u=[[0.5], [-0.5], [0.25], [1.0]], steps=4
    )
    assert trajectory.success
    solution = solution_of(ocp, trajectory, 0.2 * (0.25 + 0.25 + 0.0625 + 1.0))
    right = ns.certify(ocp, solution)
    assert right.confirmed, right
    u_wrong = np.array(solution.u)
    u_wrong[2] += 0.01 * 9.81  # a thousandth of the weight and more
    wrong = ns.certify(ocp, replace(solution, u=u_wrong))
    assert wrong.verdict is ns.Verdict.REFUTED
    assert "no force explains the acceleration v_0'" in wrong.reason
    assert 0.4 < wrong.findings[0].time < 0.6


def test_a_wrong_start_is_refuted(hop: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = hop
    old = solution.interpolant
    assert isinstance(old, RungeKuttaInterpolant)
    moved = replace(old, x_initial=old.x_initial + 1e-3, x_left=old.x_left + 1e-3, x_stages=old.x_stages + 1e-3)
    found = ns.certify(ocp, replace(solution, interpolant=moved, x=solution.x + 1e-3))
    assert found.verdict is ns.Verdict.REFUTED
    assert any("begins 0.001 away from x0" in finding.what for finding in found.findings)
    assert found.findings[0].time == 0.0


def test_violated_constraints_of_the_true_trajectory(hop: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = hop
    q = ocp.system.q
    roof = ns.Constraint(q, None, 0.95, name="roof")
    low = replace(ocp, path_constraints=[roof], bounds=ns.Bounds(x=([0.0, -3.0], 5.0)))
    found = ns.certify(low, solution)
    sizes = {(finding.law, finding.subject): finding for finding in found.violation}
    times = np.linspace(0.0, 1.2, 2001)
    heights = np.asarray(found.trajectory(times))[:, 0]
    assert sizes[Law.PATH, "roof"].amount == pytest.approx(heights.max() - 0.95, abs=1e-3)
    assert sizes[Law.PATH, "roof"].time == pytest.approx(times[heights.argmax()], abs=0.05)
    (impact,) = solution.impacts
    assert sizes[Law.BOUND, "v_0"].amount >= abs(impact.v_before) - 3.0 - 1e-9


# --- bad solutions never raise ---


def test_nan_is_refuted(hop: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = hop
    x = np.array(solution.x)
    x[3] = np.nan
    found = ns.certify(ocp, replace(solution, x=x))
    assert found.verdict is ns.Verdict.REFUTED
    assert f"t = {solution.t[3]:.6g} s" in found.reason
    assert str(found)
    bad = ns.certify(ocp, replace(solution, u=np.full_like(solution.u, np.nan)))
    assert bad.verdict is ns.Verdict.REFUTED
    old = solution.interpolant
    assert isinstance(old, RungeKuttaInterpolant)
    stages = np.array(old.x_stages)
    stages[1, 0, 1] = np.inf
    hidden = ns.certify(ocp, replace(solution, interpolant=replace(old, x_stages=stages)))
    assert "dense output" in hidden.reason


@pytest.mark.parametrize("seed", range(8))
def test_random_garbage_is_refuted_without_an_error(seed: int, hop: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = hop
    noise = np.random.default_rng(seed)
    old = solution.interpolant
    assert isinstance(old, RungeKuttaInterpolant)
    fields = {name: getattr(old, name) + noise.normal(size=getattr(old, name).shape) for name in ("x_left", "x_stages")}
    found = ns.certify(
        ocp,
        replace(
            solution,
            x=solution.x + noise.normal(size=solution.x.shape),
            u=noise.normal(size=solution.u.shape) * 10.0 ** noise.integers(-3, 4),
            interpolant=replace(old, **fields),
        ),
    )
    assert found.verdict is ns.Verdict.REFUTED
    assert str(found)
    json.dumps(found.to_dict())


def test_a_failed_solve_is_judged_like_any_other() -> None:
    ocp = hopper()
    failed = ns.solve(ocp, METHOD, ns.Homotopy(max_iterations=2))
    assert not failed.success
    assert ns.certify(ocp, failed).verdict is not ns.Verdict.CONFIRMED


@pytest.mark.parametrize("limit", [0.0, 1e-6, 0.02])
def test_a_time_limit_leaves_it_undecided(limit: float, slide: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = slide
    found = ns.certify(ocp, solution, time_limit=limit)
    assert found.verdict in (ns.Verdict.UNDECIDED, ns.Verdict.CONFIRMED)  # a fast machine may be done in .02 s
    if limit < 0.01:
        assert found.verdict is ns.Verdict.UNDECIDED
        assert "time limit" in found.reason
        assert "unknown" in str(found)


def test_elements_that_miss_the_horizon_are_a_finding(hop: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = hop
    old = solution.interpolant
    assert isinstance(old, RungeKuttaInterpolant)
    h = np.array(old.h)
    h[-1] *= 0.5
    t = np.array(solution.t)
    t[-1] = old.t_left[-1] + h[-1]
    found = ns.certify(ocp, replace(solution, t=t, interpolant=replace(old, h=h)))
    assert any("the horizon is missed by" in finding.what for finding in found.findings)
    assert found.verdict is ns.Verdict.REFUTED


# --- mistakes raise ---


def test_a_solution_of_another_ocp_is_an_error(
    hop: tuple[ns.OCP, ns.Solution], slide: tuple[ns.OCP, ns.Solution]
) -> None:
    ocp, solution = hop
    with pytest.raises(ns.ModelError, match=r"another OCP; expected the states q_0, v_0, given x, y"):
        ns.certify(ocp, slide[1])
    with pytest.raises(ns.ModelError, match=r"its x0 is \[ 1\. -3\.\], expected \[2\. 0\.\]"):
        ns.certify(replace(ocp, x0=[2.0, 0.0]), solution)
    with pytest.raises(ns.ModelError, match=r"its horizon is 1\.2, expected 1\.5"):
        ns.certify(replace(ocp, horizon=1.5), solution)
    with pytest.raises(ns.ModelError, match="its control grid is"):
        ns.certify(ocp, replace(solution, u_grid=solution.u_grid * 0.9))


def test_wrong_arguments_are_errors(hop: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = hop
    with pytest.raises(ns.OptionError, match="solution: expected Solution, given float"):
        ns.certify(ocp, 1.0)  # type: ignore[arg-type]
    with pytest.raises(ns.OptionError, match="method: expected EventDriven, given FESDJ"):
        ns.certify(ocp, solution, METHOD)  # type: ignore[arg-type]
    with pytest.raises(ns.OptionError, match="window"):
        ns.certify(ocp, solution, window=-1.0)
    for bad in (0.0, -1.0, np.nan, np.inf, "x", None, True):
        with pytest.raises(ns.OptionError, match="tolerance: expected a positive number"):
            ns.certify(ocp, solution, tolerance=bad)  # type: ignore[arg-type]
    with pytest.raises(ns.OptionError, match="window: expected a positive number, given 'a'"):
        ns.certify(ocp, solution, window="a")  # type: ignore[arg-type]


# --- how it looks ---


def test_the_table(hop: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = hop
    text = str(ns.certify(ocp, solution, window=0.6))
    for part in ("Certificate: confirmed", "end state", "objective", "windows           2,", "energy", "impact ground"):
        assert part in text
    assert max(len(line) for line in text.splitlines()) <= 150


def hits(*times: float) -> list[ns.Event]:
    return [ns.Event(time, "wall", "impact") for time in times]


def test_late_events_are_others() -> None:
    pairs = pair_events(hits(0.1, 0.5), hits(0.11, 0.8))
    assert np.isnan(first_difference(pairs, 0.5)[0])
    time, words = first_difference(pairs, 0.25)
    assert time == 0.5
    assert words == "impact wall at 0.5 s comes 0.3 s later"
    assert first_difference(pair_events(hits(0.5), hits(0.2)), 0.1)[1].endswith("comes 0.3 s earlier")


def test_events_are_paired_by_kind_name_and_time() -> None:
    pairs = pair_events(hits(0.1, 0.9, 2.0), [*hits(0.91, 2.02), ns.Event(0.1, "wall", "contact")])
    assert [(p.claimed.time if p.claimed else None, p.found.time if p.found else None) for p in pairs] == [
        (0.1, None),
        (None, 0.1),
        (0.9, 0.91),
        (2.0, 2.02),
    ]


def test_a_stage_as_good_as_none_is_no_window() -> None:
    """In a hop of no height static friction ends: a window of its own would agree with anything."""
    grid = np.array([0.0, 0.4, 0.4 + 1e-9, 1.0, 2.0 - 1e-9, 2.0])
    edges = _edges(cast(ns.Solution, SimpleNamespace(u_grid=3.0 + grid)), None)
    assert edges == pytest.approx([0.0, 0.4, 1.0, 2.0])
