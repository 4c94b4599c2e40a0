"""A rigid body tumbles and bounces on a plane: `python -m problems.bouncing_bodies --set case=III`.

Cases I to IV of the LGVCI paper. The table shows the impacts. Energy, the orthogonality of the rotation and the
momentum along the plane are conserved to rounding. The figures show snapshots (Fig. 4), energies (Fig. 5) and their
errors (Fig. 6).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import nosnoc_py as ns
from models import bouncing_bodies
from models.bouncing_bodies import energy
from nosnoc_py.progress import Progress
from problems.figures import Curve, Panel, chart
from problems.runner import Report, program, tell
from problems.settings import Settings, defaults_of
from tests.references.tumbling import findings

METHOD = ns.LieGroupVariational(h=0.01)
QUICK = {"duration": 5.0}


def simulate(
    case: str = "I",
    duration: float = 10.0,
    restitution: float = 1.0,
    friction: float = 0.0,
    *,
    method: ns.LieGroupVariational = METHOD,
    callback: Callable[[Any], Any] | None = None,
) -> ns.Trajectory:
    """Simulate a case from its initial state."""
    body = bouncing_bodies.build(case, restitution=restitution, friction=friction)
    start = bouncing_bodies.start(body)
    return ns.simulate(body, x0=start, duration=duration, method=method, callback=callback)


def body_of(arguments: Mapping[str, Any]) -> Any:
    """Return the body of the arguments of `simulate`."""
    return bouncing_bodies.build(arguments["case"], **{key: arguments[key] for key in ("restitution", "friction")})


def run(settings: Settings, progress: Progress) -> Report:
    """Simulate and measure the conserved quantities."""
    arguments = {key: value for key, value in settings.arguments.items() if key != "film"}
    progress.describe("tumbling")
    started = time.monotonic()
    trajectory = simulate(**arguments, method=settings.method)
    seconds, body = time.monotonic() - started, body_of(arguments)
    values = findings(body, trajectory)
    steps = round(trajectory.duration / settings.method.h)
    results = {
        **trajectory.to_dict(),
        "objective": None,
        "infeasibility": max(values["penetration"], values["orthogonality"]),
        "iterations": steps,
        "steps": steps,
        "wall_seconds": seconds,
        **values,
    }
    case = arguments["case"]
    stem = f"bouncing_bodies_{case}"
    figures: dict[str, Callable[[Path], Any]] = {
        f"{stem}.png": lambda path: ns.snapshots(body, trajectory, path=path),
        f"{stem}_energies.png": lambda path: chart([energies(body, trajectory, case)]).savefig(path),
        f"{stem}_energy_errors.png": lambda path: chart([energy_errors(body, trajectory, case)]).savefig(path),
    }
    if settings.arguments["film"]:
        options = {"frames_per_second": 15, "size": (4.8, 3.0), "dots_per_inch": 90}
        figures[f"{stem}.gif"] = lambda path: ns.animate(body, trajectory, path, **options)
    return Report(
        results=results,
        success=trajectory.success,
        show=lambda console: tell(console, trajectory, values),
        figures=figures,
    )


def energies(body: Any, trajectory: ns.Trajectory, title: str) -> Panel:
    """Draw the energies over time (Fig. 5)."""
    parts = body.energies(trajectory.x)
    curves = {"total": parts.sum(axis=1), "translation, height": parts[:, 0] + parts[:, 1], "rotation": parts[:, 2]}
    return Panel(curves=[Curve(trajectory.t, y, name) for name, y in curves.items()], title=title, y="energy [J]")


def energy_errors(body: Any, trajectory: ns.Trajectory, title: str) -> Panel:
    """Draw |E(t) - E(0)| (Fig. 6), and the number of impacts."""
    total = energy(body, trajectory.x)
    curve = Curve(trajectory.t, np.abs(total - total[0]), style={"lw": 0.7})
    return Panel(curves=[curve], title=f"{title}: {len(trajectory.impacts)} impacts", y="$|E(t) - E(0)|$ [J]")


PROGRAM = program(__name__, run, {**defaults_of(simulate), "film": False}, quick=QUICK, method=METHOD)
