"""Conversion of a step of the active-set Newton method into an iterate of the MPCC, for systems without jumps.

The residuals of the iterate, evaluated by the expressions of the MPCC, check the step independently.
"""

from __future__ import annotations

import casadi as ca
import numpy as np

from nosnoc_py.discretization.grid import RIGHT, START
from nosnoc_py.functions import buffered
from nosnoc_py.reformulation.dcs import rows_of
from nosnoc_py.simulation.newton.contact_filling import places_of
from nosnoc_py.simulation.newton.engine import Elements
from nosnoc_py.simulation.newton.filippov_modes import FilippovModes
from nosnoc_py.transcription import Transcription


class FilippovIterateWriter:
    """Writes steps of the active-set Newton method into iterates of one transcription."""

    def __init__(self, model: FilippovModes, problem: Transcription) -> None:
        self._model, dcs, mpcc = model, problem.dcs, problem.mpcc
        self._blank, self._u, self._p = mpcc.w0, mpcc.parameters["u"], mpcc.parameters["p"]
        self._places = places_of(problem, lambda block: block.name)
        columns = rows_of(dcs.variables)
        self._stage = {v.name: columns[v.name] for v in dcs.variables if not v.per_element}
        self._element = {v.name: columns[v.name] for v in dcs.variables if v.per_element}
        self._edge = rows_of(v for v in dcs.variables if v.boundary)
        count = len(problem.elements) * problem.tableau.stages
        flow = ca.Function("flow", [dcs.x, dcs.z, dcs.u, dcs.p], [dcs.flow])
        self._flow = buffered(flow.map(count)) if "x'" in self._places else None

    def __call__(self, step: Elements, values: np.ndarray) -> np.ndarray:
        """Return w (n_w,) of a step at the parameters `values` of the MPCC."""
        y, places, w = step.y_stages, self._places, self._blank.copy()
        # Element lengths are unknowns relative to their mean.
        named = {"s": step.h / step.h.sum() * len(step.h), "x": step.x_stages, "x_right": step.x_right}
        named |= {name: y[..., part] for name, part in self._stage.items()}
        # Variables per element have the same value at all stages.
        named |= {name: y[:, 0, part] for name, part in self._element.items()}
        if self._edge and next(iter(self._edge)) + START in places:
            named |= self._multipliers(step, values)
        if self._flow is not None:
            named["x'"] = self._derivatives(step, values)
        for name, rows in places.items():
            w[rows] = named[name].reshape(-1)
        return w

    def _multipliers(self, step: Elements, values: np.ndarray) -> dict[str, np.ndarray]:
        """Return the continuous unknowns at the start and at the right boundaries, by name."""
        p = values[self._p]
        start = self._model.boundary_values(step.modes[0], step.x_minus[0], p)
        # Continuous multipliers are functions of state and mode; each right boundary has the mode of its own element.
        right = np.array(
            [self._model.boundary_values(mode, x, p) for mode, x in zip(step.modes, step.x_right, strict=True)]
        )
        named = {name + START: start[part] for name, part in self._edge.items()}
        return named | {name + RIGHT: right[:, part] for name, part in self._edge.items()}

    def _derivatives(self, step: Elements, values: np.ndarray) -> np.ndarray:
        """Return x' at all stages."""
        assert self._flow is not None
        x, y = (part.reshape(part.shape[0] * part.shape[1], -1) for part in (step.x_stages, step.y_stages))
        data = (np.broadcast_to(values[rows], (len(x), rows.stop - rows.start)) for rows in (self._u, self._p))
        return self._flow(x, y, *data)[0].T
