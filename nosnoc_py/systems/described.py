"""Base class of all systems: names, units, nominal values and defaults of states, controls and parameters.

A system is a frozen object that holds symbols and expressions. Construction checks everything once, so that methods
need no checks of their own. Order in a constructor: time becomes a state (`_join_time`), values of named data become
parameters (`_join_data`), symbols are checked (`_check_symbols`), the subclass checks its expressions, and `_describe`
resolves names, nominal values and defaults. Invariants afterwards: names are unique over all groups; nominal values are
positive; nothing can be changed in place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, cast

import casadi as ca
import numpy as np
from attrs import evolve, field

from nosnoc_py.annotations import EMPTY, Names, Numbers
from nosnoc_py.declared import assign, checked, declared
from nosnoc_py.errors import ModelError, unknown_name
from nosnoc_py.kernels.cache import KernelCache
from nosnoc_py.markup import tree
from nosnoc_py.solution.arrays import Array
from nosnoc_py.systems.algebraic import Algebraic
from nosnoc_py.systems.data import Data
from nosnoc_py.systems.jumping import warn_of_jumps
from nosnoc_py.systems.relations import by_name
from nosnoc_py.systems.scene import Mark, PlanarShape
from nosnoc_py.systems.special_laws import refuse_special_friction
from nosnoc_py.systems.symbols import (
    SLACK,
    ReadOnlySX,
    check_different,
    check_distinct,
    check_keys,
    component_names,
    finite,
    free_of_others,
    mapping,
    members,
    numbers,
    some_symbols,
    symbols_if_any,
)
from nosnoc_py.systems.text import counted, shown

# Name of the time among the states.
TIME = "t"


@dataclass(frozen=True, eq=False)
class Drawing:
    """The shapes of a system and one compiled function of all their numbers.

    Parameters
    ----------
    shapes : tuple of PlanarShape
    function : Function
        (x, u, p) -> all numbers, one shape after the other.
    """

    shapes: tuple[PlanarShape, ...]
    function: ca.Function

    @classmethod
    def of(cls, shapes: tuple[PlanarShape, ...], x: ca.SX, u: ca.SX, p: ca.SX) -> Drawing:
        """Compile shapes."""
        # One compiled function for all shapes: a call costs more than its arithmetic, at every frame.
        every = ca.vertcat(ca.SX(0, 1), *[shape.numbers for shape in shapes])
        return cls(shapes, ca.Function("scene", [x, u, p], [ca.densify(every)]))

    def __call__(self, x: Array, u: Array, p: Array) -> list[Array]:
        """Return the numbers (frames, k) of every shape, for states (frames, n_x) and controls (frames, n_u)."""
        # CasADi maps over columns: one call for all frames.
        result = np.asarray(self.function(np.transpose(x), np.transpose(u), p)).reshape(-1, len(x)).T
        ends = np.cumsum([shape.numbers.numel() for shape in self.shapes])
        return np.split(result, ends[:-1], axis=1)


def _checked_scene(system: Any) -> tuple[PlanarShape, ...]:
    """Return the scene of a system as a tuple.

    Raises
    ------
    ModelError
        For objects that are no shapes, foreign symbols, and marks of events that the system does not have.
    """
    kind, given = type(system).__name__, system.scene
    if not isinstance(given, list | tuple):
        raise ModelError(
            f"{kind}: scene: expected a sequence of shapes of ns.scene, given {type(given).__name__}; put it in a list."
        )
    if not given:
        return ()
    if not system.symbolic:
        raise ModelError(
            f"{kind}: scene: a system of NumPy functions has no symbols to write shapes with; draw its motion with the "
            "same system written in CasADi."
        )
    groups = {name: getattr(system, name) for name in dict.fromkeys((*system.groups, "u", "p"))}
    groups = {name: group for name, group in groups.items() if name != "y" or group.numel()}
    check = free_of_others(groups)
    for k, shape in enumerate(given):
        if not isinstance(shape, PlanarShape):
            raise ModelError(f"{kind}: scene: shape {k}: expected a shape of ns.scene, given {type(shape).__name__}.")
        check(shape.numbers, f"{kind}: scene: shape {k} ({shape.title})")
        if isinstance(shape, Mark) and shape.name not in (names := _event_names(system)):
            if shape.name in [contact.name for contact in system.compliant]:
                raise ModelError(
                    f"{kind}: scene: shape {k}: Mark {shape.name!r}: this contact is compliant (stiffness= was given): "
                    "its force grows with the overlap, so it has no event to mark. Leave out the mark, draw the force "
                    "with ns.scene.Arrow, or make the contact rigid by leaving out stiffness=."
                )
            raise ModelError(f"{kind}: scene: shape {k}: {unknown_name(str(shape.name), names, 'event')}")
    return tuple(given)


def _event_names(system: Any) -> tuple[str, ...]:
    named = [part.name for part in (*system.contacts, *system.jumps)]
    for attribute in ("guard_names", "constraint_names", "function_names"):
        named += list(getattr(system, attribute, None) or ())
    for modes in system.modes:
        named += list(modes.function_names)
    return tuple(named)


def _tables(value: Sequence[Data], owner: Any = None) -> tuple[Data, ...]:
    return members(value, Data, type(owner).__name__, "data")


def _defaults(value: Numbers | None, what: str = "p_default", owner: Any = None) -> np.ndarray | None:
    # None: values have to be given wherever the system is used.
    return None if value is None and owner.n_p else finite(() if value is None else value, what, owner.n_p)


@declared(kw_only=True, repr=False)
class Described:
    """A system whose vectors (`groups`, the states first) have named components.

    A subclass is `declared` with one field per group, and calls `_describe` when its symbols are checked.
    """

    groups: ClassVar[tuple[str, ...]] = ("x", "u", "p")
    states: ClassVar[tuple[str, ...]] = ("x",)
    controlled: ClassVar[bool] = True  # whether it may be part of an optimal control problem
    mechanical: ClassVar[bool] = False  # whether it has coordinates, velocities and forces
    smoothable: ClassVar[bool] = True  # whether its nonsmooth laws can be replaced by smooth ones
    # Parts that only some systems have: callers ask for them, and not for the class. Fields of the subclasses.
    contacts, compliant, jumps, modes = cast(tuple[tuple[Any, ...], ...], ((), (), (), ()))
    unit_parts = cast(tuple[slice, ...], ())  # slices of the unit quaternions in the state
    limits = EMPTY
    eliminated = cast(Any, None)
    bilateral = cast(Any, None)  # bilateral constraints, see `systems.bilateral`
    methods: ClassVar[str] = "ns.FESD(...) (simulations also: ns.EventDriven(...))"  # which take it, for messages

    x: Any = field(converter=some_symbols)
    u: Any = field(default=None, converter=symbols_if_any)
    p: Any = field(default=None, converter=symbols_if_any)
    t: Any = field(default=None, converter=symbols_if_any)
    names: Names = field(default=EMPTY, validator=checked(mapping))
    units: Mapping[str, str] = field(default=EMPTY, validator=checked(mapping))
    nominal: Mapping[str, Any] = field(default=EMPTY, validator=checked(mapping))
    p_default: np.ndarray | None = field(default=None, converter=_defaults)
    data: Sequence[Data] = field(default=(), converter=_tables)
    scene: Sequence[PlanarShape] = ()
    algebraic: Algebraic | None = field(default=None, init=False)
    x_initial: Any = field(init=False)

    def _set(self, **values: Any) -> None:
        assign(self, **{name: ReadOnlySX(v) if isinstance(v, ca.SX) else v for name, v in values.items()})

    @property
    def _kind(self) -> str:
        return type(self).__name__

    # Copies are the object itself: expressions of costs and constraints refer to its symbols by identity.
    def __copy__(self) -> Described:
        return self

    def __deepcopy__(self, memo: Any) -> Described:
        return self

    def __getstate__(self) -> Any:
        raise TypeError(
            f"an ns.{self._kind} holds CasADi expressions, which cannot be pickled; send the function that builds it "
            "to the other process, and build it there."
        )

    def _error(self, message: str) -> ModelError:
        return ModelError(f"{self._kind}: {message}")

    def with_fields(self, **changes: Any) -> Self:
        """Return the system with other fields and the same `x_initial`, so that expressions of problems keep it."""
        result = evolve(self, **changes)
        result._set(x_initial=self.x_initial)
        return result

    def _join_time(self, group: str) -> bool:
        """Append time, if given, to a group of states; return True if it was not part of it before.

        As a state with the rate 1, time is available at every stage, guard and node of every method, and events that
        depend on time are located like all others.
        """
        t, own = self.t, getattr(self, group)
        if t.numel() > 1:
            raise self._error(f"t: expected one symbol, the time, given {t.numel()}.")
        # A system that is copied with other fields has the time among its states already.
        if not t.numel() or (own.numel() and own[-1].element_hash() == t.element_hash()):
            return False
        names, nominal = dict(self.names), dict(self.nominal)
        # Names and nominal values have been given without the time.
        names[group] = (*component_names(names.get(group), group, own.numel()), TIME)
        if group in nominal:
            # Nominal magnitude 1 s: time must not change the scaling of the other states.
            nominal[group] = np.append(numbers(nominal[group], f"{self._kind}: nominal {group}", own.numel()), 1.0)
        self._set(names=names, nominal=nominal, **{group: ca.vertcat(own, t)})
        return True

    def _join_data(self) -> None:
        """Append the values of named data to the parameters; their defaults are the data."""
        own, names = self.p, dict(self.names)
        known = {s.element_hash() for s in own.nz}
        # Data that is used twice, or in a copied system, is appended once.
        named = [table for table in self.data if table.name is not None and table.p[0].element_hash() not in known]
        if not named:
            return
        names["p"] = (*component_names(names.get("p"), "p", own.numel()), *(n for table in named for n in table.names))
        values = np.concatenate([table.values.reshape(-1) for table in named])
        # Parameters of the user without defaults leave all of p without: a default holds for the whole vector.
        if self.p_default is not None:
            self._set(p_default=np.append(self.p_default, values))
        self._set(names=names, p=ca.vertcat(own, *[table.p for table in named]))

    def _check_symbols(self, *more: str) -> dict[str, ca.SX]:
        """Return the symbols of all groups and of further fields by name, after a check that they are distinct."""
        self._join_data()
        result = {name: getattr(self, name) for name in (*self.groups, *more)}
        check_distinct({**result, "z": self.z})
        return result

    def _describe(self, **more: int) -> None:
        """Resolve names, nominal values (of the groups without p, and of `more`, name -> size), and defaults of p."""
        self._check_names()
        self._check_nominal({**{k: getattr(self, k).shape[0] for k in self.groups if k != "p"}, **more})
        # New symbols for every system: terminal costs may contain the state at the start beside that at the end.
        self._set(x_initial=ca.SX.sym("x_initial", len(self.state_names)), scene=_checked_scene(self))

    def _warn_of_jumps(self, expressions: Mapping[str, ca.SX], remedy: str, *more: ca.SX) -> None:
        """Warn if expressions jump in the states, for values of the other symbols (and of `more`)."""
        others = [self.u, self.p, self.z, *more]
        # Ones, and not zeros: products with a zero parameter would hide a jump.
        values = [np.ones(symbol.numel()) for symbol in others]
        if self.p_default is not None:
            values[1] = self.p_default
        warn_of_jumps(expressions, self.x, others, values, remedy)

    def _check_names(self) -> None:
        check_keys(self.names, self.groups, "key of names")
        resolved = {k: component_names(self.names.get(k), k, getattr(self, k).shape[0]) for k in self.groups}
        own = () if self.algebraic is None else tuple(self.algebraic.names or ())
        every = [*(name for group in resolved.values() for name in group), *own]
        check_different(every, self._kind, "components")
        check_keys(self.units, every, "name in units")
        self._set(names=resolved, units=dict(self.units))

    def _check_nominal(self, sizes: Mapping[str, int]) -> None:
        check_keys(self.nominal, tuple(sizes), "key of nominal")
        resolved = {k: numbers(self.nominal.get(k, 1.0), f"{self._kind}: nominal {k}", n) for k, n in sizes.items()}
        for key, values in resolved.items():
            if (values <= 0).any() or not np.isfinite(values).all():
                raise self._error(f"nominal values of {key} have to be positive and finite, given {values}.")
        self._set(nominal=resolved)

    def check_state(self, x: Any, p: Any = None, *, what: str = "x0") -> np.ndarray:
        """Return a state as a vector (n_x,) or raise `ModelError` when it is ill-shaped or not admissible.

        A state without the time has the time 0. Components may be given by name; the others are 0.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x = ca.SX.sym("x", 2)
        >>> tanks = ns.ODE(x=x, flow=-x, names={"x": ["upper", "lower"]})
        >>> tanks.check_state({"lower": 1.0})
        array([0., 1.])
        """
        size = len(self.state_names)
        if isinstance(x, Mapping):
            x = by_name(x, self.state_names, np.zeros(size), what)
        if not self.autonomous and size == np.size(x) + 1:
            # Checked before the time is appended, so that the message counts the states as the user does.
            x = np.append(finite(x, what, size - 1, spread=size == 2), 0.0)
        # A number instead of a vector is accepted for one state only: for several it would be ambiguous.
        return finite(x, what, size, spread=size == 1)

    def _tree(self, *branches: tuple[str, str], size: str = "") -> str:
        """Return the repr as a tree of sizes, names and `branches`, pairs (title, text)."""
        sizes = [size or counted(len(self.state_names), "state")]
        sizes += [counted(self.n_u, "control")] if self.controlled else []
        sizes += [counted(self.n_p, "parameter")]
        sizes += [counted(self.z.numel(), "algebraic variable")] if self.algebraic is not None else []
        named = [("states", self.state_names), ("controls", self.control_names)]
        names = [(what, ", ".join(group)) for what, group in named if group]
        return "\n".join(
            [f"{self._kind}: {', '.join(sizes)}", *(f"  {what:<8} {text}" for what, text in (*names, *branches))]
        )

    def _repr_html_(self) -> str:
        return tree(repr(self))

    def _shown(self, expression: Any) -> str:
        """Return an expression of the states, controls and parameters in their names."""
        return shown(expression, [(getattr(self, group), self.names[group]) for group in self.groups])

    @property
    def autonomous(self) -> bool:
        """True if nothing depends on time."""
        return self.t is None or not self.t.numel()

    def extended(self, x: Mapping[str, ca.SX] | None = None, p: Mapping[str, ca.SX] | None = None) -> dict[str, Any]:
        """Return the fields of a system with the same states, controls and parameters, and further named ones."""
        x, p = x or {}, p or {}
        return {
            "x": ca.vertcat(*[getattr(self, group) for group in self.states], *x.values()),
            "u": self.u,
            "p": ca.vertcat(self.p, *p.values()),
            "names": {"x": (*self.state_names, *x), "u": self.control_names, "p": (*self.parameter_names, *p)},
            "nominal": {"x": np.append(self.x_nominal, np.ones(len(x))), "u": self.u_nominal},
        }

    def unused(self, name: str) -> str:
        """Return the name, with primes appended until no state, control or parameter has it."""
        while name in (*self.state_names, *self.control_names, *self.parameter_names):
            name += "'"
        return name

    def solved(self, expression: ca.SX) -> ca.SX:
        """Return an expression with eliminated algebraic variables replaced; unchanged by default."""
        return expression

    @property
    def symbolic(self) -> bool:
        """True if it is written in CasADi."""
        return True

    @property
    def driven(self) -> ca.SX:
        """Right-hand side that controls act on: the force of a mechanical system, else the flow."""
        return getattr(self, "force" if self.mechanical else "flow")

    @property
    def positions(self) -> slice:
        """Slice of the coordinates in a state; all of it where there are no velocities."""
        return slice(None)

    @property
    def gaps(self) -> ca.SX:
        """Gaps (n,) of the contacts; none without contacts."""
        return ca.SX(0, 1)

    @property
    def remembers(self) -> bool:
        """True if the flow depends on a mode that the state does not determine (hysteresis)."""
        return False

    def refuse_special_friction(self, what: str) -> None:
        """Raise `ModelError` for friction that depends on the state or sticks better than it slips.

        Parameters
        ----------
        what : str
            Name of a method that has one coefficient per contact, for the message.
        """
        refuse_special_friction(self, what)

    @property
    def z(self) -> ca.SX:
        """Algebraic variables of the user's own (n_z,)."""
        return ca.SX(0, 1) if self.algebraic is None else self.algebraic.z

    @cached_property
    def kernels(self) -> KernelCache:
        """Functions with derivatives that programs of this system share."""
        return KernelCache()

    @cached_property
    def drawing(self) -> Drawing:
        """The shapes of the scene, with one compiled function of x, u and p for all their numbers."""
        return Drawing.of(tuple(self.scene), self.x, self.u, self.p)

    @property
    def n_u(self) -> int:
        """Number of controls."""
        return int(self.u.shape[0])

    @property
    def n_p(self) -> int:
        """Number of parameters."""
        return int(self.p.shape[0])

    @property
    def p_or_zeros(self) -> np.ndarray:
        """Defaults of the parameters (n_p,), zeros if there are none, for scales and values that are set later."""
        return np.zeros(self.n_p) if self.p_default is None else self.p_default

    def parameters(self, p: Any = None, what: str = "p") -> np.ndarray:
        """Return the parameters (n_p,): the given ones, all or by name, else the defaults.

        Raises
        ------
        ModelError
            If there are neither, or a value is not finite.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x, a = ca.SX.sym("x"), ca.SX.sym("a")
        >>> decay = ns.ODE(x=x, p=a, flow=-a * x, p_default=[0.5])
        >>> decay.parameters(), decay.parameters([2.0])
        (array([0.5]), array([2.]))
        """
        if p is None and self.p_default is None:
            names = ", ".join(self.parameter_names)
            raise ModelError(
                f"{what}: the parameters {names} of the {self._kind} have no values; give p=[...] here, or "
                "p_default=[...] in the system."
            )
        # Slacks of soft constraints are parameters that the library has added: users need not know them.
        slacks = sum(name.startswith(SLACK) for name in self.parameter_names)
        if isinstance(p, Mapping):
            p = {name: value for name, value in p.items() if slacks or not name.startswith(SLACK)}
            # NaN marks parameters without a value, for the message below.
            known = np.full(self.n_p, np.nan) if self.p_default is None else self.p_default
            p = by_name(p, self.parameter_names, known, what)
            missing = [name for name, value in zip(self.parameter_names, p, strict=True) if np.isnan(value)]
            if missing:
                raise ModelError(f"{what}: {', '.join(missing)} has no value, neither here nor in p_default.")
        if slacks and p is not None and np.size(p) == self.n_p - slacks:
            p = np.append(np.reshape(p, -1), np.zeros(slacks))  # users give values without the slacks
        tables = [table for table in self.data if table.name is not None]
        if p is not None and tables and np.size(p) == self.n_p - sum(table.values.size for table in tables):
            p = np.concatenate([np.reshape(p, -1), *[table.values.reshape(-1) for table in tables]])  # data as they are
        return finite(self.p_default if p is None else p, what, self.n_p, spread=self.n_p > 0)

    @property
    def state_names(self) -> tuple[str, ...]:
        """Names of the components of x."""
        return tuple(name for group in self.states for name in self.names[group])

    @property
    def control_names(self) -> tuple[str, ...]:
        """Names of the components of u."""
        return tuple(self.names["u"])

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the components of p."""
        return tuple(self.names["p"])

    @property
    def x_nominal(self) -> np.ndarray:
        """Typical magnitude of every state."""
        return np.concatenate([self.nominal[group] for group in self.states])

    @property
    def u_nominal(self) -> np.ndarray:
        """Typical magnitude of every control."""
        return np.asarray(self.nominal["u"])
