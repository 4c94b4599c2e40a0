"""The active-set Newton method on systems without jumps: closed forms, the same as an MPCC, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import bouncing_ball, hysteresis_car, switching_cases, turbo_car
from nosnoc_py.reformulation.filippov import projected_dcs, step_dcs, stewart_dcs
from nosnoc_py.simulation import fesd
from nosnoc_py.simulation.newton import event_walk, stepper
from nosnoc_py.simulation.newton.filippov_modes import (
    BoundaryMultipliers,
    ComponentGroup,
    FilippovModes,
    component_groups,
)
from nosnoc_py.simulation.stepping import SIMULATION_SOLVER
from tests.pairwise import every_value, slow_but, slow_row

ALONE = ns.ActiveSetNewton(fallback=False)
METHOD = ns.FESD(finite_elements=2, rk_stages=2)
UNIQUE = [case for case in switching_cases.CASES if case.unique]


# --- closed forms ---


@every_value(
    name=[case.name for case in UNIQUE],
    dcs_mode=["stewart", "step"],
    tableau=[("radau_iia", 2), ("radau_iia", 3), ("gauss_legendre", 2)],
)
def test_every_way_to_meet_a_surface_is_exact(name: str, dcs_mode: str, tableau: tuple[str, int]) -> None:
    case, (scheme, stages) = switching_cases.BY_NAME[name], tableau
    if case.name == "leaving" and scheme == "gauss_legendre":
        pytest.skip(
            "the multiplier is extrapolated to the end of an element: the time of a tangential exit is not exact"
        )
    method = ns.FESD(finite_elements=3, rk_stages=stages, scheme=scheme, dcs_mode=dcs_mode)
    for steps in (3, 5, 7, 10, 33):
        found = ns.simulate(
            switching_cases.build(case), x0=case.x0, duration=case.duration, steps=steps, method=method, solver=ALONE
        )
        assert found.success, found.message
        np.testing.assert_allclose(found.final_state, switching_cases.exact(case, case.duration)[0], rtol=0, atol=1e-12)
        own = [event for event in found.events if event.name != "gate"]
        assert [event.kind for event in own] == list(case.event_kinds)
        np.testing.assert_allclose([event.time for event in own], case.event_times, rtol=0, atol=1e-10)


def test_an_event_on_the_boundary_of_two_steps_is_no_trouble() -> None:
    case = switching_cases.case("crossing")  # at t = 1, the end of the tenth of 17 steps
    found = ns.simulate(switching_cases.build(case), x0=case.x0, duration=1.7, steps=17, method=METHOD, solver=ALONE)
    assert found.success, found.message
    np.testing.assert_allclose(found.final_state, switching_cases.exact(case, 1.7)[0], rtol=0, atol=1e-12)


def test_without_the_search_for_events_nothing_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    case = switching_cases.case("crossing")
    monkeypatch.setattr(event_walk.EventWalk, "_first_crossing", lambda self, run, ambiguous_guards=(): None)
    found = ns.simulate(switching_cases.build(case), x0=case.x0, duration=1.7, steps=5, method=METHOD, solver=ALONE)
    assert found.status is ns.Status.STEP_FAILED
    assert "not certified" in found.message


# --- the same as the MPCC ---


def disc() -> tuple[Any, list[float], Any]:
    """A point that a field pushes along the border of a disc."""
    x = ca.SX.sym("x", 2)
    return ns.PDS(x=x, flow=ca.vertcat(1.0, x[0] - 0.5 * x[1]), constraints=1 - ca.sumsqr(x)), [-0.5, 0.2], None


def corner() -> tuple[Any, list[float], Any]:
    """A point that meets one wall, then a corner."""
    x = ca.SX.sym("x", 2)
    walls = ca.vertcat(1 - x[0], 0.5 - x[1])
    return ns.PDS(x=x, flow=ca.vertcat(1.0, 1.0 - x[0]), constraints=walls), [0.0, 0.0], None


def two_surfaces() -> tuple[Any, list[float], Any]:
    """Two partitions; both surfaces are reached and slid on."""
    x = ca.SX.sym("x", 2)
    first = ns.Modes("a", flows=[[1, 0], [-1, 0]], functions=x[0], signs=[[-1], [1]])
    second = ns.Modes("b", flows=[[0, 1.5], [0, -1]], functions=x[1] - 0.1 * x[0], signs=[[-1], [1]])
    return ns.PSS(x=x, modes=[first, second]), [0.7, -1.0], None


def four_regions() -> tuple[Any, list[float], Any]:
    """One partition in four; at the origin the convex multipliers are not unique, the motion is."""
    x = ca.SX.sym("x", 2)
    signs = [[-1, -1], [-1, 1], [1, -1], [1, 1]]
    modes = ns.Modes("m", flows=[[1, 1], [1, -1], [-1, 1], [-1, -1]], functions=x, signs=signs)
    return ns.PSS(x=x, modes=modes), [0.7, -1.0], None


def heaviside() -> tuple[Any, list[float], Any]:
    x, alpha = ca.SX.sym("x", 2), ca.SX.sym("alpha", 2)
    flow = ca.vertcat(1 - 2 * alpha[0] + 0.3 * alpha[1], 1 - 3 * alpha[1])
    return ns.Heaviside(x=x, alpha=alpha, functions=x, flow=flow), [0.7, -1.0], None


def algebraic() -> tuple[Any, list[float], Any]:
    """A variable that an equation gives only implicitly."""
    x, z = ca.SX.sym("x", 2), ca.SX.sym("z")
    modes = ns.Modes("m", flows=[[1 + z, 1], [-1 + 0.3 * z, 1]], functions=x[0], signs=[[-1], [1]])
    return ns.PSS(x=x, modes=modes, algebraic=ns.Algebraic(z, z**3 + z - ca.sin(x[1]))), [0.7, -1.0], None


def hysteresis() -> tuple[Any, list[float], Any]:
    """Regions by indicators (Voronoi)."""
    return hysteresis_car.build(), [0.0, 0.0, 0.0, 0.0, 0.0][: hysteresis_car.build().x.numel()], [1.0]


def turbo() -> tuple[Any, list[float], Any]:
    return turbo_car.build(), [0.0] * turbo_car.build().x.numel(), [3.0]


MAKERS = [disc, corner, two_surfaces, four_regions, heaviside, algebraic, hysteresis, turbo]


@pytest.mark.parametrize("make", slow_but(["disc", "heaviside", "algebraic"], MAKERS), ids=lambda make: make.__name__)
def test_newton_and_the_mpcc_find_the_same(make: Callable[[], tuple[Any, list[float], Any]]) -> None:
    system, x0, u = make()
    u = None if u is None else u * system.n_u
    states = {}
    for name, solver in (("newton", ALONE), ("mpcc", SIMULATION_SOLVER)):
        simulator = ns.Simulator(system, METHOD, step=0.1, solver=solver)
        state, found = simulator.init(x0), []
        for _ in range(15):
            state = simulator.step(state, u)
            assert state.status is ns.Status.SOLVED, state.message
            assert (state.attempts == 0) == (name == "newton")
            assert max(state.complementarity, state.infeasibility) < 1e-9
            found.append(state.x)
        states[name] = np.array(found)
    np.testing.assert_allclose(states["newton"], states["mpcc"], rtol=0, atol=1e-9)


@pytest.mark.parametrize("representation", ["integral", "differential", "lifted_differential"])
@pytest.mark.parametrize("scheme", ["radau_iia", "gauss_legendre"])
def test_every_representation_is_written_into_its_own_unknowns(scheme: str, representation: str) -> None:
    system, x0, _ = two_surfaces()
    method = METHOD.replace(scheme=scheme, rk_representation=representation)
    found = ns.simulate(system, x0=x0, duration=0.6, steps=6, method=method, solver=ALONE)
    assert found.success, found.message
    plain = ns.simulate(system, x0=x0, duration=0.6, steps=6, method=METHOD.replace(scheme=scheme), solver=ALONE)
    np.testing.assert_allclose(found.final_state, plain.final_state, rtol=0, atol=1e-13)


def test_a_frozen_system_is_a_system() -> None:
    """The jump of an inelastic ball in numerical time, by Newton's method alone: it takes sqrt(2 g) / a_n."""
    system = ns.freeze(bouncing_ball.build(0.0)).system
    found = ns.simulate(
        system, x0=[1.0, 0.0, 0.0], duration=2.0, steps=20, method=METHOD.replace(finite_elements=3), solver=ALONE
    )
    assert found.success, found.message
    a_n, g = 10.0, 9.81
    landing = np.sqrt(2 / g)
    rest = 2.0 - landing - g * landing / a_n  # numerical time in contact, where the clock runs with a_n / (a_n + g)
    np.testing.assert_allclose(found.final_state, [0.0, 0.0, landing + rest * a_n / (a_n + g)], rtol=0, atol=1e-9)


# --- infinitely many switches, too many, and none that fits ---


def test_a_ball_that_never_rests_ends_with_zeno_and_the_motion_so_far() -> None:
    """e = .5 from 1 m: rests after sqrt(2 / g) (1 + 2 e / (1 - e)) = 1.3546 s, after infinitely many impacts."""
    found = ns.simulate(
        bouncing_ball.build(0.5),
        x0=[1.0, 0.0],
        duration=2.0,
        steps=20,
        method=ns.FESDJ(rest_velocity=0.0, finite_elements=6),
    )
    assert found.status is ns.Status.ZENO
    assert "infinitely many switches accumulate" in found.message
    assert "rest_velocity" in found.status.remedy
    assert 1.0 < found.t[-1] < 1.3546
    at_the_end = bouncing_ball.exact(found.t[-1:], 0.5)[0]
    np.testing.assert_allclose(found.final_state, at_the_end, rtol=0, atol=1e-10)


def twisting() -> ns.PSS:
    """x'' = -2 sign(x) - sign(x'): spirals into the origin in finite time, with infinitely many switches."""
    x = ca.SX.sym("x", 2)
    place = ns.Modes("place", flows=[[0, 2], [0, -2]], functions=x[0], signs=[[-1], [1]])
    speed = ns.Modes("speed", flows=[[0, 1], [0, -1]], functions=x[1], signs=[[-1], [1]])
    return ns.PSS(x=x, modes=[place, speed], flow=ca.vertcat(x[1], 0))


def test_a_chattering_law_ends_with_zeno() -> None:
    found = ns.simulate(twisting(), x0=[1.0, 0.0], duration=8.0, steps=40, method=METHOD.replace(finite_elements=8))
    assert found.status is ns.Status.ZENO
    # From rest at x = 1 with acceleration -1 to the axis, then with 3 to rest at x = -1 / 3.
    half = np.sqrt(2) + np.sqrt(2) / 3
    end = half / (1 - np.sqrt(1 / 3))
    assert end - 0.2 < found.t[-1] <= end


@pytest.mark.parametrize("restitution", slow_but([0.5, 0.8], [0.5, 0.8, 0.95]))
def test_any_restitution_accumulates(restitution: float) -> None:
    """Dropped from 1 mm; the impacts end after sqrt(2 z / g) (1 + e) / (1 - e)."""
    found = ns.simulate(
        bouncing_ball.build(restitution), x0=[1e-3, 0.0], duration=2.0, steps=20, method=ns.FESDJ(rest_velocity=0.0)
    )
    assert found.status is ns.Status.ZENO
    end = np.sqrt(2e-3 / 9.81) * (1 + restitution) / (1 - restitution)
    assert end - 0.1 <= found.t[-1] <= end


def test_what_switches_regularly_does_not_accumulate() -> None:
    times = np.concatenate([[0.0], 0.5 + 1e-3 * np.arange(20)])
    assert not stepper._accumulates(times, 0.6)
    assert not stepper._accumulates(times[1:], 0.6)
    falling = 1.0 - 0.8 ** np.arange(12)
    assert stepper._accumulates(falling, 1.1)
    assert not stepper._accumulates(falling, 0.95)  # the series ends beyond the step
    turns = np.cumsum(np.ravel([[0.6**k, 0.2 * 0.6**k] for k in range(8)]))
    assert stepper._accumulates(turns, 4.0)
    assert not stepper._accumulates(falling[:5], 1.1)


def crowded() -> ns.PSS:
    x = ca.SX.sym("x", 2)
    return ns.PSS(x=x, modes=ns.Modes("m", flows=[[0.5, 1], [1.5, 1]], functions=ca.sin(40 * x[1]), signs=[[-1], [1]]))


def test_a_step_with_too_many_switches_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    """sin(40 y) changes its sign at y = k pi / 40, six times between .01 and .51."""
    found = ns.simulate(crowded(), x0=[0.0, 0.01], duration=0.5, steps=1, method=METHOD)
    assert found.success, found.message
    times = np.pi / 40 * np.arange(1, 7) - 0.01
    np.testing.assert_allclose([event.time for event in found.events], times, rtol=0, atol=1e-10)
    whole = ns.simulate(
        crowded(), x0=[0.0, 0.01], duration=0.5, steps=1, method=METHOD.replace(finite_elements=7), solver=ALONE
    )
    np.testing.assert_allclose(found.final_state, whole.final_state, rtol=0, atol=1e-12)
    monkeypatch.setattr(fesd, "MOST_SPLITS", 0)
    refused = ns.simulate(crowded(), x0=[0.0, 0.01], duration=0.5, steps=1, method=METHOD)
    assert refused.status is ns.Status.STEP_FAILED
    assert "it has 6 switches" in refused.message


def test_a_step_that_fails_is_solved_as_an_mpcc_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FilippovModes, "_candidates", lambda self, zero, hint: [tuple([0] * zero.size)])
    monkeypatch.setattr(FilippovModes, "_mode_after", lambda self, modes, guard: modes)
    system, x0, _ = two_surfaces()
    simulator = ns.Simulator(system, METHOD, step=0.3)
    state = simulator.step(simulator.init(x0))
    assert state.status is ns.Status.SOLVED
    assert state.attempts > 0
    assert state.message
    alone = ns.simulate(system, x0=x0, duration=0.3, steps=1, method=METHOD, solver=ALONE)
    assert alone.status is ns.Status.STEP_FAILED


# --- several surfaces at once ---


def edge() -> ns.PSS:
    """All four quadrants lead to the edge x = y = 0; how fast z moves there, the convex combination leaves open."""
    x = ca.SX.sym("x", 3)
    flows = [[-1, -2, 1], [-1, 2, 0], [1, -2, 0], [1, 2, -2]]
    return ns.PSS(x=x, modes=ns.Modes("m", flows=flows, functions=x[:2], signs=[[1, 1], [1, -1], [-1, 1], [-1, -1]]))


@every_value(
    start=[[0.1, 0.9, 0.0], [-0.3, -0.2, 0.0], [0.3, -0.2, 0.0], [0.0, 0.0, 0.0]], dcs_mode=["stewart", "step"]
)
def test_on_two_surfaces_regions_weigh_as_products(start: list[float], dcs_mode: str) -> None:
    """The weights 1/4 each: z' = -1/4; whatever the steps, and as the event-driven simulation has it."""
    truth = ns.simulate(edge(), x0=start, duration=2.0, method=ns.EventDriven(grazing="continue"))
    method = ns.FESD(rk_stages=3, finite_elements=4, dcs_mode=dcs_mode)
    for steps in (20, 41):
        found = ns.simulate(edge(), x0=start, duration=2.0, steps=steps, method=method, solver=ALONE)
        assert found.success, found.message
        np.testing.assert_allclose(found.final_state, truth.final_state, rtol=0, atol=1e-9)


@pytest.mark.parametrize("dcs_mode", ["stewart", slow_row("step")])
def test_many_surfaces_are_slid_on_at_once(dcs_mode: str) -> None:
    """Ten relays that reach their surfaces one after the other."""
    n = 10
    x, unit = ca.SX.sym("x", n), np.eye(n)
    modes = [ns.Modes(f"r{i}", flows=[unit[i], -unit[i]], functions=x[i], signs=[[-1], [1]]) for i in range(n)]
    found = ns.simulate(
        ns.PSS(x=x, modes=modes),
        x0=0.05 + 0.03 * np.arange(n),
        duration=0.6,
        steps=30,
        method=ns.FESD(finite_elements=3, dcs_mode=dcs_mode),
        solver=ALONE,
    )
    assert found.success, found.message
    np.testing.assert_allclose(found.final_state, 0.0, rtol=0, atol=1e-12)
    assert [event.kind for event in found.events] == ["enter_sliding"] * n


def test_two_surfaces_are_left_along_one_of_them() -> None:
    """In both planes x = 0 and y = 0 until t = 1, when y is released: products of weights all the way, then a pair."""
    x = ca.SX.sym("x", 4)  # x, y, what the convex combination moves, time
    lift = 0.5 * x[3]  # from 1 / 2 on more than the flows hold
    flows = [[-1, lift - 0.5, 1, 1], [-1, lift + 0.5, 0, 1], [1, lift - 0.5, 0, 1], [1, lift + 0.5, -2, 1]]
    signs = [[1, 1], [1, -1], [-1, 1], [-1, -1]]
    modes = ns.Modes("m", flows=[ca.vertcat(*flow) for flow in flows], functions=x[:2], signs=signs)
    start = [0.05, 0.02, 0.0, 0.0]
    truth = ns.simulate(ns.PSS(x=x, modes=modes), x0=start, duration=1.6, method=ns.EventDriven(grazing="continue"))
    assert truth.success, truth.message
    for dcs_mode in ("stewart", "step"):
        method = ns.FESD(rk_stages=3, finite_elements=3, dcs_mode=dcs_mode)
        found = ns.simulate(ns.PSS(x=x, modes=modes), x0=start, duration=1.6, steps=23, method=method, solver=ALONE)
        assert found.success, found.message
        np.testing.assert_allclose(found.final_state, truth.final_state, rtol=0, atol=1e-8)
        assert [event.kind for event in found.events] == [event.kind for event in truth.events]


def test_functions_without_values_are_a_status() -> None:
    x = ca.SX.sym("x")
    system = ns.PSS(x=x, modes=ns.Modes("m", flows=[1, -1], functions=ca.log(x), signs=[[-1], [1]]))
    found = ns.simulate(system, x0=[-1.0], duration=0.1, steps=1, method=METHOD, solver=ALONE)
    assert found.status is ns.Status.NUMERICAL_ERROR


def test_conditions_of_products() -> None:
    """Of three functions that slide, four of the eight regions follow from the others."""
    signs = np.array(list(product([-1.0, 1.0], repeat=3)))
    part = ComponentGroup(members=tuple(range(8)), free=False, signs=signs)
    alpha = np.array([0.2, 0.5, 0.9])
    weights = np.prod(np.where(signs > 0, alpha, 1 - alpha), axis=1)
    found = part.product_conditions(range(8))
    assert sorted(row for row, *_ in found) == [3, 5, 6, 7]
    for s, base, p, q in found:
        assert weights[s] * weights[base] == pytest.approx(weights[p] * weights[q], abs=1e-15)
    assert part.product_conditions([0, 1]) == []
    assert len(part.product_conditions([0, 1, 2, 3])) == 1
    assert len(part.choices(np.ones(8, bool))) == 27


def test_a_dip_between_the_stages_is_an_event() -> None:
    """c = (y - .0771)^2 - 4e-7 is negative for 1.26 ms of a step of .1 s; there x' is 1000, else 1."""
    x = ca.SX.sym("x", 2)
    c = (x[1] - 0.0771) ** 2 - 4e-7
    system = ns.PSS(x=x, modes=ns.Modes("m", flows=[[1000, 1], [1, 1]], functions=c, signs=[[-1], [1]]))
    method = ns.FESD(finite_elements=3, rk_stages=2)
    found = ns.simulate(system, x0=[0.0, 0.0], duration=0.1, steps=1, method=method, solver=ALONE)
    assert found.success, found.message
    inside = 2 * np.sqrt(4e-7)
    assert found.final_state[0] == pytest.approx(0.1 + 999 * inside, abs=1e-9)


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        (ns.FESD(switch_detection=False), "fixed length"),
        (ns.FESD(scheme="radau_i"), "radau_i"),
        (ns.FESD(step_equilibration="linear_complementarity"), "linear_complementarity"),
    ],
)
def test_what_does_not_fit_is_refused_when_asked_for_and_an_mpcc_otherwise(method: ns.FESD, reason: str) -> None:
    system, x0, _ = two_surfaces()
    with pytest.raises(ns.OptionError, match=reason):
        ns.Simulator(system, method, step=0.1, solver=ALONE)
    simulator = ns.Simulator(system, method, step=0.1)
    state = simulator.step(simulator.init(x0))
    assert state.status is ns.Status.SOLVED
    assert state.attempts > 0


def test_options_are_checked() -> None:
    with pytest.raises(ns.OptionError, match="fallback"):
        ns.ActiveSetNewton(fallback=3)
    with pytest.raises(ns.OptionError, match="solver"):
        ns.Simulator(two_surfaces()[0], METHOD, step=0.1, solver=3)  # type: ignore[arg-type]
    assert ns.ActiveSetNewton(fallback=ns.Auto()).strategy == ns.Auto()


# --- modes ---


def test_components_of_one_partition_belong_together() -> None:
    x = ca.SX.sym("x", 2)
    signs = [[-1, -1], [-1, 1], [1, -1], [1, 1]]
    four = ns.PSS(x=x, modes=ns.Modes("m", flows=[[1, 0]] * 4, functions=x, signs=signs))
    assert [(part.members, part.free) for part in component_groups(stewart_dcs(four))] == [((0, 1, 2, 3), False)]
    assert [(part.members, part.free) for part in component_groups(step_dcs(four))] == [
        ((0, 2), False),
        ((1, 3), False),
    ]
    walls = ns.PDS(x=x, flow=x, constraints=x)
    assert [(part.members, part.free) for part in component_groups(projected_dcs(walls))] == [
        ((0,), True),
        ((1,), True),
    ]


def test_continuous_multipliers_follow_from_the_state_and_the_mode() -> None:
    """Stewart: lambda = g - g_active; of step functions the positive and the negative part of c."""
    x = ca.SX.sym("x")
    system = ns.PSS(x=x, modes=ns.Modes("m", flows=[1, -1], functions=x, signs=[[-1], [1]]))
    stewart = FilippovModes(stewart_dcs(system))
    at = np.array([0.3])
    lambda_and_mu = stewart.boundary_values((0, 1), at, np.zeros(0))  # g = (x, -x)
    np.testing.assert_allclose(lambda_and_mu, [0.6, 0.0, -0.3], rtol=0, atol=1e-14)
    step = FilippovModes(step_dcs(system))
    np.testing.assert_allclose(step.boundary_values((1, 0), at, np.zeros(0)), [0.0, 0.3], rtol=0, atol=1e-14)
    wrong = step.boundary_values((0, 1), at, np.zeros(0))  # as if c were negative: lambda_n = -c
    np.testing.assert_allclose(wrong, [-0.3, 0.0], rtol=0, atol=1e-14)
    assert BoundaryMultipliers(projected_dcs(ns.PDS(x=x, flow=x, constraints=x)), x).known.numel() == 0
