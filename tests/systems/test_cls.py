"""CLS and Contact: what is derived from what the user writes, and one clear error for each mistake."""

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns

pytestmark = pytest.mark.quick

q, v, u, p = (ca.SX.sym(name, 2) for name in "qvup")
STRANGER = ca.SX.sym("stranger")


def system(**changes):
    given = {
        "q": q,
        "v": v,
        "u": u,
        "p": p,
        "mass_matrix": ca.DM.eye(2),
        "force": ca.vertcat(u[0], u[1] - p[0]),
        "contacts": [ns.Contact("ground", gap=q[1])],
    }
    return ns.CLS(**{**given, **changes})


def contact(**changes):
    return ns.Contact(**{"name": "ground", "gap": q[1], **changes})


def with_contact(**changes):
    return system(contacts=[contact(**changes)])


def refused(message, build, *arguments, **named):
    with pytest.raises(ns.ModelError, match=message) as caught:
        build(*arguments, **named)
    return str(caught.value)


# What is derived ----------------------------------------------------------------------------------------------------


def test_defaults():
    s = system()
    assert (s.n_q, s.n_u, s.n_p) == (2, 2, 2)
    assert s.state_names == ("q_0", "q_1", "v_0", "v_1")
    assert s.control_names == ("u_0", "u_1")
    assert s.parameter_names == ("p_0", "p_1")
    assert s.x.shape == (4, 1)
    assert s.x_initial.shape == (4, 1)
    assert s.p_default is None
    assert np.array_equal(s.p_or_zeros, [0.0, 0.0])
    refused("p: the parameters p_0, p_1 of the CLS have no values; give p=", s.parameters)
    refused("p: the parameters p_0, p_1", s.check_state, [0, 1, 0, 0])
    assert np.array_equal(s.parameters([1, 2]), [1.0, 2.0])
    assert s.contacts[0].restitution == 0.0
    assert np.array_equal(s.x_nominal, np.ones(4))


def test_a_system_without_controls_parameters_and_contacts():
    s = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=[0, -9.81])
    assert (s.n_u, s.n_p, s.contacts) == (0, 0, ())
    assert np.array_equal(s.check_state([1, -5, 0, 0]), [1, -5, 0, 0])  # nothing to penetrate


def test_names_units_and_nominal_values():
    s = system(
        names={"q": ["x", "y"], "v": ["v_x", "v_y"]},
        units={"x": "m"},
        nominal={"q": [2.0, 3.0], "v": 10.0, "force": 100.0},
    )
    assert s.state_names == ("x", "y", "v_x", "v_y")
    assert np.array_equal(s.x_nominal, [2.0, 3.0, 10.0, 10.0])
    assert np.array_equal(s.u_nominal, [1.0, 1.0])
    assert np.array_equal(s.nominal["force"], [100.0])


def test_p_default_is_used_unless_p_is_given():
    s = system(p_default=[0.5, 2.0], contacts=[contact(gap=q[1] - p[0])])
    assert np.array_equal(s.p_default, [0.5, 2.0])
    assert np.array_equal(s.check_state([0, 0.5, 0, 0]), [0, 0.5, 0, 0])
    refused(r"its gap is -0\.1,", s.check_state, [0, 0.4, 0, 0])
    s.check_state([0, 0.4, 0, 0], [0.3, 0.0])
    refused("its gap is -0.6,", s.check_state, [0, 0.4, 0, 0], [1.0, 0.0])


def test_the_normal_is_the_gradient_of_the_gap():
    gap = ca.sin(q[0]) * q[1] + ca.norm_2(q)
    s = system(contacts=[contact(gap=gap)])
    evaluate = ca.Function("f", [q], [gap, s.normal(s.contacts[0])])
    at, step = np.array([0.4, 1.3]), 1e-6
    numeric = [float(evaluate(at + step * e)[0] - evaluate(at - step * e)[0]) / (2 * step) for e in np.eye(2)]
    np.testing.assert_allclose(np.array(evaluate(at)[1]).ravel(), numeric, atol=1e-9)
    np.testing.assert_allclose(numeric[0], np.cos(0.4) * 1.3 + 0.4 / np.hypot(0.4, 1.3), atol=1e-9)


def test_a_given_normal_replaces_the_gradient():
    s = with_contact(normal=ca.vertcat(q[0], 2))
    normal = ca.Function("n", [q], [s.normal(s.contacts[0])])
    assert np.array_equal(np.array(normal([3, 0])).ravel(), [3.0, 2.0])


def test_repr_names_states_and_contacts():
    text = repr(with_contact(restitution=0.25))
    assert "CLS: 2 coordinates, 2 controls, 2 parameters" in text
    assert "contact  ground: gap q_1, restitution 0.25" in text


def test_a_system_is_frozen_and_its_contacts_are_its_own():
    contacts = [contact()]
    s = system(contacts=contacts)
    contacts.append(contact(name="wall"))
    assert len(s.contacts) == 1
    with pytest.raises(AttributeError):
        s.force = 0


# States -------------------------------------------------------------------------------------------------------------


def test_a_penetrating_state_names_the_contact_and_its_gap():
    s = system(contacts=[contact(), contact(name="wall", gap=2 - q[0])])
    message = refused("x0 penetrates contact 'wall'", s.check_state, [2.25, 1, 0, 0], [0, 0])
    assert "its gap is -0.25, expected >= 0; move the bodies apart" in message


def test_touching_and_rounding_are_no_penetration():
    s = system()
    s.check_state([0, 0, 0, 0], [0, 0])
    s.check_state([0, -9e-9, 0, 0], [0, 0])
    refused("penetrates contact 'ground': its gap is -1.1e-08", s.check_state, [0, -1.1e-8, 0, 0], [0, 0])


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ([0, 1, 0], "x0: expected 4 numbers, given 3"),
        ([0, 1, 0, np.nan], "x0: contains NaN at position 3"),
        ([0, 1, 0, np.inf], "x0: every component has to be finite"),
        ("abcd", "x0: expected 4 numbers, given 'abcd'"),
        (ca.SX.sym("x", 4), "x0: expected 4 numbers"),
        ({"knee": 1.0}, "unknown component of x0 'knee'"),
    ],
)
def test_ill_shaped_states(state, message):
    refused(message, system().check_state, state)


def test_a_gap_that_is_not_a_number_penetrates():
    s = system(contacts=[contact(gap=ca.sqrt(q[1]))])
    refused("penetrates contact 'ground': its gap is nan", s.check_state, [0, -1, 0, 0], [0, 0])


# Mistakes: contacts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restitution", [-1e-9, 1 + 1e-9, 7, -np.inf, np.inf])
def test_restitution_outside_the_unit_interval(restitution):
    refused(r"contact 'ground': restitution has to lie in \[0, 1\], given", contact, restitution=restitution)


@pytest.mark.parametrize("restitution", [0, 1, 0.5, np.float64(0.3), np.array(0.3)])
def test_restitution_inside_is_kept(restitution):
    assert contact(restitution=restitution).restitution == float(restitution)


@pytest.mark.parametrize(
    ("restitution", "message"),
    [
        ("0.5", "contact 'ground': restitution: expected one number, given '0.5'"),
        (None, "contact 'ground': restitution: expected"),
        (True, "contact 'ground': restitution: expected one number, given True"),
        ([0.1, 0.2], r"contact 'ground': restitution: expected one number, given \[0.1, 0.2\]"),
        (np.nan, "contact 'ground': restitution: contains NaN"),
    ],
)
def test_restitution_that_is_no_number(restitution, message):
    refused(message, contact, restitution=restitution)


@pytest.mark.parametrize("name", ["", 3, None])
def test_a_contact_needs_a_name(name):
    refused("name has to be a non-empty string, given", contact, name=name)


@pytest.mark.parametrize(
    ("gap", "message"),
    [
        (q, "contact 'ground': gap: expected a scalar, given 2 rows"),
        (q.T, r"contact 'ground': gap: expected a column vector, given shape \(1, 2\)"),
        (ca.MX.sym("q"), "contact 'ground': gap: expected numbers or CasADi SX, given MX; write it in SX"),
        (q[1] + np.nan, "contact 'ground': gap: contains nan; every number in a model has to be finite"),
        (np.inf, "contact 'ground': gap: contains inf"),
        ("q[1]", "contact 'ground': gap: expected numbers or CasADi SX, given str"),
        (None, "contact 'ground': gap: expected numbers or CasADi SX, given NoneType"),
        (ca.SX(0, 1), "contact 'ground': gap: expected a scalar, given 0 rows"),
    ],
)
def test_ill_shaped_gaps(gap, message):
    refused(message, contact, gap=gap)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gap": q[1] - STRANGER}, "contact 'ground': gap depends on stranger, which is not among q, p"),
        ({"gap": q[1] + v[0]}, "contact 'ground': gap depends on v_0, which is not among q, p"),
        ({"gap": 1.0}, "contact 'ground': the gap does not depend on q"),
        ({"gap": p[0]}, "contact 'ground': the gap does not depend on q"),
        ({"normal": v}, "contact 'ground': normal depends on v_0, v_1, which is not among q, p"),
        ({"normal": [1, 0, 0]}, "contact 'ground': normal: expected 2 rows, given 3"),
        ({"normal": [np.nan, 1]}, "contact 'ground': normal: contains nan"),
        ({"normal": ca.MX(2, 1)}, "contact 'ground': normal: expected numbers or CasADi SX, given MX"),
    ],
)
def test_contacts_that_do_not_fit_the_system(changes, message):
    refused(message, with_contact, **changes)


def test_two_contacts_with_one_name():
    refused(
        "two contacts are named 'ground'; give each a name of its own",
        system,
        contacts=[contact(), contact(gap=q[0])],
    )


@pytest.mark.parametrize("contacts", [["ground"], [q[1]], [None]])
def test_contacts_have_to_be_contacts(contacts):
    refused("contacts have to be ns.Contact objects, given", system, contacts=contacts)


@pytest.mark.parametrize("contacts", [ns.Contact("ground", gap=q[1]), None, 3])
def test_contacts_have_to_be_a_sequence(contacts):
    refused("CLS: contacts: expected a sequence of ns.Contact", system, contacts=contacts)


# Mistakes: dynamics -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"v": ca.SX.sym("v", 3)}, "q and v need the same positive length, given 2 and 3"),
        ({"q": ca.SX(0, 1), "v": ca.SX(0, 1)}, "q and v need the same positive length, given 0 and 0"),
        ({"q": 2 * q}, "CLS: q: expected symbols made by ca.SX.sym, given the expression"),
        ({"q": ca.MX.sym("q", 2)}, "CLS: q: expected numbers or CasADi SX, given MX; write it in SX"),
        ({"v": q}, "symbol q_0 is used in both q and v; make a symbol for each"),
        ({"u": p}, "symbol p_0 is used in both u and p"),
        ({"q": ca.vertcat(q[0], q[0])}, "symbol q_0 is used twice in q; make a symbol for each"),
        ({"mass_matrix": [1, 1]}, r"has to be \(2, 2\), given \(2, 1\); for a diagonal matrix write ca.diag"),
        ({"mass_matrix": 1}, r"has to be \(2, 2\), given \(1, 1\); for a multiple of the identity"),
        ({"force": [1, 2, 3]}, "CLS: force: expected 2 rows, given 3"),
        ({"force": ca.DM.eye(2)}, r"CLS: force: expected a column vector, given shape \(2, 2\)"),
        ({"force": [np.nan, 0]}, "CLS: force: contains nan; every number in a model has to be finite"),
        ({"force": ca.vertcat(u[0] * np.inf, 0)}, "CLS: force: contains inf"),
        ({"force": ca.vertcat(STRANGER, 0)}, "CLS: force depends on stranger, which is not among q, v, u, p"),
        ({"force": ca.MX.sym("f", 2)}, "CLS: force: expected numbers or CasADi SX, given MX"),
        ({"force": None}, "CLS: force: expected numbers or CasADi SX, given NoneType"),
    ],
)
def test_ill_posed_dynamics(changes, message):
    refused(message, system, **changes)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (ca.DM.eye(3), r"mass_matrix has to be \(2, 2\), given \(3, 3\)"),
        (1.0, r"mass_matrix has to be \(2, 2\), given \(1, 1\)"),
        (ca.DM([[1, 2], [2, 1]]), "symmetric and positive definite"),
        (ca.DM([[1, 1], [0, 1]]), "symmetric and positive definite"),
        (ca.DM.zeros(2, 2), "symmetric and positive definite"),
        (ca.DM([[1, 0], [0, np.nan]]), "contains nan"),
        (ca.SX(ca.diag(ca.vertcat(q[0], np.nan))), "contains nan"),
        (ca.diag(v), "mass_matrix depends on v_0, v_1, which is not among q, p"),
        (ca.diag(ca.vertcat(STRANGER, 1)), "mass_matrix depends on stranger"),
        (ca.MX.eye(2), "mass_matrix: expected numbers or CasADi SX, given MX; write it in SX"),
        ("unit", "mass_matrix: expected numbers or CasADi SX, given str"),
        (None, "mass_matrix: expected numbers or CasADi SX, given NoneType"),
    ],
)
def test_ill_posed_mass_matrices(matrix, message):
    refused(message, system, mass_matrix=matrix)


@pytest.mark.parametrize("matrix", [np.eye(2), [[1, 0], [0, 2]], ca.diag(ca.vertcat(p[0], 1 + q[0] ** 2))])
def test_good_mass_matrices(matrix):
    assert system(mass_matrix=matrix).mass_matrix.shape == (2, 2)


# Mistakes: names and numbers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"names": {"w": ["a", "b"]}}, "unknown key of names 'w'.*Legal: q, v, y, u, p"),
        ({"names": {"q": ["a"]}}, r"names of q: expected 2 names, given \['a'\]"),
        ({"names": {"q": "ab"}}, "names of q: expected 2 names, given 'ab'"),
        ({"names": {"q": ["a", "b"], "v": ["b", "c"]}}, "CLS: two components are named 'b'"),
        ({"names": {"q": ["a", "a"]}}, "CLS: two components are named 'a'"),
        ({"names": {"u": ["q_0", "t"]}}, "CLS: two components are named 'q_0'"),
        ({"names": None}, "CLS: names: expected a mapping, given None"),
        ({"names": 3}, "CLS: names: expected a mapping, given 3"),
        ({"units": {"q_O": "m"}}, "unknown name in units 'q_O'. Did you mean 'q_"),
        ({"units": None}, "CLS: units: expected a mapping, given None"),
        ({"nominal": {"velocity": 1.0}}, "unknown key of nominal 'velocity'.*Legal: q, v, y, u, force"),
        ({"nominal": {"q": 0.0}}, "nominal values of q have to be positive and finite"),
        ({"nominal": {"v": [1.0, -1.0]}}, "nominal values of v have to be positive and finite"),
        ({"nominal": {"force": np.inf}}, "nominal values of force have to be positive and finite"),
        ({"nominal": {"u": np.nan}}, "CLS: nominal u: contains NaN"),
        ({"nominal": {"q": [1, 2, 3]}}, "CLS: nominal q: expected 2 numbers, given 3"),
        ({"nominal": [1.0]}, r"CLS: nominal: expected a mapping, given \[1.0\]"),
        ({"p_default": [1.0]}, "CLS: p_default: expected 2 numbers, given 1"),
        ({"p_default": [1.0, np.nan]}, "CLS: p_default: contains NaN at position 1"),
        ({"p_default": [1.0, np.inf]}, "CLS: p_default: every component has to be finite"),
        ({"p_default": "12"}, "CLS: p_default: expected 2 numbers, given '12'"),
    ],
)
def test_bad_names_and_numbers(changes, message):
    refused(message, system, **changes)


def test_expressions_of_a_system_cannot_be_changed_in_place() -> None:
    """What was compiled from them would not follow; copies are free."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    given = ca.SX(-9.81)
    system = ns.CLS(q=q, v=v, mass_matrix=1, force=given, contacts=[ns.Contact("ground", gap=q)])
    expressions = (system.force, system.x, system.q, system.mass_matrix, system.contacts[0].gap, system.x_initial)
    for expression in expressions:
        with pytest.raises(ns.ModelError, match="cannot be changed"):
            expression[0] = 1
        with pytest.raises(ns.ModelError, match="cannot be changed"):
            expression.nz[0] = 1
    given[0] = 5
    assert float(system.force) == -9.81
    copy = ca.SX(system.force)
    copy[0] = 3
    assert float(copy) == 3.0
    assert type(system.force + 1) is ca.SX
    assert ns.simulate(system, x0=[1, 0], duration=0.1).final_state[1] == pytest.approx(-0.981)


def test_an_arm_that_cannot_move_along_all_tangents_stops_by_its_closed_form() -> None:
    """Yaw and pitch carry a ball: normal and radial tangent turn the same joint. It drops, and turns until it rests."""
    radius, g, mu = 0.5, 9.81, 0.2
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    place = radius * ca.vertcat(ca.cos(q[1]) * ca.cos(q[0]), ca.cos(q[1]) * ca.sin(q[0]), ca.sin(q[1]))
    turn = radius**2 * ca.sin(q[1]) * ca.cos(q[1])
    ball = ns.Placed(ns.Sphere(0.02), place + ca.vertcat(0, 0, 0.3), coordinates=ns.Coordinates(q, v))
    arm = ns.CLS(
        q=q, v=v, mass_matrix=ca.diag(ca.vertcat(radius**2 * ca.cos(q[1]) ** 2 + 0.01, radius**2 + 0.01)),
        force=[2 * turn * v[0] * v[1], -turn * v[0] ** 2 - g * radius * ca.cos(q[1])],
        contacts=ns.contacts(ball, ns.HalfSpace([0, 0, 1]), friction=mu),
    )  # fmt: skip
    motion = ns.simulate(arm, x0=[0, 0.3, 2.0, 0], duration=1.5)
    assert motion.success, motion.message
    yaw, pitch, rate, _ = motion.x[np.searchsorted(motion.t, motion.impacts[0].time, side="right")]
    lean = radius * np.sin(pitch)
    stops = (radius**2 * np.cos(pitch) ** 2 + 0.01) / (2 * mu * radius * np.cos(pitch) * lean)
    assert motion.x[-1] == pytest.approx([yaw + stops * np.log(1 + lean * rate**2 / g), pitch, 0, 0], abs=1e-10)
    with pytest.raises(ns.ModelError, match="tangent columns have to be independent"):
        ns.simulate(arm, x0=[0, -np.arcsin(0.56), 2.0, 0], duration=0.1)
