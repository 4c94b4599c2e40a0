"""The brute-force oracle of contact problems against closed forms; and the comparison program that uses it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from problems.benchmarks import impact_instants
from problems.benchmarks.impact_instants import LEFT_OUT, SEVERAL, UNIQUE
from problems.runner import main
from tests.problems.command_line import run_json
from tests.references.contact_oracle import Problem, Solutions, energy_gain, impact, solutions
from tests.references.impact_instants import (
    AGREE,
    MEMBER,
    REFUSED,
    RIGHTLY,
    UNTOLD,
    WRONG,
    Answer,
    Instant,
    instant,
    verdict,
)

ROOT = np.sqrt(3.0) / 2.0
CLEAR = 1e-3  # a margin that rounding does not reach


def only(found: Solutions) -> np.ndarray:
    assert len(found.rates) == 1
    assert found.margin > CLEAR
    return found.rates[0]


def smooth(*normals: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Normals of contacts without friction, and tangents without columns."""
    made = [np.asarray(n, dtype=float) for n in normals]
    return made, [np.zeros((n.size, 0)) for n in made]


# ----------------------------------------------------------------------------------------------------- no friction


@pytest.mark.parametrize("e", [0.0, 0.6, 1.0])
def test_a_ball_bounces(e: float) -> None:
    normals, tangents = smooth([0, 1])
    found = impact(np.diag([2.0, 2.0]), np.array([0.3, -1.5]), normals, tangents, [0], [e])
    assert only(found) == pytest.approx([0.3, 1.5 * e], abs=1e-12)
    assert found.forces[0] == pytest.approx([3.0 * (1 + e)], abs=1e-12)


def test_a_closed_contact_that_separates_gets_no_rebound() -> None:
    """Alone it is left as it is; elastic restitution of it would pull."""
    normals, tangents = smooth([1])
    assert only(impact(np.eye(1), np.array([0.7]), normals, tangents, [0], [1.0])) == pytest.approx([0.7], abs=1e-14)


@pytest.mark.parametrize("e", [0.0, 0.5, 1.0])
def test_two_balls(e: float) -> None:
    """Momentum is kept, the relative velocity reversed by e."""
    mass, before = np.diag([1.0, 3.0]), np.array([2.0, -1.0])
    normals, tangents = smooth([-1, 1])
    after = only(impact(mass, before, normals, tangents, [0], [e]))
    assert after == pytest.approx([-0.25 - 2.25 * e, -0.25 + 0.75 * e], abs=1e-12)
    lost = 0.5 * 0.75 * 9.0 * (1 - e**2)
    assert energy_gain(mass, before, after) == pytest.approx(-lost, abs=1e-12)


def test_newtons_cradle_of_three_struck_at_once() -> None:
    """Both contacts in one problem: (-1/3, 2/3, 2/3), not the sequence (0, 0, 1); the energy is kept, too."""
    normals, tangents = smooth([-1, 1, 0], [0, -1, 1])
    before = np.array([1.0, 0.0, 0.0])
    after = only(impact(np.eye(3), before, normals, tangents, [0, 0], [1, 1]))
    assert after == pytest.approx([-1 / 3, 2 / 3, 2 / 3], abs=1e-12)
    assert energy_gain(np.eye(3), before, after) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(("e", "after", "energy"), [(0.5, 0.57735, 1 / 6), (0.9, 1.03923, 0.54), (1.0, 1.15470, 2 / 3)])
def test_corner_where_one_wall_is_left_and_one_struck(e: float, after: float, energy: float) -> None:
    """An angle of 120 degrees: the first wall holds the particle; by Newton's law .5 J become up to .667 J."""
    normals, tangents = smooth([1, 0], [-0.5, ROOT])
    before = np.array([0.5, -0.75 / ROOT])
    found = only(impact(np.eye(2), before, normals, tangents, [0, 0], [e, e]))
    assert found == pytest.approx([0.0, after], abs=1e-5)
    assert 0.5 * before @ before == pytest.approx(0.5, abs=1e-12)
    assert 0.5 + energy_gain(np.eye(2), before, found) == pytest.approx(energy, abs=1e-12)


def test_corner_without_restitution_is_at_a_boundary_and_says_so() -> None:
    """It stops; the wall that is left bears nothing, so that held and free are the same to rounding."""
    normals, tangents = smooth([1, 0], [-0.5, ROOT])
    found = impact(np.eye(2), np.array([0.5, -0.75 / ROOT]), normals, tangents, [0, 0], [0, 0])
    assert len(found.rates) == 1
    assert found.rates[0] == pytest.approx([0.0, 0.0], abs=1e-12)
    assert found.margin < 1e-9


def test_between_two_walls_there_is_none() -> None:
    """The rebound from one wall would penetrate the other; without restitution it stops."""
    normals, tangents = smooth([1, 0], [-1, 0])
    found = impact(np.eye(2), np.array([-1.0, 0.4]), normals, tangents, [0, 0], [0.5, 0.5])
    assert found.rates == ()
    assert found.margin > CLEAR
    stopped = impact(np.eye(2), np.array([-1.0, 0.4]), normals, tangents, [0, 0], [0, 0])
    assert len(stopped.rates) == 1
    assert stopped.rates[0] == pytest.approx([0.0, 0.4], abs=1e-12)


# --------------------------------------------------------------------------------------------------------- friction


@pytest.mark.parametrize(
    ("speed", "friction", "after"),
    [
        (3.0, 0.1, (2.85, 0.5, -0.75)),  # slips on: l = -mu L = -.15
        (0.6, 0.5, (0.5, 0.5, -0.5)),  # rolls: l = -.6 / 6, less than mu L = .75
        (-0.6, 0.05, (-0.525, 0.5, 0.375)),  # slips on: l = .075
    ],
)
def test_a_disc_on_the_ground(speed: float, friction: float, after: Any) -> None:
    """m = 1, I = .2, r = 1: t = (1, 0, 1) does not couple with n, t'M^-1 t = 6, L = 1.5."""
    normal, tangent = np.array([0.0, 1.0, 0.0]), np.array([[1.0], [0.0], [1.0]])
    mass, before = np.diag([1.0, 1.0, 0.2]), np.array([speed, -1.0, 0.0])
    assert only(impact(mass, before, [normal], [tangent], [friction], [0.5])) == pytest.approx(after, abs=1e-12)


def routh(delassus: np.ndarray, before: np.ndarray, mu: float, e: float) -> tuple[str, np.ndarray]:
    """Rates after the impact of one planar contact, by its three regimes."""
    target = -(1 + e) * before[0]
    stuck = np.linalg.solve(delassus, [target, -before[1]])
    if abs(stuck[1]) <= mu * stuck[0]:
        return "stick", before + delassus @ stuck
    side = np.sign(stuck[1])  # friction cannot bring what would stop the slip, so it slips against it
    normal = target / (delassus[0, 0] + side * mu * delassus[0, 1])
    after = before + delassus @ np.array([normal, side * mu * normal])
    return ("reverse" if after[1] * before[1] < 0 else "slip"), after


@pytest.mark.parametrize(
    ("slip", "mu", "regime"), [(-3.0, 0.1, "slip"), (0.2, 0.6, "stick"), (0.3, 0.1, "reverse"), (2.0, 0.2, "slip")]
)
def test_an_oblique_rod_slips_sticks_or_reverses(slip: float, mu: float, regime: str) -> None:
    """m = 1, I = 1/12, the end at (-.25, -.4) from the centre: normal and tangent are coupled."""
    mass = np.diag([1.0, 1.0, 1.0 / 12.0])
    normal, tangent = np.array([0.0, 1.0, -0.25]), np.array([1.0, 0.0, 0.4])
    jacobian = np.column_stack([normal, tangent])
    before = np.linalg.lstsq(jacobian.T, np.array([-1.0, slip]), rcond=None)[0]
    delassus = jacobian.T @ np.linalg.solve(mass, jacobian)
    actual, rates = routh(delassus, np.array([-1.0, slip]), mu, 0.5)
    assert actual == regime
    after = only(impact(mass, before, [normal], [tangent[:, None]], [mu], [0.5]))
    assert jacobian.T @ after == pytest.approx(rates, abs=1e-12)


@pytest.mark.parametrize("mu", [0.05, 0.5])
def test_a_sphere_on_a_plane(mu: float) -> None:
    """Slip keeps its direction, 7/2 mu (1 + e) |v_n| slower, or stops: t'M^-1 t = 7 / (2 m)."""
    m, r, e = 2.0, 0.3, 0.5
    mass = np.diag([m] * 3 + [0.4 * m * r**2] * 3)
    normal = np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    tangent = np.array([[1.0, 0.0, 0.0, 0.0, -r, 0.0], [0.0, 1.0, 0.0, r, 0.0, 0.0]]).T
    before = np.array([1.0, 0.5, -1.0, 0.2, 0.3, 0.4])
    after = only(impact(mass, before, [normal], [tangent], [mu], [e]))
    slip = tangent.T @ before
    slower = max(0.0, 1.0 - 3.5 * mu * (1 + e) / np.linalg.norm(slip))
    assert (slower > 0) == (mu < 0.2)
    assert tangent.T @ after == pytest.approx(slower * slip, abs=1e-11)
    assert normal @ after == pytest.approx(e, abs=1e-12)


def test_anisotropic_friction_is_isotropic_in_weighted_tangents() -> None:
    """A particle: |(l_1 / mu_1, l_2 / mu_2)| = L where it slips, and l dissipates most."""
    mu = np.array([0.3, 0.1])
    normal, tangent = np.array([0.0, 0.0, 1.0]), np.eye(3)[:, :2]
    found = impact(np.eye(3), np.array([2.0, 1.0, -1.0]), [normal], [tangent], [mu], [0.0])
    slip, impulse = only(found)[:2], found.forces[0]
    assert impulse[0] == pytest.approx(1.0, abs=1e-12)
    weighted = mu * slip
    assert impulse[1:] == pytest.approx(-mu * weighted / np.linalg.norm(weighted), abs=1e-11)
    assert slip == pytest.approx(np.array([2.0, 1.0]) + impulse[1:], abs=1e-12)


def test_a_box_on_four_corners_has_one_motion_and_many_impulses() -> None:
    """Redundant normals and tangents in space: it slips on, slower by mu times the impulse of 1."""
    corners = [np.array([x, y, -0.5]) for x in (-1.0, 1.0) for y in (-1.0, 1.0)]
    frames = [np.vstack([np.eye(3), np.cross(corner, np.eye(3)).T]) for corner in corners]
    normals, tangents = [frame[:, 2] for frame in frames], [frame[:, :2] for frame in frames]
    mass, before = np.diag([1.0, 1.0, 1.0, 2.0, 3.0, 4.0]), np.array([0.3, 0.4, -1.0, 0.0, 0.0, 0.0])
    found = only(impact(mass, before, normals, tangents, [0.2] * 4, [0.0] * 4))
    assert found == pytest.approx([0.18, 0.24, 0, 0, 0, 0], abs=1e-9)


@pytest.mark.parametrize(("mu", "after"), [(0.2, 0.3), (0.8, 0.0)])
def test_a_box_on_two_corners_slips_or_stops(mu: float, after: float) -> None:
    """Redundant tangents in the plane; where it stops the friction of each corner is not unique."""
    normals = [np.array([0.0, 1.0, x]) for x in (-1.0, 1.0)]
    tangents = [np.array([[1.0], [0.0], [0.5]])] * 2
    found = impact(np.diag([1.0, 1.0, 2.0]), np.array([0.5, -1.0, 0.0]), normals, tangents, [mu] * 2, [0.0] * 2)
    assert only(found) == pytest.approx([after, 0.0, 0.0], abs=1e-12)


def test_a_separating_contact_that_jams_has_three_solutions() -> None:
    """G_nn - mu G_nt < 0: it leaves, or slip presses it on, or it sticks; by hand from the three linear systems."""
    jacobian = np.array([[1.0, 0.0], [0.6, 0.8]]).T
    assert jacobian.T @ jacobian == pytest.approx(np.array([[1.0, 0.6], [0.6, 1.0]]), abs=1e-15)
    before = np.linalg.solve(jacobian.T, [0.1, 2.0])
    normal, tangent = jacobian[:, 0], jacobian[:, 1:]
    found = impact(np.eye(2), before, [normal], [tangent], [2.5], [0.3])
    assert found.margin > CLEAR
    slipping = 0.1 / (2.5 * 0.6 - 1.0)  # the normal impulse that slip forth keeps up
    rates = sorted((jacobian.T @ after).tolist() for after in found.rates)
    expected = sorted([[0.1, 2.0], [0.0, 0.0], [0.0, 2.0 + slipping * (0.6 - 2.5)]])
    assert np.array(rates) == pytest.approx(np.array(expected), abs=1e-12)


# ----------------------------------------------------------------------------------------------------- accelerations


def painleve(offset: float) -> Solutions:
    """A rod that slips already, with G_nn - mu G_nt = -.5."""
    return solutions(
        Problem(
            delassus=np.array([[1.0, 0.6], [0.6, 1.0]]),
            offset=np.array([offset, 0.0]),
            friction=(2.5,),
            tangents=(1,),
            slips=(np.array([1.0]),),
        )
    )


def test_painleves_rod_has_two_accelerations_or_none() -> None:
    several, none = painleve(1.0), painleve(-1.0)
    assert sorted(force[0] for force in several.forces) == pytest.approx([0.0, 2.0], abs=1e-12)
    assert none.rates == ()
    assert min(several.margin, none.margin) > CLEAR


@pytest.mark.parametrize(("pull", "acceleration"), [(0.2, 0.0), (0.8, 0.3)])
def test_a_block_at_rest_sticks_or_begins_to_slip_along_its_acceleration(pull: float, acceleration: float) -> None:
    direction = np.array([0.6, -0.8])
    found = solutions(
        Problem(
            delassus=np.eye(3),
            offset=np.array([-1.0, *(pull * direction)]),
            friction=(0.5,),
            tangents=(2,),
            slips=(None,),
        )
    )
    assert only(found) == pytest.approx([0.0, *(acceleration * direction)], abs=1e-11)


# --------------------------------------------------------------------------------------------------- random instants


def violation(given: Instant, after: np.ndarray, forces: np.ndarray) -> float:
    """How far v+ and impulses are from the impact law, written down once more without modes."""
    worst, momentum, n = 0.0, given.mass @ (after - given.before), 0
    for normal, tangent, mu, e in zip(given.normals, given.tangents, given.friction, given.restitution, strict=True):
        pushed, rubbed = forces[n], forces[n + 1 : n + 1 + len(mu)]
        n += 1 + len(mu)
        momentum = momentum - normal * pushed - tangent @ rubbed
        rate = normal @ after + e * min(normal @ given.before, 0.0)
        worst = max(worst, -rate, -pushed, abs(min(rate, pushed)))
        if mu:
            weighted, slip = rubbed / np.array(mu), np.array(mu) * (tangent.T @ after)
            worst = max(worst, np.linalg.norm(weighted) - pushed)
            worst = max(worst, abs(rubbed @ (tangent.T @ after) + pushed * np.linalg.norm(slip)))  # dissipates most
    return float(max(worst, np.abs(momentum).max()))


INSTANTS = [index for index in range(64) if index % 16 not in (14, 15)]  # those in space with many contacts take long


def test_solutions_of_random_instants_obey_the_law() -> None:
    counts = []
    for index in INSTANTS:
        given = instant(0, index)
        found = given.solutions()
        counts.append(len(found.rates))
        for after, forces in zip(found.rates, found.forces, strict=True):
            assert violation(given, after, forces) < 1e-8 * max(1.0, np.abs(forces).max()), index
    assert counts.count(1) > 0.8 * len(counts)


def swept(given: Instant, rng: np.random.Generator) -> np.ndarray | None:
    """A solution by sweeps over the contacts from random impulses, or None where they do not converge."""
    after, forces = given.before.copy(), [np.zeros(1 + len(mu)) for mu in given.friction]
    for force, normal, tangent in zip(forces, given.normals, given.tangents, strict=True):
        force[0] = rng.uniform(0, 2)
        after = after + np.linalg.solve(given.mass, np.column_stack([normal, tangent]) @ force)
    for _ in range(4000):
        moved = 0.0
        for force, normal, tangent, mu, e in zip(
            forces, given.normals, given.tangents, given.friction, given.restitution, strict=True
        ):
            weight = np.append(1.0, np.array(mu) / max(mu, default=1.0))
            frame = np.column_stack([normal, tangent]) * weight
            response = np.linalg.solve(given.mass, frame)
            rates = frame.T @ after
            rates[0] += e * min(normal @ given.before, 0.0)
            new = force / weight - 0.7 / np.linalg.norm(frame.T @ response, 2) * rates
            new[0] = max(new[0], 0.0)
            size, most = np.linalg.norm(new[1:]), max(mu, default=0.0) * new[0]
            new[1:] *= min(1.0, most / size) if size > 0 else 1.0
            after = after + response @ (new - force / weight)
            moved, force[:] = max(moved, float(np.abs(new - force / weight).max())), new * weight
        if moved < 1e-14:
            return after
    return None


def test_sweeps_find_nothing_that_the_enumeration_misses() -> None:
    rng, converged = np.random.default_rng(1), 0
    for index in [*INSTANTS[:28], 14]:
        given = instant(0, index)
        known = given.solutions()
        after = swept(given, rng)
        if known.margin > 1e-6 and after is not None:
            converged += 1
            assert min(np.abs(after - v).max() for v in known.rates) < 1e-9, index
    assert converged > 15


# ----------------------------------------------------------------------------------------------------------- program


def test_instants_repeat_and_are_what_they_say() -> None:
    for index in range(32):
        given, again = instant(3, index), instant(3, index)
        assert (given.before == again.before).all()
        assert (given.mass == again.mass).all()
        rates = np.array(given.normals) @ given.before
        assert rates.min() <= -0.1
        assert np.linalg.eigvalsh(given.mass).min() > 0.01
        assert given.label.startswith("space" if given.spatial else "plane")
        system = given.system()
        assert system.check_state(given.x0) == pytest.approx(given.x0)
        assert [contact.frictional for contact in system.contacts] == [bool(mu) for mu in given.friction]


def test_verdicts_tell_right_from_wrong() -> None:
    """Negative controls: a method that does nothing is wrong, one that refuses is right only where there is none."""
    given = instant(0, 5)
    right = given.solutions().rates[0]
    answers = {"right": Answer(right, True), "nothing": Answer(given.before, True), "refuses": Answer(right, False)}
    runs = {name: lambda _, __, answer=answer: answer for name, answer in answers.items()}
    row = impact_instants.compare(given, runs, impact_instants.PROGRAM.settings)
    assert row.kind == UNIQUE
    assert row.verdicts == {"right": AGREE, "nothing": WRONG, "refuses": REFUSED}
    left = impact_instants.compare(given, runs, impact_instants.PROGRAM.settings, least_margin=1.0)
    assert (left.kind, left.verdicts) == (LEFT_OUT, {})
    assert verdict(answers["refuses"], (), 0) == RIGHTLY
    assert verdict(answers["right"], (right, given.before), 2) == UNTOLD
    refusal = replace(answers["right"], said="the impact is not unique")
    assert verdict(refusal, (right, given.before), 2) == MEMBER


def test_program_with_single_contacts(capsys: pytest.CaptureFixture[str]) -> None:
    results = run_json(impact_instants.PROGRAM, capsys, "--set", "only=0,4,12", "methods=newton,event,stepping")
    assert [row["index"] for row in results["instants"]] == [0, 4, 12]
    assert results["oracle"] == {UNIQUE: 3}
    assert results["methods"].keys() == {"newton", "event", "stepping"}
    assert all(method["verdict"] == AGREE for row in results["instants"] for method in row["methods"].values())


def test_who_answers_one_of_several_solutions_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    """A closed contact that separates makes the impact ambiguous, although no step has to push it."""
    results = run_json(impact_instants.PROGRAM, capsys, "--set", "only=86", "methods=newton,event,stepping,enumeration")
    (row,) = results["instants"]
    assert row["oracle"] == SEVERAL
    assert {name: method["verdict"] for name, method in row["methods"].items()} == dict.fromkeys(row["methods"], MEMBER)


def test_a_wrong_method_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(impact_instants.PROGRAM, ["--set", "methods=newton,events"]) == 2
    assert "unknown method 'events'" in capsys.readouterr().err
