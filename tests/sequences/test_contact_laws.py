"""Mode equations of contacts, their boundaries and the modes of states on numbers that are written down."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.sequences.contact_laws import SOFTNESS, ContactLaws
from nosnoc_py.sequences.equations import Rows
from nosnoc_py.sequences.reading import MotionSegment
from nosnoc_py.solution import Event

pytestmark = pytest.mark.quick

NOTHING = np.zeros(0)
FORCE, SPEED, LENGTH = 4.0, 8.0, 0.5


def numbers(expression: ca.SX, *pairs: tuple[ca.SX, Any]) -> np.ndarray:
    """The values of an expression."""
    return np.array(ca.Function("at", [s for s, _ in pairs], [expression])(*[v for _, v in pairs])).reshape(-1)


def values(rows: Rows, *pairs: tuple[ca.SX, Any]) -> list[tuple[str, Any]]:
    """The labels and values of rows."""
    return [
        (label, pytest.approx(v, abs=1e-9))
        for label, v in zip(rows.labels, numbers(rows.expression, *pairs), strict=True)
    ]


def point(friction: float = 0.5, restitution: float = 0.5, **more: Any) -> ns.CLS:
    """A point mass of 2 kg over the ground, under a force of (3, -20) N."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    along = {"tangent": ca.DM([1, 0]), "friction": friction} if friction else {}
    ground = ns.Contact("ground", gap=q[1], restitution=restitution, **along)
    return ns.CLS(
        q=q, v=v, mass_matrix=2.0 * ca.DM.eye(2), force=ca.DM([3, -20]), contacts=[ground, *more.get("also", ())]
    )


def body() -> ns.CLS:
    """A point mass of 2 kg in space over the ground, with friction in two directions."""
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    ground = ns.Contact("ground", gap=q[2], tangent=ca.DM([[1, 0], [0, 1], [0, 0]]), friction=0.5)
    return ns.CLS(q=q, v=v, mass_matrix=2.0 * ca.DM.eye(3), force=ca.DM([3, 0, -20]), contacts=[ground])


def laws(system: ns.CLS, rest: float = 0.0) -> ContactLaws:
    return ContactLaws(system, rest_velocity=rest, force=FORCE, speed=SPEED, length=LENGTH)


class TestEquations:
    def test_an_open_contact_exerts_nothing(self) -> None:
        system = point()
        dae = laws(system).equations(("open",))
        here = (system.x, [1.0, 0.3, -2.0, 0.7])
        assert (dae.z.size, dae.equations.size, dae.held) == (0, 0, None)
        assert numbers(dae.flow, here) == pytest.approx([-2.0, 0.7, 3.0, -20.0])
        assert values(dae.inequalities, here) == [("gap[ground]", 0.3)]
        assert numbers(dae.shown, here) == pytest.approx([0.0, 0.0])
        assert dae.inertia is not None
        assert np.diag(np.array(ca.DM(dae.inertia))) == pytest.approx([1.0, 1.0, 2.0, 2.0])

    @pytest.mark.parametrize(
        ("word", "z", "force", "equations", "inequalities"),
        [
            (
                "stick",
                [30.0, 7.0],
                7.0,
                [("slip[ground]", -2.0), ("gap rate[ground]", 0.7)],
                [("friction cone[ground]", 8.0), ("friction cone[ground]", 22.0)],
            ),
            ("slip+", [30.0], -15.0, [("gap rate[ground]", 0.7)], [("slip[ground]", -2.0)]),
            ("slip-", [30.0], 15.0, [("gap rate[ground]", 0.7)], [("slip[ground]", 2.0)]),
        ],
    )
    def test_a_closed_contact_obeys_coulombs_law(
        self, word: str, z: list[float], force: float, equations: Any, inequalities: Any
    ) -> None:
        """At v = (-2, 0.7) with a normal force of 30 N, whose cone is 15 N wide."""
        system = point()
        dae = laws(system).equations((word,))
        here = ((system.x, [1.0, 0.3, -2.0, 0.7]), (dae.z.symbol, z))
        assert numbers(dae.flow, *here) == pytest.approx([-2.0, 0.7, 3.0 + force, 10.0])
        assert numbers(dae.shown, *here) == pytest.approx([30.0, force])
        assert values(dae.equations, *here) == equations
        assert values(dae.inequalities, *here) == inequalities
        assert (dae.z.lower[0], dae.z.initial[0], dae.z.scale[0]) == (0.0, FORCE, FORCE)
        assert dae.held is not None
        held = [[0.0, 1.0], [1.0, 0.0]] if word == "stick" else [[0.0, 1.0]]
        assert np.array(ca.DM(dae.held)).tolist() == held

    def test_closed_contacts_yield_by_a_tiny_compliance(self) -> None:
        """A gap rate and a slip of 1e-12 of the typical speed per typical force."""
        system = point()
        dae = laws(system).equations(("stick",))
        rows = numbers(dae.equations.expression, (system.x, np.zeros(4)), (dae.z.symbol, [30.0, 7.0]))
        yields = 1e-12 * SPEED / FORCE
        assert pytest.approx(1e-12) == SOFTNESS
        assert rows == pytest.approx([7.0 * yields, 30.0 * yields], rel=1e-9, abs=0.0)

    def test_slip_in_space_has_a_direction_and_a_speed(self) -> None:
        system = body()
        dae = laws(system).equations(("slip",))
        assert dae.z.initial == pytest.approx([FORCE, np.sqrt(0.5), np.sqrt(0.5), 0.0])
        assert dae.z.lower.tolist() == [0.0, -np.inf, -np.inf, 0.0]
        assert dae.z.scale.tolist() == [FORCE, 1.0, 1.0, SPEED]
        here = ((system.x, [0, 0, 0, 3.0, 4.0, 0.7]), (dae.z.symbol, [30.0, 0.6, 0.9, 5.0]))
        assert numbers(dae.flow, *here)[3:] == pytest.approx([3.0 - 15.0 * 0.6, -15.0 * 0.9, 10.0])
        assert values(dae.equations, *here) == [
            ("slip[ground]", 0.0),
            ("slip[ground]", -0.5),
            ("length of the direction[ground]", 0.36 + 0.81 - 1.0),
            ("gap rate[ground]", 0.7),
        ]
        stick = laws(system).equations(("stick",))
        there = ((system.x, np.zeros(6)), (stick.z.symbol, [30.0, 3.0, 4.0]))
        assert values(stick.inequalities, *there) == [("friction cone[ground]", 15.0**2 - 25.0)]
        assert numbers(stick.flow, *there)[3:] == pytest.approx([6.0, 4.0, 10.0])

    def test_a_normal_that_turns_has_a_drift_that_keeps_the_gap(self) -> None:
        """On a circle of radius 2 the gap |q| - 2 is an equation, and q' = v + n tau."""
        q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
        circle = ns.Contact("circle", gap=ca.norm_2(q) - 2)
        system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.DM([0, 0]), contacts=[circle])
        dae = laws(system).equations(("closed",))
        assert dae.z.labels == ("normal force[circle]", "drift[circle]")
        assert dae.z.scale.tolist() == [FORCE, SPEED]
        here = ((system.x, [3.0, 4.0, 1.0, 2.0]), (dae.z.symbol, [10.0, 0.5]))
        assert numbers(dae.flow, *here) == pytest.approx([1.3, 2.4, 6.0, 8.0])
        assert values(dae.equations, *here) == [("gap rate[circle]", (3.0 + 8.0) / 5.0), ("gap[circle]", 3.0)]
        assert dae.inertia is None

    def test_the_start_of_a_motion_touches_where_it_is_closed(self) -> None:
        system = point()
        here = (system.x, [1.0, 0.3, -2.0, 0.7])
        held, away = laws(system).start(("stick",))
        assert values(held, here) == [("gap[ground]", 0.3), ("gap rate[ground]", 0.7), ("slip[ground]", -2.0)]
        assert away.size == 0
        held, away = laws(system).start(("slip+",))
        assert values(held, here) == [("gap[ground]", 0.3), ("gap rate[ground]", 0.7)]
        held, away = laws(system).start(("open",))
        assert (held.size, values(away, here)) == (0, [("gap[ground]", 0.3)])


class TestImpacts:
    """At q = (1, 0.3), v = (-2, -4), with v+ = (-1, 1) and impulses (10, 3) N s."""

    def rows(self, before: str, impacts: dict[str, str], after: str, y: Any, **more: Any) -> dict[str, Any]:
        system = point(**more)
        found = laws(system, rest=0.25).boundary((before,), impacts, (after,))
        here = ((system.x, [1.0, 0.3, -2.0, -4.0]), (found.y.symbol, y))
        every = [*values(found.equations, *here), *values(found.inequalities, *here)]
        return {f"{label} {k}": value for k, (label, value) in enumerate(every)}

    y = (-1.0, 1.0, 10.0, 3.0)

    def test_a_bounce_obeys_newtons_law_and_the_balance_of_momentum(self) -> None:
        assert self.rows("open", {"ground": "stick"}, "open", self.y) == {
            "slip[ground] 0": -1.0,
            "momentum 1": 2.0 * 1.0 - 3.0,
            "momentum 2": 2.0 * 5.0 - 10.0,
            "gap[ground] 3": 0.3,
            "restitution[ground] 4": 1.0 - 0.5 * 4.0,
            "friction cone[ground] 5": 5.0 - 3.0,
            "friction cone[ground] 6": 5.0 + 3.0,
            "approach[ground] 7": 4.0,
        }

    def test_a_contact_that_stays_closed_comes_to_rest_if_it_is_slow_or_inelastic(self) -> None:
        stays = self.rows("open", {}, "stick", self.y)
        assert stays["restitution[ground] 4"] == 1.0
        assert stays["rest[ground] 8"] == -4.0 + 0.25
        assert "rest[ground] 8" not in self.rows("open", {}, "stick", self.y, restitution=0.0)

    def test_slip_after_an_impact_opposes_friction(self) -> None:
        forwards = self.rows("open", {"ground": "slip+"}, "open", [-1.0, 1.0, 10.0])
        assert (forwards["momentum 0"], forwards["slip[ground] 4"]) == (2.0 + 5.0, -1.0)
        backwards = self.rows("open", {"ground": "slip-"}, "open", [-1.0, 1.0, 10.0])
        assert (backwards["momentum 0"], backwards["slip[ground] 4"]) == (2.0 - 5.0, 1.0)

    def test_a_contact_that_was_closed_stays_so(self) -> None:
        held = self.rows("slip+", {"ground": "stick"}, "stick", self.y)
        assert held["gap rate after[ground] 3"] == 1.0
        assert not any(label.startswith(("gap[", "approach[")) for label in held)

    def test_sizes_of_impulses(self) -> None:
        """The typical force in the time in which the typical speed covers the typical length: 4 N 0.5 m / 8 m/s."""
        boundary = laws(point()).boundary(("open",), {"ground": "stick"}, ("open",))
        assert boundary.y.labels[:2] == ("v_0(+)", "v_1(+)")
        assert boundary.y.scale.tolist() == [SPEED, SPEED, 0.25, 0.25]
        assert boundary.y.initial.tolist() == [0.0, 0.0, 0.25, 0.0]
        assert boundary.y.lower.tolist() == [-np.inf, -np.inf, 0.0, -np.inf]
        assert boundary.after == ((False, 0), (False, 1), (True, 0), (True, 1))
        assert numbers(boundary.shown, (boundary.y.symbol, self.y)) == pytest.approx([10.0, 3.0])

    def test_an_impact_loads_contacts_that_stay_closed_and_lets_others_open(self) -> None:
        q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
        walls = [ns.Contact("left", gap=q[0]), ns.Contact("right", gap=q[1])]
        system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.DM([0, 0]), contacts=walls)
        both = laws(system)
        assert both.impulsive_contacts(("open", "closed"), {"left": "closed"}, ("open", "closed")) == {
            0: "closed",
            1: "closed",
        }
        assert both.impulsive_contacts(("open", "closed"), {}, ("closed", "closed")) == {0: "closed", 1: "closed"}
        assert both.impulsive_contacts(("closed", "closed"), {}, ("closed", "closed")) == {}
        assert both.impulsive_contacts(("closed", "closed"), {}, ("open", "closed")) == {}
        opens = both.boundary(("open", "closed"), {}, ("closed", "open"))
        here = ((system.x, [0.1, 0.2, -3.0, -4.0]), (opens.y.symbol, [0.5, 0.7, 10.0]))
        assert values(opens.inequalities, *here)[-1] == ("gap rate after[right]", 0.7)
        assert values(opens.beginning, *here) == [("gap rate[right]", -4.0)]
        # In an impact of its own it needs no further row.
        hit = both.boundary(("open", "closed"), {"right": "closed"}, ("closed", "open"))
        assert hit.beginning.size == 0
        assert "gap rate after[right]" in hit.equations.labels


def test_forces_along_weighted_tangents_are_reported_along_the_users_own() -> None:
    """Friction of 0.4 and 0.8 along two tangents is a circular cone with the weight 2 of one of them."""
    q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
    tangents = ca.DM([[1, 0], [0, 1], [0, 0]])
    ground = ns.Contact("ground", gap=q[2], tangent=tangents, friction=[0.4, 0.8])
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(3), force=ca.DM([0, 0, -20]), contacts=[ground])
    weights = np.array([weight for *_, weight in system.mechanics.frames.directions], float)
    assert weights[0] == 1.0
    assert weights[2] / weights[1] == pytest.approx(2.0)
    dae = laws(system).equations(("stick",))
    z = (dae.z.symbol, [30.0, 3.0, 4.0])
    assert numbers(dae.shown, z) == pytest.approx(weights * [30.0, 3.0, 4.0])
    hit = laws(system).boundary(("open",), {"ground": "stick"}, ("open",))
    y = (hit.y.symbol, [0.0, 0.0, 0.0, 30.0, 3.0, 4.0])
    assert numbers(hit.shown, y) == pytest.approx(weights * [30.0, 3.0, 4.0])


class TestBoundariesWithoutImpacts:
    @pytest.mark.parametrize(
        ("before", "after", "equations", "beginning"),
        [
            ("slip+", "stick", [("slip[ground]", -2.0)], []),
            ("slip-", "slip+", [("slip[ground]", -2.0)], []),
            ("slip+", "slip+", [], []),
            ("slip+", "open", [], [("gap rate[ground]", 0.7)]),
            ("stick", "slip+", [], []),
            ("stick", "open", [], [("gap rate[ground]", 0.7)]),
        ],
    )
    def test_slip_ends_at_zero_and_a_gap_opens_after_the_boundary(
        self, before: str, after: str, equations: Any, beginning: Any
    ) -> None:
        system = point()
        boundary = laws(system).boundary((before,), {}, (after,))
        here = (system.x, [1.0, 0.3, -2.0, 0.7])
        assert values(boundary.equations, here) == equations
        assert values(boundary.beginning, here) == beginning
        assert boundary.after == tuple((False, i) for i in range(4))
        assert numbers(boundary.shown, here) == pytest.approx([0.0, 0.0])
        assert boundary.y.size == boundary.inequalities.size == 0

    @pytest.mark.parametrize(
        ("before", "after", "kind"),
        [
            ("open", "stick", "contact"),
            ("slip+", "open", "release"),
            ("slip+", "stick", "stick"),
            ("stick", "slip-", "slip"),
            ("slip-", "slip+", "reversal"),
            ("slip+", "slip+", None),
            ("open", "open", None),
        ],
    )
    def test_events(self, before: str, after: str, kind: str | None) -> None:
        assert laws(point()).changes((before,), (after,)) == [("ground", kind)]


class TestModes:
    @pytest.mark.parametrize(
        ("x", "mode"),
        [
            ([0, 0, 0, 0], "stick"),
            ([0, 0, 1, 0], "slip+"),
            ([0, 0, -1, 0], "slip-"),
            ([0, 0.9e-5 * LENGTH, 0, 0.9e-5 * SPEED], "stick"),
            ([0, -0.9e-5 * LENGTH, 0.9e-5 * SPEED, -0.9e-5 * SPEED], "stick"),
            ([0, 1.1e-5 * LENGTH, 0, 0], "open"),
            ([0, -1.1e-5 * LENGTH, 0, 0], "open"),
            ([0, 0, 0, 1.1e-5 * SPEED], "open"),
            ([0, 0, 0, -1.1e-5 * SPEED], "open"),
            ([0, 0, 1.1e-5 * SPEED, 0], "slip+"),
        ],
    )
    def test_of_a_state(self, x: list[float], mode: str) -> None:
        """Closed within 1e-5 of the typical length and speed."""
        assert laws(point()).mode_at(np.array(x, float), NOTHING) == (mode,)

    def test_words(self) -> None:
        assert laws(point()).mode_names("ground") == ("open", "stick", "slip+", "slip-")
        assert laws(point(friction=0.0)).mode_names("ground") == ("open", "closed")
        assert laws(body()).mode_names("ground") == ("open", "stick", "slip")
        space = laws(body())
        assert space.mode_at(np.array([0, 0, 0, 1.0, -1.0, 0]), NOTHING) == ("slip",)
        assert space.mode_at(np.zeros(6), NOTHING) == ("stick",)
        assert laws(point(friction=0.0)).mode_at(np.zeros(4), NOTHING) == ("closed",)
        assert space.impact_modes(["ground", "ground"], np.array([0, 0, 0, 1.0, 0, 0]), NOTHING) == {"ground": "slip"}

    @staticmethod
    def segment(*states: list[float], events: tuple[str, ...] = ()) -> MotionSegment:
        x = np.array(states, float)
        return MotionSegment(begin=0.0, events=[Event(0.0, "ground", kind) for kind in events], states=x, after=x[0])

    def test_events_decide_before_states(self) -> None:
        """States with a gap of 1e-3 are closed by their events; every closure starts with a new slip."""
        slides, rests, flies = [0, 1e-3, 2.0, 0], [0, 1e-3, 1e-3, 0], [0, 1.0, 2.0, 0]
        segments = [
            self.segment(flies, flies, flies),
            self.segment(slides, slides, slides, events=("contact",)),
            self.segment(rests, rests, rests, events=("stick",)),
            self.segment(flies, flies, flies, events=("release",)),
            self.segment(rests, slides, rests, events=("contact",)),
        ]
        assert [mode for (mode,) in laws(point()).modes_of(segments, NOTHING)] == [
            "open",
            "slip+",
            "stick",
            "open",
            "slip+",
        ]

    def test_a_reversal_lies_between_two_phases_of_slip(self) -> None:
        segments = [
            self.segment([0, 0, 1e-6, 0], events=("contact",)),
            self.segment([0, 0, -1e-6, 0], events=("reversal",)),
        ]
        assert laws(point()).modes_of(segments, NOTHING) == [("slip+",), ("slip-",)]

    def test_impacts_between_two_states(self) -> None:
        """An impulse of 10 N s takes v from (0, -4) to (0, 1): 2 kg lose 0.5 2 (16 - 1) = 15 J."""
        before, after = np.array([0, 0, 0, -4.0]), np.array([0, 0, 0, 1.0])
        found = laws(point()).impacts_between(before, after, np.array([10.0, 0.0]), NOTHING)
        assert found == [("ground", "impact", 10.0, -4.0, 1.0, pytest.approx(-15.0))]
        assert laws(point()).impacts_between(after, before, np.array([10.0, 0.0]), NOTHING) == []
        assert laws(point()).impacts_between(before, before, np.array([10.0, 0.0]), NOTHING) == []
        assert laws(point()).impacts_between(before, after, np.zeros(2), NOTHING) == []


class TestCompliantContacts:
    """A spring of 100 N/m above 1 m beside the rigid ground."""

    def laws(self) -> ContactLaws:
        q, v = ca.SX.sym("q"), ca.SX.sym("v")
        spring = ns.Contact("spring", gap=1 - q, stiffness=100.0)
        ground = ns.Contact("ground", gap=q)
        return laws(ns.CLS(q=q, v=v, mass_matrix=1, force=0, contacts=[ground, spring]))

    def test_modes_are_the_sides_of_the_gap(self) -> None:
        both = self.laws()
        assert both.names == ("ground", "spring")
        assert both.mode_names("spring") == ("apart", "pressed")
        assert (both.default("spring"), both.default("ground")) == ("apart", "open")
        assert both.mode_at(np.array([0.5, 0.0]), NOTHING) == ("open", "apart")
        assert both.mode_at(np.array([1.5, 0.0]), NOTHING) == ("open", "pressed")
        here = (both.system.x, [1.25, 0.0])
        assert values(both.equations(("open", "apart")).inequalities, here) == [
            ("gap[ground]", 1.25),
            ("side[spring]", -0.25),
        ]
        assert values(both.equations(("open", "pressed")).inequalities, here)[1] == ("side[spring]", 0.25)
        assert values(both.start(("open", "pressed"))[1], here)[1] == ("side[spring]", 0.25)

    def test_a_change_of_side_is_no_impact(self) -> None:
        both = self.laws()
        boundary = both.boundary(("open", "apart"), {}, ("open", "pressed"))
        assert values(boundary.equations, (both.system.x, [1.25, 0.0])) == [("kink[spring]", -0.25)]
        assert both.boundary(("open", "apart"), {}, ("open", "apart")).equations.size == 0
        assert both.impulsive_contacts(("open", "apart"), {"spring": "pressed"}, ("open", "pressed")) == {}

    def test_kinks_of_a_motion_are_its_zeros(self) -> None:
        """q = 0.8 + t - t^2 / 2 reaches 1 at 1 - sqrt(0.6) and at 1 + sqrt(0.6)."""

        class Motion:
            t = np.array([0.0, 0.9, 2.0])

            def __call__(self, t: Any) -> np.ndarray:
                return np.stack([0.8 + np.asarray(t) - np.asarray(t) ** 2 / 2, 1 - np.asarray(t)], axis=-1)

        motion: Any = Motion()
        events = self.laws().kinks(motion, NOTHING)
        assert [(event.name, event.kind) for event in events] == [("spring", "contact"), ("spring", "release")]
        assert [event.time for event in events] == pytest.approx([1 - np.sqrt(0.6), 1 + np.sqrt(0.6)], abs=1e-9)
        assert laws(point()).kinks(motion, NOTHING) == []
