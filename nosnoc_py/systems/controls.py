"""Controls in all forms that a user may give, converted to a function of time and state with known breakpoints.

Methods only see a `Control`: a law u(t, x) and the times between which it is smooth. Integrators restart at these
breaks, as a step across a jump would lose its order; `constant` allows compiled steps and derivatives by the values.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import field

from nosnoc_py.annotations import Numbers
from nosnoc_py.arguments import named_arguments
from nosnoc_py.declared import declared
from nosnoc_py.errors import OptionError, TranscriptionError, unknown_name
from nosnoc_py.functions import floats, numbers
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.symbols import SLACK

if TYPE_CHECKING:  # pragma: no cover - for readers and type checkers
    from nosnoc_py.ocp import OCP

# A control grid may miss the ends of the interval by this, relative to its length: times are sums of steps, with
# rounding errors.
GRID_TOLERANCE = 1e-9
# Keys of a guess by name.
GUESSED = ("x", "u")
# Forms of a control, for messages.
A_CONTROL = "a control ({} numbers or rows of them), a function of time, a Trajectory or a Solution"


def _grid(value: Numbers, what: str = "grid") -> np.ndarray:
    grid = floats(value, what, OptionError)
    if grid.ndim != 1 or grid.size < 2 or not (np.diff(grid) > 0).all():
        raise OptionError(f"control grid: expected at least two increasing times, given {value!r}.")
    return grid


def _stages(value: Numbers, what: str = "values", owner: Any = None) -> np.ndarray:
    values, count = floats(value, what, OptionError), owner.grid.size - 1
    values = values.reshape(-1, 1) if values.ndim == 1 else values
    if values.ndim != 2 or len(values) != count:
        raise OptionError(f"control: expected one row for each of the {count} intervals, given shape {values.shape}.")
    if not np.isfinite(values).all():
        raise OptionError("control: every value has to be finite.")
    return values


@declared
class PiecewiseConstant:
    """Control that is constant between given times, right-continuous.

    Parameters
    ----------
    grid : (N + 1,)
        Increasing times [s], from the start to the end.
    values : (N, n_u)
        One row per interval.

    Raises
    ------
    OptionError
        If the times do not increase, or there is not one row per interval.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> u = ns.PiecewiseConstant([0.0, 0.4, 1.0], [[1.0], [-1.0]])
    >>> float(u(0.3)[0]), float(u(0.4)[0])
    (1.0, -1.0)
    """

    grid: np.ndarray = field(converter=_grid)
    values: np.ndarray = field(converter=_stages)

    def __call__(self, t: float) -> np.ndarray:
        """Return the control (n_u,) at t; at the end and beyond the last value."""
        # "right" makes it right-continuous: at a break the new value holds.
        k = int(np.searchsorted(self.grid, t, "right")) - 1
        return np.asarray(self.values[min(max(k, 0), len(self.values) - 1)])


@named_arguments
class SampledLaw:
    """Control law u(t, x) that is evaluated every `period` seconds and held in between (sample and hold).

    Parameters
    ----------
    law : function (t, x) -> (n_u,)
    period : float
        Seconds.

    Raises
    ------
    OptionError
        If the period is no positive number, or the law takes other arguments.

    Examples
    --------
    A cart is braked ten times a second:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=2 - q)])
    >>> motion = ns.simulate(cart, x0=[0, 1], duration=1.0, u=ns.SampledLaw(lambda t, x: -x[1], 0.1))
    >>> round(float(motion.final_state[1]), 6), motion.u.shape  # 0.9 to the power of 10
    (0.348678, (10, 1))
    """

    def __init__(self, law: Callable[[float, np.ndarray], Numbers], period: float) -> None:
        if not callable(law) or _positional(law) < 2:
            raise OptionError(f"SampledLaw: expected a function of t and x, given {law!r}.")
        if isinstance(period, bool) or not isinstance(period, Real) or not 0.0 < float(period) < np.inf:
            raise OptionError(f"SampledLaw: period: expected a positive number of seconds, given {period!r}.")
        self.law: Callable[[float, np.ndarray], Any] = law
        self.period: float = float(period)

    def __call__(self, t: float, x: np.ndarray) -> Any:
        """Return the value of the law (n_u,) at a sample."""
        return self.law(t, x)


@dataclass(frozen=True, eq=False, kw_only=True)
class Control:
    """A control u(t, x) on [0, duration].

    Attributes
    ----------
    law : function (t, x) -> (n_u,)
    breaks : (N + 1,)
        Times from 0 to the duration [s]; between them the law is assumed to be smooth.
    constant : bool
        True if it is constant between the breaks.
    feedback : bool
        True if it depends on the state.
    held : dict, optional
        For a `SampledLaw`: the values (n_u,) of the sampling intervals that the motion has reached.
    """

    law: Callable[[float, np.ndarray], np.ndarray]
    breaks: np.ndarray
    constant: bool
    feedback: bool = False
    held: dict[int, np.ndarray] | None = None

    def __call__(self, t: float, x: np.ndarray) -> np.ndarray:
        """Return the control (n_u,)."""
        if self.held is None:
            return self.law(t, x)
        k = self._interval(t)
        return self.held[k] if k in self.held else self.law(float(self.breaks[k]), x)

    def reached(self, t: float, x: np.ndarray) -> np.ndarray:
        """Return the control (n_u,) at (t, x); the value of a `SampledLaw` is kept for its whole sampling interval.

        Calls that must not fix the sample (tolerances, messages) call the control itself.
        """
        value = self(t, x)
        if self.held is not None:
            # The first state in an interval counts: steps that an integrator repeats must see the same control.
            self.held.setdefault(self._interval(t), value)
        return value

    def _interval(self, t: float) -> int:
        # Times that are a break up to rounding belong to the interval that begins there.
        k = int(np.searchsorted(self.breaks, t * (1.0 + GRID_TOLERANCE), "right")) - 1
        return min(max(k, 0), self.breaks.size - 2)


def control_of(u: Any, n_u: int, duration: float) -> Control:
    """Return a control from any of the forms that a user may give.

    These are None (zero), a constant (n_u,), rows (one per equal interval), a `PiecewiseConstant`, a `SampledLaw`, a
    function of t or (t, x), a `Trajectory` or a `Solution`.

    A function is called with (t, x) when it takes two positional arguments. A trajectory may begin at another time than
    zero, and may be longer than the duration.

    Raises
    ------
    OptionError, TranscriptionError, ModelError
        For another kind of object, wrong shapes, NaN, or a grid that ends before the duration or begins after zero.
    """
    ends = np.array([0.0, duration])
    if u is None:
        return Control(law=lambda t, x: np.zeros(n_u), breaks=ends, constant=True)
    if isinstance(u, Trajectory):
        u = _without_slacks(u, n_u)
        if not len(u.u):
            raise TranscriptionError("u: the trajectory has no control stages, so there is no control to apply.")
        if u.control_interpolant is not None:
            return _dense(u, n_u, duration)
        u = _merged(u)
    if isinstance(u, PiecewiseConstant):
        return _on_grid(u, n_u, duration)
    if callable(u):
        with_state = _positional(u) >= 2
        if isinstance(u, SampledLaw):
            # A `held` of its own for every control: two simulations of one law must not share samples.
            ends, held = _samples(u.period, duration), dict[int, np.ndarray]()
            law = _Law(u, "u(t, x)", n_u, True)
            return Control(law=law, breaks=ends, constant=False, feedback=True, held=held)
        _check_arguments(u, 2 if with_state else 1, "u has to be a function of t, or of t and x")
        what = "u(t, x)" if with_state else "u(t)"
        return Control(law=_Law(u, what, n_u, with_state), breaks=ends, constant=False, feedback=with_state)
    rows = _rows(u, n_u, "u", "control", A_CONTROL)
    return _on_grid(PiecewiseConstant(np.linspace(0.0, duration, len(rows) + 1), rows), n_u, duration)


def _samples(period: float, duration: float) -> np.ndarray:
    """Return the multiples of a period up to the duration, which ends the last interval."""
    # Rounded down by the tolerance: a duration of k periods must not get an interval of rounding at its end.
    inner = period * np.arange(int(np.ceil(duration / period * (1.0 - GRID_TOLERANCE))))
    return np.append(inner if inner.size else [0.0], duration)


class _Law:
    """Function of the user as a control. The first value is checked with an error; later NaN ends the simulation."""

    def __init__(self, function: Callable[..., Any], what: str, n_u: int, with_state: bool) -> None:
        self.function, self.what, self.n_u, self.with_state, self.good = function, what, n_u, with_state, False

    def __call__(self, t: float, x: np.ndarray) -> np.ndarray:
        value = self.function(t, x) if self.with_state else self.function(t)
        # A law that returned numbers before and NaN now (a square root, say) fails like the model: with a status, not
        # an error.
        if self.good and _has_nan(value):
            return np.full(self.n_u, np.nan)
        result = numbers(value, self.what, self.n_u)
        self.good = True
        return result


def _has_nan(value: Any) -> bool:
    """Return True if a value consists of numbers, and one of them is none."""
    try:
        return bool(np.isnan(np.asarray(value, dtype=float)).any()) and value is not None
    except (TypeError, ValueError):
        return False


def control_guess(guess: Any, n_u: int, horizon: float) -> Callable[[float], np.ndarray]:
    """Return a control as a function of time, from a constant, a function of time, an array with a row per interval, or
    a mapping that has one of these as "u" (zero without "u").

    Raises
    ------
    TranscriptionError
        For another kind of object, a wrong shape, or NaN.
    """
    if isinstance(guess, Mapping):
        control = checked_guess(guess).get("u")
        return control_guess(np.zeros(n_u) if control is None else control, n_u, horizon)
    if callable(guess):
        _check_arguments(guess, 1, "guess: a control has to be a function of t")
        return lambda t: _vector(guess(t), n_u, "control")
    rows = _rows(guess, n_u, "guess", "control", A_CONTROL)
    # The end of the horizon belongs to the last interval.
    return lambda t: rows[min(int(t / horizon * len(rows)), len(rows) - 1)]


def control_of_guess(ocp: OCP, guess: Any) -> Callable[[float], np.ndarray]:
    """Return a guess in any form as a function of time; zero by default.

    Raises
    ------
    OptionError, TranscriptionError
        If it is none, or has other controls than the OCP.
    """
    if guess is None:
        return lambda t: np.zeros(ocp.system.n_u)
    if isinstance(guess, Trajectory):
        if guess.control_names != ocp.system.control_names or not len(guess.u):
            raise OptionError(
                f"guess: expected a trajectory with the controls {', '.join(ocp.system.control_names)}, given "
                f"{', '.join(guess.control_names) or 'none'}."
            )
        return lambda t: guess.control(min(guess.t0 + t, guess.u_grid[-1]))
    return control_guess(guess, ocp.system.n_u, ocp.horizon)


def state_guess(guess: Any, n_x: int, horizon: float) -> Callable[[float], np.ndarray]:
    """Return a state as a function of time, from a constant, a function of time, or rows at equally spaced times from 0
    to the horizon, joined by straight lines.

    Raises
    ------
    TranscriptionError
        For another kind of object, a wrong shape, or a number that is not finite.
    """
    if callable(guess):
        _check_arguments(guess, 1, "guess x: a state has to be a function of t")
        return lambda t: _vector(guess(t), n_x, "guess x")
    rows = _rows(guess, n_x, "guess x", "guess x", "{} numbers, rows of them, or a function of time")
    times = np.linspace(0.0, horizon, len(rows))
    return lambda t: np.array([np.interp(t, times, rows[:, i]) for i in range(n_x)])


def checked_guess(guess: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a guess by name; raise `TranscriptionError` for a name that is neither "x" nor "u"."""
    for name in guess:
        if name not in GUESSED:
            raise TranscriptionError(f"guess: {unknown_name(name, GUESSED)} x are states, u controls.")
    return guess


def _without_slacks(trajectory: Trajectory, n_u: int) -> Trajectory:
    """Return the trajectory without the slacks of soft constraints, where a system does not have them."""
    more = trajectory.control_names[n_u:]
    if not more or not all(name.startswith(SLACK) for name in more):
        return trajectory
    own = trajectory.control_interpolant
    fields: dict[str, Any] = {"u": trajectory.u[:, :n_u], "control_names": trajectory.control_names[:n_u]}
    if own is not None:
        fields["control_interpolant"] = _FirstComponents(own, n_u)
    return replace(trajectory, **fields)


class _FirstComponents:
    """The first components of dense output."""

    def __init__(self, interpolant: Any, count: int) -> None:
        self.interpolant, self.count = interpolant, count
        self.t_left = getattr(interpolant, "t_left", np.zeros(0))

    def __call__(self, t: float) -> np.ndarray:
        return np.asarray(self.interpolant(t))[..., : self.count]


def padded(guess: Any, names: tuple[str, ...], own: int) -> Any:
    """Return a guess of the first `own` controls with zeros for the others; every other guess as it is."""
    more = np.zeros(len(names) - own)
    if isinstance(guess, Trajectory):
        if guess.control_names != names[:own]:
            return guess
        u = np.hstack([guess.u, np.tile(more, (len(guess.u), 1))])
        # Dense output has the old number of controls; the values on the grid are enough for a guess.
        return replace(guess, u=u, control_names=names, control_interpolant=None)
    if callable(guess):
        return lambda t: np.append(guess(t), more)
    try:
        rows = np.asarray(guess, dtype=float)
    except (TypeError, ValueError):
        return guess
    if rows.ndim == 2 and rows.shape[1] == own:
        return np.hstack([rows, np.tile(more, (len(rows), 1))])
    return np.append(rows, more) if rows.ndim < 2 and rows.size == own else guess


def _merged(trajectory: Trajectory) -> PiecewiseConstant:
    """Drop stages of length zero, which have no effect."""
    keep = np.diff(trajectory.u_grid) > 0
    grid = trajectory.u_grid - trajectory.t0
    return PiecewiseConstant(np.append(grid[:-1][keep], grid[-1]), trajectory.u[keep])


def _dense(trajectory: Trajectory, n_u: int, duration: float) -> Control:
    """Return a control with dense output: smooth on the elements that it is made of."""
    _on_grid(PiecewiseConstant(trajectory.u_grid[[0, -1]] - trajectory.t0, trajectory.u[:1]), n_u, duration)  # fits it?
    interpolant, t0 = trajectory.control_interpolant, trajectory.t0
    assert interpolant is not None
    edges = np.unique(getattr(interpolant, "t_left", trajectory.u_grid) - t0)
    # The clock of a simulation may pass the last time by rounding.
    last = float(trajectory.u_grid[-1])

    def law(t: float, x: np.ndarray) -> np.ndarray:
        return np.asarray(interpolant(min(t0 + t, last)))

    return Control(law=law, breaks=_breaks(edges, duration), constant=False)


def _on_grid(u: PiecewiseConstant, n_u: int, duration: float) -> Control:
    if u.values.shape[1] != n_u:
        raise TranscriptionError(f"control: expected {n_u} numbers per interval, given {u.values.shape[1]}.")
    slack = GRID_TOLERANCE * duration
    if u.grid[0] > slack or u.grid[-1] < duration - slack:
        raise OptionError(
            f"control grid: it goes from {u.grid[0]:g} to {u.grid[-1]:g} s, which does not cover the interval from 0 "
            f"to {duration:g} s; give a control for all of it or change the duration."
        )
    return Control(law=lambda t, x: u(t), breaks=_breaks(u.grid, duration), constant=True)


def merged(grid: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return the times of a grid (N + 1,) and others inside of it; times that are equal up to rounding are merged."""
    slack = GRID_TOLERANCE * float(grid[-1] - grid[0])
    inner = times[(times > grid[0]) & (times < grid[-1])]
    return np.unique(np.concatenate([grid, inner[np.abs(inner[:, None] - grid).min(axis=1) > slack]]))


def _breaks(times: np.ndarray, duration: float) -> np.ndarray:
    slack = GRID_TOLERANCE * duration
    # Breaks closer to the ends than the slack would make intervals that are shorter than rounding of time.
    return np.concatenate([[0.0], times[(times > slack) & (times < duration - slack)], [duration]])


def _positional(function: Callable[..., Any]) -> int:
    """Return the number of positional arguments without default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some compiled functions do not say
        return 1
    return sum(
        parameter.default is parameter.empty
        and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        for parameter in parameters
    )


def _check_arguments(function: Callable[..., Any], count: int, expected: str) -> None:
    """Raise `TranscriptionError` for a function that cannot be called with `count` arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some compiled functions do not say
        return
    try:
        signature.bind(*range(count))
    except TypeError:
        given = f"{getattr(function, '__name__', type(function).__name__)}{signature}"
        raise TranscriptionError(f"{expected}, given {given}.") from None


def _rows(values: Any, length: int, what: str, row: str, expected: str) -> np.ndarray:
    """Return rows (n, length) of numbers, called `row` where they are wrong; one row where there is a single one."""
    try:
        if np.asarray(values).dtype.kind in "US":  # NumPy would read numbers from text
            raise TypeError
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError, OverflowError):
        given = type(values).__name__
        raise TranscriptionError(f"{what}: expected {expected.format(length)}, given {given}.") from None
    if array.ndim > 2 or (array.ndim == 1 and array.size != length and length > 0):
        shape = " x ".join(map(str, array.shape))
        raise TranscriptionError(
            f"{what}: {row}: expected {length} numbers or rows of {length}, shape (N, {length}), given shape ({shape})."
        )
    rows = array if array.ndim == 2 else array.reshape(1, -1)
    return np.array([_vector(each, length, row) for each in rows]).reshape(len(rows), length)


def _vector(value: Any, length: int, what: str) -> np.ndarray:
    return numbers(value, what, length, TranscriptionError, spread=False, finite=True)
