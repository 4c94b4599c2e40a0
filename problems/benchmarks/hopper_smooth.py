"""Smooth programs of the hopper: a collocation of stances and flights in a prescribed order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from models import one_legged_hopper as model
from nosnoc_py.tableaus import tableau
from problems.benchmarks.hopper_task import centres, inside

FAR = 1e5  # a bound that is never active; without bounds the programs ended elsewhere


@dataclass(frozen=True, eq=False, kw_only=True)
class Piece:
    """Collocation element: place of the foot (None in flight), length, control, left end, stages, forces."""

    foot: float | None
    h: Any
    u: Any
    left: Any
    stages: Any
    forces: Any


@dataclass(frozen=True, eq=False, kw_only=True)
class Motion:
    """Result of a smooth program: its pieces, and how it ended."""

    pieces: tuple[Piece, ...]
    violation: float
    objective: float
    word: str

    @property
    def edges(self) -> np.ndarray:
        """Boundaries of the pieces [s]."""
        return np.concatenate([[0.0], np.cumsum([piece.h for piece in self.pieces])])

    @property
    def events(self) -> list[float]:
        """Times when the foot leaves, lands, leaves, ... [s]."""
        pairs = enumerate(pairwise(self.pieces), start=1)
        return [float(self.edges[k]) for k, (a, b) in pairs if (a.foot is None) != (b.foot is None)]

    def __call__(self, t: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return state, control and foot force (tangent, normal) at a time."""
        k = int(np.clip(np.searchsorted(self.edges, t, side="right") - 1, 0, len(self.pieces) - 1))
        piece = self.pieces[k]
        c = scheme_of(len(piece.stages)).c
        share = (t - self.edges[k]) / piece.h
        x = [np.interp(share, [0.0, *c], row) for row in np.vstack([piece.left, piece.stages]).T]
        return np.array(x), piece.u, np.array([np.interp(share, c, row) for row in piece.forces.T])


@dataclass(frozen=True, kw_only=True)
class Descent:
    """Options of a solve: IPOPT's first barrier parameter, distance of the start from bounds, iterations, seconds."""

    mu: float = 0.1
    push: float = 1e-2
    iterations: int = 1500
    seconds: float = 300.0

    @property
    def options(self) -> dict[str, Any]:
        """Return the options for IPOPT."""
        limits = {"max_iter": self.iterations, "max_wall_time": self.seconds, "tol": 1e-7, "dual_inf_tol": 1e-2}
        start = {"mu_strategy": "monotone", "mu_init": self.mu, "bound_push": self.push, "bound_frac": self.push}
        return {"print_level": 0, "sb": "yes", "bound_relax_factor": 1e-9, **limits, **start}


@dataclass(eq=False, kw_only=True)
class SmoothProgram:
    """Collects the variables and rows of a collocation of stances and flights, and solves it.

    A stance keeps the foot at rest by its velocity (the place is that of the landing), so its equations have index 2;
    a landing is an impact that sticks. The normal force of a stance is at least `load` [N].
    """

    ocp: ns.OCP
    holes: int
    width: float
    depth: float
    load: float = 0.0
    rk_stages: int = 3
    objective: Any = 0.0
    w: list[Any] = field(default_factory=list)
    bounds: list[tuple[Any, Any, Any]] = field(default_factory=list)
    rows: list[tuple[Any, Any, Any]] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)

    def __post_init__(self) -> None:
        s, force = self.ocp.system, ca.SX.sym("force", 2)
        a = ca.SX.sym("a", s.n_q)
        at = model.positions(s.q)
        jacobian = ca.jacobian(at.foot, s.q)
        balance = s.mass_matrix @ a - s.force - jacobian.T @ force
        self.momentum = ca.Function("momentum", [s.q, s.v, s.u, a, force], [balance])
        self.impact = ca.Function("impact", [s.q, s.v, force], [s.mass_matrix @ s.v - jacobian.T @ force])
        self.positions = ca.Function("positions", [s.q], [at.foot, at.knee])
        self.slip = ca.Function("slip", [s.q, s.v], [jacobian @ s.v])
        self.cost = ca.Function("cost", [s.x, s.u], [self.ocp.stage_cost])
        self.mu = s.contacts[0].friction[0]

    def variable(self, size: int, lower: Any, upper: Any, start: Any) -> ca.SX:
        """Add a variable."""
        symbol = ca.SX.sym(f"w{len(self.w)}", size)
        self.w.append(symbol)
        self.bounds.append(tuple(np.broadcast_to(value, size) for value in (lower, upper, start)))  # type: ignore[arg-type]
        return symbol

    def require(self, row: Any, lower: Any = 0.0, upper: Any = 0.0) -> None:
        """Add rows lower <= row <= upper."""
        row = ca.SX(row)
        self.rows.append((row, np.broadcast_to(lower, row.numel()), np.broadcast_to(upper, row.numel())))

    def control(self, start: Any = 0.0) -> ca.SX:
        """Add a control."""
        return self.variable(2, self.ocp.u_bounds[0], self.ocp.u_bounds[1], start)

    def piece(self, foot: float | None, h: Any, u: ca.SX, x: ca.SX, starts: Any, holes_at: Sequence[int]) -> ca.SX:
        """Add an element from x on; return its right end. `holes_at` are the stages that stay out of the holes."""
        scheme = scheme_of(self.rk_stages)
        inverse, count = np.linalg.inv(scheme.a), range(self.rk_stages)
        X = [self.variable(8, self.ocp.x_bounds[0], self.ocp.x_bounds[1], start[0]) for start in starts]
        rise = [sum((inverse[j, m] * (X[m] - x) for m in count), ca.SX(0)) for j in count]
        forces = []
        for j in count:
            q, v = X[j][:4], X[j][4:]
            a = self.variable(4, -1e5, 1e5, 0.0)
            self.require(rise[j][:4] - h * v)
            self.require(rise[j][4:] - h * a)
            forces.append(self._touch(foot, q, v, starts[j][1], holes=j in holes_at))
            self.require(self.momentum(q, v, u, a, forces[-1]))
            self.require(self.positions(q)[1], [-0.05, 0.05], 1e3)
            self.objective += h * float(scheme.b[j]) * self.cost(X[j], u)
        self.pieces.append(Piece(foot=foot, h=ca.SX(h), u=u, left=x, stages=ca.horzcat(*X), forces=ca.horzcat(*forces)))
        return X[-1]

    def _touch(self, foot: float | None, q: ca.SX, v: ca.SX, start: Any, *, holes: bool) -> ca.SX:
        """Return the force of a foot that stands, with zero velocity; in flight constrain its clearance."""
        if foot is not None:
            force = self.variable(2, [-1e4, self.load], 1e4, [start[0], max(start[1], self.load + 1.0)])
            self.require(self.slip(q, v))
            self._cone(force)
            return force
        place = self.positions(q)[0]
        self.require(place[1], 0.0, 0.2)
        for x in centres(self.holes) if holes else ():
            self.require(inside(place, x, self.width, self.depth), 1.0, 1e9)
        self.require(place[0], -0.05, 1e3)
        return ca.SX(2, 1)

    def _cone(self, force: ca.SX) -> None:
        self.require(ca.vertcat(self.mu * force[1] - force[0], self.mu * force[1] + force[0]), 0.0, FAR)

    def land(self, foot: float, x: ca.SX, start: Any) -> ca.SX:
        """Add the impact at the end x of a flight; return the state after it."""
        q, v = x[:4], x[4:]
        self.require(self.positions(q)[0] - ca.DM([foot, 0.0]))
        self.require(self.slip(q, v)[1], -1e3, 0.0)
        lower, upper = (bound[4:] for bound in self.ocp.x_bounds)
        after, impulse = self.variable(4, lower, upper, start), self.variable(2, [-1e3, 0.0], 1e3, [0.0, 3.0])
        self.require(self.impact(q, after, impulse) - self.impact(q, v, ca.SX(2, 1)))
        self.require(self.slip(q, after))
        self._cone(impulse)
        return ca.vertcat(q, after)

    def solve(self, x: ca.SX, descent: Descent) -> Motion:
        """Solve with the goal at the end x; the height of the hip follows from the foot on the ground."""
        self.require(ca.vertcat(x[0] - self.holes, x[2], x[3]))
        w, g = ca.vertcat(*self.w), ca.vertcat(*[row for row, _, _ in self.rows])
        lbx, ubx, start = (np.concatenate(values) for values in zip(*self.bounds, strict=True))
        lbg, ubg = (np.concatenate([row[k] for row in self.rows]) for k in (1, 2))
        problem = {"x": w, "f": self.objective, "g": g}
        solver = ca.nlpsol("hops", "ipopt", problem, {"ipopt": descent.options, "print_time": False})
        answer = solver(x0=start, lbx=lbx, ubx=ubx, lbg=lbg, ubg=ubg)
        values = np.array(answer["g"]).ravel()
        return Motion(
            pieces=tuple(self._numbers(w, answer["x"])),
            violation=float(max(0.0, (lbg - values).max(), (values - ubg).max())),
            objective=float(answer["f"]),
            word=str(solver.stats()["return_status"]),
        )

    def _numbers(self, w: ca.SX, values: Any) -> Iterator[Piece]:
        for piece in self.pieces:
            parts = [piece.h, piece.u, piece.left, piece.stages, piece.forces]
            h, u, left, stages, forces = (np.array(part) for part in ca.Function("numbers", [w], parts)(values))
            yield replace(piece, h=float(h.item()), u=u.ravel(), left=left.ravel(), stages=stages.T, forces=forces.T)


def scheme_of(rk_stages: int) -> Any:
    """Return Radau IIA, as the finite elements use it."""
    return tableau("radau_iia", rk_stages)
