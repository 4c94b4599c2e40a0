"""Derivatives of a simulated motion with respect to its initial state and to parameters.

Between events derivatives follow the variational equation; at an event they jump by the saltation matrix (Aizerman and
Gantmakher 1958; Leine and Nijmeijer 2004). They exist if every event is crossed with speed and no two events coincide;
`flags` names where that fails. Sensitivities are computed by the simulators; here are the record, its checks and one-
sided derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nosnoc_py.declared import assign
from nosnoc_py.errors import TranscriptionError
from nosnoc_py.solution.arrays import Array, read_only
from nosnoc_py.solution.storage import NOT_STORED


@dataclass(frozen=True, eq=False, kw_only=True)
class Sensitivity:
    """Derivatives of the state at the end, or all along the motion, and of the times of events.

    Where contacts are closed at the start, x0 has to stay on their constraints: perturbations are put back onto them,
    by impulses of these contacts, before anything moves. So `x0 @ d` is the derivative in every direction d that keeps
    the gaps, and `p` keeps the gaps closed. The same holds where a motion slides on a surface at the start. Quaternions
    keep their length one: only the part of a direction that is tangent to this counts.

    Parameters
    ----------
    x0 : (n_x, n_x)
        d x(T) / d x0: one row per component of x(T), one column per component of x0.
    p : (n_x, n_p)
        d x(T) / d p at fixed x0, control and duration.
    event_times_x0, event_times_p : (n_events, n_x), (n_events, n_p), optional
        Derivatives of the times [s] of the trajectory's events, in their order; a row is NaN where that time has none.
        By `EventDriven` and `EventSelected` only.
    u : (N, n_x, n_u), optional
        d x(T) / d u of every control stage of the trajectory. By finite elements, and by `EventDriven` for a control
        that is constant on intervals.
    orbital : (nodes, n_x, n_x), optional
        d x(t) / d x0 at the nodes of the trajectory: the orbital derivative along it, at the node of a crossing the one
        behind the crossing. The last one is `x0`; from the first time in `flags` on they are NaN. By `EventDriven` and
        `EventSelected` only.
    event_times_u : (n_events, N, n_u), optional
        Derivatives of the times of events by the control of every stage. By `EventDriven` only.
    orbital_p, orbital_u : (nodes, n_x, n_p), (nodes, N, n_x, n_u), optional
        d x(t) / d p and d x(t) / d u of every control stage, as `orbital`. By `EventDriven` only.
    flags : tuple of str
        Times at which the motion is not smooth in its data, with reasons. Then `x0` and `p` are NaN, and so are
        the rows of the events from the first such time on.
    directions : function (n_x,) -> (n_x,), optional
        One-sided derivative of x(T) in a direction of x0, where the motion is not smooth but piecewise so. It is not
        written to files. By `EventSelected` only.

    Raises
    ------
    TranscriptionError
        If shapes do not fit.

    Examples
    --------
    The time of the impact of a ball, sqrt(2 q / 10), by its initial height and velocity:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-10, contacts=[ns.Contact("ground", gap=q, restitution=0.5)])
    >>> motion = ns.simulate(ball, x0=[0.8, 0.0], duration=0.5, sensitivities=True)
    >>> motion.sensitivity.event_times_x0.round(4)
    array([[0.25, 0.1 ]])
    """

    x0: Array
    p: Array
    event_times_x0: Array | None = None
    event_times_p: Array | None = None
    u: Array | None = None
    orbital: Array | None = None
    event_times_u: Array | None = None
    orbital_p: Array | None = None
    orbital_u: Array | None = None
    flags: tuple[str, ...] = ()
    directions: Callable[[Array], Array] | None = field(default=None, repr=False, metadata=NOT_STORED)

    def __post_init__(self) -> None:
        # In two steps: first any matrix, as its number of rows fixes all other shapes.
        x0 = read_only(self.x0, "x0 of a sensitivity (n_x, n_x)", "n_x", "n_x")
        # A second time with the number of rows as number of columns: square.
        x0 = read_only(x0, "x0 of a sensitivity (n_x, n_x)", len(x0), len(x0))
        p = read_only(self.p, "p of a sensitivity (n_x, n_p)", len(x0), "n_p")
        assign(self, x0=x0, p=p, flags=tuple(self.flags))
        if (self.event_times_x0 is None) != (self.event_times_p is None):
            raise TranscriptionError("event_times_x0 and event_times_p belong together: give both or none.")
        if self.event_times_x0 is not None and self.event_times_p is not None:
            times = read_only(self.event_times_x0, "event_times_x0 (n_events, n_x)", "n_events", len(x0))
            times_p = read_only(self.event_times_p, "event_times_p (n_events, n_p)", len(times), p.shape[1])
            assign(self, event_times_x0=times, event_times_p=times_p)
        if self.u is not None:
            assign(self, u=read_only(self.u, "u of a sensitivity (N, n_x, n_u)", "N", len(x0), "n_u"))
        # Words admit any length where no derivative by the control fixes them.
        stages, n_u = ("N", "n_u") if self.u is None else (self.u.shape[0], self.u.shape[2])
        shapes: dict[str, tuple[Any, ...]] = {
            "orbital": ("nodes", len(x0), len(x0)),
            "orbital_p": ("nodes", len(x0), p.shape[1]),
            "orbital_u": ("nodes", stages, len(x0), n_u),
            "event_times_u": ("n_events", stages, n_u),
        }
        for name, shape in shapes.items():
            if (array := getattr(self, name)) is not None:
                assign(self, **{name: read_only(array, f"{name} ({', '.join(map(str, shape))})", *shape)})

    @property
    def smooth(self) -> bool:
        """True if the derivatives exist."""
        return not self.flags

    def of_directions(self, admitted: Array) -> Sensitivity:
        """Return the derivatives by x0 behind a projection of directions (n_x, n_x)."""
        fields = {name: getattr(self, name) for name in ("x0", "event_times_x0", "orbital")}
        # From the right: columns belong to the perturbed data, rows to the result.
        return replace(self, **{name: each @ admitted for name, each in fields.items() if each is not None})

    def directional(self, v: npt.ArrayLike) -> Array:
        """Return the one-sided derivative of x(T) in a direction v of x0, both (n_x,): lim (x(T; x0 + s v) - x(T)) / s.

        Where the motion is smooth it is `x0 @ v`. Where several guards are crossed at once it is only piecewise linear,
        and D(-v) differs from -D(v).

        Raises
        ------
        TranscriptionError
            If v has another shape, if the motion is not smooth and nothing is known about directions, or if guards are
            not crossed with speed in this one.
        """
        # Not checked for admissibility: a direction off the closed contacts is projected by the derivatives themselves.
        direction = read_only(np.asarray(v, dtype=float), "v", len(self.x0))
        if not np.isfinite(direction).all():
            raise TranscriptionError(f"v: expected finite numbers, given {direction}.")
        if self.smooth:
            return np.asarray(self.x0 @ direction)
        if self.directions is None:
            raise TranscriptionError(
                f"the motion has no derivative ({'; '.join(self.flags)}), and its derivatives in single directions are "
                "known only right after ns.simulate(..., method=ns.EventSelected(...), sensitivities=True)."
            )
        return self.directions(direction)

    def __repr__(self) -> str:
        shapes = f"{len(self.x0)} states by {len(self.x0)} + {self.p.shape[1]} data"
        shapes += "" if self.u is None else f" and {len(self.u)} controls"
        shapes += "" if self.event_times_x0 is None else f", {len(self.event_times_x0)} events"
        shapes += "" if self.orbital is None else f", along {len(self.orbital)} nodes"
        return f"Sensitivity: {shapes}" + (f"; not smooth: {'; '.join(self.flags)}" if self.flags else "")
