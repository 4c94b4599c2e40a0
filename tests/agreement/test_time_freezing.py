"""Time-freezing against what knows nothing of it: the event-driven referee, FESD-J, and files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import particle, two_discs_inelastic
from tests.pairwise import slow_but
from tests.references.friction_closed_forms import BY_NAME

LANDING = particle.FRICTIONAL.landing
FALL = 9.81 * LANDING  # speed and, with mass 1, impulse of the landing from 1 m
CASES = (
    "stick_2d",
    "slip_2d",
    "slip_to_stick_2d",
    "slip_to_stick_pushed_2d",
    "reversal_2d",
    "slope_rest_2d",
    "slope_slide_2d",
    "slope_up_stick_2d",
    "slope_up_reversal_2d",
    "landing_stick_2d",
    "landing_slip_2d",
    "landing_stop_2d",
    "stack_caught_2d",
)


def method(elements: int = 4, **options: Any) -> ns.TimeFreezing:
    return ns.TimeFreezing(fesd=ns.FESD(finite_elements=elements, rk_stages=2), **options)


@pytest.fixture(scope="module")
def fall() -> ns.Trajectory:
    """A fall from 1 m with 3 m/s to the side under a force of 1 N, to a stop by friction."""
    return ns.simulate(
        particle.build(0.6), x0=(0.0, 1.0, 3.0, 0.0), u=[1.0, 0.0], duration=1.0, method=method(), steps=5
    )


@pytest.mark.parametrize(
    "name", slow_but(("slip_to_stick_2d", "reversal_2d", "slope_up_stick_2d", "landing_stop_2d"), CASES)
)
def test_both_formulations_agree(name: str) -> None:
    """Motions of degree 2: no error of the discretisation, the same states between the nodes, the same events."""
    case = BY_NAME[name]
    arguments: dict[str, Any] = {"x0": case.x0, "u": case.u, "duration": case.duration, "steps": 3}
    frozen = ns.simulate(case.system, method=method(), **arguments)
    jumps = ns.simulate(case.system, method=ns.FESDJ(finite_elements=4, rk_stages=2), **arguments)
    assert frozen.success, frozen.message
    assert jumps.success
    times = np.linspace(0.0, case.duration, 40)[1:-1] + 1e-4
    np.testing.assert_allclose(frozen(times), jumps(times), rtol=0.0, atol=1e-9)
    np.testing.assert_allclose(frozen(times), case.exact(times), rtol=0.0, atol=1e-9)
    assert [(e.kind, e.name) for e in frozen.events] == [(e.kind, e.name) for e in jumps.events]
    found, expected = ([e.time for e in trajectory.events] for trajectory in (frozen, jumps))
    assert found == pytest.approx(expected, abs=1e-8)
    for one, other in zip(frozen.impacts, jumps.impacts, strict=True):
        assert one.energy_gain == pytest.approx(other.energy_gain, abs=1e-8)
        assert one.impulse == pytest.approx(other.impulse, abs=1e-8)


def test_dense_output_in_physical_time(fall: ns.Trajectory) -> None:
    referee = ns.simulate(
        particle.build(0.6), x0=(0.0, 1.0, 3.0, 0.0), u=[1.0, 0.0], duration=1.0, method=ns.EventDriven()
    )
    times = np.linspace(0.0, 1.0, 203)
    np.testing.assert_allclose(fall(times), referee(times), rtol=0.0, atol=1e-8)
    np.testing.assert_allclose(fall(LANDING, "-"), referee(LANDING, "-"), rtol=0.0, atol=1e-8)
    assert [(e.kind, e.name) for e in fall.events] == [(e.kind, e.name) for e in referee.events]
    assert [e.time for e in fall.events] == pytest.approx([e.time for e in referee.events], abs=1e-8)
    assert (fall.t[0], fall.t[-1]) == pytest.approx((0.0, 1.0), abs=1e-12)
    assert fall.t.min() >= 0.0
    assert fall.t.max() <= 1.0


def test_numerical_time_is_the_same_motion(fall: ns.Trajectory) -> None:
    """In numerical time no state jumps, and at every clock time outside of the jump both agree."""
    numerical = fall.numerical
    assert numerical is not None
    assert np.all(np.diff(numerical.x[:, -1]) > -1e-9)
    assert np.all(np.diff(numerical.t) > 0.0)
    frozen = np.abs(numerical.x[:, -1] - LANDING) < 1e-7
    assert frozen.sum() >= 2
    clock = numerical.x[~frozen, -1]
    np.testing.assert_allclose(numerical.x[~frozen, :-1], fall(np.clip(clock, 0.0, 1.0)), rtol=0.0, atol=1e-8)


def test_saved_with_its_numerical_time(fall: ns.Trajectory, tmp_path: Path) -> None:
    loaded = ns.load(fall.save(tmp_path / "fall.nc"))
    assert loaded.numerical is not None
    assert fall.numerical is not None
    np.testing.assert_array_equal(loaded.numerical.x, fall.numerical.x)
    np.testing.assert_array_equal(loaded.numerical.u, fall.numerical.u)
    assert loaded.numerical.state_names == fall.numerical.state_names
    times = np.linspace(0.0, fall.numerical.t[-1], 57)
    np.testing.assert_allclose(loaded.numerical(times), fall.numerical(times), rtol=0, atol=1e-13)
    assert [vars(e) for e in loaded.events] == [vars(e) for e in fall.events]
    np.testing.assert_array_equal(
        loaded.series["lambda_normal[ground]"].values, fall.series["lambda_normal[ground]"].values
    )


def test_impact_at_the_start() -> None:
    """Touching at t = 0 with -2 m/s: Lambda = 2 at once, v_x falls by 0.6 times as much."""
    found = ns.simulate(
        particle.build(0.6), x0=(0.0, 0.0, 5.0, -2.0), u=[0.0, 0.0], duration=0.3, method=method(), steps=3
    )
    assert found.success, found.message
    (impact,) = found.impacts
    assert impact.time == pytest.approx(0.0, abs=1e-12)
    assert impact.impulse == pytest.approx(2.0, abs=1e-8)
    assert found.t[0] == 0.0
    np.testing.assert_allclose(found(0.0, "+"), [0.0, 0.0, 5.0 - 0.6 * 2.0, 0.0], rtol=0.0, atol=1e-9)
    end = [3.8 * 0.3 - 0.5 * 0.6 * 9.81 * 0.09, 0.0, 3.8 - 0.6 * 9.81 * 0.3, 0.0]
    np.testing.assert_allclose(found.final_state, end, rtol=0.0, atol=1e-8)


@pytest.mark.parametrize("steps", [2, 4])
def test_impact_on_the_boundary_of_steps(steps: int) -> None:
    found = ns.simulate(
        particle.build(0.6),
        x0=(0.0, 1.0, 5.0, 0.0),
        u=[0.0, 0.0],
        duration=2.0 * LANDING,
        method=method(a_n=9.81),
        steps=steps,
    )
    assert found.success, found.message
    (impact,) = found.impacts
    assert impact.time == pytest.approx(LANDING, abs=1e-8)
    assert impact.impulse == pytest.approx(FALL, abs=1e-6)
    after = 5.0 - 0.6 * FALL
    stop = after / (0.6 * 9.81)
    np.testing.assert_allclose(
        found.final_state, [5.0 * LANDING + 0.5 * after * stop, 0.0, 0.0, 0.0], rtol=0.0, atol=1e-7
    )


@pytest.mark.parametrize("stages", [1, 2])
def test_impact_at_the_very_end(stages: int) -> None:
    """A horizon that ends with the landing, at rest: the jump is in its last instant."""
    system = particle.build(0.0, controls=1)
    ocp = ns.OCP(
        system,
        horizon=LANDING,
        x0=particle.START,
        stage_cost=system.u[0] ** 2,
        terminal_constraints=[ns.Constraint(ca.vertcat(system.q[0] - 0.5, system.v[1]), 0.0, 0.0, name="end")],
        bounds=ns.Bounds(u=(-20.0, 20.0)),
    )
    made = ns.TimeFreezing(a_n=9.81, fesd=ns.FESD(control_stages=stages, finite_elements=3, rk_stages=2))
    solution = ns.solve(ocp, made)
    assert solution.success
    (impact,) = solution.impacts
    assert impact.time == pytest.approx(LANDING, abs=1e-9)
    assert impact.impulse == pytest.approx(FALL, abs=1e-6)
    assert solution.t[-1] == pytest.approx(LANDING, abs=1e-12)
    assert solution(LANDING, "-")[3] == pytest.approx(-FALL, abs=1e-6)
    assert solution.final_state[3] == pytest.approx(0.0, abs=1e-8)
    if stages == 1:  # one force for all of the time: x = u t^2 / 2, and frozen time costs nothing
        force = 1.0 / LANDING**2
        assert solution.objective == pytest.approx(force**2 * LANDING, rel=1e-8)


# --- curved contacts ---


def hill() -> ns.CLS:
    """A point over smooth hills, without friction."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    ground = ns.Contact("ground", gap=q[1] - 0.3 * (1 - ca.cos(q[0])))
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.DM([0.0, -9.81]), contacts=[ground])


@pytest.mark.slow
def test_sliding_on_a_hill_needs_the_drift() -> None:
    """q' = v + n tau keeps a curved contact closed at the stages; without it the landing becomes two."""
    arguments: dict[str, Any] = {"x0": (0.0, 0.5, 3.0, 0.0), "duration": 0.6}
    referee = ns.simulate(hill(), method=ns.EventDriven(), **arguments)
    expected = [event.kind for event in referee.events]
    assert expected == ["impact", "contact"]
    found = ns.simulate(hill(), method=method(), steps=24, **arguments)
    assert found.success, found.message
    np.testing.assert_allclose(found.final_state, referee.final_state, rtol=0.0, atol=5e-6)
    assert [event.kind for event in found.events] == expected
    assert [e.time for e in found.events] == pytest.approx([e.time for e in referee.events], abs=1e-8)
    alone = ns.simulate(hill(), method=method(stabilize=False), steps=24, **arguments)
    assert not alone.success or [event.kind for event in alone.events] != expected


# --- inelastic discs ---


def pushed_disc() -> ns.OCP:
    """Disc 1 is driven and hits disc 2, beside its centre, towards a target: a curved, inelastic contact."""
    system = two_discs_inelastic.build("none")
    error = system.x - ca.DM([0.0, 0.0, 1.5, 0.3, 0.0, 0.0, 0.0, 0.0])
    distance = ca.dot(ca.DM([1.0, 1.0, 10.0, 10.0, 0.1, 0.1, 0.1, 0.1]), error**2)
    return ns.OCP(
        system,
        horizon=2.0,
        x0=[-1.5, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
        stage_cost=distance + 0.1 * ca.sumsqr(system.u),
        terminal_cost=10.0 * distance,
        bounds=ns.Bounds(u=(-30.0, 30.0)),
    )


@pytest.mark.slow
def test_discs_agree_ever_better_on_finer_grids() -> None:
    """Both methods have one impact and the same optimum; FESD-J's shortest step keeps it off the control grid by O(h).

    The optimal impact lies where the control changes. Elements of FESD-J have a tenth of their nominal length at least,
    those of time-freezing may vanish.
    """
    ocp, differences = pushed_disc(), []
    found: ns.Solution | None = None
    for elements in (2, 4, 6):
        jumps = ns.FESDJ(control_stages=7, finite_elements=elements)
        solver = ns.Auto() if found is None else ns.Homotopy(sigma_0=1e-3)
        found = ns.solve(ocp, jumps, solver, guess=[5.0, 0.0] if found is None else found)
        frozen = ns.TimeFreezing(a_n=50.0, fesd=ns.FESD(control_stages=7, finite_elements=elements + 1))
        other = ns.solve(ocp, frozen, ns.Homotopy(sigma_0=1e-3), guess=found)
        assert found.success, found.summary()
        assert other.success, other.summary()
        assert [event.kind for event in found.events] == [event.kind for event in other.events] == ["impact"]
        assert other.impacts[0].time == pytest.approx(6.0 / 7.0, abs=1e-6)
        assert found.impacts[0].time == pytest.approx(6.0 / 7.0 + 0.1 * 2.0 / 7.0 / elements, abs=1e-6)
        differences.append(abs(found.objective - other.objective) / other.objective)
    assert differences[0] < 2e-2
    assert differences[1] < 0.6 * differences[0]
    assert differences[2] < 0.8 * differences[1]
