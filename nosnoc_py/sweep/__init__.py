"""Many runs from one configuration: on this machine or on a cluster, resumable, with a table at the end.

results = nosnoc_py.sweep.run("problems/configs/disc_homotopy.yaml")
print(results.summary())
"""

from nosnoc_py.sweep.config import Configuration, load
from nosnoc_py.sweep.grid import runs
from nosnoc_py.sweep.perform import SweepState
from nosnoc_py.sweep.results import Results, read
from nosnoc_py.sweep.study import run

__all__ = ["Configuration", "Results", "SweepState", "load", "read", "run", "runs"]
