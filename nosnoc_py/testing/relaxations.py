"""What every relaxation of 0 <= a perp b >= 0 satisfies: its set, its width, its derivatives, small programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.mpcc.relaxations import Relaxation
from nosnoc_py.testing.checks import expect, run_checks

Array = np.ndarray
SIGMAS = 10.0 ** -np.arange(7)


@dataclass(frozen=True)
class RelaxationCase:
    """A relaxation with what it claims; see `check_relaxation`."""

    member: Relaxation
    width: tuple[float, float]
    accuracy: float = 1e-7


def check_relaxation(member: Relaxation, *, width: tuple[float, float], accuracy: float = 1e-7) -> None:
    """Test a relaxation as those of the library are tested.

    Complementary points are feasible and others are not, the set shrinks at its rate, derivatives agree with
    differences and are finite at critical points, and small programs are solved with and without elastic steering.

    Parameters
    ----------
    member : Relaxation
    width : (constant, rate)
        The largest min(a, b) that it allows is constant * sigma ** rate.
    accuracy : float
        Of the solution of a small program at sigma = 1e-8.

    Raises
    ------
    AssertionError
        With everything that does not hold.

    Examples
    --------
    >>> from nosnoc_py.mpcc.relaxations import Relaxation
    >>> from nosnoc_py.testing import check_relaxation
    >>> check_relaxation(Relaxation(lambda a, b, sigma: (a * b - sigma,)), width=(1.0, 0.5))
    """
    case = RelaxationCase(member, width, accuracy)
    run_checks("relaxation", CHECKS if member.equality else (contains_the_complementary_points, *CHECKS), case)


def functions(member: Relaxation) -> tuple[ca.Function, ca.Function, ca.Function]:
    """Return phi, its Jacobian and its Hessians in (a, b, sigma), all rows below each other."""
    z = ca.SX.sym("z", 3)
    rows = ca.vertcat(*member.phi(z[0], z[1], z[2]))
    jacobian = ca.jacobian(rows, z)
    hessian = ca.jacobian(ca.vec(jacobian), z)
    phi, first, second = (ca.Function("f", [z], [ca.densify(out)]) for out in (rows, jacobian, hessian))
    return phi, first, second


def values(member: Relaxation, a: Any, b: Any, sigma: Any) -> Array:
    """Return phi at many points (rows, points)."""
    points = [np.broadcast_to(x, np.broadcast_shapes(np.shape(a), np.shape(b))).ravel() for x in (a, b, sigma)]
    phi = np.array(functions(member)[0](np.array(points)))
    return phi.reshape(-1, points[0].size, order="F")


def below(member: Relaxation, a: Any, b: Any, sigma: Any, tolerance: float = 1e-13) -> Array:
    """Return where phi <= 0: the relaxed set of an inequality, and of an equation the side its solutions bound."""
    return np.asarray((values(member, a, b, sigma) <= tolerance).all(axis=0))


# Checks ---------------------------------------------------------------------------------------------------------------


def contains_the_complementary_points(case: RelaxationCase) -> None:
    """Of an inequality; an equation contains them for sigma = 0 only."""
    side = np.array([0.0, 1e-9, 1e-3, 1.0, 1e3])
    for sigma in (*SIGMAS, 1e-12):
        for a, b in ((side, 0.0), (0.0, side)):
            expect(below(case.member, a, b, sigma, 0.0).all(), f"phi > 0 on an axis at sigma = {sigma:g}")


def excludes_the_others(case: RelaxationCase) -> None:
    """Points with min(a, b) far above the width are infeasible at a small sigma."""
    for x, y in ((1.0, 1.0), (1e-3, 1e-3), (1.0, 1e-4), (5.0, 5.0)):
        expect(values(case.member, x, y, 1e-9).max() > 1e-9, f"({x}, {y}) is allowed at sigma = 1e-9")


def shrinks_at_its_rate(case: RelaxationCase) -> None:
    """The largest min(a, b) on a grid is the stated width."""
    constant, rate = case.width
    widths = []
    for sigma in SIGMAS:
        width = constant * sigma**rate
        grid = np.concatenate([width * np.linspace(0, 2, 81), np.geomspace(1e-8, 10, 60)])
        a, b = (side.ravel() for side in np.meshgrid(grid, grid))
        allowed = below(case.member, a, b, sigma, 1e-13 * min(1.0, width))
        widths.append(np.minimum(a, b)[allowed].max(initial=0.0))
    np.testing.assert_allclose(widths, constant * SIGMAS**rate, rtol=1e-6, err_msg="width")


def has_right_derivatives(case: RelaxationCase) -> None:
    """Jacobian and Hessian agree with differences at random points."""
    phi, jacobian, hessian = functions(case.member)
    step, random = 1e-6, np.random.default_rng(3)
    for _ in range(40):
        z = np.r_[random.uniform(0, 2, 2), random.uniform(0.05, 1)]
        if min(abs(z[0] + z[1] - 2 * z[2]), abs(abs(z[0] - z[1]) - z[2])) < 1e-4:
            continue  # Hessians of two-sided formulas may jump here
        for exact, function in ((jacobian, phi), (hessian, lambda x: ca.vec(jacobian(x)))):
            differences = [
                np.array(function(z + step * e) - function(z - step * e)).ravel() / (2 * step) for e in np.eye(3)
            ]
            np.testing.assert_allclose(np.array(exact(z)), np.transpose(differences), rtol=1e-5, atol=1e-7)


def has_finite_derivatives_at_the_critical_points(case: RelaxationCase) -> None:
    """At the origin, on the axes, on kinks, and for sigma from 0 on."""
    for s in (0.0, 1e-300, 1e-24, 1e-12, 1e-6, 1.0):
        critical = [(0, 0), (s, s), (s, 0), (0, s), (s / 2, s / 2), (2 * s, 0), (1, 1), (1, 0), (0, 1), (1 + s, 1)]
        for x, y in critical:
            finite = all(np.isfinite(np.array(function([x, y, s]))).all() for function in functions(case.member))
            expect(finite, f"not finite at a = {x:g}, b = {y:g}, sigma = {s:g}")


def has_continuous_gradients(case: RelaxationCase) -> None:
    """One-sided limits agree along the kinks a + b = 2 sigma, |a - b| = sigma and a = b."""
    jacobian, step = functions(case.member)[1], 1e-9
    for x, y in ((0.3, 0.7), (0.9, 0.1), (0.8, 0.3), (0.1, 0.6), (0.4, 0.4)):
        before, after = (np.array(jacobian([x + sign * step, y, 0.5])) for sign in (-1, 1))
        np.testing.assert_allclose(after, before, atol=1e-7, err_msg=f"gradient at {x}, {y}, sigma = .5")


def says_whether_it_can_be_elastic(case: RelaxationCase) -> None:
    """At a strictly complementary point phi has a slope in sigma that lets a multiplier push sigma to zero."""
    slope = float(np.array(functions(case.member)[1]([2.0, 0.0, 0.0]))[0, 2])
    expect((slope < -0.1) == case.member.elastic, f"elastic={case.member.elastic}, but the slope in sigma is {slope:g}")
    expect(abs(slope) < 10.0, f"the slope in sigma is {slope:g}")


def minimise(
    member: Relaxation,
    objective: Callable[[ca.SX, ca.SX], ca.SX],
    start: Sequence[float],
    steering: str = "direct",
    sigmas: Sequence[float] | Array = 10.0 ** -np.arange(1, 9),
) -> Array:
    """Return the minimum of objective(a, b) under 0 <= a perp b >= 0 by a homotopy in its shortest form."""
    a, b, sigma, slack = (ca.SX.sym(symbol) for symbol in ("a", "b", "sigma", "slack"))
    direct = steering == "direct"
    w, level = (ca.vertcat(a, b), sigma) if direct else (ca.vertcat(a, b, slack), slack)
    cost = objective(a, b) + (0 if direct else slack / sigma)
    ipopt = {"print_level": 0, "sb": "yes", "bound_relax_factor": 0.0, "tol": 1e-10, "max_iter": 200}
    problem = {"x": w, "p": sigma, "f": cost, "g": ca.vertcat(*member.phi(a, b, level))}
    solver = ca.nlpsol("solver", "ipopt", problem, {"print_time": False, "show_eval_warnings": False, "ipopt": ipopt})
    at = np.array(start)
    for value in sigmas:
        guess = at if direct else np.append(at, value)
        lower = 0.0 if member.equality else -np.inf
        at = np.array(solver(x0=guess, p=value, lbx=0, ubx=np.inf, lbg=lower, ubg=0)["x"]).ravel()[:2]
        word = solver.stats()["return_status"]
        expect(solver.stats()["success"], f"IPOPT ended by {word} at sigma = {value:g}")
    return at


def _around_one(a: ca.SX, b: ca.SX) -> ca.SX:
    return (a - 1) ** 2 + (b - 1) ** 2


def solves_a_small_program(case: RelaxationCase) -> None:
    """min (a - 1)^2 + (b - 1)^2 from (.3, .4): both (1, 0) and (0, 1) are solutions, the origin is only C-stationary.

    Started at sigma = 0.1: with sigma = 1 the first solution is (1, 1), and from the diagonal the hyperbola a b = sigma
    may be followed to the origin.
    """
    found = minimise(case.member, _around_one, (0.3, 0.4))
    np.testing.assert_allclose(np.sort(found), [0, 1], atol=case.accuracy)


def solves_a_biactive_program(case: RelaxationCase) -> None:
    """min a + b: the origin, where both sides vanish; an equation stays sqrt(sigma) away."""
    found = minimise(case.member, lambda a, b: a + b, (0.3, 0.4))
    np.testing.assert_allclose(found, 0.0, atol=1.001e-4 if case.member.equality else 1e-10)


def solves_a_small_program_elastically(case: RelaxationCase) -> None:
    """The penalty is exact, so sigma = 1e-4 is small enough; a steeper one makes IPOPT scale the objective away."""
    if case.member.elastic:
        found = minimise(case.member, _around_one, (0.3, 0.4), "l_inf", 10.0 ** -np.arange(1, 5))
        np.testing.assert_allclose(np.sort(found), [0, 1], atol=1e-7)


def works_on_columns(case: RelaxationCase) -> None:
    """Entry by entry, with sigma as a column or a scalar."""
    a, b, sigma = np.array([0.0, 0.3, 2.0]), np.array([0.7, 0.3, 0.1]), np.array([0.5, 0.2, 0.4])
    x, y, s = (ca.SX.sym(symbol, 3) for symbol in "abs")
    one = ca.Function("columns", [x, y, s], [ca.horzcat(*case.member.phi(x, y, s))])
    shared = ca.Function("shared", [x, y, s], [ca.horzcat(*case.member.phi(x, y, s[0]))])
    np.testing.assert_allclose(np.array(one(a, b, sigma)).T, values(case.member, a, b, sigma), atol=1e-15)
    np.testing.assert_allclose(np.array(shared(a, b, sigma)).T, values(case.member, a, b, 0.5), atol=1e-15)


CHECKS = (
    excludes_the_others,
    shrinks_at_its_rate,
    has_right_derivatives,
    has_finite_derivatives_at_the_critical_points,
    has_continuous_gradients,
    says_whether_it_can_be_elastic,
    solves_a_small_program,
    solves_a_biactive_program,
    solves_a_small_program_elastically,
    works_on_columns,
)
