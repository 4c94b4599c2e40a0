"""Figures and animations; matplotlib is imported here and nowhere else in the library."""

from nosnoc_py.plotting.animation import animate
from nosnoc_py.plotting.bodies import animate_body, show_body
from nosnoc_py.plotting.figures import dense_output, plot, plot_homotopy

__all__ = ["animate", "animate_body", "dense_output", "plot", "plot_homotopy", "show_body"]
