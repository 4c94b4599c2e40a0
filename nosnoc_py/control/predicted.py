"""Residuals of simulated motions against measurements, and their Jacobians by parameters and initial states.

A residual is (measured - predicted) / sigma, so that its sum of squares is the negative log-likelihood of Gaussian
noise (up to constants). Derivatives come from the sensitivities of the event-driven simulation: they include saltation
matrices at impacts, so they are exact on both sides of an event. Where a motion has no derivative (a grazing contact,
simultaneous events), one-sided differences replace them.

`ShootingPieces` splits one motion into pieces with free initial states (multiple shooting: Bock 1983), since the
residuals of a long motion with impacts are far from linear in its initial state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.api import simulate
from nosnoc_py.control.measured import admissible
from nosnoc_py.control.measurements import Measurements
from nosnoc_py.errors import ModelError, OptionError, check_positive, unknown_name
from nosnoc_py.simulation.event_driven.options import THROUGH_TOUCHES, EventDriven
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import Control, PiecewiseConstant, control_of
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.symbols import depends_only_on, expressions_of

Array = np.ndarray
# Step of finite differences relative to the range of a free value, where a motion has no derivative: well above the
# tolerances of the simulation.
STEP = 1e-6


def _check_occurs(system: Described, name: str, outputs: Mapping[str, Any] | None) -> None:
    """Raise `OptionError` if a parameter occurs neither in the system nor in the outputs."""
    symbol = system.p[system.parameter_names.index(name)]
    rows = ca.vertcat(*expressions_of(system), *(ca.vec(ca.SX(e)) for e in (outputs or {}).values()))
    if not ca.depends_on(rows, symbol):
        raise OptionError(
            f"fit: free: the parameter {name} occurs nowhere in the {type(system).__name__}, so that no data can tell "
            "its value; write it into a force, a contact or an output, or leave it out of free."
        )


@dataclass(frozen=True, eq=False)
class Output:
    """Measured quantities as a function of the state and the parameters, with its Jacobian."""

    function: ca.Function

    @classmethod
    def of(cls, system: Described, names: Sequence[str], outputs: Mapping[str, Any] | None) -> Output:
        """Build the output function from names of states and from named expressions."""
        expressions, rows = dict(outputs or {}), []
        for name in names:
            if name in expressions:
                rows.append(ca.SX(expressions[name]))
            elif name in system.state_names:
                rows.append(system.x[system.state_names.index(name)])
            else:
                known_names = (*system.state_names, *expressions)
                raise OptionError(
                    f"data: {unknown_name(name, known_names)} Other quantities need outputs={{name: expression}}."
                )
        y = ca.vertcat(*rows)
        blocks = [y, ca.jacobian(y, system.x), ca.jacobian(y, system.p)]
        if not depends_only_on(y, ca.vertcat(system.x, system.p)):
            raise OptionError("outputs: expected expressions in the states and the parameters of the system.")
        return cls(ca.Function("outputs", [system.x, system.p], [ca.densify(part) for part in blocks]))

    def __call__(self, x: Array, p: Array) -> tuple[Array, Array, Array]:
        """Return y (n_y,), dy/dx (n_y, n_x), dy/dp (n_y, n_p)."""
        y, by_x, by_p = (np.array(part) for part in self.function(x, p))
        return y[:, 0], by_x, by_p


@dataclass(frozen=True, eq=False, kw_only=True)
class Predictions:
    """Residuals of measured motions as a function of the free values (parameters, initial states).

    Attributes
    ----------
    names : tuple of str
        Names of the free values; "x[1]" is state x of the second motion.
    bounds : (lower, upper), each (k,)
    prior : (mean, standard deviation), each (k,), optional
        Knowledge of the free values before the data: further residuals (value - mean) / std, where the std is finite.
    stages : (N + 1,), optional
        Times between which free errors of the control (entries "u") are constant.
    """

    system: Described
    runs: tuple[Measurements, ...]
    outputs: tuple[Output, ...]
    names: tuple[str, ...]
    bounds: tuple[Array, Array]
    # Of each free value: "p", "x" or "u", index in it, number of the motion (of "u": of the stage).
    entries: tuple[tuple[str, int, int], ...]
    x0: tuple[Array, ...]
    p: Array
    u: tuple[Any, ...]
    method: EventDriven
    prior: tuple[Array, Array] | None = None
    stages: Array | None = None

    @classmethod
    def of(
        cls,
        system: Described,
        runs: tuple[Measurements, ...],
        free: Any,
        x0: Any,
        p: Any,
        u: Any,
        outputs: Any,
        method: Any,
    ) -> Predictions:
        """Check the arguments of `nosnoc_py.fit` and assemble the residual function."""
        if not isinstance(free, Mapping) or not free:
            raise OptionError(f"fit: free: expected a mapping of names to (lower, upper), given {free!r}.")
        names, entries, lower, upper = tuple(free), [], [], []
        for name, bound in free.items():
            base, _, suffix = name.partition("[")
            # A state may itself be called "q[1]": the whole name wins over a number of a motion (below).
            number = int(suffix.rstrip("]")) if suffix.rstrip("]").isdigit() and base in system.state_names else 0
            if name in system.parameter_names:
                _check_occurs(system, name, outputs)
                entries.append(("p", system.parameter_names.index(name), 0))
            elif name in system.state_names or (base in system.state_names and number < len(runs)):
                key = name if name in system.state_names else base
                entries.append(("x", system.state_names.index(key), 0 if name in system.state_names else number))
            else:
                raise OptionError(f"fit: free: {unknown_name(name, (*system.parameter_names, *system.state_names))}")
            try:
                low, high = (float(value) for value in bound)
            except (TypeError, ValueError):
                raise OptionError(f"fit: free: {name}: expected (lower, upper), given {bound!r}.") from None
            if not (np.isfinite([low, high]).all() and low < high):
                raise OptionError(f"fit: free: {name}: expected finite lower < upper, given {bound!r}.")
            lower.append(low)
            upper.append(high)
        many = len(runs) > 1
        # A flat list is one state for all motions; a list of lists has one for each.
        starts = tuple(x0) if many and isinstance(x0, Sequence | np.ndarray) and np.ndim(x0[0]) else (x0,) * len(runs)
        controls = tuple(u) if many and isinstance(u, list | tuple) and len(u) == len(runs) else (u,) * len(runs)
        return cls(
            system=system, runs=runs, outputs=tuple(Output.of(system, run.names, outputs) for run in runs), names=names,
            bounds=(np.array(lower), np.array(upper)), entries=tuple(entries),
            x0=tuple(_state(system, start, names) for start in starts), p=_parameters(system, p, names), u=controls,
            # A contact that only grazes for some values must not end the search there.
            method=THROUGH_TOUCHES if method is None else method,
        )  # fmt: skip

    def split(self, values: Array) -> tuple[tuple[Array, ...], Array]:
        """Insert free values (k,); return the initial states of all motions and the parameters."""
        p, starts = self.p.copy(), [x.copy() for x in self.x0]
        for value, (kind, index, run) in zip(values, self.entries, strict=True):
            if kind == "p":
                p[index] = value
            elif kind == "x":
                starts[run][index] = value
        return tuple(starts), p

    def control(self, values: Array, run: int) -> Any:
        """Return the control of a motion with its free errors."""
        if self.stages is None:
            return self.u[run]
        base = control_of(self.u[run], self.system.n_u, float(self.runs[run].times[-1]))
        grid = np.union1d(base.breaks, self.stages)
        middles = 0.5 * (grid[1:] + grid[:-1])
        rows = np.array([base(float(t), np.zeros(0)) for t in middles])
        interval = np.searchsorted(self.stages, middles) - 1
        for value, (kind, index, stage) in zip(values, self.entries, strict=True):
            if kind == "u":
                rows[interval == stage, index] += value
        return PiecewiseConstant(grid, rows)

    def motion(self, values: Array, run: int = 0) -> Trajectory:
        """Simulate the motion of free values (k,) up to the last measurement."""
        return self.simulated(values, run, sensitivities=False)

    def simulated(self, values: Array, run: int, *, sensitivities: bool) -> Trajectory:
        """Simulate one motion with grid points at the measurements."""
        starts, p = self.split(values)
        x0, data = starts[run], self.runs[run]
        end = float(data.times[-1])
        return simulate(
            self.system, x0=admissible(self.system, x0, p), duration=end, p=p, u=self.control(values, run),
            times=data.times,
            method=self.method, sensitivities=sensitivities,
        )  # fmt: skip

    def piece(self, x0: Array, p: Array, begin: float, end: float, data: Measurements) -> Trajectory:
        """Simulate a piece of the motion from a state at `begin` to `end`; its time starts at zero."""
        control = self.u[0]
        if control is not None:
            whole_control = control_of(control, self.system.n_u, float(self.runs[0].times[-1]))
            control = _Later(whole_control, begin)
        # States at the cuts are free unknowns and may penetrate on the way.
        start = admissible(self.system, x0, p)
        return simulate(
            self.system, x0=start, duration=end - begin, p=p, u=control, times=data.times[data.times > 0.0],
            method=self.method, sensitivities=True,
        )  # fmt: skip

    def residuals(self, values: Array) -> tuple[Array, Array] | None:
        """Return residuals (n,) and their Jacobian (n, k), or None if a simulation fails."""
        p = self.split(values)[1]
        blocks = []
        for run, (data, output) in enumerate(zip(self.runs, self.outputs, strict=True)):
            try:
                motion = self.simulated(values, run, sensitivities=True)
            # An inadmissible state or parameter is a point that the search has to leave, not an error of the user.
            except ModelError:
                return None
            if not motion.success:
                return None
            block = self._of_motion(motion, data, output, p, run)
            if block is None:
                # One motion without a derivative: difference all of them, which keeps the Jacobian consistent.
                return self._by_differences(values)
            blocks.append(block)
        blocks.append(self._of_prior(values))
        return np.concatenate([r for r, _ in blocks]), np.concatenate([J for _, J in blocks])

    def _of_prior(self, values: Array) -> tuple[Array, Array]:
        """Return residuals of the prior and their derivatives; none for values without one."""
        if self.prior is None:
            return np.zeros(0), np.zeros((0, values.size))
        mean, std = self.prior
        known = np.isfinite(std)
        return ((values - mean) / std)[known], np.diag(1.0 / std)[known]

    def _of_motion(
        self, motion: Trajectory, data: Measurements, output: Output, p: Array, run: int
    ) -> tuple[Array, Array] | None:
        sensitivity = motion.sensitivity
        # Grazing and simultaneous events have no derivative, see the head of the file.
        if sensitivity is None or not sensitivity.smooth or sensitivity.orbital is None:
            return None
        r, by_x, by_p = weighted(motion, data, output, p)
        jacobian = np.zeros((r.size, len(self.names)))
        for i, (kind, index, number) in enumerate(self.entries):
            if kind == "p":
                jacobian[:, i] = by_p[:, index]
            # The initial state of one motion does not influence the others.
            elif kind == "x" and number == run:
                jacobian[:, i] = by_x[:, index]
        if self.stages is not None:
            at_errors = [i for i, (kind, *_) in enumerate(self.entries) if kind == "u"]
            jacobian[:, at_errors] = by_states(motion, data, output, p, self.by_values(motion)[0][:, :, at_errors])
        return r, jacobian

    def by_values(self, motion: Trajectory) -> tuple[Array, Array]:
        """Return derivatives of the states at the nodes (nodes, n_x, k) and of event times (n_events, k).

        By the free values, of the first motion, which was simulated with sensitivities.
        """
        sensitivity = motion.sensitivity
        assert sensitivity is not None
        states = np.full((motion.t.size, len(self.system.state_names), len(self.names)), np.nan)
        times = np.full((len(motion.events), len(self.names)), np.nan)
        if sensitivity.orbital is None or sensitivity.orbital_p is None or sensitivity.event_times_x0 is None:
            return states, times
        assert sensitivity.event_times_p is not None
        for i, (kind, index, number) in enumerate(self.entries):
            if kind == "p":
                states[:, :, i], times[:, i] = sensitivity.orbital_p[:, :, index], sensitivity.event_times_p[:, index]
            elif kind == "x" and number == 0:
                states[:, :, i], times[:, i] = sensitivity.orbital[:, :, index], sensitivity.event_times_x0[:, index]
            elif kind == "u" and self.stages is not None and sensitivity.orbital_u is not None:
                grid = motion.u_grid - motion.t0
                own = np.searchsorted(self.stages, 0.5 * (grid[1:] + grid[:-1])) - 1 == number
                states[:, :, i] = sensitivity.orbital_u[:, own][..., index].sum(axis=1)
                if sensitivity.event_times_u is not None:
                    times[:, i] = sensitivity.event_times_u[:, own][..., index].sum(axis=1)
        return states, times

    def only(self, values: Array) -> Array | None:
        """Return the residuals (n,) without derivatives, or None if a simulation fails."""
        p = self.split(values)[1]
        r = []
        for run, (data, output) in enumerate(zip(self.runs, self.outputs, strict=True)):
            try:
                motion = self.simulated(values, run, sensitivities=False)
            except ModelError:
                return None
            if not motion.success:
                return None
            r.append(weighted(motion, data, output, p)[0])
        return np.concatenate([*r, self._of_prior(values)[0]])

    def _by_differences(self, values: Array) -> tuple[Array, Array] | None:
        base = self.only(values)
        if base is None:
            return None
        lower, upper = self.bounds
        columns = []
        for i, size in enumerate(STEP * (upper - lower)):
            step = np.zeros(values.size)
            # Step inwards at an upper bound: outside, a restitution or mass may be invalid.
            step[i] = size if values[i] + size <= upper[i] else -size
            shifted = self.only(values + step)
            # A zero column freezes this value for one step, rather than the whole search.
            columns.append(np.zeros(base.size) if shifted is None else (shifted - base) / step[i])
        return base, np.array(columns).T


def weighted(motion: Trajectory, data: Measurements, output: Output, p: Array) -> tuple[Array, Array, Array]:
    """Return residuals (n,) at finite measurements and, with sensitivities, d/dx0 (n, n_x) and d/dp (n, n_p)."""
    sensitivity = motion.sensitivity
    r, by_start, by_p = [], [], []
    for k, node in enumerate(nodes_at(motion.t - motion.t0, data.times)):
        y, by_state, by_own = output(motion.x[node], p)
        # Missing values (NaN) drop out of the residuals.
        finite = [j for j, name in enumerate(data.names) if np.isfinite(data.values[name][k])]
        noise = np.array([data.noise[data.names[j]][k] for j in finite])
        r.append((np.array([data.values[data.names[j]][k] for j in finite]) - y[finite]) / noise)
        if sensitivity is not None and sensitivity.orbital is not None and sensitivity.orbital_p is not None:
            # Minus: residuals are measured minus predicted.
            by_start.append(-by_state[finite] @ sensitivity.orbital[node] / noise[:, None])
            by_p.append(-(by_state[finite] @ sensitivity.orbital_p[node] + by_own[finite]) / noise[:, None])
    empty = np.zeros((0, 0))
    return np.concatenate(r), np.vstack(by_start) if by_start else empty, np.vstack(by_p) if by_p else empty


def checked_sigma(sigma: Any, period: float, what: str) -> dict[str, float]:
    """Return name -> standard deviation of what is measured every period; raise `OptionError` for anything else."""
    if not isinstance(sigma, Mapping) or not sigma:
        raise OptionError(f"{what}: sigma: expected a mapping of what is measured to its noise, given {sigma!r}.")
    check_positive(period=period, **{f"sigma of {name}": value for name, value in sigma.items()})
    return {name: float(value) for name, value in sigma.items()}


def by_states(motion: Trajectory, data: Measurements, output: Output, p: Array, states: Array) -> Array:
    """Return derivatives of the residuals (n, k) from those of the states at the nodes (nodes, n_x, k)."""
    rows = []
    for k, node in enumerate(nodes_at(motion.t - motion.t0, data.times)):
        by_state = output(motion.x[node], p)[1]
        finite = [j for j, name in enumerate(data.names) if np.isfinite(data.values[name][k])]
        noise = np.array([data.noise[data.names[j]][k] for j in finite])
        rows.append(-by_state[finite] @ states[node] / noise[:, None])
    return np.vstack(rows)


@dataclass(frozen=True, eq=False)
class _Later:
    """Control shifted in time: u(t + by, x)."""

    control: Control
    by: float

    def __call__(self, t: float, x: Array) -> Array:
        return self.control(t + self.by, x)


@dataclass(frozen=True, eq=False, kw_only=True)
class ShootingPieces:
    """Measured motion split into pieces, each with a free initial state (multiple shooting, Bock 1983).

    Attributes
    ----------
    first : (k + (segments - 1) n_x,)
        Initial iterate: free values, then states at the cuts (measured values where available, else simulated).
    bounds : (lower, upper)
    """

    predictions: Predictions
    cuts: tuple[float, ...]
    data: tuple[Measurements, ...]
    first: Array
    bounds: tuple[Array, Array]

    @classmethod
    def of(cls, predictions: Predictions, start: Array, segments: int) -> ShootingPieces:
        """Cut a motion into pieces with equal numbers of measurements."""
        if len(predictions.runs) > 1:
            raise OptionError("fit: segments: expected one motion; several motions are pieces already.")
        data, n_x = predictions.runs[0], len(predictions.system.state_names)
        if segments > data.times.size // 2:
            raise OptionError(
                f"fit: segments: expected at least two measurements in each, given {segments} for {data.times.size}."
            )
        rows_of = np.array_split(np.arange(data.times.size), segments)
        # Cuts lie at measurements, where a measured state is a good start of the next piece.
        cuts = (0.0, *(float(data.times[rows_in[0]]) for rows_in in rows_of[1:]), float(data.times[-1]))
        pieces = [data.part(rows_in, begin) for rows_in, begin in zip(rows_of, cuts, strict=False)]
        motion = predictions.motion(start)
        states = [_measured_state(predictions.system, data, rows_in, motion) for rows_in in rows_of[1:]]
        lower, upper = predictions.bounds
        # States at the cuts are internal unknowns: the gaps, not bounds, hold them.
        free = np.full((segments - 1) * n_x, np.inf)
        return cls(
            predictions=predictions, cuts=cuts, data=tuple(pieces), first=np.concatenate([start, *states]),
            bounds=(np.append(lower, -free), np.append(upper, free)),
        )  # fmt: skip

    def residuals(self, z: Array, share: float) -> tuple[Array, Array] | None:
        """Return residuals of data and of the gaps between pieces, with their Jacobian; None if a simulation fails.

        Gaps are divided by `share * x_nominal`: a smaller share closes them more tightly.
        """
        predictions, k, n_x = self.predictions, len(self.predictions.names), len(self.predictions.system.state_names)
        starts, p = predictions.split(z[:k])
        states = [starts[0], *np.reshape(z[k:], (-1, n_x))]
        scale, rows, jacobians = share * predictions.system.x_nominal, [], []
        for i, (data, x) in enumerate(zip(self.data, states, strict=True)):
            begin, end = self.cuts[i], self.cuts[i + 1]
            try:
                motion = predictions.piece(x, p, begin, end, data)
            except ModelError:
                return None
            sensitivity = motion.sensitivity
            if (
                not motion.success
                or sensitivity is None
                or sensitivity.orbital is None
                or sensitivity.orbital_p is None
            ):
                return None
            blocks = [weighted(motion, data, predictions.outputs[0], p)]
            if i + 1 < len(states):
                # The gap is a residual like the data: its small scale is a large weight.
                gap = (states[i + 1] - motion.x[-1]) / scale
                blocks.append(
                    (gap, -sensitivity.orbital[-1] / scale[:, None], -sensitivity.orbital_p[-1] / scale[:, None])
                )
            # Block 0 holds data residuals, block 1 the gap, which also depends on the next state.
            for number, (r, by_x, by_p) in enumerate(blocks):
                jacobian = np.zeros((r.size, z.size))
                for column, (kind, index, _) in enumerate(predictions.entries):
                    if kind == "p":
                        jacobian[:, column] = by_p[:, index]
                    elif i == 0:
                        jacobian[:, column] = by_x[:, index]
                if i > 0:
                    jacobian[:, k + (i - 1) * n_x : k + i * n_x] = by_x
                if number:
                    jacobian[:, k + i * n_x : k + (i + 1) * n_x] = np.diag(1.0 / scale)
                rows.append(r)
                jacobians.append(jacobian)
        return np.concatenate(rows), np.vstack(jacobians)


def _measured_state(system: Described, data: Measurements, indices: Array, motion: Trajectory) -> Array:
    """Return the state (n_x,) at the start of a piece: measured, differenced positions for velocities, or simulated."""
    t, names = data.times, system.state_names
    x = np.array(motion.x[nodes_at(motion.t - motion.t0, t[indices[:1]])[0]])
    for i, name in enumerate(names):
        if name in data.values and np.isfinite(data.values[name][indices[0]]):
            x[i] = data.values[name][indices[0]]
    if isinstance(system, CLS) and system.at_q.stop == system.n_q and t[indices[1]] > t[indices[0]]:
        for i in range(min(system.n_q, system.n_v)):
            measured = [name in data.values for name in (names[i], names[system.at_v.start + i])]
            if measured == [True, False]:
                # Only positions are measured: difference them for a start of the velocity.
                step = np.diff(data.values[names[i]][indices[:2]])[0]
                x[system.at_v.start + i] = step / np.diff(t[indices[:2]])[0] if np.isfinite(step) else 0.0
    return x


def nodes_at(t: Array, times: Array) -> Array:
    """Return the indices of the grid points at `times`; at an impact the point after it."""
    nodes = np.searchsorted(t, times + 1e-12 * (1.0 + np.abs(times)), "right") - 1
    return np.asarray(np.clip(nodes, 0, t.size - 1))


def by_names(values: Any, names: Sequence[str], what: str) -> Array:
    """Expand a number, an array or a mapping (missing names are zero) to one value per name."""
    if isinstance(values, Mapping):
        array = np.zeros(len(names))
        for name, value in values.items():
            if name not in names:
                raise OptionError(f"{what}: {unknown_name(name, tuple(names))}")
            array[list(names).index(name)] = float(value)
        return array
    value = np.asarray(values, dtype=float)
    if value.shape not in {(), (len(names),)} or not np.isfinite(value).all():
        raise OptionError(f"{what}: expected {len(names)} finite numbers or names of them, given {values!r}.")
    return np.broadcast_to(value, (len(names),)).copy()


def _state(system: Described, values: Any, free: Sequence[str]) -> Array:
    names = system.state_names
    if values is None:
        if missing := [name for name in names if name not in free]:
            raise OptionError(
                f"fit: x0: expected an initial state, or all states free; {', '.join(missing)} have no value."
            )
        return np.zeros(len(names))
    return by_names(values, names, "fit: x0")


def _parameters(system: Described, values: Any, free: Sequence[str]) -> Array:
    if isinstance(values, Mapping):
        array = system.p_or_zeros.copy()
        for name, value in values.items():
            if name not in system.parameter_names:
                raise OptionError(f"fit: p: {unknown_name(name, system.parameter_names)}")
            array[system.parameter_names.index(name)] = float(value)
        return array
    if values is None and system.p_default is None:
        if missing := [name for name in system.parameter_names if name not in free]:
            raise OptionError(f"fit: p: {', '.join(missing)} have no value; give p=, or free them.")
        return np.zeros(system.n_p)
    return np.array(system.parameters(values), dtype=float)
