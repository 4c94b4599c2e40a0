"""Baselines of `one_try`, each in the way in which its users write it.

`by_opti` is the multi-phase program of one bounce with CasADi's Opti and IPOPT, its sequence written by hand;
`by_scipy` is a simulation with SciPy's DOP853 and its event; `step_of_mujoco` is the time of a step of MuJoCo.
"""

from __future__ import annotations

import importlib.util
import time

import casadi as ca
import numpy as np
from scipy.integrate import solve_ivp

from problems.benchmarks.one_try_cases import Bounce, Model

INTERVALS = 8  # of each of the two phases
RTOL, ATOL = 1e-12, 1e-13  # as of `ns.EventDriven`
STEP, STEPS = 2e-3, 2000  # [s]; number of steps that are measured


def by_opti(case: Bounce) -> tuple[float, float, bool]:
    """Return processor seconds and objective of the program with two phases, and whether IPOPT has solved it."""
    began = time.process_time()
    opti, x = ca.Opti(), ca.DM(case.x0)
    lengths, objective = opti.variable(2), 0.0
    for phase in range(2):
        u, step = opti.variable(INTERVALS), lengths[phase] / INTERVALS
        states = opti.variable(len(case.x0), INTERVALS + 1)
        before = ca.vertcat(*case.jump(x)) if phase else x
        opti.subject_to(states[:, 0] == before)
        for k in range(INTERVALS):
            opti.subject_to(states[:, k + 1] == _runge_kutta(case, states[:, k], u[k], step))
            objective += step * case.cost(u[k])
        if np.isfinite(case.most):
            opti.subject_to(opti.bounded(-case.most, u, case.most))
        opti.set_initial(u, case.u)
        opti.set_initial(states, np.tile(np.reshape(case.x0, (-1, 1)), INTERVALS + 1))
        x = states[:, INTERVALS]
        if not phase:
            opti.subject_to(case.gap(x) == 0.0)
    opti.subject_to(x[list(case.rows)] == ca.DM(case.goal))
    opti.subject_to(ca.sum1(lengths) == case.horizon)
    opti.subject_to(lengths >= 0.0)
    opti.set_initial(lengths, 0.5 * case.horizon)
    opti.minimize(objective)
    opti.solver("ipopt", {"print_time": False}, {"print_level": 0, "sb": "yes", "max_iter": 500})
    try:
        solution = opti.solve()
    except RuntimeError:  # raised by Opti where IPOPT fails
        return time.process_time() - began, np.nan, False
    return time.process_time() - began, float(solution.value(objective)), True


def _runge_kutta(case: Bounce, x: ca.MX, u: ca.MX, h: ca.MX) -> ca.MX:
    """Return the state after one step of the classical method, exact for constant forces."""

    def rate(y: ca.MX) -> ca.MX:
        return ca.vertcat(*case.flow(y, u))

    a = rate(x)
    b = rate(x + h / 2 * a)
    c = rate(x + h / 2 * b)
    return x + h / 6 * (a + 2 * b + 2 * c + rate(x + h * c))


def by_scipy(case: Bounce) -> tuple[float, np.ndarray]:
    """Return processor seconds and final state of a simulation with the control of the start."""
    began = time.process_time()

    def touches(t: float, x: np.ndarray) -> float:
        return float(case.gap(x))

    touches.terminal, touches.direction = True, -1.0  # type: ignore[attr-defined]
    t, x = 0.0, np.array(case.x0)
    while t < case.horizon:
        run = solve_ivp(
            lambda t, x: case.flow(x, case.u),
            (t, case.horizon),
            x,
            method="DOP853",
            events=touches,
            rtol=RTOL,
            atol=ATOL,
        )
        t, x = float(run.t[-1]), run.y[:, -1]
        if run.status == 1:
            x = np.array(case.jump(x))
    return time.process_time() - began, x


def step_of_mujoco(model: Model) -> float | None:
    """Return the processor time of a step of MuJoCo on the ground [s]; None if it is not installed."""
    if importlib.util.find_spec("mujoco") is None:
        return None
    import mujoco

    spec = mujoco.MjSpec.from_string(model.urdf)
    spec.compiler.fusestatic = False  # otherwise the first body becomes a part of the world
    if model.floats:
        spec.worldbody.first_body().add_freejoint()
    spec.worldbody.add_geom(name="ground", type=mujoco.mjtGeom.mjGEOM_PLANE, size=[50, 50, 1])
    compiled = spec.compile()
    compiled.opt.timestep = STEP
    compiled.dof_armature[6 if model.floats else 0 :] = model.armature
    data = mujoco.MjData(compiled)
    if model.floats:
        data.qpos[2] = 1.0  # falls, and stays on the ground
    mujoco.mj_step(compiled, data, nstep=STEPS // 2)
    began = time.process_time()
    mujoco.mj_step(compiled, data, nstep=STEPS)
    return (time.process_time() - began) / STEPS
