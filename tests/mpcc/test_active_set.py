"""Branch switching: from a corner where the homotopy's branch ends along the LPEC's direction to a better one."""

from itertools import pairwise

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.mpcc.branch import Finish
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.status import Stationarity, Status
from tests.mpcc.judge import residuals

pytestmark = pytest.mark.quick

# One relaxation, and whatever branch it shows is believed.
HASTY = ns.Homotopy(sigma_0=0.1, sigma_min=0.1, finish_threshold=1.0)


def corner(copies=1):
    """min (x - 1)^2 + (y - 0.2)^2 with x <= 2 y, `copies` times.

    Relaxed, x > y, which shows the branch y = 0. There x <= 0, so it ends at the origin (1.04), from which y descends:
    M-stationary with nu = (0, -0.4) less the constraint's multiplier. The other branch has the solution (0, 0.2) (1.0).
    """
    w = ca.SX.sym("w", 2 * copies)
    x, y = w[:copies], w[copies:]
    objective = ca.sumsqr(x - 1) + ca.sumsqr(y - 0.2)
    return MPCC.of_pairs(w=w, G=x, H=y, objective=objective, g=x - 2 * y, lbg=-np.inf, ubg=0.0, w0=0.5)


@pytest.mark.parametrize("steering", ["direct", "l_inf"])
@pytest.mark.parametrize("copies", [1, 2, 7])
def test_a_better_branch_is_found(copies, steering):
    mpcc, homotopy = corner(copies), HASTY.replace(steering=steering)
    moved = ns.solve_mpcc(mpcc, ns.ActiveSet(homotopy=homotopy))
    assert moved.success
    assert moved.stationarity is Stationarity.S
    np.testing.assert_allclose(moved.w, np.repeat([0.0, 0.2], copies), atol=1e-7)
    assert moved.objective == pytest.approx(1.0 * copies, abs=1e-7)
    assert [record.label.split()[0] for record in moved.log] == [
        "homotopy",
        "finish",
        "certificate",
        "branch",
        "certificate",
    ]
    objectives = [record.objective for record in moved.log[1:]]
    assert objectives == sorted(objectives, reverse=True)
    assert max(residuals(mpcc, moved.w)) <= 1e-10
    assert moved.complementarity_min <= 1e-10


def test_without_switches_the_corner_stays(monkeypatch):
    """The negative control: the same point is found, and said to be what it is."""
    monkeypatch.setattr("nosnoc_py.mpcc.active_set.MOST_SWITCHES", 0)
    stayed = ns.solve_mpcc(corner(), ns.ActiveSet(homotopy=HASTY))
    assert stayed.success  # feasible and complementary
    np.testing.assert_allclose(stayed.w, [0, 0], atol=1e-7)
    assert stayed.objective == pytest.approx(1.04, abs=1e-7)
    assert stayed.stationarity is Stationarity.M
    assert stayed.certificate.b_stationary is False
    assert stayed.certificate.lpec_value == pytest.approx(-0.4, abs=1e-6)  # slope of (y - 0.2)^2
    assert stayed.biactive == ("G[0] * H[0]",)
    assert [record.label.split()[0] for record in stayed.log] == ["homotopy", "finish", "certificate"]


def test_switches_are_counted_and_limited():
    state = ns.ActiveSet(homotopy=HASTY).run(corner(3))
    assert state.switches == 1  # all three pairs at once
    assert state.branch.G.tolist() == [True] * 3
    assert state.branch.H.tolist() == [False] * 3


def ladder():
    """Two corners, the second of which opens only with the first: v <= y."""
    w = ca.SX.sym("w", 4)
    x, y, u, v = ca.vertsplit(w)
    return MPCC.of_pairs(
        w=w,
        G=ca.vertcat(x, u),
        H=ca.vertcat(y, v),
        objective=(x - 1) ** 2 + (y - 0.2) ** 2 + (u - 1) ** 2 + (v - 0.2) ** 2 + 0.1 * v,
        g=ca.vertcat(x - 2 * y, u - 2 * v, v - y),
        lbg=-np.inf,
        ubg=0.0,
        w0=0.5,
    )


def test_every_switch_lowers_the_objective():
    result = ns.solve_mpcc(ladder(), ns.ActiveSet(homotopy=HASTY))
    assert result.success
    assert result.stationarity in (Stationarity.S, Stationarity.B)
    values = [record.objective for record in result.log if record.label.split()[0] in ("finish", "branch")]
    assert all(after < before + 1e-9 for before, after in pairwise(values))
    # the best of all four branches, one by one: x = 0 or y = 0, u = 0 or v = 0
    corners = {
        "x u": (1 + 0.0) + (1 + min((v - 0.2) ** 2 + 0.1 * v for v in np.linspace(0, 0.2, 2001))),
        "x v": 1 + 0.0 + 1 + 0.04,  # v = 0 and u <= 0
        "y u": 1 + 0.04 + 1 + 0.04,  # y = 0: x <= 0 and v <= 0
        "y v": 1 + 0.04 + 1 + 0.04,
    }
    assert result.objective == pytest.approx(min(corners.values()), abs=1e-6)


def test_a_branch_that_does_not_help_is_given_back(monkeypatch):
    """The NLP on the new branch is broken: the certified corner is the result, and it is said to be M only."""
    original = Finish.__call__

    def broken(self, w, p, deadline, way="hold", branch=None):
        outcome = original(self, w, p, deadline, way, branch)
        if branch is not None:
            outcome = type(outcome)(**{**vars(outcome), "w": np.array([5.0, 5.0])})
        return outcome

    monkeypatch.setattr(Finish, "__call__", broken)
    result = ns.solve_mpcc(corner(), ns.ActiveSet(homotopy=HASTY))
    assert result.log[-1].label == "branch"
    assert result.success
    assert result.stationarity is Stationarity.M
    np.testing.assert_allclose(result.w, [0, 0], atol=1e-7)


def test_what_the_homotopy_does_not_solve_is_not_certified():
    result = ns.solve_mpcc(corner(), ns.ActiveSet(homotopy=ns.Homotopy(max_iterations=1, finish="none")))
    assert not result.success
    assert result.certificate is None
    assert result.stationarity is Stationarity.UNKNOWN
    assert {record.label for record in result.log} == {"homotopy"}


def test_tolerances_are_those_of_the_strategy():
    loose = ns.ActiveSet(homotopy=ns.Homotopy(finish="none", sigma_min=1e-3), complementarity_tolerance=0.1)
    state = loose.run(corner())
    assert state.status is Status.SOLVED
    assert 1e-6 < state.complementarity <= 0.1
    strict = loose.replace(complementarity_tolerance=1e-8).run(corner())
    assert strict.status is Status.NOT_COMPLEMENTARY
