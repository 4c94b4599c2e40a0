"""The scene of a system as one compiled function of its states, controls and parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import ModelError, unknown_name
from nosnoc_py.solution.arrays import Array
from nosnoc_py.systems.scene import Mark, Shape
from nosnoc_py.systems.symbols import free_of_others


@dataclass(frozen=True, eq=False)
class Drawing:
    """The shapes of a system and one compiled function of all their numbers.

    Parameters
    ----------
    shapes : tuple of Shape
    function : Function
        (x, u, p) -> all numbers, one shape after the other.
    """

    shapes: tuple[Shape, ...]
    function: ca.Function

    @classmethod
    def of(cls, shapes: tuple[Shape, ...], x: ca.SX, u: ca.SX, p: ca.SX) -> Drawing:
        """Compile shapes."""
        every = ca.vertcat(ca.SX(0, 1), *[shape.numbers for shape in shapes])
        return cls(shapes, ca.Function("scene", [x, u, p], [ca.densify(every)]))

    def __call__(self, x: Array, u: Array, p: Array) -> list[Array]:
        """Return the numbers (frames, k) of every shape, for states (frames, n_x) and controls (frames, n_u)."""
        found = np.asarray(self.function(np.transpose(x), np.transpose(u), p)).reshape(-1, len(x)).T
        ends = np.cumsum([shape.numbers.numel() for shape in self.shapes])
        return np.split(found, ends[:-1], axis=1)


def checked(system: Any) -> tuple[Shape, ...]:
    """Return the scene of a system as a tuple.

    Raises
    ------
    ModelError
        For what is no shape, symbols of others, and marks of events that the system does not have.
    """
    kind, given = type(system).__name__, system.scene
    if not isinstance(given, list | tuple):
        raise ModelError(
            f"{kind}: scene: expected a sequence of shapes of ns.scene, given {type(given).__name__}; put it in a list."
        )
    if not given:
        return ()
    if not getattr(system, "symbolic", True):
        raise ModelError(
            f"{kind}: scene: a system of NumPy functions has no symbols to write shapes with; draw its motion with the "
            "same system written in CasADi."
        )
    groups = {name: getattr(system, name) for name in dict.fromkeys((*system.groups, "u", "p"))}
    check = free_of_others(groups)
    for k, shape in enumerate(given):
        if not isinstance(shape, Shape):
            raise ModelError(f"{kind}: scene: shape {k}: expected a shape of ns.scene, given {type(shape).__name__}.")
        check(shape.numbers, f"{kind}: scene: shape {k} ({shape.title})")
        if isinstance(shape, Mark) and shape.name not in (names := _event_names(system)):
            raise ModelError(f"{kind}: scene: shape {k}: {unknown_name(str(shape.name), names, 'event')}")
    return tuple(given)


def _event_names(system: Any) -> tuple[str, ...]:
    named = [part.name for part in (*getattr(system, "contacts", ()), *getattr(system, "jumps", ()))]
    for attribute in ("guard_names", "constraint_names", "function_names"):
        named += list(getattr(system, attribute, None) or ())
    for modes in getattr(system, "modes", ()):
        named += list(modes.function_names)
    return tuple(named)
