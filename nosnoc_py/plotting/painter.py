"""Drawing of planar systems: the shapes of a scene with matplotlib, one time after the other.

Numbers come from `PlanarMotion`, limits from `PlanarView`; here they become artists. Stacking (zorder): bands of
grounds 1, trails 2, lines 3, bodies 4, arrows 5, marks 6. Invariant: `draw` returns all artists it made, so that a film
can remove them before the next frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import FancyArrowPatch, Patch, Polygon
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from nosnoc_py.plotting.figures import COLOURS, GREY
from nosnoc_py.plotting.planar import BAND, PlanarMotion, PlanarView
from nosnoc_py.plotting.sheets import scaled
from nosnoc_py.solution.arrays import Array
from nosnoc_py.systems import scene

NAMED = dict(zip(scene.COLOURS, (*COLOURS, GREY), strict=True))
MARK, EARTH = "#000000", "#C9CDD1"  # no body has the colour of the marks unless it asks for it
HALO = [withStroke(linewidth=3.2, foreground="white")]  # behind marks: seen on dark bodies, too
SHORTEST = 0.01  # of the greater side of a picture: shorter arrows are not drawn
COLUMNS, COLUMN = 4, 1.3  # of legends at most, and their width [inches]
TITLE = 0.27  # inches
WIDE_TICK, HIGH_TICK = 0.55, 0.4  # inches between ticks, at least


class Painter:
    """Draws a motion into axes, one time after the other."""

    def __init__(self, motion: PlanarMotion, view: PlanarView) -> None:
        self.motion, self.view = motion, view
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

    def prepare(self, axes: Axes) -> None:
        """Set limits, equal scales and labels, and draw what never moves."""
        axes.set_aspect("equal")
        width, height = axes.get_window_extent().size / axes.figure.dpi
        axes.xaxis.set_major_locator(MaxNLocator(int(np.clip(width / WIDE_TICK, 1, 8))))
        axes.yaxis.set_major_locator(MaxNLocator(int(np.clip(height / HIGH_TICK, 2, 8))))
        axes.set(xlim=(self.view.left, self.view.right), ylim=(self.view.bottom, self.view.top))
        axes.set_xlabel(scaled(axes.xaxis, "", "m"), fontsize=8, labelpad=1)
        axes.set_ylabel(scaled(axes.yaxis, "", "m"), fontsize=8, labelpad=1)
        axes.tick_params(labelsize=7, length=2)
        axes.spines[["top", "right"]].set_visible(False)

    def draw(self, axes: Axes, t: float, *, flash: float = 0.0) -> list[Any]:
        """Draw all at a time, with paths and marks up to then; return what was drawn."""
        drawn: list[Any] = []
        for k, values in enumerate(self.motion.at(np.array([t]))):
            drawn += self._shape(axes, k, values, t, 1.0)
        return [*drawn, *self.draw_marks(axes, t, t, flash)]

    def draw_strobe(self, axes: Axes, moments: Array, opacities: Array) -> None:
        """Draw bodies at several times over each other, and the paths and marks of the whole motion."""
        end = float(self.motion.trajectory.t[-1])
        for k, values in enumerate(self.motion.at(moments)):
            if isinstance(self.motion.shapes[k], scene.Ground | scene.Trail):
                self._shape(axes, k, values[-1:], end, 1.0)
                continue
            for t, row, opacity in zip(moments, values, opacities, strict=True):
                self._shape(axes, k, row[None], float(t), float(opacity))
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

    def _shape(self, axes: Axes, k: int, values: Array, t: float, opacity: float) -> list[Any]:
        shape, colour = self.motion.shapes[k], self.colours[k]
        if isinstance(shape, scene.Ground):
            return self._ground(axes, shape, values)
        if isinstance(shape, scene.Trail):
            return self._trail(axes, k, values, t, colour)
        if isinstance(shape, scene.Arrow):
            return self._arrow(axes, values[0], self.scales[k], colour, opacity)
        if isinstance(shape, scene.Mark) or not np.isfinite(values).all():
            return []
        points = shape.outline(self.widest(k, values))[-1]
        if shape.filled:
            return self._body(axes, shape, points, values[0], colour, opacity)
        joints = {"marker": "o", "ms": 4.5} if isinstance(shape, scene.Line) and shape.joints else {}
        width = 1.2 if isinstance(shape, scene.Spring) else 2.6
        lines = axes.plot(*points.T, color=colour, lw=width, alpha=opacity, zorder=3, solid_capstyle="round", **joints)
        return list(lines)

    def widest(self, k: int, values: Array) -> Array:
        """Numbers with those of the whole motion before them, where the outline needs to know its greatest length."""
        if not isinstance(self.motion.shapes[k], scene.Spring):
            return values
        every = self.motion.dense[1][k]
        # The number of coils follows from the greatest length, and must not change from frame to frame.
        lengths = np.linalg.norm(every[:, 2:] - every[:, :2], axis=1)
        return np.vstack([every[np.nanargmax(lengths)], values])

    @staticmethod
    def _body(axes: Axes, shape: Any, points: Array, values: Array, colour: str, opacity: float) -> list[Any]:
        patch = Polygon(points, closed=True, fc=colour, ec="black", lw=0.8, alpha=opacity, zorder=4)
        axes.add_patch(patch)
        if isinstance(shape, scene.Disc) and shape.angle is not None:
            ends = np.array([values[:2], points[0]])
            return [patch, *axes.plot(*ends.T, color="black", lw=0.9, alpha=opacity, zorder=4)]
        return [patch]

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

    def _ground(self, axes: Axes, shape: scene.Ground, values: Array) -> list[Any]:
        points, outline = self.ground(shape, values)
        # Half of the line lies below its own band, all of it below those of others.
        surface = axes.plot(*points.T, color="black", lw=2.0 if shape.band else 1.0, zorder=0.9)
        if outline is None:
            return list(surface)
        band = Polygon(outline, closed=True, fc=EARTH, ec="none", zorder=1)
        axes.add_patch(band)
        return [band, *surface]

    def _trail(self, axes: Axes, k: int, values: Array, t: float, colour: str) -> list[Any]:
        times, dense = self.motion.dense
        # The newest point lies between two dense ones.
        past = np.vstack([dense[k][times <= t], values])
        return list(axes.plot(*past.T, color=colour, lw=0.8, alpha=0.8, zorder=2))

    def _arrow(self, axes: Axes, values: Array, scale: float, colour: str, opacity: float) -> list[Any]:
        tip = values[:2] + scale * values[2:]
        if not np.isfinite(tip).all() or np.linalg.norm(tip - values[:2]) < SHORTEST * self.view.size:
            return []
        look = {"arrowstyle": "-|>", "mutation_scale": 11, "shrinkA": 0.0, "shrinkB": 0.0, "lw": 1.6}
        arrow = FancyArrowPatch(tuple(values[:2]), tuple(tip), color=colour, alpha=opacity, zorder=5, **look)
        axes.add_patch(arrow)
        return [arrow]

    def handles(self) -> list[Any]:
        """Return the entries of the legend: shapes with a label, and marks."""
        entries: dict[str, Any] = {}
        for k, (shape, colour) in enumerate(zip(self.motion.shapes, self.colours, strict=True)):
            label = shape.label
            if isinstance(shape, scene.Arrow):
                if not label or not self.motion.longest(k):
                    continue
                text = f"{label}, at most {self.motion.longest(k):.3g} {shape.unit}".rstrip()
                entries[text] = Line2D([], [], color=colour, lw=1.6, marker=">", ms=4, label=text)
            elif label:
                line = Line2D([], [], color=colour, lw=2.4, label=label)
                entries[label] = Patch(fc=colour, ec="black", lw=0.6, label=label) if shape.filled else line
        for text, is_impact, marker in (("impact", True, "x"), ("other event", False, ".")):
            if any(impact is is_impact for _, impact, _ in self.motion.marks):
                entries[text] = Line2D([], [], ls="none", marker=marker, ms=5, mew=1.4, color=MARK, label=text)
        return list(entries.values())


def _left(points: Array) -> Array:
    """Return unit normals (n, 2) on the left of a path through points (n, 2)."""
    steps = np.gradient(points, axis=0)
    normals = np.stack([-steps[:, 1], steps[:, 0]], axis=1)
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    return normals / np.where(lengths > 0.0, lengths, 1.0)


def legend_above(figure: Figure, handles: Sequence[Any], title: str | None = None) -> None:
    """Write a title at the upper edge, and a legend in `rows_of(handles, width)` lines below."""
    high = figure.get_figheight()
    if title:
        figure.suptitle(title, fontsize=10, y=1.0 - 0.05 / high, va="top")
    if handles:
        look: dict[str, Any] = {"fontsize": 7, "handlelength": 1.4, "columnspacing": 1.2, "frameon": False}
        columns = -(-len(handles) // rows_of(handles, figure.get_figwidth()))
        look["bbox_to_anchor"] = (0.0, 0.0, 1.0, 1.0 - (TITLE / high if title else 0.0))
        figure.legend(handles=handles, loc="upper center", ncols=columns, borderaxespad=0.1, **look)


def rows_of(handles: Sequence[Any], width: float) -> int:
    """Return the number of lines of a legend in a picture of this width [inches]."""
    return -(-len(handles) // int(np.clip(width / COLUMN, 1, COLUMNS)))
