"""Certificates of time-freezing in physical time: its optimum is confirmed, solutions of trap B are refuted."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import particle as model
from nosnoc_py.reformulation.time_freezing import Frozen
from nosnoc_py.solution import RungeKuttaInterpolant
from problems.particle import METHOD, build
from tests.pairwise import slow_but
from tests.references import particle as references
from tests.references.friction_closed_forms import BY_NAME
from tests.shared import once

CASES = ("slip_2d", "slip_to_stick_2d", "reversal_2d", "slope_slide_2d", "landing_stick_2d", "landing_stop_2d")
OPTIMUM = references.piecewise_constant_optimum(20)
# The module, not the function of the same name.
transcribe = importlib.import_module("nosnoc_py.transcription.transcribe")


def throw() -> tuple[ns.OCP, ns.Solution]:
    """A particle that falls, slides on and is pushed to end 1.2 m away."""
    system = model.build(0.6)
    ocp = ns.OCP(
        system,
        horizon=1.0,
        x0=(0.0, 1.0, 3.0, 0.0),
        stage_cost=ca.sumsqr(system.u),
        terminal_constraints=[ns.Constraint(system.q[0], 1.2, 1.2)],
        bounds=ns.Bounds(u=(-20.0, 20.0)),
    )
    method = ns.TimeFreezing(a_n=9.81, fesd=ns.FESD(control_stages=2, finite_elements=4, rk_stages=2))
    return ocp, ns.solve(ocp, method, guess=[0.0, 0.0])


@pytest.fixture(scope="module", params=["throw", pytest.param("example 5", marks=pytest.mark.slow)])
def particle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[ns.OCP, ns.Solution]:
    """A small optimum, and example 5 from the exact motion under the best piecewise constant control."""
    if request.param == "throw":
        return throw()
    ocp, motion = build(), references.exact_motion(OPTIMUM.control).motion
    guess = {"x": lambda t: motion(t), "u": OPTIMUM.control[:, None]}
    return ocp, once(tmp_path_factory, "example_5", lambda: ns.solve(ocp, METHOD, guess=guess))


def unshared(freeze: Callable[..., Frozen]) -> Callable[..., Frozen]:
    """Time-freezing with one alpha_1 per Runge-Kutta stage: trap B."""

    def made(*arguments: Any, **options: Any) -> Frozen:
        frozen = freeze(*arguments, **options)
        return replace(frozen, system=replace(frozen.system, per_element=()))

    return made


def numerical(solution: ns.Solution) -> RungeKuttaInterpolant:
    assert solution.numerical is not None
    assert isinstance(solution.numerical.interpolant, RungeKuttaInterpolant)
    return solution.numerical.interpolant


# --- what is right ---


def test_the_optimum_is_confirmed(particle: tuple[ns.OCP, ns.Solution]) -> None:
    found = ns.certify(*particle)
    assert found.verdict is ns.Verdict.CONFIRMED, found
    assert found.end_state_error < 1e-8
    assert found.equations is not None
    assert found.equations < 1e-8
    assert found.jumps < 1e-8
    assert found.findings == ()
    stops = ["stick"] * (particle[0].horizon == 2.0)
    assert [pair.claimed.kind for pair in found.events if pair.claimed] == ["impact", "contact", *stops]
    assert all(abs(pair.delay) < 1e-8 for pair in found.events)


@pytest.mark.parametrize("name", slow_but(["slip_to_stick_2d", "reversal_2d", "landing_stop_2d"], CASES))
def test_closed_forms_are_confirmed(name: str) -> None:
    """Every law of friction at the stages: simulations that stand in for optimised solutions."""
    case = BY_NAME[name]
    method = ns.TimeFreezing(fesd=ns.FESD(finite_elements=4, rk_stages=2))
    motion = ns.simulate(case.system, x0=case.x0, u=case.u, duration=case.duration, steps=3, method=method)
    ocp = ns.OCP(case.system, horizon=case.duration, x0=case.x0)
    fields = {f.name: getattr(motion, f.name) for f in dataclasses.fields(motion)}
    names = ["complementarity", "complementarity_min", "infeasibility", "objective"]
    residuals: dict[str, Any] = dict.fromkeys(names, 0.0)
    solution = ns.Solution(**fields, **residuals, x0=ocp.x0, p=ocp.p, horizon=ocp.horizon, method=repr(method))
    found = ns.certify(ocp, solution)
    assert found.verdict is ns.Verdict.CONFIRMED, found
    assert found.equations is not None
    assert found.equations < 1e-8


# --- what is wrong ---


@pytest.mark.slow
def test_trap_b_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the true optimum with residuals of rounding: the clock runs while an element jumps."""
    ocp = build()
    monkeypatch.setattr(transcribe, "freeze", unshared(transcribe.freeze))
    false = ns.transcribe(ocp, METHOD).solve(guess=OPTIMUM.control[:, None])
    assert false.success
    assert max(false.complementarity, false.infeasibility) < 1e-8
    assert false.objective == pytest.approx(72.5877, abs=1e-3)
    found = ns.certify(ocp, false)
    assert found.verdict is ns.Verdict.REFUTED, found
    assert found.end_state_error > 1e-3
    assert found.equations is not None
    assert found.equations > 0.1
    standing = [f.time for f in found.findings if "physical time stands still" in f.what]
    assert standing
    assert max(standing) == pytest.approx(np.sqrt(2.0 / 9.81), abs=0.1)
    assert "law of restitution" in found.reason + " ".join(f.what for f in found.findings)


def test_a_bent_motion_is_refuted_where_it_is(particle: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = particle
    inner = numerical(solution)
    element = int(np.argmin(np.abs(inner.x_left[:, -1] - {2.0: 1.2, 1.0: 0.2}[ocp.horizon])))
    stages = inner.x_stages.copy()
    stages[element, 0, 2] += 1e-3  # v_x
    assert solution.numerical is not None
    motion = replace(solution.numerical, interpolant=replace(inner, x_stages=stages))
    found = ns.certify(ocp, replace(solution, numerical=motion))
    assert found.verdict is ns.Verdict.REFUTED
    assert found.findings[0].time == pytest.approx(float(stages[element, 0, -1]), abs=1e-12)
    assert "no force explains the acceleration v_x'" in found.findings[0].what


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: {"objective": s.objective - 0.1}, "the stated objective is"),
        (lambda s: {"u": s.u + 0.5}, "no force explains the acceleration v_x'"),
        (lambda s: {"events": tuple(replace(e, impulse=5.0) if e.kind == "impact" else e for e in s.events)}, "listed"),
        (
            lambda s: {
                "series": {
                    **s.series,
                    "lambda_normal[ground]": replace(
                        s.series["lambda_normal[ground]"], values=s.series["lambda_normal[ground]"].values + 0.1
                    ),
                }
            },
            "no force explains the acceleration v_y'",
        ),
    ],
)
def test_false_statements_are_refuted(change: Any, words: str, particle: tuple[ns.OCP, ns.Solution]) -> None:
    ocp, solution = particle
    found = ns.certify(ocp, replace(solution, **change(solution)))
    assert found.verdict is ns.Verdict.REFUTED
    assert any(words in finding.what for finding in found.findings), found.findings


def test_bounds_are_those_at_the_stages(particle: tuple[ns.OCP, ns.Solution]) -> None:
    """A tighter bound than that of the OCP it was solved for."""
    ocp, solution = particle
    most = [solution.final_state[0] - 0.5, 10.0, 20.0, 20.0]
    narrow = replace(ocp, bounds=ns.Bounds(u=ocp.u_bounds, x=([-10.0, -1.0, -20.0, -20.0], most)))
    found = ns.certify(narrow, solution)
    assert any("the bound of x is violated" in f.what for f in found.findings)
