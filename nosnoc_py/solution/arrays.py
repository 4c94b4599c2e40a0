"""Read-only arrays of a checked shape: every number in a result is stored as one.

Results are shared between a user's script, plots and later solves, so an assignment into one of their arrays would
change the others without a trace. Arrays are copied once, checked, and locked.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from nosnoc_py.errors import TranscriptionError

Array = npt.NDArray[np.float64]


def read_only(value: npt.ArrayLike, name: str, *shape: int | str) -> Array:
    """Copy a value into a read-only array of doubles and check its shape.

    Parameters
    ----------
    value
        Anything NumPy can convert.
    name
        Name of the field, for the message.
    *shape
        One entry per axis: a number is required, a word (the name of the axis) admits any length.

    Raises
    ------
    TranscriptionError
        If the shape differs.
    """
    array = np.array(value, dtype=float)
    # A word admits any length: replace it by the length that is there, and compare.
    wanted = tuple(n if isinstance(s, str) else s for s, n in zip(shape, array.shape, strict=False))
    if array.ndim != len(shape) or array.shape != wanted:
        expected = ", ".join(str(axis) for axis in shape) + ("," if len(shape) == 1 else "")
        raise TranscriptionError(f"{name}: given an array of shape {array.shape}, expected ({expected}).")
    array.setflags(write=False)
    return array


def inside(t: npt.ArrayLike, t_0: float, t_f: float) -> Array:
    """Return times as a 1-D array clipped to [t_0, t_f]; refuse what lies outside by more than round-off.

    Raises
    ------
    TranscriptionError
        If a time is no number, is NaN, or leaves the interval by more than 1e-9, relative to its larger end.
    """
    if isinstance(t, float) and t_0 <= t <= t_f:  # by far the most calls
        return np.array([t])
    try:
        times = np.atleast_1d(np.asarray(t, dtype=float))
    except (TypeError, ValueError, OverflowError):
        raise TranscriptionError(f"t: expected a time [s] or several of them, given {t!r}.") from None
    if times.ndim != 1:
        raise TranscriptionError(f"t: given an array of shape {times.shape}, expected a scalar or (times,).")
    # Sums of lengths of elements differ from the end by round-off.
    slack = 1e-9 * max(abs(t_0), abs(t_f))
    # Test for legal times, not for illegal ones: every comparison with NaN is false, so NaN is refused.
    legal = (times >= t_0 - slack) & (times <= t_f + slack)
    if not legal.all():
        raise TranscriptionError(
            f"t = {times[~legal][0]:g} lies outside of the trajectory's interval [{t_0:g}, {t_f:g}]."
        )
    return np.clip(times, t_0, t_f)
