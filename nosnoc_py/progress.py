"""Progress on a terminal: a callback for `solve`, `simulate`, sweeps and everything that reports a state as it goes."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from nosnoc_py.arguments import named_arguments
from nosnoc_py.mpcc.strategy import SolverState
from nosnoc_py.simulation.common import StepState

if TYPE_CHECKING:
    from rich.console import Console

WIDTH = 30  # of the label, e.g. "elastic from afar: homotopy"
HEADER = (
    f"{'step':>4}  {'':<{WIDTH}}{'sigma':>8}{'objective':>15}{'complement.':>13}{'infeasib.':>11}{'iterations':>12}"
)
SEARCH_HEADER = f"{'starts':>6}  {'last':<12}{'seconds':>9}{'best objective':>17}  agreement"
SECONDS_BETWEEN_LINES = 2.0


@named_arguments
class Progress:
    """Show the state of a solver or a search (lines), of a simulation or of a sweep (a bar); use it as a callback.

    As a context manager it also shows that something is going on between the lines; without `with`, it writes plain
    lines only. Nothing is written when the output is not a terminal, unless `force`. Needs the package rich, imported
    on first use.

    Parameters
    ----------
    duration : float, optional
        End of the simulation [s]; the bar is then in units of time.
    steps : int, optional
        Number of simulation steps to come, over all simulations that share this object; the bar then counts steps.
    force : bool
        Write even if the output is not a terminal.
    console : rich.console.Console, optional
        Where to write; default standard error.

    Examples
    --------
    >>> with ns.Progress() as progress:  # doctest: +SKIP
    ...     solution = ns.solve(ocp, method, callback=progress)
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
        self._live: Any = None
        self._task: Any = None
        self._count = 0
        self._headed = False
        self._best: Any = None
        self._last_line = time.monotonic()

    def __call__(self, state: Any) -> None:
        """Report one state; an object of another kind is passed over."""
        if not self._visible():
            return
        if isinstance(state, SolverState):
            self._homotopy(state)
        elif isinstance(getattr(state, "records", None), tuple):
            self._iteration(state)
        elif isinstance(getattr(state, "candidates", None), tuple):
            self._search(state)
        elif isinstance(getattr(state, "finished", None), int):
            self._sweep(state)
        elif isinstance(state, StepState):
            self._simulation(state)

    def expect(self, steps: int) -> None:
        """Announce the number of simulation steps to come, from the beginning."""
        self.steps = steps
        if self._live is not None:
            self._live.update(self._task, total=steps)

    def describe(self, text: str) -> None:
        """Say what is going on, in front of the bar; without effect outside `with`."""
        if self._live is not None:
            self._live.update(self._task, description=text)

    def __enter__(self) -> Progress:
        if self._visible():
            self._live = self._display()
            self._task = self._live.add_task("starting", total=self.steps or self.duration)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _visible(self) -> bool:
        if self._console is None:
            from rich.console import Console

            # rich takes FORCE_COLOR, which notebooks set, for a terminal
            self._console = Console(stderr=True, highlight=False, force_terminal=sys.stderr.isatty())
        return self._force or self._console.is_terminal

    def _display(self) -> Any:
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Display

        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        return Display(*columns, console=self._console, transient=True)

    def _write(self, text: str, style: str | None = None) -> None:
        assert self._console is not None
        self._console.print(text, style=style, soft_wrap=True, markup=False)  # [kg] is a unit

    def _iteration(self, state: Any) -> None:
        """A method of many cheap steps: a line every now and then, and one for a step of another kind."""
        records = state.records
        another = len(records) > 1 and records[-1].label != records[-2].label
        if records and (another or time.monotonic() - self._last_line > SECONDS_BETWEEN_LINES):
            self._last_line = time.monotonic()
            self._homotopy(state)
        elif records:
            self.describe(f"{records[-1].label}, {len(records)} steps, objective {records[-1].objective:.6f}")

    def _search(self, state: Any) -> None:
        """A line for what is better than all before, or agrees with it, and one every now and then."""
        if not state.candidates:
            return
        if not self._headed:
            self._headed = True
            self._write(SEARCH_HEADER, "bold")
        found = state.leader is not None and state.leader.attempt.solution.success
        objective = state.leader.attempt.solution.objective if found else None
        agreement = ", ".join(state.agreement)
        if (objective, agreement) == self._best and time.monotonic() - self._last_line <= SECONDS_BETWEEN_LINES:
            self.describe(f"{state.candidates[-1].start}, {len(state.candidates)} starts")
            return
        self._best, self._last_line = (objective, agreement), time.monotonic()
        best = "none yet" if objective is None else f"{objective:.8g}"
        self._write(
            f"{len(state.candidates):>6}  {state.candidates[-1].start:<12}{time.monotonic() - state.began:>9.1f}"
            f"{best:>17}  {agreement}"
        )

    def _homotopy(self, state: Any) -> None:
        if not state.records:
            return
        record = state.records[-1]
        if record.step == 0 or not self._headed:
            self._headed = True
            self._write(HEADER, "bold")
        sigma = f"{record.sigma:.1e}" if record.sigma else ""
        self._write(
            f"{record.step:>4}  {record.label:<{WIDTH}}{sigma:>8}{record.objective:>15.6f}"
            f"{record.complementarity:>13.1e}{record.infeasibility:>11.1e}{record.iterations:>12}"
        )
        self.describe(record.label)

    def _sweep(self, state: Any) -> None:
        """A bar over the runs of a sweep, and a line for each that failed; sweeps stand beside this room, not below."""
        failed = f", {state.failed} without success" if state.failed else ""
        text = f"{state.finished} of {state.total} runs{failed}"
        if state.death is not None:
            self._write(f"a run died and is tried again: {state.death}")
        elif state.row is not None and not state.row.get("success", True):
            self._write(f"{state.row.get('key')}: {state.row.get('status')}. {state.row.get('message') or ''}".rstrip())
        if self._live is not None:
            self._live.update(self._task, completed=state.finished, total=state.total, description=text)
        else:
            self._write(text)

    def _simulation(self, state: StepState) -> None:
        self._count += 1
        text = f"t = {state.t:.3f} s, {self._count} steps"
        if self._live is not None:
            done = float(self._count) if self.steps else state.t
            self._live.update(self._task, completed=done, description=text)
        elif time.monotonic() - self._last_line > SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            self._write(text)
