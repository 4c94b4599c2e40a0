"""Programs of blocks: values and derivatives are those of the same program written out, place by place."""

from __future__ import annotations

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest

from nosnoc_py.kernels import Kernel, KernelCache, KernelEvaluator
from nosnoc_py.programs import BlockProgram, KernelBlock, LinearMap
from nosnoc_py.programs.for_casadi import ForCasadi

pytestmark = pytest.mark.quick

EXACT = 1e-10  # relative, to the largest entry
UNKNOWNS = 7


def blocks() -> list[KernelBlock]:
    """A nonlinear one with numbers of its places, a linear one, one that is a cost only, one with an unknown twice."""
    y, c = ca.SX.sym("y", 3), ca.SX.sym("c", 2)
    rows = ca.vertcat(c[0] * ca.sin(y[0] * y[1]), y[2] ** 3 - c[1] * y[0], ca.exp(y[2]) * y[1])
    curved = KernelBlock(
        name="curved",
        kernel=Kernel(ca.vertcat(y, c), rows, c[1] * y[0] ** 2 * y[2] + ca.cos(y[1])),
        at=LinearMap.of(
            ([[0, 1, 2], [4, 3, 2], [6, 5, 0], [2, 6, 1]],), (None, np.arange(8).reshape(4, 2) / 3)
        ),
        lower=np.zeros(3),
        upper=np.array([[0.0, 1.0, np.inf]] * 4),
        labels=("sine", "cube", "growth"),
    )  # fmt: skip
    z = ca.SX.sym("z", 2)
    at = LinearMap.at([[6, 0], [1, 5]])
    linear = KernelBlock(name="linear", kernel=Kernel(z, 3 * z[0] - z[1]), at=at, lower=-1.0, upper=1.0)
    cost = ca.log(1 + z[0] ** 2) * z[1]
    spent = KernelBlock(name="spent", kernel=Kernel(z, ca.SX(0, 1), cost), at=LinearMap.at([[3, 4]]), weights=[2.0])
    twice = KernelBlock(
        name="twice", kernel=Kernel(z, z[0] ** 2 * z[1]), at=LinearMap.at([[5, 5], [4, 0]]), lower=0, upper=9
    )
    # Sums of unknowns: arguments (0.5 w_0 + 2 w_1 - w_0 + 1, w_3) and (w_2 + w_2 + 3 w_4 - 1, w_5).
    sums = LinearMap(
        np.array([0, 0, 0, 1]),
        np.array([[0, 1, 0, 3], [2, 2, 4, 5]]),
        np.array([[0.5, 2.0, -1.0, 1.0], [1.0, 1.0, 3.0, 1.0]]),
        np.array([[1.0, 0.0], [-1.0, 0.0]]),
    )
    summed = KernelBlock(
        name="summed", kernel=Kernel(z, ca.sin(z[0]) * z[1], z[0] ** 2 * z[1] ** 2), at=sums, lower=0, upper=1
    )
    return [curved, linear, spent, twice, summed]


def plainly(program: BlockProgram, x: ca.SX) -> tuple[ca.SX, ca.SX]:
    """Objective and rows of the same program in loops, in its own scales."""
    w, cost, rows = x * program.scale, ca.SX(0), []
    for block in program.blocks:
        weights = block.cost_weights()
        for k in range(block.places):
            offset = np.zeros(block.kernel.n) if block.at.offset is None else block.at.offset[k]
            a = [ca.SX(float(number)) for number in offset]
            for i, j, factor in zip(block.at.component, block.at.position[k], block.at.coefficient[k], strict=True):
                a[int(i)] += float(factor) * w[int(j)]
            row, spent = ca.substitute([block.kernel.rows, block.kernel.cost], [block.kernel.a], [ca.vertcat(*a)])
            rows.append(row)
            cost += weights[k] * spent
    return cost * program.cost_scale, ca.vertcat(*rows) * program.row_scale


@pytest.fixture(params=range(3))
def point(request: pytest.FixtureRequest) -> tuple[BlockProgram, np.ndarray]:
    """A program with sizes between 1e-3 and 1e3, and a random iterate in its own units."""
    rng = np.random.default_rng(request.param)
    scale = 10.0 ** rng.uniform(-3, 3, UNKNOWNS) if request.param else np.ones(UNKNOWNS)
    w = rng.normal(size=UNKNOWNS)
    program = BlockProgram(blocks(), np.full(UNKNOWNS, -5.0), np.full(UNKNOWNS, 5.0), scale, w)
    return program, rng.normal(size=UNKNOWNS) / scale


def test_values_and_first_derivatives(point: tuple[BlockProgram, np.ndarray]):
    """Objective, rows, gradient and Jacobian to 1e-10."""
    program, x = point
    symbol = ca.SX.sym("x", UNKNOWNS)
    f, g = plainly(program, symbol)
    known = ca.Function("known", [symbol], [f, g, ca.gradient(f, symbol), ca.jacobian(g, symbol)])(x)
    (value, rows), gradient = program.values(x), program.first(x)[0]
    for found, expected in zip((value, rows, gradient, program.jacobian(x).toarray()), known, strict=True):
        assert_close(found, expected)
    cost, unscaled = program.evaluate(x * program.scale)
    assert_close(cost * program.cost_scale, known[0])
    assert_close(unscaled * program.row_scale, known[1])


def test_the_hessian_of_the_lagrangian(point: tuple[BlockProgram, np.ndarray]):
    """Its upper triangle to 1e-10, also where one block has an unknown twice or sums of unknowns."""
    program, x = point
    symbol, weight, multipliers = ca.SX.sym("x", UNKNOWNS), 0.7, np.linspace(-2.0, 3.0, program.rows)
    f, g = plainly(program, symbol)
    known = ca.hessian(weight * f + ca.dot(ca.DM(multipliers), g), symbol)[0]
    expected = ca.triu(ca.Function("known", [symbol], [known])(x))
    found = np.zeros((UNKNOWNS, UNKNOWNS))
    found[program.hessian_pattern] = program.second(x, weight, multipliers)
    assert_close(found, expected)
    # Every place is stored once, as solvers that factorise in place need it.
    row, column = program.hessian_pattern
    assert len(set(zip(row.tolist(), column.tolist(), strict=True))) == row.size
    assert (row <= column).all()


def test_gradients_have_the_size_one_at_the_start():
    """The largest entry of every row of the Jacobian, and of the gradient, is one."""
    start = np.linspace(0.5, 1.5, UNKNOWNS)
    scale = 10.0 ** np.linspace(-2, 2, UNKNOWNS)
    made = blocks()
    made[0] = replace(made[0], at=replace(made[0].at, offset=np.ones((4, 5)) * [0, 0, 0, 0.7, 0.4]))  # no zero rows
    program = BlockProgram(made, np.full(UNKNOWNS, -5.0), np.full(UNKNOWNS, 5.0), scale, start)
    x = start / scale
    assert np.abs(program.first(x)[0]).max() == pytest.approx(1.0)
    np.testing.assert_allclose(np.abs(program.jacobian(x).toarray()).max(axis=1), 1.0)


def test_casadi_gets_every_part_with_its_value() -> None:
    """Objective with its gradient, rows with their Jacobian, as the program has them."""
    program = BlockProgram(
        blocks(), np.full(UNKNOWNS, -5.0), np.full(UNKNOWNS, 5.0), np.ones(UNKNOWNS), np.ones(UNKNOWNS)
    )
    given, x = ForCasadi(program), np.linspace(0.3, 1.2, UNKNOWNS)
    objective, rows = program.values(x)
    f, gradient = given.derivatives["grad_f"](x, [])
    g, jacobian = given.derivatives["jac_g"](x, [])
    assert float(f) == pytest.approx(objective, rel=1e-14)
    np.testing.assert_allclose(gradient.full().ravel(), program.first(x)[0], rtol=0, atol=1e-14)
    np.testing.assert_allclose(g.full().ravel(), rows, rtol=0, atol=1e-14)
    np.testing.assert_allclose(jacobian.full(), program.jacobian(x).toarray(), rtol=0, atol=1e-14)


def test_labels_begin_anew_in_every_block() -> None:
    """A block of three rows at both of its places behind two rows of another one."""
    z, at = ca.SX.sym("z", 2), LinearMap.at([[0, 1], [2, 3]])
    made = [
        KernelBlock(name=name, kernel=Kernel(z, rows), at=at, lower=0, upper=1, labels=labels)
        for name, rows, labels in (
            ("sum", z[0] + z[1], ("only",)),
            ("all", ca.vertcat(z, z[0] * z[1]), ("left", "right", "product")),
            ("pair", z, ("first", "second")),
        )
    ]
    program = BlockProgram(made, np.full(4, -5.0), np.full(4, 5.0), np.ones(4), np.ones(4))
    assert [program.label(k) for k in range(2)] == ["sum: only"] * 2
    assert [program.label(k) for k in range(2, 8)] == ["all: left", "all: right", "all: product"] * 2
    assert [program.label(k) for k in range(8, 12)] == ["pair: first", "pair: second"] * 2


def test_the_worst_row_is_named():
    """By its block and its label; a bound as such; what is no number as such."""
    made, low, high = blocks(), np.full(UNKNOWNS, -5.0), np.full(UNKNOWNS, 5.0)
    program = BlockProgram(made[:4], low, high, np.ones(UNKNOWNS), np.ones(UNKNOWNS))
    names = [program.label(k) for k in range(program.rows)]
    assert names[:4] == ["curved: sine", "curved: cube", "curved: growth", "curved: sine"]
    assert names[12:] == ["linear", "linear", "twice", "twice"]
    w = np.zeros(UNKNOWNS)
    w[6] = 3.0
    assert program.violation(w) == (pytest.approx(8.0), "linear")
    w[6] = 60.0
    assert program.violation(w)[0] >= 55.0
    quiet = BlockProgram([made[2]], low, high, np.ones(UNKNOWNS), np.ones(UNKNOWNS))
    assert quiet.violation(np.full(UNKNOWNS, 6.0)) == (1.0, "a bound")
    assert program.violation(np.full(UNKNOWNS, np.nan)) == (np.inf, "curved: sine, which is not finite,")


def test_what_is_not_finite_is_found_with_its_place():
    """The logarithm of the second place, and the second derivative of a power at zero."""
    y = ca.SX.sym("y")
    low, high, one = np.full(3, -9.0), np.full(3, 9.0), np.ones(3)
    for rows, w, place in (
        (ca.log(y), [1.0, -1.0, 2.0], 1),
        (y**1.5, [1.0, 2.0, 0.0], 2),
        (y**1.5, [1.0, 2.0, 3.0], None),
    ):
        block = KernelBlock(name="one", kernel=Kernel(y, rows), at=LinearMap.at([[0], [1], [2]]), lower=0, upper=0)
        found = BlockProgram([block], low, high, one, one).not_finite(np.array(w))
        assert found == (None if place is None else (block, place))


def test_rows_of_a_block_are_found_in_those_of_all():
    """`of` gives them by places."""
    made = blocks()
    program = BlockProgram(made, np.full(UNKNOWNS, -5.0), np.full(UNKNOWNS, 5.0), np.ones(UNKNOWNS), np.ones(UNKNOWNS))
    numbers = np.arange(program.rows)
    np.testing.assert_array_equal(program.of(made[0], numbers), np.arange(12).reshape(4, 3))
    np.testing.assert_array_equal(program.of(made[3], numbers), [[14], [15]])
    assert program.of(made[2], numbers).shape == (1, 0)


class TestLinearMaps:
    def test_parts_stand_one_after_another(self):
        """Unknowns as they are, sums with and without numbers, and numbers; one row serves all places."""
        w = np.array([1.0, 10.0, 100.0, 1000.0])
        sums = [[[0, 1], [2, 3]], [[1, 2], [0, 3]]]
        at = LinearMap.of(
            ([[3], [2]],), (sums, [[2.0, 0.5], [1.0, -1.0]]), (None, [[7.0]]), ([[[0]], [[1]]], [[3.0], [4.0]], [[5.0]])
        )
        assert at.places == 2
        expected = [[1000.0, 2 + 50.0, 20 + 500.0, 7.0, 8.0], [100.0, 10 - 1.0, 100 - 1000.0, 7.0, 45.0]]
        assert at.arguments(w, 5).tolist() == expected

    def test_arguments_are_those_of_the_program(self, point: tuple[BlockProgram, np.ndarray]):
        program, x = point
        for block in program.blocks:
            a = block.at.arguments(x * program.scale, block.kernel.n)
            rows = KernelEvaluator(block.kernel, a).values()[:, :-1]
            assert_close(rows.ravel(), program.of(block, program.evaluate(x * program.scale)[1]).ravel())


class TestCache:
    a = ca.SX.sym("a", 2)

    def kernel(self, cache: KernelCache, expression: ca.SX, *numbers: float) -> Kernel:
        return cache.kernel("one", [self.a, expression], lambda: Kernel(self.a, expression), *numbers)

    def test_the_same_expressions_have_one_kernel(self):
        cache, product = KernelCache(), self.a[0] * self.a[1]
        one = self.kernel(cache, product)
        assert self.kernel(cache, product) is one
        assert self.kernel(cache, product, 2.0) is not one
        assert self.kernel(cache, self.a[0] + self.a[1]) is not one

    def test_those_used_last_are_kept(self):
        """Three of two: the first was used again, so that the second goes."""
        cache, expressions = KernelCache(most=2), [k * self.a[0] for k in (2, 3, 4)]
        first, second = (self.kernel(cache, e) for e in expressions[:2])
        assert self.kernel(cache, expressions[0]) is first
        self.kernel(cache, expressions[2])
        assert len(cache) == 2
        assert self.kernel(cache, expressions[0]) is first
        assert self.kernel(cache, expressions[1]) is not second

    def test_a_second_program_of_a_sequence_differentiates_nothing(self, monkeypatch: pytest.MonkeyPatch):
        """Another mesh and another start use the kernels of the first; the system keeps them."""
        import nosnoc_py as ns

        q, v, u = (ca.SX.sym(name) for name in "qvu")
        ground = ns.Contact("ground", gap=q, restitution=0.5)
        ball = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - 9.81, contacts=[ground])
        ocp = ns.OCP(ball, horizon=1.0, x0=[1, 0], stage_cost=u**2, terminal_constraints=[q == 0.2])
        first = ns.solve(ocp, ns.MultiPhase(sequence=[{}, "impact ground", {}], intervals=4))
        made = len(ball.kernels)
        calls = []
        differentiate = ca.jacobian
        monkeypatch.setattr(ca, "jacobian", lambda *given: calls.append(given) or differentiate(*given))
        again = ns.solve(ocp, ns.MultiPhase(intervals=9, stages=4), guess=first)
        assert first.success
        assert again.success
        assert made >= 3
        assert len(calls) < 10


def assert_close(found: object, expected: object) -> None:
    one, other = np.array(ca.DM(found)), np.array(ca.DM(expected))
    np.testing.assert_allclose(one, other, rtol=0, atol=EXACT * max(1.0, np.abs(other).max(initial=0.0)))
