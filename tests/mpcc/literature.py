"""Small MPCCs with known solutions, as data: `CASES`, and `case(name)`.

Most are classics of the test collections of the field (their names are kept), written down anew and worked out by
hand; `test_stationarity.py` verifies every objective and every kind, and that no solution has a better one nearby.
"""

from __future__ import annotations

from dataclasses import dataclass

import casadi as ca
import numpy as np

from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.status import Stationarity

S, B, M, C, W = (Stationarity[kind] for kind in "SBMCW")
UNKNOWN = Stationarity.UNKNOWN


@dataclass(frozen=True, eq=False)
class Point:
    """A feasible point, its objective, and the strongest kind of stationarity it has."""

    w: tuple[float, ...]
    objective: float
    kind: Stationarity


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """One MPCC.

    `solutions` are all local minimisers, the best first; `points` are others of a known kind: traps. An infeasible
    program has no solutions. `unique` is False where the multipliers among the variables are not unique, so that
    objectives can be compared but not points; `bounded` where the multipliers of the relaxations are not bounded.
    """

    name: str
    mpcc: MPCC
    solutions: tuple[Point, ...]
    points: tuple[Point, ...] = ()
    starts: tuple[tuple[float, ...], ...]
    unique: bool = True
    bounded: bool = True
    about: str = ""

    @property
    def feasible(self) -> bool:
        """There is a feasible point at all."""
        return bool(self.solutions)

    @property
    def objective(self) -> float:
        """Of the best solution."""
        return self.solutions[0].objective if self.solutions else np.inf

    def __repr__(self) -> str:
        return self.name


CASES: list[Case] = []
PLANE = ((0.0, 0.0), (1.0, 1.0), (-3.0, 2.0), (50.0, 50.0), (1e-3, 1e3), (0.0, -1.0))


def _plane(name, objective, solutions, points=(), *, starts=PLANE, **fields):
    """0 <= x ⊥ y >= 0."""
    x = ca.SX.sym("x", 2)
    mpcc = MPCC.of_pairs(w=x, G=x[0], H=x[1], objective=objective(x[0], x[1]))
    CASES.append(Case(name=name, mpcc=mpcc, solutions=solutions, points=points, starts=starts, **fields))


_plane(
    "two_corners",
    lambda x, y: (x - 1) ** 2 + (y - 1) ** 2,
    (Point((1, 0), 1.0, S), Point((0, 1), 1.0, S)),
    (Point((0, 0), 2.0, C), Point((0.5, 0), 1.25, UNKNOWN)),
    about="The diagonal leads the Scholtes relaxation into the origin, which is C-stationary only.",
)
_plane("kth1", lambda x, y: x + y, (Point((0, 0), 0.0, S),), (Point((1, 0), 1.0, UNKNOWN),), about="biactive")
_plane(
    "kth2",
    lambda x, y: x + (1 - y) ** 2,
    (Point((0, 1), 0.0, S),),
    (Point((0, 0), 1.0, W),),
    about="nu = (1, -2) at the origin.",
)
_plane(
    "kth3",
    lambda x, y: 0.5 * (x - 1) ** 2 + (y - 1) ** 2,
    (Point((0, 1), 0.5, S), Point((1, 0), 1.0, S)),
    (Point((0, 0), 1.5, C),),
)
_plane(
    "scale1",
    lambda x, y: (100 * x - 1) ** 2 + (y - 1) ** 2,
    (Point((0.01, 0), 1.0, S), Point((0, 1), 1.0, S)),
    (Point((0, 0), 2.0, C),),
)
_plane(
    "ralph2",
    lambda x, y: x**2 + y**2 - 4 * x * y,
    (Point((0, 0), 0.0, S),),
    about="Without the products it is unbounded; the gradient at the solution is zero.",
)
_plane(
    "saddle",
    lambda x, y: (x - 1) ** 2 + y**2 + y**3,
    (Point((1, 0), 0.0, S),),
    (Point((0, 0), 1.0, M),),
    about="nu = (-2, 0) at the origin: M, and one of the two branches descends.",
)


def _jr(name, objective, trap):
    z = ca.SX.sym("z", 2)
    mpcc = MPCC.of_pairs(w=z, G=z[1], H=z[1] - z[0], objective=objective(z[0], z[1]))
    solutions = (Point((0.5, 0.5), 0.5, S),)
    CASES.append(Case(name=name, mpcc=mpcc, solutions=solutions, points=(Point((0, 0), 1.0, trap),), starts=PLANE))


_jr("jr1", lambda x, y: (x - 1) ** 2 + y**2, W)
_jr("jr2", lambda x, y: x**2 + (y - 1) ** 2, M)


def _scholtes4():
    z = ca.SX.sym("z", 3)
    mpcc = MPCC.of_pairs(
        w=z,
        G=z[0],
        H=z[1],
        objective=z[0] + z[1] - z[2],
        g=ca.vertcat(z[2] - 4 * z[0], z[2] - 4 * z[1]),
        lbg=-np.inf,
        ubg=0.0,
    )
    return Case(
        name="scholtes4",
        mpcc=mpcc,
        solutions=(Point((0, 0, 0), 0.0, B),),
        points=(Point((1, 0, 0), 1.0, UNKNOWN),),
        starts=((0, 0, 0), (1, 1, 1), (0, 1, 0), (10, 20, -5)),
        bounded=False,
        about="The solution is not S-stationary: the multipliers of every relaxation grow without bound.",
    )


def _duplicated():
    x = ca.SX.sym("x", 2)
    pair = (ca.vertcat(x[0], x[0]), ca.vertcat(x[1], x[1]))
    mpcc = MPCC.of_pairs(w=x, G=pair[0], H=pair[1], objective=ca.sumsqr(x - 1), g=ca.vertcat(x[0], x[0]), ubg=1.0)
    return Case(
        name="duplicated",
        mpcc=mpcc,
        solutions=(Point((1, 0), 1.0, S), Point((0, 1), 1.0, S)),
        points=(Point((0, 0), 2.0, M),),
        starts=PLANE,
        about="Everything twice: multipliers are not unique, and two copies of a pair may share a C-stationary "
        "multiplier out as (-2, 0) and (0, -2), which is M.",
    )


def _no_multipliers():
    z = ca.SX.sym("z", 3)
    mpcc = MPCC.of_pairs(
        w=z,
        G=z[0],
        H=z[1],
        objective=z[1] - z[2],
        g=z[2] ** 2 - z[0],
        lbg=-np.inf,
        ubg=0.0,
        lbw=[-np.inf, 1.0, -np.inf],
    )
    return Case(
        name="no_multipliers",
        mpcc=mpcc,
        solutions=(Point((0, 1, 0), 1.0, UNKNOWN),),
        starts=((0, 1, 0), (1, 2, 3), (-1, 5, -2)),
        bounded=False,
        about="x = 0 is forced, y^2 <= x has no interior: the solution has no multipliers and no certificate.",
    )


def _bard1():
    w = ca.vertcat(ca.SX.sym("x"), ca.SX.sym("y"), ca.SX.sym("l", 3))
    x, y, l1, l2, l3 = ca.vertsplit(w)
    mpcc = MPCC.of_pairs(
        w=w,
        G=ca.vertcat(3 * x - y - 3, -x + 0.5 * y + 4, -x - y + 7),
        H=ca.vertcat(l1, l2, l3),
        objective=(x - 5) ** 2 + (2 * y + 1) ** 2,
        g=2 * (y - 1) - 1.5 * x + l1 - 0.5 * l2 + l3,
        lbw=[0, 0, -np.inf, -np.inf, -np.inf],
    )
    return Case(
        name="bard1",
        mpcc=mpcc,
        solutions=(Point((1, 0, 3.5, 0, 0), 17.0, S), Point((5, 2, 0, 0, 5.5), 25.0, S)),
        starts=((0, 0, 0, 0, 0), (1, 1, 1, 1, 1), (10, 10, -10, 10, 10), (3, 4, 0, 5, 0)),
        unique=False,
        about="The lower level by its KKT conditions; at (5, 2) they leave l2 free.",
    )


def _gauvin():
    w = ca.vertcat(*(ca.SX.sym(name) for name in "xyu"))
    x, y, u = ca.vertsplit(w)
    mpcc = MPCC.of_pairs(
        w=w,
        G=ca.vertcat(y, u),
        H=ca.vertcat(4 * (x + 2 * y - 30) + u, 20 - x - y),
        objective=x**2 + (y - 10) ** 2,
        lbw=[0, -np.inf, -np.inf],
        ubw=[15, np.inf, np.inf],
    )
    return Case(
        name="gauvin",
        mpcc=mpcc,
        solutions=(Point((2, 14, 0), 20.0, S),),
        points=(Point((10, 10, 0), 100.0, W),),
        starts=((0, 0, 0), (15, 0, 100), (7, 7, 7)),
        about="A bilevel program.",
    )


def _desilva():
    w = ca.SX.sym("w", 6)
    x, y, multiplier = w[:2], w[2:4], w[4:]
    mpcc = MPCC.of_pairs(
        w=w,
        G=0.25 - (y - 1) ** 2,
        H=multiplier,
        objective=ca.sumsqr(x) - 2 * ca.sum1(x) + ca.sumsqr(y),
        g=2 * y - 2 * x + 2 * (y - 1) * multiplier,
        lbw=[0, 0] + [-np.inf] * 4,
        ubw=[2, 2] + [np.inf] * 4,
    )
    return Case(
        name="desilva",
        mpcc=mpcc,
        solutions=(Point((0.5, 0.5, 0.5, 0.5, 0, 0), -1.0, S),),
        starts=((0,) * 6, (2, 2, 1, 1, 3, 3), (1, 0, 1.4, 0.6, 0, 1)),
        about="Both pairs are biactive at the solution.",
    )


def _infeasible():
    x = ca.SX.sym("x", 2)
    mpcc = MPCC.of_pairs(w=x, G=x[0], H=x[1], objective=ca.sum1(x), lbw=0.5)
    return Case(name="infeasible", mpcc=mpcc, solutions=(), starts=((0.5, 0.5), (1.0, 7.0)), about="x, y >= 0.5")


CASES += [_scholtes4(), _duplicated(), _no_multipliers(), _bard1(), _gauvin(), _desilva(), _infeasible()]


def case(name: str) -> Case:
    """The case of this name."""
    return next(case for case in CASES if case.name == name)
