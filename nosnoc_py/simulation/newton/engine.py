"""One step of finite elements by Newton's method in guessed modes, its events located at boundaries of elements.

The equations are those of the finite elements without any relaxation. In known modes they are smooth and square; the
modes are those that hold at the left node, and the first violated inequality on the collocation polynomials is the next
event, whose equation then decides the length of the elements before it. The engine knows modes, masks and guards; what
they mean is in `contact_modes` and `filippov_modes`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nosnoc_py.discretization.readout import ElementStates
from nosnoc_py.simulation.newton.collocation import Collocation
from nosnoc_py.simulation.newton.event_walk import EventWalk, Modes, WalkOutcome
from nosnoc_py.simulation.newton.modes import ElementNode, Mode, Trouble
from nosnoc_py.tableaus import Tableau


@dataclass(frozen=True, eq=False, kw_only=True)
class Hint:
    """How a step ended, from where the next one may just go on: its end, its data, modes and algebraic unknowns."""

    x: np.ndarray
    u: np.ndarray
    p: np.ndarray
    modes: Mode
    y: np.ndarray

    def is_at(self, x: np.ndarray) -> bool:
        """Whether a step begins where this one ended."""
        return bool((self.x == x).all())

    def is_under(self, u: np.ndarray, p: np.ndarray) -> bool:
        """Whether a step has the same forces."""
        return bool((not u.size or (self.u == u).all()) and (not p.size or (self.p == p).all()))


@dataclass(frozen=True, eq=False, kw_only=True)
class Elements(ElementStates):
    """One step in numbers; E elements (fewer when it failed), n_s stages.

    Attributes
    ----------
    y_stages : (E, n_s, n_y)
    jump : (E, n_jump)
        Impulses at the left boundary.
    modes : tuple of Mode
        One per element.
    trouble, message, place
        Why the step failed, and where in the system; None and "" when it did not.
    """

    y_stages: np.ndarray
    jump: np.ndarray
    modes: tuple[Mode, ...]
    trouble: Trouble | None = None
    message: str = ""
    place: str = ""

    def hint(self, u: np.ndarray, p: np.ndarray) -> Hint:
        """For the next step."""
        return Hint(x=self.x_right[-1], u=u, p=p, modes=self.modes[-1], y=self.y_stages[-1, -1])


class Engine:
    """Steps of one system, exact to rounding in the equations of the finite elements.

    Parameters
    ----------
    model : Modes
    tableau : Tableau
    elements : int
        Finite elements E of a step; E - 1 events fit inside one.
    tolerance : float
        Of Newton's method, relative to the largest unknown; one more iteration follows.
    """

    def __init__(self, model: Modes, tableau: Tableau, elements: int, tolerance: float = 1e-11) -> None:
        self.model, self.tableau, self.elements = model, tableau, elements
        self.collocation = Collocation(model.equations, tableau, tolerance)

    def step(
        self, x: np.ndarray, u: np.ndarray, p: np.ndarray, length: float, hint: Hint | Mode | None = None
    ) -> Elements:
        """One step of a given length from x, the left limit, with constant u.

        `hint` is the end of the step before, or modes to try first. A step that does not succeed says why and has the
        elements so far.
        """
        self.collocation.iterations = 0
        outcomes: list[WalkOutcome] = []
        # Elements in proportion to the time of an event keep lengths alike; one each leaves more for what follows.
        for sparing in (False, True):
            outcomes = list(self._runs(x, u, p, length, hint, sparing))
            if outcomes[-1].node.trouble is not Trouble.SWITCHES or self.elements < 3:
                break
        return self._joined(outcomes)

    def _runs(
        self, x: np.ndarray, u: np.ndarray, p: np.ndarray, length: float, hint: Hint | Mode | None, sparing: bool
    ) -> Iterator[WalkOutcome]:
        free = self.elements

        def advance(node: ElementNode) -> WalkOutcome:
            return EventWalk(self.model, self.collocation, u, p, node, length, free, sparing).advance()

        going_on, modes, other_forces = None, None if isinstance(hint, Hint) else hint, False
        if isinstance(hint, Hint) and hint.is_at(x):
            modes, other_forces = hint.modes, not hint.is_under(u, p)
            # Where nothing seems to change the motion just goes on.
            if not other_forces and self.model.goes_on(x, p, hint.modes):
                going_on = ElementNode(x_minus=x, x_left=x, jump=np.zeros(self.model.jumps), modes=hint.modes, y=hint.y)
        while free:
            outcome = None if going_on is None else advance(going_on)
            if outcome is None or outcome.run is None:
                outcome = advance(self.model.node(x, u, p, modes, other_forces=other_forces))
            yield outcome
            if outcome.run is None:
                return
            run = outcome.run
            free, length, x, going_on = free - run.count, length - run.length, run.x_right[-1], None
            other_forces = False
            modes = self.model.after(run.modes, outcome.guard, x, run.y[-1, -1], p)

    def _joined(self, outcomes: list[WalkOutcome]) -> Elements:
        done = [(outcome.node, outcome.run) for outcome in outcomes if outcome.run is not None]
        n_x, n_y, n_s = self.collocation.n_x, self.collocation.n_y, self.tableau.stages

        def joined(parts: list[np.ndarray], *shape: int) -> np.ndarray:
            if len(parts) == 1:
                return parts[0]
            return np.concatenate(parts) if parts else np.zeros((0, *shape))

        minus, jumps = [], []
        for node, run in done:
            before, jump = run.x_left.copy(), np.zeros((run.count, self.model.jumps))
            before[0], jump[0] = node.x_minus, node.jump
            minus.append(before)
            jumps.append(jump)
        return Elements(
            h=joined([np.full(run.count, run.h) for _, run in done]),
            x_minus=joined(minus, n_x),
            x_left=joined([run.x_left for _, run in done], n_x),
            x_right=joined([run.x_right for _, run in done], n_x),
            x_stages=joined([run.x for _, run in done], n_s, n_x),
            y_stages=joined([run.y for _, run in done], n_s, n_y),
            jump=joined(jumps, self.model.jumps),
            modes=tuple(run.modes for _, run in done for _ in range(run.count)),
            trouble=outcomes[-1].node.trouble,
            message=outcomes[-1].node.message,
            place=outcomes[-1].node.place,
        )
