"""The homotopy on small MPCCs with known solutions, and every way it may end."""

from dataclasses import replace
from itertools import product

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.mpcc.homotopy import Homotopy
from nosnoc_py.mpcc.ipopt import Ipopt
from nosnoc_py.mpcc.layout import At
from nosnoc_py.mpcc.nlp import STEERINGS
from nosnoc_py.mpcc.program import ProgramBuilder
from nosnoc_py.mpcc.relaxations import RELAXATIONS
from nosnoc_py.status import Status
from tests.mpcc import literature
from tests.pairwise import every_value

VARIANTS = [
    (name, steering)
    for name, steering in product(RELAXATIONS, STEERINGS)
    if steering == "direct" or RELAXATIONS[name].elastic
]
PLAIN = {"pairs": lambda w: [(w[0], w[1])]}

# MacMPEC names: (variables, options of `program`, known local solutions and objectives)
PROBLEMS = {
    # Two local minima.
    "two_minima": (
        ["x", "y"],
        dict(PLAIN, objective=lambda w: (w[0] - 1) ** 2 + (w[1] - 1) ** 2, initial=[0.9, 0.2]),
        [([1, 0], 1.0), ([0, 1], 1.0)],
    ),
    # Biactive and S-stationary.
    "kth1": (["x", "y"], dict(PLAIN, objective=lambda w: w[0] + w[1], initial=1.0), [([0, 0], 0.0)]),
    "kth2": (["x", "y"], dict(PLAIN, objective=lambda w: w[0] + (w[1] - 1) ** 2, initial=0.5), [([0, 1], 0.0)]),
    "kth3": (
        ["x", "y"],
        dict(PLAIN, objective=lambda w: 0.5 * (w[0] - 1) ** 2 + (w[1] - 1) ** 2, initial=[0.1, 0.9]),
        [([0, 1], 0.5), ([1, 0], 1.0)],
    ),
    # B-stationary but not S-stationary.
    "ralph1": (
        ["x", "y"],
        {
            "pairs": lambda w: [(w[1], w[1] - w[0])],
            "objective": lambda w: 2 * w[0] - w[1],
            "lower": 0.0,
            "initial": 1.0,
        },
        [([0, 0], 0.0)],
    ),
    "ralph2": (
        ["x", "y"],
        dict(PLAIN, objective=lambda w: w[0] ** 2 + w[1] ** 2 - 4 * w[0] * w[1], initial=1.0),
        [([0, 0], 0.0)],
    ),
    # No multipliers of the smooth program: M- but not S-stationary.
    "scholtes4": (
        ["x", "y", "z"],
        dict(
            PLAIN,
            objective=lambda w: w[0] + w[1] - w[2],
            rows=lambda w: [("r1", 4 * w[0] - w[2], 0, np.inf), ("r2", 4 * w[1] - w[2], 0, np.inf)],
            initial=[0.0, 1.0, 0.0],
        ),
        [([0, 0, 0], 0.0)],
    ),
    # A bilevel program by its lower level's KKT conditions.
    "bard1": (
        ["x", "y", "l1", "l2", "l3"],
        {
            "pairs": lambda w: [
                (3 * w[0] - w[1] - 3, w[2]),
                (-w[0] + 0.5 * w[1] + 4, w[3]),
                (-w[0] - w[1] + 7, w[4]),
            ],
            "objective": lambda w: (w[0] - 5) ** 2 + (2 * w[1] + 1) ** 2,
            "rows": lambda w: [("KKT", 2 * (w[1] - 1) - 1.5 * w[0] + w[2] - 0.5 * w[3] + w[4], 0, 0)],
            "lower": [0, 0, 0, 0, 0],
            "initial": [1, 1, 1, 1, 1],
        },
        # The second one is where the L-shaped set leads; its l2 and l3 = 5.5 + l2 / 2 are not unique.
        [([1, 0, 3.5, 0, 0], 17.0), ([5, 2, 0, np.nan, np.nan], 25.0)],
    ),
}


def two_minima(program, **options):
    names, given, _ = PROBLEMS["two_minima"]
    return program(names, **{**given, **options})


def impossible(program):
    """x, y >= 0 with x + y = -1."""
    return program(["x", "y"], **PLAIN, objective=lambda w: w[0], rows=lambda w: [("budget", w[0] + w[1], -1, -1)])


def patched(monkeypatch, at):
    """Ctrl-C in the NLP number `at`."""
    original, calls = Ipopt.solve, []

    def solve(self, *arguments, **named):
        calls.append(1)
        if len(calls) == at:
            raise KeyboardInterrupt
        return original(self, *arguments, **named)

    monkeypatch.setattr(Ipopt, "solve", solve)


# Known solutions ----------------------------------------------------------------------------------------------------


# In the corner of the L-shaped set the gradient vanishes: a minimum of the penalty that no smaller sigma leaves.
CAUGHT = {("bard1", "kanzow_schwartz", "l_inf")}


@every_value(name=PROBLEMS, variant=VARIANTS)
def test_known_solutions(program, name, variant):
    (names, options, solutions), (relaxation, steering) = PROBLEMS[name], variant
    state = Homotopy(relaxation=relaxation, steering=steering).run(program(names, **options))
    if (name, relaxation, steering) in CAUGHT:
        assert state.status is Status.NOT_COMPLEMENTARY
        assert state.complementarity > 1.0
        return
    assert state.status is Status.SOLVED
    assert state.complementarity <= 1e-8
    assert state.infeasibility <= 1e-8
    distance, objective = min((np.nanmax(np.abs(state.w - w)), value) for w, value in solutions)
    # ralph2: x^2 at its bound 0 without a multiplier; an interior-point method ends at sqrt(tol).
    assert distance <= (1e-5 if name == "ralph2" else 1e-6)
    assert state.values.objective == pytest.approx(objective, abs=1e-6)


@pytest.mark.parametrize(("relaxation", "steering"), VARIANTS)
def test_nominal_values_leave_the_solution_in_the_users_units(program, relaxation, steering):
    """a in millimetres, b in megawatts: (a - 2000)^2 / 1e6 + (b - .001)^2 1e6 on a b = 0."""
    mpcc = program(
        ["a", "b"],
        lambda w: [(w[0], w[1])],
        lambda w: (w[0] / 1e3 - 2) ** 2 + (w[1] * 1e3 - 1) ** 2,
        initial=[1500.0, 1e-4],
        scale=[1e3, 1e-3],
    )
    state = Homotopy(relaxation=relaxation, steering=steering).run(mpcc)
    assert state.status is Status.SOLVED
    np.testing.assert_allclose(state.w, [2000.0, 0.0], rtol=1e-7, atol=1e-9)
    assert state.values.objective == pytest.approx(1.0, abs=1e-7)


def test_without_a_finish_the_last_relaxation_is_reported_as_it_is(program):
    state = Homotopy(finish="none", steering="direct").run(two_minima(program))
    assert state.status is Status.SOLVED
    assert {record.label for record in state.records} == {"homotopy"}
    assert 1e-12 < state.complementarity <= 1e-8
    unfinished = Homotopy(finish="none", steering="direct", sigma_min=1e-4).run(two_minima(program))
    assert unfinished.status is Status.NOT_COMPLEMENTARY  # a point whose last sigma is 1e-4 is not solved
    assert unfinished.complementarity == pytest.approx(1e-4, rel=0.2)


def test_the_objective_contains_no_penalty(program):
    mpcc = two_minima(program, penalty=lambda w: 1e-3 * w[0] + 7.0)
    state = Homotopy().run(mpcc)
    assert state.status is Status.SOLVED
    assert state.values.objective == pytest.approx(1.0, abs=1e-9)  # and no bias of the penalty either
    assert state.values.penalty == pytest.approx(7.0 + 1e-3 * state.w[0])
    assert state.records[-1].label == "finish"


def test_parameters_move_the_solution_of_the_same_solvers(program):
    mpcc = program(["x", "y"], lambda w: [(w[0], w[1])], lambda w: (w[0] - w[2]) ** 2 + w[1], p=[1.0], initial=0.5)
    homotopy = Homotopy()
    solvers = homotopy.build(mpcc)
    for target in (1.0, 3.0):
        state = homotopy.run(mpcc, p=np.array([target]), solvers=solvers)
        assert state.status is Status.SOLVED
        np.testing.assert_allclose(state.w, [target, 0], atol=1e-8)


def test_multipliers_are_those_of_the_rows_in_the_users_units(program):
    """min x^2 with x = 3 has the multiplier -6 (L = f + lambda g)."""
    mpcc = program(
        ["x", "y"], lambda w: [(w[1], 1 + 0 * w[1])], lambda w: w[0] ** 2, rows=lambda w: [("r", w[0], 3, 3)]
    )
    assert Homotopy().run(mpcc).multipliers.g == pytest.approx([-6.0], abs=1e-6)


def test_multipliers_do_not_depend_on_the_scale_of_a_row():
    for scale in (1.0, 100.0):
        builder = ProgramBuilder()
        x = builder.variable("x", At(), ("x",), scale=scale)
        builder.constraint("r", At(), 2 * x, None, 6, 6, scale)
        builder.objective = x**2
        mpcc = builder.build(aggregation="fe_fe", enforce_switched=False)
        assert Homotopy().run(mpcc).multipliers.g == pytest.approx([-3.0], abs=1e-6)


# Failures are statuses ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("relaxation", "steering"), VARIANTS)
def test_an_infeasible_program_ends_infeasible_and_names_the_constraint(program, relaxation, steering):
    state = Homotopy(relaxation=relaxation, steering=steering).run(impossible(program))
    assert state.status is Status.INFEASIBLE
    assert not state.status.success
    assert state.infeasibility >= 0.9
    assert np.isfinite(state.w).all()
    worst = state.solvers.evaluator.worst(state.values)
    assert (worst[0].kind, worst[0].name) == ("equation", "budget")
    assert worst[0].value == pytest.approx(state.infeasibility)


@pytest.mark.parametrize(("relaxation", "steering"), VARIANTS)
def test_complementarity_that_cannot_hold_is_never_solved(program, relaxation, steering):
    """x = y >= 1 and x y = 0."""
    rows = [("equal", lambda w: w[0] - w[1], 0, 0), ("apart", lambda w: w[0] + w[1], 2, np.inf)]
    mpcc = program(
        ["x", "y"],
        **PLAIN,
        objective=lambda w: w[0] ** 2,
        rows=lambda w: [(n, f(w), low, up) for n, f, low, up in rows],
        initial=1.0,
    )
    state = Homotopy(relaxation=relaxation, steering=steering).run(mpcc)
    assert state.status in (Status.INFEASIBLE, Status.NOT_COMPLEMENTARY)
    assert max(state.complementarity, state.infeasibility) > 0.1
    names = {item.name for item in state.solvers.evaluator.worst(state.values)}
    assert names & {"equal", "apart", "G_0 * H_0"}


@pytest.mark.parametrize("where", ["objective", "rows", "pairs"])
def test_a_function_that_is_no_number_is_a_status(program, where):
    def bad(w):
        return ca.sqrt(w[0] - 10)

    parts = {
        "objective": lambda w: (bad(w) if where == "objective" else 0) + w[1] ** 2 + w[0] ** 2,
        "rows": lambda w: [("root", bad(w), 0, np.inf)] if where == "rows" else [],
        "pairs": lambda w: [(bad(w) if where == "pairs" else w[0], w[1])],
    }
    state = Homotopy().run(program(["x", "y"], **parts, lower=0, upper=5, initial=1.0))
    assert state.status is Status.NUMERICAL_ERROR
    assert np.isfinite(state.w).all()
    assert where == "objective" or state.infeasibility == np.inf


def test_one_iteration_is_not_enough(program):
    names, options, _ = PROBLEMS["bard1"]
    state = Homotopy(max_iterations=1).run(program(names, **options))
    assert not state.status.success
    assert state.status in (Status.ITERATION_LIMIT, Status.INFEASIBLE, Status.NOT_COMPLEMENTARY)
    assert state.records[-1].solver_status == "Maximum_Iterations_Exceeded"
    assert all(record.iterations <= 1 for record in state.records if record.label == "homotopy")


def test_small_residuals_without_convergence_are_no_success(program):
    """Every point of this program is feasible and complementary; only the first is not optimal."""
    mpcc = program(["x"], objective=lambda w: (w[0] - 5) ** 4)
    state = Homotopy(ipopt={"max_iter": 0}, finish="none").run(mpcc)
    assert (state.complementarity, state.infeasibility) == (0.0, 0.0)
    assert state.status is Status.ITERATION_LIMIT


@pytest.mark.parametrize("as_option", [True, False])
def test_a_tiny_time_limit_ends_quickly_with_the_last_iterate(program, as_option):
    names, options, _ = PROBLEMS["bard1"]
    homotopy = Homotopy(time_limit=1e-9) if as_option else Homotopy()
    state = homotopy.run(program(names, **options), time_limit=None if as_option else 1e-9)
    assert state.status is Status.TIME_LIMIT
    assert state.step <= 1
    assert sum(record.iterations for record in state.records) <= 1
    assert np.isfinite(state.w).all()


def test_the_clock_stops_an_nlp_that_runs(program):
    homotopy = Homotopy(sigma_0=1e-9, sigma_min=1e-9, finish="none")
    names, options, _ = PROBLEMS["bard1"]
    state = homotopy.step(homotopy.init(program(names, **options)), deadline=0.0)
    assert state.records[-1].solver_status == "User_Requested_Stop"
    assert homotopy.terminate(state) is Status.TIME_LIMIT  # not "infeasible", although nothing is left to relax


@pytest.mark.parametrize("answer", [ns.Stop, ns.Stop()])
def test_a_callback_stops_the_work(program, answer):
    seen = []

    def callback(state):
        seen.append(state)
        return answer if state.step == 2 else "go on"

    state = Homotopy().run(two_minima(program), callback=callback)
    assert state.status is Status.STOPPED
    assert [s.step for s in seen] == [1, 2]
    assert np.array_equal(state.w, seen[-1].w)


def test_a_stop_after_success_is_a_success(program):
    state = Homotopy().run(two_minima(program), callback=lambda s: ns.Stop if s.finished else None)
    assert state.status is Status.SOLVED


def test_an_interruption_in_a_step_keeps_the_last_iterate(program, monkeypatch):
    seen = []
    patched(monkeypatch, at=3)
    state = Homotopy().run(two_minima(program), callback=seen.append)
    assert state.status is Status.INTERRUPTED
    assert state.step == 2
    assert np.array_equal(state.w, seen[1].w)
    assert not np.array_equal(state.w, [0.9, 0.2])


def test_an_interruption_in_a_callback_keeps_the_last_iterate(program):
    seen = []

    def callback(state):
        seen.append(state)
        if state.step == 2:
            raise KeyboardInterrupt

    state = Homotopy().run(two_minima(program), callback=callback)
    assert state.status in (Status.INTERRUPTED, Status.STOPPED)
    assert np.array_equal(state.w, seen[-1].w)


def test_other_errors_of_a_callback_are_the_users(program):
    def callback(state):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        Homotopy().run(two_minima(program), callback=callback)


# From step to step --------------------------------------------------------------------------------------------------


def curve(program):
    """min (x - 1)^2 + (y - 1)^2 - z on z^3 = x + 3 y: more than one iteration to be feasible."""
    return program(
        ["x", "y", "z"],
        **PLAIN,
        objective=lambda w: (w[0] - 1) ** 2 + (w[1] - 1) ** 2 - w[2],
        rows=lambda w: [("cubic", w[2] ** 3 - w[0] - 3 * w[1], 0, 0)],
        initial=[0.5, 0.5, 3.0],
    )


def test_sigma_rises_after_a_failure_and_starts_from_the_last_good_iterate(program):
    homotopy = Homotopy(rises=2, kappa=1e-3, finish="none")
    failing = homotopy.replace(max_iterations=1)
    good = state = homotopy.step(homotopy.init(curve(program)))
    assert state.converged
    for _ in range(3):
        state = failing.step(state)
        assert state.records[-1].infeasibility > 1e-3
        if state.rises < 2 or state.step == 3:
            np.testing.assert_array_equal(state.w, good.w)
    # 1, then 1e-3 fails: sqrt(1e-3 1), that fails, too: the root again, and then it may fall only
    expected = [1.0, 1e-3, 10**-1.5, 10**-0.75]
    assert [record.sigma for record in state.records] == pytest.approx(expected, rel=1e-12)
    assert state.sigma == pytest.approx(1e-3 * 10**-0.75, rel=1e-12)
    assert state.rises == 2
    state = homotopy.step(state)
    assert state.records[-1].sigma == pytest.approx(1e-3 * 10**-0.75, rel=1e-12)
    assert state.converged
    without = homotopy.replace(rises=0, max_iterations=1)  # the negative control
    state = without.step(without.step(good))
    assert [record.sigma for record in state.records] == pytest.approx([1.0, 1e-3, 1e-6], rel=1e-12)


def test_the_first_nlp_is_repeated_from_where_it_ended(program):
    homotopy = Homotopy(repeats=2, max_iterations=2, finish="none")
    state = homotopy.init(curve(program))
    for _ in range(4):
        state = homotopy.step(state)
    sigmas = [record.sigma for record in state.records]
    repeated = sum(sigma == 1.0 for sigma in sigmas)
    assert 2 <= repeated <= 3
    assert sigmas == sorted(sigmas, reverse=True)
    once = homotopy.replace(repeats=0)
    state = once.step(once.step(once.init(curve(program))))
    assert [record.sigma for record in state.records] == [1.0, 0.1]


def test_an_nlp_that_diverges_does_not_take_the_next_ones_with_it():
    """x^2 + y^2 - 4 x y with an elastic slack at sigma = 1 is unbounded; at 0.1 it is not."""
    mpcc = literature.case("ralph2").mpcc
    state = Homotopy(relaxation="kanzow_schwartz", steering="l_inf").run(mpcc, np.ones(2))
    assert state.records[0].solver_status == "Diverging_Iterates"
    assert np.abs(state.records[0].objective) <= 1e3  # that of where it began
    assert state.status is Status.SOLVED
    assert np.abs(state.w).max() <= 2e-5


def test_step_tolerances_are_those_of_sigma(program):
    homotopy = Homotopy(step_tolerances=True, finish="none")
    state, seen = homotopy.init(curve(program)), []
    while homotopy.terminate(state) is None:
        settings = homotopy._settings(state)
        seen.append((state.sigma, settings["tol"], settings.get("mu_init"), settings.get("warm_start_bound_push")))
        state = homotopy.step(state)
    assert state.status is None
    for k, (sigma, tolerance, barrier, push) in enumerate(seen):
        assert tolerance == pytest.approx(np.clip(0.1 * sigma, 1e-9, 1e-3), rel=1e-12)
        assert barrier == (None if k == 0 else sigma)
        assert push == (None if k == 0 else pytest.approx(min(1e-2, 0.1 * sigma), rel=1e-12))
    assert state.complementarity <= 1e-8
    np.testing.assert_allclose(state.w, Homotopy(finish="none").run(curve(program)).w, atol=1e-6)


@pytest.mark.parametrize("name", ["bard1", "kth3"])
def test_a_dual_warm_start_saves_iterations(program, name):
    names, options, _ = PROBLEMS[name]
    mpcc = program(names, **options)

    def iterations(homotopy, forget):
        state = homotopy.init(mpcc)
        while homotopy.terminate(state) is None:
            state = homotopy.step(replace(state, dual=None) if forget else state)
        assert homotopy.terminate(state) is Status.SOLVED
        return sum(record.iterations for record in state.records)

    stepwise = Homotopy(step_tolerances=True, finish="none")
    warm, cold = (iterations(stepwise, forget) for forget in (False, True))
    exact = iterations(Homotopy(finish="none"), False)
    assert warm <= 30  # 24 and 19
    assert warm <= 0.6 * cold
    assert cold <= 0.85 * exact


# Stepping through ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["two_minima", "bard1"])
def test_a_loop_of_the_user_is_run(program, name):
    names, options, _ = PROBLEMS[name]
    mpcc, homotopy = program(names, **options), Homotopy()
    state = homotopy.init(mpcc)
    assert (state.step, state.sigma, homotopy.terminate(state)) == (0, 1.0, None)
    while (status := homotopy.terminate(state)) is None:
        state = homotopy.step(state)
    done = homotopy.run(mpcc)
    assert status is done.status is Status.SOLVED
    np.testing.assert_allclose(state.w, done.w, rtol=0, atol=1e-9)
    assert [record.label for record in state.records] == [record.label for record in done.records]
    for name in ("sigma", "objective"):
        mine, its = ([getattr(record, name) for record in s.records] for s in (state, done))
        np.testing.assert_allclose(mine, its, rtol=1e-9, atol=1e-12)


def test_steps_do_not_change_the_states_before_them(program):
    mpcc, homotopy = two_minima(program), Homotopy()
    first = homotopy.init(mpcc)
    before = (first.w.copy(), first.sigma, first.records, first.values.objective)
    second = homotopy.step(first)
    third = homotopy.step(second)
    assert np.array_equal(first.w, before[0])
    assert (first.sigma, first.records, first.values.objective) == before[1:]
    assert [s.step for s in (first, second, third)] == [0, 1, 2]
    assert second.sigma == pytest.approx(0.1)
    again = homotopy.step(first)  # the same step from the same state
    np.testing.assert_allclose(again.w, second.w, rtol=0, atol=1e-12)
    with pytest.raises(AttributeError):
        first.sigma = 0.0


def test_a_state_does_not_share_the_callers_arrays(program):
    mpcc = program(["x", "y"], lambda w: [(w[0], w[1])], lambda w: w[0] * w[2], p=[1.0])
    guess, p = np.array([0.5, 0.5]), np.array([2.0])
    state = Homotopy().init(mpcc, guess, p, clip=False)
    guess[:], p[:] = 9.0, 9.0
    assert np.array_equal(state.w, [0.5, 0.5])
    assert np.array_equal(state.p, [2.0])
    assert Homotopy().init(mpcc).p is not mpcc.p0


def test_a_guess_is_moved_into_its_bounds_unless_told_otherwise(program):
    mpcc = program(["x", "y"], lambda w: [(w[0], w[1])], upper=2.0)
    assert np.array_equal(Homotopy().init(mpcc, [-1.0, 5.0]).w, [0.0, 2.0])
    assert np.array_equal(Homotopy().init(mpcc, [-1.0, 5.0], clip=False).w, [-1.0, 5.0])
    assert Homotopy().init(mpcc, sigma=1e-3).sigma == 1e-3


def test_repr_of_a_state(program):
    text = repr(Homotopy().init(two_minima(program)))
    assert text == (
        "HomotopyState: step 0, objective 0.65, complementarity 1.8e-01, infeasibility 0.0e+00, sigma 1.0e+00"
    )


# Mistakes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"guess": [1.0]}, "guess: expected 2 numbers, given 1"),
        ({"guess": [1.0, np.nan]}, "guess: contains nan at position 1"),
        ({"guess": [np.inf, 1.0]}, "guess: contains inf at position 0"),
        ({"guess": "zero"}, "guess: expected 2 numbers, given 'zero'"),
        ({"p": [1.0]}, "parameters p: expected 0 numbers, given 1"),
    ],
)
def test_bad_guesses(program, given, message):
    with pytest.raises(ns.TranscriptionError, match=message):
        Homotopy().init(two_minima(program), **given)


def test_an_unknown_option_of_ipopt_is_named(program):
    with pytest.raises(ns.OptionError, match=r"IPOPT refused its options.*max_itre"):
        Homotopy(ipopt={"max_itre": 3}).init(two_minima(program))


def test_options_of_ipopt_arrive(program):
    state = Homotopy(ipopt={"max_iter": 2}).run(two_minima(program))
    assert max(record.iterations for record in state.records) <= 2


@pytest.mark.parametrize("steering", ["direct", "l_inf"])
def test_too_many_equations_name_the_way_out(program, steering):
    mpcc = program(["x", "y"], lambda w: [(w[0], w[1]), (w[0] + 1, w[1]), (w[0] + 2, w[1]), (w[0] + 3, w[1])])
    with pytest.raises(ns.OptionError, match=r"4 equations for [23] free.*cross_complementarity='fe_fe'.*inequality"):
        Homotopy(relaxation="scholtes_equality", steering=steering).init(mpcc)
    Homotopy(relaxation="scholtes", steering=steering).init(mpcc)


def test_too_many_equations_of_the_user_are_not_blamed_on_the_relaxation(program):
    mpcc = program(["x"], objective=lambda w: w[0], rows=lambda w: [(f"r{i}", w[0] * i, 0, 0) for i in range(4)])
    with pytest.raises(ns.OptionError, match="4 equations for 1 free variables") as caught:
        Homotopy(steering="direct").init(mpcc)
    assert "the constraints themselves are too many: remove some or add controls" in str(caught.value)


@pytest.mark.parametrize("steering", ["direct", "l_inf"])
def test_redundant_equations_end_with_a_status(program, steering):
    """As many equations as the slack allows: the finish has one variable less, and says so by a status."""
    mpcc = program(
        ["x", "y"],
        **PLAIN,
        objective=lambda w: w[0] ** 2,
        rows=lambda w: [(f"r{i}", w[0] + i * w[1], 1, 1) for i in (0, 2)],
    )
    if steering == "l_inf":
        mpcc = program(
            ["x", "y"],
            **PLAIN,
            objective=lambda w: w[0] ** 2,
            rows=lambda w: [(f"r{i}", w[0] + i * w[1], 1, 1) for i in (0, 2, 3)],
        )
    state = Homotopy(steering=steering, finish_threshold=10.0).run(mpcc)
    assert state.status is not None
    assert state.complementarity <= 1e-8
    np.testing.assert_allclose(state.w, [1, 0], atol=1e-6)
