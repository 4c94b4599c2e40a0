"""The checks that strangers call: families of the library pass them, and members with one mistake do not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.geometry.shapes import Capsule
from nosnoc_py.mpcc.relaxations import RELAXATIONS
from nosnoc_py.robots.robot import Robot
from nosnoc_py.search.kinds import STARTS
from nosnoc_py.search.starts import Start, StartTask, constant
from nosnoc_py.simulation.common import SimulationMethod
from nosnoc_py.status import Status
from nosnoc_py.testing import check_method, check_robot, check_shape, check_simulator, check_start
from nosnoc_py.testing.systems import bounce_to, least_effort
from tests.robots.files import HOPPER, random_tree

# --- shapes ---

SHAPES: dict[str, tuple[Any, dict[str, Any]]] = {
    "point": (ns.Point(), {}),
    "sphere": (ns.Sphere(0.2), {"length": 0.2}),
    "disc": (ns.Sphere(0.3), {"length": 0.3, "size": 2}),
    "capsule": (Capsule(0.1, 0.4), {"length": 0.3}),
    "cylinder": (ns.Cylinder(0.1, 0.3), {"length": 0.2}),
    "box": (ns.Box([0.8, 0.6, 0.4]), {"length": 0.4}),
    "polygon": (ns.ConvexPolygon([[0, 0], [1, 0], [0, 1]]), {"size": 2}),
    "half-space": (ns.HalfSpace((0.3, 0.2, 1.0), 0.1), {}),
    "half-plane": (ns.HalfSpace((0.0, 1.0)), {"size": 2}),
    "hills": (ns.HeightMap(lambda x, y: 0.1 * ca.sin(x) * ca.cos(y)), {"exact": False}),
}


@pytest.mark.quick
@pytest.mark.parametrize("name", SHAPES)
def test_shapes_of_the_library(name: str) -> None:
    shape, options = SHAPES[name]
    check_shape(shape, **options)


class Stadium:
    """A shape of one's own: all points within a radius of a segment in the plane."""

    def probes(self, size: int) -> list[tuple[Any, float]]:
        return [((-0.2, 0.0), 0.1), ((0.2, 0.0), 0.1)]

    def surface(self, x: ca.SX) -> tuple[ca.SX, ca.SX]:
        away = ca.vertcat(x[0] - ca.fmin(ca.fmax(x[0], -0.2), 0.2), x[1])
        distance = ca.norm_2(away)
        return distance - 0.1, away / distance


class Longer(Stadium):
    def surface(self, x: ca.SX) -> tuple[ca.SX, ca.SX]:
        distance, normal = super().surface(x)
        return 1.01 * distance, normal


class Shifted(Stadium):
    def probes(self, size: int) -> list[tuple[Any, float]]:
        return [((-0.2, 0.0), 0.1), ((0.25, 0.0), 0.1)]


class Tilted(Stadium):
    def surface(self, x: ca.SX) -> tuple[ca.SX, ca.SX]:
        distance, normal = super().surface(x)
        return distance, ca.vertcat(normal[1], -normal[0])


class Smaller(Stadium):
    def probes(self, size: int) -> list[tuple[Any, float]]:
        return [((-0.2, 0.0), 0.05), ((0.2, 0.0), 0.05)]


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (Longer(), "distances are those of the nearest points"),
        (Longer(), "distances change by the way"),
        (Shifted(), "balls lie inside: a ball is 0.05 m outside"),
        (Tilted(), "normals are unit gradients"),
        (Smaller(), "the lowest point is that of the surface: the surface is 0.05 m below the ground"),
        ("floor", "str: expected a method `probes` or `surface`"),
    ],
)
def test_a_wrong_shape_is_found(shape: Any, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_shape(shape, size=2, length=0.3)


def test_a_shape_of_ones_own_touches_and_is_touched() -> None:
    """On the ground and under a disc: it lies still, the disc over its middle."""
    check_shape(Stadium(), size=2, length=0.3)
    q, v = ca.SX.sym("q", 5), ca.SX.sym("v", 5)
    moves = ns.Coordinates(q, v)
    stadium = ns.Placed(Stadium(), q[:2], q[2], coordinates=moves)
    disc = ns.Placed(ns.Sphere(0.05), q[3:], coordinates=moves)
    touches = ns.contacts(stadium, ns.HalfSpace((0, 1)), name="ground", friction=0.5)
    touches += ns.contacts(disc, stadium, name="disc")
    mass = ca.diag([1, 1, 0.02, 0.1, 0.1])
    system = ns.CLS(q=q, v=v, mass_matrix=mass, force=-9.81 * mass @ ca.DM([0, 1, 0, 0, 1]), contacts=touches)
    motion = ns.simulate(system, x0=[0, 0.1, 0, 0.0, 0.3, *[0.0] * 5], duration=0.5)
    assert motion.success
    # It falls 0.3 - 0.05 - 0.2 = 0.05 m.
    assert motion.impacts[0].time == pytest.approx(np.sqrt(2 * 0.05 / 9.81), abs=1e-9)
    np.testing.assert_allclose(motion.final_state[:5], [0, 0.1, 0, 0, 0.25], rtol=0, atol=1e-8)


# --- kinds of start ---


@pytest.mark.parametrize("kind", STARTS.own)
def test_kinds_of_start_of_the_library(kind: str) -> None:
    check_start(STARTS[kind], starts=1 if kind == "evolution" else 3)


def beyond(task: StartTask, rng: np.random.Generator) -> Iterator[Start | None]:
    for start in constant(task, rng):
        if start is not None:
            yield replace(start, control=replace(start.control, values=np.asarray(start.control.values) + 100.0))


def unseeded(task: StartTask, rng: np.random.Generator) -> Iterator[Start | None]:
    yield task.start(np.random.default_rng().uniform(task.lower, task.upper, (2, task.lower.size)))


def never(task: StartTask, rng: np.random.Generator) -> Iterator[Start | None]:
    while True:
        yield None


def longer(task: StartTask, rng: np.random.Generator) -> Iterator[Start | None]:
    yield from (start and replace(start, horizon=9.0) for start in constant(task, rng))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (beyond, "a control outside of its bounds"),
        (unseeded, "the same seed gives the same starts"),
        (never, "gives starts: no start in 60 pieces of work on any problem"),
        (longer, "OptionError: control grid: it goes from 0 to 1 s"),
    ],
)
def test_a_wrong_kind_of_start_is_found(kind: Any, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_start(kind)


# --- simulators ---

SIMULATORS: dict[str, tuple[Any, float, dict[str, Any]]] = {
    "event-driven": (ns.EventDriven(), 1e-6, {}),
    "time-stepping": (ns.TimeStepping(step=1e-3), 2e-2, {}),
    "finite elements with jumps": (ns.FESDJ(), 1e-6, {"steps": 20}),
    "finite elements": (ns.FESD(), 1e-6, {"steps": 20}),
}


@pytest.mark.parametrize("name", SIMULATORS)
def test_simulators_of_the_library(name: str) -> None:
    method, accuracy, options = SIMULATORS[name]
    check_simulator(method, accuracy=accuracy, **options)


class Careless(SimulationMethod):
    """EventDriven with one mistake."""

    takes = (ns.CLS,)
    mistake: str = ""

    def simulate(self, system: ns.CLS, task: Any) -> ns.Trajectory:
        if self.mistake == "deaf":
            task = replace(task, callback=None)
        motion = ns.EventDriven().simulate(system, task)
        if self.mistake == "late":
            return replace(motion, x=motion.x + 1e-3 * motion.t[:, None], final_state=motion.x[-1] + 1e-3)
        if self.mistake == "proud":
            return replace(motion, status=Status.SOLVED)
        if self.mistake == "nameless":
            return replace(motion, state_names=("a", "b", "c")[: len(motion.state_names)])
        return motion


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("deaf", "stops when it is asked to: status Status.SOLVED|stops when it is asked to: status solved"),
        ("proud", "says that there are no numbers: status"),
        ("nameless", "records the motion: state names"),
    ],
)
def test_a_wrong_simulator_is_found(mistake: str, said: str) -> None:
    check_simulator(Careless(), accuracy=1e-6)
    with pytest.raises(AssertionError, match=said):
        check_simulator(Careless(mistake=mistake), accuracy=1e-6)


def test_a_step_that_is_too_long_is_inaccurate() -> None:
    with pytest.raises(AssertionError, match="reaches the end in closed form"):
        check_simulator(ns.TimeStepping(step=0.1), accuracy=1e-6)
    with pytest.raises(AssertionError, match=r"expected a method that takes ns.CLS or ns.PSS"):
        check_simulator(ns.LieGroupVariational(), accuracy=1e-6)


# --- methods ---

METHODS: dict[str, tuple[Any, float]] = {
    "multi-phase": (ns.MultiPhase(intervals=10), 0.02),
    "FESD-J": (ns.FESDJ(control_stages=10), 0.02),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_of_the_library(name: str) -> None:
    method, accuracy = METHODS[name]
    check_method(method, accuracy=accuracy)


class Claims(ns.MultiPhase):
    """MultiPhase that calls everything solved, or does not listen."""

    deaf: bool = False

    def solved(self, ocp: Any, guess: Any, callback: Any, started: float, deadline: float) -> ns.Solution:
        if self.deaf:
            for step in range(3 if callback is not None else 0):
                callback(step)
            return super().solved(ocp, guess, None, started, deadline)
        return replace(super().solved(ocp, guess, callback, started, deadline), status=Status.SOLVED)


def test_a_wrong_method_is_found() -> None:
    with pytest.raises(AssertionError, match="says that there is no solution: status"):
        check_method(Claims(intervals=10), accuracy=0.02)
    with pytest.raises(AssertionError, match=r"stops when it is asked to: \d+ calls after ns.Stop"):
        check_method(Claims(intervals=10, deaf=True), accuracy=0.02)
    with pytest.raises(AssertionError, match="reaches the optimum in closed form: objective 16"):
        check_method(ns.MultiPhase(intervals=2, refinements=0), accuracy=0.02)


def test_the_closed_forms_are_those_of_the_search() -> None:
    solution = ns.solve(least_effort(ns.CLS), effort="quick")
    assert solution.objective == pytest.approx(12.0, rel=1e-2)
    assert ns.solve(bounce_to(), effort="quick").success


# --- robots ---


def test_robots_of_random_trees() -> None:
    check_robot(Robot.from_urdf(HOPPER, "planar"))
    for base in ("fixed", "floating"):
        check_robot(Robot.from_urdf(random_tree(np.random.default_rng(1), 4, fixed=base == "fixed"), base))


def test_a_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "hopper.urdf"
    file.write_text(HOPPER)
    check_robot(file, base="planar")


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("mass_matrix", lambda robot, exact: exact + 0.1 * robot.q[0] * ca.SX.eye(exact.shape[0]), "kinetic energy"),
        ("mass_matrix", lambda robot, exact: exact + 1e-6 * ca.triu(ca.SX.ones(5, 5)), "M and its transpose"),
        ("bias", lambda robot, exact: exact + 0.01 * robot.v, "changes by -"),
        ("jacobian", lambda robot, exact: lambda place: 1.01 * exact(place), "links move as their jacobians say"),
    ],
)
def test_a_wrong_robot_is_found(name: str, change: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = getattr(Robot, name)
    read = getattr(exact, "func", None) or getattr(exact, "fget", None) or (lambda robot: partial(exact, robot))
    monkeypatch.setattr(Robot, name, property(lambda robot: change(robot, read(robot))))
    with pytest.raises(AssertionError, match=said):
        check_robot(Robot.from_urdf(HOPPER, "planar"))


# --- members from other packages ---

PACKAGE = '''
import casadi as ca
import nosnoc_py as ns
from nosnoc_py.mpcc.relaxations import ROOT_SHIFT, Relaxation

NATURAL = Relaxation(lambda a, b, s: (4 * (a * b - s) / (a + b + ca.sqrt((a - b) ** 2 + 4 * s + ROOT_SHIFT)),))

def bang_bang(task, rng):
    yield task.start([task.upper, task.lower])

class Coarse(ns.MultiPhase):
    """Few intervals."""

    intervals: int = 4
'''
ENTRIES = """[nosnoc_py.relaxations]
natural_residual = other_package:NATURAL
[nosnoc_py.starts]
bang_bang = other_package:bang_bang
[nosnoc_py.methods]
Coarse = other_package:Coarse
"""
USE = """
import nosnoc_py as ns
from nosnoc_py.sweep.choices import make
from nosnoc_py.testing.systems import bounce_to
from tests.testing.test_conformance import small
print(ns.solve_mpcc(small(), ns.Homotopy(relaxation="natural_residual")).success)
print({c.start for c in ns.solve(bounce_to(), ns.Search(starts=("bang_bang",), effort="quick")).candidates})
print(make("method", {"name": "Coarse"}).intervals, "bang_bang" in ns.Search().starts)
for bad in (lambda: ns.Homotopy(relaxation="natural"), lambda: ns.Search(starts=("bang",))):
    try:
        bad()
    except ns.OptionError as error:
        print(error)
"""


def small() -> ns.MPCC:
    x = ca.SX.sym("x", 2)
    return ns.MPCC.of_pairs(w=x, G=x[0], H=x[1], objective=(x[0] - 1) ** 2 + (x[1] - 2) ** 2, w0=0.3)


def test_members_of_another_package_have_names(tmp_path: Path) -> None:
    """A relaxation, a kind of start and a method for sweeps by entry points; the default search has its own kinds."""
    (tmp_path / "other_package.py").write_text(PACKAGE)
    info = tmp_path / "other_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other_package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    paths = [str(tmp_path), *sys.path]
    code = f"import sys; sys.path[:] = {paths!r}\n{USE}"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    lines = answer.stdout.splitlines()
    assert lines[0] == "True"
    assert lines[1] in ("{'bang_bang'}", "{'bang_bang', 'moves'}", "{'moves', 'bang_bang'}")
    assert lines[2] == "4 False"
    assert "Did you mean 'natural_residual'?" in lines[3]
    assert "Did you mean 'bang_bang'?" in lines[4]


def test_names_that_nobody_has_are_refused() -> None:
    assert "natural_residual" not in RELAXATIONS
    with pytest.raises(KeyError, match="natural_residual"):
        RELAXATIONS["natural_residual"]
