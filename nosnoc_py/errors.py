"""Errors: a user's mistake raises one of these at once and says what was given, what was expected, what to do.

Numerical failure is not an error: it is a `nosnoc_py.status.Status` on the result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from importlib import import_module
from math import inf
from numbers import Integral, Real
from typing import Any

from nosnoc_py.synonyms import SYNONYMS

# Proposals for a misspelt name: their largest number, the least length of an abbreviation that is completed, and the
# number of legal names up to which all of them are listed beside the proposals.
PROPOSALS, ABBREVIATION, LISTED = 3, 2, 60


class NosnocError(Exception):
    """Base class of all errors that the library raises on purpose.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> try:
    ...     ns.FESDJ(rk_stages=0)
    ... except ns.NosnocError as error:
    ...     print(type(error).__name__)
    OptionError
    """


class ModelWarning(UserWarning):
    """Warning that a model may not mean what it says; it is used as written.

    Examples
    --------
    A field that jumps belongs in an `ns.PSS`; an `ns.ODE` warns; filter the warning if this is intended:

    >>> import warnings, casadi as ca, nosnoc_py as ns
    >>> x = ca.SX.sym("x")
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", ns.ModelWarning)
    ...     relay = ns.ODE(x=x, flow=-ca.sign(x))
    >>> relay.state_names
    ('x_0',)
    """


class ModelError(NosnocError, ValueError):
    """Error in a system or an optimal control problem.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> ns.Contact("leg", gap=ca.SX.sym("q"), restitution=2.0)
    Traceback (most recent call last):
        ...
    nosnoc_py.errors.ModelError: contact 'leg': restitution has to lie in [0, 1], given 2.0 (0 is inelastic, 1 elastic).
    """


class OptionError(NosnocError, ValueError):
    """Error in an option or argument: unknown, of a wrong type or value, or unfit for the problem.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> x = ca.SX.sym("x")
    >>> ns.Simulator(ns.ODE(x=x, flow=-x), step=-0.1)
    Traceback (most recent call last):
        ...
    nosnoc_py.errors.OptionError: step: expected a positive finite length, given -0.1.
    """


class ArgumentError(OptionError, TypeError):
    """Error of an unknown keyword argument; the message proposes the nearest names.

    Examples
    --------
    >>> import nosnoc_py as ns
    >>> try:
    ...     ns.FESDJ(stages=3)
    ... except ns.ArgumentError as error:
    ...     print(str(error).split(" Legal:")[0])
    FESDJ: unknown option 'stages'. Did you mean 'control_stages' or 'rk_stages'?
    """


class TranscriptionError(NosnocError, ValueError):
    """Error of a guess, control or parameter value that does not fit the problem or its discretisation.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> x, u = ca.SX.sym("x"), ca.SX.sym("u")
    >>> ns.simulate(ns.ODE(x=x, u=u, flow=u), x0=[0.0], duration=1.0, u=[[1.0, 2.0]])
    Traceback (most recent call last):
        ...
    nosnoc_py.errors.TranscriptionError: control: expected 1 numbers, given 2.
    """


class SolverError(NosnocError, RuntimeError):
    """Error of a solver that stopped without a solution; raised only by `raise_for_status`.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> x = ca.SX.sym("x")
    >>> motion = ns.simulate(ns.ODE(x=x, flow=-x), x0=[1.0], duration=9.0, callback=lambda state: ns.Stop)
    >>> try:
    ...     motion.raise_for_status()
    ... except ns.SolverError as error:
    ...     print(str(error).split(".")[0])
    stopped by callback
    """


class UnknownNameError(NosnocError, KeyError):
    """Error of a lookup by an unknown name; the message proposes the nearest names.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> x = ca.SX.sym("x")
    >>> motion = ns.simulate(ns.ODE(x=x, flow=-x, names={"x": ["height"]}), x0=[1.0], duration=1.0)
    >>> motion["hight"]
    Traceback (most recent call last):
        ...
    nosnoc_py.errors.UnknownNameError: unknown name 'hight'. Did you mean 'height'? Legal: height.
    """

    def __init__(self, given: str, legal: Iterable[str], what: str = "name") -> None:
        self.given, self.legal = given, tuple(legal)
        super().__init__(unknown_name(given, self.legal, what))

    def __str__(self) -> str:  # KeyError would print the repr of the message
        return str(self.args[0])


def check_type(
    given: object, expected: type | tuple[type, ...], what: str, makers: Iterable[Callable[..., object]] = ()
) -> None:
    """Raise `OptionError` if an argument has the wrong type; the message names the expected constructors."""
    kinds = expected if isinstance(expected, tuple) else (expected,)
    if isinstance(given, type) and issubclass(given, kinds):
        raise OptionError(f"{what}: given the class {given.__name__}; write ns.{given.__name__}(...).")
    if not isinstance(given, kinds):
        kind = getattr(given, "__name__", type(given).__name__)
        if names := [maker.__name__ for maker in makers]:
            raise OptionError(f"{what}: expected one made by {constructor_calls(names)}, given {kind}.")
        raise OptionError(
            f"{what}: expected {' or '.join(each.__name__ for each in kinds)}, given {kind}; pass an object made by "
            f"{constructor_calls(name for each in kinds for name in _makers(each))}."
        )


def optional(module: str, missing: str) -> Any:
    """Import an optional dependency, or raise `OptionError` with the text `missing`."""
    try:
        return import_module(module)
    except ImportError:
        raise OptionError(missing) from None


def check_positive(**values: object) -> None:
    """Raise `OptionError` for values that are not positive numbers; keys are the names of the arguments."""
    for name, value in values.items():
        if not isinstance(value, Real) or isinstance(value, bool) or not 0.0 < float(value) < inf:
            raise OptionError(f"{name}: expected a positive number, given {value!r}.")


def is_whole(value: Any, least: int = 1, most: float = inf) -> bool:
    """Return True for a whole number between two; `True` is an integer in Python, but no number of things."""
    return isinstance(value, Integral) and not isinstance(value, bool) and least <= int(value) <= most


def check_whole(**values: object) -> None:
    """Raise `OptionError` for values that are not positive whole numbers; keys are the names of the arguments."""
    for name, value in values.items():
        if not is_whole(value):
            raise OptionError(f"{name}: expected a positive whole number, given {value!r}.")


def check_run(callback: object, time_limit: object) -> None:
    """Raise `OptionError` unless these are a callback and a time limit, or None, that a solver can take."""
    if callback is not None and not callable(callback):
        raise OptionError(f"callback: expected a function of the state, given {callback!r}.")
    number = isinstance(time_limit, Real) and not isinstance(time_limit, bool)
    if time_limit is not None and not (number and float(time_limit) >= 0):  # type: ignore[arg-type]
        raise OptionError(f"time_limit: expected a number of seconds, 0 or more, given {time_limit!r}.")


def constructor_calls(names: Iterable[str]) -> str:
    """Return the calls that make objects of these names, joined by "or"."""
    *first, last = (f"ns.{name}(...)" for name in names)
    return f"{', '.join(first)} or {last}" if first else last


def _makers(expected: type) -> tuple[str, ...]:
    """Return the names of the concrete subclasses of an abstract class, else its own name."""
    members: list[type] = expected.__subclasses__() if getattr(expected, "__abstractmethods__", None) else []
    return tuple(kind.__name__ for kind in (members or [expected]))


def unknown_name(given: object, legal: Iterable[str], what: str = "name", *, of: str = "") -> str:
    """Return a sentence about an unknown name with proposals: synonyms of other tools first, then similar names.

    All legal names follow, unless they are many and there is a proposal.

    Examples
    --------
    >>> unknown_name("N_stages", ["control_stages", "scheme"], "option")
    "unknown option 'N_stages'. Did you mean 'control_stages'? Legal: control_stages, scheme."
    """
    legal, text = tuple(legal), str(given)
    synonyms = [name for name in SYNONYMS.get(text, ()) if name in legal]
    # An abbreviation is shorter than what it stands for, so that its similarity is small.
    completed = [name for name in legal if len(text) >= ABBREVIATION and name.startswith(text)]
    similar = get_close_matches(text, legal, n=3, cutoff=0.5)
    proposals = list(dict.fromkeys(synonyms or [*completed, *similar]))[:PROPOSALS]
    hint = f" Did you mean {' or '.join(repr(name) for name in proposals)}?" if proposals else ""
    owner = f" of {of}" if of else ""
    names = "" if proposals and len(legal) > LISTED else f" Legal: {', '.join(legal) or 'none'}."
    return f"unknown {what} {given!r}{owner}.{hint}{names}"
