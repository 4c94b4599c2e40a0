"""Parameters and states from measurements: closed forms, a Kalman filter, differences, and what data do not tell."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.control.predicted import Predictions
from nosnoc_py.errors import ModelError, OptionError
from nosnoc_py.processes import can_fork
from nosnoc_py.status import Status

pytestmark = pytest.mark.quick
TRUE = np.array([0.05, 0.7])
TIMES = np.linspace(0.03, 1.2, 40)


def ball() -> ns.CLS:
    """A ball bounces on a floor of unknown height and restitution."""
    q, v, p = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("p", 2)
    floor = ns.Contact("floor", gap=q - p[0], restitution=p[1])
    return ns.CLS(
        q=q, v=v, p=p, p_default=[0, 0.5], mass_matrix=1, force=-9.81, contacts=[floor],
        names={"q": ["height"], "v": ["speed"], "p": ["floor", "e"]},
    )  # fmt: skip


def measured(seed: int, sigma: float = 0.002) -> ns.Measurements:
    system = ball()
    heights = ns.simulate(system, x0=[1, 0], duration=1.2, p=TRUE, times=TIMES).sample(system.q, TIMES).reshape(-1)
    noise = sigma * np.random.default_rng(seed).standard_normal(TIMES.size)
    return ns.Measurements(TIMES, {"height": heights + noise}, sigma=sigma)


FREE = {"floor": (-0.2, 0.2), "e": (0, 1)}


def test_a_fit_finds_the_truth_within_its_own_deviations():
    found = ns.fit(ball(), measured(0), free=FREE, x0=[1, 0])
    assert found.success, found.message
    off = [(found.values[name] - true) / found.std[name] for name, true in zip(FREE, TRUE, strict=True)]
    assert np.abs(off).max() < 3.0
    assert found.chi2 == pytest.approx(1.0, abs=0.7)
    assert all(found.identifiable.values())


def test_derivatives_of_residuals_are_those_of_differences():
    made = Predictions.of(ball(), (measured(0),), FREE, [1, 0], None, None, None, None)
    _, jacobian = made.residuals(TRUE)
    steps = 1e-6 * np.eye(2)
    differences = np.column_stack([(made.only(TRUE + h) - made.only(TRUE - h)) / 2e-6 for h in steps])
    assert jacobian == pytest.approx(differences, rel=1e-7, abs=1e-7 * np.abs(differences).max())


def test_a_bad_start_alone_is_no_fit_and_says_so_and_pieces_find_the_way():
    bad = {"start": {"floor": -0.15, "e": 0.05}, "starts": 1}
    alone = ns.fit(ball(), measured(1), free=FREE, x0=[1, 0], **bad)
    pieced = ns.fit(ball(), measured(1), free=FREE, x0=[1, 0], segments=3, **bad)
    assert pieced.success
    assert abs(pieced.values["e"] - 0.7) < 0.01
    assert alone.status is Status.POOR_FIT or abs(alone.values["e"] - 0.7) < 0.01


def test_several_optima_are_told():
    found = ns.fit(ball(), measured(2), free=FREE, x0=[1, 0], start={"floor": -0.15, "e": 0.05}, starts=6)
    assert found.success
    bad = [one for one in found.optima if one.cost > 100 * found.optima[0].cost and one.converged]
    assert found.multimodal == bool(bad)


@pytest.mark.skipif(not can_fork(), reason="processes cannot be forked here")
def test_processes_find_the_optima_of_one():
    """Bit for bit, and those that one process would not have searched are not among them."""
    given = {"free": FREE, "x0": [1, 0], "start": {"floor": -0.15, "e": 0.05}, "starts": 6}
    one, three = (ns.fit(ball(), measured(2), workers=workers, **given) for workers in (1, 3))
    assert [each.cost for each in three.optima] == [each.cost for each in one.optima]
    assert all(np.array_equal(each.values, other.values) for each, other in zip(three.optima, one.optima, strict=True))
    assert np.array_equal(three.covariance, one.covariance)
    with pytest.raises(ns.OptionError, match="workers: expected a positive whole number, given 0"):
        ns.fit(ball(), measured(2), workers=0, **given)


def test_a_parameter_that_occurs_nowhere_is_refused():
    x, p = ca.SX.sym("x"), ca.SX.sym("p", 2)
    decay = ns.ODE(x=x, p=p, p_default=[1, 1], flow=-p[0] * x, names={"x": ["x"], "p": ["rate", "unused"]})
    data = ns.Measurements([0.5, 1.0], {"x": np.exp([-0.5, -1.0])}, sigma=1e-3)
    with pytest.raises(ns.OptionError, match="the parameter unused occurs nowhere in the ODE"):
        ns.fit(decay, data, free={"rate": (0, 2), "unused": (0, 2)}, x0=[1])
    seen = ns.Measurements([0.5, 1.0, 2.0], {"y": np.exp([-0.5, -1.0, -2.0]) + 0.25}, sigma=1e-3)
    found = ns.fit(decay, seen, free={"rate": (0, 2), "unused": (0, 2)}, x0=[1], outputs={"y": x + p[1]})
    assert found.values["unused"] == pytest.approx(0.25, abs=1e-6)  # it occurs in an output


def test_what_the_data_do_not_tell_is_named():
    """Of two parameters that only act as their product, the data tell one combination."""
    q, v, p = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("p", 2)
    mass = ns.CLS(q=q, v=v, p=p, p_default=[1, 1], mass_matrix=1, force=p[0] * p[1], names={"p": ["a", "b"]}, contacts=[
        ns.Contact("far", gap=100 - q)])  # fmt: skip
    t = np.linspace(0.1, 1, 10)
    data = ns.Measurements(t, {"q_0": 1.0 * t**2}, sigma=1e-3)
    found = ns.fit(mass, data, free={"a": (0.5, 4), "b": (0.5, 4)}, x0=[0, 0], starts=1)
    assert found.values["a"] * found.values["b"] == pytest.approx(2.0, abs=1e-6)
    assert [c.seen for c in found.combinations] == [True, False]
    assert found.identifiable == {"a": False, "b": False}
    assert "not identifiable" in found.message


def test_units_are_those_of_the_user():
    data = ns.Measurements([0, 100], {"angle": [0, 90]}, sigma={"angle": 1.0}, units={"t": "ms", "angle": "deg"})
    assert data.times == pytest.approx([0, 0.1])
    assert data.values["angle"] == pytest.approx([0, np.pi / 2])
    assert data.noise["angle"] == pytest.approx([np.pi / 180] * 2)


@pytest.mark.parametrize(
    ("times", "values", "more", "word"),
    [
        ([0, 1], {"q": [0]}, {}, "one for every time"),
        ([1, 0], {"q": [0, 0]}, {}, "in order"),
        ([0, 1], {"q": [0, 0]}, {"sigma": 0.0}, "sigma"),
        ([0, 1], {"q": [0, 0]}, {"units": {"q": "inch"}}, "units"),
    ],
)
def test_data_that_are_none_are_refused(times, values, more, word):
    with pytest.raises(OptionError, match=word):
        ns.Measurements(times, values, **more)


def test_names_that_a_system_does_not_have_are_said():
    with pytest.raises(OptionError, match="mass"):
        ns.fit(ball(), measured(0), free={"mass": (0, 1)}, x0=[1, 0])


def test_without_contacts_the_moving_horizon_is_the_kalman_filter():
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    mass = ns.CLS(q=q, v=v, mass_matrix=1, force=0, contacts=[ns.Contact("far", gap=100 - q)])
    h, sigma, rng = 0.1, 0.05, np.random.default_rng(0)
    mhe = ns.MHE(mass, sigma={"q_0": sigma}, period=h, x0=[0.1, 0.8], x0_std=0.3, window=4)
    A, H, x, P = np.array([[1, h], [0, 1]]), np.array([[1.0, 0.0]]), np.array([0.1, 0.8]), 0.09 * np.eye(2)
    for k in range(12):
        y = h * (k + 1) + sigma * rng.standard_normal()
        x, P = A @ x, A @ P @ A.T
        K = P @ H.T / (H @ P @ H.T + sigma**2)
        x, P = x + K[:, 0] * (y - x[0]), P - K @ H @ P
        assert mhe.step({"q_0": y}) == pytest.approx(x, abs=1e-6)
        assert mhe.std["v_0"] == pytest.approx(np.sqrt(P[1, 1]), rel=1e-4)


@pytest.mark.parametrize("seed", [2, 6])
def test_the_moving_horizon_halves_the_noise_through_impacts(seed):
    """Measured are height and speed; the impacts are among the samples (both seeds have one beside an impact)."""
    system, rng, sigma = ball(), np.random.default_rng(seed), 0.02
    t = 0.05 * np.arange(1, 31)
    motion = ns.simulate(system, x0=[1, 0], duration=1.5, p=[0.0, 0.7], times=t)
    truth = motion.sample(system.x, t)
    mhe = ns.MHE(
        system, sigma={"height": sigma, "speed": sigma}, period=0.05, x0=[1.1, 0.2], x0_std=0.5, p=[0.0, 0.7], window=15
    )
    errors, noises = [], []
    for x in truth:
        noise = sigma * rng.standard_normal(2)
        errors.append(mhe.step(dict(zip(("height", "speed"), x + noise, strict=True))) - x)
        noises.append(noise)
    ratio = np.sqrt(np.mean(np.square(errors[5:])) / np.mean(np.square(noises[5:])))
    assert ratio < 0.6


def test_the_moving_horizon_says_what_it_does_not_know():
    with pytest.raises(OptionError, match="sigma"):
        ns.MHE(ball(), sigma={}, period=0.1, x0=[1, 0], x0_std=1.0)
    with pytest.raises(ModelError, match="weight"):
        ns.MHE(ball(), sigma={"height": 1.0}, period=0.1, x0=[1, 0], x0_std=1.0).step({"weight": 1.0})
