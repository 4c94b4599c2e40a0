"""Log of a closed loop: for every sample the state, its measurement, the control, its source and its latency."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.markup import page, table
from nosnoc_py.solution.records import Event
from nosnoc_py.solution.storage import save
from nosnoc_py.status import Status

Array = np.ndarray


@dataclass(frozen=True, eq=False, kw_only=True)
class ClosedLoop:
    """Log of a closed loop, sample by sample; n samples, of n_x states and n_u controls.

    Attributes
    ----------
    state_names, control_names : tuple of str
    period : float
        Between samples [s].
    deadline : float
        Longest time of an answer [s]; infinite without a deadline.
    t : (n + 1,)
        Times of the samples and of the end [s].
    x, measured : (n + 1, n_x), (n, n_x)
        The plant's state, and its measurement by the controller.
    u : (n, n_u)
        Controls, constant over a period.
    sources, statuses, hows, messages : tuple of str
        Source of each control, status of the solver, kind of its answer (`Answer.how`), and errors.
    latency, preparation : (n,)
        Seconds from the state to the control, and before.
    late : (n,)
        1 if the answer came after the deadline, else 0.
    costs : (n,)
        The OCP's stage cost over each period; NaN of a controller that has none.
    motion_t, motion_x : (m,), (m, n_x)
        The plant between the samples.
    plan_t, plan_x : (n, k), (n, k, n_x)
        The plans; NaN where there is none.
    events : tuple of Event
        Of the plant, at their times in the loop.
    status : Status
        SOLVED at the end of the duration; else what ended the loop.
    message : str

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=0.6 - q)])
    >>> log = ns.close_loop(lambda t, x: 4 * (0.5 - x[0]) - x[1], cart, 2.0, [0, 0], period=0.1)
    >>> log.success, log.counts, log.x.shape
    (True, {'law': 20}, (21, 2))
    >>> [(event.kind, round(event.time, 2)) for event in log.events]
    [('impact', 1.04)]
    """

    state_names: tuple[str, ...]
    control_names: tuple[str, ...]
    period: float
    deadline: float
    t: Array
    x: Array
    measured: Array
    u: Array
    sources: tuple[str, ...]
    statuses: tuple[str, ...]
    hows: tuple[str, ...]
    messages: tuple[str, ...]
    latency: Array
    preparation: Array
    late: Array
    costs: Array
    motion_t: Array
    motion_x: Array
    plan_t: Array
    plan_x: Array
    events: tuple[Event, ...] = ()
    status: Status = Status.SOLVED
    message: str = ""

    @property
    def success(self) -> bool:
        """True if the loop reached its end."""
        return self.status.success

    @property
    def cost(self) -> float:
        """The stage cost over the whole loop."""
        # NaN if a sample has no cost: a partial sum would look like the whole.
        return float(self.costs.sum())

    @property
    def misses(self) -> int:
        """Answers that came after the deadline."""
        return int(self.late.sum())

    @property
    def percentiles(self) -> dict[str, float]:
        """Percentiles of the latencies [s]: p50, p90, p99 and the largest, without the first sample (it builds all)."""
        # The first answer builds functions and solvers, which no later one does.
        seconds = self.latency[1:] if len(self.latency) > 1 else self.latency
        if not seconds.size:
            return {}
        return {
            # Percentiles, as means hide the rare late answers that a real-time loop fails by.
            **{f"p{share}": float(np.percentile(seconds, share)) for share in (50, 90, 99)},
            "largest": float(seconds.max()),
        }

    @property
    def counts(self) -> dict[str, int]:
        """Number of controls by their source."""
        return {source: self.sources.count(source) for source in dict.fromkeys(self.sources)}

    def __getitem__(self, name: str) -> Array:
        """Return a state at the samples (n + 1,), or a control (n,).

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x, u = ca.SX.sym("x"), ca.SX.sym("u")
        >>> plant = ns.ODE(x=x, u=u, flow=u, names={"x": ["level"], "u": ["inflow"]})
        >>> log = ns.close_loop(lambda t, x: 1 - x, plant, 1.0, [0.0], period=0.5)
        >>> log["level"].round(3), log["inflow"].round(3)
        (array([0.  , 0.5 , 0.75]), array([1. , 0.5]))
        """
        if name in self.state_names:
            return np.asarray(self.x[:, self.state_names.index(name)])
        if name in self.control_names:
            return np.asarray(self.u[:, self.control_names.index(name)])
        raise OptionError(f"expected a name of {', '.join((*self.state_names, *self.control_names))}, given {name!r}.")

    def summary(self) -> str:
        """Return a report of a few lines: samples, sources of controls, latencies, impacts and cost.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x, u = ca.SX.sym("x"), ca.SX.sym("u")
        >>> log = ns.close_loop(lambda t, x: 1 - x, ns.ODE(x=x, u=u, flow=u), 1.0, [0.0], period=0.5)
        >>> print(log.summary().splitlines()[0])
        closed loop: 2 samples of 0.5 s, solved
        """
        counts = ", ".join(f"{count} {source}" for source, count in self.counts.items())
        times = ", ".join(f"{name} {1e3 * seconds:.3g} ms" for name, seconds in self.percentiles.items())
        lines = [
            f"closed loop: {len(self.u)} samples of {self.period:g} s, {self.status}",
            f"controls: {counts or 'none'}",
            f"latency: {times or 'none'}; {self.misses} after the deadline",
            f"contacts: {sum(event.kind == 'impact' for event in self.events)} impacts",
        ]
        # A controller without an OCP has costs of NaN.
        if np.isfinite(self.costs).all() and self.costs.size:
            lines.append(f"cost: {self.cost:.6g}")
        return "\n".join(lines + ([self.message] if self.message else []))

    def __repr__(self) -> str:
        return f"ClosedLoop: {len(self.u)} samples of {self.period:g} s, {self.status}"

    def _repr_html_(self) -> str:
        lines = [line.partition(": ") for line in self.summary().splitlines()]
        return page(repr(self), table((title, text) for title, _, text in lines[1:]))

    def save(self, path: str | Path) -> Path:
        """Write the log to one netCDF file (.nc), which `ns.load` reads; raise `OptionError` for another name.

        Examples
        --------
        >>> import tempfile, casadi as ca, nosnoc_py as ns
        >>> x, u = ca.SX.sym("x"), ca.SX.sym("u")
        >>> log = ns.close_loop(lambda t, x: 1 - x, ns.ODE(x=x, u=u, flow=u), 1.0, [0.0], period=0.5)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = ns.load(log.save(f"{folder}/loop.nc"))
        >>> again
        ClosedLoop: 2 samples of 0.5 s, solved
        """
        return save(self, path)
