"""Filippov systems in one form: multipliers, the functions they belong to, and what determines them in every mode.

    x' = F(x, z, u, y, p),   0 = G(x, z, u, y, p)

- `STEP`: y is a step function alpha of c: 1 where c > 0, 0 where c < 0, free in [0, 1] with c' = 0 in sliding. Regions
  with signs weigh as the products of alpha or 1 - alpha.
- `REGION`: y is the weight theta of a region whose indicator g is one of the smallest ones. The weights of regions that
  share a motion are free, with equal rates g', and have the sum 1.
- `FORCE`: y is the force lambda >= 0 of a constraint c >= 0: zero, or free with c' = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered
from nosnoc_py.systems.pss import PDS, PSS, Heaviside, Modes

Array = np.ndarray
ON, ABOVE, BELOW = 0, 1, -1
"""Modes: free multiplier (a region: one of the active ones); function above zero (a region: not active); below."""
STEP, REGION, FORCE = range(3)


@dataclass(frozen=True, eq=False, kw_only=True)
class Masks:
    """Symbols that tell the modes: which multipliers are free, which are references, and values of the others."""

    free: ca.SX
    reference: ca.SX
    value: ca.SX

    @classmethod
    def of(cls, count: int) -> Masks:
        """For so many multipliers."""
        return cls(
            free=ca.SX.sym("free", count), reference=ca.SX.sym("reference", count), value=ca.SX.sym("value", count)
        )

    def part(self, start: int, stop: int) -> Masks:
        """Those of a range of multipliers."""
        return Masks(free=self.free[start:stop], reference=self.reference[start:stop], value=self.value[start:stop])

    @property
    def stacked(self) -> ca.SX:
        """(3 n_y,)."""
        return ca.vertcat(self.free, self.reference, self.value)


@dataclass(frozen=True, eq=False, kw_only=True)
class Part:
    """Multipliers that belong together: their kind, event names, symbols, functions, and series as (label, value)."""

    kind: int
    names: tuple[str, ...]
    symbols: ca.SX
    functions: ca.SX
    series: tuple[tuple[str, ca.SX], ...]
    # Flows of the regions (n_x, n_f) and their weights, of a partition with signs.
    regions: ca.SX | None = None

    @property
    def count(self) -> int:
        """Number of multipliers."""
        return int(self.symbols.shape[0])


class Laws:
    """A Filippov system as functions of s = (y, z), w = (x, p), u and the masks; built once.

    Attributes
    ----------
    kinds, parts : (n_y,)
        Kind of every multiplier, and the part it belongs to.
    names : tuple of str
        What its events are named after.
    affine : bool
        Whether the equations for s are affine in s, in every mode.
    initial, lower, upper : (n_z,)
        Of the algebraic variables.
    """

    def __init__(self, system: PSS | Heaviside | PDS) -> None:
        own = system.algebraic
        self.system = system
        self.n_x, self.n_p, self.n_z = int(system.x.shape[0]), system.n_p, int(system.z.shape[0])
        masks = Masks.of(_count(system))
        flow, made = _parts(system, masks)
        self.kinds = np.array([part.kind for part in made for _ in range(part.count)])
        self.parts = np.array([i for i, part in enumerate(made) for _ in range(part.count)])
        self.names = tuple(name for part in made for name in part.names)
        self.n_y = self.kinds.size
        none = np.zeros(0)
        bounds: tuple[Array, Array, Array] = (none, none, none)
        if own is not None:
            bounds = (np.asarray(own.initial), np.asarray(own.lower), np.asarray(own.upper))
        self.initial, self.lower, self.upper = bounds
        # Inverse of the metric in which states are put back on surfaces.
        self.metric = np.linalg.inv(system.metric) if isinstance(system, PDS) else np.eye(self.n_x)
        self.z_names = () if own is None else tuple(own.names or ())
        self._compile(flow, made, masks)

    def _compile(self, flow: ca.SX, made: list[Part], masks: Masks) -> None:
        system, own = self.system, self.system.algebraic
        y, c = (ca.vertcat(*[getattr(part, name) for part in made]) for name in ("symbols", "functions"))
        s, w, u, m = ca.vertcat(y, system.z), ca.vertcat(system.x, system.p), system.u, masks.stacked
        rates = ca.jacobian(c, system.x) @ flow
        rows = ca.vertcat(self._rows(made, masks, y, rates), ca.SX(0, 1) if own is None else own.equations)
        slope = ca.jacobian(rows, s)
        self.affine = not ca.depends_on(slope, s)
        self.residual = _compiled("residual", [s, w, u, m], [rows, slope])
        self.motion = _compiled("motion", [s, w, u, m], [flow, rates])
        derivatives = [ca.jacobian(e, v) for e, v in ((rows, w), (rows, u), (flow, s), (flow, w), (flow, u))]
        self.slopes = _compiled("slopes", [s, w, u, m], derivatives)
        self.functions = _compiled("functions", [w], [c, ca.jacobian(c, w)])
        every = [pair for part in made for pair in part.series]
        self.series_names = (*(label for label, _ in every), *self.z_names)
        self.series = _compiled("series", [s, w], [ca.vertcat(*[value for _, value in every], system.z)])
        self.regions = [
            None if part.regions is None else _compiled("regions", [s, w, u, m], [part.regions]) for part in made
        ]

    def _rows(self, made: list[Part], masks: Masks, y: ca.SX, rates: ca.SX) -> ca.SX:
        """What is zero for every multiplier."""
        rows, start = [], 0
        for part in made:
            stop = start + part.count
            m, own, rate = masks.part(start, stop), y[start:stop], rates[start:stop]
            if part.kind == REGION:
                equal = m.free * (rate - ca.dot(m.reference, rate)) + m.reference * (ca.sum1(own) - 1)
                rows.append(equal + (1 - m.free - m.reference) * own)
            else:
                rows.append(m.free * rate + (1 - m.free) * (own - m.value))
            start = stop
        return ca.vertcat(*rows)


def _count(system: PSS | Heaviside | PDS) -> int:
    if isinstance(system, PSS):
        return sum(modes.count if modes.functions is None else int(modes.functions.shape[0]) for modes in system.modes)
    return int((system.alpha if isinstance(system, Heaviside) else system.constraints).shape[0])


def _parts(system: PSS | Heaviside | PDS, masks: Masks) -> tuple[ca.SX, list[Part]]:
    """The flow (n_x,) and the parts of the multipliers."""
    if isinstance(system, PSS):
        return _partitions(system, masks)
    if isinstance(system, Heaviside):
        c, names = system.functions, tuple(system.function_names or ())
        series = [(f"alpha[{n}]", system.alpha[j]) for j, n in enumerate(names)]
        series += [(f"lambda_n[{n}]", ca.fmax(-c[j], 0)) for j, n in enumerate(names)]
        series += [(f"lambda_p[{n}]", ca.fmax(c[j], 0)) for j, n in enumerate(names)]
        steps = Part(kind=STEP, names=names, symbols=system.alpha, functions=c, series=tuple(series))
        return system.flow, [steps]
    c, force = system.constraints, ca.SX.sym("lambda", system.constraints.shape[0])
    flow = system.flow + ca.DM(np.linalg.inv(system.metric)) @ ca.jacobian(c, system.x).T @ force
    labels = tuple((f"lambda[{name}]", force[j]) for j, name in enumerate(system.constraint_names))
    return flow, [Part(kind=FORCE, names=system.constraint_names, symbols=force, functions=c, series=labels)]


def _partitions(system: PSS, masks: Masks) -> tuple[ca.SX, list[Part]]:
    flow, made, start = system.flow, [], 0
    for modes in system.modes:
        count = modes.count if modes.functions is None else int(modes.functions.shape[0])
        y, m = ca.SX.sym("y", count), masks.part(start, start + count)
        theta, active = (y, m.free + m.reference) if modes.functions is None else _weights(modes, y, m)
        # A region that is not active need not have a flow here: nothing times NaN is not nothing.
        regions = ca.horzcat(*[ca.if_else(active[i], f, ca.SX(f.shape[0], 1)) for i, f in enumerate(modes.flows)])
        flow += regions @ theta
        named = tuple(modes.function_names or ())
        made.append(
            Part(
                kind=REGION if modes.functions is None else STEP,
                names=named * count if modes.functions is None else named,
                symbols=y,
                functions=modes.indicators if modes.functions is None else modes.functions,
                series=_series(modes, theta),
                regions=None if modes.functions is None else regions,
            )
        )
        start += count
    return flow, made


def _weights(modes: Modes, alpha: ca.SX, m: Masks) -> tuple[ca.SX, ca.SX]:
    """Weights of the regions as products of step functions, and which of them may be more than zero."""
    theta, active = [], []
    for signs in modes.signs:
        weight, open_ = ca.SX(1), ca.SX(1)
        for j, sign in enumerate(signs):
            weight *= alpha[j] if sign > 0 else 1 - alpha[j]
            open_ *= m.free[j] + (1 - m.free[j]) * (m.value[j] if sign > 0 else 1 - m.value[j])
        theta.append(weight)
        active.append(open_)
    return ca.vertcat(*theta), ca.vertcat(*active)


def _series(modes: Modes, theta: ca.SX) -> tuple[tuple[str, ca.SX], ...]:
    """Stewart's multipliers: weights of regions, distances of indicators from the smallest one, and that one."""
    g, least = modes.indicators, ca.mmin(modes.indicators)
    made = [(f"theta[{modes.name}][{i}]", theta[i]) for i in range(modes.count)]
    made += [(f"lambda[{modes.name}][{i}]", g[i] - least) for i in range(modes.count)]
    return (*made, (f"mu[{modes.name}]", least))


def _compiled(name: str, inputs: list[ca.SX], outputs: list[ca.SX]) -> Callable[..., list[Array]]:
    return buffered(ca.Function(name, inputs, [ca.densify(ca.SX(out)) for out in outputs]))
