"""Results small enough to check by hand, yet with everything in them."""

from __future__ import annotations

import numpy as np
import pytest

from nosnoc_py.roles import Role
from nosnoc_py.solution import (
    Discretization,
    Event,
    PairRole,
    Residual,
    RungeKuttaInterpolant,
    Series,
    Solution,
    StepRecord,
    Trajectory,
    nodes_of,
)
from nosnoc_py.status import Stationarity, Status


@pytest.fixture
def interpolant() -> RungeKuttaInterpolant:
    """Two elements [0, 1], [1, 3]: q = t, then at t = 1 the velocity jumps from 1 to -2 (Radau IIA, two stages)."""
    return RungeKuttaInterpolant(
        t_left=[0.0, 1.0],
        h=[1.0, 2.0],
        c=[1 / 3, 1.0],
        x_left=[[0.0, 1.0], [1.0, -2.0]],
        x_stages=[[[1 / 3, 1.0], [1.0, 1.0]], [[1 - 4 / 3, -2.0], [-3.0, -2.0]]],
    )


@pytest.fixture
def trajectory(interpolant: RungeKuttaInterpolant) -> Trajectory:
    t, x = nodes_of([0.0, 1.0], [1.0, 2.0], interpolant.x_initial, interpolant.x_left, interpolant.x_right)
    return Trajectory(
        t=t,
        x=x,
        state_names=("q", "v"),
        u_grid=[0.0, 1.5, 3.0],
        u=[[5.0], [-5.0]],
        control_names=("thrust",),
        interpolant=interpolant,
        events=(Event(1.0, "wall", "impact", impulse=3.0, v_before=1.0, v_after=-2.0), Event(2.0, "wall", "release")),
        series={
            "lambda_wall": Series([0.5, 2.5], [0.0, 1.25], Role.NORMAL_FORCE),
            "Lambda_wall": Series([1.0], [3.0]),
        },
        discretization=Discretization(scheme="radau_iia", nodes=(1 / 3, 1.0), collocation=True),
        parameters={"mass": 1.5},
        units={"q": "m", "v": "m/s"},
    )


@pytest.fixture
def solution(trajectory: Trajectory) -> Solution:
    fields = {name: getattr(trajectory, name) for name in Trajectory.__dataclass_fields__}
    step = StepRecord(
        step=0,
        label="homotopy",
        sigma=0.1,
        objective=1.0,
        complementarity=np.nan,
        infeasibility=np.inf,
        iterations=12,
        wall_seconds=0.25,
        solver_status="Solve_Succeeded",
    )
    return Solution(
        **fields | {"status": Status.NOT_COMPLEMENTARY, "message": "sigma_min reached"},
        objective=0.1 + 0.2,
        penalty=1e-3,
        complementarity=1e-4,
        complementarity_min=np.inf,
        infeasibility=1e-9,
        stationarity=Stationarity.C,
        iterations=12,
        wall_seconds=0.25,
        log=(step,),
        multipliers={"Größe ≤ 1": Series([0.0, 3.0], [np.nan, -0.0])},
        worst=(Residual(1e-4, "complementarity", "gap wall", "control stage 3, finite element 1, RK stage 2"),),
        biactive=("gap wall * lambda_wall", "a * b"),
        biactive_roles=(PairRole(Role.CONTACT, "wall"), PairRole(None)),
        w=np.array([1.0, np.nan, -np.inf, np.nextafter(1.0, 2.0), 5e-324]),
        layout_key="ab12",
        x0=[0.0, 1.0],
        p=[1.5],
        horizon=3.0,
        method="FESDJ()",
        solver="Homotopy()",
    )
