"""A closed loop: the motion of the plant with the plans, the push, and iterations per sample."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nosnoc_py.plotting.figures import dense_output
from problems.drawing.style import COLOURS, GREY, figure, save, tidy

if TYPE_CHECKING:
    from problems.receding_horizon import Step


def loop(steps: Sequence[Step], goal: float, path: Path) -> None:
    """Draw positions over time, thin where they were only planned; the push applied; iterations of both starts."""
    made = figure(7.0, 6.5)
    motion, push, effort = made.subplots(3, 1, height_ratios=[2.0, 1.0, 1.2])
    for step in steps:
        planned, x = dense_output(step.plan)
        real, y = dense_output(step.motion)
        for i in range(2):
            motion.plot(step.time + planned, x[:, i], color=COLOURS[i], lw=0.5, alpha=0.5)
            label = ("$x$ [m]", "$y$ [m]")[i] if step is steps[0] else None
            motion.plot(step.time + real, y[:, i], color=COLOURS[i], lw=2.0, label=label)
    motion.axhline(goal, color=GREY, lw=0.8, ls="--")
    motion.legend(frameon=False, fontsize=8, loc="center right")
    motion.set_ylabel("position [m]; thin: plans", fontsize=8)
    motion.set_xlabel("$t$ [s]", fontsize=8)
    period = steps[0].motion.duration
    edges = [step.time for step in steps] + [steps[-1].time + period]
    push.stairs([float(step.plan.u[0, 0]) for step in steps], edges, color=COLOURS[0], lw=1.6, baseline=None)
    push.set_ylabel("push [N]", fontsize=8)
    push.set_xlabel("$t$ [s]", fontsize=8)
    numbers = np.arange(1, len(steps))
    starts = {"shifted plan": [s.plan for s in steps[1:]], "default start": [s.cold for s in steps[1:]]}
    for k, (label, plans) in enumerate(starts.items()):
        values = [plan.iterations for plan in plans]
        effort.bar(numbers + 0.4 * (k - 0.5), values, 0.4, color=COLOURS[k], label=f"from the {label}")
    effort.set_yscale("log")
    effort.set_ylabel("iterations", fontsize=8)
    effort.set_xlabel("sample", fontsize=8)
    effort.legend(frameon=False, fontsize=8)
    for axes in (motion, push, effort):
        tidy(axes)
    save(made, path)
