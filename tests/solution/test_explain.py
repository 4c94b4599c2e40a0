"""What `explain` says about made-up results: each situation its sentence, and nothing where there is nothing to say."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from nosnoc_py.errors import OptionError
from nosnoc_py.roles import Role
from nosnoc_py.solution import Event, PairRole, Residual, Series, StepRecord, explain
from nosnoc_py.solution.explain import CERTIFIED, CONVERGED, WORDS
from nosnoc_py.status import Stationarity, Status

pytestmark = pytest.mark.quick


@dataclass(frozen=True)
class Bare:
    """As little of a result as `explain` needs."""

    status: Status = Status.SOLVED
    objective: float = 1.25
    complementarity: float = 3e-12
    complementarity_min: float = 4e-11
    infeasibility: float = 5e-10
    stationarity: Stationarity = Stationarity.S
    worst: tuple[Residual, ...] = ()
    log: tuple[StepRecord, ...] = ()


@dataclass(frozen=True)
class Result(Bare):
    biactive: tuple[str, ...] = ()
    biactive_roles: tuple[PairRole, ...] = ()


def record(step=0, sigma=1.0, complementarity=None, word="Solve_Succeeded", label="homotopy", infeasibility=0.0):
    return StepRecord(
        step=step,
        label=label,
        sigma=sigma,
        objective=1.0,
        complementarity=sigma if complementarity is None else complementarity,
        infeasibility=infeasibility,
        iterations=7,
        wall_seconds=0.1,
        solver_status=word,
    )


def homotopy(complementarities, words=None, **others):
    words = words or ["Solve_Succeeded"] * len(complementarities)
    numbered = enumerate(zip(complementarities, words, strict=True))
    return tuple(record(i, 10.0**-i, value, word, **others) for i, (value, word) in numbered)


def failed(status=Status.NOT_COMPLEMENTARY, **fields):
    return Result(status=status, stationarity=Stationarity.UNKNOWN, complementarity=2e-3, **fields)


GOOD = homotopy([1.0, 0.1, 0.01, 1e-3])


def test_a_solved_result_says_what_it_rests_on_and_asks_for_nothing():
    text = explain(Result(log=GOOD))
    assert text.splitlines() == [
        "Solved: objective 1.25, S-stationary: multipliers exclude first-order descent.",
        "Residuals of the unrelaxed problem: complementarity 3.0e-12 (min form 4.0e-11), infeasibility 5.0e-10.",
        "No pair is biactive.",
    ]
    assert "What to try" not in text


@pytest.mark.parametrize("kind", Stationarity)
def test_every_kind_of_stationarity_has_its_words(kind):
    first = explain(Result(stationarity=kind)).splitlines()[0]
    assert CERTIFIED[kind] in first
    assert ("judged by the residuals alone" in first) == (kind is Stationarity.UNKNOWN)


@pytest.mark.parametrize("status", [status for status in Status if not status.success])
def test_a_failure_gives_its_status_and_the_remedy_of_it(status):
    text = explain(failed(status))
    assert text.startswith(f"Not solved ({status}): ")
    assert "residuals alone" not in text
    assert text.splitlines()[-2:] == ["What to try:", f"  {status.remedy}"]


def test_the_worst_residuals_appear_by_name_and_place_and_the_others_do_not():
    worst = tuple(Residual(10.0**-i, "equation", f"impact_{i}", f"control stage {i}") for i in range(5))
    lines = explain(failed(worst=worst)).splitlines()
    at = lines.index("Worst residuals:")
    assert lines[at + 1] == "  1.00e+00 equation impact_0 (control stage 0)"
    assert lines[at + 3] == "  1.00e-02 equation impact_2 (control stage 2)"
    assert "impact_3" not in "\n".join(lines)
    assert "Worst residuals" not in explain(failed())


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (("gap * force",), "1 pair is biactive (both sides zero): gap * force."),
        (("a", "b", "c"), "3 pairs are biactive (both sides zero): a, b, c."),
        (tuple("abcdefg"), "7 pairs are biactive (both sides zero): a, b, c and 4 more."),
    ],
)
def test_biactive_pairs_are_counted_and_the_first_ones_named(names, sentence):
    assert sentence in explain(Result(biactive=names)).splitlines()


def test_biactive_pairs_of_contacts_are_put_into_words():
    names = ("Y_plus[hit] * Y_minus[hit] (control stage 0)", "gap[wall] * lambda_normal[wall]", "gap * force")
    roles = (PairRole(Role.REBOUND_PARTS, "hit"), PairRole(Role.CONTACT, "wall"), PairRole(None))
    lines = explain(Result(biactive=names, biactive_roles=roles)).splitlines()
    assert lines[-1] == (
        "  Either side of such a pair may be the one that stays zero; here contact hit has just the velocity of its "
        "law of restitution, as at an impact, contact wall touches without a force."
    )
    assert explain(Result(biactive=("a * b", "c * d", "e * f"), biactive_roles=roles)).splitlines()[-1] == lines[-1]
    # A name that looks like a contact's says nothing.
    assert explain(Result(biactive=names[1:2])).endswith("may be the one that stays zero.")
    other = (PairRole(Role.SLIP, "wall"),)
    assert explain(Result(biactive=names[1:2], biactive_roles=other)).endswith("may be the one that stays zero.")


@dataclass(frozen=True)
class Moving(Result):
    """The result of a problem with contacts."""

    series: Mapping[str, Series] = field(default_factory=dict)
    events: tuple[Event, ...] = ()


def moving(
    push: float, *events: Event, status: Status = Status.LOCALLY_INFEASIBLE, role: Role | None = Role.NORMAL_FORCE
) -> str:
    roles = {"push": role, "q": Role.STATE}
    series = {name: Series(np.array([0.0, 1.0]), np.array([0.0, push]), role) for name, role in roles.items()}
    return explain(Moving(status=status, series=series, events=events))


def test_an_infeasible_iterate_without_contact_asks_for_a_guess_that_touches():
    assert "No contact closes in the last iterate" in moving(0.0)
    assert "give a guess that touches, guess={'x': ..., 'u': ...}, such as guess=ns.solve(ocp)" in moving(0.0)
    others = (
        moving(1.0),
        moving(0.0, Event(0.5, "a", "impact")),
        moving(0.0, status=Status.TIME_LIMIT),
        moving(0.0, role=Role.TANGENTIAL_FORCE),
        moving(0.0, role=None),
        explain(Moving(status=Status.LOCALLY_INFEASIBLE)),
    )
    assert not any("No contact closes" in other for other in others)


def test_both_directions_of_sigma_0_are_said():
    for word in ("Infeasible_Problem_Detected", "Restoration_Failed"):
        assert "a larger sigma_0 from a cold start, a smaller one (1e-3) with a guess whose" in WORDS[word][1]


def test_what_the_first_failure_says_is_not_said_again_in_general():
    log = (record(word="Infeasible_Problem_Detected"),)
    assert Status.LOCALLY_INFEASIBLE.remedy not in explain(failed(Status.LOCALLY_INFEASIBLE, log=log))
    assert f"In general: {Status.NOT_COMPLEMENTARY.remedy}" in explain(failed(log=log))
    other = (record(word="Invalid_Number_Detected"),)
    assert f"In general: {Status.LOCALLY_INFEASIBLE.remedy}" in explain(failed(Status.LOCALLY_INFEASIBLE, log=other))


def test_nothing_is_said_about_biactive_pairs_that_nobody_looked_for():
    assert "biactive" not in explain(Bare())


def test_a_solution_is_explained_too(solution):
    text = explain(solution)
    assert text.startswith("Not solved (not complementary): objective 0.3, C-stationary")
    assert "1.00e-04 complementarity gap wall (control stage 3, finite element 1, RK stage 2)" in text


# The first failure ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", WORDS)
def test_words_of_ipopt_become_a_reason_and_a_remedy(word):
    reason, remedy = WORDS[word]
    log = (*GOOD[:2], record(2, 1e-2, word=word), record(3, 1e-3, word="Restoration_Failed"))
    text = explain(failed(log=log))
    assert f"First failure: step 2 (homotopy at sigma 1.0e-02), {word}: {reason}; 2 of 4 steps failed." in text
    assert f"\n  {remedy[0].upper()}{remedy[1:]}." in text


def test_a_relaxed_problem_that_failed_comes_before_a_finish_that_did():
    finish = record(1, 0.0, 1e-6, "Infeasible_Problem_Detected", "finish")
    relaxed = record(2, 1e-2, word="Maximum_Iterations_Exceeded", label="elastic: homotopy")
    text = explain(failed(log=(GOOD[0], finish, relaxed)))
    assert "First failure: step 2 (elastic: homotopy at sigma 1.0e-02)" in text
    alone = explain(failed(log=(GOOD[0], finish)))
    assert "First failure: step 1 (finish), Infeasible_Problem_Detected" in alone


def test_an_unknown_word_is_quoted():
    text = explain(failed(log=(record(0, word="Kernel_Panic"),)))
    assert (
        "step 0 (homotopy at sigma 1.0e+00), Kernel_Panic: a status without an explanation here; 1 of 1 steps failed."
        in text
    )
    assert text.splitlines()[-2:] == ["What to try:", f"  {Status.NOT_COMPLEMENTARY.remedy}"]


@pytest.mark.parametrize("word", CONVERGED)
def test_steps_that_converged_are_no_failures(word):
    assert "First failure" not in explain(failed(log=(record(0, word=word),)))


def test_a_solved_result_may_have_failed_on_its_way_and_still_asks_for_nothing():
    text = explain(Result(log=(record(0, word="Restoration_Failed"), *homotopy([1e-3] * 5), record(6, 1e-9, 1e-9))))
    assert "First failure: step 0" in text
    assert "What to try" not in text
    assert "stalled" not in text
    assert WORDS["Restoration_Failed"][1][1:] not in text


# Stalls --------------------------------------------------------------------------------------------------------------


def test_a_minimum_of_the_elastic_penalty_is_named():
    text = explain(failed(log=homotopy([0.5, 0.02, 2e-3, 2e-3, 2e-3], label="elastic: homotopy")))
    assert (
        "Complementarity stalled: 2.0e-03 -> 2.0e-03 while sigma fell 1.0e-02 -> 1.0e-04 (elastic: homotopy, "
        "steps 2 to 4) although these problems converged: a local minimum of the elastic penalty." in text
    )
    assert text.splitlines()[-3:] == [
        "What to try:",
        "  Use steering='direct', a larger sigma_0, or start from another guess.",
        f"  In general: {Status.NOT_COMPLEMENTARY.remedy}",
    ]


def test_a_stall_of_problems_that_fail_is_something_else():
    words = ["Solve_Succeeded", "Solve_Succeeded", "Restoration_Failed", "Restoration_Failed"]
    text = explain(failed(log=homotopy([1.0, 0.02, 0.02, 0.02], words)))
    assert "these problems did not all converge" in text
    assert "elastic penalty" not in text


def test_an_infeasibility_that_stays_is_not_the_relaxations_fault():
    log = homotopy([1.0, 0.1, 0.01, 1e-3], infeasibility=0.3)
    text = explain(failed(Status.LOCALLY_INFEASIBLE, log=log, infeasibility=0.3))
    assert "Infeasibility stalled: 3.0e-01 -> 3.0e-01 while sigma fell 1.0e+00 -> 1.0e-03" in text
    assert "Complementarity stalled" not in text


@pytest.mark.parametrize(
    "log",
    [
        (),
        GOOD,  # falls with sigma
        homotopy([1.0, 0.3, 0.1, 0.03, 0.01]),  # falls with its root
        homotopy([0.01, 0.01]),  # sigma fell by 10 only
        homotopy([1e-8] * 5),  # small is small
        (*GOOD[:2], *homotopy([0.01] * 2), *homotopy([0.01] * 2)),  # sigma rose again: three short runs
        (record(0, 1.0, 0.01, label="a"), record(1, 0.1, 0.01, label="b"), record(2, 0.01, 0.01, label="c")),
    ],
)
def test_no_stall_where_residuals_follow_or_sigma_hardly_fell(log):
    assert "stalled" not in explain(failed(log=log))


def test_a_finish_between_the_steps_does_not_hide_a_stall():
    log = homotopy([0.01, 0.01, 0.01])
    finish = record(9, 0.0, 1e-9, "Infeasible_Problem_Detected", "finish")
    assert "Complementarity stalled" in explain(failed(log=(log[0], finish, log[1], finish, log[2])))


def test_the_last_stalled_run_is_the_one_reported():
    log = (*homotopy([0.2] * 3, label="first"), *homotopy([0.1] * 3, label="second"), *GOOD)
    text = explain(failed(log=log))
    assert text.count("stalled") == 1
    assert "(second, steps" in text


def test_remedies_are_not_repeated():
    remedies = explain(failed(log=homotopy([0.01] * 4, ["Restoration_Failed"] * 4))).split("What to try:\n")[1]
    lines = remedies.splitlines()
    assert len(lines) == len(set(lines)) == 3


def test_other_objects_are_refused_with_what_they_lack(trajectory):
    with pytest.raises(OptionError, match=r"expected the result of ns.solve .* given Trajectory without objective"):
        explain(trajectory)
    with pytest.raises(OptionError, match="given str without status"):
        explain("solved")
