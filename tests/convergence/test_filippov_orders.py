"""Order of FESD on a switch that is crossed: every Runge-Kutta family, both representations of the switch."""

from __future__ import annotations

from math import cos, e, pi, sin
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.tableaus import Tableau, tableau
from tests.pairwise import Row, every_pair, slow_row

OMEGA = 2 * pi
DURATION = pi / 2
START = [1 / e, 0.0]


def oscillator() -> ns.PSS:
    """x' = A_1 x inside of the unit circle, A_2 x outside."""
    x = ca.SX.sym("x", 2)
    inside, outside = (ca.DM([[1.0, w], [-w, 1.0]]) for w in (OMEGA, -OMEGA))
    circle = ns.Modes("circle", flows=[inside @ x, outside @ x], functions=ca.sumsqr(x) - 1, signs=[[-1], [1]])
    return ns.PSS(x=x, modes=circle)


def exact() -> np.ndarray:
    """The radius is exp(t - 1): it is 1 at t = 1, after a whole turn clockwise; then the angle is 2 pi (t - 1)."""
    t = DURATION - 1
    return np.exp(t) * np.array([cos(OMEGA * t), sin(OMEGA * t)])


def final_state(steps: int, **options: Any) -> np.ndarray:
    method = ns.FESD(finite_elements=2, error_tolerance=None, **options)
    found = ns.simulate(oscillator(), x0=START, duration=DURATION, steps=steps, method=method)
    assert found.status is ns.Status.SOLVED, found.message
    return found.final_state


def observed_order(steps: list[int], errors: list[float]) -> float:
    """Slope of log(error) over log(h)."""
    return float(-np.polyfit(np.log(steps), np.log(errors), 1)[0])


def check_order(scheme: str, stages: int, representation: str | None, steps: list[int], both: int) -> None:
    """The order of one representation of the switch, and for the first `both` numbers of steps the other one."""
    options: dict[str, Any] = {"scheme": scheme, "rk_stages": stages, "rk_representation": representation}
    found = [final_state(n, dcs_mode="stewart", **options) for n in steps]
    for n, one in zip(steps[:both], found, strict=False):
        np.testing.assert_allclose(one, final_state(n, dcs_mode="step", **options), rtol=0, atol=1e-8)
    errors = [float(np.abs(x - exact()).max()) for x in found]
    assert observed_order(steps, errors) == pytest.approx(tableau(scheme, stages).order, abs=0.4), errors


SIMULATED = [("radau_iia", 2, [10, 20, 40]), ("gauss_legendre", 2, [12, 18, 27])]  # by Newton's method
SOLVED = [("radau_i", 2, [10, 20, 40]), ("lobatto_iiic", 3, [10, 20, 40]), ("explicit", 3, [10, 20, 40])]
# Step counts that put the switch at the same place of its step, a fifth: the error depends on it.
MORE = [
    ("explicit", 2, [30, 40, 54]),  # at 27 no guess leads through the switch
    ("explicit", 4, [16, 27, 38]),
    ("radau_iia", 3, [16, 27]),
    ("gauss_legendre", 1, [38, 60, 82]),
    ("gauss_legendre", 3, [16, 27]),
    ("radau_i", 3, [16, 27]),
    ("lobatto_iiic", 2, [60, 82, 115]),
    ("lobatto_iiic", 4, [20, 40, 80]),  # at 16, 18 and 27 no guess leads through the switch
]
REPRESENTATIONS = ["integral", "differential", "lifted_differential"]


def fitting(families: list[tuple[str, int, list[int]]]) -> list[tuple[str, int, str, list[int]]]:
    """Every representation that fits a scheme."""
    return [
        (scheme, stages, name, steps)
        for scheme, stages, steps in families
        for name in REPRESENTATIONS
        if name != "integral" or tableau(scheme, stages).invertible
    ]


@pytest.mark.parametrize(("scheme", "stages", "representation", "steps"), fitting(SIMULATED))
def test_a_crossed_switch_keeps_the_order(scheme: str, stages: int, representation: str, steps: list[int]) -> None:
    check_order(scheme, stages, representation, steps, both=3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "representation"),
    [
        ("radau_i", "lifted_differential"),
        slow_row("lobatto_iiic", "integral"),
        slow_row("explicit", "differential"),
    ],
)
def test_a_crossed_switch_keeps_the_order_of_what_is_solved(scheme: str, representation: str) -> None:
    """Every family once; the others of those keep their order on a smooth problem (`test_tableaus`) and slide below."""
    ((stages, steps),) = [(stages, steps) for name, stages, steps in SOLVED if name == scheme]
    check_order(scheme, stages, representation, steps, both=1)


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "stages", "representation", "steps"), fitting([*SOLVED, *MORE]))
def test_orders_of_all_representations_and_of_more_stages(
    scheme: str, stages: int, representation: str, steps: list[int]
) -> None:
    check_order(scheme, stages, representation, steps, both=len(steps))


@pytest.mark.slow
@pytest.mark.parametrize(("scheme", "stages"), [("gauss_legendre", 2)])
def test_fixed_steps_fall_to_order_one(scheme: str, stages: int) -> None:
    """The negative control. Fixed steps hit the switch at some places by luck: regression over many."""
    steps = [20, 28, 40, 57, 80, 113]
    states = [final_state(n, scheme=scheme, rk_stages=stages, switch_detection=False) for n in steps]
    errors = [float(np.abs(x - exact()).max()) for x in states]
    assert 0.4 < observed_order(steps, errors) < 1.8, errors
    assert errors[-1] > 1e-3


def test_stages_at_the_ends_of_an_element_need_both_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heun's second stage lies behind the circle where the element ends on it: with its sign there is no solution."""
    options: dict[str, Any] = {"finite_elements": 2, "scheme": "explicit"}
    found = ns.simulate(oscillator(), x0=START, duration=DURATION, steps=20, method=ns.FESD(**options))
    assert found.status is ns.Status.SOLVED
    monkeypatch.setattr(Tableau, "off_trajectory_stages", property(lambda self: np.zeros(self.stages, bool)))
    found = ns.simulate(oscillator(), x0=START, duration=DURATION, steps=20, method=ns.FESD(**options))
    assert found.status is ns.Status.STEP_FAILED


# Sliding ------------------------------------------------------------------------------------------------------------


def relay() -> ns.PSS:
    """x' = 1/2 - sign(x): from .37 to zero at t = .74, where it slides with theta = (3/4, 1/4)."""
    x = ca.SX.sym("x")
    sign = ns.Modes("sign", flows=[ca.SX(-0.5), ca.SX(1.5)], functions=x, signs=[[1], [-1]])
    return ns.PSS(x=x, modes=sign)


def surface(t: Any) -> Any:
    return 0.25 * np.sin(3 * t)


def pursuit() -> ns.PSS:
    """A relay that follows sin(3 t) / 4; states y and the time t."""
    x = ca.SX.sym("x", 2)
    flows = [ca.vertcat(-1 - 0.3 * x[0], 1), ca.vertcat(1.2, 1)]
    return ns.PSS(x=x, modes=ns.Modes("sign", flows=flows, functions=x[0] - 0.25 * ca.sin(3 * x[1]), signs=[[1], [-1]]))


SCHEMES = ("radau_iia", "radau_i", "lobatto_iiic", "explicit", "gauss_legendre")


def has_sliding(row: Row) -> bool:
    """Lobatto IIIC has two stages at least; the midpoint rule has none at an end."""
    return row[:2] not in (("lobatto_iiic", 1), ("gauss_legendre", 1))


@every_pair(has_sliding, scheme=SCHEMES, stages=[1, 2, 3], mode=["stewart", "step"])
def test_sliding_stays_at_rest(scheme: str, stages: int, mode: str) -> None:
    method = ns.FESD(scheme=scheme, rk_stages=stages, dcs_mode=mode)
    found = ns.simulate(relay(), x0=[0.37], duration=1.0, steps=4, method=method)
    assert found.status is ns.Status.SOLVED
    late = found.t > 0.74 - 1e-9
    assert np.abs(found.t - 0.74).min() < 1e-10
    assert np.abs(found.x[late]).max() < 1e-10
    share = next(values for name, values in found.series.items() if name.startswith(("theta[sign]", "alpha[sign]")))
    np.testing.assert_allclose(share.values[share.t > 0.76], 0.75, rtol=0, atol=1e-8)


@every_pair(has_sliding, scheme=SCHEMES[:-1], stages=[1, 2, 3], mode=["stewart", "step"])
def test_sliding_stays_on_a_moving_surface(scheme: str, stages: int, mode: str) -> None:
    """At the ends of elements exactly, between them as exactly as the polynomials are."""
    method = ns.FESD(scheme=scheme, rk_stages=stages, dcs_mode=mode, error_tolerance=1e-2)
    found = ns.simulate(pursuit(), x0=[0.6, 0.0], duration=1.0, steps=8, method=method)
    assert found.status is ns.Status.SOLVED
    late = found.t > 0.85
    assert late.sum() >= 2
    assert np.abs(found.x[late, 0] - surface(found.t[late])).max() < 1e-10
    assert np.abs(found.x[found.t < 0.3, 0] - surface(found.t[found.t < 0.3])).min() > 0.1
    between = np.linspace(0.88, 1.0, 13)
    assert np.abs(found(between)[:, 0] - surface(between)).max() < 1e-3
    np.testing.assert_allclose(found(1.0), found.final_state, rtol=0, atol=1e-13)


# Step equilibration -------------------------------------------------------------------------------------------------

MODES = ["heuristic_mean", "heuristic_difference", "l2_relaxed", "direct", "linear_complementarity", "none"]


@pytest.mark.parametrize("mode", ["stewart", "step"])
@pytest.mark.parametrize("equilibration", MODES)
def test_every_step_equilibration_solves_the_oscillator(equilibration: str, mode: str) -> None:
    """Steps 1-6 and 8-10 of ten are equal, in step 7 the two elements on the same side of the switch are."""
    method = ns.FESD(finite_elements=3, dcs_mode=mode, step_equilibration=equilibration, error_tolerance=5e-3)
    found = ns.simulate(oscillator(), x0=START, duration=DURATION, steps=10, method=method)
    assert found.status is ns.Status.SOLVED, found.message
    assert np.abs(found.final_state - exact()).max() == pytest.approx(0.06358, abs=0.01)
    h = np.diff(found.t).reshape(10, 3) * 30 / DURATION
    if equilibration != "none":
        np.testing.assert_allclose(np.delete(h, 6, axis=0), 1.0, rtol=0, atol=1e-6)
        assert min(abs(h[6, 0] - h[6, 1]), abs(h[6, 1] - h[6, 2])) < 1e-6
    assert abs(h[6] - 1).max() > 0.05


@pytest.mark.parametrize("mode", ["stewart", "step"])
@pytest.mark.parametrize("steps", [2, 3, 5])
def test_linear_complementarity_finds_switches_anywhere(steps: int, mode: str) -> None:
    """x' = -sign(x) from 1.3: in three steps the switch lies in the last 5 % of the second one."""
    x = ca.SX.sym("x")
    sign = ns.Modes("sign", flows=[ca.SX(-1), ca.SX(1)], functions=x, signs=[[1], [-1]])
    method = ns.FESD(finite_elements=3, dcs_mode=mode, step_equilibration="linear_complementarity")
    found = ns.simulate(ns.PSS(x=x, modes=sign), x0=[1.3], duration=2.0, steps=steps, method=method)
    assert found.status is ns.Status.SOLVED, found.message
    assert np.abs(found.t - 1.3).min() < 1e-10
    assert np.abs(found.x[:, 0] - np.maximum(1.3 - found.t, 0.0)).max() < 1e-10
