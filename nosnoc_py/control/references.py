"""Motions of a plan continued beyond its impacts: a plant that impacts early or late is compared with its own side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nosnoc_py.control.windows import PlanWindow, PlanWindows
from nosnoc_py.simulation.event_driven.contact_flow import ContactFlow
from nosnoc_py.systems.cls import CLS

Array = np.ndarray
# A motion is continued for so many periods, or for half of the way to the next impact.
REACH = 3.0
# Impacts without a change of velocity of this share of the largest velocity make no difference.
SOFT = 1e-3


@dataclass(frozen=True, eq=False, kw_only=True)
class Reference:
    """One impact of a plan.

    Attributes
    ----------
    time : float
    start, end : float
        Between them both sides are known.
    before, after : function of t
        The motion before the impact as if nothing were in the way, and that behind it backwards in time.
    """

    time: float
    start: float
    end: float
    before: Callable[[float], Array]
    after: Callable[[float], Array]

    def other_side(self, t: float) -> Array | None:
        """The state (n_x,) at t of a plant that is on the other side of the impact than the plan; None far from it."""
        if not self.start <= t <= self.end:
            return None
        return self.after(t) if t < self.time else self.before(t)


def references_of(plan: PlanWindows, windows: tuple[PlanWindow, ...]) -> tuple[Reference, ...]:
    """All impacts that change velocities; none of a system without contacts."""
    if not isinstance(plan.system, CLS):
        return ()
    at_v = plan.system.at_v
    fastest = max(float(np.abs(window.x[at_v]).max(initial=0.0)) for window in windows)
    found = []
    for window in windows:
        nodes, phases, flows = window.history.nodes, window.history.phases, window.history.flows
        for i, node in enumerate(nodes):
            jump = np.abs(node.after - node.before)[at_v].max(initial=0.0)
            if node.impact is None or i == 0 or i >= len(phases) or jump <= SOFT * fastest:
                continue
            found.append((node, flows[i - 1], phases[i - 1].regime, flows[i], phases[i].start))
    times = np.array([node.t for node, *_ in found])
    period = windows[0].end - windows[0].start
    made = []
    for i, (node, flow, regime, later_flow, later) in enumerate(found):
        others = np.abs(np.delete(times, i) - node.t)
        reach = min(REACH * period, 0.5 * float(others.min(initial=np.inf)))
        start, end = max(node.t - reach, 0.0), min(node.t + reach, windows[-1].end)
        made.append(
            Reference(
                time=node.t,
                start=start,
                end=end,
                before=_continued(plan, flow, regime, node.t, node.before, end),
                after=_continued(plan, later_flow, later, node.t, node.after, start),
            )
        )
    return tuple(made)


def _continued(plan: PlanWindows, flow: Any, regime: Any, t: float, x: Array, end: float) -> Callable[[float], Array]:
    """The smooth motion of a regime from t to an end that may lie before it, under the plan's control."""
    from scipy.integrate import solve_ivp  # not paid for by an import of the library

    held = ContactFlow(flow.mechanics, flow.options, plan.control, flow.p, flow.scales)
    if end == t:
        return lambda s: x
    motion = solve_ivp(lambda s, y: held.rhs(regime, s, y), (t, end), x, dense_output=True, rtol=1e-8, atol=1e-10)
    return lambda s: np.asarray(motion.sol(s))
