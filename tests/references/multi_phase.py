"""A program with a phase per collision, for prescribed sequences: a reference that shares no code with the methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import casadi as ca
import numpy as np
from numpy.typing import NDArray

import nosnoc_py as ns

Array = NDArray[np.float64]
Law = Callable[[Array], Array]

SHORTEST = 0.01  # phase, as a share of the horizon; without a bound IPOPT sometimes runs to negative lengths
QUIET: dict[str, Any] = {"print_time": False, "error_on_fail": False}
IPOPT: dict[str, Any] = {"print_level": 0, "sb": "yes", "bound_relax_factor": 0.0, "max_iter": 500}


@dataclass(frozen=True, eq=False, kw_only=True)
class MultiPhase:
    """A solution of the program with a phase per collision.

    Attributes
    ----------
    success : bool
        What IPOPT says.
    objective : float
    times : (M,)
        Of the collisions [s].
    approach : (M,)
        Speeds -n'v with which their gaps close [m/s]; not demanded to be positive.
    t, control : (nodes,), (nodes, n_u)
        Control at the nodes of all phases.
    final_state : (n_x,)
    """

    success: bool
    objective: float
    times: Array
    approach: Array
    t: Array
    control: Array
    final_state: Array


def multi_phase(
    ocp: ns.OCP,
    sequence: Sequence[str],
    times: Sequence[float],
    control: Law,
    *,
    coasting: Sequence[int] = (),
    degree: int = 8,
) -> MultiPhase:
    """Solve an OCP with a prescribed sequence of frictionless collisions, by IPOPT.

    Every phase is one step of Gauss collocation with its length as an unknown; at its end the gap of the next contact
    is zero, and q(+) = q, v(+) = v - (1 + e) M^-1 n (n'v) / (n' M^-1 n) begins the next. Costs are integrated by the
    same Gauss quadrature, so linear controls and quadratic costs are exact. Path constraints hold at the nodes.

    Parameters
    ----------
    ocp : OCP
        Of a `CLS` without parameters, with a fixed horizon and x0, no bounds and no terminal constraints.
    sequence : sequence of M names
        Contacts in the order of the collisions.
    times, control : (M,), function (n,) -> (n, n_u)
        The guess: times of the collisions [s], and the control. The states follow from them.
    coasting : sequence of int
        Phases in which the control is zero, where |u| has no derivative.
    degree : int
        Nodes per phase.
    """
    pieces = _Pieces.of(ocp, sequence)
    phases, touching, speeds = _phases(pieces, ocp, degree, coasting)
    guess = _guess(pieces, ocp, times, control, degree, coasting)
    lengths = [phase.unknowns[0] for phase in phases]
    equations = ca.vertcat(*[phase.equations for phase in phases], *touching, sum(lengths) - ocp.horizon)
    paths = ca.vertcat(*[phase.paths for phase in phases])
    objective = sum(phase.cost for phase in phases) + pieces.terminal(phases[-1].end)
    unknowns = ca.vertcat(*[phase.unknowns for phase in phases])
    options = {**QUIET, "ipopt": {**IPOPT, "tol": 1e-12, "mu_init": 1e-3}}  # the guess is good: not back to the middle
    program = {"x": unknowns, "f": objective, "g": ca.vertcat(equations, paths)}
    solver = ca.nlpsol("multi_phase", "ipopt", program, options)
    lower, upper = pieces.limits(degree, len(phases))
    zero = np.zeros(equations.numel())
    shortest = SHORTEST * ocp.horizon
    least = np.concatenate([np.append(shortest, np.full(values.size - 1, -np.inf)) for values in guess])
    limits = {"lbx": least, "lbg": np.append(zero, lower), "ubg": np.append(zero, upper)}
    found = solver(x0=np.concatenate(guess), **limits)
    control_nodes = ca.vertcat(*[phase.control.T for phase in phases])
    outputs = [ca.vertcat(*lengths), ca.vertcat(*speeds), control_nodes, phases[-1].end]
    spans, approach, u, final = ca.Function("read", [unknowns], outputs)(found["x"])
    edges = np.append(0.0, np.cumsum(vector(spans)))
    t = edges[:-1, None] + np.diff(edges)[:, None] * gauss(degree)[0]
    return MultiPhase(
        success=bool(solver.stats()["success"]),
        objective=float(found["f"]),
        times=edges[1:-1],
        approach=vector(approach),
        t=t.ravel(),
        control=np.array(u),
        final_state=vector(final),
    )


def _phases(
    pieces: _Pieces, ocp: ns.OCP, degree: int, coasting: Sequence[int]
) -> tuple[list[_Phase], list[Any], list[Any]]:
    """All phases, one after the other; the gap and the speed of the collision at the end of each but the last."""
    x, phases, touching, speeds = ca.SX(ca.DM(ocp.x0)), [], [], []
    for k in range(len(pieces.collisions) + 1):
        phases.append(_Phase.of(pieces, x, degree, coasts=k in coasting))
        if k < len(pieces.collisions):
            gap, x, speed = pieces.collisions[k](phases[-1].end)
            touching.append(gap)
            speeds.append(speed)
    return phases, touching, speeds


def _guess(
    pieces: _Pieces, ocp: ns.OCP, times: Sequence[float], control: Law, degree: int, coasting: Sequence[int]
) -> list[Array]:
    """Values for the unknowns of every phase: the motion under the control, with the collisions at their times."""
    x, guess = np.array(ocp.x0), []
    for k, (begin, end) in enumerate(pairwise([0.0, *times, ocp.horizon])):
        law = (lambda t: 0.0 * control(t)) if k in coasting else control
        values, x = _rollout(pieces, x, law, begin, end, degree)
        guess.append(values)
        if k < len(pieces.collisions):
            x = vector(pieces.collisions[k](x)[1])
    return guess


@dataclass(frozen=True, eq=False, kw_only=True)
class _Pieces:
    """An OCP as functions: x, u -> (x', L); x, u -> path constraints; x -> terminal cost; x -> (gap, x(+), speed)."""

    flow: ca.Function
    path: ca.Function
    terminal: ca.Function
    collisions: tuple[ca.Function, ...]
    bounds: tuple[Array, Array]

    @classmethod
    def of(cls, ocp: ns.OCP, sequence: Sequence[str]) -> _Pieces:
        system, constraints = ocp.system, ocp.path_constraints
        x, u = system.x, system.u
        rate = ca.vertcat(system.v, ca.solve(system.mass_matrix, system.force))
        contacts = {contact.name: contact for contact in system.contacts}
        return cls(
            flow=ca.Function("flow", [x, u], [rate, ocp.stage_cost]),
            path=ca.Function("path", [x, u], [ca.vertcat(*[one.expression for one in constraints])]),
            terminal=ca.Function("terminal", [x], [ocp.terminal_cost]),
            collisions=tuple(_collision(system, contacts[name]) for name in sequence),
            bounds=(
                np.concatenate([[], *[one.lower for one in constraints]]),
                np.concatenate([[], *[one.upper for one in constraints]]),
            ),
        )

    def limits(self, degree: int, phases: int) -> tuple[Array, Array]:
        """Bounds of the path constraints at all nodes of all phases."""
        lower, upper = (np.tile(bound, degree * phases) for bound in self.bounds)
        return lower, upper


def _collision(system: ns.CLS, contact: ns.Contact) -> ca.Function:
    normal = system.normal(contact)
    response, rate = ca.solve(system.mass_matrix, normal), ca.dot(normal, system.v)
    after = system.v - (1.0 + contact.restitution) * response * rate / ca.dot(normal, response)
    return ca.Function("collision", [system.x], [contact.gap, ca.vertcat(system.q, after), -rate])


@dataclass(frozen=True, eq=False, kw_only=True)
class _Phase:
    """One step of Gauss collocation: unknowns (length, states at the nodes, controls at the nodes), and what they make.

    The control of a phase without is a constant of the program; its unknowns are then zero by the equations.
    """

    unknowns: Any
    control: Any
    equations: Any
    paths: Any
    cost: Any
    end: Any

    @classmethod
    def of(cls, pieces: _Pieces, start: Any, degree: int, *, coasts: bool) -> _Phase:
        h, x, u = ca.SX.sym("h"), ca.SX.sym("x", start.numel(), degree), ca.SX.sym("u", pieces.flow.size1_in(1), degree)
        applied = ca.SX(ca.DM.zeros(*u.shape)) if coasts else u
        nodes, weights = gauss(degree)
        values = [pieces.flow(x[:, i], applied[:, i]) for i in range(degree)]
        rates, costs = ca.horzcat(*[value[0] for value in values]), ca.horzcat(*[value[1] for value in values])
        residual = x - ca.repmat(start, 1, degree) - h * rates @ ca.DM(_gauss_matrix(nodes)).T
        paths = [pieces.path(x[:, i], applied[:, i]) for i in range(degree)]
        return cls(
            unknowns=ca.vertcat(h, ca.vec(x), ca.vec(u)),
            control=applied,
            equations=ca.vertcat(ca.vec(residual), *([ca.vec(u)] if coasts else [])),
            paths=ca.vertcat(*paths),
            cost=h * costs @ ca.DM(weights),
            end=start + h * rates @ ca.DM(weights),
        )


def _rollout(pieces: _Pieces, x: Array, control: Law, begin: float, end: float, degree: int) -> tuple[Array, Array]:
    """Values for the unknowns of a phase, and where it ends, by the classical Runge-Kutta method between the nodes."""
    t = begin + (end - begin) * np.concatenate([[0.0], gauss(degree)[0], [1.0]])
    states = []
    for now, later in pairwise(t):
        step, middle = later - now, (now + later) / 2.0
        first, half, last = control(np.array([now, middle, later]))
        k_1 = vector(pieces.flow(x, first)[0])
        k_2 = vector(pieces.flow(x + step / 2.0 * k_1, half)[0])
        k_3 = vector(pieces.flow(x + step / 2.0 * k_2, half)[0])
        k_4 = vector(pieces.flow(x + step * k_3, last)[0])
        x = x + step / 6.0 * (k_1 + 2.0 * k_2 + 2.0 * k_3 + k_4)
        states.append(x)
    values = np.concatenate([np.ravel(states[:-1]), np.ravel(control(t[1:-1]))])
    return np.append(end - begin, values), x


def gauss(number: int) -> tuple[Array, Array]:
    """Nodes and weights of Gauss quadrature on [0, 1]."""
    nodes, weights = np.polynomial.legendre.leggauss(number)
    return np.asarray((nodes + 1.0) / 2.0), np.asarray(weights / 2.0)


def _gauss_matrix(nodes: Array) -> Array:
    """Row i: weights with which values at the nodes give the integral from 0 to node i, by Legendre polynomials."""
    legendre = np.polynomial.legendre
    values = legendre.legvander(2.0 * nodes - 1.0, nodes.size - 1)
    integrals = [
        legendre.legval(2.0 * nodes - 1.0, legendre.legint(row, lbnd=-1.0)) / 2.0 for row in np.eye(nodes.size)
    ]
    return np.asarray(np.linalg.solve(values.T, np.array(integrals)).T)


def vector(value: Any) -> Array:
    """A CasADi matrix as a flat array."""
    return np.array(value, dtype=float).ravel()
