"""What --set takes, and what it says to a wrong key or value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import nosnoc_py as ns
from nosnoc_py.errors import OptionError
from problems.runner import Program, _parser
from problems.settings import Settings, defaults_of, literal, parse

pytestmark = pytest.mark.quick

SETTINGS = Settings(
    arguments={"drag": "printed", "horizon": 4.0, "steps": (100, 200), "count": 3, "fast": False},
    fixed=("scheme",),
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-2.5", -2.5),
        ("1e-3", 1e-3),
        ("true", True),
        ("False", False),
        ("none", None),
        ("radau_iia", "radau_iia"),
        ("'3'", "3"),
        ("100,200", (100, 200)),
        ("(1, 2)", (1, 2)),
        ("[1, 2]", (1, 2)),
        ("radau_iia,gauss_legendre", ("radau_iia", "gauss_legendre")),
        ("__import__('os')", "__import__('os')"),
    ],
)
def test_literals(text: str, value: Any) -> None:
    found = literal(text)
    assert found == value
    assert type(found) is type(value)


def test_every_kind_of_setting_can_be_changed() -> None:
    changed = SETTINGS.changed(parse(["drag=smooth", "horizon=3", "steps=50", "rk_stages=3", "kappa=0.2"]))
    assert changed.arguments == {**SETTINGS.arguments, "drag": "smooth", "horizon": 3.0, "steps": (50,)}
    assert changed.method == ns.FESDJ(rk_stages=3)
    assert changed.solver == ns.Homotopy(kappa=0.2)
    assert SETTINGS.method == ns.FESDJ()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("drog=smooth", "unknown key 'drog'. Did you mean 'drag'"),
        ("scheme=radau_iia", "unknown key 'scheme'"),
        ("horizon=long", "horizon: expected a value such as 4.0, given 'long'"),
        ("count=1.5", "count: expected a value such as 3"),
        ("fast=1", "fast: expected true or false, given 1"),
        ("steps=a,b", "steps: expected a value such as"),
        ("rk_stages=0", "rk_stages"),
        ("kappa=2", "kappa"),
        ("kappa", "expected key=value"),
        ("=2", "expected key=value"),
    ],
)
def test_what_does_not_fit_is_refused(change: str, says: str) -> None:
    with pytest.raises(OptionError) as caught:
        SETTINGS.changed(parse([change]))
    assert says in str(caught.value)


def test_every_key_has_a_default() -> None:
    defaults = SETTINGS.defaults
    assert tuple(defaults) == SETTINGS.keys
    expected = {"drag": "printed", "fast": False, "rk_stages": ns.FESDJ().rk_stages, "kappa": ns.Homotopy().kappa}
    assert {key: defaults[key] for key in expected} == expected
    chosen = Settings(method=ns.FESD(), methods={"fesdj": ns.FESDJ(), "fesd": ns.FESD()})
    assert chosen.defaults["method"] == "fesd"
    assert chosen.changed({"method": "fesdj"}).defaults["method"] == "fesdj"


def test_the_help_tells_the_defaults() -> None:
    settings = replace(SETTINGS, arguments={**SETTINGS.arguments, "many": tuple(range(20)), "share": "50 %"})
    program = Program(name="some", about="", settings=settings, quick={}, run=lambda *_: None)  # type: ignore[arg-type, return-value]
    text = " ".join(_parser(program).format_help().split())
    for part in ("drag=printed", "steps=100,200", "fast=false", "rk_stages=2", "50 %", "6,7,..."):
        assert part in text
    assert "ipopt=" not in text


def test_defaults_of_a_builder() -> None:
    def build(drag: str = "printed", *, horizon: float = 4.0) -> None: ...

    assert defaults_of(build) == {"drag": "printed", "horizon": 4.0}
