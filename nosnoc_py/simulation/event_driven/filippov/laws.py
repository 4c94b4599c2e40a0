"""Filippov systems in one form: multipliers, their functions, and the equations that determine them in each mode.

    x' = F(x, z, u, y, p),   0 = G(x, z, u, y, p)

Multipliers y are step functions alpha of switching functions, weights theta of regions, or forces of constraints, as in
`systems.inclusion`. Weights of regions with signs are written as products of alpha and 1 - alpha. A free multiplier
(sliding, active constraint) is determined by rates: c' = 0 for a step function or a force; for the weights of regions
that slide together, equal rates g' of their indicators (Stewart's g) and the sum 1. Other multipliers have fixed
values.

References
----------
Filippov (1988), Section 4: sliding modes. Stewart (1990): indicators. Aizerman and Pyatnitskii (1974): step functions.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any
from weakref import WeakKeyDictionary

import casadi as ca
import numpy as np

from nosnoc_py.functions import buffered, buffered_at_many
from nosnoc_py.systems.inclusion import MEMORY, REGION, STEP, MultiplierGroup, inclusion_of
from nosnoc_py.systems.pss import PDS, PSS, Heaviside, Modes

Array = np.ndarray
ON, ABOVE, BELOW = 0, 1, -1
"""Modes: ON, free multiplier (a region: active); ABOVE, function above zero (a region: not active).

BELOW, below zero.
"""


@dataclass(frozen=True, eq=False, kw_only=True)
class Masks:
    """Symbols of the modes: free multipliers, reference regions, and values of the other multipliers."""

    free: ca.SX
    reference: ca.SX
    value: ca.SX

    @classmethod
    def of(cls, count: int) -> Masks:
        """Return the symbols for a number of multipliers."""
        return cls(**{field.name: ca.SX.sym(field.name, count) for field in fields(cls)})


class Laws:
    """Compiled functions of a Filippov system in s = (y, z), w = (x, p), u and the masks.

    Attributes
    ----------
    x, p, u : SX
        Symbols of the system.
    kinds, parts : (n_y,)
        Kind of every multiplier, and the part it belongs to.
    steps_up : (n_y,) bool
        Multipliers that are 1 on the upper side of their function.
    reach : (n_y,)
        How far beyond zero a function goes before its mode ends: 1 with hysteresis, which is between -1 and 1.
    high : (n_y,) bool
        Switches with hysteresis that begin with 1 where the state leaves it open.
    partitions : list of (k,) int
        Regions that belong together.
    choices : (n_y,) int
        Numbers of modes at a state where the function is zero.
    names : tuple of str
        Names for events.
    affine : bool
        True if the equations for s are affine in s, in every mode.
    initial, lower, upper : (n_z,)
        Of the algebraic variables.
    steps, regimes : dict
        Compiled steps and regimes, by the modes.
    """

    def __init__(self, system: PSS | Heaviside | PDS) -> None:
        own = system.algebraic
        self.x, self.p, self.u = system.x, system.p, system.u
        self.n_x, self.n_p, self.n_z = int(system.x.shape[0]), system.n_p, int(system.z.shape[0])
        self.z_names = () if own is None else tuple(own.names or ())
        flow, groups, masks = self._multiplier_groups(system)
        self.kinds = np.array([part.kind for part in groups for _ in range(part.count)], dtype=int)
        self.steps_up = np.isin(self.kinds, (STEP, MEMORY))
        self.reach = np.where(self.kinds == MEMORY, 1.0, 0.0)
        self.high = np.array([high for part in groups for high in part.high or (False,) * part.count], dtype=bool)
        self.modes = [part.modes for part in groups]
        self.parts = np.array([i for i, part in enumerate(groups) for _ in range(part.count)], dtype=int)
        self.names = tuple(name for part in groups for name in part.names)
        self.n_y = self.kinds.size
        self.partitions = [np.flatnonzero(self.parts == part) for part in np.unique(self.parts[self.kinds == REGION])]
        # Modes of a function that is zero: on either side, or on it; regions and forces are there or not.
        self.choices = np.select([self.kinds == STEP, self.kinds == MEMORY], [3, 1], 2)
        self.initial, self.lower, self.upper = (
            np.asarray([] if own is None else getattr(own, name), float) for name in ("initial", "lower", "upper")
        )
        # Inverse of the metric in which states are put back on surfaces.
        self.metric = system.metric_inverse if isinstance(system, PDS) else np.eye(self.n_x)
        if not system.autonomous:
            self.metric[-1] = 0.0  # time stays what it is
        self.steps: dict[tuple[int, ...], Any] = {}
        self.regimes: dict[tuple[int, ...], Any] = {}
        self._compile(system, flow, groups, masks)

    def _multiplier_groups(self, system: PSS | Heaviside | PDS) -> tuple[ca.SX, list[MultiplierGroup], list[Masks]]:
        """Return the flow (n_x,), multipliers and masks.

        Weights of regions with signs are products of step functions.
        """
        groups, masks, series = list[MultiplierGroup](), list[Masks](), list[tuple[str, ca.SX]]()
        self._regions: list[ca.SX | None] = []
        flow, all_groups = inclusion_of(system)
        for part in all_groups:
            own, modes = part, part.modes
            signed = modes is not None and modes.functions is not None
            # The weights of regions with signs are replaced by step functions of their surfaces, which are fewer
            # unknowns.
            if modes is not None and signed:
                names, alpha = tuple(modes.function_names or ()), ca.SX.sym("alpha", modes.functions.numel())
                own = replace(part, kind=STEP, names=names, symbols=alpha, functions=modes.functions)
            m = Masks.of(own.count)
            # A region takes part if its weight is free or if it is the one that others are compared with.
            theta, active = part.symbols, m.free + m.reference
            if modes is not None and signed:
                theta, active = _weights(modes, own.symbols, m)
            flow, regions = ca.substitute([flow, part.regions], [part.symbols, part.active], [theta, active])
            groups.append(own)
            masks.append(m)
            series += _series(part, theta)
            self._regions.append(regions if signed else None)
        self.series_names = (*(label for label, _ in series), *self.z_names)
        self._series = ca.vertcat(ca.SX(0, 1), *[value for _, value in series], system.z)
        return flow, groups, masks

    def _compile(
        self, system: PSS | Heaviside | PDS, flow: ca.SX, groups: list[MultiplierGroup], masks: list[Masks]
    ) -> None:
        own = system.algebraic
        none = ca.SX(0, 1)
        y, c = (ca.vertcat(none, *[getattr(part, name) for part in groups]) for name in ("symbols", "functions"))
        s, w, u = ca.vertcat(y, system.z), ca.vertcat(system.x, system.p), system.u
        m = ca.vertcat(none, *[getattr(mask, field.name) for field in fields(Masks) for mask in masks])
        # Rates along the flow, c' = c_x F: a free multiplier keeps its function at zero, so that the index is reduced
        # to one.
        rates = ca.jacobian(c, system.x) @ flow
        rows = ca.vertcat(self._rows(groups, masks, rates), none if own is None else own.equations)
        slope = ca.jacobian(rows, s)
        # Newton's method is exact after one step then, and there is at most one root.
        self.affine = not ca.depends_on(slope, s)
        self.residual_function = ca.Function("residual", [s, w, u, m], [rows, slope])
        self.motion_function = ca.Function("motion", [s, w, u, m], [flow, rates])
        self.functions_function = ca.Function("functions", [w], [c, ca.jacobian(c, w)])
        self.residual, self.motion = buffered(self.residual_function), buffered(self.motion_function)
        self.functions = buffered(self.functions_function)
        derivatives = [ca.jacobian(e, v) for e, v in ((rows, w), (rows, u), (flow, s), (flow, w), (flow, u))]
        slopes = ca.Function("slopes", [s, w, u, m], derivatives)
        self.slopes, self.slopes_many = buffered(slopes), buffered_at_many(slopes)
        self.residual_many = buffered_at_many(self.residual_function)
        self._series_function = ca.Function("series", [s, w], [ca.densify(self._series)])
        self.regions = [
            None if part is None else buffered(ca.Function("regions", [s, w, u, m], [part])) for part in self._regions
        ]

    def series(self, s: Array, w: Array) -> Array:
        """Return the series (m, n) at m instants."""
        return np.asarray(ca.DM(self._series_function.map(len(s))(s.T, w.T))).T

    def _rows(self, groups: list[MultiplierGroup], masks: list[Masks], rates: ca.SX) -> ca.SX:
        """Return the equation of each multiplier."""
        rows = [ca.SX(0, 1)]
        ends = np.cumsum([part.count for part in groups], dtype=int)
        for part, m, end in zip(groups, masks, ends, strict=True):
            rate = rates[int(end) - part.count : int(end)]
            own = part.symbols
            if part.kind == REGION:
                # Regions that slide together have equal indicator rates; the row of the reference region is the sum of
                # the weights.
                equal = m.free * (rate - ca.dot(m.reference, rate)) + m.reference * (ca.sum1(own) - 1)
                rows.append(equal + (1 - m.free - m.reference) * own)
            else:
                rows.append(m.free * rate + (1 - m.free) * (own - m.value))
        return ca.vertcat(*rows)


_KNOWN: WeakKeyDictionary[PSS | Heaviside | PDS, Laws] = WeakKeyDictionary()


def laws_of(system: PSS | Heaviside | PDS) -> Laws:
    """Return the laws of a system (cached)."""
    if system not in _KNOWN:
        _KNOWN[system] = Laws(system)
    return _KNOWN[system]


def _weights(modes: Modes, alpha: ca.SX, m: Masks) -> tuple[ca.SX, ca.SX]:
    """Return the weights of regions as products of step functions, and which of them may be positive."""
    theta, active = [], []
    for signs in modes.signs:
        weight, open_ = ca.SX(1), ca.SX(1)
        for j, sign in enumerate(signs):
            weight *= alpha[j] if sign > 0 else 1 - alpha[j]
            # The factor of a crossed surface is 1 or 0 by its side; a sliding surface admits both.
            open_ *= m.free[j] + (1 - m.free[j]) * (m.value[j] if sign > 0 else 1 - m.value[j])
        theta.append(weight)
        active.append(open_)
    return ca.vertcat(*theta), ca.vertcat(*active)


def _series(part: MultiplierGroup, values: ca.SX) -> list[tuple[str, ca.SX]]:
    """Return the series of a group.

    Multipliers, and positive and negative parts of its functions (or lambda and mu).
    """
    groups, c = list(zip(part.labels, ca.vertsplit(values), strict=True)), part.functions
    if part.modes is not None:
        name, least = part.modes.name, ca.mmin(c)
        return [*groups, *((f"lambda[{name}][{i}]", c[i] - least) for i in range(part.count)), (f"mu[{name}]", least)]
    sides = {"lambda_n": ca.fmax(-c, 0), "lambda_p": ca.fmax(c, 0)} if part.kind == STEP else {}
    return groups + [(f"{side}[{n}]", values[j]) for side, values in sides.items() for j, n in enumerate(part.names)]
