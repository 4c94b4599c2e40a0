"""Drawing of planar systems: the shapes of a scene with matplotlib, one time after the other.

Numbers come from `PlanarMotion`, limits from `PlanarView`; here they become layers, which `film_page` draws, too, and
artists. Stacking (zorder): bands of grounds 1, trails 2, lines 3, bodies 4, arrows 5, marks 6. Invariant: `draw`
returns all artists it made, so that a film can remove them before the next frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch, Polygon
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from nosnoc_py.plotting.planar import BAND, PlanarMotion, PlanarView
from nosnoc_py.plotting.sheets import COLOURS, GREY, scaled
from nosnoc_py.solution.arrays import Array
from nosnoc_py.systems import scene

NAMED = dict(zip(scene.COLOURS, (*COLOURS, GREY), strict=True))
BELOW = 2  # layers up to here, grounds and trails, are below all bodies
MARK, EARTH = "#000000", "#C9CDD1"  # no body has the colour of the marks unless it asks for it
HALO = [withStroke(linewidth=3.2, foreground="white")]  # behind marks: seen on dark bodies, too
SHORTEST = 0.01  # of the greater side of a picture: shorter arrows are not drawn
WIDE_TICK, HIGH_TICK = 0.55, 0.4  # inches between ticks, at least


@dataclass(frozen=True, eq=False, kw_only=True)
class Layer:
    """What is drawn of a shape over time.

    Parameters
    ----------
    kind : {"line", "polygon", "arrow", "trail"}
    z : float
        Higher layers cover lower ones.
    frames : sequence of (n, 2)
        Outlines [m], one for each frame, or one for all of them; not finite where there is nothing.
    stroke, fill : str
        Colours, empty for none.
    width : float
        Of the stroke [points].
    joints : bool
        True to mark the points of a line.
    past : (times, places), optional
        Of a trail, which ends at the point of its frame.
    """

    kind: str
    z: float
    frames: Sequence[Array] | Array
    stroke: str = ""
    fill: str = ""
    width: float = 0.0
    joints: bool = False
    past: tuple[Array, Array] | None = None

    def at(self, k: int) -> Array:
        """Return the outline of a frame."""
        return self.frames[k if len(self.frames) > 1 else 0]


class Painter:
    """Draws a motion into axes, one time after the other."""

    projection = None

    def __init__(self, motion: PlanarMotion, view: PlanarView | None = None) -> None:
        self.motion, self.view = motion, view or motion.view
        self.trajectory = motion.trajectory
        self.scales = motion.scales(motion.view.size)
        free = iter(range(10**9))
        # Only bodies without a colour of their own take one of the cycle.
        self.colours = [self._colour(shape, free) for shape in motion.shapes]

    @staticmethod
    def _colour(shape: scene.PlanarShape, free: Any) -> str:
        chosen = shape.colour
        if chosen is not None:
            return NAMED[chosen]
        if isinstance(shape, scene.Arrow):
            return MARK
        if isinstance(shape, scene.Trail | scene.Spring):
            return "#555555"
        return COLOURS[:6][next(free) % 6] if shape.body else MARK

    @property
    def ratio(self) -> float:
        """Height over width of the picture."""
        return self.view.ratio

    def prepare(self, axes: Axes) -> None:
        """Set what decides how much room axes have: their labels and ticks."""
        self._fill(axes)
        axes.set_xlabel(scaled(axes.xaxis, "", "m"), fontsize=8, labelpad=1)
        axes.set_ylabel(scaled(axes.yaxis, "", "m"), fontsize=8, labelpad=1)
        axes.tick_params(labelsize=7, length=2)
        axes.spines[["top", "right"]].set_visible(False)

    def settle(self, axes: Axes) -> None:
        """Fill axes that have found their place."""
        self._fill(axes)
        axes.set(aspect="equal")
        axes.apply_aspect()

    def _fill(self, axes: Axes) -> None:
        """Set the limits that have equal scales where the axes are now, and as many ticks as there is room for."""
        width, height = axes.get_position(original=True).size * axes.figure.get_size_inches()
        self.view = self.motion.view.with_ratio(height / width)
        axes.xaxis.set_major_locator(MaxNLocator(int(np.clip(width / WIDE_TICK, 1, 8))))
        axes.yaxis.set_major_locator(MaxNLocator(int(np.clip(height / HIGH_TICK, 2, 8))))
        axes.set(xlim=(self.view.left, self.view.right), ylim=(self.view.bottom, self.view.top))

    def layers(self, times: Array) -> list[Layer]:
        """Return what is drawn at times (frames,), in the order of the shapes."""
        return [layer for k, values in enumerate(self.motion.at(times)) for layer in self._layers(k, values)]

    def draw(self, axes: Axes, t: float, *, flash: float = 0.0) -> list[Any]:
        """Draw all at a time, with paths and marks up to then; return what was drawn."""
        drawn = [artist for layer in self.layers(np.array([t])) for artist in _paint(axes, layer, 0, t)]
        return [*drawn, *self.draw_marks(axes, t, t, flash)]

    def draw_strobe(self, axes: Axes, moments: Array, opacities: Array) -> None:
        """Draw bodies at several times over each other, and the paths and marks of the whole motion."""
        end = float(self.motion.trajectory.t[-1])
        for layer in self.layers(moments):
            for k in range(len(moments)) if layer.z > BELOW else [-1]:
                _paint(axes, layer, k, end, float(opacities[k]))
        self.draw_marks(axes, np.inf, end, 0.0)

    def draw_marks(self, axes: Axes, until: float, t: float, flash: float) -> list[Any]:
        """Draw the places of all events until a time, those that are fresh with a ring."""
        drawn: list[Any] = []
        for kind, marker, ring in ((True, "x", 16), (False, ".", 9)):
            events = [(time, place) for time, impact, place in self.motion.marks if impact is kind and time <= until]
            look: dict[str, Any] = {"ls": "none", "color": MARK, "mew": 1.4, "zorder": 6, "clip_on": False}
            # Crosses on dark bodies would not be seen.
            look["path_effects"] = HALO
            if events:
                drawn += axes.plot(*np.array([place for _, place in events]).T, marker=marker, ms=5, **look)
            fresh = [place for time, place in events if 0.0 <= t - time < flash]
            if fresh:
                drawn += axes.plot(*np.array(fresh).T, marker="o", ms=ring, mfc="none", alpha=0.8, **look)
        return drawn

    def _layers(self, k: int, values: Array) -> list[Layer]:
        shape, colour = self.motion.shapes[k], self.colours[k]
        if isinstance(shape, scene.Mark):
            return []
        if isinstance(shape, scene.Ground):
            moves = bool((values != values[0]).any())
            surfaces, bands = zip(
                *(self.ground(shape, row[None]) for row in (values if moves else values[:1])), strict=True
            )
            # Half of the line lies below its own band, all of it below those of others.
            surface = Layer(kind="line", z=0.9, frames=surfaces, stroke="#000000", width=2.0 if shape.band else 1.0)
            return [Layer(kind="polygon", z=1, frames=bands, fill=EARTH), surface] if shape.band else [surface]
        if isinstance(shape, scene.Trail):
            times, dense = self.motion.dense
            past = times, dense[k]
            return [Layer(kind="trail", z=BELOW, frames=values[:, None], stroke=colour, width=0.8, past=past)]
        if isinstance(shape, scene.Arrow):
            pairs = np.stack([values[:, :2], values[:, :2] + self.scales[k] * values[:, 2:]], axis=1)
            long = np.linalg.norm(pairs[:, 1] - pairs[:, 0], axis=1) >= SHORTEST * self.view.size  # not where it is NaN
            pairs[~long] = np.nan
            return [Layer(kind="arrow", z=5, frames=pairs, stroke=colour, width=1.6)]
        # One row before those of the frames is there to tell the outline of a spring how long it becomes.
        outlines = shape.outline(self.widest(k, values))[-len(values) :]
        if not shape.filled:
            joints = isinstance(shape, scene.Line) and bool(shape.joints)
            width = 1.2 if isinstance(shape, scene.Spring) else 2.6
            return [Layer(kind="line", z=3, frames=outlines, stroke=colour, width=width, joints=joints)]
        body = [Layer(kind="polygon", z=4, frames=outlines, fill=colour, stroke="#000000", width=0.8)]
        if isinstance(shape, scene.Disc) and shape.angle is not None:
            spokes = np.stack([values[:, :2], outlines[:, 0]], axis=1)
            body.append(Layer(kind="line", z=4, frames=spokes, stroke="#000000", width=0.9))
        return body

    def widest(self, k: int, values: Array) -> Array:
        """Numbers with those of the whole motion before them, where the outline needs to know its greatest length."""
        if not isinstance(self.motion.shapes[k], scene.Spring):
            return values
        every = self.motion.dense[1][k]
        # The number of coils follows from the greatest length, and must not change from frame to frame.
        lengths = np.linalg.norm(every[:, 2:] - every[:, :2], axis=1)
        return np.vstack([every[np.nanargmax(lengths)], values])

    def ground(self, shape: scene.Ground, values: Array) -> tuple[Array, Array | None]:
        """Return the surface (n, 2) of a ground and the polygon (2 n, 2) of the band below it, None without one [m]."""
        size = self.view.size
        if shape.endless:
            point, normal = values[0, :2], values[0, 2:] / (np.linalg.norm(values[0, 2:]) or 1.0)
            along = np.array([normal[1], -normal[0]])
            middle = np.array([(self.view.left + self.view.right) / 2, (self.view.bottom + self.view.top) / 2])
            foot = middle - (middle - point) @ normal * normal
            points, depth = np.array([foot - 2 * size * along, foot + 2 * size * along]), 4.0 * size
        else:
            points, depth = values[0].reshape(-1, 2), 0.6 * BAND * size
        return points, np.vstack([points, (points - depth * _left(points))[::-1]]) if shape.band else None

    def labels(self) -> list[tuple[str, scene.PlanarShape, str]]:
        """Return the texts of the legend, each with its shape and colour."""
        entries = []
        for k, (shape, colour) in enumerate(zip(self.motion.shapes, self.colours, strict=True)):
            text = shape.label
            if text and isinstance(shape, scene.Arrow):
                longest = self.motion.longest(k)
                text = f"{text}, at most {longest:.3g} {shape.unit}".rstrip() if longest else ""
            if text:
                entries.append((text, shape, colour))
        return entries

    def handles(self) -> list[Any]:
        """Return the entries of the legend: shapes with a label, and marks."""
        entries: dict[str, Any] = {}
        for text, shape, colour in self.labels():
            arrow = {"lw": 1.6, "marker": ">", "ms": 4} if isinstance(shape, scene.Arrow) else {"lw": 2.4}
            patch = {"fc": colour, "ec": "black", "lw": 0.6, "label": text}
            entries[text] = Patch(**patch) if shape.filled else Line2D([], [], color=colour, label=text, **arrow)
        for text, is_impact, marker in (("impact", True, "x"), ("other event", False, ".")):
            if any(impact is is_impact for _, impact, _ in self.motion.marks):
                entries[text] = Line2D([], [], ls="none", marker=marker, ms=5, mew=1.4, color=MARK, label=text)
        return list(entries.values())


def _paint(axes: Axes, layer: Layer, k: int, t: float, opacity: float = 1.0) -> list[Any]:
    """Draw frame k of a layer; return what was drawn."""
    points, look = layer.at(k), {"lw": layer.width, "zorder": layer.z}
    if layer.past is not None:
        # The newest point lies between two dense ones.
        points, look["alpha"] = np.vstack([layer.past[1][layer.past[0] <= t], points]), 0.8
    elif not np.isfinite(points).all():
        return []
    else:
        look["alpha"] = opacity
    if layer.kind == "polygon":
        return [axes.add_patch(Polygon(points, closed=True, fc=layer.fill, ec=layer.stroke or "none", **look))]
    if layer.kind == "arrow":
        tip: dict[str, Any] = {"arrowstyle": "-|>", "mutation_scale": 11, "shrinkA": 0.0, "shrinkB": 0.0}
        return [axes.add_patch(FancyArrowPatch(*map(tuple, points), color=layer.stroke, **tip, **look))]
    joints: dict[str, Any] = {"marker": "o", "ms": 4.5} if layer.joints else {}
    return list(axes.plot(*points.T, color=layer.stroke, solid_capstyle="round", **joints, **look))


def _left(points: Array) -> Array:
    """Return unit normals (n, 2) on the left of a path through points (n, 2)."""
    steps = np.gradient(points, axis=0)
    normals = np.stack([-steps[:, 1], steps[:, 0]], axis=1)
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    return normals / np.where(lengths > 0.0, lengths, 1.0)
