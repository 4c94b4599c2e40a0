"""Classes that declare every argument once: conversions, messages, copies; one place changes frozen objects."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from copy import copy
from pathlib import Path

import attrs
import casadi as ca
import pytest

import nosnoc_py as ns
from nosnoc_py.declared import changed, declared

pytestmark = pytest.mark.quick

PACKAGE = Path(inspect.getfile(ns)).parent
PARTS = (ns.CLS, ns.PSS, ns.ODE, ns.Heaviside, ns.PDS, ns.HybridSystem, ns.RigidBody, ns.OCP, ns.Contact, ns.Constraint)


def ball(**more: object) -> ns.CLS:
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    return ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ns.Contact("ground", gap=q)], **more)


def test_one_place_changes_frozen_objects() -> None:
    """`declared.assign`: everything else builds new objects, or goes through it."""
    calls = [
        (path.relative_to(PACKAGE).as_posix(), node.lineno)
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr == "__setattr__" and ast.unparse(node.value) == "object"
    ]
    assert [path for path, _ in calls] == ["declared.py"], calls


@pytest.mark.parametrize("kind", PARTS)
def test_arguments_stand_at_the_fields(kind: type) -> None:
    """No hand-written `__init__` repeats them, and the signature shows the fields that are arguments."""
    assert attrs.has(kind)
    names = [f.alias for f in attrs.fields(kind) if f.init]
    assert set(inspect.signature(kind).parameters) == set(names)
    written = ast.parse(Path(inspect.getfile(kind)).read_text())
    own = next(node for node in ast.walk(written) if isinstance(node, ast.ClassDef) and node.name == kind.__name__)
    assert "__init__" not in [node.name for node in own.body if isinstance(node, ast.FunctionDef)]


def test_required_arguments_come_first_and_one_stands_on_a_line() -> None:
    lines = str(inspect.signature(ns.CLS)).splitlines()
    assert [line.strip() for line in lines[1:6]] == [
        "*,",
        "q: Symbols,",
        "v: Symbols,",
        "mass_matrix: Expression,",
        "force: Expression,",
    ]
    assert "    kinematic_matrix: Expression | None = None," in lines


def test_users_may_replace_fields_by_dataclasses_too() -> None:
    system = ball(names={"q": ["height"]})
    for other in (dataclasses.replace(system, force=-1.6), attrs.evolve(system, force=-1.6)):
        assert float(other.force) == -1.6
        assert other.state_names == ("height", "v_0")
        assert [contact.name for contact in other.contacts] == ["ground"]
    assert float(system.force) == -9.81
    assert {f.name for f in dataclasses.fields(system)} == {f.name for f in attrs.fields(ns.CLS)}
    assert copy(system) is system


def test_frozen_objects_refuse_assignments() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        ball().force = 0  # type: ignore[misc]


def test_a_copy_without_checks_forgets_what_was_derived() -> None:
    switch = ns.Hysteresis("heater", variable=ca.SX.sym("T"), lower=1.0, upper=3.0, flows=(1.0, 0.0))
    assert float(ca.substitute(switch.function, switch.variable, 2.0)) == pytest.approx(0.0, abs=1e-15)
    wider = changed(switch, upper=ca.SX(5.0))
    assert float(ca.substitute(wider.function, wider.variable, 5.0)) == pytest.approx(1.0, abs=1e-15)
    assert float(ca.substitute(switch.function, switch.variable, 3.0)) == pytest.approx(1.0, abs=1e-15)


def test_messages_name_the_object_and_the_argument() -> None:
    def positive(value: float, what: str = "length", owner: object = None) -> float:
        if value <= 0:
            raise ValueError(f"{what}: {value} of a {type(owner).__name__}")
        return float(value)

    @declared
    class Rod:
        name: str
        length: float = attrs.field(default=1, converter=positive)

    assert Rod("a", 2).length == 2.0
    with pytest.raises(ValueError, match=r"^Rod 'b': length: -1 of a Rod$"):
        Rod("b", -1)
    with pytest.raises(ns.ArgumentError, match="Did you mean 'length'"):
        Rod("c", lenght=1)  # type: ignore[call-arg]
