"""Two elastic discs by FESD-J with control stages of free length, from the paper's own constant control.

The optimal control jumps at the collision. On equal control stages the collision lies inside of one, and the error is a
saw-tooth in N (see `test_two_discs_fesdj`); with free lengths a boundary comes to lie there, and only the staircase is
left of the error, which is of second order.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.errors import OptionError
from nosnoc_py.solution.solution import costate_name
from problems.two_discs import EXPERIMENTS, build
from tests.pairwise import slow_but
from tests.references.two_discs import optimum

METHOD = ns.FESDJ(finite_elements=1, rk_stages=3, equidistant_control_grid=False)
WARM = ns.Homotopy(sigma_0=1e-3)
ALL = list(EXPERIMENTS)


def problem_of(experiment: str) -> ns.OCP:
    return build(experiment, smoothing=1e-2 if experiment == "length" else 0.0)


@cache
def solved(experiment: str, stages: int) -> ns.Solution:
    ocp = problem_of(experiment)
    start = ns.simulate(ocp.system, x0=ocp.x0, duration=1.0, u=EXPERIMENTS[experiment].control, method=ns.EventDriven())
    return ns.solve(ocp, METHOD.replace(control_stages=stages), WARM, guess=start)


def error(experiment: str, stages: int) -> float:
    """With the stage cost as it is: a smoothed |u| is less by at most the smoothing."""
    found = solved(experiment, stages)
    if experiment != "length":
        return found.objective - optimum(experiment).objective
    effort = np.diff(found.u_grid) @ np.linalg.norm(found.u, axis=1)
    return float(found.final_state[2:4] @ found.final_state[2:4] + 0.01 * effort) - optimum(experiment).objective


@pytest.mark.parametrize("experiment", slow_but(["concentric", "general"], ALL))
def test_twenty_stages_are_within_a_thousandth_and_halving_divides_by_four(experiment: str) -> None:
    fine, exact = solved(experiment, 20), optimum(experiment)
    assert fine.success
    assert tuple(event.name for event in fine.impacts) == exact.contacts
    np.testing.assert_allclose([event.time for event in fine.impacts], exact.times, atol=2e-4)
    assert 0.0 < error(experiment, 20) < 1e-3
    assert error(experiment, 10) / error(experiment, 20) >= 4.0


def test_a_boundary_of_the_control_grid_lies_at_the_collision() -> None:
    found = solved("general", 20)
    assert found.u_grid[[0, -1]].tolist() == [0.0, 1.0]
    lengths = np.diff(found.u_grid)
    assert lengths.min() > 0.1 / 20
    assert lengths.max() < 1.9 / 20
    assert np.ptp(lengths) > 1e-3
    assert np.abs(found.u_grid - found.impacts[0].time).min() < 1e-12
    assert "the grid holds" not in found.message
    after = found.u_grid[:-1] >= found.impacts[0].time - 1e-9
    assert np.abs(found.u[after]).max() < 1e-6


def test_the_referee_confirms_it() -> None:
    certificate = ns.certify(problem_of("general"), solved("general", 20))
    assert certificate.verdict is ns.Verdict.CONFIRMED, str(certificate)


def test_multipliers_of_the_dynamics_are_the_costates() -> None:
    """Of the minimum principle, at the same instants of the same phases; they differ by the staircase, h^2."""
    exact = ns.solve(build("general"), ns.MinimumPrinciple(steps=60, refine=True), guess=[0, 3])
    time, differences = exact.events[0].time, []
    for stages in (10, 20):
        found, worst, largest = solved("general", stages), 0.0, 0.0
        for name in found.state_names:
            mine, theirs = found.series[costate_name(name)], exact.series[costate_name(name)]
            first = int(np.flatnonzero(theirs.t == time)[0]) + 1  # the left limit is the last of the phase before
            own = found.impacts[0].time
            before, after = mine.t < own - 1e-9, mine.t > own + 1e-9
            stretched = mine.t[before] * time / own
            pairs = [
                (mine.values[before], np.interp(stretched, theirs.t[:first], theirs.values[:first])),
                (mine.values[after], np.interp(mine.t[after], theirs.t[first:], theirs.values[first:])),
            ]
            worst = max(worst, *(np.abs(a - b).max() for a, b in pairs))
            largest = max(largest, np.abs(theirs.values).max())
        differences.append(worst / largest)
    assert differences[1] < 0.02
    assert differences[0] / differences[1] > 3.0


def test_equal_stages_are_an_order_of_magnitude_worse() -> None:
    """Negative control, from the same start: the collision stays in a stage."""
    ocp = problem_of("concentric")
    start = ns.simulate(ocp.system, x0=ocp.x0, duration=1.0, u=[3.0, 3.0], method=ns.EventDriven())
    method = METHOD.replace(control_stages=20, finite_elements=2, equidistant_control_grid=True, gamma_h=1.0)
    found = ns.solve(ocp, method, WARM, guess=start)
    assert found.objective - optimum("concentric").objective > 10 * error("concentric", 20)


def test_lengths_come_back_from_a_guess_and_go_to_another_grid() -> None:
    found = solved("general", 20)
    again = ns.transcribe(problem_of("general"), METHOD.replace(control_stages=20))
    np.testing.assert_array_equal(again.initial_guess(found), found.w)
    other = ns.transcribe(problem_of("general"), METHOD.replace(control_stages=24))
    blocks = list(other.mpcc.variables.blocks("control stage length"))
    shares = other.initial_guess(found)[[block.start for block in blocks]]
    assert shares.sum() == pytest.approx(24.0, abs=1e-12)
    assert np.abs(np.cumsum(shares) / 24 - found.impacts[0].time).min() < 1e-12


def test_what_needs_equal_stages_says_so() -> None:
    method = ns.TimeFreezing(fesd=ns.FESD(control_stages=4, equidistant_control_grid=False))
    with pytest.raises(OptionError, match="physical clock"):
        ns.solve(problem_of("general"), method)
