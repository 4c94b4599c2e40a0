"""Every strategy through `solve_mpcc`: known solutions from bad starts, honest statuses, limits, mistakes, the log."""

import itertools
import time
from dataclasses import replace

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.mpcc.interior import InteriorPoint
from nosnoc_py.mpcc.ipopt import Ipopt
from nosnoc_py.mpcc.lpec import LPECResult
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.status import Stationarity, Status
from tests.mpcc import literature
from tests.mpcc.judge import residuals
from tests.pairwise import every_value, slow_but

SOLVERS = {"auto": ns.Auto(), "active_set": ns.ActiveSet(), "homotopy": ns.Homotopy()}
FEASIBLE = [case for case in literature.CASES if case.feasible]
every_solver = pytest.mark.parametrize("solver", SOLVERS.values(), ids=SOLVERS)


def checked(result):
    """The result's residuals are those found by hand, and success is what they say."""
    infeasibility, complementarity = residuals(result.mpcc, result.w, result.p)
    assert result.infeasibility == pytest.approx(infeasibility, rel=1e-9, abs=1e-15)
    assert result.complementarity == pytest.approx(complementarity, rel=1e-9, abs=1e-15)
    if result.success:
        assert max(infeasibility, complementarity) <= 1e-8
    return result


# Known solutions ----------------------------------------------------------------------------------------------------

# Where curvature alone holds a weakly active variable an interior-point method ends sqrt(1e-9) from it; where there are
# no multipliers an infeasibility of 1e-11 is worth 4e-6 in the objective.
DISTANCE = 4e-5
OBJECTIVE = {True: 1e-8, False: 1e-5}


@every_value(case=[case.name for case in FEASIBLE], solver=SOLVERS)
def test_literature_from_bad_starts(case, solver):
    case, solver = literature.case(case), SOLVERS[solver]
    for start in case.starts:
        result = checked(ns.solve_mpcc(case.mpcc, solver, w0=start))
        assert result.success
        found = [
            point
            for point in case.solutions
            if abs(result.objective - point.objective) <= OBJECTIVE[case.bounded] * max(1.0, abs(point.objective))
            and (not case.unique or np.abs(result.w - point.w).max() <= DISTANCE)
        ]
        assert len(found) >= 1, (start, result.w)
        if result.stationarity not in {point.kind for point in found}:
            # No multipliers at the point itself; at one that is feasible to 1e-11 they exist and are huge.
            assert case.name == "no_multipliers"
            assert result.stationarity is Stationarity.S
            assert np.abs(result.certificate.multipliers.g).max() > 1e4
        if result.stationarity is Stationarity.S:
            assert result.certificate.residual <= 1e-4


@every_solver
@pytest.mark.parametrize("start", literature.case("infeasible").starts)
def test_an_infeasible_program_is_not_solved(solver, start):
    result = checked(ns.solve_mpcc(literature.case("infeasible").mpcc, solver, w0=start))
    assert result.status is Status.INFEASIBLE  # proved, also where elastic slacks make every relaxation feasible
    assert result.message.startswith("proved by 3 linear programs: every branch leaves a violation of at least 0.5")
    assert "G[0]" in result.message
    assert result.message in repr(result)
    assert max(result.infeasibility, result.complementarity) >= 0.2
    assert result.stationarity is Stationarity.UNKNOWN
    assert result.worst[0].value == max(result.infeasibility, result.complementarity)
    with pytest.raises(ns.SolverError, match=str(result.status)):
        result.raise_for_status()


@pytest.mark.parametrize("seed", slow_but(range(12), range(30)))
def test_random_scales_and_starts_do_not_fool_anyone(seed):
    """G and H times 10^[-2, 2]: other names for the same pairs. Solved means solved, whatever else happens."""
    random = np.random.default_rng(seed)
    case = literature.CASES[seed % len(literature.CASES)]
    mpcc, n = case.mpcc, case.mpcc.G.numel()
    scales = 10.0 ** random.uniform(-2, 2, (2, n))
    scaled = replace(mpcc, G=ca.DM(scales[0]) * mpcc.G, H=ca.DM(scales[1]) * mpcc.H)
    for solver in SOLVERS.values():
        start = random.normal(size=mpcc.w0.size) * 10.0 ** random.uniform(-2, 2)
        result = checked(ns.solve_mpcc(scaled, solver, w0=start, time_limit=600))
        assert result.status is not Status.TIME_LIMIT
        assert case.feasible or not result.success
        if isinstance(solver, ns.Auto) and case.feasible:
            assert result.success
            if result.stationarity in (Stationarity.S, Stationarity.B) and case.bounded:
                values = [point.objective for point in case.solutions]
                assert min(abs(result.objective - value) / max(1.0, abs(value)) for value in values) <= 1e-5


# Limits -------------------------------------------------------------------------------------------------------------


def slow(pairs=1500):
    """Coupled in a ring by sines and infeasible (x y = 0 everywhere, but the sum is 1): no strategy ends early."""
    w = ca.SX.sym("w", 2 * pairs)
    x, y = w[:pairs], w[pairs:]
    ring = ca.vertcat(y[1:], y[0])
    return MPCC.of_pairs(
        w=w,
        G=x,
        H=y,
        objective=ca.sum1(ca.sin(3 * x * ring)) + ca.sumsqr(x - 1) + ca.sumsqr(y - 1),
        g=ca.vertcat(x * ring + ca.cos(x + ring), ca.sum1(x * y)),
        lbg=np.append(np.full(pairs, 0.9), 1.0),
        ubg=np.inf,
        w0=0.3,
    )


@pytest.fixture(scope="module")
def large():
    return slow()


@every_solver
@pytest.mark.parametrize("as_option", [True, False])
def test_the_time_limit_holds(solver, as_option):
    """Every step takes 0.15 s, so that 0.2 s are over after two, whatever machine this is."""
    mpcc, options = literature.case("infeasible").mpcc, {"callback": lambda state: time.sleep(0.15)}
    if as_option:
        result = ns.solve_mpcc(mpcc, solver.replace(time_limit=0.2), **options)
    else:
        result = ns.solve_mpcc(mpcc, solver, time_limit=0.2, **options)
    assert result.status is Status.TIME_LIMIT
    assert 1 <= len(result.log) <= 2
    checked(result)
    assert np.isfinite(result.w).all()
    assert min(abs(record.objective - result.objective) for record in result.log) == 0.0


@pytest.mark.parametrize("solver", slow_but(["homotopy"], SOLVERS))
def test_the_time_limit_holds_within_an_nlp(large, solver, monkeypatch):
    """A clock that moves on by 1 s whenever it is read, which IPOPT does once per iteration."""
    clock = itertools.count()
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    short, long = (ns.solve_mpcc(large, SOLVERS[solver], time_limit=seconds) for seconds in (5.0, 15.0))
    for result, most in ((short, 5), (long, 15)):
        assert result.status is Status.TIME_LIMIT
        assert result.iterations <= most
    assert long.iterations > short.iterations


@every_solver
def test_no_time_at_all(solver):
    case = literature.case("bard1")
    result = ns.solve_mpcc(case.mpcc, solver, w0=case.starts[1], time_limit=1e-9)
    assert result.status is Status.TIME_LIMIT
    assert result.iterations <= 1


@every_solver
@pytest.mark.parametrize("answer", [ns.Stop, ns.Stop()])
def test_a_callback_sees_every_step_and_stops(solver, answer):
    case, seen = literature.case("bard1"), []

    def callback(state):
        seen.append(state)
        return answer if len(seen) == 2 else "go on"

    ended = ns.solve_mpcc(case.mpcc, solver, w0=case.starts[0], callback=callback)
    assert len(seen) == 2
    assert ended.status in (Status.STOPPED, Status.SOLVED)  # a stop after success is a success
    np.testing.assert_array_equal(ended.w, seen[-1].w)
    assert ended.log == seen[-1].records
    states = []
    whole = ns.solve_mpcc(case.mpcc, solver, w0=case.starts[0], callback=states.append)
    assert [state.step for state in states] == sorted({state.step for state in states})
    assert states[-1].records == whole.log
    assert whole.success


@every_solver
@pytest.mark.parametrize("at", [1, 2, 3])
def test_ctrl_c_in_a_step_keeps_the_last_iterate(solver, at, monkeypatch):
    calls, seen = [], []

    def interrupting(original):
        def solve(self, *arguments, **named):
            calls.append(1)
            if len(calls) == at:
                raise KeyboardInterrupt
            return original(self, *arguments, **named)

        return solve

    for kind in (Ipopt, InteriorPoint):
        monkeypatch.setattr(kind, "solve", interrupting(kind.solve))
    case = literature.case("infeasible")
    result = checked(ns.solve_mpcc(case.mpcc, solver, w0=case.starts[1], callback=seen.append))
    assert result.status is Status.INTERRUPTED
    assert len(calls) == at
    assert len(result.log) == at - 1
    expected = seen[at - 2].w if at > 1 else np.array(case.starts[1])
    np.testing.assert_array_equal(result.w, expected)


@pytest.mark.parametrize("solver", [ns.Auto(), ns.ActiveSet()], ids=["auto", "active_set"])
def test_ctrl_c_in_the_certificate_keeps_the_point(solver, monkeypatch):
    def interrupted(*arguments, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr("nosnoc_py.mpcc.active_set.certificate_of", interrupted)
    case = literature.case("kth2")
    result = checked(ns.solve_mpcc(case.mpcc, solver, w0=case.starts[1]))
    assert result.status is Status.INTERRUPTED
    np.testing.assert_allclose(result.w, [0, 1], atol=1e-6)


@every_solver
def test_ctrl_c_in_a_callback(solver):
    seen = []

    def callback(state):
        seen.append(state)
        raise KeyboardInterrupt

    case = literature.case("bard1")
    result = ns.solve_mpcc(case.mpcc, solver, w0=case.starts[0], callback=callback)
    assert result.status is Status.INTERRUPTED
    np.testing.assert_array_equal(result.w, seen[0].w)


# Arguments ----------------------------------------------------------------------------------------------------------


def tracking():
    """x follows p[0] while y wants p[1]: whichever costs less is zero."""
    w, p = ca.SX.sym("w", 2), ca.SX.sym("p", 2)
    return MPCC.of_pairs(w=w, p=p, G=w[0], H=w[1], objective=ca.sumsqr(w - p), p0=[3.0, 1.0], w0=0.1)


@every_solver
def test_other_parameters_move_the_solution(solver):
    mpcc = tracking()
    for p, expected in ((None, [3, 0]), ([1.0, 4.0], [0, 4]), ([2.0, -1.0], [2, 0])):
        result = checked(ns.solve_mpcc(mpcc, solver, p=p))
        assert result.success
        np.testing.assert_allclose(result.w, expected, atol=1e-6)
        np.testing.assert_array_equal(result.p, mpcc.p0 if p is None else p)
    solvers = solver.build(mpcc)
    for p, expected in (([3.0, 1.0], [3, 0]), ([1.0, 4.0], [0, 4])):
        state = solver.run(mpcc, p=np.array(p), solvers=solvers)
        np.testing.assert_allclose(state.w, expected, atol=1e-6)


def test_the_default_is_auto():
    case = literature.case("kth3")
    default, named = (ns.solve_mpcc(case.mpcc, *solver) for solver in ((), (ns.Auto(),)))
    np.testing.assert_allclose(default.w, named.w, rtol=0, atol=1e-9)
    assert default.solver == repr(ns.Auto())


PLAIN = literature.case("two_corners").mpcc


@every_solver
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"w0": [1.0]}, "guess: expected 2 numbers, given 1"),
        ({"w0": [1.0, 2.0, 3.0]}, "guess: expected 2 numbers, given 3"),
        ({"w0": [1.0, np.nan]}, "guess: contains nan at position 1"),
        ({"w0": [np.inf, 1.0]}, "guess: contains inf at position 0"),
        ({"w0": "zero"}, "guess: expected 2 numbers, given 'zero'"),
        ({"p": [1.0]}, "parameters p: expected 0 numbers, given 1"),
        ({"p": np.nan}, "parameters p: expected 0 numbers, given 1"),
    ],
)
def test_numbers_that_do_not_fit(solver, given, message):
    with pytest.raises(ns.TranscriptionError, match=message):
        ns.solve_mpcc(PLAIN, solver, **given)


def test_a_parameter_that_is_no_number():
    with pytest.raises(ns.TranscriptionError, match="parameters p: contains nan at position 0"):
        ns.solve_mpcc(tracking(), p=[np.nan, 1.0])


WRONG_IPOPT = {"max_itre": 3}


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        ("auto", "solver: expected Strategy, given str"),
        (ns.Auto, "solver: given the class Auto; write ns.Auto"),
        (ns.FESDJ(), r"solver: expected Strategy, given FESDJ; .*ns.Homotopy\(...\).*ns.ActiveSet.*ns.Auto"),
        (ns.Homotopy(ipopt=WRONG_IPOPT), "IPOPT refused its options.*max_itre"),
        (ns.ActiveSet(homotopy=ns.Homotopy(ipopt=WRONG_IPOPT)), "IPOPT refused its options.*max_itre"),
        (ns.Auto(ipopt=WRONG_IPOPT), "IPOPT refused its options.*max_itre"),
        (ns.Auto(ipopt={"linear_solver": "ma86"}), "ma86.*MUMPS"),
    ],
)
def test_solvers_that_cannot_work(solver, message):
    with pytest.raises(ns.OptionError, match=message):
        ns.solve_mpcc(PLAIN, solver)


def test_an_mpcc_that_is_none():
    with pytest.raises(ns.OptionError, match="mpcc: expected MPCC, given Auto"):
        ns.solve_mpcc(ns.Auto())


# The log ------------------------------------------------------------------------------------------------------------


@every_solver
@pytest.mark.parametrize("name", ["bard1", "infeasible", "kth2"])
def test_records_are_numbered_and_say_what_was_done(solver, name):
    case = literature.case(name)
    result = ns.solve_mpcc(case.mpcc, solver, w0=case.starts[0])
    assert [record.step for record in result.log] == list(range(len(result.log)))
    words = {"homotopy", "finish", "branch", "certificate"}
    prefixes = {attempt.name for attempt in ns.Auto().attempts(case.mpcc)} | {"relaxed again"}
    for record in result.log:
        label = record.label
        if isinstance(solver, ns.Auto):
            prefix, _, label = label.partition(": ")
            assert prefix in prefixes
        assert label.split()[0] in words
        assert (record.sigma > 0) == (label == "homotopy")
        assert record.wall_seconds >= 0
    assert result.iterations == sum(record.iterations for record in result.log)
    assert sum(record.wall_seconds for record in result.log) <= result.wall_seconds
    assert repr(result).startswith(f"MPCCResult: {result.status}, stationarity {result.stationarity.value}\n")


@every_solver
def test_a_loop_by_hand_is_run(solver):
    mpcc = literature.case("gauvin").mpcc
    state, done = solver.init(mpcc), solver.run(mpcc)
    while (status := solver.terminate(state)) is None:
        before = (state.w.copy(), state.records)
        after = solver.step(state)
        assert np.array_equal(state.w, before[0])  # the state before stays as it was
        assert state.records == before[1]
        state = after
    assert status is done.status is Status.SOLVED
    np.testing.assert_allclose(state.w, done.w, rtol=0, atol=1e-9)


def test_biactive_pairs_are_named():
    result = ns.solve_mpcc(literature.case("kth1").mpcc)
    assert result.biactive == ("G[0] * H[0]",)
    assert result.stationarity is Stationarity.S
    assert ns.solve_mpcc(literature.case("kth2").mpcc).biactive == ()


def test_the_lpec_is_where_the_certificate_of_scholtes4_comes_from(monkeypatch):
    """B but not S: without the LPEC nobody knows."""
    case = literature.case("scholtes4")
    assert ns.solve_mpcc(case.mpcc).stationarity is Stationarity.B
    none = np.zeros(1, bool)
    blind = LPECResult(value=np.nan, d=np.zeros(3), zero=none, status="time limit", limit=0.0)
    monkeypatch.setattr("nosnoc_py.mpcc.stationarity.local_lpec", lambda *arguments, **named: blind)
    result = ns.solve_mpcc(case.mpcc)
    assert result.success
    assert result.certificate.b_stationary is None
    assert result.stationarity not in (Stationarity.S, Stationarity.B)
