"""Sparsity, active sets, finite elements and phase portraits: what is drawn is what is there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import casadi as ca
import numpy as np
import pytest
from matplotlib.patches import Rectangle

import nosnoc_py as ns
from models import bouncing_ball
from nosnoc_py.errors import OptionError, UnknownNameError
from nosnoc_py.mpcc.layout import At, Layout
from nosnoc_py.mpcc.structure import derivatives
from nosnoc_py.plotting import plot, plot_active_set, plot_elements, plot_homotopy, plot_phase, plot_sparsity
from nosnoc_py.plotting.elements import active_set
from nosnoc_py.plotting.figures import EVENTS
from nosnoc_py.plotting.sparsity import stages_of
from nosnoc_py.roles import Role
from nosnoc_py.solution import EVENT_KINDS, Series

pytestmark = pytest.mark.quick

STAGES, ELEMENTS, RK = 3, 2, 2


@pytest.fixture(scope="module")
def solved() -> tuple[ns.Transcription, ns.Solution]:
    """A ball that falls from 1 m on ground where it stays: it lands after sqrt(2/g) s."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    ground = ns.Contact("ground", gap=q)
    ball = ns.CLS(
        q=q,
        v=v,
        mass_matrix=1,
        force=ca.SX(-9.81),
        contacts=[ground],
        names={"q": ["height"], "v": ["velocity"]},
        units={"height": "m", "velocity": "m/s"},
    )
    ocp = ns.OCP(ball, horizon=1.2, x0=[1, 0], stage_cost=q**2)
    problem = ns.transcribe(ocp, ns.FESDJ(control_stages=STAGES, finite_elements=ELEMENTS, rk_stages=RK))
    solution = problem.solve()
    assert solution.success
    return problem, solution


def dense(pattern: ca.Sparsity) -> np.ndarray:
    return ca.DM.ones(pattern).full().astype(bool)


def test_the_pattern_is_that_of_casadi(solved: tuple[ns.Transcription, ns.Solution]) -> None:
    """Against functions with derivatives of their own; numbers that are not zero lie inside of the pattern."""
    mpcc = solved[0].mpcc
    sections, jacobian_pattern, hessian_pattern = derivatives(mpcc)
    left, right = mpcc.aggregates()
    products = ca.mtimes(left, mpcc.G) * ca.mtimes(right, mpcc.H)
    rows = ca.vertcat(mpcc.g, mpcc.G, mpcc.H, products)
    assert sections == {
        "g": mpcc.g.numel(),
        "G": mpcc.G.numel(),
        "H": mpcc.H.numel(),
        "G H": products.numel(),
    }
    jacobian = ca.Function("rows", [mpcc.w, mpcc.p], [ca.densify(rows)]).jac_sparsity(0, 0)
    assert (dense(jacobian_pattern) == np.array(ca.DM.ones(jacobian).full(), bool)).all()
    assert jacobian_pattern.nnz() == jacobian.nnz()
    multipliers = ca.SX.sym("multipliers", rows.numel())
    hessian, _ = ca.hessian(mpcc.objective + mpcc.penalty + ca.dot(multipliers, rows), mpcc.w)
    assert (dense(hessian_pattern) == np.array(ca.DM.ones(hessian.sparsity()).full(), bool)).all()
    assert (dense(hessian_pattern) == dense(hessian_pattern).T).all()
    random = np.random.default_rng(0)
    at = [random.normal(size=mpcc.w.numel()), mpcc.p0, random.normal(size=rows.numel())]
    values = ca.Function("hessian", [mpcc.w, mpcc.p, multipliers], [hessian])(*at).full()
    assert not (values[~dense(hessian_pattern)]).any()


def test_a_small_pattern_is_known_by_hand() -> None:
    x = ca.SX.sym("x", 3)
    mpcc = ns.MPCC.of_pairs(w=x, G=x[0], H=x[1], g=x[2] ** 2, objective=(x[0] - 1) ** 2)
    sections, jacobian_pattern, hessian_pattern = derivatives(mpcc)
    assert sections == {"g": 1, "G": 1, "H": 1, "G H": 1}
    assert dense(jacobian_pattern).astype(int).tolist() == [[0, 0, 1], [1, 0, 0], [0, 1, 0], [1, 1, 0]]
    assert dense(hessian_pattern).astype(int).tolist() == [[1, 1, 0], [1, 0, 0], [0, 0, 1]]


def test_the_picture_of_the_pattern_has_all_entries(solved: tuple[ns.Transcription, ns.Solution]) -> None:
    _, jacobian, hessian = derivatives(solved[0].mpcc)
    left, right = plot_sparsity(solved[0]).axes
    for axes, pattern in ((left, jacobian), (right, hessian)):
        drawn = axes.lines[0].get_xydata()
        assert len(drawn) == pattern.nnz()
        assert {tuple(place) for place in drawn} == set(zip(*pattern.get_triplet()[::-1], strict=True))
        rows, columns = pattern.shape
        assert f"{rows} x {columns}, {pattern.nnz()} entries" in axes.get_title()
    assert [tick.get_text() for tick in left.get_yticklabels()] == ["g", "G", "H", "G H"]
    assert [text for text in (tick.get_text() for tick in right.get_xticklabels()) if text.isdigit()] == ["0", "1", "2"]
    assert len(plot_sparsity(solved[0].mpcc).axes) == 2
    with pytest.raises(OptionError, match="problem: expected"):
        plot_sparsity(solved[1])  # type: ignore[arg-type]


def test_runs_of_control_stages_are_found() -> None:
    """Controls that stand together in front are one block, not three stages."""
    layout = Layout()
    for stage in range(3):
        layout.add("u", At(stage), ("u",))
    for stage in range(3):
        layout.add("x", At(stage, 0), ("a", "b"))
        layout.add("z", At(stage, 1), ("c",))
    layout.add("end", At(), ("d",))
    assert stages_of(layout) == [("u", 0, 3), ("0", 3, 6), ("1", 6, 9), ("2", 9, 12), ("end", 12, 13)]


def test_the_active_set_changes_at_the_impact(solved: tuple[ns.Transcription, ns.Solution]) -> None:
    problem, solution = solved
    nodes, table = active_set(problem, solution)
    assert nodes[[0, -1]] == pytest.approx([0, 1.2])
    assert len(nodes) == STAGES * ELEMENTS + 1
    landing = int(np.argmin(np.abs(nodes - np.sqrt(2 / 9.81))))
    assert nodes[landing] == pytest.approx(np.sqrt(2 / 9.81), abs=1e-7)
    gap = table["gap[ground]", "lambda_normal[ground]"]
    assert gap[:landing] == ["second is zero"] * landing  # it flies: no force
    assert gap[landing:] == ["first is zero"] * (STAGES * ELEMENTS - landing)  # it lies: no gap
    figure = plot_active_set(problem, solution)
    row = [tick.get_text() for tick in figure.axes[0].get_yticklabels()].index("gap[ground] ⊥ lambda_normal[ground]")
    boxes = [p for p in figure.axes[0].patches if isinstance(p, Rectangle) and p.get_y() == row - 0.4]
    assert [box.get_x() for box in boxes] == pytest.approx(nodes[:-1])
    assert len({box.get_facecolor() for box in boxes}) == 2


def test_a_coarse_tolerance_makes_pairs_biactive(solved: tuple[ns.Transcription, ns.Solution]) -> None:
    _, table = active_set(*solved, tolerance=1e3)
    assert {side for sides in table.values() for side in sides} <= {"both are zero", ""}
    _, table = active_set(*solved, tolerance=-1.0)
    assert {side for sides in table.values() for side in sides} <= {"neither is zero", ""}


def test_elements_are_drawn_with_their_lengths(solved: tuple[ns.Transcription, ns.Solution]) -> None:
    problem, solution = solved
    top, bottom = plot_elements(problem, solution).axes
    stairs = bottom.patches[0].get_data()
    assert stairs.values.sum() == pytest.approx(1.2)
    assert np.diff(stairs.edges) == pytest.approx(stairs.values)
    stages = top.lines[0].get_xdata()
    assert len(stages) == STAGES * ELEMENTS * RK
    expected = stairs.edges[:-1, None] + stairs.values[:, None] * np.array([1 / 3, 1.0])
    assert stages == pytest.approx(expected.ravel())
    assert bottom.get_ylabel() == "length h [s]"


def test_solutions_of_other_problems_are_refused(solved: tuple[ns.Transcription, ns.Solution]) -> None:
    problem, solution = solved
    other = replace(solution, layout_key="other")
    for draw in (plot_active_set, plot_elements):
        with pytest.raises(OptionError, match=r"not one of this problem.*problem\.solve\(\)"):
            draw(problem, other)
        with pytest.raises(OptionError, match="solution: expected Solution"):
            draw(problem, problem)  # type: ignore[arg-type]


def test_pictures_reach_the_disk(solved: tuple[ns.Transcription, ns.Solution], tmp_path: Path) -> None:
    plot_elements(*solved, path=tmp_path / "new" / "elements.png", title="elements")
    assert (tmp_path / "new" / "elements.png").read_bytes().startswith(b"\x89PNG")


def test_the_log_of_a_descent_is_its_slope(solved: tuple[ns.Transcription, ns.Solution]) -> None:
    """Methods without residuals log a slope; without any positive number the objective is drawn."""
    record = replace(solved[1].log[0], complementarity=0.0, infeasibility=0.0, sigma=0.0, slope=2.0, objective=3.0)
    (axes,) = plot_homotopy(replace(solved[1], log=(record, replace(record, step=1, slope=0.5)))).axes
    assert [line.get_label() for line in axes.lines] == ["slope"]
    assert axes.lines[0].get_ydata() == pytest.approx([2.0, 0.5])
    (axes,) = plot_homotopy(replace(solved[1], log=(replace(record, slope=None),))).axes
    assert axes.lines[0].get_ydata() == pytest.approx([3.0])
    assert axes.get_ylabel() == "objective"


def test_costates_are_drawn_where_they_are_what_was_solved_for(solved: tuple[ns.Transcription, ns.Solution]) -> None:
    solution = solved[1]
    for role, drawn in ((Role.COSTATE, True), (Role.COSTATE_ESTIMATE, False)):
        series = {**solution.series, "costate[height]": Series(solution.t, solution.t, role)}
        labels = [axes.get_ylabel() for axes in plot(replace(solution, series=series)).axes]
        assert any("costate" in label for label in labels) is drawn


def test_a_phase_portrait_has_both_sides_of_impacts() -> None:
    ball = bouncing_ball.build(0.8)
    motion = ns.simulate(ball, x0=[1, 0], duration=1.0, method=ns.EventDriven())
    (axes,) = plot_phase(motion, "height", "velocity").axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("height [m]", "velocity [m/s]")
    marks = {line.get_label(): line.get_xydata() for line in axes.lines}
    speed = np.sqrt(2 * 9.81)
    assert marks["impact"] == pytest.approx(np.array([[0, -speed], [0, 0.8 * speed]]), abs=1e-6)
    assert marks["start"] == pytest.approx(np.array([[1, 0]]))
    curve = axes.lines[0].get_xydata()
    energy = 9.81 * curve[:, 0] + 0.5 * curve[:, 1] ** 2
    assert np.isnan(energy).sum() == 1  # between the sides
    assert np.unique(np.round(energy[np.isfinite(energy)], 6)) == pytest.approx([9.81 * 0.64, 9.81], rel=1e-6)


def test_every_kind_of_event_has_a_mark_of_its_own() -> None:
    assert set(EVENTS) == set(EVENT_KINDS)
    assert len({marker for marker, _ in EVENTS.values()}) == len(EVENTS)


def test_phases_are_of_states(solved: tuple[ns.Transcription, ns.Solution]) -> None:
    with pytest.raises(UnknownNameError, match="height"):
        plot_phase(solved[1], "hight", "velocity")
