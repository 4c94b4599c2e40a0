"""Films of the problems, small enough for a page: `python -m problems.gallery`.

Every problem of `FILMS` has a function `film(path)`, which solves it and writes a film; machines are only
simulated. The films are reduced to one size and written to a folder, `docs/images/gallery` by default, each with a
still from its middle. `docs/gallery.md` shows them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image, ImageSequence

import nosnoc_py as ns
from nosnoc_py.progress import Progress
from problems.benchmarks.orders import check_names
from problems.machines import MACHINES
from problems.runner import Report, program, tabled
from problems.settings import Settings

# Names of modules in `problems`, in the order of the page.
FILMS = (
    "disc_shot",
    "disc_manipulation",
    "kneed_hopper",
    "biped_step",
    "two_link_push",
    "arm_pushes_box",
    "quadruped_jump",
    "walled_cart_pole",
    "paddle_loop",
    "tumbling_box",
    "puck_identification",
)
WIDTH = 320  # pixels: two films fit side by side on a page
FRAMES = 60  # at most: a film of a page is some hundred kB then


def reduced(source: Path, target: Path) -> int:
    """Write a film in a smaller size, with a still from its middle beside it; return the number of its frames.

    Parameters
    ----------
    source, target : Path
        GIFs. The still has the name of the target with the ending `.png`.
    """
    with Image.open(source) as film:
        every = -(-int(getattr(film, "n_frames", 1)) // FRAMES)
        duration = every * int(film.info.get("duration", 50))
        frames = [frame.convert("RGB") for k, frame in enumerate(ImageSequence.Iterator(film)) if k % every == 0]
    size = (WIDTH, round(WIDTH * frames[0].height / frames[0].width))
    small = [frame.resize(size, Image.Resampling.LANCZOS) for frame in frames]
    small[len(small) // 2].save(target.with_suffix(".png"))
    # One palette for all frames: palettes of their own make static parts flicker.
    palette = small[len(small) // 2].quantize(64)
    first, *rest = (frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in small)
    first.save(target, save_all=True, append_images=rest, duration=duration, loop=0, optimize=True)
    return len(small)


def filmed(write: Callable[[Path], Any], target: Path) -> tuple[Any, dict[str, Any]]:
    """Have a film written to a temporary place and reduced; return what `write` returns, and a row about the film."""
    started = time.monotonic()
    with TemporaryDirectory() as work:
        full = Path(work) / target.name
        result, frames = write(full), reduced(full, target)
    size = target.stat().st_size // 1000
    return result, {"frames": frames, "kB": size, "seconds": time.monotonic() - started}


def experiment(*, names: Sequence[str] = (), output: str = "docs/images/gallery") -> list[dict[str, object]]:
    """Make the films and return a row for each.

    Parameters
    ----------
    names : tuple of str
        Of problems and machines, by default all.
    output : str
        A folder.

    Raises
    ------
    OptionError
        For an unknown name.
    """
    check_names(names=(names, (*FILMS, *MACHINES)))
    folder, rows = Path(output), []
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or (*FILMS, *MACHINES):
        _, row = filmed(partial(_film, name), folder / f"{name}.gif")
        rows.append({"film": name, **row})
    return rows


def _film(name: str, path: Path) -> Path:
    if name in MACHINES:
        system, motion = MACHINES[name]()
        return ns.animate(system, motion, path)
    return Path(import_module(f"problems.{name}").film(path))


def run(settings: Settings, progress: Progress) -> Report:
    """Make the films and report."""
    started = time.monotonic()
    rows = experiment(**settings.arguments)
    return tabled({"films": rows, "wall_seconds": time.monotonic() - started}, True, {"films": rows})


PROGRAM = program(__name__, run, experiment, quick={"names": ("kneed_hopper",)})
