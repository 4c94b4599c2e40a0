"""Simulation: finite elements, event-driven and time-stepping methods; each returns a `Trajectory`."""
