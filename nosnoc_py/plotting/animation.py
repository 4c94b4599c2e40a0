"""Films of motions: one verb, and who draws what."""

from __future__ import annotations

from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nosnoc_py.errors import OptionError, check_positive, check_type, unknown_name
from nosnoc_py.plotting.bodies import BodyPainter
from nosnoc_py.plotting.film import Film, Note, check_integer, check_size
from nosnoc_py.plotting.film_page import write_page
from nosnoc_py.plotting.painter import Painter
from nosnoc_py.plotting.planar import PlanarMotion
from nosnoc_py.plotting.scenes import View
from nosnoc_py.plotting.sheets import legend_below, new_figure
from nosnoc_py.solution.trajectory import Trajectory
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.event_selected import EventSelectedSystem
from nosnoc_py.systems.hybrid import HybridSystem
from nosnoc_py.systems.pss import PDS, PSS, Heaviside
from nosnoc_py.systems.rigid_body import RigidBody

AnyPainter = Painter | BodyPainter
SYSTEMS = (CLS, PSS, Heaviside, PDS, HybridSystem, EventSelectedSystem, RigidBody)

WIDTH, HIGHEST, LOWEST = 4.6, 4.6, 1.0  # inches of axes
WIDE = 4.5  # inches that hold the clock and an event beside each other
AROUND = 0.8  # inches around axes, for ticks and text


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
        `dots_per_inch`; of planar systems also `note`, a function of the time [s] that returns a text for the frame; of
        bodies in space also `view` and `resolution`, see `nosnoc_py.plotting.animate_body`.
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
    note: Note | None = None,
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
    film = Film(trajectory, path, frames_per_second, speed, marked=marked, note=note)
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
    figure, (axes,) = stage(painter, size)
    under = "\n" if figure.get_figwidth() < WIDE else ""  # the clock has a line of its own
    now = axes.set_title("", loc="right", fontsize=8, color="#A03C00")

    def draw(t: float) -> list[Any]:
        axes.set_title(film.clock.text(t), loc="left", fontsize=8)
        now.set_text(film.clock.now(t) + under)
        return painter.draw(axes, t, flash=film.flash)

    return film.record(figure, dots_per_inch, draw)


def stage(
    painter: AnyPainter,
    size: tuple[float, float] | None = None,
    title: str | None = None,
    *,
    shape: tuple[int, int] = (1, 1),
    picture: float = WIDTH,
) -> tuple[Figure, list[Any]]:
    """A figure with axes of equal scales that fit a motion, room for text above them, a title, and a legend.

    Parameters
    ----------
    painter
        It fills the axes, and draws into them afterwards.
    size : (2,), optional
        Width and height of the figure [inches].
    title : str, optional
    shape : (2,)
        Numbers of rows and columns of axes.
    picture : float
        Width or height [inches] of axes that decides about the size of the figure.
    """
    if size is not None:
        check_size(size)
    high = float(np.clip(painter.ratio * picture, LOWEST, HIGHEST))
    wide = min(picture, max(high / painter.ratio, 0.5 * picture))
    handles, (rows, columns) = painter.handles(), shape
    figure = new_figure(*(size or (columns * (wide + AROUND), rows * (high + AROUND) + 0.3)))
    grid = list(figure.subplots(rows, columns, squeeze=False, subplot_kw={"projection": painter.projection}).flat)
    for axes in grid:
        painter.prepare(axes)
        axes.set_title(" " if figure.get_figwidth() >= WIDE else " \n ", loc="left", fontsize=8)
    if title:
        figure.suptitle(title, fontsize=10)
    legend_below(figure, handles, 7)
    figure.draw_without_rendering()
    for axes in grid:
        painter.prepare(axes)  # ticks for the room that there is, and then room for these ticks
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # the places stay the same in all frames of a film
    for axes in grid:
        painter.settle(axes)
    return figure, grid
