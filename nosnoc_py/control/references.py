"""Reference spreading: motions of a plan extended beyond its impacts (Rijnen, Saccon, Nijmeijer 2015).

If a plant impacts slightly later than the plan, plan and plant differ by a whole velocity jump for a short time, and
feedback on this difference would act against the correct motion. So each smooth phase is extended beyond its impact,
forwards without the new contact and backwards with the later contact state; the plant is compared with the phase that
it is in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.control.windows import PlanWindow, PlanWindows
from nosnoc_py.simulation.event_driven.contact_flow import ContactFlow
from nosnoc_py.systems.cls import CLS

Array = np.ndarray
# Usual length of an extension in sampling periods.
EXTENSION_PERIODS = 3.0
# Impacts with a velocity change below this fraction of the largest velocity need no extension.
MIN_JUMP = 1e-3


@dataclass(frozen=True, eq=False, kw_only=True)
class Reference:
    """Impact of a plan with the extended motions before and after it.

    Attributes
    ----------
    time : float
        Time of the impact [s].
    start, end : float
        Interval in which both motions are known [s].
    before, after : function of t
        State (n_x,) of the motion before the impact, extended without the new contact, and of the motion after it,
        extended backwards in time.
    """

    time: float
    start: float
    end: float
    before: Callable[[float], Array]
    after: Callable[[float], Array]

    def other_side(self, t: float) -> Array | None:
        """Return the extended state (n_x,) at t on the side where the plan is not; None outside [start, end]."""
        if not self.start <= t <= self.end:
            return None
        return self.after(t) if t < self.time else self.before(t)


def references_of(
    plan: PlanWindows, windows: tuple[PlanWindow, ...], periods: float = EXTENSION_PERIODS
) -> tuple[Reference, ...]:
    """Return the references of all impacts that change velocities; empty for a system without contacts.

    They are extended by some sampling periods, at most half of the time to the next impact.
    """
    if not isinstance(plan.system, CLS):
        return ()
    at_v = plan.system.at_v
    fastest = max(float(np.abs(window.x[at_v]).max(initial=0.0)) for window in windows)
    impacts = []
    for window in windows:
        nodes, phases, flows = window.history.nodes, window.history.phases, window.history.flows
        for i, node in enumerate(nodes):
            jump = np.abs(node.after - node.before)[at_v].max(initial=0.0)
            # An impact at the start or the end of a window has a phase on one side only, so that nothing can be
            # extended.
            if node.impact is None or i == 0 or i >= len(phases) or jump <= MIN_JUMP * fastest:
                continue
            impacts.append((node, flows[i - 1], phases[i - 1].regime, flows[i], phases[i].start))
    times = np.array([node.t for node, *_ in impacts])
    period = windows[0].end - windows[0].start
    references = []
    for i, (node, flow, regime, later_flow, later) in enumerate(impacts):
        # At most half way to the next impact, so that at most one extension is valid at a time.
        others = np.abs(np.delete(times, i) - node.t)
        reach = min(periods * period, 0.5 * float(others.min(initial=np.inf)))
        start, end = max(node.t - reach, 0.0), min(node.t + reach, windows[-1].end)
        references.append(
            Reference(
                time=node.t,
                start=start,
                end=end,
                before=_extended(plan, flow, regime, node.t, node.before, end),
                after=_extended(plan, later_flow, later, node.t, node.after, start),
            )
        )
    return tuple(references)


def _extended(plan: PlanWindows, flow: Any, regime: Any, t: float, x: Array, end: float) -> Callable[[float], Array]:
    """Integrate the smooth motion of a regime from t to `end`, forwards or backwards, with the plan's control."""
    from scipy.integrate import solve_ivp  # not paid for by an import of the library

    contact_flow = ContactFlow(flow.mechanics, flow.options, plan.control, flow.p, flow.scales)
    if end == t:
        return lambda s: x
    # solve_ivp integrates backwards if end < t.
    motion = solve_ivp(
        lambda s, y: contact_flow.rhs(regime, s, y), (t, end), x, dense_output=True, rtol=1e-8, atol=1e-10
    )
    return lambda s: np.asarray(motion.sol(s))
