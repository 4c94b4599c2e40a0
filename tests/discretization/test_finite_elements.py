"""The engine on systems that have nothing to do with contacts, and what it hands to the program."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.discretization.finite_elements import FiniteElements, StateBounds
from nosnoc_py.discretization.grid import Grid
from nosnoc_py.mpcc.program import MPCC, ProgramBuilder
from nosnoc_py.reformulation.dcs import DCS, Pair, Variable
from nosnoc_py.roles import Role
from nosnoc_py.tableaus import tableau

LIBRARY = Path(ns.__file__).parent


def sticking(rate: float = -1.0, power: float = 0.0) -> DCS:
    """x' = rate - power x + b, 0 <= x, b >= 0, x b = 0: a projected system that sticks at zero."""
    x, b = ca.SX.sym("x"), ca.SX.sym("b")
    return DCS(
        x=x,
        u=ca.SX(0, 1),
        p=ca.SX(0, 1),
        x_names=("level",),
        u_names=(),
        p_names=(),
        x_scale=np.ones(1),
        u_scale=np.zeros(0),
        variables=(Variable(name="b", symbol=b, components=("b",), role=Role.CONSTRAINT_FORCE, lower=0.0),),
        flow=rate - power * x + b,
        running_cost=x,
        pairs=(
            Pair(
                name="stick",
                a=x,
                b=b,
                a_labels=("level",),
                b_labels=("b",),
                role=Role.PROJECTION,
                components=("level",),
            ),
        ),
    )


def discretise(
    dcs: DCS, x0: float, horizon: float, stages: int = 1, kind: Any = ns.FESDJ, **options: Any
) -> tuple[MPCC, Any]:
    method = kind(control_stages=stages, **options)
    builder = ProgramBuilder()
    start = builder.parameter("x0", dcs.x_names, x0)
    bounds = StateBounds(lower=np.full(1, -np.inf), upper=np.full(1, np.inf), initial=np.full(1, x0))
    engine = FiniteElements(
        builder=builder,
        dcs=dcs,
        tableau=tableau(method.scheme, method.rk_stages),
        options=method,
        bounds=bounds,
        p=ca.SX(0, 1),
        default_gamma=0.9999,
    )
    grid = Grid.of(ca.SX(horizon), method.elements_per_stage, [1] * stages)
    elements = engine.write(grid, [ca.SX(0, 1)] * stages, start)
    return builder.build(aggregation=method.cross_complementarity, enforce_switched=False), elements


def solve(mpcc: MPCC, elements: Any, **options: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    state = ns.Homotopy(**options).run(mpcc)
    values = ca.Function("read", [mpcc.w, mpcc.p], [ca.vertcat(*[ca.horzcat(e.h, e.x_right) for e in elements])])
    h, x = np.array(values(state.w, state.p)).T
    return state, np.cumsum(h), x


@pytest.mark.parametrize("scheme", ["radau_iia", "gauss_legendre"])
@pytest.mark.parametrize("rk_stages", [1, 2, 3])
def test_a_system_without_jumps_sticks_at_zero(scheme: str, rk_stages: int) -> None:
    mpcc, elements = discretise(sticking(), 0.37, 1.0, stages=4, scheme=scheme, rk_stages=rk_stages)
    state, t, x = solve(mpcc, elements)
    assert state.status is ns.Status.SOLVED
    np.testing.assert_allclose(x, np.maximum(0.37 - t, 0.0), rtol=0, atol=1e-10)
    assert np.abs(t - 0.37).min() < 1e-10  # the switch is a node
    if rk_stages > 1 or scheme == "gauss_legendre":  # the running cost, where the quadrature has it exactly
        assert state.values.objective == pytest.approx(0.37**2 / 2, abs=1e-10)


@pytest.mark.parametrize("aggregation", ["fe_stage", "stage_fe", "fe_fe", "stage_stage"])
def test_a_decaying_system_keeps_the_order_of_the_scheme(aggregation: str) -> None:
    """x' = -1 - 2 x + b from x = 1: x = 1.5 exp(-2 t) - .5 until log(3) / 2 = .549."""
    found = []
    for stages in (4, 8):
        mpcc, elements = discretise(sticking(-1.0, 2.0), 1.0, 1.0, stages=stages, cross_complementarity=aggregation)
        state, t, _ = solve(mpcc, elements, steering="l_inf")
        assert state.status is ns.Status.SOLVED
        found.append(float(np.abs(t - 0.5 * np.log(3)).min()))
    assert found[1] < 1e-4
    assert np.log2(found[0] / found[1]) > 2.6  # Radau IIA with two stages: 3


def test_fixed_steps_miss_the_switch() -> None:
    mpcc, elements = discretise(sticking(), 0.37, 1.0, stages=4, switch_detection=False)
    state, t, x = solve(mpcc, elements)
    assert state.infeasibility < 1e-8
    np.testing.assert_allclose(np.diff(t, prepend=0.0), 0.125, rtol=0, atol=1e-12)
    assert np.abs(x - np.maximum(0.37 - t, 0.0)).max() > 1e-3 or np.abs(t - 0.37).min() > 1e-3


@pytest.mark.parametrize("gamma", [None, 0.5, 1.0])
def test_bounds_of_the_steps(gamma: float | None) -> None:
    mpcc, _ = discretise(sticking(), 0.37, 1.0, stages=2, finite_elements=3, gamma_h=gamma)
    rows = [b.start for b in mpcc.variables.blocks("s")]
    expected = {None: (1e-4, np.inf), 0.5: (0.5, 1.5), 1.0: (0.0, np.inf)}[gamma]
    assert len(rows) == 6
    np.testing.assert_allclose(mpcc.lbw[rows], expected[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(mpcc.ubw[rows], expected[1], rtol=0, atol=1e-12)


def test_counts_of_a_program() -> None:
    """Four stages of two elements with two RK stages: states, b and step; dynamics and the sum of the steps."""
    mpcc, elements = discretise(sticking(), 0.37, 1.0, stages=4)
    assert len(elements) == 8
    assert mpcc.w.numel() == 8 * (2 + 2 + 1)
    assert mpcc.g.numel() == 8 * 2 + 4
    assert mpcc.H.numel() == 8 * 2
    assert mpcc.G.numel() == 8 * 2 + 1  # left boundaries are the right ends before them
    assert len(mpcc.pairs()[0]) == 8 * 3 * 2  # two stages and the left boundary against two stages
    assert mpcc.r.numel() == 4


@pytest.mark.parametrize("scheme", ["radau_iia", "radau_i", "lobatto_iiic", "explicit"])
def test_steps_without_detection_have_products_at_stages_only(scheme: str) -> None:
    """Two elements with two stages, of which the first may be on the left boundary: one product each."""
    mpcc, _ = discretise(sticking(), 0.37, 1.0, kind=ns.FESD, scheme=scheme, switch_detection=False)
    assert mpcc.H.numel() == 2 * 2
    assert len(mpcc.pairs()[0]) == 2 * 2


WORDS = ("contact", "gap", "impulse", "friction", "ground")
# Options and a tolerance carry the field's word; what they say goes into the data of a DCS.
EXEMPT = {"initial_impulse", "impulse_form", "IMPULSE_TOLERANCE", "impulse", "FrictionCone", "friction_cone"} | {
    "gap_rate",
    "ContactOptions",  # FESDJ inherits its options of the reformulation, as it has initial_impulse and gap_rate
}


@pytest.mark.parametrize("room", ["discretization", "mpcc"])
def test_the_engine_has_no_name_from_contact_mechanics(room: str) -> None:
    """Identifiers and attribute names only; documentation and messages may speak of contacts."""
    found = {}
    for path in sorted((LIBRARY / room).glob("*.py")):
        tree = ast.parse(path.read_text())
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        names |= {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        names |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
        names |= {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        bad = {name for name in names - EXEMPT if any(word in name.lower() for word in WORDS)}
        if bad:
            found[path.name] = sorted(bad)
    assert found == {}


# Representations of the Runge-Kutta equations ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("representation", "variables", "equations"),
    [("integral", 5, 2), ("differential", 6, 3), ("lifted_differential", 7, 4)],
)
def test_counts_of_representations(representation: str, variables: int, equations: int) -> None:
    """Per element with two stages: b twice, the step, and states, derivatives and a right end, or both."""
    mpcc, _ = discretise(sticking(), 0.37, 1.0, stages=4, rk_representation=representation)
    assert mpcc.w.numel() == 8 * variables
    assert mpcc.g.numel() == 8 * equations + 4


@pytest.mark.parametrize("scheme", ["radau_iia", "gauss_legendre"])
@pytest.mark.parametrize("representation", ["differential", "lifted_differential"])
def test_representations_have_the_same_solution(scheme: str, representation: str) -> None:
    found = []
    for name in ("integral", representation):
        mpcc, elements = discretise(sticking(-1.0, 2.0), 1.0, 1.0, stages=2, scheme=scheme, rk_representation=name)
        state, t, x = solve(mpcc, elements, steering="l_inf")
        assert state.status is ns.Status.SOLVED
        found.append((t, x))
    np.testing.assert_allclose(found[0], found[1], rtol=0, atol=1e-9)


def test_integral_needs_an_invertible_matrix() -> None:
    system = ns.PSS(x=(x := ca.SX.sym("x")), modes=ns.Modes("m", flows=[-1, 1], functions=x, signs=[[1], [-1]]))
    ocp = ns.OCP(system, horizon=1.0, x0=[1.0])
    for scheme in ("radau_i", "explicit"):
        with pytest.raises(ns.OptionError, match=r"'integral' needs an invertible matrix A.*use 'differential'"):
            ns.transcribe(ocp, ns.FESD(control_stages=1, scheme=scheme, rk_representation="integral"))
        assert "x'" in ns.transcribe(ocp, ns.FESD(control_stages=1, scheme=scheme)).mpcc.variables.names


@pytest.mark.parametrize("scheme", ["radau_iia", "radau_i", "lobatto_iiic", "explicit"])
def test_bounds_hold_at_stages_that_are_expressions(scheme: str) -> None:
    """x' = u from 0 to 1 with x <= 1.2 and a reward for large x: without bounds at the stages they go beyond."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    modes = ns.Modes("m", flows=[u, u], functions=x + 5, signs=[[1], [-1]])
    ocp = ns.OCP(
        ns.PSS(x=x, u=u, modes=modes),
        horizon=1.0,
        x0=[0.0],
        bounds=ns.Bounds(x=([-1.0], [1.2])),
        stage_cost=u**2 / 100 - x,
        terminal_constraints=[ns.Constraint(x, 1.0, 1.0)],
    )
    problem = ns.transcribe(ocp, ns.FESD(control_stages=4, scheme=scheme, rk_representation="differential"))
    assert "bounds" in problem.mpcc.constraints.names
    solution = problem.solve()
    assert solution.status is ns.Status.SOLVED
    stages = problem.read(solution.w, problem.mpcc.p0).x_stages
    assert stages.max() <= 1.2 + 1e-7
    assert solution.x.max() == pytest.approx(1.2, abs=1e-6)  # the bound is active


@pytest.mark.parametrize(
    "options", [{"rk_representation": "differential"}, {"step_equilibration": "linear_complementarity"}]
)
def test_simulations_with_jumps_say_what_they_need(options: dict[str, Any]) -> None:
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    ball = ns.CLS(q=q, v=v, mass_matrix=1.0, force=-9.81, contacts=[ns.Contact("floor", gap=q, restitution=0.5)])
    with pytest.raises(ns.OptionError, match=r"simulations of systems with jumps (do not )?take .* leave it out"):
        ns.simulate(ball, x0=[1.0, 0.0], duration=0.1, steps=1, method=ns.FESDJ(**options))


@pytest.mark.parametrize("representation", ["differential", "lifted_differential"])
def test_problems_with_jumps_have_any_representation(representation: str) -> None:
    """A point falls on rough ground while it is pushed to q_0 = 1; the optimum is that of stage states."""
    q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u", 2)
    ground = ns.Contact("ground", gap=q[1], tangent=ca.DM([1, 0]), friction=0.3)
    force = ca.vertcat(u[0], u[1] - 9.81)
    point = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=force, contacts=[ground])
    target = [ns.Constraint(q[0], 1.0, 1.0)]
    ocp = ns.OCP(point, horizon=1.0, x0=[0, 0.4, 0, 0], stage_cost=ca.sumsqr(u), terminal_constraints=target)
    found = [ns.solve(ocp, ns.FESDJ(control_stages=5, rk_representation=name)) for name in ("integral", representation)]
    assert [solution.status for solution in found] == [ns.Status.SOLVED] * 2
    assert found[0].objective == pytest.approx(found[1].objective, rel=1e-8)
