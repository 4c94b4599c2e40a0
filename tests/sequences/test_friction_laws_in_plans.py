"""Plans with friction by the place, Stribeck's law and static friction, beside optima of exact discretisations."""

import casadi as ca
import numpy as np
import pytest
from scipy.linalg import expm
from scipy.optimize import minimize_scalar

import nosnoc_py as ns

G = 9.81
SLIP, STICK = {"floor": "slip+"}, {"floor": "stick"}
# A slip begins beyond static friction by 1e-7 of it.
CLOSE = 1e-6


def task(q, v, u, push, contacts, mass, horizon, **more):
    """Return the plan from rest to rest 1 m along the first coordinate, with the least integral of u^2."""
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=mass, force=push, contacts=contacts, **more)
    ends = [ns.Constraint(q[0], equals=1.0), ns.Constraint(v[0], equals=0.0)]
    x0, wide = np.zeros(system.x.numel()), dict.fromkeys(system.control_names, (-30.0, 30.0))
    return ns.OCP(system, horizon=horizon, x0=x0, stage_cost=ca.sumsqr(u), terminal_constraints=ends, bounds=wide)


def block(friction, static=None, horizon=1.0, filtered=False):
    """Return the plan of a block of 1 kg; its force is the control, or its rate is."""
    q, v, u, f = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u"), ca.SX.sym("f")
    floor = ns.Contact("floor", gap=q[1], tangent=[1, 0], friction=friction(q), static_friction=static)
    more, push = ({"y": f, "y_rate": u}, f) if filtered else ({}, u)
    return task(q, v, u, ca.vertcat(push, -G), [floor], ca.DM.eye(2), horizon, **more)


def responses(a, b, c, lengths):
    """Return the end of x' = a x + b u + c from zero, and its derivatives by the constant controls of intervals."""
    n = len(a)
    end, slopes = np.zeros(n), np.zeros((n, len(lengths)))
    for k, h in enumerate(lengths):
        rates = np.zeros((n + 2, n + 2))
        rates[:n] = np.column_stack([a, b, c])
        step = expm(h * rates)
        end, slopes = step[:n, :n] @ end + step[:n, n + 1], step[:n, :n] @ slopes
        slopes[:, k] = step[:n, n]
    return end, slopes


def least(slopes, values, lengths):
    """Return the least sum of h u^2 with slopes u = values."""
    root = np.sqrt(lengths)
    return float(np.sum(np.linalg.lstsq(slopes / root, values, rcond=None)[0] ** 2))


def breaking_loose(sliding, static, count, length):
    """Return the least effort of a slip over 1 m in equal intervals, the first of which exceeds static friction."""
    lengths = np.full(count, length / count)
    end, slopes = responses(np.array([[0.0, 1], [0, 0]]), np.array([0, 1]), np.array([0, -sliding * G]), lengths)
    first = static * G
    return first**2 * lengths[0] + least(slopes[:, 1:], [1, 0] - end - slopes[:, 0] * first, lengths[1:])


def confirmed(solution):
    return solution.status.success and solution.certificate.verdict is ns.Verdict.CONFIRMED


def test_friction_by_the_place():
    solution = ns.solve(block(lambda q: 0.2 + 0.3 * q[0]), effort="quick", progress=False)
    lengths = np.diff(solution.u_grid)
    a, b, c = np.array([[0, 1], [-0.3 * G, 0]]), np.array([0, 1]), np.array([0, -0.2 * G])
    end, slopes = responses(a, b, c, lengths)
    assert confirmed(solution)
    assert solution.objective == pytest.approx(least(slopes, [1, 0] - end, lengths), rel=1e-8)


def test_stribecks_law():
    solution = ns.solve(
        block(lambda q: lambda s: 0.3 + 0.2 * ca.exp(-s / 0.1) + 0.05 * s), ns.MultiPhase(sequence=[SLIP], intervals=12)
    )
    # Shooting with the method of Runge and Kutta, for the same constant controls.
    u, x, cost, h = ca.MX.sym("u", 12), ca.MX.zeros(2), 0, 1 / 12 / 50
    for k in range(12):
        for _ in range(50):

            def rate(x, u=u[k]):
                return ca.vertcat(x[1], u - G * (0.3 + 0.2 * ca.exp(-x[1] / 0.1) + 0.05 * x[1]))

            k1 = rate(x)
            k2 = rate(x + h / 2 * k1)
            k3 = rate(x + h / 2 * k2)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + rate(x + h * k3))
        cost += u[k] ** 2 / 12
    nlp = ca.nlpsol("nlp", "ipopt", {"x": u, "f": cost, "g": x}, {"ipopt": {"print_level": 0}, "print_time": False})
    best = float(nlp(x0=np.linspace(10, -2, 12), lbg=[1, 0], ubg=[1, 0])["f"])
    assert confirmed(solution)
    assert solution.objective == pytest.approx(best, rel=CLOSE)


def test_a_block_breaks_loose():
    solution = ns.solve(block(lambda q: 0.4, 0.9, 2.0), ns.MultiPhase(sequence=[SLIP, STICK], intervals=40))
    count = int(np.sum(solution.u_grid < solution.events[0].time - 1e-9))
    best = minimize_scalar(lambda T: breaking_loose(0.4, 0.9, count, T), bounds=(0.5, 2.0), method="bounded").fun
    assert confirmed(solution)
    assert solution.objective == pytest.approx(best, rel=CLOSE)
    # With sliding friction alone it is .07 % less.
    alone = ns.solve(block(lambda q: 0.4, None, 2.0), ns.MultiPhase(sequence=[SLIP, STICK], intervals=40))
    assert solution.objective > 1.0005 * alone.objective


def test_a_force_that_grows_breaks_loose_where_it_reaches_static_friction():
    solution = ns.solve(block(lambda q: 0.4, 0.9, 2.0, filtered=True), progress=False)
    begin = solution.events[0].time
    count = int(np.sum(solution.u_grid < begin - 1e-9))
    a, b, c = np.eye(3, k=1), np.array([0, 0, 1]), np.array([0, -0.4 * G, 0])

    def effort(t):
        lengths = np.full(len(solution.u) - count, (2 - t) / (len(solution.u) - count))
        end, slopes = responses(a, b, c, lengths)
        end = end + expm((2 - t) * a) @ [0, 0, 0.9 * G]
        return (0.9 * G) ** 2 / t + least(slopes[:2], [1, 0] - end[:2], lengths)

    best = minimize_scalar(effort, bounds=(0.2, 1.8), method="bounded")
    assert confirmed(solution)
    assert [event.kind for event in solution.events] == ["slip"]
    assert begin == pytest.approx(best.x, abs=1e-5)
    assert solution.objective == pytest.approx(best.fun, rel=CLOSE)


def test_two_feet_break_loose_together():
    """Normal forces and friction of the feet are not unique, their sums are."""
    q, v, u = ca.SX.sym("q", 3), ca.SX.sym("v", 3), ca.SX.sym("u")
    feet = [
        ns.Contact(
            name, gap=q[1] + ca.cos(q[2]) - 1 + x * ca.sin(q[2]), tangent=[1, 0, 0], friction=0.4, static_friction=0.9
        )
        for name, x in (("left", -0.5), ("right", 0.5))
    ]
    ocp = task(q, v, u, ca.vertcat(u, -G, 0.1 * u), feet, ca.diag([1, 1, 0.1]), 2.0)
    slip, stick = ({"left": word, "right": word} for word in ("slip+", "stick"))
    solution = ns.solve(ocp, ns.MultiPhase(sequence=[slip, stick], intervals=40))
    count = int(np.sum(solution.u_grid < solution.events[0].time - 1e-9))
    best = minimize_scalar(lambda T: breaking_loose(0.4, 0.9, count, T), bounds=(0.5, 2.0), method="bounded").fun
    assert confirmed(solution)
    assert solution.objective == pytest.approx(best, rel=CLOSE)


def test_a_block_in_space_breaks_loose():
    q, v, u = ca.SX.sym("q", 3), ca.SX.sym("v", 3), ca.SX.sym("u", 2)
    turned = ca.DM([[0.6, 0.8, 0], [-0.8, 0.6, 0]]).T
    floor = ns.Contact("floor", gap=q[2], tangent=turned, friction=0.4, static_friction=0.9)
    ocp = task(q, v, u, ca.vertcat(u, -G), [floor], ca.DM.eye(3), 2.0)
    solution = ns.solve(ocp, ns.MultiPhase(sequence=[{"floor": "slip"}, STICK], intervals=40))
    count = int(np.sum(solution.u_grid < solution.events[0].time - 1e-9))
    best = minimize_scalar(lambda T: breaking_loose(0.4, 0.9, count, T), bounds=(0.5, 2.0), method="bounded").fun
    assert confirmed(solution)
    assert solution.objective == pytest.approx(best, rel=CLOSE)


def test_a_block_is_torn_loose_by_another_one_that_slides():
    """A spring joins them; the second block has friction by the place, and a wall that it never hits."""
    q, v, u = ca.SX.sym("q", 4), ca.SX.sym("v", 4), ca.SX.sym("u")
    contacts = [
        ns.Contact("floor", gap=q[1], tangent=[1, 0, 0, 0], friction=0.4, static_friction=0.9),
        ns.Contact("ramp", gap=q[3], tangent=[0, 0, 1, 0], friction=0.2 + 0.1 * q[2]),
        ns.Contact("wall", gap=9.0 - q[2]),
    ]
    spring = 20.0 * (q[2] - q[0])
    ocp = task(q, v, u, ca.vertcat(spring, -G, u - spring, -G), contacts, ca.DM.eye(4), 2.0)
    words = (("stick", "stick"), ("stick", "slip+"), ("slip+", "slip+"))
    sequence = [dict(zip(("floor", "ramp"), modes, strict=True)) for modes in words]
    solution = ns.solve(ocp, ns.MultiPhase(sequence=sequence, intervals=20))
    loose = next(event.time for event in solution.events if event.name == "floor")
    x = solution(loose)
    assert confirmed(solution)
    assert 20.0 * (x[2] - x[0]) == pytest.approx(0.9 * G, rel=CLOSE)
