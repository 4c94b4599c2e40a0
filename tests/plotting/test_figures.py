"""Figures: what is on them, and that they reach the disk."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex

from nosnoc_py.errors import OptionError, UnknownNameError
from nosnoc_py.plotting import dense_output, plot, plot_homotopy, plot_phase
from nosnoc_py.plotting.figures import broken
from nosnoc_py.plotting.sheets import COLOURS
from nosnoc_py.solution import Event, RungeKuttaInterpolant, Series, Solution, StepRecord, Trajectory, nodes_of
from nosnoc_py.solution.records import Discretization
from nosnoc_py.status import Status, Verdict

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


@pytest.mark.parametrize(("kind", "begins"), [("png", b"\x89PNG"), ("PDF", b"%PDF"), ("svg", b"<?xml")])
def test_figures_are_written_as_their_name_says(ball: Trajectory, tmp_path: Path, kind: str, begins: bytes) -> None:
    plot(ball, ["q"], path=tmp_path / f"ball.{kind}")
    assert (tmp_path / f"ball.{kind}").read_bytes().startswith(begins)
    assert len(list(tmp_path.iterdir())) == 1  # nothing beside it


def test_places_that_cannot_be_written_are_told(ball: Trajectory, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    (tmp_path / "folder.png").mkdir()
    for name in ("ball.jpg", "ball"):
        with pytest.raises(OptionError, match=r"expected a file \.png, \.pdf or \.svg"):
            plot(ball, ["q"], path=tmp_path / name)
    for place in (tmp_path / "file" / "ball.png", tmp_path / "folder.png"):
        with pytest.raises(OptionError, match="nothing can be written there"):
            plot(ball, ["q"], path=place)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.png"]


def test_series_are_broken_between_the_sides_of_a_jump_and_nowhere_else(ball: Trajectory) -> None:
    """Both sides of a jump have the time of the event; the energy falls between them, not one sample later."""
    values = 0.5 * ball.x[:, 1] ** 2
    sampled = replace(ball, series={"kinetic": Series(ball.t, values)}, units={**ball.units, "kinetic": "J"})
    axes = plot(sampled, ["kinetic"]).axes[0]
    t, shown = next(line for line in axes.lines if line.get_label() == "kinetic").get_data()
    places = np.flatnonzero(np.isnan(shown))
    assert len(places) == np.sum(np.diff(ball.t) == 0) == 3
    for place in places:
        assert t[place - 1] == t[place + 1]
        assert shown[place + 1] == pytest.approx(BOUNCE**2 * shown[place - 1])
    assert np.array_equal(shown[~np.isnan(shown)], values)


@pytest.mark.parametrize(
    ("t", "event", "place"),
    [
        ([0.0, 1.0, 2.0, 3.0], 1.5, 2),  # no sample at the event
        ([0.0, 1.0, 1.0, 3.0], 1.0 + 1e-15, 2),  # both sides of it
        ([1.0, 1.5, 2.0, 3.0], 1.5, 2),  # right ends of finite elements: the sample is before the event
        ([0.0, 1.0, 2.0, 2.5], 1.0, 1),  # left ends: after it
        ([0.0, 1.0, 2.0, 3.0], 3.0, None),
    ],
)
def test_a_series_is_broken_on_the_right_side_of_an_event(t: list[float], event: float, place: int | None) -> None:
    times, values = broken(np.array(t), np.arange(4.0), [event], 3.0)
    expected = [] if place is None else [place]
    assert np.flatnonzero(np.isnan(times)).tolist() == np.flatnonzero(np.isnan(values)).tolist() == expected


def test_an_empty_series_is_not_broken() -> None:
    assert not broken(np.zeros(0), np.zeros(0), [1.0], 2.0)[0].size


def test_only_few_samples_have_markers(ball: Trajectory) -> None:
    for count, marker in ((20, "."), (1200, "None")):
        t = np.linspace(0.0, 2.0, count)
        line = plot(replace(ball, series={"wave": Series(t, np.sin(t))}), ["wave"]).axes[0].lines[-1]
        assert line.get_marker() == marker


def test_series_of_one_unit_are_called_by_their_quantity(ball: Trajectory) -> None:
    series = {name: Series([0.0, 1.0], [1.0, 2.0]) for name in ("kinetic", "potential")}
    energies = replace(ball, series=series, units=dict.fromkeys(series, "J"))
    assert [axes.get_ylabel() for axes in plot(energies, ["kinetic", "potential"]).axes] == ["energy [J]"]


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_impulses_are_compared_with_the_largest(ball: Trajectory, size: float) -> None:
    """Whatever the units: all of the impacts, and none of what the relaxation leaves."""
    events = tuple(replace(event, impulse=size * event.impulse) for event in ball.events)
    impulses = ball.series["Lambda_normal"]
    noise = np.where(impulses.values > 1e-6, impulses.values, 1e-7)
    scaled = replace(ball, events=events, series={"Lambda_normal": Series(impulses.t, size * noise)})
    axes = plot(scaled).axes[-1]
    assert axes.get_ylabel().startswith("Lambda_normal")
    assert len(axes.collections[0].get_segments()) == 3


def test_numbers_far_from_one_have_their_power_beside_the_unit(ball: Trajectory) -> None:
    t, x = 1e-6 * ball.t, ball.x * [1e-8, 5e4]
    far = replace(ball, t=t, x=x, u_grid=1e-6 * ball.u_grid, interpolant=None, events=(), series={})
    figure = plot(far)
    figure.canvas.draw()
    labels = [axes.get_ylabel() for axes in figure.axes]
    assert labels == ["q [$10^{-9}$ m]", "v [$10^{3}$ m/s]", "thrust [N]"]
    assert figure.axes[-1].get_xlabel() == "t [$10^{-6}$ s]"
    ticks = [float(tick.get_text().replace("\N{MINUS SIGN}", "-")) for tick in figure.axes[0].get_yticklabels()]
    assert 10.0 in ticks
    assert max(ticks) < 20.0
    assert not figure.axes[0].yaxis.get_offset_text().get_visible()


@pytest.mark.parametrize(("verdict", "title"), [(Verdict.CONFIRMED, ""), (Verdict.REFUTED, "certificate: refuted")])
def test_the_title_says_that_the_certificate_refutes_it(ball: Trajectory, verdict: Verdict, title: str) -> None:
    fields = {name: getattr(ball, name) for name in Trajectory.__dataclass_fields__}
    residuals = {"objective": 1.0, "complementarity": 0.0, "complementarity_min": 0.0, "infeasibility": 0.0}
    certificate: Any = SimpleNamespace(verdict=verdict)
    solution = Solution(**fields, **residuals, x0=ball.x[0], horizon=2.0, certificate=certificate)
    assert plot(solution, ["q"]).get_suptitle() == title


def test_the_title_says_that_a_motion_has_failed(ball: Trajectory) -> None:
    failed = replace(ball, status=Status.STEP_FAILED)
    assert plot(failed, ["q"]).get_suptitle() == "simulation step failed"
    assert plot_phase(failed, "q", "v", title="a ball").get_suptitle() == "a ball (simulation step failed)"
    assert plot(ball, ["q"], title="a ball").get_suptitle() == "a ball"


def test_multipliers_of_filippov_systems_are_no_forces(ball: Trajectory) -> None:
    names = ("lambda[side][0]", "lambda[side][1]", "lambda_n[c]", "lambda_p[c]")
    series = {name: Series([0.0, 1.0], [0.5 * k, 1.0]) for k, name in enumerate(names)}
    axes = plot(replace(ball, series=series, events=())).axes
    assert axes[-1].get_ylabel() == "multiplier"
    assert [text.get_text() for text in axes[-1].get_legend().get_texts()] == sorted(names)
    assert plot(replace(ball, series=series), [names[0]]).axes[0].get_ylabel() == names[0]


def test_the_axis_says_which_time_it_shows(ball: Trajectory) -> None:
    frozen = Discretization(scheme="radau-iia", nodes=(1.0,), collocation=True, time_freezing=True)
    numerical = replace(ball, discretization=frozen)
    assert plot(numerical).axes[-1].get_xlabel() == "numerical time [s]"
    assert plot(replace(ball, numerical=numerical)).axes[-1].get_xlabel() == "physical time t [s]"


def test_a_line_on_another_one_is_dashed() -> None:
    t = np.linspace(0.0, 1.0, 20)
    x = np.column_stack([t, t, 1 - t])
    none = {"u_grid": [0, 1], "u": np.zeros((1, 0)), "control_names": ()}
    motion = Trajectory(t=t, x=x, state_names=("a", "b", "c"), **none)
    lines = plot(motion).axes[0].lines
    assert [line.get_linestyle() for line in lines] == ["-", "--", "-"]
