"""Figures and animations; matplotlib is imported here and nowhere else in the library."""

from nosnoc_py.plotting.animation import animate, animate_body, animate_scene
from nosnoc_py.plotting.bodies import show_body
from nosnoc_py.plotting.elements import plot_active_set, plot_elements
from nosnoc_py.plotting.figures import dense_output, plot, plot_homotopy, plot_phase
from nosnoc_py.plotting.sparsity import plot_sparsity
from nosnoc_py.plotting.stills import snapshots
from nosnoc_py.plotting.sweeps import error_bars, heat_map, histogram, performance_profile

__all__ = [
    "animate",
    "animate_body",
    "animate_scene",
    "dense_output",
    "error_bars",
    "heat_map",
    "histogram",
    "performance_profile",
    "plot",
    "plot_active_set",
    "plot_elements",
    "plot_homotopy",
    "plot_phase",
    "plot_sparsity",
    "show_body",
    "snapshots",
]
