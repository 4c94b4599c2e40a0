"""The derivative of event-selected motions, against saltation products, finite differences and another solver."""

import copy
from itertools import permutations, product

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.linalg import expm

import nosnoc_py as ns
from nosnoc_py.errors import OptionError, TranscriptionError
from nosnoc_py.methods.event_selected.functions import fields_of
from nosnoc_py.methods.event_selected.record import Record
from nosnoc_py.methods.event_selected.sensitivity import transports, variations_of

GRAVITY = 9.81


def simulated(system, x0, duration, *, step=1e-2, p=None, sensitivities=False, **options):
    method = ns.EventSelected(step=step, **options)
    motion = ns.simulate(system, x0=x0, duration=duration, p=p, method=method, sensitivities=sensitivities)
    motion.raise_for_status()
    return motion


def derivative(system, x0, duration, **options):
    return simulated(system, x0, duration, sensitivities=True, **options).sensitivity


def selected(mode, values):
    """An expression that is values[bits] for the bits in `mode`."""
    bits = product((0, 1), repeat=mode.numel())
    total = 0
    for chosen in bits:
        weight = 1
        for k, bit in enumerate(chosen):
            weight *= mode[k] if bit else 1 - mode[k]
        total += weight * values[chosen]
    return total


def affine_system(matrices, offsets, gradients, levels):
    """x' = A_b x + c_b for every b, with guards g'x - level."""
    some = next(iter(offsets.values()))
    x, mode = ca.SX.sym("x", len(some)), ca.SX.sym("mode", len(gradients))
    flow = selected(mode, {b: ca.DM(matrices[b]) @ x + ca.DM(offsets[b]) for b in offsets})
    guards = [
        ns.Guard(f"g{k}", ca.dot(ca.DM(g), x) - c) for k, (g, c) in enumerate(zip(gradients, levels, strict=True))
    ]
    return ns.EventSelectedSystem(x=x, mode=mode, flow=flow, guards=guards)


# The affine order test: fields A x + c for the bits of x, y, z, in closed form.


def order_fields():
    planar = {
        (0, 0): ([[0, -1], [1, 0]], [1, 1]),
        (1, 0): ([[0, -2], [0.5, 0]], [1, 2]),
        (0, 1): ([[0, 1], [-1, 0]], [1, 1]),
        (1, 1): ([[10, 0], [0, 1]], [1, 1]),
    }
    matrices, offsets = {}, {}
    for bits in product((0, 1), repeat=3):
        matrix = np.zeros((3, 3))
        matrix[:2, :2] = planar[bits[:2]][0]
        matrix[2, 2] = 3.0 if bits[2] else -1.0
        matrices[bits], offsets[bits] = matrix, np.array([*planar[bits[:2]][1], -1.0])
    return matrices, offsets, np.diag([1.0, 1.0, -1.0]), np.zeros(3)


ORDER_START, ORDER_END = np.array([-0.4, -0.15, 0.3]), 0.5


def exact_product(fields, x0, duration, crossings):
    """The flow (n,), its derivative and those of the times, from matrix exponentials and saltation matrices.

    `crossings`: pairs of a time and a guard.
    """
    matrices, offsets, gradients, _ = fields
    x, X, t, bits, times = np.array(x0), np.eye(len(x0)), 0.0, (0,) * len(gradients), []
    for time, guard in [*crossings, (duration, None)]:
        n = len(x)
        block = np.zeros((n + 1, n + 1))
        block[:n, :n], block[:n, n] = matrices[bits], offsets[bits]
        flow = expm((time - t) * block)
        x, X, t = flow[:n, :n] @ x + flow[:n, n], flow[:n, :n] @ X, time
        if guard is None:
            return x, X, np.array(times)
        before, row = matrices[bits] @ x + offsets[bits], gradients[guard]
        bits = tuple(1 if k == guard else bit for k, bit in enumerate(bits))
        after = matrices[bits] @ x + offsets[bits]
        times.append(-row @ X / (row @ before))
        X = (np.eye(n) + np.outer(after - before, row) / (row @ before)) @ X
    return None


def order_crossings():
    radius = np.hypot(1.15, 0.6)
    t_y, t_z = np.arccos(1.0 / radius) - np.arctan2(0.6, 1.15), np.log(1.3)
    return [(t_y, 1), (t_z, 2), (0.369207153821750, 0)]


@pytest.mark.parametrize("corrections", [2, 4])
def test_affine_order_test_is_the_saltation_product(corrections):
    x, X, times = exact_product(order_fields(), ORDER_START, ORDER_END, order_crossings())
    motion = simulated(
        affine_system(*order_fields()), ORDER_START, ORDER_END, sensitivities=True, step=1e-3, corrections=corrections
    )
    assert motion.final_state == pytest.approx(x, abs=1e-11)
    found = motion.sensitivity
    assert found.smooth
    assert np.abs(found.x0 - X).max() < 1e-10
    assert np.abs(found.event_times_x0 - times).max() < 1e-10
    assert found.p.shape == (3, 0)
    assert found.directional([1.0, -2.0, 0.5]) == pytest.approx(X @ [1.0, -2.0, 0.5], abs=1e-9)


def differences(of, x0, size=1e-4):
    """Central differences with one extrapolation."""

    def column(axis, s):
        return (of(x0 + s * axis) - of(x0 - s * axis)) / (2 * s)

    return np.array([(4 * column(axis, size / 2) - column(axis, size)) / 3 for axis in np.eye(len(x0))]).T


def one_sided(of, x0, v, size=1e-4):
    """Forward differences in one direction with one extrapolation."""
    start = of(x0)
    coarse, fine = ((of(x0 + s * np.asarray(v)) - start) / s for s in (size, size / 2))
    return 2 * fine - coarse


def test_the_orbital_derivative_is_known_at_every_node():
    """Behind the crossings at their nodes: there it jumps by the saltation matrix."""
    fields, crossings = order_fields(), order_crossings()
    motion = simulated(affine_system(*fields), ORDER_START, ORDER_END, sensitivities=True, step=1e-3)
    orbital = motion.sensitivity.orbital
    assert orbital.shape == (len(motion.t), 3, 3)
    expected = []
    for t in motion.t:
        first_passed = [(time, guard) for time, guard in crossings if time <= t + 1e-9]
        expected.append(exact_product(fields, ORDER_START, t, first_passed)[1])
    assert np.abs(orbital - expected).max() < 1e-10
    np.testing.assert_allclose(orbital[-1], motion.sensitivity.x0, rtol=0, atol=1e-13)
    at = int(np.flatnonzero(np.abs(motion.t - crossings[0][0]) < 1e-9)[0])
    before = exact_product(fields, ORDER_START, crossings[0][0], [])[1]
    assert np.abs(orbital[at] - before).max() > 0.1


def test_projection_of_euler_has_a_derivative_of_its_order():
    _, X, _ = exact_product(order_fields(), ORDER_START, ORDER_END, order_crossings())
    system = affine_system(*order_fields())
    errors = []
    for eps in (0.02, 0.01):
        found = derivative(system, ORDER_START, ORDER_END, projection="euler", eps=eps)
        errors.append(np.abs(found.x0 - X).max())
    assert 3.0 < errors[0] / errors[1] < 5.0  # second order, as the projection itself
    assert 1e-6 < errors[1] < 1e-2


# Compliant contacts: a hopper, a plate on springs.


def hopper(stiffness=100.0, damping=0.0, length=1.0):
    x, mode = ca.SX.sym("x", 2), ca.SX.sym("mode")
    p = ca.SX.sym("p", 3)
    force = p[0] * (p[2] - x[0]) - p[1] * x[1]
    return ns.EventSelectedSystem(
        x=x,
        mode=mode,
        p=p,
        flow=ca.vertcat(x[1], mode * force - GRAVITY),
        guards=[ns.Guard.contact("foot", p[2] - x[0])],
        p_default=[stiffness, damping, length],
    )


def plate(places, stiffness, damping, inertia=0.4):
    """Unit mass on springs with dampers of unit length at the places along it; x = (z, theta, v, omega)."""
    x, mode = ca.SX.sym("x", 4), ca.SX.sym("mode", len(places))
    force, torque, guards = -GRAVITY, 0, []
    for k, place in enumerate(places):
        height, rate = x[0] + place * ca.sin(x[1]), x[2] + place * ca.cos(x[1]) * x[3]
        push = mode[k] * (stiffness * (1 - height) - damping * rate)
        force, torque = force + push, torque + push * place * ca.cos(x[1])
        guards.append(ns.Guard.contact(f"foot{k}", 1 - height))
    flow = ca.vertcat(x[2], x[3], force, torque / inertia)
    return ns.EventSelectedSystem(x=x, mode=mode, flow=flow, guards=guards)


def referee(system, x0, duration):
    """The end of the same motion by another solver with its own event location; guards are h and -h."""
    flow = ca.Function("flow", [system.x, system.mode, system.p], [system.flow])
    guards = ca.Function("guards", [system.x, system.p], [ca.vertcat(*(guard.function for guard in system.guards))])
    p, t, x = system.p_default, 0.0, np.array(x0)
    mode = (guards(x, p).full().ravel() > 0).astype(float)

    def event(k):
        def function(_, y):
            return float(guards(y, p)[k])

        function.terminal, function.direction = True, 1.0 - 2.0 * mode[k]
        return function

    while t < duration:
        done = solve_ivp(
            lambda _, y: flow(y, mode, p).full().ravel(),
            (t, duration),
            x,
            method="DOP853",
            rtol=1e-12,
            atol=1e-13,
            events=[event(k) for k in range(mode.size)],
        )
        t, x = done.t[-1], done.y[:, -1]
        for k, found in enumerate(done.t_events):
            if found.size:
                mode[k] = 1.0 - mode[k]
    return x


@pytest.mark.parametrize("damping", [0.0, 1.5])
def test_hopper_against_another_solver(damping):
    system, x0 = hopper(damping=damping), np.array([2.0, 0.0])
    motion = simulated(system, x0, 1.0, sensitivities=True)
    assert [event.kind for event in motion.events] == ["contact", "release"]
    assert motion.sensitivity.smooth
    reference = differences(lambda start: referee(system, start, 1.0), x0, 1e-3)
    assert np.abs(motion.sensitivity.x0 - reference).max() < 1e-7


def test_hopper_by_its_parameters():
    system, x0 = hopper(damping=1.5), np.array([2.0, 0.0])
    found, p = derivative(system, x0, 1.0), np.array([100.0, 1.5, 1.0])
    ends = differences(lambda p: simulated(system, x0, 1.0, p=p).final_state, p)
    assert np.abs(found.p - ends).max() < 1e-8

    def times(p):
        return np.array([event.time for event in simulated(system, x0, 1.0, p=p).events])

    assert np.abs(found.event_times_p - differences(times, p)).max() < 1e-8
    assert found.event_times_p[0] == pytest.approx([0.0, 0.0, -1.0 / np.sqrt(2 * GRAVITY)], abs=1e-11)
    assert found.event_times_p[1, 0] < -1e-3


def test_tilted_plate_with_dampers_against_another_solver():
    system, x0 = plate((-0.5, 0.1, 0.5), 80.0, 2.0), np.array([2.0, 0.06, 0.0, 0.3])
    motion = simulated(system, x0, 0.9, sensitivities=True)
    assert len(motion.events) >= 4
    assert motion.sensitivity.smooth
    reference = differences(lambda start: referee(system, start, 0.9), x0, 1e-3)
    assert np.abs(motion.sensitivity.x0 - reference).max() < 1e-6


@pytest.mark.parametrize("damping", [0.0, 1.0])
def test_flat_plate_is_smooth_although_all_contacts_close_at_once(damping):
    """Guards of positions do not feel the jumps of the accelerations: to first order all orders are one."""
    places, x0 = (-0.5, -0.1, 0.2, 0.4), np.array([2.0, 0.0, 0.0, 0.0])
    system = plate(places, 100.0 / len(places), damping / len(places))
    motion = simulated(system, x0, 0.7, sensitivities=True)
    assert [event.kind for event in motion.events] == ["contact"] * 4
    found = motion.sensitivity
    assert found.smooth
    like = derivative(hopper(damping=damping), x0[[0, 2]], 0.7)
    assert np.abs(found.x0[np.ix_([0, 2], [0, 2])] - like.x0).max() < 1e-10
    ends = differences(lambda start: simulated(system, start, 0.7).final_state, x0, 1e-3)
    assert np.abs(found.x0 - ends).max() < 2e-7
    if damping == 0.0:  # the field is continuous, and the times are differentiable one by one
        rate = np.sqrt(2 * GRAVITY)
        assert found.event_times_x0[:, 1] == pytest.approx([place / rate for place in places], abs=1e-10)


def test_contacts_that_close_one_after_the_other_within_rounding():
    """They are assessed together, and carried one by one as they happened."""
    system, x0 = plate((-0.5, -0.1, 0.2, 0.4), 25.0, 0.25), np.array([2.0, 1e-11, 0.0, 0.0])
    motion = simulated(system, x0, 0.7, sensitivities=True)
    assert 1e-13 < motion.events[-1].time - motion.events[0].time < 1e-10
    flat = derivative(system, [2.0, 0.0, 0.0, 0.0], 0.7)
    assert motion.sensitivity.smooth
    assert np.abs(motion.sensitivity.x0 - flat.x0).max() < 1e-8
    rate = np.sqrt(2 * GRAVITY)
    assert motion.sensitivity.event_times_x0[0, 1] == pytest.approx(-0.5 / rate, abs=1e-9)


# Several guards at once: the flow is piecewise linear.


def constant_fields(fields):
    n = len(next(iter(fields.values())))
    return {b: np.zeros((n, n)) for b in fields}, fields, np.eye(n), np.zeros(n)


TWO = {(0, 0): np.array([1.0, 1.0]), (1, 0): np.array([1.0, 2.0]), (0, 1): np.array([3.0, 1.0])}
TWO[1, 1] = np.array([2.0, 2.5])


def product_of_saltations(fields, order):
    """Along an order of guards that are the coordinates, for constant fields."""
    n, bits = len(order), (0,) * len(order)
    X = np.eye(n)
    for guard in order:
        before, row = fields[bits], np.eye(n)[guard]
        bits = tuple(1 if k == guard else bit for k, bit in enumerate(bits))
        X = (np.eye(n) + np.outer(fields[bits] - before, row) / before[guard]) @ X
    return X


def test_two_guards_at_once_have_two_derivatives():
    system, x0 = affine_system(*constant_fields(TWO)), np.array([-0.5, -0.5])
    motion = simulated(system, x0, 1.0, sensitivities=True)
    found = motion.sensitivity
    assert found.flags == (
        "guards g0, g1 are crossed at once at t = 0.5: the flow is piecewise linear there, use "
        "sensitivity.directional(v)",
    )
    assert np.isnan(found.x0).all()
    assert np.isnan(found.event_times_x0).all()
    first, second = product_of_saltations(TWO, (0, 1)), product_of_saltations(TWO, (1, 0))
    assert np.abs(first - second).max() > 0.1
    for v in ([1.0, 0.3], [0.2, -0.7], [0.1, 0.05], [0.0, -1.0]):  # x is ahead of y
        there, back = found.directional(v), found.directional(-np.array(v))
        assert there == pytest.approx(first @ v, abs=1e-10)
        assert back == pytest.approx(-second @ v, abs=1e-10)
        assert np.abs(there + back).max() > 1e-2
        for side, value in ((1.0, there), (-1.0, back)):
            slope = one_sided(lambda start: simulated(system, start, 1.0).final_state, x0, side * np.array(v))
            assert value == pytest.approx(slope, abs=1e-8)


@pytest.mark.parametrize(("distance", "smooth"), [(1e-11, False), (1e-7, True)])
def test_guards_that_are_nearly_crossed_at_once(distance, smooth):
    found = derivative(affine_system(*constant_fields(TWO)), [-0.5, -0.5 - distance], 1.0)
    assert found.smooth == smooth
    if smooth:
        assert found.x0 == pytest.approx(product_of_saltations(TWO, (0, 1)), abs=1e-10)


def test_crossings_within_rounding_of_a_step():
    x, mode = ca.SX.sym("x", 2), ca.SX.sym("mode", 2)
    flow = ca.vertcat(1 + 2 * mode[1], 1 + mode[0] + mode[0] * mode[1])
    guards = [ns.Guard("first", x[0]), ns.Guard("second", x[1] - 5e-10)]
    system = ns.EventSelectedSystem(x=x, mode=mode, flow=flow, guards=guards)
    assert not derivative(system, [-0.5, -0.5], 1.0).smooth
    assert derivative(system, [-0.5, -0.5], 1.0, step=1e-3).smooth  # a part of the step, not so many seconds


@pytest.mark.parametrize("speed", [1e-6, 1.0, 1e4, 1e9])
def test_motions_are_smooth_at_all_scales_of_time(speed):
    x, mode = ca.SX.sym("x", 2), ca.SX.sym("mode")
    system = ns.EventSelectedSystem(
        x=x, mode=mode, flow=speed * ca.vertcat(1, 1 + 2 * mode), guards=[ns.Guard("g", x[0] - 0.5)]
    )
    found = derivative(system, [0.0, 0.0], 1.0 / speed, step=0.01 / speed)
    assert found.smooth
    assert np.abs(found.x0 - [[1.0, 0.0], [2.0, 1.0]]).max() < 1e-9


def test_crossings_late_in_a_long_motion_are_apart():
    """1 ms, after a million seconds."""
    x, mode = ca.SX.sym("x", 2), ca.SX.sym("mode", 2)
    flow = ca.vertcat(1 + 2 * mode[1], 1 + mode[0] + mode[0] * mode[1])
    guards = [ns.Guard("first", x[0] - 1e6), ns.Guard("second", x[1] - 1e6 - 1e-3)]
    system = ns.EventSelectedSystem(x=x, mode=mode, flow=flow, guards=guards)
    found = derivative(system, [0.0, 0.0], 1e6 + 1.0, step=1e3)
    assert found.smooth
    expected = np.array([[1.0, 0.0], [0.0, 1.0]])
    for row, before, after in (([1, 0], [1, 1], [1, 2]), ([0, 1], [1, 2], [3, 3])):
        jump = np.eye(2) + np.outer(np.subtract(after, before), row) / np.dot(row, before)
        expected = jump @ expected
    assert np.abs(found.x0 - expected).max() < 1e-9


CURVED = [{"projection": "euler"}, {"corrections": 1}, {"corrections": 0}]


@pytest.mark.parametrize("options", CURVED)
def test_projections_that_separate_what_is_crossed_at_once(options):
    """The gap that the projection makes is no order of the guards."""
    random = np.random.default_rng(11)
    for _ in range(4):
        fields = random_fields(random)
        system, x0 = affine_system(*fields), start_of(fields, 0.4)
        motion = simulated(system, x0, 0.8, sensitivities=True, **options)
        found, exact = motion.sensitivity, derivative(system, x0, 0.8)
        assert {"guards g0, g1 are", "guards g1, g0 are"} & {found.flags[0].split(" crossed")[0]}
        assert motion.events[0].name != motion.events[1].name
        for v in random.standard_normal((4, 4)):
            assert np.abs(found.directional(v) - exact.directional(v)).max() < 1e-2
        apart = derivative(system, x0 + 0.01 * np.eye(4)[0], 0.8, **options)
        assert apart.smooth


def test_three_guards_at_once_in_all_six_orders():
    random = np.random.default_rng(5)
    fields = {b: 0.5 + random.random(3) for b in product((0, 1), repeat=3)}
    system, x0 = affine_system(*constant_fields(fields)), -0.5 * fields[0, 0, 0]
    found, matrices = derivative(system, x0, 1.0), []
    for order in permutations(range(3)):
        v = np.zeros(3)
        v[list(order)] = np.array([0.9, 0.2, -0.6]) * fields[0, 0, 0][list(order)]
        matrices.append(product_of_saltations(fields, order))
        expected = matrices[-1] @ v
        assert found.directional(v) == pytest.approx(expected, abs=1e-10)
        slope = one_sided(lambda start: simulated(system, start, 1.0).final_state, x0, v)
        assert expected == pytest.approx(slope, abs=1e-8)
        others = [product_of_saltations(fields, other) @ v for other in permutations(range(3)) if other != order]
        assert min(np.abs(other - expected).max() for other in others) > 1e-3


def test_a_corner_amid_a_motion_composes():
    """Transports and crossings before and after the corner; random affine fields, against one-sided differences."""
    random = np.random.default_rng(11)
    for _ in range(3):
        fields = random_fields(random)
        system, x0 = affine_system(*fields), start_of(fields, 0.4)
        found = derivative(system, x0, 0.8)
        assert "g0, g1" in found.flags[0]
        for v in random.standard_normal((4, 4)):
            slope = one_sided(lambda start, system=system: simulated(system, start, 0.8).final_state, x0, v, 2e-5)
            assert np.abs(found.directional(v) - slope).max() < 2e-8
        v = random.standard_normal(4)
        assert np.abs(found.directional(v) + found.directional(-v)).max() > 1e-3


def random_fields(random):
    """Guards x_0, x_1 that are hit at once, and x_2 = .3 later, in four dimensions."""
    matrices = {b: 0.4 * random.standard_normal((4, 4)) for b in product((0, 1), repeat=3)}
    offsets = {b: 1.5 + 0.7 * random.random(4) for b in product((0, 1), repeat=3)}
    return matrices, offsets, np.eye(4)[:3], np.array([0.0, 0.0, 0.3])


def start_of(fields, before):
    """Where the motion starts that arrives at (0, 0, 0, .2) after so much time in mode 0."""
    bits, block = (0, 0, 0), np.zeros((5, 5))
    block[:4, :4], block[:4, 4] = fields[0][bits], fields[1][bits]
    flow = expm(-before * block)
    return flow[:4, :4] @ [0.0, 0.0, 0.0, 0.2] + flow[:4, 4]


def test_random_affine_systems_are_smooth_off_the_corners():
    random = np.random.default_rng(3)
    for _ in range(3):
        fields = random_fields(random)
        system, x0 = affine_system(*fields), start_of(fields, 0.4) + 0.05 * np.eye(4)[0]
        motion = simulated(system, x0, 0.8, sensitivities=True)
        crossings = [(event.time, int(event.name[1:])) for event in motion.events]
        _, X, times = exact_product(fields, x0, 0.8, crossings)
        assert np.abs(motion.sensitivity.x0 - X).max() < 1e-9
        assert np.abs(motion.sensitivity.event_times_x0 - times).max() < 1e-9


# The ends of a motion.


def test_a_crossing_at_the_end_counts_on_one_side_only():
    fields = {(0,): np.array([1.0, 0.0]), (1,): np.array([2.0, 3.0])}
    system = affine_system(*one_guard(fields))
    found = derivative(system, [-0.5, 0.0], 0.5)
    assert found.flags == (
        "guard g0 is crossed at the end, t = 0.5: the flow is piecewise linear there, use sensitivity.directional(v)",
    )
    assert found.directional([1.0, 0.0]) == pytest.approx([2.0, 3.0], abs=1e-12)
    assert found.directional([-1.0, 0.0]) == pytest.approx([-1.0, 0.0], abs=1e-12)
    assert derivative(system, [-0.5, 0.0], 0.6).smooth
    assert derivative(system, [-0.5, 0.0], 0.4).smooth


def test_a_start_on_a_guard_counts_on_one_side_only():
    fields = {(0,): np.array([1.0, 0.0]), (1,): np.array([2.0, 3.0])}
    system = affine_system(*one_guard(fields))
    found = derivative(system, [0.0, 0.0], 0.5)
    assert found.flags == (
        "guard g0 is crossed at the start, t = 0: the flow is piecewise linear there, use sensitivity.directional(v)",
    )
    for side in (1.0, -1.0):
        slope = one_sided(lambda start: simulated(system, start, 0.5).final_state, np.zeros(2), [side, 0.0])
        assert found.directional([side, 0.0]) == pytest.approx(slope, abs=1e-10)
    assert found.directional([1.0, 0.0]) == pytest.approx([1.0, 0.0], abs=1e-12)
    assert found.directional([-1.0, 0.0]) == pytest.approx([-2.0, -3.0], abs=1e-12)


def test_a_start_within_rounding_of_a_guard():
    fields = {(0,): np.array([1.0, 0.0]), (1,): np.array([2.0, 3.0])}
    found = derivative(affine_system(*one_guard(fields)), [-1e-11, 0.0], 0.5)
    assert found.flags[0].startswith("guard g0 is crossed at the start, t = 1e-11: ")


def test_an_end_within_rounding_behind_a_guard():
    fields = {(0,): np.array([1.0, 0.0]), (1,): np.array([2.0, 3.0])}
    motion = simulated(affine_system(*one_guard(fields)), [-0.5 + 1e-11, 0.0], 0.5, sensitivities=True)
    assert len(motion.events) == 1
    assert motion.sensitivity.flags[0].startswith("guard g0 is crossed at the end, t = 0.49999999999: ")


def test_an_end_on_a_guard_that_rises_slowly():
    x, mode = ca.SX.sym("x", 2), ca.SX.sym("mode")
    flow = ca.vertcat(1, 1 + 2 * mode)
    system = ns.EventSelectedSystem(x=x, mode=mode, flow=flow, guards=[ns.Guard("slow", 1e-3 * (x[0] - 0.5))])
    assert derivative(system, [0.0, 0.0], 0.5).flags[0].startswith("guard slow is crossed at the end, t = 0.5")


def test_a_start_on_a_contact_that_opens():
    """A state that begins below the ground is pushed by spring and damper until it leaves."""
    system, x0 = hopper(damping=5.0), np.array([1.0, 3.0])
    motion = simulated(system, x0, 0.1, sensitivities=True)
    found = motion.sensitivity
    assert found.flags == (
        "guard foot is left at the start, t = 0: the flow is piecewise linear there, use sensitivity.directional(v)",
    )
    assert not motion.events
    assert found.event_times_x0.shape == (0, 2)
    for v in ([1.0, 0.0], [-1.0, 0.0], [-0.7, 0.4]):
        slope = one_sided(lambda start: simulated(system, start, 0.1).final_state, x0, v, 1e-5)
        assert found.directional(v) == pytest.approx(slope, abs=1e-6)
    assert found.directional([1.0, 0.0]) == pytest.approx([1.0, 0.0], abs=1e-12)
    assert found.directional([-1.0, 0.0]) == pytest.approx([-1.5, -5.0], abs=1e-12)


def test_a_start_on_a_contact_that_opens_with_a_continuous_field():
    """Smooth, and the events of the motion keep their derivatives: it falls down again."""
    system, x0 = hopper(), np.array([1.0, 3.0])
    motion = simulated(system, x0, 0.8, sensitivities=True)
    found = motion.sensitivity
    assert found.smooth
    assert [event.kind for event in motion.events] == ["contact"]
    for v in ([1.0, 0.5], [-1.0, 0.5]):
        slope = one_sided(lambda start: simulated(system, start, 0.8).final_state, x0, v, 1e-5)
        assert found.x0 @ v == pytest.approx(slope, abs=1e-5)
    assert found.event_times_x0 == pytest.approx(np.array([[1.0 / 3.0, 2.0 / GRAVITY]]), abs=1e-9)


def test_a_start_where_a_guard_with_hysteresis_falls_keeps_the_bit():
    x, mode = ca.SX.sym("x", 2), ca.SX.sym("mode")
    guard = ns.Guard("relay", x[0], -x[0] - 1.0)
    system = ns.EventSelectedSystem(x=x, mode=mode, flow=ca.vertcat(-1, 1 + mode), guards=[guard])
    found = derivative(system, [0.0, 0.0], 0.5, initial_mode=(1,))
    assert found.smooth
    assert found.x0 == pytest.approx(np.eye(2), abs=1e-14)


def test_a_continuous_field_is_smooth_at_the_end():
    motion = simulated(hopper(), [2.0, 0.0], np.sqrt(2.0 / GRAVITY), sensitivities=True)
    assert len(motion.sensitivity.event_times_x0) == len(motion.events) <= 1  # rounding decides whether it is reached
    assert motion.sensitivity.smooth
    assert motion.sensitivity.x0 == pytest.approx(np.array([[1.0, motion.duration], [0.0, 1.0]]), abs=1e-10)
    assert derivative(hopper(damping=1.0), [2.0, 0.0], np.sqrt(2.0 / GRAVITY)).flags


def one_guard(fields):
    return {b: np.zeros((2, 2)) for b in fields}, fields, np.array([[1.0, 0.0]]), np.zeros(1)


# Crossings that are one within rounding, and steps.


def test_a_bit_that_is_set_and_cleared_within_rounding():
    """In a simulation: each crossing has the row of its own function, and z counts the time in contact."""
    x, mode = ca.SX.sym("x", 3), ca.SX.sym("mode", 2)
    guards = [ns.Guard.contact("wall", x[0]), ns.Guard("turn", x[1] - 1e-10)]
    system = ns.EventSelectedSystem(x=x, mode=mode, flow=ca.vertcat(1 - 2 * mode[1], 1, mode[0]), guards=guards)
    x0, v = np.array([-0.5, -0.5, 0.0]), np.array([0.2, -0.4, 0.0])
    motion = simulated(system, x0, 1.0, sensitivities=True)
    assert [event.name for event in motion.events] == ["wall", "turn", "wall"]
    found = motion.sensitivity
    assert found.flags[0].startswith("guards wall, turn are crossed there and back at once at t = 0.5")
    assert found.directional(v) == pytest.approx([1.0, -0.4, 1.2], abs=1e-9)
    slope = one_sided(lambda start: simulated(system, start, 1.0).final_state, x0, v)
    assert found.directional(v) == pytest.approx(slope, abs=1e-5)
    at = int(np.flatnonzero(np.abs(motion.t - 0.5) < 1e-9)[0])
    assert np.isfinite(found.orbital[:at]).all()  # up to the corner, and no further
    assert np.isnan(found.orbital[at:]).all()


def test_transports_are_derivatives_of_the_steps():
    """Of a pendulum: the step by finite differences, and an Euler step of the same length by its Jacobian."""
    x, mode = ca.SX.sym("x", 2), ca.SX.sym("mode")
    system = ns.EventSelectedSystem(
        x=x, mode=mode, flow=ca.vertcat(x[1], -(1 + 4 * mode) * ca.sin(x[0])), guards=[ns.Guard("g", x[0] - 9)]
    )
    scheme, start, length = ns.EventSelected().tableau, np.array([0.7, -0.3]), 0.3

    def slopes_of(x0):
        slopes = np.zeros((scheme.stages, 2))
        for i in range(scheme.stages):
            angle, rate = x0 + length * scheme.a[i] @ slopes
            slopes[i] = rate, -5.0 * np.sin(angle)
        return slopes

    slopes = slopes_of(start)
    record = Record(
        t=np.array([0.0, length, 2 * length]),
        x=np.array([start, start, start]),
        mode=np.ones((3, 1), dtype=np.int8),
        h=np.array([length, length]),
        slopes=np.array([slopes, np.vstack([slopes[:1], 0 * slopes[1:]])]),
        euler=np.array([False, True]),
        crossings=(),
        first=np.ones(1, dtype=np.int8),
    )
    step, straight = transports(variations_of(system, fields_of(system)), record, scheme, np.zeros(0))
    expected = differences(lambda x0: x0 + length * scheme.b @ slopes_of(x0), start, 1e-3)
    assert np.abs(step - expected).max() < 1e-11
    tangent = np.array([[1.0, length], [-5.0 * length * np.cos(0.7), 1.0]])
    assert np.abs(straight - tangent).max() < 1e-15
    assert np.abs(step - tangent).max() > 1e-2


def test_steps_of_euler_need_no_other_stages():
    """Where they would be, beyond the guard, the flow is not defined."""
    x, mode = ca.SX.sym("x"), ca.SX.sym("mode")
    flow = ca.if_else(mode > 0.5, 1.0, 0.5 + ca.sqrt(0.52 - x))
    system = ns.EventSelectedSystem(x=x, mode=mode, flow=flow, guards=[ns.Guard("g", x - 0.5)])
    found = derivative(system, [0.44], 0.2, step=0.05, projection="euler", eps=0.1)
    assert np.isfinite(found.x0).all()
    assert found.x0[0, 0] == pytest.approx(1.0 / (0.5 + np.sqrt(0.08)), abs=0.1)  # f+ / f- of a short way


def test_a_direction_that_is_no_event_selected_motion_is_refused():
    fields = {**TWO, (0, 1): np.array([-1.0, 1.0])}
    found = derivative(affine_system(*constant_fields(fields)), [-0.5, -0.5], 1.0)
    with pytest.raises(TranscriptionError, match=r"guard 'g0' is not crossed at t = 0\.5"):
        found.directional([0.0, 1.0])


def test_a_direction_that_turns_back_behind_a_guard_is_refused():
    fields = {(0, 0): np.array([1.0, 1.0]), (1, 0): np.array([-1.0, 1.0]), (0, 1): np.array([1.0, 2.0])}
    fields[1, 1], x0 = np.array([1.0, 1.0]), np.array([-0.5, -0.5])
    system = affine_system(*constant_fields(fields))
    found = derivative(system, x0, 1.0)
    with pytest.raises(TranscriptionError, match=r"guard 'g0' is not crossed at t = 0\.5 with speed"):
        found.directional([1.0, 0.0])
    method = ns.EventSelected(step=1e-2)
    motion = ns.simulate(system, x0=[-0.4999, -0.5], duration=1.0, method=method)
    assert motion.status == ns.Status.NOT_EVENT_SELECTED
    v = np.array([0.0, 1.0])
    slope = one_sided(lambda start: simulated(system, start, 1.0).final_state, x0, v)
    assert found.directional(v) == pytest.approx(slope, abs=1e-8)


def test_a_relay_may_turn_the_motion_back():
    """Its bit is cleared elsewhere; z counts the time between the relay and the other guard."""
    x, mode = ca.SX.sym("x", 3), ca.SX.sym("mode", 2)
    guards = [ns.Guard("relay", x[0], -x[0] - 1.0), ns.Guard("other", x[1])]
    flow = ca.vertcat(1 - 2 * mode[0], 1, 2 * mode[0] * (1 - mode[1]))
    system = ns.EventSelectedSystem(x=x, mode=mode, flow=flow, guards=guards)
    x0 = np.array([-0.5, -0.5, 0.0])
    found = derivative(system, x0, 1.0)
    for v, expected in (([1.0, 0.0, 0.0], [-1.0, 0.0, 2.0]), ([0.0, 1.0, 0.0], [0.0, 1.0, 0.0])):
        slope = one_sided(lambda start: simulated(system, start, 1.0).final_state, x0, v)
        assert slope == pytest.approx(expected, abs=1e-8)
        assert found.directional(v) == pytest.approx(expected, abs=1e-12)


# Functions of NumPy, and what is refused.


def numeric(**changes):
    def flow(x, mode):
        return np.array([x[1], mode[0] * (100.0 * (1.0 - x[0]) - 1.5 * x[1]) - GRAVITY])

    def flow_jacobian(x, mode):
        return np.array([[0.0, 1.0], [-100.0 * mode[0], -1.5 * mode[0]]])

    given = {
        "x": 2,
        "flow": flow,
        "guards": ["foot"],
        "functions": lambda x: np.array([1.0 - x[0]]),
        "jacobian": lambda x: np.array([[-1.0, 0.0]]),
        "back": "negative",
        "flow_jacobian": flow_jacobian,
    }
    return ns.EventSelectedSystem(**{**given, **changes})


def test_functions_of_numpy_give_the_same():
    found, like = derivative(numeric(), [2.0, 0.0], 1.0), derivative(hopper(damping=1.5), [2.0, 0.0], 1.0)
    assert np.abs(found.x0 - like.x0).max() < 1e-12
    assert np.abs(found.event_times_x0 - like.event_times_x0).max() < 1e-12


def test_functions_of_numpy_need_a_jacobian_and_no_parameters():
    with pytest.raises(OptionError, match="flow_jacobian"):
        derivative(numeric(flow_jacobian=None), [2.0, 0.0], 1.0)
    with pytest.raises(OptionError, match="2 parameters"):
        derivative(numeric(p=2, p_default=[1.0, 2.0]), [2.0, 0.0], 1.0)


def test_directions_do_not_travel():
    found = derivative(affine_system(*constant_fields(TWO)), [-0.5, -0.5], 1.0)
    other = copy.deepcopy(found)  # by the protocol that pickles use, too
    assert other.flags == found.flags
    with pytest.raises(TranscriptionError, match="right after"):
        other.directional([1.0, 0.0])
