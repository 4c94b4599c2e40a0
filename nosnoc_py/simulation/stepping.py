"""One simulation step as an MPCC, solved from several initial guesses.

Used if the active-set Newton method fails or does not fit the method. The guesses are tried in the order of their
probability: a prediction with fewer stages, the state at rest, with impulses, and generic ones.
"""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np

from nosnoc_py.discretization.guess import TimeGrid, fill
from nosnoc_py.mpcc.auto import Auto
from nosnoc_py.mpcc.homotopy import Homotopy
from nosnoc_py.mpcc.strategy import Solvers, SolverState, Strategy
from nosnoc_py.roles import Role
from nosnoc_py.simulation.newton.contact_filling import ContactIterateWriter, is_exact
from nosnoc_py.simulation.newton.contact_newton import ContactNewton, ContactStep
from nosnoc_py.solution import Trajectory
from nosnoc_py.status import seconds_to
from nosnoc_py.systems.cls import CLS
from nosnoc_py.tableaus import tableau
from nosnoc_py.tolerances import RESTING_SOLVED
from nosnoc_py.transcription import Transcription, rest_velocity_of

SIMULATION_SOLVER = Homotopy(
    steering="direct",
    sigma_min=1e-12,
    complementarity_tolerance=1e-10,
    infeasibility_tolerance=1e-9,
    max_iterations=300,
)
SECOND_SOLVER = Auto()
# Fraction of sigma_0 for a start from a prediction: a large relaxation parameter would lose it.
PREDICTED = 1e-2


# Program, guess of w, solver, and its first relaxation parameter.
Attempt = tuple[Solvers, np.ndarray, Strategy, float | None]


class Attempts(ABC):
    """Base class for a step as an MPCC, solved from several guesses, the likelier first."""

    def __init__(self, problem: Transcription, solver: Strategy) -> None:
        self._problem, self._solver = problem, solver

    def __call__(self, values: np.ndarray, deadline: float = np.inf) -> Iterator[SolverState]:
        """Yield the result of one attempt after the other, until a stamp of time.monotonic()."""
        for solvers, w, solver, sigma in self._attempts(values):
            yield solver.run(solvers.mpcc, w, values, sigma=sigma, solvers=solvers, time_limit=seconds_to(deadline))
            if time.monotonic() > deadline:
                return

    @abstractmethod
    def _attempts(self, values: np.ndarray) -> Iterator[Attempt]:
        """Yield the attempts at the parameters of the step."""


class MPCCStep(Attempts):
    """A step with contacts as an MPCC."""

    def __init__(self, system: CLS, problem: Transcription, solver: Strategy) -> None:
        super().__init__(problem, solver)
        self._system = system
        self._sigma = solver.sigma_0 if isinstance(solver, Homotopy) else None
        self._contacts = system.mechanics.touching
        self._solvers: dict[bytes, Solvers] = {}
        cone = problem.fesdj.friction_cone
        self._is_guessed = cone == "polyhedral" and not is_exact(system, cone)

    def _attempts(self, values: np.ndarray) -> Iterator[Attempt]:
        layout = self._problem.mpcc.parameters
        gaps, rates, steepness = self._contacts(values[layout["x0"]], values[layout["p"]])
        closed, slow = gaps <= RESTING_SOLVED * steepness, RESTING_SOLVED * steepness
        resting = closed & (np.abs(rates) <= slow)
        for w, sigma in self._guesses(values, closed & (rates < -slow)):
            # In persistent contact the impulse is a double root that relaxations leave at sqrt(sigma), so that the
            # contact opens. Fix such impulses to zero first.
            for fixed_to_zero in (resting, np.zeros_like(resting)) if resting.any() else (resting,):
                yield self._without_impulses(fixed_to_zero), w, self._solver, sigma
                if sigma is not None and self._is_guessed:  # homotopy alone leaves what two directions share
                    yield self._without_impulses(fixed_to_zero), w, SECOND_SOLVER, None

    def _without_impulses(self, contacts: np.ndarray) -> Solvers:
        """Return the program without impulses of some contacts."""
        if not contacts.any():
            return self._problem.solvers
        if contacts.tobytes() not in self._solvers:
            mpcc = self._problem.mpcc
            upper = mpcc.ubw.copy()
            for block in mpcc.variables.blocks(role=Role.NORMAL_IMPULSE):
                upper[block.start + np.flatnonzero(contacts)] = 0.0
            self._solvers[contacts.tobytes()] = Solvers(replace(mpcc, ubw=upper))
        return self._solvers[contacts.tobytes()]

    def _guesses(self, values: np.ndarray, hits: np.ndarray) -> Iterator[tuple[np.ndarray, float | None]]:
        """Yield initial guesses and first relaxation parameters.

        First a step of the active-set Newton method with one RK stage; then the state x0 at all stages with zeros, with
        the impulses of contacts about to hit, and with ones.
        """
        for predicted in self._predictions(values):
            yield predicted, None if self._sigma is None else PREDICTED * self._sigma
            yield predicted, self._sigma
        rest = self._problem.initial_guess(None, values)
        yield rest, self._sigma
        if hits.any():
            yield self._hit(values, hits), self._sigma
        # Ones in place of zeros: an interior point of all complementarity pairs.
        yield np.where(self._problem.mpcc.w0 == 0.0, 1.0, rest), self._sigma

    def _hit(self, values: np.ndarray, hits: np.ndarray) -> np.ndarray:
        """Return a guess with impulses of the contacts that hit."""
        problem, layout = self._problem, self._problem.mpcc.parameters
        x0, p = values[layout["x0"]], values[layout["p"]]
        places = TimeGrid.equal(problem.grid, problem.tableau.c, float(values[layout["horizon"]][0]))
        return fill(problem.mpcc, problem.dcs, places, p, lambda t, side: x0, hits=hits)

    def _predictions(self, values: np.ndarray) -> list[np.ndarray]:
        """Return predicted iterates of the MPCC, if any."""
        layout = self._problem.mpcc.parameters
        x, u, p = (values[layout[name]] for name in ("x0", "u", "p"))
        method = self._problem.fesdj
        # For a polyhedral cone the prediction is only a guess of about the right friction.
        if not method.switch_detection or not (self._is_guessed or is_exact(self._system, method.friction_cone)):
            return []
        step = self._coarse.step(x, u, p, float(values[layout["horizon"]][0]), None)
        if not step.success:
            return []
        full = _with_stages(step, self._problem.tableau.c)
        iterates = [
            self._iterate_writer(full, values, mixed=mixed)
            for mixed in ((True, False) if self._is_guessed else (True,))
        ]
        return [w for w in iterates if np.isfinite(w).all()]

    @cached_property
    def _coarse(self) -> ContactNewton:
        rest = rest_velocity_of(self._problem.fesdj, simulation=True)
        return ContactNewton(
            self._system, tableau("radau_iia", 1), len(self._problem.elements), gap_rate=False, rest_velocity=rest
        )

    @cached_property
    def _iterate_writer(self) -> ContactIterateWriter:
        method = self._problem.fesdj
        return ContactIterateWriter(
            self._system, self._problem, method.friction_cone, rest_velocity_of(method, simulation=True)
        )


class FilippovStep(Attempts):
    """A step of a system without jumps as an MPCC: from a prediction, from its initial state, and from ones.

    `predict` returns a trajectory of the step for its parameters, or None.
    """

    def __init__(
        self,
        problem: Transcription,
        solver: Strategy,
        predict: Callable[[np.ndarray], Trajectory | None] = lambda values: None,
    ) -> None:
        super().__init__(problem, solver)
        self._predict = predict

    def _attempts(self, values: np.ndarray) -> Iterator[Attempt]:
        """Yield initial guesses, solvers and first relaxation parameters.

        Homotopy and active-set strategies fail for different events close to the ends of a step, so both are tried.
        """
        problem = self._problem
        predicted = self._predict(values)
        if predicted is not None:
            first, sigma = self._solver.warm(problem.mpcc)
            yield problem.solvers, problem.initial_guess(predicted, values), first, sigma
        rest = problem.initial_guess(None, values)
        middle = np.where(problem.mpcc.w0 == 0.0, 1.0, problem.mpcc.w0)
        for w, solver in itertools.product((rest, middle), (self._solver, SECOND_SOLVER)):
            yield problem.solvers, w, solver, None


def _with_stages(step: ContactStep, c: np.ndarray) -> ContactStep:
    """Return a step with one RK stage extended to the stages c: states on straight lines, constant forces."""
    line = c[None, :, None]
    return replace(
        step,
        x_stages=(1 - line) * step.x_left[:, None] + line * step.x_right[:, None],
        lambda_normal=np.repeat(step.lambda_normal, c.size, axis=1),
        lambda_tangent=np.repeat(step.lambda_tangent, c.size, axis=1),
        drift=np.repeat(step.drift, c.size, axis=1),
    )
