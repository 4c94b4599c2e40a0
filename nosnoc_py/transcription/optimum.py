"""Sensitivities of a solution: check that it has any, choose the data, and collect derivatives and flags.

On a fixed branch the MPCC is an NLP, whose solution is differentiated by the implicit function theorem (Fiacco 1983);
the linear algebra is in `Solvers.parametric`. Here are the questions around it: which parameters of the program belong
to x0, p and the horizon, how the last state follows from the iterate, and in which variables the optimum is not unique.

Invariant: the iterate, the values of the parameters and the branch belong together. A solution of another problem with
the same variables is recognised by its objective.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError, unknown_name
from nosnoc_py.roles import Role
from nosnoc_py.solution import Prediction, Solution, SolutionSensitivity
from nosnoc_py.solution.optimum import DATA
from nosnoc_py.solution.records import SolvedBranch
from nosnoc_py.transcription.again import Answer

if TYPE_CHECKING:
    from nosnoc_py.transcription.transcription import Transcription

Array = np.ndarray
# A direction without curvature, of length one, that moves a quantity by more than this leaves it undetermined. Far
# above the rounding of a null space, far below a component that matters.
MOVES_QUANTITY = 1e-6
# Largest relative difference of the objectives of one iterate in one problem: rounding alone is some 1e-14, and the
# objective of a changed problem differs by far more.
SAME_OBJECTIVE = 1e-8


def sensitivity(
    problem: Transcription, last: Answer | Solution, asked: dict[str, bool | str | Sequence[str] | None]
) -> SolutionSensitivity:
    """Return the derivatives of a solution by the chosen data: see `Transcription.differentiate`."""
    w, values, solved = solved_branch("differentiate", problem, last)
    data, columns = _columns(problem, asked)
    derivatives = problem.solvers.parametric(w, values, solved, columns)
    # The clock of time-freezing, the last row, is none of the user's states.
    end = problem.elements[-1].x_right[: len(problem.ocp.system.state_names)]
    of_end = [end, ca.jacobian(end, problem.mpcc.w), ca.jacobian(end, problem.mpcc.p)]
    x_end, by_w, by_p = (
        part.full() for part in ca.Function("end", [problem.mpcc.w, problem.mpcc.p], of_end)(w, values)
    )
    return SolutionSensitivity(
        names=tuple(problem.mpcc.parameters.label(int(k))[0] for k in columns),
        data=data,
        values=values[columns],
        objective=derivatives.objective,
        u=np.stack([problem.controls(column) for column in derivatives.w.T], axis=-1),
        x_end=by_w @ derivatives.w + by_p[:, columns],
        w=derivatives.w,
        flags=(*derivatives.flags, *_undetermined(problem, derivatives.loose, by_w)),
        at=Prediction(objective=last.objective, u=problem.controls(w), x_end=x_end.reshape(-1), w=np.array(w)),
    )


def solved_branch(who: str, problem: Transcription, last: Any) -> tuple[Array, Array, SolvedBranch]:
    """Return the iterate, the parameters and the branch of a solution; `who` is named in messages.

    Raises
    ------
    OptionError
        If it is of another problem, not solved or not on a branch.
    """
    if not isinstance(last, Answer | Solution):
        raise OptionError(f"{who}: expected a Solution or an Answer of this transcription, given {last!r:.60}.")
    key = last.problem.layout_key if isinstance(last, Answer) else last.layout_key
    if key != problem.layout_key:
        raise OptionError(
            f"{who}: the solution is of another transcription; expected one of problem.solve(...), or of "
            "ns.solve with the same OCP and method."
        )
    if problem.mpcc.objective.is_constant():
        raise OptionError(
            f"{who}: the problem has no objective, which would determine a solution; give the OCP a cost "
            "(derivatives of a motion are those of ns.simulate(..., sensitivities=True))."
        )
    if not last.status.success:
        raise OptionError(f"{who}: expected a solved problem, given one that ended with: {last.status}.")
    solved = last.state.solved_branch if isinstance(last, Answer) else last.branch
    if solved is None:
        raise OptionError(
            f"{who}: the solver did not end on a branch of the complementarities (Homotopy(finish='none') never "
            "does); solve with ns.Auto(), or go on from the solution by problem.solve(guess=solution)."
        )
    w, values = (last.state.w, last.state.p) if isinstance(last, Answer) else (last.w, _values(problem, last))
    _check_same(who, problem, last, np.asarray(w), values)
    return np.asarray(w), values, solved


def _check_same(who: str, problem: Transcription, last: Answer | Solution, w: Array, values: Array) -> None:
    """Raise `OptionError` if the objective is another one: a different problem may have the same variables."""
    here = float(ca.Function("f", [problem.mpcc.w, problem.mpcc.p], [problem.mpcc.objective])(w, values))
    if not abs(here - last.objective) <= SAME_OBJECTIVE * max(1.0, abs(last.objective)):
        raise OptionError(
            f"{who}: the objective of the solution is {last.objective:.8g}, and {here:.8g} in this problem: it "
            "is of another one with the same variables; expected one of problem.solve(...)."
        )


def _columns(
    problem: Transcription, asked: dict[str, bool | str | Sequence[str] | None]
) -> tuple[tuple[str, ...], Array]:
    """Return the data to differentiate by, and their places among the parameters of the program."""
    layout, data, columns = problem.mpcc.parameters, list[str](), list[int]()
    for what in DATA:
        rows = range(layout.size)[layout[what]] if what in layout.names else range(0)
        # Free parameters have a row of p as start value only; the optimum does not depend on it.
        there = {layout.label(row)[0]: row for row in rows if layout.label(row)[0] not in problem.ocp.free_parameters}
        chosen = _chosen(what, asked[what], tuple(there))
        data += [what] * len(chosen)
        columns += [there[name] for name in chosen]
    if not columns:
        raise OptionError(
            "differentiate: nothing is left to differentiate by; ask for x0, p or horizon, where the OCP fixes them."
        )
    return tuple(data), np.array(columns, int)


def _chosen(what: str, asked: Any, there: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of components: all of them, none, or those in `asked`."""
    if asked is None or asked is False:
        return there if asked is None else ()
    if asked is True:
        if not there:
            raise OptionError(f"differentiate: {what}: the OCP has none, or leaves it free; leave {what} out.")
        return there
    names = (asked,) if isinstance(asked, str) else asked
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise OptionError(f"differentiate: {what}: expected True, False or names of components, given {asked!r}.")
    for name in names:
        if name not in there:
            raise OptionError(f"differentiate: {what}: {unknown_name(name, there, 'component')}")
    return tuple(names)


def _values(problem: Transcription, solution: Solution) -> Array:
    """Return the parameters of the program (n_p,) from the fields of a solution."""
    values, layout = problem.mpcc.p0.copy(), problem.mpcc.parameters
    data = {"x0": solution.x0, "p": solution.p, "horizon": solution.horizon}
    for what, numbers in data.items():
        if what in layout.names:
            values[layout[what]] = numbers
    return values


def _undetermined(problem: Transcription, loose: Array, end_by_w: Array) -> list[str]:
    """Return the names of what the optimum leaves open: controls, horizon, parameters, last state. Forces may be split.

    Lengths of control stages whose controls are equal do not matter there, but they do as soon as data change.
    """
    variables, flags = problem.mpcc.variables, list[str]()
    for role in (Role.CONTROL, Role.STAGE_LENGTH, Role.HORIZON, Role.FREE_PARAMETER):
        for block in variables.blocks(role=role):
            if np.abs(loose[block.rows]).max(initial=0.0) > MOVES_QUANTITY:
                flags.append(f"the objective does not determine {variables.named(block.start)}")
    if np.abs(end_by_w @ loose).max(initial=0.0) > MOVES_QUANTITY:
        flags.append("the objective does not determine the last state")
    return flags
