"""Audit of a motion by numbers, shared by solvers, simulators and certificates: each reports the same violation."""
