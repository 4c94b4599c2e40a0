"""The problems among the examples that measure something, by name."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from nosnoc_py.errors import OptionError, UnknownNameError
from nosnoc_py.sweep import references

BENCHMARKS = {
    "contact_table": "contact problems of others from a naive start: the default beside elements and smoothing",
    "simulation_cost": "whole simulations by default against DOP853 written by hand, at equal errors",
    "simulation_accuracy": "error over time of simulations with contacts, beside MuJoCo ([bench]) and Drake",
    "simulation_speed": "seconds per step by Newton's method and by MPCCs",
    "simulation_orders": "orders of convergence of all simulators",
    "resolve_speed": "solving again through one transcribed problem, beside fresh solves",
    "closed_loops": "ten closed loops under ns.MPC: sources of controls, processor time, late samples, cost",
    "recorded_samples": "answers of real-time samples of closed loops beside optima of more time, all simulated",
    "contact_filters": "filters and smoothers through impacts beside the published salted filters: errors, coverage",
    "qpcc_orders": "searches over orders of contacts in random QPCCs beside enumeration and relaxation: time, optima",
    "two_balls_order": "order of FESD-J through impacts, and its loss without switch detection",
    "oscillator_order": "order of FESD through switches, and its loss with fixed steps",
    "event_selected_order": "order of event-selected integration, with the published projection and a better one",
    "event_selected_mujoco": "seconds per contact on beds of springs, beside MuJoCo (extra [bench])",
    "event_selected_hopper": "the spring hopper against its closed form and MuJoCo (extra [bench])",
    "plate_on_springs": "errors of event-selected integration on 2 to 100 springs",
    "bouncing_bodies_ensemble": "energy and counts of collisions of tumbling bodies over long times",
    "many_balls": "seconds per step of time-stepping with up to thousands of contacts",
    "friction_cases": "errors of states and events on fifty motions with friction in closed form",
    "impact_instants": "all methods on random impacts of several contacts, against enumeration of the law's solutions",
    "gradients": "gradients backwards through simulations: errors, costs in simulations, finite on random scenes",
    "referee": "the event-driven referee against closed forms and FESD-J, and its certificates",
    "spoiled_solutions": "verdicts of certificates on true solutions and on ones that are spoiled at random",
    "smoothing": "what smoothed contact costs beside FESD-J: objective, error, time",
    "two_discs_compare": "the minimum principle beside HMP-MAS, direct shooting and FESD-J: cost, time, orders",
    "robot_files": "robot files of six other packages: how many load, and errors beside MuJoCo and Pinocchio",
    "nosbench": "MPCC solvers on a folder of NOSBENCH problems: nosnoc-py benchmark nosbench DIR",
}
REFERENCES = "tests.references"  # closed forms and oracles, which benchmarks compare with
WHAT_TO_DO = (
    "Benchmarks and experiments run in a folder with the examples: `nosnoc-py examples DIR` copies them to DIR; run "
    "this command again in DIR."
)


def run(name: str, arguments: Sequence[str]) -> int:
    """Run a benchmark as `python -m problems.benchmarks.NAME` does; return its exit code.

    Raises
    ------
    UnknownNameError
        For another name.
    OptionError
        If the examples are not in the current folder.
    """
    if name not in BENCHMARKS:
        raise UnknownNameError(name, BENCHMARKS, "benchmark")
    return _called("problems.runner:run_by_name", name, list(arguments))


def reproduce(arguments: Sequence[str]) -> int:
    """Rerun the experiments of the papers by `problems.reproduce`; return its exit code.

    Raises
    ------
    OptionError
        If the examples are not in the current folder.
    """
    return _called("problems.reproduce:main", list(arguments))


def folder_of(module: str) -> Path | None:
    """Return the folder of a module, looked for in the current folder too; None if there is none."""
    with references.on_path(Path.cwd()):
        try:
            spec = find_spec(module)
        except ModuleNotFoundError:  # the package that it is in
            return None
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _called(reference: str, *arguments: Any) -> int:
    """Call a function of the examples; an error says how to get them."""
    for module in (reference.partition(":")[0], REFERENCES):
        if folder_of(module) is None:
            raise OptionError(f"{module} is not here. {WHAT_TO_DO}")
    with references.on_path(Path.cwd()):  # as long as it runs: problems import some things late
        code: int = references.function(reference)(*arguments)
    return code


def listed() -> str:
    """Return the benchmarks as lines for people."""
    width = max(map(len, BENCHMARKS)) + 2
    lines = [f"{name:<{width}}{about}" for name, about in BENCHMARKS.items()]
    return "\n".join([*lines, "", "nosnoc-py benchmark NAME [--quick] [--json] [--set KEY=VALUE ...] [--figures DIR]"])
