"""Gradients of a loss of a motion by its data, backwards along the motion (reverse mode).

A motion is a chain of linear maps of its variations dz = (dx, dp, du), where u is the control of the current interval:
the transport through each step, and the saltation at each event. Forward they give derivatives of everything by the
data, one column each; backwards a costate is multiplied by their transposes, one vector for all data,

    lambda- = M' lambda+ + eta dt*/dz,

with the weight eta of the time t* of an event. So a gradient costs the same however many control intervals there
are; every parameter is a column of M.

Where a motion has no derivative, the chain still is that of the sequence of modes that the simulation took, and an
event time without a derivative is held fixed: an element of the derivatives of neighbouring motions where these share
the sequence, and in any case finite. `flags` names the times.

References
----------
Aizerman and Gantmakher (1958); the transposed saltation matrix: see `motion.variations`.
Griewank and Walther, Evaluating Derivatives (2008), Chapter 3: reverse mode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.declared import assign
from nosnoc_py.errors import OptionError
from nosnoc_py.solution.arrays import Array, read_only

# Flag of a gradient whose numbers exceed those of floating point; these are set to zero.
OVERFLOW = "the gradient overflows: the motion is too unstable for its length"
# A time within this part of the duration from a node of the trajectory is at this node.
AT_NODE = 1e-9


@dataclass(frozen=True, eq=False, kw_only=True)
class Gradient:
    """Derivatives of a loss of a motion by its data: `trajectory.vjp(...)`, or of an optimum: `solution.vjp(...)`.

    Its numbers are always finite. Where `flags` is not empty, they are the derivatives along the sequence of modes that
    was taken, with event times held fixed that have no derivative.

    Parameters
    ----------
    x0 : (n_x,)
        By the initial state; of states that constraints hold at the start the part that keeps them. Of an optimum by
        those components that the OCP fixes, and so for p.
    p : (n_p,)
        By the parameters.
    u : (N, n_u), optional
        By the control of every stage of the trajectory; None if the control is not constant on intervals.
    horizon : float, optional
        By the length of the horizon [1/s]: of optima only.
    flags : tuple of str
        Times at which the motion is not smooth in its data, with reasons; of an optimum, why it may have no derivative.

    Raises
    ------
    TranscriptionError
        If shapes do not fit.

    Examples
    --------
    A ball that falls from 1 m at 10 m/s^2 bounces with restitution p; the loss is its height at 0.6 s:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, p = (ca.SX.sym(name) for name in "qvp")
    >>> ground = ns.Contact("ground", gap=q, restitution=p)
    >>> ball = ns.CLS(q=q, v=v, p=p, p_default=[0.5], mass_matrix=1, force=-10, contacts=[ground])
    >>> motion = ns.simulate(ball, x0=[1.0, 0.0], duration=0.6, sensitivities="reverse")
    >>> gradient = motion.vjp(final=[1.0, 0.0])
    >>> gradient.p.round(4), gradient.x0.round(4), gradient.smooth  # by p: 0.6 sqrt(20) - 2
    (array([0.6833]), array([ 0.0125, -0.0708]), True)
    """

    x0: Array
    p: Array
    u: Array | None = None
    horizon: float | None = None
    flags: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assign(self, x0=read_only(self.x0, "x0 of a gradient", "n_x"), p=read_only(self.p, "p of a gradient", "n_p"))
        assign(self, flags=tuple(self.flags))
        if self.u is not None:
            assign(self, u=read_only(self.u, "u of a gradient (N, n_u)", "N", "n_u"))

    @property
    def smooth(self) -> bool:
        """True if the loss has this derivative."""
        return not self.flags


@dataclass(frozen=True, eq=False, kw_only=True)
class VariationLink:
    """Linear map of the variations z = (x, p, u) over a step or a node; p and u do not change.

    Attributes
    ----------
    t : float
        Time of its end [s].
    matrix : (n_x, n_z)
        Variation of x behind it, at a fixed time, by z before it.
    delay : (n_z,), optional
        Derivative of the time of the node by z before it; None of a step.
    events : int
        Number of events of the trajectory at the node.
    stage : int
        Interval of the control during a step.
    """

    t: float
    matrix: Array
    delay: Array | None = None
    events: int = 0
    stage: int = -1


@dataclass(frozen=True, eq=False, kw_only=True)
class VariationTape:
    """The chain of a motion, recorded by `simulate(..., sensitivities="reverse")`; it can be pickled.

    Attributes
    ----------
    links : tuple of VariationLink
        In the order of time.
    n_x, n_p, n_u : int
        States, parameters, and controls that are constant on intervals.
    stages : int
        Number of intervals.
    admitted : (n_x, n_x), optional
        Projection of directions of x0.
    duration : float
    flags : tuple of str
        See `Gradient`.
    """

    links: tuple[VariationLink, ...]
    n_x: int
    n_p: int
    n_u: int
    stages: int
    duration: float
    admitted: Array | None = None
    flags: tuple[str, ...] = ()

    def pulled_back(self, final: Any = None, samples: Any = None, event_times: Any = None) -> Gradient:
        """Return the gradient of a loss by its derivatives; see `Trajectory.vjp`."""
        links, n_x, n_w = self.links, self.n_x, self.n_x + self.n_p
        by_state, flags = self._weights(final, samples)
        by_time = self._of_events(event_times)
        # Costate of z behind each link; its part of u belongs to one interval, and is put away where that begins.
        costate, u = np.zeros(n_w + self.n_u), np.zeros((self.stages, self.n_u))
        stage = self.stages - 1
        events = len(by_time)
        with np.errstate(over="ignore", invalid="ignore"):  # a product that overflows is flagged below
            for place in range(len(links), 0, -1):
                link = links[place - 1]
                if place in by_state:
                    costate[:n_x] += by_state[place]
                if link.stage >= 0 and link.stage != stage:
                    u[stage] += costate[n_w:]
                    costate[n_w:], stage = 0.0, link.stage
                before = costate[:n_x] @ link.matrix
                before[n_x:] += costate[n_x:]
                if link.events and link.delay is not None:
                    events -= link.events
                    before += by_time[events : events + link.events].sum() * link.delay
                costate = before
        if self.stages:
            u[stage] += costate[n_w:]
        x0 = costate[:n_x] + by_state.get(0, 0.0)
        x0 = x0 if self.admitted is None else self.admitted.T @ x0
        parts = [x0, costate[n_x:n_w], u]
        if not all(np.isfinite(part).all() for part in parts):
            # Every link is finite; their product grows without limit along a motion that is unstable enough.
            flags.append(OVERFLOW)
            parts = [np.where(np.isfinite(part), part, 0.0) for part in parts]
        return Gradient(
            x0=parts[0], p=parts[1], u=parts[2] if self.n_u else None,
            flags=tuple(dict.fromkeys((*self.flags, *flags))),
        )  # fmt: skip

    def _weights(self, final: Any, samples: Any) -> tuple[dict[int, Array], list[str]]:
        """Return weights (n_x,) of the states behind so many links, and flags of samples at events."""
        weights, flags, near = dict[int, Array](), list[str](), AT_NODE * self.duration
        if final is not None:
            weights[len(self.links)] = finite(final, "final", self.n_x)
        if samples is None:
            return weights, flags
        if not isinstance(samples, Sequence) or len(samples) != 2:
            raise OptionError("samples: expected (times, weights), arrays (m,) and (m, n_x).")
        times = finite(samples[0], "times of samples", np.size(samples[0]))
        ends = np.array([link.t for link in self.links])
        rows = finite(samples[1], "weights of samples", times.size, self.n_x)
        nodes = {link.t for link in self.links if link.events}
        for t, row in zip(times.tolist(), rows, strict=True):
            place = int(np.searchsorted(ends, t + near, "right"))
            if not place or t - ends[place - 1] > near:
                raise OptionError(
                    f"samples: t = {t:g} is no node of the trajectory; give times=[...] with it to ns.simulate."
                )
            weights[place] = weights.get(place, 0.0) + row
            flags += [f"t = {t:.9g}: a sample at the time of an event" for at in nodes if abs(at - t) <= near]
        return weights, flags

    def _of_events(self, event_times: Any) -> Array:
        """Return the weights (n_events,) of the times of events."""
        count = sum(link.events for link in self.links)
        return np.zeros(count) if event_times is None else finite(event_times, "event_times", count)


def finite(given: Any, what: str, *shape: int) -> Array:
    """Return an array of finite numbers of a shape; raise `OptionError` otherwise."""
    try:
        array = np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        raise OptionError(f"{what}: expected numbers {shape}, given {given!r:.60}.") from None
    if array.shape != shape or not np.isfinite(array).all():
        raise OptionError(f"{what}: expected finite numbers of shape {shape}, given an array of shape {array.shape}.")
    return array
