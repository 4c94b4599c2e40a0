"""Expressions of a system's symbols along its motions.

Results hold numbers only; with the link to their system, `value` and `sample` evaluate expressions of its symbols on
them. States come from dense output, controls from their grid, algebraic variables from the series of the method. Only
what the expression depends on has to exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import ModelError, OptionError
from nosnoc_py.functions import function_of
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.symbols import check_free

if TYPE_CHECKING:
    from nosnoc_py.solution.records import Event
    from nosnoc_py.solution.trajectory import Trajectory

Array = np.ndarray


def evaluated(
    system: Described, motion: Trajectory, expression: Any, t: Any, side: Any = "+", free_time: ca.SX | None = None
) -> Array:
    """Return the values of an expression at times, (times, rows...), or one value of an expression of parameters alone.

    Parameters
    ----------
    system : Described
        Its x, u, z, p and x_initial are the symbols of the expression.
    motion : Trajectory
        Of this system.
    expression : SX
        Of any shape; scalars and columns lose axes of length one.
    t : None, float or (times,)
        None: the nodes of the trajectory.
    side : {"-", "+"}
        Limit of the state at jumps.
    free_time : SX scalar, optional
        The symbol of a free horizon.
    """
    if not isinstance(expression, ca.SX):
        raise ModelError(f"expression: expected CasADi SX in the system's symbols, given {expression!r}.")
    # Expressions may contain variables that the system has eliminated.
    e = system.solved(expression)
    groups = {"x": system.x, "u": system.u, "z": system.z, "p": system.p, "x_initial": system.x_initial}
    groups |= {} if free_time is None else {"T": free_time}
    check_free(e, {name: group for name, group in groups.items() if group.numel()}, "expression")
    p, start = np.array(list(motion.parameters.values()), dtype=float), motion.x[0]
    constants = [p, start, *([] if free_time is None else [np.array([motion.duration])])]
    symbols = [ca.densify(group) for group in groups.values()]
    function = function_of(symbols, ca.densify(e))
    # An expression of parameters alone has one value, not one per time.
    timeless = not ca.depends_on(e, ca.vertcat(system.x, system.u, system.z))
    if timeless:
        # The values are not used, but the function has these inputs.
        none = [np.zeros(group.numel()) for group in (system.x, system.u, system.z)]
        return _shaped(np.array(function(*none, *constants))[None], e.shape)[0]
    times = motion.t if t is None else np.atleast_1d(np.asarray(t, dtype=float))
    x = motion.x if t is None else motion(times, side)
    # Controls and z only where they are needed: a trajectory need not have them.
    u = _controls(system, motion, times) if ca.depends_on(e, system.u) else np.zeros((len(times), system.n_u))
    z = _algebraic(system, motion, times) if ca.depends_on(e, system.z) else np.zeros((len(times), system.z.numel()))
    rows = [np.array(function(*each, *constants)) for each in zip(x, u, z, strict=True)]
    result = _shaped(np.array(rows), e.shape)
    return result if t is None or np.ndim(t) else result[0]


def _controls(system: Described, motion: Trajectory, times: Array) -> Array:
    if not len(motion.u):
        raise ModelError("expression: it depends on u, and the trajectory has no control.")
    return motion.control(times).reshape(len(times), system.n_u)


def _algebraic(system: Described, motion: Trajectory, times: Array) -> Array:
    """Return algebraic variables, interpolated linearly between the instants at which a method lists them."""
    names = () if system.algebraic is None else tuple(system.algebraic.names or ())
    missing = [name for name in names if name not in motion.series]
    if missing:
        raise ModelError(f"expression: it depends on {missing[0]}, of which this trajectory has no series.")
    # Methods list algebraic variables at different instants (stages, steps), hence an interpolation in time.
    return np.array([np.interp(times, motion.series[name].t, motion.series[name].values) for name in names]).T


def _shaped(values: Array, shape: tuple[int, int]) -> Array:
    """Return values (m, rows, columns) without axes of length one behind the first."""
    rows, columns = shape
    return values.reshape(len(values), *(() if shape == (1, 1) else (rows,) if columns == 1 else (rows, columns)))


@dataclass(frozen=True, eq=False)
class SimulatedSystem:
    """System of a trajectory, for evaluating expressions of its symbols."""

    system: Any

    def evaluate(
        self, motion: Trajectory, expression: Any, t: Any, side: Any = "+", free: ca.SX | None = None
    ) -> Array:
        """Return values of an expression along a motion, see `nosnoc_py.Trajectory.value` and `sample`."""
        s = self.system
        if not isinstance(s, Described) or not isinstance(s.x, ca.SX) or not s.symbolic:
            raise OptionError(f"value, sample: an ns.{type(s).__name__} has no symbols; use the arrays of the result.")
        return evaluated(s, motion, expression, t, side, free)

    def why(self, motion: Trajectory, event: Event) -> Any:
        """See `nosnoc_py.Trajectory.why`."""
        return resolve_name("nosnoc_py.simulation.alternatives:alternatives")(self.system, motion, event)

    def parts(self) -> dict[str, slice]:
        """Return the slices of coordinates and velocities in a state."""
        if not self.system.mechanical:
            raise OptionError(
                f"q, v: an ns.{type(self.system).__name__} has states x, no coordinates and velocities; use the x of "
                "the result."
            )
        return {"q": self.system.at_q, "v": self.system.at_v}


class EvaluatesProblem:
    """Base class of objects with an `ocp`, and with it the system of its solutions."""

    ocp: Any

    def evaluate(self, motion: Trajectory, expression: Any, t: Any, side: Any = "+") -> Array:
        """Return values of an expression along a motion, see `nosnoc_py.Trajectory.value` and `sample`."""
        free = None if self.ocp.free_time is None else self.ocp.free_time.symbol
        return SimulatedSystem(self.ocp.system).evaluate(motion, expression, t, side, free)

    def why(self, motion: Trajectory, event: Event) -> Any:
        """See `nosnoc_py.Trajectory.why`."""
        return SimulatedSystem(self.ocp.system).why(motion, event)

    def parts(self) -> dict[str, slice]:
        """Return the slices of coordinates and velocities in a state."""
        return SimulatedSystem(self.ocp.system).parts()
