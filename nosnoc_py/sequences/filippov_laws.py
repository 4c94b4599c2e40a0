"""Mode equations of Filippov systems (Filippov 1988), projected and hybrid systems, and switches with hysteresis.

On one side of a surface the vector field is that of the region. Sliding along it, the field is a convex combination of
the neighbouring ones, whose weights (alpha per switching function, theta per region) are multipliers of the condition
that the switching function stays zero (index 2). A constraint of a projected dynamical system is free, or active with
its force as the multiplier. A switch with hysteresis has the modes "low" and "high"; each holds until its own
threshold. A jump of a hybrid system waits in every phase, with a guard that is nonnegative; it happens between two
phases, where the guard is zero and falls, and the state becomes its reset.

All these systems are one `inclusion_of` groups of multipliers; a mode replaces the symbols of every group by constants,
or by unknowns where it slides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import ModelError
from nosnoc_py.functions import function_of
from nosnoc_py.motion.kinds import Kind, of_modes, of_sides
from nosnoc_py.roles import Role
from nosnoc_py.sequences.equations import MODES, Boundary, ImpactData, Mode, ModeEquations, Rows, Unknowns
from nosnoc_py.sequences.reading import MotionSegment, active_in_segments
from nosnoc_py.systems.hybrid import HybridSystem, StateJump
from nosnoc_py.systems.hysteresis import HIGH, LOW
from nosnoc_py.systems.inclusion import FORCE, MEMORY, REGION, MultiplierGroup, inclusion_of
from nosnoc_py.systems.pss import PDS, PSS, Heaviside

ABOVE, BELOW, ON = "+", "-", "0"
FREE, ACTIVE = "free", "active"
WAITING, JUMPS = "waiting", "jumps"
# Separator of the regions of a sliding mode, for partitions without signs: "0|2".
TOGETHER = "|"
# Events that begin and end sliding.
SLIDING = (("enter_sliding",), ("leave_sliding",))
# A state is on a surface where its function is below this fraction of its largest value in the segment.
ON_SURFACE = 1e-6


class FilippovLaws:
    """Mode equations of a `PSS`, `Heaviside` system, `PDS` or `HybridSystem` (see `ModeLaws`).

    Modes are "+", "-" or "0" (sliding) for a switching function, "free" or "active" for a constraint, the active region
    or several joined by "|" for a partition by indicators, "low" or "high" for a switch with hysteresis, and "waiting"
    for a jump.

    Parameters
    ----------
    system : PSS, Heaviside, PDS or HybridSystem
    sizes : mapping name -> float, optional
        Typical values of switching functions; default 1.

    Examples
    --------
    A sliding velocity with dry friction, where the weight alpha of both flows is an unknown:

    >>> import casadi as ca, nosnoc_py as ns
    >>> v = ca.SX.sym("v")
    >>> friction = ns.Modes("friction", flows=[2.0, -2.0], functions=v, signs=[[-1], [1]])
    >>> laws = FilippovLaws(ns.PSS(x=v, modes=friction))
    >>> dae = laws.equations(("0",))
    >>> laws.names, dae.z.labels, dae.equations.labels
    (('friction',), ('alpha[friction]',), ('surface[friction]',))
    """

    impulses: tuple[Any, ...] = ()

    def __init__(self, system: PSS | Heaviside | PDS | HybridSystem, sizes: Mapping[str, float] | None = None) -> None:
        self.system, self.sizes = system, dict(sizes or {})
        self.flow, self.parts = inclusion_of(system)
        self._entries = [entry for part in self.parts for entry in _entries(part)]
        self.jumps: dict[str, StateJump] = {jump.name: jump for jump in system.jumps}
        self.names = (*(name for name, _, _ in self._entries), *self.jumps)
        # There are no gaps whose margins it could scale.
        self.length = 1.0
        self._where: dict[str, tuple[MultiplierGroup, int]] = {name: (part, j) for name, part, j in self._entries}
        role = {REGION: Role.CONVEX_MULTIPLIER, FORCE: Role.CONSTRAINT_FORCE}
        own = system.algebraic
        shown = [(label, role.get(part.kind, Role.STEP_FUNCTION), "") for part in self.parts for label in part.labels]
        shown += [] if own is None else [(name, Role.ALGEBRAIC, "") for name in own.names or ()]
        self.shown = tuple(shown)
        # Cached not only for speed: the program recognises phases of equal modes by the identity of this object.
        self.equations = lru_cache(maxsize=MODES)(self._equations)
        self._boundaries = lru_cache(maxsize=MODES)(self._boundary)

    def mode_names(self, name: str) -> tuple[str, ...]:
        """Return the modes of a name; for a partition by indicators the single regions, for a jump also its event."""
        if name in self.jumps:
            return (WAITING, JUMPS)
        part, _ = self._where[name]
        if part.kind == FORCE:
            return (FREE, ACTIVE)
        if part.kind == MEMORY:
            return (LOW, HIGH)
        return (ABOVE, BELOW, ON) if _signed(part) else tuple(str(i) for i in range(part.count))

    def lasting_modes(self, name: str) -> tuple[str, ...]:
        """Return the modes that a phase can have: a jump takes no time."""
        return (WAITING,) if name in self.jumps else self.mode_names(name)

    def default(self, name: str) -> str | None:
        """Return "free" for a constraint, "waiting" for a jump; None for all others, whose mode must be mentioned."""
        if name in self.jumps:
            return WAITING
        return FREE if self._where[name][0].kind == FORCE else None

    def regions(self, word: str) -> list[int]:
        """Return the active regions of a mode of a partition by indicators."""
        return [int(part) for part in word.split(TOGETHER)]

    def _equations(self, mode: Mode) -> ModeEquations:
        """Return the DAE of a mode (cached as `equations`)."""
        s = self.system
        z, equations, inequalities = Unknowns(), Rows(), Rows()
        values, active = [], []
        for part in self.parts:
            # The modes of a system are one flat tuple; a group has a part of it.
            own = {name: word for (name, owner, _), word in zip(self._entries, mode, strict=False) if owner is part}
            unknowns, held, away, value, weighted = self._of_part(part, own)
            z, equations, inequalities = z + unknowns, equations + held, inequalities + away
            values.append(value)
            active.append(ca.SX(weighted))
        algebraic = s.algebraic
        # The flow is written once with symbols of all multipliers; a mode substitutes its values for them.
        flow, shown = self.flow, ca.vertcat(ca.SX(0, 1), *values)
        old = [symbols for part in self.parts for symbols in (part.symbols, part.active)]
        new = [symbols for pair in zip(values, active, strict=True) for symbols in pair]
        own_rows = ca.SX(0, 1) if algebraic is None else algebraic.equations
        flow, own_rows = ca.substitute([flow, own_rows], old, new) if old else [flow, own_rows]
        # Algebraic equations of the user's own join the multipliers, after these are replaced in them as well.
        if algebraic is not None:
            names = tuple(algebraic.names or ())
            numbers = {key: np.asarray(getattr(algebraic, key), float) for key in ("lower", "upper", "initial")}
            z += Unknowns(symbol=s.z, labels=names, scale=np.ones(len(names)), **numbers)
            equations += Rows.of(("algebraic", own_rows))
            shown = ca.vertcat(shown, s.z)
        inequalities += Rows.of(*((f"guard[{name}]", jump.guard) for name, jump in self.jumps.items()))
        return ModeEquations(z=z, flow=flow, equations=equations, inequalities=inequalities, shown=shown)

    def _of_part(self, part: MultiplierGroup, words: dict[str, str]) -> tuple[Unknowns, Rows, Rows, ca.SX, list[float]]:
        """Return unknowns, equations, inequalities, multiplier values and active flags of one group in its modes."""
        if part.kind == REGION and not _signed(part):
            return self._shared_regions(part, self.regions(next(iter(words.values()))))
        if part.kind == MEMORY:
            (name, word), c = next(iter(words.items())), part.functions
            # Low holds up to the upper threshold c = 1, high down to the lower one c = -1.
            end = Rows.of((f"side[{name}]", 1 - c if word == LOW else c + 1))
            return Unknowns(), Rows(), end, ca.SX(float(word == HIGH)), [1.0]
        functions = part.modes.functions if part.modes is not None else part.functions
        on = [j for j, word in enumerate(words.values()) if word in (ON, ACTIVE)]
        names = list(words)
        # Bounds and initial value of a multiplier: a force is >= 0; a convex weight starts in the middle.
        limits = (0.0, np.inf, 0.0) if part.kind == FORCE else (0.0, 1.0, 0.5)
        what = "lambda" if part.kind == FORCE else "alpha"
        free = Unknowns.create(
            what, [f"{what}[{names[j]}]" for j in on], lower=limits[0], upper=limits[1], initial=limits[2]
        )
        held = Rows.of(*((f"surface[{names[j]}]", functions[j]) for j in on))
        sides = {ABOVE: 1.0, FREE: 1.0, BELOW: -1.0}
        off = [(j, sides[word]) for j, word in enumerate(words.values()) if j not in on]
        away = Rows.of(*((f"side[{names[j]}]", sign * functions[j]) for j, sign in off))
        value = ca.SX.zeros(len(words))
        for k, j in enumerate(on):
            value[j] = free.symbol[k]
        for j, sign in off:
            # Off its surface a step function is 0 or 1, and a constraint without contact has no force.
            value[j] = float(sign > 0) if part.kind != FORCE else 0.0
        # With several switching functions a region's weight is a product of the steps of all of them.
        if part.modes is None:
            return free, held, away, value, [1.0] * part.count
        theta, weighs = _products(part.modes.signs, value, dict(off))
        return free, held, away, theta, weighs

    def _shared_regions(
        self, part: MultiplierGroup, regions: Sequence[int]
    ) -> tuple[Unknowns, Rows, Rows, ca.SX, list[float]]:
        """Return the same for a partition by indicators, whose active regions have the smallest indicators."""
        first, others = regions[0], list(regions[1:])
        assert part.modes is not None
        title, g = part.modes.name, part.functions
        value = ca.SX.zeros(part.count)
        z, equations = Unknowns(), Rows()
        if others:
            # All theta are unknowns and the simplex is a row: none of the regions is distinguished.
            z = Unknowns.create(
                "theta", [part.labels[i] for i in regions], lower=0.0, upper=1.0, initial=1 / len(regions)
            )
            for k, i in enumerate(regions):
                value[i] = z.symbol[k]
            equations = Rows.of(
                *((f"indicators[{title}]", g[i] - g[first]) for i in others), ("simplex", ca.sum1(z.symbol) - 1)
            )
        else:
            value[first] = 1.0
        away = Rows.of(*((f"indicators[{title}]", g[i] - g[first]) for i in range(part.count) if i not in regions))
        return z, equations, away, value, [float(i in regions) for i in range(part.count)]

    def start(self, mode: Mode) -> tuple[Rows, Rows]:
        """Return the conditions of an initial state: on the surfaces of sliding, on the right side of the others."""
        dae = self.equations(mode)
        # Rows of multipliers ("simplex", "algebraic") say nothing of the state: they are left out.
        known, sides = ("surface[", "indicators["), ("side[", "indicators[", "guard[")
        held = [(label, row) for label, row in _each(dae.equations) if label.startswith(known)]
        away = [(label, row) for label, row in _each(dae.inequalities) if label.startswith(sides)]
        return Rows.of(*held), Rows.of(*away)

    def changes(self, before: Mode, after: Mode) -> list[tuple[str, Kind]]:
        """Return the surfaces that are crossed, reached for sliding, or left, and the constraints that begin or end."""
        events: list[tuple[str, Kind]] = []
        for name, was, is_ in zip(self.names, before, after, strict=True):
            if name in self.jumps:
                continue
            part, _ = self._where[name]
            if part.kind == FORCE:
                events.append((name, of_modes((was == ACTIVE, is_ == ACTIVE), (False, False))))
            elif was != is_:
                events.append((name, of_sides(self._side(part, was), self._side(part, is_))))
        return events

    def _side(self, part: MultiplierGroup, word: str) -> float:
        """Return a number for the side of a surface, NaN on it."""
        if _signed(part):
            return {ABOVE: 1.0, HIGH: 1.0, BELOW: -1.0, LOW: -1.0}.get(word, np.nan)
        regions = self.regions(word)
        # Only equality of sides matters to `of_sides`; NaN is equal to none.
        return float(regions[0]) if len(regions) == 1 else np.nan

    def mode_at(self, x: np.ndarray, p: np.ndarray) -> Mode:
        """Return the mode of a state (n_x,), which slides on every surface that it lies on."""
        return self._modes(x[None], {}, p)

    def modes_of(self, segments: list[MotionSegment], p: np.ndarray) -> list[Mode]:
        """Return the modes of the segments of a motion, by its events and, where these are silent, by its states."""
        on: dict[str, list[bool | None]] = {}
        for name in self._where:
            if self._where[name][0].kind == MEMORY:
                on[name] = self._is_high(name, segments, p)
                continue
            kinds = (("contact",), ("release",)) if self._where[name][0].kind == FORCE else SLIDING
            on[name] = active_in_segments(segments, name, *kinds)
        return [
            self._modes(segment.states, {name: known[k] for name, known in on.items()}, p)
            for k, segment in enumerate(segments)
        ]

    def _is_high(self, name: str, segments: list[MotionSegment], p: np.ndarray) -> list[bool | None]:
        """Return for every segment if a switch with hysteresis is high: each of its events toggles the first value.

        Between its thresholds the state alone does not determine the switch.
        """
        # The first value is that after the events of the first segment, which therefore do not toggle it (`k` below).
        high, values = self.mode_at(segments[0].after, p)[self.names.index(name)] == HIGH, list[bool | None]()
        for k, segment in enumerate(segments):
            passed = sum(event.name == name and event.kind == "switch" for event in segment.events)
            high = high != bool(passed % 2 and k)
            values.append(high)
        return values

    def _modes(self, states: np.ndarray, on: Mapping[str, bool | None], p: np.ndarray) -> Mode:
        """Return the mode at states (m, n_x); `on` is True or False if events decide that it slides, None otherwise."""
        modes = []
        for name, (part, j) in self._where.items():
            values, known = self._values(part)(states.T, np.repeat(p[:, None], len(states), axis=1)), on.get(name)
            c = np.array(values).T
            # Beyond its thresholds a switch is determined by the state; between them by its initial value.
            if part.kind == MEMORY:
                high = part.high[j] if abs(c[0, j]) < 1.0 else bool(c[0, j] > 0.0)
                modes.append(HIGH if (high if known is None else known) else LOW)
                continue
            # The largest value in the segment is a scale of the function; a segment on the surface has none, hence the
            # typical size.
            size = ON_SURFACE * max(self.sizes.get(name, 1.0), float(np.abs(c).max()))
            if part.kind == REGION and not _signed(part):
                above = (c - c.min(axis=1)[:, None]).max(axis=0)
                close = above <= size
                # Events say that it slides: at least the two smallest indicators belong to it.
                if known and close.sum() < 2:
                    close[np.argsort(above)[:2]] = True
                modes.append(TOGETHER.join(str(i) for i in np.flatnonzero(close)))
                continue
            held = bool(np.abs(c[:, j]).max() <= size) if known is None else known
            # The middle sample: at the ends of a segment the function is zero.
            side = ABOVE if c[len(c) // 2, j] > 0.0 else BELOW
            modes.append((ACTIVE if held else FREE) if part.kind == FORCE else ON if held else side)
        return (*modes, *(WAITING for _ in self.jumps))

    def _values(self, part: MultiplierGroup) -> ca.Function:
        functions = part.modes.functions if part.modes is not None and _signed(part) else part.functions
        return ca.Function("functions", [self.system.x, self.system.p], [functions])

    def kinks(self, motion: Any, p: np.ndarray) -> list[Any]:
        """Return no events: all changes of mode are events of the motion."""
        return []

    def impact_modes(self, names: Sequence[str], after: np.ndarray, p: np.ndarray) -> dict[str, str]:
        """Return the jumps among the events of an instant."""
        return dict.fromkeys((name for name in names if name in self.jumps), JUMPS)

    def impacts_between(
        self, before: np.ndarray, after: np.ndarray, impulses: np.ndarray, p: np.ndarray
    ) -> list[ImpactData]:
        """Return the jump between two states whose guard and reset fit best."""
        s, found = self.system, list[tuple[float, ImpactData]]()
        if np.array_equal(before, after):
            return []
        for name, jump in self.jumps.items():
            rate = ca.jtimes(jump.guard, s.x, self.flow)
            known = not ca.depends_on(rate, s.u)
            impulse = ca.SX(np.nan) if jump.impulse is None else jump.impulse
            values = function_of([s.x, s.u, s.p], ca.vertcat(jump.guard, impulse, rate, jump.reset))
            guard, number, speed, *reset = np.asarray(values(before, 0.0, p)).reshape(-1)
            later = float(np.asarray(values(after, 0.0, p)).reshape(-1)[2])
            data = (None if np.isnan(number) else float(number), *((speed, later) if known else (None, None)))
            found.append((abs(guard) + float(np.abs(reset - after).max()), (name, "impact", *data, None)))
        return [min(found, key=lambda pair: pair[0])[1]] if found else []

    def onset(self, before: Mode, after: Mode) -> Rows:
        """Return no conditions: a mode of a differential inclusion begins wherever it can go on."""
        return Rows()

    def boundary(self, before: Mode, impacts: Mapping[str, str], after: Mode) -> Boundary:
        """Return the guards: surfaces that are crossed or reached are zero there, while the state is continuous."""
        return self._boundaries(before, tuple(impacts.items()), after)

    def _boundary(self, before: Mode, impacting_names: tuple[tuple[str, str], ...], after: Mode) -> Boundary:
        impacts = dict(impacting_names)
        if impacts:
            return self._jump(impacts)
        rows = []
        for name, was, is_ in zip(self.names, before, after, strict=True):
            if name in self.jumps:
                continue
            part, j = self._where[name]
            if was == is_:
                continue
            if part.kind == REGION and not _signed(part):
                # A region joins where its indicator becomes as small as that of an active one; one that leaves needs no
                # guard.
                old, new = self.regions(was), self.regions(is_)
                rows += [
                    (f"indicators[{name}]", part.functions[i] - part.functions[old[0]]) for i in new if i not in old
                ]
            elif part.kind == MEMORY:
                rows.append((f"surface[{name}]", part.functions - (1 if is_ == HIGH else -1)))
            # A mode that leaves a surface needs no guard: it was on the surface until there.
            elif was not in (ON, ACTIVE):
                functions = part.modes.functions if part.modes is not None else part.functions
                rows.append((f"surface[{name}]", functions[j]))
        return Boundary(
            y=Unknowns(),
            equations=Rows.of(*rows),
            inequalities=Rows(),
            after=tuple((False, i) for i in range(int(self.system.x.numel()))),
            beginning=Rows(),
            shown=ca.SX(0, 1),
        )

    def _jump(self, impacts: Mapping[str, str]) -> Boundary:
        """Return the boundary with a jump: its guard, which falls, and its reset."""
        s, names = self.system, [name for name in impacts if name in self.jumps]
        if len(names) != 1:
            raise ModelError(
                f"Sequence: expected one jump at an instant, given {', '.join(impacts)}: resets at one time have no "
                "defined order; put a phase {} between them."
            )
        jump = self.jumps[names[0]]
        rate = ca.jtimes(jump.guard, s.x, self.flow)
        # A boundary has no control, so that the condition is left out where the rate depends on it.
        falls = [] if ca.depends_on(rate, s.u) else [(f"approach[{jump.name}]", -rate)]
        # A reset may change any component: all of them are unknowns after the jump.
        later = Unknowns.create("after", [f"{name}(+)" for name in s.state_names], scale=np.asarray(s.x_nominal))
        return Boundary(
            y=later,
            equations=Rows.of((f"guard[{jump.name}]", jump.guard), ("reset", later.symbol - jump.reset)),
            inequalities=Rows.of(*falls),
            after=tuple((True, i) for i in range(later.size)),
            beginning=Rows(),
            shown=ca.SX(0, 1),
        )


def _each(rows: Rows) -> list[tuple[str, ca.SX]]:
    return list(zip(rows.labels, ca.vertsplit(rows.expression) if rows.size else [], strict=True))


def _signed(part: MultiplierGroup) -> bool:
    """True if the modes of a group are signs of functions, not regions by indicators."""
    return part.kind != REGION or (part.modes is not None and part.modes.functions is not None)


def _entries(part: MultiplierGroup) -> list[tuple[str, MultiplierGroup, int]]:
    """Return name, group and position of everything in a group that has a mode."""
    if part.kind == REGION and part.modes is not None:
        names = part.modes.function_names if _signed(part) else (part.modes.name,)
    else:
        names = part.names
    return [(name, part, j) for j, name in enumerate(names or ())]


def _products(signs: Any, alpha: ca.SX, known: dict[int, float]) -> tuple[ca.SX, list[float]]:
    """Return weights of regions as products of step functions, and 1 for those that may be positive (else 0)."""
    theta, positive = [], []
    for row in np.asarray(signs):
        weight = ca.SX(1)
        for j, sign in enumerate(row):
            weight *= alpha[j] if sign > 0 else 1 - alpha[j]
        theta.append(weight)
        # A region that contradicts a sign has weight zero in this mode.
        positive.append(float(all(row[j] == sign for j, sign in known.items())))
    return ca.vertcat(*theta), positive
