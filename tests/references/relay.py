"""Limit cycles of relay feedback from a point between two events on, by matrix exponentials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import nosnoc_py as ns
from models import relay_feedback
from models.relay_feedback import PLANTS, Hysteresis
from nosnoc_py.errors import OptionError, unknown_name

EXAMPLES = (*PLANTS, "hysteresis")
PHASE = 0.3  # of a half period between the cycle's first event and the start of the simulation


@dataclass(frozen=True, eq=False, kw_only=True)
class Reference:
    """What is known of an example: system, cycle from the start on, period [s], events."""

    system: ns.PSS
    state: Callable[[float], np.ndarray]
    period: float
    events: Callable[[float], tuple[tuple[str, float], ...]]


def reference(example: str, width: float = 0.5, lag: float = 0.02) -> Reference:
    """The exact cycle of an example; width and lag [s] are those of the hysteresis."""
    if example not in EXAMPLES:
        raise OptionError(unknown_name(example, EXAMPLES, "example"))
    return _hysteresis(Hysteresis(width=width, lag=lag)) if example == "hysteresis" else _plant(example)


def _plant(name: str) -> Reference:
    cycle = relay_feedback.limit_cycle(PLANTS[name])
    delay = PHASE * 0.5 * cycle.period
    return Reference(
        system=relay_feedback.build(PLANTS[name]),
        state=lambda t: cycle(t + delay),
        period=cycle.period,
        events=lambda until: tuple((kind, at - delay) for kind, at in cycle.switch_times(until + delay) if at > delay),
    )


def _hysteresis(constants: Hysteresis) -> Reference:
    start, period = constants.cycle()
    delay = PHASE * 0.5 * period

    def state(t: float) -> np.ndarray:
        halves, s = divmod(t + delay, 0.5 * period)
        return np.asarray((-1.0) ** halves * constants.after(start, 1.0, s))

    def events(until: float) -> tuple[tuple[str, float], ...]:
        times = 0.5 * period * np.arange(1, int(2.0 * until / period) + 2) - delay
        return tuple(("switch", float(at)) for at in times if at < until)

    return Reference(
        system=relay_feedback.build_hysteresis(constants),
        state=state,
        period=period,
        events=events,
    )
