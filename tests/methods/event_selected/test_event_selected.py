"""Event-selected systems: order, closed forms, an independent integrator, trouble."""

import math

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import nosnoc_py as ns
from models import affine_guards
from nosnoc_py.errors import ModelError, OptionError
from nosnoc_py.methods.event_selected.functions import fields_of
from nosnoc_py.methods.event_selected.options import EventSelected
from nosnoc_py.methods.event_selected.record import Record, dense_output
from nosnoc_py.methods.event_selected.segments import root_of
from nosnoc_py.simulation.common import SimulationTask
from nosnoc_py.status import Status, Stop
from nosnoc_py.systems.event_selected import EventSelectedSystem, Guard
from nosnoc_py.tableaus import dopri5, radau_iia
from tests.pairwise import slow_but

# --- the affine order test of ESS, Table 1 -------------------------------------------------------------------------

START, END = np.array(affine_guards.START), affine_guards.DURATION
TIMES = affine_guards.crossing_times()  # and `exact`: held against matrix exponentials in tests/models
T_Y = TIMES["y"]
order_system, order_functions = affine_guards.build, affine_guards.build_numeric


def run(system, *, method, **given) -> ns.Trajectory:
    return method.simulate(system, SimulationTask(**given))


def exact(t: float) -> np.ndarray:
    return affine_guards.exact(t)[0]


def order_run(system=None, **options) -> ns.Trajectory:
    method = EventSelected(**{"step": 1e-3, **options})
    found = run(order_system() if system is None else system, x0=START, duration=END, method=method)
    assert found.success, found.message
    assert [event.name for event in found.events] == ["y", "z", "x"]
    return found


def rms(found) -> float:
    errors = found.x - np.array([exact(t) for t in found.t])
    return math.sqrt(np.mean((errors**2).sum(axis=1)))


def time_errors(found) -> np.ndarray:
    return np.array([abs(event.time - TIMES[event.name]) for event in found.events])


def test_the_reference_is_the_published_one():
    assert abs(T_Y - 0.209588078334645) < 1e-15
    assert TIMES["x"] == pytest.approx(0.369207153821750, abs=1e-15)
    np.testing.assert_allclose(exact(END), [0.26985042, 0.33789044, -0.3466377], atol=5e-9)


def test_two_corrections_reach_rounding():
    found = order_run(eps=0.01, corrections=2)
    assert time_errors(found).max() < 1e-12
    assert np.abs(found.final_state - exact(END)).max() < 1e-12
    assert rms(found) < 1e-13


@pytest.mark.parametrize("step", [1e-3, 1e-2])
def test_automatic_bands_are_as_good(step):
    found = order_run(step=step)
    assert time_errors(found).max() < (1e-12 if step == 1e-3 else 1e-10)
    assert found.t[-1] == END


def test_one_correction():
    assert rms(order_run(eps=0.01, corrections=1)) == pytest.approx(1.4e-9, rel=0.2)


def test_without_correction_the_times_are_off():
    errors = time_errors(order_run(eps=0.01, corrections=0))
    assert 1e-5 < errors.max() < 1e-3


def test_projection_of_the_paper():
    assert rms(order_run(eps=0.01, projection="euler")) == pytest.approx(9.72e-5, rel=0.05)


def test_projection_of_the_paper_is_of_second_order():
    widths = np.array([0.02, 0.01, 0.005, 0.0025])
    errors = [rms(order_run(eps=eps, projection="euler", step=5e-4)) for eps in widths]
    order = np.polyfit(np.log(widths), np.log(errors), 1)[0]
    assert 1.9 < order < 2.2


def test_projection_of_the_paper_is_not_precise():
    found = order_run(eps=0.01, projection="euler")
    assert np.abs(found.final_state - exact(END)).max() > 1e-6


@pytest.mark.parametrize(("stages", "steps"), [(2, (40, 80, 160)), (3, (40, 80, 160)), (4, (20, 40, 80))])
def test_the_order_of_the_scheme_is_kept_across_events(stages, steps):
    errors = []
    for count in steps:
        method = EventSelected(scheme=f"explicit_rk{stages}")
        found = run(order_system(), x0=START, duration=END, method=method, steps=count)
        errors.append(np.abs(found.final_state - exact(END)).max())
    order = np.polyfit(np.log(steps), -np.log(errors), 1)[0]
    assert stages - 0.15 < order < stages + 0.5


def test_fifth_order():
    errors, steps = [], (40, 80, 160)
    for count in steps:
        found = run(order_system(), x0=START, duration=END, method=EventSelected(), steps=count)
        errors.append(np.abs(found.final_state - exact(END)).max())
    assert 4.7 < np.polyfit(np.log(steps), -np.log(errors), 1)[0] < 5.8


def test_euler_steps_to_the_guards_lose_the_order():
    errors, steps = [], (40, 80, 160)
    for count in steps:
        method = EventSelected(projection="euler")
        found = run(order_system(), x0=START, duration=END, method=method, steps=count)
        errors.append(np.abs(found.final_state - exact(END)).max())
    assert np.polyfit(np.log(steps), -np.log(errors), 1)[0] < 3.0


def test_dense_output():
    found = order_run(step=1e-2)
    times = np.linspace(0, END, 333)
    assert np.abs(found(times) - np.array([exact(t) for t in times])).max() < 1e-8
    cubic = order_run(step=1e-2, scheme="explicit_rk4")
    assert np.abs(cubic(times) - np.array([exact(t) for t in times])).max() < 1e-6
    at = found.events[0].time
    np.testing.assert_allclose(found(at, "-"), found(at, "+"), atol=1e-14)


def test_dense_output_of_the_scheme_is_of_fourth_degree():
    # x' = f(t) of degree 3 has a solution of degree 4, which the continuous extension has to be.
    tableau, h = dopri5(), 0.7
    slopes = np.array([[[1 - 2 * s + 3 * s**2 - 4 * s**3] for s in tableau.c * h]])
    none = dict(mode=np.zeros((2, 1)), euler=np.zeros(1, dtype=bool), crossings=(), first=np.zeros(1))
    record = Record(t=np.array([0, h]), x=np.zeros((2, 1)), h=np.array([h]), slopes=slopes, **none)
    s = h * np.array([0.25, 0.5, 0.75])
    states = dense_output(tableau, record, np.zeros((1, 1))).x_stages
    np.testing.assert_allclose(states[0, :3, 0], s - s**2 + s**3 - s**4, atol=1e-15)


def test_series_of_bits():
    found = order_run()
    series = found.series["mode[y]"]
    np.testing.assert_allclose(series.t, [0, T_Y, T_Y, END], atol=1e-12)
    np.testing.assert_array_equal(series.values, [0, 0, 1, 1])


def test_no_step_of_eulers_from_where_a_guard_hardly_moves():
    """The foot is let go just above the ground: linearly, it takes seconds to reach it."""
    for v in (-1e-3, -1e-2):
        method = EventSelected(projection="euler", eps=0.01, step=1e-3)
        found = run(hopper(), x0=[1.005, v], duration=0.1, method=method, p=[100])
        expected = (v + math.sqrt(v**2 + 2 * GRAVITY * 0.005)) / GRAVITY
        assert found.events[0].time == pytest.approx(expected, abs=3e-3)
        assert np.diff(found.t).max() < 0.02


# --- CasADi and NumPy, interpreted and compiled --------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"projection": "euler", "eps": 0.01}])
def test_numpy_gives_the_same(options):
    one, other = order_run(**options), order_run(order_functions(), **options)
    assert np.abs(one.x - other.x).max() < 1e-13
    assert one.t.shape == other.t.shape


def test_compiled_gives_the_same():
    numba = pytest.importorskip("numba")
    system = order_functions()
    one, other = order_run(system), order_run(system, compiled=True)
    assert one.t.shape == other.t.shape
    assert np.abs(one.x - other.x).max() < 1e-13
    assert np.abs(one(0.123) - other(0.123)).max() < 1e-13
    paper, fast = (order_run(system, eps=0.01, projection="euler", compiled=c) for c in (False, True))
    assert np.abs(paper.x - fast.x).max() < 1e-13
    seen: list[float] = []
    method = EventSelected(step=1e-3, compiled=True)
    watched = run(system, x0=START, duration=END, method=method, callback=lambda s: seen.append(s.t))
    np.testing.assert_allclose(watched.x, other.x, rtol=0, atol=1e-13)
    assert len(seen) == len(other.t) - 1
    assert numba is not None


def test_what_cannot_be_compiled_is_named():
    pytest.importorskip("numba")
    system = order_functions()

    def flow(x, mode):
        return np.array([float(str(1.0)), math.prod(x.tolist()), 0.0])

    broken = EventSelectedSystem(
        x=3, flow=flow, functions=system.functions, jacobian=system.jacobian, guards=["x", "y", "z"]
    )
    method = EventSelected(compiled=True)
    with pytest.raises(OptionError, match="numba cannot compile flow: "):
        run(broken, x0=START, duration=END, method=method)
    assert run(broken, x0=START, duration=0.01, method=EventSelected()).success
    with pytest.raises(OptionError, match="written in CasADi"):
        run(order_system(), x0=START, duration=END, method=method)


# --- hopper and plates ---------------------------------------------------------------------------------------------

GRAVITY, TOUCHDOWN = 9.81, math.sqrt(2 / 9.81)


def plate(count: int, stiffness: float, damping: float = 0.0) -> EventSelectedSystem:
    """A plate (z, theta, their velocities) of mass 1 on springs of length 1 and of one stiffness together."""
    s = np.linspace(-1, 1, count) if count > 1 else np.zeros(1)

    def flow(x, mode):
        sine, cosine = np.sin(x[1]), np.cos(x[1])
        force = mode * (stiffness * (1 - x[0] - s * sine) - damping * (x[2] + s * cosine * x[3])) / count
        return np.array([x[2], x[3], force.sum() - GRAVITY, 3 * cosine * (force @ s)])

    def jacobian(x):
        rows = np.zeros((count, 4))
        rows[:, 0], rows[:, 1] = -1, -s * np.cos(x[1])
        return rows

    return EventSelectedSystem(
        x=4,
        flow=flow,
        functions=lambda x: 1 - x[0] - s * np.sin(x[1]),
        jacobian=jacobian,
        back="negative",
        guards=[f"leg {k}" for k in range(count)],
    )


def hopper() -> EventSelectedSystem:
    x, mode, k = ca.SX.sym("x", 2), ca.SX.sym("mode"), ca.SX.sym("k")
    flow = ca.vertcat(x[1], -GRAVITY + mode * k * (1 - x[0]))
    return EventSelectedSystem(
        x=x, mode=mode, p=k, flow=flow, guards=[Guard.contact("foot", 1 - x[0])], names=dict(p=["k"])
    )


def stance(k: float) -> float:
    """Time of z'' = k (1 - z) - g from z = 1, z' = -v back to z = 1."""
    omega, v = math.sqrt(k), GRAVITY * TOUCHDOWN
    return 2 * (math.pi - math.atan(v * omega / GRAVITY)) / omega


CASES = [(100.0, 0.357750114255292, 0.69129225, 4.01830793), (400.0, 0.16810831670011, 1.9006616, 1.39607285)]


@pytest.mark.parametrize(("k", "length", "z", "v"), CASES)
@pytest.mark.parametrize("options", [{}, {"eps": 1e-3}, {"eps": 0.02, "step": 2e-3}])
def test_hopper(k, length, z, v, options):
    method = EventSelected(**{"step": 2e-3, **options})
    found = run(hopper(), x0=[2, 0], duration=2, method=method, p=[k])
    times = [event.time for event in found.events]
    assert [event.kind for event in found.events] == ["contact", "release", "contact", "release"][: len(times)]
    assert times[0] == pytest.approx(0.4515236409857309, abs=1e-13)
    assert times[1] - times[0] == pytest.approx(length, abs=1e-9)
    assert times[1] - times[0] == pytest.approx(stance(k), abs=1e-9)
    np.testing.assert_allclose(found.final_state, [z, v], atol=2e-8)
    assert found.parameters == {"k": k}


@pytest.mark.parametrize("count", [2, 10, 100])
@pytest.mark.parametrize(("k", "length", "z", "v"), CASES)
def test_flat_plates_are_hoppers(count, k, length, z, v):
    found = run(plate(count, k), x0=[2, 0, 0, 0], duration=2, method=EventSelected(step=2e-3))
    assert found.success
    np.testing.assert_allclose(found.final_state[[0, 2]], [z, v], atol=2e-8)
    assert np.abs(found.final_state[[1, 3]]).max() < 1e-12
    assert len({event.time for event in found.events}) * count == len(found.events)


def test_wrong_sign_of_a_guard_ends_with_a_status():
    x, mode = ca.SX.sym("x", 2), ca.SX.sym("mode")
    flow = ca.vertcat(x[1], -GRAVITY + mode * 100 * (1 - x[0]))
    system = EventSelectedSystem(x=x, mode=mode, flow=flow, guards=[Guard("foot", x[0] - 1)])
    found = run(system, x0=[2, 0], duration=2, method=EventSelected())
    assert found.status is Status.NOT_EVENT_SELECTED
    assert "'foot' falls below zero again" in found.message
    # The spring is there from the start, and pulls: z - 1 = (1 + g/k) cos(10 t) - g/k.
    assert found.t[-1] == pytest.approx(math.acos(0.0981 / 1.0981) / 10, abs=0.01)


def test_a_crossing_costs_one_more_step():
    """A body that falls freely: the guard is quadratic in time, so the cubic through the first trial has its root."""
    system = plate(1, 100.0)
    calls = []

    def flow(x, mode):
        calls.append(1)
        return system.flow(x, mode)

    counted = EventSelectedSystem(
        x=4, flow=flow, functions=system.functions, jacobian=system.jacobian, back="negative", guards=["a"]
    )
    calls.clear()
    found = run(counted, x0=[2, 0, 0, 0], duration=0.6, method=EventSelected(step=0.02))
    assert len(found.events) == 1
    assert found.events[0].time == pytest.approx(TOUCHDOWN, abs=1e-14)
    segments, stages = len(found.t) - 1, 6
    assert len(calls) <= stages * (segments + 1) + 3  # at the start, after the crossing, at most one at its node
    newton = run(counted, x0=[2, 0, 0, 0], duration=0.6, method=EventSelected(step=0.02, corrections=1))
    assert 1e-12 < abs(newton.events[0].time - TOUCHDOWN) < 1e-6


def test_the_root_of_a_cubic_by_its_values_and_slopes():
    # (s + 1) (s^2 + 3) - 8 = 0 at s = 1, with the interval from 0 to 1.2
    cubic, slope = np.poly1d([1, 1, 3, -5]), np.poly1d([3, 2, 3])
    shift = root_of(1.2, cubic(0), cubic(1.2), slope(0), slope(1.2))
    assert 1.2 + shift == pytest.approx(1, abs=1e-9)
    assert abs(1.2 - cubic(1.2) / slope(1.2) - 1) > 1e-3  # Newton's
    assert root_of(1.0, -1.0, 5.0, 6.0, 6.0) == -5.0 / 6.0  # too far off: Newton's


@pytest.mark.parametrize("fast", slow_but([False], [False, True]))
def test_one_row_of_guards_stands_for_two(fast):
    """Bits that are cleared by the negative functions, said in two ways."""
    if fast:
        pytest.importorskip("numba")
    springs = np.array([-1.0, 0.2, 1.0])

    def flow(x, mode):
        force = mode * (130.0 * (1 - x[0] - springs * x[1]))
        return np.array([x[2], x[3], force.sum() - 9.81, 3 * (force * springs).sum()])

    def functions(x):
        return 1 - x[0] - springs * x[1]

    def jacobian(x):
        rows = np.zeros((3, 4))
        rows[:, 0] = -1.0
        rows[:, 1] = -springs
        return rows

    given = dict(x=4, flow=flow, functions=functions, jacobian=jacobian, guards=["a", "b", "c"])
    one = EventSelectedSystem(**given, back="negative")
    two = EventSelectedSystem(**given, back=lambda x: -functions(x), back_jacobian=lambda x: -jacobian(x))
    if fast:
        two = EventSelectedSystem(**given, back=lambda x: springs * x[1] + x[0] - 1, back_jacobian=negative_of(springs))
    method = EventSelected(step=2e-3, compiled=fast)
    start = [1.4, 0.07, 0, 0]
    left, right = (run(system, x0=start, duration=1.2, method=method) for system in (one, two))
    assert [fields_of(system, fast).rows(np.zeros(4), np.zeros(0)).shape[0] for system in (one, two)] == [1, 2]
    assert left.success
    assert len(left.events) >= 6
    assert [(e.name, e.kind) for e in left.events] == [(e.name, e.kind) for e in right.events]
    assert np.abs(left.x - right.x).max() < 1e-12


def negative_of(springs):
    """The derivative of springs x_1 + x_0 - 1, in numba's part of Python."""

    def jacobian(x):
        rows = np.zeros((3, 4))
        rows[:, 0] = 1.0
        rows[:, 1] = springs
        return rows

    return jacobian


# --- an independent integrator -------------------------------------------------------------------------------------


def referee(flow, functions, gradient_free_mode, start, duration, contact):
    """DOP853 with events, one phase after the other; the mode is kept by hand."""
    t, x, mode, events = 0.0, np.array(start, dtype=float), np.array(gradient_free_mode, dtype=float), []
    m = len(mode)
    while t < duration:
        watch = []
        for k in range(m):
            if mode[k] and not contact:
                continue
            sign = -1.0 if mode[k] else 1.0
            guard = lambda t, x, k=k, sign=sign: sign * functions(x)[k]  # noqa: E731
            guard.terminal, guard.direction, guard.index = True, 1, k
            watch.append(guard)
        found = solve_ivp(
            lambda t, x, mode=mode: flow(x, mode), (t, duration), x, "DOP853", rtol=1e-13, atol=1e-13, events=watch
        )
        t, x = found.t[-1], found.y[:, -1]
        hit = [guard.index for guard, times in zip(watch, found.t_events or [], strict=True) if len(times)]
        if found.status != 1:
            break
        for k in hit:
            mode = mode.copy()
            mode[k] = 1 - mode[k]
            events.append((t, k))
        # step off the guard, so that it is not found again
        x = x + 1e-13 * flow(x, mode)
        t = t + 1e-13
    return x, events


def random_affine(seed: int):
    """Guards with curvature, every field of which crosses all of them with speed."""
    generator = np.random.default_rng(seed)
    n, m = 4, 3
    normals = np.linalg.qr(generator.normal(size=(n, m)))[0].T
    bend = 0.05 * generator.normal(size=(m, n))
    offsets = generator.uniform(-0.6, -0.1, m)
    push = normals.T @ np.ones(m)
    drift = generator.normal(size=(m, n)) * 0.1
    linear = 0.1 * generator.normal(size=(m + 1, n, n))

    def flow(x, mode):
        return push + linear[0] @ x + mode @ drift + sum(mode[k] * linear[k + 1] @ x for k in range(m))

    def functions(x):
        return offsets + normals @ x + bend @ x**2

    def jacobian(x):
        return normals + 2 * bend * x

    return flow, functions, jacobian


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("options", [{"step": 5e-3}, {"step": 5e-3, "eps": 0.02}])
def test_random_systems(seed, options):
    flow, functions, jacobian = random_affine(seed)
    system = EventSelectedSystem(x=4, flow=flow, functions=functions, jacobian=jacobian, guards=["a", "b", "c"])
    found = run(system, x0=np.zeros(4), duration=0.8, method=EventSelected(**options))
    expected, events = referee(flow, functions, np.zeros(3), np.zeros(4), 0.8, False)
    assert found.success, found.message
    assert [event.name for event in found.events] == ["abc"[k] for _, k in events]
    np.testing.assert_allclose([event.time for event in found.events], [t for t, _ in events], atol=1e-9)
    assert np.abs(found.final_state - expected).max() < 1e-9


@pytest.mark.parametrize("seed", range(4))
def test_tilted_plates(seed):
    generator = np.random.default_rng(seed)
    system = plate(5, 400.0, damping=2.0)
    start = [generator.uniform(2, 3), generator.uniform(-0.1, 0.1), 0, 0]
    found = run(system, x0=start, duration=1.2, method=EventSelected(step=1e-3))
    expected, events = referee(system.flow, system.functions, np.zeros(5), start, 1.2, True)
    assert found.success, found.message
    assert len(found.events) == len(events) > 0
    np.testing.assert_allclose([event.time for event in found.events], [t for t, _ in events], atol=1e-9)
    assert np.abs(found.final_state - expected).max() < 1e-8


# --- events that are easy to miss ----------------------------------------------------------------------------------


def clock(guards, flow=None) -> EventSelectedSystem:
    """x_0 is the time, x_1 counts what happens: x_1' = 1 + sum of the bits, unless a flow is given."""
    x, mode = ca.SX.sym("x", 2), ca.SX.sym("mode", len(guards(ca.SX.sym("x", 2))))
    field = ca.vertcat(1, 1 + ca.sum1(mode)) if flow is None else flow(x, mode)
    return EventSelectedSystem(x=x, mode=mode, flow=field, guards=guards(x))


@pytest.mark.parametrize("step", [1e-3, 1e-2, 0.05])
@pytest.mark.parametrize("eps", ["auto", 1e-4, 0.02, 0.2])
def test_guards_close_together(step, eps):
    """Three guards, two of them nearer to each other than a step, or than the band."""
    system = clock(lambda x: [Guard("c", x[0] - 0.4), Guard("a", x[0] - 0.3), Guard("b", x[0] - 0.3001)])
    found = run(system, x0=[0, 0], duration=0.5, method=EventSelected(step=step, eps=eps))
    assert [event.name for event in found.events] == ["a", "b", "c"]
    np.testing.assert_allclose([event.time for event in found.events], [0.3, 0.3001, 0.4], atol=1e-13)
    assert found.final_state[1] == pytest.approx(0.5 + 0.2 + 0.1999 + 0.1, abs=1e-13)


@pytest.mark.parametrize("eps", ["auto", 1e-3])
def test_a_guard_between_two_nodes_is_not_leapt_over(eps):
    """Its slope is so small before that no straight line predicts the crossing."""
    system = clock(lambda x: [Guard("late", (x[0] - 0.5) ** 3 + (x[0] - 0.5) / 1000 - 1e-3)])
    found = run(system, x0=[0, 0], duration=1, method=EventSelected(step=0.25, eps=eps))
    root = np.roots([1, 0, 1e-3, -1e-3])
    expected = 0.5 + float(root[np.abs(root.imag) < 1e-12][0].real)
    assert [event.name for event in found.events] == ["late"]
    assert found.events[0].time == pytest.approx(expected, abs=1e-12)
    assert found.final_state[1] == pytest.approx(1 + (1 - expected), abs=1e-12)


@pytest.mark.parametrize("eps", ["auto", 1e-3])
@pytest.mark.parametrize("top", [0.03, 0.05, 0.09])
def test_a_touch_within_a_step_is_seen(eps, top):
    """The guard is above zero for 0.02 s, and the step is 0.1 s: contact and release are both found."""
    bump = lambda x: 1e-4 - (x[0] - 0.3 - top) ** 2  # noqa: E731
    system = clock(lambda x: [Guard.contact("bump", bump(x))])
    found = run(system, x0=[0, 0], duration=1, method=EventSelected(step=0.1, eps=eps))
    assert [event.kind for event in found.events] == ["contact", "release"]
    np.testing.assert_allclose([event.time for event in found.events], [0.29 + top, 0.31 + top], atol=1e-11)
    assert found.final_state[1] == pytest.approx(1.02, abs=1e-11)


def test_a_guard_that_is_not_reached_ends_at_the_end():
    system = clock(lambda x: [Guard("never", x[0] - 2), Guard("too low", -1e-3 - (x[0] - 0.5) ** 2)])
    found = run(system, x0=[0, 0], duration=0.777, method=EventSelected(step=0.01))
    assert found.success
    assert not found.events
    assert found.t[-1] == 0.777
    np.testing.assert_allclose(found.final_state, 0.777, atol=1e-14)


def test_hysteresis_and_initial_mode():
    """A relay: on above 1, off below -1, with the state between them at the start."""
    x, mode = ca.SX.sym("x"), ca.SX.sym("mode")
    system = EventSelectedSystem(x=x, mode=mode, flow=1 - 2 * mode, guards=[Guard("relay", x - 1, -1 - x)])
    low = run(system, x0=[0.5], duration=4, method=EventSelected())
    np.testing.assert_allclose([event.time for event in low.events], [0.5, 2.5], atol=1e-12)
    high = run(system, x0=[0.5], duration=4, method=EventSelected(initial_mode=(1,)))
    np.testing.assert_allclose([event.time for event in high.events], [1.5, 3.5], atol=1e-12)
    with pytest.raises(ModelError, match="'relay'"):
        run(system, x0=[1.5], duration=4, method=EventSelected(initial_mode=(0,)))
    with pytest.raises(OptionError, match="one bit per guard"):
        run(system, x0=[0.5], duration=4, method=EventSelected(initial_mode=(0, 1)))


# --- starts on guards, trouble -------------------------------------------------------------------------------------


def test_a_guard_on_its_surface_at_the_start():
    rising = run(clock(lambda x: [Guard("a", x[0])]), x0=[0, 0], duration=1, method=EventSelected(step=0.1))
    assert [(event.name, event.time) for event in rising.events] == [("a", 0.0)]
    assert rising.final_state[1] == pytest.approx(2, abs=1e-14)
    with pytest.raises(ModelError, match=r"'a' is on its surface at the start and D h f = -1"):
        run(clock(lambda x: [Guard("a", -x[0])]), x0=[0, 0], duration=1, method=EventSelected())
    leaving = run(hopper(), x0=[1, 3], duration=0.1, method=EventSelected(), p=[100])
    assert not leaving.events
    assert leaving["mode[foot]"].max() == 0


def sliding() -> EventSelectedSystem:
    """Filippov: towards the surface from both sides."""
    x, mode = ca.SX.sym("x"), ca.SX.sym("mode")
    return EventSelectedSystem(x=x, mode=mode, flow=1 - 2 * mode, guards=[Guard("s", x, -x)])


@pytest.mark.parametrize("projection", ["rk-newton", "euler"])
def test_sliding_is_not_event_selected(projection):
    found = run(sliding(), x0=[-0.35], duration=1, method=EventSelected(step=0.1, projection=projection))
    assert found.status is Status.NOT_EVENT_SELECTED
    assert found.t[-1] == pytest.approx(0.35, abs=1e-12)
    assert "'s'" in found.message
    assert "D h f = 1 before and -1 after" in found.message


def test_tangential_arrival_is_not_event_selected():
    system = clock(lambda x: [Guard("t", (x[0] - 0.5) ** 3)])
    found = run(system, x0=[0, 0], duration=1, method=EventSelected(step=0.03))
    assert found.status is Status.NOT_EVENT_SELECTED
    assert found.t[-1] == pytest.approx(0.5, abs=2e-4)


def test_events_that_pile_up():
    """A relay whose band shrinks with time: x_1 is its width."""
    x, mode = ca.SX.sym("x", 2), ca.SX.sym("mode")
    flow = ca.vertcat(1 - 2 * mode, -0.5 * x[1])
    system = EventSelectedSystem(x=x, mode=mode, flow=flow, guards=[Guard("relay", x[0] - x[1], -x[0] - x[1])])
    found = run(system, x0=[0, 0.1], duration=20, method=EventSelected(step=0.05, max_events=50))
    assert found.status is Status.ZENO
    assert len(found.events) == 51
    assert "more than 50 crossings" in found.message
    assert found.t[-1] < 20


def test_rest_on_a_guard_is_no_endless_loop():
    x, mode = ca.SX.sym("x", 2), ca.SX.sym("mode")
    system = EventSelectedSystem(x=x, mode=mode, flow=ca.vertcat(1, -10 * x[1]), guards=[Guard.contact("rest", x[1])])
    found = run(system, x0=[0, -1], duration=10, method=EventSelected(step=0.01))
    assert found.success
    assert not found.events


def test_what_is_not_finite_ends_with_a_status():
    x, mode = ca.SX.sym("x"), ca.SX.sym("mode")
    system = EventSelectedSystem(x=x, mode=mode, flow=x**2, guards=[Guard("far", x - 1e300)])
    found = run(system, x0=[1], duration=2, method=EventSelected(step=0.01))
    assert found.status is Status.INACCURATE  # it blows up at t = 1, and the steps are too long before
    assert found.message.startswith("the local error of the step before t = ")
    assert np.isfinite(found.x).all()
    root = EventSelectedSystem(x=x, mode=mode, flow=1, guards=[Guard("root", ca.log(0.5 - x) + 10)])
    lost = run(root, x0=[0.5 - 2e-5], duration=1, method=EventSelected(step=0.01, initial_mode=(0,)))
    assert lost.status is Status.NUMERICAL_ERROR
    assert "not finite" in lost.message
    assert 0.9 < found.t[-1] < 1.2


# --- the run -------------------------------------------------------------------------------------------------------


def test_callback_and_limits():
    seen = []

    def watch(state):
        seen.append((state.t, state.mode.copy(), state.crossings))
        return Stop if state.t > 0.25 else None

    method = EventSelected(step=1e-2)
    found = run(order_system(), x0=START, duration=END, method=method, callback=watch)
    assert found.status is Status.STOPPED
    assert found.t[-1] == pytest.approx(seen[-1][0])
    assert seen[-1][2] == 1
    np.testing.assert_array_equal(seen[-1][1], [0, 1, 0])
    whole = order_run(step=1e-2)
    np.testing.assert_allclose(whole.x[: len(found.x)], found.x, rtol=0, atol=1e-13)
    late = run(order_system(), x0=START, duration=END, method=method, time_limit=0.0)
    assert late.status is Status.TIME_LIMIT
    assert len(late.t) == 1


def test_time_limit_in_the_middle():
    found = run(order_system(), x0=START, duration=END, method=EventSelected(step=1e-6), time_limit=0.3)
    assert found.status is Status.TIME_LIMIT
    assert 0 < found.t[-1] < END
    assert np.abs(found.final_state - exact(found.t[-1])).max() < 1e-12


def test_many_chunks_are_one_motion():
    found = order_run(step=1e-4)
    assert len(found.t) > 5000
    assert np.abs(found.final_state - exact(END)).max() < 1e-12
    assert time_errors(found).max() < 1e-12


def test_steps():
    found = run(order_system(), x0=START, duration=END, method=EventSelected(), steps=10)
    assert 11 <= len(found.t) <= 17
    assert np.diff(found.t).max() < 0.05 * 1.2  # a step to a guard may be a little longer
    with pytest.raises(OptionError, match="both set the step"):
        run(order_system(), x0=START, duration=END, method=EventSelected(step=0.1), steps=10)
    with pytest.raises(OptionError, match="positive whole number"):
        run(order_system(), x0=START, duration=END, method=EventSelected(), steps=0)


def test_refused():
    x, v = ca.SX.sym("q"), ca.SX.sym("v")
    ball = ns.CLS(q=x, v=v, mass_matrix=1, force=-9.81, contacts=[ns.Contact("ground", gap=x)])
    with pytest.raises(OptionError, match=r"EventSelected does not fit an ns\.CLS; use ns"):
        ns.simulate(ball, x0=[1, 0], duration=1, method=EventSelected())
    with pytest.raises(OptionError, match="no controls"):
        ns.simulate(order_system(), x0=START, duration=END, method=EventSelected(), u=[1.0])
    with pytest.raises(OptionError, match="solver"):
        ns.simulate(order_system(), x0=START, duration=END, method=EventSelected(), solver=object())
    with pytest.raises(OptionError, match="implicit"):
        EventSelected(scheme=radau_iia(2))
    with pytest.raises(OptionError, match="explicit_rk4"):
        EventSelected(scheme="explicit_rk5")
    for wrong in ({"eps": -1.0}, {"step": 0.0}, {"initial_mode": (2,)}, {"epsilon": 1.0}, {"corrections": -1}):
        with pytest.raises(OptionError):
            EventSelected(**wrong)
