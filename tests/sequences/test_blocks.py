"""Programs of blocks: values and derivatives are those of the same program written out, place by place."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest

from nosnoc_py.sequences.blocks import BlockNLP, NLPBlock

pytestmark = pytest.mark.quick

EXACT = 1e-10  # relative, to the largest entry
UNKNOWNS = 7


def blocks() -> list[NLPBlock]:
    """A nonlinear one with constants, a linear one, one that is a cost only, one that has an unknown twice."""
    y, c = ca.SX.sym("y", 3), ca.SX.sym("c", 2)
    curved = NLPBlock(
        name="curved",
        y=y,
        c=c,
        rows=ca.vertcat(c[0] * ca.sin(y[0] * y[1]), y[2] ** 3 - c[1] * y[0], ca.exp(y[2]) * y[1]),
        cost=c[1] * y[0] ** 2 * y[2] + ca.cos(y[1]),
        lower=np.zeros(3),
        upper=np.array([[0.0, 1.0, np.inf]] * 4),
        index=np.array([[0, 1, 2], [4, 3, 2], [6, 5, 0], [2, 6, 1]]),
        constants=np.arange(8).reshape(4, 2) / 3,
        labels=("sine", "cube", "growth"),
    )
    z = ca.SX.sym("z", 2)
    linear = NLPBlock(name="linear", y=z, rows=3 * z[0] - z[1], lower=-1.0, upper=1.0, index=np.array([[6, 0], [1, 5]]))
    spent = NLPBlock(
        name="spent",
        y=z,
        rows=ca.SX(0, 1),
        cost=ca.log(1 + z[0] ** 2) * z[1],
        lower=0,
        upper=0,
        index=np.array([[3, 4]]),
    )
    twice = NLPBlock(name="twice", y=z, rows=z[0] ** 2 * z[1], lower=0.0, upper=9.0, index=np.array([[5, 5], [4, 0]]))
    return [curved, linear, spent, twice]


def plainly(program: BlockNLP, x: ca.SX) -> tuple[ca.SX, ca.SX]:
    """Objective and rows of the same program in loops, in its own scales."""
    w, cost, rows = x * program.scale, ca.SX(0), []
    for block in program.blocks:
        for k, index in enumerate(block.index):
            symbols, values = [block.y], [w[index.tolist()]]
            if block.constants is not None:
                symbols, values = [*symbols, block.c], [*values, ca.DM(block.constants[k])]
            row, spent = ca.substitute([block.rows, block.cost], symbols, [ca.SX(value) for value in values])
            rows.append(row)
            cost += spent
    return cost * program.cost_scale, ca.vertcat(*rows) * program.row_scale


@pytest.fixture(params=range(3))
def point(request: pytest.FixtureRequest) -> tuple[BlockNLP, np.ndarray]:
    """A program with sizes between 1e-3 and 1e3, and a random iterate in its own units."""
    rng = np.random.default_rng(request.param)
    scale = 10.0 ** rng.uniform(-3, 3, UNKNOWNS) if request.param else np.ones(UNKNOWNS)
    w = rng.normal(size=UNKNOWNS)
    program = BlockNLP(blocks(), np.full(UNKNOWNS, -5.0), np.full(UNKNOWNS, 5.0), scale, w)
    return program, rng.normal(size=UNKNOWNS) / scale


def test_values_and_first_derivatives(point: tuple[BlockNLP, np.ndarray]):
    """Objective, rows, gradient and Jacobian to 1e-10."""
    program, x = point
    symbol = ca.SX.sym("x", UNKNOWNS)
    f, g = plainly(program, symbol)
    known = ca.Function("known", [symbol], [f, g, ca.gradient(f, symbol), ca.jacobian(g, symbol)])(x)
    value, gradient = program.derivatives["grad_f"](x, [])
    rows, jacobian = program.derivatives["jac_g"](x, [])
    for found, expected in zip((value, rows, gradient, jacobian), known, strict=True):
        assert_close(found, expected)
    cost, unscaled = program.evaluate(x * program.scale)
    assert_close(cost * program.cost_scale, known[0])
    assert_close(unscaled * program.row_scale, known[1])


def test_the_hessian_of_the_lagrangian(point: tuple[BlockNLP, np.ndarray]):
    """Its upper triangle to 1e-10, also where one block has an unknown twice."""
    program, x = point
    symbol, weight, multipliers = ca.SX.sym("x", UNKNOWNS), 0.7, np.linspace(-2.0, 3.0, program.rows)
    f, g = plainly(program, symbol)
    known = ca.hessian(weight * f + ca.dot(ca.DM(multipliers), g), symbol)[0]
    expected = ca.triu(ca.Function("known", [symbol], [known])(x))
    assert_close(program.derivatives["hess_lag"](x, [], weight, multipliers), expected)


def test_gradients_have_the_size_one_at_the_start():
    """The largest entry of every row of the Jacobian, and of the gradient, is one."""
    start = np.linspace(0.5, 1.5, UNKNOWNS)
    scale = 10.0 ** np.linspace(-2, 2, UNKNOWNS)
    program = BlockNLP(blocks(), np.full(UNKNOWNS, -5.0), np.full(UNKNOWNS, 5.0), scale, start)
    gradient = program.derivatives["grad_f"](start / scale, [])[1]
    jacobian = np.array(program.derivatives["jac_g"](start / scale, [])[1])
    assert np.abs(np.array(gradient)).max() == pytest.approx(1.0)
    kept = np.abs(jacobian).max(axis=1) > 0.0  # c = 0 makes a row vanish at one place
    single = np.ones(program.rows, bool)
    single[-2] = False  # an unknown that a row has twice counts twice
    np.testing.assert_allclose(np.abs(jacobian).max(axis=1)[kept & single], 1.0)


def test_the_worst_row_is_named():
    """By its block and its label; a bound as such; what is no number as such."""
    made, low, high = blocks(), np.full(UNKNOWNS, -5.0), np.full(UNKNOWNS, 5.0)
    program = BlockNLP(made, low, high, np.ones(UNKNOWNS), np.ones(UNKNOWNS))
    names = [program.label(k) for k in range(program.rows)]
    assert names[:4] == ["curved: sine", "curved: cube", "curved: growth", "curved: sine"]
    assert names[12:] == ["linear", "linear", "twice", "twice"]
    w = np.zeros(UNKNOWNS)
    w[6] = 3.0
    assert program.violation(w) == (pytest.approx(8.0), "linear")
    w[6] = 60.0
    assert program.violation(w)[0] >= 55.0
    quiet = BlockNLP([made[2]], low, high, np.ones(UNKNOWNS), np.ones(UNKNOWNS))
    assert quiet.violation(np.full(UNKNOWNS, 6.0)) == (1.0, "a bound")
    assert program.violation(np.full(UNKNOWNS, np.nan)) == (np.inf, "curved: sine, which is not finite,")


def test_rows_of_a_block_are_found_in_those_of_all():
    """`of` gives them by places."""
    made = blocks()
    program = BlockNLP(made, np.full(UNKNOWNS, -5.0), np.full(UNKNOWNS, 5.0), np.ones(UNKNOWNS), np.ones(UNKNOWNS))
    numbers = np.arange(program.rows)
    np.testing.assert_array_equal(program.of(made[0], numbers), np.arange(12).reshape(4, 3))
    np.testing.assert_array_equal(program.of(made[3], numbers), [[14], [15]])
    assert program.of(made[2], numbers).shape == (1, 0)


def assert_close(found: object, expected: object) -> None:
    one, other = np.array(ca.DM(found)), np.array(ca.DM(expected))
    np.testing.assert_allclose(one, other, rtol=0, atol=EXACT * max(1.0, np.abs(other).max(initial=0.0)))
