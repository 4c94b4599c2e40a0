"""Tables over time as expressions, and as parameters that change without building anything again."""

import casadi as ca
import numpy as np
import pytest
from scipy.interpolate import CubicSpline

import nosnoc_py as ns

pytestmark = pytest.mark.quick

TIMES, VALUES = (
    np.array([0.0, 0.5, 0.7, 1.5, 2.0]),
    np.array([[0.3, 1.0], [-0.2, 0.5], [0.9, 0.4], [0.1, -1], [0.5, 2]]),
)


def by_lines(t):
    """NumPy's lines."""
    return np.transpose([np.interp(t, TIMES, column) for column in VALUES.T])


def by_spline(t):
    """SciPy's natural spline, with lines outside."""
    spline, inside = CubicSpline(TIMES, VALUES, bc_type="natural"), np.clip(t, TIMES[0], TIMES[-1])
    return spline(inside) + (t - inside)[:, None] * spline(inside, 1)


@pytest.mark.parametrize("name", [None, "load"])
@pytest.mark.parametrize(("interpolation", "reference"), [("linear", by_lines), ("cubic", by_spline)])
def test_values_are_those_of_scipy(interpolation, reference, name):
    """Inside and outside of the table, with numbers and with symbols of the values."""
    t, data = ca.SX.sym("t"), ns.Data(TIMES, VALUES, interpolation=interpolation, name=name)
    function = ca.Function("data", [t, data.p], [data(t)])
    at = np.linspace(-0.5, 2.5, 41)
    values = VALUES.reshape(-1) if name else np.zeros(0)
    found = np.array([np.array(function(time, values))[:, 0] for time in at])
    np.testing.assert_allclose(found, reference(at), rtol=0, atol=1e-13)


def cart(name="way"):
    """A mass between the origin and a wall that follows a table."""
    q, v, u, t, m = (ca.SX.sym(symbol) for symbol in ("q", "v", "u", "t", "m"))
    way = ns.Data([0, 0.5, 2.0], [1.0, 0.5, -1.0], name=name, interpolation="cubic")
    wall, mass = ns.Contact("wall", gap=way(t) - q, restitution=1), {"p": m, "p_default": [2.0], "names": {"p": ["m"]}}
    return ns.CLS(q=q, v=v, u=u, t=t, mass_matrix=m, force=u, contacts=[wall], data=[way], **mass)


def test_values_are_parameters_by_the_name_of_the_data():
    """Their defaults are the table; own parameters may be given alone, all together, or by name."""
    s = cart()
    assert s.parameter_names == ("m", "way[0]", "way[1]", "way[2]")
    assert s.parameters().tolist() == [2, 1, 0.5, -1]
    assert s.parameters([3.0]).tolist() == [3, 1, 0.5, -1]
    assert s.parameters({"way": [2, 2, 2]}).tolist() == [2, 2, 2, 2]
    assert cart(name=None).parameter_names == ("m",)


def test_a_wall_that_follows_a_table_is_hit_exactly():
    """With 1 m/s all the time, for the values lie on a line: a mass at .7 is met at .3 s and leaves twice as fast."""
    for s in (cart(), cart(name=None)):
        motion = ns.simulate(s, x0=[0.7, 0], duration=1.0)
        assert motion.impacts[0].time == pytest.approx(0.3, abs=1e-9)
        np.testing.assert_allclose(motion.final_state[:2], [0.7 - 2 * 0.7, -2.0], rtol=0, atol=1e-8)
    still = ns.simulate(cart(), x0=[0.7, 0], duration=1.0, p={"way": [1, 1, 1]})
    assert not still.impacts


def test_a_program_is_solved_again_for_other_data():
    """Four intervals follow a line, then its negative: half of the slope at the start by symmetry, exactly."""
    x, u, t = ca.SX.sym("x"), ca.SX.sym("u"), ca.SX.sym("t")
    way = ns.Data([0, 1], [0.0, 1.0], name="way")
    system = ns.ODE(x=x, u=u, t=t, flow=u, data=[way])
    ocp = ns.OCP(system, horizon=1.0, x0=[0.0], stage_cost=ns.least_squares(x, way(t)))
    problem = ns.transcribe(ocp, ns.FESD(control_stages=4, finite_elements=1))
    for slope in (1.0, -2.0):
        solution = problem.solve(p={"way": [0.0, slope]})
        np.testing.assert_allclose(solution.u[:, 0], slope, rtol=0, atol=1e-6)


def test_a_gap_does_not_follow_lines_with_corners():
    """Nor |t - .5|: its rate jumps, and a body on it would get impulses without an impact."""
    q, v, t = (ca.SX.sym(symbol) for symbol in "qvt")
    lines = ns.Data([0, 0.5, 1.0], [1.0, 0.5, 1.0])
    for gap in (q - lines(t), q - ca.fabs(t - 0.5)):
        with pytest.raises(ns.ModelError, match="contact 'wall': its prescribed motion has a velocity that jumps"):
            ns.CLS(q=q, v=v, t=t, mass_matrix=1, force=0, contacts=[ns.Contact("wall", gap=gap)])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ns.Data([0], [1]), "times: expected two or more that increase, given"),
        (lambda: ns.Data([1, 0], [1, 2]), "times: expected two or more that increase"),
        (lambda: ns.Data([0, 1], [1]), r"values: expected one number or one row for each of the 2 times, .* \(1,\)"),
        (lambda: ns.Data([0, 1], [1, np.nan]), "have to be finite; leave out what was not measured"),
        (lambda: ns.Data([0, 1], ["a", "b"]), "values: expected numbers"),
        (lambda: ns.Data([0, 1], [1, 2], interpolation="spline"), "unknown interpolation 'spline'"),
        (lambda: ns.Data([0, 1], [1, 2], name=""), "the name has to be a non-empty string"),
        (lambda: ns.ODE(x=ca.SX.sym("x"), flow=0, data=3), "data: expected a sequence of ns.Data, given int"),
        (lambda: cart().parameters({"way": [1, 2]}), "p: way: expected 3 numbers, given 2"),
        (lambda: cart().parameters({"path": [1, 2]}), "unknown component of p 'path'"),
    ],
)
def test_mistakes_are_told(make, message):
    """What is given and what is expected."""
    with pytest.raises(ns.ModelError, match=message):
        make()
