"""The former place of `nosnoc_py.tableaus`."""

from nosnoc_py.tableaus import Tableau as ButcherTableau
from nosnoc_py.tableaus import explicit, gauss_legendre

__all__ = ["ButcherTableau", "explicit", "gauss_legendre"]
