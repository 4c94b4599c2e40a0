"""Complementarity Lagrangian systems: rigid bodies with unilateral contacts and dry friction (FESD-J, Eq. 1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import casadi as ca
import numpy as np

from nosnoc_py.errors import ModelError
from nosnoc_py.solution.arrays import assign
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.kinematics import ContactMechanics, Kinematics
from nosnoc_py.systems.symbols import check_free, column, columns, finite, free_of_others, parts, scalar, square, titled
from nosnoc_py.systems.text import counted

JUMPS = (
    "nothing locates that, so simulators lose accuracy there or come to a halt; write friction as "
    "ns.Contact(..., friction=...), other jumps as the regions of an ns.PSS, or smooth them"
)


@dataclass(frozen=True, eq=False)
class Contact:
    """One unilateral contact: gap(q) >= 0, opened by a nonnegative normal force, with Coulomb friction if it has one.

    Parameters
    ----------
    name : str
        Name of the contact; forces, impulses and events carry it.
    gap : SX scalar
        Signed distance f_c(q) [m]: positive when open, zero in contact, negative behind it, with a gradient that is not
        zero where the gap is. |q|, q^2 and the distance of two points are none: they do not change sign. Without
        friction any such smooth function will do, the normal force then has the unit that makes normal * force a
        generalised force. With friction it has to be a distance: a gap that is ten times as large makes normal forces,
        and so friction, a tenth.
    normal : SX (n_q,), optional
        Direction J_n(q) of the normal force in generalised coordinates; default: the gradient of the gap.
    tangent : SX (n_q, n_t), optional
        Directions J_t(q) of the friction force in generalised coordinates, n_t = 1 (planar) or 2; J_t'v is the slip
        velocity, so in 3-D the columns belong to two perpendicular unit directions of the contact plane (they are not
        checked to be: in generalised coordinates they need not have length one).
    friction : float or sequence of n_t floats
        Coefficient mu >= 0: |lambda_t| <= mu lambda_n. Two numbers make it anisotropic, one for each tangent column:
        sum_k (lambda_t,k / mu_k)^2 <= lambda_n^2 (the weighted norm of FESD-J, after Eq. 1).
    restitution : float
        Newton's coefficient of restitution e in [0, 1]: n'v(+) = -e n'v(-).

    Raises
    ------
    ModelError
        If the name is empty, the gap is no scalar, the restitution lies outside [0, 1], the friction is negative, or
        there is friction without a tangent.
    """

    name: str
    gap: Any = field(kw_only=True)
    normal: Any = field(default=None, kw_only=True)
    tangent: Any = field(default=None, kw_only=True)
    friction: Any = field(default=0.0, kw_only=True)
    restitution: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        what = titled(self, "contact")
        restitution = scalar(self.restitution, f"{what}: restitution")
        assign(self, gap=column(self.gap, f"{what}: gap", 1), restitution=restitution)
        if not 0.0 <= restitution <= 1.0:
            raise ModelError(
                f"{what}: restitution has to lie in [0, 1], given {restitution!r} (0 is inelastic, 1 elastic)."
            )
        self._check_friction(what)

    def _check_friction(self, what: str) -> None:
        if isinstance(self.friction, ca.SX | ca.MX):
            raise ModelError(
                f"{what}: friction has to be a number (or one per tangent), given the symbol {self.friction}."
            )
        if self.tangent is not None:
            assign(self, tangent=columns(self.tangent, f"{what}: tangent"))
        size = 1 if self.tangent is None else self.tangent.shape[1]
        friction = finite(self.friction, f"{what}: friction", size)
        if (friction < 0).any():
            raise ModelError(f"{what}: friction has to be nonnegative, given {self.friction!r}.")
        if (friction > 0).any() != (friction > 0).all():
            raise ModelError(
                f"{what}: anisotropic friction needs positive coefficients, given {self.friction!r}; leave out the "
                "tangent column that has none."
            )
        if self.tangent is None and friction.any():
            raise ModelError(
                f"{what}: friction {self.friction!r} needs a direction; give tangent=, the columns of J_t in "
                "generalised coordinates (one in the plane, two in space)."
            )
        assign(self, friction=tuple(float(mu) for mu in friction))

    @property
    def frictional(self) -> bool:
        """Whether there is friction; a tangent with mu = 0 is none."""
        return any(self.friction)


@dataclass(frozen=True, eq=False, kw_only=True)
class CLS(Described):
    """Complementarity Lagrangian system (FESD-J, Eq. 1).

    q' = v,  M(q) v' = f_v(q, v, u) + sum_l (n_l(q) lambda_n,l + t_l(q) lambda_t,l),  0 <= lambda_n,l, f_l(q) >= 0,
    lambda_n,l f_l(q) = 0; friction dissipates most, lambda_t,l = argmin v't_l lambda over |lambda| <= mu_l lambda_n,l;
    and at an impact of contact l Newton's law n_l'(v+ + e_l v-) = 0 holds, with the same friction law for impulses at
    the velocity after it.

    Parameters
    ----------
    q, v : SX (n_q,)
        Generalised coordinates and velocities.
    u : SX (n_u,), optional
        Controls.
    p : SX (n_p,), optional
        Parameters; values are given to the OCP and to `simulate`, defaults in `p_default`.
    mass_matrix : SX or DM (n_q, n_q)
        M(q), symmetric positive definite.
    force : SX (n_q,)
        f_v(q, v, u, p): every force but the contact forces.
    contacts : sequence of Contact
    names : mapping, optional
        Component names for "q", "v", "u", "p".
    units : mapping, optional
        Unit of any named component, for labels ("m", "m/s", "N").
    nominal : mapping, optional
        Typical magnitudes for "q", "v", "u" and "force" (contact forces): they scale the program, results stay in
        the user's units.
    p_default : sequence of float, optional
        Default values of the parameters; without them values have to be given wherever the system is used.
    scene : sequence of shapes of `ns.scene`, optional
        What the system looks like, for `ns.animate` and `ns.snapshots`.

    Attributes
    ----------
    x_initial : SX (2 n_q,)
        Symbols of the state at t = 0, for terminal costs and constraints that tie x(T) to x(0).

    Raises
    ------
    ModelError
        For wrong shapes, foreign symbols, duplicate names, non-positive nominal values, unknown keys.
    """

    groups: ClassVar[tuple[str, ...]] = ("q", "v", "u", "p")
    states: ClassVar[tuple[str, ...]] = ("q", "v")

    methods = "ns.FESDJ(...) or ns.TimeFreezing(...) (simulations also: ns.EventDriven(...), ns.TimeStepping(...))"

    q: Any
    v: Any
    mass_matrix: Any
    force: Any
    contacts: Sequence[Contact] = ()
    x: Any = field(init=False)  # the state (q, v)

    def __post_init__(self) -> None:
        allowed = self._check_symbols()
        n_q = self.q.shape[0]
        if n_q == 0 or self.v.shape != self.q.shape:
            raise self._error(f"q and v need the same positive length, given {n_q} and {self.v.shape[0]}.")
        self._set("x", ca.vertcat(self.q, self.v))
        self._set("force", column(self.force, "CLS: force", n_q))
        self._set("contacts", parts(self.contacts, Contact, "CLS", "contacts"))
        self._check_mass_matrix()
        self._check_contacts()
        self._describe(force=len(self.contacts))
        check_free(self.force, allowed, "CLS: force")
        self._warn_of_jumps({"CLS: force": self.force}, JUMPS)

    def _check_mass_matrix(self) -> None:
        matrix = square(self.mass_matrix, "CLS: mass_matrix", self.q.shape[0])
        check_free(matrix, {"q": self.q, "p": self.p}, "CLS: mass_matrix")
        if matrix.is_constant():
            values = np.array(ca.DM(matrix))
            if not np.allclose(values, values.T) or np.linalg.eigvalsh(values).min() <= 0:
                raise self._error("mass_matrix has to be symmetric and positive definite; check its entries.")
        self._set("mass_matrix", matrix)

    def _check_contacts(self) -> None:
        check = free_of_others({"q": self.q, "p": self.p})
        for contact in self.contacts:
            check(contact.gap, f"contact {contact.name!r}: gap")
            if not ca.depends_on(contact.gap, self.q):
                raise ModelError(f"contact {contact.name!r}: the gap does not depend on q; write it in q.")
            if contact.normal is not None:
                normal = column(contact.normal, f"contact {contact.name!r}: normal", self.q.shape[0])
                check(normal, f"contact {contact.name!r}: normal")
            if contact.tangent is not None:
                check(contact.tangent, f"contact {contact.name!r}: tangent")
                self._check_tangent(contact)

    def _check_tangent(self, contact: Contact) -> None:
        what, n_q, shape = f"contact {contact.name!r}: tangent", self.q.shape[0], contact.tangent.shape
        if shape[0] != n_q or shape[1] not in (1, 2):
            raise ModelError(f"{what}: expected shape ({n_q}, 1) or ({n_q}, 2), given {shape}.")
        frame = ca.horzcat(self.normal(contact), contact.tangent)
        if frame.is_constant():
            _check_independent(np.array(ca.DM(frame)), contact.name)

    @property
    def n_q(self) -> int:
        """Number of generalised coordinates."""
        return int(self.q.shape[0])

    @property
    def position_rate(self) -> ca.SX:
        """q' as an expression of q and v (n_q,)."""
        return self.v

    @cached_property
    def mechanics(self) -> ContactMechanics:
        """Expressions and compiled functions of the contacts, made once."""
        return ContactMechanics(self)

    def kinematics(self, x: Any, u: Any = 0.0, p: Any = None) -> Kinematics:
        """Gaps, directions of contact forces, mass matrix, forces and Delassus matrix at a state.

        Parameters
        ----------
        x : (2 n_q,), (m, 2 n_q) or SX (2 n_q,)
            State; many at once give arrays with a leading axis m.
        u : (n_u,), (m, n_u) or SX, optional
            Control, by default zero; only the forces depend on it.
        p : (n_p,) or SX, optional
            Parameters, by default those of the system.

        Returns
        -------
        Kinematics

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
        >>> ball = ns.CLS(q=q, v=v, mass_matrix=ca.SX(2), force=ca.SX(-19.6), contacts=[ns.Contact("ground", gap=q)])
        >>> float(ball.kinematics([1.0, -3.0]).rates[0])
        -3.0
        """
        return self.mechanics.at(x, u, self.parameters() if p is None else p)

    def normal(self, contact: Contact) -> ca.SX:
        """Normal direction of a contact, by default the gradient of its gap (n_q,)."""
        if contact.normal is not None:
            return column(contact.normal, "normal", self.n_q)
        return ca.gradient(contact.gap, self.q)

    def check_state(self, x: Any, p: Any = None, *, what: str = "x0", tolerance: float = 1e-8) -> np.ndarray:
        """Return a state as a vector (2 n_q,) or raise `ModelError` when it is ill-shaped or penetrates a contact."""
        state = super().check_state(x, what=what)
        parameters = self.parameters(p)
        values = self.mechanics.gaps_at(state[: self.n_q], parameters)
        for contact, value in zip(self.contacts, values, strict=True):
            if not value >= -tolerance:
                raise ModelError(
                    f"{what} penetrates contact {contact.name!r}: its gap is {value:.6g}, expected >= 0; "
                    "move the bodies apart."
                )
        self._check_frames(state[: self.n_q], parameters)
        return state

    def _check_frames(self, q: np.ndarray, p: np.ndarray) -> None:
        """Tangents that depend on q are independent of their normal at least where the motion starts."""
        rough = [contact for contact in self.contacts if contact.frictional]
        columns = ca.horzcat(ca.SX(self.n_q, 0), *[ca.horzcat(self.normal(c), c.tangent) for c in rough])
        frames = ca.horzsplit(  # sparse: a thousand contacts have few coordinates each
            ca.Function("frames", [self.q, self.p], [columns])(q, p),
            np.cumsum([0, *(1 + c.tangent.shape[1] for c in rough)]).tolist(),
        )
        for contact, frame in zip(rough, frames, strict=True):
            _check_independent(np.array(frame), contact.name)

    def __repr__(self) -> str:
        contacts = [("contact", self._of(contact)) for contact in self.contacts]
        return self._tree(*contacts, size=counted(self.n_q, "coordinate"))

    def _of(self, contact: Contact) -> str:
        """A contact in words."""
        friction = f", friction {', '.join(f'{mu:g}' for mu in contact.friction)}" if contact.frictional else ""
        return f"{contact.name}: gap {self._shown(contact.gap)}, restitution {contact.restitution:g}{friction}"


def _check_independent(frame: np.ndarray, name: str) -> None:
    """The columns (normal, tangents) of one contact have to span as many directions as there are of them."""
    sizes = np.linalg.norm(frame, axis=0)
    if (sizes == 0).any() or np.linalg.matrix_rank(frame / sizes, tol=1e-8) < frame.shape[1]:
        raise ModelError(
            f"contact {name!r}: the tangent columns have to be independent of the normal and of each other, given "
            f"normal {frame[:, 0]} and tangent {frame[:, 1:].T.tolist()}."
        )
