"""Continuous-time nonsmooth systems, as the user writes them."""

from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.pss import PDS, PSS, Heaviside

SYSTEMS = (CLS, PSS, Heaviside, PDS)
