"""Anderson acceleration on maps whose fixed points are known."""

import numpy as np
import pytest

from nosnoc_py.methods.indirect.anderson import AndersonMemory, advance

pytestmark = pytest.mark.quick


def iterate(target, start, memory, relaxation=1.0, most=2000, tolerance=1e-12, key=None):
    """Iterations until the residual is small, and the last iterate."""
    control = np.array(start, dtype=float)
    for count in range(most):
        goal = target(control)
        if np.linalg.norm(goal - control) < tolerance:
            return count, control
        control, memory = advance(memory, control, goal, relaxation, key)
    return most, control


def linear(size, slowest=0.99, seed=1):
    """A symmetric contraction and its fixed point."""
    random = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(random.normal(size=(size, size)))
    matrix = basis @ np.diag(np.linspace(0.1, slowest, size)) @ basis.T
    fixed = random.normal(size=size)
    return lambda u: fixed + (matrix @ (u.ravel() - fixed)).reshape(u.shape), fixed


def test_a_linear_map_of_four_unknowns_is_solved_in_five_steps():
    """With as many differences as unknowns it is a Krylov method: exact after n + 1 steps."""
    target, fixed = linear(4)
    count, found = iterate(target, np.zeros(4), AndersonMemory(depth=5, delay=0, growth=np.inf), tolerance=1e-10)
    assert count <= 6
    np.testing.assert_allclose(found, fixed, atol=1e-8)


def test_memory_saves_most_of_the_iterations():
    target, fixed = linear(40)
    plain, _ = iterate(target, np.zeros(40), AndersonMemory(depth=0))
    fast, found = iterate(target, np.zeros(40), AndersonMemory(depth=5, delay=0))
    assert plain > 1500
    assert fast < 0.2 * plain
    np.testing.assert_allclose(found, fixed, atol=1e-9)


def test_depth_zero_and_the_delay_are_relaxed_steps():
    target, _ = linear(6)
    for memory in (AndersonMemory(depth=0, delay=0), AndersonMemory(depth=5, delay=100)):
        control = np.ones(6)
        for _ in range(20):
            goal = target(control)
            new, memory = advance(memory, control, goal, 0.3)
            np.testing.assert_allclose(new, control + 0.3 * (goal - control), rtol=0.0, atol=1e-15)
            control = new


def logistic(u):
    """Its fixed point 1 - 1 / 3.8 is repelling (slope -1.8): plain steps wander about."""
    return 3.8 * u * (1.0 - u)


def test_a_nonlinear_map_converges_where_plain_steps_wander():
    plain, _ = iterate(logistic, [0.7], AndersonMemory(depth=0), most=200)
    fast, found = iterate(logistic, [0.7], AndersonMemory(depth=1, delay=0, growth=np.inf), most=200)
    assert plain == 200
    assert fast < 12
    assert found[0] == pytest.approx(1.0 - 1.0 / 3.8, abs=1e-12)


def test_nothing_that_is_given_changes_and_shapes_are_kept():
    memory, control, goal = AndersonMemory(delay=0), np.ones((3, 2)), np.zeros((3, 2))
    new, later = advance(memory, control, goal, 0.5)
    np.testing.assert_array_equal(new, 0.5 * np.ones((3, 2)))
    np.testing.assert_array_equal(control, np.ones((3, 2)))
    assert memory.controls == ()
    assert len(later.controls) == 1


@pytest.mark.parametrize("change", ["key", "shape", "growth", "nothing"])
def test_the_memory_ends_with_the_sequence_the_shape_and_growth(change):
    target, _ = linear(6)
    control, memory = np.ones(6), AndersonMemory(depth=5, delay=3)
    for _ in range(8):
        control, memory = advance(memory, control, target(control), 1.0, key=(0,))
    assert len(memory.controls) == 6
    key = (0, 1) if change == "key" else (0,)
    control = np.ones(8) if change == "shape" else control
    goal = linear(8)[0](control) if change == "shape" else target(control)
    goal = control + 100.0 * np.ones(6) if change == "growth" else goal
    new, memory = advance(memory, control, goal, 1.0, key=key)
    kept = change == "nothing"
    assert len(memory.controls) == (6 if kept else 1)
    assert memory.seen == {"key": 1, "shape": 1}.get(change, 9)
    assert (np.abs(new - goal).max() < 1e-15) != kept


def test_columns_that_repeat_do_no_harm():
    """A residual that stands still makes the differences zero; the step is then a relaxed one."""
    memory, control = AndersonMemory(depth=3, delay=0), np.ones(3)
    for _ in range(4):
        new, memory = advance(memory, control, np.zeros(3), 0.5)
        np.testing.assert_allclose(new, 0.5 * np.ones(3), atol=1e-15)


def test_weights_that_sum_up_to_one_keep_constant_entries():
    """The rows of a moving grid carry the number of a jump: every mixture of iterates has to keep it."""
    target, _ = linear(5)

    def extended(u):
        return np.append(target(u[:5]), u[5])

    control, memory = np.append(np.zeros(5), 7.0), AndersonMemory(depth=5, delay=0)
    for _ in range(12):
        control, memory = advance(memory, control, extended(control), 0.4)
        assert control[5] == pytest.approx(7.0, abs=1e-12)
