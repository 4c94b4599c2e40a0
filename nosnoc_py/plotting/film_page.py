"""Films for the browser: one HTML file with the numbers of all frames and a small script that draws them on a canvas.

The numbers are those that matplotlib's films draw: outlines of `PlanarMotion.at`, colours, scales and grounds of the
`Painter`, texts of the clock. Places are in pixels of a canvas of fixed size, rounded to a tenth, which keeps files
small; the browser scales the canvas. The file asks for nothing from elsewhere, so that it works from a disk and in ten
years.
"""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from nosnoc_py.plotting.film import Film, check_size
from nosnoc_py.plotting.painter import MARK, Layer, Painter
from nosnoc_py.plotting.planar import PlanarMotion, PlanarView
from nosnoc_py.plotting.sheets import write_file
from nosnoc_py.solution.arrays import Array

WIDTH, HIGHEST = 760, 620  # pixels of the picture
PIXELS_PER_INCH = 96  # of the size that a user gives, as browsers have it
TRAIL_POINTS = 2000  # of a path: more are not seen


class Canvas:
    """Pixels (from the upper left corner) of places [m]."""

    def __init__(self, view: PlanarView, width: int, height: int) -> None:
        self.width, self.height = width, height
        self.view = view.with_ratio(height / width)
        self.scale = width / (self.view.right - self.view.left)

    def pixels(self, points: Array) -> list[float] | None:
        """Return x and y of points (n, 2) one after the other; None where one of them is not finite."""
        if not np.isfinite(points).all():
            return None
        across, up = points[:, 0] - self.view.left, self.view.top - points[:, 1]
        return [float(value) for value in np.round(self.scale * np.column_stack([across, up]), 1).ravel()]


def write_page(motion: PlanarMotion, film: Film, size: tuple[float, float] | None = None) -> Path:
    """Write a page with a film of a planar motion; return its path.

    Parameters
    ----------
    motion : PlanarMotion
    film : Film
        Times of the frames, the clock and the path of the file.
    size : (2,), optional
        Width and height of the picture [inches].

    Raises
    ------
    OptionError
        If the file cannot be written.
    """
    if size is None:
        size = WIDTH / PIXELS_PER_INCH, min(WIDTH * motion.view.ratio, HIGHEST) / PIXELS_PER_INCH
    check_size(size)
    width, height = (max(1, round(PIXELS_PER_INCH * side)) for side in size)
    canvas = Canvas(motion.view, width, height)
    painter = Painter(motion, canvas.view)
    data = {
        "width": width,
        "height": height,
        "rate": film.rate,
        "flash": film.flash,
        "t": [float(t) for t in film.times],
        "clock": [film.clock.text(float(t)) for t in film.times],
        "now": [film.clock.now(float(t)) for t in film.times],
        "ticks": _ticks(canvas),
        "mark": MARK,
        "marks": [[float(t), int(impact), *(canvas.pixels(place[None]) or [])] for t, impact, place in motion.marks],
        "layers": [_layer(one, canvas) for one in sorted(painter.layers(film.times), key=lambda one: one.z)],
    }
    # "</" would end the script within a string
    numbers = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/")
    text = files("nosnoc_py.plotting").joinpath("film_page.html").read_text(encoding="utf-8")
    text = text.replace("{{TITLE}}", escape(film.path.stem)).replace("{{LEGEND}}", _legend(painter))
    write_file(film.path, text.replace("{{DATA}}", numbers).encode())
    return film.path


def _layer(layer: Layer, canvas: Canvas) -> dict[str, Any]:
    """A layer in pixels."""
    past = {}
    if layer.past is not None:
        every = max(1, len(layer.past[0]) // TRAIL_POINTS)
        t, points = layer.past[0][::every], layer.past[1][::every]
        past = {"t": t.tolist(), "points": [canvas.pixels(point[None]) for point in points]}
    look = {"stroke": layer.stroke, "fill": layer.fill, "width": round(PIXELS_PER_INCH / 72 * layer.width, 1)}
    frames = [canvas.pixels(points) for points in layer.frames]
    return {"kind": layer.kind, "frames": frames, "joints": layer.joints, **look, **past}


def _ticks(canvas: Canvas) -> dict[str, list[list[Any]]]:
    """Pixels and labels [m] of the marks on the lower and the left edge."""
    view = canvas.view
    across = [float(x) for x in MaxNLocator(8).tick_values(view.left, view.right) if view.left < x < view.right]
    up = [float(y) for y in MaxNLocator(6).tick_values(view.bottom, view.top) if view.bottom < y < view.top]
    return {
        "x": [[round(canvas.scale * (x - view.left), 1), f"{x:.4g}"] for x in across],
        "y": [[round(canvas.scale * (view.top - y), 1), f"{y:.4g}"] for y in up],
    }


def _legend(painter: Painter) -> str:
    """Labels of shapes beside a square of their colour."""
    labels = {text: colour for text, _, colour in painter.labels()}
    square = '<span><span style="color:{}">&#9632;</span> {}</span>'
    return " ".join(square.format(colour, escape(text)) for text, colour in labels.items())
