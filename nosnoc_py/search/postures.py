"""Postures in which a system stands: contacts are closed, and drives and contact forces within their cones hold it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.arguments import named_arguments
from nosnoc_py.declared import changed
from nosnoc_py.errors import ModelError, check_type, unknown_name
from nosnoc_py.functions import function_of, numbers
from nosnoc_py.kernels import Kernel
from nosnoc_py.mpcc.interior.method import InteriorPoint
from nosnoc_py.ocp import OCP, Constraint
from nosnoc_py.programs import BlockProgram, KernelBlock, LinearMap
from nosnoc_py.search.stances import is_end_stop
from nosnoc_py.sequences.refinement import EXACT_OPTIONS
from nosnoc_py.systems.cls import CLS, Contact
from nosnoc_py.systems.kinematics import Kinematics
from nosnoc_py.systems.quaternions import unit_states, with_attitude
from nosnoc_py.systems.relations import by_name

Array = np.ndarray
# Cost of controls and of forces relative to their sizes, beside the squared distance: only where it leaves a choice.
EFFORT = 1e-7
# Largest violation, relative to the sizes of the rows, of a posture that holds.
HOLDS = 1e-8


@named_arguments
@dataclass(frozen=True, eq=False, kw_only=True)
class Stance:
    """Posture at rest with the controls and forces that hold it.

    Attributes
    ----------
    x0 : (n_x,)
        State with zero velocities.
    u : (n_u,)
        Controls.
    forces : dict name -> (1 + n_t,)
        Normal and tangential force of every closed contact [N].

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ns.Contact("ground", gap=q)])
    >>> ns.stand(ball).forces["ground"].round(4).tolist()
    [9.81]
    """

    x0: Array
    u: Array
    forces: dict[str, Array]


@named_arguments
def stand(
    system: CLS,
    closed: Iterable[str] | None = None,
    *,
    near: Any = None,
    bounds: Mapping[str, Any] | None = None,
    p: Any = None,
    where: Constraint | ca.SX | Iterable[Constraint | ca.SX] = (),
) -> Stance:
    """Return the balanced posture that is nearest to another one.

    Parameters
    ----------
    system : CLS
    closed : iterable of str, optional
        Rigid contacts that carry; by default all but the ends of joints. The others stay open.
    near : (n_x,) or mapping, optional
        State, or some of its components by name; all others are near zero, too. Velocities are not used.
    bounds : mapping, optional
        Bounds of states and controls by name, as those of an OCP: `robot.bounds()`. Equal ones hold a component.
    p : (n_p,) or mapping, optional
        Parameters, by default those of the system.
    where : iterable of Constraint
        Further conditions on q: `robot.position("hand") == [0.3, 0, 0.5]`, or those of `ns.goals`.

    Returns
    -------
    Stance
        `x0` for an OCP or a simulation, `u` and `forces` that hold it.

    Raises
    ------
    ModelError
        For an unknown contact, for a state near which forces are not finite, or if there is no such posture nearby: it
        names the row that is violated most.

    Notes
    -----
    Forces are within the cones of static friction, where a contact has any, and surfaces that move are slipped on, so
    that nothing stands there. States of first order are at rest, too, except for the time.

    Examples
    --------
    A ball of 2 kg on a slide of 30 degrees is held by its drive, m g sin 30:

    >>> import casadi as ca, nosnoc_py as ns, numpy as np
    >>> q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u")
    >>> slope, along = np.tan(np.pi / 6), ca.DM([np.cos(np.pi / 6), np.sin(np.pi / 6)])
    >>> slide = ns.Contact("slide", gap=q[1] - slope * q[0])
    >>> force = ca.vertcat(0, -2 * 9.81) + along * u
    >>> ball = ns.CLS(q=q, v=v, u=u, mass_matrix=2 * ca.DM.eye(2), force=force, contacts=[slide])
    >>> stance = ns.stand(ball, near={"q_0": 1.0})
    >>> stance.u.round(4).tolist(), stance.x0.round(4).tolist()
    ([9.81], [0.75, 0.433, 0.0, 0.0])
    """
    return _found("stand", system, closed, near, bounds, p, where)


@named_arguments
def reach(
    system: CLS,
    where: Constraint | ca.SX | Iterable[Constraint | ca.SX],
    *,
    closed: Iterable[str] | None = (),
    near: Any = None,
    bounds: Mapping[str, Any] | None = None,
    p: Any = None,
) -> Array:
    """Return the posture that satisfies constraints and is nearest to another one: inverse kinematics.

    Forces do not count; `ns.stand(system, where=...)` returns a balanced posture.

    Parameters
    ----------
    system : CLS
    where : Constraint, or several
        In q, `robot.position("hand") == [0.3, 0, 0.5]` or those of `ns.goals`.
    closed : iterable of str
        Contacts whose gap is zero, by default none; all others are not below zero. None closes all supports.
    near, bounds, p
        As in `ns.stand`.

    Returns
    -------
    (n_x,)
        State with zero velocities.

    Raises
    ------
    ModelError
        If there is none nearby: it names the row that is violated most.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("u", 2)
    >>> arm = ns.CLS(q=q, v=v, u=u, mass_matrix=ca.DM.eye(2), force=u, contacts=[])
    >>> hand = ca.vertcat(ca.cos(q[0]) + ca.cos(q[0] + q[1]), ca.sin(q[0]) + ca.sin(q[0] + q[1]))
    >>> print(abs(ns.reach(arm, [hand == [1, 1]], near={"q_1": 1.0})).round(6))
    [0.       1.570796 0.       0.      ]
    """
    return _found("reach", system, closed, near, bounds, p, where).x0


def _found(
    verb: str,
    system: CLS,
    closed: Iterable[str] | None,
    near: Any,
    bounds: Mapping[str, Any] | None,
    p: Any,
    where: Constraint | ca.SX | Iterable[Constraint | ca.SX],
) -> Stance:
    """Return the stance of either verb: `stand` balances forces, `reach` does not."""
    check_type(system, CLS, f"{verb}: system")
    s, values = system, system.parameters(p)
    names = tuple(contact.name for contact in s.contacts)
    supports = tuple(contact.name for contact in s.contacts if not is_end_stop(s, contact))
    chosen = supports if closed is None else (closed,) if isinstance(closed, str) else tuple(closed)
    for name in chosen:
        if name not in names:
            raise ModelError(f"{verb}: closed: {unknown_name(str(name), names, 'contact')}")
    size = len(s.state_names)
    if isinstance(near, Mapping):
        start = by_name(near, s.state_names, np.zeros(size), f"{verb}: near")
    else:
        given = near.x0 if isinstance(near, Stance) else near
        start = np.zeros(size) if given is None else numbers(given, f"{verb}: near", size, spread=False, finite=True)
    start = with_attitude(start, s.unit_parts)
    start[s.at_v] = 0.0
    given_rows = [where] if isinstance(where, Constraint | ca.SX) else list(where)
    named = [
        one if isinstance(one, Constraint) else Constraint(one, name=f"where_{k}") for k, one in enumerate(given_rows)
    ]
    named = [one if one.name else changed(one, name=f"where_{k}") for k, one in enumerate(named)]
    # The constraints are those of the start of a problem, which checks them; it appends its own ones.
    ocp = OCP(s, horizon=1.0, bounds=bounds or {}, p=values, initial_constraints=named, x0=None)
    conditions = ocp.initial_constraints[: len(named)]
    for one in conditions:
        if ca.depends_on(one.expression, s.v):
            raise ModelError(f"{verb}: where: {one.name} depends on velocities, which are zero; give conditions on q.")
    posture = Posture(ocp=ocp, start=start, closed=chosen, p=values, balanced=verb == "stand", conditions=conditions)
    if not all(np.isfinite(part).all() for part in (posture.at.force, posture.at.gaps, posture.at.jacobian)):
        raise ModelError(f"{verb}: near: forces, gaps or their directions are not finite there; give another state.")
    program = posture.program()
    result = InteriorPoint(program, EXACT_OPTIONS).solve(posture.w / program.scale, np.empty(0))
    if result.interrupted:
        raise KeyboardInterrupt
    found = result.x * program.scale
    # Sizes of conditions are those at the start, which may be far from the posture: there they count as well.
    there = replace(posture, start=posture.stance(found).x0)
    miss, worst = max(program.violation(found), there.missed, key=lambda pair: pair[0])
    if not miss <= HOLDS:
        kind, more = (
            ("balanced posture", "more friction or wider bounds") if posture.balanced else ("posture", "bounds")
        )
        raise ModelError(
            f"{verb}: no {kind} nearby with {', '.join(chosen) or 'no contact'} closed: {worst} misses by "
            f"{miss:.3g} of its size; give near= a closer posture, other contacts, {more}."
        )
    return posture.stance(found)


@dataclass(frozen=True, eq=False, kw_only=True)
class Posture:
    """Program of a posture: unknowns are q, first-order states, controls, and normal and tangential forces.

    Attributes
    ----------
    ocp : OCP
        With the bounds.
    start : (n_x,)
        The posture is near this state.
    closed, touching : tuple of str
        Contacts that carry, and those whose gap is zero as well.
    p : (n_p,)
    balanced : bool
        Controls and forces hold the posture.
    conditions : tuple of Constraint
    """

    ocp: OCP
    start: Array
    closed: tuple[str, ...]
    p: Array
    balanced: bool = True
    conditions: tuple[Constraint, ...] = ()
    touching: tuple[str, ...] = ()

    @cached_property
    def at(self) -> Kinematics:
        """Kinematics at the start."""
        return self.ocp.system.kinematics(self.start, 0.0, self.p)

    @cached_property
    def ways(self) -> Array:
        """Typical small motions (n_v,), in the units of the velocities."""
        s, sizes = self.ocp.system, self.ocp.sizes.x
        return np.asarray(np.maximum(np.abs(self.start[s.at_q]), sizes[s.at_q]) if s.moves_by_v else sizes[s.at_v])

    @cached_property
    def work(self) -> float:
        """Typical work of a force along these motions, which makes forces of all kinds and units comparable."""
        return float(np.abs(self.at.force * self.ways).max(initial=0.0)) or 1.0

    @cached_property
    def far(self) -> Array:
        """Typical changes of the gaps (n_c,) along these motions."""
        far = np.linalg.norm(self.at.jacobian[: len(self.ocp.system.contacts)] * self.ways, axis=1)
        return np.asarray(np.where(far > 0.0, far, far.max(initial=0.0) or 1.0))

    @cached_property
    def forces(self) -> list[tuple[Contact, ca.SX, float]]:
        """Every closed contact with its forces, normal and tangential ones, and their size."""
        s = self.ocp.system
        return [
            (contact, ca.SX.sym(contact.name, 1 + s.mechanics.frames.width(k)), float(self.work / self.far[k]))
            for k, contact in enumerate(s.contacts)
            if contact.name in self.closed and self.balanced
        ]

    @cached_property
    def sizes(self) -> Array:
        """Typical sizes of all forces."""
        return np.concatenate([np.zeros(0), *(np.full(part.numel(), size) for _, part, size in self.forces)])

    @cached_property
    def w(self) -> Array:
        """Start within the bounds."""
        s = self.ocp.system
        normal = [[1.0] + [0.0] * (part.numel() - 1) for _, part, _ in self.forces]
        pushes = np.concatenate([np.zeros(0), *normal]) * self.sizes
        return np.clip(np.concatenate([self.start[s.at_q], self.start[s.at_y], np.zeros(s.n_u), pushes]), *self.bounds)

    @cached_property
    def bounds(self) -> tuple[Array, Array]:
        """Bounds of the unknowns."""
        s, (x, u) = self.ocp.system, (self.ocp.x_bounds, self.ocp.u_bounds)
        normal = [[0.0] + [-np.inf] * (part.numel() - 1) for _, part, _ in self.forces]
        low = np.concatenate([x[0][s.at_q], x[0][s.at_y], u[0], np.zeros(0), *normal])
        high = np.concatenate([x[1][s.at_q], x[1][s.at_y], u[1], np.full(self.sizes.size, np.inf)])
        if not s.autonomous:
            low[s.n_q + s.y.numel() - 1] = high[s.n_q + s.y.numel() - 1] = self.start[-1]
        return low, high

    @property
    def wanted(self) -> list[tuple[str, ca.SX, float, float]]:
        """Rows of the conditions, each relative to its change along typical motions."""
        s, rows = self.ocp.system, list[tuple[str, ca.SX, float, float]]()
        for one in self.conditions:
            slope = np.array(function_of([s.x, s.p], s.along_v(one.expression))(self.start, self.p))
            sizes = np.linalg.norm(slope * self.ways, axis=1)
            sizes = np.where(sizes > 0.0, sizes, 1.0)
            limits = zip(ca.vertsplit(one.expression), sizes, one.lower, one.upper, strict=True)
            rows += [(str(one.name), row / size, low / size, high / size) for row, size, low, high in limits]
        return rows

    @property
    def missed(self) -> tuple[float, str]:
        """Largest violation of a condition at the start, relative to its size there, and its name."""
        s, worst = self.ocp.system, (0.0, "")
        for name, row, low, high in self.wanted:
            value = float(function_of([s.x, s.p], row)(self.start, self.p))
            worst = max(worst, (abs(value - float(np.clip(value, low, high))), name))
        return worst

    @cached_property
    def unknowns(self) -> ca.SX:
        """Unknowns of the program."""
        s = self.ocp.system
        return ca.vertcat(s.q, s.y, s.u, *(part for _, part, _ in self.forces))

    @cached_property
    def scale(self) -> Array:
        """Typical sizes of the unknowns."""
        s, typical = self.ocp.system, np.maximum(np.abs(self.start), self.ocp.sizes.x)
        return np.concatenate([typical[s.at_q], typical[s.at_y], self.ocp.sizes.u, self.sizes])

    @cached_property
    def effort(self) -> ca.SX:
        """Squares of controls and forces, relative to their sizes."""
        s, force = self.ocp.system, ca.vertcat(ca.SX(0, 1), *(part for _, part, _ in self.forces))
        return ca.sumsqr(s.u / ca.DM(self.ocp.sizes.u)) + ca.sumsqr(force / ca.DM(self.sizes))

    @cached_property
    def rows(self) -> list[tuple[str, ca.SX, float, float]]:
        """Label, expression and limits of all rows; those of the gaps come first, in the order of the contacts."""
        s = self.ocp.system
        total, rows = s.force, list[tuple[str, ca.SX, float, float]]()
        for contact, size in zip(s.contacts, self.far, strict=True):
            most = 0.0 if contact.name in (*self.closed, *self.touching) else np.inf
            rows.append((f"gap[{contact.name}]", contact.gap / size, 0.0, most))
        for contact, part, size in self.forces:
            total += s.normal(contact) * part[0]
            if not contact.frictional:
                continue
            mu, weights = contact.cone
            total += contact.tangent @ part[1:]
            cone = (((contact.static_friction or mu) * part[0]) ** 2 - ca.sumsqr(part[1:] / weights)) / size**2
            rows.append((f"the friction cone of {contact.name}", cone, 0.0, np.inf))
            slip = s.slip(contact) / (float(self.ocp.sizes.x[s.at_v].max(initial=0.0)) or 1.0)
            rows += [(f"slip[{contact.name}]", one, 0.0, 0.0) for one in ca.vertsplit(slip)]
        scale = ca.DM(self.work / self.ways)
        if self.balanced:
            rows += [
                (f"the balance of {n}", r, 0.0, 0.0)
                for n, r in zip(s.names["v"], ca.vertsplit(total / scale), strict=True)
            ]
        rows += [("a unit quaternion", ca.sumsqr(s.q[part]) - 1, 0.0, 0.0) for part in s.unit_parts]
        closure = [] if s.bilateral is None else ca.vertsplit(s.bilateral.closure)
        rows += [(s.bilateral.names[k], row, 0.0, 0.0) for k, row in enumerate(closure)]
        rows += self.wanted
        own = ca.vertsplit(s.y_rate)[: s.y.numel() - (not s.autonomous)] if s.y.numel() and self.balanced else []
        rows += [(f"the rate of {n}", row, 0.0, 0.0) for n, row in zip(s.names.get("y", ()), own, strict=False)]
        still = ca.substitute(ca.vertcat(ca.SX(0, 1), *(row for _, row, _, _ in rows)), s.v, ca.SX.zeros(s.n_v))
        return [(name, row, low, high) for (name, _, low, high), row in zip(rows, ca.vertsplit(still), strict=True)]

    def program(self) -> BlockProgram:
        """Return the program of the posture that is nearest to the start."""
        s, rows = self.ocp.system, self.rows
        index = np.arange(int(self.unknowns.numel()))[None]
        cost = ca.sumsqr((s.q - ca.DM(self.start[s.at_q])) / ca.DM(self.scale[: s.n_q])) + EFFORT * self.effort
        kernel = Kernel(ca.vertcat(self.unknowns, s.p), ca.vertcat(ca.SX(0, 1), *(row for _, row, *_ in rows)), cost)
        block = KernelBlock(
            name="posture", kernel=kernel, at=LinearMap.of((index,), (None, self.p[None])),
            lower=np.array([low for *_, low, _ in rows]), upper=np.array([high for *_, high in rows]),
            labels=tuple(name for name, *_ in rows),
        )  # fmt: skip
        return BlockProgram([block], *self.bounds, self.scale, self.w)

    def stance(self, found: Array) -> Stance:
        """Return the stance of a solution."""
        s, x0 = self.ocp.system, self.start.copy()
        ends = np.cumsum([s.n_q, int(s.y.numel()), s.n_u, *(part.numel() for _, part, _ in self.forces)])
        x0[s.at_q], x0[s.at_y], u, *forces, _ = np.split(found, ends)
        shown = {contact.name: values for (contact, _, _), values in zip(self.forces, forces, strict=True)}
        return Stance(x0=unit_states(x0, s.unit_parts), u=u, forces=shown)
