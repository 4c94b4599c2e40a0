"""The first crossing of guards on a piece of a motion, against SciPy and closed forms."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.polynomial.polynomial import polyfromroots
from scipy.integrate import solve_ivp

from nosnoc_py.motion.crossing import (
    CROSSES,
    NODES,
    NONE,
    UNDECIDED,
    GuardSearch,
    _doubts_by_loops,
    by_polynomial,
    decided,
    doubts,
    root,
)
from tests.motion.searched import first_crossing

pytestmark = pytest.mark.quick

Array = np.ndarray


def scalar(function: Callable[[float], float]) -> Callable[[float], Array]:
    """A function of time as one guard."""
    return lambda t: np.array([function(t)])


@pytest.mark.parametrize("tolerance", [1e-9, 1e-12])
def test_events_of_dop853(tolerance: float) -> None:
    """The first root of two guards on every step is SciPy's event, on the same dense output, to 1e-9 s.

    A pendulum of angle x: x falls through 0, and its rate rises through 0.
    """
    options = {"method": "DOP853", "rtol": tolerance, "atol": tolerance, "dense_output": True}

    def falls(t: float, x: Array) -> float:
        return float(x[0])

    def turns(t: float, x: Array) -> float:
        return float(-x[1])

    falls.direction, turns.direction = -1.0, -1.0  # type: ignore[attr-defined]
    made = solve_ivp(lambda t, x: [x[1], -np.sin(x[0])], (0.0, 20.0), [1.5, 0.0], events=[falls, turns], **options)
    expected = sorted([(t, 0) for t in made.t_events[0]] + [(t, 1) for t in made.t_events[1]])

    def both(piece: Callable[[float], Array], *kept: int) -> Callable[[float], Array]:
        return lambda t: (piece(t) * [1, -1])[list(kept or (0, 1))]

    found = []
    for low, high, piece in zip(made.t[:-1], made.t[1:], made.sol.interpolants, strict=True):
        start = low
        enabled = None
        while (crossing := first_crossing(both(piece), start, high, enabled=enabled)) is not None:
            if crossing.at_once:  # negative since an earlier step
                break
            found.append((crossing.time, crossing.guard))
            start = crossing.time + 1e-6
        # a guard that is negative hides nothing of the other one
        for guard in (0, 1):
            alone = first_crossing(both(piece, guard), low, high)
            if alone is not None and not alone.at_once and all(abs(alone.time - t) > 1e-6 for t, _ in found):
                found.append((alone.time, guard))
    assert len(expected) >= 5
    np.testing.assert_allclose(sorted(found), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("width", [0.1, 0.03, 1e-3, 1e-5])
@pytest.mark.parametrize("middle", [0.11, 0.5, 0.87])
def test_a_dip_between_samples(width: float, middle: float) -> None:
    """Two roots closer to each other than a tenth of the step: the first one is found, to 1e-12."""
    low, high = middle - 0.5 * width, middle + 0.5 * width
    values = scalar(lambda t: (t - low) * (t - high))
    found = first_crossing(values, 0.0, 1.0, noise=1e-14)
    assert found is not None
    assert not found.at_once
    assert found.time == pytest.approx(low, rel=0, abs=1e-10)
    rates = scalar(lambda t: 2.0 * (t - middle))
    found = first_crossing(values, 0.0, 1.0, noise=1e-14, rates=rates)
    assert found is not None
    assert found.time == pytest.approx(low, rel=0, abs=1e-10)


@pytest.mark.parametrize("middle", [0.11, 0.5, 0.87])
def test_a_tangential_touch_is_no_root(middle: float) -> None:
    """(t - m)^2 touches zero: no crossing; a distance is reported to touch; 1e-9 above zero there is nothing at all."""
    touch = scalar(lambda t: (t - middle) ** 2)
    above = scalar(lambda t: (t - middle) ** 2 + 1e-9)
    rates = scalar(lambda t: 2.0 * (t - middle))
    assert first_crossing(touch, 0.0, 1.0, noise=1e-11) is None
    assert first_crossing(above, 0.0, 1.0, noise=1e-11) is None
    found = first_crossing(touch, 0.0, 1.0, noise=1e-11, rates=rates, touching=1e-10)
    assert found is not None
    assert found.touches
    assert found.time == pytest.approx(middle, rel=0, abs=1e-9)
    assert first_crossing(above, 0.0, 1.0, noise=1e-11, rates=rates, touching=1e-10) is None


@pytest.mark.parametrize(("periods", "known"), [(20, True), (3, True), (3, False)])
def test_what_samples_miss(periods: int, known: bool) -> None:
    """Waves dip below zero once in every period: the first root of 0.99 + cos(w t) is found; 1.01 + cos(w t) has none.

    Eight samples of twenty periods tell nothing; only rates, which do not fit to them, ask for more samples.
    """
    w = 2.0 * np.pi * periods
    rates = scalar(lambda t: -w * np.sin(w * t)) if known else None
    found = first_crossing(scalar(lambda t: 0.99 + np.cos(w * t)), 0.0, 1.0, noise=1e-12, rates=rates)
    assert found is not None
    assert found.time == pytest.approx(np.arccos(-0.99) / w, rel=0, abs=1e-9)
    assert first_crossing(scalar(lambda t: 1.01 + np.cos(w * t)), 0.0, 1.0, noise=1e-12, rates=rates) is None


def test_the_earlier_guard_is_first() -> None:
    """Of roots at 0.500 and 0.501 the earlier one, whatever the order of the guards."""
    for first, second in ((0.5, 0.501), (0.501, 0.5)):

        def pair(t: float, times: tuple[float, float] = (first, second)) -> Array:
            return np.array(times) - t

        found = first_crossing(pair, 0.0, 1.0)
        assert found is not None
        assert found.guard == int(second < first)
        assert found.time == pytest.approx(0.5, rel=0, abs=1e-15)


def test_enabled_guards_rise_first() -> None:
    """A guard that is zero at the beginning.

    1e-3 t - t^2 comes back at 1e-3 if it is enabled, and else fails at once.
    """
    hop = scalar(lambda t: 1e-3 * t - t * t)
    found = first_crossing(hop, 0.0, 1.0, enabled=np.array([True]))
    assert found is not None
    assert found.time == pytest.approx(1e-3, rel=1e-12)
    found = first_crossing(hop, 0.0, 1.0, enabled=np.array([False]))
    assert found is not None
    assert found.at_once
    found = first_crossing(scalar(lambda t: -t), 0.0, 1.0, enabled=np.array([True]))
    assert found is not None
    assert found.at_once


def test_guards_that_are_no_numbers() -> None:
    """Infinite in the whole step: without a meaning; not a number from 0.3 on: lost, to the last halving."""
    assert first_crossing(scalar(lambda t: np.inf), 0.0, 1.0) is None
    found = first_crossing(scalar(lambda t: 1.0 if t < 0.3 else np.nan), 0.0, 1.0)
    assert found is not None
    assert found.lost
    assert found.low <= 0.3 <= found.low + 2.0**-9


def test_roots() -> None:
    """Roots to rounding, at zero and at an end, too."""
    assert root(lambda t: np.cos(t), 0.0, 2.0) == pytest.approx(0.5 * np.pi, rel=1e-15)
    assert root(lambda t: t, 0.0, 1.0) == 0.0
    assert abs(root(lambda t: t**3, -1.0, 2.0)) < 1e-12
    with pytest.raises(ValueError, match="different signs"):
        root(lambda t: t + 1.0, 0.0, 1.0)


def test_a_distance_without_a_rate_where_it_is_zero() -> None:
    """|t - 1|, whose rate jumps from -1 to 1 and is no number close to 1: a touch there, and no error of SciPy."""

    def rate(t: float) -> float:
        return float("nan") if abs(t - 1.0) < 1e-3 else np.sign(t - 1.0)

    touch = first_crossing(scalar(lambda t: abs(t - 1.0)), 0.0, 1.9, rates=scalar(rate), touching=1e-2)
    assert touch is not None
    assert touch.touches
    assert touch.time == pytest.approx(1.0, rel=0, abs=1e-3)
    assert root(rate, 0.0, 1.7) == pytest.approx(1.0, rel=0, abs=1e-3)


def test_a_flight_below_the_noise_ends() -> None:
    """A distance rises by 5e-18 and falls by less than the noise 1e-15 until the end of the step: its rates tell."""

    def evaluate(t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return (1e-8 * t - 5.0 * t**2)[:, None], (1e-8 - 10.0 * t)[:, None]

    t = 3e-9 * NODES
    found = GuardSearch(evaluate=evaluate, noise=np.array([1e-15]), slow=1e-9).first(t, *evaluate(t), np.array([True]))
    assert found is not None
    assert not found.at_once
    assert found.time == pytest.approx(2e-9, rel=1e-6)
    # Rates that are none tell nothing.
    assert (
        GuardSearch(evaluate=evaluate, noise=np.array([1e-15]), slow=1e-7).first(t, *evaluate(t), np.array([True]))
        is None
    )


@pytest.mark.parametrize("bottom", [0.008, 0.02, 0.5, 0.992])
def test_a_touch_close_to_an_end_of_the_piece(bottom: float) -> None:
    """A parabola that touches zero, so close to an end that the samples rise, or fall, all the way."""
    found = first_crossing(
        lambda t: np.array([(t - bottom) ** 2]),
        0.0,
        1.0,
        rates=lambda t: np.array([2.0 * (t - bottom)]),
        touching=1e-9,
    )
    assert found is not None
    assert found.touches
    assert found.time == pytest.approx(bottom, abs=1e-9)


def test_a_rise_that_rounding_hides_ends_where_the_rate_says() -> None:
    """A gap that starts 4e-17 below zero with 1.7e-7 and falls with 1000: it is back after 3.4e-10, not at once."""

    def evaluate(t: Array) -> tuple[Array, Array]:
        return (-4e-17 + 1.7e-7 * t - 500.0 * t**2)[:, None], (1.7e-7 - 1000.0 * t)[:, None]

    t = 1.8e-6 * NODES
    search = GuardSearch(evaluate=evaluate, noise=np.array([1e-11]), slow=1e-10)
    found = search.first(t, *evaluate(t), np.array([True]))
    assert found is not None
    assert not found.at_once
    assert found.time == pytest.approx(3.4e-10, rel=1e-6)


def test_pieces_that_are_clear_are_so_by_loops() -> None:
    """The kernel's copy of the test, on random polynomials, some of them infinite or no numbers."""
    rng, answers = np.random.default_rng(0), []
    powers = NODES[:, None] ** np.arange(4)
    for _ in range(400):
        terms = rng.choice([0.01, 0.3, 1.0]) * rng.normal(size=(4, 3))
        terms[0] += rng.uniform(0.0, 2.0, 3)
        values, slopes = powers @ terms, powers[:, :3] @ (np.arange(1, 4)[:, None] * terms[1:, :2])
        if rng.random() < 0.5:
            values[:, 2] = np.inf
        if rng.random() < 0.1:
            values[rng.integers(8), rng.integers(3)] = rng.choice([np.nan, np.inf, 1.0])
        with np.errstate(invalid="ignore"):
            pair = [test(values, slopes, 2, 1.0, 1e-3) for test in (doubts, _doubts_by_loops)]
        assert (pair[0] == pair[1]).all()
        answers.append(not pair[0].any())
    assert 40 < sum(answers) < 360


def test_simple_pieces_are_decided_as_by_a_search() -> None:
    """Random polynomials of degree 4 with rates: the same guard, the same time to 1e-12; the rest is left open."""
    rng, answers = np.random.default_rng(1), []
    powers = np.arange(5)
    for _ in range(400):
        terms = rng.normal(size=(5, 2))
        terms[0] = rng.choice([0.0, 0.3, 2.0], 2)
        if rng.random() < 0.2:  # a dip between two samples, and a change of the sign later
            dip = rng.uniform(0.1, 0.7)
            terms[:, 0] = np.append(-polyfromroots([dip, dip + 0.004, rng.uniform(0.8, 1.0)]), 0.0)

        def evaluate(t: Array, terms: Array = terms) -> tuple[Array, Array]:
            steep = t[:, None] ** np.maximum(powers - 1, 0) * powers
            return t[:, None] ** powers @ terms, steep @ terms[:, :1]

        values, rates = evaluate(NODES)
        noise, enabled = np.array([1e-11, 1e-9]), np.array([True, True])
        doubtful = doubts(values, rates, 1, 1.0, 1e-9)
        answer, guard, before, after = decided(doubtful, values, rates, noise, 1, 1.0, 1e-9, 1e-9, 1e-10)
        answers.append(answer)
        search = GuardSearch(evaluate=evaluate, noise=noise, touching=1e-9, slow=1e-9, defect=1e-10)
        found = search.first(NODES, values, rates, enabled)
        if answer == NONE:
            assert found is None
        if answer == CROSSES:
            assert found is not None
            assert found.guard == guard
            assert by_polynomial(values[:, guard].copy(), NODES, before, after)[1] == pytest.approx(
                found.time, abs=1e-12
            )
    assert min(answers.count(answer) for answer in (NONE, CROSSES, UNDECIDED)) > 30


def test_errors_of_an_integrator_are_no_waves() -> None:
    """A distance that leaves zero, and rates that belong to it but for 1e-4: no piece is halved for that."""
    calls = []

    def evaluate(t: Array) -> tuple[Array, Array]:
        calls.append(t.size)
        return (0.5 * t**2)[:, None], (t + 1e-4 * np.cos(5.0 * t))[:, None]

    t = 0.1 * NODES
    for defect, halves in ((0.0, True), (1e-4, False)):
        calls.clear()
        samples = evaluate(t)
        search = GuardSearch(evaluate=evaluate, noise=np.array([1e-11]), slow=1e-9, defect=defect)
        assert search.first(t, *samples, np.array([True])) is None
        assert (len(calls) > 10) == halves
    # a wave that the samples miss is larger
    waves = 16.0 * np.pi

    def wave(t: Array) -> tuple[Array, Array]:
        return (0.01 + t + 0.2 * np.sin(waves * t))[:, None], (1.0 + 0.2 * waves * np.cos(waves * t))[:, None]

    search = GuardSearch(evaluate=wave, noise=np.array([1e-11]), defect=1e-4)
    found = search.first(NODES, *wave(NODES), np.array([True]))
    assert found is not None
    assert found.time == pytest.approx(root(lambda s: float(wave(np.array([s]))[0][0, 0]), 0.0625, 0.09), abs=1e-12)
