"""Unknowns, bounds and rows of multi-phase programs at starts that are known in closed form. No solver runs."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.mpcc.ipopt import NLPResult
from nosnoc_py.sequences.contact_laws import ContactLaws
from nosnoc_py.sequences.filippov_laws import FilippovLaws
from nosnoc_py.sequences.plan import Plan
from nosnoc_py.sequences.program import PhaseMesh, PhaseNLP, PhaseStart, intervals_of
from nosnoc_py.sequences.readout import PhasePoint, peaks_of, solution_of
from nosnoc_py.status import Status

pytestmark = pytest.mark.quick

BOUNCE = ns.Sequence([{}, "impact ground", {}])
HIT = 0.4  # [s]
CONTROL = 8.0  # [N]
NAMES = {"q": ["q"], "v": ["v"], "u": ["u"]}


def ball(**changed: Any) -> ns.OCP:
    """A ball of 2 kg and weight 20 N over the ground, driven by u: with 8 N it falls with 6 m/s^2."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    ground = ns.Contact("ground", gap=q, restitution=1.0)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=2, force=u - 20, contacts=[ground], names=NAMES)
    asked: dict[str, Any] = {"horizon": 1.0, "x0": [0.48, 0.0], "stage_cost": u**2}
    return ns.OCP(system, **{**asked, **changed})


def motion(t: float, side: str = "-") -> np.ndarray:
    """Falls from 0.48 m, hits the ground after 0.4 s with 2.4 m/s, and leaves it as fast."""
    if t < HIT or (t == HIT and side == "-"):
        return np.array([0.48 - 3 * t**2, -6 * t])
    s = t - HIT
    return np.array([2.4 * s - 3 * s**2, 2.4 - 6 * s])


def started(edges: tuple[float, ...] = (0.0, HIT, 1.0), **more: Any) -> PhaseStart:
    """A start whose state and control are functions of one time."""
    given: dict[str, Any] = {"control": lambda t: np.array([CONTROL]), "p": np.zeros(0), "state": motion, **more}
    state, control = given.pop("state"), given.pop("control")
    return PhaseStart(
        edges=np.array(edges),
        state=lambda t, side: np.array([state(float(one), side) for one in t]),
        control=lambda t: np.array([control(float(one)) for one in t]),
        **given,
    )


def program(
    ocp: ns.OCP | None = None, start: PhaseStart | None = None, sequence: Any = BOUNCE, **mesh: Any
) -> PhaseNLP:
    ocp = ball() if ocp is None else ocp
    laws = ContactLaws(ocp.system, rest_velocity=1e-3, force=20.0, speed=2.0, length=0.5)
    grid = PhaseMesh(**{"stages": 2, "intervals": 5, **mesh})
    return PhaseNLP(ocp, laws, Plan.of(sequence, laws), grid, started() if start is None else start)


def rows(g: PhaseNLP, name: str, w: np.ndarray | None = None) -> list[np.ndarray]:
    """The values of the blocks of this name, (places, rows) each."""
    values = g.nlp.evaluate(g.w0 if w is None else w)[1]
    return [g.nlp.of(block, values) for block in g.nlp.blocks if block.name == name]


class TestUnknowns:
    def test_intervals_are_distributed_by_the_lengths_of_the_phases(self) -> None:
        """Five intervals of 1 s: two in 0.4 s, three in 0.6 s."""
        g = program(elements=2)
        assert [(p.phase, p.control) for p in g.pieces] == [(0, 0), (0, 1), (1, 2), (1, 3), (1, 4)]
        assert [p.share for p in g.pieces] == pytest.approx([1 / 4, 1 / 4, 1 / 6, 1 / 6, 1 / 6])
        assert [p.elements for p in g.pieces] == [2] * 5
        assert g.controls == 5
        times = np.array([(0, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1.0)])
        assert np.array(g.piece_times()) == pytest.approx(times)
        assert g.lengths_of(g.w0) == pytest.approx([0.4, 0.6])
        e = g.elements
        assert (e.of(0).tolist(), e.of(1).tolist()) == ([0, 1, 2, 3], [4, 5, 6, 7, 8, 9])
        assert e.share[4:6] == pytest.approx([1 / 6, 1 / 6])
        assert (e.place[4:6].tolist(), e.width[4:6].tolist()) == ([0.0, 0.5], [0.5, 0.5])

    @pytest.mark.parametrize(("length", "count"), [(0.4, 2), (0.49, 2), (0.51, 3), (0.0, 1), (0.01, 1), (1.0, 5)])
    def test_a_phase_has_one_interval_at_least(self, length: float, count: int) -> None:
        assert intervals_of(PhaseMesh(intervals=5), length, 1.0) == count
        assert intervals_of(PhaseMesh(intervals=5), 2 * length, 2.0) == count
        assert intervals_of(PhaseMesh(intervals=5, per_phase=True), length, 1.0) == 5

    def test_lengths(self) -> None:
        g = program(shortest=0.01)
        at = g.at_lengths
        assert g.w0[at] == pytest.approx([0.4, 0.6])
        assert (g.nlp.lbw[at].tolist(), g.nlp.ubw[at].tolist(), g.nlp.scale[at].tolist()) == (
            [0.01] * 2,
            [np.inf] * 2,
            [1.0] * 2,
        )
        free = ball(horizon=ns.FreeTime(0.5, 3.0, initial=1.0))
        longer = program(free)
        assert longer.nlp.ubw[longer.at_lengths].tolist() == [3.0] * 2
        assert longer.nlp.lbw[longer.at_lengths].tolist() == [0.0] * 2

    def test_with_equal_intervals_every_piece_has_a_length(self) -> None:
        """Nodes at 0, 0.25, ... 1: the event at 0.4 s divides the second interval."""
        g = program(intervals=4, equal=True)
        assert [(p.phase, p.control, p.share) for p in g.pieces] == [
            (0, 0, 1.0),
            (0, 1, 1.0),
            (1, 1, 1.0),
            (1, 2, 1.0),
            (1, 3, 1.0),
        ]
        assert g.w0[g.at_lengths] == pytest.approx([0.25, 0.15, 0.1, 0.25, 0.25])
        assert g.lengths_of(g.w0) == pytest.approx([0.4, 0.6])
        times = np.array([(0, 0.25), (0.25, 0.4), (0.4, 0.5), (0.5, 0.75), (0.75, 1.0)])
        assert np.array(g.piece_times()) == pytest.approx(times)
        # Two elements of a piece share its length; an event at a node adds no empty piece.
        assert program(intervals=4, equal=True, elements=2).pieces[0].share == 0.5
        at_node = program(start=started((0.0, 0.5, 1.0)), intervals=4, equal=True)
        assert [(p.phase, p.control) for p in at_node.pieces] == [(0, 0), (0, 1), (1, 2), (1, 3)]
        # The rows say that every interval but the last has its share of the horizon.
        assert [block.labels for block in g.nlp.blocks if block.name == "end"] == [("horizon",), ("control interval",)]
        w = g.w0.copy()
        w[g.at_lengths[1]] += 0.2
        horizon, intervals = rows(g, "end", w)
        assert horizon.ravel() == pytest.approx([1.2])
        assert intervals.ravel() == pytest.approx([0.25 - 0.3, 0.45 - 0.3, 0.25 - 0.3])

    def test_controls_are_those_of_the_start_in_the_middle_of_their_intervals(self) -> None:
        ocp = ball(bounds=ns.Bounds(u=(-4.0, 0.8)))
        g = program(ocp, started(control=lambda t: np.array([t])))
        assert g.w0[g.at_u].ravel() == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.8])
        assert g.nlp.lbw[g.at_u].ravel().tolist() == [-4.0] * 5
        assert g.nlp.ubw[g.at_u].ravel().tolist() == [0.8] * 5
        # The typical value is the larger one of the bounds and the start.
        assert g.nlp.scale[g.at_u].ravel().tolist() == [4.0] * 5
        loose = program(start=started(control=lambda t: np.array([-3 * t])))
        assert loose.nlp.scale[loose.at_u].ravel() == pytest.approx([2.7] * 5)
        still = program(start=started(control=lambda t: np.zeros(1)))
        assert still.nlp.scale[still.at_u].ravel() == pytest.approx(np.full(5, still.ocp.sizes.u[0]))

    def test_polynomial_controls_have_nodes_at_both_ends(self) -> None:
        g = program(start=started(control=lambda t: np.array([t])), degree=2)
        assert g.control_nodes == pytest.approx([0.0, 0.5, 1.0])
        assert g.w0[g.at_u][:2] == pytest.approx(np.array([[0.0, 0.1, 0.2], [0.2, 0.3, 0.4]]))
        assert g.w0[g.at_u][-1] == pytest.approx([0.8, 0.9, 1.0])
        equal = program(start=started(control=lambda t: np.array([t])), degree=1, intervals=4, equal=True)
        # The interval that the event divides begins with its first piece and ends with its last.
        assert equal.w0[equal.at_u][1] == pytest.approx([0.25, 0.5])

    def test_free_numbers_have_bounds_and_fixed_ones_equal_bounds(self) -> None:
        q, v = ca.SX.sym("q"), ca.SX.sym("v")
        m, g = ca.SX.sym("m"), ca.SX.sym("g")
        ground = ns.Contact("ground", gap=q, restitution=0.5)
        names = {"p": ["m", "g"]}
        system = ns.CLS(q=q, v=v, p=ca.vertcat(m, g), mass_matrix=1, force=-g, contacts=[ground], names=names)
        ocp = ns.OCP(
            system, horizon=1.0, x0=None, p=[-2.0, 6.0], free_parameters={"g": (5.0, 7.0)}, bounds=ns.Bounds(x=(-9, 9))
        )
        here = program(ocp, started(p=np.array([-2.0, 6.0])))
        assert here.w0[here.at_p].tolist() == [-2.0, 6.0]
        assert here.nlp.lbw[here.at_p].tolist() == [-2.0, 5.0]
        assert here.nlp.ubw[here.at_p].tolist() == [-2.0, 7.0]
        assert here.nlp.scale[here.at_p].tolist() == [2.0, 6.0]
        assert here.nlp.lbw[here.at_x0].tolist() == [-9.0, -9.0]
        assert here.nlp.ubw[here.at_x0].tolist() == [9.0, 9.0]
        assert here.w0[here.at_x0] == pytest.approx([0.48, 0.0])
        fixed = program()
        assert fixed.nlp.lbw[fixed.at_x0].tolist() == fixed.nlp.ubw[fixed.at_x0].tolist() == [0.48, 0.0]

    def test_states_are_those_of_the_start_at_the_stages(self) -> None:
        """Radau IIA has its two stages at a third and at the end of an element."""
        g = program()
        for k, begin in ((0, 0.0), (1, HIT)):
            for e in range(len(g.at_x[k])):
                for j, c in enumerate((1 / 3, 1.0)):
                    t = begin + 0.2 * (e + c)
                    assert g.w0[g.at_x[k][e, j]] == pytest.approx(motion(t, "-"), abs=1e-7)
        assert g.w0[g.at_end] == pytest.approx(motion(1.0), abs=1e-7)
        # Positions do not jump: they are the same unknowns before and after the impact; the velocity is a new one.
        assert g.at_left[1][0] == g.at_x[0][-1, -1, 0]
        assert g.at_left[1][1] == g.at_y[1][0]
        assert g.w0[g.at_left[1]] == pytest.approx([0.0, 2.4], abs=1e-7)

    def test_typical_states_are_the_largest_ones(self) -> None:
        g = program()
        assert g.sizes == pytest.approx([0.48, 2.4], rel=0.02)
        q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
        two = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=[0, 0], contacts=[ns.Contact("ground", gap=q[0])])
        # A component that hardly moves counts a twentieth of the largest one of its kind.
        start = started((0.0, 1.0), state=lambda t, side: np.array([4.0, 0.001, 0.0, 0.0]))
        still = program(ns.OCP(two, horizon=1.0, x0=[4.0, 0.001, 0, 0]), start, ns.Sequence([{}]))
        assert still.sizes[:2] == pytest.approx([4.0, 0.2])
        assert still.sizes[2:] == pytest.approx(still.ocp.sizes.x[2:])

    def test_impulses_fit_the_start(self) -> None:
        """2 kg from -2.4 to 2.4 m/s: 9.6 N s."""
        g = program()
        assert g.w0[g.at_y[1]] == pytest.approx([2.4, 9.6], rel=1e-6)
        assert g.nlp.scale[g.at_y[1]] == pytest.approx([g.sizes[1], 20.0 * 0.5 / 2.0])

    def test_forces_fit_the_start(self) -> None:
        """At rest on the ground with 8 N of thrust, 12 N are left of the weight."""

        def still(t: float, side: str) -> np.ndarray:
            return np.zeros(2)

        rests = started((0.0, 1.0), state=still)
        g = program(ball(x0=[0.0, 0.0]), rests, ns.Sequence([{"ground": "closed"}]))
        assert g.w0[g.at_z[0]].ravel() == pytest.approx(np.full(10, 12.0), rel=1e-6)
        assert g.nlp.scale[g.at_z[0]].ravel().tolist() == [20.0] * 10
        assert g.nlp.lbw[g.at_z[0]].ravel().tolist() == [0.0] * 10
        # A phase without length has no rates; a force that would have to pull is zero.
        two = program(
            ball(x0=[0.0, 0.0]), started((0.0, 0.0, 1.0), state=still), ns.Sequence([{}, {"ground": "closed"}])
        )
        assert np.isfinite(two.w0).all()
        pulls = started((0.0, 1.0), state=still, control=lambda t: np.array([25.0]))
        held = program(ball(x0=[0.0, 0.0]), pulls, ns.Sequence([{"ground": "closed"}]))
        assert held.w0[held.at_z[0]].ravel().tolist() == [0.0] * 10


class TestRows:
    def test_a_motion_with_a_constant_control_satisfies_all_rows(self) -> None:
        """Parabolas are exact for two stages, so that the start itself is feasible, on either kind of grid."""
        for mesh in ({}, {"elements": 2}, {"equal": True, "intervals": 4}, {"degree": 1}, {"points": 2}, {"stages": 3}):
            g = program(**mesh)
            assert g.nlp.residual(g.w0) < 1e-6
            assert g.nlp.evaluate(g.w0)[0] == pytest.approx(64.0, rel=1e-9)

    def test_labels_and_limits_of_an_element(self) -> None:
        g = program()
        (block,) = g.stage_blocks
        assert block.labels == ("q'", "v'", "gap[ground]")
        assert g.stage_rows(block) == 3
        assert block.lower.tolist() == [[0.0] * 3] * 10
        assert block.upper.tolist() == [[0.0, 0.0, np.inf]] * 10
        values = rows(g, "phase")[0]
        assert values[:, :2] == pytest.approx(np.zeros((10, 2)), abs=1e-6)
        assert values[:2, 2] == pytest.approx([0.48 - 3 * (0.2 / 3) ** 2, 0.48 - 0.12], abs=1e-6)

    def test_more_control_is_a_defect_of_the_velocity(self) -> None:
        """E S - h f with an additional force of 1 N in the first interval of 0.2 s: -0.2 N s at its two stages."""
        g = program()
        w = g.w0.copy()
        w[g.at_u[0]] += 1.0
        values = rows(g, "phase", w)[0]
        assert values[:2, 1] == pytest.approx([-0.2, -0.2], abs=1e-6)
        assert values[2:, 1] == pytest.approx(np.zeros(8), abs=1e-6)
        assert g.nlp.evaluate(w)[0] == pytest.approx(64.0 * 0.8 + 81.0 * 0.2, rel=1e-6)
        halves = program(elements=2)
        w = halves.w0.copy()
        w[halves.at_u[0]] += 1.0
        assert rows(halves, "phase", w)[0][:4, 1] == pytest.approx(np.full(4, -0.1), abs=1e-6)

    def test_a_polynomial_control_is_taken_at_the_stages(self) -> None:
        """u = 8 + s in the first interval, with s from 0 to 1: the stages are at s = 1/3 and 1."""
        g = program(degree=1)
        w = g.w0.copy()
        w[g.at_u[0, 1]] += 1.0
        values = rows(g, "phase", w)[0]
        assert values[:2, 1] == pytest.approx([-0.2 / 3, -0.2], abs=1e-6)
        # Radau's weights are 3/4 and 1/4.
        assert g.nlp.evaluate(w)[0] == pytest.approx(64.0 * 0.8 + 0.2 * (0.75 * (25 / 3) ** 2 + 0.25 * 81), rel=1e-9)

    def test_the_boundary_has_guard_restitution_and_momentum(self) -> None:
        g = program()
        (block,) = [block for block in g.nlp.blocks if block.name == "before phase 1"]
        w = g.w0.copy()
        w[g.at_y[1]] += [0.5, 0.4]
        w[g.at_x[0][-1, -1, 0]] += 0.25
        values = dict(zip(block.labels, rows(g, "before phase 1", w)[0][0], strict=True))
        assert values["momentum"] == pytest.approx(1.0 - 0.4, abs=1e-6)
        assert values["gap[ground]"] == pytest.approx(0.25, abs=1e-6)
        assert values["restitution[ground]"] == pytest.approx(0.5, abs=1e-6)
        assert values["approach[ground]"] == pytest.approx(2.4, abs=1e-6)
        assert g.time_of(block, np.array([0.0, 0.3, 1.0])) == 0.3
        (end,) = [block for block in g.nlp.blocks if block.name == "end"]
        assert g.time_of(end, np.array([0.0, 0.3, 1.0])) == 1.0

    def test_ends(self) -> None:
        """The horizon, a terminal constraint, and a terminal cost; the motion ends at 0.36 m with -1.2 m/s."""
        ocp = ball()
        q, v = ocp.system.q, ocp.system.v
        goal = ns.Constraint(q - v, -1.0, 2.0, name="goal")
        asked = ball(terminal_constraints=[], terminal_cost=0)
        ocp = ns.OCP(
            ocp.system, horizon=1.0, x0=[0.48, 0.0], stage_cost=asked.stage_cost * 0, terminal_cost=3 * v**2,
            terminal_constraints=[goal],
        )  # fmt: skip
        g = program(ocp)
        horizon, end = [block for block in g.nlp.blocks if block.name == "end"]
        assert (horizon.labels, end.labels) == (("horizon",), ("goal",))
        assert (horizon.lower, horizon.upper, end.lower.tolist(), end.upper.tolist()) == (1.0, 1.0, [-1.0], [2.0])
        assert np.concatenate(rows(g, "end")).ravel() == pytest.approx([1.0, 0.36 + 1.2], abs=1e-6)
        assert g.nlp.evaluate(g.w0)[0] == pytest.approx(3 * 1.2**2, rel=1e-6)
        assert g.penalty_at(g.w0) == 0.0

    def test_a_penalty_costs_violations_relative_to_their_sizes(self) -> None:
        ocp = ball()
        goal = ns.Constraint(5 * ocp.system.q, 1.0, 2.0, name="goal")
        ocp = ns.OCP(ocp.system, horizon=1.0, x0=[0.48, 0.0], terminal_constraints=[goal])
        g = program(ocp, penalty=7.0)
        # The row changes by 5 times the typical position.
        size = 5 * g.sizes[0]
        assert g.nlp.scale[g.at_slack] == pytest.approx([size, size])
        assert g.w0[g.at_slack] == pytest.approx([0.01 * size] * 2)
        assert g.nlp.lbw[g.at_slack].tolist() == [0.0, 0.0]
        w = g.w0.copy()
        w[g.at_slack] = [0.5, 2.0]  # over, under
        assert np.concatenate(rows(g, "end", w)).ravel() == pytest.approx([1.0, 5 * 0.36 - 0.5 + 2.0], abs=1e-6)
        assert g.penalty_at(w) == pytest.approx(7.0 * 2.5 / size)
        assert g.nlp.evaluate(w)[0] == pytest.approx(7.0 * 2.5 / size)
        point = PhasePoint.of(g, w)
        assert (point.objective, point.missed) == (pytest.approx(0.0, abs=1e-9), 2.0)
        assert (point.violation, point.worst) == (2.0, "a terminal constraint")
        assert point.residual == pytest.approx(2.0 / size)

    def test_a_free_horizon_is_the_sum_of_the_lengths(self) -> None:
        T = ns.FreeTime(0.5, 3.0, initial=1.0)
        ocp = ball(horizon=T, stage_cost=0, terminal_cost=T.symbol**2)
        g = program(ocp)
        w = g.w0.copy()
        w[g.at_lengths] = [0.5, 1.5]
        horizon, _ = [block for block in g.nlp.blocks if block.name == "end"]
        assert (horizon.lower, horizon.upper) == (0.5, 3.0)
        assert rows(g, "end", w)[0][0] == pytest.approx([2.0])
        assert g.nlp.evaluate(w)[0] == pytest.approx(4.0)

    def test_a_fixed_start_needs_rows_only_where_it_is_in_another_mode(self) -> None:
        """Relative to the size of the row; bounds of 2 m and 2 m/s say here what is large."""

        def names(x0: Any, mode: str) -> list[str]:
            x0, ocp = 2.0 * np.array(x0), ball(x0=(2.0 * np.array(x0)).tolist(), bounds=ns.Bounds(x=(-2, 2)))
            start = started((0.0, 1.0), state=lambda t, side: x0)
            g = program(ocp, start, ns.Sequence([{"ground": mode}]))
            return [block.name for block in g.nlp.blocks]

        first = "mode of the first phase"
        assert first not in names([0.0, 0.0], "closed")
        assert first not in names([0.9e-5, 0.0], "closed")
        assert first in names([1.1e-5, 0.0], "closed")
        assert first not in names([1.0, 0.0], "open")
        assert first not in names([0.0, -0.9e-5], "closed")
        assert first in names([0.0, -1.1e-5], "closed")

    def test_initial_constraints_and_the_first_mode(self) -> None:
        ocp = ball(x0=None)
        free = ns.Constraint(ocp.system.q, 0.2, 0.9, name="height")
        g = program(ns.OCP(ocp.system, horizon=1.0, initial_constraints=[free]))
        named = {block.name: block for block in g.nlp.blocks}
        assert named["beginning"].labels == ("height",)
        assert (named["beginning"].lower.tolist(), named["beginning"].upper.tolist()) == ([0.2], [0.9])
        assert rows(g, "beginning")[0][0] == pytest.approx([0.48])
        assert named["mode of the first phase"].labels == ("gap[ground]",)
        assert rows(g, "mode of the first phase")[0][0] == pytest.approx([0.48])


class TestFurtherPoints:
    def test_are_equally_spaced_without_peaks(self) -> None:
        g = program(points=3)
        assert [places.tolist() for places in g._inner_places(1)] == [pytest.approx([0.25, 0.5, 0.75])] * 3

    def test_are_at_the_peaks_of_their_element(self) -> None:
        g = program(start=started(peaks=np.array([0.05, 0.25, 0.26, 0.27, 0.4, 0.7])), points=2)
        first, second = g._inner_places(0)
        assert first == pytest.approx([0.25, 1 / 3])
        assert second == pytest.approx([0.25, 0.3])
        assert [places.tolist() for places in g._inner_places(1)] == [
            pytest.approx([1 / 3, 2 / 3]),
            pytest.approx([0.5, 1 / 3]),
            pytest.approx([1 / 3, 2 / 3]),
        ]

    def test_are_at_the_peaks_of_the_second_element_of_an_interval(self) -> None:
        """Elements of 0.1 s: 0.13 s is at 0.3 of the second one."""
        g = program(start=started(peaks=np.array([0.13])), points=1, elements=2)
        assert [places[0] for places in g._inner_places(0)] == pytest.approx([0.5, 0.3, 0.5, 0.5])

    def test_inequalities_hold_there(self) -> None:
        ocp = ball(bounds=ns.Bounds(x=([-np.inf, -5.0], [np.inf, 4.0])))
        way = ns.Constraint(ocp.system.q + ocp.system.v, -8.0, 3.0, name="way")
        held = ns.Constraint(ocp.system.q - ocp.system.u, equals=1.0, name="held")
        ocp = ns.OCP(
            ocp.system, horizon=1.0, x0=[0.48, 0.0], bounds=ns.Bounds(x=([-np.inf, -5.0], [np.inf, 4.0])),
            path_constraints=[way, held],
        )  # fmt: skip
        g = program(ocp, points=1)
        inner, lower, upper = g.inner_rows(g.modes[0])
        assert inner.labels == ("bound of v", "gap[ground]", "way")
        assert (lower.tolist(), upper.tolist()) == ([-5.0, 0.0, -8.0], [4.0, np.inf, 3.0])
        stages, ends, points = [block for block in g.nlp.blocks if block.name == "phase"]
        assert list(g.stage_blocks) == [stages]
        # The equation is imposed at the last stage only.
        assert stages.labels == ("q'", "v'", "gap[ground]", "way")
        assert (ends.labels, points.labels) == (("held",), inner.labels)
        at_stages, at_ends, at_points = rows(g, "phase")
        q, v = motion(0.1)
        assert at_points[0] == pytest.approx([v, q, q + v], abs=1e-6)
        q, v = motion(0.2)
        assert (at_stages[1, 3], at_ends[0, 0]) == (
            pytest.approx(q + v, abs=1e-6),
            pytest.approx(q - CONTROL, abs=1e-6),
        )
        assert (stages.lower[:, 3].tolist(), stages.upper[:, 3].tolist()) == ([-8.0] * 10, [3.0] * 10)
        assert (ends.lower.tolist(), ends.upper.tolist()) == ([[1.0]] * 5, [[1.0]] * 5)

    def test_margins_fade_at_the_ends(self) -> None:
        """Those of gaps with the parabola 4 s (1 - s) of their phase; others with ten times that of the horizon."""
        ocp = ball()
        way = ns.Constraint(ocp.system.v, -8.0, 3.0, name="way")
        ocp = ns.OCP(
            ocp.system, horizon=1.0, x0=[0.48, 0.0], path_constraints=[way],
            bounds=ns.Bounds(x=([-9.0, -np.inf], [9.0, np.inf])),
        )  # fmt: skip
        margins = {"gap[ground]": 0.1, "way": 0.2, "bound of q": 0.5}
        g = program(ocp, started(margins=margins))
        (block,) = g.stage_blocks
        assert block.labels == ("q'", "v'", "gap[ground]", "way")
        for place, begin, first, last in (
            (0, 0.0, 0.0, HIT),
            (1, 0.2, 0.0, HIT),
            (2, 0.4, HIT, 1.0),
            (4, 0.8, HIT, 1.0),
        ):
            for j, c in enumerate((1 / 3, 1.0)):
                t = begin + 0.2 * c
                share = (t - first) / (last - first)
                gap, other = 0.1 * 4 * share * (1 - share), 0.2 * min(1.0, 40 * t * (1 - t))
                low, high = block.lower[2 * place + j], block.upper[2 * place + j]
                assert low == pytest.approx([0.0, 0.0, gap, -8.0 + other], abs=1e-9)
                assert high[[0, 1, 3]] == pytest.approx([0.0, 0.0, 3.0 - other], abs=1e-9)
                k, e = (0, place) if place < 2 else (1, place - 2)
                tight = 0.5 * min(1.0, 40 * t * (1 - t))
                assert g.nlp.lbw[g.at_x[k][e, j, 0]] == pytest.approx(-9.0 + tight, abs=1e-7)
                assert g.nlp.ubw[g.at_x[k][e, j, 0]] == pytest.approx(9.0 - tight, abs=1e-7)


class TestReadout:
    def test_elements_in_the_order_of_time(self) -> None:
        point = PhasePoint.of(program(), program().w0)
        e = point.elements()
        assert e.phase.tolist() == [0, 0, 1, 1, 1]
        assert e.control.tolist() == [0, 1, 2, 3, 4]
        assert e.t_left == pytest.approx([0.0, 0.2, 0.4, 0.6, 0.8])
        assert e.h == pytest.approx([0.2] * 5)
        assert e.x_left[2] == pytest.approx([0.0, 2.4], abs=1e-6)
        assert e.u_stages == pytest.approx(np.full((5, 2, 1), CONTROL))
        assert point.edges == pytest.approx([0.0, 0.4, 1.0])
        assert point.sequence == ns.Sequence([{}, "impact ground", {}])
        assert point.objective_at_start == point.objective == pytest.approx(64.0)

    def test_a_motion_that_touches_a_limit_of_its_mode_is_not_inside_it(self) -> None:
        high = started((0.0, 1.0), state=lambda t, side: np.array([5.0 - 3 * t**2, -6 * t]))
        g = program(ball(x0=[5.0, 0.0]), high, ns.Sequence([{}]))
        assert PhasePoint.of(g, g.w0).is_inside_mode
        w = g.w0.copy()
        w[g.at_x[0][2, 0, 0]] = 1e-7
        assert not PhasePoint.of(g, w).is_inside_mode
        # The ends of the horizon do not count.
        for e in (0, 4):
            w = g.w0.copy()
            w[g.at_x[0][e, 0, 0]] = 1e-7
            assert PhasePoint.of(g, w).is_inside_mode

    def test_a_solution_has_events_impulses_and_controls(self) -> None:
        g = program()
        solution = solution_of(PhasePoint.of(g, g.w0), Status.STOPPED, "", {})
        (event,) = solution.impacts
        assert (event.time, event.name) == (pytest.approx(0.4), "ground")
        assert event.impulse == pytest.approx(9.6, rel=1e-6)
        assert solution.u_grid == pytest.approx(np.linspace(0, 1, 6))
        assert solution.u.ravel() == pytest.approx([CONTROL] * 5)
        assert solution(0.7) == pytest.approx(motion(0.7), abs=1e-6)
        impulses = solution.series["Lambda_normal[ground]"]
        assert impulses.t == pytest.approx([0.0, 0.4])
        assert impulses.values == pytest.approx([0.0, 9.6], rel=1e-6)
        forces = solution.series["lambda_normal[ground]"]
        assert forces.t == pytest.approx(np.sort([*np.arange(5) * 0.2 + 0.2 / 3, *np.arange(1, 6) * 0.2]))
        assert np.abs(forces.values).max() == 0.0
        assert (solution.horizon, solution.penalty) == (pytest.approx(1.0), 0.0)

    def test_a_shared_interval_is_reported_once(self) -> None:
        g = program(intervals=4, equal=True)
        solution = solution_of(PhasePoint.of(g, g.w0), Status.STOPPED, "", {})
        assert solution.u_grid == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0])
        curved = program(start=started(control=lambda t: np.array([t])), degree=2)
        dense = solution_of(PhasePoint.of(curved, curved.w0), Status.STOPPED, "", {})
        assert dense.u.ravel() == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9])
        assert dense.control(0.33) == pytest.approx([0.33])

    def test_peaks_between_the_stages(self) -> None:
        """The gap 3 (t - 0.51)^2 - 0.001 is lowest between the stages of the third of five elements."""
        dips = started((0.0, 1.0), state=lambda t, side: np.array([3 * (t - 0.51) ** 2 - 0.001, 6 * (t - 0.51)]))
        g = program(ball(x0=[3 * 0.51**2 - 0.001, -6 * 0.51]), dips, ns.Sequence([{}]))
        times, amounts = peaks_of(PhasePoint.of(g, g.w0), 1e-4)
        assert times == pytest.approx([0.51], abs=1e-6)
        assert amounts == {"gap[ground]": pytest.approx(0.001, rel=3e-2)}
        assert peaks_of(PhasePoint.of(g, g.w0), 1.1e-3)[0].size == 0


class TestMultipliers:
    """With the multiplier 1 of every row in the user's units."""

    def solution(self, g: PhaseNLP) -> ns.Solution:
        ones = g.nlp.cost_scale / g.nlp.row_scale
        result = NLPResult(
            x=g.w0, lam_x=g.w0, lam_g=ones, iterations=0, wall_seconds=0.0, solver_status="Solve_Succeeded"
        )
        return solution_of(PhasePoint.of(g, g.w0, result), Status.STOPPED, "", {})

    def test_costates_are_those_of_the_dynamics_over_the_weights_of_the_quadrature(self) -> None:
        """-E' mu / b with the inertia 1 and 2 and Radau's weights 3/4 and 1/4."""
        solution = self.solution(program())
        q, v = (solution.series[name] for name in ("costate[q]", "costate[v]"))
        assert q.values == pytest.approx(np.tile([-4 / 3, -4.0], 5))
        assert v.values == pytest.approx(np.tile([-8 / 3, -8.0], 5))
        assert q.t == pytest.approx(np.sort([*np.arange(5) * 0.2 + 0.2 / 3, *np.arange(1, 6) * 0.2]))
        gap = solution.multipliers["gap[ground]"]
        # Ten stages, and the guard at 0.4 s.
        assert gap.values == pytest.approx(np.ones(11))
        assert (np.diff(gap.t) >= 0.0).all()
        assert np.isclose(gap.t, 0.4).sum() == 2
        assert solution.multipliers["momentum"].t == pytest.approx([0.4])
        assert solution.multipliers["horizon"].t == pytest.approx([1.0])

    def test_phases_without_length_have_no_costates(self) -> None:
        flight = started((0.0, 0.0, 1.0), state=lambda t, side: np.array([9.0 - 3 * t**2, -6 * t]))
        g = program(ball(x0=[9.0, 0.0]), flight, ns.Sequence([{}, "impact ground", {}]))
        solution = self.solution(g)
        assert solution.series["costate[q]"].t.min() > 0.0
        assert len(solution.series["costate[q]"].t) == 10


class TestChosenTimes:
    """Points of a motion at times inside of elements, by their polynomials."""

    def ocp(self, **more: Any) -> ns.OCP:
        base = ball()
        return ns.OCP(base.system, horizon=1.0, x0=[0.48, 0.0], **{k: f(base.system) for k, f in more.items()})

    def test_the_cost_is_that_of_the_motion(self) -> None:
        ocp = self.ocp(point_costs=lambda s: [ns.PointCost([0.1, 0.4, 0.75], s.q, [0.0, 0.5, 0.2], 3.0)])
        for mesh in ({}, {"equal": True, "intervals": 4}, {"elements": 3}):
            g = program(ocp, **mesh)
            misses = [motion(0.1)[0], motion(0.4)[0] - 0.5, motion(0.75)[0] - 0.2]
            assert g.nlp.evaluate(g.w0)[0] == pytest.approx(3.0 * np.dot(misses, misses), rel=1e-5)

    def test_a_time_stays_while_its_element_moves(self) -> None:
        """With a first phase of 0.5 s in place of 0.4 s, t = 0.1 s is at 2/5 of the first element in place of 1/2."""
        ocp = self.ocp(point_constraints=lambda s: [ns.Constraint(s.q, 0.0, 9.0, name="height", times=[0.1, 0.75])])
        g = program(ocp)
        (block,) = [block for block in g.nlp.blocks if block.name == "point"]
        assert block.labels == ("height", *("phase of a chosen time",) * 3)
        assert block.lower.tolist() == [0.0, 0.0, 0.0, -0.05]
        assert block.upper.tolist() == [9.0, np.inf, np.inf, 1.05]
        first, second = rows(g, "point")[0]
        # The first phase begins with the horizon (1 >= 0) and ends 0.3 s after the time.
        assert first == pytest.approx([motion(0.1)[0], 1.0, 0.3, 0.5], abs=1e-6)
        assert second == pytest.approx([motion(0.75)[0], 0.35, 1.0, 0.75], abs=1e-6)
        w = g.w0.copy()
        w[g.at_lengths] = [0.5, 0.5]
        first, second = rows(g, "point", w)[0]
        # The polynomial of the first element, 0.48 - 0.12 s^2, at s = 0.4.
        assert first == pytest.approx([0.48 - 0.12 * 0.16, 1.0, 0.4, 0.4], abs=1e-6)
        assert second[1:] == pytest.approx([0.25, 1.0, (0.75 - 0.5 - 0.5 / 3) / (0.5 / 3)], abs=1e-6)


def test_kinks_of_a_cost_are_slacks_with_the_values_of_the_kinks() -> None:
    """The integral of |u| with u = 8 and the final |q| = 0.36."""
    base = ball()
    s = base.system
    ocp = ns.OCP(s, horizon=1.0, x0=[0.48, 0.0], stage_cost=ca.fabs(s.u), terminal_cost=5 * ca.fabs(s.q))
    g = program(ocp)
    assert g.nlp.evaluate(g.w0)[0] == pytest.approx(8.0 + 5 * 0.36, rel=1e-6)
    w = g.w0.copy()
    w[g.at_u[0]] = -3.0
    w[g.at_end[0]] = -0.5
    assert g.nlp.evaluate(g.with_kinks(w))[0] == pytest.approx(0.2 * 3 + 0.8 * 8 + 5 * 0.5, rel=1e-6)
    (block,) = g.stage_blocks
    assert block.labels[-1] == "stage_cost"


def test_kinks_of_polynomial_controls_are_those_at_the_stages() -> None:
    """u = t in two elements per interval of 0.2 s: the integral of |u| is 1/2."""
    s = ball().system
    ocp = ns.OCP(s, horizon=1.0, x0=[0.48, 0.0], stage_cost=ca.fabs(s.u))
    g = program(ocp, started(control=lambda t: np.array([t])), degree=1, elements=2)
    assert g.nlp.evaluate(g.w0)[0] == pytest.approx(0.5, rel=1e-9)


def test_a_sliding_start_has_the_weights_that_keep_it_on_its_surface() -> None:
    """x' = 2 below zero and -3 above it: sliding has alpha = 0.4."""
    x = ca.SX.sym("x")
    system = ns.PSS(x=x, modes=ns.Modes("side", flows=[2.0, -3.0], functions=x, signs=[[-1], [1]]))
    laws = FilippovLaws(system)
    start = PhaseStart(
        edges=np.array([0.0, 0.5, 1.0]),
        state=lambda t, side: np.minimum(2 * t - 1.0, 0.0)[:, None],
        control=lambda t: np.zeros((t.size, 0)),
        p=np.zeros(0),
    )
    sequence = ns.Sequence([{"side": "-"}, {"side": "0"}])
    g = PhaseNLP(
        ns.OCP(system, horizon=1.0, x0=[-1.0]), laws, Plan.of(sequence, laws), PhaseMesh(stages=2, intervals=4), start
    )
    assert g.w0[g.at_z[1]].ravel() == pytest.approx([0.4] * 4, abs=1e-6)
    assert g.nlp.residual(g.w0) < 1e-6
    solution = solution_of(PhasePoint.of(g, g.w0), Status.STOPPED, "", {})
    assert [(event.time, event.kind) for event in solution.events] == [(pytest.approx(0.5), "enter_sliding")]
    assert solution.series["theta[side][1]"].values == pytest.approx([0.0] * 4 + [0.4] * 4, abs=1e-6)
