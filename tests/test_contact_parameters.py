"""Friction and restitution as expressions of parameters: by every method the same as the numbers they stand for."""

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns

START, VALUES = [0.0, 1.0, 2.0, 0.0], [0.6, 0.05]
EXACT = ns.EventDriven(rtol=1e-12, atol=1e-12)


def puck(restitution, friction, **more):
    """A puck in the plane that is thrown over the ground; its horizontal force is the control."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    ground = ns.Contact("ground", gap=q[1], tangent=[1, 0], friction=friction, restitution=restitution)
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.SX.eye(2), force=ca.vertcat(u, -9.81), contacts=[ground], **more)


@pytest.fixture(scope="module")
def numbers():
    """A puck with numbers."""
    return puck(*VALUES)


@pytest.fixture(scope="module")
def symbols():
    """The same with symbols."""
    p = ca.SX.sym("p", 2)
    return puck(p[0], p[1], p=p, p_default=VALUES, names={"p": ["e", "mu"]})


def problem(system, **more):
    """Slide a meter within a second, past two impacts."""
    cost = 10 * (system.q[0] - 1) ** 2
    bounds = ns.Bounds(u=(-20, 20))
    return ns.OCP(system, horizon=1.0, x0=START, stage_cost=system.u**2, terminal_cost=cost, bounds=bounds, **more)


@pytest.mark.quick
@pytest.mark.parametrize(
    ("method", "more"),
    [(ns.EventDriven(), {}), (ns.FESDJ(rk_stages=2), {"steps": 12}), (ns.TimeStepping(step=1e-2), {})],
)
def test_a_simulation_is_that_of_the_numbers(numbers, symbols, method, more):
    """To rounding: the same expressions are evaluated with numbers in other places."""
    one, other = (ns.simulate(s, x0=START, duration=1.5, method=method, **more) for s in (numbers, symbols))
    assert one.success
    assert other.success
    np.testing.assert_allclose(other.final_state, one.final_state, rtol=0, atol=1e-11)
    assert [event.kind for event in other.events] == [event.kind for event in one.events]


@pytest.mark.quick
@pytest.mark.parametrize("method", [ns.EventDriven(), ns.FESDJ(rk_stages=2)])
@pytest.mark.parametrize("values", [[0.0, 0.3], [0.9, 0.0], [0.0, 0.0], [1.0, 0.1]])
def test_values_may_change_the_kind_of_motion(symbols, method, values):
    """Inelastic, smooth and elastic contacts are values like others."""
    steps = {"steps": 12} if isinstance(method, ns.FESDJ) else {}
    one = ns.simulate(symbols, x0=START, duration=1.2, p=values, method=method, **steps)
    other = ns.simulate(puck(*values), x0=START, duration=1.2, method=EXACT)
    assert one.success
    np.testing.assert_allclose(one.final_state, other.final_state, rtol=0, atol=1e-7)


@pytest.mark.quick
@pytest.mark.parametrize("method", [ns.EventDriven(), ns.FESDJ(rk_stages=2)])
def test_derivatives_by_the_coefficients(symbols, method):
    """Past two impacts with slip; the second time of impact depends on e."""
    steps = {"steps": 10} if isinstance(method, ns.FESDJ) else {}
    found = ns.simulate(symbols, x0=START, duration=1.0, method=method, sensitivities=True, **steps).sensitivity.p

    def end(values):
        return ns.simulate(symbols, x0=START, duration=1.0, p=values, method=EXACT).final_state

    shifts = 1e-5 * np.eye(2)
    differences = [(end(VALUES + d) - end(VALUES - d)) / 2e-5 for d in shifts]
    assert min(abs(slope).max() for slope in differences) > 10  # both are felt
    np.testing.assert_allclose(found, np.transpose(differences), rtol=0, atol=1e-6)


@pytest.mark.quick
def test_the_end_of_a_stick_depends_on_friction():
    """u(t) = 10 t pushes a block on the ground: it slips from t = mu g / 10 on."""
    mu = ca.SX.sym("mu")
    q, v, clock, one = (ca.SX.sym(name) for name in ("x", "v", "clock", "one"))
    y, w = ca.SX.sym("y"), ca.SX.sym("w")
    system = ns.CLS(
        q=ca.vertcat(q, y, clock),
        v=ca.vertcat(v, w, one),
        p=mu,
        p_default=[0.3],
        mass_matrix=ca.SX.eye(3),
        force=ca.vertcat(10 * clock, -9.81, 0),
        contacts=[ns.Contact("ground", gap=y, tangent=[1, 0, 0], friction=mu)],
    )
    motion = ns.simulate(system, x0=[0, 0, 0, 0, 0, 1], duration=0.5, sensitivities=True)
    slip = next(k for k, event in enumerate(motion.events) if event.kind == "slip")
    assert motion.events[slip].time == pytest.approx(0.2943, abs=1e-9)
    assert motion.sensitivity.event_times_p[slip, 0] == pytest.approx(0.981, abs=1e-7)
    # v(T) = 5 (T^2 - t^2) - mu g (T - t) with t = mu g / 10.
    assert motion.sensitivity.p[3, 0] == pytest.approx(-9.81 * (0.5 - 0.2943), abs=1e-6)


def test_a_multi_phase_program_is_that_of_the_numbers(numbers, symbols):
    """The same program, with the same optimum."""
    one, other = (ns.solve(problem(s), ns.MultiPhase()) for s in (numbers, symbols))
    assert one.success
    assert other.success
    assert other.objective == pytest.approx(one.objective, rel=1e-7)
    assert ns.certify(problem(symbols), other)


@pytest.mark.quick
@pytest.mark.parametrize("options", [{}, {"elastic": "spring_damper"}])
def test_time_freezing_with_a_symbolic_restitution(options):
    """The auxiliary motions have the restitution as an expression; that of a constant force is exact."""
    p, fesd = ca.SX.sym("e"), ns.FESD(finite_elements=4)
    method = ns.TimeFreezing(fesd=fesd, **options)
    systems = (puck(0.6, 0.0), puck(p, 0.0, p=p, p_default=[0.6]))
    one, other = (ns.simulate(s, x0=START, duration=0.8, steps=8, method=method) for s in systems)
    assert one.success
    assert other.success
    np.testing.assert_allclose(other.final_state, one.final_state, rtol=0, atol=1e-7)
    if not options:  # the spring is as exact as the elements resolve half an oscillation
        assert other.final_state[3] == pytest.approx(-9.81 * 0.8 + 1.6 * np.sqrt(2 * 9.81), abs=1e-5)


@pytest.mark.quick
def test_time_freezing_with_symbolic_friction():
    """Without restitution; friction may be an expression."""
    p, method = ca.SX.sym("mu"), ns.TimeFreezing(fesd=ns.FESD(control_stages=4, finite_elements=3))
    systems = (puck(0.0, 0.3), puck(0.0, p, p=p, p_default=[0.3]))
    guesses = [ns.simulate(system, x0=START, duration=1.0) for system in systems]
    one, other = (ns.solve(problem(s), method, guess=guess) for s, guess in zip(systems, guesses, strict=True))
    assert one.success
    assert other.success
    assert other.objective == pytest.approx(one.objective, rel=1e-6)


@pytest.mark.quick
def test_a_restitution_is_found(symbols):
    """The first impact is at t = sqrt(2 / g); e is such that the puck is .2 m high at the end."""
    wanted = 10 * (symbols.q[1] - 0.2) ** 2
    ocp = ns.OCP(
        symbols,
        horizon=0.9,
        x0=START,
        stage_cost=symbols.u**2,
        terminal_cost=wanted,
        bounds=ns.Bounds(u=(-20, 20)),
        free_parameters={"e": (0.1, 0.9)},
    )
    solution = ns.solve(ocp, ns.MultiPhase())
    g, t = 9.81, np.sqrt(2 / 9.81)
    after = 0.9 - t
    assert solution.success
    assert solution.p[0] == pytest.approx((0.2 + 0.5 * g * after**2) / (g * t * after), abs=1e-6)
    assert solution.p[1] == VALUES[1]


@pytest.mark.quick
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([1.2, 0.1], r"contact 'ground': restitution has to lie in \[0, 1\], given 1.2 at p = \[1.2, 0.1\]"),
        ([0.5, -0.1], r"contact 'ground': friction has to be nonnegative, given -0.1 at p = \[0.5, -0.1\]"),
    ],
)
def test_values_are_checked(symbols, values, message):
    """Where p is given: in a simulation, in a problem, when it is solved again."""
    with pytest.raises(ns.ModelError, match=message):
        ns.simulate(symbols, x0=START, duration=0.1, p=values)
    with pytest.raises(ns.ModelError, match=message):
        problem(symbols, p=values)
    with pytest.raises(ns.ModelError, match=message):
        ns.transcribe(problem(symbols), ns.FESDJ(control_stages=2)).solve(p=values)
    p = ca.SX.sym("p", 2)
    with pytest.raises(ns.ModelError, match=message):
        puck(p[0], p[1], p=p, p_default=values)


@pytest.mark.quick
@pytest.mark.parametrize("bounds", [(0.1, 1.5), (-0.5, 0.5)])
def test_bounds_of_free_parameters_are_checked(symbols, bounds):
    """A solver would go there."""
    p0 = [0.3, 0.05]
    with pytest.raises(ns.ModelError, match=r"free parameter 'e' may become .*restitution has to lie in \[0, 1\]"):
        problem(symbols, p=p0, free_parameters={"e": bounds})


@pytest.mark.quick
def test_mistakes_are_told():
    """Coefficients of states, of foreign symbols, or of the wrong number."""
    q, stranger = ca.SX.sym("q", 2), ca.SX.sym("e")
    base = {"q": q, "v": ca.SX.sym("v", 2), "mass_matrix": ca.SX.eye(2), "force": ca.SX(2, 1)}
    with pytest.raises(ns.ModelError, match="contact 'ground': coefficients depends on e, which is not among p"):
        ns.CLS(**base, contacts=[ns.Contact("ground", gap=q[1], restitution=stranger)])
    with pytest.raises(ns.ModelError, match="contact 'ground': coefficients depends on q_0, which is not among p"):
        ns.CLS(**base, contacts=[ns.Contact("ground", gap=q[1], restitution=q[0])])
    # Friction may depend on the place; see test_friction_laws.
    with pytest.raises(ns.ModelError, match="contact 'ground': friction depends on e, which is not among q, v, p"):
        ns.CLS(**base, contacts=[ns.Contact("ground", gap=q[1], tangent=[1, 0], friction=stranger)])
    with pytest.raises(ns.ModelError, match="friction: expected one coefficient, or 1, given 2"):
        ns.Contact("ground", gap=q[1], tangent=[1, 0], friction=[stranger, stranger])
    with pytest.raises(ns.ModelError, match="needs a direction"):
        ns.Contact("ground", gap=q[1], friction=stranger)


@pytest.mark.quick
def test_an_anisotropic_cone_of_symbols():
    """Two coefficients in space, of which nobody knows which is larger."""
    p = ca.SX.sym("p", 2)

    def block(friction, **more):
        q, v = ca.SX.sym("q", 3), ca.SX.sym("v", 3)
        tangent = np.eye(3)[:, :2]
        contact = ns.Contact("ground", gap=q[2], tangent=tangent, friction=friction)
        return ns.CLS(q=q, v=v, mass_matrix=ca.SX.eye(3), force=ca.vertcat(0, 0, -9.81), contacts=[contact], **more)

    start = [0, 0, 0, 1.0, 2.0, 0]
    one = ns.simulate(block([0.2, 0.5]), x0=start, duration=0.5)
    other = ns.simulate(block([p[0], p[1]], p=p, p_default=[0.2, 0.5]), x0=start, duration=0.5)
    np.testing.assert_allclose(other.final_state, one.final_state, rtol=0, atol=1e-8)
    assert abs(one.final_state[3] - 1.0) > 0.1
