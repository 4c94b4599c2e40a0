"""Direct shooting: controls of equal intervals, simulated by explicit steps, by phases, or over smoothed contacts."""

from nosnoc_py.methods.shooting.options import SmoothedShooting
from nosnoc_py.methods.shooting.phases import PhaseShooting
from nosnoc_py.methods.shooting.single import SingleShooting

__all__ = ["PhaseShooting", "SingleShooting", "SmoothedShooting"]
