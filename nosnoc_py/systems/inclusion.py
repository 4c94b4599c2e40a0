"""Filippov systems in one form: x' as a function of multipliers, each with the function that determines it.

Methods that treat modes (event-driven simulation, mode sequences) see groups of multipliers instead of the classes of
systems: in a mode every multiplier is a constant, or an unknown where the state slides.

- `STEP`: a step function alpha of c: 1 where c > 0, 0 where c < 0, in [0, 1] where c = 0.
- `REGION`: the weight theta >= 0 of a region whose indicator g is one of the smallest ones; those of a partition have
  the sum 1.
- `FORCE`: the force lambda >= 0 of a constraint c >= 0, zero where c > 0.
- `MEMORY`: a switch with hysteresis: 1 after c reached 1, 0 after it reached -1; in between the state does not
  determine it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import casadi as ca

from nosnoc_py.systems.hybrid import HybridSystem
from nosnoc_py.systems.hysteresis import HIGH, Hysteresis
from nosnoc_py.systems.pss import PSS, Heaviside, Modes

STEP, REGION, FORCE, MEMORY = range(4)


@dataclass(frozen=True, eq=False, kw_only=True)
class MultiplierGroup:
    """Multipliers that belong together.

    Attributes
    ----------
    kind : int
    names, labels : tuple of str
        Names of their events, and names of the multipliers in a solution.
    symbols, functions : SX (n,)
        The multipliers, and the functions whose zeros make them free.
    active : SX (n,)
        1 if a region may have a positive weight: the flow of other regions need not be defined.
    modes : Modes, optional
        The partition.
    high : (n,) bool
        For switches with hysteresis: True to begin with 1 if the state does not determine the mode.
    regions : SX (n_x, n)
        Flows of its regions, zero where they are not active.
    """

    kind: int
    names: tuple[str, ...]
    labels: tuple[str, ...]
    symbols: ca.SX
    functions: ca.SX
    active: ca.SX
    modes: Modes | None = None
    regions: ca.SX = field(default_factory=lambda: ca.SX(0, 0))
    high: tuple[bool, ...] = ()

    @property
    def count(self) -> int:
        """Number of multipliers."""
        return int(self.symbols.shape[0])


def inclusion_of(system: Any) -> tuple[ca.SX, tuple[MultiplierGroup, ...]]:
    """Return x' (n_x,) with all multipliers, regions by their weights, and the multipliers.

    For a PSS, a Heaviside system, a PDS, or a HybridSystem, whose flow has none.
    """
    if isinstance(system, HybridSystem):
        return system.flow, ()
    if isinstance(system, PSS):
        flow, result = system.flow, list[MultiplierGroup]()
        for modes in system.modes:
            if isinstance(modes, Hysteresis):
                switch, (low, high) = _switch(modes), modes.flows
                result.append(switch)
                share, still = switch.symbols, ca.SX(system.x.numel(), 1)
                # A flow may be undefined (NaN) outside of its mode, and 0 * NaN is NaN: leave such terms out.
                flow += ca.if_else(share < 1, (1 - share) * low, still) + ca.if_else(share > 0, share * high, still)
            else:
                result.append(_weights(modes))
                # Linear in theta, so that derivatives by the weights are the flows of the regions.
                flow += result[-1].regions @ result[-1].symbols
        return flow, tuple(result)
    if isinstance(system, Heaviside):
        kind, what, names = STEP, "alpha", tuple(system.function_names or ())
        flow, symbols, functions = system.flow, system.alpha, system.functions
    else:
        kind, what, names, functions = FORCE, "lambda", system.constraint_names, system.constraints
        # A PDS has no symbols for its multipliers; a Heaviside system has alpha.
        symbols = ca.SX.sym(what, len(names))
        flow = system.flow + system.normals @ symbols
    labels = tuple(f"{what}[{name}]" for name in names)
    active = ca.SX.sym("active", len(names))
    return flow, (
        MultiplierGroup(kind=kind, names=names, labels=labels, symbols=symbols, functions=functions, active=active),
    )


def _switch(hysteresis: Hysteresis) -> MultiplierGroup:
    return MultiplierGroup(
        kind=MEMORY,
        names=(hysteresis.name,),
        labels=(f"alpha[{hysteresis.name}]",),
        symbols=ca.SX.sym("alpha", 1),
        functions=hysteresis.function,
        # Without regions the flag has no effect; all groups have one, so that callers need no case.
        active=ca.SX.sym("active", 1),
        high=(hysteresis.start == HIGH,),
    )


def _weights(modes: Modes) -> MultiplierGroup:
    active, size = ca.SX.sym("active", modes.count), modes.flows[0].shape[0]
    return MultiplierGroup(
        kind=REGION,
        # Events of a partition by indicators have its name, whichever region changes.
        names=tuple(modes.function_names or ()) * modes.count,
        labels=tuple(f"theta[{modes.name}][{i}]" for i in range(modes.count)),
        symbols=ca.SX.sym("theta", modes.count),
        functions=modes.indicators,
        active=active,
        modes=modes,
        # A flow may be undefined (NaN) outside of its region, and 0 * NaN is NaN: leave such columns out.
        regions=ca.horzcat(*[ca.if_else(active[i] > 0.5, f, ca.SX(size, 1)) for i, f in enumerate(modes.flows)]),
    )
