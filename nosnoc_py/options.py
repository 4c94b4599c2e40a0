"""Base classes of options and methods: frozen pydantic models that reject unknown names."""

from __future__ import annotations

import inspect
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pkgutil import resolve_name
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nosnoc_py.arguments import Signature, short_type
from nosnoc_py.errors import ArgumentError, OptionError, check_run, check_type, constructor_calls, unknown_name


def _signature(options: type[Options]) -> Signature:
    """Return the signature of an option class: names with short types and defaults."""
    parameters = []
    for name, option in options.model_fields.items():
        default = inspect.Parameter.empty if option.is_required() else option.get_default(call_default_factory=True)
        annotation = short_type(option.annotation)
        parameters.append(
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
        )
    return Signature(parameters)


class Options(BaseModel):
    """Frozen options; an unknown name or an ill-typed value raises `OptionError` and names the legal ones."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def __pydantic_init_subclass__(cls, **keywords: Any) -> None:
        super().__pydantic_init_subclass__(**keywords)
        # Pydantic's own signature spells out every constraint, which fills a screen in help().
        cls.__signature__ = _signature(cls)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            misspelt = any(item["type"] == "extra_forbidden" for item in error.errors())
            raise (ArgumentError if misspelt else OptionError)(_explain(type(self), error)) from None
        except (TypeError, OverflowError) as error:  # of nested options: names that are no strings, unbounded integers
            raise OptionError(f"{type(self).__name__}: {error}, given {values!r}.") from None

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        """Yield the options that differ from their defaults: the repr is short and evaluates to an equal object."""
        for name, option in type(self).model_fields.items():
            value = getattr(self, name)
            if option.is_required() or value != option.get_default(call_default_factory=True):
                yield name, value

    def __str__(self) -> str:
        return repr(self)

    def replace(self, **changes: Any) -> Any:
        """Return a copy with some options changed; the changes are validated like new options.

        Examples
        --------
        >>> import nosnoc_py as ns
        >>> ns.FESDJ(control_stages=20, rk_stages=3).replace(control_stages=40)
        FESDJ(control_stages=40, rk_stages=3)
        """
        given = {name: getattr(self, name) for name in self.model_fields_set}
        return type(self)(**{**given, **changes})


def engine(reference: str) -> Any:
    """Return a method of options that calls "module:function", which knows these options and gets them second.

    The module is loaded when it is first needed: a program that solves does not load what simulates rigid bodies.
    """

    def work(options: Options, subject: Any, *arguments: Any, **named: Any) -> Any:
        return resolve_name(reference)(subject, options, *arguments, **named)

    work.__doc__ = f"Call `{reference}` with the system or problem, these options, and the other arguments."
    return work


class Method(Options):
    """Options of a method that solves or simulates; `takes` has the kinds of systems that it is for.

    `remembers` tells whether these may have switches with hysteresis, whose mode no state tells, `special_friction`
    whether their contacts may have static friction, and friction that depends on the state.
    `refuses` has the arguments of `nosnoc_py.simulate` that it does not take, and says why.
    """

    takes: ClassVar[tuple[type, ...]]
    remembers: ClassVar[bool] = False
    special_friction: ClassVar[bool] = False
    refuses: ClassVar[Mapping[str, str]] = {
        "times": "only EventDriven takes output times; its own nodes are those of `steps`, and `interpolant(t)` of the "
        "trajectory is the state at any time"
    }

    def accepts(self, system: Any) -> str | None:
        """Return None if the method fits a system, else a message that names the methods that do.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x = ca.SX.sym("x")
        >>> ns.FESD().accepts(ns.ODE(x=x, flow=-x)) is None
        True
        >>> print(ns.FESDJ().accepts(ns.ODE(x=x, flow=-x)))
        method: FESDJ does not fit an ns.ODE; use ns.FESD(...) (simulations also: ns.EventDriven(...)).
        """
        if isinstance(system, self.takes):
            if self.remembers or not getattr(system, "remembers", False):
                return None
            return (
                f"method: {type(self).__name__} does not know a switch with hysteresis; use ns.solve(ocp) or "
                "ns.MultiPhase(...), and ns.EventDriven() with ns.simulate."
            )
        fitting = "ns.MultiPhase(...), ns.EventDriven()" if getattr(system, "remembers", False) else system.methods
        return f"method: {type(self).__name__} does not fit an ns.{type(system).__name__}; use {fitting}."


def fitting(system: Any, method: Any, makers: Sequence[Any], kinds: type | tuple[type, ...]) -> Any:
    """Return the given method, by default one of the first class among `makers` that takes the system.

    Raises
    ------
    OptionError
        If the method is none of these kinds, or does not take the system, or there is none that does: the message says
        what does. If the system is none.
    """
    if isinstance(system, type) or not hasattr(system, "methods"):
        taken = dict.fromkeys(each for maker in makers for each in maker.takes)
        check_type(system, tuple(taken), "system", taken)
    if method is None:
        method = next((maker() for maker in makers if isinstance(system, maker.takes)), None)
        if method is None:
            takers = constructor_calls(maker.__name__ for maker in makers)
            raise OptionError(f"system: an ns.{type(system).__name__} fits none of {takers}; use {system.methods}.")
    check_type(method, kinds, "method", makers)
    if (misfit := method.accepts(system)) is not None:
        raise OptionError(misfit)
    if not method.special_friction:
        system.refuse_special_friction(type(method).__name__)
    return method


class CompleteMethod(Method):
    """A method that solves an optimal control problem by itself: it discretises, or iterates, in its own way."""

    takes: ClassVar[tuple[type, ...]] = (
        object,
    )  # which costs, constraints and contacts it can take depends on more than the kind of system

    time_limit: float | None = Field(default=None, ge=0)

    def solve(
        self, ocp: Any, solver: Any = None, *, guess: Any = None, callback: Any = None, time_limit: float | None = None
    ) -> Any:
        """Solve; see `nosnoc_py.solve`.

        Parameters
        ----------
        ocp : OCP
        solver : None
            It takes none.
        guess : optional
            A constant control (n_u,), rows of controls, a function of time, a `Trajectory` or a `Solution`.
        callback : callable, optional
            Called with what the method knows after every step; returns `ns.Stop` to end the work.
        time_limit : float, optional
            Seconds.

        Returns
        -------
        Solution
            Also after a failure: `status` says why and what to try.

        Raises
        ------
        OptionError, ModelError, TranscriptionError
            For problems and guesses it cannot take.
        """
        if solver is not None:
            raise OptionError(
                f"solver: {type(self).__name__} has its own solver; solver= is for finite elements (ns.FESDJ, ns.FESD, "
                "ns.TimeFreezing)."
            )
        if not self.special_friction and hasattr(ocp, "system"):  # methods say what is no OCP
            ocp.system.refuse_special_friction(type(self).__name__)
        check_run(callback, time_limit)
        started = time.monotonic()
        return self.solved(ocp, guess, callback, started, started + strictest(time_limit, self.time_limit))

    @abstractmethod
    def solved(self, ocp: Any, guess: Any, callback: Any, started: float, deadline: float) -> Any:
        """Return the `Solution`; `started` and `deadline` are stamps of time.monotonic()."""


def strictest(*limits: float | None) -> float:
    """Return the smallest of several time limits [s]; infinity if none is given."""
    return min((limit for limit in limits if limit is not None), default=float("inf"))


def _explain(options: type[Options], error: ValidationError) -> str:
    lines = []
    for item in error.errors():
        name = ".".join(str(part) for part in item["loc"])
        if item["type"] == "extra_forbidden":
            lines.append(unknown_name(name, options.model_fields, "option"))
        elif not name:  # several options do not go together: what is given is all of them
            lines.append(f"{item['msg'].removeprefix('Value error, ').rstrip('.')}.")
        else:
            lines.append(f"option {name!r}: {item['msg']}; given {item['input']!r}.")
    return f"{options.__name__}: " + " ".join(lines)
