"""How the segments of an event-selected motion carry a variation: exact derivatives of its Runge-Kutta steps.

Everything is differentiated with respect to w = (x, p), a state whose last components do not move. With the Jacobians
J_i = f_w at the stages of a step of the frozen mode and length h,

    K_i = J_i (I + h sum_j a_ij K_j),    W+ = (I + h sum_i b_i K_i) W.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import casadi as ca
import numpy as np

from nosnoc_py.discretization.butcher import ButcherTableau
from nosnoc_py.errors import OptionError
from nosnoc_py.functions import buffered
from nosnoc_py.simulation.event_selected.functions import Fields
from nosnoc_py.simulation.event_selected.record import Record
from nosnoc_py.systems.event_selected import EventSelectedSystem, arity

Array = np.ndarray
# Numbers that the Jacobians of one batch of points may take, and points of a batch at most.
BATCH_SIZE, BATCH_POINTS = 500_000, 256


@dataclass(frozen=True, eq=False, kw_only=True)
class Variations:
    """Derivatives of a system.

    Parameters
    ----------
    n_x, n_w : int
        Numbers of states, and of states and parameters.
    batch : int
        Points that are worth one call of `flow_w`.
    flow_w : function (points, n_x), (points, m), (n_p,) -> (points, n_w, n_w)
        Derivative of (f, 0).
    guards_w : function (n_x,), (n_p,) -> (2, m, n_w)
        Derivatives of the functions of the guards, and of those that clear their bits.
    """

    n_x: int
    n_w: int
    batch: int
    flow_w: Callable[[Array, Array, Array], Array]
    guards_w: Callable[[Array, Array], Array]


def variations_of(system: EventSelectedSystem, fields: Fields) -> Variations:
    """Derivatives of a system; those of a CasADi system are built once.

    Raises
    ------
    OptionError
        For a system of NumPy functions without `flow_jacobian`, or with parameters.
    """
    if not system.symbolic:
        return _numeric(system, fields)
    if system not in _BUILT:
        _BUILT[system] = _symbolic(system)
    return _BUILT[system]


_BUILT: WeakKeyDictionary[EventSelectedSystem, Variations] = WeakKeyDictionary()


def transports(variations: Variations, record: Record, tableau: ButcherTableau, p: Array) -> Iterator[Array]:
    """Derivatives (n_w, n_w) of the segments, one after the other."""
    length = max(1, variations.batch // tableau.stages)
    for start in range(0, len(record.h), length):
        yield from _batch(variations, record, tableau, p, slice(start, min(start + length, len(record.h))))


def _batch(variations: Variations, record: Record, tableau: ButcherTableau, p: Array, part: slice) -> Array:
    """Derivatives (segments, n_w, n_w) of some segments; an Euler step is one with its first stage only."""
    lengths, mode, n_w = np.asarray(record.h[part]), record.mode[part], variations.n_w
    count, n_s = len(lengths), tableau.stages
    offsets = np.einsum("ij,sjn->sin", tableau.a, record.slopes[part])
    offsets[np.asarray(record.euler[part])] = 0.0  # where its other stages would be, f need not be defined
    stages = record.x[part][:, None] + lengths[:, None, None] * offsets
    jacobians = variations.flow_w(stages.reshape(-1, variations.n_x), np.repeat(mode, n_s, axis=0), p)
    jacobians = jacobians.reshape(count, n_s, n_w, n_w)
    slopes = np.zeros_like(jacobians)
    for i in range(n_s):
        inner = np.eye(n_w) + lengths[:, None, None] * np.einsum("j,sjkl->skl", tableau.a[i, :i], slopes[:, :i])
        slopes[:, i] = jacobians[:, i] @ inner
    weights = np.where(np.asarray(record.euler[part])[:, None], np.eye(n_s)[0], tableau.b)
    return np.asarray(np.eye(n_w) + lengths[:, None, None] * np.einsum("sj,sjkl->skl", weights, slopes))


def _symbolic(system: EventSelectedSystem) -> Variations:
    """Of a system in CasADi: one function for a whole batch of points."""
    n_x, n_w, m = system.n_x, system.n_x + system.n_p, len(system.guards)
    w = ca.vertcat(system.x, system.p)
    batch = int(np.clip(BATCH_SIZE // (n_w * n_w), 1, BATCH_POINTS))
    slope = ca.densify(ca.jacobian(system.flow, w))
    flow_w = buffered(ca.Function("flow_w", [system.x, system.mode, system.p], [slope]).map(batch))
    backs = [0.0 if guard.back is None else guard.back for guard in system.guards]
    functions = ca.vertcat(*(guard.function for guard in system.guards), *backs)
    guards_w = buffered(ca.Function("guards_w", [system.x, system.p], [ca.densify(ca.jacobian(functions, w))]))

    def flow(x: Array, mode: Array, p: Array) -> Array:
        found = np.zeros((len(x), n_w, n_w))
        points, modes = np.zeros((batch, n_x)), np.zeros((batch, m))
        for start in range(0, len(x), batch):
            count = len(x[start : start + batch])
            points[:count], modes[:count] = x[start : start + batch], mode[start : start + batch]
            (matrices,) = flow_w(points, modes, p)
            found[start : start + count, :n_x] = matrices.reshape(n_x, batch, n_w).transpose(1, 0, 2)[:count]
        return found

    def guards(x: Array, p: Array) -> Array:
        return np.asarray(guards_w(x, p)[0].reshape(2, m, n_w))

    return Variations(n_x=n_x, n_w=n_w, batch=batch, flow_w=flow, guards_w=guards)


def _numeric(system: EventSelectedSystem, fields: Fields) -> Variations:
    """Of a system of NumPy functions: point by point, as its functions are written."""
    if system.n_p:
        raise OptionError(
            f"sensitivities: the system is made of NumPy functions and has {system.n_p} parameters, and nothing says "
            "how the functions change with them; write it in CasADi, or put the parameters into the state, at rest."
        )
    function: Any = system.flow_jacobian
    if function is None:
        raise OptionError(
            "sensitivities: a system of NumPy functions needs flow_jacobian, d f / d x as a function of (x, mode); "
            "give it, or write the system in CasADi, which differentiates it."
        )
    n_x, more = system.n_x, arity(function) - 2

    def flow(x: Array, mode: Array, p: Array) -> Array:
        pairs = zip(x, mode, strict=True)
        return np.array([function(point, bits, *(p,) * more) for point, bits in pairs]).reshape(-1, n_x, n_x)

    batch = int(np.clip(BATCH_SIZE // (n_x * n_x), 1, BATCH_POINTS))
    return Variations(n_x=n_x, n_w=n_x, batch=batch, flow_w=flow, guards_w=fields.gradients)
