"""Simulators: every method gives the same `Trajectory`."""
