"""Auto, ActiveSet and Homotopy on small programs from the literature, from bad starts; judged without the library."""

from __future__ import annotations

import time
from dataclasses import replace

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.errors import OptionError, TranscriptionError
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.status import Stationarity, Status
from tests.mpcc import literature

STRATEGIES = {
    "auto": ns.Auto(),
    "active_set": ns.ActiveSet(),
    "homotopy": ns.Homotopy(),
    "elastic": ns.Homotopy(steering="l_inf"),
}
FEASIBLE = [case for case in literature.CASES if case.feasible]


def residuals(mpcc: MPCC, w: np.ndarray, p: np.ndarray) -> tuple[float, float]:
    """Infeasibility and complementarity by plain numpy."""
    g, G, H = (np.array(v).reshape(-1) for v in ca.Function("f", [mpcc.w, mpcc.p], [mpcc.g, mpcc.G, mpcc.H])(w, p))
    outside = [mpcc.lbw - w, w - mpcc.ubw, mpcc.lbg - g, g - mpcc.ubg, -G, -H]
    products = np.abs(G * H) / np.maximum(1.0, np.maximum(np.abs(G), np.abs(H)))
    return max(float(part.max(initial=0.0)) for part in outside), float(products.max(initial=0.0))


@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("case", FEASIBLE, ids=repr)
def test_known_solutions_from_bad_starts(case: literature.Case, name: str) -> None:
    for start in case.starts:
        result = ns.solve_mpcc(case.mpcc, STRATEGIES[name], w0=start)
        assert result.status is Status.SOLVED, start
        infeasibility, complementarity = residuals(case.mpcc, result.w, result.p)
        assert infeasibility <= 1e-6, start
        assert complementarity <= 1e-7, start
        reached = [point for point in case.solutions if _same(case, point, result)]
        assert reached, (start, result.w, result.objective)
        if (
            case.name != "no_multipliers"
        ):  # its solution has no multipliers, points at a distance of 1e-6 have huge ones
            assert result.stationarity in {point.kind for point in reached}, start


def _same(case: literature.Case, point: literature.Point, result: ns.MPCCResult) -> bool:
    near = not case.unique or np.abs(np.subtract(point.w, result.w)).max() <= 1e-3
    return near and abs(point.objective - result.objective) <= 1e-5 * max(1.0, abs(point.objective))


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_infeasible_one_is_reported(name: str) -> None:
    case = literature.case("infeasible")
    for start in case.starts:
        result = ns.solve_mpcc(case.mpcc, STRATEGIES[name], w0=start)
        assert not result.success
        assert result.stationarity is Stationarity.UNKNOWN
        assert residuals(case.mpcc, result.w, result.p)[1] > 1e-2
        if name == "auto":
            assert result.status is Status.INFEASIBLE


def corners() -> MPCC:
    """Two pairs; from the corner where x1 and x2 are zero the objective descends along both other sides."""
    w = ca.SX.sym("w", 4)
    objective = (w[0] - 1) ** 2 + (w[1] - 0.2) ** 2 + (w[2] - 1) ** 2 + (w[3] - 0.2) ** 2
    return MPCC.of_pairs(w=w, G=w[:2:1], H=w[2:], objective=objective)


def test_branches_are_switched_until_b_stationary() -> None:
    mpcc = corners_with_biactive_start()
    staying, moving = (
        ns.solve_mpcc(mpcc, ns.ActiveSet(max_switches=n, homotopy=ns.Homotopy(finish_threshold=1e6, finish_loss=1e6)))
        for n in (0, 10)
    )
    assert staying.success
    assert staying.stationarity not in (Stationarity.S, Stationarity.B)
    assert moving.stationarity in (Stationarity.S, Stationarity.B)
    assert moving.objective < staying.objective - 0.1
    assert any(record.label == "branch" for record in moving.log)


def corners_with_biactive_start() -> MPCC:
    """min (x - 1)^2 + (y - 1)^2 + 10 (z - x - y)^2 ... with x held at zero by its branch: x = 0, y = 0 through z <= 0."""
    x = ca.SX.sym("x", 2)
    # On the branch x = 0 the constraint y <= 0 holds y at zero, too; on the other one x may grow.
    return MPCC.of_pairs(
        w=x, G=x[0], H=x[1], g=x[1], lbg=-np.inf, ubg=0.0, objective=(x[0] - 1) ** 2 + x[1], w0=[0.0, 0.5]
    )


@pytest.mark.parametrize("draw", range(12))
def test_random_starts_and_scalings_never_fool_anybody(draw: int) -> None:
    random = np.random.default_rng(draw)
    for case in literature.CASES:
        m = case.mpcc
        scales = 10 ** random.uniform(-2, 2, (2, m.G.numel()))
        scaled = replace(
            m, G=m.G * ca.DM(scales[0]), H=m.H * ca.DM(scales[1]), G_variable=_none(m), H_variable=_none(m)
        )
        start = random.normal(0, 10, m.w0.size)
        result = ns.solve_mpcc(scaled, ns.Auto(restarts=1), w0=start, time_limit=20.0)
        infeasibility, complementarity = residuals(scaled, result.w, result.p)
        assert not result.success or (infeasibility <= 1e-6 and complementarity <= 1e-7), case
        assert not (result.success and not case.feasible), case


def _none(m: MPCC) -> np.ndarray:
    return np.full(m.G.numel(), -1)


def large(pairs: int = 400) -> MPCC:
    """Many pairs coupled by dense quadratic equations: slow on purpose."""
    x, y = ca.SX.sym("x", pairs), ca.SX.sym("y", pairs)
    matrix = ca.DM(np.random.default_rng(0).normal(size=(40, pairs)))
    rows = ca.mtimes(matrix, x**2) - ca.mtimes(matrix, y) + ca.sin(ca.mtimes(matrix, x * y + x))
    objective = ca.sumsqr(x - 1) + ca.sumsqr(y - 1) + ca.sumsqr(ca.mtimes(matrix, x))
    return MPCC.of_pairs(w=ca.vertcat(x, y), G=x, H=y, g=rows, objective=objective, w0=0.5, lbw=-10.0, ubw=10.0)


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_time_limit_is_kept(name: str) -> None:
    started = time.monotonic()
    result = ns.solve_mpcc(large(), STRATEGIES[name], time_limit=0.3)
    assert time.monotonic() - started < 0.3 + 10.0  # building included; the benchmark measures the rest
    assert result.status is Status.TIME_LIMIT
    assert np.isfinite(result.w).all()
    assert not np.array_equal(result.w, np.full(800, 0.5))


def test_the_same_seed_gives_the_same_result() -> None:
    mpcc = literature.case("infeasible").mpcc
    one, two, other = (ns.solve_mpcc(mpcc, ns.Auto(seed=seed, restarts=2)) for seed in (3, 3, 4))
    assert [r.objective for r in one.log] == [r.objective for r in two.log]
    assert [r.objective for r in one.log] != [r.objective for r in other.log]


def test_a_callback_stops_every_strategy() -> None:
    mpcc = literature.case("two_corners").mpcc
    for name, strategy in STRATEGIES.items():
        result = ns.solve_mpcc(mpcc, strategy, callback=lambda state: ns.Stop)
        assert result.status in (Status.STOPPED, Status.SOLVED), name
        assert len(result.log) == 1, name


def test_the_log_is_numbered_and_names_the_attempts() -> None:
    result = ns.solve_mpcc(literature.case("infeasible").mpcc, ns.Auto(restarts=1))
    assert [record.step for record in result.log] == list(range(len(result.log)))
    assert {"elastic", "L-shaped", "stepwise", "direct"} <= {record.label.split(":")[0] for record in result.log}


def test_a_loop_by_hand_does_what_run_does() -> None:
    mpcc = literature.case("scholtes4").mpcc
    for name, strategy in STRATEGIES.items():
        state = strategy.init(mpcc)
        while strategy.terminate(state) is None:
            state = strategy.step(state)
        np.testing.assert_array_equal(state.w, strategy.run(mpcc).w, err_msg=name)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda m: ns.solve_mpcc(m, "auto"), OptionError, "solver: expected Strategy, given str"),
        (lambda m: ns.solve_mpcc("file.json"), OptionError, "mpcc: expected MPCC, given str"),
        (lambda m: ns.solve_mpcc(m, w0=[1.0]), TranscriptionError, "guess: expected 2 numbers, given 1"),
        (lambda m: ns.solve_mpcc(m, w0=[1.0, np.nan]), TranscriptionError, "guess: contains nan at position 1"),
        (lambda m: ns.solve_mpcc(m, p=[1.0]), TranscriptionError, "parameters p: expected 0 numbers"),
        (lambda m: ns.Homotopy(relaxation="scholte"), OptionError, "Did you mean 'scholtes'"),
        (lambda m: ns.Homotopy(relaxation="lin_fukushima", steering="l1"), OptionError, "takes steering 'direct' only"),
        (lambda m: ns.solve_mpcc(m, ns.Auto(ipopt={"tool": 1})), OptionError, "IPOPT refused its options"),
        (lambda m: ns.solve_mpcc(m, ns.Auto(ipopt={"linear_solver": "ma27"})), OptionError, "not installed"),
    ],
)
def test_mistakes_are_errors_at_once(call, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call(literature.case("two_corners").mpcc)
