"""OCP + method -> Transcription: every intermediate as a value, and the way back to a `Solution`.

A transcription has the dynamic complementarity system (DCS), the grid, the tableau, the finite elements and the MPCC,
each of which can be inspected. x0, p and a fixed horizon are parameters of the MPCC: `solve`, `resolve` and `prepare`
solve again without a new transcription, with functions and solvers that are built once (`solvers`).

Invariants: `layout_key` is equal for two transcriptions if iterates w may be passed between them. A `Solution` is read
out whatever its status, and its status says if it may be used: residuals of the unrelaxed problem decide first, then
the laws of mechanics in the scale of the motion (`audited`).
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from nosnoc_py.arguments import named_arguments
from nosnoc_py.contact_problems.instants import gaining_contacts
from nosnoc_py.discretization.finite_elements import Element
from nosnoc_py.discretization.grid import Grid
from nosnoc_py.discretization.guess import TimeGrid
from nosnoc_py.discretization.options import FESD, FESDJ, FiniteElementMethod
from nosnoc_py.discretization.readout import Reader, Readout, impact_rows, trajectory_fields
from nosnoc_py.discretization.runge_kutta import representation_of
from nosnoc_py.errors import OptionError, TranscriptionError, check_positive, check_run
from nosnoc_py.markup import tree
from nosnoc_py.mpcc.again import Resolve
from nosnoc_py.mpcc.auto import Auto
from nosnoc_py.mpcc.layout import At
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.mpcc.solve import numbers_of
from nosnoc_py.mpcc.strategy import Callback, Solvers, SolverState, Strategy, final_certificate
from nosnoc_py.ocp import OCP, Constraint
from nosnoc_py.reformulation.dcs import DCS
from nosnoc_py.roles import Role
from nosnoc_py.solution import Event, Series, Solution, SolutionSensitivity, Trajectory
from nosnoc_py.solution.records import Discretization, StepRecord
from nosnoc_py.solution.solution import costate_name
from nosnoc_py.solution.violation import Law
from nosnoc_py.status import Stationarity, Status, asked_to_stop, seconds_to
from nosnoc_py.systems.evaluated import EvaluatesProblem
from nosnoc_py.systems.named_guesses import guess_by_name
from nosnoc_py.systems.symbols import numbers, scalar
from nosnoc_py.tableaus import Tableau
from nosnoc_py.transcription.again import Answer, Moves, prepare, resolve, start_again
from nosnoc_py.transcription.audited import breach
from nosnoc_py.transcription.guesses import from_trajectory, initial_guess, keeps_its_iterate
from nosnoc_py.transcription.optimum import sensitivity

# Events that a grid may hold, by kind, in the order of the message; an impact that sticks is listed as an impact alone.
HELD = {
    "impact": "impacts",
    "contact": "contacts",
    "release": "releases",
    "stick": "sticks",
    "slip": "slips",
    "reversal": "reversals of slip",
    "switch": "switches",
    "enter_sliding": "beginnings of sliding",
    "leave_sliding": "ends of sliding",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class Transcription(EvaluatesProblem):
    """A discretised optimal control problem.

    Attributes
    ----------
    ocp : OCP
    method : FESD, FESDJ or TimeFreezing
    dcs : DCS
    grid : Grid
    tableau : Tableau
    mpcc : MPCC
        Its parameters are x0 (when fixed), p, horizon (when fixed) and, in a simulation, u: re-solving needs no new
        transcription.
    elements : tuple of Element
    simulate : function, optional
        `nosnoc_py.simulate`, which this room does not know: what a control does from another state shows a branch.

    Examples
    --------
    One program, solved for two initial states:

    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
    >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.5) ** 2)
    >>> problem = ns.transcribe(ocp, ns.FESDJ(control_stages=2))
    >>> problem.grid.control_stages, len(problem.elements), problem.mpcc.parameters.names
    (2, 4, ('p', 'horizon', 'x0'))
    >>> first = problem.solve()
    >>> bool(problem.solve(x0=[0.2, 0.0], guess=first).objective < first.objective)
    True
    """

    ocp: OCP
    method: FiniteElementMethod
    dcs: DCS
    grid: Grid
    tableau: Tableau
    mpcc: MPCC
    elements: tuple[Element, ...]
    reader: Reader
    simulate: Callable[..., Trajectory] | None = field(default=None, repr=False)
    with_kinks: Any = field(default=None, repr=False)  # (w, p) -> w, whose slacks have the values of the user's kinks
    may_free_stages: ClassVar[bool] = True  # True if the lengths of the control stages may be unknowns

    @property
    def fesd(self) -> FESD:
        """The options of the finite elements."""
        return self.method.elements

    @property
    def fesdj(self) -> FESDJ:
        """The options of FESD-J, for what knows contacts only."""
        assert isinstance(self.method, FESDJ)
        return self.method

    @property
    def discretization(self) -> Discretization:
        """Finite elements of a solution, for its record."""
        return Discretization(
            scheme=self.tableau.name,
            nodes=tuple(float(node) for node in self.tableau.c),
            collocation=self.tableau.is_collocation,
            time_freezing=False,
        )

    @cached_property
    def layout_key(self) -> str:
        """Fingerprint of the variables: iterates may be passed between transcriptions with the same key."""
        # Names and places of all variables; bounds, costs and constraints may differ.
        text = ";".join(f"{b.name}{b.at}{b.components}" for b in self.mpcc.variables.blocks())
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def guess(self) -> np.ndarray:
        """The default initial guess: every state at x0, everything else at rest or zero (the paper's cold start)."""
        return self.initial_guess(None)

    @named_arguments
    def parameters(self, x0: Any = None, p: Any = None, horizon: float | None = None, u: Any = None) -> np.ndarray:
        """Return the parameter vector (n_p,) of the MPCC; what is not given is the OCP's own.

        Parameters
        ----------
        x0 : (n_x,), optional
            Initial state.
        p : (n_p,), optional
            Parameters of the system.
        horizon : float, optional
            Length [s].
        u : (n_u,), optional
            Control of a simulation step.

        Raises
        ------
        ModelError, TranscriptionError
            For wrong lengths, NaN, an x0 that penetrates, or an x0 where the OCP leaves it free.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
        >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
        >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.9) ** 2)
        >>> problem = ns.transcribe(ocp, ns.FESDJ(control_stages=10))
        >>> problem.parameters(x0=[0.5, 0.0], horizon=2.0)
        array([2. , 0.5, 0. ])
        """
        ocp, layout = self.ocp, self.mpcc.parameters
        values = self.mpcc.p0.copy()
        if p is not None:
            values[layout["p"]] = system_values = ocp.system.parameters(p)
            ocp.check_parameters(system_values)
            if x0 is None and ocp.x0 is not None:
                ocp.system.check_state(ocp.x0, system_values)  # gaps may depend on p
        if x0 is not None:
            if ocp.x0 is None:
                raise TranscriptionError("x0 was given, but the OCP leaves the initial state free; fix it in the OCP.")
            values[layout["x0"]] = ocp.system.check_state(x0, values[layout["p"]])
        if horizon is not None:
            if ocp.free_time is not None:
                raise TranscriptionError("horizon was given, but the OCP leaves it free; fix it in the OCP.")
            length = scalar(horizon, "horizon")
            if not 0 < length < np.inf:
                raise TranscriptionError(f"horizon: expected a positive finite number, given {horizon!r}.")
            values[layout["horizon"]] = length
        if u is not None:
            values[layout["u"]] = numbers(u, "u", ocp.system.n_u)
        return values

    @named_arguments
    def initial_guess(self, guess: Any = None, parameters: np.ndarray | None = None) -> np.ndarray:
        """Return w from a guess: None, a control (constant, function, rows), states and controls by name, a Trajectory
        or a Solution.

        Parameters
        ----------
        guess : optional
            None for the cold start; a number or (n_u,) or (N, n_u) or a function of the time [s] for the control; a
            mapping with "x" and "u"; a `Trajectory`, cut or held to the horizon; a `Solution`, of any grid.
        parameters : (n_p,), optional
            Parameters of the MPCC, as from `parameters`; by default those of the OCP.

        Returns
        -------
        (n_w,)

        Raises
        ------
        TranscriptionError
            If names, shapes or numbers of the guess do not fit the problem.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
        >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
        >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.9) ** 2)
        >>> problem = ns.transcribe(ocp, ns.FESDJ(control_stages=10))
        >>> bool((problem.controls(problem.initial_guess(0.5)) == 0.5).all())
        True
        """
        return initial_guess(self, guess, self.mpcc.p0 if parameters is None else parameters)

    def horizon(self, w: np.ndarray, values: np.ndarray) -> float:
        """Return the length of the horizon at an iterate [s], also where it is free."""
        if self.ocp.free_time is None:
            return float(values[self.mpcc.parameters["horizon"]][0])
        return float(next(w[block.start] for block in self.mpcc.variables.blocks(role=Role.HORIZON)))

    def parameter_values(self, w: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Return the parameters of the system (n_p,) at an iterate, the free ones with their values there."""
        p = np.array(values[self.mpcc.parameters["p"]])
        for block in self.mpcc.variables.blocks(role=Role.FREE_PARAMETER):
            p[[self.dcs.p_names.index(name) for name in block.components]] = w[block.rows]
        return p

    @cached_property
    def solvers(self) -> Solvers:
        """The built functions and solvers, each made on first use and kept for all strategies and re-solves."""
        return Solvers(self.mpcc)

    @named_arguments
    def solve(
        self,
        solver: Strategy | None = None,
        *,
        x0: Any = None,
        p: Any = None,
        horizon: float | None = None,
        guess: Any = None,
        callback: Callback | None = None,
        time_limit: float | None = None,
        near: bool = False,
        nearby: Callable[[Solution], Trajectory | None] | None = None,
    ) -> Solution:
        """Solve, or solve again with other x0, p, horizon, without a new transcription.

        Parameters
        ----------
        solver : Auto, Homotopy or ActiveSet, optional
            Default `ns.Auto()`.
        x0, p, horizon : optional
            Other data than the OCP's, where it fixes them; see `parameters`.
        guess : optional
            See `initial_guess`. From a solution of this transcription its branch is solved first.
        callback : function, optional
            Called with the `SolverState` after every step; it stops the solver by returning `ns.Stop`.
        time_limit : float, optional
            [s].
        near : bool
            Only the first attempt, from a small relaxation parameter, which keeps the guess.
        nearby : function, optional
            Returns a motion for a failed solution; `ns.Auto` starts from it if its first descents fail.

        Raises
        ------
        ModelError, TranscriptionError
            If data or the guess do not fit, see `parameters` and `initial_guess`.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
        >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
        >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.9) ** 2)
        >>> problem = ns.transcribe(ocp, ns.FESDJ(control_stages=3))
        >>> solution = problem.solve()
        >>> further = problem.solve(x0=[0.2, 0.0], guess=solution)
        >>> further.success, bool(further.objective < solution.objective)
        (True, True)
        """
        solver = Auto() if solver is None else solver
        started = time.monotonic()
        values, guess = self.parameters(x0, p, horizon), guess_by_name(self.ocp, guess)
        w = self.initial_guess(guess, values)
        limit = np.inf if time_limit is None else time_limit
        if near:
            # A small first relaxation parameter keeps the active set of the guess; Auto's other attempts would not.
            first, sigma = solver.warm(self.mpcc)
            how: dict[str, Any] = {"sigma": sigma, "callback": callback, "time_limit": time_limit}
            state = first.run(self.mpcc, w, values, **how, solvers=self.solvers)
        else:
            # A guess that is an iterate of this problem has a branch: some Newton steps instead of a homotopy.
            state = self._again(solver, guess, values, started + limit, callback)
            if state is None:
                is_motion, own = isinstance(guess, Trajectory), keeps_its_iterate(self, guess)
                state = self.run(
                    solver, w, values, started + limit, callback, is_motion=is_motion, own=own, nearby=nearby
                )
        return self.solution(state, solver=repr(solver), wall_seconds=time.monotonic() - started)

    @cached_property
    def _moves(self) -> dict[int, Moves]:
        return {}

    def moves(self, stages: int) -> Moves:
        """Return the index maps of a shift by control stages; they are built once for each number."""
        if stages not in self._moves:
            self._moves[stages] = Moves.of(self, stages)
        return self._moves[stages]

    @named_arguments
    def resolve(
        self,
        last: Answer | Solution,
        *,
        shift: int = 0,
        x0: Any = None,
        p: Any = None,
        horizon: float | None = None,
        solver: Strategy | None = None,
        time_limit: float | None = None,
    ) -> Answer:
        """Solve again for another x0, in milliseconds where the sequence of events stays.

        The branch of the last solution is solved first, and accepted on the residuals of the unrelaxed problem; where
        it does not hold, one that was prepared or that relaxed problems show nearby; else the solver starts from the
        last solution as `solve` does. The solution is read out of the iterate and assessed when `answer.solution` is
        asked for. A branch that is kept for long may be far from the optimum: call `prepare` between two samples.

        Parameters
        ----------
        last : Answer or Solution
            Of this transcription, or of one with the same variables.
        shift : int
            Control stages by which it is moved to the front; the last ones are repeated.
        x0, p, horizon, solver, time_limit
            As for `solve`.

        Returns
        -------
        Answer
            With the controls `u` (N, n_u); it is the `last` of the next call.

        Raises
        ------
        OptionError
            If `last` has other variables than this transcription, `shift` is no whole number from 0 to the control
            stages less one, or a solver or a time limit is none.
        ModelError, TranscriptionError
            As for `solve`.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
        >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
        >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.9) ** 2)
        >>> problem = ns.transcribe(ocp, ns.FESDJ(control_stages=10))
        >>> answer = problem.resolve(problem.solve(), x0=[0.01, 0.0])
        >>> answer.how, answer.u.shape
        ('kept', (10, 1))
        """
        limit = _limit(solver, time_limit)
        return resolve(self, last, shift, self.parameters(x0, p, horizon), Auto() if solver is None else solver, limit)

    @named_arguments
    def prepare(
        self,
        last: Answer | Solution,
        *,
        shift: int = 1,
        spread: Any = None,
        p: Any = None,
        solver: Strategy | None = None,
        time_limit: float | None = None,
    ) -> Answer:
        """Plan from the state that the last plan predicts, before it is measured.

        The preparation of a feedback that is as short as `resolve` can be: the plan is moved and solved again for the
        state it predicts, on its branch and by descents from relaxed problems, and the best one is kept. A plan that
        keeps its branch for long drifts away from the optimum; here that is noticed. Branches for states beside the
        predicted one are found, too, and the solution of a relaxed problem, from which `resolve` finds a branch in a
        few iterations. It takes some hundred times as long as a `resolve`; with a `time_limit` what is found until then
        counts.

        Parameters
        ----------
        last : Answer or Solution
            Of this transcription, solved; p and the horizon given to an answer hold on.
        shift : int
            Control stages after which the state is measured. Where the control grid is not equidistant a plan cannot be
            moved, and is solved again from its motion.
        spread : (n_x,), optional
            How far the measured state may lie from the predicted one (standard deviations); default: a hundredth of
            `x_nominal`. So far to either side other branches are looked for, one component at a time; 0 looks for none.
        p, solver, time_limit
            As for `solve`.

        Returns
        -------
        Answer
            The `last` of a `resolve` with `shift` 0.

        Raises
        ------
        OptionError
            If `last` has other variables than this transcription, `shift` is no whole number from 0 to the control
            stages less one, or a solver or a time limit is none.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
        >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
        >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.9) ** 2)
        >>> problem = ns.transcribe(ocp, ns.FESDJ(control_stages=10))
        >>> ready = problem.prepare(problem.solve())  # while the first control acts
        >>> problem.resolve(ready, x0=[0.01, 0.1]).success
        True
        """
        limit = _limit(solver, time_limit)
        return prepare(self, last, shift, spread, p, Auto() if solver is None else solver, limit)

    @named_arguments
    def differentiate(
        self,
        solution: Answer | Solution,
        *,
        x0: bool | str | Sequence[str] | None = None,
        p: bool | str | Sequence[str] | None = None,
        horizon: bool = False,
    ) -> SolutionSensitivity:
        """Return the derivatives of a solution of this transcription by x0, p and the horizon, on its branch.

        Flags say where there are none: a pair of which either side may leave zero, a bound that is active without a
        multiplier, an optimum that is not isolated.

        Parameters
        ----------
        solution : Answer or Solution
        x0, p : bool, str or sequence of str, optional
            True, False, or the names of components to differentiate by; by default all that the OCP fixes.
        horizon : bool
            True to differentiate by the horizon, too.

        Raises
        ------
        OptionError
            If the solution is of another transcription, not solved or not on a branch, or for data that do not exist.

        Examples
        --------
        A mass is brought to rest; the further it starts, the more that costs:

        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
        >>> mass = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
        >>> ocp = ns.OCP(mass, horizon=1.0, x0=[-1, 0], stage_cost=u**2, terminal_cost=10 * (q**2 + v**2))
        >>> problem = ns.transcribe(ocp, ns.FESDJ(control_stages=10))
        >>> derivatives = problem.differentiate(problem.solve())
        >>> derivatives
        SolutionSensitivity: objective and 10 x 1 controls by q_0, v_0
        >>> near = derivatives.predict(x0=[-0.99, 0.0])
        >>> answer = problem.resolve(problem.solve(), x0=[-0.99, 0.0])
        >>> bool(abs(near.u - answer.u).max() < 1e-6)
        True
        """
        return sensitivity(self, solution, {"x0": x0, "p": p, "horizon": horizon})

    def _again(
        self, solver: Strategy, guess: Any, values: np.ndarray, deadline: float, callback: Callback | None
    ) -> SolverState | None:
        """Solve the branch of a guess; return None if there is none, it fails, or an adjacent branch descends."""
        if (begin := start_again(self, guess, 0)) is None:
            return None
        state = Resolve(self.solvers, values, solver, deadline).solve_on_branch(*begin)
        if state.status is None:
            return None
        certificate = solver.certify(state)
        state = replace(state, certificate=certificate)
        if callback is not None and (stop := asked_to_stop(callback, state)) is not None:
            return replace(state, status=state.status or stop)
        # Another branch descends: the homotopy may find it, this one cannot.
        return None if certificate.b_stationary is False else state

    @named_arguments
    def run(
        self,
        solver: Strategy,
        w: np.ndarray,
        values: np.ndarray,
        deadline: float,
        callback: Any,
        *,
        is_motion: bool,
        own: bool,
        nearby: Callable[[Solution], Trajectory | None] | None = None,
    ) -> SolverState:
        """Run the strategy; a guess that is a motion is first tried with a small sigma, which keeps it.

        Where that fails the motion belongs to another branch, and a large sigma forgets it in any case: for an iterate
        of this transcription (`own`) the default start is as good.
        """

        def start_of(state: SolverState) -> np.ndarray | None:
            motion = None if nearby is None else nearby(self.solution(state))
            return None if motion is None else self.initial_guess(motion, values)

        def once(strategy: Strategy, start: np.ndarray, sigma: float | None = None) -> SolverState:
            how: dict[str, Any] = {"sigma": sigma, "callback": callback, "solvers": self.solvers}
            how["time_limit"] = seconds_to(deadline)
            if nearby is not None and isinstance(strategy, Auto):
                # Only `Auto` goes on from a motion near a failed solution.
                how["nearby"] = start_of
            return strategy.run(self.mpcc, start, values, **how)

        records: tuple[StepRecord, ...] = ()
        if is_motion:
            first, sigma = solver.warm(self.mpcc)
            state = once(first, w, sigma)
            # Any other end (solved, a limit of time, a callback that stops) is final.
            if state.status not in (Status.LOCALLY_INFEASIBLE, Status.NOT_COMPLEMENTARY, Status.ITERATION_LIMIT):
                return state
            records, w = state.records, self.initial_guess(None, values) if own else w
        state = once(solver, w)
        # Steps of both attempts are numbered through.
        later = tuple(replace(record, step=record.step + len(records)) for record in state.records)
        return replace(state, records=(*records, *later))

    @named_arguments
    def generate(
        self,
        folder: str | os.PathLike[str],
        *,
        x0: Any = None,
        p: Any = None,
        horizon: float | None = None,
        guess: Any = None,
        step: Answer | Solution | None = None,
        period: float | None = None,
    ) -> Path:
        """Write the functions of the MPCC as C into a folder, with a header, a README and its layout as JSON.

        Objective, constraints, G and H, their first derivatives and the Hessian of the Lagrangian, in the user's units;
        bounds, groups, parameter values (those of x0, p, horizon) and a guess are in `layout.json`. The folder is new,
        empty, or one that was generated before, and gets all of its files or none.

        Parameters
        ----------
        folder : path
        x0, p, horizon : optional
            Data in `layout.json`, by default the OCP's.
        guess : optional
            Guess in `layout.json`, see `initial_guess`.
        step : Answer or Solution, optional
            Of this transcription, solved. `step.c` then has `nlp_step`, which solves again for a measured x0 on the
            branch of this solution, as `resolve` does, and returns the first control and a status.
        period : float, optional
            Time between samples [s]. `mpc.c` then has a controller, `mpc_prepare` and `mpc_feedback`, that searches the
            order of contacts on a fixed grid at every sample, as `ns.MPC` does.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        OptionError
            If the folder cannot be written or holds other files, or `step` is no solution of this transcription.

        Examples
        --------
        >>> import tempfile
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
        >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
        >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.9) ** 2)
        >>> problem = ns.transcribe(ocp, ns.FESDJ(control_stages=10))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     sorted(path.name for path in problem.generate(f"{folder}/cart").iterdir())
        ['README.md', 'layout.json', 'nlp.c', 'nlp.h']
        """
        from nosnoc_py.transcription.generate import generate

        values = self.parameters(x0, p, horizon)
        if period is not None:
            check_positive(period=period)
        return generate(self, folder, values, self.initial_guess(guess, values), step, period)

    def read(self, w: np.ndarray, values: np.ndarray) -> Readout:
        """Return the numbers of all finite elements at an iterate."""
        return self.reader(w, values)

    def controls(self, w: np.ndarray) -> np.ndarray:
        """Return the controls (N, n_u) of an iterate.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> x, u = ca.SX.sym("x"), ca.SX.sym("u")
        >>> ocp = ns.OCP(ns.ODE(x=x, u=u, flow=u), horizon=1.0, x0=[0.0], stage_cost=u**2)
        >>> problem = ns.transcribe(ocp, ns.FESD(control_stages=3))
        >>> problem.controls(problem.initial_guess(0.5)).ravel()
        array([0.5, 0.5, 0.5])
        """
        return self._rows(Role.CONTROL, w)

    def _rows(self, role: Role, w: np.ndarray) -> np.ndarray:
        rows = [w[b.rows] for b in self.mpcc.variables.blocks(role=role)]
        return np.array(rows).reshape(self.grid.control_stages, -1)

    def _stage_edges(self, w: np.ndarray) -> np.ndarray:
        """Return the boundaries (N + 1,) of the control stages, in units of an equal one."""
        count = self.grid.control_stages
        if self.fesd.equidistant_control_grid:
            return np.arange(count + 1.0)
        # The last edge is exact: lengths add up to their number only to the solver's tolerance.
        return np.append(np.cumsum(np.append(0.0, self._rows(Role.STAGE_LENGTH, w)[:-1, 0])), float(count))

    def inputs(self, w: np.ndarray) -> np.ndarray:
        """Return the controls of the DCS (N, n): those of the system, and with time-freezing the speed of time."""
        return np.hstack([self.controls(w), self._rows(Role.SPEED_OF_TIME, w)])

    def from_trajectory(
        self, guess: Trajectory, places: TimeGrid, p: np.ndarray, known: Container[tuple[str, At]]
    ) -> np.ndarray:
        """Return an iterate from a trajectory; blocks in `known` keep their default."""
        return from_trajectory(self, guess, places, p, known)

    def fields_of(self, readout: Readout, p: np.ndarray, u: np.ndarray, u_grid: np.ndarray) -> dict[str, Any]:
        """Return the fields of a trajectory in physical time, for one pass through the grid or several in a row.

        Parameters
        ----------
        u : (N k, n_u)
            Controls of the control stages, k times in a row; with time-freezing also the speed of time.
        u_grid : (N k + 1,)
        """
        fields = trajectory_fields(self.dcs, self.tableau, readout, p, u, u_grid)
        return {**fields, "discretization": self.discretization}

    @named_arguments
    def solution(self, state: SolverState, *, solver: str = "", wall_seconds: float | None = None) -> Solution:
        """Return the solution that a state of a strategy stands for, whatever its status.

        Parameters
        ----------
        state : SolverState
            Iterate w, parameters and residuals, as a callback gets it.
        solver : str
            Representation of its options, for the record.
        wall_seconds : float, optional
            Total time [s]; by default the sum of the steps.

        Examples
        --------
        The iterates of a solver, as motions:

        >>> import casadi as ca, nosnoc_py as ns
        >>> x, u = ca.SX.sym("x"), ca.SX.sym("u")
        >>> ocp = ns.OCP(ns.ODE(x=x, u=u, flow=u), horizon=1.0, x0=[0.0], stage_cost=u**2, terminal_cost=(x - 1) ** 2)
        >>> problem, ends = ns.transcribe(ocp, ns.FESD(control_stages=3)), []
        >>> solution = problem.solve(callback=lambda state: ends.append(problem.solution(state).final_state[0]))
        >>> bool(ends[-1] == solution.final_state[0])
        True
        """
        if self.with_kinks is not None:
            # Slacks do not belong to the answer: the objective is that of the user.
            w = np.array(self.with_kinks(state.w, state.p)).ravel()
            state = replace(state, w=w, values=state.solvers.evaluator(w, state.p))
        horizon, p = self.horizon(state.w, state.p), self.parameter_values(state.w, state.p)
        readout = self.read(state.w, state.p)
        status = state.status or Status.STOPPED
        certificate = final_certificate(state)
        seconds = sum(record.wall_seconds for record in state.records)
        u = self.inputs(state.w)
        fields = self.fields_of(readout, p, u, horizon / self.grid.control_stages * self._stage_edges(state.w))
        if state.multipliers is not None:
            # Multipliers of the dynamics as functions of time; those of constraints are in `multipliers`.
            fields["series"] = {**fields["series"], **self._costates(state.multipliers.g, readout)}
        worst, gaining = None, ""
        # Only a DCS with impacts (FESD-J) has the laws that are checked here.
        if status.success and self.dcs.jump is not None:
            worst = breach(self, readout, fields["series"], p, u, state.infeasibility)
            # A small gain is no residual of the solver, either; a law that is broken otherwise has no impacts to judge.
            if worst is None:
                rows = impact_rows(self.dcs, readout, p)
                gaining = gaining_contacts(self.ocp.system, readout.x_minus[rows], readout.x_left[rows], p)
        if gaining or (worst is not None and worst.law is Law.ENERGY):
            status = Status.ENERGY_GAIN
        elif worst is not None:
            status = Status.BADLY_SCALED
        held = self._held(state.w, fields["events"], readout.h, horizon) if status.success else ""
        broken = "" if worst is None else f"{worst}, {100 * worst.share:.2g} % of the typical size in this motion"
        refused = f"an impact would gain energy at {gaining}" if gaining else ""
        notes = (state.message, refused, broken, held, self.late(state.w))
        solution = Solution(
            **fields,
            message="; ".join(note for note in notes if note),
            parameters=dict(zip(self.dcs.p_names, p, strict=True)),
            status=status,
            **numbers_of(state, certificate),
            stationarity=Stationarity.UNKNOWN if certificate is None else certificate.stationarity,
            iterations=sum(record.iterations for record in state.records),
            wall_seconds=seconds if wall_seconds is None else wall_seconds,
            multipliers=self._multipliers(state, horizon, readout),
            layout_key=self.layout_key,
            branch=state.solved_branch,
            x0=readout.x_minus[0][: len(self.ocp.system.state_names)],
            p=p,
            horizon=horizon,
            method=repr(self.method),
            solver=solver,
            problem=self,
        )
        return solution

    def late(self, w: np.ndarray) -> str:
        """Say where time cannot run any faster; with the time of the user there is nothing to say."""
        return ""

    def _costates(self, g: np.ndarray, readout: Readout) -> dict[str, Series]:
        return costates(self, g, readout.h)

    def _held(self, w: np.ndarray, events: Sequence[Event], h: np.ndarray, horizon: float) -> str:
        """Say which events the grid holds in place: such an optimum may be one of the grid and not of the problem."""
        if not self.fesd.switch_detection:
            return ""
        places, listed = list[str](), set[float]()
        for kind, several in HELD.items():
            at_bound = self._at_bound(w, [event.time for event in events if event.kind == kind], h, horizon)
            # An impact that sticks is reported once.
            new = [time for time in dict.fromkeys(at_bound) if time not in listed]
            listed |= set(new)
            places += [f"the {several} at t = {', '.join(f'{time:.6g}' for time in new)}"] if new else []
        if not places:
            return ""
        fixed = self.may_free_stages and self.fesd.equidistant_control_grid
        free = "equidistant_control_grid=False, " if fixed else ""
        return (
            f"the grid holds {', '.join(places)} (on the control grid, or a step beside them at its bound): try "
            f"{free}another number of control stages, a larger gamma_h, a guess from another grid, or "
            "solution.polish(), whose grid moves with the events"
        )

    def _at_bound(self, w: np.ndarray, times: Sequence[float], h: np.ndarray, horizon: float) -> list[float]:
        """Return times [s] of events between two control stages, or beside a step at its bound."""
        # A step at its bound may be there because an event pulls it: the optimum is then one of the mesh.
        rows = [block.start for block in self.mpcc.variables.blocks(role=Role.STEP)]
        bound = (w[rows] < self.mpcc.lbw[rows] + 1e-6) | (w[rows] > self.mpcc.ubw[rows] - 1e-6)
        starts = np.concatenate([[0.0], np.cumsum(h)[:-1]])
        # Starts of stages with equal lengths are fixed in time.
        first = np.array([e.at.element == 0 and self.fesd.equidistant_control_grid for e in self.elements])
        nodes = [int(np.argmin(np.abs(starts - time))) for time in times]
        # Either neighbour of the node limits how far the event may move; the start of the horizon is no event.
        return [float(starts[n]) for n in nodes if n > 0 and (first[n] or bound[n] or bound[n - 1])]

    def _multipliers(self, state: SolverState, horizon: float, readout: Readout) -> dict[str, Series]:
        if state.multipliers is None:
            return {}
        ocp = self.ocp
        constraints = (*ocp.path_constraints, *ocp.initial_constraints, *ocp.terminal_constraints)
        places = TimeGrid.of_lengths(self.grid, self.tableau.c, readout.h)
        multipliers: dict[str, Series] = {}
        for constraint in constraints:
            blocks = list(self.mpcc.constraints.blocks(block_name(constraint), role=Role.CONSTRAINT))
            times = np.array(
                [
                    # Terminal constraints have no place on the grid.
                    horizon if b.at == At() else self._clock(readout, places.time(b.at, end=b.at.rk is None))
                    for b in blocks
                ]
            )
            for i, component in enumerate(blocks[0].components):
                multipliers[component] = Series(times, np.array([state.multipliers.g[b.start + i] for b in blocks]))
        return multipliers

    def _clock(self, readout: Readout, t: float) -> float:
        """Return the physical time [s] at a time of the elements [s]."""
        return t

    def __repr__(self) -> str:
        parts = (repr(part).replace("\n", "\n  ") for part in (self.dcs, self.grid, self.mpcc))
        return "Transcription\n  " + "\n  ".join(parts)

    def _repr_html_(self) -> str:
        return tree(repr(self))


def block_name(c: Constraint) -> str:
    """Return the name of the block of a user's constraint; the prefix keeps it apart from the method's own blocks."""
    return f"constraint {c.name}"


# Elements shorter than this, relative to their equal share, only distribute a jump of the costate: their quotient
# -mu / (b h) is of no value.
NO_LENGTH = 1e-6


def costates(problem: Transcription, multipliers: np.ndarray, h: np.ndarray) -> dict[str, Series]:
    """Return lambda(t) at the Runge-Kutta stages, with the sign of the Hamiltonian lambda'f + L.

    The rows of stage j are S_j - h f(X_j) = 0, S the increments of the element, and the Lagrangian has mu' times them:
    what multiplies h f(X_j) is -mu_j, where the Hamiltonian has b_j lambda(t_j). With derivatives V_j as unknowns the
    rows are V_j - f(X_j) = 0, and h is missing. So lambda(t_j) = -mu_j / b_j, or -mu_j / (b_j h), to the order that
    stages have by themselves (measured on smooth problems: n_s for Radau IIA, n_s + 1 for Gauss-Legendre), which is
    less than that of the scheme at its nodes. Elements without a length say nothing and are left out.

    Parameters
    ----------
    multipliers : (n_g,)
        Of the constraints of the program.
    h : (E,)
        Lengths of the elements [s].
    """
    names, tableau = problem.dcs.x_names, problem.tableau
    rows = [block.rows for block in problem.mpcc.constraints.blocks(role=Role.DYNAMICS)]
    b, c, representation = tableau.b, tableau.c, representation_of(problem.fesd, tableau)
    mu = np.array([multipliers[row] for row in rows]).reshape(h.size, c.size, len(names))
    kept = h > NO_LENGTH * h.sum() / h.size
    weights = b[None, :, None] * (1.0 if representation == "integral" else h[kept][:, None, None])
    values = (-mu[kept] / weights).reshape(-1, len(names))
    t = ((np.cumsum(h) - h)[:, None] + h[:, None] * c)[kept].ravel()
    return {costate_name(name): Series(t, values[:, i], Role.COSTATE_ESTIMATE) for i, name in enumerate(names)}


def _limit(solver: Any, time_limit: Any) -> float:
    """Return the time limit [s]; raise `OptionError` if the solver or the limit has a wrong type."""
    check_run(None, time_limit)
    if solver is not None and not isinstance(solver, Strategy):
        raise OptionError(f"solver: expected ns.Auto(...), ns.Homotopy(...) or ns.ActiveSet(...), given {solver!r}.")
    return np.inf if time_limit is None else float(time_limit)
