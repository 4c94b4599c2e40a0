"""IPOPT over the controls of single shooting: the integrator and its gradient as CasADi callbacks."""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.indirect.sweep import SweepFailure
from nosnoc_py.shooting.single_descents import EndedError, Run, no_descent
from nosnoc_py.status import Status

Array = np.ndarray


class _Objective(ca.Callback):
    """J for IPOPT; `jacobian` is another callback that CasADi asks for."""

    def __init__(self, run: Run, shape: tuple[int, int]) -> None:
        ca.Callback.__init__(self)
        self.run, self.shape = run, shape
        self.jacobian = _Gradient(run, shape)
        self.construct("objective", {})

    def get_n_in(self) -> int:
        return 1

    def get_n_out(self) -> int:
        return 1

    def get_sparsity_in(self, i: int) -> ca.Sparsity:
        return ca.Sparsity.dense(self.shape[0] * self.shape[1], 1)

    def eval(self, arguments: Any) -> list[float]:
        return [self.run.trial(np.array(arguments[0]).reshape(self.shape))[0]]

    def has_jacobian(self) -> bool:
        return True

    def get_jacobian(self, name: str, inames: Any, onames: Any, opts: Any) -> ca.Callback:
        return self.jacobian


class _Gradient(ca.Callback):
    """dJ/du as a row, in the form CasADi gives Jacobians: (u, J) -> row."""

    def __init__(self, run: Run, shape: tuple[int, int]) -> None:
        ca.Callback.__init__(self)
        self.run, self.shape = run, shape
        self.construct("gradient", {})

    def get_n_in(self) -> int:
        return 2

    def get_n_out(self) -> int:
        return 1

    def get_sparsity_in(self, i: int) -> ca.Sparsity:
        return ca.Sparsity.dense(*((self.shape[0] * self.shape[1], 1) if i == 0 else (1, 1)))

    def get_sparsity_out(self, i: int) -> ca.Sparsity:
        return ca.Sparsity.dense(1, self.shape[0] * self.shape[1])

    def eval(self, arguments: Any) -> list[ca.DM]:
        return [ca.DM(self.run.trial(np.array(arguments[0]).reshape(self.shape))[1].reshape(1, -1))]


class _Watch(ca.Callback):
    """Shown every iterate by IPOPT; stops it when the run has ended, and remembers why."""

    def __init__(self, run: Run, shape: tuple[int, int], rows: int) -> None:
        ca.Callback.__init__(self)
        self.run, self.shape = run, shape
        size = shape[0] * shape[1]
        self.sizes = {"x": size, "f": 1, "g": rows, "lam_x": size, "lam_g": rows, "lam_p": 0}
        self.end: Exception | None = None
        self.construct("watch", {})

    def get_n_in(self) -> int:
        return int(ca.nlpsol_n_out())

    def get_n_out(self) -> int:
        return 1

    def get_sparsity_in(self, i: int) -> ca.Sparsity:
        return ca.Sparsity.dense(self.sizes[ca.nlpsol_out(i)], 1)

    def eval(self, arguments: Any) -> list[int]:
        try:
            u = np.array(arguments[0]).reshape(self.shape)  # IPOPT's own iterates may be a little outside of the set
            self.run.accept(self.run.gradient(self.run.problem.controls.project(u)))
        except (EndedError, SweepFailure) as end:
            self.end = end
        except KeyboardInterrupt:  # which must not get into IPOPT
            self.end = EndedError(Status.INTERRUPTED)
        return [int(self.end is not None)]


def ipopt(run: Run, u: Array) -> tuple[Status, str]:
    """IPOPT with an L-BFGS Hessian; a ball is a constraint on u'u."""
    controls = run.problem.controls
    w = ca.MX.sym("u", u.size)
    length = ca.sum1(ca.reshape(w, u.shape[1], u.shape[0]) ** 2).T if controls.is_ball else ca.MX(0, 1)
    objective, watch = _Objective(run, u.shape), _Watch(run, u.shape, length.numel())
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
            "tol": min(1e-8, run.tolerance * run.dt),
        },
    }
    solver = ca.nlpsol("single", "ipopt", {"x": w, "f": objective(w), "g": length}, settings)
    run.gradient(u)  # a start that cannot be integrated is no start
    bounds = {"lbx": np.tile(controls.lower, len(u)), "ubx": np.tile(controls.upper, len(u))}
    solver(x0=u.ravel(), lbg=-np.inf, ubg=controls.radius**2, **bounds)
    if watch.end is not None:
        raise watch.end
    return no_descent(run, solver.stats()["return_status"] == "Maximum_Iterations_Exceeded")
