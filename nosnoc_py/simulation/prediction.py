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

from nosnoc_py.discretization.guess import boundary_values
from nosnoc_py.discretization.readout import Readout
from nosnoc_py.solution import RungeKuttaInterpolant
from nosnoc_py.transcription import Transcription

CLOSED = 1e-8
SAMPLES = 12


@dataclass(frozen=True, eq=False)
class Pattern:
    """What is thought to happen in a step of E elements.

    Attributes
    ----------
    s : (E,)
        Relative lengths of the elements; their sum is E.
    hits : (E,)
        A jump at the left boundary of the element.
    closed : (E, n_pairs)
        Side a of the pair is zero throughout the element.
    """

    s: np.ndarray
    hits: np.ndarray
    closed: np.ndarray


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
        a = ca.vertcat(ca.SX(0, 1), *[pair.a for pair in dcs.pairs])
        self._gaps = ca.Function("gaps", [dcs.x, dcs.p], [a])
        rate = ca.jacobian(a, dcs.x) @ flow(dcs.x, z, dcs.u, dcs.p)
        self._rates = ca.Function("rates", [dcs.x, dcs.u, dcs.p], [rate])
        self._boundary = {which: boundary_values(dcs, which) for which in ("rest", "estimate")}
        self._x_plus = None
        self._offsets: dict[str, slice] = {}
        if dcs.jump is not None:
            j = dcs.jump
            self._x_plus = ca.Function("x_plus", [j.x_minus, j.symbol, dcs.p], [ca.substitute(j.x_plus, j.h, 0)])
            start = 0
            for variable in j.variables:
                self._offsets[variable.name] = slice(start, start + len(variable.components))
                start += len(variable.components)

    def start(self, x: np.ndarray, u: np.ndarray, p: np.ndarray, closed_before: np.ndarray | None) -> Pattern:
        """The pattern in which nothing happens inside the step, from what is closed at its start."""
        gaps, rates = self._values(x, u, p)
        touching = gaps <= CLOSED
        hit = bool((touching & (rates < -CLOSED)).any()) and closed_before is None
        if closed_before is not None:
            approaching = touching & ~closed_before & (rates < -CLOSED)
            hit = bool(approaching.any())
        if hit:
            x = self._after(x, p, hit=True)
            gaps, rates = self._values(x, u, p)
        closed = (gaps <= CLOSED) & (rates <= CLOSED)
        if closed_before is not None:
            closed |= closed_before & (gaps <= 1e-6)
        hits = np.zeros(self.count, bool)
        hits[0] = hit
        return Pattern(np.ones(self.count), hits, np.tile(closed, (self.count, 1)))

    def _values(self, x: np.ndarray, u: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(self._gaps(x, p)).reshape(-1), np.asarray(self._rates(x, u, p)).reshape(-1)

    def _after(self, x: np.ndarray, p: np.ndarray, *, hit: bool) -> np.ndarray:
        if self._x_plus is None:
            return x
        return np.asarray(self._x_plus(x, self._boundary["estimate" if hit else "rest"](x, p), p)).reshape(-1)

    def iterate(self, pattern: Pattern, values: np.ndarray) -> np.ndarray:
        """Return w of a pattern: free motion by explicit integration where nothing is closed, else a standstill."""
        layout, parameters = self._mpcc.variables, self._mpcc.parameters
        x, u, p = (values[parameters[name]] for name in ("x0", "u", "p"))
        lengths = pattern.s * float(values[parameters["horizon"]][0]) / self.count
        w = self._mpcc.w0.copy()
        for n, h in enumerate(lengths):
            w[layout["s", 0, n]] = pattern.s[n]
            boundary = self._boundary["estimate" if pattern.hits[n] else "rest"](x, p)
            for name, rows in self._offsets.items() if (n > 0 or self._problem.method.initial_impulse) else ():
                w[layout[name, 0, n]] = boundary[rows]
            left = self._after(x, p, hit=bool(pattern.hits[n]))
            free = not pattern.closed[n].any()
            for j, c in enumerate(self._c):
                w[layout["x", 0, n, j]] = self._moved(left, c * h, u, p) if free else left
            x = self._moved(left, h, u, p) if free else left
            if "x_right" in layout.names:
                w[layout["x_right", 0, n]] = x
            self._close(w, n, pattern.closed[n])
        return w

    def _moved(self, x: np.ndarray, h: float, u: np.ndarray, p: np.ndarray) -> np.ndarray:
        return np.asarray(self._move(x, h, u, p)).reshape(-1)

    def _close(self, w: np.ndarray, n: int, closed: np.ndarray) -> None:
        """Side b of a closed pair is set to one, where it is a variable: the active set is read off this."""
        start = 0
        for pair in self._problem.dcs.pairs:
            b = self._problem.elements[n].rows[pair.name].b
            for i in range(b.shape[1]):
                variables = self._mpcc.H_variable[b[:, i]]
                if closed[start + i]:
                    w[variables[variables >= 0]] = 1.0
            start += b.shape[1]

    def next_events(self, pattern: Pattern, r: Readout, u: np.ndarray, p: np.ndarray, node: int) -> Iterator[Pattern]:
        """Patterns with one event more, at `node`: the earliest inequality that a trial step violates.

        The trial step's elements from `node` - 1 on carry on as if nothing happened; a pair that was open and gets
        negative hits there, and is tried closed and open afterwards; a pair whose side b gets negative opens.
        """
        found = self._first_violation(pattern, r, p, node - 1)
        if found is None:
            return
        time, pair, x = found
        h_0 = r.h.sum() / self.count
        before = r.h[: node - 1].sum()
        first = min(max((time - before) / h_0, 1e-4), 2.0 * self.count)
        rest = (r.h.sum() - before) / h_0 - first
        s = np.concatenate([pattern.s[: node - 1], [first], np.full(self.count - node, rest / (self.count - node))])
        was_closed = bool(pattern.closed[node - 1, pair])
        hits = pattern.hits.copy()
        hits[node] = not was_closed
        after = self._after(x, p, hit=not was_closed)
        rebounds = self._values(after, u, p)[1][pair] > 1e-6
        for now_closed in (False,) if was_closed else (not rebounds, bool(rebounds)):
            closed = pattern.closed.copy()
            closed[node:, pair] = now_closed
            yield replace(pattern, s=s, hits=hits, closed=closed)

    def _first_violation(
        self, pattern: Pattern, r: Readout, p: np.ndarray, first: int
    ) -> tuple[float, int, np.ndarray] | None:
        """(time since the start of the step, pair, state there) of the first violated inequality."""
        left = np.concatenate([[0.0], np.cumsum(r.h)[:-1]])
        polynomial = RungeKuttaInterpolant(t_left=left, h=r.h, c=self._c, x_left=r.x_left, x_stages=r.x_stages)
        for e in range(first, self.count):
            times = left[e] + r.h[e] * np.linspace(0.0, 1.0, SAMPLES + 1)[1:]
            states = polynomial(times, "-")
            gaps = np.asarray(self._gaps.map(SAMPLES)(states.T, p).full())
            b = self._sides(r, e)
            for k in range(SAMPLES):
                low = np.where(pattern.closed[e], b, gaps[:, k])
                if low.min(initial=0.0) < -CLOSED:
                    pair = int(np.argmin(low))
                    return self._refine(polynomial, times, k, pair, p, bool(pattern.closed[e, pair]))
        return None

    def _sides(self, r: Readout, e: int) -> np.ndarray:
        """Smallest b of every pair at the stages of an element."""
        return np.asarray(r.b_lowest[e])

    def _refine(
        self, polynomial: RungeKuttaInterpolant, times: np.ndarray, k: int, pair: int, p: np.ndarray, closed: bool
    ) -> tuple[float, int, np.ndarray]:
        """Bisect for the zero of a gap between two samples; an opening pair gets the middle of its element."""
        low, high = (times[0] - (times[1] - times[0]) if k == 0 else times[k - 1]), times[k]
        if not closed:
            for _ in range(40):
                middle = 0.5 * (low + high)
                if np.asarray(self._gaps(polynomial(middle), p)).reshape(-1)[pair] < 0:
                    high = middle
                else:
                    low = middle
        time = 0.5 * (low + high)
        return float(time), pair, polynomial(time, "-")


def _runge_kutta(flow: ca.Function, n_x: int, z: ca.DM, u: ca.SX, p: ca.SX) -> ca.Function:
    """One step of the classical Runge-Kutta method with fixed algebraic variables."""
    x, h = ca.SX.sym("x", n_x), ca.SX.sym("h")
    k_1 = flow(x, z, u, p)
    k_2 = flow(x + h / 2 * k_1, z, u, p)
    k_3 = flow(x + h / 2 * k_2, z, u, p)
    k_4 = flow(x + h * k_3, z, u, p)
    return ca.Function("move", [x, h, u, p], [x + h / 6 * (k_1 + 2 * k_2 + 2 * k_3 + k_4)])
