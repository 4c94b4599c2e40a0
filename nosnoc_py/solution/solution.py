"""The solution of an optimal control problem: a trajectory with residuals, multipliers and the history of its solution.

Residuals are those of the unrelaxed problem in the user's units, whatever relaxation the solver used. A solution that
`solve` returned also knows its `problem`, and continues from there: `polish`, `refine` and `differentiate`. Solutions
from files do without it, and name the function to call instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Names
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nosnoc_py.arguments import named_arguments
from nosnoc_py.declared import assign
from nosnoc_py.errors import OptionError
from nosnoc_py.markup import page, paragraph, table
from nosnoc_py.solution.arrays import Array, read_only
from nosnoc_py.solution.candidate import Candidate
from nosnoc_py.solution.certificate import Certificate
from nosnoc_py.solution.gradient import Gradient
from nosnoc_py.solution.optimum import SolutionSensitivity
from nosnoc_py.solution.records import PairRole, Residual, Series, SolvedBranch, StepRecord
from nosnoc_py.solution.sequence import Sequence
from nosnoc_py.solution.trajectory import Trajectory, event_rows
from nosnoc_py.status import Stationarity

__all__ = ["Residual", "Solution", "StepRecord"]


# Fields that `to_dict` copies; the others need a conversion.
REPORTED = (
    *("objective", "penalty", "complementarity", "complementarity_min", "infeasibility"),
    *("iterations", "wall_seconds", "horizon", "method", "solver"),
)
# Number of kinds of start in the summary of the work.
MOST_KINDS = 3
# Relative difference of duration and horizon above which a summary mentions it: steps of an infeasible iterate need not
# add up.
MISSED = 1e-6
# Infeasibility (in nominal units) up to which the objective of an iterate is a meaningful number.
FEASIBLE = 1e-4


def costate_name(state: str) -> str:
    """Name of the series that holds the costate of a state."""
    return f"costate[{state}]"


def _empty() -> Array:
    return np.empty(0)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Solution(Trajectory):
    """A trajectory that was optimised.

    Parameters
    ----------
    objective
        The user's objective, without penalties.
    complementarity, complementarity_min, infeasibility
        Residuals of the unrelaxed problem in the user's units: max |G H| / max(1, |G|, |H|), max |min(G, H)|, and the
        largest violated bound or equation.
    x0 : (n_x,)
        Initial state.
    p : (n_p,)
        Parameters.
    horizon
        Length of the interval [s], also when it was free.
    penalty
        Step equilibration and elastic penalties.
    stationarity
        Kind of stationary point, `UNKNOWN` until certified.
    iterations, wall_seconds
        Iterations and time [s] of all steps.
    log
        One record per step of the homotopy.
    multipliers
        Values by name of the constraint. The Lagrangian is f + lambda' g: a multiplier is positive where the upper
        bound is active, negative at the lower, as in CasADi and IPOPT.
    worst
        The worst residuals, largest first.
    biactive
        Names of the pairs with both sides zero, where the kind of stationary point is decided.
    biactive_roles
        Roles of these pairs, in the same order.
    w : (n_w,)
        Raw iterate of the MPCC.
    layout_key
        Fingerprint of the transcription that `w` belongs to.
    branch
        Branch of the complementarities at `w`, if the solver ended on one: solving again starts there.
    method, solver
        Representations of the options.
    sequence
        Modes of the motion and the times of their changes, if the method knows them.
    certificate
        Comparison with an independent simulation; None if there was none.
    candidates
        Starts of a search with their results.
    agreement
        Kinds of start of a search that reached this objective independently of each other.
    work
        Counted work of a search by kind of start, in units of about a second; the same on every machine.
    shorter
        Of a given sequence with phases that would rather vanish: the solution without them.

    Examples
    --------
    >>> import casadi as ca, nosnoc_py as ns
    >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
    >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
    >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.5) ** 2)
    >>> solution = ns.solve(ocp, ns.FESDJ(control_stages=2))
    >>> solution.success, solution.u.shape, bool(solution.infeasibility < 1e-6)
    (True, (2, 1), True)
    >>> print(solution.summary().splitlines()[0].split(",")[0])
    solved
    >>> solution.differentiate(x0="q_0").names
    ('q_0',)
    >>> solution.refine(ns.FESDJ(control_stages=3)).u.shape
    (3, 1)
    """

    objective: float
    complementarity: float
    complementarity_min: float
    infeasibility: float
    x0: Array
    p: Array = field(default_factory=_empty)
    horizon: float
    penalty: float = 0.0
    stationarity: Stationarity = Stationarity.UNKNOWN
    iterations: int = 0
    wall_seconds: float = 0.0
    log: tuple[StepRecord, ...] = ()
    multipliers: Mapping[str, Series] = field(default_factory=dict)
    worst: tuple[Residual, ...] = ()
    biactive: tuple[str, ...] = ()
    biactive_roles: tuple[PairRole, ...] = ()
    w: Array = field(default_factory=_empty)
    layout_key: str = ""
    branch: SolvedBranch | None = None
    method: str = ""
    solver: str = ""
    sequence: Sequence | None = None
    certificate: Certificate | None = None
    candidates: tuple[Candidate, ...] = ()
    agreement: tuple[str, ...] = ()
    work: Mapping[str, float] = field(default_factory=dict)
    shorter: Solution | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        numbers = ("objective", "penalty", "complementarity", "complementarity_min", "infeasibility", "horizon")
        assign(self, **{name: float(getattr(self, name)) for name in (*numbers, "wall_seconds")})
        assign(self, x0=read_only(self.x0, "x0", self.x.shape[1]), p=read_only(self.p, "p", "n_p"))
        # Conversions accept what files and solvers give: lists, numbers of NumPy, mappings.
        assign(self, w=read_only(self.w, "w", "n_w"), iterations=int(self.iterations))
        lists = ("log", "worst", "biactive", "biactive_roles", "candidates", "agreement")
        assign(self, **{name: tuple(getattr(self, name)) for name in lists}, multipliers=dict(self.multipliers))
        assign(self, work=dict(self.work))

    def polish(self, **options: Any) -> Solution:
        """Return the better of this solution and the optimum of its sequence of modes; see `nosnoc_py.polish`.

        Parameters
        ----------
        **options
            Keyword arguments of `nosnoc_py.polish`.

        Raises
        ------
        OptionError
            Of a solution that was loaded, which does not know its problem: use `ns.polish(ocp, solution)`.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
        >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
        >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.5) ** 2)
        >>> solution = ns.solve(ocp, ns.FESDJ(control_stages=2))
        >>> bool(solution.polish().objective <= solution.objective + 1e-6)
        True
        """
        # The problem itself does it: this module must not import methods (nor CasADi).
        return self._known("polish", "ns.polish(ocp, solution)").polish(self, **options)

    def refine(self, method: Any, solver: Any = None, **options: Any) -> Solution:
        """Solve the same problem by another method, from this solution; see `nosnoc_py.solve`.

        Parameters
        ----------
        method : Method
            Such as `ns.FESDJ(control_stages=40)`.
        solver : Strategy, optional
            By default finite elements start from a small relaxation parameter, which keeps the guess.
        **options
            Keyword arguments of `nosnoc_py.solve`.

        Raises
        ------
        OptionError
            Of a solution that was loaded, which does not know its problem: use
            `ns.solve(ocp, method, guess=solution)`.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
        >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
        >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.5) ** 2)
        >>> coarse = ns.solve(ocp, ns.FESDJ(control_stages=2))
        >>> fine = coarse.refine(ns.FESDJ(control_stages=4))
        >>> fine.u.shape, bool(fine.objective < coarse.objective)
        ((4, 1), True)
        """
        known = self._known("refine", "ns.solve(ocp, method, guess=solution)")
        return known.refine(self, method, solver, **options)

    @named_arguments
    def differentiate(
        self, *, x0: bool | str | Names | None = None, p: bool | str | Names | None = None, horizon: bool = False
    ) -> SolutionSensitivity:
        """Return the derivatives of this optimum by x0, p and the horizon; see `nosnoc_py.Transcription.differentiate`.

        Only solutions by finite elements have them; others after `solution.refine(ns.FESDJ(...))`.

        Parameters
        ----------
        x0, p : bool, str or sequence of str, optional
            True, False, or the names of components to differentiate by; by default all that the OCP fixes.
        horizon : bool
            True to differentiate by the horizon, too.

        Raises
        ------
        OptionError
            Of a solution by another method, one that is not solved, or one that was loaded and does not know its
            problem: use `ns.transcribe(ocp, method).differentiate(solution)`.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
        >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
        >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.5) ** 2)
        >>> derivatives = ns.solve(ocp, ns.FESDJ(control_stages=2)).differentiate(x0="q_0", horizon=True)
        >>> derivatives.names, bool(derivatives.objective[0] < 0)  # a start nearer to the target costs less
        (('q_0', 'horizon'), True)
        """
        known = self._known("differentiate", "ns.transcribe(ocp, method).differentiate(solution)")
        derivatives: SolutionSensitivity = known.differentiate(self, x0=x0, p=p, horizon=horizon)
        return derivatives

    @named_arguments
    def vjp(
        self,
        *,
        final: npt.ArrayLike | None = None,
        samples: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
        event_times: npt.ArrayLike | None = None,
        u: npt.ArrayLike | None = None,
        objective: float | None = None,
    ) -> Gradient:
        """Return the gradient of a loss of this optimum by x0 and p.

        The optimum moves with the data on its branch, where the order of events stays; the system of its optimality
        conditions is factorised once. Where the optimum may have no derivative, `flags` has the reasons, and the
        numbers are those of the branch with its active bounds.

        Parameters
        ----------
        final, u, objective : (n_x,), (N, n_u), float, optional
            Derivatives of the loss by the last state, the controls and the objective.
        samples, event_times
            Of simulated motions only: simulate the control for them (`Trajectory.vjp`).

        Raises
        ------
        OptionError
            As `differentiate`, for wrong shapes, and for samples and event times.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
        >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
        >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.5) ** 2)
        >>> gradient = ns.solve(ocp, ns.FESDJ(control_stages=2)).vjp(objective=1.0)
        >>> bool(gradient.x0[0] < 0), gradient.smooth  # a start nearer to the target costs less
        (True, True)
        """
        if samples is not None or event_times is not None:
            raise OptionError(
                "vjp of a solution: samples and event_times are of simulated motions; expected final, u or objective."
            )
        return self.differentiate().vjp(objective=objective, u=u, final=final)

    def summary(self) -> str:
        """Return a report of a few lines: objective, residuals, effort, method, events; after a failure what to try.

        Examples
        --------
        >>> import casadi as ca, nosnoc_py as ns
        >>> q, v, u = (ca.SX.sym(name) for name in "qvu")
        >>> cart = ns.CLS(q=q, v=v, u=u, mass_matrix=1, force=u, contacts=[ns.Contact("wall", gap=1 - q)])
        >>> ocp = ns.OCP(cart, horizon=1.0, x0=[0, 0], stage_cost=u**2, terminal_cost=10 * (q - 0.5) ** 2)
        >>> lines = ns.solve(ocp, ns.FESDJ(control_stages=2)).summary().splitlines()
        >>> print(lines[0])
        solved, stationarity: S
        """
        options = ", solver ".join(text for text in (self.method, self.solver) if text)
        lines = [f"{self.status}, stationarity: {self.stationarity.value}"]
        report = (self._cost(), self._residuals(), self._certified(), self._starts(), self._effort(), options)
        lines += [f"  {line}" for line in report if line]
        # Events of a failed solver are of no motion, unless its simulation confirms them.
        true = self.certificate is not None and self.certificate.confirmed
        if self.events and not self.success and not true:
            whole = abs(self.duration - self.horizon) <= MISSED * self.horizon
            beyond = "" if whole else f" (and lasts {self.duration:.6g} s, not {self.horizon:.6g})"
            lines += [f"  events of the last iterate, which is not a solution{beyond}:"]
        lines += self._first_events()
        lines += [f"  note: {self.message}"] if self.message else []
        if not self.success:
            lines += [f"  {residual}" for residual in self.worst]
            lines += [f"What to try: {self.status.remedy}"]
        return "\n".join(lines)

    def _summary_fields(self) -> dict[str, Any]:
        return {
            **{name: getattr(self, name) for name in REPORTED},
            "stationarity": self.stationarity.value,
            "homotopy_steps": len(self.log),
            "worst": [str(residual) for residual in self.worst],
            "verdict": None if self.certificate is None else self.certificate.verdict.value,
            "true_objective": None if self.certificate is None else self.certificate.true_objective,
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "agreement": list(self.agreement),
            "work": dict(self.work),
            **super()._summary_fields(),
        }

    def _branches(self) -> list[str]:
        return [self._cost(), self._residuals(), self._effort(), *super()._branches()]

    def _repr_html_(self) -> str:
        """Return status, objective, certificate, contents, modes, events, and remedies as HTML."""
        answers = [self._cost(), self._certified() or "certificate: none", f"stationarity: {self.stationarity.value}"]
        answers += [self._starts(), self._residuals(), self._effort()]
        rows = [line.partition(": ")[::2] for line in answers if line]
        rows += [("method", self.method)] if self.method else []
        # Events have a table of their own below.
        rows += [branch.partition(": ")[::2] for branch in super()._branches() if not branch.startswith("events (")]
        return page(repr(self).partition("\n")[0], table(rows), *self._html_parts())

    def _html_parts(self) -> list[str]:
        iterate = "" if self.success else "Events and modes of the last iterate, which is not a solution:"
        shown = self.events or self.sequence is not None
        worst = [] if self.success else [(str(residual),) for residual in self.worst]
        return [
            paragraph(iterate) if shown else "",
            table(*self._phases()),
            table(*event_rows(self.events)),
            table(worst, ("worst residuals",)),
        ]

    def _phases(self) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
        """Return rows of texts about the phases of the sequence, and the titles of their columns."""
        if (sequence := self.sequence) is None:
            return [], ()
        # Without times the column of ends stays empty.
        ends = ["" for _ in sequence.phases] if sequence.times is None else [f"{t:.6g}" for t in sequence.times]
        # The last phase ends with the trajectory.
        ends += [f"{self.t[-1]:.6g}"] * (len(sequence.phases) - len(ends))
        rows = list[tuple[str, ...]]()
        for k, (phase, impact, end) in enumerate(zip(sequence.phases, sequence.impacts, ends, strict=True)):
            modes = ", ".join(f"{name} {mode}" for name, mode in phase.items()) or "nothing closed"
            rows.append((str(k + 1), impact, modes, end))
        return rows, ("phase", "begins with", "modes", "ends at [s]")

    def _cost(self) -> str:
        penalty = f" (penalty {self.penalty:.2g} apart)" if self.penalty else ""
        # A number without a feasible motion bounds nothing: say so beside it.
        of = "" if self.success or self.infeasibility <= FEASIBLE else " (of an infeasible iterate)"
        return f"objective: {self.objective:.8g}{penalty}{of}"

    def _residuals(self) -> str:
        return (
            f"residuals: complementarity {self.complementarity:.1e} (min {self.complementarity_min:.1e}), "
            f"infeasibility {self.infeasibility:.1e}"
        )

    def _certified(self) -> str:
        """Return the verdict, its reason unless the solution is confirmed, and the true objective if it differs."""
        if (certificate := self.certificate) is None:
            return ""
        because = "" if certificate.confirmed else f": {certificate.reason}"
        # Relative above 1, absolute below, as the certificate compares.
        error, size = abs(certificate.objective_error), max(1.0, abs(certificate.objective))
        true = f", true objective {certificate.true_objective:.8g}" if error > certificate.tolerance * size else ""
        return f"certificate: {certificate.verdict}{because}{true}"

    def _starts(self) -> str:
        """Return the number of starts, and the kinds of start that led to this solution."""
        if not self.candidates:
            return ""
        # Independent kinds of start that reach the same objective are evidence, though no proof, of a global optimum.
        count = len(self.agreement)
        agree = f" ({count} kinds agree)" if count > 1 else ""
        best = f", best found by {', '.join(self.agreement)}{agree}" if count else ""
        total = sum(self.work.values())
        parts = sorted(self.work.items(), key=lambda part: -part[1])[:MOST_KINDS]
        spent = f"; work {total:.3g} ({', '.join(f'{kind} {amount / total:.0%}' for kind, amount in parts)})"
        return f"starts: {len(self.candidates)} tried{best}{spent if total else ''}"

    def _effort(self) -> str:
        steps = f" in {len(self.log)} steps" if self.log else ""
        return f"effort: {self.iterations} iterations{steps}, {self.wall_seconds:.2f} s"
