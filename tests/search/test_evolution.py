"""CMA-ES of the search on functions with known minima."""

import numpy as np
import pytest

from nosnoc_py.search.evolution import CONVERGED, CovarianceAdaptation, folded


def rosenbrock(x: np.ndarray) -> float:
    return float((100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2).sum())


def ellipsoid(x: np.ndarray) -> float:
    """Axes differ by a factor of 100 and are turned, so that no coordinate is one of them."""
    basis = np.linalg.qr(np.random.default_rng(1).standard_normal((x.size, x.size)))[0]
    return float((np.logspace(0.0, 4.0, x.size) * (basis @ x) ** 2).sum())


def evaluations(function, start, seed, target=1e-8, most=20000) -> int:
    """Number of evaluations until a sample is below the target."""
    strategy, count = CovarianceAdaptation(np.array(start), 0.5, np.random.default_rng(seed)), 0
    while count < most:
        samples = strategy.ask()
        values = np.array([function(x) for x in samples])
        count += values.size
        if values.min() < target:
            break
        strategy.tell(samples, values)
    return count


# Evaluations by the package cma 4.5 from the same starts, medians of seven seeds. Its negative weights save a quarter
# on the ellipsoid.
@pytest.mark.parametrize(
    ("function", "start", "usual"),
    [(rosenbrock, [0.0] * 4, 1328), (ellipsoid, [1.0] * 5, 1104), (lambda x: float(x @ x), [1.0] * 10, 1310)],
    ids=["rosenbrock", "ellipsoid", "sphere"],
)
def test_minima_after_the_usual_number_of_evaluations(function, start, usual):
    assert np.median([evaluations(function, start, seed) for seed in range(7)]) < 1.4 * usual


def test_only_the_order_of_values_counts():
    one, other = (CovarianceAdaptation(np.full(3, 0.5), 0.3, np.random.default_rng(0)) for _ in range(2))
    for _ in range(5):
        samples = one.ask()
        assert np.array_equal(samples, other.ask())
        values = np.array([ellipsoid(x) for x in samples])
        one.tell(samples, values)
        other.tell(samples, np.where(values > np.median(values), np.inf, values**3))
    assert np.array_equal(one.mean, other.mean)


def test_a_run_ends_where_samples_hardly_differ():
    strategy = CovarianceAdaptation(np.full(2, 0.5), 0.3, np.random.default_rng(0))
    assert not strategy.converged
    for _ in range(60):
        samples = strategy.ask()
        strategy.tell(samples, np.array([float(((x - 0.4) ** 2).sum()) for x in samples]))
    assert strategy.converged
    assert strategy.mean == pytest.approx([0.4, 0.4], abs=CONVERGED)


def test_folding_keeps_small_steps():
    y = np.linspace(-3.0, 3.0, 601)
    assert (folded(y) >= 0.0).all()
    assert (folded(y) <= 1.0).all()
    assert np.abs(np.diff(folded(y))) == pytest.approx(np.full(600, 0.01), abs=1e-12)
    assert folded(np.array([0.3])) == pytest.approx([0.3], abs=1e-15)
