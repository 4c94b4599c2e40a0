"""Algorithm 5.2 of the collision integrator once more, with as many decimals as one likes; it shares no code.

Bodies are the union of ellipsoids with their axes along the body's, or the hull of vertices. The root of the gap is
bracketed and bisected, the flight equation solved by Newton's method until nothing moves; only the standard library.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal, getcontext

Vector = tuple[Decimal, ...]
Matrix = tuple[Vector, ...]

ZERO, ONE, TWO = Decimal(0), Decimal(1), Decimal(2)
GRAVITY = Decimal("9.80665")


@dataclass(frozen=True, eq=False, kw_only=True)
class Body:
    """Unit mass; ellipsoids are pairs of a centre and semi-axes; `inertia` holds the principal moments."""

    inertia: Vector
    ellipsoids: tuple[tuple[Vector, Vector], ...] = ()
    vertices: tuple[Vector, ...] = ()
    normal: Vector = (ZERO, ZERO, ONE)


@dataclass(frozen=True, eq=False)
class State:
    """Position, rotation, momentum in the world, angular momentum in the body."""

    x: Vector
    R: Matrix
    gamma: Vector
    Pi: Vector


@dataclass(frozen=True)
class Impact:
    """When, and how hard."""

    time: Decimal
    impulse: Decimal


def vector(*values: float | str | Decimal) -> Vector:
    """A vector of the decimals as they are printed."""
    return tuple(value if isinstance(value, Decimal) else Decimal(str(value)) for value in values)


START = State(vector(0, 0, 10), (vector(1, 0, 0), vector(0, 1, 0), vector(0, 0, 1)), vector(2, 2, 10), vector(4, -4, 4))


def simulate(body: Body, start: State = START, *, h: str = "0.01", steps: int, most: int) -> list[Impact]:
    """The first impacts."""
    state, step, found = start, Decimal(h), list[Impact]()
    for k in range(steps):
        left = step
        while gap(body, trial := flight(body, state, left)) <= ZERO:
            part = first_contact(body, state, left)
            state = flight(body, state, part)
            left -= part
            state, impulse = jump(body, state)
            found.append(Impact((k + 1) * step - left, impulse))
            if len(found) == most:
                return found
        state = trial
    return found


def flight(body: Body, state: State, h: Decimal) -> State:
    """Free motion for h."""
    F = turn(body.inertia, tuple(h * value for value in state.Pi))
    fall = (ZERO, ZERO, GRAVITY)
    x = tuple(a + h * b - h * h / 2 * g for a, b, g in zip(state.x, state.gamma, fall, strict=True))
    gamma = tuple(b - h * g for b, g in zip(state.gamma, fall, strict=True))
    return State(x, product(state.R, F), gamma, times(transposed(F), state.Pi))


def turn(inertia: Vector, p: Vector) -> Matrix:
    """The rotation F with S(p) = F J_d - J_d F', by its Cayley parameters f."""
    f = tuple(a / j / 2 for a, j in zip(p, inertia, strict=True))
    for _ in range(20):
        along, across = dot(p, f), cross(p, f)
        G = tuple(a + b + along * c - 2 * j * c for a, b, c, j in zip(p, across, f, inertia, strict=True))
        skew = ((ZERO, -p[2], p[1]), (p[2], ZERO, -p[0]), (-p[1], p[0], ZERO))
        dG = tuple(
            tuple(skew[i][k] + f[i] * p[k] + (along - 2 * inertia[i] if i == k else ZERO) for k in range(3))
            for i in range(3)
        )
        change = solved(dG, G)
        f = tuple(a - b for a, b in zip(f, change, strict=True))
        if max(abs(value) for value in change) <= Decimal(10) ** (2 - getcontext().prec):
            break
    s = dot(f, f)
    skew = ((ZERO, -f[2], f[1]), (f[2], ZERO, -f[0]), (-f[1], f[0], ZERO))
    return tuple(
        tuple((2 * (skew[i][k] + f[i] * f[k]) + (ONE - s if i == k else ZERO)) / (ONE + s) for k in range(3))
        for i in range(3)
    )


def lowest(body: Body, state: State) -> tuple[Decimal, Vector]:
    """The gap, and the closest point in the body's frame."""
    nu = times(transposed(state.R), body.normal)
    points = list(body.vertices)
    for centre, axes in body.ellipsoids:
        length = dot(*[tuple(a * n for a, n in zip(axes, nu, strict=True))] * 2).sqrt()
        points.append(tuple(c - a * a * n / length for c, a, n in zip(centre, axes, nu, strict=True)))
    depth, point = min((dot(nu, point), point) for point in points)
    return dot(body.normal, state.x) + depth, point


def gap(body: Body, state: State) -> Decimal:
    """Distance of the body from the plane."""
    return lowest(body, state)[0]


def first_contact(body: Body, state: State, h: Decimal) -> Decimal:
    """The length of a flight of at most h to where the gap is zero, by secants in a bracket."""
    low, high = ZERO, h
    # right after an impact the gap is zero up to rounding: the bracket starts where it is open
    while (above := gap(body, flight(body, state, low))) <= ZERO or (low == ZERO and above < Decimal("1e-15")):
        low = low + h / 64
        assert low < h, "the gap does not open"
    below = gap(body, flight(body, state, high))
    for _ in range(60):
        # a secant through the ends, moved by a little so that the bracket shrinks from both sides
        middle = (low * below - high * above) / (below - above)
        middle += (high - low) * (Decimal("0.01") if high - middle > middle - low else Decimal("-0.01"))
        for place in (middle, (low * below - high * above) / (below - above)):
            if not low < place < high:
                continue
            value = gap(body, flight(body, state, place))
            if value > ZERO:
                low, above = place, value
            else:
                high, below = place, value
        if high - low < Decimal(10) ** (8 - getcontext().prec):
            break
    return low


def jump(body: Body, state: State) -> tuple[State, Decimal]:
    """An elastic impact without friction, and its impulse."""
    n, rho = body.normal, lowest(body, state)[1]
    chi = cross(rho, times(transposed(state.R), n))
    speeding = tuple(c / j for c, j in zip(chi, body.inertia, strict=True))
    impulse = -2 * (dot(n, state.gamma) + dot(speeding, state.Pi)) / (ONE + dot(chi, speeding))
    assert impulse > ZERO
    gamma = tuple(a + impulse * b for a, b in zip(state.gamma, n, strict=True))
    Pi = tuple(a + impulse * b for a, b in zip(state.Pi, chi, strict=True))
    return replace(state, gamma=gamma, Pi=Pi), impulse


def energy(body: Body, state: State) -> Decimal:
    """Kinetic and potential energy."""
    spin = sum((a * a / j for a, j in zip(state.Pi, body.inertia, strict=True)), ZERO)
    return (dot(state.gamma, state.gamma) + spin) / 2 + GRAVITY * state.x[2]


def dot(a: Vector, b: Vector) -> Decimal:
    """Inner product."""
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2]


def cross(a: Vector, b: Vector) -> Vector:
    """Vector product."""
    return (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])


def transposed(A: Matrix) -> Matrix:
    """Rows as columns."""
    return tuple(zip(*A, strict=True))


def times(A: Matrix, b: Vector) -> Vector:
    """Matrix times vector."""
    return tuple(dot(row, b) for row in A)


def product(A: Matrix, B: Matrix) -> Matrix:
    """Matrix times matrix."""
    columns = transposed(B)
    return tuple(tuple(dot(row, column) for column in columns) for row in A)


def solved(A: Matrix, b: Vector) -> Vector:
    """The solution of three equations, by Cramer's rule."""
    columns = transposed(A)
    whole = dot(columns[0], cross(columns[1], columns[2]))
    return tuple(dot(columns[(k + 1) % 3], cross(columns[(k + 2) % 3], b)) / whole for k in range(3))
