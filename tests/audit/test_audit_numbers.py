"""Scales of motions, forces that explain them, drifts, noise and elements on numbers that are written down."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.audit import constraints, contacts
from nosnoc_py.audit.contacts import explained_forces, explained_impulses, laws_of_impacts, laws_of_motion, scales_of
from nosnoc_py.audit.elements import ElementStages, columns_of, listed
from nosnoc_py.audit.explanation import ContactLaw, _cuts, explain
from nosnoc_py.audit.guards import lowest
from nosnoc_py.audit.inclusions import Inclusions
from nosnoc_py.audit.records import Jumps, MotionSamples, Scales
from nosnoc_py.audit.redundancy import best_choice, null_space
from nosnoc_py.audit.resets import resets_of
from nosnoc_py.solution import Series
from nosnoc_py.solution.violation import Law
from nosnoc_py.systems.hybrid import HybridSystem, StateJump

pytestmark = pytest.mark.quick

NOTHING = np.zeros(0)
SCALES = Scales(length=5.0, speed=10.0, acceleration=9.81, response=0.5)


def point(unit: float = 1.0, friction: float = 0.5, control: bool = False) -> ns.CLS:
    """A point mass of 2 kg over the ground, whose gap is measured in a unit of one's own, under 20 N."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    more = {"tangent": ca.DM([1, 0]), "friction": friction} if friction else {}
    ground = ns.Contact("ground", gap=unit * q[1], restitution=0.5, **more)
    force = ca.vertcat(u, -20) if control else ca.DM([0, -20])
    fields = {"u": u} if control else {}
    return ns.CLS(q=q, v=v, mass_matrix=2.0 * ca.DM.eye(2), force=force, contacts=[ground], **fields)


def samples(x: Any, rates: Any = None, **more: Any) -> MotionSamples:
    x = np.atleast_2d(np.array(x, float))
    rates = None if rates is None else np.atleast_2d(np.array(rates, float))
    given: dict[str, Any] = {"t": np.arange(len(x), dtype=float), "u": np.zeros((len(x), 0)), **more}
    return MotionSamples(x=x, rates=rates, **given)


def jumps(before: Any = (), after: Any = ()) -> Jumps:
    before = np.array(before, float).reshape(-1, 4)
    return Jumps(t=np.zeros(len(before)), x_before=before, x_after=np.array(after, float).reshape(-1, 4))


def laws(system: ns.CLS, motion: MotionSamples, scales: Scales = SCALES, **more: Any) -> dict[tuple[Law, str], float]:
    """The largest share of every law and subject above rounding."""
    found = {}
    for one in laws_of_motion(system, motion, scales, NOTHING, **more):
        for column in one.columns():
            worst = column.worst()
            if worst is not None and worst.share > 1e-12:
                found[one.law, worst.subject] = worst.share
    return found


class TestScales:
    def test_of_a_motion(self) -> None:
        """A fall from 8 m with 3 m/s at most, free acceleration 10, for 2 s in stages of 0.25 s."""
        falling = samples([[0, 8, 0, 0], [1, 2, 0, -3]], [[0, 0, 0, -10], [0, -3, 0, -10]])
        scales = scales_of(point(), falling, jumps(), p=NOTHING, duration=2.0, stage=0.25)
        assert scales.speed == pytest.approx(3.0)
        assert scales.length == pytest.approx(8.0)
        assert scales.acceleration == pytest.approx(10.0)
        assert scales.response == pytest.approx(0.5)
        # The speed that the forces give in one stage counts as well, and the way at this speed.
        slow = scales_of(point(), falling, jumps(), p=NOTHING, duration=2.0, stage=0.5)
        assert slow.speed == pytest.approx(5.0)
        assert slow.length == pytest.approx(10.0)

    def test_jumps_forces_and_controls_count(self) -> None:
        falling = samples([[0, 1, 0, 0]], [[0, 0, 0, -10]])
        hit = scales_of(point(), falling, jumps([[0, 0, 0, -7]], [[0, 0, 0, 4]]), p=NOTHING, duration=2.0, stage=0.1)
        assert hit.speed == pytest.approx(7.0)
        left = scales_of(point(), falling, jumps([[0, 0, 0, -4]], [[0, 0, 0, 7]]), p=NOTHING, duration=2.0, stage=0.1)
        assert left.speed == pytest.approx(7.0)
        pushed = samples([[0, 0, 0, 0]], [[0, 0, 0, 0]], forces=np.array([[50.0, 0.0]]))
        assert scales_of(point(), pushed, jumps(), p=NOTHING, duration=2.0, stage=0.1).acceleration == pytest.approx(
            25.0
        )
        hard = samples([[0, 0, 0, 0]], [[0, 0, 0, 40.0]])
        assert scales_of(point(), hard, jumps(), p=NOTHING, duration=2.0, stage=0.1).acceleration == pytest.approx(40.0)
        unknown = samples([[0, 0, 0, 0]])
        assert scales_of(point(), unknown, jumps(), p=NOTHING, duration=2.0, stage=0.1).acceleration == pytest.approx(
            10.0
        )
        # A control that holds the weight: the forces without it give the speed.
        q, v, u = (ca.SX.sym(name) for name in "qvu")
        held = ns.CLS(q=q, v=v, u=u, mass_matrix=2, force=u - 20, contacts=[ns.Contact("ground", gap=q)])
        hovers = samples([[1, 0]], [[0, 0]], u=np.array([[20.0]]))
        none = Jumps(t=NOTHING, x_before=np.zeros((0, 2)), x_after=np.zeros((0, 2)))
        scales = scales_of(held, hovers, none, p=NOTHING, duration=2.0, stage=0.1)
        assert scales.speed == pytest.approx(1.0)
        assert scales.acceleration == pytest.approx(0.5)  # speed / duration, as nothing accelerates
        assert scales.rest > 0.0

    def test_the_control_of_a_sample_holds_until_the_next_one(self) -> None:
        """A plan of 3, 9 and 4 N from t = 5 s on, as the simulation of typical sizes sees it."""
        asked: list[Any] = []

        def scales(system: Any, *, x0: Any, control: Any, p: Any, duration: float) -> Any:
            asked.extend(float(control(t, x0)[0]) for t in (0.0, 0.5, 1.0, 1.5, 9.0))
            return contacts.UNIT

        motion = samples(np.zeros((3, 4)), u=np.array([[3.0], [9.0], [4.0]]))
        motion = replace(motion, t=np.array([5.0, 6.0, 7.0]))
        original, contacts.problem_scales = contacts.problem_scales, scales  # type: ignore[assignment]
        try:
            contacts._problem_scales(point(control=True), motion, NOTHING, 2.0)
        finally:
            contacts.problem_scales = original
        assert asked == [3.0, 9.0, 9.0, 4.0, 4.0]


class TestMotions:
    rest = (0.0, 0.0, 0.0, 0.0)

    def test_the_balance_of_forces_and_rates_of_positions(self) -> None:
        assert laws(point(), samples([0, 3, 1, -2], [1, -2, 0, -10])) == {}
        wrong = laws(point(), samples([0, 3, 1, -2], [1.5, -2, 0, -9]))
        assert wrong == {
            (Law.BALANCE, "v_1"): pytest.approx(1.0 / 9.81),
            (Law.POSITIONS, "q_0"): pytest.approx(0.05),
        }

    def test_noise_of_rates_is_subtracted(self) -> None:
        motion = samples([0, 3, 1, -2], [1.5, -2, 0, -9], noise=np.array([0.2]))
        assert laws(point(), motion) == {
            (Law.BALANCE, "v_1"): pytest.approx(0.8 / 9.81),
            (Law.POSITIONS, "q_0"): pytest.approx(0.03),
        }
        assert laws(point(), samples([0, 3, 1, -2], [1.5, -2, 0, -9], noise=np.array([2.0]))) == {}

    @pytest.mark.parametrize("unit", [1.0, 100.0])
    def test_positions_may_drift_along_normals_of_closed_contacts(self, unit: float) -> None:
        closed = samples(self.rest, [0.0, 0.3, 0.0, 0.0])
        assert laws(point(unit), closed) == {}
        sideways = laws(point(unit), samples(self.rest, [0.3, 0.3, 0.0, 0.0]))
        assert sideways == {(Law.POSITIONS, "q_0"): pytest.approx(0.03)}
        open_ = laws(point(unit), samples([0, 1, 0, 0], [0.0, 0.3, 0.0, -10.0]))
        assert open_ == {(Law.POSITIONS, "q_1"): pytest.approx(0.03)}

    @pytest.mark.parametrize(("height", "closed"), [(0.9e-6, True), (1.1e-5, False)])
    def test_a_contact_is_closed_up_to_a_share_of_the_length(self, height: float, closed: bool) -> None:
        """Within TOUCHING_SOLVED of the typical length of 5 m, or the body falls."""
        system, motion = point(), samples([0, height, 0, 0], [0, 0, 0, 0])
        forces = explained_forces(system, motion, SCALES, NOTHING).forces
        assert forces is not None
        assert forces[0] == pytest.approx([20.0, 0.0] if closed else [0.0, 0.0], abs=1e-9)

    def test_a_force_in_an_element_that_began_open_is_none(self) -> None:
        motion = samples(self.rest, self.rest, x_left=np.array([[0.0, 1.0, 0, 0]]))
        forces = explained_forces(point(), motion, SCALES, NOTHING).forces
        assert forces is not None
        assert forces.tolist() == [[0.0, 0.0]]
        given = samples(self.rest, self.rest, forces=np.array([[7.0, 1.0]]))
        assert explained_forces(point(), given, SCALES, NOTHING) is given
        unknown = samples(self.rest)
        assert explained_forces(point(), unknown, SCALES, NOTHING) is unknown

    def test_a_pyramid_has_no_circular_laws(self) -> None:
        motion = samples([0, 0, 1, 0], [1, 0, 0, 0], forces=np.array([[20.0, 0.0]]))
        assert laws(point(), motion) == {(Law.DISSIPATION, "ground"): pytest.approx(0.1)}
        assert laws(point(), motion, exact_friction=False) == {}

    def test_states_of_first_order(self) -> None:
        """y' = -y with y = 3 (of at least the typical speed 10): a rate of -2 misses by a tenth."""
        q, v, y = (ca.SX.sym(name) for name in "qvy")
        system = ns.CLS(q=q, v=v, y=y, y_rate=-y, mass_matrix=1, force=0, contacts=[ns.Contact("ground", gap=q)])
        found = laws(system, samples([1, 0, 3], [0, 0, -2]))
        assert list(found.values()) == [pytest.approx(0.1)]
        noisy = laws(system, samples([1, 0, 3], [0, 0, -2], noise=np.array([0.25])))
        assert list(noisy.values()) == [pytest.approx(0.075)]
        large = laws(system, samples([1, 0, 40], [0, 0, -36]))
        assert list(large.values()) == [pytest.approx(0.1)]
        assert contacts._sizes_of_y(system, np.array([[1.0, 0, 3], [1, 0, -7]]), 5.0).tolist() == [7.0]
        assert contacts._sizes_of_y(system, np.array([[3.0]]), 5.0).tolist() == [5.0]

    def test_a_singular_mass_matrix_has_a_pseudo_inverse(self) -> None:
        q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
        ground = ns.Contact("ground", gap=q[0])
        system = ns.CLS(q=q, v=v, mass_matrix=ca.diag(ca.vertcat(2, q[1])), force=[4, 0], contacts=[ground])
        here = contacts._kinematics(system, np.array([[1.0, 0.0, 0, 0]]), np.zeros((1, 0)), NOTHING)
        assert np.asarray(here.inverse).reshape(2, 2) == pytest.approx(np.diag([0.5, 0.0]))
        regular = contacts._kinematics(system, np.array([[1.0, 4.0, 0, 0]]), np.zeros((1, 0)), NOTHING)
        assert np.asarray(regular.inverse).reshape(2, 2) == pytest.approx(np.diag([0.5, 0.25]))

    @pytest.mark.parametrize("unit", [1.0, 1e-3, 1e3])
    def test_distances_are_lengths_in_any_unit_of_the_gap(self, unit: float) -> None:
        here = point(unit).kinematics(np.array([[0.0, 3.0, 0, 0]]), 0.0, NOTHING)
        assert contacts.distances(here) == pytest.approx(np.array([[3.0]]))

    def test_a_normal_that_vanishes_makes_no_distance_of_rounding(self) -> None:
        """q^2 has the slope 1e-9 at 5e-10, against 2 at the steepest sample: at most a million times smaller counts."""
        q, v = ca.SX.sym("q"), ca.SX.sym("v")
        system = ns.CLS(q=q, v=v, mass_matrix=1, force=0, contacts=[ns.Contact("bowl", gap=q**2)])
        here = system.kinematics(np.array([[5e-10, 0.0], [1.0, 0.0]]), 0.0, NOTHING)
        assert contacts.distances(here)[:, 0] == pytest.approx([25e-20 / 2e-6, 0.5])


class TestImpacts:
    def test_impulses_that_explain_a_jump(self) -> None:
        """2 kg from (5, -3) to (2.75, 1.5) m/s: 9 N s, and -4.5 of friction."""
        found = explained_impulses(point(), jumps([[0, 0, 5, -3]], [[0, 0, 2.75, 1.5]]), SCALES, NOTHING)
        assert found.impulses == pytest.approx(np.array([[9.0, -4.5]]))
        far = explained_impulses(point(), jumps([[0, 1, 5, -3]], [[0, 1, 2.75, 1.5]]), SCALES, NOTHING)
        assert far.impulses == pytest.approx(np.zeros((1, 2)))
        given = replace(far, impulses=np.array([[1.0, 2.0]]))
        assert explained_impulses(point(), given, SCALES, NOTHING) is given

    def test_controls_have_no_part_in_impacts(self) -> None:
        plain, driven = point(), point(control=True)
        both = jumps([[0, 0, 5, -3]], [[0, 0, 2.5, 2.0]])
        one, other = (
            {each.law: each.shares.tolist() for each in laws_of_impacts(system, both, SCALES, NOTHING)}
            for system in (plain, driven)
        )
        assert one == other

    def test_energy_is_reported_for_the_hardest_contact_of_each_instant(self) -> None:
        """Two walls: at the first instant the left one is hit harder, at the second the right one."""
        q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
        walls = [ns.Contact("left", gap=q[0], restitution=1.0), ns.Contact("right", gap=q[1], restitution=1.0)]
        system = ns.CLS(q=q, v=v, mass_matrix=2 * ca.DM.eye(2), force=[0, 0], contacts=walls)
        before = np.array([[0.0, 0.0, -3.0, -1.0], [0.0, 0.0, -1.0, -3.0]])
        after = np.array([[0.0, 0.0, 3.3, 1.0], [0.0, 0.0, 1.0, 3.3]])
        both = Jumps(t=np.array([0.0, 1.0]), x_before=before, x_after=after)
        energy = {one.law: one for one in laws_of_impacts(system, both, SCALES, NOTHING)}[Law.ENERGY]
        assert (energy.amounts > 0.0).tolist() == [[True, False], [False, True]]
        assert energy.amounts.max(axis=1) == pytest.approx([3.3**2 - 9.0] * 2, rel=1e-6)

    def test_without_jumps_or_samples_there_are_no_laws(self) -> None:
        assert laws_of_impacts(point(), jumps(), SCALES, NOTHING) == []
        assert laws_of_motion(point(), samples(np.zeros((0, 4))), SCALES, NOTHING) == []

    def test_resets_of_a_system_with_many_states(self) -> None:
        x = ca.SX.sym("x", 4)
        jump = StateJump("flip", guard=x[0], reset=-x)
        system = HybridSystem(x=x, flow=ca.SX.zeros(4), jumps=[jump])
        both = Jumps(t=np.zeros(1), x_before=np.array([[0.0, 1, 2, 3]]), x_after=np.array([[0.0, -1, -2, -2]]))
        assert resets_of(system, both, NOTHING, np.ones(4)).shares == pytest.approx(np.array([[0, 0, 0, 1.0]]))


class TestExplanations:
    """Forces along the columns (1, 1) for the sum 6: of all choices the one that violates the laws least."""

    columns = np.array([[1.0, 1.0]])

    def test_two_contacts_share_a_load(self) -> None:
        both = [ContactLaw(normal=k, tangents=(), friction=0.0, direction=None) for k in (0, 1)]
        forces = explain(self.columns, np.array([6.0]), both)
        assert forces.sum() == pytest.approx(6.0)
        assert forces.min() >= -1e-9
        # One of them opens: the other one has everything.
        opens = [both[0], replace(both[1], opening=True)]
        assert explain(self.columns, np.array([6.0]), opens) == pytest.approx([6.0, 0.0], abs=1e-9)
        # A pull cannot be shared without violations: halves are the least.
        assert explain(self.columns, np.array([-6.0]), both) == pytest.approx([-3.0, -3.0], abs=1e-9)

    def test_friction_is_along_its_slip_or_in_its_cone(self) -> None:
        """Normal force and two equal friction columns beside a spring: f_n = 10, and f_t in a cone of 5."""
        columns = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
        slips = ContactLaw(normal=0, tangents=(1,), friction=0.5, direction=np.array([1.0]))
        forces = explain(columns, np.array([10.0, 2.0]), [slips])
        assert forces == pytest.approx([10.0, -5.0, 7.0])
        sticks = replace(slips, direction=None)
        held = explain(columns, np.array([10.0, 20.0]), [sticks])
        assert held[0] == pytest.approx(10.0)
        assert abs(held[1]) <= 5.0 + 1e-9
        assert held.sum() == pytest.approx(30.0)

    def test_a_cone_in_space_is_cut(self) -> None:
        """Friction (3.9, 3.9) lies inside the first octagon of a cone of 5, and outside of it by 0.5."""
        law = ContactLaw(normal=0, tangents=(1, 2), friction=0.5, direction=None)
        inside = explain(np.eye(3), np.array([10.0, 3.9, 3.9]), [law])
        assert inside == pytest.approx([10.0, 3.9, 3.9])
        (plane,) = _cuts(np.array([10.0, 3.9, 3.9]), law, 0.0)
        assert plane == pytest.approx([0.5, -np.sqrt(0.5), -np.sqrt(0.5)])
        assert _cuts(np.array([10.0, 3.0, 3.9]), law, 0.0) == []
        assert _cuts(np.array([10.0, 3.9, 3.9]), law, 0.6) == []
        assert _cuts(np.array([10.0, 3.9, 3.9]), replace(law, direction=np.array([1.0, 0.0])), 0.0) == []
        assert _cuts(np.array([10.0, 9.0, 0.0]), replace(law, tangents=(1,)), 0.0) == []
        # Spread over two columns with a redundant one, the choice is in the circle.
        columns = np.array([[1.0, 0, 0, 0, 0], [0, 1.0, 0, 1.0, 0], [0, 0, 1.0, 0, 1.0]])
        forces = explain(columns, np.array([10.0, 8.0, 8.0]), [law])
        assert np.linalg.norm(forces[1:3]) <= 5.0 + 1e-6

    def test_two_contacts_with_friction_have_their_own_forces(self) -> None:
        """Two feet at one place: half of the load each, friction within both cones."""
        q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
        feet = [ns.Contact(name, gap=q[1], tangent=ca.DM([1, 0]), friction=mu) for name, mu in (("a", 0.1), ("b", 0.9))]
        system = ns.CLS(q=q, v=v, mass_matrix=2.0 * ca.DM.eye(2), force=ca.DM([8, -20]), contacts=feet)
        forces = explained_forces(system, samples([0, 0, 0, 0], [0, 0, 0, 0]), SCALES, NOTHING).forces
        assert forces is not None
        a, b, along_a, along_b = forces[0]
        assert a + b == pytest.approx(20.0)
        assert along_a + along_b == pytest.approx(-8.0)
        assert abs(along_a) <= 0.1 * a + 1e-9
        assert abs(along_b) <= 0.9 * b + 1e-9

    def test_the_best_choice_is_limited(self) -> None:
        """forces (1, 0) + z (-1, 1): the least of both is largest at (1/2, 1/2), or anywhere up to `most`."""
        free, rows = np.array([[-1.0], [1.0]]), [np.array([1.0, 0.0]), np.array([0.0, 1.0])]
        found = best_choice(np.array([1.0, 0.0]), free, rows, lambda best, least: [], most=9.0)
        assert found == pytest.approx([0.5, 0.5])
        loose = best_choice(np.array([1.0, 0.0]), free, rows, lambda best, least: [], most=0.2)
        assert loose.min() >= 0.2 - 1e-9
        cuts = iter([[np.array([1.0, -1.0])], []])
        cut = best_choice(np.array([1.0, 0.0]), free, rows, lambda best, least: next(cuts), most=9.0)
        assert cut[0] - cut[1] >= min(cut) - 1e-9


class TestElements:
    c = np.array([1.0 / 3.0, 1.0])

    def test_the_clock_of_time_freezing(self) -> None:
        """Numerical elements of length 2 whose time runs with half of the mean rate, or stands still."""
        slopes = np.array([[[4.0], [6.0]]])
        clock = np.array([[0.5, 0.0]])
        zero = np.zeros((1, 1))
        frozen = ElementStages(
            t_left=np.zeros(1), h=np.array([2.0]), c=self.c, clock=clock, t=np.zeros((1, 2)), x_left=zero, x_right=zero,
            x=np.zeros((1, 2, 1)), slopes=slopes,
        )  # fmt: skip
        assert frozen.standing.tolist() == [[False, True]]
        assert frozen.rates[0, 0, 0] == pytest.approx(4.0)
        assert np.isnan(frozen.rates[0, 1, 0])
        assert frozen.with_rates(2.0).tolist() == [[True, False]]
        # Radau's weights are 3/4 and 1/4.
        assert frozen.integrals(np.array([[2.0, 7.0]])) == pytest.approx([2.0 * 0.75 * 2.0 * 0.5])
        slow = replace(frozen, clock=np.array([[0.9e-6, 1.1e-6]]))
        assert slow.standing.tolist() == [[True, False]]

    def test_series_by_name(self) -> None:
        t = np.arange(2.0)
        series = {"a": Series(t, np.array([1.0, 2.0])), "b": Series(t, np.array([3.0, 4.0])), "c": Series(t[:1], t[:1])}
        assert columns_of(series, ["a", "b"], 2).tolist() == [[1.0, 3.0], [2.0, 4.0]]  # type: ignore[union-attr]
        assert columns_of(series, ["a", "d"], 2) is None
        assert columns_of(series, ["a", "c"], 2) is None
        frames = point().mechanics.frames_at(NOTHING)
        known = {"lambda_normal[ground]": series["a"], "lambda_tangent[ground]": series["b"]}
        assert listed(frames, known, "lambda", 2).tolist() == [[1.0, 3.0], [2.0, 4.0]]  # type: ignore[union-attr]
        assert listed(frames, known, "Lambda", 2) is None


def test_a_vertex_counts_only_around_the_lowest_sample() -> None:
    assert lowest(np.array([1.0, 0.0, 1.0])) == pytest.approx(0.0)
    assert lowest(np.array([2.0, 0.0, 1.0])) == pytest.approx(-1.0 / 24.0)
    assert lowest(np.array([1.0, 2.0, 1.0])) == pytest.approx(1.0)
    assert lowest(np.array([3.0, 1.0, 0.5])) == pytest.approx(0.5)
    assert lowest(np.array([0.5, 1.0, 3.0])) == pytest.approx(0.5)
    assert lowest(np.array([[2.0, 0.0, 1.0], [1.0, 1.0, 1.0]])) == pytest.approx([-1.0 / 24.0, 1.0])


def test_sizes_of_rows_by_x0_and_by_controls() -> None:
    """q u has the slopes u and q: at x0 = 3 beside controls of zero, and at 0.3 of the typical sizes beside it."""
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=())
    row = ns.Constraint(q * u, 0, 1, name="row")
    ocp = ns.OCP(system, horizon=1.0, x0=[3, 0], stage_cost=u**2, path_constraints=[row])
    x, size = ocp.sizes.x[0], ocp.sizes.u[0]
    expected = max(0.3 * size * x, (3.0 + 0.3 * x) * size)
    assert constraints.row_sizes(ocp, row) == pytest.approx([expected], rel=1e-12)
    free = ns.OCP(system, horizon=1.0, x0=None, stage_cost=u**2, path_constraints=[row])
    x, size = free.sizes.x[0], free.sizes.u[0]
    assert constraints.row_sizes(free, row) == pytest.approx([0.3 * x * size], rel=1e-12)


def test_multipliers_that_enter_nonlinearly_are_found_by_several_steps() -> None:
    """x' = alpha_0 alpha_1 on two surfaces: 0.09 is explained by 0.3 twice, 1.5 only up to 1."""
    x, alpha = ca.SX.sym("x", 2), ca.SX.sym("alpha", 2)
    flow = ca.vertcat(alpha[0] * alpha[1], alpha[0] - alpha[1])
    system = ns.Heaviside(x=x, alpha=alpha, flow=flow, functions=x)

    def share(rate: list[float], **more: Any) -> float:
        here = MotionSamples(t=np.zeros(1), x=np.zeros((1, 2)), u=np.zeros((1, 0)), rates=np.array([rate]))
        return Inclusions(system, here, NOTHING, np.ones(2), **more).violations()[0].share

    assert share([0.09, 0.0]) < 1e-9
    assert share([0.25, 0.0]) < 1e-9
    assert share([1.5, 0.0]) == pytest.approx(0.5, rel=1e-6)


def test_a_null_space_does_not_depend_on_units() -> None:
    for size in (1e-12, 1.0, 1e12):
        assert null_space(size * np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])).shape == (3, 1)
