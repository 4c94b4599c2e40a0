"""Methods and solvers that a configuration names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from nosnoc_py.discretization.options import FESD, FESDJ, TimeFreezing
from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.methods.event_selected.options import EventSelected
from nosnoc_py.methods.indirect.autonomous_switching import AutonomousSwitching
from nosnoc_py.methods.indirect.minimum_principle import MinimumPrinciple
from nosnoc_py.methods.shooting.options import FORMS, DirectShooting
from nosnoc_py.methods.variational.options import LieGroupVariational
from nosnoc_py.mpcc.active_set import ActiveSet
from nosnoc_py.mpcc.auto import Auto
from nosnoc_py.mpcc.homotopy import Homotopy
from nosnoc_py.options import Options
from nosnoc_py.search import MultiStart
from nosnoc_py.simulation.event_driven.options import EventDriven
from nosnoc_py.simulation.newton.options import ActiveSetNewton
from nosnoc_py.simulation.time_stepping.options import TimeStepping


def _named(*kinds: Callable[..., Options]) -> dict[str, Callable[..., Options]]:
    return {kind.__name__: kind for kind in kinds}


METHODS = _named(
    FESDJ,
    FESD,
    TimeFreezing,
    MinimumPrinciple,
    AutonomousSwitching,
    DirectShooting,
    EventDriven,
    TimeStepping,
    EventSelected,
    LieGroupVariational,
)
SOLVERS = _named(Auto, ActiveSet, Homotopy, MultiStart, ActiveSetNewton)
CHOICES = {"method": METHODS, "solver": SOLVERS}


def make(what: str, given: Mapping[str, Any]) -> Any:
    """The method or the solver that {"name": ..., option: ...} describes.

    Parameters
    ----------
    what : {"method", "solver"}

    Raises
    ------
    OptionError
        For an unknown name, an unknown option, an ill-typed value.
    """
    options = dict(given)
    name = options.pop("name", None)
    if not isinstance(name, str) or name not in CHOICES[what]:
        raise OptionError(f"{what}.name: {unknown_name(name, CHOICES[what], what)}")
    try:
        return CHOICES[what][name](**options)
    except OptionError as error:
        raise OptionError(f"{what}: {error}") from None


def options_of(what: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Types of the options of a choice, by name."""
    kind: Any = CHOICES[what][given["name"]]
    if kind is DirectShooting:  # a family: its form says which options there are
        module, name = FORMS[given.get("form", "smoothed")]
        return {"form": str, **fields_of(getattr(import_module(module), name))}
    return fields_of(kind)


def fields_of(kind: type[Options]) -> dict[str, Any]:
    """Types of the fields, by name."""
    return {name: field.annotation for name, field in kind.model_fields.items()}


def described(what: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The same with all options, those by default included, as JSON holds them."""
    form = {"form": given.get("form", "smoothed")} if given["name"] == "DirectShooting" else {}
    return {"name": given["name"], **form, **make(what, given).model_dump(mode="json")}
