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

from nosnoc_py.errors import OptionError
from nosnoc_py.files import write_atomically
from nosnoc_py.plotting.film import Film, check_size
from nosnoc_py.plotting.painter import EARTH, MARK, SHORTEST, Painter
from nosnoc_py.plotting.planar import PlanarMotion, PlanarView
from nosnoc_py.solution.arrays import Array
from nosnoc_py.systems import scene

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
        "layers": sorted(layers(painter, canvas, film.times), key=lambda layer: int(layer["z"])),
    }
    # "</" would end the script within a string
    numbers = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/")
    text = files("nosnoc_py.plotting").joinpath("film_page.html").read_text(encoding="utf-8")
    text = text.replace("{{TITLE}}", escape(film.path.stem)).replace("{{LEGEND}}", _legend(painter))
    path = film.path
    if path.is_dir():
        raise OptionError(f"{path} is a folder; give the path of a file in it.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text.replace("{{DATA}}", numbers).encode())
    except OSError as error:
        raise OptionError(f"{path}: nothing can be written there ({error.strerror}); give another path.") from None
    return path


def layers(painter: Painter, canvas: Canvas, times: Array) -> list[dict[str, Any]]:
    """Return what is drawn, back to front by `z`: outlines in pixels, one for each frame, or one for all of them."""
    motion, drawn = painter.motion, list[dict[str, Any]]()
    for k, (shape, values) in enumerate(zip(motion.shapes, motion.at(times), strict=True)):
        colour = painter.colours[k]
        if isinstance(shape, scene.Mark):
            continue
        if isinstance(shape, scene.Ground):
            moves = bool(np.ptp(values, axis=0).max() > 0.0) if len(values) else False
            grounds = [painter.ground(shape, row[None]) for row in (values if moves else values[:1])]
            drawn.append(_layer("line", 0, [canvas.pixels(line) for line, _ in grounds], stroke="#000000", width=2))
            if bands := [canvas.pixels(band) for _, band in grounds if band is not None]:
                drawn.append(_layer("polygon", 1, bands, fill=EARTH))
        elif isinstance(shape, scene.Trail):
            t, dense = motion.dense
            every = max(1, len(t) // TRAIL_POINTS)
            points = [canvas.pixels(row[None]) for row in dense[k][::every]]
            ends = [canvas.pixels(row[None]) for row in values]
            past = {"t": [float(time) for time in t[::every]], "points": points}
            drawn.append({**_layer("trail", 2, ends, stroke=colour, width=1), **past})
        elif isinstance(shape, scene.Arrow):
            tips = values[:, :2] + painter.scales[k] * values[:, 2:]
            long = np.linalg.norm(tips - values[:, :2], axis=1) >= SHORTEST * painter.view.size
            pairs = np.stack([values[:, :2], tips], axis=1)
            arrows = [canvas.pixels(pair) if seen else None for pair, seen in zip(pairs, long, strict=True)]
            drawn.append(_layer("arrow", 5, arrows, stroke=colour, width=2))
        else:
            drawn += _bodies(painter, canvas, k, values)
    return drawn


def _bodies(painter: Painter, canvas: Canvas, k: int, values: Array) -> list[dict[str, Any]]:
    """Bodies and lines: outlines of all frames, and the spoke of a disc that turns."""
    shape, colour = painter.motion.shapes[k], painter.colours[k]
    # one row before those of the frames is there to tell the outline of a spring how long it becomes
    outlines = shape.outline(painter.widest(k, values))[-len(values) :]
    places = [canvas.pixels(outline) for outline in outlines]
    if not shape.filled:
        joints = isinstance(shape, scene.Line) and bool(shape.joints)
        width = 1.5 if isinstance(shape, scene.Spring) else 3.5
        return [{**_layer("line", 3, places, stroke=colour, width=width), "joints": joints}]
    body = [_layer("polygon", 4, places, fill=colour, stroke="#000000", width=1)]
    if isinstance(shape, scene.Disc) and shape.angle is not None:
        spokes = np.stack([values[:, :2], outlines[:, 0]], axis=1)
        body.append(_layer("line", 4, [canvas.pixels(spoke) for spoke in spokes], stroke="#000000", width=1))
    return body


def _layer(kind: str, z: int, frames: list[list[float] | None], **look: Any) -> dict[str, Any]:
    return {"kind": kind, "z": z, "frames": frames, **look}


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
    labels: dict[str, str] = {}
    for k, shape in enumerate(painter.motion.shapes):
        text = shape.label
        if isinstance(shape, scene.Arrow) and text:
            if not painter.motion.longest(k):
                continue
            text = f"{text}, at most {painter.motion.longest(k):.3g} {shape.unit}".rstrip()
        if text:
            labels[text] = painter.colours[k]
    return " ".join(
        f'<span><span style="color:{colour}">&#9632;</span> {escape(text)}</span>' for text, colour in labels.items()
    )
