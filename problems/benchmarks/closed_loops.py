"""Closed loops, solved again at every sample: `python -m problems.benchmarks.closed_loops`.

Five plants under noise. Between two samples the plan is prepared (`problem.prepare`): moved by one control stage, for
the state it predicts. Then it is solved again for the measured state (`problem.resolve`), the first control is applied
to the event-driven simulation, and every state gets noise. Where a gap has become negative the position is moved back.

Counted are samples on the branch of the prepared plan, on a neighbour, by a fallback and without an answer; measured is
the time of the processor from the state to the control, and that of the preparation. Every N-th objective is compared
with the best of what `Auto` and a homotopy from a small relaxation find from the default start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

import nosnoc_py as ns
from models import cart_pole_friction
from nosnoc_py.progress import Progress
from problems import receding_horizon
from problems.benchmarks.orders import check_names
from problems.runner import Report, program, tabled
from problems.settings import Settings

GRAVITY = 9.81
QUICK = {"loops": ("paddle", "walls"), "samples": 4}
PATIENCE = 20.0  # time limit in seconds of an answer, a preparation or a reference
WAYS = ("kept", "neighbour", "fallback")


@dataclass(frozen=True, kw_only=True)
class Loop:
    """Problem that is solved at every sample.

    Parameters
    ----------
    ocp : OCP
    method : FESDJ, FESD or TimeFreezing
    """

    ocp: ns.OCP
    method: Any


def particle() -> Loop:
    """Return the loop: a particle falls on smooth ground and is pushed to a goal."""
    return Loop(ocp=receding_horizon.build(), method=ns.FESDJ(control_stages=10))


def paddle() -> Loop:
    """Return the loop: a paddle keeps a ball that bounces on it near a height."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    contact = ns.Contact("paddle", gap=q[1] - q[0], restitution=0.8)
    force = ca.vertcat(u - GRAVITY, -0.1 * GRAVITY)
    s = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.diag(ca.DM([1.0, 0.1])), force=force, contacts=[contact])
    cost = 10 * q[0] ** 2 + v[0] ** 2 + 20 * (q[1] - 0.5) ** 2
    ocp = ns.OCP(
        s, horizon=0.8, x0=[0, 0.5, 0, 0], stage_cost=cost + 0.01 * (u - GRAVITY) ** 2, terminal_cost=cost,
        bounds=ns.Bounds(u=(-50, 50)),
    )  # fmt: skip
    return Loop(ocp=ocp, method=ns.FESDJ(control_stages=10, finite_elements=2, rk_stages=2))


def discs() -> Loop:
    """Return the loop: a disc pushes another one to a place and holds it there."""
    q, v, u = ca.SX.sym("q", 4), ca.SX.sym("v", 4), ca.SX.sym("u", 2)
    contact = ns.Contact("discs", gap=ca.norm_2(q[:2] - q[2:]) - 0.6)
    force = ca.vertcat(u - 0.3 * v[:2], -v[2:])
    s = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.diag(ca.DM([1.0, 1.0, 2.0, 2.0])), force=force, contacts=[contact])
    cost = 20 * ca.sumsqr(q[2:] - ca.DM([0.8, 0.0])) + ca.sumsqr(v) + 0.1 * ca.sumsqr(q[:2] - ca.DM([0.0, 0.0]))
    ocp = ns.OCP(
        s, horizon=1.0, x0=[-0.8, 0.05, 0, 0, 0, 0, 0, 0], stage_cost=cost + 0.05 * ca.sumsqr(u), terminal_cost=cost,
        bounds=ns.Bounds(u=(-15, 15)),
    )  # fmt: skip
    return Loop(ocp=ocp, method=ns.FESDJ(control_stages=10, finite_elements=2, rk_stages=2))


def friction() -> Loop:
    """Return the loop: a cart with dry friction holds a pole upright."""
    s = cart_pole_friction.build()
    x = s.x
    cost = 5 * x[0] ** 2 + 20 * (x[1] - np.pi) ** 2 + x[2] ** 2 + x[3] ** 2
    ocp = ns.OCP(
        s, horizon=0.5, x0=[0.2, np.pi - 0.2, 0.0, 0.0], stage_cost=cost + 0.01 * s.u**2, terminal_cost=10 * cost,
        bounds=ns.Bounds(u=(-40, 40)),
    )  # fmt: skip
    return Loop(ocp=ocp, method=ns.FESD(control_stages=10, finite_elements=2, rk_stages=2))


def walls() -> Loop:
    """Return the loop: a cart holds a pole upright whose tip touches rigid walls."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    tip = q[0] + 0.5 * ca.sin(q[1])
    place = ca.vertcat(tip, 0.5 * ca.cos(q[1]))
    energy = ns.kinetic_energy(q, v, masses=[(1.0, ca.vertcat(q[0], 0)), (0.2, place)])
    arm = ns.lagrangian(q=q, v=v, u=u, forces=ca.vertcat(u, 0), kinetic=energy, potential=0.2 * GRAVITY * place[1])
    contacts = [ns.Contact("right", gap=0.3 - tip), ns.Contact("left", gap=0.3 + tip)]
    s = ns.CLS(q=q, v=v, u=u, mass_matrix=arm.mass_matrix, force=arm.force, contacts=contacts)
    cost = 10 * q[0] ** 2 + 20 * q[1] ** 2 + ca.sumsqr(v)
    ocp = ns.OCP(
        s, horizon=0.5, x0=[0, 0, 0, 2.2], stage_cost=cost + 0.01 * u**2, terminal_cost=10 * cost,
        bounds=ns.Bounds(u=(-20, 20)),
    )  # fmt: skip
    return Loop(ocp=ocp, method=ns.FESDJ(control_stages=10, finite_elements=2, rk_stages=2))


LOOPS: Mapping[str, Callable[[], Loop]] = {
    "particle": particle,
    "paddle": paddle,
    "discs": discs,
    "friction": friction,
    "walls": walls,
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One sample.

    Parameters
    ----------
    loop : str
    seed, sample : int
    how, status : str
    milliseconds, preparation : float
        Processor time from x0 to the control, and of the preparation.
    objective, reference : float
        The reference is NaN if it was not computed.
    residual : float
        The largest of the unrelaxed problem.
    """

    loop: str
    seed: int
    sample: int
    how: str
    status: str
    milliseconds: float
    preparation: float
    objective: float
    residual: float
    reference: float = np.nan


def experiment(
    *,
    loops: Sequence[str] = (),
    samples: int = 200,
    seeds: int = 1,
    noise: float = 0.01,
    reference: int = 0,
    callback: Callable[[Any], Any] | None = None,
) -> Iterator[Row]:
    """Yield all samples.

    Parameters
    ----------
    loops : tuple of str
        By default all.
    samples, seeds : int
    noise : float
        Standard deviation of the noise on every state.
    reference : int
        Number of samples between two references; 0: no references.
    """
    check_names(loop=(loops, LOOPS))
    for name in loops or LOOPS:
        for seed in range(seeds):
            for row in closed(name, seed, samples, noise, reference):
                yield row
                if callback is not None:
                    callback(f"{name} {seed}: sample {row.sample}, {row.how}, {row.milliseconds:.1f} ms")


def closed(name: str, seed: int, samples: int, noise: float, reference: int) -> Iterator[Row]:
    """Simulate one closed loop."""
    loop, rng = LOOPS[name](), np.random.default_rng(seed)
    ocp, x = loop.ocp, np.array(loop.ocp.x0)
    problem = ns.transcribe(ocp, loop.method)
    idle = ns.simulate(ocp.system, x0=x, duration=ocp.horizon, u=np.zeros(ocp.system.n_u))
    plan: Any = problem.solve(guess=idle, time_limit=PATIENCE)
    period = ocp.horizon / problem.grid.control_stages
    for sample in range(samples):
        began = time.process_time()
        ready = problem.prepare(plan, shift=int(sample > 0), time_limit=PATIENCE) if plan.success else plan
        prepared = time.process_time()
        answer = problem.resolve(ready, x0=x, time_limit=PATIENCE)
        u, ended = answer.u[0], time.process_time()
        state = answer.state
        yield Row(
            loop=name,
            seed=seed,
            sample=sample,
            how=answer.how if answer.success else "none",
            status=answer.status.value,
            milliseconds=1e3 * (ended - prepared),
            preparation=1e3 * (prepared - began),
            objective=answer.objective,
            residual=max(state.infeasibility, state.complementarity),
            reference=_reference(problem, x) if reference and sample % reference == 0 else np.nan,
        )
        plan = answer if answer.success else ready
        motion = ns.simulate(ocp.system, x0=x, duration=period, u=u)
        x = admissible(ocp.system, np.array(motion.final_state) + noise * rng.standard_normal(x.size))


def admissible(system: Any, x: np.ndarray) -> np.ndarray:
    """Return the state, moved along the gradient of a gap until nothing penetrates."""
    if not isinstance(system, ns.CLS):
        return x
    gaps = system.mechanics.gaps
    function, x = ca.Function("gaps", [system.x, system.p], [gaps, ca.jacobian(gaps, system.q)]), x.copy()
    for _ in range(20):
        value, slope = (np.array(part) for part in function(x, np.zeros(system.n_p)))
        i = int(value.argmin())
        if value[i, 0] >= -1e-13:
            break
        x[: system.n_q] -= slope[i] * value[i, 0] / (slope[i] @ slope[i])
    return x


def _reference(problem: ns.Transcription, x: np.ndarray) -> float:
    solutions = [problem.solve(solver, x0=x, time_limit=PATIENCE) for solver in (ns.Auto(), ns.Homotopy(sigma_0=1e-3))]
    return min((solution.objective for solution in solutions if solution.success), default=np.nan)


def run(settings: Settings, progress: Progress) -> Report:
    """Run the loops and report; a loop without an answer to every sample is no success."""
    started = time.monotonic()
    rows = list(experiment(**settings.arguments, callback=progress))
    answered = [row for row in rows if row.how in WAYS]
    good = len(answered) == len(rows)
    return tabled(
        {
            "status": (ns.Status.SOLVED if good else ns.Status.STOPPED).value,
            "complementarity": max((row.residual for row in answered), default=np.nan),
            "summary": summary(rows),
            "rows": [vars(row) for row in rows],
            "wall_seconds": time.monotonic() - started,
        },
        good,
        {"closed loops, processor time in milliseconds": summary(rows)},
    )


def summary(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return one line for every loop."""
    return [_line(name, [row for row in rows if row.loop == name]) for name in dict.fromkeys(row.loop for row in rows)]


def _line(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    known = [row for row in rows if np.isfinite(row.reference) and row.how in WAYS]
    above = [(row.objective - row.reference) / max(1e-9, abs(row.reference)) for row in known] or [np.nan]
    # The first answer of a process also builds what all others use.
    spent = [row.milliseconds for row in rows if row.sample > 0] or [np.nan]
    quantiles = dict(zip(("p50", "p90", "p99"), np.percentile(spent, [50, 90, 99]), strict=True))
    return {
        "loop": name,
        "samples": len(rows),
        **{how: sum(row.how == how for row in rows) for how in (*WAYS, "none")},
        **{key: float(value) for key, value in quantiles.items()},
        "preparation": float(np.median([row.preparation for row in rows])),
        "above_reference": float(np.median(above)),
        "above_p95": float(np.percentile(above, 95)),
    }


PROGRAM = program(__name__, run, experiment, quick=QUICK)
