"""IPOPT over the controls of single shooting: the integrator and its gradient as CasADi callbacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


class _Callback(ca.Callback):
    """A function of its first argument as CasADi calls it; arguments are columns, the result is a row.

    Parameters
    ----------
    name : str
    evaluate : function of a column
    sizes : sequence of int
        Of the arguments.
    width : int
        Of the result.
    jacobian : _Callback, optional
        In the form CasADi asks for: a function of the argument and the result.
    """

    def __init__(
        self,
        name: str,
        evaluate: Callable[[Any], Any],
        sizes: Sequence[int],
        width: int = 1,
        jacobian: _Callback | None = None,
    ) -> None:
        ca.Callback.__init__(self)
        self.evaluate, self.sizes, self.width, self.jacobian = evaluate, tuple(sizes), width, jacobian
        self.construct(name, {})

    def get_n_in(self) -> int:
        return len(self.sizes)

    def get_n_out(self) -> int:
        return 1

    def get_sparsity_in(self, i: int) -> ca.Sparsity:
        return ca.Sparsity.dense(self.sizes[i], 1)

    def get_sparsity_out(self, i: int) -> ca.Sparsity:
        return ca.Sparsity.dense(1, self.width)

    def eval(self, arguments: Any) -> list[ca.DM]:
        return [ca.DM(self.evaluate(arguments[0]))]

    def has_jacobian(self) -> bool:
        return self.jacobian is not None

    def get_jacobian(self, name: str, inames: Any, onames: Any, opts: Any) -> ca.Callback | None:
        return self.jacobian


def ipopt(run: Run, u: Array) -> tuple[Status, str]:
    """IPOPT with an L-BFGS Hessian; a ball is a constraint on u'u."""
    controls = run.problem.controls
    w = ca.MX.sym("u", u.size)
    length = ca.sum1(ca.reshape(w, u.shape[1], u.shape[0]) ** 2).T if controls.is_ball else ca.MX(0, 1)
    evaluation = _Evaluation(run=run, shape=(u.shape[0], u.shape[1]))

    def value(flat: Any) -> Any:
        return evaluation.guarded(lambda u: run.trial(u)[0], flat, np.nan)

    def slope(flat: Any) -> Any:
        return evaluation.guarded(lambda u: run.trial(u)[1].reshape(1, -1), flat, np.full((1, u.size), np.nan))

    def watch(flat: Any) -> int:
        """Shown every iterate by IPOPT; stops it when the run has ended."""
        evaluation.guarded(evaluation.accept, flat, None)
        return int(evaluation.end is not None)

    gradient = _Callback("gradient", slope, (u.size, 1), u.size)
    objective = _Callback("objective", value, (u.size,), jacobian=gradient)
    sizes = {"x": u.size, "f": 1, "g": length.numel(), "lam_x": u.size, "lam_g": length.numel(), "lam_p": 0}
    shown = _Callback("watch", watch, [sizes[ca.nlpsol_out(i)] for i in range(ca.nlpsol_n_out())])
    settings = {
        "print_time": False,
        "error_on_fail": False,
        "show_eval_warnings": False,
        "iteration_callback": shown,
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
