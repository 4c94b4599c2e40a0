"""Scenes: their shapes are where the state puts them, and mistakes raise errors."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from models import two_discs_elastic
from nosnoc_py.errors import ModelError
from nosnoc_py.systems import scene

pytestmark = pytest.mark.quick

MODELS: dict[str, dict[str, Any]] = {
    "ball_in_corner": {},
    "bouncing_ball": {},
    "bowl": {},
    "cart_pole_friction": {},
    "falling_rod": {},
    "hysteresis_car": {},
    "one_legged_hopper": {},
    "particle": {},
    "plate_on_springs": {},
    "pushed_point": {},
    "spring_hopper": {},
    "stick_slip": {},
    "three_boxes": {},
    "tilted_block": {},
    "turbo_car": {},
    "two_balls_spring": {},
    "two_discs_elastic": {"wall": 1.0},
    "two_discs_inelastic": {},
}


def outlines(system: Any, x: Any, u: Any = None) -> dict[str, np.ndarray]:
    """Points of all shapes in one state, by their kinds and numbers."""
    state = np.atleast_2d(np.asarray(x, dtype=float))
    control = np.zeros((1, system.n_u)) if u is None else np.atleast_2d(np.asarray(u, dtype=float))
    values = system.drawing(state, control, system.p_default)
    shapes = zip(system.drawing.shapes, values, strict=True)
    return {f"{type(shape).__name__} {k}": shape.outline(numbers)[0] for k, (shape, numbers) in enumerate(shapes)}


def planar(shapes: Any, **changes: Any) -> ns.CLS:
    q, v, u, p = ca.SX.sym("q", 3), ca.SX.sym("v", 3), ca.SX.sym("u", 2), ca.SX.sym("size")
    given = {"q": q, "v": v, "u": u, "p": p, "p_default": [0.5], "mass_matrix": ca.DM.eye(3)} | changes
    return ns.CLS(force=ca.vertcat(u, 0), scene=shapes(q, v, u, p), **given)


def test_a_disc_has_its_radius_and_its_spoke() -> None:
    found = outlines(planar(lambda q, v, u, p: [scene.Disc(q[:2], p, q[2])]), [1, 2, np.pi / 2, 0, 0, 0])
    circle = found["Disc 0"]
    assert np.linalg.norm(circle - [1, 2], axis=1) == pytest.approx(0.5, abs=1e-14)
    assert circle[0] == pytest.approx([1, 2.5], abs=1e-14)


def test_a_box_turns_against_the_clock() -> None:
    found = outlines(planar(lambda q, v, u, p: [scene.Rectangle(q[:2], [2, 1], q[2])]), [1, 0, np.pi / 2, 0, 0, 0])
    assert found["Rectangle 0"] == pytest.approx(np.array([[1.5, -1], [1.5, 1], [0.5, 1], [0.5, -1]]), abs=1e-14)


def test_lines_polygons_arrows_and_trails_follow_their_symbols() -> None:
    def shapes(q: ca.SX, v: ca.SX, u: ca.SX, p: ca.SX) -> list[scene.PlanarShape]:
        return [
            scene.Line([[0, 0], q[:2]]),
            scene.Polygon([[0, 0], [p, 0], v[:2]]),
            scene.Arrow(q[:2], u),
            scene.Trail(q[:2]),
            scene.Polygon(ca.horzcat(ca.DM([0, 1, 1]), ca.vertcat(0, 0, p))),
        ]

    found = outlines(planar(shapes), [1, 2, 0, 3, 4, 0], [5, 6])
    assert found["Line 0"] == pytest.approx(np.array([[0, 0], [1, 2]]))
    assert found["Polygon 1"] == pytest.approx(np.array([[0, 0], [0.5, 0], [3, 4]]))
    assert found["Arrow 2"] == pytest.approx(np.array([[1, 2], [5, 6]]))
    assert found["Trail 3"] == pytest.approx(np.array([[1, 2]]))
    assert found["Polygon 4"] == pytest.approx(np.array([[0, 0], [1, 0], [1, 0.5]]))


def test_a_spring_begins_and_ends_where_it_should_and_keeps_its_width() -> None:
    shape = scene.Spring([0, 0], [0, 1], coils=4, width=0.2)
    for length in (1.0, 3.0):
        points = shape.outline(np.array([[0.0, 0.0, 0.0, length]]))[0]
        assert points[[0, -1]] == pytest.approx(np.array([[0, 0], [0, length]]))
        assert np.ptp(points[:, 0]) == pytest.approx(0.2)
        assert np.sum(np.abs(points[:, 0]) > 0.05) == 8


def test_many_states_are_evaluated_at_once() -> None:
    system = planar(lambda q, v, u, p: [scene.Disc(q[:2], p), scene.Arrow(q[:2], u)])
    x, u = np.random.default_rng(0).normal(size=(7, 6)), np.random.default_rng(1).normal(size=(7, 2))
    disc, arrow = system.drawing(x, u, np.array([0.25]))
    assert disc == pytest.approx(np.column_stack([x[:, :2], np.full(7, 0.25), np.zeros(7)]))
    assert arrow == pytest.approx(np.column_stack([x[:, :2], u]))
    assert system.drawing is system.drawing


@pytest.mark.parametrize("name", MODELS)
def test_the_models_have_scenes_with_finite_numbers(name: str) -> None:
    system = import_module(f"models.{name}").build(**MODELS[name])
    x = np.random.default_rng(0).uniform(0.1, 1.0, len(system.state_names))
    found = outlines(system, x)
    assert len(found) >= 3
    assert all(np.isfinite(points).all() for points in found.values())


def test_discs_that_touch_touch_in_their_scene() -> None:
    """The gap of the contact is zero: the circles of radii .2 and .2 meet at the mark between them."""
    found = outlines(two_discs_elastic.build(), [0, 0, 0.24, 0.32, 0, 0, 0, 0])
    first, second, mark = found["Disc 2"], found["Disc 3"], found["Mark 5"][0]
    assert mark == pytest.approx([0.12, 0.16], abs=1e-14)
    for circle in (first, second):
        assert np.linalg.norm(circle - mark, axis=1).min() < 0.2 * np.pi / scene.ROUND + 1e-12


def test_a_rod_ends_at_its_gaps() -> None:
    rod = import_module("models.falling_rod")
    x = np.array([0.3, 0.6, 0.4, 0, 0, 0])
    points = outlines(rod.build(), x)["Line 1"]
    assert points == pytest.approx(rod.ends(x), abs=1e-14)


def test_a_hybrid_system_and_step_functions_have_scenes_too() -> None:
    discs = two_discs_elastic.build()
    jumping = ns.hybrid(discs)
    assert jumping.scene == discs.scene
    x = np.arange(8.0)
    for name, points in outlines(jumping, x).items():
        assert points == pytest.approx(outlines(discs, x)[name])
    y, alpha = ca.SX.sym("y", 2), ca.SX.sym("alpha")
    step = ns.Heaviside(x=y, alpha=alpha, functions=y[0], flow=ca.vertcat(1, alpha), scene=[scene.Disc(y, 0.1)])
    assert outlines(step, [1.0, 2.0])["Disc 0"].mean(axis=0) == pytest.approx([1, 2], abs=5e-3)


def test_foreign_symbols_are_named() -> None:
    other = ca.SX.sym("other")
    with pytest.raises(ModelError, match=r"scene: shape 1 \(Disc 'moon'\) depends on other.*not among q, v, u, p"):
        planar(lambda q, v, u, p: [scene.Ground(), scene.Disc([other, 0], 0.1, label="moon")])


@pytest.mark.parametrize(
    ("shapes", "says"),
    [
        (lambda q, v, u, p: scene.Disc(q[:2], 0.1), "expected a sequence of shapes of ns.scene, given Disc; put it in"),
        (lambda q, v, u, p: ["disc"], "shape 0: expected a shape of ns.scene, given str"),
        (lambda q, v, u, p: [scene.Disc(q, 0.1)], "Disc: center: expected 2 rows, given 3"),
        (lambda q, v, u, p: [scene.Disc(q[:2], 0.1, colour="vermillion")], "of a Disc 'vermillion'. Did you mean"),
        (lambda q, v, u, p: [scene.Polygon([[0, 0], [1, 1]])], "Polygon: points: expected 3 or more, given 2"),
        (lambda q, v, u, p: [scene.Line(3)], "Line: points: expected a sequence of places"),
        (lambda q, v, u, p: [scene.Spring([0, 0], q[:2], coils=0)], "coils: expected a positive whole number"),
        (lambda q, v, u, p: [scene.Ground(normal=[0, 1])], "a straight line needs both"),
        (lambda q, v, u, p: [scene.Ground(points=[[0, 0], [1, 0]], point=[0, 0])], "give either points, or"),
        (lambda q, v, u, p: [scene.Arrow(q[:2], u, scale=-1.0)], "scale: expected a positive number, given -1"),
        (lambda q, v, u, p: [scene.Disc(q[:2], 0.0)], "Disc: radius: expected a positive number, given 0"),
        (lambda q, v, u, p: [scene.Disc(q[:2], -0.1)], "Disc: radius: expected a positive number, given -0.1"),
        (lambda q, v, u, p: [scene.Rectangle(q[:2], [1, 0])], "Rectangle: size: expected positive numbers, given 0"),
        (lambda q, v, u, p: [scene.Rectangle(q[:2], [p, -2])], "Rectangle: size: expected positive numbers, given -2"),
        (lambda q, v, u, p: [scene.Spring([0, 0], q[:2], width=0)], "width: expected a positive number, given 0"),
        (lambda q, v, u, p: [scene.Ground(point=[0, 0], normal=[0, 0])], "normal: expected a direction"),
        (lambda q, v, u, p: [scene.Ground(1.0, point=[0, 0], normal=[0, 1])], "give either points, or"),
        (lambda q, v, u, p: [scene.Ground(0.0, points=[[0, 0], [1, 0]])], "give either points, or"),
        (lambda q, v, u, p: [scene.Disc(q[:2], 1, label=3)], "Disc: label: expected text, given 3"),
        (lambda q, v, u, p: [scene.Arrow(q[:2], u, unit=None)], "Arrow: unit: expected text, given None"),
        (lambda q, v, u, p: [scene.Mark(1, q[:2])], "Mark: name: expected text, given 1"),
        (lambda q, v, u, p: [scene.Mark("wall", q[:2])], "event 'wall'"),
        (lambda q, v, u, p: [scene.Disc([float("nan"), 0], 1)], "contains nan"),
    ],
)
def test_bad_scenes_are_refused(shapes: Any, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        planar(shapes)


def test_a_mark_belongs_to_a_contact() -> None:
    q = ca.SX.sym("q", 3)
    ground = ns.Contact("ground", gap=q[1])
    system = planar(lambda *_: [scene.Mark("ground", q[:2])], q=q, contacts=[ground])
    assert system.scene[0].name == "ground"
    with pytest.raises(ModelError, match=r"event 'grond'.*Did you mean 'ground'"):
        planar(lambda *_: [scene.Mark("grond", q[:2])], q=q, contacts=[ground])
    soft = ns.Contact("soft", gap=q[1], stiffness=1e3)
    with pytest.raises(ModelError, match=r"Mark 'soft': this contact is compliant.*no event to mark. Leave out"):
        planar(lambda *_: [scene.Mark("soft", q[:2])], q=q, contacts=[ground, soft])


def test_systems_in_numpy_have_no_symbols_for_a_scene() -> None:
    hopper = import_module("models.spring_hopper").build_numeric()
    with pytest.raises(ModelError, match=r"NumPy functions has no symbols.*written in CasADi"):
        replace(hopper, x=2, p=4, scene=[scene.Disc([0, 0], 1)])
