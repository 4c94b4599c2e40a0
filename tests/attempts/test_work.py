"""Counted work: accounts add up, limits end solvers and simulations at the same place every time, seeds repeat."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.attempts import work
from nosnoc_py.attempts.work import count, counted, exhausted, left
from nosnoc_py.mpcc.ipopt import ITERATIONS_PER_QUESTION, Ipopt
from nosnoc_py.status import Status

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.quick
class TestAccounts:
    def test_work_counts_in_all_accounts_that_are_open(self) -> None:
        with counted() as outer:
            count(1.0)
            with counted() as inner:
                count(2.0)
                count(4.0)
            count(8.0)
        count(16.0)  # no account is open
        assert (inner.total, outer.total) == (6.0, 15.0)

    def test_the_least_that_is_left_is_the_limit(self) -> None:
        assert left() == np.inf
        assert not exhausted()
        with counted(4.0) as outer:
            with counted(10.0) as inner:
                count(3.0)
                assert (outer.left, inner.left, left()) == (1.0, 7.0, 1.0)
                assert not exhausted()
                count(1.0)
                assert exhausted()
                count(5.0)
                assert (outer.left, left()) == (0.0, 0.0)
            with counted(3.0):
                assert exhausted()  # that of the outer account
        assert not exhausted()

    def test_an_account_is_closed_by_an_error_and_belongs_to_its_thread(self) -> None:
        with pytest.raises(ValueError, match="broken"), counted(0.0):
            raise ValueError("broken")
        assert left() == np.inf
        elsewhere: list[float] = []

        def somewhere() -> None:
            elsewhere.append(left())
            count(5.0)

        with counted(1.0) as account:
            thread = threading.Thread(target=somewhere)
            thread.start()
            thread.join()
        assert elsewhere == [np.inf]
        assert account.total == 0.0

    def test_amounts_grow_with_what_is_evaluated(self) -> None:
        assert work.of_iteration(2e6, 1e4) == pytest.approx(2e-4 + 2e6 * 5e-9 + 1e4 * 1.5e-7, rel=1e-12)
        assert work.of_step(1e4) == pytest.approx(8e-4 + 40 * 5e-9 * 1e4, rel=1e-12)
        assert work.of_program(1e5) == pytest.approx(2e-2 + 6e-7 * 1e5, rel=1e-12)
        assert work.of_interior_iteration(2e6, 1e4) == pytest.approx(4.2e-4 + 2e6 * 2e-9 + 1e4 * 6e-8, rel=1e-12)
        assert work.of_numeric_program(1e5) == pytest.approx(9e-3 + 5e-7 * 1e5, rel=1e-12)

    def test_gaps_that_are_looked_at_between_steps_are_work(self) -> None:
        """A wavy ceiling that is never touched: about 450 gaps of 1e-4 units, of a motion with the same steps."""
        q, v, spent = ca.SX.sym("q"), ca.SX.sym("v"), []
        for waves in (1, 40):
            ceiling = ns.Contact("ceiling", gap=1.001 + ca.sin(waves * q), restitution=0.9)
            system = ns.CLS(q=q, v=v, mass_matrix=1, force=-q, contacts=[ceiling])
            with counted() as account:
                assert not ns.simulate(system, x0=[1.0, 0.0], duration=4.0).events
            spent.append(account.total)
        assert spent[1] - spent[0] == pytest.approx(0.045, rel=0.5)


def valley(size: int) -> Ipopt:
    """Rosenbrock's chain: about thirty iterations from -1.2."""
    x, p, weight, multipliers = ca.SX.sym("x", size), ca.SX(0, 1), ca.SX.sym("weight"), ca.SX(0, 1)
    f, g = 100 * ca.sumsqr(x[1:] - x[:-1] ** 2) + ca.sumsqr(1 - x[:-1]), ca.SX(0, 1)
    hessian = ca.triu(ca.hessian(weight * f, x)[0])
    none, names = np.zeros(0), ["x", "p", "lam_f", "lam_g"]
    derivatives = {
        "grad_f": ca.Function("nlp_grad_f", [x, p], [f, ca.gradient(f, x)], ["x", "p"], ["f", "grad_f_x"]),
        "jac_g": ca.Function("nlp_jac_g", [x, p], [g, ca.SX(0, size)], ["x", "p"], ["g", "jac_g_x"]),
        "hess_lag": ca.Function("nlp_hess_l", [x, p, weight, multipliers], [hessian], names, ["triu_hess_gamma_x_x"]),
    }
    limits = {"lbx": np.full(size, -5.0), "ubx": np.full(size, 5.0), "lbg": none, "ubg": none}
    return Ipopt(SimpleNamespace(x=x, p=p, f=f, g=g, derivatives=derivatives, **limits), {})


@pytest.mark.quick
class TestLimits:
    def test_ipopt_ends_after_the_same_iterations_every_time(self) -> None:
        solver, x, once = valley(10), np.full(10, -1.2), ITERATIONS_PER_QUESTION
        with counted() as account:
            free = solver.solve(x, np.empty(0))
        assert free.converged
        assert free.iterations > 2 * once
        iteration = account.total / (1 + free.iterations)
        for iterations in (2.5 * once, 2.5 * once, 1.5 * once):
            with counted(iterations * iteration) as limited:
                stopped = solver.solve(x, np.empty(0))
            assert not stopped.converged
            assert not stopped.interrupted
            # It asks every so many iterations, and does not begin with those that it could not end.
            assert stopped.iterations == once * int(iterations / once - 0.5)
            assert limited.total == pytest.approx(iteration * (1 + stopped.iterations), rel=1e-12)
            assert limited.total < limited.limit

    def test_a_program_counts_by_its_size(self) -> None:
        iterations = []
        for size in (10, 19):
            solver = valley(size)
            with counted() as account:
                result = solver.solve(np.full(size, -1.2), np.empty(0))
            iterations.append(account.total / (1 + result.iterations) - work.ITERATION)
        assert iterations[1] / iterations[0] == pytest.approx(2.0, rel=0.05)

    @pytest.mark.parametrize("system", ["ball", "relay"])
    def test_a_simulation_ends_at_the_same_time(self, system: str) -> None:
        q, v = ca.SX.sym("q"), ca.SX.sym("v")
        if system == "ball":
            ground = ns.Contact("ground", gap=q, restitution=0.9)
            plant: Any = ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81 + 0.1 * ca.sin(9 * q), contacts=[ground])
        else:
            x = ca.vertcat(q, v)
            sides = ns.Modes(
                "side", flows=[ca.vertcat(v, -q - 1), ca.vertcat(v, -q + 1)], functions=q, signs=[[1], [-1]]
            )
            plant = ns.PSS(x=x, modes=sides)
        with counted() as account:
            whole = ns.simulate(plant, x0=[1.0, 0.0], duration=8.0)
        assert whole.success
        ends = []
        for share in (0.5, 0.5, 0.25):
            with counted(share * account.total) as limited:
                part = ns.simulate(plant, x0=[1.0, 0.0], duration=8.0)
            assert part.status is Status.WORK_LIMIT
            # It ends within the step that reaches the limit.
            assert limited.total == pytest.approx(share * account.total, rel=0.2)
            ends.append(part.t[-1])
        assert ends[0] == ends[1]
        assert 0.0 < ends[2] < ends[0] < 8.0


def wall() -> ns.OCP:
    """A mass that flies against a wall 1 m away with 3 m/s, and has to be back at 0 after 1 s."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    s = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q, restitution=0.3)])
    back = ns.Constraint(q, 0.0, 0.0, name="back")
    bounds = ns.Bounds(u=(-30, 30))
    return ns.OCP(s, horizon=1.0, x0=[0, 3], stage_cost=u**2, terminal_constraints=[back], bounds=bounds)


def candidates(seed: int, turns: int = 4) -> tuple[list[Any], list[float]]:
    """The first turns of a search: kinds, sequences and verdicts; objectives and work."""
    search = ns.Search(effort="quick", seed=seed, starts=("random", "line", "moves"))
    state = search.init(wall())
    for _ in range(turns):
        state = search.step(state)
    found = [[c.start, repr(c.sequence), str(c.verdict)] for c in state.candidates]
    return found, [number for c in state.candidates for number in (min(c.objective, 1e9), c.work)]


SCRIPT = "import json, runpy, sys; print(json.dumps(runpy.run_path(sys.argv[1])['candidates'](3)))"


def test_the_same_seed_gives_the_same_candidates_and_work() -> None:
    """In one process, and in another one whose sets have another order: no clock and no hash decides."""
    found, numbers = candidates(3)
    assert len({kind for kind, *_ in found}) > 1
    environment = {**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": str(ROOT)}
    printed = subprocess.check_output([sys.executable, "-c", SCRIPT, __file__], env=environment, text=True, timeout=600)
    for again in (candidates(3), json.loads(printed)):
        assert again[0] == found
        assert again[1] == pytest.approx(numbers, rel=1e-9)
    assert candidates(4)[1] != pytest.approx(numbers, rel=1e-3)
