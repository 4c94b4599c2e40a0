"""Options show what differs from their defaults, and their text makes them again."""

from __future__ import annotations

import pytest

import nosnoc_py as ns
from nosnoc_py.options import Options

pytestmark = pytest.mark.quick

NAMES = {name: getattr(ns, name) for name in ns.__all__ if isinstance(getattr(ns, name), type)}
GIVEN: tuple[Options, ...] = (
    ns.FESDJ(control_stages=25),
    ns.FESDJ(control_stages=25, finite_elements=[2, 1], gamma_h=0.5),
    ns.TimeFreezing(fesd=ns.FESD(control_stages=5), a_n=20.0),
    ns.Homotopy(sigma_0=0.1, relaxation="steffensen_ulbrich", ipopt={"max_iter": 10}),
    ns.ActiveSet(homotopy=ns.Homotopy(steering="l1")),
    ns.Auto(),
    ns.ElementSearch(seed=2),
    ns.MinimumPrinciple(steps=100),
)


@pytest.mark.parametrize("options", GIVEN, ids=repr)
def test_the_text_makes_the_options_again(options: Options) -> None:
    again = eval(repr(options), {"__builtins__": {}}, NAMES)  # noqa: S307
    assert again.model_dump() == options.model_dump()
    assert str(options) == repr(options)


def test_defaults_are_not_shown() -> None:
    assert repr(ns.Homotopy()) == "Homotopy()"
    assert repr(ns.Homotopy(sigma_0=1.0)) == "Homotopy()"
    assert repr(ns.FESDJ(control_stages=25)) == "FESDJ(control_stages=25)"
    assert repr(ns.ActiveSet(radius=0.1)) == "ActiveSet(radius=0.1)"


def test_different_options_have_different_texts() -> None:
    assert repr(ns.Homotopy(ipopt={"max_iter": 10})) != repr(ns.Homotopy())
    assert repr(ns.FESD(control_stages=5, scheme="radau_i")) == "FESD(control_stages=5, scheme='radau_i')"
