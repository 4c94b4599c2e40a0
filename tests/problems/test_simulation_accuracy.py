"""The benchmark of accuracy at equal time: scenes, contact laws that are fitted, fronts, tables. No time is tested."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import nosnoc_py as ns
from problems.benchmarks import simulation_accuracy as benchmark
from problems.benchmarks.accuracy import drake_peer, mujoco_peer, ours
from problems.benchmarks.accuracy.scenes import SCENES
from problems.benchmarks.simulation_accuracy import Measured
from problems.runner import main

EXACT = ("ball", "slide", "slope", "pile")


def row(seconds: float, error: float, settings: str = "") -> Measured:
    return Measured(
        scene="ball", peer="mujoco", program="MuJoCo", settings=settings, setup=0.5, seconds=seconds, error=error
    )


def test_quick(capsys: pytest.CaptureFixture[str]) -> None:
    """Without Drake, which is no extra."""
    pytest.importorskip("mujoco")
    assert main(benchmark.PROGRAM, ["--json", "--quick", "--set", "programs=ours,mujoco"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert found["status"] == "solved"
    errors: dict[tuple[str, str], float] = {}
    for one in found["rows"]:
        key = (one["scene"], one["program"])
        errors[key] = min(errors.get(key, np.inf), one["error"])
    for scene in ("ball", "slide"):
        assert errors[scene, ours.EVENT_DRIVEN] < 1e-9
        assert errors[scene, ours.ELEMENTS] < 1e-9
        assert 1e-9 < errors[scene, ours.STEPPING] < 0.1
        assert 1e-9 < errors[scene, mujoco_peer.PROGRAM] < 0.5
    assert "numpy" in found["versions"]


@pytest.mark.parametrize("name", EXACT)
def test_closed_forms(name: str) -> None:
    """By default event-driven simulation is on the reference, and at another time it is not."""
    scene = SCENES[name]()
    motion = ns.simulate(ours.system_of(scene), x0=scene.x0, duration=scene.duration)
    assert scene.error(motion(scene.times)[:, : scene.n_q]) < 1e-10
    if not scene.drift:
        assert scene.error(motion(0.9 * scene.times)[:, : scene.n_q]) > 1e-3


@pytest.mark.parametrize("name", ["slide", "quadruped"])
def test_mujoco_has_the_same_model(name: str) -> None:
    """Coordinates, masses, gravity, springs and dampers: the accelerations in free flight, far above the ground."""
    mujoco = pytest.importorskip("mujoco")
    scene = SCENES[name]()
    x, height = scene.x0.copy(), 2 if name == "quadruped" else 1
    x[height] += 5.0
    if name == "quadruped":
        x[7:] += 0.1 * np.random.default_rng(1).normal(size=x.size - 7)
    model = mujoco_peer._model(scene)
    mujoco_peer._set(scene, model, 1e-3)
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = x[: scene.n_q], x[scene.n_q :]
    mujoco.mj_forward(model, data)
    motion = ns.simulate(ours.system_of(scene), x0=x, duration=1e-7)
    rates = (motion.final_state[scene.n_q :] - x[scene.n_q :]) / 1e-7
    np.testing.assert_allclose(rates, data.qacc, rtol=0, atol=1e-3 * np.abs(rates).max())


@pytest.mark.parametrize("restitution", [0.3, 0.8])
def test_springs_rebound_with_the_restitution(restitution: float) -> None:
    """The damping ratio of a linear spring, and the dissipation by Hunt and Crossley at one speed; both only push."""
    speed, zeta = 2.0, mujoco_peer.damping_ratio(restitution)
    d = drake_peer.dissipation(restitution, speed)
    laws = (
        lambda z, v: max(z - 2.0 * zeta * v, 0.0),
        lambda z, v: max(z, 0.0) * max(1.0 - d * v, 0.0),
    )

    def leaves(t: float, y: np.ndarray) -> float:
        return float(y[0] + 1e-9)

    leaves.terminal, leaves.direction = True, -1.0  # type: ignore[attr-defined]
    for law in laws:  # y: depth and its rate
        motion = solve_ivp(
            lambda t, y, law=law: [y[1], -law(y[0], -y[1])],
            (0.0, 20.0),
            [0.0, speed],
            rtol=1e-10,
            atol=1e-12,
            events=leaves,
        )
        assert -motion.y[1, -1] == pytest.approx(restitution * speed, abs=1e-4)


def test_fronts_and_times() -> None:
    rows = [row(3.0, 1e-5, "slow"), row(1.0, 1e-2), row(2.0, 0.5, "worse"), row(4.0, 1e-4), row(0.5, np.inf)]
    front = benchmark.envelope(rows, "ball", "MuJoCo")
    assert [(one.seconds, one.error) for one in front] == [(1.0, 1e-2), (3.0, 1e-5)]
    assert benchmark.least_time(rows, "ball", "MuJoCo", 1e-3) == 3.0
    assert benchmark.least_time(rows, "ball", "MuJoCo", 1e-6) is None
    page = benchmark.page_of(rows, {"ball": "a ball"})
    assert "| MuJoCo | 1000 | 3000 | 3000 | - | 1e-05 | slow | 500 |" in page


def test_unknown_scenes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(benchmark.PROGRAM, ["--json", "--quick", "--set", "scenes=bal"]) == 2
    assert "ball" in capsys.readouterr().err
