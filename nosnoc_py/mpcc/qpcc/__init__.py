"""Quadratic programs with complementarity constraints: a search over the orders of contacts in milliseconds."""

from nosnoc_py.mpcc.qpcc.program import QPCC, Answer, Outcome

__all__ = ["QPCC", "Answer", "Outcome"]
