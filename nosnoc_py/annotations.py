"""Type aliases of public signatures: the values that a user may pass.

Shapes stand in the docstrings, because Python's types have none. CasADi's MX is not among them: models are written in
SX, whose derivatives are cheaper for the small functions that they consist of.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

import casadi as ca
import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from nosnoc_py.solution.sequence import Sequence as ModeSequence
    from nosnoc_py.solution.trajectory import Trajectory
    from nosnoc_py.systems.controls import PiecewiseConstant, SampledLaw

# Default of arguments that are mappings.
EMPTY: Mapping[str, Any] = MappingProxyType({})
# A function of arrays that returns an array.
ArrayFunction: TypeAlias = Callable[..., npt.NDArray[np.float64]]
# Numbers of any container: a float, a list, an array.
Numbers: TypeAlias = float | npt.ArrayLike | ca.DM
# A scalar, vector or matrix of the system's symbols, or numbers; a list is a column.
Expression: TypeAlias = ca.SX | Numbers | Sequence[ca.SX | float]
# What `casadi.SX.sym` returns; a list is a column.
Symbols: TypeAlias = ca.SX | Sequence[ca.SX]
# Values by the names of their components.
Named: TypeAlias = Mapping[str, Numbers]
# All components in order, or some of them by name.
State: TypeAlias = Numbers | Named
# Lower and upper bound, None for no bound.
Pair: TypeAlias = tuple[Numbers | None, Numbers | None] | Sequence[float | None]
# Names of components by the vector they belong to.
Names: TypeAlias = Mapping[str, Sequence[str]]
# A control: a constant (n_u,), rows on equal intervals (N, n_u), a function of t or of (t, x), or that of a result.
Control: TypeAlias = "Numbers | Callable[..., Numbers] | PiecewiseConstant | SampledLaw | Trajectory"
# Where a solver starts: a control, states and controls by name, keyframes by time, a sequence of modes, or a result.
Guess: TypeAlias = "Control | Mapping[str, object] | Mapping[float, Named] | ModeSequence"
