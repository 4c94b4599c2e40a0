"""Every system prints as a short tree in the names of its user."""

from __future__ import annotations

import casadi as ca
import pytest

import nosnoc_py as ns
from nosnoc_py.reformulation.contact import contact_dcs
from nosnoc_py.reformulation.time_freezing import freeze
from nosnoc_py.systems.text import WIDTH, counted, shown

pytestmark = pytest.mark.quick

X, U, P = ca.SX.sym("x", 2), ca.SX.sym("u"), ca.SX.sym("p")
Q, V = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
NAMES = {"x": ["height", "speed"], "u": ["push"]}
HEAD = ["  states   height, speed", "  controls push"]


def cls() -> ns.CLS:
    ground = ns.Contact("ground", gap=Q[1], restitution=0)
    names = {"q": ["far", "high"], "u": ["push"]}
    return ns.CLS(q=Q, v=V, u=U, mass_matrix=ca.SX.eye(2), force=ca.vertcat(U, -9.81), contacts=[ground], names=names)


def modes(**given: object) -> ns.PSS:
    return ns.PSS(x=X, u=U, modes=ns.Modes("side", flows=[X, -X], **given), names=NAMES)


ALPHA = ca.SX.sym("alpha")
TREES = [
    (modes(functions=X[0], signs=[[1], [-1]]), "PSS", "  modes    side: 2 regions by side = height"),
    (modes(indicators=X), "PSS", "  modes    side: 2 regions by indicators [height, speed]"),
    (
        ns.Heaviside(x=X, u=U, alpha=ALPHA, functions=X[1], flow=X * ALPHA, names=NAMES),
        "Heaviside",
        "  step     c_0: alpha = 1 where speed > 0",
    ),
    (ns.PDS(x=X, u=U, flow=X, constraints=X[0], names=NAMES), "PDS", "  inside   c_0: height >= 0"),
    (
        ns.HybridSystem(x=X, u=U, flow=X, jumps=[ns.StateJump("floor", guard=X[0], reset=-X)], names=NAMES),
        "HybridSystem",
        "  jump     floor: guard height",
    ),
]


@pytest.mark.parametrize(("system", "kind", "last"), TREES, ids=lambda value: "")
def test_a_system_prints_as_a_tree(system: object, kind: str, last: str) -> None:
    assert repr(system).splitlines() == [f"{kind}: 2 states, 1 control, 0 parameters", *HEAD, last]


def test_what_has_no_controls_does_not_list_them() -> None:
    mode = ca.SX.sym("mode")
    system = ns.EventSelectedSystem(x=X, p=P, mode=mode, flow=X * mode, guards=[ns.Guard("wall", X[0] - P)])
    assert repr(system).splitlines() == [
        "EventSelectedSystem: 2 states, 1 parameter",
        "  states   x_0, x_1",
        "  guard    wall: (x_0-p_0)",
    ]


def test_contacts_and_what_is_made_of_them() -> None:
    lines = ["  states   far, high, v_0, v_1", "  controls push", "  contact  ground: gap high, restitution 0"]
    assert repr(cls()).splitlines() == ["CLS: 2 coordinates, 1 control, 0 parameters", *lines]
    frozen = repr(freeze(cls())).splitlines()
    assert frozen[1] == "  Heaviside: 5 states, 1 control, 0 parameters, 1 algebraic variable"
    assert frozen[-1] == "  contact  ground: impulses grow by 10 N"
    dcs = contact_dcs(cls())
    assert "           gap[ground] = high" in repr(dcs).splitlines()
    assert repr(dcs.pairs[0]) == "Pair contact: gap[ground] = q_1 with lambda_normal[ground] = lambda_normal"
    assert dcs.jump is not None
    assert "  Equation restitution: restitution law[ground]: ((Y_plus-Y_minus)-v_plus_1)" in repr(dcs.jump).splitlines()
    assert max(map(len, repr(dcs.jump).splitlines())) < 200


def test_long_expressions_are_cut() -> None:
    text = shown(sum((ca.sin(k * X[0]) for k in range(2, 40)), ca.SX(0)), [(X, ("height", "speed"))])
    assert len(text) == WIDTH
    assert text.endswith(" ...")
    assert "x_0" not in text
    assert (counted(1, "control"), counted(0, "control")) == ("1 control", "0 controls")
