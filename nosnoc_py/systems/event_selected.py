"""Event-selected systems: a flow that switches where guards are crossed, always in the same direction.

The state is continuous, the vector field is not. Every guard has one bit, its mode, which is 1 after it was crossed;
the flow depends on x and on these bits. Near a guard every field crosses it with speed, D h_k f >= c > 0 (liveness),
whatever the other bits are; then the order of nearly simultaneous crossings does not matter for continuity, and the
flow is piecewise differentiable (ESS, Section 2).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal, cast

import casadi as ca
import numpy as np
from attrs import field

from nosnoc_py.annotations import ArrayFunction, Expression, Symbols
from nosnoc_py.arguments import named_arguments
from nosnoc_py.declared import declared, optional, title_of
from nosnoc_py.errors import ModelError, is_whole
from nosnoc_py.solution.records import EVENT_KINDS
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.symbols import (
    check_different,
    check_free,
    column,
    finite,
    free_of_others,
    one_row,
    part_name,
    parts,
    symbols_if_any,
)

# Kinds of the events when a bit is set, and when it is cleared.
SWITCH, CONTACT = ("switch", "switch"), ("contact", "release")
# Check of derivatives in NumPy: relative step of differences, and the largest relative distance from them. Mistakes are
# far larger, errors of central differences far smaller.
STEP, WRONG = 1e-6, 1e-3
# Shapes that functions of NumPy return, in numbers n of states and m of guards.
SHAPES = {
    "flow": ("n",),
    "functions": ("m",),
    "jacobian": ("m", "n"),
    "back": ("m",),
    "back_jacobian": ("m", "n"),
    "flow_jacobian": ("n", "n"),
}


def _kinds(given: tuple[str, str], what: str = "kinds") -> tuple[str, str]:
    """Return the kinds of both crossings of a guard, or raise `ModelError`."""
    if not isinstance(given, list | tuple) or len(given) != 2 or any(kind not in EVENT_KINDS for kind in given):
        raise ModelError(f"{what}: expected two of {', '.join(EVENT_KINDS)}, given {given!r}.")
    return given[0], given[1]


@declared
class Guard:
    """Guard h(x) = 0 that is crossed from h < 0 to h > 0, with the mode bit that it sets.

    Parameters
    ----------
    name : str
        Name of the events and of the bit.
    function : SX scalar
        h(x, p). Where it rises through zero the bit becomes 1.
    back : SX scalar, optional
        The bit becomes 0 again when this function rises through zero (reset relation of the guard). Without it the
        guard is crossed once.
    kinds : pair of str
        Kinds of the events of both crossings.
    reset
        Not supported: an event-selected system is continuous. Giving it raises an error that names alternatives.

    Raises
    ------
    ModelError
        If the name is empty, a function is no scalar, or a reset is given.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> x = ca.SX.sym("x", 2)
    >>> touch = ns.Guard.contact("foot", -x[0])
    >>> touch.kinds
    ('contact', 'release')
    """

    noun: ClassVar[str] = "guard"

    name: str = field(converter=part_name)
    function: ca.SX = field(converter=one_row)
    back: ca.SX | None = field(default=None, converter=optional(one_row))
    kinds: tuple[str, str] = field(default=SWITCH, converter=_kinds)
    reset: None = None

    def __attrs_post_init__(self) -> None:
        if self.reset is not None:
            raise ModelError(
                f"{title_of(self)}: the state of an event-selected system does not jump; write impacts as an ns.CLS "
                "(ns.FESDJ, ns.EventDriven), other jumps as an ns.HybridSystem."
            )

    @classmethod
    @named_arguments
    def contact(cls, name: str, touchdown: Any, lift_off: Any = None) -> Guard:
        """Return a compliant contact: bit 1 from touchdown(x) = 0 to lift_off(x) = 0, by default -touchdown.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> height = ca.SX.sym("height")
        >>> foot = ns.Guard.contact("foot", -height)  # touches where the height falls through 0
        >>> foot.kinds, foot.back
        (('contact', 'release'), SX(height))
        """
        return cls(name, touchdown, -touchdown if lift_off is None else lift_off, kinds=CONTACT)


def _flow(value: Expression | ArrayFunction, what: str = "flow") -> Any:
    return value if callable(value) else column(value, what)


def _guards(value: Sequence[Guard | str], what: str = "guards", owner: Any = None) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple) or not value:
        raise ModelError(f"{what}: expected a list of one or more ns.Guard, or of names.")
    if owner.symbolic:
        return parts(value, Guard, type(owner).__name__, "guards")
    if not all(isinstance(name, str) and name for name in value):
        raise ModelError(
            f"{what}: with NumPy functions expected names, given {value!r}; an ns.Guard is for systems in CasADi."
        )
    check_different(value, type(owner).__name__, "guards")
    return tuple(value)


def _components(value: Symbols | int | None, what: str = "x", owner: Any = None) -> ca.SX:
    """Return symbols; beside functions of NumPy new ones, that names and sizes work as for other systems."""
    if owner.symbolic:
        return symbols_if_any(value, what)
    name = what.rpartition(" ")[2]
    size = 0 if value is None and name == "p" else value
    if not is_whole(size, 1 if name == "x" else 0):
        raise ModelError(f"{what}: with NumPy functions expected the number of components, given {size!r}.")
    return ca.SX.sym(name, int(cast(int, size)))


@declared(kw_only=True, repr=False)
class EventSelectedSystem(Described):
    """Event-selected system x' = f(x, mode, p); bit k is set when h_k(x) rises through zero (ESS, Section 2.1).

    In CasADi: `x`, `mode`, `p` are symbols, `flow` is an expression of them, `guards` a list of `Guard`. In NumPy:
    `x` and `p` are numbers of components, `flow`, `functions`, `jacobian`, `back`, `flow_jacobian` are functions of
    arrays, with p as the last argument or without it, and `guards` names them.

    Parameters
    ----------
    x : SX (n_x,), or int
    mode : SX (m,), optional
        Bits, 0 or 1; in CasADi only.
    p : SX (n_p,), or int, optional
    flow : SX (n_x,), or function (x, mode, p) -> (n_x,)
    guards : sequence of Guard, or of names
    functions : function (x, p) -> (m,), optional
        h, in NumPy.
    jacobian : function (x, p) -> (m, n_x), optional
        D h, in NumPy.
    back : "negative", or function (x, p) -> (m,), optional
        Functions that clear the bits, in NumPy: -h (contacts), or others with `back_jacobian`.
    back_jacobian : function (x, p) -> (m, n_x), optional
    flow_jacobian : function (x, mode, p) -> (n_x, n_x), optional
        d f / d x, in NumPy; needed for sensitivities.
    kinds : pair of str
        Kinds of the events, in NumPy; ("contact", "release") by default where there is `back`, else ("switch",
        "switch").
    names, units, nominal, p_default, scene
        As in `CLS`; keys "x", "p". A scene is for systems in CasADi.

    Raises
    ------
    ModelError
        For wrong shapes, foreign symbols, names used twice, functions that are missing or do not go together.

    Examples
    --------
    The rate doubles when x passes 1:

    >>> import casadi as ca, nosnoc_py as ns
    >>> x, mode = ca.SX.sym("x"), ca.SX.sym("mode")
    >>> system = ns.EventSelectedSystem(x=x, mode=mode, flow=1 + mode, guards=[ns.Guard("gate", x - 1)])
    >>> motion = ns.simulate(system, x0=[0.0], duration=2.0, method=ns.EventSelected(step=0.1))
    >>> float(motion.final_state[0].round(6))
    3.0
    """

    controlled = False
    methods = "ns.EventSelected(...) with ns.simulate"

    flow: Any = field(converter=_flow)  # first: whether it is a function decides what the others are
    guards: tuple[Any, ...] = field(converter=_guards)
    x: Any = field(converter=_components)
    mode: ca.SX = field(default=None, converter=symbols_if_any)
    p: Any = field(default=None, converter=_components)
    functions: ArrayFunction | None = None
    jacobian: ArrayFunction | None = None
    back: Literal["negative"] | ArrayFunction | None = None
    back_jacobian: ArrayFunction | None = None
    flow_jacobian: ArrayFunction | None = None
    kinds: tuple[str, str] | None = field(default=None, converter=optional(_kinds))
    u: Any = field(default=None, init=False, converter=symbols_if_any)

    def __attrs_post_init__(self) -> None:
        if self.symbolic:
            self._check_symbolic()
        else:
            self._check_numeric()
        self._describe()

    def __repr__(self) -> str:
        if not self.symbolic:
            return self._tree(*(("guard", f"{name}: a function of NumPy") for name in self.guard_names))
        return self._tree(*(("guard", f"{guard.name}: {self._shown(guard.function)}") for guard in self.guards))

    @property
    def guard_names(self) -> tuple[str, ...]:
        """Names of the guards."""
        return tuple(guard.name if isinstance(guard, Guard) else guard for guard in self.guards)

    @property
    def symbolic(self) -> bool:
        """True if it is written in CasADi."""
        # CasADi expressions are not callable; a flow in NumPy is a function.
        return not callable(self.flow)

    @property
    def n_x(self) -> int:
        """Number of states."""
        return int(self.x.shape[0])

    @property
    def returns(self) -> np.ndarray:
        """Mask (m,) of the bits that can be cleared again."""
        if self.symbolic:
            return np.array([guard.back is not None for guard in self.guards])
        return np.full(len(self.guards), self.back is not None)

    @property
    def event_kinds(self) -> tuple[tuple[str, str], ...]:
        """Kinds of the events of every guard: bit set, bit cleared."""
        if self.symbolic:
            return tuple(guard.kinds for guard in self.guards)
        # A guard with a way back is a contact, one without is a switch that is passed once.
        given = (SWITCH if self.back is None else CONTACT) if self.kinds is None else self.kinds
        return (given,) * len(self.guards)

    def check_state(self, x: Any, p: Any = None, *, what: str = "x0") -> np.ndarray:
        """Return a state as a vector (n_x,); derivatives that are given have to be those of the functions there."""
        state = finite(x, what, self.n_x, spread=self.n_x == 1)
        if not self.symbolic:
            parameters = self.parameters(p)
            self._check_results(state, parameters, defined=True)
            # At the initial state, where the functions have to be defined; a wrong derivative would end in wrong
            # events.
            self._check_derivatives(state, parameters)
        return state

    def _check_derivatives(self, x: np.ndarray, p: np.ndarray) -> None:
        """Compare derivatives in NumPy with central differences; entries that are not finite are skipped."""
        pairs = {"jacobian": self.functions, "back_jacobian": self.back, "flow_jacobian": self.flow}
        # Central differences with relative steps: error of order STEP^2 and rounding / STEP, both far below WRONG.
        steps = STEP * np.maximum(1.0, np.abs(x)) * np.eye(x.size)
        for name, function in pairs.items():
            derivative = getattr(self, name)
            if not callable(derivative) or not callable(function):
                continue
            # The flow is compared with all bits zero; other modes are other functions of the same code.
            more = (np.zeros(len(self.guards)), p) if name == "flow_jacobian" else (p,)
            arguments, count = (x, *more), arity(function) - 1
            with np.errstate(all="ignore"):
                ends = [[function(x + sign * step, *more[:count]) for sign in (1, -1)] for step in steps]
                given = np.asarray(derivative(*arguments[: arity(derivative)]))
                # `h.sum()` is the step itself: each row of `steps` has one entry that is not zero.
                values = np.stack([(a - b) / (2 * h.sum()) for (a, b), h in zip(ends, steps, strict=True)], axis=1)
                # Relative to the largest entry: small ones of a badly scaled matrix carry its rounding errors.
                size = 1.0 + np.abs(given).max() + np.abs(values).max()
                wrong = np.abs(given - values) > WRONG * size
            if wrong.any():
                i, j = np.argwhere(wrong)[0]
                raise self._error(
                    f"{name}: entry ({i}, {j}) at {x} is {given[i, j]:.6g}, but differences of "
                    f"{function.__name__} give {values[i, j]:.6g}; correct the derivative, or write the "
                    "system in CasADi."
                )

    def _check_symbolic(self) -> None:
        allowed = self._check_symbols("mode")
        if self.mode.numel() != len(self.guards):
            raise self._error(f"mode: expected one bit per guard, {len(self.guards)}, given {self.mode.numel()}.")
        # CasADi differentiates: derivatives of the user would be ignored without a word.
        numeric = ("functions", "jacobian", "back", "back_jacobian", "flow_jacobian", "kinds")
        given = [name for name in numeric if getattr(self, name) is not None]
        if given:
            raise self._error(
                f"{', '.join(given)}: only with NumPy functions; a flow in CasADi is "
                "differentiated, and its guards are ns.Guard(name, function, back)."
            )
        self._set(flow=column(self.flow, "EventSelectedSystem: flow", self.x.numel()))
        check_free(self.flow, allowed, "EventSelectedSystem: flow")
        check = free_of_others({"x": self.x, "p": self.p})
        for guard in self.guards:
            for expression in (guard.function, *(() if guard.back is None else (guard.back,))):
                check(expression, f"guard {guard.name!r}")
                if not ca.depends_on(expression, self.x):
                    raise ModelError(f"guard {guard.name!r}: it does not depend on x, so it is never crossed.")

    def _check_numeric(self) -> None:
        if self.mode.numel():
            raise self._error("mode: leave it out; a function takes it as its second argument.")
        needed = {"functions": self.functions, "jacobian": self.jacobian}
        if callable(self.back):
            needed["back_jacobian"] = self.back_jacobian
        elif self.back not in (None, "negative"):
            raise self._error(f"back: expected 'negative' or a function of (x, p), given {self.back!r}.")
        missing = [name for name, function in needed.items() if not callable(function)]
        if missing:
            raise self._error(
                f"{', '.join(missing)}: expected a function of (x, p), as the flow is one; or "
                "write the system in CasADi, which differentiates it."
            )
        self._check_signatures()
        p = finite(self.p_or_zeros, "EventSelectedSystem: p_default", self.p.shape[0])
        self._check_results(np.zeros(self.n_x), p, defined=False)  # it need not be defined at zero

    def _check_signatures(self) -> None:
        for name in SHAPES:
            function = getattr(self, name)
            if callable(function) and arity(function) not in ((2, 3) if name.startswith("flow") else (1, 2)):
                expected = "(x, mode) or (x, mode, p)" if name.startswith("flow") else "(x) or (x, p)"
                raise self._error(f"{name}: expected a function of {expected}.")

    def _check_results(self, x: np.ndarray, p: np.ndarray, *, defined: bool) -> None:
        """Call every function once and check its result; `defined` requires that no function raises."""
        n, m = x.size, len(self.guards)
        sizes = {"n": n, "m": m}
        for name, shape in SHAPES.items():
            function = getattr(self, name)
            if not callable(function):
                continue
            # With all bits zero: the modes of the initial state are not known here.
            arguments = (x, np.zeros(m), p) if name.startswith("flow") else (x, p)
            with np.errstate(all="ignore"):
                try:
                    values = function(*arguments[: arity(function)])
                # Functions of the user may raise anything; at the test point zero they need not be defined.
                except Exception as error:
                    if not defined:
                        continue
                    raise self._error(f"{name}: at x = {x} it raised {type(error).__name__}: {error}.") from error
            expected = tuple(sizes[axis] for axis in shape)
            # Integers and lists would silently change the arithmetic of compiled kernels.
            if not isinstance(values, np.ndarray) or values.dtype != float:
                kind = f"{values.dtype} numbers" if isinstance(values, np.ndarray) else type(values).__name__
                raise self._error(f"{name}: expected an array of floats of shape {expected}, given {kind}.")
            if values.shape != expected:
                raise self._error(f"{name}: expected an array of shape {expected}, given one of shape {values.shape}.")


def arity(function: Callable[..., Any]) -> int:
    """Return the number of arguments that a function needs, compiled or not; 0 if it takes any number of them."""
    # Functions compiled by numba keep the Python function, whose signature can be read.
    result = inspect.signature(getattr(function, "py_func", function)).parameters.values()
    # Their number of arguments cannot be read: callers refuse them.
    if any(each.kind in (each.VAR_POSITIONAL, each.KEYWORD_ONLY) for each in result):
        return 0
    return sum(each.default is each.empty for each in result)
