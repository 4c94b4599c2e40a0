"""Derivatives of steps of finite elements: against differences, against the referee's, and refused at kinks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import bouncing_ball, oscillator, particle, point_mass, pushed_point, relay_feedback, stick_slip
from nosnoc_py.api import Simulator
from nosnoc_py.simulation.fesd import SimulatorState
from nosnoc_py.simulation.step_sensitivity import StepDerivative, StepSensitivity
from nosnoc_py.solution import Sensitivity
from tests.pairwise import slow_but
from tests.references.friction_closed_forms import BY_NAME

GRAVITY = 9.81
FILIPPOV = ns.FESD(finite_elements=2, rk_stages=2)
STEP_FUNCTIONS = FILIPPOV.replace(dcs_mode="step")
JUMPS = ns.FESDJ(finite_elements=3, rk_stages=3)
FREEZING = ns.TimeFreezing(fesd=ns.FESD(finite_elements=4, rk_stages=3), a_n=GRAVITY)


def step(simulator: Simulator, x0: Any, u: Any, p: Any) -> SimulatorState:
    state = simulator.step(simulator.init(x0, p), u)
    assert state.status is ns.Status.SOLVED, state.message
    return state


def derivative_of(sensitivity: StepSensitivity, state: SimulatorState) -> StepDerivative:
    assert state.w is not None
    assert state.values is not None
    return sensitivity(state.w, state.values)


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """One step; `keeps` are the directions of x0, `moves` those of p, that keep what is closed at the start."""

    system: Any
    method: Any
    x0: Any
    u: Any = ()
    step: float = 0.1
    keeps: Any = None
    moves: Any = None
    solver: Any = None

    def derivative(self) -> StepDerivative:
        simulator = self.simulator()
        state = step(simulator, self.x0, np.array(self.u, float), self.system.p_default)
        return derivative_of(StepSensitivity(simulator.engine.problem), state)

    def simulator(self) -> Simulator:
        return Simulator(self.system, self.method, step=self.step, solver=self.solver)


def slider(friction: float, restitution: float = 0.0, dimension: int = 2, height: float = 0.2) -> ns.CLS:
    """A point mass over wavy ground (in the plane) with a force u; p = (gravity, height of the waves)."""
    q, v = ca.SX.sym("q", dimension), ca.SX.sym("v", dimension)
    u, p = ca.SX.sym("u", dimension), ca.SX.sym("p", 2)
    slope = p[1] * ca.cos(q[0])
    tangent = ca.vertcat(1, slope) / ca.sqrt(1 + slope**2) if dimension == 2 else ca.DM.eye(3)[:, :2]
    gap = q[dimension - 1] - (p[1] * ca.sin(q[0]) if dimension == 2 else 0)
    ground = ns.Contact("ground", gap=gap, tangent=tangent, friction=friction, restitution=restitution)
    weight = ca.vertcat(*[0] * (dimension - 1), -p[0])
    return ns.CLS(
        q=q, v=v, u=u, p=p, mass_matrix=ca.DM.eye(dimension), force=weight + u, contacts=[ground],
        p_default=[GRAVITY, height],
    )  # fmt: skip


def steered_switch() -> ns.PSS:
    """x' = u + p on one side of x = 0, 2 u - x on the other; p = (speed,)."""
    x, u, p = ca.SX.sym("x"), ca.SX.sym("u"), ca.SX.sym("p")
    modes = ns.Modes("side", flows=[u + p, 2.0 * u - x], functions=x, signs=[[-1], [1]])
    return ns.PSS(x=x, u=u, p=p, modes=modes, p_default=[0.3])


FLAT, SPACE = slider(0.5, height=0.0), slider(0.3, dimension=3)
ON_GROUND = [[1, 0, 0, 0], [0, 0, 1, 0]]
ON_GROUND_3D = np.delete(np.eye(6), [2, 5], axis=0)
BEFORE_SWITCH = oscillator.exact([0.95])[0]

SMOOTH = {
    "switch, Stewart": Case(system=oscillator.build(), method=FILIPPOV, x0=BEFORE_SWITCH),
    "switch, step functions": Case(system=oscillator.build(), method=STEP_FUNCTIONS, x0=BEFORE_SWITCH),
    "switch, Gauss": Case(
        system=oscillator.build(), method=FILIPPOV.replace(scheme="gauss_legendre"), x0=BEFORE_SWITCH
    ),
    "switch, complementarities for the steps": Case(
        system=oscillator.build(), method=FILIPPOV.replace(step_equilibration="linear_complementarity"),
        x0=BEFORE_SWITCH,
    ),
    "no switch": Case(system=oscillator.build(), method=FILIPPOV, x0=oscillator.exact([0.3])[0]),
    "fixed steps": Case(
        system=oscillator.build(), method=FILIPPOV.replace(switch_detection=False), x0=BEFORE_SWITCH
    ),
    "switch with u and p": Case(system=steered_switch(), method=FILIPPOV, x0=[-0.06], u=[0.8]),
    "relay, into sliding": Case(system=relay_feedback.build(), method=FILIPPOV, x0=[0.02, -0.5, 0.2]),
    "relay, sliding": Case(
        system=relay_feedback.build(), method=STEP_FUNCTIONS, x0=[0.0, 0.2, 0.1], keeps=[[0, 1, 0], [0, 0, 1]]
    ),
    "slip to stick": Case(system=stick_slip.build(), method=FILIPPOV, x0=[0.05, 0.19], step=0.05),
    "stick to slip": Case(
        system=stick_slip.build(), method=STEP_FUNCTIONS, x0=[0.0995, 0.2], step=0.05, keeps=[[1, 0]]
    ),
    "PDS, touches the floor": Case(system=pushed_point.build(), method=FILIPPOV, x0=[0.6, 0.01, 0.45]),
    "PDS, into the corner": Case(
        system=pushed_point.build(), method=FILIPPOV, x0=[1.2, 0.0, 0.76], keeps=[[1, 0, 0], [0, 0, 1]]
    ),
    "ball": Case(system=bouncing_ball.build(0.9), method=JUMPS, x0=[0.1, -2.0]),
    "ball in flight": Case(system=bouncing_ball.build(0.9), method=JUMPS, x0=[1.0, -2.0]),
    "ball, as MPCC": Case(
        system=bouncing_ball.build(0.9), method=JUMPS, x0=[0.1, -2.0], solver=ns.Auto()
    ),
    "impact and slip": Case(system=slider(0.3), method=JUMPS, x0=[0.0, 0.2, 1.5, -3.0], u=[0.5, 0.0]),
    "bounce and slip": Case(system=slider(0.3, 0.6), method=JUMPS, x0=[0.0, 0.25, 1.5, -3.0], u=[0.5, 0.0]),
    "bounce and slip, Gauss": Case(
        system=slider(0.5, 0.5, height=0.0), method=JUMPS.replace(scheme="gauss_legendre"),
        x0=[0.0, 0.2, 1.5, -3.0], u=[0.5, 0.0],
    ),
    "bounce, polar cone, Eq. 17": Case(
        system=slider(0.3, 0.6), method=JUMPS.replace(friction_cone="polar", impulse_form="product"),
        x0=[0.0, 0.25, 1.5, -3.0], u=[0.5, 0.0],
    ),
    "flight without slip": Case(system=slider(0.3), method=JUMPS, x0=[0.0, 2.0, 0.0, -3.0], u=[0.5, 0.0]),
    "block stops": Case(
        system=FLAT, method=JUMPS, x0=[0.0, 0.0, 0.2, 0.0], u=[0.5, 0.0], keeps=ON_GROUND, moves=[[1, 0]]
    ),
    "block slides": Case(
        system=FLAT, method=JUMPS, x0=[0.0, 0.0, 2.0, 0.0], u=[0.5, 0.0], keeps=ON_GROUND, moves=[[1, 0]]
    ),
    "block sticks": Case(
        system=FLAT, method=JUMPS, x0=[0.0, 0.0, 0.0, 0.0], u=[0.5, 0.0], keeps=ON_GROUND[:1], moves=[[1, 0]]
    ),
    "slide in space": Case(
        system=SPACE, method=JUMPS, x0=[0, 0, 0, 1.0, 0.4, 0], u=[0.1, 0.2, 0.0], keeps=ON_GROUND_3D
    ),
    "stop in space": Case(system=SPACE, method=JUMPS, x0=[0, 0, 0, 0.1, 0.05, 0], u=[0.0] * 3, keeps=ON_GROUND_3D),
    "stop in space, of elements of unequal lengths": Case(
        system=slider(0.4, dimension=3), method=ns.FESDJ(finite_elements=3, rk_stages=2),
        x0=[-0.158, -0.481, 0.0, -0.281, 0.055, 0.0], u=[-0.29, 1.44, 0.0], keeps=ON_GROUND_3D,
    ),
    "landing in space": Case(system=SPACE, method=JUMPS, x0=[0, 0, 0.1, 1.0, 0.4, -2.0], u=[0.1, 0.2, 0.0]),
    # What is polar has no direction there.
    "bounce in space without slip": Case(
        system=slider(0.3, 0.5, 3), method=JUMPS, x0=[0, 0, 0.15, 0, 0, -2.0], u=[0.0] * 3
    ),
    "rest in space without friction": Case(
        system=SPACE, method=JUMPS, x0=[0.0] * 6, u=[0.0] * 3, keeps=np.eye(6)[:2]
    ),
    "time-freezing, landing with slip": Case(
        system=particle.build(), method=FREEZING, x0=[0.0, 0.1, 3.0, -2.0], u=[1.0, 0.0]
    ),
    "time-freezing, stop": Case(
        system=point_mass.build(), method=FREEZING, x0=[0.0, 0.0, 0.2, 0.0], u=[0.0], keeps=ON_GROUND
    ),
}  # fmt: skip


def difference(simulator: Simulator, data: list[np.ndarray], which: int, d: np.ndarray, h: float = 1e-5) -> np.ndarray:
    """Fourth-order central differences of the end of the step."""
    ends = []
    for share in (-2.0, -1.0, 1.0, 2.0):
        moved = list(data)
        moved[which] = data[which] + share * h * d
        ends.append(step(simulator, *moved).x)
    return np.array([1.0, -8.0, 8.0, -1.0]) / (12.0 * h) @ np.array(ends)


# Seconds each, and what others have in part.
LONG = {
    "stop in space, of elements of unequal lengths",
    "time-freezing, landing with slip",
    "time-freezing, stop",
    "bounce and slip",
    "impact and slip",
    "bounce in space without slip",
}


@pytest.mark.parametrize("name", slow_but(SMOOTH.keys() - LONG, SMOOTH))
def test_equals_differences(name: str) -> None:
    case = SMOOTH[name]
    simulator, made = case.simulator(), case.derivative()
    assert made.flags == ()
    assert made.smooth
    data = [np.array(case.x0, float), np.array(case.u, float), case.system.p_default]
    for which, (matrix, directions) in enumerate(((made.x, case.keeps), (made.u, None), (made.p, case.moves))):
        for d in np.eye(data[which].size) if directions is None else np.array(directions, float):
            expected = difference(simulator, data, which, d)
            size = max(1.0, np.abs(expected).max())
            np.testing.assert_allclose(matrix @ d, expected, rtol=0, atol=1e-6 * size)


# Closed forms --------------------------------------------------------------------------------------------------------


def test_ball_in_closed_form() -> None:
    """A parabola is exact in every element: what is left is rounding."""
    q, v, h, e = 0.1, -2.0, 0.1, 0.9
    made = SMOOTH["ball"].derivative()
    w = np.sqrt(v**2 + 2 * GRAVITY * q)
    dw = np.array([GRAVITY, v]) / w
    dt = (np.array([0.0, 1.0]) + dw) / GRAVITY
    s = h - (v + w) / GRAVITY
    by_hand = [e * (dw * s - w * dt) + GRAVITY * s * dt, e * dw + GRAVITY * dt]
    np.testing.assert_allclose(made.x, by_hand, rtol=0, atol=1e-11)


def test_what_a_start_in_contact_forgets() -> None:
    """As the referee has it: m v_n goes into an impulse at once, which takes mu v_n from the slip."""
    made = SMOOTH["block slides"].derivative()
    referee = ns.simulate(
        FLAT, x0=[0.0, 0.0, 2.0, 0.0], duration=0.1, u=[0.5, 0.0], method=ns.EventDriven(), sensitivities=True
    ).sensitivity
    assert referee is not None
    np.testing.assert_allclose(made.x[:, [0, 2, 3]], referee.x0[:, [0, 2, 3]], rtol=0, atol=1e-10)
    assert made.x[2, 3] == pytest.approx(0.5, abs=1e-10)
    np.testing.assert_allclose(np.abs(made.keeps), [[0.0, 1.0, 0.0, 0.0]], rtol=0, atol=1e-9)
    sticks = SMOOTH["block sticks"].derivative()
    np.testing.assert_allclose(sticks.x, np.diag([1.0, 0.0, 0.0, 0.0]), rtol=0, atol=1e-10)


# Chains against the referee ------------------------------------------------------------------------------------------


def chain_of(case: Case, steps: int, controls: Any = None) -> tuple[np.ndarray, Sensitivity]:
    simulator = case.simulator()
    sensitivity = StepSensitivity(simulator.engine.problem)
    state, made = simulator.init(case.x0), []
    for k in range(steps):
        state = simulator.step(state, np.array(case.u if controls is None else controls[k], float))
        assert state.status is ns.Status.SOLVED, (k, state.message)
        made.append(derivative_of(sensitivity, state))
    return state.x, sensitivity.chain(made)


def ball_with_drag() -> ns.CLS:
    q, v, p = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("p", 2)
    ground = ns.Contact("ground", gap=q, restitution=0.9)
    return ns.CLS(
        q=q, v=v, p=p, mass_matrix=ca.DM(1.0), force=-p[0] - p[1] * v - 5.0 * ca.sin(3.0 * q), contacts=[ground],
        p_default=[GRAVITY, 0.8],
    )  # fmt: skip


@pytest.mark.parametrize(("stages", "order"), [(2, 3.0), (3, 5.0)])
def test_converges_to_the_saltation_of_the_referee(stages: int, order: float) -> None:
    """Two impacts; the error of the derivatives by x0 and p falls with the order of Radau IIA, up to where they lie."""
    system, x0, duration = ball_with_drag(), [0.5, 0.0], 0.8
    referee = ns.simulate(system, x0=x0, duration=duration, method=ns.EventDriven(), sensitivities=True)
    assert [event.kind for event in referee.events] == ["impact", "impact"]
    assert referee.sensitivity is not None
    exact = np.hstack([referee.sensitivity.x0, referee.sensitivity.p])
    method, errors = ns.FESDJ(finite_elements=2, rk_stages=stages), []
    for steps in (8, 16, 32, 64):
        _, chain = chain_of(Case(system=system, method=method, x0=x0, step=duration / steps), steps)
        assert chain.flags == ()
        errors.append(float(np.abs(np.hstack([chain.x0, chain.p]) - exact).max()))
    assert errors[-1] < {2: 1e-5, 3: 1e-8}[stages]
    assert np.polyfit(np.arange(4.0), -np.log2(errors), 1)[0] > order - 0.7


EXACT = ("slip_to_stick_2d", "reversal_2d", "landing_stop_2d", "landing_slip_3d", "bounce_slip_2d", "rod_tip_slip_2d")


@pytest.mark.parametrize("name", EXACT)
def test_motions_of_second_degree_have_the_sensitivities_of_the_referee(name: str) -> None:
    """Slip, stick, reversal, landing and bounce, over six steps: in all directions that keep the gaps, to rounding."""
    case = BY_NAME[name]
    referee = ns.simulate(
        case.system, x0=case.x0, duration=case.duration, u=case.u, method=ns.EventDriven(), sensitivities=True
    ).sensitivity
    assert referee is not None
    assert referee.smooth
    method = ns.FESDJ(finite_elements=4, rk_stages=2)
    u = np.zeros(case.system.n_u) if case.u is None else case.u
    one = Case(system=case.system, method=method, x0=case.x0, u=u, step=case.duration / 6)
    _, chain = chain_of(one, 6)
    assert chain.flags == ()
    keeps = one.derivative().keeps
    directions = np.eye(referee.x0.shape[0]) - np.linalg.pinv(keeps) @ keeps
    np.testing.assert_allclose(chain.x0 @ directions, referee.x0 @ directions, rtol=0, atol=1e-10)


@pytest.mark.slow
def test_a_chain_by_every_control() -> None:
    """Falls, bounces and slips under another control in every step: differences by each of them."""
    case = Case(system=slider(0.3, 0.5), method=JUMPS, x0=[0.0, 0.5, 1.5, -2.0])
    controls = np.array([[0.5, 0.0], [-1.0, 2.0], [0.3, -1.0], [0.0, 1.0]])
    _, chain = chain_of(case, 4, controls)
    assert chain.flags == ()
    h = 1e-5
    for k in range(4):
        for i in range(2):
            moved = [controls.copy() for _ in range(2)]
            moved[0][k, i] += h
            moved[1][k, i] -= h
            ends = [chain_of(case, 4, rows)[0] for rows in moved]
            np.testing.assert_allclose(chain.u[k][:, i], (ends[0] - ends[1]) / (2 * h), rtol=0, atol=1e-6)


# Where it is not smooth ----------------------------------------------------------------------------------------------

TO_STOP = 0.2 / (0.5 * GRAVITY - 0.5)
KINKS = {
    "impact at the end": (
        Case(system=bouncing_ball.build(0.9), method=JUMPS, x0=[0.2 + 0.005 * GRAVITY, -2.0]), "gap"
    ),
    "impact at the start": (Case(system=bouncing_ball.build(0.9), method=JUMPS, x0=[0.0, -1.0]), "an impact of ground"),
    "switch at the start": (Case(system=oscillator.build(), method=FILIPPOV, x0=oscillator.exact([1.0])[0]), "lambda"),
    "stop at the end": (
        Case(system=FLAT, method=JUMPS, x0=[0.0, 0.0, 0.2, 0.0], u=[0.5, 0.0], step=TO_STOP), "xi_plus"
    ),
    "touched without force": (
        Case(system=FLAT, method=JUMPS, x0=[0.0, 0.0, 1.0, 0.0], u=[0.0, GRAVITY]), "holding"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KINKS)
def test_a_kink_is_flagged(name: str) -> None:
    case, word = KINKS[name]
    made = case.derivative()
    assert not made.smooth
    assert any(word in flag for flag in made.flags), made.flags


def test_beside_a_kink_nothing_is_flagged() -> None:
    for shift in (-1e-5, 1e-5):
        case = KINKS["impact at the end"][0]
        moved = Case(system=case.system, method=case.method, x0=case.x0, step=0.1 + shift)
        assert moved.derivative().flags == ()


def test_a_chain_with_a_kink_has_no_derivative() -> None:
    case, _ = KINKS["impact at the end"]
    _, chain = chain_of(case, 2)
    assert not chain.smooth
    assert chain.flags[0].startswith("step 1: ")
    assert np.isnan(chain.x0).all()


# Negative controls ---------------------------------------------------------------------------------------------------

TURNS = (oscillator.STANDARD.frequency, float(np.pi / 2.0))


def exact_oscillator(start: np.ndarray, duration: float) -> np.ndarray:
    """Saltation by hand: e^t (rotation) before and after, I + (f+ - f-) n' / n'f- between."""
    frequency, until = oscillator.STANDARD.frequency, -np.log(np.linalg.norm(start))

    def flow(sign: float, t: float) -> np.ndarray:
        a = sign * frequency * t
        return np.exp(t) * np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]])

    before, after = flow(-1.0, until), flow(1.0, duration - until)
    x = before @ start
    rates = [np.array([[1.0, -s * frequency], [s * frequency, 1.0]]) @ x for s in (-1.0, 1.0)]
    return after @ (np.eye(2) + np.outer(rates[1] - rates[0], x) / (x @ rates[0])) @ before


def test_fixed_steps_do_not_see_the_saltation() -> None:
    """FESD's error falls with the third order; that of fixed steps stays where it is."""
    start = oscillator.exact([0.6])[0]
    exact = exact_oscillator(start, 0.7)
    errors: dict[bool, list[float]] = {True: [], False: []}
    for detects in errors:
        for steps in (16, 64):
            method = FILIPPOV.replace(switch_detection=detects)
            case = Case(system=oscillator.build(), method=method, x0=start, step=0.7 / steps, solver=ns.Auto())
            errors[detects].append(float(np.abs(chain_of(case, steps)[1].x0 - exact).max()))
    assert errors[True][1] < 1e-3
    assert errors[True][0] / errors[True][1] > 4.0**2.3
    assert min(errors[False]) > 15.0
    assert abs(errors[False][0] / errors[False][1] - 1.0) < 0.02


def test_smoothing_with_steps_in_proportion_does_not_see_it_either() -> None:
    """tanh(c / eps) by RK4 with eps in proportion to the steps: the derivative keeps an error of order one."""
    start, exact = oscillator.exact([0.6])[0], exact_oscillator(oscillator.exact([0.6])[0], 0.7)
    x, h, eps, w = ca.SX.sym("x", 2), ca.SX.sym("h"), ca.SX.sym("eps"), oscillator.STANDARD.frequency
    share = 0.5 * (1.0 + ca.tanh((ca.sumsqr(x) - 1.0) / eps))
    turn = (2.0 * share - 1.0) * w
    flow = ca.Function("flow", [x, eps], [ca.vertcat(x[0] - turn * x[1], turn * x[0] + x[1])])
    k1 = flow(x, eps)
    k2 = flow(x + h / 2 * k1, eps)
    k3 = flow(x + h / 2 * k2, eps)
    k4 = flow(x + h * k3, eps)
    end = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    move = ca.Function("move", [x, h, eps], [end, ca.jacobian(end, x)])

    def error(steps: int, width: float) -> float:
        state, S = start, np.eye(2)
        for _ in range(steps):
            state, slope = (value.full() for value in move(state, 0.7 / steps, width))
            S = slope @ S
        return float(np.abs(S - exact).max())

    assert min(error(steps, 0.1 * 0.7 / steps) for steps in (200, 400, 800)) > 0.3
    assert error(20000, 1e-2) < 0.1  # the same equations, with steps much shorter than eps
