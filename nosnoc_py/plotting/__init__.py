"""Figures and animations; matplotlib is imported here and nowhere else in the library."""

from nosnoc_py.plotting.figures import dense_output, plot, plot_homotopy

__all__ = ["dense_output", "plot", "plot_homotopy"]
