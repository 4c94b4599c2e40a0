"""A robot on one leg hops over holes that touch each other: `python -m problems.one_legged_hopper`.

The optimal control problem of the time-freezing paper, Section 6: from standing at x = 0 to standing at x = 3 m, in
2.5 s with the least torque, the foot outside of three ellipses. They touch, so it may stand at x = 0, 1, 2, 3 only.

Cold starts of the MPCC failed. The shipped start "hops" is told where the foot stands, one hop per hole; when it leaves
and lands is found by smooth programs, first with free durations, then on the control grid. Their motion gives the
contacts of all finite elements, and on this branch the elements are solved with rising order.

What it reaches, measured: with one hole (`--quick`) a hop with residuals below 1e-6, which the certificate refutes (the
foot slips just before it leaves); with three holes the shipped ladder ends at an infeasibility of about 1e-5, above the
1e-6 that is asked for, and says so. Nothing is shown to be optimal, and with free breakpoints of the control far
cheaper motions are known. The starts "glide" and "rest" give no contacts; the cold start on the grid of the paper
(N = 20, three elements, three stages) ended infeasible, with time-freezing and with FESD-J.

Path constraints hold at the ends of elements; between them the foot may cut into a hole.

The motion is unstable: its control, simulated from t = 0 on without feedback, soon leaves it. The certificate therefore
looks at windows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import casadi as ca
import numpy as np
from rich.console import Console

import nosnoc_py as ns
from models import one_legged_hopper as model
from nosnoc_py.discretization.butcher import tableau
from nosnoc_py.mpcc.stationarity import Certificate
from nosnoc_py.progress import Progress
from problems.runner import Program, Report, impacts_text, main
from problems.settings import Settings, defaults_of

STANDING = (0.4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
BENT = (0.35, 0.5, -1.0)  # z_hip [m], phi_hip, phi_knee [rad]
HIP_RANGE, KNEE_RANGE = 0.375 * np.pi, 0.5 * np.pi
WINDOW = 0.06  # of the certificate [s]
RESIDUAL = 1e-6
STARTS = ("hops", "glide", "rest")

METHOD = ns.FESDJ(control_stages=60, finite_elements=2, rk_stages=6, gap_rate=True, isolate_forces=False)
SOLVERS = {
    "robust": ns.Homotopy(steering="l_inf", sigma_0=10.0, step_tolerances=True),
    "auto": ns.Auto(),
    "homotopy": ns.Homotopy(),
}
QUICK = {"holes": 1, "horizon": 1.5, "control_stages": 36, "rk_stages": 3}


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One step of the ladder: RK stages, IPOPT's iterations and first barrier parameter, and an easier problem.

    A smaller cone and a price on fast joints leave room for what the discretisation does not see. A motion that sticks
    within the smaller cone is one with the larger cone, too.
    """

    rk_stages: int
    iterations: int
    mu: float
    friction: float = 0.75
    damping: float = 0.01


LADDER = (
    Rung(rk_stages=3, iterations=1800, mu=1e-4, friction=0.78),
    Rung(rk_stages=4, iterations=800, mu=1e-4),
    Rung(rk_stages=6, iterations=1100, mu=1e-5),
)
FREE_DAMPING = 0.01  # while durations are free
FAR = 1e5  # a bound that is never reached; without any the smooth programs ended elsewhere
FREE_ELEMENTS = (14, 10)  # of a stance and of a flight with free duration


def build(
    holes: int = 3,
    horizon: float = 2.5,
    width: float = 0.5,
    depth: float = 0.1,
    joint_rate: float = 60.0,
    torque: float = 60.0,
    friction: float = 0.8,
    damping: float = 0.0,
) -> ns.OCP:
    """The task as an optimal control problem.

    Parameters
    ----------
    holes : int
        Ellipses with centres at x = 0.5, 1.5, ...; the goal is x = holes.
    horizon : float
        T [s].
    width, depth : float
        Half axes of the ellipses [m].
    joint_rate : float
        Bound on the speeds of both joints [rad/s]; the paper has none.
    torque : float
        Bound on both torques [N m].
    friction : float
    damping : float
        Price of joint speeds, for easier versions: the stage cost is |u|^2 + damping |omega|^2.

    Returns
    -------
    ns.OCP
        minimise the integral of |u|^2 with the bounds of Section 6 and the goal position, at any velocity.
    """
    system = model.build(model.Constants(friction=friction))
    at, q = model.places(system.q), system.q
    target = ca.DM([float(holes), *STANDING[:3]])
    lower, upper = _bounds(holes, joint_rate)
    return ns.OCP(
        system,
        horizon=horizon,
        x0=(0.0, *STANDING),
        stage_cost=ca.sumsqr(system.u) + damping * ca.sumsqr(system.v[2:]),
        bounds=ns.Bounds(x=(lower, upper), u=(-torque, torque)),
        path_constraints=[
            ns.Constraint(at.foot, [-0.05, -0.005], [np.inf, 0.2], name="foot"),
            ns.Constraint(at.knee, [-0.05, 0.05], name="knee"),
            *[
                ns.Constraint(((at.foot[0] - x) / width) ** 2 + (at.foot[1] / depth) ** 2, 1.0, name=f"hole_{k + 1}")
                for k, x in enumerate(centres(holes))
            ],
        ],
        terminal_constraints=[ns.Constraint(q - target, 0.0, 0.0, name="goal")],
    )


def centres(holes: int) -> tuple[float, ...]:
    """Where the holes are [m]."""
    return tuple(k + 0.5 for k in range(holes))


def glide(ocp: ns.OCP, holes: int) -> ns.Trajectory:
    """A start without any contact: the hip moves on a straight line with a bent leg, the foot above the holes."""
    t = np.linspace(0.0, ocp.horizon, 21)
    share = t / ocp.horizon
    bend = np.minimum(1.0, 6.0 * np.minimum(share, 1.0 - share))
    x = np.zeros((t.size, 8))
    x[:, 0], x[:, 4] = holes * share, holes / ocp.horizon
    x[:, 1] = 0.4 + (BENT[0] + 0.11 - 0.4) * bend
    x[:, 2], x[:, 3] = BENT[1] * bend, BENT[2] * bend
    return _trajectory(ocp.system, t, x, np.array([0.0, ocp.horizon]), np.zeros((1, 2)))


# --- smooth programs with given places to stand ---


@dataclass(frozen=True, eq=False, kw_only=True)
class Piece:
    """One collocation element: where the foot stands (None in flight), length, control, left end, stages, forces."""

    foot: float | None
    h: Any
    u: Any
    left: Any
    stages: Any
    forces: Any


@dataclass(frozen=True, eq=False, kw_only=True)
class Motion:
    """Numbers of a smooth program: its pieces, and how it ended."""

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
        """State, control and foot force (tangent, normal) at a time."""
        k = int(np.clip(np.searchsorted(self.edges, t, side="right") - 1, 0, len(self.pieces) - 1))
        piece = self.pieces[k]
        c = _scheme(len(piece.stages)).c
        share = (t - self.edges[k]) / piece.h
        x = [np.interp(share, [0.0, *c], row) for row in np.vstack([piece.left, piece.stages]).T]
        return np.array(x), piece.u, np.array([np.interp(share, c, row) for row in piece.forces.T])


@dataclass(eq=False, kw_only=True)
class SmoothProgram:
    """Collects the variables and rows of a collocation of stances and flights, and solves it.

    A stance keeps the foot at rest by its velocity (the place is that of the landing), so its equations have index 2;
    a landing is an impact that sticks.
    """

    ocp: ns.OCP
    holes: int
    width: float
    depth: float
    rk_stages: int = 3
    objective: Any = 0.0
    w: list[Any] = field(default_factory=list)
    bounds: list[tuple[Any, Any, Any]] = field(default_factory=list)
    rows: list[tuple[Any, Any, Any]] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)

    def __post_init__(self) -> None:
        s, force = self.ocp.system, ca.SX.sym("force", 2)
        a = ca.SX.sym("a", s.n_q)
        at = model.places(s.q)
        jacobian = ca.jacobian(at.foot, s.q)
        balance = s.mass_matrix @ a - s.force - jacobian.T @ force
        self.momentum = ca.Function("momentum", [s.q, s.v, s.u, a, force], [balance])
        self.impact = ca.Function("impact", [s.q, s.v, force], [s.mass_matrix @ s.v - jacobian.T @ force])
        self.places = ca.Function("places", [s.q], [at.foot, at.knee])
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
        scheme = _scheme(self.rk_stages)
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
            self.require(self.places(q)[1], [-0.05, 0.05], 1e3)
            self.objective += h * float(scheme.b[j]) * self.cost(X[j], u)
        self.pieces.append(Piece(foot=foot, h=ca.SX(h), u=u, left=x, stages=ca.horzcat(*X), forces=ca.horzcat(*forces)))
        return X[-1]

    def _touch(self, foot: float | None, q: ca.SX, v: ca.SX, start: Any, *, holes: bool) -> ca.SX:
        """The force of a foot that stands, with a velocity of zero; or the room of a foot that flies."""
        if foot is not None:
            force = self.variable(2, [-1e4, 0.0], 1e4, start)
            self.require(self.slip(q, v))
            self._cone(force)
            return force
        place = self.places(q)[0]
        self.require(place[1], 0.0, 0.2)
        for x in centres(self.holes) if holes else ():
            self.require(((place[0] - x) / self.width) ** 2 + (place[1] / self.depth) ** 2, 1.0, 1e9)
        self.require(place[0], -0.05, 1e3)
        return ca.SX(2, 1)

    def _cone(self, force: ca.SX) -> None:
        self.require(ca.vertcat(self.mu * force[1] - force[0], self.mu * force[1] + force[0]), 0.0, FAR)

    def land(self, foot: float, x: ca.SX, start: Any) -> ca.SX:
        """Add the impact at the end x of a flight; return the state after it."""
        q, v = x[:4], x[4:]
        self.require(self.places(q)[0] - ca.DM([foot, 0.0]))
        self.require(self.slip(q, v)[1], -1e3, 0.0)
        lower, upper = (bound[4:] for bound in self.ocp.x_bounds)
        after, impulse = self.variable(4, lower, upper, start), self.variable(2, [-1e3, 0.0], 1e3, [0.0, 3.0])
        self.require(self.impact(q, after, impulse) - self.impact(q, v, ca.SX(2, 1)))
        self.require(self.slip(q, after))
        self._cone(impulse)
        return ca.vertcat(q, after)

    def solve(self, x: ca.SX, iterations: int) -> Motion:
        """Solve with the goal at the end x; the height of the hip follows from the foot on the ground."""
        self.require(ca.vertcat(x[0] - self.holes, x[2], x[3]))
        w, g = ca.vertcat(*self.w), ca.vertcat(*[row for row, _, _ in self.rows])
        lbx, ubx, start = (np.concatenate(values) for values in zip(*self.bounds, strict=True))
        lbg, ubg = (np.concatenate([row[k] for row in self.rows]) for k in (1, 2))
        options = {"print_level": 0, "sb": "yes", "max_iter": iterations, "tol": 1e-7, "dual_inf_tol": 1e-2}
        options |= {"mu_strategy": "monotone", "mu_init": 0.1, "bound_relax_factor": 1e-9}
        problem = {"x": w, "f": self.objective, "g": g}
        solver = ca.nlpsol("hops", "ipopt", problem, {"ipopt": options, "print_time": False})
        answer = solver(x0=start, lbx=lbx, ubx=ubx, lbg=lbg, ubg=ubg)
        values = np.array(answer["g"]).ravel()
        return Motion(
            pieces=tuple(self._numbers(w, answer["x"])),
            violation=float(max(0.0, (lbg - values).max(), (values - ubg).max())),
            objective=float(answer["f"]),
            word=str(solver.stats()["return_status"]),
        )

    def _numbers(self, w: ca.SX, found: Any) -> Iterator[Piece]:
        for piece in self.pieces:
            parts = [piece.h, piece.u, piece.left, piece.stages, piece.forces]
            h, u, left, stages, forces = (np.array(part) for part in ca.Function("numbers", [w], parts)(found))
            yield replace(piece, h=float(h.item()), u=u.ravel(), left=left.ravel(), stages=stages.T, forces=forces.T)


def free_hops(program: SmoothProgram, iterations: int = 1500) -> Motion:
    """One hop per hole with free durations of stances and flights."""
    feet = _feet(program.holes)
    horizon, last = program.ocp.horizon, program.holes
    starts = [0.7, *[0.3, 0.15] * (last - 1), 0.3]
    starts.append(horizon - sum(starts))
    lengths = [program.variable(1, 0.03, 2.0, start) for start in starts]
    program.require(sum(lengths, ca.SX(0)) - horizon)
    x, c, every = ca.SX([0.0, *STANDING]), _scheme(program.rk_stages).c, range(program.rk_stages)
    for k, (foot, length, start) in enumerate(zip(feet, lengths, starts, strict=True)):
        count = FREE_ELEMENTS[foot is None]
        for n in range(count):
            shares = [(n + float(node)) / count for node in c]
            guesses = [(_posture(k, share, foot, last, start), (0.0, 62.0)) for share in shares]
            open_end = foot is None and n == count - 1
            holes_at = every[:-1] if open_end else every
            x = program.piece(foot, length / count, program.control(), x, guesses, holes_at)
        if foot is None:
            x = program.land(float(feet[k + 1] or 0.0), x, 0.0)
    return program.solve(x, iterations)


def grid_hops(program: SmoothProgram, before: Motion, stages: int, iterations: int = 1000) -> Motion:
    """The same with the controls of an equidistant grid: every event stays in the control stage where it is.

    Raises
    ------
    OptionError
        If two events of `before` lie in one control stage.
    """
    feet, length = _feet(program.holes), program.ocp.horizon / stages
    where = {int(t / length): float(np.clip(t / length % 1.0, 0.1, 0.9)) for t in before.events}
    if len(where) < len(before.events):
        raise ns.OptionError(f"control_stages: two events lie in one of {stages} stages; take more of them.")
    x, c = ca.SX([0.0, *STANDING]), _scheme(program.rk_stages).c
    phase, now, last = 0, 0.0, program.rk_stages - 1
    for k in range(stages):
        u = program.control(before((k + 0.5) * length)[1])
        shares: list[tuple[int, Any, float]] = [(phase, 0.5, 0.5), (phase, 0.5, 0.5)]
        if k in where:
            s = program.variable(1, 0.05, 0.95, where[k])
            shares = [(phase, s, where[k]), (phase + 1, 1 - s, 1 - where[k])]
        for number, share, value in shares:
            foot = feet[number]
            if number != phase and foot is not None:
                x = program.land(foot, x, before(now + 1e-3)[0][4:])
            ends = k in where and number == phase == shares[0][0]
            guesses = [before(now + float(node) * value * length) for node in c]
            starts = [(state, force if force[1] > 1.0 else (0.0, 62.0)) for state, _, force in guesses]
            x = program.piece(foot, share * length, u, x, starts, () if ends else (last,))
            phase, now = number, now + value * length
    return program.solve(x, iterations)


def _feet(holes: int) -> list[float | None]:
    """Where the foot stands, and None for the flights between."""
    return [0.0, *[place for k in range(holes) for place in (None, k + 1.0)]]


def _posture(phase: int, share: float, foot: float | None, last: int, duration: float) -> list[float]:
    """Start values of the state: a bent leg that leans from back to front in stance, and glides in flight."""
    z, hip, knee = BENT
    place = phase // 2
    if foot is None:
        return [place + share, z + 0.11, hip, knee, 1.0 / duration, 0.0, 0.0, 0.0]
    lean = 0.3 * (share - 0.5) if 0 < place < last else 0.0
    return [place + lean, z, hip, knee, 0.0, 0.0, 0.0, 0.0]


def _scheme(rk_stages: int) -> Any:
    return tableau("radau_iia", rk_stages)


# --- finite elements on the branch that a motion shows ---


@dataclass(frozen=True, eq=False, kw_only=True)
class Touch:
    """When the foot stands: events (time, whether it lands), and the motion as a start."""

    events: tuple[tuple[float, bool], ...]
    start: ns.Trajectory

    def stands(self, t: float) -> bool:
        """Whether the foot is on the ground."""
        past = [lands for time, lands in self.events if time <= t]
        return past[-1] if past else True


def touch_of_motion(motion: Motion, system: ns.CLS) -> Touch:
    """Of a smooth program."""
    events = tuple((t, k % 2 == 1) for k, t in enumerate(motion.events))
    t, x, u, times, forces, accelerations = [0.0], [motion.pieces[0].left], [], [], [], []
    for piece, left in zip(motion.pieces, motion.edges, strict=False):
        scheme = _scheme(len(piece.stages))
        a = np.linalg.inv(scheme.a) @ (piece.stages - piece.left)[:, 4:] / piece.h
        if left in motion.events and piece.foot is not None:
            t, x = [*t, left], [*x, piece.left]
        # A force that jumps at a node has both of its values beside it.
        t += [float(left + c * piece.h) for c in scheme.c]
        x += list(piece.stages)
        times += [left + 2e-9, *(left + scheme.c[:-1] * piece.h), left + piece.h + 1e-9]
        forces += [piece.forces[0], *piece.forces]
        accelerations += [a[0], *a]
        u.append(piece.u)
    series = {"lambda_tangent[foot]": np.array(forces)[:, 0], "lambda_normal[foot]": np.array(forces)[:, 1]}
    names = system.names["v"]
    series |= {f"acceleration[{name}]": np.array(accelerations)[:, i] for i, name in enumerate(names)}
    start = _trajectory(system, np.array(t), np.array(x), motion.edges, np.array(u))
    held = {name: ns.solution.Series(np.array(times), values) for name, values in series.items()}
    return Touch(events=events, start=replace(start, events=_marks(events), series=held))


def touch_of_solution(solution: ns.Solution) -> Touch:
    """Of a solution on other finite elements."""
    kinds = {"impact": True, "release": False}
    events = tuple((e.time, kinds[e.kind]) for e in solution.events if e.kind in kinds)
    wanted = ("lambda_normal", "lambda_tangent", "acceleration")
    series = {name: values for name, values in solution.series.items() if name.startswith(wanted)}
    start = ns.Trajectory(
        t=solution.t,
        x=solution.x,
        state_names=solution.state_names,
        u_grid=solution.u_grid,
        u=solution.u,
        control_names=solution.control_names,
        interpolant=solution.interpolant,
        events=_marks(events),
        series=series,
    )
    return Touch(events=events, start=start)


def held(ocp: ns.OCP, method: ns.FESDJ, touch: Touch, *, iterations: int, mu: float) -> tuple[Any, Any]:
    """Solve on the finite elements with the contacts that are given: (transcription, state of the homotopy)."""
    problem = ns.transcribe(ocp, method)
    options: dict[str, Any] = {
        "mu_strategy": "monotone",
        "mu_init": mu,
        "bound_push": 0.01 * mu,
        "bound_frac": 0.01 * mu,
    }
    options |= {"tol": 1e-5, "constr_viol_tol": 1e-9, "compl_inf_tol": 1e-6, "dual_inf_tol": 1.0}
    options |= {"bound_relax_factor": 1e-9, "max_iter": iterations}
    p = problem.parameters()
    w = np.clip(problem.initial_guess(touch.start), problem.mpcc.lbw, problem.mpcc.ubw)
    clear = _clear(problem, touch, w)
    for block in problem.mpcc.variables.blocks():
        if block.name.startswith(("Lambda_", "Xi_", "Y_")):
            w[block.rows] = clear[block.rows]
    homotopy = ns.Homotopy(ipopt=options)
    finish = homotopy.finisher(problem.solvers)
    outcome = finish(w, p, np.inf, "hold", finish.guess(clear, p))
    return problem, homotopy.init(problem.mpcc, outcome.w, p, solvers=problem.solvers, clip=False)


def _clear(problem: Any, touch: Touch, w: np.ndarray) -> np.ndarray:
    """A point that shows the contacts of all elements beyond doubt: not a motion, only a branch."""
    w, variables = w.copy(), problem.mpcc.variables
    length = problem.ocp.horizon / problem.grid.control_stages
    places = [(block.at.stage, block.at.element) for block in variables.blocks("s")]
    steps = [float(w[block.start]) * length / problem.grid.elements[block.at.stage] for block in variables.blocks("s")]
    middles = np.cumsum(steps) - 0.5 * np.array(steps)
    stands = {place: touch.stands(float(t)) for place, t in zip(places, middles, strict=True)}
    lands = {b: stands[b] and not stands[a] for a, b in pairwise(places)}
    for block in variables.blocks():
        place = (block.at.stage, block.at.element)
        if place in stands:
            value = _shown(block.name, stands[place], lands.get(place, False))
            w[block.rows] = w[block.rows] if value is None else value
    return w


def _shown(name: str, stands: bool, lands: bool) -> float | None:
    """The value of a variable that leaves no doubt; None where it does not matter."""
    values = {"drift_plus": 1.0 * stands, "drift_minus": 0.5 * stands, "lambda_normal": 62.0 * stands}
    values |= {"Lambda_normal": 3.0 * lands, "lambda_tangent[foot]": 0.0, "Lambda_tangent[foot]": 0.0}
    if name in values:
        return values[name]
    return 0.0 if stands and name.startswith(("xi_", "Xi_", "Y_plus", "Y_minus")) else None


def _marks(events: Sequence[tuple[float, bool]]) -> tuple[ns.Event, ...]:
    """Events that a start puts on nodes; a release is marked as an impact of nothing."""
    return tuple(ns.Event(t, "foot" if lands else "release", "impact", impulse=3.0 * lands) for t, lands in events)


def _trajectory(system: ns.CLS, t: np.ndarray, x: np.ndarray, u_grid: np.ndarray, u: np.ndarray) -> ns.Trajectory:
    states, controls = system.state_names, system.control_names
    return ns.Trajectory(t=t, x=x, u_grid=u_grid, u=u, state_names=states, control_names=controls)


def _bounds(holes: int, joint_rate: float) -> tuple[list[float], list[float]]:
    """Of the state: those of Section 6, and speeds."""
    low = [-0.05, 0.2, -HIP_RANGE, -KNEE_RANGE, -10.0, -10.0, -joint_rate, -joint_rate]
    return low, [holes + 2.0, 0.55, HIP_RANGE, KNEE_RANGE, 10.0, 10.0, joint_rate, joint_rate]


# --- the program ---


def climb(arguments: Mapping[str, Any], method: ns.FESDJ, progress: Any = None) -> ns.Solution:
    """Solve from the start "hops": smooth programs, then finite elements of rising order."""
    shape = {name: arguments[name] for name in ("holes", "width", "depth")}
    easier = build(**{**arguments, "damping": FREE_DAMPING})
    motion = free_hops(SmoothProgram(ocp=easier, **shape))
    ocp = build(**arguments)
    motion = grid_hops(SmoothProgram(ocp=ocp, **shape), motion, method.control_stages)
    touch = touch_of_motion(motion, ocp.system)
    w = np.empty(0)
    rungs = [rung for rung in LADDER if rung.rk_stages < method.rk_stages]
    rungs.append(replace(LADDER[min(len(rungs), len(LADDER) - 1)], rk_stages=method.rk_stages))
    for rung in rungs:
        changed = build(**{**arguments, "friction": rung.friction, "damping": rung.damping})
        current = method.replace(rk_stages=rung.rk_stages)
        problem, state = held(changed, current, touch, iterations=rung.iterations, mu=rung.mu)
        touch = touch_of_solution(problem.solution(replace(state, status=ns.Status.STOPPED)))
        w = state.w
        if progress is not None:
            progress(state)
    return judged(ns.transcribe(ocp, method), w)


def judged(problem: ns.Transcription, w: np.ndarray) -> ns.Solution:
    """A point as a solution: solved means residuals of the unrelaxed problem below 1e-6; not said to be stationary."""
    state = ns.Homotopy().init(problem.mpcc, w, problem.parameters(), solvers=problem.solvers, clip=False)
    good = max(state.complementarity, state.infeasibility) <= RESIDUAL
    unknown = Certificate(
        stationarity=ns.Stationarity.UNKNOWN,
        b_stationary=None,
        lpec_value=np.nan,
        residual=np.nan,
        biactive=(),
        multipliers=None,
    )
    status = ns.Status.SOLVED if good else ns.Status.INFEASIBLE
    return problem.solution(replace(state, status=status, certificate=unknown), solver="hops")


def run(settings: Settings, progress: Progress) -> Report:
    """Solve the task, certify in windows, and report."""
    arguments = {name: value for name, value in settings.arguments.items() if name != "start"}
    start, ocp = settings.arguments["start"], build(**arguments)
    if start not in STARTS:
        raise ns.UnknownNameError(start, STARTS, "start")
    if start == "hops":
        solution = climb(arguments, settings.method, progress)
    else:
        guess = glide(ocp, arguments["holes"]) if start == "glide" else None
        solution = ns.solve(ocp, settings.method, settings.solver, guess=guess, callback=progress)
    certificate = ns.certify(ocp, solution, window=WINDOW, time_limit=120.0)
    holes = [(x, arguments["width"], arguments["depth"]) for x in centres(arguments["holes"])]
    return Report(
        results={**solution.to_dict(), "certificate": certificate.to_dict()},
        success=solution.success,
        show=lambda console: _show(console, solution, certificate),
        figures={
            "one_legged_hopper_frames.png": lambda path: _drawing().frames(solution, holes, path),
            "one_legged_hopper_torques.png": lambda path: _drawing().torques(solution, arguments["torque"], path),
            "one_legged_hopper_contact.png": lambda path: _drawing().contact(solution, path),
        },
    )


def _show(console: Console, solution: ns.Solution, certificate: ns.Certificate) -> None:
    console.print(solution.summary())
    console.print(impacts_text(solution))
    console.print(str(certificate), markup=False)


def _drawing() -> Any:
    from problems.drawing import hopper  # matplotlib is slow to import and not needed with --json

    return hopper


PROGRAM = Program(
    name="one_legged_hopper",
    about="A robot on one leg hops over three holes: optimal control with impacts and friction.",
    settings=Settings(
        method=METHOD, solver=SOLVERS["robust"], solvers=SOLVERS, arguments={**defaults_of(build), "start": "hops"}
    ),
    quick=QUICK,
    run=run,
)

if __name__ == "__main__":
    raise SystemExit(main(PROGRAM))
