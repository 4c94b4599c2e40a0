"""Smoothed laws against closed forms: static penetration, bounce, sliding, creep, steps, regions."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import nosnoc_py as ns
from nosnoc_py.errors import OptionError
from nosnoc_py.reformulation.smoothing import Smoothed, damping_ratio, positive_part, smooth, smooth_step
from tests.pairwise import every_value

GRAVITY = 10.0
SPEED = 2.0


def ball(restitution: float = 0.0, weight: float = GRAVITY, mass: float = 1.0, **fields: Any) -> ns.CLS:
    """A ball under a force; the gap is its height."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    ground = ns.Contact("ground", gap=q, restitution=restitution)
    nominal = {"force": GRAVITY, "q": 0.5, **fields}
    force = ca.SX(-weight * mass)
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM(mass), force=force, contacts=[ground], nominal=nominal)


def block(friction: Any = 0.3, tangents: int = 1) -> ns.CLS:
    """A block of 2 kg on the ground with a force along it."""
    n = tangents + 1
    q, v, u = ca.SX.sym("q", n), ca.SX.sym("v", n), ca.SX.sym("u", tangents)
    tangent = ca.DM(np.eye(n)[:, :tangents])
    ground = ns.Contact("ground", gap=q[-1], tangent=tangent, friction=friction)
    nominal = {"force": 2.0 * GRAVITY, "v": 0.5}
    return ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=2.0 * ca.DM.eye(n),
        force=ca.vertcat(u, -2.0 * GRAVITY),
        contacts=[ground],
        nominal=nominal,
    )


def output(smoothed: Smoothed, name: str) -> ca.Function:
    """An output as a function of x and p."""
    found = next(o for o in smoothed.outputs if o.name == name)
    return ca.Function("output", [smoothed.system.x, smoothed.system.p], [found.expression])


def flow(smoothed: Smoothed) -> ca.Function:
    s = smoothed.system
    return ca.Function("flow", [s.x, s.u, s.p], [s.flow])


def motion(smoothed: Smoothed, x0: Any, duration: float, sigma: float, u: Any = 0.0, **options: Any) -> Any:
    """The smooth motion by an implicit method of SciPy."""
    rate = flow(smoothed)
    return solve_ivp(
        lambda t, x: np.asarray(rate(x, u, [sigma])).reshape(-1),
        (0.0, duration),
        x0,
        method="Radau",
        rtol=1e-8,
        atol=1e-10,
        **options,
    )


def rebound(restitution: float, sigma: float, mass: float = 1.0) -> float:
    """Speed after an impact without gravity over the one before it, when the ball is away again."""
    smoothed = smooth(ball(restitution, weight=0.0, mass=mass))
    found = motion(smoothed, [0.5, -SPEED], 1.0, sigma)
    return float(found.y[1, -1] / SPEED)


# --- functions ---


def test_positive_part_is_the_positive_root() -> None:
    y = ca.SX.sym("y")
    phi = ca.Function("phi", [y], [positive_part(y)])
    for value in (-1e9, -1e3, -1.0, 0.0, 2.0, 1e6):
        root = float(phi(value))
        # Vieta: the roots of phi^2 - y phi - 1 have the product -1 and the sum y.
        assert root > 0
        assert root - 1 / root == pytest.approx(value, rel=1e-12, abs=1e-12)
    assert (-1e9 + np.sqrt(1e18 + 4.0)) / 2 == 0.0  # the formula as it is printed loses everything


def test_smooth_step_is_complementary() -> None:
    y = ca.SX.sym("y")
    step = ca.Function("step", [y], [smooth_step(y)])
    for value in (0.0, 0.3, 2.0, 50.0):
        assert float(step(value)) + float(step(-value)) == pytest.approx(1.0, abs=1e-15)
    assert float(step(0.75)) == pytest.approx(0.8, abs=1e-15)  # 0.75 and 1 are the legs, 1.25 the hypotenuse
    assert float(step(-1e6)) == pytest.approx(0.25e-12, rel=1e-9)


def test_derivatives_are_finite_everywhere_and_right_at_zero() -> None:
    """phi' = phi / sqrt(y^2 + 4), step' = 1 / (2 (1 + y^2)^(3/2)); a body may start at y = 0."""
    y = ca.SX.sym("y")
    laws = ca.vertcat(positive_part(y), smooth_step(y))
    slopes = ca.Function("slopes", [y], [ca.jacobian(laws, y)])
    curvatures = ca.Function("curvatures", [y], [ca.jacobian(ca.jacobian(laws, y), y)])
    for value in (-1e10, -3.0, 0.0, 0.5, 1e10):
        phi = (value + np.hypot(value, 2.0)) / 2 if value > -100 else -1 / value
        expected = [phi / np.hypot(value, 2.0), 0.5 * (1 + value**2) ** -1.5]
        assert np.asarray(slopes(value)).reshape(-1) == pytest.approx(expected, rel=1e-9, abs=1e-15)
        assert np.isfinite(np.asarray(curvatures(value))).all()


def test_damping_ratio() -> None:
    assert damping_ratio(1.0) == 0.0
    assert damping_ratio(0.0) == 1.0
    zeta = damping_ratio(0.5)
    assert np.exp(-np.pi * zeta / np.sqrt(1 - zeta**2)) == pytest.approx(0.5, abs=1e-14)


# --- contacts ---


@pytest.mark.parametrize("load", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("sigma", [1e-1, 1e-3])
def test_static_penetration(load: float, sigma: float) -> None:
    """At rest phi = r, so the gap is sigma q_nominal (1 / r - r): zero under the nominal force."""
    force = output(smooth(ball()), "lambda_normal[ground]")
    gap = sigma * 0.5 * (1 / load - load)
    assert float(force([gap, 0.0], [sigma])) == pytest.approx(load * GRAVITY, rel=1e-6)


def test_force_and_gap_are_a_relaxed_complementarity() -> None:
    """lambda (g + T g' + delta lambda / F) = delta F, with the delay T of the critical damper."""
    mass, sigma = 3.0, 1e-2
    force = output(smooth(ball(mass=mass)), "lambda_normal[ground]")
    delta = 0.5 * sigma
    delay = 2 * np.sqrt(mass * delta / GRAVITY)
    for gap, rate in ((0.3, 0.0), (0.05, -1.0), (-0.01, 0.4)):
        value = float(force([gap, rate], [sigma]))
        product = value * (gap + delay * rate + delta * value / GRAVITY)
        assert product == pytest.approx(delta * GRAVITY, rel=1e-6)


@every_value(restitution=[0.3, 0.8, 1.0], mass=[1.0, 7.0])
def test_restitution_without_gravity_is_of_first_order(restitution: float, mass: float) -> None:
    """What is left of the smoothing is the tail of the force, of order sigma log(1 / sigma)."""
    errors = np.array([abs(rebound(restitution, sigma, mass) - restitution) for sigma in (1e-4, 1e-5, 1e-6)])
    assert errors[-1] < 1e-4
    assert np.log10(errors[:-1] / errors[1:]) == pytest.approx([1.0, 1.0], abs=0.15)


def test_a_stopped_ball_is_pushed_away_by_the_tail() -> None:
    """e = 0 without a load: the energy sigma F log(1 / sigma) of the tail is a speed of order one half."""
    errors = np.array([rebound(0.0, sigma) for sigma in (1e-4, 1e-5, 1e-6)])
    assert (errors > 0).all()
    assert np.log10(errors[:-1] / errors[1:]) == pytest.approx([0.45, 0.46], abs=0.03)


def test_restitution_needs_the_damper_of_its_own() -> None:
    """Negative control: the ratio of another coefficient is off by the difference of the two."""
    assert rebound(0.5, 1e-5) == pytest.approx(0.5, abs=1e-3)
    assert abs(rebound(0.8, 1e-5) - 0.5) > 0.29


def test_restitution_under_gravity_has_order_one_half() -> None:
    """The impact lasts as long as sqrt(sigma), and gravity acts meanwhile; e^2 is the ratio of the heights."""

    def apex(t: float, x: np.ndarray) -> float:
        return float(x[1])

    apex.terminal, apex.direction = True, -1.0  # type: ignore[attr-defined]
    errors = []
    for sigma in (1e-4, 1e-5, 1e-6):
        found = motion(smooth(ball(0.5)), [0.2, -1e-9], 0.45, sigma, events=apex)
        errors.append(abs(np.sqrt(found.y[0, -1] / 0.2) - 0.5))
    orders = np.log10(np.array(errors[:-1]) / errors[1:])
    assert orders == pytest.approx([0.5, 0.5], abs=0.1)
    assert errors[-1] < 1e-3


def test_an_inelastic_ball_comes_to_rest_without_passing_through() -> None:
    found = motion(smooth(ball()), [0.2, 0.0], 1.0, 1e-4)
    assert found.y[0].min() > -0.5e-4  # the width
    assert found.y[:, -1] == pytest.approx([0.0, 0.0], abs=1e-6)
    assert found.y[1].max() < 0.01 * SPEED
    elastic = motion(smooth(ball(1.0)), [0.2, 0.0], 0.4, 1e-4)  # negative control: no damper, no rest
    assert elastic.y[1].max() > 0.9 * SPEED


def test_gaps_in_other_units_bounce_alike() -> None:
    """A gap that is a hundred times as large has a hundredth of the force; the motion is the same."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    ends = []
    for factor in (1.0, 100.0):
        contact = ns.Contact("ground", gap=factor * q, restitution=0.6)
        nominal = {"force": GRAVITY / factor}
        system = ns.CLS(q=q, v=v, mass_matrix=ca.DM(1), force=ca.SX(-GRAVITY), contacts=[contact], nominal=nominal)
        ends.append(motion(smooth(system), [0.2, 0.0], 0.35, 1e-4).y[:, -1])
    assert ends[0] == pytest.approx(ends[1], abs=1e-6)


# --- friction ---


@pytest.mark.parametrize("sigma", [1e-2, 1e-4])
def test_a_sliding_block_decelerates_with_mu_g(sigma: float) -> None:
    """v' = -mu g v / sqrt(v^2 + (sigma v_nominal)^2); the difference from mu g is of second order."""
    rate = np.asarray(flow(smooth(block()))([0.0, 0.0, 1.0, 0.0], 0.0, [sigma])).reshape(-1)
    creep = 0.5 * sigma
    assert rate[2] == pytest.approx(-0.3 * GRAVITY / np.sqrt(1 + creep**2), rel=1e-12)
    assert abs(rate[2] + 0.3 * GRAVITY) < 0.3 * GRAVITY * creep**2


def test_a_block_that_sticks_creeps_in_proportion_to_sigma() -> None:
    """Half the force that would move it: v = sigma v_nominal (1/2) / sqrt(1 - 1/4)."""
    speeds = []
    for sigma in (1e-2, 1e-3, 1e-4):
        pushed = 0.5 * 0.3 * 2.0 * GRAVITY
        found = motion(smooth(block()), [0.0, 0.0, 0.0, 0.0], 0.5, sigma, u=pushed)
        speeds.append(float(found.y[2, -1]))
        assert speeds[-1] == pytest.approx(sigma * 0.5 / np.sqrt(3.0), rel=1e-4)
    moved = motion(smooth(block()), [0.0, 0.0, 0.0, 0.0], 0.5, 1e-4, u=2.0 * 0.3 * 2.0 * GRAVITY)
    assert moved.y[2, -1] == pytest.approx(0.5 * 0.3 * GRAVITY, rel=1e-3)  # negative control: twice the cone slips


def test_anisotropic_friction_dissipates_most_in_its_ellipse() -> None:
    """lambda_k = -mu_k^2 v_k lambda_n / |(mu_1 v_1, mu_2 v_2)|."""
    mu, slip = np.array([0.4, 0.1]), np.array([0.6, -0.8])
    smoothed = smooth(block(tuple(mu), tangents=2))
    force = np.asarray(output(smoothed, "lambda_tangent[ground]")([0, 0, 0, *slip, 0], [1e-6])).reshape(-1)
    assert force == pytest.approx(-(mu**2) * slip * 2.0 * GRAVITY / np.linalg.norm(mu * slip), rel=1e-9)
    assert next(o for o in smoothed.outputs if o.name == "lambda_tangent[ground]").components == (
        "lambda_tangent[ground][0]",
        "lambda_tangent[ground][1]",
    )


@pytest.mark.parametrize("way", [(1.0, 0.0), (0.0, 1.0), (0.6, -0.8)])
def test_slack_of_anisotropic_friction_vanishes_in_every_direction(way: tuple[float, float]) -> None:
    """A contact that slips is on the boundary of its ellipse, up to sigma^2."""
    smoothed = smooth(block((0.4, 0.1), tangents=2))
    slack = ca.Function("slack", [smoothed.system.x, smoothed.system.p], [smoothed.conditions[1].b])
    slipping, resting = (float(slack([0, 0, 0, *(speed * np.array(way)), 0], [1e-3])) for speed in (50.0, 0.0))
    assert 0.0 <= slipping < 1e-6 * resting
    assert resting > 1.0


def test_conditions_vanish_with_sigma() -> None:
    """Gap and force of a sliding block; slip speed and slack."""
    smoothed = smooth(block())
    sides = [ca.vertcat(*[getattr(c, side) for c in smoothed.conditions]) for side in "ab"]
    function = ca.Function("sides", [smoothed.system.x, smoothed.system.p], sides)
    for sigma in (1e-2, 1e-4):
        a, b = (np.asarray(side).reshape(-1) for side in function([0.0, 0.05, 1.0, 0.0], [sigma]))
        assert (np.abs(a * b) < 2.0 * GRAVITY * sigma).all()
        assert (b > -1e-12).all()


def test_a_mass_matrix_of_q_is_not_inverted() -> None:
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    system = ns.CLS(q=q, v=v, mass_matrix=1 + q**2, force=ca.SX(-GRAVITY), contacts=[ns.Contact("ground", gap=q)])
    smoothed = smooth(system)
    assert smoothed.system.algebraic.names == ("acceleration[v_0]",)
    assert ca.which_depends(smoothed.system.flow, smoothed.system.z, 1) == [True]


# --- switches ---


def test_regions_of_signs_share_the_flow() -> None:
    """Four quadrants: products of two steps, each over the width sigma |dc/dx x_nominal|."""
    x = ca.SX.sym("x", 2)
    signs = [[1, 1], [1, -1], [-1, 1], [-1, -1]]
    modes = ns.Modes(
        "quadrant", flows=[ca.DM([k, 0]) for k in range(4)], functions=ca.vertcat(3 * x[0], x[1]), signs=signs
    )
    smoothed = smooth(ns.PSS(x=x, modes=modes, nominal={"x": [2.0, 1.0]}))
    sigma = 0.1
    theta = np.asarray(output(smoothed, "theta[quadrant]")([0.15, -0.1], [sigma])).reshape(-1)
    first = 0.5 * (1 + 0.6)  # y = 0.45 / (0.1 * 6) = 0.75
    second = 0.5 * (1 - 1 / np.sqrt(2))  # y = -1
    parts = [first * second, first * (1 - second), (1 - first) * second, (1 - first) * (1 - second)]
    assert theta == pytest.approx(parts, abs=1e-12)
    rate = np.asarray(flow(smoothed)([0.15, -0.1], [], [sigma])).reshape(-1)
    assert rate[0] == pytest.approx(parts[1] + 2 * parts[2] + 3 * parts[3], abs=1e-12)


def test_regions_of_indicators_are_a_softmax() -> None:
    """Distances from three points; the scale is the root mean square of their gradients against the mean's."""
    x = ca.SX.sym("x", 2)
    points = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]])
    indicators = ca.vertcat(*[ca.sumsqr(x - ca.DM(point)) for point in points])
    modes = ns.Modes("nearest", flows=[ca.DM(point) for point in points], indicators=indicators)
    smoothed = smooth(ns.PSS(x=x, modes=modes))
    at, sigma = np.array([0.4, 0.3]), 0.05
    g = ((at - points) ** 2).sum(axis=1)
    slopes = 2 * (at - points) - (2 * (at - points)).mean(axis=0)
    scale = sigma * np.sqrt((slopes**2).sum() / 3)
    expected = np.exp(-g / scale) / np.exp(-g / scale).sum()
    theta = np.asarray(output(smoothed, "theta[nearest]")(at, [sigma])).reshape(-1)
    assert theta == pytest.approx(expected, rel=1e-9)
    far = np.asarray(output(smoothed, "theta[nearest]")([300.0, 0.0], [1e-6])).reshape(-1)
    assert far == pytest.approx([1.0, 0.0, 0.0], abs=1e-15)  # nothing overflows


def test_sliding_keeps_a_distance_in_proportion_to_sigma() -> None:
    """x' = -2 sign(x) + 1 slides with alpha = 1/4: y = -1 / sqrt(3), x = sigma y."""
    x = ca.SX.sym("x")
    modes = ns.Modes("side", flows=[ca.SX(-1), ca.SX(3)], functions=x, signs=[[1], [-1]])
    smoothed = smooth(ns.PSS(x=x, modes=modes))
    for sigma in (1e-1, 1e-3):
        found = motion(smoothed, [1.0], 3.0, sigma, u=[])
        # theta_0 (-1) + (1 - theta_0) 3 = 0 at theta_0 = 3/4
        assert found.y[0, -1] == pytest.approx(sigma / np.sqrt(3.0), rel=1e-4)


def test_heaviside_steps_enter_the_algebraic_equations() -> None:
    x, z, alpha = ca.SX.sym("x"), ca.SX.sym("z"), ca.SX.sym("alpha")
    own = ns.Algebraic(z, z - 2 * alpha)
    smoothed = smooth(ns.Heaviside(x=x, alpha=alpha, functions=x, flow=z, algebraic=own))
    s = smoothed.system
    residual = ca.Function("residual", [s.x, s.z, s.p], [s.algebraic.equations])
    assert float(residual(0.75, 1.6, 1.0)) == pytest.approx(0.0, abs=1e-12)
    assert not ca.depends_on(s.algebraic.equations, alpha)
    assert smoothed.outputs[0].components == ("alpha[c_0]",)


# --- the frame ---


def test_names_are_kept_and_sigma_is_added() -> None:
    smoothed = smooth(block())
    assert smoothed.system.state_names == smoothed.original.state_names
    assert smoothed.system.parameter_names == ("smoothing",)
    assert ca.is_equal(smoothed.system.x_initial, smoothed.original.x_initial)
    assert smoothed.units["lambda_normal[ground]"] == "N"


def test_a_parameter_called_smoothing_keeps_its_name() -> None:
    x, p = ca.SX.sym("x"), ca.SX.sym("p")
    modes = ns.Modes("side", flows=[ca.SX(-1), ca.SX(1)], functions=x, signs=[[1], [-1]])
    system = ns.PSS(x=x, p=p, modes=modes, names={"p": ["smoothing"]}, p_default=[7.0])
    assert smooth(system).system.parameter_names == ("smoothing", "smoothing'")
    assert smooth(system).system.p_default[0] == 7.0


def test_projected_systems_are_refused() -> None:
    x = ca.SX.sym("x")
    with pytest.raises(OptionError, match=r"ns\.FESD"):
        smooth(ns.PDS(x=x, flow=ca.SX(-1), constraints=x))
    with pytest.raises(OptionError, match="expected"):
        smooth(3)  # type: ignore[arg-type]
