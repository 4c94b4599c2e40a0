"""Proofs that a program is infeasible or unbounded: made where there is one, and only there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.mpcc.proofs import Proofs
from nosnoc_py.mpcc.strategy import Solvers
from nosnoc_py.status import Stationarity, Status
from tests.mpcc.judge import residuals

NONE = np.zeros(0)


def proofs(mpcc: ns.MPCC) -> Proofs:
    return Solvers(mpcc).proofs


def stopped(mpcc: ns.MPCC, status: Status, p: object = None):
    """What a strategy that ended with this status at its start would return."""
    return ns.Homotopy().conclude(replace(ns.Homotopy().init(mpcc, p=p), status=status))


def choices(weights: list[float], target: float, **fields) -> ns.MPCC:
    """Every w_i is 0 or 1, and their weighted sum is the target."""
    w = ca.SX.sym("w", len(weights))
    return ns.MPCC.of_pairs(w=w, G=w, H=1 - w, g=ca.dot(ca.DM(weights), w) - target, objective=ca.sum1(w), **fields)


# Infeasible ----------------------------------------------------------------------------------------------------------


def test_a_sum_that_no_choice_of_sides_gives():
    """Sums of 2, 3, 4 are 0, 2, 3, ..., 7, 9: 1 and 8 are missed by 1 at most, shared between rows and pairs."""
    for target in (1.0, 8.0):
        found = proofs(choices([2, 3, 4], target)).feasibility(NONE, 1e-8)
        assert found.point is None
        assert 0.05 <= found.violation <= 1.0
        assert found.programs <= 15
    found = proofs(choices([2, 3, 4], 7.0)).feasibility(NONE, 1e-8)
    np.testing.assert_allclose(found.point, [0, 1, 1], atol=1e-6)
    assert found.violation == 0.0


def test_the_violation_is_the_smallest_there_is():
    """x >= 1.25 and x <= 1: 0.125 from both, in the user's units, whatever the scale of x."""
    for scale in (1e-5, 1.0, 1e5):
        w = ca.SX.sym("w", 2)
        rows = ca.vertcat(scale * w[0] - 1.25, 1 - scale * w[0])
        mpcc = ns.MPCC.of_pairs(w=w, G=w[0], H=w[1], g=rows, ubg=np.inf)
        found = proofs(mpcc).feasibility(NONE, 1e-8)
        assert found.violation == pytest.approx(0.125, rel=1e-6)
        assert sorted(found.rows[:2]) == [0, 1]


def test_a_message_names_the_rows_that_contradict_each_other(program):
    mpcc = program(
        ["x", "y"],
        lambda w: [(w[0], w[1])],
        rows=lambda w: [("floor", w[0], 1, np.inf), ("idle", w[1], -9, 9), ("ceiling", w[0], -np.inf, 0.5)],
    )
    state = stopped(mpcc, Status.LOCALLY_INFEASIBLE)
    assert state.status is Status.INFEASIBLE
    assert "violation of at least 0.25" in state.message
    assert "floor" in state.message
    assert "ceiling" in state.message
    assert "idle" not in state.message


def test_rows_that_are_not_affine_are_left_out_of_a_proof():
    """x >= 1 and y >= 1 beside x y = 0 is enough, whatever the sine asks for; without them nothing is proved."""
    w = ca.SX.sym("w", 2)
    fields = {
        "w": w,
        "G": w[0],
        "H": w[1],
        "ubg": np.inf,
        "g": ca.vertcat(w[0] - 1, w[1] - 1, ca.sin(w[0] + w[1]) - 0.5),
    }
    assert stopped(ns.MPCC.of_pairs(**fields), Status.NOT_COMPLEMENTARY).status is Status.INFEASIBLE
    curved = fields | {"g": ca.vertcat(ca.exp(w[0]) - 3, ca.exp(w[1]) - 3)}
    state = stopped(ns.MPCC.of_pairs(**curved), Status.LOCALLY_INFEASIBLE)
    assert state.status is Status.LOCALLY_INFEASIBLE
    assert state.message.startswith("not proved; largest residuals: 2.00e+00 equation g[0]")


def test_a_piecewise_affine_row_is_not_affine():
    """|x| = -1 + 2 |x|: x = 1 and x = -1, but no affine piece alone has both."""
    w = ca.SX.sym("w", 3)
    mpcc = ns.MPCC.of_pairs(w=w, G=w[1], H=w[2], g=ca.fabs(w[0]) - 1, lbw=[-9, 0, 0], ubw=[-0.5, 9, 9])
    assert not proofs(mpcc).exact
    assert proofs(mpcc).feasibility(NONE, 1e-8).violation == 0.0


def test_a_proof_is_of_its_parameters():
    w, p = ca.SX.sym("w", 2), ca.SX.sym("p")
    mpcc = ns.MPCC.of_pairs(
        w=w, p=p, G=w[0], H=w[1], g=ca.vertcat(w[0] - p, w[1] - p), ubg=np.inf, objective=ca.sum1(w)
    )
    homotopy, solvers = ns.Homotopy(), Solvers(mpcc)
    for value, status in (
        (1.0, Status.INFEASIBLE),
        (0.0, Status.SOLVED),
        (2.0, Status.INFEASIBLE),
        (-1.0, Status.SOLVED),
    ):
        assert homotopy.run(mpcc, p=[value], solvers=solvers).status is status


@pytest.mark.parametrize("solver", [ns.Auto(restarts=0), ns.ActiveSet(), ns.Homotopy()], ids=repr)
def test_a_feasible_program_is_never_called_infeasible(solver):
    """One iteration of IPOPT is too few for anything."""
    mpcc = choices([2, 3, 4], 7.0, w0=0.5)
    for limit in (0, 1):
        first = {"ipopt": {"max_iter": limit}}
        chosen = (
            ns.ActiveSet(homotopy=ns.Homotopy(**first)) if isinstance(solver, ns.ActiveSet) else solver.replace(**first)
        )
        result = ns.solve_mpcc(mpcc, chosen)
        assert result.status not in (Status.INFEASIBLE, Status.UNBOUNDED)
        assert not result.success or max(residuals(mpcc, result.w)) <= 1e-8


def test_a_search_that_gets_too_long_proves_nothing():
    """Half of an odd number of ones: 2^13 branches at least."""
    mpcc = choices([1.0] * 25, 12.5)
    found = proofs(mpcc).feasibility(NONE, 1e-8)
    assert found.violation == 0.0
    assert found.point is None
    assert stopped(mpcc, Status.LOCALLY_INFEASIBLE).status is Status.LOCALLY_INFEASIBLE
    assert proofs(mpcc).feasibility(NONE, 1e-8, deadline=0.0).programs == 0


# Unbounded -----------------------------------------------------------------------------------------------------------


def plane(objective: Callable[[ca.SX, ca.SX], ca.SX], **fields) -> ns.MPCC:
    w = ca.SX.sym("w", 2)
    return ns.MPCC.of_pairs(w=w, G=w[0], H=w[1], objective=objective(w[0], w[1]), **fields)


def test_a_ray_is_feasible_and_descends_at_its_slope():
    """Along x = 2 y in one branch, where H is held; Q has no part in it."""
    w = ca.SX.sym("w", 4)
    x, y, G, H = ca.vertsplit(w)
    mpcc = ns.MPCC.of_pairs(w=w, G=G, H=H, objective=(x - 2 * y) ** 2 - y + 3 * G + H, g=H - 1, ubg=np.inf)
    ray, complete = proofs(mpcc).ray(NONE, 1e-8)
    assert complete
    assert ray is not None
    np.testing.assert_allclose(ray.d[[0, 2, 3]] / ray.d[1], [2.0, 0.0, 0.0], atol=1e-9)
    f = ca.Function("f", [w], [mpcc.objective])
    for t in (1.0, 1e3, 1e6):
        there = ray.point + t * ray.d
        assert max(residuals(mpcc, there)) <= 1e-6
        assert float(f(there) - f(ray.point)) == pytest.approx(t * ray.slope, rel=1e-6)


BOUNDED = {
    "a curved objective": plane(lambda x, y: x**2 + y**2 - 5 * x),
    "a box": plane(lambda x, y: -x, ubw=1e9),
    "a row": plane(lambda x, y: -x - y, g=ca.SX(0, 1), ubw=[7.0, 8.0]),
    "a ray in an empty branch": plane(lambda x, y: x - y, lbw=[1.0, 0.0]),
    "a ray between branches": plane(lambda x, y: (x - y) ** 2 - x - y),
}


@pytest.mark.parametrize("mpcc", BOUNDED.values(), ids=BOUNDED)
def test_what_is_bounded_has_no_ray(mpcc):
    assert proofs(mpcc).ray(NONE, 1e-8) == (None, True)
    result = ns.solve_mpcc(mpcc, ns.ActiveSet())
    assert result.success
    assert result.stationarity is Stationarity.S


@pytest.mark.parametrize("solver", [ns.Auto(), ns.ActiveSet(), ns.Homotopy()], ids=repr)
def test_an_unbounded_program_is_named_so(solver):
    result = ns.solve_mpcc(plane(lambda x, y: -x - y, w0=1.0), solver)
    assert result.status is Status.UNBOUNDED
    assert result.message.startswith("proved: the objective falls without limit along a ray")
    assert result.iterations < 600  # it does not go on


def test_a_local_solution_of_an_unbounded_program_says_both():
    """(1, 0) is a local minimum: y has to stay where it is as long as x > 0. Along x = 0 there is none."""
    mpcc = plane(lambda x, y: (x - 1) ** 2 - y, w0=[1.0, 0.0])
    state = ns.Homotopy().init(mpcc)
    ended = ns.Homotopy().conclude(replace(state, status=Status.SOLVED))
    assert ended.status is Status.UNBOUNDED
    assert "+1 in w_1" in ended.message
    assert ended.message.endswith("; the point is a local solution")
    elsewhere = ns.Homotopy().init(mpcc, [0.5, 0.0])
    assert not ns.Homotopy().conclude(replace(elsewhere, status=Status.SOLVED)).message.endswith("local solution")


def test_what_runs_away_without_a_proof_says_so():
    """Not quadratic: no proof, and the message does not claim one."""
    mpcc = plane(lambda x, y: -(x**3) - y, w0=1.0)
    result = ns.solve_mpcc(mpcc, ns.Homotopy())
    assert not result.success
    assert not result.message.startswith("proved")
    far = replace(ns.Homotopy().init(mpcc, [0.0, 1e8]), status=Status.SOLVED)
    ended = ns.Homotopy().conclude(far)
    assert ended.status is Status.UNBOUNDED
    assert ended.message.startswith("not proved: the iterates run away, |w| = 1e+08")
    near = ns.Homotopy().conclude(replace(far, w=np.array([0.0, 1e3])))
    assert near.status is Status.SOLVED


def test_a_program_that_is_bounded_below_is_not_called_unbounded():
    mpcc = plane(lambda x, y: x**2 + y**2)
    far = replace(ns.Homotopy().init(mpcc, [1e13, 0.0]), status=Status.UNBOUNDED)
    ended = ns.Homotopy().conclude(far)
    assert ended.status is Status.ITERATION_LIMIT
    assert "bounded below" in ended.message
