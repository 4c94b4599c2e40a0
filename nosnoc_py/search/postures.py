"""Postures in which a system stands: contacts are closed, and drives and contact forces within their cones hold it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.arguments import named_arguments
from nosnoc_py.errors import ModelError, check_type, unknown_name
from nosnoc_py.kernels import Kernel
from nosnoc_py.mpcc.interior.method import InteriorPoint
from nosnoc_py.ocp import OCP
from nosnoc_py.programs import BlockProgram, KernelBlock, LinearMap
from nosnoc_py.sequences.refinement import EXACT_OPTIONS
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.quaternions import unit_states, with_attitude
from nosnoc_py.systems.relations import by_name

Array = np.ndarray
# Costs of controls and of forces relative to their sizes, beside the squared distance: only where it leaves a choice.
EFFORT, FORCE = 1e-3, 1e-6
# Largest violation, relative to the sizes of the rows, of a posture that holds.
HOLDS = 1e-8


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
) -> Stance:
    """Return the balanced posture that is nearest to another one.

    Parameters
    ----------
    system : CLS
    closed : iterable of str, optional
        Contacts that carry; all of the system by default. The others stay open.
    near : (n_x,) or mapping, optional
        State, or some of its components by name; default zero. Velocities are not used.
    bounds : mapping, optional
        Bounds of states and controls by name, as those of an OCP: `robot.bounds()`.
    p : (n_p,), optional
        Parameters, by default those of the system.

    Returns
    -------
    Stance
        `x0` for an OCP or a simulation, `u` and `forces` that hold it.

    Raises
    ------
    ModelError
        For an unknown contact, or if there is no such posture nearby; it names the row that is violated most.

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
    check_type(system, CLS, "stand: system")
    s, values = system, system.parameters(p)
    names = tuple(contact.name for contact in s.contacts)
    chosen = names if closed is None else (closed,) if isinstance(closed, str) else tuple(closed)
    for name in chosen:
        if name not in names:
            raise ModelError(f"stand: closed: {unknown_name(str(name), names, 'contact')}")
    start = np.zeros(len(s.state_names))
    if near is not None:
        start = by_name(near, s.state_names, start, "near") if isinstance(near, Mapping) else np.array(near, float)
    if start.shape != (len(s.state_names),) or not np.isfinite(start).all():
        raise ModelError(f"stand: near: expected {len(s.state_names)} finite numbers, given {near!r}.")
    start = with_attitude(start, s.unit_parts)
    start[s.at_v] = 0.0
    ocp = OCP(s, horizon=1.0, bounds=bounds or {}, p=values)
    w, limits, block, scale = _program(ocp, start, [name in chosen for name in names], values)
    program = BlockProgram([block], *limits, scale, w)
    found = InteriorPoint(program, EXACT_OPTIONS).solve(w / scale, np.empty(0)).x * scale
    miss, worst = program.violation(found)
    if not miss <= HOLDS * max(1.0, float(np.abs(scale).max())):
        raise ModelError(
            f"stand: no balanced posture nearby with {', '.join(chosen) or 'no contact'} closed: {worst} misses by "
            f"{miss:.3g}; give near= a posture that is closer, other contacts, more friction or wider bounds."
        )
    x0 = start.copy()
    x0[s.at_q] = found[: s.n_q]
    x0, u, forces = unit_states(x0, s.unit_parts), found[s.n_q : s.n_q + s.n_u], found[s.n_q + s.n_u :]
    frames, shown = s.mechanics.frames, dict[str, Array]()
    for name in chosen:
        c = names.index(name)
        at = frames.tangents[c]
        weights = np.asarray(s.mechanics.frames_at(values).weights, float)[at]
        shown[name] = np.array([forces[c], *(weights * forces[frames.count + at.start : frames.count + at.stop])])
    return Stance(x0=x0, u=u, forces=shown)


def _program(
    ocp: OCP, start: Array, closed: list[bool], p: Array
) -> tuple[Array, tuple[Array, Array], KernelBlock, Array]:
    """Return start, bounds, block and sizes of the program in (q, u, forces)."""
    s, at = ocp.system, ocp.system.mechanics
    frames, still = at.frames_at(p), start.copy()
    force = ca.SX.sym("force", frames.count + frames.n_t)
    weight = float(np.abs(s.kinematics(start, 0.0, p).force).max(initial=0.0)) or 1.0
    # A velocity of zero, and first-order states as they are given.
    rest = ca.vertcat(s.v, s.y), ca.DM(still[s.n_q :])
    balance, gaps, arms = ca.substitute([s.force, at.gaps, at.jacobian], [rest[0]], [rest[1]])
    cones = [
        (frames.friction[c] * force[c]) ** 2 - ca.sumsqr(force[frames.count + part.start : frames.count + part.stop])
        for c, part in enumerate(frames.tangents)
        if part.stop > part.start
    ]
    units = [ca.sumsqr(s.q[part]) - 1 for part in s.unit_parts]
    closure = [ca.SX(0, 1)] if s.bilateral is None else [s.bilateral.closure]
    rows = ca.vertcat(
        gaps, (balance + arms.T @ force) / weight, *units, *closure, *(cone / weight**2 for cone in cones)
    )
    w = np.concatenate([start[s.at_q], np.zeros(s.n_u + force.numel())])
    low, high = np.full(w.size, -np.inf), np.full(w.size, np.inf)
    (x_low, x_high), (u_low, u_high) = ocp.x_bounds, ocp.u_bounds
    low[: s.n_q], high[: s.n_q] = x_low[s.at_q], x_high[s.at_q]
    drives = slice(s.n_q, s.n_q + s.n_u)
    low[drives], high[drives] = u_low, u_high
    carries = np.array(
        [*closed, *(closed[c] for c, part in enumerate(frames.tangents) for _ in range(part.start, part.stop))]
    )
    low[drives.stop :] = np.where(carries & (np.arange(force.numel()) >= frames.count), -np.inf, 0.0)
    high[drives.stop :] = np.where(carries, np.inf, 0.0)
    w[drives.stop : drives.stop + frames.count] = np.where(closed, weight / max(1, sum(closed)), 0.0)
    strength = np.where(np.isfinite(u_high - u_low), u_high - u_low, weight)
    scale = np.concatenate(
        [np.maximum(np.abs(start[s.at_q]), s.nominal["q"]), strength, np.full(force.numel(), weight)]
    )
    cost = ca.sumsqr((s.q - ca.DM(start[s.at_q])) / ca.DM(scale[: s.n_q]))
    cost += EFFORT * ca.sumsqr(s.u / ca.DM(strength)) + FORCE * ca.sumsqr(force / weight)
    equal, count = np.zeros(int(rows.numel())), frames.count
    upper = equal.copy()
    upper[:count] = np.where(closed, 0.0, np.inf)
    upper[rows.numel() - len(cones) :] = np.inf
    kernel = Kernel(ca.vertcat(s.q, s.u, force, s.p), rows, cost)
    index = np.arange(w.size)[None]
    block = KernelBlock(
        name="posture", kernel=kernel, at=LinearMap.of((index,), (None, p[None])), lower=equal, upper=upper,
        labels=_labels(s, len(units), len(closure[0].nonzeros()), len(cones)),
    )  # fmt: skip
    return np.clip(w, low, high), (low, high), block, scale


def _labels(s: CLS, units: int, closures: int, cones: int) -> tuple[str, ...]:
    """Return what the rows say."""
    return (
        *(f"gap[{contact.name}]" for contact in s.contacts),
        *(f"balance of {name}" for name in s.names["v"]),
        *["unit quaternion"] * units,
        *["closure"] * closures,
        *(f"friction cone of {contact.name}" for contact in s.contacts if contact.frictional),
    )
