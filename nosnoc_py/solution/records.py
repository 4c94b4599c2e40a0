"""Small records that results consist of: events, series, steps of the homotopy, residuals.

They are frozen and hold numbers, words and roles only, so that they can be compared, pickled and written to files.
Numbers of NumPy are converted to Python's, which JSON can write.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import Enum

import numpy as np

from nosnoc_py.declared import assign
from nosnoc_py.errors import TranscriptionError, unknown_name
from nosnoc_py.solution.arrays import Array, read_only

# The first six are of contacts (a contact closes without a jump), the others of switching functions.
EVENT_KINDS = ("impact", "contact", "release", "slip", "stick", "reversal", "switch", "enter_sliding", "leave_sliding")
# Kinds of violated conditions of an MPCC; messages and files use these words.
RESIDUAL_KINDS = ("complementarity", "equation", "bound")


@dataclass(frozen=True, repr=False)
class Event:
    """One detected switch or impact.

    Parameters
    ----------
    time
        Time [s].
    name
        Name of the contact or of the switching function.
    kind
        One of `EVENT_KINDS`.
    impulse
        The contact impulse of an impact in N s.
    v_before, v_after
        The normal velocity just before and just after an impact, in m/s.
    energy_gain
        Kinetic energy gained at the instant of an impact, by all contacts together [J]. Newton's law of restitution may
        make it positive where friction acts, or where several bodies meet.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> ball = ns.CLS(q=q, v=v, mass_matrix=2, force=-19.62, contacts=[ns.Contact("ground", gap=q, restitution=0.5)])
    >>> event = ns.simulate(ball, x0=[1.0, 0.0], duration=0.6).events[0]
    >>> event.kind, event.name, round(event.time, 4), round(event.v_after, 4)
    ('impact', 'ground', 0.4515, 2.2147)
    """

    time: float
    name: str
    kind: str
    # None for events that are no impacts.
    impulse: float | None = None
    v_before: float | None = None
    v_after: float | None = None
    energy_gain: float | None = None

    def __post_init__(self) -> None:
        _require(self.kind, EVENT_KINDS, "kind of event")
        for name in ("time", "impulse", "v_before", "v_after", "energy_gain"):
            value = getattr(self, name)
            # NumPy's floats pass isinstance(float) but print differently: convert them.
            if value is not None and type(value) is not float:
                assign(self, **{name: float(value)})

    def to_dict(self) -> dict[str, float | str | None]:
        """Return the fields by name.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> ns.Event(0.25, "relay", "switch").to_dict()["name"]
        'relay'
        """
        return asdict(self)

    def __repr__(self) -> str:
        return f"<{self}>"

    def __str__(self) -> str:
        text = f"{self.kind} {self.name} at {self.time:.6g}"
        if self.impulse is not None:
            text += f", impulse {self.impulse:.4g} N s"
        if self.v_before is not None and self.v_after is not None:
            text += f", velocity {self.v_before:.4g} -> {self.v_after:.4g}"
        return text


@dataclass(frozen=True, eq=False)
class Series:
    """A scalar quantity with its own times, e.g. a contact force at the RK stages.

    Parameters
    ----------
    t : (times,)
        Times [s].
    values : (times,)
        Values at these times.
    role : Enum, optional
        Role of the quantity (`nosnoc_py.roles.Role`), if the method knows it.

    Examples
    --------
    A weight of 20 N rests on the ground:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> block = ns.CLS(q=q, v=v, mass_matrix=2, force=-20, contacts=[ns.Contact("ground", gap=q)])
    >>> force = ns.simulate(block, x0=[0.0, 0.0], duration=0.5).series["lambda_normal[ground]"]
    >>> force.t.shape == force.values.shape, round(float(force.values[-1]), 4)
    (True, 20.0)
    """

    t: Array
    values: Array
    role: Enum | None = None

    def __post_init__(self) -> None:
        t = read_only(self.t, "t of a series", "times")
        # Checked against the times, so that a series cannot be drawn at wrong times.
        assign(self, t=t, values=read_only(self.values, "values of a series", t.size))

    def __len__(self) -> int:
        return len(self.t)

    def __repr__(self) -> str:
        if not len(self):
            return "Series: empty"
        low, high = np.min(self.values), np.max(self.values)
        return f"Series: {len(self)} values in [{low:.4g}, {high:.4g}], t = {self.t[0]:g} .. {self.t[-1]:g}"


@dataclass(frozen=True)
class PairRole:
    """Role of a pair (a `nosnoc_py.roles.Role`, None if unknown) and its owner, such as a contact."""

    role: Enum | None
    of: str = ""


@dataclass(frozen=True, kw_only=True)
class Discretization:
    """The finite elements that a motion is made of.

    Parameters
    ----------
    scheme
        Name of the Runge-Kutta scheme.
    nodes
        Its nodes c, in the order of the stages.
    collocation
        True if the states at the stages are values of one polynomial, that of the dense output, at these nodes.
    time_freezing
        True if the elements are those of the motion in numerical time.
    """

    scheme: str
    nodes: tuple[float, ...]
    collocation: bool
    time_freezing: bool = False

    def __post_init__(self) -> None:
        # Numbers of NumPy are no JSON.
        assign(self, nodes=tuple(float(node) for node in self.nodes))


@dataclass(frozen=True, kw_only=True)
class StepRecord:
    """One line in the log of a solver: one relaxed problem of the homotopy, or one problem on an active set.

    Residuals are those of the unrelaxed problem in the user's units. `label` is free text for the kind of the step,
    e.g. "homotopy", "finish", "branch", "lpec", with the strategy before it where there are several ("elastic:
    homotopy"). `sigma` is 0 where nothing is relaxed. `solver_status` is the solver's own word. Methods that descend
    say the size of the objective's derivative by the control (`slope`), those of the minimum principle also the
    collisions of the iterate, as pairs (name, time [s]).
    """

    step: int
    label: str
    sigma: float = 0.0
    objective: float
    complementarity: float = 0.0
    infeasibility: float = 0.0
    iterations: int = 0
    wall_seconds: float
    solver_status: str = ""
    slope: float | None = None
    collisions: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        # JSON has lists: a record from a file gets its tuples back.
        assign(self, collisions=tuple((str(name), float(time)) for name, time in self.collisions))


@dataclass(frozen=True)
class Residual:
    """One violated condition with its place.

    Parameters
    ----------
    value
        Size of the violation, in the user's units.
    kind
        One of "complementarity", "equation", "bound".
    name
        Name of the pair, the equation or the variable.
    where
        The place in words, e.g. "control stage 3, finite element 1, RK stage 2".

    Examples
    --------
    >>> from nosnoc_py.solution import Residual
    >>> print(Residual(2e-3, "complementarity", "gap[ground] * force[ground]", "control stage 3"))
    2.00e-03 complementarity gap[ground] * force[ground] (control stage 3)
    """

    value: float
    kind: str
    name: str
    where: str = ""

    def __post_init__(self) -> None:
        _require(self.kind, RESIDUAL_KINDS, "kind of residual")
        assign(self, value=float(self.value))

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"{self.value:.2e} {self.kind} {self.name}{place}"


def _require(given: str, legal: tuple[str, ...], what: str) -> None:
    if given not in legal:
        raise TranscriptionError(unknown_name(given, legal, what))


@dataclass(frozen=True, eq=False, kw_only=True)
class SolvedBranch:
    """The branch of the complementarities that an iterate solves, with the multipliers of its program.

    Solving again starts here: quantities that are zero stay zero, and the program of the branch is smooth.

    Parameters
    ----------
    G, H : (n_G,), (n_H,) bool
        True for the nonnegative quantities that are zero.
    r : (n_r,) bool
        True for the switched equations that hold.
    way : str
        How the finish treats equations that are not the problem's own: "hold", "penalise", "polish".
    lam_x, lam_g : (n_x,), (n_g,)
        Multipliers of the bounds and the rows of the scaled program.
    """

    G: Array
    H: Array
    r: Array
    way: str
    lam_x: Array
    lam_g: Array
