"""Finding good motions without a guess.

`Search` is what `solve` does without a method: starts of different kinds, whose exact motions have sequences of modes,
each a smooth program. `MultiStart` shoots over exact simulations and ends on finite elements: the objective of a
simulation with located events is continuous and smooth in pieces as a function of the control, whatever the sequence,
where relaxed complementarities keep the one that they happen to find. `ElementSearch` is what `solve` does where an OCP
has complementarities of its own: finite elements from many starts.
"""

from nosnoc_py.search.elements import ElementSearch
from nosnoc_py.search.multi_start import MultiStart
from nosnoc_py.search.portfolio import Search

__all__ = ["ElementSearch", "MultiStart", "Search"]
