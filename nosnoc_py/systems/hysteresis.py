"""Switches with hysteresis: between two thresholds the threshold passed last determines the flow.

The state does not determine the mode between the thresholds: methods carry it as an additional discrete state. The
variable is normalised (`function`), so that the thresholds are -1 and 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import casadi as ca

from nosnoc_py.annotations import Expression
from nosnoc_py.arguments import construct, named_arguments
from nosnoc_py.errors import ModelError, unknown_name
from nosnoc_py.solution.arrays import assign
from nosnoc_py.systems.symbols import column, titled

# Modes in the order of the flows.
WORDS = LOW, HIGH = "low", "high"


@named_arguments
@dataclass(frozen=True, eq=False, init=False)
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

    name: str
    variable: ca.SX
    lower: ca.SX
    upper: ca.SX
    flows: Sequence[ca.SX]
    start: Literal["low", "high"]

    def __init__(
        self,
        name: str,
        *,
        variable: ca.SX,
        lower: float | ca.SX,
        upper: float | ca.SX,
        flows: Sequence[Expression],
        start: Literal["low", "high"] = "low",
    ) -> None:
        construct(self, locals())

    def __post_init__(self) -> None:
        what = titled(self, "hysteresis")
        numbers = {key: column(getattr(self, key), f"{what}: {key}", 1) for key in ("variable", "lower", "upper")}
        width = ca.simplify(numbers["upper"] - numbers["lower"])
        # Thresholds that are expressions of p are compared when p has values.
        if width.is_constant() and not float(width) > 0.0:
            raise ModelError(f"{what}: expected lower < upper, given {self.lower!r} and {self.upper!r}.")
        if not isinstance(self.flows, list | tuple) or len(self.flows) != len(WORDS):
            raise ModelError(f"{what}: flows: expected two, of the modes 'low' and 'high'.")
        if self.start not in WORDS:
            raise ModelError(f"{what}: start: {unknown_name(str(self.start), WORDS, 'mode')}")
        flows = tuple(column(flow, f"{what}: flow {word!r}") for word, flow in zip(WORDS, self.flows, strict=True))
        assign(self, flows=flows, **numbers)

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
        result = copy(self)
        assign(result, flows=tuple(flows))
        return result
