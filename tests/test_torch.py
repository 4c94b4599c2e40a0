"""Simulations as functions of tensors: against differences (gradcheck), batches, and gradients that are finite."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.errors import OptionError
from tests.references.gradient_scenes import scene as scene_of
from tests.simulation.test_saltation import grazing

torch = pytest.importorskip("torch")
nst = pytest.importorskip("nosnoc_py.torch")


def tensor(values: object) -> object:
    return torch.tensor(np.asarray(values, float), dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("name", ["waves, rows of a control", "hybrid"])
def test_gradients_are_those_of_differences(name: str) -> None:
    scene = scene_of(name)
    data = [tensor(part) for part in scene.data()]

    def outputs(*data: object) -> tuple:
        motion = nst.simulate(scene.system, *data, duration=scene.duration, times=scene.times)
        return motion.final, motion.samples, motion.event_times

    assert torch.autograd.gradcheck(outputs, data, eps=1e-5, atol=1e-6, rtol=1e-6)


def test_a_batch_is_its_motions_and_what_is_shared_gets_their_sum() -> None:
    scene = scene_of("waves, rows of a control")
    x0, p, u = scene.data()
    starts, p, u = tensor([x0, x0 + 0.05]), tensor(p), tensor(u)
    for workers in (1, 2):
        many = nst.simulate(scene.system, starts, p, u, duration=scene.duration, times=[0.1, 0.6], workers=workers)
        loss = many.final.square().sum() + many.samples.sum() + sum(times.sum() for times in many.event_times)
        together = torch.autograd.grad(loss, (starts, p, u))
        parts = []
        for k in range(2):
            one = nst.simulate(scene.system, starts[k], p, u, duration=scene.duration, times=[0.1, 0.6])
            loss = one.final.square().sum() + one.samples.sum() + one.event_times.sum()
            parts.append(torch.autograd.grad(loss, (starts, p, u)))
        for whole, first, second in zip(together, *parts, strict=True):
            torch.testing.assert_close(whole, first + second, rtol=1e-12, atol=1e-12)
        assert many.status == (ns.Status.SOLVED,) * 2
        assert many.flags == ((), ())


def test_a_touch_without_speed_has_a_finite_gradient_and_a_flag() -> None:
    scene = grazing(1.0)
    x0 = tensor(scene.x0)
    motion = nst.simulate(scene.system, x0, duration=scene.duration, method=ns.EventDriven(grazing="continue"))
    motion.final.sum().backward()
    assert torch.isfinite(x0.grad).all()
    assert "touched without speed" in motion.flags[0]


def test_a_motion_that_stops_early_has_its_last_state_as_samples() -> None:
    scene = grazing(1.0)
    x0 = tensor(scene.x0)
    motion = nst.simulate(
        scene.system, x0, duration=scene.duration, times=[0.1, 0.7], method=ns.EventDriven(grazing="stop")
    )
    assert motion.status is ns.Status.GRAZING
    torch.testing.assert_close(motion.samples[1], motion.final)
    motion.samples.sum().backward()
    assert torch.isfinite(x0.grad).all()


def test_nothing_is_recorded_without_gradients() -> None:
    ball = ca.SX.sym("q"), ca.SX.sym("v")
    system = ns.CLS(q=ball[0], v=ball[1], mass_matrix=1, force=-10, contacts=[ns.Contact("ground", gap=ball[0])])
    with torch.no_grad():
        motion = nst.simulate(system, torch.tensor([1.0, 0.0], requires_grad=True), duration=0.2)
    assert not motion.final.requires_grad
    assert motion.final.dtype is torch.float64
    np.testing.assert_allclose(motion.final.numpy(), [0.8, -2.0], rtol=0, atol=1e-12)


def test_a_gradient_of_a_gradient_is_refused() -> None:
    scene = scene_of("hybrid")
    x0, p, u = (tensor(part) for part in scene.data())
    final = nst.simulate(scene.system, x0, p, u, duration=scene.duration).final
    (slope,) = torch.autograd.grad(final.square().sum(), x0, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


def test_wrong_shapes_are_named() -> None:
    scene = scene_of("hybrid")
    x0, p, u = (tensor(part) for part in scene.data())
    with pytest.raises(OptionError, match="x0: expected a tensor of 1 dimensions"):
        nst.simulate(scene.system, x0[None, None], p, u, duration=1.0)
    with pytest.raises(OptionError, match="batches of one size"):
        nst.simulate(scene.system, x0.expand(2, 2), p.expand(3, 2), u, duration=1.0)
    with pytest.raises(OptionError, match="at least one motion"):
        nst.simulate(scene.system, x0[None][:0], p, u, duration=1.0)


def test_a_motion_that_stops_early_has_a_gradient_of_all_rows_of_the_control():
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    escaping = ns.ODE(x=x, u=u, flow=x**2 + u)
    x0 = torch.tensor([[0.1], [1.2]], dtype=torch.float64)
    rows = torch.zeros((2, 4, 1), dtype=torch.float64, requires_grad=True)
    motion = nst.simulate(escaping, x0, u=rows, duration=1.0)
    motion.final.sum().backward()
    assert rows.grad.shape == (2, 4, 1)
    assert torch.isfinite(rows.grad).all()
