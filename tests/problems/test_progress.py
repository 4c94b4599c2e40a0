"""The progress of homotopies, searches and simulations, and its silence."""

from __future__ import annotations

import io
from collections.abc import Callable

import casadi as ca
import pytest
from rich.console import Console

import nosnoc_py as ns
from models import bouncing_ball
from nosnoc_py.progress import HEADER, SEARCH_HEADER, WIDTH, Progress

pytestmark = pytest.mark.quick


def console(terminal: bool = False) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=120, color_system=None)


def written(where: Console) -> str:
    assert isinstance(where.file, io.StringIO)
    return where.file.getvalue()


def solve(callback: Callable[..., None]) -> ns.Solution:
    ocp = ns.OCP(bouncing_ball.build(), horizon=0.2, x0=[1.0, 0.0])
    return ns.solve(ocp, ns.FESDJ(control_stages=2), callback=callback)


def simulate(callback: Callable[..., None]) -> ns.Trajectory:
    return ns.simulate(
        bouncing_ball.build(), method=ns.FESDJ(), x0=[1.0, 0.0], duration=1.0, steps=10, callback=callback
    )


@pytest.mark.parametrize("run", [solve, simulate])
def test_silent_without_a_terminal(run: Callable[..., ns.Trajectory], capfd: pytest.CaptureFixture[str]) -> None:
    where = console()
    with Progress(console=where) as progress:
        assert run(progress).success
    assert written(where) == ""
    with Progress() as progress:
        run(progress)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("inside", [True, False])
def test_one_line_for_every_step_of_the_homotopy(inside: bool) -> None:
    where = console()
    progress = Progress(console=where, force=True)
    if inside:
        with progress:
            solution = solve(progress)
    else:
        solution = solve(progress)
    lines = [line.rstrip() for line in written(where).splitlines() if line.strip()]
    assert lines[0] == HEADER
    steps = [line for line in lines[1:] if line.split()[0].isdigit()]
    label = slice(6, 6 + WIDTH)
    shown = [(int(line[:4]), line[label].strip(), int(line.split()[-1])) for line in steps]
    assert shown == [(record.step, record.label, record.iterations) for record in solution.log]
    assert {len(line) for line in steps} == {len(HEADER)}  # in columns


def test_lines_of_a_search() -> None:
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u)
    ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_constraints=[ns.Constraint(q, 1, 1)])
    where, search = console(), ns.Search(effort="quick", starts=("constant",))
    progress, state = Progress(console=where, force=True), search.init(ocp)
    progress(state)
    assert written(where) == ""
    state = search.step(state)
    progress(state)
    progress(state)  # nothing new
    header, line = written(where).splitlines()
    best = state.best
    assert best is not None
    assert header == SEARCH_HEADER
    assert line.split()[:2] == ["1", "constant"]
    assert float(line.split()[3]) == pytest.approx(best.solution.objective, rel=1e-7)


def test_bar_of_a_simulation() -> None:
    where = console(terminal=True)
    with Progress(console=where) as progress:
        progress.expect(steps=10)
        simulate(progress)
        assert progress._live.tasks[0].percentage == pytest.approx(100.0)
    assert "\x1b[?25h" in written(where)  # the cursor is back


def test_bar_in_units_of_time() -> None:
    with Progress(duration=2.0, console=console(terminal=True)) as progress:
        simulate(progress)
        assert progress._live.tasks[0].percentage == pytest.approx(50.0)


def test_other_objects_are_passed_over() -> None:
    where = console()
    with Progress(console=where, force=True) as progress:
        progress("something else")
    assert "something" not in written(where)
