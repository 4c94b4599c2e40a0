"""Relaxed programs by solvers that CasADi's installation loads."""

from __future__ import annotations

import time
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.errors import OptionError
from nosnoc_py.mpcc.plugin import Plugin, is_plugin
from nosnoc_py.mpcc.strategy import Solvers


def corner() -> ns.MPCC:
    """The minimum of a parabola on the axes, at (2, 0) with objective 1."""
    w = ca.SX.sym("w", 2)
    objective = (w[0] - 2) ** 2 + (w[1] - 1) ** 2
    return ns.MPCC.of_pairs(w=w, G=w[0], H=w[1], objective=objective, lbw=0.0, w0=0.5)


@pytest.mark.parametrize(
    "name",
    ["sqpmethod", "fatrop", "sleqp", "uno"],  # "qrsqp" prints a message whatever its options
)
def test_the_plugins_solve_the_relaxed_programs(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    if not is_plugin(name):
        pytest.skip(f"this CasADi has no {name}")
    result = ns.solve_mpcc(corner(), ns.Homotopy(nlp_solver=name))
    assert result.success
    assert result.w == pytest.approx([2.0, 0.0], abs=1e-8)
    assert result.objective == pytest.approx(1.0, abs=1e-8)
    relaxed = [line for line in result.log if line.label != "finish"]
    assert len(relaxed) >= 3
    assert all(line.solver_status == "Solve_Succeeded" and line.iterations > 0 for line in relaxed)
    assert capfd.readouterr().out == ""  # the library is silent


def test_options_are_those_of_the_plugin() -> None:
    few = ns.solve_mpcc(corner(), ns.Homotopy(nlp_solver="sqpmethod", max_iterations=1, finish="none"))
    assert max(line.iterations for line in few.log) == 1
    behind = ns.Homotopy(nlp_solver="fatrop", ipopt={"max_iter": 2}, finish="none")
    assert max(line.iterations for line in ns.solve_mpcc(corner(), behind).log) <= 3  # it counts the start, too
    assert max(line.iterations for line in ns.solve_mpcc(corner(), behind.replace(ipopt={})).log) > 5
    with pytest.raises(OptionError, match="'sqpmethod' has no option 'bound_push'"):
        ns.solve_mpcc(corner(), ns.Homotopy(nlp_solver="sqpmethod", ipopt={"bound_push": 1e-3}))


def test_a_name_that_is_no_plugin() -> None:
    with pytest.raises(OptionError, match="'ipopt', 'interior_point' or a plugin of CasADi"):
        ns.Homotopy(nlp_solver="no_such_solver")
    assert not is_plugin("")
    assert not is_plugin("../sqpmethod")


def test_a_deadline_that_has_passed_ends_the_run() -> None:
    solvers = Solvers(corner())
    solver: Any = solvers.relaxed("scholtes", "direct", {"max_iter": 50}, "sqpmethod")
    assert isinstance(solver, Plugin)
    assert solvers.relaxed("scholtes", "direct", {"max_iter": 50}, "sqpmethod") is solver
    start, parameters = np.array([0.5, 0.5]), np.array([1.0, 1.0])
    late = solver.solve(start, parameters, deadline=time.monotonic() - 1.0)
    assert (late.converged, late.iterations, late.x.tolist()) == (False, 0, [0.5, 0.5])
    assert solver.solve(start, parameters).converged
