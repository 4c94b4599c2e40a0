"""The NLPs that an MPCC is turned into: their rows, their derivatives, and that these are made once."""

from itertools import product

import casadi as ca
import numpy as np
import pytest

import nosnoc_py as ns
from nosnoc_py.mpcc.homotopy import Homotopy
from nosnoc_py.mpcc.interior import method
from nosnoc_py.mpcc.ipopt import Ipopt
from nosnoc_py.mpcc.nlp import STEERINGS, Blocks, branch_nlp, relaxed_nlp
from nosnoc_py.mpcc.relaxations import RELAXATIONS
from nosnoc_py.mpcc.strategy import Solvers
from tests.mpcc import literature

pytestmark = pytest.mark.quick

VARIANTS = [(name, by) for name, by in product(RELAXATIONS, STEERINGS) if by == "direct" or RELAXATIONS[name].elastic]
SCALE = np.array([10.0, 0.1, 1.0, 100.0])


def two_pairs(program, **options):
    return program(
        ["a", "b", "c", "d"],
        lambda w: [(w[0], w[1]), (w[2] + 1, w[3])],
        lambda w: w[0] ** 2,
        rows=lambda w: [("row", w[0] + w[2], -1, 4)],
        penalty=lambda w: 3 * w[3],
        **options,
    )


def curved(program, **options):
    """Everything nonlinear: objective, penalty, a row, a side of a pair, a switched equation; a parameter in all."""
    return program(
        ["a", "b", "c", "d"],
        lambda w: [(w[0], w[1]), (ca.sin(w[2]) + 2 * w[4], w[3])],
        lambda w: ca.exp(w[0] - w[1]) + w[4] * w[2] ** 2,
        rows=lambda w: [("row", w[0] * w[2] + ca.cos(w[3]), -1, 4), ("other", w[1] ** 3 - w[4], 0, 0)],
        penalty=lambda w: w[3] ** 4,
        switched=lambda w: [("equal steps", w[2] * w[3] - 1)],
        p=[0.7],
        **options,
    )


def relaxed(mpcc, relaxation="scholtes", steering="direct"):
    return relaxed_nlp(Blocks(mpcc), relaxation, steering)


def values(nlp, x, p):
    f, g = ca.Function("nlp", [nlp.x, nlp.p], [nlp.f, nlp.g])(x, p)
    return float(f), np.array(g).ravel()


# Rows ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("steering", "extra"), [("direct", 0), ("l_inf", 1), ("l1", 2)])
def test_slacks_of_a_steering(program, steering, extra):
    nlp = relaxed(two_pairs(program), "scholtes", steering)
    assert nlp.x.numel() == 4 + extra
    assert nlp.p.numel() == 2  # penalty weight, sigma
    f, g = values(nlp, np.r_[2.0, 3, 4, 5, [0.5] * extra], [1.0, 0.1])
    assert f == pytest.approx(4 + 15 + extra * 0.5 / 0.1)  # objective + penalty + slack / sigma
    level = 0.5 if extra else 0.1
    # row; c + 1 and the plain sides of unbounded variables; products
    np.testing.assert_allclose(g, [6, 5, 6 - level, 25 - level])
    assert np.array_equal(nlp.lbx, [0, 0, -np.inf, 0] + [0] * extra)
    assert np.array_equal(nlp.lbg, [-1, 0, -np.inf, -np.inf])
    assert np.array_equal(nlp.ubg, [4, np.inf, 0, 0])


def test_the_penalty_counts_by_its_weight(program):
    nlp = relaxed(two_pairs(program))
    for weight in (0.0, 0.5, 1.0):
        assert values(nlp, [2.0, 3, 4, 5], [weight, 0.1])[0] == pytest.approx(4 + 15 * weight, abs=1e-14)
    branch = branch_nlp(Blocks(two_pairs(program)))
    assert branch.p.numel() == 1
    assert values(branch, [2.0, 3, 4, 5], [0.0])[0] == 4.0


@pytest.mark.parametrize("relaxation", RELAXATIONS)
def test_an_equality_relaxation_bounds_the_products_from_both_sides(program, relaxation):
    nlp, member = relaxed(two_pairs(program), relaxation), RELAXATIONS[relaxation]
    rows = 2 * len(member.phi(ca.SX(1), ca.SX(1), ca.SX(1)))
    assert np.array_equal(nlp.lbg[-rows:], np.full(rows, 0.0 if member.equality else -np.inf))
    assert np.array_equal(nlp.ubg[-rows:], np.zeros(rows))


def test_switched_equations_are_relaxed_when_enforced_and_absent_otherwise(program):
    def rows(enforce):
        mpcc = program(
            ["a", "b", "s"],
            lambda w: [(w[0], w[1])],
            switched=lambda w: [("equal steps", w[2] - 1)],
            enforce_switched=enforce,
        )
        return relaxed(mpcc)

    assert rows(False).g.numel() == 1
    nlp = rows(True)
    np.testing.assert_allclose(values(nlp, [2, 3, 1.5], [1, 0.1])[1], [6 - 0.1, 3 - 0.1, 3 + 0.1])  # r eta = .5 * 2 * 3
    assert np.array_equal(nlp.lbg[1:], [-np.inf, 0])
    assert np.array_equal(nlp.ubg[1:], [0, np.inf])


@pytest.mark.parametrize(("relaxation", "steering"), VARIANTS)
def test_a_program_without_pairs_is_left_alone(program, relaxation, steering):
    mpcc = program(["a"], objective=lambda w: (w[0] - 1) ** 2, rows=lambda w: [("row", w[0], 0, 2)])
    assert relaxed(mpcc, relaxation, steering).g.numel() == 1


def test_members_that_are_not_elastic_say_which_are(program):
    with pytest.raises(ns.OptionError, match=r"'lin_fukushima' takes steering='direct' only; elastic ones: scholtes, "):
        relaxed(two_pairs(program), "lin_fukushima", "l1")


def test_nominal_values_scale_the_nlp_and_nothing_else(program):
    plain, scaled = (branch_nlp(Blocks(two_pairs(program, scale=by, lower=-3, upper=7))) for by in (1.0, SCALE))
    w = np.array([2.0, 3, 4, 5])
    for nlp, x in ((plain, w), (scaled, w / SCALE)):
        f, g = values(nlp, x, [0.0])
        assert f == 4.0
        np.testing.assert_allclose(g, [6, 5])
    np.testing.assert_allclose(scaled.lbx * SCALE, plain.lbx)
    np.testing.assert_allclose(scaled.ubx * SCALE, plain.ubx)


# Derivatives --------------------------------------------------------------------------------------------------------


def check_derivatives(nlp, seed=0):
    """Ours in the form that `nlpsol` takes against CasADi's of the same expressions and, the gradient, differences."""
    random = np.random.default_rng(seed)
    n, m = nlp.x.numel(), nlp.g.numel()
    x, p = random.uniform(0.3, 1.5, n), random.uniform(0.3, 1.0, nlp.p.numel())
    lam_f, lam_g = 1.7, random.normal(size=m)
    ours = nlp.derivatives
    theirs = ca.nlpsol("nlp", "ipopt", {"x": nlp.x, "p": nlp.p, "f": ca.densify(nlp.f), "g": nlp.g})
    for name, arguments in (("grad_f", (x, p)), ("jac_g", (x, p)), ("hess_lag", (x, p, lam_f, lam_g))):
        expected = theirs.get_function(f"nlp_{'hess_l' if name == 'hess_lag' else name}")
        one, other = (np.array(f.call(list(arguments))[-1]) for f in (ours[name], expected))
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)
    hessian = np.array(ours["hess_lag"](x, p, lam_f, lam_g))
    assert np.array_equal(hessian, np.triu(hessian))

    def lagrangian(point):
        f, g = values(nlp, point, p)
        return lam_f * f + lam_g @ g

    def slope(point):
        gradient = np.array(ours["grad_f"](point, p)[1]).ravel()
        return lam_f * gradient + np.array(ours["jac_g"](point, p)[1]).T @ lam_g

    step = 1e-6
    shifts = step * np.eye(n)
    numeric = [(lagrangian(x + d) - lagrangian(x - d)) / (2 * step) for d in shifts]
    np.testing.assert_allclose(slope(x), numeric, rtol=1e-6, atol=1e-6 * np.abs(numeric).max())
    columns = np.array([(slope(x + d) - slope(x - d)) / (2 * step) for d in shifts])
    full = hessian + np.triu(hessian, 1).T
    np.testing.assert_allclose(full, columns, rtol=1e-5, atol=1e-6 * max(1.0, np.abs(full).max()))


@pytest.mark.parametrize("enforce", [True, False])
@pytest.mark.parametrize("scale", [1.0, SCALE], ids=["plain", "scaled"])
@pytest.mark.parametrize(("relaxation", "steering"), VARIANTS)
def test_derivatives_of_relaxed_programs(program, relaxation, steering, scale, enforce):
    check_derivatives(relaxed(curved(program, scale=scale, enforce_switched=enforce), relaxation, steering))


@pytest.mark.parametrize("scale", [1.0, SCALE], ids=["plain", "scaled"])
def test_derivatives_of_the_branch_program(program, scale):
    check_derivatives(branch_nlp(Blocks(curved(program, scale=scale))))


@pytest.mark.parametrize("case", literature.CASES, ids=repr)
def test_derivatives_of_the_literature(case):
    check_derivatives(relaxed(case.mpcc, "scholtes", "l_inf"))
    check_derivatives(branch_nlp(Blocks(case.mpcc)))


def test_wrong_derivatives_would_be_noticed(program):
    """The negative control."""
    nlp = relaxed(curved(program))
    nlp.derivatives["hess_lag"] = relaxed(two_pairs(program, p=[0.7])).derivatives["hess_lag"]
    with pytest.raises((AssertionError, RuntimeError)):
        check_derivatives(nlp)


# Sharing ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def built(monkeypatch):
    """The options of every nlpsol and every program of an interior-point method that is made."""
    made, nlpsol, evaluation_of = [], ca.nlpsol, method.evaluation_of

    def counting(name, plugin, problem, options):
        made.append(options)
        return nlpsol(name, plugin, problem, options)

    def evaluated(nlp):
        made.append({"evaluation of": nlp})
        return evaluation_of(nlp)

    monkeypatch.setattr(ca, "nlpsol", counting)
    monkeypatch.setattr(method, "evaluation_of", evaluated)
    return made


DERIVATIVES = ("grad_f", "jac_g", "hess_lag")


def test_variants_of_one_program_share_their_derivatives(program, built):
    solvers = Solvers(curved(program))
    one, other = (solvers.relaxed("scholtes", "l_inf", {"max_iter": count}) for count in (10, 20))
    assert one is not other
    assert one.nlp is other.nlp
    assert len(built) == 2
    for name in DERIVATIVES:
        assert built[0][name] is built[1][name]
    assert solvers.relaxed("scholtes", "l_inf", {"max_iter": 10}) is one
    assert len(built) == 2
    third = solvers.relaxed("scholtes", "direct", {"max_iter": 10})  # another program, of the same blocks
    assert third.nlp is not one.nlp
    assert third.nlp.blocks[0] is one.nlp.blocks[0]
    assert solvers.finish({}).program.nlp.blocks[0] is one.nlp.blocks[0]


def test_the_solver_has_these_derivatives_and_no_others(program):
    nlp = relaxed(curved(program))
    solvers = [Ipopt(nlp, {"max_iter": count}) for count in (5, 6)]
    for name, inside in zip(DERIVATIVES, ("nlp_grad_f", "nlp_jac_g", "nlp_hess_l"), strict=True):
        functions = [solver._solver.get_function(inside) for solver in solvers]
        assert {hash(function) for function in functions} == {hash(nlp.derivatives[name])}
    assert solvers[0].solve(np.ones(4), np.array([0.7, 1.0, 0.1])).iterations >= 1
    own = ca.nlpsol("nlp", "ipopt", {"x": nlp.x, "p": nlp.p, "f": nlp.f, "g": nlp.g})
    assert hash(own.get_function("nlp_jac_g")) != hash(nlp.derivatives["jac_g"])  # the negative control


@pytest.mark.parametrize("solver", [ns.Auto(), ns.ActiveSet(), Homotopy(), Homotopy(step_tolerances=True)], ids=str)
def test_solving_again_builds_nothing(built, solver):
    mpcc = literature.case("bard1").mpcc
    solvers = solver.build(mpcc)
    first = solver.run(mpcc, solvers=solvers)
    count = len(built)
    assert 1 <= count <= 25
    again = solver.run(mpcc, solvers=solvers)
    assert len(built) == count
    np.testing.assert_allclose(first.w, again.w, rtol=0, atol=1e-9)
    solver.run(mpcc)  # the negative control: parts of its own
    assert len(built) == 2 * count


def test_an_nlp_that_ipopt_refuses_has_no_iterations(program):
    """More equations than variables: CasADi then counts what nobody has set, also after a solve that counted."""
    rows = [("first", lambda w: w[0]), ("second", lambda w: w[0] + w[1]), ("third", lambda w: w[0] - w[1])]
    mpcc = program(
        ["x", "y"],
        lambda w: [(w[0], w[1])],
        lambda w: (w[0] - 3) ** 4,
        rows=lambda w: [(name, row(w), -9, 9) for name, row in rows],
    )
    ipopt = Ipopt(branch_nlp(Blocks(mpcc)), {})
    x, p, ones = np.full(2, 0.5), np.zeros(1), np.ones(3)
    for _ in range(2):
        assert ipopt.solve(x, p).iterations > 3
        refused = ipopt.solve(x, p, lbg=ones, ubg=ones)
        assert refused.solver_status == "Not_Enough_Degrees_Of_Freedom"
        assert refused.iterations == 0
