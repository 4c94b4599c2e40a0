"""Which solvers work, tried in a process of their own: `python -P probe.py KIND:NAME ...` prints one line for each.

Some plugins print warnings when they are looked for, and some end the whole process when their library is missing. So
this file is run by itself; whoever runs it takes a missing line for a crash.
"""

from __future__ import annotations

import sys

import casadi as ca


def works(kind: str, name: str) -> bool:
    """Return whether CasADi can load a plugin (kind nlpsol, conic, linsol), or IPOPT a linear solver (kind ipopt)."""
    return _solves(name) if kind == "ipopt" else bool(getattr(ca, f"has_{kind}")(name))


def _solves(linear_solver: str) -> bool:
    x = ca.SX.sym("x")
    options = {"ipopt.linear_solver": linear_solver, "ipopt.print_level": 0, "ipopt.sb": "yes", "print_time": False}
    try:
        solver = ca.nlpsol("solver", "ipopt", {"x": x, "f": (x - 1) ** 2, "g": x}, options)
        solver(x0=0.0, lbg=0.0)
        return bool(solver.stats()["success"])
    except RuntimeError:
        return False


if __name__ == "__main__":
    for plugin in sys.argv[1:]:
        # the line comes before anything that a library writes at its end
        sys.stdout.write(f"\nprobe {plugin} {works(*plugin.split(':'))}\n")
        sys.stdout.flush()
