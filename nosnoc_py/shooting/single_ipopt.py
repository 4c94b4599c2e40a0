"""IPOPT over the controls of single shooting: the integrator and its gradient as CasADi callbacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.shooting.single_descents import EndedError, Run, no_descent
from nosnoc_py.status import Status

Array = np.ndarray

# IPOPT's own tolerance, relative to that of the run, which ends it: at active bounds slopes are far above
# IPOPT's residuals.
BELOW = 1e-8


@dataclass(kw_only=True)
class _Evaluation:
    """The run as IPOPT may see it: nothing is raised into IPOPT, which would print it and go on."""

    run: Run
    shape: tuple[int, int]
    end: BaseException | None = None

    def guarded(self, evaluate: Callable[[Array], Any], flat: Any, fallback: Any) -> Any:
        """What `evaluate` makes of the control (N, n_u); once something was raised, `fallback`."""
        if self.end is not None:
            return fallback
        try:
            return evaluate(np.array(flat).reshape(self.shape))
        except KeyboardInterrupt:
            self.end = EndedError(Status.INTERRUPTED)
        except Exception as error:
            self.end = error
        return fallback

    def accept(self, u: Array) -> None:
        """An iterate of IPOPT, which may be a little outside of the set."""
        self.run.accept(self.run.shot(self.run.problem.controls.project(u)))


class _Objective(ca.Callback):
    """J for IPOPT; `jacobian` is another callback that CasADi asks for."""

    def __init__(self, evaluation: _Evaluation) -> None:
        ca.Callback.__init__(self)
        self.evaluation, self.size = evaluation, evaluation.shape[0] * evaluation.shape[1]
        self.jacobian = _Gradient(evaluation)
        self.construct("objective", {})

    def get_n_in(self) -> int:
        return 1

    def get_n_out(self) -> int:
        return 1

    def get_sparsity_in(self, i: int) -> ca.Sparsity:
        return ca.Sparsity.dense(self.size, 1)

    def eval(self, arguments: Any) -> list[float]:
        return [self.evaluation.guarded(lambda u: self.evaluation.run.trial(u)[0], arguments[0], np.nan)]

    def has_jacobian(self) -> bool:
        return True

    def get_jacobian(self, name: str, inames: Any, onames: Any, opts: Any) -> ca.Callback:
        return self.jacobian


class _Gradient(ca.Callback):
    """dJ/du as a row, in the form CasADi gives Jacobians: (u, J) -> row."""

    def __init__(self, evaluation: _Evaluation) -> None:
        ca.Callback.__init__(self)
        self.evaluation, self.size = evaluation, evaluation.shape[0] * evaluation.shape[1]
        self.construct("gradient", {})

    def get_n_in(self) -> int:
        return 2

    def get_n_out(self) -> int:
        return 1

    def get_sparsity_in(self, i: int) -> ca.Sparsity:
        return ca.Sparsity.dense(self.size if i == 0 else 1, 1)

    def get_sparsity_out(self, i: int) -> ca.Sparsity:
        return ca.Sparsity.dense(1, self.size)

    def eval(self, arguments: Any) -> list[ca.DM]:
        unknown = np.full(self.evaluation.shape, np.nan)
        row = self.evaluation.guarded(lambda u: self.evaluation.run.trial(u)[1], arguments[0], unknown)
        return [ca.DM(row.reshape(1, -1))]


class _Watch(ca.Callback):
    """Shown every iterate by IPOPT; stops it when the run has ended."""

    def __init__(self, evaluation: _Evaluation, rows: int) -> None:
        ca.Callback.__init__(self)
        self.evaluation = evaluation
        size = evaluation.shape[0] * evaluation.shape[1]
        self.sizes = {"x": size, "f": 1, "g": rows, "lam_x": size, "lam_g": rows, "lam_p": 0}
        self.construct("watch", {})

    def get_n_in(self) -> int:
        return int(ca.nlpsol_n_out())

    def get_n_out(self) -> int:
        return 1

    def get_sparsity_in(self, i: int) -> ca.Sparsity:
        return ca.Sparsity.dense(self.sizes[ca.nlpsol_out(i)], 1)

    def eval(self, arguments: Any) -> list[int]:
        self.evaluation.guarded(self.evaluation.accept, arguments[0], None)
        return [int(self.evaluation.end is not None)]


def ipopt(run: Run, u: Array) -> tuple[Status, str]:
    """IPOPT with an L-BFGS Hessian; a ball is a constraint on u'u."""
    controls = run.problem.controls
    w = ca.MX.sym("u", u.size)
    length = ca.sum1(ca.reshape(w, u.shape[1], u.shape[0]) ** 2).T if controls.is_ball else ca.MX(0, 1)
    evaluation = _Evaluation(run=run, shape=(u.shape[0], u.shape[1]))
    objective, watch = _Objective(evaluation), _Watch(evaluation, length.numel())
    settings = {
        "print_time": False,
        "error_on_fail": False,
        "show_eval_warnings": False,
        "iteration_callback": watch,
        "ipopt": {
            "print_level": 0,
            "sb": "yes",
            "hessian_approximation": "limited-memory",
            "max_iter": run.max_iterations,
            "tol": BELOW * run.tolerance * run.dt,
        },
    }
    solver = ca.nlpsol("single", "ipopt", {"x": w, "f": objective(w), "g": length}, settings)
    run.shot(u)  # a start that cannot be integrated is no start
    bounds = {"lbx": np.tile(controls.lower, len(u)), "ubx": np.tile(controls.upper, len(u))}
    solver(x0=u.ravel(), lbg=-np.inf, ubg=controls.radius**2, **bounds)
    if evaluation.end is not None:
        raise evaluation.end
    return no_descent(run, solver.stats()["return_status"] == "Maximum_Iterations_Exceeded")
