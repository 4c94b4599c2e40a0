"""Films of motions: one verb, and who draws what."""

from __future__ import annotations

from inspect import Parameter, signature
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nosnoc_py.errors import OptionError, check_positive, check_type, unknown_name
from nosnoc_py.plotting.bodies import animate_body
from nosnoc_py.plotting.film import Film, check_integer, check_size
from nosnoc_py.plotting.film_page import write_page
from nosnoc_py.plotting.painter import TITLE, Painter, legend_above, rows_of
from nosnoc_py.plotting.planar import PlanarMotion, PlanarView
from nosnoc_py.plotting.sheets import new_figure
from nosnoc_py.solution.trajectory import Trajectory
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.described import Described
from nosnoc_py.systems.event_selected import EventSelectedSystem
from nosnoc_py.systems.hybrid import HybridSystem
from nosnoc_py.systems.pss import PDS, PSS, Heaviside
from nosnoc_py.systems.rigid_body import RigidBody

SYSTEMS = (CLS, PSS, Heaviside, PDS, HybridSystem, EventSelectedSystem, RigidBody)

WIDTH, HIGHEST, LOWEST = 5.4, 4.6, 1.0  # inches of a picture, and of the part of it with the axes
WIDE = 4.5  # inches that hold the clock and an event beside each other
LEFT, RIGHT, BOTTOM, LINE = 0.6, 0.2, 0.5, 0.22  # inches around the axes, and of a line of text above them


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
    motion = PlanarMotion(system, trajectory)
    check_positive(speed=speed, frames_per_second=frames_per_second)
    check_integer("dots_per_inch", dots_per_inch, 10, 1000)
    film = Film(trajectory, path, frames_per_second, speed, marked=any(impact for _, impact, _ in motion.marks))
    if film.path.suffix.lower() == ".html":
        return write_page(motion, film, size)
    figure, axes, painter = stage(motion, size)
    place = {"xycoords": "axes fraction", "textcoords": "offset points", "fontsize": 8, "va": "bottom"}
    clock = axes.annotate("", (0.0, 1.0), xytext=(0, 4), ha="left", **place)
    above = 4 if figure.get_figwidth() >= WIDE else 4 + 72 * LINE / 1.5
    now = axes.annotate("", (1.0, 1.0), xytext=(0, above), ha="right", color="#A03C00", **place)

    def draw(t: float) -> list[Any]:
        clock.set_text(film.clock.text(t))
        now.set_text(film.clock.now(t))
        return painter.draw(axes, t, flash=film.flash)

    return film.record(figure, dots_per_inch, draw)


def stage(
    motion: PlanarMotion, size: tuple[float, float] | None = None, title: str | None = None
) -> tuple[Figure, Axes, Painter]:
    """A figure with axes that fit a motion, a line above them for the clock, and a legend; and who draws into them."""
    if size is not None:
        check_size(size)
    handles = Painter(motion, motion.view).handles()
    head = LINE * (1.3 + rows_of(handles, WIDTH if size is None else size[0]))
    head += (0.0 if size is None or size[0] >= WIDE else LINE) + (TITLE if title else 0.0)
    width, height = size or (WIDTH, _height(motion.view, head))
    figure = new_figure(width, height, layout=None)
    wide, high = max(width - LEFT - RIGHT, 0.2 * width), max(height - BOTTOM - head, 0.2 * height)
    axes = figure.add_axes((LEFT / width, BOTTOM / height, wide / width, high / height))
    painter = Painter(motion, motion.view.with_ratio(high / wide))
    painter.prepare(axes)
    legend_above(figure, handles, title)
    return figure, axes, painter


def _height(view: PlanarView, head: float) -> float:
    """Inches that show a view in the usual width."""
    return float(min(max(view.ratio * (WIDTH - LEFT - RIGHT), LOWEST), HIGHEST) + BOTTOM + head)
