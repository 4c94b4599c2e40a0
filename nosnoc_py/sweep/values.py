"""Values on their way into a configuration: plain ones, whatever they came from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError

BITS = 63  # of whole numbers: more fit into no table, and into no array


def plain(value: Any, field: str = "") -> Any:
    """Dicts, lists, numbers and words of Python: tuples, ranges and arrays are fine where lists are.

    Raises
    ------
    OptionError
        For what neither JSON nor a table could hold, with the name of the field.
    """
    if isinstance(value, Mapping):
        return {plain(key): plain(item, f"{field}.{key}" if field else str(key)) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, ca.DM):
        value = float(value) if value.is_scalar() else value.full().squeeze().tolist()
    if isinstance(value, list | tuple | range):
        return [plain(item, field) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise OptionError(f"{field}: expected a finite number, given {value!r}; results hold no others.")
    if isinstance(value, int) and value.bit_length() > BITS:
        raise OptionError(f"{field}: expected a number of at most {BITS} bits, given one of {value.bit_length()}.")
    if isinstance(value, str) and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise OptionError(f"{field}: expected words that UTF-8 can hold, given {value!a}.")
    return value
