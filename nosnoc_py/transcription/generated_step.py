"""One step of a closed loop as C: the program of a kept branch, solved for a measured x0.

The steps of the interior-point method in `mpcc.interior` are exported as CasADi functions; a loop in C around them
(`step_source`) factorises their matrices. The branch is that of a solution: which sides of the pairs vanish is fixed
when the code is generated, and so is the sparsity of every factor.

The loop corrects the inertia of the matrices as Waechter and Biegler (2006, Algorithm IC) do, but has no line search:
it starts at the last plan, and reports what it cannot solve. Invariant: what it reports as solved has residuals of the
unrelaxed problem that `resolve` would accept, evaluated by `_audit` after the last step.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from nosnoc_py.errors import OptionError
from nosnoc_py.mpcc.branch import FAST, SETTINGS, Branch, as_differences
from nosnoc_py.mpcc.interior.method import FIRST, InteriorPoint
from nosnoc_py.mpcc.interior.written import BranchSolution, WrittenSteps, write
from nosnoc_py.mpcc.program import MPCC
from nosnoc_py.roles import Role
from nosnoc_py.transcription.optimum import solved_branch
from nosnoc_py.transcription.step_source import BODY, HEADER_TEXT, filled, listed

if TYPE_CHECKING:
    from nosnoc_py.transcription.transcription import Transcription

Array = np.ndarray
SOURCE, HEADER, LAYOUT = "step.c", "step.h", "layout.json"
# What the C function returns.
STATUSES = {
    0: "solved: plan and u are new; in all other cases they stay as they were",
    1: "the branch is left: its equations or its signs do not hold at the end",
    2: "the limit of iterations is reached on the branch",
    3: "no step: the matrix is singular, or a value is NaN or infinite",
}
# EXACT_RESIDUAL: largest residual of the unrelaxed problem, as in `Strategy`. MOST_ITERATIONS bounds the time of one
# call. Lengths of steps (of 1) below SHORT_LENGTH, SHORT_STEPS times in a row, make no progress: bounds of the branch
# contradict its equations.
EXACT_RESIDUAL, MOST_ITERATIONS, SHORT_LENGTH, SHORT_STEPS = 1e-8, 60, 1e-3, 5


@dataclass(frozen=True, eq=False, kw_only=True)
class Step:
    """The functions of a step, and where in their vectors x0, p and the first control are."""

    steps: WrittenSteps
    audit: ca.Function
    values: Array
    x0: slice
    p: slice
    u: tuple[int, ...]

    @property
    def functions(self) -> tuple[ca.Function, ...]:
        """Functions that the C code calls."""
        return self.steps.begin, self.steps.look, self.steps.move, self.audit


def step_of(problem: Transcription, solution: Any, values: Array) -> Step:
    """Return the step on the branch of a solution; `values` (n_p,) are the parameters that C is not given.

    Raises
    ------
    OptionError
        If the solution is of another problem, not solved or not on a branch, or the OCP leaves x0 free.
    """
    m = problem.mpcc
    w, p, solved = solved_branch("generate: step", problem, solution)
    if "x0" not in m.parameters.names:
        raise OptionError("generate: step: the OCP leaves the initial state free: no measured one can be given.")
    # The way a branch was solved decides whether switched equations are penalised: a parameter of the program.
    branch, penalised = Branch(solved.G, solved.H, solved.r), solved.way == "penalise"
    program = problem.solvers.finish({}).program
    lbx, ubx, lbg, ubg = program.bounds(p, branch)
    place = BranchSolution(
        # The program is scaled, and has differences in place of pairs that only enter as such.
        x=np.clip(as_differences(m, w) / m.w_scale, lbx, ubx),
        scale=m.w_scale,
        parameters=np.append(p, float(penalised)),
        bounds={"lbx": lbx, "ubx": ubx, "lbg": lbg, "ubg": ubg},
        duals={"lam_x0": solved.lam_x, "lam_g0": solved.lam_g},
        symbols=m.p,
        fixed=program.fixed(p, branch),
    )
    steps = write(InteriorPoint(program.nlp, {**SETTINGS, **FAST}), place)
    # Blocks come in the order of the stages: the first one is the control to apply.
    first = next(iter(m.variables.blocks(role=Role.CONTROL)), None)
    return Step(
        steps=steps,
        audit=_audit(m, steps.start.size),
        values=values,
        x0=m.parameters["x0"],
        p=m.parameters["p"] if "p" in m.parameters.names else slice(0, 0),
        u=() if first is None else tuple(range(first.start, first.start + first.size)),
    )


def _audit(m: MPCC, size: int) -> ca.Function:
    """Return a function of the largest residual of the unrelaxed problem and of a sum that is finite if all are."""
    plan = ca.SX.sym("plan", size)
    w, (i, j) = ca.SX(plan[: m.w0.size]), m.pairs()
    for group in m.groups:
        if group.difference_only:
            # The parts of a difference are determined up to a common summand: take those of which one is zero.
            plus, minus = m.G_variable[group.left].tolist(), m.H_variable[group.right].tolist()
            w[plus], w[minus] = w[plus] - ca.fmin(w[plus], w[minus]), w[minus] - ca.fmin(w[plus], w[minus])
    unequal = ca.SX(ca.DM(m.enforced.astype(float))) * m.r * m.indicator(m.G, m.H)
    g, G, H, unequal = ca.Function("rows", [m.w, m.p], [m.g, m.G, m.H, unequal])(w, m.p)
    left, right = G[i.tolist(), 0], H[j.tolist(), 0]
    # Relative for sides above 1, as `mpcc.residuals` has it.
    products = ca.fabs(left * right) / ca.fmax(1.0, ca.fmax(ca.fabs(left), ca.fabs(right)))
    bounds = [row for x, low, high in ((w, m.lbw, m.ubw), (g, m.lbg, m.ubg)) for row in _outside(x, low, high)]
    residuals = ca.densify(ca.vertcat(*bounds, -G, -H, ca.fabs(unequal), products))
    # A maximum skips NaN in C, a sum does not: the second output shows it.
    worst = ca.fmax(0.0, ca.mmax(residuals))
    outputs = [ca.vertcat(worst, ca.sum1(ca.fabs(residuals)))]
    return ca.Function("nlp_step_audit", [m.p, plan], outputs, ["p", "plan"], ["residuals"])


def _outside(x: ca.SX, lower: Array, upper: Array) -> tuple[ca.SX, ca.SX]:
    below, above = (np.flatnonzero(np.isfinite(bound)) for bound in (lower, upper))
    return ca.DM(lower[below]) - x[below.tolist(), 0], x[above.tolist(), 0] - ca.DM(upper[above])


def sources(step: Step) -> dict[str, str]:
    """Return the texts of step.c and step.h."""
    generator = ca.CodeGenerator(SOURCE)
    for function in step.functions:
        generator.add(function)
    with TemporaryDirectory() as folder:
        generator.generate(f"{folder}/")
        code = (Path(folder) / SOURCE).read_text(encoding="utf-8")
    sizes = {"x0": _length(step.x0), "p": _length(step.p), "u": len(step.u), "plan": step.steps.start.size}
    explained = "\n".join(f" *   {number}: {text}" for number, text in STATUSES.items())
    header = filled(HEADER_TEXT, {**sizes, "statuses": explained})
    return {SOURCE: code + filled(BODY, _numbers(step)), HEADER: header}


def _numbers(step: Step) -> dict[str, Any]:
    """Return the text of the C code for each word between @."""
    steps, by_columns = step.steps, step.steps.factor.T
    most = {name: max(getattr(f, f"sz_{name}")() for f in step.functions) for name in ("arg", "res", "iw", "w")}
    # `call` fills three arguments and results whatever the function takes; C has no arrays of size 0.
    rooms = {"arg": max(3, most["arg"]), "res": max(3, most["res"]), "iw": max(1, most["iw"]), "w": max(1, most["w"])}
    return rooms | {
        "values": step.values.size,
        "x0_row": step.x0.start,
        "p_row": step.p.start,
        "plan": steps.start.size,
        "rows": steps.signs.size,
        "negative": int((steps.signs < 0.0).sum()),
        "iterations": MOST_ITERATIONS,
        "short_steps": SHORT_STEPS,
        "column_start": listed(steps.pattern.colind()),
        "matrix_row": listed(steps.pattern.row()),
        "row_start": listed(steps.factor.colind()),
        "factor_column": listed(steps.factor.row()),
        "factor_start": listed(by_columns.colind()),
        "factor_row": listed(by_columns.row()),
        "sign": listed(steps.signs.astype(int)),
        "control": listed(step.u),
        "default_values": listed(step.values),
        "start": listed(steps.start),
        "nonzeros": steps.pattern.nnz(),
        "factor_nonzeros": max(1, by_columns.nnz()),
        "short": SHORT_LENGTH,
        "exact": EXACT_RESIDUAL,
        "loose": SETTINGS["acceptable_tol"] / FAST["tol"],
        "first": FIRST,
    }


def _length(rows: slice) -> int:
    return int(rows.stop - rows.start)


def described(problem: Transcription, step: Step) -> dict[str, Any]:
    """Return the entries of layout.json about the step."""
    m, names = problem.mpcc, problem.mpcc.parameters
    return {
        "x0": [names.label(row)[0] for row in range(step.x0.start, step.x0.stop)],
        "p": [names.label(row)[0] for row in range(step.p.start, step.p.stop)],
        "u": [m.variables.label(row)[0] for row in step.u],
        "u_rows_of_plan": list(step.u),
        "plan": step.steps.start.tolist(),
        "plan_parts": "w (as `variables`), then slacks and multipliers, which have no meaning outside of the step",
        "statuses": {str(number): text for number, text in STATUSES.items()},
    }


def readme(step: Step) -> str:
    """Return the section of the README on the step."""
    statuses = "\n".join(f"- {number}: {text}" for number, text in STATUSES.items())
    n_x, n_p, n_plan = _length(step.x0), _length(step.p), step.steps.start.size
    return f"""
## One step of the closed loop

`{HEADER}` declares `int nlp_step(const double *x0, const double *p, double *plan, double *u)`: the control of the first
stage for a measured x0 ({n_x} numbers) and parameters p ({n_p} numbers, or NULL for those of `{LAYOUT}`). The `plan`
({n_plan} numbers) begins as the solution that the code was generated from, and is where the next step starts:

    #include "{HEADER}"
    static double plan[NLP_STEP_PLAN];
    void begin(void) {{ nlp_step_start(plan); }}
    int control(const double *measured, double *u) {{ return nlp_step(measured, 0, plan, u); }}

It returns

{statuses}

Which sides of the pairs vanish is fixed by the solution; bounds and other inequalities become active and inactive as
they must. Any status but 0 means: this x0 has another sequence of events, or plain steps do not reach the optimum; then
`problem.resolve` in Python answers, and what it finds can be generated. The plan is not moved in time: every step is
for the whole horizon from x0 on. Whether x0 itself is admissible (no contact penetrates) is not looked at. Memory is
static, nothing is allocated, and a step has at most {MOST_ITERATIONS} iterations.
"""
