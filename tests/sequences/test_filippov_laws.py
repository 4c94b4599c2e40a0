"""Mode equations, guards and modes of Filippov, projected and hybrid systems on numbers that are written down."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.errors import ModelError
from nosnoc_py.roles import Role
from nosnoc_py.sequences.equations import Rows
from nosnoc_py.sequences.filippov_laws import FilippovLaws
from nosnoc_py.sequences.reading import MotionSegment
from nosnoc_py.solution import Event
from nosnoc_py.systems.hybrid import HybridSystem, StateJump

pytestmark = pytest.mark.quick

X, Y = ca.SX.sym("x"), ca.SX.sym("x", 2)
NOTHING = np.zeros(0)


def relay() -> FilippovLaws:
    """x' = 2 below zero and -3 above it."""
    return FilippovLaws(ns.PSS(x=X, modes=ns.Modes("side", flows=[2.0, -3.0], functions=X, signs=[[-1], [1]])))


def quadrants() -> FilippovLaws:
    """Four regions by the signs of both states, with the flows (1, 0), (2, 0), (3, 0) and (4, 0)."""
    signs = [[1, 1], [1, -1], [-1, 1], [-1, -1]]
    flows = [[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0]]
    return FilippovLaws(ns.PSS(x=Y, modes=ns.Modes("part", flows=flows, functions=Y, signs=signs)))


def partition() -> FilippovLaws:
    """Three regions by the smallest of the indicators x, 1 - x and 3, with the rates 1, 2 and 4."""
    return FilippovLaws(ns.PSS(x=X, modes=ns.Modes("part", flows=[1.0, 2.0, 4.0], indicators=ca.vertcat(X, 1 - X, 3))))


def step() -> FilippovLaws:
    """x' = 1 - 4 alpha with a step function of x - 2."""
    alpha = ca.SX.sym("alpha")
    return FilippovLaws(ns.Heaviside(x=X, alpha=alpha, flow=1 - 4 * alpha, functions=X - 2))


def projected() -> FilippovLaws:
    """x' = (-1, 0.5), kept in the set x_0 >= 0 and x_1 <= 3."""
    return FilippovLaws(ns.PDS(x=Y, flow=ca.DM([-1.0, 0.5]), constraints=[Y[0], 3 - Y[1]]))


def thermostat(start: str = "low") -> FilippovLaws:
    """Heated with rate 1 from 18 up to 22, cooled with rate 2 from there down to 18."""
    heat = ns.Hysteresis("heat", variable=X, lower=18, upper=22, flows=[1.0, -2.0], start=start)
    return FilippovLaws(ns.PSS(x=X, modes=heat))


def bouncing() -> FilippovLaws:
    """A ball with an impact law as a jump, and a lid that gives way."""
    floor = StateJump("floor", guard=Y[0], reset=ca.vertcat(Y[0], -0.5 * Y[1]))
    lid = StateJump("lid", guard=2 - Y[0], reset=ca.vertcat(Y[0] + 1, 0.5 * Y[1]))
    return FilippovLaws(HybridSystem(x=Y, flow=ca.vertcat(Y[1], -10), jumps=[floor, lid]))


def at(expression: ca.SX, **symbols: tuple[ca.SX, Any]) -> np.ndarray:
    """The values of an expression."""
    names = list(symbols.values())
    return np.array(ca.Function("at", [s for s, _ in names], [expression])(*[v for _, v in names])).reshape(-1)


def values(rows: Rows, **symbols: tuple[ca.SX, Any]) -> list[tuple[str, float]]:
    """The labels and values of rows."""
    return list(zip(rows.labels, [float(v) for v in at(rows.expression, **symbols)], strict=True))


class TestEquations:
    @pytest.mark.parametrize(
        ("laws", "mode", "flow", "weights", "guards"),
        [
            (relay(), "+", -3.0, [0.0, 1.0], [("side[side]", 5.0)]),
            (relay(), "-", 2.0, [1.0, 0.0], [("side[side]", -5.0)]),
            (step(), "+", -3.0, [1.0], [("side[c_0]", 3.0)]),
            (step(), "-", 1.0, [0.0], [("side[c_0]", -3.0)]),
            (thermostat(), "low", 1.0, [0.0], [("side[heat]", 8.5)]),
            (thermostat(), "high", -2.0, [1.0], [("side[heat]", -6.5)]),
            (partition(), "0", 1.0, [1.0, 0.0, 0.0], [("indicators[part]", -9.0), ("indicators[part]", -2.0)]),
            (partition(), "1", 2.0, [0.0, 1.0, 0.0], [("indicators[part]", 9.0), ("indicators[part]", 7.0)]),
        ],
    )
    def test_off_a_surface_the_flow_is_that_of_one_region(
        self, laws: FilippovLaws, mode: str, flow: float, weights: list[float], guards: list[tuple[str, float]]
    ) -> None:
        """At x = 5; the thresholds of the thermostat are -1 and 1 of (x - 20) / 2, which is -7.5 there."""
        dae = laws.equations((mode,))
        assert dae.z.size == dae.equations.size == 0
        assert at(dae.flow, x=(X, 5.0)) == pytest.approx([flow], abs=1e-12)
        assert at(dae.shown, x=(X, 5.0)) == pytest.approx(weights, abs=1e-12)
        assert values(dae.inequalities, x=(X, 5.0)) == [(label, pytest.approx(value)) for label, value in guards]

    def test_on_a_surface_the_weight_is_an_unknown_between_zero_and_one(self) -> None:
        """x' = 2 (1 - alpha) - 3 alpha vanishes for alpha = 0.4."""
        dae = relay().equations(("0",))
        assert dae.z.labels == ("alpha[side]",)
        assert (dae.z.lower[0], dae.z.upper[0], dae.z.initial[0], dae.z.scale[0]) == (0.0, 1.0, 0.5, 1.0)
        assert at(dae.flow, x=(X, 0.0), z=(dae.z.symbol, 0.4)) == pytest.approx([0.0], abs=1e-12)
        assert at(dae.shown, x=(X, 0.0), z=(dae.z.symbol, 0.4)) == pytest.approx([0.6, 0.4])
        assert values(dae.equations, x=(X, 5.0)) == [("surface[side]", 5.0)]
        assert dae.inequalities.size == 0
        alone = step().equations(("0",))
        assert at(alone.flow, x=(X, 2.0), z=(alone.z.symbol, 0.25)) == pytest.approx([0.0], abs=1e-12)
        assert at(alone.shown, z=(alone.z.symbol, 0.25)) == pytest.approx([0.25])

    @pytest.mark.parametrize(
        ("mode", "z", "rate", "weights", "held", "away"),
        [
            (("+", "+"), [], 1.0, [1, 0, 0, 0], {}, {"side[part[0]]": 5.0, "side[part[1]]": -7.0}),
            (("+", "-"), [], 2.0, [0, 1, 0, 0], {}, {"side[part[0]]": 5.0, "side[part[1]]": 7.0}),
            (("-", "+"), [], 3.0, [0, 0, 1, 0], {}, {"side[part[0]]": -5.0, "side[part[1]]": -7.0}),
            (("+", "0"), [0.25], 1.75, [0.25, 0.75, 0, 0], {"surface[part[1]]": -7.0}, {"side[part[0]]": 5.0}),
            (("-", "0"), [0.25], 3.75, [0, 0, 0.25, 0.75], {"surface[part[1]]": -7.0}, {"side[part[0]]": -5.0}),
            (("0", "-"), [0.25], 3.5, [0, 0.25, 0, 0.75], {"surface[part[0]]": 5.0}, {"side[part[1]]": 7.0}),
            (
                ("0", "0"),
                [0.25, 0.5],
                3.0,
                [0.125, 0.125, 0.375, 0.375],
                {"surface[part[0]]": 5.0, "surface[part[1]]": -7.0},
                {},
            ),
        ],
    )
    def test_weights_of_regions_are_products_of_steps(
        self,
        mode: Any,
        z: list[float],
        rate: float,
        weights: list[float],
        held: dict[str, float],
        away: dict[str, float],
    ) -> None:
        """At x = (5, -7)."""
        dae = quadrants().equations(mode)
        here: Any = {"x": (Y, [5.0, -7.0]), "z": (dae.z.symbol, z)}
        assert dae.z.size == len(z)
        assert at(dae.flow, **here) == pytest.approx([rate, 0.0], abs=1e-12)
        assert at(dae.shown, **here) == pytest.approx(weights, abs=1e-12)
        assert dict(values(dae.equations, **here)) == held
        assert dict(values(dae.inequalities, **here)) == away

    @pytest.mark.parametrize("regions", [(0, 1), (1, 2), (0, 1, 2)])
    def test_regions_by_indicators_share_a_sum_of_one(self, regions: tuple[int, ...]) -> None:
        dae = partition().equations(("|".join(map(str, regions)),))
        count, flows = len(regions), np.array([1.0, 2.0, 4.0])[list(regions)]
        assert dae.z.labels == tuple(f"theta[part][{i}]" for i in regions)
        assert dae.z.initial == pytest.approx(np.full(count, 1.0 / count))
        assert (dae.z.lower.tolist(), dae.z.upper.tolist()) == ([0.0] * count, [1.0] * count)
        theta = np.array([0.5, 0.3, 0.1])[:count]
        here: Any = {"x": (X, 5.0), "z": (dae.z.symbol, theta)}
        assert at(dae.flow, **here) == pytest.approx([theta @ flows])
        shown = np.zeros(3)
        shown[list(regions)] = theta
        assert at(dae.shown, **here) == pytest.approx(shown)
        # The indicators are 5, -4 and 3 at x = 5: differences to the first active one.
        indicators = np.array([5.0, -4.0, 3.0])
        held = [("indicators[part]", indicators[i] - indicators[regions[0]]) for i in regions[1:]]
        assert values(dae.equations, **here) == [*held, ("simplex", pytest.approx(theta.sum() - 1.0))]
        others = [i for i in range(3) if i not in regions]
        assert values(dae.inequalities, **here) == [
            ("indicators[part]", indicators[i] - indicators[regions[0]]) for i in others
        ]
        # What determines weights says nothing of the state.
        start, away = partition().start(("|".join(map(str, regions)),))
        assert start.labels == ("indicators[part]",) * (count - 1)
        assert away.labels == ("indicators[part]",) * len(others)

    def test_an_active_constraint_has_a_force(self) -> None:
        dae = projected().equations(("active", "free"))
        assert (dae.z.labels, dae.z.lower[0], dae.z.upper[0], dae.z.initial[0]) == (("lambda[c_0]",), 0.0, np.inf, 0.0)
        here: Any = {"x": (Y, [5.0, -7.0]), "z": (dae.z.symbol, 3.0)}
        assert at(dae.flow, **here) == pytest.approx([2.0, 0.5])
        assert at(dae.shown, **here) == pytest.approx([3.0, 0.0])
        assert values(dae.equations, **here) == [("surface[c_0]", 5.0)]
        assert values(dae.inequalities, **here) == [("side[c_1]", 10.0)]
        second = projected().equations(("free", "active"))
        assert at(second.flow, z=(second.z.symbol, 3.0)) == pytest.approx([-1.0, -2.5])

    def test_jumps_wait_with_a_guard(self) -> None:
        dae = bouncing().equations(("waiting", "waiting"))
        assert at(dae.flow, x=(Y, [5.0, -7.0])) == pytest.approx([-7.0, -10.0])
        assert values(dae.inequalities, x=(Y, [5.0, -7.0])) == [("guard[floor]", 5.0), ("guard[lid]", -3.0)]
        held, away = bouncing().start(("waiting", "waiting"))
        assert held.size == 0
        assert away.labels == ("guard[floor]", "guard[lid]")

    def test_algebraic_equations_of_the_user_join_the_multipliers(self) -> None:
        """0 = z - 3 x, and x' = z on one side of 1, -z on the other."""
        z = ca.SX.sym("z")
        algebraic = ns.Algebraic(z, equations=z - 3 * X, lower=-5.0, upper=6.0, initial=0.5)
        side = ns.Modes("side", flows=[z, -z], functions=X - 1, signs=[[-1], [1]])
        laws = FilippovLaws(ns.PSS(x=X, modes=side, algebraic=algebraic))
        assert laws.shown[-1] == ("z_0", Role.ALGEBRAIC, "")
        assert [role for _, role, _ in laws.shown[:2]] == [Role.CONVEX_MULTIPLIER] * 2
        dae = laws.equations(("0",))
        assert dae.z.labels == ("alpha[side]", "z_0")
        assert dae.z.lower.tolist() == [0.0, -5.0]
        assert dae.z.upper.tolist() == [1.0, 6.0]
        assert dae.z.initial.tolist() == [0.5, 0.5]
        assert dae.z.scale.tolist() == [1.0, 1.0]
        alpha = dae.z.symbol[0]
        here: Any = {"x": (X, 5.0), "alpha": (alpha, 0.25), "z": (z, 2.0)}
        assert values(dae.equations, **here) == [("surface[side]", 4.0), ("algebraic", pytest.approx(-13.0))]
        assert at(dae.flow, **here) == pytest.approx([2.0 * 0.75 - 2.0 * 0.25])
        assert at(dae.shown, **here) == pytest.approx([0.75, 0.25, 2.0])


class TestModes:
    @pytest.mark.parametrize(
        ("laws", "words", "default"),
        [
            (relay(), ("+", "-", "0"), None),
            (step(), ("+", "-", "0"), None),
            (partition(), ("0", "1", "2"), None),
            (projected(), ("free", "active"), "free"),
            (thermostat(), ("low", "high"), None),
            (bouncing(), ("waiting", "jumps"), "waiting"),
        ],
    )
    def test_names(self, laws: FilippovLaws, words: tuple[str, ...], default: str | None) -> None:
        assert laws.mode_names(laws.names[0]) == words
        assert laws.default(laws.names[0]) == default

    @pytest.mark.parametrize(
        ("laws", "x", "mode"),
        [
            (relay(), 2.0, ("+",)),
            (relay(), -2.0, ("-",)),
            (relay(), 0.5e-6, ("0",)),
            (relay(), -0.5e-6, ("0",)),
            (relay(), 3e-6, ("+",)),
            (relay(), -3e-6, ("-",)),
            (step(), 2.0 + 3e-6, ("+",)),
            (step(), 2.0 + 0.5e-6, ("0",)),
            (partition(), -1.0, ("0",)),
            (partition(), 3.5, ("1",)),
            (partition(), 0.5, ("0|1",)),
            (partition(), 0.5 + 4e-7, ("0|1",)),  # indicators differ by 8e-7 of the largest, 3
            (partition(), 0.5 + 4e-6, ("1",)),
            (projected(), [1.0, 1.0], ("free", "free")),
            (projected(), [0.5e-6, 3.0], ("active", "active")),
            (projected(), [1.0, 3.0], ("free", "active")),
            (projected(), [0.0, 1.0], ("active", "free")),
            (thermostat(), 17.0, ("low",)),
            (thermostat("high"), 17.0, ("low",)),
            (thermostat(), 23.0, ("high",)),
            (thermostat(), 21.0, ("low",)),
            (thermostat("high"), 19.0, ("high",)),
            (bouncing(), [0.0, -1.0], ("waiting", "waiting")),
        ],
    )
    def test_of_a_state(self, laws: FilippovLaws, x: Any, mode: tuple[str, ...]) -> None:
        assert laws.mode_at(np.atleast_1d(np.array(x, float)), NOTHING) == mode

    def test_a_typical_value_is_the_scale_of_a_function(self) -> None:
        switch = ns.PSS(x=X, modes=ns.Modes("side", flows=[2.0, -3.0], functions=X, signs=[[-1], [1]]))
        laws = FilippovLaws(switch, {"side": 100.0})
        assert laws.mode_at(np.array([0.9e-4]), NOTHING) == ("0",)
        assert laws.mode_at(np.array([1.1e-4]), NOTHING) == ("+",)

    @staticmethod
    def segment(*states: float, events: tuple[tuple[str, str], ...] = ()) -> MotionSegment:
        x = np.array(states)[:, None]
        return MotionSegment(begin=0.0, events=[Event(0.0, name, kind) for name, kind in events], states=x, after=x[0])

    def test_events_decide_before_states(self) -> None:
        """States on the surface up to 1e-3 slide by their events; the side is that of the middle sample."""
        segments = [
            self.segment(-3.0, -2.0, 1e-3),
            self.segment(1e-3, 1e-3, 2e-3, events=(("side", "enter_sliding"),)),
            self.segment(-1e-3, 1.0, -1.0, events=(("side", "leave_sliding"),)),
        ]
        assert relay().modes_of(segments, NOTHING) == [("-",), ("0",), ("+",)]
        assert relay().modes_of(segments[:1], NOTHING) == [("-",)]

    def test_at_least_two_regions_slide(self) -> None:
        """The events say that the motion slides between regions 0 and 1, whose indicators differ by 0.02."""
        segments = [self.segment(0.49, 0.49, 0.49, events=(("part", "enter_sliding"),))]
        assert partition().modes_of(segments, NOTHING) == [("0|1",)]

    def test_every_event_of_a_switch_with_memory_toggles_it(self) -> None:
        toggles = (("heat", "switch"),)
        segments = [
            self.segment(21.0),
            self.segment(21.5, events=toggles),
            self.segment(20.0, events=(*toggles, *toggles)),
            self.segment(20.5, events=(("other", "switch"),)),
            self.segment(19.0, events=toggles),
        ]
        found = thermostat().modes_of(segments, NOTHING)
        assert found == [("low",), ("high",), ("high",), ("high",), ("low",)]
        # Events at the begin are known by the state after them.
        first = thermostat("high").modes_of([self.segment(21.0, events=toggles), self.segment(21.0)], NOTHING)
        assert first == [("high",), ("high",)]

    @pytest.mark.parametrize(
        ("laws", "before", "after", "changes"),
        [
            (relay(), ("-",), ("+",), [("side", "switch")]),
            (relay(), ("-",), ("0",), [("side", "enter_sliding")]),
            (relay(), ("0",), ("+",), [("side", "leave_sliding")]),
            (relay(), ("+",), ("+",), []),
            (partition(), ("0",), ("1",), [("part", "switch")]),
            (partition(), ("0",), ("0|1",), [("part", "enter_sliding")]),
            (partition(), ("0|1",), ("1",), [("part", "leave_sliding")]),
            (quadrants(), ("-", "+"), ("-", "-"), [("part[1]", "switch")]),
            (thermostat(), ("low",), ("high",), [("heat", "switch")]),
            (bouncing(), ("waiting", "waiting"), ("waiting", "waiting"), []),
        ],
    )
    def test_events_between_modes(self, laws: FilippovLaws, before: Any, after: Any, changes: list[Any]) -> None:
        assert [(name, str(kind)) for name, kind in laws.changes(before, after)] == changes


class TestBoundaries:
    @pytest.mark.parametrize(
        ("laws", "before", "after", "rows"),
        [
            (relay(), ("-",), ("+",), [("surface[side]", 5.0)]),
            (relay(), ("-",), ("0",), [("surface[side]", 5.0)]),
            (relay(), ("0",), ("+",), []),
            (relay(), ("+",), ("+",), []),
            (step(), ("+",), ("-",), [("surface[c_0]", 3.0)]),
            (step(), ("0",), ("-",), []),
            # The indicators are 5, -4 and 3: the one that joins less the first one that was active.
            (partition(), ("0",), ("1",), [("indicators[part]", -9.0)]),
            (partition(), ("1",), ("0|1",), [("indicators[part]", 9.0)]),
            (partition(), ("0|1",), ("2",), [("indicators[part]", -2.0)]),
            (partition(), ("0|1",), ("1",), []),
            (thermostat(), ("low",), ("high",), [("surface[heat]", -8.5)]),
            (thermostat(), ("high",), ("low",), [("surface[heat]", -6.5)]),
        ],
    )
    def test_a_surface_is_reached_with_a_continuous_state(
        self, laws: FilippovLaws, before: Any, after: Any, rows: list[Any]
    ) -> None:
        boundary = laws.boundary(before, {}, after)
        assert values(boundary.equations, x=(X, 5.0)) == rows
        assert boundary.after == ((False, 0),)
        assert (boundary.inequalities.size, boundary.beginning.size, boundary.y.size) == (0, 0, 0)

    def test_only_surfaces_that_are_reached_have_a_guard(self) -> None:
        here: Any = {"x": (Y, [5.0, -7.0])}
        one = quadrants().boundary(("-", "+"), {}, ("-", "0"))
        assert values(one.equations, **here) == [("surface[part[1]]", -7.0)]
        assert one.after == ((False, 0), (False, 1))
        closing = projected().boundary(("free", "free"), {}, ("active", "free"))
        assert values(closing.equations, **here) == [("surface[c_0]", 5.0)]
        assert projected().boundary(("active", "free"), {}, ("free", "free")).equations.size == 0
        assert bouncing().boundary(("waiting",) * 2, {}, ("waiting",) * 2).equations.size == 0

    def test_a_jump_has_a_guard_that_falls_and_a_reset(self) -> None:
        """At x = (0.5, -4) with the state (0.7, 3) after it: the reset of the floor is (0.5, 2)."""
        boundary = bouncing().boundary(("waiting",) * 2, {"floor": "jumps"}, ("waiting",) * 2)
        here: Any = {"x": (Y, [0.5, -4.0]), "y": (boundary.y.symbol, [0.7, 3.0])}
        assert boundary.y.labels == ("x_0(+)", "x_1(+)")
        assert values(boundary.equations, **here) == [
            ("guard[floor]", 0.5),
            ("reset", pytest.approx(0.2)),
            ("reset", pytest.approx(1.0)),
        ]
        assert values(boundary.inequalities, **here) == [("approach[floor]", 4.0)]
        assert boundary.after == ((True, 0), (True, 1))
        with pytest.raises(ModelError, match="expected one jump at an instant, given floor, lid"):
            bouncing().boundary(("waiting",) * 2, {"floor": "jumps", "lid": "jumps"}, ("waiting",) * 2)

    @pytest.mark.parametrize(
        ("before", "after", "name", "rates"),
        [
            ([0.0, -4.0], [0.0, 2.0], "floor", (-4.0, 2.0)),
            ([2.0, 4.0], [3.0, 2.0], "lid", (-4.0, -2.0)),
            ([0.1, -4.0], [0.1, 2.1], "floor", (-4.0, 2.1)),
        ],
    )
    def test_the_jump_between_two_states_is_the_one_that_fits_best(
        self, before: list[float], after: list[float], name: str, rates: tuple[float, float]
    ) -> None:
        """With the rates of the guard, v for the floor and -v for the lid, and without an impulse."""
        states = np.array(before), np.array(after)
        assert bouncing().impacts_between(*states, NOTHING, NOTHING) == [
            (name, "impact", None, pytest.approx(rates[0]), pytest.approx(rates[1]), None)
        ]
        assert bouncing().impacts_between(states[0], states[0], NOTHING, NOTHING) == []
        assert relay().impacts_between(np.zeros(1), np.ones(1), NOTHING, NOTHING) == []
        assert bouncing().impact_modes(["floor", "side"], states[1], NOTHING) == {"floor": "jumps"}

    def test_the_rate_of_a_guard_that_depends_on_the_control_is_not_known(self) -> None:
        u = ca.SX.sym("u")
        floor = StateJump("floor", guard=Y[0], reset=-Y, impulse=3 * Y[1])
        laws = FilippovLaws(HybridSystem(x=Y, u=u, flow=ca.vertcat(u, 0), jumps=[floor]))
        found = laws.impacts_between(np.array([0.0, 2.0]), np.array([0.0, -2.0]), NOTHING, NOTHING)
        assert found == [("floor", "impact", 6.0, None, None, None)]
        assert laws.boundary(("waiting",), {"floor": "jumps"}, ("waiting",)).inequalities.size == 0
