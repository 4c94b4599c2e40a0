"""Films and stills of planar systems: what is on them, how many frames, and that they arrive whole."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import casadi as ca
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from PIL import Image

import nosnoc_py as ns
from models import bouncing_ball, bouncing_bodies, particle, spring_hopper, two_discs_elastic
from nosnoc_py.errors import OptionError
from nosnoc_py.plotting import animate, snapshots
from nosnoc_py.plotting.animation import stage
from nosnoc_py.plotting.film import Clock, GifWriter, ffmpeg, film, frame_rate, frame_times, writer_of
from nosnoc_py.plotting.painter import Painter
from nosnoc_py.plotting.planar import PlanarMotion, PlanarView
from nosnoc_py.plotting.sheets import COLOURS
from nosnoc_py.systems import scene

BALL = bouncing_ball.build(0.8)


@pytest.fixture(scope="module")
def bouncing() -> ns.Trajectory:
    return ns.simulate(BALL, x0=[1, 0], duration=1.0, method=ns.EventDriven())


@pytest.fixture(scope="module")
def pushed() -> tuple[ns.CLS, ns.Trajectory]:
    """A particle under a force that changes from (7, 0) to (0, 3) N after 1 s."""
    system = particle.build(0.6)
    u = [[7.0, 0.0], [0.0, 3.0]]
    return system, ns.simulate(system, x0=[0, 1, 0, 0], duration=2.0, u=np.array(u), method=ns.EventDriven())


def test_a_gif_has_its_frames(bouncing: ns.Trajectory, tmp_path: Path) -> None:
    path = animate(BALL, bouncing, tmp_path / "new" / "ball.gif", frames_per_second=10, dots_per_inch=40)
    with Image.open(path) as shown:
        assert getattr(shown, "n_frames", 1) == 11
        assert shown.info["duration"] == 100
        first = np.asarray(shown.convert("RGB"), dtype=int)
        shown.seek(4)
        later = np.asarray(shown.convert("RGB"), dtype=int)
    assert (np.abs(first - later).max(axis=2) > 50).mean() > 0.005
    assert [file.name for file in path.parent.iterdir()] == ["ball.gif"]


def test_an_mp4_has_its_frames(bouncing: ns.Trajectory, tmp_path: Path) -> None:
    """Written by the ffmpeg of imageio-ffmpeg where there is no other, and counted by it."""
    program = ffmpeg()
    if program is None:
        pytest.skip("needs ffmpeg, pip install nosnoc_py[film]")
    path = animate(BALL, bouncing, tmp_path / "ball.mp4", frames_per_second=10, size=(3.03, 2.51), dots_per_inch=100)
    done = subprocess.run([program, "-i", str(path), "-f", "null", "-"], capture_output=True, text=True, check=True)
    assert "h264" in done.stderr
    assert "302x250" in done.stderr  # even, or players refuse it
    assert [part.split()[0] for part in done.stderr.split("frame=")[1:]][-1] == "11"
    assert path.stat().st_size > 2000
    assert [file.name for file in tmp_path.iterdir()] == ["ball.mp4"]


def test_ffmpeg_of_the_package_stands_in(monkeypatch: pytest.MonkeyPatch) -> None:
    package = pytest.importorskip("imageio_ffmpeg")
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert ffmpeg() == package.get_ffmpeg_exe()
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert ffmpeg() is None
    with pytest.raises(OptionError, match=r'film\.mp4.*pip install "nosnoc_py\[film\]".*write a \.gif'):
        writer_of(Path("film.mp4"), 20)


def test_a_film_that_breaks_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "film.gif"
    path.write_bytes(b"old")

    def breaks() -> None:
        with film(Figure(), path, 10, 50) as take:
            take()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        breaks()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_told(bouncing: ns.Trajectory, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(OptionError, match=r"nothing can be written there .*give another folder"):
        animate(BALL, bouncing, tmp_path / "file" / "ball.gif")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"speed": 0}, r"speed: expected a positive number, given 0"),
        ({"frames_per_second": "20"}, "frames_per_second: expected a positive number"),
        ({"size": 3}, "size: expected a width and a height"),
        ({"dots_per_inch": 1.5}, "dots_per_inch: expected a whole number"),
    ],
)
def test_bad_options_are_refused(bouncing: ns.Trajectory, tmp_path: Path, options: Any, says: str) -> None:
    with pytest.raises(OptionError, match=says):
        animate(BALL, bouncing, tmp_path / "ball.gif", **options)
    assert not list(tmp_path.iterdir())


def test_bad_input_is_refused(bouncing: ns.Trajectory, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"ball\.avi: expected a file \.gif or \.mp4"):
        animate(BALL, bouncing, tmp_path / "ball.avi")
    with pytest.raises(OptionError, match=r"states x_1, y_1.*height, velocity"):
        animate(two_discs_elastic.build(), bouncing, tmp_path / "ball.gif")
    with pytest.raises(OptionError, match="trajectory: expected Trajectory, given CLS"):
        animate(BALL, BALL, tmp_path / "ball.gif")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="system: expected CLS or"):
        animate(bouncing, bouncing, tmp_path / "ball.gif")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"times: expected one or more from 0 to 1 s"):
        snapshots(BALL, bouncing, [0.5, 1.5])
    with pytest.raises(OptionError, match=r"arrangement 'strobo'.*Did you mean 'strobe'"):
        snapshots(BALL, bouncing, arrangement="strobo")  # type: ignore[arg-type]


def test_without_a_scene_the_error_is_a_scene(bouncing: ns.Trajectory, tmp_path: Path) -> None:
    """What it says to write can be written: the line is tried as it stands."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    plain = replace(BALL, q=q, v=v, force=ca.SX(-9.81), contacts=[ns.Contact("ground", gap=q)], scene=())
    with pytest.raises(OptionError, match=r"scene=\[ns\.scene\.Disc\(\[0, q\[0\]\], 0\.1\), ns\.scene\.Ground"):
        animate(plain, bouncing, tmp_path / "ball.gif")
    written = replace(plain, scene=[scene.Disc([0, q[0]], 0.1), scene.Ground(height=0)])
    assert len(PlanarMotion(written, bouncing).shapes) == 2


def test_frames_begin_and_end_with_the_motion(bouncing: ns.Trajectory) -> None:
    times = frame_times(bouncing, 0.25, 10)
    assert len(times) == 41
    assert times[[0, -1]] == pytest.approx([0, 1])


def test_the_clock_counts_and_names_impacts(bouncing: ns.Trajectory) -> None:
    """At the very time of an impact it has happened; long after it is no news any more."""
    time = bouncing_ball.impact_times(0.8, 1)[0]
    clock = Clock(bouncing, np.linspace(0, 1, 11), flash=0.2)
    impact = bouncing.impacts[0].time
    assert impact == pytest.approx(time, abs=1e-9)
    assert [clock.count_impacts(t) for t in (impact - 1e-9, impact, 1.0)] == [0, 1, 1]
    assert [clock.now(t) for t in (impact - 1e-9, impact, impact + 0.3)] == ["", "impact ground", ""]
    assert clock.text(0.5) == "t = 0.50 s, impacts (×): 1"
    failed = Clock(replace(bouncing, status=ns.Status.TIME_LIMIT), np.linspace(0, 1, 11), flash=0.2)
    assert failed.text(0.5) == "t = 0.50 s, impacts (×): 1 (time limit)"
    fine = Clock(bouncing, np.linspace(0, 1e-3, 11), flash=0.2)
    assert fine.text(1e-4) != fine.text(2e-4)


def test_frames_at_an_impact_show_the_state_after_it(pushed: tuple[ns.CLS, ns.Trajectory]) -> None:
    """A scene may show velocities: at the impact that of the particle is the one after it."""
    q, v = ca.SX.sym("q"), ca.SX.sym("v")
    ground = ns.Contact("ground", gap=q, restitution=0.8)
    ball = ns.CLS(
        q=q, v=v, mass_matrix=1, force=ca.SX(-9.81), contacts=[ground], scene=[scene.Arrow([0, q], [0, v], unit="m/s")]
    )
    motion = ns.simulate(ball, x0=[1, 0], duration=1.0, method=ns.EventDriven())
    time = motion.impacts[0].time
    before, at = (PlanarMotion(ball, motion).at(np.array([t]))[0][0, 3] for t in (time - 1e-9, time))
    speed = np.sqrt(2 * 9.81)
    assert before == pytest.approx(-speed, abs=1e-6)
    assert at == pytest.approx(0.8 * speed, abs=1e-6)


def test_marks_lie_where_and_when_it_happened(pushed: tuple[ns.CLS, ns.Trajectory]) -> None:
    """The particle lands after sqrt(2/g) s, 7/g m away."""
    system, trajectory = pushed
    motion = PlanarMotion(system, trajectory)
    impacts = [(time, place) for time, impact, place in motion.marks if impact]
    assert len(impacts) == 1
    assert impacts[0][0] == pytest.approx(np.sqrt(2 / 9.81), abs=1e-9)
    assert impacts[0][1] == pytest.approx([7 / 9.81, 0], abs=1e-9)
    _, (axes,) = stage(painter := Painter(motion))
    assert not painter.draw_marks(axes, 0.1, 0.1, 0.5)
    plain, fresh = (painter.draw_marks(axes, t, t, 0.2) for t in (0.9, impacts[0][0] + 0.1))
    assert (len(plain), len(fresh)) == (1, 2)  # the ring is for what has just happened
    assert fresh[0].get_xydata()[0] == pytest.approx([7 / 9.81, 0], abs=1e-9)


def test_arrows_are_the_control_of_the_time(pushed: tuple[ns.CLS, ns.Trajectory]) -> None:
    motion = PlanarMotion(*pushed)
    arrow = next(k for k, shape in enumerate(motion.shapes) if isinstance(shape, scene.Arrow))
    values = motion.at(np.array([0.5, 1.0, 1.5]))[arrow]
    assert values[:, 2:] == pytest.approx(np.array([[7, 0], [0, 3], [0, 3]]))
    size = motion.view.size
    assert motion.longest(arrow) == pytest.approx(7.0)
    assert 0.15 * size < 7.0 * motion.scales(size)[arrow] < 0.26 * size
    _, (axes,) = stage(painter := Painter(motion))
    drawn = [artist for artist in painter.draw(axes, 0.5) if isinstance(artist, FancyArrowPatch)]
    assert len(drawn) == 1


def test_a_trajectory_without_controls_has_no_arrows() -> None:
    system = particle.build(0.0)
    motion = ns.simulate(system, x0=[0, 1, 0, 0], duration=0.2, u=[0.0, 0.0], method=ns.EventDriven())
    bare = replace(motion, u=np.zeros((0, 0)), u_grid=np.zeros(1), control_names=(), control_interpolant=None)
    _, (axes,) = stage(painter := Painter(PlanarMotion(system, bare)))
    assert not [artist for artist in painter.draw(axes, 0.1) if isinstance(artist, FancyArrowPatch)]
    assert not [handle for handle in painter.handles() if "force" in handle.get_label()]


@pytest.mark.parametrize("size", [None, (3.0, 6.0), (8.0, 2.0)])
def test_scales_are_equal_and_everything_is_seen(
    pushed: tuple[ns.CLS, ns.Trajectory], size: tuple[float, float] | None
) -> None:
    motion = PlanarMotion(*pushed)
    _, (axes,) = stage(Painter(motion), size)
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    box = axes.get_window_extent()
    assert (right - left) / box.width == pytest.approx((top - bottom) / box.height, rel=1e-9)
    x = pushed[1].x[:, :2]
    assert left < x[:, 0].min() - 0.05
    assert right > x[:, 0].max() + 0.05
    assert bottom < 0.0
    assert top > 1.1


def test_a_view_is_no_strip() -> None:
    view = PlanarView.around(np.array([[0.0, 0.0], [0.0, 1.0]]))
    assert view.ratio < 4.0
    assert PlanarView.around(np.zeros((1, 2))).size > 0.0
    wide = view.with_ratio(0.5)
    assert wide.ratio == pytest.approx(0.5)
    assert (wide.top - wide.bottom) >= (view.top - view.bottom) - 1e-12


def test_the_path_ends_where_the_body_is(pushed: tuple[ns.CLS, ns.Trajectory]) -> None:
    _, (axes,) = stage(painter := Painter(PlanarMotion(*pushed)))
    trail = next(artist for artist in painter.draw(axes, 0.33) if artist.get_zorder() == 2)
    points = trail.get_xydata()
    assert points[0] == pytest.approx([0, 1])
    assert points[-1] == pytest.approx(pushed[1](0.33)[:2])


def test_a_path_is_broken_where_the_state_jumps() -> None:
    x = ca.SX.sym("x", 2)
    wrap = ns.StateJump("wrap", guard=1 - x[0], reset=[0, x[1]])
    around = ns.HybridSystem(x=x, flow=ca.vertcat(1, 0.1), jumps=[wrap], scene=[scene.Trail(x)])
    t, states = np.array([0.0, 1.0, 1.0, 1.5]), np.array([[0.0, 0.0], [1.0, 0.1], [0.0, 0.1], [0.5, 0.15]])
    trajectory = ns.Trajectory(
        t=t, x=states, state_names=("x_0", "x_1"), u_grid=np.zeros(1), u=np.zeros((0, 0)), control_names=()
    )
    _, (axes,) = stage(painter := Painter(PlanarMotion(around, trajectory)))
    (trail,) = painter.draw(axes, 1.5)
    assert np.isnan(trail.get_xydata()).any(axis=1).sum() == 1


@pytest.mark.parametrize("arrangement", ["strobe", "panels"])
def test_snapshots_show_what_they_were_asked_for(
    pushed: tuple[ns.CLS, ns.Trajectory], arrangement: Any, tmp_path: Path
) -> None:
    times = [0.0, 0.4, 1.7]
    figure = snapshots(*pushed, times, arrangement=arrangement, path=tmp_path / "a" / "s.png")
    with Image.open(tmp_path / "a" / "s.png") as shown:
        assert shown.format == "PNG"
    centres = [
        np.mean(patch.get_xy()[: scene.ROUND], axis=0)
        for axes in figure.axes
        for patch in axes.patches
        if type(patch).__name__ == "Polygon" and len(patch.get_xy()) > 40
    ]
    expected = pushed[1](times)[:, :2] + [0, particle.DRAWN]
    assert np.array(centres) == pytest.approx(expected, abs=1e-9)
    assert len(figure.axes) == (1 if arrangement == "strobe" else 3)


@pytest.mark.parametrize("arrangement", ["strobe", "panels"])
def test_bodies_in_space_have_snapshots(arrangement: Any) -> None:
    body = bouncing_bodies.build("III")
    motion = ns.simulate(
        body, x0=bouncing_bodies.start(body), duration=0.2, method=ns.LieGroupVariational(compiled=False)
    )
    figure = snapshots(body, motion, [0.0, 0.1], arrangement=arrangement, title="a lens")
    assert len(figure.axes) == (1 if arrangement == "strobe" else 2)
    figure.canvas.draw()
    title = figure._suptitle.get_window_extent()  # type: ignore
    assert not any(title.overlaps(text.get_window_extent()) for text in figure.texts if text is not figure._suptitle)


def test_an_event_selected_system_is_drawn_by_numbers_of_numpy_too(tmp_path: Path) -> None:
    """The states have the same names: the scene of the system in CasADi fits the motion of the one in NumPy."""
    motion = ns.simulate(
        spring_hopper.build_numeric(), x0=[2, 0], duration=0.6, method=ns.EventSelected(step=1e-2, compiled=False)
    )
    painted = PlanarMotion(spring_hopper.build(), motion)
    assert [impact for _, impact, _ in painted.marks] == [False] * len(motion.events)
    assert painted.at(np.array([0.0]))[0][0, :2] == pytest.approx([0, 2.1])


def test_labels_and_units_are_in_the_legend(pushed: tuple[ns.CLS, ns.Trajectory]) -> None:
    motion = PlanarMotion(*pushed)
    labels = [handle.get_label() for handle in Painter(motion, motion.view).handles()]
    assert labels[0] == "force, at most 7 N"
    assert "impact" in labels
    _, (axes,) = stage(Painter(motion))
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("[m]", "[m]")


@pytest.mark.parametrize(("asked", "milliseconds"), [(20, 50), (30, 30), (7, 140), (60, 20), (2000, 20)])
def test_frames_of_a_gif_last_as_long_as_they_show(
    bouncing: ns.Trajectory, tmp_path: Path, asked: int, milliseconds: int
) -> None:
    """Files know hundredths of a second: the times of the frames are those of the rate that the file has."""
    short = ns.simulate(BALL, x0=[1, 0], duration=0.3, method=ns.EventDriven())
    path = animate(BALL, short, tmp_path / "ball.GIF", frames_per_second=asked, dots_per_inch=20)
    with Image.open(path) as shown:
        assert shown.info["duration"] == milliseconds
        assert getattr(shown, "n_frames", 1) == round(300 / milliseconds) + 1
    assert frame_rate(Path("film.mp4"), asked) == asked


def test_too_long_a_film_is_told_the_speed_that_fits(bouncing: ns.Trajectory, tmp_path: Path) -> None:
    long = replace(bouncing, t=bouncing.t * 1e5, interpolant=None)
    with pytest.raises(OptionError, match=r"2e\+06 frames at speed=1, more than 3000; give speed=670 ") as said:
        animate(BALL, long, tmp_path / "ball.gif")
    assert len(frame_times(long, float(str(said.value).split("give speed=")[1].split()[0]), 20)) <= 3001
    still = replace(bouncing, t=np.zeros(1), x=bouncing.x[:1], events=(), interpolant=None)
    with pytest.raises(OptionError, match=r"has no duration \(t = 0 s\)"):
        animate(BALL, still, tmp_path / "ball.gif")
    with pytest.raises(OptionError, match="has no duration"):
        snapshots(BALL, still)
    assert not list(tmp_path.iterdir())


def test_what_goes_wrong_before_the_first_frame_is_told(tmp_path: Path) -> None:
    def breaks(path: Path) -> None:
        with film(Figure(), path, 10, 50):
            raise ZeroDivisionError

    for name in ("film.gif", *(["film.mp4"] if ffmpeg() else [])):
        with pytest.raises(ZeroDivisionError):
            breaks(tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_folders_and_unknown_options_are_refused(bouncing: ns.Trajectory, tmp_path: Path) -> None:
    (tmp_path / "film.gif").mkdir()
    with pytest.raises(OptionError, match=r"film\.gif is a folder"):
        animate(BALL, bouncing, tmp_path / "film.gif")
    with pytest.raises(OptionError, match=r"unknown option 'frames_per_secnd'.*Did you mean 'frames_per_second'"):
        animate(BALL, bouncing, tmp_path / "ball.gif", frames_per_secnd=3)
    with pytest.raises(OptionError, match=r"unknown option 'fps'.*Legal: frames_per_second, speed"):
        animate(BALL, bouncing, tmp_path / "ball.gif", fps=3)


def test_frames_are_kept_small(tmp_path: Path) -> None:
    """A palette has a byte per dot, where the picture has four."""
    figure = Figure(figsize=(2, 1))
    writer = writer_of(tmp_path / "film.gif", 10)
    writer.setup(figure, str(tmp_path / "film.gif"), 50)
    writer.grab_frame()
    assert isinstance(writer, GifWriter)
    assert [len(picture.tobytes()) for picture in writer._frames] == [100 * 50]


def straight(shapes: Any, states: Any, **changes: Any) -> tuple[ns.CLS, ns.Trajectory]:
    """A particle in the plane with a scene, at given states (times, 4), one second apart."""
    q, v, p = ca.SX.sym("q", 2), ca.SX.sym("v", 2), ca.SX.sym("size")
    x = np.asarray(states, dtype=float)
    system = ns.CLS(q=q, v=v, p=p, p_default=[0.5], mass_matrix=ca.DM.eye(2), force=ca.SX(2, 1), scene=shapes(q, v, p))
    given: dict[str, Any] = {"u_grid": [0.0], "u": np.zeros((0, 0)), "control_names": ()}
    motion = ns.Trajectory(t=np.arange(len(x)), x=x, state_names=system.state_names, **(given | changes))
    return system, motion


def test_the_earth_is_behind_the_ground() -> None:
    point, normal = np.array([1.0, 0.5]), np.array([0.6, 0.8])
    for sign in (1.0, -1.0):
        ground = [scene.Ground(point=point.tolist(), normal=(sign * normal).tolist())]
        painter = Painter(PlanarMotion(*straight(lambda q, v, p, g=ground: [*g, scene.Trail(q)], np.eye(3, 4))))
        _, (axes,) = stage(painter)
        earth = next(artist for artist in painter.draw(axes, 0.0) if artist.get_zorder() == 1)
        depths = (earth.get_xy() - point) @ (sign * normal)
        assert depths.max() < 1e-9
        assert depths.min() < -1.0


def test_the_path_is_that_up_to_now() -> None:
    system, motion = straight(
        lambda q, v, p: [scene.Trail(q)], [[0, 0, 0, 0], [1, 0, 0, 0], [2, 0, 0, 0], [3, 0, 0, 0]]
    )
    _, (axes,) = stage(painter := Painter(PlanarMotion(system, motion)))
    for t in (0.0, 1.5, 3.0):
        (trail,) = painter.draw(axes, t)
        assert trail.get_xydata()[:, 0].max() == pytest.approx(t, abs=1e-12)


def test_arrows_of_one_unit_have_one_scale_and_their_tips_are_seen() -> None:
    def shapes(q: ca.SX, v: ca.SX, p: ca.SX) -> list[scene.PlanarShape]:
        return [
            scene.Disc(q, 0.1),
            scene.Arrow(q, v, unit="m/s"),
            scene.Arrow(q, 0.25 * v, unit="m/s"),
            scene.Arrow(q, 100 * v),
        ]

    motion = PlanarMotion(*straight(shapes, [[0, 0, 2, 0], [1, 0, 8, 0], [2, 0, 8, 0]]))
    scales = motion.scales(2.0)
    assert scales[1] == scales[2] == pytest.approx(0.25 * 2.0 / 8.0)
    assert scales[3] == pytest.approx(0.25 * 2.0 / 800.0)
    bodies = PlanarMotion(*straight(lambda q, v, p: [scene.Disc(q, 0.1)], motion.trajectory.x))
    assert motion.view.right > 2.5 > 2.3 > bodies.view.right
    fixed = PlanarMotion(*straight(lambda q, v, p: [scene.Disc(q, 0.1), scene.Arrow(q, v, 1.0)], motion.trajectory.x))
    assert fixed.view.right > 10.0


def test_the_later_the_darker() -> None:
    system, motion = straight(lambda q, v, p: [scene.Disc(q, 0.1)], [[0, 0, 0, 0], [1, 0, 0, 0], [2, 0, 0, 0]])
    (axes,) = snapshots(system, motion, [0, 1, 2]).axes
    looks = {float(np.mean(patch.get_xy()[: scene.ROUND, 0])): patch.get_alpha() for patch in axes.patches}
    assert [round(x, 9) for x in sorted(looks)] == [0, 1, 2]
    assert [looks[x] for x in sorted(looks)] == pytest.approx([0.18, 0.59, 1.0])


def test_parameters_are_those_of_the_trajectory() -> None:
    for parameters, radius in (({}, 0.5), ({"p_0": 2.0}, 2.0)):
        system, motion = straight(lambda q, v, p: [scene.Disc(q, p)], np.zeros((2, 4)), parameters=parameters)
        assert motion.parameters == parameters
        assert PlanarMotion(system, motion).at(np.array([0.0]))[0][0, 2] == radius


def test_a_spring_is_as_wide_when_it_is_short() -> None:
    system, motion = straight(lambda q, v, p: [scene.Spring([0, 0], q)], [[1, 0, 0, 0], [4, 0, 0, 0]])
    _, (axes,) = stage(painter := Painter(PlanarMotion(system, motion)))
    widths = [np.ptp(painter.draw(axes, t)[0].get_xydata()[:, 1]) for t in (0.0, 0.5, 1.0)]
    assert widths == pytest.approx([scene.SLIM * 4.0] * 3)


def test_controls_of_another_system_are_refused_and_a_clock_is_not(pushed: tuple[ns.CLS, ns.Trajectory]) -> None:
    system, motion = pushed
    with pytest.raises(OptionError, match=r"the controls force_x, force_y, given one with left, right"):
        PlanarMotion(system, replace(motion, control_names=("left", "right")))
    frozen = replace(motion, x=np.column_stack([motion.x, motion.t]), state_names=(*motion.state_names, "clock"))
    frozen = replace(frozen, interpolant=None)
    assert PlanarMotion(system, frozen).at(np.array([0.0, 2.0]))[0] == pytest.approx(
        PlanarMotion(system, motion).at([0.0, 2.0])[0]
    )
    with pytest.raises(OptionError, match="expected a trajectory of this system, with the states"):
        PlanarMotion(system, replace(frozen, state_names=("clock", *motion.state_names)))


def test_marks_have_a_colour_of_their_own(pushed: tuple[ns.CLS, ns.Trajectory]) -> None:
    _, (axes,) = stage(painter := Painter(PlanarMotion(*pushed)))
    cross, _ = painter.draw_marks(axes, 0.5, 0.5, 0.2)
    assert to_hex(cross.get_color()) not in {colour.lower() for colour in COLOURS[:6]}


def test_numbers_of_micrometres_have_their_power_beside_the_unit() -> None:
    micro = 1e-6 * np.array([[0, 0, 0, 0], [1, 0.5, 0, 0], [2, 1, 0, 0]])
    _, (axes,) = stage(Painter(PlanarMotion(*straight(lambda q, v, p: [scene.Disc(q, 1e-7)], micro))))
    axes.figure.canvas.draw()
    assert axes.get_xlabel() == axes.get_ylabel() == "[$10^{-6}$ m]"
    assert not axes.yaxis.get_offset_text().get_visible()
    assert "1.00" in [tick.get_text() for tick in axes.get_yticklabels()]


@pytest.mark.parametrize("arrangement", ["strobe", "panels"])
def test_a_failed_motion_says_so_above_its_legend(pushed: tuple[ns.CLS, ns.Trajectory], arrangement: Any) -> None:
    system, motion = pushed
    figure = snapshots(system, replace(motion, status=ns.Status.ZENO), arrangement=arrangement, title="a push")
    assert figure.get_suptitle() == "a push (too many impacts)"
    figure.canvas.draw()
    assert figure._suptitle.get_window_extent().y0 > figure.legends[0].get_window_extent().y1  # type: ignore
    assert snapshots(system, motion, arrangement=arrangement).get_suptitle() == ""


def test_many_events_at_once_are_shortened(bouncing: ns.Trajectory) -> None:
    """Two of them are named: the words share a line with the clock."""
    corners = [ns.Event(time=0.5, name=f"corner {k}", kind="impact") for k in range(1, 5)]
    clock = Clock(replace(bouncing, events=tuple(corners)), np.linspace(0, 1, 11), flash=0.2)
    assert clock.now(0.5) == "impact corner 1, impact corner 2, and 2 more"


def test_labels_of_axes_are_inside_of_a_small_picture() -> None:
    """Ticks of 0.15 m need more room than those of 0.2 m, which a larger picture would have."""
    q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    look = [ns.scene.Disc(q, 0.02), ns.scene.Line([[-0.5, 0.0], [0.5, 0.6]])]
    body = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=[0, 0], scene=look)
    painter = Painter(PlanarMotion(body, ns.simulate(body, x0=[-0.4, 0.5, 0.8, 0], duration=1.0)))
    figure, (axes,) = stage(painter, (4.4, 3.6))
    figure.draw_without_rendering()
    assert axes.yaxis.label.get_window_extent().x0 >= 0.0
    assert axes.xaxis.label.get_window_extent().y0 >= 0.0
