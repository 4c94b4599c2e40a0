"""Every law of contacts: what obeys it passes, what breaks it is named, by how much, whatever the units are."""

from __future__ import annotations

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.audit.contacts import laws_of_impacts, laws_of_motion
from nosnoc_py.audit.records import Jumps, MotionSamples, Scales, violations, worst_of
from nosnoc_py.simulation.certification.readings import ContactReading
from nosnoc_py.solution import RungeKuttaInterpolant, Series
from nosnoc_py.solution.violation import Law
from nosnoc_py.tolerances import BROKEN
from nosnoc_py.transcription.audited import measured
from tests.simulation.claimed import solution_of

pytestmark = pytest.mark.quick

GRAVITY = 9.81
FAST = 10.0  # [m/s]
SCALES = Scales(length=5.0, speed=FAST, acceleration=GRAVITY, response=0.5)


def point(friction: float = 0.5, restitution: float = 0.5, unit: float = 1.0) -> ns.CLS:
    """A point mass of 2 kg over the ground, whose gap is measured in a unit of one's own."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    more = {"tangent": ca.DM([1, 0]), "friction": friction} if friction else {}
    ground = ns.Contact("ground", gap=unit * q[1], restitution=restitution, **more)
    return ns.CLS(q=q, v=v, mass_matrix=2.0 * ca.DM.eye(2), force=ca.DM([0, -2.0 * GRAVITY]), contacts=[ground])


def broken(system: ns.CLS, before: list[float], after: list[float]) -> dict[Law, float]:
    """The laws that a jump breaks, and by which share."""
    jumps = Jumps(t=np.zeros(1), x_before=np.array([before], float), x_after=np.array([after], float))
    worst = [one.worst() for one in laws_of_impacts(system, jumps, SCALES, np.zeros(0))]
    return {one.law: one.share for one in worst if one is not None and one.share > 1e-12}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([0, 0, 2, -3], [0, 0, 0, 1.5]),  # it sticks
        ([0, 0, 5, -3], [0, 0, 2.75, 1.5]),  # it slips, friction takes .5 (1 + .5) 3
        ([0, 0, -5, -3], [0, 0, -2.75, 1.5]),
        ([0, 0, 1, 2], [0, 0, 1, 2]),  # it leaves
        ([0, 0, 1, 0], [0, 0, 1, 0]),  # it slides on
        ([0, 1, 1, -3], [0, 1, 1, -3]),  # it flies
        ([0, 0, 0, -1e-3], [0, 0, 0, 0]),  # so slow that it need not bounce
        ([0, 0, 0, -1e-3], [0, 0, 0, 5e-4]),
        ([0, 5e-7, 0, -2], [0, 5e-7, 0, 1]),  # closed to the tolerance
    ],
)
def test_what_obeys(before: list[float], after: list[float]) -> None:
    assert all(share <= 1e-7 for share in broken(point(), before, after).values())


@pytest.mark.parametrize("unit", [1.0, 1e-4, 1e3])
@pytest.mark.parametrize(
    ("before", "after", "law", "size"),
    [
        ([0, 0, 5, -3], [0, 0, 2.5, 2.0], Law.RESTITUTION, 0.5),
        ([0, 0, 5, -3], [0, 0, 3.0, 1.0], Law.SEPARATION, 0.5),
        ([0, 0, 0, -0.1], [0, 0, 0, 0], Law.SEPARATION, 0.05),  # .1 m/s has to bounce
        ([0, 0, 0, 0], [0, 0, 0, -1], Law.PULL, 1.0),
        ([0, 1e-3, 0, -2], [0, 1e-3, 0, 1], Law.IMPULSES, 3.0),  # open
    ],
)
def test_what_does_not(before: list[float], after: list[float], law: Law, size: float, unit: float) -> None:
    """Without friction, which counts normal forces in the unit of the gap."""
    assert broken(point(0.0, unit=unit), before, after)[law] == pytest.approx(size / FAST, rel=1e-9)


@pytest.mark.parametrize(
    ("before", "after", "law", "size"),
    [
        ([0, 0, 5, -3], [0, 0, 0, 1.5], Law.CONE, 2.75),
        ([0, 0, 5, -3], [0, 0, 4, 1.5], Law.DISSIPATION, 1.25),
        ([0, 0, 2, -3], [0, 0, 0.5, 1.5], Law.DISSIPATION, 0.5),  # the smaller side: what slips on, and .75 of friction
        ([0, 0, 0, 0], [0, 0, 1e-3, 0], Law.CONE, 1e-3),
    ],
)
def test_friction_of_impacts(before: list[float], after: list[float], law: Law, size: float) -> None:
    assert broken(point(), before, after)[law] == pytest.approx(size / FAST, rel=1e-9)


def test_a_contact_that_separates_gets_no_rebound_but_may_be_held() -> None:
    """Two bodies leave each other with 1 m/s when both are hit: gamma+ is 0 or more, never -e gamma-."""
    assert broken(point(0.0, 0.5), [0, 0, 0, 1], [0, 0, 0, 1]) == {}
    held = broken(point(0.0, 0.5), [0, 0, 0, 1], [0, 0, 0, 0])
    assert Law.RESTITUTION not in held
    assert Law.SEPARATION not in held  # only the impulse would have to pull
    pushed = broken(point(0.0, 0.5), [0, 0, 0, 1], [0, 0, 0, -0.5])
    assert pushed[Law.SEPARATION] == pytest.approx(0.5 / FAST, rel=1e-9)


def test_without_friction_nothing_explains_a_jump_sideways() -> None:
    found = broken(point(friction=0.0), [0, 0, 1, -3], [0, 0, 1.2, 1.5])
    assert found == {Law.IMPULSES: pytest.approx(0.02, rel=1e-9)}


@pytest.mark.parametrize(("gap", "later", "counts"), [(0.5e-7, 1.0, True), (2e-7, 1.0, False), (0.5e-7, 3e-8, False)])
def test_a_contact_that_approaches_after_a_jump_may_have_its_impact_at_once(
    gap: float, later: float, counts: bool
) -> None:
    """3 m/s are missing; they close 1.5e-7 m within 1e-7 of 5 m / 10 m/s, unless another jump follows by then."""
    x = np.array([[0.0, gap, 0.0, -2.0]] * 2)
    jumps = Jumps(t=np.array([0.0, later]), x_before=x, x_after=np.array([x[0], [0.0, gap, 0.0, 1.0]]))
    residuals = {one.law: one for one in laws_of_impacts(point(0.0), jumps, SCALES, np.zeros(0))}
    assert residuals[Law.SEPARATION].shares[0, 0] == pytest.approx(3.0 / FAST if counts else 0.0, rel=1e-9)


@pytest.mark.parametrize("slower", [4.0, 0.25])
def test_shares_are_the_same_in_other_units_of_length_and_time(slower: float) -> None:
    """A motion of lengths times s^2 in times longer by s, under the same gravity: speeds are s times as large."""
    before, after = [0.0, 2e-8, 5.0, -3.0], [1e-3, 2e-8, 3.0, 1.0]
    length, speed = slower**2, slower
    scales = Scales(
        length=length * SCALES.length,
        speed=speed * FAST,
        acceleration=GRAVITY,
        response=SCALES.response,
        rest=speed * SCALES.rest,
    )
    units = np.array([length, length, speed, speed])
    shares = []
    for unit, typical in ((np.ones(4), SCALES), (units, scales)):
        jumps = Jumps(t=np.zeros(1), x_before=unit * [before], x_after=unit * [after])
        worst = [one.worst() for one in laws_of_impacts(point(), jumps, typical, np.zeros(0))]
        shares.append({one.law: one.share for one in worst if one is not None})
    assert set(shares[0]) == set(shares[1])
    assert len(shares[0]) > 2
    for law, share in shares[0].items():
        assert shares[1][law] == pytest.approx(share, rel=1e-6, abs=1e-12)


def test_positions_do_not_jump() -> None:
    found = broken(point(), [0, 1, 1, 0], [0.1, 1, 1, 0])
    assert found == {Law.CONTINUITY: pytest.approx(0.1 / 5.0, rel=1e-9)}


def test_an_inelastic_body_may_not_bounce_and_an_elastic_one_has_to() -> None:
    assert broken(point(0.0, 0.0), [0, 0, 0, -3], [0, 0, 0, 0]) == {}
    assert Law.RESTITUTION in broken(point(0.0, 0.0), [0, 0, 0, -3], [0, 0, 0, 1])
    assert broken(point(0.0, 1.0), [0, 0, 0, -3], [0, 0, 0, 3]) == {}
    assert Law.SEPARATION in broken(point(0.0, 1.0), [0, 0, 0, -3], [0, 0, 0, 0])


def test_an_impact_that_raises_the_kinetic_energy_is_a_violation() -> None:
    """Newton's law with friction on a slanted tangent obeys everything else; elastic impacts keep their energy."""
    assert Law.ENERGY not in broken(point(0.0, 1.0), [0, 0, 0, -3], [0, 0, 0, 3])
    found = broken(point(0.0, 1.0), [0, 0, 0, -3], [0, 0, 0, 3.3])
    gain = 0.5 * 2.0 * (3.3**2 - 3.0**2)
    mass, jump = 2.0, 6.3
    assert found[Law.ENERGY] == pytest.approx((gain - 0.5e-9 * mass * jump**2) / (mass * FAST**2), rel=1e-9)


def pushes(
    force: float, height: float, *, left: float | None = None, slip: float = 0.0, friction: float = 0.0
) -> dict[Law, float]:
    """Shares of the laws for the point mass under a force of the ground [N] at a height [m]."""
    rates = [slip, 0.0, friction / 2.0, force / 2.0 - GRAVITY]
    samples = MotionSamples(
        t=np.zeros(1),
        x=np.array([[0.0, height, slip, 0.0]]),
        u=np.zeros((1, 0)),
        rates=np.array([rates]),
        forces=np.array([[force, friction]]),
        x_left=None if left is None else np.array([[0.0, left, slip, 0.0]]),
    )
    worst = [one.worst() for one in laws_of_motion(point(), samples, SCALES, np.zeros(0))]
    return {one.law: one.share for one in worst if one is not None and one.share > 1e-12}


def test_forces_at_samples() -> None:
    weight = 2.0 * GRAVITY
    assert pushes(weight, 0.0) == {}
    assert pushes(0.0, 1.0) == {}
    assert pushes(weight, 0.5) == {Law.DISTANCE: pytest.approx(0.1)}  # half a metre of five
    assert pushes(1e-3 * weight, 0.5) == {Law.DISTANCE: pytest.approx(1e-3)}  # a thousandth of the weight
    assert pushes(0.0, -0.05) == {Law.GAPS: pytest.approx(0.01)}
    assert pushes(-1e-2 * weight, 0.0) == {Law.PULL: pytest.approx(1e-2)}
    assert pushes(weight, 0.0, left=0.2) == {Law.CATCH: pytest.approx(0.04)}
    assert pushes(weight, 0.0, slip=1.0, friction=-0.5 * weight) == {}
    assert pushes(weight, 0.0, slip=1.0, friction=-0.4 * weight) == {Law.DISSIPATION: pytest.approx(0.1)}
    assert pushes(weight, 0.0, friction=0.6 * weight) == {Law.CONE: pytest.approx(0.1)}


def test_what_is_no_number_breaks_its_law_altogether() -> None:
    jumps = Jumps(t=np.zeros(1), x_before=np.zeros((1, 4)), x_after=np.full((1, 4), np.nan), impulses=np.zeros((1, 2)))
    worst = worst_of(laws_of_impacts(point(), jumps, SCALES, np.zeros(0)))
    assert worst is not None
    assert worst.share == np.inf
    assert "nan" not in str(worst)


def test_a_tangent_that_is_no_number_explains_nothing() -> None:
    """The jump is finite, the Jacobian is not: no impulse is computed from it."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    ground = ns.Contact("ground", gap=q[1], restitution=0.5, tangent=ca.vertcat(ca.sqrt(q[0]), 0), friction=0.5)
    force = ca.DM([0, -2.0 * GRAVITY])
    system = ns.CLS(q=q, v=v, mass_matrix=2.0 * ca.DM.eye(2), force=force, contacts=[ground])
    assert broken(system, [1, 0, 2, -3], [1, 0, 0, 1.5]) == {}
    with np.errstate(invalid="ignore"):
        assert broken(system, [-1, 0, 2, -3], [-1, 0, 0, 1.5])[Law.IMPULSES] == np.inf


def slide() -> tuple[ns.OCP, ns.Solution]:
    """The point mass slides on the ground for a third of a second: 3 m/s, decelerated by g / 2."""
    system = point()
    ocp = ns.OCP(system, horizon=1.0 / 3.0, x0=[0.0, 0.0, 3.0, 0.0])
    return ocp, solution_of(ocp, ns.simulate(system, method=ns.FESDJ(), x0=ocp.x0, duration=1.0 / 3.0, steps=3))


def reading(ocp: ns.OCP, solution: ns.Solution) -> ContactReading:
    return ContactReading(ocp.system, solution)


@pytest.mark.parametrize(("factor", "found"), [(0.5, False), (2.0, True)])
def test_the_tolerance_of_jumps(factor: float, found: bool) -> None:
    ocp, solution = slide()
    assert isinstance(solution.interpolant, RungeKuttaInterpolant)
    speed = reading(ocp, solution).scales.speed
    x_left = np.array(solution.interpolant.x_left)
    x_left[2, 2] += factor * BROKEN * speed
    moved = replace(solution, interpolant=replace(solution.interpolant, x_left=x_left))
    assert bool(violations(reading(ocp, moved).laws_of_impacts(), BROKEN)) is found


@pytest.mark.parametrize("listed", [True, False])
@pytest.mark.parametrize(
    ("column", "bump", "law"),
    [
        (2, 1.0, Law.DISSIPATION),  # less friction than slip has
        (2, -1.0, Law.CONE),
        (0, 1.0, Law.POSITIONS),
    ],
)
def test_stages_obey_the_equations_of_motion(column: int, bump: float, law: Law, listed: bool) -> None:
    """A bump that is zero at the left end of an element and at all stages but the last; with the forces that the
    solution lists, or with those that the motion asks for."""
    ocp, solution = slide()
    solution = solution if listed else replace(solution, series={})
    assert isinstance(solution.interpolant, RungeKuttaInterpolant)
    exact = worst_of(reading(ocp, solution).laws_of_motion())
    assert exact is None or exact.share < 1e-12
    stages = np.array(solution.interpolant.x_stages)
    stages[3, -1, column] += 1e-3 * bump
    spoiled = replace(solution, interpolant=replace(solution.interpolant, x_stages=stages))
    found = violations(reading(ocp, spoiled).laws_of_motion(), 1e-4)
    low, high = solution.interpolant.t_left[3], solution.interpolant.t_left[3] + solution.interpolant.h[3]
    assert (Law.BALANCE if listed and column == 2 else law) in {one.law for one in found}
    assert all(low < one.time <= high + solution.interpolant.h[4] for one in found)


# --- the same violation has the same number, whoever reports it ---


def test_solver_and_certificate_report_the_same_share() -> None:
    """A ball that bounces once; its listed impulse and a force are spoiled."""
    q, v, u = ca.SX.sym("q"), ca.SX.sym("v"), ca.SX.sym("u")
    ground = ns.Contact("ground", gap=q, restitution=0.8)
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM([[2.0]]), force=u - 2.0 * GRAVITY, contacts=[ground])
    ocp = ns.OCP(system, horizon=0.8, x0=[1.0, -3.0], stage_cost=u**2, bounds=ns.Bounds(u=(-20.0, 12.0)))
    problem = ns.transcribe(ocp, ns.FESDJ(control_stages=2, finite_elements=2))
    solution = problem.solve()
    assert solution.success
    hit = int(np.argmax(solution["Lambda_normal[ground]"]))
    for name, place, added in (("Lambda_normal[ground]", hit, 0.1), ("lambda_normal[ground]", 0, 0.5)):
        old = solution.series[name]
        values = np.array(old.values)
        values[place] += added
        series = {**solution.series, name: Series(old.t, values)}
        read = problem.read(solution.w, problem.parameters())
        laws = measured(problem, read, series, np.array(solution.p), np.array(solution.u), solution.infeasibility)
        by_solver = {(one.law, one.subject, one.time): one.share for one in violations(laws, BROKEN)}
        found = ns.certify(ocp, replace(solution, series=series))
        by_certificate = {
            (one.law, one.subject, one.time): one.share
            for one in found.findings
            if one.law in {k[0] for k in by_solver}
        }
        assert by_solver
        assert sorted(by_certificate.values()) == pytest.approx(sorted(by_solver.values()), rel=1e-9)
        assert {key[:2] for key in by_certificate} == {key[:2] for key in by_solver}
