"""Errors and options: what was given, what was expected, what to do; statuses carry a remedy."""

import numpy as np
import pytest
from pydantic import ValidationError

import nosnoc_py as ns
from nosnoc_py.errors import unknown_name
from nosnoc_py.options import Options
from nosnoc_py.status import Status

pytestmark = pytest.mark.quick

USER_ERRORS = (ns.ModelError, ns.OptionError, ns.TranscriptionError)


class Knobs(Options):
    count: int = 2
    tolerance: float = 1e-8


# Errors -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [*USER_ERRORS, ns.SolverError, ns.UnknownNameError])
def test_one_root_catches_every_error(error):
    assert issubclass(error, ns.NosnocError)


@pytest.mark.parametrize("error", USER_ERRORS)
def test_user_errors_are_value_errors(error):
    assert issubclass(error, ValueError)
    assert not issubclass(ns.SolverError, ValueError)


def test_unknown_names_suggest_the_nearest_and_list_the_legal_ones():
    assert unknown_name("restituton", ("gap", "restitution"), "field") == (
        "unknown field 'restituton'. Did you mean 'restitution'? Legal: gap, restitution."
    )


def test_abbreviations_are_completed_and_long_lists_are_left_out_where_there_is_a_proposal():
    assert "Did you mean 'mass_matrix'?" in unknown_name("mas", ("q", "mass_matrix", "force"))
    many = [f"option_{k}{letter}" for letter in "abcdefghijklmnopqrstuvwxyz" for k in ("", "A", "B")]
    assert unknown_name("option_z_", many).startswith("unknown name 'option_z_'. Did you mean 'option_z'")
    assert "Legal" not in unknown_name("option_z_", many)
    assert unknown_name("zzz", many).endswith("option_Bz.")


def test_nothing_is_suggested_when_nothing_is_near():
    assert unknown_name("zzz", ("gap",)) == "unknown name 'zzz'. Legal: gap."
    assert unknown_name("gap", ()) == "unknown name 'gap'. Legal: none."


def test_unknown_name_error_is_a_key_error_that_prints_a_sentence():
    with pytest.raises(KeyError) as caught:
        raise ns.UnknownNameError("v_z", ("v_x", "v_y"), "signal")
    assert str(caught.value).startswith("unknown signal 'v_z'. Did you mean 'v_")  # no quotes around the message
    assert caught.value.given == "v_z"
    assert caught.value.legal == ("v_x", "v_y")


# Options ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "given", "message"),
    [
        (ns.FESDJ, {"control_stage": 3}, "FESDJ: unknown option 'control_stage'. Did you mean 'control_stages'"),
        (ns.FESDJ, {"schem": "radau_iia"}, "unknown option 'schem'. Did you mean 'scheme'"),
        (ns.Homotopy, {"sigma0": 1.0}, "Homotopy: unknown option 'sigma0'. Did you mean 'sigma_0'"),
        (
            ns.FESDJ,
            {"scheme": "radau"},
            "option 'scheme': Input should be 'radau_iia' or 'gauss_legendre'; given 'radau'",
        ),
        (ns.FESDJ, {"rk_stages": 0}, "option 'rk_stages': Input should be greater than or equal to 1; given 0"),
        (ns.FESDJ, {"rk_stages": 2.5}, "option 'rk_stages'.*given 2.5"),
        (ns.FESDJ, {"rk_stages": "many"}, "option 'rk_stages'.*given 'many'"),
        (ns.FESDJ, {"gamma_h": float("nan")}, "option 'gamma_h'.*given nan"),
        (ns.Homotopy, {"kappa": 1.0}, "option 'kappa': Input should be less than 1; given 1.0"),
        (
            ns.Homotopy,
            {"relaxation": "scholtez"},
            "Homotopy: unknown relaxation 'scholtez'. Did you mean 'scholtes' or",
        ),
        (
            ns.Homotopy,
            {"relaxation": "lin_fukushima", "steering": "l1"},
            "Homotopy: relaxation 'lin_fukushima' takes steering='direct' only; elastic ones: scholtes, ",
        ),
        (
            ns.Homotopy,
            {"steering": "linf"},
            "option 'steering': Input should be 'direct', 'l_inf' or 'l1'; given 'linf'",
        ),
        (ns.Auto, {"restart": 3}, "Auto: unknown option 'restart'. Did you mean 'restarts'"),
        (ns.Auto, {"restarts": -1}, "option 'restarts'.*given -1"),
        (ns.Auto, {"seed": 0.5}, "option 'seed'.*given 0.5"),
        (ns.ActiveSet, {"radiu": 3}, "ActiveSet: unknown option 'radiu'. Did you mean 'radius'"),
        (ns.ActiveSet, {"homotopy": "scholtes"}, "option 'homotopy'.*given 'scholtes'"),
        (ns.Homotopy, {"sigma_min": float("inf")}, "option 'sigma_min'.*given inf"),
        (
            ns.Homotopy,
            {"sigma_0": 1e-3, "sigma_min": 1e-2},
            "Homotopy: expected sigma_min <= sigma_0, given sigma_min 0.01 and sigma_0 0.001",
        ),
        (ns.Homotopy, {"max_iterations": 0}, "option 'max_iterations'.*given 0"),
    ],
)
def test_bad_options_say_what_was_given_and_what_is_legal(kind, given, message):
    with pytest.raises(ns.OptionError, match=message):
        kind(**given)


def test_every_mistake_is_named_at_once():
    with pytest.raises(ns.OptionError) as caught:
        Knobs(count="x", tol=1.0)
    assert "option 'count'" in str(caught.value)
    assert "unknown option 'tol'. Did you mean 'tolerance'?" in str(caught.value)


def test_options_are_frozen():
    with pytest.raises(ValidationError, match="frozen"):
        Knobs().count = 3
    assert Knobs().count == 2


def test_options_are_compared_by_value():
    assert Knobs(count=2) == Knobs()
    assert Knobs(count=3) != Knobs()
    assert ns.FESDJ(finite_elements=[1, 2]) == ns.FESDJ(finite_elements=(1, 2))


def test_replace_returns_a_validated_copy():
    first = Knobs(count=5)
    second = first.replace(tolerance=1e-3)
    assert (first.tolerance, second.tolerance, second.count) == (1e-8, 1e-3, 5)
    with pytest.raises(ns.OptionError, match=r"unknown option 'coun'\. Did you mean 'count'"):
        first.replace(coun=1)
    with pytest.raises(ns.OptionError, match="given 'x'"):
        first.replace(count="x")
    with pytest.raises(ns.OptionError, match="given sigma_min 1e-09 and sigma_0 1e-10"):
        ns.Homotopy().replace(sigma_0=1e-10)


def test_a_dictionary_option_is_not_shared_with_its_giver():
    given = {"max_iter": 3}
    homotopy = ns.Homotopy(ipopt=given)
    given["max_iter"] = 99
    assert homotopy.ipopt == {"max_iter": 3}
    assert ns.Homotopy().ipopt == {}


# Statuses -----------------------------------------------------------------------------------------------------------


def test_only_what_is_solved_is_a_success():
    assert [s for s in Status if s.success] == [Status.SOLVED, Status.FEASIBLE, Status.NOT_CERTIFIED]


def test_every_status_has_a_remedy_of_its_own_words():
    assert all(s.remedy.endswith(".") and len(s.remedy) > 20 for s in Status)
    assert "sigma_min" in Status.NOT_COMPLEMENTARY.remedy
    assert "solution.worst" in Status.INFEASIBLE.remedy
    assert "another guess" in Status.LOCALLY_INFEASIBLE.remedy
    assert "max_iterations" in Status.ITERATION_LIMIT.remedy
    assert "time_limit" in Status.TIME_LIMIT.remedy
    assert "NaN" in Status.NUMERICAL_ERROR.remedy
    assert str(Status.TIME_LIMIT) == "time limit"


def test_remedies_name_options_that_exist():
    words = set(ns.Homotopy.model_fields)
    for name in ("sigma_min", "steering", "sigma_0", "kappa", "max_iterations", "time_limit"):
        assert name in words
    assert ns.Homotopy(steering="l_inf").steering == "l_inf"
    assert np.isfinite(ns.Homotopy().sigma_min)
