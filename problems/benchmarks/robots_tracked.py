"""Motions of robots with feedback: `python -m problems.benchmarks.robots_tracked --set kept=FOLDER`.

Every motion that `problems.benchmarks.robots` has saved in a folder is tracked by `ns.track`. The plant begins up to
1 cm and .05 rad beside the plan (coordinates without a unit: .01), and its contacts have 10 % less friction. A motion
is kept if no draw ends further from the plan than a tenth of its extent. Robots whose file MuJoCo reads are also
simulated by MuJoCo, with its soft contacts, from the state of the plan.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
from attrs import evolve

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems.robots import TASKS, builder
from problems.robots.files import wheel_file
from problems.runner import Report, program, tabled
from problems.settings import Settings

Array = np.ndarray
# Files of the tasks that MuJoCo simulates.
FILES = {
    "hopper": "assets/hopper.xml",
    "half_cheetah": "assets/half_cheetah.xml",
    "walker": "assets/walker2d_v5.xml",
    "ant": "assets/ant.xml",
}
LENGTH, ANGLE, FRICTION = 0.01, 0.05, 0.9


def experiment(
    names: tuple[str, ...] = tuple(TASKS), kept: str = "robots", seed: int = 0, draws: int = 5
) -> list[dict[str, Any]]:
    """Return a row for every motion in the folder."""
    rows = []
    for name in names:
        path = Path(kept) / f"{name}_{seed}.nc"
        if not path.exists():
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of files: they are said by `nosnoc-py robot`
            ocp = builder(name)()
        if ocp.system.n_u:
            rows.append(_tracked(name, ocp, ns.load(path), draws, seed))
    return rows


def _tracked(name: str, ocp: ns.OCP, plan: Any, draws: int, seed: int) -> dict[str, Any]:
    law = ns.track(plan, system=ocp.system, bounds=ocp.u_bounds)
    study = law.robustness(x0=_deviations(ocp.system), n=draws, seed=seed, plant=_slippery(ocp.system))
    return {
        "task": name,
        "kept": f"{len(study.errors) - study.lost} of {len(study.errors)}",
        "open loop": f"{int((study.open_loop_errors <= study.lost_beyond).sum())} of {len(study.errors)}",
        "largest error": float(study.errors.max()),
        "lost beyond": study.lost_beyond,
        "MuJoCo": _in_mujoco(law, FILES[name]) if name in FILES else "",
    }


def _deviations(system: ns.CLS) -> dict[str, float]:
    """Return half-widths of initial deviations of all coordinates; those of quaternions are half of an angle."""
    turns = {system.state_names[k] for part in system.unit_parts for k in range(part.start, part.stop)}
    widths = {name: ANGLE if system.units.get(name) == "rad" else LENGTH for name in system.names["q"]}
    return {**widths, **dict.fromkeys(turns, ANGLE / 2)}


def _slippery(system: ns.CLS) -> Any:
    """Return the system with less friction."""
    return system.with_fields(
        contacts=tuple(
            evolve(
                one,
                friction=[FRICTION * mu for mu in one.friction],
                static_friction=None if one.static_friction is None else FRICTION * one.static_friction,
            )
            if one.frictional
            else one
            for one in system.contacts
        )
    )


def _in_mujoco(law: ns.TrackingLaw, ending: str) -> float:
    """Return the largest final error of a coordinate in MuJoCo; infinite if its simulation fails."""
    system: Any = law.system
    slope = ca.Function("slope", [system.x, system.u, system.p], [ca.jacobian(system.force, system.u)])

    def forces(t: float, x: Array) -> Array:
        u = law(t, x)
        return np.array(slope(x, u, law.p)) @ u

    step = law.period / max(1, round(law.period / 5e-4))
    text = wheel_file("gymnasium", ending).read_text()
    import mujoco  # of the extra `robots`

    model = mujoco.MjModel.from_xml_string(text)
    model.opt.timestep = step
    plant = ns.MujocoPlant(model, period=law.period, forces=True, state_names=system.state_names)
    log = ns.close_loop(forces, plant, law.times[-1], law.states[0])
    if not log.success:
        return np.inf
    return float(np.abs(log.x[-1] - law.states[-1])[system.at_q].max())


def run(settings: Settings, progress: Progress) -> Report:
    """Track the motions; a success is a table in which no draw of any is lost."""
    rows = experiment(**settings.arguments)
    kept = [row["largest error"] <= row["lost beyond"] for row in rows]
    said = [f"{sum(kept)} of {len(rows)} keep all draws"]
    return tabled({"tracked": rows, "kept": sum(kept)}, all(kept), {"tracked": rows}, said=said)


PROGRAM = program(__name__, run, experiment, quick={"names": ("gripper",), "draws": 1})
