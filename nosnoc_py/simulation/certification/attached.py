"""Solutions returned by `solve`, with their certificate and advice if they are not confirmed."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from nosnoc_py.errors import NosnocError
from nosnoc_py.ocp import OCP
from nosnoc_py.simulation.certification.certify import certify
from nosnoc_py.solution import Solution
from nosnoc_py.status import LIMITS, Status, Verdict
from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.hybrid import HybridSystem
from nosnoc_py.systems.pss import PDS, PSS, Heaviside

# Systems that can be certified.
JUDGED = (CLS, PSS, Heaviside, PDS, HybridSystem)
# Share of the time limit that the certificate may take beyond it, so that solutions are not left uncertified.
SHARE = 0.1
# Advice for each verdict, for finite elements and for other methods.
ELEMENTS = {
    Verdict.INACCURATE: "raise rk_stages, finite_elements or control_stages",
    Verdict.REFUTED: "raise finite_elements, where several events fall into one control stage, or control_stages",
    Verdict.CONSTRAINT_BETWEEN_NODES: "raise finite_elements or rk_stages, or give the constraint a margin",
}
OTHERS = {
    Verdict.INACCURATE: "continue with solution.polish(), or with solution.refine(ns.FESDJ(...))",
    Verdict.REFUTED: "continue with solution.polish(), or solve without a method, ns.solve(ocp)",
    Verdict.CONSTRAINT_BETWEEN_NODES: "raise its stages, or give the constraint a margin",
    Verdict.CONFIRMED_IN_WINDOWS: "the motion is unstable without feedback: use a controller, ns.track(solution)",
    Verdict.UNDECIDED: "compare with another method, or with other parameters",
}


def with_certificate(
    ocp: OCP, solution: Solution, *, finite_elements: bool, deadline: float = np.inf, time_limit: float | None = None
) -> Solution:
    """Return the solution with its certificate; if it is not confirmed, the message gives the reason and advice.

    Solutions that have a certificate, that failed, or whose system cannot be simulated independently are unchanged. If
    the certificate fails, the solution is returned without one, and its message gives the reason.

    Parameters
    ----------
    ocp : OCP
    solution : Solution
    finite_elements : bool
        True if finite elements computed the solution (for the advice).
    deadline : float
        End of the time for the certificate, a stamp of `time.monotonic`.
    time_limit : float, optional
        Time limit of the whole call [s]; the certificate may always take a tenth of it.
    """
    if solution.certificate is not None or solution.status is not Status.SOLVED or not isinstance(ocp.system, JUDGED):
        return solution
    left = None if time_limit is None else max(deadline - time.monotonic(), SHARE * time_limit)
    try:
        certificate = certify(ocp, solution, time_limit=left)
    except KeyboardInterrupt:
        return _noted(solution, "not certified: interrupted")
    except NosnocError as error:  # the simulation does not accept the system, or a user's function fails
        return _noted(solution, f"not certified: {error}")
    if certificate.trajectory.status in LIMITS:
        given = "" if left is None else f" of {left:.3g} s"
        return _noted(solution, f"not certified: the simulation reached its limit{given}")
    solution = replace(solution, certificate=certificate)
    if certificate.confirmed:
        return solution
    # What a simulation refutes is no solution, whatever the residuals of the discretisation are.
    if certificate.verdict is Verdict.REFUTED:
        solution = replace(solution, status=Status.NOT_CONFIRMED)
    advice = ELEMENTS.get(certificate.verdict) if finite_elements else None
    return _noted(solution, f"{certificate.verdict}: {certificate.reason}; {advice or OTHERS[certificate.verdict]}")


def _noted(solution: Solution, note: str) -> Solution:
    """Return the solution with a note added to its message."""
    return replace(solution, message="; ".join(part for part in (solution.message, note) if part))
