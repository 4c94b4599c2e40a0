"""Optima for a given sequence of modes, over few numbers: lengths of pieces, controls, initial state and parameters.

In every mode the systems accelerate constantly under a constant control (or, where they are of first order, move with
constant velocity), so that the motion is integrated exactly. Nothing here is from nosnoc_py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

QUIET = {
    "ipopt.print_level": 0,
    "ipopt.sb": "yes",
    "print_time": False,
    "ipopt.tol": 1e-11,
    "ipopt.constr_viol_tol": 1e-11,
    "ipopt.compl_inf_tol": 1e-11,
    "ipopt.bound_relax_factor": 0.0,
    "ipopt.perturb_always_cd": "yes",
    "ipopt.max_iter": 500,
}
# Gauss-Legendre with three nodes integrates the square of a quadratic motion exactly.
NODES, WEIGHTS = (np.array(part) for part in np.polynomial.legendre.leggauss(3))

# Shares of the times of events.
STARTS = (0.7, 1.0, 1.2)


def _nothing(*_: Any) -> list[Any]:
    return []


@dataclass(frozen=True, eq=False, kw_only=True)
class PolynomialMotion:
    """A system in a sequence of modes, in plain numbers.

    Attributes
    ----------
    order : int
        2 for states (q, v) with accelerations, 1 for states with velocities.
    rate : function (phase, u, p) -> list
        The accelerations of q, or the velocities of x.
    guard : function (phase, x) -> list
        Zero where this phase ends and the next one begins.
    jump : function (phase, x) -> list, optional
        The state after what happens at the end of this phase.
    inside : function (phase, x, u, p) -> list, optional
        Not negative at the ends of all pieces of this phase.
    """

    order: int
    rate: Callable[[int, Any, Any], list[Any]]
    guard: Callable[[int, Any], list[Any]]
    jump: Callable[[int, Any], list[Any]] | None = None
    inside: Callable[[int, Any, Any, Any], list[Any]] = _nothing

    def after(self, phase: int, x: Any, u: Any, p: Any, h: Any) -> Any:
        """The state a time h later."""
        rate = ca.vertcat(*self.rate(phase, u, p))
        if self.order == 1:
            return x + h * rate
        n = rate.numel()
        q, v = x[:n], x[n:]
        return ca.vertcat(q + h * v + h**2 / 2 * rate, v + h * rate)


@dataclass(frozen=True, eq=False, kw_only=True)
class ReducedProblem:
    """minimise int |u|^2 + weight x[tracked]^2 dt + price (p^2 + (T - due)^2), in plain numbers.

    Attributes
    ----------
    controls : int
        Number of components.
    x0 : list of (lower, upper)
    horizon : (lower, upper)
    p : (lower, upper)
    limits : list of (component, lower, upper)
        Of the state at the ends of all pieces.
    ends : list of (component, lower, upper)
        Of the state at the end.
    """

    motion: PolynomialMotion
    controls: int
    x0: list[tuple[float, float]]
    horizon: tuple[float, float]
    ends: list[tuple[int, float, float]]
    p: tuple[float, float] = (0.0, 0.0)
    limits: Sequence[tuple[int, float, float]] = ()
    tracked: int = 0
    weight: float = 0.0
    due: float | None = None
    price: float = 0.0


@dataclass(frozen=True, eq=False, kw_only=True)
class ReducedOptimum:
    """What was found: objective, ends of all phases, state at the end, control of every interval."""

    objective: float
    edges: np.ndarray
    x_end: np.ndarray
    u: np.ndarray
    success: bool


def reduced_optimum(
    problem: ReducedProblem, pieces: Sequence[tuple[int, int]], *, equal: bool, edges: Sequence[float]
) -> ReducedOptimum:
    """The best of several starts, with the pieces (phase, control interval) of a motion in their order.

    With equal intervals the length of every piece is an unknown, and the pieces of an interval have a length together;
    otherwise the length of every phase is one, and its pieces are equally long. `edges` are about the ends of phases.
    """
    found = [_optimum_from(problem, pieces, equal, [share * t for t in edges[:-1]] + [edges[-1]]) for share in STARTS]
    return min(found, key=lambda one: one.objective if one.success else np.inf)


def _optimum_from(
    problem: ReducedProblem, pieces: Sequence[tuple[int, int]], equal: bool, edges: Sequence[float]
) -> ReducedOptimum:
    phases, intervals = 1 + max(k for k, _ in pieces), 1 + max(j for _, j in pieces)
    motion = problem.motion
    low, high, start = list[float](), list[float](), list[float]()

    def new(name: str, pairs: Sequence[tuple[float, float]], at: Sequence[float]) -> Any:
        low.extend(a for a, _ in pairs)
        high.extend(b for _, b in pairs)
        start.extend(at)
        return ca.SX.sym(name, len(pairs))

    guess = np.diff(np.array([0.0, *edges]))
    counts = np.bincount([k for k, _ in pieces], minlength=phases)
    share = [guess[k] / counts[k] for k, _ in pieces]
    if equal:
        lengths = new("lengths", [(0.0, 10.0)] * len(pieces), share)
        steps = [lengths[i] for i in range(len(pieces))]
    else:
        lengths = new("lengths", [(0.0, 10.0)] * phases, guess.tolist())
        steps = [lengths[k] / int(counts[k]) for k, _ in pieces]
    U = [new("u", [(-30.0, 30.0)] * problem.controls, [0.1] * problem.controls) for _ in range(intervals)]
    p = new("p", [problem.p], [0.5 * sum(problem.p)])
    x = x0 = new("x0", problem.x0, [0.5 * (a + b) for a, b in problem.x0])
    total = ca.sum1(ca.vertcat(*steps))
    rows, lower, upper = [total], [problem.horizon[0]], [problem.horizon[1]]

    def add(values: Sequence[Any], a: float, b: float) -> None:
        rows.extend(values)
        lower.extend([a] * len(values))
        upper.extend([b] * len(values))

    if equal:
        for j in range(intervals):
            own = [h for (_, i), h in zip(pieces, steps, strict=True) if i == j]
            add([sum(own) - total / intervals], 0.0, 0.0)
    late = 0.0 if problem.due is None else total - problem.due
    cost = problem.price * (p[0] ** 2 + late**2)
    for i, ((k, j), h) in enumerate(zip(pieces, steps, strict=True)):
        u = U[j]
        for node, weight in zip(NODES, WEIGHTS, strict=True):
            at = motion.after(k, x, u, p[0], h * (1 + node) / 2)
            cost += h * weight / 2 * (ca.sumsqr(u) + problem.weight * at[problem.tracked] ** 2)
        x = motion.after(k, x, u, p[0], h)
        add(motion.inside(k, x, u, p[0]), 0.0, np.inf)
        for component, a, b in problem.limits:
            add([x[component]], a, b)
        if i + 1 < len(pieces) and pieces[i + 1][0] != k:
            add(motion.guard(k, x), 0.0, 0.0)
            x = x if motion.jump is None else ca.vertcat(*motion.jump(k, x))
    for component, a, b in problem.ends:
        add([x[component]], a, b)
    w = ca.vertcat(lengths, *U, p, x0)
    nlp = {"x": w, "f": cost, "g": ca.vertcat(*rows)}
    solver = ca.nlpsol("reduced", "ipopt", nlp, QUIET)
    found = solver(x0=start, lbx=low, ubx=high, lbg=lower, ubg=upper)
    end = ca.Function("end", [w], [x, ca.vertcat(*steps), ca.horzcat(*U)])
    x_end, h, u = (np.array(part) for part in end(found["x"]))
    lasts = np.cumsum(h)[[i for i, (k, _) in enumerate(pieces) if i + 1 == len(pieces) or pieces[i + 1][0] != k]]
    return ReducedOptimum(
        objective=float(found["f"]), edges=lasts, x_end=x_end[:, 0], u=u.T, success=bool(solver.stats()["success"])
    )
