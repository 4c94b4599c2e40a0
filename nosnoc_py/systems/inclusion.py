"""Filippov systems in one form: x' as a function of multipliers, and the functions that the multipliers belong to.

- `STEP`: a step function alpha of c: 1 where c > 0, 0 where c < 0, in [0, 1] where c = 0.
- `REGION`: the weight theta >= 0 of a region whose indicator g is one of the smallest ones; those of a partition have
  the sum 1.
- `FORCE`: the force lambda >= 0 of a constraint c >= 0, zero where c > 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import casadi as ca

from nosnoc_py.systems.pss import PDS, PSS, Heaviside, Modes

STEP, REGION, FORCE = range(3)


@dataclass(frozen=True, eq=False, kw_only=True)
class MultiplierGroup:
    """Multipliers that belong together.

    Attributes
    ----------
    kind : int
    names, labels : tuple of str
        What their events are named after, and what they are called in a solution.
    symbols, functions : SX (n,)
        The multipliers, and what tells which of them are free.
    active : SX (n,)
        1 where a region may have a weight: others need not have a motion.
    modes : Modes, optional
        The partition.
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

    @property
    def count(self) -> int:
        """Number of multipliers."""
        return int(self.symbols.shape[0])


def inclusion_of(system: PSS | Heaviside | PDS) -> tuple[ca.SX, tuple[MultiplierGroup, ...]]:
    """x' (n_x,) with all multipliers, regions by their weights, and the multipliers."""
    if isinstance(system, PSS):
        parts = tuple(_weights(modes) for modes in system.modes)
        return sum((part.regions @ part.symbols for part in parts), system.flow), parts
    if isinstance(system, Heaviside):
        kind, what, names = STEP, "alpha", tuple(system.function_names or ())
        flow, symbols, functions = system.flow, system.alpha, system.functions
    else:
        kind, what, names, functions = FORCE, "lambda", system.constraint_names, system.constraints
        symbols = ca.SX.sym(what, len(names))
        flow = system.flow + system.normals @ symbols
    labels = tuple(f"{what}[{name}]" for name in names)
    active = ca.SX.sym("active", len(names))
    return flow, (
        MultiplierGroup(kind=kind, names=names, labels=labels, symbols=symbols, functions=functions, active=active),
    )


def _weights(modes: Modes) -> MultiplierGroup:
    active, size = ca.SX.sym("active", modes.count), modes.flows[0].shape[0]
    return MultiplierGroup(
        kind=REGION,
        names=tuple(modes.function_names or ()) * modes.count,
        labels=tuple(f"theta[{modes.name}][{i}]" for i in range(modes.count)),
        symbols=ca.SX.sym("theta", modes.count),
        functions=modes.indicators,
        active=active,
        modes=modes,
        # Nothing times NaN is not nothing.
        regions=ca.horzcat(*[ca.if_else(active[i] > 0.5, f, ca.SX(size, 1)) for i, f in enumerate(modes.flows)]),
    )
