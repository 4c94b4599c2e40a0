"""What the user writes: continuous-time nonsmooth systems."""

from nosnoc_py.systems.cls import CLS
from nosnoc_py.systems.pss import PDS, PSS, Heaviside

SYSTEMS = (CLS, PSS, Heaviside, PDS)
