"""Time-freezing: what `freeze` writes, and what its motions recover of forces, impulses and laws of impact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import casadi as ca
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

import nosnoc_py as ns
from models import ball_in_corner, bouncing_ball, bowl, particle, point_mass
from nosnoc_py.errors import OptionError
from nosnoc_py.reformulation.numerical_time import frozen_dcs
from nosnoc_py.reformulation.time_freezing import Frozen, freeze
from tests.pairwise import slow_row
from tests.references.friction_closed_forms import BY_NAME

Array = NDArray[np.float64]
GRAVITY = 9.81
INERTIA = np.array([1.0, 3.0])


def frozen_flow(frozen: Frozen) -> Callable[[Any, Any, Any], Array]:
    """(x, alpha, u) -> x' in numerical time, with the lifted products put in."""
    system = frozen.system
    assert system.algebraic is not None
    values = ca.Function(
        "values",
        [system.x, system.alpha, system.u, system.z],
        [system.flow, system.z - system.algebraic.equations],
    )

    def flow(x: Any, alpha: Any, u: Any) -> Array:
        z = np.zeros(system.z.numel())
        for _ in z:  # every equation is "variable = expression" of earlier ones
            z = np.array(values(x, alpha, u, z)[1]).ravel()
        return np.array(values(x, alpha, u, z)[0]).ravel()

    return flow


def method(elements: int = 4, stages: int = 2, **options: Any) -> ns.TimeFreezing:
    return ns.TimeFreezing(fesd=ns.FESD(control_stages=1, finite_elements=elements, rk_stages=stages), **options)


# What is written -----------------------------------------------------------------------------------------------------


def test_flow_of_flight_jump_and_contact() -> None:
    """Definition 6 with mu = 0.6, a_n = 5: flight, jump, and the convex combination in contact."""
    flow = frozen_flow(ns.freeze(particle.build(0.6), a_n=5.0))
    x, u = [0.3, 0.2, 2.0, -1.0, 0.7], [7.0, 1.0]
    flight = [2.0, -1.0, 7.0, 1.0 - GRAVITY, 1.0]
    np.testing.assert_allclose(flow(x, [1, 0, 1], u), flight, atol=1e-14)
    np.testing.assert_allclose(flow(x, [0, 1, 1], u), flight, atol=1e-14)
    np.testing.assert_allclose(flow(x, [0, 0, 1], u), [0.0, 0.0, -3.0, 5.0, 0.0], atol=1e-14)  # friction slows down
    np.testing.assert_allclose(flow(x, [0, 0, 0], u), [0.0, 0.0, 3.0, 5.0, 0.0], atol=1e-14)
    beta = (GRAVITY - 1.0) / (5.0 + GRAVITY - 1.0)  # (1 - beta) (1 - g) + beta a_n = 0
    found = flow(x, [0, 1 - beta, 1], u)
    assert found[3] == pytest.approx(0.0, abs=1e-14)
    assert found[4] == pytest.approx(5.0 / (5.0 + GRAVITY - 1.0), abs=1e-14)


def test_flow_of_two_contacts() -> None:
    """The clock runs with the product of both, the auxiliary motions add up with their own weights."""
    flow = frozen_flow(ns.freeze(ball_in_corner.build(2, ball_in_corner.Constants(frictions=(0.0, 0.0))), a_n=3.0))
    b, c = 0.25, 0.4
    found = flow([0.0, 0.0, -1.0, -2.0, 0.0], [0, 1 - b, 0, 1 - c], [0.5, 0.2])
    run = (1 - b) * (1 - c)
    expected = [-run, -2.0 * run, run * 0.5 + 3.0 * c, run * (0.2 - GRAVITY) + 3.0 * b, run]
    np.testing.assert_allclose(found, expected, atol=1e-14)


@pytest.mark.parametrize("elastic", ["constant_force", "spring_damper"])
def test_only_gaps_of_inelastic_contacts_are_shared(elastic: Any) -> None:
    for restitutions, shared in (
        ((0.0, 0.0), ["gap[floor]", "gap[wall]"]),
        ((0.5, 0.0), ["gap[wall]"]),
        ((0.5, 0.7), []),
    ):
        constants = ball_in_corner.Constants(frictions=(0.0, 0.0), restitutions=restitutions)
        system = ns.freeze(ball_in_corner.build(2, constants), elastic=elastic).system
        assert [(system.function_names or ())[j] for j in system.per_element] == shared


def test_a_state_may_be_called_clock() -> None:
    case = BY_NAME["stick_to_slip_2d"]
    assert "clock" in case.system.state_names
    assert ns.freeze(case.system).system.state_names[-1] == "clock'"
    found = ns.simulate(case.system, x0=case.x0, u=case.u, duration=case.duration, method=method(3, 3), steps=10)
    np.testing.assert_allclose(found.final_state, case.exact(case.duration), rtol=0.0, atol=1e-10)


def test_size_is_linear_in_the_number_of_contacts() -> None:
    """Every ball on the ground adds the same number of variables and of complementarities, 2 to 4 of them."""
    sizes = []
    for n in (2, 3, 4):
        system = point_mass.build_particles([point_mass.Constants()] * n)
        mpcc = ns.transcribe(ns.OCP(system, horizon=1.0, x0=[0.0, 1.0] * n + [0.0, 0.0] * n), method(3)).mpcc
        sizes.append((mpcc.w0.size, mpcc.G.numel()))
    two, three, four = np.array(sizes)
    np.testing.assert_array_equal(four - three, three - two)


# Inelastic: forces, impulses, friction -------------------------------------------------------------------------------


def test_contact_force_is_that_of_the_constraint() -> None:
    """lambda_n = -D^-1 phi with a full mass matrix and a slanted ground, in sliding from the start."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    mass, force, normal = np.array([[2.0, 0.5], [0.5, 1.0]]), np.array([3.0, -12.0]), np.array([0.6, 0.8])
    ground = ns.Contact("ground", gap=ca.dot(ca.DM(normal), q))
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM(mass), force=ca.SX(ca.DM(force)), contacts=[ground])
    found = ns.simulate(system, x0=(0.8, -0.6, 1.6, -1.2), duration=0.5, method=method(2, 2, a_n=7.0), steps=2)
    assert found.success
    expected = -(normal @ np.linalg.solve(mass, force)) / (normal @ np.linalg.solve(mass, normal))
    np.testing.assert_allclose(found.series["lambda_normal[ground]"].values, expected, atol=1e-6)
    acceleration = np.linalg.solve(mass, force + normal * expected)
    np.testing.assert_allclose(found.final_state[2:], [1.6, -1.2] + 0.5 * acceleration, atol=1e-8)


@pytest.mark.parametrize("a_n", [4.0, 30.0])
def test_impulse_and_friction_of_a_landing(a_n: float) -> None:
    """m = 2, mu = 0.5: Lambda = m |v_n| = a_n tau_jump, and lambda_t = -mu m g until the stop, -u after it."""
    constants, push = point_mass.Constants(mass=2.0, friction=0.5), 3.0
    system = point_mass.build(2, constants)
    made = ns.simulate(system, x0=(0.0, 1.0, 3.0, 0.0), u=[push], duration=1.0, method=method(4, 2, a_n=a_n), steps=5)
    assert made.success, made.message
    landing = np.sqrt(2.0 / GRAVITY)
    (impact,) = made.impacts
    assert impact.time == pytest.approx(landing, abs=1e-9)
    assert impact.impulse == pytest.approx(2.0 * GRAVITY * landing, abs=1e-6)
    assert impact.v_after == pytest.approx(0.0, abs=1e-9)
    numerical = made.numerical
    assert numerical is not None
    frozen = np.diff(numerical.x[:, -1]) < 1e-9
    speed = np.array([numerical.control(t)[-1] for t in 0.5 * (numerical.t[1:] + numerical.t[:-1])])
    assert a_n * float(np.sum((np.diff(numerical.t) * speed)[frozen])) == pytest.approx(impact.impulse, abs=1e-6)
    # v_x = 3 + 1.5 t, minus mu |v_n|; then 1.5 - mu g until the stop
    after = 3.0 + 1.5 * landing - 0.5 * GRAVITY * landing
    stop = landing + after / (0.5 * GRAVITY - 1.5)
    assert [e.time for e in made.events if e.kind == "stick"] == pytest.approx([stop], abs=1e-8)
    normal, tangent = (made.series[f"lambda_{kind}[ground]"] for kind in ("normal", "tangent"))
    touches, rests = normal.t > landing + 1e-9, tangent.t > stop + 1e-9
    np.testing.assert_allclose(normal.values, np.where(touches, 2.0 * GRAVITY, 0.0), atol=1e-6)
    np.testing.assert_allclose(tangent.values[touches & ~rests], -0.5 * 2.0 * GRAVITY, atol=1e-6)
    np.testing.assert_allclose(tangent.values[rests], -push, atol=1e-6)


def test_slip_in_space_is_exact() -> None:
    case = BY_NAME["slip_3d"]
    found = ns.simulate(case.system, x0=case.x0, u=case.u, duration=case.duration, method=method(), steps=3)
    np.testing.assert_allclose(found.final_state, case.exact(case.duration), rtol=0.0, atol=1e-6)


@pytest.mark.parametrize(("name", "epsilon"), [slow_row("stick_3d", 1e-3), ("slip_to_stick_pushed_3d", 1e-2)])
def test_stick_in_space_creeps_with_epsilon_t(name: str, epsilon: float) -> None:
    """By design (Eq. 26) the slip of a sticking contact is epsilon_t: its upper bound, and it is reached."""
    case = BY_NAME[name]
    made = method(4, 2, epsilon_t=epsilon)
    found = ns.simulate(case.system, x0=case.x0, u=case.u, duration=case.duration, method=made, steps=5)
    assert found.success, found.message
    slip = float(np.linalg.norm(found.final_state[3:5]))
    assert slip == pytest.approx(epsilon, rel=1e-6)
    drift = np.linalg.norm(found.final_state[:2] - case.exact(case.duration)[:2])
    assert drift < 1.01 * epsilon * case.duration


# Two contacts --------------------------------------------------------------------------------------------------------


def test_two_orthogonal_contacts_at_once() -> None:
    """Without friction they do not couple: Newton's law for each, impulses 5.924 and 1 at t = .4."""
    system = ball_in_corner.build(2, ball_in_corner.Constants(frictions=(0.0, 0.0)))
    start = (0.4, 0.8 + 0.5 * GRAVITY * 0.16, -1.0, -2.0)
    found = ns.simulate(system, x0=start, u=[0.0, 0.0], duration=0.7, method=method(), steps=2)
    assert found.success, found.message
    impacts = {event.name: event for event in found.impacts}
    assert [impacts[name].time for name in ("floor", "wall")] == pytest.approx([0.4, 0.4], abs=1e-9)
    assert impacts["floor"].impulse == pytest.approx(2.0 + 0.4 * GRAVITY, abs=1e-6)
    assert impacts["wall"].impulse == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(found.final_state, 0.0, atol=1e-8)


# Partially elastic ---------------------------------------------------------------------------------------------------


def rebound(flow: Callable[[Array], Array], gap: Callable[[Array], float], x: Array) -> Array:
    """The auxiliary motion from the surface until it returns to it, to the accuracy of the integrator."""

    def returns(_: float, y: Array) -> float:
        return gap(y)

    returns.terminal, returns.direction = True, 1.0  # type: ignore[attr-defined]
    found = solve_ivp(lambda _, y: flow(y), (0.0, 20.0), x, "DOP853", events=returns, rtol=1e-13, atol=1e-15)
    return np.asarray(found.y_events[0][0])


@pytest.mark.parametrize("restitution", [0.1, 0.5, 0.9, 1.0])
def test_auxiliary_motion_reverses_the_normal_velocity(restitution: float) -> None:
    flow = frozen_flow(ns.freeze(bouncing_ball.build(restitution, mass=3.0), elastic="spring_damper", stiffness=100.0))
    after = rebound(lambda x: flow(x, [0.0], []), lambda x: float(x[0]), np.array([0.0, -2.0, 0.3]))
    assert after[1] == pytest.approx(2.0 * restitution, abs=1e-10)
    assert after[2] == pytest.approx(0.3, abs=1e-14)


def skew_bowl() -> ns.CLS:
    """A round bowl of radius 1, e = 0.5, and more inertia in y: M^-1 n is not normal to the bowl, which bends it."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    contact = ns.Contact("bowl", gap=1.0 - ca.norm_2(q), restitution=0.5)
    return ns.CLS(
        q=q, v=v, mass_matrix=ca.diag(ca.DM(INERTIA)), force=ca.SX(ca.DM([0.0, -GRAVITY])), contacts=[contact]
    )


def on_bowl(stiffness: float, bend: bool) -> float:
    """Measured restitution of an impact at 35 degrees, with and without the term of the curvature."""
    flow = frozen_flow(ns.freeze(skew_bowl(), elastic="spring_damper", stiffness=stiffness))

    def auxiliary(x: Array) -> Array:
        rise, q, v = flow(x, [0.0], []), x[:2], x[2:4]
        if bend:
            return rise
        # n = -q / |q|, so n'v = -q'v / |q|; its gradient in q, times q'
        distance = np.linalg.norm(q)
        gradient = -v / distance + q * (q @ v) / distance**3
        share = (q / INERTIA) / (q @ (q / INERTIA)) * -distance
        return rise + np.concatenate([np.zeros(2), share * (gradient @ rise[:2]), [0.0]])

    angle = np.radians(35.0)
    outward = np.array([np.sin(angle), -np.cos(angle)])
    along = np.array([np.cos(angle), np.sin(angle)])
    start = np.concatenate([outward, 1.5 * outward + 1.0 * along, [0.0]])
    after = rebound(auxiliary, lambda x: float(1.0 - np.linalg.norm(x[:2])), start)
    normal = -after[:2] / np.linalg.norm(after[:2])
    return float(normal @ after[2:4] / 1.5)


def test_curved_contacts_need_the_term_of_the_curvature() -> None:
    """With it e = 0.5 to rounding; without it the error falls as 1 / sqrt(k) only."""
    for stiffness in (1e2, 1e4):
        assert on_bowl(stiffness, bend=True) == pytest.approx(0.5, abs=1e-10)
    errors = [on_bowl(stiffness, bend=False) - 0.5 for stiffness in (1e2, 1e4, 1e6, 1e8)]
    assert errors[0] > 1e-3
    assert errors[1] / errors[2] == pytest.approx(10.0, rel=0.1)
    assert errors[2] / errors[3] == pytest.approx(10.0, rel=0.02)


@pytest.mark.parametrize("restitution", [0.3, 0.5, 0.9])
def test_bounces_on_the_ground(restitution: float) -> None:
    """Half an oscillation in one element takes 8 stages for 1e-8; with 4 it is off by more than 1e-5."""
    system = bouncing_ball.build(restitution)

    def ratio(stages: int) -> tuple[float, ns.Trajectory]:
        found = ns.simulate(
            system,
            x0=(1.0, 0.0),
            duration=0.6,
            method=method(3, stages, elastic="spring_damper"),
            steps=2,
            solver=ns.Auto(),
        )
        assert found.success, found.message
        (impact,) = found.impacts
        return float((impact.v_after or 0.0) / (impact.v_before or 1.0)), found

    good, found = ratio(8)
    assert good == pytest.approx(-restitution, abs=1e-8)
    np.testing.assert_allclose(found.final_state, bouncing_ball.exact(0.6, restitution).ravel(), rtol=0.0, atol=1e-8)
    assert abs(ratio(3)[0] + restitution) > 1e-5


def test_bounce_by_a_constant_force_needs_two_stages() -> None:
    """Down with a_n, up with e^2 a_n: a polynomial of degree 2 on the ground, e to rounding."""
    restitution = 0.9
    system = bouncing_ball.build(restitution, mass=2.0)
    made = method(4, 2, elastic="constant_force", a_n=50.0)
    found = ns.simulate(system, x0=(1.0, 0.0), duration=0.6, method=made, steps=2)
    assert found.success, found.message
    (impact,) = found.impacts
    assert (impact.v_after or 0.0) / (impact.v_before or 1.0) == pytest.approx(-restitution, abs=1e-8)
    assert impact.impulse == pytest.approx(2.0 * (1.0 + restitution) * np.sqrt(2.0 * GRAVITY), abs=1e-6)
    np.testing.assert_allclose(found.final_state, bouncing_ball.exact(0.6, restitution).ravel(), rtol=0.0, atol=1e-8)


@pytest.mark.slow
def test_bounce_in_a_skew_bowl() -> None:
    """With elements, too, v+ = -e v- where the body leaves; that is O(1 / k) from where it arrived."""
    start = (0.6, -0.7, 0.3, -1.0)
    found = ns.simulate(skew_bowl(), x0=start, duration=0.15, method=method(3, 8, elastic="spring_damper"), steps=1)
    assert found.success, found.message
    (impact,) = found.impacts
    assert (impact.v_after or 0.0) / (impact.v_before or 1.0) == pytest.approx(-0.5, abs=1e-8)


def test_bounce_in_a_round_bowl() -> None:
    """The auxiliary motion is radial, and the body leaves where it arrived."""
    system, start = bowl.build(bowl.Constants(restitution=0.5)), (0.4, 0.0, 0.0, 0.0)
    found = ns.simulate(system, x0=start, duration=0.6, method=method(4, 8, elastic="spring_damper"), steps=2)
    referee = ns.simulate(system, x0=start, duration=0.6, method=ns.EventDriven())
    assert found.success, found.message
    (impact,) = found.impacts
    assert (impact.v_after or 0.0) / (impact.v_before or 1.0) == pytest.approx(-0.5, abs=1e-8)
    np.testing.assert_allclose(found.final_state, referee.final_state, rtol=0.0, atol=1e-8)


# Errors --------------------------------------------------------------------------------------------------------------


def free_flight(**contact: Any) -> ns.CLS:
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    contacts = [ns.Contact("ground", gap=q[2], **contact)] if contact else []
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(3), force=ca.SX(ca.DM([0.0, 0.0, -1.0])), contacts=contacts)


@pytest.mark.quick
def test_the_rate_of_a_stabilised_gap_is_the_sum_of_its_parts() -> None:
    """|n'v| = n'v+ + n'v-, which vanishes where the gap drifts."""
    dcs = frozen_dcs(freeze(bouncing_ball.build(0.0)), 0.0, stabilize=True)
    (held,) = [pair for pair in dcs.pairs if pair.name == "held"]
    slopes = ca.evalf(ca.jacobian(held.a, ca.vertcat(*[v.symbol for v in dcs.variables]))).full()
    assert sorted(slopes[slopes != 0.0].tolist()) == [1.0, 1.0]


FLAT = ca.DM([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]])


@pytest.mark.parametrize(
    ("system", "message"),
    [
        (free_flight(), r"no contacts.*FESDJ"),
        (free_flight(tangent=FLAT, friction=0.5, restitution=0.5), r"'ground'.*restitution.*friction.*FESDJ"),
        (free_flight(tangent=FLAT, friction=(0.5, 0.2)), r"'ground'.*anisotropic.*FESDJ"),
    ],
    ids=["no_contacts", "elastic_friction", "anisotropic"],
)
def test_what_cannot_be_frozen_says_what_can(system: ns.CLS, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ns.transcribe(ns.OCP(system, horizon=1.0, x0=[0.0, 0.0, 1.0, 0.0, 0.0, 0.0]), ns.TimeFreezing())


def test_options_that_do_not_fit() -> None:
    with pytest.raises(OptionError, match=r"FESDJ"):
        ns.TimeFreezing(fesd=ns.FESDJ())
    for bounds in ((0.1, 0.5), (2.0, 1.0), (-1.0, 2.0)):
        with pytest.raises(OptionError, match=r"speed_of_time"):
            ns.TimeFreezing(speed_of_time=bounds)
    for option in ("a_n", "epsilon_t", "stiffness"):
        wrong: dict[str, Any] = {option: 0.0}
        with pytest.raises(OptionError, match=option):
            ns.TimeFreezing(**wrong)


@pytest.mark.parametrize(
    ("parameters", "options", "message"),
    [
        ((10.0,), {}, r"freeze: parameters: expected an ns\.TimeFreezing\(\.\.\.\), given 10\.0"),
        ((ns.TimeFreezing,), {}, r"freeze: parameters: expected an ns\.TimeFreezing\(\.\.\.\), given <class"),
        ((ns.TimeFreezing(a_n=3.0),), {"a_n": 20.0}, r"freeze: given parameters and a_n; write parameters\.replace"),
        ((), {"a_m": 3.0}, r"^freeze: unknown option 'a_m'\. Did you mean 'a_n'"),
        ((), {"a_n": -1.0}, r"^freeze: option 'a_n': Input should be greater than 0"),
    ],
)
def test_parameters_of_freeze_that_do_not_fit(parameters: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ns.freeze(particle.build(), *parameters, **options)


def test_systems_of_other_kinds() -> None:
    x = ca.SX.sym("x")
    modes = ns.Modes("sign", flows=[ca.SX(-1), ca.SX(1)], functions=x, signs=[[1], [-1]])
    with pytest.raises(OptionError, match=r"TimeFreezing does not fit an ns.PSS.*ns\.FESD\("):
        ns.transcribe(ns.OCP(ns.PSS(x=x, modes=modes), horizon=1.0, x0=[1.0]), ns.TimeFreezing())
    with pytest.raises(OptionError, match=r"FESD does not fit an ns.CLS.*FESDJ.*TimeFreezing"):
        ns.simulate(particle.build(), x0=particle.START, duration=1.0, method=ns.FESD())


@pytest.mark.slow
def test_speed_of_time_that_is_too_slow_for_the_jump_is_told() -> None:
    """The jump takes .45 of numerical time within a step of .25: with s <= 1.5 the clock does not arrive."""
    found = ns.simulate(
        particle.build(), x0=particle.START, duration=0.5, method=method(a_n=9.81, speed_of_time=(0.5, 1.5)), steps=2
    )
    assert found.status is ns.Status.STEP_FAILED
    assert found.t[-1] == pytest.approx(0.25, abs=1e-9)


def test_a_sliding_body_in_space_comes_to_creep() -> None:
    """Without a push: from 0.5 m/s to epsilon_t in (0.5 - epsilon_t) / (mu g), and there it stays (Eq. 26)."""
    system, epsilon = point_mass.build(3, point_mass.Constants(friction=0.5)), 2e-2
    made = method(4, 2, epsilon_t=epsilon)
    found = ns.simulate(system, x0=(0.0, 0.0, 0.0, 0.3, 0.4, 0.0), duration=0.2, method=made, steps=4)
    assert found.success, found.message
    np.testing.assert_allclose(found.final_state[3:5], epsilon * np.array([0.6, 0.8]), rtol=0.0, atol=1e-6)
    (stop,) = [event.time for event in found.events if event.kind == "stick"]
    assert stop == pytest.approx((0.5 - epsilon) / (0.5 * GRAVITY), abs=1e-6)


@pytest.mark.parametrize(("elements", "stages", "steps"), [(4, 2, 6), slow_row(4, 2, 3), slow_row(6, 2, 6)])
def test_a_ball_that_the_auxiliary_motion_catches_is_no_solution(elements: int, stages: int, steps: int) -> None:
    """Three bounces, the last one in a step that the frozen equations also solve with the ball at rest."""
    fesd = ns.FESD(finite_elements=elements, rk_stages=stages)
    found = ns.simulate(
        bouncing_ball.build(0.5), x0=[1.0, 0.0], duration=1.2, steps=steps, method=ns.TimeFreezing(fesd=fesd)
    )
    assert not found.success
    np.testing.assert_allclose(found.final_state, bouncing_ball.exact(found.t[-1:], 0.5)[0], rtol=0, atol=1e-9)
