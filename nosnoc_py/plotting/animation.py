"""Films of motions: one verb, and who draws what."""

from __future__ import annotations

from inspect import Parameter, signature
from pathlib import Path
from typing import Any, Literal

from matplotlib.figure import Figure
from matplotlib.text import Annotation

from nosnoc_py.errors import OptionError, check_positive, check_type, unknown_name
from nosnoc_py.plotting.bodies import BodyPainter
from nosnoc_py.plotting.film import Film, check_integer, check_size
from nosnoc_py.plotting.film_page import write_page
from nosnoc_py.plotting.painter import TITLE, Painter, legend_above, rows_of
from nosnoc_py.plotting.planar import PlanarMotion
from nosnoc_py.plotting.scenes import View
from nosnoc_py.plotting.sheets import new_figure
from nosnoc_py.solution.trajectory import Trajectory
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.event_selected import EventSelectedSystem
from nosnoc_py.systems.hybrid import HybridSystem
from nosnoc_py.systems.pss import PDS, PSS, Heaviside
from nosnoc_py.systems.rigid_body import RigidBody

AnyPainter = Painter | BodyPainter
SYSTEMS = (CLS, PSS, Heaviside, PDS, HybridSystem, EventSelectedSystem, RigidBody)

WIDTH, HIGHEST, LOWEST = 5.4, 4.6, 1.0  # inches of a picture, and of the part of it with the axes
WIDE = 4.5  # inches that hold the clock and an event beside each other
LINE = 0.22  # inches of a line of text above the axes


def animate(system: Described, trajectory: Trajectory, path: str | Path, **options: Any) -> Path:
    """Write a film of a motion to a `.gif`, an `.mp4` or an `.html`; return its path.

    An `.mp4` needs ffmpeg; the extra `nosnoc_py[film]` brings one. An `.html`, of planar systems, is one page for the
    browser with a slider for the time, without anything from elsewhere.

    Parameters
    ----------
    system : CLS, PSS, Heaviside, PDS, HybridSystem or EventSelectedSystem with a scene, or RigidBody
    trajectory : Trajectory
        Of this system; a `Solution` is one.
    path : str or Path
        A file `.gif`, `.mp4` or `.html`; folders are made.
    options
        `speed` (seconds of the motion per second of the film), `frames_per_second`, `size` (inches),
        `dots_per_inch`; of bodies in space also `view` and `resolution`, see `nosnoc_py.plotting.animate_body`.
        The frames of a GIF last multiples of 10 ms, 20 ms at the least: its number per second is rounded to that.
        A motion of less than half a second makes a film of less than ten frames: give a `speed` below 1.

    Raises
    ------
    OptionError
        For a system without a scene, a trajectory of another system, another kind of file, options that do not exist,
        numbers that do not fit, too many frames, or a place that cannot be written.

    Examples
    --------
    >>> import tempfile, casadi as ca, nosnoc_py as ns
    >>> q, v = ca.SX.sym("q"), ca.SX.sym("v")
    >>> look = [ns.scene.Disc(ca.vertcat(0, q), 0.1), ns.scene.Ground(height=-0.1)]
    >>> ball = ns.CLS(q=q, v=v, mass_matrix=1, force=-9.81, contacts=[ns.Contact("floor", gap=q)], scene=look)
    >>> fall = ns.simulate(ball, x0=[1.0, 0.0], duration=0.5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ns.animate(ball, fall, f"{folder}/ball.html").name
    'ball.html'
    """
    check_type(system, SYSTEMS, "system")
    check_type(trajectory, Trajectory, "trajectory")
    make = animate_body if isinstance(system, RigidBody) else animate_scene
    legal = [name for name, one in signature(make).parameters.items() if one.kind is Parameter.KEYWORD_ONLY]
    for name in options:
        if name not in legal:
            raise OptionError(unknown_name(name, legal, "option"))
    return make(system, trajectory, path, **options)  # type: ignore[arg-type]


def animate_scene(
    system: Described,
    trajectory: Trajectory,
    path: str | Path,
    *,
    frames_per_second: int = 20,
    speed: float = 1.0,
    size: tuple[float, float] | None = None,
    dots_per_inch: int = 100,
) -> Path:
    """Write a film of a planar system with a scene; arguments as in `animate`.

    Where the state jumps, a frame at that very time shows it after the jump. In a page for the browser
    `dots_per_inch` has no meaning: it is as sharp as the screen.

    Examples
    --------
    >>> import tempfile, casadi as ca, nosnoc_py as ns
    >>> from nosnoc_py.plotting import animate_scene
    >>> q, v = ca.SX.sym("q", 2), ca.SX.sym("v", 2)
    >>> ball = ns.CLS(q=q, v=v, mass_matrix=ca.DM.eye(2), force=[0, -9.81], scene=[ns.scene.Disc(q, 0.1)])
    >>> motion = ns.simulate(ball, x0=[0, 1, 1, 0], duration=0.1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     animate_scene(ball, motion, f"{folder}/ball.html").name
    'ball.html'
    """
    painter = Painter(PlanarMotion(system, trajectory))
    check_positive(speed=speed, frames_per_second=frames_per_second)
    check_integer("dots_per_inch", dots_per_inch, 10, 1000)
    marked = any(impact for _, impact, _ in painter.motion.marks)
    film = Film(trajectory, path, frames_per_second, speed, marked=marked)
    if film.path.suffix.lower() == ".html":
        return write_page(painter.motion, film, size)
    return _filmed(film, painter, size, dots_per_inch)


def animate_body(
    body: RigidBody,
    trajectory: Trajectory,
    path: str | Path,
    *,
    frames_per_second: int = 20,
    speed: float = 1.0,
    view: View | None = None,
    size: tuple[float, float] = (4.8, 3.6),
    dots_per_inch: int = 100,
    resolution: int = 12,
) -> Path:
    """Write a film of a body that tumbles over its planes, with its path and the places of impacts.

    Parameters
    ----------
    body
    trajectory
        States (18,) of the body.
    path
        A file `.gif`, or `.mp4` where ffmpeg is installed (it comes with `nosnoc_py[film]`); folders are made.
    frames_per_second, speed
        Seconds of the motion per second of the film.
    view, size, dots_per_inch
        From where, by default from where all planes can be seen, and how large: `size` in inches.
    resolution
        Of curved surfaces.

    Raises
    ------
    OptionError
        For another kind of file, a number that does not fit, states that are not those of a body, or if ffmpeg is
        missing.
    """
    check_integer("resolution", resolution, 3, 1000)
    painter = BodyPainter(body, trajectory, view, resolution)
    check_positive(speed=speed, frames_per_second=frames_per_second, dots_per_inch=dots_per_inch)
    return _filmed(Film(trajectory, path, frames_per_second, speed), painter, size, dots_per_inch)


def _filmed(film: Film, painter: AnyPainter, size: tuple[float, float] | None, dots_per_inch: int) -> Path:
    figure, axes, painter = stage(painter, size)
    clock = line_above(axes, "left")
    now = line_above(axes, "right", 4 if figure.get_figwidth() >= WIDE else 4 + 72 * LINE / 1.5, color="#A03C00")

    def draw(t: float) -> list[Any]:
        clock.set_text(film.clock.text(t))
        now.set_text(film.clock.now(t))
        return painter.draw(axes, t, flash=film.flash)

    return film.record(figure, dots_per_inch, draw)


def stage(
    painter: AnyPainter, size: tuple[float, float] | None = None, title: str | None = None
) -> tuple[Figure, Any, AnyPainter]:
    """A figure with axes that fit a motion, a line above them for the clock, and a legend; and who draws into them."""
    if size is not None:
        check_size(size)
    handles, (left, right, bottom) = painter.handles(), painter.margins
    head = LINE * (1.3 + rows_of(handles, WIDTH if size is None else size[0]))
    head += (0.0 if size is None or size[0] >= WIDE else LINE) + (TITLE if title else 0.0)
    high = min(max(painter.ratio * (WIDTH - left - right), LOWEST), HIGHEST)
    width, height = size or (WIDTH, high + bottom + head)
    figure = new_figure(width, height, layout=None)
    wide, high = max(width - left - right, 0.2 * width), max(height - bottom - head, 0.2 * height)
    painter = painter.fitted(high / wide)
    axes = painter.axes(figure, (left / width, bottom / height, wide / width, high / height))
    legend_above(figure, handles, title)
    return figure, axes, painter


def line_above(axes: Any, side: Literal["left", "right"], points: float = 4, **look: Any) -> Annotation:
    """A line of text above one end of axes, without words yet."""
    box = axes.get_position(original=True)
    place = {"xycoords": "figure fraction", "textcoords": "offset points", "fontsize": 8, "va": "bottom", "ha": side}
    x = {"left": max(box.x0, 0.03), "right": min(box.x1, 0.97)}[side]
    return axes.annotate("", (x, box.y1), xytext=(0, points), **place, **look)
