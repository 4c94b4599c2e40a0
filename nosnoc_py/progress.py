"""Progress of solvers, searches, simulations and sweeps: one callback for a terminal, a notebook and a log file.

A state becomes a `Report` (a line that says where the work stands, perhaps a row of a table, perhaps a fraction). Where
reports go is decided once, at the first of them:

- a terminal: rows as lines, and below them a bar of the package rich;
- a notebook: one display, replaced by each report (IPython is there, since it shows the notebook);
- everything else (a pipe, a log file): the first report, then one every few seconds, and the last.
"""

from __future__ import annotations

import html
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

from nosnoc_py.arguments import named_arguments
from nosnoc_py.mpcc.strategy import SolverState
from nosnoc_py.simulation.common import StepState

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 38  # of the column with the kind of step, e.g. "elastic (sigma 10): active-set finish"
HEADER = (
    f"{'step':>4}  {'solved problem':<{WIDTH}}{'sigma':>8}{'objective':>15}{'complement.':>13}"
    f"{'infeasib.':>11}{'iterations':>12}"
)
SEARCH_HEADER = f"{'starts':>6}  {'kind of start':<16}{'seconds':>9}{'best objective':>17}  confirmed by starts of kind"
# Labels of steps that are words of the code, in those of the field.
STEPS = {
    "finish": "active-set finish",
    "branch": "fixed active set",
    "lpec": "LPEC",
    "elastic from afar": "elastic (sigma 10)",
}
SECONDS_BETWEEN_LINES = 2.0  # on a terminal, of methods with many cheap steps
SECONDS_IN_A_LOG = 10.0  # in a pipe: a night of work is some thousand lines
SECONDS_BETWEEN_DISPLAYS = 0.2  # in a notebook: more would flood the connection to the browser
ROWS = 25  # of the table in a notebook; earlier ones are left out
SURE = 0.02  # fraction of the work before which an estimate of the time left is worthless


@dataclass(frozen=True, kw_only=True)
class Report:
    """One state of some work, in words.

    Parameters
    ----------
    text : str
        Where the work stands, in one line without the time.
    row, header : str
        Line of a table and the titles of its columns; empty where there is no table.
    event : str
        Something that happens once and has to be read, such as a run of a sweep that failed.
    completed, total : float, optional
        How much of the work is done, where this is known.
    deadline : float, optional
        Stamp of monotonic() at which the work ends at the latest.
    """

    text: str
    row: str = ""
    header: str = ""
    event: str = ""
    completed: float | None = None
    total: float | None = None
    deadline: float | None = None


@named_arguments
class Progress:
    """Show how far a solver, a search, a simulation or a sweep is: `callback=ns.Progress()`.

    On a terminal it writes lines to standard error with a bar below; in a notebook it keeps one display up to date;
    into a pipe or a file it writes a plain line now and then. Where the end is known (the interval of a simulation, the
    runs of a sweep) it estimates the time left, else it says how much of the time limit is left. It announces the
    compilation of loops by numba, which takes about half a minute the first time.

    Parameters
    ----------
    duration : float, optional
        End of the simulation [s]; `ns.simulate` tells it by itself.
    steps : int, optional
        Number of simulation steps to come, over all simulations that share this object; the bar then counts steps.
    force : bool
        Write every line even if the output is no terminal, plainly and without a display in a notebook.
    console : rich.console.Console, optional
        Where to write instead of standard error or the notebook.

    Examples
    --------
    >>> import io, casadi as ca, nosnoc_py as ns
    >>> from rich.console import Console
    >>> x = ca.SX.sym("x")
    >>> log = Console(file=io.StringIO(), force_terminal=False)
    >>> motion = ns.simulate(ns.ODE(x=x, flow=-x), x0=[1.0], duration=2.0, callback=ns.Progress(console=log))
    >>> log.file.getvalue().splitlines()[-1].startswith("t = 2.000 s of 2.000 s")
    True

    Several pieces of work, such as the simulations of a study, share a bar as a context manager:

    >>> with ns.Progress(steps=40, console=log) as progress:
    ...     for rate in (1.0, 2.0):
    ...         decay = ns.ODE(x=x, flow=-rate * x)
    ...         motion = ns.simulate(decay, x0=[1.0], duration=1.0, method=ns.FESD(), steps=20, callback=progress)
    >>> "40 steps" in log.file.getvalue().splitlines()[-1]
    True
    """

    def __init__(
        self,
        *,
        duration: float | None = None,
        steps: int | None = None,
        force: bool = False,
        console: Console | None = None,
    ) -> None:
        self.duration, self.steps = duration, steps
        self._force, self._console = force, console
        self._output: ConsoleOutput | NotebookOutput | None = None
        self._held = False  # as a context manager: it ends with the block, not with a run inside
        self._running = False
        self._reset(None, None)

    def _reset(self, duration: float | None, time_limit: float | None) -> None:
        self._began = self._last_line = monotonic()
        self._span = duration
        self._deadline = None if time_limit is None else self._began + time_limit
        self._count = 0
        self._best: Any = None

    def __call__(self, state: Any) -> None:
        """Show one state; an object of a kind that it does not know is passed over."""
        report = self._report(state)
        if report is not None:
            self._where.show(report, self._clock(report))

    def _report(self, state: Any) -> Report | None:
        if isinstance(state, SolverState):
            return self._solver(state)
        if isinstance(getattr(state, "records", None), tuple):
            return self._iteration(state)
        if isinstance(getattr(state, "candidates", None), tuple):
            return self._search(state)
        if isinstance(getattr(state, "finished", None), int):
            return self._sweep(state)
        return self._simulation(state) if isinstance(state, StepState) else None

    def expect(self, steps: int) -> None:
        """Announce the number of simulation steps to come, from the beginning.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> progress = ns.Progress()
        >>> progress.expect(200)  # the bar counts to 200 steps
        >>> progress.steps
        200
        """
        self.steps = steps
        if self._running:
            self._where.start(steps)

    def describe(self, text: str) -> None:
        """Say what is going on, in front of the bar; without effect outside `with`.

        Examples
        --------
        >>> import io, nosnoc_py as ns
        >>> from rich.console import Console
        >>> log = Console(file=io.StringIO(), force_terminal=False)
        >>> with ns.Progress(console=log) as progress:
        ...     progress.describe("gain 3 of 10")
        >>> log.file.getvalue().startswith("gain 3 of 10")
        True
        """
        if self._running:
            self._where.show(Report(text=text), self._clock(Report(text=text)))

    def begin(self, duration: Any = None, time_limit: Any = None) -> None:
        """Get ready for a run; `ns.solve` and `ns.simulate` call this with their limits [s]."""
        seconds, limit = (
            float(value) if isinstance(value, int | float) and 0 < value < math.inf else None
            for value in (duration, time_limit)
        )
        if self._held:
            self._deadline = None if limit is None else monotonic() + limit
            return
        self._reset(seconds, limit)
        self._start()

    def notify(self, text: str) -> None:
        """Write a line at once, such as that something is compiled.

        Examples
        --------
        >>> import io, nosnoc_py as ns
        >>> from rich.console import Console
        >>> log = Console(file=io.StringIO(), force_terminal=False)
        >>> ns.Progress(console=log).notify("half of the gains are done")
        >>> log.file.getvalue().strip()
        'half of the gains are done'
        """
        self._where.note(text)

    def end(self) -> None:
        """Stop showing: the run has ended; `ns.solve` and `ns.simulate` call this."""
        if not self._held:
            self._stop()

    def __enter__(self) -> Progress:
        self._held = True
        self._reset(None, None)
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._held = False
        self._stop()

    def _start(self) -> None:
        self._running = True
        self._where.start(self.steps or self.duration or self._span)

    def _stop(self) -> None:
        if self._running:
            self._running = False
            self._where.stop(_seconds(monotonic() - self._began))

    @property
    def _where(self) -> ConsoleOutput | NotebookOutput:
        """The output that fits: the console that is given, a notebook, or standard error."""
        if self._output is None:
            display = notebook_display() if self._console is None and not self._force else None
            self._output = ConsoleOutput(self._console, self._force) if display is None else NotebookOutput(display)
        return self._output

    def _clock(self, report: Report) -> str:
        """The time that has passed, with an estimate of what is left where there is something to base it on."""
        now = monotonic()
        passed = now - self._began
        done = report.completed / report.total if report.completed is not None and report.total else 0.0
        deadline = report.deadline if report.deadline is not None else self._deadline
        words = [_seconds(passed)]
        if SURE <= done < 1.0:
            words.append(f"about {_seconds(passed * (1.0 - done) / done)} left")
        elif deadline is not None and done < 1.0 and math.isfinite(deadline):
            words.append(f"at most {_seconds(max(0.0, deadline - now))} left")
        return ", ".join(words)

    def _solver(self, state: Any) -> Report | None:
        if not state.records:
            return None
        record = state.records[-1]
        what = _step(record.label)
        sigma = f"{record.sigma:.1e}" if record.sigma else ""
        row = (
            f"{record.step:>4}  {what:<{WIDTH}}{sigma:>8}{record.objective:>15.6f}"
            f"{record.complementarity:>13.1e}{record.infeasibility:>11.1e}{record.iterations:>12}"
        )
        return Report(text=f"step {record.step}, {what}, objective {record.objective:.6g}", row=row, header=HEADER)

    def _iteration(self, state: Any) -> Report | None:
        """A method of many cheap steps: a row every now and then, and one for a step of another kind."""
        records = state.records
        if not records:
            return None
        another = len(records) > 1 and records[-1].label != records[-2].label
        if another or monotonic() - self._last_line > SECONDS_BETWEEN_LINES:
            self._last_line = monotonic()
            return self._solver(state)
        return Report(text=f"{_step(records[-1].label)}, {len(records)} steps, objective {records[-1].objective:.6f}")

    def _search(self, state: Any) -> Report | None:
        """A row for a motion that is better than all before, or agrees with it, and one every now and then."""
        if not state.candidates:
            return None
        leader = state.leader
        solved = leader is not None and leader.attempt.solution.success
        objective = leader.attempt.solution.objective if solved else None
        agreement = ", ".join(state.agreement)
        best = "none yet" if objective is None else f"{objective:.8g}"
        kind, count = state.candidates[-1].start, len(state.candidates)
        deadline = getattr(state, "deadline", None)
        text = f"{count} start{'' if count == 1 else 's'}, latest {kind}, best objective {best}"
        if (objective, agreement) == self._best and monotonic() - self._last_line <= SECONDS_BETWEEN_LINES:
            return Report(text=text, deadline=deadline)
        self._best, self._last_line = (objective, agreement), monotonic()
        row = f"{count:>6}  {kind:<16}{monotonic() - state.work.started:>9.1f}{best:>17}  {agreement}"
        return Report(text=text, row=row, header=SEARCH_HEADER, deadline=deadline)

    def _sweep(self, state: Any) -> Report:
        """A bar over the runs of a sweep, and a line for each that failed; sweeps stand beside this room, not below."""
        failed = f", {state.failed} without success" if state.failed else ""
        event = ""
        if state.death is not None:
            event = f"a run died and is tried again: {state.death}"
        elif state.row is not None and not state.row.get("success", True):
            event = f"{state.row.get('key')}: {state.row.get('status')}. {state.row.get('message') or ''}".rstrip()
        text = f"{state.finished} of {state.total} runs{failed}"
        return Report(text=text, event=event, completed=float(state.finished), total=float(state.total))

    def _simulation(self, state: StepState) -> Report:
        self._count += 1
        end = self.duration or self._span
        of = f" of {end:.3f} s" if end else ""
        text = f"t = {state.t:.3f} s{of}, {self._count} steps"
        if self.steps:
            return Report(text=text, completed=float(self._count), total=float(self.steps))
        return Report(text=text, completed=float(state.t), total=end)


def notebook_display() -> Callable[..., Any] | None:
    """Return IPython's `display` inside a kernel (a notebook), None in a terminal or a script."""
    ipython = sys.modules.get("IPython")  # whoever runs a kernel has imported it
    shell = ipython.get_ipython() if ipython is not None else None
    return ipython.display.display if ipython is not None and hasattr(shell, "kernel") else None


class ConsoleOutput:
    """Reports as lines: the first, one every so many seconds, and the last; on a terminal all rows, and a bar below."""

    def __init__(self, console: Console | None, force: bool) -> None:
        from rich.console import Console

        # rich takes FORCE_COLOR, which notebooks set, for a terminal
        own: dict[str, Any] = {"force_terminal": sys.stderr.isatty(), "force_jupyter": False}
        self._console = Console(stderr=True, highlight=False, **own) if console is None else console
        self._seconds = SECONDS_BETWEEN_LINES if self._console.is_terminal else 0.0 if force else SECONDS_IN_A_LOG
        self.bar: Any = None
        self._clear()

    def _clear(self) -> None:
        self._header, self.clock = "", ""
        self._waiting: Report | None = None
        # A terminal shows the first report in its bar.
        self._next = monotonic() + self._seconds if self._console.is_terminal else -math.inf

    def start(self, total: float | None) -> None:
        """Show a bar on a terminal; elsewhere there is nothing to say yet."""
        if self.bar is None and self._console.is_terminal:
            from rich.progress import BarColumn, SpinnerColumn, TextColumn
            from rich.progress import Progress as Bar

            columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn())
            self.bar = Bar(*columns, TextColumn("{task.fields[clock]}"), console=self._console, transient=True)
            self.bar.add_task("starting", clock="")
            self.bar.start()
        if self.bar is not None:
            self.bar.update(0, total=total)

    def show(self, report: Report, clock: str) -> None:
        """Write the report if it is time, or else keep it: it may be the last."""
        if report.event:
            self.note(report.event)
        self._waiting, self.clock = report, clock
        if self.bar is not None:
            known = {"completed": report.completed, "total": report.total}
            known = {name: value for name, value in known.items() if value is not None}
            self.bar.update(0, description=report.text, clock=clock, **known)
        at_once = report.row and self._console.is_terminal
        if at_once or (self.bar is None and monotonic() >= self._next):
            self._flush()

    def note(self, text: str, style: str | None = None) -> None:
        """Write a line at once, above the bar."""
        self._console.print(text, style=style, soft_wrap=True, markup=False, highlight=False)  # [kg] is a unit

    def stop(self, clock: str) -> None:
        """Take the bar away, and write the last report unless it is written."""
        self.clock = clock
        if self.bar is not None:
            self.bar.stop()
            self.bar = None
        elif not self._console.is_terminal:
            self._flush()
        self._clear()

    def _flush(self) -> None:
        if self._waiting is None:
            return
        report, self._waiting = self._waiting, None
        self._next = monotonic() + self._seconds
        if report.row and report.header != self._header:
            self._header = report.header
            self.note(report.header, "bold")
        self.note(report.row or f"{report.text} ({self.clock})")


class NotebookOutput:
    """One display of a notebook, replaced by every report."""

    def __init__(self, display: Callable[..., Any]) -> None:
        self._display = display
        self._clear()

    def _clear(self) -> None:
        self._handle: Any = None
        self._header, self._text, self.clock = "", "", ""
        self._rows: list[str] = []
        self._next = -math.inf

    def start(self, total: float | None) -> None:
        """Wait for something to show."""

    def show(self, report: Report, clock: str) -> None:
        """Replace the display, if it is time; rows that are left out appear with the next."""
        self._text, self.clock, self._header = report.text, clock, report.header or self._header
        self._rows += [text for text in (report.event, report.row) if text]
        if monotonic() >= self._next:
            self._update()

    def note(self, text: str) -> None:
        """Show a line at once."""
        self._text = text
        self._update()

    def stop(self, clock: str) -> None:
        """Show the last report; the next run has a display of its own."""
        self.clock = clock
        if self._text:
            self._update()
        self._clear()

    def _update(self) -> None:
        self._next = monotonic() + SECONDS_BETWEEN_DISPLAYS
        left_out = max(0, len(self._rows) - ROWS)
        head = [self._header, f"... {left_out} lines before" if left_out else ""]
        last = f"{self._text} ({self.clock})" if self.clock else self._text
        content = ProgressText("\n".join([*filter(None, head), *self._rows[left_out:], last]))
        if self._handle is None:
            self._handle = self._display(content, display_id=True)
        else:
            self._handle.update(content)


@dataclass(frozen=True, repr=False)
class ProgressText:
    """Lines of fixed width, as text and as HTML."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text)}</pre>"


def _step(label: str) -> str:
    """The label of a step in words of the field: "elastic: finish" is "elastic: active-set finish"."""
    return ": ".join(STEPS.get(part, part) for part in label.split(": "))


def _seconds(value: float) -> str:
    """A time in seconds, minutes or hours, with no more digits than one reads."""
    if value < 60.0:
        return f"{value:.1f} s" if value < 10.0 else f"{value:.0f} s"
    if value < 3600.0:
        return f"{int(value // 60)} min {int(value % 60):02d} s"
    return f"{int(value // 3600)} h {int(value % 3600 // 60):02d} min"
