"""The bouncing ball against its closed form, over combinations of options."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import numpy as np
import pytest

import nosnoc_py as ns
from models import bouncing_ball as ball
from nosnoc_py.discretization.options import Aggregation, Equilibration
from nosnoc_py.mpcc.nlp import STEERINGS
from tests.pairwise import pairs, pairwise, slow_but

RELAXATIONS = ("scholtes", "scholtes_equality", "fischer_burmeister")  # an inequality and two equalities
RESTITUTIONS = (0.0, 0.5, 0.9, 1.0)
FORMS = ("sum", "product")
# Linear complementarities are for optimal control: simulations with jumps refuse them.
EQUILIBRATIONS = tuple(name for name in get_args(Equilibration) if name != "linear_complementarity")
Options = tuple[str, str, str, str, str]  # relaxation, steering, aggregation, equilibration, impulse form
VALUES = {
    "relaxation": RELAXATIONS,
    "steering": STEERINGS,
    "aggregation": get_args(Aggregation),
    "equilibration": EQUILIBRATIONS,
    "impulse form": FORMS,
    "restitution": RESTITUTIONS,
}
# The defaults, and those with the fewest products. They have to solve every ball.
RECOMMENDED: list[Options] = [
    ("scholtes", "direct", "fe_stage", "heuristic_mean", "sum"),
    ("scholtes", "direct", "fe_fe", "heuristic_mean", "sum"),
]


def is_square(row: tuple[Any, ...]) -> bool:
    """Equality relaxations leave no freedom unless there are few products; the others are refused, see below."""
    return row[0] != "scholtes_equality" or row[2] == "fe_fe"


ROWS = pairwise(VALUES, is_square)


def simulate(options: Options, restitution: float, *, duration: float = 1.0, **solver: Any) -> ns.Trajectory:
    relaxation, steering, aggregation, equilibration, form = options
    return ns.simulate(
        ball.build(restitution),
        x0=[1.0, 0.0],
        duration=duration,
        steps=round(10 * duration),
        method=ns.FESDJ(cross_complementarity=aggregation, step_equilibration=equilibration, impulse_form=form),
        solver=ns.Homotopy(
            relaxation=relaxation,
            steering=steering,
            complementarity_tolerance=1e-11,
            infeasibility_tolerance=1e-9,
            **{"sigma_min": 1e-13, **solver},
        ),
    )


def error(trajectory: ns.Trajectory, restitution: float) -> float:
    """Largest error of the states at the steps and of the impact times."""
    expected = ball.impact_times(restitution, until=1.0)
    times = [impact.time for impact in trajectory.impacts]
    if len(times) != len(expected):
        return np.inf
    steps = np.linspace(0.0, 1.0, 11)
    states = np.abs(trajectory(steps, "-") - ball.exact(steps, restitution)).max()
    return float(max(states, np.abs(np.array(times) - expected).max()))


# --- the MPCC alone, with its active-set finish, and without ---


def solved(options: Options, restitution: float, accuracy: float, **solver: Any) -> bool:
    """Whether a ball is solved; what says so has to be right, and the rest to say what happened."""
    trajectory = simulate(options, restitution, **solver)
    if trajectory.success:
        assert error(trajectory, restitution) < accuracy, (options, restitution)
    else:
        assert trajectory.status is ns.Status.STEP_FAILED
        assert trajectory.message
    return trajectory.success


def check_share(rows: list[tuple[Any, ...]], least: float, accuracy: float, **solver: Any) -> None:
    """At least this share of the runs is solved; which ones of the others are not is a matter of rounding."""
    unsolved = [row for row in rows if not solved(row[:5], row[5], accuracy, **solver)]
    assert len(unsolved) <= (1.0 - least) * len(rows), unsolved


@pytest.mark.parametrize("restitution", RESTITUTIONS)
@pytest.mark.parametrize("options", RECOMMENDED, ids=" ".join)
def test_recommended_options_solve_it(options: Options, restitution: float) -> None:
    assert solved(options, restitution, 1e-12)


@pytest.mark.parametrize("restitution", slow_but(RESTITUTIONS[:1], RESTITUTIONS))
def test_polished(restitution: float) -> None:
    """Every pair of options, to rounding."""
    check_share([row for row in ROWS if row[5] == restitution], 2 / 3, 1e-12)


@pytest.mark.parametrize("restitution", slow_but((0.9,), RESTITUTIONS))
def test_raw(restitution: float) -> None:
    """As exactly as the last relaxation; the inelastic landing (e = 0) is a double root of Lambda and fails most."""
    check_share([row for row in ROWS if row[5] == restitution], 0.5, 1e-8, finish="none")


@pytest.mark.slow
@pytest.mark.parametrize("restitution", RESTITUTIONS)
@pytest.mark.parametrize("steering", STEERINGS)
@pytest.mark.parametrize(("finish", "least", "accuracy"), [("active_set", 0.8, 1e-12), ("none", 0.5, 1e-8)])
def test_everywhere(finish: str, least: float, accuracy: float, steering: str, restitution: float) -> None:
    """The full product of all options."""
    rows = [
        (relaxation, steering, *rest, restitution)
        for relaxation, *rest in product(RELAXATIONS, get_args(Aggregation), EQUILIBRATIONS, FORMS)
    ]
    check_share([row for row in rows if is_square(row)], least, accuracy, finish=finish)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("aggregation", ["stage_fe", "stage_stage"])
def test_too_many_equations_are_refused(aggregation: str, form: str) -> None:
    options = ("scholtes_equality", "direct", aggregation, "none", form)
    with pytest.raises(ns.OptionError, match="equality relaxation needs"):
        simulate(options, 0.9, duration=0.1)


def test_the_default_run_covers_every_pair_of_options() -> None:
    """Negative control: without a row a pair is missing."""
    legal = [row for row in product(*VALUES.values()) if is_square(row)]
    wanted = set().union(*map(pairs, legal))
    assert set().union(*map(pairs, ROWS)) == wanted
    assert len(ROWS) < len(legal) / 40
    assert set().union(*map(pairs, ROWS[:-1])) < wanted


# --- published numbers, and fixed steps as the negative control ---


def test_published_impact_times() -> None:
    trajectory = ns.simulate(ball.build(0.9), x0=[1.0, 0.0], duration=2.0, steps=20)
    times = [impact.time for impact in trajectory.impacts]
    np.testing.assert_allclose(times, [0.451523640986, 1.264266194760, 1.995734493157], rtol=0, atol=1e-12)
    speeds = [impact.v_after for impact in trajectory.impacts]
    np.testing.assert_allclose(speeds, np.sqrt(2 * 9.81) * 0.9 ** np.arange(1, 4), rtol=0, atol=1e-12)


@pytest.mark.parametrize("scheme", ["radau_iia", "gauss_legendre"])
@pytest.mark.parametrize("rk_stages", [2, 3, 4, 6])
def test_every_scheme_has_the_parabolas_exactly(scheme: str, rk_stages: int) -> None:
    method = ns.FESDJ(scheme=scheme, rk_stages=rk_stages)
    trajectory = ns.simulate(ball.build(0.9), x0=[1.0, 0.0], duration=1.0, steps=10, method=method)
    assert trajectory.success
    assert error(trajectory, 0.9) < 1e-12


def test_fixed_steps_miss_the_impact() -> None:
    trajectory = ns.simulate(
        ball.build(0.9), x0=[1.0, 0.0], duration=1.0, steps=10, method=ns.FESDJ(switch_detection=False)
    )
    assert not trajectory.success or error(trajectory, 0.9) > 0.1
