"""Numbers of tracking, estimation and model predictive control in closed form; no plan is solved."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.control import closed_loop, fitted, robustness, tracking
from nosnoc_py.control import mpc as mpc_module
from nosnoc_py.control.costs import MotionCost
from nosnoc_py.control.estimation import _estimate, identifiability, starts_in
from nosnoc_py.control.fitted import Optimum
from nosnoc_py.control.measured import admissible
from nosnoc_py.control.moving_horizon import OUTLIER
from nosnoc_py.control.mpc import MPC, Prepared
from nosnoc_py.control.mpc_step import MPCStep, Source
from nosnoc_py.control.predicted import Predictions, ShootingPieces
from nosnoc_py.control.references import Reference, references_of
from nosnoc_py.control.robustness import deviation
from nosnoc_py.control.tracking import Weights, riccati
from nosnoc_py.control.windows import PlanWindows
from nosnoc_py.errors import OptionError
from nosnoc_py.solution import Event
from nosnoc_py.status import Status

pytestmark = pytest.mark.quick

INF = np.inf


def cart(wall: float = 9.0, restitution: float = 0.5, **more: Any) -> ns.CLS:
    """A mass of 1 kg on a line, driven by u, with a wall."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    names = {"q": ["q"], "v": ["v"], "u": ["u"]}
    contact = ns.Contact("wall", gap=wall - q, restitution=restitution)
    return ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[contact], names=names, **more)


def window(by_x: Any, by_u: Any, *, length: float = 1.0, defect: Any = (0.0,), u: Any = (0.0,), **more: bool) -> Any:
    jumps = more.get("jumps", False)
    return tracking.PlanWindow(
        start=0.0, end=length, x=np.zeros(len(defect)), u=np.array(u, float), by_x=np.array(by_x, float),
        by_u=np.array(by_u, float), defect=np.array(defect, float),
        history=SimpleNamespace(nodes=[SimpleNamespace(impact=True if jumps else None)]),
    )  # fmt: skip


class TestRiccati:
    free = np.array([-INF]), np.array([INF])
    one = Weights(Q=np.array([[2.0]]), R=np.array([[3.0]]), Qf=np.array([[5.0]]))

    def test_one_step_by_hand(self) -> None:
        """e+ = 4 e + 2 du + 0.5, cost 3 du^2 + 5 (e+ + 0.25)^2: du = -(10 * 4 e + 10 * 0.75) / 23."""
        gains, steps = riccati(
            (window([[4.0]], [[2.0]], defect=[0.5]),), self.one, np.array([[0.0], [0.25]]), np.zeros((1, 1)), self.free
        )
        assert gains == pytest.approx(np.array([[[40.0 / 23.0]]]))
        assert steps == pytest.approx(np.array([[7.5 / 23.0]]))

    def test_offsets_of_controls_are_undone(self) -> None:
        """3 (du + 0.7)^2 + 5 (2 du)^2: du = -2.1 / 23."""
        still = (window([[4.0]], [[2.0]]),)
        _, steps = riccati(still, self.one, np.zeros((2, 1)), np.array([[0.7]]), self.free)
        assert steps == pytest.approx(np.array([[2.1 / 23.0]]))

    def test_two_steps_are_the_dense_least_squares_problem(self) -> None:
        """Against the quadratic program in both controls, with lengths, defects and offsets, for two starts."""
        first = window([[1.2, 0.3], [0.0, 0.9]], [[0.1], [0.5]], length=0.5, defect=[0.1, -0.2])
        second = window([[0.8, 0.1], [0.2, 1.1]], [[0.4], [0.2]], length=2.0, defect=[0.3, 0.05])
        weights = Weights(Q=np.diag([1.0, 2.0]), R=np.array([[0.5]]), Qf=np.array([[3.0, 0.5], [0.5, 4.0]]))
        o, r = np.array([[0.0, 0.0], [0.2, -0.1], [0.4, 0.3]]), np.array([[0.6], [-0.7]])
        gains, steps = riccati((first, second), weights, o, r, self.free)
        for e in (np.zeros(2), np.array([0.5, -1.0])):
            du = -gains[0] @ e - steps[0]
            there = first.by_x @ e + first.by_u @ du + first.defect
            last = -gains[1] @ there - steps[1]
            rows, right = [], []
            for root, matrix, constant in (
                (np.sqrt(0.5 * 0.5), [[1.0, 0.0]], r[0]),
                (np.sqrt(2.0 * 0.5), [[0.0, 1.0]], r[1]),
                (np.sqrt(2.0) * np.diag([1.0, np.sqrt(2.0)]), np.hstack([first.by_u, np.zeros((2, 1))]),
                 first.by_x @ e + first.defect + o[1]),
                (np.linalg.cholesky(weights.Qf).T, np.hstack([second.by_x @ first.by_u, second.by_u]),
                 second.by_x @ (first.by_x @ e + first.defect) + second.defect + o[2]),
            ):  # fmt: skip
                factor = np.atleast_2d(root)
                rows.append(factor @ np.array(matrix))
                right.append(factor @ np.atleast_1d(constant))
            expected = np.linalg.lstsq(np.vstack(rows), -np.concatenate(right), rcond=None)[0]
            assert np.concatenate([du, last]) == pytest.approx(expected, rel=1e-9)

    def test_a_control_at_its_bound_has_no_gain(self) -> None:
        """min du'M du / 2 + du' n with M = [[2, 1], [1, 4]] and n = (-6, 1): k = -du is held at -1."""
        hessian, coupling = np.array([[2.0, 1.0], [1.0, 4.0]]), np.array([[1.0], [2.0]])
        gradient = np.array([-6.0, 1.0])
        K, k = tracking._bounded_step(hessian, coupling, gradient, np.full(2, -INF), np.full(2, INF))
        assert k == pytest.approx(np.linalg.solve(hessian, gradient))
        assert pytest.approx(np.linalg.solve(hessian, coupling)) == K
        K, k = tracking._bounded_step(hessian, coupling, gradient, np.array([-1.0, -INF]), np.full(2, INF))
        assert k == pytest.approx([-1.0, (1.0 + 1.0) / 4.0])
        assert pytest.approx(np.array([[0.0], [0.5]])) == K
        K, k = tracking._bounded_step(hessian, coupling, gradient, np.array([-1.0, 0.0]), np.array([1.0, 0.4]))
        assert k == pytest.approx([-1.0, 0.4])
        assert not K.any()
        # Bounds of the control itself: u - k between lower and upper.
        held = (window([[4.0]], [[2.0]], defect=[5.0], u=[0.75]),)
        _, steps = riccati(held, self.one, np.zeros((2, 1)), np.zeros((1, 1)), (np.array([0.5]), np.array([9.0])))
        assert steps == pytest.approx(np.array([[0.25]]))

    def test_without_saltation_the_window_before_counts(self) -> None:
        windows = tuple(window([[k]], [[10 * k]], jumps=k in (0, 2)) for k in range(4))
        smooth = tracking._without_saltation(windows)
        assert [float(each.by_x[0, 0]) for each in smooth] == [1.0, 1.0, 1.0, 3.0]
        assert [float(each.by_u[0, 0]) for each in smooth] == [10.0, 10.0, 10.0, 30.0]


class TestTracking:
    def plan(self, **more: Any) -> Any:
        given = {"x": np.array([[0.0, 1.0], [4.0, 3.0], [2.0, 1.0]]), "u": np.array([[1.0], [3.0]]), "duration": 2.0}
        return SimpleNamespace(**{**given, **more})

    def test_brysons_rule(self) -> None:
        """Ranges of 4 m, 2 m/s and 2 N: weights 1 / (0.05 * 4)^2, 1 / (0.2 * 2)^2 and 1 / 2^2."""
        weights = tracking.default_weights(self.plan(), cart(), None, None, None)
        assert pytest.approx(np.diag([25.0, 6.25])) == weights.Q
        assert pytest.approx(np.array([[0.25]])) == weights.R
        assert weights.Qf == pytest.approx(2.0 * weights.Q)
        given = tracking.default_weights(self.plan(), cart(), 3.0, [2.0], np.diag([7.0, 8.0]))
        assert (given.Q.tolist(), given.R.tolist(), given.Qf.tolist()) == ([[3, 0], [0, 3]], [[2]], [[7, 0], [0, 8]])
        still = self.plan(u=np.ones((2, 1)))
        assert pytest.approx(np.array([[1.0]])) == tracking.default_weights(still, cart(), None, None, None).R

    @pytest.mark.parametrize(
        ("Q", "R", "match"),
        [
            ([[1.0, 2.0], [2.0, 1.0]], None, "negative eigenvalues"),
            ([1.0, 2.0, 3.0], None, "expected a number"),
            ("much", None, "expected a number"),
            (None, 0.0, "positive definite"),
        ],
    )
    def test_weights_that_are_none(self, Q: Any, R: Any, match: str) -> None:
        with pytest.raises(OptionError, match=match):
            tracking.default_weights(self.plan(), cart(), Q, R, None)
        assert tracking._matrix([[1.0, 1.0], [0.0, 1.0]], 2, "Q").tolist() == [[1.0, 0.5], [0.5, 1.0]]
        assert tracking._matrix([0.0, 1.0], 2, "Q").tolist() == [[0.0, 0.0], [0.0, 1.0]]

    @pytest.mark.parametrize(
        ("grid", "period", "count"),
        [
            (np.linspace(0, 2, 31), None, 120),  # whole fractions of 30 stages, at least 100
            (np.linspace(0, 2, 201), None, 200),
            (np.array([0.0, 0.5, 2.0]), None, 100),
            (np.linspace(0, 2, 31), 0.3, 7),
            (np.linspace(0, 2, 31), 2.0, 1),
        ],
    )
    def test_samples(self, grid: Any, period: float | None, count: int) -> None:
        assert tracking._sample_count(self.plan(u_grid=grid), period) == count
        for wrong in (0.0, 2.1, True):
            with pytest.raises(OptionError, match="period"):
                tracking._sample_count(self.plan(u_grid=grid), wrong)

    def test_limits(self) -> None:
        assert [side.tolist() for side in tracking._limits(None, cart(), None)] == [[-INF], [INF]]
        assert [side.tolist() for side in tracking._limits(None, cart(), (-2, [3.0]))] == [[-2.0], [3.0]]
        problem = SimpleNamespace(ocp=SimpleNamespace(u_bounds=(np.array([-1.0, 0.0]), np.array([4.0, INF]))))
        assert [side.tolist() for side in tracking._limits(problem, cart(), None)] == [[-1.0], [4.0]]
        assert tracking._limits(None, cart(), (1.0, 1.0))[0].tolist() == [1.0]
        for wrong in ((3.0, 2.0), 5.0):
            with pytest.raises(OptionError, match="bounds"):
                tracking._limits(None, cart(), wrong)

    def test_opposite_quaternions_are_one_attitude(self) -> None:
        system: Any = SimpleNamespace(unit_parts=(slice(1, 5),))
        reference = np.array([1.0, 0.6, 0.8, 0.0, 0.0])
        assert deviation(system, [3.0, -0.6, -0.8, 0.0, 0.0], reference) == pytest.approx([2.0, 0, 0, 0, 0])
        assert deviation(system, [3.0, 0.6, 0.8, 0.0, 0.0], reference) == pytest.approx([2.0, 0, 0, 0, 0])
        # Half a turn apart, with a product that is zero however a processor rounds.
        half_turn = deviation(system, [1.0, 0.0, 1.0, 0.0, 0.0], np.array([1.0, 1.0, 0.0, 0.0, 0.0]))
        assert half_turn == pytest.approx([0.0, -1.0, 1.0, 0.0, 0.0])


class TestWindows:
    def test_a_flight_in_closed_form(self) -> None:
        """By x [[1, h], [0, 1]] and by u (h^2 / 2, h) in windows of h = 0.25 s."""
        system = cart()
        plan = ns.simulate(system, x0=[0.0, 1.0], duration=1.0, u=2.0)
        windows = PlanWindows(system, plan, np.zeros(0)).between(np.linspace(0, 1, 5))
        assert [(each.start, each.end) for each in windows] == [(0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 1.0)]
        for k, each in enumerate(windows):
            t = 0.25 * k
            assert each.x == pytest.approx([t + t**2, 1 + 2 * t], abs=1e-9)
            assert each.u == pytest.approx([2.0])
            assert each.by_x == pytest.approx(np.array([[1.0, 0.25], [0.0, 1.0]]), abs=1e-9)
            assert each.by_u == pytest.approx(np.array([[0.03125], [0.25]]), abs=1e-9)
            assert each.defect == pytest.approx([0.0, 0.0], abs=1e-9)
            assert (each.jumps, each.flags) == (False, ())

    def test_a_bounce_has_its_saltation(self) -> None:
        """From 1 m/s in 0.5 m of the wall, e = 1/2: after the impact x = 0.5 - (t - 0.5) / 2 for a free motion."""
        system = cart(wall=0.5)
        plan = ns.simulate(system, x0=[0.0, 1.0], duration=1.0, u=0.0)
        windows = PlanWindows(system, plan, np.zeros(0))
        (both,) = windows.between(np.array([0.0, 1.0]))
        assert both.jumps
        # x(1) = 0.5 - e (1 - (0.5 - q0) / v0) v0: by q0 -1/2, by v0 -1/2 (1 - 0) = -e.
        assert both.by_x == pytest.approx(np.array([[-0.5, -0.5], [0.0, -0.5]]), abs=1e-7)
        (reference,) = references_of(windows, windows.between(np.linspace(0, 1, 6)))
        assert reference.time == pytest.approx(0.5, abs=1e-9)
        # Three periods of 0.2 s, within the plan.
        assert (reference.start, reference.end) == (pytest.approx(0.0), pytest.approx(1.0))
        assert reference.before(0.9) == pytest.approx([0.9, 1.0], abs=1e-7)
        assert reference.after(0.1) == pytest.approx([0.7, -0.5], abs=1e-7)
        (short,) = references_of(windows, windows.between(np.linspace(0, 1, 10)))
        assert (short.start, short.end) == (pytest.approx(0.5 - 1 / 3), pytest.approx(0.5 + 1 / 3))

    def test_extensions_of_impacts_meet_half_way(self) -> None:
        """Between elastic walls at 0.2 and 0.5 m a mass of 1 m/s has an impact every 0.3 s."""
        q, v, u = (ca.SX.sym(name) for name in "qvu")
        walls = [ns.Contact(f"wall {k}", gap=gap, restitution=1.0) for k, gap in enumerate((q - 0.2, 0.5 - q))]
        system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=walls)
        windows = PlanWindows(system, ns.simulate(system, x0=[0.25, 1.0], duration=1.0, u=0.0), np.zeros(0))
        references = references_of(windows, windows.between(np.linspace(0, 1, 4)))
        assert [each.time for each in references] == pytest.approx([0.25, 0.55, 0.85], abs=1e-9)
        assert [each.start for each in references] == pytest.approx([0.1, 0.4, 0.7], abs=1e-9)
        assert [each.end for each in references] == pytest.approx([0.4, 0.7, 1.0], abs=1e-9)

    def test_the_other_side_of_an_impact(self) -> None:
        event = Reference(time=0.5, start=0.2, end=0.8, before=lambda t: np.array([t]), after=lambda t: np.array([-t]))
        assert event.other_side(0.3) == pytest.approx([-0.3])
        assert event.other_side(0.5) == pytest.approx([0.5])
        assert event.other_side(0.7) == pytest.approx([0.7])
        assert event.other_side(0.1) is event.other_side(0.9) is None
        assert event.other_side(0.2) is not None
        assert event.other_side(0.8) is not None

    def test_secants_where_there_is_no_derivative(self) -> None:
        """Central differences of a free flight are its derivatives; against the wall a step is projected."""
        system = cart(wall=5.0)
        plan = ns.simulate(system, x0=[0.0, 1.0], duration=1.0, u=2.0)
        windows = PlanWindows(system, plan, np.zeros(0))
        by_x, by_u = windows._differences(np.array([0.0, 1.0]), np.array([2.0]), 0.0, 0.5, None)
        assert by_x == pytest.approx(np.array([[1.0, 0.5], [0.0, 1.0]]), abs=1e-6)
        assert by_u == pytest.approx(np.array([[0.125], [0.5]]), abs=1e-6)

    def test_means_and_states(self) -> None:
        system = cart()
        plan = ns.simulate(system, x0=[0.0, 1.0], duration=1.0, u=np.array([[1.0], [2.0], [4.0], [8.0]]))
        windows = PlanWindows(system, plan, np.zeros(0))
        assert windows.mean(0.25, 0.75) == pytest.approx([3.0])
        assert windows.mean(0.0, 1.0) == pytest.approx([3.75])
        assert windows.state(1.0) == pytest.approx(plan.x[-1])
        assert windows.state(0.25) == pytest.approx([0.25 + 0.03125, 1.25])


class TestCosts:
    def test_of_a_motion(self) -> None:
        """The trapezoidal rule of q^2 + u at 0, 1, 1 and 3 s, and 5 (q - q_0)^2 at the end."""
        system = cart()
        away = (system.q - system.x_initial[0]) ** 2
        ocp = ns.OCP(system, horizon=1.0, x0=[0, 0], stage_cost=system.q**2 + system.u, terminal_cost=5 * away)
        cost = MotionCost.of(ocp, 1, 0)
        assert cost is not None
        t, x = np.array([0.0, 1.0, 1.0, 3.0]), np.array([[0.0, 0], [2.0, 0], [3.0, 0], [1.0, 0]])
        assert cost.running(t, x, np.array([10.0]), np.zeros(0)) == pytest.approx(0.5 * (0 + 4) + (9 + 1) + 30.0)
        controls = np.array([[0.0], [2.0], [4.0], [6.0]])
        assert cost.running(t, x, controls, np.zeros(0)) == pytest.approx(2.0 + 10.0 + 1.0 + 10.0)
        assert cost.final(np.array([4.0, 0]), np.array([1.0, 0]), np.zeros(0)) == pytest.approx(45.0)

    def test_measured_states_are_moved_out_of_contacts(self) -> None:
        """Two masses of 1 and 3 kg that overlap by 0.4 m move by 0.3 and 0.1 m; the wall holds one of them."""
        q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
        touch = ns.Contact("touch", gap=q[1] - q[0] - 1)
        system = ns.CLS(q=q, v=v, mass_matrix=ca.DM([[1, 0], [0, 3]]), force=[0, 0], contacts=[touch])
        assert admissible(system, [0.0, 0.6, 5.0, 6.0]) == pytest.approx([-0.3, 0.7, 5.0, 6.0])
        assert admissible(system, [0.0, 1.6, 5.0, 6.0]).tolist() == [0.0, 1.6, 5.0, 6.0]
        assert admissible(system, [0.0, 1.0 - 1e-15, 0, 0])[0] == 0.0
        with pytest.raises(ns.ModelError, match="expected 4 finite numbers"):
            admissible(system, [0.0, np.nan, 0, 0])

    def test_measured_states_are_moved_into_the_set_of_a_projected_system(self) -> None:
        """Points that overlap by 0.4 share it by the metric, discs along the line of their centres; a corner holds."""
        x = ca.SX.sym("x", 2)
        line = ns.PDS(x=x, flow=[0, 0], constraints=x[1] - x[0] - 1, metric=[[1, 0], [0, 3]])
        assert admissible(line, [0.0, 0.6]) == pytest.approx([-0.3, 0.7], abs=1e-12)
        assert admissible(line, [0.0, 1.6]).tolist() == [0.0, 1.6]
        still = ns.PDS(x=x, flow=[0, 0], constraints=x[1] - x[0] - 1, metric=[[0, 0], [0, 1]])
        assert admissible(still, [0.0, 0.6]) == pytest.approx([0.0, 1.0], abs=1e-12)
        y = ca.SX.sym("y", 4)
        discs = ns.PDS(x=y, flow=[0] * 4, constraints=ca.sumsqr(y[:2] - y[2:]) - 25)
        assert admissible(discs, [0, 0, 2.4, 3.2]) == pytest.approx([-0.3, -0.4, 2.7, 3.6], abs=1e-10)
        corner = ns.PDS(x=x, flow=[0, 0], constraints=ca.vertcat(x[1] - 0.5 * x[0], x[0]))
        # Below the slope: along its normal; left of the wall and below the corner: the corner.
        assert admissible(corner, [1.0, 0.0]) == pytest.approx([0.8, 0.4], abs=1e-12)
        assert admissible(corner, [-1.0, -0.1]) == pytest.approx([0.0, 0.0], abs=1e-12)
        # Beyond both constraints of a wide corner, but nearest to the slope: the wall would have to pull.
        wide = ns.PDS(x=x, flow=[0, 0], constraints=ca.vertcat(x[1] + 2 * x[0], x[0]))
        assert admissible(wide, [-0.1, -1.0]) == pytest.approx([0.38, -0.76], abs=1e-12)
        never = ns.PDS(x=x, flow=[0, 0], constraints=-1 - x[0] ** 2)
        with pytest.raises(ns.ModelError, match=r"'c_0' stays violated"):
            admissible(never, [1.0, 0.0])


class TestFits:
    def test_linear_least_squares_with_bounds(self) -> None:
        """min |x - (1, 5)|^2 with x_1 <= 3."""
        target = np.array([1.0, 5.0])
        for low, high, found in (([-9.0, -9.0], [9.0, 3.0], [1.0, 3.0]), ([-9.0, -INF], [9.0, INF], [1.0, 5.0])):
            minimum = fitted._bounded_least_squares(
                lambda z: z - target,
                lambda z: (z - target, np.eye(2)),
                np.zeros(2),
                np.array(low),
                np.array(high),
                1e-10,
                50,
            )
            assert minimum is not None
            assert minimum[0] == pytest.approx(found, abs=1e-4)
        assert fitted._bounded_least_squares(lambda z: None, None, np.zeros(1), -np.ones(1), np.ones(1), 1, 1) is None  # type: ignore[arg-type, return-value]

    def test_starts_are_spread_and_the_first_is_the_middle(self) -> None:
        low, high = np.array([0.0, 2.0]), np.array([4.0, 10.0])
        points = starts_in(("a", "b"), low, high, None, 5, 0)
        assert len(points) == 5
        assert points[0].tolist() == [2.0, 6.0]
        # One in each quarter of every range.
        quarters = np.sort(np.floor(4 * (np.array(points[1:]) - low) / (high - low)), axis=0)
        assert quarters.tolist() == [[k, k] for k in range(4)]
        assert starts_in(("a", "b"), low, high, {"b": 99.0}, 1, 0)[0].tolist() == [2.0, 10.0]

    def predictions(self, names: tuple[str, ...], low: Any, high: Any) -> Any:
        return SimpleNamespace(
            names=names, bounds=(np.array(low, float), np.array(high, float)), runs=(SimpleNamespace(sigma=1.0),),
            split=lambda values: ((values,), values), motion=lambda values: None,
        )  # fmt: skip

    def test_what_data_determine(self) -> None:
        """Two values that enter as their sum only, and a third one alone with the derivative 10."""
        jacobian = np.array([[2.0, 2.0, 0.0], [0.0, 0.0, 10.0], [2.0, 2.0, 0.0]])
        known = self.predictions(("a", "b", "c"), [0, 0, 0], [1, 1, 1])
        combinations, covariance = identifiability(known, jacobian, np.ones(3, bool), 0.5)
        assert [each.seen for each in combinations] == [True, True, False]
        assert combinations[0].std == pytest.approx(0.05)
        assert abs(combinations[0].weights["c"]) == pytest.approx(1.0)
        assert combinations[1].std == pytest.approx(0.5 / 4.0)
        assert combinations[2].std == INF
        assert covariance[2, 2] == pytest.approx(0.05**2)
        assert np.isnan(covariance[:2, :2]).all()
        # Only values inside their ranges vary, and ranges are the unit of directions.
        wide = self.predictions(("a", "b", "c"), [0, 0, 0], [1, 1, 4])
        _, held = identifiability(wide, jacobian, np.array([True, False, True]), 1.0)
        assert held[0, 0] == pytest.approx(1.0 / 8.0)
        assert held[2, 2] == pytest.approx(0.01)
        assert not held[1].any()

    def optimum(self, values: list[float], cost: float, converged: bool = True) -> Optimum:
        r, J = np.sqrt(np.full(4, cost / 4)), np.eye(4, 2) * 10.0
        return Optimum(
            values=np.array(values), start=np.zeros(2), cost=cost, residuals=r, jacobian=J, converged=converged
        )

    def test_verdicts_of_a_fit(self) -> None:
        known = self.predictions(("a", "b"), [0, 0], [10, 10])
        fine = _estimate(known, [self.optimum([3.0, 4.0], 2.0)])
        assert (fine.status, fine.message, fine.multimodal) == (Status.SOLVED, "", False)
        assert fine.chi2 == pytest.approx(1.0)  # 4 residuals less 2 values
        assert fine.std["a"] == pytest.approx(0.1)
        assert fine.values == {"a": 3.0, "b": 4.0}
        assert _estimate(known, [self.optimum([3.0, 4.0], 2.0, False)]).status is Status.ITERATION_LIMIT
        poor = _estimate(known, [self.optimum([3.0, 4.0], 200.0)])
        assert poor.status is Status.POOR_FIT
        assert "residuals are 10 times the noise" in poor.message
        bound = _estimate(known, [self.optimum([10.0, 4.0], 2.0)])
        assert "at a bound of its range: a" in bound.message
        assert bound.std["a"] == 0.0
        several = _estimate(known, [self.optimum([3.0, 4.0], 2.0), self.optimum([9.0, 4.0], 6.0)])
        assert several.multimodal
        assert "1 of 2 starts ended at other optima, the best of them with 3 times" in several.message
        same = [self.optimum([3.0, 4.0], 2.0), self.optimum([3.0001, 4.0], 2.0), self.optimum([9.0, 9.0], 3.0, False)]
        assert not _estimate(known, same).multimodal

    def test_residuals_of_a_free_flight(self) -> None:
        """x = x_0 + v t with sigma 0.5: (measured - predicted) / sigma, by x_0 -2 and by v -2 t."""
        x, rate = ca.SX.sym("x"), ca.SX.sym("rate")
        system = ns.ODE(x=x, p=rate, flow=rate, names={"x": ["x"], "p": ["rate"]}, p_default=[3.0])
        data = ns.Measurements([0.0, 0.5, 2.0], {"x": [1.0, np.nan, 8.0]}, sigma=0.5)
        made = Predictions.of(system, (data,), {"x": (-9, 9), "rate": (0, 9)}, None, None, None, None, None)
        evaluated = made.residuals(np.array([0.5, 3.0]))
        assert evaluated is not None
        assert evaluated[0] == pytest.approx([1.0, 3.0], abs=1e-9)
        assert evaluated[1] == pytest.approx(np.array([[-2.0, 0.0], [-2.0, -4.0]]), abs=1e-7)
        assert made.only(np.array([0.5, 3.0])) == pytest.approx([1.0, 3.0], abs=1e-9)
        differences = made._by_differences(np.array([0.5, 9.0]))  # at the upper bound inwards
        assert differences is not None
        assert differences[1] == pytest.approx(np.array([[-2.0, 0.0], [-2.0, -4.0]]), abs=1e-5)
        assert made.split(np.array([0.5, 7.0]))[1].tolist() == [7.0]
        # A motion that has no derivatives.
        for none in (None, SimpleNamespace(smooth=False, orbital=1), SimpleNamespace(smooth=True, orbital=None)):
            motion: Any = SimpleNamespace(sensitivity=none)
            assert made._of_motion(motion, data, made.outputs[0], np.array([3.0]), 0) is None
        outputs = {"twice": 2 * x + rate}
        seen = ns.Measurements([2.0], {"twice": [20.0]}, sigma=0.5)
        doubled = Predictions.of(system, (seen,), {"x": (-9, 9), "rate": (0, 9)}, None, None, None, outputs, None)
        evaluated = doubled.residuals(np.array([0.5, 3.0]))
        assert evaluated is not None
        assert evaluated[0] == pytest.approx([(20.0 - 16.0) / 0.5], abs=1e-7)
        assert evaluated[1] == pytest.approx(np.array([[-4.0, -10.0]]), abs=1e-6)

    def test_pieces_of_a_motion(self) -> None:
        """Six measurements in three pieces: cuts at the third and the fifth, which are starts of their pieces."""
        x, rate = ca.SX.sym("x"), ca.SX.sym("rate")
        system = ns.ODE(x=x, p=rate, flow=rate, names={"x": ["x"], "p": ["rate"]}, p_default=[3.0])
        t = np.arange(1, 7) / 2
        data = ns.Measurements(t, {"x": 10 * t}, sigma=1.0)
        made = Predictions.of(system, (data,), {"rate": (0, 9)}, [0.0], None, None, None, None)
        pieces = ShootingPieces.of(made, np.array([3.0]), 3)
        assert pieces.cuts == (0.0, 1.5, 2.5, 3.0)
        assert pieces.first.tolist() == [3.0, 15.0, 25.0]
        assert [piece.times.tolist() for piece in pieces.data] == [[0.5, 1.0], [0.0, 0.5], [0.0, 0.5]]
        assert pieces.bounds[0].tolist() == [0.0, -INF, -INF]
        evaluated = pieces.residuals(pieces.first, 0.1)
        assert evaluated is not None
        r, jacobian = evaluated
        # 10 t - 3 t; then 10 t - (15 + 3 (t - 1.5)) and 10 t - (25 + 3 (t - 2.5)).
        assert r.size == 6 + 2
        assert jacobian.shape == (8, 3)
        for value in (3.5, 7.0):
            assert np.isclose(np.abs(r), value).any()
        # Gaps: the first piece ends at 4.5 and the second one at 18, 10.5 and 7 before the next ones.
        for gap in (10.5, 7.0):
            assert np.isclose(np.abs(r), gap / (0.1 * system.x_nominal[0])).any()
        assert np.isclose(np.abs(r), 0.0, atol=1e-9).sum() == 2
        with pytest.raises(OptionError, match="at least two measurements"):
            ShootingPieces.of(made, np.array([3.0]), 4)


class TestRandomDraws:
    def test_widths(self) -> None:
        system = cart()
        assert robustness.spread(0.5, system, "x0").tolist() == [0.5, 0.0]
        assert robustness.spread(0.5, system, "x0", coordinates=False).tolist() == [0.5, 0.5]
        assert robustness.spread({"v": 2.0}, system, "x0").tolist() == [0.0, 2.0]
        assert robustness.spread([1.0, 2.0], system, "x0").tolist() == [1.0, 2.0]
        assert robustness.spread(None, system, "x0").tolist() == [0.0, 0.0]
        for wrong in ({"w": 1.0}, [1.0], -0.5, np.inf):
            with pytest.raises(OptionError):
                robustness.spread(wrong, system, "x0")

    def test_draws(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Deviations of coordinates and noise of all states, the same with and without feedback."""
        made: list[Any] = []

        class Control:
            def __init__(self, law: Any, share: float, noises: Any) -> None:
                made.append((share, noises))

        motion = SimpleNamespace(success=True, final_state=np.array([2.0, 3.0]))
        monkeypatch.setattr(robustness, "_ActuatedControl", Control)
        monkeypatch.setattr(robustness, "SampledLaw", lambda control, period: None)
        monkeypatch.setattr(robustness, "simulate", lambda *given, **more: motion)
        system = cart()
        plan = ns.simulate(system, x0=[0.0, 1.0], duration=1.0, u=0.0)
        law: Any = SimpleNamespace(
            system=system,
            p=np.zeros(0),
            plan=plan,
            states=np.array([[0.0, 1.0], [1.0, 1.0]]),
            windows=[None] * 400,
            period=0.1,
        )
        given: dict[str, Any] = {"parameters": None, "plant": None, "method": None, "seed": 0}
        study = robustness.robustness(law, x0=0.25, noise=0.5, actuators=0.9, n=30, **given)
        assert study.starts.shape == (30, 2)
        assert np.abs(study.starts[:, 0]).max() == pytest.approx(0.25, abs=0.03)
        assert study.starts[:, 1].tolist() == [1.0] * 30
        assert study.tracked == pytest.approx(np.tile([1.0, 2.0], (30, 1)))
        assert study.lost_beyond == pytest.approx(0.1)
        assert study.lost == 30
        assert [share for share, _ in made] == [0.9] * 60
        noises = [noise for _, noise in made]
        assert noises[1] is None
        assert noises[0].shape == (401, 2)
        assert noises[0].std(axis=0) == pytest.approx([0.5, 0.5], rel=0.15)
        alone = robustness.robustness(law, x0=None, noise=None, actuators=1.0, n=30, **given)
        assert len(alone.starts) == 1

    def test_lost_runs(self) -> None:
        ends = np.array([[0.1, 9.0], [-0.3, 9.0], [np.nan, np.nan]])
        known: dict[str, Any] = {"starts": ends, "parameters": ends, "names": ("q", "v"), "positions": (0,)}
        study = robustness.Robustness(**known, tracked=ends, open_loop=2 * ends, lost_beyond=0.3)
        assert study.errors.tolist() == [0.1, 0.3, INF]
        assert study.open_loop_errors.tolist() == [0.2, 0.6, INF]
        assert study.lost == 1
        assert "median 0.3, p90 inf, largest inf (1 lost)" in repr(study)


class TestMovingHorizon:
    def test_a_linear_system_is_filtered_as_by_kalman(self) -> None:
        """x' = 0 with process noise 0.3 per root second: the scalar filter, whatever the window is."""
        x = ca.SX.sym("x")
        system = ns.ODE(x=x, flow=ca.SX(0), names={"x": ["x"]})
        values = [1.0, 2.0, 4.0, 3.0]
        mhe = ns.MHE(system, sigma={"x": 0.5}, period=0.25, x0=[0.0], x0_std=2.0, window=1, process=0.3)
        mean, variance = 0.0, 4.0
        for value in values:
            gain = variance / (variance + 0.25)
            assert mhe.step({"x": value}) == pytest.approx([mean + gain * (value - mean)], abs=1e-6)
            assert mhe.std["x"] == pytest.approx(np.sqrt((1 - gain) * variance), rel=1e-6)
            # The process noise of a period enters where its sample leaves the window.
            variance += 0.3**2 * 0.25
            gain = variance / (variance + 0.25)
            mean, variance = mean + gain * (value - mean), (1 - gain) * variance
        wide = ns.MHE(system, sigma={"x": 0.5}, period=0.25, x0=[0.0], x0_std=2.0, window=4, process=0.3)
        found = [wide.step({"x": value}) for value in values][-1]
        precision = 1 / 4 + 4 / 0.25
        assert found == pytest.approx([sum(values) / 0.25 / precision], abs=1e-6)
        assert wide.std["x"] == pytest.approx(1 / np.sqrt(precision), rel=1e-6)
        assert wide.left_out == 0

    def test_a_free_parameter_is_part_of_the_state(self) -> None:
        """x = rate t: measured 2 at 1 s with sigma 0.1, prior rate 1 +- 10 and x_0 = 0 +- 0.01."""
        x, rate = ca.SX.sym("x"), ca.SX.sym("rate")
        system = ns.ODE(x=x, p=rate, flow=rate, names={"x": ["x"], "p": ["rate"]}, p_default=[1.0])
        mhe = ns.MHE(system, sigma={"x": 0.1}, period=1.0, x0=[0.0], x0_std=0.01, free={"rate": 10.0})
        mhe.step({"x": 2.0})
        # Posterior of the rate: precision 1 / 100 and 1 / (0.1^2 + 0.01^2).
        precise = 1 / (0.01 + 1e-4)
        assert mhe.p == pytest.approx([(1.0 * 0.01 + 2.0 * precise) / (0.01 + precise)], rel=1e-6)
        assert mhe.std["rate"] == pytest.approx(1 / np.sqrt(0.01 + precise), rel=1e-5)

    def test_the_worst_sample_has_the_largest_mean_square(self) -> None:
        x = ca.SX.sym("x", 2)
        system = ns.ODE(x=x, flow=ca.SX.zeros(2), names={"x": ["a", "b"]})
        mhe = ns.MHE(system, sigma={"a": 1.0, "b": 1.0}, period=1.0, x0=[0, 0], x0_std=1.0)
        mhe._measured.extend([np.array([1.0, 1.0]), np.array([np.nan, 1.0]), np.array([np.nan, np.nan])])
        fit: Any = SimpleNamespace(r=np.array([3.0, 1.0, 2.0, 99.0]))
        assert mhe._worst_sample(fit) == (0, 5.0)
        fit = SimpleNamespace(r=np.array([1.0, 1.0, 2.0, 99.0]))
        assert mhe._worst_sample(fit) == (1, 4.0)

    def scripted(self, shares: dict[str, float], costs: dict[str, float]) -> tuple[Any, str]:
        """The fit that is taken, if the sample at the index 1 is the worst of three; shares and costs of the fits."""
        x = ca.SX.sym("x")
        mhe = ns.MHE(ns.ODE(x=x, flow=ca.SX(0), names={"x": ["x"]}), sigma={"x": 1.0}, period=1.0, x0=[0], x0_std=1.0)
        mhe._measured.extend(np.array([value]) for value in (1.0, 2.0, 3.0))
        names, seen = iter(("all", "without", "repeated")), []

        def minimise() -> Any:
            name = next(names)
            seen.append((name, [float(y[0]) for y in mhe._measured], float(mhe._z[0])))
            mhe._z = np.array([{"all": 10.0, "without": 20.0, "repeated": 30.0}[name]])
            return SimpleNamespace(name=name, cost=costs.get(name, 1.0))

        mhe._minimise = minimise  # type: ignore[method-assign]
        mhe._worst_sample = lambda fit: (1, shares[fit.name])  # type: ignore[method-assign]
        found = mhe._fit_without_outlier()
        if len(seen) > 1:
            assert seen[1][0] == "without"
            assert np.isnan(seen[1][1][1])
            assert seen[1][2] == 0.0  # from the start of the first fit
            assert seen[2] == ("repeated", [1.0, 2.0, 3.0], 20.0)
        return mhe, str(found.name)

    @pytest.mark.parametrize(
        ("shares", "costs", "name", "z", "left_out"),
        [
            ({"all": 0.0}, {}, "all", 10.0, 0),
            ({"all": 1e9, "without": 1e9, "repeated": 0.0}, {}, "repeated", 30.0, 0),
            ({"all": 1e9, "without": 0.0, "repeated": 1e9}, {}, "without", 20.0, 1),
            ({"all": 1e9, "without": 1e9, "repeated": 1e9}, {"all": 5.0, "repeated": 4.0}, "repeated", 30.0, 0),
            ({"all": 1e9, "without": 1e9, "repeated": 1e9}, {"all": 5.0, "repeated": 6.0}, "all", 10.0, 0),
        ],
    )
    def test_a_sample_that_no_motion_explains_is_left_out(
        self, shares: dict[str, float], costs: dict[str, float], name: str, z: float, left_out: int
    ) -> None:
        mhe, found = self.scripted(shares, costs)
        assert (found, float(mhe._z[0]), mhe.left_out) == (name, z, left_out)
        assert np.isnan(float(mhe._measured[1][0])) == bool(left_out)

    def test_outliers_are_residuals_beyond_a_multiple_of_the_noise(self) -> None:
        limit = OUTLIER**2
        for share, count in ((0.99 * limit, 0), (1.01 * limit, 1)):
            mhe, _ = self.scripted({"all": share, "without": 0.0, "repeated": 1e9}, {})
            assert mhe.left_out == count

    def test_the_side_of_an_impact_is_that_of_the_measurement(self) -> None:
        """A ball that hits the ground at the sample: velocities of -2 before, 1 after, and the next flight."""
        q, v = ca.SX.sym("q"), ca.SX.sym("v")
        ground = ns.Contact("ground", gap=q, restitution=0.5)
        ball = ns.CLS(q=q, v=v, mass_matrix=1, force=0, contacts=[ground], names={"q": ["q"], "v": ["v"]})
        mhe = ns.MHE(ball, sigma={"v": 0.1}, period=0.1, x0=[0.19, -2.0], x0_std=1.0)
        mhe._controls.append(np.zeros(0))
        mhe._measured.append(np.array([np.nan]))
        before = ns.simulate(ball, x0=[0.21, -2.0], duration=0.1)  # ends 5 ms before the impact
        after = ns.simulate(ball, x0=[0.19, -2.0], duration=0.1)  # ends 5 ms after it
        assert mhe._state_near_impact(before, {"v": -2.0})[1] == pytest.approx(-2.0)
        assert mhe._state_near_impact(before, {"v": 0.9})[1] == pytest.approx(1.0)
        assert mhe._state_near_impact(after, {"v": 0.9})[1] == pytest.approx(1.0)
        assert mhe._state_near_impact(after, {"v": -1.9})[1] == pytest.approx(-2.0)
        assert mhe._state_near_impact(after, {})[1] == pytest.approx(1.0)
        mhe._measured[-1] = np.array([0.9])  # the sample was used
        assert mhe._state_near_impact(after, {"v": -1.9})[1] == pytest.approx(1.0)

    def test_differences_have_the_size_of_the_deviations(self) -> None:
        x = ca.SX.sym("x", 2)
        system = ns.ODE(x=x, flow=ca.SX.zeros(2), names={"x": ["a", "b"]})
        mhe = ns.MHE(system, sigma={"a": 1.0}, period=1.0, x0=[0, 0], x0_std=[1.0, 4.0])

        def function(z: Any) -> Any:
            return None if z[1] > 0 else np.array([3 * z[0], z[0] ** 2])

        found = mhe._differences(np.array([2.0, 0.0]), np.array([6.0, 4.0]), function)
        assert found == pytest.approx(np.array([[3.0, 0.0], [4.0, 0.0]]), rel=1e-3)


def controller(**more: Any) -> Any:
    """An MPC without a problem: stages of 0.1 s in a horizon of 1 s, one control between -2 and 3."""
    made = MPC.__new__(MPC)
    fields: dict[str, Any] = {
        "system": cart(), "stage": 0.1, "period": 0.2, "delay": 0.0, "deadline": None,
        "on_failure": ("track", "shift", "hold"),
        "not_finite": "error", "p": None, "spread": None, "solver": None, "guess": None, "cost": None, "last": None,
        "_plan": None,
        "_planner": None, "_searched": None, "_kept": None, "_ratios": [], "_p": None,
        "_began": 0.0, "_prepared": None, "_lowest": INF,
        "ocp": SimpleNamespace(u_bounds=(np.array([-2.0, 0.0]), np.array([3.0, INF])), horizon=1.0),
        "problem": SimpleNamespace(grid=SimpleNamespace(control_stages=10)),
    }  # fmt: skip
    for name, value in {**fields, **more}.items():
        setattr(made, name, value)
    return made


class TestPredictiveControl:
    def test_stages_and_prepared_plans(self) -> None:
        mpc = controller(_began=0.35, _prepared=Prepared(begin=0.6), delay=0.05)
        assert mpc._stages_since(0.75) == 4
        assert mpc._stages_from(0.3, 0.55) == 3
        assert mpc._prepared_for(0.55) is mpc._prepared
        assert mpc._prepared_for(0.65) is None
        assert controller()._prepared_for(0.0) is None

    def test_a_branch_has_become_poor_if_its_objective_has_risen(self) -> None:
        mpc = controller()
        assert not mpc._has_risen(99.0)
        mpc._lowest = 2.0
        rise = next(r for r in np.arange(0.0, 9.0, 0.01) if mpc._has_risen(2.0 * (1 + r)))
        assert not mpc._has_risen(2.0)
        mpc._lowest = -2.0
        assert mpc._has_risen(-2.0 + 2.0 * rise)
        assert not mpc._has_risen(-2.0 + 2.0 * (rise - 0.02))
        mpc._lowest = 20.0
        assert mpc._has_risen(20.0 + 20.0 * rise)
        assert not mpc._has_risen(20.0 + 20.0 * (rise - 0.02))

    def test_controls_are_within_bounds_and_without_slacks(self) -> None:
        mpc = controller()
        assert mpc._within_bounds([[9.0, 7.0], [-9.0, 7.0]]).tolist() == [[3.0], [-2.0]]
        assert mpc._last_control().tolist() == [0.0]
        mpc.last = SimpleNamespace(u=np.array([1.5]))
        assert mpc._last_control().tolist() == [1.5]
        high = controller(ocp=SimpleNamespace(u_bounds=(np.array([1.0]), np.array([3.0]))))
        assert high._last_control().tolist() == [1.0]

    def test_fallbacks(self) -> None:
        """A plan of ten controls, begun at 0; at 0.2 s two of them have passed."""
        plan = SimpleNamespace(u=np.arange(10.0)[:, None] / 4)
        u, source = controller(_plan=plan)._fallback(np.zeros(2), 0.2, None)
        assert (u.tolist(), source) == ([0.5], Source.SHIFTED)
        assert controller(_plan=plan)._fallback(np.zeros(2), 0.94, None)[0].tolist() == [2.25]
        assert controller(_plan=plan)._fallback(np.zeros(2), 1.0, None)[1] is Source.HELD
        assert controller(_plan=plan, on_failure=("hold",))._fallback(np.zeros(2), 0.2, None)[1] is Source.HELD
        gain = SimpleNamespace(predict=lambda x0: SimpleNamespace(u=np.array([[9.0]] * 10)))
        prepared: Any = Prepared(begin=0.2, plan=plan, gain=gain)
        ready: dict[str, Any] = {"_prepared": prepared, "_plan": plan}
        u, source = controller(**ready)._fallback(np.zeros(2), 0.2, None)
        assert (u.tolist(), source) == ([3.0], Source.TRACKED)
        # The prepared plan begins at this sample: none of its controls has passed.
        u, source = controller(**ready, cost=object(), _simulated_cost=lambda x, u, p: -float(u[0, 0]))._fallback(
            np.zeros(2), 0.2, None
        )
        assert source is Source.TRACKED
        u, source = controller(**ready, cost=object(), _simulated_cost=lambda x, u, p: float(u[0, 0]))._fallback(
            np.zeros(2), 0.2, None
        )
        assert (u.tolist(), source) == ([0.0], Source.SHIFTED)
        broken = SimpleNamespace(predict=lambda x0: SimpleNamespace(u=np.array([[np.nan]] * 10)))
        ready["_prepared"] = replace(prepared, gain=broken)
        assert controller(**ready)._fallback(np.zeros(2), 0.2, None)[1] is Source.SHIFTED

    def test_plans_are_solved_on_the_branch_that_is_known(self) -> None:
        """The prepared plan at its own sample, else the last plan moved by whole stages, else from guesses."""
        asked: list[Any] = []

        def resolve(plan: Any, **more: Any) -> Any:
            asked.append((plan, more.get("shift")))
            return plan

        grid = SimpleNamespace(control_stages=10)
        problem = SimpleNamespace(grid=grid, resolve=resolve, solve=lambda *a, guess, **k: guess)
        prepared: Any = Prepared(begin=0.2, plan="ready")
        mpc = controller(problem=problem, _prepared=prepared, _plan="plan")
        assert mpc._solve_from(np.zeros(2), 0.2, None, 1.0) == "ready"
        assert mpc._solve_from(np.zeros(2), 0.4, None, 1.0) == "plan"
        assert asked == [("ready", None), ("plan", 4)]
        plans = [
            SimpleNamespace(success=s, objective=o) for s, o in ((False, 0.0), (True, 5.0), (True, 4.0), (True, 6.0))
        ]
        mpc._guesses = lambda *given: iter(plans)
        assert mpc._solve_from(np.zeros(2), 1.0, None, 1.0) is plans[2]
        assert mpc._solve_from(np.zeros(2), 0.94, None, 1.0) == "plan"

    @pytest.mark.parametrize(("last", "stages"), [(0.0, 2), (0.6, 8), (0.8, None), (-0.4, None)])
    def test_the_next_sample_is_prepared_on_the_last_plan(self, last: float, stages: int | None) -> None:
        """The plan began at 0; the next sample is 0.2 s after the last one."""
        asked: list[Any] = []
        ready = SimpleNamespace(success=True, objective=4.0)

        def prepare(plan: Any, **more: Any) -> Any:
            asked.append(more["shift"])
            return ready

        problem = SimpleNamespace(
            grid=SimpleNamespace(control_stages=10), prepare=prepare, differentiate=lambda plan, x0: ("gain", plan)
        )
        step = SimpleNamespace(t=last, source=Source.SOLVED)
        mpc = controller(problem=problem, last=step, _plan=SimpleNamespace(success=True), preparation=9.0)
        mpc.prepare()
        assert asked == ([] if stages is None else [stages])
        assert mpc._prepared.plan is (None if stages is None else ready)
        assert mpc._prepared.begin == pytest.approx(last + 0.2)
        if stages is not None:
            assert mpc._lowest == 4.0
            assert mpc._prepared.gain == ("gain", ready)
        failed = controller(problem=problem, last=step, _plan=SimpleNamespace(success=False), preparation=9.0)
        failed.prepare()
        assert failed._prepared.plan is None
        first = controller(problem=problem, preparation=9.0)
        first.prepare()
        assert first._prepared is None

    def test_after_a_fallback_the_plan_is_made_anew(self) -> None:
        begun: list[Any] = []

        def solve_from(x0: Any, t: float, p: Any, limit: float) -> Any:
            begun.append((x0, t, limit))
            return SimpleNamespace(success=True, name="new")

        problem = SimpleNamespace(
            grid=SimpleNamespace(control_stages=10),
            prepare=lambda plan, shift, **more: SimpleNamespace(success=False, plan=plan),
        )
        held = SimpleNamespace(t=0.4, source=Source.HELD)
        mpc = controller(
            problem=problem,
            last=held,
            preparation=9.0,
            delay=0.05,
            _next_state=lambda p: "predicted",
            _solve_from=solve_from,
        )
        mpc.prepare(time_limit=3.0)
        assert begun == [("predicted", pytest.approx(0.6), 3.0)]
        assert (mpc._plan.name, mpc._began) == ("new", pytest.approx(0.65))

    def test_guesses_of_a_first_plan(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The motion without control, and with time enough the solution of a search in a part of the limit."""
        asked: list[Any] = []

        def solve(ocp: Any, effort: str, time_limit: float) -> Any:
            asked.append((ocp.x0.tolist(), effort, time_limit))
            return SimpleNamespace(success=True)

        monkeypatch.setattr(mpc_module, "solve", solve)
        system = cart()
        mpc = controller(ocp=ns.OCP(system, horizon=1.0, x0=[0, 0], stage_cost=system.u**2))
        guesses = list(mpc._guesses(np.array([1.0, 2.0]), None, 100.0))
        assert guesses[0](0.5) == pytest.approx([2.0, 2.0])
        assert len(guesses) == 2
        ((x0, effort, limit),) = asked
        assert (x0, effort) == ([1.0, 2.0], "quick")
        assert 0.0 < limit < 100.0
        assert len(list(mpc._guesses(np.array([1.0, 2.0]), None, 0.01))) == 1
        asked.clear()
        list(mpc._guesses(np.array([1.0, 2.0]), None, 200.0))
        assert asked[0][2] == pytest.approx(2 * limit)
        assert list(controller(guess="given")._guesses(np.zeros(2), None, 9.0)) == ["given"]

    def test_states_are_predicted(self) -> None:
        """By the control that still acts, over the delay and over a period."""
        mpc = controller(delay=0.1, _predictor=None, _follower=None)
        mpc.last = SimpleNamespace(u=np.array([2.0]), planned_from=np.array([1.0, 0.0]))
        assert mpc._predicted_start(np.array([1.0, 3.0]), 0.0, None) == pytest.approx([1.31, 3.2])
        assert mpc._next_state(None) == pytest.approx([1.0 + 0.04, 0.4])
        assert mpc._held_state(None) == pytest.approx([1.04, 0.4])
        prompt = controller()
        assert prompt._predicted_start(np.array([1.0, 3.0]), 0.0, None).tolist() == [1.0, 3.0]
        assert controller(p=lambda t: np.zeros(0))._parameters(0.5, None).size == 0

    def test_a_late_record_is_counted_but_for_the_first(self) -> None:
        step = MPCStep(t=0.0, x=np.zeros(2), planned_from=np.zeros(2), u=np.ones(1), source=Source.HELD)
        mpc = controller(deadline=1e-9)
        assert mpc._record(step, 0.0).tolist() == [1.0]
        assert not mpc.last.late
        mpc._record(step, 0.0)
        assert mpc.last.late
        patient = controller(deadline=1e300, last=mpc.last)
        patient._record(step, 0.0)
        assert not patient.last.late

    def test_simulated_costs_of_controls(self) -> None:
        """u^2 for 1 s and q(1): 4 + 1 with u = 2, and (4 + 1) / 2 + 5 / 8 with u = 2 and then -1."""
        system = cart()
        ocp = ns.OCP(system, horizon=1.0, x0=[0, 0], stage_cost=system.u**2, terminal_cost=system.q)
        mpc = controller(cost=MotionCost.of(ocp, 1, 0))
        for u, cost in (([[2.0], [2.0]], 5.0), ([[2.0], [-1.0]], 3.125)):
            assert mpc._simulated_cost(np.zeros(2), np.array(u), np.zeros(0)) == pytest.approx(cost, rel=1e-9)

    def test_a_cheaper_plan_has_to_be_clearly_cheaper(self) -> None:
        ready = SimpleNamespace(objective=4.0, solution=SimpleNamespace(x=np.zeros((2, 2))), success=True)
        candidate, mpc = SimpleNamespace(objective=4.0, success=True), controller(_guesses=lambda *a: iter([None]))
        mpc.problem = SimpleNamespace(solve=lambda *a, **k: candidate, prepare=lambda plan, **k: plan)
        chosen = []
        for objective in np.linspace(4.0, 3.0, 101):
            candidate.objective = objective
            chosen.append(mpc._cheaper(ready, None, 1e300) is candidate)
            assert mpc._lowest == 4.0
        first = chosen.index(True)
        assert 0 < first < 50
        assert all(chosen[first:])
        assert mpc._cheaper(ready, None, 0.0) is ready  # no time is left


class TestLoops:
    def loop(self, **more: Any) -> Any:
        made = closed_loop._Loop.__new__(closed_loop._Loop)
        fields: dict[str, Any] = {
            "controller": lambda t, x: [t], "plant": None, "names": (("q", "v"), ("u",)), "system": None, "period": 0.1,
            "count": 3,
            "x0": np.zeros(2), "p": None, "noise": np.zeros(2), "disturbances": None, "rng": np.random.default_rng(0),
            "deadline": None, "cost": None, "rows": [], "events": [],
        }  # fmt: skip
        for name, value in {**fields, **more}.items():
            setattr(made, name, value)
        return made

    @pytest.mark.parametrize(
        ("when", "samples"), [(0.0, [0]), (0.1, [1]), (0.15, [2]), (0.2, [2]), (0.3 - 1e-17, [3]), (0.35, [])]
    )
    def test_every_jump_acts_once(self, when: float, samples: list[int]) -> None:
        loop = self.loop(disturbances=[(when, {"v": 2.0})])
        found = [k for k in range(4) if loop._with_disturbance(0.1 * k, np.zeros(2)) is not None]
        assert found == samples
        for k in samples:
            assert loop._with_disturbance(0.1 * k, np.ones(2)).tolist() == [1.0, 3.0]

    def test_rounding_does_not_delay_a_jump(self) -> None:
        """The third tenth is 0.30000000000000004 s, a rounding error after the sample at 0.3 s."""
        loop = self.loop(period=0.3, disturbances=[(0.1 + 0.2, [1.0, 0.0])])
        assert loop._with_disturbance(0.3, np.zeros(2)) is not None
        assert loop._with_disturbance(0.6, np.zeros(2)) is None

    def test_several_jumps_add_up_and_functions_are_added(self) -> None:
        loop = self.loop(disturbances=[(0.1, [1.0, 0.0]), (0.05, [0.5, 2.0])])
        assert loop._with_disturbance(0.1, np.zeros(2)).tolist() == [1.5, 2.0]
        law = self.loop(disturbances=lambda t, x, rng: [t, 1.0])
        assert law._with_disturbance(0.5, np.ones(2)).tolist() == [1.5, 2.0]
        assert self.loop()._with_disturbance(0.1, np.zeros(2)) is None

    def test_a_disturbed_sample_begins_at_the_disturbed_state(self) -> None:
        moved: list[Any] = []

        def put(state: Any, x: Any) -> Any:
            moved.append(x.tolist())
            return state

        ended = SimpleNamespace(status=Status.SOLVED, x=np.array([7.0, 7.0]))
        plant = SimpleNamespace(
            put=put,
            advance=lambda state, u: (ended, (np.array([0.1]), np.ones((1, 2)), [Event(0.05, "wall", "impact")])),
        )
        loop = self.loop(disturbances=lambda t, x, rng: [0.0, 2.0], plant=plant, controller=lambda t, x: [x[1]])
        loop.x = [np.array([9.0, 9.0]), np.array([1.0, 1.0])]
        _, status, message = loop._sample(SimpleNamespace(), 3)
        assert (status, message, moved) == (Status.SOLVED, "", [[1.0, 3.0]])
        assert [x.tolist() for x in loop.x] == [[9.0, 9.0], [1.0, 3.0], [7.0, 7.0]]
        (row,) = loop.rows
        assert (row["u"].tolist(), row["measured"].tolist()) == ([3.0], [1.0, 3.0])
        assert row["t"] == pytest.approx([0.4])
        assert loop.events[0].time == pytest.approx(0.35)

    def test_controllers_and_plants_that_fail_end_the_loop(self) -> None:
        stopped = SimpleNamespace(status=Status.NUMERICAL_ERROR, x=np.zeros(2), message="no number")
        loop = self.loop(plant=SimpleNamespace(advance=lambda state, u: (stopped, None)))
        loop.x = [np.zeros(2)]
        _, status, message = loop._sample(SimpleNamespace(), 2)
        assert (status, message) == (Status.NUMERICAL_ERROR, "the plant stopped in sample 2: no number")
        loop.controller = lambda t, x: 1 / 0
        _, status, message = loop._sample(SimpleNamespace(), 2)
        assert status is Status.CONTROLLER_FAILED
        assert message.startswith("sample 2: ZeroDivisionError")
        assert len(loop.x) == 1

    def test_nothing_is_prepared_after_the_last_sample(self) -> None:
        prepared: list[int] = []

        class Law:
            def step(self, x: Any, t: float) -> list[float]:
                return [0.0]

            def prepare(self) -> None:
                prepared.append(1)

        log = ns.close_loop(Law(), cart(), 0.3, [0.0, 1.0], period=0.1)
        assert (len(log.u), len(prepared)) == (3, 2)

    def test_noise(self) -> None:
        assert self.loop(noise=lambda t, x, rng: [t, 2.0])._with_noise(0.5, np.ones(2)).tolist() == [1.5, 3.0]
        loop = self.loop(noise=np.array([0.0, 3.0]))
        drawn = np.array([loop._with_noise(0.0, np.ones(2)) for _ in range(2000)])
        assert drawn[:, 0].tolist() == [1.0] * 2000
        assert drawn[:, 1].std() == pytest.approx(3.0, rel=0.1)
        assert drawn[:, 1].mean() == pytest.approx(1.0, abs=0.3)

    def test_rows_of_plain_laws(self) -> None:
        row = self.loop()._control_row(np.zeros(2), 0.25)
        assert row["u"].tolist() == [0.25]
        assert (row["late"], row["source"], row["status"]) == (False, closed_loop.LAW, Status.SOLVED)
        assert self.loop(deadline=-1.0)._control_row(np.zeros(2), 0.25)["late"]
        for wrong in ([1.0, 2.0], [np.nan]):
            with pytest.raises(ns.ModelError, match="expected 1 finite numbers"):
                self.loop(controller=lambda t, x, wrong=wrong: wrong)._control_row(np.zeros(2), 0.25)

    def test_a_delayed_control_acts_later(self) -> None:
        """u = 1 from 0.3 s of 0.4 s on, after nothing: v = 0.1, q = 0.005; then u = 2 after 0.3 s of 1."""
        plant = closed_loop._SimulatedPlant(cart(), ns.EventDriven(), 0.4, 0.3)
        assert (len(plant.parts), plant.late_parts) == (2, 1)
        state = plant.init([0.0, 0.0], None)
        state, (t, x, events) = plant.advance(state, np.array([1.0]))
        assert state.x == pytest.approx([0.005, 0.1], abs=1e-9)
        assert (t[0], t[-1]) == (0.0, pytest.approx(0.4))
        assert (np.diff(t) >= 0.0).all()
        assert x[0].tolist() == [0.0, 0.0]
        assert events == []
        state, _ = plant.advance(state, np.array([2.0]))
        assert state.x[1] == pytest.approx(0.1 + 0.3 * 1.0 + 0.1 * 2.0, abs=1e-9)
        whole = closed_loop._SimulatedPlant(cart(), ns.EventDriven(), 0.4, 0.4)
        assert (len(whole.parts), whole.late_parts) == (1, 1)
        prompt = closed_loop._SimulatedPlant(cart(), ns.EventDriven(), 0.4, 0.0)
        assert (len(prompt.parts), prompt.late_parts) == (1, 0)

    def test_a_log_has_both_ends_and_some_points_of_every_step(self) -> None:
        """Of 100 samples in one phase the first, the last and every fourteenth or fifteenth."""
        t = np.linspace(2.0, 3.0, 101)
        history = SimpleNamespace(steps=[SimpleNamespace(t=t, x=np.c_[t, 2 * t])], phases=[None], events=[])
        times, states, events = closed_loop._step_motion(SimpleNamespace(history=history, t=3.0), 1.0)
        assert times == pytest.approx([0.0, 0.14, 0.28, 0.42, 0.57, 0.71, 0.85, 1.0], abs=1e-12)
        assert states[:, 1] == pytest.approx(2 * (2.0 + times), abs=1e-12)
        assert events == []

    def test_events_have_the_time_of_the_loop(self) -> None:
        """A wall at 0.25 m is hit with 1 m/s after 0.25 s, in the third period of 0.1 s."""
        log = ns.close_loop(lambda t, x: [0.0], cart(wall=0.25), 0.4, [0.0, 1.0], period=0.1)
        assert [(event.time, event.name) for event in log.events] == [(pytest.approx(0.25, abs=1e-9), "wall")]
        assert log.t == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4])
        assert log.x[-1] == pytest.approx([0.25 - 0.5 * 0.15, -0.5], abs=1e-9)
        assert log.motion_t[-1] == pytest.approx(0.4)
        assert closed_loop._shifted_event(Event(1.0, "a", "impact"), 0.5).time == 1.5
        assert closed_loop._plan_rows(None, 2)[1].shape == (0, 2)
        late = MPCStep(t=0.0, x=np.zeros(2), planned_from=np.zeros(2), u=np.zeros(1), source=Source.HELD)
        assert closed_loop._plan_rows((0.0, late), 2)[0].size == 0
