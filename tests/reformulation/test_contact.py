"""Contact mechanics as a DCS with a jump law: on hand-made numbers the true impact fits, a wrong one does not."""

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.reformulation.contact import ContactOptions, contact_dcs

pytestmark = pytest.mark.quick

FORMS = ["sum", "product"]
EPSILON, H = 1e-3, 0.1


def ball(restitution=0.5, mass=2.0):
    q, v, u = (ca.SX.sym(name) for name in "qvu")
    ground = ns.Contact("ground", gap=q, restitution=restitution)
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM(mass), force=u - 9.81 * mass, contacts=[ground])


def pendulum():
    """A mass matrix that depends on q."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    mass = ca.vertcat(ca.horzcat(3, ca.cos(q[1])), ca.horzcat(ca.cos(q[1]), 1))
    wall = ns.Contact("wall", gap=2 - q[0] - ca.sin(q[1]))
    return ns.CLS(q=q, v=v, u=u, mass_matrix=mass, force=ca.vertcat(u, -ca.sin(q[1])), contacts=[wall])


def law(form, system=None):
    jump = contact_dcs(ball() if system is None else system, ContactOptions(impulse_form=form, epsilon_c=EPSILON)).jump

    def evaluate(expressions, x_minus, boundary):
        function = ca.Function("law", [jump.x_minus, jump.symbol, jump.h], [ca.vertcat(ca.SX(0, 1), *expressions)])
        return np.array(function(x_minus, boundary, H)).ravel()

    return jump, evaluate


def violations(form, x_minus, boundary, system=None):
    """(equations, products, smallest nonnegative quantity, guard) of a jump."""
    jump, evaluate = law(form, system)
    equations = evaluate([e.expression for e in jump.equations], x_minus, boundary)
    a = [evaluate([pair.a], x_minus, boundary) for pair in jump.pairs]
    b = [evaluate([pair.b], x_minus, boundary) for pair in jump.pairs]
    largest = max(np.abs(np.outer(i, j)).max() for i, j in zip(a, b, strict=True))
    guard = evaluate([e.expression for e in jump.inequalities], x_minus, boundary)
    return np.abs(equations).max(), largest, np.concatenate([*a, *b]).min(), guard.min()


# The impact law, boundary variables (v+, Lambda, Y+, Y-) of a ball of 2 kg with e = .5 -----------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("x_minus", "boundary"),
    [
        ([0.0, -4.0], [2.0, 12.0, 0.0, 0.0]),  # impact: v+ = -e v-, Lambda = m (v+ - v-) = 2 * 6
        ([1.0, -4.0], [-4.0, 0.0, 0.0, 6.0]),  # falling, gap open: n'(v+ + e v-) = -6
        ([1.0, 4.0], [4.0, 0.0, 4.0, 0.0]),  # rising
        ([0.0, 0.0], [0.0, 0.0, 0.0, 0.0]),  # at rest
        ([0.0, 3.0], [3.0, 0.0, 3.0, 0.0]),  # just released: no rebound, Y+ = n'v+
    ],
)
def test_true_motion_fits(form, x_minus, boundary):
    equations, products, smallest, guard = violations(form, x_minus, boundary)
    assert equations == 0.0
    assert products == 0.0
    assert smallest >= 0.0
    assert guard >= 0.0


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("x_minus", "boundary", "equations", "products"),
    [
        ([0.0, -4.0], [2.0, 11.0, 0.0, 0.0], 1.0, 0.0),  # too small an impulse
        ([0.0, -4.0], [4.0, 12.0, 2.0, 0.0], 4.0, 24.0),  # an elastic rebound
        ([0.0, -4.0], [4.0, 16.0, 2.0, 0.0], 0.0, 32.0),  # the same with its impulse: Lambda Y+ = 16 * 2
        ([0.0, -4.0], [0.0, 8.0, 0.0, 2.0], 0.0, 16.0),  # an inelastic one: Lambda Y- = 8 * 2
        ([1.0, -4.0], [2.0, 12.0, 0.0, 0.0], 0.0, 12.0),  # an impact in the air: Lambda gap = 12 * 1
        ([1.0, 4.0], [4.0, 0.0, 7.0, 3.0], 0.0, 21.0),  # Y+ and Y- grown together
    ],
)
def test_wrong_motion_does_not(form, x_minus, boundary, equations, products):
    found = violations(form, x_minus, boundary)
    assert found[0] == pytest.approx(equations)
    assert found[1] == pytest.approx(products)


@pytest.mark.parametrize("form", FORMS)
def test_the_guard_excludes_an_impact_without_impulse(form):
    """Complementary and balanced, but the body falls through the ground: only the inequality tells."""
    equations, products, smallest, guard = violations(form, [0.0, -4.0], [-4.0, 0.0, 0.0, 6.0])
    assert (equations, products, smallest) == (0.0, 0.0, 0.0)
    assert guard == pytest.approx(EPSILON * H * -6.0)


@pytest.mark.parametrize("form", FORMS)
def test_the_guard_hardly_reaches_into_the_air(form):
    """A body that falls at 4 m/s is guarded within eps h (1 + e) 4 of the ground, not above."""
    reach = EPSILON * H * 6.0
    for height, sign in ((1.01 * reach, 1), (0.99 * reach, -1)):
        assert np.sign(violations(form, [height, -4.0], [-4.0, 0.0, 0.0, 6.0])[3]) == sign


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("restitution", [0.0, 0.3, 1.0])
def test_the_estimate_of_an_impact_solves_it(form, restitution):
    jump, _ = law(form, ball(restitution))
    estimate = ca.Function("estimate", [jump.x_minus, jump.hit], [ca.vertcat(*[v.estimate for v in jump.variables])])
    hit = np.array(estimate([0.0, -4.0], 1.0)).ravel()
    np.testing.assert_allclose(hit, [4 * restitution, 8 * (1 + restitution), 0, 0], atol=1e-14)
    assert max(violations(form, [0.0, -4.0], hit, ball(restitution))[:2]) < 1e-12
    rest = np.array(estimate([0.7, -4.0], 0.0)).ravel()
    np.testing.assert_allclose(rest, [-4, 0, 0, 4 * (1 + restitution)], atol=1e-14)


@pytest.mark.parametrize("form", FORMS)
def test_a_jump_leaves_the_position_alone(form):
    jump, evaluate = law(form)
    assert np.array_equal(evaluate([jump.x_plus], [0.3, -4.0], [2.0, 12.0, 0, 0]), [0.3, 2.0])
    impact = jump.impacts[0]
    watched = evaluate([impact.impulse, impact.v_before, impact.v_after], [0.3, -4.0], [2.0, 12.0, 0, 0])
    assert np.array_equal(watched, [12.0, -4.0, 2.0])
    assert impact.name == "ground"


def test_how_the_pairs_differ():
    labels = {form: [pair.a_labels for pair in law(form)[0].pairs] for form in FORMS}
    assert labels["sum"] == [("gap[ground]", "Y_plus[ground]", "Y_minus[ground]"), ("Y_plus[ground]",)]
    assert labels["product"] == [("gap[ground]",), ("Y_plus[ground]", "Y_minus[ground]"), ("Y_plus[ground]",)]


@pytest.mark.parametrize("form", FORMS)
def test_contacts_keep_their_own_restitution(form):
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    contacts = [ns.Contact("left", gap=q[0], restitution=0.0), ns.Contact("right", gap=q[1], restitution=1.0)]
    two = ns.CLS(q=q, v=v, mass_matrix=ca.diag([1.0, 3.0]), force=[0, 0], contacts=contacts)
    x_minus = [0.0, 0.0, -2.0, -5.0]
    right = [0.0, 5.0, 2.0, 30.0, 0, 0, 0, 0]
    assert violations(form, x_minus, right, two)[:3] == (0.0, 0.0, 0.0)
    swapped = [2.0, 0.0, 4.0, 15.0, 0, 0, 0, 0]
    assert violations(form, x_minus, swapped, two)[0] == pytest.approx(5.0)


# The flow -----------------------------------------------------------------------------------------------------------


def test_the_flow_of_a_ball():
    d = contact_dcs(ball())
    flow = ca.Function("flow", [d.x, d.z, d.u, d.p], [d.flow])
    np.testing.assert_allclose(np.array(flow([1, -4], [6.0], [2.0], [])).ravel(), [-4, -9.81 + (6 + 2) / 2])
    pair = d.pairs[0]
    sides = ca.Function("sides", [d.x, d.z], [pair.a, pair.b])([0.3, -4], [6.0])
    assert [float(side) for side in sides] == [0.3, 6.0]
    assert (pair.left, pair.cross, pair.events) == (None, "left", ("contact", "release"))


@pytest.mark.parametrize("build", [ball, pendulum])
def test_lifting_the_acceleration_changes_nothing(build):
    system = build()
    plain, lifted = (contact_dcs(system, ContactOptions(lift_acceleration=lift)) for lift in (False, True))
    n = system.n_q
    x, u, force = np.linspace(0.2, 0.9, 2 * n), [1.5], np.full(len(system.contacts), 0.7)
    flow = np.array(ca.Function("f", [plain.x, plain.z, plain.u], [plain.flow])(x, force, u)).ravel()
    z = np.r_[force, flow[n:]]
    inputs = [lifted.x, lifted.z, lifted.u]
    residual = ca.Function("g", inputs, [lifted.equations[0].expression])(x, z, u)
    np.testing.assert_allclose(np.array(residual).ravel(), 0, atol=1e-14)
    np.testing.assert_allclose(np.array(ca.Function("f", inputs, [lifted.flow])(x, z, u)).ravel(), flow)
    wrong = ca.Function("g", inputs, [lifted.equations[0].expression])(x, np.r_[force, flow[n:] + 0.1], u)
    assert np.abs(np.array(wrong)).max() > 0.05


def test_the_acceleration_is_lifted_where_the_mass_matrix_varies():
    assert [v.name for v in contact_dcs(pendulum()).variables] == ["lambda_normal", "acceleration"]
    assert [v.name for v in contact_dcs(ball()).variables] == ["lambda_normal"]


def test_a_system_without_contacts_is_an_ordinary_differential_equation():
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    d = contact_dcs(ns.CLS(q=q, v=v, mass_matrix=ca.DM(2.0), force=-8 * q))
    assert d.z.numel() == 0
    flow = ca.Function("flow", [d.x, d.z, d.u, d.p], [d.flow])
    np.testing.assert_allclose(np.array(flow([3, 5], [], [], [])).ravel(), [5, -12])


def test_repr_lists_the_parts():
    text = repr(contact_dcs(ball()))
    assert "DCS: 2 states, 1 control, 1 algebraic variable" in text
    assert "pair     contact: gap[ground] with lambda_normal[ground]" in text
    assert "pair   gap[ground], Y_plus[ground], Y_minus[ground] with Lambda_normal[ground]" in text
