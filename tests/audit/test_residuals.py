"""Guards, inclusions, resets, constraints and rates of elements on numbers that are written down."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.audit import constraints
from nosnoc_py.audit.elements import ElementStages, noise_of, slopes_of
from nosnoc_py.audit.guards import catches, depths, lowest
from nosnoc_py.audit.inclusions import Inclusions
from nosnoc_py.audit.records import Jumps, Measured, MotionSamples, Scales, statement, violations, worst_of
from nosnoc_py.audit.redundancy import directions, null_space
from nosnoc_py.audit.resets import resets_of
from nosnoc_py.solution.violation import Law
from nosnoc_py.systems.hybrid import HybridSystem, StateJump
from nosnoc_py.tolerances import BROKEN, TOUCHING_SOLVED

pytestmark = pytest.mark.quick


class TestGuards:
    def test_a_dip_between_samples(self) -> None:
        """The parabola (t - 0.4)^2 - 0.01 has its minimum between samples that are all above it."""
        t = np.linspace(0.0, 1.0, 5)
        assert lowest((t - 0.4) ** 2 - 0.01) == pytest.approx(-0.01, abs=1e-12)
        assert lowest((t - 0.6) ** 2 - 0.01) == pytest.approx(-0.01, abs=1e-12)
        # A maximum is none, and neither is the vertex of a branch that only falls.
        assert lowest(1.0 - (t - 0.4) ** 2) == pytest.approx(0.64, abs=1e-12)
        assert lowest((t - 3.0) ** 2) == pytest.approx(4.0, abs=1e-12)
        assert lowest(np.array([[2.0, 1.0, 2.0], [3.0, 5.0, 4.0]])) == pytest.approx([1.0, 3.0], abs=1e-12)

    def test_depths_count_where_they_are_watched(self) -> None:
        values = np.array([[[4.0, -1.0], [4.0, -2.0], [4.0, -1.0]], [[2.0, 1.0], [-1.0, 1.0], [2.0, 1.0]]])
        measured = depths(Law.GAPS, ("a", "b"), np.array([0.0, 1.0]), values)
        assert measured.amounts == pytest.approx(np.array([[0.0, 2.0], [1.0, 0.0]]), abs=1e-12)
        assert measured.shares == pytest.approx(np.array([[0.0, 1.0], [0.25, 0.0]]), abs=1e-12)
        watched = np.array([[True, False], [True, True]])
        sizes = np.array([2.0, 8.0])
        some = depths(Law.GAPS, ("a", "b"), np.array([0.0, 1.0]), values, watched=watched, sizes=sizes)
        assert some.amounts == pytest.approx(np.array([[0.0, 0.0], [1.0, 0.0]]), abs=1e-12)
        assert some.shares == pytest.approx(np.array([[0.0, 0.0], [0.5, 0.0]]), abs=1e-12)

    def test_a_contact_that_was_open_and_is_closed_is_caught(self) -> None:
        closed, earlier = np.array([[True, True, False]]), np.array([[False, True, False]])
        measured = catches(("a", "b", "c"), np.zeros(1), closed, earlier, np.array([[-3.0, -3.0, -3.0]]))
        assert measured.amounts == pytest.approx(np.array([[3.0, 0.0, 0.0]]))
        assert (measured.law, measured.unit) == (Law.CATCH, "m/s")


def inclusion(system: Any, x: float, rate: float, listed: Any = None, high: Any = None) -> Any:
    """The largest violation of a system with one state at a sample."""
    samples = MotionSamples(t=np.array([2.0]), x=np.array([[x]]), u=np.zeros((1, 0)), rates=np.array([[rate]]))
    more = None if listed is None else np.array([listed], float)
    flags = None if high is None else np.array([[high]])
    return Inclusions(system, samples, np.zeros(0), np.array([2.0]), more, flags).violations()[0]


class TestInclusions:
    X, A = ca.SX.sym("x"), ca.SX.sym("alpha")
    # x' = 1 below zero and -1 above it.
    relay = ns.PSS(x=X, modes=ns.Modes("side", flows=[1.0, -1.0], functions=X, signs=[[-1], [1]]))
    step = ns.Heaviside(x=X, alpha=A, flow=1 - 2 * A, functions=X)
    thermostat = ns.PSS(x=X, modes=ns.Hysteresis("heat", variable=X, lower=-1, upper=1, flows=[1.0, -1.0]))
    pushed = ns.PDS(x=X, flow=ca.SX(-1.0), constraints=[X])

    @pytest.mark.parametrize("system", [relay, step])
    @pytest.mark.parametrize(
        ("x", "rate", "share"),
        [
            (-1.0, 1.0, 0.0),
            (1.0, -1.0, 0.0),
            (1.0, 1.0, 1.0),
            (-1.0, 0.0, 0.5),
            (0.0, 0.0, 0.0),
            (0.0, 0.7, 0.0),
            (0.0, 1.6, 0.3),
            (0.0, -1.6, 0.3),
            (0.5 * TOUCHING_SOLVED, 0.3, 0.0),
            (-0.5 * TOUCHING_SOLVED, 0.3, 0.0),
            (5.0 * TOUCHING_SOLVED, 0.0, 0.5),
            (-5.0 * TOUCHING_SOLVED, 0.0, 0.5),
        ],
    )
    def test_rates_between_those_of_the_regions(self, system: Any, x: float, rate: float, share: float) -> None:
        found = inclusion(system, x, rate)
        # Weights of regions are the best compromise between the rate and their sum, and so a fifth smaller at most.
        least = 0.8 * share if system is self.relay else share
        assert least - 1e-9 <= found.share <= share + 1e-9
        assert found.time == 2.0
        if share and system is self.step:
            assert (found.law, found.amount) == (Law.INCLUSION, pytest.approx(2.0 * share, rel=1e-9))

    @pytest.mark.parametrize(
        ("x", "high", "rate", "share"),
        [
            (0.0, False, 1.0, 0.0),
            (0.0, True, 1.0, 1.0),
            (0.0, True, -1.0, 0.0),
            (0.0, None, 1.0, 0.0),
            (0.0, None, -1.0, 0.0),
            (0.0, None, -3.0, 1.0),
            (0.0, None, 3.0, 1.0),
            (1.5, None, -1.0, 0.0),  # beyond a threshold the state tells
            (1.5, None, 1.0, 1.0),
            (-1.5, None, -1.0, 1.0),
            (-1.5, None, 1.0, 0.0),
        ],
    )
    def test_a_switch_with_memory(self, x: float, high: Any, rate: float, share: float) -> None:
        if high is None:
            # Without modes the memory is free where the state does not tell.
            samples = MotionSamples(t=np.zeros(1), x=np.array([[x]]), u=np.zeros((1, 0)), rates=np.array([[rate]]))
            found = Inclusions(self.thermostat, samples, np.zeros(0), np.array([2.0])).violations()[0]
        else:
            found = inclusion(self.thermostat, x, rate, high=high)
        assert found.share == pytest.approx(share, abs=1e-9)

    @pytest.mark.parametrize(
        ("x", "rate", "law", "share"),
        [
            (1.0, -1.0, Law.INCLUSION, 0.0),
            (0.0, 0.0, Law.INCLUSION, 0.0),
            (0.0, 3.0, Law.INCLUSION, 0.0),  # pushed into the set, however hard
            (0.0, -2.0, Law.INCLUSION, 0.5),
            (1.0, 0.0, Law.INCLUSION, 0.5),
            (-TOUCHING_SOLVED, 0.0, Law.SET, BROKEN),
            (-0.1, 0.0, Law.SET, 0.1 * BROKEN / TOUCHING_SOLVED),
        ],
    )
    def test_a_projected_system(self, x: float, rate: float, law: Law, share: float) -> None:
        found = inclusion(self.pushed, x, rate)
        assert (found.law, found.share) == (law, pytest.approx(share, rel=1e-9, abs=1e-12))

    def test_listed_multipliers(self) -> None:
        """They have to be admissible, and to explain the rate themselves."""
        assert inclusion(self.relay, 0.0, 0.0, [0.5, 0.5]).share == pytest.approx(0.0, abs=1e-12)
        wrong = inclusion(self.relay, 0.0, 0.0, [0.6, 0.4])
        assert (wrong.law, wrong.share) == (Law.MULTIPLIERS, pytest.approx(0.1, rel=1e-9))
        outside = inclusion(self.relay, 0.0, 1.2, [1.3, -0.3])
        assert (outside.law, outside.share) == (Law.RANGE, pytest.approx(0.3, rel=1e-9))
        sum_of = inclusion(self.relay, 0.0, 0.0, [0.8, 0.8])
        assert (sum_of.law, sum_of.share) == (Law.STATEMENT, pytest.approx(0.6, rel=1e-9))
        assert inclusion(self.relay, 0.0, 0.0, [np.nan, 0.5]).share == np.inf

    def test_a_system_without_multipliers_has_one_rate(self) -> None:
        smooth = HybridSystem(x=self.X, flow=-self.X, jumps=[])
        assert inclusion(smooth, 1.0, -1.0).share == pytest.approx(0.0, abs=1e-12)
        assert inclusion(smooth, 1.0, 0.0).share == pytest.approx(0.5, rel=1e-12)
        assert inclusion(smooth, 1.0, np.nan).share == np.inf


class TestResets:
    X = ca.SX.sym("x", 2)
    floor = StateJump("floor", guard=X[0], reset=ca.vertcat(X[0], -0.5 * X[1]))
    lid = StateJump("lid", guard=X[0] - 1, reset=ca.vertcat(X[0], -X[1]))

    def shares(self, before: list[float], after: list[float], *jumps: StateJump) -> np.ndarray:
        system = HybridSystem(x=self.X, flow=ca.vertcat(self.X[1], -1), jumps=list(jumps))
        both = Jumps(t=np.array([3.0]), x_before=np.array([before]), x_after=np.array([after]))
        return resets_of(system, both, np.zeros(0), np.array([1.0, 2.0])).shares[0]

    @pytest.mark.parametrize(
        ("before", "after", "shares"),
        [
            ([0.0, -2.0], [0.0, 1.0], [0.0, 0.0]),
            ([0.0, -2.0], [0.0, 1.4], [0.0, 0.2]),
            ([0.2, -2.0], [0.2, 1.0], [0.2, 0.2]),  # the guard is not zero
            ([1.0, 2.0], [1.0, -2.0], [0.0, 0.0]),  # the other one
            ([1.0, 2.0], [1.0, -1.0], [0.0, 0.5]),
            ([0.5, 1.0], [0.5, 1.2], [0.1, 0.1]),  # never more than the jump itself
            ([0.0, -2.0], [0.0, -2.0], [0.0, 0.0]),
        ],
    )
    def test_a_jump_is_that_of_a_guard_that_is_zero(
        self, before: list[float], after: list[float], shares: list[float]
    ) -> None:
        assert self.shares(before, after, self.floor, self.lid) == pytest.approx(np.array(shares), abs=1e-12)

    def test_without_resets_every_jump_is_a_violation(self) -> None:
        assert self.shares([0.0, -2.0], [0.0, 1.0]) == pytest.approx(np.array([0.0, 1.5]), abs=1e-12)


class TestConstraints:
    def test_outside_of_bounds(self) -> None:
        values = np.array([[-3.0, 0.0], [0.5, 7.0], [np.nan, 1.0]])
        found = constraints.excess(values, np.array([-1.0, -np.inf]), np.array([1.0, 4.0]))
        assert found == pytest.approx(np.array([[2.0, 0.0], [0.0, 3.0], [np.nan, 0.0]]), nan_ok=True)
        measured = constraints.bounds(
            ("a", "b"), (np.array([-1.0, -9.0]), np.array([1.0, 4.0])), np.arange(2.0), values[:2], np.array([1.0, 5.0])
        )
        # Relative to the size of the row, or its value where that is larger.
        assert measured.shares == pytest.approx(np.array([[2.0 / 3.0, 0.0], [0.0, 3.0 / 7.0]]))

    def test_rows_of_an_ocp(self) -> None:
        """Sizes of rows by typical changes of states and controls; names with an index if there are several rows."""
        q, v, u = (ca.SX.sym(name) for name in "qvu")
        system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=())
        two = ns.Constraint(ca.vertcat(q + u, 3 * v), [0, 0], [1, 1], name="two")
        ocp = ns.OCP(system, horizon=1.0, x0=[0, 0], stage_cost=u**2, path_constraints=[two])
        sizes = constraints.row_sizes(ocp, two)
        x, u_size = ocp.sizes.x, ocp.sizes.u
        assert sizes == pytest.approx([max(x[0], u_size[0]), 3 * x[1]], rel=1e-12)
        measured = constraints.path(
            ocp, two, np.array([0.0, 1.0]), np.array([[0.5, 0.2], [1.0, 1.0]]), np.array([[1.0], [0.0]]), np.zeros(0)
        )
        assert measured.amounts == pytest.approx(np.array([[0.5, 0.0], [0.0, 2.0]]))
        assert measured.shares == pytest.approx(
            np.array([[0.5 / max(sizes[0], 1.5), 0.0], [0.0, 2.0 / max(sizes[1], 3.0)]])
        )
        assert measured.subjects == ("two[0]", "two[1]")
        # A slope that vanishes at x0 does not vanish beside it.
        square = ns.Constraint(q**2, 0, 1, name="square")
        assert constraints.row_sizes(ocp, square) == pytest.approx([2 * 0.3 * x[0] ** 2], rel=1e-12)


class TestElements:
    c = np.array([1.0 / 3.0, 1.0])  # Radau

    def test_slopes_of_a_parabola(self) -> None:
        left, h = 2.0, 0.5
        stages = left + h * self.c
        slopes = slopes_of(self.c, np.array([[left**2]]), (stages**2)[None, :, None])
        assert slopes[0, :, 0] / h == pytest.approx(2.0 * stages, rel=1e-12)
        # A stage at the left end is that end.
        lobatto = np.array([0.0, 0.5, 1.0])
        stages = left + h * lobatto
        slopes = slopes_of(lobatto, np.array([[left**2]]), (stages**2)[None, :, None])
        assert slopes[0, :, 0] / h == pytest.approx(2.0 * stages, rel=1e-12)

    def elements(self, h: float = 0.5) -> ElementStages:
        t, lengths = np.array([0.0, 1.0]), np.array([h, 2.0])
        x = (t[:, None] + lengths[:, None] * self.c)[:, :, None] ** 2
        ends = {"x_left": t[:, None] ** 2, "x_right": (t + lengths)[:, None] ** 2}
        return ElementStages.of(t, lengths, self.c, x=x, **ends)

    def test_rates_and_integrals(self) -> None:
        elements = self.elements()
        assert elements.rates[:, :, 0] == pytest.approx(2.0 * elements.t, rel=1e-12)
        # Two Radau stages integrate the square of time: from 0 to 0.5, and from 1 to 3.
        assert elements.integrals(elements.t**2) == pytest.approx([0.5**3 / 3.0, (27.0 - 1.0) / 3.0], rel=1e-12)

    def test_short_elements_have_no_rates(self) -> None:
        assert self.elements().with_rates(2.5).tolist() == [[True, True], [True, True]]
        short = self.elements(1e-10)
        assert short.with_rates(2.5).tolist() == [[False, False], [True, True]]
        assert np.isnan(self.elements(0.0).rates[0]).all()
        samples = short.samples(np.zeros((2, 2, 1)), None, 2.5, 0.0)
        assert samples.t == pytest.approx(1.0 + 2.0 * self.c)
        assert samples.x_left == pytest.approx(np.ones((2, 1)))

    def test_noise_is_that_of_rounding_and_of_the_solver(self) -> None:
        """The differentiation matrix of 0, 1/3, 1 has the largest row sum in its last row: 2 + 4.5 + 2.5 = 9."""
        h, x = np.array([0.1, 0.2]), np.array([[3.0, np.nan]])
        rounding = np.finfo(float).eps * 4.0
        assert noise_of(self.c, h, x, -1.0) == pytest.approx(9.0 * rounding / h, rel=1e-9, abs=0.0)
        assert noise_of(self.c, h, x, 1e-9) == pytest.approx(9.0 * (1e-9 + rounding) / h, rel=1e-9, abs=0.0)
        assert noise_of(self.c, h, x, 1.0) == pytest.approx(9.0 * (1e-8 + rounding) / h, rel=1e-9, abs=0.0)


class TestRecords:
    measured = Measured(
        law=Law.GAPS,
        t=np.array([0.0, 1.0, 2.0]),
        subjects=("a", "b"),
        amounts=np.array([[1.0, 2.0], [0.0, 0.0], [np.nan, 9.0]]),
        shares=np.array([[0.2, 0.1], [0.0, 0.0], [np.nan, 0.9]]),
        unit="m",
    )

    def test_the_worst_of_each_instant_and_of_all(self) -> None:
        above = self.measured.above(0.15)
        assert [(v.time, v.subject, v.amount, v.share) for v in above] == [
            (0.0, "a", 1.0, 0.2),
            (2.0, "a", np.inf, np.inf),
        ]
        assert [v.time for v in self.measured.above(0.25)] == [2.0]
        worst = self.measured.worst()
        assert worst is not None
        assert (worst.time, worst.subject, worst.unit) == (2.0, "a", "m")
        first, second = self.measured.columns()
        assert (first.subjects, second.subjects) == (("a",), ("b",))
        assert [each.shape for each in (first.amounts, first.shares, second.amounts, second.shares)] == [(3, 1)] * 4
        assert second.shares[:, 0] == pytest.approx([0.1, 0.0, 0.9])
        assert second.amounts[:, 0] == pytest.approx([2.0, 0.0, 9.0])

    def test_several_laws(self) -> None:
        first, second = self.measured.columns()
        assert [v.time for v in violations([second, first], 0.05)] == [0.0, 0.0, 2.0, 2.0]
        largest = worst_of([second])
        assert largest is not None
        assert (largest.time, largest.share) == (2.0, 0.9)
        nothing = Measured(
            law=Law.GAPS, t=np.zeros(1), subjects=("a",), amounts=np.zeros((1, 1)), shares=np.zeros((1, 1))
        )
        assert nothing.worst() is None
        assert worst_of([nothing]) is None
        empty = Measured(law=Law.GAPS, t=np.zeros(0), subjects=(), amounts=np.zeros((0, 0)), shares=np.zeros((0, 0)))
        assert (empty.worst(), empty.above(0.0)) == (None, [])

    def test_statements_and_scales(self) -> None:
        assert statement(1.0, "false", np.nan, 0.5).amount == np.inf
        assert statement(1.0, "false", 0.5, np.nan).share == np.inf
        scales = Scales(length=0.5, speed=4.0, acceleration=10.0, response=3.0)
        assert scales.of_residual(1e-3) == pytest.approx(1e-3 * 2.0)
        heavy = Scales(length=5.0, speed=4.0, acceleration=0.1, response=3.0)
        assert heavy.of_residual(1e-3) == pytest.approx(1e-3 * 30.0)
        slow = Scales(length=5.0, speed=0.1, acceleration=10.0, response=0.5)
        assert slow.of_residual(1e-3) == pytest.approx(1e-3 * 10.0)


def test_null_space_and_directions() -> None:
    free = null_space(np.array([[1.0, 1.0, 0.0], [2.0, 2.0, 0.0]]))
    assert free.shape == (3, 2)
    assert np.abs(free.T @ free - np.eye(2)).max() < 1e-12
    assert np.abs(np.array([1.0, 1.0, 0.0]) @ free).max() < 1e-12
    assert null_space(np.zeros((2, 0))).shape == (0, 0)
    assert null_space(np.eye(2)).shape == (2, 0)
    assert directions(0).shape == (0, 0)
    assert directions(1).ravel().tolist() == [1.0, -1.0]
    eight = directions(2)
    assert np.linalg.norm(eight, axis=1) == pytest.approx(np.ones(8))
    # Neighbours are 45 degrees apart, the first is the first axis.
    assert (eight * np.roll(eight, 1, axis=0)).sum(axis=1) == pytest.approx(np.full(8, np.sqrt(0.5)))
    assert eight[0] == pytest.approx([1.0, 0.0])
