"""Auto: the order of its attempts, what it keeps of them, restarts and their seed."""

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.mpcc.active_set import ActiveSet
from nosnoc_py.mpcc.auto import PERTURBATION, Attempt
from nosnoc_py.mpcc.homotopy import Homotopy
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.status import Status
from tests.mpcc import literature
from tests.mpcc.judge import residuals


def infeasible():
    """x, y >= 0.5 and G and H vanish at 0 only: not affine, so that nothing is proved and nothing ends early."""
    x = ca.SX.sym("x", 2)
    return MPCC.of_pairs(w=x, G=ca.sinh(x[0]), H=ca.sinh(x[1]), objective=ca.sum1(x), lbw=0.5)


INFEASIBLE = infeasible()


def saddle_start():
    """x^2 = 1 from x = 0: by symmetry no step leaves x = 0, where the constraint's violation is stationary."""
    w = ca.SX.sym("w", 3)
    return MPCC.of_pairs(w=w, G=w[1], H=w[2], objective=w[1] + (w[2] - 1) ** 2, g=w[0] ** 2 - 1)


@pytest.fixture
def begun(monkeypatch):
    """Starts of all attempts."""
    made, init = [], Homotopy.begin

    def recording(self, fields, sigma):
        made.append(np.array(fields["w"]))
        return init(self, fields, sigma)

    monkeypatch.setattr(Homotopy, "begin", recording)
    return made


def prefixes(result):
    """Attempts in the order of the log, each once."""
    names = [record.label.partition(": ")[0] for record in result.log]
    return [name for k, name in enumerate(names) if k == 0 or name != names[k - 1]]


def feasibility(mpcc):
    """The same program without its objective."""
    return MPCC.of_pairs(w=mpcc.w, G=mpcc.G, H=mpcc.H, g=mpcc.g, lbg=mpcc.lbg, ubg=mpcc.ubg, lbw=mpcc.lbw, ubw=mpcc.ubw)


def test_one_attempt_where_the_first_solves():
    """Without an objective; with one two descents are compared."""
    case = literature.case("kth3")
    result = ns.solve_mpcc(feasibility(case.mpcc))
    assert result.success
    assert prefixes(result) == ["elastic"]
    assert len(result.log) <= 4
    assert prefixes(ns.solve_mpcc(case.mpcc))[:2] == ["relaxed", "elastic"]


def two_optima(shift):
    """(x - 2)^2 + (y - shift)^2 with 0 <= x complementary to y >= 0: optima shift^2 at (2, 0) and 4 at (0, shift)."""
    w = ca.SX.sym("w", 2)
    return MPCC.of_pairs(w=w, G=w[0], H=w[1], objective=(w[0] - 2) ** 2 + (w[1] - shift) ** 2, lbw=0.0)


@pytest.mark.parametrize("start", [[0.0, 1.0], [2.0, 0.0], [0.0, 0.0]])
def test_the_better_optimum_is_found_from_every_start(start):
    for shift in (1.0, 3.0):
        result = ns.solve_mpcc(two_optima(shift), w0=start)
        assert result.success
        assert result.objective == pytest.approx(min(4.0, shift**2), abs=1e-7)


def test_descents_that_disagree_are_followed_by_another_from_the_better_point(monkeypatch):
    """One attempt is held in the worse optimum: one more descent, which does not pay, and no restart."""
    mpcc = two_optima(3.0)
    ways = ns.Auto().attempts(mpcc)
    held = Attempt("held", ActiveSet(homotopy=Homotopy()), point=np.array([2.0, 0.0]))
    monkeypatch.setattr(ns.Auto, "attempts", lambda self, mpcc: (ways[0], held, *ways[1:]))
    seen = ns.solve_mpcc(mpcc)
    assert prefixes(seen) == ["relaxed", "held", "relaxed again"]
    assert seen.objective == pytest.approx(4.0, abs=1e-7)
    # Without the other descents the worse one is what it was: the comparison above can fail.
    held_first = Attempt("held", ActiveSet(homotopy=Homotopy(sigma_0=1e-6)))
    monkeypatch.setattr(ns.Auto, "attempts", lambda self, mpcc: (held_first,))
    assert ns.solve_mpcc(mpcc, w0=[2.0, 0.0]).objective == pytest.approx(9.0, abs=1e-6)


def test_all_attempts_in_order_where_none_does(begun):
    auto = ns.Auto(restarts=2)
    result = ns.solve_mpcc(INFEASIBLE, auto, w0=[1.0, 7.0])
    names = [attempt.name for attempt in auto.attempts(INFEASIBLE)]
    assert len(names) == len(begun)
    assert names[:2] == ["relaxed", "elastic"]
    first = len(names) - 2
    assert len(set(names[:first])) == first
    assert prefixes(result)[:first] == names[:first]
    assert [record.step for record in result.log] == list(range(len(result.log)))
    assert not result.success
    # the given start first, perturbed ones at last
    for k, w in enumerate(begun):
        assert np.array_equal(w, begun[0]) == (k < first)


def test_the_best_of_the_attempts_is_kept():
    result = ns.solve_mpcc(INFEASIBLE)
    infeasibility, complementarity = residuals(INFEASIBLE, result.w)
    final = [max(record.infeasibility, record.complementarity) for record in result.log]
    assert max(infeasibility, complementarity) == pytest.approx(min(final), rel=0.2)
    assert result.status is Status.LOCALLY_INFEASIBLE


def test_a_proof_spares_the_other_attempts():
    result = ns.solve_mpcc(literature.case("infeasible").mpcc)
    assert result.status is Status.INFEASIBLE
    assert prefixes(result) == ["relaxed"]


def test_the_feasible_branch_comes_second(monkeypatch):
    """A homotopy that always fails: the linear programs still find (0, 1, 1) in the only branch that is not empty."""
    w = ca.SX.sym("w", 3)
    x, y, z = ca.vertsplit(w)
    mpcc = MPCC.of_pairs(w=w, G=x, H=y, objective=(y - 2) ** 2 + z, g=ca.vertcat(y - 1, z - y), lbg=0.0, ubg=np.inf)
    monkeypatch.setattr(Homotopy, "_verdict", lambda self, state: Status.NOT_COMPLEMENTARY)
    ways = {"elastic": ns.Homotopy(finish="none", max_iterations=1, sigma_0=1.0, sigma_min=1.0)}
    monkeypatch.setattr(
        ns.Auto, "attempts", lambda self, mpcc: (Attempt("elastic", ActiveSet(homotopy=ways["elastic"])),)
    )
    result = ns.solve_mpcc(mpcc)
    assert result.success
    assert prefixes(result)[:2] == ["elastic", "feasible branch"]
    np.testing.assert_allclose(result.w, [0.0, 1.5, 1.5], atol=1e-6)  # of (y - 2)^2 + y


def test_only_a_restart_leaves_a_start_that_nothing_leaves(begun):
    mpcc = saddle_start()
    stuck = ns.solve_mpcc(mpcc, ns.Auto(restarts=0))
    assert not stuck.success
    assert residuals(mpcc, stuck.w)[0] >= 0.9
    assert all(w[0] == 0.0 for w in begun)
    begun.clear()
    freed = ns.solve_mpcc(mpcc, ns.Auto(restarts=1))
    assert freed.success
    assert abs(freed.w[0]) == pytest.approx(1.0, abs=1e-8)
    np.testing.assert_allclose(freed.w[1:], [0, 1], atol=1e-7)
    assert max(residuals(mpcc, freed.w)) <= 1e-8
    assert begun[-1][0] != 0.0


def test_the_same_seed_gives_the_same_result_and_another_another_start(begun):
    mpcc, starts, found = saddle_start(), [], []
    for seed in (3, 3, 4):
        begun.clear()
        found.append(ns.Auto(restarts=1, seed=seed).run(mpcc).w)
        starts.append(next(w for w in begun if w[0] != 0.0))
    np.testing.assert_allclose(starts[0], starts[1], rtol=1e-15)
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-9)
    assert np.abs(starts[0] - starts[2]).max() > 1e-6


def test_perturbations_have_their_size_and_stay_inside(begun):
    start = np.array([2.0, 0.6])
    ns.solve_mpcc(INFEASIBLE, ns.Auto(restarts=4), w0=start)
    moved = np.array([w for w in begun if not np.array_equal(w, start)])
    assert len(moved) == 4
    assert len(np.unique(moved, axis=0)) == 4
    assert (moved >= INFEASIBLE.lbw).all()
    reach = PERTURBATION * np.maximum(1.0, start)
    assert (np.abs(moved - start) <= reach).all()
    assert np.abs(moved - start).max() >= 0.5 * reach.min()


def test_options_of_ipopt_reach_every_attempt():
    attempts = ns.Auto(ipopt={"max_iter": 7}).attempts(INFEASIBLE)
    assert all(attempt.strategy.homotopy.ipopt["max_iter"] == 7 for attempt in attempts)
    result = ns.solve_mpcc(INFEASIBLE, ns.Auto(ipopt={"max_iter": 7}, restarts=0))
    assert max(record.iterations for record in result.log) <= 7


def test_tolerances_reach_every_attempt():
    auto = ns.Auto(complementarity_tolerance=1e-5, infeasibility_tolerance=1e-4)
    for attempt in auto.attempts(INFEASIBLE):
        assert attempt.strategy.complementarity_tolerance == 1e-5
        assert attempt.strategy.infeasibility_tolerance == 1e-4


def test_every_attempt_is_a_legal_strategy_for_every_case():
    for case in literature.CASES:
        for attempt in ns.Auto().attempts(case.mpcc):
            state = attempt.strategy.init(case.mpcc, case.starts[0])
            assert state.step == 0
            assert isinstance(attempt.strategy, ActiveSet)


def test_a_warm_start_keeps_the_point():
    case = literature.case("kth3")
    auto = ns.Auto()
    for point in case.solutions:
        first, sigma = auto.warm(case.mpcc)
        state = first.run(case.mpcc, np.array(point.w, float), sigma=sigma)
        assert state.status is Status.SOLVED
        np.testing.assert_allclose(state.w, point.w, atol=1e-6)  # also the worse of the two
        assert state.step <= 4


def test_an_attempt_that_cannot_be_evaluated_does_not_end_the_work():
    """The objective is NaN at the start: a status, and the restarts are tried."""
    w = ca.SX.sym("w", 2)
    mpcc = MPCC.of_pairs(w=w, G=w[0], H=w[1], objective=ca.sqrt(w[0] - 10) + w[1] ** 2, lbw=0.0, ubw=5.0, w0=1.0)
    result = ns.solve_mpcc(mpcc, ns.Auto(restarts=1))
    assert result.status is Status.NUMERICAL_ERROR
    assert np.isfinite(result.w).all()
    assert len(prefixes(result)) >= 5
