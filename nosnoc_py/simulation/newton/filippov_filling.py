"""From the unknowns of stages to an iterate of the MPCC, for systems without jumps."""

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


class FilippovFilling:
    """Writes steps of the active-set Newton into iterates of one transcription; built once."""

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
        """Return w of a step at the parameters `values` of the MPCC."""
        y, places, w = step.y_stages, self._places, self._blank.copy()
        found = {"s": step.h / step.h.sum() * len(step.h), "x": step.x_stages, "x_right": step.x_right}
        found |= {name: y[..., part] for name, part in self._stage.items()}
        found |= {name: y[:, 0, part] for name, part in self._element.items()}
        if self._edge and next(iter(self._edge)) + START in places:
            found |= self._edges(step, values)
        if self._flow is not None:
            found["x'"] = self._derivatives(step, values)
        for name, rows in places.items():
            w[rows] = found[name].reshape(-1)
        return w

    def _edges(self, step: Elements, values: np.ndarray) -> dict[str, np.ndarray]:
        """Continuous unknowns at the beginning and at the right boundaries."""
        p = values[self._p]
        start = self._model.edge(step.modes[0], step.x_minus[0], p)
        right = np.array([self._model.edge(mode, x, p) for mode, x in zip(step.modes, step.x_right, strict=True)])
        named = {name + START: start[part] for name, part in self._edge.items()}
        return named | {name + RIGHT: right[:, part] for name, part in self._edge.items()}

    def _derivatives(self, step: Elements, values: np.ndarray) -> np.ndarray:
        assert self._flow is not None
        x, y = (part.reshape(part.shape[0] * part.shape[1], -1) for part in (step.x_stages, step.y_stages))
        data = (np.broadcast_to(values[rows], (len(x), rows.stop - rows.start)) for rows in (self._u, self._p))
        return self._flow(x, y, *data)[0].T
