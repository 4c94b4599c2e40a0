"""The closed forms of friction against an event-driven integration that is written here and knows none of them.

The integrator takes only M, f, gaps and directions of a system: contact problems (velocities at impacts, accelerations
after every event) by Gauss-Seidel with the projection of De Saxce, smooth phases by DOP853, events by root finding.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import solve_ivp

import nosnoc_py as ns
from tests.pairwise import slow_but
from tests.references.friction_closed_forms import BY_NAME, CASES
from tests.references.friction_motion import Case, line, motion

Array = NDArray[np.float64]
TINY = 1e-9


@dataclass
class Mechanics:
    """Numbers of a system; `grip` and `bounce` multiply friction and restitution, to be wrong on purpose."""

    system: ns.CLS
    grip: float = 1.0
    bounce: float = 1.0
    names: list[str] = field(init=False)

    def __post_init__(self) -> None:
        s = self.system
        self.names = [c.name for c in s.contacts]
        tangents = [c.tangent for c in s.contacts]
        outputs = [s.mass_matrix, ca.vertcat(*[c.gap for c in s.contacts])]
        outputs += [ca.horzcat(*[s.normal(c) for c in s.contacts]), ca.horzcat(*tangents)]
        self.shape = ca.Function("shape", [s.q], outputs)
        self.push = ca.Function("push", [s.q, s.v, s.u], [s.force])
        self.friction = [self.grip * c.friction[0] for c in s.contacts]
        self.restitution = [self.bounce * c.restitution for c in s.contacts]
        self.n_t = tangents[0].shape[1]

    def at(self, q: Array) -> tuple[Array, Array, Array, list[Array]]:
        """Inverse mass matrix, gaps, normals (n_q, contacts), tangents (n_q, n_t) of every contact."""
        mass, gaps, normals, tangents = (np.array(value) for value in self.shape(q))
        split = [tangents[:, k * self.n_t : (k + 1) * self.n_t] for k in range(len(self.names))]
        return np.linalg.inv(mass), gaps.ravel(), normals, split

    def force(self, x: Array, u: Array) -> Array:
        n = len(x) // 2
        return np.array(self.push(x[:n], x[n:], u)).ravel()


def contact_problem(
    delassus: Array, free: Array, friction: list[float], sliding: list[Array | None], n_t: int
) -> tuple[Array, Array]:
    """Forces (contacts, 1 + n_t) of the Coulomb law and what they lead to; a sliding contact's direction is known."""
    size = 1 + n_t
    p = np.zeros(len(free))
    for _ in range(3000):
        before = p.copy()
        for c, (mu, direction) in enumerate(zip(friction, sliding, strict=True)):
            rows = slice(c * size, (c + 1) * size)
            w = free[rows] + delassus[rows] @ p
            step = 1.0 / np.trace(delassus[rows, rows])
            if direction is not None:
                normal = max(p[c * size] - step * w[0], 0.0)
                p[rows] = np.concatenate([[normal], -mu * normal * direction])
            else:
                shifted = w.copy()
                shifted[0] += mu * np.linalg.norm(w[1:])
                p[rows] = onto_cone(p[rows] - step * shifted, mu)
        if np.abs(p - before).max(initial=0.0) < 1e-15 * (1.0 + np.abs(p).max(initial=0.0)):
            break
    return p.reshape(-1, size), (free + delassus @ p).reshape(-1, size)


def onto_cone(z: Array, mu: float) -> Array:
    """Nearest point of |p_t| <= mu p_n."""
    reach = float(np.linalg.norm(z[1:]))
    if reach <= mu * z[0]:
        return z
    if mu * reach <= -z[0]:
        return np.zeros_like(z)
    normal = (z[0] + mu * reach) / (1.0 + mu**2)
    return np.concatenate([[normal], mu * normal * z[1:] / reach])


@dataclass
class Modes:
    """Contacts that are closed; for those that slip, the direction at the start; whether forces are unique."""

    closed: list[int]
    slip: dict[int, Array]
    unique: bool | None = None

    @property
    def stick(self) -> list[int]:
        return [c for c in self.closed if c not in self.slip]


# By default a third: the event-driven simulation is held against all of them (tests/simulation).
SOME = [case.name for case in CASES[::3]]


def integrate(case: Case, grip: float = 1.0, bounce: float = 1.0) -> tuple[list[Any], list[tuple[str, str, float]]]:
    """Dense solutions of all phases, and events."""
    mechanics = Mechanics(case.system, grip, bounce)
    t, x, phases, events = 0.0, case.x0.copy(), [], []
    modes, _ = restart(mechanics, x, case.u, t, {}, None)
    while True:
        found = phase(mechanics, case, modes, t, x)
        phases.append(found)
        fired = [k for k, times in enumerate(found.t_events) if times.size]
        if not fired:
            return phases, events
        t, x = float(found.t[-1]), found.y[:, -1]
        modes, new = restart(mechanics, x, case.u, t, watched(modes, len(mechanics.names))[fired[0]], modes)
        events += new


def watched(modes: Modes, contacts: int) -> list[dict[str, int]]:
    """What the events of a phase mean, in their order."""
    return [
        *({"touch": c} for c in range(contacts) if c not in modes.closed),
        *({"stop": c} for c in modes.slip),
        *({"loose": c} for c in modes.stick if modes.unique),
        *({"lift": c} for c in modes.closed if modes.unique),
    ]


def forces(mechanics: Mechanics, modes: Modes, x: Array, u: Array) -> tuple[Array, dict[int, float], dict[int, Array]]:
    """Acceleration, normal forces and friction of the modes: contacts stay closed, sticking ones stay at rest."""
    n = len(x) // 2
    inverse, _, normals, tangents = mechanics.at(x[:n])
    columns, rows = [], []
    for c in modes.closed:
        push = normals[:, c].copy()
        if c in modes.slip:
            push -= mechanics.friction[c] * tangents[c] @ slip_direction(tangents[c].T @ x[n:], modes.slip[c])
        columns.append(push)
        rows.append(normals[:, c])
    for c in modes.stick:
        columns += list(tangents[c].T)
        rows += list(tangents[c].T)
    free = inverse @ mechanics.force(x, u)
    if not columns:
        return free, {}, {}
    left, right = np.array(rows), np.array(columns).T
    matrix = left @ inverse @ right
    solution = np.linalg.lstsq(matrix, -left @ free, rcond=1e-12)[0]
    if modes.unique is None:  # asked once per phase
        modes.unique = bool(np.linalg.matrix_rank(matrix, tol=1e-10) == len(matrix))
    count = len(modes.closed)
    friction = {
        c: solution[count + k * mechanics.n_t : count + (k + 1) * mechanics.n_t] for k, c in enumerate(modes.stick)
    }
    return free + inverse @ right @ solution, dict(zip(modes.closed, solution[:count], strict=True)), friction


def slip_direction(velocity: Array, start: Array) -> Array:
    speed = np.linalg.norm(velocity)
    return velocity / speed if speed > 1e-4 else start  # close to rest the quotient is rounding, and stiff


def phase(mechanics: Mechanics, case: Case, modes: Modes, t: float, x: Array) -> Any:
    """Integrate to the next event or to the end."""
    n = len(x) // 2
    forces(mechanics, modes, x, case.u)

    def rates(_: float, x: Array) -> Array:
        return np.concatenate([x[n:], forces(mechanics, modes, x, case.u)[0]])

    def value(meaning: dict[str, int], x: Array) -> float:
        ((kind, c),) = meaning.items()
        if kind == "touch":
            return float(mechanics.at(x[:n])[1][c])
        if kind == "stop":
            return float(modes.slip[c] @ mechanics.at(x[:n])[3][c].T @ x[n:])
        _, normal, friction = forces(mechanics, modes, x, case.u)
        return normal[c] if kind == "lift" else mechanics.friction[c] * normal[c] - float(np.linalg.norm(friction[c]))

    def event_of(meaning: dict[str, int]) -> Any:
        def event(_: float, x: Array) -> float:
            return value(meaning, x)

        event.terminal, event.direction = True, -1.0  # type: ignore[attr-defined]
        return event

    events = [event_of(meaning) for meaning in watched(modes, len(mechanics.names))]
    options = {"method": "DOP853", "rtol": 1e-12, "atol": 1e-13, "dense_output": True, "max_step": 0.05}
    return solve_ivp(rates, (t, case.duration), x, events=events, **options)


def restart(
    mechanics: Mechanics, x: Array, u: Array, t: float, fired: dict[str, int], old: Modes | None
) -> tuple[Modes, list[tuple[str, str, float]]]:
    """Impacts (x is changed), modes of the next phase, and the events that this is worth."""
    n, events = len(x) // 2, []
    inverse, gaps, normals, tangents = mechanics.at(x[:n])
    frames = [np.column_stack([normals[:, c], tangents[c]]) for c in range(len(gaps))]
    closed = [c for c in range(len(gaps)) if gaps[c] < TINY and fired.get("lift") != c]
    hit = [c for c in closed if normals[:, c] @ x[n:] < -TINY]
    stopped = [] if hit or old is None else [c for c in old.slip if np.linalg.norm(tangents[c].T @ x[n:]) < TINY]
    if hit:
        x[n:] = impact(mechanics, inverse, frames, closed, x[n:])
        events += [("impact", mechanics.names[c], t) for c in hit]
    closed = [c for c in closed if abs(normals[:, c] @ x[n:]) < TINY]
    modes = onset(mechanics, inverse, frames, closed, x, u, fired, old)
    events += [("contact", mechanics.names[c], t) for c in hit if c in modes.closed]
    events += [("release", mechanics.names[c], t) for kind, c in fired.items() if kind == "lift"]
    events += [("slip", mechanics.names[c], t) for kind, c in fired.items() if kind == "loose"]
    events += [("reversal" if c in modes.slip else "stick", mechanics.names[c], t) for c in stopped]
    return modes, events


def impact(mechanics: Mechanics, inverse: Array, frames: list[Array], closed: list[int], v: Array) -> Array:
    """Newton's law with friction, for all closed contacts at once."""
    frame = np.hstack([frames[c] for c in closed])
    free = (frame.T @ v).reshape(len(closed), -1)
    for row, c in zip(free, closed, strict=True):
        row[0] += mechanics.restitution[c] * min(row[0], 0.0)
    friction = [mechanics.friction[c] for c in closed]
    none = [None] * len(closed)
    impulses, _ = contact_problem(frame.T @ inverse @ frame, free.ravel(), friction, none, mechanics.n_t)
    return np.asarray(v + inverse @ frame @ impulses.ravel())


def onset(
    mechanics: Mechanics,
    inverse: Array,
    frames: list[Array],
    closed: list[int],
    x: Array,
    u: Array,
    fired: dict[str, int],
    old: Modes | None,
) -> Modes:
    """Modes after an event, from the contact problem of the accelerations."""
    n = len(x) // 2
    if not closed:
        return Modes([], {})
    frame = np.hstack([frames[c] for c in closed])
    speeds = [frames[c][:, 1:].T @ x[n:] for c in closed]
    moving = [w / np.linalg.norm(w) if np.linalg.norm(w) > TINY else None for w in speeds]
    friction = [mechanics.friction[c] for c in closed]
    free = frame.T @ inverse @ mechanics.force(x, u)
    force, rate = contact_problem(frame.T @ inverse @ frame, free, friction, moving, mechanics.n_t)
    kept = [i for i in range(len(closed)) if force[i, 0] > TINY or abs(rate[i, 0]) < TINY]
    slip: dict[int, Array] = {}
    for i in kept:
        size = np.linalg.norm(rate[i, 1:])
        if moving[i] is not None:
            slip[closed[i]] = moving[i]
        elif fired.get("loose") == closed[i]:
            assert old is not None
            grip = forces(mechanics, old, x, u)[2][closed[i]]
            slip[closed[i]] = -grip / np.linalg.norm(grip)
        elif size > TINY:
            slip[closed[i]] = rate[i, 1:] / size
    return Modes([closed[i] for i in kept], slip)


def states(phases: list[Any], t: Array) -> Array:
    starts = [found.t[0] for found in phases]
    return np.array([phases[max(np.searchsorted(starts, time, side="right") - 1, 0)].sol(time) for time in t])


def largest_error(case: Case, **wrong: float) -> float:
    """Over 40 times that keep a distance from the events."""
    phases, _ = integrate(case, **wrong)
    t = np.linspace(0.0, case.duration, 41)
    for _, _, time in case.events:
        t = t[np.abs(t - time) > 1e-6]
    return float(np.abs(states(phases, t) - case.exact(t)).max())


@pytest.mark.parametrize("case", slow_but(SOME, CASES), ids=lambda case: case.name)
def test_states_and_events_agree_with_the_integration(case: Case) -> None:
    phases, events = integrate(case)
    t = np.linspace(0.0, case.duration, 41)
    for _, _, time in case.events:
        t = t[np.abs(t - time) > 1e-6]
    np.testing.assert_allclose(states(phases, t), case.exact(t), atol=1e-9)
    assert sorted(event[:2] for event in events) == sorted(event[:2] for event in case.events)
    for (*_, found), (*_, exact) in zip(sorted(events), sorted(case.events), strict=True):
        assert found == pytest.approx(exact, abs=1e-9)


SLIPPING = ["slip_2d", "reversal_3d", "slope_slide_2d", "slope_curve_3d", "bounce_slip_3d", "corner_edge_stop_3d"]
SLIPPING += [
    "stick_to_slip_2d",
    "release_3d",
    "stack_caught_2d",
    "rod_flat_slip_2d",
    "rod_tip_slip_2d",
    "rod_tip_kick_2d",
]


@pytest.mark.parametrize("name", SLIPPING)
def test_another_friction_is_told_apart(name: str) -> None:
    assert largest_error(BY_NAME[name], grip=0.95) > 1e-3


@pytest.mark.parametrize("name", ["bounce_stick_2d", "three_landing_3d", "corner_bounce_3d", "wall_bounce_2d"])
def test_another_restitution_is_told_apart(name: str) -> None:
    assert largest_error(BY_NAME[name], bounce=0.95) > 1e-3


@pytest.mark.parametrize(
    "name", ["stick_3d", "slope_rest_2d", "bounce_stick_3d", "stack_as_one_2d", "rod_tip_stick_2d"]
)
def test_a_little_more_friction_does_not_matter_in_stick(name: str) -> None:
    """All of these but the driven stack stick with a reserve."""
    error = largest_error(BY_NAME[name], grip=1.02)
    assert (error > 1e-3) == (name == "stack_as_one_2d")


def test_the_set_is_complete() -> None:
    kinds = {kind for case in CASES for kind, _, _ in case.events}
    assert kinds == {"impact", "contact", "release", "slip", "stick", "reversal"}
    assert {case.dimension for case in CASES} == {2, 3}
    assert {len(case.system.contacts) for case in CASES} == {1, 2, 3}
    assert len(BY_NAME) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_one_event_time_in_the_whole_motion(case: Case) -> None:
    """So any number of steps will do; with two times, one step each."""
    expected = 2 if case.name.startswith("landing_stop") else 1
    assert case.event_times <= expected
    assert all(0.0 < time < case.duration for _, _, time in case.events)
    assert case.system.check_state(case.x0).shape == case.x0.shape
    assert case.u.shape == (case.system.n_u,)


@pytest.mark.parametrize("case", slow_but(SOME, CASES), ids=lambda case: case.name)
def test_no_motion_penetrates(case: Case) -> None:
    for x in case.exact(np.linspace(0.0, case.duration, 200)):
        case.system.check_state(x, tolerance=1e-14)


def test_states_are_right_limits() -> None:
    case = BY_NAME["bounce_slip_2d"]
    ((_, _, hit),) = case.events
    before, after = case.exact([np.nextafter(hit, 0.0), hit])
    assert before[3] == pytest.approx(-9.81 * hit, rel=1e-12)
    assert after[3] == pytest.approx(0.5 * 9.81 * hit, rel=1e-12)
    assert before[2] - after[2] == pytest.approx(0.5 * 1.5 * 9.81 * hit, rel=1e-12)
    assert after[1] == 0.0


def test_known_times() -> None:
    """The numbers of the notes: stop from 2 m/s, reversal from -2 m/s under 8 N, with mu = 0.5."""
    assert BY_NAME["slip_to_stick_2d"].events[0][2] == pytest.approx(0.407747196738, abs=1e-12)
    assert BY_NAME["slip_to_stick_2d"].exact(0.7)[0] == pytest.approx(0.407747196738, abs=1e-12)
    assert BY_NAME["reversal_3d"].events[0][2] == pytest.approx(0.154978690430, abs=1e-12)


def test_line_rules() -> None:
    assert line(0.0, 3.0, 4.0).pieces == ((0.0, 0.0, 0.0),)
    assert line(0.0, -5.0, 4.0).pieces == ((0.0, 0.0, -1.0),)
    assert line(-1.0, -5.0, 4.0).event is None
    assert line(2.0, 0.0, 4.0).event == ("stick", 0.5)
    assert line(2.0, -5.0, 4.0).event == ("reversal", 2.0 / 9.0)
    assert line(2.0, 0.0, 4.0).events(["a", "b"], 1.0, 0.1) == (("stick", "a", 0.6), ("stick", "b", 0.6))
    assert line(2.0, 0.0, 4.0).events(["a"], 0.5) == ()


def test_motion_is_the_polynomial_of_its_derivatives() -> None:
    moved = motion([1.0], [2.0], [3.0], [4.0]).then(0.5, v=[-1.0], at={0: 7.0})
    np.testing.assert_allclose(moved(0.25), [1 + 0.5 + 3 / 32 + 4 / 384, 2 + 0.75 + 4 / 32], rtol=1e-15)
    np.testing.assert_array_equal(moved([0.5, 1.0]), [[7.0, -1.0], [6.5, -1.0]])
