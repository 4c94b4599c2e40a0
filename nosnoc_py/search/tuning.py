"""Constants of the search: one frozen object, so that there is one place to tune it.

All of them were chosen on problems with two to thirty-seven states, none of which is one of the tests: they trade the
number of starts against the quality of their programs. Work is counted in units of about a second
(`nosnoc_py.attempts.work`); fractions have no unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nosnoc_py.attempts.rank import SAME_OBJECTIVE


@dataclass(frozen=True, kw_only=True)
class SearchTuning:
    """Constants of `Search`.

    Attributes
    ----------
    coarse_intervals, coarse_iterations, coarse_refinements : int
        Of programs that only compare sequences: control intervals, iterations, refinements of the mesh.
    stalled : int
        Programs of a search are given up without progress in so many iterations (`mpcc.interior`): of 500 that have a
        solution nine come nearer to it afterwards, none of them the best one of its search; half of all iterations go.
    few_iterations : int
        Limit of the iterations of a program on a finer grid.
    most_phases : int
        Of a program; simulations that rattle have hundreds.
    motion_samples : int
        Samples of a motion that tell it from others with the same sequence.
    least_turn : float
        Least work of one turn.
    turn : float
        Largest fraction of the work that is left, for one turn.
    reserved : float
        Fraction of the whole work that is reserved for the program on the final grid.
    last_program : float
        Least fraction of the whole work for the program on the final grid where no motion is confirmed yet.
    first_program : float
        Work for one program after the search if no turn has led to any: there has to be something to return.
    refinement : float
        Fraction of the remaining work for one refinement of the best motion.
    refined_at : float
        The best motion is refined when patience ends, or after this fraction of the work: its verdict then matters more
        than further starts.
    unconfirmed_starts : int
        Starts without any confirmed motion after which the best one is refined at once.
    followed : int
        Programs per start, where the simulation of a solution shows another sequence than its own.
    neighbours : float
        Work of one turn of neighbours.
    known_least, known_most : float
        Fractions of a start by which a start with a known sequence counts against patience: it costs a simulation only,
        and counts by its work in relation to that of other starts.
    hopeful : float
        Least priority, relative to the highest one, with which a kind of start is preferred as it may agree.
    kinds_per_sequence : int
        Kinds of start that may try the same sequence: another motion is another start of its program.
    patience_alone, kinds_without_events : int
        Factor of the patience while no kinds of start agree. A best motion without events, which every kind finds,
        needs the agreement of so many times more kinds.
    patience_smooth, patience_unrivalled, rivals : float, float, int
        Fractions of the patience for a motion whose modes cannot change near it: starts with the same modes lead to the
        same program, and differ in its local optima only. The first one holds in systems without modes, or if starts
        have led to `rivals` worse motions with other sequences per kind that has to agree; else no start may have met a
        contact yet.
    patience_thrown : int
        Factor of the patience for throws without controls: their starts cost little, and their optima are many.
    grace : float
        Time [s] that the first turn and the last program have, however short the limit of time is: there has to be an
        answer.
    fine_grid : float
        Loss by the control grid, as a fraction of the objective, that is not worth a finer one.
    most_intervals : int
        Of the finest grid.
    finer_grids : float
        Fraction of the work that finer grids may take.
    fallen : float
        A descent far out that falls below the best objective by so many times its size says that there may be no
        optimum.
    expanded, nearly : int
        Number of best motions whose neighbours are tried; one turn of so many goes to a sequence that misses
        constraints.
    nearer : float
        A violation reduced to this fraction of the least one counts as a gain.
    same_sequence : float
        Within a sequence, grids of the control that begin with other lengths of the phases differ by so much of the
        objective: this is agreement, and no gain.
    large_gain : float
        Gain, as a fraction of the best objective, for which a motion that is refuted on a coarse mesh is refined.
    expected_gains : float
        Prior of the gains per turn: moves from a sound motion and stances are promising, everything else counts as one.
    usual_turn, usual_turns : float, mapping
        Prior of the work per turn; larger for kinds that simulate or solve a lot for one start.
    grain : float
        Work is compared in multiples of this: a step more or less of a simulation, as rounding has it, changes no
        order.
    other_motion : float
        Root mean square distance of two motions, relative to the sizes of their states, from which on they are
        different starts of one sequence: its program may have another optimum near each of them.
    """

    coarse_intervals: int = 16
    coarse_iterations: int = 300
    coarse_refinements: int = 2
    stalled: int = 15
    few_iterations: int = 60
    most_phases: int = 16
    motion_samples: int = 9
    least_turn: float = 0.8
    turn: float = 0.25
    reserved: float = 0.15
    last_program: float = 0.3
    first_program: float = 4.0
    refinement: float = 0.35
    refined_at: float = 0.6
    unconfirmed_starts: int = 3
    followed: int = 3
    neighbours: float = 0.4
    known_least: float = 0.05
    known_most: float = 0.2
    hopeful: float = 0.2
    kinds_per_sequence: int = 2
    patience_alone: int = 2
    kinds_without_events: int = 2
    patience_smooth: float = 0.1
    patience_unrivalled: float = 0.4
    rivals: int = 2
    patience_thrown: int = 3
    grace: float = 2.0
    fine_grid: float = 1e-3
    most_intervals: int = 96
    finer_grids: float = 0.1
    fallen: float = 10.0
    expanded: int = 3
    nearly: int = 3
    nearer: float = 0.7
    same_sequence: float = 2.0 * SAME_OBJECTIVE
    large_gain: float = 0.3
    expected_gains: float = 3.0
    usual_turn: float = 0.4
    usual_turns: Mapping[str, float] = field(
        default_factory=lambda: {
            "moves": 1.2,
            "relaxed": 0.8,
            "evolution": 1.2,
            "stances": 1.2,
            "compliant": 1.2,
            "quasistatic": 1.2,
        }
    )
    grain: float = 0.05
    other_motion: float = 0.3


TUNING = SearchTuning()
