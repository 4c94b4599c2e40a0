"""Friction cones: the law they state, in free flight too, and the trees of step equilibration and isolation."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.reformulation.contact import contact_dcs
from nosnoc_py.reformulation.dcs import And, Indicator, Leaf
from nosnoc_py.reformulation.friction import CONES, INDICATORS, FrictionIndicators, SlipQuantities
from nosnoc_py.reformulation.switching import contact_switch_conditions, switch_indicator
from nosnoc_py.simulation.newton.contact_filling import CONES as FILLED

pytestmark = pytest.mark.quick

MU = 0.4


def slip_of(velocity, normal, weights=None):
    size = len(velocity)
    weight = ca.DM(np.ones(size) if weights is None else weights)
    return SlipQuantities(
        name="c",
        velocity=ca.SX(weight * ca.DM(velocity)),
        normal=ca.SX(normal),
        friction=MU,
        weights=weight,
        impulsive=False,
    )


def residuals(cone: str, velocity, normal: float, force, weights=None) -> tuple[float, float, np.ndarray]:
    """Largest violation of equations and inequalities, largest product, and the force that the law states."""
    slip = slip_of(velocity, normal, weights)
    law = CONES[cone](slip)
    weight = np.asarray(slip.weights).ravel()
    values = FILLED[cone](np.array([velocity]) * weight, np.array([force]) / weight)
    symbols = [v.symbol for v in law.variables]
    numbers = [np.atleast_1d(values[v.role][0]) for v in law.variables]
    rows = ca.vertcat(*[e.expression for e in law.equations], 0)
    signs = ca.vertcat(*[e.expression for e in law.inequalities], *[s for p in law.products for s in (p.a, p.b)])
    products = ca.vertcat(*[p.a * p.b for p in law.products])
    equations, low, product, stated = (
        np.asarray(f).ravel() for f in ca.Function("law", symbols, [rows, signs, products, law.force])(*numbers)
    )
    return max(np.abs(equations).max(), -low.min(initial=0.0)), np.abs(product).max(), stated


SLIPS = [([0.7], 5.0, [-MU * 5.0]), ([-0.7], 5.0, [MU * 5.0]), ([0.0], 5.0, [1.3]), ([0.7], 0.0, [0.0])]
TURN = np.array([0.6, -0.8])
SPATIAL = [
    (0.7 * TURN, 5.0, -MU * 5.0 * TURN),
    (0.0 * TURN, 5.0, 1.3 * TURN),
    (0.0 * TURN, 5.0, 0.0 * TURN),
    (0.7 * TURN, 0.0, 0.0 * TURN),
]


@pytest.mark.parametrize("cone", ["box", "polar", "polyhedral"])
@pytest.mark.parametrize(("velocity", "normal", "force"), SLIPS)
def test_planar_laws_hold_in_slip_stick_and_flight(cone, velocity, normal, force):
    violation, product, stated = residuals(cone, velocity, normal, force)
    assert violation < 1e-14
    assert product < 1e-14
    np.testing.assert_allclose(stated, force, rtol=0, atol=1e-14)


@pytest.mark.parametrize(("velocity", "normal", "force"), SPATIAL)
def test_the_polar_cone_in_space(velocity, normal, force):
    violation, product, stated = residuals("polar", velocity, normal, force)
    assert max(violation, product) < 1e-14
    np.testing.assert_allclose(stated, force, rtol=0, atol=1e-14)


def test_anisotropic_friction_dissipates_most():
    """Over the ellipse (l_1 / mu_1)^2 + (l_2 / mu_2)^2 <= N^2 the power l'v is smallest at the force stated."""
    mu, normal, velocity = np.array([MU, 0.1]), 5.0, np.array([0.3, -0.5])
    angle = np.linspace(0, 2 * np.pi, 200001)
    ellipse = normal * mu[:, None] * np.vstack([np.cos(angle), np.sin(angle)])
    best = ellipse[:, np.argmin(velocity @ ellipse)]
    violation, _, stated = residuals("polar", velocity, normal, best, weights=mu / MU)
    assert violation < 1e-4  # the grid of angles
    direction = mu * velocity / np.linalg.norm(mu * velocity)
    exact = -normal * mu * direction
    np.testing.assert_allclose(stated, exact, rtol=0, atol=1e-4)
    assert max(residuals("polar", velocity, normal, exact, weights=mu / MU)[:2]) < 1e-14


@pytest.mark.parametrize("cone", ["box", "polar", "polyhedral"])
def test_a_force_along_the_slip_is_refused(cone):
    """The sign of Eqs. 1e and 7a as printed: friction that pushes."""
    violation, product, _ = residuals(cone, [0.7], 5.0, [MU * 5.0])
    assert max(violation, product) > 0.5


@pytest.mark.parametrize("cone", ["box", "polar", "polyhedral"])
def test_a_force_outside_of_the_cone_is_refused(cone):
    violation, _, _ = residuals(cone, [0.0], 5.0, [MU * 5.0 + 0.1])
    assert violation > 0.09


def test_the_cone_of_the_paper_has_no_solution_in_flight():
    """lambda_n = 0 leaves lambda_t = 0, and v_t + 2 gamma lambda_t = v_t is not zero, whatever gamma is."""
    law = CONES["paper"](slip_of([0.7], 0.0))
    slack = law.products[0].b
    force, gamma = law.variables[0].symbol, law.variables[1].symbol
    assert float(ca.substitute(slack, force, 0)) == 0.0
    assert float(ca.substitute(slack, force, 0.1)) < 0.0
    stationarity = ca.Function("s", [force, gamma], [law.equations[1].expression])
    assert [float(stationarity(0.0, g)) for g in (0.0, 1.0, 1e9)] == [0.7] * 3


def test_the_box_is_planar():
    with pytest.raises(ns.OptionError, match="'box' is for planar contacts, and 'c' has two tangents"):
        CONES["box"](slip_of([0.1, 0.2], 1.0))


# --- trees: leaves are numbers here ---


def value(tree: Indicator, leaves: Mapping[tuple[str, str, str, int], float]) -> float:
    if isinstance(tree, Leaf):
        return leaves.get((tree.over, tree.pair, tree.side, tree.component), 0.0)
    parts = [value(part, leaves) for part in tree.parts]
    return float(np.prod(parts)) if isinstance(tree, And) else float(sum(parts))


# What is positive in an element: gap, force, and of the box xi+, xi-, s+, s-.
ELEMENTS = {
    "flight": {"gap": 1, "xi+": 1},
    "contact": {"force": 1},
    "slip+": {"force": 1, "xi+": 1, "s-": 1},
    "slip-": {"force": 1, "xi-": 1, "s+": 1},
    "stick": {"force": 1, "s+": 1, "s-": 1},
}
PLACES = {"gap": ("contact", "a"), "force": ("contact", "b")}
BOX = {"xi+": ("slip_plus", "a"), "xi-": ("slip_minus", "a"), "s+": ("slip_plus", "b"), "s-": ("slip_minus", "b")}


def leaves_of(name: str, i: int, before: str, after: str, node_gap: float) -> dict[tuple[str, str, str, int], float]:
    found = {("node", "contact", "a", i): node_gap}
    for overs, element in ((("backward", "end"), before), (("forward",), after)):
        for quantity, number in ELEMENTS[element].items():
            pair, side = (PLACES | BOX)[quantity]
            place = (pair, side, i) if pair == "contact" else (f"{pair}[{name}]", side, 0)
            found |= {(over, *place): float(number) for over in overs}
    return found


def boxes(*names: str) -> dict[str, FrictionIndicators]:
    return {name: INDICATORS["box"](name, 1) for name in names}


CASES = [  # one contact: before, after, gap at the node, switch
    *[(mode, mode, 0.0, False) for mode in ("slip+", "slip-", "stick")],
    ("flight", "flight", 1.0, False),
    ("flight", "flight", 0.0, True),  # elastic impact
    *[("flight", mode, 0.0, True) for mode in ("slip+", "slip-", "stick")],
    *[(mode, "flight", 0.0, True) for mode in ("slip+", "slip-", "stick")],
    *[(a, b, 0.0, True) for a, b in itertools.permutations(("slip+", "slip-", "stick"), 2)],
]


@pytest.mark.parametrize(("before", "after", "node", "switch"), CASES)
def test_tables_1_and_2(before, after, node, switch):
    tree = switch_indicator(["c"], boxes("c"))
    assert (value(tree, leaves_of("c", 0, before, after, node)) == 0.0) == switch


@pytest.mark.parametrize(("first", "second"), list(itertools.product(CASES, CASES[:8])))
def test_several_contacts_switch_where_one_does(first, second):
    """Eq. 30, with a third contact that has no friction and stays closed."""
    tree = switch_indicator(["c", "d", "e"], boxes("c", "d"))
    leaves = leaves_of("c", 0, *first[:3]) | leaves_of("d", 1, *second[:3])
    leaves |= leaves_of("e", 2, "contact", "contact", 0.0)
    assert (value(tree, leaves) == 0.0) == (first[3] or second[3])


def isolated(names: tuple[str, ...], leaves: Mapping[tuple[str, str, str, int], float]) -> set[str]:
    found = contact_switch_conditions(names, boxes(*[name for name in names if name != "smooth"]))
    return {item.name for item in found if value(item.indicator, leaves) > 0.0}


@pytest.mark.parametrize("slip", ["slip+", "slip-"])
def test_stick_to_slip_and_release_are_isolated(slip):
    assert isolated(("c",), leaves_of("c", 0, "stick", slip, 0.0)) == {"slip[c]"}
    assert isolated(("c",), leaves_of("c", 0, slip, "flight", 0.0)) == {"release[c]"}
    assert isolated(("smooth",), leaves_of("smooth", 0, "contact", "flight", 0.0)) == {"release[smooth]"}
    assert isolated(("c",), leaves_of("c", 0, slip, "stick", 0.0)) == set()
    assert isolated(("c",), leaves_of("c", 0, "flight", slip, 0.0)) == set()


def test_after_a_slip_the_force_is_at_the_cone_anyway():
    """The equation is imposed at a reversal, too, and says nothing there: the slack before it is zero."""
    leaves = leaves_of("c", 0, "slip-", "slip+", 0.0)
    item = next(i for i in contact_switch_conditions(["c"], boxes("c")) if i.name == "slip[c]")
    assert value(item.indicator, leaves) > 0.0
    assert value(item.residual, leaves) == 0.0
    assert value(item.residual, leaves_of("c", 0, "stick", "slip+", 0.0)) > 0.0


@pytest.mark.parametrize(
    ("before", "after", "node", "jumps"),
    [
        *[("slip+", "stick", 0.0, True), ("slip+", "slip-", 0.0, True), ("flight", "flight", 0.0, True)],
        *[("flight", "stick", 0.0, True), ("stick", "slip+", 0.0, False), ("slip+", "slip+", 0.0, False)],
        *[("flight", "flight", 1.0, False), ("slip+", "flight", 0.0, False)],
    ],
)
def test_a_force_that_jumps_elsewhere_lifts_the_isolation(before, after, node, jumps):
    leaves = leaves_of("c", 0, "stick", "slip+", 0.0) | leaves_of("d", 1, before, after, node)
    assert ("slip[c]" in isolated(("c", "d"), leaves)) == (not jumps)


# --- the DCS ---


def particle(dimension: int, **contact) -> ns.CLS:
    q, v = ca.SX.sym("q", dimension), ca.SX.sym("v", dimension)
    tangent = ca.DM.eye(dimension)[:, : dimension - 1]
    ground = ns.Contact("ground", gap=q[-1], tangent=tangent, **contact)
    force = ca.vertcat(ca.SX(dimension - 1, 1), -9.81)
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(dimension), force=force, contacts=[ground])


def test_a_contact_without_friction_has_no_friction_variables():
    names = [v.name for v in contact_dcs(particle(2, friction=0.0)).variables]
    assert names == ["lambda_normal"]


@pytest.mark.parametrize(("dimension", "found"), [(2, "lambda_tangent"), (3, "friction_radius")])
def test_the_default_cone(dimension, found):
    names = [v.name for v in contact_dcs(particle(dimension, friction=0.3)).variables]
    assert f"{found}[ground]" in names


def test_the_error_names_the_contact_that_a_cone_does_not_fit():
    with pytest.raises(ns.OptionError, match="'ground'"):
        ns.Simulator(particle(3, friction=0.3), ns.FESDJ(friction_cone="box"), step=0.1)
    with pytest.raises(ns.OptionError, match="friction_cone"):
        ns.FESDJ(friction_cone="ice cream")


def test_the_energy_of_a_jump():
    """v- = (3, -2), impulses (-.4 * 2, 2): v+ = (2.2, 0), and 1/2 (4.84 - 13) J are gained."""
    jump = contact_dcs(particle(2, friction=0.4)).jump
    at = ca.Function("energy", [jump.x_minus, jump.symbol], [jump.energy])
    values = np.zeros(jump.symbol.numel())
    values[:2] = 2.2, 0.0
    assert float(at([0, 0, 3, -2], values)) == pytest.approx(0.5 * (2.2**2 - 13), abs=1e-14)


@pytest.mark.parametrize(("directions", "ratio"), [(4, 1.0), (8, np.tan(np.pi / 8))])
def test_a_ball_in_space_lands_on_a_polyhedral_cone(directions: int, ratio: float) -> None:
    """A slip turns to where two directions oppose it alike, 45 or 22.5 degrees off one of them, and goes on there.

    Of the ball that falls .1 m at (1, .5) m/s friction takes mu (g t) of the speed along one direction, or along the
    bisector of two, over 1 / cos(pi / n) of what Coulomb's law would.
    """
    system = particle(3, friction=0.3)
    x0, duration = [0.0, 0.0, 0.1, 1.0, 0.5, 0.0], 0.18
    method = ns.FESDJ(friction_cone="polyhedral", cone_directions=directions)
    found = ns.simulate(system, x0=x0, duration=duration, method=method, steps=9)
    coulomb = ns.simulate(system, x0=x0, duration=duration, method=ns.EventDriven())
    assert found.success, found.message
    assert len(found.impacts) == 1
    assert found.impacts[0].time == pytest.approx(np.sqrt(0.2 / 9.81), abs=1e-8)
    lost = np.hypot(*x0[3:5]) - np.hypot(*found.final_state[3:5])
    exact = np.hypot(*x0[3:5]) - np.hypot(*coulomb.final_state[3:5])
    assert abs(lost - exact) < (0.35 if directions == 4 else 0.1) * exact
    if directions == 8:
        assert found.final_state[4] / found.final_state[3] == pytest.approx(ratio, abs=1e-6)
