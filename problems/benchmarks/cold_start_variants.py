"""The same optimal control problem in other coordinates, other units and another order; and problems like it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np
from attrs import evolve

import nosnoc_py as ns
from nosnoc_py.systems.rescaled import rescaled
from problems.benchmarks.cold_start_problems import Problem
from problems.settings import defaults_of

CHANGES = ("numbers", "mirrored", "reordered", "mm, g")
MOST = 0.3  # largest relative change of a number
SHARES = ("restitution", "friction", "rough")  # numbers that stay in [0, 1]
MILLI = 1e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class Variant:
    """Variant of a problem, drawn at random.

    Parameters
    ----------
    problem, change : str
    ocp : OCP
    numbers : dict
        Numbers that were changed.
    """

    problem: str
    change: str
    ocp: ns.OCP
    numbers: dict[str, float]

    @property
    def same(self) -> bool:
        """True if its optimum is that of the problem."""
        return self.change != "numbers"


def draw(problems: dict[str, Problem], count: int, seed: int) -> list[Variant]:
    """Draw variants: a problem at random, the kinds of change in turns."""
    rng, variants = np.random.default_rng(seed), list[Variant]()
    for k in range(count):
        name = str(rng.choice(list(problems)))
        change = CHANGES[k % len(CHANGES)]
        numbers = drawn(problems[name], rng) if change == "numbers" else {}
        variants.append(
            Variant(problem=name, change=change, ocp=changed(problems[name], change, numbers), numbers=numbers)
        )
    return variants


def drawn(problem: Problem, rng: np.random.Generator) -> dict[str, float]:
    """Return numbers of a problem, each changed by up to 30 %."""
    defaults = {**defaults_of(problem.build), **problem.numbers}
    numbers = {name: float(defaults[name] * rng.uniform(1.0 - MOST, 1.0 + MOST)) for name in problem.drawn}
    return {name: min(value, 1.0) if name in SHARES else value for name, value in numbers.items()}


def changed(problem: Problem, change: str, numbers: dict[str, float] | None = None) -> ns.OCP:
    """Return a problem after one kind of change."""
    ocp = problem.ocp(**(numbers or {}))
    if change == "reordered":
        system = ocp.system
        return evolve(ocp, system=evolve(system, contacts=system.contacts[::-1])) if _touches(ocp) else ocp
    if change == "numbers":
        return ocp
    length, mass = (1.0, 1.0) if change == "mirrored" else (MILLI, MILLI)
    return restated(ocp, *factors(problem, change), length=length, mass=mass)


def factors(problem: Problem, change: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the factors that convert positions (of a PSS: states) and controls of a variant to the problem's."""
    if change == "mirrored":
        q, u = (np.array(signs, float) for signs in problem.mirror)
        return q, u
    powers = np.add(*np.array(problem.efforts, float))
    return MILLI ** np.array(problem.lengths, float), MILLI**powers


def restated(ocp: ns.OCP, q: np.ndarray, u: np.ndarray, *, length: float = 1.0, mass: float = 1.0) -> ns.OCP:
    """Return the same problem in other coordinates; the objective is unchanged.

    Parameters
    ----------
    ocp : OCP
        Without free parameters that have units.
    q, u : (n,)
        Factors of the old positions (of a PSS: states) and controls in the new ones.
    length, mass : float
        The new units in the old ones.
    """
    s = ocp.system
    x = np.concatenate([q, q]) if _touches(ocp) else q
    old = [s.x, s.u, s.x_initial]
    new = [ca.DM(x) * s.x, ca.DM(u) * s.u, ca.DM(x) * s.x_initial]

    def written(expression: Any) -> Any:
        return ca.substitute([ca.SX(expression)], old, new)[0]

    def with_controls(expression: Any) -> Any:
        return ca.substitute([ca.SX(expression)], [s.u], [ca.DM(u) * s.u])[0]

    system = _contacts(s, with_controls, q, length, mass) if _touches(ocp) else _modes(s, written, x)

    def constraint(c: ns.Constraint) -> ns.Constraint:
        # Linear rows have their own units; otherwise a user would have left the numbers unchanged.
        here, there = ca.SX(c.expression), written(c.expression)
        slopes = [ca.jacobian(e, s.x) for e in (here, there)]
        linear = not ca.symvar(slopes[0])
        scale = np.ones(here.numel())
        if linear:
            before, after = (np.abs(np.array(ca.evalf(slope))).max(axis=1) for slope in slopes)
            scale[after > 0] = before[after > 0] / after[after > 0]
        low, high = (None if b is None else scale * np.asarray(b, float).ravel() for b in (c.lower, c.upper))
        return evolve(c, expression=ca.DM(scale) * there, lower=low, upper=high)

    return evolve(
        ocp,
        system=system,
        x0=None if ocp.x0 is None else np.asarray(ocp.x0) / x,
        stage_cost=written(ocp.stage_cost),
        terminal_cost=written(ocp.terminal_cost),
        bounds=ns.Bounds(x=_bounds(ocp.x_bounds, x), u=_bounds(ocp.u_bounds, u)),
        path_constraints=[constraint(c) for c in ocp.path_constraints],
        initial_constraints=[constraint(c) for c in ocp.initial_constraints],
        terminal_constraints=[constraint(c) for c in ocp.terminal_constraints],
    )


def _contacts(s: ns.CLS, written: Any, q: np.ndarray, length: float, mass: float) -> ns.CLS:
    system = rescaled(s, q=q, gap=length, time=1.0, mass=mass)
    return evolve(system, force=written(system.force))


def _modes(s: ns.PSS, written: Any, x: np.ndarray) -> ns.PSS:
    modes = [
        evolve(m, flows=[written(f) / ca.DM(x) for f in m.flows], functions=written(m.functions), indicators=None)
        for m in s.modes
    ]
    return evolve(s, flow=written(s.flow) / ca.DM(x), modes=modes, units={}, nominal={})


def _bounds(bounds: Any, by: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    ends = np.array([np.asarray(bound, float) / by for bound in bounds])
    return ends.min(axis=0), ends.max(axis=0)


def _touches(ocp: ns.OCP) -> bool:
    return isinstance(ocp.system, ns.CLS)
