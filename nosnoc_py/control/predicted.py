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
        assert sensitivity.orbital_p is not None
        r, J = [], []
        for k, node in enumerate(nodes_at(motion.t, data.times)):
            y, by_x, by_p = output(motion.x[node], p)
            slope = np.zeros((y.size, len(self.names)))
            for i, (kind, index, of) in enumerate(self.places):
                if kind == "p":
                    slope[:, i] = by_x @ sensitivity.orbital_p[node][:, index] + by_p[:, index]
                elif of == run:
                    slope[:, i] = by_x @ sensitivity.orbital[node][:, index]
            for j, name in enumerate(data.names):
                if np.isfinite(measured := data.values[name][k]):
                    noise = data.noise[name][k]
                    r.append((measured - y[j]) / noise)
                    J.append(-slope[j] / noise)
        return np.array(r), np.array(J).reshape(len(r), len(self.names))

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
            for k, node in enumerate(nodes_at(motion.t, data.times)):
                y, _, _ = output(motion.x[node], p)
                for j, name in enumerate(data.names):
                    if np.isfinite(measured := data.values[name][k]):
                        r.append((measured - y[j]) / data.noise[name][k])
        return np.array(r)

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


def nodes_at(t: Array, times: Array) -> Array:
    """The nodes of a motion at times: at an impact the one behind it."""
    nodes = np.searchsorted(t, times + 1e-12 * (1.0 + np.abs(times)), "right") - 1
    return np.asarray(np.clip(nodes, 0, t.size - 1))


def _state(system: Described, given: Any, free: Sequence[str]) -> Array:
    names = system.state_names
    if isinstance(given, Mapping):
        made = np.zeros(len(names))
        for name, value in given.items():
            if name not in names:
                raise OptionError(f"fit: x0: {unknown_name(name, names)}")
            made[names.index(name)] = float(value)
        return made
    if given is None:
        if missing := [name for name in names if name not in free]:
            raise OptionError(
                f"fit: x0: expected an initial state, or all states free; {', '.join(missing)} have no value."
            )
        return np.zeros(len(names))
    value = np.asarray(given, dtype=float).reshape(-1)
    if value.shape != (len(names),) or not np.isfinite(value).all():
        raise OptionError(f"fit: x0: expected {len(names)} finite numbers, given {given!r}.")
    return value


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
