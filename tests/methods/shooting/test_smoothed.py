"""Direct shooting on smoothed systems: optima in closed form, honest residuals, statuses, wrong input."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import sliding_mode
from nosnoc_py.errors import ModelError, OptionError, TranscriptionError
from nosnoc_py.methods.shooting.options import KINDS, DirectShooting, SmoothedShooting
from nosnoc_py.methods.shooting.smoothed import SmoothedState
from nosnoc_py.options import strictest
from nosnoc_py.status import Status
from nosnoc_py.systems.hybrid import HybridSystem, StateJump

pytestmark = pytest.mark.quick

GRAVITY, FRICTION, SPEED, WEIGHT = 9.81, 0.1, 2.0, 100.0
METHOD = SmoothedShooting(control_stages=4, steps=2, sigma_0=0.1, sigma_min=1e-3)


def slider(friction: float = FRICTION, nominal: float = GRAVITY, **changes: Any) -> ns.OCP:
    """A unit mass that slides with 2 m/s and is to be at x = 2.2 with 2.5 m/s after one second."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=friction)
    system = ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=ca.DM.eye(2),
        force=ca.vertcat(u, -GRAVITY),
        contacts=[ground],
        nominal={"force": nominal},
    )
    cost = WEIGHT * ((q[0] - 2.2) ** 2 + (v[0] - 2.5) ** 2)
    fields = {"horizon": 1.0, "x0": (0, 0, SPEED, 0), "stage_cost": u**2, "terminal_cost": cost}
    return ns.OCP(system, **{**fields, **changes})


def optimum(friction: float = FRICTION) -> tuple[np.ndarray, float]:
    """Controls and cost of the slider while it slips forward: least squares, as x and v are linear in four controls."""
    h = 0.25
    moves = np.vstack([h**2 / 2 + h * h * np.arange(3, -1, -1), np.full(4, h)])
    offset = np.array([2.2 - SPEED, 2.5 - SPEED])
    offset += friction * GRAVITY * np.array([0.5, 1.0])
    rows = np.vstack([np.sqrt(h) * np.eye(4), np.sqrt(WEIGHT) * moves])
    target = np.concatenate([np.zeros(4), np.sqrt(WEIGHT) * offset])
    u, *_ = np.linalg.lstsq(rows, target, rcond=None)
    return u, float(((rows @ u - target) ** 2).sum())


def switching(**changes: Any) -> ns.OCP:
    """x' = u - 2 for x < 0 and u beyond; from -1 to 1 in one second."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    modes = ns.Modes("side", flows=[u, u - 2], functions=x, signs=[[1], [-1]])
    fields = {"horizon": 1.0, "x0": [-1.0], "stage_cost": u**2}
    end = ns.Constraint(x, 1.0, 1.0, name="end")
    return ns.OCP(ns.PSS(x=x, u=u, modes=modes), **{**fields, "terminal_constraints": [end], **changes})


# --- optima ---


def test_a_sliding_block_reaches_the_optimum_in_closed_form() -> None:
    """Friction is off by mu g (sigma / v)^2 / 2, and so is the cost, of second order."""
    u, cost = optimum()
    errors = []
    for sigma in (0.3, 0.1, 0.03):
        found = METHOD.replace(sigma_0=sigma, sigma_min=sigma).solve(slider())
        errors.append(abs(found.objective - cost))
    assert np.log10(errors[0] / errors[1]) / np.log10(3) == pytest.approx(2.0, abs=0.2)
    assert np.log10(errors[1] / errors[2]) / np.log10(10 / 3) == pytest.approx(2.0, abs=0.2)
    found = METHOD.solve(slider())
    assert found.objective == pytest.approx(cost, abs=1e-5)
    assert found.u[:, 0] == pytest.approx(u, abs=1e-5)
    assert abs(optimum(friction=0.0)[1] - cost) > 0.1  # negative control: without friction it is another one


def test_a_ride_along_an_edge_costs_more_by_sigma() -> None:
    """The optimum of the sliding mode in continuous time, from which 20 constant controls are 1.4e-4 away."""
    best = sliding_mode.optimum(sliding_mode.STANDARD).cost
    method = SmoothedShooting(control_stages=20, steps=4)
    excess = []
    for sigma in (1e-1, 1e-2, 1e-3):
        found = method.replace(sigma_min=sigma).solve(sliding_mode.problem(sliding_mode.STANDARD))
        excess.append(found.objective - best)
        assert found.complementarity < 0.5 * sigma
    assert excess[0] > 3 * excess[1] > 9 * excess[2] > 0
    assert excess[2] < 1e-3


def test_sigma_falls_to_its_last_value_on_one_set_of_functions() -> None:
    states: list[SmoothedState] = []
    found = METHOD.replace(kappa=0.2).solve(slider(), callback=states.append)
    assert [record.sigma for record in found.log] == pytest.approx([0.1, 0.02, 0.004, 0.001])
    assert len({id(state.solvers) for state in states}) == 1
    assert [state.last_sigma for state in states] == pytest.approx([0.1, 0.02, 0.004, 0.001])
    assert found.log[-1].iterations < found.log[0].iterations  # each begins where the last one ended
    assert "sigma 2.0e-02" in repr(states[0])


# --- what is reported ---


def test_the_solution_is_one_of_the_original_system() -> None:
    ocp = slider()
    found = METHOD.solve(ocp)
    assert found.state_names == ocp.system.state_names
    assert found.parameters == {}
    assert found.p.size == 0
    assert {"lambda_normal[ground]", "lambda_tangent[ground]", "slip[ground]"} <= set(found.series)
    assert found["lambda_normal[ground]"] == pytest.approx(np.full(16, GRAVITY), abs=1e-6)
    assert found["lambda_tangent[ground]"] == pytest.approx(np.full(16, -FRICTION * GRAVITY), abs=1e-5)
    assert found.units["lambda_normal[ground]"] == "N"
    assert "sigma_min=0.001" in found.method


def test_what_is_left_is_not_called_solved() -> None:
    found = METHOD.solve(slider(nominal=1.0))
    assert found.status is Status.NOT_COMPLEMENTARY
    # At rest on the ground phi = 9.81: a penetration by sigma (9.81 - 1 / 9.81).
    deep = 1e-3 * (GRAVITY - 1 / GRAVITY)
    assert found.infeasibility == pytest.approx(deep, rel=0.2)
    assert found.complementarity == pytest.approx(deep, rel=0.2)  # the force is the larger factor
    assert "smoothing sigma = 1.0e-03 is left" in found.message
    assert "ns.FESDJ" in found.message
    assert any("gap[ground]" in residual.name for residual in found.worst)


def test_success_is_a_question_of_tolerances_on_the_original_problem() -> None:
    loose = METHOD.replace(sigma_0=1.0, complementarity_tolerance=1e-2, infeasibility_tolerance=1e-6)
    found = loose.solve(slider())
    assert found.status is Status.SOLVED
    assert found.message == ""
    assert found.log[-1].sigma > METHOD.sigma_min  # no smaller one was asked
    assert found.complementarity <= 1e-2


def test_finite_elements_start_from_it() -> None:
    found = METHOD.solve(slider())
    exact = ns.solve(slider(), ns.FESDJ(control_stages=4, finite_elements=2), guess=found)
    assert exact.success
    assert exact.objective == pytest.approx(optimum()[1], abs=1e-7)


def test_an_own_solution_is_a_guess() -> None:
    first = METHOD.solve(slider())
    again = METHOD.replace(sigma_0=1e-3).solve(slider(), guess=first)
    assert again.iterations < first.iterations
    assert again.objective == pytest.approx(first.objective, abs=1e-8)


def test_impacts_shorter_than_the_steps_are_told() -> None:
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    ball = ns.Contact("ground", gap=q, restitution=0.5)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM(1), force=u - GRAVITY, contacts=[ball])
    ocp = ns.OCP(system, horizon=0.5, x0=[0.5, 0.0], stage_cost=u**2)
    assert "restitution is not resolved" in METHOD.solve(ocp).message
    resolved = METHOD.replace(control_stages=1, steps=60, sigma_0=1.0, sigma_min=0.1).solve(ocp)
    assert "restitution" not in resolved.message


# --- what the transcription gives ---


def test_free_start_time_and_parameters() -> None:
    """A way of 3 with the gain 2: u = 1.5 / T costs 1.5^2 / T + T, least at T = 1.5, far from where it starts."""
    x, u, p = ca.SX.sym("x"), ca.SX.sym("u"), ca.SX.sym("p")
    modes = ns.Modes("side", flows=[p * u, p * u], functions=x + 10, signs=[[1], [-1]])
    system = ns.PSS(x=x, u=u, p=p, modes=modes, names={"p": ["gain"]}, p_default=[1.0])
    ocp = ns.OCP(
        system,
        horizon=ns.FreeTime(0.5, 3.0, initial=2.5),
        stage_cost=u**2 + 1,
        free_parameters={"gain": (0.5, 2.0)},
        bounds=ns.Bounds(x=([-1.0], [4.0])),
        initial_constraints=[ns.Constraint(x, -1.0, 0.0, name="start")],
        terminal_constraints=[ns.Constraint(x - system.x_initial, 3.0, np.inf, name="away")],
    )
    found = METHOD.solve(ocp)
    assert found.horizon == pytest.approx(1.5, abs=1e-6)
    assert found.parameters == pytest.approx({"gain": 2.0}, abs=1e-6)
    assert found.objective == pytest.approx(3.0, abs=1e-6)
    assert found.final_state - found.x0 == pytest.approx([3.0], abs=1e-7)
    assert found.multipliers["away"].values[0] < 0  # at its lower bound


def test_path_constraints_hold() -> None:
    ocp = slider()
    slow = ns.Constraint(ocp.system.v[0], None, 2.2, name="slow", at="element_ends")
    found = METHOD.solve(slider_of(ocp, path_constraints=[slow]))
    assert found.x[1:, 2].max() == pytest.approx(2.2, abs=1e-6)
    assert METHOD.solve(ocp).x[1:, 2].max() > 2.3  # negative control


def slider_of(ocp: ns.OCP, **changes: Any) -> ns.OCP:
    """The same system with other constraints."""
    fields = {name: getattr(ocp, name) for name in ("horizon", "x0", "stage_cost", "terminal_cost")}
    return ns.OCP(ocp.system, **{**fields, **changes})


def test_own_complementarities_are_relaxed_by_sigma() -> None:
    """u = a - b with 0 <= a, b: the cost a + b chooses b = 0."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u", 2)
    modes = ns.Modes("side", flows=[u[0] - u[1], u[0] - u[1]], functions=x + 10, signs=[[1], [-1]])
    ocp = ns.OCP(
        ns.PSS(x=x, u=u, modes=modes),
        horizon=1.0,
        x0=[0.0],
        stage_cost=ca.sumsqr(u),
        complementarities=[ns.Complementarity(u[0], u[1])],
        terminal_constraints=[ns.Constraint(x, 1.0, 1.0)],
    )
    found = METHOD.solve(ocp)
    assert found.objective == pytest.approx(1.0, abs=1e-5)
    assert found.complementarity < 2e-3


# --- statuses ---


def test_a_time_limit_leaves_the_start() -> None:
    found = METHOD.solve(slider(), time_limit=0)
    assert found.status is Status.TIME_LIMIT
    assert found.log == ()
    assert found.x[-1] == pytest.approx([0, 0, SPEED, 0])


def test_a_callback_stops() -> None:
    found = METHOD.solve(slider(), callback=lambda state: ns.Stop if state.step == 2 else None)
    assert found.status is Status.STOPPED
    assert len(found.log) == 2
    assert "smoothing sigma" in found.message


def test_an_interrupt_keeps_the_last_iterate() -> None:
    def interrupt(state: SmoothedState) -> None:
        raise KeyboardInterrupt

    found = METHOD.solve(slider(), callback=interrupt)
    assert found.status is Status.INTERRUPTED
    assert len(found.log) == 1


def test_too_few_iterations() -> None:
    found = METHOD.replace(max_iterations=1).solve(switching())
    assert found.status is Status.ITERATION_LIMIT
    assert "no smoothed problem was solved" in found.message


def test_what_cannot_be_reached_is_infeasible() -> None:
    found = METHOD.solve(switching(bounds=ns.Bounds(u=(0.0, 1.0))))
    assert found.status is Status.LOCALLY_INFEASIBLE
    assert found.infeasibility > 0.1


def test_what_is_no_number_is_a_status() -> None:
    ocp = slider()
    found = METHOD.solve(slider_of(ocp, stage_cost=ca.sqrt(-1 - ocp.system.u**2)))
    assert found.status is Status.NUMERICAL_ERROR


def test_failures_keep_the_last_solved_problem() -> None:
    """Twenty iterations are enough for a first problem from its solution, but not for one a million times sharper."""
    ocp = sliding_mode.problem(sliding_mode.STANDARD)
    method = SmoothedShooting(control_stages=20, sigma_0=0.1, sigma_min=0.1)
    first = method.solve(ocp)
    few = method.replace(kappa=1e-6, sigma_min=1e-9, max_iterations=20).solve(ocp, guess=first)
    assert few.status is Status.NOT_COMPLEMENTARY
    assert few.objective == pytest.approx(first.objective, abs=1e-6)
    assert "smoothing sigma = 1.0e-01 is left, smaller ones failed" in few.message


# --- wrong input ---


def test_the_forms() -> None:
    assert isinstance(DirectShooting(), SmoothedShooting)
    assert DirectShooting("smoothed", steps=7).steps == 7  # type: ignore[union-attr]
    assert set(KINDS) == {"smoothed", "single", "phases"}
    with pytest.raises(OptionError, match="unknown form 'multiple'"):
        DirectShooting("multiple")  # type: ignore[arg-type]
    for nothing in ([], ["single"], None, 3):
        with pytest.raises(OptionError, match="unknown form"):
            DirectShooting(nothing)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="ipopt"):
        DirectShooting("phases", ipopt={"max_iter": [3]})
    with pytest.raises(OptionError, match=r"unknown option 'step'.*steps"):
        DirectShooting(step=3)


@pytest.mark.parametrize(
    "changes",
    [{"sigma_0": 1e-9}, {"kappa": 1.0}, {"steps": 0}, {"control_stages": 0}, {"scheme": "euler"}, {"sigma_min": -1.0}],
)
def test_wrong_options(changes: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        METHOD.replace(**changes)


def test_wrong_arguments() -> None:
    with pytest.raises(OptionError, match="ocp"):
        METHOD.solve(3)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="callback"):
        METHOD.solve(slider(), callback=3)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="time_limit"):
        METHOD.solve(slider(), time_limit=-1.0)
    with pytest.raises(TranscriptionError, match="expected 1 numbers"):
        METHOD.solve(slider(), guess=[1.0, 2.0])
    with pytest.raises(OptionError, match="IPOPT"):
        METHOD.replace(ipopt={"no_such_option": 1}).solve(slider())
    with pytest.raises(ModelError, match="penetrates"):
        slider(x0=(0, -1, 0, 0))


def test_a_projected_system_is_refused() -> None:
    x = ca.SX.sym("x")
    ocp = ns.OCP(ns.PDS(x=x, flow=ca.SX(-1), constraints=x), horizon=1.0, x0=[1.0])
    with pytest.raises(OptionError, match=r"ns\.FESD"):
        METHOD.solve(ocp)


def test_a_hybrid_system_is_refused() -> None:
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    system = HybridSystem(x=x, u=u, flow=u, jumps=[StateJump("spike", guard=1 - x, reset=ca.SX(0))])
    ocp = ns.OCP(system, horizon=1.0, x0=[0.0], stage_cost=u**2)
    with pytest.raises(OptionError, match=r"ns\.MinimumPrinciple.*form='phases'") as error:
        METHOD.solve(ocp)
    assert "PDS" not in str(error.value)


@pytest.mark.parametrize(("option", "call"), [(0.0, None), (None, 0.0), (0.0, 100.0), (100.0, 0.0)])
def test_the_stricter_time_limit_counts(option: float | None, call: float | None) -> None:
    found = METHOD.replace(time_limit=option).solve(slider(), time_limit=call)
    assert found.status is Status.TIME_LIMIT
    assert strictest(None, None) == np.inf


def test_without_contacts_nothing_is_left() -> None:
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM(1), force=u)
    ocp = ns.OCP(system, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_constraints=[ns.Constraint(v, 1.0, 1.0)])
    found = METHOD.solve(ocp)
    assert found.status is Status.SOLVED
    assert found.objective == pytest.approx(1.0, abs=1e-8)
    assert len(found.log) == 1
