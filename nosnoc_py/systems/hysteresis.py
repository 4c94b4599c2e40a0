"""Switches with hysteresis: between two thresholds the threshold passed last determines the flow.

The state does not determine the mode between the thresholds: methods carry it as an additional discrete state. The
variable is normalised (`function`), so that the thresholds are -1 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

import casadi as ca
from attrs import field

from nosnoc_py.annotations import Expression
from nosnoc_py.declared import changed, declared, title_of
from nosnoc_py.errors import ModelError, unknown_name
from nosnoc_py.systems.symbols import column, one_row, part_name

# Modes in the order of the flows.
WORDS = LOW, HIGH = "low", "high"


def _flows(value: Sequence[Expression], what: str = "flows", owner: Any = None) -> tuple[ca.SX, ...]:
    if not isinstance(value, list | tuple) or len(value) != len(WORDS):
        raise ModelError(f"{what}: expected two, of the modes 'low' and 'high'.")
    return tuple(column(flow, f"{title_of(owner)}: flow {word!r}") for word, flow in zip(WORDS, value, strict=True))


@declared
class Hysteresis:
    """Switch with hysteresis: "high" after the variable rises through `upper`, "low" after it falls through `lower`.

    It is an automaton with two modes (Visintin, Differential Models of Hysteresis, 1994, Sec. I.2: a delayed relay).
    Its events are "switch", at the instant of the passage; the state is continuous. One of the `modes` of an `ns.PSS`.
    Simulated by `ns.EventDriven()`, solved by `ns.solve(ocp)` and `ns.MultiPhase(...)`.

    Parameters
    ----------
    name : str
    variable : SX scalar
        In x and p.
    lower, upper : float or SX scalar
        Thresholds, lower < upper; numbers, or expressions of p.
    flows : two SX (n_x,)
        x' in the modes "low" and "high", beside the flow of the system.
    start : {"low", "high"}
        Mode of a motion that begins between the thresholds; outside of them the variable determines the mode.

    Raises
    ------
    ModelError
        If the thresholds are not in order, there are not two flows, or start is no mode.

    Examples
    --------
    A heater that goes on below 18 and off above 22 degrees:

    >>> import casadi as ca
    >>> import nosnoc_py as ns
    >>> T = ca.SX.sym("T")
    >>> heater = ns.Hysteresis("heater", variable=T, lower=18.0, upper=22.0, flows=(10.0, 0.0), start="low")
    >>> room = ns.PSS(x=T, flow=-0.2 * T, modes=[heater], names={"x": ["temperature"]})
    >>> motion = ns.simulate(room, x0=[20.0], duration=2.0)
    >>> [(event.name, event.kind, round(event.time, 4)) for event in motion.events]
    [('heater', 'switch', 0.345), ('heater', 'switch', 1.3483)]
    """

    noun: ClassVar[str] = "hysteresis"

    name: str = field(converter=part_name)
    variable: ca.SX = field(converter=one_row, kw_only=True)
    lower: ca.SX = field(converter=one_row, kw_only=True)
    upper: ca.SX = field(converter=one_row, kw_only=True)
    flows: tuple[ca.SX, ...] = field(converter=_flows, kw_only=True)
    start: Literal["low", "high"] = field(default="low", kw_only=True)

    def __attrs_post_init__(self) -> None:
        what, width = title_of(self), ca.simplify(self.upper - self.lower)
        # Thresholds that are expressions of p are compared when p has values.
        if width.is_constant() and not float(width) > 0.0:
            raise ModelError(f"{what}: expected lower < upper, given {self.lower} and {self.upper}.")
        if self.start not in WORDS:
            raise ModelError(f"{what}: start: {unknown_name(str(self.start), WORDS, 'mode')}")

    @cached_property
    def function(self) -> ca.SX:
        """Normalised variable: -1 at the lower threshold, 1 at the upper one, so that both modes are equally long."""
        return (2 * self.variable - self.lower - self.upper) / (self.upper - self.lower)

    def check_values(self, lower: float, upper: float) -> None:
        """Raise `ModelError` where the thresholds, with values of p, are not in order."""
        if not lower < upper:
            raise ModelError(f"hysteresis {self.name!r}: expected lower < upper, given {lower:g} and {upper:g}.")

    def with_flows(self, flows: Sequence[ca.SX]) -> Hysteresis:
        """Return the same switch with other flows."""
        # A copy: the switch of the user may belong to another system.
        return changed(self, flows=tuple(flows))
