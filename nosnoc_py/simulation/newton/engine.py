"""One step of finite elements by Newton's method in guessed modes, its events located at boundaries of elements.

The equations are those of the finite elements (FESD) without any relaxation. With known modes (contact open, stick,
slip; region active or not) they are smooth and square. One step is solved as follows:

1. Analyse the node at the left boundary: impact, then modes of the motion that follows (`Modes.node`).
2. Integrate all remaining elements in these modes; find the first violated inequality ("guard") on the collocation
   polynomials (`EventWalk`).
3. Solve again for elements that end where this guard is zero: their length is an unknown, so that the event is located
   to the accuracy of Newton's method and the order of the scheme is kept.
4. Continue with the remaining elements and the modes after the event.

Invariants: events lie on element boundaries only, and within each run of elements all lengths are equal. A step with E
elements can therefore resolve E - 1 events. The engine only sees modes, masks and guards; their mechanics are in
`contact_modes` and `filippov_modes`.

References
----------
Nurkanovic, Sperl, Albrecht and Diehl, Finite elements with switch detection for direct optimal control of nonsmooth
systems, Numer. Math. (2024): the equations of the elements, there solved as an MPCC.
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
    """End of a step, from which the next step may continue without analysing its node.

    Attributes
    ----------
    x : (n_x,)
        Right limit of the state.
    u, p : (n_u,), (n_p,)
        Control and parameters of the step.
    modes : tuple of int
    y : (n_y,)
        Algebraic unknowns at the last stage.
    """

    x: np.ndarray
    u: np.ndarray
    p: np.ndarray
    modes: Mode
    y: np.ndarray

    def is_at(self, x: np.ndarray) -> bool:
        """Return True if a step starts at this end; exactly equal, as any difference may hide a jump."""
        return bool((self.x == x).all())

    def is_under(self, u: np.ndarray, p: np.ndarray) -> bool:
        """Return True if a step has the same control and parameters, hence the same forces."""
        return bool((not u.size or (self.u == u).all()) and (not p.size or (self.p == p).all()))


@dataclass(frozen=True, eq=False, kw_only=True)
class Elements(ElementStates):
    """Values of one step: E elements (fewer when it failed), n_s stages.

    Attributes
    ----------
    y_stages : (E, n_s, n_y)
    jump : (E, n_jump)
        Impulses at the left boundary.
    modes : tuple of Mode
        One per element.
    trouble, message, place
        Why the step failed, and the contact or component concerned; None and "" when it did not.
    """

    y_stages: np.ndarray
    jump: np.ndarray
    modes: tuple[Mode, ...]
    trouble: Trouble | None = None
    message: str = ""
    place: str = ""

    def hint(self, u: np.ndarray, p: np.ndarray) -> Hint:
        """Return the hint for the next step."""
        return Hint(x=self.x_right[-1], u=u, p=p, modes=self.modes[-1], y=self.y_stages[-1, -1])


class Engine:
    """Solver for the steps of one system; accepted steps satisfy the finite-element equations up to rounding.

    Parameters
    ----------
    model : Modes
    tableau : Tableau
    elements : int
        Finite elements E of a step; E - 1 events fit inside one.
    tolerance : float
        Tolerance of Newton's method, relative to the largest unknown; one more iteration follows.
    """

    def __init__(self, model: Modes, tableau: Tableau, elements: int, tolerance: float = 1e-11) -> None:
        self.model, self.tableau, self.elements = model, tableau, elements
        self.collocation = Collocation(model.equations, tableau, tolerance)

    def step(
        self, x: np.ndarray, u: np.ndarray, p: np.ndarray, length: float, hint: Hint | Mode | None = None
    ) -> Elements:
        """Solve one step.

        Parameters
        ----------
        x : (n_x,)
            Left limit of the state.
        u, p : (n_u,), (n_p,)
            Constant control and parameters.
        length : float
            Length of the step [s].
        hint : Hint or tuple of int, optional
            End of the previous step, or modes to try first.

        Returns
        -------
        Elements
            With `trouble` set, and only the elements before the failure, when the step cannot be completed.
        """
        self.collocation.iterations = 0
        outcomes: list[WalkOutcome] = []
        # First give each run elements in proportion to its length, which keeps their lengths similar and the error
        # small. If the elements run out, try again with one element before each event: this leaves most for later ones.
        for one_element_each in (False, True):
            outcomes = list(self._solve_runs(x, u, p, length, hint, one_element_each))
            if outcomes[-1].node.trouble is not Trouble.SWITCHES or self.elements < 3:
                break
        return self._join(outcomes)

    def _solve_runs(
        self,
        x: np.ndarray,
        u: np.ndarray,
        p: np.ndarray,
        length: float,
        hint: Hint | Mode | None,
        one_element_each: bool,
    ) -> Iterator[WalkOutcome]:
        """Yield the runs between events until the step is complete or one fails."""
        free = self.elements

        def advance(node: ElementNode) -> WalkOutcome:
            return EventWalk(self.model, self.collocation, u, p, node, length, free, one_element_each).advance()

        continuing, modes, other_forces = None, None if isinstance(hint, Hint) else hint, False
        if isinstance(hint, Hint) and hint.is_at(x):
            modes, other_forces = hint.modes, not hint.is_under(u, p)
            # Same forces and no event at the boundary: skip the analysis of the node, which costs a contact problem.
            if not other_forces and self.model.motion_continues(x, p, hint.modes):
                continuing = ElementNode(
                    x_minus=x, x_left=x, jump=np.zeros(self.model.jumps), modes=hint.modes, y=hint.y
                )
        while free:
            outcome = None if continuing is None else advance(continuing)
            if outcome is None or outcome.run is None:
                # The previous modes do not continue after all (or there was an event): analyse the node.
                outcome = advance(self.model.node(x, u, p, modes, other_forces=other_forces))
            yield outcome
            if outcome.run is None:
                return
            run = outcome.run
            free, length, x, continuing = free - run.count, length - run.length, run.x_right[-1], None
            # Controls are constant over a step: only its first node can see forces that differ from those before.
            other_forces = False
            # These modes are a guess that saves most trials: the node that follows is analysed in any case.
            modes = self.model.after(run.modes, outcome.guard, x, run.y[-1, -1], p)

    def _join(self, outcomes: list[WalkOutcome]) -> Elements:
        """Concatenate the runs of a step; the jump of a node belongs to the first element of the run after it."""
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
