"""Quadratic programs with complementarity constraints: a search over the orders of contacts in milliseconds."""

from nosnoc_py.mpcc.qpcc.program import QPCC
from nosnoc_py.mpcc.qpcc.result import QPCCOutcome, QPCCResult

__all__ = ["QPCC", "QPCCOutcome", "QPCCResult"]
