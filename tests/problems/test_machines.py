"""The machines of the gallery move as their captions say."""

import numpy as np

from problems import machines


def test_the_car_rolls_without_slip():
    _, motion = machines.car()
    _, _, heading, left, right, vx, vy, turn, left_rate, right_rate = motion.final_state
    assert np.allclose([vx, vy], 0.025 * (left_rate + right_rate) * np.array([np.cos(heading), np.sin(heading)]))
    assert np.isclose(turn, (right_rate - left_rate) * 0.05 / 0.3)
    assert abs(heading - (right - left) * 0.05 / 0.3) < 1e-8


def test_the_coin_falls_flat_and_the_dominoes_lie():
    _, coin = machines.coin()
    assert coin.success
    assert abs(coin.x[0, 2] - 0.2 * np.cos(0.35)) < 1e-12
    assert 0.0 < coin.final_state[2] < 0.02
    _, dominoes = machines.dominoes()
    assert abs(dominoes.final_state[8] + np.pi / 2) < 1e-6  # the last one lies, the others lean
    assert np.abs(dominoes.final_state[9:]).max() < 1e-6


def test_the_walker_walks_on_closed_linkages():
    system, motion = machines.walker()
    assert motion.success
    assert motion.final_state[0] < -0.5
    assert abs(motion.final_state[2]) < 1e-3  # upright
    # A state that is on the loops is not moved by a projection.
    assert np.abs(system.project(motion.final_state) - motion.final_state).max() < 1e-9
