"""Roles say what rows are; names are for people: every row has a role, and a renamed one changes nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.api import Simulator
from nosnoc_py.discretization.options import FESD
from nosnoc_py.reformulation.dcs import DCS
from nosnoc_py.reformulation.smoothing import smooth
from nosnoc_py.roles import Role
from nosnoc_py.simulation.certification.readings import is_by_collocation
from nosnoc_py.simulation.fesd import SimulatorState
from nosnoc_py.simulation.step_sensitivity import StepSensitivity
from nosnoc_py.solution import Series
from nosnoc_py.transcription import Transcription, transcribe, transcribe_step
from tests.pairwise import slow_row

STAGES = {"control_stages": 2, "finite_elements": 3, "rk_stages": 2}
FILIPPOV, JUMPS = ns.FESD(**STAGES), ns.FESDJ(**STAGES)
FREEZING = ns.TimeFreezing(fesd=ns.FESD(**STAGES | {"finite_elements": 5}))


def mass(dimension: int = 2, restitution: float = 0.0, friction: float = 0.3, *, curved: bool = False) -> ns.CLS:
    """A point mass over a floor; `curved` puts a round wall beside it, and makes the mass matrix depend on q."""
    q, v, u = (ca.SX.sym(name, dimension) for name in "qvu")
    rub: dict[str, Any] = {"friction": friction, "tangent": ca.DM.eye(dimension)[:, :-1]} if friction else {}
    contacts = [ns.Contact("floor", gap=q[-1], restitution=restitution, **rub)]
    inertia = ca.SX.eye(dimension)
    if curved:
        contacts.append(ns.Contact("wall", gap=3 - q[0] + 0.1 * q[-1] ** 2, restitution=restitution))
        inertia[0, 0] = 1 + 0.1 * q[-1] ** 2
    weight = ca.DM([0.0] * (dimension - 1) + [9.81])
    return ns.CLS(q=q, v=v, u=u, mass_matrix=inertia, force=u - weight, contacts=contacts)


def quadrants() -> ns.PSS:
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    flows = [ca.vertcat(a, u) for a in (1.0, -1.0, 0.5, -0.5)]
    signs = [[1, 1], [1, -1], [-1, 1], [-1, -1]]
    modes = ns.Modes("m", flows=flows, functions=x, signs=signs, function_names=("a", "b"))
    return ns.PSS(x=x, u=u, modes=modes)


def cube() -> ns.PSS:
    """Eight regions, of which step functions lift the products, and an algebraic variable z = u x."""
    x, u, z = ca.SX.sym("x", 3), ca.SX.sym("u"), ca.SX.sym("z")
    signs = [[a, b, c] for a in (1, -1) for b in (1, -1) for c in (1, -1)]
    flows = [ca.DM([float(k), 1.0, 0.5]) * z for k in range(8)]
    modes = ns.Modes("m", flows=flows, functions=x, signs=signs)
    return ns.PSS(x=x, u=u, modes=modes, algebraic=ns.Algebraic(z, z - u * x[0] - 1))


def pushed() -> ns.PDS:
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    return ns.PDS(x=x, u=u, flow=ca.vertcat(1.0, u), constraints=x)


def ocp_of(system: Any, **more: Any) -> ns.OCP:
    n = len(system.state_names)
    return ns.OCP(
        system,
        **{"horizon": 0.6, **more},
        x0=[0.0] * (n // 2 - 1) + [0.3, 1.0] + [0.0] * (n - n // 2 - 1),
        stage_cost=0.01 * ca.sumsqr(system.u),
        bounds=ns.Bounds(u=(-20.0, 20.0), x=(-50.0, 50.0)),
    )


def goal(system: ns.CLS) -> list[ns.Constraint]:
    return [ns.Constraint(system.q[0], 0.3, 0.3, name="goal")]


CONES = ("box", "polar", "polyhedral", "paper")
PROBLEMS: dict[str, Callable[[], Transcription]] = {
    **{
        f"contact, {cone}, {form}": lambda cone=cone, form=form: transcribe(  # type: ignore[misc]
            ocp_of(mass()), JUMPS.replace(friction_cone=cone, impulse_form=form)
        )
        for cone, form in zip(CONES, ("sum", "product", "sum", "product"), strict=True)
    },
    "contact in space": lambda: transcribe(ocp_of(mass(3)), JUMPS),
    "gap rate, lifted, free stages": lambda: transcribe(
        ocp_of(mass(curved=True), horizon=ns.FreeTime(0.4, 0.8)),
        JUMPS.replace(gap_rate=True, equidistant_control_grid=False),
    ),
    "complementarities for the steps": lambda: transcribe(
        ocp_of(mass()), JUMPS.replace(step_equilibration="linear_complementarity")
    ),
    "Stewart, bounds of expressions": lambda: transcribe(
        ocp_of(quadrants()), FILIPPOV.replace(scheme="gauss_legendre", rk_representation="differential")
    ),
    "Stewart, a stage at the left end": lambda: transcribe(
        ocp_of(quadrants()), FILIPPOV.replace(scheme="lobatto_iiic")
    ),
    "step functions, algebraic": lambda: transcribe(
        ocp_of(cube()), FILIPPOV.replace(dcs_mode="step", rk_representation="lifted_differential")
    ),
    "projection": lambda: transcribe(ocp_of(pushed()), FILIPPOV),
    "time-freezing": lambda: transcribe(ocp_of(mass(3)), FREEZING),
    "time-freezing, stabilised": lambda: transcribe(ocp_of(mass(curved=True)), FREEZING),
    "time-freezing, bounces": lambda: transcribe(ocp_of(mass(restitution=0.7, friction=0.0)), FREEZING),
    "step of a simulation": lambda: transcribe_step(mass(3), JUMPS),
    "step of a simulation without jumps": lambda: transcribe_step(quadrants(), FILIPPOV),
    "smoothed": lambda: transcribe(ocp_of(smooth(mass()).system), FILIPPOV),
}


def parts_of(dcs: DCS) -> list[Any]:
    """Everything in a DCS that has a role."""
    found = [*dcs.variables, *dcs.equations, *dcs.inequalities, *dcs.pairs, *dcs.outputs]
    jump = dcs.jump
    return found if jump is None else [*found, *jump.variables, *jump.equations, *jump.inequalities, *jump.pairs]


@pytest.mark.parametrize("name", PROBLEMS)
def test_every_row_of_every_problem_has_a_role(name: str) -> None:
    problem = PROBLEMS[name]()
    mpcc = problem.mpcc
    assert all(isinstance(part.role, Role) for part in parts_of(problem.dcs))
    for layout in (mpcc.variables, mpcc.parameters, mpcc.constraints, mpcc.switched):
        assert [block.name for block in layout.blocks() if not isinstance(block.role, Role)] == []
    assert all(isinstance(group.role, Role) for group in mpcc.groups)


def test_a_users_own_rows_have_roles() -> None:
    system = mass()
    own = ns.Complementarity(10 + system.u[0], 10 - system.u[1], name="own")
    ocp = replace(ocp_of(system), complementarities=(own,), terminal_constraints=tuple(goal(system)))
    mpcc = transcribe(ocp, JUMPS).mpcc
    assert [block.name for block in mpcc.constraints.blocks(role=Role.CONSTRAINT)] == ["constraint goal"]
    assert sum(group.role is Role.COMPLEMENTARITY for group in mpcc.groups) == 2 * 3 * 2  # at every stage


# --- renamed rows ---


def other(name: str) -> str:
    """Another name, the same for the same one, that begins and ends like those that once had a meaning."""
    return f"constraint friction_radius[gap] {hashlib.sha256(name.encode()).hexdigest()[:8]} (start)"


def renamed(dcs: DCS) -> DCS:
    """The same system with other names and labels of all variables, equations and sides of pairs."""

    def labels(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(other, names))

    def rows(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(replace(item, name=other(item.name), components=labels(item.components)) for item in items)

    def sides(pairs: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(replace(p, a_labels=labels(p.a_labels), b_labels=labels(p.b_labels)) for p in pairs)

    kinds = ("variables", "equations", "inequalities", "outputs")
    changed: dict[str, Any] = {kind: rows(getattr(dcs, kind)) for kind in kinds}
    if dcs.jump is not None:
        at_nodes: dict[str, Any] = {kind: rows(getattr(dcs.jump, kind)) for kind in kinds}
        changed["jump"] = replace(dcs.jump, **at_nodes, pairs=sides(dcs.jump.pairs))
    return replace(dcs, **changed, pairs=sides(dcs.pairs))


@pytest.fixture
def renaming(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], Any]], Any]:
    """Calls a function while every DCS is renamed."""
    scope = transcribe.__globals__
    plain = scope["dcs_of"]

    def call(make: Callable[[], Any]) -> Any:
        with monkeypatch.context() as patch:
            patch.setitem(scope, "dcs_of", lambda *given, **named: renamed(plain(*given, **named)))
            return make()

    return call


@pytest.mark.parametrize("name", ["contact in space", "step functions, algebraic", "time-freezing, stabilised"])
def test_renamed_rows_are_renamed_and_nothing_else(name: str, renaming: Any) -> None:
    """The control of the tests below: no name of a DCS is left, and every number is the same."""
    one, two = PROBLEMS[name](), renaming(PROBLEMS[name])
    names = {v.name for v in one.dcs.variables}
    assert names
    assert not names & set(two.mpcc.variables.names)
    assert one.layout_key != two.layout_key
    for key in ("lbw", "ubw", "w0", "w_scale", "lbg", "ubg", "g_scale"):
        np.testing.assert_array_equal(getattr(one.mpcc, key), getattr(two.mpcc, key))
    kinds = [[(block.role, block.at, block.edge, block.of) for block in p.mpcc.variables.blocks()] for p in (one, two)]
    assert kinds[0] == kinds[1]


STEPS: dict[str, tuple[Any, Any, list[float]]] = {
    "polar": (mass(3, 0.5), JUMPS, [0, 0, 0.15, 1.0, 0.4, -2.0]),
    "box": (mass(), JUMPS, [0, 0.1, 1.5, -3.0]),
    "polyhedral, gap rate": (mass(), JUMPS.replace(friction_cone="polyhedral", gap_rate=True), [0, 0.1, 1.5, -3.0]),
    "step functions": (quadrants(), FILIPPOV.replace(dcs_mode="step", scheme="gauss_legendre"), [0.05, -0.04]),
}


def stepped(system: Any, method: FESD, x0: list[float]) -> tuple[Simulator, SimulatorState]:
    simulator = Simulator(system, method, step=0.1)
    state = simulator.step(simulator.init(np.array(x0)), np.full(system.n_u, 0.2), sensitivities=True)
    assert state.status is ns.Status.SOLVED
    assert state.attempts == 0  # by Newton's method, which fills the variables
    return simulator, state


@pytest.mark.parametrize("name", STEPS)
def test_a_step_and_its_sensitivity_read_no_names(name: str, renaming: Any) -> None:
    (one, first), (two, second) = stepped(*STEPS[name]), renaming(lambda: stepped(*STEPS[name]))
    names = [{v.name for v in simulator.engine.problem.dcs.variables} for simulator in (one, two)]
    assert not names[0] & names[1]
    np.testing.assert_allclose(first.w, second.w, rtol=0, atol=1e-12)
    for key in ("x", "u"):
        values = [getattr(state.sensitivity, key) for state in (first, second)]
        np.testing.assert_allclose(*values, rtol=0, atol=1e-9)
    assert first.sensitivity.flags == second.sensitivity.flags == ()


def test_the_poles_of_polar_cones_are_theirs_by_role_and_contact() -> None:
    """Two cones in three elements of two stages: their forces at the stages, and their impulses at the nodes."""
    system = mass(3)
    second = replace(system.contacts[0], name="table", gap=system.q[-1] - 1)
    problem = transcribe_step(replace(system, contacts=[*system.contacts, second], nominal={}), JUMPS)
    poles = StepSensitivity(problem)._implicit._poles
    labels = [[problem.mpcc.variables.label(int(k)) for k in pair] for pair in poles]
    assert len(labels) == 2 * 3 * (2 + 1)
    assert {(force.lower(), speed.lower()) for (force, _), (speed, _) in labels} == {
        (f"friction_radius[{name}]", f"slip_speed[{name}]") for name in ("floor", "table")
    }
    assert all(force[1] == speed[1] for force, speed in labels)


def test_without_the_role_there_is_no_pole() -> None:
    """The control: it is the role that is read."""
    problem = transcribe_step(mass(3), JUMPS)
    blocks = problem.mpcc.variables._blocks
    blocks[:] = [replace(block, role=None) if block.role is Role.FRICTION_RADIUS else block for block in blocks]
    assert StepSensitivity(problem)._implicit._poles.shape == (0, 2)


@pytest.mark.parametrize("name", ["time-freezing", slow_row("time-freezing, stabilised"), "time-freezing, bounces"])
def test_guesses_in_numerical_time_read_no_names(name: str, renaming: Any) -> None:
    one, two = PROBLEMS[name](), renaming(PROBLEMS[name])
    system = one.ocp.system
    motion = ns.simulate(system, x0=one.ocp.x0, duration=0.6, u=np.zeros(system.n_u), method=ns.EventDriven())
    assert motion.impacts
    guesses = [problem.initial_guess(motion) for problem in (one, two)]
    np.testing.assert_array_equal(*guesses)
    assert np.abs(guesses[0] - one.mpcc.w0).max() > 0.1
    weights = {v.name: k for k, v in enumerate(one.dcs.variables) if v.role is Role.STEP_FUNCTION}
    rows = np.concatenate([guesses[0][b.rows] for b in one.mpcc.variables.blocks(role=Role.STEP_FUNCTION)])
    assert weights
    assert {0.0, 1.0} <= set(rows)  # of contacts that are closed and open


@pytest.mark.parametrize("representation", ["differential", "lifted_differential"])
def test_derivatives_of_a_guess_in_numerical_time_lead_from_node_to_node(representation: Any) -> None:
    """They are scaled by the speed of time: what they miss is that free flight is curved where they are looked at."""
    system = mass()
    method = ns.TimeFreezing(fesd=FREEZING.fesd.replace(rk_representation=representation))
    problem = transcribe(ocp_of(system), method)
    motion = ns.simulate(system, x0=problem.ocp.x0, duration=0.6, u=np.zeros(2), method=ns.EventDriven())
    w = problem.initial_guess(motion)
    layout = problem.mpcc.constraints
    blocks = [block for role in (Role.STAGE_STATES, Role.RIGHT_END) for block in layout.blocks(role=role)]
    rows = np.concatenate([np.r_[block.rows] for block in blocks])
    still = w.copy()
    for block in problem.mpcc.variables.blocks(role=Role.STATE_DERIVATIVE):
        still[block.rows] = 0.0
    missed, moved = (np.abs(problem.solvers.evaluator(one, problem.parameters()).g[rows]).max() for one in (w, still))
    assert missed < 1e-3
    assert moved > 1.0


def paddle() -> ns.OCP:
    """The paddle of the README: a ball is driven up by one impact."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    system = ns.CLS(
        q=q,
        v=v,
        u=u,
        mass_matrix=ca.diag(ca.DM([1.0, 0.1])),
        force=ca.vertcat(u - 9.81, -0.981),
        contacts=[ns.Contact("hit", gap=q[1] - q[0], restitution=0.8)],
    )
    target = ns.Constraint(system.x[[1, 3]], [2, 1], [2, 1], name="target")
    cost, bounds = 0.01 * (u - 9.81) ** 2, ns.Bounds(u=(-50, 50))
    return ns.OCP(system, horizon=1.0, x0=[0, 1, 0, 0], stage_cost=cost, terminal_constraints=[target], bounds=bounds)


METHOD = ns.FESDJ(control_stages=6, finite_elements=2, rk_stages=2, equidistant_control_grid=False)


@pytest.fixture(scope="module")
def solved() -> tuple[Transcription, ns.Solution]:
    problem = transcribe(paddle(), METHOD)
    return problem, problem.solve()


def test_an_explanation_reads_no_names(solved: tuple[Transcription, ns.Solution], renaming: Any) -> None:
    """What is biactive, what pushes, and what is broken is said of the renamed problem, too."""
    solution = solved[1]
    assert solution.success
    assert any(pair.of == "hit" and pair.role is Role.REBOUND_PARTS for pair in solution.biactive_roles)
    again = renaming(lambda: transcribe(paddle(), METHOD))
    found = replace(again.solve(), message=solution.message)
    assert not set(solution.series) & {name for name in found.series if not name.startswith("costate")}
    assert found.biactive_roles == solution.biactive_roles
    assert found.biactive != solution.biactive
    said = "contact hit has just the velocity of its law of restitution, as at an impact"
    assert all(said in ns.explain(one) for one in (solution, found))


def test_an_iterate_that_never_touches_is_told_by_roles(solved: tuple[Transcription, ns.Solution]) -> None:
    solution = solved[1]
    quiet = {name: Series(s.t, 0 * s.values, s.role) for name, s in solution.series.items()}
    lost = replace(solution, series=quiet, events=(), status=ns.Status.LOCALLY_INFEASIBLE)
    assert "No contact closes in the last iterate" in ns.explain(lost)
    renamed_series = {other(name): series for name, series in quiet.items()}
    assert "No contact closes in the last iterate" in ns.explain(replace(lost, series=renamed_series))
    nameless = {name: Series(s.t, s.values) for name, s in quiet.items()}
    assert "No contact closes in the last iterate" not in ns.explain(replace(lost, series=nameless))


# --- what a solution says of its elements ---


def test_the_text_of_the_options_decides_nothing(solved: tuple[Transcription, ns.Solution]) -> None:
    solution = solved[1]
    found = solution.discretization
    assert found is not None
    assert (found.scheme, found.collocation, found.time_freezing) == ("radau_iia", True, False)
    np.testing.assert_allclose(found.nodes, [1 / 3, 1.0], rtol=0, atol=1e-15)
    for text in ("", "FESDJ(scheme='explicit')", "another method"):
        assert is_by_collocation(replace(solution, method=text))
    assert not is_by_collocation(replace(solution, discretization=None))
    assert not is_by_collocation(replace(solution, discretization=replace(found, collocation=False)))


@pytest.mark.parametrize("scheme", ["radau_iia", "gauss_legendre", "radau_i", "lobatto_iiic", "explicit"])
def test_schemes_whose_stages_are_those_of_the_dense_output(scheme: Any) -> None:
    problem = transcribe(ocp_of(quadrants()), FILIPPOV.replace(scheme=scheme))
    found = problem.discretization
    assert found.scheme == scheme
    assert found.collocation is (scheme in ("radau_iia", "gauss_legendre"))
    np.testing.assert_array_equal(found.nodes, problem.tableau.c)
    assert found.collocation is np.array_equal(problem.tableau.dense_c, problem.tableau.c)


def test_simulations_and_motions_in_numerical_time_say_their_elements() -> None:
    system, x0 = mass(), [0.0, 0.1, 1.0, 0.0]
    jumps = ns.simulate(system, x0=x0, duration=0.2, steps=2, method=JUMPS)
    assert jumps.discretization is not None
    assert not jumps.discretization.time_freezing
    assert transcribe(ocp_of(system), FREEZING).discretization.time_freezing
    assert ns.simulate(system, x0=x0, duration=0.2, method=ns.EventDriven()).discretization is None
