"""Checks of a step that residuals do not show.

Bodies held by a force while moving, and events missed between stages.
"""

from __future__ import annotations

import casadi as ca
import numpy as np

from nosnoc_py.audit import guards
from nosnoc_py.audit.records import Measured
from nosnoc_py.discretization.readout import Readout, dense_output, sides_of
from nosnoc_py.solution.violation import Law, Violation
from nosnoc_py.tolerances import BADLY_SCALED, REST_VELOCITY, TOUCHING_SOLVED
from nosnoc_py.transcription import Transcription

SAMPLES = 12
# Allowed amount and relative size of each violation. A body that leaves a contact slowly may as well rest on it. A
# larger depth between the stages, or a sign that differs by such a share, is a missed event and no error of
# discretisation.
ALLOWED = {
    Law.CATCH: (REST_VELOCITY, 0.0),
    Law.GAPS: (TOUCHING_SOLVED, 0.0),
    Law.CROSSING: (TOUCHING_SOLVED, BADLY_SCALED),
}


class Checks:
    """Checks of the sides of pairs that are functions of the state, between the stages (built once per program)."""

    def __init__(self, problem: Transcription) -> None:
        dcs = problem.dcs
        pairs = [pair for pair in dcs.pairs if pair.left is None and pair.cross != "none" and pair.events is not None]
        names = [(pair.name, i) for pair in dcs.pairs for i in range(pair.a.numel())]
        self._columns = [names.index((pair.name, i)) for pair in pairs for i in range(pair.a.numel())]
        self._names = tuple(name for pair in pairs for name in (pair.components or pair.a_labels))
        self._jumps = dcs.jump is not None
        self._tableau, self._active = problem.tableau, problem.fesd.switch_detection
        sides = ca.vertcat(ca.SX(0, 1), *[pair.a for pair in pairs])
        self._gaps = ca.Function("gaps", [dcs.x, dcs.p], [sides])
        # The flow of positions does not depend on forces: rates of gaps are free of them.
        rates = ca.jacobian(sides, dcs.x) @ ca.substitute(dcs.flow, dcs.z, ca.SX.zeros(dcs.z.numel()))
        self._rates = ca.Function("rates", [dcs.x, dcs.u, dcs.p], [rates])
        self._dcs = dcs
        functions = [ca.SX(0, 1), *[s.function for s in dcs.switches if s.function is not None]]
        self._functions = ca.Function("functions", [dcs.x, dcs.p], [ca.vertcat(*functions)])

    def closed(self, r: Readout) -> np.ndarray:
        """Return which of the checked pairs are closed (E, pairs)."""
        return r.closed[:, self._columns].astype(bool)

    def violations(self, before: np.ndarray | None, r: Readout, u: np.ndarray, p: np.ndarray) -> list[Violation]:
        """Return reasons why a step that satisfies all equations is no motion.

        `before` (pairs,) marks the pairs that were closed before the step.
        """
        if not self._active:
            return []  # with fixed steps a force is all that can catch a body, and events lie anywhere
        checks = [*self.catches(before, r, u, p), *self.penetrations(r, p), *self.crossings(r, p)]
        all_violations = [
            violation for measured in checks for column in measured.columns() for violation in column.above(0.0)
        ]
        return [
            one for one in all_violations if not (one.amount <= ALLOWED[one.law][0] or one.share <= ALLOWED[one.law][1])
        ]

    def catches(self, before: np.ndarray | None, r: Readout, u: np.ndarray, p: np.ndarray) -> list[Measured]:
        """Return contacts that close although their bodies move towards each other: without an impact nothing can do
        that.
        """
        if not self._jumps:
            return []
        closed = self.closed(r)
        earlier = np.vstack([np.zeros_like(closed[:1]) if before is None else before[None], closed[:-1]])
        rates = np.asarray(self._rates(r.x_left.T, u, p)).T
        return [guards.catches(self._names, _starts(r), closed, earlier, rates)]

    def penetrations(self, r: Readout, p: np.ndarray) -> list[Measured]:
        """Return penetrations between the stages, from samples of each element.

        Penetrations shorter than a twelfth of an element may be missed.
        """
        gaps = self._between(self._gaps, r, p)
        return [guards.depths(Law.GAPS, self._names, _starts(r), gaps, watched=~self.closed(r))]

    def crossings(self, r: Readout, p: np.ndarray) -> list[Measured]:
        """Return switching functions that change their sign between the stages of an element on one side."""
        switches = [s for s in self._dcs.switches if s.function is not None]
        if not switches:
            return []
        every = zip(self._dcs.switches, sides_of(self._dcs, r), strict=True)
        side = np.array([side for switch, side in every if switch.function is not None]).T
        at_stages = np.asarray(self._functions(r.x_stages.reshape(-1, r.x_stages.shape[-1]).T, p)).T
        size = np.abs(at_stages.reshape(*r.x_stages.shape[:2], -1)).max(axis=1)
        values = np.nan_to_num(side)[:, None] * self._between(self._functions, r, p)
        # A function that is zero at all stages is zero in between, up to the error of the discretisation.
        watched = np.isfinite(side) & (size > TOUCHING_SOLVED)
        names = tuple(switch.name for switch in switches)
        return [guards.depths(Law.CROSSING, names, _starts(r), values, watched=watched, sizes=size)]

    def _between(self, function: ca.Function, r: Readout, p: np.ndarray) -> np.ndarray:
        """Return values of a function of the state at samples of each element (E, SAMPLES, size)."""
        left = np.concatenate([[0.0], np.cumsum(r.h)[:-1]])
        polynomial = dense_output(self._tableau, r, left)
        times = (left[:, None] + r.h[:, None] * np.linspace(0.0, 1.0, SAMPLES + 1)[1:]).reshape(-1)
        return np.asarray(function(polynomial(times, "-").T, p)).T.reshape(len(r.h), SAMPLES, -1)


def _starts(r: Readout) -> np.ndarray:
    """Return the start times of the elements from the start of the step [s]."""
    return np.asarray(np.cumsum(r.h) - r.h)
