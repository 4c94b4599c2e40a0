"""Predicting a simulation step: which pairs are closed in which element, what hits at which node, and when.

A prediction is an iterate w good enough that the active set can be read off it; Newton's method on that active set
then gives the step, or shows by the first violated inequality which event was missed. Nothing of it is believed: a
step is accepted on the residuals of the unrelaxed problem only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import casadi as ca
import numpy as np

from nosnoc_py.discretization.guess import boundary_estimate, boundary_rows
from nosnoc_py.discretization.readout import Readout
from nosnoc_py.reformulation.dcs import DCS
from nosnoc_py.solution import RungeKuttaInterpolant
from nosnoc_py.transcription import Transcription

# A side a below this touches, slower rates stand still, and a violation has to be deeper.
TOUCHING = 1e-8
# Several gaps that vanish within this at one event vanish together.
TOGETHER = 1e-7
# A body that leaves a contact slower than this may as well rest on it [m/s].
RESTING = 1e-3
# Deeper than this between the stages is a missed event, not an error of the discretisation (in units of the gap).
PENETRATION = 1e-6
SAMPLES = 12


@dataclass(frozen=True, eq=False)
class Pattern:
    """What is thought to happen in a step of E elements.

    Attributes
    ----------
    s : (E,)
        Relative lengths of the elements; their sum is E.
    hits : (E, n_impacts)
        Impacts at the left boundary of the element.
    closed : (E, n_pairs)
        Side a of the pair is zero throughout the element.
    """

    s: np.ndarray
    hits: np.ndarray
    closed: np.ndarray


@dataclass(frozen=True, eq=False)
class Violation:
    """The first violated inequality of a trial step: time since its start, pairs concerned, state there, depth."""

    time: float
    pairs: np.ndarray
    x: np.ndarray
    opens: bool
    depth: float


class Predictor:
    """Makes patterns for a simulation step, and iterates from patterns; built once."""

    def __init__(self, problem: Transcription) -> None:
        dcs = problem.dcs
        self._problem, self._mpcc, self._c = problem, problem.mpcc, problem.tableau.c
        self.count = len(problem.elements)
        initial = [np.broadcast_to(np.asarray(v.initial, float), (len(v.components),)) for v in dcs.variables]
        z = ca.DM(np.concatenate([np.zeros(0), *initial]))
        flow = ca.Function("flow", [dcs.x, dcs.z, dcs.u, dcs.p], [dcs.flow])
        self._move = _runge_kutta(flow, dcs.x.numel(), z, dcs.u, dcs.p)
        sides = ca.vertcat(ca.SX(0, 1), *[pair.a for pair in dcs.pairs])
        self._gaps = ca.Function("gaps", [dcs.x, dcs.p], [sides])
        self._samples = self._gaps.map(SAMPLES)
        rates = ca.jacobian(sides, dcs.x) @ flow(dcs.x, z, dcs.u, dcs.p)
        self._rates = ca.Function("rates", [dcs.x, dcs.u, dcs.p], [rates])
        self._estimate, self._rows = boundary_estimate(dcs), boundary_rows(dcs)
        self._x_plus = None
        if dcs.jump is not None:
            j = dcs.jump
            self._x_plus = ca.Function("x_plus", [j.x_minus, j.symbol, dcs.p], [ca.substitute(j.x_plus, j.h, 0)])
        self._impact_pairs = _impact_pairs(dcs)

    def start(self, x: np.ndarray, u: np.ndarray, p: np.ndarray, closed_before: np.ndarray | None) -> Pattern:
        """The pattern in which nothing happens inside the step, from what is closed at its start."""
        gaps, rates = self._values(x, u, p)
        closed_before = np.zeros(gaps.size, bool) if closed_before is None else closed_before
        approaching = (gaps <= TOUCHING) & (rates < -TOUCHING) & ~closed_before
        hits = np.zeros((self.count, self._impact_pairs.size), bool)
        hits[0] = approaching[self._impact_pairs]
        gaps, rates = self._values(self._after(x, p, hits[0]), u, p)
        closed = (gaps <= TOUCHING) & (rates <= TOUCHING) | closed_before & (gaps <= 1e-6)
        return Pattern(np.ones(self.count), hits, np.tile(closed, (self.count, 1)))

    def iterate(self, pattern: Pattern, values: np.ndarray) -> np.ndarray:
        """Return w of a pattern: free motion by explicit integration where nothing is closed, else a standstill."""
        layout, parameters = self._mpcc.variables, self._mpcc.parameters
        x, u, p = (values[parameters[name]] for name in ("x0", "u", "p"))
        lengths = pattern.s * float(values[parameters["horizon"]][0]) / self.count
        w = self._mpcc.w0.copy()
        for n, h in enumerate(lengths):
            w[layout["s", 0, n]] = pattern.s[n]
            boundary = self._estimate(x, p, pattern.hits[n])
            for name, rows in self._rows.items() if (n > 0 or self._problem.method.initial_impulse) else ():
                w[layout[name, 0, n]] = boundary[rows]
            left = self._after(x, p, pattern.hits[n])
            free = not pattern.closed[n].any()
            for j, c in enumerate(self._c):
                w[layout["x", 0, n, j]] = self._moved(left, c * h, u, p) if free else left
            x = self._moved(left, h, u, p) if free else left
            if "x_right" in layout.names:
                w[layout["x_right", 0, n]] = x
            self._close(w, n, pattern.closed[n])
        return w

    def next_events(
        self, pattern: Pattern, violation: Violation, r: Readout, u: np.ndarray, p: np.ndarray, node: int
    ) -> Iterator[Pattern]:
        """Patterns with the violation's event at `node`; the elements after it carry on as if nothing else happened.

        A pair that was open hits, and is tried closed or open afterwards, the likelier first; a closed pair whose side
        b got negative opens.
        """
        before = r.h[: node - 1].sum()
        h_0 = r.h.sum() / self.count
        first = max((violation.time - before) / h_0, 1e-4)
        rest = max((r.h.sum() - before) / h_0 - first, 1e-4)
        s = np.concatenate([pattern.s[: node - 1], [first], np.full(self.count - node, rest / (self.count - node))])
        hits = pattern.hits.copy()
        hits[node] = violation.pairs[self._impact_pairs] & (not violation.opens)
        rates = self._values(self._after(violation.x, p, hits[node]), u, p)[1]
        rebound = bool((rates[violation.pairs] > 1e-6).any())
        for closes in (False,) if violation.opens else (not rebound, rebound):
            closed = pattern.closed.copy()
            closed[node:, violation.pairs] = closes
            yield replace(pattern, s=s, hits=hits, closed=closed)

    def violation(self, pattern: Pattern, r: Readout, p: np.ndarray, first: int) -> Violation | None:
        """The first violated inequality on the polynomials of the elements from `first` on, if there is one."""
        left = np.concatenate([[0.0], np.cumsum(r.h)[:-1]])
        polynomial = RungeKuttaInterpolant(t_left=left, h=r.h, c=self._c, x_left=r.x_left, x_stages=r.x_stages)
        for e in range(first, self.count):
            times = left[e] + r.h[e] * np.linspace(0.0, 1.0, SAMPLES + 1)
            gaps = np.asarray(self._samples(polynomial(times[1:], "-").T, p).full())
            low = np.where(pattern.closed[e][:, None], r.b_lowest[e][:, None], gaps)
            bad = np.flatnonzero(low.min(axis=0, initial=0.0) < -TOUCHING)
            if bad.size:
                k = int(bad[0])
                pair = int(np.argmin(low[:, k]))
                opens = bool(pattern.closed[e, pair])
                found = self._locate(polynomial, times[k], times[k + 1], pair, p, opens, pattern.closed[e])
                return replace(found, depth=float(-low.min()))
        return None

    def catches(self, closed_before: np.ndarray | None, r: Readout, u: np.ndarray, p: np.ndarray) -> bool:
        """Whether a contact that was open closes although its bodies move: a force caught them, not an impact.

        A very short element can carry a finite impulse by a huge force and so evade the restitution law, with
        residuals of 1e-16. Slower than `RESTING` a body that bounces on may as well be at rest (the end of a Zeno
        sequence).
        """
        if not self._problem.method.switch_detection:
            return False  # with fixed steps a force is all that can catch a body
        before = np.zeros(r.closed.shape[1], bool) if closed_before is None else closed_before
        for e in range(self.count):
            closed = r.closed[e].astype(bool)
            rates = self._values(r.x_left[e], u, p)[1]
            if (closed & ~before & (np.abs(rates) > RESTING)).any():
                return True
            before = closed
        return False

    def penetrates(self, r: Readout, p: np.ndarray) -> bool:
        """Whether bodies pass through each other between the stages, where the discretisation does not look.

        Samples every element; what is narrower than a twelfth of an element may escape.
        """
        if not self._problem.method.switch_detection:
            return False
        closed = r.closed.astype(bool)
        none = np.zeros((self.count, self._impact_pairs.size), bool)
        found = self.violation(Pattern(np.ones(self.count), none, closed), r, p, 0)
        return found is not None and not found.opens and found.depth > PENETRATION

    def _locate(
        self,
        polynomial: RungeKuttaInterpolant,
        low: float,
        high: float,
        pair: int,
        p: np.ndarray,
        opens: bool,
        closed: np.ndarray,
    ) -> Violation:
        """Bisect for the zero of a gap between two samples; a pair that opens gets the middle."""
        for _ in range(0 if opens else 50):
            middle = 0.5 * (low + high)
            if self._gap(polynomial(middle, "-"), p)[pair] < 0:
                high = middle
            else:
                low = middle
        time = 0.5 * (low + high)
        x = polynomial(time, "-")
        pairs = np.zeros(closed.size, bool) if opens else (np.abs(self._gap(x, p)) <= TOGETHER) & ~closed
        pairs[pair] = True
        return Violation(float(time), pairs, x, opens, 0.0)

    def _gap(self, x: np.ndarray, p: np.ndarray) -> np.ndarray:
        return np.asarray(self._gaps(x, p)).reshape(-1)

    def _values(self, x: np.ndarray, u: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._gap(x, p), np.asarray(self._rates(x, u, p)).reshape(-1)

    def _after(self, x: np.ndarray, p: np.ndarray, hits: np.ndarray) -> np.ndarray:
        """The state after a node."""
        if self._x_plus is None:
            return x
        return np.asarray(self._x_plus(x, self._estimate(x, p, hits), p)).reshape(-1)

    def _moved(self, x: np.ndarray, h: float, u: np.ndarray, p: np.ndarray) -> np.ndarray:
        return np.asarray(self._move(x, h, u, p)).reshape(-1)

    def _close(self, w: np.ndarray, n: int, closed: np.ndarray) -> None:
        """Set side b of closed pairs to one, where it is a variable: the active set is read off this."""
        b = np.concatenate([self._problem.elements[n].rows[pair.name].b.T for pair in self._problem.dcs.pairs])
        variables = self._mpcc.H_variable[b[closed]]
        w[variables[variables >= 0]] = 1.0


def _impact_pairs(dcs: DCS) -> np.ndarray:
    """Position of every impact's pair among the components of all pairs."""
    names = [(pair.name, name) for pair in dcs.pairs for name in (pair.components or pair.a_labels)]
    impacts = dcs.jump.impacts if dcs.jump is not None else ()
    return np.array([names.index((impact.pair, impact.name)) for impact in impacts], dtype=int)


def _runge_kutta(flow: ca.Function, n_x: int, z: ca.DM, u: ca.SX, p: ca.SX) -> ca.Function:
    """One step of the classical Runge-Kutta method with fixed algebraic variables."""
    x, h = ca.SX.sym("x", n_x), ca.SX.sym("h")
    k_1 = flow(x, z, u, p)
    k_2 = flow(x + h / 2 * k_1, z, u, p)
    k_3 = flow(x + h / 2 * k_2, z, u, p)
    k_4 = flow(x + h * k_3, z, u, p)
    return ca.Function("move", [x, h, u, p], [x + h / 6 * (k_1 + 2 * k_2 + 2 * k_3 + k_4)])
