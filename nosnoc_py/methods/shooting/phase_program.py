"""The program of direct multiple shooting with free phase durations: its unknowns, its rows, and the way back."""

from __future__ import annotations

from collections.abc import Callable

import casadi as ca
import numpy as np

from nosnoc_py.audit.constraints import excess
from nosnoc_py.methods.indirect.forward import one_step
from nosnoc_py.methods.indirect.motion import HybridMotion, MotionPhase
from nosnoc_py.mpcc.nlp import NLP, block
from nosnoc_py.ocp import OCP, Constraint
from nosnoc_py.systems.hybrid import HybridSystem

Array = np.ndarray


# Runge-Kutta steps in every interval.
SUBSTEPS = 2


class PhaseProgram:
    """minimise the cost over durations, controls and states at the ends of all intervals (HMP, Eqs. 2-5).

    Every phase has K equal intervals with a constant control. Rows: the integrator joins the states, guards are zero at
    the ends of their phases and falling there, not negative at all other nodes (a free x(0) is one); the durations add
    up to the horizon; the constraints of the OCP.

    Parameters
    ----------
    ocp : OCP
    system : HybridSystem
        That of the OCP, or made of it.
    intervals : int
        K.
    jumps : tuple of int
        Those between the phases.
    shortest : float
        Lower bound of the durations [s].
    """

    def __init__(self, ocp: OCP, system: HybridSystem, intervals: int, jumps: tuple[int, ...], shortest: float) -> None:
        self.ocp, self.system, self.intervals, self.jumps = ocp, system, intervals, jumps
        self.phases = len(jumps) + 1
        self._rows: list[tuple[ca.SX, Array, Array]] = []
        self.step = rk4(system, ocp)
        self.resets = [ca.Function("reset", [system.x, system.p], [jump.reset]) for jump in system.jumps]
        self._declare(shortest)
        self._join()
        self._end()
        self.nlp = self._nlp()
        outputs = [self._durations, self._u, self._x, self._start, self._p, self.nlp.f, self.nlp.g]
        self._parts = ca.Function("parts", [self._w], outputs)

    def _declare(self, shortest: float) -> None:
        """The unknowns and their bounds."""
        ocp, n_x, n_u, count = self.ocp, self.system.x.numel(), self.system.n_u, self.phases * self.intervals
        self._durations = ca.SX.sym("durations", self.phases)
        self._u, self._x = ca.SX.sym("u", n_u, count), ca.SX.sym("x", n_x, count)
        self._x0 = ca.SX.sym("x0", n_x if ocp.x0 is None else 0)
        self._p_free = ca.SX.sym("p", len(ocp.free_parameters))
        self._free_rows = [ocp.system.parameter_names.index(name) for name in ocp.free_parameters]
        self._p = ca.SX(ocp.p)
        for k, row in enumerate(self._free_rows):
            self._p[row] = self._p_free[k]
        self._start = self._x0 if ocp.x0 is None else ca.SX(ocp.x0)
        self._w = ca.vertcat(self._durations, ca.vec(self._u), ca.vec(self._x), self._x0, self._p_free)
        x_low, x_high = ocp.x_bounds
        free = np.array(list(ocp.free_parameters.values())).reshape(-1, 2)
        start = [(x_low, x_high)] if ocp.x0 is None else []
        bounds = [(np.full(self.phases, shortest), np.full(self.phases, np.inf))]
        bounds += [(np.tile(low, count), np.tile(high, count)) for low, high in (ocp.u_bounds, ocp.x_bounds)]
        bounds += [*start, (free[:, 0], free[:, 1])]
        self._lbx, self._ubx = (np.concatenate([pair[side] for pair in bounds]) for side in (0, 1))

    def _join(self) -> None:
        """Integrator, jumps, guards and path constraints, along the phases."""
        s, intervals = self.system, self.intervals
        guards = ca.vertcat(*[jump.guard for jump in s.jumps])
        rates = ca.jtimes(guards, s.x, s.flow)
        look = ca.Function("look", [s.x, s.u, s.p], [guards, rates])
        x, cost = self._start, ca.SX(0)
        if self.ocp.x0 is None:
            self._add(look(x, self._u[:, 0], self._p)[0], 0.0, np.inf)
        for i, last in enumerate([*self.jumps, None]):
            for n in range(i * intervals, (i + 1) * intervals):
                u, end = self._u[:, n], self._x[:, n]
                found, spent, stages = self.step(x, u, self._p, self._durations[i] / intervals)
                self._add(end - found, 0.0, 0.0)
                self._constrain(x, end, stages, u)
                cost += spent
                jump = last if n == (i + 1) * intervals - 1 else None
                values, falling = look(end, u, self._p)
                others = [j for j in range(len(s.jumps)) if j != jump]
                self._add(values[others, 0], 0.0, np.inf)
                if jump is not None:
                    self._add(values[jump], 0.0, 0.0)
                    self._add(falling[jump], -np.inf, 0.0)
                x = end if jump is None else self.resets[jump](end, self._p)
        self._last, self._cost = x, cost

    def _constrain(self, x: ca.SX, end: ca.SX, stages: ca.SX, u: ca.SX) -> None:
        """Path constraints of one interval; "rk_stages" are the ends of its Runge-Kutta steps."""
        for constraint in self.ocp.path_constraints:
            at_ends = {"control_grid": [x], "element_ends": [end], "rk_stages": ca.horzsplit(stages)}
            for state in at_ends[constraint.at]:
                self._impose(constraint, state, u)

    def _impose(self, constraint: Constraint, x: ca.SX, u: ca.SX) -> None:
        system, plain = self.ocp.system, constraint.without_roots(self.ocp.system.u)
        found = ca.substitute([plain.expression], [system.x, system.u, system.p], [x, u, self._p])[0]
        self._add(found, plain.lower, plain.upper)

    def _end(self) -> None:
        """Horizon, initial and terminal constraints, terminal cost."""
        ocp, system, free = self.ocp, self.ocp.system, self.ocp.free_time
        total = ca.sum1(self._durations)
        self._add(total, *((ocp.horizon,) * 2 if free is None else (free.lower, free.upper)))
        for constraint in ocp.initial_constraints:
            self._impose(constraint, self._start, ca.SX.zeros(system.n_u))
        symbols = [system.x, system.x_initial, system.p, *([] if free is None else [free.symbol])]
        values = [self._last, self._start, self._p, *([] if free is None else [total])]
        ends = ca.substitute([ocp.terminal_cost, *[c.expression for c in ocp.terminal_constraints]], symbols, values)
        self._cost += ends[0]
        for constraint, expression in zip(ocp.terminal_constraints, ends[1:], strict=True):
            self._add(expression, constraint.lower, constraint.upper)

    def _add(self, rows: ca.SX, lower: float | Array, upper: float | Array) -> None:
        rows = ca.SX(rows)
        low, high = (np.broadcast_to(np.asarray(bound, float), (rows.numel(),)) for bound in (lower, upper))
        self._rows.append((rows, low, high))

    def _nlp(self) -> NLP:
        multiplier = ca.SX.sym("multiplier_f")
        expressions, *limits = zip(*self._rows, strict=True)
        lower, upper = (np.concatenate(limit) for limit in limits)
        rows = block(self._w, ca.vertcat(*expressions), lower, upper, multiplier * self._cost)
        return NLP(
            x=self._w,
            p=ca.SX(0, 1),
            f=self._cost,
            g=rows.expression,
            lbx=self._lbx,
            ubx=self._ubx,
            lbg=lower,
            ubg=upper,
            gradient=ca.densify(ca.gradient(self._cost, self._w)),
            blocks=(rows,),
            multiplier_f=multiplier,
        )

    def rolled_out(self, x0: Array, edges: Array, control: Callable[[float], Array]) -> Array:
        """The unknowns of the motion of a control, with jumps at the edges (phases + 1,) [s], within their bounds."""
        durations, p = np.diff(edges), np.array(self.ocp.p)
        places = (np.arange(self.intervals) + 0.5) / self.intervals
        times = edges[:-1, None] + durations[:, None] * places
        u = np.array([control(t) for t in times.ravel()]).reshape(*times.shape, -1)
        x = np.empty((self.phases, self.intervals + 1, x0.size))
        for i, start in enumerate([None, *self.jumps]):
            x[i, 0] = x0 if start is None else np.array(self.resets[start](x[i - 1, -1], p))[:, 0]
            for k in range(self.intervals):
                x[i, k + 1] = np.array(self.step(x[i, k], u[i, k], p, durations[i] / self.intervals)[0])[:, 0]
        parts = [durations, u, x[:, 1:], x0 if self.ocp.x0 is None else np.empty(0), p[self._free_rows]]
        return np.clip(np.concatenate([part.ravel() for part in parts]), self._lbx, self._ubx)

    def read(self, w: Array) -> tuple[HybridMotion, Array, float]:
        """What unknowns stand for: the motion, parameters (n_p,), and the largest violation of a row or a bound.

        The motion is dense through the ends of the Runge-Kutta steps.
        """
        durations, u, ends, start, p, objective, rows = (np.array(part).T for part in self._parts(w))
        shape, lengths = (self.phases, self.intervals, -1), np.repeat(durations[0] / self.intervals, self.intervals)
        ends = ends.reshape(shape)
        firsts = [start, *[np.array(self.resets[j](ends[i, -1], p)).T for i, j in enumerate(self.jumps)]]
        x = np.concatenate([np.array(firsts), ends], axis=1)
        left = x[:, :-1].reshape(len(u), -1)
        dense = np.array(self.step.map(len(u))(left.T, u.T, p.T, lengths[None])[2]).T
        edges = np.concatenate([[0.0], np.cumsum(durations)])
        t = np.linspace(edges[:-1], edges[1:], self.intervals + 1).T
        c = np.arange(1, SUBSTEPS + 1) / SUBSTEPS
        parts = zip(t, x, u.reshape(shape), dense.reshape(*shape[:2], SUBSTEPS, -1), strict=True)
        phases = tuple(MotionPhase(t=t, x=x, u=u, c=c, x_stages=stages) for t, x, u, stages in parts)
        n = self.nlp
        over = np.append(excess(rows[0], n.lbg, n.ubg), excess(w, n.lbx, n.ubx))
        motion = HybridMotion(phases=phases, jumps=self.jumps, objective=float(objective[0, 0]))
        return motion, p[0], float(over.max(initial=0.0))


def rk4(system: HybridSystem, ocp: OCP) -> ca.Function:
    """(x, u, p, h) -> the state after h, the running cost, the states after each of the Runge-Kutta steps."""
    x, u, p, h = system.x, system.u, system.p, ca.SX.sym("h")
    flow = ca.Function("flow", [x, u, p], [ca.vertcat(system.flow, ocp.stage_cost)])
    n_x, both, stages = x.numel(), ca.vertcat(x, 0), []
    for _ in range(SUBSTEPS):
        both = one_step(lambda state, control: flow(state[:n_x], control, p), both, u, h / SUBSTEPS, "rk4")
        stages.append(both[:n_x])
    return ca.Function("interval", [x, u, p, h], [both[:n_x], both[n_x], ca.horzcat(*stages)])
