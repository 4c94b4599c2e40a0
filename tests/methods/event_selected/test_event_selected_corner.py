"""A corner: guards that are crossed at one instant, in a field that is constant on every side."""

from itertools import product

import numpy as np
import pytest

from nosnoc_py.methods.event_selected.corner import Corner, LiveGuard

pytestmark = pytest.mark.quick


@pytest.mark.parametrize("difference", [1e-8, 1e-3])
def test_kinks_that_are_small(difference):
    """A tenth of a millimetre per kilometre is a kink."""
    rates = {b: [1.0, 1.0, (0.0, difference, 0.0, 0.0)[2 * b[0] + b[1]]] for b in product((0, 1), repeat=2)}
    made = corner(rates, [(0, 0), (1, 0)], np.eye(3)[:2], (0, 0))
    assert made.linear() is None
    rates = {b: [1.0, 1.0, 0.0] for b in rates}
    assert corner(rates, [(0, 0), (1, 0)], np.eye(3)[:2], (0, 0)).linear() is not None


def corner(fields, crossings, gradients, mode=(0,), **more):
    def flow(bits):
        return np.array(fields[tuple(int(bit) for bit in bits)])

    live = tuple(LiveGuard(*crossing) for crossing in crossings)
    given = {"far": np.zeros(len(live), dtype=bool), **more}
    return Corner(t=0.0, crossings=live, gradients=np.array(gradients), mode=np.array(mode), flow=flow, **given)


def test_a_guard_that_is_set_and_cleared_at_once():
    """Bit 1 between x = 0 and y = 0, which it brings about: a direction stays there for a time, or not."""
    made = corner({(0,): [1.0, 1.0], (1,): [1.0, 3.0]}, [(0, 0), (0, 1)], np.eye(2))
    node_after = made(np.array([0.2, -0.4]))  # x crosses .2 before, y = -.6 then, and crosses .2 later
    assert node_after.delays == pytest.approx([-0.2, 0.0], abs=1e-15)
    assert node_after.w == pytest.approx([0.2, 0.0], abs=1e-15)
    ahead = made(np.array([0.2, 0.3]))  # y is beyond zero already when it becomes live: out at once
    assert ahead.delays == pytest.approx([-0.2, -0.2], abs=1e-15)
    assert ahead.w == pytest.approx([0.2, 0.3], abs=1e-15)
    assert made.linear() is None


def test_kinks_that_no_axis_shows():
    """w moves by -tau_1 + 2 tau_2 - tau_3, sorted: like -(v_1 + v_2 + v_3) along all axes, but not between them."""
    rates = {b: [1.0, 1.0, 1.0, (0.0, 1.0, -1.0, 0.0)[sum(b)]] for b in product((0, 1), repeat=3)}
    made = corner(rates, [(0, 0), (1, 0), (2, 0)], np.eye(4)[:3], (0, 0, 0))
    columns = np.array([made(axis).w for axis in np.eye(4)]).T
    backwards = np.array([made(-axis).w for axis in np.eye(4)]).T
    assert np.abs(columns + backwards).max() < 1e-15
    v = np.array([3.0, 1.0, 0.5, 0.0])
    assert np.abs(made(v).w - columns @ v).max() > 0.5
    assert made.linear() is None


def test_a_start_on_two_guards():
    """Directions that begin beyond a guard begin with its bit, whichever field drives them there."""
    fields = {(0, 0): [1.0, 1.0], (1, 0): [2.0, -1.0], (0, 1): [3.0, 1.0], (1, 1): [4.0, 5.0]}
    made = corner(fields, [(0, 0), (1, 0)], np.eye(2), (0, 0), starts=True)
    assert made(np.array([1.0, 2.0])).w == pytest.approx([1.0, 2.0], abs=1e-15)
    assert made(np.array([-1.5, 2.0])).w == pytest.approx([0.0 - 2.0, 2.5 - 2.5], abs=1e-15)  # for .5 s in mode (0, 1)
    amid = corner(fields, [(0, 0), (1, 0)], np.eye(2), (0, 0))
    assert np.abs(amid(np.array([-1.5, 2.0])).w - [-2.0, 0.0]).max() > 0.1


def test_an_end_on_two_guards():
    """What would be crossed later than the end is not crossed, even if it never would be."""
    fields = {(0, 0): [1.0, 1.0], (1, 0): [2.0, 1.0], (0, 1): [3.0, 1.0], (1, 1): [4.0, 5.0]}
    made = corner(fields, [(0, 0), (1, 0)], np.eye(2), (0, 0), ends=True)
    assert made(np.array([-1.0, -2.0])).w == pytest.approx([-1.0, -2.0], abs=1e-15)
    assert made(np.array([-8.0, 2.0])).w == pytest.approx([-10.0 + 2 * 3.0, 2.0], abs=1e-14)  # y only, 2 s before
    later = 2.0 - 3.5 / 3.0  # both: y 2 s before, x so long before
    assert made(np.array([-1.5, 2.0])).w == pytest.approx([4.0 * later, 2.0 - later + 5.0 * later], abs=1e-14)
    receding = corner({**fields, (0, 1): [-1.0, 1.0]}, [(0, 0), (1, 0)], np.eye(2), (0, 0), ends=True)
    found = receding(np.array([0.0, 1.0]))
    assert found.blocked == -1
    assert found.w == pytest.approx([-2.0, 1.0], abs=1e-15)
    assert made.linear() is receding.linear() is None


def test_a_corner_that_turns_the_motion_back_in_one_order():
    fields = {(0, 0): [1.0, 1.0], (1, 0): [1.0, 1.0], (0, 1): [-1.0, 1.0], (1, 1): [1.0, 1.0]}
    made = corner(fields, [(0, 0), (1, 0)], np.eye(2), (0, 0))
    assert made(np.array([1.0, 0.0])).w == pytest.approx([1.0, 0.0], abs=1e-15)
    assert made(np.array([0.0, 1.0])).blocked == 0
    assert made.linear() is None


def test_what_is_undone_before_the_next_guard():
    """g0 is crossed, then g1 turns the motion back through g0, unless g2 comes in time."""
    fields = {b: [1.0, 1.0, 1.0] for b in product((0, 1), repeat=3)}
    fields = {**fields, (1, 1, 0): [-1.0, 1.0, 1.0]}
    made = corner(fields, [(0, 0), (1, 0), (2, 0)], np.eye(3), (0, 0, 0))
    late, timely = made(np.array([1.0, 0.0, -1.5])), made(np.array([1.0, 0.0, -0.5]))
    assert late.blocked == 0
    assert timely.blocked == -1
    assert timely.w == pytest.approx([0.0, 0.0, -0.5], abs=1e-12)  # half a second back
    hysteresis = corner(fields, [(0, 0), (1, 0), (2, 0)], np.eye(3), (0, 0, 0), far=np.array([True, False, False]))
    assert hysteresis(np.array([1.0, 0.0, -1.5])).blocked == -1


def test_what_turns_back_at_the_end():
    """It matters on the side only that crosses the guard before the end."""
    made = corner({(0,): [1.0, 0.0], (1,): [-1.0, 0.0]}, [(0, 0)], np.eye(2)[:1], ends=True)
    assert made(np.array([1.0, 0.0])).blocked == 0
    assert made(np.array([-1.0, 0.0])).w == pytest.approx([-1.0, 0.0], abs=1e-15)


def test_what_turns_back_later_than_the_end():
    """g0 and g1 are crossed 2 s and 1 s before the end; at -.5 it would take 2 s back to g0, and g2 comes later."""
    fields = {b: [1.0, 1.0, 1.0] for b in product((0, 1), repeat=3)}
    fields[1, 1, 0] = [-0.5, 1.0, 1.0]
    made = corner(fields, [(0, 0), (1, 0), (2, 0)], np.eye(3), (0, 0, 0), ends=True)
    found = made(np.array([2.0, 1.0, -2.0]))
    assert found.blocked == -1
    assert found.w == pytest.approx([0.5, 1.0, -2.0], abs=1e-14)
    assert made(np.array([5.0, 4.0, -2.0])).blocked == 0


def test_directions_that_meet_guards_at_once_but_for_rounding():
    """Along the flow: which guard is first does not matter, though the field between them would turn back."""
    fields = {(0, 0): [1.0, 1.0], (1, 0): [-1.0, 1.0], (0, 1): [1.0, 2.0], (1, 1): [1.0, 1.0]}
    made = corner(fields, [(0, 0), (1, 0)], np.eye(2), (0, 0))
    assert made(np.array([0.1 + 0.2, 0.3])).blocked == -1
    assert made(np.array([0.3 + 1e-6, 0.3])).blocked == 0


def test_a_guard_that_is_left_slowly_is_left():
    fields = {(0, 0): [2.0, 1.0, 0.0], (1, 0): [1.0 + 1e-6, 1.0, 0.0], (0, 1): [2.0, 1.0, 0.0], (1, 1): [2.0, 1.0, 0.0]}
    made = corner(fields, [(0, 0), (1, 0)], [[1.0, -1.0, 0.0], [0.0, 1.0, 0.0]], (0, 0))
    assert made(np.array([-1e-7, -1e-7, 1.0])).blocked == -1


def test_a_guard_along_the_field_is_not_crossed():
    """By rounding it rises: .1 + .2 is more than .3."""
    fields = {(0, 0): [1.0, 1.0], (0, 1): [0.1 + 0.2, 0.3], (1, 0): [1.0, 0.5], (1, 1): [1.0, 0.5]}
    made = corner(fields, [(0, 0), (1, 0)], [[1.0, -1.0], [0.0, 1.0]], (0, 0))
    assert made(np.array([-1.0, 0.5])).blocked == 0


def test_a_guard_that_chatters_is_not_examined():
    """It would take for ever with thousands of crossings at one instant."""
    fields, gradients = {(0,): [1.0, 1.0], (1,): [1.0, 1.0]}, np.eye(2)[[0, 1, 0]]
    assert corner(fields, [(0, 0), (0, 1), (0, 0)], gradients).linear() is None
    assert corner(fields, [(0, 0), (0, 1)], gradients[:2]).linear() is not None
