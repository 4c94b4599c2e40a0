"""Gradients backwards through simulations: against forward derivatives, differences and closed forms; finite always."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import bouncing_ball
from nosnoc_py.errors import OptionError
from nosnoc_py.processes import mapped
from tests.references import fuzz_scenes
from tests.references.gradient_scenes import NAMES, against_differences, against_forward
from tests.references.gradient_scenes import scene as scene_of
from tests.simulation.test_saltation import FLAGGED, grazing, two_landings

GRAVITY = 9.81
QUICK = (
    "slip_to_stick_3d",
    "bounce_slip_2d",
    "waves, rows of a control",
    "stick-slip on a belt",
    "hybrid",
    "hysteresis",
)


def finite(gradient: ns.Gradient) -> bool:
    parts = (gradient.x0, gradient.p, np.zeros(0) if gradient.u is None else gradient.u)
    return all(np.isfinite(part).all() for part in parts)


@pytest.mark.quick
@pytest.mark.parametrize("name", QUICK)
def test_equals_forward_derivatives_and_differences(name: str) -> None:
    assert against_forward(scene_of(name)) <= 1e-12
    assert against_differences(scene_of(name)) <= 1e-7


@pytest.mark.parametrize("name", [name for name in NAMES if name not in QUICK])
def test_equals_forward_derivatives(name: str) -> None:
    assert len(NAMES) >= 40
    assert against_forward(scene_of(name)) <= 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in QUICK])
def test_equals_differences(name: str) -> None:
    assert against_differences(scene_of(name)) <= 1e-7


@pytest.mark.quick
def test_a_bounce_in_closed_form() -> None:
    """h(T) = e v s - g s^2 / 2 with v = sqrt(2 g h), s = T - sqrt(2 h / g)."""
    e, g, h, T = ca.SX.sym("e"), 10.0, 1.0, 0.6
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    ball = ns.CLS(
        q=q, v=v, p=e, p_default=[0.5], mass_matrix=1, force=-g,
        contacts=[ns.Contact("ground", gap=q, restitution=e)],
    )  # fmt: skip
    motion = ns.simulate(ball, x0=[h, 0.0], duration=T, sensitivities="reverse")
    speed, rest = np.sqrt(2 * g * h), T - np.sqrt(2 * h / g)
    gradient = motion.vjp(final=[1.0, 0.0])
    assert gradient.p[0] == pytest.approx(speed * rest, abs=1e-10)
    by_h = 0.5 * g / speed * rest - (0.5 * speed - g * rest) / np.sqrt(2 * g * h)
    assert gradient.x0[0] == pytest.approx(by_h, abs=1e-9)
    assert motion.vjp(event_times=[2.0]).x0[0] == pytest.approx(2.0 / np.sqrt(2 * g * h), abs=1e-10)


@pytest.mark.quick
@pytest.mark.parametrize("name", FLAGGED)
def test_where_there_is_no_derivative_it_is_finite_and_flagged(name: str) -> None:
    scene, _ = FLAGGED[name]
    motion = scene.run(sensitivities="reverse")
    n_x = motion.x.shape[1]
    gradient = motion.vjp(final=np.ones(n_x), event_times=np.ones(len(motion.events)))
    assert finite(gradient)
    assert not gradient.smooth


@pytest.mark.quick
def test_two_landings_together_have_the_derivatives_of_either_order() -> None:
    """Balls that do not know of each other: the derivative of the sequence is that of both, landing apart."""
    together, apart = (two_landings(delay).run(sensitivities="reverse") for delay in (1e-7, 1e-3))
    for k in range(2):
        weights = np.eye(4)[k]
        there, near = together.vjp(final=weights), apart.vjp(final=weights)
        assert not there.smooth
        assert near.smooth
        np.testing.assert_allclose(there.x0[[k, 2 + k]], near.x0[[k, 2 + k]], rtol=0, atol=5e-2)


@pytest.mark.quick
def test_a_touch_without_speed_has_the_derivative_of_motions_that_miss() -> None:
    touching, missing = (grazing(height).run(sensitivities="reverse") for height in (1.0, 1.1))
    weights = [1.0, 2.0, 3.0, 4.0]
    assert missing.vjp(final=weights).smooth
    there = touching.vjp(final=weights)
    assert not there.smooth
    np.testing.assert_allclose(there.x0, missing.vjp(final=weights).x0, rtol=0, atol=1e-6)


def random_motions(seeds: range) -> list[ns.Gradient]:
    gradients = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        scene = fuzz_scenes.bodies(rng)
        system, x0 = scene.simulated
        motion = ns.simulate(system, x0=x0, duration=scene.duration, sensitivities="reverse", time_limit=30.0)
        events = rng.normal(size=len(motion.events))
        gradients.append(motion.vjp(final=rng.normal(size=motion.x.shape[1]), event_times=events))
    return gradients


def test_random_scenes_have_finite_gradients() -> None:
    gradients = random_motions(range(12))
    assert all(finite(gradient) for gradient in gradients)
    assert 0 < sum(gradient.smooth for gradient in gradients) < len(gradients)


@pytest.mark.slow
def test_more_random_scenes_have_finite_gradients() -> None:
    assert all(finite(gradient) for gradient in random_motions(range(12, 60)))


@pytest.mark.quick
def test_samples_weigh_like_the_states_there() -> None:
    ball = bouncing_ball.build(0.5)
    motion = ns.simulate(ball, x0=[1.0, 0.0], duration=0.8, times=[0.2, 0.7], sensitivities="reverse")
    both = motion.vjp(samples=([0.7, 0.2], [[1.0, 0.0], [0.0, 2.0]]))
    shorter = ns.simulate(ball, x0=[1.0, 0.0], duration=0.7, sensitivities="reverse").vjp(final=[1.0, 0.0])
    np.testing.assert_allclose(both.x0, np.add(shorter.x0, [0.0, 2.0]), rtol=0, atol=1e-9)  # v(0.2) = v(0) - 0.2 g
    at_impact = ns.simulate(ball, x0=[1.0, 0.0], duration=0.8, times=[np.sqrt(2 / GRAVITY)], sensitivities="reverse")
    flagged = at_impact.vjp(samples=([at_impact.events[0].time], [[1.0, 0.0]]))
    assert any("a sample at the time of an event" in flag for flag in flagged.flags)


@pytest.mark.quick
def test_the_tape_can_be_sent_and_says_what_is_wrong() -> None:
    ball = bouncing_ball.build(0.5)
    motion = ns.simulate(ball, x0=[1.0, 0.0], duration=0.8, sensitivities="reverse")
    sent, _ = mapped(lambda _: motion.variations, [0, 1], workers=2)
    np.testing.assert_array_equal(sent.pulled_back(final=[1.0, 0.0]).x0, motion.vjp(final=[1.0, 0.0]).x0)
    for asked, words in (
        ({"final": [1.0]}, "final: expected finite numbers of shape"),
        ({"final": [np.nan, 0.0]}, "final: expected finite numbers"),
        ({"samples": ([0.1], [[1.0, 0.0]])}, "is no node of the trajectory; give times="),
        ({"samples": [1.0]}, "samples: expected"),
        ({"event_times": [1.0, 1.0, 1.0]}, "event_times: expected"),
        ({"event_times": ["a"]}, "event_times: expected"),
    ):
        with pytest.raises(OptionError, match=words):
            motion.vjp(**asked)
    with pytest.raises(OptionError, match="no derivatives backwards"):
        ns.simulate(ball, x0=[1.0, 0.0], duration=0.8).vjp(final=[1.0, 0.0])
    with pytest.raises(OptionError, match="only EventDriven"):
        ns.simulate(ball, x0=[1.0, 0.0], duration=0.8, method=ns.FESDJ(), sensitivities="reverse")
    with pytest.raises(OptionError, match="expected True, False"):
        ns.simulate(ball, x0=[1.0, 0.0], duration=0.8, sensitivities="backwards")


@pytest.mark.quick
def test_the_cost_does_not_grow_with_parameters_and_stages() -> None:
    """A map that is kept has one column per state, parameter and control, however many stages there are."""
    for stages in (4, 40):
        motion = ns.simulate(
            scene_of("waves, 30 rows").system, x0=[0.0, 1.0, 1.5, 0.0], u=np.full((stages, 2), 0.3), duration=1.2,
            sensitivities="reverse",
        )  # fmt: skip
        assert {link.matrix.shape for link in motion.variations.links} == {(4, 10)}
        assert motion.vjp(final=np.ones(4)).u.shape == (stages, 2)


def test_a_gradient_that_overflows_is_flagged_and_zero():
    x = ca.SX.sym("x", 2)
    unstable = ns.ODE(x=x, flow=ca.vertcat(x[1], 1e4 * x[0]))
    times = np.linspace(0.0, 10.0, 101)
    motion = ns.simulate(unstable, x0=[0.0, 0.0], duration=10.0, times=times, sensitivities="reverse")
    gradient = motion.vjp(final=[1.0, 0.0])
    assert not gradient.smooth
    assert any("overflows" in flag for flag in gradient.flags)
    assert np.isfinite(gradient.x0).all()
