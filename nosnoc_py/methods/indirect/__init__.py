"""Optimise, then discretise: solvers of the hybrid minimum principle (HMP)."""
