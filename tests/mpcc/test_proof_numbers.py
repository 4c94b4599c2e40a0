"""Linear programs of proofs, branches and implied bounds on programs whose numbers are written down."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import casadi as ca
import numpy as np
import pytest
from scipy import sparse

import nosnoc_py as ns
from nosnoc_py.mpcc import branch, proofs
from nosnoc_py.mpcc.again import Resolve
from nosnoc_py.mpcc.branch import BranchProgram, as_differences, dependent_rows, remove_common_parts
from nosnoc_py.mpcc.layout import At
from nosnoc_py.mpcc.nlp import Blocks
from nosnoc_py.mpcc.program import ProgramBuilder
from nosnoc_py.mpcc.proofs import Feasibility, Proofs, Ray, infeasibility_message, ray_message
from nosnoc_py.mpcc.residuals import Evaluator
from nosnoc_py.mpcc.strategy import Solvers
from nosnoc_py.mpcc.structure import derivatives, implied_lower_bounds

pytestmark = pytest.mark.quick

NONE, INF = np.zeros(0), np.inf


def pairs(**fields: Any) -> ns.MPCC:
    """x and y are complementary, z is free, and 2 x + 3 z is between 1 and 5."""
    w = ca.SX.sym("w", 3)
    given: dict[str, Any] = {"w": w, "G": w[0], "H": w[1], "g": 2 * w[0] + 3 * w[2], "lbg": 1.0, "ubg": 5.0}
    more = {name: value(w) if callable(value) else value for name, value in fields.items()}
    return ns.MPCC.of_pairs(**{**given, **more})


def of(mpcc: ns.MPCC) -> Proofs:
    return Solvers(mpcc).proofs


class TestAffineRows:
    def test_rows_limits_and_scales(self) -> None:
        """Columns are scaled by one over their largest entries 2, 1 and 3, rounded to powers of two."""
        program = of(pairs(lbw=-4.0, ubw=[7.0, 8.0, 9.0])).program(NONE)
        assert program is not None
        assert program.matrix.toarray().tolist() == [[2.0, 0, 3.0], [1.0, 0, 0], [0, 1.0, 0]]
        assert program.lower.tolist() == [1.0, 0.0, 0.0]
        assert program.upper.tolist() == [5.0, INF, INF]
        assert program.box_lower.tolist() == [-4.0] * 3
        assert program.box_upper.tolist() == [7.0, 8.0, 9.0]
        assert program.columns.tolist() == [0.5, 1.0, 0.25]
        assert program.norm.tolist() == [1.0, 0.5, 1.0]
        assert program.exact
        assert program.known.all()
        # Distances from the lower limits, in units of the largest scaled entries.
        assert program.away(np.array([3.0, 4.0, 5.0])).tolist() == pytest.approx([20.0, 6.0, 4.0])
        shifted = of(pairs(g=lambda w: 2 * w[0] + 3 * w[2] - 10)).program(NONE)
        assert shifted is not None
        assert (shifted.lower[0], shifted.upper[0]) == (11.0, 15.0)

    def test_rows_that_are_not_affine_have_no_limits(self) -> None:
        program = of(pairs(g=lambda w: ca.vertcat(ca.sin(w[0]), w[2]))).program(NONE)
        assert program is not None
        assert program.known.tolist() == [False, True, True, True]
        assert program.lower.tolist() == [-INF, 1.0, 0.0, 0.0]
        assert not program.exact
        assert program.nodes == 8
        assert program.away(np.array([3.0, 4.0, 5.0])).tolist() == [0.0, 4.0, 3.0, 4.0]

    @pytest.mark.parametrize(("size", "nodes"), [(3, 200), (400, 125), (40000, 8)])
    def test_the_number_of_programs_falls_with_their_size(self, size: int, nodes: int) -> None:
        program = of(pairs()).program(NONE)
        assert program is not None
        assert replace(program, matrix=sparse.csr_array((size, size)[:2])).nodes == nodes

    def test_the_least_violation_and_its_proof(self) -> None:
        """With z <= 0 the rows 2 x + 3 z >= 1 and x = 0 are missed by a third: 2 x >= 1 - t and x <= t."""
        program = of(pairs(ubw=[INF, INF, 0.0])).program(NONE)
        assert program is not None
        nothing = np.zeros(3, bool)
        free = program.closest(nothing, INF)
        assert free.bound == pytest.approx(0.0, abs=1e-9)
        held = program.closest(np.array([False, True, False]), INF)
        assert held.bound == pytest.approx(1.0 / 3.0, rel=1e-6)
        assert held.w is not None
        assert held.w[0] == pytest.approx(1.0 / 3.0, rel=1e-6)
        assert (held.weight > 1e-9).tolist() == [True, True, False]

    def test_bounds_are_those_of_the_variables_in_any_scale(self) -> None:
        """With z >= 1/2 and x = 0 the row 2 x + 3 z <= 0.3 is missed by 0.4: x = -0.4 takes its part."""
        for factor in (1.0, 100.0, 0.01):
            program = of(
                pairs(g=lambda w, f=factor: 2 * w[0] + 3 * f * w[2], lbg=-INF, ubg=0.3, lbw=[-INF, -INF, 0.5 / factor])
            ).program(NONE)
            assert program is not None
            assert program.closest(np.array([False, True, False]), INF).bound == pytest.approx(0.4, rel=1e-6)

    def test_a_bound_by_weak_duality(self) -> None:
        """x + y <= 1 and -x <= -3 with the weights 1 and 3 in the box [0, 10]^2: (x + y - 3 x) / 4 + (9 - 1) / 4."""
        program = of(pairs(lbw=0.0, ubw=10.0)).program(NONE)
        assert program is not None
        rows = sparse.csr_array(np.array([[1.0, 1.0, 0.0], [-1.0, 0.0, 0.0]]))
        assert program._bound(rows, np.array([1.0, -3.0]), np.array([1.0, 3.0])) == pytest.approx(-5.0 + 2.0)
        assert program._bound(rows, np.array([1.0, -3.0]), np.array([1.0, 1.0])) == pytest.approx(1.0)
        assert program._bound(rows, np.array([1.0, -3.0]), np.zeros(2)) == 0.0
        unbounded = replace(program, box_upper=np.full(3, INF))
        assert unbounded._bound(rows, np.array([1.0, -3.0]), np.array([1.0, 3.0])) == -INF

    def test_a_recession_cone_moves_along_no_finite_limit(self) -> None:
        program = of(pairs(lbw=[-4.0, -INF, -INF], ubw=[INF, 3.0, INF])).program(NONE)
        assert program is not None
        cone = program.recession(np.array([1.0, -4.0, 2.0]), sparse.csr_array(np.array([[0.0, 0.0, 1.0]])))
        assert cone.lower.tolist() == [0.0, 0.0, 0.0, 0.0]
        assert cone.upper.tolist() == [0.0, INF, INF, 0.0]
        assert cone.box_lower.tolist() == [0.0, -1.0, -1.0]
        assert cone.box_upper.tolist() == [1.0, 0.0, 1.0]
        # The cost in scaled columns, with the largest entry 1.
        assert cone.cost.tolist() == [0.125, -1.0, 0.125]

    def test_scales_of_columns(self) -> None:
        matrix = sparse.csr_array(np.array([[3.0, 0.0, 0.4], [-5.0, 0.0, 0.0]]))
        assert proofs._column_scale(matrix).tolist() == [0.25, 1.0, 2.0]
        hessian = sparse.csr_array(np.array([[0.0, 0, 0], [0, 16.0, 0], [0, 0, 0.0]]))
        assert proofs._column_scale(matrix, hessian, np.array([0.0, 1.0, 8.0])).tolist() == [0.25, 1 / 16, 0.125]


class TestMessages:
    def test_of_infeasibility(self) -> None:
        mpcc = pairs()
        proof = Feasibility(violation=0.123456, programs=1, rows=np.array([2, 0]))
        named = infeasibility_message(mpcc, proof)
        assert named.startswith(
            "proved by one linear program: every branch leaves a violation of at least 0.12, between the bounds and H"
        )
        assert named.index("H") < named.index("g[0]")
        assert "others" not in named
        many = infeasibility_message(mpcc, replace(proof, programs=5, rows=np.array([0, 1, 2, 0])))
        assert "5 linear programs" in many
        assert many.endswith("and others")
        assert "between" not in infeasibility_message(mpcc, replace(proof, rows=np.zeros(0, int)))

    def test_of_a_ray(self) -> None:
        ray = Ray(point=np.zeros(3), d=np.array([0.0, -4.0, 2.0]), slope=-6.0)
        text = ray_message(pairs(), ray)
        assert "by 1.5 for every step -1 in" in text
        assert "+0.5 in" in text
        assert not text.endswith("...")


class TestBoundedness:
    def test_a_box_or_a_convex_objective_without_rays(self) -> None:
        boxed = of(pairs(objective=lambda w: -(w[0] ** 2), lbw=-1.0, ubw=1.0))
        assert not boxed.is_bounded_below(NONE)  # nothing was looked for yet
        assert boxed.ray(NONE, 1e-8) == (None, True)
        assert boxed.is_bounded_below(NONE)
        assert not boxed.has_ray(NONE)
        convex = of(pairs(objective=lambda w: ca.sumsqr(w)))
        convex.ray(NONE, 1e-8)
        assert convex.is_bounded_below(NONE)
        concave = of(pairs(objective=lambda w: w[0] ** 2 + w[1] ** 2 - w[2] ** 2))
        concave.ray(NONE, 1e-8)
        assert not concave.is_bounded_below(NONE)
        falling = of(pairs(objective=lambda w: -w[1]))
        ray, _ = falling.ray(NONE, 1e-8)
        assert ray is not None
        assert falling.has_ray(NONE)
        assert not falling.is_bounded_below(NONE)
        assert not falling.has_ray(np.ones(1))
        cubic = of(pairs(objective=lambda w: w[0] ** 3))
        cubic.ray(NONE, 1e-8)
        assert not cubic.is_bounded_below(NONE)


class TestMemory:
    """Results are kept for their parameters and tolerance; what a deadline has ended is repeated with more time."""

    def test_of_rays(self) -> None:
        found = of(pairs(objective=lambda w: -w[1]))
        assert found.ray(NONE, 1e-8, deadline=0.0) == (None, False)
        ray, complete = found.ray(NONE, 1e-8)
        assert complete
        assert ray is not None
        # Complete results are final, whatever the deadline is.
        assert found.ray(NONE, 1e-8, deadline=0.0)[0] is ray
        assert found.ray(NONE, 1e-6)[0] is not ray

    def test_of_feasible_points(self) -> None:
        found = of(pairs())
        assert found.feasibility(NONE, 1e-8, deadline=0.0).point is None
        known = found.feasibility(NONE, 1e-8)
        assert known.point is not None
        assert found.feasibility(NONE, 1e-8, deadline=0.0) is known
        assert found.feasibility(NONE, 1e-6) is not known


class TestImpliedBounds:
    def test_sums_of_bounded_variables(self) -> None:
        """2 x - z + 1 in the box x >= 3, z <= 4: at least 3; x + y has no lower bound; x z is not affine."""
        w = ca.SX.sym("w", 3)
        G = ca.vertcat(2 * w[0] - w[2] + 1, w[0] + w[1], w[0] * w[2], w[0])
        mpcc = ns.MPCC.of_pairs(
            w=w, G=G, H=ca.vertcat(w[1], w[1], w[1], w[1]), lbw=[3.0, -INF, -INF], ubw=[9.0, INF, 4.0]
        )
        bound, _ = implied_lower_bounds(mpcc)
        assert bound.affine.tolist() == [True, False, False, True]
        assert bound.lowest(NONE).tolist() == [3.0, -INF, -INF, 3.0]
        assert bound.implied.tolist() == [True, False, False, True]
        assert bound.single.tolist() == [-1, -1, -1, 0]
        variable, value = bound.members(np.array([True, False, False, False]))
        assert dict(zip(variable.tolist(), value.tolist(), strict=True)) == {0: 3.0, 2: 4.0}
        assert bound.coefficient[3] == 1.0

    def test_a_row_of_one_variable_and_parameters_has_a_root(self) -> None:
        """4 x - p = 0 at x = p / 4; it is nonnegative for some p only."""
        w, p = ca.SX.sym("w", 2), ca.SX.sym("p")
        mpcc = ns.MPCC.of_pairs(w=w, p=p, p0=[-2.0], G=4 * w[0] - p, H=w[1], lbw=0.0)
        bound, _ = implied_lower_bounds(mpcc)
        assert bound.lowest(np.array([6.0])).tolist() == [-6.0]
        assert bound.implied.tolist() == [False]
        variable, value = bound.roots(np.array([0]), np.array([6.0]))
        assert (variable.tolist(), value.tolist()) == ([0], [1.5])
        assert float(ca.evalf(ca.substitute(bound.root_expressions(np.array([0]), p), p, 6.0))) == 1.5

    def test_patterns_of_derivatives(self) -> None:
        mpcc = pairs(objective=lambda w: w[2] ** 2)
        sections, jacobian, hessian = derivatives(mpcc)
        assert sections == {"g": 1, "G": 1, "H": 1, "G H": 1}
        assert jacobian.shape == (4, 3)
        assert jacobian.nnz() == 2 + 1 + 1 + 2
        # z z of the objective, and x y of the product.
        assert hessian.nnz() == 3


class TestBranches:
    def test_dependent_rows(self) -> None:
        rows = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1e-3], [1.0, 1.0]])
        assert dependent_rows(rows).sum() == 2
        assert dependent_rows(np.eye(2)).tolist() == [False, False]
        assert dependent_rows(np.array([[1.0, 0.0], [1.0, 1e-8]])).tolist() == [False, False]
        assert dependent_rows(np.array([[1.0, 0.0], [1.0, 1e-10]])).sum() == 1
        assert dependent_rows(np.array([[1.0, 0.0], [0.0, 0.0]])).tolist() == [False, True]

    def test_variables_are_fixed_inside_their_bounds(self) -> None:
        low, high = np.array([0.0, 0.0, 2.0]), np.array([1.0, 1.0, 2.0])
        done = branch._fix_variables(low, high, np.array([0, 1, 1, 0, 2]), np.array([0.5, 3.0, 0.25, 0.75, 2.0]))
        assert done.tolist() == [True, False, True, False, True]
        assert low.tolist() == high.tolist() == [0.5, 0.25, 2.0]

    def test_bounds_of_a_branch(self) -> None:
        """With x = 0 the variable is fixed; with G = x + z = 0 both are at their bounds."""
        w = ca.SX.sym("w", 3)
        G, H = ca.vertcat(w[0], w[0] + w[2]), ca.vertcat(w[1], w[1])
        mpcc = ns.MPCC.of_pairs(w=w, G=G, H=H, lbw=0.0, ubw=9.0)
        program = BranchProgram(Blocks(mpcc))
        yes, no, none = np.array([True, False]), np.array([False, True]), np.zeros(0, bool)
        lbx, ubx, *_ = program.bounds(NONE, branch.Branch(yes, no, none))
        assert ubx.tolist() == [0.0, 0.0, 9.0]
        lbx, ubx, *_ = program.bounds(NONE, branch.Branch(no, yes, none))
        assert ubx.tolist() == [0.0, 0.0, 0.0]
        assert lbx.tolist() == [0.0, 0.0, 0.0]
        shifted = ns.MPCC.of_pairs(w=w, G=2 * w[0] - 3, H=w[1], lbw=0.0, ubw=9.0)
        program = BranchProgram(Blocks(shifted))
        lbx, ubx, *_ = program.bounds(NONE, branch.Branch(np.array([True]), np.array([False]), none))
        assert (lbx[0], ubx[0]) == (1.5, 1.5)

    def test_signed_quantities(self) -> None:
        """w = plus - minus: (5, 2) is (3, 0) in parts, and 3 in one variable; (2, 5) is (0, 3), and -3."""
        builder = ProgramBuilder()
        w = builder.variable("w", At(), ("plus", "minus"))
        left, right = builder.left.add(("a",), w[0], At()), builder.right.add(("b",), w[1], At())
        builder.group(left, right, difference_only=True)
        mpcc = builder.build(aggregation="stage_stage", enforce_switched=False)
        assert remove_common_parts(mpcc, np.array([5.0, 2.0])).tolist() == [3.0, 0.0]
        assert remove_common_parts(mpcc, np.array([2.0, 5.0])).tolist() == [0.0, 3.0]
        assert as_differences(mpcc, np.array([2.0, 5.0])).tolist() == [-3.0, 0.0]
        given = np.array([5.0, 2.0])
        as_differences(mpcc, given)
        assert given.tolist() == [5.0, 2.0]

    @pytest.mark.parametrize(("complementarity", "ways"), [(0.9e-5, ("newton", "hold")), (1.1e-5, ("newton",))])
    def test_ways_without_an_objective(self, complementarity: float, ways: tuple[str, ...]) -> None:
        assert Solvers(pairs()).finish({}).ways(complementarity) == ways

    def test_ways_with_an_objective(self) -> None:
        plain = pairs(objective=lambda w: w[0] ** 2)
        assert Solvers(plain).finish({}).ways(1.0) == ("hold",)
        penalised = pairs(objective=lambda w: w[0] ** 2, penalty=lambda w: w[2] ** 2)
        assert Solvers(penalised).finish({}).ways(1.0) == ("penalise", "polish")

    @pytest.mark.parametrize(
        ("w", "lowest", "zero"),
        [
            ([0.1, 0.2, 0.0], (-INF, -INF), (True, False)),
            ([0.2, 0.1, 0.0], (-INF, -INF), (False, True)),
            ([0.1, 0.2, 0.0], (1.0, -INF), (False, True)),  # its bounds keep the left side from zero
            ([0.2, 0.1, 0.0], (-INF, 1.0), (True, False)),
            ([0.2, 0.1, 0.0], (-INF, 0.9e-8), (False, True)),
        ],
    )
    def test_a_side_that_cannot_be_zero_is_not_chosen(self, w: Any, lowest: Any, zero: tuple[bool, bool]) -> None:
        mpcc = pairs()
        values = Evaluator(mpcc)(np.array(w), NONE)
        found = branch.guess_branch(mpcc, values, tuple(np.array([value]) for value in lowest))
        assert (found.G[0], found.H[0]) == zero

    def test_ipopt_is_a_second_attempt_only(self) -> None:
        """A branch that the interior-point method solves needs none; one that it does not is left to IPOPT."""
        mpcc = pairs(objective=lambda w: ca.sumsqr(w - 1), lbw=0.0)
        finish, asked = Solvers(mpcc).finish({}), list[Any]()

        def solve(*given: Any, **more: Any) -> Any:
            asked.append(more)
            return finish.interior.solve(*given, **more)

        finish.__dict__["ipopt"] = SimpleNamespace(solve=solve)
        assert finish(np.array([0.0, 1.0, 1.0]), NONE, INF).converged
        assert asked == []

    def test_solving_again_counts_its_seconds(self) -> None:
        mpcc = pairs(objective=lambda w: ca.sumsqr(w - 1), lbw=0.0)
        began = time.monotonic()
        state = Resolve(Solvers(mpcc), NONE, ns.Auto()).solve_on_shown_branch(np.array([0.0, 1.0, 1.0]))
        assert state.status is ns.Status.SOLVED
        assert 0.0 <= state.records[-1].wall_seconds <= time.monotonic() - began
        assert state.records[-1].label == "branch nearby"

    def test_multipliers_of_a_branch(self) -> None:
        """min (x - 1)^2 + (y - 2)^2 on x = 0: the multiplier of G is -2, by G'nu = f_x."""
        w = ca.SX.sym("w", 2)
        for factor in (1.0, 4.0):
            cost = (w[0] - 1) ** 2 + (w[1] - 2) ** 2
            mpcc = ns.MPCC.of_pairs(w=w, G=factor * w[0], H=w[1], objective=cost, lbw=0.0)
            found = Solvers(mpcc).finish({}).again(np.array([0.0, 2.0]), NONE, INF)
            assert found.w == pytest.approx([0.0, 2.0], abs=1e-6)
            assert found.multipliers is not None
            assert pytest.approx([-2.0 / factor], rel=1e-5) == found.multipliers.G
            assert found.multipliers.w == pytest.approx([0.0, 0.0], abs=1e-6)
