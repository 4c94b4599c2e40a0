"""FESDJ: defaults, what is refused, numbers of finite elements."""

import pytest

import nosnoc_py as ns

pytestmark = pytest.mark.quick


def test_defaults_are_those_of_the_paper():
    method = ns.FESDJ()
    assert (method.scheme, method.rk_stages, method.finite_elements) == ("radau_iia", 2, 2)
    assert (method.cross_complementarity, method.step_equilibration) == ("fe_stage", "heuristic_mean")
    assert (method.switch_detection, method.initial_impulse, method.impulse_form) == (True, True, "sum")


@pytest.mark.parametrize(("given", "stages", "elements"), [(3, 2, (3, 3)), ((1, 2, 3), 3, (1, 2, 3)), ([4], 1, (4,))])
def test_elements_of_every_control_stage(given, stages, elements):
    assert ns.FESDJ(control_stages=stages, finite_elements=given).elements_per_stage == elements


@pytest.mark.parametrize("given", [0, -1, (2, 0), ()])
def test_every_control_stage_needs_an_element(given):
    with pytest.raises(ns.OptionError, match="every control stage needs at least one finite element"):
        ns.FESDJ(finite_elements=given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"finite_elements": "few"}, "option 'finite_elements"),
        ({"finite_elements": 1.5}, "option 'finite_elements"),
        ({"control_stages": 0}, "option 'control_stages': Input should be greater than or equal to 1; given 0"),
        ({"rk_stages": 13}, "option 'rk_stages': Input should be less than or equal to 12; given 13"),
        ({"cross_complementarity": "all"}, "option 'cross_complementarity'.*'stage_stage'.*given 'all'"),
        ({"step_equilibration": "l2"}, "option 'step_equilibration'.*'l2_relaxed'.*given 'l2'"),
        ({"impulse_form": "A.2"}, "option 'impulse_form': Input should be 'sum' or 'product'; given 'A.2'"),
        ({"equilibration_weight": -1.0}, "option 'equilibration_weight'.*given -1.0"),
        ({"equilibration_epsilon": 0.0}, "option 'equilibration_epsilon'.*given 0.0"),
        ({"gamma_h": 1.1}, "option 'gamma_h': Input should be less than or equal to 1; given 1.1"),
        ({"epsilon_c": 0.2}, "option 'epsilon_c'.*given 0.2"),
        ({"switch_detection": "perhaps"}, "option 'switch_detection'.*given 'perhaps'"),
        ({"step_equilibrium": "none"}, "unknown option 'step_equilibrium'. Did you mean 'step_equilibration'"),
    ],
)
def test_refused(given, message):
    with pytest.raises(ns.OptionError, match=message):
        ns.FESDJ(**given)
