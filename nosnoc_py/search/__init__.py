"""Shooting over exact simulations: descent from several controls, then a polish on the finite elements.

Relaxed complementarities blur which contact closes when, and a homotopy keeps the sequence of events it happens to find
(often held by its own time grid). A simulation with located events has no such memory: its objective is a continuous,
piecewise smooth function of the control, whatever the sequence. So the search goes over controls, and what it finds
starts the finite elements of the optimal control problem, exactly, as a feasible point.
"""

from nosnoc_py.search.multi_start import MultiStart
from nosnoc_py.search.portfolio import Search

__all__ = ["MultiStart", "Search"]
