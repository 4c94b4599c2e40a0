"""The loop of Listing 1 of the paper on event-selected systems as a bare function, for a fair comparison of times.

Integration by `dopri5` of SciPy until a step ends in the band -eps < h of a guard that is not crossed yet, then the
projection by the tangent of the guard that is reached first. No dense output, no events as objects, no checks. Where
the listing cannot be run as printed, this differs: the start is `x0`, the loop ends at the final time, a guard that was
crossed becomes live again when its partner (touchdown and lift-off) is crossed, and mode bits are those of the crossed
guards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.integrate import ode

Array = np.ndarray


def integrate(
    flow: Callable[[Any, bool], Any],
    guard: Callable[[Any], float],
    gradient: Array,
    *,
    x0: Array,
    duration: float,
    step: float,
    eps: float,
) -> tuple[Array, Array]:
    """Integrate a system with a single surface, touchdown guard(x) = 0 rising and lift-off its negative.

    Parameters
    ----------
    flow : function (x, pressed) -> rates
    guard : function (x) -> float
        Rises through zero at touchdown.
    gradient : (n_x,)
        Gradient of the guard, which is linear.
    x0 : (n_x,)
    duration, step, eps : float
        Final time, largest step [s], width of the band.

    Returns
    -------
    t : (nodes,)
    x : (nodes, n_x)
    """
    t, x, pressed = 0.0, np.asarray(x0, dtype=float), False
    times, states = [t], [x]

    def end(time: float, state: Array) -> int:
        if time == t:  # the initial state
            return 0
        times.append(time)
        states.append(state.copy())
        return -1 if (-guard(state) if pressed else guard(state)) > -eps else 0

    while t < duration:
        live = -guard(x) if pressed else guard(x)
        if live <= -eps or np.dot(gradient, flow(x, pressed)) * (-1.0 if pressed else 1.0) <= 0.0:
            way = pressed
            solver = ode(lambda time, state, way=way: flow(state, way)).set_integrator(
                "dopri5", max_step=step, first_step=step, rtol=1e-3, atol=1e-3
            )
            solver.set_solout(end)
            solver.set_initial_value(x, t)
            x = solver.integrate(duration)
            t = solver.t
        else:
            rates = np.asarray(flow(x, pressed))
            rise = float(np.dot(gradient, rates)) * (-1.0 if pressed else 1.0)
            span = -live / rise
            t, x, pressed = t + span, x + rates * span, not pressed
            times.append(t)
            states.append(x)
    return np.array(times), np.array(states)
