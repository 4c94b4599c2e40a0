"""The table of abilities of the multi-phase program: kinds of motion x features of problems, each a known optimum.

Every cell states a sequence. Its optimum is known from an optimisation over few numbers (lengths of pieces, controls)
with exact steps, which shares no code with nosnoc_py. A third of the cells runs by default.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.errors import ModelError
from tests.pairwise import slow_row
from tests.references.abilities import FEATURES, KINDS, MotionKind, cell, pieces_of
from tests.references.reduced_optimum import reduced_optimum

OPTIMUM = 1e-6  # of the objective, relative to max(1, |J|); measured: below 2e-9
ACTIVE = 1e-6  # an active limit is met to this
CONFIRMED = (ns.Verdict.CONFIRMED, ns.Verdict.CONFIRMED_IN_WINDOWS)
NAMED = {kind.name: kind for kind in KINDS}
TABLE = [
    (kind, feature) if (i + j) % 3 == 0 else slow_row(kind, feature)
    for i, kind in enumerate(KINDS)
    for j, feature in enumerate(FEATURES)
]


@pytest.mark.parametrize(("kind", "feature"), TABLE, ids=str)
def test_the_optimum_of_a_sequence_is_the_known_one(kind: MotionKind, feature: str, tmp_path: Path):
    """The objective is that of the reduced optimisation to 1e-6, the simulation confirms it, and all of it is there."""
    made = cell(kind, feature)
    solution = ns.solve(made.ocp, made.method, guess=[kind.guess] * kind.controls)
    assert solution.success, solution.message
    assert solution.sequence == made.method.sequence
    certificate = ns.certify(made.ocp, solution)
    assert certificate.verdict in CONFIRMED, certificate.reason
    pieces = pieces_of(solution, equal=made.equal)
    known = reduced_optimum(made.problem, pieces, equal=made.equal, edges=kind.edges)
    assert known.success
    size = max(1.0, abs(known.objective))
    assert solution.objective == pytest.approx(known.objective, rel=0, abs=OPTIMUM * size)
    assert all(np.isfinite(series.values).all() for series in solution.multipliers.values())
    costates = [solution[name] for name in solution.names if name.startswith("costate[")]
    assert len(costates) == len(solution.state_names)
    assert np.isfinite(costates).all()
    at_end = solution.final_state
    if feature in ("path constraint", "state bound"):
        component, low, high = kind.limit
        values = np.array([solution(t, side="-")[component] for t in solution.u_grid])
        assert min(abs(values.max() - high), abs(values.min() - low)) <= ACTIVE
    if feature == "terminal set":
        assert at_end[kind.target[0]] == pytest.approx(kind.target[1], rel=0, abs=ACTIVE)
    if feature == FEATURES[KINDS.index(kind) % len(FEATURES)]:
        assert_same(solution, ns.load(solution.save(tmp_path / "solution.nc")))


def assert_same(one: ns.Solution, other: ns.Solution) -> None:
    """What was saved comes back: all numbers, and the sequence with its times."""
    assert one.to_dict() == other.to_dict()
    assert one.sequence == other.sequence
    for name in ("t", "x", "u_grid", "u", "w", "x0", "p"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_array_equal(one.sequence.times, other.sequence.times)
    assert one.multipliers.keys() == other.multipliers.keys()
    for name in one.names:
        np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.parametrize(
    ("name", "items"),
    [
        ("slip", [{"ground": "slip-"}]),  # it moves forwards
        ("stick", [{"ground": "stick"}]),  # it moves
        ("several contacts", [{"first": "slip+", "second": "slip+"}, {"first": "stick", "second": "stick"}]),
        ("elastic impact", [{}, {"ground": "closed"}]),  # it bounces
        ("crossing", [{"line": "-"}]),  # the target lies on the other side
        ("sliding", [{"line": "-"}]),  # so does the initial state
    ],
)
def test_a_wrong_sequence_is_not_solved(name: str, items: list[dict[str, str]]):
    """Seconds, a status that is no success, and a message that says what is missed."""
    kind = NAMED[name]
    made = cell(kind, "fixed horizon")
    method = made.method.model_copy(update={"sequence": ns.Sequence(items), "refinements": 0})
    solution = ns.solve(made.ocp, method, guess=[kind.guess] * kind.controls)
    assert not solution.success
    assert solution.message
    assert np.isfinite(solution.x).all()


@pytest.mark.parametrize(
    ("items", "said"),
    [
        ([{"grund": "slip+"}], "grund.*ground"),
        ([{"ground": "slip"}], "'slip'.*slip\\+"),
        ([{"ground": "glide"}], "glide.*stick"),
        ([{}, "impact wall", {}], "wall.*ground"),
        ([{}, "impact ground glide", {}], "glide"),
    ],
)
def test_what_a_system_does_not_have_is_named(items: list[object], said: str):
    """A `ModelError` with what was given, and what there is."""
    made = cell(NAMED["slip"], "fixed horizon")
    with pytest.raises(ModelError, match=said):
        ns.solve(made.ocp, ns.MultiPhase(sequence=ns.Sequence(items)))


def test_a_side_that_is_missing_is_named():
    """A switching function has no mode by default."""
    made = cell(NAMED["crossing"], "fixed horizon")
    with pytest.raises(ModelError, match="phase 1: the mode of line is missing"):
        ns.solve(made.ocp, ns.MultiPhase(sequence=ns.Sequence([{"line": "-"}, {}])))
