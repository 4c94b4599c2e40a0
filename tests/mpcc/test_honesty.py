"""Points that once passed for solved or certified and are not."""

from __future__ import annotations

import threading
from dataclasses import replace

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.errors import ModelError, OptionError
from nosnoc_py.mpcc.branch import Finish
from nosnoc_py.mpcc.linearization import Linearizer
from nosnoc_py.mpcc.stationarity import certify
from nosnoc_py.status import Status

pytestmark = pytest.mark.quick


def plane(objective, **fields) -> ns.MPCC:
    x = ca.SX.sym("x", 2)
    return ns.MPCC.of_pairs(w=x, G=x[0], H=x[1], objective=objective(x[0], x[1]), **fields)


def test_what_falls_without_limit_is_not_solved() -> None:
    result = ns.solve_mpcc(plane(lambda x, y: -x - y, w0=1.0), ns.Auto(restarts=0))
    assert not result.success
    bounded = ns.solve_mpcc(plane(lambda x, y: -x - y, w0=1.0, ubw=1e6))
    assert bounded.success
    assert bounded.objective == pytest.approx(-1e6, rel=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_objective_that_is_no_number_is_an_error(value: float) -> None:
    with pytest.raises(ModelError, match="objective: expected expressions of w and p or finite numbers"):
        plane(lambda x, y: ca.SX(value))


def test_a_steep_gradient_elsewhere_proves_nothing() -> None:
    """IPOPT fails at the root's vertical tangent; |grad f| there must not excuse a slope in y."""
    result = ns.solve_mpcc(plane(lambda x, y: ca.sqrt(x) + (y - 1) ** 2, w0=0.5))
    assert not result.success or result.w[1] == pytest.approx(1.0, abs=1e-3)


def cusp(sigma_min: float) -> ns.MPCCResult:
    """Where G = 0 and H = sigma, the relaxed set of `steffensen_ulbrich` ends in a cusp; optima are (0, 1), (1, 0)."""
    mpcc = plane(lambda x, y: (x - 1) ** 2 + (y - 1) ** 2, w0=1.0)
    return ns.solve_mpcc(mpcc, ns.Homotopy(relaxation="steffensen_ulbrich", finish="none", sigma_min=sigma_min))


def test_a_cusp_of_the_relaxed_set_is_no_optimum() -> None:
    """IPOPT converges there to an acceptable level, with multipliers of 1e9, though H descends with slope 1.8."""
    stopped = cusp(0.1)
    assert stopped.status is Status.NOT_AN_OPTIMUM
    assert stopped.complementarity <= 1e-8
    assert stopped.infeasibility <= 1e-8
    assert "cusp" in ns.explain(stopped)
    result = cusp(1e-9)
    assert result.success
    assert result.stationarity is ns.Stationarity.S
    assert sorted(result.w) == pytest.approx([0.0, 1.0], abs=1e-8)


def test_a_state_on_the_way_can_be_judged() -> None:
    """Steps of the homotopy towards (0, 1): of no kind while relaxed, S-stationary at the end."""
    homotopy = ns.Homotopy(finish="none")
    mpcc = plane(lambda x, y: (x - 1) ** 2 + (y - 1) ** 2, w0=[0.1, 1.0])
    state = homotopy.step(homotopy.init(mpcc))
    assert homotopy.certify(state).stationarity is ns.Stationarity.UNKNOWN
    end = homotopy.run(mpcc)
    found = homotopy.certify(end, biactive_tolerance=1e-6)
    assert found.stationarity is ns.Stationarity.S
    assert repr(found).startswith("Certificate: stationarity S, B-stationary, slope ")
    with pytest.raises(OptionError, match="state"):
        homotopy.certify(mpcc)


def test_without_a_look_at_the_multipliers_the_cusp_passes_for_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nosnoc_py.mpcc.homotopy.HUGE_MULTIPLIER", np.inf)
    result = cusp(1e-9)
    assert result.success
    assert result.stationarity is ns.Stationarity.UNKNOWN
    assert result.objective == pytest.approx(1 + 0.9**2, rel=1e-3)  # at (0, 0.1)


def test_a_tiny_entry_with_a_large_multiplier_is_not_overlooked() -> None:
    """z2 = -y exactly, through coefficients 1e-9, 1e6 and 1e3: y descends with slope one."""
    w = ca.SX.sym("w", 5)
    y, s, x, z1, z2 = ca.vertsplit(w)
    rows = ca.vertcat(x + 1e-9 * y, z1 - 1e6 * x, z2 - 1e3 * z1)
    mpcc = ns.MPCC.of_pairs(w=w, g=rows, G=y, H=s, objective=z2, ubw=[1, 5, np.inf, np.inf, np.inf])
    at_zero = Linearizer(mpcc)(np.zeros(5), np.zeros(0))
    assert certify(mpcc, at_zero, np.zeros(5)).b_stationary is not True


def test_threads_may_share_what_is_built() -> None:
    mpcc = plane(lambda x, y: (x - 1) ** 2 + (y - 2) ** 2, w0=0.3)
    solvers, found = ns.Homotopy().build(mpcc), []

    def work() -> None:
        found.extend(ns.Homotopy().run(mpcc, solvers=solvers) for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 20
    assert all(state.status is Status.SOLVED and abs(state.values.objective - 1.0) <= 1e-8 for state in found)


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ({"time_limit": "1"}, "time_limit: expected a number of seconds"),
        ({"time_limit": -1.0}, "time_limit: expected a number of seconds"),
        ({"time_limit": np.nan}, "time_limit: expected a number of seconds"),
        ({"callback": 3}, "callback: expected a function"),
    ],
)
def test_arguments_are_checked(argument, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        ns.solve_mpcc(plane(lambda x, y: x + y), **argument)


def test_a_certificate_is_of_the_point_it_stands_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """The penalty moves the first point of the finish away from the optimum; the certificate is of the second."""
    call = Finish.__call__

    def unconverged(self, w, p, deadline, way="hold", branch=None):
        found = call(self, w, p, deadline, way, branch)
        return replace(found, converged=way != "penalise" and found.converged)  # so that the first one is certified

    monkeypatch.setattr(Finish, "__call__", unconverged)
    x = ca.SX.sym("x", 3)
    mpcc = ns.MPCC.of_pairs(
        w=x, G=x[0], H=x[1], objective=(x[0] - 1) ** 2 + x[1] + (x[2] - 1) ** 2, penalty=(x[2] + 1) ** 2, w0=0.5
    )
    result = ns.solve_mpcc(mpcc, ns.Homotopy(steering="l_inf"))
    assert result.success
    np.testing.assert_allclose(result.w, [1.0, 0.0, 1.0], atol=1e-5)
    assert result.stationarity is ns.Stationarity.S
