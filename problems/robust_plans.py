"""Three plans under uncertainty: a pole at a wall, a paddle and a ball, two discs: `python -m problems.robust_plans`.

Every problem is solved twice: for the middle of what is uncertain, tracked by `ns.track`, and with `uncertain=`. Random
draws are then simulated with both laws, event by event.

The wall is the cart-pole of Zhang et al. (2026, arXiv 2602.06864, "SURE"): the wall is near -0.5 m, its restitution is
between 0.7 and 0.9. Masses, lengths, limits and the terminal set of that paper are not known to us: these are our own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import casadi as ca
import numpy as np

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from nosnoc_py.systems.scene import Disc, Line
from problems.runner import Report, program, tabled
from problems.settings import Settings

GRAVITY, LENGTH = 9.81, 0.5
LOOK = {"fps": 12, "dpi": 70, "slower": 3}


@dataclass(frozen=True, eq=False, kw_only=True)
class RobustTask:
    """A problem and what is uncertain of it."""

    name: str
    ocp: ns.OCP
    uncertain: ns.Uncertain


def wall(width: float = 0.1) -> RobustTask:
    """Return the pole that falls against a wall and has to stand still above the middle 1.5 s later."""
    q, v, u, p = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u"), ca.SX.sym("p", 2)
    tip = ca.vertcat(q[0] + LENGTH * ca.sin(q[1]), LENGTH * ca.cos(q[1]))
    energy = ns.kinetic_energy(q, v, masses=[(1.0, ca.vertcat(q[0], 0)), (0.2, tip)])
    mechanics = ns.lagrangian(q=q, v=v, u=u, forces=ca.vertcat(u, 0), kinetic=energy, potential=0.2 * GRAVITY * tip[1])
    system = ns.CLS(
        q=q, v=v, u=u, p=p, p_default=[-0.5, 0.8], mass_matrix=mechanics.mass_matrix, force=mechanics.force,
        contacts=[ns.Contact("wall", gap=tip[0] - p[0], restitution=p[1])],
        scene=[Line([[q[0] - 0.1, 0], [q[0] + 0.1, 0]]), Line([[q[0], 0], tip]), Line([[p[0], 0.3], [p[0], 0.6]])],
        names={"q": ["cart", "angle"], "u": ["motor"], "p": ["wall", "restitution"]},
    )  # fmt: skip
    ocp = ns.OCP(
        system, horizon=1.5, x0=[0, -0.3, 0, -2.5], stage_cost=0.01 * u**2 + q[0] ** 2 + q[1] ** 2,
        terminal_state={"cart": (-0.1, 0.1), "angle": (-0.05, 0.05), "v_0": (-0.2, 0.2), "v_1": (-0.2, 0.2)},
        terminal_cost=10.0 * ca.sumsqr(system.x), bounds=ns.Bounds(u=(-20, 20)),
    )  # fmt: skip
    limits = {"wall": (-0.5 - width, -0.5 + width), "restitution": (0.7, 0.9)}
    return RobustTask(name="wall", ocp=ocp, uncertain=ns.Uncertain(parameters=limits))


def paddle() -> RobustTask:
    """Return the paddle that lifts a ball to half a metre by two bounces of uncertain restitution."""
    q, v, u, e = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u"), ca.SX.sym("e")
    system = ns.CLS(
        q=q, v=v, u=u, p=e, p_default=[0.8], mass_matrix=ca.diag(ca.vertcat(1.0, 0.1)),
        force=ca.vertcat(u - GRAVITY, -0.1 * GRAVITY),
        contacts=[ns.Contact("paddle", gap=q[1] - q[0], restitution=e)],
        scene=[Line([[-0.15, q[0]], [0.15, q[0]]]), Disc([0, q[1] + 0.03], 0.03)],
        names={"q": ["paddle", "ball"], "u": ["motor"], "p": ["restitution"]},
    )  # fmt: skip
    ocp = ns.OCP(
        system, horizon=1.2, x0=[0, 0.5, 0, 0], stage_cost=1e-3 * (u - GRAVITY) ** 2,
        terminal_state={"paddle": (-0.2, 0.2), "ball": (0.46, 0.54), "v_1": (-0.3, 0.3)}, bounds=ns.Bounds(u=(-40, 40)),
    )  # fmt: skip
    return RobustTask(name="paddle", ocp=ocp, uncertain=ns.Uncertain(parameters={"restitution": (0.7, 0.9)}))


def discs() -> RobustTask:
    """Return the disc that pushes another one to a place; friction of the table and the start are uncertain."""
    q, v, u, p = ca.SX.sym("q", 4), ca.SX.sym("v", 4), ca.SX.sym("u", 2), ca.SX.sym("p")
    between = q[2:] - q[:2]
    system = ns.CLS(
        q=q, v=v, u=u, p=p, p_default=[2.0], mass_matrix=ca.DM.eye(4), force=ca.vertcat(u, -p * v[2:]),
        contacts=[ns.Contact("touch", gap=ca.norm_2(between) - 0.2)],
        scene=[Disc(q[:2], 0.1), Disc(q[2:], 0.1)],
        names={"q": ["x", "y", "disc_x", "disc_y"], "u": ["force_x", "force_y"], "p": ["friction"]},
    )  # fmt: skip
    goal = ca.vertcat(1.0, 0.0)
    ocp = ns.OCP(
        system, horizon=2.0, x0=[-0.5, 0.1, 0, 0, 0, 0, 0, 0], stage_cost=0.01 * ca.sumsqr(u),
        terminal_state={"disc_x": (0.97, 1.03), "disc_y": (-0.03, 0.03)}, terminal_cost=10 * ca.sumsqr(q[2:] - goal),
        bounds=ns.Bounds(u=(-2, 2)),
    )  # fmt: skip
    start = {"disc_x": (-0.03, 0.03), "disc_y": (-0.03, 0.03)}
    return RobustTask(name="discs", ocp=ocp, uncertain=ns.Uncertain(parameters={"friction": (1.0, 3.0)}, x0=start))


TASKS: Mapping[str, Callable[[], RobustTask]] = {"wall": wall, "paddle": paddle, "discs": discs}


@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """Nominal and robust plan of a task, and the success of both laws in the same draws."""

    task: RobustTask
    nominal: ns.Solution
    robust: ns.RobustSolution
    tracked: ns.Success
    planned: ns.Success
    seconds: float


def compared(
    task: RobustTask,
    draws: int = 1000,
    seed: int = 0,
    effort: Literal["quick", "normal", "thorough"] = "normal",
    measure: Literal["expected", "worst"] = "expected",
    workers: int = 1,
) -> Comparison:
    """Return both plans of a task with their success."""
    nominal = ns.solve(task.ocp, effort=effort)
    law, started = ns.track(nominal), time.process_time()
    robust = ns.solve(
        task.ocp, uncertain=task.uncertain, effort=effort, guess=nominal, measure=measure, workers=workers
    )
    seconds = time.process_time() - started
    assert isinstance(robust, ns.RobustSolution)
    assert robust.law is not None
    more: dict[str, Any] = {"seed": seed, "uncertain": task.uncertain, "workers": workers}
    return Comparison(
        task=task, nominal=nominal, robust=robust, tracked=law.success(draws, ocp=task.ocp, **more),
        planned=robust.law.success(draws, **more), seconds=seconds,
    )  # fmt: skip


def experiment(
    tasks: Sequence[str] = tuple(TASKS),
    draws: int = 1000,
    seed: int = 0,
    effort: str = "normal",
    measure: str = "expected",
    workers: int = 1,
) -> list[Comparison]:
    """Return the comparisons of tasks by their names."""
    named: dict[str, Any] = {"effort": effort, "measure": measure}
    return [compared(TASKS[name](), draws, seed, workers=workers, **named) for name in tasks]


def row_of(each: Comparison) -> dict[str, Any]:
    """Return the line of a comparison in the table; probabilities in per cent."""
    low, high = each.planned.interval
    mean = float(np.average([one.objective for one in each.robust.scenarios]))
    return {
        "task": each.task.name,
        "tracked": 100 * each.tracked.probability, "predicted": 100 * each.tracked.predicted,
        "robust": 100 * each.planned.probability, "95 %": f"{100 * low:.1f} to {100 * high:.1f}",
        "robust, predicted": 100 * each.planned.predicted,
        "objective, nominal": each.nominal.objective, "objective, robust": mean,
        "scenarios": len(each.robust.scenarios), "steps": each.robust.iterations, "seconds": each.seconds,
    }  # fmt: skip


def run(settings: Settings, progress: Progress) -> Report:
    """Compare, and report whether the robust plans have at most half of the failures."""
    found = experiment(**settings.arguments)
    halved = all(1 - each.planned.probability <= 0.5 * (1 - each.tracked.probability) for each in found)
    rows = [row_of(each) for each in found]
    said = [f"{each.task.name}: {each.planned!r}" for each in found]
    return tabled({"rows": rows}, halved, {"success in per cent of the draws, and mean objectives": rows}, said=said)


def film(path: str | Path, draws: int = 50, seed: int = 1, effort: str = "normal") -> Path:
    """Write a film of draws of the pole at the wall: left the tracked plan, right the robust one, failures in red."""
    task, named = wall(), {"effort": effort}
    found = compared(task, draws, seed, **cast(Any, named))
    assert found.robust.law is not None
    laws = {"tracked plan": (ns.track(found.nominal), found.tracked), "robust plan": (found.robust.law, found.planned)}
    times = np.arange(0.0, task.ocp.horizon, 1.0 / (LOOK["fps"] * LOOK["slower"]))
    shown = {}
    for title, (law, test) in laws.items():
        motions = []
        for values in test.values:
            x0, p = task.uncertain.apply(values, task.ocp.x0, task.ocp.p, task.ocp.system)
            u = ns.SampledLaw(law, law.period)
            motions.append((ns.simulate(task.ocp.system, x0=x0, duration=task.ocp.horizon, u=u, p=p)(times), p[0]))
        shown[f"{title}: {test.held.sum()} of {test.n}"] = (motions, test.held)
    return _drawn(shown, times, Path(path))


def _drawn(shown: Mapping[str, Any], times: np.ndarray, path: Path) -> Path:
    from matplotlib import pyplot as plt
    from matplotlib.animation import FuncAnimation, PillowWriter

    figure, axes = plt.subplots(1, len(shown), figsize=(8.0, 3.0), layout="constrained", squeeze=False)

    def draw(k: int) -> None:
        for axis, (title, (motions, held)) in zip(axes[0], shown.items(), strict=True):
            axis.clear()
            axis.set(xlim=(-1.0, 0.8), ylim=(-0.15, 0.65), aspect="equal", title=title)
            for (states, place), holds in zip(motions, held, strict=True):
                cart, angle = states[k, :2]
                style = {"color": "C0" if holds else "C3", "alpha": 0.25, "lw": 1.5}
                axis.plot([cart, cart + LENGTH * np.sin(angle)], [0, LENGTH * np.cos(angle)], **style)
                axis.plot([cart - 0.06, cart + 0.06], [0, 0], **{**style, "lw": 3})
                axis.plot([place, place], [0.25, 0.6], color="k", alpha=0.06, lw=1)
        axes[0, 0].text(0.02, 0.03, f"t = {times[k]:.2f} s", transform=axes[0, 0].transAxes)

    path.parent.mkdir(parents=True, exist_ok=True)
    FuncAnimation(figure, draw, frames=len(times)).save(path, PillowWriter(fps=LOOK["fps"]), dpi=LOOK["dpi"])
    plt.close(figure)
    return path


PROGRAM = program(__name__, run, experiment, quick={"tasks": ("paddle",), "draws": 20, "effort": "quick"})
