"""Typical sizes of states and controls of a problem, from its own numbers: its results do not depend on the units.

Sizes that the user gives (`nominal`) are used as they are. All others follow from x0, bounds and constraints at the
ends, from the forces at x0, and from the horizon. Every size scales with its unit: a problem in millimetres has a
thousand times the sizes of the same problem in metres. Only where nothing in the problem has a size is it 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

if TYPE_CHECKING:
    from nosnoc_py.ocp import OCP

Array = np.ndarray
# Least size of a component relative to the largest one of its group (positions, velocities): a component that is small
# at both ends may move in between.
SHARED = 0.05
# A way d from rest to rest takes at least the acceleration 4 d / T^2, with full force in one direction and then the
# other.
REST_TO_REST = 4.0
# Constraints whose gradient is below this fraction of the largest one say nothing of a state.
STEEP = 1e-6


@dataclass(frozen=True, eq=False)
class ProblemSizes:
    """Typical sizes of the states (n_x,) and the controls (n_u,), in the user's units.

    Examples
    --------
    A cart in metres and in kilometres:

    >>> import casadi as ca, nosnoc_py as ns
    >>> x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    >>> cart = ns.ODE(x=x, u=u, flow=ca.vertcat(x[1], u))
    >>> [ns.OCP(cart, horizon=2.0, x0=[0, 0], terminal_constraints=[x[0] == way]).sizes.x.tolist() for way in (1, 1e-3)]
    [[1.0, 0.5], [0.001, 0.0005]]
    """

    x: Array
    u: Array

    @classmethod
    def of(cls, ocp: OCP) -> ProblemSizes:
        """Return the sizes of a problem."""
        s, T = ocp.system, float(ocp.horizon)
        evidence, firm = _evidence(ocp)
        rates = _rates(ocp, evidence)
        if s.mechanical:
            x = _of_mechanics(s, evidence, firm, rates, *_angles(ocp, evidence[s.at_q]), T)
        else:
            x = np.where(evidence > 0.0, evidence, _first_positive(rates * T, evidence))
            x = _along_the_flow(ocp, x, evidence, T)
        x = np.where(_given(s.x_nominal), s.x_nominal, x)
        return cls(x=x, u=_of_controls(ocp, x, T))


def rounded(values: Array, sizes: Array | float) -> Array:
    """Return values rounded to a 2^-30th of sizes: what is computed from them does not depend on earlier rounding.

    Sizes count by their next power of two; one that is a power of two up to rounding counts as it is.

    Examples
    --------
    >>> import numpy as np
    >>> bool(rounded(np.array(0.1 + 0.2), 1.0) == rounded(np.array(0.3), 1.0))
    True
    """
    unit = 2.0 ** (np.ceil(np.log2(sizes) - 1e-9) - 30.0)
    return np.asarray(np.round(values / unit) * unit)


def _given(nominal: Array) -> Array:
    """Return which nominal values the user has given: defaults are 1."""
    return np.asarray(nominal, float) != 1.0


def _first_positive(*candidates: Array) -> Array:
    """Return for every component its first positive candidate, else the largest of all, else 1."""
    result = np.zeros(candidates[0].size)
    for values in candidates:
        result = np.where(result > 0.0, result, values)
    return np.where(result > 0.0, result, result.max(initial=0.0) or 1.0)


def _start(ocp: OCP) -> Array:
    """Return the initial state (n_x,), zero where it is free."""
    return np.zeros(ocp.system.x.numel()) if ocp.x0 is None else np.asarray(ocp.x0, float)


def _evidence(ocp: OCP) -> tuple[Array, Array]:
    """Return the sizes (n_x,) that x0, bounds, and constraints at the ends show; zero where they show none.

    Beside them the same without inequalities at the ends, which say how small a state may be, and not how large.
    """
    low, high = (np.asarray(bound, float) for bound in ocp.x_bounds)
    shown = np.abs(_start(ocp))
    for bound in (low, high):
        shown = np.maximum(shown, np.where(np.isfinite(bound), np.abs(bound), 0.0))
    firm = shown.copy()
    s, base = ocp.system, _start(ocp)
    for c in (*ocp.initial_constraints, *ocp.terminal_constraints):
        symbols = [s.x, s.x_initial, s.p]
        at = ca.Function("end", symbols, [c.expression, ca.jacobian(c.expression, s.x)], {"allow_free": True})
        if at.has_free():
            continue
        value, slope = (np.array(part) for part in at(base, base, ocp.p))
        missed = np.maximum(np.maximum(c.lower - value[:, 0], value[:, 0] - c.upper), 0.0)
        for row, miss, fixed in zip(np.abs(slope), missed, c.lower == c.upper, strict=True):
            steep = row > STEEP * row.max(initial=0.0)
            if np.isfinite([*row, miss]).all() and steep.any():
                for sizes in (shown, firm) if fixed else (shown,):
                    sizes[steep] = np.maximum(sizes[steep], miss / (row[steep] * steep.sum()))
    return shown, firm


def _rates(ocp: OCP, evidence: Array) -> Array:
    """Return the sizes of the rates at x0 without control: accelerations of velocities, flows of other states."""
    s = ocp.system
    x0 = _start(ocp)
    low, high = (np.asarray(bound, float) for bound in ocp.u_bounds)
    rest = np.clip(np.zeros(s.n_u), low, high)
    if s.mechanical:
        at = ca.Function("rates", [s.x, s.u, s.p], [s.mass_matrix, s.force, ca.jacobian(s.force, s.u)])
        mass, force, slope = (np.array(part) for part in at(x0, rest, ocp.p))
        with np.errstate(all="ignore"):
            pushed = np.abs(slope) @ np.where(np.isfinite(high - low), np.maximum(np.abs(low), np.abs(high)), 0.0)
            finite = np.isfinite(mass).all() and np.isfinite(force).all() and np.linalg.matrix_rank(mass) == len(mass)
            sizes = np.maximum(np.abs(force[:, 0]), pushed)
            return np.abs(np.linalg.solve(mass, np.diag(sizes))).max(axis=1) if finite else np.zeros(s.n_v)
    flow = ca.Function("rates", [s.x, s.u, s.p], [s.flow], {"allow_free": True})
    rates = np.zeros(evidence.size) if flow.has_free() else np.abs(np.array(flow(x0, rest, ocp.p)).ravel())
    return np.where(np.isfinite(rates), rates, 0.0)


def _angles(ocp: OCP, shown: Array) -> tuple[Array, Array]:
    """Return for every position (n_q,) the change that turns a sine or cosine by one radian, 0 if it is no angle.

    One that goes farther than half a turn may as well be a way along a wave: it has the size of a length. Beside it
    for every velocity (n_v,) the rate that makes the first of these changes in a unit of time, if it makes no
    other ones. The entries of a quaternion are of size 1.
    """
    s = ocp.system
    slopes, ways = (np.abs(np.array(part)) for part in s.mechanics.turns(_start(ocp), ocp.p))
    with np.errstate(all="ignore"):
        angles = np.nan_to_num(1.0 / slopes.max(axis=0, initial=0.0), posinf=0.0)
        angles = np.where(shown <= np.pi * angles, angles, 0.0)
        for part in s.unit_parts:
            angles[part] = 1.0
        # The first angle that it turns by one radian: others, of quaternions, may move by rounding only.
        turned = np.where(ways > 0.0, angles[:, None] / ways, np.inf).min(axis=0, initial=np.inf)
        turned = np.where(np.isfinite(turned), turned, 0.0)
    return angles, np.where((ways[angles == 0.0] > 0.0).any(axis=0), 0.0, turned)


def _of_mechanics(
    s: Any, evidence: Array, firm: Array, accelerations: Array, angles: Array, turned: Array, T: float
) -> Array:
    """Return the sizes of positions, velocities and first-order states; angles have one of their own.

    The group of a component has the largest size that anything shows; its own size is what says more than a limit.
    """
    q, v, y = evidence[s.at_q], evidence[s.at_v], evidence[s.at_y]
    long, fast = angles == 0.0, turned == 0.0
    strongest, fastest = (values[fast].max(initial=0.0) for values in (accelerations, v))
    farthest = q[long].max(initial=0.0)
    length = max(farthest, fastest * T) or strongest * T**2 or 1.0
    speed = max(fastest, farthest / T) or strongest * T or length / T
    groups = ((firm[s.at_q], np.where(long, length, angles)), (firm[s.at_v], np.where(fast, speed, turned / T)))
    # A component that nothing shows is likely to move as far as the others.
    sizes = [np.where(part > 0.0, np.maximum(part, SHARED * size), size) for part, size in groups]
    return np.concatenate([*sizes, np.where(y > 0.0, y, 1.0)])


def _along_the_flow(ocp: OCP, x: Array, evidence: Array, T: float) -> Array:
    """Return sizes in which a state without evidence follows from those that it drives: their size over T."""
    s = ocp.system
    slopes = ca.Function("slopes", [s.x, s.u, s.p], [ca.jacobian(s.flow, s.x)], {"allow_free": True})
    if slopes.has_free():
        return x
    slope = np.abs(np.array(slopes(_start(ocp), np.zeros(s.n_u), ocp.p)))
    for i in np.flatnonzero(evidence <= 0.0):
        driven = (slope[:, i] > 0.0) & np.isfinite(slope[:, i]) & (evidence > 0.0)
        if driven.any():
            x[i] = float((evidence[driven] / (T * slope[driven, i])).max())
    return x


def _of_controls(ocp: OCP, x: Array, T: float) -> Array:
    """Return the sizes of the controls: their bounds, else what moves the states within the horizon."""
    s = ocp.system
    low, high = (np.asarray(bound, float) for bound in ocp.u_bounds)
    limits = np.where(np.isfinite(low), np.abs(low), 0.0)
    limits = np.maximum(limits, np.where(np.isfinite(high), np.abs(high), 0.0))
    slopes = ca.Function("slopes", [s.x, s.u, s.p], [ca.jacobian(s.driven, s.u)], {"allow_free": True})
    needed = np.zeros(s.n_u)
    if s.n_u and not slopes.has_free():
        x0 = _start(ocp)
        slope = np.abs(np.array(slopes(x0, np.zeros(s.n_u), ocp.p)))
        wanted = REST_TO_REST * x / T
        if s.mechanical:
            mass = np.abs(np.array(ca.Function("mass", [s.x, s.p], [s.mass_matrix])(x0, ocp.p)))
            wanted = mass @ (REST_TO_REST * x[s.at_v] / T)
        with np.errstate(all="ignore"):
            ratios = np.where(slope > 0.0, wanted[:, None] / slope, 0.0)
        needed = np.where(np.isfinite(ratios), ratios, 0.0).max(axis=0, initial=0.0)
    sizes = _first_positive(limits, needed)
    return np.where(_given(s.u_nominal), s.u_nominal, sizes)
