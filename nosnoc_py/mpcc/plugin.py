"""Any solver of nonlinear programs that CasADi's installation loads, by the name of its plugin.

CasADi gives all of them one interface, but names of options and places for them differ: an option goes to the plugin
itself if it knows the name, else to the solver behind it. Success and iterations are read from its statistics. Most
plugins ask nobody during a run, so that a limit of time holds between runs only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

import casadi as ca
import numpy as np

from nosnoc_py.attempts import work
from nosnoc_py.errors import OptionError
from nosnoc_py.mpcc.ipopt import SUCCESS, NLPResult
from nosnoc_py.mpcc.nlp import SmoothProgram, entries_of, operations_of
from nosnoc_py.mpcc.threads import one_thread

# Setting of the homotopy that others know by the same name, and plugins whose solver has it among its own options.
SHARED, SHARING = "max_iter", ("fatrop", "bonmin")
# Options that keep plugins silent, where they know them.
SILENT: Mapping[str, Any] = {
    "print_time": False,
    "print_header": False,
    "print_iteration": False,
    "print_status": False,
    "error_on_fail": False,
    "show_eval_warnings": False,
    "calc_lam_p": False,
}
# The same for the solvers behind them. The QP solver of CasADi's own SQP methods is one that is always there.
QRQP = {"print_iter": False, "print_header": False, "print_info": False, "print_time": False, "error_on_fail": False}
BEHIND: Mapping[str, Mapping[str, Any]] = {
    "sqpmethod": {"qpsol": "qrqp", "qpsol_options": QRQP},
    "feasiblesqpmethod": {"qpsol": "qrqp", "qpsol_options": QRQP},
    "qrsqp": {"qpsol_options": QRQP},
    "uno": {"uno": {"logger": "SILENT"}},
    "fatrop": {"fatrop": {"print_level": 0}},
    "bonmin": {"bonmin": {"print_level": 0, "sb": "yes"}},
    "sleqp": {"print_level": 0},
}
# Options of every plugin, which `nlpsol_options` does not list for it.
GENERAL = ("print_time", "error_on_fail", "show_eval_warnings", "calc_lam_p", "verbose_init", "expand")


def is_plugin(name: str) -> bool:
    """Return True if CasADi can load a solver of nonlinear programs by this name."""
    return bool(name) and name.isidentifier() and bool(ca.has_nlpsol(name))


class Plugin:
    """Solver of one NLP by a plugin; `solve` may be called with changing bounds, parameters and starts.

    Parameters
    ----------
    name : str
    nlp : SmoothProgram
    settings : mapping
        Settings of the homotopy, by names of IPOPT.
    given : mapping
        Options of the user, by the solver's own names.

    Raises
    ------
    OptionError
        If the plugin refuses its options.
    """

    def __init__(self, name: str, nlp: SmoothProgram, settings: Mapping[str, Any], given: Mapping[str, Any]) -> None:
        self.nlp, self.name, self._lock = nlp, name, threading.Lock()
        known = (*ca.nlpsol_options(name), *GENERAL)
        options: dict[str, Any] = {key: value for key, value in SILENT.items() if key in known}
        behind = BEHIND.get(name, {})
        options |= {key: dict(value) if isinstance(value, Mapping) else value for key, value in behind.items()}
        shares = SHARED in settings and (SHARED in known or name in SHARING)
        shared = {SHARED: settings[SHARED]} if shares else {}
        for key, value in {**shared, **given}.items():
            place = options if key in known else options.setdefault(name, {}) if name in known else None
            if place is None:
                raise OptionError(f"nlp_solver: {name!r} has no option {key!r}, only {', '.join(sorted(known))}.")
            place[key] = value
        self._work = work.of_iteration(operations_of(nlp), entries_of(nlp))
        problem = {"x": nlp.x, "p": nlp.p, "f": ca.densify(nlp.f), "g": nlp.g}
        try:
            self._solver = ca.nlpsol("nlp", name, problem, options)
        except RuntimeError as error:
            raise OptionError(f"nlp_solver={name!r} refused its options {options}: {str(error)[:1500]}") from None

    def solve(self, x: np.ndarray, p: np.ndarray, *, deadline: float = np.inf, **given: np.ndarray) -> NLPResult:
        """Solve from x; see `Ipopt.solve`. A deadline that has passed ends the run before it begins."""
        bounds = {name: getattr(self.nlp, name) for name in ("lbx", "ubx", "lbg", "ubg")}
        started = time.monotonic()
        if started >= deadline:
            empty = np.zeros(self.nlp.x.numel()), np.zeros(self.nlp.g.numel())
            return self._result(x, *empty, 0, "the time was over", started)
        with self._lock:
            try:
                with one_thread:
                    answer = self._solver(x0=x, p=p, **{**bounds, **given})
            except RuntimeError as error:  # a plugin may raise where others return a status
                empty = np.zeros(self.nlp.x.numel()), np.zeros(self.nlp.g.numel())
                return self._result(x, *empty, 0, str(error).strip().splitlines()[-1], started)
            stats = self._solver.stats()
        iterations = max(0, int(stats.get("iter_count", 0) or 0))
        work.count((1 + iterations) * self._work)
        word = SUCCESS[0] if stats.get("success") else str(stats.get("return_status", "failed"))
        x, lam_x, lam_g = (np.asarray(answer[key]).reshape(-1) for key in ("x", "lam_x", "lam_g"))
        return self._result(x, lam_x, lam_g, iterations, word, started)

    @staticmethod
    def _result(
        x: np.ndarray, lam_x: np.ndarray, lam_g: np.ndarray, iterations: int, word: str, started: float
    ) -> NLPResult:
        seconds = time.monotonic() - started
        return NLPResult(x=x, lam_x=lam_x, lam_g=lam_g, iterations=iterations, wall_seconds=seconds, solver_status=word)
