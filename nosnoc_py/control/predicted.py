"""What a motion with given parameters and initial states says of measured quantities, and its derivatives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.api import simulate
from nosnoc_py.control.measured import admissible
from nosnoc_py.control.measurements import Measurements
from nosnoc_py.errors import ModelError, OptionError, unknown_name
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.solution import Trajectory
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.controls import Control, control_of
from nosnoc_py.systems.described import Described

Array = np.ndarray
# Differences, where a motion has no derivative: shares of the ranges.
STEP = 1e-6


@dataclass(frozen=True, eq=False)
class Output:
    """Measured quantities as a function of the state and the parameters, with its Jacobian."""

    function: ca.Function

    @classmethod
    def of(cls, system: Described, names: Sequence[str], outputs: Mapping[str, Any] | None) -> Output:
        """Of states by their names, or of expressions."""
        given, rows = dict(outputs or {}), []
        for name in names:
            if name in given:
                rows.append(ca.SX(given[name]))
            elif name in system.state_names:
                rows.append(system.x[system.state_names.index(name)])
            else:
                known = (*system.state_names, *given)
                raise OptionError(
                    f"data: {unknown_name(name, known)} Other quantities need outputs={{name: expression}}."
                )
        y = ca.vertcat(*rows)
        parts = [y, ca.jacobian(y, system.x), ca.jacobian(y, system.p)]
        if ca.symvar(ca.veccat(*parts)) and not {str(s) for s in ca.symvar(y)} <= {
            str(s) for s in ca.symvar(ca.vertcat(system.x, system.p))
        }:
            raise OptionError("outputs: expected expressions in the states and the parameters of the system.")
        return cls(ca.Function("outputs", [system.x, system.p], [ca.densify(part) for part in parts]))

    def __call__(self, x: Array, p: Array) -> tuple[Array, Array, Array]:
        """y (n_y,), dy/dx (n_y, n_x), dy/dp (n_y, n_p)."""
        y, by_x, by_p = (np.array(part) for part in self.function(x, p))
        return y[:, 0], by_x, by_p


@dataclass(frozen=True, eq=False, kw_only=True)
class Predictions:
    """The residuals of measured motions as a function of free values.

    Attributes
    ----------
    names : tuple of str
        Of the free values.
    bounds : (lower, upper), each (k,)
    """

    system: Described
    runs: tuple[Measurements, ...]
    outputs: tuple[Output, ...]
    names: tuple[str, ...]
    bounds: tuple[Array, Array]
    places: tuple[tuple[str, int, int], ...]  # "p" or "x", index, motion
    x0: tuple[Array, ...]
    p: Array
    u: tuple[Any, ...]
    method: EventDriven

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
        """Check and put together."""
        if not isinstance(free, Mapping) or not free:
            raise OptionError(f"fit: free: expected a mapping of names to (lower, upper), given {free!r}.")
        names, places, lower, upper = tuple(free), [], [], []
        for name, given in free.items():
            base, _, rest = name.partition("[")
            of = int(rest.rstrip("]")) if rest.rstrip("]").isdigit() and base in system.state_names else 0
            if name in system.parameter_names:
                places.append(("p", system.parameter_names.index(name), 0))
            elif name in system.state_names or (base in system.state_names and of < len(runs)):
                key = name if name in system.state_names else base
                places.append(("x", system.state_names.index(key), 0 if name in system.state_names else of))
            else:
                raise OptionError(f"fit: free: {unknown_name(name, (*system.parameter_names, *system.state_names))}")
            try:
                low, high = (float(value) for value in given)
            except (TypeError, ValueError):
                raise OptionError(f"fit: free: {name}: expected (lower, upper), given {given!r}.") from None
            if not (np.isfinite([low, high]).all() and low < high):
                raise OptionError(f"fit: free: {name}: expected finite lower < upper, given {given!r}.")
            lower.append(low)
            upper.append(high)
        several = len(runs) > 1
        starts = (
            tuple(x0) if several and isinstance(x0, Sequence | np.ndarray) and np.ndim(x0[0]) else (x0,) * len(runs)
        )
        controls = tuple(u) if several and isinstance(u, list | tuple) and len(u) == len(runs) else (u,) * len(runs)
        return cls(
            system=system, runs=runs, outputs=tuple(Output.of(system, run.names, outputs) for run in runs), names=names,
            bounds=(np.array(lower), np.array(upper)), places=tuple(places),
            x0=tuple(_state(system, start, names) for start in starts), p=_parameters(system, p, names), u=controls,
            method=EventDriven(grazing="continue") if method is None else method,
        )  # fmt: skip

    def split(self, values: Array) -> tuple[tuple[Array, ...], Array]:
        """Initial states of all motions, and the parameters."""
        p, starts = self.p.copy(), [x.copy() for x in self.x0]
        for value, (kind, index, run) in zip(values, self.places, strict=True):
            if kind == "p":
                p[index] = value
            else:
                starts[run][index] = value
        return tuple(starts), p

    def motion(self, values: Array, run: int = 0) -> Trajectory:
        """The motion of the values, to the last measurement."""
        starts, p = self.split(values)
        return self.simulated(starts[run], p, run, sensitivities=False)

    def simulated(self, x0: Array, p: Array, run: int, *, sensitivities: bool) -> Trajectory:
        """One motion with nodes at the measurements."""
        data = self.runs[run]
        end = float(data.times[-1])
        return simulate(
            self.system, x0=admissible(self.system, x0, p), duration=end, p=p, u=self.u[run], times=data.times,
            method=self.method, sensitivities=sensitivities,
        )  # fmt: skip

    def piece(self, x0: Array, p: Array, begin: float, end: float, data: Measurements) -> Trajectory:
        """The motion from a state at `begin` to `end`, its times counted from there."""
        control = self.u[0]
        if control is not None:
            whole = control_of(control, self.system.n_u, float(self.runs[0].times[-1]))
            control = _Later(whole, begin)
        start = admissible(self.system, x0, p)
        return simulate(
            self.system, x0=start, duration=end - begin, p=p, u=control, times=data.times[data.times > 0.0],
            method=self.method, sensitivities=True,
        )  # fmt: skip

    def residuals(self, values: Array) -> tuple[Array, Array] | None:
        """Residuals (n,) and their Jacobian (n, k); None where no motion comes to the end."""
        starts, p = self.split(values)
        parts = []
        for run, (data, output) in enumerate(zip(self.runs, self.outputs, strict=True)):
            try:
                motion = self.simulated(starts[run], p, run, sensitivities=True)
            except ModelError:
                return None
            if not motion.success:
                return None
            found = self._of_motion(motion, data, output, p, run)
            if found is None:
                return self._by_differences(values)
            parts.append(found)
        return np.concatenate([r for r, _ in parts]), np.concatenate([J for _, J in parts])

    def _of_motion(
        self, motion: Trajectory, data: Measurements, output: Output, p: Array, run: int
    ) -> tuple[Array, Array] | None:
        sensitivity = motion.sensitivity
        if sensitivity is None or not sensitivity.smooth or sensitivity.orbital is None:
            return None
        r, by_x, by_p = weighted(motion, data, output, p)
        slope = np.zeros((r.size, len(self.names)))
        for i, (kind, index, of) in enumerate(self.places):
            if kind == "p":
                slope[:, i] = by_p[:, index]
            elif of == run:
                slope[:, i] = by_x[:, index]
        return r, slope

    def only(self, values: Array) -> Array | None:
        """Residuals (n,) alone."""
        starts, p = self.split(values)
        r = []
        for run, (data, output) in enumerate(zip(self.runs, self.outputs, strict=True)):
            try:
                motion = self.simulated(starts[run], p, run, sensitivities=False)
            except ModelError:
                return None
            if not motion.success:
                return None
            r.append(weighted(motion, data, output, p)[0])
        return np.concatenate(r)

    def _by_differences(self, values: Array) -> tuple[Array, Array] | None:
        base = self.only(values)
        if base is None:
            return None
        lower, upper = self.bounds
        columns = []
        for i, size in enumerate(STEP * (upper - lower)):
            step = np.zeros(values.size)
            step[i] = size if values[i] + size <= upper[i] else -size
            other = self.only(values + step)
            columns.append(np.zeros(base.size) if other is None else (other - base) / step[i])
        return base, np.array(columns).T


def weighted(motion: Trajectory, data: Measurements, output: Output, p: Array) -> tuple[Array, Array, Array]:
    """Residuals (n,) of what is measured, and with sensitivities their derivatives by the initial state and by p."""
    sensitivity = motion.sensitivity
    r, by_start, by_p = [], [], []
    for k, node in enumerate(nodes_at(motion.t - motion.t0, data.times)):
        y, slope, own = output(motion.x[node], p)
        seen = [j for j, name in enumerate(data.names) if np.isfinite(data.values[name][k])]
        noise = np.array([data.noise[data.names[j]][k] for j in seen])
        r.append((np.array([data.values[data.names[j]][k] for j in seen]) - y[seen]) / noise)
        if sensitivity is not None and sensitivity.orbital is not None and sensitivity.orbital_p is not None:
            by_start.append(-slope[seen] @ sensitivity.orbital[node] / noise[:, None])
            by_p.append(-(slope[seen] @ sensitivity.orbital_p[node] + own[seen]) / noise[:, None])
    none = np.zeros((0, 0))
    return np.concatenate(r), np.vstack(by_start) if by_start else none, np.vstack(by_p) if by_p else none


@dataclass(frozen=True, eq=False)
class _Later:
    """A control whose time begins later."""

    control: Control
    by: float

    def __call__(self, t: float, x: Array) -> Array:
        return self.control(t + self.by, x)


@dataclass(frozen=True, eq=False, kw_only=True)
class ShootingPieces:
    """A measured motion in pieces, each with its own state at its beginning (multiple shooting, Bock 1983).

    Attributes
    ----------
    first : (k + (segments - 1) n_x,)
        Free values and states to begin with: measured where they are measured, else those of a simulation.
    bounds : (lower, upper)
    """

    made: Predictions
    cuts: tuple[float, ...]
    data: tuple[Measurements, ...]
    first: Array
    bounds: tuple[Array, Array]

    @classmethod
    def of(cls, made: Predictions, start: Array, segments: int) -> ShootingPieces:
        """Cut between measurements into pieces with equally many."""
        if len(made.runs) > 1:
            raise OptionError("fit: segments: expected one motion; several motions are pieces already.")
        data, n_x = made.runs[0], len(made.system.state_names)
        if segments > data.times.size // 2:
            raise OptionError(
                f"fit: segments: expected at least two measurements in each, given {segments} for {data.times.size}."
            )
        parts = np.array_split(np.arange(data.times.size), segments)
        cuts = (0.0, *(float(data.times[part[0]]) for part in parts[1:]), float(data.times[-1]))
        pieces = [data.part(part, begin) for part, begin in zip(parts, cuts, strict=False)]
        motion = made.motion(start)
        states = [_measured_state(made.system, data, part, motion) for part in parts[1:]]
        lower, upper = made.bounds
        free = np.full((segments - 1) * n_x, np.inf)
        return cls(
            made=made, cuts=cuts, data=tuple(pieces), first=np.concatenate([start, *states]),
            bounds=(np.append(lower, -free), np.append(upper, free)),
        )  # fmt: skip

    def residuals(self, z: Array, share: float) -> tuple[Array, Array] | None:
        """Residuals of the data and of the gaps between pieces, over this share of `x_nominal`, and their Jacobian."""
        made, k, n_x = self.made, len(self.made.names), len(self.made.system.state_names)
        starts, p = made.split(z[:k])
        states = [starts[0], *np.reshape(z[k:], (-1, n_x))]
        scale, rows, slopes = share * made.system.x_nominal, [], []
        for i, (data, x) in enumerate(zip(self.data, states, strict=True)):
            begin, end = self.cuts[i], self.cuts[i + 1]
            try:
                motion = made.piece(x, p, begin, end, data)
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
            parts = [weighted(motion, data, made.outputs[0], p)]
            if i + 1 < len(states):
                gap = (states[i + 1] - motion.x[-1]) / scale
                parts.append(
                    (gap, -sensitivity.orbital[-1] / scale[:, None], -sensitivity.orbital_p[-1] / scale[:, None])
                )
            for number, (r, by_x, by_p) in enumerate(parts):
                slope = np.zeros((r.size, z.size))
                for column, (kind, index, _) in enumerate(made.places):
                    if kind == "p":
                        slope[:, column] = by_p[:, index]
                    elif i == 0:
                        slope[:, column] = by_x[:, index]
                if i > 0:
                    slope[:, k + (i - 1) * n_x : k + i * n_x] = by_x
                if number:
                    slope[:, k + i * n_x : k + (i + 1) * n_x] = np.diag(1.0 / scale)
                rows.append(r)
                slopes.append(slope)
        return np.concatenate(rows), np.vstack(slopes)


def _measured_state(system: Described, data: Measurements, part: Array, motion: Trajectory) -> Array:
    """The state at the first measurement of a piece: measured, a difference of measured positions, or simulated."""
    t, names = data.times, system.state_names
    x = np.array(motion.x[nodes_at(motion.t - motion.t0, t[part[:1]])[0]])
    for i, name in enumerate(names):
        if name in data.values and np.isfinite(data.values[name][part[0]]):
            x[i] = data.values[name][part[0]]
    if isinstance(system, CLS) and system.at_q.stop == system.n_q and t[part[1]] > t[part[0]]:
        for i in range(min(system.n_q, system.n_v)):
            rates = [name in data.values for name in (names[i], names[system.at_v.start + i])]
            if rates == [True, False]:
                step = np.diff(data.values[names[i]][part[:2]])[0]
                x[system.at_v.start + i] = step / np.diff(t[part[:2]])[0] if np.isfinite(step) else 0.0
    return x


def nodes_at(t: Array, times: Array) -> Array:
    """The nodes of a motion at times: at an impact the one behind it."""
    nodes = np.searchsorted(t, times + 1e-12 * (1.0 + np.abs(times)), "right") - 1
    return np.asarray(np.clip(nodes, 0, t.size - 1))


def by_names(given: Any, names: Sequence[str], what: str) -> Array:
    """Numbers for all names: one for all, all of them, or by name and else zero."""
    if isinstance(given, Mapping):
        made = np.zeros(len(names))
        for name, value in given.items():
            if name not in names:
                raise OptionError(f"{what}: {unknown_name(name, tuple(names))}")
            made[list(names).index(name)] = float(value)
        return made
    value = np.asarray(given, dtype=float)
    if value.shape not in {(), (len(names),)} or not np.isfinite(value).all():
        raise OptionError(f"{what}: expected {len(names)} finite numbers or names of them, given {given!r}.")
    return np.broadcast_to(value, (len(names),)).copy()


def _state(system: Described, given: Any, free: Sequence[str]) -> Array:
    names = system.state_names
    if given is None:
        if missing := [name for name in names if name not in free]:
            raise OptionError(
                f"fit: x0: expected an initial state, or all states free; {', '.join(missing)} have no value."
            )
        return np.zeros(len(names))
    return by_names(given, names, "fit: x0")


def _parameters(system: Described, given: Any, free: Sequence[str]) -> Array:
    if isinstance(given, Mapping):
        default = getattr(system, "p_default", None)
        made = np.zeros(system.n_p) if default is None else np.array(default, dtype=float).reshape(-1)
        for name, value in given.items():
            if name not in system.parameter_names:
                raise OptionError(f"fit: p: {unknown_name(name, system.parameter_names)}")
            made[system.parameter_names.index(name)] = float(value)
        return made
    if given is None and getattr(system, "p_default", None) is None:
        if missing := [name for name in system.parameter_names if name not in free]:
            raise OptionError(f"fit: p: {', '.join(missing)} have no value; give p=, or free them.")
        return np.zeros(system.n_p)
    return np.array(system.parameters(given), dtype=float)
