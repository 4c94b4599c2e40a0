"""Figures: what is on them, and that they reach the disk."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_hex

from nosnoc_py.errors import OptionError, UnknownNameError
from nosnoc_py.plotting import dense_output, plot, plot_homotopy
from nosnoc_py.plotting.figures import COLOURS
from nosnoc_py.solution import Event, RungeKuttaInterpolant, Series, Solution, StepRecord, Trajectory, nodes_of

GRAVITY, BOUNCE = 9.81, 0.9


def bouncing_ball(elements_per_flight: int = 3, duration: float = 2.0) -> Trajectory:
    """A ball of 1 kg dropped from 1 m: exact flight parabolas on Radau IIA nodes, restitution 0.9."""
    c = np.array([1 / 3, 1.0])
    t_left, h, x_left, x_stages, events = [], [], [], [], []
    start, q, v = 0.0, 1.0, 0.0
    while start < duration:
        fall = (v + np.sqrt(v**2 + 2 * GRAVITY * q)) / GRAVITY
        end = min(start + fall, duration)
        grid = np.linspace(start, end, elements_per_flight + 1)
        tau = (grid[:-1, None] + np.diff(grid)[:, None] * np.append(0.0, c)) - start
        flight = np.stack([q + v * tau - GRAVITY * tau**2 / 2, v - GRAVITY * tau], axis=2)
        t_left.append(grid[:-1]), h.append(np.diff(grid))
        x_left.append(flight[:, 0]), x_stages.append(flight[:, 1:])
        before = v - GRAVITY * fall
        start, q, v = end, 0.0, -BOUNCE * before
        if end < duration:
            events.append(Event(end, "ground", "impact", impulse=v - before, v_before=before, v_after=v))
    interpolant = RungeKuttaInterpolant(
        t_left=np.concatenate(t_left),
        h=np.concatenate(h),
        c=c,
        x_left=np.concatenate(x_left),
        x_stages=np.concatenate(x_stages),
    )
    t, x = nodes_of(interpolant.t_left, interpolant.h, [1.0, 0.0], interpolant.x_left, interpolant.x_right)
    values = np.full(interpolant.t_left.size, 1e-9)
    values[np.isin(interpolant.t_left, [event.time for event in events])] = [event.impulse for event in events]
    u_grid = np.linspace(0, duration, 11)
    return Trajectory(
        t=t,
        x=x,
        state_names=("q", "v"),
        u_grid=u_grid,
        u=np.sin(3 * u_grid[:-1])[:, None],
        control_names=("thrust",),
        interpolant=interpolant,
        events=tuple(events),
        series={
            "lambda_normal": Series(interpolant.t_left, np.maximum(0, np.sin(4 * interpolant.t_left)) * 3),
            "Lambda_normal": Series(interpolant.t_left, values),
        },
        units={"q": "m", "v": "m/s", "thrust": "N", "lambda_normal": "N", "Lambda_normal": "N s"},
    )


@pytest.fixture(scope="module")
def ball() -> Trajectory:
    return bouncing_ball()


def test_first_impact_is_where_physics_puts_it(ball: Trajectory) -> None:
    first = ball.impacts[0]
    assert first.time == pytest.approx(np.sqrt(2 / GRAVITY), abs=1e-12)
    assert ball(first.time, "-")[1] == pytest.approx(-GRAVITY * first.time, abs=1e-12)
    assert ball(first.time, "+")[1] == pytest.approx(BOUNCE * GRAVITY * first.time, abs=1e-12)


def test_png_is_written(ball: Trajectory, tmp_path) -> None:
    path = tmp_path / "figures" / "ball.png"
    plot(ball, path=path, title="bouncing ball")
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(data) > 10_000


def test_panels_and_labels_with_units(ball: Trajectory) -> None:
    axes = plot(ball).axes
    labels = [a.get_ylabel() for a in axes]
    assert labels == ["q [m]", "v [m/s]", "thrust [N]", "lambda_normal [N]", "Lambda_normal [N s]"]
    assert axes[-1].get_xlabel() == "t [s]"
    assert any("impact ground" in text.get_text() for text in axes[0].texts)


def test_states_of_one_unit_share_a_panel() -> None:
    names = tuple(f"{kind}_{k}" for kind in "qv" for k in range(6))
    t = np.linspace(0, 1, 5)
    x = np.outer(np.sin(t), np.arange(12))
    units = {name: "m" if name[0] == "q" else "m/s" for name in names}
    common = {"t": t, "x": x, "state_names": names, "u_grid": [0, 1], "u": np.zeros((1, 0)), "control_names": ()}
    axes = plot(Trajectory(**common, units=units)).axes
    assert [a.get_ylabel() for a in axes] == ["position [m]", "velocity [m/s]"]
    assert [text.get_text() for text in axes[0].get_legend().get_texts()] == list(names[:6])
    assert [a.get_ylabel() for a in plot(Trajectory(**common)).axes] == ["state", "velocity"]


def test_momenta_are_told_by_their_units_and_other_states_by_what_their_names_share() -> None:
    names = ("R_00", "R_01", "gamma_0", "gamma_1", "Pi_0", "Pi_1", "a_0", "b_0")
    units = dict(zip(names, ["1", "1", "kg m/s", "kg m/s", "kg m^2/s", "kg m^2/s", "K", "K"], strict=True))
    common = {"u_grid": [0, 1], "u": np.zeros((1, 0)), "control_names": ()}
    trajectory = Trajectory(t=[0.0, 1.0], x=np.ones((2, 8)), state_names=names, units=units, **common)
    labels = [a.get_ylabel() for a in plot(trajectory).axes]
    assert labels == ["R [1]", "momentum [kg m/s]", "angular momentum\n[kg m^2/s]", "state [K]"]


def test_names_choose_and_group(ball: Trajectory) -> None:
    axes = plot(ball, ["v", ("q", "thrust")]).axes
    assert [a.get_ylabel() for a in axes] == ["v [m/s]", "position"]
    with pytest.raises(UnknownNameError, match="thrust"):
        plot(ball, ["trust"])
    with pytest.raises(OptionError, match="nothing to draw"):
        plot(ball, [])


def test_impulses_below_the_relaxation_are_not_drawn(ball: Trajectory) -> None:
    stems = plot(ball, ["Lambda_normal"]).axes[0].collections[0].get_segments()
    assert len(stems) == len(ball.impacts) == 3
    quiet = {"Lambda_normal": Series([0.0, 1.0], [1e-9, 0.0])}
    assert [a.get_ylabel() for a in plot(replace(ball, series=quiet)).axes][-1] == "thrust [N]"


def test_dense_output_breaks_at_jumps_and_nowhere_else(ball: Trajectory) -> None:
    t, x = dense_output(ball)
    broken = np.isnan(x).all(axis=1)
    assert broken.sum() == np.sum(np.diff(ball.t) == 0)
    assert np.all(np.diff(t) >= 0)
    heights = x[~broken, 0]
    assert heights.min() > -1e-12
    assert np.nanmax(np.abs(np.diff(x[:, 1]))) < 0.5  # no line across a jump of some 8 m/s


def test_homotopy_is_drawn_on_a_log_scale(ball: Trajectory, tmp_path) -> None:
    log = tuple(
        StepRecord(
            step=k,
            label="finish" if k == 5 else "homotopy",
            sigma=0.0 if k == 5 else 10.0**-k,
            objective=1.0,
            complementarity=10.0 ** (-k - 1),
            infeasibility=1e-9,
            iterations=20,
            wall_seconds=0.1,
            solver_status="Solve_Succeeded",
        )
        for k in range(6)
    )
    fields = {name: getattr(ball, name) for name in Trajectory.__dataclass_fields__}
    residuals = {"objective": 1.0, "complementarity": 1e-6, "complementarity_min": 1e-3, "infeasibility": 1e-9}
    solution = Solution(**fields, **residuals, x0=ball.x[0], horizon=2.0, log=log)
    figure = plot_homotopy(solution, path=tmp_path / "homotopy.png")
    assert figure.axes[0].get_yscale() == "log"
    assert [to_hex(line.get_color()).upper() for line in figure.axes[0].lines] == list(COLOURS[:3])
    assert (tmp_path / "homotopy.png").stat().st_size > 5_000
    with pytest.raises(OptionError, match="no log"):
        plot_homotopy(replace(solution, log=()))
