"""Data of starts against closed forms: balance, bounds, goals, free numbers, computed torques, smoothed programs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.kernels import KernelEvaluator
from nosnoc_py.programs import BlockProgram
from nosnoc_py.search import simplex as simplex_module
from nosnoc_py.search import smoothed, starts
from nosnoc_py.search.smoothed import (
    SHARED,
    STEPS,
    SmoothedProgram,
    _constant_guess,
)
from nosnoc_py.search.starts import PIECES, StartTask, goal
from nosnoc_py.search.steps import line_states

pytestmark = pytest.mark.quick


def cart(mass: float = 2.0, force: Any = None, **changed: Any) -> ns.OCP:
    """A mass of 2 kg on a line with a wall 9 m away."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    wall = ns.Contact("wall", gap=9 - q)
    names = {"q": ["q"], "v": ["v"], "u": ["u"]}
    push = u if force is None else force(q, v, u)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=mass, force=push, contacts=[wall], names=names)
    asked: dict[str, Any] = {"horizon": 2.0, "x0": [1.0, 0.5], "stage_cost": u**2}
    given = {key: value(system) if callable(value) else value for key, value in changed.items()}
    return ns.OCP(system, **{**asked, **given})


def test_the_width_of_a_smoothed_contact_is_of_the_force_that_stops_or_holds() -> None:
    """2 kg that are pushed with 7 N: 2 (v / T + 7 / 2), with the typical speed v and T = 2 s."""
    task = StartTask.of(cart(force=lambda q, v, u: u - 7))
    sized, speed = smoothed._with_sizes(task), task.sizes[1]
    assert sized.nominal["v"] == pytest.approx([speed])
    assert sized.nominal["force"] == pytest.approx([2.0 * (speed / 2.0 + 3.5)], rel=1e-12)


class TestBounds:
    @pytest.mark.parametrize(
        ("low", "high", "lower", "upper", "rest"),
        [
            (-np.inf, np.inf, 7.0 - 21.0, 7.0 + 21.0, 7.0),  # three times the weight of 7 N around it
            (-5.0, np.inf, -5.0, 28.0, 7.0),
            (-np.inf, 9.0, 7.0 - 27.0, 9.0, 7.0),  # a bound of 9 N is a typical control, too
            (0.0, 4.0, 0.0, 4.0, 4.0),
            (-np.inf, 4.0, 4.0 - 21.0, 4.0, 4.0),  # the weight cannot be held
            (10.0, np.inf, 10.0, 10.0 + 30.0, 10.0),
        ],
    )
    def test_controls_without_bounds_reach_three_times_the_weight(
        self, low: float, high: float, lower: float, upper: float, rest: float
    ) -> None:
        task = StartTask.of(cart(force=lambda q, v, u: u - 7, bounds=ns.Bounds(u=(low, high))))
        assert (task.lower[0], task.upper[0], task.rest[0]) == (
            pytest.approx(lower),
            pytest.approx(upper),
            pytest.approx(rest),
        )
        assert task.zero[0] == pytest.approx(min(max(0.0, lower), upper))

    def test_a_control_without_effect_has_no_size_of_its_own(self) -> None:
        rest, size = starts._balance(cart(force=lambda q, v, u: 0 * u - 7), np.array([1.0, 0.5]))
        assert (rest.tolist(), size.tolist()) == ([0.0], [0.0])
        rest, size = starts._balance(cart(force=lambda q, v, u: 4 * u - 8 * q), np.array([1.5, 0.5]))
        assert (rest.tolist(), size.tolist()) == (pytest.approx([3.0]), pytest.approx([3.0]))
        rest, size = starts._balance(cart(force=lambda q, v, u: u + ca.sqrt(q - 5)), np.array([1.5, 0.5]))
        assert (rest.tolist(), size.tolist()) == ([0.0], [0.0])

    def test_redundant_controls_share_the_load_and_the_largest_force_sets_their_size(self) -> None:
        q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u", 2)
        wall, force = ns.Contact("wall", gap=q[0]), ca.vertcat(u[0] + u[1] - 6, 10)
        system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=force, contacts=[wall])
        rest, size = starts._balance(ns.OCP(system, horizon=1.0, x0=[1, 0, 0, 0]), np.array([1.0, 0, 0, 0]))
        assert rest == pytest.approx([3.0, 3.0])
        assert size == pytest.approx([10.0, 10.0])

    @pytest.mark.parametrize(("states", "growth"), [(2, 1.0), (10, 1.0), (20, 2.0)])
    def test_limits_of_work_grow_from_ten_states_on(self, states: int, growth: float) -> None:
        q, v = ca.SX.sym("q", states // 2), ca.SX.sym("v", states // 2)
        wall = ns.Contact("wall", gap=q[0])
        system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(states // 2), force=ca.DM.zeros(states // 2), contacts=[wall])
        assert StartTask.of(ns.OCP(system, horizon=1.0, x0=np.ones(states))).growth == growth


class TestStarts:
    def test_knots_are_joined_by_straight_lines(self) -> None:
        """From -1 over 3 to 1 in sixteen pieces of 1/8 s, clipped to 2 N."""
        start = StartTask.of(cart(bounds=ns.Bounds(u=(-5, 2)))).start(np.array([[-1.0], [3.0], [1.0]]))
        t = (np.arange(16) + 0.5) / 8
        values = np.where(t < 1, -1 + 4 * t, 3 - 2 * (t - 1))
        assert PIECES == 16
        assert start.control.values.ravel() == pytest.approx(np.minimum(values, 2.0))
        assert start.control.grid == pytest.approx(np.linspace(0, 2, 17))
        assert (start.horizon, start.x0.tolist()) == (2.0, [1.0, 0.5])
        constant = StartTask.of(cart()).start(np.array([[0.25]]))
        assert constant.control.values.ravel() == pytest.approx(np.full(16, 0.25))

    @pytest.mark.parametrize(
        ("share", "low", "high", "middle", "size", "value"),
        [
            (0.25, 2.0, 4.0, 9.0, 9.0, 2.5),
            (0.0, -np.inf, 4.0, 1.0, 3.0, -2.0),
            (0.0, -np.inf, 4.0, -5.0, 3.0, -10.0),
            (0.0, -np.inf, -6.0, -5.0, 3.0, -11.0),
            (1.0, 2.0, np.inf, 1.0, 3.0, 5.0),
            (1.0, 2.0, np.inf, 5.0, 3.0, 10.0),
            (0.5, -np.inf, np.inf, 1.0, 3.0, 1.0),
        ],
    )
    def test_infinite_bounds_are_replaced_around_the_present_value(
        self, share: float, low: float, high: float, middle: float, size: float, value: float
    ) -> None:
        assert starts._interpolated(share, low, high, middle, size) == pytest.approx(value)

    def free(self, **changed: Any) -> ns.OCP:
        q, v, a, b = (ca.SX.sym(name) for name in "qvab")
        names = {"p": ["a", "b"]}
        system = ns.CLS(
            q=q, v=v, p=ca.vertcat(a, b), mass_matrix=1, force=-a, contacts=[ns.Contact("wall", gap=9 - q)], names=names
        )
        asked: dict[str, Any] = {
            "horizon": ns.FreeTime(0.5, 8.0, initial=1.0),
            "x0": [0.0, 0.0],
            "p": [4.0, 6.0],
            "free_parameters": {"b": (5.0, 9.0)},
        }
        return ns.OCP(system, **{**asked, **changed})

    def test_free_numbers_are_shares_between_their_bounds(self) -> None:
        task = StartTask.of(self.free())
        assert task.freedom == 2
        assert task.shares == pytest.approx([0.25, 0.5])
        start = task.start(np.zeros((1, 0)), np.array([0.75, 0.25]))
        assert start.p.tolist() == [4.0, 8.0]
        # Bounds of the horizon may lie decades apart: a quarter of the way from 1/2 to 8 is 1.
        assert start.horizon == pytest.approx(1.0)
        assert len(start.control.values) == 1
        beyond = task.start(np.zeros((1, 0)), np.array([2.0, -1.0]))
        assert (beyond.p[1], beyond.horizon) == (9.0, 0.5)
        assert task.start(np.zeros((1, 0))).horizon == 1.0
        unbounded = StartTask.of(self.free(free_parameters={"b": (5.0, np.inf)}))
        assert unbounded.shares == pytest.approx([0.5, 0.5])

    def test_a_free_initial_state_is_a_share_of_its_box(self) -> None:
        ocp = self.free(x0=None, horizon=1.0, free_parameters={}, bounds=ns.Bounds(x=([1.0, -2.0], [5.0, 2.0])))
        task = StartTask.of(ocp)
        assert task.freedom == 2
        start = task.start(np.zeros((1, 0)), np.array([0.25, 1.0]))
        assert start.x0 == pytest.approx([2.0, 2.0], abs=1e-5)


class TestGoals:
    def test_the_nearest_state_that_satisfies_the_end(self) -> None:
        ends = cart(terminal_constraints=lambda s: [s.q >= 3])
        assert goal(ends, np.array([1.0, 0.5])) == pytest.approx([3.0, 0.5], abs=1e-4)
        cost = cart(terminal_cost=lambda s: 50 * (s.q - 4) ** 2)
        assert goal(cost, np.array([1.0, 0.5])) == pytest.approx([4.0, 0.5], abs=1e-2)
        assert goal(cart(), np.array([1.0, 0.5])) is None
        # Within its bounds.
        bounded = cart(terminal_cost=lambda s: 50 * (s.q - 4) ** 2, bounds=ns.Bounds(x=([-9, -9], [2.5, 9])))
        assert goal(bounded, np.array([1.0, 0.5])) == pytest.approx([2.5, 0.5], abs=1e-4)

    def test_the_weight_of_the_distance_is_small(self) -> None:
        """min 1e-3 (q - 1)^2 / size^2 + (q - 4)^2, with the larger one of 1 and the typical size."""
        ocp = cart(terminal_cost=lambda s: 0.01 * (s.q - 4) ** 2)
        size = max(1.0, ocp.sizes.x[0])
        near = 1e-3 / size**2
        found = goal(ocp, np.array([1.0, 0.5]))
        assert found is not None
        assert found[0] == pytest.approx((0.04 + near) / (0.01 + near), rel=1e-3)

    def test_the_time_of_a_goal_is_the_end_of_the_horizon(self) -> None:
        q, v, t, u = (ca.SX.sym(name) for name in "qvtu")
        system = ns.CLS(q=q, v=v, t=t, u=u, mass_matrix=1, force=u - t, contacts=[ns.Contact("wall", gap=9 - q)])
        ocp = ns.OCP(system, horizon=2.0, x0=[1.0, 0.5, 3.0], terminal_constraints=[q == 4])
        assert goal(ocp, np.array([1.0, 0.5, 3.0])) == pytest.approx([4.0, 0.5, 5.0], abs=1e-4)
        assert StartTask.of(ns.OCP(system, horizon=2.0, stage_cost=u**2)).freedom == 2

    def test_a_function_that_is_not_finite_at_x0_is_named(self) -> None:
        assert StartTask.of(cart()).undefined == ""
        said = StartTask.of(cart(force=lambda q, v, u: u + ca.sqrt(q - 5))).undefined
        assert said.startswith("the force is not finite at x0 (q = 1, v = 0.5)")
        assert StartTask.of(cart(stage_cost=lambda s: ca.log(s.u - 99))).undefined.startswith("stage_cost")
        # Some control makes it finite.
        assert StartTask.of(cart(stage_cost=lambda s: ca.log(s.u), bounds=ns.Bounds(u=(-1, 1)))).undefined == ""
        assert StartTask.of(cart(x0=None, stage_cost=lambda s: ca.log(-(s.q**2)))).undefined == ""


class TestLine:
    def test_torques_of_a_cubic_and_of_its_bumps(self) -> None:
        """2 kg from rest at 1 m to rest at 4 m in 2 s: 2 (4.5 - 4.5 t) N, and 2 * 1.5 m times the bump's curvature.

        A linear torque is exact in the middles of sixteen pieces; the bump's is interpolated, 72 N/s^2 times h^2 / 8.
        """
        ocp = cart(x0=[1.0, 0.0], terminal_constraints=lambda s: [s.q == 4, s.v == 0], bounds=ns.Bounds(u=(-99, 99)))
        straight, left, right = (
            start.control.values.ravel() for start in starts.line(StartTask.of(ocp), np.random.default_rng(0))
        )
        t = (np.arange(16) + 0.5) / 8
        assert straight == pytest.approx(9 - 9 * t, abs=1e-9)
        bend = 2 * 0.5 * 3 * 32 * (1 - 6 * (t / 2) + 6 * (t / 2) ** 2) / 4
        assert left == pytest.approx(9 - 9 * t + bend, abs=0.2)
        assert right == pytest.approx(9 - 9 * t - bend, abs=0.2)

    @pytest.mark.parametrize("t", [0.0, 0.3, 1.0, 1.7, 2.0])
    def test_a_bump_and_its_derivatives(self, t: float) -> None:
        value, rate, bend = starts._bump(t, 2.0)
        r = ca.SX.sym("t")
        shape = 16 * (r / 2) ** 2 * (1 - r / 2) ** 2
        f = ca.Function("f", [r], [shape, ca.jacobian(shape, r), ca.hessian(shape, r)[0]])
        assert (value, rate, bend) == pytest.approx(tuple(float(part) for part in f(t)), abs=1e-12)
        assert starts._bump(1.0, 2.0)[0] == 1.0


class TestSmoothedPrograms:
    def task(self, **changed: Any) -> StartTask:
        return StartTask.of(cart(terminal_constraints=lambda s: [s.q == 4, s.v == 0], **changed))

    def test_guesses(self) -> None:
        """Constant, and the cubic 1 + t / 2 + ... from (1, 1/2) to (4, 0) with the control at rest."""
        x, u = _constant_guess(self.task(), np.array([3.0]))
        assert (STEPS, SHARED) == (48, 3)
        assert x == pytest.approx(np.tile([1.0, 0.5], (49, 1)))
        assert u == pytest.approx(np.full((16, 1), 3.0))
        line = line_states(self.task(), STEPS)
        assert line is not None
        x = line
        t = np.linspace(0, 2, 49)
        # q = 1 + t/2 + c2 t^2 + c3 t^3 with q(2) = 4 and v(2) = 0.
        c2, c3 = 1.75, -0.625
        assert x[:, 0] == pytest.approx(1 + t / 2 + c2 * t**2 + c3 * t**3, abs=1e-3)
        assert x[:, 1] == pytest.approx(0.5 + 2 * c2 * t + 3 * c3 * t**2, abs=1e-3)
        assert line_states(StartTask.of(cart()), STEPS) is None

    def test_a_filippov_system_goes_straight(self) -> None:
        x, u = ca.SX.sym("x"), ca.SX.sym("u")
        modes = ns.Modes("side", flows=[1.0, -1.0], functions=x, signs=[[-1], [1]])
        system = ns.PSS(x=x, u=u, flow=u, modes=modes)
        task = StartTask.of(ns.OCP(system, horizon=2.0, x0=[1.0], terminal_constraints=[x == 4]))
        line = line_states(task, STEPS)
        assert line is not None
        assert line[:, 0] == pytest.approx(np.linspace(1, 4, 49), abs=1e-4)
        program = SmoothedProgram.of(task)
        assert program.sizes == pytest.approx(np.maximum([3.0], task.sizes))
        assert program.push == pytest.approx(program.sizes / 2.0)

    def test_sizes_are_those_of_the_way(self) -> None:
        """3 m in 2 s: accelerations of a cubic, 6 d / T^2."""
        task = self.task()
        program = SmoothedProgram.of(task)
        assert program.sizes == pytest.approx(np.maximum([3.0, 0.5], task.sizes), rel=1e-4)
        assert program.push == pytest.approx(program.sizes[:1] * 6.0 / 4.0)

    def test_positions_of_the_unknowns(self) -> None:
        at = SmoothedProgram.of(self.task()).at
        assert [at[name].shape for name in ("x", "inner", "z", "u", "push", "p", "T")] == [
            (49, 2),
            (48, 2),
            (48, at["z"].shape[1]),
            (16, 1),
            (48, 1),
            (1, 0),
            (1, 1),
        ]
        every = np.concatenate([part.ravel() for part in at.values()])
        assert every.tolist() == list(range(every.size))

    def test_bounds(self) -> None:
        task = self.task(bounds=ns.Bounds(x=([-3.0, -4.0], [5.0, 6.0]), u=(-7.0, 2.0)))
        program = SmoothedProgram.of(task)
        at, (low, high, scale) = program.at, program.bounds
        assert low[at["x"][1]].tolist() == [-3.0, -4.0]
        assert high[at["inner"][7]].tolist() == [5.0, 6.0]
        assert low[at["x"][0]].tolist() == high[at["x"][0]].tolist() == [1.0, 0.5]
        assert (low[at["u"][3, 0]], high[at["u"][3, 0]], scale[at["u"][3, 0]]) == (-7.0, 2.0, 7.0)
        assert scale[at["x"][5]] == pytest.approx(program.sizes)
        assert scale[at["push"][5]] == pytest.approx(program.push)
        assert (low[at["T"][0, 0]], high[at["T"][0, 0]], scale[at["T"][0, 0]]) == (2.0, 2.0, 2.0)
        free = SmoothedProgram.of(StartTask.of(TestStarts().free()))
        low, high, scale = free.bounds
        assert low[free.at["p"][0]].tolist() == [4.0, 5.0]
        assert high[free.at["p"][0]].tolist() == [4.0, 9.0]
        assert scale[free.at["p"][0]].tolist() == [4.0, 6.0]
        assert (low[free.at["T"][0, 0]], high[free.at["T"][0, 0]]) == (0.5, 8.0)

    def motion(self, program: SmoothedProgram, u: float = 3.0) -> np.ndarray:
        """The flight with a constant force from (1, 1/2), far from the wall: 2 kg get u / 2."""
        at, w = program.at, np.zeros(program.bounds[2].size)
        t, h = np.linspace(0, 2, 49), 2 / 48
        inner = t[:-1] + h / 3

        def q(t: np.ndarray) -> np.ndarray:
            return np.column_stack([1 + t / 2 + u / 4 * t**2, 0.5 + u / 2 * t])

        w[at["x"]], w[at["inner"]], w[at["u"]], w[at["T"]] = q(t), q(inner), u, 2.0
        return w

    def test_a_flight_satisfies_the_rows(self) -> None:
        """Parabolas are exact; the cost is 9 * 2; the end at 5 m with 3.5 m/s misses 4 m and 0 m/s."""
        way = self.task(path_constraints=lambda s: [ns.Constraint(s.q + s.u, 0.0, 9.0, name="way")])
        program = SmoothedProgram.of(way)
        low, high, scale = program.bounds
        w = self.motion(program)
        nlp = BlockProgram(program.blocks(1e-3), low, high, scale, w)
        cost, rows = nlp.evaluate(w)
        assert cost == pytest.approx(18.0, rel=1e-9)
        named = {block.name: nlp.of(block, rows) for block in nlp.blocks}
        assert np.abs(named["steps"]).max() < 1e-3  # the wall, 4 m away, pulls by less
        t = np.linspace(0, 2, 49)[1:]
        assert named["path"][:, 0] == pytest.approx(1 + t / 2 + 0.75 * t**2 + 3)
        assert nlp.violation(w) == (pytest.approx(3.5), "end")
        assert named["end"].size == 2
        assert named["start"].size == 0
        # A force that assists is added to the rate of the velocity.
        w[program.at["push"][4, 0]] = 1.0
        rows = nlp.evaluate(w)[1]
        moved = nlp.of(nlp.blocks[0], rows) - named["steps"]
        h = 2 / 48
        assert moved[8:10] == pytest.approx(np.array([[0.0, -h / program.sizes[1]]] * 2), abs=1e-9)
        assert np.abs(np.delete(moved, [8, 9], axis=0)).max() < 1e-12

    def test_assistance_costs_squares_relative_to_typical_forces(self) -> None:
        program = SmoothedProgram.of(self.task())
        (block,) = program._more(96.0)
        costs = KernelEvaluator(block.kernel, np.full((48, 1), 2.0 * program.push[0])).values()[:, -1]
        assert block.cost_weights() @ costs == pytest.approx(96.0 * 4.0)

    def test_a_start_has_the_control_of_an_iterate_within_its_bounds(self) -> None:
        program = SmoothedProgram.of(self.task(bounds=ns.Bounds(u=(-7.0, 2.0))))
        start = program._start(self.motion(program))
        assert start.control.values == pytest.approx(np.full((16, 1), 2.0))
        assert start.control.grid == pytest.approx(np.linspace(0, 2, 17))
        assert (start.horizon, start.x0.tolist()) == (2.0, [1.0, 0.5])


def test_the_simplex_begins_at_the_values_of_the_problem_and_then_at_the_best_of_sixteen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With at most 40 simulations per free number; the merit is the distance from 0.9 here."""
    begun: list[Any] = []
    evaluated: list[float] = []

    class Nearest:
        def __init__(self, task: Any) -> None:
            pass

        def evaluate(self, start: Any) -> tuple[float, float]:
            evaluated.append(float(start.p[1]))
            return abs(float(start.p[1]) - 8.6), 0.0

        def __call__(self, cost: float, violation: float) -> float:
            return cost

    def minimize(cost: Any, first: Any, **more: Any) -> Any:
        begun.append((first.tolist(), more["options"]["maxfev"]))
        return SimpleNamespace(x=first)

    monkeypatch.setattr(simplex_module, "Merit", Nearest)
    monkeypatch.setattr("scipy.optimize.minimize", minimize)
    ocp = TestStarts().free(horizon=1.0)
    stream = simplex_module.simplex(StartTask.of(ocp), np.random.default_rng(0))
    assert next(stream).p.tolist() == [4.0, 6.0]
    assert begun == [([0.25], 20)]
    assert evaluated == []
    found = next(stream)
    assert len(evaluated) == 16
    # Shares between 5 and 9; the best one is nearest to 8.6.
    assert found.p[1] == pytest.approx(min(evaluated, key=lambda value: abs(value - 8.6)))
