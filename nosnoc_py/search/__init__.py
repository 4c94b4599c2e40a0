"""Global search for good motions, without an initial guess by the user.

`Search` is the default of `solve`: it simulates many controls, reads the mode sequence of every motion, and solves the
smooth multi-phase program of that sequence. `ElementSearch` is the default for an OCP with complementarities of its
own: finite elements from many random controls.

Both exist because a relaxed MPCC keeps the mode sequence that its start leads to. The objective of a simulation
with located events is instead a continuous and piecewise smooth function of the control, across changes of sequence.
"""

from nosnoc_py.search.elements import ElementSearch
from nosnoc_py.search.portfolio import Search

__all__ = ["ElementSearch", "Search"]
