"""Path constraints that a contact keeps constant: a body that stands at the edge of a hole and jumps over it."""

import itertools

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.search.stances import stances
from nosnoc_py.search.starts import StartTask
from nosnoc_py.sequences import optimise as optimisation
from nosnoc_py.sequences import program
from nosnoc_py.sequences.contact_laws import ContactLaws
from nosnoc_py.sequences.held_rows import held_rows
from nosnoc_py.sequences.optimise import optimise
from nosnoc_py.sequences.plan import Plan
from nosnoc_py.sequences.program import PhaseMesh, PhaseNLP
from nosnoc_py.sequences.refinement import laws_of, start_of_motion
from problems.benchmarks.hopper_task import build

WIDTH, DEPTH = 0.5, 0.1  # half axes of the hole [m]
JUMP = ns.Sequence([{"ground": "stick"}, {}, "impact ground", {"ground": "stick"}], [0.3, 0.7])


def body() -> ns.CLS:
    """A body of 1 kg in the plane, moved by forces, on ground with friction."""
    q, v, u = (ca.SX.sym(name, 2) for name in "qvu")
    ground = ns.Contact("ground", gap=q[1], tangent=[1, 0], friction=0.8)
    return ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=u + ca.DM([0, -9.81]), contacts=[ground])


def jump() -> ns.OCP:
    """From the left edge of the hole to the right one: where the body stands, the constraint is active throughout."""
    system = body()
    hole = ((system.q[0] - WIDTH) / WIDTH) ** 2 + (system.q[1] / DEPTH) ** 2
    return ns.OCP(
        system,
        horizon=1.0,
        x0=[0, 0, 0, 0],
        stage_cost=ca.sumsqr(system.u),
        bounds=ns.Bounds(u=(-30, 30)),
        path_constraints=[ns.Constraint(hole, 1.0, name="hole")],
        terminal_constraints=[ns.Constraint(system.q, [1, 0], [1, 0], name="goal")],
    )


def held(word: str, expression: ca.SX, system: ns.CLS) -> list[bool]:
    """What a mode of the contact keeps constant."""
    mode = ContactLaws(system).equations((word,))
    states, sizes = np.array([[0.0, 0.0, 1.0, 0.0], [1.0, 0.0, 0.0, 0.0]]), np.ones(4)
    return held_rows(system, mode.held, expression, states, sizes, np.zeros(0)).tolist()


def test_held_rows_of_modes() -> None:
    system = body()
    q, v = system.q, system.v
    # The last but one has a gradient of zero along the ground at x = 0 and at x = 1, but not beside them.
    rows = ca.vertcat(q[1] ** 2, ca.exp(q[0]) * q[1], q[0] ** 2 * (q[0] - 1) ** 2, q[0] + v[0])
    assert held("open", rows, system) == [False, False, False, False]
    assert held("slip+", rows, system) == [True, False, False, False]
    assert held("stick", rows, system) == [True, True, True, False]


def test_symbols_of_the_same_name_are_not_confused() -> None:
    """A limit of a velocity is no function of positions, whatever the velocity is called."""
    q, v, u = (ca.SX.sym("x", 2) for _ in range(3))
    ground = ns.Contact("ground", gap=q[1], tangent=[1, 0], friction=0.8)
    names = {"q": ["a", "b"], "v": ["c", "d"], "u": ["e", "f"]}
    system = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=u, contacts=[ground], names=names)
    assert held("stick", ca.vertcat(v[0], q[0]), system) == [False, True]


@pytest.mark.parametrize("first", [optimisation.FIRST_ITERATIONS, 0])
def test_edges_of_a_hole_are_no_obstacle(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimisation, "FIRST_ITERATIONS", first)
    solution = ns.solve(jump(), ns.MultiPhase(sequence=JUMP, intervals=8))
    assert solution.success
    assert solution.certificate is not None
    assert solution.certificate.verdict is ns.Verdict.CONFIRMED
    # Rounding decides whether the interior point takes 44 or hands over after its 100; IPOPT alone is counted.
    assert first > 0 or solution.log[0].iterations < 100  # 24 measured; the limit is 500
    assert np.allclose(solution.x[-1, :2], [1.0, 0.0], atol=1e-6)


def hop() -> PhaseNLP:
    """The program of stand, fly, stand of a robot with a leg that is straight at both ends, from a drawn motion."""
    ocp = build(holes=1, horizon=1.5, joint_rate=40.0)
    proposals = (proposal for proposal in stances(StartTask.of(ocp), np.random.default_rng(0)) if proposal)
    proposal = next(itertools.islice(proposals, 1, None))
    laws = laws_of(ocp, proposal.motion)
    start = start_of_motion(ocp, proposal.sequence, proposal.motion)
    return PhaseNLP(ocp, laws, Plan.of(proposal.sequence, laws), PhaseMesh(intervals=16), start)


def test_leg_at_the_edge_of_a_hole() -> None:
    """Measured: 119 iterations, 65 by IPOPT; with the rows at all stages IPOPT does not converge in 300."""
    program_of = hop()
    lower = program_of.nlp.lbw.copy()
    lower[program_of.at_lengths] = 0.2 * program_of.w0[program_of.at_lengths]
    point = optimise(program_of, program_of.w0, {"max_iter": 300}, np.inf, lower)
    assert point.result is not None
    assert point.result.converged
    assert point.violation < 1e-8
    assert point.objective < 65.0


def test_rows_that_a_mode_holds_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Control: without the test of rows the program has one more for every stage of both stances."""
    with_test = hop().nlp.lbg.size
    monkeypatch.setattr(program, "held_rows", lambda s, h, rows, *_: np.zeros(rows.numel(), bool))
    assert hop().nlp.lbg.size >= with_test + 16


def test_a_start_inside_is_still_infeasible() -> None:
    """The row that a mode keeps constant is imposed at a fixed initial state that breaks it."""
    ocp = jump()
    inside = ns.OCP(
        ocp.system,
        horizon=1.0,
        x0=[0.2, 0, 0, 0],
        stage_cost=ocp.stage_cost,
        path_constraints=[ns.Constraint(ocp.path_constraints[0].expression, 1.0, name="hole")],
    )
    method = ns.MultiPhase(sequence=ns.Sequence([{"ground": "stick"}]), intervals=4, refinements=0)
    solution = ns.solve(inside, method)
    assert not solution.success
    assert solution.infeasibility == pytest.approx(0.64, abs=1e-6)


def test_rows_are_tested_near_the_start_relative_to_typical_sizes() -> None:
    """q_1 near the start and q_0 beyond q_0 = 0.005, with q_1 held: constant at a size of 1e-3, not at one of 1."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    wall = ns.Contact("wall", gap=q[1])
    system = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=[0, 0], contacts=[wall])
    row, states = ca.if_else(q[0] < 0.005, q[1], q[0]), np.zeros((5, 4))
    for size, constant in ((1e-3, True), (1.0, False)):
        found = held_rows(system, ca.SX([[0.0, 1.0]]), row, states, np.full(4, size), np.zeros(0))
        assert found.tolist() == [constant]
