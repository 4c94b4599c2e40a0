"""Goals and costs of robots in words: every function returns constraints or expressions that can be printed.

Nothing here is needed for a problem: `robot.position("hand") == [0.3, 0, 0.5]` is one, too. The functions know what is
easily written wrong: attitudes have three equations, a rotation about a fixed axis has one.

>>> import nosnoc_py as ns
>>> text = '''<robot name="brick"><link name="body"><inertial><mass value="2"/>
...   <inertia ixx="0.02" iyy="0.03" izz="0.04"/></inertial></link></robot>'''
>>> brick = ns.Robot.from_urdf(text, base="floating")
>>> tips_over = ns.goals.turned(brick, "body", [0.5**0.5, 0.5**0.5, 0, 0])
>>> tips_over.name
'body turned'
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import casadi as ca
import numpy as np
from attrs import evolve

from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import ModelError, check_type
from nosnoc_py.functions import function_of, numbers
from nosnoc_py.ocp import Constraint
from nosnoc_py.robots.robot import Robot
from nosnoc_py.rotations import attitude_error, check_rotation
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.symbols import check_keys, scalar

Array = np.ndarray
# Number of postures that tell which rows are constant, and the size of differences that are rounding.
SAMPLES, ROUNDING = 5, 1e-6


@named_arguments
def placed(
    robot: Robot,
    link: str,
    at: Any,
    *,
    point: Any = (0.0, 0.0, 0.0),
    within: float = 0.0,
    name: str | None = None,
) -> Constraint:
    """Return the constraint that a point of a link is at a place.

    Parameters
    ----------
    robot : Robot
    link : str
    at : (3,)
        In the world [m]; None leaves a component free.
    point : (3,)
        In the frame of the link [m].
    within : float
        Largest distance of every component [m].
    name : str, optional
        Of the constraint, as two of one problem need different ones.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> text = '''<robot name="rig"><link name="rail"/><link name="cart"><inertial><mass value="2"/>
    ...   <inertia ixx="0" iyy="0" izz="0"/></inertial></link>
    ...   <joint name="slide" type="prismatic"><parent link="rail"/><child link="cart"/><axis xyz="1 0 0"/>
    ...   <limit lower="-1" upper="1" effort="5" velocity="3"/></joint></robot>'''
    >>> robot = ns.Robot.from_urdf(text)
    >>> ns.goals.placed(robot, "cart", [0.5, None, None]).expression
    SX(q)
    """
    check_type(robot, Robot, "placed: robot")
    position, given = robot.position(link, point), list(at) if np.ndim(at) == 1 else []
    if len(given) != 3:
        raise ModelError(f"placed: at: expected three components, None for a free one, given {at!r}.")
    rows = [k for k, value in enumerate(given) if value is not None]
    if not rows:
        raise ModelError("placed: at: every component is free, so that there is no constraint.")
    values = numbers([given[k] for k in rows], "placed: at", len(rows), finite=True)
    distance = _nonnegative(within, "placed")
    return _limits(
        robot, position[rows], values - distance, values + distance, name or f"{link} at its place", "placed"
    )


@named_arguments
def turned(
    robot: Robot,
    link: str,
    attitude: Any = (1.0, 0.0, 0.0, 0.0),
    *,
    within: float = 0.0,
    name: str | None = None,
) -> Constraint:
    """Return the constraint that a link has an attitude: three rows, or one where it turns about one axis only.

    Parameters
    ----------
    robot : Robot
    link : str
    attitude : (4,) or (3, 3)
        Unit quaternion, real part first, or rotation matrix, in the world; the default is that of the world.
    within : float
        Largest component of the rotation vector between both [rad].
    name : str, optional
        Of the constraint.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> text = '''<robot name="brick"><link name="body"><inertial><mass value="2"/>
    ...   <inertia ixx="0.02" iyy="0.03" izz="0.04"/></inertial></link></robot>'''
    >>> ns.goals.turned(ns.Robot.from_urdf(text, base="floating"), "body").expression.shape
    (3, 1)
    """
    check_type(robot, Robot, "turned: robot")
    if not isinstance(attitude, ca.SX):
        given = np.array(attitude, dtype=float)
        if given.size != 4:
            check_rotation(given, "turned: attitude")
        elif not abs(np.linalg.norm(given) - 1.0) <= ROUNDING:
            raise ModelError(f"turned: attitude: expected a unit quaternion, given {attitude!r}.")
    error = cast(ca.SX, attitude_error(robot.pose(link)[0], attitude))
    far = np.full(3, _nonnegative(within, "turned"))
    return _limits(robot, error, -far, far, name or f"{link} turned", "turned")


@named_arguments
def level(robot: Robot, link: str, *, within: float = 0.0, name: str | None = None) -> Constraint:
    """Return the constraint that the z-axis of a link points up, whatever its heading.

    Parameters
    ----------
    robot : Robot
    link : str
    within : float
        Largest inclination in the two horizontal directions [rad], below pi / 4.
    name : str, optional
        Of the constraint.

    Examples
    --------
    As a path constraint it keeps a trunk level within .1 rad:

    >>> import nosnoc_py as ns
    >>> text = '''<robot name="brick"><link name="body"><inertial><mass value="2"/>
    ...   <inertia ixx="0.02" iyy="0.03" izz="0.04"/></inertial></link></robot>'''
    >>> ns.goals.level(ns.Robot.from_urdf(text, base="floating"), "body", within=0.1).upper.round(3).tolist()
    [0.1, 0.1, inf]
    """
    check_type(robot, Robot, "level: robot")
    if not _nonnegative(within, "level") < np.pi / 4:
        raise ModelError(f"level: within: expected an angle in [0, pi / 4), given {within!r}.")
    # The third row excludes a link that stands on its head.
    far = np.array([np.sin(within), np.sin(within), np.inf])
    low = np.append(-far[:2], 0.0)
    return _limits(robot, robot.pose(link)[0][:, 2], low, far, name or f"{link} level", "level")


@named_arguments
def clearance(
    robot: Robot, link: str, height: float, *, point: Any = (0.0, 0.0, 0.0), name: str | None = None
) -> Constraint:
    """Return the constraint that the z of a point of a link is at least this high in the world [m].

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> text = '''<robot name="brick"><link name="body"><inertial><mass value="2"/>
    ...   <inertia ixx="0.02" iyy="0.03" izz="0.04"/></inertial></link></robot>'''
    >>> ns.goals.clearance(ns.Robot.from_urdf(text, base="floating"), "body", 0.2).lower.tolist()
    [0.2]
    """
    check_type(robot, Robot, "clearance: robot")
    low = np.array([scalar(height, "clearance: height")])
    return _limits(robot, robot.position(link, point)[2], low, np.full(1, np.inf), name or f"{link} high", "clearance")


@named_arguments
def at_rest(system: CLS, *, name: str | None = None) -> Constraint:
    """Return the constraint that all velocities vanish.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> ns.goals.at_rest(ns.CLS(q=q, v=v, mass_matrix=1, force=0, contacts=[])).expression
    SX(v)
    """
    check_type(system, CLS, "at_rest: system")
    return Constraint(system.v, equals=np.zeros(system.n_v), name=name or "at rest")


@named_arguments
def effort(system: CLS, bounds: Mapping[str, tuple[float, float]] | None = None) -> ca.SX:
    """Return the sum of squared controls, each relative to half of its range, as a stage cost.

    Parameters
    ----------
    system : CLS
    bounds : mapping, optional
        Bounds by name, `robot.bounds()`; controls without finite ones are taken as they are.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[])
    >>> ns.goals.effort(cart, {"u_0": (-4, 4)})
    SX(sq((u/4)))
    """
    check_type(system, CLS, "effort: system")
    given, sizes = dict(bounds or {}), []
    check_keys(given, (*system.state_names, *system.control_names), "name in bounds")
    for name in system.control_names:
        low, high = given.get(name, (None, None))
        both = low is not None and high is not None and np.isfinite([low, high]).all() and high > low
        sizes.append(0.5 * (float(cast(float, high)) - float(cast(float, low))) if both else 1.0)
    return ca.sumsqr(system.u / ca.DM(sizes))


@named_arguments
def power(system: CLS) -> ca.SX:
    """Return the mechanical power of every control (n_u,) [W], for controls that act linearly.

    `ca.sumsqr(power)` is a smooth stage cost; that of `ca.sum1(ca.fmax(power, 0))` is the energy that drives take.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> ns.goals.power(ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u - q, contacts=[]))
    SX((v*u))
    """
    check_type(system, CLS, "power: system")
    slope = ca.jacobian(system.force, system.u)
    if ca.depends_on(slope, system.u):
        raise ModelError("power: the controls do not act linearly, so that the force has no part for each of them.")
    return (slope.T @ system.v) * system.u


@named_arguments
def with_rates(system: CLS) -> CLS:
    """Return the system whose controls are states and whose new controls are their rates.

    Drives do not jump then, and `ca.sumsqr(system.u)` is a cost of their rates: of the jerk of a motion. Bounds of the
    old controls keep their names; an initial state has their values, too.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[])
    >>> slow = ns.goals.with_rates(cart)
    >>> slow.state_names, slow.control_names
    (('q_0', 'v_0', 'u_0'), ('u_0_rate',))
    """
    check_type(system, CLS, "with_rates: system")
    if not system.n_u:
        raise ModelError("with_rates: the system has no controls.")
    if not system.autonomous:
        raise ModelError("with_rates: the system depends on time; make the time a state of your own.")
    rates = ca.vertcat(*(ca.SX.sym(f"{name}_rate") for name in system.control_names))
    own, names = system.names, system.control_names
    given = {part: own[part] for part in ("q", "v")} | {"u": tuple(f"{name}_rate" for name in names)}
    given["y"] = (*own.get("y", ()), *names)
    y = ca.vertcat(system.y, system.u)
    nominal = {**system.nominal, "y": np.append(system.nominal["y"], system.nominal["u"])}
    return evolve(system, u=rates, y=y, y_rate=ca.vertcat(system.y_rate, rates), names=given, nominal=nominal)


def _nonnegative(within: Any, what: str) -> float:
    value = scalar(within, f"{what}: within")
    if not 0.0 <= value < np.inf:
        raise ModelError(f"{what}: within: expected a finite number >= 0, given {within!r}.")
    return value


def _limits(robot: Robot, rows: ca.SX, low: Array, high: Array, name: str, what: str) -> Constraint:
    """Return low <= rows <= high; rows that no coordinate moves are left out if they hold."""
    # Rows of a rotation about one axis are constant, but not so written.
    places = np.random.default_rng(0).normal(size=(robot.q.numel(), SAMPLES))
    found = np.array(function_of([robot.q], rows).map(SAMPLES)(places))
    constant = np.ptp(found, axis=1) <= ROUNDING
    for k in np.flatnonzero(constant):
        if not low[k] - ROUNDING <= found[k, 0] <= high[k] + ROUNDING:
            raise ModelError(
                f"{what}: row {k} is {found[k, 0]:g} whatever the robot does, wanted {low[k]:g} to {high[k]:g}."
            )
    moved = [int(k) for k in np.flatnonzero(~constant)]
    if not moved:
        raise ModelError(f"{what}: no joint moves this; there is nothing to constrain.")
    return Constraint(rows[moved], low[moved], high[moved], name=name)
