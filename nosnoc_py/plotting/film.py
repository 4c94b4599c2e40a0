"""Common parts of films: times of the frames, the clock, and writing the file whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from matplotlib.animation import AbstractMovieWriter, FFMpegWriter, PillowWriter
from matplotlib.figure import Figure
from PIL import Image

from nosnoc_py.errors import OptionError, check_positive, is_whole
from nosnoc_py.solution.arrays import Array
from nosnoc_py.solution.trajectory import Trajectory

MOST = 3000  # frames: a picture takes some 20 ms, and a file of more is of no use
SHORTEST_FRAME = 2  # of a GIF [10 ms]; programs show shorter ones slowly
FLASH = 0.4  # how long an event is written into a film [s of the film]
Note = Callable[[float], str]
NAMED_EVENTS = 2  # simultaneous events that are named in a film; four corners of a box would not fit into the line


def frame_times(trajectory: Trajectory, speed: float, frames_per_second: float) -> Array:
    """Times [s] of the frames: the first and the last one are the ends of the motion.

    Raises
    ------
    OptionError
        For a motion that takes no time, and for one that needs more than `MOST` frames.
    """
    if not trajectory.duration > 0.0:
        raise OptionError(f"the motion has no duration (t = {trajectory.t0:g} s), so there is no film to make.")
    frames = trajectory.duration / speed * frames_per_second
    if frames > MOST:
        fitting = _rounded_up(trajectory.duration * frames_per_second / MOST)
        raise OptionError(
            f"a motion of {trajectory.duration:g} s has {frames:.3g} frames at speed={speed:g}, more than {MOST}; "
            f"give speed={fitting:g} (seconds of the motion per second of the film) or more."
        )
    return np.linspace(trajectory.t0, trajectory.t0 + trajectory.duration, max(2, round(frames) + 1))


def _rounded_up(value: float) -> float:
    """The next number with two digits."""
    unit = 10.0 ** (np.floor(np.log10(value)) - 1)
    return float(f"{np.ceil(value / unit - 1e-9) * unit:.2g}")


def frame_rate(path: Path, frames_per_second: float) -> float:
    """Frames per second that a file can really have: those of a GIF last multiples of 10 ms, 20 ms at the least."""
    if path.suffix.lower() != ".gif":
        return frames_per_second
    return 100.0 / max(SHORTEST_FRAME, round(100.0 / frames_per_second))


class Clock:
    """Texts of every frame: the time, the number of impacts until then, and the events of this moment.

    `marked` says that the picture has a cross where they were. `note` is a function of the time that returns a further
    text.
    """

    def __init__(
        self, trajectory: Trajectory, times: Array, flash: float, *, marked: bool = True, note: Note | None = None
    ) -> None:
        self._note = note
        self._sign = " (×)" if marked else ""
        self._events = sorted(trajectory.events, key=lambda event: event.time)
        self._unit = trajectory.units.get("t", "s")
        # Frames are passed around without their caption: each has to say that its motion is none of the problem.
        self._failed = "" if trajectory.success else f" ({trajectory.status})"
        self._flash = flash
        # neighbouring frames differ in their time, or writers of GIFs would take them for one
        self._digits = int(np.clip(np.ceil(-np.log10(max(np.diff(times).min(), 1e-9))), 2, 9))
        self._counts = any(event.kind == "impact" for event in self._events)

    def count_impacts(self, t: float) -> int:
        """Return the number of impacts up to t, those at t included."""
        return sum(event.kind == "impact" and event.time <= t for event in self._events)

    def text(self, t: float) -> str:
        """Return the time, the number of impacts if the motion has any, the note, and the status of a failed motion."""
        text = f"t = {t:.{self._digits}f} {self._unit}"
        impacts = f", impacts{self._sign}: {self.count_impacts(t)}" if self._counts else ""
        note = "" if self._note is None else f", {self._note(t)}"
        return f"{text}{impacts}{note}{self._failed}"

    def now(self, t: float) -> str:
        """Return the words about the latest events while they are fresh: two of them, and how many more there are.

        More words would run into the clock at the other end of the line.
        """
        fresh = [event for event in self._events if 0.0 <= t - event.time <= self._flash]
        if not fresh:
            return ""
        last = [event for event in fresh if event.time == fresh[-1].time]
        words = list(dict.fromkeys(f"{event.kind.replace('_', ' ')} {event.name}" for event in last))
        more = [f"and {len(words) - NAMED_EVENTS} more"] if len(words) > NAMED_EVENTS else []
        return ", ".join([*words[:NAMED_EVENTS], *more])


class Film:
    """The times of all frames of a motion, and the clock that is written into them."""

    def __init__(
        self, trajectory: Trajectory, path: str | Path, frames_per_second: float, speed: float, *, marked: bool = True,
        note: Note | None = None,
    ) -> None:  # fmt: skip
        self.path, self.flash = Path(path), FLASH * speed
        self.rate = frame_rate(self.path, frames_per_second)
        self.times = frame_times(trajectory, speed, self.rate)
        self.clock = Clock(trajectory, self.times, self.flash, marked=marked, note=note)

    def record(self, figure: Figure, dots_per_inch: int, draw: Callable[[float], Any]) -> Path:
        """Write the file; `draw` fills each frame, and what it returns is removed before the next one."""
        with film(figure, self.path, self.rate, dots_per_inch) as take:
            for t in self.times:
                drawn = draw(float(t))
                take()
                for artist in drawn:
                    artist.remove()
        return self.path


@contextmanager
def film(figure: Figure, path: Path, frames_per_second: float, dots_per_inch: int) -> Iterator[Callable[[], None]]:
    """Give a function that takes the figure as the next frame; the file appears when all of them are there.

    Raises
    ------
    OptionError
        For another kind of file than `.gif` and `.mp4`, without ffmpeg, or where nothing can be written.
    """
    writer = writer_of(path, frames_per_second)
    if path.is_dir():
        raise OptionError(f"{path} is a folder; give the path of a file in it.")
    temporary = path.with_name(f".{path.stem}.{uuid4().hex}{path.suffix.lower()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch(exist_ok=False)
    except OSError as error:
        raise OptionError(f"{path}: nothing can be written there ({error.strerror}); give another folder.") from None
    try:
        writer.setup(figure, str(temporary), dots_per_inch)
        try:
            yield writer.grab_frame
        except BaseException:
            with suppress(Exception):  # what went wrong is more than that there is no film now
                writer.finish()
            raise
        writer.finish()
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


class GifWriter(PillowWriter):
    """A GIF whose frames have their palettes at once: as written, they need a quarter of the room."""

    def grab_frame(self, **options: Any) -> None:
        """Take the figure as it is now."""
        super().grab_frame(**options)
        self._frames[-1] = self._frames[-1].convert("RGB").convert("P", palette=Image.Palette.ADAPTIVE)


def writer_of(path: Path, frames_per_second: float) -> AbstractMovieWriter:
    """Return what writes this kind of file.

    Raises
    ------
    OptionError
        For another kind of file, or without ffmpeg.
    """
    kind = path.suffix.lower()
    if kind == ".gif":
        # Matplotlib cuts the length of a frame to whole milliseconds, also where rounding has made it a little shorter.
        return GifWriter(fps=frame_rate(path, frames_per_second) * (1.0 - 1e-9))
    if kind == ".mp4":
        program = ffmpeg()
        if program is None:
            raise OptionError(
                f'{path.name}: ffmpeg, which writes .mp4, is not installed; pip install "nosnoc_py[film]" brings one, '
                "or write a .gif."
            )
        writer = FFMpegWriter(fps=frames_per_second, codec="h264")
        # Not the setting of all of matplotlib, but this one's.
        writer.bin_path = lambda: program
        return writer
    raise OptionError(f"{path.name or path}: expected a file .gif or .mp4, or .html of a planar system.")


def ffmpeg() -> str | None:
    """Return the path of ffmpeg: on the search path, or that of the package imageio-ffmpeg; None without both."""
    if program := shutil.which("ffmpeg"):
        return program
    try:
        import imageio_ffmpeg

        return str(imageio_ffmpeg.get_ffmpeg_exe())
    except (ImportError, RuntimeError):  # the package may be there without its program
        return None


def check_integer(name: str, value: Any, low: int, high: int) -> None:
    """Raise `OptionError` for what is no whole number between two."""
    if not is_whole(value, low, high):
        raise OptionError(f"{name}: expected a whole number from {low} to {high}, given {value!r}.")


def check_size(size: Any) -> None:
    """Raise `OptionError` for what is no width and height."""
    if not isinstance(size, tuple | list) or len(size) != 2:
        raise OptionError(f"size: expected a width and a height in inches, given {size!r}.")
    check_positive(width=size[0], height=size[1])
