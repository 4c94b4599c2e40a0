"""A trajectory: the result of every simulator, with names, events and dense output.

A trajectory consists of nodes, with the left limit before the right limit where the state jumps, dense output between
them, controls on their own grid, and series of contact quantities on theirs. Invariants: names are unique over states,
controls, series and parameters, so `trajectory[name]` is unambiguous; arrays and mappings cannot be changed. The
`problem` holds expressions: it is lost in files and other processes only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
import numpy.typing as npt

from nosnoc_py.arguments import named_arguments
from nosnoc_py.declared import assign
from nosnoc_py.errors import OptionError, SolverError, TranscriptionError, UnknownNameError
from nosnoc_py.markup import page, table
from nosnoc_py.solution.arrays import Array, inside, read_only
from nosnoc_py.solution.gradient import Gradient, VariationTape
from nosnoc_py.solution.interpolant import SNAP, Interpolant, RungeKuttaInterpolant, Side
from nosnoc_py.solution.records import Discretization, Event, Series, SolvedBranch
from nosnoc_py.solution.sensitivity import Sensitivity
from nosnoc_py.solution.shift import shifted
from nosnoc_py.solution.storage import NOT_STORED, save
from nosnoc_py.status import Status

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

# Attribute with the function that writes a message which nobody has read yet.
UNWRITTEN = "_unwritten"
# Fields and properties that `to_dict` copies.
SUMMARISED = ("message", "t0", "duration", "state_names", "final_state", "parameters")
# Largest number of events that a summary lists.
SHOWN = 20


class _WrittenWhenRead:
    """Default of a message: a text, or what its function returns, which is called when the message is first read.

    Without `__set__` the value in the instance comes first, so that the function is called once.
    """

    def __get__(self, instance: Trajectory | None, owner: type) -> str:
        if instance is None:
            return ""  # the default of the field, which `dataclass` asks for
        own = vars(instance)
        own["message"] = own.pop(UNWRITTEN)() if UNWRITTEN in own else ""
        return str(own["message"])


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Trajectory:
    """States, controls and contact quantities over time.

    Parameters
    ----------
    t : (nodes,)
        Times [s]; at an impact the time appears twice.
    x : (nodes, n_x)
        States; at an impact the left limit first.
    state_names : n_x names
    u_grid : (N + 1,)
        Boundaries of the N control stages [s].
    u : (N, n_u)
        Control on the stages: constant, or its mean where there is a `control_interpolant`.
    control_names : n_u names
    interpolant
        Dense output; straight lines between the nodes when None.
    control_interpolant
        Dense output of a control that is not constant on its stages.
    events
        Switches and impacts in the order of time.
    series
        Scalar quantities with their own times, by name.
    parameters
        Values of the parameters, by name.
    status, message
        Status, and the message of the solver or simulator; a function that returns it is called when it is read, as a
        search for other outcomes of impacts may take longer than the simulation.
    units
        Units by name, for the labels of axes.
    sensitivity
        Derivatives with respect to the initial state and the parameters, if requested.
    variations
        What `vjp` multiplies backwards, if `sensitivities="reverse"` was requested; None after loading.
    numerical
        The same motion in numerical time, with the clock as a state, where time was frozen.
    discretization
        Finite elements of the motion; None if it was computed without.
    problem
        Problem or system of the motion, which evaluates expressions and continues from here; None after loading.

    Raises
    ------
    TranscriptionError
        If shapes do not fit or a name stands for two things.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> ground = ns.Contact("ground", gap=q, restitution=0.5)
    >>> names = {"q": ["height"], "v": ["speed"]}
    >>> ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ground], names=names)
    >>> motion = ns.simulate(ball, x0=[1.0, 0.0], duration=0.6)
    >>> motion.success, motion.state_names, motion.x.shape == (len(motion.t), 2)
    (True, ('height', 'speed'), True)
    >>> [event.kind for event in motion.events], round(float(motion["height"][-1]), 4)
    (['impact'], 0.2207)
    """

    t: Array
    x: Array
    state_names: tuple[str, ...]
    u_grid: Array
    u: Array
    control_names: tuple[str, ...]
    interpolant: Interpolant | None = None
    events: tuple[Event, ...] = ()
    series: Mapping[str, Series] = field(default_factory=dict)
    parameters: Mapping[str, float] = field(default_factory=dict)
    status: Status = Status.SOLVED
    message: str = cast(str, _WrittenWhenRead())
    units: Mapping[str, str] = field(default_factory=dict)
    sensitivity: Sensitivity | None = None
    numerical: Trajectory | None = None
    control_interpolant: Interpolant | None = None
    discretization: Discretization | None = None
    problem: Any = field(default=None, repr=False, metadata=NOT_STORED)
    variations: VariationTape | None = field(default=None, repr=False, metadata=NOT_STORED)

    def __post_init__(self) -> None:
        if callable(written := vars(self)["message"]):
            del vars(self)["message"]
            assign(self, **{UNWRITTEN: written})
        assign(self, state_names=tuple(self.state_names), control_names=tuple(self.control_names))
        t, u_grid = read_only(self.t, "t", "nodes"), read_only(self.u_grid, "u_grid", "control stages + 1")
        # One time is allowed: a simulation may fail at its start, and its result still has the initial state.
        if not t.size or not u_grid.size:
            raise TranscriptionError(f"given {t.size} nodes and {u_grid.size} times in u_grid, expected at least 1.")
        x = read_only(self.x, "x (nodes, n_x)", t.size, len(self.state_names))
        u = read_only(self.u, "u (control stages, n_u)", u_grid.size - 1, len(self.control_names))
        assign(self, t=t, u_grid=u_grid, x=x, u=u, events=tuple(self.events))
        # Plain copies: a mapping proxy could not be pickled for a worker process.
        parameters = {name: float(value) for name, value in self.parameters.items()}
        assign(self, series=dict(self.series), parameters=parameters, units=dict(self.units))
        twice = [name for name, count in Counter(self.names).items() if count > 1]
        if twice:
            raise TranscriptionError(f"names must be unique over states, controls, series and parameters: {twice}.")
        self._check_sensitivity()

    def _check_sensitivity(self) -> None:
        if self.sensitivity is None:
            return
        derivatives = self.sensitivity
        events = len(self.events) if derivatives.event_times_x0 is None else len(derivatives.event_times_x0)
        controls = self.u.shape if derivatives.u is None else (len(derivatives.u), derivatives.u.shape[2])
        # Compared all at once, so that the message shows every number.
        sizes = events, *derivatives.p.shape, *controls
        # Parts that were not computed count as fitting.
        expected = len(self.events), len(self.state_names), len(self.parameters), *self.u.shape
        if sizes != expected:
            raise TranscriptionError(
                "sensitivity: numbers of events, states, parameters, control stages and controls are "
                f"{', '.join(map(str, sizes))}, expected {', '.join(map(str, expected))}."
            )
        if (orbital := derivatives.orbital) is not None and len(orbital) != len(self.t):
            raise TranscriptionError(
                f"sensitivity: orbital has {len(orbital)} nodes, expected those of the trajectory, {len(self.t)}."
            )

    def __getitem__(self, name: str) -> Any:
        """Return the values of a state (nodes,), a control (N,), a series (its times,), or a parameter (scalar).

        Raises
        ------
        UnknownNameError
            For other names; the message lists all.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x = ca.SX.sym("x")
        >>> motion = ns.simulate(ns.ODE(x=x, flow=-x), x0=[2.0], duration=1.0)
        >>> float(motion["x_0"][0])
        2.0
        """
        # Names are unique, so that the order of these look-ups does not matter.
        if name in self.parameters:
            return self.parameters[name]
        if (pair := self._over_time(name)) is None:
            raise UnknownNameError(name, self.names)
        return pair[1]

    def times(self, name: str) -> Array:
        """Return the times [s] of `self[name]`; for a control the starts of its stages.

        Raises
        ------
        UnknownNameError
            For names that have no times.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x = ca.SX.sym("x")
        >>> motion = ns.simulate(ns.ODE(x=x, flow=-x), x0=[2.0], duration=1.0)
        >>> bool((motion.times("x_0") == motion.t).all())
        True
        """
        if (pair := self._over_time(name)) is None:
            # Parameters are constant and have no times.
            legal = (*self.state_names, *self.control_names, *self.series)
            raise UnknownNameError(name, legal, "quantity over time")
        return pair[0]

    def _over_time(self, name: str) -> tuple[Array, Array] | None:
        """Return times and values of a state, a control or a series, or None."""
        if name in self.state_names:
            return self.t, self.x[:, self.state_names.index(name)]
        if name in self.control_names:
            # A control stands at the start of its stage.
            return self.u_grid[:-1], self.u[:, self.control_names.index(name)]
        return (self.series[name].t, self.series[name].values) if name in self.series else None

    def __call__(self, t: npt.ArrayLike, side: Side = "+") -> Array:
        """Return the state at t, (n_x,) or (times, n_x), by dense output.

        Parameters
        ----------
        t : float or (times,)
            Times [s] within the trajectory.
        side : {"+", "-"}
            Limit at a jump: "+" after it, "-" before it.

        Raises
        ------
        TranscriptionError
            If a time is outside of the trajectory.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
        >>> ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ns.Contact("ground", gap=q, restitution=0.5)])
        >>> motion = ns.simulate(ball, x0=[1.0, 0.0], duration=0.6)
        >>> impact = motion.impacts[0].time
        >>> float((motion(impact, "+")[1] / motion(impact, "-")[1]).round(6))
        -0.5
        """
        # Simulators without dense output: straight lines, in which repeated times are jumps.
        interpolant = self.interpolant or RungeKuttaInterpolant.linear(self.t, self.x)
        return interpolant(t, side)

    def control(self, t: npt.ArrayLike) -> Array:
        """Return the control at t, (n_u,) or (times, n_u): right-continuous, at the end the last value.

        Parameters
        ----------
        t : float or (times,)
            Times [s] within the control grid.

        Raises
        ------
        TranscriptionError
            If there is no control, or a time is outside of its grid.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x, u = ca.SX.sym("x"), ca.SX.sym("u")
        >>> motion = ns.simulate(ns.ODE(x=x, u=u, flow=u), x0=[0.0], duration=1.0, u=[[1.0], [-1.0]])
        >>> motion.control([0.0, 0.5]).ravel()
        array([ 1., -1.])
        """
        if not len(self.u):
            raise TranscriptionError("the trajectory has no control stages, so there is no control to evaluate.")
        if self.control_interpolant is not None:
            return self.control_interpolant(t)
        times = inside(t, self.u_grid[0], self.u_grid[-1])
        snap = SNAP * np.abs(self.u_grid[[0, -1]]).max()
        # A time at an edge up to round-off belongs to the stage that begins there: right-continuous.
        stage = np.searchsorted(self.u_grid, times + snap, "right") - 1
        # At the end there is no next stage.
        u: Array = self.u[np.minimum(stage, len(self.u) - 1)]
        return u if np.ndim(t) else u.reshape(-1)

    @named_arguments
    def vjp(
        self,
        *,
        final: npt.ArrayLike | None = None,
        samples: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
        event_times: npt.ArrayLike | None = None,
    ) -> Gradient:
        """Return the gradient of a loss by x0, p and the controls of all stages, backwards along the motion.

        The loss is given by its derivatives: by the last state, by states at some times, by the times of events. The
        motion is one of `ns.simulate(..., sensitivities="reverse")`; several losses of it take one call each, and
        nothing is simulated again. The numbers are always finite, and `flags` tells where the motion has no derivative.

        Parameters
        ----------
        final : (n_x,), optional
            Derivative of the loss by the last state.
        samples : (m,), (m, n_x), optional
            Times [s], and the derivatives by the states then. They are nodes of the trajectory: give them as `times`
            to `ns.simulate`. At a time of an event it is the state after it.
        event_times : (n_events,), optional
            Derivatives by the times of the trajectory's events, in their order.

        Raises
        ------
        OptionError
            Of a trajectory that was simulated otherwise, for times that are no nodes, and for wrong shapes.

        Examples
        --------
        A ball that falls 0.8 m at 10 m/s^2 reaches the ground after sqrt(2 * 0.8 / 10) s:

        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
        >>> ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-10, contacts=[ns.Contact("ground", gap=q, restitution=0.5)])
        >>> motion = ns.simulate(ball, x0=[0.8, 0.0], duration=0.5, sensitivities="reverse")
        >>> motion.vjp(event_times=[1.0]).x0.round(4)
        array([0.25, 0.1 ])
        """
        if self.variations is None:
            raise OptionError(
                'vjp: the trajectory has no derivatives backwards; give sensitivities="reverse" to ns.simulate with '
                "EventDriven (it is lost in files)."
            )
        return self.variations.pulled_back(final, samples, event_times)

    def value(self, expression: Any) -> Array:
        """Return an expression of the system's symbols at the nodes: (nodes,), of a column (nodes, rows).

        Where it depends on parameters, x_initial and a free horizon alone it is one value.

        Parameters
        ----------
        expression : SX
            In x (q, v, y, t), u, p, algebraic variables, `system.x_initial` and the symbol of an `ns.FreeTime`.

        Raises
        ------
        OptionError
            Of a trajectory that was loaded, copied or changed, which does not know its system.
        ModelError
            For symbols of others.

        Examples
        --------
        >>> import casadi as ca
        >>> import nosnoc_py as ns
        >>> x = ca.SX.sym("x")
        >>> motion = ns.simulate(ns.ODE(x=x, flow=-x), x0=[2.0], duration=1.0)
        >>> float(motion.value(x**2)[0]), float(motion.sample(ca.exp(x), 0.0).round(4))
        (4.0, 7.3891)
        """
        values: Array = self._known("evaluate", "the names of its states").evaluate(self, expression, None)
        return values

    @named_arguments
    def sample(self, expression: Any, t: npt.ArrayLike, side: Side = "+") -> Array:
        """Return an expression of the system's symbols at times t by dense output; see `value`.

        `side` is the limit to take where states jump. One time gives one value, several (times, ...).

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x = ca.SX.sym("x", 2)
        >>> motion = ns.simulate(ns.ODE(x=x, flow=ca.vertcat(x[1], -1)), x0=[0.0, 1.0], duration=1.0)
        >>> motion.sample(ca.sumsqr(x), [0.0, 1.0]).round(6)
        array([1.  , 0.25])
        """
        values: Array = self._known("evaluate", "the names of its states").evaluate(self, expression, t, side)
        return values

    @named_arguments
    def why(self, event: Event) -> Any:
        """Return all outcomes of an impact that the laws of impact and friction allow, with their velocities.

        With friction several velocities may be admissible: the message of a trajectory says so, and this lists them.

        Parameters
        ----------
        event : Event
            One of `impacts`.

        Returns
        -------
        Alternatives
            A sequence of `Alternative`, with `contacts`, `impulses`, `velocity` and `chosen`; printed as a list.

        Raises
        ------
        OptionError
            For events that are no impacts, and for a trajectory that does not know its system.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
        >>> floor = ns.Contact("floor", gap=q[1], tangent=[1, 0], friction=0.5)
        >>> puck = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=[0, -9.81], contacts=[floor])
        >>> motion = ns.simulate(puck, x0=[0, 0.05, 0.2, 0], duration=0.2)
        >>> motion.why(motion.impacts[0])
        impact at floor, t = 0.100963755 s: one outcome is admissible
        * floor sticks: v_0 = 0, v_1 = 0
        """
        return self._known("why", "the message of the result").why(self, event)

    @property
    def q(self) -> Array:
        """Generalised coordinates of a contact system at the nodes, (nodes, n_q).

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
        >>> ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ns.Contact("ground", gap=q)])
        >>> float(ns.simulate(ball, x0=[1.0, 0.0], duration=0.6).q[-1, 0].round(9))
        0.0
        """
        return self.x[:, self._known("parts", "self.x").parts()["q"]]

    @property
    def v(self) -> Array:
        """Generalised velocities of a contact system at the nodes, (nodes, n_q).

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
        >>> ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ns.Contact("ground", gap=q)])
        >>> float(ns.simulate(ball, x0=[1.0, 0.0], duration=0.1).v[-1, 0].round(6))
        -0.981
        """
        return self.x[:, self._known("parts", "self.x").parts()["v"]]

    def _known(self, verb: str, instead: str) -> Any:
        # A transcription can only differentiate, and a simulation has no problem.
        if not hasattr(self.problem, verb):
            kind, of = type(self).__name__.lower(), "OCP" if hasattr(self, "objective") else "system"
            raise OptionError(
                f"{verb}: this {kind} does not know its {of}, since it was loaded or made without; use {instead}."
            )
        return self.problem

    # Nothing in a result can be changed: a copy is the object itself.
    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: Any) -> Self:
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields without the problem, which cannot be sent to another process."""
        # Reading the message replaces the function, which could not be pickled, nor could expressions of CasADi.
        own = {**vars(self), "message": self.message, "problem": None}
        return {name: value for name, value in own.items() if name != UNWRITTEN}

    @property
    def names(self) -> tuple[str, ...]:
        """All legal names: states, controls, series, parameters."""
        return (*self.state_names, *self.control_names, *self.series, *self.parameters)

    @property
    def success(self) -> bool:
        """True if the work ended as it should."""
        return self.status.success

    @property
    def t0(self) -> float:
        """First time [s]."""
        return float(self.t[0])

    @property
    def duration(self) -> float:
        """Length of the interval [s]."""
        return float(self.t[-1] - self.t[0])

    @property
    def final_state(self) -> Array:
        """State at the end, after a jump there, (n_x,)."""
        return self.x[-1]

    @property
    def impacts(self) -> tuple[Event, ...]:
        """The events of kind "impact"."""
        return tuple(event for event in self.events if event.kind == "impact")

    def raise_for_status(self) -> None:
        """Raise a `SolverError` with status, message and remedy unless the work succeeded.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x = ca.SX.sym("x")
        >>> ns.simulate(ns.ODE(x=x, flow=-x), x0=[2.0], duration=1.0).raise_for_status()  # nothing to raise
        """
        if not self.success:
            reason = f" ({self.message})" if self.message else ""
            # Only on request: a failure is a status by default, so that the last iterate is not lost.
            raise SolverError(f"{self.status}{reason}. {self.status.remedy}")

    @named_arguments
    def shift(self, duration: float | None = None, *, stages: int | None = None) -> Shifted:
        """Return the rest of the trajectory from later on, as a guess for the next problem of a receding horizon.

        Time begins at zero again, and at the end the last state and the last control are held, so that it is as long
        as before. `problem.solve(x0=measured, guess=solution.shift())` starts from it with a small relaxation
        parameter; shifted by whole control stages every variable of the solution moves with its stage.

        Parameters
        ----------
        duration : float, optional
            By how much [s]; less than the whole.
        stages : int, optional
            The same in control stages; default 1.

        Raises
        ------
        TranscriptionError
            If both are given, or nothing of the trajectory would be left.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x = ca.SX.sym("x")
        >>> later = ns.simulate(ns.ODE(x=x, flow=-x), x0=[2.0], duration=1.0).shift(0.25)
        >>> later.t0, later.duration, bool(later.x[0] < 2.0)
        (0.0, 1.0, True)
        """
        return Shifted(**shifted(self, duration, stages))

    def summary(self) -> str:
        """Return a report of a few lines: status, interval, final state, events and, after a failure, what to try.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x = ca.SX.sym("x")
        >>> print(ns.simulate(ns.ODE(x=x, flow=1), x0=[2.0], duration=1.0).summary().splitlines()[1])
          final state: x_0 = 3
        """
        span = f"{self.status}, t = {self.t0:g} .. {self.t[-1]:g} s, {len(self.t)} nodes"
        final = zip(self.state_names, self.final_state, strict=True)
        lines = [span, "  final state: " + enumerate_some([f"{name} = {value:.6g}" for name, value in final], 12)]
        lines += self._first_events()
        lines += [f"  note: {self.message}"] if self.message else []
        return "\n".join(lines if self.success else [*lines, f"What to try: {self.status.remedy}"])

    def _first_events(self) -> list[str]:
        """Return lines about the first events, and one with the number of the others."""
        return first_lines([f"  {event}" for event in self.events], SHOWN, "  ... and {} more events") or [
            "  no events"
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return a summary that `json.dumps` takes; numbers that JSON does not know (NaN, infinity) become None.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x = ca.SX.sym("x")
        >>> ns.simulate(ns.ODE(x=x, flow=-x), x0=[2.0], duration=1.0).to_dict()["state_names"]
        ['x_0']
        """
        return {name: jsonable(value) for name, value in self._summary_fields().items()}

    def _summary_fields(self) -> dict[str, Any]:
        return {
            "status": self.status.value,
            "events": [event.to_dict() for event in self.events],
            **{name: getattr(self, name) for name in SUMMARISED},
        }

    def to_xarray(self) -> xr.Dataset:
        """Return an xarray Dataset with dimensions node, control_stage and one per time grid of the series.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x = ca.SX.sym("x")
        >>> table = ns.simulate(ns.ODE(x=x, flow=-x), x0=[2.0], duration=1.0).to_xarray()
        >>> table["x_0"].dims, float(table["x_0"].sel(node=0))
        (('node',), 2.0)
        """
        from nosnoc_py.solution.tables import to_xarray

        return to_xarray(self)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a pandas DataFrame of the states over the nodes, with the time in the column `t`.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x = ca.SX.sym("x")
        >>> table = ns.simulate(ns.ODE(x=x, flow=-x), x0=[2.0], duration=1.0).to_dataframe()
        >>> list(table.columns), float(table["x_0"].iloc[0])  # table.plot(x="t") draws it
        (['t', 'x_0'], 2.0)
        """
        from nosnoc_py.solution.tables import to_dataframe

        return to_dataframe(self)

    def save(self, path: str | Path) -> Path:
        """Write everything to one netCDF file (`.nc`), which `ns.load` reads back to the bit; return its path.

        Raises
        ------
        OptionError
            For another kind of file, or a place that cannot be written.

        Examples
        --------
        >>> import tempfile, casadi as ca, nosnoc_py as ns
        >>> x = ca.SX.sym("x")
        >>> motion = ns.simulate(ns.ODE(x=x, flow=-x), x0=[2.0], duration=1.0)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     again = ns.load(motion.save(f"{folder}/motion.nc"))
        >>> bool((again.x == motion.x).all())
        True
        """
        return save(self, path)

    def __repr__(self) -> str:
        span = f"t = {self.t0:g} .. {self.t[-1]:g} s, {len(self.t)} nodes"
        branches = self._branches()
        stems = ["├── "] * (len(branches) - 1) + ["└── "]
        lines = [stem + branch for stem, branch in zip(stems, branches, strict=True)]
        return "\n".join([f"{type(self).__name__}: {self.status}, {span}", *lines])

    def _repr_html_(self) -> str:
        # Events have a table of their own.
        rows = [branch.partition(": ")[::2] for branch in self._branches() if not branch.startswith("events (")]
        return page(repr(self).partition("\n")[0], table(rows), *self._html_parts())

    def _html_parts(self) -> list[str]:
        """Return the tables of a notebook below the one with the lines of `repr`."""
        return [table(*event_rows(self.events))]

    def _branches(self) -> list[str]:
        """Return the lines of the tree that `repr` draws."""
        parts = {
            f"states ({len(self.state_names)})": self.state_names,
            f"controls ({len(self.control_names)} on {len(self.u)} stages)": self.control_names,
            f"series ({len(self.series)})": self.series,
            f"parameters ({len(self.parameters)})": [f"{name} = {v:g}" for name, v in self.parameters.items()],
            f"events ({len(self.events)})": [f"{e.kind} {e.name} at {e.time:.4g}" for e in self.events],
        }
        branches = [f"{title}: {enumerate_some(items)}" for title, items in parts.items() if items]
        branches += [f"message: {self.message}"] if self.message else []
        branches += [] if self.success else [f"what to try: {self.status.remedy}"]
        return [*branches, *([repr(self.sensitivity).replace("S", "s", 1)] if self.sensitivity is not None else [])]


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Shifted(Trajectory):
    """A trajectory that begins later than its original.

    Parameters
    ----------
    later
        Length of the shift [s].
    stages
        Number of control stages in the shift; 0 if it is no whole number of equal ones.
    w : (n_w,)
        Iterate of the original solution, unshifted; empty without one.
    layout_key
        Fingerprint of the transcription that `w` belongs to.
    branch
        Branch that `w` solves, unshifted.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> x, u = ca.SX.sym("x"), ca.SX.sym("u")
    >>> ocp = ns.OCP(ns.ODE(x=x, u=u, flow=u), horizon=1.0, x0=[0.0], stage_cost=u**2, terminal_cost=(x - 1) ** 2)
    >>> problem = ns.transcribe(ocp, ns.FESD(control_stages=4))
    >>> later = problem.solve().shift(stages=1)
    >>> later.stages, later.later, problem.solve(x0=later.x[0], guess=later).success
    (1, 0.25, True)
    """

    later: float
    stages: int = 0
    w: Array = field(default_factory=lambda: np.empty(0))
    layout_key: str = ""
    branch: SolvedBranch | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        assign(self, w=read_only(self.w, "w", "n_w"), later=float(self.later), stages=int(self.stages))


def event_rows(events: Iterable[Event]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """Return rows of texts about events, and the titles of their columns; those of impacts only if there are any."""
    events = list(events)
    titles = ("time [s]", "event", "name")
    rows = [(f"{event.time:.6g}", event.kind.replace("_", " "), event.name) for event in events]
    if all(event.impulse is None and event.v_before is None for event in events):
        return list(rows), titles

    def number(value: float | None) -> str:
        return "" if value is None else f"{value:.4g}"

    more = [(number(event.impulse), number(event.v_before), number(event.v_after)) for event in events]
    titles_of_impacts = ("impulse [N s]", "normal velocity before [m/s]", "after [m/s]")
    return [(*row, *rest) for row, rest in zip(rows, more, strict=True)], (*titles, *titles_of_impacts)


def first_lines(lines: list[str], most: int, more: str) -> list[str]:
    """Return the first lines, and one with the number of the others."""
    return lines if len(lines) <= most else [*lines[:most], more.format(len(lines) - most)]


def enumerate_some(items: Iterable[str], most: int = 6) -> str:
    """Join items by commas; of a long list the first few."""
    items = list(items)
    return ", ".join(items[:most]) + (", ..." if len(items) > most else "")


def jsonable(value: Any) -> Any:
    """Return nested mappings, sequences and NumPy's values as dicts, lists and numbers; NaN and infinity as None."""
    if isinstance(value, Mapping):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return jsonable(value.tolist())
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    # JSON has neither NaN nor infinity.
    if isinstance(value, float):
        return float(value) if np.isfinite(value) else None
    return value
