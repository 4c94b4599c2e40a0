"""What a user may give by mistake: an error of the library that says what was expected, or a value that is right."""

from __future__ import annotations

import copy
import json
import pickle  # noqa: TID251 - processes exchange results by it
from collections.abc import Callable
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import bouncing_ball

pytestmark = pytest.mark.quick

SYSTEM = bouncing_ball.build()


def simulate(**changes: Any) -> ns.Trajectory:
    return ns.simulate(SYSTEM, **{"x0": [1.0, 0.0], "duration": 0.2, **changes})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: simulate(x0=1.0), "x0: expected 2 numbers, given 1"),
        (lambda: simulate(x0=True), "x0: expected 2 numbers, given 1"),
        (lambda: simulate(x0=np.ones((2, 2))), r"x0: expected 2 numbers, given an array of shape \(2, 2\)"),
        (lambda: simulate(x0=np.ma.masked_array([1.0, 0.0], [True, False])), "x0: some of its values are masked"),
        (lambda: simulate(p=5.0), "p: expected 0 numbers, given 1"),
        (lambda: simulate(p=np.nan), "p: expected 0 numbers, given 1"),
        (lambda: simulate(sensitivities="no"), "sensitivities: expected True, False or \"reverse\", given 'no'"),
        (lambda: simulate(u=10**400), "u: expected a control"),
        (lambda: simulate(times=[0.1, 0.5]), "times: expected times from 0 to 0.2 s"),
        (lambda: simulate(times=[0.1], method=ns.FESDJ()), "times: only EventDriven takes output times"),
        (lambda: simulate(time_limit=-1.0), "time_limit: expected a number of seconds"),
        (lambda: ns.OCP(SYSTEM, horizon=1.0, x0=2.0), "x0: expected 2 numbers, given 1"),
        (lambda: ns.plot(None), "trajectory: expected Trajectory, given NoneType"),
        (lambda: ns.plot_homotopy("x"), "solution: expected Solution, given str"),
        (lambda: ns.load(None), "load: expected the path of a file, given NoneType"),
        (lambda: ns.Constraint(ca.SX.sym("x"), 0.0, at=np.zeros(0)), "unknown place"),
        (lambda: ns.TimeFreezing(fesd={1: 2}), "TimeFreezing: keywords must be strings"),
        (lambda: ns.Homotopy(infeasibility_tolerance=1e308), "infeasibility_tolerance.*less than or equal to 1"),
    ],
)
def test_a_mistake_is_told(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(ns.NosnocError, match=said):
        call()


def test_a_number_of_casadi_is_a_number() -> None:
    assert simulate(duration=ca.DM(0.1)).t[-1] == 0.1
    with pytest.raises(ns.NosnocError, match="duration: expected one number"):
        simulate(duration=ca.DM([0.1, 0.2]))


def test_a_column_and_a_vector_are_the_same_state() -> None:
    columns = [simulate(x0=x0).final_state for x0 in ([1.0, 0.0], np.array([[1.0], [0.0]]), ca.DM([1.0, 0.0]))]
    np.testing.assert_array_equal(columns, [columns[0]] * 3)


@pytest.mark.parametrize(
    "change",
    [
        lambda ocp, found: ocp.x_bounds[0].fill(5.0),
        lambda ocp, found: ocp.x0.fill(5.0),
        lambda ocp, found: ocp.system.names.clear(),
        lambda ocp, found: ocp.system.units.update(q="mm"),
        lambda ocp, found: found.series.clear(),
        lambda ocp, found: found.x.fill(0.0),
    ],
)
def test_what_is_frozen_does_not_change(change: Callable[[ns.OCP, ns.Trajectory], Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=r"cannot be changed|read-only"):
        change(ns.OCP(SYSTEM, horizon=1.0, x0=[1.0, 0.0]), simulate())


def test_results_are_copied_and_pickled_as_they_are() -> None:
    found = simulate()
    for again in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):  # noqa: S301
        np.testing.assert_array_equal(again.x, found.x)
        assert again.series.keys() == found.series.keys()
    json.dumps(found.units)


def test_a_system_is_built_in_the_process_that_needs_it() -> None:
    assert copy.deepcopy(SYSTEM) is copy.copy(SYSTEM) is SYSTEM
    with pytest.raises(TypeError, match="send the function that builds it"):
        pickle.dumps(SYSTEM)
