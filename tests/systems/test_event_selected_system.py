"""Event-selected systems as the user writes them: what is accepted, and what is said about mistakes."""

import casadi as ca
import numpy as np
import pytest

from nosnoc_py.errors import ModelError
from nosnoc_py.methods.event_selected.functions import NEVER, fields_of
from nosnoc_py.systems.event_selected import EventSelectedSystem, Guard, arity

X, MODE, P = ca.SX.sym("x", 2), ca.SX.sym("mode", 2), ca.SX.sym("p")


def symbolic(**changes):
    given = dict(
        x=X,
        mode=MODE,
        p=P,
        flow=ca.vertcat(X[1], -P + MODE[0] * (1 - X[0]) - MODE[1] * X[1]),
        guards=[Guard.contact("foot", 1 - X[0]), Guard("wall", X[0] ** 2 - 9)],
        names=dict(x=["z", "v"], p=["g"]),
    )
    return EventSelectedSystem(**{**given, **changes})


def numeric(**changes):
    given = dict(
        x=2,
        p=1,
        flow=lambda x, mode, p: np.array([x[1], -p[0] + mode[0] * (1 - x[0])]),
        functions=lambda x: np.array([1 - x[0], x[0] ** 2 - 9]),
        jacobian=lambda x: np.array([[-1.0, 0.0], [2 * x[0], 0.0]]),
        guards=["foot", "wall"],
    )
    return EventSelectedSystem(**{**given, **changes})


def test_symbolic_system():
    system = symbolic()
    assert system.symbolic
    assert (system.n_x, system.n_u, system.n_p) == (2, 0, 1)
    assert system.state_names == ("z", "v")
    assert system.parameter_names == ("g",)
    assert system.guard_names == ("foot", "wall")
    assert system.event_kinds == (("contact", "release"), ("switch", "switch"))
    np.testing.assert_array_equal(system.returns, [True, False])


def test_numeric_system():
    system = numeric(back="negative", p_default=[9.81])
    assert not system.symbolic
    np.testing.assert_array_equal(system.returns, [True, True])
    assert system.event_kinds == (("contact", "release"),) * 2
    assert numeric().event_kinds == (("switch", "switch"),) * 2
    np.testing.assert_array_equal(system.p_default, [9.81])


def test_fields_of_both_ways():
    x, mode, p = np.array([0.3, -2.0]), np.array([1.0, 0.0]), np.array([9.81])
    one, other = fields_of(symbolic()), fields_of(numeric(), "auto")
    np.testing.assert_allclose(one.flow(x, mode, p), [-2, -9.81 + 0.7], atol=1e-15)
    np.testing.assert_allclose(other.flow(x, mode, p), [-2, -9.81 + 0.7], atol=1e-15)
    np.testing.assert_allclose(one.guards(x, p), [[0.7, 0.09 - 9], [-0.7, NEVER]], atol=1e-15)
    np.testing.assert_allclose(one.gradients(x, p), [[[-1, 0], [0.6, 0]], [[1, 0], [0, 0]]], atol=1e-15)
    np.testing.assert_allclose(other.guards(x, p)[0], one.guards(x, p)[0], atol=1e-15)
    assert (other.guards(x, p)[1] == NEVER).all()
    mirrored = fields_of(numeric(back="negative"))
    np.testing.assert_allclose(mirrored.guards(x, p)[1], -mirrored.guards(x, p)[0], rtol=1e-15)
    np.testing.assert_allclose(mirrored.gradients(x, p)[1], -mirrored.gradients(x, p)[0], rtol=1e-15)
    assert not other.compiled


def test_own_back_functions():
    back = dict(back=lambda x: -2 - x, back_jacobian=lambda x: -np.eye(2))
    fields = fields_of(numeric(**back))
    x, p = np.array([1.0, 2.0]), np.array([1.0])
    np.testing.assert_array_equal(fields.guards(x, p), [[0, -8], [-3, -4]])
    np.testing.assert_array_equal(fields.gradients(x, p)[1], -np.eye(2))


@pytest.mark.slow
def test_compiled_fields():
    numba = pytest.importorskip("numba")
    system = numeric(back="negative")
    fields = fields_of(system, True)
    assert fields.compiled
    x, mode, p = np.array([0.3, -2.0]), np.array([1.0, 0.0]), np.array([9.81])
    plain = fields_of(system)
    # A compiler may join a product and a sum, which rounds once.
    np.testing.assert_allclose(fields.flow(x, mode, p), plain.flow(x, mode, p), rtol=1e-14)
    np.testing.assert_allclose(fields.guards(x, p), plain.guards(x, p), rtol=1e-14)
    np.testing.assert_allclose(fields.gradients(x, p), plain.gradients(x, p), rtol=1e-14)
    assert fields_of(system, True).flow is fields.flow  # compiled once
    fast = EventSelectedSystem(
        x=2,
        p=1,
        guards=["foot", "wall"],
        flow=numba.njit(system.flow),
        functions=numba.njit(system.functions),
        jacobian=numba.njit(system.jacobian),
    )
    assert arity(fast.flow) == 3
    assert fields_of(fast, "auto").compiled
    assert not fields_of(fast, False).compiled
    sliced = numeric(flow=lambda x, mode, p: np.zeros((2, 3))[:, 0])
    np.testing.assert_array_equal(fields_of(sliced, True).flow(x, mode, p), [0, 0])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (dict(guards=[]), "one or more ns.Guard"),
        (dict(guards=["foot", "wall"]), "guards have to be ns.Guard objects, given str"),
        (dict(mode=ca.SX.sym("b")), "one bit per guard, 2, given 1"),
        (dict(flow=X[0]), "expected 2 rows"),
        (dict(flow=ca.vertcat(X[1], ca.SX.sym("other"))), "depends on other"),
        (dict(guards=[Guard("a", X[0]), Guard("a", X[1])]), "two guards are named 'a'"),
        (dict(guards=[Guard("a", X[0]), Guard("b", MODE[0])]), "depends on mode_0"),
        (dict(guards=[Guard("a", X[0]), Guard("b", ca.SX(1.0))]), "does not depend on x"),
        (dict(functions=len), "only with NumPy functions"),
        (dict(mode=ca.vertcat(X[0], MODE[0])), "used in both"),
        (dict(names=dict(x=["a", "a"])), "two components are named 'a'"),
        (dict(names=dict(u=["a"], y=["b"])), "unknown key of names"),
    ],
)
def test_mistakes_in_casadi(changes, said):
    with pytest.raises(ModelError, match=said):
        symbolic(**changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (dict(x=X), "expected the number of components"),
        (dict(x=0), "expected the number of components"),
        (dict(x=True), "expected the number of components"),
        (dict(mode=MODE), "leave it out"),
        (dict(jacobian=None), "jacobian: expected a function"),
        (dict(functions=None), "functions: expected a function"),
        (dict(back="positive"), "'negative' or a function"),
        (dict(back=lambda x: -x), "back_jacobian"),
        (dict(flow=lambda x: x), r"flow: expected a function of \(x, mode\)"),
        (dict(functions=lambda x: np.zeros(3)), r"shape \(2,\), given one of shape \(3,\)"),
        (dict(jacobian=lambda x: np.zeros((2, 3))), r"shape \(2, 2\), given one of shape \(2, 3\)"),
        (dict(flow_jacobian=lambda x, mode: np.zeros(2)), "flow_jacobian: expected an array of shape"),
        (dict(flow=lambda x, mode: [0.0, 0.0]), r"flow: expected an array of floats of shape \(2,\), given list"),
        (dict(functions=lambda x: np.zeros(2, dtype=int)), r"functions: expected .* of shape \(2,\), given int64"),
        (dict(guards=["a", "a"]), "two guards are named 'a'"),
        (dict(guards=[]), "one or more"),
    ],
)
def test_mistakes_in_numpy(changes, said):
    with pytest.raises(ModelError, match=said):
        numeric(**changes)


def test_state_jumps_are_refused():
    with pytest.raises(ModelError, match=r"does not jump; write impacts as an ns.CLS"):
        Guard("ground", X[0], reset=X)
    with pytest.raises(ModelError, match="non-empty string"):
        Guard("", X[0])
    with pytest.raises(ModelError, match="expected a scalar"):
        Guard("two", X)


def test_states_are_checked():
    system = symbolic()
    np.testing.assert_array_equal(system.check_state([1, 2]), [1.0, 2.0])
    with pytest.raises(ModelError, match="expected 2 numbers"):
        system.check_state([1, 2, 3])
    with pytest.raises(ModelError, match="finite"):
        system.check_state([1, np.inf])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (dict(jacobian=lambda x: np.array([[1.0, 0.0], [2 * x[0], 0.0]])), r"jacobian: entry \(0, 0\) .* is 1, .* -1"),
        (dict(flow_jacobian=lambda x, mode, p: np.eye(2)), r"flow_jacobian: entry \(0, 0\)"),
        (
            dict(back=lambda x: x - 3.0, back_jacobian=lambda x: np.array([[1.0, 0.1], [0.0, 1.0]])),
            r"back_jacobian: entry \(0, 1\) .* is 0\.1",
        ),
    ],
)
def test_derivatives_are_those_of_the_functions(changes, said):
    with pytest.raises(ModelError, match=said):
        numeric(**changes).check_state([0.5, 1.0], [0.0])
    numeric(flow_jacobian=lambda x, mode, p: np.array([[0.0, 1.0], [-mode[0], 0.0]])).check_state([0.5, 1.0], [0.0])


@pytest.mark.parametrize("kinds", ["ab", ("switch",), ("switch", "touch"), None])
def test_kinds_of_events_are_known_ones(kinds):
    with pytest.raises(ModelError, match="kinds: expected two of impact"):
        Guard("wall", X[0], kinds=kinds)
    if kinds is not None:
        with pytest.raises(ModelError, match="kinds: expected two of impact"):
            numeric(kinds=kinds)


def test_guards_in_numpy_are_names():
    with pytest.raises(ModelError, match="expected names"):
        numeric(guards=[Guard("foot", X[0]), Guard("wall", X[1])])


def test_functions_need_not_be_defined_at_zero():
    matrix = lambda x: np.diag([x[0], 1.0])  # noqa: E731
    system = numeric(flow=lambda x, mode: np.linalg.solve(matrix(x), x), p=0)
    system.check_state([1.0, 2.0])
    with pytest.raises(ModelError, match=r"flow: at x = .* it raised LinAlgError"):
        system.check_state([0.0, 2.0])
    float(numeric(flow=lambda x, mode: np.array([1 / float(x[0]), 1.0]), p=0).check_state([1.0, 2.0])[0])


def test_arguments_with_defaults_are_not_parameters():
    system = numeric(flow=lambda x, mode, k=2.0: k * np.ones(2), p_default=[5.0])
    np.testing.assert_array_equal(fields_of(system).flow(np.zeros(2), np.zeros(2), np.array([5.0])), [2.0, 2.0])
    with pytest.raises(ModelError, match=r"flow: expected a function of \(x, mode\)"):
        numeric(flow=lambda *arguments: np.zeros(2))
