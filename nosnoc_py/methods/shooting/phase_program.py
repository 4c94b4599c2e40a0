"""Multi-phase NLP of a hybrid system with a prescribed sequence of jumps, and the motion of an iterate.

The NLP is that of `sequences` (`PhaseNLP`) with one mode: guards stay nonnegative in every phase and are zero at its
end, where the reset follows. Durations are free and have a lower bound, because a phase of zero length would hide a
wrong sequence. The start is a simulation that jumps at predicted times; its guards need not be zero.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import casadi as ca
import numpy as np

from nosnoc_py.methods.indirect.forward import one_step
from nosnoc_py.methods.indirect.motion import HybridMotion, MotionPhase
from nosnoc_py.ocp import OCP
from nosnoc_py.sequences.filippov_laws import JUMPS, WAITING, FilippovLaws
from nosnoc_py.sequences.plan import Plan
from nosnoc_py.sequences.program import PhaseMesh, PhaseNLP, PhaseStart
from nosnoc_py.sequences.readout import PhasePoint
from nosnoc_py.solution.interpolant import RungeKuttaInterpolant, Side
from nosnoc_py.systems.hybrid import HybridSystem

Array = np.ndarray
# Stages of Radau IIA per interval (order 5).
STAGES = 3


def phase_program(
    ocp: OCP,
    system: HybridSystem,
    intervals: int,
    jumps: tuple[int, ...],
    shortest: float,
    start: PhaseStart,
) -> PhaseNLP:
    """Build the NLP (HMP, Eqs. 2-5) with the same number of equal control intervals in every phase.

    Parameters
    ----------
    ocp : OCP
    system : HybridSystem
        Hybrid system of the OCP, in the same symbols.
    intervals : int
        Control intervals per phase.
    jumps : tuple of int
        Indices of the jumps between the phases.
    shortest : float
        Lower bound of the durations, relative to the horizon.
    start : PhaseStart
        Initial iterate.
    """
    laws = FilippovLaws(system)
    # Every guard waits in every phase; only jumps distinguish them.
    mode = (WAITING,) * len(laws.names)
    # The first phase begins without a jump.
    impacts = ({}, *({laws.names[jump]: JUMPS} for jump in jumps))
    plan = Plan(modes=(mode,) * len(impacts), impacts=impacts, contacts={})
    mesh = PhaseMesh(stages=STAGES, intervals=intervals, per_phase=True, shortest=shortest)
    return PhaseNLP(ocp, laws, plan, mesh, start)


def roll_out_sequence(
    ocp: OCP,
    system: HybridSystem,
    jumps: tuple[int, ...],
    intervals: int,
    x0: Array,
    edges: Array,
    control: Callable[[float], Array],
) -> PhaseStart:
    """Simulate a control with jumps at the given edges (phases + 1,) [s], ignoring the guards, as a start."""
    x, u, h, p = system.x, system.u, ca.SX.sym("h"), np.array(ocp.p)
    flow = ca.Function("flow", [x, u, system.p], [system.flow])
    end = one_step(lambda state, force: flow(state, force, system.p), x, u, h, "rk4")
    step = ca.Function("step", [x, u, system.p, h], [end])
    resets = [ca.Function("reset", [x, system.p], [jump.reset]) for jump in system.jumps]
    lefts, rights, begins, widths = [], [], [], []
    state_here = x0
    for i, (a, b) in enumerate(itertools.pairwise(edges)):
        if i:
            state_here = np.array(resets[jumps[i - 1]](state_here, p))[:, 0]
        step_length = (b - a) / intervals
        for k in range(intervals):
            lefts.append(state_here)
            state_here = np.array(step(state_here, control(a + (k + 0.5) * step_length), p, step_length))[:, 0]
            # Right ends before the reset of the next phase: one-sided limits at a jump.
            rights.append(state_here)
            begins.append(a + k * step_length)
            widths.append(step_length)
    stages = np.array(rights)[:, None]
    interpolant = RungeKuttaInterpolant(
        t_left=np.array(begins), h=np.array(widths), c=np.ones(1), x_left=np.array(lefts), x_stages=stages, x_initial=x0
    )

    def state(t: Array, side: Side) -> Array:
        # Rounding of sums of durations may ask beyond the end.
        return interpolant(np.minimum(t, edges[-1]), side)

    return PhaseStart(edges=edges, state=state, control=lambda t: np.array([control(one) for one in t]), p=p)


def motion_of_point(point: PhasePoint, intervals: int, jumps: tuple[int, ...]) -> HybridMotion:
    """Return the motion of an iterate, with dense output by its stages."""
    e, program = point.elements(), point.program
    shape = (len(jumps) + 1, intervals)
    t_left, h = e.t_left.reshape(shape), e.h.reshape(shape)
    left, stages = (part.reshape(*shape, *part.shape[1:]) for part in (e.x_left, e.x_stages))
    # The control is constant on an element: the first stage has it.
    u = e.u_stages[:, 0].reshape(*shape, -1)
    phases = tuple(
        MotionPhase(
            t=np.append(t_left[i], t_left[i, -1] + h[i, -1]),
            x=np.vstack([left[i], stages[i, -1, -1]]),
            u=u[i],
            c=program.tableau.c,
            x_stages=stages[i],
        )
        for i in range(shape[0])
    )
    return HybridMotion(phases=phases, jumps=jumps, objective=point.objective)
