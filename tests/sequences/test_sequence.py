"""Sequences are written, printed, compared and read by a system; what is no sequence is named."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nosnoc_py as ns
from nosnoc_py.errors import ModelError, OptionError
from nosnoc_py.sequences.contact_laws import ContactLaws
from nosnoc_py.sequences.filippov_laws import FilippovLaws
from nosnoc_py.sequences.plan import Plan, sequence_from_modes

pytestmark = pytest.mark.quick

WORDS = ("open", "stick", "slip+", "slip-")
BOTH = [("left", "stick"), ("right", "slip+")]
PHASES = st.lists(
    st.tuples(
        st.sampled_from(["", "impact left", "impact right slip-", "impact left, right"]),
        st.dictionaries(st.sampled_from(["left", "right"]), st.sampled_from(WORDS)),
    ),
    min_size=1,
    max_size=6,
)


def two_feet() -> ns.CLS:
    """A body with two contacts with friction."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    tangent = ca.DM([1, 0])
    feet = [ns.Contact(name, gap=q[1] + 0 * q[0], tangent=tangent, friction=0.5) for name in ("left", "right")]
    return ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=ca.DM([0, -10]), contacts=feet)


@given(phases=PHASES, data=st.data())
def test_what_is_printed_is_the_sequence(phases: list[tuple[str, dict[str, str]]], data: st.DataObject):
    """eval(repr(sequence)) is an equal one, with the same times to ten digits."""
    items = [part for said, phase in phases for part in (said, phase) if part != ""]
    count = len(phases) - 1
    steps = data.draw(st.none() | st.lists(st.floats(0, 10), min_size=count, max_size=count))
    sequence = ns.Sequence(items, times=None if steps is None else np.cumsum(steps))
    again = eval(repr(sequence), {"Sequence": ns.Sequence})  # noqa: S307
    assert again == sequence
    assert hash(again) == hash(sequence)
    assert len(again) == len(phases)
    assert repr(again) == repr(sequence)
    if steps is not None:
        np.testing.assert_allclose(again.times, sequence.times, rtol=1e-9, atol=1e-300)


@given(phases=PHASES)
def test_a_system_writes_what_it_reads(phases: list[tuple[str, dict[str, str]]]):
    """Modes and impacts that a plan holds are, written down, the same plan; defaults are left out."""
    laws = ContactLaws(two_feet())
    plan = Plan.of(ns.Sequence([part for said, phase in phases for part in (said, phase) if part != ""]), laws)
    sequence = sequence_from_modes(plan.modes, plan.impacts, laws)
    again = Plan.of(sequence, laws)
    assert (again.modes, again.impacts) == (plan.modes, plan.impacts)
    assert all("open" not in phase.values() for phase in sequence.phases)
    assert sequence_from_modes(again.modes, again.impacts, laws) == sequence


def test_phases_and_impacts():
    """An impact belongs to the phase after it; a sequence is what it was given, whatever happens to the list."""
    items = [{}, "impact left slip-, right", {"left": "stick"}, {}]
    sequence = ns.Sequence(items, times=(0.5, 0.5))
    assert sequence.phases == ({}, {"left": "stick"}, {})
    assert sequence.impacts == ("", "impact left slip-, right", "")
    items[2]["left"] = "open"  # type: ignore[index]
    items.clear()
    assert sequence.phases[1] == {"left": "stick"}
    plan = Plan.of(sequence, ContactLaws(two_feet()))
    assert plan.modes == (("open", "open"), ("stick", "open"), ("open", "open"))
    assert plan.impacts == ({}, {"left": "slip-", "right": "stick"}, {})


def test_equality_is_that_of_modes():
    """Times may differ; something else is not equal."""
    one = ns.Sequence([{}, {"left": "stick"}], times=[0.1])
    assert one == ns.Sequence([{}, {"left": "stick"}])
    assert one != ns.Sequence([{}, {"left": "slip+"}])
    assert one != [{}, {"left": "stick"}]
    ordered, turned = (ns.Sequence([dict(pairs)]) for pairs in (BOTH, BOTH[::-1]))
    assert ordered == turned
    assert hash(ordered) == hash(turned)


@pytest.mark.parametrize(
    ("items", "times", "said"),
    [
        ("impact ground", None, "expected a list"),
        ({"ground": "stick"}, None, "expected a list"),
        (3, None, "expected a list.*int"),
        ([], None, "one phase at least"),
        (["impact ground"], None, "a phase after every impact"),
        ([{}, "impact ground"], None, "a phase after every impact"),
        ([{}, "impact a", "impact b", {}], None, "impact b"),
        ([{}, "bounce", {}], None, "bounce"),
        ([{}, None], None, "None"),
        ([{"ground": 1}], None, "strings as names"),
        ([{1: "stick"}], None, "strings as names"),
        ([{}, {}], [], "expected 1 times"),
        ([{}, {}], [0.1, 0.2], "expected 1 times"),
        ([{}, {}, {}], [0.2, 0.1], "nondecreasing order"),
        ([{}, {}], [-0.1], "nondecreasing order"),
    ],
)
def test_what_is_no_sequence_is_named(items: object, times: object, said: str):
    """A `ModelError`, with what was given."""
    with pytest.raises(ModelError, match=said):
        ns.Sequence(items, times)


@pytest.mark.parametrize("times", [[np.nan], [np.inf], ["soon"]])
def test_times_are_finite_numbers(times: list[object]):
    """Others are refused."""
    with pytest.raises(ModelError, match="times"):
        ns.Sequence([{}, {}], times)


def test_options_name_what_is_no_sequence():
    """`MultiPhase` takes a list, too."""
    assert ns.MultiPhase(sequence=[{}, "impact ground", {}]).sequence == ns.Sequence([{}, "impact ground", {}])
    with pytest.raises(OptionError, match="a phase after every impact"):
        ns.MultiPhase(sequence=[{}, "impact ground"])


def test_regions_without_signs():
    """A partition by indicators is in one region, or in several at once."""
    x = ca.SX.sym("x", 2)
    flows = [ca.DM([1, 0]), ca.DM([0, 1]), ca.DM([-1, -1])]
    system = ns.PSS(x=x, modes=ns.Modes("plane", flows=flows, indicators=ca.vertcat(x[0], x[1], 0.0)))
    laws = FilippovLaws(system)
    assert Plan.of(ns.Sequence([{"plane": "0"}, {"plane": "0|2"}]), laws).modes == (("0",), ("0|2",))
    with pytest.raises(ModelError, match=r"plane.*'3'"):
        Plan.of(ns.Sequence([{"plane": "3"}]), laws)


def test_phases_are_taken_out():
    """Their impacts are those of the next phase; what is then the same mode twice is one phase."""
    laws = ContactLaws(two_feet())
    stick, slip = {"left": "stick"}, {"left": "slip+"}
    plan, edges = Plan.of(ns.Sequence([slip, stick, slip, "impact right", stick]), laws), np.array([0, 1, 1.5, 2, 3])
    shorter, left = plan.without_phases(np.array([False, True, False, False]), edges)
    assert shorter.modes == (plan.modes[0], plan.modes[3])
    assert shorter.impacts == ({}, {"right": "stick"})
    np.testing.assert_array_equal(left, [0.0, 2.0, 3.0])
    shorter, left = plan.without_phases(np.array([True, False, False, False]), edges)
    assert len(shorter) == 3
    np.testing.assert_array_equal(left, [0.0, 1.5, 2.0, 3.0])


def test_a_contact_that_closes_for_no_time_has_an_impact():
    """Mentioned or not: the limit of its sequence is not a flight without one."""
    laws = ContactLaws(two_feet())
    for items in ([{}, {"left": "slip+"}, {}], [{}, "impact left slip+", {"left": "slip+"}, {}]):
        shorter, _ = Plan.of(ns.Sequence(items), laws).without_phases(np.array([False, True, False]), np.arange(4.0))
        assert sequence_from_modes(shorter.modes, shorter.impacts, laws) == ns.Sequence([{}, "impact left slip+", {}])
