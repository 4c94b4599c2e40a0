"""The progress of homotopies, searches and simulations, and its silence."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import casadi as ca
import pytest
from rich.console import Console

import nosnoc_py as ns
from models import bouncing_ball
from nosnoc_py import notices, progress
from nosnoc_py.progress import HEADER, ROWS, SEARCH_HEADER, WIDTH, ConsoleOutput, NotebookOutput, Progress

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
@pytest.mark.parametrize("inside", [True, False])
def test_a_pipe_has_the_first_state_and_the_last(
    run: Callable[..., ns.Trajectory], inside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SECONDS_IN_A_LOG", 1e6)
    where = console()
    shower = Progress(console=where)
    with shower if inside else nullcontext():
        assert run(shower).success
    lines = [line for line in written(where).splitlines() if line != HEADER]
    assert len(lines) == 2  # none in between before SECONDS_IN_A_LOG have passed
    assert lines[0] != lines[1]
    assert "\x1b" not in written(where)


def test_a_pipe_is_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    simulate(Progress())
    out, err = capfd.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith("t = 1.000 s of 1.000 s, 10 steps (")


def test_a_quiet_console_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    simulate(Progress(console=Console(quiet=True)))
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("inside", [True, False])
def test_one_line_for_every_step_of_the_homotopy(inside: bool) -> None:
    where = console()
    shower = Progress(console=where, force=True)
    with shower if inside else nullcontext():
        solution = solve(shower)
    lines = [line.rstrip() for line in written(where).splitlines() if line.strip()]
    assert lines[0] == HEADER
    steps = [line for line in lines[1:] if line.split()[0].isdigit()]
    label = slice(6, 6 + WIDTH)
    shown = [(int(line[:4]), line[label].strip(), int(line.split()[-1])) for line in steps]
    assert shown == [(record.step, progress._step(record.label), record.iterations) for record in solution.log]
    assert any("active-set finish" in label for _, label, _ in shown)
    assert {len(line) for line in steps} == {len(HEADER)}  # in columns


def test_lines_of_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "monotonic", lambda: 1000.0)
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u)
    ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_constraints=[ns.Constraint(q, 1, 1)])
    where, search = console(), ns.Search(effort="quick", starts=("constant",))
    shower, state = Progress(console=where, force=True), search.init(ocp)
    shower(state)
    assert written(where) == ""
    state = search.step(state)
    shower(state)
    shower(state)  # nothing new: no second row
    header, line, again = written(where).splitlines()
    assert again.startswith("1 start, latest constant, best objective")
    best = state.best
    assert best is not None
    assert header == SEARCH_HEADER
    assert line.split()[:2] == ["1", "constant"]
    assert float(line.split()[3]) == pytest.approx(best.solution.objective, rel=1e-7)


def bar(shower: Progress) -> Any:
    output = shower._output
    assert isinstance(output, ConsoleOutput)
    return output.bar.tasks[0]


def test_bar_of_a_simulation() -> None:
    where = console(terminal=True)
    with Progress(console=where) as shower:
        shower.expect(steps=10)
        simulate(shower)
        assert bar(shower).percentage == pytest.approx(100.0)
    assert "\x1b[?25h" in written(where)  # the cursor is back


def test_bar_in_units_of_time() -> None:
    with Progress(duration=2.0, console=console(terminal=True)) as shower:
        simulate(shower)
        assert bar(shower).percentage == pytest.approx(50.0)


def test_simulate_tells_its_duration_and_a_bar_needs_no_block() -> None:
    seen: list[float] = []

    class Watched(Progress):
        def __call__(self, state: Any) -> None:
            super().__call__(state)
            seen.append(bar(self).percentage)

    where = console(terminal=True)
    simulate(Watched(console=where))
    assert seen == pytest.approx([10.0 * k for k in range(1, 11)])
    assert written(where).endswith("\x1b[?25h") or "\x1b[?25h" in written(where)


def test_other_objects_are_passed_over() -> None:
    where = console()
    with Progress(console=where, force=True) as shower:
        shower("something else")
    assert "something" not in written(where)


def clock_of(shower: Progress, **known: float) -> str:
    return shower._clock(progress.Report(text="", **known))


def test_estimates_of_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "monotonic", lambda: 1000.0)
    shower = Progress(console=console())
    shower._began = 970.0
    assert clock_of(shower) == "30 s"
    assert clock_of(shower, completed=1.0, total=4.0) == "30 s, about 1 min 30 s left"
    assert clock_of(shower, completed=0.01, total=4.0) == "30 s"  # too early to tell
    assert clock_of(shower, completed=4.0, total=4.0) == "30 s"
    assert clock_of(shower, deadline=5000.5) == "30 s, at most 1 h 06 min left"
    shower.begin(time_limit=20.0)
    assert clock_of(shower).endswith("at most 20 s left")


def test_a_search_tells_its_own_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "monotonic", lambda: 1000.0)
    leader = SimpleNamespace(attempt=SimpleNamespace(solution=SimpleNamespace(success=True, objective=2.5)))
    state = SimpleNamespace(
        candidates=(SimpleNamespace(start="random"),),
        leader=leader,
        agreement=("random",),
        work=SimpleNamespace(started=1000.0),
        deadline=1040.0,
    )
    where = console()
    shower = Progress(console=where)
    with shower:
        shower(state)
        shower(state)
        output = shower._output
        assert isinstance(output, ConsoleOutput)
        assert output.clock.endswith("at most 40 s left")
    assert written(where).splitlines()[0] == SEARCH_HEADER
    assert "1 start, latest random, best objective 2.5" in written(where)
    assert "left" not in written(where)  # it has ended


class FakeDisplay:
    """What IPython's `display` does, for tests without a kernel."""

    def __init__(self) -> None:
        self.shown: list[list[Any]] = []

    def __call__(self, content: Any, *, display_id: bool) -> FakeDisplay:
        assert display_id
        self.shown.append([content])
        return self

    def update(self, content: Any) -> None:
        self.shown[-1].append(content)


def test_a_notebook_has_one_display_that_is_updated(monkeypatch: pytest.MonkeyPatch) -> None:
    display = FakeDisplay()
    monkeypatch.setattr(progress, "notebook_display", lambda: display)
    shower = Progress()
    solution = solve(shower)
    assert isinstance(shower._output, NotebookOutput)
    (pictures,) = display.shown
    last = repr(pictures[-1])
    assert last.splitlines()[0] == HEADER
    assert len(last.splitlines()) == 2 + len(solution.log)
    assert pictures[-1]._repr_html_().startswith("<pre>")
    simulate(shower)  # the next run, perhaps of another cell
    assert len(display.shown) == 2
    assert "t = 1.000 s of 1.000 s, 10 steps" in repr(display.shown[1][-1])


def test_a_notebook_shows_the_last_rows_and_escapes_them() -> None:
    display = FakeDisplay()
    output = NotebookOutput(display)
    for k in range(ROWS + 5):
        output.show(progress.Report(text="a < b", row=f"row {k}", header="rows"), "1 s")
    output.stop("1 s")
    text = repr(display.shown[0][-1])
    assert text.splitlines()[:3] == ["rows", "... 5 lines before", "row 5"]
    assert "a &lt; b (1 s)" in display.shown[0][-1]._repr_html_()


def test_no_notebook_without_a_kernel() -> None:
    assert progress.notebook_display() is None


def test_a_compilation_is_announced() -> None:
    where = console()

    @notices.reported
    def work(*, callback: Any = None) -> None:
        notices.notify(notices.COMPILING)

    work(callback=Progress(console=where))
    assert "half a minute" in written(where)
    work()  # nobody listens
    work(callback=print)


def test_a_run_inside_a_run_is_a_part_of_it() -> None:
    heard: list[str] = []

    class Listening:
        def begin(self, duration: Any = None, time_limit: Any = None) -> None:
            heard.append(f"begin {duration}")

        def notify(self, text: str) -> None:
            heard.append(text)

        def end(self) -> None:
            heard.append("end")

        def __call__(self, state: Any) -> None:
            pass

    @notices.reported
    def work(*, callback: Any = None, duration: float = 0.0) -> None:
        notices.notify("slow")
        if duration > 1.0:
            work(callback=callback, duration=1.0)
        if duration > 2.0:
            raise ValueError("broken")

    work(callback=Listening(), duration=2.0)
    assert heard == ["begin 2.0", "slow", "slow", "end"]
    with pytest.raises(ValueError, match="broken"):
        work(callback=Listening(), duration=3.0)
    assert heard[-1] == "end"
